"""Values typed on the command line: counts, seeds, names, ``KEY=VALUE`` settings."""

from __future__ import annotations

import argparse
import ast
import os
import shlex
import sys
from collections.abc import Iterable
from typing import Any

import zoo


def env_types() -> tuple[str, ...]:
    from zoo.common.env_wrappers import TYPES

    return tuple(TYPES)


def as_count(text: str) -> int:
    try:
        number = int(text.replace('_', '')) if 'e' not in text.lower() else int(float(text))
        if 'e' in text.lower() and number != float(text):
            number = 0
    except (ValueError, OverflowError):
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is not a whole number of at least 1')
    return number


def as_seed(text: str) -> int | None:
    if text.lower() == 'none':
        return None
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f'{text!r} is not a whole number of at least 0, nor none')
    return int(text)


def parse_value(text: str) -> Any:
    """The value of ``--set NAME=VALUE``: a Python literal, ``Linear(…)`` of numbers, or else the text itself.

    Raises:
        ValueError: it begins like a literal and is none.
    """
    try:
        node = ast.parse(text.strip(), mode='eval').body
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == 'Linear':
            args = [ast.literal_eval(arg) for arg in node.args]
            return zoo.Linear(*args, **{key.arg: ast.literal_eval(key.value) for key in node.keywords if key.arg})
        return ast.literal_eval(node)
    except (ValueError, SyntaxError, TypeError) as error:
        if text.strip()[:1] in ('[', '{', '(', '"', "'") or text.strip().startswith('Linear('):
            raise ValueError(f'{text!r} is no Python value: {str(error).partition("(")[0].strip()}.') from None
        return text


def parse_settings(option: str, given: Iterable[str]) -> dict[str, Any]:
    """The values by name of an option such as ``--set gamma=0.98``, which may be there several times.

    Raises:
        ValueError: one without ``=``, a name that is given twice, or a value that cannot be read.
    """
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition('=')
        name = name.strip().replace('-', '_')
        if not equals or not name.isidentifier():
            raise ValueError(f'{option} {text}: give a name and a value, such as {option} gamma=0.98.')
        if name in found:
            raise ValueError(f'{option} {name} is given twice: leave one of them out.')
        found[name] = parse_value(value)
    return found


def env_names(prefix: str = '', **_: Any) -> list[str]:
    return [name for name in zoo.list_envs('gymnasium', latest=True) if name.startswith(prefix)]


def run_names(prefix: str = '', **_: Any) -> list[str]:
    return [name for name in [*(run.name for run in zoo.list_runs()), 'last'] if name.startswith(prefix)]


def training_params(args: Any) -> dict[str, Any]:
    """The arguments of ``zoo.train`` that the options of :func:`_add_training` stand for."""
    params = parse_settings('--set', args.set)
    for name, option, value in (('train_steps', '--steps', args.steps), ('net', '--net', args.net)):
        if value is not None:
            if name in params:
                raise ValueError(f'{option} and --set {name} say the same: give one of them.')
            params[name] = value
    own = ['seed', 'nenv', 'run_dir', 'render', 'callbacks', 'env_type', 'plot_func', 'alg', 'env_id', 'env_params']
    if args.command != 'train':  # which has more of its own
        own += ['algs', 'seeds', 'test_episodes', 'jobs', 'out', 'progress', 'trials', 'search', 'sampler', 'pruner']
    for name in own:
        if name in params:
            option = {'env_type': 'type', 'test_episodes': 'episodes', 'env_params': 'env-set'}.get(name, name)
            option = option.replace('_', '-')
            raise ValueError(f'--set {name}: it is an option of its own, --{option}, or belongs to programs alone.')
    env_params = parse_settings('--env-set', args.env_set)
    return params | ({'env_params': env_params} if env_params else {})


def training_options(args: Any) -> list[str]:
    """The options of :func:`_add_training`, the type of the environment and the seed, as they were given."""
    given = [('--type', args.env_type), ('--steps', args.steps), ('--net', args.net)]
    given += [('--nenv', args.nenv), ('--seed', args.seed if args.seed else None)]
    given += [('--set', text) for text in args.set] + [('--env-set', text) for text in args.env_set]
    return [f'{option} {shlex.quote(str(value))}' for option, value in given if value is not None]


def check_environment(args: Any) -> None:
    """That both words are there, and that a package beside the working directory can be imported."""
    if args.algorithm is None or args.environment is None:
        missing = 'the environment is' if args.algorithm else 'the algorithm and the environment are'
        raise ValueError(f'{missing} missing: zoo train PPO CartPole-v1, or zoo train --resume RUN.')
    find_packages(args.environment)


def find_packages(environment: str) -> None:
    """Let ``package:Name-v0`` be a package in the working directory, as it is for ``python``."""
    if ':' in environment and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def refuse_beside_resume(args: Any) -> None:
    given = {
        'an algorithm': args.algorithm,
        'an environment': args.environment,
        '--type': args.env_type,
        '--net': args.net,
        '--set': args.set,
        '--env-set': args.env_set,
        '--run-dir': args.run_dir,
        '--render': args.render,
    }
    names = [name for name, value in given.items() if value]
    names += ['--seed'] if args.seed != 0 else []
    names += ['--nenv'] if args.nenv is not None else []
    if names:
        raise ValueError(f'--resume goes on with a run as it was begun: leave out {", ".join(names)}.')
