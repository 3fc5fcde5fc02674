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
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from zoo.common import spaces
from zoo.common.adaptors.observation import Preprocess
from zoo.common.networks import recurrent, remembered, spec
from zoo.common.networks.heads import Head
from zoo.common.networks.layers import dueling, noisy
from zoo.common.tools import keras_private

log = logging.getLogger('zoo')

#: Batch size of the trial calls. Not 2, lest a tensor be unpacked into an observation and an action.
PROBES = 3

announces = contextvars.ContextVar('announces', default=True)


@contextlib.contextmanager
def unannounced() -> Iterator[None]:
    """Build networks that are second ones of their kind, without the log lines that the first have had."""
    token = announces.set(False)
    try:
        yield
    finally:
        announces.reset(token)


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
        core: recurrent.Core | None = None,
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
            spec.warn_where_slow()

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
        :class:`zoo.common.networks.remembered.Remembered`.
        """
        if isinstance(obs, remembered.Remembered):
            return self._of_remembered(obs, action, training, noise)
        return self.from_torso(self.encode(obs, action, training), action, noise)

    def _of_remembered(
        self, seen: remembered.Remembered, action: tf.Tensor | None, training: bool, noise: tf.Tensor | None
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
        layers = keras_private.flattened(self.torso) if isinstance(self.torso, keras.Layer) else []
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
        keras_private.clear_losses(self.torso)
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
        torso = [] if self.shares else variables_of(self.torso, trainable)
        if self.core is not None and self.custom is None and not self.shares:  # else they are the torso's own
            torso += [variable for cell in self.core.cells for variable in cell.variables]
        return torso + variables_of(self.head, trainable)

    @property
    def streams(self) -> list[Any]:
        """The layers of a head that is noisy, dueling or both: one, or those of the value and of the advantages."""
        last = None if self.head is None else self.head.layers[-1]
        if isinstance(last, dueling.DuelingHead):
            return [last.value, last.advantage]
        return [last] if isinstance(last, noisy.NoisyDense) else []

    @property
    def noise_size(self) -> int:
        """Normal numbers of which noisy layers draw their weights once; 0 where there is none of them."""
        return sum(layer.noise_size for layer in self.streams if isinstance(layer, noisy.NoisyDense))

    @property
    def moving_variables(self) -> list[tf.Variable]:
        """What Keras layers learn of the batches that they see in training mode, such as moving means.

        Those are the weights that are not trained of layers that are.
        """
        if self.shares or not isinstance(self.torso, keras.Layer):
            return []
        return [
            variable.value
            for layer in keras_private.flattened(self.torso)
            if layer.trainable
            for variable in keras_private.own_untrained(layer)
            if variable.value.dtype.is_floating
        ]


def variables_of(model: Any, trainable: bool = False) -> list[tf.Variable]:
    """The ``tf.Variable`` behind each weight of a Keras or TensorLayer model, a ``tf.Module`` or another callable."""
    names = ['trainable_variables', 'trainable_weights']
    if not trainable:
        # Keras counts the integer seeds of dropout among its variables, but not among its weights.
        names = [*(['weights'] if isinstance(model, keras.Layer) else []), 'variables', 'all_weights', *names]
    for name in names:
        if hasattr(model, name):
            return [v.value if isinstance(v, keras.Variable) else v for v in getattr(model, name)]
    return []


def probe(
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


def compiles_by_xla(network: Network) -> bool:
    """Whether XLA can compile a user's network, forward and backward; it is not run. Specs are known to be compiled."""
    if network.custom is None:
        return True

    def gradients() -> list[tf.Tensor | None]:
        with tf.GradientTape() as tape:
            output = probe(network.preprocess, network.wanted.action_size, network._encode, training=True)
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


def encoded_zeros(network: Network) -> tf.Tensor:
    return probe(network.preprocess, 0, network._encode)
