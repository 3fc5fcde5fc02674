"""``zoo completion``."""

from __future__ import annotations

import argparse
from typing import Any

from zoo.common.tools.errors import MissingPackage

HELP = 'print what makes a shell complete the words of zoo'

SHELLS = ('bash', 'zsh', 'fish')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(example='zoo completion bash')
    parser.add_argument('shell', metavar='SHELL', choices=SHELLS, help=', '.join(SHELLS))


def run(args: Any) -> None:
    try:
        import argcomplete
    except ImportError as error:
        raise MissingPackage("completion needs a package: pip install 'zoo-rl[completion]'.") from error
    print(argcomplete.shellcode(['zoo'], shell=args.shell))
