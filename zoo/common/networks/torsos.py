"""The networks that the adaptors assemble from a small spec, of Keras layers or of TensorLayer layers.

A spec is a dict; every key has a default::

    dict(hidden=[256, 256],           # units of the dense layers
         activation='relu',           # any Keras activation
         initializer='glorot_uniform',# any Keras initializer; 'orthogonal' has gain sqrt(2)
         features=512,                # units after a convolutional encoder
         layers='keras',              # or 'tensorlayer'
         seed=None,                   # fixes the initial weights
         normalize=None,              # or 'batch_renorm': of what enters the hidden layers, and after each of them
         recurrent=None,              # or 'lstm' or 'gru': a recurrent layer after the hidden ones
         recurrent_units=None,        # of that layer; None: as many as the last hidden layer, or ``features``, has
         dtype='float32')             # or 'mixed_bfloat16'; Keras' global dtype policy where an agent's spec has none

What comes out ends before the head, which belongs to the algorithm (:mod:`zoo.common.adaptors.policy`).

Mixed precision is that of Keras: in ``'mixed_bfloat16'`` convolutions and wide dense layers of the torso round what
they are given and their weights to bfloat16, 8 bits in place of 24, and compute in it. The weights themselves stay
float32, and so does all that is not the torso: recurrent layers, heads, hence values and the parameters of
distributions, losses, optimisers, checkpoints, and the forward pass in NumPy by which chains of dense layers act. Dense
layers with a kernel of at most 128 × 128 entries, which would lose by it, stay float32 too
(:mod:`zoo.common.networks.layers.dense`).
It pays on a processor that has AMX or a GPU that has bfloat16, for layers of some 256 units on batches of some hundred
rows, and for images. The figures are in ``benchmarks/results``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.common.adaptors.observation import Feature
from zoo.common.networks.layers.batch_renorm import BatchRenormalization
from zoo.common.networks.layers.dense import Dense


def convolutions(height: int, width: int) -> list[tuple[int, int, int, str]]:
    """Filters, kernel, stride and padding of the convolutions that fit an image of this size (at least 8 × 8).

    From 64 pixels on the network of Mnih et al. (2015, Nature, Methods), after halving layers that bring larger images
    below 128; smaller images, where its strides would leave a single pixel, get halving 3 × 3 layers until at most
    5 pixels are left, as in the universe-starter-agent that A3C papers used on 42 × 42 frames.
    """
    layers: list[tuple[int, int, int, str]] = []
    side = min(height, width)
    if side >= 64:
        while max(height, width) > 128 and min(height, width) >= 128:
            layers.append((32, 3, 2, 'same'))
            height, width = -(-height // 2), -(-width // 2)
        return [*layers, (32, 8, 4, 'valid'), (64, 4, 2, 'valid'), (64, 3, 1, 'valid')]
    while side > 5:
        layers.append((32 if len(layers) < 2 else 64, 3, 2, 'same'))
        side = -(-side // 2)
    return layers


class SeedSequence:
    """Integer seeds for initialisers, one per call.

    Without a seed they come from Python's ``random``, as Keras' own do, so that ``keras.utils.set_random_seed`` fixes
    the head that is attached to a user's network too.
    """

    def __init__(self, seed: int | Sequence[int] | None) -> None:
        self._rng = np.random.default_rng(random.getrandbits(64) if seed is None else seed)

    def __call__(self) -> int:
        return int(self._rng.integers(2**31 - 1))


def initializer(name: str, seed: int, gain: float = np.sqrt(2.0)) -> Any:
    """A Keras initialiser with its seed; ``gain`` is that of the orthogonal one."""
    if name == 'orthogonal':
        return keras.initializers.Orthogonal(gain=gain, seed=seed)
    made = keras.initializers.get(name)
    config = made.get_config()
    if 'seed' in config:
        made = type(made).from_config({**config, 'seed': seed})
    return made


def activation_name(activation: Callable[..., Any]) -> str:
    """The name by which Keras knows an activation; empty for a function of the user's own, whatever its name."""
    name = getattr(activation, '__name__', '')
    return name if any(getattr(module, name, None) is activation for module in (keras.activations, tf.nn)) else ''


