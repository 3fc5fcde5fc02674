"""The replay buffer in ranks of its own: actors send their steps there, and the learner draws from all of them as one.

Each buffer holds the transitions of some actors. It draws ahead of time, so that the learner does not wait for it
(Horgan et al. 2018, arXiv 1803.00933, section 3). It never imports TensorFlow. ``shards`` is the learner's end.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import numpy as np

from zoo.common.datasets.replaying import TOO_SMALL, fill
from zoo.common.envs.goals import Goals
from zoo.common.maths.normalize import Collected
from zoo.common.replay.hindsight import Hindsight
from zoo.common.replay.replay import Replay
from zoo.common.tools import seeding
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import PeerLost
from zoo.distributed.engines.waiting import Deadline
from zoo.distributed.layout import Role
from zoo.distributed.queues import Inbox
from zoo.distributed.training.exchanges import PATIENCE, check_sent, steps_in
from zoo.distributed.training.plan import Plan
from zoo.distributed.training.role_metrics import Clock
from zoo.distributed.training.shards import buffer_queues

log = logging.getLogger('zoo')


def run(cluster: Cluster, plan: Plan, env: Any) -> None:
    """Hold the transitions of some actors until all of these have left.

    The environment computes rewards for hindsight and is not stepped; None: it is not needed.
    """
    with contextlib.ExitStack() as stack:
        goals = stack.enter_context(Goals(env)) if plan.needs_goals else None
        Buffer(cluster, plan, goals).run()


class Buffer:
    """One buffer; with the goals of an environment it draws with hindsight."""

    def __init__(self, cluster: Cluster, plan: Plan, goals: Goals | None = None) -> None:
        assert plan.stored is not None  # otherwise there would be no buffer
        self.plan, self.stored, self.number = plan, plan.stored, cluster.role_rank()
        me, learner = (Role.BUFFER, self.number), self.number % plan.layout.learners
        self.actors = plan.actors_to(Role.BUFFER, self.number)
        self.asks, self.news, self.drawn = buffer_queues(cluster, plan, learner, self.number)
        self.rollouts = {
            i: cluster.queue((Role.ACTOR, actor), me, plan.ahead + 1, plan.max_bytes)
            for i, actor in enumerate(self.actors)
        }
        self.rng = seeding.generator(plan.seed, f'buffer {self.number}')
        parts = plan.buffers_of(learner)
        self.replay = Replay(
            self.stored.observation_space,
            plan.behavior.adaptor,
            -(-plan.loop_params['buffer_size'] // len(parts)),
            len(self.actors) * plan.num_envs,
            self.stored.sampling,
            plan.loop_params['compress'],
        )
        self.hindsight = None if goals is None else Hindsight(goals, **plan.loop_params['her'])
        if self.hindsight is not None:
            self.replay.keep_episodes()
        recorded, self._filled = plan.loop_params['recorded'], Collected(self.stored.normalized)
        if recorded is not None:
            count = fill(self.stored, self.replay, recorded, parts.index(self.number), len(parts), self._filled)
            if len(self.replay) < count:
                log.warning(TOO_SMALL, count, len(self.replay))
        self._clock = Clock()
        self._checked: set[int] = set()
        self._learns = True

    def run(self) -> None:
        """Store and draw until all actors have left, or for some seconds after the learner has."""
        self.tell(
            {'observed': self._filled.take(1 / self.plan.layout.learners)}
        )  # all learners have the same recordings
        deadline: Deadline | None = None
        inbox = Inbox([self.asks, *self.rollouts.values()])
        while self.rollouts:
            left = None if deadline is None else deadline.left
            with self._clock.waiting('others'):
                ready = inbox.wait(left)
            self._clock.end_lap()
            if not ready:
                break  # the actors that are left take too long
            for j in ready:
                if j == 0:
                    self.answer()
                else:
                    self.take(j - 1)
                    if j - 1 not in self.rollouts:
                        inbox.remove(j)
            if not self._learns and deadline is None:
                inbox.remove(0)
                deadline = Deadline(PATIENCE)
        for queue in (*self.rollouts.values(), self.asks, self.news, self.drawn):
            queue.close()

    def answer(self) -> None:
        """Read a message of the learner: draw what it asks for, or set the priorities that it has computed."""
        try:
            asked = self.asks.get()
            if 'fractions' in asked:
                self.drawn.put(self.draw(asked['fractions']))
            else:
                self.replay.prioritize_at(**asked)
        except PeerLost:
            self._learns = False

    def draw(self, fractions: np.ndarray) -> dict[str, Any]:
        """Return the transitions at these fractions of the mass, with what the learner needs to weigh them."""
        rows = self.replay.rows_at(fractions, self.rng)
        batch = self.replay.gather(rows, self.rng, self.hindsight)
        drawn: dict[str, Any] = {'batch': batch, 'mass': self.replay.mass}
        if self.stored.sampling.priorities is not None:
            drawn |= {'priority': self.replay.priorities_of(rows), 'places': self.replay.places(rows)}
        return drawn

    def take(self, i: int) -> None:
        """Store the next message of an actor, or take note that it has left."""
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
        self.tell(said | {'actor': self.actors[i], 'count': int(rollout.valid.sum())})

    def tell(self, news: dict[str, Any]) -> None:
        """Tell the learner what has come, and what this buffer holds now."""
        if not self._learns:
            return
        held = {'added': self.replay.added, 'recorded': self.replay.recorded, 'mass': np.float64(self.replay.mass)}
        held['idle'] = np.float64(self._clock.idle)
        try:
            self.news.put(news | held)
        except PeerLost:
            self._learns = False
