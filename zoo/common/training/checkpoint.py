"""Checkpoints: an agent's state as a folder that is written completely or not at all.

A checkpoint holds two or three files and nothing else:

=======================  ===========================================================================================
``config.json``          format version, library versions, size and SHA-256 of the other files, the caller's
                         ``config``, and a SHA-256 of its own content
``weights.safetensors``  the named arrays: weights, optimizer state, normalization, counters, random states
``buffer.npz``           the replay buffer, where one was given; uncompressed
=======================  ===========================================================================================

No file holds code: safetensors is raw bytes under a JSON header, and pickles inside ``.npz`` are refused. The checksums
find accidents (a truncated copy, a flipped bit, an edited number). They are not a signature.

``write`` replaces the checkpoint ``last`` in four steps, with this result of a crash in each:

1. All files are written and flushed to disk in ``.last.new-<8 hex digits>``: ``last`` is still the old one.
2. ``last`` is renamed to ``.last.old``: ``last`` is missing, and ``read`` takes ``.last.old``.
3. ``.last.new-…`` is renamed to ``last``: ``last`` is the new one.
4. ``.last.old`` is deleted: ``last`` is the new one, and the next ``write`` deletes the rest.

An exception in step 3 also undoes step 2. Only one process at a time may write a path. A reader that meets steps 2 to 4
of another process may be refused and should try again.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import shutil
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from zoo.common.tools.errors import InvalidType, InvalidValue, article
from zoo.common.tools.files import (
    as_path,
    beside,
    flush,
    from_jsonable,
    json_sha256,
    jsonable,
    library_versions,
    put_in_place,
    write_json,
)

#: Format 1 numbered the arrays of optimizers; format 2 names them after the weights.
FORMAT_VERSION = 2

_FORMAT = 'zoo checkpoint'
_CONFIG, _WEIGHTS, _BUFFER = 'config.json', 'weights.safetensors', 'buffer.npz'
_OURS = frozenset({_CONFIG, _WEIGHTS, _BUFFER})
# File managers put these into any folder that they show.
_LITTER = frozenset({'.DS_Store', 'Thumbs.db', 'desktop.ini'})
# An unfinished folder older than this was left by a killed process: no write lasts so long.
_ABANDONED_SECONDS = 24 * 3600


class CheckpointError(InvalidValue):
    """A checkpoint that cannot be read, or a path that cannot be written."""


@dataclass(frozen=True)
class SavedCheckpoint:
    """The content of a checkpoint.

    Attributes:
        config: the caller's configuration as plain JSON values: tuples and arrays have become lists.
        arrays: writable arrays by name, with the shapes and dtypes that were written.
        buffer: the replay buffer, or None. The mapping reads an array from the file on each access, so that gigabytes
            are never in memory twice. The file stays open as long as the mapping lives.
    """

    config: dict[str, Any]
    arrays: dict[str, np.ndarray]
    buffer: Mapping[str, np.ndarray] | None


def write(
    path: str | os.PathLike[str],
    config: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    buffer: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Write a checkpoint, in place of an earlier one, by the steps that the module's docstring lists.

    Args:
        path: the folder to make, with its parents. An empty folder or a checkpoint is replaced.
        config: plain data for :func:`zoo.common.tools.files.jsonable`. ``read`` compares ``config['algorithm']``.
        arrays: by '/'-separated name, of any shape; bool, integers or NumPy's own reals of up to 64 bits.
        buffer: numeric arrays by name, written one by one in pieces of 16 MB, without a second copy in memory.

    Raises:
        CheckpointError: ``path`` is a file or a folder with other files, which are never touched; or the disk is full
            or refuses. Whatever was at ``path`` before is still there.
        TypeError: a value of ``config`` is not plain data, or an array has a dtype that cannot be stored.
    """
    given = as_path(path, 'path, the folder to save in,')
    path = given.resolve()  # follow a link: renaming would move the link and not the folder
    _check_replaceable(path)
    body = {
        'format': _FORMAT,
        'format_version': FORMAT_VERSION,
        'libraries': library_versions(),
        'config': jsonable(config, 'config'),
    }
    arrays = {_array_name(name): _storable(name, array) for name, array in arrays.items()}
    buffer = None if buffer is None else {_array_name(name): _numeric(name, array) for name, array in buffer.items()}

    new = beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _delete_abandoned(path)
        new.mkdir()
        save_file(arrays, new / _WEIGHTS)
        if buffer is not None:
            _write_npz(new / _BUFFER, buffer)
        body['files'] = {}
        for file in sorted(new.iterdir()):
            flush(file)
            body['files'][file.name] = {'bytes': file.stat().st_size, 'sha256': sha256_of(file)}
        write_json(new / _CONFIG, {**body, 'sha256': json_sha256(body)})
        # safetensors makes its file readable only by its owner, whatever the umask is.
        shutil.copymode(new / _CONFIG, new / _WEIGHTS)
        flush(new)
        put_in_place(new, path, _aside(path), _delete)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(error, OSError | SafetensorError):
            raise CheckpointError(f"'{given}' could not be written, and nothing was changed: {error}.") from error
        raise
    return given


