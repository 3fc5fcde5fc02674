"""``zoo train``."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

import zoo
from zoo.cli.options import add_training, without_window
from zoo.cli.printing import INTERRUPTED, duration, scores
from zoo.cli.subject import ONE, add_subject
from zoo.cli.values import as_count, as_seed, find_packages, run_names, training_params
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.printing import say

HELP = 'train an agent, or go on with a training that was interrupted'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject(parser, ONE, True, 'zoo train PPO CartPole-v1, or zoo train --resume RUN')
    add_training(parser)
    add = parser.add_argument
    add('--seed', type=as_seed, default=0, help='of everything that is random, or none (default: 0)')
    add('--resume', metavar='RUN', help='go on with this run').completer = run_names  # type: ignore[attr-defined]
    add('--run-dir', metavar='FOLDER', help='where to write (default: a new folder in runs)')
    told = 'test every so many steps (default: about ten times, in a tenth of the time)'
    add('--evaluate', type=as_count, metavar='STEPS', help=told)
    add('--no-evaluate', action='store_true', help='no tests while it trains; they keep the best agent')
    add('--stop-at', type=float, metavar='RETURN', help='with --evaluate: end at this mean return')
    add('--film', type=as_count, metavar='STEPS', help='film an episode every so many steps')
    add('--render', action='store_true', help='watch it train in a window')
    add('--quiet', action='store_true', help='no progress bar, and no line for each test')


class Where:
    """A callback that remembers the run directory of a training and says it."""

    def __init__(self) -> None:
        self.run_dir: Path | None = None

    def begin(self, training: Any) -> None:
        self.run_dir = training.run_dir
        say(f'Writing to {self.run_dir}')

    def __call__(self, training: Any) -> None:
        """Nothing is to be done at a row of the log."""


def run(args: Any) -> int | None:
    where = Where()
    callbacks = [where, *_callbacks(args)]
    try:
        _, result = _resume(args, callbacks) if args.resume is not None else _train(args, callbacks)
    except KeyboardInterrupt:
        if where.run_dir is None or not (where.run_dir / 'checkpoints').is_dir():
            raise
        again = '' if args.film is None else f' --film {args.film}'
        quiet = ' --quiet' if args.quiet else ''
        say(f'Go on with: zoo train --resume {shlex.quote(str(where.run_dir))}{again}{quiet}')
        return INTERRUPTED
    rate = result.steps / max(result.wall_time, 1e-9)
    print(f'{result.steps:,} steps, {result.episodes:,} episodes, {duration(result.wall_time)}, {rate:,.0f} steps/s')
    if result.returns:
        last = result.returns[-100:]
        print(f'return: {sum(last) / len(last):.6g}, the mean of the last {len(last)} episodes')
    for name, score in scores(zoo.open_run(result.run_dir)):
        print(f'{name}: {score}')
    print(f'run: {result.run_dir}')
    return None


def _callbacks(args: Any) -> list[Any]:
    if args.film is None:
        return []
    from zoo.callbacks import Film

    if not args.render:
        without_window()
    return [Film(args.film)]


def _tests(args: Any) -> Any:
    """Return the argument ``evaluate``; the callback says nothing at the end, since the command prints it."""
    if args.stop_at is not None and args.evaluate is None:
        raise InvalidValue('--stop-at goes with --evaluate STEPS, which says how often the agent is tested.')
    if args.evaluate is not None and args.no_evaluate:
        raise InvalidValue('--evaluate and --no-evaluate contradict each other: leave one out.')
    if args.no_evaluate:
        return False
    from zoo.callbacks import KeepBest

    if args.evaluate is not None:  # as often as was asked for
        return KeepBest(args.evaluate, stop_at=args.stop_at, share=None)
    return KeepBest() if args.resume is None else KeepBest.of_run(zoo.open_run(args.resume).path) or False


def _resume(args: Any, callbacks: list[Any]) -> Any:
    given = {
        'an algorithm': args.algorithm,
        'an environment': args.environment,
        '--type': args.env_type,
        '--net': args.net,
        '--set': args.set,
        '--env-set': args.env_set,
        '--run-dir': args.run_dir,
        '--render': args.render,
        '--seed': args.seed != 0,
        '--nenv': args.nenv is not None,
    }
    names = [name for name, value in given.items() if value]
    if names:
        raise InvalidValue(f'--resume goes on with a run as it was begun: leave out {", ".join(names)}.')
    run = zoo.open_run(args.resume)
    step = run.checkpoint_steps
    say(f'{run.algorithm} on {run.environment}, from step {step:,} of {run.train_steps:,}')
    if step < run.steps:
        say(f'It had reached step {run.steps:,}: the steps after its newest checkpoint are taken again.')
    changes = {'train_steps': args.steps} if args.steps is not None else {}
    return zoo.resume(run, evaluate=_tests(args), callbacks=callbacks, progress_bar=not args.quiet, **changes)


def _train(args: Any, callbacks: list[Any]) -> Any:
    from zoo.common.env_wrappers import find_env_type
    from zoo.common.utils import default_nenv

    find_packages(args.environment)
    params = training_params(args)
    env_type = find_env_type(args.environment) if args.env_type is None else args.env_type
    nenv = default_nenv(args.algorithm, env_type, args.environment) if args.nenv is None else args.nenv
    copies = f', {nenv} copies' if nenv > 1 else ''
    say(f'{args.algorithm} on {args.environment}{copies}, seed {args.seed}')
    params['progress_bar'] = params.get('progress_bar', True) and not args.quiet
    if args.render:
        params['env_params'] = {'render_mode': 'human', **(params.get('env_params') or {})}
    params |= {'seed': args.seed, 'nenv': nenv, 'run_dir': args.run_dir, 'render': args.render}
    return zoo.train(args.algorithm, args.environment, env_type, evaluate=_tests(args), callbacks=callbacks, **params)
