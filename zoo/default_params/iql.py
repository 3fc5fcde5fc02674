"""IQL's defaults.

``COMMON`` is from Kostrikov et al. 2021 (arXiv 2110.06169, appendix B), in their code (ikostrikov/implicit_q_learning,
commit 09d7002, configs/mujoco_config.py): τ = 0.7, β = 3, batches of 256, Adam at 3e-4. d3rlpy 2.8.1
(reproductions/offline/iql.py) and CORL (commit 6afec90, configs/offline/iql) have the same. The authors make 1,000,000
updates, d3rlpy 500,000, as here. What concerns learning online is SAC's.
"""

from __future__ import annotations

from typing import Any

from zoo.common.schedules import Linear

COMMON: dict[str, Any] = {
    'train_updates': 500_000,
    'train_steps': 1_000_000,
    'batch_size': 256,
    'buffer_size': 1_000_000,
    'explore_steps': 1000,
    'expectile': 0.7,
    'beta': 3.0,
    'network': {'hidden': [256, 256], 'activation': 'relu'},
    'optimizer': {'name': 'Adam', 'learning_rate': 3e-4},
    # The authors let it fall by a cosine.
    'optimizers': {'actor': {'learning_rate': Linear(3e-4)}},
    # batch_size counts sequences, as for SAC.
    'recurrent': {'batch_size': 16, 'buffer_size': 100_000, 'network': {'hidden': [128], 'recurrent_units': 64}},
}

TYPES: dict[str, dict[str, Any]] = {
    # The authors multiply rewards by 1000 / (highest − lowest return in the data), and advantages with them. For D4RL's
    # medium data this is 0.18 in HalfCheetah, 0.24 in Walker2d and 0.34 in Hopper: β = 3 becomes 0.5 to 1. CORL
    # (algorithms/offline/iql.py) normalizes observations. benchmarks/results/offline.md shows IQL without both.
    'mujoco': {'beta': 0.5, 'normalize_obs': True},
}

TUNED: dict[str, dict[str, Any]] = {
    'CartPole-v1': {'train_updates': 20_000, 'train_steps': 50_000, 'buffer_size': 50_000},
    # Our own, tried on data of a TD3 with seed 7, whose γ this is. Networks of 64 units fit the values too coarsely:
    # seeds got −240 to −320 in place of −136. Rewards down to −16 make advantages large, and at β = 3 a few actions
    # have all the weight: on an expert's episodes seeds got −257 to −416, at β = 1 −132.
    'Pendulum-v1': {
        'train_updates': 10_000,
        'train_steps': 20_000,
        'buffer_size': 20_000,
        'gamma': 0.98,
        'beta': 1.0,
        'optimizer': {'learning_rate': 1e-3},
        'optimizers': {'actor': {'learning_rate': 1e-3}},
    },
}
