"""Second networks: targets that compute what their networks do, whatever that depends on, and what is refused."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from zoo.common import spaces
from zoo.common.adaptors.observation import Preprocess
from zoo.common.networks import copies, fingerprints, probes
from zoo.common.networks.build import build_network
from zoo.common.networks.heads import Head, action_value_head, value_head
from zoo.common.networks.network import Network

LABEL = 'net_list[0] (q)'
VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
OBS = np.random.default_rng(5).normal(size=(6, 3)).astype(np.float32)


def network(entry: Any, space: Space = VECTOR, head: Head | None = None) -> Network:
    return build_network(entry, LABEL, Preprocess(space, {}), head or action_value_head(2))


def target(entry: Any, made: Network) -> Network:
    return copies.target_of(made, entry, LABEL)


def adapted() -> Any:
    normalization = keras.layers.Normalization()
    normalization.adapt(np.random.default_rng(0).normal(5.0, 3.0, (50, 3)))
    return keras.Sequential([normalization, keras.layers.Dense(2)])


class Scaled(keras.Model):
    """A subclass that Keras would rebuild with the default argument."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.dense = keras.layers.Dense(2)

    def call(self, x: Any) -> Any:
        return self.scale * self.dense(x)


class Shifted(keras.layers.Layer):
    """A layer that is not registered and has state outside its configuration."""

    def build(self, shape: Any) -> None:
        self.shift = 0.0

    def call(self, x: Any) -> Any:
        return x + self.shift


def with_own_layer() -> Any:
    model = keras.Sequential([keras.Input((3,)), Shifted(), keras.layers.Dense(2)])
    model.layers[0].shift = 3.0
    return model


def with_closure(scale: float) -> Any:
    inputs = keras.Input((3,))
    return keras.Model(inputs, keras.layers.Dense(2, lambda x: scale * x)(keras.layers.Lambda(lambda x: x - 1)(inputs)))


