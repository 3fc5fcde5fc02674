"""``zoo compare``."""

from __future__ import annotations

import argparse
from typing import Any

import zoo
from zoo.cli.options import add_jobs, add_training
from zoo.cli.subject import MANY, add_subject
from zoo.cli.values import as_count, find_packages, training_params

HELP = 'train algorithms with several seeds each, side by side, and write a report'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject(parser, MANY, True, 'zoo compare PPO A2C --env CartPole-v1')
    parser.add_argument('--seeds', type=as_count, default=3, metavar='N', help='of each algorithm (default: 3)')
    add_training(parser)
    add_jobs(parser, 'compare_ENVIRONMENT', 20)


def run(args: Any) -> None:
    find_packages(args.environment)
    print(zoo.compare(args.algorithms, args.environment, args.env_type, seeds=args.seeds, **training_params(args)))
