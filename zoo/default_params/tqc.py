"""TQC's defaults.

``COMMON`` are those of Kuznetsov et al. 2020 (arXiv 2005.04269, its table of hyper-parameters), but for the number of
critics. ``TUNED`` starts from the tuned hyper-parameters of RL Baselines3 Zoo (DLR-RM/rl-baselines3-zoo, commit
22e3ff2, MIT licence); departures are noted.
"""

from __future__ import annotations

from typing import Any

from zoo.common.schedules import Linear

COMMON = {
    'train_steps': 1_000_000,
    'batch_size': 256,
    'buffer_size': 1_000_000,
    'explore_steps': 1000,
    'network': {'hidden': [256, 256], 'activation': 'relu'},
    'optimizer': {'name': 'Adam', 'learning_rate': 3e-4},
}

TYPES = {
    'mujoco': {'explore_steps': 10_000},
    'box2d': {'explore_steps': 10_000},
    # As SAC's.
    'dm_control': {'optimizer': {'learning_rate': 1e-3}},
    # What the source named above has for every one of the Fetch tasks, with hindsight experience replay.
    'robotics': {'gamma': 0.95, 'optimizer': {'learning_rate': 1e-3}},
}

TUNED: dict[str, dict[str, Any]] = {
    'Pendulum-v1': {
        'train_steps': 20_000,
        'explore_steps': 100,
        'buffer_size': 20_000,
        'optimizer': {'learning_rate': 1e-3},
    },
    # Its source explores with state-dependent noise; here a fixed temperature and a high discount make up for it.
    'MountainCarContinuous-v0': {
        'train_steps': 50_000,
        'batch_size': 512,
        'buffer_size': 50_000,
        'explore_steps': 1000,
        'gamma': 0.9999,
        'tau': 0.01,
        'alpha': 0.1,
        'update_every': 32,
        'network': {'hidden': [64, 64]},
    },
    'LunarLanderContinuous-v3': {
        'train_steps': 500_000,
        'tau': 0.01,
        'network': {'hidden': [400, 300]},
        'optimizer': {'learning_rate': Linear(7.3e-4)},
    },
    'BipedalWalker-v3': {
        'train_steps': 500_000,
        'buffer_size': 300_000,
        'gamma': 0.98,
        'tau': 0.02,
        'update_every': 64,
        'network': {'hidden': [400, 300]},
        'optimizer': {'learning_rate': 7.3e-4},
    },
    # The paper tunes ``drop`` for each robot and leaves out nothing here; the source named above leaves out 2.
    'HalfCheetah-v5': {'drop': 0},
    'Hopper-v5': {'drop': 5},
    'Swimmer-v5': {'gamma': 0.999},
    'Humanoid-v5': {'train_steps': 2_000_000},
}

# Their source adds to the observation how much of the time limit is left.
_FETCH: dict[str, Any] = {'tau': 0.05, 'network': {'hidden': [512, 512, 512]}}
TUNED |= {
    'FetchPush-v4': {**_FETCH, 'batch_size': 2048},
    'FetchPickAndPlace-v4': {**_FETCH, 'batch_size': 1024},
    'FetchSlide-v4': {**_FETCH, 'batch_size': 2048, 'train_steps': 2_500_000},
}
