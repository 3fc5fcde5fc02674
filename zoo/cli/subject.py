"""The algorithm and the environment of a command.

``zoo train PPO CartPole-v1`` and ``zoo train --algo PPO --env CartPole-v1`` mean the same; both ways can be mixed.
"""

from __future__ import annotations

import argparse
from typing import Any

import zoo
from zoo import algorithms
from zoo.cli.values import env_names, env_types, find_packages
from zoo.common.tools.errors import InvalidValue

#: How many algorithms a command takes.
NONE, ONE, MANY = 0, 1, 2


def add_subject(parser: Any, count: int, environment: bool, example: str) -> None:
    """Let a command take algorithms and an environment, as words and as options.

    Args:
        parser: the command's.
        count: :data:`NONE`, :data:`ONE` or :data:`MANY` algorithms.
        environment: whether it takes an environment.
        example: a right command, for the message when something is missing.
    """
    parser.set_defaults(takes=('words', count, environment), example=example, algo=None, env=None, env_type=None)
    several = 'such as PPO A2C, two or more' if count == MANY else 'such as PPO; zoo list algorithms has all'
    place = 'such as CartPole-v1; zoo list environments has all'
    if count:
        action = parser.add_argument('words', nargs='*' if count == MANY else '?', metavar='ALGORITHM', help=several)
        action.completer = _first_names if environment else _algorithm_names
    if environment:
        if count != MANY:  # else the last of the words is the environment
            parser.add_argument('place', nargs='?', metavar='ENVIRONMENT', help=place).completer = env_names
    kinds: dict[str, Any] = {'nargs': '+', 'action': 'extend'} if count == MANY else {}
    if count:
        told = 'the algorithm, instead of the first word'
        action = parser.add_argument('--algo', metavar='ALGORITHM', help=told, **kinds)
        action.completer = _algorithm_names
    if environment:
        told = 'the environment, instead of a word'
        told = f'{place}; one or more; if missing, the last words are environments' if count == MANY else told
        action = parser.add_argument('--env', metavar='ENVIRONMENT', help=told, **kinds)
        action.completer = env_names
        told = 'type of the environment (default: by its name)'
        parser.add_argument('--type', dest='env_type', metavar='TYPE', choices=env_types(), help=told)


def settle(args: argparse.Namespace, more: list[str]) -> None:
    """Set ``args.algorithms``, ``args.algorithm`` (the first) and ``args.environment`` from the words.

    A command that takes many algorithms takes many environments too: ``args.environments``.

    Args:
        args: as parsed.
        more: words that stood behind options.

    Raises:
        ValueError: something is missing, unknown, given twice and different, or one word too many.
    """
    if 'words' not in args.takes:
        return
    _, count, environment = args.takes
    words = getattr(args, 'words', None) or []
    words = [*([words] if isinstance(words, str) else words), getattr(args, 'place', None), *more]
    words = [word for word in words if word is not None]
    given = [args.env] if isinstance(args.env, str) else list(args.env or ())
    if count == MANY:  # algorithms stood behind --env
        words += [word for word in given if _is_algorithm(word)]
        given = [word for word in given if not _is_algorithm(word)]
    args.algorithms = _algorithms(args, words, count, given)
    args.algorithm = args.algorithms[0] if args.algorithms else None
    number = next((word for word in words if word.isdigit()), None)
    if number is not None and getattr(args, 'verbose', False):
        raise InvalidValue(f'--verbose takes no number: leave {number} out. It shows tables of all metrics.')
    if environment and words:
        found = words if count == MANY else words[:1]
        words = words[len(found) :]
        if given and found != given:
            told = f'the environment is given twice, as {" ".join(found)} and as --env {" ".join(given)}'
            raise InvalidValue(f'{told}: leave one out.')
        given = found
    args.environments = given
    args.environment = given[0] if given else None
    for name in given:
        find_packages(name)
    if words:
        raise InvalidValue(f'{words[0]!r} is one word too many. See zoo {args.command} --help.')
    if getattr(args, 'resume', None) is not None or getattr(args, 'config', None) is not None:
        return  # which name them
    missing = ['the algorithm'] if count and not args.algorithms else []
    recorded = getattr(args, 'dataset', None) is not None and args.command == 'train'  # the dataset may say it
    needed = environment and args.command != 'describe' and not recorded
    missing += ['the environment'] if needed and args.environment is None else []
    if missing:
        raise InvalidValue(f'{" and ".join(missing)} {"are" if missing[1:] else "is"} missing: {args.example}.')


def _algorithms(args: argparse.Namespace, words: list[str], count: int, environments: list[str]) -> list[str]:
    """Take the algorithms from the options and from the first of ``words``."""
    given = [args.algo] if isinstance(args.algo, str) else list(args.algo or ())
    if count == MANY and not environments and not words:  # the environments stood behind the last --algo
        while given[1:] and not _is_algorithm(given[-1]) and (not words or given[-1] in zoo.list_envs('gymnasium')):
            words.insert(0, given.pop())
    given = [algorithms.check_name(name) for name in given]
    found: list[str] = []
    most = len(words) if count == MANY else count
    while words and len(found) < most:
        if not _is_algorithm(words[0]):
            if given or (found and _are_environments(words, environments)):
                break
            if getattr(args, 'config', None) is not None and (
                ':' in words[0] or words[0] in zoo.list_envs('gymnasium')
            ):
                break  # the file names the algorithm
            if words[0] in zoo.list_envs('gymnasium') or any(map(_is_algorithm, words[1:])):
                raise InvalidValue(f'the algorithm comes first, then the environment: {args.example}.')
        found.append(algorithms.check_name(words.pop(0)))
    if given and found and set(given) != set(found):
        names = 'algorithms are' if count == MANY else 'algorithm is'
        told = f'as {", ".join(found)} and as --algo {" ".join(given)}'
        raise InvalidValue(f'the {names} given twice, {told}: leave one out.')
    return found or given


def _is_algorithm(word: str) -> bool:
    return word.lower() in map(str.lower, algorithms.NAMES)


def _are_environments(words: list[str], given: list[str]) -> bool:
    """Whether the words behind algorithms are environments rather than further algorithms."""
    if len(words) == 1 and not given:
        return True
    return words == given or all(word in zoo.list_envs('gymnasium') for word in words)


def _algorithm_names(prefix: str = '', **_: Any) -> list[str]:
    return [name for name in algorithms.NAMES if name.startswith(prefix)]


def _first_names(prefix: str = '', parsed_args: Any = None, **_: Any) -> list[str]:
    """Complete the first word: an algorithm, or the environment where ``--algo`` has been given."""
    given = getattr(parsed_args, 'algo', None)
    several = isinstance(getattr(parsed_args, 'words', None), list)  # then the last one may be the environment
    return [*_algorithm_names(prefix), *(env_names(prefix) if given or several else ())]
