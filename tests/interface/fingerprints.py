"""Fingerprints of the weights that short seeded trainings end with.

A refactoring must not change them. Every case trains one algorithm in this process for some dozen steps. The file
`fingerprints.json` holds what its weights were. On a machine like the one that wrote it, the bytes must be equal. On
any other machine, shapes, means and root mean squares must agree. Optimizers' states are left out: their layout may
change.

    python tests/interface/fingerprints.py                 # compares, and exits with 1 where something differs
    python tests/interface/fingerprints.py --only PPO SAC  # compares the cases of these algorithms, or these cases
    python tests/interface/fingerprints.py --write         # takes them again

All cases take about 40 seconds. Load, order and the number of threads do not change the bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from zoo import algorithms, build_env, record_episodes
from zoo.algorithms.base import Algorithm, saving
from zoo.common.tools import compilation

FILE = Path(__file__).with_suffix('.json')

#: What a machine has to share with the recorded one before its bytes can be the same.
PACKAGES = ('tensorflow', 'keras', 'numpy', 'gymnasium')

#: How far other machines may be off: relatively, and absolutely.
RTOL, ATOL = 1e-2, 1e-4

CARTPOLE = ('CartPole-v1', {})
# Episodes of 15 steps, so that some are truncated.
PENDULUM = ('Pendulum-v1', {'max_episode_steps': 15})

#: Two iterations or more, and some dozens of updates.
ROLLOUTS = {'train_steps': 64, 'horizon': 16}
MINIBATCHES = ROLLOUTS | {'epochs': 2, 'batch_size': 8}
STEPS = {'train_steps': 60, 'explore_steps': 20, 'batch_size': 8, 'buffer_size': 50, 'update_every': 2, 'updates': 2}
#: A generation is 4 episodes.
GENERATIONS = {'train_steps': 200}

#: On a dataset, and on labels.
DATA = {'train_updates': 30, 'batch_size': 8}
LABELS = {'train_steps': 60, 'horizon': 10, 'updates': 8, 'batch_size': 8}
DISCRIMINATOR = {'discriminator_updates': 2, 'discriminator_batch': 8}

#: The same for all algorithms, whatever their own defaults.
NETWORK = {'hidden': [8, 8], 'activation': 'tanh', 'initializer': 'glorot_uniform'}
LSTM, GRU = {'recurrent': 'lstm'}, {'recurrent': 'gru'}
SEQUENCES = {'sequence_length': 4, 'burn_in': 2}
ALL_OF_DQN = {'dueling': True, 'noisy': True, 'prioritized': True, 'n_step': 3}
ALL_OF_DDPG = {'noise': 'ornstein_uhlenbeck', 'n_step': 2, 'prioritized': True, 'normalize_obs': True}


class Case(NamedTuple):
    """A short training: of what, where, for how long, and with which settings.

    XLA takes seconds to compile an update. So it compiles the updates of a few cases only.
    """

    algorithm: str
    env: tuple[str, dict[str, Any]]
    learn: dict[str, Any]
    params: dict[str, Any] = {}
    network: dict[str, Any] = {}
    xla: bool = False


CASES = {
    'A2C': Case('A2C', CARTPOLE, ROLLOUTS | {'horizon': 4}),
    'A2C gSDE': Case('A2C', PENDULUM, ROLLOUTS, {'use_sde': True, 'sde_sample_freq': 4}),
    'A3C': Case('A3C', CARTPOLE, ROLLOUTS | {'horizon': 4}),
    'AC': Case('AC', CARTPOLE, {'train_steps': 48}),
    'ApexDDPG': Case('ApexDDPG', PENDULUM, STEPS),
    'ApexDQN': Case('ApexDQN', CARTPOLE, STEPS, {'target_update_every': 10}),
    'ARS': Case('ARS', PENDULUM, GENERATIONS, {'num_directions': 2, 'normalize_obs': True}),
    'AWAC': Case('AWAC', PENDULUM, STEPS),
    'AWAC in discrete actions': Case('AWAC', CARTPOLE, STEPS),
    'BC': Case('BC', CARTPOLE, DATA),
    'BC with a GRU': Case('BC', CARTPOLE, DATA, SEQUENCES, GRU),
    'C51': Case('C51', CARTPOLE, STEPS, {'target_update_every': 10}),
    'CQL': Case('CQL', PENDULUM, STEPS, {'n_actions': 2}),
    'CQL in discrete actions': Case('CQL', CARTPOLE, STEPS),
    'CrossQ': Case('CrossQ', PENDULUM, STEPS, {}, {'normalize': 'batch_renorm'}),
    'DAgger': Case('DAgger', CARTPOLE, LABELS),
    'DDPG': Case('DDPG', PENDULUM, STEPS),
    'DDPG with everything': Case('DDPG', PENDULUM, STEPS, ALL_OF_DDPG),
    'DPPO': Case('DPPO', CARTPOLE, MINIBATCHES),
    'DQN': Case('DQN', CARTPOLE, STEPS, {'target_update_every': 10}),
    'DQN by XLA': Case('DQN', CARTPOLE, STEPS, {'target_update_every': 10}, xla=True),
    'DQN with everything': Case('DQN', CARTPOLE, STEPS, ALL_OF_DQN | {'tau': 0.01, 'target_update_every': 1}),
    'DQN with a GRU': Case('DQN', CARTPOLE, STEPS, SEQUENCES | {'target_update_every': 10}, GRU),
    'ES': Case('ES', CARTPOLE, GENERATIONS, {'num_directions': 2}),
    'FQL': Case('FQL', PENDULUM, STEPS, {'flow_steps': 3}),
    'GAIL': Case('GAIL', CARTPOLE, MINIBATCHES | DISCRIMINATOR),
    'GAILTRPO': Case('GAILTRPO', CARTPOLE, ROLLOUTS | {'batch_size': 8} | DISCRIMINATOR),
    'IMPALA': Case('IMPALA', CARTPOLE, ROLLOUTS | {'rollouts': 1}),
    'IQL': Case('IQL', PENDULUM, STEPS),
    'IQL with a GRU': Case('IQL', CARTPOLE, STEPS, SEQUENCES, GRU),
    'MARWIL': Case('MARWIL', CARTPOLE, DATA),
    'OffPAC': Case('OffPAC', CARTPOLE, STEPS),
    'PPO': Case('PPO', CARTPOLE, MINIBATCHES),
    'PPO by XLA': Case('PPO', CARTPOLE, MINIBATCHES, xla=True),
    'PPO normalized': Case(
        'PPO', PENDULUM, MINIBATCHES, {'normalize_obs': True, 'normalize_reward': True, 'clip_range_value': 0.2}
    ),
    'PPO by penalty': Case('PPO', CARTPOLE, MINIBATCHES, {'method': 'penalty', 'entropy_coef': 0.01}),
    'PPO gSDE': Case('PPO', PENDULUM, MINIBATCHES, {'use_sde': True}),
    'PPO with an LSTM': Case('PPO', CARTPOLE, MINIBATCHES, {'sequence_length': 4}, LSTM),
    'PQN': Case('PQN', CARTPOLE, MINIBATCHES),
    'PQN by XLA': Case('PQN', CARTPOLE, MINIBATCHES, xla=True),
    'PQN with a GRU': Case('PQN', CARTPOLE, MINIBATCHES, {'sequence_length': 4}, GRU),
    'QRDQN': Case('QRDQN', CARTPOLE, STEPS, {'quantiles': 11, 'target_update_every': 10}),
    'R2D2': Case('R2D2', CARTPOLE, STEPS, SEQUENCES | {'target_update_every': 10}, LSTM),
    'Rainbow': Case('Rainbow', CARTPOLE, STEPS, {'target_update_every': 10}),
    'SAC': Case('SAC', PENDULUM, STEPS),
    'SAC by XLA': Case('SAC', PENDULUM, STEPS, xla=True),
    'SAC at a fixed temperature': Case('SAC', PENDULUM, STEPS, {'alpha': 0.2}),
    'SAC in discrete actions': Case('SAC', CARTPOLE, STEPS),
    'SAC gSDE': Case('SAC', PENDULUM, STEPS, {'use_sde': True, 'sde_sample_freq': 4}),
    'SAC with an LSTM': Case('SAC', PENDULUM, STEPS, SEQUENCES, LSTM),
    'TD3': Case('TD3', PENDULUM, STEPS),
    'TD3 by XLA': Case('TD3', PENDULUM, STEPS, xla=True),
    'TD3BC': Case('TD3BC', PENDULUM, STEPS),
    'TQC': Case('TQC', PENDULUM, STEPS, {'quantiles': 5, 'drop': 1}),
    'TRPO': Case('TRPO', CARTPOLE, ROLLOUTS | {'batch_size': 8}),
    'TRPO in continuous actions': Case('TRPO', PENDULUM, ROLLOUTS | {'batch_size': 8}),
    'VPG': Case('VPG', CARTPOLE, ROLLOUTS),
}


def train(name: str) -> dict[str, np.ndarray]:
    """Return the arrays at the end of a case's training by their names in a checkpoint, without optimizers' states."""
    case = CASES[name]
    with mock.patch.object(compilation, 'XLA_UP_TO', compilation.XLA_UP_TO if case.xla else 0):
        return _train(name, case)


def _needed(cls: Any, env: Any) -> dict[str, Any]:
    """Return the dataset or the expert without which an algorithm does not learn: push where the pole leans."""
    found: dict[str, Any] = {}
    if cls.loop.needs_data or 'dataset' in cls.needed:
        found['dataset'] = record_episodes(lambda obs: (obs[:, 2] > 0).astype(np.int64), env, None, 4, seed=0)
    if 'expert' in cls.needed:
        found['expert'] = lambda obs: int(obs[2] > 0)
    return found


def _train(name: str, case: Case) -> dict[str, np.ndarray]:
    cls = getattr(algorithms, case.algorithm)
    env_id, wrapped = case.env
    env = build_env(env_id, 'classic_control', nenv=2, seed=3, **wrapped)
    net_list: list[Any] = [NETWORK | {'seed': i} | case.network for i in range(len(cls.network_names))]
    if case.network in (LSTM, GRU) and 'critic' in cls.shared_torso:
        net_list[1] = cls.shared_torso['critic']
    agent = cls(
        observation_space=env.single_observation_space,
        action_space=env.single_action_space,
        net_list=net_list,
        **case.params,
    )
    before = _weights(agent)
    agent.learn(env, seed=0, roles=None, run_dir=False, verbose=0, **case.learn, **_needed(cls, env))
    env.close()
    weights = _weights(agent)
    for network in cls.network_names:
        own = [key for key in weights if key.startswith(f'network/{network}/')]
        assert any((weights[key] != before[key]).any() for key in own), f'{name} has not trained its {network}'
    return weights


def _weights(agent: Algorithm) -> dict[str, np.ndarray]:
    return {key: array for key, array in saving.arrays(agent).items() if not key.startswith('optimizer/')}


def take(name: str) -> dict[str, dict[str, Any]]:
    """Return the fingerprints of a case's weights, by their names in a checkpoint."""
    return {key: fingerprint(array) for key, array in sorted(train(name).items())}


