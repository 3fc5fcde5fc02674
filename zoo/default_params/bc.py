"""BC's defaults.

Network and batch are from TD3+BC (Fujimoto and Gu 2021, arXiv 2106.06860), whose actor is cloned too. The rate is
larger, 1e-3 in place of 3e-4, and falls to zero, so that the end does not depend on the last batches.
"""

from __future__ import annotations

from typing import Any

from zoo.common.schedules import Linear

COMMON: dict[str, Any] = {
    'train_updates': 20_000,
    'batch_size': 256,
    'network': {'hidden': [256, 256], 'activation': 'relu'},
    'optimizer': {'name': 'Adam', 'learning_rate': Linear(1e-3)},
    # A sequence has 20 steps to learn from.
    'recurrent': {'network': {'hidden': [64]}, 'batch_size': 16},
}

#: Joint positions and velocities have very different scales.
TYPES: dict[str, dict[str, Any]] = {
    name: {'normalize_obs': True, 'train_updates': 100_000}
    for name in ('mujoco', 'dm_control', 'robotics', 'rlbench', 'brax', 'mjx')
} | {'atari': {'train_updates': 100_000, 'batch_size': 64, 'optimizer': {'learning_rate': Linear(3e-4)}}}

TUNED: dict[str, dict[str, Any]] = {
    'CartPole-v1': {'train_updates': 2000, 'batch_size': 64},
    'Pendulum-v1': {'train_updates': 10_000},
}
