"""RLBench: robot tasks in the simulator CoppeliaSim."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

from zoo.common.envs.kinds.rlbench.env import RLBenchEnv
from zoo.common.envs.kinds.rlbench.tasks import find_task, ids
from zoo.common.tools.errors import InvalidType, unknown

__all__ = ['ONE_PER_PROCESS', 'find', 'ids']

#: A process can run one simulator, so each copy needs a process of its own.
ONE_PER_PROCESS = True
#: An argument of ``rlbench`` -> the argument here.
RENAMED = {'observation_mode': 'state_type', 'obs_config': 'state_type', 'robot_configuration': 'robot_setup'}


def find(env_id: Any, env_type: str) -> Callable[..., gymnasium.Env]:
    """Return the factory of a task, named by its class or by its file: ``'ReachTarget'``, ``'reach_target'``.

    The factory takes the keyword arguments of :class:`RLBenchEnv` and starts the simulator.

    Raises:
        ValueError: an unknown name.
        TypeError: ``env_id`` is not a name.
        ImportError: RLBench, PyRep or CoppeliaSim is not installed.
    """
    if not isinstance(env_id, str):
        raise InvalidType(f"an {env_type} environment is given by its name, such as 'ReachTarget', not by {env_id!r}.")
    return partial(_make, find_task(env_id))


def _make(task: str, /, **kwargs: Any) -> gymnasium.Env:
    known = list(inspect.signature(RLBenchEnv).parameters)[1:]
    for name in kwargs:
        if name in RENAMED:
            raise InvalidType(
                f'unknown argument of an RLBench environment {name!r}: it is called {RENAMED[name]!r} here.'
            )
        if name not in known:
            raise InvalidType(unknown('argument of an RLBench environment', name, known))
    return RLBenchEnv(task, **kwargs)
