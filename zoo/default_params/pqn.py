"""PQN's defaults.

``COMMON`` is the paper's code for MinAtar, whose networks are small (mttga/purejaxql, commit 0cd95ed,
``config/alg/pqn_minatar.yaml``), and ``atari`` its Atari settings (commit 0436c80, ``pqn_atari.yaml``). ``TUNED``
starts from its settings for ``CartPole-v1`` (commit 970ecce, ``pqn_cartpole.yaml``).
"""

from __future__ import annotations

from typing import Any

from zoo.common.schedules import Linear

COMMON: dict[str, Any] = {
    'train_steps': 1_000_000,
    'rollout_size': 2048,
    'epochs': 2,
    'batch_size': 128,
    'network': {'hidden': [128, 128], 'activation': 'relu', 'normalize': 'pre_layer_norm'},
    'optimizer': {'name': 'RAdam', 'learning_rate': Linear(5e-4, 0.0), 'clip_norm': 10.0},
}

TYPES: dict[str, dict[str, Any]] = {}

TUNED: dict[str, dict[str, Any]] = {
    'CartPole-v1': {
        'train_steps': 500_000,
        'rollout_size': 2048,
        'epochs': 4,
        'batch_size': 128,
        'q_lambda': 0.95,
        'epsilon': Linear(1.0, 0.2, until=0.2),
        'network': {'hidden': [256, 256]},
        'optimizer': {'learning_rate': Linear(1e-4, 0.0)},
    },
}
