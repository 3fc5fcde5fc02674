"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv 1707.01495): transitions get goals that were reached."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from zoo.common.envs.goals import Goals
from zoo.common.tools.params import at_least

#: The stored rewards are checked again whenever the number of steps has doubled, up to this number.
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
    """Chooses transitions and computes their rewards for goals that their episodes have reached.

    Its arguments are what computes the environment's rewards, and the fields of :class:`Strategy`.

    Attributes:
        due: the number of steps at which the stored rewards are next checked.
    """

    def __init__(self, goals: Goals, strategy: str = 'future', k: int = 4) -> None:
        self.goals, self.strategy, self.k = goals, strategy, k
        self.due = 0.0

    def chosen(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw which of ``n`` transitions get another goal, each with probability ``k / (k + 1)``: their numbers."""
        return np.flatnonzero(rng.random(n) < self.k / (self.k + 1))

    def checked_at(self, steps: int) -> None:
        """Take note that the rewards were checked at this number of steps."""
        self.due = math.inf if steps >= _ENOUGH else 2 * steps

    def rewards(
        self, goal: np.ndarray, achieved: np.ndarray, steps: np.ndarray, terminated: np.ndarray, gamma: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what :func:`summed` gives for transitions of up to ``n`` steps with other goals.

        Args:
            goal: the new goals ``[m, …]``.
            achieved: the goals that each of their steps achieved, ``[m, n, …]``.
            steps: the number of steps of each transition, int ``[m]``; later ones are ignored.
            terminated: bool ``[m]``, whether the last step ended the episode when it was played.
            gamma: discount.
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
    """Draw the steps of episodes whose achieved goals become the new goals (paper, section 4.5).

    Only the stored steps of an episode count: the newest one is the last step of an episode under way, and the oldest
    one left is the first step of an episode that is being written over.

    Args:
        strategy: ``'future'``: uniformly among ``at`` and later steps; ``'final'``: the last step; ``'episode'``:
            uniformly among all steps.
        at: the steps that need a goal, int ``[m]``, counted from 0.
        length: the lengths of their episodes, int ``[m]``.
    """
    if strategy == 'final':
        return length - 1
    return rng.integers(at if strategy == 'future' else np.zeros_like(at), length)


def summed(
    reward: np.ndarray, terminated: np.ndarray, steps: np.ndarray, gamma: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join successive steps into one, up to the first that ends the episode.

    Args:
        reward, terminated: of each step, float32 and bool ``[m, n]``.
        steps: the number of steps, int ``[m]``.

    Returns:
        ``Σ γ^i r_i``, float32 ``[m]``; the number of steps joined, int ``[m]``; whether the last one terminated, bool.
    """
    n = reward.shape[1]
    within = np.arange(n) < steps[:, None]
    ends = terminated & within
    over = np.asarray(ends.any(axis=1))
    steps = np.where(over, ends.argmax(axis=1) + 1, steps)
    within = np.arange(n) < steps[:, None]
    discounts = np.float64(gamma) ** np.arange(n)
    return (reward * within * discounts).sum(axis=1).astype(np.float32), steps, over
