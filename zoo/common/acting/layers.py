"""The layers of a forward pass in NumPy, each equal to its Keras layer to 1e-5. Nothing here needs TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.adaptors.masks import masked
from zoo.common.adaptors.parts import SDE_EPSILON, Part


def _gelu(x: np.ndarray) -> np.ndarray:
    """x Φ(x), with Φ by Abramowitz and Stegun 1964, equation 7.1.26, whose error is below 1e-7; NumPy has no erf."""
    size = np.minimum(np.abs(x), 13.0)  # beyond, the tail is 0 in float32
    t = 1.0 / (1.0 + np.float32(0.3275911 / np.sqrt(2.0)) * size)
    series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    tail = np.where(size < 13.0, 0.5 * series * np.exp(-0.5 * size * size), 0.0)
    return x * np.where(x > 0, 1.0 - tail, tail)


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    'linear': lambda x: x,
    'tanh': lambda x: np.tanh(x, out=x),
    'relu': lambda x: np.maximum(x, 0.0, out=x),
    'sigmoid': lambda x: 0.5 + 0.5 * np.tanh(0.5 * x),
    'elu': lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    'silu': lambda x: x * (0.5 + 0.5 * np.tanh(0.5 * x)),
    'softplus': lambda x: np.logaddexp(x, 0.0),
    'gelu': _gelu,
    'softsign': lambda x: x / (1.0 + np.abs(x)),
    'leaky_relu': lambda x: np.where(x > 0, x, 0.2 * x),
}

#: The recurrent state ``[N, S]`` before a step, and an array of the same shape for the state after it.
Memory = tuple[np.ndarray, np.ndarray]

#: A layer with its weights: a function of its input ``[N, n]``, the flat observations, the noise and the memory.
Step = Callable[[np.ndarray, spaces.Flat, np.ndarray | None, Memory | None], np.ndarray]

Shapes = Sequence[tuple[int, ...]]


class ChainLayer:
    """One layer of a :class:`zoo.common.acting.chain.Chain`."""

    kernels: Shapes = ()
    others: Shapes = ()  # of the other weights, such as a bias
    noise_size = 0  # normal numbers that one draw of its noise takes
    state_size = 0  # entries of its recurrent state

    def bind(self, *weights: np.ndarray) -> Step:
        """The layer with its weights, ``kernels`` and then ``others``; a closure, which looks up no attributes."""
        raise NotImplementedError


class Affine(ChainLayer):
    """A dense layer: ``activation(x · kernel + bias)``; ``shape`` is the kernel's."""

    def __init__(self, shape: tuple[int, int], has_bias: bool = True, activation: str = 'linear') -> None:
        self.kernels = [shape]
        self.others = [shape[1:]] if has_bias else []
        self.activation = activation

    def bind(self, *weights: np.ndarray) -> Step:
        kernel, *rest = weights
        return self.step(kernel, rest[0] if rest else None)

    def step(self, kernel: np.ndarray, bias: np.ndarray | None) -> Step:
        activation = ACTIVATIONS[self.activation]

        def affine(x: np.ndarray, obs: spaces.Flat, noise: np.ndarray | None, memory: Memory | None) -> np.ndarray:
            x = x @ kernel
            x += bias
            return activation(x)

        def linear(x: np.ndarray, obs: spaces.Flat, noise: np.ndarray | None, memory: Memory | None) -> np.ndarray:
            x = x @ kernel
            x += bias
            return x

        if bias is None:
            return lambda x, obs, noise, memory: activation(x @ kernel)
        return linear if self.activation == 'linear' else affine


class NormalizedAffine(Affine):
    """A dense layer after batch renormalization, which is ``x · scale + shift`` in inference mode."""

    def __init__(self, shape: tuple[int, int], has_bias: bool, activation: str, epsilon: float) -> None:
        super().__init__(shape, has_bias, activation)
        self.others = [*self.others, *[shape[:1]] * 4]
        self.epsilon = epsilon

    def bind(self, *weights: np.ndarray) -> Step:
        # Fold the normalization in one place only: two graphs round the same product differently, and the outputs after
        # an update, after a refresh and after loading must be equal to the bit.
        kernel, *bias, gamma, beta, mean, variance = weights
        scale = gamma / np.sqrt(variance + self.epsilon)
        return self.step(scale[:, None] * kernel, (beta - mean * scale) @ kernel + (bias[0] if bias else 0.0))


