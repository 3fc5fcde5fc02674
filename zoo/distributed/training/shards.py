"""The learner's view of the buffers in other ranks: several are drawn from as one.

The learner divides a batch over its buffers by what each weighs, as it has last heard: the number of its transitions or
the sum of their priorities. The importance weights use the chances that the transitions really had: they are right even
where a buffer has changed since. They are divided by the highest weight of the whole batch, as in one process.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.records import Batch, SequenceBatch
from zoo.common.replay.hindsight import Hindsight
from zoo.common.replay.replay import EMPTY
from zoo.common.replay.sequences import side_by_side
from zoo.common.rollouts.rollout_buffer import rollout_bytes
from zoo.common.sampling import importance, raised
from zoo.common.schedules import value_at
from zoo.common.tools.errors import InvalidValue
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.waiting import Deadline
from zoo.distributed.layout import Role
from zoo.distributed.queues import Inbox, Queue
from zoo.distributed.training.exchanges import drain
from zoo.distributed.training.plan import HEADER, Plan
from zoo.distributed.training.role_metrics import Clock

#: Messages of the learner that may wait at a buffer: draws that it asks for, and new priorities.
_ASKS = 16


def buffer_queues(cluster: Cluster, plan: Plan, learner: int, number: int) -> tuple[Queue, Queue, Queue]:
    """Return the queues between a learner and one of its buffers.

    One goes to the buffer: draws and priorities. Two go to the learner: what the buffer has stored, and has drawn.
    """
    assert plan.stored is not None  # otherwise there would be no buffer
    to, back = (Role.LEARNER, learner), (Role.BUFFER, number)
    drawn = plan.loop_params['batch_size'] * plan.updates
    senders = len(plan.actors_to(Role.BUFFER, number))
    # Each actor waits for answers of the learner, but an actor that has died does not: this queue is never full.
    told = 1 + senders * plan.unanswered
    sampling = plan.stored.sampling
    rows, state_size = 1, 0
    if sampling.sequences is not None:
        rows, state_size = sampling.sequences.rows(sampling.n_step), sampling.sequences.state_size
    size = rollout_bytes(plan.stored.observation_space, plan.behavior.adaptor, drawn * rows, 1)
    size += drawn * (64 * rows + 4 * state_size) + HEADER
    return (
        cluster.queue(to, back, _ASKS, 32 * drawn + HEADER),
        cluster.queue(back, to, told, plan.max_bytes),
        cluster.queue(back, to, plan.drawn_ahead, size),
    )


class Shards:
    """The learner's replay buffer (:class:`zoo.common.training.experience.ReplayBuffer`): all its buffers as one.

    What buffers draw ahead of time is at most ``plan.drawn_ahead`` calls old: later steps and priorities are not in it.
    The clock counts how long the learner waits for ``'buffers'``.

    Attributes:
        recorded_observed: of each buffer the moments of the recorded observations that it was filled with.
    """

    def __init__(self, cluster: Cluster, plan: Plan, clock: Clock) -> None:
        assert plan.stored is not None  # otherwise there would be no buffers
        self._clock, self._ahead, self._priorities = clock, plan.drawn_ahead, plan.stored.sampling.priorities
        learner = cluster.role_rank()
        queues = [buffer_queues(cluster, plan, learner, number) for number in plan.buffers_of(learner)]
        self._asks, self._news, self._drawn = zip(*queues, strict=True)
        self._told = [queue.get() for queue in self._news]  # each buffer sends one message when it is there
        self.recorded_observed = [told['observed'] for told in self._told]
        # Draws that are under way: for each buffer its number, which transitions of the batch it draws, and its part of
        # the whole mass. Of the last draw: the number, which transitions, and their places in the buffer.
        self._asked: deque[list[tuple[int, np.ndarray, float]]] = deque()
        self._last: list[tuple[int, np.ndarray, np.ndarray]] = []
        self._highest = 0.0
        self._inbox = Inbox(self._news)

    @property
    def added(self) -> int:
        return sum(told['added'] for told in self._told)

    @property
    def recorded(self) -> int:
        return sum(told['recorded'] for told in self._told)

    def news(self, wait: bool) -> list[dict[str, Any]]:
        """Return what the buffers have stored: a dict for each message of an actor.

        With ``wait`` this waits for the next message, of each buffer in its turn; otherwise it returns all that came.
        """
        found: list[dict[str, Any]] = []
        while not (wait and found) and (i := self._inbox.next(None if wait else 0.0)) is not None:
            self._told[i] = self._news[i].get()
            found.append(self._told[i])
        return found

    def sample(
        self, lead: tuple[int, ...], rng: np.random.Generator, progress: float, hindsight: Hindsight | None = None
    ) -> Batch | SequenceBatch:
        """Draw transitions with replacement, fields ``[*lead, …]`` (:meth:`zoo.common.replay.replay.Replay.sample`).

        ``lead`` is the same at every call. ``rng`` chooses how many come from which buffer. ``hindsight`` is None: the
        buffers have it.
        """
        assert hindsight is None
        while len(self._asked) < self._ahead:
            self._ask(lead, rng)
        parts = self._asked.popleft()
        with self._clock.waiting('buffers'):
            sent = [self._drawn[i].get() for i, _, _ in parts]
        self._ask(lead, rng)
        for (i, _, _), message in zip(parts, sent, strict=True):
            self._told[i]['mass'] = message['mass']
        size = int(np.prod(lead))

        def join(*arrays: np.ndarray) -> np.ndarray:
            whole = arrays[0]
            if len(arrays) > 1:
                whole = np.empty((size, *whole.shape[1:]), whole.dtype)
                for (_, which, _), part in zip(parts, arrays, strict=True):
                    whole[which] = part
            return whole

        def in_batches(x: np.ndarray) -> np.ndarray:
            return x.reshape(lead + x.shape[1:])

        fields = [spaces.tree_map(join, *field) for field in zip(*(message['batch'] for message in sent), strict=True)]
        batch: Batch | SequenceBatch
        if isinstance(sent[0]['batch'], SequenceBatch):
            batch = side_by_side(SequenceBatch(*fields), lead, rng)
        else:
            batch = Batch(*(spaces.tree_map(in_batches, field) for field in fields))
        if self._priorities is not None:
            drawn = zip(parts, sent, strict=True)
            chances = [share * (message['priority'] / message['mass']) for (_, _, share), message in drawn]
            correction = value_at(self._priorities.correction, progress)
            batch = batch._replace(weight=importance(in_batches(join(*chances)), correction))
            self._last = [(i, which, message['places']) for (i, which, _), message in zip(parts, sent, strict=True)]
        return batch

    def _ask(self, lead: tuple[int, ...], rng: np.random.Generator) -> None:
        """Ask the buffers for a draw: by priority in strata over all of them, as from one buffer."""
        masses = np.array([told['mass'] for told in self._told], np.float64)
        ends = np.cumsum(masses)
        if not ends[-1] > 0.0:
            raise InvalidValue(EMPTY)
        fractions = rng.random(lead)
        if self._priorities is not None:
            fractions = (np.arange(lead[-1]) + fractions) / lead[-1]
        at = fractions.ravel() * ends[-1]
        # Below the total, however that is rounded, and so in a buffer that is not empty.
        found = np.searchsorted(ends, np.minimum(at, np.nextafter(ends[-1], 0.0)), side='right')
        parts = []
        for i, (mass, end) in enumerate(zip(masses, ends, strict=True)):
            which = np.flatnonzero(found == i)
            if len(which):
                within = np.clip((at[which] - (end - mass)) / mass, 0.0, 1.0)
                self._asks[i].put({'fractions': within})
                parts.append((i, which, mass / ends[-1]))
        self._asked.append(parts)

    def prioritize(self, priorities: np.ndarray | None) -> None:
        """Set the priorities ``[*lead]`` of the transitions drawn last, in their buffers; None changes nothing.

        Buffers ignore the priorities of transitions that have been overwritten since.

        Raises:
            FloatingPointError: a priority is NaN or infinite.
        """
        if priorities is None or self._priorities is None:
            return
        found = raised(priorities.ravel(), self._priorities.exponent)
        self._highest = max(self._highest, float(found.max()))
        for i, which, places in self._last:
            self._asks[i].put({'places': places, 'found': found[which], 'highest': self._highest})

    def close(self, deadline: Deadline) -> None:
        """Ask no more, and wait until the buffers have left or time is up."""
        for queue in self._asks:
            queue.close()
        drain((*self._news, *self._drawn), deadline)
