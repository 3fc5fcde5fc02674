"""Layer normalization with an activation after it."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable('zoo')
class LayerNormalization(keras.layers.LayerNormalization):
    """``activation(keras.layers.LayerNormalization(x))``: normalization between a layer and its activation.

    Ba et al. 2016, *Layer Normalization* (arXiv 1607.06450), equation 4. It normalizes over the last axis: the units
    of a dense layer, or the channels of a convolution at each place.

    Args:
        activation: a Keras activation or its name; None: none.
    """

    def __init__(self, activation: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation = keras.activations.get(activation)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.activation(super().call(inputs))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {'activation': keras.activations.serialize(self.activation)}