class Module(tf.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.kernel = tf.Variable(tf.random.stateless_normal([3, 2], [1, 2]))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return self.scale * x @ self.kernel


ENTRIES = {
    'adapted normalisation': adapted,
    'subclass with an argument': lambda: Scaled(7.0),
    'unregistered layer': with_own_layer,
    'functions': lambda: with_closure(5.0),
    'module': lambda: Module(3.0),
    'torso': lambda: keras.Sequential([keras.layers.Dense(5, 'relu'), keras.layers.BatchNormalization()]),
    'compiled': lambda: keras.Sequential([keras.layers.Dense(2)]),
}


@pytest.mark.full(but='module')
@pytest.mark.parametrize('name', ENTRIES)
def test_a_target_computes_what_its_network_does(name: str):
    entry = ENTRIES[name]()
    if name == 'compiled':
        entry.compile('adam', 'mse')
        entry.fit(OBS, OBS[:, :2], verbose=0)
    made = network(entry)
    second = target(entry, made)
    expected = made(OBS).numpy()
    np.testing.assert_allclose(second(OBS), expected, atol=1e-5)
    assert not {id(v) for v in made.variables} & {id(v) for v in second.variables}
    assert [v.shape for v in made.variables] == [v.shape for v in second.variables]
    for variable in made.trainable_variables:
        variable.assign_add(tf.ones(variable.shape))
    assert np.abs(made(OBS) - expected).max() > 0.1
    np.testing.assert_allclose(second(OBS), expected, atol=1e-5)
    for variable in second.trainable_variables:
        variable.assign(tf.zeros(variable.shape))
    assert np.abs(second(OBS) - expected).max() > 0.1, 'its own weights are those that it uses'


@pytest.mark.full(but='module')
@pytest.mark.parametrize('name', ENTRIES)
def test_the_original_is_left_as_it_was(name: str):
    entry = ENTRIES[name]()
    made = network(entry)
    before = [v.numpy() for v in made.variables]
    target(entry, made)
    for variable, value in zip(made.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_a_target_of_a_critic_of_state_and_action():
    class Critic(keras.Model):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale, self.dense = scale, keras.layers.Dense(1)

        def call(self, obs: Any, action: Any) -> Any:
            return self.scale * self.dense(tf.concat([obs, action], -1))

    entry = Critic(4.0)
    made = network(entry, head=value_head(action_size=2))
    second = target(entry, made)
    action = tf.constant(OBS[:, :2])
    np.testing.assert_allclose(second(OBS, action), made(OBS, action), atol=1e-5)


@pytest.mark.parametrize('trainable', [True, False])
def test_a_copy_that_uses_weights_of_the_original_is_refused(trainable: bool):
    kernel = tf.Variable(tf.ones([3, 2]), trainable=trainable)

    class Borrows(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = kernel
            self.scale = tf.Variable(1.0)
            self.function = lambda x: x @ kernel

        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return self.scale * self.function(x)

    entry = Borrows()
    with pytest.raises(ValueError, match=r'^net_list\[0\] \(q\) cannot be copied, .* \(the copy uses weights '):
        target(entry, network(entry))


def test_a_copy_that_computes_something_else_is_refused():
    class Forgets(tf.Module):
        def __init__(self, scale: float = 1.0) -> None:
            super().__init__()
            self.scale = scale
            self.kernel = tf.Variable(tf.ones([3, 2]))

        def __deepcopy__(self, memo: Any) -> Any:
            return Forgets()

        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return self.scale * x @ self.kernel

    entry = Forgets(2.0)
    with pytest.raises(
        ValueError, match=r'^net_list\[0\] \(q\) cannot be copied.*computes something else.*\.$'
    ) as info:
        target(entry, network(entry))
    assert '\n' not in str(info.value)


def test_a_network_that_is_random_by_itself_has_a_target_and_one_line_says_what_is_not_known(caplog):
    class Noisy(Module):
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return super().__call__(x) + tf.random.normal([tf.shape(x)[0], 2])

    entry = Noisy(1.0)
    second = target(entry, network(entry))
    assert second.torso is not entry
    assert caplog.text.count('net_list[0] (q) gives different numbers at every call') == 1


SPACES = {
    'vector': VECTOR,
    'bounds that nobody reaches': Box(-3.4e38, 3.4e38, (2,), np.float32),
    'image': Box(0, 255, (8, 8, 3), np.uint8),
    'nested': Dict(
        a=Tuple((Discrete(5, start=2), MultiBinary((2, 2)))),
        b=MultiDiscrete([3, 2], start=[1, 0]),
        c=Box(-1.0, 1.0, (2,), np.float64),
        d=Discrete(1000),
        e=Box(0, 9, (4,), np.int64),
    ),
}


@pytest.mark.parametrize('name', SPACES)
def test_probes_are_observations(name: str):
    space = SPACES[name]
    for make in (probes.random_probes, probes.fixed_probes):
        made, again = make(space), make(space)
        for (probe, _), (same, _) in zip(made, again, strict=True):
            for path, x in spaces.tree_items(probe):
                leaf = spaces.leaves(space)[path]
                assert x.shape == (probes.ROWS, *leaf.shape) and x.dtype == leaf.dtype
                assert np.isfinite(x).all() and len(np.unique(x)) > 1
                np.testing.assert_array_equal(x, same[path] if path else same)
        for path, x in spaces.tree_items(made[0][0]):
            assert all(spaces.leaves(space)[path].contains(row) for row in x), path
    if name == 'nested':
        far = probes.random_probes(space)[1][0]['c']
        assert np.abs(far).max() > 1.0, 'beyond the bounds too'


def test_fingerprints_of_networks_that_are_given_as_objects():
    networks = {'actor': network({'hidden': [4]}), 'critic': network(adapted())}
    found = fingerprints.fingerprints(networks)
    assert found.keys() == {'critic'} and np.shape(found['critic']) == (2 * probes.ROWS, 2)
    fingerprints.check_fingerprints(networks, found)
    fingerprints.check_fingerprints(networks, found)
    fingerprints.check_fingerprints(networks, {})
    networks['critic'].trainable_variables[0].assign_add(tf.fill([3, 2], 0.1))
    message = r'^net_list\[1\] \(critic\) computes something else from the saved weights .*\.$'
    with pytest.raises(ValueError, match=message):
        fingerprints.check_fingerprints(networks, found)
