"""Training steps per second of zoo, Stable-Baselines3 (and sb3-contrib), SBX and rejax, alternating in one run.

    python benchmarks/speed/throughput.py                 # every task, about an hour
    python benchmarks/speed/throughput.py --task sac      # one of them
    python benchmarks/speed/throughput.py --before DIR    # beside another checkout of zoo: ``results/change.md``

Each task's rates are kept in ``results/throughput.json``, and ``results/throughput.md`` is written from it. The tasks
are in ``tasks.py``; ``trainers.py`` says how each library trains them.

The peers have a virtual environment of their own, ``benchmarks/.peers``, which the first run makes (PyTorch for CPUs
and JAX: about 1.5 GB). Each library trains in a process of its own, which stays alive. All are started and warmed up
first: networks are compiled, replay buffers are past their first random steps. Then they take turns, one measured
piece of training each, so that a drift of the machine's speed meets all of them alike. The compared number is the
median over rounds of the ratio of two pieces of one round.

``zoo-bf16`` is zoo with ``dtype='mixed_bfloat16'``: the products of its networks are in bfloat16. ``zoo-compiled`` is
zoo with ``vectorized='compiled'``. ``rejax`` trains in environments written in JAX (gymnax), which are
compiled together with the updates: the mark that compiled environments set. One piece of it is one compiled call
without evaluation: the first one is skipped, and the callback after the last step does nothing. Its PPO updates actor
and critic by an optimizer each, and clips no gradient's norm.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import (
    ROOT,
    commit,
    header,
    listed,
    middle_and_spread,
    parser_of,
    peers_python,
    ratios,
    read_results,
    row,
    show,
    spread,
    take_turns,
    today,
    versions,
    write_page,
    write_results,
)
from tasks import RATIOS, TASKS, Task
from trainers import TRAINERS

PEERS = (
    'torch==2.13.0',
    'stable-baselines3==2.9.2',
    'sb3-contrib==2.9.2',
    'sbx-rl==0.28.0',
    'jax==0.10.2',
    'rejax==0.1.3',
    'gymnax==0.0.9',
    'gymnasium[mujoco]==1.4.0',
    'mujoco==3.10.0',
    'ale-py==0.12.1',
    'opencv-python-headless>=4.10,<6',
)
#: What each library's worker runs on.
PACKAGES = {
    'zoo': ('zoo-rl', 'tensorflow', 'keras', 'numpy', 'gymnasium'),
    'sb3': ('stable-baselines3', 'torch', 'numpy', 'gymnasium'),
    'contrib': ('sb3-contrib', 'stable-baselines3', 'torch', 'numpy', 'gymnasium'),
    'sbx': ('sbx-rl', 'jax', 'flax', 'numpy', 'gymnasium'),
    'rejax': ('rejax', 'gymnax', 'jax', 'flax', 'numpy'),
}
LIBRARIES = {
    'zoo': 'zoo',
    'zoo-bf16': 'zoo, bfloat16',
    'zoo-compiled': 'zoo, compiled',
    'sb3': 'Stable-Baselines3',
    'contrib': 'sb3-contrib',
    'sbx': 'SBX',
    'rejax': 'rejax',
}


def work(library: str, name: str) -> None:
    """The worker: warm up, then train a piece for every line on standard input and print how long it took."""
    task = TASKS[name]
    train = TRAINERS[library](library, task)
    train(task.warm)
    train(task.piece)  # what is compiled only in full pieces is compiled now
    print(json.dumps({'ready': versions_of(library)}), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        train(task.piece)
        print(json.dumps({'seconds': time.perf_counter() - begin}), flush=True)


def versions_of(library: str) -> dict[str, str]:
    """Return the versions of what a worker runs on."""
    return versions(*PACKAGES[library.partition('-')[0]])


class Worker:
    """One library's process."""

    def __init__(self, python: str, library: str, name: str, checkout: Path = ROOT) -> None:
        command = [python, __file__, '--worker', library, '--task', name]
        self.library = library
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {'PYTHONPATH': str(checkout)},  # the peers' Python sees no other package
        )
        self.versions = self._answer()['ready']

    def measure(self) -> float:
        """Return the seconds of one piece."""
        self.process.stdin.write('go\n')
        self.process.stdin.flush()
        return self._answer()['seconds']

    def _answer(self) -> dict[str, Any]:
        for line in self.process.stdout:
            if line.startswith('{'):
                return json.loads(line)
        raise RuntimeError(
            f'the worker of {self.library} ended with status {self.process.wait()}; run it by hand with --worker to '
            'see why.'
        )

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def rates_of(workers: dict[str, Worker], task: Task, rounds: int) -> dict[str, list[float]]:
    """Let workers take turns; return the steps per second of each piece of each, and end their processes."""
    seconds = take_turns({name: worker.measure for name, worker in workers.items()}, rounds)
    for worker in workers.values():
        worker.close()
    return {name: [task.piece / each for each in values] for name, values in seconds.items()}


