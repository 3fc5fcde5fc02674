"""The names of all algorithms, and their classes by name: a class is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from zoo.common.tools.errors import InvalidValue, unknown
from zoo.common.tools.quiet import load_tensorflow

#: Names of all algorithms. Each has a file of that name, in lower case.
NAMES = (
    'A2C', 'A3C', 'AC', 'ApexDDPG', 'ApexDQN', 'ARS', 'C51', 'CrossQ', 'DDPG', 'DPPO', 'DQN', 'ES',
    'IMPALA', 'OffPAC', 'PPO', 'QRDQN', 'R2D2', 'Rainbow', 'SAC', 'TD3', 'TQC', 'TRPO', 'VPG',
)  # fmt: skip


def find(name: str) -> type[Any]:
    """Give the class of an algorithm; a wrong name is refused with the nearest one."""
    if name not in NAMES:
        raise InvalidValue(unknown('algorithm', name, NAMES))
    load_tensorflow()
    return getattr(importlib.import_module(f'zoo.algorithms.{name.lower()}'), name)
