"""Actors that explore to different degrees and compute initial priorities (Ape-X), without TensorFlow.

Horgan et al. 2018, *Distributed Prioritized Experience Replay* (arXiv 1803.00933), sections 3 and 4.1.
"""

from __future__ import annotations

import copy

import numpy as np

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.acting.forward import Forward
from zoo.common.acting.greedy import EpsilonGreedy, RecurrentEpsilonGreedy
from zoo.common.acting.noise import GaussianNoise
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.records import Trajectories
from zoo.common.sampling import Sampling


def rungs(base: float, exponent: float, first: int, count: int, total: int) -> np.ndarray:
    """``base^(1 + exponent · i / (total − 1))`` for ``i`` from ``first`` on, float64 ``[count]`` (section 4.1).

    The paper's formula is not defined for ``total = 1``; then it is the middle of the ladder.
    """
    places = np.arange(first, first + count) / (total - 1) if total > 1 else np.full(count, 0.5)
    return base ** (1.0 + exponent * places)


class Rungs(Behavior):
    """The rungs of the ladder on which an actor's copies of the environment stand: the ``number``-th part of all."""

    number, actors = 0, 1
    per_actor = True
    traces = False

    def of_actor(self, number: int, actors: int) -> Rungs:
        twin = copy.copy(self)
        twin.number, twin.actors = number, actors
        return twin

    def values(self, base: float, exponent: float, copies: int) -> np.ndarray:
        """The value of each copy in this process, float64 ``[copies]``; see :func:`rungs`."""
        return rungs(base, exponent, self.number * copies, copies, self.actors * copies)


class EpsilonLadder(Rungs, EpsilonGreedy):
    """Epsilon-greedy actions where each copy of the environment has its own ε.

    Args:
        epsilon: the highest ε, which the first copy of the first actor has.
        exponent: α, how fast ε falls from copy to copy.
    """

    def __init__(
        self, forward: Forward, adaptor: ActionAdaptor, mask_path: str | None, epsilon: float, exponent: float
    ) -> None:
        super().__init__(forward, adaptor, mask_path, epsilon)
        self.base, self.exponent = epsilon, exponent

    def chance(self, copies: int, progress: float) -> np.ndarray:
        return self.values(self.base, self.exponent, copies)


class RecurrentEpsilonLadder(EpsilonLadder, RecurrentEpsilonGreedy):
    """The same by a recurrent network."""


class PrioritizingEpsilonLadder(EpsilonLadder):
    """The same by a network that is not recurrent; it computes the priorities of new steps."""

    def priorities(self, rollout: Trajectories, sampling: Sampling) -> np.ndarray | None:
        """``|Σ γ^i r + γ^n max Q(s′, ·) − Q(s, a)|`` by the acting network, ``[T, N]``; None: no priorities are kept.

        The weights are the newest, and noisy layers take their means.
        """
        if sampling.priorities is None:
            return None
        before, after = (self._values(obs) for obs in (rollout.obs, rollout.next_obs))
        of_action = np.take_along_axis(before, np.asarray(rollout.action)[..., None], -1)[..., 0]
        return first_errors(rollout, of_action, after.max(-1), sampling)

    def _values(self, obs: spaces.Flat) -> np.ndarray:
        """Q of every action for observations ``[T, N, …]``."""
        lead = next(x for _, x in spaces.tree_items(obs)).shape[:2]
        output = self.forward(spaces.tree_map(lambda x: x.reshape(-1, *x.shape[2:]), obs))
        return output.reshape(*lead, -1)


class NoiseLadder(Rungs, GaussianNoise):
    """A deterministic policy's action in [−1, 1] with normal noise added, where each copy has its own σ.

    Args:
        scale: the highest σ, which the first copy of the first actor has.
        exponent: α, how fast σ falls from copy to copy.
    """

    def __init__(self, forward: Forward, adaptor: ActionAdaptor, scale: float, exponent: float) -> None:
        super().__init__(forward, adaptor, scale)
        self.exponent = exponent

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        each = self.values(self.scale, self.exponent, shape[0]).astype(np.float32)
        return each.reshape(-1, *[1] * (len(shape) - 1)) * rng.standard_normal(shape, dtype=np.float32)


def first_errors(rollout: Trajectories, q: np.ndarray, next_value: np.ndarray, sampling: Sampling) -> np.ndarray:
    """|δ| of the n-step transition that begins at each step, float32 ``[T, N]``; 0 where no step took place.

    A transition has fewer than ``n_step`` steps where the episode or the rollout ends, as in the replay buffer.

    Args:
        rollout: fields ``[T, N, …]``.
        q, next_value: values of the actions taken and of the next observations, ``[T, N]``.
        sampling: has ``n_step`` and the discount.
    """
    steps = len(q)
    ends = rollout.terminated | rollout.truncated | ~rollout.valid
    total = np.zeros(q.shape)
    last = np.broadcast_to(np.arange(steps)[:, None], q.shape).copy()  # of each transition
    count = np.zeros(q.shape, np.int64)
    going = np.array(rollout.valid)
    for i in range(sampling.n_step):
        at = np.arange(steps) + i
        within = np.minimum(at, steps - 1)
        going = going & (at < steps)[:, None] & rollout.valid[within]
        total += np.where(going, np.float64(sampling.gamma) ** i * rollout.reward[within], 0.0)
        last = np.where(going, within[:, None], last)
        count += going
        going = going & ~ends[within]
    value, terminated = (np.take_along_axis(x, last, 0) for x in (next_value, rollout.terminated))
    target = total + np.float64(sampling.gamma) ** count * value * ~terminated
    return np.where(rollout.valid, np.abs(target - q), 0.0).astype(np.float32)
