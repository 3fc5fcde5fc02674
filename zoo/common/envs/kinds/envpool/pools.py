"""Pools as EnvPool makes them, and the names of its tasks."""

from __future__ import annotations

import importlib.util
import os
import warnings
from typing import Any

import gymnasium

from zoo.common.spaces import is_leaf
from zoo.common.tools.errors import Failure, InvalidValue, MissingPackage, UserError

#: A time limit that no episode reaches. ViZDoom multiplies it by the skipped frames, in 32 bits.
BEYOND = 10**8


def is_installed() -> bool:
    """Whether EnvPool is installed, without the second that importing it takes."""
    return importlib.util.find_spec('envpool') is not None


def names() -> list[str]:
    """Return the names of all tasks of the installed EnvPool."""
    import envpool

    return envpool.list_all_envs()


def has_task(env_id: str, reference: gymnasium.Env) -> bool:
    """Whether EnvPool is installed and has the task with the observations of Gymnasium's environment ``reference``."""
    return is_installed() and is_leaf(reference.observation_space) and env_id in names()


def check_task(env_id: str) -> None:
    """Refuse a task that EnvPool does not have (ValueError), or any if EnvPool is not installed (ImportError)."""
    if not is_installed():
        raise MissingPackage("vectorized='envpool' needs EnvPool: pip install 'zoo-rl[envpool]'.")
    if env_id not in names():
        raise InvalidValue(f"EnvPool does not have {env_id!r}: use vectorized='sync' or 'async'.")


def make_pool(env_id: str, seeds: list[int], kwargs: dict[str, Any], remedy: str = '') -> Any:
    """Return a pool with one copy for each seed (int32); see :func:`cannot_make` for errors."""
    import envpool

    given = {'num_threads': min(len(seeds), _cores()), **kwargs, 'num_envs': len(seeds), 'seed': seeds}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # about the precision of its own spaces, which are not used
            pool = envpool.make_gymnasium(env_id, **given)
            _ = pool.observation_space  # warns and fails only now
    except Exception as error:
        raise cannot_make(env_id, error, remedy) from error
    return pool


def cannot_make(env_id: str, error: Exception, remedy: str = '') -> Exception:
    """Return the error that says in one sentence why EnvPool cannot make a task.

    It is an ImportError for a missing library, a ValueError for wrong arguments, else a RuntimeError. ``remedy`` is
    what to do in place of it.
    """
    if isinstance(error, UserError):
        return error
    why = ' '.join(str(error).partition('\n')[0].split()).rstrip('.')
    if isinstance(error, ImportError):
        return MissingPackage(f'{env_id!r} needs a library that is not installed: {why}.')
    if env_id == 'VizdoomCustom-v1':
        return InvalidValue(f'{env_id!r} needs the files of your own scenario: give cfg_path and wad_path.')
    if isinstance(error, TypeError | ValueError):
        told = f'EnvPool does not take these arguments of {env_id!r}'
        return InvalidValue(f'{told} ({why}): {remedy}.' if remedy else f'{told}: {why}.')
    return Failure(
        f'EnvPool cannot make {env_id!r} ({why}): {remedy}.' if remedy else f'EnvPool cannot make {env_id!r}: {why}.'
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
