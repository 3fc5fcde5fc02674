"""The same numbers computed again: networks in NumPy with float64, and gradients by finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.common.acting.convert import convert

ACTIVATIONS = {'tanh': np.tanh, 'relu': lambda x: np.maximum(x, 0.0), 'linear': lambda x: x}


class NumpyNetwork:
    """A chain of dense layers in float64, with weights that may be changed."""

    def __init__(self, network: Any) -> None:
        layers = convert(network)
        assert layers is not None
        self.activations = [ACTIVATIONS[part.layer.activation] for part in layers]
        self.weights = [np.float64(v.numpy()) for part in layers for v in (*part.kernels, *part.others)]

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        x = np.concatenate([np.float64(x) for x in inputs], -1)
        for i, activation in enumerate(self.activations):
            x = activation(x @ self.weights[2 * i] + self.weights[2 * i + 1])
        return x


def finite_differences(loss: Callable[[], float], weights: list[np.ndarray], step: float = 1e-6) -> list[np.ndarray]:
    """The gradient of ``loss()`` by central differences; ``loss`` reads ``weights``, float64 arrays."""
    gradients = []
    for weight in weights:
        gradient = np.zeros_like(weight)
        for index in np.ndindex(weight.shape):
            kept = weight[index]
            weight[index] = kept + step
            above = loss()
            weight[index] = kept - step
            gradient[index] = (above - loss()) / (2 * step)
            weight[index] = kept
        gradients.append(gradient)
    return gradients


def assert_close(found: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Lists of weights or gradients are equal to rounding."""
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol)


def copies(variables: list[tf.Variable]) -> list[np.ndarray]:
    """The values as they are now."""
    return [variable.numpy().copy() for variable in variables]


def stir(variables: list[tf.Variable], seed: int = 5, scale: float = 0.5) -> None:
    """Add noise, so that networks which start equal, or biases which start at zero, do not hide a mistake."""
    rng = np.random.default_rng(seed)
    for variable in variables:
        variable.assign_add(tf.constant(scale * rng.standard_normal(variable.shape), tf.float32))
