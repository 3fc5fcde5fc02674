"""``zoo show``."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

import zoo
from zoo.cli.options import add_run
from zoo.cli.printing import aligned, duration, mean_return, tests
from zoo.common.tools.errors import InvalidValue

#: The log has means of at most so many episodes.
WINDOW = 100

#: The word before the path of a dataset.
_DATASET = 'dataset'

HELP = 'what a run or a trained agent is, how well it does, and what differs from the defaults; or what a dataset holds'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    told = 'with the word dataset before it: the file, the folder or the Minari id of recorded episodes'
    parser.add_argument('path', nargs='?', metavar='PATH', help=told)
    parser.add_argument('--plot', metavar='FILE', help='of a dataset: also draw returns and lengths, as a PNG')
    told = 'also print the spaces, networks and weights of its agent, which is loaded for it'
    parser.add_argument('--networks', action='store_true', help=told)
    told = 'print the YAML that trains it again with zoo train --config, and nothing else'
    parser.add_argument('--as-config', action='store_true', help=told)


def run(args: Any) -> None:
    if args.run_name == _DATASET and args.path is not None:
        _show_dataset(args)
        return
    if args.path is not None:
        raise InvalidValue(f'{args.path!r} is one word too many: zoo show {_DATASET} PATH shows recorded episodes.')
    if args.plot is not None:
        raise InvalidValue(f'--plot draws a dataset, zoo show {_DATASET} PATH --plot FILE; zoo plot draws runs.')
    try:
        run = zoo.open_run(args.run_name)
    except ValueError as error:
        if args.run_name != _DATASET:
            raise
        raise InvalidValue(f'the path is missing: zoo show {_DATASET} runs/expert.npz.') from error
    if args.as_config:
        if args.networks:
            raise InvalidValue('--as-config prints a file and nothing else: leave --networks out.')
        print(zoo.as_config(run), end='')
        return
    print(aligned(_facts(run)), flush=True)  # the rest takes as long as TensorFlow needs to start
    print(f'\n{_changes(run)}')
    if args.networks:
        print(f'\n{run.load().summary()}')


def _show_dataset(args: Any) -> None:
    for option, is_given in (('--networks', args.networks), ('--as-config', args.as_config)):
        if is_given:
            raise InvalidValue(f'{option} is about a run, but a dataset is shown: leave it out.')
    dataset = zoo.open_dataset(args.path)
    print(dataset.summary())
    if args.plot is not None:
        dataset.plot(args.plot)
        print(f'\nDrawn in {args.plot}.')


def _facts(run: Any) -> list[tuple[str, str]]:
    if run.card is not None:
        return [('trained agent', run.name), ('folder', str(run.path)), *run.card.rows()]
    seconds, ended = run.episodes.get('t', []), [step for step in run.episodes.get('step', ()) if step <= run.steps]
    played = f'{len(run.episodes.get("r", [])):,} in {duration(seconds[-1] if seconds else 0.0)}'
    rate, last = run.last('speed/steps_per_second'), run.last('episode/return')
    return [
        ('run', str(run.path)),
        ('algorithm', run.algorithm),
        ('environment', run.environment),
        ('seed', str(run.seed)),
        ('dataset', ', '.join(run.dataset or ())),
        ('steps' if run.dataset is None else 'updates', f'{run.steps:,} of {run.end:,}'),
        ('saved', '' if run.checkpoint_steps == run.steps else _saved(run)),
        ('episodes', played if run.dataset is None else ''),
        ('speed', '' if rate is None else f'{rate:,.0f} steps/s in the last row of the log'),
        ('return', '' if last is None or not ended else mean_return(last, len(ended), WINDOW)),
        ('checkpoints', ', '.join(path.name for path in run.checkpoints) or 'none'),
        *(tests(run) or [('tests', 'none')]),
        ('best agent', '' if run.best is None else str(run.best)),
    ]


def _changes(run: Any) -> str:
    """Return what differs from the defaults; every setting if there are no defaults."""
    try:
        changed = run.differences
    except ValueError as error:
        told = str(error).removesuffix('.')
        return f'{told}. Its settings:\n{aligned([(f"  {name}", _plain(x)) for name, x in run.settings.items()])}'
    if not changed:
        return 'All settings are the defaults for this environment.'
    rows = []
    for name, (value, default) in changed.items():
        rows.append(
            (
                f'  {name}',
                _plain(value),
                '(no default)' if default is inspect.Parameter.empty else f'(default: {_plain(default)})',
            )
        )
    return f'Settings that differ from the defaults:\n{aligned(rows)}'


def _saved(run: Any) -> str:
    if run.is_training:
        return f'{run.checkpoint_steps:,} steps; it is being trained now'
    if not run.checkpoints:
        return 'nothing yet'
    return f'{run.checkpoint_steps:,} steps: --resume goes on from there, and takes the later steps again'


def _plain(value: Any) -> str:
    """Return a setting in one line; schedules as they are written on the command line."""
    if isinstance(value, zoo.Linear):
        return f'Linear({value.start:g}, {value.end:g}, {value.until:g})'
    if isinstance(value, dict):
        return f'{{{", ".join(f"{key}: {_plain(item)}" for key, item in value.items())}}}'
    if isinstance(value, list):
        return f'[{", ".join(map(_plain, value))}]'
    return str(value)
