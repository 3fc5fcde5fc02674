"""Statistics over seeds: interquartile means and bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: Resamples of a bootstrap.
RESAMPLES = 2000


def interquartile_mean(scores: Any, axis: int = -1) -> Any:
    """The mean of the middle half: a quarter of the scores, rounded down, is left out at either end.

    Args:
        scores: numbers, at least one along ``axis``.
        axis: which is summed up.
    """
    ordered = np.moveaxis(np.sort(np.asarray(scores, np.float64), axis), axis, -1)
    count = ordered.shape[-1]
    return ordered[..., count // 4 : count - count // 4].mean(-1)


def bootstrap_interval(
    scores: Any, statistic: Callable[..., Any] = interquartile_mean, level: float = 0.95, resamples: int = RESAMPLES
) -> tuple[Any, Any]:
    """The percentile interval of a statistic, by bootstrap over the first axis (Efron and Tibshirani 1993, chapter 13).

    With fewer than five runs it is too narrow, whatever the statistic.

    Args:
        scores: ``[R, …]``, of R runs.
        statistic: a function of numbers and of the axis that it sums up.
        level: of the confidence.
        resamples: how often R runs are drawn of the R, with the same seed every time.

    Returns:
        Its lower and its upper end, ``[…]``.
    """
    scores = np.asarray(scores, np.float64)
    drawn = np.random.default_rng(0).integers(len(scores), size=(resamples, len(scores)))
    found = statistic(scores[drawn], 1)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high
