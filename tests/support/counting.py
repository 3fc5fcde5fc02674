"""A toy environment with observations that say where they come from, so that every transition can be checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from zoo.common.spaces import FrameStack

PLACE = Box(-np.inf, np.inf, (3,), np.float32)
SPACES = {
    'box': PLACE,
    'float64': Box(-np.inf, np.inf, (3,), np.float64),
    'image': Box(0, 255, (2, 3), np.uint8),
    'discrete': Discrete(10**7),
    'dict': Dict(
        place=PLACE,
        deep=Dict(number=Discrete(10**7), bits=MultiBinary(4)),
        pair=Tuple((Box(0, 255, (2, 3), np.uint8), MultiDiscrete([1000, 1000, 1000]))),
    ),
    'tuple': Tuple((PLACE, Discrete(10**7))),
    'stack': FrameStack(Box(0, 255, (2, 3, 1), np.uint8), 3),
    'stack in dict': Dict(place=PLACE, view=FrameStack(Box(0, 255, (2, 3, 2), np.uint8), 2)),
}


def parts(seed: int, episode: int, t: int) -> dict[str, Any]:
    """What an observation is made of: it identifies the copy's seed, the episode and the step in it."""
    place = np.array([seed, episode, t])
    number = (seed * 100 + episode) * 100 + t
    return {
        'place': place.astype(np.float32),
        'number': number,
        'bits': (t >> np.arange(4) & 1).astype(np.int8),
        'image': np.stack([place, place + 50]).astype(np.uint8),
        'counts': place.astype(np.int64),
    }


def stack(seed: int, episode: int, t: int, frames: int, channels: int) -> np.ndarray:
    """The last frames of an episode, its first one in place of those before it."""
    past = [parts(seed, episode, max(0, t - back))['image'] for back in reversed(range(frames))]
    return np.concatenate([np.stack([frame] * channels, -1) for frame in past], -1)


def expected(form: str, seed: int, episode: int, t: int) -> Any:
    """The flat observation, written out by hand."""
    p = parts(seed, episode, t)
    return {
        'box': p['place'],
        'float64': p['place'].astype(np.float64),
        'image': p['image'],
        'discrete': p['number'],
        'dict': {
            'place': p['place'],
            'deep/number': p['number'],
            'deep/bits': p['bits'],
            'pair/0': p['image'],
            'pair/1': p['counts'],
        },
        'tuple': {'0': p['place'], '1': p['number']},
        'stack': stack(seed, episode, t, 3, 1),
        'stack in dict': {'place': p['place'], 'view': stack(seed, episode, t, 2, 2)},
    }[form]


class Counting(gymnasium.Env):
    """Episodes of 1 to 7 steps that end by termination, truncation or both; the seed decides which.

    The reward is ``1000 episode + 10 t + action``. ``info`` has ``is_success`` at the end: whether the episode is even.

    Args:
        form: a key of ``SPACES``.
        reuse: write all observations into the same arrays.
        length: of every episode; None draws it.
    """

    def __init__(self, form: str = 'box', reuse: bool = False, length: int | None = None) -> None:
        self.form, self.reuse, self.length = form, reuse, length
        self.observation_space = SPACES[form]
        self.action_space = Discrete(5)
        self.arrays: dict[str, Any] = {}
        self.seed = self.episode = -1

    def observation(self) -> Any:
        found = parts(self.seed, self.episode, self.t)
        if self.reuse:
            for name, value in found.items():
                if isinstance(value, np.ndarray):
                    np.copyto(self.arrays.setdefault(name, value), value)
                    found[name] = self.arrays[name]
        return {
            'box': found['place'],
            'float64': found['place'].astype(np.float64),
            'image': found['image'],
            'discrete': found['number'],
            'dict': {
                'pair': (found['image'], found['counts']),
                'deep': {'bits': found['bits'], 'number': found['number']},
                'place': found['place'],
            },
            'tuple': (found['place'], found['number']),
            'stack': stack(self.seed, self.episode, self.t, 3, 1),
            'stack in dict': {'place': found['place'], 'view': stack(self.seed, self.episode, self.t, 2, 2)},
        }[self.form]

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.seed, self.episode = (self.seed, self.episode + 1) if seed is None else (seed, 0)
        drawn, self.kind = int(self.np_random.integers(1, 8)), int(self.np_random.integers(3))
        self.end = self.length or drawn
        self.t = 0
        return self.observation(), {'is_success': 'of the reset', 'other': 3}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        assert 0 <= self.t < self.end, 'stepped after the end'
        reward = 1000.0 * self.episode + 10.0 * self.t + int(action)
        self.t += 1
        ended = self.t == self.end
        info = {'other': 4} | ({'is_success': self.episode % 2 == 0} if ended else {})
        return self.observation(), reward, ended and self.kind != 0, ended and self.kind != 1, info


def drive(env: Counting, seed: int, actions: Sequence[int]) -> tuple[list[tuple], list[tuple]]:
    """The environment played by hand.

    Returns:
        Transitions ``(episode, t, action, reward, terminated, truncated)`` and episodes ``(return, length, success)``.
    """
    env.reset(seed=seed)
    transitions, episodes, total = [], [], 0.0
    for action in actions:
        before = env.episode, env.t
        _, reward, terminated, truncated, info = env.step(action)
        transitions.append((*before, int(action), reward, terminated, truncated))
        total += reward
        if terminated or truncated:
            episodes.append((total, env.t, info['is_success']))
            total = 0.0
            env.reset()
    return transitions, episodes
