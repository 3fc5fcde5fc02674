"""Options that several commands have, and the trained agent that some of them name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import zoo
from zoo.cli.values import agent_names, as_copies, as_count, as_seed, find_packages, parse_settings
from zoo.common.tools.errors import InvalidValue

_ENV_SET = 'an argument of build_env; repeatable'


def add_training(parser: argparse.ArgumentParser, each: bool = False) -> None:
    """Add the options of a training, which :func:`zoo.cli.values.training_params` reads.

    Args:
        parser: the command's.
        each: several algorithms may have numbers of copies of their own; ``args.nenv`` is a list then.
    """
    add = parser.add_argument
    told = "environment steps, or with --dataset gradient updates (default: the algorithm's)"
    add('--steps', type=as_count, metavar='N', help=told)
    add('--dataset', metavar='PATH', help='learn from these recorded episodes, without a step in the environment')
    if each:
        told = 'copies of the environment for all, or ALGORITHM=N for one; repeatable (default: as many for all)'
        add('--nenv', type=as_copies, action='append', default=[], metavar='N', help=told)
    else:
        add('--nenv', type=as_count, metavar='N', help='copies of the environment (default: as the algorithm needs)')
    add('--net', metavar='UNITS', help='units of the hidden layers, such as 256,256')
    add('--set', action='append', default=[], metavar='NAME=VALUE', help='any parameter: gamma=0.98; repeatable')
    add('--env-set', action='append', default=[], metavar='NAME=VALUE', help=_ENV_SET)


def add_jobs(parser: argparse.ArgumentParser, folder: str, episodes: int) -> None:
    """Add the options of commands with several trainings; ``folder`` and ``episodes`` are defaults."""
    add = parser.add_argument
    add('--jobs', type=as_count, metavar='N', help='trainings at a time (default: one for each core)')
    add('--episodes', type=as_count, default=episodes, metavar='N', help=f'of each test (default: {episodes})')
    add('--out', metavar='FOLDER', help=f'folder of the results (default: {folder} in runs)')


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the word that names a run or a trained agent."""
    parser.set_defaults(example=f'{parser.prog} last takes the newest')
    told = 'its folder, its name in runs, last, a trained agent (PPO/CartPole-v1), or hf://name/repo'
    action = parser.add_argument('run_name', metavar='RUN', help=told)
    action.completer = agent_names  # type: ignore[attr-defined]  # argcomplete looks for it


def add_best(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--best', action='store_true', help='the best agent of the tests while it trained; else the last'
    )


def add_playing(parser: argparse.ArgumentParser, episodes: int) -> None:
    """Add the options of commands that play with a trained agent; ``episodes`` is a default."""
    add_run(parser)
    add = parser.add_argument
    add('--episodes', type=as_count, default=episodes, metavar='N', help=f'whole episodes (default: {episodes})')
    add('--seed', type=as_seed, default=0, help='of the environment, or none (default: 0)')
    add_best(parser)
    add('--env-set', action='append', default=[], metavar='NAME=VALUE', help=_ENV_SET)


def open_agent(args: Any, **changes: Any) -> tuple[Any, Any, Any]:
    """Return the run, its agent and an environment of one copy; ``changes`` are arguments of ``build_env``."""
    run = zoo.open_run(args.run_name)
    env_params = parse_settings('--env-set', args.env_set)
    for name in ('seed', 'nenv', 'env_id', 'env_type', *changes):
        if name in env_params:
            raise InvalidValue(f'--env-set {name}: that is not to be changed here.')
    find_packages((run.config.get('made_with') or {}).get('env_id', ''))
    env = run.build_env(args.seed, nenv=1, **changes, **env_params)
    try:
        return run, run.load(best=args.best), env
    except BaseException:
        env.close()
        raise


def place_of(run: Any, file: str) -> Path:
    """Return where to write a file about a run: in its folder; for a trained agent, in the working directory."""
    if run.card is None and run.source is None:
        return run.path / file
    return Path(f'{run.algorithm}_{run.environment}_{file}'.replace('/', '-'))
