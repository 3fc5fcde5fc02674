"""VPG's defaults: REINFORCE's paper gives none; these were tried here."""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {
    'train_steps': 1_000_000,
    'rollout_size': 1024,
    'network': {'hidden': [64, 64], 'activation': 'tanh', 'initializer': 'orthogonal'},
    'optimizer': {'name': 'Adam', 'learning_rate': 3e-3},
}

TYPES: dict[str, dict[str, Any]] = {
    'mujoco': {'normalize_obs': True, 'normalize_reward': True},
    'atari': {'train_steps': 10_000_000, 'entropy_coef': 0.01, 'optimizer': {'learning_rate': 1e-3}},
}

for _name in ('dm_control', 'robotics', 'rlbench', 'brax', 'mjx'):
    TYPES[_name] = TYPES['mujoco']

TUNED: dict[str, dict[str, Any]] = {
    # The last weights reached 475 on 18 of the 20 seeds from 500 on. Their mean over the last fifth of the training got
    # 500 on all of the 20 seeds from 100 on.
    'CartPole-v1': {'train_steps': 300_000, 'average_window': 0.2, 'recurrent': {'average_window': 0.0}},
}
