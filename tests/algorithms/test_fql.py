"""FQL: flow, distillation, one update against float64, acting from noise, and what α does."""

from __future__ import annotations

import pickle
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from batches import ACTION, SGD, VECTOR, box_batch, lead, specs
from gymnasium.spaces import Box, Dict
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir

import zoo
from zoo.algorithms import FQL
from zoo.common.maths.distributions import normal_like, split_seed, uniform_like

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(**params: Any) -> FQL:
    """An agent whose networks all differ."""
    agent = FQL(VECTOR, ACTION, **{'net_list': specs(4, normalize=None), 'flow_steps': 3} | params)
    for i, network in enumerate([*agent.networks.values(), *agent.targets]):
        stir(network.variables, seed=i, scale=0.3)
    agent.forward.refresh()
    return agent


def flow_by_hand(flow: NumpyNetwork, obs: np.ndarray, noise: np.ndarray, steps: int) -> np.ndarray:
    """Euler's method from the noise at time 0 to an action at time 1."""
    x = np.float64(noise)
    for i in range(steps):
        x = x + flow(obs, x, np.full((len(x), 1), i / steps)) / steps
    return np.clip(x, -1.0, 1.0)


@pytest.mark.parametrize('steps', [1, 3])
def test_flow_action(steps):
    agent, data = make(flow_steps=steps), box_batch(64)
    noise = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
    expected = flow_by_hand(NumpyNetwork(agent.flow), data.obs, noise, steps)
    np.testing.assert_allclose(agent.flow_action(data.obs, noise), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    'params', [{}, {'q_agg': 'min'}, {'normalize_q_loss': False}, {'alpha': 0.3, 'normalize_q_loss': False}]
)
def test_one_update_by_finite_differences(params):
    """Algorithm 1: critics, flow matching, then distillation and values for the policy."""
    agent, data = make(optimizers_list=[SGD] * 3, tau=0.1, **params), box_batch()
    alpha = params.get('alpha', 1.0)
    agent.reseed(0, 'test')  # with other noise a unit may be so near to its kink that differences cross it
    of_target, of_flow, of_noise = split_seed(agent.noise_seed + [0, 2], 3)
    actor, flow, *critics = map(NumpyNetwork, agent.networks.values())
    targets = [NumpyNetwork(target) for target in agent.targets]
    before = [copies(network.variables) for network in agent.targets]
    like = tf.zeros(data.action.shape)

    next_action = np.clip(actor(data.next_obs, normal_like(like, of_target).numpy()), -1.0, 1.0)
    next_q = np.stack([target(data.next_obs, next_action)[:, 0] for target in targets])
    next_q = next_q.min(0) if params.get('q_agg') == 'min' else next_q.mean(0)
    target = data.reward + 0.99 * ~data.terminated * next_q
    noise = np.float64(normal_like(like, of_noise).numpy())
    aim = flow_by_hand(flow, data.obs, noise, 3)

    def critic_loss() -> float:  # the mean over both critics
        return np.mean([(critic(data.obs, data.action)[:, 0] - target) ** 2 for critic in critics])

    moved_critics = []
    for critic in critics:
        gradients = finite_differences(critic_loss, critic.weights)
        moved_critics.append([w - 0.1 * g for w, g in zip(critic.weights, gradients, strict=True)])
    for critic, weights in zip(critics, moved_critics, strict=True):
        critic.weights = weights

    seeds = split_seed(of_flow, 2)
    x_0, t = np.float64(normal_like(like, seeds[0])), np.float64(uniform_like(like[:, :1], seeds[1]))
    x_t = (1 - t) * x_0 + t * data.action
    gradients = finite_differences(lambda: np.mean((flow(data.obs, x_t, t) - (data.action - x_0)) ** 2), flow.weights)
    moved_flow = [w - 0.1 * g for w, g in zip(flow.weights, gradients, strict=True)]

    def values() -> np.ndarray:
        action = np.clip(actor(data.obs, noise), -1.0, 1.0)
        return np.mean([critic(data.obs, action)[:, 0] for critic in critics], 0)

    scale = 1.0 if params.get('normalize_q_loss') is False else 1.0 / np.abs(values()).mean()
    gradients = finite_differences(
        lambda: alpha * np.mean((actor(data.obs, noise) - aim) ** 2) - scale * values().mean(), actor.weights
    )
    moved_actor = [w - 0.1 * g for w, g in zip(actor.weights, gradients, strict=True)]

    agent.update_on(lead(data))
    for network, weights in zip(agent.critics, moved_critics, strict=True):
        assert_close(network.variables, weights)
    assert_close(agent.flow.variables, moved_flow)
    assert_close(agent.actor.variables, moved_actor)
    for network, source, old in zip(agent.targets, agent.critics, before, strict=True):
        assert_close(network.variables, [0.9 * a + 0.1 * b.numpy() for a, b in zip(old, source.variables, strict=True)])


def two_actions(size: int = 256) -> Any:
    """In one state the data have actions near −0.7 and near 0.7; the latter is worth more, and the episode ends."""
    data, rng = box_batch(size), np.random.default_rng(0)
    good = np.arange(size) % 2
    action = np.stack([1.4 * good - 0.7, np.zeros(size)], -1) + 0.05 * rng.normal(size=(size, 2))
    return data._replace(
        obs=np.zeros_like(data.obs),
        action=action.astype(np.float32),
        reward=good.astype(np.float32),
        discount=np.zeros(size, np.float32),
    )


