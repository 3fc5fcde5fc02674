"""Rollouts for the tests of the on-policy algorithms, and what is made of them, by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.common.records import Trajectories


def rollout(agent: Any, steps: int = 5, copies: int = 4, seed: int = 0) -> Trajectories:
    """Random experience ``[T, N]``: one copy never ends, one terminates, one is cut, one is also reset in a step."""
    rng = np.random.default_rng(seed)
    shape = (steps, copies)
    terminated, truncated, valid = np.zeros(shape, bool), np.zeros(shape, bool), np.ones(shape, bool)
    terminated[2, 1] = truncated[2, 2] = terminated[1, 3] = True
    valid[2, 3] = False
    action = agent.action_adaptor.random(steps * copies, rng)
    obs, next_obs = rng.normal(size=(2, *shape, 3)).astype(np.float32)
    goes_on = ~(terminated | truncated)[:-1]
    next_obs[:-1][goes_on] = obs[1:][goes_on]
    return Trajectories(
        obs=obs,
        action=action.reshape(shape + action.shape[1:]),
        reward=rng.normal(size=shape).astype(np.float32),
        next_obs=next_obs,
        terminated=terminated,
        truncated=truncated,
        valid=valid,
    )


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def gae_by_hand(agent: Any, data: Trajectories, value: np.ndarray, next_value: np.ndarray) -> np.ndarray:
    """Backwards over each copy; an end stops what flows back, and only a termination drops the next value."""
    advantage = np.zeros(data.reward.shape)
    for n in range(data.reward.shape[1]):
        following = 0.0
        for t in reversed(range(data.reward.shape[0])):
            alive = 0.0 if data.terminated[t, n] else 1.0
            delta = data.reward[t, n] + agent.gamma * alive * next_value[t, n] - value[t, n]
            ended = data.terminated[t, n] or data.truncated[t, n]
            following = delta + (0.0 if ended else agent.gamma * agent.gae_lambda * following)
            advantage[t, n] = following
    return advantage
