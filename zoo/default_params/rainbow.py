"""Rainbow's defaults: the paper's on Atari (Hessel et al. 2018, arXiv 1710.02298, table 1), smaller elsewhere."""

from __future__ import annotations

from typing import Any

from zoo.common.schedules import Linear
from zoo.default_params import c51

COMMON: dict[str, Any] = c51.COMMON | {'double_q': True, 'epsilon': 0.0}

TYPES: dict[str, dict[str, Any]] = {
    # A tenth of the paper's buffer.
    'atari': {
        'train_steps': 10_000_000,
        'batch_size': 32,
        'buffer_size': 100_000,
        'explore_steps': 20_000,
        'update_every': 4,
        'updates': 1,
        'target_update_every': 2000,
        'v_min': -10.0,
        'v_max': 10.0,
        'optimizer': {'learning_rate': 6.25e-5, 'epsilon': 1.5e-4, 'clip_norm': 10.0},
    },
}

TUNED: dict[str, dict[str, Any]] = {
    # C51's. Noisy layers alone see too few states: 461, 469 and 500 on seeds 0 to 2. With random actions too, in the
    # first tenth, each of seeds 100 to 102 got 500.
    'CartPole-v1': {key: value for key, value in c51.TUNED['CartPole-v1'].items() if key != 'recurrent'}
    | {'epsilon': Linear(1.0, 0.01, until=0.1)},
}
