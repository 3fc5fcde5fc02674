"""``zoo describe``."""

from __future__ import annotations

import argparse
from typing import Any

import zoo
from zoo.cli.subject import ONE, add_subject

HELP = 'every parameter of an algorithm, with its default and its meaning'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject(parser, ONE, False, 'zoo describe PPO')


def run(args: Any) -> None:
    print(zoo.describe(args.algorithm))
