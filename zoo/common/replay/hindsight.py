"""Hindsight experience replay: transitions relabeled with goals that were reached."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from zoo.common.envs.goals import Goals
from zoo.common.tools.params import at_least

#: Stored steps are compared again whenever there are twice as many, up to this number.
_ENOUGH = 10_000


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """The keys of ``learn_params['her']``."""

    strategy: Annotated[
        Literal['future', 'final', 'episode'],
        'the new goal is what the same episode achieved in this step or a later one, at its end, or in any step',
    ] = 'future'
    k: Annotated[int, at_least(1), 'transitions with a new goal for each with its own'] = 4


class Hindsight:
    """Tells transitions for goals that their episodes have reached.

    Args:
        goals: the rewards of the environment.
        strategy, k: see :class:`Strategy`.

    Attributes:
        due: how many steps there are to be when they are next compared with what is computed of them.
    """

    def __init__(self, goals: Goals, strategy: str = 'future', k: int = 4) -> None:
        self.goals, self.strategy, self.k = goals, strategy, k
        self.due = 0.0

    def chosen(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Which of ``n`` transitions get another goal: each with the probability ``k / (k + 1)``; their numbers."""
        return np.flatnonzero(rng.random(n) < self.k / (self.k + 1))

    def checked_at(self, steps: int) -> None:
        """When there were so many steps, they have been compared."""
        self.due = math.inf if steps >= _ENOUGH else 2 * steps

    def tell(
        self, goal: np.ndarray, achieved: np.ndarray, steps: np.ndarray, terminated: np.ndarray, gamma: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rewards and ends of transitions of up to ``n`` steps each, for other goals.

        Args:
            goal: the new goals ``[m, …]``.
            achieved: the goals that their steps have achieved, ``[m, n, …]``.
            steps: how many each consists of, int ``[m]``; what is beyond is not looked at.
            terminated: bool ``[m]``, whether the last of them ended the episode, as it happened.
            gamma: discount.

        Returns:
            What :func:`summed` does.
        """
        m, n = achieved.shape[:2]
        taken = np.arange(n) < steps[:, None]
        ended = np.zeros((m, n), bool)
        ended[np.arange(m), steps - 1] = terminated
        reward = np.zeros((m, n), np.float32)
        pursued = np.repeat(goal, steps, axis=0)
        reward[taken] = self.goals.reward(achieved[taken], pursued)
        ended[taken] = self.goals.terminated(achieved[taken], pursued, ended[taken])
        return summed(reward, ended, steps, gamma)


def reached_at(strategy: str, at: np.ndarray, length: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Steps drawn from episodes (paper, section 4.5), whose achieved goals are to be pursued in hindsight.

    What is stored of an episode counts: of one under way the newest step is the last, of one that is being written over
    the oldest that is left is the first.

    Args:
        strategy: ``'future'``: uniformly of ``at`` and those after it; ``'final'``: the last one; ``'episode'``:
            uniformly of all.
        at: the steps for which a goal is wanted, int ``[m]``, counted from 0.
        length: steps of their episodes, int ``[m]``.
        rng: they are drawn from it.
    """
    if strategy == 'final':
        return length - 1
    return rng.integers(at if strategy == 'future' else np.zeros_like(at), length)


def summed(
    reward: np.ndarray, terminated: np.ndarray, steps: np.ndarray, gamma: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps in a row as one, up to the first that ends the episode.

    Args:
        reward, terminated: of each step, float32 and bool ``[m, n]``.
        steps: how many there are, int ``[m]``.
        gamma: discount.

    Returns:
        ``Σ γ^i r_i``, float32 ``[m]``; how many steps that are, int ``[m]``; whether the last one terminated, bool.
    """
    n = reward.shape[1]
    within = np.arange(n) < steps[:, None]
    ends = terminated & within
    over = np.asarray(ends.any(axis=1))
    steps = np.where(over, ends.argmax(axis=1) + 1, steps)
    within = np.arange(n) < steps[:, None]
    discounts = np.float64(gamma) ** np.arange(n)
    return (reward * within * discounts).sum(axis=1).astype(np.float32), steps, over
