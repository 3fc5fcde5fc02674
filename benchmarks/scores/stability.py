"""How many of twenty seeds reach the score, with each algorithm's defaults, beside Stable-Baselines3, contrib and SBX.

    python benchmarks/scores/stability.py                        # every row whose seeds are not there yet
    python benchmarks/scores/stability.py dqn-cartpole           # one row
    python benchmarks/scores/stability.py --library sb3          # the rows of one library: zoo, sb3, contrib, sbx
    python benchmarks/scores/stability.py --jobs 2 --seeds 0 1   # two runs at a time, on other seeds

Nothing was tuned on the seeds of this page. A row whose defaults changed after its runs begins again with new seeds, in
``FRESH``. A run is one process: it trains, tests ten times on its way, and then tests
the last policy in 20 episodes of its own. The mean return of that last test is the score. Each run is kept in
``results/stability.json``, and ``results/stability.md`` is written from it. A run that is there is not repeated;
``--again`` repeats it.

The peers have RL Baselines3 Zoo's settings and as many steps. They are in the virtual environment of
``benchmarks/speed/throughput.py``, ``benchmarks/.peers``. ``--busy`` runs the rows of algorithms with processes of
their own while two other programs keep both cores busy, because their actors may then be late.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import (
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

FIRST_SEED = 500
#: The first seed of rows whose defaults changed because of what the seeds from ``FIRST_SEED`` on showed.
FRESH = dict.fromkeys(
    (
        'a2c-cartpole',
        'dqn-mountaincar',
        'impala-cartpole',
        'offpac-cartpole',
        'ppo-cartpole-method=penalty',
        'pqn-cartpole',
        'qrdqn-cartpole',
        'qrdqn-mountaincar',
        'r2d2-cartpole',
        'vpg-cartpole',
    ),
    600,
)
ONE_THREAD = {'OMP_NUM_THREADS': '1', 'XLA_FLAGS': '--xla_cpu_multi_thread_eigen=false'}
TEST_SEED = 10_000
TEST_EPISODES = 20
#: Tests on the way, after equal parts of the training.
PARTS = 10


@dataclass(frozen=True)
class Row:
    """One algorithm with its defaults in one environment.

    Attributes:
        library: ``'zoo'``, or a peer's name in ``PEER``.
        steps: environment steps, summed over copies.
        aim: the score that a seed has to reach.
        changes: parameters that are not the defaults; of a peer, what RL Baselines3 Zoo has.
        seeds: how many.
        busy: whether two other programs keep the cores busy.
    """

    alg: str
    env_id: str
    steps: int
    aim: float
    library: str = 'zoo'
    changes: dict[str, Any] = field(default_factory=dict)
    seeds: int = 20
    busy: bool = False


AIMS = {
    'CartPole-v1': 475.0,
    'Pendulum-v1': -200.0,
    'Acrobot-v1': -100.0,
    'MountainCar-v0': -130.0,
    'MountainCarContinuous-v0': 88.0,
    'LunarLander-v3': 200.0,
}


def rows_of(env_id: str, steps: int, *names: str, seeds: int = 20) -> dict[str, Row]:
    """Return rows with equal steps: an algorithm's name, or 'PPO clip_range_value=0.2' with a switch."""
    found = {}
    for name in names:
        alg, *switches = name.split()
        own = {key: json.loads(value) for key, value in (switch.split('=') for switch in switches)}
        label = '-'.join([alg.lower(), env_id.split('-')[0].lower(), *switches]).replace('"', '')
        found[label] = Row(alg, env_id, steps, AIMS[env_id], changes=own, seeds=seeds)
    return found


