"""What of an agent is saved, and how it is loaded; the files are the business of :mod:`zoo.common.checkpoint`."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.common import spaces
from zoo.common.networks import copies
from zoo.common.networks.network import unannounced
from zoo.common.schedules import schedule_from_json, schedule_to_json
from zoo.common.tools import seeding
from zoo.common.tools.errors import unknown
from zoo.common.training import checkpoint
from zoo.common.training.agent import Agent

#: Parameters of the constructor that are written apart from the others.
APART = ('observation_space', 'action_space', 'net_list', 'optimizers_list')


def config(agent: Agent) -> dict[str, Any]:
    """Algorithm, spaces and hyper-parameters as plain data; networks given as objects by their class name."""
    return {
        'algorithm': type(agent).__name__,
        'observation_space': spaces.to_json(agent.observation_space),
        'action_space': spaces.to_json(agent.action_space),
        'net_list': [_entry_to_json(entry) for entry in agent.net_list],
        'optimizers_list': [_entry_to_json(entry) for entry in agent.optimizers_list],
        'params': {name: schedule_to_json(getattr(agent, name)) for name in agent.params() if name not in APART},
    }


def blueprint(agent: Agent) -> tuple[type, dict[str, Any]]:
    """Class and arguments of an agent like this one, with new weights."""
    known = {name: getattr(agent, name) for name in agent.params()}
    optimizers = [
        _like(entry) if isinstance(entry, keras.optimizers.Optimizer) else entry for entry in agent.optimizers_list
    ]
    made_of = {'net_list': agent.net_list, 'optimizers_list': optimizers}
    return type(agent), known | {name: entries for name, entries in made_of.items() if name in known}


def _like(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """A new optimizer of the same settings, with those that Keras' configuration leaves out."""
    if getattr(optimizer, '_exclude_from_weight_decay', None):
        raise ValueError(
            f'the {type(optimizer).__name__} excludes variables from its weight decay, which a copy does not have: '
            'exclude them by name, exclude_from_weight_decay(var_names=[…]).'
        )
    made = type(optimizer).from_config(optimizer.get_config())
    pattern = getattr(optimizer, '_exclude_from_weight_decay_pattern', None)
    if pattern is not None:
        made.exclude_from_weight_decay(var_names=[pattern.pattern])
    return made


def variables(agent: Agent) -> dict[str, tf.Variable]:
    """Every variable that is state, by its name in a checkpoint."""
    found = dict(agent.state_variables)
    for name, network in agent.networks.items():
        found |= {f'network/{name}/{i}': variable for i, variable in enumerate(network.variables)}
        found |= {f'network/{name}/random/{i}': variable for i, variable in enumerate(network.random_variables)}
    for name, optimizer in agent.optimizers.items():
        found |= {f'optimizer/{name}/{i}': variable for i, variable in enumerate(optimizer.state)}
    return found


def arrays(agent: Agent) -> dict[str, np.ndarray]:
    """Every array that is state, by its name in a checkpoint."""
    found = {name: variable.numpy() for name, variable in variables(agent).items()}
    for label, moments in agent.moments().items():
        found |= {f'statistics/{label}/{name}': value for name, value in moments.state().items()}
    return found


def assign(agent: Agent, saved: Mapping[str, np.ndarray]) -> None:
    """The inverse of :func:`arrays`."""
    for name, variable in variables(agent).items():
        variable.assign(saved[name])
    for network in agent.networks.values():
        copies.settle(network)
    _leave_out_statistics(agent, saved)
    for label, moments in agent.moments().items():
        moments.restore({name: saved[f'statistics/{label}/{name}'] for name in moments.state()})
    agent.forward.refresh()


def _leave_out_statistics(agent: Agent, saved: Mapping[str, np.ndarray]) -> None:
    """What was saved before vectors of integers were normalised has no statistics of them: they stay as they were."""
    for path in [path for path in agent.statistics if f'statistics/obs/{path}/mean' not in saved]:
        del agent.statistics[path]


