"""Configuration files: the arguments of :func:`zoo.train` in YAML, and the file that trains a run again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from zoo.agents import finding
from zoo.callbacks import Evaluate, KeepBest
from zoo.common.schedules import schedule_from_json
from zoo.common.tools.errors import InvalidValue, article
from zoo.common.tools.yaml import read_yaml, to_yaml
from zoo.default_params import networks, weights_seed
from zoo.experiments.runs import Run, open_run

#: Arguments of ``zoo.train`` that are objects of a program.
_OBJECTS = ('callbacks', 'plot_func')
#: What users write for the names of ``zoo.train``, because the command line has them so.
_WORDS = {'algo': 'alg', 'algorithm': 'alg', 'env': 'env_id', 'environment': 'env_id', 'type': 'env_type'}
_WORDS |= {'steps': 'train_steps', 'set': 'its parameters themselves', 'env_set': 'env_params'}
#: Parameters of ``learn`` that do not change what is trained, or belong to one call.
_ASIDE = ('verbose', 'progress_bar', 'resume')


def read_config(path: str | os.PathLike[str], **given: Any) -> dict[str, Any]:
    """Return the arguments of :func:`zoo.train` in a YAML file: ``zoo.train(**zoo.read_config('run.yaml'))``.

    The names are the names of ``zoo.train``. ``evaluate`` is true, false, the steps between tests, or the arguments of
    :class:`zoo.callbacks.KeepBest`. Numbers are written as in Python, and ``Linear(0.2, 0)`` is a schedule.

    Args:
        path: the file.
        **given: arguments that win over the file. ``net`` and ``learning_rate`` change the file's ``net_list`` and
            ``optimizers_list``; ``env_params`` adds to the file's.

    Raises:
        ValueError: the file is missing or no YAML, or a name in it is none of ``zoo.train``.
    """
    found = read_yaml(path, 'the configuration')
    for name in found:
        if name in _OBJECTS:
            raise InvalidValue(
                f"the configuration '{path}': {name} are objects of a program, which a file cannot hold. Give them "
                f"there, zoo.train(**zoo.read_config('{path}'), {name}=…)."
            )
        if name in _WORDS:
            raise InvalidValue(f"the configuration '{path}': write {_WORDS[name]} instead of {name}.")
    if not isinstance(found.get('env_params', {}), Mapping | None):
        raise InvalidValue(f"the configuration '{path}': env_params needs names and values of its own.")
    if 'evaluate' in found:
        found['evaluate'] = _tests(path, found['evaluate'])
    return _merged(found, given)


def _tests(path: Any, given: Any) -> bool | Evaluate:
    if isinstance(given, bool):
        return given
    try:
        if isinstance(given, Mapping):
            return KeepBest(**given)
        if isinstance(given, int):
            return KeepBest(given, share=None)  # as often as was asked for
    except TypeError:
        known = 'every, episodes, seed, stop_at, share and retest'
        raise InvalidValue(f"the configuration '{path}': evaluate has {', '.join(given)}, but takes {known}.") from None
    right = 'true, false, the steps between tests, or names and values such as {every: 5000, stop_at: 475}'
    raise InvalidValue(f"the configuration '{path}': evaluate is {given!r}: give {right}.")


def _merged(config: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a configuration with those given beside it, which win."""
    found = dict(config)
    if given.get('env_id', found.get('env_id')) != found.get('env_id'):
        found.pop('env_type', None)  # of the other environment
    for name, value in given.items():
        if name == 'env_params':
            value = {**(found.get(name) or {}), **value}
        elif name == 'net' and found.get('net_list') is not None:
            found['net_list'] = networks(value, found['net_list'])
            continue
        elif name == 'learning_rate' and found.get('optimizers_list') is not None:
            entries = [entry if isinstance(entry, Mapping) else {} for entry in found['optimizers_list']]
            found['optimizers_list'] = [{**entry, 'learning_rate': value} for entry in entries]
            continue
        elif name in ('net_list', 'optimizers_list'):
            found.pop('net' if name == 'net_list' else 'learning_rate', None)
        found[name] = value
    return found


