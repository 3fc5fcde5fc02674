"""What loops and ranks need of an agent: the contract between an algorithm and everything that trains it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.adaptors import action, observation
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import Preprocess
from zoo.common.records import Batch, SequenceBatch, Trajectories
from zoo.common.replay.replay import Replay
from zoo.common.sampling import Sampling
from zoo.common.tools.params import Param

if TYPE_CHECKING:  # these need TensorFlow, which an actor does without
    import tensorflow as tf

    from zoo.common.acting.forward import Forward
    from zoo.common.maths.normalize import RunningMoments
    from zoo.common.maths.optimizers import Optimizer
    from zoo.common.networks.network import Network


@dataclass(frozen=True)
class Loop:
    """A training loop; those that there are stand in :mod:`zoo.common.loops`.

    Attributes:
        run: ``run(training, **params)`` trains to the end; its keyword-only parameters are parameters of ``learn``.
        experience: ``'rollouts'``, of which the keyword-only parameters of the algorithm's ``update`` are parameters of
            ``learn`` as well; likewise ``'evaluations'``, whole episodes with perturbed parameters; or ``'steps'`` of
            any policy, whose updates are compiled many in a call.
        pace: of actors that play rollouts. ``'lockstep'``: of the current policy, after which all of them wait for the
            next one; ``'stream'``: they are taken as they come, of policies of a while ago; ``'gradients'``: actors
            compute the gradients of theirs, and each waits for the weights that come of its own.
    """

    run: Callable[..., None]
    experience: Literal['rollouts', 'evaluations', 'steps']
    pace: Literal['lockstep', 'stream', 'gradients'] = 'lockstep'


class Agent(Protocol):
    """An agent, as the loops (:mod:`zoo.common.loops`) and the ranks (:mod:`zoo.distributed.training`) know it.

    An algorithm is written by giving what is its own; :class:`zoo.algorithms.base.Algorithm` has the rest:

    * ``loop``: which loop trains it, and so what ``update`` is given;
    * ``network_names``, ``optimizer_names``, ``metric_names``: what it consists of and what it reports;
    * ``acts_in``: the kinds of action space that it can act in, and ``squash``, whether its actions lie in [−1, 1] by a
      tanh, which stand for the bounds of a ``Box`` and so need them;
    * a constructor, whose parameters are declared as in :mod:`zoo.common.params` and kept under their names;
      it builds the networks from what each has to give (:class:`zoo.common.networks.heads.Head`), targets, optimisers
      and ``behavior``, how the agent explores;
    * ``update``. Of a loop over ``'steps'`` it is traced into the compiled call: ``update(batch, seed)`` with a
      :class:`zoo.common.records.Batch` of fields ``[B, …]`` and a seed for stateless random operations, int32 ``[2]``,
      of
      which ``seed + 1`` is free too; it returns a dict of scalars with the keys ``metric_names``, and where
      ``sampling`` has priorities the key ``'priority'`` besides, that of each transition ``[B]``. Of a loop
      over ``'rollouts'`` it is called with :class:`zoo.common.records.Trajectories` of fields ``[T, N, …]`` and its
      keyword parameters; it returns the metrics as floats, or None where nothing was updated. Of a loop over
      ``'evaluations'`` it is called with :class:`zoo.common.records.Evaluations`, of as many perturbations as
      ``perturbations`` says, and ``behavior`` is a :class:`zoo.common.acting.greedy.Deterministic`.

    What an algorithm keeps beside networks and optimisers goes into ``state_variables`` (targets are put there when
    they are built), and what it keeps along episodes is given up in :meth:`episodes_restarted`; then it is saved,
    resumed and sent to other learners without further ado. Where updates take turns in what they do, as with a delayed
    actor, ``phases`` says after how many they repeat, and ``update(batch, seed, phase)`` is told which one it is.

    Attributes:
        observation_space, action_space: of one copy of the environment.
        action_adaptor: turns stored actions into the environment's.
        preprocess: turns observations into what networks take.
        behavior: the behaviour policy.
        steps: environment steps in the agent's life; the loops count them.
        updates: gradient updates in its life, of a loop over ``'steps'``.
        progress: fraction of the current training, in [0, 1]: what schedules read; the loops set it.
        rng: exploration and batches are drawn from it.
        replay: the replay buffer, once there is one.
        priorities: those of the transitions of the last ``update_on``, ``[K, B]``, where the sampling needs them.
        net_list, optimizers_list: the entries that networks and optimisers were made of.
        networks, optimizers: by name, in that order; targets are not among them.
        statistics: running statistics of the observations that are normalised, by path.
        state_variables: further variables that are state, by name: targets, counters, a temperature.
        loop_state: of a checkpoint that was written in mid-training: ``steps`` behind it and ``train_steps``.
        saved_buffer: the arrays of a loaded replay buffer, until training takes them.
        is_training: whether ``learn`` is under way.
    """

    loop: ClassVar[Loop]
    network_names: ClassVar[tuple[str, ...]]
    optimizer_names: ClassVar[tuple[str, ...]]
    metric_names: ClassVar[tuple[str, ...]]

    observation_space: Space
    action_space: Space
    action_adaptor: ActionAdaptor
    preprocess: Preprocess
    behavior: Behavior
    steps: int
    updates: int
    progress: float
    rng: np.random.Generator
    replay: Replay | None
    priorities: np.ndarray | None
    net_list: list[Any]
    optimizers_list: list[Any]
    networks: dict[str, Network]
    optimizers: dict[str, Optimizer]
    statistics: dict[str, RunningMoments]
    state_variables: dict[str, tf.Variable]
    loop_state: dict[str, int] | None
    saved_buffer: Mapping[str, np.ndarray] | None
    is_training: bool

    # What it was declared with

    @classmethod
    def params(cls) -> dict[str, Any]:
        """The constructor's parameters with their defaults."""

    @classmethod
    def declared_for_learn(cls) -> dict[str, Param]:
        """The parameters of ``learn`` for this algorithm, by name."""

    def config(self) -> dict[str, Any]:
        """Algorithm, spaces and hyper-parameters as plain data."""

    # What the loops call

    @property
    def sampling(self) -> Sampling:
        """How transitions are drawn from the replay buffer: in steps of how many, by which priorities."""

    @property
    def perturbations(self) -> tuple[int, float]:
        """Of a loop over ``'evaluations'``: how many perturbations each update is of, and their standard deviation."""

    def act(self, obs: spaces.Flat, deterministic: bool = False) -> spaces.Flat:
        """Stored actions ``[N, …]`` for flat observations ``[N, …]``; exploring unless ``deterministic``."""

    def random_action(self, obs: spaces.Flat) -> spaces.Flat:
        """Uniformly random stored actions for flat observations ``[N, …]``, of the allowed ones if masked."""

    def draw_seed(self) -> int:
        """A seed for the environment from the agent's own stream."""

    def episodes_restarted(self, copies: slice | None = None) -> None:
        """Told when every copy of the environment has been reset, or these of them."""

    def replay_for(self, capacity: int, num_envs: int, compress: bool = False) -> Replay:
        """The replay buffer of ``capacity`` transitions of ``num_envs`` copies, with what training left in it."""

    def update(self, *args: Any, **kwargs: Any) -> Any:
        """One update; see above."""

    def update_on(self, batches: Batch | SequenceBatch) -> dict[str, float]:
        """``K`` updates in one compiled call, on batches whose fields are ``[K, …]``; the last one's metrics.

        Where networks are recurrent they are sequences, of which ``update`` is given the transitions that are learned
        from, with observations that are :class:`zoo.common.networks.remembered.Remembered`.

        Where the sampling is prioritised, ``priorities`` are those of the batches then.
        """

    def weights_are_finite(self) -> bool:
        """Whether every weight that an optimiser moves is a finite number."""

    def save(
        self, path: str | os.PathLike[str], buffer: bool = False, loop_state: dict[str, int] | None = None
    ) -> Path:
        """Write a checkpoint, with the replay buffer if asked, and where in a training it is."""

    # What the ranks of a distributed training call besides

    @property
    def forward(self) -> Forward:
        """The forward pass for acting: ``agent.forward.weights()`` is what actors and servers are sent."""

    def blueprint(self) -> tuple[type, dict[str, Any]]:
        """Class and arguments of an agent like this one, with new weights; they can be pickled if the networks can."""

    def state(self) -> dict[str, np.ndarray]:
        """Every weight, optimiser state and statistic, and the counters: what :meth:`restore_state` takes."""

    def restore_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Be in the state that `state` found in an agent with the same networks."""

    def moments(self) -> dict[str, RunningMoments]:
        """The running statistics, by name."""

    def learn_together(self, all_reduce: Any) -> None:
        """Learn as one with other processes that have the same weights, from now on; None: alone again."""

    def reseed(self, seed: int | None, stream: str) -> None:
        """Draw batches, noise and what layers drop from a stream of its own, unlike an agent with the same state."""


class AgentOfGradients(Agent, Protocol):
    """An agent whose loop has the pace ``'gradients'``, as the ranks know it."""

    def gradient(self, rollout: Trajectories) -> dict[str, Any]:
        """In an actor: what its rollout ``[T, N, …]``, of which something is valid, has to say to the learner."""

    def take_gradient(self, found: dict[str, Any]) -> dict[str, float]:
        """In the learner: one step by what `gradient` gave elsewhere; its metrics.

        Raises:
            ValueError: it is of another agent than this one.
        """

    def weights(self) -> dict[str, np.ndarray]:
        """Everything that a gradient depends on: what :meth:`load_weights` takes."""

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Act, and compute gradients, with the weights that `weights` gave in another process."""


def mismatch(agent: Agent, env: Env | VectorEnv) -> str | None:
    """Which space of an environment is not the agent's, and why; None where both are."""
    prefix = 'single_' if isinstance(env, VectorEnv) else ''
    for kind, adaptor in (('observation_space', observation), ('action_space', action)):
        reason = adaptor.mismatch(getattr(agent, kind), getattr(env, prefix + kind))
        if reason is not None:
            return f'{kind} {reason}'
    return None