class LayerNorm(ChainLayer):
    """A ``keras.layers.LayerNormalization`` of vectors of ``size`` entries, and an activation after it."""

    def __init__(self, size: int, epsilon: float, activation: str = 'linear') -> None:
        self.others = [(size,), (size,)]
        self.epsilon = epsilon
        self.activation = activation

    def bind(self, *weights: np.ndarray) -> Step:
        (gamma, beta), epsilon, activation = weights, np.float32(self.epsilon), ACTIVATIONS[self.activation]

        def normalize(x: np.ndarray, obs: spaces.Flat, noise: np.ndarray | None, memory: Memory | None) -> np.ndarray:
            x = x - x.mean(-1, keepdims=True)
            x *= gamma / np.sqrt(np.square(x).mean(-1, keepdims=True) + epsilon)
            x += beta
            return activation(x)

        return normalize


class JoinedNoise(ChainLayer):
    """Puts the noise behind the input: a network of an observation and noise. Without noise there are zeros."""

    def __init__(self, size: int) -> None:
        self.noise_size = size

    def bind(self, *weights: np.ndarray) -> Step:
        size = self.noise_size

        def join(x: np.ndarray, obs: spaces.Flat, noise: np.ndarray | None, memory: Memory | None) -> np.ndarray:
            return np.concatenate([x, np.zeros((len(x), size), np.float32) if noise is None else noise], -1)

        return join


class NoisyAffine(ChainLayer):
    """A :class:`zoo.common.networks.layers.noisy.NoisyDense`; ``shape`` is its kernel's."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.kernels = [shape]
        self.others = [shape[1:], shape, shape[1:]]
        self.noise_size = sum(shape)

    def bind(self, *weights: np.ndarray) -> Step:
        kernel, bias, noise_kernel, noise_bias = weights
        width = len(kernel)

        def noisy(x: np.ndarray, obs: spaces.Flat, noise: np.ndarray | None, memory: Memory | None) -> np.ndarray:
            output = x @ kernel + bias
            if noise is not None:
                noise = np.sign(noise) * np.sqrt(np.abs(noise))
                output += ((x * noise[:, :width]) @ noise_kernel + noise_bias) * noise[:, width:]
            return output

        return noisy


class Dueling(ChainLayer):
    """A :class:`zoo.common.networks.layers.dueling.DuelingHead` of two streams."""

    def __init__(self, value: ChainLayer, advantage: ChainLayer) -> None:
        self.streams = value, advantage
        self.kernels = [*value.kernels, *advantage.kernels]
        self.others = [*value.others, *advantage.others]
        self.noise_size = value.noise_size + advantage.noise_size

    def bind(self, *weights: np.ndarray) -> Step:
        kernels, others = weights[:2], weights[2:]
        count, drawn = len(self.streams[0].others), self.streams[0].noise_size
        value_of = self.streams[0].bind(kernels[0], *others[:count])
        advantage_of = self.streams[1].bind(kernels[1], *others[count:])

        def dueling(x: np.ndarray, obs: spaces.Flat, noise: np.ndarray | None, memory: Memory | None) -> np.ndarray:
            first, second = (None, None) if noise is None else (noise[:, :drawn], noise[:, drawn:])
            value, advantage = value_of(x, obs, first, None), advantage_of(x, obs, second, None)
            each = advantage.reshape(len(x), -1, value.shape[1])
            return (value[:, None] + each - each.mean(1, keepdims=True)).reshape(advantage.shape)

        return dueling


class Means(ChainLayer):
    """The value of each action: the mean of the distribution of returns that the network gives for it.

    Args:
        count: numbers for each action, side by side; 1 if the number is the action's value.
        support: ``[count]``, the atoms: the numbers are the logits of their probabilities; None: they are quantiles.
    """

    def __init__(self, count: int = 1, support: np.ndarray | None = None) -> None:
        self.count = count
        self.support = support

    def __call__(self, output: Any) -> Any:
        """Values ``[N, actions]`` for outputs float32 ``[N, actions · count]``, an array or a tensor."""
        if self.count == 1:
            return output
        if not isinstance(output, np.ndarray):
            return self._of_tensor(output)
        x = output.reshape(len(output), -1, self.count)
        if self.support is None:
            return x.mean(-1)
        weights = np.exp(x - x.max(-1, keepdims=True))
        return weights @ self.support / weights.sum(-1)

    def _of_tensor(self, output: Any) -> Any:
        import tensorflow as tf

        x = tf.reshape(output, [-1, output.shape[-1] // self.count, self.count])
        return tf.reduce_mean(x, -1) if self.support is None else tf.reduce_sum(tf.nn.softmax(x) * self.support, -1)

    def bind(self, *weights: np.ndarray) -> Step:
        return lambda x, obs, noise, memory: self(x)


class Mask(ChainLayer):
    """:func:`zoo.common.adaptors.masks.masked` with the mask at ``path`` of the observation."""

    def __init__(self, path: str, counts: Sequence[int] | None) -> None:
        self.path = path
        self.counts = counts

    def bind(self, *weights: np.ndarray) -> Step:
        path, counts = self.path, self.counts
        return lambda x, obs, noise, memory: masked(x, obs[path], counts)


class FreeDeviation(ChainLayer):
    """Puts a policy's free log standard deviation behind the means of each Gaussian."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.others = [(sum(part.size for part in parts if 'gaussian' in part.kind),)]
        self.size = sum(part.param_size for part in parts)
        self._copied: list[tuple[slice, slice]] = []  # from the output, to the parameters
        self._filled: list[tuple[slice, slice]] = []  # from the log standard deviation, to the parameters
        taken = given = drawn = 0
        for part in parts:
            self._copied.append((slice(taken, taken + part.outputs), slice(given, given + part.outputs)))
            taken, given = taken + part.outputs, given + part.outputs
            if 'gaussian' in part.kind:
                self._filled.append((slice(drawn, drawn + part.size), slice(given, given + part.size)))
                drawn, given = drawn + part.size, given + part.size

    def bind(self, *weights: np.ndarray) -> Step:
        (log_std,) = weights
        size, copied = self.size, self._copied
        filled = [(to, log_std[source]) for source, to in self._filled]

        def complete(x: np.ndarray, obs: spaces.Flat, noise: np.ndarray | None, memory: Memory | None) -> np.ndarray:
            params = np.empty((len(x), size), np.float32)
            for source, to in copied:
                params[:, to] = x[:, source]
            for to, value in filled:
                params[:, to] = value
            return params

        return complete


