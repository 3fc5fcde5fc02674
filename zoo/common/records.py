"""The records that cross the boundaries between the parts. Their docstrings give every shape and dtype.

Letters: ``T`` steps of one copy, ``N`` copies of the environment, ``K`` updates in one call, ``B`` batch size. An
observation or action is a flat structure (see :mod:`zoo.common.spaces`): one array, or a dict of arrays by path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Transition(NamedTuple):
    """One step of experience, with any leading axes (``[N]`` as it is collected).

    Attributes:
        obs: observation before the step, ``[…, *shape]`` in the environment's dtype.
        action: action in the policy's own units (see :mod:`zoo.common.adaptors.action`), ``[…]`` or ``[…, n]``.
        reward: float32 ``[…]``, as the environment gave it.
        next_obs: observation after the step, the true final one at an episode's end, never the one after a reset.
        terminated: bool ``[…]``, the task ended: nothing of value follows.
        truncated: bool ``[…]``, the episode was cut (time limit): the value of ``next_obs`` still counts.
    """

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    terminated: Any
    truncated: Any


class Batch(NamedTuple):
    """What an update off policy is given: ``n`` steps in a row as one, drawn from a replay buffer, ``[K, B, …]``.

    Fewer than ``n`` where an episode ends, or the newest step that is stored is reached, before.

    Attributes:
        obs, action: of the first step; see :class:`Transition`.
        reward: float32 ``[…]``, ``Σ γ^i r_(t+i)`` over the steps.
        next_obs: after the last step.
        terminated, truncated: bool ``[…]``, whether the last step ended the episode, and how.
        discount: float32 ``[…]``, what the value of ``next_obs`` is multiplied by: ``γ^n``, and 0 where ``terminated``.
        weight: float32 ``[…]``, of the loss: corrects for what is drawn more often than other transitions (Schaul et
            al. 2016, section 3.4); 1 where all are drawn alike.
    """

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    terminated: Any
    truncated: Any
    discount: Any
    weight: Any

    @classmethod
    def of(cls, transition: Transition, gamma: float) -> Batch:
        """Transitions, each by itself, that are drawn alike."""
        reward, terminated = transition.reward, transition.terminated
        return cls(*transition, np.float32(gamma) * ~terminated, np.ones(reward.shape, np.float32))


class SequenceBatch(NamedTuple):
    """What an update off policy is given where networks are recurrent: parts of episodes in a row, ``[K, …]``.

    ``C`` sequences of ``R`` rows, time-major, of which ``L`` are learned from: those before them only bring the state
    up to date, those after them are looked ahead to. An episode's last observation has a row of its own.

    Attributes:
        obs, action: ``[K, R, C, …]``; an episode's last observation has an action that means nothing.
        state: float32 ``[K, C, S]``, the recurrent state that was acted with at the first row.
        begins: bool ``[K, R, C]``, where an episode begins, and the state is zero.
        at, after: int32 ``[K, L, C]``, of each transition its row and the row in which its ``n`` steps end, as numbers
            of the ``R C`` rows.
        reward, discount: float32 ``[K, L, C]``, terminated, truncated: bool, see :class:`Batch`.
        weight: float32 ``[K, C]``, see :class:`Batch`.
        valid: bool ``[K, L, C]``; where False there was no transition, and another one of the same update is in its
            place.
    """

    obs: Any
    action: Any
    state: Any
    begins: Any
    at: Any
    after: Any
    reward: Any
    discount: Any
    terminated: Any
    truncated: Any
    weight: Any
    valid: Any


class Trajectories(NamedTuple):
    """``T`` consecutive steps of ``N`` copies, time-major; the fields of :class:`Transition`, each ``[T, N, …]``.

    What loops, storage and ranks hand on; the rollout that a user holds is
    :class:`zoo.common.rollouts.rollout.Rollout`.

    ``next_obs[t]`` is ``obs[t + 1]`` but at the end of an episode.

    Attributes:
        valid: bool ``[T, N]``; False where a vector environment only reset itself and no transition took place.
        state: float32 ``[N, S]``, the recurrent state that was acted with at the first step, of zeros where an episode
            begins; None where the policy has none.
        begins: bool ``[T, N]``, where an episode begins, and the recurrent state was zero before the step; None where
            the policy has none.
        params: float32 ``[T, N, P]``, the parameters of the distribution that the actions were drawn from, in the rows
            that are not valid too; None where the algorithm does not ask for them (``Behavior.param_size``).
        states: float32 ``[T, N, S]``, the recurrent state before each step, in place of ``state`` and ``begins`` where
            the steps go to a replay buffer; else None.
    """

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    terminated: Any
    truncated: Any
    valid: Any
    state: Any = None
    begins: Any = None
    params: Any = None
    states: Any = None


class Evaluations(NamedTuple):
    """What came of playing whole episodes with ``P`` perturbations of the parameters, each of them both ways.

    On the second axis ``[…, 2]`` the perturbation that was added, then the one that was subtracted.

    Attributes:
        seeds: int64 ``[P]``, of the perturbations: see :func:`zoo.common.acting.perturbed.direction`.
        returns: float64 ``[P, 2]``, the mean over the episodes of the sum of their rewards.
        lengths: int64 ``[P, 2]``, steps of all episodes.
        observed: of what was acted on, for each path with running statistics, float64 ``[P, 2, 2, size]``: the sum and
            the sum of squares of the distances from the mean that the statistics had.
        episodes: with each perturbation each way.
    """

    seeds: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray
    observed: dict[str, np.ndarray]
    episodes: int = 1


class Episode(NamedTuple):
    """A finished episode: the environment's own undiscounted return, its length in steps, whether it succeeded.

    ``copy`` is the number of the copy of the environment that it was played in.
    """

    episode_return: float
    length: int
    success: bool | None
    copy: int = 0


@dataclass
class TrainingResult:
    """What ``learn(env, 'train')`` returns.

    Attributes:
        steps: environment steps taken in this call, summed over copies.
        episodes: episodes finished in this call.
        returns: their undiscounted returns, in the order in which they ended.
        losses: the last value of every metric that ``update`` reported.
        wall_time: seconds.
        run_dir: the run directory, or None when nothing was written.
        episode_steps: the step count at which each episode ended, the abscissa of the learning curve.
    """

    steps: int
    episodes: int
    returns: list[float] = field(repr=False)
    losses: dict[str, float]
    wall_time: float
    run_dir: Path | None
    episode_steps: list[int] = field(default_factory=list, repr=False)


@dataclass
class TestResult:
    """What ``learn(env, 'test')`` returns: one entry per episode.

    Attributes:
        returns: undiscounted returns.
        lengths: lengths in steps.
        successes: the environment's own ``is_success`` or ``success`` at the end, or None where it does not say.
    """

    __test__ = False  # the name is the interface's; pytest is not to collect it

    returns: list[float]
    lengths: list[int]
    successes: list[bool | None]
