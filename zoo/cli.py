"""The command ``zoo``: what a notebook does, from a shell. It uses the public interface of zoo alone.

Nothing heavy is imported before a command needs it, so that ``zoo --help`` and completion answer at once.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import zoo
from zoo import algorithms

#: Exit codes: what was asked for makes no sense; it failed on the way; it was interrupted.
USAGE, FAILED, INTERRUPTED = 2, 1, 130

SHELLS = ('bash', 'zsh', 'fish')


class _Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one sentence, with the nearest thing that there is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, 'allow_abbrev': False})

    def error(self, message: str) -> NoReturn:
        message = message.replace('argument ', '', 1) if message.startswith('argument ') else message
        end = '' if message.endswith('?') else '.'
        self.exit(USAGE, f'{self.prog}: {message.rstrip(".")}{end} See {self.prog} --help.\n')

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            what = action.metavar if isinstance(action.metavar, str) else action.dest
            raise argparse.ArgumentError(None, f'unknown {what.lower()} {value!r}: {_nearest(value, known)}')

    def options(self) -> list[str]:
        """The names of its options, ``--net`` and so on."""
        return [name for action in self._actions for name in action.option_strings if name.startswith('--')]


def _nearest(value: object, known: Sequence[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(str(value).lower(), by_lower, n=1, cutoff=0.5)
    hint = f'did you mean {by_lower[close[0]]!r}? ' if close else ''
    return f'{hint}There are {", ".join(known)}'


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: its words without ``zoo`` itself; None: those of the process.

    Returns:
        The exit code: 0 where all went well, 2 where what was asked for makes no sense, 1 where it failed on the way,
        130 where it was interrupted.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    parser, commands = build_parser()
    if '_ARGCOMPLETE' in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
    try:
        at = commands.get(argv[0] if argv else '', parser)
        for word in argv:  # before the word behind an unknown option is taken for something else
            option = word.partition('=')[0]
            if word.startswith('--') and word != '--' and option not in at.options():
                close = difflib.get_close_matches(option, at.options(), n=1, cutoff=0.5)
                at.error(f'there is no option {option}' + (f', did you mean {close[0]}?' if close else ''))
        args, rest = parser.parse_known_args(argv)
        if rest:
            at.error(f'{rest[0]!r} is one word too many')
        if args.command is None:
            parser.print_help()
            return 0
    except SystemExit as end:  # argparse ends the process, which is not for a function to do
        return int(end.code or 0) if isinstance(end.code, int | None) else FAILED
    try:
        return int(args.run(args) or 0)
    except KeyboardInterrupt as interrupt:
        print(f'zoo {args.command}: {str(interrupt) or "interrupted"}.', file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # as of zoo list … | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if args.traceback:
            raise
        print(f'zoo {args.command}: {_sentence(error)}', file=sys.stderr)
        return USAGE if isinstance(error, ValueError | TypeError) and _is_ours(error) else FAILED


def _is_ours(error: BaseException) -> bool:
    """Whether an error was raised by zoo itself, with a sentence of its own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and Path(trace.tb_frame.f_code.co_filename).is_relative_to(Path(__file__).parent)


def _sentence(error: BaseException) -> str:
    text = ' '.join(str(error).split()) or type(error).__name__
    if _is_ours(error):
        return text
    return f'{type(error).__name__}: {text.rstrip(".")} (--traceback shows where).'


# What stands on the command line


