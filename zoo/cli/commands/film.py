"""``zoo film``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import zoo
from zoo.cli.options import add_playing, open_agent, place_of
from zoo.cli.values import as_count

HELP = 'film a trained agent: a GIF, or an MP4 with zoo-rl[video]'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_playing(parser, 1)
    parser.add_argument('--out', metavar='FILE', help='.gif, .webp, .png or .mp4 (default: film.gif in the run)')
    parser.add_argument(
        '--max-steps', metavar='N', type=as_count, default=1000, help='the film ends here (default: 1000)'
    )


def run(args: Any) -> None:
    run, agent, env = open_agent(args, render_mode='rgb_array')
    path = place_of(run, 'film.gif') if args.out is None else Path(args.out)
    zoo.film(agent, env, path, episodes=args.episodes, max_steps=args.max_steps, seed=args.seed)
    env.close()
    print(path)
