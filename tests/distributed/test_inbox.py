"""Inboxes: one place to wait for many queues. zoo.distributed.testing tries them on every engine."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from zoo.distributed import Cluster, ClusterError, Inbox, Layout, PeerLost, Queue, wait_any
from zoo.distributed.engines.local.engine import LocalEngine
from zoo.distributed.engines.local.folder import JobFolder, Seat

X = {'x': np.zeros(4)}


@contextmanager
def actors_of_a_learner(count: int, maxsize: int = 16) -> Iterator[tuple[list[Queue], list[Queue], Any]]:
    """Give the ends of queues from actors to a learner, at the learner and at the actors, all in this process."""
    folder = JobFolder(count + 1)
    layout = Layout(learners=1, actors=count)
    made: list[Cluster] = []

    def join(rank: int, restarts: int = 0) -> Cluster:
        made.append(Cluster(LocalEngine(Seat(str(folder.path), rank, count + 1, restarts)), layout))
        return made[-1]

    def to_learner(cluster: Cluster, actor: int) -> Queue:
        return cluster.queue(('actor', actor), ('learner', 0), maxsize)

    learner = join(0)
    try:
        ins = [to_learner(learner, i) for i in range(count)]
        outs = [to_learner(join(1 + i), i) for i in range(count)]
        yield ins, outs, SimpleNamespace(join=join, to_learner=to_learner, clusters=made)
    finally:
        for cluster in made:
            cluster.close()
        folder.remove()


def test_all_that_are_ready_are_found_in_order():
    with actors_of_a_learner(5) as (ins, outs, _):
        inbox = Inbox(ins)
        assert inbox.wait(0.0) == [] and inbox.next(0.0) is None and len(inbox) == 5
        for i in (3, 1):
            outs[i].put(X)
        assert inbox.wait() == [1, 3] == wait_any(ins)
        ins[1].get()
        assert inbox.wait() == [3]
        ins[3].get()
        assert inbox.wait(0.01) == []
        outs[2].put(X)
        outs[2].close()
        assert inbox.wait() == [2]
        ins[2].get()
        assert inbox.wait() == [2]
        with pytest.raises(PeerLost):
            ins[2].get()
        inbox.remove(2)
        assert inbox.wait(0.0) == []
        outs[4].put(X)
        assert inbox.wait() == [4] and len(inbox) == 4  # a queue keeps its index


def test_a_sender_that_leaves_and_a_closed_end_are_ready():
    with actors_of_a_learner(3) as (ins, _, job):
        inbox = Inbox(ins)
        job.clusters[2].close()  # the cluster of actor 1
        assert inbox.wait(5.0) == [1]
        ins[2].close()
        assert inbox.wait(5.0) == [1, 2]


def test_an_actor_that_was_started_again_is_heard():
    with actors_of_a_learner(2) as (ins, outs, job):
        inbox = Inbox(ins)
        outs[0].put(X)
        again = job.to_learner(job.join(1, restarts=1), 0)
        assert inbox.wait() == [0]
        ins[0].get()
        assert inbox.wait(0.0) == []
        again.put(X)
        assert inbox.wait() == [0]


def test_queues_with_other_numbers_are_in_one_inbox():
    with actors_of_a_learner(2) as (ins, outs, job):
        second_in = job.to_learner(job.clusters[0], 1)
        second_out = job.to_learner(job.clusters[2], 1)
        inbox = Inbox([second_in, *ins])
        second_out.put(X)
        assert inbox.wait() == [0]
        outs[1].put(X)
        assert inbox.wait() == [0, 2]


def test_a_fast_actor_does_not_shut_out_the_others():
    with actors_of_a_learner(4) as (ins, outs, _):
        inbox = Inbox(ins)
        outs[0].put(X)
        for i in range(1, 4):
            outs[i].put(X)
        served = []
        for _ in range(40):
            i = inbox.next(0.0)
            ins[i].get()
            served.append(i)
            outs[0].put(X)  # actor 0 has always a message, before anything else is looked at
            if len(served) % 8 == 0:
                outs[3].put(X)
        last = [n for n, i in enumerate(served) if i == 3]
        assert Counter(served)[3] == 1 + 39 // 8 and served[:4] == [0, 1, 2, 3]
        assert all(n - 8 * k <= 2 for k, n in enumerate(last[1:], 1)), served  # served after at most one of actor 0's


def test_turns_go_round_from_the_last_one():
    with actors_of_a_learner(4) as (ins, outs, _):
        inbox = Inbox(ins)
        served = []
        outs[2].put(X)
        for _ in range(9):
            i = inbox.next()
            ins[i].get()
            served.append(i)
            for out, end in zip(outs, ins, strict=True):
                if not end.ready():
                    out.put(X)
        assert served == [2, 3, 0, 1, 2, 3, 0, 1, 2] and inbox.found == 4


def test_a_removed_queue_has_no_turn():
    with actors_of_a_learner(3) as (ins, outs, _):
        inbox = Inbox(ins)
        for out in outs:
            out.put(X)
        assert inbox.next() == 0
        inbox.remove(1)
        assert inbox.next() == 2


def test_a_wait_ends_with_a_message():
    with actors_of_a_learner(3) as (ins, outs, _):
        inbox = Inbox(ins)
        for _ in range(3):
            timer = threading.Timer(0.2, outs[1].put, (X,))
            begin, used = time.perf_counter(), time.thread_time()
            timer.start()
            assert inbox.wait() == [1]
            assert 0.1 < time.perf_counter() - begin < 5.0 and time.thread_time() - used < 0.1  # idle, not busy
            ins[1].get()


def test_a_message_costs_as_many_looks_with_many_queues_as_with_few(monkeypatch: pytest.MonkeyPatch):
    """A look into the file of each queue was most of the work with a thousand actors."""
    calls = Counter[str]()
    for name in ('pread', 'preadv', 'read', 'pwrite'):
        call = getattr(os, name)

        def counted(*args: Any, call: Any = call, name: str = name) -> Any:
            calls[name] += 1
            return call(*args)

        monkeypatch.setattr(os, name, counted)
    found = []
    for count in (10, 200):
        with actors_of_a_learner(count, maxsize=64) as (ins, outs, _):  # none is ever full
            inbox = Inbox(ins)
            inbox.wait(0.0)
            calls.clear()
            for n in range(400):
                outs[n * 7 % count].put(X)
                i = inbox.next()
                ins[i].get()
            found.append(dict(calls))
    assert found[0] == found[1]


def test_only_the_target_waits_for_a_queue():
    with actors_of_a_learner(2) as (_, outs, _), pytest.raises(ClusterError, match='only its target can'):
        Inbox(outs).wait(0.0)


def test_queues_of_no_engine_are_asked_each():
    queues: Any = [SimpleNamespace(ready=lambda ready=ready: ready) for ready in (False, True, True)]
    inbox = Inbox(queues)
    assert inbox.wait() == [1, 2]
    inbox.remove(1)
    assert inbox.wait() == [2]
    inbox.remove(2)
    assert inbox.wait(0.01) == []
