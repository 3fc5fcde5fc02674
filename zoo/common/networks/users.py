"""A user's own networks: adapted to what an algorithm needs, or refused."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gymnasium.spaces import Dict, Tuple

from zoo.common import spaces
from zoo.common.adaptors.observation import Preprocess, mask_path
from zoo.common.networks import pairs, pieces, recurrent
from zoo.common.networks.heads import Head, make_head
from zoo.common.networks.network import PROBES, Network, announces, probe, variables_of
from zoo.common.tools import keras_private
from zoo.common.tools.errors import InvalidValue, a_type

log = logging.getLogger('zoo')

#: A function of features by path, the action or None, and training mode.
Call = Callable[[dict[str, tf.Tensor], tf.Tensor | None, bool], tf.Tensor]

#: Steps of the sequences with which a recurrent chain is tried, and how far its outputs for whole sequences and for
#: single steps may differ, in float32 and in bfloat16.
PROBE_STEPS = 4
PROBE_ERROR = 1e-3, 0.05

#: Observations, and sizes of the weights, with which is tried whether an output stays in [−1, 1] or is probabilities.
BOUND_ROWS = 32
BOUND_SCALES = (1.0, 10.0, 100.0, 1e4)


def adapt(entry: Any, label: str, name: str, preprocess: Preprocess, head: Head) -> Network:
    """Adapt a user's network: find how it is called, and attach a head if its output is not the head's.

    Args:
        entry: the user's network.
        label, name: ``'net_list[0] (actor)'`` for messages, and ``'actor'``.
        head: what the network takes and gives.

    Raises:
        ValueError: the network does not fit; the message says what it maps and what the algorithm needs.
    """
    needs, action_size = f'{head.meaning} ({head.units})', head.action_size
    sees = spaces.describe(preprocess.space)
    takes = sees + (f' and an action of {action_size}' if action_size else '')
    failures: list[str] = []
    _check_layers(entry, label)
    memory = _Memory.of(entry, label)
    ways = ways_to_call(entry, preprocess, action_size) if memory is None else [memory.way(preprocess, action_size)]
    for call, joins_action in ways:
        try:
            with tf.GradientTape() as tape:
                output = _trial(entry, preprocess, action_size, call, memory)
            steps_agree = memory is None or memory.steps_agree(preprocess, output)
        except Exception as error:  # a user's network may raise anything, which says that it is not called like this
            reason = ' '.join(re.sub(r'\x1b\[\d*m', '', str(error)).split())  # Keras writes in bold
            reason = re.split(r' Arguments received| ?[({]*[^ ]*(?:<tf\.|array\(|\[\[)', reason)[0][:200]
            keys = list(preprocess.space.spaces) if isinstance(preprocess.space, Dict) else []
            gets = [key for key in keys if key != mask_path(preprocess.space)]
            hint = f' The network gets a dict with the keys {", ".join(gets)}.' if gets else ''
            hint += ' No network gets the mask.' if len(gets) < len(keys) else ''
            if memory is None and _is_recurrent(entry):
                hint += ' A recurrent network is a chain of layers with one output.'
                hint += " 'actor' in place of the critic shares its torso." if head.beside is not None else ''
            failures.append(
                f'{label} does not take the observation {takes}, from which {needs} are needed: calling it raised '
                f'"{reason}".{hint}'
            )
            continue
        own = None
        if head.beside is not None and pairs.is_several(output):
            output, call, own = pairs.joined(output, call, label, head)
        shape, dtype = tuple(getattr(output, 'shape', ())), getattr(output, 'dtype', None)
        if len(shape) != 2 or shape[0] != PROBES or dtype not in (tf.float32, tf.bfloat16):
            found = type(output).__name__ if dtype is None else f'{tf.as_dtype(dtype).name} of shape {shape}'
            found = f'{len(output)} outputs' if pairs.is_several(output) else found
            failures.append(
                f'{label} maps {PROBES} of {takes} to {found}, but {needs} are needed: give a network with float32 '
                'output [batch, units].'
            )
            continue
        _check_listed(entry, label, tape.watched_variables())
        _check_weights(entry, label)
        if not steps_agree:
            raise InvalidValue(
                f'{label} gives something else of a whole sequence than step by step, as a policy acts: leave out '
                'layers that look at several steps at once, such as convolutions or means over time.'
            )
        if joins_action and shape[1] == head.units:
            failures.insert(
                0,
                f'{label} maps {sees} alone to {shape[1]}, but {needs} of the observation and an action of '
                f'{action_size} are needed: give a network that takes [observation, action], or a torso.',
            )
            continue
        kind, mixed, core = type(entry).__name__, _is_mixed(entry, output), None if memory is None else memory.core
        call = call if dtype == tf.float32 else _in_float32(call)
        made = Network(name, preprocess, entry, call, None, joins_action, kind, wanted=head, mixed=mixed, core=core)
        if own is not None:
            made.columns = slice(0, own)
            _complete(made, label)
        elif shape[1] in (head.units, head.also_accepts):
            _complete(made, label)
        else:
            if announces.get() and _ends_without_activation(entry):
                told = '%s ends in a Dense layer of %d without an activation, but %s are needed:'
                log.warning(f'{told} it is taken as a torso, and a head is attached.', label, shape[1], needs)
            elif announces.get():
                log.info('%s gives %d numbers: a head for %s is attached.', label, shape[1], needs)
            width, seeds = shape[1] + action_size * joins_action, pieces.SeedSequence(None)
            made.head = make_head(head, width, 'glorot_uniform', seeds, hidden=joins_action)
        return made
    raise InvalidValue(failures[0])


def _ends_without_activation(entry: Any) -> bool:
    last = entry.layers[-1] if isinstance(entry, keras.Model) and entry.layers else None
    return isinstance(last, keras.layers.Dense) and last.activation is keras.activations.linear


def _is_recurrent(entry: Any) -> bool:
    return isinstance(entry, keras.Layer) and any(
        isinstance(layer, keras.layers.RNN) for layer in keras_private.flattened(entry)
    )


def _trial(entry: Any, preprocess: Preprocess, action_size: int, call: Call, memory: _Memory | None) -> Any:
    """The output for a batch of zero observations, whatever it is."""
    if memory is None:
        return probe(preprocess, action_size, call)
    if not entry.built:
        entry.build((None, None, *probe(preprocess, 0, lambda found, *_: preprocess.nested(found)).shape[1:]))
    output = probe(preprocess, action_size, call)
    return memory.core.step(output, tf.zeros([PROBES, memory.core.state_size]))[0]


class _Memory:
    """A user's recurrent chain, in the two pieces of :func:`recurrent.core_of`."""

    def __init__(self, entry: Any, chain: list[keras.layers.Layer]) -> None:
        self.entry = entry
        self.before, self.core = recurrent.core_of(chain)

    @classmethod
    def of(cls, entry: Any, label: str) -> _Memory | None:
        """The user's network as a recurrent chain; None if it is no such chain."""
        chain = recurrent.parts_of(entry)
        if chain is None:
            return None
        recurrent.check_layers(chain, label)
        return cls(entry, chain)

    def way(self, preprocess: Preprocess, action_size: int) -> tuple[Call, bool]:
        """How it is called: with the observation alone; the head adds the action of a critic of both."""
        return lambda found, action, training: self.before(preprocess.nested(found), training), action_size > 0

    def steps_agree(self, preprocess: Preprocess, output: tf.Tensor) -> bool:
        """Whether it gives the same for whole sequences as step by step: no layer looks at several steps at once."""
        rows = preprocess.nested(_random_features(preprocess, PROBE_STEPS * PROBES))
        x = tf.reshape(rows, [PROBE_STEPS, PROBES, *rows.shape[1:]])
        whole = self.entry(tf.transpose(x, [1, 0, *range(2, len(x.shape))]), training=False)
        keras_private.clear_losses(self.entry)
        begins, state = tf.zeros([PROBE_STEPS, PROBES], tf.bool), tf.zeros([PROBES, self.core.state_size])
        found = self.core.sequence(self.before(rows, False), state, begins)[0][-PROBES:]
        last = tf.cast(whole[:, -1] if len(whole.shape) == 3 else whole, tf.float32)
        within = PROBE_ERROR[_is_mixed(self.entry, output)]
        return last.shape == found.shape and np.allclose(last, found, atol=within, rtol=within)


