"""What the ranks of a training send each other, and how a training ends.

A *message* is a dict of arrays and numbers in a queue. A *version* counts the weights that a learner has published.

* Each learner saves its weights under the name ``'weights'`` (:func:`publish`). Actors and servers request them.
* An actor sends its steps to its learner or to a buffer: ``rollout`` with fields ``[T, N, …]``, or ``gradient``;
  ``version`` of the weights that it acted with; ``start``, how often this actor was started again; ``begins``, whether
  its episodes do not go on from an earlier message; ``episodes`` that ended; and ``spent``, its times.
* The learner answers each message with ``version``, ``start``, ``steps`` and ``progress``. This bounds how far an actor
  is ahead.
* An actor sends observations to a server, which answers with actions.
* A buffer tells its learner what it has stored. The learner asks it for draws, and gets batches back.
* The learners send the episodes that ended to learner 0, which alone writes logs.

The training ends when each learner publishes ``END`` in place of a version and answers its actors with it: they leave,
and then servers and buffers do. An actor that dies is started again where the engine can do that (``local``);
``start`` tells messages for the dead process. Any other rank that dies ends the job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common import spaces
from zoo.common.records import Episode, Trajectories, Transition
from zoo.common.rollouts.collector import Collector
from zoo.common.training.experience import Step, StepCounter
from zoo.distributed import wire
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import ClusterError, PeerLost
from zoo.distributed.engines.waiting import Deadline
from zoo.distributed.layout import Role
from zoo.distributed.queues import Queue
from zoo.distributed.training.plan import END

if TYPE_CHECKING:
    from zoo.common.training.agent import Agent

#: Seconds that the end of the training waits for ranks that have not left, and a learner for room for a reply.
PATIENCE = 5.0


def publish(cluster: Cluster, agent: Agent, version: int, weights: Mapping[str, np.ndarray]) -> None:
    """Save the weights of a version for actors and servers to request."""
    state = {'version': version, 'steps': agent.steps, 'progress': agent.progress}
    cluster.save('weights', {**state, 'weights': weights})


def publish_end(cluster: Cluster) -> None:
    """Save that the training has ended, in place of weights."""
    cluster.save('weights', {'version': np.int64(END)})


def newest_weights(cluster: Cluster, learner: int) -> dict[str, Any] | None:
    """Return what a learner has published last; None when the training has ended, or the learner has left."""
    try:
        saved = cluster.request(Role.LEARNER, learner, 'weights')
    except PeerLost:
        return None
    return None if saved['version'] == END else saved


def check_sent(rollout: Trajectories, expected: Trajectories, actor: int, receiver: str) -> None:
    """Refuse the rollout of an actor whose program has built another environment than the receiver's.

    Raises:
        ClusterError: the rollout has other parts, shapes or dtypes than the expected one.
    """
    found, own = wire.flatten(rollout), wire.flatten(expected)
    kinds = [
        {name: (array.dtype, array.shape) for name, array in zip(flat.names, flat.arrays, strict=True)}
        for flat in (found, own)
    ]
    if kinds[0] != kinds[1]:
        raise ClusterError(
            f'actor {actor} sends {wire.describe(found)}; {receiver} expects {wire.describe(own)}: build the same '
            'environment, with as many copies, in every rank.'
        )


def steps_in(message: dict[str, Any], first: int) -> Iterator[Step]:
    """Yield the steps of an actor's message in order. ``first`` is the place of its first copy in the replay buffer."""
    rollout, priority = message['rollout'], message.get('priority')
    for t in range(len(rollout.reward)):
        *fields, valid = [spaces.tree_map(lambda x, t=t: x[t], field) for field in rollout[:7]]
        state, own = (None if x is None else x[t] for x in (rollout.states, priority))
        yield Step(Transition(*fields), valid, first, message['begins'] and t == 0, state, own)


class EndedEpisodes:
    """The episodes that have ended since the last message, and at which of its steps."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._rows: list[tuple[float, ...]] = []
        self._begin = collector.steps

    def add(self, episodes: Iterable[Episode]) -> None:
        """Add episodes that ended in the step that was just taken."""
        at = self._collector.steps - self._begin
        self._rows += [
            (e.episode_return, e.length, np.nan if e.success is None else e.success, e.copy, at) for e in episodes
        ]

    def numbers(self) -> np.ndarray:
        """Return all of them for a message, float64 ``[n, 5]``, and begin the next message.

        The columns: return, length, success (NaN: unknown), copy, and the steps of the message taken before the end.
        """
        found = np.array(self._rows, np.float64).reshape(-1, 5)
        self._rows, self._begin = [], self._collector.steps
        return found


def no_episodes() -> np.ndarray:
    """Return what :meth:`EndedEpisodes.numbers` returns when no episode has ended."""
    return np.zeros((0, 5))


def one_after_another(parts: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
    """Join the episodes of messages that follow each other in time, float64 ``[n, 5]``.

    Each part is a message's number of steps and its :meth:`EndedEpisodes.numbers`. The last column becomes the fraction
    of all these steps that had been taken when each episode ended.
    """
    counts, episodes = zip(*parts, strict=True)
    before = np.repeat(np.cumsum(counts) - counts, [len(x) for x in episodes])
    found = np.concatenate(episodes)
    found[:, -1] = (before + found[:, -1]) / max(1, sum(counts))
    return found


def report(training: StepCounter, count: int, episodes: np.ndarray) -> None:
    """Report steps to a training, and each episode of :func:`one_after_another` at the step at which it ended."""
    told = 0
    for total, length, success, copy, part in episodes[np.argsort(episodes[:, -1], kind='stable')].tolist():
        at = round(part * count)
        episode = Episode(total, int(length), None if np.isnan(success) else bool(success), int(copy))
        training.stepped(at - told, [episode])
        told = at
    training.stepped(count - told, [])


def drain(queues: Iterable[Queue], deadline: Deadline) -> None:
    """Drop what still comes from some queues until their senders have left or time is up; then close them."""
    for queue in queues:
        with contextlib.suppress(PeerLost, TimeoutError):
            while True:
                queue.get(deadline.left)
        queue.close()
