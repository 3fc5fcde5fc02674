"""Environments of Jumanji (Bonnet et al. 2024), which are written in JAX: puzzles, packing, routing and others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space

from zoo.common.adaptors.observation import ACTION_MASK, LARGEST_ONE_HOT
from zoo.common.envs.kinds import suites
from zoo.common.tools.errors import InvalidValue


def _names() -> Iterable[str]:
    with suites.quiet():
        import jumanji
    return jumanji.registered_environments()


class Jumanji:
    """An environment of Jumanji as pure functions.

    Actions of several numbers, whose mask has an entry for each *combination* of them, become one number: the index
    of the combination, so that a policy never leaves the mask. The agents of a team act as one, with the sum of their
    rewards.

    Args:
        env_id: its name.
        limit: the number of steps after which an episode is truncated.
        kwargs: arguments of its class.
    """

    backend = 'jax'

    def __init__(self, env_id: str, limit: int | None, kwargs: dict[str, Any]) -> None:
        import jumanji
        from jumanji import registration

        cls = registration.load(registration._REGISTRY[env_id].entry_point)
        suites.check_known(env_id, 'jumanji', kwargs, suites.arguments_of(cls))
        self.name, self.max_episode_steps = env_id, limit
        self._env = jumanji.make(env_id, **kwargs)
        own = getattr(self._env, 'time_limit', None)
        if limit is not None and own is not None and limit > own:
            raise InvalidValue(
                f'{env_id!r} ends an episode after {own} steps itself: give time_limit={limit}, not max_episode_steps.'
            )
        self.observation_space = _observation_space(self._env.observation_spec)
        self.action_space = _action_space(self._env.action_spec)
        self._choices: tuple[int, ...] | None = None
        mask = getattr(self._env.observation_spec, ACTION_MASK, None)
        if mask is not None:
            if isinstance(self.action_space, MultiDiscrete) and mask.shape == tuple(self.action_space.nvec):
                self._choices = mask.shape
                self.action_space = Discrete(int(np.prod(mask.shape)))
            elif isinstance(self.action_space, MultiDiscrete) and mask.shape[:-1] == self.action_space.shape:
                # MultiCVRP's own has one choice too many.
                self.action_space = MultiDiscrete(np.full(mask.shape[0], mask.shape[-1]))
            cast(Dict, self.observation_space)[ACTION_MASK] = MultiBinary(int(np.prod(mask.shape)))

    def reset(self, seed: Any) -> tuple[Any, Any]:
        state, timestep = self._env.reset(seed)
        return state, self._observed(timestep.observation)

    def step(self, state: Any, action: Any, seed: Any) -> tuple[Any, Any, Any, Any, Any]:
        import jax.numpy as jnp

        if self._choices is not None:
            action = jnp.stack(jnp.unravel_index(action, self._choices), -1)
        spec = self._env.action_spec
        state, timestep = self._env.step(state, jnp.asarray(action, spec.dtype).reshape(spec.shape))
        # The mean discount of a team is 0 once all its agents have ended.
        ended, over = timestep.last(), timestep.discount.max() == 0
        reward = timestep.reward.astype(jnp.float32).sum()
        return state, self._observed(timestep.observation), reward, ended & over, ended & ~over

    def _observed(self, obs: Any) -> Any:
        found = _as_dict(obs, self.observation_space)
        if isinstance(found, dict) and ACTION_MASK in found:
            found[ACTION_MASK] = found[ACTION_MASK].reshape(-1)
        return found


def _as_dict(obs: Any, space: Space) -> Any:
    """Return an observation's parts in the dicts of its space."""
    if not isinstance(space, Dict):
        return obs
    return {key: _as_dict(getattr(obs, key), part) for key, part in space.spaces.items()}


def _observation_space(spec: Any) -> Space:
    """Return Gymnasium's space for a specification of Jumanji's observations."""
    from jumanji import specs

    if not isinstance(spec, specs.Array):
        parts = {key: x for key, x in vars(spec).items() if isinstance(x, specs.Spec)}
        return Dict({key: _observation_space(part) for key, part in parts.items()})
    if isinstance(spec, specs.DiscreteArray) and spec.num_values <= LARGEST_ONE_HOT:
        return Discrete(int(spec.num_values))
    dtype = np.dtype(spec.dtype)
    if dtype.kind == 'b':
        return MultiBinary(spec.shape)
    low: Any
    high: Any
    low, high = (-np.inf, np.inf) if dtype.kind == 'f' else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if isinstance(spec, specs.BoundedArray):  # a DiscreteArray too: a large one counts steps
        low, high = (np.broadcast_to(np.asarray(x), spec.shape).astype(dtype) for x in (spec.minimum, spec.maximum))
    return Box(low, high, spec.shape, dtype.type)


def _action_space(spec: Any) -> Space:
    """Return Gymnasium's space for a specification of Jumanji's actions."""
    from jumanji import specs

    if isinstance(spec, specs.DiscreteArray):
        return Discrete(int(spec.num_values))
    if isinstance(spec, specs.MultiDiscreteArray):
        return MultiDiscrete(np.asarray(spec.num_values).ravel())
    low, high = (np.broadcast_to(np.asarray(x), spec.shape) for x in (spec.minimum, spec.maximum))
    if np.dtype(spec.dtype).kind in 'iu':  # the vehicles of MultiCVRP choose the next node
        return MultiDiscrete((high - low + 1).ravel().astype(np.int64), start=low.ravel().astype(np.int64))
    return Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)


_SUITE = suites.Suite('jumanji', 'jumanji', _names, Jumanji)
COMPILED = True
find, ids, make, make_vector = _SUITE.find, _SUITE.ids, _SUITE.make, _SUITE.make_vector
