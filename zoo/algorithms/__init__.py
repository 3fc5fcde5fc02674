"""The algorithms, one file each; a name is imported when it is asked for, so that the list costs nothing."""

from __future__ import annotations

import importlib
from typing import Any

from zoo.common.errors import unknown
from zoo.common.quiet import load_tensorflow

_MODULES = {
    'A2C': 'a2c',
    'A3C': 'a3c',
    'AC': 'ac',
    'ApexDDPG': 'apexddpg',
    'ApexDQN': 'apexdqn',
    'ARS': 'ars',
    'C51': 'c51',
    'CrossQ': 'crossq',
    'DDPG': 'ddpg',
    'DPPO': 'dppo',
    'DQN': 'dqn',
    'ES': 'es',
    'IMPALA': 'impala',
    'OffPAC': 'offpac',
    'PPO': 'ppo',
    'QRDQN': 'qrdqn',
    'R2D2': 'r2d2',
    'Rainbow': 'rainbow',
    'SAC': 'sac',
    'TD3': 'td3',
    'TQC': 'tqc',
    'TRPO': 'trpo',
    'VPG': 'vpg',
}

#: Names of all algorithms.
NAMES = tuple(_MODULES)

__all__ = ['NAMES', *NAMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        load_tensorflow()
        return getattr(importlib.import_module(f'zoo.algorithms.{_MODULES[name]}'), name)
    if name.startswith('__'):
        raise AttributeError(name)
    raise AttributeError(unknown('algorithm', name, NAMES))


def __dir__() -> list[str]:
    return sorted(__all__)
