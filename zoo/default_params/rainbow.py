"""Rainbow's defaults: on Atari the paper's (Hessel et al. 2018, arXiv 1710.02298, table 1), smaller elsewhere."""

from __future__ import annotations

from zoo.default_params import c51

COMMON = c51.COMMON | {'double_q': True, 'epsilon': 0.0}

TYPES = {
    # The buffer is a tenth of the paper's.
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

TUNED = {}
