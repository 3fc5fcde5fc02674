"""IMPALA's defaults.

``COMMON`` has the paper's rollouts of 20 steps, with Adam and the learning rate of RLlib. Atari has the paper's values
(Espeholt et al. 2018, arXiv 1802.01561, table G.1: RMSProp with a rate of 6e-4 that falls to zero, ε of 0.01, entropy
of 0.01, 32 rollouts in an update). Its losses are sums, with a gradient norm of at most 40; for means it is 0.5.
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