def _complete(made: Network, label: str) -> None:
    """Settle what a complete network needs in place of a head, and refuse or announce what it cannot have."""
    head = made.wanted
    if announces.get() and head.choices and _gives_probabilities(made):
        raise InvalidValue(
            f'{label} gives probabilities, numbers from 0 to 1, but {head.meaning} ({head.units}) are needed, which '
            'may be any numbers: leave out the softmax or sigmoid at its end.'
        )
    if announces.get() and head.is_value and _stays_bounded(made):
        log.warning(
            '%s stays in [-1, 1], so no larger value is learned: leave out the tanh or sigmoid at its end.', label
        )
    elif announces.get() and (head.is_value or head.choices) and _stays_positive(made):
        log.warning('%s gives no number below 0, so it learns no such value: leave out the relu at its end.', label)
    made.bounds = head.activation == 'tanh' and not _stays_bounded(made)
    if head.sigma:
        raise InvalidValue(
            f'{label} is a complete network, which has no head whose layers could be noisy: give a torso, or '
            'noisy=False.'
        )
    if head.dueling and announces.get():
        log.warning('%s is a complete network, so dueling=True changes nothing: give a torso.', label)
    if made.bounds and announces.get():
        log.warning('%s gives numbers beyond [-1, 1], the range of an action: a tanh is put on them.', label)


def _in_float32(call: Call) -> Call:
    return lambda found, action, training: tf.cast(call(found, action, training), tf.float32)


def _random_features(preprocess: Preprocess, count: int, scale: float = 1.0) -> dict[str, tf.Tensor]:
    """``count`` preprocessed observations: normal numbers, and indices of 0."""
    rng, found = np.random.default_rng(0), {}
    for item in preprocess.features:
        if item.kind == 'index':
            found[item.path] = tf.zeros([count], tf.int32)
        else:
            found[item.path] = tf.constant(scale * rng.standard_normal([count, *item.shape]), tf.float32)
    return found


