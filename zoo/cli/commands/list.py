"""``zoo list``."""

from __future__ import annotations

import argparse
import time
from typing import Any

import zoo
from zoo import algorithms
from zoo.cli.values import env_types
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.printing import Table, say

HELP = 'list algorithms, environments, runs or trained agents'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(example='zoo list runs')
    parser.add_argument('what', metavar='KIND', choices=tuple(_LISTS), help=', '.join(_LISTS))
    add = parser.add_argument
    add('--type', dest='env_type', metavar='TYPE', choices=env_types(), help='only environments of this type')


def run(args: Any) -> None:
    if args.env_type is not None and args.what != 'environments':
        raise InvalidValue(f'--type is for environments: leave it out of zoo list {args.what}.')
    _LISTS[args.what](args.env_type)


def _list_algorithms(_: str | None) -> None:
    rows = []
    for name in algorithms.NAMES:
        cls = getattr(algorithms, name)
        rows.append((name, ', '.join(cls.acts_in), (cls.__doc__ or '').strip().partition('\n')[0].replace('``', '')))
    print(*Table('', ('name', 'acts in', 'what it is'), rows).lines(), sep='\n')


def _list_environments(only: str | None) -> None:
    """Print names with their types. Without a type asked for, a name of Gymnasium stands beside its own type alone."""
    printed: set[str] = set()
    for env_type in env_types() if only is None else (only,):
        try:
            names = zoo.list_envs(env_type, latest=True)
        except ImportError as error:
            if only is not None:
                raise
            say(f'# {env_type}: {str(error).partition(" (")[0]}')
            continue
        for name in names:
            if only is not None:
                print(name)
            elif env_type != 'gymnasium' or name not in printed:
                print(f'{env_type}\t{name}')
        printed.update(names)


def _list_runs(_: str | None) -> None:
    rows = []
    for run in zoo.list_runs():
        last = run.last('episode/return')
        begun = time.strftime('%Y-%m-%d %H:%M', time.localtime((run.path / 'config.json').stat().st_mtime))
        done = f'{run.steps:,} of {run.end:,}'
        if run.is_training:
            done += ', training now'
        elif run.checkpoint_steps != run.steps:
            done += f', {run.checkpoint_steps:,} saved'
        rows.append((run.name, run.algorithm, run.environment, done, '' if last is None else f'{last:.6g}', begun))
    if not rows:
        say('There is no run here yet: zoo train makes one.')
        return
    print(*Table('', ('run', 'algorithm', 'environment', 'steps', 'return', 'begun'), rows).lines(), sep='\n')


def _list_agents(_: str | None) -> None:
    rows = []
    for card in zoo.list_agents():
        where = '' if card.place == 'package' else 'in the repository'
        steps = f'{card.train_steps:,}'
        rows.append((card.name, card.shown_score, card.shown_published, str(len(card.seeds)), steps, where))
    columns = ('agent', 'score', 'published', 'seeds', 'steps', '')
    print(*Table('', columns, rows, right=('seeds', 'steps')).lines(), sep='\n')


_LISTS = {
    'algorithms': _list_algorithms,
    'environments': _list_environments,
    'runs': _list_runs,
    'agents': _list_agents,
}
