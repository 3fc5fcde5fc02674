"""Compiled and ordinary environments teach the same: PPO, DQN, PQN, ES and ARS in classic control, five seeds each.

    python benchmarks/scores/compiled.py                    # every row, some twenty minutes on two cores
    python benchmarks/scores/compiled.py ppo-cartpole …     # some rows
    python benchmarks/scores/compiled.py --pages            # write the page alone

Each seed is trained with the default settings, once with ``vectorized='compiled'`` and once without. Its score is the
mean return of 20 test episodes in the ordinary environment. A seed that is in ``results/compiled.json`` is not trained
again. ``results/compiled.md`` is written from it.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import checked, header, parser_of, read_results, row, stamp, write_page, write_results

#: Algorithm, environment, and what differs from the default settings.
ROWS: dict[str, tuple[str, str, dict[str, Any]]] = {
    'ppo-cartpole': ('PPO', 'CartPole-v1', {}),
    'ppo-pendulum': ('PPO', 'Pendulum-v1', {}),
    'ppo-acrobot': ('PPO', 'Acrobot-v1', {'train_steps': 200_000}),
    'ppo-mountaincar': ('PPO', 'MountainCar-v0', {'train_steps': 300_000}),
    # Equal steps and updates, of few copies and of many.
    'ppo-cartpole-64': ('PPO', 'CartPole-v1', {'nenv': 64, 'horizon': 32, 'train_steps': 2_000_000}),
    'ppo-cartpole-1024': ('PPO', 'CartPole-v1', {'nenv': 1024, 'horizon': 32, 'train_steps': 2_000_000}),
    # In JAX: it needs the extra jax.
    'ppo-breakout-minatar': ('PPO', 'Breakout-MinAtar', {'env_type': 'gymnax', 'train_steps': 2_000_000}),
    'dqn-cartpole': ('DQN', 'CartPole-v1', {}),
    'pqn-cartpole': ('PQN', 'CartPole-v1', {}),
    'es-cartpole': ('ES', 'CartPole-v1', {}),
    'ars-cartpole': ('ARS', 'CartPole-v1', {}),
}
SEEDS = range(200, 205)
FORMS = ('ordinary', 'compiled')


def forms_of(settings: dict[str, Any]) -> tuple[str, ...]:
    """Return how the environment of a row runs: many copies, and environments in JAX, are compiled alone."""
    return ('compiled',) if settings.keys() & {'nenv', 'env_type'} else FORMS


def score(name: str, form: str, seed: int) -> dict[str, float]:
    """Train one seed; return its score and the seconds that training took."""
    import zoo

    alg, env_id, settings = ROWS[name]
    how = {'vectorized': 'compiled'} if form == 'compiled' else {}
    begin = time.perf_counter()
    agent, _ = zoo.train(alg, env_id, seed=seed, run_dir=False, verbose=0, **settings, **how)
    seconds = time.perf_counter() - begin
    env = zoo.build_env(env_id, settings.get('env_type', 'classic_control'), seed=10_000 + seed)
    tested = agent.learn(env, 'test', test_episodes=20)
    return {'score': statistics.fmean(tested.returns), 'seconds': seconds}


def report(results: dict[str, Any]) -> list[str]:
    """Return the result page."""
    lines = [
        '# Scores in compiled environments',
        '',
        '`python benchmarks/scores/compiled.py`: default settings, five seeds that nothing was tuned on, 20 test '
        'episodes each, in the ordinary environment where there is one. Seconds are of whole trainings beside other '
        'programs, with compiling.',
        '',
        *header('training', 'form', 'seeds', 'median', 'least', 'most', 'seconds, median'),
    ]
    for name, (alg, env_id, settings) in ROWS.items():
        steps = f', {settings["train_steps"]:,} steps' if settings else ''
        steps += f', {settings["nenv"]:,} copies' if 'nenv' in settings else ''
        for form in forms_of(settings):
            found = list(results.get(name, {}).get(form, {}).values())
            if not found:
                lines.append(row(f'{alg} `{env_id}`{steps}', form, 0, 'not run', '', '', ''))
                continue
            scores = [each['score'] for each in found]
            numbers = (f'{x:.1f}' for x in (statistics.median(scores), min(scores), max(scores)))
            seconds = f'{statistics.median(each["seconds"] for each in found):.0f}'
            lines.append(row(f'{alg} `{env_id}`{steps}', form, len(found), *numbers, seconds))
    return [*lines, '', results.get('stamp', '')]


def main() -> None:
    """Run the rows that were asked for."""
    parser = parser_of(__doc__)
    parser.add_argument('rows', nargs='*', metavar='ROW', help=', '.join(ROWS))
    parser.add_argument('--pages', action='store_true')
    asked = parser.parse_args()
    results = read_results('compiled')
    for name in () if asked.pages else checked(parser, 'row', asked.rows, ROWS):
        if 'env_type' in ROWS[name][2] and not importlib.util.find_spec('gymnax'):
            print(f'{name} is left out: it needs the extra jax.', flush=True)
            continue
        for seed in SEEDS:
            for form in forms_of(ROWS[name][2]):
                kept = results.setdefault(name, {}).setdefault(form, {})
                if str(seed) not in kept:
                    kept[str(seed)] = score(name, form, seed)
                    print(name, form, seed, kept[str(seed)], flush=True)
                    results['stamp'] = stamp('zoo-rl', 'tensorflow', 'gymnasium')
                    write_results('compiled', results)
    write_page('compiled', report(results))


if __name__ == '__main__':
    main()
