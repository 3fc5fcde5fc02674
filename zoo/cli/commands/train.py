"""``zoo train``."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

import zoo
from zoo import algorithms
from zoo.cli.options import add_training
from zoo.cli.printing import INTERRUPTED, aligned, duration, mean_return, tests
from zoo.cli.subject import ONE, add_subject
from zoo.cli.values import agent_names, as_count, as_number, as_seed, find_packages, run_names, training_params
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.printing import say

HELP = 'train an agent, or go on with a run'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject(parser, ONE, True, 'zoo train PPO CartPole-v1, or zoo train --resume RUN')
    add_training(parser)
    add = parser.add_argument
    add('--config', metavar='FILE', help='arguments of zoo.train in YAML; what is given beside it wins')
    told = 'of everything that is random, or none (default: 0)'
    add('--seed', type=as_seed, default=argparse.SUPPRESS, help=told)  # a configuration may have another one
    told = 'go on with this run; with --steps N to N steps in all, also after its end'
    add('--resume', metavar='RUN', help=told).completer = run_names  # type: ignore[attr-defined]
    told = 'begin with the weights of this run, checkpoint or trained agent, such as PPO/CartPole-v1'
    add('--from', dest='start_from', metavar='RUN', help=told).completer = agent_names  # type: ignore[attr-defined]
    add('--run-dir', metavar='FOLDER', help='where to write (default: a new folder in runs)')
    told = 'test every so many steps (default: about ten times, in a tenth of the time)'
    add('--evaluate', type=as_count, metavar='STEPS', help=told)
    add('--no-evaluate', action='store_true', help='no tests while it trains; they keep the best agent')
    add('--stop-at', type=as_number, metavar='RETURN', help='with --evaluate: end at this mean return')
    add('--film', type=as_count, metavar='STEPS', help='film an episode every so many steps')
    told = 'send the log to wandb or mlflow; wandb:PROJECT or mlflow:EXPERIMENT names the place there; repeatable'
    add('--track', action='append', default=[], metavar='TRACKER', help=told)
    add('--render', action='store_true', help='watch it train in a window')
    add('--quiet', '-q', action='store_true', help='no progress bar, no lines of text, no line for each test')
    add('--verbose', '-v', action='store_true', help='tables of all metrics now and then')


class Where:
    """A callback that remembers the run directory of a training and says it."""

    steers = False

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
        again += ''.join(f' --track {shlex.quote(tracker)}' for tracker in args.track)
        shown = ' --quiet' if args.quiet else ' --verbose' if args.verbose else ''
        say(f'Go on with: zoo train --resume {shlex.quote(str(where.run_dir))}{again}{shown}')
        return INTERRUPTED
    rate = result.steps / max(result.wall_time, 1e-9)
    run = None if result.run_dir is None else zoo.open_run(result.run_dir)  # a configuration may have run_dir: false
    unit = 'steps' if run is None or run.dataset is None else 'updates'
    rows = [(unit, f'{result.steps:,} in {duration(result.wall_time)}, {rate:,.0f} {unit}/s')]
    if unit == 'steps':
        rows.append(('episodes', f'{result.episodes:,}'))
    if result.returns:
        last = result.returns[-100:]
        since = ' since it was resumed' if args.resume is not None else ''
        rows.append(('return', mean_return(sum(last) / len(last), result.episodes, 100) + since))
    if run is not None:
        rows += [*tests(run), ('run', str(run.path))]
    print(aligned(rows))
    return None


def _callbacks(args: Any) -> list[Any]:
    callbacks = [_tracker(text) for text in args.track]
    if args.film is not None:
        from zoo.callbacks import Film

        callbacks.append(Film(args.film))
    return callbacks


def _tracker(text: str) -> Any:
    """Return the callback for ``wandb``, ``wandb:PROJECT``, ``mlflow`` or ``mlflow:EXPERIMENT``."""
    name, _, place = text.partition(':')
    if name not in ('wandb', 'mlflow'):
        known = 'wandb, wandb:PROJECT, mlflow or mlflow:EXPERIMENT'
        also = '; each run writes for TensorBoard in any case' if name == 'tensorboard' else ''
        raise InvalidValue(f'--track {text}: give {known}{also}.')
    from zoo.callbacks import MLflow, WandB

    made: Any = WandB if name == 'wandb' else MLflow
    return made(place) if place else made()


def _tests(args: Any, found: Any) -> Any:
    """Return the argument ``evaluate``: what a configuration or a run has, with what the command line changes.

    ``found`` is True or False, or a ``KeepBest``, whose other arguments stay.
    """
    if args.evaluate is not None and args.no_evaluate:
        raise InvalidValue('--evaluate and --no-evaluate contradict each other: leave one out.')
    given: dict[str, Any] = {} if isinstance(found, bool) else found.arguments
    if args.evaluate is not None:  # as often as was asked for
        given |= {'every': args.evaluate, 'share': None}
    if args.stop_at is not None:
        if args.no_evaluate or not given:
            raise InvalidValue('--stop-at goes with --evaluate STEPS, which says how often the agent is tested.')
        given['stop_at'] = args.stop_at
    if args.no_evaluate or not (found or given):
        return False
    from zoo.callbacks import KeepBest

    return KeepBest(**given)


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
        '--seed': 'seed' in args,
        '--config': args.config,
        '--from': args.start_from,
        '--dataset': args.dataset,
        '--nenv': args.nenv is not None,
    }
    names = [name for name, value in given.items() if value]
    if names:
        told = f'--resume goes on with a run as it was begun: leave out {", ".join(names)}'
        raise InvalidValue(f'{told}; --from {args.resume} begins a new run with its weights and other settings.')
    run = zoo.open_run(args.resume)
    run.check_resumable()
    begun = (run.config.get('calls') or [[0, 0]])[0][0]  # the agent may have learned in other runs before
    step, reached = run.checkpoint_steps - begun, run.steps - begun
    if run.checkpoint_steps == 0:
        raise InvalidValue(f'{run.name} has no checkpoint, so there is nothing to go on with: train it again.')
    if args.steps is not None and args.steps <= step:
        told = f'{run.name} has {step:,} steps behind it'
        raise InvalidValue(f'{told}, so --steps {args.steps} leaves nothing to do: give more, as steps in all.')
    say(f'{run.algorithm} on {run.environment}, from step {step:,} of {args.steps or run.train_steps:,}')
    if step < reached:
        say(f'It had reached step {reached:,}: the steps after its newest checkpoint are taken again.')
    changes = {'train_steps': args.steps} if args.steps is not None else {}
    from zoo.callbacks import KeepBest

    tests = KeepBest.of_run(run.path) or False
    return zoo.resume(run, evaluate=_tests(args, tests), callbacks=callbacks, **_shown(args, {'verbose': 1}), **changes)


def _train(args: Any, callbacks: list[Any]) -> Any:
    given = training_params(args)
    if 'verbose' in given and (args.quiet or args.verbose):
        raise InvalidValue('--set verbose says the same as --quiet and --verbose: give one of them.')
    words = {'alg': args.algorithm, 'env_id': args.environment, 'env_type': args.env_type, 'nenv': args.nenv}
    words |= {'run_dir': args.run_dir, 'render': args.render or None, 'start_from': args.start_from}
    given |= {name: value for name, value in words.items() if value is not None}
    if 'seed' in args:
        given['seed'] = args.seed
    if args.render:
        given['env_params'] = {'render_mode': 'human', **(given.get('env_params') or {})}
    params = {'seed': 0} | (given if args.config is None else _with_config(args.config, given))
    params['evaluate'] = _tests(args, params.get('evaluate', True))
    params['alg'] = algorithms.check_name(params['alg'])
    if args.steps is not None:
        length = algorithms.length_of(params['alg'], params)
        if length in given and length != 'train_steps':
            raise InvalidValue(f'--steps and --set {length} say the same: give one of them.')
        params[length] = params.pop('train_steps')
    if params.get('env_id') is None:
        say(f'{params["alg"]} on {params["dataset"]}, seed {params["seed"]}')
        return zoo.train(callbacks=callbacks, **_shown(args, params))
    find_packages(str(params['env_id']))
    if params.get('env_type') is None:
        from zoo.common.env_wrappers import find_env_type

        params['env_type'] = find_env_type(params['env_id'])
    if params.get('nenv') is None and params.get('dataset') is not None:
        params['nenv'] = 1
    if params.get('nenv') is None:
        from zoo.common.utils import default_nenv

        params['nenv'] = default_nenv(params['alg'], params['env_type'], params['env_id'])
    copies = f', {params["nenv"]} copies' if params['nenv'] != 1 else ''
    origin = f', from {params["start_from"]}' if params.get('start_from') else ''
    say(f'{params["alg"]} on {params["env_id"]}{copies}, seed {params["seed"]}{origin}')
    return zoo.train(callbacks=callbacks, **_shown(args, params))


def _shown(args: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters with what ``--quiet`` or ``--verbose`` asks for."""
    if args.quiet and args.verbose:
        raise InvalidValue('--quiet and --verbose contradict each other: leave one out.')
    if not (args.quiet or args.verbose):
        return params
    params = {name: value for name, value in params.items() if name != 'progress_bar'}
    return params | {'verbose': 0 if args.quiet else 2}


def _with_config(path: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments in a configuration and on the command line."""
    params = zoo.read_config(path, **given)
    for name, word in (('alg', 'PPO'), ('env_id', 'CartPole-v1')):
        if name == 'env_id' and name not in params and params.get('dataset') is not None:
            continue
        if not isinstance(params.get(name), str):
            raise InvalidValue(f"the configuration '{path}' lacks {name}: write {name}: {word}, for example.")
    return params
