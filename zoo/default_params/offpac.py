"""OffPAC's defaults: the paper's are those of linear features; these were tried here."""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {
    'train_steps': 1_000_000,
    'batch_size': 128,
    'update_every': 2,
    'updates': 1,
    'tau': 0.02,
    'entropy_coef': 0.05,
    'explore_steps': 1000,
    'network': {'hidden': [64, 64], 'activation': 'tanh', 'initializer': 'orthogonal'},
    'optimizer': {'name': 'Adam', 'learning_rate': 1e-3},
}

TYPES: dict[str, dict[str, Any]] = {'atari': {'train_steps': 10_000_000, 'buffer_size': 100_000}}

TUNED: dict[str, dict[str, Any]] = {'CartPole-v1': {'train_steps': 100_000}}
