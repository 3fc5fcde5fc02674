"""The part of a step of training that is not the update: stepping, acting, storing, drawing, and what is around them.

    python benchmarks/outside.py                # writes results/outside.md; some ten minutes
    python benchmarks/outside.py sac tqc        # some of the tasks

The settings are those of the tasks of ``throughput.py`` with one update after each step of one environment. What counts
as the update is the time inside the agent's ``update_on``, which takes drawn transitions and returns numbers; of
processes of their own, the median and the extremes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from throughput import TASKS, versions, zoo_agent, zoo_arguments

RESULT = Path(__file__).resolve().parent / 'results' / 'outside.md'
NAMES = tuple(
    name
    for name, task in TASKS.items()
    if task.learns and task.nenv == task.fused == task.train_freq == task.gradient_steps == 1
)
#: Updates that are not measured, the first of which are compiled.
WARM = 500


def measure(name: str, updates: int) -> tuple[float, float]:
    """Seconds of a step and of its update, of so many of them."""
    task = TASKS[name]
    agent, env = zoo_agent('zoo', task)
    update_on, spans = agent.update_on, []

    def timed(batches: Any) -> dict[str, float]:
        begin = time.perf_counter()
        metrics = update_on(batches)
        spans.append((begin, time.perf_counter()))
        return metrics

    agent.update_on = timed
    learn = zoo_arguments(task)[1] | {'seed': 0, 'progress_bar': False, 'run_dir': False}
    learn['train_steps'] = learn['explore_steps'] + WARM + updates
    agent.learn(env, 'train', **learn)
    env.close()
    spans = spans[WARM:]
    within = sum(end - begin for begin, end in spans[1:])
    return (spans[-1][1] - spans[0][1]) / (len(spans) - 1), within / (len(spans) - 1)


def row(name: str, updates: int, rounds: int) -> str:
    """Of the table."""
    found = []
    for _ in range(rounds):
        command = [sys.executable, __file__, '--measure', name, '--updates', str(updates)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout.strip().splitlines()[-1]))
    parts = [100 * (1 - update / step) for step, update in found]
    step, update = (1e6 * statistics.median(column) for column in zip(*found, strict=True))
    extremes = f'{min(parts):.1f} to {max(parts):.1f}'
    return f'| {TASKS[name].title} | {step:,.0f} | {update:,.0f} | **{statistics.median(parts):.1f} %** ({extremes}) |'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', metavar='task', help=f'of {", ".join(NAMES)}; all when none is named')
    parser.add_argument('--updates', type=int, default=3000)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--measure', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.updates)))
        return
    if unknown := set(args.names) - set(NAMES):
        parser.error(f'unknown task {min(unknown)!r}: choose from {", ".join(NAMES)}')
    lines = [
        '# Outside the update',
        '',
        f'`python {" ".join(["benchmarks/outside.py", *sys.argv[1:]])}`, {datetime.date.today().isoformat()}, '
        f'{os.cpu_count()} cores, {args.updates:,} updates in each of {args.rounds} processes. Of SAC the aim is 12 %.',
        '',
        '| work | microseconds of a step | of its update | outside |',
        '|---|---|---|---|',
    ]
    for name in args.names or NAMES:
        lines.append(row(name, args.updates, args.rounds))
        print(lines[-1], flush=True)
    stamp = ', '.join(f'{package} {version}' for package, version in versions('zoo').items())
    RESULT.write_text('\n'.join([*lines, '', f'Versions: {stamp}.', '']), encoding='utf-8')


if __name__ == '__main__':
    main()
