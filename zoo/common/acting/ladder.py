"""Actors that explore each to another degree, and say how surprising what they have seen is (Ape-X).

Horgan et al. 2018, *Distributed Prioritized Experience Replay* (arXiv 1803.00933), sections 3 and 4.1. None of it needs
TensorFlow, so that actors have none.
"""

from __future__ import annotations

import copy

import numpy as np

from zoo.common import spaces
from zoo.common.acting.chain import Chain
from zoo.common.acting.forward import Forward
from zoo.common.acting.greedy import EpsilonGreedy, RecurrentEpsilonGreedy
from zoo.common.acting.noise import GaussianNoise
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.records import Trajectories
from zoo.common.sampling import Sampling


def rungs(base: float, exponent: float, first: int, count: int, total: int) -> np.ndarray:
    """``base^(1 + exponent · i / (total − 1))`` for ``i`` from ``first`` on, float64 ``[count]`` (section 4.1).

    Of one alone, for which the paper's formula is not defined, the one in the middle of the ladder.
    """
    places = np.arange(first, first + count) / (total - 1) if total > 1 else np.full(count, 0.5)
    return base ** (1.0 + exponent * places)


class Rungs:
    """Where on the ladder the copies of the environment of an actor stand: it has the ``number``-th part of them."""

    number, actors = 0, 1

    def values(self, base: float, exponent: float, copies: int) -> np.ndarray:
        """Of each copy in this process its value, float64 ``[copies]``; see :func:`rungs`."""
        return rungs(base, exponent, self.number * copies, copies, self.actors * copies)


class EpsilonLadder(Rungs, EpsilonGreedy):
    """The action of the highest value; with probability ε a random one, and each copy of the environment has its own ε.

    Args:
        forward, adaptor, mask_path: see :class:`zoo.common.acting.behavior.Behavior`.
        epsilon: the highest, of the first copy of the first actor.
        exponent: α, how far the others are below.
    """

    per_actor = True

    def __init__(
        self, forward: Forward, adaptor: ActionAdaptor, mask_path: str | None, epsilon: float, exponent: float
    ) -> None:
        super().__init__(forward, adaptor, mask_path, epsilon)
        self.base, self.exponent = epsilon, exponent

    def of_actor(self, number: int, actors: int) -> EpsilonLadder:
        """See :class:`zoo.common.acting.behavior.Behavior`."""
        twin = copy.copy(self)
        twin.number, twin.actors = number, actors
        return twin

    def chance(self, copies: int, progress: float) -> np.ndarray:
        """See :class:`zoo.common.acting.greedy.EpsilonGreedy`."""
        return self.values(self.base, self.exponent, copies)


class RecurrentEpsilonLadder(EpsilonLadder, RecurrentEpsilonGreedy):
    """The action of the highest value that a recurrent network gives; otherwise the same."""


class PrioritizingEpsilonLadder(EpsilonLadder):
    """The same by a network that is not recurrent, and it says how far off the values were that it acts by."""

    def priorities(self, rollout: Trajectories, sampling: Sampling) -> np.ndarray | None:
        """See :class:`zoo.common.acting.behavior.Behavior`: ``|Σ γ^i r + γ^n max Q(s′, ·) − Q(s, a)|`` by the network
        that acts.

        With its weights of now, which are those of the whole message. Noisy layers are the means that they have.
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
    """A deterministic policy's action in [−1, 1] and normal noise on it, of another σ for each copy of the environment.

    Args:
        forward, adaptor: see :class:`zoo.common.acting.behavior.Behavior`.
        scale: the highest σ, of the first copy of the first actor.
        exponent: α, how far the others are below.
    """

    per_actor = True
    forward: Forward | Chain

    def __init__(self, forward: Forward, adaptor: ActionAdaptor, scale: float, exponent: float) -> None:
        super().__init__(forward, adaptor, scale)
        self.exponent = exponent

    def of_actor(self, number: int, actors: int) -> NoiseLadder:
        """See :class:`zoo.common.acting.behavior.Behavior`."""
        twin = copy.copy(self)
        twin.number, twin.actors = number, actors
        return twin

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """See :class:`zoo.common.acting.noise.GaussianNoise`."""
        each = self.values(self.scale, self.exponent, shape[0]).astype(np.float32)
        return each.reshape(-1, *[1] * (len(shape) - 1)) * rng.standard_normal(shape, dtype=np.float32)


def first_errors(rollout: Trajectories, q: np.ndarray, next_value: np.ndarray, sampling: Sampling) -> np.ndarray:
    """|δ| of every step for the steps from it on that are drawn as one, float32 ``[T, N]``; 0 where none took place.

    Fewer than ``n_step`` where the episode ends, or the rollout does: as the steps would be drawn from a replay buffer
    of which these are the newest.

    Args:
        rollout: fields ``[T, N, …]``.
        q: of what was done, ``[T, N]``.
        next_value: of what was seen then, ``[T, N]``.
        sampling: how many steps are drawn as one, and the discount.
    """
    steps = len(q)
    ends = rollout.terminated | rollout.truncated | ~rollout.valid
    total = np.zeros(q.shape)
    last = np.broadcast_to(np.arange(steps)[:, None], q.shape).copy()  # of the steps that are taken
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