def build_parser() -> tuple[_Parser, dict[str, _Parser]]:
    """The parser of the whole command, and those of its commands by name."""
    parser = _Parser(prog='zoo', description='Train, test, compare and show deep reinforcement learning agents.')
    parser.add_argument('--version', action='version', version=f'zoo {zoo.__version__}')
    parser.set_defaults(command=None, traceback=False)
    found = parser.add_subparsers(title='commands', metavar='COMMAND', dest='command', parser_class=_Parser)
    commands: dict[str, _Parser] = {}

    def command(name: str, run: Callable[[Any], int | None], text: str, **kwargs: Any) -> _Parser:
        made: _Parser = found.add_parser(name, help=text, description=f'{text[0].upper()}{text[1:]}.', **kwargs)
        made.add_argument('--traceback', action='store_true', help='show where in the program an error was raised')
        made.set_defaults(run=run)
        commands[name] = made
        return made

    p = command('train', _train, 'train an agent, or go on with a training that was interrupted')
    _add(p, 'algorithm', nargs='?', metavar='ALGORITHM', choices=algorithms.NAMES, help='such as PPO; see zoo list')
    _add_env(p, nargs='?')
    _add_training(p)
    p.add_argument('--seed', type=_seed, default=0, help='of everything that is random, or none (default: 0)')
    p.add_argument('--resume', metavar='RUN', help='go on with this run').completer = _run_names  # type: ignore[attr-defined]
    p.add_argument('--run-dir', metavar='FOLDER', help='where to write (default: a new folder in runs)')
    p.add_argument('--evaluate', type=_count, metavar='STEPS', help='test every so many steps and keep the best agent')
    p.add_argument('--stop-at', type=float, metavar='RETURN', help='with --evaluate: end at this mean return')
    p.add_argument('--film', type=_count, metavar='STEPS', help='film an episode every so many steps')
    p.add_argument('--render', action='store_true', help='watch it train in a window')
    p.add_argument('--quiet', action='store_true', help='no progress bar')

    p = command('test', _test, 'play whole episodes with a trained agent and print their returns')
    _add_run(p)
    _add_playing(p, 10)

    p = command('enjoy', _enjoy, 'watch a trained agent in a window')
    _add_run(p)
    _add_playing(p, 3)

    p = command('record', _record, 'film a trained agent: a GIF, or an MP4 with zoo-rl[video]')
    _add_run(p)
    _add_playing(p, 1)
    p.add_argument('--out', metavar='FILE', help='.gif, .webp, .png or .mp4 (default: film.gif in the run)')
    p.add_argument('--max-steps', type=_count, default=1000, help='where it ends at the latest (default: 1000)')

    p = command('list', _list, 'list algorithms, environments or runs')
    p.add_argument('what', metavar='WHAT', choices=('algorithms', 'environments', 'runs'))
    p.add_argument('--type', dest='env_type', metavar='TYPE', choices=_types(), help='of environments: of this type')

    p = command('describe', _describe, 'every parameter of an algorithm, with its default and its meaning')
    _add(p, 'algorithm', metavar='ALGORITHM', choices=algorithms.NAMES)

    p = command('show', _show, 'what a run is, how far it came, and how well it does')
    _add_run(p)
    p.add_argument('--networks', action='store_true', help='with spaces, networks and weights, for which it is loaded')

    p = command('plot', _plot, 'draw the learning curves of runs; those of one algorithm as a median in a band')
    _add(p, 'runs', nargs='+', metavar='RUN', completer=_run_names)
    p.add_argument('--out', default='curves.png', metavar='FILE', help='the PNG (default: curves.png)')

    p = command('check', _check, 'play an environment with random actions and say what is wrong with it')
    _add_env(p)
    p.add_argument('--steps', type=_count, default=1000, help='steps to take at the most (default: 1000)')

    p = command('compare', _compare, 'train algorithms with several seeds each, side by side, and write a report')
    _add(p, 'algorithms', nargs='+', metavar='ALGORITHM', choices=algorithms.NAMES, help='two or more')
    _add_searched_env(p)
    p.add_argument('--seeds', type=_count, default=3, metavar='N', help='of each algorithm (default: 3)')
    _add_training(p)
    _add_jobs(p, 'compare_ENVIRONMENT', 20)

    p = command('tune', _tune, 'search hyper-parameters with Optuna; made again, it goes on')
    _add(p, 'algorithm', metavar='ALGORITHM', choices=algorithms.NAMES)
    _add_searched_env(p)
    p.add_argument('--trials', type=_count, default=20, metavar='N', help='in all (default: 20)')
    p.add_argument(
        '--search',
        action='append',
        default=[],
        metavar='NAME[=VALUES]',
        help='search this parameter, around its default or in a [list] or between (two, bounds); repeatable',
    )
    p.add_argument('--sampler', default='tpe', metavar='NAME', help='tpe or random (default: tpe)')
    p.add_argument('--pruner', default='median', metavar='NAME', help='median, halving or none (default: median)')
    p.add_argument('--seed', type=_seed, default=0, help='of the sampler and of every training (default: 0)')
    _add_training(p)
    _add_jobs(p, 'tune_ALGORITHM_ENVIRONMENT', 10)

    p = command('export', _export, 'write a trained agent as a model that runs without zoo')
    _add_run(p)
    p.add_argument('--to', default='savedmodel', metavar='FORMAT', choices=('savedmodel', 'litert', 'onnx'))
    p.add_argument('--out', metavar='FOLDER', help='(default: exported_FORMAT in the run)')
    p.add_argument('--best', action='store_true', help='the best agent that --evaluate has kept, not the last one')

    p = command('completion', _completion, 'print what makes a shell complete the words of zoo')
    p.add_argument('shell', metavar='SHELL', choices=SHELLS, help=', '.join(SHELLS))
    return parser, commands


