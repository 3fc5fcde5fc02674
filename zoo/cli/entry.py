"""The entry of the command ``zoo``: arguments in, exit status out."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import zoo
from zoo.cli.commands import COMMANDS
from zoo.cli.printing import FAILED, INTERRUPTED, USAGE
from zoo.cli.subject import settle
from zoo.cli.values import env_types
from zoo.common.tools.errors import UserError, ZooError, nearest
from zoo.common.tools.habits import COMMANDS as COMMAND_HABITS
from zoo.common.tools.habits import option_answer
from zoo.common.tools.printing import say

#: A word that is an option rather than a negative number or the name ``-`` of a stream.
_OPTION = re.compile(r'-[A-Za-z]|--[^-]')


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one sentence, with the nearest known word."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, 'allow_abbrev': False})

    def error(self, message: str) -> NoReturn:
        message = self._told(message.removeprefix('argument '))
        end = '' if message.endswith('?') else '.'
        self.exit(USAGE, f'{self.prog}: {message.rstrip(".")}{end} See {self.prog} --help.\n')

    def _told(self, message: str) -> str:
        """Return one of argparse's own messages as zoo says it."""
        option, _, problem = message.partition(': ')
        if option == 'the following arguments are required':
            names = problem.split(', ')
            example = self.get_default('example')
            missing = f'{" and ".join(names)} {"are" if names[1:] else "is"} missing'
            return f'{missing}: {example}' if example else missing
        if problem.startswith('expected'):
            action = next((a for a in self._actions if option in '/'.join(a.option_strings)), None)
            metavar = getattr(action, 'metavar', None) or 'VALUE'
            return f'{option} needs a value: {option.rpartition("/")[2]} {metavar}'
        if problem.startswith('ignored explicit argument'):
            return f'{option} takes no value: leave {problem.removeprefix("ignored explicit argument ")} out'
        return message

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            what = action.metavar if isinstance(action.metavar, str) else action.dest
            close = nearest(value, known)
            hint = f': did you mean {close!r}?' if close else '.'
            if what == 'COMMAND' and (told := COMMAND_HABITS.get(value)) is not None:
                raise argparse.ArgumentError(None, f'unknown command {value!r}: {told}')
            raise argparse.ArgumentError(None, f'unknown {what.lower()} {value!r}{hint} There are {", ".join(known)}')

    def options(self) -> list[str]:
        """Return the names of its options, such as ``--net``."""
        return [name for action in self._actions for name in action.option_strings]

    def refuse_option(self, option: str) -> NoReturn:
        """Refuse an option that this command does not have, and say what to write."""
        own = [name for name in self.options() if name.startswith('--')]
        close, told = nearest(option, own), option_answer(option)
        of_others = told is None or '--' not in told or any(word.strip(',.:') in own for word in told.split())
        if told is not None and of_others and (close is None or close not in told.split()):
            self.error(f'there is no option {option}: {told}')
        if option == '--best' and '--from' in own:
            self.error('there is no option --best: the best agent of a run is --from RUN/best')
        if close is not None:
            self.error(f'there is no option {option}, did you mean {close}?')
        if told is None and '--set' in own and option.startswith('--'):
            name = option.lstrip('-').replace('-', '_')
            self.error(f'there is no option {option}: a parameter is given as --set {name}=VALUE')
        self.error(f'there is no option {option}')


def build_parser() -> tuple[Parser, dict[str, Parser]]:
    """Return the parser of ``zoo``, and the parsers of its commands by name."""
    parser = Parser(prog='zoo', description='Train, test, compare and show deep reinforcement learning agents.')
    parser.add_argument('--version', action='version', version=f'zoo {zoo.__version__}')
    parser.set_defaults(command=None, traceback=False, takes=())
    found = parser.add_subparsers(title='commands', metavar='COMMAND', dest='command', parser_class=Parser)
    commands: dict[str, Parser] = {}
    for module in COMMANDS:
        name, text = module.__name__.rpartition('.')[2], module.HELP
        made: Parser = found.add_parser(name, help=text, description=f'{text[0].upper()}{text[1:]}.')
        made.add_argument('--traceback', action='store_true', help='show where in the program an error was raised')
        made.set_defaults(run=module.run, takes=())
        module.add_arguments(made)
        commands[name] = made
    return parser, commands


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status.

    The status is 0 if all went well, 2 if the request is refused, 1 if the command failed, 130 if it was interrupted.

    Args:
        argv: the words without ``zoo`` itself; None: the words that the process was started with.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    parser, commands = build_parser()
    if '_ARGCOMPLETE' in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
    try:
        at = commands.get(argv[0] if argv else '', parser)
        for word in argv:  # argparse would first take the word after an unknown option for something else
            option = word.partition('=')[0]
            if _OPTION.match(option) and option not in at.options():
                at.refuse_option(option)
        args, rest = parser.parse_known_args(argv)
        if args.command is None:
            parser.print_help()
            return 0
        more = [word for word in rest if not word.startswith('-')] if 'words' in args.takes else []
        if len(more) < len(rest):
            word = next(word for word in rest if word not in more)
            hint = f': give it as --type {word}' if '--type' in at.options() and word in env_types() else ''
            at.error(f'{word!r} is one word too many{hint}')
    except SystemExit as end:  # argparse ends the process, which is not for a function to do
        return int(end.code or 0) if isinstance(end.code, int | None) else FAILED
    try:
        settle(args, more)
        with _ended_as_by_ctrl_c():
            return int(args.run(args) or 0)
    except KeyboardInterrupt as interrupt:
        say(f'zoo {args.command}: {str(interrupt) or "interrupted"}.')
        return INTERRUPTED
    except BrokenPipeError:  # as in zoo list … | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if args.traceback:
            raise
        say(f'zoo {args.command}: {_sentence(error)}')
        return USAGE if isinstance(error, UserError) else FAILED


@contextlib.contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Within this context SIGTERM, which schedulers send, does what Ctrl-C does: a training saves its checkpoint.

    A second signal ends the process at once. Processes that are forked from this one end as they would without it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def end(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() != owner:
            os.kill(os.getpid(), number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _sentence(error: BaseException) -> str:
    shell = getattr(error, 'shell', None)
    text = ' '.join(str(shell or error).split()) or type(error).__name__
    if isinstance(error, ZooError):
        return text
    return f'{type(error).__name__}: {text.rstrip(".")} (--traceback shows where).'
