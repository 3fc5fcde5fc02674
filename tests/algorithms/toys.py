"""Toy environments for the algorithms: over any two spaces, and small tasks that are learned in seconds."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

#: Every kind of observation; the mask's space depends on the action's, see `observation_space`.
OBSERVATIONS: dict[str, Space] = {
    'vector': Box(-1.0, 1.0, (3,), np.float32),
    'image': Box(0, 255, (10, 12, 3), np.uint8),
    'image CHW': Box(0.0, 1.0, (1, 9, 8), np.float32),
    'image 2-D': Box(0, 255, (8, 8), np.uint8),
    'Discrete': Discrete(5, start=2),
    'large Discrete': Discrete(1000),
    'MultiDiscrete': MultiDiscrete([3, 2], start=[1, 0]),
    'MultiBinary': MultiBinary((2, 2)),
    'Tuple': Tuple((Box(-1.0, 1.0, (2,), np.float64), Discrete(3))),
    'nested Dict': Dict(
        camera=Box(0, 255, (8, 9, 3), np.uint8),
        robot=Dict(pose=Box(-1.0, 1.0, (2, 2), np.float32), mode=Discrete(3)),
    ),
    'masked Dict': Dict(pose=Box(-1.0, 1.0, (3,), np.float32)),
}

#: Every kind of action.
ACTIONS: dict[str, Space] = {
    'Discrete': Discrete(4, start=-1),
    'MultiDiscrete': MultiDiscrete([3, 2], start=[0, 5]),
    'MultiBinary': MultiBinary(3),
    'Box': Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32)),
    'Box 2-D': Box(-1.0, 3.0, (2, 2), np.float32),
    'Dict': Dict(grip=Discrete(3), arm=Dict(force=Box(-1.0, 1.0, (2,), np.float32), switches=MultiBinary(2))),
    'Tuple': Tuple((MultiDiscrete([2, 3]), Box(0.0, 1.0, (1,), np.float32))),
}


def observation_space(name: str, action_space: Space) -> Space:
    """A kind of observation; a masked one gets one entry for each action (three where masks do not apply)."""
    space = OBSERVATIONS[name]
    if name != 'masked Dict':
        return space
    counts = {Discrete: lambda s: s.n, MultiDiscrete: lambda s: s.nvec.sum()}.get(type(action_space), lambda s: 3)
    return Dict({**space.spaces, 'action_mask': MultiBinary(int(counts(action_space)))})


class AnySpaces(gymnasium.Env):
    """Random observations of a space; refuses actions outside its own and those that it masked.

    Episodes end after 5 steps, by turns by termination and by truncation.
    """

    def __init__(self, observation_space: Space, action_space: Space) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.masked = isinstance(observation_space, Dict) and 'action_mask' in observation_space.spaces
        self.episode = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        self.episode += 1
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f'{action!r} is not in {self.action_space}'
        self._check_mask(action)
        self.t += 1
        over, terminates = self.t == 5, self.episode % 2 == 0
        return self._observe(), float(self.np_random.normal()), over and terminates, over and not terminates, {}

    def _observe(self) -> Any:
        obs = self.observation_space.sample()
        if self.masked:
            counts = self._counts()
            pieces = [self.np_random.random(n) < 0.5 for n in counts]
            for piece in pieces:
                piece[self.np_random.integers(len(piece))] = True  # at least one action is allowed
            obs['action_mask'] = np.concatenate(pieces).astype(np.int8)
            self.allowed = pieces
        return obs

    def _counts(self) -> list[int]:
        if isinstance(self.action_space, Discrete):
            return [int(self.action_space.n)]
        if isinstance(self.action_space, MultiDiscrete):
            return self.action_space.nvec.tolist()
        return [3]

    def _check_mask(self, action: Any) -> None:
        if self.masked and isinstance(self.action_space, Discrete | MultiDiscrete):
            chosen = np.atleast_1d(action - self.action_space.start)
            assert all(piece[i] for piece, i in zip(self.allowed, chosen, strict=True)), f'{action} is masked'
