"""An environment whose steps are sleeps, and small agents for it: what scaling.py and many.py measure with."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

EPISODE = 200  # steps


class Sleeping(gymnasium.Env):
    """An environment with 17 random numbers as observation and 6 actions, continuous or discrete. A step is a sleep.

    Args:
        seconds: of a step.
        discrete: whether there are 6 actions and not 6 numbers.
        length: of an episode, steps.
    """

    def __init__(self, seconds: float = 0.0, discrete: bool = False, length: int = EPISODE) -> None:
        self.seconds, self.length, self.t = seconds, length, 0
        self.observation_space = Box(-1.0, 1.0, (17,), np.float32)
        self.action_space = Discrete(6) if discrete else Box(-1.0, 1.0, (6,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.uniform(-1, 1, 17).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.seconds:
            time.sleep(self.seconds)
        self.t += 1
        seen = self.np_random.uniform(-1, 1, 17).astype(np.float32)
        return seen, float(seen[0]), False, self.t == self.length, {}


def agent_for(alg: str, env: Any) -> tuple[Any, dict[str, Any]]:
    """Return an algorithm with its defaults and networks of 64 × 64, and the parameters of its ``learn``."""
    from zoo import algorithms, call_default_params

    alg_params, learn_params = call_default_params(env, 'gymnasium', alg, seed=0)
    if alg != 'ARS':  # its policy is linear
        alg_params['net_list'] = [
            entry if isinstance(entry, str) else entry | {'hidden': [64, 64]} for entry in alg_params['net_list']
        ]
    return getattr(algorithms, alg)(**alg_params), learn_params | {'run_dir': False, 'verbose': 0}