def read(path: str | os.PathLike[str], algorithm: str | None = None) -> SavedCheckpoint:
    """Read a checkpoint, after a check that every byte is as it was written.

    Args:
        path: the folder that ``write`` made.
        algorithm: the required ``config['algorithm']``; None: any.

    Raises:
        CheckpointError: there is no checkpoint; a file is missing, truncated or altered; or the format is newer than
            ``FORMAT_VERSION``; or the algorithm is another.
    """
    path = Path(path).expanduser().resolve()
    folder = path if path.exists() else _aside(path)
    if not folder.exists():
        raise CheckpointError(f"there is no checkpoint at '{path}'.")
    body = _read_config(folder)
    config = from_jsonable(body['config'])
    _check_algorithm(path, config.get('algorithm'), algorithm)
    files = body['files']
    for name, entry in files.items():
        _check_file(folder / name, entry)
    try:
        arrays = load_file(folder / _WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"'{folder / _WEIGHTS}' cannot be read: {error}.") from error
    try:
        buffer = np.load(folder / _BUFFER, allow_pickle=False) if _BUFFER in files else None
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"'{folder / _BUFFER}' cannot be read: {error}.") from error
    return SavedCheckpoint(config, arrays, buffer)


def saved_at(path: str | os.PathLike[str]) -> float:
    """Return when a checkpoint was written, in seconds since 1970; 0 where its configuration does not say."""
    found = _caller_config(Path(path)).get('saved_at')
    return float(found) if isinstance(found, int | float) else 0.0


def _caller_config(folder: Path) -> dict[str, Any]:
    """Return the configuration that the caller of `write` gave, not checked; empty where it cannot be read."""
    body = _parse(folder / _CONFIG) if (folder / _CONFIG).is_file() else None
    config = body.get('config') if isinstance(body, dict) else None
    return config if isinstance(config, dict) else {}


def is_scheduled(path: Path) -> bool:
    """Whether a checkpoint was written when it was due, or at the end; not at an interruption or a failure."""
    return bool((_caller_config(path).get('loop_state') or {}).get('scheduled', True))


def newest_in(run: Path, scheduled: bool = False) -> Path | None:
    """Return the checkpoint of a run directory, ``scheduled`` if asked, that was written last; None without one."""
    inside = [path for path in (run / 'checkpoints').glob('[!.]*') if path.is_dir()]
    inside = [path for path in inside if is_scheduled(path)] if scheduled else inside
    return max(inside, key=lambda path: (saved_at(path), path.name.isdigit(), len(path.name), path.name), default=None)


def steps_of(path: Path) -> int:
    """Return the steps of the agent in a checkpoint, by its name or else by its configuration; 0 where none says."""
    if path.name.isdigit():
        return int(path.name)
    found = _caller_config(path).get('steps')
    return found if isinstance(found, int) else 0


def _read_config(folder: Path) -> dict[str, Any]:
    """Return the checked content of ``config.json``; the caller's part is still as ``jsonable`` made it."""
    file = folder / _CONFIG
    if not folder.is_dir():
        raise CheckpointError(f"'{folder}' is a file: a checkpoint is a folder with {_CONFIG} and {_WEIGHTS} in it.")
    if (folder / 'checkpoints').is_dir():
        raise CheckpointError(f"'{folder}' is a run, not a checkpoint: load one from '{folder / 'checkpoints'}'.")
    if not file.is_file() and any(folder.glob('*/checkpoints')):
        raise CheckpointError(f"'{folder}' is a folder of runs, not a checkpoint: load one of these.")
    if not file.is_file():
        raise CheckpointError(f"'{file}' is missing: without it '{folder}' is not a checkpoint.")
    body = _parse(file)
    if body is None:
        raise CheckpointError(f"'{file}' is truncated or altered: it is not valid JSON.")
    if not isinstance(body, dict) or body.get('format') != _FORMAT:
        raise CheckpointError(f"'{file}' is not from a checkpoint: its 'format' is not '{_FORMAT}'.")
    version = body.get('format_version')
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise CheckpointError(
            f"'{file}' has checkpoint format {version} and this zoo reads formats up to {FORMAT_VERSION}: upgrade zoo."
        )
    checksum = body.pop('sha256', None)
    try:
        intact = checksum == json_sha256(body)
    except (ValueError, RecursionError):  # a NaN, or deeper than write makes it
        intact = False
    if not intact:
        raise CheckpointError(f"'{file}' is altered: its content does not match its checksum.")
    whole = (
        version in range(1, FORMAT_VERSION + 1)
        and isinstance(body.get('config'), dict)
        and isinstance(body.get('files'), dict)
        and {_WEIGHTS} <= body['files'].keys() <= {_WEIGHTS, _BUFFER}
        and all(isinstance(entry, dict) and entry.keys() == {'bytes', 'sha256'} for entry in body['files'].values())
    )
    if not whole:
        raise CheckpointError(f"'{file}' is not a configuration of checkpoint format 1 to {FORMAT_VERSION}.")
    return body


