"""The entry of the command ``zoo``: arguments in, exit status out."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from zoo.cli.parser import build_parser
from zoo.cli.printing import FAILED, INTERRUPTED, USAGE


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
    return trace is not None and Path(trace.tb_frame.f_code.co_filename).is_relative_to(Path(__file__).parents[1])


def _sentence(error: BaseException) -> str:
    text = ' '.join(str(error).split()) or type(error).__name__
    if _is_ours(error):
        return text
    return f'{type(error).__name__}: {text.rstrip(".")} (--traceback shows where).'
