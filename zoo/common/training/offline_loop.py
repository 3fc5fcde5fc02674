"""The training loop on a dataset: no environment is stepped, and a training is counted in gradient updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from zoo.common import spaces
from zoo.common.datasets.opening import check_sources
from zoo.common.datasets.replaying import replay_of
from zoo.common.maths.normalize import joined
from zoo.common.parameters import BatchSize
from zoo.common.replay.hindsight import Hindsight, Strategy
from zoo.common.replay.replay import Replay
from zoo.common.tools.params import at_least
from zoo.common.training.experience import Data
from zoo.common.training.training import Training

#: The most updates in one compiled call, and the most bytes of the batches that one call is given.
_UPDATES, _BYTES = 50, 64_000_000

Hindsights = Annotated[
    dict[str, Any] | None,
    Strategy,
    'hindsight experience replay in goal environments: k in k + 1 of the drawn transitions get a goal that their '
    'episode reached, in this step or a later one, at its end, or in any step',
]
Compress = Annotated[bool, 'compress the images in the replay buffer, which saves memory and takes time']


def learn_from_data(
    training: Training,
    experience: Data,
    *,
    dataset: Annotated[
        Any,
        check_sources,
        'what is learned from without a step in an environment: what zoo.open_dataset takes or gave, or a list',
    ] = None,
    train_updates: Annotated[
        int, at_least(1), 'gradient updates of this call on the dataset, in place of train_steps'
    ] = 100_000,
    batch_size: BatchSize = 256,
    compress: Compress = False,
    her: Hindsights = None,
) -> None:
    """Update on samples of a dataset. The training's steps are updates: ``train_updates`` is its end."""
    agent = training.agent
    collected = agent.collected()
    replay = replay_of(agent, dataset, agent.action_adaptor, agent.sampling, compress, collected)
    if agent.sampling.to_the_end:
        replay.sum_to_the_end()
    observe_recorded(training, collected.take(1 / experience.learners))
    hindsight = None
    if her is not None:
        assert training.goals is not None  # learn has looked for them
        hindsight = Hindsight(training.goals, **her)
        replay.keep_episodes()
    if agent.sampling.priorities is not None and training.steps:
        training.warn('No checkpoint holds the priorities of a dataset: all are equal at first, as in a new training.')
    size = batch_size * row_bytes(replay)
    together = updates_at_once(train_updates, size, train_updates)
    if hindsight is not None or agent.sampling.sequences is not None or agent.sampling.priorities is not None:
        together = 1  # what is drawn for several updates at once would depend on how many they are
    at_once = min(together, updates_at_once(train_updates, size, training.interval))
    while not training.done:
        # What is read once for updates together does not depend on who watches them.
        begin, count = next_call(training.steps, train_updates, together, at_once, training.averaged_every)
        agent.progress = begin / train_updates
        batches = replay.sample((count, batch_size), agent.rng, agent.progress, hindsight)
        metrics = agent.update_on(batches)
        replay.prioritize(agent.priorities)
        training.learned(count)
        training.updated(metrics)


def observe_recorded(training: Training, found: Mapping[str, np.ndarray]) -> None:
    """Take recorded observations into the running statistics, once.

    An agent that has done so in an earlier call, or before an interruption, normalizes as before. A new call warns if
    these observations are not like the earlier ones.
    """
    agent = training.agent
    if not agent.observed_recordings:
        agent.observe_moments(found)
        return
    if training.steps:
        return
    for path, moments in agent.statistics.items():
        away = np.abs(joined(found[path])[1] - moments.mean) * moments.scale
        if away.max(initial=0.0) > 1.0:
            training.warn(
                'The mean of %s in these recorded episodes is %.3g standard deviations away from the mean of the '
                'earlier ones. The agent still normalizes by the earlier ones. A new agent normalizes by these.',
                repr(path) if path else 'the observations',
                away.max(),
            )
            return


def next_call(
    done: int, train_updates: int, together: int, at_once: int, averaged_every: int | None
) -> tuple[int, int]:
    """Return the update at which schedules are read for the next call, and how many updates it makes.

    ``together`` updates have the same values of schedules. A call makes ``at_once`` of them, since a callback, the log
    or a checkpoint may be due so often. It ends where the weights enter their mean, each ``averaged_every`` updates.
    """
    tick = 0 if averaged_every is None else done - done % averaged_every
    begin = tick + (done - tick) // together * together
    end = min(begin + together, train_updates)
    if averaged_every is not None:
        end = min(end, tick + averaged_every)
    return begin, min(at_once, end - done)


def updates_at_once(train_updates: int, batch_bytes: int, interval: int) -> int:
    """Return how many updates one compiled call makes: a divisor of ``train_updates``, where that is large enough.

    The last call of a training would else have another number of updates and be compiled for it. ``interval`` is the
    most updates between two times when a callback, the log or a checkpoint may be due.
    """
    most = max(1, min(_UPDATES, _BYTES // max(batch_bytes, 1), train_updates, interval))
    divisor = max(count for count in range(1, most + 1) if train_updates % count == 0)
    return divisor if 2 * divisor >= most else most


def row_bytes(replay: Replay) -> int:
    """Return the bytes of one entry of a batch: two observations, or all of a sequence."""
    leaves, sequences = spaces.leaves(replay.space).values(), replay.sampling.sequences
    size = sum(leaf.dtype.itemsize * int(np.prod(spaces.shape_of(leaf))) for leaf in leaves)
    return size * (2 if sequences is None else sequences.rows(replay.sampling.n_step))
