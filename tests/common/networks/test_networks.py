"""The assembled networks: every image size, specs and their refusals, seeds, gains, and TensorLayer beside Keras."""

from __future__ import annotations

import itertools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.vector.utils import batch_space

from zoo.common import spaces
from zoo.common.acting.convert import convert
from zoo.common.adaptors.observation import Preprocess
from zoo.common.networks.build import build_network
from zoo.common.networks.heads import deterministic_head, value_head
from zoo.common.networks.layers.batch_renorm import BatchRenormalization
from zoo.common.networks.layers.dense import Dense
from zoo.common.networks.layers.dueling import DuelingHead
from zoo.common.networks.layers.layer_norm import LayerNormalization
from zoo.common.networks.layers.noisy import NoisyDense
from zoo.common.networks.network import Network
from zoo.common.networks.pieces import convolutions, embedding_width
from zoo.common.networks.spec import SPEC_DEFAULTS, full_spec, with_own_seeds

SIZES = [(8, 8), (9, 13), (36, 36), (42, 42), (64, 64), (84, 84), (160, 210), (210, 160), (240, 320)]
ENTRY = 'net_list[0] (q)'


def network(space: Space, action_size: int = 0, **spec: Any) -> Network:
    return build_network(spec, ENTRY, Preprocess(space, {}), value_head(action_size=action_size))


def observations(space: Space, n: int = 2) -> spaces.Flat:
    batched = batch_space(space, n)
    batched.seed(0)
    return spaces.tree_map(tf.constant, spaces.flatten(space, batched.sample()))


def weights(net: Network) -> list[np.ndarray]:
    return [variable.numpy() for variable in net.variables]


def unbounded(*shape: int) -> Box:
    return Box(-np.inf, np.inf, shape, np.float32)


# Images of every size.


