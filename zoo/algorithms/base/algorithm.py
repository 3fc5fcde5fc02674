"""What an algorithm is: the class that every one of them is a subclass of.

How its parameters are checked is in :mod:`zoo.algorithms.base.checking`, how its networks come about in
:mod:`zoo.algorithms.base.building`, how many updates become one compiled call in :mod:`zoo.algorithms.base.updating`,
what
``learn`` checks and does in :mod:`zoo.algorithms.base.learning`, and what is saved in
:mod:`zoo.algorithms.base.saving`. The
contract of an algorithm is :class:`zoo.common.training.agent.Agent`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import tensorflow as tf
from gymnasium import Env
from gymnasium.spaces import Box, Space
from gymnasium.vector import VectorEnv

from zoo.algorithms.base import building, catalog, learning, playing, saving, summary, updating
from zoo.algorithms.base.parameters import Parameterized
from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.acting.forward import Forward
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import Preprocess, check_mask, features, mask_path
from zoo.common.maths.normalize import RunningMoments
from zoo.common.maths.optimizers import AllReduce, Optimizer
from zoo.common.networks import copies, remembered
from zoo.common.networks.heads import Head
from zoo.common.networks.network import Network
from zoo.common.networks.policy import StochasticPolicy
from zoo.common.networks.trials import compiles_by_xla
from zoo.common.parameters import ActionSpace, NetList, ObservationSpace, OptimizersList
from zoo.common.records import Batch, SequenceBatch, TestResult, TrainingResult, Trajectories
from zoo.common.replay.replay import Replay
from zoo.common.rollouts.rollout import EvaluatedRollout, Player, Rollout
from zoo.common.sampling import Sampling
from zoo.common.tools import seeding
from zoo.common.tools.compilation import PackedCall, prefers_xla, set_threads
from zoo.common.tools.errors import InvalidType, InvalidValue, unknown
from zoo.common.training import checkpoint
from zoo.common.training.training import Training

Self = TypeVar('Self', bound='Algorithm')


class Algorithm(Parameterized):
    """A deep reinforcement learning agent; see :class:`zoo.common.training.agent.Agent`, whose attributes it has.

    A subclass gives its class attributes, a constructor, and ``update``. Its parameters are those of the constructor's
    signature: checked before it runs, kept under their names, and fixed from then on, since they are compiled in.

    Attributes:
        net_list, optimizers_list: the entries that the networks and optimisers were made of.
        phases: how many updates differ in what they do (TD3's delayed actor) before they repeat. ``update`` is told
            which one it is while it is compiled: a branch taken at run time costs more than it saves.
        all_reduce: where several learners are one, their exchange; see :meth:`learn_together`.
        loop_state: of a checkpoint that was written in mid-training: ``steps`` behind it and ``train_steps``.
        saved_buffer: the arrays of a loaded replay buffer, until training takes them.
        is_training: whether ``learn`` is under way.
        player: this agent, as the rollouts that it plays know it.
        plays: the environments that :meth:`rollout` goes on in, by their identity.

    Args:
        observation_space, action_space: of one copy of the environment.
        normalize_obs: normalise vector observations by their running mean and standard deviation.

    Raises:
        ValueError: an unknown parameter or a value out of its range, a space that this algorithm cannot act in, a
            network that does not fit.
    """

    #: Kinds of action space that it acts in.
    acts_in: ClassVar[tuple[str, ...]]
    #: Whether actions are squashed by tanh, which needs bounds.
    squash: ClassVar[bool] = False
    #: Names of the networks in ``net_list`` and of the optimizers in ``optimizers_list``, in order.
    network_names: ClassVar[tuple[str, ...]]
    optimizer_names: ClassVar[tuple[str, ...]]
    #: Spec of each network where ``net_list`` is not given, and of each optimizer where ``optimizers_list`` is not.
    default_network: ClassVar[dict[str, Any]] = {}
    default_optimizer: ClassVar[dict[str, Any]] = {}
    #: Networks that may stand on the torso of another one, and by default do where the observation has images.
    shared_torso: ClassVar[dict[str, str]] = {}
    #: Whether it learns with networks that are recurrent over the steps of the environment.
    recurrent: ClassVar[bool] = False
    #: What ``update`` reports.
    metric_names: ClassVar[tuple[str, ...]]

    observation_space: ObservationSpace
    action_space: ActionSpace
    net_list: NetList = None
    optimizers_list: OptimizersList = None
    #: Whether observations are normalized; an algorithm that leaves the choice to its user declares it as a field.
    normalize_obs = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.is_whole() and cls.loop.experience == 'steps' and cls.sampling is Algorithm.sampling:
            raise InvalidType(
                f'{cls.__name__} learns from a replay buffer, but does not say how transitions are drawn from it: give '
                'it a property sampling, such as one that returns Sampling(self.gamma).'
            )

    def __init__(self, *args: Any, **params: Any) -> None:
        self.take_parameters(args, params)
        type(self).check_action_space(self.action_space)
        set_threads(any(item.kind == 'image' for item in features(self.observation_space)))
        self.action_adaptor = ActionAdaptor(self.action_space, type(self).squash)
        check_mask(self.observation_space, self.action_adaptor)
        self.statistics = {
            item.path: RunningMoments(item.size)
            for item in features(self.observation_space, self.normalize_obs)
            if item.normalize
        }
        self.preprocess = Preprocess(self.observation_space, self.statistics)
        self.mask_path = mask_path(self.observation_space) if self.action_adaptor.maskable else None
        self.networks: dict[str, Network] = {}
        self.optimizers: dict[str, Optimizer] = {}
        self.behavior: Behavior
        self.state_variables: dict[str, tf.Variable] = {}
        self.replay: Replay | None = None
        self.priorities: np.ndarray | None = None
        self.all_reduce: AllReduce | None = None
        self.steps = 0
        self.updates = 0
        self.phases = 1
        self.progress = 0.0
        self.rng = seeding.generator(None, 'agent')
        self.noise_seed = tf.Variable(self._draw_noise_seed(), dtype=tf.int32)
        self.state_variables['noise_seed'] = self.noise_seed
        self.loop_state: dict[str, int] | None = None
        self.saved_buffer: Mapping[str, np.ndarray] | None = None
        self.is_training = False
        self.player = Player(self.observation_space, self.action_space, self)
        self.plays: dict[int, playing.Play] = {}
        self.build()
        self.is_built = True

    def build(self) -> None:
        """Make the networks, targets and optimizers, and ``behavior``, how the agent explores."""
        raise NotImplementedError

    def __repr__(self) -> str:
        weights = sum(int(np.prod(v.shape)) for network in self.networks.values() for v in network.trainable_variables)
        return (
            f'<{type(self).__name__} from {spaces.describe(self.observation_space)} to '
            f'{spaces.describe(self.action_space)}: {weights:,} weights, {self.steps:,} steps>'
        )

    # Spaces

    @classmethod
    def check_action_space(cls, space: Space) -> None:
        """Refuse an action space that this algorithm cannot act in.

        Raises:
            ValueError: one sentence that names the algorithms that can.
        """
        kind = type(space).__name__
        if kind not in cls.acts_in:
            able = [name for name in catalog.NAMES if kind in catalog.find(name).acts_in]
            raise InvalidValue(
                f'{cls.__name__} cannot act in {spaces.describe(space)}; '
                + (f'use {" or ".join(able)}.' if able else 'no algorithm here can.')
            )
        if cls.squash and not ActionAdaptor(space).bounded:
            boxes = [leaf for leaf in spaces.leaves(space).values() if isinstance(leaf, Box)]
            low, high = min(box.low.min() for box in boxes), max(box.high.max() for box in boxes)
            raise InvalidValue(
                f'{cls.__name__} needs a Box with finite bounds, but this one reaches from {low} to '
                f'{high}: wrap the environment in gymnasium.wrappers.ClipAction with bounds, or use PPO.'
            )

    @classmethod
    def check_recurrent(cls, label: str) -> None:
        """Refuse a recurrent network, if this algorithm cannot learn with one.

        Raises:
            ValueError: one sentence, which begins with ``label``, that names the algorithms that can.
        """
        if not cls.recurrent:
            able = [name for name in catalog.NAMES if catalog.find(name).recurrent]
            raise InvalidValue(
                f'{label} is recurrent, which {cls.__name__} cannot learn with: use {" or ".join(able)}, or see the '
                'last observations at once by build_env(…, frame_stack=4).'
            )

    # Construction: what a subclass calls

    def build_networks(self, heads: Sequence[Head]) -> None:
        """Fill ``self.networks``: one entry of ``net_list`` for each of ``network_names``.

        Args:
            heads: what each network has to give.
        """
        cls = type(self)
        names = self.network_names
        entries = building.entries('net_list', self.net_list, self.default_network, names, cls.__name__)
        self.net_list = building.with_dtypes(entries, names)
        named = dict(zip(names, heads, strict=True))
        self.networks = building.networks(self.net_list, named, self.preprocess, cls.shared_torso)
        for i, (name, network) in enumerate(self.networks.items()):
            if network.state_size:
                cls.check_recurrent(building.label(i, name))

    def build_target(self, name: str) -> Network:
        """A second network like ``self.networks[name]``, with the same weights: its target."""
        assert self.net_list is not None
        i = self.network_names.index(name)
        target = copies.target_of(self.networks[name], self.net_list[i], building.label(i, name))
        for j, variable in enumerate(target.variables):
            self.state_variables[f'target/{name}/{j}'] = variable
        return target

    def build_optimizers(self, groups: Sequence[list[tf.Variable]], clip_norm: float | None = None) -> None:
        """Fill ``self.optimizers``: one entry of ``optimizers_list`` for each list of variables.

        Args:
            groups: the variables that each optimizer moves.
            clip_norm: bound of the gradient's global norm where an entry names none.
        """
        cls = type(self)
        names = cls.optimizer_names
        entries = building.entries('optimizers_list', self.optimizers_list, self.default_optimizer, names, cls.__name__)
        self.optimizers_list = entries
        named = dict(zip(names, groups, strict=True))
        self.optimizers = building.optimizers(entries, named, clip_norm)
        for optimizer in self.optimizers.values():
            for network in self.networks.values():
                optimizer.constrain(network.constraints)
                if {id(v) for v in network.trainable_variables} & {id(v) for v in optimizer.variables}:
                    optimizer.share(network.moving_variables)

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """Every weight that an optimiser moves."""
        return [variable for optimizer in self.optimizers.values() for variable in optimizer.variables]

    def weights_are_finite(self) -> bool:
        """Whether every weight that an optimiser moves is a finite number."""
        return all(np.isfinite(variable.numpy()).all() for variable in self.trainable_variables)

    # Updates: what a subclass gives, and what the loops call

    def episodes_restarted(self, copies: slice | None = None) -> None:
        """Called when every copy of the environment, or these of them, have been reset; for what an algorithm keeps
        along an episode."""

    def moments(self) -> dict[str, RunningMoments]:
        """The running statistics that are state, by name; a subclass adds its own."""
        return {f'obs/{path}': moments for path, moments in self.statistics.items()}

    @property
    def sampling(self) -> Sampling:
        """How transitions are drawn from the replay buffer. An algorithm that learns from one says it here."""
        raise NotImplementedError

    @property
    def perturbations(self) -> tuple[int, float]:
        """Of an algorithm that learns from perturbed parameters: their number in each update, standard deviation."""
        raise NotImplementedError

    def update_on(self, batches: Batch | SequenceBatch) -> dict[str, float]:
        """``K`` updates in one compiled call, on batches whose fields are ``[K, …]``; the last one's metrics."""
        if self.statistics:
            self.observe(batches.obs)
        for optimizer in self.optimizers.values():
            optimizer.set_progress(self.progress)
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
        """An update, compiled by XLA where that is faster and can be, which the exchange with other learners cannot."""
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
        *priorities, metrics = updating.updates(update, batches, self.phases, phase, kinds)
        return tf.concat([*(tf.reshape(x, [-1]) for x in priorities), metrics[-1], self.forward.pack()], 0)

    def stack_metrics(self, metrics: dict[str, tf.Tensor]) -> tf.Tensor:
        """Metrics as one vector in the order of ``metric_names``: reading one tensor is cheaper than reading each."""
        return tf.stack([tf.cast(metrics[name], tf.float32) for name in self.metric_names])

    def take(self, result: np.ndarray) -> dict[str, float]:
        """Split what a compiled update gave: metrics by name, and the weights for acting."""
        count = len(self.metric_names)
        self.forward.unpack(result[count:])
        return dict(zip(self.metric_names, result[:count].tolist(), strict=True))

    def observe(self, obs: spaces.Flat | Rollout) -> None:
        """Take observations into the running statistics of ``normalize_obs``: flat ones, or those of a rollout.

        A training loop of the user's own calls it after the update of each rollout: the statistics move by nothing
        else, so that what was acted on and what is learned from are normalised alike.
        """
        if isinstance(obs, Rollout):
            obs = obs.flat().obs
        for path, moments in self.statistics.items():
            moments.update(obs[path] if path else obs)

    def replay_for(self, capacity: int, num_envs: int, compress: bool = False) -> Replay:
        """The replay buffer, with what earlier training or a checkpoint left in it.

        Raises:
            ValueError: that was of another capacity; or there are no images to compress.
            ImportError: what compresses them is not installed.
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
            made = Replay(
                self.observation_space, self.action_adaptor, capacity, num_envs, self.sampling, compress=compress
            )
            if self.saved_buffer is not None:
                made.restore(self.saved_buffer)
            self.replay, self.saved_buffer = made, None
        kept = self.replay
        if kept.added:
            kept.cut()
        return kept

    def learn_together(self, all_reduce: AllReduce | None) -> None:
        """Learn as one with other processes that have the same weights, from now on; None: alone again.

        Every gradient becomes the mean over the learners, every running statistic that of all that they have seen, and
        the moving statistics of batch normalisation, which has its moments from each learner's own batch, their mean.

        Args:
            all_reduce: ``all_reduce(array, op)``, the mean or the sum (``op``) of an array over the learners, in which
                every one of them takes part.
        """
        for optimizer in self.optimizers.values():
            optimizer.all_reduce = all_reduce
        for moments in self.moments().values():
            moments.all_reduce = all_reduce
        self.all_reduce = all_reduce
        self.__dict__.pop('fused', None)  # compiled for the one way or the other

    # Acting

    @property
    def forward(self) -> Forward:
        """The forward pass for acting."""
        return cast(Forward, self.behavior.forward)  # an algorithm has TensorFlow

    def act(self, obs: spaces.Flat, deterministic: bool = False) -> spaces.Flat:
        """Stored actions ``[N, …]`` for flat observations ``[N, …]``; exploring unless ``deterministic``."""
        return self.behavior(obs, self.rng, self.progress, deterministic)

    def random_action(self, obs: spaces.Flat) -> spaces.Flat:
        """Uniformly random stored actions for flat observations ``[N, …]``, of the allowed ones if masked."""
        return self.behavior.explore(obs, self.rng, self.progress)

    def draw_seed(self) -> int:
        """A seed for the environment from the agent's own stream."""
        return int(self.rng.integers(2**31 - 1))

    def reseed(self, seed: int | None, stream: str) -> None:
        """Draw batches, noise and what layers drop from a stream of its own, unlike an agent with the same state."""
        self.rng = seeding.generator(seed, stream)
        self.noise_seed.assign(self._draw_noise_seed())
        for network in self.networks.values():
            for state in network.random_variables:  # a seed and a counter
                state.assign(np.array([self.rng.integers(2**31 - 1), 0], state.dtype.as_numpy_dtype))

    def _draw_noise_seed(self) -> np.ndarray:
        return self.rng.integers(2**31 - 1, size=2, dtype=np.int32)

    # The user's interface

    def learn(
        self,
        env: Env | VectorEnv | None = None,
        mode: str = 'train',
        render: bool = False,
        seed: int | None = None,
        plot_func: Callable[[Sequence[float]], Any] | None = None,
        callbacks: Iterable[Callable[[Training], bool | None]] = (),
        run_dir: str | os.PathLike[str] | bool | None = None,
        **learn_params: Any,
    ) -> TrainingResult | TestResult:
        """Train or test in an environment.

        Args:
            env: a Gymnasium environment or vector environment with the agent's spaces.
            mode: ``'train'`` or ``'test'``.
            render: call ``env.render()`` after every step; build the environment with ``render_mode='human'``.
            seed: of this call's randomness: in training exploration, batches and the environment, in a test the
                environment alone. A later training with the same seed goes on with new numbers. None goes on with the
                agent's own.
            plot_func: called with all returns so far whenever a row is logged.
            callbacks: called with the :class:`zoo.common.training.training.Training` whenever a row is logged, or
            every so many
                steps; one that returns False stops the training. Those of :mod:`zoo.callbacks`, or your own.
            run_dir: where to write; None makes a new directory in ``$ZOO_RUNS`` or ``runs``; False writes nothing.
            learn_params: see :meth:`learn_params`. ``train_steps`` counts the steps of this call; with ``resume`` those
                of the interrupted one, which it ends if it is given.

        Returns:
            A :class:`zoo.common.records.TrainingResult`, or a :class:`zoo.common.records.TestResult` with one entry per
            episode.

        Raises:
            ValueError: an unknown mode or parameter, a value out of its range, or an environment with other spaces.
            FloatingPointError: an observation, reward or loss became NaN or infinite; the last checkpoint stays.
            zoo.distributed.ClusterError: with roles: another rank has failed; the message has its error.
        """
        return learning.learn(self, env, mode, render, seed, plot_func, callbacks, run_dir, learn_params)

    def predict(self, obs: Any, deterministic: bool = True, state: Any = None) -> Any:
        """The action for one observation or a batch of them, in the environment's own form.

        Args:
            obs: an element of the observation space, or a batch of them stacked on a first axis.
            deterministic: the policy's mode rather than a sample.
            state: of a recurrent policy the state before the step, float32 ``[N, S]``: what `initial_state` gives where
                episodes begin, and from then on what this has returned; None begins new episodes and forgets them.

        Returns:
            The action or batch of actions; with ``state``, the pair of it and the new state.

        Raises:
            ValueError: an observation of another shape than the space declares, or a value that is not in it; a state
                of another shape than `initial_state` gives for as many observations.
        """
        flat, is_batch = spaces.as_batch(self.observation_space, obs)
        self.preprocess.check_values(flat)
        self.forward.refresh()  # the weights may have been set since
        if self.behavior.state_size:
            before = self.initial_state(spaces.count(flat))
            if state is not None:
                given = np.asarray(state, np.float32)
                if given.shape != before.shape:
                    raise InvalidValue(
                        f'the state has shape {given.shape}, but {len(before)} observations need {before.shape}: begin '
                        f'with agent.initial_state({len(before)}) and hand on what predict returns.'
                    )
                before = given
            action, after = self.behavior.step(flat, before, self.rng, self.progress, deterministic)
            state = None if state is None else after
        else:
            action, _ = self.behavior.step(flat, self.initial_state(), self.rng, self.progress, deterministic)
        found = self.action_adaptor.to_env(action) if is_batch else self.action_adaptor.to_single_env(action)
        return found if state is None else (found, state)

    def initial_state(self, count: int = 1) -> np.ndarray:
        """The recurrent state with which ``count`` episodes begin: zeros, float32 ``[count, S]``.

        ``S`` is 0 where no network is recurrent. In a loop over episodes::

            state = agent.initial_state()
            action, state = agent.predict(obs, state=state)

        With several copies of the environment, ``state[done] = 0`` begins anew those whose episode has ended.
        """
        return np.zeros((count, self.behavior.state_size), np.float32)

    def summary(self) -> summary.Summary:
        """What this agent is: spaces, how each part is encoded, networks with shapes and numbers of weights, the
        action's distribution, optimizers, and the parameters that differ from their defaults.

        To be printed; in a notebook it shows as tables.
        """
        return summary.summarize(self)

    # A training loop of the user's own

    def rollout(
        self,
        env: Env | VectorEnv,
        steps: int | None = None,
        episodes: int | None = None,
        deterministic: bool = False,
        seed: int | None = None,
    ) -> Rollout:
        """Play in an environment and hand over what happened, to compute with and to learn from by hand.

        With ``steps`` a call goes on where the last one stopped in the same environment, in the middle of episodes,
        unless somebody else has begun new ones there in the meantime, as ``learn`` and a call with ``episodes`` do.
        With ``episodes`` and with a ``seed`` new episodes begin in every copy. The agent acts with its weights of now,
        and explores as it does at ``progress`` (of which learning rates that are scheduled are told, too), but neither
        ``steps`` nor running statistics move: see :meth:`observe`.

        Args:
            env: a Gymnasium environment or vector environment with the agent's spaces.
            steps: steps of the environment, summed over copies, and rounded up to whole steps of all of them.
            episodes: whole episodes instead, of which each copy plays its share, so that there are not more short ones
                than there should be; where a copy has played its share, rows are not valid.
            deterministic: without exploration; ``log_prob`` is None then.
            seed: of the environment and of the actions; None goes on with what both have.

        Returns:
            A :class:`zoo.Rollout`, ordered, ``[T, N, …]``.

        Raises:
            ValueError: both of ``steps`` and ``episodes`` or none, an environment with other spaces, or one that is
                being trained on.
        """
        return playing.rollout(self, env, steps, episodes, deterministic, seed)

    def evaluate(self, rollout: Rollout, training: bool = False) -> EvaluatedRollout:
        """What the agent thinks now of a rollout: log-probabilities, entropies, values; gradients flow through them.

        To be called inside a ``tf.GradientTape`` for those, with or without a ``tf.function`` around it.

        Args:
            rollout: what :meth:`rollout` gave, or a part of it.
            training: networks in training mode, for what a loss is computed of: dropout drops, batch normalisation
                learns, and ``penalty`` is what they add to the loss.

        Returns:
            Tensors with the leading axes of the rollout, see :class:`zoo.common.rollouts.rollout.EvaluatedRollout`.

        Raises:
            ValueError: a rollout of other spaces, or an algorithm without a stochastic policy.
        """
        return playing.evaluate(self, rollout, training)

    def policy_and_value(self, obs: spaces.Flat, training: bool = False) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Parameters of the policy's distribution ``[B, …]``, and values of states ``[B]`` where there is a critic."""
        return self._stochastic_policy()(obs, training), None

    def _stochastic_policy(self) -> StochasticPolicy:
        policy = getattr(self, 'policy', None)
        if not isinstance(policy, StochasticPolicy):
            raise InvalidValue(
                f'{type(self).__name__} has no stochastic policy whose probabilities could be evaluated: use an '
                'algorithm that has one, such as PPO or SAC.'
            )
        return policy

    def policy_and_value_along(self, steps: Trajectories, training: bool = False) -> tuple[tf.Tensor, tf.Tensor | None]:
        """The same ``[T N, …]`` of steps in their order, with fields ``[T, N, …]``."""
        rows = spaces.tree_map(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), steps.obs)
        if not self.behavior.state_size:
            return self.policy_and_value(rows, training)
        policy = self._stochastic_policy()
        encoded, _ = policy.network.encode_sequence(steps.obs, steps.state, steps.begins, training)
        return policy.complete(policy.network.from_torso(encoded), rows), None

    @property
    def values_states(self) -> bool:
        """Whether there is a critic of states, so that `values_of` gives their values."""
        return False

    def values_of(self, steps: Trajectories) -> tuple[tf.Tensor, tf.Tensor]:
        """V of the states before and after each step, both ``[T, N]``, where there is a critic of states.

        Args:
            steps: fields ``[T, N, …]``; where one was truncated the next one belongs to another episode.
        """
        raise NotImplementedError

    def apply_gradients(self, gradients: Sequence[tf.Tensor | None]) -> None:
        """One step of every optimiser; ``rollout``, ``predict`` and ``learn`` act with the new weights from then on.

        Args:
            gradients: of ``trainable_variables``, in that order; a missing one counts as zero.

        Raises:
            ValueError: another number of gradients, or none at all; one of a variable that no optimiser moves, as of
                the policy of TRPO.
        """
        given = list(gradients)
        if len(given) != len(self.trainable_variables):
            raise InvalidValue(
                f'{len(given)} gradients were given for {len(self.trainable_variables)} variables: take those of '
                'agent.trainable_variables, tape.gradient(loss, agent.trainable_variables).'
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

    def save(
        self, path: str | os.PathLike[str], buffer: bool = False, loop_state: dict[str, int] | None = None
    ) -> Path:
        """Write a checkpoint, a folder, whole or not at all.

        Args:
            path: the folder.
            buffer: save the replay buffer too, so that training goes on exactly where it was.
            loop_state: where in a call of ``learn`` this is; the loops give it.

        Raises:
            CheckpointError: the path is something else, or the disk is full or refuses.
        """
        return saving.save(self, path, buffer, loop_state)

    @classmethod
    def load(
        cls: type[Self],
        path: str | os.PathLike[str],
        net_list: Sequence[Any] | None = None,
        optimizers_list: Sequence[Any] | None = None,
    ) -> Self:
        """The agent that was saved at ``path``: a checkpoint, or a run directory, whose newest checkpoint is taken.

        Args:
            path: the folder.
            net_list: networks of the same shapes, needed where the saved agent had networks defined in Python.
            optimizers_list: likewise for Keras optimisers.

        Raises:
            CheckpointError: the checkpoint is missing, damaged, newer than this library, or of another algorithm.
            ValueError: the saved agent had networks of the user's own and ``net_list`` is missing or does not fit.
        """
        found, saved = saving.read(path, cls.__name__)
        return saving.load(cls, saved, found, net_list, optimizers_list)

    def config(self) -> dict[str, Any]:
        """Algorithm, spaces and hyper-parameters as plain data; networks given as objects by their class name."""
        return saving.config(self)

    def __deepcopy__(self: Self, memo: dict[int, Any]) -> Self:
        """A twin: it predicts the same and trains as this one would, with networks, optimisers and replay of its own.

        Raises:
            ValueError: a network that cannot be copied.
        """
        return saving.twin(self, memo)

    # What other processes take

    def blueprint(self) -> tuple[type[Algorithm], dict[str, Any]]:
        """Class and arguments of an agent like this one, with new weights; they can be pickled if the networks can."""
        return saving.blueprint(self)

    def state(self) -> dict[str, np.ndarray]:
        """Every weight, optimiser state and statistic, and the counters: what :meth:`restore_state` takes."""
        return saving.arrays(self) | {'steps': np.array(self.steps), 'updates': np.array(self.updates)}

    def restore_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Be in the state that `state` found in an agent with the same networks."""
        self.steps, self.updates = int(state['steps']), int(state['updates'])
        saving.assign(self, state)


def load(
    path: str | os.PathLike[str], net_list: Sequence[Any] | None = None, optimizers_list: Sequence[Any] | None = None
) -> Algorithm:
    """The agent that was saved at ``path``, of whatever algorithm; otherwise as :meth:`Algorithm.load`.

    Raises:
        CheckpointError: the checkpoint is missing, damaged, newer than this library, or of an algorithm unknown here.
        ValueError: the saved agent had networks of the user's own and ``net_list`` is missing or does not fit.
    """
    found, saved = saving.read(path, None)
    name = saved.config.get('algorithm')
    if name not in catalog.NAMES:
        raise checkpoint.CheckpointError(f"'{found}' cannot be loaded: {unknown('algorithm', name, catalog.NAMES)}")
    return saving.load(catalog.find(name), saved, found, net_list, optimizers_list)
