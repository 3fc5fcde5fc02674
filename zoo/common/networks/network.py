"""A network for an algorithm: preprocessing, torso and head as one function of a flat observation."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

from zoo.common import spaces
from zoo.common.adaptors.observation import Preprocess
from zoo.common.networks import recurrent, remembered, spec
from zoo.common.networks.heads import Head
from zoo.common.networks.layers import dueling, noisy
from zoo.common.tools import keras_private
from zoo.common.tools.errors import InvalidValue

log = logging.getLogger('zoo')

#: Batch size of trial calls. Not 2: a tensor of two rows could be unpacked into an observation and an action.
PROBES = 3

#: Whether building a network may write log lines.
announces = contextvars.ContextVar('announces', default=True)


@contextlib.contextmanager
def unannounced() -> Iterator[None]:
    """Within this context, networks are built without log lines: they repeat networks that were announced before."""
    token = announces.set(False)
    try:
        yield
    finally:
        announces.reset(token)


@dataclasses.dataclass(eq=False, repr=False)
class Network:
    """Preprocessing, torso and head as one function of a flat observation.

    :func:`zoo.common.networks.build.build_network` makes it. The loss calls the networks that it trains in Keras'
    training mode: dropout drops, batch normalization takes the batch's moments and updates its statistics, and the
    model may add to the loss (`penalties`). Everything else uses inference mode: acting, targets, bootstrap values.

    Attributes:
        torso: the user's or the assembled network.
        head: the Keras model after the torso; None if the torso is complete.
        call_torso: calls the torso with features by path, the action or None, and training mode.
        custom: the user's class name; None for a spec.
        shares: whether another network owns the torso's weights.
        target: the network that computes the same from target weights, if there is one.
        wanted: what the network was built to take and give.
        columns: the part of the torso's output that is this network's, where the torso has an output for each of two
            networks; None: all of it.
        bounds: whether a tanh is put on the output, because it must be in [−1, 1] and a complete network exceeds that.
        mixed: whether the torso computes in bfloat16, as far as can be seen; its output is float32 in any case.
        core: the recurrent layers after the torso, and everything between and after them; None without any.
        state_size: entries of the recurrent state; 0 without recurrent layers.
    """

    name: str
    preprocess: Preprocess
    torso: Any
    call_torso: Callable[[dict[str, tf.Tensor], tf.Tensor | None, bool], tf.Tensor]
    head: keras.Model | None
    joins_action: bool = False
    custom: str | None = None
    shares: bool = False
    _: dataclasses.KW_ONLY
    wanted: Head
    mixed: bool = False
    core: recurrent.Core | None = None
    target: Network | None = None
    columns: slice | None = None
    bounds: bool = False

    def __post_init__(self) -> None:
        self.state_size = 0 if self.core is None else self.core.state_size
        self._trained = self._keras_trained()
        if self.mixed:
            spec.warn_where_slow()

    def __call__(
        self, obs: spaces.Flat, action: tf.Tensor | None = None, training: bool = False, noise: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Output ``[B, units]`` for flat observations ``[B, …]``, and actions ``[B, n]`` if this is a critic of both.

        A recurrent network takes observations for the first ones of an episode, unless they are
        :class:`zoo.common.networks.remembered.Remembered`. ``noise`` is for noisy layers, see `from_torso`.
        """
        if isinstance(obs, remembered.Remembered):
            return self._of_remembered(obs, action, training, noise)
        return self.from_torso(self.encode(obs, action, training), action, noise)

    def _of_remembered(
        self, seen: remembered.Remembered, action: tf.Tensor | None, training: bool, noise: tf.Tensor | None
    ) -> tf.Tensor:
        if self.core is None:
            return self(seen.rows(), action, training, noise)
        takes_action = action is not None and not self.joins_action
        encoded, before = seen.run(self, takes_action, training)
        if takes_action:  # they may differ from the actions taken: repeat the step, from the state before it
            x = self.call_torso(self.preprocess(seen.rows()), action, training)
            encoded, _ = self.core.step(x, before, training)
        return self.from_torso(encoded, action, noise)

    def encode(self, obs: spaces.Flat, action: tf.Tensor | None = None, training: bool = False) -> tf.Tensor:
        """The torso's output ``[B, width]``; for a recurrent network, after the first step of an episode."""
        return self.encode_features(self.preprocess(obs), action, training)

    def encode_features(self, found: dict[str, tf.Tensor], action: tf.Tensor | None, training: bool) -> tf.Tensor:
        """`encode` for preprocessed observations, by path."""
        x = self.call_torso(found, action, training)
        if self.core is None:
            return x
        return self.core.step(x, tf.zeros([tf.shape(x)[0], self.state_size]), training)[0]

    def step(self, obs: spaces.Flat, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Output ``[N, units]`` and the state after one step ``[N, S]`` of a recurrent network, in inference mode.

        ``state`` is float32 ``[N, S]``, before the step; zeros where an episode begins.
        """
        assert self.core is not None  # only a recurrent network has a state
        x, after = self.core.step(self.call_torso(self.preprocess(obs), None, False), state)
        return self.from_torso(x), after

    def encode_sequence(
        self,
        obs: spaces.Flat,
        state: tf.Tensor,
        begins: tf.Tensor,
        training: bool = False,
        action: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The head's inputs ``[T · N, width]`` and the states after each step ``[T, N, S]`` of a recurrent network.

        Args:
            obs: flat observations ``[T, N, …]``, time-major.
            state: float32 ``[N, S]``, before the first step.
            begins: bool ``[T, N]``: where True, an episode begins and the state is zero before that step.
            action: ``[T, N, n]``, if the torso takes actions too.
        """
        assert self.core is not None  # only a recurrent network has a state
        rows = spaces.tree_map(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), obs)
        action = None if action is None else tf.reshape(action, [-1, action.shape[-1]])
        x = self.call_torso(self.preprocess(rows), action, training)
        return self.core.sequence(x, state, begins, training)

    def from_torso(self, x: tf.Tensor, action: tf.Tensor | None = None, noise: tf.Tensor | None = None) -> tf.Tensor:
        """The head's output for the torso's output, and for the action if it joins there.

        ``noise`` is normal numbers for the weights of noisy layers: ``[1, noise_size]``, one draw for all rows, or
        ``[B, noise_size]``, one for each; None takes the mean weights.
        """
        if self.head is None:
            x = x if self.columns is None else x[:, self.columns]
            return tf.tanh(x) if self.bounds else x
        if noise is not None:
            return self.head.layers[-1](x, noise)  # a noisy head has no other layer
        return self.head(tf.concat([x, action], -1) if self.joins_action else x)

    @contextlib.contextmanager
    def in_float32(self) -> Iterator[None]:
        """Within this context, traced graphs compute in float32 where Keras' dtype policies say bfloat16."""
        layers = keras_private.flattened(self.torso) if isinstance(self.torso, keras.Layer) else []
        kept = [(layer, layer.dtype_policy) for layer in layers if layer.compute_dtype == 'bfloat16']
        try:
            for layer, _ in kept:
                layer.dtype_policy = 'float32'
            yield
        finally:
            for layer, policy in kept:
                layer.dtype_policy = policy

    @property
    def _own_model(self) -> keras.Layer | None:
        """The user's Keras model, if this network has one and owns its weights."""
        owned = self.custom is not None and not self.shares and isinstance(self.torso, keras.Layer)
        return self.torso if owned else None

    def penalties(self) -> list[tf.Tensor]:
        """The terms that a user's Keras model adds to the loss, by ``add_loss`` and regularizers; it forgets them.

        To be called once after each call in training mode, in the same graph.
        """
        if self._own_model is None:
            return []
        found = list(self._own_model.losses)
        keras_private.clear_losses(self._own_model)
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
        """The states of Keras' random number generators, such as dropout's."""
        model = self._own_model
        # Its other variables that are no weights belong to metrics.
        return [] if model is None else [v.value for v in model.variables if v.name == 'seed_generator_state']

    @property
    def constraints(self) -> list[tuple[tf.Variable, Callable[[tf.Tensor], tf.Tensor]]]:
        """The weights that Keras constrains, each with the function that gives its value after a step."""
        trained = [] if self._own_model is None else self._own_model.trainable_variables
        return [(v.value, v.constraint) for v in trained if v.constraint is not None]

    def check_trained(self) -> None:
        """Refuse Keras layers that were frozen or unfrozen after this was made; its optimizer cannot follow.

        Raises:
            ValueError: one sentence that names a weight.
        """
        found = self._keras_trained()
        for one, other, what in ((self._trained, found, 'frozen'), (found, self._trained, 'unfrozen')):
            for key in one.keys() - other.keys():
                raise InvalidValue(
                    f'{one[key]!r} of {self.name} was {what} after the agent was made, whose optimizer does not follow '
                    'that: set trainable before the agent is made.'
                )

    def _keras_trained(self) -> dict[int, str]:
        """By identity, the names of the weights that a user's Keras model trains."""
        return {} if self._own_model is None else {id(v): v.path for v in self._own_model.trainable_variables}

    def _owned(self, trainable: bool = False) -> list[tf.Variable]:
        torso = [] if self.shares else variables_of(self.torso, trainable)
        if self.core is not None and self.custom is None and not self.shares:  # a custom torso has them
            torso += [variable for cell in self.core.cells for variable in cell.variables]
        return torso + variables_of(self.head, trainable)

    @property
    def streams(self) -> list[Any]:
        """The layers of a noisy or dueling head: one, or one for the value and one for the advantages."""
        last = None if self.head is None else self.head.layers[-1]
        if isinstance(last, dueling.DuelingHead):
            return [last.value, last.advantage]
        return [last] if isinstance(last, noisy.NoisyDense) else []

    @property
    def noise_size(self) -> int:
        """Normal numbers for one draw of the weights of all noisy layers; 0 if there are none."""
        return sum(layer.noise_size for layer in self.streams if isinstance(layer, noisy.NoisyDense))

    @property
    def moving_variables(self) -> list[tf.Variable]:
        """What Keras layers learn from batches, such as moving means: untrained weights of layers not frozen."""
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


