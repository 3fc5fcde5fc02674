"""The command ``zoo``: what a notebook does, from a shell. It uses the public interface of zoo alone.

Nothing heavy is imported before a command needs it, so that ``zoo --help`` and completion answer at once.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import zoo
from zoo import algorithms
from zoo.cli.printing import FAILED, INTERRUPTED, duration, print_table, say
from zoo.cli.values import (
    check_environment,
    env_types,
    find_packages,
    parse_settings,
    refuse_beside_resume,
    training_options,
    training_params,
)

# The commands


class _Where:
    """A callback that remembers where a training writes, and says so."""

    def __init__(self) -> None:
        self.run_dir: Path | None = None

    def begin(self, training: Any) -> None:
        self.run_dir = training.run_dir
        print(f'Writing to {self.run_dir}', file=sys.stderr, flush=True)

    def __call__(self, training: Any) -> None:
        """Nothing is to be done at a row of the log."""


def train_command(args: Any) -> int | None:
    where = _Where()
    hooks: list[Any] = [where]
    if args.stop_at is not None and args.evaluate is None:
        raise ValueError('--stop-at goes with --evaluate STEPS, which says how often the agent is tested.')
    if args.resume is None:
        check_environment(args)
    if args.evaluate is not None or args.film is not None:
        from zoo.callbacks import Evaluate, Record

        if args.evaluate is not None:
            hooks.append(Evaluate(args.evaluate, stop_at=args.stop_at))
        if args.film is not None:
            if not args.render:
                _without_window()
            hooks.append(Record(args.film))
    try:
        if args.resume is not None:
            refuse_beside_resume(args)
            run = zoo.open_run(args.resume)
            say(f'{run.algorithm} on {run.environment}, from step {run.steps:,} of {run.train_steps:,}')
            changes = {'train_steps': args.steps} if args.steps is not None else {}
            _, result = zoo.resume(run, callbacks=hooks, progress_bar=not args.quiet, **changes)
        else:
            from zoo.common.env_wrappers import find_env_type
            from zoo.common.utils import default_nenv

            params = training_params(args)
            env_type = find_env_type(args.environment) if args.env_type is None else args.env_type
            nenv = default_nenv(args.algorithm, env_type, args.environment) if args.nenv is None else args.nenv
            copies = f', {nenv} copies' if nenv > 1 else ''
            say(f'{args.algorithm} on {args.environment}{copies}, seed {args.seed}')
            params['progress_bar'] = params.get('progress_bar', True) and not args.quiet
            if args.render:
                params['env_params'] = {'render_mode': 'human', **(params.get('env_params') or {})}
            _, result = zoo.train(
                args.algorithm,
                args.environment,
                env_type,
                seed=args.seed,
                nenv=nenv,
                run_dir=args.run_dir,
                render=args.render,
                callbacks=hooks,
                **params,
            )
    except KeyboardInterrupt:
        if where.run_dir is None or not (where.run_dir / 'checkpoints').is_dir():
            raise
        options = [('--evaluate', args.evaluate), ('--stop-at', args.stop_at), ('--film', args.film)]
        again = ''.join(f' {option} {value}' for option, value in options if value is not None)
        quiet = ' --quiet' if args.quiet else ''
        # Where it was is said already.
        say(f'Go on with: zoo train --resume {shlex.quote(str(where.run_dir))}{again}{quiet}')
        return INTERRUPTED
    rate = result.steps / max(result.wall_time, 1e-9)
    print(f'{result.steps:,} steps, {result.episodes:,} episodes, {duration(result.wall_time)}, {rate:,.0f} steps/s')
    if result.returns:
        last = result.returns[-100:]
        print(f'return: {sum(last) / len(last):.6g}, the mean of the last {len(last)} episodes')
    print(f'run: {result.run_dir}')
    return None


def _playing(args: Any, **changes: Any) -> tuple[Any, Any, Any]:
    """Run, agent and environment of a command that plays."""
    run = zoo.open_run(args.run_name)
    env_params = parse_settings('--env-set', args.env_set)
    for name in ('seed', 'nenv', 'env_id', 'env_type', *changes):
        if name in env_params:
            raise ValueError(f'--env-set {name}: that is not to be changed here.')
    find_packages((run.config.get('made_with') or {}).get('env_id', ''))
    env = run.build_env(args.seed, nenv=1, **changes, **env_params)
    try:
        return run, run.load(best=args.best), env
    except BaseException:
        env.close()
        raise


def test_command(args: Any) -> None:
    run, agent, env = _playing(args)
    result = agent.learn(env, 'test', test_episodes=args.episodes)
    env.close()
    for total, length in zip(result.returns, result.lengths, strict=True):
        print(f'return {total:.6g}, {length} steps')
    count = len(result.returns)
    mean = sum(result.returns) / count
    deviation = (sum((total - mean) ** 2 for total in result.returns) / count) ** 0.5
    successes = [success for success in result.successes if success is not None]
    print(f'mean {mean:.6g}, standard deviation {deviation:.6g}, of {count} episodes after {agent.steps:,} steps')
    if successes:
        print(f'success {sum(successes) / len(successes):.0%}')


def enjoy_command(args: Any) -> None:
    _, agent, env = _playing(args, render_mode='human')
    result = agent.learn(env, 'test', render=True, test_episodes=args.episodes)
    env.close()
    print(f'returns: {", ".join(f"{total:.6g}" for total in result.returns)}')


def _without_window() -> None:
    """Let pygame draw its pictures without looking for a display, of which it complains where there is none."""
    if not (os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')):
        os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')


def record_command(args: Any) -> None:
    _without_window()
    run, agent, env = _playing(args, render_mode='rgb_array')
    path = run.path / 'film.gif' if args.out is None else Path(args.out)
    zoo.film(agent, env, path, episodes=args.episodes, max_steps=args.max_steps, seed=args.seed)
    env.close()
    print(path)


def list_command(args: Any) -> None:
    if args.env_type is not None and args.what != 'environments':
        raise ValueError(f'--type is for environments: leave it out of zoo list {args.what}.')
    if args.what == 'algorithms':
        rows = []
        for name in algorithms.NAMES:
            cls = getattr(algorithms, name)
            rows.append(
                (name, ', '.join(cls.acts_in), (cls.__doc__ or '').strip().partition('\n')[0].replace('``', ''))
            )
        print_table(('name', 'acts in', 'what it is'), rows)
    elif args.what == 'environments':
        for env_type in [args.env_type] if args.env_type is not None else env_types():
            try:
                names = zoo.list_envs(env_type, latest=True)
            except ImportError as error:
                if args.env_type is not None:
                    raise
                print(f'# {env_type}: {str(error).partition(" (")[0]}', file=sys.stderr)
                continue
            for name in names:
                print(f'{env_type}\t{name}' if args.env_type is None else name)
    else:
        found: list[tuple[str, ...]] = []
        for run in zoo.list_runs():
            last = run.last('episode/return')
            begun = time.strftime('%Y-%m-%d %H:%M', time.localtime((run.path / 'config.json').stat().st_mtime))
            done = f'{run.steps:,} of {run.train_steps:,}'
            shown = '' if last is None else f'{last:.6g}'
            found.append((run.name, run.algorithm, run.environment, done, shown, begun))
        if not found:
            say('There is no run here yet: zoo train makes one.')
            return
        print_table(('run', 'algorithm', 'environment', 'steps', 'return', 'begun'), found)


def describe_command(args: Any) -> None:
    print(zoo.describe(args.algorithm))


def show_command(args: Any) -> None:
    run = zoo.open_run(args.run_name)
    seconds = run.episodes.get('t', [0.0])
    rate, last = run.last('speed/steps_per_second'), run.last('episode/return')
    rows = [
        ('run', str(run.path)),
        ('algorithm', run.algorithm),
        ('environment', run.environment),
        ('seed', str(run.seed)),
        ('steps', f'{run.steps:,} of {run.train_steps:,}'),
        ('episodes', f'{len(run.episodes.get("r", [])):,} in {duration(seconds[-1] if seconds else 0.0)}'),
        ('steps per second', '' if rate is None else f'{rate:,.0f} in the last row of the log'),
        ('return', '' if last is None else f'{last:.6g}, the mean of the last 100 episodes'),
        ('checkpoints', ', '.join(path.name for path in run.checkpoints) or 'none'),
        ('best', '' if run.best is None else str(run.best)),
        ('networks', _plain(run.config.get('net_list'))),
        ('optimizers', _plain(run.config.get('optimizers_list'))),
        *((name, _plain(value)) for name, value in run.config.get('params', {}).items()),
        *((name, _plain(value)) for name, value in run.config.get('learn_params', {}).items()),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        if value:
            print(f'{name.ljust(width)}  {value}')
    if args.networks:
        print(f'\n{run.load().summary()}')


def _plain(value: Any) -> str:
    """A value of a configuration in a line; schedules as they are written on the command line."""
    if isinstance(value, dict):
        if value.get('schedule') == 'linear':
            return f'Linear({value["start"]}, {value["end"]}, {value["until"]})'
        return f'{{{", ".join(f"{key}: {_plain(item)}" for key, item in value.items())}}}'
    if isinstance(value, list):
        return f'[{", ".join(map(_plain, value))}]'
    return str(value)


def plot_command(args: Any) -> None:
    path = Path(args.out)
    if path.suffix.lower() != '.png':
        raise ValueError(f"--out {args.out}: the curves are drawn as a .png, such as '{path.with_suffix('.png')}'.")
    zoo.plot_runs(args.runs, path)
    print(path)


def check_command(args: Any) -> int:
    given: Any = args.environment
    find_packages(given)
    package, _, name = given.partition(':')
    if name and name.isidentifier():
        try:
            given = getattr(importlib.import_module(package), name, given)
        except ImportError as error:
            raise ValueError(f'{package!r} of {given!r} cannot be imported: {error}.') from error
    if isinstance(given, str):
        from zoo.common.env_wrappers import find_env_type

        env_type = find_env_type(given) if args.env_type is None else args.env_type
        if env_type not in ('gymnasium', find_env_type(given)) or env_type in ('dm_control', 'rlbench'):
            given = zoo.build_env(given, env_type)  # which refuses a name of another type
    return FAILED if zoo.check_env(given, steps=args.steps) else 0


def compare_command(args: Any) -> None:
    find_packages(args.environment)
    params = training_params(args)
    print(
        zoo.compare(
            args.algorithms,
            args.environment,
            args.env_type,
            seeds=args.seeds,
            nenv=args.nenv,
            jobs=args.jobs,
            out=args.out,
            test_episodes=args.episodes,
            **params,
        )
    )


def tune_command(args: Any) -> None:
    find_packages(args.environment)
    if args.seed is None:
        raise ValueError('--seed none: a study that can go on needs a seed, such as --seed 0.')
    params = training_params(args)
    search: dict[str, Any] = {}
    for text in args.search:
        if '=' in text:
            search |= parse_settings('--search', [text])
        else:
            search[text.replace('-', '_')] = None
    made = zoo.tune(
        args.algorithm,
        args.environment,
        args.env_type,
        trials=args.trials,
        search=search or None,
        sampler=args.sampler,
        pruner=args.pruner,
        test_episodes=args.episodes,
        seed=args.seed,
        nenv=args.nenv,
        jobs=args.jobs,
        out=args.out,
        **params,
    )
    print(made)
    if made.best is not None:
        found = [f'--set {shlex.quote(f"{name}={value}")}' for name, value in made.params.items()]
        print(' '.join(['zoo train', args.algorithm, shlex.quote(args.environment), *training_options(args), *found]))


def export_command(args: Any) -> None:
    run = zoo.open_run(args.run_name)
    path = run.path / f'exported_{args.to}' if args.out is None else Path(args.out)
    export: Any = zoo.export  # where it is there
    print(export(run.load(best=args.best), path, to=args.to))


def completion_command(args: Any) -> None:
    try:
        import argcomplete
    except ImportError as error:
        raise ImportError("completion needs a package: pip install 'zoo-rl[completion]'.") from error
    print(argcomplete.shellcode(['zoo'], shell=args.shell))
