"""Where a loop's experience comes from: this process, or others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common.acting.greedy import Deterministic
from zoo.common.records import Batch, Episode, Evaluations, SequenceBatch, Trajectories, Transition
from zoo.common.replay.hindsight import Hindsight
from zoo.common.rollouts.collector import Collector
from zoo.common.rollouts.evaluator import Evaluator, both_ways, evaluations
from zoo.common.rollouts.rollout_buffer import RolloutBuffer
from zoo.common.training.agent import Agent


class Step(NamedTuple):
    """One step of some of the copies.

    Attributes:
        transition: fields ``[n, …]``.
        valid: bool ``[n]``, False where a copy was only reset.
        first: the number of the first of these ``n`` copies.
        begins: their episodes do not go on from the step of theirs before.
        state: the recurrent state before the step, float32 ``[n, S]``; None where the policy has none.
        priority: how far each is off, |δ| ``[n]``, where who took the step knows; else None.
    """

    transition: Transition
    valid: np.ndarray
    first: int = 0
    begins: bool = False
    state: np.ndarray | None = None
    priority: np.ndarray | None = None


class Stores(Protocol):
    """What :class:`zoo.common.replay.replay.Replay` is to the loop, also where other processes hold the transitions."""

    @property
    def added(self) -> int:
        """Transitions stored so far."""

    @property
    def recorded(self) -> int:
        """How many of them came by whole episodes."""

    def sample(
        self, lead: tuple[int, ...], rng: np.random.Generator, progress: float, hindsight: Hindsight | None = None
    ) -> Batch | SequenceBatch:
        """Transitions, fields ``[*lead, …]``."""

    def prioritize(self, priorities: np.ndarray | None) -> None:
        """Set the priorities ``[*lead]`` of those that were drawn last; None changes nothing."""


class StepCounter(Protocol):
    """A training, as its experience knows it."""

    def stepped(self, count: int, episodes: Sequence[Episode]) -> None:
        """Count steps of the environment, and the episodes that ended in them."""


class Experience:
    """Where a loop's experience comes from. Of each kind a subclass gives what the loops that it serves ask for.

    Attributes:
        num_envs: copies of the environment that it comes from.
        learners: how many learners have as many each, this one among them.
        replay: where other processes store the steps, what is drawn from them; None: the loop stores them.
    """

    num_envs: int
    learners: int = 1
    replay: Stores | None = None

    def restart(self, seed: int | None) -> bool:
        """Begin new episodes in every copy, if that can be; whether it was done."""
        raise NotImplementedError

    def rollout(self, training: StepCounter, horizon: int) -> Trajectories:
        """``horizon`` steps of every copy with the current policy; tells ``training`` of them."""
        raise NotImplementedError

    def steps(self, training: StepCounter, explore_steps: int, wait: bool = True) -> Iterator[Step]:
        """The next step, or several; random ones in the agent's first ``explore_steps``; tells ``training`` of them.

        Those that others store it only tells of; and unless it is to ``wait``, there may be none.
        """
        raise NotImplementedError

    def stream(self, training: StepCounter, horizon: int, rollouts: int) -> Trajectories:
        """The next rollouts of ``horizon`` steps of some copies, side by side, as they come, of a policy of a while
        ago; tells ``training`` of them."""
        raise NotImplementedError

    def improve(self, training: StepCounter, horizon: int) -> dict[str, float] | None:
        """One update of the agent by ``horizon`` steps of some copies, wherever its gradient is computed; its metrics,
        None where there was nothing to learn. Tells ``training`` of the steps."""
        raise NotImplementedError

    def evaluations(self, training: StepCounter, seeds: np.ndarray, std: float, episodes: int) -> Evaluations:
        """Whole episodes with each of these perturbations of the policy's parameters, both ways; tells ``training``.

        Args:
            training: that asks for them.
            seeds: int64 ``[P]``, of the perturbations.
            std: what they are multiplied by.
            episodes: of each.
        """
        raise NotImplementedError

    def least(self, number: int) -> int:
        """The smallest of the numbers that all learners give, of which there may be others beside this one."""
        return number

    def measured(self) -> dict[str, float]:
        """What is to be logged of where the experience comes from since the last time, by name."""
        return {}


class Collection(Experience):
    """Experience from the environment in this process; see :class:`Experience`.

    Args:
        agent: acts.
        env: the environment, of one copy or several.
        render: draw every step.
        start: steps that a resumed call has behind it.
    """

    def __init__(self, agent: Agent, env: Env | VectorEnv, render: bool = False, start: int = 0) -> None:
        self.agent = agent
        self.collector = Collector(env, agent.action_adaptor, render, agent.behavior.episodes_begin)
        self.collector.steps = start
        self.num_envs = self.collector.num_envs
        self._buffer: RolloutBuffer | None = None
        self._joined: RolloutBuffer | None = None

    def restart(self, seed: int | None) -> bool:
        """See :class:`Experience`."""
        self.collector.reset(seed)
        self.agent.episodes_restarted()
        return True

    def rollout(self, training: StepCounter, horizon: int) -> Trajectories:
        """See :class:`Experience`; the next rollout is written over this one."""
        agent, collector = self.agent, self.collector
        if self._buffer is None:
            self._buffer = buffer_for(agent, horizon, self.num_envs)
        return self._buffer.fill(
            collector,
            agent.act,
            lambda before: training.stepped(collector.steps - before, collector.finished),
            agent.behavior,
        )

    def stream(self, training: StepCounter, horizon: int, rollouts: int) -> Trajectories:
        """See :class:`Experience`: one after another, of the current policy."""
        if self._joined is None:
            self._joined = buffer_for(self.agent, horizon, rollouts * self.num_envs)
        for i in range(rollouts):
            self._joined.put(slice(i * self.num_envs, (i + 1) * self.num_envs), self.rollout(training, horizon))
        return self._joined.rollout

    def improve(self, training: StepCounter, horizon: int) -> dict[str, float] | None:
        """See :class:`Experience`: all of it here."""
        return self.agent.update(self.rollout(training, horizon))

    def steps(self, training: StepCounter, explore_steps: int, wait: bool = True) -> Iterator[Step]:
        """See :class:`Experience`; there is one, which nobody has to wait for."""
        agent, collector = self.agent, self.collector
        obs, before, state = collector.obs, collector.steps, agent.behavior.state
        action = agent.random_action(obs) if agent.steps < explore_steps else agent.act(obs)
        collector.step(action)
        transition = Transition(
            obs, action, collector.reward, collector.next_obs, collector.terminated, collector.truncated
        )
        yield Step(transition, collector.valid, state=state)
        training.stepped(collector.steps - before, collector.finished)

    def evaluations(self, training: StepCounter, seeds: np.ndarray, std: float, episodes: int) -> Evaluations:
        """See :class:`Experience`."""
        collector, behavior = self.collector, self.agent.behavior
        assert isinstance(behavior, Deterministic)  # as the contract says

        def stepped(before: int) -> None:
            training.stepped(collector.steps - before, play.finished)

        play = Evaluator(collector, behavior, episodes)
        return evaluations(seeds, episodes, *play(*both_ways(seeds), std, stepped))


def buffer_for(agent: Agent, horizon: int, num_envs: int) -> RolloutBuffer:
    """Storage of the rollouts of an agent, with what it asks for."""
    behavior = agent.behavior
    return RolloutBuffer(
        agent.observation_space,
        agent.action_adaptor,
        horizon,
        num_envs,
        behavior.state_size,
        behavior.param_size,
    )
