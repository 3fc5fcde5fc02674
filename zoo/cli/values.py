"""Values typed on the command line: counts, seeds, names, ``NAME=VALUE`` settings."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from collections.abc import Iterable
from typing import Any

import zoo
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.literals import read_literal

#: Arguments of ``zoo.train``, and arguments of ``zoo.compare`` and ``zoo.tune``, that ``--set`` refuses.
_OF_TRAIN = (
    'seed', 'nenv', 'run_dir', 'render', 'callbacks', 'evaluate', 'env_type', 'plot_func', 'alg', 'env_id',
    'env_params', 'start_from',
)  # fmt: skip
_OF_MANY = (
    'algs', 'seeds', 'test_episodes', 'references', 'jobs', 'out', 'progress', 'trials', 'search', 'sampler', 'pruner',
)  # fmt: skip
#: The options of arguments with another name.
_OPTIONS = {'alg': 'algo', 'algs': 'algo', 'env_id': 'env', 'env_type': 'type', 'env_params': 'env-set'}
_OPTIONS |= {'test_episodes': 'episodes', 'start_from': 'from', 'references': 'reference'}


def env_types() -> tuple[str, ...]:
    from zoo.common.env_wrappers import TYPES

    return tuple(TYPES)


def as_count(text: str) -> int:
    """Return a whole number of at least 1, given as ``'500'``, ``'50_000'`` or ``'5e4'``."""
    try:
        number = int(text.replace('_', '')) if 'e' not in text.lower() else int(float(text))
        if 'e' in text.lower() and number != float(text):
            number = 0
    except (ValueError, OverflowError):
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is not a whole number of at least 1')
    return number


def as_port(text: str) -> int:
    """Return the number of a port, from 1 to 65535."""
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f'{text!r} is not a whole number from 1 to 65535')
    return int(text)


def as_number(text: str) -> float:
    """Return a number that is not NaN."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise argparse.ArgumentTypeError(f'{text!r} is not a number')
    return number


def as_copies(text: str) -> tuple[str | None, int]:
    """Return an algorithm and its number of copies, given as ``'A2C=8'``; None for all, ``'8'``."""
    name, equals, count = text.rpartition('=')
    return (name if equals else None), as_count(count)


def as_seed(text: str) -> int | None:
    """Return a seed; ``'none'`` gives None, an unpredictable one."""
    if text.lower() == 'none':
        return None
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f'{text!r} is not a whole number of at least 0, nor none')
    return int(text)


#: What words of a shell mean. As texts they would all be true.
_WORDS = {'true': True, 'false': False, 'none': None, 'null': None}


def parse_value(text: str) -> Any:
    """Return a Python literal, ``Linear(…)`` of numbers, or else the text itself, unless it begins like a literal.

    ``true``, ``false``, ``null`` and ``none`` are no text, but what YAML and Python mean by them, in any case.
    """
    if text.strip().lower() in _WORDS:
        return _WORDS[text.strip().lower()]
    try:
        return read_literal(text)
    except (ValueError, SyntaxError, TypeError) as error:
        if text.strip().startswith(('[', '{', '(', '"', "'", 'Linear(')):
            raise InvalidValue(f'{text!r} is no Python value: {str(error).partition("(")[0].strip(" .")}.') from None
        return text


def parse_settings(option: str, given: Iterable[str]) -> dict[str, Any]:
    """Return the values by name of a repeatable option such as ``--set gamma=0.98``."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition('=')
        name = name.strip().replace('-', '_')
        if not equals or not name.isidentifier():
            raise InvalidValue(f'{option} {text}: give a name and a value, such as {option} gamma=0.98.')
        if name in found:
            raise InvalidValue(f'{option} {name} is given twice: leave one of them out.')
        found[name] = parse_value(value)
    return found


def env_names(prefix: str = '', **_: Any) -> list[str]:
    """Return Gymnasium's environments with this prefix, for completion."""
    return [name for name in zoo.list_envs('gymnasium', latest=True) if name.startswith(prefix)]


def run_names(prefix: str = '', **_: Any) -> list[str]:
    """Return the runs with this prefix, for completion."""
    return [name for name in [*(run.name for run in zoo.list_runs()), 'last'] if name.startswith(prefix)]


def agent_names(prefix: str = '', **_: Any) -> list[str]:
    """Return the runs and the trained agents with this prefix, for completion."""
    return [*run_names(prefix), *(card.name for card in zoo.list_agents() if card.name.startswith(prefix))]


def training_params(args: Any) -> dict[str, Any]:
    """Return the arguments of ``zoo.train`` for the options of :func:`zoo.cli.options.add_training`.

    For other commands, also the arguments for the options of :func:`zoo.cli.options.add_jobs`, and ``nenv``.
    """
    params = parse_settings('--set', args.set)
    for name, option, value in (
        ('train_steps', '--steps', args.steps),
        ('net', '--net', args.net),
        ('dataset', '--dataset', args.dataset),
    ):
        if value is not None:
            if name in params:
                raise InvalidValue(f'{option} and --set {name} say the same: give one of them.')
            params[name] = value
    for name in (*_OF_TRAIN, *(() if args.command == 'train' else _OF_MANY)):
        if name in params:
            option = _OPTIONS.get(name, name).replace('_', '-')
            raise InvalidValue(f'--set {name}: it is an option of its own, --{option}, or belongs to programs alone.')
    if args.env_set:
        params['env_params'] = parse_settings('--env-set', args.env_set)
    if args.command != 'train':
        params |= {'nenv': args.nenv, 'jobs': args.jobs, 'out': args.out, 'test_episodes': args.episodes}
    return params


def training_options(args: Any) -> list[str]:
    """Return the options of a training, the type and the seed, as they were given."""
    given = [('--type', args.env_type), ('--steps', args.steps), ('--net', args.net)]
    given += [('--dataset', args.dataset), ('--nenv', args.nenv), ('--seed', args.seed if args.seed else None)]
    given += [('--set', text) for text in args.set] + [('--env-set', text) for text in args.env_set]
    return [f'{option} {shlex.quote(str(value))}' for option, value in given if value is not None]


def find_packages(environment: str) -> None:
    """Let ``package:Name-v0`` be a package in the working directory, as ``python`` does."""
    if ':' in environment and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
