"""TQC's defaults: SAC's, with the truncation that each task needs.

Kuznetsov et al. 2020 (arXiv 2005.04269, table of hyper-parameters) take SAC's values too, except for the number of
critics. ``TUNED`` starts from RL Baselines3 Zoo.
"""

from __future__ import annotations

from typing import Any

from zoo.default_params import sac

COMMON = sac.COMMON

TYPES = {name: sac.TYPES[name] for name in ('mujoco', 'box2d', 'dm_control', 'robotics')}

_AS_SAC = (
    'Pendulum-v1',
    'MountainCarContinuous-v0',
    'LunarLanderContinuous-v3',
    'BipedalWalker-v3',
    'Swimmer-v5',
    'Humanoid-v5',
)

# The source adds the remaining time to the observation.
_FETCH: dict[str, Any] = {'tau': 0.05, 'network': {'hidden': [512, 512, 512]}}

TUNED: dict[str, dict[str, Any]] = {name: sac.TUNED[name] for name in _AS_SAC} | {
    # The paper tunes ``drop`` for each robot: 0 here, where RL Baselines3 Zoo has 2.
    'HalfCheetah-v5': {'drop': 0},
    'Hopper-v5': {'drop': 5},
    'FetchPush-v4': {**_FETCH, 'batch_size': 2048},
    'FetchPickAndPlace-v4': {**_FETCH, 'batch_size': 1024},
    'FetchSlide-v4': {**_FETCH, 'batch_size': 2048, 'train_steps': 2_500_000},
}
