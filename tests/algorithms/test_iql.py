"""IQL: expectile regression, weights, one update against float64, and what the expectile and β do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from batches import ACTION, MASKED, SGD, VECTOR, box_batch, discrete_batch, lead, specs
from gymnasium.spaces import Box, Discrete
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir

from zoo.algorithms import IQL

pytestmark = pytest.mark.usefixtures('plain_graphs')

SPACES = ['box', 'discrete', 'masked']


def make(kind: str = 'box', **params: Any) -> IQL:
    """An agent whose networks all differ."""
    obs, action = MASKED if kind == 'masked' else VECTOR, ACTION if kind == 'box' else Discrete(3)
    agent = IQL(obs, action, **{'net_list': specs(4)} | params)
    for i, network in enumerate([*agent.networks.values(), *agent.targets]):
        stir(network.variables, seed=i)
    if kind == 'box':
        agent.policy.log_std.assign([-0.5, 0.3])
    agent.forward.refresh()
    return agent


def batch_of(kind: str, size: int = 8) -> Any:
    return box_batch(size) if kind == 'box' else discrete_batch(size, masked=kind == 'masked')


class Reference:
    """The networks in float64, and the paper's losses."""

    def __init__(self, agent: IQL, kind: str) -> None:
        self.kind, self.agent = kind, agent
        self.actor, self.first, self.second, self.value = map(NumpyNetwork, agent.networks.values())
        self.targets = [NumpyNetwork(target) for target in agent.targets]
        self.log_std = np.float64(agent.policy.log_std.numpy()) if kind == 'box' else None

    def pose(self, obs: Any) -> np.ndarray:
        return obs['pose'] if self.kind == 'masked' else obs

    def q(self, critic: NumpyNetwork, data: Any) -> np.ndarray:
        if self.kind == 'box':
            return critic(data.obs, data.action)[:, 0]
        return critic(self.pose(data.obs))[np.arange(len(data.action)), data.action]

    def log_prob(self, data: Any) -> np.ndarray:
        output = self.actor(self.pose(data.obs))
        if self.kind == 'box':
            noise = (data.action - output) / np.exp(self.log_std)
            return (-0.5 * noise**2 - self.log_std - 0.5 * np.log(2 * np.pi)).sum(-1)
        if self.kind == 'masked':
            output = np.where(data.obs['action_mask'], output, -1e9)
        output -= output.max(-1, keepdims=True)
        log_prob = output - np.log(np.exp(output).sum(-1, keepdims=True))
        return log_prob[np.arange(len(data.action)), data.action]

    def value_of(self, obs: Any) -> np.ndarray:
        return self.value(self.pose(obs))[:, 0]

    def update(self, data: Any, expectile: float = 0.7, beta: float = 3.0) -> None:
        """One step of gradient descent of value, actor and critics: equations 5, 7 and 6."""
        q = np.minimum(*(self.q(target, data) for target in self.targets))

        def value_loss() -> float:
            error = q - self.value_of(data.obs)
            return np.mean(np.abs(expectile - (error < 0)) * error**2)

        self.value_loss = value_loss()
        self.value.weights = self.moved(value_loss, self.value.weights)
        self.weight = np.minimum(np.exp(beta * (q - self.value_of(data.obs))), 100.0)
        trained = [*self.actor.weights, *([] if self.log_std is None else [self.log_std])]
        moved = self.moved(lambda: -np.mean(self.weight * self.log_prob(data)), trained)
        target = data.reward + 0.99 * ~data.terminated * self.value_of(data.next_obs)
        for critic in (self.first, self.second):

            def critic_loss(critic: NumpyNetwork = critic) -> float:
                return np.mean((self.q(critic, data) - target) ** 2)

            critic.weights = self.moved(critic_loss, critic.weights)
        self.actor.weights = moved[: len(self.actor.weights)]
        self.log_std = None if self.log_std is None else moved[-1]

    def moved(self, loss: Any, weights: list[np.ndarray]) -> list[np.ndarray]:
        return [w - 0.1 * g for w, g in zip(weights, finite_differences(loss, weights), strict=True)]


