"""Episodes in one compressed file: what ``zoo.record_episodes`` writes at a path that ends in ``.npz``.

It holds no pickles:

=======================  ===========================================================================================
``about``                JSON: format, version, observation and action space, environment
``lengths``              int64 ``[E]``, the steps of each episode
``terminated``,          bool ``[E]``, how each ended; an episode that was cut is neither
``truncated``
``reward``               float32 ``[steps of all]``, one episode after another
``log_prob``             float32 ``[steps of all]``, NaN in episodes without; no array if none has them
``action/PATH``          ``[steps of all, …]``, in the environment's own units
``obs/PATH``             ``[steps of all + E, …]``, with final observations; of a stack of frames the newest frame
=======================  ===========================================================================================

Each array of the archive has a checksum, which is compared when the array has been read to its end.
"""

from __future__ import annotations

import contextlib
import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.datasets.array_file import Damaged, RowReader
from zoo.common.datasets.d4rl import FLAGS, NEEDED
from zoo.common.datasets.episodes import RecordedEpisode, as_stored, known_log_prob, stored_shape
from zoo.common.datasets.fitting import Written
from zoo.common.datasets.writer import Writer, environment_of
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.files import from_jsonable, jsonable, place_for, replacing

FORMAT_VERSION = 1

_FORMAT = 'zoo episodes'

#: What reading a damaged archive raises.
DAMAGED = (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError)