def keras_variables(network: Network, variables: Iterable[tf.Variable]) -> list[keras.Variable] | None:
    """Return Keras' variable of each of the network's weights; None if a weight has none, as in TensorLayer."""
    models = [model for model in (network.torso, network.head) if isinstance(model, keras.Layer)]
    known = {id(weight.value): weight for model in models for weight in model.weights}
    keys = [id(variable) for variable in variables]
    return [known[key] for key in keys] if known.keys() >= set(keys) else None


def penalized(loss: tf.Tensor, *trained: Network) -> tf.Tensor:
    """The loss plus the `Network.penalties` of networks that were just called in training mode."""
    found = [tf.cast(x, tf.float32) for network in trained for x in network.penalties()]
    return tf.add_n([loss, *found]) if found else loss


def probe(
    preprocess: Preprocess, action_size: int, call_torso: Callable[..., Any], training: bool = False
) -> tf.Tensor:
    """The torso's output for a batch of zero observations; the call builds a network that is not built yet."""
    found = {
        item.path: tf.zeros([PROBES, *item.shape], tf.int32 if item.kind == 'index' else tf.float32)
        for item in preprocess.features
    }
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        # Keras only warns where it matches inputs of another structure by position.
        warnings.filterwarnings('error', message='The structure of `inputs`')
        return call_torso(found, tf.zeros([PROBES, action_size]) if action_size else None, training)


def encoded_width(network: Network) -> int:
    """The width of what the head is given."""
    return int(probe(network.preprocess, 0, network.encode_features).shape[-1])


def compiles_by_xla(network: Network) -> bool:
    """Whether XLA can compile a network, forward and backward, without running it; it can compile every spec."""
    if network.custom is None:
        return True

    def gradients() -> list[tf.Tensor | None]:
        with tf.GradientTape() as tape:
            output = probe(network.preprocess, network.wanted.action_size, network.encode_features, training=True)
        network.penalties()
        return [x for x in tape.gradient(output, network.trainable_variables) if x is not None]

    try:
        tf.function(gradients, jit_compile=True, autograph=False).experimental_get_compiler_ir()(stage='hlo')
    except (ValueError, TypeError, tf.errors.OpError):
        log.info('%s has operations that XLA cannot compile: updates run as a plain graph.', network.name)
        return False
    return True
