"""``zoo plot``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import zoo
from zoo.cli.values import agent_names
from zoo.common.tools.errors import InvalidValue

HELP = 'draw the learning curves of runs; runs that differ only in their seeds are their median, with a band'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(example='zoo plot last')
    action = parser.add_argument(
        'runs', nargs='+', metavar='RUN', help='folders, names in runs, last, or trained agents'
    )
    action.completer = agent_names  # type: ignore[attr-defined]
    parser.add_argument('--out', default='curves.png', metavar='FILE', help='the PNG (default: curves.png)')


def run(args: Any) -> None:
    path = Path(args.out)
    if path.suffix.lower() != '.png':
        raise InvalidValue(f"--out {args.out}: the curves are drawn as a .png, such as '{path.with_suffix('.png')}'.")
    zoo.plot_runs(args.runs, path)
    print(path)
