"""DPPO's defaults: PPO's, with iterations and minibatches shared equally by two learners with an actor each."""

from __future__ import annotations

from typing import Any

from zoo.default_params import ppo

#: Each of the two has half of these; with other ``roles`` the user divides them.
SHARED = ('rollout_size', 'batch_size')


def halved(level: dict[str, Any]) -> dict[str, Any]:
    """Return a level of PPO's table with half of each shared value, also in its part for recurrent networks."""
    return {
        key: value // 2 if key in SHARED else halved(value) if key == 'recurrent' else value
        for key, value in level.items()
    }


COMMON: dict[str, Any] = halved(ppo.COMMON)
TYPES: dict[str, dict[str, Any]] = {name: halved(level) for name, level in ppo.TYPES.items()}
TUNED: dict[str, dict[str, Any]] = {name: halved(level) for name, level in ppo.TUNED.items()}
