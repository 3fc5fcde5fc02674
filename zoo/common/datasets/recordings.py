"""Recorded episodes: files of ``zoo.record_dataset`` and datasets of Minari, read into a replay buffer.

A recording is a ``.npz`` file without pickles:

=======================  ===========================================================================================
``about``                JSON: format, version, observation and action space
``lengths``              int64 ``[E]``, the steps of each episode
``terminated``,          bool ``[E]``, how each ended; an episode that was cut is neither
``truncated``
``reward``               float32 ``[steps of all]``, one episode after another
``action/PATH``          ``[steps of all, …]``, in the environment's own units
``obs/PATH``             ``[steps of all + E, …]``, with final observations; of a stack of frames the newest frame
=======================  ===========================================================================================
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.adaptors import action as actions
from zoo.common.adaptors import observation as observations
from zoo.common.maths.normalize import Collected
from zoo.common.replay.replay import Replay
from zoo.common.tools.errors import InvalidValue, MissingPackage
from zoo.common.tools.files import from_jsonable, jsonable, place_for, replacing

FORMAT_VERSION = 1

_FORMAT = 'zoo episodes'


class RecordedEpisode(NamedTuple):
    """One episode of ``T`` steps.

    Attributes:
        obs: flat ``[T + 1, …]``, with the final observation.
        action: flat ``[T, …]``, in the environment's own units.
        reward: float32 ``[T]``.
        terminated, truncated: how it ended; neither where it was cut.
    """

    obs: Any
    action: Any
    reward: np.ndarray
    terminated: bool
    truncated: bool


class AgentSpaces(Protocol):
    """An agent, or anything else that has its spaces."""

    @property
    def observation_space(self) -> Space:
        """The space of one observation."""

    @property
    def action_space(self) -> Space:
        """The space of one action."""


class Recording(Protocol):
    """Recorded episodes, read one after the other, and the spaces of one copy of their environment."""

    observation_space: Space
    action_space: Space

    def __iter__(self) -> Iterator[RecordedEpisode]:
        """Iterate over the episodes."""


def check_spaces(agent: AgentSpaces, observation_space: Space, action_space: Space, whose: str) -> None:
    """Raise a ValueError for other spaces than the agent's; ``whose`` begins the message."""
    for kind, found, adaptor in (
        ('observation_space', observation_space, observations),
        ('action_space', action_space, actions),
    ):
        reason = adaptor.mismatch(getattr(agent, kind), found)
        if reason is not None:
            raise InvalidValue(f'{whose} {kind} {reason}: record episodes in an environment with its spaces.')


def write(
    path: str | os.PathLike[str], observation_space: Space, action_space: Space, episodes: Sequence[RecordedEpisode]
) -> Path:
    """Write episodes to a file, completely or not at all, in the form that the module's docstring describes."""
    path = Path(path).expanduser()
    about = {
        'format': _FORMAT,
        'version': FORMAT_VERSION,
        'observation_space': spaces.to_json(observation_space),
        'action_space': spaces.to_json(action_space),
    }
    arrays: dict[str, np.ndarray] = {
        'about': np.array(json.dumps(jsonable(about))),
        'lengths': np.array([len(episode.reward) for episode in episodes], np.int64),
        'terminated': np.array([episode.terminated for episode in episodes], bool),
        'truncated': np.array([episode.truncated for episode in episodes], bool),
        'reward': np.concatenate([np.asarray(episode.reward, np.float32) for episode in episodes]),
    }
    for field, space in (('obs', observation_space), ('action', action_space)):
        for leaf_path, leaf in spaces.leaves(space).items():
            parts = [dict(spaces.tree_items(getattr(episode, field)))[leaf_path] for episode in episodes]
            if isinstance(leaf, spaces.FrameStack):
                parts = [part[..., -leaf.frame_shape[-1] :] for part in parts]
            arrays[f'{field}/{leaf_path}'] = np.concatenate(parts).astype(leaf.dtype, copy=False)
    place_for(path, 'the dataset')
    with replacing(path) as new, open(new, 'wb') as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return path


