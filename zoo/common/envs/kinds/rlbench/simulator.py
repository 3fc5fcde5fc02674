"""CoppeliaSim in this process: one at a time, its display, its errors."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

from zoo.common.envs.kinds.rlbench.package import load_module
from zoo.common.tools.errors import Failure


class Place:
    """The one place for a simulator in a process. Each environment claims it before it launches."""

    def __init__(self) -> None:
        self._holder: Callable[[], gymnasium.Env | None] = lambda: None
        self._stuck: str | None = None  # the environment whose simulator did not shut down

    def claim(self, env: gymnasium.Env) -> None:
        """Note that ``env`` has the simulator; a RuntimeError if another has it, or had one that did not shut down."""
        if self._stuck is not None:
            raise Failure(
                f'the simulator of {self._stuck} did not shut down and a process can run only one: start a new process.'
            )
        if self._holder() is not None:
            gc.collect()  # it may be one that nobody can close any more
        holder = self._holder()
        if holder is not None:
            raise Failure(
                f'{_name(holder)} has the one RLBench simulator that a process can run: close that environment first; '
                f"for several copies build_env({_name(env)!r}, 'rlbench', nenv=4) gives each a process of its own."
            )
        self._holder = weakref.ref(env)

    def release(self, env: gymnasium.Env) -> None:
        """Give the place back, if this environment has it."""
        if self._holder() is env:
            self._holder = lambda: None

    def shut_down(self, simulator: Any, pid: int, name: str, unlaunched: type[Exception]) -> None:
        """Shut a simulator, RLBench's ``Environment``, down; ``unlaunched`` is the error of one that never came up.

        Raises:
            RuntimeError: it did not shut down, so that this process can launch no other one.
        """
        if os.getpid() != pid:  # a fork of the process that launched it, with a mere picture of it
            return
        try:
            simulator.shutdown()
        except unlaunched:
            pass
        except Exception as error:
            self._stuck = name
            raise Failure(
                f'{name}: the simulator did not shut down ({str(error).rstrip(".")}): build other environments in a '
                'new process.'
            ) from error


#: The place of this process.
PLACE: Place = Place()


def _name(env: gymnasium.Env) -> str:
    assert env.spec is not None  # every environment of this type has one
    return env.spec.id


def guard_planner(arm: Any) -> None:
    """Mend two faults of PyRep's planning, for actions and for the placement of tasks, which tries their waypoints.

    A planner that fails in the simulator raises the error of a failed call, not the error of a planner that finds
    nothing. And a path's step divides by the distance of neighboring points: if the gripper stays where it is, all
    points are equal, and the joint targets are 0 / 0.
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
    """Whether PyRep raised ``error`` because the simulator answered that a call failed."""
    return 'V-REP side' in str(error)


def placement_errors() -> tuple[type[Exception], ...]:
    """Return what ``reset`` may raise where the task does not fit or its waypoints cannot be reached."""
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
    """Refuse, by a RuntimeError, to launch without an X server: Qt would abort the process."""
    if sys.platform == 'linux' and not (os.environ.get('DISPLAY') or os.environ.get('QT_QPA_PLATFORM')):
        raise Failure(
            'CoppeliaSim needs an X server even without a window, but DISPLAY is not set: start the program with one, '
            'for example as `xvfb-run python train.py`.'
        )