#: zoo's rows: every algorithm and its switches.
ROWS = {
    **rows_of('CartPole-v1', 50_000, 'DQN', 'DQN double_q=false', 'DQN dueling=true', 'DQN prioritized=true'),
    **rows_of('CartPole-v1', 50_000, 'DQN n_step=1', 'DQN noisy=true', 'C51', 'QRDQN', 'Rainbow', 'SAC'),
    **rows_of('CartPole-v1', 100_000, 'PPO', 'PPO method="penalty"', 'TRPO', 'DPPO', 'R2D2', 'OffPAC'),
    **rows_of('CartPole-v1', 300_000, 'A2C', 'AC', 'VPG', 'A3C', 'IMPALA'),
    **rows_of('CartPole-v1', 200_000, 'ES', 'ApexDQN', 'PQN'),
    **rows_of('CartPole-v1', 50_000, 'ARS'),
    **rows_of('Pendulum-v1', 20_000, 'DDPG', 'TD3', 'SAC', 'TQC', 'CrossQ'),
    **rows_of('Pendulum-v1', 100_000, 'PPO', 'TRPO'),
    **rows_of('Pendulum-v1', 30_000, 'ApexDDPG'),
    **rows_of('Acrobot-v1', 100_000, 'DQN', 'QRDQN', 'TRPO', seeds=5),
    **rows_of('Acrobot-v1', 500_000, 'A2C', 'PPO', seeds=5),
    **rows_of('MountainCar-v0', 120_000, 'DQN', 'QRDQN', seeds=5),
    **rows_of('MountainCar-v0', 1_000_000, 'A2C', 'PPO', seeds=5),
    **rows_of('MountainCarContinuous-v0', 20_000, 'PPO'),
    **rows_of('LunarLander-v3', 100_000, 'DQN', 'QRDQN', seeds=5),
    **rows_of('LunarLander-v3', 200_000, 'TRPO', seeds=5),
    **rows_of('LunarLander-v3', 1_000_000, 'PPO', seeds=5),
}
#: Algorithms with processes of their own, which may be late.
ASYNCHRONOUS = ('A3C', 'IMPALA', 'ApexDQN', 'ApexDDPG', 'R2D2')
ROWS |= {f'{name}-busy': replace(row, busy=True) for name, row in ROWS.items() if row.alg in ASYNCHRONOUS}

_DQN = {'learning_rate': 2.3e-3, 'batch_size': 64, 'buffer_size': 100_000, 'learning_starts': 1000, 'gamma': 0.99}
_DQN |= {'target_update_interval': 10, 'train_freq': 256, 'gradient_steps': 128, 'exploration_fraction': 0.16}
_DQN |= {'exploration_final_eps': 0.04, 'net_arch': [256, 256]}
_PPO = {'n_envs': 8, 'n_steps': 32, 'batch_size': 256, 'gae_lambda': 0.8, 'gamma': 0.98, 'n_epochs': 20}
_PPO |= {'ent_coef': 0.0, 'learning_rate': 'lin_1e-3', 'clip_range': 'lin_0.2'}
_TD3 = {'gamma': 0.98, 'buffer_size': 200_000, 'learning_starts': 10_000, 'noise_std': 0.1, 'train_freq': 1}
_TD3 |= {'gradient_steps': 1, 'learning_rate': 1e-3, 'net_arch': [400, 300]}
_PPO_PENDULUM = {'n_envs': 4, 'n_steps': 1024, 'gae_lambda': 0.95, 'gamma': 0.9, 'n_epochs': 10, 'ent_coef': 0.0}
_PPO_PENDULUM |= {'learning_rate': 1e-3, 'clip_range': 0.2, 'use_sde': True, 'sde_sample_freq': 4}
_TRPO = {'n_envs': 2, 'n_steps': 512, 'batch_size': 512, 'cg_damping': 1e-3, 'gae_lambda': 0.98, 'gamma': 0.99}
_TRPO |= {'learning_rate': 1e-3, 'n_critic_updates': 20}
_TRPO_PENDULUM = {'n_envs': 2, 'n_steps': 1024, 'gamma': 0.9, 'n_critic_updates': 15, 'use_sde': True}
_LANDER = {'learning_rate': 6.3e-4, 'batch_size': 128, 'buffer_size': 50_000, 'learning_starts': 0, 'gamma': 0.99}
_LANDER |= {'target_update_interval': 250, 'train_freq': 4, 'gradient_steps': -1, 'exploration_fraction': 0.12}
_LANDER |= {'exploration_final_eps': 0.1, 'net_arch': [256, 256]}
_CAR = {'learning_rate': 4e-3, 'batch_size': 128, 'buffer_size': 10_000, 'learning_starts': 1000, 'gamma': 0.98}
_CAR |= {'target_update_interval': 600, 'train_freq': 16, 'gradient_steps': 8, 'exploration_fraction': 0.2}
_CAR |= {'exploration_final_eps': 0.07, 'net_arch': [256, 256]}
_SCALED = {'normalize': True, 'n_envs': 16, 'ent_coef': 0.0}

