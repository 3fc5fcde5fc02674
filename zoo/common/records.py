"""The records that rooms exchange. Their docstrings give every shape and dtype.

Letters: ``T`` steps of one copy, ``N`` copies of the environment, ``K`` updates in one call, ``B`` batch size. An
observation or action is a flat structure (:mod:`zoo.common.spaces`): one array, or a dict of arrays by path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Transition(NamedTuple):
    """One step of experience, with any leading axes (``[N]`` when collected).

    Attributes:
        obs: observation before the step, ``[…, *shape]`` in the environment's dtype.
        action: action in the policy's own units (:mod:`zoo.common.adaptors.action`), ``[…]`` or ``[…, n]``.
        reward: float32 ``[…]``, as the environment gave it.
        next_obs: observation after the step: at an episode's end the true final one, never the one after a reset.
        terminated: bool ``[…]``, the task ended: nothing of value follows.
        truncated: bool ``[…]``, the episode was cut by a time limit: the value of ``next_obs`` still counts.
    """

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    terminated: Any
    truncated: Any


class Batch(NamedTuple):
    """The batch of an off-policy update: ``n`` successive steps as one, drawn from a replay buffer, ``[K, B, …]``.

    There are fewer than ``n`` steps where the episode or the stored steps end before.

    Attributes:
        obs, action: of the first step.
        reward: float32 ``[…]``, ``Σ γ^i r_(t+i)`` over the steps.
        next_obs: after the last step.
        terminated, truncated: bool ``[…]``, whether the last step ended the episode, and how.
        discount: float32 ``[…]``, the factor of the value of ``next_obs``: ``γ^n``, and 0 where ``terminated``.
        weight: float32 ``[…]``, of the loss: corrects for priorities (Schaul et al. 2016, section 3.4); 1 where
            sampling is uniform.
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
        """Make a batch of single transitions of weight 1."""
        reward, terminated = transition.reward, transition.terminated
        return cls(*transition, np.float32(gamma) * ~terminated, np.ones(reward.shape, np.float32))


class SequenceBatch(NamedTuple):
    """The batch of an off-policy update with recurrent networks: ``C`` sequences of steps, time-major, ``[K, …]``.

    A sequence has ``R`` rows. ``L`` of them are to learn from; the rows before only bring the state up to date, the
    rows after are for n-step returns. An episode's final observation has a row of its own.

    Attributes:
        obs, action: ``[K, R, C, …]``; the action of a final observation has no meaning.
        state: float32 ``[K, C, S]``, the recurrent state of the policy at the first row.
        begins: bool ``[K, R, C]``, where an episode begins and the state is zero.
        warm: int32 ``[K, C]``, how many of the rows before bring the state up to date: they come first. The others have
            no meaning, where older steps are not held any more.
        at, after: int32 ``[K, L, C]``, the row of each transition and the row after its ``n`` steps, as numbers of the
            ``R C`` rows.
        reward, discount: float32 ``[K, L, C]``, terminated, truncated: bool, as in :class:`Batch`.
        weight: float32 ``[K, C]``, as in :class:`Batch`.
        valid: bool ``[K, L, C]``; where False, another transition of the same update stands for a missing one.
    """

    obs: Any
    action: Any
    state: Any
    begins: Any
    warm: Any
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

    Loops, storage and roles exchange them; users hold a :class:`zoo.common.rollouts.rollout.Rollout`. Except at the end
    of an episode, ``next_obs[t]`` is ``obs[t + 1]``.

    Attributes:
        valid: bool ``[T, N]``; False where a copy was only reset and no transition took place.
        state: float32 ``[N, S]``, the recurrent state before the first step, zeros where an episode begins; None where
            the policy has none.
        begins: bool ``[T, N]``, where an episode begins and the recurrent state was zero before the step; None where
            the policy has none.
        params: float32 ``[T, N, P]``, the parameters of the actions' distribution, also in rows that are not valid;
            None where the algorithm does not ask for them (``Behavior.param_size``).
        states: float32 ``[T, N, S]``, the recurrent state before each step, in place of ``state`` and ``begins``, for
            steps that go to a replay buffer; else None.
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
    """The results of whole episodes with ``P`` perturbations of the parameters, each added and subtracted.

    The second axis ``[…, 2]`` is for the perturbation that was added, then subtracted.

    Attributes:
        seeds: int64 ``[P]``, of the perturbations (:func:`zoo.common.acting.perturbed.direction`).
        returns: float64 ``[P, 2]``, the mean return of the episodes.
        lengths: int64 ``[P, 2]``, the steps of all episodes.
        observed: for each path with running statistics the moments of the observations acted on, float64
            ``[P, 2, 3, size]`` (:func:`zoo.common.maths.normalize.moments_of`).
        episodes: the number of episodes with each perturbation and sign.
    """

    seeds: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray
    observed: dict[str, np.ndarray]
    episodes: int = 1


class Episode(NamedTuple):
    """A finished episode.

    Attributes:
        episode_return: the environment's own undiscounted return.
        length: in steps.
        success: whether it succeeded; None where the environment does not say.
        copy: the number of the copy that it was played in.
    """

    episode_return: float
    length: int
    success: bool | None
    copy: int = 0


@dataclass
class TrainingResult:
    """The result of ``learn(env, 'train')``.

    Attributes:
        steps: environment steps taken in this call, summed over copies.
        episodes: episodes finished in this call.
        returns: their undiscounted returns, in the order of their ends.
        losses: the last value of every metric of ``update``.
        wall_time: in seconds.
        run_dir: the run directory, or None where nothing was written.
        episode_steps: the step count at which each episode ended, the x axis of the learning curve.
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
    """The result of ``learn(env, 'test')``: one entry for each episode. It prints as a summary.

    Attributes:
        returns: undiscounted returns.
        lengths: lengths in steps.
        successes: the environment's own ``is_success`` or ``success`` at the end, or None where it does not say.
    """

    __test__ = False  # pytest must not collect the class for its name

    returns: list[float]
    lengths: list[int]
    successes: list[bool | None]

    def __str__(self) -> str:
        if not self.returns:
            return '0 episodes'
        mean, std = np.mean(self.returns), np.std(self.returns)
        told = [f'{len(self.returns)} episodes: mean return {mean:.4g} ± {std:.4g} (standard deviation)']
        told += [f'from {min(self.returns):.4g} to {max(self.returns):.4g}', f'mean length {np.mean(self.lengths):.4g}']
        known = [success for success in self.successes if success is not None]
        return ', '.join([*told, *([f'success {np.mean(known):.0%}'] if known else [])])
