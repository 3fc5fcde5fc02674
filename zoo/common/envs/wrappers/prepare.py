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
    """Seed a new environment, check its first observation, and wrap it as far as necessary.

    Args:
        env: the environment as its maker returned it.
        name: what error messages call it.
        seed: the seed of the environment and its action space.
        reward_shaping: a function of one reward, or None.

    Raises:
        ValueError: its first observation lies outside its space.
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
    """Do what :func:`prepare` does for a vector environment.

    Raises:
        ValueError: its first observation lies outside its space; it does not say when it resets its copies.
    """
    answers.autoreset_mode(env)
    info = seeded_reset(env, name, seed)
    if ACTION_MASK in info and not has_key(env.single_observation_space, ACTION_MASK):
        env = VectorActionMask(env)
    return env if reward_shaping is None else ShapeVectorReward(env, reward_shaping)
