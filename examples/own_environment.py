"""An environment of your own, with a nested observation and a composed action; PPO learns it from the four lines, unchanged.

    python examples/own_environment.py

A robot arm sorts twenty parcels. Of each it gets a camera image, the weight and the label, and it decides on two things at
once: how to turn the gripper and into which chute the parcel goes. It has to use all three parts of the observation, and
guessing sorts 7.5 points' worth of twenty.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from zoo.algorithms import PPO
from zoo.common.env_wrappers import build_env
from zoo.common.utils import call_default_params

LABELS = 3
HEAVY_CHUTE = LABELS  # one chute for each label, and one for whatever is too heavy for the others


class Sorting(gymnasium.Env):
    """Half a point for the gripper turned as the parcel lies, half a point for the right chute."""

    def __init__(self, parcels: int = 20) -> None:
        self.parcels = parcels
        self.observation_space = Dict(
            {
                'camera': Box(0, 255, (16, 16, 3), np.uint8),
                'parcel': Dict({'weight': Box(0.0, 10.0, (1,), np.float32), 'label': Discrete(LABELS)}),
            }
        )
        self.action_space = MultiDiscrete([2, LABELS + 1])  # gripper: across or along; chute

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.sorted = 0
        return self._next_parcel(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        gripper, chute = action
        right_chute = HEAVY_CHUTE if self.weight > 5.0 else self.label
        reward = 0.5 * (gripper == self.lies_along) + 0.5 * (chute == right_chute)
        self.sorted += 1
        return self._next_parcel(), reward, self.sorted == self.parcels, False, {}

    def _next_parcel(self) -> dict[str, Any]:
        self.lies_along = int(self.np_random.integers(2))
        self.label = int(self.np_random.integers(LABELS))
        self.weight = self.np_random.uniform(0.0, 10.0)
        image = self.np_random.integers(0, 60, (16, 16, 3), dtype=np.uint8)  # an unlit belt, and a light parcel on it
        row, column = self.np_random.integers(0, [11, 5])
        parcel = np.s_[row : row + 5, column : column + 11]
        (image if self.lies_along else image.swapaxes(0, 1))[parcel] += 150
        return {
            'camera': image,
            'parcel': {'weight': np.array([self.weight], np.float32), 'label': self.label},
        }


env = build_env(Sorting, 'gymnasium')
alg_params, learn_params = call_default_params(env, 'gymnasium', 'PPO')
learn_params['train_steps'] = 20_000  # enough here; the default is 1,000,000
agent = PPO(**alg_params)


def mean_return() -> float:
    """Of twenty test episodes."""
    returns = agent.learn(env, 'test', test_episodes=20).returns
    return sum(returns) / len(returns)


print(f'Points of 20 before training: {mean_return():.1f}')
trained = agent.learn(env, 'train', **learn_params)
print(f'Points of 20 after {trained.steps:,} steps: {mean_return():.1f}')
print(f'Run directory: {trained.run_dir}')