class EpisodeFileWriter(Writer):
    """Writes an ``.npz`` file."""

    def finish(self) -> None:
        place_for(self.path, 'the dataset')
        small: dict[str, np.ndarray] = {
            'about': np.array(json.dumps(jsonable({'format': _FORMAT, 'version': FORMAT_VERSION} | self.about()))),
            'lengths': np.array(self.lengths, np.int64),
            'terminated': np.array(self.terminated, bool),
            'truncated': np.array(self.truncated, bool),
        }
        with replacing(self.path) as new, zipfile.ZipFile(new, 'w', zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
            for name, array in small.items():
                with archive.open(f'{name}.npy', 'w') as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            for name, file in self.arrays.items():
                file.close()
                archive.write(file.path, f'{name}.npy')
                file.path.unlink()  # so that the disk holds it twice no longer than needed


class EpisodeFile(Written):
    """The episodes of an ``.npz`` file.

    Iteration reads them one after the other and keeps none. A single episode is found by reading the whole file into
    memory, once.

    Raises:
        ValueError: another program wrote the file, it is damaged, or of a newer zoo.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)
        self._held: dict[str, np.ndarray] | None = None
        self._file = _identity(path)
        foreign = f"'{path}' does not hold episodes that zoo recorded"
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name.removesuffix('.npy') for name in archive.namelist()]
                if 'about' not in names:
                    told = f'{foreign}: its arrays are {", ".join(names[:8]) or "none"}{", …" if names[8:] else ""}'
                    raise InvalidValue(f'{told}; data of the D4RL form has {", ".join((*NEEDED, *FLAGS))}.')
                about = from_jsonable(json.loads(str(_array(archive, 'about'))))
                if not isinstance(about, dict) or about.get('format') != _FORMAT:
                    raise InvalidValue(f'{foreign}.')
                if about['version'] > FORMAT_VERSION:
                    raise InvalidValue(f"'{path}' was recorded by a newer zoo: upgrade zoo.")
                self.observation_space = spaces.from_json(about['observation_space'])
                self.action_space = spaces.from_json(about['action_space'])
                self.environment, self.inferred = environment_of(about), tuple(about.get('inferred', ()))
                self.lengths, self.terminated, self.truncated = (
                    _array(archive, name) for name in ('lengths', 'terminated', 'truncated')
                )
                self._has_log_prob = 'log_prob.npy' in archive.namelist()
                self._check_shapes(archive)
        except DAMAGED as error:
            if isinstance(error, InvalidValue) and not isinstance(error, Damaged):
                raise
            raise InvalidValue(f'{foreign} ({error}).') from error

    def _leaves(self) -> list[tuple[str, str, spaces.Leaf]]:
        return [
            (field, path, leaf)
            for field, space in (('obs', self.observation_space), ('action', self.action_space))
            for path, leaf in spaces.leaves(space).items()
        ]

    @property
    def _names(self) -> list[str]:
        """The arrays that episodes are read from."""
        optional = ['log_prob'] if self._has_log_prob else []
        return ['reward', *optional, *(f'{field}/{path}' for field, path, _ in self._leaves())]

    def _check_shapes(self, archive: zipfile.ZipFile) -> None:
        """Refuse arrays that disagree with each other."""
        lengths = self.lengths
        if lengths.ndim != 1 or lengths.dtype.kind != 'i' or (lengths < 1).any():
            raise InvalidValue(f"'{self.path}' is altered: its lengths are not numbers of steps.")
        episodes = len(lengths)
        steps = int(lengths.sum())
        wanted: dict[str, tuple[tuple[int, ...], Any]]
        wanted = {'terminated': ((episodes,), bool), 'truncated': ((episodes,), bool), 'reward': ((steps,), np.float32)}
        if self._has_log_prob:
            wanted['log_prob'] = ((steps,), np.float32)
        for field, path, leaf in self._leaves():
            rows = steps + (episodes if field == 'obs' else 0)
            wanted[f'{field}/{path}'] = ((rows, *stored_shape(leaf)), leaf.dtype)
        for name, (shape, dtype) in wanted.items():
            reader = _reader(archive, name)
            reader.close()
            if (reader.shape, reader.dtype) != (shape, np.dtype(dtype)):
                raise InvalidValue(
                    f"'{self.path}' is altered: {name} has the shape {reader.shape} and dtype {reader.dtype}, but "
                    f'lengths and spaces make it {shape} and {np.dtype(dtype)}.'
                )

    def episodes(self, numbers: Sequence[int] | np.ndarray) -> Iterator[RecordedEpisode]:
        numbers = np.asarray(numbers)
        if self._held is not None or (np.diff(numbers) <= 0).any():
            yield from super().episodes(numbers)
            return
        with self._reading(), zipfile.ZipFile(self.path) as archive, contextlib.ExitStack() as stack:
            readers = {}
            for name in self._names:
                readers[name] = _reader(archive, name)
                stack.callback(readers[name].close)
            number = 0
            for wanted in numbers.tolist():
                between = self.lengths[number:wanted]
                for name, reader in readers.items():
                    reader.skip(int(between.sum()) + (len(between) if name.startswith('obs/') else 0))
                length, number = int(self.lengths[wanted]), wanted + 1
                rows = {
                    name: reader.take(length + 1 if name.startswith('obs/') else length)
                    for name, reader in readers.items()
                }
                if number == len(self.lengths):
                    for reader in readers.values():
                        reader.end()
                yield self._episode(wanted, rows)

    def episode(self, number: int) -> RecordedEpisode:
        if self._held is None:
            with self._reading(), zipfile.ZipFile(self.path) as archive:
                self._held = {name: _array(archive, name) for name in self._names}
        end = int(self.lengths[: number + 1].sum())
        begin = end - int(self.lengths[number])
        rows = {
            name: x[begin + number : end + number + 1] if name.startswith('obs/') else x[begin:end]
            for name, x in self._held.items()
        }
        return self._episode(number, rows)

    def _episode(self, number: int, rows: dict[str, np.ndarray]) -> RecordedEpisode:
        obs = {path: rows[f'obs/{path}'] for path in spaces.leaves(self.observation_space)}
        action = {path: rows[f'action/{path}'] for path in spaces.leaves(self.action_space)}
        return RecordedEpisode(
            as_stored(self.observation_space, obs),
            spaces.from_items(self.action_space, action),
            rows['reward'],
            bool(self.terminated[number]),
            bool(self.truncated[number]),
            known_log_prob(rows.get('log_prob')),
        )

    def returns(self, numbers: np.ndarray) -> np.ndarray:
        with self._reading(), zipfile.ZipFile(self.path) as archive:
            reward = _array(archive, 'reward').astype(np.float64)
        begins = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        return np.add.reduceat(reward, begins)[numbers]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        now = _identity(self.path)
        if now and now != self._file:  # what was read of it, such as the lengths, is not about what it holds now
            raise InvalidValue(f"'{self.path}' was written anew since it was opened: open it again.")
        try:
            yield
        except FileNotFoundError as error:
            raise InvalidValue(f"'{self.path}' is gone since it was opened.") from error
        except DAMAGED as error:
            raise InvalidValue(f"'{self.path}' is truncated or altered ({error}).") from error


def _identity(path: Path) -> tuple[int, ...]:
    """Return what tells a file from one that takes its place later; nothing if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _reader(archive: zipfile.ZipFile, name: str) -> RowReader:
    return RowReader(archive.open(f'{name}.npy'))


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Return a whole array of an archive; its checksum has been compared."""
    with archive.open(f'{name}.npy') as member:
        found = np.lib.format.read_array(member, allow_pickle=False)
        member.read(1)  # to the end, where the checksum is compared
    return found
