"""OffPAC: importance weights, the losses and one update computed again by NumPy; how it explores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import toys
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir
from rollouts import log_softmax

import zoo
from zoo.algorithms import OffPAC
from zoo.common.records import Batch, Transition

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = 3
SGD = [{'name': 'SGD', 'learning_rate': 0.1}] * 3

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(action_space: Any = None, space: Any = VECTOR, **params: Any) -> OffPAC:
    """An agent with small networks whose biases are not zero."""
    params = {'net_list': [{'hidden': [5], 'seed': i} for i in range(3)], 'optimizers_list': SGD} | params
    agent = OffPAC(space, action_space or Discrete(ACTIONS), **params)
    for i, network in enumerate([*agent.networks.values(), agent.target]):
        stir(network.variables, seed=i)
    agent.forward.refresh()
    return agent


def batch(size: int = 8) -> Batch:
    rng = np.random.default_rng(0)
    return Batch.of(
        Transition(
            obs=rng.normal(size=(size, 3)).astype(np.float32),
            action=rng.integers(ACTIONS, size=size).astype(np.int32),
            reward=rng.normal(size=size).astype(np.float32),
            next_obs=rng.normal(size=(size, 3)).astype(np.float32),
            terminated=np.arange(size) % 3 == 0,
            truncated=np.arange(size) % 4 == 1,
        ),
        0.9,
    )


@pytest.mark.full(but='1.3')
@pytest.mark.parametrize('rho_bar', [1.0, 1.3])
def test_one_update_computed_again(rho_bar):
    agent, data = make(rho_bar=rho_bar, tau=0.1, entropy_coef=0.2, gamma=0.9), batch()
    actor, critic, behavior = (NumpyNetwork(network) for network in agent.networks.values())
    old_target, rows = NumpyNetwork(agent.target), np.arange(8)

    def log_prob(network: NumpyNetwork) -> np.ndarray:
        return log_softmax(network(data.obs))[rows, data.action]

    ratio = np.exp(log_prob(actor) - log_prob(behavior))
    rho = np.minimum(ratio, rho_bar)
    assert (ratio > rho_bar).any() and (ratio < rho_bar).any()
    target = data.reward + 0.9 * ~data.terminated * old_target(data.next_obs)[:, 0]
    delta = target - critic(data.obs)[:, 0]

    def actor_loss() -> float:
        log_probs = log_softmax(actor(data.obs))
        entropy = -(np.exp(log_probs) * log_probs).sum(-1).mean()
        return -np.mean(rho * delta * log_probs[rows, data.action]) - 0.2 * entropy

    def critic_loss() -> float:
        return 0.5 * np.mean(rho * (critic(data.obs)[:, 0] - target) ** 2)

    def behavior_loss() -> float:
        return -np.mean(log_prob(behavior))

    losses = (actor, actor_loss), (critic, critic_loss), (behavior, behavior_loss)
    expected = {'actor': actor_loss(), 'critic': critic_loss(), 'behavior': behavior_loss(), 'rho': rho.mean()}
    for network, loss in losses:
        for weight, gradient in zip(network.weights, finite_differences(loss, network.weights), strict=True):
            weight -= 0.1 * gradient
    before = copies(agent.target.variables)
    metrics = agent.update_on(Batch(*(x[None] for x in data)))
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-4, abs=1e-5)
    for network, (by_hand, _) in zip(agent.networks.values(), losses, strict=True):
        assert_close(network.variables, by_hand.weights, 1e-4, 1e-5)
    moved = [0.9 * old + 0.1 * new for old, new in zip(before, critic.weights, strict=True)]
    assert_close(agent.target.variables, moved, 1e-4, 1e-5)


class TestExploring:
    def test_with_explore_1_all_actions_are_alike_and_none_that_is_forbidden_is_taken(self):
        agent = make(space=Dict(x=VECTOR, action_mask=MultiBinary(ACTIONS)), explore=1.0)
        agent.policy.network.variables[-1].assign([50.0, 0.0, 0.0])
        agent.forward.refresh()
        agent.rng = np.random.default_rng(0)
        mask = np.ones((6000, ACTIONS), np.int8)
        mask[3000:, 0] = 0
        obs = {'x': np.zeros((6000, 3), np.float32), 'action_mask': mask}
        taken = agent.act(obs)
        np.testing.assert_allclose(np.bincount(taken[:3000]) / 3000, 1 / 3, atol=0.03)
        np.testing.assert_allclose(np.bincount(taken[3000:]) / 3000, [0.0, 0.5, 0.5], atol=0.03)
        assert (agent.act(obs, deterministic=True)[:3000] == 0).all()

    @pytest.mark.parametrize('explore', [0.0, 0.5])
    def test_rollouts_have_the_probabilities_of_a_policy_that_acted_alone(self, explore):
        agent = make(toys.ACTIONS['Box'], explore=explore)
        rollout = agent.rollout(toys.AnySpaces(VECTOR, toys.ACTIONS['Box']), steps=4)
        assert (rollout.log_prob is None) is (explore > 0)

    def test_a_part_of_the_actions(self):
        agent = make(toys.ACTIONS['Dict'], explore=0.5)
        agent.policy.network.variables[-1].assign([0.0, 0.0, 0.0, 0.0, 50.0, 0.0, 0.0])  # of the grip the first
        agent.forward.refresh()
        agent.rng = np.random.default_rng(0)
        taken = agent.act(np.zeros((4000, 3), np.float32))
        grip = taken['grip']
        assert np.mean(grip != 0) == pytest.approx(0.5 * 2 / 3, abs=0.03)


@pytest.mark.full
def test_the_estimate_finds_the_policy_that_acted():
    """b is learned from the actions alone, and is not the policy's own."""
    agent = make(optimizers_list=[{'learning_rate': 0.0}, {'learning_rate': 0.0}, {'learning_rate': 0.02}])
    rng = np.random.default_rng(0)
    data = batch(64)
    for _ in range(30):
        action = rng.choice(3, p=[0.7, 0.2, 0.1], size=(10, 64)).astype(np.int32)
        many = Batch(*(np.repeat(x[None], 10, 0) for x in data))
        agent.update_on(many._replace(action=action))
    found = np.exp(log_softmax(agent.estimate(data.obs).numpy())).mean(0)
    np.testing.assert_allclose(found, [0.7, 0.2, 0.1], atol=0.06)


@pytest.mark.full
def test_learns_from_recorded_episodes(tmp_path):
    """What another agent did, in a file, is in the replay buffer before the first step."""
    env = zoo.build_env('CartPole-v1', seed=0)
    agent = OffPAC(env.observation_space, env.action_space, net_list=[{'hidden': [4]}] * 3, explore=1.0)
    path = zoo.record_episodes(agent, env, tmp_path / 'episodes.npz', 3, deterministic=False, seed=0)
    few = {'train_steps': 20, 'explore_steps': 0, 'batch_size': 4, 'buffer_size': 500}
    agent.learn(env, recorded=path, run_dir=False, verbose=0, **few)
    assert agent.replay.recorded > 20 and agent.updates == 20
