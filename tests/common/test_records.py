"""What is kept of a test, as it prints."""

from __future__ import annotations

import pytest

from zoo.common.records import TestResult


@pytest.mark.parametrize(
    ('successes', 'told'),
    [([None, None], ''), ([True, False], ', success 50%'), ([True, None], ', success 100%')],
)
def test_the_result_of_a_test_prints_as_a_summary(successes, told):
    summary = '2 episodes: mean return 2 ± 1 (standard deviation), from 1 to 3, mean length 15'
    assert str(TestResult([1.0, 3.0], [10, 20], successes)) == summary + told


def test_without_an_episode_there_is_nothing_to_sum_up():
    assert str(TestResult([], [], [])) == '0 episodes'
