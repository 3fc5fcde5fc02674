"""CrossQ's defaults.

``COMMON`` is from Bhatt et al. 2024 (arXiv 1902.05605), in the authors' code (adityab/CrossQ, commit 2811ad1,
train.py), and so is Swimmer's discount. RL Baselines3 Zoo has none for CrossQ.
"""

from __future__ import annotations

COMMON = {
    'train_steps': 1_000_000,
    'batch_size': 256,
    'buffer_size': 1_000_000,
    'explore_steps': 5000,
    'network': {'hidden': [256, 256], 'activation': 'relu', 'normalize': 'batch_renorm'},
    'networks': {'critic': {'hidden': [2048, 2048]}},
    'optimizer': {'name': 'Adam', 'learning_rate': 1e-3, 'beta_1': 0.5},
}

TYPES: dict[str, dict] = {}

TUNED = {
    # Critics as narrow as the actor are enough. As in RL Baselines3 Zoo's tables, it explores for a few episodes only.
    'Pendulum-v1': {
        'train_steps': 20_000,
        'explore_steps': 1000,
        'buffer_size': 20_000,
        'networks': {'critic': {'hidden': [256, 256]}},
    },
    # Without a GPU critics of 2048 x 2048 take about twenty times as long.
    'HalfCheetah-v5': {'networks': {'critic': {'hidden': [512, 512]}}},
    'Swimmer-v5': {'gamma': 0.9999},
}
