"""Statistics over seeds: interquartile means and bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: Number of runs from which on an interval by bootstrap is about as wide as it should be.
ENOUGH = 5

#: Number of bootstrap samples.
RESAMPLES = 2000


def interquartile_mean(scores: Any, axis: int = -1) -> Any:
    """Return the mean of the middle half: at either end a quarter of the scores, rounded down, is left out."""
    ordered = np.moveaxis(np.sort(np.asarray(scores, np.float64), axis), axis, -1)
    count = ordered.shape[-1]
    return ordered[..., count // 4 : count - count // 4].mean(-1)


def bootstrap_interval(
    scores: Any, statistic: Callable[..., Any] = interquartile_mean, level: float = 0.95, resamples: int = RESAMPLES
) -> tuple[Any, Any]:
    """Return the percentile interval of a statistic, by bootstrap over the first axis.

    Efron and Tibshirani 1993, chapter 13. With fewer than five runs the interval is too narrow for any statistic.

    Args:
        scores: ``[R, …]``, the scores of R runs.
        statistic: a function of an array and of the axis that it averages.
        level: level of confidence.
        resamples: number of bootstrap samples of R runs, drawn with the same seed in every call.

    Returns:
        The lower and the upper end, each ``[…]``.
    """
    scores = np.asarray(scores, np.float64)
    drawn = np.random.default_rng(0).integers(len(scores), size=(resamples, len(scores)))
    found = statistic(scores[drawn], 1)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high
