"""The forward pass for acting: in NumPy where the network is a chain of layers, else a compiled graph.

One observation through a small network costs 6 µs in NumPy and 50 to 900 µs through TensorFlow. An actor process that
has a :class:`zoo.common.acting.chain.Chain` needs no TensorFlow at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common import spaces
from zoo.common.acting.chain import Chain, restore
from zoo.common.acting.layers import Means
from zoo.common.adaptors.masks import masked
from zoo.common.adaptors.observation import Preprocess
from zoo.common.tools.errors import InvalidValue

if TYPE_CHECKING:
    from zoo.common.networks.network import Network
    from zoo.common.networks.policy import StochasticPolicy

#: Batch sizes that get a graph of their own, in which convolutions are a fifth faster: most likely one for training
#: and one for testing. All others share one: compiling a graph takes seconds.
FIXED_GRAPHS = 2


class Forward:
    """The forward pass of a network or policy for acting, kept up to date with its weights.

    Args:
        network, policy: what computes the output, and the policy around it, if there is one.
        mask_path: the observation's leaf that says which actions are allowed, for a network without a policy.
        means: makes one number per action of several.

    Attributes:
        numpy: the chain that computes the same in NumPy; None where a graph is needed.
        noise_size: normal numbers that one draw of the noise takes: for noisy layers, for state-dependent exploration,
            or beside the observation.
        state_size: entries of the recurrent state; 0 where there is none.
        sde: whether exploration is state-dependent.

    Raises:
        ValueError: the mask has another number of entries than there are actions.
    """

    def __init__(
        self,
        network: Network,
        policy: StochasticPolicy | None = None,
        mask_path: str | None = None,
        means: Means | None = None,
    ) -> None:
        from zoo.common.acting.convert import chain_of  # imports TensorFlow, which an actor process does not need

        self.network = network
        self._policy = policy
        self._means = Means() if means is None else means
        self._log_std = [] if policy is None or policy.log_std is None else [policy.log_std]
        self.sde = policy is not None and policy.sde
        self._joined = network.wanted.action_size  # entries of noise that the network takes beside the observation
        drawn = self._joined or network.noise_size
        self.noise_size = sum(math.prod(v.shape) for v in self._log_std) if self.sde else drawn
        self.state_size = network.state_size
        self._mask_path = policy.mask_path if policy is not None else mask_path
        if self._mask_path is not None:
            self._check_mask(self._mask_path)
        self.graphs: dict[int | None, Any] = {}
        self._step_graphs: dict[int | None, Any] = {}
        self.numpy: Chain | None
        self.numpy, self._packed = chain_of(network, policy, self._mask_path, means) or (None, [])
        self._handles = [variable.handle for variable in self._packed]
        self.refresh()

    def _check_mask(self, path: str) -> None:
        space = self.network.preprocess.space
        entries = math.prod(spaces.shape_of(spaces.leaves(space)[path]))
        output = self.network(spaces.tree_map(self._tensor, spaces.zeros(space, (1,))))
        actions = output.shape[-1] // self._means.count
        if entries != actions:
            raise InvalidValue(
                f"the observation's {path!r} has {entries} entries, but there are {actions} actions: "
                'give it one entry for each.'
            )

    @property
    def preprocess(self) -> Preprocess:
        """The preprocessing of the observations."""
        return self.network.preprocess

    @property
    def packs_trained(self) -> bool:
        """Whether a packed vector holds all weights that are trained, and no others."""
        packed = {id(x) for x in self._packed}
        return self.numpy is not None and packed == {id(x) for x in self.network.trainable_variables}

    @property
    def trained(self) -> list[Any]:
        """The variables that are trained, in the order of a packed vector where it holds exactly these."""
        return self._packed if self.packs_trained else self.network.trainable_variables

    def pack(self) -> Any:
        """The weights that acting needs as one tensor, float32 ``[P]``; empty where a graph reads them itself.

        :meth:`zoo.common.acting.chain.Chain.unpack` says in which order. A compiled update returns it beside its
        metrics, because reading each variable by itself costs 15 to 30 µs.
        """
        import tensorflow as tf

        return tf.concat([tf.reshape(v, [-1]) for v in self._packed] or [tf.zeros([0])], 0)

    def unpack(self, vector: np.ndarray) -> None:
        """Act with the weights of a vector that `pack` gave."""
        if self.numpy is not None:
            self.numpy.unpack(vector)

    def refresh(self) -> None:
        """Read the weights again, after something changed them other than an update that returned them.

        TensorFlow does not tell that a variable was changed, so this runs before every observation that a user asks
        about. It costs some 10 µs for each variable, a third of ``variable.numpy()``.
        """
        if self.numpy is None:
            return
        import tensorflow as tf

        read, dtype = tf.raw_ops.ReadVariableOp, tf.float32
        self.unpack(np.concatenate([read(resource=handle, dtype=dtype).numpy().ravel() for handle in self._handles]))

    def __call__(self, obs: spaces.Flat, noise: np.ndarray | None = None) -> np.ndarray:
        """Parameters, or values of actions, float32 ``[N, …]``, for flat observations ``[N, …]``.

        ``noise``, normal numbers, float32 ``[N, noise_size]``, gives each observation its own weights of noisy layers,
        its own matrix of state-dependent exploration, or its own input beside the observation. None takes the means.
        With state-dependent exploration the noise on the actions follows the parameters.
        """
        if self.numpy is not None:
            return self.numpy(obs, noise)
        inputs = [spaces.tree_map(self._tensor, obs)]
        if self.noise_size:
            shape = (spaces.count(obs), self.noise_size)
            inputs.append(self._tensor(np.zeros(shape, np.float32) if noise is None else noise))
        return self._graph(self.graphs, self._output, spaces.count(obs), self.noise_size)(*inputs).numpy()

    def step(self, obs: spaces.Flat, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Output ``[N, …]`` of a recurrent network and its state after the step, float32 ``[N, S]``.

        ``state`` is the state before the step; it is zero where an episode begins.
        """
        if self.numpy is not None:
            return self.numpy.step(obs, state)
        graph = self._graph(
            self._step_graphs, lambda obs, state: self.tensors(obs, state), spaces.count(obs), self.state_size
        )
        output, after = graph(spaces.tree_map(self._tensor, obs), self._tensor(state))
        return output.numpy(), after.numpy()

    def tensors(self, obs: spaces.Flat, state: Any = None, noise: Any = None) -> tuple[Any, Any]:
        """`__call__`, or with a state `step`, for tensors, to be traced: the output, and the state after it or None."""
        if self._policy is not None:
            if state is not None:
                return self._policy.step(obs, state)
            return (self._policy(obs) if noise is None else self._policy.perturbed(obs, noise)), None
        after = None
        if self._joined:
            output = self.network(obs, self._no_noise(obs) if noise is None else noise)
        elif state is None:
            output = self.network(obs, noise=noise)
        else:
            output, after = self.network.step(obs, state)
        output = self._means(output)
        return (output if self._mask_path is None else masked(output, obs[self._mask_path])), after

    def _no_noise(self, obs: Any) -> Any:
        import tensorflow as tf

        count = tf.shape(next(x for _, x in spaces.tree_items(obs)))[0]
        return tf.zeros([count, self._joined])

    def _output(self, obs: Any, *noise: Any) -> Any:
        return self.tensors(obs, noise=noise[0] if noise else None)[0]

    def _graph(
        self, graphs: dict[int | None, Any], function: Callable[..., Any], count: int | None, size: int
    ) -> Callable[..., Any]:
        """The graph of a function for ``count`` observations, and for ``count`` rows of ``size`` numbers, if any."""
        if count not in graphs and len(graphs) >= FIXED_GRAPHS:
            count = None
        if count not in graphs:
            import tensorflow as tf

            space = self.network.preprocess.space
            leaves = spaces.leaves(space).items()
            specs = {path: tf.TensorSpec([count, *spaces.shape_of(leaf)], leaf.dtype) for path, leaf in leaves}
            signature = [spaces.from_items(space, specs), *([tf.TensorSpec([count, size])] if size else [])]
            # The concrete function: its call skips the wrapper's look at every argument.
            graphs[count] = tf.function(function, input_signature=signature).get_concrete_function()
        return graphs[count]

    @staticmethod
    def _tensor(x: np.ndarray) -> Any:
        import tensorflow as tf

        return tf.convert_to_tensor(x)

    def weights(self) -> dict[str, np.ndarray]:
        """The weights and running statistics, which :meth:`load` takes, here or in another process."""
        statistics = {
            f'{path}/{name}': value
            for path, moments in self.network.preprocess.statistics.items()
            for name, value in moments.state().items()
        }
        if self.numpy is not None:
            return {'packed': self.numpy.packed, **statistics}
        return {**{str(i): variable.numpy() for i, variable in enumerate(self._variables())}, **statistics}

    def load(self, weights: dict[str, np.ndarray]) -> None:
        """Take weights and statistics that :meth:`weights` gave, for acting and in the network's variables."""
        if self.numpy is not None:
            self.numpy.load(weights)
            assign(self._packed, weights['packed'])
            return
        variables = self._variables()
        if str(len(variables)) in weights:
            raise InvalidValue(
                f'more weights than the {len(variables)} arrays of this network: make the same agent in every process.'
            )
        for i, variable in enumerate(variables):
            variable.assign(weights[str(i)])
        restore(self.network.preprocess, weights)

    def _variables(self) -> list[Any]:
        return [*self.network.variables, *self._log_std]


def assign(variables: Sequence[Any], vector: np.ndarray) -> None:
    """Assign the numbers of a vector ``[P]`` to variables, one after the other."""
    offset = 0
    for variable in variables:
        size = math.prod(variable.shape)
        variable.assign(vector[offset : offset + size].reshape(variable.shape))
        offset += size