def _check_layers(entry: Any, label: str) -> None:
    """Refuse layers that would silently go wrong."""
    if isinstance(entry, keras.Layer):
        for layer in keras_private.flattened(entry):
            if layer.compute_dtype == 'float16':
                raise InvalidValue(
                    f'{label} has the layer {layer.name!r} of dtype policy {layer.dtype_policy.name!r}, whose '
                    'gradients vanish without loss scaling: make it of float32.'
                )
    if is_tensorlayer(entry):
        for layer in _tensorlayer_layers(entry):
            if any(kind.__name__ == 'BatchNorm' for kind in type(layer).__mro__):
                raise InvalidValue(
                    f'{label} has the TensorLayer layer {layer.name!r}, {a_type(layer)}, which cannot learn '
                    'its statistics in a compiled update: use LayerNorm, or keras.layers.BatchNormalization in a '
                    'Keras model.'
                )


def _check_weights(entry: Any, label: str) -> None:
    """Refuse a network that has nothing to train, or half-precision weights, which lose small steps."""
    if not variables_of(entry, trainable=True):
        raise InvalidValue(f'{label} has no trainable_variables after a call, so there is nothing to train in it.')
    for variable in variables_of(entry):
        if variable.dtype in (tf.bfloat16, tf.float16):
            raise InvalidValue(
                f'{label} has weights of {variable.dtype.name} ({variable.name!r}), in which small steps are lost: '
                "make its layers of dtype policy 'mixed_bfloat16', which keeps the weights in float32."
            )


def _is_mixed(entry: Any, output: tf.Tensor) -> bool:
    """Whether a user's network computes in bfloat16, judging by its layers and its output."""
    layers = keras_private.flattened(entry) if isinstance(entry, keras.Layer) else ()
    return output.dtype == tf.bfloat16 or any(layer.compute_dtype == 'bfloat16' for layer in layers)


def _check_listed(entry: Any, label: str, used: Sequence[tf.Variable]) -> None:
    """Refuse unlisted weights, which would be neither trained nor saved: Keras layers in a ``tf.Module``, say."""
    if isinstance(entry, keras.Layer):
        return
    listed = {id(variable) for trainable in (True, False) for variable in variables_of(entry, trainable)}
    for variable in used:
        if id(variable) not in listed:
            which = f'{variable.name!r} of shape {list(variable.shape)}'
            raise InvalidValue(
                f'{label} uses weights that its trainable_variables lacks ({which}): list all weights there, or list '
                'untrained weights in variables, or give a keras.Model.'
            )


def _tensorlayer_layers(model: Any) -> list[Any]:
    found = []
    for layer in model.all_layers:
        found += [layer, *(_tensorlayer_layers(layer) if hasattr(layer, 'all_layers') else [])]
    return found


def _stays_bounded(network: Network) -> bool:
    """Whether the output stays in [−1, 1] whatever the weights, which may be zero in a fresh network."""
    return not any((np.abs(output) > 1.0).any() for output in _outputs(network))  # NaN passes


def _stays_positive(network: Network) -> bool:
    """Whether no output is below 0 whatever the weights."""
    return not any((output < 0.0).any() for output in _outputs(network))  # NaN passes


def _gives_probabilities(network: Network) -> bool:
    """Whether one choice of the head, or one switch, or the whole output, has probabilities whatever the weights."""
    head, found = network.wanted, [x[np.isfinite(x).all(1)] for x in _outputs(network)]
    places = [*head.choices, (0, head.units)]
    return any(
        all(_are_probabilities(x[:, begin:end]) for x in found) and any((x[:, begin:end] > 0.0).any() for x in found)
        for begin, end in places
        if found[0].shape[1] == head.units
    )


def _are_probabilities(x: np.ndarray) -> bool:
    """Whether the numbers ``[B, n]`` are in [0, 1], and sum to 1 in each row if they are more than one."""
    inside = bool((x >= 0.0).all() and (x <= 1.0).all())
    return inside and (x.shape[1] == 1 or np.allclose(x.sum(1), 1.0, atol=1e-3))


def _outputs(network: Network) -> list[np.ndarray]:
    """The outputs ``[B, units]`` for large inputs with random weights, small and large; the weights are restored.

    Some may be NaN, with weights that are never reached.
    """
    rng, size = np.random.default_rng(0), network.wanted.action_size
    features = _random_features(network.preprocess, BOUND_ROWS, 30.0)
    action = tf.constant(rng.uniform(-1.0, 1.0, [BOUND_ROWS, size]), tf.float32) if size else None
    weights = network.trainable_variables
    kept = [variable.numpy() for variable in weights]
    found = []
    try:
        for scale in BOUND_SCALES:
            for variable in weights:
                variable.assign(tf.constant(scale * rng.standard_normal(variable.shape), variable.dtype))
            found.append(network.from_torso(network.encode_features(features, action, False)).numpy())
    finally:
        for variable, value in zip(weights, kept, strict=True):
            variable.assign(value)
    return found


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
