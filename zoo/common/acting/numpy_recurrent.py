"""The forward pass in NumPy of recurrent layers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from zoo.common import spaces
from zoo.common.acting.numpy_forward import ACTIVATIONS, Means, NumpyForward
from zoo.common.adaptors.action import ActionAdaptor, masked
from zoo.common.adaptors.observation import Preprocess


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer of a :class:`NumpyRecurrent`.

    Attributes:
        kind: ``'dense'``, ``'lstm'``, ``'gru'`` or ``'simple'``.
        shapes: of its kernel, of its recurrent kernel if it is recurrent, and of its bias if it has one.
        activation, gate: keys of ``ACTIVATIONS``; the latter of the gates.
        reset_after: of a GRU: the reset gate acts on the product with the recurrent kernel, not on the state.
    """

    kind: str
    shapes: tuple[tuple[int, ...], ...]
    activation: str
    gate: str = 'linear'
    reset_after: bool = False

    @property
    def units(self) -> int:
        """Entries of its output."""
        return self.shapes[1][0] if self.kind != 'dense' else self.shapes[0][1]

    @property
    def state_size(self) -> int:
        """Entries of its state."""
        return {'dense': 0, 'lstm': 2 * self.units}.get(self.kind, self.units)


class NumpyRecurrent(NumpyForward):
    """Dense and recurrent layers over a flat observation, equal to the Keras network to 1e-5. It can be pickled.

    The equations are those of Keras; see :class:`zoo.common.networks.recurrent.Cell`, which is the same for tensors.

    Args:
        preprocess, adaptor, mask_path, log_std_size, means: see :class:`NumpyForward`.
        chain: the layers in their order.
        streams: of each layer of a dueling head the shape of its kernel; it is not noisy.

    Attributes:
        state_size: entries of the recurrent state of all layers, side by side.
    """

    def __init__(
        self,
        preprocess: Preprocess,
        chain: list[Layer],
        adaptor: ActionAdaptor | None = None,
        mask_path: str | None = None,
        log_std_size: int = 0,
        streams: Sequence[tuple[int, int]] = (),
        means: Means | None = None,
    ) -> None:
        heads = [(shape, False) for shape in streams]
        super().__init__(preprocess, [], adaptor, mask_path, log_std_size, heads, means)
        self.chain = chain
        self.state_size = sum(layer.state_size for layer in chain)
        self._arrays: list[list[np.ndarray]] = []

    def unpack(self, vector: np.ndarray) -> None:
        """Take the weights from one float32 vector, layer by layer and then the log standard deviation."""
        self.packed = vector
        offset = 0

        def take(*shape: int) -> np.ndarray:
            nonlocal offset
            offset += math.prod(shape)
            return vector[offset - math.prod(shape) : offset].reshape(shape)

        self._arrays = [[take(*shape) for shape in layer.shapes] for layer in self.chain]
        self.weights = [(take(*shape), take(shape[1])) for shape, _ in self.streams]
        if self.log_std_size:
            self.log_std = vector[offset : offset + self.log_std_size]

    def __call__(self, obs: spaces.Flat, noise: np.ndarray | None = None) -> np.ndarray:
        """Output ``[N, units]`` for flat observations ``[N, …]``, each the first one of an episode."""
        return self.step(obs, np.zeros((spaces.count(obs), self.state_size), np.float32))[0]

    def step(self, obs: spaces.Flat, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Output ``[N, units]`` and the state after the step ``[N, S]``; see :meth:`Forward.step`."""
        x = self.preprocess.numpy(obs)
        after, offset = np.empty_like(state), 0
        for layer, arrays in zip(self.chain, self._arrays, strict=True):
            if layer.kind == 'dense':
                x = x @ arrays[0]
                if len(arrays) > 1:
                    x += arrays[1]
                x = ACTIVATIONS[layer.activation](x)
                continue
            own = slice(offset, offset + layer.state_size)
            offset += layer.state_size
            _STEPS[layer.kind](layer, arrays, x, state[:, own], after[:, own])
            x = after[:, own.start : own.start + layer.units]
        if self.streams:
            x = self._head(x, None)
        if self.means is not None:
            x = self.means(x)
        if self.mask_path is not None:
            counts = self.adaptor.parts[0].counts if self.adaptor is not None else None
            return masked(x, obs[self.mask_path], counts), after
        if self.log_std is not None:
            return self._with_log_std(x, self.log_std), after
        return x if self._bounds is None else np.clip(x, *self._bounds), after


def _lstm(layer: Layer, arrays: list[np.ndarray], x: np.ndarray, state: np.ndarray, after: np.ndarray) -> None:
    kernel, recurrent, *bias = arrays
    units, act, gate = layer.units, ACTIVATIONS[layer.activation], ACTIVATIONS[layer.gate]
    z = x @ kernel
    z += state[:, :units] @ recurrent
    if bias:
        z += bias[0]
    i, f = gate(z[:, :units]), gate(z[:, units : 2 * units])
    candidate, o = act(z[:, 2 * units : 3 * units]), gate(z[:, 3 * units :])
    c = f * state[:, units:] + i * candidate
    after[:, units:] = c
    after[:, :units] = o * act(c)


def _gru(layer: Layer, arrays: list[np.ndarray], x: np.ndarray, state: np.ndarray, after: np.ndarray) -> None:
    kernel, recurrent, *bias = arrays
    units, act, gate = layer.units, ACTIVATIONS[layer.activation], ACTIVATIONS[layer.gate]
    outer = x @ kernel
    if bias:
        outer += bias[0][0] if layer.reset_after else bias[0]
    if layer.reset_after:
        inner = state @ recurrent
        if bias:
            inner += bias[0][1]
        gates = gate(outer[:, : 2 * units] + inner[:, : 2 * units])
        candidate = act(outer[:, 2 * units :] + gates[:, units:] * inner[:, 2 * units :])
    else:
        gates = gate(outer[:, : 2 * units] + state @ recurrent[:, : 2 * units])
        candidate = act(outer[:, 2 * units :] + (gates[:, units:] * state) @ recurrent[:, 2 * units :])
    z = gates[:, :units]
    after[:] = z * state + (1.0 - z) * candidate


def _simple(layer: Layer, arrays: list[np.ndarray], x: np.ndarray, state: np.ndarray, after: np.ndarray) -> None:
    kernel, recurrent, *bias = arrays
    outer = x @ kernel + state @ recurrent
    after[:] = ACTIVATIONS[layer.activation](outer + bias[0] if bias else outer)


_STEPS = {'lstm': _lstm, 'gru': _gru, 'simple': _simple}
