"""Data of the D4RL form (Fu et al. 2020, arXiv 2004.07219): one array for each field, in HDF5 or ``.npz``.

The arrays have ``N`` rows, one episode after another: ``observations``, ``actions``, ``rewards``, ``terminals`` (the
task ended) and ``timeouts`` (a time limit ended the episode). ``next_observations`` may be there. An episode ends

* where ``terminals`` or ``timeouts`` says so,
* where ``next_observations`` is there and is not the next row's observation: the episode was cut.

Without ``next_observations`` the final observation of an episode is not in the data. As in D4RL's own
``qlearning_dataset``, the last step is left out where the episode was truncated or cut. Its observation becomes the
final one. Where the episode terminated, the step stays, since nothing of value follows. Its observation stands for the
final one.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.datasets.episodes import RecordedEpisode, fitted
from zoo.common.datasets.inferring import infer_action_space, infer_observation_space, undeclared
from zoo.common.datasets.source import Source
from zoo.common.tools.errors import InvalidValue, MissingPackage

#: Every file of this form has these arrays.
NEEDED = ('observations', 'actions', 'rewards')
FLAGS = ('terminals', 'timeouts')
_NEXT = 'next_observations'

#: The rows that are read at a time to look for ends and values.
_CHUNK = 50_000


class D4RLData(Source):
    """The episodes of arrays in the D4RL form.

    Args:
        path: the file, for messages.
        columns: what can be sliced by rows, by name: arrays, or datasets of h5py.
        observation_space, action_space: None: inferred.
        reopen: makes the columns again, after this was sent to another process.

    Raises:
        ValueError: an array is missing or has another number of rows, nothing says where episodes end, or the spaces
            cannot hold the values.
    """

    path: Path

    def __init__(
        self,
        path: Path,
        columns: Mapping[str, Any],
        observation_space: Space | None,
        action_space: Space | None,
        reopen: Callable[[Path], Mapping[str, Any]],
    ) -> None:
        self.path, self.name, self._reopen = path, str(path), reopen
        self._given = observation_space, action_space
        self.inferred = undeclared(*self._given)
        self._columns = self._checked(columns)
        self._next = _NEXT in columns
        rows = len(self._columns['rewards'])
        flags = {name: self._flags(name, rows) for name in FLAGS}
        begins, ends = self._split(flags, rows)
        self.terminated = flags['terminals'][ends - 1]
        self.truncated = flags['timeouts'][ends - 1]
        # Without the final observation, the last step of these episodes has no next one.
        short = ~self.terminated & (not self._next)
        self.lengths = (ends - begins - short).astype(np.int64)
        kept = self.lengths > 0
        self._begins = begins[kept]
        self.lengths, self.terminated, self.truncated = (
            x[kept] for x in (self.lengths, self.terminated, self.truncated)
        )
        if not kept.any():
            raise InvalidValue(f"'{path}' has no episode of at least one step.")
        self.observation_space = observation_space or infer_observation_space(self.name, self._pieces('observations'))
        self.action_space = action_space or infer_action_space(self.name, self._pieces('actions'))
        for what, space in (('observation_space', self.observation_space), ('action_space', self.action_space)):
            if not spaces.is_leaf(space):
                raise InvalidValue(
                    f"the {what} is {spaces.describe(space)}, but '{path}' has one array of each: give a space of one "
                    'array.'
                )

    def _checked(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        missing = [name for name in NEEDED if name not in columns]
        if missing:
            there = ', '.join(sorted(columns)) or 'nothing'
            raise InvalidValue(f"'{self.path}' has no array {missing[0]!r}, which the D4RL form needs: it has {there}.")
        found = {name: columns[name] for name in (*NEEDED, *FLAGS, _NEXT) if name in columns}
        for name, x in found.items():
            if not hasattr(x, 'shape') or not x.shape:
                raise InvalidValue(f"in '{self.path}' {name} is no array with an axis of steps.")
        rows = found['rewards'].shape[0]
        for name, x in found.items():
            if x.shape[0] != rows:
                raise InvalidValue(f"in '{self.path}' {name} has {x.shape[0]:,} rows, but rewards has {rows:,}.")
            if x.dtype.kind not in 'biuf':
                raise InvalidValue(f"in '{self.path}' {name} is of dtype {x.dtype}: numbers are right.")
        return found

    def _rows(self, name: str, begin: int, end: int) -> np.ndarray:
        try:
            return np.asarray(self._columns[name][begin:end])
        except OSError as error:  # of h5py
            raise InvalidValue(f"'{self.path}' is truncated or altered ({error}).") from error

    def _flags(self, name: str, rows: int) -> np.ndarray:
        if name not in self._columns:
            return np.zeros(rows, bool)
        found = self._rows(name, 0, rows)
        if found.size != rows or not np.isin(found, (0, 1)).all():
            raise InvalidValue(f"in '{self.path}' {name} is not one flag for each row, True or False.")
        return found.reshape(rows).astype(bool)

    def _split(self, flags: Mapping[str, np.ndarray], rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first row of each episode, and the one behind its last."""
        ends = flags['terminals'] | flags['timeouts']
        if self._next:
            ends |= self._breaks(rows)
        if not ends.any() or not any(name in self._columns for name in FLAGS):
            raise InvalidValue(
                f"nothing in '{self.path}' says where and how episodes end: it needs terminals and timeouts, with a "
                'True at each end.'
            )
        if rows:
            ends[-1] = True
        behind = np.flatnonzero(ends) + 1
        return np.concatenate([[0], behind[:-1]]).astype(np.int64), behind

    def _breaks(self, rows: int) -> np.ndarray:
        """Return where the next observation is not the observation of the next row, bool ``[N]``."""
        found = np.zeros(rows, bool)
        for begin in range(0, rows - 1, _CHUNK):
            end = min(begin + _CHUNK, rows - 1)
            after, then = self._rows(_NEXT, begin, end), self._rows('observations', begin + 1, end + 1)
            narrow = min(after.dtype, then.dtype, key=lambda dtype: dtype.itemsize)  # both have the digits of this one
            differ = after.astype(narrow, copy=False) != then.astype(narrow, copy=False)
            found[begin:end] = differ.reshape(end - begin, -1).any(1)
        return found

    def _pieces(self, name: str) -> list[np.ndarray]:
        """Return what spaces are inferred from: the extremes of an array, in pieces."""
        found, rows = [], self._columns[name].shape[0]
        for begin in range(0, rows, _CHUNK):
            piece = self._rows(name, begin, min(begin + _CHUNK, rows))
            found.append(np.stack([piece.min(0), piece.max(0)]))
        return found

    def episode(self, number: int) -> RecordedEpisode:
        begin, steps = int(self._begins[number]), int(self.lengths[number])
        end, where = begin + steps, f"of '{self.name}' in episode {number}"
        if self._next:
            final = self._rows(_NEXT, end - 1, end)
        else:
            last = end - 1 if self.terminated[number] else end
            final = self._rows('observations', last, last + 1)
        obs = np.concatenate([self._rows('observations', begin, end), final])
        return RecordedEpisode(
            fitted(f'{where} the observation', self.observation_space, obs, steps + 1),
            fitted(f'{where} the action', self.action_space, self._rows('actions', begin, end), steps),
            self._rows('rewards', begin, end).astype(np.float32).reshape(steps),
            bool(self.terminated[number]),
            bool(self.truncated[number]),
        )

    def returns(self, numbers: np.ndarray) -> np.ndarray:
        reward = self._rows('rewards', 0, self._columns['rewards'].shape[0]).astype(np.float32).reshape(-1)
        sums = (
            reward[begin : begin + steps].sum(dtype=np.float64)
            for begin, steps in zip(self._begins[numbers], self.lengths[numbers], strict=True)
        )
        return np.fromiter(sums, np.float64, len(numbers))

    def fitting(self, observation_space: Space | None, action_space: Space | None) -> Source:
        if None not in self._given:
            return self
        its, own = self._given, (observation_space, action_space)
        fitting = [given if given is not None else wanted for given, wanted in zip(its, own, strict=True)]
        return D4RLData(self.path, self._columns, fitting[0], fitting[1], self._reopen)

    def __reduce__(self) -> Any:
        return _opened_again, (self.path, *self._given, self._reopen)


