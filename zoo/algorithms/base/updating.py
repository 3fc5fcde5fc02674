"""How an agent is updated: many updates in one compiled call, running statistics, other learners, given gradients."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import tensorflow as tf
from gymnasium.spaces import Space

from zoo.algorithms.base import saving
from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.acting.forward import Forward
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.maths.normalize import Collected, RunningMoments
from zoo.common.maths.optimizers import AllReduce, Optimizer
from zoo.common.networks import remembered
from zoo.common.networks.memory import update_bytes
from zoo.common.networks.network import Network, compiles_by_xla
from zoo.common.records import Batch, SequenceBatch
from zoo.common.replay.replay import Replay
from zoo.common.replay.tensor_ring import TensorRing
from zoo.common.rollouts.rollout import Rollout
from zoo.common.rollouts.rollout_buffer import ANNOUNCE_BYTES
from zoo.common.sampling import Sampling
from zoo.common.schedules import Linear
from zoo.common.tools.compilation import PackedCall, prefers_xla
from zoo.common.tools.errors import InvalidValue
from zoo.common.training.agent import Agent

log = logging.getLogger('zoo')


class Updating:
    """The part of :class:`zoo.algorithms.base.Algorithm` that moves weights and running statistics.

    Attributes:
        phases: how many updates in a row differ in what they do, as with TD3's delayed actor. ``update`` is told the
            phase while it is compiled: a branch taken at run time costs more than it saves.
        noise_seed: int32 ``[2]``, the seed of the random numbers in an update.
        all_reduce: the exchange with other learners; see :meth:`learn_together`.
        ring: the replay buffer of a training in a compiled environment; it is not saved.
        saved_buffer: the arrays of a loaded replay buffer, until training takes them.
        learned: the weights that training goes on with, while the networks have their mean; None: the networks do.
    """

    network_names: ClassVar[tuple[str, ...]]
    #: What ``update`` reports.
    metric_names: ClassVar[tuple[str, ...]]

    observation_space: Space
    action_adaptor: ActionAdaptor
    behavior: Behavior
    networks: dict[str, Network]
    optimizers: dict[str, Optimizer]
    statistics: dict[str, RunningMoments]
    unread: set[str]
    replay: Replay | None
    ring: TensorRing | None = None
    saved_buffer: Mapping[str, np.ndarray] | None
    learned: dict[str, np.ndarray] | None
    priorities: np.ndarray | None
    all_reduce: AllReduce | None
    noise_seed: tf.Variable
    steps: int
    data_steps: int
    updates: int
    phases: int
    progress: float

    # What an algorithm says

    def update(self, *args: Any, **kwargs: Any) -> Any:
        """Learn from a rollout, or from a batch inside the compiled call.

        :class:`zoo.common.training.agent.Agent` says what each loop gives to it. Where it is given rollouts, its
        keyword-only parameters are parameters of ``learn``.
        """
        raise NotImplementedError

    @property
    def sampling(self) -> Sampling:
        """How transitions are drawn from the replay buffer. An algorithm that learns from one has to say it."""
        raise NotImplementedError

    @property
    def perturbations(self) -> tuple[int, float]:
        """How many perturbations of the parameters an update learns from, and their standard deviation."""
        raise NotImplementedError

    def moments(self) -> dict[str, RunningMoments]:
        """Return the running statistics that are state, by name; a subclass adds its own."""
        return {f'obs/{path}': moments for path, moments in self.statistics.items()}

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """Every weight that an optimizer moves."""
        return [variable for optimizer in self.optimizers.values() for variable in optimizer.variables]

    @property
    def forward(self) -> Forward:
        """The forward pass for acting."""
        return cast(Forward, self.behavior.forward)  # an algorithm has TensorFlow

    # Many updates in one compiled call

    def see_rewards(self, rewards: np.ndarray) -> None:
        """Look at rewards of any shape before they are learned from; an algorithm may warn of them."""

    def update_on(self, batches: Batch | SequenceBatch) -> dict[str, float]:
        """Make ``K`` updates in one compiled call, on batches with fields ``[K, …]``; return the last one's metrics."""
        for optimizer in self.optimizers.values():
            optimizer.set_progress(self.progress)
        if not self.fused.traces:
            self.announce(self.observations_at_once(batches), 3)  # one of them is a target's
        self.see_rewards(batches.reward)
        phase = self.updates % self.phases
        self.updates += len(batches.reward)
        result = self.fused(batches, static=(phase,))
        if self.sampling.priorities is not None:
            count = batches.weight.size
            self.priorities, result = result[:count].reshape(batches.weight.shape), result[count:]
        return self.take(result)

    @functools.cached_property
    def fused(self) -> PackedCall:
        """The compiled update."""
        return self.compiled(self._updates)

    def compiled(self, function: Callable[..., tf.Tensor]) -> PackedCall:
        """Compile an update, by XLA where that is faster and works; it does not with other learners."""
        xla = self.all_reduce is None and prefers_xla(self.trainable_variables)
        return PackedCall(function, xla and all(compiles_by_xla(network) for network in self.networks.values()))

    def _updates(self, batches: Batch | SequenceBatch, phase: int) -> tf.Tensor:
        sampling = self.sampling
        prioritized = sampling.priorities is not None

        def update(batch: Batch | SequenceBatch, phase: int) -> tuple[tf.Tensor, ...]:
            self.noise_seed.assign_add([0, 2])  # two streams an update: seed and seed + 1
            known = {'phase': phase} if self.phases > 1 else {}
            given = batch
            if isinstance(given, SequenceBatch):
                assert sampling.sequences is not None
                batch = remembered.rows_of(given, sampling.sequences.burn_in, self.network_names[0])
            found = self.update(batch, self.noise_seed + 0, **known)
            metrics = self.stack_metrics(found)
            if not prioritized:
                return (metrics,)
            priority = found['priority']
            if isinstance(given, SequenceBatch):
                priority = remembered.of_sequences(tf.reshape(priority, given.valid.shape), given.valid)
            return priority, metrics

        kinds = [tf.TensorSpec(batches.weight.shape[1:])] if prioritized else []
        kinds.append(tf.TensorSpec([len(self.metric_names)]))
        *priorities, metrics = updates(update, batches, self.phases, phase, kinds)
        return tf.concat([*(tf.reshape(x, [-1]) for x in priorities), metrics[-1], self.forward.pack()], 0)

    @functools.cached_property
    def calls(self) -> dict[Any, Callable[..., Any]]:
        """Calls that are compiled together with an environment, by what they were compiled for.

        They outlive a training, so that the next one in the same environment compiles nothing again.
        """
        return {}

    @property
    def improves_in_graph(self) -> bool:
        """Whether iterations on rollouts may be traced into a call with the steps of a compiled environment."""
        return False

    def traced_update(self, batch: Batch, number: tf.Tensor) -> tf.Tensor:
        """Make one update inside a compiled function, on a batch with fields ``[B, …]``; return its metrics.

        ``number``, int32 ``[]``, is how many updates came before. The function holds the steps of an environment, too,
        and decides while it runs how many updates are due; so the phase is known only then.
        """
        self.noise_seed.assign_add([0, 2])

        def update(**phase: int) -> tf.Tensor:
            return self.stack_metrics(self.update(batch, self.noise_seed + 0, **phase))

        if self.phases == 1:
            return update()
        branches = [functools.partial(update, phase=phase) for phase in range(self.phases)]
        return tf.switch_case(number % self.phases, branches)

    def stack_metrics(self, metrics: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return metrics as one vector in the order of ``metric_names``: one tensor is cheaper to read than several."""
        own, names = type(self).__name__, self.metric_names
        for name in names:
            if name not in metrics:
                told = f'metric_names of {own} has {name!r}, which its update does not return'
                raise InvalidValue(f'{told}: return it, or leave it out.')
        for name in metrics:
            if name not in (*names, 'priority'):  # which goes to the replay buffer
                raise InvalidValue(f'the update of {own} returns {name!r}, which metric_names lacks: add it there.')
        return tf.stack([tf.cast(metrics[name], tf.float32) for name in names])

    def take(self, result: np.ndarray) -> dict[str, float]:
        """Split the result of a compiled update: act with its weights, and return its metrics by name."""
        count = len(self.metric_names)
        self.forward.unpack(result[count:])
        return dict(zip(self.metric_names, result[:count].tolist(), strict=True))

    def observations_at_once(self, batches: Batch | SequenceBatch) -> int:
        """Return how many observations one update gives a network at a time."""
        if isinstance(batches, SequenceBatch):
            assert self.sampling.sequences is not None
            _, rows, sequences = batches.begins.shape
            # The burn-in goes before the others, and its outputs may be freed by then or not: R2D2 on large images took
            # 4.1 to 5.2 GB in four runs, where half of the burn-in makes 4.6 and all of it 5.3.
            return (2 * rows - self.sampling.sequences.burn_in) * sequences // 2
        return int(np.prod(batches.reward.shape[1:]))

    def announce(self, rows: int, passes: int, forward: int = 0) -> None:
        """Log the memory of an update, which is there besides stored transitions, if it is large."""
        size = update_bytes(self.networks.values(), rows, passes, forward)
        if size > ANNOUNCE_BYTES:
            log.warning('Updates on %d observations at a time take up to %.2f GB of memory besides.', rows, size / 1e9)

    def network_weights(self) -> dict[str, np.ndarray]:
        """Return the weights of all networks, and what else optimizers move: what :meth:`set_network_weights` takes."""
        return self._read_weights()

    @functools.cached_property
    def _read_weights(self) -> Callable[[], dict[str, np.ndarray]]:
        return saving.reading(cast(Agent, self))

    def set_network_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Act and learn with these `network_weights` from now on."""
        saving.set_weights(cast(Agent, self), weights)

    def weights_are_finite(self) -> bool:
        """Return whether every weight that an optimizer moves is a finite number."""
        learned = (self.learned or {}).values()
        return all(np.isfinite(array).all() for array in (*(v.numpy() for v in self.trainable_variables), *learned))

    # What updates need besides weights

    def observe(self, obs: spaces.Flat | Rollout) -> None:
        """Take observations into the running statistics of ``normalize_obs``.

        A training loop of the user's own calls it after the update of each rollout. Nothing else moves the statistics,
        so that acting and learning normalize alike.
        """
        if isinstance(obs, Rollout):
            obs = obs.flat().obs
        for path, moments in self.statistics.items():
            moments.update(obs[path] if path else obs)

    def collected(self) -> Collected:
        """Return what gathers the moments of collected observations for :meth:`observe_moments`."""
        return Collected({path: moments.mean.size for path, moments in self.statistics.items()})

    @property
    def observed_recordings(self) -> bool:
        """Whether the running statistics include observations of recorded episodes."""
        return any(moments.count > self.steps - self.data_steps for moments in self.statistics.values())

    def observe_moments(self, found: Mapping[str, np.ndarray]) -> None:
        """Take observations into the running statistics by their moments, from :meth:`Collected.take`.

        The loops off policy call it once after new steps: all learners at the same time, also without steps.
        """
        for path, moments in self.statistics.items():
            moments.take(found[path])

    def replay_for(self, capacity: int, num_envs: int, compress: bool = False) -> Replay:
        """Return the replay buffer, with the transitions that earlier training or a checkpoint left in it.

        Raises:
            ValueError: these were kept with another capacity; or there are no images to compress.
            ImportError: the package that compresses images is not installed.
        """
        held = self.replay
        if held is not None and held.capacity != capacity:
            raise InvalidValue(
                f'the replay buffer holds {len(held):,} transitions, with buffer_size={held.capacity}, but now this is '
                f'{capacity}: train on with the same, or forget the buffer first with '
                'agent.replay = agent.saved_buffer = None.'
            )
        if held is not None and (bool(held.compressed), held.num_envs) != (compress, num_envs):
            self.saved_buffer, self.replay = held.state(), None  # and is restored as from a checkpoint
        if self.replay is None:
            space, actions = self.observation_space, self.action_adaptor
            made = Replay(space, actions, capacity, num_envs, self.sampling, compress=compress)
            if self.saved_buffer is not None:
                made.restore(self.saved_buffer)
            self.replay, self.saved_buffer = made, None
        if self.replay.added:
            self.replay.cut()
        return self.replay

    def ring_for(self, capacity: int, num_envs: int) -> TensorRing:
        """Return the replay buffer of tensors, with the transitions that earlier training left in it.

        Raises:
            ValueError: these were kept with another capacity or number of copies.
        """
        if self.ring is None:
            self.ring = TensorRing(self.observation_space, self.action_adaptor, capacity, num_envs)
        if (self.ring.capacity, self.ring.num_envs) != (capacity, num_envs):
            raise InvalidValue(
                f'the replay buffer holds {self.ring.added:,} transitions, with buffer_size={self.ring.capacity} and '
                f'nenv={self.ring.num_envs}, but now these are {capacity} and {num_envs}: train on with the same, or '
                'forget the buffer first with agent.ring = None.'
            )
        self.ring.cut()
        return self.ring

    def scheduled_values(self) -> dict[str, float]:
        """Return the present values of what follows a schedule, by name, such as ``epsilon`` or ``learning_rate/q``."""
        scheduled = {name: value for name, value in vars(self).items() if isinstance(value, Linear)}
        found = {name: value(self.progress) for name, value in scheduled.items() if name not in self.unread}
        for name, optimizer in self.optimizers.items():
            if (rate := optimizer.scheduled_rate(self.progress)) is not None:
                found[f'learning_rate/{name}'] = rate
        return found

    def trace_progress(self, progress: tf.Tensor) -> None:
        """Set scheduled learning rates inside a compiled function; ``progress`` is float32 ``[]``."""
        for optimizer in self.optimizers.values():
            optimizer.trace_progress(progress)

    def learn_together(self, all_reduce: AllReduce | None) -> None:
        """Learn as one with other processes that have the same weights, from now on; None: alone again.

        Every gradient becomes the mean over the learners. Every running statistic covers the observations of all
        learners. Batch normalization takes its moments from each learner's own batch, and its moving statistics are
        the mean over the learners. All learners have to call ``all_reduce(array, op)``; it returns the mean or the sum
        (``op``) of an array over them.
        """
        for optimizer in self.optimizers.values():
            optimizer.all_reduce = all_reduce
        for moments in self.moments().values():
            moments.all_reduce = all_reduce
        self.all_reduce = all_reduce
        self.__dict__.pop('fused', None)  # it was compiled for one way of learning

    def apply_gradients(self, gradients: Sequence[Any]) -> None:
        """Make one step of every optimizer; ``rollout``, ``predict`` and ``learn`` act with the new weights afterwards.

        Args:
            gradients: one for each of ``trainable_variables``, in that order; None counts as zero.

        Raises:
            ValueError: another number of gradients; all of them None; or one of a variable that no optimizer moves, as
                in the policy of TRPO.
        """
        given = list(gradients)
        if len(given) != len(self.trainable_variables):
            raise InvalidValue(
                f'{len(given)} gradients were given for {len(self.trainable_variables)} variables: '
                'take tape.gradient(loss, agent.trainable_variables).'
            )
        if all(gradient is None for gradient in given):
            raise InvalidValue(
                'no gradient reaches any variable: compute the loss from agent.evaluate inside the tf.GradientTape.'
            )
        by_variable = {id(v): gradient for v, gradient in zip(self.trainable_variables, given, strict=True)}
        chosen = [[by_variable.pop(id(v)) for v in optimizer.variables] for optimizer in self.optimizers.values()]
        if any(gradient is not None for gradient in by_variable.values()):
            raise InvalidValue(
                f'{type(self).__name__} has weights that its update moves without an optimizer, and their gradients '
                'cannot be applied: take another algorithm, or a loss of the critic alone.'
            )
        for optimizer, gradients in zip(self.optimizers.values(), chosen, strict=True):
            optimizer.apply(gradients)


def updates(
    update: Callable[..., tuple[tf.Tensor, ...]],
    batches: Batch | SequenceBatch,
    phases: int,
    phase: int,
    kinds: Sequence[tf.TensorSpec],
) -> list[tf.Tensor]:
    """Make ``K`` updates in a row. To be called inside a compiled function.

    Args:
        update: ``update(batch, phase)`` makes one update and gives some tensors.
        batches: fields ``[K, B, …]``.
        phases: the number of different updates that take turns; ``phase`` comes first.
        kinds: shapes and dtypes of the tensors that an update gives; stacked they are ``[K, …]``.
    """
    count = batches.reward.shape[0]
    arrays = tuple(tf.TensorArray(kind.dtype, count, element_shape=kind.shape) for kind in kinds)

    def some(first: Any, count: int, arrays: tuple[tf.TensorArray, ...]) -> tuple[tf.TensorArray, ...]:
        for i in range(count):
            batch = tf.nest.map_structure(lambda x, k=first + i: x[k], batches)
            found = update(batch, (phase + i) % phases)
            arrays = tuple(array.write(first + i, x) for array, x in zip(arrays, found, strict=True))
        return arrays

    rounds, rest = divmod(count, phases)
    if rounds < 2:
        return [array.stack() for array in some(0, count, arrays)]
    _, arrays = tf.while_loop(
        lambda r, _: r < rounds,
        lambda r, arrays: (r + 1, some(r * phases, phases, arrays)),
        (tf.constant(0), arrays),
        parallel_iterations=1,
    )
    return [array.stack() for array in some(rounds * phases, rest, arrays)]
