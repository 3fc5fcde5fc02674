"""Learning from recorded episodes: imitation and offline algorithms, beside d3rlpy on the same data.

    python benchmarks/scores/offline.py                      # every row whose seeds are not there yet
    python benchmarks/scores/offline.py bc-pendulum …        # some rows
    python benchmarks/scores/offline.py --library zoo        # the rows of one library: zoo or d3rlpy
    python benchmarks/scores/offline.py --seeds 0 1          # these seeds instead of the row's own
    python benchmarks/scores/offline.py --pages              # write the page alone

The datasets are made here by zoo, in ``benchmarks/runs/offline``: ``DATA`` has each recipe. A row is an algorithm with
its default settings on one dataset; ``ROWS`` says how many updates it makes. A run is one process. Its score is the
mean return of the last policy in 20 test episodes without exploration. Nothing was tuned on these seeds. A run that is
in ``results/offline.json`` is not repeated; ``--again`` repeats it. ``results/offline.md`` is written from it.

d3rlpy has its own default settings, as many updates, and the same transitions. It is in a virtual environment of its
own, ``benchmarks/.d3rlpy``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import (
    BENCHMARKS,
    answer_of,
    checked,
    environment,
    header,
    listed,
    parser_of,
    peers_python,
    read_results,
    row,
    today,
    versions,
    write_page,
    write_results,
)

FOLDER = BENCHMARKS / 'runs' / 'offline'
PEER = ('torch==2.13.0', 'd3rlpy==2.8.1', 'gymnasium[mujoco]==1.0.0')
TEST_SEED, TEST_EPISODES = 10_000, 20
#: What a test with this seed gives to the first reset of its environment. d3rlpy's test gives it the same: all policies
#: begin in the same 20 states, on which a score in Pendulum depends.
FIRST_RESET = 142_806_477
#: The seed of everything that makes a dataset.
DATA_SEED = 77


# The datasets


def expert(agent: str, episodes: int, deterministic: bool = True) -> Callable[[Path], None]:
    """Return a recipe: episodes of a trained agent that comes with zoo."""

    def make(path: Path) -> None:
        import zoo

        env = zoo.build_env(agent.partition('/')[2])
        zoo.record_episodes(zoo.load(agent), env, path, episodes, deterministic, DATA_SEED)

    return make


def early(alg: str, env_id: str, steps: int, kind: str) -> Callable[[Path], None]:
    """Return a recipe from the first steps of one training, which is kept in a folder of its own.

    ``'medium'``: 100 episodes of its last agent, with exploration. ``'replay'``: every transition that it collected.
    """

    def make(path: Path) -> None:
        import zoo

        place = FOLDER / f'{alg}_{env_id}_{steps}'
        if not any((place / 'checkpoints').glob('[0-9]*')):
            zoo.train(alg, env_id, seed=DATA_SEED, train_steps=steps, run_dir=place, checkpoint_buffer=True, verbose=0)
        elif zoo.load(place).loop_state is not None:  # it was interrupted
            zoo.resume(place, verbose=0)
        run = zoo.open_run(place)
        if kind == 'replay':
            zoo.open_dataset(place).save(path)
        else:
            zoo.record_episodes(run.load(), run.build_env(DATA_SEED, nenv=1), path, 100, False, DATA_SEED)

    return make


#: How each dataset is made.
DATA: dict[str, Callable[[Path], None]] = {
    'cartpole-expert-10': expert('PPO/CartPole-v1', 10),
    'cartpole-expert-5': expert('PPO/CartPole-v1', 5),
    'cartpole-replay': early('DQN', 'CartPole-v1', 50_000, 'replay'),
    'pendulum-expert-10': expert('TD3/Pendulum-v1', 10),
    'pendulum-expert': expert('TD3/Pendulum-v1', 100, deterministic=False),
    'pendulum-medium': early('TD3', 'Pendulum-v1', 4_000, 'medium'),
    'pendulum-replay': early('TD3', 'Pendulum-v1', 20_000, 'replay'),
    'halfcheetah-medium': early('SAC', 'HalfCheetah-v5', 100_000, 'medium'),
    'halfcheetah-replay': early('SAC', 'HalfCheetah-v5', 100_000, 'replay'),
    'halfcheetah-expert': expert('SAC/HalfCheetah-v5', 100, deterministic=False),
}


def dataset(name: str) -> Path:
    """Return the file of a dataset, made if it is missing."""
    path = FOLDER / f'{name}.npz'
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        print(f'making the dataset {name} …', file=sys.stderr, flush=True)
        DATA[name](path)
    return path


def exported(name: str) -> Path:
    """Return a file with the transitions of a dataset as d3rlpy takes them, made if it is missing."""
    path = FOLDER / f'{name}_d3rlpy.npz'
    if not path.exists():
        import numpy as np

        import zoo

        data = zoo.open_dataset(dataset(name))
        columns: dict[str, list[Any]] = {
            'observations': [], 'actions': [], 'rewards': [], 'terminals': [], 'timeouts': []
        }  # fmt: skip
        for episode in data:
            last = np.arange(len(episode.reward)) == len(episode.reward) - 1
            columns['observations'].append(episode.obs[:-1])
            columns['actions'].append(episode.action)
            columns['rewards'].append(episode.reward)
            columns['terminals'].append((last & episode.terminated).astype(np.float32))
            columns['timeouts'].append((last & (not episode.terminated)).astype(np.float32))
        bounds = {'low': data.action_space.low, 'high': data.action_space.high}
        np.savez(path, **{key: np.concatenate(parts) for key, parts in columns.items()}, **bounds)
    return path


# The rows


@dataclass(frozen=True)
class Row:
    """One algorithm on one dataset.

    Attributes:
        alg, env_id, data: what learns, where it is tested, and from what.
        updates: gradient updates; None: as many as the defaults of the algorithm say.
        seeds: how many.
        aim: the score that a seed is to reach; None: d3rlpy's.
        library: ``'zoo'`` or ``'d3rlpy'``.
        changes: arguments that are not the defaults.
    """

    alg: str
    env_id: str
    data: str
    updates: int | None
    seeds: int = 10
    aim: float | None = None
    library: str = 'zoo'
    changes: dict[str, Any] = field(default_factory=dict)


ROWS: dict[str, Row] = {
    'bc-cartpole': Row('BC', 'CartPole-v1', 'cartpole-expert-10', None, aim=475),
    'bc-pendulum': Row('BC', 'Pendulum-v1', 'pendulum-expert-10', None, aim=-200),
    'marwil-cartpole': Row('MARWIL', 'CartPole-v1', 'cartpole-replay', None, aim=475),
    # As many labels of the expert as BC has.
    'dagger-pendulum': Row('DAgger', 'Pendulum-v1', 'TD3/Pendulum-v1', None, changes={'train_steps': 2_000}),
    'gail-cartpole': Row('GAIL', 'CartPole-v1', 'cartpole-expert-5', None, aim=475),
    'cql-cartpole': Row('CQL', 'CartPole-v1', 'cartpole-replay', 20_000, aim=475),
}
_OFFLINE = ('TD3BC', 'IQL', 'CQL', 'AWAC', 'FQL')
_PEERS = ('TD3BC', 'IQL', 'CQL', 'AWAC')
for _env_id, _updates, _seeds in (('Pendulum-v1', 10_000, 10), ('HalfCheetah-v5', 20_000, 3)):
    for _kind in ('replay', 'medium', 'expert'):
        for _alg in _OFFLINE:
            _place = _env_id.partition('-')[0].lower()
            _one = Row(_alg, _env_id, f'{_place}-{_kind}', _updates, _seeds)
            ROWS[f'{_alg.lower()}-{_place}-{_kind}'] = _one
            if _alg in _PEERS:
                ROWS[f'd3rlpy-{_alg.lower()}-{_place}-{_kind}'] = replace(_one, library='d3rlpy', seeds=3)
# What IQL's defaults for MuJoCo are good for.
ROWS['iql-plain-halfcheetah-medium'] = replace(
    ROWS['iql-halfcheetah-medium'], changes={'beta': 3.0, 'normalize_obs': False}
)


# One run


def trained_here(asked: Row, seed: int) -> dict[str, Any]:
    """Train and test one seed of one of zoo's rows; return its entry in the results."""
    import zoo

    given: dict[str, Any] = dict(asked.changes)
    if asked.alg == 'DAgger':
        given['expert'] = asked.data
    else:
        given['dataset'] = str(dataset(asked.data))
    if asked.updates is not None:
        given['train_updates'] = asked.updates
    began = time.perf_counter()
    agent, _ = zoo.train(asked.alg, asked.env_id, seed=seed, run_dir=False, verbose=0, **given)
    seconds = time.perf_counter() - began
    env = zoo.build_env(asked.env_id)
    returns = agent.learn(env, 'test', test_episodes=TEST_EPISODES, seed=TEST_SEED).returns
    assert env.unwrapped.np_random_seed == FIRST_RESET
    packages = versions('tensorflow', 'keras', 'gymnasium', 'numpy')
    return {'returns': returns, 'seconds': seconds, 'versions': {'zoo': zoo.__version__} | packages}


