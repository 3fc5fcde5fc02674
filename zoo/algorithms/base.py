"""What every algorithm shares: construction from spaces, ``learn``, ``predict``, ``save``, ``load``.

An algorithm is a subclass that builds its networks and its behaviour policy in ``__init__`` and gives ``update``; the
loops that call it are in :mod:`zoo.common.loops`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import keras
import numpy as np
import tensorflow as tf
from gymnasium import Env
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv

from zoo.common import checkpoint, loops, seeding, spaces
from zoo.common.acting import Behavior, Forward
from zoo.common.adaptors import copies
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import Preprocess, features, mask_path
from zoo.common.adaptors.policy import Head, Network, build_network, build_on, compiles_by_xla, unannounced
from zoo.common.errors import unknown
from zoo.common.logging import run_directory, write_json
from zoo.common.networks import with_own_seeds
from zoo.common.normalize import RunningMoments
from zoo.common.optim import (
    AllReduce,
    Optimizer,
    PackedCall,
    prefers_xla,
    set_threads,
)
from zoo.common.replay import Replay
from zoo.common.schedules import schedule_from_json, schedule_to_json
from zoo.common.types import TestResult, TrainingResult, Transition

Self = TypeVar('Self', bound='Algorithm')

#: Parameters of ``learn`` that every training loop takes, besides the loop's own.
TRAINING_PARAMS: dict[str, Any] = {
    'train_steps': 100_000,
    'test_episodes': 10,
    'log_every': None,
    'checkpoint_every': None,
    'checkpoint_buffer': False,
    'progress_bar': True,
    'roles': None,
    'resume': False,
}


class Algorithm:
    """A deep reinforcement learning agent.

    Attributes:
        observation_space, action_space: of one copy of the environment.
        networks: by name, in the order of ``net_list``; targets are not among them.
        optimizers: by name, in the order of ``optimizers_list``.
        behavior: the behaviour policy; the subclass makes it.
        steps: environment steps in the agent's life.
        updates: gradient updates in the life of an off-policy agent.
        phases: how many updates differ in what they do (TD3's delayed actor) before they repeat. ``update`` is told
            which one it is while it is compiled: a branch taken at run time costs more than it saves.
        progress: fraction of the current training, in [0, 1]: what schedules read.

    Args:
        observation_space, action_space: of one copy of the environment.
        unknown_params: keyword arguments that the subclass does not know: refused here.
        normalize_obs: normalise vector observations by their running mean and standard deviation.

    Raises:
        ValueError: an unknown parameter, a space that this algorithm cannot act in, a network that does not fit.
    """

    behavior: Behavior
    #: The training loop, a function of :mod:`zoo.common.loops`.
    loop: ClassVar[Callable[..., None]]
    #: Kinds of action space that it acts in.
    acts_in: ClassVar[tuple[str, ...]]
    #: Whether actions are squashed by tanh, which needs bounds.
    squash: ClassVar[bool] = False
    #: Names of the networks in ``net_list`` and of the optimisers in ``optimizers_list``, in order.
    network_names: ClassVar[tuple[str, ...]]
    optimizer_names: ClassVar[tuple[str, ...]]
    #: Networks that may stand on the torso of another one, and by default do where the observation has images.
    shared_torso: ClassVar[dict[str, str]] = {}
    #: What ``update`` reports.
    metric_names: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        unknown_params: dict[str, Any],
        normalize_obs: bool = False,
    ) -> None:
        for name in unknown_params:
            raise ValueError(self._unknown_param(name))
        type(self).check_action_space(action_space)
        self.observation_space = observation_space
        self.action_space = action_space
        self.normalize_obs = normalize_obs
        set_threads(any(item.kind == 'image' for item in features(observation_space)))
        self.action_adaptor = ActionAdaptor(action_space, type(self).squash)
        self.statistics = {
            item.path: RunningMoments(item.size)
            for item in features(observation_space, normalize_obs)
            if item.normalize
        }
        self.preprocess = Preprocess(observation_space, self.statistics)
        self.mask_path = mask_path(observation_space) if self.action_adaptor.maskable else None
        self.networks: dict[str, Network] = {}
        self.optimizers: dict[str, Optimizer] = {}
        self.state_variables: dict[str, tf.Variable] = {}
        self.replay: Replay | None = None
        self.all_reduce: AllReduce | None = None
        self.steps = 0
        self.updates = 0
        self.phases = 1
        self.progress = 0.0
        self.rng = seeding.generator(None, 'agent')
        self.noise_seed = tf.Variable(self._draw_noise_seed(), dtype=tf.int32)
        self.state_variables['noise_seed'] = self.noise_seed
        self._single_paths = spaces.leaves(observation_space)
        self._loop_state: dict[str, int] | None = None
        self._saved_buffer: dict[str, np.ndarray] | None = None

    # Construction

    @classmethod
    def _unknown_param(cls, name: str) -> str:
        if name == 'learning_rate':
            return "learning_rate belongs to the optimizers: optimizers_list=[dict(name='Adam', learning_rate=…), …]."
        if name in cls.learn_params():
            return f'{name!r} is a parameter of learn, not of {cls.__name__}: agent.learn(env, {name}=…).'
        return unknown(f'parameter of {cls.__name__}', name, cls.params())

    @classmethod
    def params(cls) -> dict[str, Any]:
        """The constructor's parameters with their defaults."""
        signature = inspect.signature(cls.__init__).parameters.values()
        return {p.name: p.default for p in signature if p.name != 'self' and p.kind is not p.VAR_KEYWORD}

    @classmethod
    def learn_params(cls) -> dict[str, Any]:
        """The parameters that ``learn`` takes for this algorithm, with their defaults."""
        found = dict(TRAINING_PARAMS)
        functions = [cls.loop] if cls.loop is loops.off_policy else [cls.loop, cls.update]
        for function in functions:
            for p in inspect.signature(function).parameters.values():
                if p.kind is p.KEYWORD_ONLY:
                    found[p.name] = p.default
        return found

    @classmethod
    def check_action_space(cls, space: Space) -> None:
        """Refuse an action space that this algorithm cannot act in.

        Raises:
            ValueError: one sentence that names the algorithms that can.
        """
        kind = type(space).__name__
        if kind not in cls.acts_in:
            from zoo import algorithms

            able = [name for name in algorithms.NAMES if kind in getattr(algorithms, name).acts_in]
            raise ValueError(
                f'{cls.__name__} cannot act in {spaces.describe(space)}; '
                + (f'use {" or ".join(able)}.' if able else 'no algorithm here can.')
            )
        if cls.squash and not ActionAdaptor(space).bounded:
            raise ValueError(
                f'{cls.__name__} needs a Box with finite bounds, but this one reaches from {space.low.min()} to '
                f'{space.high.max()}: wrap the environment in gymnasium.wrappers.ClipAction with bounds, or use PPO.'
            )

    def _build_networks(
        self, net_list: Sequence[Any] | None, heads: Sequence[Head], default: dict[str, Any], action_size: int = 0
    ) -> None:
        """Fill ``self.networks``: one entry of ``net_list`` for each of ``network_names``.

        Args:
            net_list: the user's; None takes ``default`` for each.
            heads: of each network.
            default: spec.
            action_size: for the networks whose name begins with ``critic``, the action's length when it is an input.
        """
        self._entries = self._entries_for('net_list', net_list, default, self.network_names)
        entries = with_own_seeds(self._entries, self.network_names)
        for i, (name, entry, head) in enumerate(zip(self.network_names, entries, heads, strict=True)):
            label, extra = f'net_list[{i}] ({name})', action_size if name.startswith('critic') else 0
            if isinstance(entry, str):
                self.networks[name] = self._build_on(entry, label, head, extra)
            else:
                self.networks[name] = build_network(entry, label, self.preprocess, head, extra)
        owned = [id(v) for network in self.networks.values() for v in network.trainable_variables]
        if len(set(owned)) < len(owned):
            raise ValueError('two entries of net_list are the same network or share weights: give each one of its own.')

    def _build_on(self, other: str, label: str, head: Head, action_size: int) -> Network:
        """The network of an entry that names another one, whose torso it shares."""
        if not type(self).shared_torso or action_size:
            raise ValueError(
                f'{label} is the name {other!r}, but the networks of {type(self).__name__} share no torso.'
            )
        if other not in self.networks:
            raise ValueError(
                f'{label} is to share the torso of {other!r}: name one of {list(self.networks)}, before it.'
            )
        spec = self._entries[self.network_names.index(other)]
        seed = spec.get('seed') if isinstance(spec, dict) else None
        return build_on(self.networks[other], label, head, seed=None if seed is None else [seed, 2])

    def _build_target(self, name: str, head: Head, action_size: int = 0) -> Network:
        """A second network like ``self.networks[name]``, with the same weights: its target."""
        i = self.network_names.index(name)
        label = f'net_list[{i}] ({name})'
        target = copies.target_of(self.networks[name], self._entries[i], label, head, action_size)
        for j, variable in enumerate(target.variables):
            self.state_variables[f'target/{name}/{j}'] = variable
        return target

    def _build_optimizers(
        self,
        optimizers_list: Sequence[Any] | None,
        groups: Sequence[list[tf.Variable]],
        default: dict[str, Any],
        clip_norm: float | None = None,
    ) -> None:
        """Fill ``self.optimizers``: one entry of ``optimizers_list`` for each list of variables."""
        self._optimizer_entries = self._entries_for('optimizers_list', optimizers_list, default, self.optimizer_names)
        for i, (name, entry, group) in enumerate(
            zip(self.optimizer_names, self._optimizer_entries, groups, strict=True)
        ):
            self.optimizers[name] = Optimizer(entry, group, f'optimizers_list[{i}] ({name})', clip_norm)
            for network in self.networks.values():
                self.optimizers[name].constrain(network.constraints)

    def _entries_for(self, what: str, given: Sequence[Any] | None, default: Any, names: tuple[str, ...]) -> list[Any]:
        if given is not None and not isinstance(given, list | tuple):
            raise ValueError(f'{what} is a {type(given).__name__}: give a list with an entry for {", ".join(names)}.')
        entries = [default] * len(names) if given is None else list(given)
        if len(entries) != len(names):
            raise ValueError(
                f'{what} has {len(entries)} entries, but {type(self).__name__} takes {len(names)}: {", ".join(names)}.'
            )
        return entries

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """Every weight that an optimiser moves."""
        return [variable for optimizer in self.optimizers.values() for variable in optimizer.variables]

    # What a subclass gives

    def update(self, *args: Any, **kwargs: Any) -> Any:
        """One update: on-policy of a rollout, off-policy of a batch, inside the compiled call."""
        raise NotImplementedError

    def episodes_restarted(self) -> None:
        """Called when every copy of the environment has been reset; for what an algorithm keeps along an episode."""

    # What the loops call

    @property
    def forward(self) -> Forward:
        """The forward pass for acting."""
        return self.behavior.forward

    def act(self, obs: spaces.Flat, deterministic: bool = False) -> spaces.Flat:
        """Stored actions ``[N, …]`` for flat observations ``[N, …]``; exploring unless ``deterministic``."""
        return self.behavior(obs, self.rng, self.progress, deterministic)

    def random_action(self, obs: spaces.Flat) -> spaces.Flat:
        """Uniformly random stored actions for flat observations ``[N, …]``, of the allowed ones if masked."""
        return self.behavior.random(obs, self.rng)

    def draw_seed(self) -> int:
        """A seed for the environment from the agent's own stream."""
        return int(self.rng.integers(2**31 - 1))

    def _draw_noise_seed(self) -> np.ndarray:
        return self.rng.integers(2**31 - 1, size=2, dtype=np.int32)

    def replay_for(self, capacity: int, num_envs: int) -> Replay:
        """The replay buffer: the one that earlier training filled, if it fits, else a new one."""
        kept = self.replay
        if kept is None or (kept.num_envs, kept.capacity) != (num_envs, capacity):
            self.replay = Replay(self.observation_space, self.action_adaptor, capacity, num_envs)
            if self._saved_buffer is not None:
                self.replay.restore(self._saved_buffer)
                self._saved_buffer = None
        if self.replay.added:
            self.replay.cut()
        return self.replay

    def update_on(self, batches: Transition) -> dict[str, float]:
        """``K`` updates in one compiled call, on batches whose fields are ``[K, B, …]``; the last one's metrics."""
        if self.statistics:
            self.observe(batches.obs)
        for optimizer in self.optimizers.values():
            optimizer.set_progress(self.progress)
        phase = self.updates % self.phases
        self.updates += len(batches.reward)
        return self.take(self._fused(batches, static=(phase,)))

    def take(self, result: np.ndarray) -> dict[str, float]:
        """Split what a compiled update gave: metrics by name, and the weights for acting."""
        count = len(self.metric_names)
        self.forward.unpack(result[count:])
        return dict(zip(self.metric_names, result[:count].tolist(), strict=True))

    def learn_together(self, all_reduce: AllReduce | None) -> None:
        """Learn as one with other processes that have the same weights, from now on; None: alone again.

        Every gradient becomes the mean over the learners, every running statistic that of all that they have seen.

        Args:
            all_reduce: ``all_reduce(array, op)``, the mean or the sum (``op``) of an array over the learners, in which
                every one of them takes part.
        """
        for optimizer in self.optimizers.values():
            optimizer.all_reduce = all_reduce
        for moments in self._moments().values():
            moments.all_reduce = all_reduce
        self.all_reduce = all_reduce
        self.__dict__.pop('_fused', None)  # compiled for the one way or the other

    @functools.cached_property
    def _fused(self) -> PackedCall:
        return self._packed(self._updates)

    def _packed(self, function: Callable[..., tf.Tensor]) -> PackedCall:
        """An update, compiled; XLA cannot compile the exchange with other learners."""
        xla = self.all_reduce is None and prefers_xla(self.trainable_variables)
        return PackedCall(function, xla and all(compiles_by_xla(network) for network in self.networks.values()))

    def _updates(self, batches: Transition, phase: int) -> tf.Tensor:
        def some(first: Any, count: int) -> tf.Tensor:
            for i in range(count):
                batch = tf.nest.map_structure(lambda x, k=first + i: x[k], batches)
                self.noise_seed.assign_add([0, 2])  # two streams an update: seed and seed + 1
                known = {'phase': (phase + i) % self.phases} if self.phases > 1 else {}
                metrics = self.update(batch, self.noise_seed + 0, **known)
            return self.stack_metrics(metrics)

        rounds, rest = divmod(batches.reward.shape[0], self.phases)
        if rounds < 2:
            metrics = some(0, batches.reward.shape[0])
        else:
            start = (tf.constant(0), tf.zeros([len(self.metric_names)]))
            _, metrics = tf.while_loop(
                lambda r, _: r < rounds,
                lambda r, _: (r + 1, some(r * self.phases, self.phases)),
                start,
                parallel_iterations=1,
            )
            if rest:
                metrics = some(rounds * self.phases, rest)
        return tf.concat([metrics, self.forward.pack()], 0)

    def stack_metrics(self, metrics: dict[str, tf.Tensor]) -> tf.Tensor:
        """Metrics as one vector in the order of ``metric_names``: reading one tensor is cheaper than reading each."""
        return tf.stack([tf.cast(metrics[name], tf.float32) for name in self.metric_names])

    def observe(self, obs: spaces.Flat) -> None:
        """Take observations into the running statistics."""
        for path, moments in self.statistics.items():
            moments.update(obs[path] if path else obs)

    # The user's interface

    def learn(
        self,
        env: Env | VectorEnv,
        mode: str = 'train',
        render: bool = False,
        seed: int | None = None,
        plot_func: Callable[[Sequence[float]], Any] | None = None,
        callbacks: Iterable[Callable[[loops.Training], bool | None]] = (),
        run_dir: str | os.PathLike[str] | bool | None = None,
        **learn_params: Any,
    ) -> TrainingResult | TestResult:
        """Train or test in an environment.

        Args:
            env: a Gymnasium environment or vector environment with the agent's spaces.
            mode: ``'train'`` or ``'test'``.
            render: call ``env.render()`` after every step; build the environment with ``render_mode='human'``.
            seed: of this call's randomness: exploration, batches, the environment. None goes on with the agent's own.
            plot_func: called with all returns so far whenever a row is logged.
            callbacks: called with the :class:`zoo.common.loops.Training` whenever a row is logged; one that returns
                False stops the training.
            run_dir: where to write; None makes a new directory in ``$ZOO_RUNS`` or ``runs``; False writes nothing.
            learn_params: see ``learn_params()`` of the class. ``train_steps`` counts the steps of this call, summed
                over copies; ``resume=True`` goes on with the call in which the loaded checkpoint was written.

        Returns:
            A :class:`TrainingResult`, or a :class:`TestResult` with one entry per episode.

        Raises:
            ValueError: an unknown mode or parameter, or an environment with other spaces.
            FloatingPointError: an observation, reward or loss became NaN or infinite; the last checkpoint stays.
            zoo.distributed.ClusterError: with roles: another rank has failed; the message has its error.
        """
        known = type(self).learn_params()
        for name in learn_params:
            if name not in known:
                raise ValueError(
                    unknown(f"parameter of {type(self).__name__}'s learn", name, [*known, *LEARN_ARGUMENTS])
                )
        if mode not in ('train', 'test'):
            raise ValueError(unknown('mode', mode, ('train', 'test')))
        params = known | learn_params
        _check_learn_params(params, known)
        self._check_params()
        self._check_environment(env)
        if render and not getattr(env, 'render_mode', None):
            raise ValueError("render=True needs an environment built with render_mode='human' or another render mode.")
        if params['resume']:
            seed = None  # the loaded streams go on where they were
        if seed is not None:
            self.reseed(seed, 'agent')
        self.forward.refresh()
        env_seed = None if seed is None else int(seeding.generator(seed, f'env/{mode}').integers(2**31 - 1))
        if mode == 'test':
            return loops.run_test(self, env, test_episodes=params['test_episodes'], render=render, seed=env_seed)
        return self._train(env, params, render, seed, env_seed, plot_func, callbacks, run_dir)

    def _check_params(self) -> None:
        for name in ('gamma', 'gae_lambda', 'tau'):
            value = getattr(self, name, 0.0)
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0.0 <= value <= 1.0:
                raise ValueError(f'{name} is {value!r}: give a number from 0 to 1.')

    def _train(
        self,
        env: Env | VectorEnv,
        params: dict[str, Any],
        render: bool,
        seed: int | None,
        env_seed: int | None,
        plot_func: Callable[[Sequence[float]], Any] | None,
        callbacks: Iterable[Callable[[loops.Training], bool | None]],
        run_dir: str | os.PathLike[str] | bool | None,
    ) -> TrainingResult:
        start = 0
        if params['resume']:
            if self._loop_state is None:
                raise ValueError('resume=True goes on with an interrupted training: load a checkpoint of one first.')
            start, params['train_steps'] = self._loop_state['steps'], self._loop_state['train_steps']
        self._loop_state = None
        loop_params = {name: params[name] for name in params if name not in TRAINING_PARAMS}

        def run(experience: loops.Experience | None = None) -> TrainingResult:
            env_id = env.spec.id if getattr(env, 'spec', None) else type(env.unwrapped).__name__
            folder = run_directory(run_dir, type(self).__name__, env_id)
            if folder is not None:
                config = self.config() | {'environment': env_id, 'seed': seed, 'learn_params': params}
                write_json(folder / 'config.json', config)
            training = loops.Training(
                self,
                env,
                params['train_steps'],
                render=render,
                plot_func=plot_func,
                callbacks=callbacks,
                run_dir=folder,
                env_seed=env_seed,
                log_every=params['log_every'],
                checkpoint_every=params['checkpoint_every'],
                checkpoint_buffer=params['checkpoint_buffer'],
                progress_bar=params['progress_bar'],
                start=start,
                experience=experience,
            )
            return training.run(type(self).loop, **loop_params)

        if params['roles'] is None:
            return run()
        if render:
            raise ValueError(
                'render=True shows the environment of this process, but with roles the actors step theirs.'
            )
        from zoo.distributed.plan import plan_for
        from zoo.distributed.training import train

        plan = plan_for(self, env, params['roles'], seed, start, params['train_steps'], loop_params)
        return train(self, env, plan, run)

    def _check_environment(self, env: Env | VectorEnv) -> None:
        if not isinstance(env, Env | VectorEnv):
            raise ValueError(
                f'learn needs a Gymnasium environment, not a {type(env).__name__}: make it with build_env.'
            )
        vector = isinstance(env, VectorEnv)
        for kind in ('observation_space', 'action_space'):
            found = getattr(env, f'single_{kind}' if vector else kind)
            own = getattr(self, kind)
            if not spaces.same(found, own):
                raise ValueError(
                    f"the environment's {kind} is {spaces.describe(found)}, but this agent was made for "
                    f'{spaces.describe(own)}: make an agent for this environment with call_default_params.'
                )

    def predict(self, obs: Any, deterministic: bool = True, state: Any = None) -> Any:
        """The action for one observation or a batch of them, in the environment's own form.

        Args:
            obs: an element of the observation space, or a batch of them stacked on a first axis.
            deterministic: the policy's mode rather than a sample.
            state: recurrent state; None for the algorithms that keep none.

        Returns:
            The action or batch of actions; with ``state``, the pair of it and the new state.

        Raises:
            ValueError: an observation of another shape than the space declares.
        """
        flat = spaces.flatten(self.observation_space, obs)
        batched = self._is_batch(flat)
        if not batched:
            flat = spaces.tree_map(lambda x: np.asarray(x)[None], flat)
        leaves = self._single_paths
        items = {path: np.asarray(x, leaves[path].dtype) for path, x in spaces.tree_items(flat)}
        self.forward.refresh()
        action = self.act(spaces.from_items(self.observation_space, items), deterministic)
        found = self.action_adaptor.to_env(action) if batched else self.action_adaptor.to_single_env(action)
        return found if state is None else (found, state)

    def _is_batch(self, flat: spaces.Flat) -> bool:
        lead: dict[str, tuple[int, ...]] = {}
        for path, x in spaces.tree_items(flat):
            shape, leaf = np.shape(x), self._single_paths[path]
            if leaf.shape not in (shape, shape[1:]):
                raise ValueError(
                    f'an observation {path and f"{path!r} "}of shape {shape} was given, but the space declares '
                    f'{leaf.shape}, or a batch of that.'
                )
            lead[path] = shape[: len(shape) - len(leaf.shape)]
        first, *others = lead
        for path in others:
            if lead[path] != lead[first]:
                raise ValueError(
                    f'the observation has batch axes {lead[first]} in {first!r}, but {lead[path]} in {path!r}: give '
                    'one observation, or a batch of the same size in every part.'
                )
        return lead[first] != ()

    # State

    def config(self) -> dict[str, Any]:
        """Algorithm, spaces and hyper-parameters as plain data; networks given as objects by their class name."""
        hyper = {
            name: schedule_to_json(getattr(self, name))
            for name in type(self).params()
            if name not in ('observation_space', 'action_space', 'net_list', 'optimizers_list')
        }
        return {
            'algorithm': type(self).__name__,
            'observation_space': spaces.to_json(self.observation_space),
            'action_space': spaces.to_json(self.action_space),
            'net_list': [_entry_to_json(entry) for entry in self._entries],
            'optimizers_list': [_entry_to_json(entry) for entry in self._optimizer_entries],
            'params': hyper,
        }

    def _arrays(self) -> dict[str, np.ndarray]:
        found = {name: variable.numpy() for name, variable in self._all_variables().items()}
        for label, moments in self._moments().items():
            found |= {f'statistics/{label}/{name}': value for name, value in moments.state().items()}
        return found

    def blueprint(self) -> tuple[type[Algorithm], dict[str, Any]]:
        """Class and arguments of an agent like this one, with new weights; they can be pickled if the networks can."""
        params = {name: getattr(self, name) for name in type(self).params() if hasattr(self, name)}
        optimizers = [
            type(entry).from_config(entry.get_config()) if isinstance(entry, keras.optimizers.Optimizer) else entry
            for entry in self._optimizer_entries
        ]
        return type(self), params | {'net_list': self._entries, 'optimizers_list': optimizers}

    def state(self) -> dict[str, np.ndarray]:
        """Every weight, optimiser state and statistic, and the counters: what :meth:`restore_state` takes."""
        return self._arrays() | {'steps': np.array(self.steps), 'updates': np.array(self.updates)}

    def restore_state(self, state: dict[str, np.ndarray]) -> None:
        """Be in the state that `state` found in an agent with the same networks."""
        self.steps, self.updates = int(state['steps']), int(state['updates'])
        self._assign(state)

    def _assign(self, arrays: dict[str, np.ndarray]) -> None:
        for name, variable in self._all_variables().items():
            variable.assign(arrays[name])
        for network in self.networks.values():
            copies.settle(network)
        for label, moments in self._moments().items():
            moments.restore({name: arrays[f'statistics/{label}/{name}'] for name in moments.state()})
        self.forward.refresh()

    def reseed(self, seed: int | None, stream: str) -> None:
        """Draw batches and noise from a stream of its own, unlike an agent with the same state."""
        self.rng = seeding.generator(seed, stream)
        self.noise_seed.assign(self._draw_noise_seed())

    def _moments(self) -> dict[str, RunningMoments]:
        """The running statistics that a checkpoint holds, by name; a subclass adds its own."""
        return {f'obs/{path}': moments for path, moments in self.statistics.items()}

    def _all_variables(self) -> dict[str, tf.Variable]:
        found = dict(self.state_variables)
        for name, network in self.networks.items():
            found |= {f'network/{name}/{i}': variable for i, variable in enumerate(network.variables)}
            found |= {f'network/{name}/random/{i}': v for i, v in enumerate(network.random_variables)}
        for name, optimizer in self.optimizers.items():
            found |= {f'optimizer/{name}/{i}': variable for i, variable in enumerate(optimizer.state)}
        return found

    def save(
        self, path: str | os.PathLike[str], buffer: bool = False, loop_state: dict[str, int] | None = None
    ) -> Path:
        """Write a checkpoint, a folder, whole or not at all.

        Args:
            path: the folder.
            buffer: save the replay buffer too, so that training goes on exactly where it was.
            loop_state: where in a call of ``learn`` this is; the loops give it.
        """
        config = self.config() | {
            'steps': self.steps,
            'updates': self.updates,
            'progress': self.progress,
            'rng': seeding.state(self.rng),
            'loop_state': loop_state,
            'fingerprints': copies.fingerprints(self.networks),
        }
        held = self.replay.state() if buffer and self.replay is not None else None
        return checkpoint.write(path, config, self._arrays(), held)

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
        path = _newest(path)
        return cls._from_checkpoint(checkpoint.read(path, cls.__name__), path, net_list, optimizers_list)

    @classmethod
    def _from_checkpoint(
        cls: type[Self],
        saved: checkpoint.Checkpoint,
        path: Path,
        net_list: Sequence[Any] | None,
        optimizers_list: Sequence[Any] | None,
    ) -> Self:
        config = saved.config
        given = {'net_list': net_list, 'optimizers_list': optimizers_list}
        for name, entries in given.items():
            given[name] = entries if entries is not None else _entries_from_json(config[name], name, path)
        params = {name: schedule_from_json(value) for name, value in config['params'].items()}
        with unannounced():
            agent = cls(
                observation_space=spaces.from_json(config['observation_space']),
                action_space=spaces.from_json(config['action_space']),
                **given,
                **params,
            )
        agent._restore(saved, path, optimizers_list is not None)
        return agent

    def _restore(self, saved: checkpoint.Checkpoint, path: Path, other_optimizers: bool = False) -> None:
        if other_optimizers:
            self._keep_what_fits(saved)
        variables = self._all_variables()
        # Generators begin anew where they were not saved, and are not missed by a network that draws no numbers.
        drawn = {name for name in saved.arrays.keys() | variables.keys() if '/random/' in name}
        for name in drawn - variables.keys():
            del saved.arrays[name]
        for name in drawn & variables.keys() - saved.arrays.keys():
            saved.arrays[name] = variables[name].numpy()
        weights = {name for name in saved.arrays if not name.startswith('statistics/')}
        for name in sorted(weights | variables.keys()):
            found = saved.arrays.get(name)
            if name not in variables or found is None or found.shape != tuple(variables[name].shape):
                raise ValueError(
                    f'{path} holds {"nothing" if found is None else f"an array of shape {found.shape}"} for {name!r}, '
                    'but '
                    f'this agent {f"has shape {tuple(variables[name].shape)}" if name in variables else "has no such"} '
                    'there: hand load the same networks and optimizers that were saved.'
                )
        self._assign(saved.arrays)
        copies.check_fingerprints(self.networks, saved.config.get('fingerprints', {}))
        self.steps = saved.config['steps']
        self.updates = saved.config['updates']
        self.progress = saved.config['progress']
        seeding.restore(self.rng, saved.config['rng'])
        self._loop_state = saved.config['loop_state']
        self._saved_buffer = saved.buffer

    def _keep_what_fits(self, saved: checkpoint.Checkpoint) -> None:
        """Put the state of the optimisers that were handed, as far as it is new, in the place of what was saved."""
        for (name, optimizer), entry in zip(self.optimizers.items(), saved.config['optimizers_list'], strict=True):
            prefix = f'optimizer/{name}/'
            state = {
                key.removeprefix(prefix): saved.arrays.pop(key) for key in list(saved.arrays) if key.startswith(prefix)
            }
            fitting = optimizer.fitting(state, {key: schedule_from_json(value) for key, value in entry.items()})
            saved.arrays.update({prefix + key: value for key, value in fitting.items()})

    def __deepcopy__(self, memo: dict[int, Any]) -> Algorithm:
        """A twin: it predicts the same and trains as this one would, with networks, optimisers and replay of its own.

        Raises:
            ValueError: a network that cannot be copied.
        """
        cls, params = self.blueprint()
        try:
            params['net_list'] = copies.copied_entries(list(self.networks.values()), self._entries, self.network_names)
            with unannounced():
                twin = cls(**params)
        except Exception as error:
            why = str(error).rstrip('.')
            raise ValueError(f'this agent cannot be copied ({why}): save it and load it with new networks.') from error
        memo[id(self)] = twin
        twin.restore_state(self.state())
        for name in ('rng', 'progress', 'replay', '_loop_state', 'reward_scale'):
            if hasattr(self, name):
                setattr(twin, name, copy.deepcopy(getattr(self, name), memo))
        twin._saved_buffer = self._saved_buffer  # only read from, and not before there is a replay
        return twin


def load(
    path: str | os.PathLike[str], net_list: Sequence[Any] | None = None, optimizers_list: Sequence[Any] | None = None
) -> Algorithm:
    """The agent that was saved at ``path``, of whatever algorithm; otherwise as :meth:`Algorithm.load`.

    Raises:
        CheckpointError: the checkpoint is missing, damaged, newer than this library, or of an algorithm unknown here.
        ValueError: the saved agent had networks of the user's own and ``net_list`` is missing or does not fit.
    """
    from zoo import algorithms

    path = _newest(path)
    saved = checkpoint.read(path)
    name = saved.config.get('algorithm')
    if name not in algorithms.NAMES:
        raise checkpoint.CheckpointError(f"'{path}' cannot be loaded: {unknown('algorithm', name, algorithms.NAMES)}")
    return getattr(algorithms, name)._from_checkpoint(saved, path, net_list, optimizers_list)


#: Arguments of ``learn`` itself, named when an unknown parameter is near one of them.
LEARN_ARGUMENTS = ('mode', 'render', 'seed', 'plot_func', 'callbacks', 'run_dir')


def _check_learn_params(params: dict[str, Any], known: dict[str, Any]) -> None:
    """Counts are positive whole numbers, before anything starts."""
    zero_allowed = ('explore_steps',)
    for name, value in params.items():
        default = known[name]
        count = (isinstance(default, int) and not isinstance(default, bool)) or name in (
            'log_every',
            'checkpoint_every',
            'updates',
        )
        if not count or (value is None and default is None):
            continue
        low = 0 if name in zero_allowed else 1
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
            raise ValueError(f'{name} is {value!r}: give a whole number of at least {low}.')


def _newest(path: str | os.PathLike[str]) -> Path:
    """The checkpoint at a path, or the newest one of the run directory there."""
    path = Path(path)
    inside = sorted(p for p in (path / 'checkpoints').glob('*') if p.is_dir() and not p.name.startswith('.'))
    return inside[-1] if inside else path


def _entry_to_json(entry: Any) -> Any:
    if isinstance(entry, str):
        return entry
    if isinstance(entry, dict):
        return {key: schedule_to_json(value) for key, value in entry.items()}
    return {'custom': type(entry).__name__}


def _entries_from_json(entries: list[dict[str, Any]], what: str, path: Path) -> list[dict[str, Any]]:
    for i, entry in enumerate(entries):
        if isinstance(entry, dict) and 'custom' in entry:
            raise ValueError(
                f'{path} was saved with {what}[{i}] a {entry["custom"]} defined in Python, which it does not hold: '
                f'hand one of the same shape to load(path, {what}=[…]).'
            )
    return [
        entry if isinstance(entry, str) else {key: schedule_from_json(value) for key, value in entry.items()}
        for entry in entries
    ]
