"""An environment that takes a memory; in a module that imports no TensorFlow, as actors import it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Cue(gymnasium.Env):
    """Shows −1 or 1 in the first of three steps; in the last one that is to be the action."""

    observation_space = Box(-1, 1, (2,), np.float32)

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.cue, self.t = self.np_random.choice([-1, 1]), 0
        return np.array([self.cue, 0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        wanted = self.cue if isinstance(self.action_space, Box) else (self.cue + 1) // 2
        reward = 1.0 - abs(float(np.squeeze(action)) - wanted) if self.t == 3 else 0.0
        return np.array([0, self.t], np.float32), reward, self.t == 3, False, {}
