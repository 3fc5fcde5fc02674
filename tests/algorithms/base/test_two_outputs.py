"""One network of policy and value for actor and critic: a model with two outputs, or two models that share layers."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete

import zoo
from zoo import algorithms
from zoo.algorithms.base import Algorithm, exporting
from zoo.common.networks.network import penalized

SPACE, ACTIONS = Box(-1.0, 1.0, (4,), np.float32), Discrete(3)
OBS = np.random.default_rng(0).uniform(-1, 1, (5, 4)).astype(np.float32)
SHARING = ('VPG', 'AC', 'A2C', 'A3C', 'PPO', 'DPPO', 'IMPALA')


def layers(units: int = 3) -> tuple[Any, Any, Any]:
    keras.utils.set_random_seed(0)
    x = keras.Input((4,))
    h = keras.layers.Dense(8, 'tanh', kernel_regularizer=keras.regularizers.L2(0.5))(x)
    return x, keras.layers.Dense(units)(h), keras.layers.Dense(1)(h)


def functional(form: str = 'list', units: int = 3) -> keras.Model:
    x, policy, value = layers(units)
    forms = {
        'list': [policy, value],
        'dict': {'value': value, 'policy': policy},
        'names': {'critic': value, 'actor': policy},
        'swapped': [value, policy],
        'three': [policy, value, value],
        'keys': {'p': policy, 'v': value},
    }
    return keras.Model(x, forms[form])


@keras.saving.register_keras_serializable('tests')
class Subclassed(keras.Model):
    def __init__(self, form: str = 'tuple', **others: Any) -> None:
        super().__init__(**others)
        keras.utils.set_random_seed(0)
        self.form = form
        self.torso = keras.layers.Dense(8, 'tanh', kernel_regularizer=keras.regularizers.L2(0.5))
        self.policy, self.value = keras.layers.Dense(3), keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        h = self.torso(x)
        found = self.policy(h), self.value(h)
        return dict(zip(('policy', 'value'), found, strict=True)) if self.form == 'dict' else found


class Module(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.torso, self.policy, self.value = (
            tf.Variable(tf.random.stateless_normal(shape, [i, 0]) / 2)
            for i, shape in enumerate([(4, 8), (8, 3), (8, 1)])
        )

    def __call__(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        h = tf.tanh(x @ self.torso)
        return h @ self.policy, h @ self.value


def sharing() -> list[keras.Model]:
    """Two functional models that share a layer."""
    x, policy, value = layers()
    return [keras.Model(x, policy), keras.Model(x, value)]


class Walk(gymnasium.Env):
    observation_space, action_space = SPACE, ACTIONS

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self._see(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        return self._see(), float(action == 1), self.t == 5, False, {}

    def _see(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)


def twice(network: Any) -> list[Any]:
    return [network, network]


#: What a user may give -> a function that makes it anew.
GIVEN: dict[str, Callable[[], list[Any]]] = {
    'two outputs and the name': lambda: [functional(), 'actor'],
    'two outputs twice': lambda: twice(functional()),
    'dict': lambda: [functional('dict'), 'actor'],
    'dict by the names of the networks': lambda: twice(functional('names')),
    'subclass with a tuple': lambda: twice(Subclassed()),
    'subclass with a dict': lambda: [Subclassed('dict'), 'actor'],
    'module': lambda: [Module(), 'actor'],
    'two models that share a layer': sharing,
}
#: Those that plain pytest tries.
SOME = ('subclass with a tuple', 'two models that share a layer')


def make(given: list[Any], name: str = 'PPO', **params: Any) -> Algorithm:
    return getattr(algorithms, name)(SPACE, ACTIONS, net_list=given, **params)


def learn(agent: Algorithm, steps: int = 64, **others: Any) -> Any:
    env = zoo.build_env(Walk)
    params = {'run_dir': False, 'verbose': 0, 'seed': 0} | others
    known = type(agent).learn_params()
    params |= {key: value for key, value in {'horizon': 16, 'epochs': 2, 'batch_size': 8}.items() if key in known}
    return agent.learn(env, train_steps=steps, **params | ({'roles': None} if 'roles' in known else {}))


def by_hand(network: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Policy and value from the weights; biases are zero at first."""
    kernels = {tuple(v.shape): np.asarray(v) for v in network.trainable_variables}
    h = np.tanh(x @ kernels[4, 8])
    return h @ kernels[8, 3], (h @ kernels[8, 1])[:, 0]


@pytest.mark.full(but=SOME)
@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize('kind', GIVEN)
def test_policy_and_value_are_the_two_outputs(kind: str):
    agent = make(GIVEN[kind]())
    params, value = agent.policy_and_value(tf.constant(OBS))
    policy_by_hand, value_by_hand = by_hand(agent.networks['actor'].torso, OBS)
    np.testing.assert_allclose(params, policy_by_hand, atol=1e-5)
    np.testing.assert_allclose(value, value_by_hand, atol=1e-5)
    np.testing.assert_allclose(agent.value(tf.constant(OBS)), value_by_hand, atol=1e-5)
    np.testing.assert_array_equal(agent.predict(OBS), policy_by_hand.argmax(1))
    assert agent.net_list[1] == 'actor'


