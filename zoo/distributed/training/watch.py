"""The time limit of an actor's environment: a rank whose environment hangs ends with a sentence, and a stack.

``local`` starts the actor again like any dead one; over MPI and KungFu the job ends.
"""

from __future__ import annotations

import contextlib
import faulthandler
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from zoo.common.envs.vector import limit_samples
from zoo.common.rollouts.collector import Collector
from zoo.distributed import rank_process
from zoo.distributed.cluster import Cluster
from zoo.distributed.training.plan import Plan

# Seconds between two looks, at most; and how many lines of the stack are said.
_LOOK_EVERY, _LINES = 1.0, 6


class Watch:
    """Watches the environment of this process in a thread, in a ``with`` block.

    Time in which this process was suspended does not count. A call that keeps Python's interpreter for itself, as some
    simulators in C++ do, stops this thread too: then ``faulthandler`` writes the stack and ends the process, a little
    later.

    Args:
        limit: seconds that one call of the environment may take; None: any time.
        under_way: returns the name of the call of the environment that is under way, and when it began
            (``time.monotonic()``); None: none is.
    """

    def __init__(
        self, cluster: Cluster, limit: float | None, under_way: Callable[[], tuple[str, float] | None]
    ) -> None:
        self._cluster, self._limit, self._under_way = cluster, limit, under_way
        self._caller, self._done = threading.get_ident(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name='zoo-watch', daemon=True)

    def __enter__(self) -> Watch:
        if self._limit is not None:
            self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._done.set()
        if self._limit is not None:
            self._thread.join()
            faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        assert self._limit is not None  # otherwise there is no thread
        pause = min(_LOOK_EVERY, self._limit / 4)
        call, waited, last = None, 0.0, time.monotonic()
        while not self._done.is_set():
            with contextlib.suppress(Exception):  # standard error may be no file
                faulthandler.dump_traceback_later(1.25 * self._limit + 5.0 * pause, exit=True)
            self._done.wait(pause)
            now, found = time.monotonic(), self._under_way()
            waited = waited + min(now - last, 2.0 * pause) if found is not None and found == call else 0.0
            call, last = found, now
            if found is not None and waited >= self._limit:
                self._end(found[0])

    def _end(self, name: str) -> None:
        frame = sys._current_frames().get(self._caller)
        stack = ''.join(traceback.format_stack(frame)[-_LINES:])
        rank_process.end_with(
            self._cluster.engine,
            f'hangs: {name} of its environment has not returned for {self._limit:g} s, which is the sample_timeout of '
            f'learn. It is here:\n{stack}',
        )


def watched(cluster: Cluster, plan: Plan, collector: Collector) -> Watch:
    """Return the watch over the steps and resets of a collector's environment.

    Copies in processes have their own limit, which says which copy hangs.
    """
    apart = limit_samples(collector.env, plan.sample_timeout)
    return Watch(cluster, None if apart else plan.sample_timeout, lambda: collector.under_way)
