"""The loop of DAgger: learning in an environment from an expert's labels."""

from __future__ import annotations

import os
from typing import Annotated, Any, Protocol

import numpy as np

from zoo.common import spaces
from zoo.common.adaptors.observation import mask_path
from zoo.common.datasets.opening import check_sources
from zoo.common.datasets.replaying import ADDED, TOO_SMALL, check_allowed, fill
from zoo.common.parameters import BatchSize
from zoo.common.replay.replay import Replay
from zoo.common.schedules import Linear, value_at
from zoo.common.tools.errors import InvalidValue, a_type
from zoo.common.tools.params import at_least, between
from zoo.common.training.agent import Agent, mismatch
from zoo.common.training.experience import Steered
from zoo.common.training.offline_loop import observe_recorded, row_bytes, updates_at_once
from zoo.common.training.training import Training


class Asks(Agent, Protocol):
    """An agent that learns from an expert's labels."""

    def labels(self, expert: Any) -> Labels:
        """Return what labels observations: an expert as ``learn`` was given it."""


class Labels:
    """Labels observations by the actions of an expert.

    Args:
        agent: the agent that learns from them.
        expert: another agent, which acts without exploration, or a function from one observation to an action, both in
            the environment's form.

    Raises:
        ValueError: an agent with other spaces.
    """

    def __init__(self, agent: Agent, expert: Any) -> None:
        self.agent, self.expert = agent, expert
        self.is_agent = hasattr(expert, 'action_adaptor')
        self._state: np.ndarray | None = None
        if self.is_agent:
            reason = mismatch(agent, expert)
            if reason is not None:
                raise InvalidValue(f"the expert's {reason}: give an expert for this environment.")

    def __call__(self, obs: spaces.Flat, begins: np.ndarray) -> spaces.Flat:
        """Return stored actions ``[N, …]`` for flat observations ``[N, …]``; ``begins``: where episodes begin.

        Raises:
            ValueError: the expert gave something that is not in the action space.
        """
        space = self.agent.observation_space
        if self.is_agent:
            state = self.expert.initial_state(len(begins)) if self._state is None else self._state
            state = np.where(begins[:, None], np.float32(0.0), state)
            action, self._state = self.expert.predict(spaces.unflatten(space, obs), state=state)
            given = spaces.flatten(self.agent.action_space, action)
        else:
            each = [spaces.unflatten(space, spaces.tree_map(lambda x, i=i: x[i], obs)) for i in range(len(begins))]
            given = spaces.tree_map(lambda *x: np.stack(x), *(self._fitted(self.expert(seen)) for seen in each))
        adaptor = self.agent.action_adaptor
        try:
            stored = adaptor.from_env(given)
        except InvalidValue as error:
            raise InvalidValue(f'of the expert {error}') from None
        mask = mask_path(space) if adaptor.maskable else None
        if mask is not None:
            held = dict(spaces.tree_items(obs))[mask]
            check_allowed(adaptor, stored, held, "the expert's action", 'let the expert follow the mask')
        return stored

    def _fitted(self, action: Any) -> spaces.Flat:
        """Return an action of the function in the form of its space."""
        space = self.agent.action_space
        try:
            given = dict(spaces.tree_items(spaces.flatten(space, action)))
            items = {path: spaces.fitted(leaf, given[path]) for path, leaf in spaces.leaves(space).items()}
        except (InvalidValue, TypeError) as error:
            raise InvalidValue(f'the expert gave an action {error}: give a function of one observation.') from None
        return spaces.from_items(space, items)


def check_expert(expert: Any) -> None:
    """Refuse what labels no observations, by a ValueError; the name of an agent is looked up in training."""
    if isinstance(expert, str | os.PathLike) or hasattr(expert, 'action_adaptor'):
        return
    if isinstance(expert, type):
        raise InvalidValue(f'expert is the class {expert.__name__}: give an agent, or a function of one observation.')
    if not callable(expert):
        hint = ', such as lambda obs: model.predict(obs)[0]' if hasattr(expert, 'predict') else ''
        raise InvalidValue(
            f'expert is {a_type(expert)}: give an agent, the name or path of one, or a function from an observation to '
            f'an action{hint}.'
        )


def learn_from_labels(
    training: Training,
    experience: Steered,
    *,
    expert: Annotated[
        Any,
        check_expert,
        'who labels every observation: an agent, the name or path of a trained one, or a function from an observation '
        "to an action, both in the environment's form",
    ] = None,
    beta: Annotated[
        float | Linear | None,
        between(0, 1),
        'probability that a step takes the action of the expert, read when an iteration begins; None: 1 before the '
        'first update, then 0',
    ] = None,
    dataset: Annotated[
        Any, check_sources, 'None, or recorded episodes of an expert, to learn from before the first step'
    ] = None,
    horizon: Annotated[int, at_least(1), 'steps of each copy in one iteration'] = 1000,
    updates: Annotated[int, at_least(1), 'gradient updates after each iteration, on all labels so far'] = 2000,
    batch_size: BatchSize = 256,
    buffer_size: Annotated[int, at_least(1), 'labeled observations that are kept'] = 1_000_000,
) -> None:
    """Take steps by a mixture of expert and learner, store the expert's actions, and fit the policy to all of them."""
    agent: Asks = training.agent  # type: ignore[assignment] # as the algorithm of this loop is
    label = agent.labels(expert)
    replay = training.replay = agent.replay_for(buffer_size, experience.num_envs)
    lost = agent.steps - (replay.added - replay.recorded)
    if lost:
        told = 'The labels of %d earlier steps are lost: checkpoint_buffer=True saves them with the agent.'
        training.warn(told, lost)
    if dataset is not None and not (training.steps and replay.recorded):  # a resumed buffer holds it already
        collected, before = agent.collected(), replay.recorded
        count = fill(agent, replay, dataset, collected=collected)
        if before:
            training.warn(ADDED, before, count)
        if len(replay) < count:
            training.warn(TOO_SMALL, count, len(replay))
        observe_recorded(training, collected.take())
        if not agent.updates:
            _fit(agent, replay, updates, batch_size)
    while not training.done:
        agent.progress = training.progress
        part = float(not agent.updates) if beta is None else value_at(beta, training.progress)
        for _ in range(horizon):
            _label_step(training, experience, replay, label, part)
            if training.done:
                break
        agent.observe_moments(experience.observed())
        training.updated(_fit(agent, replay, updates, batch_size) if replay.added else None)


def _label_step(training: Training, experience: Steered, replay: Replay, label: Labels, part: float) -> None:
    """Take one step in every copy, each by the expert with the probability ``part``; store it with the label."""
    agent, given = training.agent, []

    def choose(obs: spaces.Flat, begins: np.ndarray) -> spaces.Flat:
        wanted, own = label(obs, begins), agent.act(obs, deterministic=True)
        given.append(wanted)
        by_expert = agent.rng.random(len(begins)) < part
        return spaces.tree_map(lambda x, y: np.where(by_expert.reshape(-1, *[1] * (x.ndim - 1)), x, y), wanted, own)

    step = experience.step(training, choose)
    replay.add(step.transition._replace(action=given[0]), step.valid, step.first, step.state)


def _fit(agent: Agent, replay: Replay, updates: int, batch_size: int) -> dict[str, float]:
    """Make updates on what the replay buffer holds; return the last metrics."""
    at_once = updates_at_once(updates, batch_size * row_bytes(replay), updates)
    metrics: dict[str, float] = {}
    for done in range(0, updates, at_once):
        metrics = agent.update_on(replay.sample((min(at_once, updates - done), batch_size), agent.rng))
    return metrics
