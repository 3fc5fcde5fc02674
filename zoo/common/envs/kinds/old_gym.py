"""Environments of the old ``gym`` interface, used as Gymnasium environments.

An environment is recognized by its attributes, so ``gym`` itself is not needed. What differed:

=================  ==========================================  ======================================================
                   before 0.26                                 Gymnasium
=================  ==========================================  ======================================================
``step``           ``observation, reward, done, info``         ``observation, reward, terminated, truncated, info``
time limit         ``info['TimeLimit.truncated']``             ``truncated``
``reset``          ``observation``                             ``observation, info``
seed               ``env.seed(seed)``                          ``reset(seed=seed)``
spaces             of the package ``gym``                      of the package ``gymnasium``
=================  ==========================================  ======================================================

``gym`` 0.26 has Gymnasium's ``step`` and ``reset`` with its own spaces; it is accepted, too.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from zoo.common.envs import answers
from zoo.common.tools.errors import InvalidType, InvalidValue


def is_old_gym(env: Any) -> bool:
    """Whether an object that is no ``gymnasium.Env`` has the attributes of a ``gym`` environment."""
    return (
        not isinstance(env, (type, gymnasium.Env, gymnasium.vector.VectorEnv))
        and all(hasattr(env, name) for name in ('observation_space', 'action_space'))
        and all(callable(getattr(env, name, None)) for name in ('reset', 'step'))
    )


class OldGymEnv(gymnasium.Env):
    """An environment of the old ``gym`` interface as a ``gymnasium.Env``.

    ``done`` becomes ``truncated`` where ``info['TimeLimit.truncated']`` is true, else ``terminated``. Observations are
    cast to the dtype of their space (many old environments return float64 for a float32 ``Box``), rewards to float.
    Other attributes are read from the environment itself, which is also ``unwrapped``. An environment that takes no
    seed warns at the first one.

    Raises:
        TypeError: one of its spaces has no equal in Gymnasium; (by ``step``) a reward that is not one number, a flag
            that is neither true nor false, or an info that is no dictionary.
        ValueError: (by ``step``) a result that is no step.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space = convert_space(env.observation_space)
        self.action_space = convert_space(env.action_space)
        metadata = dict(getattr(env, 'metadata', None) or {})
        self.metadata = {'render_modes': metadata.pop('render.modes', []), **metadata}
        self.render_mode = getattr(env, 'render_mode', None)
        self._warned = False
        self._takes = {name: _takes(env, name) for name in ('seed', 'options')}

    @property
    def unwrapped(self) -> Any:
        return getattr(self.env, 'unwrapped', self.env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        kwargs: dict[str, Any] = {}
        if seed is not None:
            if self._takes['seed']:
                kwargs['seed'] = seed
            elif callable(getattr(self.env, 'seed', None)):
                self.env.seed(seed)
            elif not self._warned:
                self._warned = True
                warnings.warn(
                    f'{self} takes no seed, so its episodes cannot be repeated: give it a method seed(seed).',
                    stacklevel=2,
                )
        if options:
            if not self._takes['options']:
                raise InvalidType(f'the reset() of {self} takes no options, but got {options!r}.')
            kwargs['options'] = options
        result = self.env.reset(**kwargs)
        observation, info = result if self._has_info(result) else (result, {})
        return _cast(self.observation_space, observation), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        if not isinstance(result, (tuple, list)):
            raise answers.not_a_step(result, self.__str__)
        if len(result) == 5:
            observation, reward, terminated, truncated, info = answers.step(result, self.__str__)
            terminated = answers.flag('terminated', terminated, self.__str__)
            truncated = answers.flag('truncated', truncated, self.__str__)
        elif len(result) == 4:
            observation, reward, done, info = result
            if not isinstance(info, dict):
                raise answers.not_an_info(info, self.__str__)
            done, said = answers.flag('done', done, self.__str__), info.get('TimeLimit.truncated')
            truncated = done and said is not None and answers.flag('TimeLimit.truncated', said, self.__str__)
            terminated = done and not truncated
        else:
            raise InvalidValue(f'{self}: step() returned {len(result)} values, not {answers.STEP}.')
        reward = float(answers.number(reward, self.__str__))
        return _cast(self.observation_space, observation), reward, bool(terminated), bool(truncated), info

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        if hasattr(self.env, 'close'):
            self.env.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith('_') or name == 'env':  # a copy is being unpickled, and has no `env` yet
            raise AttributeError(name)
        return getattr(self.env, name)

    def __str__(self) -> str:
        return f'<OldGymEnv<{type(self.unwrapped).__name__}>>'

    def _has_info(self, result: Any) -> bool:
        """Whether ``reset`` returned observation and info, which gym 0.22 allows and gym 0.26 requires."""
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            return False
        space = self.observation_space  # the observation itself may be such a pair
        return not (isinstance(space, Tuple) and len(space.spaces) == 2 and isinstance(space.spaces[1], Dict))


def convert_space(space: Any) -> Space:
    """Return Gymnasium's equal of a space of ``gym``, which is recognized by its attributes.

    Raises:
        TypeError: another space; bounds of a ``Box`` that do not fit its shape.
    """
    if isinstance(space, Space):
        return space
    parts: Any = getattr(space, 'spaces', None)
    if hasattr(parts, 'items'):
        return Dict({key: convert_space(part) for key, part in parts.items()})
    if isinstance(parts, (tuple, list)):
        return Tuple([convert_space(part) for part in parts])
    if hasattr(space, 'nvec'):
        return MultiDiscrete(np.array(space.nvec))
    if hasattr(space, 'low') and hasattr(space, 'high'):
        return _convert_box(space)
    if hasattr(space, 'n'):
        if getattr(space, 'shape', ()) in ((), None):
            return Discrete(int(space.n), start=int(getattr(space, 'start', 0)))
        return MultiBinary(space.n)
    raise InvalidType(
        f"{space!r} ({type(space).__module__}.{type(space).__name__}) has no equal among Gymnasium's spaces: use Box, "
        'Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them.'
    )


def _convert_box(space: Any) -> Box:
    dtype = np.dtype(getattr(space, 'dtype', None) or np.float32)
    low, high = (np.asarray(bound, dtype) for bound in (space.low, space.high))
    shape = getattr(space, 'shape', None)
    shape = np.broadcast_shapes(low.shape, high.shape) if shape is None else tuple(shape)
    try:
        low, high = (np.broadcast_to(bound, shape) for bound in (low, high))
    except ValueError as error:
        raise InvalidType(
            f'{space!r} has the shape {shape}, but bounds of the shapes {low.shape} and {high.shape}: give bounds of '
            'its shape, or a number for all entries.'
        ) from error
    return Box(low, high, shape, dtype.type)


def _cast(space: Space, x: Any) -> Any:
    """``x`` in the dtype of its space; what does not fit stays: the check of observations reports it."""
    if isinstance(space, Dict) and isinstance(x, dict):
        return {key: _cast(space.spaces[key], value) if key in space.spaces else value for key, value in x.items()}
    if isinstance(space, Tuple) and isinstance(x, (tuple, list)) and len(x) == len(space.spaces):
        return tuple(_cast(part, value) for part, value in zip(space.spaces, x, strict=True))
    if isinstance(space, (Box, MultiDiscrete, MultiBinary)):
        array = np.asarray(x)
        if array.dtype == space.dtype or not np.can_cast(array.dtype, space.dtype, 'same_kind'):
            return array
        cast = array.astype(space.dtype)
        return array if cast.dtype.kind in 'iu' and (cast != array).any() else cast  # an integer type may be too small
    return x


def _takes(env: Any, name: str) -> bool:
    """Whether ``reset`` of an environment, through all its wrappers, takes an argument of this name."""
    parameters = inspect.signature(env.reset).parameters
    passes = name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return passes and name in inspect.signature(getattr(env, 'unwrapped', env).reset).parameters
