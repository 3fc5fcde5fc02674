"""DDPG's defaults: the same as TD3's.

Fujimoto et al. 2018 (arXiv 1802.09477, "our DDPG", section 6.1 and table 3) trained DDPG with them: it learns more
reliably than with the values of Lillicrap et al. 2016.
"""

from __future__ import annotations

from zoo.default_params import td3

COMMON = td3.COMMON

TYPES = td3.TYPES

TUNED = td3.TUNED | {
    # RL Baselines3 Zoo has this kind of noise for both DDPG and TD3.
    'MountainCarContinuous-v0': td3.TUNED['MountainCarContinuous-v0'] | {'noise': 'ornstein_uhlenbeck'}
}
