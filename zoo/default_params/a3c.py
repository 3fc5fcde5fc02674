"""A3C's defaults: A2C's. Its source steps several copies of an environment; here each actor steps one.

So a gradient has fewer steps, and there are more gradients. Where A2C's rate falls or is small, A3C keeps it.
"""

from __future__ import annotations

from typing import Any

from zoo.common.schedules import Linear
from zoo.default_params import a2c


def without(level: dict[str, Any]) -> dict[str, Any]:
    """Return a level of A2C's table without copies and reward scaling, which A3C does not have."""
    return {key: value for key, value in level.items() if key not in ('normalize_reward', 'nenv')}


COMMON: dict[str, Any] = without(a2c.COMMON)
TYPES: dict[str, dict[str, Any]] = {name: without(level) for name, level in a2c.TYPES.items()}
TUNED: dict[str, dict[str, Any]] = {name: without(level) for name, level in a2c.TUNED.items()} | {
    'CartPole-v1': {'train_steps': 300_000, 'horizon': 20, 'optimizer': {'learning_rate': Linear(1e-3)}},
}
