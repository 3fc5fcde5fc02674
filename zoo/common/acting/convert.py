"""From a network to the chain of NumPy layers that computes the same, where there is one."""

from __future__ import annotations

from typing import NamedTuple

import keras
import tensorflow as tf

from zoo.common import spaces
from zoo.common.acting import layers
from zoo.common.acting.chain import Chain
from zoo.common.acting.recurrent_layers import KINDS
from zoo.common.networks import pieces, recurrent, spec
from zoo.common.networks.layers.batch_renorm import BatchRenormalization
from zoo.common.networks.layers.dense import Dense
from zoo.common.networks.layers.dueling import DuelingHead
from zoo.common.networks.layers.layer_norm import LayerNormalization
from zoo.common.networks.layers.noisy import NoisyDense
from zoo.common.networks.network import Network
from zoo.common.networks.policy import StochasticPolicy


class Converted(NamedTuple):
    """A layer of a chain, and the variables from which its weights are read."""

    layer: layers.ChainLayer
    kernels: list[tf.Variable]
    others: list[tf.Variable]


def chain_of(
    network: Network, policy: StochasticPolicy | None, mask_path: str | None, means: layers.Means | None
) -> tuple[Chain, list[tf.Variable]] | None:
    """The forward pass as a chain, and the variables in the order of its packed vector; None: it needs a graph."""
    found = convert(network)
    if found is None:
        return None
    if network.wanted.action_size:  # a network that acts takes noise there
        place = len(found) - len(network.head.layers) if network.joins_action and network.head is not None else 0
        found.insert(place, Converted(layers.JoinedNoise(network.wanted.action_size), [], []))
    free = [] if policy is None or policy.log_std is None else [policy.log_std]
    if policy is not None and policy.sde:
        affine, kernels, others = found[-1]
        if type(affine) is not layers.Affine:  # a normalization that is folded into the head changes the features
            return None
        found[-1] = Converted(layers.StateDependentDeviation(affine), kernels, [*others, *free])
    if means is not None and means.count > 1:
        found.append(Converted(means, [], []))
    if mask_path is not None:
        counts = None if policy is None else policy.adaptor.parts[0].counts
        found.append(Converted(layers.Mask(mask_path, counts), [], []))
    elif policy is not None and free and not policy.sde:
        found.append(Converted(layers.FreeDeviation(policy.adaptor.parts), [], free))
    elif policy is not None and not free and policy.adaptor.param_bounds is not None:
        found.append(Converted(layers.Bounds(*policy.adaptor.param_bounds), [], []))
    variables = [v for part in found for v in part.kernels] + [v for part in found for v in part.others]
    return Chain(network.preprocess, [part.layer for part in found]), variables


def convert(network: Network) -> list[Converted] | None:
    """The layers of a network in their order; None if one of them has no equal in NumPy."""
    chain = _layers(network)
    if chain is None:
        return None
    found: list[Converted] = []
    norm: BatchRenormalization | None = None  # the dense layer after it takes it in
    cells = {} if network.core is None else {id(cell.layer): cell for cell in network.core.cells}
    state_size = 0
    for layer in chain:
        if type(layer) is keras.layers.Identity:
            continue
        if type(layer) is BatchRenormalization and norm is None and not cells:
            norm = layer
            continue
        if _is_plain_dense(layer):
            made = _dense(layer, norm)
            norm = None
        elif norm is not None:
            return None
        elif _is_layer_norm(layer):
            weights = [layer.gamma.value, layer.beta.value]
            activation = pieces.activation_name(getattr(layer, 'activation', keras.activations.linear))
            norm_layer = layers.LayerNorm(weights[0].shape[0], float(layer.epsilon), activation)
            made = Converted(norm_layer, [], weights)
        elif id(layer) in cells:
            made = _recurrent(cells[id(layer)], state_size)
            state_size += made.layer.state_size
        elif isinstance(layer, NoisyDense | DuelingHead) and not (cells and network.noise_size):
            made = _head(layer)
        else:
            return None
        found.append(made)
    if norm is not None or not found or (network.bounds and not _bound(found)):
        return None
    names = [getattr(part.layer, name, 'linear') for part in found for name in ('activation', 'gate')]
    return found if all(name in layers.ACTIVATIONS for name in names) else None


def _layers(network: Network) -> list[keras.layers.Layer] | None:
    """The Keras layers of a network without branches; None for any other network."""
    if not network.preprocess.is_flat or (network.custom and not spaces.is_leaf(network.preprocess.space)):
        return None
    head = [] if network.head is None else network.head.layers
    if network.core is not None and network.custom:
        return None if network.bounds else [*(recurrent.parts_of(network.torso) or []), *head]
    if type(network.torso) is not keras.Sequential:
        return None
    return [*network.torso.layers, *([] if network.core is None else [x.layer for x in network.core.cells]), *head]


def _is_plain_dense(layer: keras.layers.Layer) -> bool:
    """Whether it is a dense layer of a float32 kernel and bias alone, whatever dtype it multiplies them in."""
    is_dense = type(layer) in (keras.layers.Dense, Dense) and layer.dtype_policy.name in spec.DTYPES
    return is_dense and not getattr(layer, 'lora_enabled', False)


def _is_layer_norm(layer: keras.layers.Layer) -> bool:
    """Whether it normalizes vectors over their entries, with a scale and a shift, in float32."""
    kinds = keras.layers.LayerNormalization, LayerNormalization
    full = type(layer) in kinds and layer.scale and layer.center and not getattr(layer, 'rms_scaling', False)
    return full and layer.compute_dtype == 'float32'


def _dense(layer: keras.layers.Dense, norm: BatchRenormalization | None) -> Converted:
    kernel, biases = layer.kernel.value, [layer.bias.value] if layer.use_bias else []
    shape, activation = tuple(kernel.shape), pieces.activation_name(layer.activation)
    if norm is None:
        return Converted(layers.Affine(shape, layer.use_bias, activation), [kernel], biases)
    statistics = [v.value for v in (norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance)]
    made = layers.NormalizedAffine(shape, layer.use_bias, activation, float(norm.epsilon))
    return Converted(made, [kernel], [*biases, *statistics])


def _recurrent(cell: recurrent.Cell, start: int) -> Converted:
    kernels, biases = cell.variables[:2], cell.variables[2:]
    shapes, bias_shapes = ([tuple(v.shape) for v in variables] for variables in (kernels, biases))
    layer = KINDS[cell.kind](shapes, bias_shapes, cell.activation, cell.gate, start, cell.reset_after)
    return Converted(layer, kernels, biases)


def _head(layer: NoisyDense | DuelingHead | Dense) -> Converted:
    if isinstance(layer, NoisyDense):
        others = [v.value for v in (layer.bias, layer.noise_kernel, layer.noise_bias)]
        return Converted(layers.NoisyAffine(tuple(layer.kernel.shape)), [layer.kernel.value], others)
    if isinstance(layer, DuelingHead):
        value, advantage = _head(layer.value), _head(layer.advantage)
        made = layers.Dueling(value.layer, advantage.layer)
        return Converted(made, value.kernels + advantage.kernels, value.others + advantage.others)
    return _dense(layer, None)


def _bound(found: list[Converted]) -> bool:
    """Put a tanh in the place of the last activation, if that is none; whether this could be done."""
    last = found[-1].layer
    if not isinstance(last, layers.Affine) or last.activation != 'linear':
        return False
    last.activation = 'tanh'
    return True
