"""GAIL's defaults: PPO's, and a discriminator with a network like the policy's.

The weight of the gradient penalty is from Gulrajani et al. 2017 (arXiv 1704.00028).
"""

from __future__ import annotations

from typing import Any

from zoo.default_params import ppo

#: The discriminator judges single steps.
_FEED_FORWARD = {'networks': {'discriminator': {'recurrent': None}}}


def imitating(level: dict[str, Any]) -> dict[str, Any]:
    """Return a level of an on-policy table without the scale of rewards, which the discriminator gives."""
    kept = {key: value for key, value in level.items() if key != 'normalize_reward'}
    return kept | ({'recurrent': imitating(kept['recurrent'])} if 'recurrent' in kept else {})


def with_discriminator(common: dict[str, Any]) -> dict[str, Any]:
    """Return ``COMMON`` of an on-policy table with what the discriminator needs."""
    found = imitating(common)
    if 'recurrent' in found:
        found['recurrent'] |= _FEED_FORWARD
    own = {'discriminator_updates': 10, 'discriminator_batch': 256}
    return found | own | {'optimizers': {'discriminator': {'learning_rate': 3e-4}}}


COMMON: dict[str, Any] = with_discriminator(ppo.COMMON)
TYPES: dict[str, dict[str, Any]] = {name: imitating(level) for name, level in ppo.TYPES.items()}
TYPES['atari'] |= {'discriminator_batch': 64}
TUNED: dict[str, dict[str, Any]] = {name: imitating(level) for name, level in ppo.TUNED.items()}
