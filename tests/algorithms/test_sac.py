"""SAC: the soft target, the three losses and their order, gradients by finite differences, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir
from toys import altered

from zoo.algorithms import SAC
from zoo.common.records import Batch, Transition

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
ACTION = Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0]))
SGD = {'name': 'SGD', 'learning_rate': 0.1}
SEED = tf.constant([3, 4])

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(**params: Any) -> SAC:
    """An agent whose networks all differ and whose temperature is not 1."""
    params = {'net_list': [{'hidden': [6], 'activation': 'tanh', 'seed': i} for i in range(3)]} | params
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


@pytest.mark.full(but='-5.0')
@pytest.mark.parametrize('entropy', [-5.0, -2.0, 3.0])
def test_alpha_loss_by_hand(entropy):
    agent = make()  # target entropy: minus the two entries of the action
    with tf.GradientTape() as tape:
        loss = agent.alpha_loss(tf.constant(entropy), agent.wanted_entropy(None))
    assert float(loss) == pytest.approx(-0.7 * (entropy + 2.0))
    assert float(tape.gradient(loss, agent.log_alpha)) == pytest.approx(entropy + 2.0)


def test_target_entropy():
    assert make().wanted_entropy(None) == -2.0
    assert make(target_entropy=-0.5).wanted_entropy(None) == -0.5
    assert SAC(VECTOR, Box(-1.0, 1.0, (2, 3))).wanted_entropy(None) == -6.0


def test_a_target_beyond_the_entropy_of_the_uniform_distribution_is_refused():
    assert make(target_entropy=1.386).wanted_entropy(None) == 1.386
    with pytest.raises(ValueError, match=r'^target_entropy is 5, but the greatest .* is 1\.3863, 2 times log 2, .*\.$'):
        make(target_entropy=5)


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
    for target, falls in ((-50.0, True), (1.38, False)):
        agent = make(target_entropy=target)
        before = float(agent.log_alpha)
        agent.update_on(lead(batch(256)))
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
    assert metrics['entropy'] == pytest.approx(entropy, rel=1e-3, abs=1e-5)
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


class TestDiscrete:
    """Three actions, with and without a mask that forbids the last one in every other state."""

    @pytest.fixture(params=[False, True], ids=['all allowed', 'masked'])
    def is_masked(self, request: pytest.FixtureRequest) -> bool:
        return request.param

    def make(self, is_masked: bool, **params: Any) -> SAC:
        space = Dict(action_mask=MultiBinary(3), pose=VECTOR) if is_masked else VECTOR
        agent = SAC(
            space,
            Discrete(3),
            **{'net_list': [{'hidden': [6], 'activation': 'tanh', 'seed': i} for i in range(3)]} | params,
        )
        for i, network in enumerate([*agent.networks.values(), *agent.targets]):
            stir(network.variables, seed=i, scale=0.3)
        if agent.alpha == 'auto':
            agent.log_alpha.assign(-0.7)
        agent.forward.refresh()
        return agent

    def mask(self, size: int) -> np.ndarray:
        return np.stack([np.ones(size), np.ones(size), np.arange(size) % 2]).T.astype(np.int8)

    def data(self, is_masked: bool, size: int = 8, seed: int = 0) -> Batch:
        rng = np.random.default_rng(seed)
        pose, next_pose = rng.normal(size=(2, size, 3)).astype(np.float32)
        mask, next_mask = self.mask(size), self.mask(size)[::-1].copy()
        return Batch.of(
            Transition(
                {'action_mask': mask, 'pose': pose} if is_masked else pose,
                rng.integers(2, size=size, dtype=np.int32),
                rng.normal(size=size).astype(np.float32),
                {'action_mask': next_mask, 'pose': next_pose} if is_masked else next_pose,
                np.arange(size) % 4 >= 2,
                np.arange(size) % 2 == 1,
            ),
            0.99,
        )

    def parts(self, obs: Any) -> tuple[np.ndarray, np.ndarray]:
        """Pose and which actions are allowed."""
        if isinstance(obs, dict):
            return obs['pose'], obs['action_mask'].astype(bool)
        return obs, np.ones((len(obs), 3), bool)

    def expected(self, actor: NumpyNetwork, critics: list[NumpyNetwork], obs: Any) -> tuple[np.ndarray, np.ndarray]:
        """Of each state the value and the entropy, summed over allowed actions in loops."""
        pose, allowed = self.parts(obs)
        logits, q = actor(pose), np.minimum(*(critic(pose) for critic in critics))
        values, entropies = [], []
        for row, values_of, may in zip(logits, q, allowed, strict=True):
            weights = {a: np.exp(row[a]) for a in range(3) if may[a]}
            prob = {a: weight / sum(weights.values()) for a, weight in weights.items()}
            values.append(sum(p * values_of[a] for a, p in prob.items()))
            entropies.append(-sum(p * np.log(p) for p in prob.values()))
        return np.array(values), np.array(entropies)

    def test_expectations(self, is_masked):
        agent, data = self.make(is_masked), self.data(is_masked, 64)
        found = agent.expectations(agent.critics, data.obs, SEED)
        critics = [NumpyNetwork(critic) for critic in agent.critics]
        expected = self.expected(NumpyNetwork(agent.networks['actor']), critics, data.obs)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    def test_a_forbidden_action_counts_for_nothing(self):
        agent, data = self.make(True), self.data(True)
        data.obs['action_mask'][:, 2] = 0
        before = agent.expectations(agent.critics, data.obs, SEED)
        for network in agent.networks.values():
            network.variables[-1].assign_add([0.0, 0.0, 1000.0])  # its logit and its values
        np.testing.assert_allclose(agent.expectations(agent.critics, data.obs, SEED), before, rtol=1e-6)
        with tf.GradientTape() as tape:
            loss = agent.actor_loss(data, SEED)[0]
        gradient = tape.gradient(loss, agent.networks['actor'].variables[-1]).numpy()
        assert gradient[2] == 0.0 and np.isfinite(gradient).all() and np.abs(gradient[:2]).max() > 0.0

    def test_one_action_that_is_left_has_no_entropy(self):
        agent, data = self.make(True), self.data(True)
        data.obs['action_mask'][:, :2] = 0
        data.obs['action_mask'][:, 2] = 1
        q, entropy = agent.expectations(agent.critics, data.obs, SEED)
        np.testing.assert_array_equal(entropy, np.zeros(8))
        np.testing.assert_allclose(q, np.minimum(*(critic(data.obs)[:, 2] for critic in agent.critics)), rtol=1e-6)

    def test_wanted_entropy_by_the_number_of_allowed_actions(self):
        """Half of log 3, or as much less as log 2 is less than log 3, or none; all where none is allowed."""
        agent = self.make(True)
        mask = np.array([[1, 1, 1], [0, 1, 1], [0, 1, 0], [0, 0, 0]], np.int8)
        found = agent.wanted_entropy({'action_mask': mask, 'pose': np.zeros((4, 3), np.float32)})
        np.testing.assert_allclose(found, 0.5 * np.log([3, 2, 1, 3]), rtol=1e-6, atol=1e-7)
        given = self.make(True, target_entropy=1.0)
        with pytest.raises(
            ValueError, match=r'^target_entropy is -1, but a policy over 3 actions has an entropy of 0 to'
        ):
            self.make(True, target_entropy=-1.0)
        found = given.wanted_entropy({'action_mask': mask, 'pose': np.zeros((4, 3), np.float32)})
        np.testing.assert_allclose(found, np.log([3, 2, 1, 3]) / np.log(3), rtol=1e-6, atol=1e-7)
        assert self.make(False).wanted_entropy(None) == pytest.approx(0.5 * np.log(3))
        assert SAC(VECTOR, Discrete(1)).wanted_entropy(None) == 0.0

    def test_a_target_that_no_policy_reaches_is_refused(self):
        with pytest.raises(
            ValueError,
            match=r'^target_entropy is 1\.0987, but the greatest .* over 3 actions is 1\.0986, .*: give less\.$',
        ):
            self.make(False, target_entropy=1.0987)
        assert self.make(False, target_entropy=1.098).wanted_entropy(None) == 1.098

    def test_one_update_by_finite_differences(self, is_masked):
        agent, data = self.make(is_masked, optimizers_list=[SGD] * 3, tau=0.1), self.data(is_masked)
        actor, alpha = NumpyNetwork(agent.networks['actor']), np.exp(-0.7)
        next_q, next_entropy = self.expected(actor, [NumpyNetwork(x) for x in agent.targets], data.next_obs)
        target = data.reward + 0.99 * ~data.terminated * (next_q + alpha * next_entropy)
        critics = [NumpyNetwork(critic) for critic in agent.critics]
        before_targets = [copies(network.variables) for network in agent.targets]
        pose, allowed = self.parts(data.obs)
        for critic in critics:

            def loss(critic: NumpyNetwork = critic) -> float:
                return 0.5 * np.mean((critic(pose)[np.arange(8), data.action] - target) ** 2)

            gradients = finite_differences(loss, critic.weights)
            critic.weights = [w - 0.1 * g for w, g in zip(critic.weights, gradients, strict=True)]

        def actor_loss() -> float:
            q, entropy = self.expected(actor, critics, data.obs)
            return -np.mean(q + alpha * entropy)

        q, entropy = self.expected(actor, critics, data.obs)
        loss_before, gradients = actor_loss(), finite_differences(actor_loss, actor.weights)
        moved_actor = [w - 0.1 * g for w, g in zip(actor.weights, gradients, strict=True)]
        assert max(np.abs(g).max() for g in gradients) > 0.01

        metrics = agent.update_on(lead(data))
        for critic, expected in zip(agent.critics, critics, strict=True):
            assert_close(critic.variables, expected.weights, 1e-3, 1e-4)
        assert_close(agent.networks['actor'].variables, moved_actor, 1e-3, 1e-4)
        wanted = 0.5 * np.log(allowed.sum(-1)).mean()
        moved_alpha = -0.7 - 0.1 * (entropy.mean() - wanted)
        assert float(agent.log_alpha) == pytest.approx(moved_alpha, rel=1e-4)
        found = [metrics[name] for name in ('actor', 'entropy', 'q', 'alpha')]
        np.testing.assert_allclose(found, [loss_before, entropy.mean(), q.mean(), np.exp(moved_alpha)], rtol=1e-3)
        for network, source, before in zip(agent.targets, agent.critics, before_targets, strict=True):
            moved = [0.9 * old + 0.1 * new.numpy() for old, new in zip(before, source.variables, strict=True)]
            assert_close(network.variables, moved)

    def test_acting_is_a_sample_of_the_allowed_and_the_likeliest_of_them(self, is_masked):
        agent, data = self.make(is_masked), self.data(is_masked, 2)
        obs = tf.nest.map_structure(lambda x: np.repeat(x, 4000, 0), data.obs)
        pose, allowed = self.parts(data.obs)
        weight = np.exp(NumpyNetwork(agent.networks['actor'])(pose)) * allowed
        prob = weight / weight.sum(-1, keepdims=True)
        agent.rng = np.random.default_rng(0)
        drawn = agent.act(obs).reshape(2, 4000)
        found = np.stack([(drawn == a).mean(-1) for a in range(3)], -1)
        np.testing.assert_allclose(found, prob, atol=0.03)
        assert (found[~allowed] == 0).all()
        np.testing.assert_array_equal(agent.act(data.obs, deterministic=True), prob.argmax(-1))
