"""A2C, AC and VPG: one update computed again by NumPy, their advantages, and VPG without a critic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir
from rollouts import gae_by_hand, log_softmax, rollout

import zoo
from zoo import algorithms
from zoo.common.records import Trajectories
from zoo.common.schedules import Linear

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = 3
SGD = [{'name': 'SGD', 'learning_rate': 0.1}]

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(name: str, action_space: Any = None, space: Any = VECTOR, **params: Any) -> Any:
    """An agent with small networks whose biases are not zero."""
    specs = [{'hidden': [5], 'seed': i} for i in range(2)]
    params = {'net_list': specs, 'max_grad_norm': None, 'optimizers_list': SGD} | params
    agent = getattr(algorithms, name)(space, action_space or Discrete(ACTIONS), **params)
    for i, network in enumerate(agent.networks.values()):
        stir(network.variables, seed=i)
    agent.forward.refresh()
    return agent


def to_go(agent: Any, data: Trajectories, next_value: np.ndarray) -> np.ndarray:
    """G of equation 3.9: backwards over each copy, with the value of what is not seen."""
    found, steps = np.zeros(data.reward.shape), len(data.reward)
    for n in range(data.reward.shape[1]):
        for t in reversed(range(steps)):
            unseen = data.truncated[t, n] or t == steps - 1
            following = next_value[t, n] if unseen else found[t + 1, n]
            found[t, n] = data.reward[t, n] + (0.0 if data.terminated[t, n] else agent.gamma * following)
    return found


def by_hand(name: str, agent: Any, data: Trajectories, value: np.ndarray, next_value: np.ndarray) -> Any:
    """Advantages and the critic's targets ``[T, N]``."""
    if name == 'A2C':
        advantage = gae_by_hand(agent, data, value, next_value)
        return advantage, advantage + value
    if name == 'AC':
        target = data.reward + agent.gamma * ~data.terminated * next_value
        return target - value, target
    returns = to_go(agent, data, next_value)
    return returns - value, returns


@pytest.mark.full(but='VPG-params4')
@pytest.mark.parametrize(
    ('name', 'params'),
    [
        ('A2C', {}),
        ('A2C', {'gae_lambda': 0.6, 'normalize_advantage': True, 'entropy_coef': Linear(0.4), 'value_coef': 0.8}),
        ('AC', {'gamma': 0.8, 'entropy_coef': 0.2}),
        ('VPG', {'gamma': 0.9}),
        ('VPG', {'gamma': 0.9, 'normalize_advantage': False, 'baseline': False}),
    ],
)
def test_one_update_computed_again(name, params):
    """Also that one gradient step is made, on all transitions but that in which a copy was only reset."""
    agent = make(name, **params)
    data = rollout(agent)
    valid = data.valid.ravel()
    obs, action = data.obs.reshape(20, 3), data.action.reshape(20)
    nets = [NumpyNetwork(network) for network in agent.networks.values()]
    actor, critic = nets[0], nets[1] if len(nets) > 1 else lambda x: np.zeros((len(x), 1))
    values = [critic(x.reshape(20, 3))[:, 0].reshape(5, 4) for x in (data.obs, data.next_obs)]
    advantage, target = (x.ravel()[valid] for x in by_hand(name, agent, data, *values))
    if params.get('normalize_advantage', name == 'VPG'):
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    agent.progress = 0.5
    entropy_coef = 0.2 if 'entropy_coef' in params else 0.0

    def parts() -> tuple[float, float, float]:
        log_probs = log_softmax(actor(obs))[valid]
        policy = -np.mean(advantage * log_probs[np.arange(19), action[valid]])
        value = np.mean((critic(obs)[valid, 0] - target) ** 2)
        return policy, value, -(np.exp(log_probs) * log_probs).sum(-1).mean()

    def loss() -> float:
        policy, value, entropy = parts()
        return policy + agent.value_coef * value - entropy_coef * entropy

    policy, value, entropy = parts()
    weights = [w for net in nets for w in net.weights]
    for weight, gradient in zip(weights, finite_differences(loss, weights), strict=True):
        weight -= 0.1 * gradient
    metrics = agent.update(data)
    expected = {'policy': policy, 'value': value if len(nets) > 1 else 0.0, 'entropy': entropy}
    assert metrics == pytest.approx(expected, rel=1e-4, abs=1e-5)
    for network, net in zip(agent.networks.values(), nets, strict=True):
        assert_close(network.variables, net.weights, 1e-4, 1e-5)
    np.testing.assert_allclose(agent.forward(obs), actor(obs), rtol=1e-4, atol=1e-5)
    assert agent.optimizers['all'].keras.iterations == 1
    assert agent.update(data._replace(valid=np.zeros_like(data.valid))) is None