def compare(name: str, rounds: int, peers: str, libraries: Sequence[str]) -> dict[str, Any]:
    """Measure all libraries on one task; return the entry of its results."""
    task = TASKS[name]
    print(f'\n{task.title}', flush=True)
    workers = {
        library: Worker(sys.executable if library.startswith('zoo') else peers, library, name)
        for library in task.libraries
        if library in libraries
    }
    rates = rates_of(workers, task, rounds)
    for library, values in rates.items():
        line = f'  {library:8} {statistics.median(values):9.0f} steps/s  ({spread(values, ".0f")})'
        for mine in rates:
            if mine.startswith('zoo') and not library.startswith('zoo'):
                found = ratios(rates[mine], rates[library])
                line += f'   {mine} is {statistics.median(found):.2f} times as fast ({spread(found)})'
        print(line, flush=True)
    return {
        'title': task.title,
        'rates': rates,
        'date': today(),
        'versions': {library: worker.versions for library, worker in workers.items()},
    }


def compare_checkouts(names: Sequence[str], rounds: int, before: Path, libraries: Sequence[str]) -> list[str]:
    """Let this checkout and another one take turns on each task; return the page."""
    lines = [
        '# Training throughput before and after a change',
        '',
        f'`python benchmarks/speed/throughput.py --before DIR`, {os.cpu_count()} cores, no GPU; before is '
        f'{commit(before)}. Steps per second, median over {rounds} rounds in which the two took turns; the ratio is '
        'the median of the ratios within a round, with the smallest and the largest.',
        '',
        *header('work', 'before', 'after', 'after / before'),
    ]
    for name in names:
        task = TASKS[name]
        for library in (x for x in task.libraries if x.startswith('zoo') and x in libraries):
            title = task.title + (', `mixed_bfloat16`' if library == 'zoo-bf16' else '')
            workers = {'after': Worker(sys.executable, library, name)}
            try:
                workers = {'before': Worker(sys.executable, library, name, before)} | workers
            except RuntimeError:
                workers['after'].close()
                show(lines, row(title, 'does not run', '', ''))
                continue
            rates = rates_of(workers, task, rounds)
            medians = (f'{statistics.median(values):,.0f}' for values in rates.values())
            show(lines, row(title, *medians, middle_and_spread(ratios(rates['after'], rates['before']))))
    return [*lines, '', f'Versions: {listed(versions_of("zoo"))}.', '', f'Run on {today()}.']


