"""CrossQ: one update against NumPy, what moves when, and what it makes of networks with a training mode."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import toys
from gymnasium.spaces import Box
from reference import assert_close, copies, finite_differences, stir

import zoo
from zoo.algorithms import CrossQ
from zoo.algorithms.base import saving
from zoo.callbacks import Evaluate
from zoo.common.env_wrappers import build_env
from zoo.common.networks.layers.batch_renorm import BatchRenormalization
from zoo.common.records import Batch, Transition

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
ACTION = Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0]))
SGD = {'name': 'SGD', 'learning_rate': 0.1}

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(stirred: bool = True, **params: Any) -> CrossQ:
    """An agent of small networks, all of whose weights and moving statistics differ, past the warm-up."""
    specs = [{'hidden': [5], 'seed': i, 'activation': 'tanh', 'normalize': 'batch_renorm'} for i in range(3)]
    agent = CrossQ(VECTOR, ACTION, **{'net_list': specs} | params)
    if stirred:
        for i, network in enumerate(agent.networks.values()):
            stir(network.trainable_variables, seed=i, scale=0.3)
            for layer in norms(network):
                stir([layer.moving_mean.value], seed=i, scale=0.3)
                layer.moving_variance.assign(layer.moving_variance * (1.2 + 0.1 * i))
                layer.warmup_steps = 0
        agent.log_alpha.assign(-0.7)
        agent.forward.refresh()
    return agent


def norms(network: Any) -> list[BatchRenormalization]:
    return [layer for layer in network.torso.layers if isinstance(layer, BatchRenormalization)]


def batch(size: int = 8, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch.of(
        Transition(
            rng.normal(size=(size, 3)).astype(np.float32),
            rng.uniform(-1, 1, (size, 2)).astype(np.float32),
            rng.normal(size=size).astype(np.float32),
            (0.5 + rng.normal(size=(size, 3))).astype(np.float32),
            np.arange(size) % 4 >= 2,
            np.arange(size) % 2 == 1,
        ),
        0.99,
    )


def lead(*data: Batch) -> Batch:
    return tf.nest.map_structure(lambda *x: np.stack([np.asarray(y) for y in x]), *data)


class Reference:
    """A network of batch renormalisation, a dense layer of tanh, another one, and a linear head, in float64."""

    def __init__(self, network: Any) -> None:
        torso, (head,) = network.torso.layers, network.head.layers
        self.norms = [torso[0], torso[2]]
        self.moving = [[np.float64(x.numpy()) for x in (n.moving_mean, n.moving_variance)] for n in self.norms]
        layers = [torso[0].gamma, torso[0].beta, torso[1].kernel, torso[1].bias, torso[2].gamma, torso[2].beta]
        self.keras = [*layers, head.kernel, head.bias]
        self.weights = [np.float64(x.numpy()) for x in self.keras]
        self.corrections: list[Any] = [None, None]

    def _norm(self, i: int, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, training: bool) -> np.ndarray:
        mean, variance = self.moving[i]
        if not training:
            return gamma * (x - mean) / np.sqrt(variance + 1e-3) + beta
        if self.corrections[i] is None:  # r and d are constants of the gradient
            r = np.sqrt((x.var(0) + 1e-3) / (variance + 1e-3))
            d = (x.mean(0) - mean) / np.sqrt(variance + 1e-3)
            self.corrections[i] = np.clip(r, 1 / 3, 3), np.clip(d, -5, 5)
            self.moving[i] = [0.99 * mean + 0.01 * x.mean(0), 0.99 * variance + 0.01 * x.var(0)]
        r, d = self.corrections[i]
        return gamma * ((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3) * r + d) + beta

    def __call__(self, *inputs: np.ndarray, training: bool = False) -> np.ndarray:
        g0, b0, k0, c0, g1, b1, k1, c1 = self.weights
        x = self._norm(0, np.concatenate([np.float64(x) for x in inputs], -1), g0, b0, training)
        return self._norm(1, np.tanh(x @ k0 + c0), g1, b1, training) @ k1 + c1

    def step(self, loss: Any) -> None:
        """Gradient descent; what training mode learns, it learns once, before."""
        loss()
        gradients = finite_differences(loss, self.weights)
        self.weights = [w - 0.1 * g for w, g in zip(self.weights, gradients, strict=True)]

    def check(self) -> None:
        assert_close(self.keras, self.weights, 1e-3, 1e-4)
        for norm, (mean, variance) in zip(self.norms, self.moving, strict=True):
            assert_close([norm.moving_mean, norm.moving_variance], [mean, variance], 1e-4, 1e-5)


def draw(agent: CrossQ, size: int, seed: tf.Tensor) -> np.ndarray:
    return np.arctanh(np.float64(agent.action_adaptor.distribution.sample(tf.zeros([size, 4]), seed)))


def sample(actor: Reference, obs: np.ndarray, drawn: np.ndarray, training: bool) -> tuple[np.ndarray, np.ndarray]:
    mean, log_std = np.split(actor(obs, training=training), 2, -1)
    u = mean + np.exp(log_std) * drawn
    log_prob = -0.5 * drawn**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1.0 - np.tanh(u) ** 2)
    return np.tanh(u), log_prob.sum(-1)


def test_one_update_against_numpy():
    """Both critics by one joined batch, the actor by the critics that moved, the temperature by its entropy."""
    agent, data = make(optimizers_list=[SGD] * 3, policy_delay=1), batch()
    actor, *critics = (Reference(network) for network in agent.networks.values())
    seed, alpha = agent.noise_seed + [0, 2], np.exp(-0.7)
    next_action, log_prob = sample(actor, data.next_obs, draw(agent, 8, seed), training=False)
    obs, action = np.concatenate([data.obs, data.next_obs]), np.concatenate([data.action, next_action])
    next_q = np.minimum(*(critic(obs, action, training=True)[8:, 0] for critic in critics))
    target = data.reward + 0.99 * ~np.asarray(data.terminated) * (next_q - alpha * log_prob)
    critic_loss = 0.0
    for critic in critics:

        def loss(critic: Reference = critic) -> float:
            return 0.5 * np.mean((critic(obs, action, training=True)[:8, 0] - target) ** 2)

        critic_loss += loss()
        critic.step(loss)
    drawn = draw(agent, 8, seed + 1)

    def actor_loss() -> tuple[float, float, float]:
        action, log_prob = sample(actor, data.obs, drawn, training=True)
        q = np.minimum(*(critic(data.obs, action)[:, 0] for critic in critics))
        return np.mean(alpha * log_prob - q), -log_prob.mean(), q.mean()

    expected_actor, entropy, q = actor_loss()
    actor.step(lambda: actor_loss()[0])

    metrics = agent.update_on(lead(data))
    for reference in (*critics, actor):
        reference.check()
    assert float(agent.log_alpha) == pytest.approx(-0.7 - 0.1 * (entropy + 2.0), rel=1e-3)
    expected = {'critic': critic_loss, 'actor': expected_actor, 'entropy': entropy, 'q': q}
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name


def test_both_halves_are_in_the_moments_and_only_the_first_in_the_loss():
    agent, data = make(), batch()
    seed = tf.constant([1, 2])
    agent.critic_loss(data, seed)
    next_action, _ = agent.sample(data.next_obs, seed)
    joined = np.concatenate([np.concatenate([data.obs, data.next_obs]), np.concatenate([data.action, next_action])], -1)
    other = make()
    norm, before = norms(agent.critics[0])[0], norms(other.critics[0])[0]
    np.testing.assert_allclose(norm.moving_mean, 0.99 * before.moving_mean + 0.01 * joined.mean(0), rtol=1e-4)
    assert norm.steps.numpy() == 1


@pytest.mark.full
def test_actor_and_temperature_move_every_third_update():
    agent = make()
    assert agent.phases == agent.policy_delay == 3
    seen = []
    for i in range(6):
        actor, alpha = copies(agent.networks['actor'].variables), float(agent.log_alpha)
        critic = copies(agent.critics[1].trainable_variables)
        metrics = agent.update_on(lead(batch(seed=i)))
        moved = any((a != b).any() for a, b in zip(actor, copies(agent.networks['actor'].variables), strict=True))
        assert any((a != b).any() for a, b in zip(critic, copies(agent.critics[1].trainable_variables), strict=True))
        assert moved is (float(agent.log_alpha) != alpha) is (i % 3 == 2)
        seen.append(metrics['actor'])
    assert seen[0] == seen[1] == 0.0 != seen[2] == seen[3] == seen[4] != seen[5]
    assert norms(agent.networks['actor'])[0].steps.numpy() == 2
    assert norms(agent.critics[0])[0].steps.numpy() == 6


@pytest.mark.full
def test_many_in_one_call_are_many_calls():
    one, many = make(), make()
    many.restore_state(one.state())
    data = [batch(seed=i) for i in range(7)]
    for x in data:
        last = one.update_on(lead(x))
    together = many.update_on(lead(*data))
    assert together == pytest.approx(last, rel=1e-4, abs=1e-5)
    for name, value in one.state().items():
        np.testing.assert_allclose(many.state()[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_there_are_no_targets():
    agent = make()
    assert not any('target' in name for name in agent.state())
    assert 'tau' not in CrossQ.params()
    with pytest.raises(ValueError, match='tau'):
        make(tau=0.1)


def test_defaults():
    agent = CrossQ(VECTOR, ACTION)
    actor, *critics = agent.net_list
    assert [x['hidden'] for x in (actor, *critics)] == [[256, 256], [2048, 2048], [2048, 2048]]
    assert all(len(norms(network)) == 3 for network in agent.networks.values())
    assert all(entry == {'name': 'Adam', 'learning_rate': 1e-3, 'beta_1': 0.5} for entry in agent.optimizers_list)
    norm = norms(agent.critics[0])[0]
    assert (norm.momentum, norm.epsilon, norm.r_max, norm.d_max, norm.warmup_steps) == (0.99, 1e-3, 3.0, 5.0, 100_000)
    env = zoo.build_env('Pendulum-v1')
    params, _ = zoo.call_default_params(env, alg='CrossQ')
    assert [x['hidden'] for x in params['net_list']] == [[256, 256]] * 3
    assert all(x['normalize'] == 'batch_renorm' for x in params['net_list'])


def test_a_spec_that_does_not_say_is_normalised():
    assert [len(norms(x)) for x in CrossQ(VECTOR, ACTION, net_list=[{'hidden': [4]}] * 3).networks.values()] == [2] * 3
    given = [{'hidden': [4], 'normalize': None}] * 3
    agent = CrossQ(VECTOR, ACTION, net_list=given)
    assert not any(norms(x) for x in agent.networks.values())
    assert not any(norms(x) for x in copy.deepcopy(agent).networks.values())


def trained(agent: CrossQ, count: int = 4, first: int = 0) -> CrossQ:
    for i in range(first, first + count):
        agent.update_on(lead(batch(seed=i)))
    return agent


OBS = np.random.default_rng(9).normal(size=(50, 3)).astype(np.float32)


@pytest.mark.full
def test_acting_is_the_graph_in_inference_mode():
    agent = trained(make())
    assert agent.forward.numpy is not None, 'the normalisation is folded into the dense layers'
    found = agent.forward(OBS)
    np.testing.assert_allclose(found, agent.policy(OBS), atol=1e-5)
    agent.forward.refresh()
    np.testing.assert_array_equal(agent.forward(OBS), found, 'what an update gave is what is read')
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(agent.forward.numpy))(OBS), found)
    np.testing.assert_allclose(Reference(agent.networks['actor'])(OBS), agent.policy(OBS), atol=1e-5)
    other = make(stirred=False)
    other.forward.load(agent.forward.weights())
    np.testing.assert_array_equal(other.forward(OBS), agent.forward(OBS))


@pytest.mark.full
@pytest.mark.parametrize('how', ['saved', 'copied'])
def test_saved_or_copied_it_goes_on_as_if_uninterrupted(how, tmp_path):
    agent = trained(make(stirred=False))
    other = zoo.load(agent.save(tmp_path / 'saved')) if how == 'saved' else copy.deepcopy(agent)
    np.testing.assert_array_equal(other.predict(OBS), agent.predict(OBS))
    for x in (agent, other):
        trained(x, first=4)
    for name, value in agent.state().items():
        np.testing.assert_allclose(other.state()[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.full
def test_tests_in_between_change_nothing_of_the_training(monkeypatch):
    monkeypatch.setattr(
        'zoo.algorithms.base.updating.prefers_xla', lambda variables: True
    )  # it rounds otherwise than reading
    found = []
    for callbacks in ([], [Evaluate(every=110, episodes=1, keep_best=False)]):
        env = build_env('Pendulum-v1', 'classic_control')
        specs = [{'hidden': [8], 'seed': 1}] * 3
        agent = CrossQ(env.observation_space, env.action_space, net_list=specs, policy_delay=1)
        params = {'batch_size': 8, 'explore_steps': 50, 'update_every': 1, 'verbose': 0}
        result = agent.learn(env, train_steps=600, seed=3, run_dir=False, callbacks=callbacks, **params)
        found.append((result.returns, saving.arrays(agent)))
    (returns, arrays), (others, tested) = found
    assert returns == others
    for name, value in arrays.items():
        np.testing.assert_array_equal(tested[name], value, name)


@pytest.mark.full
def test_mixed_precision(monkeypatch):
    monkeypatch.setattr('zoo.common.networks.layers.dense.NARROW', 0)
    specs = [{'hidden': [32, 32], 'seed': i, 'normalize': 'batch_renorm', 'activation': 'relu'} for i in range(3)]
    plain = make(False, net_list=specs)
    mixed = make(False, net_list=[spec | {'dtype': 'mixed_bfloat16'} for spec in specs])
    mixed.restore_state(plain.state())
    assert all(network.mixed for network in mixed.networks.values())
    assert all(norm.compute_dtype == 'float32' for norm in norms(mixed.critics[0]))
    found, expected = (agent.update_on(lead(batch(64))) for agent in (mixed, plain))
    assert found['critic'] != expected['critic'] and found['critic'] == pytest.approx(expected['critic'], rel=0.02)
    assert {v.dtype for v in mixed.trainable_variables} == {tf.float32}


class TestNetworksOfTheUser:
    def modal(self, i: int, drop: float = 0.3) -> keras.Model:
        layers = [keras.layers.Dense(8, 'tanh'), keras.layers.BatchNormalization(), keras.layers.Dropout(drop, seed=i)]
        return keras.Sequential(layers)

    def test_statistics_are_learned_once_an_update_from_the_joined_batch(self):
        agent = CrossQ(VECTOR, ACTION, net_list=[self.modal(i, 0.0) for i in range(3)], policy_delay=2)
        data = batch()
        actor, critic, _ = (network.torso.layers for network in agent.networks.values())
        kernel, bias = (np.float64(x.numpy()) for x in (critic[0].kernel, critic[0].bias))
        next_action, _ = agent.sample(data.next_obs, agent.noise_seed + [0, 2])
        obs, action = np.concatenate([data.obs, data.next_obs]), np.concatenate([data.action, next_action])
        hidden = np.tanh(np.concatenate([obs, action], -1) @ kernel + bias)
        agent.update_on(lead(data))
        np.testing.assert_allclose(critic[1].moving_mean, 0.01 * hidden.mean(0), rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(critic[1].moving_variance, 0.99 + 0.01 * hidden.var(0), rtol=1e-4)
        assert np.abs(actor[1].moving_mean).max() == 0, 'the actor chooses next actions in inference mode'
        critic_mean = critic[1].moving_mean.numpy()
        hidden = np.tanh(data.obs @ np.float64(actor[0].kernel) + np.float64(actor[0].bias))
        batch_of = agent.actor_loss(data, tf.constant([1, 2]))
        assert np.isfinite(batch_of[0])
        np.testing.assert_allclose(actor[1].moving_mean, 0.01 * hidden.mean(0), rtol=1e-3, atol=1e-6)
        np.testing.assert_array_equal(critic[1].moving_mean, critic_mean, 'critics judge in inference mode')

    @pytest.mark.full
    def test_dropout_drops_in_updates_alone(self):
        agent = CrossQ(VECTOR, ACTION, net_list=[self.modal(i) for i in range(3)])
        trained(agent, 3)
        np.testing.assert_array_equal(agent.policy(OBS), agent.policy(OBS))
        np.testing.assert_allclose(agent.forward(OBS), agent.policy(OBS), atol=1e-6)
        drawn = [network.torso.layers[2].seed_generator.state.numpy()[1] for network in agent.networks.values()]
        assert min(drawn) > 0

    @pytest.mark.full
    def test_a_chain_with_batch_renormalization_is_acted_on_in_numpy(self):
        layers = [BatchRenormalization(), keras.layers.Dense(6, 'relu', use_bias=False), BatchRenormalization()]
        agent = CrossQ(VECTOR, ACTION, net_list=[keras.Sequential(layers), {'hidden': [4]}, {'hidden': [4]}])
        trained(agent)
        assert agent.forward.numpy is not None
        np.testing.assert_allclose(agent.forward(OBS), agent.policy(OBS), atol=1e-5)
        ends = keras.Sequential([keras.layers.Dense(4), BatchRenormalization()])
        complete = CrossQ(VECTOR, ACTION, net_list=[ends, {'hidden': [4]}, {'hidden': [4]}])
        assert complete.forward.numpy is None
        np.testing.assert_allclose(complete.forward(OBS), complete.policy(OBS), atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize('kind', ['batch_renorm', 'BatchNormalization'])
def test_moving_statistics_are_the_mean_over_learners(kind):
    """With the weights of both learners equal after a step, so are their moving statistics, in the middle."""

    def entry(i: int) -> Any:
        if kind == 'batch_renorm':
            return {'hidden': [5], 'seed': i, 'normalize': kind}
        keras.utils.set_random_seed(i)
        return keras.Sequential([keras.layers.Dense(5), keras.layers.BatchNormalization()])

    def moving(agent: CrossQ) -> list[np.ndarray]:
        return [v.numpy() for network in agent.networks.values() for v in network.moving_variables]

    agent = make(False, net_list=[entry(i) for i in range(3)], policy_delay=1)
    assert len(moving(agent)) == (12 if kind == 'batch_renorm' else 6)
    start = agent.state()
    alone = []
    for seed in (0, 1):
        agent.restore_state(start)
        agent.update_on(lead(batch(seed=seed)))
        alone.append(moving(agent))
    sent: list[np.ndarray] = []
    agent.restore_state(start)
    agent.learn_together(lambda x, op: (sent.append(x.copy()), x)[1])
    agent.update_on(lead(batch(seed=0)))
    others, sent = sent, []
    agent.restore_state(start)

    def with_the_other(x: np.ndarray, op: str) -> np.ndarray:
        sent.append(x)
        return (0.5 * (x + others[len(sent) - 1])).astype(np.float32)

    agent.learn_together(with_the_other)
    agent.update_on(lead(batch(seed=1)))
    assert len(sent) == len(others) == 3, 'one exchange for each optimizer'
    critics = slice(len(alone[0]) // 3, None)  # the actor's second batch comes through other critics, but not its own
    for found, a, b in zip(moving(agent)[critics], alone[0][critics], alone[1][critics], strict=True):
        np.testing.assert_allclose(found, (a + b) / 2, rtol=1e-5, atol=1e-6)
    assert any(np.abs(a - b).max() > 1e-4 for a, b in zip(*alone, strict=True))


@pytest.mark.full
@pytest.mark.parametrize('observation', ['nested Dict', 'image', 'large Discrete'])
def test_other_observations_are_normalised_before_the_hidden_layers(observation):
    space = toys.OBSERVATIONS[observation]
    spec = {'hidden': [8], 'features': 8, 'normalize': 'batch_renorm'}
    agent = CrossQ(space, ACTION, net_list=[spec] * 3, policy_delay=1)
    env = zoo.build_env(toys.AnySpaces(space, ACTION), 'gymnasium', seed=0)
    agent.learn(env, run_dir=False, verbose=0, train_steps=14, explore_steps=6, batch_size=4, buffer_size=20, seed=0)
    for network in agent.networks.values():
        assert [norm.name for norm in norms(network)] == ['input_norm', 'hidden0_norm']
        for norm in norms(network):
            assert np.abs(norm.moving_mean).max() > 0 and norm.steps.numpy() == agent.updates > 5


def test_a_critic_without_normalization_is_told_of(caplog):
    make()
    assert not caplog.records
    dense = keras.layers.Dense(4, 'relu')
    make(
        net_list=[
            {'hidden': [5], 'normalize': None},  # of the actor, which has no target in SAC either
            {'hidden': [5], 'normalize': None},
            keras.Sequential([keras.layers.Dense(4), keras.layers.BatchNormalization()]),
        ],
        stirred=False,
    )
    make(net_list=[{'hidden': [5]}, {'hidden': [5]}, keras.Sequential([dense])], stirred=False)
    warned = [record.getMessage() for record in caplog.records if record.levelname == 'WARNING']
    assert len(warned) == 2
    assert warned[0].startswith('net_list[1] (critic_1) is not normalized over the batch, which stands in for')
    assert warned[1].startswith('net_list[2] (critic_2) is not normalized over the batch, which stands in for')
