"""Ape-X DQN's defaults: the paper's on Atari (Horgan et al. 2018, arXiv 1803.00933, appendix C), DQN's elsewhere.

The learner updates as fast as it can: updates per step depend on the machine and the number of actors. Two actors leave
fewer updates for each step, so ``train_steps`` is larger than DQN's.
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
    # A twentieth of the paper's buffer. Adam, with the paper's rate and gradient norm.
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
    # DQN's, at half the rate; tuned on seed 100. Updates of so small a network are short: eight in a call take
    # 62 % of the learner's time, 64 take 89 %, and more than twice as many are done in a second.
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
