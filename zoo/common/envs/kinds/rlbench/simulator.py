"""CoppeliaSim in this process: one at a time, its random streams, its errors."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from zoo.common.envs.kinds.rlbench.package import load_module

#: The environment whose simulator runs in this process.
_holder: weakref.ref[gymnasium.Env] | None = None
#: The environment whose simulator did not shut down, after which no other one can be launched in this process.
_stuck: str | None = None


def new_streams(generator: np.random.Generator) -> tuple[Any, Any]:
    """States for the global generators of NumPy and of Python."""
    seeds = generator.integers(2**32, size=2)
    return np.random.RandomState(int(seeds[0])).get_state(), random.Random(int(seeds[1])).getstate()


def claim(env: gymnasium.Env) -> None:
    """Note that ``env`` has this process's simulator.

    Raises:
        RuntimeError: another has, or had one that did not shut down.
    """
    global _holder
    if _stuck is not None:
        raise RuntimeError(
            f'the simulator of {_stuck} did not shut down and a process can run only one: start a new process.'
        )
    if _holder is not None and _holder() is not None:
        gc.collect()  # it may be one that nobody can close any more
    holder = None if _holder is None else _holder()
    if holder is not None:
        raise RuntimeError(
            f'{_name(holder)} has the one RLBench simulator that a process can run: close that environment first; for '
            f"several copies build_env({_name(env)!r}, 'rlbench', nenv=4) gives each a process of its own."
        )
    _holder = weakref.ref(env)


def _name(env: gymnasium.Env) -> str:
    assert env.spec is not None  # every environment of this type has one
    return env.spec.id


def release(env: gymnasium.Env) -> None:
    """Give the simulator of this process back, if this environment holds it."""
    global _holder
    if _holder is not None and _holder() is env:
        _holder = None


def shut_down(simulator: Any, pid: int, name: str, unlaunched: type[Exception]) -> None:
    global _stuck
    if os.getpid() != pid:  # a forked process has a picture of the simulator, not the simulator
        return
    try:
        simulator.shutdown()
    except unlaunched:
        pass
    except Exception as error:
        _stuck = name
        raise RuntimeError(
            f'{name}: the simulator did not shut down ({str(error).rstrip(".")}): build other environments in a new '
            'process.'
        ) from error


def guard_planner(arm: Any) -> None:
    """Mend two faults of PyRep's planning, for the actions and for the placement of tasks, which tries its waypoints.

    A planner that fails in the simulator is an error of the call there, unlike one that finds nothing. And a path's
    step divides by the distance of neighbouring points, so that points which are equal, as all are when the gripper
    stays where it is, send joint targets of 0 / 0.
    """
    errors = load_module('errors', 'pyrep')
    plan, solve = arm.get_path, arm.solve_ik_via_jacobian

    def get_path(*args: Any, **kwargs: Any) -> Any:
        with _reported_as(errors.ConfigurationPathError):
            path = plan(*args, **kwargs)
        return path[np.diff(path._get_path_point_lengths(), prepend=-1.0) > 0.0]

    def solve_ik_via_jacobian(*args: Any, **kwargs: Any) -> Any:
        with _reported_as(errors.IKError):
            return solve(*args, **kwargs)

    arm.get_path, arm.solve_ik_via_jacobian = get_path, solve_ik_via_jacobian


@contextlib.contextmanager
def _reported_as(kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not is_of_simulator(error):
            raise
        raise kind(str(error)) from error


def is_of_simulator(error: Exception) -> bool:
    """Whether ``error`` is what PyRep raises for a call to which the simulator answers that it failed."""
    return 'V-REP side' in str(error)


def placement_errors() -> tuple[type[Exception], ...]:
    """What ``reset`` may raise where the task does not fit or its waypoints cannot be reached."""
    rlbench, pyrep = load_module('backend.exceptions'), load_module('errors', 'pyrep')
    return (
        rlbench.TaskEnvironmentError,
        rlbench.BoundaryError,
        rlbench.WaypointError,
        rlbench.NoWaypointsError,
        rlbench.InvalidActionError,
        pyrep.ConfigurationError,
        pyrep.ConfigurationPathError,
        pyrep.IKError,
    )


def check_display() -> None:
    """Say what is missing where Qt would abort the process.

    Raises:
        RuntimeError: there is no X server.
    """
    if sys.platform == 'linux' and not (os.environ.get('DISPLAY') or os.environ.get('QT_QPA_PLATFORM')):
        raise RuntimeError(
            'CoppeliaSim needs an X server even without a window, but DISPLAY is not set: start the program with one, '
            'for example as `xvfb-run python train.py`.'
        )
