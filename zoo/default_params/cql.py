"""CQL's defaults.

``COMMON`` is from Kumar et al. 2020 (arXiv 2006.04779, appendix F), in their code (aviralkumar2907/CQL, commit d67dbe9,
d4rl/examples/cql_mujoco_new.py): batches of 256, Adam at 3e-4 for critics and 1e-4 for policy and temperature, ten
actions of each kind, a fixed weight of 5. d3rlpy 2.8.1 (reproductions/offline/cql.py) has the same; CORL (commit
6afec90, configs/offline/cql) has a weight of 10 and 3e-5 for the policy. d3rlpy makes 500,000 updates, as here. What
concerns learning online is SAC's.
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

TYPES: dict[str, dict[str, Any]] = {
    # As in CORL (algorithms/offline/cql.py).
    'mujoco': {'normalize_obs': True},
}

TUNED: dict[str, dict[str, Any]] = {
    # Our own, tried on the replay of a DQN with seed 7. A rate that falls to zero makes the end calm: with a constant
    # one three seeds got 480 to 491.
    'CartPole-v1': {
        'train_updates': 20_000,
        'train_steps': 50_000,
        'buffer_size': 50_000,
        'networks': {'actor': {'hidden': [64, 64]}, 'critic': {'hidden': [64, 64]}},
        'optimizers': {'actor': {'learning_rate': Linear(1e-3)}, 'critic': {'learning_rate': Linear(1e-3)}},
    },
    # Our own, tried on the replay of a TD3 with seed 7. Narrow critics and a high rate are enough, and several times as
    # fast. γ is TD3's.
    'Pendulum-v1': {
        'train_updates': 10_000,
        'train_steps': 20_000,
        'buffer_size': 20_000,
        'gamma': 0.98,
        'conservative_weight': 1.0,
        'networks': {'actor': {'hidden': [64, 64]}, 'critic': {'hidden': [64, 64]}},
        'optimizers': {name: {'learning_rate': 1e-3} for name in ('actor', 'critic', 'alpha')},
    },
}
