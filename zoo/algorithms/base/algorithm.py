"""The base class of all algorithms, and what users call.

Its neighbors do the work: ``parameters`` has the hyper-parameters, ``updating`` the updates, ``building`` makes
networks and optimizers; ``learning``, ``playing`` and ``saving`` do what ``learn``, ``rollout`` and ``save`` promise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, overload

import numpy as np
import tensorflow as tf
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.algorithms.base import building, learning, playing, saving, summary
from zoo.algorithms.base.parameters import Parameterized
from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import Preprocess, check_mask, features, mask_path
from zoo.common.maths.normalize import RunningMoments
from zoo.common.maths.optimizers import AllReduce, Optimizer
from zoo.common.networks import copies
from zoo.common.networks.heads import Head
from zoo.common.networks.network import Network
from zoo.common.networks.policy import StochasticPolicy
from zoo.common.parameters import ActionSpace, NetList, ObservationSpace, OptimizersList
from zoo.common.records import TestResult, TrainingResult, Trajectories
from zoo.common.replay.replay import Replay
from zoo.common.rollouts.estimates import EvaluatedRollout
from zoo.common.rollouts.rollout import Player, Rollout
from zoo.common.tools import seeding
from zoo.common.tools.checks import is_integer
from zoo.common.tools.compilation import set_threads
from zoo.common.tools.errors import InvalidValue
from zoo.common.training.agent import COUNTERS
from zoo.common.training.training import Training

Self = TypeVar('Self', bound='Algorithm')


class Algorithm(Parameterized):
    """A deep reinforcement learning agent: what :class:`zoo.common.training.agent.Agent` asks for.

    A subclass has class attributes, hyper-parameters as fields, ``build`` and ``update``. Fields are checked when an
    agent is made, and then fixed, since they are compiled in. "Add an algorithm" in CONTRIBUTING.md has an example.

    Attributes:
        net_list, optimizers_list: the entries from which networks and optimizers were made.
        learned: with ``average_window``, the weights that training reached, by name; the networks have their mean.
        loop_state: from a checkpoint written during training: ``steps`` done and ``train_steps``.
        is_training: whether ``learn`` is running.
        player: this agent, as its rollouts know it.
        plays: the environments in which :meth:`rollout` goes on, by their identity.

    Raises:
        ValueError: an unknown parameter, a value out of its range, a space that this algorithm cannot act in, or a
            network that does not fit.
    """

    #: Names of the networks in ``net_list`` and of the optimizers in ``optimizers_list``, in order.
    network_names: ClassVar[tuple[str, ...]]
    optimizer_names: ClassVar[tuple[str, ...]]
    #: What a spec in ``net_list`` leaves out, so also the spec of each network where ``net_list`` is not given; and
    #: changes for some networks, by name without number: ``{'critic': {'hidden': [2048, 2048]}}``.
    default_network: ClassVar[dict[str, Any]] = {}
    default_networks: ClassVar[dict[str, dict[str, Any]]] = {}
    #: Spec of each optimizer where ``optimizers_list`` is not given.
    default_optimizer: ClassVar[dict[str, Any]] = {}
    #: Networks that may share another's torso; by default they do where observations have images.
    shared_torso: ClassVar[dict[str, str]] = {}

    observation_space: ObservationSpace
    action_space: ActionSpace
    net_list: NetList = None
    optimizers_list: OptimizersList = None
    #: Whether observations are normalized; an algorithm with this choice declares it as a field.
    normalize_obs = False

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
        if not any(item.normalize for item in features(self.observation_space, True)):
            self.warn_of_unread(('normalize_obs',), ', since no observation is a vector of numbers')
        for moments in self.statistics.values():
            _ = moments.variables  # made later, while an update is traced, they would have it traced twice
        self.preprocess = Preprocess(self.observation_space, self.statistics)
        self.mask_path = mask_path(self.observation_space) if self.action_adaptor.maskable else None
        self.networks: dict[str, Network] = {}
        self.optimizers: dict[str, Optimizer] = {}
        self.behavior: Behavior
        self.state_variables: dict[str, tf.Variable] = {}
        self.replay: Replay | None = None
        self.priorities: np.ndarray | None = None
        self.all_reduce: AllReduce | None = None
        self.steps = self.data_steps = 0
        self.updates = 0
        self.phases = 1
        self.progress = 0.0
        self.rng = seeding.generator(None, 'agent')
        self.noise_seed = tf.Variable(self._draw_noise_seed(), dtype=tf.int32)
        self.state_variables['noise_seed'] = self.noise_seed
        self.learned: dict[str, np.ndarray] | None = None
        self.loop_state: dict[str, int] | None = None
        self.saved_buffer: Mapping[str, np.ndarray] | None = None
        self.is_training = False
        self.player = Player(self.observation_space, self.action_space, self)
        self.plays: dict[int, playing.Play] = {}
        self.build()
        building.check_built(self)
        self.is_built = True

    # What an algorithm defines, besides `update`

    def build(self) -> None:
        """Make networks, targets and optimizers, and set ``behavior``, how the agent explores."""
        raise NotImplementedError

    def episodes_restarted(self, copies: slice | None = None) -> None:
        """Forget what is kept along an episode, since all copies of the environment, or these, were reset."""

    def __repr__(self) -> str:
        weights = sum(int(np.prod(v.shape)) for network in self.networks.values() for v in network.trainable_variables)
        return (
            f'<{type(self).__name__} from {spaces.describe(self.observation_space)} to '
            f'{spaces.describe(self.action_space)}: {weights:,} weights, {self.steps:,} steps>'
        )

    # What `build` calls

    def build_networks(self, heads: Sequence[Head]) -> None:
        """Fill ``self.networks``: one entry of ``net_list`` and one head for each of ``network_names``."""
        cls = type(self)
        names = self.network_names
        hint = building.one_for_both(cls.shared_torso)
        entries = building.entries('net_list', self.net_list, {}, names, cls.__name__, hint)
        entries = building.with_pairs(entries, names, cls.shared_torso)
        self.net_list = building.completed(entries, names, cls.network_default)
        named = dict(zip(names, heads, strict=True))
        self.networks = building.networks(self.net_list, named, self.preprocess, cls.shared_torso)
        for i, (name, network) in enumerate(self.networks.items()):
            if network.state_size:
                cls.check_recurrent(building.label(i, name))

    @classmethod
    def network_default(cls, name: str) -> dict[str, Any]:
        return cls.default_network | cls.default_networks.get(name.rstrip('_0123456789'), {})

    def build_target(self, name: str) -> Network:
        """Return a second network like ``self.networks[name]``, with the same weights: its target."""
        assert self.net_list is not None
        i = self.network_names.index(name)
        target = copies.target_of(self.networks[name], self.net_list[i], building.label(i, name))
        for j, variable in enumerate(target.variables):
            self.state_variables[f'target/{name}/{j}'] = variable
        return target

    def build_optimizers(self, groups: Sequence[list[tf.Variable]], clip_norm: float | None = None) -> None:
        """Fill ``self.optimizers``: one entry of ``optimizers_list`` for each list of variables.

        Args:
            groups: the variables of each optimizer.
            clip_norm: bound of the gradient's global norm, unless an entry has its own.
        """
        cls = type(self)
        names = cls.optimizer_names
        entries = building.entries(
            'optimizers_list', self.optimizers_list, dict(self.default_optimizer), names, cls.__name__
        )
        self.optimizers_list = entries
        named = dict(zip(names, groups, strict=True))
        self.optimizers = building.optimizers(entries, named, clip_norm)
        for optimizer in self.optimizers.values():
            for network in self.networks.values():
                optimizer.constrain(network.constraints)
                if {id(v) for v in network.trainable_variables} & {id(v) for v in optimizer.variables}:
                    optimizer.share(network.moving_variables)

    # Acting

    def act(self, obs: spaces.Flat, deterministic: bool = False) -> spaces.Flat:
        """Return stored actions ``[N, …]`` for flat observations ``[N, …]``; ``deterministic``: without exploration."""
        return self.behavior(obs, self.rng, self.progress, deterministic)

    def random_action(self, obs: spaces.Flat) -> spaces.Flat:
        """Return uniformly random stored actions for flat observations ``[N, …]``, of the allowed ones if masked."""
        return self.behavior.explore(obs, self.rng, self.progress)

    def draw_seed(self) -> int:
        """Draw a seed for the environment from the agent's own stream."""
        return int(self.rng.integers(2**31 - 1))

    def reseed(self, seed: int | None, stream: str) -> None:
        """Draw batches, noise and dropout from another stream than an agent with the same state."""
        self.rng = seeding.generator(seed, stream)
        self.noise_seed.assign(self._draw_noise_seed())
        for network in self.networks.values():
            for state in network.random_variables:  # a seed and a counter
                state.assign(np.array([self.rng.integers(2**31 - 1), 0], state.dtype.as_numpy_dtype))

    def _draw_noise_seed(self) -> np.ndarray:
        return self.rng.integers(2**31 - 1, size=2, dtype=np.int32)

    # The user's interface

    @overload
    def learn(
        self,
        env: Env | VectorEnv | None = None,
        mode: Literal['train'] = 'train',
        render: bool = False,
        seed: int | None = None,
        plot_func: Callable[[Sequence[float]], Any] | None = None,
        callbacks: Iterable[Callable[[Training], bool | None]] = (),
        run_dir: str | os.PathLike[str] | bool | None = None,
        **learn_params: Any,
    ) -> TrainingResult: ...

    @overload
    def learn(
        self,
        env: Env | VectorEnv | None,
        mode: Literal['test'],
        render: bool = False,
        seed: int | None = None,
        **learn_params: Any,
    ) -> TestResult: ...

    @overload
    def learn(
        self,
        env: Env | VectorEnv | None,
        mode: str,
        render: bool = False,
        seed: int | None = None,
        plot_func: Callable[[Sequence[float]], Any] | None = None,
        callbacks: Iterable[Callable[[Training], bool | None]] = (),
        run_dir: str | os.PathLike[str] | bool | None = None,
        **learn_params: Any,
    ) -> TrainingResult | TestResult: ...

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
            env: a Gymnasium environment or vector environment with the agent's spaces. With a dataset no step is taken
                in it: callbacks build one like it for their tests. None is allowed then.
            mode: ``'train'`` or ``'test'``.
            render: call ``env.render()`` after every step; build the environment with ``render_mode='human'``.
            seed: for exploration, batches and the environment in training, for the environment in a test. A later
                training with the same seed draws new numbers. None continues the agent's own random numbers.
            plot_func: called with all returns so far whenever a row is logged.
            callbacks: called with the :class:`zoo.common.training.training.Training` whenever a row is logged, or every
                so many steps; one that returns False stops the training. :mod:`zoo.callbacks` has some.
            run_dir: where to write; None makes a new directory in ``$ZOO_RUNS`` or ``runs``; False writes nothing.
            learn_params: what :meth:`learn_params` lists. ``train_steps`` counts the steps of this call; with
                ``resume`` it says where the interrupted training ends. With ``dataset`` the agent learns from recorded
                episodes, and ``train_updates`` takes the place of ``train_steps``.

        Returns:
            A :class:`zoo.common.records.TrainingResult`, or a :class:`zoo.common.records.TestResult` of all episodes.

        Raises:
            ValueError: an unknown mode or parameter, a value out of its range, or an environment with other spaces.
            FloatingPointError: an observation, reward or loss became NaN or infinite; the last checkpoint stays.
            zoo.distributed.ClusterError: with roles: another rank failed; the message has its error.
        """
        return learning.learn(self, env, mode, render, seed, plot_func, callbacks, run_dir, learn_params)

    def predict(self, obs: Any, deterministic: bool = True, state: Any = None) -> Any:
        """Return the action for one observation or a batch of them, in the environment's own form.

        Args:
            obs: an element of the observation space, or a batch of them stacked on a first axis.
            deterministic: the policy's mode rather than a sample.
            state: a recurrent policy's state before the step, float32 ``[N, S]``: `initial_state` at first, then what
                this method returned. None begins new episodes and forgets them.

        Returns:
            The action or batch of actions; with ``state`` a pair of it and the new state.

        Raises:
            ValueError: an observation's shape or values are not in the space, or ``state`` has not the shape of
                `initial_state` for as many observations.
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
        """Return the recurrent state with which ``count`` episodes begin: zeros, float32 ``[count, S]``.

        ``S`` is 0 where no network is recurrent. In a loop over episodes::

            state = agent.initial_state()
            action, state = agent.predict(obs, state=state)

        With several copies of the environment, ``state[done] = 0`` begins new episodes in the copies that are done.
        """
        if not is_integer(count, 0):
            raise InvalidValue(f'count is {count!r}: give the number of episodes, a whole number of at least 0.')
        return np.zeros((count, self.behavior.state_size), np.float32)

    def summary(self) -> summary.Summary:
        """Return spaces, encoders, networks with shapes and numbers of weights, distribution of actions, optimizers
        and parameters that differ from their defaults, for printing; a notebook shows tables.
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
        """Play in an environment and return what happened, for a training loop of the user's own.

        With ``steps`` a call goes on where the last one stopped in the same environment, in the middle of episodes. New
        episodes begin with ``episodes``, with a ``seed``, and after anything else, such as ``learn``, began some there.
        The agent acts with its current weights, and explores by ``progress``, which scheduled learning rates read too.
        ``steps`` and running statistics do not move: see :meth:`observe`.

        Args:
            env: a Gymnasium environment or vector environment with the agent's spaces.
            steps: environment steps, summed over copies, and rounded up to whole steps of all copies.
            episodes: whole episodes instead. Each copy plays its share, so that short episodes are not too many; its
                later rows are not valid.
            deterministic: do not explore; ``log_prob`` is None then.
            seed: of the environment and of the actions; None goes on with the random numbers of both.

        Returns:
            A :class:`zoo.Rollout`, ordered, ``[T, N, …]``.

        Raises:
            ValueError: both ``steps`` and ``episodes`` or neither; an environment with other spaces or in training.
        """
        return playing.rollout(self, env, steps, episodes, deterministic, seed)

    def evaluate(self, rollout: Rollout, training: bool = False) -> EvaluatedRollout:
        """Return log-probabilities, entropies and values of a rollout under the current weights.

        Gradients flow through them inside a ``tf.GradientTape``, with or without a ``tf.function`` around it.

        Args:
            rollout: a result of :meth:`rollout`, or a part of one.
            training: networks in training mode, for a loss: dropout drops, batch normalization learns, and ``penalty``
                is what networks add to the loss.

        Returns:
            Tensors with the leading axes of the rollout.

        Raises:
            ValueError: a rollout of other spaces, or an algorithm without a stochastic policy.
        """
        return playing.evaluate(self, rollout, training)

    def policy_and_value(self, obs: spaces.Flat, training: bool = False) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Return the parameters of the policy's distribution ``[B, …]``, and values ``[B]`` where there is a critic."""
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
        """Return the same ``[T N, …]`` for steps in their order, with fields ``[T, N, …]``."""
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
        """Return V of the states before and after each step, both ``[T, N]``, where there is a critic of states.

        Args:
            steps: fields ``[T, N, …]``; after a truncated step comes another episode.
        """
        raise NotImplementedError

    def save(
        self,
        path: str | os.PathLike[str],
        buffer: bool = False,
        loop_state: dict[str, int] | None = None,
        training_state: bool = True,
    ) -> Path:
        """Write a checkpoint, a folder; a failure leaves nothing half written.

        Args:
            buffer: save the replay buffer too, so that training goes on exactly where it was.
            loop_state: the place in a call of ``learn``, for the training loops.
            training_state: False leaves out optimizers, targets and weights behind a mean: a training begins them anew.

        Raises:
            CheckpointError: the path is not a checkpoint, or the disk is full or refuses.
        """
        return saving.save(self, path, buffer, loop_state, training_state)

    @classmethod
    def load(
        cls: type[Self],
        path: str | os.PathLike[str],
        net_list: Sequence[Any] | None = None,
        optimizers_list: Sequence[Any] | None = None,
    ) -> Self:
        """Return the agent that was saved at ``path``.

        Args:
            path: a checkpoint, a run directory, whose newest checkpoint is taken, or the name of a trained agent.
            net_list, optimizers_list: of the same shapes, needed where the saved agent had some defined in Python.

        Raises:
            CheckpointError: the checkpoint is missing, damaged, newer than this library, or of another algorithm.
            ValueError: the saved agent had networks of the user's own and ``net_list`` is missing or does not fit.
        """
        found, saved = saving.read(path, cls.__name__)
        return saving.load(cls, saved, found, net_list, optimizers_list)

    def config(self) -> dict[str, Any]:
        """Return algorithm, spaces and hyper-parameters as plain data; network objects by their class names."""
        return saving.config(self)

    def __deepcopy__(self: Self, memo: dict[int, Any]) -> Self:
        """Return a twin: it predicts and trains as this agent would, with networks, optimizers and replay of its own.

        Raises:
            ValueError: a network that cannot be copied.
        """
        return saving.twin(self, memo)

    # What other processes take

    def blueprint(self) -> tuple[type[Algorithm], dict[str, Any]]:
        """Return class and arguments of an agent like this one with new weights; they pickle if its networks do."""
        return saving.blueprint(self)

    def state(self) -> dict[str, np.ndarray]:
        """Return every weight, optimizer state, statistic and counter: what :meth:`restore_state` takes."""
        return saving.arrays(self) | {name: np.array(getattr(self, name)) for name in COUNTERS}

    def restore_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over the `state` of an agent with the same networks."""
        for name in COUNTERS:
            setattr(self, name, int(state[name]))
        saving.assign(self, state)
