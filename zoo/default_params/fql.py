"""FQL's defaults.

``COMMON`` is from Park et al. 2025 (arXiv 2502.02538, table of hyper-parameters), in their code (seohongpark/fql,
commit 719d044, agents/fql.py): networks of four layers of 512 units with GELU, critics with layer normalization, Adam
at 3e-4, batches of 256, ten steps of the flow, 1,000,000 updates, 500,000 on D4RL's data, as here. α belongs to
normalized values, for which the authors recommend to try 0.03 to 10.
"""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {
    'train_updates': 500_000,
    'train_steps': 1_000_000,
    'batch_size': 256,
    'buffer_size': 1_000_000,
    'explore_steps': 1000,
    'alpha': 1.0,
    'network': {'hidden': [512, 512, 512, 512], 'activation': 'gelu'},
    'networks': {'critic': {'normalize': 'layer_norm'}},
    'optimizer': {'name': 'Adam', 'learning_rate': 3e-4},
}

TYPES: dict[str, dict[str, Any]] = {}

TUNED: dict[str, dict[str, Any]] = {
    # Narrower networks are enough, and several times as fast without a GPU.
    'Pendulum-v1': {
        'train_updates': 20_000,
        'train_steps': 20_000,
        'buffer_size': 20_000,
        'network': {'hidden': [256, 256]},
    },
}
