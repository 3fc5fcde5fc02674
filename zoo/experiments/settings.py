"""The settings of a run by name, and what differs from the defaults for its environment."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from typing import Any

from zoo import algorithms
from zoo.common.schedules import schedule_from_json, schedule_to_json
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.files import from_jsonable, jsonable

#: Arguments of ``call_default_params`` that are keys of every network's spec, with their defaults.
_OF_NETWORKS: dict[str, Any] = {'layers': 'keras', 'dtype': 'float32', 'recurrent': None}

#: The default of a setting that has none.
_NONE = inspect.Parameter.empty


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return every parameter in the configuration of a run by its name, as for :attr:`zoo.experiments.runs.Run`."""
    found = {**config.get('params', {}), **config.get('learn_params', {})}
    for name in ('verbose', 'progress_bar', 'resume'):  # they do not describe the training
        found.pop(name, None)
    for given in ('net_list', 'optimizers_list'):
        for i, entry in enumerate(config.get(given) or []):
            if not isinstance(entry, dict) or 'custom' in entry:
                found[f'{given}[{i}]'] = entry['custom'] if isinstance(entry, dict) else entry
                continue
            own = {key: x for key, x in entry.items() if key != 'seed' and (key, x) != ('dtype', 'float32')}
            found |= {f'{given}[{i}].{key}': value for key, value in own.items()}
    env = config.get('made_with') or {}
    found |= {name: value for name, value in env.items() if name not in ('env_id', 'env_type')}
    return {name: schedule_from_json(value) for name, value in found.items()}


def differences(config: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return, by name, each setting that differs from ``call_default_params`` for its environment, with the default.

    A key that all networks or all optimizers have alike is one setting, ``'net_list.hidden'``. Settings without a
    default, such as arguments of ``build_env``, have ``inspect.Parameter.empty`` there.

    Raises:
        ValueError: there are no defaults for this algorithm or this environment.
    """
    from zoo.common.spaces import from_json
    from zoo.common.tools.quiet import load_tensorflow
    from zoo.default_params import default_nenv, defaults_in

    alg, env_type, env_id = (config.get(name, '') for name in ('algorithm', 'env_type', 'environment'))
    if alg not in algorithms.NAMES:
        raise InvalidValue(f'zoo has no defaults for {alg}, an algorithm of your own.')
    if not env_type:
        raise InvalidValue('build_env did not make its environment, so zoo has no defaults for it.')
    load_tensorflow()
    observation_space, action_space = (from_json(config[f'{kind}_space']) for kind in ('observation', 'action'))
    made_with = config.get('made_with') or {}
    nenv = default_nenv(alg, env_type, env_id, with_own=False)
    copies = config.get('copies', made_with.get('nenv', nenv))
    goals = {'achieved_goal', 'desired_goal'} <= set(getattr(observation_space, 'spaces', ()))
    specs = [entry for entry in config.get('net_list') or () if isinstance(entry, dict) and 'custom' not in entry]
    of_networks = {name: specs[0].get(name) or x for name, x in _OF_NETWORKS.items()} if specs else _OF_NETWORKS

    def defaults(**given: Any) -> dict[str, Any]:
        layers, dtype = of_networks['layers'], of_networks['dtype']
        of_env = observation_space, action_space, copies, env_type, env_id, lambda: goals
        given |= {'layers': layers, 'dtype': None if dtype == 'float32' else dtype}
        return _config_of(defaults_in(alg, *of_env, **given))

    found = defaults()
    own = [entry.get('recurrent') for entry in found['net_list'] if isinstance(entry, dict)]
    expected = _OF_NETWORKS | ({'recurrent': own[0]} if own else {})
    if specs and of_networks['recurrent'] != expected['recurrent'] and of_networks['recurrent'] is not None:
        found = defaults(recurrent=of_networks['recurrent'])
    of_env = {} if config.get('made_with') is None else {'made_with': {'nenv': nenv, 'vectorized': False}}
    mine, default = settings_of(config), settings_of(found | of_env)
    changed = {name: (x, expected[name]) for name, x in of_networks.items() if specs and x != expected[name]}
    changed |= {name: (x, default.get(name, _NONE)) for name, x in mine.items() if x != default.get(name, _NONE)}
    return _joined(changed, mine)


def _config_of(params: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    """Return the parts of a configuration for what ``call_default_params`` returns, as a file would give them."""
    alg_params, learn_params = dict(params[0]), params[1]
    for name in ('observation_space', 'action_space'):
        del alg_params[name]
    lists = {name: alg_params.pop(name) for name in ('net_list', 'optimizers_list')}
    config = {'params': alg_params, 'learn_params': learn_params, **lists}
    found: dict[str, Any] = from_jsonable(json.loads(json.dumps(jsonable(_with_plain_schedules(config)))))
    return found


def _with_plain_schedules(value: Any) -> Any:
    value = schedule_to_json(value)
    if isinstance(value, Mapping):
        return {name: _with_plain_schedules(item) for name, item in value.items()}
    return [_with_plain_schedules(item) for item in value] if isinstance(value, list | tuple) else value


def _joined(changed: dict[str, tuple[Any, Any]], settings: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Make one setting of a key that all entries of a list have alike."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, pair in changed.items():
        given, _, key = re.sub(r'\[\d+\]', '[]', name).partition('[].')
        entries = {entry for entry in settings if re.fullmatch(rf'{re.escape(given)}\[\d+\]\..*', entry)}
        count = len({entry.partition(']')[0] for entry in entries})
        alike = [changed.get(f'{given}[{i}].{key}') == pair for i in range(count)]
        found[f'{given}.{key}' if key and all(alike) else name] = pair
    return found