def _add(parser: _Parser, name: str, completer: Any = None, **kwargs: Any) -> None:
    action = parser.add_argument(name, **kwargs)
    if completer is not None:
        action.completer = completer  # type: ignore[attr-defined] # argcomplete looks for it


def _add_env(parser: _Parser, **kwargs: Any) -> None:
    _add(parser, 'environment', _env_names, metavar='ENVIRONMENT', help='such as CartPole-v1; see zoo list', **kwargs)
    parser.add_argument(
        '--type', dest='env_type', metavar='TYPE', choices=_types(), help='of the environment (default: by its name)'
    )


def _add_training(parser: _Parser) -> None:
    """What says how an agent is trained."""
    parser.add_argument('--steps', type=_count, metavar='N', help="environment steps (default: the algorithm's)")
    parser.add_argument(
        '--nenv', type=_count, metavar='N', help='copies of the environment (default: what the settings are meant for)'
    )
    parser.add_argument('--net', metavar='UNITS', help='of the hidden layers, such as 256,256')
    parser.add_argument(
        '--set', action='append', default=[], metavar='NAME=VALUE', help='any parameter, such as gamma=0.98; repeatable'
    )
    parser.add_argument(
        '--env-set',
        action='append',
        default=[],
        metavar='NAME=VALUE',
        help='an argument of build_env; repeatable',
    )


def _add_searched_env(parser: _Parser) -> None:
    action = parser.add_argument(
        '--env', dest='environment', required=True, metavar='ENVIRONMENT', help='such as CartPole-v1; see zoo list'
    )
    action.completer = _env_names  # type: ignore[attr-defined] # argcomplete looks for it
    parser.add_argument(
        '--type', dest='env_type', metavar='TYPE', choices=_types(), help='of the environment (default: by its name)'
    )


def _add_jobs(parser: _Parser, folder: str, episodes: int) -> None:
    parser.add_argument('--jobs', type=_count, metavar='N', help='trainings at a time (default: one for each core)')
    parser.add_argument(
        '--episodes', type=_count, default=episodes, metavar='N', help=f'of tests (default: {episodes})'
    )
    parser.add_argument('--out', metavar='FOLDER', help=f'(default: {folder} in runs)')


def _add_run(parser: _Parser) -> None:
    _add(parser, 'run_name', _run_names, metavar='RUN', help='its folder, its name in runs, or last')


def _add_playing(parser: _Parser, episodes: int) -> None:
    parser.add_argument('--episodes', type=_count, default=episodes, metavar='N', help=f'(default: {episodes})')
    parser.add_argument('--seed', type=_seed, default=0, help='of the environment, or none (default: 0)')
    parser.add_argument('--best', action='store_true', help='the best agent that --evaluate has kept, not the last one')
    parser.add_argument(
        '--env-set',
        action='append',
        default=[],
        metavar='NAME=VALUE',
        help='an argument of build_env; repeatable',
    )


def _types() -> tuple[str, ...]:
    from zoo.common.env_wrappers import TYPES

    return tuple(TYPES)


