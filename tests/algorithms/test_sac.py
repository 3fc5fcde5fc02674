"""SAC: the soft target, the three losses and their order, gradients by finite differences, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir
from toys import altered

from zoo.algorithms import SAC
from zoo.common.types import Batch, Transition

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
ACTION = Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0]))
SGD = {'name': 'SGD', 'learning_rate': 0.1}
SEED = tf.constant([3, 4])

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(**params: Any) -> SAC:
    """An agent whose networks all differ and whose temperature is not 1."""
    params = {'net_list': [{'hidden': [6], 'seed': i} for i in range(3)]} | params
    agent = SAC(VECTOR, ACTION, **params)
    for i, network in enumerate([*agent.networks.values(), *agent.targets]):
        stir(network.variables, seed=i, scale=0.3)
    if agent.alpha == 'auto':
        agent.log_alpha.assign(-0.7)
    agent.forward.refresh()
    return agent


def batch(size: int = 8, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch.of(
        Transition(
            rng.normal(size=(size, 3)).astype(np.float32),
            rng.uniform(-1, 1, (size, 2)).astype(np.float32),
            rng.normal(size=size).astype(np.float32),
            rng.normal(size=(size, 3)).astype(np.float32),
            np.arange(size) % 4 >= 2,
            np.arange(size) % 2 == 1,
        ),
        0.99,
    )


def lead(data: Batch) -> Batch:
    return tf.nest.map_structure(lambda x: np.asarray(x)[None], data)


def noise(agent: SAC, size: int, seed: tf.Tensor) -> np.ndarray:
    """The standard normal numbers behind ``sample``: its action where mean and log standard deviation are zero."""
    action = agent.action_adaptor.distribution.sample(tf.zeros([size, 4]), seed)
    return np.arctanh(np.float64(action))


def sample_by_hand(actor: NumpyNetwork, obs: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """tanh(mean + std · noise) and its log-density (appendix C of arXiv 1812.05905)."""
    mean, log_std = np.split(actor(obs), 2, -1)
    u = mean + np.exp(log_std) * drawn
    log_prob = -0.5 * drawn**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1.0 - np.tanh(u) ** 2)
    return np.tanh(u), log_prob.sum(-1)


def target_by_hand(agent: SAC, data: Batch, seed: tf.Tensor) -> np.ndarray:
    action, log_prob = sample_by_hand(
        NumpyNetwork(agent.networks['actor']), data.next_obs, noise(agent, len(data.reward), seed)
    )
    q = np.minimum(*(NumpyNetwork(target)(data.next_obs, action)[:, 0] for target in agent.targets))
    alpha = np.exp(agent.log_alpha.numpy())
    return data.reward + agent.gamma * ~data.terminated * (q - alpha * log_prob)


def test_sample():
    agent, data = make(), batch(64)
    action, log_prob = agent.sample(data.obs, SEED)
    expected = sample_by_hand(NumpyNetwork(agent.networks['actor']), data.obs, noise(agent, 64, SEED))
    np.testing.assert_allclose(action, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(log_prob, expected[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('params', [{}, {'gamma': 0.5}, {'alpha': 0.2}])
def test_critic_target(params):
    agent = make(**params)
    data = altered(batch(64), agent.gamma)
    expected = target_by_hand(agent, data, SEED)
    np.testing.assert_allclose(agent.critic_target(data, SEED), expected, rtol=1e-4, atol=1e-4)


def test_terminated_takes_the_reward_alone_and_truncated_bootstraps():
    agent, data = make(), batch(8)
    over = altered(data, terminated=np.ones(8, bool))
    np.testing.assert_array_equal(agent.critic_target(over, SEED), data.reward)
    going_on = altered(data, terminated=np.zeros(8, bool))
    cut, not_cut = going_on._replace(truncated=np.ones(8, bool)), going_on._replace(truncated=np.zeros(8, bool))
    np.testing.assert_array_equal(agent.critic_target(cut, SEED), agent.critic_target(not_cut, SEED))
    assert np.abs(agent.critic_target(cut, SEED) - data.reward).min() > 1e-4


def test_critic_loss_by_hand():
    agent, data = make(), batch()
    target = np.linspace(-1, 1, 8).astype(np.float32)
    q = [NumpyNetwork(critic)(data.obs, data.action)[:, 0] for critic in agent.critics]
    expected = 0.5 * np.mean((q[0] - target) ** 2) + 0.5 * np.mean((q[1] - target) ** 2)
    assert float(agent.critic_loss(data, target)) == pytest.approx(expected, rel=1e-5)


def actor_loss_by_hand(
    actor: NumpyNetwork, critics: list[NumpyNetwork], obs: np.ndarray, drawn: np.ndarray, alpha: float
) -> Any:
    action, log_prob = sample_by_hand(actor, obs, drawn)
    q = np.minimum(*(critic(obs, action)[:, 0] for critic in critics))
    return np.mean(alpha * log_prob - q), -log_prob.mean(), q.mean()


def test_actor_loss_by_hand():
    agent, data = make(), batch(32)
    found = agent.actor_loss(data, SEED)
    critics = [NumpyNetwork(critic) for critic in agent.critics]
    expected = actor_loss_by_hand(
        NumpyNetwork(agent.networks['actor']), critics, data.obs, noise(agent, 32, SEED), np.exp(-0.7)
    )
    np.testing.assert_allclose([float(x) for x in found], expected, rtol=1e-4, atol=1e-5)


def test_gradient_of_the_actor_loss_by_finite_differences():
    agent, data = make(), batch()
    variables = agent.networks['actor'].trainable_variables
    with tf.GradientTape() as tape:
        loss = agent.actor_loss(data, SEED)[0]
    found = tape.gradient(loss, variables)
    actor, critics = NumpyNetwork(agent.networks['actor']), [NumpyNetwork(critic) for critic in agent.critics]
    drawn = noise(agent, 8, SEED)
    expected = finite_differences(
        lambda: actor_loss_by_hand(actor, critics, data.obs, drawn, np.exp(-0.7))[0], actor.weights
    )
    assert_close(found, expected, rtol=2e-3, atol=2e-4)
    assert max(np.abs(g).max() for g in expected) > 0.05


@pytest.mark.parametrize('entropy', [-5.0, -2.0, 3.0])
def test_alpha_loss_by_hand(entropy):
    agent = make()  # target entropy: minus the two entries of the action
    with tf.GradientTape() as tape:
        loss = agent.alpha_loss(tf.constant(entropy), agent.wanted_entropy(None))
    assert float(loss) == pytest.approx(-0.7 * (entropy + 2.0))
    assert float(tape.gradient(loss, agent.log_alpha)) == pytest.approx(entropy + 2.0)


def test_target_entropy():
    assert make()._target_entropy == -2.0
    assert make(target_entropy=-0.5)._target_entropy == -0.5
    assert SAC(VECTOR, Box(-1.0, 1.0, (2, 3)))._target_entropy == -6.0


def test_a_target_for_a_fixed_temperature_is_said_to_change_nothing(caplog):
    make(alpha=0.2)
    make(target_entropy=-1.0)
    assert not caplog.records
    make(alpha=0.2, target_entropy=-1.0)
    assert 'alpha is fixed at 0.2, so target_entropy=-1 changes nothing.' in caplog.text


def test_alpha_is_tuned_from_one_or_fixed():
    assert float(tf.exp(SAC(VECTOR, ACTION).log_alpha)) == 1.0
    agent = make(alpha=0.2)
    for seed in range(3):
        assert agent.update_on(lead(batch(seed=seed)))['alpha'] == pytest.approx(0.2)


def test_alpha_moves_the_entropy_towards_its_target():
    for target, falls in ((-50.0, True), (50.0, False)):
        agent = make(target_entropy=target)
        before = float(agent.log_alpha)
        agent.update_on(lead(batch()))
        assert (float(agent.log_alpha) < before) is falls


def test_one_update_by_finite_differences():
    """Critics, then the actor on the critics that moved, the temperature by that sample's entropy, and the targets."""
    agent, data = make(optimizers_list=[SGD] * 3, tau=0.1), batch()
    seed = agent.noise_seed + [0, 2]
    target = target_by_hand(agent, data, seed)
    critics = [NumpyNetwork(critic) for critic in agent.critics]
    before_targets = [copies(network.variables) for network in agent.targets]
    for critic in critics:

        def loss(critic: NumpyNetwork = critic) -> float:
            return 0.5 * np.mean((critic(data.obs, data.action)[:, 0] - target) ** 2)

        gradients = finite_differences(loss, critic.weights)
        critic.weights = [w - 0.1 * g for w, g in zip(critic.weights, gradients, strict=True)]
    actor, drawn, alpha = NumpyNetwork(agent.networks['actor']), noise(agent, 8, seed + 1), np.exp(-0.7)
    _, entropy, q = actor_loss_by_hand(actor, critics, data.obs, drawn, alpha)
    gradients = finite_differences(lambda: actor_loss_by_hand(actor, critics, data.obs, drawn, alpha)[0], actor.weights)
    moved_actor = [w - 0.1 * g for w, g in zip(actor.weights, gradients, strict=True)]

    metrics = agent.update_on(lead(data))
    for critic, expected in zip(agent.critics, critics, strict=True):
        assert_close(critic.variables, expected.weights, 1e-3, 1e-4)
    assert_close(agent.networks['actor'].variables, moved_actor, 1e-3, 1e-4)
    assert float(agent.log_alpha) == pytest.approx(-0.7 - 0.1 * (entropy + 2.0), rel=1e-3)
    assert metrics['entropy'] == pytest.approx(entropy, rel=1e-3)
    assert metrics['q'] == pytest.approx(q, rel=1e-3, abs=1e-4)
    assert metrics['alpha'] == pytest.approx(float(np.exp(agent.log_alpha.numpy())), rel=1e-5)
    for network, source, before in zip(agent.targets, agent.critics, before_targets, strict=True):
        moved = [0.9 * old + 0.1 * new.numpy() for old, new in zip(before, source.variables, strict=True)]
        assert_close(network.variables, moved)


