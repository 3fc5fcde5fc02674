"""Test episodes of an agent."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common.envs.about import about
from zoo.common.records import Episode, TestResult
from zoo.common.rollouts.collector import Collector
from zoo.common.tools.errors import TimedOut
from zoo.common.training.agent import Acts

#: Steps that :func:`pace` measures, after one that may compile something.
_MEASURED = 20


def run_test(
    agent: Acts,
    env: Env | VectorEnv,
    *,
    test_episodes: int = 10,
    render: bool = False,
    seed: int | None = None,
    until: float = math.inf,
) -> TestResult:
    """Play ``test_episodes`` whole episodes with the deterministic policy.

    A recurrent policy begins each episode with a state of zeros; its state in a training under way is kept. Of several
    copies each plays its share, so that short episodes do not count more often than long ones. An environment without
    ends needs a time limit (``max_episode_steps``).

    Raises:
        ValueError: a training steps this environment: a callback tests in a second one.
        TimeoutError: ``time.perf_counter()`` has reached ``until``.
    """
    collector, play = _player(agent, env, render)
    collector.reset(seed)
    quota = collector.shares(test_episodes)
    episodes: list[Episode] = []
    while quota.any():
        if time.perf_counter() > until:
            raise TimedOut(f'{len(episodes)} of {test_episodes} episodes have ended in the time that a test may take.')
        play()
        for episode in collector.finished:
            if quota[episode.copy]:
                quota[episode.copy] -= 1
                episodes.append(episode)
    return TestResult(
        [episode.episode_return for episode in episodes],
        [episode.length for episode in episodes],
        [episode.success for episode in episodes],
    )


def pace(agent: Acts, env: Env | VectorEnv, seed: int | None = None) -> tuple[float, float]:
    """Return the seconds that a reset takes, and those that a step of a test takes."""
    collector, play = _player(agent, env, False)
    began = time.perf_counter()
    collector.reset(seed)
    reset = time.perf_counter() - began
    play()
    began = time.perf_counter()
    for _ in range(_MEASURED):
        play()
    return reset, (time.perf_counter() - began) / _MEASURED


def _player(agent: Acts, env: Env | VectorEnv, render: bool) -> tuple[Collector, Callable[[], None]]:
    """Return a collector, and what takes one step in it with the deterministic policy."""
    state = np.zeros((about(env).copies, agent.behavior.state_size), np.float32)

    def begin(copies: np.ndarray) -> None:
        state[copies] = 0.0

    collector = Collector(env, agent.action_adaptor, render, begin)

    def play() -> None:
        if state.size:
            action, state[:] = agent.behavior.step(collector.obs, state, agent.rng, agent.progress, deterministic=True)
        else:
            action = agent.act(collector.obs, deterministic=True)
        collector.step(action)

    return collector, play
