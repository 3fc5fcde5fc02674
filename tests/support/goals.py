"""A toy goal environment with goals that say where they come from, so that relabeled transitions can be checked."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from zoo.common.spaces import FrameStack

GOAL = Box(-np.inf, np.inf, (3,), np.float64)
VECTOR = Box(-np.inf, np.inf, (2,), np.float64)
IMAGES = FrameStack(Box(0, 255, (2, 2, 1), np.uint8), 3)

#: Steps of an episode at the most.
LIMIT = 7


class Line(gymnasium.Env):
    """A walk along whole numbers: 0 where the goal is reached, and -1 elsewhere.

    The observation is ``(episode, t)``, or three frames filled with ``t``; a goal is ``(episode, t, place)``; only
    the place matters. The episodes of each copy are numbered from ``1000 * (copy + 1)`` on. The desired goal is
    ``(0, 0, ±2)``.

    Args:
        copy: its number.
        images: whether the observation is the frames.
        ends: whether an episode ends where its goal is reached.
    """

    action_space = Discrete(3)

    def __init__(self, copy: int = 0, images: bool = False, ends: bool = True) -> None:
        self.images, self.ends = images, ends
        self.observation_space = Dict(observation=IMAGES if images else VECTOR, achieved_goal=GOAL, desired_goal=GOAL)
        self.episode = 1000 * (copy + 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.t, self.place = 0, 0.0
        self.goal = np.array([0.0, 0.0, self.np_random.choice([-2.0, 2.0])])
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.place += float(action) - 1.0
        obs = self._observe()
        reward = float(self.compute_reward(obs['achieved_goal'], self.goal, {}))
        terminated = self.compute_terminated(obs['achieved_goal'], self.goal, {})
        return obs, reward, terminated, self.t == LIMIT and not terminated, {}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: dict[str, Any]) -> Any:
        assert info == {}
        return -(np.abs(achieved_goal - desired_goal)[..., 2] > 0.5).astype(np.float32)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: dict[str, Any]) -> bool:
        return self.ends and bool(np.abs(achieved_goal - desired_goal)[2] < 0.5)  # of one pair of goals alone

    def _observe(self) -> dict[str, Any]:
        return {
            'observation': frames(self.t) if self.images else np.array([self.episode, self.t], np.float64),
            'achieved_goal': np.array([self.episode, self.t, self.place]),
            'desired_goal': self.goal.copy(),
        }


def frames(t: int) -> np.ndarray:
    """The last three frames."""
    return np.broadcast_to(np.array([max(0, t - 2), max(0, t - 1), t], np.uint8), (2, 2, 3)).copy()
