"""DDPG's defaults.

``COMMON`` are those of TD3's authors for their DDPG (Fujimoto et al. 2018, arXiv 1802.09477, "our DDPG", section 6.1
and table 3), which learns more surely than with the values of Lillicrap et al. 2016. ``TUNED`` starts from the tuned
hyper-parameters of RL Baselines3 Zoo (DLR-RM/rl-baselines3-zoo, commit 22e3ff2, MIT licence); departures are noted.
"""

from __future__ import annotations

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
    'mujoco': {'network': {'hidden': [400, 300]}},
    # As for SAC, from the source named above.
    'robotics': {'gamma': 0.95},
}

TUNED = {
    # Its source takes 10,000 random steps, half of the budget, and layers of 400 and 300 units: fewer do here.
    'Pendulum-v1': {
        'train_steps': 20_000,
        'explore_steps': 1000,
        'buffer_size': 20_000,
        'gamma': 0.98,
    },
    'MountainCarContinuous-v0': {
        'train_steps': 300_000,
        'buffer_size': 300_000,
        'explore_noise': 0.5,
        'noise': 'ornstein_uhlenbeck',
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
