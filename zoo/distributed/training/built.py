"""What a rank has built, compared with what learner 0 has built, before anything is trained.

Under a launcher every rank makes the environment and the agent itself. Ranks whose programs differ would train on
nonsense: an actor of PPO with a smaller network reached 28 on CartPole in place of 493. So learner 0 saves its record
of spaces, networks, parameters and versions, and each other rank requests the record and compares it with its own. An
actor that was started again compares again.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common import spaces
from zoo.common.tools.identity import OF_ONE_PROCESS, keras_settings
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import PeerLost
from zoo.distributed.layout import Role
from zoo.distributed.training.plan import Plan

if TYPE_CHECKING:
    from zoo.common.training.agent import Agent

# A value with a longer text is compared by its digest.
_LONGEST = 80
_NAME = 'built'
# What may differ: recorded episodes, which each rank reads from its own disk; the seed of initial weights, which
# learner 0 sends.
_OWN = ('recorded', 'seed')


def record(agent: Agent, plan: Plan) -> dict[str, str]:
    """Return the record of what a rank has built: for each field the text of its value, or the text's digest."""
    config, texts = agent.config(), {'roles': str(plan.layout)}
    texts['algorithm'] = config['algorithm']
    for kind in ('observation_space', 'action_space'):
        texts[kind] = spaces.describe(getattr(agent, kind))
        texts[f'bounds of {kind}'] = _text(config[kind])
    for kind, names, entries, objects in (
        ('network', agent.network_names, config['net_list'], agent.net_list),
        ('optimizer', agent.optimizer_names, config['optimizers_list'], agent.optimizers_list),
    ):
        for name, entry, given in zip(names, entries, objects, strict=True):
            parts = entry if isinstance(entry, dict) else {'torso': entry}
            if not isinstance(given, (str, dict)):
                parts |= {'settings': keras_settings(given)}
            texts |= {f'{key} of the {kind} {name!r}': _text(x) for key, x in parts.items() if key not in _OWN}
    for name, network in agent.networks.items():
        weights = [f'{"×".join(map(str, v.shape))} {getattr(v.dtype, "name", v.dtype)}' for v in network.variables]
        texts[f'weights of the network {name!r}'] = ', '.join(weights)
    found = config['params'] | {'nenv': plan.num_envs, 'restarts': plan.restarts, 'train_steps': plan.train_steps}
    found |= {'number of steps before this training': plan.start, **plan.loop_params}
    texts |= {name: _text(value) for name, value in found.items() if name not in _OWN}
    return {name: _shortened(text) for name, text in texts.items()}


def compare(cluster: Cluster, built: Mapping[str, str]) -> None:
    """End the job where this rank has built something else than learner 0, with a sentence that says what.

    ``built``: the :func:`record` of this rank.
    """
    own = _versions() | dict(built)
    if cluster.rank == 0:
        cluster.save(_NAME, {'record': np.frombuffer(json.dumps(own).encode(), np.uint8)})
        return
    try:
        expected = json.loads(cluster.request(Role.LEARNER, 0, _NAME)['record'].tobytes())
    except PeerLost:  # what this rank does next needs learner 0, too
        return
    names = [*own, *(name for name in expected if name not in own and not name.startswith('version '))]
    for name in names:
        here, there = own.get(name, 'nothing'), expected.get(name, 'nothing')
        if here == there:
            continue
        what = f'{name} is {here} here and {there} in rank 0 (learner 0)'
        if '#' in (here[0], there[0]):
            what = f'{name} is not the same as in rank 0 (learner 0)'
        remedy = 'install the same versions for' if name.startswith('version ') else 'run the same program in'
        cluster.abort(f'{what}: {remedy} every rank.')


def _versions() -> dict[str, str]:
    """Return versions that every rank needs to share: of zoo, and of the libraries that this rank computes with."""
    found = {'version of zoo': sys.modules['zoo'].__version__}
    for name, module in (('NumPy', 'numpy'), ('TensorFlow', 'tensorflow'), ('Keras', 'keras')):
        if module in sys.modules:
            found[f'version of {name}'] = '.'.join(sys.modules[module].__version__.split('.')[:2])
    return found


def _shortened(text: str) -> str:
    """Return a text; in place of a long one ``#`` and its digest."""
    return text if len(text) <= _LONGEST else f'#{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}'


def _text(value: Any) -> str:
    """Return the text of a value. Equal values have the same text in every process."""
    return repr(_plain(value))


def _plain(value: Any) -> Any:
    """Return a value in Python's own types."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(value[key]) for key in sorted(value, key=str) if key not in OF_ONE_PROCESS}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return getattr(value, '__qualname__', type(value).__qualname__)
