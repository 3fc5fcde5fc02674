"""Ape-X DQN's defaults: on Atari the paper's (Horgan et al. 2018, arXiv 1803.00933, appendix C), DQN's elsewhere.

The learner updates as fast as it can, so how many updates there are for a step depends on the machine and on the number
of actors; ``train_steps`` are more than DQN's, since two actors take them while there are fewer updates for each.
"""

from __future__ import annotations

from typing import Any

from zoo.common.schedules import Linear
from zoo.default_params import dqn

COMMON: dict[str, Any] = {key: value for key, value in dqn.COMMON.items() if key != 'epsilon'} | {
    'train_steps': 500_000,
    'updates': 8,
}

TYPES: dict[str, dict[str, Any]] = {
    # The buffer is a twentieth of the paper's, the optimiser Adam at its rate and gradient norm.
    'atari': {
        'train_steps': 50_000_000,
        'batch_size': 512,
        'buffer_size': 100_000,
        'explore_steps': 50_000,
        'updates': 1,
        'target_update_every': 2500,
        'optimizer': {'learning_rate': 0.00025 / 4, 'clip_norm': 40.0},
    },
}

TUNED: dict[str, dict[str, Any]] = {
    # As DQN's, at half the rate; tuned on seed 100. Updates of so small a network are so short that eight in a call
    # are 62 % of the learner's time and 64 are 89 %, with more than twice as many a second.
    'CartPole-v1': {
        'train_steps': 200_000,
        'batch_size': 128,
        'updates': 64,
        'target_update_every': 1,
        'tau': 0.02,
        'kappa': 100.0,
        'network': {'hidden': [128, 128]},
        'optimizer': {'learning_rate': Linear(2e-3, 0.0), 'clip_norm': None},
    },
}
