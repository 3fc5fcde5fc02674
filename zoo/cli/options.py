"""Options that several commands have."""

from __future__ import annotations

import argparse

from zoo.cli.values import as_count, as_seed, run_names


def add_training(parser: argparse.ArgumentParser) -> None:
    """Add what says how an agent is trained; :func:`zoo.cli.values.training_params` reads it."""
    add = parser.add_argument
    add('--steps', type=as_count, metavar='N', help="environment steps (default: the algorithm's)")
    add('--nenv', type=as_count, metavar='N', help='copies of the environment (default: as the algorithm needs)')
    add('--net', metavar='UNITS', help='units of the hidden layers, such as 256,256')
    add('--set', action='append', default=[], metavar='NAME=VALUE', help='any parameter: gamma=0.98; repeatable')
    add_env_set(parser)


def add_env_set(parser: argparse.ArgumentParser) -> None:
    """Add ``--env-set``."""
    told = 'an argument of build_env; repeatable'
    parser.add_argument('--env-set', action='append', default=[], metavar='NAME=VALUE', help=told)


def add_jobs(parser: argparse.ArgumentParser, folder: str, episodes: int) -> None:
    """Add what commands with several trainings have.

    Args:
        parser: the command's.
        folder: the default of ``--out``, as it is shown.
        episodes: the default of ``--episodes``.
    """
    add = parser.add_argument
    add('--jobs', type=as_count, metavar='N', help='trainings at a time (default: one for each core)')
    add('--episodes', type=as_count, default=episodes, metavar='N', help=f'of each test (default: {episodes})')
    add('--out', metavar='FOLDER', help=f'folder of the results (default: {folder} in runs)')


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the word that names a run."""
    action = parser.add_argument('run_name', metavar='RUN', help='its folder, its name in runs, or last')
    action.completer = run_names  # type: ignore[attr-defined]  # argcomplete looks for it


def add_best(parser: argparse.ArgumentParser) -> None:
    """Add ``--best``."""
    parser.add_argument('--best', action='store_true', help='the best agent, kept by --evaluate; else the last one')


def add_playing(parser: argparse.ArgumentParser, episodes: int) -> None:
    """Add what commands have that play with a trained agent; ``episodes`` is the default."""
    add_run(parser)
    add = parser.add_argument
    add('--episodes', type=as_count, default=episodes, metavar='N', help=f'whole episodes (default: {episodes})')
    add('--seed', type=as_seed, default=0, help='of the environment, or none (default: 0)')
    add_best(parser)
    add_env_set(parser)