#: What RL Baselines3 Zoo has (commit 22e3ff2), by library, environment and algorithm. CrossQ has only its authors'.
PEERS: dict[str, dict[str, dict[str, dict[str, Any]]]] = {
    'sb3': {
        'CartPole-v1': {'PPO': _PPO, 'A2C': {'n_envs': 8, 'ent_coef': 0.0}, 'DQN': _DQN},
        'Pendulum-v1': {'PPO': _PPO_PENDULUM, 'SAC': {'learning_rate': 1e-3}, 'TD3': _TD3, 'DDPG': _TD3},
        'Acrobot-v1': {
            'PPO': _SCALED | {'n_steps': 256, 'gae_lambda': 0.94, 'gamma': 0.99, 'n_epochs': 4},
            'A2C': _SCALED,
            'DQN': _LANDER,
        },
        'MountainCar-v0': {
            'PPO': _SCALED | {'n_steps': 16, 'gae_lambda': 0.98, 'gamma': 0.99, 'n_epochs': 4},
            'A2C': _SCALED,
            'DQN': _CAR,
        },
        'LunarLander-v3': {
            'PPO': {'n_envs': 16, 'n_steps': 1024, 'batch_size': 64, 'gae_lambda': 0.98, 'gamma': 0.999, 'n_epochs': 4}
            | {'ent_coef': 0.01},
            'DQN': _LANDER,
        },
    },
    'contrib': {
        'CartPole-v1': {'QRDQN': _DQN | {'n_quantiles': 10}, 'TRPO': _TRPO, 'ARS': {'n_delta': 2}},
        'Pendulum-v1': {
            'TQC': {'learning_rate': 1e-3},
            'TRPO': _TRPO_PENDULUM | {'sde_sample_freq': 4},
            'CrossQ': {},
        },
        'Acrobot-v1': {
            'QRDQN': _LANDER | {'n_quantiles': 25},
            'TRPO': {'normalize': True, 'n_envs': 2, 'n_steps': 1024},
        },
        'MountainCar-v0': {'QRDQN': _CAR | {'n_quantiles': 25}},
        'LunarLander-v3': {
            'QRDQN': {'learning_rate': 'lin_1.5e-3', 'batch_size': 128, 'buffer_size': 100_000, 'gamma': 0.995}
            | {'learning_starts': 10_000, 'target_update_interval': 1, 'train_freq': 256, 'gradient_steps': -1}
            | {'exploration_fraction': 0.24, 'exploration_final_eps': 0.18, 'net_arch': [256, 256], 'n_quantiles': 170},
            'TRPO': _TRPO | {'cg_damping': 0.01, 'n_critic_updates': 15, 'batch_size': 128},
        },
    },
    'sbx': {
        'CartPole-v1': {'PPO': _PPO, 'DQN': _DQN},
        'Pendulum-v1': {
            'SAC': {'learning_rate': 1e-3},
            'TD3': _TD3,
            'DDPG': _TD3,
            'TQC': {'learning_rate': 1e-3},
            'CrossQ': {},
        },
    },
}
for _library, _environments in PEERS.items():
    for _env_id, _algs in _environments.items():
        for _alg, _changes in _algs.items():
            _name = f'{_alg.lower()}-{_env_id.split("-")[0].lower()}'
            ROWS[f'{_library}-{_name}'] = replace(ROWS[_name], library=_library, changes=_changes)


