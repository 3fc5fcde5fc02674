"""What the distributed layer costs: a queue against `multiprocessing.Queue`, an all-reduce against mpi4py's own.

    python benchmarks/scale/distributed.py                # about two minutes; writes results/distributed.md
    python benchmarks/scale/distributed.py --rounds 2     # quicker

A rollout of 1 MB goes from one process to another, as fast as the receiver takes it: through a queue of each engine
(`kungfu` where `kungfu-run` is on the path), and through a `multiprocessing.Queue` of the same bound. They take turns,
each in fresh processes, so that a drift of the machine's speed meets all of them alike. The compared number is the
median over the rounds of the ratio of two neighbors. The all-reduce of 10 MB over four ranks takes turns with
`Allreduce` call by call.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import (
    AS_ROOT,
    answer_of,
    environment,
    header,
    launcher,
    middle_and_spread,
    parser_of,
    ratios,
    row,
    stamp,
    take_turns,
    write_page,
)

from zoo.common.records import Trajectories

ENGINES = ['local', 'mpi', *(['kungfu'] if shutil.which('kungfu-run') else [])]
MESSAGES, WARM_UP, MAXSIZE = 300, 30, 16
REDUCTIONS = 100


def rollout() -> Trajectories:
    """Return 128 steps of 16 copies with 60 observations: 1.0 MB."""
    random = np.random.default_rng(0)
    steps = (128, 16)
    return Trajectories(
        obs=random.normal(size=(*steps, 60)).astype(np.float32),
        action=random.normal(size=(*steps, 2)).astype(np.float32),
        reward=random.normal(size=steps).astype(np.float32),
        next_obs=random.normal(size=(*steps, 60)).astype(np.float32),
        terminated=np.zeros(steps, bool),
        truncated=np.zeros(steps, bool),
        valid=np.ones(steps, bool),
    )


def megabytes(x: Trajectories) -> float:
    """Return the size of the arrays, MB."""
    return sum(array.nbytes for array in x) / 1e6


def receive(get: Any) -> float:
    """Return the seconds that a message takes, as the receiver sees it."""
    for _ in range(WARM_UP):
        get()
    start = time.perf_counter()
    for _ in range(MESSAGES):
        x = get()
        assert x.obs.shape == (128, 16, 60)
    return (time.perf_counter() - start) / MESSAGES


def send(put: Any) -> None:
    """Send the messages for :func:`receive`."""
    x = rollout()
    for _ in range(WARM_UP + MESSAGES):
        put(x)


def standard_sender(queue: Any, done: Any) -> None:
    """Send, as the other process of a ``multiprocessing.Queue``."""
    send(queue.put)
    done.wait()


def standard_part() -> float:
    """Return the seconds of a message through a ``multiprocessing.Queue``."""
    context = multiprocessing.get_context('spawn')
    queue, done = context.Queue(MAXSIZE), context.Event()
    process = context.Process(target=standard_sender, args=(queue, done))
    process.start()
    seconds = receive(queue.get)
    done.set()
    process.join()
    return seconds


def queue_part() -> None:
    """One rank of two: the actor sends, the learner prints the seconds a message."""
    from zoo.distributed import Role, connect

    with connect(learners=1, actors=1) as cluster:
        queue = cluster.queue((Role.ACTOR, 0), (Role.LEARNER, 0), maxsize=MAXSIZE)
        cluster.barrier()
        if cluster.role() == Role.ACTOR:
            send(queue.put)
        else:
            print(json.dumps([receive(queue.get)]), flush=True)
        cluster.barrier()


def reduce_part() -> None:
    """One rank of four: rank 0 prints the seconds of each call of both kinds."""
    from mpi4py import MPI

    from zoo.distributed import connect

    with connect(learners=4) as cluster:
        x = np.random.default_rng(cluster.rank).normal(size=2_500_000).astype(np.float32)
        out = np.empty_like(x)
        times: dict[str, list[float]] = {'own': [], 'sum': [], 'mean': []}
        calls = {
            'own': lambda: MPI.COMM_WORLD.Allreduce(x, out),
            'sum': lambda: cluster.role_all_reduce(x, op='sum'),
            'mean': lambda: cluster.role_all_reduce(x, op='mean'),
        }
        for turn in range(REDUCTIONS + 5):
            for name, call in calls.items():
                cluster.barrier()
                start = time.perf_counter()
                call()
                if turn >= 5:
                    times[name].append(time.perf_counter() - start)
        if cluster.rank == 0:
            print(json.dumps(times), flush=True)
        cluster.barrier()


def job(engine: str, part: str, ranks: int) -> Any:
    """Run a part of this script on some ranks; return what its rank 0 prints."""
    command = [*launcher(engine, ranks), str(Path(__file__).resolve()), '--part', part]
    with tempfile.TemporaryDirectory() as folder:  # KungFu leaves its logs where it runs
        return answer_of(command, environment(**AS_ROOT), folder)


def in_milliseconds(seconds: list[float]) -> str:
    """Return the median, with the smallest and the largest value."""
    return middle_and_spread([1e3 * each for each in seconds])


def main() -> None:
    """The command."""
    parser = parser_of(__doc__)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--part', choices=('queue', 'reduce'), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        {'queue': queue_part, 'reduce': reduce_part}[options.part]()
        return
    load = os.getloadavg()[0]
    parts = {engine: functools.partial(lambda engine: job(engine, 'queue', 2)[0], engine) for engine in ENGINES}
    seconds = take_turns({'standard': standard_part} | parts, options.rounds)
    times = job('mpi', 'reduce', 4)

    size = megabytes(rollout())
    titles = {'standard': '`multiprocessing.Queue`', **{engine: f'`{engine}`' for engine in ENGINES}}
    queue_rows = []
    for name, each in seconds.items():
        rate = size / statistics.median(each)
        faster = '' if name == 'standard' else f'{middle_and_spread(ratios(seconds["standard"], each), ".1f")}×'
        queue_rows.append(row(titles[name], in_milliseconds(each), f'{rate:.0f}', faster))
    reduce_rows = []
    for name, title in (('own', "mpi4py's `Allreduce`"), ('sum', "`op='sum'`"), ('mean', "`op='mean'`")):
        relative = statistics.median(ratios(times[name], times['own']))
        reduce_rows.append(row(title, f'{statistics.median(times[name]) * 1e3:.2f}', f'{relative:.2f}'))

    lines = [
        '# The distributed layer: what it costs',
        '',
        f'`python benchmarks/scale/distributed.py`, {stamp("numpy", "mpi4py", "openmpi")}, '
        f'load average at the start {load:.1f}.',
        '',
        f'## A rollout of {size:.1f} MB through a queue',
        '',
        f'{options.rounds} rounds of {MESSAGES} messages, at most {MAXSIZE} waiting; median, lowest and highest. '
        'The bar is 5× for `local` and `mpi`.',
        '',
        *header('queue', 'ms a rollout', 'MB/s', 'faster than `multiprocessing.Queue` by'),
        *queue_rows,
        '',
        '## `role_all_reduce` of 10 MB float32 over 4 ranks on `mpi`',
        '',
        f'Medians over {REDUCTIONS} calls of each, taking turns, and over their ratios. The bar is 1.3.',
        '',
        *header('call', 'ms', "of mpi4py's own"),
        *reduce_rows,
    ]
    write_page('distributed', lines)
    print('\n'.join(lines))


if __name__ == '__main__':
    main()
