"""Acting: the forward pass, in NumPy where the network is a chain of dense layers, and how actions are drawn from it.

Elsewhere the forward pass is a compiled graph. One observation through a small network costs 6 µs in NumPy and 50 to
900 µs through TensorFlow, and an actor process that has a :class:`NumpyForward` needs no TensorFlow at all.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common import spaces
from zoo.common.adaptors.action import SDE_EPSILON, ActionAdaptor, masked
from zoo.common.adaptors.observation import Preprocess
from zoo.common.schedules import Linear, value_at

if TYPE_CHECKING:
    from zoo.common.replay import Sampling
    from zoo.common.types import Trajectories

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    'linear': lambda x: x,
    'tanh': lambda x: np.tanh(x, out=x),
    'relu': lambda x: np.maximum(x, 0.0, out=x),
    'sigmoid': lambda x: 0.5 + 0.5 * np.tanh(0.5 * x),
    'elu': lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    'silu': lambda x: x * (0.5 + 0.5 * np.tanh(0.5 * x)),
    'softplus': lambda x: np.logaddexp(x, 0.0),
    'softsign': lambda x: x / (1.0 + np.abs(x)),
    'leaky_relu': lambda x: np.where(x > 0, x, 0.2 * x),
}


#: Numbers of observations with a graph of their own, in which convolutions are a fifth faster. All others share one,
#: since compiling another for every batch that ``predict`` may see would cost seconds.
FIXED_GRAPHS = 2


class Means:
    """The value of each action in what a network gives: the mean of its returns' distribution.

    Args:
        count: numbers for each action, side by side: its value where that is 1.
        support: ``[count]``, the atoms, of whose probabilities the numbers are the logits; None: they are quantiles.
    """

    def __init__(self, count: int = 1, support: np.ndarray | None = None) -> None:
        self.count = count
        self.support = support

    def __call__(self, output: Any) -> Any:
        """Values ``[N, actions]`` for outputs float32 ``[N, actions · count]``, an array or a tensor."""
        if self.count == 1:
            return output
        if not isinstance(output, np.ndarray):
            return self._of_tensor(output)
        x = output.reshape(len(output), -1, self.count)
        if self.support is None:
            return x.mean(-1)
        weights = np.exp(x - x.max(-1, keepdims=True))
        return weights @ self.support / weights.sum(-1)

    def _of_tensor(self, output: Any) -> Any:
        import tensorflow as tf

        x = tf.reshape(output, [-1, output.shape[-1] // self.count, self.count])
        return tf.reduce_mean(x, -1) if self.support is None else tf.reduce_sum(tf.nn.softmax(x) * self.support, -1)


class NumpyForward:
    """Dense layers over a flat observation, equal to the Keras network to 1e-5. It can be pickled.

    They are a chain; the head may be noisy, or have a stream for the state's value and one for the advantages. Batch
    renormalisation, which is ``x · scale + shift`` in inference mode, is taken in by the dense layer after it.

    Args:
        preprocess: of the observations.
        layers: of each layer the shape of its kernel, whether it has a bias, and its activation, a key of
            ``ACTIVATIONS``.
        adaptor: for a policy, how its output is completed to the parameters of the distribution; None leaves it.
        mask_path: the observation's leaf that says which actions are allowed.
        log_std_size: length of the policy's free log standard deviation, or 0.
        streams: of each layer of a noisy or dueling head the shape of its kernel, and whether it is noisy.
        means: from the output to the value of each action; None leaves it.
        sde: whether exploration is state-dependent, see :class:`zoo.common.adaptors.policy.StochasticPolicy`; the log
            standard deviation is ``[L, n]`` then, and what is given the parameters and the noise, ``[N, 3 n]``.
        norms: ε of the batch renormalisation before a layer, by the layer's place in ``layers``.

    Attributes:
        packed: the vector that was unpacked last.
        weights: ``(kernel, bias)`` of each layer, float32, with the normalisation before it; those of ``streams`` come
            last.
        noise_weights: ``(kernel, bias)``, σ of each layer that is noisy.
        noise_size: normal numbers that one draw of noisy weights takes, or 0.
        log_std: the free log standard deviation, float32 ``[n]``.
    """

    def __init__(
        self,
        preprocess: Preprocess,
        layers: list[tuple[tuple[int, int], bool, str]],
        adaptor: ActionAdaptor | None = None,
        mask_path: str | None = None,
        log_std_size: int = 0,
        streams: Sequence[tuple[tuple[int, int], bool]] = (),
        means: Means | None = None,
        sde: bool = False,
        norms: Mapping[int, float] | None = None,
    ) -> None:
        self.preprocess = preprocess
        self.sde = sde
        self.norms = norms or {}
        self.layers = layers
        self.streams = streams
        self.means = means
        self.noise_weights: list[tuple[np.ndarray, np.ndarray]] = []
        self.noise_size = log_std_size if sde else sum(sum(shape) for shape, noisy in streams if noisy)
        self.packed = np.zeros(0, np.float32)
        self.weights: list[tuple[np.ndarray, np.ndarray | float]] = []
        self.adaptor = adaptor
        self._parts = [] if adaptor is None else adaptor.parts
        self.mask_path = mask_path
        self.log_std_size = log_std_size
        self.log_std: np.ndarray | None = None
        self._bounds = adaptor.param_bounds if adaptor is not None and not log_std_size else None

    def load(self, weights: dict[str, np.ndarray]) -> None:
        """Act with the weights and statistics that :meth:`Forward.weights` gave."""
        self.unpack(weights['packed'])
        _restore(self.preprocess, weights)

    def unpack(self, vector: np.ndarray) -> None:
        """Take the weights from one float32 vector: see :meth:`Forward.pack`."""
        self.packed = vector
        offset = 0

        def take(*shape: int) -> np.ndarray:
            nonlocal offset
            offset += math.prod(shape)
            return vector[offset - math.prod(shape) : offset].reshape(shape)

        shapes = [(shape, has_bias) for shape, has_bias, _ in self.layers] + [
            (shape, True) for shape, _ in self.streams
        ]
        kernels = [take(*shape) for shape, _ in shapes]
        biases = [take(shape[1]) if has_bias else 0.0 for shape, has_bias in shapes]
        self.weights = list(zip(kernels, biases, strict=True))
        if self.noise_size and not self.sde:
            self.noise_weights = [(take(*shape), take(shape[1])) for shape, _ in self.streams]
        if self.log_std_size:
            self.log_std = take(self.log_std_size)
        # Here and nowhere else: two graphs round the same product in ways of their own, and what acts after an update
        # must be bit for bit what acts after the same weights were read or loaded.
        for i, epsilon in self.norms.items():
            kernel, bias = self.weights[i]
            gamma, beta, mean, variance = take(4, len(kernel))
            scale = gamma / np.sqrt(variance + epsilon)
            self.weights[i] = scale[:, None] * kernel, (beta - mean * scale) @ kernel + bias

    def __call__(self, obs: spaces.Flat, noise: np.ndarray | None = None) -> np.ndarray:
        """Output ``[N, units]`` for flat observations ``[N, …]``; see :meth:`Forward.__call__`."""
        x = features = self.preprocess.numpy(obs)
        for (kernel, bias), (_, _, activation) in zip(self.weights[: len(self.layers)], self.layers, strict=True):
            features = x
            x = x @ kernel
            x += bias
            x = ACTIVATIONS[activation](x)
        if self.streams:
            x = self._head(x, noise)
        if self.means is not None:
            x = self.means(x)
        if self.mask_path is not None:
            return masked(x, obs[self.mask_path], self.adaptor.parts[0].counts if self.adaptor is not None else None)
        if self.sde:
            return self._with_sde(x, features, noise)
        if self.log_std is not None:
            return self._with_log_std(x, self.log_std)
        return x if self._bounds is None else np.clip(x, *self._bounds, out=x)

    def _with_sde(self, x: np.ndarray, features: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
        """Means, implied log standard deviations and noise; see `StochasticPolicy.perturbed`."""
        assert self.log_std is not None  # that is σ
        deviation = np.exp(self.log_std.reshape(features.shape[1], x.shape[1]))
        log_std = 0.5 * np.log(np.square(features) @ np.square(deviation) + np.float32(SDE_EPSILON))
        if noise is None:
            return np.concatenate([x, log_std, np.zeros_like(x)], -1)
        matrix = noise.reshape(-1, *deviation.shape) * deviation
        return np.concatenate([x, log_std, (features[:, None] @ matrix)[:, 0]], -1)

    def _head(self, x: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
        """A noisy or dueling head: see `zoo.common.networks.NoisyDense` and `DuelingHead`."""
        outputs = [x @ kernel + bias for kernel, bias in self.weights[len(self.layers) :]]
        if noise is not None:
            noise = np.sign(noise) * np.sqrt(np.abs(noise))
            offset, width = 0, x.shape[1]
            for output, (kernel, bias) in zip(outputs, self.noise_weights, strict=True):
                before, after = noise[:, offset : offset + width], noise[:, offset + width : offset + width + len(bias)]
                output += ((x * before) @ kernel + bias) * after
                offset += width + len(bias)
        if len(outputs) == 1:
            return outputs[0]
        value, advantage = outputs
        each = advantage.reshape(len(x), -1, value.shape[1])
        return (value[:, None] + each - each.mean(1, keepdims=True)).reshape(advantage.shape)

    def _with_log_std(self, x: np.ndarray, log_std: np.ndarray) -> np.ndarray:
        pieces, offset, drawn = [], 0, 0
        for part in self._parts:
            pieces.append(x[:, offset : offset + part.outputs])
            offset += part.outputs
            if 'gaussian' in part.kind:
                pieces.append(np.broadcast_to(log_std[drawn : drawn + part.size], pieces[-1].shape))
                drawn += part.size
        return np.concatenate(pieces, axis=-1)


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer of a :class:`NumpyRecurrent`.

    Attributes:
        kind: ``'dense'``, ``'lstm'``, ``'gru'`` or ``'simple'``.
        shapes: of its kernel, of its recurrent kernel if it is recurrent, and of its bias if it has one.
        activation, gate: keys of ``ACTIVATIONS``; the latter of the gates.
        reset_after: of a GRU: the reset gate acts on the product with the recurrent kernel, not on the state.
    """

    kind: str
    shapes: tuple[tuple[int, ...], ...]
    activation: str
    gate: str = 'linear'
    reset_after: bool = False

    @property
    def units(self) -> int:
        """Entries of its output."""
        return self.shapes[1][0] if self.kind != 'dense' else self.shapes[0][1]

    @property
    def state_size(self) -> int:
        """Entries of its state."""
        return {'dense': 0, 'lstm': 2 * self.units}.get(self.kind, self.units)


