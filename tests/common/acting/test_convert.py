"""Which networks become a chain of NumPy layers, and in which order their weights are packed."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, Space

from zoo.common.acting.convert import convert
from zoo.common.acting.forward import Forward
from zoo.common.acting.layers import Affine, Dueling, LayerNorm, NoisyAffine, NormalizedAffine
from zoo.common.acting.recurrent_layers import Gru
from zoo.common.adaptors.observation import Preprocess
from zoo.common.networks.build import build_network
from zoo.common.networks.heads import Head, action_value_head
from zoo.common.networks.network import Network

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
IMAGE = Box(0, 255, (8, 8, 3), np.uint8)


def build(space: Space, entry: Any, head: Head | None = None) -> Network:
    return build_network(entry, 'net_list[0] (q)', Preprocess(space, {}), head or action_value_head(2))


class Twice(keras.Sequential):
    def call(self, *args: Any, **kwargs: Any) -> Any:
        return 2.0 * super().call(*args, **kwargs)


def test_only_a_plain_chain_is_converted():
    dense = keras.layers.Dense

    def names(*layers: Any, space: Space = VECTOR, kind: type = keras.Sequential) -> list[str] | None:
        found = convert(build(space, kind(list(layers))))
        return found and [part.layer.activation for part in found]

    assert names(dense(4, 'tanh'), dense(2)) == ['tanh', 'linear']
    assert names(dense(4, tf.nn.relu), dense(5, 'silu', use_bias=False)) == ['relu', 'silu', 'linear']
    assert names(dense(4), keras.layers.Dropout(0.5), dense(2)) is None
    assert names(dense(4), dense(2), kind=Twice) is None
    assert names(dense(4, dtype='float64'), dense(2, dtype='float32')) is None
    adapted = dense(4)
    adapted.build((None, 3))
    adapted.enable_lora(2)
    assert names(adapted, dense(2)) is None
    assert names(dense(2), space=Discrete(3)) == ['linear']
    assert names(keras.layers.Flatten(), dense(2), space=IMAGE) is None
    inputs = keras.Input((3,))
    assert convert(build(VECTOR, keras.Model(inputs, dense(2)(inputs)))) is None
    assert convert(build(Dict(x=VECTOR, y=VECTOR), {'hidden': [4]})) is not None


@pytest.mark.parametrize(
    ('entry', 'head', 'kinds'),
    [
        ({'hidden': [4]}, action_value_head(3, dueling=True), [Affine, Dueling]),
        ({'hidden': [4]}, action_value_head(3, sigma=0.5), [Affine, NoisyAffine]),
        ({'hidden': [4], 'normalize': 'batch_renorm'}, None, [NormalizedAffine, NormalizedAffine]),
        ({'hidden': [4], 'normalize': 'layer_norm'}, None, [Affine, LayerNorm, Affine]),
        ({'hidden': [4], 'normalize': 'pre_layer_norm'}, None, [Affine, LayerNorm, Affine]),
        ({'hidden': [4], 'recurrent': 'gru'}, None, [Affine, Gru, Affine]),
        # A normalization needs a plain dense layer after it, which takes it in.
        ({'hidden': [4], 'normalize': 'batch_renorm'}, action_value_head(3, sigma=0.5), None),
        ({'hidden': [4], 'normalize': 'batch_renorm', 'recurrent': 'gru'}, None, None),
        ({'hidden': [4], 'recurrent': 'gru'}, action_value_head(3, sigma=0.5), None),
    ],
)
def test_kinds_of_layers(entry: dict[str, Any], head: Head | None, kinds: list[type] | None):
    found = convert(build(VECTOR, entry, head))
    assert (found and [type(part.layer) for part in found]) == kinds


def reversed_relu(x: tf.Tensor) -> tf.Tensor:
    return -x


reversed_relu.__name__ = 'relu'


@pytest.mark.parametrize('activation', [lambda x: x, keras.layers.LeakyReLU(0.3), reversed_relu])
def test_an_activation_of_the_users_own_is_not_taken_for_one_of_keras(activation: Any):
    assert convert(build(VECTOR, keras.Sequential([keras.layers.Dense(2, activation)]))) is None


def test_kernels_are_packed_before_biases():
    """Evolution strategies draw their perturbations in this order, and their optimizers save moments in it."""
    network = build(VECTOR, {'hidden': [4]})
    first, last = network.torso.layers[0], network.head.layers[0]
    first.bias.assign([7.0] * 4)
    last.bias.assign([8.0] * 2)
    packed = Forward(network).pack().numpy()
    np.testing.assert_array_equal(packed[:12], np.ravel(first.kernel))
    np.testing.assert_array_equal(packed[12:20], np.ravel(last.kernel))
    np.testing.assert_array_equal(packed[20:], [7.0] * 4 + [8.0] * 2)