def as_config(run: str | os.PathLike[str] | Run) -> str:
    """Return the YAML with which ``zoo train --config`` trains a run again, to the same weights.

    It holds every parameter, so that other defaults change nothing. A comment at its top says what cannot repeat: no
    seed, several processes, a training that was interrupted.

    Args:
        run: a run, its folder, or its name in ``runs``.

    Raises:
        ValueError: there is no such run; or its environment, networks, optimizers or callbacks were objects of a
            program; or it is not the first training of its agent.
    """
    run = open_run(run)
    config = run.config
    made_with, learn_params = config.get('made_with'), config.get('learn_params') or {}
    refused = _refusal(run)
    if refused is not None:
        raise InvalidValue(f'{run.name} cannot be said in a file: {refused}')
    assert isinstance(made_with, dict)
    own = ('env_id', 'env_type', 'nenv', 'vectorized')
    env_params = {name: value for name, value in made_with.items() if name not in own}
    if env_params.get('render_mode') == 'human':  # a window to watch it
        del env_params['render_mode']
    tests = KeepBest.of_run(run.path)
    unused = 'train_updates' if run.dataset is None else 'train_steps'  # the length of the other kind of training
    groups: dict[str, dict[str, Any]] = {
        '': {
            'alg': run.algorithm,
            **{name: made_with[name] for name in own if name in made_with},
            'env_params': env_params,
            'seed': run.seed,
        },
        'Tests while it trains.': {'evaluate': False if tests is None else tests.arguments},
        'Networks and optimizers.': _networks_and_optimizers(run),
        'Parameters of the algorithm.': config.get('params') or {},
        'Parameters of its training.': {name: x for name, x in learn_params.items() if name not in (*_ASIDE, unused)},
    }
    if not env_params:
        del groups['']['env_params']
    if 'start_from' in config:
        groups['']['start_from'] = config['start_from']
    told = [f'# The training of {run.name}. Again: zoo train --config FILE', *_doubts(run)]
    for title, values in groups.items():
        if values:
            told.append(f'\n# {title}' if title else '')
            told.append(to_yaml(_with_schedules(values)).rstrip('\n'))
    return '\n'.join(told) + '\n'


def _networks_and_optimizers(run: Run) -> dict[str, Any]:
    """Return the entries of a run's lists; seeds of networks that follow from the run's seed are left to it."""
    found: dict[str, Any] = {name: run.config[name] for name in ('net_list', 'optimizers_list') if name in run.config}
    if 'net_list' in found:
        found['net_list'] = [
            {key: x for key, x in entry.items() if (key, x) != ('seed', weights_seed(run.seed, i))}
            if isinstance(entry, Mapping)
            else entry
            for i, entry in enumerate(found['net_list'])
        ]
    return found


def _refusal(run: Run) -> str | None:
    """Return why no file can say a training, or None."""
    config = run.config
    program = 'Train it again from its program.'
    if not isinstance(config.get('made_with'), dict):
        return f'no name makes its environment, {run.environment} (a class, a function, an object). {program}'
    for given in ('net_list', 'optimizers_list'):
        for i, entry in enumerate(config.get(given) or ()):
            if isinstance(entry, dict) and 'custom' in entry:
                return f'{given}[{i}] is {article(entry["custom"])} that was made in Python. {program}'
    if 'start_from' in config and not _is_there(config['start_from']):
        return f'it began with {config["start_from"]}, which is not there. {program}'
    for name in ('dataset', 'recorded'):
        data = (config.get('learn_params') or {}).get(name)
        without_path = [x for x in ([data] if isinstance(data, str) else data or []) if str(x).startswith('<')]
        if without_path:  # zoo.common.datasets.opening.described says it so
            return f'{name} was {without_path[0]}, which no path names. {program}'
    callbacks = config.get('callbacks') or []
    if callbacks:
        return f'its callback {callbacks[0]} may have changed or ended the training. {program}'
    calls = config.get('calls') or [[0, run.train_steps]]
    if calls[0][0] > 0:
        return f'its agent had taken {calls[0][0]:,} steps before. {program}'
    if len({end for _, end in calls}) > 1:
        return f'it was trained to {calls[0][1]:,} steps first, and then further. {program}'
    return None


def _is_there(start_from: str) -> bool:
    """Whether a path or the name of a trained agent still leads to an agent."""
    try:
        return finding.find(start_from).is_dir()
    except InvalidValue:
        return False


def _doubts(run: Run) -> list[str]:
    """Return comments that say why another training may end with other weights."""
    learn_params, found = run.config.get('learn_params') or {}, []
    if run.seed is None:
        found.append('it had no seed')
    if learn_params.get('roles') is not None:
        found.append('several processes trained it, and their messages arrive in any order')
    if 'update_every' in learn_params and learn_params['update_every'] is None:
        found.append('update_every is null, so the speed of the machine decides how many updates there are')
    specs = [entry for entry in run.config.get('net_list') or () if isinstance(entry, dict)]
    if 'start_from' not in run.config and any(entry.get('seed') is None for entry in specs):
        found.append('no seed fixes the first weights of its networks')
    if run.config.get('resumed_with'):
        found.append(f'it was resumed with another {", ".join(run.config["resumed_with"])}')
    if 'calls' not in run.config:
        found.append('it is of an earlier version, which did not note callbacks')
    elif len(run.config['calls']) > 1 and not learn_params.get('exact_resume'):
        found.append('it was interrupted, and resumed without exact_resume')
    elif run.config.get('inexact'):
        found.append('it was interrupted before a checkpoint was due, and resumed there')
    return [f'# Its weights may not come again: {reason}.' for reason in found]


def _with_schedules(value: Any) -> Any:
    value = schedule_from_json(value)
    if isinstance(value, dict):
        return {name: _with_schedules(item) for name, item in value.items()}
    return [_with_schedules(item) for item in value] if isinstance(value, list) else value
