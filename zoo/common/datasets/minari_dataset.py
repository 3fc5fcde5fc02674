"""Datasets of Minari."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from zoo.common.datasets.episodes import RecordedEpisode, fitted
from zoo.common.datasets.source import Environment, Source
from zoo.common.envs.names import find_env_type
from zoo.common.tools.errors import InvalidValue, MissingPackage
from zoo.common.tools.files import jsonable


class MinariDataset(Source):
    """The episodes of a dataset of Minari, given by its id or folder. Episodes without a step are left out.

    Raises:
        ImportError: Minari is not installed.
        ValueError: there is no such dataset on this machine, or an episode goes on after its end.
    """

    def __init__(self, source: str | os.PathLike[str]) -> None:
        try:
            import minari
        except ImportError as error:
            needed = "datasets of Minari need the extra: pip install 'zoo-rl[minari]'"
            raise MissingPackage(f'{needed} ({error}).') from error
        self.name, folder = os.fspath(source), Path(source).expanduser()
        self._given = self.name
        try:
            if folder.is_dir():
                inner = folder / 'data'
                self._dataset = minari.MinariDataset(inner if inner.is_dir() else folder)
            else:
                self._dataset = minari.load_dataset(str(source))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidValue(
                f"there is no Minari dataset '{source}' on this machine: give a file or folder of zoo.record_episodes, "
                f'the folder of a Minari dataset, or the id of one after minari download {source} ({error}).'
            ) from error
        self.path = Path(self._dataset.storage.data_path)
        self.observation_space = self._dataset.observation_space
        self.action_space = self._dataset.action_space
        self.environment = _environment(self._dataset.env_spec)
        indices, lengths, terminated, truncated, self._sums = [], [], [], [], []
        for episode in self._dataset.iterate_episodes():
            ends = [np.asarray(x, bool) for x in (episode.terminations, episode.truncations)]
            if (ends[0] | ends[1])[:-1].any():
                raise InvalidValue(f"episode {episode.id} of the Minari dataset '{source}' goes on after its end.")
            if len(episode.rewards):
                indices.append(int(episode.id))
                lengths.append(len(episode.rewards))
                terminated.append(bool(ends[0][-1]))
                truncated.append(bool(ends[1][-1]))
                self._sums.append(float(np.asarray(episode.rewards, np.float32).sum(dtype=np.float64)))
        self._indices = indices
        self.lengths = np.array(lengths, np.int64)
        self.terminated, self.truncated = np.array(terminated, bool), np.array(truncated, bool)

    def episode(self, number: int) -> RecordedEpisode:
        return next(self.episodes([number]))

    def episodes(self, numbers: Sequence[int] | np.ndarray) -> Iterator[RecordedEpisode]:
        asked = [int(number) for number in numbers]
        found = self._dataset.iterate_episodes([self._indices[number] for number in asked])
        for number, episode in zip(asked, found, strict=True):
            where, steps = f"of '{self.name}' in episode {number}", int(self.lengths[number])
            yield RecordedEpisode(
                fitted(f'{where} the observation', self.observation_space, episode.observations, steps + 1),
                fitted(f'{where} the action', self.action_space, episode.actions, steps),
                np.asarray(episode.rewards, np.float32),
                bool(self.terminated[number]),
                bool(self.truncated[number]),
            )

    def returns(self, numbers: np.ndarray) -> np.ndarray:
        return np.array(self._sums)[numbers]

    def __reduce__(self) -> Any:
        return MinariDataset, (self._given,)


def _environment(spec: Any) -> Environment | None:
    """Return the environment of a specification of Gymnasium."""
    if spec is None:
        return None
    try:
        env_type = find_env_type(spec.id)
        kwargs = {name: value for name, value in spec.kwargs.items() if name != 'render_mode'}
        arguments = jsonable({'env_id': spec.id, 'env_type': env_type, **kwargs})
    except (ValueError, ImportError, TypeError):
        return Environment(str(spec.id))
    limit = getattr(gymnasium.registry.get(spec.id), 'max_episode_steps', None)
    if spec.additional_wrappers or (spec.max_episode_steps is None and limit is not None):
        return Environment(str(spec.id))  # a name gives neither the wrappers nor episodes without a limit
    if spec.max_episode_steps != limit:
        arguments['max_episode_steps'] = int(spec.max_episode_steps)
    return Environment(spec.id, env_type, arguments)
