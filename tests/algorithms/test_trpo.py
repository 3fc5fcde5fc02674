"""TRPO: conjugate gradient, Fisher-vector products, the line search, and a whole iteration computed again by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir
from rollouts import gae_by_hand, log_softmax, rollout

from zoo.algorithms import TRPO
from zoo.algorithms.trpo import conjugate_gradient

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = 3
SGD = [{'name': 'SGD', 'learning_rate': 0.05}]

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(action_space: Any = None, **params: Any) -> TRPO:
    """An agent with small networks whose biases are not zero."""
    params = {'net_list': [{'hidden': [4], 'seed': i} for i in range(2)], 'optimizers_list': SGD} | params
    agent = TRPO(VECTOR, action_space or Discrete(ACTIONS), **params)
    stir(agent.policy.network.variables, seed=1)
    stir(agent.critic.variables, seed=2)
    agent.forward.refresh()
    return agent


def jacobian(function: Any, weights: list[np.ndarray], step: float = 1e-6) -> np.ndarray:
    """The derivatives ``[..., weights]`` of an array by central differences."""
    columns = []
    for weight in weights:
        for index in np.ndindex(weight.shape):
            kept = weight[index]
            weight[index] = kept + step
            above = function()
            weight[index] = kept - step
            columns.append((above - function()) / (2 * step))
            weight[index] = kept
    return np.stack(columns, -1)


def fisher_matrix(actor: NumpyNetwork, obs: np.ndarray, log_std: np.ndarray | None = None) -> np.ndarray:
    """mean over states of Jᵀ M J, M that of the distribution: diag(p) − p pᵀ of logits, 1 / σ² of means, 2 of log σ."""
    slopes = jacobian(lambda: actor(obs), actor.weights)
    if log_std is None:
        p = np.exp(log_softmax(actor(obs)))
        middle = p[:, :, None] * np.eye(p.shape[1]) - p[:, :, None] * p[:, None, :]
        return np.einsum('bki,bkl,blj->ij', slopes, middle, slopes) / len(obs)
    means = np.einsum('bki,k,bkj->ij', slopes, np.exp(-2 * log_std), slopes) / len(obs)
    found = np.zeros([len(means) + len(log_std)] * 2)
    found[: len(means), : len(means)] = means
    found[len(means) :, len(means) :] = 2 * np.eye(len(log_std))
    return found


def test_conjugate_gradient_solves():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(12, 12))
    matrix, b = np.float32(root @ root.T + np.eye(12)), np.float32(rng.normal(size=12))
    x = conjugate_gradient(lambda v: tf.linalg.matvec(matrix, v), tf.constant(b), 40)
    np.testing.assert_allclose(x, np.linalg.solve(np.float64(matrix), b), rtol=1e-3, atol=1e-4)
    # After one iteration it is the best along b, and of b = 0 nothing.
    one = conjugate_gradient(lambda v: tf.linalg.matvec(matrix, v), tf.constant(b), 1)
    np.testing.assert_allclose(one, b * (b @ b) / (b @ matrix @ b), rtol=1e-5)
    nothing = conjugate_gradient(lambda v: tf.linalg.matvec(matrix, v), tf.zeros(12), 5)
    np.testing.assert_array_equal(nothing, np.zeros(12))


@pytest.mark.parametrize('kind', ['Discrete', 'Box'])
def test_fisher_vector_products(kind):
    agent = make(Discrete(ACTIONS) if kind == 'Discrete' else Box(-1.0, 1.0, (2,)), cg_damping=0.3, log_std_init=-0.4)
    data = rollout(agent)
    samples = agent.samples(
        tf.nest.map_structure(tf.constant, data._replace(state=(), begins=(), params=(), states=()))
    )
    obs = data.obs.reshape(20, 3)[data.valid.ravel()]
    log_std = None if kind == 'Discrete' else np.full(2, -0.4)
    matrix = fisher_matrix(NumpyNetwork(agent.policy.network), obs, log_std) + 0.3 * np.eye(agent_size(agent))
    vector = np.random.default_rng(1).normal(size=len(matrix)).astype(np.float32)
    np.testing.assert_allclose(agent.fisher_product(samples, vector), matrix @ vector, rtol=1e-3, atol=1e-4)


def agent_size(agent: TRPO) -> int:
    """The number of the policy's weights."""
    return sum(int(np.prod(v.shape)) for v in agent.policy.trainable_variables)


