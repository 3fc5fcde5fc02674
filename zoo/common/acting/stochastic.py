"""Behavior policies that sample from a distribution of actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior, Remembering
from zoo.common.acting.chain import Chain
from zoo.common.acting.forward import Forward
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.schedules import Linear, value_at
from zoo.common.spaces import Flat


class Stochastic(Behavior):
    """A sample of the policy; in tests its most probable action."""

    traces = True

    def __call__(self, obs: Flat, rng: np.random.Generator, progress: float, deterministic: bool = False) -> Flat:
        self.params = self.forward(obs)
        return self.adaptor.mode(self.params) if deterministic else self.adaptor.sample(self.params, rng)

    def chosen(self, output: Any, obs: Flat) -> Flat:
        return self.adaptor.distribution.mode(output)

    def traced(self, obs: Flat, state: Any, seed: Any, progress: Any) -> tuple[Flat, Any, Any]:
        params, after = self.traceable.tensors(obs, state if self.state_size else None)
        return self.adaptor.distribution.sample(params, seed), params, after if self.state_size else state


class RecurrentStochastic(Remembering, Stochastic):
    """A sample of a recurrent stochastic policy, or its mode."""

    def step(
        self, obs: Flat, state: np.ndarray, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> tuple[Flat, np.ndarray]:
        self.params, after = self.forward.step(obs, state)
        return (self.adaptor.mode(self.params) if deterministic else self.adaptor.sample(self.params, rng)), after


#: Steps until the matrix is drawn anew, if only the end of an episode does so.
_NEVER = 2**62


class StateDependent(Stochastic):
    """The mean of a Gaussian policy with noise added that is a function of the state.

    Generalized state-dependent exploration, Raffin et al. 2020 (arXiv 2005.05719, section 3): until its matrix is drawn
    anew, the same state gives the same noise. The matrix is standard normal; the newest σ scales it.

    Args:
        every: steps after which a copy's matrix is drawn anew within an episode; None: only when an episode begins.

    Attributes:
        noise: each copy's matrix, float32 ``[N, L n]``.
        left: steps until each copy's matrix is drawn anew, int64 ``[N]``.
    """

    along_episodes = True
    traces = False

    def __init__(self, forward: Forward | Chain, adaptor: ActionAdaptor, every: int | None) -> None:
        super().__init__(forward, adaptor)
        self.every = every
        self.noise_size = forward.noise_size
        self.left = np.zeros(0, np.int64)

    def episodes_begin(self, copies: np.ndarray) -> None:
        if self.noise is None or len(self.noise) != len(copies):
            self.noise = np.zeros((len(copies), self.noise_size), np.float32)
            self.left = np.zeros(len(copies), np.int64)
        else:
            self.left = np.where(copies, 0, self.left)

    def __call__(self, obs: Flat, rng: np.random.Generator, progress: float, deterministic: bool = False) -> Flat:
        noise = None if deterministic else self._drawn(spaces.count(obs), rng)
        output = self.forward(obs, noise)
        size = output.shape[1] // 3
        self.params = output[:, : 2 * size]
        if deterministic:
            return self.adaptor.mode(self.params)
        found = output[:, :size] + output[:, 2 * size :]
        return np.tanh(found) if self.adaptor.parts[0].kind == 'squashed_gaussian' else found

    def _drawn(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Matrices for the next step ``[N, L n]``; if N is not the number of copies, for the first step."""
        if self.noise is None or len(self.noise) != count:
            return rng.standard_normal((count, self.noise_size), dtype=np.float32)
        due = self.left <= 0
        if due.any():
            self.noise = self.noise.copy()  # someone else may hold the old array
            self.noise[due] = rng.standard_normal((int(due.sum()), self.noise_size), dtype=np.float32)
        self.left = np.where(due, self.every or _NEVER, self.left) - 1
        return self.noise


def stochastic(
    forward: Forward, adaptor: ActionAdaptor, mask_path: str | None = None, sde_sample_freq: int | None = None
) -> Stochastic:
    """The behavior of a stochastic policy: recurrent, with state-dependent exploration, or neither."""
    if forward.sde:
        return StateDependent(forward, adaptor, sde_sample_freq)
    return (RecurrentStochastic if forward.state_size else Stochastic)(forward, adaptor, mask_path)


class SometimesRandom(Stochastic):
    """A sample of a stochastic policy; with probability ε a uniformly random action."""

    traces = False

    def __init__(
        self, forward: Forward, adaptor: ActionAdaptor, mask_path: str | None, epsilon: float | Linear
    ) -> None:
        super().__init__(forward, adaptor, mask_path)
        self.epsilon = epsilon

    def __call__(self, obs: Flat, rng: np.random.Generator, progress: float, deterministic: bool = False) -> Flat:
        action = super().__call__(obs, rng, progress, deterministic)
        if deterministic:
            return action
        epsilon = value_at(self.epsilon, progress)
        if epsilon > 0:
            self.params = None  # the actions are drawn from another distribution
        random = rng.random(spaces.count(obs)) < epsilon
        if random.any():
            drawn = dict(spaces.tree_items(self.random(obs, rng)))
            for path, own in spaces.tree_items(action):
                own[random] = drawn[path][random]
        return action
