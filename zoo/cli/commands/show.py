"""``zoo show``."""

from __future__ import annotations

import argparse
from typing import Any

import zoo
from zoo.cli.options import add_run
from zoo.cli.printing import duration, scores
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.printing import Table

#: The log has means of at most so many episodes.
WINDOW = 100

HELP = 'what a run is, how far it came, and how well it does'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    told = 'also print the spaces, networks and weights of its agent, which is loaded for it'
    parser.add_argument('--networks', action='store_true', help=told)
    told = 'print the YAML that trains it again with zoo train --config, and nothing else'
    parser.add_argument('--as-config', action='store_true', help=told)


def run(args: Any) -> None:
    run = zoo.open_run(args.run_name)
    if args.as_config:
        if args.networks:
            raise InvalidValue('--as-config prints a file and nothing else: leave --networks out.')
        print(zoo.as_config(run), end='')
        return
    seconds = run.episodes.get('t', [0.0])
    rate, last = run.last('speed/steps_per_second'), run.last('episode/return')
    rows = [
        ('run', str(run.path)),
        ('algorithm', run.algorithm),
        ('environment', run.environment),
        ('seed', str(run.seed)),
        ('steps', f'{run.steps:,} of {run.train_steps:,}'),
        ('saved', '' if run.checkpoint_steps == run.steps else _saved(run)),
        ('episodes', f'{len(run.episodes.get("r", [])):,} in {duration(seconds[-1] if seconds else 0.0)}'),
        ('steps per second', '' if rate is None else f'{rate:,.0f} in the last row of the log'),
        ('return', '' if last is None else f'{last:.6g}, the mean of the last {_count(run)} episodes'),
        ('checkpoints', ', '.join(path.name for path in run.checkpoints) or 'none'),
        *scores(run),
        ('best agent', '' if run.best is None else str(run.best)),
        ('networks', _plain(run.config.get('net_list'))),
        ('optimizers', _plain(run.config.get('optimizers_list'))),
        *((name, _plain(x)) for part in ('params', 'learn_params') for name, x in run.config.get(part, {}).items()),
    ]
    print(*Table('', (), [row for row in rows if row[1]]).lines(), sep='\n')
    if args.networks:
        print(f'\n{run.load().summary()}')


def _saved(run: Any) -> str:
    if not run.checkpoints:
        return 'nothing yet'
    return f'{run.checkpoint_steps:,} steps: --resume goes on from there, and takes the later steps again'


def _count(run: Any) -> int:
    """Return over how many episodes the last row of the log takes the mean."""
    ended = [step for step in run.episodes.get('step', ()) if step <= run.steps]
    return min(len(ended), WINDOW) or WINDOW


def _plain(value: Any) -> str:
    """Return a value of a configuration in one line; schedules as they are written on the command line."""
    if isinstance(value, dict):
        if value.get('schedule') == 'linear':
            return f'Linear({value["start"]}, {value["end"]}, {value["until"]})'
        return f'{{{", ".join(f"{key}: {_plain(item)}" for key, item in value.items())}}}'
    if isinstance(value, list):
        return f'[{", ".join(map(_plain, value))}]'
    return str(value)