def run(name: str, seed: int) -> dict[str, Any]:
    """Do one run in a process of its own."""
    asked = ROWS[name]
    if asked.library == 'zoo':
        command = [sys.executable, str(Path(__file__).resolve()), '--work', json.dumps({'name': name, 'seed': seed})]
        found = answer_of(command, environment(), shown=True)
    else:
        given = {'alg': asked.alg, 'env_id': asked.env_id, 'data': str(exported(asked.data)), 'seed': seed}
        given |= {'updates': asked.updates, 'changes': asked.changes}
        given |= {'episodes': TEST_EPISODES, 'test_seed': FIRST_RESET}
        peer = Path(__file__).resolve().with_name('offline_peer.py')
        command = [peers_python('.d3rlpy', PEER), str(peer), '--run', json.dumps(given)]
        found = answer_of(command, environment())
    returns = found.pop('returns')
    error = statistics.stdev(returns) / math.sqrt(len(returns))
    score = {'mean': round(statistics.mean(returns), 3), 'std_error': round(error, 3), 'min': round(min(returns), 3)}
    return {'score': score, 'seconds': round(found['seconds'], 1), 'date': today(), 'versions': found['versions']}


# The page


def described(name: str) -> str:
    """Return the facts of a dataset in one line, from its own summary in the results."""
    held = read_results('offline').get('datasets', {}).get(name)
    if held is None:
        return ''
    returns = f'{held["median"]:.4g} ({held["min"]:.4g} to {held["max"]:.4g})'
    return f'{held["episodes"]:,} episodes, {held["steps"]:,} steps, returns {returns}'