def keras_torso(features: Sequence[Feature], spec: dict[str, Any], extra: int = 0) -> keras.Model:
    """A Keras model from the features, in their order, to the last hidden layer.

    Features that are all vectors are joined by the caller, and the model is a plain ``Sequential`` of dense layers;
    otherwise it is a functional model of one input per feature.

    Args:
        features: what the observation adaptor gives.
        spec: a full spec.
        extra: length of a vector that joins the encoded observation, last: the action of a critic.
    """
    seeds, dtype = SeedSequence(spec['seed']), spec['dtype']
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
            for j, (filters, kernel, stride, padding) in enumerate(convolutions(*item.shape[:2])):
                x = keras.layers.Conv2D(
                    filters,
                    kernel,
                    stride,
                    padding,
                    activation='relu',
                    kernel_initializer=initializer(spec['initializer'], seeds()),
                    dtype=dtype,
                    name=f'{name}_conv{j}',
                )(x)
            x = keras.layers.Flatten(dtype=dtype, name=f'{name}_flat')(x)
            x = Dense(
                spec['features'],
                activation='relu',
                kernel_initializer=initializer(spec['initializer'], seeds()),
                dtype=dtype,
                name=f'{name}_features',
            )(x)
        elif item.kind == 'index':
            x = keras.layers.Embedding(
                item.counts[0],
                embedding_width(item.counts[0]),
                embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0, seed=seeds()),
                dtype='float32',
                name=f'{name}_embedding',
            )(x)
        parts.append(x)
    if extra:
        inputs.append(keras.Input((extra,), dtype='float32', name='action'))
        parts.append(inputs[-1])
    x = parts[0] if len(parts) == 1 else keras.layers.Concatenate(dtype='float32', name='join')(parts)
    for layer in _hidden(spec, seeds):
        x = layer(x)
    return keras.Model(inputs, x)


def _hidden(spec: dict[str, Any], seeds: SeedSequence) -> list[keras.layers.Layer]:
    normed = spec['normalize'] is not None
    layers: list[keras.layers.Layer] = [BatchRenormalization(name='input_norm')] if normed else []
    for i, units in enumerate(spec['hidden']):
        made = Dense(
            units,
            activation=spec['activation'],
            kernel_initializer=initializer(spec['initializer'], seeds()),
            dtype=spec['dtype'],
            name=f'hidden{i}',
        )
        layers += [made, BatchRenormalization(name=f'hidden{i}_norm')] if normed else [made]
    return layers


def embedding_width(count: int) -> int:
    """Width of the embedding of ``count`` values: the fourth root rule of thumb, eightfold, at most 128."""
    return min(128, 8 * int(np.ceil(count**0.25)))


def tensorlayer_torso(features: Sequence[Feature], spec: dict[str, Any], extra: int = 0) -> Any:
    """The same as :func:`keras_torso` as a static TensorLayer 2 model of one input per feature.

    Raises:
        ImportError: TensorLayer is not installed.
    """
    tl = _tensorlayer()
    seeds = SeedSequence(spec['seed'])
    act = keras.activations.get(spec['activation'])

    base: Any = tl.initializers.Initializer

    class Weights(base):
        """A Keras initialiser in TensorLayer's protocol, so that both kinds of layers start alike."""

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
    model.eval()  # it wants to know its mode, which makes no difference to these layers
    return model


def _tensorlayer() -> Any:
    try:
        import tensorlayer
    except ImportError as error:
        raise ImportError(
            f"networks of TensorLayer layers need the extra: pip install 'zoo-rl[tensorlayer]' ({error})."
        ) from error
    return tensorlayer


def torso(
    features: Sequence[Feature], spec: dict[str, Any], extra: int = 0
) -> tuple[Any, Callable[[list[tf.Tensor], bool], tf.Tensor]]:
    """The torso of a full spec, and the function that calls it: of the list of its features (and the action), and
    whether in training mode.

    What that function gives is float32, whatever the torso computes in, for a
    :class:`zoo.common.networks.layers.dense.Dense` or what
    joins the features is its last layer.
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
    """Whether a torso that was assembled computes anything in bfloat16."""
    return any(
        layer.rounds
        if isinstance(layer, Dense)
        else isinstance(layer, keras.layers.Conv2D) and layer.compute_dtype == 'bfloat16'
        for layer in torso.layers
    )