@pytest.mark.full(but=SOME)
@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize('kind', GIVEN)
def test_both_losses_move_the_shared_weights_which_are_held_once(kind: str):
    agent = make(GIVEN[kind]())
    actor, critic = agent.networks['actor'], agent.networks['critic']
    torso = next(v for v in actor.trainable_variables if v.shape == (4, 8))
    moved = [id(v) for v in agent.trainable_variables]
    assert len(moved) == len(set(moved)) == len(actor.trainable_variables) and not critic.variables
    for which in (0, 1):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(agent.policy_and_value(tf.constant(OBS), training=True)[which])
        assert np.abs(tape.gradient(loss, torso)).max() > 0


@pytest.mark.usefixtures('plain_graphs')
def test_a_penalty_counts_once():
    agent = make([functional(), 'actor'])
    agent.policy_and_value(tf.constant(OBS), training=True)
    kernel = agent.networks['actor'].trainable_variables[0].numpy()
    found = penalized(tf.constant(0.0), *agent.networks.values())
    np.testing.assert_allclose(found, 0.5 * np.square(kernel).sum(), rtol=1e-5)


@pytest.mark.full
@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize('name', SHARING)
def test_the_same_as_a_torso_with_heads(name: str):
    """From the same weights it learns the same, to the rounding of sums in another order."""

    def weights(given: list[Any]) -> list[np.ndarray]:
        agent = make(given, name)
        source = Subclassed()
        source(OBS)
        kernels = [np.asarray(v) for v in source.weights if len(v.shape) == 2]
        trained = [v for v in agent.trainable_variables if len(v.shape) == 2]
        for variable, kernel in zip(trained, kernels, strict=True):
            variable.assign(kernel)
        learn(agent)
        return [v.numpy() for v in trained]

    torso = keras.Sequential([keras.layers.Dense(8, 'tanh', kernel_regularizer=keras.regularizers.L2(0.5))])
    expected, found = weights([torso, 'actor']), weights([functional(), 'actor'])
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, atol=1e-4)


