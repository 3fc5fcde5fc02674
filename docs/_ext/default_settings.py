"""Default hyper-parameters as text: the settings of a level of a table in ``zoo/default_params``, and its comments."""

from __future__ import annotations

import re
from typing import Any

from zoo.common.schedules import Linear


def notes_of(source: str) -> dict[str, str]:
    """Return the comments of a file of defaults, by block and key: ``'COMMON'``, ``'TUNED CartPole-v1'``."""
    notes: dict[str, list[str]] = {}
    block = key = ''
    pending: list[str] = []
    for line in source.splitlines():
        begun = re.match(r"(COMMON|TYPES|TUNED)\b(?:\['([^']+)'\] =)?", line)
        entry = re.match(r"    '([^']+)': ", line)
        comment = re.match(r'( *)# (.*)', line)
        if comment:
            inside = block == 'COMMON' or (key and len(comment[1]) > 4)
            (notes.setdefault(key, []) if inside else pending).append(comment[2])
            continue
        if begun:
            block = begun[1]
            key = 'COMMON' if block == 'COMMON' else f'{block} {begun[2]}' if begun[2] else ''
        elif entry and block in ('TYPES', 'TUNED'):
            key = f'{block} {entry[1]}'
        elif not line.startswith(' '):  # another name, or the end of a block
            block = key = ''
            pending = []
        if pending and key:
            notes.setdefault(key, []).extend(pending)
            pending = []
    return {key: ' '.join(lines) for key, lines in notes.items()}


def settings_of(level: dict[str, Any]) -> str:
    """Return a level of the default hyper-parameters as text."""
    words = {'network': 'each network', 'optimizer': 'each optimizer', 'recurrent': 'with recurrent networks'}
    parts = [', '.join(f'`{key}={literal(value)}`' for key, value in level.items() if not isinstance(value, dict))]
    parts += [f'{word}: {settings_of(level[key])}' for key, word in words.items() if isinstance(level.get(key), dict)]
    for kind in ('networks', 'optimizers'):
        parts += [f'{kind} `{key}`: {settings_of(value)}' for key, value in level.get(kind, {}).items()]
    return '; '.join(part for part in parts if part)


def literal(value: Any) -> str:
    """Return a value as a short Python literal."""
    if isinstance(value, Linear):
        rest = f', until={value.until:g}' if value.until != 1.0 else ''
        return f'Linear({value.start:g}, {value.end:g}{rest})'
    if isinstance(value, int) and not isinstance(value, bool):
        return f'{value:_}' if value >= 10_000 else str(value)
    return f'{value:g}' if isinstance(value, float) else repr(value)
