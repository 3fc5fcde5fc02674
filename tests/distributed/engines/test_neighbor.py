"""Which rank watches which, and when one is given up, over a clock that the test sets."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from zoo.distributed.engines import neighbor
from zoo.distributed.engines.neighbor import NeighborWatch, process_identity


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still until the test moves ``now``."""
    found = SimpleNamespace(now=100.0)
    monkeypatch.setattr(neighbor, 'time', SimpleNamespace(monotonic=lambda: found.now))
    return found


def let_pass(watch: NeighborWatch, clock: SimpleNamespace, seconds: float, gone: Any = ()) -> list[int]:
    """Take turns for some seconds; return the ranks that signs of life were sent to."""
    sent = []
    for _ in range(int(seconds * 5)):
        clock.now += 0.2
        following = watch.turn(gone)
        if following is not None:
            sent.append(following)
    return sent


def test_signs_of_life_go_to_the_next_rank_that_has_not_left(clock: SimpleNamespace):
    watch = NeighborWatch(1, ['elsewhere|1'] * 4)
    assert 4 <= len(sent := let_pass(watch, clock, 5.0)) <= 6 and set(sent) == {2}
    assert set(let_pass(watch, clock, 3.0, {2, 3})) == {0}
    assert let_pass(watch, clock, 3.0, {0, 2, 3}) == []
    assert let_pass(watch, clock, 100.0, {0, 2, 3}) == [] and watch.failure() is None, 'nobody is left to be watched'


def test_a_rank_of_another_machine_is_given_up_after_a_minute(clock: SimpleNamespace):
    watch = NeighborWatch(1, ['elsewhere|1', process_identity(), 'elsewhere|3'])
    let_pass(watch, clock, 50.0)
    assert watch.failure() is None
    watch.heard(2)  # not the rank that is watched
    let_pass(watch, clock, 15.0)
    message = watch.failure()
    assert re.fullmatch(r'rank 0 has not answered for 6\d s \(it is silent\): ending every rank\.', message), message
    watch.heard(0)
    assert watch.failure() is None


def test_a_rank_that_was_itself_kept_from_running_blames_nobody(clock: SimpleNamespace):
    watch = NeighborWatch(1, ['elsewhere|1', process_identity()])
    watch.turn(set())
    clock.now += 1000.0
    watch.turn(set())
    assert watch.failure() is None


@pytest.mark.skipif(not os.path.exists('/proc/self/ns/pid'), reason='needs /proc')
def test_a_process_that_is_stopped_is_given_up_after_seconds(clock: SimpleNamespace):
    process = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])
    try:
        place = process_identity().partition('|')[0]
        watch = NeighborWatch(1, [f'{place}|{process.pid}', process_identity()])
        let_pass(watch, clock, 10.0)
        assert watch.failure() is None, 'it is silent, but it runs'
        process.send_signal(signal.SIGSTOP)
        end = time.monotonic() + 20
        while watch.failure() is None and time.monotonic() < end:
            time.sleep(0.01)
        assert 'its process is stopped' in watch.failure()
    finally:
        process.kill()
        process.wait()
