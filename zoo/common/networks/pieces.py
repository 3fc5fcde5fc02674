"""Pieces of torsos and heads, in Keras and TensorLayer: sizes of encoders, initial weights, names of activations."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def convolutions(height: int, width: int) -> list[tuple[int, int, int, str]]:
    """Filters, kernel, stride and padding of the convolutions that fit an image of this size (at least 8 × 8).

    From 64 pixels on it is the network of Mnih et al. (2015, Nature, Methods), after layers that halve larger images to
    at most 128. In smaller images its strides would leave a single pixel. They get halving 3 × 3 layers until at most
    5 pixels are left, as in the universe-starter-agent, which A3C papers used on 42 × 42 frames.
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


def embedding_width(count: int) -> int:
    """Width of the embedding of ``count`` values: the fourth root rule of thumb, eightfold, at most 128."""
    return min(128, 8 * int(np.ceil(count**0.25)))


class SeedSequence:
    """Integer seeds for initializers, one per call.

    Without a seed Python's ``random`` gives them, as in Keras, so ``keras.utils.set_random_seed`` fixes every head.
    """

    def __init__(self, seed: int | Sequence[int] | None) -> None:
        self._rng = np.random.default_rng(random.getrandbits(64) if seed is None else seed)

    def __call__(self) -> int:
        return int(self._rng.integers(2**31 - 1))


def initializer(name: str, seed: int, gain: float = np.sqrt(2.0)) -> Any:
    """A Keras initializer with a seed; only the orthogonal one has the ``gain``."""
    if name == 'orthogonal':
        return keras.initializers.Orthogonal(gain=gain, seed=seed)
    made = keras.initializers.get(name)
    config = made.get_config()
    return type(made).from_config({**config, 'seed': seed}) if 'seed' in config else made


def activation_name(activation: Callable[..., Any]) -> str:
    """Keras' name of an activation; empty for a user's own function, whatever its name."""
    name = getattr(activation, '__name__', '')
    return name if any(getattr(module, name, None) is activation for module in (keras.activations, tf.nn)) else ''
