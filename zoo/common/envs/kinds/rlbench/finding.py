"""RLBench as a type of environment: ``find`` and ``ids``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

from zoo.common.envs.kinds.rlbench.env import RLBenchEnv
from zoo.common.envs.kinds.rlbench.tasks import RENAMED, class_name, task_names
from zoo.common.tools.errors import unknown

#: A copy needs a process of its own.
ONE_PER_PROCESS = True


def find(env_id: Any, env_type: str) -> Callable[..., gymnasium.Env]:
    """The factory of a task by its class's name or that of its file: ``'ReachTarget'``, ``'reach_target'``.

    Its keyword arguments are those of :class:`RLBenchEnv`. Nothing is launched before it is called.

    Raises:
        ValueError: an unknown name.
        TypeError: ``env_id`` is not a name.
        ImportError: RLBench, PyRep or CoppeliaSim is not installed.
    """
    if not isinstance(env_id, str):
        raise TypeError(f"an {env_type} environment is given by its name, such as 'ReachTarget', not by {env_id!r}.")
    tasks = task_names()
    name = env_id if env_id in tasks else class_name(env_id)
    if name not in tasks:
        raise ValueError(unknown(f'{env_type} environment', env_id, tasks))
    return partial(_make, name)


def _make(task: str, /, **kwargs: Any) -> gymnasium.Env:
    known = list(inspect.signature(RLBenchEnv).parameters)[1:]
    for name in kwargs:
        if name in RENAMED:
            raise TypeError(
                f'unknown argument of an RLBench environment {name!r}: it is called {RENAMED[name]!r} here.'
            )
        if name not in known:
            raise TypeError(unknown('argument of an RLBench environment', name, known))
    return RLBenchEnv(task, **kwargs)
