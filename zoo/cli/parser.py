"""The commands and their options, as ``argparse`` knows them."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import zoo
from zoo import algorithms
from zoo.cli.commands import (
    check_command,
    compare_command,
    completion_command,
    describe_command,
    enjoy_command,
    export_command,
    list_command,
    plot_command,
    record_command,
    show_command,
    test_command,
    train_command,
    tune_command,
)
from zoo.cli.printing import USAGE
from zoo.cli.values import as_count, as_seed, env_names, env_types, run_names

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

    p = command('train', train_command, 'train an agent, or go on with a training that was interrupted')
    _add(p, 'algorithm', nargs='?', metavar='ALGORITHM', choices=algorithms.NAMES, help='such as PPO; see zoo list')
    _add_env(p, nargs='?')
    _add_training(p)
    p.add_argument('--seed', type=as_seed, default=0, help='of everything that is random, or none (default: 0)')
    p.add_argument('--resume', metavar='RUN', help='go on with this run').completer = run_names  # type: ignore[attr-defined]
    p.add_argument('--run-dir', metavar='FOLDER', help='where to write (default: a new folder in runs)')
    p.add_argument(
        '--evaluate', type=as_count, metavar='STEPS', help='test every so many steps and keep the best agent'
    )
    p.add_argument('--stop-at', type=float, metavar='RETURN', help='with --evaluate: end at this mean return')
    p.add_argument('--film', type=as_count, metavar='STEPS', help='film an episode every so many steps')
    p.add_argument('--render', action='store_true', help='watch it train in a window')
    p.add_argument('--quiet', action='store_true', help='no progress bar')

    p = command('test', test_command, 'play whole episodes with a trained agent and print their returns')
    _add_run(p)
    _add_playing(p, 10)

    p = command('enjoy', enjoy_command, 'watch a trained agent in a window')
    _add_run(p)
    _add_playing(p, 3)

    p = command('record', record_command, 'film a trained agent: a GIF, or an MP4 with zoo-rl[video]')
    _add_run(p)
    _add_playing(p, 1)
    p.add_argument('--out', metavar='FILE', help='.gif, .webp, .png or .mp4 (default: film.gif in the run)')
    p.add_argument('--max-steps', type=as_count, default=1000, help='where it ends at the latest (default: 1000)')

    p = command('list', list_command, 'list algorithms, environments or runs')
    p.add_argument('what', metavar='WHAT', choices=('algorithms', 'environments', 'runs'))
    p.add_argument('--type', dest='env_type', metavar='TYPE', choices=env_types(), help='of environments: of this type')

    p = command('describe', describe_command, 'every parameter of an algorithm, with its default and its meaning')
    _add(p, 'algorithm', metavar='ALGORITHM', choices=algorithms.NAMES)

    p = command('show', show_command, 'what a run is, how far it came, and how well it does')
    _add_run(p)
    p.add_argument('--networks', action='store_true', help='with spaces, networks and weights, for which it is loaded')

    p = command('plot', plot_command, 'draw the learning curves of runs; those of one algorithm as a median in a band')
    _add(p, 'runs', nargs='+', metavar='RUN', completer=run_names)
    p.add_argument('--out', default='curves.png', metavar='FILE', help='the PNG (default: curves.png)')

    p = command('check', check_command, 'play an environment with random actions and say what is wrong with it')
    _add_env(p)
    p.add_argument('--steps', type=as_count, default=1000, help='steps to take at the most (default: 1000)')

    p = command(
        'compare', compare_command, 'train algorithms with several seeds each, side by side, and write a report'
    )
    _add(p, 'algorithms', nargs='+', metavar='ALGORITHM', choices=algorithms.NAMES, help='two or more')
    _add_searched_env(p)
    p.add_argument('--seeds', type=as_count, default=3, metavar='N', help='of each algorithm (default: 3)')
    _add_training(p)
    _add_jobs(p, 'compare_ENVIRONMENT', 20)

    p = command('tune', tune_command, 'search hyper-parameters with Optuna; made again, it goes on')
    _add(p, 'algorithm', metavar='ALGORITHM', choices=algorithms.NAMES)
    _add_searched_env(p)
    p.add_argument('--trials', type=as_count, default=20, metavar='N', help='in all (default: 20)')
    p.add_argument(
        '--search',
        action='append',
        default=[],
        metavar='NAME[=VALUES]',
        help='search this parameter, around its default or in a [list] or between (two, bounds); repeatable',
    )
    p.add_argument('--sampler', default='tpe', metavar='NAME', help='tpe or random (default: tpe)')
    p.add_argument('--pruner', default='median', metavar='NAME', help='median, halving or none (default: median)')
    p.add_argument('--seed', type=as_seed, default=0, help='of the sampler and of every training (default: 0)')
    _add_training(p)
    _add_jobs(p, 'tune_ALGORITHM_ENVIRONMENT', 10)

    p = command('export', export_command, 'write a trained agent as a model that runs without zoo')
    _add_run(p)
    p.add_argument('--to', default='savedmodel', metavar='FORMAT', choices=('savedmodel', 'litert', 'onnx'))
    p.add_argument('--out', metavar='FOLDER', help='(default: exported_FORMAT in the run)')
    p.add_argument('--best', action='store_true', help='the best agent that --evaluate has kept, not the last one')

    p = command('completion', completion_command, 'print what makes a shell complete the words of zoo')
    p.add_argument('shell', metavar='SHELL', choices=SHELLS, help=', '.join(SHELLS))
    return parser, commands


def _add(parser: _Parser, name: str, completer: Any = None, **kwargs: Any) -> None:
    action = parser.add_argument(name, **kwargs)
    if completer is not None:
        action.completer = completer  # type: ignore[attr-defined] # argcomplete looks for it


def _add_env(parser: _Parser, **kwargs: Any) -> None:
    _add(parser, 'environment', env_names, metavar='ENVIRONMENT', help='such as CartPole-v1; see zoo list', **kwargs)
    parser.add_argument(
        '--type', dest='env_type', metavar='TYPE', choices=env_types(), help='of the environment (default: by its name)'
    )


def _add_training(parser: _Parser) -> None:
    """What says how an agent is trained."""
    parser.add_argument('--steps', type=as_count, metavar='N', help="environment steps (default: the algorithm's)")
    parser.add_argument(
        '--nenv',
        type=as_count,
        metavar='N',
        help='copies of the environment (default: what the settings are meant for)',
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
    action.completer = env_names  # type: ignore[attr-defined] # argcomplete looks for it
    parser.add_argument(
        '--type', dest='env_type', metavar='TYPE', choices=env_types(), help='of the environment (default: by its name)'
    )


def _add_jobs(parser: _Parser, folder: str, episodes: int) -> None:
    parser.add_argument('--jobs', type=as_count, metavar='N', help='trainings at a time (default: one for each core)')
    parser.add_argument(
        '--episodes', type=as_count, default=episodes, metavar='N', help=f'of tests (default: {episodes})'
    )
    parser.add_argument('--out', metavar='FOLDER', help=f'(default: {folder} in runs)')


def _add_run(parser: _Parser) -> None:
    _add(parser, 'run_name', run_names, metavar='RUN', help='its folder, its name in runs, or last')


def _add_playing(parser: _Parser, episodes: int) -> None:
    parser.add_argument('--episodes', type=as_count, default=episodes, metavar='N', help=f'(default: {episodes})')
    parser.add_argument('--seed', type=as_seed, default=0, help='of the environment, or none (default: 0)')
    parser.add_argument('--best', action='store_true', help='the best agent that --evaluate has kept, not the last one')
    parser.add_argument(
        '--env-set',
        action='append',
        default=[],
        metavar='NAME=VALUE',
        help='an argument of build_env; repeatable',
    )
