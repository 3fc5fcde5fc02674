"""The forward pass in NumPy of networks that are chains of dense layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.adaptors.action import SDE_EPSILON, ActionAdaptor, masked
from zoo.common.adaptors.observation import Preprocess

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    'linear': lambda x: x,
    'tanh': lambda x: np.tanh(x, out=x),
    'relu': lambda x: np.maximum(x, 0.0, out=x),
    'sigmoid': lambda x: 0.5 + 0.5 * np.tanh(0.5 * x),
    'elu': lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    'silu': lambda x: x * (0.5 + 0.5 * np.tanh(0.5 * x)),
    'softplus': lambda x: np.logaddexp(x, 0.0),
    'softsign': lambda x: x / (1.0 + np.abs(x)),
    'leaky_relu': lambda x: np.where(x > 0, x, 0.2 * x),
}


class Means:
    """The value of each action in what a network gives: the mean of its returns' distribution.

    Args:
        count: numbers for each action, side by side: its value where that is 1.
        support: ``[count]``, the atoms, of whose probabilities the numbers are the logits; None: they are quantiles.
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


class NumpyForward:
    """Dense layers over a flat observation, equal to the Keras network to 1e-5. It can be pickled.

    They are a chain; the head may be noisy, or have a stream for the state's value and one for the advantages. Batch
    renormalisation, which is ``x · scale + shift`` in inference mode, is taken in by the dense layer after it.

    Args:
        preprocess: of the observations.
        layers: of each layer the shape of its kernel, whether it has a bias, and its activation, a key of
            ``ACTIVATIONS``.
        adaptor: for a policy, how its output is completed to the parameters of the distribution; None leaves it.
        mask_path: the observation's leaf that says which actions are allowed.
        log_std_size: length of the policy's free log standard deviation, or 0.
        streams: of each layer of a noisy or dueling head the shape of its kernel, and whether it is noisy.
        means: from the output to the value of each action; None leaves it.
        sde: whether exploration is state-dependent, see :class:`zoo.common.networks.policy.StochasticPolicy`; the log
            standard deviation is ``[L, n]`` then, and what is given the parameters and the noise, ``[N, 3 n]``.
        norms: ε of the batch renormalisation before a layer, by the layer's place in ``layers``.

    Attributes:
        packed: the vector that was unpacked last.
        weights: ``(kernel, bias)`` of each layer, float32, with the normalisation before it; those of ``streams`` come
            last.
        noise_weights: ``(kernel, bias)``, σ of each layer that is noisy.
        noise_size: normal numbers that one draw of noisy weights takes, or 0.
        log_std: the free log standard deviation, float32 ``[n]``.
    """

    def __init__(
        self,
        preprocess: Preprocess,
        layers: list[tuple[tuple[int, int], bool, str]],
        adaptor: ActionAdaptor | None = None,
        mask_path: str | None = None,
        log_std_size: int = 0,
        streams: Sequence[tuple[tuple[int, int], bool]] = (),
        means: Means | None = None,
        sde: bool = False,
        norms: Mapping[int, float] | None = None,
    ) -> None:
        self.preprocess = preprocess
        self.sde = sde
        self.norms = norms or {}
        self.layers = layers
        self.streams = streams
        self.means = means
        self.noise_weights: list[tuple[np.ndarray, np.ndarray]] = []
        self.noise_size = log_std_size if sde else sum(sum(shape) for shape, noisy in streams if noisy)
        self.packed = np.zeros(0, np.float32)
        self.weights: list[tuple[np.ndarray, np.ndarray | float]] = []
        self.adaptor = adaptor
        self._parts = [] if adaptor is None else adaptor.parts
        self.mask_path = mask_path
        self.log_std_size = log_std_size
        self.log_std: np.ndarray | None = None
        self._bounds = adaptor.param_bounds if adaptor is not None and not log_std_size else None

    def load(self, weights: dict[str, np.ndarray]) -> None:
        """Act with the weights and statistics that :meth:`Forward.weights` gave."""
        self.unpack(weights['packed'])
        restore(self.preprocess, weights)

    def unpack(self, vector: np.ndarray) -> None:
        """Take the weights from one float32 vector: see :meth:`Forward.pack`."""
        self.packed = vector
        offset = 0

        def take(*shape: int) -> np.ndarray:
            nonlocal offset
            offset += math.prod(shape)
            return vector[offset - math.prod(shape) : offset].reshape(shape)

        shapes = [(shape, has_bias) for shape, has_bias, _ in self.layers] + [
            (shape, True) for shape, _ in self.streams
        ]
        kernels = [take(*shape) for shape, _ in shapes]
        biases = [take(shape[1]) if has_bias else 0.0 for shape, has_bias in shapes]
        self.weights = list(zip(kernels, biases, strict=True))
        if self.noise_size and not self.sde:
            self.noise_weights = [(take(*shape), take(shape[1])) for shape, _ in self.streams]
        if self.log_std_size:
            self.log_std = take(self.log_std_size)
        # Here and nowhere else: two graphs round the same product in ways of their own, and what acts after an update
        # must be bit for bit what acts after the same weights were read or loaded.
        for i, epsilon in self.norms.items():
            kernel, bias = self.weights[i]
            gamma, beta, mean, variance = take(4, len(kernel))
            scale = gamma / np.sqrt(variance + epsilon)
            self.weights[i] = scale[:, None] * kernel, (beta - mean * scale) @ kernel + bias

    def __call__(self, obs: spaces.Flat, noise: np.ndarray | None = None) -> np.ndarray:
        """Output ``[N, units]`` for flat observations ``[N, …]``; see :meth:`Forward.__call__`."""
        x = features = self.preprocess.numpy(obs)
        for (kernel, bias), (_, _, activation) in zip(self.weights[: len(self.layers)], self.layers, strict=True):
            features = x
            x = x @ kernel
            x += bias
            x = ACTIVATIONS[activation](x)
        if self.streams:
            x = self._head(x, noise)
        if self.means is not None:
            x = self.means(x)
        if self.mask_path is not None:
            return masked(x, obs[self.mask_path], self.adaptor.parts[0].counts if self.adaptor is not None else None)
        if self.sde:
            return self._with_sde(x, features, noise)
        if self.log_std is not None:
            return self._with_log_std(x, self.log_std)
        return x if self._bounds is None else np.clip(x, *self._bounds, out=x)

    def _with_sde(self, x: np.ndarray, features: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
        """Means, implied log standard deviations and noise; see `StochasticPolicy.perturbed`."""
        assert self.log_std is not None  # that is σ
        deviation = np.exp(self.log_std.reshape(features.shape[1], x.shape[1]))
        log_std = 0.5 * np.log(np.square(features) @ np.square(deviation) + np.float32(SDE_EPSILON))
        if noise is None:
            return np.concatenate([x, log_std, np.zeros_like(x)], -1)
        matrix = noise.reshape(-1, *deviation.shape) * deviation
        return np.concatenate([x, log_std, (features[:, None] @ matrix)[:, 0]], -1)

    def _head(self, x: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
        """A noisy or dueling head: see `zoo.common.networks.layers.noisy.NoisyDense` and `DuelingHead`."""
        outputs = [x @ kernel + bias for kernel, bias in self.weights[len(self.layers) :]]
        if noise is not None:
            noise = np.sign(noise) * np.sqrt(np.abs(noise))
            offset, width = 0, x.shape[1]
            for output, (kernel, bias) in zip(outputs, self.noise_weights, strict=True):
                before, after = noise[:, offset : offset + width], noise[:, offset + width : offset + width + len(bias)]
                output += ((x * before) @ kernel + bias) * after
                offset += width + len(bias)
        if len(outputs) == 1:
            return outputs[0]
        value, advantage = outputs
        each = advantage.reshape(len(x), -1, value.shape[1])
        return (value[:, None] + each - each.mean(1, keepdims=True)).reshape(advantage.shape)

    def _with_log_std(self, x: np.ndarray, log_std: np.ndarray) -> np.ndarray:
        pieces, offset, drawn = [], 0, 0
        for part in self._parts:
            pieces.append(x[:, offset : offset + part.outputs])
            offset += part.outputs
            if 'gaussian' in part.kind:
                pieces.append(np.broadcast_to(log_std[drawn : drawn + part.size], pieces[-1].shape))
                drawn += part.size
        return np.concatenate(pieces, axis=-1)


def restore(preprocess: Preprocess, weights: dict[str, np.ndarray]) -> None:
    for path, moments in preprocess.statistics.items():
        moments.restore({name: weights[f'{path}/{name}'] for name in moments.state()})
