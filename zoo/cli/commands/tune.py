"""``zoo tune``."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

import zoo
from zoo.cli.options import add_jobs, add_training
from zoo.cli.subject import ONE, add_subject
from zoo.cli.values import as_count, as_seed, parse_settings, training_options, training_params
from zoo.common.tools.errors import InvalidValue

HELP = 'search hyper-parameters with Optuna; the same command again goes on'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject(parser, ONE, True, 'zoo tune TD3 Pendulum-v1')
    add = parser.add_argument
    add('--trials', type=as_count, default=20, metavar='N', help='in all (default: 20)')
    told = 'search this parameter: around its default, in a [list], or between (two, bounds); repeatable'
    add('--search', action='append', default=[], metavar='NAME[=VALUES]', help=told)
    add('--sampler', default='tpe', metavar='NAME', help='tpe or random (default: tpe)')
    add('--pruner', default='median', metavar='NAME', help='median, halving or none (default: median)')
    add('--seed', type=as_seed, default=0, help='of the sampler and of the first training of each trial (default: 0)')
    told = 'trainings of each trial, with the seeds from --seed on; its score is their mean (default: 1)'
    add('--seeds', type=as_count, default=1, metavar='N', help=told)
    add_training(parser)
    add_jobs(parser, 'tune_ALGORITHM_ENVIRONMENT', 10)


def run(args: Any) -> None:
    if args.seed is None:
        raise InvalidValue('--seed none: a study that can go on needs a seed, such as --seed 0.')
    params = training_params(args)
    search: dict[str, Any] = {}
    for text in args.search:
        search |= parse_settings('--search', [text]) if '=' in text else {text.replace('-', '_'): None}
    made = zoo.tune(
        args.algorithm,
        args.environment,
        args.env_type,
        trials=args.trials,
        search=search or None,
        sampler=args.sampler,
        pruner=args.pruner,
        seed=args.seed,
        seeds=args.seeds,
        **params,
    )
    print(made)
    if made.best is not None:
        found = [f'--set {shlex.quote(f"{name}={value}")}' for name, value in made.params.items()]
        print(' '.join(['zoo train', args.algorithm, shlex.quote(args.environment), *training_options(args), *found]))
