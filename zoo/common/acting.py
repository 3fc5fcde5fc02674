"""The forward pass for acting: in NumPy where the network is a chain of dense layers, else a compiled graph.

One observation through a small network costs 6 µs in NumPy and 50 to 900 µs through TensorFlow, and an actor process
that has a :class:`NumpyForward` needs no TensorFlow at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.adaptors.action import MASKED_LOGIT, ActionAdaptor
from zoo.common.adaptors.observation import Preprocess

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
    """A chain of dense layers over a flat observation, equal to the Keras network to 1e-5.

    Args:
        preprocess: of the observations.
        activations: name of each layer's activation, a key of ``ACTIVATIONS``.
        adaptor: for a policy, how its output is completed to the parameters of the distribution; None leaves it.
        mask_path: the observation's leaf that says which actions are allowed.
        has_log_std: the policy's log standard deviation is free.

    Attributes:
        weights: ``(kernel, bias)`` of each layer, float32.
        log_std: the free log standard deviation, float32 ``[n]``.
    """

    def __init__(
        self,
        preprocess: Preprocess,
        activations: list[str],
        adaptor: ActionAdaptor | None = None,
        mask_path: str | None = None,
        has_log_std: bool = False,
    ) -> None:
        self.preprocess = preprocess
        self.activations = [ACTIVATIONS[name] for name in activations]
        self.weights: list[tuple[np.ndarray, np.ndarray | float]] = []
        self.adaptor = adaptor
        self.mask_path = mask_path
        self.has_log_std = has_log_std
        self.log_std: np.ndarray | None = None
        self._bounds = adaptor.param_bounds if adaptor is not None and not has_log_std else None

    def __call__(self, obs: spaces.Flat) -> np.ndarray:
        """Output ``[N, units]`` for flat observations ``[N, …]``."""
        x = self.preprocess.numpy(obs)
        for (kernel, bias), activation in zip(self.weights, self.activations, strict=True):
            x = x @ kernel
            x += bias
            x = activation(x)
        if self.mask_path is not None:
            return np.where(np.reshape(obs[self.mask_path], x.shape), x, np.float32(MASKED_LOGIT))
        if self.has_log_std:
            return self._with_log_std(x)
        return x if self._bounds is None else np.clip(x, *self._bounds, out=x)

    def _with_log_std(self, x: np.ndarray) -> np.ndarray:
        pieces, offset, drawn = [], 0, 0
        for part in self.adaptor.parts:
            pieces.append(x[:, offset : offset + part.outputs])
            offset += part.outputs
            if 'gaussian' in part.kind:
                pieces.append(np.broadcast_to(self.log_std[drawn : drawn + part.size], pieces[-1].shape))
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
            self._check_mask()
        layers = network.dense_layers()
        self._layers = layers if layers and all(name in ACTIVATIONS for _, _, name in layers) else None
        self._graphs: dict[int | None, Any] = {}
        self.numpy: NumpyForward | None = None
        self._packed: list[Any] = []
        if self._layers is not None:
            adaptor = policy.adaptor if policy is not None else None
            names = [name for _, _, name in self._layers]
            log_std = policy.log_std if policy is not None else None
            kernels, biases = [x[0] for x in self._layers], [x[1] for x in self._layers if x[1] is not None]
            self._packed = [*kernels, *biases, *([] if log_std is None else [log_std])]
            self._shapes = [(tuple(v.shape), int(np.prod(v.shape))) for v in self._packed]
            self.numpy = NumpyForward(network.preprocess, names, adaptor, self._mask_path, log_std is not None)
            self.refresh()

    def _check_mask(self) -> None:
        space = self._network.preprocess.space
        entries = int(np.prod(spaces.leaves(space)[self._mask_path].shape))
        actions = self._network(spaces.tree_map(self._tensor, spaces.zeros(space, (1,)))).shape[-1]
        if entries != actions:
            raise ValueError(
                f"the observation's {self._mask_path!r} has {entries} entries, but there are {actions} actions: "
                'give it one entry for each.'
            )

    def pack(self) -> Any:
        """The weights that acting needs as one float32 vector, a tensor; empty where the graph itself reads them.

        A compiled update returns it beside its metrics: reading each variable by itself costs 15 to 30 µs.
        """
        import tensorflow as tf

        return tf.concat([tf.reshape(v, [-1]) for v in self._packed] or [tf.zeros([0])], 0)

    def unpack(self, vector: np.ndarray) -> None:
        """Act with the weights of a vector that `pack` gave."""
        if self.numpy is None:
            return
        found, offset = [], 0
        for shape, size in self._shapes:
            found.append(vector[offset : offset + size].reshape(shape))
            offset += size
        if self.numpy.has_log_std:
            self.numpy.log_std = found.pop()
        biases = iter(found[len(self._layers) :])
        self.numpy.weights = [
            (kernel, 0.0 if bias is None else next(biases))
            for kernel, (_, bias, _) in zip(found[: len(self._layers)], self._layers, strict=True)
        ]

    def refresh(self) -> None:
        """Read the weights again, after they were changed other than by an update that returned them."""
        self.unpack(self.pack().numpy())

    def __call__(self, obs: spaces.Flat) -> np.ndarray:
        """Output or parameters, float32 ``[N, …]``, for flat observations ``[N, …]``."""
        if self.numpy is not None:
            return self.numpy(obs)
        count = len(spaces.tree_items(obs)[0][1])
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
            {path: tf.TensorSpec([count, *leaf.shape], leaf.dtype) for path, leaf in spaces.leaves(space).items()},
        )

        def forward(obs: Any) -> Any:
            if self._policy is not None:
                return self._policy(obs)
            output = self._network(obs)
            if self._mask_path is not None:
                allowed = tf.reshape(tf.cast(obs[self._mask_path], tf.bool), tf.shape(output))
                output = tf.where(allowed, output, MASKED_LOGIT)
            return output

        # The concrete function: its call skips the wrapper's look at every argument.
        return tf.function(forward, input_signature=[signature]).get_concrete_function()

    @staticmethod
    def _tensor(x: np.ndarray) -> Any:
        import tensorflow as tf

        return tf.convert_to_tensor(x)
