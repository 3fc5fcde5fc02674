"""An environment of your own: nested observations, a composed action, and the same four lines.

    python examples/own_environment.py [seed]

A robot sorts parcels until its first mistake, at most twenty. It sees a camera image, and the weight and the label of
the parcel. It makes two decisions at once: how to turn its gripper, and which chute to choose. It needs the whole
observation for them. In about a minute PPO improves from less than one point to more than 12 of 20, with every seed
that was tried.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from zoo.algorithms import PPO
from zoo.common.env_wrappers import build_env
from zoo.common.utils import call_default_params

LABELS = 3
HEAVY = LABELS  # one chute for each label, and one for heavy parcels


class Sorting(gymnasium.Env):
    """Sorting: half a point for the right turn of the gripper, half a point for the right chute."""

    def __init__(self) -> None:
        self.observation_space = Dict(
            {
                'camera': Box(0, 255, (16, 16, 3), np.uint8),
                'parcel': Dict({'weight': Box(0.0, 10.0, (1,), np.float32), 'label': Discrete(LABELS)}),
            }
        )
        self.action_space = MultiDiscrete([2, LABELS + 1])  # gripper, chute

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._next_parcel(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        gripper, chute = action
        right_chute = HEAVY if self.weight > 5.0 else self.label
        reward = 0.5 * (gripper == self.lies_across) + 0.5 * (chute == right_chute)
        return self._next_parcel(), reward, reward < 1.0, False, {}

    def _next_parcel(self) -> dict[str, Any]:
        self.weight = self.np_random.uniform(0.0, 10.0)
        self.label = int(self.np_random.integers(LABELS))
        self.lies_across = int(self.np_random.integers(2))
        image = self.np_random.integers(0, 60, (16, 16, 3), dtype=np.uint8)  # a dark belt, and a bright parcel on it
        row, column = self.np_random.integers(0, [11, 5])
        (image if self.lies_across else image.swapaxes(0, 1))[row : row + 5, column : column + 11] += 150
        return {'camera': image, 'parcel': {'weight': np.array([self.weight], np.float32), 'label': self.label}}


seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
env = build_env(Sorting, 'gymnasium', max_episode_steps=20, seed=seed)
alg_params, learn_params = call_default_params(env, 'gymnasium', 'PPO', seed=seed)
learn_params['train_steps'] = 30_000  # the default, 1,000,000, is for harder tasks
agent = PPO(**alg_params)
before = agent.learn(env, 'test', seed=seed, test_episodes=100)
trained = agent.learn(env, 'train', **learn_params)
after = agent.learn(env, 'test', seed=seed, test_episodes=100)

print(f'Points before training: {sum(before.returns) / 100:.1f} of 20')
print(f'Points after {trained.steps:,} steps: {sum(after.returns) / 100:.1f} of 20')
print(f'Run directory: {trained.run_dir}')
