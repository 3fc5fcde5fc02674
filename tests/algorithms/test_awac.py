"""AWAC: the target, the advantage, one update against float64, and what λ does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from batches import ACTION, MASKED, SGD, VECTOR, box_batch, discrete_batch, lead, specs
from gymnasium.spaces import Discrete
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir

from zoo.algorithms import AWAC
from zoo.common.maths.distributions import normal_like

pytestmark = pytest.mark.usefixtures('plain_graphs')

SPACES = ['box', 'discrete', 'masked']
LOG_STD = np.float32([-1.5, -0.4])


def make(kind: str = 'box', **params: Any) -> AWAC:
    """An agent whose networks all differ."""
    obs, action = MASKED if kind == 'masked' else VECTOR, ACTION if kind == 'box' else Discrete(3)
    agent = AWAC(obs, action, **{'net_list': specs(3)} | params)
    for i, network in enumerate([*agent.networks.values(), *agent.targets]):
        stir(network.variables, seed=i)
    if kind == 'box':
        agent.policy.log_std.assign(LOG_STD)
    agent.forward.refresh()
    return agent


def batch_of(kind: str, size: int = 8) -> Any:
    return box_batch(size) if kind == 'box' else discrete_batch(size, masked=kind == 'masked')


def pose(obs: Any) -> np.ndarray:
    return obs['pose'] if isinstance(obs, dict) else obs


def probabilities(actor: NumpyNetwork, obs: Any) -> np.ndarray:
    logits = actor(pose(obs))
    if isinstance(obs, dict):
        logits = np.where(obs['action_mask'], logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def expected_value(kind: str, actor: NumpyNetwork, critics: list[NumpyNetwork], obs: Any, seed: Any) -> np.ndarray:
    """E[min Q(s, a)], a ~ π: of one sample, clipped to the bounds, or summed over the actions."""
    if kind != 'box':
        return (probabilities(actor, obs) * np.minimum(*(critic(pose(obs)) for critic in critics))).sum(-1)
    drawn = normal_like(tf.zeros([len(obs), 2]), seed).numpy()
    action = np.clip(actor(obs) + np.exp(np.float64(LOG_STD)) * drawn, -1.0, 1.0)
    return np.minimum(*(critic(obs, action)[:, 0] for critic in critics))


def value(kind: str, critic: NumpyNetwork, data: Any) -> np.ndarray:
    if kind == 'box':
        return critic(data.obs, data.action)[:, 0]
    return critic(pose(data.obs))[np.arange(len(data.action)), data.action]


def log_prob(kind: str, actor: NumpyNetwork, log_std: np.ndarray, data: Any) -> np.ndarray:
    if kind != 'box':
        return np.log(probabilities(actor, data.obs)[np.arange(len(data.action)), data.action])
    noise = (data.action - actor(data.obs)) / np.exp(log_std)
    return (-0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)


@pytest.mark.parametrize('kind', SPACES)
def test_one_update_by_finite_differences(kind):
    """Critics, then the policy by the critics that have moved: algorithm 1, equations 2 and 13."""
    agent, data = make(kind, optimizers_list=[SGD] * 2, tau=0.1, lam=0.7), batch_of(kind)
    agent.reseed(0, 'test')  # with other noise a unit may be so near to its kink that differences cross it
    seed = agent.noise_seed + [0, 2]
    actor, *critics = map(NumpyNetwork, agent.networks.values())
    targets = [NumpyNetwork(target) for target in agent.targets]
    before = [copies(network.variables) for network in agent.targets]
    next_value = expected_value(kind, actor, targets, data.next_obs, seed)
    target = data.reward + 0.99 * ~data.terminated * next_value
    for critic in critics:

        def critic_loss(critic: NumpyNetwork = critic) -> float:
            return np.mean((value(kind, critic, data) - target) ** 2)

        gradients = finite_differences(critic_loss, critic.weights)
        critic.weights = [w - 0.1 * g for w, g in zip(critic.weights, gradients, strict=True)]
    q = np.minimum(*(value(kind, critic, data) for critic in critics))
    advantage = q - expected_value(kind, actor, critics, data.obs, seed + 1)
    weight = np.exp(advantage / 0.7) / np.exp(advantage / 0.7).mean()
    log_std = np.float64(LOG_STD)
    trained = [*actor.weights, log_std]
    gradients = finite_differences(lambda: -np.mean(weight * log_prob(kind, actor, log_std, data)), trained)
    moved = [w - 0.1 * g for w, g in zip(trained, gradients, strict=True)]

    metrics = agent.update_on(lead(data))
    for network, reference in zip(agent.critics, critics, strict=True):
        assert_close(network.variables, reference.weights)
    assert_close(agent.networks['actor'].variables, moved[:-1])
    if kind == 'box':
        assert_close([agent.policy.log_std], [np.clip(moved[-1], -6.0, 0.0)])
    assert metrics['advantage'] == pytest.approx(advantage.mean(), rel=1e-4)
    assert metrics['q'] == pytest.approx(target.mean(), rel=1e-4)
    for network, source, old in zip(agent.targets, agent.critics, before, strict=True):
        assert_close(network.variables, [0.9 * a + 0.1 * b.numpy() for a, b in zip(old, source.variables, strict=True)])


def test_terminated_takes_the_reward_alone_and_truncated_bootstraps():
    agent, data, seed = make(), box_batch(), tf.constant([3, 4])
    target = agent.critic_target(data, seed).numpy()
    np.testing.assert_array_equal(target[data.terminated], data.reward[data.terminated])
    assert np.abs(target - data.reward)[~data.terminated].min() > 1e-4


def test_forbidden_actions_count_for_nothing():
    agent, data, seed = make('masked'), discrete_batch(masked=True), tf.constant([3, 4])
    data.obs['action_mask'][:, 2] = 0
    before = agent.expected(agent.critics, data.obs, seed)
    for critic in agent.critics:
        critic.variables[-1].assign_add([0.0, 0.0, 1000.0])
    np.testing.assert_allclose(agent.expected(agent.critics, data.obs, seed), before, rtol=1e-6)


def test_a_small_temperature_imitates_the_better_of_two_actions():
    """In one state the data have −0.8 with the reward 0 and 0.8 with the reward 1, and the episode ends."""
    found = {}
    for lam in (0.05, 100.0):
        agent = AWAC(VECTOR, ACTION, net_list=specs(3, hidden=[16]), lam=lam)
        data, good = box_batch(64), np.arange(64) % 2
        action = np.stack([1.6 * good - 0.8, np.zeros(64)], -1).astype(np.float32)
        data = data._replace(
            obs=np.zeros_like(data.obs),
            action=action,
            reward=good.astype(np.float32),
            discount=np.zeros(64, np.float32),
        )
        for _ in range(150):
            agent.update_on(lead(*[data] * 10))
        found[lam] = agent.act(data.obs[:1], deterministic=True)[0, 0]
    assert found[0.05] == pytest.approx(0.8, abs=0.1)
    assert found[100.0] == pytest.approx(0.0, abs=0.15)  # clones the mixture: its mean


def test_log_std_begins_and_stays_within_its_bounds():
    agent = AWAC(VECTOR, ACTION, net_list=specs(3))
    np.testing.assert_array_equal(agent.policy.log_std, [-3.0, -3.0])
    agent.policy.log_std.assign([-20.0, 20.0])
    agent.update_on(lead(box_batch()))
    np.testing.assert_array_equal(agent.policy.log_std, [-6.0, 0.0])
