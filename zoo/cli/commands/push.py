"""``zoo push``."""

from __future__ import annotations

import argparse
from typing import Any

import zoo
from zoo.cli.options import add_best, add_run
from zoo.cli.values import as_count

HELP = 'upload a trained agent to the Hugging Face hub, with a model card'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.set_defaults(example='zoo push last name/repo')
    add = parser.add_argument
    add('repo', metavar='REPO', help='name/repo; it is made if need be')
    add_best(parser)
    add('--episodes', type=as_count, metavar='N', help='test it first (default: the test at the end of the run)')
    add('--film', metavar='FILE', help='a film of the agent, as zoo film makes it')
    private = parser.add_mutually_exclusive_group()
    private.add_argument('--private', action='store_true', default=None, help='make a private repository')
    private.add_argument('--public', action='store_false', dest='private', help='make a public repository')
    add('--revision', metavar='BRANCH', help='the branch to write to (default: main)')
    add('--message', metavar='TEXT', help='of the commit')


def run(args: Any) -> None:
    names = ('best', 'film', 'private', 'revision', 'message')
    params = {name: getattr(args, name) for name in names}
    print(zoo.push_to_hub(args.run_name, args.repo, test_episodes=args.episodes, **params))
