"""What agents learn with the default hyper-parameters: the score of separate test episodes, over seeds.

    python benchmarks/scores/learning.py                     # every row, most of a day
    python benchmarks/scores/learning.py ppo-cartpole        # one row, or several
    python benchmarks/scores/learning.py dqn-cartpole --seeds 0 1 2 3 4

Each run is the four lines with ``call_default_params``; only ``train_steps`` and what its row says differ. A test
follows: 20 episodes or more with the deterministic policy in a fresh environment with another seed. Results are kept
in ``results/learning.json``, one entry for each row and seed, so rows can be run one by one. ``results/learning.md``
is written from it, and ``results/curves`` has a page for each row with its learning curves. A run that was cut short
goes on from its last checkpoint when its row and seed are asked for again; its folder in ``benchmarks/runs`` stays
until it is finished.
"""

from __future__ import annotations

import csv
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import (
    BENCHMARKS,
    RESULTS,
    checked,
    header,
    listed,
    parser_of,
    read_results,
    row,
    today,
    versions,
    write_page,
    write_results,
)

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

CURVES = RESULTS / 'curves'
RUNS = BENCHMARKS / 'runs'


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        alg, env_id, env_type, nenv: what is trained where, and with how many copies.
        steps: environment steps.
        seeds: of the runs.
        aim: the mean score that each seed is to reach.
        env: further arguments of ``build_env``, for training and test.
        vectorized: how the copies run while training.
        minutes: training ends after so many of wall clock, or None.
        test_episodes: with the deterministic policy.
        dtype: of the networks.
        learn: parameters of ``learn`` that are not the default ones.
        score: ``'return'``, or ``'success'``: the part of the test episodes that succeed.
        below: the aim is one to stay below, of what is not meant to learn.
        alg_params: of the algorithm that are not the default ones.
        recurrent: the kind of recurrent layer in the networks, or None.
        reach: also noted is when ten episodes of the training in a row first have this mean return, or None.
    """

    alg: str
    env_id: str
    env_type: str
    nenv: int
    steps: int
    seeds: tuple[int, ...]
    aim: float
    env: dict[str, Any] = field(default_factory=dict)
    vectorized: str | bool = False
    minutes: float | None = None
    test_episodes: int = 20
    dtype: str = 'float32'
    learn: dict[str, Any] = field(default_factory=dict)
    score: str = 'return'
    below: bool = False
    alg_params: dict[str, Any] = field(default_factory=dict)
    recurrent: str | None = None
    reach: float | None = None


#: Short runs whose seeds once differed.
TEN = tuple(range(10))
ROWS = {
    'ppo-cartpole': Row('PPO', 'CartPole-v1', 'classic_control', 8, 100_000, (0, 1, 2), 500.0),
    'dqn-cartpole': Row('DQN', 'CartPole-v1', 'classic_control', 1, 50_000, TEN, 475.0),
    'sac-cartpole': Row('SAC', 'CartPole-v1', 'classic_control', 1, 50_000, TEN, 475.0),
    'ddpg-pendulum': Row('DDPG', 'Pendulum-v1', 'classic_control', 1, 20_000, (0, 1, 2), -170.0),
    'td3-pendulum': Row('TD3', 'Pendulum-v1', 'classic_control', 1, 20_000, (0, 1, 2), -170.0),
    'sac-pendulum': Row('SAC', 'Pendulum-v1', 'classic_control', 1, 20_000, (0, 1, 2), -170.0),
    'tqc-pendulum': Row('TQC', 'Pendulum-v1', 'classic_control', 1, 20_000, (0, 1, 2), -170.0),
    'crossq-pendulum': Row('CrossQ', 'Pendulum-v1', 'classic_control', 1, 20_000, (0, 1, 2), -170.0),
    'ppo-lunarlander': Row('PPO', 'LunarLander-v3', 'box2d', 16, 1_000_000, (0, 1, 2), 230.0),
    'sac-halfcheetah': Row('SAC', 'HalfCheetah-v5', 'mujoco', 1, 300_000, (0,), 6000.0),
    'tqc-halfcheetah': Row('TQC', 'HalfCheetah-v5', 'mujoco', 1, 300_000, (0,), 6921.9),
    'crossq-halfcheetah': Row('CrossQ', 'HalfCheetah-v5', 'mujoco', 1, 300_000, (0,), 6921.9),
    'sac-swingup': Row('SAC', 'cartpole-swingup', 'dm_control', 1, 100_000, (0, 1, 2), 700.0),
    'sac-fetchreach': Row(
        'SAC', 'FetchReach-v4', 'robotics', 1, 20_000, (0, 1, 2), 0.95, test_episodes=50, score='success'
    ),
    'ppo-pong': Row(
        'PPO',
        'PongNoFrameskip-v4',
        'atari',
        8,
        4_000_000,
        (0,),
        17.0,
        env={'frame_size': 42},
        vectorized='envpool',
        minutes=88,
        test_episodes=10,
    ),
}
# The same with products in bfloat16; Pong for as many steps as the other made in its time.
ROWS['sac-halfcheetah-bf16'] = replace(ROWS['sac-halfcheetah'], dtype='mixed_bfloat16')
ROWS['ppo-pong-bf16'] = replace(ROWS['ppo-pong'], dtype='mixed_bfloat16', steps=3_645_440, minutes=None)
# An hour of it: DQN from replay, with targets of three steps, twice the rate and an early end of its random actions, as
# the defaults are for ten million steps; and DPPO with its two learners and two actors, of four copies each.
ROWS['dqn-pong'] = replace(
    ROWS['ppo-pong'],
    alg='DQN',
    nenv=4,
    steps=750_000,
    aim=0.0,
    minutes=60,
    alg_params={'n_step': 3, 'optimizers_list': [{'name': 'Adam', 'learning_rate': 2e-4, 'clip_norm': 10.0}]},
    learn={'explore_steps': 10_000},
)
ROWS['dppo-pong'] = replace(ROWS['ppo-pong'], alg='DPPO', nenv=4, steps=2_200_000, minutes=60, reach=17.0)
# The same without hindsight experience replay, by which SAC does learn this task too, but after twice the steps.
ROWS['sac-fetchreach-without'] = replace(ROWS['sac-fetchreach'], aim=0.5, below=True, learn={'her': None})
# Both after a fifth of the steps, when the one has learned and the other has not.
ROWS |= {f'{name}-early': replace(ROWS[name], steps=4000) for name in ('sac-fetchreach', 'sac-fetchreach-without')}
# DQN with none of its switches, and with each of them alone; the others of its family as they are.
PLAIN = {'double_q': False, 'n_step': 1}
SWITCHES: dict[str, dict[str, Any]] = {
    'plain': {},
    'double': {'double_q': True},
    'dueling': {'dueling': True},
    'prioritized': {'prioritized': True},
    'noisy': {'noisy': True, 'epsilon': 0.0},
    'n-step': {'n_step': 3},
}
for switch, on in SWITCHES.items():
    ROWS[f'dqn-cartpole-{switch}'] = replace(
        ROWS['dqn-cartpole'], alg_params=PLAIN | on, learn={'buffer_size': 10_000 if 'n_step' in on else 100_000}
    )
for variant in ('C51', 'QRDQN', 'Rainbow'):
    ROWS[f'{variant.lower()}-cartpole'] = replace(ROWS['dqn-cartpole'], alg=variant)
# CartPole as positions alone, with a memory and without one.
HIDDEN = Row('PPO', 'CartPole-v1', 'classic_control', 8, 300_000, (0, 1, 2), 400.0, env={'hide_velocity': True})
ROWS['ppo-cartpole-hidden-lstm'] = replace(HIDDEN, recurrent='lstm')
ROWS['ppo-cartpole-hidden'] = replace(HIDDEN, aim=150.0, below=True)
for alg, env_id, steps, aim in (('DQN', 'CartPole-v1', 30_000, 150.0), ('SAC', 'Pendulum-v1', 20_000, -250.0)):
    off_policy = Row(alg, env_id, 'classic_control', 1, steps, (0, 1, 2), aim, env={'hide_velocity': True})
    kind = f'{alg.lower()}-{env_id.partition("-")[0].lower()}-hidden'
    ROWS[f'{kind}-lstm'] = replace(off_policy, recurrent='lstm')
    ROWS[kind] = replace(off_policy, below=True)
ROWS['r2d2-cartpole-hidden'] = replace(ROWS['dqn-cartpole-hidden-lstm'], alg='R2D2', recurrent=None)
ROWS['dqn-lunarlander'] = Row('DQN', 'LunarLander-v3', 'box2d', 1, 100_000, (0, 1, 2), 150.0)
# Evolution strategies perturb deterministic policies.
ROWS['ars-cartpole'] = Row('ARS', 'CartPole-v1', 'classic_control', 1, 50_000, (0, 1, 2), 500.0)
ROWS['es-cartpole'] = replace(ROWS['ars-cartpole'], alg='ES', steps=200_000, aim=475.0)
# The policy gradients.
CARTPOLE = ROWS['ppo-cartpole']
ROWS |= {
    'ppo-penalty-cartpole': replace(CARTPOLE, aim=490.0, alg_params={'method': 'penalty'}),
    'trpo-cartpole': replace(CARTPOLE, alg='TRPO', aim=490.0),
    'a2c-cartpole': replace(CARTPOLE, alg='A2C', steps=300_000, aim=490.0),
    'vpg-cartpole': replace(CARTPOLE, alg='VPG', steps=300_000, aim=450.0),
    'vpg-cartpole-without': replace(CARTPOLE, alg='VPG', steps=300_000, aim=450.0, alg_params={'baseline': False}),
    'ac-cartpole': replace(CARTPOLE, alg='AC', steps=300_000, aim=450.0),
    # Half of the actions are random, whatever the policy; the test is of the policy alone.
    'offpac-cartpole': Row(
        'OffPAC', 'CartPole-v1', 'classic_control', 1, 50_000, (0, 1, 2), 400.0, alg_params={'explore': 0.5}
    ),
    # With processes of their own, as the algorithm's defaults say: DPPO two learners and two actors.
    'dppo-cartpole': replace(CARTPOLE, alg='DPPO', nenv=1, aim=475.0),
    'dppo-cartpole-twice': replace(CARTPOLE, alg='DPPO', nenv=1, aim=475.0, learn={'horizon': 256, 'batch_size': 256}),
    # Two actors that play on while the learner learns.
    'impala-cartpole': replace(CARTPOLE, alg='IMPALA', nenv=1, steps=300_000, aim=475.0),
    'a3c-cartpole': replace(CARTPOLE, alg='A3C', nenv=1, steps=300_000, aim=475.0),
    'ppo-pendulum': Row('PPO', 'Pendulum-v1', 'classic_control', 4, 100_000, (0, 1, 2), -250.0),
    'trpo-lunarlander': Row('TRPO', 'LunarLander-v3', 'box2d', 2, 200_000, (0, 1, 2), 130.0),
    'trpo-lunarlander-continuous': Row('TRPO', 'LunarLanderContinuous-v3', 'box2d', 2, 200_000, (0, 1, 2), 130.0),
    # The aims are published scores minus one standard deviation; copies and steps are from the same source.
    'a2c-acrobot': Row('A2C', 'Acrobot-v1', 'classic_control', 16, 500_000, (0, 1, 2), -100.6),
    'ppo-acrobot': Row('PPO', 'Acrobot-v1', 'classic_control', 16, 1_000_000, (0, 1, 2), -91.7),
    'a2c-mountaincar': Row('A2C', 'MountainCar-v0', 'classic_control', 16, 1_000_000, (0, 1, 2), -135.4),
    'ppo-mountaincar': Row('PPO', 'MountainCar-v0', 'classic_control', 16, 1_000_000, (0, 1, 2), -129.9),
    'a2c-mountaincar-continuous': Row(
        'A2C', 'MountainCarContinuous-v0', 'classic_control', 4, 100_000, (0, 1, 2), 90.9
    ),
    'ppo-mountaincar-continuous': Row('PPO', 'MountainCarContinuous-v0', 'classic_control', 1, 20_000, (0, 1, 2), 85.7),
    'ppo-halfcheetah': Row('PPO', 'HalfCheetah-v5', 'mujoco', 1, 1_000_000, (0, 1, 2), 3500.0),
    'ppo-bipedalwalker': Row('PPO', 'BipedalWalker-v3', 'box2d', 32, 3_000_000, (0,), 250.0),
}
# Two actors, a buffer and a learner, as by default; of Ape-X the learner updates as fast as it can.
ROWS |= {
    'apexdqn-cartpole': Row('ApexDQN', 'CartPole-v1', 'classic_control', 1, 200_000, (0, 1, 2), 475.0),
    'r2d2-cartpole': Row('R2D2', 'CartPole-v1', 'classic_control', 1, 100_000, (0, 1, 2), 475.0),
    'apexddpg-pendulum': Row('ApexDDPG', 'Pendulum-v1', 'classic_control', 1, 30_000, (0, 1, 2), -200.0),
}
TEST_SEED = 10_000


def run(name: str, seed: int) -> dict[str, Any]:
    """Train and test one row with one seed; return its entry in the results."""
    import zoo
    from zoo import algorithms, build_env, call_default_params

    row = ROWS[name]
    env = build_env(row.env_id, row.env_type, row.vectorized, seed=seed, nenv=row.nenv, **row.env)
    alg_params, learn_params = call_default_params(
        env, row.env_type, row.alg, seed=seed, dtype=row.dtype, recurrent=row.recurrent
    )
    folder = RUNS / f'{name}-{seed}'
    resume = any((folder / 'checkpoints').glob('*'))
    if resume:
        agent = zoo.load(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        agent = getattr(algorithms, row.alg)(**alg_params | row.alg_params)
    before = seconds(folder, agent.steps)
    end = time.perf_counter() + 60 * (row.minutes or 1e9) - before
    learn_params |= {'train_steps': row.steps} | row.learn
    if 'buffer_size' in learn_params and not learn_params.get('roles'):
        learn_params['checkpoint_buffer'] = True
    trained = agent.learn(
        env,
        'train',
        run_dir=folder,
        resume=resume,
        callbacks=[lambda training: time.perf_counter() < end],
        **learn_params,
    )
    test_env = build_env(row.env_id, row.env_type, seed=TEST_SEED, **row.env)
    tested = agent.learn(test_env, 'test', test_episodes=row.test_episodes, seed=TEST_SEED)
    scores = tested.returns if row.score == 'return' else [float(bool(success)) for success in tested.successes]
    return {
        'mean': statistics.mean(scores),
        'std': statistics.pstdev(scores),
        'min': min(scores),
        'train_steps': agent.steps,
        'minutes': (before + trained.wall_time) / 60,
        'reached': None if row.reach is None else reached(folder, row.reach),
        'date': today(),
        'versions': {'zoo': zoo.__version__} | versions('tensorflow', 'keras', 'gymnasium', 'numpy'),
    }


def seconds(folder: Path, steps: int) -> float:
    """Return the seconds that the run in a folder took until its agent had taken so many steps."""
    monitor = folder / 'monitor.csv'
    rows = csv.DictReader(monitor.read_text(encoding='utf-8').splitlines()[1:]) if monitor.exists() else []
    return max((float(row['t']) for row in rows if int(row['step']) <= steps), default=0.0)


def reached(folder: Path, mean: float) -> float | None:
    """Return the minutes until ten episodes in a row had this mean return, or None if they never had."""
    rows = csv.DictReader((folder / 'monitor.csv').read_text(encoding='utf-8').splitlines()[1:])
    times, returns = zip(*((float(row['t']), float(row['r'])) for row in rows), strict=True)
    found = (end for end in range(10, len(returns) + 1) if statistics.mean(returns[end - 10 : end]) >= mean)
    return next((times[end - 1] / 60 for end in found), None)


def report(results: dict[str, Any]) -> list[str]:
    """Return the lines of the result page: one table for each environment, one line for each row."""
    lines = [
        '# Learning',
        '',
        '`python benchmarks/scores/learning.py` with the default hyper-parameters. Two cores, no GPU.',
        '',
        'A score is the mean return of 20 separate test episodes with the deterministic policy. Atari has 10 whole '
        'games.',
        'Environments with goals have 50 episodes, and the score is the part of them that succeeds. "Reached" counts '
        'the seeds',
        'that reached the aim. "Worst" and "median" are over the seeds. A row name leads to its seeds and their '
        'learning curves.',
        'How many of twenty fresh seeds reach a score is in [stability.md](stability.md).',
    ]
    found = {name: asked for name, asked in ROWS.items() if results.get(name)}
    for env_id in dict.fromkeys(asked.env_id for asked in found.values()):
        lines += ['', f'## `{env_id}`', '']
        lines += header('row', 'settings', 'copies', 'steps', 'aim', 'reached', 'worst', 'median', 'minutes a seed')
        for name, asked in found.items():
            if asked.env_id != env_id:
                continue
            entries = results[name].values()
            means = [entry['mean'] for entry in entries]
            digits = digits_of(asked)
            lines.append(
                row(
                    f'[{name}](curves/{name}.md)',
                    f'{asked.alg}{options_of(asked)}',
                    asked.nenv,
                    f'{min(entry["train_steps"] for entry in entries):,}',
                    f'{"<" if asked.below else "≥"} {asked.aim:g}',
                    f'{sum((mean < asked.aim) == asked.below for mean in means)} of {len(means)}',
                    f'**{(max if asked.below else min)(means):.{digits}f}**',
                    f'{statistics.median(means):.{digits}f}',
                    f'{statistics.median(entry["minutes"] for entry in entries):.1f}',
                )
            )
    if 'dppo-pong' in results:
        lines += pong(results['dppo-pong'].values())
    return [*lines, '', *dated(entry for entries in results.values() for entry in entries.values())]


def report_row(name: str, found: dict[str, Any]) -> list[str]:
    """Return the lines of a row's own page: its seeds, and a learning curve of each."""
    asked, digits = ROWS[name], digits_of(ROWS[name])
    aim = f'{"below" if asked.below else "at least"} {asked.aim:g}'
    lines = [
        f'# {name}',
        '',
        f'{asked.alg}{options_of(asked)} in `{asked.env_id}`, copies: {asked.nenv}. Aim: {aim}. '
        f'`python benchmarks/scores/learning.py {name}`. [All rows](../learning.md).',
        '',
        *header('seed', 'score', 'deviation of episodes', 'worst episode', 'steps', 'minutes'),
    ]
    seeds = sorted(found, key=int)
    for seed in seeds:
        entry = found[seed]
        values = (f'{entry[key]:.{digits}f}' for key in ('mean', 'std', 'min'))
        lines.append(row(seed, *values, f'{entry["train_steps"]:,}', f'{entry["minutes"]:.1f}'))
    for seed in seeds:
        lines += ['', f'![Learning curve of seed {seed}]({name}-{seed}.png)']
    return [*lines, '', *dated(found.values())]