def report(results: dict[str, Any]) -> list[str]:
    """Return the result page; what an earlier run has not measured is called not measured."""
    columns = [library for library in LIBRARIES if library not in ('rejax', 'zoo-compiled')]
    titles = [*(LIBRARIES[x] for x in columns), *(' / '.join(LIBRARIES[x] for x in pair) for pair in RATIOS.values())]
    lines = [
        '# Training throughput',
        '',
        f'`python benchmarks/speed/throughput.py`, {os.cpu_count()} cores, no GPU. Steps per second, median over the '
        'rounds in which the libraries took turns; ratios are medians of the ratios within a round, with their '
        'smallest and largest. Compare ratios, not steps per second: those are this machine on that day. Bfloat16 is '
        "`dtype='mixed_bfloat16'`. Tuned settings are those that RL Baselines3 Zoo publishes.",
        '',
        *header('work', 'rounds', *titles),
    ]
    notes = []
    for name, result in results.items():
        task, rates = TASKS[name], result['rates']
        cells = [task.title, str(len(rates['zoo']))]
        for library in columns:
            known = f'{statistics.median(rates[library]):,.0f}' if library in rates else 'not measured'
            cells.append(known if library in task.libraries else '')
        for bar, pair in RATIOS.items():
            aim = f'; aim {task.bars[bar]:g}' if bar in task.bars else ''
            if all(library in rates for library in pair):
                found = ratios(*(rates[library] for library in pair))
                cells.append(f'**{statistics.median(found):.2f}** ({spread(found)}{aim})')
            else:
                cells.append(f'not measured{aim}' if all(library in task.libraries for library in pair) else '')
        lines.append(row(*cells))
        if 'rejax' in rates:
            found = ratios(rates['zoo'], rates['rejax'])
            notes += [
                '',
                f'{task.title}: rejax, which compiles the environment with the update, made '
                f'{statistics.median(rates["rejax"]):,.0f} steps per second in the same run; zoo / rejax is '
                f'**{statistics.median(found):.2f}** ({spread(found)}).',
            ]
        if 'zoo-compiled' in rates:
            found = {library: ratios(rates['zoo-compiled'], rates[library]) for library in rates}
            beside = [
                f'{LIBRARIES[library]} **{statistics.median(found[library]):.2f}** ({spread(found[library])})'
                for library in rates
                if library != 'zoo-compiled'
            ]
            notes += [
                '',
                f"{task.title}: zoo with `vectorized='compiled'` made {statistics.median(rates['zoo-compiled']):,.0f} "
                f'steps per second in the same run, as a multiple of {", ".join(beside)}.',
            ]
    lines += [*notes, '', 'Versions:', '']
    known_versions = {library: found for result in results.values() for library, found in result['versions'].items()}
    for library, found in known_versions.items():
        if library not in ('zoo-bf16', 'zoo-compiled'):  # they have zoo's versions
            lines.append(f'* {library}: {listed(found)}')
    dates = sorted({result['date'] for result in results.values()})
    return [*lines, '', f'Run on {" and ".join(dates)}.']


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('--task', choices=[*TASKS, 'all'], default='all')
    parser.add_argument('--rounds', type=int, default=7, help='pieces of each library')
    parser.add_argument('--peers-python', help='Python that has the peers, instead of the environment made here')
    parser.add_argument('--libraries', default=','.join(LIBRARIES))
    parser.add_argument('--before', type=Path, help='another checkout of zoo, to compare this one with')
    parser.add_argument('--worker', choices=LIBRARIES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.task)
        return
    libraries = args.libraries.split(',')
    if args.before:
        learning = [name for name, task in TASKS.items() if task.learns and task.fused == 1]
        names = learning if args.task == 'all' else [args.task]
        write_page('change', compare_checkouts(names, args.rounds, args.before.resolve(), libraries))
        return
    peers = args.peers_python or peers_python('.peers', PEERS)
    names = list(TASKS) if args.task == 'all' else [args.task]
    for name in names:
        if args.task == 'all' and TASKS[name].type == 'gymnax' and not importlib.util.find_spec('gymnax'):
            print(f'{name} is left out: it needs the extra jax, which zoo-rl[jax] installs.', flush=True)
            continue
        found = compare(name, args.rounds, peers, libraries)
        # Read again before writing: results of other tasks are kept, so that they can be run one by one.
        results = read_results('throughput') | {name: found}
        results = {task: results[task] for task in TASKS if task in results}
        write_results('throughput', results)
        write_page('throughput', report(results))


if __name__ == '__main__':
    main()
