"""Values as a user types them: reading and writing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo import Linear
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.literals import read_literal


def read(text: str, name: str) -> Any:
    """Return the value of a typed text: a Python literal, a ``Linear`` schedule or a dict; a single word is itself,
    and so is the path of something that exists, as ``runs/expert.npz``.

    Nothing in the text is executed. Examples: ``1e5``, ``[64, 64]``, ``Linear(1e-3, 0)``, ``dict(learners=1)``.

    Raises:
        ValueError: the text is something else; the message names the parameter and says what may be given.
    """
    text = text.strip()
    if text.isidentifier() and text not in ('None', 'True', 'False'):
        return text
    if '/' in text and Path(text).expanduser().exists():
        return text
    right = "a value as Python writes it, such as 0.99, None, [64, 64], 'auto' or Linear(1e-3, 0)"
    return _read(text, f'{name} is {text!r}: give {right}.')


def read_keywords(text: str, name: str) -> dict[str, Any]:
    """Return the dict for ``hidden=[64, 64], activation='tanh'``; nothing in the text is executed."""
    right = "names and values, such as hidden=[64, 64], activation='tanh'"
    value = _read(f'dict({text})', f'{name} is {text!r}: give {right}.')
    assert isinstance(value, dict)
    return value


def _read(text: str, refusal: str) -> Any:
    try:
        return read_literal(text)
    except (ValueError, TypeError, SyntaxError) as error:
        if isinstance(error, ValueError) and 'Linear' in str(error):
            raise
        raise InvalidValue(refusal) from None


def written(value: Any) -> str:
    """Return the text of a value, which :func:`read` and Python can read."""
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
    """Return a text such as ``hidden=[64, 64], activation='tanh'``, which :func:`read_keywords` can read."""
    return ', '.join(f'{name}={written(value)}' for name, value in values.items())
