"""How a user's network is called: with which arguments, and how it is put in training mode."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from gymnasium.spaces import Tuple

from zoo.common import spaces
from zoo.common.adaptors.observation import Preprocess
from zoo.common.tools import keras_private

#: A function of features by path, the action or None, and training mode.
Call = Callable[[dict[str, tf.Tensor], tf.Tensor | None, bool], tf.Tensor]


def ways_to_call(entry: Any, preprocess: Preprocess, action_size: int) -> list[tuple[Call, bool]]:
    """Ways to call a user's network, the likeliest first, each with whether the head adds the action."""
    nested, call = preprocess.nested, _call_of(entry)
    state_only = (lambda found, action, training: call(training, nested(found)), action_size > 0)
    if not action_size:
        return [state_only]
    paired = (lambda found, action, training: call(training, [nested(found), action]), False)
    two_arguments = (lambda found, action, training: call(training, nested(found), action), False)
    joined = (lambda found, action, training: call(training, tf.concat([nested(found), action], -1)), False)
    one_vector = spaces.is_leaf(preprocess.space) and preprocess.is_flat
    joinable = [joined] if one_vector else []
    if isinstance(entry, keras.Model) and (getattr(entry, 'inputs', None) or isinstance(entry, keras.Sequential)):
        return [paired, state_only] if len(getattr(entry, 'inputs', None) or []) > 1 else [*joinable, state_only]
    if _takes_two(entry.call if isinstance(entry, keras.Layer) else entry.forward if is_tensorlayer(entry) else entry):
        return [two_arguments]
    # A Tuple of two observations could be taken for an observation and an action, so the pair is tried first there.
    rest = [paired, state_only] if isinstance(preprocess.space, Tuple) else [state_only, paired]
    return [*joinable, *rest]


def is_tensorlayer(entry: Any) -> bool:
    """Whether a user's network is a TensorLayer model."""
    return hasattr(entry, 'is_train') and hasattr(entry, 'all_weights')


def _call_of(entry: Any) -> Callable[..., Any]:
    """The function ``(training, *inputs)`` that calls it in training mode or in inference mode."""
    if isinstance(entry, keras.Layer):

        def call_keras(training: bool, *inputs: Any) -> Any:
            output = entry(*inputs, training=training)
            if not training:
                keras_private.clear_losses(entry)
            return output

        return call_keras
    if is_tensorlayer(entry):
        return _call_of_tensorlayer(entry)
    if 'training' in _parameters(entry):
        return lambda training, *inputs: entry(*inputs, training=training)
    return lambda training, *inputs: entry(*inputs)


def _call_of_tensorlayer(entry: Any) -> Callable[..., Any]:
    """Its own call takes tensors and lists; the ``forward`` of a dynamic model takes any structure."""
    if entry.inputs is None:
        entry._fix_nodes_for_layers()  # its own call does so; otherwise every call is recorded

    def call(training: bool, *inputs: Any) -> Any:
        if training:
            entry.train()
        elif entry.is_train is not False:
            entry.eval()
        try:
            if entry.inputs is None:
                return entry.forward(*inputs)
            (x,) = inputs
            return entry(list(x) if isinstance(x, tuple) else x)
        finally:
            if training:
                entry.eval()

    return call


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


def _takes_two(function: Callable[..., Any]) -> bool:
    """Whether it takes the observation and the action as two arguments."""
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    positional = [p for p in _parameters(function).values() if p.kind in kinds and p.name not in ('training', 'mask')]
    required = [p for p in positional if p.default is p.empty]
    return len(required) == 2 or (len(required) == 1 and [p.name for p in positional[1:2]] == ['action'])