def note_dataset(name: str, results: dict[str, Any]) -> None:
    """Keep what a dataset holds in the results."""
    if name not in DATA or name in results.setdefault('datasets', {}):
        return
    import numpy as np

    import zoo

    data = zoo.open_dataset(dataset(name))
    returns = np.asarray(data.returns)
    told = {'median': float(np.median(returns)), 'min': float(returns.min()), 'max': float(returns.max())}
    told = {key: round(value, 2) for key, value in told.items()}
    results['datasets'][name] = {'episodes': len(data), 'steps': int(data.steps), **told}


def scores_of(results: dict[str, Any], name: str) -> list[float]:
    """Return the scores of the seeds of a row that are there."""
    return [entry['score']['mean'] for entry in results.get(name, {}).values()]


def write(results: dict[str, Any]) -> None:
    """Write the page."""
    lines = ['# Learning from recorded episodes', '', '`python benchmarks/scores/offline.py`', '']
    lines += [
        'The score of a seed is the mean return of 20 test episodes with the last policy. Nothing was tuned on',
        '',
    ]
    lines[-2] += ' these seeds. The settings are the defaults of each library. All policies begin in the same 20'
    lines[-2] += " states. IQL's defaults for MuJoCo were found on seed 0 of halfcheetah-medium."
    lines += ['## Datasets', '', *header('dataset', 'what it holds')]
    lines += [row(name, described(name)) for name in results.get('datasets', {})]
    lines += [
        '',
        '## Imitation',
        '',
        *header('row', 'updates', 'seeds', 'median', 'lowest', 'aim', 'short of it', 'seconds'),
    ]
    for name, asked in ROWS.items():
        found = scores_of(results, name)
        if not found or name.endswith(('-replay', '-medium', '-expert')):
            continue
        short = '' if asked.aim is None else sum(score < asked.aim for score in found)
        lines.append(
            row(
                name,
                '' if asked.updates is None else f'{asked.updates:,}',
                len(found),
                f'{statistics.median(found):.4g}',
                f'{min(found):.4g}',
                '' if asked.aim is None else f'{asked.aim:g}',
                short,
                f'{statistics.median(entry["seconds"] for entry in results[name].values()):.0f}',
            )
        )
    lines += ['', '## Offline reinforcement learning, beside d3rlpy', '']
    lines += header('dataset', 'updates', 'algorithm', 'zoo: median (lowest; seeds)', 'd3rlpy: median (lowest; seeds)')
    for name, asked in ROWS.items():
        if asked.library != 'zoo' or not name.endswith(('-replay', '-medium', '-expert')):
            continue
        both = [scores_of(results, name), scores_of(results, f'd3rlpy-{name}')]
        if any(both):
            cells = [f'{statistics.median(x):.4g} ({min(x):.4g}; {len(x)})' if x else '' for x in both]
            told = ', '.join([asked.alg, *(f'`{key}={value}`' for key, value in asked.changes.items())])
            lines.append(row(asked.data, f'{asked.updates:,}', told, *cells))
    known: dict[str, dict[str, str]] = {}
    for name, asked in ROWS.items():
        for entry in results.get(name, {}).values():
            known[asked.library] = entry['versions'] | {'last run': entry['date']}
    lines += ['', '## Versions', '', *(f'* {library}: {listed(found)}' for library, found in known.items())]
    write_page('offline', lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('rows', nargs='*', metavar='ROW')
    parser.add_argument('--library', choices=('zoo', 'd3rlpy'))
    parser.add_argument('--seeds', nargs='+', type=int)
    parser.add_argument('--again', action='store_true', help='repeat runs that are there')
    parser.add_argument('--pages', action='store_true', help='write the page alone')
    parser.add_argument('--work', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        asked = json.loads(args.work)
        print(json.dumps(trained_here(ROWS[asked['name']], asked['seed'])), flush=True)
        return
    results = read_results('offline')
    names = checked(parser, 'row', args.rows, ROWS) or list(ROWS)
    for name in [] if args.pages else names:
        asked = ROWS[name]
        if args.library not in (None, asked.library):
            continue
        for seed in args.seeds or range(asked.seeds):
            if str(seed) in results.get(name, {}) and not args.again:
                continue
            try:
                note_dataset(asked.data, results)
                entry = run(name, seed)
            except RuntimeError as error:
                print(f'{name} seed {seed}: {error}', flush=True)
                continue
            results = read_results('offline') | {'datasets': results.get('datasets', {})}
            results.setdefault(name, {})[str(seed)] = entry
            write_results('offline', results)
            print(f'{name} seed {seed}: {entry["score"]["mean"]:.4g} in {entry["seconds"]:.0f} s', flush=True)
            write(results)
    write(results)


if __name__ == '__main__':
    main()
