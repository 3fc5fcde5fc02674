"""The replay buffer in ranks of its own: actors send their steps there, and the learner draws from all of them as one.

Each holds the transitions of some of the actors, and draws ahead of time what the learner will ask for next, so that
the learner does not wait for it (Horgan et al. 2018, arXiv 1803.00933, section 3). It never imports TensorFlow.

Draws from several are those from one that held everything. The learner divides a batch over them by what each weighs,
the number of its transitions or the sum of their priorities, as it has last heard; the importance weights are of the
chances that the transitions then had, and so right also where a buffer has changed since, and are divided by the
highest one of the whole batch, not by that of a part.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.adaptors.observation import Preprocess
from zoo.common.datasets.recordings import TOO_SMALL, fill
from zoo.common.envs.goals import Goals
from zoo.common.records import Batch, SequenceBatch
from zoo.common.replay.hindsight import Hindsight
from zoo.common.replay.replay import EMPTY, Replay
from zoo.common.replay.sequences import side_by_side
from zoo.common.rollouts.rollout_buffer import rollout_bytes
from zoo.common.sampling import importance, raised
from zoo.common.schedules import value_at
from zoo.common.tools import seeding
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import PeerLost
from zoo.distributed.layout import Role
from zoo.distributed.queues import Queue, wait_any
from zoo.distributed.training.actor import check_sent, steps_in
from zoo.distributed.training.plan import HEADER, RESTARTS, Plan
from zoo.distributed.training.progress import Clock

log = logging.getLogger('zoo')

#: Seconds that the end of the training waits for ranks that have not left yet.
PATIENCE = 5.0

#: Messages from the learner that may wait, draws that are asked for and new priorities.
_ASKS = 16


def _queues(cluster: Cluster, plan: Plan, learner: int, number: int) -> tuple[Queue, Queue, Queue]:
    """From a learner to one of its buffers; from that what it has stored, and what it has drawn."""
    assert plan.stored is not None  # or there would be no buffer
    to, back = (Role.LEARNER, learner), (Role.BUFFER, number)
    drawn = plan.loop_params['batch_size'] * plan.updates
    senders = len(plan.actors_to(Role.BUFFER, number))
    # Each actor waits for answers of the learner, but for one that has died nobody does: this queue is never full.
    told = 1 + senders * (plan.ahead + 1) * (1 + RESTARTS)
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

    What is drawn is at most so many calls old as are drawn ahead: the steps and priorities since then are not in it.

    Args:
        cluster: of the learner.
        plan: of the training.
        clock: of the learner, which is told how long it waits for ``'buffers'``.
    """

    def __init__(self, cluster: Cluster, plan: Plan, clock: Clock) -> None:
        assert plan.stored is not None  # or there would be no buffers
        self._clock = clock
        learner = cluster.role_rank()
        queues = [_queues(cluster, plan, learner, number) for number in plan.buffers_of(learner)]
        self._asks, self._news, self._drawn = zip(*queues, strict=True)
        self._priorities = plan.stored.sampling.priorities
        self._ahead = plan.drawn_ahead
        self._told = [queue.get() for queue in self._news]  # a first word, when they are there
        # Of the draws that are under way, and of the last one: for each buffer its number, which ones of the batch are
        # drawn from it, and its part of all; then the places that they were found in.
        self._asked: deque[list[tuple[int, np.ndarray, float]]] = deque()
        self._last: list[tuple[int, np.ndarray, np.ndarray]] = []
        self._highest = 0.0
        self._next = 0

    @property
    def added(self) -> int:
        """Transitions stored so far, also those written over since."""
        return sum(told['added'] for told in self._told)

    @property
    def recorded(self) -> int:
        """How many of them came by whole episodes."""
        return sum(told['recorded'] for told in self._told)

    def news(self, wait: bool) -> list[dict[str, Any]]:
        """What has been stored, a dict for each message of an actor: the next one, or all that there are by now.

        Args:
            wait: for the next one, of each buffer in its turn.
        """
        if wait:
            i = min(wait_any(self._news), key=lambda i: (i - self._next) % len(self._news))
            self._next = i + 1
            return [self._hear(i)]
        return [self._hear(i) for i, queue in enumerate(self._news) for _ in iter(queue.ready, False)]

    def _hear(self, i: int) -> dict[str, Any]:
        self._told[i] = self._news[i].get()
        return self._told[i]

    def sample(
        self, lead: tuple[int, ...], rng: np.random.Generator, progress: float, hindsight: Hindsight | None = None
    ) -> Batch | SequenceBatch:
        """Transitions drawn with replacement, fields ``[*lead, …]``; see
        :meth:`zoo.common.replay.replay.Replay.sample`.

        Args:
            lead: how many, always the same.
            rng: what is drawn from which buffer is drawn from it.
            progress: fraction of the training, for what is scheduled.
            hindsight: None, since the buffers have it.
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
            chances = [
                share * (message['priority'] / message['mass'])
                for (_, _, share), message in zip(parts, sent, strict=True)
            ]
            correction = value_at(self._priorities.correction, progress)
            batch = batch._replace(weight=importance(in_batches(join(*chances)), correction))
            self._last = [(i, which, message['places']) for (i, which, _), message in zip(parts, sent, strict=True)]
        return batch

    def _ask(self, lead: tuple[int, ...], rng: np.random.Generator) -> None:
        """Ask the buffers for a draw: by priority in strata over all of them, as one would be drawn from."""
        masses = np.array([told['mass'] for told in self._told], np.float64)
        ends = np.cumsum(masses)
        if not ends[-1] > 0.0:
            raise ValueError(EMPTY)
        fractions = rng.random(lead)
        if self._priorities is not None:
            fractions = (np.arange(lead[-1]) + fractions) / lead[-1]
        at = fractions.ravel() * ends[-1]
        # Below the total, however it is rounded, and so in a buffer that weighs something.
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
        """Set the priorities ``[*lead]`` of the transitions that were drawn last, each in the buffer that it is from.

        Of those that have been written over since they are ignored there. None changes nothing.

        Raises:
            FloatingPointError: one is NaN or infinite.
        """
        if priorities is None or self._priorities is None:
            return
        found = raised(priorities.ravel(), self._priorities.exponent)
        self._highest = max(self._highest, float(found.max()))
        for i, which, places in self._last:
            self._asks[i].put({'places': places, 'found': found[which], 'highest': self._highest})

    def close(self, end: float) -> None:
        """Ask no more, and wait until the buffers have left, or until a time of :func:`time.monotonic`."""
        for queue in self._asks:
            queue.close()
        for queue in (*self._news, *self._drawn):
            with contextlib.suppress(PeerLost, TimeoutError):
                while True:
                    queue.get(max(0.0, end - time.monotonic()))
            queue.close()


def run(cluster: Cluster, plan: Plan, env: Any) -> None:
    """Hold the transitions of some actors until they have all left.

    Args:
        cluster: of this buffer.
        plan: of the training.
        env: the environment, which is not stepped; None where no rewards are computed by it.
    """
    with contextlib.ExitStack() as stack:
        goals = stack.enter_context(Goals(env)) if plan.needs_goals else None
        Buffer(cluster, plan, goals).run()


class Buffer:
    """One buffer.

    Args:
        cluster: of this buffer.
        plan: of the training.
        goals: of the environment, where transitions are told for other goals.
    """

    def __init__(self, cluster: Cluster, plan: Plan, goals: Goals | None = None) -> None:
        assert plan.stored is not None  # or there would be no buffer
        self.plan, self.stored, self.number = plan, plan.stored, cluster.role_rank()
        me, learner = (Role.BUFFER, self.number), self.number % plan.layout.learners
        self.actors = plan.actors_to(Role.BUFFER, self.number)
        self.asks, self.news, self.drawn = _queues(cluster, plan, learner, self.number)
        self.rollouts = {
            i: cluster.queue((Role.ACTOR, actor), me, plan.ahead + 1, plan.max_bytes)
            for i, actor in enumerate(self.actors)
        }
        self.rng = seeding.generator(plan.seed, f'buffer {self.number}')
        self.parts = plan.buffers_of(learner)
        self.replay = Replay(
            self.stored.observation_space,
            plan.behavior.adaptor,
            -(-plan.loop_params['buffer_size'] // len(self.parts)),
            len(self.actors) * plan.num_envs,
            self.stored.sampling,
            plan.loop_params['compress'],
        )
        self.hindsight = None if goals is None else Hindsight(goals, **plan.loop_params['her'])
        if self.hindsight is not None:
            self.replay.keep_episodes()
        self._fill()
        self._clock = Clock()
        self._checked: set[int] = set()
        self._learns = True

    def _fill(self) -> None:
        """Put this buffer's part of recorded episodes into it."""
        sources = self.plan.loop_params['recorded']
        if sources is None:
            return
        agent = SimpleNamespace(
            observation_space=self.stored.observation_space,
            action_space=self.stored.action_space,
            action_adaptor=self.plan.behavior.adaptor,
            preprocess=Preprocess(self.stored.observation_space, {}),
        )
        count = fill(agent, self.replay, sources, self.parts.index(self.number), len(self.parts))
        if len(self.replay) < count:
            log.warning(TOO_SMALL, count, len(self.replay))

    def run(self) -> None:
        """See :func:`run`."""
        self._tell({})
        end: float | None = None
        while self.rollouts:
            asking = [self.asks] if self._learns else []
            senders = list(self.rollouts)
            left = None if end is None else max(0.0, end - time.monotonic())
            with self._clock.waiting('others'):
                ready = wait_any([*asking, *(self.rollouts[i] for i in senders)], left)
            self._clock.rounded()
            if not ready:
                break  # actors that take too long
            for j in ready:
                if j < len(asking):
                    self._answer()
                else:
                    self._take(senders[j - len(asking)])
            if not self._learns and end is None:
                end = time.monotonic() + PATIENCE
        for queue in (*self.rollouts.values(), self.asks, self.news, self.drawn):
            queue.close()

    def _answer(self) -> None:
        """Draw what the learner asks for, or take the priorities that it has found."""
        try:
            asked = self.asks.get()
            if 'fractions' in asked:
                self.drawn.put(self.draw(asked['fractions']))
            else:
                self.replay.prioritize_at(**asked)
        except PeerLost:
            self._learns = False

    def draw(self, fractions: np.ndarray) -> dict[str, Any]:
        """Transitions at these fractions of what this buffer weighs, and what the learner needs to know of them."""
        rows = self.replay.rows_at(fractions, self.rng)
        batch = self.replay.gather(rows, self.rng, self.hindsight)
        drawn: dict[str, Any] = {'batch': batch, 'mass': self.replay.mass}
        if self.stored.sampling.priorities is not None:
            drawn |= {'priority': self.replay.priorities_of(rows), 'places': self.replay.places(rows)}
        return drawn

    def _take(self, i: int) -> None:
        """Store the next message of an actor."""
        try:
            message = self.rollouts[i].get()
        except PeerLost:
            self.rollouts.pop(i).close()
            return
        plan, rollout = self.plan, message['rollout']
        if i not in self._checked:
            self._checked.add(i)
            made = plan.storage(self.stored.observation_space, plan.num_envs)
            check_sent(rollout, made.rollout, self.actors[i], f'buffer {self.number}')
        first = i * plan.num_envs
        for step in steps_in(message, first):
            if step.begins:
                self.replay.cut(first, plan.num_envs)
            self.replay.add(step.transition, step.valid, first, step.state, step.priority)
        said = {name: x for name, x in message.items() if name not in ('rollout', 'priority')}
        self._tell(said | {'actor': self.actors[i], 'count': int(rollout.valid.sum())})

    def _tell(self, news: dict[str, Any]) -> None:
        """Tell the learner what has come, and what is held now."""
        if not self._learns:
            return
        held = {'added': self.replay.added, 'recorded': self.replay.recorded, 'mass': np.float64(self.replay.mass)}
        held['idle'] = np.float64(self._clock.idle)
        try:
            self.news.put(news | held)
        except PeerLost:
            self._learns = False
