"""``zoo export``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import zoo
from zoo.cli.options import add_best, add_run, place_of

HELP = 'write a trained agent as a model that runs without zoo'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    formats = ('savedmodel', 'litert', 'onnx')
    told = f'{", ".join(formats)} (default: savedmodel)'
    parser.add_argument('--to', default='savedmodel', metavar='FORMAT', choices=formats, help=told)
    parser.add_argument('--out', metavar='FOLDER', help='(default: exported_FORMAT in the run)')
    add_best(parser)


def run(args: Any) -> None:
    run = zoo.open_run(args.run_name)
    path = place_of(run, f'exported_{args.to}') if args.out is None else Path(args.out)
    export: Any = zoo.export
    print(export(run.load(best=args.best), path, to=args.to))