@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.full(but='two models that share a layer')
@pytest.mark.parametrize('kind', GIVEN)
def test_trained_saved_loaded_trained_on_and_copied(kind: str, tmp_path: Path):
    agent = make(GIVEN[kind]())
    before = [v.numpy() for v in agent.trainable_variables]
    learn(agent)
    assert all((v.numpy() != old).any() for v, old in zip(agent.trainable_variables, before, strict=True))
    agent.save(tmp_path / 'saved')
    with pytest.raises(ValueError, match=r'net_list\[0\] a .* defined in Python'):
        zoo.load(tmp_path / 'saved')
    loaded, twin = zoo.load(tmp_path / 'saved', net_list=GIVEN[kind]()), copy.deepcopy(agent)
    for other in (loaded, twin):
        for found, expected in zip(other.policy_and_value(OBS), agent.policy_and_value(OBS), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert not {id(v) for v in twin.trainable_variables} & {id(v) for v in agent.trainable_variables}
    for other in (agent, loaded, twin):
        learn(other, seed=None)
    for other in (loaded, twin):
        for found, expected in zip(other.trainable_variables, agent.trainable_variables, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.usefixtures('plain_graphs')
def test_a_checkpoint_of_another_function_is_refused(tmp_path: Path):
    agent = make([functional(), 'actor'])
    agent.save(tmp_path / 'saved')

    x = keras.Input((4,))
    h = keras.layers.Dense(8, 'relu')(x)
    other = keras.Model(x, [keras.layers.Dense(3)(h), keras.layers.Dense(1)(h)])
    with pytest.raises(ValueError, match='computes something else from the saved weights'):
        zoo.load(tmp_path / 'saved', net_list=[other, 'actor'])


@pytest.mark.full(but=SOME)
@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize('kind', ['two outputs twice', *SOME])
def test_other_processes_get_the_weights_once(kind: str):
    """What a learner or an actor in another process is made from, and the weights that it is sent."""
    agent = make(GIVEN[kind]())
    for variable in agent.trainable_variables:
        variable.assign_add(tf.ones_like(variable))
    cls, given = pickle.loads(cloudpickle.dumps(agent.blueprint()))
    other = cls(**given)
    sent = agent.network_weights()
    assert {name.split('/')[1] for name in sent} == {'actor'}
    other.set_network_weights(sent)
    for found, expected in zip(other.policy_and_value(OBS), agent.policy_and_value(OBS), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.full
@pytest.mark.usefixtures('plain_graphs')
def test_exported_it_acts_alike(tmp_path: Path):
    agent = make([functional(), 'actor'])
    exporting.export(agent, tmp_path / 'exported', 'savedmodel')  # which compares the actions


@pytest.mark.usefixtures('plain_graphs')
def test_a_gaussian_may_have_its_deviation_from_the_network_and_the_summary_says_who_owns_what():
    space = Box(-1.0, 1.0, (2,), np.float32)
    free = algorithms.PPO(SPACE, space, net_list=[functional(units=2), 'actor'])
    given = algorithms.PPO(SPACE, space, net_list=[functional(units=4), 'actor'])
    assert free.policy.log_std is not None and given.policy.log_std is None
    assert given.policy_and_value(OBS)[0].shape == (5, 4)
    critic = next(table for table in free.summary().tables if table.title.startswith('Network critic'))
    assert critic.rows == (('torso of actor', 'shared', '', '0'),)
    assert given.predict(OBS[0]).shape == (2,)


@pytest.mark.usefixtures('plain_graphs')
def test_observations_of_several_parts():
    space = Dict(a=Box(-1, 1, (2,), np.float32), b=Box(-1, 1, (2,), np.float32))
    inputs = {key: keras.Input((2,), name=key) for key in 'ab'}
    h = keras.layers.Dense(8)(keras.layers.Concatenate()([inputs['a'], inputs['b']]))
    actor, critic = (keras.Model(inputs, keras.layers.Dense(n)(h)) for n in (3, 1))
    agent = algorithms.A2C(space, ACTIONS, net_list=[actor, critic])
    x = {'a': OBS[:, :2], 'b': OBS[:, 2:]}
    np.testing.assert_allclose(agent.policy_and_value(x)[0], actor(x), atol=1e-6)
    np.testing.assert_allclose(agent.policy_and_value(x)[1], critic(x)[:, 0], atol=1e-6)
    assert critic.layers[-1].kernel.value is agent.networks['actor'].trainable_variables[-2]


@pytest.mark.usefixtures('plain_graphs')
def test_one_torso_twice_is_a_shared_torso():
    torso = keras.Sequential([keras.layers.Dense(8, 'tanh')])
    agent = make([torso, torso])
    assert agent.net_list == [torso, 'actor'] and agent.critic.shares
    assert [len(network.head.layers) for network in agent.networks.values()] == [1, 1]


def sequential() -> list[keras.Model]:
    torso = keras.layers.Dense(8)
    return [keras.Sequential([torso, keras.layers.Dense(n)]) for n in (3, 1)]


@pytest.mark.parametrize(
    ('name', 'given', 'told'),
    [
        ('PPO', lambda: [functional()], r"has 1 entry, .* actor, critic; for one .* write \[network, 'actor'\]\.$"),
        ('PPO', functional, r"is a Functional: give a list .*; for one network .* write \[network, 'actor'\]\.$"),
        ('PPO', lambda: [functional(), {}], r"\(actor\) gives policy and value, .* net_list=\[network, 'actor'\]"),
        ('PPO', lambda: [functional(), functional()], r"the critic is another network: .*\[network, 'actor'\]"),
        ('PPO', lambda: [{}, functional()], r'\(critic\) maps 3 of .* to 2 outputs, but one value \(1\) are needed'),
        (
            'PPO',
            sequential,
            r"share weights: .*Model\(inputs, \[policy, value\]\): write \[network, 'actor'\]\.$",
        ),
        (
            'PPO',
            lambda: twice(functional('swapped')),
            r'\(actor\) gives 2 outputs, \[batch, 1\] and \[batch, 3\], .* first logits for categorical action, '
            r'\[batch, 3\], then one value, \[batch, 1\]\.$',
        ),
        ('PPO', lambda: twice(functional('three')), r'\(actor\) gives 3 outputs'),
        ('PPO', lambda: twice(functional(units=4)), r'gives 2 outputs, \[batch, 4\] and \[batch, 1\], but'),
        ('PPO', lambda: twice(functional('keys')), r"keys 'p', 'v': name its two outputs 'policy' and 'value'\.$"),
        ('TRPO', lambda: twice(functional()), r'to 2 outputs, but logits .* are needed: give'),
        ('TRPO', sequential, r'share weights: give each one of its own\.$'),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_line_to_write(name: str, given: Any, told: str):
    with pytest.raises(ValueError, match=told):
        make(given(), name)


def test_a_recurrent_network_has_one_output():
    x = keras.Input((None, 4))
    h = keras.layers.LSTM(8)(x)
    network = keras.Model(x, [keras.layers.Dense(3)(h), keras.layers.Dense(1)(h)])
    told = "A recurrent network is a chain of layers with one output. 'actor' in place of the critic shares its torso."
    with pytest.raises(ValueError, match=told):
        make([network, 'actor'])


def test_a_softmax_in_the_policys_output_is_refused():
    x, policy, value = layers()
    with pytest.raises(ValueError, match=r'\(actor\) gives probabilities'):
        make([keras.Model(x, [keras.layers.Softmax()(policy), value]), 'actor'])
