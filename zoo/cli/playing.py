"""What the commands share that play with a trained agent."""

from __future__ import annotations

import os
from typing import Any

import zoo
from zoo.cli.values import find_packages, parse_settings
from zoo.common.tools.errors import InvalidValue


def open_agent(args: Any, **changes: Any) -> tuple[Any, Any, Any]:
    """Return the run, its agent and an environment of one copy; ``changes`` are arguments of ``build_env``."""
    run = zoo.open_run(args.run_name)
    env_params = parse_settings('--env-set', args.env_set)
    for name in ('seed', 'nenv', 'env_id', 'env_type', *changes):
        if name in env_params:
            raise InvalidValue(f'--env-set {name}: that is not to be changed here.')
    find_packages((run.config.get('made_with') or {}).get('env_id', ''))
    env = run.build_env(args.seed, nenv=1, **changes, **env_params)
    try:
        return run, run.load(best=args.best), env
    except BaseException:
        env.close()
        raise


def without_window() -> None:
    """Let pygame draw without a display; where there is none it would complain."""
    if not (os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')):
        os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')