def _count(text: str) -> int:
    try:
        number = int(text.replace('_', '')) if 'e' not in text.lower() else int(float(text))
        if 'e' in text.lower() and number != float(text):
            number = 0
    except (ValueError, OverflowError):
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is not a whole number of at least 1')
    return number


def _seed(text: str) -> int | None:
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


def _env_names(prefix: str = '', **_: Any) -> list[str]:
    return [name for name in zoo.list_envs('gymnasium', latest=True) if name.startswith(prefix)]


def _run_names(prefix: str = '', **_: Any) -> list[str]:
    return [name for name in [*(run.name for run in zoo.list_runs()), 'last'] if name.startswith(prefix)]


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


def _train(args: Any) -> int | None:
    where = _Where()
    hooks: list[Any] = [where]
    if args.stop_at is not None and args.evaluate is None:
        raise ValueError('--stop-at goes with --evaluate STEPS, which says how often the agent is tested.')
    if args.resume is None:
        _check_environment(args)
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
            _refuse_beside_resume(args)
            run = zoo.open_run(args.resume)
            _say(f'{run.algorithm} on {run.environment}, from step {run.steps:,} of {run.train_steps:,}')
            changes = {'train_steps': args.steps} if args.steps is not None else {}
            _, result = zoo.resume(run, callbacks=hooks, progress_bar=not args.quiet, **changes)
        else:
            from zoo.common.env_wrappers import find_env_type
            from zoo.common.utils import default_nenv

            params = _training_params(args)
            env_type = find_env_type(args.environment) if args.env_type is None else args.env_type
            nenv = default_nenv(args.algorithm, env_type, args.environment) if args.nenv is None else args.nenv
            copies = f', {nenv} copies' if nenv > 1 else ''
            _say(f'{args.algorithm} on {args.environment}{copies}, seed {args.seed}')
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
        _say(f'Go on with: zoo train --resume {shlex.quote(str(where.run_dir))}{again}{quiet}')
        return INTERRUPTED
    rate = result.steps / max(result.wall_time, 1e-9)
    print(f'{result.steps:,} steps, {result.episodes:,} episodes, {_duration(result.wall_time)}, {rate:,.0f} steps/s')
    if result.returns:
        last = result.returns[-100:]
        print(f'return: {sum(last) / len(last):.6g}, the mean of the last {len(last)} episodes')
    print(f'run: {result.run_dir}')
    return None


def _training_params(args: Any) -> dict[str, Any]:
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


def _training_options(args: Any) -> list[str]:
    """The options of :func:`_add_training`, the type of the environment and the seed, as they were given."""
    given = [('--type', args.env_type), ('--steps', args.steps), ('--net', args.net)]
    given += [('--nenv', args.nenv), ('--seed', args.seed if args.seed else None)]
    given += [('--set', text) for text in args.set] + [('--env-set', text) for text in args.env_set]
    return [f'{option} {shlex.quote(str(value))}' for option, value in given if value is not None]


def _check_environment(args: Any) -> None:
    """That both words are there, and that a package beside the working directory can be imported."""
    if args.algorithm is None or args.environment is None:
        missing = 'the environment is' if args.algorithm else 'the algorithm and the environment are'
        raise ValueError(f'{missing} missing: zoo train PPO CartPole-v1, or zoo train --resume RUN.')
    _find_packages(args.environment)


def _find_packages(environment: str) -> None:
    """Let ``package:Name-v0`` be a package in the working directory, as it is for ``python``."""
    if ':' in environment and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def _refuse_beside_resume(args: Any) -> None:
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


def _playing(args: Any, **changes: Any) -> tuple[Any, Any, Any]:
    """Run, agent and environment of a command that plays."""
    run = zoo.open_run(args.run_name)
    env_params = parse_settings('--env-set', args.env_set)
    for name in ('seed', 'nenv', 'env_id', 'env_type', *changes):
        if name in env_params:
            raise ValueError(f'--env-set {name}: that is not to be changed here.')
    _find_packages((run.config.get('made_with') or {}).get('env_id', ''))
    env = run.build_env(args.seed, nenv=1, **changes, **env_params)
    try:
        return run, run.load(best=args.best), env
    except BaseException:
        env.close()
        raise