class StateDependentDeviation(ChainLayer):
    """The last dense layer of a policy with state-dependent exploration; ``affine`` gives the means.

    The output is :meth:`zoo.common.networks.policy.StochasticPolicy.perturbed`: the means, the implied log standard
    deviations and the noise on the action, ``[N, 3 n]``.
    """

    def __init__(self, affine: Affine) -> None:
        self.affine = affine
        self.kernels = affine.kernels
        self.others = [*affine.others, *affine.kernels]  # the last one is log σ
        self.noise_size = int(np.prod(affine.kernels[0]))

    def bind(self, *weights: np.ndarray) -> Step:
        *own, log_std = weights
        mean_of, deviation = self.affine.bind(*own), np.exp(log_std)

        def perturbed(x: np.ndarray, obs: spaces.Flat, noise: np.ndarray | None, memory: Memory | None) -> np.ndarray:
            mean = mean_of(x, obs, None, None)
            spread = 0.5 * np.log(np.square(x) @ np.square(deviation) + np.float32(SDE_EPSILON))
            if noise is None:
                return np.concatenate([mean, spread, np.zeros_like(mean)], -1)
            matrix = noise.reshape(-1, *deviation.shape) * deviation
            return np.concatenate([mean, spread, (x[:, None] @ matrix)[:, 0]], -1)

        return perturbed


class Bounds(ChainLayer):
    """Clips the log standard deviations that a network gives itself to bounds, float32 ``[param_size]``."""

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        self.low = low
        self.high = high

    def bind(self, *weights: np.ndarray) -> Step:
        low, high = self.low, self.high
        # Two calls, since np.clip costs twice as much. The input may be a recurrent state, which must stay as it is.
        return lambda x, obs, noise, memory: np.minimum(np.maximum(x, low), high)
