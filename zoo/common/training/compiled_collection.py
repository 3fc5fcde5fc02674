"""Experience from an environment that is compiled: whole rollouts in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.common.acting.greedy import Deterministic
from zoo.common.envs.about import env_name
from zoo.common.envs.compiled.env import Compiled, steps_of
from zoo.common.records import Evaluations, Trajectories
from zoo.common.rollouts.compiled_play import CompiledPlay
from zoo.common.rollouts.compiled_rollouts import Ends, PlayState, Taken, check_sound, take_steps, tell, trajectories
from zoo.common.rollouts.perturbed_play import both_ways, evaluations
from zoo.common.tools.compilation import XlaCall
from zoo.common.tools.errors import NotFinite
from zoo.common.training.agent import Learns
from zoo.common.training.collection import Collection
from zoo.common.training.experience import StepCounter

#: The most steps of each copy in one call. Ctrl-C waits for its end.
CALL_STEPS = 256


class CompiledCollection(Collection):
    """Experience that an agent collects in a compiled environment of this process."""

    is_compiled = True

    def __init__(self, agent: Learns, env: Any, start: int = 0) -> None:
        super().__init__(agent, env, False, start)
        self.env: Compiled = env
        self.name = env_name(env)
        self._ends = Ends(self.num_envs)

    def restart(self, seed: int | None) -> None:
        super().restart(seed)
        self._ends.restart()

    @property
    def now(self) -> PlayState:
        """Where the environment and the policy are."""
        state = self.agent.behavior.state
        assert self.env.state is not None  # `restart` comes first
        return PlayState(self.env.state, () if state is None else state)

    @property
    def begins(self) -> np.ndarray:
        """Where an episode begins with the next step, bool ``[N]``."""
        return self._ends.lengths == 0

    def went_on(self, now: PlayState) -> None:
        """Take note of where environment and policy are now."""
        self.env.state = now.copies
        if self.agent.behavior.state is not None:
            self.agent.behavior.state = now.memory.numpy()

    def rollout(self, training: StepCounter, horizon: int) -> Trajectories:
        agent = self.agent
        copies, behavior = self.env.steps.copies, agent.behavior
        call = self.compiled(
            (copies, behavior, horizon),
            lambda now, seed, progress: take_steps(copies, behavior, now, horizon, seed, progress),
        )
        begun = self.begins
        now, found = call(self.now, self.draw_call_seed(), np.float32(agent.progress))
        self.went_on(now)
        taken: Taken = tf.nest.map_structure(array_of, found)
        steps = taken.transition
        check_sound(copies, steps, self.name, self.collector.steps)
        done = steps.terminated | steps.truncated
        self.report(training, steps.reward, done)
        return trajectories(behavior, taken, np.ones_like(done), np.concatenate([begun[None], done[:-1]]))

    def evaluations(self, training: StepCounter, seeds: np.ndarray, std: float, episodes: int) -> Evaluations:
        """Play all perturbations at once, each in a copy of its own, however many copies the environment has."""
        behavior, calls = self.agent.behavior, self.agent.calls
        assert isinstance(behavior, Deterministic)  # as the contract says
        self.num_envs = 2 * len(seeds)  # which play at the same time
        made = steps_of(self.env.functions, self.num_envs, self.env.steps.copies.limit)
        key = made.copies, behavior
        if key not in calls:
            calls[key] = CompiledPlay(made, behavior, CALL_STEPS)
        return evaluations(seeds, episodes, *calls[key](*both_ways(seeds), std, episodes, training.stepped))

    def compiled(self, key: tuple[Any, ...], function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function compiled by XLA, the one of an earlier training where it was compiled for the same key."""
        calls = self.agent.calls
        if key not in calls:
            calls[key] = XlaCall(function, f'{self.name} together with the policy')
        return calls[key]

    def draw_call_seed(self) -> np.ndarray:
        """Draw the seed of a call from the agent's own stream, int32 ``[2]``."""
        return self.agent.rng.integers(2**31, size=2, dtype=np.int64).astype(np.int32)

    def refuse_not_finite(self, steps: int) -> None:
        """Say that what the environment gave is not is_sound, in a call's step with so many before it in each copy."""
        raise NotFinite(
            f'step {self.collector.steps + (steps + 1) * self.num_envs}: {self.name} gave an observation or a reward '
            'that is NaN, infinite or outside a discrete space: mend its step().'
        )

    def report(self, training: StepCounter, reward: np.ndarray, done: np.ndarray) -> None:
        """Count steps with these rewards, float32 ``[T, N]``; ``done``, bool ``[T, N]``, says where episodes ended."""
        tell(training.stepped, self._ends.found(reward, done), np.full(len(reward), self.num_envs))
        self.collector.steps += reward.size


def array_of(x: tf.Tensor) -> np.ndarray:
    """Return a tensor's numbers, where it can be in the tensor's own memory."""
    return np.asarray(memoryview(x)) if x.dtype != tf.bool else x.numpy()
