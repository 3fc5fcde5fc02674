"""The names of all algorithms, and their classes by name: a class is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from zoo.common.tools.errors import InvalidValue, unknown
from zoo.common.tools.habits import ALGORITHMS
from zoo.common.tools.quiet import load_tensorflow

#: Names of all algorithms. Each has a file of that name, in lower case.
NAMES = (
    'A2C', 'A3C', 'AC', 'ApexDDPG', 'ApexDQN', 'ARS', 'AWAC', 'BC', 'C51', 'CQL', 'CrossQ', 'DAgger', 'DDPG', 'DPPO',
    'DQN', 'ES', 'FQL', 'GAIL', 'GAILTRPO', 'IMPALA', 'IQL', 'MARWIL', 'OffPAC', 'PPO', 'PQN', 'QRDQN', 'R2D2',
    'Rainbow', 'SAC', 'TD3', 'TD3BC', 'TQC', 'TRPO', 'VPG',
)  # fmt: skip


_BY_LOWER = {name.lower(): name for name in NAMES}


def named(name: object) -> str:
    """Return the name of an algorithm that is given in any case; a wrong one is refused with what is near or right."""
    found = _BY_LOWER.get(name.lower()) if isinstance(name, str) else None
    if found is not None:
        return found
    told = ALGORITHMS.get(name.lower()) if isinstance(name, str) else None
    if isinstance(name, str) and ':' in name:
        told = 'give the name of one of zoo, such as PPO. A program trains an algorithm of your own'
    raise InvalidValue(unknown('algorithm', name, NAMES) if told is None else f'unknown algorithm {name!r}: {told}.')


def find(name: str) -> type[Any]:
    """Return the class of an algorithm by its name in any case."""
    name = named(name)
    load_tensorflow()
    return getattr(importlib.import_module(f'zoo.algorithms.{name.lower()}'), name)
