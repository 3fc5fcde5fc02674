"""The entry of the command ``zoo``: arguments in, exit status out."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence

from zoo.cli.parser import build_parser
from zoo.cli.printing import FAILED, INTERRUPTED, USAGE
from zoo.cli.subject import settle
from zoo.common.tools.errors import UserError, ZooError
from zoo.common.tools.printing import say

#: Commands that version 0.1 had under another name.
_RENAMED = {'record': 'film'}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: its words without ``zoo`` itself; None: the words that the process was started with.

    Returns:
        The exit status: 0 if all went well, 2 if what the user asked for is refused, 1 if it failed on the way, 130 if
        it was interrupted.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    parser, commands = build_parser()
    if '_ARGCOMPLETE' in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
    if argv and argv[0] in _RENAMED:
        say(f'zoo {argv[0]} is called zoo {_RENAMED[argv[0]]} now; the old name goes on working for a while.')
        argv[0] = _RENAMED[argv[0]]
    try:
        at = commands.get(argv[0] if argv else '', parser)
        for word in argv:  # argparse would first take the word after an unknown option for something else
            option = word.partition('=')[0]
            if word.startswith('--') and word != '--' and option not in at.options():
                close = difflib.get_close_matches(option, at.options(), n=1, cutoff=0.5)
                at.error(f'there is no option {option}' + (f', did you mean {close[0]}?' if close else ''))
        args, rest = parser.parse_known_args(argv)
        if args.command is None:
            parser.print_help()
            return 0
        more = [word for word in rest if not word.startswith('-')] if 'words' in args.takes else []
        if len(more) < len(rest):
            at.error(f'{next(word for word in rest if word not in more)!r} is one word too many')
    except SystemExit as end:  # argparse ends the process, which is not for a function to do
        return int(end.code or 0) if isinstance(end.code, int | None) else FAILED
    try:
        settle(args, more)
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


def _sentence(error: BaseException) -> str:
    text = ' '.join(str(error).split()) or type(error).__name__
    if isinstance(error, ZooError):
        return text
    return f'{type(error).__name__}: {text.rstrip(".")} (--traceback shows where).'