def fingerprint(array: np.ndarray) -> dict[str, Any]:
    """Return shape, mean and root mean square to 6 digits, and the hash of the bytes."""
    numbers = np.asarray(array, np.float64)
    return {
        'shape': list(array.shape),
        'mean': _rounded(numbers.mean()),
        'rms': _rounded(np.sqrt(np.mean(numbers**2))),
        'sha256': hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(),
    }


def _rounded(number: float) -> float:
    return float(f'{number:.6g}')


def machine() -> dict[str, str]:
    """Return what decides the bytes: versions of packages, and the processor."""
    found = {name: version(name) for name in PACKAGES}
    return found | {'python': platform.python_version(), 'machine': platform.machine(), 'processor': _processor()}


def _processor() -> str:
    """Return a hash of the processor's model and flags, where the system tells them."""
    try:
        lines = Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines()
    except OSError:
        return platform.processor()
    told: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(':')
        told.setdefault(key.strip(), value.strip())
    kept = [told.get(key, '') for key in ('vendor_id', 'cpu family', 'model', 'Features')]
    kept += sorted(told.get('flags', '').split())
    return hashlib.sha256(' '.join(kept).encode()).hexdigest()


def read() -> dict[str, Any]:
    """Return what is recorded: ``taken_with`` and ``weights``."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding='utf-8'))
    return found


def differences(name: str, recorded: dict[str, Any], exact: bool) -> list[str]:
    """Return a sentence about each weight of a case that differs from the record."""
    expected, found = recorded['weights'].get(name, {}), take(name)
    said = []
    for key in sorted(expected.keys() | found.keys()):
        if key not in found:
            said.append(f'{name}: {key} is missing.')
        elif key not in expected:
            said.append(f'{name}: {key} is not recorded.')
        elif not _agree(expected[key], found[key], exact):
            said.append(f'{name}: {key} is {_told(found[key])}, recorded is {_told(expected[key])}.')
    return said


def _agree(expected: dict[str, Any], found: dict[str, Any], exact: bool) -> bool:
    if expected['shape'] != found['shape']:
        return False
    if exact:
        return bool(expected['sha256'] == found['sha256'])
    return all(np.isclose(found[key], expected[key], rtol=RTOL, atol=ATOL) for key in ('mean', 'rms'))


def _told(one: dict[str, Any]) -> str:
    return f'{one["shape"]} mean {one["mean"]} rms {one["rms"]} sha256 {one["sha256"][:8]}'


def write(weights: dict[str, Any]) -> None:
    """Write the file: a line for each weight."""
    cases = []
    for name, found in sorted(weights.items()):
        lines = ',\n'.join(f'   {json.dumps(key)}: {json.dumps(one)}' for key, one in found.items())
        cases.append(f'  {json.dumps(name)}: {{\n{lines}\n  }}')
    taken_with = json.dumps(machine(), indent=1).replace('\n', '\n ')
    every = ',\n'.join(cases)
    FILE.write_text(f'{{\n "taken_with": {taken_with},\n "weights": {{\n{every}\n }}\n}}\n', encoding='utf-8')


def chosen(only: Iterable[str] | None) -> list[str]:
    """Return the names of the chosen cases: cases and algorithms can be named."""
    if only is None:
        return list(CASES)
    only = set(only)
    unknown = only - {*CASES, *(case.algorithm for case in CASES.values())}
    if unknown:
        raise SystemExit(f'There is no case {", ".join(sorted(unknown))}; there are {", ".join(CASES)}.')
    return [name for name, case in CASES.items() if {name, case.algorithm} & only]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description='Compare the weights of short trainings with those recorded.')
    parser.add_argument('--write', action='store_true', help='take the fingerprints again')
    parser.add_argument('--only', nargs='+', metavar='NAME', help='cases or algorithms')
    given = parser.parse_args(arguments)
    names = chosen(given.only)
    if given.write:
        kept: dict[str, Any] = {}
        if given.only:
            if read()['taken_with'] != machine():
                raise SystemExit('The others were taken on another machine or with other versions: write all.')
            kept = {name: found for name, found in read()['weights'].items() if name in CASES}
        write(kept | {name: take(name) for name in names})
        return 0
    recorded = read()
    exact = recorded['taken_with'] == machine()
    print('Bytes are compared.' if exact else 'Another machine or version: means and root mean squares are compared.')
    said = [line for name in names for line in differences(name, recorded, exact)]
    print('\n'.join(said) if said else f'{len(names)} cases are as recorded.')
    return 1 if said else 0


if __name__ == '__main__':
    sys.exit(main())
