"""Episodes in a folder of arrays that are mapped into memory: datasets of any size.

There are no pickles. ``about.json`` says format, version, spaces, environment, and for each array its file, its size
and the SHA-256 of its data. These arrays have one entry for each *row*; there is a row for each observation, so that an
episode of ``T`` steps has ``T + 1`` rows, one after another. It is the order of a replay buffer
(:class:`zoo.common.replay.ring.Ring`), which can draw from the mapped arrays.

=======================  ===========================================================================================
``obs/PATH``             ``[rows, …]``; of a stack of frames the newest frame
``action/PATH``          ``[rows, …]``, taken at the row's observation, in the environment's own units
``reward``               float32 ``[rows]``, of that action
``terminated``,          bool ``[rows]``, whether the row's step ended the episode
``truncated``
``valid``                bool ``[rows]``, False in the row of a final observation, which has no step
=======================  ===========================================================================================

The last rows, as many as a stack has frames, are not valid and belong to no episode. ``lengths`` (int64) and
``returns`` (float64) have one entry for each episode. ``log_prob`` (float32) has one for each step, NaN in episodes
without; there is no such array if none has them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.datasets.array_file import RowReader, read_header
from zoo.common.datasets.episodes import Checks, RecordedEpisode, as_stored, known_log_prob, stored_shape
from zoo.common.datasets.fitting import Written
from zoo.common.datasets.writer import Writer, environment_of
from zoo.common.tools.errors import InvalidValue, NotWritable
from zoo.common.tools.files import flush, from_jsonable, json_sha256, put_in_place, write_json

FORMAT_VERSION = 1

ABOUT = 'about.json'

_FORMAT = 'zoo dataset'

#: The bytes of a file that are checked at a time.
_CHUNK = 1 << 23


class MappedFolderWriter(Writer):
    """Writes a folder of arrays."""

    def __enter__(self) -> Writer:
        check_replaceable(self.path)
        super().__enter__()
        for name in ('terminated', 'truncated', 'valid'):
            self.open(name, (), bool)
        self.open('lengths', (), np.int64)
        self.open('returns', (), np.float64)
        # Rows without a step have an action too, the one that is stored as zeros.
        adaptor = ActionAdaptor(self.action_space)
        unused = spaces.flatten(self.action_space, adaptor.to_env(adaptor.zeros((1,))))
        self._unused = {f'action/{path}': np.asarray(x) for path, x in spaces.tree_items(unused)}
        return self

    def add(self, episode: RecordedEpisode) -> None:
        super().add(episode)
        steps, reward = len(episode.reward), np.asarray(episode.reward, np.float32)
        self._end_rows(1)
        last = np.arange(steps + 1) == steps - 1
        self.append('terminated', last & bool(episode.terminated))
        self.append('truncated', last & bool(episode.truncated))
        self.append('valid', np.arange(steps + 1) < steps)
        self.append('lengths', np.array([steps]))
        self.append('returns', reward.sum(dtype=np.float64)[None])

    def _end_rows(self, count: int) -> None:
        """Write what rows without a step have besides observations."""
        for name, value in self._unused.items():
            self.append(name, np.repeat(value, count, 0))
        self.append('reward', np.zeros(count, np.float32))

    def finish(self) -> None:
        spare = spare_rows(self.observation_space)
        self._end_rows(spare)
        for path, leaf in spaces.leaves(self.observation_space).items():
            self.append(f'obs/{path}', np.zeros((spare, *stored_shape(leaf)), leaf.dtype))
        for name in ('terminated', 'truncated', 'valid'):
            self.append(name, np.zeros(spare, bool))
        arrays = {name: {'file': file.path.name} | file.close() for name, file in self.arrays.items()}
        body = {'format': _FORMAT, 'version': FORMAT_VERSION, 'episodes': len(self.lengths)}
        body |= {'steps': sum(self.lengths), 'arrays': arrays} | self.about()
        write_json(self.folder / ABOUT, {**body, 'sha256': json_sha256(body)})
        for file in self.folder.iterdir():
            flush(file)
        put_in_place(self.folder, self.path, self.path.with_name(f'.{self.path.name}.old'), _delete)


def check_replaceable(path: Path) -> None:
    """Refuse to write a dataset where something else is."""
    if not path.exists():
        return
    if not path.is_dir():
        raise NotWritable(f"'{path}' is a file: give the folder for the dataset, or a name that ends in .npz.")
    if any(path.iterdir()) and not is_mapped_folder(path):
        raise NotWritable(f"'{path}' is a folder of other files: give a new one for the dataset.")


def is_mapped_folder(path: Path) -> bool:
    """Whether a folder says that it is a dataset of this form."""
    try:
        return json.loads((path / ABOUT).read_bytes()).get('format') == _FORMAT
    except (OSError, ValueError, AttributeError):
        return False


def _delete(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def spare_rows(observation_space: Any) -> int:
    """Return the rows behind the last episode: a ring keeps as many behind its newest step."""
    leaves = spaces.leaves(observation_space).values()
    return max([leaf.frames for leaf in leaves if isinstance(leaf, spaces.FrameStack)], default=1)


class MappedFolder(Written):
    """The episodes of a folder.

    Attributes:
        rows: the arrays with one entry for each row, by name, mapped and not writable.
        begins: int64 ``[E]``, the first row of each episode.
        spare: the number of rows behind the last episode.

    Raises:
        ValueError: the folder is none of this form, damaged, or of a newer zoo.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)
        body = self._read_about()
        try:
            self.observation_space = spaces.from_json(body['observation_space'])
            self.action_space = spaces.from_json(body['action_space'])
            self.environment, self.inferred = environment_of(body), tuple(body.get('inferred', ()))
            self._files = {str(name): dict(entry) for name, entry in body['arrays'].items()}
            episodes, steps = int(body['episodes']), int(body['steps'])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._altered(f'{ABOUT} lacks something ({error})') from error
        self.spare = spare_rows(self.observation_space)
        rows = steps + episodes + self.spare
        wanted: dict[str, tuple[tuple[int, ...], Any]] = {'reward': ((rows,), np.float32)}
        wanted |= {name: ((rows,), bool) for name in ('terminated', 'truncated', 'valid')}
        for field, space in (('obs', self.observation_space), ('action', self.action_space)):
            for leaf_path, leaf in spaces.leaves(space).items():
                wanted[f'{field}/{leaf_path}'] = ((rows, *stored_shape(leaf)), leaf.dtype)
        self.rows = {name: self._map(name, shape, np.dtype(dtype)) for name, (shape, dtype) in wanted.items()}
        self.lengths = self._map('lengths', (episodes,), np.dtype(np.int64))
        self._log_prob: np.ndarray | None = None
        if 'log_prob' in self._files:
            self._log_prob = self._map('log_prob', (steps,), np.dtype(np.float32))
        self._returns = self._map('returns', (episodes,), np.dtype(np.float64))
        if episodes and ((self.lengths < 1).any() or int(self.lengths.sum()) != steps):
            raise self._altered('the lengths of its episodes disagree with its number of steps')
        ends = np.cumsum(self.lengths + 1)
        self.begins = ends - self.lengths - 1
        self.terminated, self.truncated = (self.rows[name][ends - 2] for name in ('terminated', 'truncated'))

    def _read_about(self) -> dict[str, Any]:
        try:
            body = json.loads((self.path / ABOUT).read_bytes())
        except (OSError, ValueError) as error:
            raise self._altered(f'{ABOUT} cannot be read ({error})') from error
        if not isinstance(body, dict) or body.get('format') != _FORMAT:
            raise InvalidValue(f"'{self.path}' is no dataset of zoo: its {ABOUT} says something else.")
        if not isinstance(body.get('version'), int) or body['version'] > FORMAT_VERSION:
            raise InvalidValue(f"'{self.path}' was recorded by a newer zoo: upgrade zoo.")
        checksum = body.pop('sha256', None)
        if checksum != json_sha256(body):
            raise self._altered(f'the content of {ABOUT} does not match its checksum')
        found: dict[str, Any] = from_jsonable(body)
        return found

    def _altered(self, how: str) -> InvalidValue:
        return InvalidValue(f"'{self.path}' is truncated or altered: {how}.")

    def _map(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return an array as it is on disk."""
        entry = self._files.get(name)
        if entry is None or not {'file', 'bytes', 'sha256'} <= entry.keys():
            raise self._altered(f'{ABOUT} does not name the array {name}')
        file = self.path / Path(entry['file']).name
        if not file.is_file():
            raise self._altered(f"'{file.name}', which holds {name}, is missing")
        size = file.stat().st_size
        if size != entry['bytes']:
            raise self._altered(f"'{file.name}' has {size:,} bytes and was written with {entry['bytes']:,}")
        try:
            with open(file, 'rb') as opened:
                found = read_header(opened)
                begin = opened.tell()
        except ValueError as error:
            raise self._altered(f"'{file.name}' is no array ({error})") from error
        if found != (shape, dtype) or size - begin != int(np.prod(shape)) * dtype.itemsize:
            raise self._altered(f"'{file.name}' holds {found[1]} {found[0]}, but {name} is {dtype} {shape}")
        if not int(np.prod(shape)):
            return np.zeros(shape, dtype)
        return np.asarray(np.memmap(file, dtype, 'r', begin, shape))

    def episode(self, number: int) -> RecordedEpisode:
        begin, length = int(self.begins[number]), int(self.lengths[number])
        step = begin - number  # each earlier episode has a row more than it has steps
        obs = {
            path: np.array(self.rows[f'obs/{path}'][begin : begin + length + 1])
            for path in spaces.leaves(self.observation_space)
        }
        action = {
            path: np.array(self.rows[f'action/{path}'][begin : begin + length])
            for path in spaces.leaves(self.action_space)
        }
        return RecordedEpisode(
            as_stored(self.observation_space, obs),
            spaces.from_items(self.action_space, action),
            np.array(self.rows['reward'][begin : begin + length]),
            bool(self.terminated[number]),
            bool(self.truncated[number]),
            None if self._log_prob is None else known_log_prob(np.array(self._log_prob[step : step + length])),
        )

    def returns(self, numbers: np.ndarray) -> np.ndarray:
        return np.array(self._returns[numbers])

    def verify(self, begin: int, end: int, observe: Callable[[spaces.Flat], None] | None = None) -> None:
        """Read every file once, in pieces: compare checksums, and check the values of the rows ``begin`` to ``end``.

        Args:
            begin, end: the rows that are learned from.
            observe: is given the observations that were acted on, flat ``[n, …]``, in order; of a stack the newest
                frame.

        Raises:
            ValueError: a file is altered, or a value is not finite or not in its space.
        """
        checks = Checks(self.name, self.observation_space, self.action_space)
        if observe is not None:
            self._observe(begin, end, observe)
        for name, entry in self._files.items():
            digest, row = hashlib.sha256(), 0
            for rows in self._pieces(self.path / Path(entry['file']).name):
                digest.update(rows.tobytes())
                if name in self.rows:
                    inside = rows[max(0, begin - row) : max(0, end - row)]
                    if len(inside):
                        self._check(checks, name, inside, row + max(0, begin - row))
                row += len(rows)
            if digest.hexdigest() != entry['sha256']:
                raise self._altered(f"the data of '{entry['file']}' does not match its checksum")

    def _pieces(self, file: Path) -> Iterator[np.ndarray]:
        """Read a file in pieces. Read and not mapped: what is mapped would stay in memory for a while."""
        with open(file, 'rb') as opened:
            reader = RowReader(opened)
            row_bytes = max(1, int(np.prod(reader.shape[1:])) * reader.dtype.itemsize)
            at_once = max(1, _CHUNK // row_bytes)
            for row in range(0, reader.shape[0], at_once):
                yield reader.take(min(at_once, reader.shape[0] - row))

    def _check(self, checks: Checks, name: str, rows: np.ndarray, first: int) -> None:
        """Check rows of an array, ``first`` and later ones; the message names the episode."""
        field, _, path = name.partition('/')
        try:
            if field == 'reward':
                checks.reward('', rows)
            elif field == 'obs':
                checks.part_of_obs('', path, rows)
            elif field == 'action':
                checks.part_of_action('', path, rows)
        except InvalidValue:
            begin, end = (int(self.begins.searchsorted(row, side='right')) for row in (first, first + len(rows)))
            for number in range(max(0, begin - 1), end):
                checks.episode(number, self.episode(number))
            raise

    def _observe(self, begin: int, end: int, observe: Callable[[spaces.Flat], None]) -> None:
        leaves = spaces.leaves(self.observation_space)
        row_bytes = sum(leaf.dtype.itemsize * int(np.prod(stored_shape(leaf))) for leaf in leaves.values())
        at_once = max(1, _CHUNK // max(1, row_bytes))
        for row in range(begin, end, at_once):
            rows = slice(row, min(row + at_once, end))
            acted = self.rows['valid'][rows]
            obs = {path: self.rows[f'obs/{path}'][rows][acted] for path in leaves}
            observe(spaces.from_items(self.observation_space, obs))
