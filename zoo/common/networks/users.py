"""A user's own networks: adapted to what an algorithm needs, or refused."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.common import spaces
from zoo.common.adaptors.observation import Preprocess
from zoo.common.networks import pieces, recurrent
from zoo.common.networks.calling import Call, is_tensorlayer, ways_to_call
from zoo.common.networks.heads import Head, make_head
from zoo.common.networks.network import PROBES, Network, announces, probe, variables_of
from zoo.common.tools import keras_private
from zoo.common.tools.errors import InvalidValue

log = logging.getLogger('zoo')

#: Steps of the sequences with which a recurrent chain is tried, and how far its outputs for whole sequences and for
#: single steps may differ, in float32 and in bfloat16.
PROBE_STEPS = 4
PROBE_ERROR = 1e-3, 0.05

#: Observations, and sizes of the weights, with which is tried whether an output stays in [−1, 1].
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
        if shape[1] in (head.units, head.also_accepts):
            _complete(made, label)
        else:
            if announces.get():
                log.info('%s gives %d numbers: a head for %s is attached.', label, shape[1], needs)
            width, seeds = shape[1] + action_size * joins_action, pieces.SeedSequence(None)
            made.head = make_head(head, width, 'glorot_uniform', seeds, hidden=joins_action)
        return made
    raise InvalidValue(failures[0])


def _trial(entry: Any, preprocess: Preprocess, action_size: int, call: Call, memory: _Memory | None) -> Any:
    """The output for a batch of zero observations, whatever it is."""
    if memory is None:
        return probe(preprocess, action_size, call)
    recurrent.build(entry, probe(preprocess, 0, lambda found, *_: preprocess.nested(found)).shape[1:])
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
        """Whether it gives the same for whole sequences as step by step."""
        x = preprocess.nested(_random_features(preprocess, PROBE_STEPS * PROBES))
        x = tf.reshape(x, [PROBE_STEPS, PROBES, *x.shape[1:]])
        within = PROBE_ERROR[_is_mixed(self.entry, output)]
        return recurrent.steps_agree(self.entry, self.before, self.core, x, within)


def _complete(made: Network, label: str) -> None:
    """Settle what a complete network needs in place of a head, and refuse or announce what it cannot have."""
    head = made.wanted
    made.bounds = head.activation == 'tanh' and not _stays_bounded(made, head.action_size)
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
                    f'{label} has the TensorLayer layer {layer.name!r}, a {type(layer).__name__}, which cannot learn '
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


def _stays_bounded(network: Network, action_size: int) -> bool:
    """Whether the output stays in [−1, 1] whatever the weights, which may be zero in a fresh network.

    It is tried with large inputs and with random weights, small and large. Then the weights are restored.
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
            if (np.abs(output) > 1.0).any():  # NaN passes: such weights are never reached
                return False
    finally:
        for variable, value in zip(weights, kept, strict=True):
            variable.assign(value)
    return True
