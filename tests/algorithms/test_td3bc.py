"""TD3+BC: the actor's loss and one update against float64, and what the weight of the values does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from batches import ACTION, SGD, VECTOR, box_batch, lead, specs
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir

from zoo.algorithms import TD3BC
from zoo.common.maths.distributions import normal_like

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(**params: Any) -> TD3BC:
    """An agent whose networks all differ."""
    agent = TD3BC(VECTOR, ACTION, **{'net_list': specs(3), 'normalize_obs': False} | params)
    for i, network in enumerate([*agent.networks.values(), agent.target_actor, *agent.target_critics]):
        stir(network.variables, seed=i)
    agent.forward.refresh()
    return agent


def actor_loss_by_hand(actor: NumpyNetwork, critic: NumpyNetwork, data: Any, factor: float) -> float:
    action = actor(data.obs)
    return -factor * critic(data.obs, action).mean() + np.mean((action - data.action) ** 2)


def factor_by_hand(actor: NumpyNetwork, critic: NumpyNetwork, data: Any, alpha: float) -> float:
    return alpha / np.abs(critic(data.obs, actor(data.obs))).mean()


@pytest.mark.parametrize('alpha', [2.5, 0.3])
def test_actor_loss_by_hand(alpha):
    agent, data = make(alpha=alpha), box_batch(64)
    actor, critic = NumpyNetwork(agent.actor), NumpyNetwork(agent.critics[0])
    expected = actor_loss_by_hand(actor, critic, data, factor_by_hand(actor, critic, data, alpha))
    assert float(agent.actor_loss(data)) == pytest.approx(expected, rel=1e-5)


def test_one_update_by_finite_differences():
    """The critics as in TD3, then the actor on the first critic that has moved; no gradient through λ."""
    agent, data = make(optimizers_list=[SGD, SGD], policy_delay=1, tau=0.1), box_batch()
    agent.reseed(0, 'test')  # with other noise a unit may be so near to its kink that differences cross it
    noise = np.clip(0.2 * normal_like(data.action, agent.noise_seed + [0, 2]).numpy(), -0.5, 0.5)
    action = np.clip(NumpyNetwork(agent.target_actor)(data.next_obs) + noise, -1.0, 1.0)
    q = np.minimum(*(NumpyNetwork(target)(data.next_obs, action)[:, 0] for target in agent.target_critics))
    target = data.reward + 0.99 * ~data.terminated * q
    critics = [NumpyNetwork(critic) for critic in agent.critics]
    before = [copies(network.variables) for network in agent.target_critics]
    for critic in critics:

        def loss(critic: NumpyNetwork = critic) -> float:
            return np.mean((critic(data.obs, data.action)[:, 0] - target) ** 2)

        gradients = finite_differences(loss, critic.weights)
        critic.weights = [w - 0.1 * g for w, g in zip(critic.weights, gradients, strict=True)]
    actor = NumpyNetwork(agent.actor)
    factor = factor_by_hand(actor, critics[0], data, 2.5)
    gradients = finite_differences(lambda: actor_loss_by_hand(actor, critics[0], data, factor), actor.weights)
    moved = [w - 0.1 * g for w, g in zip(actor.weights, gradients, strict=True)]

    agent.update_on(lead(data))
    for network, expected in zip(agent.critics, critics, strict=True):
        assert_close(network.variables, expected.weights)
    assert_close(agent.actor.variables, moved)
    for network, source, old in zip(agent.target_critics, agent.critics, before, strict=True):
        assert_close(network.variables, [0.9 * a + 0.1 * b.numpy() for a, b in zip(old, source.variables, strict=True)])


def test_values_of_any_scale_weigh_the_same():
    """Ten times the values, the same gradient of the actor: λ takes the scale out."""

    def gradient(agent: TD3BC) -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            loss = agent.actor_loss(box_batch())
        return [g.numpy() for g in tape.gradient(loss, agent.actor.trainable_variables)]

    agent = make()
    before = gradient(agent)
    for variable in agent.critics[0].variables[-2:]:  # of the linear head
        variable.assign(10.0 * variable)
    assert_close(gradient(agent), before, 1e-4, 1e-6)


def test_with_a_small_weight_of_the_values_the_policy_clones_the_data():
    agent, data = make(alpha=1e-6, policy_delay=1), box_batch(64)
    data = data._replace(action=np.tanh(data.obs[:, :2]) * np.float32([0.5, -0.5]))
    for _ in range(300):
        agent.update_on(lead(*[data] * 10))
    assert np.abs(agent.act(data.obs, deterministic=True) - data.action).mean() < 0.05


def test_observations_are_normalized_by_default():
    assert TD3BC(VECTOR, ACTION, net_list=specs(3)).statistics
    assert TD3BC.params()['alpha'] == 2.5
