"""The torso of a spec in TensorLayer layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from zoo.common.adaptors.observation import Feature
from zoo.common.networks.pieces import SeedSequence, convolutions, embedding_width, initializer
from zoo.common.tools.errors import MissingPackage


def tensorlayer_torso(features: Sequence[Feature], spec: dict[str, Any], extra: int = 0) -> Any:
    """A static TensorLayer 2 model of one input per feature, like :func:`zoo.common.networks.torsos.keras_torso`.

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
