"""What ``config.json`` of a run directory says of the trainings in it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common.envs.about import About, about
from zoo.common.tools.files import jsonable, write_json
from zoo.common.tools.identity import name_of
from zoo.common.training.agent import Agent

log = logging.getLogger('zoo')


def note(
    folder: Path,
    agent: Agent,
    env: Env | VectorEnv | None,
    name: str | None,
    learn_params: Mapping[str, Any],
    train_steps: int,
    callbacks: Iterable[Any],
    *,
    seed: int | None,
    resumed: bool,
    inexact: bool,
) -> None:
    """Write down a training that begins in a run directory, beside what is there of earlier trainings.

    Args:
        name: of the environment or the dataset.
        learn_params: the parameters of ``learn``, as data.
        seed: that was asked for.
        resumed: whether it goes on with a training that was interrupted.
        inexact: whether it goes on where no checkpoint was due.
    """
    known = About(name or '') if env is None else about(env)
    copies = 0 if env is None else known.copies
    of_env = {'environment': known.name, 'env_type': known.type, 'copies': copies}
    of_env |= {} if known.made_by is None else {'made_by': known.made_by}
    # Every call of learn in this folder, and the callbacks of all: zoo.as_config says whether a file can.
    before = config_in(folder) if resumed or agent.steps else {}
    calls = [*before.get('calls', ()), [agent.steps, train_steps]]
    steering = dict.fromkeys([*before.get('callbacks', ()), *_steering(callbacks)])
    begun = before.get('seed') if resumed else seed
    if begun != seed and seed is not None:
        log.warning('seed=%s changes nothing: the training goes on with its own random numbers.', seed)
    done = (agent.loop_state or {}).get('steps', 0) if resumed else 0
    end = agent.steps - done + train_steps
    learned = {'seed': begun, 'calls': calls, 'end': end, 'callbacks': list(steering), 'learn_params': learn_params}
    own = known.defaults.get(type(agent).__name__, before.get('own_defaults'))
    learned |= {} if own is None else {'own_defaults': own}
    learned |= {key: before[key] for key in ('start_from', 'resumed_with', 'inexact') if key in before}
    changed = _changed(before.get('learn_params') or {}, learn_params) if resumed else []
    if changed:
        learned['resumed_with'] = sorted({*changed, *before.get('resumed_with', ())})
    learned |= {'inexact': True} if inexact else {}
    made_with = {'made_with': None if env is None else _made_with(env)}
    write_json(folder / 'config.json', agent.config() | of_env | made_with | learned)


def config_in(folder: Path) -> dict[str, Any]:
    """Return what is written of the run in a folder, or nothing."""
    try:
        found = json.loads((folder / 'config.json').read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _made_with(env: Env | VectorEnv) -> dict[str, Any] | None:
    """Return the arguments that build the environment again, or None if they are not plain data."""
    try:
        found: dict[str, Any] | None = jsonable(about(env).arguments)
        return found
    except TypeError:
        return None


def _steering(callbacks: Iterable[Any]) -> list[str]:
    """Name the callbacks that may end or change the training, as far as zoo knows."""
    return [name_of(callback) for callback in callbacks if getattr(callback, 'steers', True)]


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Name the parameters with which a resumed training learns otherwise than its run did before."""
    aside = {'verbose', 'progress_bar', 'resume', 'train_steps', 'log_every', 'checkpoint_every', 'checkpoint_buffer'}
    now = json.loads(json.dumps(jsonable(now)))
    return [name for name in now if name in before and name not in aside and now[name] != before[name]]
