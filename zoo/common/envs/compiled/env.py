"""Compiled environments as Gymnasium knows them: one environment, and copies that step together."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from zoo.common import spaces
from zoo.common.envs.compiled.copies import Copies, CopiesState, Outcome
from zoo.common.envs.compiled.functions import Functions, name_of
from zoo.common.tools.compilation import XlaCall
from zoo.common.tools.errors import InvalidValue


class CompiledCopies:
    """Copies with their compiled functions for a caller in Python; ``copies`` are the pure functions."""

    def __init__(self, functions: Functions, num_envs: int, limit: int | None) -> None:
        self.copies = Copies(functions, num_envs, limit)
        self.begin = XlaCall(self.copies.begin, f'the beginning of {name_of(functions)}')
        self.step = XlaCall(self.copies.step, f'a step of {name_of(functions)}')
        self.advance = XlaCall(self.copies.advance, f'a step of {name_of(functions)}')


def steps_of(functions: Functions, num_envs: int, limit: int | None) -> CompiledCopies:
    """Return the copies of an environment, the same ones for equal arguments, so that nothing is compiled twice."""
    made: dict[Any, CompiledCopies] = vars(functions).setdefault('_zoo_copies', {})
    if (num_envs, limit) not in made:
        made[num_envs, limit] = CompiledCopies(functions, num_envs, limit)
    return made[num_envs, limit]


class Compiled:
    """What the two forms share.

    Attributes:
        functions: the environment as pure functions.
        steps: its copies.
        state: where the copies are; None before the first reset.
    """

    #: How training recognizes the form; a wrapper around it lacks this attribute.
    is_compiled = True

    functions: Functions
    steps: CompiledCopies
    state: CopiesState | None
    np_random: np.random.Generator
    spec: EnvSpec | None

    def _prepare(self, functions: Functions, num_envs: int, limit: int | None, render_mode: str | None) -> None:
        if render_mode not in (None, 'rgb_array'):
            raise InvalidValue(f"render_mode of a compiled environment is None or 'rgb_array', not {render_mode!r}.")
        if render_mode is not None and not hasattr(functions, 'render'):
            raise InvalidValue(f'{type(functions).__name__} has no render(state) that would make a picture.')
        self.functions, self.render_mode, self.state = functions, render_mode, None
        self.steps = steps_of(functions, num_envs, limit)
        self.spec = copy.copy(getattr(functions, 'spec', None))
        if isinstance(self.spec, EnvSpec):
            self.spec.max_episode_steps = self.steps.copies.limit

    def seeds(self, seed: int | list[int] | None, count: int) -> list[int]:
        """Return the seeds of the copies, from 0 to 2^31 - 1."""
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        found = seed if isinstance(seed, list | tuple) else range(seed, seed + count)
        return [int(value) % 2**31 for value in found]

    def begin(self, seeds: list[int]) -> None:
        """Begin an episode in every copy."""
        self.state = self.steps.begin(tf.constant(seeds, tf.int32))

    @property
    def observation(self) -> spaces.Flat:
        """The flat observations to act on next, ``[N, …]``."""
        assert self.state is not None  # an environment is reset before it is stepped
        return spaces.tree_map(np.array, self.state.obs)

    def pictures(self) -> list[np.ndarray]:
        """Return a picture of each copy."""
        if self.render_mode is None:
            raise InvalidValue("this environment shows nothing: build it with render_mode='rgb_array'.")
        assert self.state is not None
        inner = tf.nest.map_structure(lambda x: x.numpy(), self.state.inner)
        draw: Any = getattr(self.functions, 'render')  # noqa: B009
        return [
            np.asarray(draw(tf.nest.map_structure(lambda x, i=i: x[i], inner)))
            for i in range(self.steps.copies.num_envs)
        ]


class CompiledEnv(Compiled, gymnasium.Env):
    """One copy of a compiled environment."""

    def __init__(
        self, functions: Functions, max_episode_steps: int | None = None, render_mode: str | None = None
    ) -> None:
        self._prepare(functions, 1, max_episode_steps, render_mode)
        self.metadata = {'render_modes': ['rgb_array'] if hasattr(functions, 'render') else []}
        self.observation_space, self.action_space = functions.observation_space, functions.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        _refuse(options)
        self.begin(self.seeds(seed, 1))
        return self._first(self.observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        space = self.action_space
        batch = spaces.tree_map(lambda x: np.asarray(x)[None], spaces.flatten(space, action))
        self.state, outcome = self.steps.advance(self.state, _fitting(space, batch))
        obs = self._first(spaces.tree_map(lambda x: x.numpy(), outcome.next_obs))
        reward, terminated, truncated = (x.numpy()[0] for x in outcome[1:])
        return obs, float(reward), bool(terminated), bool(truncated), {}

    def _first(self, batch: spaces.Flat) -> Any:
        space = self.observation_space
        return spaces.unflatten(space, spaces.tree_map(lambda x: x[0], batch))

    def render(self) -> Any:
        return self.pictures()[0]


class CompiledVectorEnv(Compiled, VectorEnv):
    """``N`` copies of a compiled environment. A copy begins its next episode in the step that ends one."""

    def __init__(
        self,
        functions: Functions,
        num_envs: int,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self._prepare(functions, num_envs, max_episode_steps, render_mode)
        self.num_envs = num_envs
        self.metadata = {
            'autoreset_mode': AutoresetMode.SAME_STEP,
            'render_modes': ['rgb_array'] if hasattr(functions, 'render') else [],
        }
        self.single_observation_space = functions.observation_space
        self.single_action_space = functions.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed if not isinstance(seed, list | tuple) else seed[0])
        _refuse(options)
        self.begin(self.seeds(seed, self.num_envs))
        return self._shaped(self.observation), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        space = self.single_action_space
        taken = _fitting(space, spaces.flatten(space, actions))
        self.state, outcome = self.steps.step(self.state, taken)
        reward, terminated, truncated = (x.numpy() for x in outcome[1:])
        info = self._ends(outcome, terminated | truncated)
        return self._shaped(self.observation), reward.astype(np.float64), terminated, truncated, info

    def _shaped(self, batch: spaces.Flat) -> Any:
        return spaces.unflatten(self.single_observation_space, batch)

    def _ends(self, outcome: Outcome, ended: np.ndarray) -> dict[str, Any]:
        if not ended.any():
            return {}
        final, last = np.full(self.num_envs, None, object), spaces.tree_map(np.array, outcome.next_obs)
        for i in np.flatnonzero(ended):
            final[i] = self._shaped(spaces.tree_map(lambda x, i=i: x[i], last))
        return {'final_obs': final, '_final_obs': ended, 'final_info': {}, '_final_info': ended}

    def render(self) -> tuple[np.ndarray, ...]:
        return tuple(self.pictures())


def _refuse(options: dict[str, Any] | None) -> None:
    if options:
        raise InvalidValue(f'a compiled environment takes no options for reset, but got {options!r}: leave them out.')


def _fitting(space: Any, batch: spaces.Flat) -> spaces.Flat:
    """Return actions as tensors in the dtypes of their space."""
    leaves, found = spaces.leaves(space), {}
    for path, x in spaces.tree_items(batch):
        given, dtype = np.asarray(x), leaves[path].dtype
        if given.dtype.kind == 'f' and dtype.kind != 'f':
            raise InvalidValue(f'the action {x!r} has {given.dtype} values: give {dtype}.')
        found[path] = tf.constant(given, dtype)
    return spaces.from_items(space, found)
