"""Recurrent layers as functions of a state that the caller holds.

A Keras layer keeps the state of a sequence to itself, or forgets it. Here the state is given and returned: one flat
array ``[N, S]`` with the states of all recurrent layers of a network side by side. An LSTM's state is its output h,
then its cell c. So the same weights act one step at a time and learn from whole sequences, in which episodes begin.

Hochreiter and Schmidhuber 1997, *Long Short-Term Memory*; Cho et al. 2014 (arXiv 1406.1078) for the GRU. The equations
and the order of the gates are Keras'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from zoo.common.networks import pieces
from zoo.common.networks.spec import recurrent_units
from zoo.common.tools import keras_private
from zoo.common.tools.errors import InvalidValue, a_type

#: Recurrent layers and their names in a spec; only users' networks may have a ``SimpleRNN``.
KINDS: dict[type[keras.layers.Layer], str] = {
    keras.layers.LSTM: 'lstm',
    keras.layers.GRU: 'gru',
    keras.layers.SimpleRNN: 'simple',
}


def recurrent_layer(spec: dict[str, Any], width: int) -> keras.layers.Layer:
    """The recurrent layer of a full spec, built for inputs ``[…, width]``, in float32 whatever the torso's dtype.

    Initial weights are Keras': an orthogonal recurrent kernel, and 1 for the bias of an LSTM's forget gate.
    """
    seeds = pieces.SeedSequence(None if spec['seed'] is None else [spec['seed'], 3])
    kind = next(kind for kind, name in KINDS.items() if name == spec['recurrent'])
    layer = kind(
        recurrent_units(spec),
        kernel_initializer=pieces.initializer('glorot_uniform', seeds()),
        recurrent_initializer=pieces.initializer('orthogonal', seeds(), 1.0),
        dtype='float32',
        name='recurrent',
    )
    layer.build((None, None, width))
    return layer


def parts_of(entry: Any) -> list[keras.layers.Layer] | None:
    """The layers of a user's network that is recurrent over environment steps; None for any other network.

    Such a network is a chain of Keras layers with an LSTM, a GRU or a SimpleRNN, and takes sequences ``[batch, time,
    …]``: a ``keras.Sequential``, a functional model without branches, or such a layer alone. A chain that makes a time
    axis within the observation (``Reshape``) is not one.
    """
    chain = _chain(entry)
    if chain is None:
        return None
    first = next((i for i, layer in enumerate(chain) if _is_recurrent(layer)), None)
    makes_time = keras.layers.Reshape | keras.layers.RepeatVector
    return None if first is None or any(isinstance(x, makes_time) for x in chain[:first]) else chain


def _chain(entry: Any) -> list[keras.layers.Layer] | None:
    if isinstance(entry, keras.Sequential):
        found = []
        for layer in entry.layers:
            found += (_chain(layer) or [layer]) if isinstance(layer, keras.Sequential) else [layer]
        return found
    if type(entry) in KINDS or _is_recurrent(entry):
        return [entry]
    if isinstance(entry, keras.Model) and getattr(entry, 'operations', None) is not None:  # a functional one
        layers = [layer for layer in entry.layers if not isinstance(layer, keras.layers.InputLayer)]
        if len(entry.inputs) != 1 or len(entry.outputs) != 1 or len(entry.operations) != len(layers) + 1:
            return None
        nodes = [keras_private.calls_of(layer) for layer in layers]
        return layers if all(len(each) == 1 and len(each[0].parent_nodes) == 1 for each in nodes) else None
    return None


def _is_recurrent(layer: Any) -> bool:
    return isinstance(layer, keras.layers.RNN | keras.layers.Bidirectional)


def check_layers(chain: Sequence[keras.layers.Layer], label: str) -> None:
    """Refuse recurrent layers that cannot be run one step at a time, by a ValueError that begins with ``label``."""
    for i, layer in enumerate(chain):
        wrong = ''
        if isinstance(layer, keras.layers.Masking):
            wrong = 'hides steps, but zoo knows without it where episodes begin and end: leave it out'
        elif not _is_recurrent(layer):
            continue
        elif type(layer) not in KINDS:
            wrong = 'cannot be stepped through: use keras.layers.LSTM, GRU or SimpleRNN'
        elif layer.activity_regularizer is not None:
            wrong = 'has an activity regularizer, which zoo does not apply: put a layer ActivityRegularization after it'
        elif layer.dropout or layer.recurrent_dropout:
            wrong = 'drops out between steps, which zoo does not do: put a keras.layers.Dropout before or after it'
        elif layer.go_backwards or layer.stateful or layer.return_state:
            wrong = 'goes backwards, or keeps or gives its state, which zoo keeps for it: leave that out'
        elif layer.compute_dtype != 'float32':
            wrong = f'computes in {layer.compute_dtype}: make it of float32, which a state needs over many steps'
        elif not layer.return_sequences and any(_is_recurrent(other) for other in chain[i + 1 :]):
            wrong = 'has a recurrent layer after it: make it with return_sequences=True'
        if wrong:
            raise InvalidValue(f'{label} has the layer {layer.name!r}, {a_type(layer)}, which {wrong}.')


class Cell:
    """One recurrent layer: a built one of a type in :data:`KINDS`.

    Attributes:
        units: size of its output, which is the first part of its state.
        state_size: entries of its state.
        activation, gate: names of its activations; empty for a user's own function.
        reset_after: see ``keras.layers.GRU``.
    """

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.kind = KINDS[type(layer)]
        self.units = int(layer.units)
        self.state_size = (2 if self.kind == 'lstm' else 1) * self.units
        self.reset_after = self.kind == 'gru' and bool(layer.reset_after)
        self.activation = pieces.activation_name(layer.activation)
        self.gate = 'linear' if self.kind == 'simple' else pieces.activation_name(layer.recurrent_activation)

    @property
    def variables(self) -> list[tf.Variable]:
        """Kernel, recurrent kernel, and the bias if there is one."""
        cell = self.layer.cell
        return [cell.kernel.value, cell.recurrent_kernel.value, *([cell.bias.value] if self.layer.use_bias else [])]

    def project(self, x: tf.Tensor) -> tf.Tensor:
        """The inputs' part of every step, ``[…, gates · units]`` for ``[…, width]``: one product for all steps."""
        kernel, _, *biases = map(tf.convert_to_tensor, self.variables)
        projected = tf.matmul(x, kernel)
        return projected + (biases[0][0] if self.reset_after else biases[0]) if biases else projected

    def stepper(self) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        """The function of (output of `project` for a step ``[N, …]``, state ``[N, S]``) that gives the state after it.

        It reads the weights once, and not at every step of a loop.
        """
        _, recurrent, *biases = map(tf.convert_to_tensor, self.variables)
        units, act = self.units, self.layer.activation

        def lstm(x: tf.Tensor, state: tf.Tensor) -> tf.Tensor:
            h, c = state[:, :units], state[:, units:]
            i, f, candidate, o = tf.split(x + tf.matmul(h, recurrent), 4, 1)
            gate = self.layer.recurrent_activation
            c = gate(f) * c + gate(i) * act(candidate)
            return tf.concat([gate(o) * act(c), c], 1)

        def gru(x: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
            gate = self.layer.recurrent_activation
            if self.reset_after:
                inner = tf.matmul(h, recurrent)
                z, r, candidate = tf.split(inner + biases[0][1] if biases else inner, 3, 1)
                xz, xr, xh = tf.split(x, 3, 1)
                z, r = gate(xz + z), gate(xr + r)
                candidate = act(xh + r * candidate)
            else:
                xz, xr, xh = tf.split(x, 3, 1)
                z, r = tf.split(gate(tf.concat([xz, xr], 1) + tf.matmul(h, recurrent[:, : 2 * units])), 2, 1)
                candidate = act(xh + tf.matmul(r * h, recurrent[:, 2 * units :]))
            return z * h + (1.0 - z) * candidate

        def simple(x: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
            return act(x + tf.matmul(h, recurrent))

        return {'lstm': lstm, 'gru': gru, 'simple': simple}[self.kind]

    def unroll(self, x: tf.Tensor, state: tf.Tensor, begins: tf.Tensor) -> tf.Tensor:
        """States ``[T, N, S]`` after each step of inputs ``[T, N, width]``; see :meth:`Core.sequence`."""
        steps = int(x.shape[0])
        step, size = self.stepper(), [x.shape[1], self.state_size]
        inputs = tf.TensorArray(tf.float32, steps, element_shape=[x.shape[1], None]).unstack(self.project(x))
        fresh = tf.TensorArray(tf.bool, steps, element_shape=[x.shape[1]]).unstack(begins)
        states = tf.TensorArray(tf.float32, steps, element_shape=size)

        def one(t: tf.Tensor, state: tf.Tensor, states: tf.TensorArray) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
            state = step(inputs.read(t), tf.where(fresh.read(t)[:, None], 0.0, state))
            return t + 1, state, states.write(t, state)

        # The gradient of a loop compiles by XLA where it is known how long it can be.
        loop = tf.while_loop(
            lambda t, *_: t < steps, one, (0, state, states), parallel_iterations=1, maximum_iterations=steps
        )
        return loop[2].stack()


class Core:
    """The recurrent part of a network: its recurrent layers, and the layers between and after them.

    Args:
        stages: each is a :class:`Cell`, or a function of rows ``[B, …]`` and training mode.
    """

    def __init__(self, stages: Sequence[Cell | Callable[[tf.Tensor, bool], tf.Tensor]]) -> None:
        self.stages = list(stages)
        self.cells = [stage for stage in stages if isinstance(stage, Cell)]
        self.state_size = sum(cell.state_size for cell in self.cells)

    def step(self, x: tf.Tensor, state: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Output ``[N, width]`` and the state after one step ``[N, S]``, from rows ``[N, …]`` and a state."""
        after, offset = [], 0
        for stage in self.stages:
            if isinstance(stage, Cell):
                own = state[:, offset : offset + stage.state_size]
                offset += stage.state_size
                after.append(stage.stepper()(stage.project(x), own))
                x = after[-1][:, : stage.units]
            else:
                x = stage(x, training)
        return x, after[0] if len(after) == 1 else tf.concat(after, 1)

    def sequence(
        self, x: tf.Tensor, state: tf.Tensor, begins: tf.Tensor, training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Outputs ``[T · N, width]`` and the states after each step ``[T, N, S]`` of ``T`` steps of ``N`` copies.

        Args:
            x: float32 rows ``[T · N, …]``, time-major.
            state: float32 ``[N, S]``, before the first step.
            begins: bool ``[T, N]``; where True, the state is zero before that step.
        """
        steps, copies = begins.shape
        after, offset = [], 0
        for stage in self.stages:
            if isinstance(stage, Cell):
                own = state[:, offset : offset + stage.state_size]
                offset += stage.state_size
                after.append(stage.unroll(tf.reshape(x, [steps, copies, x.shape[-1]]), own, begins))
                x = tf.reshape(after[-1][:, :, : stage.units], [steps * copies, stage.units])
            else:
                x = stage(x, training)
        return x, after[0] if len(after) == 1 else tf.concat(after, 2)


def core_of(chain: Sequence[Any]) -> tuple[Callable[[tf.Tensor, bool], tf.Tensor], Core]:
    """A user's chain in two pieces: the layers before its first recurrent layer, a function of rows, and the rest.

    Layers that are not recurrent are called with a time axis of length 1, if they have one in the chain.
    """
    cells = [i for i, layer in enumerate(chain) if type(layer) in KINDS]
    first, last = cells[0], cells[-1]

    def before(x: tf.Tensor, training: bool) -> tf.Tensor:
        for layer in chain[:first]:
            x = _rows(layer, True)(x, training)
        return x

    stages = [
        Cell(layer) if i in cells else _rows(layer, i < last or chain[last].return_sequences)
        for i, layer in enumerate(chain[first:], first)
    ]
    return before, Core(stages)


def _rows(layer: Any, has_time: bool) -> Callable[[tf.Tensor, bool], tf.Tensor]:
    takes = keras_private.takes_training(layer)

    def call(x: tf.Tensor, training: bool) -> tf.Tensor:
        x = x[:, None] if has_time else x
        x = layer(x, training=training) if takes else layer(x)
        if not training:
            keras_private.clear_losses(layer)
        x = tf.cast(x, tf.float32) if x.dtype == tf.bfloat16 else x
        return x[:, 0] if has_time else x

    return call
