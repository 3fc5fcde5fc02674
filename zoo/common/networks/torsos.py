"""Torsos assembled from a spec, in Keras layers or TensorLayer layers.

A spec is a dict; every key has a default. An algorithm's ``default_network`` comes before these::

    dict(hidden=[256, 256],           # units of the dense layers
         activation='relu',           # any Keras activation
         initializer='glorot_uniform',# any Keras initializer; 'orthogonal' has gain sqrt(2)
         features=512,                # units after a convolutional encoder
         layers='keras',              # or 'tensorlayer'
         seed=None,                   # fixes the initial weights
         normalize=None,              # or 'batch_renorm': before the hidden layers, and after each of them;
                                      # or 'layer_norm': after each of them;
                                      # or 'pre_layer_norm': before every activation, in the encoder of images too
         recurrent=None,              # or 'lstm' or 'gru': a recurrent layer after the hidden ones
         recurrent_units=None,        # units of that layer; None: as many as the last hidden layer, or ``features``
         dtype='float32')             # or 'mixed_bfloat16'; without it an agent takes Keras' global dtype policy

A torso ends before the head, which belongs to the algorithm (:mod:`zoo.common.networks.heads`).

Mixed precision is Keras': with ``'mixed_bfloat16'`` the torso's convolutions and wide dense layers round their inputs
and weights to bfloat16, 8 bits in place of 24, and compute in it. The stored weights stay float32. So does everything
after the torso: recurrent layers, heads, values, parameters of distributions, losses, optimizers, checkpoints, and the
forward pass in NumPy. Dense layers with a kernel of at most 128 × 128 entries, which would be slower, stay float32 too
(:mod:`zoo.common.networks.layers.dense`). It pays on a processor with AMX or a GPU with bfloat16, for layers of some
256 units on batches of some hundred rows, and for images (``benchmarks/results``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from zoo.common.adaptors.observation import Feature
from zoo.common.networks.layers.batch_renorm import BatchRenormalization
from zoo.common.networks.layers.dense import Dense
from zoo.common.networks.layers.layer_norm import LayerNormalization
from zoo.common.networks.pieces import SeedSequence, convolutions, embedding_width, initializer
from zoo.common.tools.errors import MissingPackage


def keras_torso(features: Sequence[Feature], spec: dict[str, Any], extra: int = 0) -> keras.Model:
    """A Keras model from the features, in their order, to the last hidden layer.

    If all features are vectors, the caller joins them, and the model is a plain ``Sequential`` of dense layers.
    Otherwise it is a functional model with one input per feature.

    ``extra`` is the length of a vector that joins the encoded observation: the action of a critic.
    """
    seeds, dtype, normalize = SeedSequence(spec['seed']), spec['dtype'], spec['normalize'] == 'pre_layer_norm'
    if all(item.is_vector for item in features):
        width = sum(item.size for item in features) + extra
        layers = _hidden(spec, seeds) or [keras.layers.Identity(dtype='float32')]  # a Sequential needs one
        return keras.Sequential([keras.Input((width,), dtype='float32'), *layers])
    inputs, parts = [], []
    for i, item in enumerate(features):
        # TensorFlow takes few characters in a name, Keras none twice, and keys may be anything.
        name = f'obs{i}_{re.sub("[^A-Za-z0-9]+", "_", item.path)}'
        x = keras.Input(item.shape, dtype='int32' if item.kind == 'index' else 'float32', name=name)
        inputs.append(x)
        if item.kind == 'image':
            like: dict[str, Any] = {'activation': None if normalize else 'relu', 'dtype': dtype}
            last = {'data_format': 'channels_last'}  # as images come, whatever Keras' own setting is
            for j, sizes in enumerate(convolutions(*item.shape[:2])):
                kernel = initializer(spec['initializer'], seeds())
                x = keras.layers.Conv2D(*sizes, kernel_initializer=kernel, name=f'{name}_conv{j}', **like, **last)(x)
                x = _normalized('relu', f'{name}_conv{j}')(x) if normalize else x
            x = keras.layers.Flatten(dtype=dtype, name=f'{name}_flat', **last)(x)
            kernel = initializer(spec['initializer'], seeds())
            x = Dense(spec['features'], kernel_initializer=kernel, name=f'{name}_features', **like)(x)
            x = _normalized('relu', f'{name}_features')(x) if normalize else x
        elif item.kind == 'index':
            table = keras.initializers.RandomNormal(stddev=1.0, seed=seeds())
            shape = item.counts[0], embedding_width(item.counts[0])
            x = keras.layers.Embedding(*shape, table, dtype='float32', name=f'{name}_embedding')(x)
        parts.append(x)
    if extra:
        inputs.append(keras.Input((extra,), dtype='float32', name='action'))
        parts.append(inputs[-1])
    x = parts[0] if len(parts) == 1 else keras.layers.Concatenate(dtype='float32', name='join')(parts)
    for layer in _hidden(spec, seeds):
        x = layer(x)
    return keras.Model(inputs, x)


def _hidden(spec: dict[str, Any], seeds: SeedSequence) -> list[keras.layers.Layer]:
    kind = spec['normalize']
    layers: list[keras.layers.Layer] = [BatchRenormalization(name='input_norm')] if kind == 'batch_renorm' else []
    for i, units in enumerate(spec['hidden']):
        kernel = initializer(spec['initializer'], seeds())
        activation = None if kind == 'pre_layer_norm' else spec['activation']
        layers.append(Dense(units, activation, kernel_initializer=kernel, dtype=spec['dtype'], name=f'hidden{i}'))
        if kind == 'batch_renorm':
            layers.append(BatchRenormalization(name=f'hidden{i}_norm'))
        elif kind == 'layer_norm':
            layers.append(keras.layers.LayerNormalization(epsilon=1e-6, dtype='float32', name=f'hidden{i}_norm'))
        elif kind == 'pre_layer_norm':
            layers.append(_normalized(spec['activation'], f'hidden{i}'))
    return layers


def _normalized(activation: str | None, name: str) -> LayerNormalization:
    return LayerNormalization(activation, epsilon=1e-6, dtype='float32', name=f'{name}_norm')


def tensorlayer_torso(features: Sequence[Feature], spec: dict[str, Any], extra: int = 0) -> Any:
    """A static TensorLayer 2 model of one input per feature, like :func:`keras_torso`.

    Raises:
        ImportError: TensorLayer is not installed.
    """
    tl = _tensorlayer()
    seeds = SeedSequence(spec['seed'])
    act = keras.activations.get(spec['activation'])

    base: Any = tl.initializers.Initializer

    class Weights(base):
        """A Keras initializer in TensorLayer's protocol: both kinds of layers start alike."""

        def __init__(self, made: Any) -> None:
            self.made = made

        def __call__(self, shape: Sequence[int], dtype: Any = tf.float32) -> tf.Tensor:
            return tf.convert_to_tensor(self.made(tuple(shape), 'float32'))

    def weights() -> Weights:
        return Weights(initializer(spec['initializer'], seeds()))

    inputs, parts = [], []
    for item in features:
        x = tl.layers.Input([None, *item.shape], dtype=tf.int32 if item.kind == 'index' else tf.float32)
        inputs.append(x)
        if item.kind == 'image':
            for filters, kernel, stride, padding in convolutions(*item.shape[:2]):
                size, strides = (kernel, kernel), (stride, stride)
                x = tl.layers.Conv2d(filters, size, strides, tf.nn.relu, padding.upper(), W_init=weights())(x)
            x = tl.layers.Flatten()(x)
            x = tl.layers.Dense(spec['features'], tf.nn.relu, weights())(x)
        elif item.kind == 'index':
            table = Weights(keras.initializers.RandomNormal(stddev=1.0, seed=seeds()))
            x = tl.layers.Embedding(item.counts[0], embedding_width(item.counts[0]), E_init=table)(x)
        parts.append(x)
    if extra:
        inputs.append(tl.layers.Input([None, extra]))
        parts.append(inputs[-1])
    x = parts[0] if len(parts) == 1 else tl.layers.Concat(-1)(parts)
    for units in spec['hidden']:
        x = tl.layers.Dense(units, act, weights())(x)
    model = tl.models.Model(inputs if len(inputs) > 1 else inputs[0], x)
    model.eval()  # it must know its mode, which makes no difference to these layers
    return model


