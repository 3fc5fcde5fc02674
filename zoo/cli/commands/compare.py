"""``zoo compare``."""

from __future__ import annotations

import argparse
from typing import Any

import zoo
from zoo.cli.options import add_jobs, add_training
from zoo.cli.subject import MANY, add_subject
from zoo.cli.values import as_count, as_number, training_params
from zoo.common.tools.errors import InvalidValue

HELP = 'train algorithms with several seeds each, side by side, in one environment or several, and write a report'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject(parser, MANY, True, 'zoo compare PPO A2C --env CartPole-v1')
    parser.add_argument('--seeds', type=as_count, default=5, metavar='N', help='of each algorithm (default: 5)')
    told = 'the score that counts as 1 in one of several environments (default: from a table, else the highest mean)'
    parser.add_argument('--reference', action='append', default=[], metavar='ENVIRONMENT=SCORE', help=told)
    add_training(parser, each=True)
    add_jobs(parser, 'compare_ENVIRONMENT or compare_environments', 20)


def run(args: Any) -> None:
    params = training_params(args)
    algs, params['nenv'] = _copies(args)
    where = args.environments if args.environments[1:] else args.environment
    if args.reference:
        params['references'] = _references(args.reference)
    print(zoo.compare(algs, where, args.env_type, seeds=args.seeds, **params))


def _references(given: list[str]) -> dict[str, float]:
    """Return the scores of ``--reference`` by environment."""
    found: dict[str, float] = {}
    for text in given:
        name, _, value = text.rpartition('=')
        if not name:
            raise InvalidValue(f'--reference {text}: give an environment and a score, such as CartPole-v1=500.')
        if name in found:
            raise InvalidValue(f'--reference is given twice for {name}: leave one of them out.')
        try:
            found[name] = as_number(value)
        except argparse.ArgumentTypeError as error:
            raise InvalidValue(f'--reference {text}: {error}.') from None
    return found


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
