"""Agents with networks of the user's own: what Keras says of them holds while they learn, act, are saved and copied."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import toys
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Tuple

import zoo
from zoo import algorithms
from zoo.algorithms.base import Algorithm, saving
from zoo.common.networks.network import penalized
from zoo.common.records import Batch, Transition

VECTOR = toys.OBSERVATIONS['vector']
CLASSES = {name: getattr(algorithms, name) for name in algorithms.NAMES}
ACTIONS = {name: Box(-1.0, 1.0, (2,)) if 'Box' in cls.acts_in else Discrete(3) for name, cls in CLASSES.items()}
OFF_POLICY = tuple(name for name, cls in CLASSES.items() if cls.loop.experience == 'steps')
OBS = np.random.default_rng(3).normal(size=(5, 3)).astype(np.float32)


def make(name: str, build: Any = None, **params: Any) -> Algorithm:
    """An agent of small networks; ``build(i)`` gives the torso of each where it is given."""
    cls = getattr(algorithms, name)
    entries = [{'hidden': [8], 'seed': i} if build is None else build(i) for i in range(len(cls.network_names))]
    return cls(VECTOR, ACTIONS[name], net_list=entries, **params)


def learn(agent: Algorithm, steps: int = 60, seed: int | None = 0, **others: Any) -> Any:
    name = type(agent).__name__
    params = {'run_dir': False, 'verbose': 0, 'batch_size': 8, 'train_steps': steps}
    params |= {'explore_steps': 20, 'buffer_size': 50} if name in OFF_POLICY else {'horizon': 16, 'epochs': 2}
    env = zoo.build_env(toys.AnySpaces(VECTOR, ACTIONS[name]), 'gymnasium', seed=0)
    return agent.learn(env, seed=seed, **toys.fitted(agent, env, params | others))


def batches(agent: Algorithm, count: int = 2, size: int = 6, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    space = agent.action_space
    action = (
        rng.integers(3, size=(count, size))
        if isinstance(space, Discrete)
        else rng.uniform(-1, 1, (count, size, 2)).astype(np.float32)
    )
    return Batch.of(
        Transition(
            obs=(3.0 + rng.normal(size=(count, size, 3))).astype(np.float32),
            action=action,
            reward=rng.normal(size=(count, size)).astype(np.float32),
            next_obs=rng.normal(size=(count, size, 3)).astype(np.float32),
            terminated=rng.random((count, size)) < 0.2,
            truncated=np.zeros((count, size), bool),
        ),
        getattr(agent, 'gamma', 0.99),
    )


def optimizer_state(agent: Algorithm) -> dict[str, np.ndarray]:
    prefix = 'optimizer/q/'
    return {key.removeprefix(prefix): x for key, x in saving.arrays(agent).items() if key.startswith(prefix)}


def modal(i: int) -> keras.Model:
    """A torso with everything that has a training mode, penalties or constraints."""
    return keras.Sequential(
        [
            keras.layers.Dense(
                8, 'tanh', kernel_constraint='unit_norm', kernel_regularizer='l2', activity_regularizer='l2'
            ),
            keras.layers.Dropout(0.3, seed=i),
            keras.layers.BatchNormalization(),
        ]
    )


def output_of(agent: Algorithm) -> Any:
    """What the policy's network gives for `OBS`, as acting sees it; FQL's takes noise besides, which is zero here."""
    policy = getattr(agent, 'policy', None) or agent.networks[agent.network_names[0]]
    means = getattr(agent, 'means', lambda output: output)  # of distributions
    noise = [tf.zeros([len(OBS), 2])] if type(agent).__name__ == 'FQL' else []
    return means(policy(OBS, *noise))


def batch_norms(agent: Algorithm) -> dict[str, keras.layers.BatchNormalization]:
    return {name: network.torso.layers[2] for name, network in agent.networks.items()}


class TestTrainingMode:
    @pytest.mark.full
    @pytest.mark.parametrize(
        ('name', 'xla'),
        [
            pytest.param(name, xla, marks=[] if name in kept else [pytest.mark.matrix])
            for xla, kept in ((True, ('DQN', 'PPO')), (False, ('SAC', 'TD3')))
            for name in toys.WITH_LOSSES
        ],
    )
    def test_statistics_are_learned_constraints_hold_and_dropout_drops(self, request, name, xla, tmp_path):
        if not xla:
            request.getfixturevalue('plain_graphs')
        agent = make(name, modal)
        learn(agent)
        assert agent.fused.xla is xla
        assert agent.fused.traces == agent.phases
        for network, norm in zip(agent.networks.values(), batch_norms(agent).values(), strict=True):
            assert np.abs(norm.moving_mean.numpy()).max() > 1e-4
            kernel = network.torso.layers[0].kernel.numpy()
            np.testing.assert_allclose(np.linalg.norm(kernel, axis=0), 1.0, atol=1e-4)
            drawn = network.torso.layers[1].seed_generator.state.numpy()
            assert drawn[1] > 0, 'dropout has drawn numbers'
        learn(agent, seed=None)
        assert agent.fused.traces == agent.phases, 'one compiled call'
        check_acting_and_saving(agent, tmp_path)

    @pytest.mark.full
    @pytest.mark.usefixtures('plain_graphs')
    @pytest.mark.parametrize('name', toys.kinds(toys.WITH_LOSSES, ('DQN', 'PPO')))
    def test_specs_with_batch_renormalization(self, name, tmp_path):
        often = {'target_update_every': 1} if 'target_update_every' in getattr(algorithms, name).params() else {}
        agent = make(name, lambda i: {'hidden': [8], 'seed': i, 'normalize': 'batch_renorm'}, **often)
        learn(agent)
        for network in agent.networks.values():
            norm = network.torso.layers[-1]
            assert norm.name == 'hidden0_norm' and norm.steps.numpy() > 0
            assert norm.moving_mean.numpy().any()
            if network.target is not None:
                assert network.target.torso.layers[-1].steps.numpy() > 0
        policy = getattr(agent, 'policy', None) or agent.networks[agent.network_names[0]]
        # Behind it NumPy has plain layers alone, which take its scale and offset into their weights.
        assert (agent.forward.numpy is None) == bool(getattr(policy, 'streams', None))
        np.testing.assert_allclose(agent.forward(OBS), output_of(agent), atol=1e-5)
        np.testing.assert_array_equal(zoo.load(agent.save(tmp_path / 'saved')).predict(OBS), agent.predict(OBS))

    @pytest.mark.usefixtures('plain_graphs')
    def test_targets_have_the_statistics(self):
        agent = make('DQN', modal, target_update_every=1)
        agent.update_on(batches(agent))
        np.testing.assert_array_equal(agent.target.torso.layers[2].moving_mean, batch_norms(agent)['q'].moving_mean)

    @pytest.mark.usefixtures('plain_graphs')
    def test_acting_bootstraps_and_other_losses_draw_nothing_and_learn_nothing(self):
        agent = make('TD3', modal)
        before = [v.numpy() for network in agent.networks.values() for v in network.variables]
        agent.predict(OBS)
        agent.critic_target(tf.nest.map_structure(lambda x: tf.constant(x[0]), batches(agent)), tf.constant([1, 2]))
        after = [v.numpy() for network in agent.networks.values() for v in network.variables]
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)
        batch = tf.nest.map_structure(lambda x: tf.constant(x[0]), batches(agent))
        agent.actor_loss(batch)
        norms = batch_norms(agent)
        assert np.abs(norms['actor'].moving_mean.numpy()).max() > 0
        assert np.abs(norms['critic_1'].moving_mean.numpy()).max() == 0, 'not from actions of the policy'

    @pytest.mark.full
    @pytest.mark.usefixtures('plain_graphs')
    @pytest.mark.parametrize('name', toys.kinds(toys.WITH_LOSSES, ('DQN', 'PPO')))
    def test_the_same_seeds_give_the_same_weights(self, name):
        def weights() -> list[np.ndarray]:
            keras.utils.set_random_seed(1)
            agent = make(name, modal)
            learn(agent)
            return [v.numpy() for v in agent.trainable_variables]

        for a, b in zip(weights(), weights(), strict=True):
            np.testing.assert_array_equal(a, b)

    @pytest.mark.full
    @pytest.mark.usefixtures('plain_graphs')
    def test_after_save_and_load_as_if_uninterrupted(self, tmp_path):
        def trained(path: Path | None) -> list[np.ndarray]:
            keras.utils.set_random_seed(1)
            agent = make('DQN', modal)
            agent.update_on(batches(agent))
            if path is not None:
                agent = zoo.load(agent.save(path), net_list=[modal(17)])
            agent.update_on(batches(agent, seed=1))
            return [v.numpy() for v in agent.trainable_variables]

        for a, b in zip(trained(None), trained(tmp_path / 'saved'), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def check_acting_and_saving(agent: Algorithm, path: Path) -> None:
    """Acts in inference mode with the newest statistics, and so does what is loaded."""
    expected = output_of(agent)
    np.testing.assert_allclose(agent.forward(OBS), expected, atol=1e-5)
    other = make(type(agent).__name__, modal)
    other.forward.load(agent.forward.weights())
    np.testing.assert_allclose(other.forward(OBS), expected, atol=1e-5)
    entries = [modal(i) for i in range(len(agent.networks))]
    loaded = zoo.load(agent.save(path / 'saved'), net_list=entries)
    np.testing.assert_array_equal(loaded.predict(OBS), agent.predict(OBS))


class TestPenalties:
    @pytest.mark.full(but='DQN')
    @pytest.mark.parametrize('name', OFF_POLICY)
    def test_every_loss_has_those_of_the_networks_that_it_trains(self, plain_graphs, name):

        class Pays(keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.amount = tf.Variable(0.0, trainable=False)
                self.dense = keras.layers.Dense(4)

            def call(self, x: Any, training: bool = False) -> Any:
                self.add_loss(tf.identity(self.amount) if training else tf.constant(1e6))
                return self.dense(x)

        cls = CLASSES[name]
        amounts = [100.0, 20.0, 3.0, 7.0][: len(cls.network_names)]
        agent = make(name, lambda i: Pays())
        begun = saving.arrays(agent)

        def losses(amounts: list[float]) -> dict[str, float]:
            saving.assign(agent, begun)
            for network, amount in zip(agent.networks.values(), amounts, strict=True):
                network.torso.amount.assign(amount)
            metrics = agent.update_on(batches(agent, agent.phases))
            assert all(not network.torso.losses for network in agent.networks.values()), 'no tensor of a graph stays'
            return metrics

        plain, paid = losses([0.0] * len(amounts)), losses(amounts)
        assert agent.fused.traces == 1
        # A loss has the name of what it trains: 'critic' that of critic_1 and critic_2.
        trained = {network: network.rstrip('_0123456789') for network in cls.network_names}
        assert set(trained.values()) <= set(cls.metric_names)
        for loss in set(trained.values()):
            expected = sum(amount for network, amount in zip(trained, amounts, strict=True) if trained[network] == loss)
            assert paid[loss] - plain[loss] == pytest.approx(expected, abs=1e-3), loss

    @pytest.mark.full
    @pytest.mark.parametrize('name', toys.kinds(toys.WITH_LOSSES, ('PPO', 'TD3')))
    def test_regularised_weights_are_pulled_to_zero(self, plain_graphs, name):
        def torso(i: int) -> keras.Model:
            regularizer = keras.regularizers.L2(1e4)
            return keras.Sequential([keras.layers.Dense(6, 'tanh', kernel_regularizer=regularizer)])

        agent = make(name, torso, optimizers_list=None)
        sizes = {n: np.abs(network.torso.layers[0].kernel.numpy()).sum() for n, network in agent.networks.items()}
        learn(agent)
        for n, network in agent.networks.items():
            assert np.abs(network.torso.layers[0].kernel.numpy()).sum() < sizes[n] - 1e-3, n

    @pytest.mark.full
    @pytest.mark.parametrize('shared', [True, False])
    def test_ppo_by_one_step(self, plain_graphs, shared):
        def moved(rate: float) -> tuple[np.ndarray, np.ndarray]:
            keras.utils.set_random_seed(0)
            torso = keras.Sequential([keras.layers.Dense(6, kernel_regularizer=keras.regularizers.L2(rate))])
            critic = 'actor' if shared else {'hidden': [4], 'seed': 1}
            agent = algorithms.PPO(
                VECTOR, ACTIONS['PPO'], [torso, critic], [{'name': 'SGD', 'learning_rate': 0.01}], max_grad_norm=None
            )
            agent.rng = np.random.default_rng(0)
            before = torso.layers[0].kernel.numpy()
            learn(agent, 16, batch_size=16, epochs=1)
            return before, torso.layers[0].kernel.numpy()

        (before, plain), (same, paid) = moved(0.0), moved(0.5)
        np.testing.assert_array_equal(before, same)
        np.testing.assert_allclose(plain - paid, 0.01 * before, atol=1e-5)  # the gradient of 0.5 |w|² is w


class TestOtherKinds:
    @pytest.mark.full
    def test_a_module_that_takes_training_is_told(self, plain_graphs):
        seen = []

        class Told(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.kernel = tf.Variable(tf.ones([3, 3]))

            def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
                seen.append(training)
                return x @ self.kernel

        agent = algorithms.DQN(VECTOR, Discrete(3), net_list=[Told()])
        assert set(seen) == {False}
        agent.update_on(batches(agent, 1))
        assert set(seen) == {False, True}
        seen.clear()
        agent.predict(OBS)
        assert set(seen) == {False}

    @pytest.mark.full
    def test_what_xla_cannot_compile_runs_as_a_plain_graph(self, caplog):
        class Calls(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.kernel = tf.Variable(tf.ones([3, 3]))

            def __call__(self, x: tf.Tensor) -> tf.Tensor:
                doubled = tf.py_function(lambda x: 2.0 * x, [x], tf.float32)
                doubled.set_shape(x.shape)
                return doubled @ self.kernel

        agent = algorithms.DQN(VECTOR, Discrete(3), net_list=[Calls()])
        with caplog.at_level(logging.INFO, 'zoo'):
            agent.update_on(batches(agent))
        assert not agent.fused.xla
        assert caplog.text.count('q has operations that XLA cannot compile') == 1

    @pytest.mark.full
    def test_tensorlayer_dropout_drops_in_updates_alone(self, plain_graphs):
        tl = pytest.importorskip('tensorlayer')
        inputs = tl.layers.Input([None, 3])
        model = tl.models.Model(inputs, tl.layers.Dense(3)(tl.layers.Dropout(keep=0.5)(inputs)))
        agent = algorithms.DQN(VECTOR, Discrete(3), net_list=[model])
        network = agent.networks['q']
        np.testing.assert_array_equal(network(OBS), network(OBS))
        assert np.abs(network(OBS, training=True) - network(OBS, training=True)).max() > 1e-3
        assert model.is_train is False
        learn(agent)
        np.testing.assert_allclose(agent.forward(OBS), network(OBS), atol=1e-5)

    def test_tensorlayer_batch_normalization_is_refused(self):
        tl = pytest.importorskip('tensorlayer')
        inputs = tl.layers.Input([None, 3])
        model = tl.models.Model(inputs, tl.layers.Dense(3)(tl.layers.BatchNorm()(inputs)))
        with pytest.raises(ValueError, match=r'^net_list\[0\] \(q\) has the TensorLayer layer .* a BatchNorm, .*\.$'):
            algorithms.DQN(VECTOR, Discrete(3), net_list=[model])


class TestLoading:
    def normalized(self, mean: float) -> keras.Model:
        layer = keras.layers.Normalization()
        layer.adapt(np.random.default_rng(0).normal(mean, 2.0, (40, 3)))
        return keras.Sequential([layer, keras.layers.Dense(3)])

    @pytest.mark.full
    def test_state_that_is_computed_from_weights_comes_back(self, tmp_path):
        agent = algorithms.DQN(VECTOR, Discrete(3), net_list=[self.normalized(5.0)])
        loaded = zoo.load(agent.save(tmp_path / 'saved'), net_list=[self.normalized(-3.0)])
        np.testing.assert_allclose(loaded.forward(OBS), agent.forward(OBS), atol=1e-5)
        np.testing.assert_allclose(loaded.target(OBS), agent.target(OBS), atol=1e-5)

    @pytest.mark.full
    def test_a_network_without_dropout_may_take_the_place_of_one_with_it(self, tmp_path):
        def net(*layers: Any) -> keras.Model:
            return keras.Sequential([*layers, keras.layers.Dense(3)])

        agent = algorithms.DQN(VECTOR, Discrete(3), net_list=[net(keras.layers.Dropout(0.5))])
        agent.network.torso.compile('adam', 'mse', metrics=['mae'])
        agent.network.torso.fit(OBS, OBS, verbose=0)
        assert len([key for key in agent.state() if '/random/' in key]) == 1, 'metrics are none of it'
        path = agent.save(tmp_path / 'saved')
        for layers in ([], [keras.layers.Dropout(0.5)]):
            np.testing.assert_array_equal(zoo.load(path, net_list=[net(*layers)]).predict(OBS), agent.predict(OBS))

    def test_a_network_that_computes_something_else_is_refused(self, tmp_path):
        def net(scale: float) -> keras.Model:
            return keras.Sequential([keras.layers.Dense(3, lambda x: scale * x)])

        agent = algorithms.DQN(VECTOR, Discrete(3), net_list=[net(2.0)])
        agent.save(tmp_path / 'saved')
        loaded = zoo.load(tmp_path / 'saved', net_list=[net(2.0)])
        np.testing.assert_allclose(loaded.forward(OBS), agent.forward(OBS), atol=1e-5)
        for other in (net(3.0), {'hidden': []}):
            with pytest.raises(ValueError, match=r'net_list\[0\] \(q\) computes something else .*\.$') as info:
                zoo.load(tmp_path / 'saved', net_list=[other])
            assert '\n' not in str(info.value)

    def test_another_spec_that_fits_the_weights_is_refused(self, tmp_path):
        agent = algorithms.DQN(VECTOR, Discrete(3), net_list=[{'hidden': [8], 'activation': 'tanh'}])
        agent.save(tmp_path / 'saved')
        zoo.load(tmp_path / 'saved', net_list=[{'hidden': [8], 'activation': 'tanh'}])
        with pytest.raises(ValueError, match=r'net_list\[0\] \(q\) computes something else .*\.$'):
            zoo.load(tmp_path / 'saved', net_list=[{'hidden': [8], 'activation': 'relu'}])

    @pytest.mark.full
    def test_a_checkpoint_without_fingerprints_loads(self, tmp_path, monkeypatch):
        agent = make('DQN', modal)
        with monkeypatch.context() as patch:
            patch.setattr('zoo.common.networks.fingerprints.fingerprints', lambda networks: {})
            patch.setattr('zoo.common.networks.network.Network.random_variables', [])
            agent.save(tmp_path / 'saved')
        loaded = zoo.load(tmp_path / 'saved', net_list=[modal(0)])
        np.testing.assert_allclose(loaded.forward(OBS), agent.forward(OBS), atol=1e-5)


@pytest.mark.full
class TestOptimizersOnLoading:
    def trained(self, **params: Any) -> Algorithm:
        agent = make('DQN', optimizers_list=[{'learning_rate': 1e-2}], **params)
        agent.update_on(batches(agent))
        return agent

    def test_the_new_learning_rate_is_taken_and_the_moments_are_kept(self, plain_graphs, tmp_path, caplog):
        agent = self.trained()
        loaded = zoo.load(agent.save(tmp_path / 'saved'), optimizers_list=[{'learning_rate': 0.5}])
        found, kept = (optimizer_state(a) for a in (loaded, agent))
        assert found.pop('learning_rate') == np.float32(0.5) and kept.pop('learning_rate') == np.float32(1e-2)
        assert found['iterations'] == 2 and found.keys() == kept.keys()
        for name, array in kept.items():
            np.testing.assert_array_equal(found[name], array)
        assert not caplog.records
        again = zoo.load(loaded.save(tmp_path / 'again'))
        assert optimizer_state(again)['learning_rate'] == np.float32(0.5)

    @pytest.mark.parametrize(
        'spec', [{'name': 'SGD', 'learning_rate': 0.3}, {'name': 'Adam', 'amsgrad': True, 'learning_rate': 0.3}]
    )
    def test_another_optimizer_begins_anew_and_one_line_says_so(self, plain_graphs, tmp_path, caplog, spec):
        agent = self.trained()
        loaded = zoo.load(agent.save(tmp_path / 'saved'), optimizers_list=[spec])
        state = optimizer_state(loaded)
        assert state['0'] == 0 and state['1'] == np.float32(0.3)
        assert len(caplog.records) == 1 and 'optimizers_list[0] (q) was saved as another kind' in caplog.text
        np.testing.assert_array_equal(loaded.predict(OBS), agent.predict(OBS))

    def test_a_keras_optimizer_keeps_its_moments(self, plain_graphs, tmp_path):
        agent = make('DQN', optimizers_list=[keras.optimizers.Adam(1e-2)])
        agent.update_on(batches(agent))
        loaded = zoo.load(agent.save(tmp_path / 'saved'), optimizers_list=[keras.optimizers.Adam(0.5)])
        found, kept = (optimizer_state(a) for a in (loaded, agent))
        assert found['1'] == np.float32(0.5)
        np.testing.assert_array_equal(found['2'], kept['2'])


def test_what_an_optimizer_excludes_from_weight_decay_is_excluded_by_its_copy():
    optimizer = keras.optimizers.AdamW(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=['bias'])
    agent = algorithms.DQN(VECTOR, Discrete(3), net_list=[{'hidden': []}], optimizers_list=[optimizer])
    made = saving.blueprint(agent)[1]['optimizers_list'][0]
    bias = keras.Variable(np.ones(3), name='bias')
    made.build([bias])
    made.apply([np.zeros(3, np.float32)])
    np.testing.assert_array_equal(bias, np.ones(3))
    other = keras.optimizers.AdamW(0.1, weight_decay=0.5)
    other.exclude_from_weight_decay(var_list=[bias])
    agent = algorithms.DQN(VECTOR, Discrete(3), net_list=[{'hidden': []}], optimizers_list=[other])
    with pytest.raises(ValueError, match=r'the AdamW excludes variables from its weight decay, .*: exclude them by'):
        copy.deepcopy(agent)


class TestWeightsSetFromOutside:
    @pytest.mark.full(but='ES')
    @pytest.mark.parametrize('name', toys.marked(algorithms.NAMES))
    def test_the_next_prediction_has_them(self, name):
        agent = make(name)
        assert agent.forward.numpy is not None
        before = np.array(agent.predict(OBS, deterministic=True))
        network = agent.networks[agent.network_names[0]]
        for variable in network.trainable_variables:
            variable.assign(variable + 0.5 * tf.random.stateless_normal(variable.shape, [4, 5]))
        agent.predict(OBS)
        np.testing.assert_allclose(agent.forward(OBS), output_of(agent), atol=1e-5)
        if isinstance(agent.action_space, Box):
            assert np.abs(np.array(agent.predict(OBS)) - before).max() > 1e-3

    def test_learning_begins_with_them(self, plain_graphs):
        agent = make('TD3')
        for variable in agent.actor.trainable_variables:
            variable.assign(tf.zeros(variable.shape))
        env = zoo.build_env(toys.AnySpaces(VECTOR, ACTIONS['TD3']), 'gymnasium', seed=0)
        agent.learn(env, 'test', test_episodes=1)
        np.testing.assert_array_equal(agent.forward(OBS), np.zeros((5, 2)))
        np.testing.assert_array_equal(agent.forward.weights()['packed'], 0.0)  # what actors are sent


class TestTwins:
    @pytest.mark.full
    @pytest.mark.parametrize('name', toys.kinds(toys.WITH_LOSSES, ('PPO', 'TD3')))
    def test_a_deep_copy_is_a_twin(self, plain_graphs, name):
        agent = make(name, modal)
        learn(agent)
        twin = copy.deepcopy(agent)
        own = {id(v) for v in saving.variables(agent).values()}
        assert not own & {id(v) for v in saving.variables(twin).values()}
        np.testing.assert_array_equal(twin.predict(OBS), agent.predict(OBS))
        before = saving.arrays(agent)
        learn(twin, seed=None)
        for key, array in saving.arrays(agent).items():
            np.testing.assert_array_equal(array, before[key], err_msg=key)
        learn(agent, seed=None)
        found, expected = saving.arrays(twin), saving.arrays(agent)
        assert found.keys() == expected.keys() == before.keys()
        for key, array in found.items():
            np.testing.assert_allclose(array, expected[key], atol=1e-5, err_msg=key)
        assert any(not np.array_equal(array, before[key]) for key, array in found.items())
        if agent.replay is not None:
            assert twin.replay is not agent.replay and twin.replay.added == agent.replay.added > 0

    def test_what_cannot_be_copied_is_refused(self):
        kernel = tf.Variable(tf.ones([3, 2]))

        def function(x: tf.Tensor) -> tf.Tensor:
            return x @ kernel

        function.trainable_variables = [kernel]
        agent = algorithms.PPO(VECTOR, ACTIONS['PPO'], net_list=[function, {'hidden': [4]}])
        with pytest.raises(ValueError, match=r'^this agent cannot be copied \(.*\): save it and load it .*\.$') as info:
            copy.deepcopy(agent)
        assert '\n' not in str(info.value)


class TestBoundedActions:
    @staticmethod
    def linear(activation: str | None = None, initializer: str = 'glorot_uniform') -> keras.Model:
        return keras.Sequential([keras.layers.Dense(2, activation, kernel_initializer=initializer)])

    @staticmethod
    def td3(actor: Any, **params: Any) -> Algorithm:
        return algorithms.TD3(VECTOR, ACTIONS['TD3'], net_list=[actor, {'hidden': [4]}, {'hidden': [4]}], **params)

    @pytest.mark.full(but='glorot_uniform')
    @pytest.mark.parametrize('initializer', ['glorot_uniform', 'zeros'])
    def test_an_output_that_may_leave_the_range_is_bounded_and_one_line_says_so(self, caplog, tmp_path, initializer):
        agent = self.td3(self.linear(initializer=initializer))
        assert caplog.text.count('net_list[0] (actor) gives numbers beyond [-1, 1]') == 1
        kernel = agent.actor.torso.layers[0].kernel
        kernel.assign(5.0 * tf.random.stateless_normal(kernel.shape, [1, 2]))
        agent.target_actor.torso.layers[0].kernel.assign(kernel)
        expected = np.tanh(agent.actor.torso(OBS))
        for found in (agent.actor(OBS), agent.target_actor(OBS), agent.predict(OBS), agent.forward(OBS)):
            np.testing.assert_allclose(found, expected, atol=1e-5)
        assert agent.forward.numpy is not None
        loaded = zoo.load(agent.save(tmp_path / 'saved'), net_list=[self.linear(), {'hidden': [4]}, {'hidden': [4]}])
        np.testing.assert_allclose(loaded.predict(OBS), expected, atol=1e-5)

    @pytest.mark.full(but='hard_tanh')
    @pytest.mark.parametrize('activation', ['tanh', 'softsign', 'sigmoid', 'hard_tanh'])
    def test_a_bounded_output_is_taken_as_it_is(self, caplog, activation):
        agent = self.td3(self.linear(activation))
        assert not agent.actor.bounds and not caplog.records
        np.testing.assert_allclose(agent.actor(OBS), agent.actor.torso(OBS))

    @pytest.mark.parametrize('last', [[], [keras.layers.Rescaling(1e-3)]], ids=['plain', 'scaled'])
    def test_an_output_that_leaves_the_range_at_large_weights_alone_is_bounded(self, last):
        small = keras.Sequential([keras.layers.Dense(4, 'softmax'), keras.layers.Dense(2), *last])
        assert self.td3(small).actor.bounds

    def test_other_activations_act_by_a_graph(self):
        agent = self.td3(self.linear('relu'))
        assert agent.actor.bounds and agent.forward.numpy is None
        np.testing.assert_allclose(agent.predict(OBS), np.tanh(agent.actor.torso(OBS)), atol=1e-5)

    def test_the_weights_are_left_alone(self):
        model = self.linear()
        model.build((None, 3))
        before = [v.numpy() for v in model.variables]
        self.td3(model)
        for variable, value in zip(model.variables, before, strict=True):
            np.testing.assert_array_equal(variable, value)


class TestSeeds:
    @pytest.mark.full(but='TD3')
    @pytest.mark.parametrize('name', ['SAC', 'TD3'])
    def test_two_critics_of_one_seed_start_apart(self, name):
        def critics(*seeds: int) -> list[np.ndarray]:
            entries = [{'hidden': [4], 'seed': seed} for seed in (0, *seeds)]
            agent = getattr(algorithms, name)(VECTOR, ACTIONS[name], net_list=entries)
            return [critic.variables[0].numpy() for critic in agent.critics]

        (first, second), (again, same) = critics(7, 7), critics(7, 7)
        assert np.abs(first - second).max() > 0.01
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(second, same)
        apart = critics(7, 8)
        np.testing.assert_array_equal(apart[0], first)
        np.testing.assert_array_equal(critics(8, 7)[0], apart[1])  # seeds that differ give the weights they gave


class TestIgnoredOptions:
    def test_dueling_with_a_complete_network(self, caplog):
        complete = keras.Sequential([keras.layers.Dense(3)])
        algorithms.DQN(VECTOR, Discrete(3), net_list=[complete], dueling=True)
        assert [record.getMessage() for record in caplog.records] == [
            'net_list[0] (q) is a complete network, so dueling=True changes nothing: give a torso.'
        ]

    @pytest.mark.full
    def test_an_initial_log_std_with_a_network_that_gives_them(self, caplog):
        def entries(width: int) -> list[Any]:
            return [keras.Sequential([keras.layers.Dense(width)]), {'hidden': [4]}]

        box = ACTIONS['PPO']
        algorithms.PPO(VECTOR, box, net_list=entries(4))
        algorithms.PPO(VECTOR, box, net_list=entries(2), log_std_init=-2)
        assert not caplog.records
        algorithms.PPO(VECTOR, box, net_list=entries(4), log_std_init=-2)
        assert [record.getMessage() for record in caplog.records] == [
            'actor gives the log standard deviations itself, so log_std_init=-2 changes nothing.'
        ]


class TestRefusals:
    @pytest.mark.parametrize('first', [True, False], ids=['frozen', 'unfrozen'])
    def test_a_layer_that_is_frozen_or_unfrozen_after_the_agent_was_made(self, first):
        model = keras.Sequential([keras.layers.Dense(4, name='low'), keras.layers.Dense(3)])
        model.layers[0].trainable = first
        agent = algorithms.DQN(VECTOR, Discrete(3), net_list=[model])
        learn(agent, steps=5)
        model.layers[0].trainable = not first
        with pytest.raises(ValueError, match=r"^'.*kernel' of q was (un)?frozen after the agent was made, .*\.$"):
            learn(agent, steps=5)
        model.layers[0].trainable = first
        learn(agent, steps=5)

    @pytest.mark.parametrize('given', [lambda: keras.Sequential([keras.layers.Dense(3)]), lambda: {'hidden': [8]}])
    def test_a_network_is_no_list_of_them(self, given):
        with pytest.raises(ValueError, match=r'^net_list is a \w+: give a list with one entry, for q\.$'):
            algorithms.DQN(VECTOR, Discrete(3), net_list=given())

    def test_an_optimizer_is_no_list_of_them(self):
        with pytest.raises(ValueError, match=r'^optimizers_list is a dict: give a list with one entry, for q\.$'):
            algorithms.DQN(VECTOR, Discrete(3), optimizers_list={'learning_rate': 1e-3})

    @pytest.mark.parametrize('policy', ['mixed_float16', 'bfloat16', 'float64'])
    def test_a_dtype_policy(self, policy):
        kept = keras.config.dtype_policy()
        keras.config.set_dtype_policy(policy)
        try:
            with pytest.raises(ValueError, match=rf"^net_list\[0\] \(q\) would be made under .*'{policy}', .*\.$"):
                algorithms.DQN(VECTOR, Discrete(3))
        finally:
            keras.config.set_dtype_policy(kept)

    def test_a_layer_of_half_precision(self):
        half = keras.layers.Dense(4, dtype='mixed_float16', name='half')
        model = keras.Sequential([half, keras.layers.Dense(3, dtype='float32')])
        with pytest.raises(
            ValueError, match=r"^net_list\[0\] \(q\) has the layer 'half' of dtype policy 'mixed_float16'"
        ):
            algorithms.DQN(VECTOR, Discrete(3), net_list=[model])

    def test_an_optimizer_that_scales_the_loss(self):
        scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())
        with pytest.raises(ValueError, match=r'^optimizers_list\[0\] \(q\) is a LossScaleOptimizer, .*\.$'):
            algorithms.DQN(VECTOR, Discrete(3), optimizers_list=[scaled])

    @pytest.mark.parametrize('compiled', [False, True], ids=['eager', 'compiled'])
    def test_weights_that_a_module_uses_and_does_not_list(self, compiled):
        class Holder(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.kernel = tf.Variable(tf.ones([4, 3]))
                self.dense = keras.layers.Dense(4, name='inner')  # which is no tf.Module

            def call(self, x: tf.Tensor) -> tf.Tensor:
                return self.dense(x) @ self.kernel

            __call__ = tf.function(call) if compiled else call

        holder = Holder()
        holder.dense.build([None, 3])
        message = (
            r"^net_list\[0\] \(q\) uses weights that its trainable_variables lacks \('.*' of shape \[.*\]\): .*\.$"
        )
        with pytest.raises(ValueError, match=message):
            algorithms.DQN(VECTOR, Discrete(3), net_list=[holder])

    def test_running_statistics_and_weights_that_are_kept_as_they_are_need_not_be_trained(self, plain_graphs):
        class Whitened(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.kernel = tf.Variable(tf.ones([3, 3]))
                self.mean = tf.Variable(tf.zeros([3]), trainable=False)

            def __call__(self, x: tf.Tensor) -> tf.Tensor:
                return (x - self.mean) @ self.kernel

        class Frozen(Whitened):
            def __init__(self) -> None:
                super().__init__()
                self.encoder = tf.Variable(tf.eye(3))

            @property
            def trainable_variables(self) -> Any:
                return [self.kernel]

            def __call__(self, x: tf.Tensor) -> tf.Tensor:
                return super().__call__(x @ self.encoder)

        for made in (Whitened(), Frozen()):
            agent = algorithms.DQN(VECTOR, Discrete(3), net_list=[made])
            assert len(agent.network.trainable_variables) == 1

    def test_integer_variables_are_copied_to_targets(self, plain_graphs):
        class Counts(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.kernel = tf.Variable(tf.ones([3, 3]))
                self.calls = tf.Variable(0, trainable=False)

            def __call__(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
                if training:
                    self.calls.assign_add(1)
                return x @ self.kernel

        agent = algorithms.DQN(VECTOR, Discrete(3), net_list=[Counts()], target_update_every=1, tau=0.5)
        agent.update_on(batches(agent))
        assert agent.target.torso.calls.numpy() == agent.network.torso.calls.numpy() == 2


def test_attaching_a_head_is_no_warning(caplog: pytest.LogCaptureFixture, tmp_path: Path):
    with caplog.at_level(logging.INFO, 'zoo'):
        agent = make('PPO', lambda i: keras.Sequential([keras.layers.Dense(6, 'relu')]))
        assert [record.levelname for record in caplog.records] == ['INFO', 'INFO']
        caplog.clear()
        agent.save(tmp_path / 'saved')
        zoo.load(tmp_path / 'saved', net_list=[keras.Sequential([keras.layers.Dense(6, 'relu')]) for _ in range(2)])
        copy.deepcopy(agent)
    assert not caplog.records


@pytest.mark.parametrize('name', toys.marked(algorithms.NAMES))
def test_plain_networks_have_nothing_of_it(name: str):
    """Specs: no penalty, no constraint, no generator, so that not one operation is added to the compiled update."""
    agent = make(name)
    for network in agent.networks.values():
        assert not network.penalties() and not network.constraints and not network.random_variables
        assert not network.bounds
    weights = {id(v) for network in agent.networks.values() for v in network.variables}
    bounded = [v for optimizer in agent.optimizers.values() for v, _ in optimizer._constraints]
    assert not weights & {id(v) for v in bounded}  # AWAC and IQL keep log σ within bounds
    loss = tf.constant(1.0)
    assert penalized(loss, *agent.networks.values()) is loss
    assert not any('/random/' in key for key in agent.state())


class TestProbabilities:
    """A softmax or sigmoid where logits or values are needed: no policy could become sure, no value exceed 1."""

    @staticmethod
    def ending(units: int, activation: Any, **last: Any) -> keras.Sequential:
        return keras.Sequential([keras.layers.Dense(5, 'relu'), keras.layers.Dense(units, activation, **last)])

    @pytest.mark.parametrize(
        ('name', 'action', 'units', 'activation'),
        [
            ('PPO', Discrete(3), 3, 'softmax'),
            ('SAC', Discrete(3), 3, 'softmax'),
            ('DQN', Discrete(3), 3, 'softmax'),
            ('PPO', MultiDiscrete([2, 3]), 5, 'softmax'),
            ('PPO', MultiDiscrete([2, 2]), 4, lambda x: tf.concat([tf.nn.softmax(x[:, :2]), x[:, 2:]], -1)),
            ('PPO', MultiBinary(2), 2, 'sigmoid'),
            ('ES', MultiBinary(2), 2, 'sigmoid'),
            (
                'PPO',
                Tuple((Box(-1.0, 1.0, (2,)), Discrete(2))),
                4,
                lambda x: tf.concat([x[:, :2], tf.nn.softmax(x[:, 2:])], 1),
            ),
        ],
    )
    def test_are_refused_before_anything_is_trained(self, name, action, units, activation):
        cls = CLASSES[name]
        entries = [self.ending(units, activation), *[{'hidden': [4]}] * (len(cls.network_names) - 1)]
        message = (
            r'^net_list\[0\] \(\w+\) gives probabilities, numbers from 0 to 1, but .* are needed, .*: leave out the'
        )
        with pytest.raises(ValueError, match=message):
            cls(VECTOR, action, net_list=entries)

    @pytest.mark.parametrize(
        ('name', 'action', 'units', 'activation'),
        [
            ('PPO', Discrete(3), 3, None),
            ('PPO', Discrete(3), 3, 'log_softmax'),
            ('PPO', Discrete(3), 4, 'softmax'),  # a torso
            ('PPO', Discrete(1), 1, 'sigmoid'),  # nothing to choose
            ('PPO', Box(-1.0, 1.0, (3,)), 3, 'softmax'),  # means, of a portfolio
            ('TD3', Box(-1.0, 1.0, (3,)), 3, 'softmax'),
            ('ES', Discrete(3), 3, 'softmax'),  # the best action is the same
        ],
    )
    def test_are_fine_where_they_mean_something_else(self, name, action, units, activation):
        cls = CLASSES[name]
        entries = [self.ending(units, activation), *[{'hidden': [4]}] * (len(cls.network_names) - 1)]
        before = [x.copy() for x in entries[0].get_weights()]
        agent = cls(VECTOR, action, net_list=entries)
        assert before == [] or all((x == y).all() for x, y in zip(before, entries[0].get_weights(), strict=True))
        assert np.isfinite(np.asarray(agent.predict(OBS))).all()

    @pytest.mark.parametrize(('last', 'told'), [('tanh', True), ('sigmoid', True), ('relu', False), (None, False)])
    def test_values_that_stay_small_are_told_of(self, last, told, caplog):
        make('DQN', lambda i: self.ending(3, last))
        line = (
            'net_list[0] (q) stays in [-1, 1], so no larger value is learned: leave out the tanh or sigmoid at its end.'
        )
        assert (line in caplog.text) == told

    @pytest.mark.parametrize(
        ('name', 'last', 'told'), [('DQN', 'relu', True), ('PPO', 'relu', True), ('DQN', None, False)]
    )
    def test_values_and_logits_that_are_never_negative_are_told_of(self, name, last, told, caplog):
        cls = CLASSES[name]
        cls(VECTOR, Discrete(3), net_list=[self.ending(3, last), *[{'hidden': [4]}] * (len(cls.network_names) - 1)])
        line = 'gives no number below 0, so it learns no such value: leave out the relu at its end.'
        assert (line in caplog.text) == told

    def test_so_are_equal_outputs_of_fresh_weights(self):
        fresh = self.ending(3, None, kernel_initializer='zeros', bias_initializer=keras.initializers.Constant(1 / 3))
        model = keras.Sequential([keras.Input((3,)), *fresh.layers])
        make('DQN', lambda i: model)
        np.testing.assert_allclose(model(OBS), np.full((5, 3), 1 / 3), rtol=1e-6)  # its weights are as they were

    def test_an_agent_that_was_saved_with_a_softmax_loads(self, tmp_path, monkeypatch):
        with monkeypatch.context() as earlier:
            earlier.setattr('zoo.common.networks.users._gives_probabilities', lambda network: False)
            agent = make('DQN', lambda i: self.ending(3, 'softmax'))
        loaded = zoo.load(agent.save(tmp_path / 'saved'), net_list=[self.ending(3, 'softmax')])
        np.testing.assert_array_equal(loaded.predict(OBS), agent.predict(OBS))
        np.testing.assert_array_equal(copy.deepcopy(agent).predict(OBS), agent.predict(OBS))