def save(agent: Agent, path: str | os.PathLike[str], buffer: bool, loop_state: dict[str, int] | None) -> Path:
    """See :meth:`zoo.algorithms.base.algorithm.Algorithm.save`."""
    whole = config(agent) | {
        'steps': agent.steps,
        'updates': agent.updates,
        'progress': agent.progress,
        'rng': seeding.state(agent.rng),
        'loop_state': loop_state,
        'saved_at': time.time(),
        'fingerprints': copies.fingerprints(agent.networks),
    }
    held = None
    if buffer:
        # Of an agent that was loaded and has not trained yet, the buffer is still where it was read from.
        held = agent.saved_buffer if agent.replay is None else agent.replay.state()
    return checkpoint.write(path, whole, arrays(agent), held)


def twin(agent: Any, memo: dict[int, Any]) -> Any:
    """See :meth:`zoo.algorithms.base.algorithm.Algorithm.__deepcopy__`."""
    cls, given = blueprint(agent)
    try:
        if 'net_list' in given:
            networks = list(agent.networks.values())
            given['net_list'] = copies.copied_entries(networks, agent.net_list, agent.network_names)
        with unannounced():
            made = cls(**given)
        _check_dtypes(made, agent.net_list)
    except Exception as error:
        why = str(error).rstrip('.')
        raise ValueError(f'this agent cannot be copied ({why}): save it and load it with new networks.') from error
    memo[id(agent)] = made
    made.restore_state(agent.state())
    for name in ('rng', 'progress', 'replay', 'loop_state'):
        setattr(made, name, copy.deepcopy(getattr(agent, name), memo))
    made.saved_buffer = agent.saved_buffer  # only read from, and not before there is a replay
    return made


