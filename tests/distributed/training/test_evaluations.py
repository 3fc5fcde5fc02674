"""Evolution strategies over ranks give the parameters of one process, also when actors die."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from launchers import ENGINES, run_on
from traced import traced

from zoo import algorithms, build_env
from zoo.distributed.training.plan import Plan
from zoo.distributed.training.planning import plan_for


class Images(gymnasium.Env):
    """Images of noise, and a reward for action 2."""

    observation_space, action_space = Box(0, 255, (8, 8, 1), np.uint8), Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        return self._observe(), float(action == 2), self.t == 5, False, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.integers(0, 255, (8, 8, 1), dtype=np.uint8)


def agent_for(name: str, env: Any, **params: Any) -> Any:
    prefix = 'single_' if hasattr(env, 'num_envs') else ''
    spaces = [getattr(env, prefix + kind) for kind in ('observation_space', 'action_space')]
    given = {'net_list': [{'hidden': [8], 'features': 4, 'seed': 0}], 'num_directions': 6}
    return getattr(algorithms, name)(*spaces, **given | params)


def learn(agent: Any, env: Any, **params: Any) -> Any:
    given = {'train_steps': 1000, 'episodes_per_evaluation': 2, 'seed': 1, 'run_dir': False, 'verbose': 0}
    return agent.learn(env, **given | params)


def assert_same_state(found: Any, expected: Any) -> None:
    for key, array in expected.state().items():
        np.testing.assert_array_equal(found.state()[key], array, err_msg=key)


@pytest.mark.full
@pytest.mark.parametrize('name', ['ES', 'ARS'])
def test_ranks_are_equal_to_one_process(name: str, tmp_path: Path):
    """Parameters, statistics and generators are equal to the bit, episodes come in order, actors have no TensorFlow."""
    env = build_env('CartPole-v1')
    alone = agent_for(name, env, normalize_obs=True)
    expected = learn(alone, env)
    env = build_env(traced('CartPole-v1', tmp_path))
    agent = agent_for(name, env, normalize_obs=True)
    result = learn(agent, env, roles={'learners': 1, 'actors': 2})
    assert {path.read_text() for path in tmp_path.glob('*.stepped')} == {'False 1'}
    assert_same_state(agent, alone)
    assert result.returns == expected.returns and result.steps == expected.steps >= 1000
    assert result.episode_steps == expected.episode_steps
    assert result.losses == expected.losses


@pytest.mark.full
def test_copies_are_reproducible_though_not_equal_to_another_number_of_actors(tmp_path: Path):
    agents = []
    for run_dir in (tmp_path, False):
        env = build_env('CartPole-v1', nenv=2)
        agents.append(agent_for('ARS', env))
        learn(agents[-1], env, roles={'actors': 2}, run_dir=run_dir, log_every=500)
    assert_same_state(*agents)
    rows = list(csv.DictReader((tmp_path / 'progress.csv').open()))
    for name in ('learner_waits', 'actors_wait'):
        assert all(0.0 < float(row[f'roles/{name}']) <= 1.0 for row in rows)
    assert all(float(row['roles/actor_steps_per_second']) > 0.0 for row in rows)


@pytest.mark.full
def test_images():
    """The network is not a chain of dense layers: actors have TensorFlow and perturb the parameters there."""
    env = build_env(Images)
    alone, agent = (agent_for('ES', env, num_directions=2) for _ in range(2))
    assert agent.behavior.light().forward is None
    few = {'train_steps': 50, 'episodes_per_evaluation': 1}
    learn(alone, env, **few)
    learn(agent, env, roles={'actors': 1}, **few)
    for key, array in alone.state().items():
        np.testing.assert_allclose(agent.state()[key], array, atol=1e-5, err_msg=key)


@pytest.mark.full
def test_an_actor_that_is_killed_is_replaced_and_changes_nothing(tmp_path: Path):
    env = build_env('CartPole-v1')
    alone = agent_for('ARS', env)
    expected = learn(alone, env, train_steps=4000)
    env = build_env(traced('CartPole-v1', tmp_path, die_at=300))
    agent = agent_for('ARS', env)
    result = learn(agent, env, train_steps=4000, roles={'actors': 2})
    assert (tmp_path / 'died').exists()
    assert len(list(tmp_path.glob('*.stepped'))) >= 2, 'another process has done its part'
    assert result.returns == expected.returns
    assert_same_state(agent, alone)


@pytest.mark.parametrize(
    ('roles', 'message'),
    [
        ({'learners': 2, 'actors': 2}, r'the update of ES is a weighted sum, .* give learners=1 and more actors\.$'),
        ({'actors': 2, 'servers': 1}, r'each actor of ES acts with parameters of its own, .*: leave out servers\.$'),
    ],
)
def test_roles_that_would_have_nothing_to_do(roles: dict[str, int], message: str):
    env = build_env('CartPole-v1')
    with pytest.raises(ValueError, match=message):
        learn(agent_for('ES', env), env, roles=roles)


def plan(num_directions: int, actors: int, nenv: int = 1) -> Plan:
    env = build_env('CartPole-v1', nenv=nenv)
    agent = agent_for('ES', env, num_directions=num_directions)
    return plan_for(agent, env, {'actors': actors}, 0, 0, 100, {'episodes_per_evaluation': 1})


def test_a_generation_is_cut_so_that_nobody_waits_long():
    assert plan(64, 4).horizon == 8  # 128 evaluations, four chunks for each actor
    assert plan(2, 8).horizon == 1
    assert plan(2, 8, nenv=4).horizon == 4, 'every copy has something to play'
    assert plan(64, 4).experience == 'evaluations'


PROGRAM = """
import numpy as np
from traced import traced
from zoo import algorithms, build_env

env = build_env(traced('CartPole-v1', {folder!r}))
nets = [dict(hidden=[8], features=4, seed=0)]
agent = algorithms.ARS(env.observation_space, env.action_space, net_list=nets, num_directions=6)
few = dict(train_steps=1000, episodes_per_evaluation=2, seed=1, run_dir=False, verbose=0)
steps = agent.learn(env, roles=dict(actors=2), **few).steps
print('trained', steps, agent.forward.weights()['packed'].sum(dtype=np.float64))
"""


@pytest.mark.full
@pytest.mark.parametrize('engine', ENGINES[1:])  # the first one is `local`, as everywhere above
def test_under_each_launcher(engine: str, tmp_path: Path):
    script = tmp_path / 'program.py'
    script.write_text(PROGRAM.format(folder=str(tmp_path)))
    result = run_on(engine, 3, script, tmp_path)
    assert result.returncode == 0, result.stdout
    assert {path.read_text() for path in tmp_path.glob('*.stepped')} == {'False 1'}, 'all actors are light'
    env = build_env('CartPole-v1')
    alone = agent_for('ARS', env)
    steps = learn(alone, env).steps
    (line,) = [line for line in result.stdout.splitlines() if 'trained' in line]
    found_steps, total = line.split('trained ')[1].split()
    assert (int(found_steps), float(total)) == (
        steps,
        pytest.approx(alone.forward.weights()['packed'].sum(dtype=np.float64), abs=1e-6),
    )
