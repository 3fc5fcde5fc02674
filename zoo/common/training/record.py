"""``zoo.record_episodes``: episodes played by an agent or a function, as a dataset."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv

from zoo.common import spaces
from zoo.common.acting.probabilities import draws, log_prob_of, why_unknown
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.datasets.dataset import Dataset
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.datasets.given_episodes import GivenEpisodes
from zoo.common.datasets.opening import check_spaces
from zoo.common.datasets.source import Environment
from zoo.common.datasets.writing import reread, writer_for
from zoo.common.envs.about import about
from zoo.common.rollouts.collector import Collector
from zoo.common.tools.checks import whole
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.files import jsonable
from zoo.common.training.agent import Agent

log = logging.getLogger('zoo')

#: A function from the observations ``[T + 1, …]`` and the actions of an episode to log-probabilities, float32 ``[T]``.
_LogProb = Callable[[spaces.Flat, spaces.Flat], np.ndarray]


def record_episodes(
    agent: Agent | Callable[[Any], Any],
    env: Env | VectorEnv,
    path: str | os.PathLike[str] | None,
    episodes: int = 100,
    deterministic: bool = True,
    seed: int | None = None,
) -> Dataset:
    """Play whole episodes and write them to a dataset, each as soon as it has ended.

    Of several copies each plays its share, so that short episodes are not recorded more often than long ones.

    >>> dataset = zoo.record_episodes(agent, env, 'runs/expert.npz', episodes=50, seed=0)
    >>> other.learn(env, 'train', dataset=dataset)

    Args:
        agent: an agent; or a function from an observation to an action in the environment's own form, of all copies of
            a vector environment.
        env: an environment or a vector environment. The recorded rewards are shaped if its wrappers shape them.
        path: a file whose name ends in ``.npz``; a folder, whose name has no ending, for datasets that are larger than
            memory; None keeps the episodes in memory.
        episodes: the number of episodes.
        deterministic: let an agent play without exploration. With False the episodes of an agent that draws its
            actions hold their log-probabilities, for :func:`zoo.estimate_return`. Some explorations have none.
        seed: of the environment.

    Raises:
        ValueError: another ending, no episodes, or an environment with other spaces than the agent's.
        OSError: the path cannot be written.
    """
    episodes = whole('episodes', episodes)
    vector = isinstance(env, VectorEnv)
    observation_space = env.single_observation_space if isinstance(env, VectorEnv) else env.observation_space
    action_space = env.single_action_space if isinstance(env, VectorEnv) else env.action_space
    known = about(env)
    try:
        arguments = jsonable(known.arguments)
    except TypeError:
        arguments = None
    if arguments is not None:  # how many copies played says nothing of the episodes
        arguments = {name: value for name, value in arguments.items() if name not in ('nenv', 'vectorized')}
    environment = Environment(known.name, known.type, arguments)
    if isinstance(path, str | os.PathLike) and Path(path).exists():
        log.warning("'%s' is written anew: the episodes that it holds are replaced.", path)
    writer = None if path is None else writer_for(path, observation_space, action_space, environment)
    act, adaptor, begin, log_prob = _acting(agent, observation_space, action_space, vector, deterministic)
    collector = Collector(env, adaptor, begin=begin)
    collector.reset(seed)
    played = _played(collector, act, action_space, episodes, log_prob)
    if writer is None:
        name = 'recorded episodes'
        return Dataset(GivenEpisodes(list(played), observation_space, action_space, name, environment))
    with writer:
        for episode in played:
            writer.add(episode)
    return Dataset(reread(writer))


def record_dataset(
    policy: Agent | Callable[[Any], Any],
    env: Env | VectorEnv,
    episodes: int,
    path: str | os.PathLike[str],
    deterministic: bool = True,
    seed: int | None = None,
) -> Path:
    """Do what :func:`record_episodes` does, with the arguments of version 0.1; return the path."""
    found = record_episodes(policy, env, path, episodes, deterministic, seed).path
    assert found is not None
    return found


def _played(
    collector: Collector,
    act: Callable[[spaces.Flat], spaces.Flat],
    action_space: Space,
    episodes: int,
    log_prob: _LogProb | None,
) -> Iterator[RecordedEpisode]:
    """Play so many episodes after a reset; give each when it has ended."""
    quota = collector.shares(episodes)
    steps: list[list[tuple]] = [[] for _ in quota]  # observation, action and reward of each step under way, by copy
    while quota.any():
        obs = collector.obs
        stored = act(obs)
        collector.step(stored)
        taken = spaces.flatten(action_space, collector.adaptor.to_env(stored))
        for i in np.flatnonzero(collector.valid & (quota > 0)):
            one, chosen = (spaces.tree_map(lambda x, i=i: np.copy(x[i]), flat) for flat in (obs, taken))
            steps[i].append((one, chosen, collector.reward[i]))
            terminated, truncated = bool(collector.terminated[i]), bool(collector.truncated[i])
            if not (terminated or truncated):
                continue
            last = spaces.tree_map(lambda x, i=i: np.copy(x[i]), collector.next_obs)
            all_obs, all_actions, rewards = zip(*steps[i], strict=True)
            steps[i] = []
            seen = spaces.tree_map(lambda *x: np.stack(x), *all_obs, last)
            chosen = spaces.tree_map(lambda *x: np.stack(x), *all_actions)
            known = None if log_prob is None else log_prob(seen, chosen)
            yield RecordedEpisode(seen, chosen, np.array(rewards, np.float32), terminated, truncated, known)
        for episode in collector.finished:  # the loss of a life is no end
            quota[episode.copy] = max(0, quota[episode.copy] - 1)


def _acting(
    policy: Agent | Callable[[Any], Any],
    observation_space: Space,
    action_space: Space,
    vector: bool,
    deterministic: bool,
) -> tuple[Callable[[spaces.Flat], spaces.Flat], ActionAdaptor, Callable[[np.ndarray], None], _LogProb | None]:
    """Return a function from flat observations to stored actions ``[N, …]``, and the :class:`Collector`'s arguments.

    The last is a function from an episode's observations ``[T + 1, …]`` and actions ``[T, …]`` to log-probabilities
    ``[T]``; None where they are not known, or nothing is drawn.
    """
    if hasattr(policy, 'act') and hasattr(policy, 'action_adaptor'):
        agent = cast(Agent, policy)
        check_spaces(agent, observation_space, action_space, "the environment's")
        agent.forward.refresh()  # the weights may have been set since
        behavior = copy.copy(agent.behavior)  # a copy, which keeps state along these episodes

        def play(obs: spaces.Flat) -> spaces.Flat:
            return behavior(obs, agent.rng, agent.progress, deterministic)

        def log_prob(obs: spaces.Flat, action: spaces.Flat) -> np.ndarray:
            before = spaces.tree_map(lambda x: x[:-1], obs)
            return log_prob_of(agent, before, action, True, True).astype(np.float32)

        known = not deterministic and draws(agent) and why_unknown(agent) is None
        return play, agent.action_adaptor, behavior.episodes_begin, log_prob if known else None
    if not callable(policy):
        raise InvalidValue(f'the policy is {policy!r}: give an agent, or a function from an observation to an action.')
    adaptor = ActionAdaptor(action_space)

    def act(obs: spaces.Flat) -> spaces.Flat:
        # In new arrays, since the function may write in them.
        seen = spaces.tree_map(np.copy if vector else lambda x: np.copy(x[0]), obs)
        chosen = spaces.flatten(action_space, policy(spaces.unflatten(observation_space, seen)))
        return adaptor.from_env(chosen if vector else spaces.tree_map(lambda x: np.asarray(x)[None], chosen))

    return act, adaptor, lambda copies: None, None
