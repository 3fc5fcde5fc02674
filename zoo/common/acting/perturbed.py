"""Policies with perturbed parameters, for evolution strategies."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from zoo.common import spaces
from zoo.common.acting.forward import Forward, assign
from zoo.common.acting.numpy_forward import ACTIVATIONS, NumpyForward

#: Seeds of perturbations are below this.
SEEDS = 2**62


def direction(seed: int, size: int) -> np.ndarray:
    """The perturbation of a seed: standard normal numbers, float32 ``[size]``."""
    return np.random.default_rng(seed).standard_normal(size, dtype=np.float32)


def episode_seed(seed: int, sign: int, episode: int) -> int:
    """The environment's seed for an episode with the perturbation of ``seed``, added (1) or subtracted (−1)."""
    return int(np.random.SeedSequence([seed, sign > 0, episode]).generate_state(1)[0] >> 1)


class Population(Protocol):
    """Parameters of their own for each copy of the environment.

    Attributes:
        parameters: those that are perturbed, float32 ``[D]``.
    """

    parameters: np.ndarray

    def set(self, copy: int, vector: np.ndarray) -> None:
        """Act with this vector ``[D]`` in this copy from now on."""

    def __call__(self, obs: spaces.Flat) -> np.ndarray:
        """Outputs ``[N, units]`` for flat observations ``[N, …]`` of all copies, each by its own parameters."""

    def close(self) -> None:
        """Leave the policy with the parameters that it had."""


class NumpyPopulation:
    """See :class:`Population`: a chain of dense layers with a batch of weights, one forward pass for all copies.

    Args:
        forward: the chain, whose packed vector holds the parameters.
        copies: how many.
    """

    def __init__(self, forward: NumpyForward, copies: int) -> None:
        self._forward = forward
        self.parameters = forward.packed
        self._kernels = [np.zeros((copies, *shape), np.float32) for shape, _, _ in forward.layers]
        self._biases = [
            np.zeros((copies, 1, shape[1]), np.float32) if has_bias else None for shape, has_bias, _ in forward.layers
        ]

    def set(self, copy: int, vector: np.ndarray) -> None:
        """See :class:`Population`; kernels first, then biases, as they are packed."""
        offset = 0
        for array in [*self._kernels, *(bias for bias in self._biases if bias is not None)]:
            target = array[copy]
            target[...] = vector[offset : offset + target.size].reshape(target.shape)
            offset += target.size

    def __call__(self, obs: spaces.Flat) -> np.ndarray:
        """See :class:`Population`."""
        x = self._forward.preprocess.numpy(obs)[:, None]
        for kernel, bias, (_, _, activation) in zip(self._kernels, self._biases, self._forward.layers, strict=True):
            x = x @ kernel
            if bias is not None:
                x += bias
            x = ACTIVATIONS[activation](x)
        return x[:, 0]

    def close(self) -> None:
        """See :class:`Population`: the chain itself was not touched."""


class GraphPopulation:
    """See :class:`Population`: any network, with each copy's weights assigned before it is called for that copy.

    Args:
        forward: of the network.
        copies: how many.
    """

    def __init__(self, forward: Forward, copies: int) -> None:
        self._forward = forward
        self._variables = forward.trained
        self.parameters = np.concatenate([variable.numpy().ravel() for variable in self._variables])
        self._vectors = np.tile(self.parameters, (copies, 1))
        self._assigned = -1

    def set(self, copy: int, vector: np.ndarray) -> None:
        """See :class:`Population`."""
        self._vectors[copy] = vector
        if copy == self._assigned:
            self._assigned = -1

    def __call__(self, obs: spaces.Flat) -> np.ndarray:
        """See :class:`Population`."""
        outputs = []
        for copy, vector in enumerate(self._vectors):
            if copy != self._assigned:
                self._assign(vector)
                self._assigned = copy
            outputs.append(self._forward(spaces.tree_map(lambda x, i=copy: x[i : i + 1], obs)))
        return np.concatenate(outputs)

    def _assign(self, vector: np.ndarray) -> None:
        assign(self._variables, vector)
        self._forward.refresh()

    def close(self) -> None:
        """See :class:`Population`."""
        self._assign(self.parameters)


def population(forward: Forward | NumpyForward, copies: int) -> Population:
    """The population of a policy, by NumPy where it is a chain of dense layers that are all trained."""
    if isinstance(forward, NumpyForward):
        return NumpyPopulation(forward, copies)
    if forward.packs_trained and forward.numpy is not None:
        return NumpyPopulation(forward.numpy, copies)
    return GraphPopulation(forward, copies)
