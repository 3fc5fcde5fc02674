"""RLBench's tasks: their names and their classes."""

from __future__ import annotations

import pkgutil
from typing import Any

from zoo.common.envs.kinds.rlbench.package import load_module
from zoo.common.tools.errors import InvalidValue, unknown


def ids() -> list[str]:
    """Return the names of the installed tasks, sorted."""
    return sorted(_modules())


def find_task(name: str) -> str:
    """Return the name of a task's class from that name or from the name of its file, or raise a ValueError."""
    tasks = _modules()
    for known in (name, _class_name(name)):
        if known in tasks:
            return known
    raise InvalidValue(unknown('rlbench environment', name, tasks))


def class_of_task(name: str) -> Any:
    """Return the class of a task, or raise a ValueError."""
    name = find_task(name)
    return getattr(load_module(f'tasks.{_modules()[name]}'), name)


def has_shaped_reward(task_class: Any) -> bool:
    """Whether the task overrides the ``reward`` that returns None."""
    return task_class.reward is not load_module('backend.task').Task.reward


def _modules() -> dict[str, str]:
    """Name of the class -> name of the module."""
    package = load_module('tasks')
    return {_class_name(info.name): info.name for info in pkgutil.iter_modules(package.__path__)}


def _class_name(module: str) -> str:
    """``'reach_target'`` -> ``'ReachTarget'``."""
    return ''.join(word[:1].upper() + word[1:] for word in module.split('_'))
