"""``zoo estimate``."""

from __future__ import annotations

import argparse
from typing import Any

import zoo
from zoo.cli.options import add_best, add_run
from zoo.cli.values import agent_names, as_count, as_seed

HELP = 'estimate the return of a trained agent from recorded episodes alone'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add = parser.add_argument
    add('dataset', metavar='DATASET', help='a file or folder of recorded episodes, or the id of a Minari dataset')
    told = 'fqe (fitted Q evaluation), or importance sampling: is, wis, pdis, wpdis (default: fqe)'
    add('--method', default='fqe', metavar='METHOD', choices=('fqe', 'is', 'wis', 'pdis', 'wpdis'), help=told)
    told = 'for importance sampling: the run or agent that recorded the episodes (default: what they hold)'
    add('--behavior', metavar='RUN', help=told).completer = agent_names  # type: ignore[attr-defined]
    add('--deterministic', action='store_true', help='judge the best actions, in place of what the policy samples')
    add('--gamma', type=float, metavar='GAMMA', help="the discount (default: the agent's)")
    add('--updates', type=as_count, metavar='N', help='for fqe: gradient updates (default: 10000)')
    add('--refits', type=as_count, metavar='N', help='for fqe: more fits, for an interval with the error of the values')
    add('--seed', type=as_seed, default=0, metavar='N', help='of weights, batches and the interval (default: 0)')
    add_best(parser)


def run(args: Any) -> None:
    agent = zoo.open_run(args.run_name).load(best=args.best)
    behavior = None if args.behavior is None else zoo.open_run(args.behavior).load()
    given = {'gamma': args.gamma, 'refits': args.refits, 'train_updates': args.updates}
    given = {name: value for name, value in given.items() if value is not None}
    deterministic, seed = args.deterministic, args.seed
    print(zoo.estimate_return(agent, args.dataset, args.method, behavior, deterministic, seed=seed, **given).summary())
