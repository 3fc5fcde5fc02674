"""Environments of gymnax (Lange 2022), which are written in JAX: classic control, MinAtar, bsuite and others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space, Tuple

from zoo.common.envs.kinds import suites
from zoo.common.tools.errors import InvalidType

#: gymnax' own parameter for the time limit.
_LIMIT = 'max_steps_in_episode'


def _names() -> Iterable[str]:
    import gymnax

    return gymnax.registered_envs


class Gymnax:
    """An environment of gymnax as pure functions.

    Args:
        env_id: its name.
        limit: the number of steps after which an episode is truncated; None: the environment's own.
        params: what differs from its default parameters.
    """

    backend = 'jax'

    def __init__(self, env_id: str, limit: int | None, params: dict[str, Any]) -> None:
        import gymnax
        import jax

        self.name = env_id
        self._env, defaults = gymnax.make(env_id)
        known = vars(defaults)
        self.max_episode_steps = limit
        if limit is not None and _LIMIT in known:
            params = {**params, _LIMIT: limit}
        suites.check_known(env_id, 'gymnax', params, known)
        self._params = defaults.replace(**params)
        space = to_gymnasium(self._env.observation_space(self._params))
        _, obs = jax.eval_shape(self.reset, jax.ShapeDtypeStruct((2,), 'uint32'))
        if isinstance(space, Box) and space.dtype != obs.dtype:  # Catch says int32 and gives float32
            space = Box(space.low.astype(obs.dtype), space.high.astype(obs.dtype), dtype=obs.dtype.type)
        self.observation_space = space
        self.action_space = to_gymnasium(self._env.action_space(self._params))

    def reset(self, seed: Any) -> tuple[Any, Any]:
        obs, state = self._env.reset_env(seed, self._params)
        return state, obs

    def step(self, state: Any, action: Any, seed: Any) -> tuple[Any, Any, Any, Any, Any]:
        obs, state, reward, terminated, _ = self._env.step_env(seed, state, action, self._params)
        return state, obs, reward, terminated, self._env.is_truncated(state, self._params)


def to_gymnasium(space: Any) -> Space:
    """Return Gymnasium's space for one of gymnax."""
    from gymnax.environments import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.Box):
        dtype = np.dtype(space.dtype)
        low, high = (np.broadcast_to(np.asarray(x, np.float64), space.shape) for x in (space.low, space.high))
        if dtype.kind == 'f':  # the largest number of float32 stands for no bound
            low, high = np.where(low < -1e38, -np.inf, low), np.where(high > 1e38, np.inf, high)
        if dtype.kind == 'b':
            dtype = np.dtype(np.uint8)
        return Box(low.astype(dtype), high.astype(dtype), dtype=dtype.type)
    if isinstance(space, spaces.Dict):
        return Dict({key: to_gymnasium(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return Tuple([to_gymnasium(part) for part in space.spaces])
    raise InvalidType(f'gymnax has a space {space!r} that zoo does not know.')


_SUITE = suites.Suite('gymnax', 'gymnax', _names, Gymnax)
COMPILED = True
find, ids, make, make_vector = _SUITE.find, _SUITE.ids, _SUITE.make, _SUITE.make_vector
