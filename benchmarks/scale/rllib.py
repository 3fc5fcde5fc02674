"""Steps per second of trainings with two actors and one learner, of zoo and of RLlib, which take turns.

    python benchmarks/scale/rllib.py              # writes results/rllib.md; about six minutes, after RLlib is installed
    python benchmarks/scale/rllib.py --rounds 5

RLlib has a virtual environment of its own, ``benchmarks/.rllib``, which the first run makes (Ray, PyTorch for CPUs:
about 1.5 GB): it needs another Gymnasium. Each training runs in processes of its own, one that learns and two that
act. For RLlib these are ``num_env_runners=2, num_learners=0``, its default. Steps are counted from the first row of
the log after some seconds, when everything has started and is compiled, to the row at the end. Networks, copies,
rollouts, minibatches and epochs are the same; everything else is each library's default. The ratio is the median of
the ratios in each round.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import (
    answer_of,
    environment,
    header,
    listed,
    parser_of,
    peers_python,
    ratios,
    row,
    spread,
    take_turns,
    today,
    versions,
    write_page,
)

PEER = ('torch==2.13.0', 'ray[rllib]==2.60.0')
ACTORS = 2
HIDDEN = [64, 64]
#: Seconds until everything has started, and seconds of what is counted.
WARM, MEASURED = 12.0, 20.0
#: Of the algorithms, by what they are called here: steps of a rollout of one actor, and of all that an update is of.
WORK: dict[str, dict[str, int]] = {
    'PPO': {'horizon': 1024, 'batch_size': 128, 'epochs': 10},
    'IMPALA': {'horizon': 50, 'rollouts': 10},
}
TITLES = {
    'PPO': 'PPO, 1,024 steps of each of two actors, 10 epochs, minibatch 128',
    'IMPALA': 'IMPALA, rollouts of 50 steps, ten of them in an update',
}


class Clock:
    """Counts the steps after the warm-up; called with the steps so far, False once there are seconds enough."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.first: tuple[float, int] | None = None
        self.rate = 0.0

    def __call__(self, steps: int) -> bool:
        now = time.perf_counter()
        if self.first is None:
            if now - self.start > WARM and steps:
                self.first = (now, steps)
            return True
        begin, before = self.first
        self.rate = (steps - before) / (now - begin)
        return now - begin < MEASURED


def train_zoo(alg: str) -> float:
    """Steps per second of zoo."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    import zoo

    clock = Clock()
    zoo.train(
        alg,
        'CartPole-v1',
        net=HIDDEN,
        roles={'learners': 1, 'actors': ACTORS},
        train_steps=1_000_000_000,
        log_every=2048,
        callbacks=[lambda training: clock(training.steps)],
        run_dir=False,
        verbose=0,
        **WORK[alg],
    )
    return clock.rate


def train_rllib(alg: str) -> float:
    """Steps per second of RLlib."""
    import ray
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    ray.init(num_cpus=ACTORS + 1, include_dashboard=False, log_to_driver=False, _node_ip_address='127.0.0.1')
    work = WORK[alg]
    if alg == 'PPO':
        training = {
            'train_batch_size_per_learner': ACTORS * work['horizon'],
            'minibatch_size': work['batch_size'],
            'num_epochs': work['epochs'],
        }
        config = PPOConfig()
    else:
        training = {'train_batch_size_per_learner': work['rollouts'] * work['horizon']}
        config = IMPALAConfig()
    algo = (
        config.environment('CartPole-v1')
        .env_runners(num_env_runners=ACTORS, num_envs_per_env_runner=1, rollout_fragment_length=work['horizon'])
        .learners(num_learners=0)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=HIDDEN, fcnet_activation='tanh'))
        .training(**training)
        .reporting(min_time_s_per_iteration=1)
        .build_algo()
    )
    clock = Clock()
    while clock(int(algo.train()['env_runners'].get('num_env_steps_sampled_lifetime', 0))):
        continue
    algo.stop()
    ray.shutdown()
    return clock.rate


TRAIN = {'zoo': train_zoo, 'rllib': train_rllib}


def measure(python: str, library: str, alg: str) -> dict[str, Any]:
    """One training in a process of its own: its steps per second, and the versions."""
    command = [python, __file__, '--worker', library, '--alg', alg]
    return answer_of(command, environment() if library == 'zoo' else None)


def versions_of(library: str) -> dict[str, str]:
    """Return the versions of what a training runs on."""
    names = {'zoo': ('tensorflow', 'keras', 'numpy', 'gymnasium'), 'rllib': ('ray', 'torch', 'numpy', 'gymnasium')}
    return versions(*names[library])


def report(rates: dict[str, dict[str, list[float]]], known: dict[str, dict[str, str]]) -> list[str]:
    """Return the lines of the result page."""
    lines = [
        '# Trainings with actors: zoo and RLlib',
        '',
        f'`python benchmarks/scale/rllib.py`, {os.cpu_count()} cores, no GPU. CartPole-v1, networks of 64×64, two '
        'actors with one copy each and one learner, each in its own process. Steps per second, medians over the rounds '
        'in which the two took turns; the ratio is the median of the rounds, with the smallest and the largest.',
        '',
        *header('work', 'rounds', 'zoo', 'RLlib', 'zoo / RLlib'),
    ]
    for alg, found in rates.items():
        own = ratios(found['zoo'], found['rllib'])
        medians = (f'{statistics.median(found[library]):,.0f}' for library in TRAIN)
        lines.append(row(TITLES[alg], len(own), *medians, f'**{statistics.median(own):.2f}** ({spread(own)}; aim 3)'))
    return [*lines, '', *(f'* {name}: {listed(found)}' for name, found in known.items()), '', f'Run on {today()}.']


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('--rounds', type=int, default=3, help='trainings of each library')
    parser.add_argument('--alg', choices=list(WORK), help='one of them')
    parser.add_argument('--worker', choices=list(TRAIN), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(
            '\n' + json.dumps({'rate': TRAIN[args.worker](args.alg), 'versions': versions_of(args.worker)}), flush=True
        )
        return
    python = {'zoo': sys.executable, 'rllib': peers_python('.rllib', PEER)}
    rates: dict[str, dict[str, list[float]]] = {}
    known: dict[str, dict[str, str]] = {}
    for alg in [args.alg] if args.alg else WORK:

        def rate(library: str, alg: str = alg) -> float:
            found = measure(python[library], library, alg)
            known[library] = found['versions']
            print(f'{alg} {library:5} {found["rate"]:8.0f} steps/s', flush=True)
            return found['rate']

        rates[alg] = take_turns({library: functools.partial(rate, library) for library in TRAIN}, args.rounds)
    write_page('rllib', report(rates, known))


if __name__ == '__main__':
    main()