@pytest.mark.full(but='0.3')
@pytest.mark.parametrize('decay', [0.8, 0.3])
def test_an_iteration_computed_again(decay):
    """The policy's step with its line search, then the critic's minibatches."""
    agent = make(cg_iterations=60, cg_damping=0.05, target_kl=0.02, line_search_decay=decay, gamma=0.9)
    data, batches = rollout(agent), np.array([[0, 7, 3, 12, 19, 5], [2, 6, 1, 17, 4, 9]], np.int32)
    valid = data.valid.ravel()
    obs, action = data.obs.reshape(20, 3), data.action.reshape(20)
    actor, critic = NumpyNetwork(agent.policy.network), NumpyNetwork(agent.critic)
    values = [critic(x.reshape(20, 3))[:, 0].reshape(5, 4) for x in (data.obs, data.next_obs)]
    advantage = gae_by_hand(agent, data, *values).ravel()
    returns = advantage + values[0].ravel()
    adv = (advantage[valid] - advantage[valid].mean()) / (advantage[valid].std() + 1e-8)
    old = log_softmax(actor(obs))[valid]

    def loss() -> float:
        new = log_softmax(actor(obs))[valid]
        return -np.mean(np.exp(new - old)[np.arange(19), action[valid]] * adv)

    def divergence() -> float:
        return (np.exp(old) * (old - log_softmax(actor(obs))[valid])).sum(-1).mean()

    gradient = np.concatenate([g.ravel() for g in finite_differences(loss, actor.weights)])
    curved = fisher_matrix(actor, obs[valid]) + 0.05 * np.eye(len(gradient))
    direction = np.linalg.solve(curved, -gradient)
    full = np.sqrt(2 * 0.02 / (direction @ curved @ direction)) * direction
    before, start = loss(), [w.copy() for w in actor.weights]
    for k in range(10):
        offset = 0
        for weight, first in zip(actor.weights, start, strict=True):
            weight[...] = first + decay**k * full[offset : offset + first.size].reshape(first.shape)
            offset += first.size
        if loss() < before and divergence() <= 0.02:
            break
    expected = {'policy': loss(), 'kl': divergence(), 'step': decay**k}
    for rows in batches:
        gradients = finite_differences(
            lambda rows=rows: np.mean((critic(obs[rows])[:, 0] - returns[rows]) ** 2), critic.weights
        )
        for weight, slope in zip(critic.weights, gradients, strict=True):
            weight -= 0.05 * slope

    metrics = agent.take(agent.fused(data, {'target_kl': np.float32(0.02)}, batches))
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-2, abs=1e-4)
    assert_close(agent.policy.network.variables, actor.weights, 5e-3, 5e-4)
    assert_close(agent.critic.variables, critic.weights, 1e-3, 1e-4)
    np.testing.assert_allclose(agent.forward(obs), actor(obs), rtol=5e-3, atol=2e-3)


class TestTrustRegion:
    def test_steps_stay_in_it(self):
        agent, found = make(target_kl=0.003, cg_damping=1e-3), []
        for seed in range(6):
            data = rollout(agent, seed=seed)
            before = log_softmax(np.float64(agent.forward(data.obs.reshape(20, 3))))
            metrics = agent.update(data, critic_epochs=1, batch_size=10)
            after = log_softmax(np.float64(agent.forward(data.obs.reshape(20, 3))))
            kl = (np.exp(before) * (before - after)).sum(-1)[data.valid.ravel()].mean()
            assert kl == pytest.approx(metrics['kl'], abs=1e-5)
            found.append(kl)
        assert 0.001 < max(found) <= 0.003 + 1e-6

    def test_where_nothing_is_to_be_gained_the_policy_stays(self):
        agent = make()
        for variable in agent.critic.variables:
            variable.assign(tf.zeros_like(variable))
        data = rollout(agent)
        before = copies(agent.policy.trainable_variables)
        metrics = agent.update(data._replace(reward=np.zeros((5, 4), np.float32)), critic_epochs=1, batch_size=10)
        assert metrics['step'] == metrics['kl'] == 0.0
        for old, variable in zip(before, agent.policy.trainable_variables, strict=True):
            np.testing.assert_array_equal(old, variable)

    @pytest.mark.full
    def test_a_longer_search_finds_what_a_short_one_does_not(self):
        """With a curvature that is far too small for the region the first length is too long."""
        steps = []
        for tries in (1, 30):
            agent = make(target_kl=0.5, line_search_steps=tries, line_search_decay=0.5, cg_damping=0.0, cg_iterations=1)
            agent.policy.network.variables[0].assign_add(2.0 * tf.ones_like(agent.policy.network.variables[0]))
            steps.append(
                [agent.update(rollout(agent, seed=s), critic_epochs=1, batch_size=10)['step'] for s in range(6)]
            )
        assert 0.0 in steps[0] and all(x in (0.0, 1.0) for x in steps[0])
        assert 0.0 not in steps[1] and min(steps[1]) < 1.0


def test_weights_that_no_optimizer_moves_are_looked_after():
    """They are saved, decide on the compiler, and are seen where they are not finite."""
    agent = make(Box(-1.0, 1.0, (2,)))
    assert {id(v) for v in agent.policy.trainable_variables} < {id(v) for v in agent.trainable_variables}
    agent.policy.log_std.assign([np.nan, 0.0])
    assert not agent.weights_are_finite()
