"""ARS' defaults.

``COMMON`` is V2 of Mania et al. 2018 with the number of directions, deviation and step of sb3-contrib. ``TUNED`` are
the tuned hyper-parameters of RL Baselines3 Zoo (DLR-RM/rl-baselines3-zoo, commit 22e3ff2, MIT licence); departures are
noted. Where its policy is a network all weights begin at random, and here the head begins at zero; its actions are
squashed by tanh there, and clipped here. Of ``TUNED`` what ``benchmarks/scores/learning.py`` has was run here.
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
    # Its source takes two directions and does not normalise: of seeds 100 to 105 one got 380 after 50k steps.
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