def seeds_of(name: str) -> range:
    """Return the seeds of a row."""
    first = FRESH.get(name.removesuffix('-busy'), FIRST_SEED)
    return range(first, first + ROWS[name].seeds)


# One run


def trained_here(asked: Row, seed: int) -> dict[str, Any]:
    """Train and test one seed of one of zoo's rows; return its entry in the results."""
    import zoo

    tests: list[float] = []

    def score(agent: Any, episodes: int, test_seed: int) -> list[float]:
        env = zoo.build_env(asked.env_id)
        returns: list[float] = agent.learn(env, 'test', test_episodes=episodes, seed=test_seed).returns
        env.close()
        return returns

    def note(training: Any) -> None:
        tests.append(statistics.mean(score(training.agent, 10, TEST_SEED + 1 + len(tests))))

    note.every = asked.steps // PARTS  # type: ignore[attr-defined]
    options = {'run_dir': False, 'verbose': 0, 'evaluate': False}
    agent, trained = zoo.train(
        asked.alg, asked.env_id, seed=seed, train_steps=asked.steps, callbacks=[note], **options, **asked.changes
    )
    found = {'returns': score(agent, TEST_EPISODES, TEST_SEED), 'tests': tests, 'seconds': trained.wall_time}
    return found | {'versions': {'zoo': zoo.__version__} | versions('tensorflow', 'gymnasium', 'numpy')}


@contextlib.contextmanager
def both_cores_busy() -> Iterator[None]:
    """Keep two cores busy with other programs."""
    others = [subprocess.Popen([sys.executable, '-c', 'while True: sum(range(1000))']) for _ in range(2)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def run(name: str, seed: int) -> dict[str, Any]:
    """Run one seed of a row in a process of its own; return its entry in the results."""
    asked = ROWS[name]
    python = sys.executable
    if asked.library != 'zoo':
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'speed'))
        from throughput import PEERS as PACKAGES

        python = peers_python('.peers', PACKAGES)
    with both_cores_busy() if asked.busy else contextlib.nullcontext():
        begin = time.perf_counter()
        script = Path(__file__).with_name('stability_peers.py') if asked.library != 'zoo' else Path(__file__)
        given = json.dumps({'name': name, 'seed': seed})
        # Threads of a peer would fight over the cores with the next run.
        alone = {} if asked.library == 'zoo' else ONE_THREAD
        found: dict[str, Any] = answer_of([python, str(script), '--run', given], environment(**alone))
    found['minutes'] = round((time.perf_counter() - begin) / 60, 2)
    returns = found.pop('returns')
    found['tests'] = [round(value, 1) for value in found['tests']]
    found |= {'mean': round(statistics.mean(returns), 2), 'min': round(min(returns), 2), 'date': today()}
    return found


# The page


