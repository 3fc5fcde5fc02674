"""The learner's share of time in updates while actors push their steps into a buffer: Ape-X's point.

    python benchmarks/apex.py                          # two actors, one buffer, one learner; about a minute
    python benchmarks/apex.py --actors 4 --buffers 2 --seconds 60 --batch-size 512

What counts is the time inside the compiled update, of all that passes between the first and the last one; the rest is
what the learner spends on asking, waiting, weighing and telling. Steps per second are those of all actors. The last
line is a row for a table.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--actors', type=int, default=2)
    parser.add_argument('--buffers', type=int, default=1)
    parser.add_argument('--seconds', type=float, default=30.0, help='of updates')
    parser.add_argument('--batch-size', type=int, default=512, help="the paper's by default")
    parser.add_argument('--hidden', type=int, nargs='+', default=[256, 256])
    parser.add_argument('--updates', type=int, default=8, help='in one call')
    args = parser.parse_args()

    from zoo import algorithms, build_env, call_default_params

    env = build_env('CartPole-v1', 'classic_control')
    alg_params, learn_params = call_default_params(env, 'classic_control', 'ApexDQN', seed=0)
    alg_params['net_list'][0]['hidden'] = args.hidden
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
        'batch_size': args.batch_size,
        'updates': args.updates,
        'progress_bar': False,
    }
    agent.learn(env, run_dir=False, callbacks=[lambda _: not ends or time.perf_counter() < ends[0]], **learn_params)
    passed = took[-1][1] - took[0][1]
    within = sum(end - begin for begin, end in took[1:])
    print(
        f'| {args.actors} actors, {args.buffers} buffers, batch {args.batch_size}, {args.hidden} | '
        f'{100 * within / passed:.1f} % in updates | {args.updates * (len(took) - 1) / passed:,.0f} updates/s | '
        f'{(steps[-1] - steps[0]) / passed:,.0f} steps/s |'
    )


if __name__ == '__main__':
    main()