def _tensorlayer() -> Any:
    try:
        import tensorlayer
    except ImportError as error:
        raise MissingPackage(
            f"networks of TensorLayer layers need the extra: pip install 'zoo-rl[tensorlayer]' ({error})."
        ) from error
    return tensorlayer


def torso(
    features: Sequence[Feature], spec: dict[str, Any], extra: int = 0
) -> tuple[Any, Callable[[list[tf.Tensor], bool], tf.Tensor]]:
    """The torso of a full spec, and the function that calls it, of a list of inputs and training mode.

    The function's output is float32 whatever the torso's dtype, because the last layer is a
    :class:`zoo.common.networks.layers.dense.Dense`, normalizes, or joins the features.
    """
    if spec['layers'] == 'tensorlayer':
        model = tensorlayer_torso(features, spec, extra)
        return model, lambda inputs, training: model(inputs if len(inputs) > 1 else inputs[0])
    model = keras_torso(features, spec, extra)
    if isinstance(model, keras.Sequential):

        def call(inputs: list[tf.Tensor], training: bool) -> tf.Tensor:
            return model(inputs[0] if len(inputs) == 1 else tf.concat(inputs, -1), training=training)

        return model, call
    return model, lambda inputs, training: model(inputs, training=training)


def rounds(torso: keras.Model) -> bool:
    """Whether an assembled torso computes anything in bfloat16."""
    convolves = any(isinstance(x, keras.layers.Conv2D) and x.compute_dtype == 'bfloat16' for x in torso.layers)
    return convolves or any(isinstance(x, Dense) and x.rounds for x in torso.layers)
