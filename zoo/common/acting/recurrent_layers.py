"""Recurrent layers of a forward pass in NumPy; equations and order of the gates are Keras'."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zoo.common import spaces
from zoo.common.acting.layers import ACTIVATIONS, ChainLayer, Memory, Shapes, Step

#: A function of the input, the state before a step and an array for the state after it, which it writes.
Move = Callable[[np.ndarray, np.ndarray, np.ndarray], None]


class Recurrent(ChainLayer):
    """A recurrent layer, which reads and writes its own part of the recurrent state.

    Args:
        kernels, others: shapes of the kernel and the recurrent kernel, and of the bias, if there is one.
        activation, gate: keys of ``ACTIVATIONS``; ``gate`` is the activation of the gates.
        start: where its part of the recurrent state begins.
        reset_after: of a GRU: the reset gate acts on the product with the recurrent kernel, not on the state.
    """

    #: Arrays ``[N, units]`` in the layer's state, the output first.
    arrays = 1

    def __init__(
        self, kernels: Shapes, others: Shapes, activation: str, gate: str, start: int, reset_after: bool = False
    ) -> None:
        self.kernels = kernels
        self.others = others
        self.activation = activation
        self.gate = gate
        self.start = start
        self.reset_after = reset_after
        self.units = kernels[1][0]
        self.state_size = self.arrays * self.units

    def bind(self, *weights: np.ndarray) -> Step:
        kernel, recurrent, *bias = weights
        move = self.move(kernel, recurrent, bias[0] if bias else None)
        own, output = slice(self.start, self.start + self.state_size), slice(self.start, self.start + self.units)

        def step(x: np.ndarray, obs: spaces.Flat, noise: np.ndarray | None, memory: Memory | None) -> np.ndarray:
            assert memory is not None  # the chain has one if a layer has a state
            state, after = memory
            move(x, state[:, own], after[:, own])
            return after[:, output]

        return step

    def move(self, kernel: np.ndarray, recurrent: np.ndarray, bias: np.ndarray | None) -> Move:
        """One step with these weights."""
        raise NotImplementedError


class Lstm(Recurrent):
    """Long short-term memory; its state is the output h and then the cell c."""

    arrays = 2

    def move(self, kernel: np.ndarray, recurrent: np.ndarray, bias: np.ndarray | None) -> Move:
        units, act, gate = self.units, ACTIVATIONS[self.activation], ACTIVATIONS[self.gate]

        def move(x: np.ndarray, state: np.ndarray, after: np.ndarray) -> None:
            z = x @ kernel
            z += state[:, :units] @ recurrent
            if bias is not None:
                z += bias
            i, f = gate(z[:, :units]), gate(z[:, units : 2 * units])
            candidate, o = act(z[:, 2 * units : 3 * units]), gate(z[:, 3 * units :])
            c = f * state[:, units:] + i * candidate
            after[:, units:] = c
            after[:, :units] = o * act(c)

        return move


class Gru(Recurrent):
    """A gated recurrent unit."""

    def move(self, kernel: np.ndarray, recurrent: np.ndarray, bias: np.ndarray | None) -> Move:
        units, act, gate = self.units, ACTIVATIONS[self.activation], ACTIVATIONS[self.gate]
        outer_bias, inner_bias = (bias[0], bias[1]) if bias is not None and self.reset_after else (bias, None)

        def gates_and_candidate(outer: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            if not self.reset_after:
                gates = gate(outer[:, : 2 * units] + state @ recurrent[:, : 2 * units])
                inner = (gates[:, units:] * state) @ recurrent[:, 2 * units :]
                return gates, act(outer[:, 2 * units :] + inner)
            inner = state @ recurrent
            if inner_bias is not None:
                inner += inner_bias
            gates = gate(outer[:, : 2 * units] + inner[:, : 2 * units])
            return gates, act(outer[:, 2 * units :] + gates[:, units:] * inner[:, 2 * units :])

        def move(x: np.ndarray, state: np.ndarray, after: np.ndarray) -> None:
            outer = x @ kernel
            if outer_bias is not None:
                outer += outer_bias
            gates, candidate = gates_and_candidate(outer, state)
            z = gates[:, :units]
            after[:] = z * state + (1.0 - z) * candidate

        return move


class SimpleRnn(Recurrent):
    """``activation(x · kernel + h · recurrent + bias)``."""

    def move(self, kernel: np.ndarray, recurrent: np.ndarray, bias: np.ndarray | None) -> Move:
        act = ACTIVATIONS[self.activation]

        def move(x: np.ndarray, state: np.ndarray, after: np.ndarray) -> None:
            outer = x @ kernel + state @ recurrent
            after[:] = act(outer if bias is None else outer + bias)

        return move


#: By the names of :data:`zoo.common.networks.recurrent.KINDS`.
KINDS: dict[str, type[Recurrent]] = {'lstm': Lstm, 'gru': Gru, 'simple': SimpleRnn}