def newest(path: str | os.PathLike[str]) -> Path:
    """The checkpoint at a path, or of a run directory the one that was written last."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f'a saved agent is given by the path of its folder, not by {path!r}.')
    path = Path(path).expanduser()
    inside = [p for p in (path / 'checkpoints').glob('*') if p.is_dir() and not p.name.startswith('.')]
    return max(inside, key=lambda p: (checkpoint.saved_at(p), p.name.isdigit(), len(p.name), p.name), default=path)


def read(path: str | os.PathLike[str], algorithm: str | None) -> tuple[Path, checkpoint.Checkpoint]:
    """The checkpoint to load for a path that a user gave."""
    found = newest(path)
    return found, checkpoint.read(found, algorithm)


def load(
    cls: type[Any],
    saved: checkpoint.Checkpoint,
    path: Path,
    net_list: Sequence[Any] | None,
    optimizers_list: Sequence[Any] | None,
) -> Any:
    """The agent of class ``cls`` that a checkpoint holds; see :meth:`zoo.algorithms.base.algorithm.Algorithm.load`."""
    given = {'net_list': net_list, 'optimizers_list': optimizers_list}
    try:
        found = saved.config
        for name, entries in list(given.items()):
            if name not in cls.params():  # a subclass that gives its own
                del given[name]
            elif entries is None:
                given[name] = _entries_from_json(found[name], name, path)
        known = {name: schedule_from_json(value) for name, value in found['params'].items()}
        known |= {name: spaces.from_json(found[name]) for name in ('observation_space', 'action_space')}
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise _not_of_an_agent(path, error) from error
    for name in known:
        if name not in cls.params():
            raise checkpoint.CheckpointError(f"'{path}' cannot be loaded: {unknown('parameter', name, cls.params())}")
    with unannounced():
        agent = cls(**known, **given)
    if 'net_list' not in given:
        _check_dtypes(agent, found['net_list'])
    state = dict(saved.arrays)
    if optimizers_list is not None:
        _keep_what_fits(agent, state, found['optimizers_list'])
    own = variables(agent)
    # Generators begin anew where they were not saved, and are not missed by a network that draws no numbers.
    state = {name: array for name, array in state.items() if '/random/' not in name or name in own}
    state |= {name: x.numpy() for name, x in own.items() if '/random/' in name and name not in state}
    _leave_out_statistics(agent, state)
    _check_arrays(agent, state, path)
    assign(agent, state)
    copies.check_fingerprints(agent.networks, found.get('fingerprints', {}))
    if net_list is not None:
        copies.check_specs(agent.networks, agent.net_list, found['net_list'])
    try:
        agent.steps, agent.updates = int(found['steps']), int(found['updates'])
        agent.progress = float(found['progress'])
        seeding.restore(agent.rng, found['rng'])
        agent.loop_state = found['loop_state']
    except (KeyError, TypeError, ValueError) as error:
        raise _not_of_an_agent(path, error) from error
    agent.saved_buffer = saved.buffer
    return agent


def _check_dtypes(agent: Agent, saved: Sequence[Any]) -> None:
    """Refuse networks of another dtype than these entries, which come of a class that gives its specs itself."""
    for name, own, entry in zip(agent.networks, agent.net_list, saved, strict=True):
        if not isinstance(own, dict) or not isinstance(entry, dict) or 'custom' in entry:
            continue
        expected = entry.get('dtype', 'float32')
        if own['dtype'] != expected:
            raise ValueError(
                f"the network {name} is of {expected!r}, but under Keras' dtype policy of now {type(agent).__name__} "
                f'makes it in {own["dtype"]!r}: call keras.config.set_dtype_policy({expected!r}) before, or name the '
                'dtype in its spec.'
            )


def _not_of_an_agent(path: Path, error: Exception) -> checkpoint.CheckpointError:
    what = f'no {error}' if isinstance(error, KeyError) else str(error)
    return checkpoint.CheckpointError(
        f"'{path}' cannot be loaded: its configuration is not one that an agent was saved with ({what})."
    )


def _keep_what_fits(agent: Agent, state: dict[str, np.ndarray], entries: list[Any]) -> None:
    """Put the state of the optimisers that were handed, as far as it is new, in the place of what was saved."""
    for (name, optimizer), entry in zip(agent.optimizers.items(), entries, strict=True):
        prefix = f'optimizer/{name}/'
        saved = {key.removeprefix(prefix): state.pop(key) for key in list(state) if key.startswith(prefix)}
        fitting = optimizer.fitting(saved, {key: schedule_from_json(value) for key, value in entry.items()})
        state.update({prefix + key: value for key, value in fitting.items()})


def _check_arrays(agent: Agent, saved: Mapping[str, np.ndarray], path: Path) -> None:
    own = {name: tuple(variable.shape) for name, variable in variables(agent).items()}
    for label, moments in agent.moments().items():
        own |= {f'statistics/{label}/{name}': np.shape(value) for name, value in moments.state().items()}
    for name in sorted(saved.keys() | own.keys()):
        found = saved.get(name)
        if name not in own or found is None or found.shape != own[name]:
            raise ValueError(
                f'{path} holds {"nothing" if found is None else f"an array of shape {found.shape}"} for {name!r}, but '
                f'this agent {f"has shape {own[name]}" if name in own else "has no such"} there: hand load the same '
                'networks and optimizers that were saved.'
            )


def _entry_to_json(entry: Any) -> Any:
    if isinstance(entry, str):
        return entry
    if isinstance(entry, dict):
        return {key: schedule_to_json(value) for key, value in entry.items()}
    return {'custom': type(entry).__name__}


def _entries_from_json(entries: list[Any], what: str, path: Path) -> list[Any]:
    for i, entry in enumerate(entries):
        if isinstance(entry, dict) and 'custom' in entry:
            raise ValueError(
                f'{path} was saved with {what}[{i}] a {entry["custom"]} defined in Python, which it does not hold: '
                f'hand one of the same shape to load(path, {what}=[…]).'
            )
    older = {'dtype': 'float32'} if what == 'net_list' else {}  # of specs that were saved before there was another one
    return [
        entry if isinstance(entry, str) else older | {key: schedule_from_json(value) for key, value in entry.items()}
        for entry in entries
    ]
