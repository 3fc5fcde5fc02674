"""``agent.rollout`` and ``agent.evaluate``: for training loops that a user writes."""

from __future__ import annotations

import copy
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.algorithms.base import learning
from zoo.common import spaces
from zoo.common.adaptors import action as actions
from zoo.common.adaptors import observation as observations
from zoo.common.networks.network import penalized
from zoo.common.records import Episode, Trajectories
from zoo.common.rollouts.claims import claims
from zoo.common.rollouts.collector import Collector
from zoo.common.rollouts.estimates import EvaluatedRollout
from zoo.common.rollouts.rollout import Player, Rollout, Span
from zoo.common.tools import seeding
from zoo.common.tools.checks import whole
from zoo.common.tools.errors import InvalidValue
from zoo.common.training.agent import Agent


class PlayingAgent(Agent, Protocol):
    """An agent that plays for a user, and evaluates what was played.

    Attributes:
        player: this agent, as its rollouts know it.
        plays: the environments in which :func:`rollout` goes on, by their identity.
    """

    player: Player
    plays: dict[int, Play]

    @property
    def values_states(self) -> bool:
        """Whether there is a critic of states."""

    def policy_and_value(self, obs: spaces.Flat, training: bool = False) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Give the parameters of the policy's distribution ``[B, …]``, and values of states ``[B]``."""

    def policy_and_value_along(self, steps: Trajectories, training: bool = False) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Give the same ``[T N, …]`` for steps in their order, with fields ``[T, N, …]``."""


class Play:
    """An environment in which an agent plays, during one or several calls of ``agent.rollout``.

    It has its own copy of the behavior policy: training, and play elsewhere, go on undisturbed. New episodes begin. The
    seed is the environment's and the actions'; without one the agent's generator draws the actions. An environment that
    is being trained on is refused.
    """

    def __init__(self, agent: PlayingAgent, env: Env | VectorEnv, seed: int | None) -> None:
        self.agent = agent
        self.behavior = copy.copy(agent.behavior)
        self.rng = agent.rng if seed is None else seeding.generator(seed, 'rollout')
        self.collector = Collector(env, agent.action_adaptor, begin=self.behavior.episodes_begin)
        self.collector.reset(None if seed is None else int(seeding.generator(seed, 'env/rollout').integers(2**31 - 1)))
        self.row = 0
        self._stored = agent.action_adaptor.zeros((1,))
        self._fresh = np.ones(self.collector.num_envs, bool)

    def go_on(self, steps: int | None, episodes: int | None, deterministic: bool) -> Rollout:
        """Play this many steps, summed over copies, or this many whole episodes, shared among copies."""
        collector = self.collector
        copies = collector.num_envs
        quota = None if episodes is None else collector.shares(episodes)
        rows: list[dict[str, Any]] = []
        params: list[np.ndarray] = []
        states: list[np.ndarray] = []
        ends: list[tuple[int, int, Episode]] = []
        while quota.any() if quota is not None else len(rows) * copies < (steps or 0):
            if self.behavior.state_size:
                states.append(np.array(self.behavior.state))
            row = self._step(deterministic)
            if quota is not None:
                row['valid'] &= quota > 0
                for name in ('terminated', 'truncated', 'begins'):
                    row[name] &= row['valid']
                row['reward'][~row['valid']] = 0.0
            for episode in collector.finished:
                if quota is None or quota[episode.copy]:
                    ends.append((len(rows), episode.copy, episode))
                    if quota is not None:
                        quota[episode.copy] -= 1
            rows.append(row)
            drawn_from = None if deterministic else getattr(self.behavior, 'params', None)
            if drawn_from is not None:
                params.append(drawn_from)
        fields = {name: spaces.tree_map(lambda *x: np.stack(x), *(row[name] for row in rows)) for name in rows[0]}
        fields['cut'] = np.zeros_like(fields['valid'])
        fields['log_prob'] = None
        fields['state'] = np.stack(states) if states else None
        if params:
            distribution = self.agent.action_adaptor.distribution
            fields['log_prob'] = distribution.log_prob(tf.stack(params), fields['action']).numpy()
        span = Span(self, self.row, self.row + len(rows), tuple(range(copies)))
        self.row += len(rows)
        return Rollout(fields, self.agent.player, span, ends)

    def _step(self, deterministic: bool) -> dict[str, Any]:
        """Take one step, and give its fields ``[N, …]`` in new arrays."""
        collector = self.collector
        obs = spaces.tree_map(np.copy, collector.obs)
        action = self.behavior(obs, self.rng, self.agent.progress, deterministic)
        collector.step(action)
        terminated, truncated, valid = collector.terminated.copy(), collector.truncated.copy(), collector.valid.copy()
        begins = self._fresh & valid
        self._fresh = np.where(valid, terminated | truncated, self._fresh)
        return {
            'obs': obs,
            'action': spaces.tree_map(lambda x, like: np.array(x, like.dtype), action, self._stored),
            'reward': collector.reward.copy(),
            'next_obs': spaces.tree_map(np.copy, collector.next_obs),
            'terminated': terminated,
            'truncated': truncated,
            'valid': valid,
            'begins': begins,
        }


def rollout(
    agent: PlayingAgent, env: Any, steps: int | None, episodes: int | None, deterministic: bool, seed: int | None
) -> Rollout:
    """Play in an environment, from where the last call stopped if that is possible."""
    if (steps is None) == (episodes is None):
        raise InvalidValue('give rollout either steps=… or episodes=…, and not both.')
    for name, value in (('steps', steps), ('episodes', episodes)):
        if value is not None:
            whole(name, value)
    learning.check_environment(agent, env, 'rollout', 'steps=…')
    agent.forward.refresh()  # the weights may have been set since
    for optimizer in agent.optimizers.values():
        optimizer.set_progress(agent.progress)
    plays = agent.plays
    play = plays.pop(id(env), None)
    if play is None or episodes is not None or seed is not None or not play.collector.holds:
        play = Play(agent, env, seed)
    else:
        claims.check_free(env)
    found = play.go_on(steps, episodes, deterministic)  # after a failure the next call begins anew
    for key in [key for key, other in plays.items() if not other.collector.holds]:
        del plays[key]  # another play has begun episodes there
    if episodes is None:
        plays[id(env)] = play
    return found


def evaluate(agent: PlayingAgent, rollout: Rollout, training: bool) -> EvaluatedRollout:
    """Compute log-probabilities, entropies and values of a rollout with the weights of now."""
    if not isinstance(rollout, Rollout):
        kind = type(rollout).__name__
        raise InvalidValue(f'evaluate takes a rollout of agent.rollout, or a part of one, not a {kind}.')
    check_spaces(agent, rollout)
    if 0 in rollout.reward.shape:
        raise InvalidValue('this rollout has no steps to evaluate: give a part that is not empty.')
    lead = len(rollout.reward.shape)
    if agent.behavior.state_size and (lead == 1 or rollout.state is None):
        raise InvalidValue(
            'a recurrent policy evaluates steps of its own rollouts in their order: give a rollout or a slice of one, '
            'such as rollout[:, [0, 3]], and no loose transitions.'
        )

    def shaped(x: Any) -> Any:
        if x is None or lead == 1:
            return x
        return tf.reshape(x, [*rollout.reward.shape, *x.shape[1:]])

    tensors = tf.nest.map_structure(lambda x: None if x is None else tf.convert_to_tensor(x), rollout)
    if lead == 1:
        action = tensors.action
        params, value = agent.policy_and_value(tensors.obs, training)
    else:
        action = spaces.tree_map(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), tensors.action)
        params, value = agent.policy_and_value_along(tensors.trajectories, training)
    value = value if agent.values_states else None
    distribution: Any = agent.action_adaptor.distribution  # some have an entropy
    entropy = distribution.entropy(params) if has_entropy(distribution) else None
    penalty = tf.constant(0.0)
    if training:
        penalty = penalized(penalty, *agent.networks.values())
    return EvaluatedRollout(
        shaped(distribution.log_prob(params, action)), shaped(entropy), shaped(value), shaped(params), penalty
    )


def has_entropy(distribution: Any) -> bool:
    """Whether a distribution's entropy has a closed form."""
    if hasattr(distribution, 'parts'):
        return all(has_entropy(part) for _, part in distribution.parts)
    return hasattr(distribution, 'entropy')


def check_spaces(agent: PlayingAgent, rollout: Rollout) -> None:
    """Refuse a rollout whose spaces are not the agent's; the message names both spaces."""
    if rollout.player is agent.player:
        return
    for kind, adaptor in (('observation_space', observations), ('action_space', actions)):
        reason = adaptor.mismatch(getattr(agent, kind), getattr(rollout.player, kind))
        if reason is not None:
            raise InvalidValue(f"the rollout's {kind} {reason}.")
