"""AC's defaults: the book gives none; these were tried here."""

from __future__ import annotations

from typing import Any

from zoo.common.schedules import Linear

COMMON: dict[str, Any] = {
    'train_steps': 1_000_000,
    'nenv': 8,
    'horizon': 1,
    'network': {'hidden': [64, 64], 'activation': 'tanh', 'initializer': 'orthogonal'},
    'optimizer': {'name': 'Adam', 'learning_rate': 1e-3},
}

TYPES: dict[str, dict[str, Any]] = {
    'mujoco': {'normalize_obs': True, 'normalize_reward': True},
    'atari': {'train_steps': 10_000_000, 'entropy_coef': 0.01},
}

for _name in ('dm_control', 'robotics', 'rlbench', 'brax', 'mjx'):
    TYPES[_name] = TYPES['mujoco']

# With a constant rate one seed of three fell from 500 to 9 near the end.
TUNED: dict[str, dict[str, Any]] = {
    'CartPole-v1': {'train_steps': 300_000, 'optimizer': {'learning_rate': Linear(1e-3, 0.0)}},
}
