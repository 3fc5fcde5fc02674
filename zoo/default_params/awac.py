"""AWAC's defaults.

``COMMON`` is from Nair et al. 2020 (arXiv 2006.09359, appendix), in their code (rail-berkeley/rlkit, commit ac45a9d,
examples/awac/mujoco/awac1.py): batches of 1024, Adam at 3e-4, a policy of four hidden layers, critics of two; its λ is
2 there, and 1 here, as in d3rlpy 2.8.1 (reproductions/offline/awac.py). d3rlpy makes 500,000 updates, as here. What
concerns learning online is SAC's.
"""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {
    'train_updates': 500_000,
    'train_steps': 1_000_000,
    'batch_size': 1024,
    'buffer_size': 1_000_000,
    'explore_steps': 1000,
    'lam': 1.0,
    'network': {'hidden': [256, 256], 'activation': 'relu'},
    'networks': {'actor': {'hidden': [256, 256, 256, 256]}},
    'optimizer': {'name': 'Adam', 'learning_rate': 3e-4},
    # batch_size counts sequences, as for SAC.
    'recurrent': {
        'batch_size': 64,
        'buffer_size': 100_000,
        'network': {'hidden': [128], 'recurrent_units': 64},
        'networks': {'actor': {'hidden': [128]}},
    },
}

TYPES: dict[str, dict[str, Any]] = {
    # As in CORL (algorithms/offline/awac.py).
    'mujoco': {'normalize_obs': True},
}

TUNED: dict[str, dict[str, Any]] = {
    'CartPole-v1': {'train_updates': 20_000, 'train_steps': 50_000, 'buffer_size': 50_000},
    # Our own, tried on the replay of a TD3 with seed 7, whose γ this is: narrow networks and small batches are enough.
    'Pendulum-v1': {
        'train_updates': 10_000,
        'train_steps': 20_000,
        'buffer_size': 20_000,
        'batch_size': 256,
        'gamma': 0.98,
        'network': {'hidden': [64, 64]},
        'networks': {'actor': {'hidden': [64, 64]}},
        'optimizer': {'learning_rate': 1e-3},
    },
}
