"""A3C: what an actor computes and the learner applies is A2C's update; in one process it is A2C."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from reference import assert_close, copies, stir
from rollouts import rollout

from zoo import build_env
from zoo.algorithms import A2C, A3C
from zoo.common.schedules import Linear
from zoo.distributed.training.actor import Actor
from zoo.distributed.training.planning import plan_for

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(cls: Any = A3C, action_space: Any = None, space: Any = VECTOR, **params: Any) -> Any:
    """An agent with small networks whose biases are not zero."""
    specs = [{'hidden': [5], 'seed': i} for i in range(2)]
    agent = cls(space, action_space or Box(-1.0, 1.0, (2,), np.float32), net_list=specs, **params)
    for i, network in enumerate(agent.networks.values()):
        stir(network.variables, seed=i)
    agent.forward.refresh()
    return agent


@pytest.mark.full
@pytest.mark.parametrize('normalize_obs', [pytest.param(False, marks=pytest.mark.matrix), True])
def test_a_gradient_that_an_actor_computed_is_the_update_of_a2c(normalize_obs: bool):
    """Also of the next one, which depends on the statistics, the optimiser's state and where training is."""
    params = {
        'normalize_obs': normalize_obs,
        'normalize_advantage': True,
        'entropy_coef': Linear(0.5),
        'max_grad_norm': 0.7,
        'optimizers_list': [{'name': 'RMSprop', 'learning_rate': Linear(0.01), 'rho': 0.99, 'epsilon': 1e-5}],
    }
    learner, actor, other = make(**params), make(**params), make(A2C, **params)
    stir(actor.trainable_variables, seed=7)  # it has to be sent all of them
    for step in range(3):
        for agent in (learner, actor, other):
            agent.progress = step / 10
        actor.load_weights(learner.weights())
        data = rollout(learner, seed=step)
        start = copies(learner.trainable_variables)
        metrics, expected = learner.take_gradient(actor.gradient(data)), other.update(data)
        assert metrics == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert_close(copies(learner.trainable_variables), copies(other.trainable_variables), 1e-5, 1e-6)
        assert max(np.abs(a - b).max() for a, b in zip(start, copies(learner.trainable_variables), strict=True)) > 1e-4
        obs = np.ones((2, 3), np.float32)
        np.testing.assert_allclose(learner.forward(obs), other.forward(obs), rtol=1e-5)
    if normalize_obs:
        np.testing.assert_allclose(learner.statistics[''].mean, other.statistics[''].mean)
        assert learner.statistics[''].count == other.statistics[''].count > 0


def test_what_is_random_is_each_ranks_own():
    sent = make().weights()
    assert 'noise_seed' not in sent and not [name for name in sent if 'random' in name or 'optimizer' in name]
    assert {'network/actor/0', 'network/critic/3', 'log_std'} <= set(sent)


def test_actors_drop_other_units_each():
    """Though all of them, and what is started in the place of one, are built alike."""
    env = build_env('CartPole-v1')
    torso = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dropout(0.5)])
    agent = A3C(env.observation_space, env.action_space, net_list=[torso, {'hidden': [4]}])
    plan = plan_for(agent, env, {'actors': 2}, 1, 0, 100, {'horizon': 5})
    states = []
    for number, restarts in ((0, 0), (1, 0), (0, 1), (0, 0)):
        cluster = SimpleNamespace(role_rank=lambda number=number: number, restarts=restarts, queue=lambda *_: None)
        Actor(cluster, plan, agent.behavior, env, agent)
        states.append(tuple(agent.state()['network/actor/random/0'].tolist()))
    assert len(set(states)) == 3 and states[0] == states[3], 'by the seed, the number and how often it was started'


def test_in_one_process_it_is_a2c():
    states = []
    for cls in (A3C, A2C):
        env = build_env('CartPole-v1')
        agent = make(cls, env.action_space, env.observation_space)
        agent.learn(env, seed=3, train_steps=60, horizon=5, roles=None, run_dir=False)
        states.append(copies(agent.trainable_variables))
    assert_close(*states, 0.0, 0.0)


@pytest.mark.parametrize('roles', [{'learners': 2, 'actors': 2}, {'actors': 2, 'servers': 1}])
def test_roles_that_it_cannot_have_are_refused(roles: dict[str, int]):
    env = build_env('CartPole-v1')
    agent = make(A3C, env.action_space, env.observation_space)
    with pytest.raises(ValueError, match=r'compute its gradients, .* give dict\(learners=1, actors=2\)\.$'):
        plan_for(agent, env, roles, 0, 0, 100, {'horizon': 5})


def test_moving_statistics_are_refused_where_each_actor_would_have_its_own():
    import keras

    env = build_env('CartPole-v1')
    torso = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.BatchNormalization()])
    agent = A3C(env.observation_space, Discrete(2), net_list=[torso, {'hidden': [4]}])
    with pytest.raises(ValueError, match='moving statistics, and each actor would have its own'):
        plan_for(agent, env, {'actors': 1}, 0, 0, 100, {'horizon': 5})


def test_a_gradient_of_other_networks_is_refused():
    with pytest.raises(ValueError, match='a gradient of 3 weights for the'):
        make().take_gradient({'gradient': np.zeros(3, np.float32), 'metrics': np.zeros(3, np.float32), 'obs': None})
