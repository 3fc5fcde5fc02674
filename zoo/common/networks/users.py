"""Networks of the user's own: adapted, probed, refused where they do not fit."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gymnasium.spaces import Tuple

from zoo.common import spaces
from zoo.common.adaptors.observation import Preprocess
from zoo.common.networks import recurrent, torsos
from zoo.common.networks.announcing import announces
from zoo.common.networks.heads import Head, make_head
from zoo.common.networks.network import Network, variables_of
from zoo.common.networks.trials import PROBES, probe
from zoo.common.tools import keras_private

log = logging.getLogger('zoo')

#: Steps of the sequences with which a recurrent chain is tried, and how far its outputs may differ from those of single
#: steps, in float32 and in bfloat16.
PROBE_STEPS = 4
PROBE_ERROR = 1e-3, 0.05

#: Observations, and sizes of the weights, with which an output is looked at that has to be in [−1, 1].
BOUND_ROWS = 32
BOUND_SCALES = (1.0, 10.0, 100.0, 1e4)


def adapt(entry: Any, label: str, name: str, preprocess: Preprocess, head: Head) -> Network:
    """A user's network: find how it is called, and attach a head where its output is not the head's."""
    needs, action_size = f'{head.meaning} ({head.units})', head.action_size
    sees = spaces.describe(preprocess.space)
    takes = sees + (f' and an action of {action_size}' if action_size else '')
    failures: list[str] = []
    _check_layers(entry, label)
    chain, core = recurrent.parts_of(entry), None
    if chain is not None:
        recurrent.check_layers(chain, label)
        before, core = recurrent.core_of(chain)
    ways, steps_agree = _ways_to_call(entry, preprocess, action_size), True
    if core is not None:  # the observation alone: a critic of an action too is not recurrent
        nested = preprocess.nested
        ways = [(lambda found, action, training: before(nested(found), training), action_size > 0)]
    for call_torso, joins_action in ways:
        try:
            if core is not None:
                recurrent.build(entry, probe(preprocess, 0, lambda found, *_: nested(found)).shape[1:])
            with tf.GradientTape() as tape:
                output = probe(preprocess, action_size, call_torso)
                if core is not None:
                    output, _ = core.step(output, tf.zeros([PROBES, core.state_size]))
            if core is not None:
                sequences = nested(_random_features(preprocess, PROBE_STEPS * PROBES))
                sequences = tf.reshape(sequences, [PROBE_STEPS, PROBES, *sequences.shape[1:]])
                error = PROBE_ERROR[_is_mixed(entry, output)]
                steps_agree = recurrent.steps_agree(entry, before, core, sequences, error)
        except Exception as error:  # whatever a user's network raises says that this way does not fit
            reason = ' '.join(re.sub(r'\x1b\[\d*m', '', str(error)).split())[:200]  # Keras writes in bold
            failures.append(
                f'{label} does not take the observation {takes}, from which {needs} are needed: calling it raised '
                f'"{reason}".'
            )
            continue
        shape, dtype = tuple(getattr(output, 'shape', ())), getattr(output, 'dtype', None)
        if len(shape) != 2 or shape[0] != PROBES or dtype not in (tf.float32, tf.bfloat16):
            found = type(output).__name__ if dtype is None else f'{tf.as_dtype(dtype).name} of shape {shape}'
            failures.append(
                f'{label} maps {PROBES} of {takes} to {found}, but {needs} are needed: give a network with float32 '
                'output [batch, units].'
            )
            continue
        _check_listed(entry, label, tape.watched_variables())
        if not variables_of(entry, trainable=True):
            raise ValueError(f'{label} has no trainable_variables after a call, so there is nothing to train in it.')
        _check_weights(entry, label)
        mixed = _is_mixed(entry, output)
        if dtype == tf.bfloat16:
            call_torso = _in_float32(call_torso)
        if not steps_agree:
            raise ValueError(
                f'{label} gives something else of a whole sequence than step by step, as a policy acts: leave out '
                'layers that look at several steps at once, such as convolutions or means over time.'
            )
        width = int(shape[-1])
        if joins_action and width == head.units:
            failures.insert(
                0,
                f'{label} maps {sees} alone to {width}, but {needs} of the observation and an action of {action_size} '
                'are needed: give a network that takes [observation, action], or a torso.',
            )
            continue
        custom = type(entry).__name__
        if width in (head.units, head.also_accepts):
            made = Network(
                name, preprocess, entry, call_torso, None, custom=custom, wanted=head, mixed=mixed, core=core
            )
            made.bounds = head.activation == 'tanh' and not _stays_bounded(made, action_size)
            if head.sigma:
                raise ValueError(
                    f'{label} is a complete network, which has no head whose layers could be noisy: give a torso for '
                    'it, or noisy=False.'
                )
            if head.dueling and announces.get():
                log.warning('%s is a complete network, so dueling=True changes nothing: give a torso for it.', label)
            if made.bounds and announces.get():
                log.warning('%s gives numbers beyond [-1, 1], the range of an action: a tanh is put on them.', label)
            return made
        if announces.get():
            log.info('%s gives %d numbers: a head for %s is attached.', label, width, needs)
        seeds = torsos.SeedSequence(None)
        attached = make_head(head, width + action_size * joins_action, 'glorot_uniform', seeds, hidden=joins_action)
        return Network(
            name, preprocess, entry, call_torso, attached, joins_action, custom, wanted=head, mixed=mixed, core=core
        )
    raise ValueError(failures[0])


def _ways_to_call(entry: Any, preprocess: Preprocess, action_size: int) -> list[tuple[Callable[..., Any], bool]]:
    """Functions of (features, action) that call the entry, likeliest first, and whether the head adds the action."""
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
    if _takes_two(entry.call if isinstance(entry, keras.Layer) else entry.forward if _is_tensorlayer(entry) else entry):
        return [two_arguments]
    # A Tuple of two observations could be taken for an observation and an action: there the pair goes first.
    rest = [paired, state_only] if isinstance(preprocess.space, Tuple) else [state_only, paired]
    return [*joinable, *rest]


def _is_tensorlayer(entry: Any) -> bool:
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
    if _is_tensorlayer(entry):
        return _call_of_tensorlayer(entry)
    if _takes(entry, 'training'):
        return lambda training, *inputs: entry(*inputs, training=training)
    return lambda training, *inputs: entry(*inputs)


def _call_of_tensorlayer(entry: Any) -> Callable[..., Any]:
    """TensorLayer's own call takes tensors and lists, but a dynamic model any structure."""
    if entry.inputs is None:
        entry._fix_nodes_for_layers()  # as its call does, lest every call be recorded

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


