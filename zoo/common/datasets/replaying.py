"""A replay buffer that holds a whole dataset: what a training without an environment draws from."""

from __future__ import annotations

from typing import Any

from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.datasets.recordings import AgentSpaces, fill, opened
from zoo.common.maths.normalize import Collected
from zoo.common.replay.replay import Replay
from zoo.common.sampling import Sampling
from zoo.common.tools.errors import InvalidValue


def replay_of(
    agent: AgentSpaces,
    sources: Any,
    adaptor: ActionAdaptor,
    sampling: Sampling,
    compress: bool = False,
    collected: Collected | None = None,
) -> Replay:
    """Return a replay buffer that holds every transition of a dataset.

    Args:
        agent: the dataset must have its spaces.
        sources: what :func:`zoo.common.datasets.recordings.opened` takes.
        adaptor: turns the environment's actions into stored ones.
        sampling: how transitions are drawn.
        compress: keep images compressed.
        collected: is given the observations that were acted on, once each.

    Raises:
        ValueError: no such source, no transition in it, other spaces than the agent's, or values outside them.
    """
    lengths = [len(episode.reward) for _, recording in opened(agent, sources) for episode in recording]
    if not sum(lengths):
        raise InvalidValue('the dataset holds no step: record some episodes first.')
    # Every observation has a row, final ones too.
    replay = Replay(agent.observation_space, adaptor, sum(lengths) + len(lengths), sampling=sampling, compress=compress)
    fill(agent, replay, sources, collected=collected)
    replay.complete()
    return replay
