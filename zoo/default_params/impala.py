"""IMPALA's defaults.

``COMMON`` are the paper's rollouts of 20 steps, with Adam and the learning rate of RLlib. On Atari the paper's
(Espeholt et al. 2018, arXiv 1802.01561, table G.1: RMSProp with a rate of 6e-4 that falls to zero, ε of 0.01, entropy
of 0.01, 32 rollouts in an update), whose losses are sums: the bound of the gradient's norm, 40 there, is 0.5 for means.
"""

from __future__ import annotations

from typing import Any

from zoo.common.schedules import Linear

COMMON: dict[str, Any] = {
    'train_steps': 1_000_000,
    'horizon': 20,
    'rollouts': 8,
    'network': {'hidden': [64, 64], 'activation': 'tanh', 'initializer': 'orthogonal'},
    'optimizer': {'name': 'Adam', 'learning_rate': 5e-4},
}

TYPES: dict[str, dict[str, Any]] = {
    'mujoco': {'normalize_obs': True, 'entropy_coef': 0.0},
    'atari': {
        'train_steps': 10_000_000,
        'rollouts': 32,
        'optimizer': {'name': 'RMSprop', 'learning_rate': Linear(6e-4), 'rho': 0.99, 'epsilon': 0.01},
    },
}

for _name in ('dm_control', 'robotics', 'rlbench'):
    TYPES[_name] = TYPES['mujoco']

TUNED: dict[str, dict[str, Any]] = {
    'CartPole-v1': {
        'train_steps': 200_000,
        'optimizer': {'learning_rate': Linear(2e-3)},
    },
}
