"""ES' defaults.

The network, and the deviation for MuJoCo and Atari, come from Salimans et al. 2017; the rest was tried here
(``CartPole-v1`` on seeds from 100 on).
"""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {
    'train_steps': 1_000_000,
    'num_directions': 32,
    'noise_std': 0.05,
    'network': {'hidden': [64, 64], 'activation': 'tanh'},
    'optimizer': {'name': 'Adam', 'learning_rate': 1e-2},
}

TYPES: dict[str, dict[str, Any]] = {
    # Scales of positions and velocities differ much; normalize_obs replaces the authors' own statistics.
    'mujoco': {'noise_std': 0.02, 'normalize_obs': True},
    'atari': {'train_steps': 10_000_000, 'noise_std': 0.02},
}

for _name in ('dm_control', 'robotics', 'rlbench', 'brax', 'mjx'):
    TYPES[_name] = TYPES['mujoco']

TUNED: dict[str, dict[str, Any]] = {
    'CartPole-v1': {
        'train_steps': 200_000,
        'num_directions': 16,
        'noise_std': 0.1,
        'optimizer': {'learning_rate': 3e-2},
    },
}
