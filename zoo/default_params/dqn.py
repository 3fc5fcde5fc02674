"""DQN's defaults.

``COMMON`` are the Nature paper's ideas at the scale of small vector observations. ``TUNED`` starts from the tuned
hyper-parameters of RL Baselines3 Zoo (DLR-RM/rl-baselines3-zoo, commit 22e3ff2, MIT licence); departures are noted.
"""

from __future__ import annotations

from typing import Any

from zoo.common.schedules import Linear

COMMON: dict[str, Any] = {
    'train_steps': 200_000,
    'batch_size': 64,
    'buffer_size': 100_000,
    'explore_steps': 1000,
    'epsilon': Linear(1.0, 0.05, until=0.2),
    'target_update_every': 500,
    'network': {'hidden': [256, 256], 'activation': 'relu'},
    'optimizer': {'name': 'Adam', 'learning_rate': 5e-4, 'clip_norm': 10.0},
    # A batch counts sequences, and sequence_length steps of each are learned from.
    'recurrent': {'batch_size': 16, 'network': {'hidden': [64], 'recurrent_units': 64}},
}

TYPES: dict[str, dict[str, Any]] = {
    # The buffer is a tenth of the paper's, as in the source named above.
    'atari': {
        'train_steps': 10_000_000,
        'batch_size': 32,
        'buffer_size': 100_000,
        'explore_steps': 100_000,
        'update_every': 4,
        'updates': 1,
        'target_update_every': 1000,
        'epsilon': Linear(1.0, 0.01, until=0.1),
        'optimizer': {'learning_rate': 1e-4},
    },
}

TUNED: dict[str, dict[str, Any]] = {
    # The source has a rate of 2.3e-3 throughout, 128 updates after every 256 steps and a copy of the target after each,
    # with which many seeds fail. Tuned on seed 100: the target that follows every update and the higher rate, annealed,
    # are what scores rose with; kappa and the clipping of gradients were changed beside them, not by themselves.
    'CartPole-v1': {
        'train_steps': 50_000,
        'batch_size': 128,
        'update_every': 16,
        'updates': 8,
        'target_update_every': 1,
        'tau': 0.02,
        'kappa': 100.0,
        'epsilon': Linear(1.0, 0.05, until=0.1),
        'network': {'hidden': [128, 128]},
        'optimizer': {'learning_rate': Linear(4e-3, 0.0), 'clip_norm': None},
    },
    'MountainCar-v0': {
        'train_steps': 120_000,
        'batch_size': 128,
        'buffer_size': 10_000,
        'gamma': 0.98,
        'update_every': 16,
        'updates': 8,
        'target_update_every': 300,
        'epsilon': Linear(1.0, 0.07, until=0.2),
        'optimizer': {'learning_rate': 4e-3},
    },
    # The source's rate is not annealed: with it what was learned was lost again towards the end of one seed of three
    # (45). Annealed it was 263, 191 and 224 on seeds 100 to 102.
    'LunarLander-v3': {
        'train_steps': 100_000,
        'batch_size': 128,
        'buffer_size': 50_000,
        'explore_steps': 0,
        'update_every': 4,
        'target_update_every': 250,
        'epsilon': Linear(1.0, 0.1, until=0.12),
        'optimizer': {'learning_rate': Linear(6.3e-4, 0.0)},
    },
}
TUNED['Acrobot-v1'] = TUNED['LunarLander-v3']
