"""A forward pass in NumPy: a list of layers, run one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.acting.layers import ChainLayer, Step
from zoo.common.adaptors.observation import Preprocess
from zoo.common.tools.errors import InvalidValue


class Chain:
    """Layers over a flat observation, equal to the Keras network to 1e-5. It can be pickled and needs no TensorFlow.

    Attributes:
        packed: the vector that was unpacked last, float32.
        noise_size: normal numbers that one draw of the layers' noise takes, or 0.
        state_size: entries of the recurrent state of all layers, side by side; 0 if there is none.
    """

    def __init__(self, preprocess: Preprocess, layers: Sequence[ChainLayer]) -> None:
        self.preprocess = preprocess
        self.layers = list(layers)
        self.packed = np.zeros(0, np.float32)
        self.noise_size = sum(layer.noise_size for layer in layers)
        self.state_size = sum(layer.state_size for layer in layers)
        self._size = sum(math.prod(shape) for layer in layers for shape in (*layer.kernels, *layer.others))
        self._steps: list[Step] = []

    def load(self, weights: dict[str, np.ndarray]) -> None:
        """Act with the weights and statistics that :meth:`Forward.weights` gave."""
        self.unpack(weights['packed'])
        restore(self.preprocess, weights)

    def unpack(self, vector: np.ndarray) -> None:
        """Act with the weights of one vector, float32 ``[P]``: the kernels of all layers, then all other weights.

        The order must stay: evolution strategies draw their perturbations in it.

        Raises:
            ValueError: these are not as many weights as the layers have.
        """
        if vector.shape != (self._size,):
            raise InvalidValue(
                f'{vector.size} weights for a network of {self._size}: make the same agent in every process.'
            )
        self.packed = vector
        offset = 0

        def take(shape: tuple[int, ...]) -> np.ndarray:
            nonlocal offset
            begin, offset = offset, offset + math.prod(shape)
            return vector[begin:offset].reshape(shape)

        kernels = [[take(shape) for shape in layer.kernels] for layer in self.layers]
        others = [[take(shape) for shape in layer.others] for layer in self.layers]
        self._steps = [layer.bind(*own, *rest) for layer, own, rest in zip(self.layers, kernels, others, strict=True)]

    def __call__(self, obs: spaces.Flat, noise: np.ndarray | None = None) -> np.ndarray:
        """Output ``[N, units]`` for flat observations ``[N, …]``; see :meth:`Forward.__call__`.

        A recurrent chain takes each observation for the first one of an episode.
        """
        if self.state_size:
            return self.step(obs, np.zeros((spaces.count(obs), self.state_size), np.float32))[0]
        x = self.preprocess.numpy(obs)
        for step in self._steps:
            x = step(x, obs, noise, None)
        return x

    def step(self, obs: spaces.Flat, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Output ``[N, units]`` and the recurrent state after the step ``[N, S]``; see :meth:`Forward.step`."""
        x, memory = self.preprocess.numpy(obs), (state, np.empty_like(state))
        for step in self._steps:
            x = step(x, obs, None, memory)
        return x, memory[1]

    def __getstate__(self) -> dict[str, Any]:
        """For pickling: without the steps, which are closures."""
        return {name: value for name, value in self.__dict__.items() if name != '_steps'}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _steps=[])
        if len(self.packed):
            self.unpack(self.packed)


def restore(preprocess: Preprocess, weights: dict[str, np.ndarray]) -> None:
    """Take the running statistics that :meth:`Forward.weights` gave."""
    for path, moments in preprocess.statistics.items():
        moments.restore({name: weights[f'{path}/{name}'] for name in moments.state()})
