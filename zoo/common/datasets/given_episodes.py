"""Episodes that a program holds: records, dicts and rollouts in a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.datasets.episodes import RecordedEpisode, fitted, newest_frames, stacked
from zoo.common.datasets.inferring import infer_action_space, infer_observation_space, undeclared
from zoo.common.datasets.source import Environment, Source
from zoo.common.rollouts.rollout import Rollout
from zoo.common.tools.errors import InvalidValue, a_type

_KEYS = ('obs', 'action', 'reward', 'terminated', 'truncated')
_OPTIONAL = ('log_prob',)

_HOW = "an episode is a dict with 'obs' [T + 1, …], 'action', 'reward' [T], 'terminated' and 'truncated'"


def is_episode(value: Any) -> bool:
    """Whether an object is one episode, or a rollout of several."""
    return isinstance(value, RecordedEpisode | Mapping | Rollout)


class GivenEpisodes(Source):
    """Episodes in memory.

    Args:
        given: :class:`RecordedEpisode`, dicts with the same keys, or rollouts. ``terminated`` and ``truncated`` are a
            bool, or an array ``[T]`` with one for each step. Observations and actions are nested as their spaces are,
            or flat.
        observation_space, action_space: None: those of the rollouts; where there are none, inferred.
        name: what to call them in messages.
        environment: None: not known.

    Raises:
        ValueError: no episodes, a key is missing or unknown, lengths disagree, an episode goes on after its end, or the
            spaces cannot hold the values.
    """

    def __init__(
        self,
        given: Sequence[Any],
        observation_space: Space | None = None,
        action_space: Space | None = None,
        name: str = 'a list of episodes',
        environment: Environment | None = None,
    ) -> None:
        self.name, self.environment = name, environment
        for one in given:
            if isinstance(one, Rollout):
                observation_space = observation_space or one.player.observation_space
                action_space = action_space or one.player.action_space
        self._declared = observation_space, action_space
        self.inferred = undeclared(*self._declared)
        raw = [self._raw(i, one) for i, rollout in enumerate(given) for one in _parts(rollout)]
        if not raw:
            raise InvalidValue(f'{name} has no episode of at least one step.')
        self.observation_space = observation_space or infer_observation_space(name, [one['obs'] for one in raw])
        self.action_space = action_space or infer_action_space(name, [one['action'] for one in raw])
        self._episodes = [self._fitted(i, one) for i, one in enumerate(raw)]
        self.lengths = np.array([len(episode.reward) for episode in self._episodes], np.int64)
        self.terminated = np.array([episode.terminated for episode in self._episodes], bool)
        self.truncated = np.array([episode.truncated for episode in self._episodes], bool)

    def _where(self, number: int) -> str:
        return f"of '{self.name}' in episode {number}"

    def _raw(self, number: int, one: Any) -> dict[str, Any]:
        """Return the values of an episode by name."""
        if isinstance(one, RecordedEpisode):
            return one._asdict()
        if not isinstance(one, Mapping):
            raise InvalidValue(f'episode {number} is {a_type(one)}: {_HOW}.')
        if 'observations' in one:
            raise InvalidValue(
                "that is the D4RL form, which has to be in a file: np.savez('data.npz', **arrays), and then "
                "zoo.open_dataset('data.npz')."
            )
        missing = [key for key in _KEYS if key not in one]
        if missing:
            told = 'how it ended is not said: ' if missing[0] in ('terminated', 'truncated') else ''
            raise InvalidValue(f'{self._where(number)} {missing[0]!r} is missing: {told}{_HOW}.')
        more = [key for key in one if key not in (*_KEYS, *_OPTIONAL)]
        if more:
            raise InvalidValue(f'{self._where(number)} {more[0]!r} is no part of an episode: {_HOW}.')
        return dict(one)

    def _fitted(self, number: int, one: Mapping[str, Any]) -> RecordedEpisode:
        where = self._where(number)
        reward = np.asarray(one['reward'])
        if reward.dtype.kind not in 'biuf' or reward.ndim != 1 or not len(reward):
            told = f'of shape {reward.shape} and dtype {reward.dtype}'
            raise InvalidValue(f'{where} the reward is {told}: give one number for each of at least one step.')
        steps = len(reward)
        terminated, truncated = (self._end(where, name, one[name], steps) for name in ('terminated', 'truncated'))
        obs = fitted(f'{where} the observation', self.observation_space, one['obs'], steps + 1)
        for path, leaf in spaces.leaves(self.observation_space).items():
            x = obs[path] if path else obs
            if isinstance(leaf, spaces.FrameStack) and not np.array_equal(
                stacked(newest_frames(leaf, x), leaf.frames), x
            ):
                raise InvalidValue(
                    f'{where} the stacks of frames do not follow one another from the first frame on: give episodes '
                    'from their beginning.'
                )
        action = fitted(f'{where} the action', self.action_space, one['action'], steps)
        log_prob = self._log_prob(where, one, steps)
        return RecordedEpisode(obs, action, reward.astype(np.float32), terminated, truncated, log_prob)

    def _log_prob(self, where: str, one: Mapping[str, Any], steps: int) -> np.ndarray | None:
        if one.get('log_prob') is None:
            return None
        found = np.asarray(one['log_prob'])
        if found.shape != (steps,) or found.dtype.kind not in 'if':
            told = f'of shape {found.shape} and dtype {found.dtype}, but there are {steps} steps'
            raise InvalidValue(f'{where} log_prob is {told}: give the log-probability of each action, or leave it out.')
        return found.astype(np.float32)

    def _end(self, where: str, name: str, value: Any, steps: int) -> bool:
        flags = np.asarray(value)
        if flags.dtype.kind != 'b' and not (flags.dtype.kind in 'iuf' and np.isin(flags, (0, 1)).all()):
            raise InvalidValue(f'{where} {name!r} is {value!r}: give a bool, or one for each step.')
        if flags.ndim == 0:
            return bool(flags)
        if flags.shape != (steps,):
            raise InvalidValue(f'{where} {name!r} has the shape {flags.shape}, but there are {steps} steps.')
        if flags[:-1].any():
            after = int(np.flatnonzero(flags)[0])
            raise InvalidValue(f'{where} it goes on after its end in step {after}: give each episode by itself.')
        return bool(flags[-1])

    def episode(self, number: int) -> RecordedEpisode:
        return self._episodes[number]

    def fitting(self, observation_space: Space | None, action_space: Space | None) -> Source:
        known = self._declared
        if None not in known:
            return self
        given: list[Any] = list(self._episodes)
        return GivenEpisodes(
            given, known[0] or observation_space, known[1] or action_space, self.name, self.environment
        )


def _parts(one: Any) -> list[Any]:
    """Return the episodes of a rollout, or parts of them, as records; of an episode itself."""
    if not isinstance(one, Rollout):
        return [one]
    adaptor = ActionAdaptor(one.player.action_space)
    found = []
    for part in one.episodes(whole=False):
        action = spaces.tree_map(lambda x: np.asarray(x)[:, 0], part.action)
        found.append(
            RecordedEpisode(
                spaces.tree_map(lambda x, y: np.concatenate([x[:, 0], y[-1:, 0]]), part.obs, part.next_obs),
                spaces.flatten(one.player.action_space, adaptor.to_env(action)),
                np.asarray(part.reward)[:, 0],
                bool(part.terminated[-1, 0]),
                bool(part.truncated[-1, 0]),
            )
        )
    return found