def digits_of(asked: Row) -> int:
    """Return how many decimals a row's scores have."""
    return 1 if asked.score == 'return' else 2


def options_of(asked: Row) -> str:
    """Return what of a row is not a default, as text that follows the algorithm's name."""
    changed = asked.env | asked.alg_params | asked.learn | ({'recurrent': asked.recurrent} if asked.recurrent else {})
    options = ''.join(f', `{key}={value}`' for key, value in changed.items())
    return options + ('' if asked.dtype == 'float32' else f', `{asked.dtype}`')


def dated(entries: Iterable[dict[str, Any]]) -> list[str]:
    """Return when runs were made, and with which versions."""
    return sorted({f'{entry["date"]}: {listed(entry["versions"])}' for entry in entries})


def write_pages() -> None:
    """Write the page of all rows and the page of each row."""
    results = read_results('learning')
    write_page('learning', report(results))
    for name in ROWS.keys() & results.keys():
        write_page(f'curves/{name}', report_row(name, results[name]))


#: Until Pong at 42x42 scores 17 and more, by IMPALA: who says so, with what, and seconds.
PONG = (
    ('EasyRL', '4 actors, 1 buffer, 1 learner; machines not named', '1,940'),
    ('EasyRL', '8 actors, 1 buffer, 1 learner', '525'),
    ('EasyRL', '16 actors, 2 buffers, 2 learners', '400'),
    ('EasyRL', '32 actors, 4 buffers, 4 learners', '160'),
    ('RLlib', '128 workers, two V100', 'about 180'),
)