@pytest.mark.full
def test_the_flow_clones_both_actions_and_alpha_chooses():
    data = two_actions()
    found = {}
    for alpha in (100.0, 0.3):
        agent = FQL(VECTOR, ACTION, net_list=specs(4, hidden=[32, 32], normalize=None), alpha=alpha)
        for _ in range(200):
            agent.update_on(lead(*[data] * 10))
        noise = np.random.default_rng(1).normal(size=(256, 2)).astype(np.float32)
        cloned = agent.flow_action(data.obs, noise).numpy()[:, 0]
        assert 0.35 < (cloned > 0).mean() < 0.65
        assert (np.abs(np.abs(cloned) - 0.7) < 0.3).mean() > 0.7
        agent.rng = np.random.default_rng(2)
        found[alpha] = agent.act(data.obs)[:, 0]
    assert 0.3 < (found[100.0] > 0).mean() < 0.7  # near the data, whatever it is worth
    assert (found[0.3] > 0.5).mean() > 0.95  # the better of the two


class TestActing:
    OBS = np.random.default_rng(1).normal(size=(4000, 3)).astype(np.float32)

    def test_deterministic_is_the_policy_at_zero_noise(self):
        agent = make()
        expected = np.clip(NumpyNetwork(agent.actor)(self.OBS, np.zeros((4000, 2))), -1.0, 1.0)
        np.testing.assert_allclose(agent.act(self.OBS, deterministic=True), expected, atol=1e-5)

    def test_otherwise_of_noise_that_is_drawn(self):
        agent = make()
        agent.rng = np.random.default_rng(0)
        noise = np.random.default_rng(0).standard_normal((4000, 2), dtype=np.float32)
        expected = np.clip(NumpyNetwork(agent.actor)(self.OBS, noise), -1.0, 1.0)
        np.testing.assert_allclose(agent.act(self.OBS), expected, atol=1e-5)
        assert np.abs(expected).max() == 1.0

    def test_the_noise_has_the_deviation_1(self):
        agent = make()
        for variable in agent.actor.variables:
            variable.assign(tf.zeros_like(variable))
        agent.forward.refresh()
        assert agent.forward.noise_size == 2
        assert (agent.act(self.OBS) == 0.0).all()

    @pytest.mark.parametrize(
        'entry',
        [
            {'hidden': [6, 5], 'activation': 'gelu', 'normalize': 'layer_norm'},
            lambda: keras.Sequential([keras.layers.Dense(6, 'tanh')]),
        ],
        ids=['spec', 'torso'],
    )
    def test_in_numpy_and_in_a_graph_alike(self, entry):
        agent = make(net_list=[entry() if callable(entry) else entry, *specs(3, normalize=None)])
        assert agent.forward.numpy is not None
        obs, noise = self.OBS[:9], np.random.default_rng(0).standard_normal((9, 2), dtype=np.float32)
        expected = agent.actor(obs, noise)
        np.testing.assert_allclose(agent.forward(obs, noise), expected, atol=1e-5)
        np.testing.assert_allclose(agent.forward(obs), agent.actor(obs, tf.zeros([9, 2])), atol=1e-5)
        twin = pickle.loads(pickle.dumps(agent.behavior.light()))
        np.testing.assert_array_equal(
            twin(obs, np.random.default_rng(3), 0.0), agent.behavior(obs, np.random.default_rng(3), 0.0)
        )

    def test_over_several_leaves_by_a_graph(self):
        space = Dict(camera=Box(0, 255, (9, 9, 3), np.uint8), pose=VECTOR)
        agent = FQL(space, ACTION, net_list=specs(4, features=4))
        assert agent.forward.numpy is None
        obs = {'camera': np.zeros((9, 9, 9, 3), np.uint8), 'pose': self.OBS[:9]}
        np.testing.assert_allclose(agent.forward(obs), agent.actor(obs, tf.zeros([9, 2])), atol=1e-6)
        noise = np.ones((9, 2), np.float32)
        np.testing.assert_allclose(agent.forward(obs, noise), agent.actor(obs, tf.constant(noise)), atol=1e-6)
        assert np.abs(agent.forward(obs, noise) - agent.forward(obs)).max() > 1e-3

    @pytest.mark.parametrize('joins', [False, True])
    def test_saved_loaded_and_exported(self, joins, tmp_path):
        torso = keras.Sequential([keras.Input((3,)), keras.layers.Dense(6, 'tanh')])
        agent = make(net_list=[torso, *specs(3, normalize=None)]) if joins else make()
        assert agent.actor.joins_action is joins
        obs = self.OBS[:5]
        expected = agent.predict(obs)
        assert agent.forward.numpy is not None
        loaded = zoo.load(agent.save(tmp_path / 'saved')) if not joins else agent
        np.testing.assert_array_equal(loaded.predict(obs), expected)
        folder = zoo.export(agent, tmp_path / 'exported')
        served = tf.saved_model.load(str(folder)).signatures['serving_default']
        found = next(iter(served(obs=tf.constant(obs)).values()))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
