"""The policy adaptor: from an entry of ``net_list`` to the network that an algorithm needs.

An algorithm says what its network has to give, as a :class:`Head`; :func:`build_network` makes it from

* a **spec**, ``dict(hidden=[256, 256], activation='tanh')``: torso and head are assembled;
* a **torso**, a network whose output is not of the head's size: a head is attached, and one log line says so;
* a **complete network**, whose output is of the head's size;
* the **name** of an earlier network of the list, on whose torso its head is put: one encoder for both.

The middle two are a Keras 3 model, a TensorLayer 2 model, a ``tf.Module``, or a callable with ``trainable_variables``.
They are called with the preprocessed observation in the environment's own form: a tensor for a leaf space, a dict or
tuple of tensors for ``Dict`` and ``Tuple`` (without the action mask); see :mod:`zoo.common.adaptors.observation`. A
critic of state *and* action is called with ``[obs, action]`` or with the two as arguments, as it takes them, or with
both joined in one vector where the observation is one; after a torso of the observation alone the action joins in the
head.

A network means what Keras says it means. Where it is trained it is called in training mode: dropout drops, batch
normalisation takes the batch's moments and learns its statistics, and what it adds to the loss is added
(:meth:`Network.penalties`). Everywhere else, in acting, in targets and in values that are only bootstrapped from, it is
in inference mode. A TensorLayer model is switched by ``is_train``, another callable is given ``training`` if it takes
that.

A network may be recurrent over the steps of the environment: a spec with ``recurrent='lstm'``, or a chain of Keras
layers that takes sequences, ``keras.Sequential([Dense(64), LSTM(64), Dense(64)])`` (:mod:`zoo.common.recurrence`). Its
state is given to it and returned, ``[N, S]``: `Network.step` takes one step, `Network.sequence` whole sequences.

A torso or complete network of Keras' dtype policy ``'mixed_bfloat16'`` computes in bfloat16, from weights of float32;
what it gives is made float32, and heads compute in that. A spec says so by ``dtype``: :mod:`zoo.common.networks`.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gymnasium.spaces import Tuple

from zoo.common import networks, recurrence, spaces
from zoo.common.adaptors.action import SDE_EPSILON, ActionAdaptor, masked
from zoo.common.adaptors.observation import Preprocess, mask_path
from zoo.common.batch_renorm import BatchRenormalization
from zoo.common.dense import Dense

log = logging.getLogger('zoo')

#: Batch size of the trial calls. Not 2, lest a tensor be unpacked into an observation and an action.
PROBES = 3

#: Steps of the sequences with which a recurrent chain is tried, and how far its outputs may differ from those of single
#: steps, in float32 and in bfloat16.
PROBE_STEPS = 4
PROBE_ERROR = 1e-3, 0.05

#: Observations, and sizes of the weights, with which an output is looked at that has to be in [−1, 1].
BOUND_ROWS = 32
BOUND_SCALES = (1.0, 10.0, 100.0, 1e4)

_announces = contextvars.ContextVar('announces', default=True)


@contextlib.contextmanager
def unannounced() -> Iterator[None]:
    """Build networks that are second ones of their kind, without the log lines that the first have had."""
    token = _announces.set(False)
    try:
        yield
    finally:
        _announces.reset(token)


@dataclass(frozen=True)
class Head:
    """What a network takes besides the observation, and what it has to give.

    Attributes:
        units: the size of its output.
        meaning: what the output is, for messages: ``'the logits of 2 actions'``.
        gain: gain of the head's orthogonal initialiser; None for the torso's own initialiser.
        activation: of the output.
        also_accepts: another size of output that a complete network may have.
        dueling: separate streams for the state's value and the advantages (Wang et al. 2016, eq. 9).
        action_size: of a critic of state and action, the length of the action that it takes; 0 of any other network.
        values: numbers for each action, of which ``units`` are made.
        sigma: σ₀ of noisy layers (Fortunato et al. 2018); 0 for plain ones.
    """

    units: int
    meaning: str
    gain: float | None = None
    activation: str = 'linear'
    also_accepts: int | None = None
    dueling: bool = False
    action_size: int = 0
    values: int = 1
    sigma: float = 0.0


def value_head(gain: float | None = None, action_size: int = 0) -> Head:
    """One number: the value of a state, or of a state and an action of ``action_size`` entries."""
    return Head(1, 'one value', gain, action_size=action_size)


def action_value_head(
    actions: int, dueling: bool = False, values: int = 1, named: str = 'values', sigma: float = 0.0
) -> Head:
    """What there is to say of each of ``actions`` discrete actions.

    Args:
        actions: how many.
        dueling: separate streams for the state's value and the advantages.
        values: numbers for each action: one value, or the atoms or quantiles of its distribution.
        named: what these are, for messages.
        sigma: σ₀ of noisy layers; 0 for plain ones.
    """
    meaning = f'the {named} of {actions} actions' if values == 1 else f'{values} {named} of each of {actions} actions'
    return Head(actions * values, meaning, dueling=dueling, values=values, sigma=sigma)


def deterministic_head(size: int, gain: float | None = None) -> Head:
    """An action in [−1, 1]."""
    return Head(size, f'an action of {size} entries in [-1, 1]', gain, 'tanh')


def stochastic_head(adaptor: ActionAdaptor, gain: float | None = None, free_log_std: bool = True) -> Head:
    """The parameters of the action's distribution.

    Args:
        adaptor: the action adaptor.
        gain: of the initialiser.
        free_log_std: a Gaussian's log standard deviation is a variable of its own rather than an output.
    """
    outputs = sum(part.outputs for part in adaptor.parts)
    if not free_log_std:
        return Head(adaptor.param_size, _meaning(adaptor), gain)
    return Head(outputs, _meaning(adaptor), gain, also_accepts=adaptor.param_size)


def best_action_head(adaptor: ActionAdaptor, gain: float | None = None) -> Head:
    """Logits and means, of which a deterministic policy takes the best action, for every action space."""
    return Head(sum(part.outputs for part in adaptor.parts), _meaning(adaptor), gain)


def _meaning(adaptor: ActionAdaptor) -> str:
    names = {'gaussian': 'means', 'squashed_gaussian': 'means and log standard deviations'}
    return ' and '.join(
        f'{names.get(part.kind, "logits")} for {part.kind} {part.path or "action"}' for part in adaptor.parts
    )


class Network:
    """Preprocessing, torso and head as one function of a flat observation; made by :func:`build_network`.

    Attributes:
        name: for logs, checkpoints and messages.
        torso: the user's or the assembled network.
        head: the Keras model after it, or None when the torso is complete.
        custom: the user's class name, or None for a spec.
        shares: the torso is another network's, which owns its weights.
        target: a second network that computes the same from weights of its own, where there is one.
        wanted: what it was built to take and give.
        bounds: a tanh is put on the output of a complete network, which has to be in [−1, 1] and is not.
        mixed: the torso computes in bfloat16, as far as that can be seen; what it gives is float32 all the same.
        core: the recurrent layers behind the torso and what follows them; None where there are none.
        state_size: entries of the recurrent state, 0 where there is none.
    """

    def __init__(
        self,
        name: str,
        preprocess: Preprocess,
        torso: Any,
        call_torso: Callable[[dict[str, tf.Tensor], tf.Tensor | None, bool], tf.Tensor],
        head: keras.Model | None,
        joins_action: bool = False,
        custom: str | None = None,
        shares: bool = False,
        *,
        wanted: Head,
        mixed: bool = False,
        core: recurrence.Core | None = None,
    ) -> None:
        self.name = name
        self.preprocess = preprocess
        self.torso = torso
        self.head = head
        self.custom = custom
        self.shares = shares
        self.wanted = wanted
        self.mixed = mixed
        self.core = core
        self.state_size = 0 if core is None else core.state_size
        self.target: Network | None = None
        self.bounds = False
        self._call_torso = call_torso
        self._joins_action = joins_action
        self._trained = self._keras_trained()
        if mixed:
            networks.warn_where_slow()

    def __call__(
        self,
        obs: spaces.Flat,
        action: tf.Tensor | None = None,
        training: bool = False,
        noise: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Output ``[B, units]`` for a flat observation ``[B, …]`` (and an action ``[B, n]`` for a critic of both).

        Args:
            obs: flat observations.
            action: for a critic of both.
            training: in training mode, where this is the network that the loss trains.
            noise: for noisy layers, see `from_torso`.

        A recurrent network takes the observations for the first ones of an episode, if they are not
        :class:`zoo.common.recurrence.Remembered`.
        """
        if isinstance(obs, recurrence.Remembered):
            return self._of_remembered(obs, action, training, noise)
        return self.from_torso(self.encode(obs, action, training), action, noise)

    def _of_remembered(
        self, seen: recurrence.Remembered, action: tf.Tensor | None, training: bool, noise: tf.Tensor | None
    ) -> tf.Tensor:
        if self.core is None:
            return self(seen.rows(), action, training, noise)
        takes_action = action is not None and not self._joins_action
        encoded, before = seen.run(self, takes_action, training)
        if takes_action:  # others than those taken: the step is taken again, from the state before it
            x = self._call_torso(self.preprocess(seen.rows()), action, training)
            encoded, _ = self.core.step(x, before, training)
        return self.from_torso(encoded, action, noise)

    def encode(self, obs: spaces.Flat, action: tf.Tensor | None = None, training: bool = False) -> tf.Tensor:
        """The torso's output ``[B, width]``, of a recurrent network that of the first step of an episode."""
        return self._encode(self.preprocess(obs), action, training)

    def _encode(self, found: dict[str, tf.Tensor], action: tf.Tensor | None, training: bool) -> tf.Tensor:
        x = self._call_torso(found, action, training)
        if self.core is None:
            return x
        return self.core.step(x, tf.zeros([tf.shape(x)[0], self.state_size]), training)[0]

    def step(self, obs: spaces.Flat, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Of a recurrent network, in inference mode: output ``[N, units]`` and the state after the step ``[N, S]``.

        Args:
            obs: flat observations ``[N, …]``.
            state: float32 ``[N, S]``, of zeros where an episode begins.
        """
        x, after = self.encode_step(obs, state)
        return self.from_torso(x), after

    def encode_step(self, obs: spaces.Flat, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """As `step`, with what the head is given ``[N, width]`` in place of the output."""
        assert self.core is not None  # only a recurrent network has a state
        return self.core.step(self._call_torso(self.preprocess(obs), None, False), state)

    def sequence(
        self, obs: spaces.Flat, state: tf.Tensor, begins: tf.Tensor, training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Of a recurrent network: outputs ``[T, N, units]`` and the states after each step ``[T, N, S]``.

        Args:
            obs: flat observations ``[T, N, …]``, time-major.
            state: float32 ``[N, S]``, before the first step.
            begins: bool ``[T, N]``; where True an episode begins, and the state is zero before that step.
            training: in training mode, where this is the network that the loss trains.
        """
        x, after = self.encode_sequence(obs, state, begins, training)
        x = self.from_torso(x)
        return tf.reshape(x, [*begins.shape, x.shape[-1]]), after

    def encode_sequence(
        self,
        obs: spaces.Flat,
        state: tf.Tensor,
        begins: tf.Tensor,
        training: bool = False,
        action: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `sequence`, with what the head is given, as rows ``[T · N, width]``, in place of the outputs.

        With the actions ``[T, N, n]`` where the torso takes them too.
        """
        assert self.core is not None  # only a recurrent network has a state
        rows = spaces.tree_map(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), obs)
        action = None if action is None else tf.reshape(action, [-1, action.shape[-1]])
        x = self._call_torso(self.preprocess(rows), action, training)
        return self.core.sequence(x, state, begins, training)

    def from_torso(self, x: tf.Tensor, action: tf.Tensor | None = None, noise: tf.Tensor | None = None) -> tf.Tensor:
        """The head's output for the torso's.

        Args:
            x: the torso's output.
            action: where it joins in the head.
            noise: normal numbers ``[1, noise_size]`` or ``[B, noise_size]`` of which noisy layers draw their weights,
                alike for all rows or for each by itself; None takes their means.
        """
        if self.head is None:
            return tf.tanh(x) if self.bounds else x
        if noise is not None:
            return self.head.layers[-1](x, noise)  # a head of noisy layers has no other
        return self.head(tf.concat([x, action], -1) if self._joins_action else x)

    @contextlib.contextmanager
    def in_float32(self) -> Iterator[None]:
        """What is traced meanwhile computes in float32 where Keras' dtype policies say bfloat16."""
        layers = list(self.torso._flatten_layers()) if isinstance(self.torso, keras.Layer) else []
        kept = [(layer, layer.dtype_policy) for layer in layers if layer.compute_dtype == 'bfloat16']
        try:
            for layer, _ in kept:
                layer.dtype_policy = 'float32'
            yield
        finally:
            for layer, policy in kept:
                layer.dtype_policy = policy

    def penalties(self) -> list[tf.Tensor]:
        """What a Keras model adds to the loss that trains it: ``add_loss``, and the regularisers' terms.

        To be asked for once after each call in training mode, in the same graph: those of the call are forgotten then.
        """
        if self.custom is None or self.shares or not isinstance(self.torso, keras.Layer):
            return []
        found = list(self.torso.losses)
        self.torso._clear_losses()  # lest tensors of one graph be met in another one
        return found

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """The weights that gradients move."""
        return self._owned(trainable=True)

    @property
    def variables(self) -> list[tf.Variable]:
        """Every weight, to save and to copy."""
        return self._owned()

    @property
    def random_variables(self) -> list[tf.Variable]:
        """The states of Keras' generators of random numbers, such as dropout's."""
        if self.custom is None or self.shares or not isinstance(self.torso, keras.Layer):
            return []
        return [v.value for v in self.torso.variables if v.name == 'seed_generator_state']  # others are of its metrics

    @property
    def constraints(self) -> list[tuple[tf.Variable, Callable[[tf.Tensor], tf.Tensor]]]:
        """The weights that Keras constrains, and what gives the value that they are to have after a step."""
        if self.custom is None or self.shares or not isinstance(self.torso, keras.Layer):
            return []
        return [(v.value, v.constraint) for v in self.torso.trainable_variables if v.constraint is not None]

    def check_trained(self) -> None:
        """Refuse layers of Keras that were frozen or unfrozen since this was made, which its optimizer cannot follow.

        Raises:
            ValueError: one sentence that names a weight.
        """
        found = self._keras_trained()
        for one, other, what in ((self._trained, found, 'frozen'), (found, self._trained, 'unfrozen')):
            for key in one.keys() - other.keys():
                raise ValueError(
                    f'{one[key]!r} of {self.name} was {what} after the agent was made, whose optimizer does not follow '
                    'that: set trainable before the agent is made.'
                )

    def _keras_trained(self) -> dict[int, str]:
        """The names of the weights that a Keras model of the user's says are trained, by their identity."""
        if self.custom is None or self.shares or not isinstance(self.torso, keras.Layer):
            return {}
        return {id(v): v.path for v in self.torso.trainable_variables}

    def _owned(self, trainable: bool = False) -> list[tf.Variable]:
        torso = [] if self.shares else _variables(self.torso, trainable)
        if self.core is not None and self.custom is None and not self.shares:  # else they are the torso's own
            torso += [variable for cell in self.core.cells for variable in cell.variables]
        return torso + _variables(self.head, trainable)

    @property
    def streams(self) -> list[Any]:
        """The layers of a head that is noisy, dueling or both: one, or those of the value and of the advantages."""
        last = None if self.head is None else self.head.layers[-1]
        if isinstance(last, networks.DuelingHead):
            return [last.value, last.advantage]
        return [last] if isinstance(last, networks.NoisyDense) else []

    @property
    def noise_size(self) -> int:
        """Normal numbers of which noisy layers draw their weights once; 0 where there is none of them."""
        return sum(layer.noise_size for layer in self.streams if isinstance(layer, networks.NoisyDense))

    @property
    def moving_variables(self) -> list[tf.Variable]:
        """What Keras layers learn of the batches that they see in training mode, such as moving means.

        Those are the weights that are not trained of layers that are.
        """
        if self.shares or not isinstance(self.torso, keras.Layer):
            return []
        return [
            variable.value
            for layer in self.torso._flatten_layers(recursive=True)
            if layer.trainable
            for variable in layer._non_trainable_variables
            if variable.value.dtype.is_floating
        ]

    def dense_layers(
        self, head: bool = True
    ) -> list[tuple[BatchRenormalization | None, tf.Variable, tf.Variable | None, str]] | None:
        """``(normalisation before it, kernel, bias, activation)`` of each layer, where all is a plain chain.

        That is one of Keras dense layers, with batch renormalisation before some of them; else None.

        Args:
            head: with those of the head, not of the torso alone.
        """
        if self.core is not None or not self.preprocess.is_flat:
            return None
        if self.custom and not spaces.is_leaf(self.preprocess.space):
            return None
        norm: BatchRenormalization | None = None
        found: list[tuple[BatchRenormalization | None, tf.Variable, tf.Variable | None, str]] = []
        for model in (self.torso, self.head if head else None):
            if model is None:
                continue
            if type(model) is not keras.Sequential:
                return None
            for layer in model.layers:
                if _is_plain_dense(layer):
                    bias = layer.bias.value if layer.use_bias else None
                    found.append((norm, layer.kernel.value, bias, networks.activation_name(layer.activation)))
                    norm = None
                elif type(layer) is BatchRenormalization and norm is None:
                    norm = layer
                elif type(layer) is not keras.layers.Identity:
                    return None
        if norm is not None:  # with no layer after it that could take it in
            return None
        if self.bounds:  # the tanh takes the place of the last activation, where that leaves everything as it is
            *rest, activation = found.pop()
            if activation != 'linear':
                return None
            found.append((*rest, 'tanh'))
        return found

    def recurrent_chain(self) -> list[recurrence.Cell | tuple[tf.Variable, tf.Variable | None, str]] | None:
        """The layers of a recurrent network but for `streams`, where all of these are a plain chain; else None.

        Each is a recurrent layer, or kernel, bias and activation of a dense one.
        """
        if self.core is None or not self.preprocess.is_flat or self.bounds:
            return None
        if self.custom and not spaces.is_leaf(self.preprocess.space):
            return None
        parts: list[Any] = []
        if self.custom is None:
            if type(self.torso) is not keras.Sequential:
                return None
            parts += self.torso.layers
        else:
            parts += recurrence.parts_of(self.torso) or []
        cells = {id(cell.layer): cell for cell in self.core.cells}
        if self.custom is None:
            parts += [cell.layer for cell in self.core.cells]
        if self.head is not None and not self.streams:
            parts += self.head.layers
        found: list[recurrence.Cell | tuple[tf.Variable, tf.Variable | None, str]] = []
        for layer in parts:
            if id(layer) in cells:
                found.append(cells[id(layer)])
            elif _is_plain_dense(layer):
                bias = layer.bias.value if layer.use_bias else None
                found.append((layer.kernel.value, bias, networks.activation_name(layer.activation)))
            elif type(layer) is not keras.layers.Identity:
                return None
        return found


def _is_plain_dense(layer: keras.layers.Layer) -> bool:
    """Whether it is a dense layer of a kernel and a bias of float32 alone, in whatever it multiplies them."""
    if type(layer) not in (keras.layers.Dense, Dense) or layer.dtype_policy.name not in networks.DTYPES:
        return False
    return not getattr(layer, 'lora_enabled', False)


def _variables(model: Any, trainable: bool = False) -> list[tf.Variable]:
    """The ``tf.Variable`` behind each weight of a Keras or TensorLayer model, a ``tf.Module`` or another callable."""
    names = ['trainable_variables', 'trainable_weights']
    if not trainable:
        # Keras counts the integer seeds of dropout among its variables, but not among its weights.
        names = [*(['weights'] if isinstance(model, keras.Layer) else []), 'variables', 'all_weights', *names]
    for name in names:
        if hasattr(model, name):
            return [v.value if isinstance(v, keras.Variable) else v for v in getattr(model, name)]
    return []


def build_network(
    entry: Any,
    label: str,
    preprocess: Preprocess,
    head: Head,
) -> Network:
    """The network of one entry of ``net_list``.

    Args:
        entry: a spec, a torso or a complete network.
        label: how messages name it: ``'net_list[0] (actor)'``.
        preprocess: of the observations.
        head: what it takes and what its output has to be.

    Raises:
        ValueError: the entry does not fit: which one, what it maps, what is needed.
    """
    name, action_size = label.partition('(')[2].rstrip(')'), head.action_size
    if isinstance(entry, dict):
        spec = networks.full_spec(entry, label)
        torso, call = networks.torso(preprocess.features, spec, action_size)
        paths = [item.path for item in preprocess.features]

        def call_torso(found: dict[str, tf.Tensor], action: tf.Tensor | None, training: bool) -> tf.Tensor:
            inputs = [found[path] for path in paths]
            return call(inputs if action is None else [*inputs, action], training)

        seeds = networks.SeedSequence(None if spec['seed'] is None else [spec['seed'], 1])
        width, core = _probe(preprocess, action_size, call_torso).shape[-1], None
        if spec['recurrent'] is not None:
            core = recurrence.Core([recurrence.Cell(recurrence.recurrent_layer(spec, width))])
            width = core.cells[0].units
        made = _head(head, width, spec['initializer'], seeds)
        mixed = spec['dtype'] == 'mixed_bfloat16' and networks.rounds(torso)
        if spec['dtype'] == 'mixed_bfloat16' and not mixed and _announces.get():
            log.warning(
                "%s: dtype='mixed_bfloat16' changes nothing, since it has no layer that is wide enough to gain by it.",
                label,
            )
        return Network(name, preprocess, torso, call_torso, made, wanted=head, mixed=mixed, core=core)
    if isinstance(entry, type):
        raise ValueError(f'{label} is the class {entry.__name__}: give an instance of it.')
    if not callable(entry):
        raise ValueError(
            f'{label} is a {type(entry).__name__}: give a dict such as dict(hidden=[64, 64]), or a network that can be '
            'called (Keras model, TensorLayer model, tf.Module).'
        )
    return _adapt(entry, label, name, preprocess, head)


def build_on(other: Network, label: str, head: Head, initial: str = 'glorot_uniform', seed: Any = None) -> Network:
    """A network that puts a head of its own on the torso of another one.

    Args:
        other: whose torso it is.
        label: how messages name it: ``'net_list[1] (critic)'``.
        head: what the output has to be.
        initial: initialiser of the head, where that names no gain.
        seed: of the head's weights.

    Raises:
        ValueError: the other network is complete, so that there is no torso to stand on.
    """
    if other.head is None:
        raise ValueError(
            f'{label} is to share the torso of {other.name}, which is a complete network: give a torso there, whose '
            'output is not yet the head.'
        )
    name = label.partition('(')[2].rstrip(')')
    made = _head(head, _encoded_zeros(other).shape[-1], initial, networks.SeedSequence(seed))
    return Network(
        name,
        other.preprocess,
        other.torso,
        other._call_torso,
        made,
        custom=other.custom,
        shares=True,
        wanted=head,
        mixed=other.mixed,
        core=other.core,
    )


def _adapt(entry: Any, label: str, name: str, preprocess: Preprocess, head: Head) -> Network:
    """A user's network: find how it is called, and attach a head where its output is not the head's."""
    needs, action_size = f'{head.meaning} ({head.units})', head.action_size
    sees = spaces.describe(preprocess.space)
    takes = sees + (f' and an action of {action_size}' if action_size else '')
    failures: list[str] = []
    _check_layers(entry, label)
    chain, core = recurrence.parts_of(entry), None
    if chain is not None:
        recurrence.check_layers(chain, label)
        before, core = recurrence.core_of(chain)
    ways, steps_agree = _ways_to_call(entry, preprocess, action_size), True
    if core is not None:  # the observation alone: a critic of an action too is not recurrent
        nested = preprocess.nested
        ways = [(lambda found, action, training: before(nested(found), training), action_size > 0)]
    for call_torso, joins_action in ways:
        try:
            if core is not None:
                recurrence.build(entry, _probe(preprocess, 0, lambda found, *_: nested(found)).shape[1:])
            with tf.GradientTape() as tape:
                output = _probe(preprocess, action_size, call_torso)
                if core is not None:
                    output, _ = core.step(output, tf.zeros([PROBES, core.state_size]))
            if core is not None:
                sequences = nested(_random_features(preprocess, PROBE_STEPS * PROBES))
                sequences = tf.reshape(sequences, [PROBE_STEPS, PROBES, *sequences.shape[1:]])
                error = PROBE_ERROR[_is_mixed(entry, output)]
                steps_agree = recurrence.steps_agree(entry, before, core, sequences, error)
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
        if not _variables(entry, trainable=True):
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
            if head.dueling and _announces.get():
                log.warning('%s is a complete network, so dueling=True changes nothing: give a torso for it.', label)
            if made.bounds and _announces.get():
                log.warning('%s gives numbers beyond [-1, 1], the range of an action: a tanh is put on them.', label)
            return made
        if _announces.get():
            log.info('%s gives %d numbers: a head for %s is attached.', label, width, needs)
        seeds = networks.SeedSequence(None)
        attached = _head(head, width + action_size * joins_action, 'glorot_uniform', seeds, hidden=joins_action)
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
                entry._clear_losses()  # lest tensors of one graph be met in another one
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


def _probe(
    preprocess: Preprocess, action_size: int, call_torso: Callable[..., Any], training: bool = False
) -> tf.Tensor:
    """The torso's output for a batch of zero observations (which builds a network that awaits one)."""
    found = {
        item.path: tf.zeros([PROBES, *item.shape], tf.int32 if item.kind == 'index' else tf.float32)
        for item in preprocess.features
    }
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        # Keras only warns where it matches inputs of another structure by position.
        warnings.filterwarnings('error', message='The structure of `inputs`')
        return call_torso(found, tf.zeros([PROBES, action_size]) if action_size else None, training)


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
        for layer in entry._flatten_layers():
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
    for variable in _variables(entry):
        if variable.dtype in (tf.bfloat16, tf.float16):
            raise ValueError(
                f'{label} has weights of {variable.dtype.name} ({variable.name!r}), in which small steps are lost: '
                "make its layers of dtype policy 'mixed_bfloat16', which keeps the weights in float32."
            )


def _is_mixed(entry: Any, output: tf.Tensor) -> bool:
    """Whether a user's network computes in bfloat16, as its layers or its output say."""
    layers = entry._flatten_layers() if isinstance(entry, keras.Layer) else ()
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
    listed = {id(variable) for trainable in (True, False) for variable in _variables(entry, trainable)}
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
            output = network._encode(features, action, False).numpy()
            if (np.abs(output) > 1.0).any():  # a number that is none says nothing: such weights are never reached
                return False
    finally:
        for variable, value in zip(weights, kept, strict=True):
            variable.assign(value)
    return True


def compiles_by_xla(network: Network) -> bool:
    """Whether XLA can compile a user's network, forward and backward; it is not run. Specs are known to be compiled."""
    if network.custom is None:
        return True

    def gradients() -> list[tf.Tensor | None]:
        with tf.GradientTape() as tape:
            output = _probe(network.preprocess, network.wanted.action_size, network._encode, training=True)
        network.penalties()
        return [x for x in tape.gradient(output, network.trainable_variables) if x is not None]

    try:
        tf.function(gradients, jit_compile=True, autograph=False).experimental_get_compiler_ir()(stage='hlo')
    except (ValueError, TypeError, tf.errors.OpError):
        log.info('%s has operations that XLA cannot compile: updates run as a plain graph.', network.name)
        return False
    return True


def penalized(loss: tf.Tensor, *trained: Network) -> tf.Tensor:
    """The loss with what the networks add to it that were just called in training mode; see `Network.penalties`."""
    found = [tf.cast(x, tf.float32) for network in trained for x in network.penalties()]
    return tf.add_n([loss, *found]) if found else loss


def _head(head: Head, width: int, initial: str, seeds: networks.SeedSequence, hidden: bool = False) -> keras.Sequential:
    """The head as a Keras model; ``hidden`` puts a layer before it, where an action joins an encoded image.

    It is of float32 whatever the torso computes in, and whatever Keras' global dtype policy is.
    """
    kernel = networks.initializer(
        'orthogonal' if head.gain is not None else initial, seeds(), 1.0 if head.gain is None else head.gain
    )
    dtype = 'float32'
    layers: list[Any] = [keras.Input((width,), dtype=dtype)]
    if hidden:
        joined = networks.initializer(initial, seeds())
        layers.append(Dense(256, 'relu', kernel_initializer=joined, dtype=dtype))

    def last(units: int, name: str) -> keras.layers.Layer:
        if head.sigma:
            return networks.NoisyDense(units, head.sigma, (seeds(), seeds()), dtype=dtype, name=name)
        return Dense(units, head.activation, kernel_initializer=kernel, dtype=dtype, name=name)

    if head.dueling:
        value, advantage = last(head.values, 'value'), last(head.units, 'advantage')
        layers.append(networks.DuelingHead(value, advantage, head.values, dtype=dtype, name='dueling'))
    else:
        layers.append(last(head.units, 'head'))
    return keras.Sequential(layers)


class StochasticPolicy:
    """A network whose output is completed to the parameters of the action's distribution.

    Where the Gaussian's log standard deviation is free (PPO), it is a variable of its own; an action mask sets the
    logits of forbidden actions to −1e9.

    With state-dependent exploration (Raffin et al. 2020, arXiv 2005.05719) the noise on an action is the features
    that the head is given times a matrix ``[L, n]`` of normal numbers, each with a standard deviation of its own, σ,
    which is the free one then. Of a matrix that is not known the action is Gaussian with the variance
    ``Σ_l features_l² σ_la²`` (their equation 9), and those are the parameters of the distribution. As in the authors'
    code no gradient reaches the features by way of the variance, and 1e-6 is added to it.

    Args:
        network: gives the means and logits, or all parameters.
        adaptor: the action adaptor.
        log_std_init: initial value of a free log standard deviation.
        sde: with state-dependent exploration.

    Attributes:
        log_std: the free log standard deviation, ``[n]``; with state-dependent exploration log σ, ``[L, n]``.

    Raises:
        ValueError: state-dependent exploration of actions that are no ``Box``, or of a network that is recurrent or has
            no head whose features could be known.
    """

    def __init__(self, network: Network, adaptor: ActionAdaptor, log_std_init: float = 0.0, sde: bool = False) -> None:
        self.network = network
        self.adaptor = adaptor
        self.sde = sde
        self.mask_path = mask_path(network.preprocess.space) if adaptor.maskable else None
        width = network.from_torso(_encoded_zeros(network)).shape[-1]
        self.log_std: tf.Variable | None = None
        if sde:
            self._check_sde()
            shape = [_encoded_zeros(network).shape[-1], width]
            self.log_std = tf.Variable(tf.fill(shape, float(log_std_init)), name='log_std')
            return
        gaussians = sum(part.size for part in adaptor.parts if 'gaussian' in part.kind)
        if width == adaptor.param_size:
            if gaussians and log_std_init and _announces.get():
                log.warning(
                    '%s gives the log standard deviations itself, so log_std_init=%g changes nothing.',
                    network.name,
                    log_std_init,
                )
        else:
            self.log_std = tf.Variable(tf.fill([gaussians], float(log_std_init)), name='log_std')

    def _check_sde(self) -> None:
        name, network = self.network.name, self.network
        if not spaces.is_leaf(self.adaptor.space) or 'gaussian' not in self.adaptor.parts[0].kind:
            raise ValueError(
                f'use_sde=True is noise on the actions of a Box, but these are {spaces.describe(self.adaptor.space)}: '
                'leave it out.'
            )
        if network.state_size:
            raise ValueError(
                f'{name} is recurrent, whose exploration cannot be state-dependent here: give a network that is not '
                'recurrent, or leave out use_sde.'
            )
        if network.head is None:
            raise ValueError(
                f'{name} is a complete network, but use_sde=True makes noise of the features that a head is given: '
                'give a torso, without its last layer, or a spec.'
            )

    def __call__(self, obs: spaces.Flat, training: bool = False) -> tf.Tensor:
        """Parameters ``[B, param_size]`` for flat observations ``[B, …]``; see `Network` for ``training``."""
        if not self.sde:
            return self.complete(self.network(obs, training=training), obs)
        encoded = self.network.encode(obs, training=training)
        return self.complete(self.network.from_torso(encoded), obs, encoded)

    def perturbed(self, obs: spaces.Flat, noise: tf.Tensor) -> tf.Tensor:
        """With state-dependent exploration, in inference mode: parameters, and the noise on the action ``[B, 3 n]``.

        Args:
            obs: flat observations ``[B, …]``.
            noise: standard normal numbers ``[B, L n]``, a matrix of which for each row is multiplied by σ.
        """
        assert self.log_std is not None  # that is σ
        encoded = self.network.encode(obs)
        params = self.complete(self.network.from_torso(encoded), obs, encoded)
        matrix = tf.reshape(noise, [-1, *self.log_std.shape]) * tf.exp(self.log_std)
        return tf.concat([params, tf.einsum('bl,bln->bn', encoded, matrix)], -1)

    def step(self, obs: spaces.Flat, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Of a recurrent network: parameters ``[N, param_size]`` and the state after the step; see `Network.step`."""
        output, after = self.network.step(obs, state)
        return self.complete(output, obs), after

    def complete(self, output: tf.Tensor, obs: spaces.Flat, encoded: tf.Tensor | None = None) -> tf.Tensor:
        """The distribution's parameters from the network's output; ``encoded`` is what its head was given."""
        if self.sde:
            assert encoded is not None and self.log_std is not None
            variance = tf.square(tf.stop_gradient(encoded)) @ tf.exp(2.0 * self.log_std)
            return tf.concat([output, 0.5 * tf.math.log(variance + SDE_EPSILON)], -1)
        if self.mask_path is not None:
            return masked(output, obs[self.mask_path], self.adaptor.parts[0].counts)
        if self.log_std is None:
            bounds = self.adaptor.param_bounds
            return output if bounds is None else tf.clip_by_value(output, *bounds)
        pieces, offset, drawn = [], 0, 0
        for part in self.adaptor.parts:
            piece = output[:, offset : offset + part.outputs]
            offset += part.outputs
            pieces.append(piece)
            if 'gaussian' in part.kind:
                pieces.append(tf.broadcast_to(self.log_std[drawn : drawn + part.size], tf.shape(piece)))
                drawn += part.size
        return pieces[0] if len(pieces) == 1 else tf.concat(pieces, -1)

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """The network's weights and the free log standard deviation."""
        return self.network.trainable_variables + ([] if self.log_std is None else [self.log_std])


def _encoded_zeros(network: Network) -> tf.Tensor:
    return _probe(network.preprocess, 0, network._encode)