def pong(found: Iterable[dict[str, Any]]) -> list[str]:
    """Return the lines about how long zoo's DPPO and others took to learn Pong."""
    lines = [
        '',
        '## Pong, by wall clock',
        '',
        'Seconds until 17: of `dppo-pong` the mean of ten episodes of the training in a row; of the others, as they '
        'say, by IMPALA (README of alibaba/EasyReinforcementLearning, commit 2c570a5; algorithms page of RLlib 0.7).',
        '',
        *header('', 'by what', 'seconds'),
    ]
    for entry in found:
        took = f'{60 * entry["reached"]:,.0f}' if entry['reached'] else f'not in {60 * entry["minutes"]:,.0f}'
        lines.append(row('zoo, DPPO', '2 actors, 2 learners; two cores, no GPU', f'**{took}**'))
    return lines + [row(*cells) for cells in PONG]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('rows', nargs='*', metavar='row', help=f'of {", ".join(ROWS)}; all when none is named')
    parser.add_argument('--seeds', type=int, nargs='+', help="instead of the row's own")
    parser.add_argument('--pages', action='store_true', help='train nothing: write the pages from the results')
    args = parser.parse_args()
    if args.pages:
        write_pages()
        return
    for name in checked(parser, 'row', args.rows, ROWS):
        for seed in args.seeds or ROWS[name].seeds:
            begin = time.perf_counter()
            entry = run(name, seed)
            print(
                f'{name} seed {seed}: {entry["mean"]:.4g} in {(time.perf_counter() - begin) / 60:.1f} min', flush=True
            )
            CURVES.mkdir(parents=True, exist_ok=True)
            folder = RUNS / f'{name}-{seed}'
            shutil.copy(folder / 'curve.png', CURVES / f'{name}-{seed}.png')
            shutil.rmtree(folder)
            # Read again before writing: another process may have added its rows meanwhile.
            results = read_results('learning')
            results.setdefault(name, {})[str(seed)] = entry
            write_results('learning', results)
            write_pages()


if __name__ == '__main__':
    main()
