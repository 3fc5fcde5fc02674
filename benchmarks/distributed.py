"""What the distributed layer costs: a queue against `multiprocessing.Queue`, an all-reduce against mpi4py's own.

    python benchmarks/distributed.py                # about two minutes; writes results/distributed.md
    python benchmarks/distributed.py --rounds 2     # quicker

A rollout of 1 MB goes from one process to another, as fast as the receiver takes it, through a queue of each engine
(`kungfu` where `kungfu-run` is on the path) and through a `multiprocessing.Queue` of the same bound. They take turns,
each in fresh processes, so that a drift of the machine's speed meets all of them alike; what counts is the median over
the rounds of the ratio of two neighbours. The all-reduce of 10 MB over four ranks takes turns with `Allreduce` call by
call.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from zoo.common.records import Trajectories

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / 'results' / 'distributed.md'
ENGINES = ['local', 'mpi', *(['kungfu'] if shutil.which('kungfu-run') else [])]
MPIRUN = shutil.which('mpirun') or shutil.which('mpirun', path=str(Path(sys.executable).parent))
MESSAGES, WARM_UP, MAXSIZE = 300, 30, 16
REDUCTIONS = 100
MARK = 'RESULT '


def rollout() -> Trajectories:
    """128 steps of 16 copies with 60 observations: 1.0 MB."""
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
    """Size of the arrays, MB."""
    return sum(array.nbytes for array in x) / 1e6


def receive(get: Any) -> float:
    """Seconds that a message takes, as the receiver sees it."""
    for _ in range(WARM_UP):
        get()
    start = time.perf_counter()
    for _ in range(MESSAGES):
        x = get()
        assert x.obs.shape == (128, 16, 60)
    return (time.perf_counter() - start) / MESSAGES


def send(put: Any) -> None:
    """The messages for :func:`receive`."""
    x = rollout()
    for _ in range(WARM_UP + MESSAGES):
        put(x)


def standard_sender(queue: Any, done: Any) -> None:
    """The other process of a ``multiprocessing.Queue``."""
    send(queue.put)
    done.wait()


def standard_part() -> float:
    """Seconds a message through a ``multiprocessing.Queue``."""
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
            print(MARK + json.dumps(receive(queue.get)), flush=True)
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
            print(MARK + json.dumps(times), flush=True)
        cluster.barrier()


def job(engine: str, part: str, ranks: int) -> Any:
    """Run a part of this script on some ranks; what its rank 0 prints."""
    if engine == 'mpi':
        launcher = [MPIRUN, '--oversubscribe', '-n', str(ranks), sys.executable]
    elif engine == 'kungfu':
        launcher = ['kungfu-run', '-q', '-np', str(ranks), '-H', f'127.0.0.1:{ranks}', sys.executable]
    else:
        launcher = [sys.executable, '-m', 'zoo.distributed.run', '-np', str(ranks)]
    environment = os.environ | {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
    environment['PYTHONPATH'] = os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])
    with tempfile.TemporaryDirectory() as folder:  # KungFu leaves its logs where it runs
        result = subprocess.run(
            [*launcher, str(Path(__file__).resolve()), '--part', part],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
        )
    lines = [line.partition(MARK)[2] for line in result.stdout.splitlines() if MARK in line]
    if result.returncode or not lines:
        raise SystemExit(f'{engine}, {part}: status {result.returncode}\n{result.stdout}{result.stderr}')
    return json.loads(lines[0])


def versions() -> str:
    """Of everything that takes part."""
    packages = [f'{name} {metadata.version(name)}' for name in ('numpy', 'mpi4py', 'openmpi')]
    return f'Python {platform.python_version()}, {", ".join(packages)}, {platform.system()}'


def spread(values: list[float], scale: float = 1e3, digits: int = 2) -> str:
    """The median, and the lowest and highest."""
    middle, low, high = statistics.median(values), min(values), max(values)
    return f'{middle * scale:.{digits}f} ({low * scale:.{digits}f} to {high * scale:.{digits}f})'


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--part', choices=('queue', 'reduce'), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        {'queue': queue_part, 'reduce': reduce_part}[options.part]()
        return
    if MPIRUN is None:
        raise SystemExit("there is no mpirun: pip install 'zoo-rl[mpi]'.")

    load = os.getloadavg()[0]
    seconds: dict[str, list[float]] = {name: [] for name in ('standard', *ENGINES)}
    for number in range(options.rounds):
        seconds['standard'].append(standard_part())
        for engine in ENGINES:
            seconds[engine].append(job(engine, 'queue', 2))
        print(f'round {number + 1}: ' + ', '.join(f'{name} {each[-1] * 1e3:.2f} ms' for name, each in seconds.items()))
    times = job('mpi', 'reduce', 4)

    size = megabytes(rollout())
    titles = {'standard': '`multiprocessing.Queue`', **{engine: f'`{engine}`' for engine in ENGINES}}
    queue_rows = []
    for name, each in seconds.items():
        ratios = [standard / own for standard, own in zip(seconds['standard'], each, strict=True)]
        rate = size / statistics.median(each)
        faster = '' if name == 'standard' else f'{spread(ratios, 1, 1)}×'
        queue_rows.append(f'| {titles[name]} | {spread(each)} | {rate:.0f} | {faster} |')
    reduce_rows = []
    for name, title in (('own', "mpi4py's `Allreduce`"), ('sum', "`op='sum'`"), ('mean', "`op='mean'`")):
        ratios = [each / own for each, own in zip(times[name], times['own'], strict=True)]
        reduce_rows.append(
            f'| {title} | {statistics.median(times[name]) * 1e3:.2f} | {statistics.median(ratios):.2f} |'
        )

    text = '\n'.join(
        [
            '# The distributed layer: what it costs',
            '',
            f'`python benchmarks/distributed.py`, {datetime.date.today():%Y-%m-%d}, {os.cpu_count()} cores, '
            f'load average at the start {load:.1f}. {versions()}.',
            '',
            f'## A rollout of {size:.1f} MB through a queue',
            '',
            f'{options.rounds} rounds of {MESSAGES} messages, at most {MAXSIZE} waiting; median, lowest and highest. '
            'The bar is 5× for `local` and `mpi`.',
            '',
            '| queue | ms a rollout | MB/s | faster than `multiprocessing.Queue` by |',
            '|---|---|---|---|',
            *queue_rows,
            '',
            '## `role_all_reduce` of 10 MB float32 over 4 ranks on `mpi`',
            '',
            f'Medians over {REDUCTIONS} calls of each, taking turns, and over their ratios. The bar is 1.3.',
            '',
            "| call | ms | of mpi4py's own |",
            '|---|---|---|',
            *reduce_rows,
            '',
        ]
    )
    RESULTS.write_text(text)
    print(text)


if __name__ == '__main__':
    main()