def _opened_again(
    path: Path,
    observation_space: Space | None,
    action_space: Space | None,
    reopen: Callable[[Path], Mapping[str, Any]],
) -> D4RLData:
    return D4RLData(path, reopen(path), observation_space, action_space, reopen)


class _HDF5(Mapping[str, Any]):
    """The datasets of an HDF5 file by name."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getitem__(self, name: str) -> Any:
        return self._file[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._file)

    def __len__(self) -> int:
        return len(self._file)


def hdf5_columns(path: Path) -> Mapping[str, Any]:
    """Return the arrays of an HDF5 file, read when they are sliced.

    Raises:
        ImportError: h5py is not installed.
        ValueError: it is no HDF5 file, or truncated.
    """
    try:
        import h5py
    except ImportError as error:
        raise MissingPackage(f"HDF5 files need the extra: pip install 'zoo-rl[hdf5]' ({error}).") from error
    try:
        return _HDF5(h5py.File(path, 'r'))
    except OSError as error:
        raise InvalidValue(f"'{path}' is no HDF5 file, or truncated ({error}).") from error


def npz_columns(path: Path) -> Mapping[str, Any]:
    """Return the arrays of an ``.npz`` file that has the names of D4RL, read into memory.

    Raises:
        ValueError: it is damaged, or holds pickles.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in (*NEEDED, *FLAGS, _NEXT) if name in arrays}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidValue(f"'{path}' is truncated or altered, or holds pickles ({error}).") from error
