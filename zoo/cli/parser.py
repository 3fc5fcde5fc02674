"""The parser of the whole command: each of its commands is a module in ``zoo/cli/commands``."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

import zoo
from zoo.cli.commands import COMMANDS
from zoo.cli.printing import USAGE
from zoo.common.tools.errors import nearest


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one sentence, with the nearest known word."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, 'allow_abbrev': False})

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix('argument ')
        end = '' if message.endswith('?') else '.'
        self.exit(USAGE, f'{self.prog}: {message.rstrip(".")}{end} See {self.prog} --help.\n')

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            what = action.metavar if isinstance(action.metavar, str) else action.dest
            close = nearest(value, known)
            hint = f'did you mean {close!r}? ' if close else ''
            raise argparse.ArgumentError(None, f'unknown {what.lower()} {value!r}: {hint}There are {", ".join(known)}')

    def options(self) -> list[str]:
        """Return the names of its options, such as ``--net``."""
        return [name for action in self._actions for name in action.option_strings if name.startswith('--')]


def build_parser() -> tuple[Parser, dict[str, Parser]]:
    """Return the parser of the whole command, and the parsers of its commands by name."""
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
