"""What zoo uses of Keras that Keras does not promise to keep, and the public way where there is one.

All of these names are in Keras 3.9.0, the oldest version that zoo takes, in 3.15.1, and in a nightly version of 3.16.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

import keras

from zoo.common.tools.errors import Failure


def flattened(layer: keras.Layer) -> list[keras.Layer]:
    """Give a layer and all layers inside it."""
    if hasattr(layer, '_flatten_layers'):
        return layer._flatten_layers()
    found = {id(layer): layer}
    left = [layer]
    while left:
        held = left.pop()
        parts = held.layers if isinstance(held, keras.Model) else [x for y in vars(held).values() for x in _parts(y)]
        inside = {id(part): part for part in parts if isinstance(part, keras.Layer) and id(part) not in found}
        found |= inside
        left += inside.values()
    return list(found.values())


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else [value]


def clear_losses(layer: keras.Layer) -> None:
    """Forget the losses of the last call: tensors of one graph must not be met in another one."""
    _of(layer, '_clear_losses')()


def takes_training(layer: keras.Layer) -> bool:
    """Whether the layer's call takes ``training``."""
    if hasattr(layer, '_call_has_training_arg'):
        return layer._call_has_training_arg
    return 'training' in inspect.signature(layer.call).parameters


def own_untrained(layer: keras.Layer) -> list[keras.Variable]:
    """Give the layer's variables that are never trained, such as moving means; none of layers or generators in it."""
    if hasattr(layer, '_non_trainable_variables'):
        return list(layer._non_trainable_variables)
    inside = {id(v) for other in flattened(layer)[1:] for v in other.variables}
    return [v for v in layer.non_trainable_variables if id(v) not in inside and v.name != 'seed_generator_state']


def calls_of(layer: keras.Layer) -> Sequence[Any]:
    """Give the nodes at which functional models call this layer; ``node.parent_nodes`` are the calls before."""
    return _of(layer, '_inbound_nodes')


def maker_of(tensor: keras.KerasTensor) -> keras.Operation:
    """Give the layer whose output a symbolic tensor is."""
    return _of(tensor, '_keras_history').operation


def excludes_variables(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether variables, given as objects, are left out of the optimizer's weight decay."""
    return bool(getattr(optimizer, '_exclude_from_weight_decay', None))


def excluded_names(optimizer: keras.optimizers.Optimizer) -> re.Pattern[str] | None:
    """Give the pattern of the names of variables that are left out of the optimizer's weight decay."""
    return getattr(optimizer, '_exclude_from_weight_decay_pattern', None)


def is_saveable(kind: type) -> bool:
    """Whether Keras pickles objects of this class by their configuration."""
    return hasattr(kind, '_unpickle_model') or issubclass(
        kind, keras.Operation | keras.optimizers.Optimizer | keras.losses.Loss | keras.metrics.Metric
    )


def _of(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name)
    except AttributeError:
        raise Failure(
            f'Keras {keras.__version__} has no {type(thing).__name__}.{name}, which zoo needs: install Keras 3.15.'
        ) from None
