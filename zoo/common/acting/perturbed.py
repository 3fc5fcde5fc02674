"""Policies with perturbed parameters, for evolution strategies."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from zoo.common import spaces
from zoo.common.acting.chain import Chain
from zoo.common.acting.forward import Forward, assign

#: Seeds of perturbations are below this number.
SEEDS = 2**62


def direction(seed: int, size: int) -> np.ndarray:
    """The perturbation that a seed stands for: standard normal numbers, float32 ``[size]``."""
    return np.random.default_rng(seed).standard_normal(size, dtype=np.float32)


def episode_seed(seed: int, sign: int, episode: int) -> int:
    """The environment's seed for an episode whose perturbation, from ``seed``, is added (1) or subtracted (−1)."""
    return int(np.random.SeedSequence([seed, sign > 0, episode]).generate_state(1)[0] >> 1)


class Population(Protocol):
    """A policy with different parameters in each copy of the environment."""

    parameters: np.ndarray  # unperturbed, float32 [D]

    def set(self, copy: int, vector: np.ndarray) -> None:
        """Act with the parameters ``vector``, ``[D]``, in this copy from now on."""

    def __call__(self, obs: spaces.Flat) -> np.ndarray:
        """Outputs ``[N, units]`` for flat observations ``[N, …]``, each copy by its own parameters."""

    def close(self) -> None:
        """Give the policy back the parameters that it had."""


class NumpyPopulation:
    """A chain of dense layers with a batch of weights: one forward pass for all copies."""

    def __init__(self, chain: Chain, copies: int) -> None:
        self._preprocess = chain.preprocess
        self.parameters = chain.packed

        def batch(shape: tuple[int, ...]) -> np.ndarray:  # a bias is added to the one row of each copy
            return np.zeros((copies, *(shape if len(shape) > 1 else (1, *shape))), np.float32)

        kernels = [[batch(shape) for shape in layer.kernels] for layer in chain.layers]
        others = [[batch(shape) for shape in layer.others] for layer in chain.layers]
        self._weights = [array for own in (*kernels, *others) for array in own]  # as they are packed
        self._steps = [layer.bind(*a, *b) for layer, a, b in zip(chain.layers, kernels, others, strict=True)]

    def set(self, copy: int, vector: np.ndarray) -> None:
        offset = 0
        for array in self._weights:
            target = array[copy]
            target[...] = vector[offset : offset + target.size].reshape(target.shape)
            offset += target.size

    def __call__(self, obs: spaces.Flat) -> np.ndarray:
        x = self._preprocess.numpy(obs)[:, None]
        for step in self._steps:
            x = step(x, obs, None, None)
        return x[:, 0]

    def close(self) -> None:
        """Do nothing: the chain itself was not touched."""


class GraphPopulation:
    """Any network: each copy's weights are assigned before the network is called for that copy."""

    def __init__(self, forward: Forward, copies: int) -> None:
        self._forward = forward
        self._variables = forward.trained
        self.parameters = np.concatenate([variable.numpy().ravel() for variable in self._variables])
        self._vectors = np.tile(self.parameters, (copies, 1))
        self._assigned = -1

    def set(self, copy: int, vector: np.ndarray) -> None:
        self._vectors[copy] = vector
        if copy == self._assigned:
            self._assigned = -1

    def __call__(self, obs: spaces.Flat) -> np.ndarray:
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
        self._assign(self.parameters)


def population(forward: Forward | Chain, copies: int) -> Population:
    """The population of a policy: in NumPy where it is a chain whose weights are all trained."""
    if isinstance(forward, Chain):
        return NumpyPopulation(forward, copies)
    if forward.packs_trained and forward.numpy is not None:
        return NumpyPopulation(forward.numpy, copies)
    return GraphPopulation(forward, copies)
