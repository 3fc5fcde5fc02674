"""Deadlines, graces and pauses."""

from __future__ import annotations

import itertools
import time

import pytest

from zoo.distributed.engines import waiting
from zoo.distributed.engines.waiting import Deadline, Grace, pauses


def test_a_deadline_counts_down_and_then_raises():
    deadline = Deadline(0.05)
    assert 0.0 < deadline.left <= 0.05
    deadline.check('the queue was full')
    time.sleep(0.06)
    assert deadline.left == 0.0
    with pytest.raises(TimeoutError, match=r'^the queue was full, in 0\.05 s\.$'):
        deadline.check('the queue was full')


def test_no_timeout_is_no_deadline():
    deadline = Deadline(None)
    assert deadline.left == float('inf')
    deadline.check('nothing')


def test_no_time_at_all_is_a_deadline():
    with pytest.raises(TimeoutError, match='in 0 s'):
        Deadline(0.0).check('the queue was empty')


def test_a_grace_begins_when_it_is_first_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(waiting, 'GRACE', 0.05)
    grace = Grace()
    time.sleep(0.06)
    assert not grace.is_over()
    time.sleep(0.06)
    assert grace.is_over()


def test_pauses_double_up_to_the_longest():
    assert list(itertools.islice(pauses(1.0, 5.0), 5)) == [1.0, 2.0, 4.0, 5.0, 5.0]