class NumpyRecurrent(NumpyForward):
    """Dense and recurrent layers over a flat observation, equal to the Keras network to 1e-5. It can be pickled.

    The equations are those of Keras; see :class:`zoo.common.recurrence.Cell`, which is the same for tensors.

    Args:
        preprocess, adaptor, mask_path, log_std_size, means: see :class:`NumpyForward`.
        chain: the layers in their order.
        streams: of each layer of a dueling head the shape of its kernel; it is not noisy.

    Attributes:
        state_size: entries of the recurrent state of all layers, side by side.
    """

    def __init__(
        self,
        preprocess: Preprocess,
        chain: list[Layer],
        adaptor: ActionAdaptor | None = None,
        mask_path: str | None = None,
        log_std_size: int = 0,
        streams: Sequence[tuple[int, int]] = (),
        means: Means | None = None,
    ) -> None:
        heads = [(shape, False) for shape in streams]
        super().__init__(preprocess, [], adaptor, mask_path, log_std_size, heads, means)
        self.chain = chain
        self.state_size = sum(layer.state_size for layer in chain)
        self._arrays: list[list[np.ndarray]] = []

    def unpack(self, vector: np.ndarray) -> None:
        """Take the weights from one float32 vector, layer by layer and then the log standard deviation."""
        self.packed = vector
        offset = 0

        def take(*shape: int) -> np.ndarray:
            nonlocal offset
            offset += math.prod(shape)
            return vector[offset - math.prod(shape) : offset].reshape(shape)

        self._arrays = [[take(*shape) for shape in layer.shapes] for layer in self.chain]
        self.weights = [(take(*shape), take(shape[1])) for shape, _ in self.streams]
        if self.log_std_size:
            self.log_std = vector[offset : offset + self.log_std_size]

    def __call__(self, obs: spaces.Flat, noise: np.ndarray | None = None) -> np.ndarray:
        """Output ``[N, units]`` for flat observations ``[N, …]``, each the first one of an episode."""
        return self.step(obs, np.zeros((spaces.count(obs), self.state_size), np.float32))[0]

    def step(self, obs: spaces.Flat, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Output ``[N, units]`` and the state after the step ``[N, S]``; see :meth:`Forward.step`."""
        x = self.preprocess.numpy(obs)
        after, offset = np.empty_like(state), 0
        for layer, arrays in zip(self.chain, self._arrays, strict=True):
            if layer.kind == 'dense':
                x = x @ arrays[0]
                if len(arrays) > 1:
                    x += arrays[1]
                x = ACTIVATIONS[layer.activation](x)
                continue
            own = slice(offset, offset + layer.state_size)
            offset += layer.state_size
            _STEPS[layer.kind](layer, arrays, x, state[:, own], after[:, own])
            x = after[:, own.start : own.start + layer.units]
        if self.streams:
            x = self._head(x, None)
        if self.means is not None:
            x = self.means(x)
        if self.mask_path is not None:
            counts = self.adaptor.parts[0].counts if self.adaptor is not None else None
            return masked(x, obs[self.mask_path], counts), after
        if self.log_std is not None:
            return self._with_log_std(x, self.log_std), after
        return x if self._bounds is None else np.clip(x, *self._bounds), after


def _lstm(layer: Layer, arrays: list[np.ndarray], x: np.ndarray, state: np.ndarray, after: np.ndarray) -> None:
    kernel, recurrent, *bias = arrays
    units, act, gate = layer.units, ACTIVATIONS[layer.activation], ACTIVATIONS[layer.gate]
    z = x @ kernel
    z += state[:, :units] @ recurrent
    if bias:
        z += bias[0]
    i, f = gate(z[:, :units]), gate(z[:, units : 2 * units])
    candidate, o = act(z[:, 2 * units : 3 * units]), gate(z[:, 3 * units :])
    c = f * state[:, units:] + i * candidate
    after[:, units:] = c
    after[:, :units] = o * act(c)


def _gru(layer: Layer, arrays: list[np.ndarray], x: np.ndarray, state: np.ndarray, after: np.ndarray) -> None:
    kernel, recurrent, *bias = arrays
    units, act, gate = layer.units, ACTIVATIONS[layer.activation], ACTIVATIONS[layer.gate]
    outer = x @ kernel
    if bias:
        outer += bias[0][0] if layer.reset_after else bias[0]
    if layer.reset_after:
        inner = state @ recurrent
        if bias:
            inner += bias[0][1]
        gates = gate(outer[:, : 2 * units] + inner[:, : 2 * units])
        candidate = act(outer[:, 2 * units :] + gates[:, units:] * inner[:, 2 * units :])
    else:
        gates = gate(outer[:, : 2 * units] + state @ recurrent[:, : 2 * units])
        candidate = act(outer[:, 2 * units :] + (gates[:, units:] * state) @ recurrent[:, 2 * units :])
    z = gates[:, :units]
    after[:] = z * state + (1.0 - z) * candidate


def _simple(layer: Layer, arrays: list[np.ndarray], x: np.ndarray, state: np.ndarray, after: np.ndarray) -> None:
    kernel, recurrent, *bias = arrays
    outer = x @ kernel + state @ recurrent
    after[:] = ACTIVATIONS[layer.activation](outer + bias[0] if bias else outer)


_STEPS = {'lstm': _lstm, 'gru': _gru, 'simple': _simple}


class Forward:
    """The forward pass of a network or policy for acting, kept up to date with its weights.

    Args:
        network: a :class:`zoo.common.adaptors.policy.Network`.
        policy: the :class:`zoo.common.adaptors.policy.StochasticPolicy` around it, if it is one.
        mask_path: the observation's mask leaf, where the output is one number per action.
        means: where it is more than one number per action, what makes it one.

    Attributes:
        noise_size: normal numbers that one draw of noisy weights takes, or 0.
        state_size: entries of the recurrent state; 0 where there is none.
        sde: whether exploration is state-dependent.

    Raises:
        ValueError: the mask has another number of entries than there are actions.
    """

    def __init__(
        self, network: Any, policy: Any = None, mask_path: str | None = None, means: Means | None = None
    ) -> None:
        self._network = network
        self._policy = policy
        self._means = Means() if means is None else means
        self.sde = policy is not None and policy.sde
        self.noise_size = int(np.prod(policy.log_std.shape)) if self.sde else network.noise_size
        self.state_size = network.state_size
        self._mask_path = policy.mask_path if policy is not None else mask_path
        if self._mask_path is not None:
            self._check_mask(self._mask_path)
        streams = network.streams
        layers = network.dense_layers(head=not streams)
        known = layers is not None and all(name in ACTIVATIONS for *_, name in layers)
        if known and self.sde and layers[-1][0] is not None:
            known = False  # a normalisation that is folded into the head leaves no features as they are
        self._layers = layers if known and (layers or streams) else None
        self._graphs: dict[int | None, Any] = {}
        self._step_graphs: dict[int | None, Any] = {}
        self.numpy: NumpyForward | None = None
        self._log_std = [] if policy is None or policy.log_std is None else [policy.log_std]
        chain = self._recurrent_chain()
        self._chain = [] if chain is None else chain[1]
        if chain is not None:
            size = sum(v.shape[0] for v in self._log_std)
            adaptor = None if policy is None else policy.adaptor
            heads = [tuple(x.kernel.shape) for x in streams]
            self.numpy = NumpyRecurrent(network.preprocess, chain[0], adaptor, self._mask_path, size, heads, means)
        if self._layers is not None:
            self.numpy = NumpyForward(
                network.preprocess,
                [(tuple(kernel.shape), bias is not None, name) for _, kernel, bias, name in self._layers],
                None if policy is None else policy.adaptor,
                self._mask_path,
                sum(int(np.prod(v.shape)) for v in self._log_std),
                [(tuple(x.kernel.shape), self.noise_size > 0) for x in streams],
                means,
                self.sde,
                {i: float(norm.epsilon) for i, (norm, *_) in enumerate(self._layers) if norm is not None},
            )
        self._handles = [variable.handle for variable in self._weights()]
        self.refresh()

    def _check_mask(self, path: str) -> None:
        space = self._network.preprocess.space
        entries = int(np.prod(spaces.shape_of(spaces.leaves(space)[path])))
        output = self._network(spaces.tree_map(self._tensor, spaces.zeros(space, (1,))))
        actions = output.shape[-1] // self._means.count
        if entries != actions:
            raise ValueError(
                f"the observation's {path!r} has {entries} entries, but there are {actions} actions: "
                'give it one entry for each.'
            )

    def _recurrent_chain(self) -> tuple[list[Layer], list[Any]] | None:
        """The layers of a recurrent network, and their variables, where NumPy can act by it."""
        found = self._network.recurrent_chain()
        if found is None or self.noise_size:
            return None
        layers, variables = [], []
        for part in found:
            if isinstance(part, tuple):
                kernel, bias, activation = part
                own = [kernel] if bias is None else [kernel, bias]
                layers.append(Layer('dense', tuple(tuple(v.shape) for v in own), activation))
            else:
                own = part.variables
                shapes = tuple(tuple(v.shape) for v in own)
                layers.append(Layer(part.kind, shapes, part.activation, part.gate, part.reset_after))
            variables += own
        variables += [v.value for x in self._network.streams for v in (x.kernel, x.bias)]
        known = all(layer.activation in ACTIVATIONS and layer.gate in ACTIVATIONS for layer in layers)
        return (layers, variables) if known else None

    def _weights(self) -> list[Any]:
        """The variables in the order of a packed vector."""
        if self._layers is None:
            return [*self._chain, *self._log_std] if self._chain else []
        streams = self._network.streams
        kernels = [kernel for _, kernel, _, _ in self._layers] + [x.kernel.value for x in streams]
        biases = [bias for _, _, bias, _ in self._layers if bias is not None] + [x.bias.value for x in streams]
        noisy = [v.value for x in streams if self.noise_size for v in (x.noise_kernel, x.noise_bias)]
        norms = [
            v.value
            for norm, *_ in self._layers
            if norm is not None
            for v in (norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance)
        ]
        return [*kernels, *biases, *noisy, *self._log_std, *norms]

    @property
    def preprocess(self) -> Preprocess:
        """Of the observations."""
        return self._network.preprocess

    @property
    def packs_trained(self) -> bool:
        """Whether a packed vector holds the weights that are trained, as they are, and no others."""
        packed = {id(x) for x in self._weights()}
        return self.numpy is not None and packed == {id(x) for x in self._network.trainable_variables}

    @property
    def trained(self) -> list[Any]:
        """The variables that are trained, in the order of a packed vector where that holds just them."""
        return self._weights() if self.packs_trained else self._network.trainable_variables

    def pack(self) -> Any:
        """The weights that acting needs as one float32 vector, a tensor; empty where the graph itself reads them.

        All kernels, then all biases, then kernel and bias of each layer's noise, then the log standard deviation, then
        γ, β, moving mean and moving variance of each normalisation.

        A compiled update returns it beside its metrics: reading each variable by itself costs 15 to 30 µs.
        """
        import tensorflow as tf

        return tf.concat([tf.reshape(v, [-1]) for v in self._weights()] or [tf.zeros([0])], 0)

    def unpack(self, vector: np.ndarray) -> None:
        """Act with the weights of a vector that `pack` gave."""
        if self.numpy is not None:
            self.numpy.unpack(vector)

    def refresh(self) -> None:
        """Read the weights again, after they were changed other than by an update that returned them.

        Some 10 µs for each variable, few enough to do it before every observation that a user asks about: TensorFlow
        does not tell that a variable was changed, and ``variable.numpy()`` takes three times as long.
        """
        if self.numpy is None:
            return
        import tensorflow as tf

        read, dtype = tf.raw_ops.ReadVariableOp, tf.float32
        self.unpack(np.concatenate([read(resource=handle, dtype=dtype).numpy().ravel() for handle in self._handles]))

    def __call__(self, obs: spaces.Flat, noise: np.ndarray | None = None) -> np.ndarray:
        """Output, parameters or the values of actions, float32 ``[N, …]``, for flat observations ``[N, …]``.

        With state-dependent exploration the noise on the actions stands behind the parameters.

        Args:
            obs: flat observations.
            noise: normal numbers, float32 ``[N, noise_size]``, of which the weights of noisy layers, or the matrices of
                state-dependent exploration, are drawn for each observation; None takes their means.
        """
        if self.numpy is not None:
            return self.numpy(obs, noise)
        count: int | None = spaces.count(obs)
        if count not in self._graphs:
            # The first two are the copies trained on and, most likely, the single environment tested on.
            count = count if len(self._graphs) < FIXED_GRAPHS else None
            if count not in self._graphs:
                self._graphs[count] = self._compile(count)
        inputs = [spaces.tree_map(self._tensor, obs)]
        if self.noise_size:
            shape = (spaces.count(obs), self.noise_size)
            inputs.append(self._tensor(np.zeros(shape, np.float32) if noise is None else noise))
        return self._graphs[count](*inputs).numpy()

    def step(self, obs: spaces.Flat, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of a recurrent network: output ``[N, …]`` and the state after the step ``[N, S]``, both float32.

        Args:
            obs: flat observations ``[N, …]``.
            state: float32 ``[N, S]``, before the step; of zeros where an episode begins.
        """
        if self.numpy is not None:
            assert isinstance(self.numpy, NumpyRecurrent)
            return self.numpy.step(obs, state)
        import tensorflow as tf

        count: int | None = spaces.count(obs)
        if count not in self._step_graphs:
            count = count if len(self._step_graphs) < FIXED_GRAPHS else None
            if count not in self._step_graphs:
                signature = [self._signature(count), tf.TensorSpec([count, self.state_size])]
                step = tf.function(lambda obs, state: self.tensors(obs, state), input_signature=signature)
                self._step_graphs[count] = step.get_concrete_function()
        output, after = self._step_graphs[count](spaces.tree_map(self._tensor, obs), self._tensor(state))
        return output.numpy(), after.numpy()

    def tensors(self, obs: spaces.Flat, state: Any = None, noise: Any = None) -> tuple[Any, Any]:
        """What `__call__` or, with a state, `step` does, for tensors: to be traced into a graph.

        Returns:
            The output, and the state after the step or None.
        """
        if self._policy is not None:
            if state is not None:
                return self._policy.step(obs, state)
            return (self._policy(obs) if noise is None else self._policy.perturbed(obs, noise)), None
        after = None
        if state is None:
            output = self._network(obs, noise=noise)
        else:
            output, after = self._network.step(obs, state)
        output = self._means(output)
        return (output if self._mask_path is None else masked(output, obs[self._mask_path])), after

    @property
    def network(self) -> Any:
        """The :class:`zoo.common.adaptors.policy.Network` that this is the forward pass of."""
        return self._network

    def _signature(self, count: int | None) -> Any:
        import tensorflow as tf

        space = self._network.preprocess.space
        return spaces.from_items(
            space,
            {
                path: tf.TensorSpec([count, *spaces.shape_of(leaf)], leaf.dtype)
                for path, leaf in spaces.leaves(space).items()
            },
        )

    def _compile(self, count: int | None) -> Any:
        """A graph for ``count`` observations, or for any number of them where that is None."""
        import tensorflow as tf

        def forward(obs: Any, *noise: Any) -> Any:
            return self.tensors(obs, noise=noise[0] if noise else None)[0]

        # The concrete function: its call skips the wrapper's look at every argument.
        noise = [tf.TensorSpec([count, self.noise_size])] if self.noise_size else []
        return tf.function(forward, input_signature=[self._signature(count), *noise]).get_concrete_function()

    @staticmethod
    def _tensor(x: np.ndarray) -> Any:
        import tensorflow as tf

        return tf.convert_to_tensor(x)

    def weights(self) -> dict[str, np.ndarray]:
        """What :meth:`load` takes, here or in another process with the same network: weights and running statistics."""
        statistics = {
            f'{path}/{name}': value
            for path, moments in self._network.preprocess.statistics.items()
            for name, value in moments.state().items()
        }
        if self.numpy is not None:
            return {'packed': self.numpy.packed, **statistics}
        return {**{str(i): variable.numpy() for i, variable in enumerate(self._variables())}, **statistics}

    def load(self, weights: dict[str, np.ndarray]) -> None:
        """Act with the weights and statistics that :meth:`weights` gave; the network's variables take them, too."""
        if self.numpy is not None:
            self.numpy.load(weights)
            assign(self._weights(), weights['packed'])
            return
        for i, variable in enumerate(self._variables()):
            variable.assign(weights[str(i)])
        _restore(self._network.preprocess, weights)

    def _variables(self) -> list[Any]:
        log_std = [] if self._policy is None or self._policy.log_std is None else [self._policy.log_std]
        return [*self._network.variables, *log_std]


def assign(variables: Sequence[Any], vector: np.ndarray) -> None:
    """Assign to variables, one after the other, the numbers of a vector ``[P]``."""
    offset = 0
    for variable in variables:
        size = math.prod(variable.shape)
        variable.assign(vector[offset : offset + size].reshape(variable.shape))
        offset += size


def _restore(preprocess: Preprocess, weights: dict[str, np.ndarray]) -> None:
    for path, moments in preprocess.statistics.items():
        moments.restore({name: weights[f'{path}/{name}'] for name in moments.state()})


class Behavior:
    """The behaviour policy: how actions are drawn from what the forward pass gives.

    It can be pickled where the forward pass is a :class:`NumpyForward`, and needs no TensorFlow then.

    Args:
        forward: the forward pass, or None where another process has it and this one draws random actions alone.
        adaptor: the action adaptor.
        mask_path: the observation's leaf that says which actions are allowed.
    """

    #: The recurrent state of each copy of the environment before its next step, float32 ``[N, S]``; None where the
    #: policy has none, or no episode has begun.
    state: np.ndarray | None = None
    #: Parameters of the distribution that actions are drawn from, where an algorithm asks that rollouts hold them: it
    #: sets this to the adaptor's ``param_size``, and what acts keeps those of its last actions in ``params``. 0: none.
    param_size: int = 0
    #: float32 ``[N, param_size]``, those of the last actions of a stochastic policy.
    params: np.ndarray | None = None
    #: What is kept along an episode of each copy by noise that is not drawn anew in every step, ``[N, …]``; None where
    #: no episode has begun.
    noise: np.ndarray | None = None

    def __init__(
        self, forward: Forward | NumpyForward | None, adaptor: ActionAdaptor, mask_path: str | None = None
    ) -> None:
        self.forward = forward
        self.adaptor = adaptor
        self.mask_path = mask_path

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """Stored actions ``[N, …]`` for flat observations ``[N, …]``.

        Args:
            obs: flat observations.
            rng: exploration draws from it.
            progress: fraction of the training done, for what is scheduled.
            deterministic: without exploration.
        """
        raise NotImplementedError

    def step(
        self,
        obs: spaces.Flat,
        state: np.ndarray,
        rng: np.random.Generator,
        progress: float,
        deterministic: bool = False,
    ) -> tuple[spaces.Flat, np.ndarray]:
        """Stored actions ``[N, …]`` and the recurrent state after the step ``[N, S]``, from one that is given.

        A policy that has none hands ``state`` back as it is. Nothing that is kept of the copies is touched, nor is the
        noise of theirs that of these observations.
        """
        alone = copy.copy(self)
        alone.noise = None
        return alone(obs, rng, progress, deterministic), state

    @property
    def state_size(self) -> int:
        """Entries of the recurrent state, 0 where the policy has none."""
        return 0

    def chosen(self, output: Any, obs: spaces.Flat) -> spaces.Flat:
        """Stored actions ``[N, …]`` without exploration for what the forward pass gives, all of them tensors.

        ``obs`` is what it was given, for a behaviour that looks at it besides. So an exported agent acts; one whose
        behaviour lacks this cannot be exported.
        """
        raise NotImplementedError

    def random(self, obs: spaces.Flat, rng: np.random.Generator) -> spaces.Flat:
        """Uniformly random stored actions for flat observations ``[N, …]``, of the allowed ones if masked."""
        if self.mask_path is None:
            return self.adaptor.random(spaces.count(obs), rng)
        logits = np.zeros((spaces.count(obs), self.adaptor.param_size), np.float32)
        return self.adaptor.sample(masked(logits, obs[self.mask_path], self.adaptor.parts[0].counts), rng)

    def explore(self, obs: spaces.Flat, rng: np.random.Generator, progress: float) -> spaces.Flat:
        """What is done in place of acting while only random actions are wanted: see `random`."""
        return self.random(obs, rng)

    def episodes_begin(self, copies: np.ndarray) -> None:
        """Told before acting in them that new episodes begin in these copies of the environment, bool ``[N]``.

        For what is kept along an episode of each copy, and belongs to one process that steps them all.
        """

    #: Whether something is, so that observations of one copy must not be mixed with those of others.
    along_episodes = False

    #: Whether each of several actors explores in a way of its own, so that none other can act for it.
    per_actor = False

    def of_actor(self, number: int, actors: int) -> Behavior:
        """The behaviour of one of several actors: the same for all where :attr:`per_actor` does not say otherwise."""
        return self

    def priorities(self, rollout: Trajectories, sampling: Sampling) -> np.ndarray | None:
        """The priorities that steps just taken are stored with, |δ| ``[T, N]``; None: the highest that there is.

        Args:
            rollout: the steps, fields ``[T, N, …]``.
            sampling: how they will be drawn.
        """
        return None

    def light(self) -> Behavior:
        """The same without TensorFlow, to be pickled; where that cannot be, without a forward pass."""
        twin = copy.copy(self)
        twin.forward = getattr(self.forward, 'numpy', None)
        return twin


class Stochastic(Behavior):
    """A sample of a stochastic policy, or its mode.

    Attributes:
        params: the parameters of the distribution that the last actions were drawn from, float32 ``[N, param_size]``.
    """

    forward: Forward | NumpyForward  # it is not called where there is none

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """See :class:`Behavior`."""
        self.params = self.forward(obs)
        return self.adaptor.mode(self.params) if deterministic else self.adaptor.sample(self.params, rng)

    def chosen(self, output: Any, obs: spaces.Flat) -> spaces.Flat:
        """See :class:`Behavior`."""
        return self.adaptor.distribution.mode(output)


class Remembering(Behavior):
    """A behaviour whose policy is recurrent: it keeps the state of each copy. A subclass says what a `step` is.

    Args:
        forward, adaptor, mask_path: see :class:`Behavior`.
    """

    along_episodes = True

    @property
    def state_size(self) -> int:
        """See :class:`Behavior`."""
        return self._state_size

    @functools.cached_property
    def _state_size(self) -> int:  # kept where there is no forward pass any more
        return int(self.forward.state_size)  # type: ignore[union-attr] # a recurrent one has it

    def light(self) -> Behavior:
        """See :class:`Behavior`."""
        _ = self._state_size
        return super().light()

    def episodes_begin(self, copies: np.ndarray) -> None:
        """See :class:`Behavior`: their state is zero then."""
        if self.state is None or len(self.state) != len(copies):
            self.state = np.zeros((len(copies), self.state_size), np.float32)
        else:
            self.state = np.where(copies[:, None], np.float32(0.0), self.state)

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """See :class:`Behavior`; with the state that is kept of the copies, which takes a step."""
        count = spaces.count(obs)
        if self.state is None or len(self.state) != count:
            raise ValueError(
                f'a recurrent policy is asked to act in {count} copies of the environment, but '
                f'{"none has" if self.state is None else f"{len(self.state)} have"} begun an episode: '
                'predict(obs, state=…) takes the state that it is to act with.'
            )
        action, self.state = self.step(obs, self.state, rng, progress, deterministic)
        return action

    def explore(self, obs: spaces.Flat, rng: np.random.Generator, progress: float) -> spaces.Flat:
        """See :class:`Behavior`; the state takes a step."""
        self(obs, rng, progress)
        return self.random(obs, rng)


class RecurrentStochastic(Remembering, Stochastic):
    """A sample of a stochastic policy that is recurrent, or its mode."""

    def step(
        self,
        obs: spaces.Flat,
        state: np.ndarray,
        rng: np.random.Generator,
        progress: float,
        deterministic: bool = False,
    ) -> tuple[spaces.Flat, np.ndarray]:
        """See :class:`Behavior`."""
        self.params, after = self.forward.step(obs, state)  # type: ignore[union-attr]
        params = self.params
        return (self.adaptor.mode(params) if deterministic else self.adaptor.sample(params, rng)), after


#: Steps until noise is drawn anew where nothing but the end of the episode does it.
_NEVER = 2**62


class StateDependent(Stochastic):
    """The mean of a Gaussian policy with state-dependent exploration, and noise on it that is a function of the state.

    Generalised state-dependent exploration, Raffin et al. 2020 (arXiv 2005.05719, section 3): the same state gives the
    same noise until the matrix is drawn anew. What is drawn is standard normal; σ is that of the newest weights.

    Args:
        forward, adaptor: see :class:`Behavior`.
        every: after how many steps a copy's matrix is drawn anew, besides at the beginning of its episodes; None: then
            alone.

    Attributes:
        noise: standard normal numbers of each copy, float32 ``[N, L n]``; None where no episode has begun.
        left: steps of each copy until they are drawn anew, int64 ``[N]``.
    """

    along_episodes = True

    def __init__(self, forward: Forward | NumpyForward, adaptor: ActionAdaptor, every: int | None) -> None:
        super().__init__(forward, adaptor)
        self.every = every
        self.noise_size = forward.noise_size
        self.left = np.zeros(0, np.int64)

    def episodes_begin(self, copies: np.ndarray) -> None:
        """See :class:`Behavior`."""
        if self.noise is None or len(self.noise) != len(copies):
            self.noise = np.zeros((len(copies), self.noise_size), np.float32)
            self.left = np.zeros(len(copies), np.int64)
        else:
            self.left = np.where(copies, 0, self.left)

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """See :class:`Behavior`."""
        noise = None if deterministic else self._drawn(spaces.count(obs), rng)
        output = self.forward(obs, noise)
        size = output.shape[1] // 3
        self.params = output[:, : 2 * size]
        if deterministic:
            return self.adaptor.mode(self.params)
        found = output[:, :size] + output[:, 2 * size :]
        return np.tanh(found) if self.adaptor.parts[0].kind == 'squashed_gaussian' else found

    def _drawn(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """The numbers for the next step ``[N, L n]``; of other observations than the copies', of a first one."""
        if self.noise is None or len(self.noise) != count:
            return rng.standard_normal((count, self.noise_size), dtype=np.float32)
        due = self.left <= 0
        if due.any():
            drawn = rng.standard_normal((int(due.sum()), self.noise_size), dtype=np.float32)
            self.noise = self.noise.copy()  # another play may have this one
            self.noise[due] = drawn
        self.left = np.where(due, self.every or _NEVER, self.left) - 1
        return self.noise


def stochastic(
    forward: Forward, adaptor: ActionAdaptor, mask_path: str | None = None, sde_sample_freq: int | None = None
) -> Stochastic:
    """The behaviour of a stochastic policy: recurrent, with state-dependent exploration, or neither.

    Args:
        forward, adaptor, mask_path: see :class:`Behavior`.
        sde_sample_freq: of :class:`StateDependent`.
    """
    if forward.sde:
        return StateDependent(forward, adaptor, sde_sample_freq)
    return (RecurrentStochastic if forward.state_size else Stochastic)(forward, adaptor, mask_path)


class Deterministic(Behavior):
    """The best action by what a network puts out: of the greatest logit, the switches that are on, the mean of a Box.

    What explores are its parameters, which are perturbed for whole episodes: :mod:`zoo.common.population`.
    """

    forward: Forward | NumpyForward  # it is not called where there is none

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """See :class:`Behavior`."""
        return self.action(self.forward(obs), obs)

    def action(self, output: np.ndarray, obs: spaces.Flat) -> spaces.Flat:
        """Stored actions ``[N, …]`` for logits and means ``[N, …]``, of the allowed ones if masked."""
        if self.mask_path is not None:
            output = masked(output, obs[self.mask_path], self.adaptor.parts[0].counts)
        return self.adaptor.best(output)

    def chosen(self, output: Any, obs: spaces.Flat) -> spaces.Flat:
        """See :class:`Behavior`."""
        import tensorflow as tf

        if self.mask_path is not None:
            output = masked(output, obs[self.mask_path], self.adaptor.parts[0].counts)
        pieces, offset = [], 0
        for part in self.adaptor.parts:
            piece = output[:, offset : offset + part.outputs]
            offset += part.outputs
            # How far a Gaussian spreads is nothing to its mode.
            pieces += [piece, tf.zeros_like(piece)] if 'gaussian' in part.kind else [piece]
        return self.adaptor.distribution.mode(tf.concat(pieces, -1))

    def light(self) -> Behavior:
        """See :class:`Behavior`; also without a forward pass where NumPy has other weights than those that move."""
        twin = super().light()
        if isinstance(self.forward, Forward) and not self.forward.packs_trained:
            twin.forward = None
        return twin


class EpsilonGreedy(Behavior):
    """The action of the highest value; with probability ε a random one.

    Where the network has noisy layers their weights are drawn anew for every observation, and are the means without
    exploration.

    Args:
        forward, adaptor, mask_path: see :class:`Behavior`.
        epsilon: ε, a number or a schedule.
    """

    forward: Forward | NumpyForward  # it is not called where there is none

    def __init__(
        self, forward: Forward, adaptor: ActionAdaptor, mask_path: str | None, epsilon: float | Linear
    ) -> None:
        super().__init__(forward, adaptor, mask_path)
        self.epsilon = epsilon

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """See :class:`Behavior`."""
        if deterministic:
            return self.forward(obs).argmax(-1)
        random = rng.random(spaces.count(obs)) < self.chance(spaces.count(obs), progress)
        if random.all():
            return self.random(obs, rng)
        size = self.forward.noise_size
        noise = rng.standard_normal((spaces.count(obs), size), dtype=np.float32) if size else None
        action = self.forward(obs, noise).argmax(-1)
        if random.any():
            action[random] = self.random(obs, rng)[random]
        return action

    def chance(self, copies: int, progress: float) -> float | np.ndarray:
        """The probability of a random action: of all copies, or of each ``[copies]``."""
        return value_at(self.epsilon, progress)

    def chosen(self, output: Any, obs: spaces.Flat) -> spaces.Flat:
        """See :class:`Behavior`."""
        import tensorflow as tf

        return tf.argmax(output, -1)


class RecurrentEpsilonGreedy(Remembering, EpsilonGreedy):
    """The action of the highest value that a recurrent network gives; with probability ε a random one."""

    def step(
        self,
        obs: spaces.Flat,
        state: np.ndarray,
        rng: np.random.Generator,
        progress: float,
        deterministic: bool = False,
    ) -> tuple[spaces.Flat, np.ndarray]:
        """See :class:`Behavior`."""
        values, after = self.forward.step(obs, state)  # type: ignore[union-attr]
        action = values.argmax(-1)
        if not deterministic:
            random = rng.random(len(action)) < self.chance(len(action), progress)
            if random.any():
                action[random] = self.random(obs, rng)[random]
        return action, after


class SometimesRandom(Stochastic):
    """A sample of a stochastic policy; with probability ε a uniformly random action.

    Args:
        forward, adaptor, mask_path: see :class:`Behavior`.
        epsilon: ε, a number or a schedule.

    Attributes:
        params: None where ε is above 0.
    """

    def __init__(
        self, forward: Forward, adaptor: ActionAdaptor, mask_path: str | None, epsilon: float | Linear
    ) -> None:
        super().__init__(forward, adaptor, mask_path)
        self.epsilon = epsilon

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """See :class:`Behavior`."""
        action = super().__call__(obs, rng, progress, deterministic)
        if deterministic:
            return action
        epsilon = value_at(self.epsilon, progress)
        if epsilon > 0:
            self.params = None  # actions are drawn from them no more than from others
        random = rng.random(spaces.count(obs)) < epsilon
        if random.any():
            drawn = dict(spaces.tree_items(self.random(obs, rng)))
            for path, own in spaces.tree_items(action):
                own[random] = drawn[path][random]
        return action


class GaussianNoise(Behavior):
    """A deterministic policy's action in [−1, 1], and normal noise on it.

    Args:
        forward, adaptor: see :class:`Behavior`.
        scale: the noise's standard deviation.
    """

    forward: Forward | NumpyForward  # it is not called where there is none

    def __init__(self, forward: Forward, adaptor: ActionAdaptor, scale: float) -> None:
        super().__init__(forward, adaptor)
        self.scale = scale

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """See :class:`Behavior`."""
        action = self.forward(obs)
        if deterministic:
            return action
        return np.clip(action + self.draw(action.shape, rng), -1.0, 1.0)

    def chosen(self, output: Any, obs: spaces.Flat) -> spaces.Flat:
        """See :class:`Behavior`."""
        return output

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """The noise of the next step, float32 ``[N, n]``."""
        return self.scale * rng.standard_normal(shape, dtype=np.float32)


class OrnsteinUhlenbeck(GaussianNoise):
    """A deterministic policy's action in [−1, 1], and noise on it that stays alike from step to step.

    The process of Uhlenbeck and Ornstein 1930 as Lillicrap et al. 2016 (arXiv 1509.02971, section 3) use it, by Euler's
    steps ``x ← x − θ x dt + σ √dt N(0, 1)``, one process for each entry of the action of each copy. It begins at 0 in
    every episode, and has the deviation ``σ / √(θ (2 − θ dt))`` after long.

    Args:
        forward, adaptor: see :class:`Behavior`.
        scale: σ.
        theta: θ, the part of itself that it loses in a time of 1, where that is short.
        dt: time between two steps.

    Attributes:
        noise: of the last step of each copy, float32 ``[N, n]``; None where no episode has begun.
    """

    along_episodes = True

    def __init__(self, forward: Forward, adaptor: ActionAdaptor, scale: float, theta: float, dt: float) -> None:
        super().__init__(forward, adaptor, scale)
        self.theta = theta
        self.dt = dt

    def episodes_begin(self, copies: np.ndarray) -> None:
        """See :class:`Behavior`."""
        if self.noise is None or len(self.noise) != len(copies):
            self.noise = self.adaptor.zeros((len(copies),))
        else:
            self.noise = np.where(copies[:, None], np.float32(0.0), self.noise)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """The noise of the next step, ``[N, n]``; of other observations than those of the copies, of a first step."""
        step = self.scale * math.sqrt(self.dt) * rng.standard_normal(shape, dtype=np.float32)
        if self.noise is None or self.noise.shape != shape:
            return step
        self.noise = (1.0 - self.theta * self.dt) * self.noise + step
        return self.noise
