"""Statistics over runs in several environments: aggregates, performance profiles, probabilities of improvement.

Agarwal et al. 2021, *Deep Reinforcement Learning at the Edge of the Statistical Precipice* (arXiv 2108.13264).

``scores`` is a list with one array ``[…, R]`` for each environment: the normalized scores of R runs. R may differ
between environments. Every environment counts the same, however many runs it has. Leading axes are batches, such as
bootstrap samples, and are the leading axes of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zoo.experiments.statistics import RESAMPLES

#: The normalized scores of runs, an array ``[…, R]`` for each environment.
Scores = Sequence[np.ndarray]


def normalize(scores: Any, random: float, reference: float) -> np.ndarray:
    """Return scores on the scale on which a random policy has 0 and a reference has 1; shape ``[…]`` as given.

    Section 2. ``reference`` must be above ``random``.
    """
    return (np.asarray(scores, np.float64) - random) / (reference - random)


def mean(scores: Scores) -> np.ndarray:
    """Return the mean over environments of the mean of their runs, ``[…]``. Few high scores dominate it."""
    return _by_environment(scores).mean(-1)


def median(scores: Scores) -> np.ndarray:
    """Return the median over environments of the mean of their runs, ``[…]``. Half of them do not change it."""
    return np.median(_by_environment(scores), -1)


def interquartile_mean(scores: Scores) -> np.ndarray:
    """Return the mean of the middle half of the runs of all environments together, ``[…]``.

    Section 4.3. At either end a quarter of the number of runs, rounded down, is left out. With equally many runs in all
    environments this is ``scipy.stats.trim_mean(…, 0.25, axis=None)``. Otherwise a run weighs one by the number of runs
    of its environment, and the cut may go through a run.
    """
    pooled = np.concatenate([np.asarray(own, np.float64) for own in scores], -1)
    weights = np.concatenate([np.full(own.shape[-1], 1 / (len(scores) * own.shape[-1])) for own in scores])
    order = np.argsort(pooled, -1)
    upper = np.cumsum(weights[order], -1)
    cut = (pooled.shape[-1] // 4) / pooled.shape[-1]
    kept = np.minimum(upper, 1 - cut) - np.maximum(upper - weights[order], cut)
    kept = np.maximum(kept, 0.0)
    return (np.take_along_axis(pooled, order, -1) * kept).sum(-1) / kept.sum(-1)


def optimality_gap(scores: Scores) -> np.ndarray:
    """Return how much scores lack to 1 on average, ``[…]``; a score above 1 lacks nothing. Section 4.3."""
    return 1 - mean([np.minimum(own, 1.0) for own in scores])


def performance_profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """Return the fraction of runs with a score above each threshold.

    Section 4.2, equation 2: the fraction within an environment, averaged over environments.

    Args:
        scores: one array ``[…, R]`` for each environment.
        thresholds: ``[T]``.

    Returns:
        ``[…, T]``, falling from 1 to 0 along the last axis.
    """
    return np.mean([(own[..., None, :] > thresholds[:, None]).mean(-1) for own in map(np.asarray, scores)], 0)


def probability_of_improvement(scores: Scores, others: Scores) -> np.ndarray:
    """Return how likely a run of one algorithm is better than a run of another, ``[…]``.

    Section 4.3: the average over environments of the Mann-Whitney statistic, divided by the number of pairs. A pair
    with equal scores counts half.

    Args:
        scores: one array ``[…, R]`` for each environment.
        others: one array ``[…, Q]`` for each environment, in the same order.
    """
    pairs = zip(map(np.asarray, scores), map(np.asarray, others), strict=True)
    return np.mean([np.mean(_wins(one[..., :, None], other[..., None, :]), (-2, -1)) for one, other in pairs], 0)


def stratified_interval(
    statistic: Callable[..., np.ndarray], *groups: Scores, level: float = 0.95, resamples: int = RESAMPLES
) -> tuple[Any, Any]:
    """Return the percentile interval of a statistic by stratified bootstrap.

    Section 4.1: a bootstrap sample draws, in each environment, as many runs as there are, with replacement. The
    environments stay. With few runs the interval is too narrow: with R runs by a factor of about ``sqrt(1 - 1 / R)``.

    Args:
        statistic: a function of the groups, such as :func:`interquartile_mean` of one or
            :func:`probability_of_improvement` of two.
        *groups: the scores of each algorithm, one array ``[R]`` for each environment.
        level: level of confidence.
        resamples: number of bootstrap samples, drawn with the same seed in every call.

    Returns:
        The lower and the upper end, each with the shape of the statistic.
    """
    rng = np.random.default_rng(0)

    def drawn(own: np.ndarray) -> np.ndarray:
        return np.asarray(own)[rng.integers(len(own), size=(resamples, len(own)))]

    found = statistic(*([drawn(own) for own in scores] for scores in groups))
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def _by_environment(scores: Scores) -> np.ndarray:
    """Return the mean of the runs of each environment, ``[…, M]``."""
    return np.stack([np.mean(own, -1) for own in scores], -1)


def _wins(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one > other) + 0.5 * (one == other)
