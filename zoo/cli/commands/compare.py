"""``zoo compare``."""

from __future__ import annotations

import argparse
from typing import Any

import zoo
from zoo.cli.options import add_jobs, add_training
from zoo.cli.subject import MANY, add_subject
from zoo.cli.values import as_count, find_packages, training_params
from zoo.common.tools.errors import InvalidValue

HELP = 'train algorithms with several seeds each, side by side, and write a report'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject(parser, MANY, True, 'zoo compare PPO A2C --env CartPole-v1')
    parser.add_argument('--seeds', type=as_count, default=5, metavar='N', help='of each algorithm (default: 5)')
    add_training(parser, each=True)
    add_jobs(parser, 'compare_ENVIRONMENT', 20)


def run(args: Any) -> None:
    params = training_params(args)
    algs, params['nenv'] = _copies(args)
    find_packages(args.environment)
    print(zoo.compare(algs, args.environment, args.env_type, seeds=args.seeds, **params))


def _copies(args: Any) -> tuple[Any, int | None]:
    """Return the algorithms, with the copies that some have of their own, and the copies of the others."""
    own: dict[str | None, int] = {}
    for name, count in args.nenv:
        if name in own:
            raise InvalidValue(f'--nenv is given twice for {name or "all"}: leave one of them out.')
        if name is not None and name not in args.algorithms:
            raise InvalidValue(f'--nenv {name}={count}: {name} is none of {", ".join(args.algorithms)}.')
        own[name] = count
    everywhere = own.pop(None, None)
    if not own:
        return args.algorithms, everywhere
    return {alg: {'alg': alg} | ({'nenv': own[alg]} if alg in own else {}) for alg in args.algorithms}, everywhere
