"""QR-DQN's defaults: the paper's on Atari (Dabney et al. 2018, arXiv 1710.10044), DQN's elsewhere.

``TUNED`` starts from RL Baselines3 Zoo.
"""

from __future__ import annotations

from typing import Any

from zoo.common.schedules import Linear
from zoo.default_params import dqn

COMMON: dict[str, Any] = dqn.COMMON | {
    'double_q': False,
    # The paper's 200 are for Atari; each quantile needs one output for every action.
    'quantiles': 50,
    'optimizer': dqn.COMMON['optimizer'] | {'epsilon': 0.01 / 32},
}

TYPES: dict[str, dict[str, Any]] = {
    'atari': dqn.TYPES['atari']
    | {'quantiles': 200, 'optimizer': {'learning_rate': 5e-5, 'epsilon': 0.01 / 32, 'clip_norm': None}},
}

TUNED: dict[str, dict[str, Any]] = {
    # DQN's with one-step targets, at a quarter of the rate, with the source's number of quantiles. All of 24 seeds from
    # 100 on got 500. The mean of the weights over a tenth of the training lost 2 of 20 other seeds (347, 110).
    'CartPole-v1': dqn.TUNED['CartPole-v1']
    | {'n_step': 1, 'buffer_size': 100_000, 'average_window': 0.2}
    | {'batch_size': 64, 'quantiles': 10, 'optimizer': {'learning_rate': Linear(1e-3, 0.0), 'clip_norm': 10.0}},
    'MountainCar-v0': dqn.TUNED['MountainCar-v0'] | {'quantiles': 25},
    'Acrobot-v1': dqn.TUNED['Acrobot-v1'] | {'quantiles': 25},
    # The source moves the target before each call of 256 updates: here, once every 256 updates.
    'LunarLander-v3': {
        'train_steps': 100_000,
        'batch_size': 128,
        'buffer_size': 100_000,
        'explore_steps': 10_000,
        'gamma': 0.995,
        'update_every': 256,
        'target_update_every': 256,
        'quantiles': 170,
        'epsilon': Linear(1.0, 0.18, until=0.24),
        'optimizer': {'learning_rate': Linear(1.5e-3, 0.0)},
    },
}