def _takes(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _takes_two(function: Callable[..., Any]) -> bool:
    """Whether it takes the observation and the action as two arguments."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    positional = [
        p
        for p in parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name not in ('training', 'mask')
    ]
    required = [p for p in positional if p.default is p.empty]
    return len(required) == 2 or (len(required) == 1 and [p.name for p in positional[1:2]] == ['action'])


def _random_features(preprocess: Preprocess, count: int, scale: float = 1.0) -> dict[str, tf.Tensor]:
    """So many preprocessed observations: normal numbers, and indices that are 0."""
    rng = np.random.default_rng(0)
    return {
        item.path: (
            tf.zeros([count], tf.int32)
            if item.kind == 'index'
            else tf.constant(scale * rng.standard_normal([count, *item.shape]), tf.float32)
        )
        for item in preprocess.features
    }


def _check_layers(entry: Any, label: str) -> None:
    """Refuse layers of a user's network that would go wrong without a word."""
    if isinstance(entry, keras.Layer):
        for layer in keras_private.flattened(entry):
            if layer.compute_dtype == 'float16':
                raise ValueError(
                    f'{label} has the layer {layer.name!r} of dtype policy {layer.dtype_policy.name!r}, whose '
                    'gradients vanish where the loss is not scaled: make it of float32.'
                )
    if _is_tensorlayer(entry):
        for layer in _tensorlayer_layers(entry):
            if any(kind.__name__ == 'BatchNorm' for kind in type(layer).__mro__):
                raise ValueError(
                    f'{label} has the TensorLayer layer {layer.name!r}, a {type(layer).__name__}, which cannot learn '
                    'its statistics in a compiled update: use LayerNorm, or keras.layers.BatchNormalization in a '
                    'Keras model.'
                )


def _check_weights(entry: Any, label: str) -> None:
    """Refuse weights of half precision, in which the small steps of an optimiser are lost."""
    for variable in variables_of(entry):
        if variable.dtype in (tf.bfloat16, tf.float16):
            raise ValueError(
                f'{label} has weights of {variable.dtype.name} ({variable.name!r}), in which small steps are lost: '
                "make its layers of dtype policy 'mixed_bfloat16', which keeps the weights in float32."
            )


def _is_mixed(entry: Any, output: tf.Tensor) -> bool:
    """Whether a user's network computes in bfloat16, as its layers or its output say."""
    layers = keras_private.flattened(entry) if isinstance(entry, keras.Layer) else ()
    return output.dtype == tf.bfloat16 or any(layer.compute_dtype == 'bfloat16' for layer in layers)


def _in_float32(call: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """The same call with its output in float32."""
    return lambda found, action, training: tf.cast(call(found, action, training), tf.float32)


def _check_listed(entry: Any, label: str, used: Sequence[tf.Variable]) -> None:
    """Refuse a network that computes from weights that it does not list: they were neither trained nor saved.

    Those of Keras layers in a ``tf.Module`` are such ones, for Keras' layers are no modules.
    """
    if isinstance(entry, keras.Layer):
        return
    listed = {id(variable) for trainable in (True, False) for variable in variables_of(entry, trainable)}
    for variable in used:
        if id(variable) not in listed:
            which = f'{variable.name!r} of shape {list(variable.shape)}'
            raise ValueError(
                f'{label} uses weights that its trainable_variables lacks ({which}): list all of them there, or in '
                'variables those that are not to be trained, or give a keras.Model.'
            )


def _tensorlayer_layers(model: Any) -> list[Any]:
    found = []
    for layer in model.all_layers:
        found += [layer, *(_tensorlayer_layers(layer) if hasattr(layer, 'all_layers') else [])]
    return found


def _stays_bounded(network: Network, action_size: int) -> bool:
    """Whether the output is in [−1, 1] whatever the weights: those of a fresh network may well be zero.

    It is looked at with inputs that are large and weights that are random, small and large; the weights come back.
    """
    rng = np.random.default_rng(0)
    features = _random_features(network.preprocess, BOUND_ROWS, 30.0)
    action = tf.constant(rng.uniform(-1.0, 1.0, [BOUND_ROWS, action_size]), tf.float32) if action_size else None
    weights = network.trainable_variables
    kept = [variable.numpy() for variable in weights]
    try:
        for scale in BOUND_SCALES:
            for variable in weights:
                variable.assign(tf.constant(scale * rng.standard_normal(variable.shape), variable.dtype))
            output = network.encode_features(features, action, False).numpy()
            if (np.abs(output) > 1.0).any():  # a number that is none says nothing: such weights are never reached
                return False
    finally:
        for variable, value in zip(weights, kept, strict=True):
            variable.assign(value)
    return True
