"""What the libraries of environments in JAX share: names, arguments, and the same functions for equal arguments."""

from __future__ import annotations

import contextlib
import inspect
import io
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Space
from gymnasium.vector import VectorEnv

from zoo.common.tools.errors import Failure, InvalidType, InvalidValue, ZooError, unknown

#: Functions of environments by type, name, time limit and arguments: equal ones share what is compiled.
_MADE: dict[Any, Any] = {}


@dataclass(frozen=True)
class Suite:
    """The environments of a library.

    Args:
        env_type: the type of environment.
        package: the module that has to be installed.
        names: returns all names.
        functions: returns the functions of an environment for its name, ``max_episode_steps`` and its arguments.
    """

    env_type: str
    package: str
    names: Callable[[], Iterable[str]]
    functions: Callable[[str, int | None, dict[str, Any]], Any]

    def find(self, env_id: Any, env_type: str) -> Callable[..., gymnasium.Env]:
        """Return the factory :meth:`make` of an environment.

        Raises:
            ImportError: the package is not installed.
            ValueError: an unknown name.
            TypeError: what is given is no name.
        """
        known = self.ids()
        if not isinstance(env_id, str):
            raise InvalidType(
                f"a {env_type} environment is given by its name, such as '{known[0]}', not by {env_id!r}."
            )
        if env_id not in known:
            raise InvalidValue(unknown(f'{env_type} environment', env_id, known))
        return partial(self.make, env_id)

    def ids(self) -> list[str]:
        """Return the names of all environments, sorted."""
        from zoo.common.envs.compiled.jax_functions import check_jax

        check_jax(f'the type {self.env_type!r}', self.package)
        return sorted(self.names())

    def make(
        self, env_id: str, /, max_episode_steps: int | None = None, render_mode: str | None = None, **kwargs: Any
    ) -> gymnasium.Env:
        """Make one environment; ``kwargs`` are the library's own arguments of it."""
        from zoo.common.envs.compiled.env import CompiledEnv

        return CompiledEnv(self.functions_of(env_id, max_episode_steps, kwargs), None, render_mode)

    def make_vector(
        self,
        env_id: str,
        nenv: int,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        **kwargs: Any,
    ) -> VectorEnv:
        """Make ``nenv`` copies."""
        from zoo.common.envs.compiled.env import CompiledVectorEnv

        return CompiledVectorEnv(self.functions_of(env_id, max_episode_steps, kwargs), nenv, None, render_mode)

    def functions_of(self, env_id: str, limit: int | None, kwargs: dict[str, Any]) -> Any:
        """Return an environment's functions, the same object for equal arguments that can be hashed."""
        # 1, 1.0 and True are equal, but an environment may tell them apart.
        key = (self.env_type, env_id, limit, *((name, type(x), x) for name, x in sorted(kwargs.items())))
        try:
            found = _MADE.get(key)
        except TypeError:  # an array, a dict
            return self._build(env_id, limit, kwargs)
        if found is None:
            found = _MADE[key] = self._build(env_id, limit, kwargs)
        return found

    def _build(self, env_id: str, limit: int | None, kwargs: dict[str, Any]) -> Any:
        try:
            with quiet():
                return self.functions(env_id, limit, kwargs)
        except ZooError:
            raise
        except OSError as error:  # it downloads its data
            raise Failure(f'{env_id} of {self.env_type} cannot be made: {_first_line(error)}.') from error
        except Exception as error:
            given = ', '.join(f'{name}={x!r}' for name, x in kwargs.items())
            raise InvalidValue(
                f'{env_id} of {self.env_type} cannot be made{" with " + given if given else ""} '
                f'({type(error).__name__}: {_first_line(error)}).'
            ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition('\n')[0].rstrip('.')


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep back what the libraries print while they are imported, such as what they could use as well."""
    nowhere = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        warnings.simplefilter('ignore')
        yield


def check_known(env_id: str, env_type: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse arguments that an environment does not take, with a TypeError that lists what it takes."""
    takes = sorted(known)
    for key in given:
        if key not in takes:
            listed = f'it takes {", ".join(takes)}' if takes else 'it takes no arguments'
            raise InvalidType(f'{env_id!r} of {env_type} does not take {key!r}: {listed}.')


def arguments_of(made_by: Callable[..., Any]) -> list[str]:
    """Return the names of a class' arguments. Where it hands arguments on, its bases' names are included."""
    found: list[str] = []
    for cls in getattr(made_by, '__mro__', ()):
        if '__init__' not in vars(cls):
            continue
        parameters = inspect.signature(cls.__init__).parameters.values()
        found += [x.name for x in parameters if x.kind in (x.POSITIONAL_OR_KEYWORD, x.KEYWORD_ONLY)]
        hands_on = any(x.kind == x.VAR_KEYWORD for x in parameters) and 'super' in cls.__init__.__code__.co_names
        if not hands_on:
            break
    return [name for name in dict.fromkeys(found) if name != 'self']


class Physics:
    """Functions of a simulation whose ``reset(key)`` and ``step(state, action)`` return a state with all else in it.

    Brax and MuJoCo Playground have this form. Actions are in [-1, 1], and observations are unbounded.

    Args:
        name: what to call it.
        env: the library's environment.
        episode_length: its length in the library's steps.
        action_repeat: how many of the library's steps a step takes with the same action; their rewards are added.
        limit: the number of steps after which an episode is truncated; None: as ``episode_length`` says.
        shown: returns what is to be seen of an observation.
    """

    backend = 'jax'

    def __init__(
        self,
        name: str,
        env: Any,
        episode_length: int,
        action_repeat: int,
        limit: int | None,
        shown: Callable[[Any], Any] = lambda obs: obs,
    ) -> None:
        import jax

        self.name, self._env, self._repeat, self._shown = name, env, action_repeat, shown
        self.max_episode_steps = math.ceil(episode_length / action_repeat) if limit is None else limit
        first = jax.eval_shape(env.reset, jax.ShapeDtypeStruct((2,), 'uint32'))
        self.observation_space = unbounded(shown(first.obs))
        self.action_space = Box(-1.0, 1.0, (env.action_size,), np.float32)

    def reset(self, seed: Any) -> tuple[Any, Any]:
        state = self._env.reset(seed)
        return state, self._shown(state.obs)

    def step(self, state: Any, action: Any, seed: Any) -> tuple[Any, Any, Any, Any, Any]:
        import jax

        if self._repeat == 1:
            state = self._env.step(state, action)
            reward = state.reward
        else:

            def once(state: Any, _: Any) -> tuple[Any, Any]:
                after = self._env.step(state, action)
                return after, after.reward

            state, rewards = jax.lax.scan(once, state, (), self._repeat)
            reward = rewards.sum(0)
        return state, self._shown(state.obs), reward, state.done > 0.5, jax.numpy.zeros((), bool)


def unbounded(like: Any) -> Space:
    """Return the space of arrays without bounds, or of dicts of them, for the shapes and dtypes of ``like``."""
    if isinstance(like, dict):
        return Dict({key: unbounded(part) for key, part in like.items()})
    return Box(-np.inf, np.inf, like.shape, np.dtype(like.dtype).type)
