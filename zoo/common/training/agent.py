"""The contract between an algorithm and everything that trains it.

Each protocol extends the one before. Name the smallest that is needed: :class:`Acts` plays episodes, :class:`Learns`
collects experience, :class:`Agent` is trained, :class:`AgentOfGradients` runs in the asynchronous loop with roles.
"""

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
from zoo.common.records import Batch, SequenceBatch, TestResult, TrainingResult, Trajectories
from zoo.common.replay.replay import Replay
from zoo.common.sampling import Sampling
from zoo.common.tools.params import Param

if TYPE_CHECKING:  # these need TensorFlow, which an actor does without
    import tensorflow as tf

    from zoo.common.acting.forward import Forward
    from zoo.common.maths.normalize import Collected, RunningMoments
    from zoo.common.maths.optimizers import Optimizer
    from zoo.common.networks.network import Network
    from zoo.common.replay.tensor_ring import TensorRing


#: The counters of an agent that are state, see :class:`Learns`.
COUNTERS = ('steps', 'data_steps', 'updates')


@dataclass(frozen=True)
class Loop:
    """A training loop. :mod:`zoo.common.training.loops` has all of them.

    Attributes:
        run: ``run(training, experience, **params)`` trains to the end. ``experience`` is of a protocol in
            :mod:`zoo.common.training.experience`. The keyword-only parameters are parameters of ``learn``.
        experience: what ``update`` learns from. ``'rollouts'`` of the current policy, or ``'evaluations'``, whole
            episodes with perturbed parameters: the keyword-only parameters of ``update`` are parameters of ``learn``
            too. ``'steps'`` of any policy, from a replay buffer: many updates are compiled into one call.
        pace: how actors send rollouts. ``'lockstep'``: of the current policy; then all actors wait for the next one.
            ``'stream'``: the learner takes rollouts as they come, of policies that are a little older.
            ``'gradients'``: an actor computes the gradient of its rollout and waits for the weights that follow.
        from_data: the loop in its place where ``learn`` is given a dataset, with parameters of its own; None: it does
            not learn from datasets.
        data_first: whether the algorithm is made for datasets, though it can train in an environment, too.
        alone: whether it trains in this process only, without roles.
    """

    run: Callable[..., None]
    experience: Literal['rollouts', 'evaluations', 'steps']
    pace: Literal['lockstep', 'stream', 'gradients'] = 'lockstep'
    from_data: Callable[..., None] | None = None
    data_first: bool = False
    alone: bool = False

    @property
    def needs_data(self) -> bool:
        """Whether it only learns from a dataset."""
        return self.run is self.from_data


class Acts(Protocol):
    """An agent that plays episodes: what tests and films need.

    Attributes:
        observation_space, action_space: of one copy of the environment.
        action_adaptor: turns stored actions into the environment's actions.
        behavior: the behavior policy.
        rng: the random generator of exploration and of batches.
        progress: the fraction of the current training that is done, in [0, 1]. Schedules read it; the loops set it.
    """

    observation_space: Space
    action_space: Space
    action_adaptor: ActionAdaptor
    behavior: Behavior
    rng: np.random.Generator
    progress: float

    def act(self, obs: spaces.Flat, deterministic: bool = False) -> spaces.Flat:
        """Return stored actions ``[N, …]`` for flat observations ``[N, …]``; ``deterministic``: do not explore."""


