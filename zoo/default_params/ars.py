"""ARS' defaults.

``COMMON`` is V2 of Mania et al. 2018, with the number of directions, deviation and step size of sb3-contrib. ``TUNED``
is from RL Baselines3 Zoo. There all weights of a network policy begin at random, and tanh squashes actions. Here the
head begins at zero, and actions are clipped. Only the tasks in ``benchmarks/scores/learning.py`` were run here.
"""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {
    'train_steps': 1_000_000,
    'num_directions': 8,
    'noise_std': 0.05,
    'normalize_obs': True,
    'network': {'hidden': [], 'activation': 'tanh'},
    'optimizer': {'name': 'SGD', 'learning_rate': 0.02},
}

TYPES: dict[str, dict[str, Any]] = {}

_SMALL: dict[str, Any] = {
    'train_steps': 2_000_000,
    'num_directions': 4,
    'top_directions': 1,
    'noise_std': 0.1,
    'network': {'hidden': [16]},
    'optimizer': {'learning_rate': 0.018},
}

TUNED: dict[str, dict[str, Any]] = {
    # The source has two directions and no normalization: one of seeds 100 to 105 got 380 after 50k steps.
    'CartPole-v1': {'train_steps': 50_000},
    'Pendulum-v1': _SMALL,
    'LunarLander-v3': _SMALL | {'num_directions': 6},
    'LunarLanderContinuous-v3': _SMALL,
    'Acrobot-v1': _SMALL | {'train_steps': 500_000},
    'MountainCar-v0': _SMALL | {'train_steps': 500_000, 'num_directions': 8},
    'MountainCarContinuous-v0': _SMALL | {'train_steps': 500_000, 'noise_std': 0.2},
    'Swimmer-v5': {
        'train_steps': 2_000_000,
        'num_directions': 1,
        'top_directions': 1,
        'noise_std': 0.01,
        'normalize_obs': False,
    },
    'Hopper-v5': {
        'train_steps': 7_000_000,
        'top_directions': 4,
        'noise_std': 0.025,
        'alive_bonus_offset': -1.0,
        'optimizer': {'learning_rate': 0.01},
    },
    'HalfCheetah-v5': {'train_steps': 12_500_000, 'num_directions': 32, 'top_directions': 4, 'noise_std': 0.03},
}
