"""What the algorithms that learn from rollouts share, with an actor or with values of actions: iterations on rollouts.

A subclass is its paper. Its ``improve`` is compiled and makes a whole iteration; its ``update`` gives ``improve`` what
it needs. Before an iteration :meth:`OnPolicy.iterate` scales rewards and reads schedules; afterwards the statistics of
the observations take in the rollout.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from zoo.algorithms.base import Algorithm
from zoo.common import spaces
from zoo.common.maths.chunks import in_chunks, rows_at_once
from zoo.common.maths.normalize import RewardScale, RunningMoments
from zoo.common.networks.network import Network
from zoo.common.parameters import Gamma, NormalizeObs
from zoo.common.records import Trajectories
from zoo.common.schedules import tensor_at, value_at
from zoo.common.tools.compilation import PackedCall
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import at_least
from zoo.common.training import loops

log = logging.getLogger('zoo')

RolloutSequenceLength = Annotated[
    int | None,
    at_least(1),
    'steps of one copy in a row that a recurrent policy learns from: how far gradients reach back; None: all steps '
    'of an iteration',
]


class Sequences(NamedTuple):
    """Observations of a recurrent policy: ``C`` sequences of ``L`` steps side by side.

    Attributes:
        obs: flat observations ``[L, C, …]``.
        state: float32 ``[L, C, S]``, the recurrent state before each step, as it was before the update. A sequence
            starts from the state of its first step.
        begins: bool ``[L, C]``, where an episode begins, and the state is zero.
    """

    obs: Any
    state: tf.Tensor
    begins: tf.Tensor


class OnPolicy(Algorithm):
    """Learns from rollouts of the policy of now, an iteration in one compiled call."""

    recurrent = True
    loop = loops.on_policy
    #: Parameters that may be schedules; ``improve`` is given their current values.
    scheduled: ClassVar[tuple[str, ...]] = ()

    gamma: Gamma = 0.99
    normalize_obs: NormalizeObs = False
    normalize_reward: Annotated[
        bool, 'divide rewards by the running standard deviation of the discounted return, and clip them at 10 of it'
    ] = False

    def prepare_iterations(self, acting: Network) -> None:
        """Make the scale of rewards, and note how iterations go through the network that acts; ``build`` calls it."""
        self.is_recurrent = acting.state_size > 0
        self.rows_at_once = rows_at_once(sum(item.size for item in self.preprocess.features))
        self.reward_scale = RewardScale(self.gamma) if self.normalize_reward else None
        self._told: set[str] = set()

    def sequence_steps(self, steps: int) -> int:
        """Return how many of the ``steps`` of an iteration a recurrent policy learns from in a row."""
        return steps

    def check_sequence_length(self, length: int | None) -> None:
        """Refuse a ``sequence_length`` where no network is recurrent."""
        if length is not None and not self.is_recurrent:
            raise InvalidValue(
                f'sequence_length={length} is for a recurrent policy: give net_list one, such as '
                "dict(recurrent='lstm'), or leave it out."
            )

    # What the networks say of a rollout

    def outputs(self, obs: spaces.Flat, training: bool = False) -> tuple[tf.Tensor, ...]:
        """Return the outputs of the networks ``[B, …]``, the output of the acting one first."""
        raise NotImplementedError

    def outputs_along(
        self, sequences: Sequences, state: tf.Tensor, training: bool = False
    ) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
        """Return `outputs` ``[L C, …]`` of sequences that start from a state ``[C, S]``, and the states ``[L, C, S]``
        after each step."""
        raise NotImplementedError

    def seen(self, rollout: Trajectories) -> tuple[Any, ...]:
        """Return the outputs of the networks for a rollout, in inference mode, in which the policy acted.

        Returns:
            The observations ``[T N, …]``, or :class:`Sequences` for a recurrent policy; each of the `outputs`
            ``[T N, …]``; the states ``[T, N, S]`` after each step of a recurrent policy, else None.
        """
        obs = flattened(rollout.obs)
        if not self.is_recurrent:
            return obs, *self.said_of(obs)
        sequences = Sequences(rollout.obs, rollout.state[None], rollout.begins)
        *outputs, after = self.said_of(sequences)
        return sequences._replace(state=tf.concat([rollout.state[None], after[:-1]], 0)), *outputs, after

    def said_of(self, obs: Any) -> tuple[Any, ...]:
        """Return the `outputs` for many observations in inference mode, a chunk at a time; None comes last.

        A recurrent policy is given :class:`Sequences`; then the states ``[L, C, S]`` after each step come last.
        """
        if not isinstance(obs, Sequences):
            outputs, _ = in_chunks(lambda x, _: (self.outputs(x), ()), obs, self.rows_at_once)
            return *outputs, None
        copies = obs.begins.shape[1]

        def steps(part: Any, state: tf.Tensor) -> tuple[Any, tf.Tensor]:
            seen, begins = part
            outputs, after = self.outputs_along(Sequences(seen, state[None], begins), state)
            rows = [tf.reshape(x, [begins.shape[0], copies, *x.shape[1:]]) for x in outputs]
            return (*rows, after), after[-1]

        found, _ = in_chunks(steps, (obs.obs, obs.begins), max(1, self.rows_at_once // copies), obs.state[0])
        *outputs, after = found
        return *flattened(tuple(outputs)), after

    def arranged(self, samples: Any, copies: int) -> Any:
        """Return the samples of a rollout of so many copies in the form from which minibatches are `drawn`.

        Samples are a named tuple of tensors ``[T N, …]``. Its first field is ``obs``, as from `seen`; its field
        ``valid``, float32, is 0 where there is nothing to learn.

        A recurrent policy gets sequences of `sequence_steps` of one copy, fields ``[L, C, …]``, time-major. The
        sequences of a copy are ``copies`` apart. The last one is filled up with the first steps of the copy, which are
        not valid there; so batch normalization sees nothing but steps of the rollout. Observations are not copied: they
        stay ``[T N, …]``, beside their numbers, int32 ``[L, C]``, by which `drawn` finds them.
        """
        if not self.is_recurrent:
            return samples
        steps = samples.obs.begins.shape[0]
        length = self.sequence_steps(steps)
        count = -(-steps // length)
        filling = count * length - steps

        def cut(x: tf.Tensor, fill: Callable[[tf.Tensor], tf.Tensor] = tf.identity) -> tf.Tensor:
            tail = x.shape[2:]
            x = tf.concat([x, fill(x[:filling])], 0) if filling else x
            x = tf.transpose(tf.reshape(x, [count, length, copies, *tail]), [1, 0, 2, *range(3, 3 + len(tail))])
            return tf.reshape(x, [length, count * copies, *tail])

        numbers = tf.reshape(tf.range(steps * copies), [steps, copies])
        sequences = tf.nest.map_structure(cut, samples.obs._replace(obs=numbers))
        sequences = sequences._replace(obs=(flattened(samples.obs.obs), sequences.obs))

        def cut_flat(x: tf.Tensor, fill: Callable[[tf.Tensor], tf.Tensor] = tf.identity) -> tf.Tensor:
            return cut(tf.reshape(x, [-1, copies, *x.shape[1:]]), fill)

        rest = tf.nest.map_structure(cut_flat, samples._replace(obs=(), valid=()))
        return rest._replace(obs=sequences, valid=cut_flat(samples.valid, tf.zeros_like))

    def drawn(self, arranged: Any, rows: tf.Tensor) -> Any:
        """Return a minibatch, fields ``[B, …]``; a recurrent policy gets whole sequences.

        ``valid`` is None where everything is valid, as without sequences.

        Args:
            arranged: a result of `arranged`.
            rows: int32, the numbers of the transitions or sequences.
        """
        if not self.is_recurrent:
            taken = tf.nest.map_structure(lambda x: tf.gather(x, rows), arranged._replace(valid=()))
            return taken._replace(valid=None)
        whole, numbers = arranged.obs.obs
        arranged = arranged._replace(obs=arranged.obs._replace(obs=numbers))
        found = tf.nest.map_structure(lambda x: tf.gather(x, rows, axis=1), arranged)
        obs = tf.nest.map_structure(lambda x: tf.gather(x, found.obs.obs), whole)
        return type(found)(found.obs._replace(obs=obs), *flattened(tuple(found[1:])))

    # Updates

    def improve(self, rollout: Trajectories, now: dict[str, tf.Tensor], *arrays: Any) -> tf.Tensor:
        """Make a whole iteration, inside the compiled call.

        Args:
            rollout: fields ``[T, N, …]``.
            now: float32, the values of the ``scheduled`` parameters that are not None.
            arrays: further arguments of `iterate`.

        Returns:
            The metrics in the order of ``metric_names``.
        """
        raise NotImplementedError

    @functools.cached_property
    def fused(self) -> PackedCall:
        """The compiled iteration."""

        def iteration(*arguments: Any) -> tf.Tensor:
            return tf.concat([self.improve(*arguments), self.forward.pack()], 0)

        return self.compiled(iteration)

    def update(self, rollout: Trajectories) -> dict[str, float] | None:
        """Make one iteration on a rollout of the current policy, with fields ``[T, N, …]``."""
        return self.iterate(rollout) if rollout.valid.any() else None  # every copy may only have been reset

    def draws(self, valid: np.ndarray, **update_params: Any) -> tuple[np.ndarray, ...]:
        """Draw what `improve` takes besides a rollout, for the parameters of `update`; ``valid`` is bool ``[T, N]``."""
        return ()

    @property
    def improves_in_graph(self) -> bool:
        """Whether an iteration may be traced into a call with the steps of a compiled environment.

        It may where it is `draws` and then `improve`, without statistics in between, and where XLA compiles it anyway.
        A subclass, or an object, with an ``update`` of its own is called in Python after every rollout.
        """
        cls = type(self)
        own = cls.iterate is not OnPolicy.iterate or _class_with('update', cls) is not _class_with('draws', cls)
        own = own or 'update' in vars(self)
        return not own and self.fused.xla and self.reward_scale is None and not self.statistics

    def traced_iteration(self, rollout: Trajectories, progress: tf.Tensor, *arrays: tf.Tensor) -> tf.Tensor:
        """Make an iteration inside a compiled function; return the metrics in the order of ``metric_names``.

        Args:
            rollout: fields ``[T, N, …]``.
            progress: of the training, float32 ``[]``.
            arrays: from `draws`.
        """
        self.announce(*self.largest_pass(tuple(rollout.valid.shape), *arrays))
        self.trace_progress(progress)
        given = {name: getattr(self, name) for name in self.scheduled}
        now = {name: tensor_at(x, progress) for name, x in given.items() if x is not None}
        return self.improve(rollout, now, *arrays)

    def iterate(self, rollout: Trajectories, *arrays: Any, fresh: Trajectories | None = None) -> dict[str, float]:
        """Prepare an iteration, make it in one compiled call, and take the rollout into the statistics; return metrics.

        Args:
            rollout: fields ``[T, N, …]``.
            arrays: further arguments of `improve`.
            fresh: the part that nothing was learned from before, for the statistics; None: all of it.
        """
        if self.reward_scale is not None:
            done = rollout.terminated | rollout.truncated
            rollout = rollout._replace(reward=self.reward_scale(rollout.reward, done, rollout.valid))
        for optimizer in self.optimizers.values():
            optimizer.set_progress(self.progress)
        given = {name: getattr(self, name) for name in self.scheduled}
        now = {k: np.array(value_at(x, self.progress), np.float32) for k, x in given.items() if x is not None}
        if not self.fused.traces:
            self.announce(*self.largest_pass(rollout.valid.shape, *arrays))
        result = self.fused(rollout, now, *arrays)
        if self.statistics:  # after the update: what was acted on and what was learned from are normalized alike
            fresh = rollout if fresh is None else fresh
            valid = fresh.valid
            self.observe(fresh.obs if valid.all() else spaces.tree_map(lambda x: x[valid], fresh.obs))
        return self.take(result)

    def largest_pass(self, shape: tuple[int, ...], *arrays: Any) -> tuple[int, int, int]:
        """Return what :meth:`announce` takes, for a rollout of shape ``[T, N]`` and the further arguments of `iterate`.

        A step of the optimizer takes a pass forward and one backward.
        """
        rows = int(np.prod(shape))
        some = min(rows, self.rows_at_once)
        if not arrays:
            return rows if self.needs_all else some, 2, some
        batch = arrays[0].shape[-1] * (self.sequence_steps(shape[0]) if self.is_recurrent else 1)
        return batch, 2, some

    @property
    def needs_all(self) -> bool:
        """Whether a gradient needs all samples at once: sequences, and networks that learn moments of batches."""
        return self.is_recurrent or any(network.moving_variables for network in self.networks.values())

    def minibatches(self, valid: np.ndarray, epochs: int, batch_size: int) -> np.ndarray:
        """Draw indices into the ``T N`` transitions, int32 ``[minibatches, size]``; an epoch has each valid one.

        For a recurrent policy they number whole sequences (`arranged`), as many as have ``batch_size`` steps.

        The number of minibatches does not depend on how many transitions are valid: another number would compile the
        update again. So an epoch's last minibatch is filled up from its first.
        """
        if self.is_recurrent:
            steps, copies = valid.shape
            length = self.sequence_steps(steps)
            valid = np.ones(-(-steps // length) * copies, bool)
            if batch_size < length:
                self._warn_once(
                    'batch_size is %d, but a sequence has %d steps: one sequence in each gradient step.',
                    batch_size,
                    length,
                )
            batch_size = max(1, min(batch_size // length, valid.size))
        size = min(batch_size, valid.size)
        if size < batch_size:
            self._warn_once(
                'batch_size is %d, but an iteration has %d transitions: one minibatch of these.', batch_size, size
            )
        rows = np.flatnonzero(valid)
        found = np.empty((epochs, -(-valid.size // size) * size), np.int32)
        for epoch in found:
            epoch[:] = np.resize(self.rng.permutation(rows), epoch.size)
        return found.reshape(-1, size)

    def _warn_once(self, message: str, *values: Any) -> None:
        if message not in self._told:
            self._told.add(message)
            log.warning(message, *values)

    def moments(self) -> dict[str, RunningMoments]:
        scale = {} if self.reward_scale is None else {'reward': self.reward_scale.moments}
        return super().moments() | scale

    def episodes_restarted(self, copies: slice | None = None) -> None:
        if self.reward_scale is not None:
            self.reward_scale.reset(copies)


def _class_with(name: str, cls: type) -> type:
    """Return the class that an attribute comes from."""
    return next(base for base in cls.__mro__ if name in vars(base))


def flattened(structure: Any) -> Any:
    """Reshape each tensor of a structure from ``[T, N, …]`` to ``[T N, …]``."""
    return tf.nest.map_structure(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), structure)
