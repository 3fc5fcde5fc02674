"""Experience from an environment in this process, for every loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common import spaces
from zoo.common.acting.greedy import Deterministic
from zoo.common.records import Evaluations, Trajectories, Transition
from zoo.common.rollouts.collector import Collector
from zoo.common.rollouts.perturbed_play import PerturbedPlay, both_ways, evaluations
from zoo.common.rollouts.rollout_buffer import RolloutBuffer
from zoo.common.training.agent import Acts, Learns
from zoo.common.training.experience import (
    Gradients,
    PerturbedEpisodes,
    Rollouts,
    Steered,
    Step,
    StepCounter,
    Steps,
    Streams,
)


class Collection(Rollouts, Streams, Gradients, Steps, Steered, PerturbedEpisodes):
    """Experience that an agent collects in an environment of this process.

    ``start`` is the number of steps that a resumed call has behind it.

    Attributes:
        is_compiled: whether steps are compiled together with the policy.
    """

    is_compiled = False

    def __init__(self, agent: Learns, env: Env | VectorEnv, render: bool = False, start: int = 0) -> None:
        self.agent = agent
        self.collector = Collector(env, agent.action_adaptor, render, agent.behavior.episodes_begin)
        self.collector.steps = start
        self.num_envs = self.collector.num_envs
        self._buffer: RolloutBuffer | None = None
        self._joined: RolloutBuffer | None = None
        self._collected = agent.collected()

    def restart(self, seed: int | None) -> None:
        self.collector.reset(seed)
        self.agent.episodes_restarted()

    def rollout(self, training: StepCounter, horizon: int) -> Trajectories:
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
        if self._joined is None:
            self._joined = buffer_for(self.agent, horizon, rollouts * self.num_envs)
        for i in range(rollouts):
            self._joined.put(slice(i * self.num_envs, (i + 1) * self.num_envs), self.rollout(training, horizon))
        return self._joined.rollout

    def improve(self, training: StepCounter, horizon: int) -> dict[str, float] | None:
        return self.agent.update(self.rollout(training, horizon))

    def steps(self, training: StepCounter, explore_steps: int, wait: bool = True) -> Iterator[Step]:
        agent, collector = self.agent, self.collector
        obs, before, state = collector.obs, collector.steps, agent.behavior.state
        explores = agent.steps < explore_steps and not agent.data_steps  # a policy from a dataset explores by itself
        yield self._taken(agent.random_action(obs) if explores else agent.act(obs), state)
        training.stepped(collector.steps - before, collector.finished)

    def step(self, training: StepCounter, choose: Callable[[spaces.Flat, np.ndarray], spaces.Flat]) -> Step:
        collector = self.collector
        before, state = collector.steps, self.agent.behavior.state
        found = self._taken(choose(collector.obs, collector.begins), state)
        training.stepped(collector.steps - before, collector.finished)
        return found

    def _taken(self, action: spaces.Flat, state: np.ndarray | None) -> Step:
        """Take one step in every copy; ``state`` is the recurrent state ``[N, S]`` before it."""
        collector, obs = self.collector, self.collector.obs
        collector.step(action)
        transition = Transition(
            obs, action, collector.reward, collector.next_obs, collector.terminated, collector.truncated
        )
        self._collected.add(obs, collector.valid)
        return Step(transition, collector.valid, state=state)

    def observed(self) -> dict[str, np.ndarray]:
        return self._collected.take()

    def evaluations(self, training: StepCounter, seeds: np.ndarray, std: float, episodes: int) -> Evaluations:
        collector, behavior = self.collector, self.agent.behavior
        assert isinstance(behavior, Deterministic)  # as the contract says

        def stepped(before: int) -> None:
            training.stepped(collector.steps - before, play.finished)

        play = PerturbedPlay(collector, behavior, episodes)
        return evaluations(seeds, episodes, *play(*both_ways(seeds), std, stepped))


def buffer_for(agent: Acts, horizon: int, num_envs: int) -> RolloutBuffer:
    """Make storage for an agent's rollouts, with the fields that its behavior policy asks for."""
    behavior = agent.behavior
    return RolloutBuffer(
        agent.observation_space, agent.action_adaptor, horizon, num_envs, behavior.state_size, behavior.param_size
    )
