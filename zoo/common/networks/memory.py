"""How much memory an update takes, for the log."""

from __future__ import annotations

from collections.abc import Iterable

import keras
import numpy as np

from zoo.common.networks.network import Network
from zoo.common.tools import keras_private


def update_bytes(networks: Iterable[Network], rows: int, passes: int, forward: int = 0) -> int:
    """Return about how many bytes an update takes that gives networks ``rows`` observations at a time.

    The first pass, forward, leaves every layer's output of every network in memory. The networks take turns in each
    further pass, backward or of a target: the largest output of all is there once more. Of ``forward`` observations
    that nothing is learned from, two layers are there. Each weight is there three times more: as its gradient, clipped,
    and as its step. ``benchmarks/results/memory.md`` has what each algorithm takes.
    """
    own = [network for network in networks if not network.shares]
    sizes = [_sizes(network) for network in own]
    entries = sum(map(sum, sizes)) + (passes - 1) * max(map(max, sizes))
    weights = sum(int(np.prod(variable.shape)) for network in own for variable in network.variables)
    pair = sum(sum(sorted(found)[-2:]) for found in sizes)
    return 4 * (max(rows * entries, forward * pair) + 3 * weights)


def _sizes(network: Network) -> list[int]:
    """Return the numbers of entries of a network's features and of each layer's output, for one observation."""
    layers = keras_private.flattened(network.torso) if isinstance(network.torso, keras.Layer) else []
    shapes = [layer.output.shape[1:] for layer in layers if _is_one_output(layer)]
    found = [int(np.prod(shape)) for shape in shapes if None not in shape]
    return [sum(item.size for item in network.preprocess.features), *found]


def _is_one_output(layer: keras.Layer) -> bool:
    """Whether a layer belongs to a functional model, which knows its shape, and computes something of its own."""
    if isinstance(layer, keras.Model | keras.layers.InputLayer | keras.layers.Flatten):
        return False
    return len(keras_private.calls_of(layer)) == 1 and isinstance(layer.output, keras.KerasTensor)
