"""JSON and text files, written whole or not at all."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import math
import os
import platform
import uuid
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np

_LIBRARIES = {'zoo': 'zoo-rl', **{name: name for name in ('tensorflow', 'keras', 'numpy', 'gymnasium', 'safetensors')}}


def jsonable(value: Any, name: str = 'value') -> Any:
    """A copy of ``value`` in strict JSON types, which ``from_jsonable`` turns back.

    NumPy scalars become numbers, arrays and tuples become lists, paths become strings. NaN and the infinities, which
    JSON lacks, become ``{'__float__': 'nan'}``, ``'inf'`` or ``'-inf'``.

    Args:
        value: None, bool, int, float, str, a path, a NumPy scalar or array, or dicts, lists and tuples of these.
        name: what to call ``value`` in an error.

    Raises:
        TypeError: a value or a dict's key is something else; the message gives the way to it.
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, np.floating):
        value = float(value)  # item() of a long double is a long double
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {'__float__': str(float(value))}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f'{name} has the key {key!r}, a {type(key).__name__}: keys must be strings.')
        return {str(key): jsonable(item, f'{name}[{key!r}]') for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item, f'{name}[{index}]') for index, item in enumerate(value)]
    raise TypeError(
        f'{name} is a {type(value).__name__}, which JSON cannot hold: '
        'use None, bool, int, float, str, a NumPy array, or a dict or list of these.'
    )


def from_jsonable(value: Any) -> Any:
    """The inverse of ``jsonable`` on what JSON keeps apart: NaN and the infinities are floats again."""
    if isinstance(value, dict):
        if value.keys() == {'__float__'} and value['__float__'] in ('nan', 'inf', '-inf'):
            return float(value['__float__'])
        return {key: from_jsonable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_jsonable(item) for item in value]
    return value


def write_json(path: str | os.PathLike[str], data: Any) -> Path:
    """Writes ``jsonable(data)`` to a file, which at every moment holds either all of its old or all of its new content.

    Raises:
        TypeError: ``data`` holds something that is not plain data; the file is left as it was.
    """
    path = Path(path)
    return write_text(path, json.dumps(jsonable(data, path.name), indent=2, allow_nan=False) + '\n')


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Writes a UTF-8 file, which at every moment holds either all of its old or all of its new content."""
    path = Path(path)
    new = path.with_name(f'.{path.name}.new-{uuid.uuid4().hex[:8]}')
    try:
        with open(new, 'w', encoding='utf-8', newline='\n') as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return path


@functools.cache
def library_versions() -> dict[str, str]:
    """Versions by name of what wrote a file: Python, zoo and the libraries that matter for it."""
    versions = {'python': platform.python_version()}
    for library, distribution in _LIBRARIES.items():
        try:
            versions[library] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            versions[library] = 'not installed'
    return versions
