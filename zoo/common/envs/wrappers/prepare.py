"""The wrappers that every environment gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import SupportsFloat, cast

import gymnasium
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TransformReward

from zoo.common.adaptors.observation import ACTION_MASK
from zoo.common.envs import answers
from zoo.common.envs.wrappers.leaves import seeded_reset
from zoo.common.envs.wrappers.masks import ActionMask, VectorActionMask
from zoo.common.envs.wrappers.rewards import RecordEpisode, ShapeVectorReward, has_key, is_recorded


def prepare(
    env: gymnasium.Env, name: str, seed: int | None, reward_shaping: Callable[[float], float] | None
) -> gymnasium.Env:
    """Seed a new environment and its action space, check its first observation, and wrap it as far as necessary.

    A ValueError says that the observation does not fit its space. Messages call the environment ``name``.
    """
    info = seeded_reset(env, name, seed)
    if ACTION_MASK in info and not has_key(env.observation_space, ACTION_MASK):
        env = ActionMask(env)
    if reward_shaping is not None:
        if not (is_recorded(env) or env.has_wrapper_attr('reports_episodes')):
            env = RecordEpisode(env, name)
        env = TransformReward(env, cast(Callable[[SupportsFloat], float], reward_shaping))
    return env


def prepare_vector(
    env: VectorEnv, name: str, seed: int | None, reward_shaping: Callable[[float], float] | None
) -> VectorEnv:
    """Do the same for a vector environment; a ValueError also if it does not say when it resets its copies."""
    answers.autoreset_mode(env)
    info = seeded_reset(env, name, seed)
    if ACTION_MASK in info and not has_key(env.single_observation_space, ACTION_MASK):
        env = VectorActionMask(env)
    return env if reward_shaping is None else ShapeVectorReward(env, reward_shaping)
