"""``zoo describe``."""

from __future__ import annotations

import argparse
from typing import Any

import zoo
from zoo import algorithms
from zoo.cli.printing import aligned
from zoo.cli.subject import ONE, add_subject
from zoo.common.env_wrappers import find_env_type

HELP = 'every parameter of an algorithm, with its default and its meaning; with an environment, its defaults there'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject(parser, ONE, True, 'zoo describe PPO')


def run(args: Any) -> None:
    told = [str(zoo.describe(args.algorithm))]
    if args.environment is not None:
        told.append(defaults_there(args.algorithm, args.environment, args.env_type))
    print(*told, sep='\n\n')


def defaults_there(algorithm: str, env_id: str, env_type: str | None) -> str:
    """Return the defaults of an algorithm that are others in one environment, as a table."""
    env = zoo.build_env(env_id, find_env_type(env_id) if env_type is None else env_type)
    try:
        tables = zoo.call_default_params(env, alg=algorithm)
    finally:
        env.close()
    cls: Any = getattr(algorithms, algorithm)
    usual = {param.name: param for param in (*cls.declared().values(), *cls.declared_for_learn().values())}
    rows = []
    for name, value in (pair for table in tables for pair in table.items()):
        if name in ('observation_space', 'action_space'):
            rows.append((f'  {name}', str(value)))
        elif isinstance(value, list):
            titles = {'net_list': cls.network_names, 'optimizers_list': cls.optimizer_names}.get(name, ())
            told = [f'{title}: {spec}' for title, spec in zip(titles, value, strict=False)] or [str(value)]
            rows += [(f'  {name}' if i == 0 else '', each) for i, each in enumerate(told)]
        elif value != usual[name].default:
            rows.append((f'  {name}', f'{value}, elsewhere {usual[name].default_text}'))
    return f'Defaults of {algorithm} in {env_id}, with one copy\n\n{aligned(rows)}'
