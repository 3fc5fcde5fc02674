"""What an agent saves, and how it loads; :mod:`zoo.common.training.checkpoint` reads and writes the files."""

from __future__ import annotations

import copy
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf

from zoo.agents import finding
from zoo.common import spaces
from zoo.common.networks import copies, fingerprints
from zoo.common.networks.network import unannounced
from zoo.common.networks.spec import SPEC_DEFAULTS
from zoo.common.schedules import schedule_from_json, schedule_to_json
from zoo.common.tools import keras_private, seeding, tensorflow_private
from zoo.common.tools.errors import InvalidType, InvalidValue, unknown
from zoo.common.training import checkpoint, hub
from zoo.common.training.agent import COUNTERS, Agent

log = logging.getLogger('zoo')

#: Parameters of the constructor that a checkpoint holds, and a summary shows, apart from the others.
APART = ('observation_space', 'action_space', 'net_list', 'optimizers_list')

#: Arrays that acting does not need, and that a training can begin anew: ``save(…, training_state=False)``.
_OF_TRAINING = ('optimizer/', 'target/', 'learned/')

A = TypeVar('A', bound=Agent)


def config(agent: Agent) -> dict[str, Any]:
    """Give algorithm, spaces and hyper-parameters as plain data; networks given as objects by their class name."""
    return {
        'algorithm': type(agent).__name__,
        'observation_space': spaces.to_json(agent.observation_space),
        'action_space': spaces.to_json(agent.action_space),
        'net_list': [_entry_to_json(entry) for entry in agent.net_list],
        'optimizers_list': [_entry_to_json(entry) for entry in agent.optimizers_list],
        'params': {name: schedule_to_json(getattr(agent, name)) for name in agent.params() if name not in APART},
    }


def blueprint(agent: Agent) -> tuple[type, dict[str, Any]]:
    """Give class and arguments of an agent like this one, with new weights."""
    known = {name: getattr(agent, name) for name in agent.params()}
    optimizers = [
        _like(entry) if isinstance(entry, keras.optimizers.Optimizer) else entry for entry in agent.optimizers_list
    ]
    made_of = {'net_list': agent.net_list, 'optimizers_list': optimizers}
    return type(agent), known | {name: entries for name, entries in made_of.items() if name in known}


