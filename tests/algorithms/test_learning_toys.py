"""Toy tasks that are learned in seconds: if the pieces do not fit together, these do not."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest
import toys
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from zoo import algorithms, build_env
from zoo.algorithms.base import Algorithm


def learn(
    name: str, make: Any, nenv: int, alg_params: dict[str, Any], learn_params: dict[str, Any]
) -> tuple[float, Any]:
    """The mean return of 50 test episodes after training, and the agent."""
    env = build_env(make, 'gymnasium', nenv=nenv)
    single = build_env(make, 'gymnasium', seed=1000)
    cls = getattr(algorithms, name)
    hidden = {'hidden': [32], 'features': 32} if name in ('PPO', 'DQN') else {'hidden': [64, 64], 'activation': 'relu'}
    specs = [{**hidden, 'seed': i} for i in range(len(cls.network_names))]
    agent: Algorithm = cls(single.observation_space, single.action_space, net_list=specs, **alg_params)
    agent.learn(env, seed=0, run_dir=False, verbose=0, **learn_params)
    return statistics.mean(agent.learn(single, 'test', test_episodes=50, seed=1).returns), agent


def on_policy(train_steps: int) -> dict[str, Any]:
    return {'train_steps': train_steps, 'horizon': 64, 'epochs': 8, 'batch_size': 64}


RATE = [{'learning_rate': 3e-3}]


@pytest.mark.full
@pytest.mark.parametrize(
    ('space', 'by_chance', 'reached'),
    [
        pytest.param(Discrete(4, start=-2), 1 / 4, 0.99, marks=pytest.mark.matrix),
        pytest.param(MultiDiscrete([2, 3]), 5 / 12, 0.99, marks=pytest.mark.matrix),
        pytest.param(MultiBinary(3), 1 / 2, 0.99, marks=pytest.mark.matrix),
        pytest.param(Box(np.float32([-1.0, 0.0]), np.float32([1.0, 10.0])), 1 / 3, 0.95, marks=pytest.mark.matrix),
        (Dict(press=Discrete(3), turn=Box(-1.0, 1.0, (1,))), 1 / 3, 0.95),
        (Tuple((MultiBinary(2), Discrete(2))), 1 / 2, 0.99),
    ],
    ids=['Discrete', 'MultiDiscrete', 'MultiBinary', 'Box', 'Dict', 'Tuple'],
)
def test_ppo_copies_what_it_sees(space, by_chance, reached):
    before = [toys.likeness(space, space.sample(), space.sample()) for _ in range(3000)]
    assert statistics.mean(before) == pytest.approx(by_chance, abs=0.05)
    params = {'optimizers_list': RATE, 'log_std_init': -1.0}
    score, _ = learn('PPO', lambda: toys.Copy(space), 8, params, on_policy(16_384))
    assert score >= reached


@pytest.mark.full
@pytest.mark.parametrize('double_q', [pytest.param(False, marks=pytest.mark.matrix), True], ids=['single', 'double'])
def test_dqn_finds_the_values_of_the_chain(double_q):
    params = {'gamma': 0.9, 'epsilon': 0.5, 'double_q': double_q, 'target_update_every': 50, 'optimizers_list': RATE}
    _, agent = learn('DQN', toys.Chain, 1, params, {'train_steps': 3000, 'explore_steps': 200, 'batch_size': 64})
    # One step from the right end 1, from then on a factor 0.9 for each: 0.9^4 from the left end, where left pays 0.1.
    right = [0.9**k for k in (4, 3, 2, 1, 0)]
    left = [0.1, 0.9 * right[0], 0.9 * right[1], 0.9 * right[2], 0.9 * right[3]]
    np.testing.assert_allclose(agent.network(np.arange(5)), np.transpose([left, right]), atol=0.05)
    assert agent.predict(np.arange(5)).tolist() == [1] * 5


@pytest.mark.full
def test_dqn_finds_them_with_replay_in_a_rank_of_its_own():
    params = {'gamma': 0.9, 'epsilon': 0.5, 'target_update_every': 50, 'optimizers_list': RATE, 'prioritized': True}
    learn_params = {'train_steps': 3000, 'explore_steps': 200, 'batch_size': 64, 'update_every': 8}
    learn_params['roles'] = {'actors': 2, 'buffers': 1}
    _, agent = learn('DQN', toys.Chain, 1, params, learn_params)
    right = [0.9**k for k in (4, 3, 2, 1, 0)]
    np.testing.assert_allclose(agent.network(np.arange(5))[:, 1], right, atol=0.05)
    assert agent.predict(np.arange(5)).tolist() == [1] * 5


@pytest.mark.full
def test_offpac_learns_from_actions_that_are_all_random():
    params = {'gamma': 0.9, 'explore': 1.0, 'tau': 0.05, 'optimizers_list': RATE * 3}
    _, agent = learn('OffPAC', toys.Chain, 1, params, {'train_steps': 3000, 'explore_steps': 200, 'batch_size': 64})
    assert agent.predict(np.arange(5)).tolist() == [1] * 5
    # Of the policy that goes right, though the one that acted did not: as above, from the left end on.
    right = [0.9**k for k in (4, 3, 2, 1, 0)]
    np.testing.assert_allclose(agent.critic(np.arange(5))[:, 0], right, atol=0.1)


@pytest.mark.full(but='AC')
@pytest.mark.parametrize('name', ['VPG', 'AC', 'A2C', 'TRPO'])
def test_policy_gradients_find_the_right_end_of_the_chain(name):
    params = {'gamma': 0.9, 'optimizers_list': [{'learning_rate': 1e-2}]}
    learn_params = {'train_steps': 8192, 'horizon': {'AC': 4, 'A2C': 5}.get(name, 32)}
    _, agent = learn(name, toys.Chain, 8, params, learn_params)
    assert agent.predict(np.arange(1, 5)).tolist() == [1] * 4


@pytest.mark.full
@pytest.mark.parametrize(
    ('name', 'roles'),
    [('SAC', None), pytest.param('SAC', {'actors': 2, 'buffers': 1}, marks=pytest.mark.matrix), ('TD3', None)],
    ids=str,
)
def test_off_policy_agents_hit_what_they_aim_at(name, roles):
    optimizers = [{'learning_rate': 3e-3}] * len(getattr(algorithms, name).optimizer_names)
    learn_params = {'train_steps': 2500, 'explore_steps': 300, 'batch_size': 64, 'update_every': 4, 'roles': roles}
    score, _ = learn(name, toys.Aim, 1, {'optimizers_list': optimizers}, learn_params)
    assert score >= -0.03  # the best without looking is -5/12, a random action gets about -4.4


@pytest.mark.full
def test_ppo_finds_the_one_number_that_matters_in_a_nested_observation():
    score, _ = learn('PPO', toys.Sorting, 8, {'optimizers_list': RATE}, on_policy(20_480))
    assert score >= 9  # of 10; chance gets about a third
