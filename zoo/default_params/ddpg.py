"""DDPG's defaults: TD3's, whose authors trained their own DDPG with them.

Fujimoto et al. 2018 (arXiv 1802.09477, "our DDPG", section 6.1 and table 3): it learns more surely than with the values
of Lillicrap et al. 2016.
"""

from __future__ import annotations

from zoo.default_params import td3

COMMON = td3.COMMON

TYPES = td3.TYPES

# The source of TD3's has this kind of noise for both.
TUNED = td3.TUNED | {
    'MountainCarContinuous-v0': td3.TUNED['MountainCarContinuous-v0'] | {'noise': 'ornstein_uhlenbeck'}
}
