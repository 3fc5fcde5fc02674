"""Schedules."""

from __future__ import annotations

import json

import numpy as np
import pytest

from zoo.common.schedules import Linear, schedule_from_json, schedule_to_json, value_at


def test_linear_moves_and_then_stays():
    schedule = Linear(1.0, 0.2, until=0.5)
    found = [schedule(progress) for progress in (0.0, 0.25, 0.5, 0.75, 1.0)]
    np.testing.assert_allclose(found, [1.0, 0.6, 0.2, 0.2, 0.2])


def test_linear_to_zero_over_all_of_training():
    assert [Linear(4.0)(progress) for progress in (0.0, 0.5, 1.0)] == [4.0, 2.0, 0.0]


def test_until_zero_is_the_end_at_once():
    assert Linear(1.0, 0.5, until=0.0)(0.0) == 0.5


def test_value_at():
    assert value_at(0.3, 0.9) == 0.3
    assert value_at(Linear(1.0), 0.25) == 0.75


@pytest.mark.parametrize('value', [Linear(1.0, 0.5, 0.25), 0.1, None, 'auto', {'hidden': [3]}])
def test_json_round_trip(value):
    assert schedule_from_json(json.loads(json.dumps(schedule_to_json(value)))) == value
