"""The learner's share of time in updates while actors push their steps into a buffer: Ape-X's point.

    python benchmarks/scale/apex.py           # two actors, a buffer, a learner; writes results/apex.md; two minutes
    python benchmarks/scale/apex.py --actors 4 --buffers 2 --seconds 60

What counts is the share of time inside the compiled update, from the first update to the last. The rest is the time
that the learner asks, waits, weighs and reports; the smaller an update, the larger this share. Steps per second are
the sum over all actors.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import header, parser_of, row, show, stamp, write_page

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

#: Units of the hidden layers, batch size and updates in a call: the paper's batch, CartPole's defaults, fewer updates.
SIZES: list[tuple[list[int] | None, int | None, int | None]] = [
    ([256, 256], 512, 8),
    (None, None, None),
    (None, None, 8),
]


def measure(hidden: list[int] | None, batch_size: int | None, updates: int | None, args: argparse.Namespace) -> str:
    """Return a row of the table; None stands for the default."""
    from zoo import algorithms, build_env, call_default_params

    env = build_env('CartPole-v1', 'classic_control')
    alg_params, learn_params = call_default_params(env, 'classic_control', 'ApexDQN', seed=0)
    hidden = alg_params['net_list'][0]['hidden'] = hidden or alg_params['net_list'][0]['hidden']
    batch_size = batch_size or learn_params['batch_size']
    updates = updates or learn_params['updates']
    agent = algorithms.ApexDQN(**alg_params)
    update_on, took, steps = agent.update_on, [], []
    ends: list[float] = []

    def timed(batches: Any) -> dict[str, float]:
        begin = time.perf_counter()
        metrics = update_on(batches)
        took.append((begin, time.perf_counter()))
        steps.append(agent.steps)
        ends[:] = ends or [took[0][1] + args.seconds]  # the first one is compiled
        return metrics

    agent.update_on = timed  # type: ignore[method-assign]
    learn_params |= {
        'roles': {'learners': 1, 'actors': args.actors, 'buffers': args.buffers},
        'train_steps': 10**9,
        'log_every': 1000,
        'batch_size': batch_size,
        'updates': updates,
        'verbose': 0,
    }
    agent.learn(env, run_dir=False, callbacks=[lambda _: not ends or time.perf_counter() < ends[0]], **learn_params)
    env.close()
    passed = took[-1][1] - took[0][1]
    within = sum(end - begin for begin, end in took[1:])
    rates = (f'{count / passed:,.0f}' for count in (updates * (len(took) - 1), steps[-1] - steps[0]))
    size = '×'.join(map(str, hidden))
    return row(args.actors, args.buffers, size, batch_size, updates, f'**{100 * within / passed:.1f} %**', *rates)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('--actors', type=int, default=2)
    parser.add_argument('--buffers', type=int, default=1)
    parser.add_argument('--seconds', type=float, default=30.0, help='of updates, for each row')
    args = parser.parse_args()
    lines = [
        '# The learner of Ape-X',
        '',
        f'`python benchmarks/scale/apex.py`, {stamp("tensorflow", "numpy", "gymnasium")}. `CartPole-v1`, '
        f'{args.seconds:.0f} seconds a row.',
        '',
        *header(
            *('actors', 'buffers', 'network', 'batch', 'updates in a call'),
            *('time in updates (aim 90 %)', 'updates a second', 'steps a second'),
        ),
    ]
    for size in SIZES:
        show(lines, measure(*size, args))
    write_page('apex', lines)


if __name__ == '__main__':
    main()