def _parse(file: Path) -> Any:
    """Return the JSON in a file; None where it is not JSON."""
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return None


def _check_algorithm(path: Path, found: Any, wanted: str | None) -> None:
    if wanted is not None and found is None:
        raise CheckpointError(f"'{path}' does not name its algorithm, so it cannot be loaded as {wanted}.")
    if wanted not in (None, found):
        raise CheckpointError(
            f"'{path}' holds {article(str(found))} agent: load it with {found}.load, or an algorithm of "
            'zoo with zoo.load.'
        )


def _check_file(file: Path, entry: Mapping[str, Any]) -> None:
    if not file.is_file():
        raise CheckpointError(f"'{file}' is missing: the checkpoint was written with it.")
    size = file.stat().st_size
    if size != entry['bytes']:
        state = 'altered' if size > entry['bytes'] else 'truncated'
        raise CheckpointError(f"'{file}' is {state}: it has {size} bytes and was written with {entry['bytes']}.")
    if sha256_of(file) != entry['sha256']:
        raise CheckpointError(f"'{file}' is altered: its content does not match its checksum.")


def _check_replaceable(path: Path) -> None:
    if not path.exists():
        return
    advice = 'save to another path'
    if not path.is_dir():
        raise CheckpointError(f"'{path}' is a file: {advice}.")
    names = {entry.name for entry in path.iterdir()} - _LITTER
    if foreign := sorted(names - _OURS):
        raise CheckpointError(f"'{path}' holds '{foreign[0]}', which is not part of a checkpoint: {advice}.")
    body = _parse(path / _CONFIG) if _CONFIG in names else None
    if names and not (isinstance(body, dict) and body.get('format') == _FORMAT):
        raise CheckpointError(f"'{path}' is not empty and not a checkpoint: {advice}.")


def _aside(path: Path) -> Path:
    """Return the path of the old checkpoint while the new one takes its place."""
    return path.with_name(f'.{path.name}.old')


def _delete(folder: Path) -> None:
    """Delete a checkpoint's own files, and the folder if it is empty then; never a file of the user."""
    if not folder.exists():
        return
    # A reader on a network file system may have a file open: the next write tries again.
    with contextlib.suppress(OSError):
        for name in _OURS | _LITTER:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def _delete_abandoned(path: Path) -> None:
    for folder in path.parent.glob(f'.{glob.escape(path.name)}.new-*'):
        if time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _array_name(name: Any) -> str:
    if not isinstance(name, str) or name in ('', '__metadata__'):  # safetensors uses the latter itself
        raise InvalidType(f"{name!r} cannot name an array: use a string such as 'actor/kernel'.")
    return name


def _storable(name: str, array: Any) -> np.ndarray:
    # safetensors needs contiguous memory; np.ascontiguousarray would turn rank 0 into rank 1.
    array = np.asarray(array, order='C')
    dtype = array.dtype
    if dtype.kind in 'biuf' and dtype.itemsize <= 8:
        return array
    raise InvalidType(f'array {name!r} has dtype {dtype}: use bool, an integer or a real of up to 64 bits.')


def _numeric(name: str, array: Any) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype.kind not in 'biufc':
        raise InvalidType(f'array {name!r} of the buffer has dtype {array.dtype}: it must be bool or numeric.')
    return array


def _write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an ``.npz``. ``np.savez`` refuses the name 'file' and pickles objects; this does neither."""
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f'{name}.npy', 'w', force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    piece = memoryview(bytearray(1 << 20))
    with open(path, 'rb', buffering=0) as file:
        while size := file.readinto(piece):
            digest.update(piece[:size])
    return digest.hexdigest()
