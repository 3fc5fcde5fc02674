"""Acting: the forward pass, in NumPy where the network is a chain of dense layers, and how actions are drawn from it.

Elsewhere the forward pass is a compiled graph. One observation through a small network costs 6 µs in NumPy and 50 to
900 µs through TensorFlow, and an actor process that has a :class:`NumpyForward` needs no TensorFlow at all.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor, masked
from zoo.common.adaptors.observation import Preprocess
from zoo.common.schedules import Linear, value_at

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


class NumpyForward:
    """A chain of dense layers over a flat observation, equal to the Keras network to 1e-5. It can be pickled.

    Args:
        preprocess: of the observations.
        layers: of each layer the shape of its kernel, whether it has a bias, and its activation, a key of
            ``ACTIVATIONS``.
        adaptor: for a policy, how its output is completed to the parameters of the distribution; None leaves it.
        mask_path: the observation's leaf that says which actions are allowed.
        log_std_size: length of the policy's free log standard deviation, or 0.

    Attributes:
        packed: the vector that was unpacked last.
        weights: ``(kernel, bias)`` of each layer, float32.
        log_std: the free log standard deviation, float32 ``[n]``.
    """

    def __init__(
        self,
        preprocess: Preprocess,
        layers: list[tuple[tuple[int, int], bool, str]],
        adaptor: ActionAdaptor | None = None,
        mask_path: str | None = None,
        log_std_size: int = 0,
    ) -> None:
        self.preprocess = preprocess
        self.layers = layers
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
        """Take the weights from one float32 vector: all kernels, then all biases, then the log standard deviation."""
        self.packed = vector
        offset = 0

        def take(*shape: int) -> np.ndarray:
            nonlocal offset
            offset += math.prod(shape)
            return vector[offset - math.prod(shape) : offset].reshape(shape)

        kernels = [take(*shape) for shape, _, _ in self.layers]
        biases = [take(shape[1]) if has_bias else 0.0 for shape, has_bias, _ in self.layers]
        self.weights = list(zip(kernels, biases, strict=True))
        if self.log_std_size:
            self.log_std = take(self.log_std_size)

    def __call__(self, obs: spaces.Flat) -> np.ndarray:
        """Output ``[N, units]`` for flat observations ``[N, …]``."""
        x = self.preprocess.numpy(obs)
        for (kernel, bias), (_, _, activation) in zip(self.weights, self.layers, strict=True):
            x = x @ kernel
            x += bias
            x = ACTIVATIONS[activation](x)
        if self.mask_path is not None:
            return masked(x, obs[self.mask_path], self.adaptor.parts[0].counts if self.adaptor is not None else ())
        if self.log_std is not None:
            return self._with_log_std(x, self.log_std)
        return x if self._bounds is None else np.clip(x, *self._bounds, out=x)

    def _with_log_std(self, x: np.ndarray, log_std: np.ndarray) -> np.ndarray:
        pieces, offset, drawn = [], 0, 0
        for part in self._parts:
            pieces.append(x[:, offset : offset + part.outputs])
            offset += part.outputs
            if 'gaussian' in part.kind:
                pieces.append(np.broadcast_to(log_std[drawn : drawn + part.size], pieces[-1].shape))
                drawn += part.size
        return np.concatenate(pieces, axis=-1)


class Forward:
    """The forward pass of a network or policy for acting, kept up to date with its weights.

    Args:
        network: a :class:`zoo.common.adaptors.policy.Network`.
        policy: the :class:`zoo.common.adaptors.policy.StochasticPolicy` around it, if it is one.
        mask_path: the observation's mask leaf, where the output is one number per action.

    Raises:
        ValueError: the mask has another number of entries than there are actions.
    """

    def __init__(self, network: Any, policy: Any = None, mask_path: str | None = None) -> None:
        self._network = network
        self._policy = policy
        self._mask_path = policy.mask_path if policy is not None else mask_path
        if self._mask_path is not None:
            self._check_mask(self._mask_path)
        layers = network.normed_layers()
        self._layers = layers if layers and all(name in ACTIVATIONS for *_, name in layers) else None
        self._graphs: dict[int | None, Any] = {}
        self.numpy: NumpyForward | None = None
        self._log_std = [] if policy is None or policy.log_std is None else [policy.log_std]
        self._handles: list[Any] | None = None
        self._pack: Any = None
        if self._layers is not None:
            if not any(norm for norm, *_ in self._layers):
                self._handles = [variable.handle for variable in self._weights()]
            self.numpy = NumpyForward(
                network.preprocess,
                [
                    (tuple(kernel.shape), bias is not None or norm is not None, name)
                    for norm, kernel, bias, name in self._layers
                ],
                None if policy is None else policy.adaptor,
                self._mask_path,
                sum(v.shape[0] for v in self._log_std),
            )
            self.refresh()

    def _check_mask(self, path: str) -> None:
        space = self._network.preprocess.space
        entries = int(np.prod(spaces.shape_of(spaces.leaves(space)[path])))
        actions = self._network(spaces.tree_map(self._tensor, spaces.zeros(space, (1,)))).shape[-1]
        if entries != actions:
            raise ValueError(
                f"the observation's {path!r} has {entries} entries, but there are {actions} actions: "
                'give it one entry for each.'
            )

    def _weights(self) -> list[Any]:
        """The weights in the order of a packed vector: variables, or tensors where a normalisation is folded in.

        In inference mode batch renormalisation is ``x · scale + shift``, which the dense layer after it takes in.
        """
        kernels, biases = [], []
        for norm, kernel, bias, _ in self._layers or []:
            if norm is not None:
                scale, shift = norm.affine()
                shifted = (shift[None] @ kernel)[0]
                kernel, bias = scale[:, None] * kernel, shifted if bias is None else shifted + bias
            kernels.append(kernel)
            biases += [] if bias is None else [bias]
        return [*kernels, *biases, *(self._log_std if self._layers else [])]

    def pack(self) -> Any:
        """The weights that acting needs as one float32 vector, a tensor; empty where the graph itself reads them.

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

        if self._handles is None:
            self._pack = self._pack or tf.function(self.pack)
            self.unpack(self._pack().numpy())
            return
        read, dtype = tf.raw_ops.ReadVariableOp, tf.float32
        self.unpack(np.concatenate([read(resource=handle, dtype=dtype).numpy().ravel() for handle in self._handles]))

    def __call__(self, obs: spaces.Flat) -> np.ndarray:
        """Output or parameters, float32 ``[N, …]``, for flat observations ``[N, …]``."""
        if self.numpy is not None:
            return self.numpy(obs)
        count: int | None = spaces.count(obs)
        if count not in self._graphs:
            # The first two are the copies trained on and, most likely, the single environment tested on.
            count = count if len(self._graphs) < FIXED_GRAPHS else None
            if count not in self._graphs:
                self._graphs[count] = self._compile(count)
        return self._graphs[count](spaces.tree_map(self._tensor, obs)).numpy()

    def _compile(self, count: int | None) -> Any:
        """A graph for ``count`` observations, or for any number of them where that is None."""
        import tensorflow as tf

        space = self._network.preprocess.space
        signature = spaces.from_items(
            space,
            {
                path: tf.TensorSpec([count, *spaces.shape_of(leaf)], leaf.dtype)
                for path, leaf in spaces.leaves(space).items()
            },
        )

        def forward(obs: Any) -> Any:
            if self._policy is not None:
                return self._policy(obs)
            output = self._network(obs)
            if self._mask_path is not None:
                output = masked(output, obs[self._mask_path])
            return output

        # The concrete function: its call skips the wrapper's look at every argument.
        return tf.function(forward, input_signature=[signature]).get_concrete_function()

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
        """Act with the weights and statistics that :meth:`weights` gave."""
        if self.numpy is not None:
            self.numpy.load(weights)
            return
        for i, variable in enumerate(self._variables()):
            variable.assign(weights[str(i)])
        _restore(self._network.preprocess, weights)

    def _variables(self) -> list[Any]:
        log_std = [] if self._policy is None or self._policy.log_std is None else [self._policy.log_std]
        return [*self._network.variables, *log_std]


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

    def random(self, obs: spaces.Flat, rng: np.random.Generator) -> spaces.Flat:
        """Uniformly random stored actions for flat observations ``[N, …]``, of the allowed ones if masked."""
        if self.mask_path is None:
            return self.adaptor.random(spaces.count(obs), rng)
        logits = np.zeros((spaces.count(obs), self.adaptor.param_size), np.float32)
        return self.adaptor.sample(masked(logits, obs[self.mask_path], self.adaptor.parts[0].counts), rng)

    def light(self) -> Behavior:
        """The same without TensorFlow, to be pickled; where that cannot be, without a forward pass."""
        twin = copy.copy(self)
        twin.forward = getattr(self.forward, 'numpy', None)
        return twin


class Stochastic(Behavior):
    """A sample of a stochastic policy, or its mode."""

    forward: Forward | NumpyForward  # it is not called where there is none

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """See :class:`Behavior`."""
        params = self.forward(obs)
        return self.adaptor.mode(params) if deterministic else self.adaptor.sample(params, rng)


class EpsilonGreedy(Behavior):
    """The action of the highest value; with probability ε a random one.

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
        random = rng.random(spaces.count(obs)) < value_at(self.epsilon, progress)
        if random.all():
            return self.random(obs, rng)
        action = self.forward(obs).argmax(-1)
        if random.any():
            action[random] = self.random(obs, rng)[random]
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
        noise = self.scale * rng.standard_normal(action.shape, dtype=np.float32)
        return np.clip(action + noise, -1.0, 1.0)
