"""A user's own defaults for an environment, in the YAML that the variable ``ZOO_DEFAULTS`` names.

::

    CartPole-v1:
      PPO: {gamma: 0.98, train_steps: 50_000, nenv: 8}
      DQN: {net: [64, 64], learning_rate: 1e-3}
    atari:
      PPO: {train_steps: 10_000_000}

A name of an environment, or of a type of environments, has algorithms; an algorithm has its parameters, the parameters
of its ``learn``, ``nenv``, ``net`` and ``learning_rate``. An environment wins over its type. ``ZOO_DEFAULTS`` may name
a folder: then all ``.yaml`` and ``.yml`` files in it are read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.algorithms.base import catalog
from zoo.common.schedules import schedule_to_json
from zoo.common.tools import habits
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.files import as_path
from zoo.common.tools.params import Param, above, at_least, refusal
from zoo.common.tools.yaml import read_yaml

#: The variable that names the file or the folder.
VARIABLE = 'ZOO_DEFAULTS'

#: Parameters that follow from the environment, belong to one call, or are written shorter.
_NOT_THESE = {
    'observation_space': "is the environment's.",
    'action_space': "is the environment's.",
    'seed': 'belongs to a call, not to defaults.',
    'resume': 'belongs to a call, not to defaults.',
    'net_list': 'has one entry for each network: write net, such as net: [64, 64] or net: {hidden: [64]}.',
    'optimizers_list': 'has one entry for each optimizer: write learning_rate.',
}


@dataclass(frozen=True)
class OwnDefaults:
    """What a user's files say of an algorithm in an environment.

    Attributes:
        alg: name of the algorithm.
        environment: the environment, or the type of environments.
        file: where it stands.
        values: the values by name.
    """

    alg: str
    environment: str
    file: Path
    values: dict[str, Any]

    def __str__(self) -> str:
        values = ', '.join(f'{name}={value!r}' for name, value in self.values.items())
        return f'{values} (from {self.file})'

    def as_json(self) -> dict[str, Any]:
        """Return it for the configuration of a run."""
        return {'file': str(self.file), 'values': {name: _plain(value) for name, value in self.values.items()}}

    def checked(self) -> dict[str, Any]:
        """Return the values, each checked; a wrong name or value is refused with the file and its place there."""
        cls = catalog.find(self.alg)
        known = {name: p for name, p in (cls.declared() | cls.declared_for_learn()).items() if name not in _NOT_THESE}
        known['nenv'] = Param('nenv', None, 'whole', range=at_least(1))
        known['net'] = Param('net', None, 'any')
        if cls.optimizer_names and 'learning_rate' not in known:
            known['learning_rate'] = Param('learning_rate', None, 'number', range=above(0), scheduled=True)
        found = {}
        for name, value in self.values.items():
            if name not in known:
                other = habits.OF_TRAIN.get(name)
                told = f'unknown parameter {name!r}: it is called {other!r} here.' if other in known else None
                raise self._refused(told or refusal(f'parameter of {self.alg}', name, known, _NOT_THESE))
            try:
                found[name] = known[name].check(value)
            except ValueError as error:
                raise self._refused(str(error)) from None
        return found

    def _refused(self, told: str) -> InvalidValue:
        return InvalidValue(f"{VARIABLE}, '{self.file}', {self.environment}, {self.alg}: {told}")


def own_defaults(alg: str) -> dict[str, OwnDefaults]:
    """Return a user's defaults of an algorithm by environment, or by type of environments; empty without any.

    Raises:
        ValueError: a file is missing, is not YAML, or does not have the form above; or two files name the same.
    """
    found: dict[str, OwnDefaults] = {}
    for file in _files():
        for environment, entries in read_yaml(file, f'{VARIABLE},').items():
            for name, values in _mapping(file, environment, entries, 'PPO: {gamma: 0.98}').items():
                try:
                    proper = catalog.named(name)
                except ValueError as error:
                    raise InvalidValue(f"{VARIABLE}, '{file}', {environment}: {error}") from None
                own = _mapping(file, f'{environment}, {proper}', values, 'gamma: 0.98')
                if proper != alg:
                    continue
                if environment in found:
                    told = f"'{found[environment].file}' and '{file}' both have {environment}, {alg}"
                    raise InvalidValue(f'{VARIABLE}: {told}: leave it out of one of them.')
                found[environment] = OwnDefaults(alg, environment, file, own)
    return found


def own_defaults_for(alg: str, env_type: str | None, *names: str) -> OwnDefaults | None:
    """Return a user's defaults of an algorithm in an environment, by one of its names and by its type; None: none.

    ``'package:Name'`` is also found as ``'Name'``.
    """
    found = own_defaults(alg)
    names = tuple(part for name in names for part in (name, name.rpartition(':')[2]))
    of_type = found.get(env_type or '')
    own = next((found[name] for name in names if name in found), None)
    if own is None or of_type is None:
        return own or of_type
    return OwnDefaults(alg, own.environment, own.file, of_type.values | own.values)


def _files() -> list[Path]:
    given = os.environ.get(VARIABLE)
    if not given:
        return []
    path = as_path(given, VARIABLE)
    if not path.exists():
        raise InvalidValue(
            f"{VARIABLE} names '{path}', which is not there: name a YAML file or a folder of such files."
        )
    return sorted(file for file in path.iterdir() if file.suffix in ('.yaml', '.yml')) if path.is_dir() else [path]


def _mapping(file: Path, place: str, value: Any, example: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidValue(f"{VARIABLE}, '{file}', {place}: it holds {value!r:.60}, but needs {example}.")
    return dict(value)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, list) else schedule_to_json(value)
