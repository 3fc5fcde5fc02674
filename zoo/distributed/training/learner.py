"""The learner's side of a distributed training: experience that actors send, and what several learners agree on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common import spaces
from zoo.common.loops import Step, Stores, Training
from zoo.common.relabel import Goals
from zoo.common.rollout import RolloutBuffer
from zoo.common.types import Trajectories
from zoo.distributed.cluster import Cluster, Role, wait_any
from zoo.distributed.engines.base import ClusterError, PeerLost
from zoo.distributed.training.actor import check_sent, episodes_from_numbers, episodes_to_numbers, steps_in
from zoo.distributed.training.buffer import PATIENCE, Shards
from zoo.distributed.training.plan import END, Plan

if TYPE_CHECKING:
    from zoo.common.agent import Agent


class Actors:
    """Experience from actors; see :class:`zoo.common.loops.Experience`. Actor ``i`` sends to learner ``i mod L``.

    Args:
        cluster: of this learner.
        plan: of the training.
        agent: whose weights the actors act with.
    """

    def __init__(self, cluster: Cluster, plan: Plan, agent: Agent) -> None:
        self._cluster, self._plan, self._agent = cluster, plan, agent
        me = (Role.LEARNER, cluster.role_rank())
        actors = [(Role.ACTOR, i) for i in plan.actors_of(Role.LEARNER, me[1])]
        self._shards = Shards(cluster, plan) if plan.layout.buffers else None
        self.replay: Stores | None = self._shards
        senders = [] if plan.layout.buffers else actors
        self._rollouts = [cluster.queue(actor, me, plan.ahead + 1, plan.max_bytes) for actor in senders]
        self._replies = [cluster.queue(me, actor) for actor in actors]
        # Learner 0 keeps account of the episodes of all.
        first = (Role.LEARNER, 0)
        others = [(Role.LEARNER, i) for i in range(1, plan.layout.learners)]
        self._accounts = [cluster.queue(other, first) for other in others if me in (first, other)]
        self._buffer: RolloutBuffer | None = None
        self._version = END
        self._published = -1
        self._next = 0
        self._checked: set[int] = set()
        self.num_envs = len(actors) * plan.num_envs
        self.learners = plan.layout.learners

    def restart(self, seed: int | None) -> bool:
        """The actors' episodes go on, so that an exact resume is not to be had of them.

        At the beginning of a training, before any message, they are new ones, as the agent is told.
        """
        if not self._checked:
            self._agent.episodes_restarted()
        return False

    def rollout(self, training: Training, horizon: int) -> Trajectories:
        """See :class:`zoo.common.loops.Experience`; the next rollout is written over this one."""
        if self._buffer is None:
            agent = self._agent
            self._buffer = RolloutBuffer(
                agent.observation_space, agent.action_adaptor, horizon, self.num_envs, agent.behavior.state_size
            )
        self._publish()
        if self._version > 0:
            for i in range(len(self._replies)):
                self._reply(i)
        count, episodes = 0, []
        for i, queue in enumerate(self._rollouts):
            message = queue.get()
            begins = message['begins']
            while message['version'] != self._version:  # of an actor that has died since
                message = queue.get()
                begins = begins or message['begins']
            copies = slice(i * self._plan.num_envs, (i + 1) * self._plan.num_envs)
            if begins and i in self._checked:
                self._agent.episodes_restarted(copies)
            self._check(i, message['rollout'])
            sent = message['rollout']
            if sent.state is not None:
                self._buffer.rollout.state[copies] = sent.state
            for target, part in zip(self._buffer.rollout._replace(state=None), sent._replace(state=None), strict=True):
                for path, values in () if part is None else spaces.tree_items(part):
                    (target[path] if path else target)[:, copies] = values
            count += int(message['rollout'].valid.sum())
            episodes.append(message['episodes'])
        self._tell(training, count, np.concatenate(episodes))
        return self._buffer.rollout

    def steps(self, training: Training, explore_steps: int, wait: bool = True) -> Iterator[Step]:
        """See :class:`zoo.common.loops.Experience`: those of one message, of whichever actor has sent one."""
        if self._shards is not None:
            self._hear(training, wait)
            return
        if self._agent.updates != self._published:
            self._publish()
        ready = wait_any(self._rollouts)
        i = min(ready, key=lambda i: (i - self._next) % len(self._rollouts))  # each in its turn
        self._next = i + 1
        message = self._rollouts[i].get()
        self._reply(i)
        rollout = message['rollout']
        self._check(i, rollout)
        for transition, valid, priority, begins in steps_in(message):
            yield Step(transition, valid, i * self._plan.num_envs, begins, priority)
        self._tell(training, int(rollout.valid.sum()), message['episodes'])

    def _hear(self, training: Training, wait: bool) -> None:
        """Take what the buffers tell of messages that they have stored: of one, or of all that there are by now."""
        assert self._shards is not None
        if self._published < 0:  # what the first steps are taken with
            self._publish()
        told = self._shards.news(wait)
        if told and self._agent.updates != self._published:  # not more often than somebody is told of it
            self._publish()
        own = self._plan.actors_of(Role.LEARNER, self._cluster.role_rank())
        for news in told:
            i = own.index(news['actor'])
            self._checked.add(i)  # by the buffer
            self._reply(i)
        episodes = [news['episodes'] for news in told] or [episodes_to_numbers([])]
        self._tell(training, sum(news['count'] for news in told), np.concatenate(episodes))

    def least(self, number: int) -> int:
        """See :class:`zoo.common.loops.Experience`."""
        return self._reduced(number, 'min')

    def close(self) -> None:
        """Tell the actors that the training has ended, also one that has died and is about to be there again.

        Returns when all have closed their queues, so that none of them asks a rank that has left, or after some
        patience with those that take long.
        """
        self._cluster.save('weights', {'version': np.int64(END)})
        for i in range(len(self._replies)):
            with contextlib.suppress(PeerLost, TimeoutError):
                self._reply(i, END)
        end = time.monotonic() + PATIENCE
        for queue in self._rollouts:
            with contextlib.suppress(PeerLost, TimeoutError):
                while True:
                    queue.get(max(0.0, end - time.monotonic()))
            queue.close()
        if self._shards is not None:
            self._shards.close(end)

    def _check(self, i: int, rollout: Trajectories) -> None:
        """Look once at what an actor sends: its program may have built another environment than this one."""
        if i in self._checked:
            return
        self._checked.add(i)
        agent, plan, me = self._agent, self._plan, self._cluster.role_rank()
        size = agent.behavior.state_size
        own = RolloutBuffer(agent.observation_space, agent.action_adaptor, plan.horizon, plan.num_envs, size).rollout
        check_sent(rollout, own, plan.actors_of(Role.LEARNER, me)[i], f'learner {me}')

    def _publish(self) -> None:
        """Save the weights for the actors and servers to request."""
        agent = self._agent
        self._version, self._published = self._version + 1, agent.updates
        state = {'version': self._version, 'steps': agent.steps, 'progress': agent.progress}
        self._cluster.save('weights', {**state, 'weights': agent.forward.weights()})

    def _reply(self, i: int, version: int | None = None) -> None:
        state = {'steps': np.int64(self._agent.steps), 'progress': float(self._agent.progress)}
        self._replies[i].put({'version': self._version if version is None else version, **state}, PATIENCE)

    def _tell(self, training: Training, count: int, episodes: np.ndarray) -> None:
        """Tell of steps and episodes, learner 0 also of those of the others."""
        if self.learners > 1 and self._cluster.role_rank() == 0:
            episodes = np.concatenate([episodes, *(queue.get()['episodes'] for queue in self._accounts)])
        elif self.learners > 1:
            self._accounts[0].put({'episodes': episodes})
        training.stepped(self._reduced(count, 'sum'), episodes_from_numbers(episodes))

    def _reduced(self, number: int, op: str) -> int:
        if self.learners == 1:
            return number
        return int(self._cluster.role_all_reduce(np.array([number], np.int64), op)[0])


class Together:
    """What makes several learners one: see :meth:`zoo.common.agent.Agent.learn_together`.

    Args:
        cluster: of this learner.

    Attributes:
        error: why an exchange has failed. Compiled code, which calls this, only tells that something has.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.error: ClusterError | None = None

    def __call__(self, x: np.ndarray, op: str) -> np.ndarray:
        """The reduction of ``x`` over all learners."""
        try:
            return self._cluster.role_all_reduce(x, op)
        except ClusterError as error:
            self.error = error
            raise


