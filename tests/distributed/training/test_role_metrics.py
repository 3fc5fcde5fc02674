"""What is logged of the roles, for messages with known times and counts."""

from __future__ import annotations

import time

import numpy as np
import pytest

from zoo.distributed.training import role_metrics
from zoo.distributed.training.learner import Together
from zoo.distributed.training.role_metrics import Clock, RoleMetrics


def test_a_clock_tells_what_was_waited_for():
    clock = Clock()
    for what in ('learner', 'server', 'learner'):
        with clock.waiting(what):
            time.sleep(0.02)
    time.sleep(0.02)
    whole, learner, server, nothing = clock.lap('learner', 'server', 'other')
    assert nothing == 0.0 and 0.04 <= learner and 0.02 <= server and learner + server + 0.02 <= whole
    again, learner = clock.lap('learner')
    assert learner == 0.0 and again < whole


def test_a_clock_remembers_its_last_whole_lap(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    clock.end_lap()
    assert np.isnan(clock.idle)
    monkeypatch.setattr(role_metrics, 'LAP', 0.01)
    with clock.waiting('others'):
        time.sleep(0.02)
    clock.end_lap()
    assert 0.5 < clock.idle <= 1.0 and clock.lap('others')[1] == 0.0


def test_a_wait_that_fails_was_waited():
    clock = Clock()
    with pytest.raises(KeyError), clock.waiting('learner'):
        time.sleep(0.02)
        raise KeyError
    assert clock.lap('learner')[1] >= 0.02


def test_what_the_learner_logs():
    roles = RoleMetrics(10)
    roles.heard(np.array([2.0, 0.5, 0.0, np.nan]), 100, 0.5)
    roles.heard(np.array([6.0, 0.5, 1.0, 0.25]), 60)
    roles.chosen(2, 0)
    roles.chosen(0, 3)
    found = roles.measured(13)
    seconds = 3 / found['roles/learner_updates_per_second']
    assert 0.0 < seconds < 60.0 and found['roles/learner_waits'] == 0.0
    assert found['roles/actors_wait'] == 0.25  # (0.5 + 0.5 + 1) / 8
    assert found['roles/actor_steps_per_second'] == 20.0  # 160 / 8
    assert found['roles/servers_wait'] == 0.25 and found['roles/buffers_wait'] == 0.5
    assert (found['roles/queue'], found['roles/staleness']) == (1.0, 1.5)
    begin = time.perf_counter()
    for what in ('actors', 'buffers', 'learners'):
        with roles.clock.waiting(what):
            time.sleep(0.02)
    found = roles.measured(13)  # since then there was nothing but waiting
    assert set(found) == {'roles/learner_waits', 'roles/learner_updates_per_second'}
    assert found['roles/learner_updates_per_second'] == 0.0
    assert 0.06 / (time.perf_counter() - begin + 0.01) < found['roles/learner_waits'] <= 1.0


def test_exchanges_of_learners_are_waited_for():
    class Cluster:
        def role_all_reduce(self, x, op):
            time.sleep(0.02)
            return 2 * x

    clock = Clock()
    np.testing.assert_array_equal(Together(Cluster(), clock)(np.ones(2), 'sum'), [2.0, 2.0])
    assert clock.lap('learners')[1] >= 0.02
