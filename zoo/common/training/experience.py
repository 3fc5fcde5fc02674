"""What a training loop needs of its experience: one small protocol for each loop.

:class:`zoo.common.training.collection.Collection` gives all of them from an environment in this process;
:mod:`zoo.distributed.training` gives them from actors in other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from zoo.common import spaces
from zoo.common.records import Batch, Episode, Evaluations, SequenceBatch, Trajectories, Transition
from zoo.common.replay.hindsight import Hindsight


class StepCounter(Protocol):
    """A training, as its experience knows it."""

    def stepped(self, count: int, episodes: Sequence[Episode]) -> None:
        """Count environment steps, and the episodes that ended in them."""


class Experience(Protocol):
    """What every loop needs: ``num_envs`` copies. The protocols below add what one loop needs."""

    num_envs: int

    def restart(self, seed: int | None) -> None:
        """Begin new episodes in every copy, if the copies belong to this process."""

    def least(self, number: int) -> int:
        """Return the smallest of the numbers that all learners give here."""
        return number

    def measured(self) -> dict[str, float]:
        """Return what is to be logged of the experience since the last call, by name."""
        return {}


class Rollouts(Experience, Protocol):
    """The experience of :data:`zoo.common.training.loops.on_policy`."""

    def rollout(self, training: StepCounter, horizon: int) -> Trajectories:
        """Return ``horizon`` steps of every copy, which the next call writes over; report them to ``training``."""


class Streams(Experience, Protocol):
    """The experience of :data:`zoo.common.training.loops.streamed`."""

    def stream(self, training: StepCounter, horizon: int, rollouts: int) -> Trajectories:
        """Return the next rollouts of ``horizon`` steps, side by side; report their steps to ``training``.

        They are taken as they come: their policy may be a little older than the agent's. The next call overwrites them.
        """


class Gradients(Experience, Protocol):
    """The experience of :data:`zoo.common.training.loops.asynchronous`."""

    def improve(self, training: StepCounter, horizon: int) -> dict[str, float] | None:
        """Make one update by ``horizon`` steps of some copies, wherever its gradient is computed; report the steps.

        It returns the metrics of the update, or None where no step was valid.
        """


class Step(NamedTuple):
    """One step of ``n`` neighboring copies.

    Attributes:
        transition: fields ``[n, …]``.
        valid: bool ``[n]``, False where a copy was only reset.
        first: the number of the first of these copies.
        begins: whether their episodes begin here although no earlier step ended them: an actor was started again.
        state: the recurrent state before the step, float32 ``[n, S]``; None where the policy has none.
        priority: |δ| of each transition ``[n]``, where the actor knows it; else None.
    """

    transition: Transition
    valid: np.ndarray
    first: int = 0
    begins: bool = False
    state: np.ndarray | None = None
    priority: np.ndarray | None = None


class ReplayBuffer(Protocol):
    """A replay buffer, here (:class:`zoo.common.replay.replay.Replay`) or in other processes."""

    @property
    def added(self) -> int:
        """The number of transitions stored so far."""

    @property
    def recorded(self) -> int:
        """How many of the stored transitions came in whole recorded episodes."""

    def sample(
        self, lead: tuple[int, ...], rng: np.random.Generator, progress: float, hindsight: Hindsight | None = None
    ) -> Batch | SequenceBatch:
        """Draw transitions, fields ``[*lead, …]``."""

    def prioritize(self, priorities: np.ndarray | None) -> None:
        """Set the priorities ``[*lead]`` of the transitions drawn last; None changes nothing."""


class Steps(Experience, Protocol):
    """The experience of :data:`zoo.common.training.loops.off_policy`.

    Attributes:
        learners: the number of learners, including this one. Each has ``num_envs`` copies.
        replay: the replay buffer that other processes fill; None: the loop has its own and fills it.
    """

    learners: int = 1
    replay: ReplayBuffer | None = None

    def steps(self, training: StepCounter, explore_steps: int, wait: bool = True) -> Iterator[Step]:
        """Iterate over the next step or steps for the loop to store; report them to ``training``.

        Steps that another process stores are only reported. The first ``explore_steps`` of the agent's life have
        uniformly random actions. Without ``wait`` the iterator is empty if no step is there yet.
        """

    def observed(self) -> dict[str, np.ndarray]:
        """Return the moments of the observations acted on since the last call, for the running statistics."""


class Steered(Experience, Protocol):
    """The experience of :data:`zoo.common.training.loops.dagger`."""

    def step(self, training: StepCounter, choose: Callable[[spaces.Flat, np.ndarray], spaces.Flat]) -> Step:
        """Take one step in every copy by the stored actions ``choose(obs, begins)``; report it to ``training``.

        ``obs`` are flat observations ``[N, …]``; ``begins``, bool ``[N]``, says where an episode begins.
        """

    def observed(self) -> dict[str, np.ndarray]:
        """Return the moments of the observations acted on since the last call, for the running statistics."""


class Data(Experience, Protocol):
    """The experience of :func:`zoo.common.training.offline_loop.learn_from_data`: there is none besides the dataset.

    Attributes:
        learners: the number of learners, including this one.
    """

    learners: int = 1


class NoEnvironment(Data):
    """What a training on a dataset in this process has in place of an environment."""

    num_envs = 0

    def restart(self, seed: int | None) -> None:
        raise AssertionError('there are no episodes to begin')


class PerturbedEpisodes(Experience, Protocol):
    """The experience of :data:`zoo.common.training.loops.evolution`."""

    def evaluations(self, training: StepCounter, seeds: np.ndarray, std: float, episodes: int) -> Evaluations:
        """Play ``episodes`` whole episodes with each perturbation, added and subtracted; report their steps.

        ``seeds``, int64 ``[P]``, and the standard deviation ``std`` give the perturbations of the parameters.
        """
