"""``zoo check``."""

from __future__ import annotations

import argparse
from typing import Any

import zoo
from zoo.cli.printing import FAILED
from zoo.cli.subject import NONE, add_subject
from zoo.cli.values import as_count, find_packages, parse_settings
from zoo.common.tools.errors import InvalidValue

HELP = 'play an environment with random actions and say what is wrong with it'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject(parser, NONE, True, 'zoo check CartPole-v1')
    told = "an argument of the environment's constructor; repeatable"
    parser.add_argument('--env-set', action='append', default=[], metavar='NAME=VALUE', help=told)
    parser.add_argument(
        '--steps', metavar='N', type=as_count, default=1000, help='steps to take at most (default: 1000)'
    )


def run(args: Any) -> int:
    given: Any = args.environment
    env_params = parse_settings('--env-set', args.env_set)
    for name in ('env', 'steps', 'seed'):
        if name in env_params:
            raise InvalidValue(f'--env-set {name}: that is no argument of the environment; see zoo check --help.')
    find_packages(given)
    from zoo.common.env_wrappers import TYPES, find_env_type

    env_type = find_env_type(given) if args.env_type is None else args.env_type
    # Gymnasium does not know the names of the other types; build_env refuses a name of another type.
    if TYPES[env_type] not in ('registered', 'atari') or env_type not in ('gymnasium', find_env_type(given)):
        given, env_params = zoo.build_env(given, env_type, **env_params), {}
    return FAILED if zoo.check_env(given, steps=args.steps, **env_params) else 0
