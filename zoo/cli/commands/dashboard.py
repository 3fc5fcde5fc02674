"""``zoo dashboard``."""

from __future__ import annotations

import argparse
from typing import Any

from zoo.cli.values import as_port
from zoo.dashboard.server import PORT, serve

HELP = 'serve a page to choose, edit, train, watch and compare agents'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('--port', type=as_port, metavar='N', help=f'the port on 127.0.0.1 (default: the first free one from {PORT})')
    add('--no-browser', action='store_true', help='print the address only, and open no browser')


def run(args: Any) -> None:
    serve(args.port, not args.no_browser)