class Learns(Acts, Protocol):
    """An agent that collects experience and updates itself: what a loop's experience needs.

    Attributes:
        steps: training steps in the agent's life: environment steps, and updates on datasets. The loops count them.
        data_steps: how many of these steps were updates on datasets.
        updates: gradient updates in its life, in a loop over ``'steps'``.
        replay: the replay buffer, once there is one.
        priorities: of the transitions of the last ``update_on``, ``[K, B]``; None where sampling is uniform.
    """

    steps: int
    data_steps: int
    updates: int
    replay: Replay | None
    priorities: np.ndarray | None

    @property
    def calls(self) -> dict[Any, Callable[..., Any]]:
        """Calls that are compiled together with an environment, by what they were compiled for."""

    def random_action(self, obs: spaces.Flat) -> spaces.Flat:
        """Return uniformly random stored actions for flat observations ``[N, …]``, of the allowed ones if masked."""

    def draw_seed(self) -> int:
        """Draw a seed for the environment from the agent's own stream."""

    def episodes_restarted(self, copies: slice | None = None) -> None:
        """Take note that every copy of the environment was reset, or only these copies."""

    def replay_for(self, capacity: int, num_envs: int, compress: bool = False) -> Replay:
        """Return a replay buffer for ``num_envs`` copies, with the transitions that an earlier training left in it."""

    def ring_for(self, capacity: int, num_envs: int) -> TensorRing:
        """Return a replay buffer of tensors, with the transitions that an earlier training left in it."""

    def update(self, *args: Any, **kwargs: Any) -> Any:
        """Make one update. :class:`Agent` says what it is given and returns."""

    def take(self, result: np.ndarray) -> dict[str, float]:
        """Act with the weights in the result of a compiled update; return its metrics by name."""

    def see_rewards(self, rewards: np.ndarray) -> None:
        """Look at rewards of any shape before they are learned from; an algorithm may warn of them."""

    def update_on(self, batches: Batch | SequenceBatch) -> dict[str, float]:
        """Make ``K`` updates in one compiled call; return the metrics of the last one.

        Where sampling is prioritized, ``priorities`` holds the new priorities of the batches afterwards.

        Args:
            batches: fields ``[K, …]``. Of sequences ``update`` is given the transitions to learn from, with
                observations :class:`zoo.common.networks.remembered.Remembered`.
        """

    def collected(self) -> Collected:
        """Return what gathers the moments of collected observations for :meth:`observe_moments`."""

    @property
    def observed_recordings(self) -> bool:
        """Whether the running statistics include observations of recorded episodes."""

    def observe_moments(self, found: Mapping[str, np.ndarray]) -> None:
        """Take observations into the running statistics by their moments, by path ``[P, 3, size]``."""

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """Every weight that an update moves."""

    def weights_are_finite(self) -> bool:
        """Return whether every weight that an optimizer moves is a finite number."""

    def save(
        self, path: str | os.PathLike[str], buffer: bool = False, loop_state: dict[str, int] | None = None
    ) -> Path:
        """Write a checkpoint, ``buffer``: with the replay buffer.

        ``loop_state`` holds ``steps`` and ``train_steps`` of a training that is under way.
        """


