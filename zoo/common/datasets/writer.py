"""Writing a dataset: episode by episode, and whole or not at all."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.datasets.array_file import ArrayFile
from zoo.common.datasets.episodes import RecordedEpisode, newest_frames, stored_shape
from zoo.common.datasets.source import Environment
from zoo.common.tools.errors import InvalidValue, NotWritable
from zoo.common.tools.files import beside, jsonable, make_directory


class Writer(ABC):
    """Takes episodes and writes them to arrays on disk, which take the place of ``path`` when the block ends.

    After an error everything is deleted, and ``path`` is as it was.

    >>> with Writer(path, observation_space, action_space) as writer:
    ...     writer.add(episode)

    Args:
        path: the file or folder.
        observation_space, action_space: of the episodes.
        environment: that they were recorded in; None: not known.
        inferred: see :class:`zoo.common.datasets.source.Source`.

    Raises:
        OSError: it cannot be written.
        ValueError: (by the end of the block) there was no episode.
    """

    def __init__(
        self,
        path: Path,
        observation_space: Space,
        action_space: Space,
        environment: Environment | None = None,
        inferred: tuple[str, ...] = (),
    ) -> None:
        self.path = path
        self.observation_space, self.action_space = observation_space, action_space
        self.environment, self.inferred = environment, inferred
        self.lengths: list[int] = []
        self.terminated: list[bool] = []
        self.truncated: list[bool] = []
        self.arrays: dict[str, ArrayFile] = {}
        make_directory(path.parent, f"the folder of the dataset '{path.name}'")

    def __enter__(self) -> Writer:
        self.folder = beside(self.path)
        self.folder.mkdir()
        self._leaves: list[tuple[str, str, spaces.Leaf]] = [
            (field, path, leaf)
            for field, space in (('obs', self.observation_space), ('action', self.action_space))
            for path, leaf in spaces.leaves(space).items()
        ]
        for field, path, leaf in self._leaves:
            self.open(f'{field}/{path}', stored_shape(leaf), leaf.dtype)
        self.open('reward', (), np.float32)
        return self

    def open(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        """Begin an array of this name; ``shape`` is the shape of a row."""
        self.arrays[name] = ArrayFile(self.folder / f'{len(self.arrays)}.npy', shape, dtype)

    def add(self, episode: RecordedEpisode) -> None:
        """Write an episode."""
        flat = {'obs': dict(spaces.tree_items(episode.obs)), 'action': dict(spaces.tree_items(episode.action))}
        for field, path, leaf in self._leaves:
            self.append(f'{field}/{path}', newest_frames(leaf, flat[field][path]))
        self.append('reward', episode.reward)
        self._add_log_prob(episode)
        self.lengths.append(len(episode.reward))
        self.terminated.append(bool(episode.terminated))
        self.truncated.append(bool(episode.truncated))

    def _add_log_prob(self, episode: RecordedEpisode) -> None:
        """Write log-probabilities: NaN for episodes without, and no array if none has them."""
        known = episode.log_prob is not None
        if known and 'log_prob' not in self.arrays:
            self.open('log_prob', (), np.float32)
            for length in self.lengths:
                self.append('log_prob', np.full(length, np.nan, np.float32))
        if 'log_prob' in self.arrays:
            rows = episode.log_prob if known else np.full(len(episode.reward), np.nan)
            self.append('log_prob', np.asarray(rows, np.float32))

    def append(self, name: str, rows: np.ndarray) -> None:
        """Write the rows of an episode to an array."""
        try:
            self.arrays[name].append(rows)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> NotWritable:
        told = f"'{self.path}' could not be written, and nothing was changed: {error}"
        return NotWritable(f'{told.removesuffix(".")}.')

    @abstractmethod
    def finish(self) -> None:
        """Complete the arrays and put them in the place of ``path``."""

    def about(self) -> dict[str, Any]:
        """Return what is written beside the arrays, as plain data."""
        known = self.environment
        return {
            'observation_space': jsonable(spaces.to_json(self.observation_space)),
            'action_space': jsonable(spaces.to_json(self.action_space)),
            'inferred': list(self.inferred),
            'environment': None if known is None else jsonable(known._asdict()),
        }

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        try:
            if error is None:
                if not self.lengths:
                    raise InvalidValue(f"no episode was given to write to '{self.path}': give at least one.")
                self.finish()
        except OSError as failed:
            raise self._unwritable(failed) from failed
        finally:
            for array in self.arrays.values():
                array.abandon()
            shutil.rmtree(self.folder, ignore_errors=True)


def environment_of(about: dict[str, Any]) -> Environment | None:
    """Return the environment that a file names."""
    known = about.get('environment')
    if not isinstance(known, dict) or not isinstance(known.get('name'), str):
        return None
    return Environment(known['name'], known.get('type'), known.get('arguments'))
