"""``zoo record``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import zoo
from zoo.cli.options import add_playing, open_agent, place_of

HELP = 'record episodes of a trained agent, a dataset to learn from'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_playing(parser, 100)
    told = 'a file that ends in .npz, or a folder, for what is larger than memory (default: episodes.npz in the run)'
    parser.add_argument('--out', metavar='PATH', help=told)
    told = 'explore, and keep the probability of each action, for zoo estimate; else the best actions are played'
    parser.add_argument('--explore', action='store_true', help=told)


def run(args: Any) -> None:
    run, agent, env = open_agent(args)
    path = place_of(run, 'episodes.npz') if args.out is None else Path(args.out)
    try:
        dataset = zoo.record_episodes(agent, env, path, args.episodes, not args.explore, args.seed)
    finally:
        env.close()
    print(dataset.summary())