@pytest.mark.parametrize('kind', SPACES)
def test_one_update_by_finite_differences(kind):
    agent, data = make(kind, optimizers_list=[SGD] * 3, tau=0.1), batch_of(kind)
    expected = Reference(agent, kind)
    before = [copies(network.variables) for network in agent.targets]
    expected.update(data)
    metrics = agent.update_on(lead(data))
    for network, reference in zip(
        agent.networks.values(), (expected.actor, expected.first, expected.second, expected.value), strict=True
    ):
        assert_close(network.variables, reference.weights)
    if kind == 'box':
        assert_close([agent.policy.log_std], [expected.log_std])
    assert metrics['value'] == pytest.approx(expected.value_loss, rel=1e-5)
    assert metrics['weight'] == pytest.approx(expected.weight.mean(), rel=1e-5)
    for network, source, old in zip(agent.targets, agent.critics, before, strict=True):
        assert_close(network.variables, [0.9 * a + 0.1 * b.numpy() for a, b in zip(old, source.variables, strict=True)])


@pytest.mark.parametrize(('expectile', 'expected'), [(0.5, 0.5), (0.9, 0.9)])
def test_a_state_is_worth_the_expectile(expectile, expected):
    """Of values 0 and 1 in equal parts the expectile τ is τ: τ (1 − v) = (1 − τ) v."""
    agent = make(expectile=expectile)
    data = box_batch(64)
    data = data._replace(obs=np.zeros_like(data.obs))
    q = tf.constant(np.arange(64) % 2, tf.float32)
    value = agent.networks['value']
    for _ in range(300):
        with tf.GradientTape() as tape:
            loss = agent.value_loss(data, q)
        for variable, gradient in zip(
            value.trainable_variables, tape.gradient(loss, value.trainable_variables), strict=True
        ):
            variable.assign_sub(0.3 * gradient)
    np.testing.assert_allclose(value(data.obs[:1]), [[expected]], atol=0.01)


def test_weights_are_at_most_100():
    agent, data = make(beta=1e4), box_batch(64)
    weight = agent.update_on(lead(data))['weight']
    assert 0.0 < weight <= 100.0


def test_log_std_stays_within_its_bounds():
    """Actions that the mean gives exactly would pull σ to 0, and far ones push it up without end."""
    agent = make(optimizers_list=[{'name': 'Adam', 'learning_rate': 0.5}] * 3)
    data = box_batch(64)
    for _ in range(20):
        exact = data._replace(action=np.clip(agent.act(data.obs, deterministic=True), -1, 1))
        agent.update_on(lead(exact))
    assert agent.policy.log_std.numpy().min() >= -5.0
    agent.policy.log_std.assign([-20.0, 20.0])
    agent.update_on(lead(data))
    np.testing.assert_array_equal(agent.policy.log_std, [-5.0, 2.0])


class TestActing:
    OBS = np.random.default_rng(1).normal(size=(4000, 3)).astype(np.float32)

    def test_deterministic_is_the_mean_and_otherwise_a_sample(self):
        agent = make()
        mean = NumpyNetwork(agent.networks['actor'])(self.OBS)
        assert np.abs(mean).max() <= 1.0
        np.testing.assert_allclose(agent.act(self.OBS, deterministic=True), mean, atol=1e-5)
        agent.rng = np.random.default_rng(0)
        noise = (agent.act(self.OBS) - mean) / np.exp([-0.5, 0.3])
        np.testing.assert_allclose(noise.mean(0), 0.0, atol=0.06)
        np.testing.assert_allclose(noise.std(0), 1.0, atol=0.06)

    def test_learns_from_the_action_that_was_taken(self):
        """A sample beyond the bounds is clipped on its way to the environment, and counts as what it became."""
        beyond = box_batch()
        beyond = beyond._replace(action=3.0 * beyond.action)
        clipped = beyond._replace(action=np.clip(beyond.action, -1.0, 1.0))
        found = []
        for data in (beyond, clipped):
            agent = make()
            agent.update_on(lead(data))
            found.append(copies(agent.trainable_variables))
        assert_close(*found, 0.0, 0.0)


def test_an_unbounded_box_is_refused():
    with pytest.raises(ValueError, match=r'^IQL needs a Box with finite bounds, but this one reaches'):
        IQL(VECTOR, Box(-np.inf, np.inf, (2,), np.float32))


def test_a_recurrent_critic_beside_another_actor_is_refused():
    nets = specs(4)
    nets[3]['recurrent'] = 'gru'
    with pytest.raises(ValueError, match=r'^net_list\[3\] \(value\) is recurrent and the actor is not, but'):
        IQL(VECTOR, ACTION, net_list=nets)
