"""Acting: the NumPy forward against Keras for every activation and every policy, the graph elsewhere, and masks."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.vector.utils import batch_space

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.acting.forward import Forward
from zoo.common.acting.greedy import EpsilonGreedy
from zoo.common.acting.layers import ACTIVATIONS, Means
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.masks import MASKED_LOGIT
from zoo.common.adaptors.observation import Preprocess, features, mask_path
from zoo.common.maths.normalize import RunningMoments
from zoo.common.networks.build import build_network
from zoo.common.networks.heads import Head, action_value_head, deterministic_head, stochastic_head, value_head
from zoo.common.networks.network import Network
from zoo.common.networks.policy import StochasticPolicy


def unbounded(*shape: int) -> Box:
    return Box(-np.inf, np.inf, shape, np.float32)


VECTOR = unbounded(3)
IMAGE = Box(0, 255, (3, 9, 13), np.uint8)
FLAT = Dict(
    {
        'b': Tuple([unbounded(2), Discrete(3, start=1)]),
        'a': Dict({'flags': MultiBinary(2), 'gear': MultiDiscrete([2, 3])}),
        'c': Box(-1, 1, (2, 2), np.float64),
    }
)


def network(space: Space, entry: Any = None, head: Head | None = None, normalize: bool = False) -> Network:
    statistics = {}
    if normalize:
        for item in features(space, normalize=True):
            if item.normalize:
                statistics[item.path] = RunningMoments(item.size)
                statistics[item.path].update(np.random.default_rng(0).normal(1.0, 3.0, (50, item.size)))
    entry = {'hidden': [16, 8]} if entry is None else entry
    return build_network(entry, 'net_list[0] (actor)', Preprocess(space, statistics), head or action_value_head(4))


def observations(space: Space, n: int = 6, seed: int = 0) -> spaces.Flat:
    batched = batch_space(space, n)
    batched.seed(seed)
    return spaces.flatten(space, batched.sample())


def tensors(obs: spaces.Flat) -> spaces.Flat:
    return spaces.tree_map(tf.constant, obs)


def shake(variables: list[tf.Variable], seed: int = 0, scale: float = 0.5) -> None:
    """Other weights, biases among them, which all start at zero."""
    rng = np.random.default_rng(seed)
    for variable in variables:
        variable.assign_add(rng.normal(0, scale, variable.shape))


# The NumPy forward.


@pytest.mark.parametrize('name', ACTIVATIONS)
def test_activations_are_those_of_keras(name: str):
    x = np.concatenate([np.linspace(-100, 100, 2001), [-1e30, 1e30, 0.0, -0.0]]).astype(np.float32)
    with np.errstate(over='raise', invalid='raise'):
        found = ACTIVATIONS[name](x.copy())
    np.testing.assert_allclose(found, keras.activations.get(name)(x), rtol=1e-5, atol=1e-5)
    assert found.dtype == np.float32


@pytest.mark.full(but='vector-elu')
@pytest.mark.parametrize('name', ACTIVATIONS)
@pytest.mark.parametrize('space', [VECTOR, FLAT], ids=['vector', 'nested'])
def test_numpy_equals_keras_for_every_activation(name: str, space: Space):
    net = network(space, {'hidden': [16, 8], 'activation': name}, normalize=True)
    shake(net.trainable_variables)
    forward = Forward(net)
    assert forward.numpy is not None
    for n in (1, 6):
        obs = observations(space, n)
        before = spaces.tree_map(np.copy, obs)
        found = forward(obs)
        np.testing.assert_allclose(found, net(tensors(obs)), rtol=1e-5, atol=1e-5)
        assert found.dtype == np.float32
        spaces.tree_map(np.testing.assert_array_equal, obs, before)


@pytest.mark.parametrize(
    'head', [value_head(1.0), deterministic_head(3), action_value_head(5)], ids=['value', 'action', 'values']
)
@pytest.mark.parametrize('hidden', [[], [8]], ids=str)
def test_numpy_equals_keras_for_every_head(head: Head, hidden: list[int]):
    net = network(VECTOR, {'hidden': hidden}, head)
    shake(net.trainable_variables)
    forward = Forward(net)
    assert forward.numpy is not None
    obs = observations(VECTOR)
    np.testing.assert_allclose(forward(obs), net(tensors(obs)), atol=1e-5)


@pytest.mark.parametrize('kind', ['layer_norm', 'pre_layer_norm'])
@pytest.mark.parametrize('space', [VECTOR, FLAT], ids=['vector', 'nested'])
def test_numpy_equals_keras_with_layer_normalization(space: Space, kind: str):
    net = network(space, {'hidden': [16, 8], 'activation': 'relu', 'normalize': kind}, normalize=True)
    shake(net.trainable_variables)
    forward, obs = Forward(net), observations(space, 6)
    assert forward.numpy is not None
    np.testing.assert_allclose(forward(obs), net(tensors(obs)), rtol=1e-5, atol=1e-5)


def test_layers_without_a_bias():
    dense = keras.layers.Dense
    entry = keras.Sequential([dense(8, 'relu', use_bias=False), dense(6, 'tanh'), dense(4, use_bias=False)])
    net = network(VECTOR, entry)
    shake(net.trainable_variables)
    forward = Forward(net)
    assert forward.numpy is not None
    obs = observations(VECTOR)
    np.testing.assert_allclose(forward(obs), net(tensors(obs)), atol=1e-5)


# Policies.

POLICIES: dict[str, tuple[Space, bool]] = {
    'categorical': (Discrete(4, start=2), False),
    'multi-categorical': (MultiDiscrete([[2, 3], [4, 2]]), False),
    'bernoulli': (MultiBinary(3), False),
    'gaussian': (Box(-1, 1, (2, 2)), False),
    'squashed': (Box(-1, 1, (3,)), True),
    'dict': (Dict(b=Discrete(3), a=Box(-1, 1, (2,)), c=Box(-1, 1, (1,))), False),
    'tuple': (Tuple([MultiBinary(2), Dict(x=Box(-1, 1, (2,)), y=MultiDiscrete([2, 3]))]), False),
    'discrete tuple': (Tuple([Discrete(2), MultiBinary(3)]), False),
    'squashed dict': (Dict(a=Box(-1, 1, (2,)), b=Discrete(3)), True),
    'squashed tuple': (Tuple([Discrete(3), Box(-1, 1, (2,))]), True),
}


def policy(
    obs_space: Space, action_space: Space, squash: bool = False, entry: Any = None, normalize: bool = False
) -> StochasticPolicy:
    adaptor = ActionAdaptor(action_space, squash)
    entry = {'hidden': [16, 8]} if entry is None else entry
    net = network(obs_space, entry, stochastic_head(adaptor, free_log_std=not squash), normalize)
    return StochasticPolicy(net, adaptor, log_std_init=-0.3)


@pytest.mark.full(but='bernoulli-vector-True')
@pytest.mark.parametrize('normalize', [False, True])
@pytest.mark.parametrize('space', [VECTOR, FLAT], ids=['vector', 'nested'])
@pytest.mark.parametrize('kind', POLICIES)
def test_numpy_equals_keras_for_every_policy(kind: str, space: Space, normalize: bool):
    found = policy(space, *POLICIES[kind], normalize=normalize)
    shake(found.trainable_variables)
    if POLICIES[kind][1]:  # log standard deviations beyond their bounds, one on each side
        bias = found.network.head.layers[-1].bias
        beyond = np.flatnonzero(np.isfinite(found.adaptor.param_bounds[0]))
        moved = bias.numpy()
        moved[beyond[:2]] = [-1e3, 1e3]
        bias.assign(moved)
    forward = Forward(found.network, found)
    assert forward.numpy is not None
    obs = observations(space)
    params = forward(obs)
    assert params.shape == (6, found.adaptor.param_size)
    np.testing.assert_allclose(params, found(tensors(obs)), rtol=1e-5, atol=2e-5)
    if POLICIES[kind][1]:
        low, high = found.adaptor.param_bounds
        assert (params[:, beyond[0]] == low[beyond[0]]).all()
        assert (params[:, beyond[1]] == high[beyond[1]]).all()


def test_a_complete_gaussian_network_is_bounded_alike():
    size = 3
    found = policy(VECTOR, Box(-1, 1, (size,)), entry=keras.Sequential([keras.layers.Dense(2 * size)]))
    assert found.log_std is None
    shake(found.trainable_variables)
    found.network.torso.layers[-1].bias.assign([0, 0, 0, -1e3, 1e3, 0])
    forward = Forward(found.network, found)
    assert forward.numpy is not None
    obs = observations(VECTOR)
    np.testing.assert_allclose(forward(obs), found(tensors(obs)), rtol=1e-5, atol=2e-5)
    assert (forward(obs)[:, size : size + 2] == [-20.0, 2.0]).all()


# Masks.


def masked(space: Space, mask: Space) -> Dict:
    return Dict(observation=space, action_mask=mask)


MASKS = {
    'bits': MultiBinary(5),
    'bools': Box(0, 1, (5,), bool),
    'floats': Box(0, 1, (5,), np.float32),
}


def masked_observations(space: Space) -> tuple[spaces.Flat, np.ndarray]:
    obs = observations(space)
    allowed = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 1]] * 3).astype(obs['action_mask'].dtype)
    return {**obs, 'action_mask': allowed}, allowed.astype(bool)


@pytest.mark.full
@pytest.mark.parametrize('mask', MASKS.values(), ids=MASKS)
@pytest.mark.parametrize('seen', [VECTOR, IMAGE], ids=['numpy', 'graph'])
@pytest.mark.parametrize('action_space', [Discrete(5, start=3), MultiDiscrete([2, 3])], ids=str)
def test_masked_policies(action_space: Space, seen: Space, mask: Space):
    space = masked(seen, mask)
    found = policy(space, action_space, entry={'hidden': [8], 'features': 8})
    shake(found.trainable_variables)
    forward = Forward(found.network, found)
    assert (forward.numpy is not None) == (seen is VECTOR)
    obs, allowed = masked_observations(space)
    params = forward(obs)
    np.testing.assert_allclose(params, found(tensors(obs)), atol=1e-5)
    np.testing.assert_array_equal(params == MASKED_LOGIT, ~allowed)
    rng = np.random.default_rng(0)
    many = np.repeat(params, 500, 0)
    for action in (found.adaptor.sample(many, rng), found.adaptor.mode(many)):
        columns = action.reshape(len(many), -1) + ([0, 2] if action.ndim == 2 else 0)
        assert np.take_along_axis(np.repeat(allowed, 500, 0), columns, 1).all()


@pytest.mark.parametrize('seen', [VECTOR, IMAGE], ids=['numpy', 'graph'])
def test_masked_values(seen: Space):
    space = masked(seen, MultiBinary(5))
    net = network(space, {'hidden': [8], 'features': 8}, action_value_head(5))
    forward = Forward(net, mask_path=mask_path(space))
    obs, allowed = masked_observations(space)
    found = forward(obs)
    np.testing.assert_allclose(found[allowed], net(tensors(obs)).numpy()[allowed], atol=1e-5)
    np.testing.assert_array_equal(found[~allowed], MASKED_LOGIT)
    assert allowed[np.arange(6), found.argmax(-1)].all()


@pytest.mark.parametrize('seen', [VECTOR, IMAGE], ids=['numpy', 'graph'])
def test_a_mask_that_forbids_everything_is_none(seen: Space):
    space = masked(seen, MultiBinary(5))
    net = network(space, {'hidden': [8], 'features': 8}, action_value_head(5))
    several = policy(space, MultiDiscrete([2, 3]), entry={'hidden': [8], 'features': 8})
    obs = observations(space)
    obs['action_mask'] = np.tile(np.array([0, 0, 0, 0, 1], np.int8), (6, 1))
    obs['action_mask'][1:] = 0
    values = Forward(net, mask_path=mask_path(space))(obs)
    np.testing.assert_array_equal(values[:1] == MASKED_LOGIT, [[True, True, True, True, False]])
    np.testing.assert_allclose(values[1:], net(tensors(obs))[1:], atol=1e-5)
    params, alone = Forward(several.network, several)(obs), several.network(tensors(obs)).numpy()
    np.testing.assert_allclose(params, several(tensors(obs)), atol=1e-5)
    np.testing.assert_array_equal(params[:1] == MASKED_LOGIT, [[False, False, True, True, False]])
    np.testing.assert_allclose(params[1:], alone[1:], atol=1e-5)


@pytest.mark.parametrize(
    ('action_space', 'columns'), [(Discrete(5), [range(5)]), (MultiDiscrete([2, 3]), [range(2), range(3)])], ids=str
)
def test_random_actions_where_the_mask_forbids_everything_are_of_all(action_space: Space, columns: list[range]):
    space = masked(VECTOR, MultiBinary(5))
    behavior = Behavior(None, ActionAdaptor(action_space), mask_path(space))
    obs = {'action_mask': np.zeros((400, 5), np.int8)}
    drawn = behavior.random(obs, np.random.default_rng(0)).reshape(400, -1)
    for found, values in zip(drawn.T, columns, strict=True):
        assert (np.bincount(found, minlength=len(values)) > 50).all()


@pytest.mark.parametrize('mask', [MultiBinary(4), MultiBinary([2, 3]), Discrete(5)], ids=str)
def test_a_mask_of_another_size_is_refused(mask: Space):
    space = masked(VECTOR, mask)
    net = network(space, head=action_value_head(5))
    entries = int(np.prod(mask.shape))
    with pytest.raises(ValueError, match=f"'action_mask' has {entries} entries, but there are 5 actions: give it one"):
        Forward(net, mask_path=mask_path(space))
    found = policy(space, Discrete(5))
    with pytest.raises(ValueError, match='there are 5 actions'):
        Forward(found.network, found)


# Which forward, and its weights.


class Twice(keras.Sequential):
    def call(self, *args: Any, **kwargs: Any) -> Any:
        return 2.0 * super().call(*args, **kwargs)


def relu(x: Any) -> Any:
    """Not what its name says."""
    return -x


GRAPHS: dict[str, tuple[Space, Callable[[], Any]]] = {
    'image': (IMAGE, lambda: {'hidden': [8], 'features': 8}),
    'embedding': (Discrete(300, start=5), lambda: {'hidden': [8]}),
    'activation not in NumPy': (VECTOR, lambda: {'hidden': [8], 'activation': 'selu'}),
    'activation of the user': (VECTOR, lambda: keras.Sequential([keras.layers.Dense(4, relu)])),
    'overridden call': (VECTOR, lambda: Twice([keras.layers.Dense(4)])),
    'layer norm without a shift': (
        VECTOR,
        lambda: keras.Sequential([keras.layers.Dense(6), keras.layers.LayerNormalization(center=False)]),
    ),
    'layer norm by the root mean square': (
        VECTOR,
        lambda: keras.Sequential([keras.layers.Dense(6), keras.layers.LayerNormalization(rms_scaling=True)]),
    ),
    'functional': (VECTOR, lambda: functional()),
    'tensorlayer': (VECTOR, lambda: pytest.importorskip('tensorlayer') and {'hidden': [8], 'layers': 'tensorlayer'}),
}


def functional() -> keras.Model:
    x = keras.Input((3,))
    return keras.Model(x, keras.layers.Add()([keras.layers.Dense(4)(x), keras.layers.Dense(4, 'relu')(x)]))


@pytest.mark.full(but='activation of the user')
@pytest.mark.parametrize('case', GRAPHS)
def test_what_is_no_chain_of_dense_layers_acts_by_a_graph(case: str):
    space, entry = GRAPHS[case]
    net = network(space, entry())
    forward = Forward(net)
    assert forward.numpy is None
    obs = observations(space)
    before = forward(obs)
    np.testing.assert_allclose(before, net(tensors(obs)), atol=1e-5)
    assert isinstance(before, np.ndarray)
    assert forward.pack().shape == (0,)
    forward.unpack(np.zeros(0, np.float32))
    shake(net.trainable_variables)
    after = forward(obs)  # the graph reads the weights itself
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(after, net(tensors(obs)), atol=1e-5)


@pytest.mark.full(but='one stream-noisy-distributions-quantiles-linear')
@pytest.mark.parametrize('hidden', [[], [8]], ids=['linear', 'a hidden layer'])
@pytest.mark.parametrize('support', [None, [-1.0, 0.5, 4.0]], ids=['quantiles', 'atoms'])
@pytest.mark.parametrize('count', [1, 3], ids=['values', 'distributions'])
@pytest.mark.parametrize('sigma', [0.0, 0.5], ids=['plain', 'noisy'])
@pytest.mark.parametrize('dueling', [False, True], ids=['one stream', 'dueling'])
def test_heads_of_values_act_in_numpy(dueling, sigma, count, support, hidden):
    net = network(VECTOR, {'hidden': hidden}, action_value_head(4, dueling, count, sigma=sigma))
    shake(net.trainable_variables)
    means = Means(count, None if support is None else np.float32(support))
    forward, obs = Forward(net, means=means), observations(VECTOR)
    found = forward(obs)
    assert forward.numpy is not None and found.shape == (spaces.count(obs), 4)
    np.testing.assert_allclose(found, means(net(tensors(obs))), atol=1e-5)
    assert (forward.noise_size > 0) == (sigma > 0)
    if sigma:
        noise = np.random.default_rng(0).standard_normal((len(found), forward.noise_size), dtype=np.float32)
        noisy = forward(obs, noise)
        np.testing.assert_allclose(noisy, means(net(tensors(obs), noise=tf.constant(noise))), atol=1e-5)
        assert np.abs(noisy - found).max() > 0.01
    twin = pickle.loads(pickle.dumps(forward.numpy))
    np.testing.assert_array_equal(twin(obs), found)
    shake(net.trainable_variables)
    forward.refresh()
    np.testing.assert_allclose(forward(obs), means(net(tensors(obs))), atol=1e-5)
    np.testing.assert_array_equal(forward.pack(), forward.numpy.packed)


@pytest.mark.parametrize('dueling', [False, True])
def test_a_noisy_head_after_an_image_acts_by_a_graph(dueling):
    space = Dict(image=IMAGE, action_mask=MultiBinary(4))
    net = network(space, {'hidden': [], 'features': 8}, action_value_head(4, dueling, 3, sigma=0.5))
    forward = Forward(net, mask_path='action_mask', means=Means(3))
    assert forward.numpy is None
    obs = observations(space)
    obs['action_mask'][:] = [0, 1, 1, 1]
    mean = Means(3)(net(tensors(obs))).numpy()[:, 1:]
    np.testing.assert_allclose(forward(obs)[:, 1:], mean, atol=1e-5)
    assert (forward(obs)[:, 0] == -1e9).all()
    noise = np.random.default_rng(0).standard_normal((len(mean), forward.noise_size), dtype=np.float32)
    expected = Means(3)(net(tensors(obs), noise=tf.constant(noise))).numpy()[:, 1:]
    np.testing.assert_allclose(forward(obs, noise)[:, 1:], expected, atol=1e-5)
    assert np.abs(expected - mean).max() > 1e-3


class TestMeans:
    OUTPUT = np.float32([[0.0, np.log(3.0), 5.0, 5.0]])  # two actions of two numbers each

    @pytest.mark.parametrize('kind', [np.asarray, tf.constant])
    def test_by_hand(self, kind):
        output = kind(self.OUTPUT)
        np.testing.assert_allclose(Means()(output), self.OUTPUT)
        np.testing.assert_allclose(Means(2)(output), [[np.log(3.0) / 2, 5.0]], rtol=1e-6)
        # Probabilities (1/4, 3/4) and (1/2, 1/2) of -2 and 6.
        np.testing.assert_allclose(Means(2, np.float32([-2.0, 6.0]))(output), [[4.0, 2.0]], rtol=1e-6)

    def test_large_logits_do_not_overflow(self):
        output = np.float32([[1000.0, 0.0, -1000.0, 0.0]])
        np.testing.assert_allclose(Means(2, np.float32([-2.0, 6.0]))(output), [[-2.0, 6.0]])


def test_noisy_weights_are_drawn_for_every_observation_and_never_without_exploration():
    net = network(VECTOR, head=action_value_head(4, sigma=5.0))
    adaptor = ActionAdaptor(Discrete(4))
    behavior = EpsilonGreedy(Forward(net), adaptor, None, 0.0)
    obs = np.zeros_like(observations(VECTOR, 500)) + 0.1
    behaviors = [behavior, pickle.loads(pickle.dumps(behavior.light()))]
    drawn = [made(obs, np.random.default_rng(0), 0.0) for made in behaviors]
    assert len(set(drawn[0])) == 4  # the same observation, a draw for each
    np.testing.assert_array_equal(*drawn)  # the same numbers, whoever acts
    best = net(tensors(obs[:1])).numpy().argmax()
    assert (behavior(obs, np.random.default_rng(0), 0.0, deterministic=True) == best).all()


def test_few_graphs_for_all_numbers_of_copies_and_orders_of_keys():
    space = Dict(image=IMAGE, b=unbounded(2), a=Discrete(3))
    net = network(space, {'hidden': [8], 'features': 8})
    forward = Forward(net)
    for n in (1, 4, 2, 3, 1):
        obs = observations(space, n)
        found = forward(obs)
        np.testing.assert_allclose(found, net(tensors(obs)), atol=1e-5)
        np.testing.assert_array_equal(forward(dict(reversed(obs.items()))), found)
    assert set(forward.graphs) == {1, 4, None}


@pytest.mark.full(but='gaussian')
@pytest.mark.parametrize('kind', ['categorical', 'gaussian', 'dict', 'squashed'])
def test_weights_come_back_from_a_compiled_update(kind: str):
    found = policy(VECTOR, *POLICIES[kind])
    forward = Forward(found.network, found)
    obs = observations(VECTOR)
    before = forward(obs).copy()

    @tf.function(jit_compile=True)
    def update() -> tf.Tensor:
        for variable in found.trainable_variables:
            variable.assign_add(tf.fill(variable.shape, 0.1))
        return tf.concat([[7.0], forward.pack()], 0)

    result = update().numpy()
    np.testing.assert_array_equal(forward(obs), before)  # it acts with the weights that it was given
    forward.unpack(result[1:])
    assert np.abs(forward(obs) - before).max() > 0.01
    np.testing.assert_allclose(forward(obs), found(tensors(obs)), atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize('kind', ['gaussian', 'squashed'])  # with a free log standard deviation and without
def test_normalisation_is_taken_in_by_the_layer_after_it(kind: str):
    found = policy(VECTOR, *POLICIES[kind], {'hidden': [16, 8], 'normalize': 'batch_renorm'})
    torso = found.network.torso
    forward = Forward(found.network, found)
    obs = observations(VECTOR)

    @tf.function(jit_compile=True)
    def update() -> tf.Tensor:
        for variable in found.trainable_variables:
            variable.assign_add(tf.random.stateless_normal(variable.shape, [1, 2], stddev=0.3))
        torso(obs, training=True)
        return forward.pack()

    forward.unpack(update().numpy())
    outputs = forward(obs)
    np.testing.assert_allclose(outputs, found(tensors(obs)), rtol=1e-5, atol=2e-5)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(forward.numpy))(obs), outputs)
    forward.refresh()
    np.testing.assert_array_equal(forward(obs), outputs)
    assert not forward.packs_trained, 'moving statistics are not trained'


def test_refresh_reads_the_weights_again():
    found = policy(VECTOR, Box(-1, 1, (2,)))
    forward = Forward(found.network, found)
    shake(found.trainable_variables)
    obs = observations(VECTOR)
    assert np.abs(forward(obs) - found(tensors(obs)).numpy()).max() > 0.01
    forward.refresh()
    np.testing.assert_allclose(forward(obs), found(tensors(obs)), atol=1e-5)


def test_statistics_are_followed_by_both_forms():
    for space, entry in ((VECTOR, {'hidden': [8]}), (Dict(v=VECTOR, i=IMAGE), {'hidden': [8], 'features': 8})):
        net = network(space, entry, normalize=True)
        forward = Forward(net)
        obs = observations(space)
        before = forward(obs).copy()
        next(iter(net.preprocess.statistics.values())).update(np.full((100, 3), 2.0))
        assert np.abs(forward(obs) - before).max() > 1e-3
        np.testing.assert_allclose(forward(obs), net(tensors(obs)), atol=1e-5)


def test_an_actor_needs_no_tensorflow():
    code = """
import pickle, sys
import numpy as np
from gymnasium.spaces import Box, Discrete
from zoo.common.acting.chain import Chain
from zoo.common.acting.layers import Affine
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import Preprocess
from zoo.common.maths.normalize import RunningMoments

statistics = {'': RunningMoments(3)}
statistics[''].update(np.array([[0.0, 0.0, 0.0], [2.0, 2.0, 2.0]]))
adaptor = ActionAdaptor(Discrete(2))
layers = [Affine((3, 4), True, 'tanh'), Affine((4, 2), False)]
forward = Chain(Preprocess(Box(-9, 9, (3,)), statistics), layers)
forward.unpack(np.concatenate([np.ones(12 + 8), np.zeros(4)]).astype(np.float32))
forward = pickle.loads(pickle.dumps(forward))
params = forward(np.full((1, 3), 2.0, np.float32))
np.testing.assert_allclose(params, np.full((1, 2), 4 * np.tanh(3.0)), atol=1e-5)
assert adaptor.to_single_env(adaptor.sample(params, np.random.default_rng(0))) in (0, 1)
assert not {'tensorflow', 'keras'} & sys.modules.keys()
"""
    subprocess.run([sys.executable, '-c', code], check=True, timeout=60)