class RecordedFile:
    """A :class:`Recording` in a file of ``zoo.record_dataset``.

    Raises:
        ValueError: there is no such file, or another program wrote it.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise InvalidValue(f"there are no recorded episodes at '{path}'.")
        foreign = f"'{path}' does not hold episodes that were recorded by zoo.record_dataset"
        try:
            self._arrays = np.load(path, allow_pickle=False)
            about = from_jsonable(json.loads(str(self._arrays['about'])))
        except (ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
            raise InvalidValue(f'{foreign} ({error}).') from error
        if about.get('format') != _FORMAT:
            raise InvalidValue(f'{foreign}.')
        if about['version'] > FORMAT_VERSION:
            raise InvalidValue(f"'{path}' was recorded by a newer zoo: upgrade zoo.")
        self.observation_space = spaces.from_json(about['observation_space'])
        self.action_space = spaces.from_json(about['action_space'])

    def __iter__(self) -> Iterator[RecordedEpisode]:
        """Iterate over the episodes, with whole stacks of frames."""
        held = self._arrays
        obs = {path: held[f'obs/{path}'] for path in spaces.leaves(self.observation_space)}
        action = {path: held[f'action/{path}'] for path in spaces.leaves(self.action_space)}
        reward, end = held['reward'], 0
        for i, (length, terminated, truncated) in enumerate(
            zip(held['lengths'].tolist(), held['terminated'].tolist(), held['truncated'].tolist(), strict=True)
        ):
            begin, end = end, end + length
            seen = {path: x[begin + i : end + i + 1] for path, x in obs.items()}
            for path, leaf in spaces.leaves(self.observation_space).items():
                if isinstance(leaf, spaces.FrameStack):
                    seen[path] = stacked(seen[path], leaf.frames)
            yield RecordedEpisode(
                spaces.from_items(self.observation_space, seen),
                spaces.from_items(self.action_space, {path: x[begin:end] for path, x in action.items()}),
                reward[begin:end],
                terminated,
                truncated,
            )


def stacked(newest: np.ndarray, frames: int) -> np.ndarray:
    """Return the stacks of an episode's frames; the first frame stands for earlier ones."""
    past = np.arange(len(newest))[:, None] - np.arange(frames - 1, -1, -1)
    return np.concatenate([newest[rows] for rows in np.maximum(past, 0).T], -1)


class MinariDataset:
    """A :class:`Recording` in a dataset of Minari.

    ``source`` is its id or folder.

    Raises:
        ImportError: Minari is not installed.
        ValueError: there is no such dataset on this machine.
    """

    def __init__(self, source: str | Path) -> None:
        try:
            import minari
        except ImportError as error:
            needed = "datasets of Minari need the extra: pip install 'zoo-rl[minari]'"
            raise MissingPackage(f'{needed} ({error}).') from error
        folder = Path(source).expanduser()
        try:
            if folder.is_dir():
                inner = folder / 'data'
                self._dataset = minari.MinariDataset(inner if inner.is_dir() else folder)
            else:
                self._dataset = minari.load_dataset(str(source))
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            raise InvalidValue(
                f"there is no Minari dataset '{source}' on this machine: give the .npz file of a recording, the "
                f'folder of a dataset, or the id of one after minari download {source} ({error}).'
            ) from error
        self.observation_space = self._dataset.observation_space
        self.action_space = self._dataset.action_space

    def __iter__(self) -> Iterator[RecordedEpisode]:
        """Iterate over the episodes, in the dtypes of their spaces."""
        for episode in self._dataset.iterate_episodes():
            terminated, truncated = (np.asarray(x, bool) for x in (episode.terminations, episode.truncations))
            reward = np.asarray(episode.rewards, np.float32)
            if (terminated | truncated)[:-1].any():
                raise InvalidValue(f'episode {episode.id} of the Minari dataset goes on after its end.')
            if not len(reward):
                continue
            yield RecordedEpisode(
                _arrays(self.observation_space, episode.observations, len(reward) + 1),
                _arrays(self.action_space, episode.actions, len(reward)),
                reward,
                bool(terminated[-1]),
                bool(truncated[-1]),
            )


def _arrays(space: Space, values: Any, length: int) -> spaces.Flat:
    flat = dict(spaces.tree_items(spaces.flatten(space, values)))
    items = {
        path: np.asarray(flat[path]).astype(leaf.dtype, copy=False).reshape(length, *spaces.shape_of(leaf))
        for path, leaf in spaces.leaves(space).items()
    }
    return spaces.from_items(space, items)