def _test(args: Any) -> None:
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


def _enjoy(args: Any) -> None:
    _, agent, env = _playing(args, render_mode='human')
    result = agent.learn(env, 'test', render=True, test_episodes=args.episodes)
    env.close()
    print(f'returns: {", ".join(f"{total:.6g}" for total in result.returns)}')


def _without_window() -> None:
    """Let pygame draw its pictures without looking for a display, of which it complains where there is none."""
    if not (os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')):
        os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')


def _record(args: Any) -> None:
    _without_window()
    run, agent, env = _playing(args, render_mode='rgb_array')
    path = run.path / 'film.gif' if args.out is None else Path(args.out)
    zoo.film(agent, env, path, episodes=args.episodes, max_steps=args.max_steps, seed=args.seed)
    env.close()
    print(path)


def _list(args: Any) -> None:
    if args.env_type is not None and args.what != 'environments':
        raise ValueError(f'--type is for environments: leave it out of zoo list {args.what}.')
    if args.what == 'algorithms':
        rows = []
        for name in algorithms.NAMES:
            cls = getattr(algorithms, name)
            rows.append(
                (name, ', '.join(cls.acts_in), (cls.__doc__ or '').strip().partition('\n')[0].replace('``', ''))
            )
        _print_table(('name', 'acts in', 'what it is'), rows)
    elif args.what == 'environments':
        for env_type in [args.env_type] if args.env_type is not None else _types():
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
            _say('There is no run here yet: zoo train makes one.')
            return
        _print_table(('run', 'algorithm', 'environment', 'steps', 'return', 'begun'), found)


def _describe(args: Any) -> None:
    print(zoo.describe(args.algorithm))


def _show(args: Any) -> None:
    run = zoo.open_run(args.run_name)
    seconds = run.episodes.get('t', [0.0])
    rate, last = run.last('speed/steps_per_second'), run.last('episode/return')
    rows = [
        ('run', str(run.path)),
        ('algorithm', run.algorithm),
        ('environment', run.environment),
        ('seed', str(run.seed)),
        ('steps', f'{run.steps:,} of {run.train_steps:,}'),
        ('episodes', f'{len(run.episodes.get("r", [])):,} in {_duration(seconds[-1] if seconds else 0.0)}'),
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


def _plot(args: Any) -> None:
    path = Path(args.out)
    if path.suffix.lower() != '.png':
        raise ValueError(f"--out {args.out}: the curves are drawn as a .png, such as '{path.with_suffix('.png')}'.")
    zoo.plot_runs(args.runs, path)
    print(path)


def _check(args: Any) -> int:
    given: Any = args.environment
    _find_packages(given)
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


def _compare(args: Any) -> None:
    _find_packages(args.environment)
    params = _training_params(args)
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


def _tune(args: Any) -> None:
    _find_packages(args.environment)
    if args.seed is None:
        raise ValueError('--seed none: a study that can go on needs a seed, such as --seed 0.')
    params = _training_params(args)
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
        print(' '.join(['zoo train', args.algorithm, shlex.quote(args.environment), *_training_options(args), *found]))


def _export(args: Any) -> None:
    run = zoo.open_run(args.run_name)
    path = run.path / f'exported_{args.to}' if args.out is None else Path(args.out)
    export: Any = zoo.export  # where it is there
    print(export(run.load(best=args.best), path, to=args.to))


def _completion(args: Any) -> None:
    try:
        import argcomplete
    except ImportError as error:
        raise ImportError("completion needs a package: pip install 'zoo-rl[completion]'.") from error
    print(argcomplete.shellcode(['zoo'], shell=args.shell))


# How things are printed


def _say(text: str) -> None:
    """A line for whoever looks; results alone go to the standard output."""
    print(text, file=sys.stderr, flush=True)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, *rows]:
        print('  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f'{hours} h {minutes:02d} min'
    return f'{minutes} min {rest:02d} s' if minutes else f'{seconds:.1f} s'
