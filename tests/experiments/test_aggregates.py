"""Statistics over environments, by hand and beside SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from zoo.experiments import aggregates
from zoo.experiments.aggregates import (
    interquartile_mean,
    normalize,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)

RNG = np.random.default_rng(3)


def columns(scores: np.ndarray) -> list[np.ndarray]:
    """A matrix of runs and environments as one array for each environment."""
    return list(scores.T)


def test_normalized_by_hand():
    np.testing.assert_array_equal(normalize([20.0, 70.0, 120.0, 0.0], 20.0, 120.0), [0.0, 0.5, 1.0, -0.2])
    np.testing.assert_array_equal(normalize([-200.0, -110.0], -200.0, -110.0), [0.0, 1.0])


@pytest.mark.parametrize(('runs', 'tasks'), [(1, 1), (3, 1), (3, 2), (5, 3), (10, 7), (4, 4)])
def test_the_interquartile_mean_is_scipys_trimmed_mean(runs: int, tasks: int):
    scores = RNG.normal(size=(runs, tasks))
    assert interquartile_mean(columns(scores)) == pytest.approx(stats.trim_mean(scores, 0.25, axis=None), abs=1e-12)


def test_environments_count_the_same_however_many_runs_they_have():
    # Weights 1/4, 1/4 and 1/8 (four times); a quarter of six, rounded down, is one sixth of the weight at either end.
    # In order: -9 (1/8), 0 (1/4), 1 (1/8), 2 (1/8), 4 (1/4), 9 (1/8): 1/8 and 1/24 go at each end, which leaves
    # 0 with 5/24, 1 and 2 with 3/24 each, 4 with 5/24.
    scores = [np.array([0.0, 4.0]), np.array([-9.0, 9.0, 1.0, 2.0])]
    assert interquartile_mean(scores) == pytest.approx((3 * 1 + 3 * 2 + 5 * 4) / 16)
    doubled = [np.array([0.0, 4.0, 0.0, 4.0]), scores[1]]
    assert aggregates.mean(scores) == aggregates.mean(doubled) == (2 + 0.75) / 2
    assert optimality_gap(scores) == optimality_gap(doubled)


def test_mean_median_and_gap_by_hand():
    scores = [np.array([0.0, 1.0]), np.array([3.0, 5.0]), np.array([0.8])]
    assert aggregates.mean(scores) == pytest.approx((0.5 + 4 + 0.8) / 3)
    assert aggregates.median(scores) == pytest.approx(0.8)
    # What is above 1 counts as 1: (1/2 + 0 + 0.2) / 3.
    assert optimality_gap(scores) == pytest.approx(0.7 / 3)


def test_the_profile_by_hand():
    scores = [np.array([0.0, 0.5, 1.0, 1.5]), np.array([0.5, 0.6])]
    found = performance_profile(scores, np.array([-0.1, 0.0, 0.5, 0.55, 1.5]))
    np.testing.assert_allclose(found, [1.0, (0.75 + 1) / 2, (0.5 + 0.5) / 2, (0.5 + 0.5) / 2, 0.0])


def test_the_probability_of_improvement_is_the_mann_whitney_statistic():
    first = [RNG.integers(0, 4, 6).astype(float), RNG.normal(size=5)]
    second = [RNG.integers(0, 4, 3).astype(float), RNG.normal(size=7)]
    expected = [
        stats.mannwhitneyu(one, other).statistic / (one.size * other.size)
        for one, other in zip(first, second, strict=True)
    ]
    assert probability_of_improvement(first, second) == pytest.approx(np.mean(expected))
    assert probability_of_improvement(second, first) == pytest.approx(1 - np.mean(expected))


def test_ties_count_half():
    # Of six pairs (1, 1), (1, 0), (1, 2), (2, 1), (2, 0), (2, 2): three are wins and two are ties.
    assert probability_of_improvement([np.array([1.0, 2.0])], [np.array([1.0, 0.0, 2.0])]) == pytest.approx(4 / 6)


def test_the_interval_of_one_environment_is_scipys_percentile_bootstrap():
    scores = RNG.normal(size=12)
    low, high = stratified_interval(aggregates.mean, [scores], resamples=20_000)
    found = stats.bootstrap((scores,), np.mean, n_resamples=20_000, method='percentile', rng=1).confidence_interval
    assert (low, high) == pytest.approx((found.low, found.high), abs=0.03)


def test_the_interval_keeps_the_environments():
    """Between them scores differ by far; within them not at all, so nothing is uncertain."""
    scores = [np.zeros(5), np.ones(5), np.full(3, 100.0)]
    for statistic in (interquartile_mean, aggregates.mean, aggregates.median, optimality_gap):
        low, high = stratified_interval(statistic, scores)
        assert low == high == statistic(scores)


def test_the_interval_of_two_groups_and_of_whole_profiles():
    first, second = [np.array([1.0, 3.0])], [np.array([2.0, 2.0])]
    # Both, one or none of the two draws is the 3, with probabilities 1/4, 1/2, 1/4.
    assert stratified_interval(probability_of_improvement, first, second) == (0.0, 1.0)
    assert stratified_interval(probability_of_improvement, first, second, level=0.4) == (0.5, 0.5)
    low, high = stratified_interval(lambda x: performance_profile(x, np.array([0.0, 2.0, 5.0])), first)
    np.testing.assert_array_equal([low, high], [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])


def test_the_interval_covers_as_often_as_it_says():
    """Five runs in each of ten environments, whose means are 0, 1, …, 9."""
    inside = 0
    for _ in range(200):
        scores = [RNG.normal(task, 1.0, 5) for task in range(10)]
        low, high = stratified_interval(aggregates.mean, scores, resamples=500)
        inside += low <= 4.5 <= high
    assert 165 <= inside <= 195  # too narrow by sqrt(4 / 5): 92% of 200 are 184