@contextlib.contextmanager
def learning(cluster: Cluster, plan: Plan, agent: Agent) -> Iterator[Actors]:
    """The experience of a learner, whose agent begins with the weights of learner 0 and learns with all others."""
    experience = Actors(cluster, plan, agent)
    together = Together(cluster) if plan.layout.learners > 1 else None
    if together is not None:
        agent.restore_state(cluster.role_broadcast(agent.state() if cluster.role_rank() == 0 else None))
        agent.learn_together(together)
        if cluster.role_rank() > 0:
            agent.reseed(plan.seed, f'learner {cluster.role_rank()}')
    try:
        yield experience
    except Exception as error:
        if together is not None and together.error is not None and not isinstance(error, ClusterError):
            raise together.error from None
        raise
    finally:
        if together is not None:
            agent.learn_together(None)
    experience.close()


def follow(cluster: Cluster, plan: Plan, agent: Agent, env: Any) -> None:
    """Learn as one of the learners that are not the first: it writes and shows nothing.

    Args:
        cluster: of this learner.
        plan: of the training.
        agent: an agent like that of learner 0.
        env: the environment, which is not stepped; None: one that is like it has not been built.
    """
    with contextlib.ExitStack() as stack:
        goals = stack.enter_context(Goals(env)) if plan.needs_goals else None
        experience = stack.enter_context(learning(cluster, plan, agent))
        training = Training(
            agent, None, plan.train_steps, progress_bar=False, start=plan.start, experience=experience, goals=goals
        )
        training.run(agent.loop, **plan.loop_params)