class TestActing:
    OBS = np.random.default_rng(1).normal(size=(4000, 3)).astype(np.float32)

    def test_deterministic_is_the_squashed_mean(self):
        agent = make()
        mean = NumpyNetwork(agent.networks['actor'])(self.OBS)[:, :2]
        np.testing.assert_allclose(agent.act(self.OBS, deterministic=True), np.tanh(mean), atol=1e-5)

    def test_otherwise_a_sample(self):
        agent = make()
        agent.rng = np.random.default_rng(0)
        mean, log_std = np.split(NumpyNetwork(agent.networks['actor'])(self.OBS), 2, -1)
        z = (np.arctanh(np.float64(agent.act(self.OBS))) - mean) / np.exp(log_std)
        np.testing.assert_allclose(z.mean(0), 0.0, atol=0.06)
        np.testing.assert_allclose(z.std(0), 1.0, atol=0.06)

    def test_the_bounds_of_the_space(self):
        agent = make()
        action = agent.predict(self.OBS, deterministic=False)
        assert (action >= ACTION.low).all() and (action <= ACTION.high).all()
        np.testing.assert_allclose(
            agent.predict(self.OBS), [0, 5] + [2, 5] * agent.act(self.OBS, deterministic=True), atol=1e-5
        )

    def test_log_standard_deviations_are_bounded(self):
        agent = make()
        bias = agent.networks['actor'].variables[-1]
        for value, bound in ((1e3, 2.0), (-1e3, -20.0)):
            bias.assign([0.0, 0.0, value, value])
            np.testing.assert_array_equal(agent.policy(self.OBS[:5])[:, 2:], np.full((5, 2), bound))
            agent.forward.refresh()
            np.testing.assert_array_equal(agent.forward(self.OBS[:5])[:, 2:], np.full((5, 2), bound))