class Agent(Learns, Protocol):
    """An agent: what the loops (:mod:`zoo.common.training.loops`) and roles (:mod:`zoo.distributed.training`) train.

    :class:`zoo.algorithms.base.Algorithm` implements it. An algorithm adds what is its own:

    * ``loop``: the training loop, which decides what ``update`` is given;
    * ``network_names``, ``optimizer_names``, ``metric_names``: its parts, and what it reports;
    * ``acts_in``: the kinds of action space that it can act in; ``squash``: whether a tanh keeps its actions in
      [−1, 1], which needs a ``Box`` with finite bounds;
    * its hyper-parameters, each an annotated attribute of the class (:mod:`zoo.algorithms.base.parameters`);
    * ``build``, which makes networks, targets, optimizers and ``behavior``; each network ends in a
      :class:`zoo.common.networks.heads.Head`;
    * ``sampling``, where the loop's ``experience`` is ``'steps'``: how transitions are drawn from the replay buffer;
    * ``update``, by the loop's ``experience``:

      * ``'steps'``: ``update(batch, seed)`` is traced into the compiled call. ``batch`` is a
        :class:`zoo.common.records.Batch` with fields ``[B, …]``. ``seed``, int32 ``[2]``, is for stateless random
        operations; ``seed + 1`` is free too. It returns a dict of scalars with the keys ``metric_names``. Where
        ``sampling`` has priorities, the key ``'priority'`` holds the new priorities ``[B]`` besides.
      * ``'rollouts'``: it takes :class:`zoo.common.records.Trajectories`, fields ``[T, N, …]``, and its keyword
        parameters; with ``**others`` also the ones of the ``update`` that it extends. It returns the metrics as floats,
        or None where nothing was updated.
      * ``'evaluations'``: it takes :class:`zoo.common.records.Evaluations` of as many perturbations as
        ``perturbations`` says; ``behavior`` is a :class:`zoo.common.acting.greedy.Deterministic`.

    Further state (targets, counters, a temperature) goes into ``state_variables``. What is kept along an episode is
    dropped in :meth:`episodes_restarted`. Then saving, resuming and sending to other learners work without more code.
    Where updates differ in turn, as with a delayed actor, ``phases`` is the length of the cycle. Then
    ``update(batch, seed, phase)`` is told its place in it.

    Attributes:
        preprocess: turns observations into what networks take.
        net_list, optimizers_list: the entries that networks and optimizers were made from.
        networks, optimizers: by name, in that order; without the targets.
        statistics: running statistics of the normalized observations, by path.
        state_variables: further variables that are state, by name.
        learned: the weights that training goes on with, where the networks have a mean of them; otherwise None.
        loop_state: of a checkpoint that was written during training: ``steps`` behind it and ``train_steps``.
        saved_buffer: the arrays of a loaded replay buffer, until training takes them.
        is_training: whether ``learn`` is under way.
    """

    loop: ClassVar[Loop]
    needed: ClassVar[dict[str, str]]
    network_names: ClassVar[tuple[str, ...]]
    optimizer_names: ClassVar[tuple[str, ...]]
    metric_names: ClassVar[tuple[str, ...]]

    preprocess: Preprocess
    net_list: Any
    optimizers_list: Any
    networks: dict[str, Network]
    optimizers: dict[str, Optimizer]
    statistics: dict[str, RunningMoments]
    state_variables: dict[str, tf.Variable]
    learned: dict[str, np.ndarray] | None
    loop_state: dict[str, int] | None
    saved_buffer: Mapping[str, np.ndarray] | None
    ring: TensorRing | None
    is_training: bool

    @property
    def improves_in_graph(self) -> bool:
        """Whether iterations may be compiled together with an environment (:mod:`.compiled_on_policy`)."""

    # How it was declared

    @classmethod
    def params(cls) -> dict[str, Any]:
        """Return the constructor's parameters with their defaults."""

    @classmethod
    def network_default(cls, name: str) -> dict[str, Any]:
        """Return what a spec of this network leaves out."""

    @classmethod
    def declared_for_learn(cls) -> dict[str, Param]:
        """Return the parameters of ``learn`` for this algorithm, by name."""

    def config(self) -> dict[str, Any]:
        """Return algorithm, spaces and hyper-parameters as plain data."""

    # What users and callbacks call

    def learn(self, env: Any, mode: str, **params: Any) -> TrainingResult | TestResult:
        """Train or test in an environment."""

    def predict(self, obs: Any, deterministic: bool = True, state: Any = None) -> Any:
        """Return the environment's action for an observation or a batch; with ``state`` also the new state."""

    def initial_state(self, count: int = 1) -> np.ndarray:
        """Return the recurrent state with which ``count`` episodes begin, float32 ``[count, S]``."""

    # What the loops read

    def scheduled_values(self) -> dict[str, float]:
        """Return the present values of what follows a schedule, by name."""

    @property
    def sampling(self) -> Sampling:
        """How transitions are drawn from the replay buffer."""

    @property
    def perturbations(self) -> tuple[int, float]:
        """The number of perturbations in each update, and their standard deviation, of a loop over evaluations."""

    # What the roles of a distributed training call

    @property
    def forward(self) -> Forward:
        """The forward pass for acting. Actors and servers are sent ``agent.forward.weights()``."""

    def blueprint(self) -> tuple[type, dict[str, Any]]:
        """Return the class and arguments of an agent like this one with new weights. Both pickle if the networks do."""

    def network_weights(self) -> dict[str, np.ndarray]:
        """Return the weights of all networks, and what else optimizers move, by name."""

    def set_network_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Act and learn with the `network_weights` that were returned before."""

    def state(self) -> dict[str, np.ndarray]:
        """Return every weight, optimizer state, statistic and counter: what :meth:`restore_state` takes."""

    def restore_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over the `state` of an agent with the same networks."""

    def moments(self) -> dict[str, RunningMoments]:
        """Return the running statistics by name."""

    def learn_together(self, all_reduce: Any) -> None:
        """Average every update with processes that have the same weights, from now on; None: alone again."""

    def reseed(self, seed: int | None, stream: str) -> None:
        """Draw batches, noise and dropout from another stream than an agent with the same state."""


class AgentOfGradients(Agent, Protocol):
    """An agent whose loop has the pace ``'gradients'``: its actors compute the gradients."""

    def gradient(self, rollout: Trajectories) -> dict[str, Any]:
        """In an actor: return the gradient of a rollout ``[T, N, …]`` with at least one valid step."""

    def take_gradient(self, found: dict[str, Any]) -> dict[str, float]:
        """In the learner: make one step by a `gradient` of an actor; return the metrics.

        Raises:
            ValueError: the gradient belongs to an agent with other networks.
        """

    def weights(self) -> dict[str, np.ndarray]:
        """Return everything that a gradient depends on: what :meth:`load_weights` takes."""

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Act, and compute gradients, with the `weights` of another process."""


def mismatch(agent: Acts, env: Env | VectorEnv | Acts) -> str | None:
    """Return which space of an environment, or of another agent, is not the agent's, and why; None where both are."""
    prefix = 'single_' if isinstance(env, VectorEnv) else ''
    for kind, adaptor in (('observation_space', observation), ('action_space', action)):
        reason = adaptor.mismatch(getattr(agent, kind), getattr(env, prefix + kind))
        if reason is not None:
            return f'{kind} {reason}'
    return None
