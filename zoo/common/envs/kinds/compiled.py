"""Environments of pure functions, given as an object or by the name of a task that zoo has written in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from zoo.common.envs.kinds.modules import maker_of
from zoo.common.tools.checks import takes
from zoo.common.tools.errors import InvalidType, InvalidValue, unknown

#: Its environments are compiled together with the policy, with ``vectorized='compiled'`` or without.
COMPILED = True


def find(env_id: Any, env_type: str) -> Callable[..., gymnasium.Env]:
    """Return the factory :func:`make` of an environment of pure functions.

    Args:
        env_id: an object with the functions, a class or function that makes one, ``'module:Class'``, or a name from
            :func:`ids`.
        env_type: ``'compiled'``.

    Raises:
        ValueError: an unknown name.
        TypeError: what is given is no environment of pure functions.
    """
    if isinstance(env_id, str):
        if env_id not in ids() and maker_of(env_id) is None:
            raise InvalidValue(unknown(f'{env_type} environment', env_id, ids()))
    elif not (is_functions(env_id) or callable(env_id)):
        raise InvalidType(
            f'{env_id!r} is no environment of pure functions: give an object with observation_space, action_space, '
            'reset(seed) and step(state, action, seed), or a class of it.'
        )
    return partial(make, env_id)


def ids() -> list[str]:
    """Return the names of the tasks that zoo has written in TensorFlow, sorted."""
    from zoo.common.envs.compiled.classic_control import TASKS

    return sorted(TASKS)


def is_functions(env_id: Any) -> bool:
    """Return whether this is an object with the functions of an environment."""
    if isinstance(env_id, type | gymnasium.Env | VectorEnv):
        return False
    own = ('observation_space', 'action_space', 'reset', 'step')
    # The step of an environment of the old gym interface takes the action alone.
    return all(hasattr(env_id, name) for name in own) and takes(env_id.step, 3)


def makes_functions(env_id: Any) -> bool:
    """Return whether this is a class of such objects; its ``step(self, state, action, seed)`` says so."""
    if not isinstance(env_id, type) or issubclass(env_id, gymnasium.Env | VectorEnv):
        return False
    return all(hasattr(env_id, name) for name in ('reset', 'step')) and takes(env_id.step, 4)  # type: ignore[attr-defined]


def make(
    env_id: Any, /, max_episode_steps: int | None = None, render_mode: str | None = None, **kwargs: Any
) -> gymnasium.Env:
    """Make one environment; ``kwargs`` go to the class, the function or the task."""
    from zoo.common.envs.compiled.env import CompiledEnv

    return CompiledEnv(functions_of(env_id, kwargs), max_episode_steps, render_mode)


def make_vector(
    env_id: Any, nenv: int, max_episode_steps: int | None = None, render_mode: str | None = None, **kwargs: Any
) -> VectorEnv:
    """Make ``nenv`` copies."""
    from zoo.common.envs.compiled.env import CompiledVectorEnv

    return CompiledVectorEnv(functions_of(env_id, kwargs), nenv, max_episode_steps, render_mode)


def functions_of(env_id: Any, kwargs: dict[str, Any]) -> Any:
    """Return the functions of an environment, with their attributes as they are now.

    Raises:
        TypeError: they lack something, or take no such arguments.
        ValueError: a space that no network reads, an unknown name, or functions that are not pure.
    """
    from zoo.common.envs.compiled import classic_control
    from zoo.common.envs.compiled.freezing import frozen
    from zoo.common.envs.compiled.functions import check, check_mapped, check_pure

    if isinstance(env_id, str):
        if (maker := maker_of(env_id)) is None:
            return classic_control.task(env_id, **kwargs)
        env_id = maker
    if is_functions(env_id):
        if kwargs:
            raise InvalidType(
                f'the arguments {", ".join(sorted(kwargs))} are for a class, but an object was given: leave them out, '
                'or give the class.'
            )
        made = env_id
    else:
        try:
            made = env_id(**kwargs)
        except TypeError as error:
            raise InvalidType(f'{getattr(env_id, "__name__", env_id)!r} cannot be made: {error}.') from error
    check(made)
    made = frozen(made)
    check_pure(made)
    check_mapped(made)
    return made
