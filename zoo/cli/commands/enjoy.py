"""``zoo enjoy``."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from zoo.cli.options import add_playing, open_agent
from zoo.common.tools.errors import InvalidValue

HELP = 'watch a trained agent in a window'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_playing(parser, 3)


def run(args: Any) -> None:
    try:
        _, agent, env = open_agent(args, render_mode='human')
    except InvalidValue as error:
        if 'there is no display' not in str(error):
            raise
        raise InvalidValue(f'there is no display to open a window on: write zoo film {args.run_name}.') from error
    with contextlib.closing(env):
        result = agent.learn(env, 'test', render=True, test_episodes=args.episodes)
    print(f'returns: {", ".join(f"{total:.6g}" for total in result.returns)}')
