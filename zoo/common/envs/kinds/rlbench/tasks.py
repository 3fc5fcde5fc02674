"""The names of RLBench's tasks."""

from __future__ import annotations

import pkgutil
from typing import Any

from zoo.common.envs.kinds.rlbench.package import load_module
from zoo.common.tools.errors import unknown

#: What ``rlbench`` calls it -> what it is called here.
RENAMED = {'observation_mode': 'state_type', 'obs_config': 'state_type', 'robot_configuration': 'robot_setup'}


def ids() -> list[str]:
    """The names of the installed RLBench's tasks, sorted.

    Raises:
        ImportError: RLBench, PyRep or CoppeliaSim is not installed.
    """
    return sorted(task_names())


def task_names() -> dict[str, str]:
    """Name of the class -> name of the module."""
    package = load_module('tasks')
    return {class_name(info.name): info.name for info in pkgutil.iter_modules(package.__path__)}


def class_name(module: str) -> str:
    """``'reach_target'`` -> ``'ReachTarget'``."""
    return ''.join(word[:1].upper() + word[1:] for word in module.split('_'))


def class_of_task(name: str) -> Any:
    tasks = task_names()
    if name not in tasks:
        raise ValueError(unknown('rlbench environment', name, tasks))
    return getattr(load_module(f'tasks.{tasks[name]}'), name)


def has_shaped_reward(task_class: Any) -> bool:
    """Whether the task overrides the ``reward`` that returns None."""
    return task_class.reward is not load_module('backend.task').Task.reward
