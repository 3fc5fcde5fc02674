"""The part of a step of training that is not the update: stepping, acting, storing, drawing, and what is around them.

    python benchmarks/speed/outside.py                # writes results/outside.md; some ten minutes
    python benchmarks/speed/outside.py sac tqc        # some of the tasks

Measured are the tasks of ``tasks.py`` that do one update after each step of one environment. The update is
the time inside the agent's ``update_on``, which takes drawn transitions and returns numbers. The figures are medians
and extremes over several processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import answer_of, checked, environment, header, listed, parser_of, row, show, spread, today, write_page
from tasks import TASKS
from throughput import versions_of
from trainers import zoo_agent, zoo_arguments

NAMES = tuple(
    name
    for name, task in TASKS.items()
    if task.learns and task.nenv == task.fused == task.train_freq == task.gradient_steps == 1
)
#: Updates that are not measured; the first ones compile.
WARM = 500


def measure(name: str, updates: int) -> tuple[float, float]:
    """Return the mean seconds of a step and of its update, over so many of them."""
    task = TASKS[name]
    agent, env = zoo_agent('zoo', task)
    update_on, spans = agent.update_on, []

    def timed(batches: Any) -> dict[str, float]:
        begin = time.perf_counter()
        metrics = update_on(batches)
        spans.append((begin, time.perf_counter()))
        return metrics

    agent.update_on = timed
    learn = zoo_arguments(task)[1] | {'seed': 0, 'verbose': 0, 'run_dir': False}
    learn['train_steps'] = learn['explore_steps'] + WARM + updates
    agent.learn(env, 'train', **learn)
    env.close()
    spans = spans[WARM:]
    within = sum(end - begin for begin, end in spans[1:])
    return (spans[-1][1] - spans[0][1]) / (len(spans) - 1), within / (len(spans) - 1)


def row_of(name: str, updates: int, rounds: int) -> str:
    """Measure one task in processes of its own and return its row of the table."""
    command = [sys.executable, __file__, '--measure', name, '--updates', str(updates)]
    found = [answer_of(command, environment()) for _ in range(rounds)]
    parts = [100 * (1 - update / step) for step, update in found]
    step, update = (1e6 * statistics.median(column) for column in zip(*found, strict=True))
    outside = f'**{statistics.median(parts):.1f} %** ({spread(parts, ".1f")})'
    return row(TASKS[name].title, f'{step:,.0f}', f'{update:,.0f}', outside)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('names', nargs='*', metavar='task', help=f'of {", ".join(NAMES)}; all when none is named')
    parser.add_argument('--updates', type=int, default=3000)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--measure', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.updates)))
        return
    names = checked(parser, 'task', args.names, NAMES)
    lines = [
        '# Outside the update',
        '',
        f'`python {" ".join(["benchmarks/speed/outside.py", *sys.argv[1:]])}`, {today()}, '
        f'{os.cpu_count()} cores, {args.updates:,} updates in each of {args.rounds} processes. Of SAC the aim is 12 %.',
        '',
        *header('work', 'microseconds of a step', 'of its update', 'outside'),
    ]
    for name in names:
        show(lines, row_of(name, args.updates, args.rounds))
    write_page('outside', [*lines, '', f'Versions: {listed(versions_of("zoo"))}.'])


if __name__ == '__main__':
    main()
