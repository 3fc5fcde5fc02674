"""CQL's defaults.

``COMMON`` is from Kumar et al. 2020 (arXiv 2006.04779, appendix F), in their code (aviralkumar2907/CQL, commit d67dbe9,
d4rl/examples/cql_mujoco_new.py): batches of 256, Adam at 3e-4 for critics and 1e-4 for policy and temperature, ten
actions of each kind, a fixed weight of 5. d3rlpy 2.8.1 (reproductions/offline/cql.py) has the same; CORL (commit
6afec90, configs/offline/cql) has a weight of 10 and 3e-5 for the policy. d3rlpy makes 500,000 updates, as here. What
concerns learning online is SAC's.
"""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {
    'train_updates': 500_000,
    'train_steps': 1_000_000,
    'batch_size': 256,
    'buffer_size': 1_000_000,
    'explore_steps': 1000,
    'conservative_weight': 5.0,
    'network': {'hidden': [256, 256], 'activation': 'relu'},
    'networks': {'actor': {'hidden': [256, 256, 256]}, 'critic': {'hidden': [256, 256, 256]}},
    'optimizer': {'name': 'Adam', 'learning_rate': 3e-4},
    'optimizers': {'actor': {'learning_rate': 1e-4}, 'alpha': {'learning_rate': 1e-4}},
    # batch_size counts sequences, as for SAC.
    'recurrent': {
        'batch_size': 16,
        'buffer_size': 100_000,
        'network': {'hidden': [128], 'recurrent_units': 64},
        'networks': {'actor': {'hidden': [128]}, 'critic': {'hidden': [128]}},
    },
}

TYPES: dict[str, dict[str, Any]] = {}

TUNED: dict[str, dict[str, Any]] = {
    'CartPole-v1': {
        'train_updates': 20_000,
        'train_steps': 50_000,
        'buffer_size': 50_000,
        'conservative_weight': 1.0,
        'networks': {'actor': {'hidden': [64, 64]}, 'critic': {'hidden': [64, 64]}},
        'optimizers': {'actor': {'learning_rate': 1e-3}, 'critic': {'learning_rate': 1e-3}},
    },
    'Pendulum-v1': {
        'train_updates': 20_000,
        'train_steps': 20_000,
        'buffer_size': 20_000,
        'networks': {'actor': {'hidden': [256, 256]}, 'critic': {'hidden': [256, 256]}},
    },
}
