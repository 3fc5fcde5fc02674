"""Shaped rewards, and the unshaped return of each episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Dict
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.wrappers import Autoreset, RecordEpisodeStatistics, TimeLimit

from zoo.common.envs import answers
from zoo.common.envs.wrappers.masks import ActionMask
from zoo.common.envs.wrappers.views import StackFrames


class RecordEpisode(gymnasium.Wrapper):
    """Puts the return and length of each finished episode into ``info['episode']``, ``{'r': float, 'l': int}``.

    It replaces what the environment has under that name, which may have another form or other rewards. (Gymnasium's
    ``RecordEpisodeStatistics`` refuses an environment that uses the name.)
    """

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        super().__init__(env)
        self._name = name
        self._return, self._length = 0.0, 0

    @property
    def return_so_far(self) -> float:
        """The unshaped return of the episode that is under way."""
        return self._return

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._return, self._length = 0.0, 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = answers.step(self.env.step(action), self._who)
        reward = answers.number(reward, self._who)
        self._return += reward
        self._length += 1
        if answers.flag('terminated', terminated, self._who) or answers.flag('truncated', truncated, self._who):
            info = info | {'episode': {'r': self._return, 'l': self._length}}
        return observation, reward, terminated, truncated, info

    def _who(self) -> str:
        return f'{self._name}: the environment'


class ShapeVectorReward(VectorWrapper):
    """Applies ``function`` to every reward, and reports the unshaped return and length of each finished episode.

    They are ``{'r': float64 [n], 'l': int64 [n]}``, in ``info['final_info']['episode']`` if the environment resets
    copies in the step that ended their episode, else in ``info['episode']``. An environment with a true attribute
    ``reports_episodes`` reports them itself. (In the first case Gymnasium 1.2's own ``RecordEpisodeStatistics`` loses
    a step of each episode.)
    """

    def __init__(self, env: VectorEnv, function: Callable[[float], float]) -> None:
        super().__init__(env)
        self._function = function
        self._autoreset_mode = answers.autoreset_mode(env)
        self._returns, self._lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64)
        self._ended = np.zeros(env.num_envs, np.bool_)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        which = (options or {}).get('reset_mask', slice(None))
        self._returns[which], self._lengths[which], self._ended[which] = 0, 0, False
        return self.env.reset(seed=cast(Any, seed), options=options)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(actions)
        reward = answers.numbers(reward, self.num_envs, self._who)
        same_step = self._autoreset_mode == AutoresetMode.SAME_STEP
        self._returns[self._ended] = self._lengths[self._ended] = 0
        # With NEXT_STEP this step only reset the copies that had ended: their rewards belong to no transition.
        stepped = ~self._ended if self._autoreset_mode == AutoresetMode.NEXT_STEP else np.ones(self.num_envs, np.bool_)
        np.add(self._returns, reward, out=self._returns, where=stepped)
        self._lengths += stepped
        self._ended = (np.asarray(terminated, bool) | np.asarray(truncated, bool)) & stepped
        if self._ended.any() and not getattr(self.env, 'reports_episodes', False):
            where = info.setdefault('final_info', {}) if same_step else info
            kept = {'r': self._returns, 'l': self._lengths}
            where['episode'] = {key: np.where(self._ended, values, 0) for key, values in kept.items()}
            where['_episode'] = self._ended.copy()
        return observation, self.shaped(reward), terminated, truncated, info

    def shaped(self, reward: np.ndarray) -> np.ndarray:
        """Return the rewards, float64 ``[n]``, that training sees instead of rewards ``[n]``."""
        return np.array([self._function(value) for value in reward.tolist()], np.float64)

    def _who(self, i: int | None = None) -> str:
        return f'{type(self.unwrapped).__name__}: {"the environment" if i is None else f"copy {i}"}'


def has_key(space: Space, key: str) -> bool:
    """Whether a space is a ``Dict`` with this key."""
    return isinstance(space, Dict) and key in space.spaces


#: The ``step`` of wrappers that leave ``terminated`` and ``truncated`` alone.
_PLAIN_STEPS = tuple(
    kind.step
    for kind in (gymnasium.Wrapper, gymnasium.ObservationWrapper, gymnasium.RewardWrapper, gymnasium.ActionWrapper)
)


def is_recorded(env: gymnasium.Env) -> bool:
    """Whether Gymnasium's recorder is around an environment, outside all wrappers that may end an episode."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, RecordEpisodeStatistics) and getattr(env, '_stats_key', '') == 'episode':
            return True
        known = type(env).__module__.startswith('gymnasium.wrappers.') and not isinstance(env, TimeLimit | Autoreset)
        if not (known or isinstance(env, ActionMask | StackFrames) or type(env).step in _PLAIN_STEPS):
            return False
        env = env.env
    return False