@pytest.mark.parametrize('size', [*SIZES, (63, 63), (65, 127), (128, 128), (129, 500), (8, 100)], ids=str)
def test_convolutions_fit(size: tuple[int, int]):
    height, width = size
    for _, kernel, stride, padding in convolutions(*size):
        if padding == 'valid':
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        else:
            height, width = -(-height // stride), -(-width // stride)
        assert min(height, width) >= 1
    filters = convolutions(*size)[-1][0]
    assert 500 <= filters * height * width <= 20_000, 'neither squeezed to a point nor most of the network'


@pytest.mark.parametrize('size', SIZES, ids=str)
def test_the_parameter_count_is_reasonable(size: tuple[int, int]):
    count = sum(x.size for x in weights(network(Box(0, 255, (*size, 3), np.uint8), hidden=[])))
    assert 100_000 < count < 7_000_000


@pytest.mark.full
@pytest.mark.parametrize('layout', ['channels last', 'channels first', '2-D', 'float'])
@pytest.mark.parametrize('size', SIZES, ids=str)
def test_images_of_every_size_and_layout(size: tuple[int, int], layout: str):
    space = {
        'channels last': Box(0, 255, (*size, 3), np.uint8),
        'channels first': Box(0, 255, (4, *size), np.uint8),
        '2-D': Box(0, 255, size, np.uint8),
        'float': Box(-1, 1, (*size, 1), np.float32),
    }[layout]
    net = network(space, hidden=[16], features=16, activation='relu')
    obs = observations(space)
    with tf.GradientTape() as tape:
        out = net(obs)
        loss = tf.reduce_sum(tf.square(out - 1.0))
    assert out.shape == (2, 1)
    assert np.isfinite(out).all()
    assert out[0] != out[1], 'it sees the image'
    first = tape.gradient(loss, net.trainable_variables)[0]
    assert np.isfinite(first).all()
    assert np.abs(first).max() > 0


def test_the_two_channel_orders_are_one_network():
    last, first = (network(Box(0, 255, s, np.uint8), seed=0, features=8) for s in ((9, 13, 3), (3, 9, 13)))
    image = np.random.default_rng(0).integers(0, 256, (2, 9, 13, 3), dtype=np.uint8)
    np.testing.assert_array_equal(last(image), first(image.transpose(0, 3, 1, 2)))


def test_the_setting_of_keras_does_not_turn_images_around(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr('keras.src.backend.config._IMAGE_DATA_FORMAT', 'channels_first')
    assert keras.config.image_data_format() == 'channels_first'
    assert weights(network(Box(0, 255, (24, 30, 3), np.uint8)))[0].shape[2] == 3


def test_nature_network_by_hand():
    # Mnih et al. 2015: 32 8x8/4, 64 4x4/2, 64 3x3/1, 512; on 84 x 84 x 4 the last map is 7 x 7.
    net = network(Box(0, 255, (4, 84, 84), np.uint8), hidden=[])
    sizes = [x.size for x in weights(net)]
    assert sizes == [8 * 8 * 4 * 32, 32, 4 * 4 * 32 * 64, 64, 3 * 3 * 64 * 64, 64, 7 * 7 * 64 * 512, 512, 512, 1]


# What is assembled.


def test_vectors_become_a_chain_of_dense_layers():
    space = Dict(a=unbounded(3), b=Discrete(4), c=MultiBinary(2), d=MultiDiscrete([2, 3]))
    net = network(space, hidden=[7, 5], activation='silu')
    assert [x.shape for x in weights(net)] == [(3 + 4 + 2 + 5, 7), (7,), (7, 5), (5,), (5, 1), (1,)]
    assert [part.layer.activation for part in convert(net)] == ['silu', 'silu', 'linear']


def test_no_hidden_layer_is_a_linear_network():
    net = network(unbounded(3), hidden=[])
    kernel, bias = weights(net)
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_allclose(net(x), x @ kernel + bias, atol=1e-6)
    assert [part.layer.activation for part in convert(net)] == ['linear']


def test_large_discrete_is_embedded():
    net = network(Discrete(1000, start=-5), hidden=[4], activation='tanh')
    table, kernel, bias, head, head_bias = weights(net)
    assert table.shape == (1000, embedding_width(1000))
    obs = np.array([-5, 994, 0])
    expected = np.tanh(table[obs + 5] @ kernel + bias) @ head + head_bias
    np.testing.assert_allclose(net(obs), expected, atol=1e-5)


@pytest.mark.parametrize(('count', 'width'), [(257, 40), (1000, 48), (10_000, 80), (10**6, 128)])
def test_embedding_width(count: int, width: int):
    assert embedding_width(count) == width


AWKWARD = {
    'names of layers': Dict(action=Box(0, 255, (8, 8, 3), np.uint8), join=unbounded(2), hidden0=Discrete(300)),
    'alike but for the slash': Dict({'a_b': unbounded(2), 'a': Dict(b=Discrete(300)), 'a b': unbounded(1)}),
    'not for TensorFlow': Dict({'lé ft, cam!': Box(0, 255, (8, 8, 3), np.uint8), '_': unbounded(2)}),
    'nested tuple': Tuple([Tuple([Box(0, 1, (8, 8)), Discrete(500)]), unbounded(2)]),
}


@pytest.mark.full(but='alike but for the slash')
@pytest.mark.parametrize('space', AWKWARD.values(), ids=AWKWARD)
def test_keys_may_be_anything(space: Space):
    net = network(space, action_size=2, hidden=[8], features=8)
    obs, action = observations(space), tf.zeros([2, 2])
    in_graph = tf.function(net.__call__)(obs, action)
    np.testing.assert_allclose(in_graph, net(obs, action), atol=1e-5)


@pytest.mark.parametrize(
    'space', [unbounded(3), Box(0, 255, (8, 8, 3), np.uint8), Dict(a=unbounded(2), b=Discrete(300))], ids=str
)
def test_a_critic_sees_state_and_action(space: Space):
    net = network(space, action_size=2, hidden=[16], features=16)
    obs, action = observations(space), tf.constant([[0.1, 0.2], [0.3, 0.4]])
    out = net(obs, action)
    assert out.shape == (2, 1)
    assert (net(obs, action + 1.0).numpy() != out.numpy()).all()
    assert (net(spaces.tree_map(lambda x: x[::-1], obs), action).numpy() != out.numpy()).all()


def test_features_of_a_dict_are_matched_by_key():
    space = Dict(x=unbounded(2), y=unbounded(2), image=Box(0, 255, (8, 8, 3), np.uint8))
    net = network(space, hidden=[8], features=8)
    obs = observations(space)
    np.testing.assert_array_equal(net(dict(reversed(obs.items()))), net(obs))
    assert (net({**obs, 'x': obs['y'], 'y': obs['x']}).numpy() != net(obs).numpy()).all()


# Specs.


@pytest.mark.parametrize(
    ('spec', 'message'),
    [
        ({'hiden': [64]}, "unknown key of a network spec 'hiden': did you mean 'hidden'"),
        ({'activaton': 'relu'}, "did you mean 'activation'"),
        ({'layers': 'tensorlayers'}, "unknown kind of layers 'tensorlayers': did you mean 'tensorlayer'"),
        ({'activation': 'rellu'}, "Keras has no activation 'rellu'"),
        ({'activation': tf.nn.relu}, r'activation is <function relu.*; give its name in keras.activations'),
        ({'initializer': 'orthogonl'}, "Keras has no initializer 'orthogonl'"),
        ({'hidden': 64}, r'hidden is 64; give the units of each layer, such as \[64, 64\]'),
        ({'hidden': '64'}, "hidden is '64'; give the units"),
        ({'hidden': [64, 0]}, 'a layer of 0 units cannot be made; give positive whole numbers'),
        ({'hidden': [6.4]}, 'a layer of 6.4 units'),
        ({'features': -1}, 'a layer of -1 units'),
        ({'seed': -1}, 'seed is -1; give a whole number from 0 on, or None'),
        ({'seed': 'a'}, "seed is 'a'"),
        (
            {'normalize': 'batch_norm'},
            "normalize is 'batch_norm'; give 'batch_renorm', 'layer_norm', 'pre_layer_norm' or None",
        ),
        ({'normalize': True}, "normalize is True; give 'batch_renorm', 'layer_norm', 'pre_layer_norm' or None"),
        ({'normalize': 'batch_renorm', 'layers': 'tensorlayer'}, "is a Keras layer, .* give layers='keras'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else '',
)
def test_a_wrong_spec_is_refused_in_one_sentence(spec: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message) as error:
        network(unbounded(3), **spec)
    text = str(error.value)
    assert text.startswith(f'{ENTRY}: ')
    assert text.endswith('.')
    assert '\n' not in text


@pytest.mark.parametrize(
    ('space', 'hidden', 'expected'),
    [
        (unbounded(3), [4, 5], [5, 4, 5]),  # with two entries of the action
        (unbounded(3), [], [5]),
        (Dict(a=unbounded(3), b=Box(0, 255, (8, 8, 3), np.uint8)), [4], [13, 4]),  # and eight features of the image
    ],
    ids=['vector', 'no hidden layer', 'image and more'],
)
def test_batch_renormalization_of_what_enters_and_after_every_layer(
    space: Space, hidden: list[int], expected: list[int]
):
    spec = {'hidden': hidden, 'features': 8, 'seed': 0}
    plain, normed = network(space, 2, **spec), network(space, 2, normalize='batch_renorm', **spec)
    norms = [layer for layer in normed.torso.layers if isinstance(layer, BatchRenormalization)]
    assert [norm.gamma.shape[0] for norm in norms] == expected
    kinds = [type(layer) for layer in normed.torso.layers if type(layer) in (Dense, BatchRenormalization)]
    assert kinds[-1] is BatchRenormalization
    obs, action = observations(space), tf.constant([[0.5, -0.5], [1.0, 0.0]])
    for norm in norms:
        norm.epsilon = 0.0  # then a new one changes nothing
    np.testing.assert_allclose(normed(obs, action), plain(obs, action), rtol=1e-5, atol=1e-6)
    for norm in norms:
        norm.epsilon = 1e-3
    assert np.abs(normed(obs, action, training=True) - plain(obs, action)).max() > 1e-3
    assert [norm.steps.numpy() for norm in norms] == [1] * len(norms)


@pytest.mark.parametrize('space', [unbounded(3), Box(0, 255, (8, 8, 3), np.uint8)], ids=['vector', 'image'])
def test_layer_normalization_after_every_layer(space: Space):
    net = network(space, 2, hidden=[4, 5], features=8, normalize='layer_norm')
    kinds = [type(layer) for layer in net.torso.layers if type(layer) in (Dense, keras.layers.LayerNormalization)]
    assert kinds[-4:] == [Dense, keras.layers.LayerNormalization] * 2
    encoded = net.encode(observations(space), tf.constant([[0.5, -0.5], [1.0, 0.0]])).numpy()
    np.testing.assert_allclose(encoded.mean(-1), 0.0, atol=1e-5)
    np.testing.assert_allclose(encoded.std(-1), 1.0, rtol=1e-3)


def test_layer_normalization_before_every_activation():
    """Worked again in NumPy, with scales other than 1 and shifts other than 0."""
    net = network(unbounded(3), 0, hidden=[4, 5], activation='tanh', normalize='pre_layer_norm')
    rng, obs = np.random.default_rng(0), observations(unbounded(3))
    x = np.float64(obs)
    for dense, norm in zip(net.torso.layers[::2], net.torso.layers[1::2], strict=True):
        for weight in norm.weights:
            weight.assign(rng.normal(size=weight.shape))
        x = x @ dense.kernel.numpy() + dense.bias.numpy()
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        x = np.tanh(x * norm.gamma.numpy() + norm.beta.numpy())
    np.testing.assert_allclose(net.encode(obs), x, rtol=1e-5, atol=1e-5)
    again = keras.models.clone_model(net.torso)
    again.set_weights(net.torso.get_weights())
    np.testing.assert_allclose(again(obs), net.torso(obs), atol=1e-6)  # its config has the activation


def test_layer_normalization_before_every_activation_of_images():
    net = network(Box(0, 255, (8, 8, 3), np.uint8), 2, hidden=[4], features=8, normalize='pre_layer_norm')
    weighted = [layer for layer in net.torso.layers if layer.weights]
    assert [type(layer) is LayerNormalization for layer in weighted] == [False, True] * 3
    assert [layer.activation.__name__ for layer in weighted] == ['linear', 'relu'] * 2 + ['linear', 'tanh']
    assert weighted[1].gamma.shape == (32,)  # one for each channel


def test_a_spec_is_filled_in_and_not_changed():
    spec = {'hidden': [3]}
    full = full_spec(spec, ENTRY)
    assert spec == {'hidden': [3]}
    assert full.keys() == SPEC_DEFAULTS.keys()
    assert full['activation'] == 'tanh'


# Seeds and gains.

SEEDED = {'vector': unbounded(3), 'image': Box(0, 255, (8, 8, 3), np.uint8), 'dict': Dict(a=Discrete(300))}


@pytest.mark.full(but='vector-he_normal')
@pytest.mark.parametrize('initializer', ['glorot_uniform', 'orthogonal', 'he_normal'])
@pytest.mark.parametrize('space', SEEDED.values(), ids=SEEDED)
def test_a_seed_fixes_the_initial_weights(space: Space, initializer: str):
    spec = dict(hidden=[8, 8], features=8, initializer=initializer)
    one, same, other, free, free_too = (weights(network(space, **spec, seed=seed)) for seed in (1, 1, 2, None, None))
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)
    for found in (other, free, free_too):
        for a, b in zip(one, found, strict=True):
            assert a.ndim == 1 or (a != b).mean() > 0.9
    assert (free[0] != free_too[0]).mean() > 0.9


def test_layers_of_one_shape_start_differently():
    net = network(unbounded(8), hidden=[8, 8, 8], seed=0)
    kernels = [x for x in weights(net) if x.shape == (8, 8)]
    assert len(kernels) == 3
    for a, b in itertools.combinations(kernels, 2):
        assert (a != b).mean() > 0.9


def test_without_a_seed_the_one_of_keras_holds():
    found = []
    for _ in range(2):
        keras.utils.set_random_seed(7)
        torso = keras.Sequential([keras.layers.Dense(5)])
        attached = build_network(torso, ENTRY, Preprocess(unbounded(3), {}), value_head())
        found.append([*weights(network(unbounded(3))), *weights(attached)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def gram(kernel: np.ndarray) -> np.ndarray:
    """The inner products of the columns, or of the rows where these are fewer."""
    kernel = kernel.reshape(-1, kernel.shape[-1])
    return kernel.T @ kernel if kernel.shape[0] >= kernel.shape[1] else kernel @ kernel.T


@pytest.mark.parametrize(('gain', 'squared'), [(0.01, 1e-4), (1.0, 1.0), (None, 1.0)])
def test_orthogonal_gains(gain: float | None, squared: float):
    space = Dict(image=Box(0, 255, (9, 9, 2), np.uint8), x=unbounded(4))
    head = deterministic_head(3, gain)
    spec = dict(hidden=[16, 8], features=8, initializer='orthogonal')
    net = build_network(spec, ENTRY, Preprocess(space, {}), head)
    *hidden, last = [x for x in weights(net) if x.ndim > 1]
    assert len(hidden) == 4
    for kernel in hidden:
        np.testing.assert_allclose(gram(kernel), 2.0 * np.eye(min(gram(kernel).shape)), atol=1e-5)
    np.testing.assert_allclose(gram(last), squared * np.eye(3), atol=1e-6)
    for bias in (x for x in weights(net) if x.ndim == 1):
        np.testing.assert_array_equal(bias, 0)


def test_dueling_by_hand():
    # V = 2 x1, A = (x1, x2, x1 + x2) with mean 2 (x1 + x2) / 3; at x = (3, 6): V = 6, A = (3, 6, 9), mean 6.
    head = DuelingHead(Dense(1, kernel_initializer='zeros'), Dense(3, kernel_initializer='zeros'), 1)
    head.build((None, 2))
    head.value.kernel.assign([[2.0], [0.0]])
    head.advantage.kernel.assign([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    np.testing.assert_allclose(head(tf.constant([[3.0, 6.0]])), [[3.0, 6.0, 9.0]], atol=1e-6)
    head.value.bias.assign([10.0])
    head.advantage.bias.assign([0.0, 0.0, 3.0])  # the mean of A rises by 1
    np.testing.assert_allclose(head(tf.constant([[3.0, 6.0]])), [[12.0, 15.0, 21.0]], atol=1e-6)
    assert len(head.trainable_variables) == 4


def test_dueling_of_distributions_by_hand():
    # Two actions of two atoms, from x = 1: V = (1, 10), A = (2, 4) and (6, 0), whose mean over the actions is (4, 2).
    head = DuelingHead(Dense(2), Dense(4), 2)
    head.build((None, 1))
    head.value.kernel.assign([[1.0, 10.0]])
    head.advantage.kernel.assign([[2.0, 4.0, 6.0, 0.0]])
    np.testing.assert_allclose(head(tf.ones([1, 1])), [[-1.0, 12.0, 3.0, 8.0]], atol=1e-6)


class TestNoisyDense:
    """Fortunato et al. 2018, section 3."""

    @staticmethod
    def layer(width: int = 2, units: int = 1, sigma: float = 0.5) -> NoisyDense:
        made = NoisyDense(units, sigma, (0, 1), dtype='float32')
        made.build((None, width))
        return made

    def test_by_hand(self):
        layer = self.layer()
        layer.kernel.assign([[1.0], [2.0]])
        layer.bias.assign([3.0])
        layer.noise_kernel.assign([[0.5], [0.25]])
        layer.noise_bias.assign([2.0])
        x = tf.constant([[10.0, 20.0]])
        np.testing.assert_allclose(layer(x), [[53.0]])
        # f(4) = 2, f(-9) = -3, f(0.25) = 0.5: kernel (1 + 0.5 · 2 · 0.5, 2 - 0.25 · 3 · 0.5), bias 3 + 2 · 0.5.
        found = layer(x, tf.constant([[4.0, -9.0, 0.25]]))
        np.testing.assert_allclose(found, [[10.0 * 1.5 + 20.0 * 1.625 + 4.0]])

    def test_a_draw_for_all_rows_or_for_each(self):
        layer, rng = self.layer(4, 3), np.random.default_rng(0)
        x, noise = rng.normal(size=(5, 4)).astype('f'), rng.normal(size=(5, 7)).astype('f')
        each = layer(x, noise)
        for i in range(5):
            np.testing.assert_allclose(layer(x, noise[i : i + 1])[i], each[i], atol=1e-5)
            assert np.abs(layer(x, noise[i : i + 1])[i - 1] - each[i - 1]).max() > 1e-3

    def test_its_weights_at_first(self):
        layer = self.layer(400, 50)
        for mean in (layer.kernel, layer.bias):
            assert np.abs(mean).max() <= 1 / 20 and np.abs(mean).max() > 0.9 / 20
        assert np.std(layer.kernel) == pytest.approx(1 / 20 / np.sqrt(3), rel=0.02)
        for deviation in (layer.noise_kernel, layer.noise_bias):
            np.testing.assert_allclose(deviation, 0.5 / 20)
        assert np.abs(self.layer(400, 50).kernel - layer.kernel).max() == 0.0

    def test_moments_of_the_output(self):
        # The noise has mean 0 and E f(ε)² = E |ε| = √(2/π), so the output's variance is Σ σ² x² (2/π) + σ_b² √(2/π).
        layer, x = self.layer(2, 1), np.array([[1.0, -2.0]], np.float32)
        layer.noise_kernel.assign([[0.3], [0.2]])
        layer.noise_bias.assign([0.5])
        noise = np.random.default_rng(0).normal(size=(200_000, 3)).astype('f')
        found = layer(np.repeat(x, len(noise), 0), noise).numpy()[:, 0]
        variance = (0.3**2 + 0.4**2) * 2 / np.pi + 0.25 * np.sqrt(2 / np.pi)
        assert found.mean() == pytest.approx(float(layer(x)[0, 0]), abs=0.01)
        assert found.var() == pytest.approx(variance, rel=0.02)

    def test_gradients(self):
        layer, rng = self.layer(3, 2), np.random.default_rng(1)
        x, noise, upstream = (rng.normal(size=shape).astype('f') for shape in ((4, 3), (1, 5), (4, 2)))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, noise) * upstream)
        kernel, bias, noise_kernel, noise_bias = tape.gradient(loss, layer.trainable_variables)
        scaled = np.sign(noise[0]) * np.sqrt(np.abs(noise[0]))
        np.testing.assert_allclose(kernel, x.T @ upstream, rtol=1e-5)
        np.testing.assert_allclose(bias, upstream.sum(0), rtol=1e-5)
        np.testing.assert_allclose(noise_kernel, x.T @ upstream * np.outer(scaled[:3], scaled[3:]), rtol=1e-4)
        np.testing.assert_allclose(noise_bias, upstream.sum(0) * scaled[3:], rtol=1e-4)


# TensorLayer.

BOTH: dict[str, tuple[Space, int]] = {
    'vector': (unbounded(3), 0),
    'critic': (unbounded(3), 2),
    'linear': (unbounded(3), 0),
    'image': (Box(0, 255, (3, 64, 64), np.uint8), 0),
    'small image': (Box(0, 255, (9, 13), np.uint8), 2),
    'index': (Discrete(300, start=2), 0),
    'dict': (Dict(i=Discrete(300), v=unbounded(3), c=Box(0, 255, (8, 8, 3), np.uint8), m=MultiBinary(2)), 2),
}


@pytest.mark.full(but='linear-glorot_uniform')
@pytest.mark.parametrize(
    ('case', 'initializer'),
    [
        pytest.param(case, initializer, marks=[] if initializer[0] == 'g' or case == 'dict' else pytest.mark.matrix)
        for case in BOTH
        for initializer in ('glorot_uniform', 'orthogonal')
    ],
)
def test_tensorlayer_networks_are_those_of_keras(case: str, initializer: str):
    pytest.importorskip('tensorlayer')
    space, action_size = BOTH[case]
    hidden = [] if case == 'linear' else [8, 6]
    spec = dict(hidden=hidden, features=8, activation='elu', initializer=initializer, seed=3)
    ours = network(space, action_size, **spec)
    theirs = network(space, action_size, **spec, layers='tensorlayer')
    assert type(theirs.torso).__module__.startswith('tensorlayer')
    assert sorted(x.shape for x in weights(ours)) == sorted(x.shape for x in weights(theirs))
    obs = observations(space)
    action = tf.constant([[0.5, -0.5], [0.2, 0.1]]) if action_size else None
    # The same seed gives the same weights, so that the two are one function.
    np.testing.assert_allclose(theirs(obs, action), ours(obs, action), atol=1e-5)
    assert theirs(obs, action)[0] != theirs(obs, action)[1]


@pytest.mark.full
def test_tensorlayer_networks_train():
    pytest.importorskip('tensorlayer')
    space, action_size = BOTH['dict']
    net = network(space, action_size, hidden=[8], features=8, layers='tensorlayer', seed=0)
    obs, action = observations(space), tf.constant([[0.5, -0.5], [0.2, 0.1]])
    optimizer = keras.optimizers.SGD(0.01)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(net(obs, action) - [[3.0], [-3.0]]))
        gradients = tape.gradient(loss, net.trainable_variables)
        assert all(gradient is not None for gradient in gradients)
        optimizer.apply(gradients, net.trainable_variables)
        return loss

    optimizer.build(net.trainable_variables)
    losses = [float(step()) for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]
    assert len(net.trainable_variables) == len(net.variables) == 1 + 2 * 2 + 2 + 2


def test_tensorlayer_missing_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__('sys').modules, 'tensorlayer', None)
    with pytest.raises(ImportError, match=r"pip install 'zoo-rl\[tensorlayer\]'"):
        network(unbounded(3), layers='tensorlayer')


def test_seeds_are_made_different_where_networks_of_one_kind_have_the_same():
    names = ('actor', 'critic_1', 'critic_2')
    apart = [{'seed': 5}, {'seed': 5}, {'seed': 6}]
    assert with_own_seeds(apart, names) == apart  # an actor and a critic are of two kinds
    equal = [{'seed': 5}, {'seed': 5, 'hidden': [4]}, {'seed': 5, 'hidden': [4]}]
    found = with_own_seeds(equal, names)
    assert found[:2] == equal[:2] and found[2]['hidden'] == [4] and found[2]['seed'] != 5
    assert found == with_own_seeds(equal, names)
    others = ['actor', {'seed': None}, {'seed': None}]
    assert with_own_seeds(others, names) == others