def interval(reached: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    z = 1.96
    middle = (reached + z * z / 2) / (of + z * z)
    half = z / (of + z * z) * math.sqrt(reached * (of - reached) / of + z * z / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def report(results: dict[str, Any]) -> list[str]:
    """Return the lines of the result page."""
    lines = [
        '# Stability of the defaults',
        '',
        f'`python benchmarks/scores/stability.py`. Seeds from {FIRST_SEED} on. Nothing was tuned on them. Where these '
        'seeds led to',
        f'other defaults, the row has the seeds from {max(FRESH.values())} on.',
        '',
        f'A score is the mean return of {TEST_EPISODES} test episodes with the last policy. "Reached" counts the seeds '
        'whose score is',
        'at least the aim, with the 95 % interval of that share (Wilson). "Fell" counts the seeds that missed the aim '
        'although a',
        'test on the way had reached it. Peers have the settings of RL Baselines3 Zoo. With "busy", two other programs '
        'keep both',
        'cores busy.',
        '',
    ]
    for env_id, aim in AIMS.items():
        names = [name for name, asked in ROWS.items() if asked.env_id == env_id and results.get(name)]
        if not names:
            continue
        lines += [f'## `{env_id}`, aim {aim:g}', '']
        lines += header(
            'row', 'library', 'steps', 'reached', 'interval', 'min', 'median', 'fell', 'seeds below the aim', 'minutes'
        )
        for name in sorted(names, key=lambda name: (ROWS[name].alg, name.removeprefix(f'{ROWS[name].library}-'))):
            asked, found = ROWS[name], results[name]
            scores = {int(seed): entry['mean'] for seed, entry in found.items()}
            below = {seed: score for seed, score in sorted(scores.items()) if score < aim}
            fell = sum(max(found[str(seed)]['tests'], default=-math.inf) >= aim for seed in below)
            reached = len(scores) - len(below)
            low, high = interval(reached, len(scores))
            lines.append(
                row(
                    name,
                    asked.library,
                    f'{asked.steps:,}',
                    f'**{reached} of {len(scores)}**',
                    f'{low:.2f}–{high:.2f}',
                    f'{min(scores.values()):.0f}',
                    f'{statistics.median(scores.values()):.0f}',
                    fell,
                    ', '.join(f'{seed}: {score:.0f}' for seed, score in below.items()) or '–',
                    f'{statistics.median(entry["minutes"] for entry in found.values()):.1f}',
                )
            )
        lines.append('')
    entries = (entry for found in results.values() for entry in found.values())
    return [*lines, *sorted({f'{entry["date"]}: {listed(entry["versions"])}' for entry in entries})]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('rows', nargs='*', metavar='row', help='all when none is named')
    parser.add_argument('--seeds', type=int, nargs='+', help="instead of the row's own")
    parser.add_argument('--library', choices=['zoo', *PEERS], help='only the rows of this library')
    parser.add_argument('--busy', action='store_true', help='only the rows whose cores are kept busy')
    parser.add_argument('--jobs', type=int, default=1, help='runs at a time; rows with processes want one')
    parser.add_argument('--again', action='store_true', help='repeat the runs that are there')
    parser.add_argument('--pages', action='store_true', help='write the page from the kept results and run nothing')
    parser.add_argument('--run', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run is not None:
        given = json.loads(args.run)
        print(json.dumps(trained_here(ROWS[given['name']], given['seed'])), flush=True)
        return
    if args.pages:
        write_page('stability', report(read_results('stability')))
        return
    names = checked(parser, 'row', args.rows, ROWS)
    if not args.rows:
        names = [name for name in names if ROWS[name].busy == args.busy]
        names = [name for name in names if args.library in (None, ROWS[name].library)]
    there = {} if args.again else read_results('stability')
    todo = [
        (name, seed) for name in names for seed in args.seeds or seeds_of(name) if str(seed) not in there.get(name, {})
    ]

    def one(name: str, seed: int) -> tuple[str, int, dict[str, Any] | Exception]:
        try:
            return name, seed, run(name, seed)
        except RuntimeError as error:
            return name, seed, error

    with ThreadPoolExecutor(args.jobs) as pool:
        for done in [pool.submit(one, name, seed) for name, seed in todo]:
            name, seed, entry = done.result()
            if isinstance(entry, Exception):
                print(f'{name} seed {seed} failed: {entry}', flush=True)
                continue
            told = f'{entry["mean"]:.1f} in {entry["minutes"]:.1f} min; on the way {entry["tests"]}'
            print(f'{name} seed {seed}: {told}', flush=True)
            results = read_results('stability')  # another process may have added its rows meanwhile
            results.setdefault(name, {})[str(seed)] = entry
            write_results('stability', results)
            write_page('stability', report(results))


if __name__ == '__main__':
    main()
