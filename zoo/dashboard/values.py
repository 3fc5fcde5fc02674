"""Values as somebody types them: read, written, and the nearest valid one where one is refused."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

from zoo import Linear

#: What an entry may call; all else in it is literal.
_CALLS = {'Linear': Linear, 'dict': dict}


def read(text: str, name: str) -> Any:
    """The value that a text stands for: a literal of Python's, a ``Linear`` schedule, a dict.

    Nothing in it is executed. ``1e5``, ``[64, 64]``, ``None``, ``Linear(1e-3, 0)``, ``dict(learners=1, actors=4)``, and
    a single word is itself.

    Args:
        text: as it was typed.
        name: of what it is a value of, for the message.

    Raises:
        ValueError: one sentence that says what may be given.
    """
    text = text.strip()
    if text.isidentifier() and text not in ('None', 'True', 'False'):
        return text
    try:
        return _value(ast.parse(text, mode='eval').body)
    except (ValueError, TypeError, SyntaxError) as error:
        if isinstance(error, ValueError) and 'Linear' in str(error):
            raise
        raise ValueError(
            f"{name} is {text!r}: give a value as Python writes it, such as 0.99, None, [64, 64], 'auto' or "
            'Linear(1e-3, 0).'
        ) from None


def read_keywords(text: str, name: str) -> dict[str, Any]:
    """The dict that ``hidden=[64, 64], activation='tanh'`` stands for; see :func:`read`."""
    try:
        call = ast.parse(f'dict({text})', mode='eval').body
        value = _value(call)
    except (ValueError, TypeError, SyntaxError) as error:
        if isinstance(error, ValueError) and 'Linear' in str(error):
            raise
        raise ValueError(
            f"{name} is {text!r}: give names and values, such as hidden=[64, 64], activation='tanh'."
        ) from None
    assert isinstance(value, dict)
    return value


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        function: Any = _CALLS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        named = {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        if function is None or len(named) < len(node.keywords):
            raise ValueError('no value')
        return function(*map(_value, node.args), **named)
    if isinstance(node, ast.List | ast.Tuple):
        items = [_value(item) for item in node.elts]
        return items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        return {_value(key): _value(item) for key, item in zip(node.keys, node.values, strict=True) if key is not None}
    return ast.literal_eval(node)


def written(value: Any) -> str:
    """The text of a value, which :func:`read` reads again, and Python too."""
    if isinstance(value, Linear):
        rest = '' if value.until == 1.0 else f', {value.until:g}'
        return f'Linear({written(value.start)}, {written(value.end)}{rest})'
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and key.isidentifier() for key in value):
            return f'dict({keywords(value)})'
        return '{' + ', '.join(f'{key!r}: {written(item)}' for key, item in value.items()) + '}'
    if isinstance(value, list):
        return f'[{", ".join(map(written, value))}]'
    if isinstance(value, tuple):
        return f'({", ".join(map(written, value))}{"," if len(value) == 1 else ""})'
    if type(value) is int:
        return f'{value:_}' if abs(value) >= 10_000 else str(value)
    return repr(value)


def keywords(values: Mapping[str, Any]) -> str:
    """``hidden=[64, 64], activation='tanh'``, which :func:`read_keywords` reads again."""
    return ', '.join(f'{name}={written(value)}' for name, value in values.items())


def nearest(param: Any, value: Any) -> Any:
    """The valid value that is nearest to a refused one; None where there is no such, and what was there is to stay.

    Args:
        param: the declaration, as ``zoo.describe`` has it.
        value: that its check refuses.
    """
    if param.kind not in ('whole', 'number') or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value):
        return None
    low, high = param.range.low, param.range.high
    found = min(max(value, low), high)
    if param.kind == 'whole':
        found = min(max(round(found), math.ceil(low)), high) if math.isfinite(low) else round(found)
    try:
        return param.check(found)
    except ValueError:  # an end that is not itself included
        return None
