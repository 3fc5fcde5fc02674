"""DPPO's defaults: PPO's, whose iterations and minibatches two learners, with an actor each, share equally."""

from __future__ import annotations

from typing import Any

from zoo.default_params import ppo

#: What each of the two has its half of; with other ``roles`` it is for the user to divide.
SHARED = ('rollout_size', 'batch_size')


def halved(level: dict[str, Any]) -> dict[str, Any]:
    """A level of PPO's table with the half of what is shared, also of what it has for recurrent networks."""
    return {
        key: value // 2 if key in SHARED else halved(value) if key == 'recurrent' else value
        for key, value in level.items()
    }


COMMON: dict[str, Any] = halved(ppo.COMMON)
TYPES: dict[str, dict[str, Any]] = {name: halved(level) for name, level in ppo.TYPES.items()}
TUNED: dict[str, dict[str, Any]] = {name: halved(level) for name, level in ppo.TUNED.items()}
