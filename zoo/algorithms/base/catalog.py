"""The names of all algorithms, and their classes by name.

A class is imported when it is asked for, so that the list costs nothing. Each algorithm is a file in ``zoo/algorithms``
that this file knows by its name alone.
"""

from __future__ import annotations

import importlib
from typing import Any

from zoo.common.tools.errors import InvalidValue, unknown
from zoo.common.tools.quiet import load_tensorflow

#: Names of all algorithms. Each has a file of that name, in lower case.
NAMES = (
    'A2C',
    'A3C',
    'AC',
    'ApexDDPG',
    'ApexDQN',
    'ARS',
    'C51',
    'CrossQ',
    'DDPG',
    'DPPO',
    'DQN',
    'ES',
    'IMPALA',
    'OffPAC',
    'PPO',
    'QRDQN',
    'R2D2',
    'Rainbow',
    'SAC',
    'TD3',
    'TQC',
    'TRPO',
    'VPG',
)


def find(name: str) -> type[Any]:
    """The class of an algorithm.

    Raises:
        ValueError: there is no algorithm of this name; the message has the nearest one.
    """
    if name not in NAMES:
        raise InvalidValue(unknown('algorithm', name, NAMES))
    load_tensorflow()
    return getattr(importlib.import_module(f'zoo.algorithms.{name.lower()}'), name)
