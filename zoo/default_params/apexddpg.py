"""Ape-X DDPG's defaults: DDPG's, with more steps, and fewer updates for each step.

The learner updates as fast as it can: updates per step depend on the machine and the number of actors.
"""

from __future__ import annotations

from typing import Any

from zoo.default_params import ddpg

COMMON: dict[str, Any] = {key: value for key, value in ddpg.COMMON.items() if key != 'explore_noise'} | {
    'train_steps': 5_000_000,
    'updates': 8,
}

TYPES = ddpg.TYPES

TUNED: dict[str, dict[str, Any]] = {
    # DDPG's discount, smaller networks and batches. One update for each step: as fast as the learner could, a busy
    # machine left -600 after 30,000 steps; at this ratio two seeds got -132 and -139.
    'Pendulum-v1': {
        'train_steps': 30_000,
        'update_every': 8,
        'batch_size': 128,
        'explore_steps': 1000,
        'buffer_size': 100_000,
        'gamma': 0.98,
        'network': {'hidden': [128, 128]},
    },
}