def _like(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Make a new optimizer with the same settings, also those that Keras' configuration leaves out."""
    if keras_private.excludes_variables(optimizer):
        raise InvalidValue(
            f'the {type(optimizer).__name__} excludes variables from its weight decay, which a copy does not have: '
            'exclude them by name, exclude_from_weight_decay(var_names=[…]).'
        )
    made = type(optimizer).from_config(optimizer.get_config())
    pattern = keras_private.excluded_names(optimizer)
    if pattern is not None:
        made.exclude_from_weight_decay(var_names=[pattern.pattern])
    return made


def variables(agent: Agent) -> dict[str, tf.Variable]:
    """Give the variables of networks, targets and what else is kept, by their names in a checkpoint."""
    found = dict(agent.state_variables)
    for name, network in agent.networks.items():
        found |= {f'network/{name}/{i}': variable for i, variable in enumerate(network.variables)}
        found |= {f'network/{name}/random/{i}': variable for i, variable in enumerate(network.random_variables)}
    return found


def _moved_by(agent: Agent) -> dict[str, list[str]]:
    """Give the names of the variables that each optimizer moves, as in `variables`, by the optimizer's name."""
    names = {id(variable): name for name, variable in variables(agent).items()}
    return {
        label: [names.get(id(variable), str(i)) for i, variable in enumerate(optimizer.variables)]
        for label, optimizer in agent.optimizers.items()
    }


def weights(agent: Agent) -> dict[str, tf.Variable]:
    """Give the variables of numbers that training moves by gradients or along an episode, by their names as above.

    They are the weights of all networks, and what else is trained, such as log σ. Targets follow by themselves.
    """
    moved = {id(variable) for variable in agent.trainable_variables}
    return {
        name: variable
        for name, variable in variables(agent).items()
        if (name.startswith('network/') and '/random/' not in name and variable.dtype.is_floating)
        or (id(variable) in moved and variable.trainable)
    }


def reading(agent: Agent) -> Callable[[], dict[str, np.ndarray]]:
    """Give a function that reads all `weights` in one call, which takes less time than to read each by itself."""
    found = weights(agent)
    read = tf.function(lambda: [variable.read_value() for variable in found.values()], autograph=False)
    call = tensorflow_private.calling_many(read.get_concrete_function())
    return lambda: {name: value.numpy() for name, value in zip(found, call([]), strict=True)}


def set_weights(agent: Agent, given: Mapping[str, np.ndarray]) -> None:
    """Assign the variables that `weights` names."""
    for name, variable in weights(agent).items():
        if name in given:  # older checkpoints lack the log σ of TRPO among what was learned
            variable.assign(given[name])
    _settle(agent)


def take_weights(agent: Agent, source: Agent) -> None:
    """Let a new agent begin with what another one of its class has learned.

    It takes the weights of networks and targets, everything else that its optimizers move, and running statistics. The
    state of optimizers, the replay buffer, counters and random numbers begin anew.

    Raises:
        ValueError: a weight has another shape, or only one of the two agents normalizes observations.
    """
    statistics, saved = agent.moments(), source.moments()
    differs = sorted(label for label in statistics.keys() ^ saved.keys() if label.startswith('obs/'))
    if differs:
        has = 'normalizes' if differs[0] in saved else 'does not normalize'
        raise InvalidValue(
            f'the saved agent {has} its observations, so its weights mean nothing otherwise: leave out normalize_obs.'
        )
    moved = weights(agent)
    found = variables(source)
    for name, variable in variables(agent).items():
        if name in moved or (name.startswith(('network/', 'target/')) and '/random/' not in name):
            if name not in found or found[name].shape != variable.shape:
                held = 'nothing' if name not in found else f'shape {tuple(found[name].shape)}'
                told = (
                    f'{name!r} has shape {tuple(variable.shape)} with the new parameters, but {held} in the saved agent'
                )
                raise InvalidValue(f'{told}: leave out what changes the networks.')
            variable.assign(found[name])
    for label, moments in statistics.items():
        if label in saved:
            moments.restore(saved[label].state())
    _settle(agent)


def _settle(agent: Agent) -> None:
    """Let all that derives from weights follow them."""
    for network in agent.networks.values():
        copies.settle(network)
    agent.forward.refresh()


def arrays(agent: Agent) -> dict[str, np.ndarray]:
    """Give every array of the state, by its name in a checkpoint.

    An optimizer's arrays are named after the weights that they belong to: ``optimizer/q/first_moment/network/q/0``.
    """
    found = {name: variable.numpy() for name, variable in variables(agent).items()}
    for label, names in _moved_by(agent).items():
        found |= {f'optimizer/{label}/{key}': value for key, value in agent.optimizers[label].state(names).items()}
    for label, moments in agent.moments().items():
        found |= {f'statistics/{label}/{name}': value for name, value in moments.state().items()}
    return found | {f'learned/{name}': value for name, value in (agent.learned or {}).items()}


def assign(agent: Agent, saved: Mapping[str, np.ndarray]) -> None:
    """Put an agent into the state that `arrays` gave."""
    for name, variable in variables(agent).items():
        variable.assign(saved[name])
    for label, names in _moved_by(agent).items():
        agent.optimizers[label].restore(names, _below(f'optimizer/{label}/', saved))
    _leave_out_statistics(agent, saved)
    for label, moments in agent.moments().items():
        moments.restore(_below(f'statistics/{label}/', saved))
    agent.learned = _below('learned/', saved) or None
    _settle(agent)


def _below(prefix: str, saved: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Give the arrays whose names begin with a prefix, by the rest of their names."""
    return {key.removeprefix(prefix): value for key, value in saved.items() if key.startswith(prefix)}


def _leave_out_statistics(agent: Agent, saved: Mapping[str, np.ndarray]) -> None:
    """Old checkpoints have no statistics of vectors of integers: the agent goes on without normalizing them."""
    for path in [path for path in agent.statistics if f'statistics/obs/{path}/mean' not in saved]:
        del agent.statistics[path]


def save(
    agent: Agent,
    path: str | os.PathLike[str],
    buffer: bool,
    loop_state: dict[str, int] | None,
    training_state: bool = True,
) -> Path:
    """Write a checkpoint, with the replay buffer if asked, and without what only a training needs if asked."""
    if buffer and not training_state:
        raise InvalidValue('buffer=True saves a part of what training_state=False leaves out: give one of them.')
    whole = config(agent) | {
        **{name: getattr(agent, name) for name in COUNTERS},
        'progress': agent.progress,
        'rng': seeding.state(agent.rng),
        'loop_state': loop_state,
        'saved_at': time.time(),
        'fingerprints': fingerprints.fingerprints(agent.networks),
    }
    state = arrays(agent)
    if not training_state:
        whole['training_state'] = False
        state = {name: array for name, array in state.items() if not name.startswith(_OF_TRAINING)}
    held = None
    if buffer:
        # A loaded agent that has not trained yet reads its buffer from the file that it was loaded from.
        held = agent.saved_buffer if agent.replay is None else agent.replay.state()
        if held is None and agent.ring is not None:
            told = 'the transitions of compiled environments are tensors, which no file holds'
            raise InvalidValue(f'{told}: give buffer=False, or train with checkpoint_buffer=True.')
        if held is None and not agent.is_training:  # learn has said it
            log.warning('buffer=True saves nothing: this agent has no replay buffer.')
    return checkpoint.write(path, whole, state, held)


def twin(agent: A, memo: dict[int, Any]) -> A:
    """Make a deep copy: it predicts the same and trains on in the same way."""
    cls, given = blueprint(agent)
    try:
        if 'net_list' in given:
            networks = list(agent.networks.values())
            given['net_list'] = copies.copied_entries(networks, agent.net_list, agent.network_names)
        with unannounced():
            made: A = cls(**given)
        _check_dtypes(made, agent.net_list)
    except Exception as error:
        why = str(error).rstrip('.')
        raise InvalidValue(f'this agent cannot be copied ({why}): save it and load it with new networks.') from error
    memo[id(agent)] = made
    made.restore_state(agent.state())
    for name in ('rng', 'progress', 'replay', 'loop_state'):
        setattr(made, name, copy.deepcopy(getattr(agent, name), memo))
    made.saved_buffer = agent.saved_buffer  # both only read it, before they have a replay buffer
    return made


def newest(path: str | os.PathLike[str]) -> Path:
    """Give the checkpoint at a path; for a run directory or a trained agent, the one that was written last."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidType(f'a saved agent is given by the path of its folder, or by its name, not by {path!r}.')
    path = finding.find(hub.local(path))
    return checkpoint.newest_in(path) or path


def best_of(path: str | os.PathLike[str]) -> Path:
    """Give the checkpoint of the best agent in a run directory; a trained agent is the best of its run."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidType(f'a run is given by the path of its folder, not by {path!r}.')
    folder = finding.find(path)
    if finding.card_of(folder) is not None:
        return folder
    found = folder / 'best'
    if not found.is_dir():
        told = 'tests keep one while it trains: zoo.train(evaluate=True) from 2,000 steps on'
        raise InvalidValue(f"'{path}' has no best agent; {told}, or learn(callbacks=[KeepBest()]).")
    return found


def read(path: str | os.PathLike[str], algorithm: str | None) -> tuple[Path, checkpoint.SavedCheckpoint]:
    """Read the checkpoint to load for a path that a user gave."""
    found = newest(path)
    return found, checkpoint.read(found, algorithm)


def load(
    cls: type[A],
    saved: checkpoint.SavedCheckpoint,
    path: Path,
    net_list: Sequence[Any] | None,
    optimizers_list: Sequence[Any] | None,
) -> A:
    """Make the agent of class ``cls`` in a checkpoint, with the user's networks and optimizers where they are given."""
    given = {'net_list': net_list, 'optimizers_list': optimizers_list}
    try:
        found = saved.config
        found['net_list'] = [
            _as_it_was(entry, cls.network_default(name))
            for entry, name in zip(found['net_list'], cls.network_names, strict=False)
        ]
        for name, entries in list(given.items()):
            if name not in cls.params():  # a subclass that gives its own
                del given[name]
            elif entries is None:
                given[name] = _entries_from_json(found[name], name, path)
            elif name == 'net_list' and isinstance(entries, list | tuple) and len(entries) == len(found[name]):
                given[name] = [_like_saved(*pair) for pair in zip(entries, found[name], strict=True)]
        known = {name: schedule_from_json(value) for name, value in found['params'].items()}
        known |= {name: spaces.from_json(found[name]) for name in ('observation_space', 'action_space')}
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise _not_of_an_agent(path, error) from error
    for name in known:
        if name not in cls.params():
            raise checkpoint.CheckpointError(f"'{path}' cannot be loaded: {unknown('parameter', name, cls.params())}")
    make: Callable[..., A] = cls
    with unannounced():
        agent = make(**known, **given)
    if 'net_list' not in given:
        _check_dtypes(agent, found['net_list'])
    if found.get('training_state', True):
        state = _optimizers_state(agent, saved.arrays, None if optimizers_list is None else found['optimizers_list'])
    else:
        state = _with_training_state(agent, saved.arrays)
    own = variables(agent)
    # Generators that were not saved start anew. A network that draws no numbers does not need those that were.
    state = {name: array for name, array in state.items() if '/random/' not in name or name in own}
    state |= {name: x.numpy() for name, x in own.items() if '/random/' in name and name not in state}
    _leave_out_statistics(agent, state)
    _check_arrays(agent, state, path)
    assign(agent, state)
    fingerprints.check_fingerprints(agent.networks, found.get('fingerprints', {}))
    if net_list is not None or 'net_list' not in given:
        fingerprints.check_specs(agent.networks, agent.net_list, found['net_list'])
    try:
        agent.steps, agent.updates = int(found['steps']), int(found['updates'])
        agent.data_steps = int(found.get('data_steps', 0))  # version 0.1 had none
        agent.progress = float(found['progress'])
        seeding.restore(agent.rng, found['rng'])
        agent.loop_state = found['loop_state']
    except (KeyError, TypeError, ValueError) as error:
        raise _not_of_an_agent(path, error) from error
    agent.saved_buffer = saved.buffer
    return agent


def _check_dtypes(agent: Agent, saved: Sequence[Any]) -> None:
    """Refuse an agent of a class that gives its specs itself, if their dtype is not the one in these entries."""
    for name, own, entry in zip(agent.networks, agent.net_list, saved, strict=True):
        if not isinstance(own, dict) or not isinstance(entry, dict) or 'custom' in entry:
            continue
        expected = entry.get('dtype', 'float32')
        if own['dtype'] != expected:
            raise InvalidValue(
                f"the network {name} is of {expected!r}, but under Keras' dtype policy of now {type(agent).__name__} "
                f'makes it in {own["dtype"]!r}: call keras.config.set_dtype_policy({expected!r}) before, or name the '
                'dtype in its spec.'
            )


def _not_of_an_agent(path: Path, error: Exception) -> checkpoint.CheckpointError:
    what = f'no {error}' if isinstance(error, KeyError) else str(error)
    return checkpoint.CheckpointError(
        f"'{path}' cannot be loaded: its configuration is not one that an agent was saved with ({what})."
    )


def _optimizers_state(
    agent: Agent, saved: Mapping[str, np.ndarray], replaced: list[Any] | None
) -> dict[str, np.ndarray]:
    """Give what was saved, with the state of the optimizers as the agent's optimizers take it.

    ``replaced`` has the entries of the saved optimizers, where the user gave others in their place.
    """
    state = dict(saved)
    for i, (label, names) in enumerate(_moved_by(agent).items()):
        prefix, optimizer = f'optimizer/{label}/', agent.optimizers[label]
        held = optimizer.upgraded(names, _below(prefix, saved))
        if replaced is not None:
            entry = {key: schedule_from_json(value) for key, value in replaced[i].items()}
            held = optimizer.fitting(names, held, entry)
        state = {key: value for key, value in state.items() if not key.startswith(prefix)}
        state |= {prefix + key: value for key, value in held.items()}
    return state


def _with_training_state(agent: Agent, saved: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Give what was saved without the state of a training, with new optimizers, and targets equal to their networks."""
    begun = {name: array for name, array in arrays(agent).items() if name.startswith(_OF_TRAINING)}
    for name in begun:
        if name.startswith('target/'):
            begun[name] = saved[f'network/{name.removeprefix("target/")}']
    return begun | dict(saved)


def _check_arrays(agent: Agent, saved: Mapping[str, np.ndarray], path: Path) -> None:
    own = {name: value.shape for name, value in arrays(agent).items()}
    if any(name.startswith('learned/') for name in saved):
        own |= {f'learned/{name}': tuple(variable.shape) for name, variable in weights(agent).items()}
    for name in sorted(saved.keys() | own.keys()):
        found = saved.get(name)
        if name not in own or found is None or found.shape != own[name]:
            raise InvalidValue(
                f'{path} holds {"nothing" if found is None else f"an array of shape {found.shape}"} for {name!r}'
                f'{_layer_of(agent, name)}, but this agent '
                f'{f"has shape {own[name]}" if name in own else "has no such array"} there: hand load the same '
                'networks and optimizers that were saved.'
            )


def _layer_of(agent: Agent, name: str) -> str:
    """Give the layer of a saved weight or moment, such as `` (hidden0/kernel)``; nothing for other arrays."""
    for key, variable in variables(agent).items():
        if key.startswith('network/') and name.endswith(key):
            return f' ({variable.name.partition("/")[2].removesuffix(":0")})'
    return ''


def _entry_to_json(entry: Any) -> Any:
    if isinstance(entry, str):
        return entry
    if isinstance(entry, dict):
        return {key: schedule_to_json(value) for key, value in entry.items()}
    return {'custom': type(entry).__name__}


def _entries_from_json(entries: list[Any], what: str, path: Path) -> list[Any]:
    for i, entry in enumerate(entries):
        if isinstance(entry, dict) and 'custom' in entry:
            raise InvalidValue(
                f'{path} was saved with {what}[{i}] a {entry["custom"]} defined in Python, which it does not hold: '
                f'hand one of the same shape to load(path, {what}=[…]).'
            )
    return [
        entry if isinstance(entry, str) else {key: schedule_from_json(value) for key, value in entry.items()}
        for entry in entries
    ]


def _as_it_was(entry: Any, default: Mapping[str, Any]) -> Any:
    """Give an entry of a saved ``net_list``, complete.

    What a spec left out was the same for all algorithms in version 0.1, and so it is what an old checkpoint means.
    """
    if not isinstance(entry, dict) or 'custom' in entry:
        return entry
    return {key: SPEC_DEFAULTS[key] for key in ('dtype', *default) if key in SPEC_DEFAULTS} | entry


def _like_saved(entry: Any, saved: Any) -> Any:
    """Give a spec for a saved network with what it leaves out as that was saved; the dtype may be another one."""
    if not isinstance(entry, dict) or not isinstance(saved, dict) or 'custom' in saved:
        return entry
    return {key: value for key, value in saved.items() if key != 'dtype'} | entry
