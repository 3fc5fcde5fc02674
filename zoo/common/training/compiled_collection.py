"""Experience from an environment that is compiled: whole rollouts in one call."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common import spaces
from zoo.common.envs.about import env_name
from zoo.common.envs.compiled.env import Compiled
from zoo.common.records import Trajectories
from zoo.common.rollouts.compiled_rollouts import Ends, Progress, Steps, check_finite, take_steps
from zoo.common.tools.compilation import XlaCall
from zoo.common.training.agent import Learns
from zoo.common.training.collection import Collection
from zoo.common.training.experience import StepCounter

log = logging.getLogger('zoo')

#: The warning where an environment could be compiled, but is not.
IN_PYTHON = 'This compiled environment is stepped from Python, which takes longer: %s.'


def collection_of(agent: Learns, env: Env | VectorEnv, render: bool, start: int) -> Collection:
    """Return the experience of an environment in this process: compiled where environment and agent can be."""
    if not isinstance(env.unwrapped, Compiled):
        return Collection(agent, env, render, start)
    why = None
    if not isinstance(env, Compiled):
        why = f'{type(env).__name__} around it is Python'
    elif render:
        why = 'every step is shown'
    elif not agent.behavior.traces:
        why = f'{type(agent).__name__} explores in a way that is not compiled'
    if why is None:
        return CompiledCollection(agent, env, start)
    log.warning(IN_PYTHON, why)
    return Collection(agent, env, render, start)


class CompiledCollection(Collection):
    """Experience that an agent collects in a compiled environment of this process."""

    def __init__(self, agent: Learns, env: Any, start: int = 0) -> None:
        super().__init__(agent, env, False, start)
        self.env: Compiled = env
        self.name = env_name(env)
        self._ends = Ends(self.num_envs)
        self._calls: dict[int, XlaCall] = {}

    def restart(self, seed: int | None) -> None:
        super().restart(seed)
        self._ends.restart()

    @property
    def now(self) -> Progress:
        """Where the environment and the policy are."""
        state = self.agent.behavior.state
        assert self.env.state is not None  # `restart` comes first
        return Progress(self.env.state, () if state is None else state)

    def went_on(self, now: Progress) -> None:
        """Take note of where environment and policy are now."""
        self.env.state = now.copies
        if self.agent.behavior.state is not None:
            self.agent.behavior.state = now.memory.numpy()

    def rollout(self, training: StepCounter, horizon: int) -> Trajectories:
        agent, begins = self.agent, None
        if horizon not in self._calls:
            copies, behavior = self.env.steps.copies, agent.behavior
            self._calls[horizon] = XlaCall(
                lambda now, seed, progress: take_steps(copies, behavior, now, horizon, seed, progress)
            )
        begun = self._ends.lengths == 0
        seed = agent.rng.integers(2**31, size=2, dtype=np.int64).astype(np.int32)
        now, found = self._calls[horizon](self.now, seed, np.float32(agent.progress))
        self.went_on(now)
        steps = Steps(*(spaces.tree_map(array_of, x) if not isinstance(x, tuple) else x for x in found))
        check_finite(steps, self.name, self.collector.steps)
        self.report(training, steps)
        done = steps.terminated | steps.truncated
        state = None
        if steps.memory != ():
            state, begins = steps.memory[0], np.concatenate([begun[None], done[:-1]])
        kept = steps.params if agent.behavior.param_size else None
        return Trajectories(*steps[:6], np.ones_like(done), state, begins, kept)

    def report(self, training: StepCounter, steps: Steps) -> None:
        """Count the steps, and the episodes that ended in them."""
        self.report_ends(training, steps.reward, steps.terminated | steps.truncated)

    def report_ends(self, training: StepCounter, reward: np.ndarray, done: np.ndarray) -> None:
        """Count steps with these rewards, float32 ``[T, N]``; ``done``, bool ``[T, N]``, says where episodes ended."""
        counted, copies = 0, self.num_envs
        for t, episodes in self._ends.found(reward, done):
            training.stepped((t + 1 - counted) * copies, episodes)
            counted = t + 1
        if counted < len(reward):
            training.stepped((len(reward) - counted) * copies, ())
        self.collector.steps += len(reward) * copies


def array_of(x: tf.Tensor) -> np.ndarray:
    """Return a tensor's numbers, where it can be in the tensor's own memory."""
    return np.asarray(memoryview(x)) if x.dtype != tf.bool else x.numpy()
