"""``zoo test``."""

from __future__ import annotations

import argparse
from typing import Any

from zoo.cli.options import add_playing, open_agent

HELP = 'play whole episodes with a trained agent and print their returns'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_playing(parser, 10)


def run(args: Any) -> None:
    _, agent, env = open_agent(args)
    result = agent.learn(env, 'test', test_episodes=args.episodes)
    env.close()
    for total, length in zip(result.returns, result.lengths, strict=True):
        print(f'return {total:.6g}, {length} steps')
    count = len(result.returns)
    mean = sum(result.returns) / count
    deviation = (sum((total - mean) ** 2 for total in result.returns) / count) ** 0.5
    successes = [success for success in result.successes if success is not None]
    unit = 'updates' if agent.steps and agent.data_steps == agent.steps else 'steps'
    print(f'mean {mean:.6g}, standard deviation {deviation:.6g}, of {count} episodes after {agent.steps:,} {unit}')
    if successes:
        print(f'success {sum(successes) / len(successes):.0%}')