class TestVPGWithoutABaseline:
    def test_there_is_no_critic(self, tmp_path):
        env = zoo.build_env('CartPole-v1', nenv=2)
        alg_params, learn_params = zoo.call_default_params(env, alg='VPG', seed=0)
        agent = algorithms.VPG(**alg_params | {'baseline': False})
        assert list(agent.networks) == ['actor'] and len(agent.net_list) == 1
        assert agent.trainable_variables == agent.policy.trainable_variables
        agent.learn(env, run_dir=False, **learn_params | {'train_steps': 40, 'horizon': 20, 'verbose': 0})
        twin = zoo.load(agent.save(tmp_path / 'saved'))
        obs = np.ones((2, 4), np.float32)
        np.testing.assert_array_equal(twin.predict(obs), agent.predict(obs))
        assert list(twin.networks) == ['actor']

    def test_one_entry_is_enough_and_three_are_refused(self):
        assert len(algorithms.VPG(VECTOR, Discrete(2), [{'hidden': [4]}], baseline=False).net_list) == 1
        with pytest.raises(ValueError, match='net_list has 3 entries, but VPG takes 1: actor'):
            algorithms.VPG(VECTOR, Discrete(2), [{}] * 3, baseline=False)
        with pytest.raises(ValueError, match='net_list has 1 entry, but VPG takes 2: actor, critic'):
            algorithms.VPG(VECTOR, Discrete(2), [{}])


def test_parameters_that_mean_nothing_are_refused():
    for name, param in (('AC', 'gae_lambda'), ('VPG', 'gae_lambda'), ('TRPO', 'entropy_coef'), ('TRPO', 'value_coef')):
        assert param not in getattr(algorithms, name).params()
        with pytest.raises(ValueError, match=f"unknown parameter of {name} '{param}'"):
            make(name, **{param: 0.5})


def test_rollouts_are_as_long_as_the_algorithm_wants_by_default():
    horizons = {name: getattr(algorithms, name).learn_params()['horizon'] for name in ('AC', 'A2C', 'PPO')}
    assert horizons == {'AC': 1, 'A2C': 5, 'PPO': 2048}


@pytest.mark.parametrize('shared', [True, False])
def test_masked_actions_have_no_gradient(shared):
    space = Dict(x=VECTOR, action_mask=MultiBinary(ACTIONS))
    critic = 'actor' if shared else {'hidden': [4]}
    agent = make('A2C', space=space, net_list=[{'hidden': [5]}, critic], entropy_coef=0.1)
    data = rollout(agent)
    mask = np.tile(np.int8([1, 0, 1]), (5, 4, 1))
    data = data._replace(
        obs={'x': data.obs, 'action_mask': mask},
        next_obs={'x': data.next_obs, 'action_mask': mask},
        action=np.where(data.action == 1, 0, data.action).astype(np.int32),
    )
    before = copies(agent.policy.network.variables)[-1]
    agent.update(data)
    moved = agent.policy.network.variables[-1].numpy() != before
    assert moved.tolist() == [True, False, True]


def test_single_steps_of_one_copy():
    """AC by default updates after every step, here of one environment."""
    env = zoo.build_env('CartPole-v1')
    agent = algorithms.AC(env.observation_space, env.action_space, optimizers_list=SGD)
    agent.learn(env, train_steps=12, run_dir=False, verbose=0)
    assert agent.optimizers['all'].keras.iterations == 12 and agent.fused.traces == 1
