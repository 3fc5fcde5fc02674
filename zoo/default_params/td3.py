"""TD3's defaults.

``COMMON`` is from Fujimoto et al. 2018 (arXiv 1802.09477, section 6.1 and table 3), in their later code. ``TUNED``
starts from RL Baselines3 Zoo.
"""

from __future__ import annotations

from typing import Any

COMMON = {
    'train_steps': 1_000_000,
    'batch_size': 256,
    'buffer_size': 1_000_000,
    'explore_steps': 10_000,
    'explore_noise': 0.1,
    'network': {'hidden': [256, 256], 'activation': 'relu'},
    'optimizer': {'name': 'Adam', 'learning_rate': 1e-3},
}

TYPES = {
    # All as in the authors' later code: networks of half the work of the paper's, and a smaller rate for them.
    'mujoco': {'explore_steps': 25_000, 'optimizer': {'learning_rate': 3e-4}},
    # As for SAC, from RL Baselines3 Zoo.
    'robotics': {'gamma': 0.95},
}

TUNED: dict[str, dict[str, Any]] = {
    # The source takes 10,000 random steps, half of the budget; 1,000 are enough here.
    'Pendulum-v1': {
        'train_steps': 20_000,
        'explore_steps': 1000,
        'buffer_size': 20_000,
        'gamma': 0.98,
    },
    # Gaussian noise, large enough to climb the hill; the source has an Ornstein-Uhlenbeck process of 0.5.
    'MountainCarContinuous-v0': {
        'train_steps': 300_000,
        'buffer_size': 300_000,
        'explore_noise': 0.5,
        'network': {'hidden': [400, 300]},
    },
    'LunarLanderContinuous-v3': {
        'train_steps': 300_000,
        'buffer_size': 200_000,
        'gamma': 0.98,
        'network': {'hidden': [400, 300]},
    },
    'BipedalWalker-v3': {
        'buffer_size': 200_000,
        'gamma': 0.98,
        'network': {'hidden': [400, 300]},
    },
    'Swimmer-v5': {'gamma': 0.9999},
    'Humanoid-v5': {'train_steps': 2_000_000},
}
