"""Files and folders that are written whole or not at all; JSON."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from zoo.common.tools.errors import InvalidType, NotAFolder, NotWritable, a_type

_LIBRARIES = {'zoo': 'zoo-rl', **{name: name for name in ('tensorflow', 'keras', 'numpy', 'gymnasium', 'safetensors')}}


def as_path(given: Any, what: str) -> Path:
    """Return a path that a user gave, ``~`` replaced; refuse anything else by a TypeError that names ``what``."""
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise InvalidType(f'{what} is {given!r}: give a path.')
    return Path(given).expanduser()


def make_directory(path: Path, role: str, more: str = '') -> Path:
    """Make a directory with its parents if it is missing, and try whether files can be written there.

    Args:
        path: the directory.
        role: what it is to be, for the message: ``'a run directory'``.
        more: what a program can do besides choosing another one.

    Raises:
        NotADirectoryError: the path is a file, or leads through one.
        OSError: it cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):  # the permissions do not tell: root has all, and a disk may be read-only
            pass
    except (FileExistsError, NotADirectoryError):
        raise NotAFolder(f"'{path}' cannot be {role}: it is a file, or lies in one.") from None
    except (OSError, ValueError) as error:  # a ValueError: a name with a zero byte
        reason = getattr(error, 'strerror', None) or str(error)
        told = f"'{path}' cannot be {role} ({reason}): choose a folder that you may write to"
        raise NotWritable(f'{told}{more}.', shell=f'{told}.') from None
    return path


def place_for(path: Path, what: str) -> Path:
    """Return the path of a file to write, ``what`` it is; its folder is made if need be.

    Raises:
        OSError: it is a folder, or its folder cannot be made or written.
    """
    make_directory(path.parent, f"the folder of {what} '{path.name}'")
    if path.is_dir():
        raise NotWritable(f"'{path}' is a folder: give the file for {what}.")
    return path


def jsonable(value: Any, name: str = 'value') -> Any:
    """Copy ``value`` in strict JSON types, which ``from_jsonable`` turns back.

    NumPy scalars become numbers, arrays and tuples become lists, paths become strings. NaN and the infinities, which
    JSON lacks, become ``{'__float__': 'nan'}``, ``'inf'`` or ``'-inf'``. Any other value or key is a TypeError; its
    message says where in ``name`` it stands.
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
                raise InvalidType(f'{name} has the key {key!r}, {a_type(key)}: keys must be strings.')
        return {str(key): jsonable(item, f'{name}[{key!r}]') for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item, f'{name}[{index}]') for index, item in enumerate(value)]
    use = 'use None, bool, int, float, str, a NumPy array, or a dict or list of these'
    raise InvalidType(f'{name} is {a_type(value)}, which JSON cannot hold: {use}.')


def from_jsonable(value: Any) -> Any:
    """Turn the dicts that ``jsonable`` made of NaN and the infinities into floats again."""
    if isinstance(value, dict):
        if value.keys() == {'__float__'} and value['__float__'] in ('nan', 'inf', '-inf'):
            return float(value['__float__'])
        return {key: from_jsonable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_jsonable(item) for item in value]
    return value


def json_sha256(body: Mapping[str, Any]) -> str:
    """Return the SHA-256 of plain data, whatever the order of its keys."""
    text = json.dumps(body, sort_keys=True, separators=(',', ':'), allow_nan=False)
    return hashlib.sha256(text.encode('ascii')).hexdigest()


def write_json(path: str | os.PathLike[str], data: Any) -> Path:
    """Write ``jsonable(data)`` to a file, which at every moment holds all of its old or all of its new content."""
    path = Path(path)
    return write_text(path, json.dumps(jsonable(data, path.name), indent=2, allow_nan=False) + '\n')


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a UTF-8 file, which at every moment holds all of its old or all of its new content."""
    path = Path(path)
    with replacing(path) as new:
        new.write_text(text, encoding='utf-8', newline='\n')
    return path


def beside(path: Path, ending: str = '') -> Path:
    """Give an unused hidden path in the same folder, ``.<name>.new-<8 hex digits>``, to write to before a rename."""
    return path.with_name(f'.{path.name}.new-{uuid.uuid4().hex[:8]}{ending}')


@contextlib.contextmanager
def replacing(path: Path, ending: str = '') -> Iterator[Path]:
    """Give a path with this ending, to write a new file to; after the block the new file takes the place of ``path``.

    After an error the new file is deleted, and ``path`` is as it was.
    """
    new = beside(path, ending)
    try:
        yield new
        flush(new)
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def put_in_place(new: Path, path: Path, aside: Path, delete: Callable[[Path], None]) -> None:
    """Rename a new folder to ``path``. A failure leaves the old or the new one there.

    Args:
        path: the folder to replace; it may be missing.
        aside: where the old folder waits meanwhile.
        delete: deletes a folder, which may be missing, as far as that is possible.
    """
    if path.exists():
        delete(aside)
        os.rename(path, aside)
    try:
        os.rename(new, path)
    except BaseException:
        if aside.exists() and not path.exists():
            os.rename(aside, path)
        raise
    flush(path.parent)  # the new one must be there for good before the old one goes
    delete(aside)


def flush(path: Path) -> None:
    """Wait until a file, or the list of a folder's files, is on the disk."""
    folder = path.is_dir()
    if folder and os.name == 'nt':
        return  # Windows opens no folder, and its renames are durable without
    descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@functools.cache
def library_versions() -> dict[str, str]:
    """Give the versions of Python, zoo and its main libraries, by name: what a file was written with."""
    versions = {'python': platform.python_version()}
    for library, distribution in _LIBRARIES.items():
        try:
            versions[library] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            versions[library] = 'not installed'
    return versions
