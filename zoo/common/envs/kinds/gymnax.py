"""Environments of gymnax (Lange 2022), which are written in JAX: classic control, MinAtar, bsuite and others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space, Tuple
from gymnasium.vector import VectorEnv

from zoo.common.tools.errors import Failure, InvalidType, InvalidValue, unknown


def find(env_id: Any, env_type: str) -> Callable[..., gymnasium.Env]:
    """Return the factory :func:`make` of an environment.

    Raises:
        ImportError: gymnax is not installed.
        ValueError: an unknown name.
        TypeError: what is given is no name.
    """
    known = ids()
    if not isinstance(env_id, str):
        raise InvalidType(f'a {env_type} environment is given by its name, not by {env_id!r}.')
    if env_id not in known:
        raise InvalidValue(unknown(f'{env_type} environment', env_id, known))
    return partial(make, env_id)


def ids() -> list[str]:
    """Return the names of all environments, sorted."""
    return sorted(_package().registered_envs)


def _package() -> Any:
    from zoo.common.envs.compiled.jax_functions import check_jax

    check_jax("the type 'gymnax'", 'gymnax')
    import gymnax

    return gymnax


def make(
    env_id: str, /, max_episode_steps: int | None = None, render_mode: str | None = None, **kwargs: Any
) -> gymnasium.Env:
    """Make one environment; ``kwargs`` are gymnax's parameters of it."""
    from zoo.common.envs.compiled.env import CompiledEnv

    return CompiledEnv(functions_of(env_id, max_episode_steps, kwargs), None, render_mode)


def make_vector(
    env_id: str, nenv: int, max_episode_steps: int | None = None, render_mode: str | None = None, **kwargs: Any
) -> VectorEnv:
    """Make ``nenv`` copies."""
    from zoo.common.envs.compiled.env import CompiledVectorEnv

    return CompiledVectorEnv(functions_of(env_id, max_episode_steps, kwargs), nenv, None, render_mode)


def functions_of(env_id: str, limit: int | None, kwargs: dict[str, Any]) -> Gymnax:
    """Return an environment's functions, the same object for equal arguments."""
    given = kwargs if limit is None else {**kwargs, 'max_steps_in_episode': limit}
    return _made(env_id, tuple(sorted(given.items())))


@functools.cache
def _made(env_id: str, kwargs: tuple[tuple[str, Any], ...]) -> Gymnax:
    return Gymnax(env_id, dict(kwargs))


class Gymnax:
    """An environment of gymnax as pure functions.

    Args:
        env_id: its name.
        params: what differs from its default parameters.
    """

    backend = 'jax'

    def __init__(self, env_id: str, params: dict[str, Any]) -> None:
        import jax

        self.name = env_id
        try:
            self._env, defaults = _package().make(env_id)
        except OSError as error:  # it downloads its data
            raise Failure(f'{env_id} of gymnax cannot be made: {error}.') from error
        known = sorted(vars(defaults))
        for key in params:
            if key not in known:
                raise InvalidType(f'{env_id!r} of gymnax does not take {key!r}: it takes {", ".join(known)}.')
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
        if dtype == bool:
            dtype = np.dtype(np.uint8)
        return Box(low.astype(dtype), high.astype(dtype), dtype=dtype.type)
    if isinstance(space, spaces.Dict):
        return Dict({key: to_gymnasium(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return Tuple([to_gymnasium(part) for part in space.spaces])
    raise InvalidType(f'gymnax has a space {space!r} that zoo does not know.')
