"""The learner's share of time in updates while actors push their steps into a buffer: Ape-X's point.

    python benchmarks/apex.py             # two actors, one buffer, one learner; writes results/apex.md; two minutes
    python benchmarks/apex.py --actors 4 --buffers 2 --seconds 60

What counts is the time inside the compiled update, of all that passes between the first and the last one; the rest is
what the learner spends on asking, waiting, weighing and telling, and the more of the whole the smaller an update is.
Steps per second are those of all actors.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

RESULTS = Path(__file__).resolve().parent / 'results' / 'apex.md'
#: Units of the hidden layers, size of a batch and updates in a call: the paper's batch, CartPole's defaults, and fewer.
SIZES: list[tuple[list[int] | None, int | None, int | None]] = [
    ([256, 256], 512, 8),
    (None, None, None),
    (None, None, 8),
]


def measure(hidden: list[int] | None, batch_size: int | None, updates: int | None, args: argparse.Namespace) -> str:
    """A row of the table; None stands for what the defaults have."""
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
        'progress_bar': False,
    }
    agent.learn(env, run_dir=False, callbacks=[lambda _: not ends or time.perf_counter() < ends[0]], **learn_params)
    env.close()
    passed = took[-1][1] - took[0][1]
    within = sum(end - begin for begin, end in took[1:])
    return (
        f'| {args.actors} | {args.buffers} | {"×".join(map(str, hidden))} | {batch_size} | {updates} | '
        f'**{100 * within / passed:.1f} %** | {updates * (len(took) - 1) / passed:,.0f} | '
        f'{(steps[-1] - steps[0]) / passed:,.0f} |'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--actors', type=int, default=2)
    parser.add_argument('--buffers', type=int, default=1)
    parser.add_argument('--seconds', type=float, default=30.0, help='of updates, for each row')
    args = parser.parse_args()
    versions = ', '.join(f'{name} {metadata.version(name)}' for name in ('tensorflow', 'numpy', 'gymnasium'))
    lines = [
        '# The learner of Ape-X',
        '',
        f'`python benchmarks/apex.py`, {datetime.date.today().isoformat()}. Python {platform.python_version()}, '
        f'{versions}, {platform.system()}, {os.cpu_count()} cores. `CartPole-v1`, '
        f'{args.seconds:.0f} seconds a row.',
        '',
        '| actors | buffers | network | batch | updates in a call | time in updates (aim 90 %) | updates a second '
        '| steps a second |',
        '|---|---|---|---|---|---|---|---|',
    ]
    for size in SIZES:
        lines.append(measure(*size, args))
        print(lines[-1], flush=True)
    RESULTS.write_text('\n'.join([*lines, '']), encoding='utf-8')


if __name__ == '__main__':
    main()
