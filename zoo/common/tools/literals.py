"""Values in Python's notation, read without executing anything."""

from __future__ import annotations

import ast
from typing import Any

from zoo.common.schedules import Linear
from zoo.common.tools.errors import InvalidValue

#: The only names that a text may call.
_CALLS = {'Linear': Linear, 'dict': dict}


def read_literal(text: str) -> Any:
    """Return the value of a Python literal; ``Linear(1e-3, 0)`` and ``dict(learners=1)`` are read too.

    Another text is a ValueError, a TypeError or a SyntaxError.
    """
    return _value(ast.parse(text.strip(), mode='eval').body)


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        function: Any = _CALLS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        named = {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        if function is None or len(named) < len(node.keywords):
            raise InvalidValue('it calls an unknown function')
        return function(*map(_value, node.args), **named)
    if isinstance(node, ast.List | ast.Tuple):
        items = [_value(item) for item in node.elts]
        return items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        return {_value(key): _value(item) for key, item in zip(node.keys, node.values, strict=True) if key is not None}
    return ast.literal_eval(node)