def read(source: str | os.PathLike[str]) -> Recording:
    """Return the recording at a path that ends in ``.npz``, or else the Minari dataset with that folder or id.

    Raises:
        ValueError: there is none.
        ImportError: Minari is not installed.
    """
    path = Path(source).expanduser()
    return RecordedFile(path) if path.suffix == '.npz' else MinariDataset(os.fspath(source))


#: The warning where a replay buffer is too small: the number of recorded steps, and the number held.
TOO_SMALL = 'Of the %d recorded transitions the replay buffer holds %d: a larger buffer_size holds more.'


def fill(
    agent: AgentSpaces,
    replay: Replay,
    sources: Any,
    part: int = 0,
    parts: int = 1,
    collected: Collected | None = None,
) -> int:
    """Put recorded episodes into a replay buffer, each into the copy with the fewest steps; return the number of steps.

    Args:
        agent, replay: the episodes must have the spaces of this agent and its replay buffer.
        sources: a source that :func:`read` takes, or a list of them.
        part, parts: the number of this replay buffer among ``parts``, which take the episodes in turn.
        collected: is given the observations that were acted on, once each.

    Raises:
        ValueError: no such source, episodes of other spaces, or values outside them.
    """
    given, count = np.zeros(replay.num_envs, np.int64), 0
    preprocess = observations.Preprocess(agent.observation_space, {})
    for name, recording in opened(agent, sources):
        for i, episode in enumerate(recording):
            if i % parts != part:
                continue
            _check_values(preprocess, name, episode)
            try:
                action = replay.adaptor.from_env(episode.action)
            except ValueError as error:
                raise InvalidValue(f"of '{name}' {error}") from error
            into = int(given.argmin())
            replay.add_episode(into, episode.obs, action, episode.reward, episode.terminated, episode.truncated)
            given[into] += len(episode.reward)
            count += len(episode.reward)
            if collected is not None:
                collected.add(spaces.tree_map(lambda x: x[:-1], episode.obs))
    return count


def opened(agent: AgentSpaces, sources: Any) -> list[tuple[str, Recording]]:
    """Return recordings by name.

    Raises:
        ValueError: no such source, or episodes of other spaces.
    """
    recordings = [(os.fspath(source), read(source)) for source in _listed(sources)]
    for name, recording in recordings:
        check_spaces(agent, recording.observation_space, recording.action_space, f"of '{name}' the")
    return recordings


def named(sources: Any) -> list[str]:
    """Return sources as plain data, with which they can be opened again."""
    return [os.fspath(source) for source in _listed(sources)]


def name_of(sources: Any) -> str:
    """Return what to call sources in titles and names of folders."""
    return Path(named(sources)[0]).stem


def check_sources(sources: Any) -> None:
    """Refuse what names no recordings; a file must be there. The id of a Minari dataset is only looked up in training.

    Raises:
        ValueError: this is no source, or there is no such file.
    """
    for source in _listed(sources):
        path = Path(source).expanduser()
        if path.suffix == '.npz':
            RecordedFile(path)


def _listed(sources: Any) -> list[str | os.PathLike[str]]:
    """Return sources as a list; ValueError if they are something else."""
    if isinstance(sources, str | os.PathLike):
        return [sources]
    if not isinstance(sources, Sequence) or not all(isinstance(x, str | os.PathLike) for x in sources):
        raise InvalidValue(
            f'recorded is {sources!r}: give the path of a recording, the folder or id of a Minari dataset, or a list '
            'of these.'
        )
    if not sources:
        raise InvalidValue('recorded is an empty list: name a recording, or leave it out.')
    return list(sources)


def _check_values(preprocess: observations.Preprocess, name: str, episode: RecordedEpisode) -> None:
    try:
        preprocess.check_values(episode.obs)
    except ValueError as error:
        raise InvalidValue(f"of '{name}' {error}") from error
    for what, values in (('an observation', episode.obs), ('a reward', episode.reward)):
        for _, x in spaces.tree_items(values):
            if x.dtype.kind == 'f' and not np.isfinite(x).all():
                raise InvalidValue(f"of '{name}' {what} is NaN or infinite.")
