"""Acting: the forward pass, in NumPy where the network is a chain of dense layers, and how actions are drawn from it.

Elsewhere the forward pass is a compiled graph. One observation through a small network costs 6 µs in NumPy and 50 to
900 µs through TensorFlow, and an actor process that has a :class:`NumpyForward` needs no TensorFlow at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.acting.numpy_forward import ACTIVATIONS, Means, NumpyForward, restore
from zoo.common.acting.numpy_recurrent import Layer, NumpyRecurrent
from zoo.common.adaptors.action import masked
from zoo.common.adaptors.observation import Preprocess

#: Numbers of observations with a graph of their own, in which convolutions are a fifth faster. All others share one,
#: since compiling another for every batch that ``predict`` may see would cost seconds.
FIXED_GRAPHS = 2


class Forward:
    """The forward pass of a network or policy for acting, kept up to date with its weights.

    Args:
        network: a :class:`zoo.common.networks.network.Network`.
        policy: the :class:`zoo.common.networks.policy.StochasticPolicy` around it, if it is one.
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
        """The :class:`zoo.common.networks.network.Network` that this is the forward pass of."""
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
        restore(self._network.preprocess, weights)

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
