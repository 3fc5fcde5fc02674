"""One copy of an environment, checked in each step; its observations are cast, and its final one is copied."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium

from zoo.common.envs import answers, declared
from zoo.common.envs.wrappers.leaves import declared_leaves
from zoo.common.envs.wrappers.masks import ActionMask
from zoo.common.envs.wrappers.rewards import RecordEpisode

#: Wrappers that leave observations as they are.
_HANDING_ON = ('PassiveEnvChecker', 'OrderEnforcing', 'TimeLimit', 'RecordEpisodeStatistics', 'TransformReward')


def needs_copy(env: gymnasium.Env) -> bool:
    """Whether the environment is not Gymnasium's own, or a wrapper around it may change observations."""
    while isinstance(env, gymnasium.Wrapper):
        known = type(env).__module__.startswith('gymnasium.wrappers.') and type(env).__name__ in _HANDING_ON
        if not (known or isinstance(env, ActionMask | RecordEpisode)):
            return True
        env = env.env
    return not type(env).__module__.startswith('gymnasium.envs.')


class Copy(gymnasium.Wrapper):
    """One copy among several of an environment, with what a vector environment leaves out.

    A vector environment casts an observation of another dtype whatever becomes of its values, and does not name a copy
    whose observation has another shape. It resets a copy in the step that ended the episode, so an environment that
    writes all observations into one array would overwrite the final one. Gymnasium's own environments need no such
    wrapper: :func:`needs_copy`.
    """

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        super().__init__(env)
        self._name = name
        self._steps = 0
        self._leaves = declared_leaves(env.observation_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        try:
            result = self.env.reset(seed=seed, options=options)
        except TypeError as error:
            answers.refuse_reset(error, self.env, self._name)
            raise
        observation, info = answers.first(result, self._who())
        return self._in_form(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._steps += 1
        observation, reward, terminated, truncated, info = answers.step(result, self._who)
        observation = self._in_form(observation)
        reward = answers.number(reward, self._who)
        terminated = answers.flag('terminated', terminated, self._who)
        truncated = answers.flag('truncated', truncated, self._who)
        if terminated or truncated:
            observation = copy.deepcopy(observation)
        return observation, reward, terminated, truncated, info

    def _in_form(self, observation: Any) -> Any:
        if self._leaves is None:
            return observation
        casts: list[str] = []
        found = declared.observation_in_form(self.observation_space, observation, self._leaves, self._who, casts)
        declared.tell(self, casts)
        return found

    def _who(self) -> str:
        return f'step {self._steps}: {self._name}'
