"""Real tasks with the default hyper-parameters, to a published score within a budget of steps: ``pytest -m learning``.

Each is the four lines with nothing changed but ``train_steps``; the score is the mean return of 20 episodes of the
deterministic policy in an environment of another seed. benchmarks/scores/learning.py writes the table of their scores.
"""

from __future__ import annotations

import importlib.util
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import zoo
from zoo import algorithms, build_env, call_default_params

pytestmark = pytest.mark.learning

SEEDS = (0, 1, 2)
TEST_SEED = 10_000


def score(name: str, env_id: str, env_type: str, nenv: int, train_steps: int, seed: int) -> float:
    """Train with the defaults, then test."""
    env = build_env(env_id, env_type, nenv=nenv, seed=seed)
    alg_params, learn_params = call_default_params(env, env_type, name, seed=seed)
    agent = getattr(algorithms, name)(**alg_params)
    trained = agent.learn(env, 'train', run_dir=False, **learn_params | {'train_steps': train_steps})
    # An on-policy algorithm finishes its iteration.
    assert train_steps <= trained.steps < train_steps + learn_params.get('horizon', 1) * nenv
    tested = agent.learn(build_env(env_id, env_type, seed=TEST_SEED), 'test', test_episodes=20, seed=TEST_SEED)
    return statistics.mean(tested.returns)


@pytest.mark.parametrize('seed', SEEDS)
@pytest.mark.parametrize('nenv', [1, 8])
def test_ppo_cartpole(nenv, seed):
    assert score('PPO', 'CartPole-v1', 'classic_control', nenv, 100_000, seed) == 500.0


@pytest.mark.parametrize('seed', SEEDS)
def test_dqn_cartpole(seed):
    assert score('DQN', 'CartPole-v1', 'classic_control', 1, 50_000, seed) >= 475.0


@pytest.mark.parametrize('seed', SEEDS)
@pytest.mark.parametrize('name', ['TD3', 'SAC'])
def test_pendulum(name, seed):
    assert score(name, 'Pendulum-v1', 'classic_control', 1, 20_000, seed) >= -170.0


def imitated(name: str, env_id: str, expert: str, episodes: int, seed: int) -> float:
    """Imitate a trained agent with the defaults, by so many episodes or by its name, then test."""
    env = build_env(env_id, 'classic_control', seed=seed)
    alg_params, learn_params = call_default_params(env, 'classic_control', name, seed=seed)
    given = {'expert': expert}
    if name != 'DAgger':
        given = {'dataset': zoo.record_episodes(zoo.load(expert), env, None, episodes, seed=seed)}
    agent = getattr(algorithms, name)(**alg_params)
    agent.learn(env, 'train', run_dir=False, **learn_params | given)
    tested = agent.learn(build_env(env_id, 'classic_control', seed=TEST_SEED), 'test', test_episodes=20, seed=TEST_SEED)
    return statistics.mean(tested.returns)


@pytest.mark.parametrize('seed', SEEDS)
@pytest.mark.parametrize(('name', 'episodes'), [('BC', 10), ('DAgger', 10), ('GAIL', 5), ('MARWIL', 10)])
def test_imitation_of_cartpole(name, episodes, seed):
    assert imitated(name, 'CartPole-v1', 'PPO/CartPole-v1', episodes, seed) >= 475.0


@pytest.mark.parametrize('seed', SEEDS)
@pytest.mark.parametrize('name', ['BC', 'DAgger'])
def test_imitation_of_pendulum(name, seed):
    assert imitated(name, 'Pendulum-v1', 'TD3/Pendulum-v1', 10, seed) >= -200.0


def test_ppo_lunarlander():
    if importlib.util.find_spec('Box2D') is None:
        pytest.skip('Box2D is not installed')
    assert score('PPO', 'LunarLander-v3', 'box2d', 16, 1_000_000, 0) >= 230.0


def test_sac_halfcheetah():
    if importlib.util.find_spec('mujoco') is None:
        pytest.skip('mujoco is not installed')
    assert score('SAC', 'HalfCheetah-v5', 'mujoco', 1, 300_000, 0) >= 5000.0


@pytest.mark.parametrize('seed', SEEDS)
def test_the_example_of_an_own_environment_reaches_what_it_says(seed, tmp_path):
    example = Path(__file__).parents[2] / 'examples' / 'own_environment.py'
    command = [sys.executable, example, str(seed)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    before, after = (float(x) for x in re.findall(r'([\d.]+) of 20', done.stdout))
    (claimed,) = re.findall(r'from less than one point to more than (\d+) of 20', example.read_text(encoding='utf-8'))
    assert before < 1.0 and after > float(claimed)
