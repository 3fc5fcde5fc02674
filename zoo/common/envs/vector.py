"""Copies of an environment that step together, in this process or in one process each."""

from __future__ import annotations

import contextlib
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from zoo.common.envs.wrappers import KeepFinalObservation, prepare


def make_vector(
    make: Callable[[], Any],
    name: str,
    seeds: list[int | None],
    reward_shaping: Callable[[float], float] | None,
    processes: bool,
) -> VectorEnv:
    """One copy per seed, reset in the step in which its episode ends (``SAME_STEP``).

    The observations that ``step`` returns are the caller's to keep: a copy of them costs 2% of a step of eight
    CartPoles. (``final_obs`` never shares memory with them.)

    Args:
        make: the factory of one copy.
        name: what error messages call the environment.
        seeds: the seed of each copy.
        reward_shaping: a function of one reward, applied to every copy, or None.
        processes: whether each copy gets a process of its own.

    Raises:
        TypeError: with ``processes``, something in ``make`` or ``reward_shaping`` cannot be sent to another process.
        RuntimeError: a process ended while it was making its copy.
        ValueError: the first observation of a copy lies outside its space.
    """
    factories = [partial(make_copy, make, name, seed, reward_shaping) for seed in seeds]
    if not processes:
        env = SyncVectorEnv(factories, autoreset_mode=AutoresetMode.SAME_STEP)
        env.spec = env.envs[0].spec
        return env
    specs: list[EnvSpec | None] = []
    factories = [partial(_make_reporting, factory, name, i, specs) for i, factory in enumerate(factories)]
    try:
        cloudpickle.dumps(factories)
    except Exception as error:
        raise TypeError(
            f"vectorized='async' sends {name} to other processes, but it cannot be pickled ({error}): give a class or "
            "function that opens what it needs itself, or use vectorized='sync'."
        ) from error
    try:
        with _without_main():
            # A forked process would inherit TensorFlow's locks without the threads that hold them.
            env = AsyncVectorEnv(factories, context='spawn', autoreset_mode=AutoresetMode.SAME_STEP)
    except (EOFError, ConnectionError) as error:
        raise RuntimeError(
            f"a process of vectorized='async' ended while it was making {name}; its error is printed above, and "
            "vectorized='sync' raises it here."
        ) from error
    env.spec = specs[0]  # of the copy that Gymnasium makes in this process to look at its spaces
    return env


def make_copy(
    make: Callable[[], Any], name: str, seed: int | None, reward_shaping: Callable[[float], float] | None
) -> gymnasium.Env:
    """One copy of a vector environment, seeded."""
    env = make()
    if isinstance(env, VectorEnv):
        raise TypeError(f'{name} makes a VectorEnv, which cannot be copied: make a gymnasium.Env, or say nenv=1.')
    env = prepare(env, name, seed, reward_shaping)
    # Gymnasium's own environments return a new array from every step, so they are spared the extra call.
    return env if type(env.unwrapped).__module__.startswith('gymnasium.envs.') else KeepFinalObservation(env)


class ReportErrors(gymnasium.Wrapper):
    """Raises the exceptions of a copy as a ``RuntimeError`` that names the copy and has the traceback as text.

    The original may be of a class that cannot be pickled here, and Gymnasium would then wait for it forever.
    """

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        super().__init__(env)
        self._name = name

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        try:
            return self.env.reset(seed=seed, options=options)
        except Exception as error:
            raise RuntimeError(f'{self._name} failed in reset:\n{traceback.format_exc()}') from error

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        try:
            return self.env.step(action)
        except Exception as error:
            raise RuntimeError(f'{self._name} failed in step:\n{traceback.format_exc()}') from error


def _make_reporting(
    factory: Callable[[], gymnasium.Env], name: str, index: int, specs: list[EnvSpec | None]
) -> gymnasium.Env:
    env = factory()
    specs.append(env.spec)
    return ReportErrors(env, f'copy {index} of {name}')


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Keep new processes from importing the running script again.

    They need nothing of it, as what the factories take from it is pickled by value; and a script without an
    ``if __name__ == '__main__'`` guard would build its environments once more in every one of them.
    """
    main = sys.modules['__main__']
    sys.modules['__main__'] = types.ModuleType('__main__')
    try:
        yield
    finally:
        sys.modules['__main__'] = main
