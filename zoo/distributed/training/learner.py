"""The learner's side of a distributed training: experience that actors send, and what several learners agree on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from zoo.common.envs.goals import Goals
from zoo.common.records import Trajectories
from zoo.common.rollouts.rollout_buffer import RolloutBuffer
from zoo.common.training.collection import buffer_for
from zoo.common.training.experience import (
    Experience,
    Gradients,
    ReplayBuffer,
    Rollouts,
    Step,
    StepCounter,
    Steps,
    Streams,
)
from zoo.common.training.training import Training
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import ClusterError, PeerLost
from zoo.distributed.layout import Role
from zoo.distributed.queues import wait_any
from zoo.distributed.training.actor import check_sent, none_ended, one_after_another, steps_in, tell
from zoo.distributed.training.buffer import PATIENCE, Shards
from zoo.distributed.training.evaluations import Evaluators
from zoo.distributed.training.plan import END, Plan
from zoo.distributed.training.progress import Clock, Roles

if TYPE_CHECKING:
    from zoo.common.training.agent import Agent, AgentOfGradients


class Actors(Rollouts, Streams, Gradients, Steps):
    """Experience from actors; see :class:`zoo.common.training.experience.Experience`. Actor ``i`` sends to learner ``i
    mod L``.

    Args:
        cluster: of this learner.
        plan: of the training.
        agent: whose weights the actors act with.
    """

    def __init__(self, cluster: Cluster, plan: Plan, agent: Agent) -> None:
        self._cluster, self._plan, self._agent = cluster, plan, agent
        me = (Role.LEARNER, cluster.role_rank())
        actors = [(Role.ACTOR, i) for i in plan.actors_of(Role.LEARNER, me[1])]
        self._version = END
        self._published = -1
        self.roles = Roles(self._updates)
        self._shards = Shards(cluster, plan, self.roles.clock) if plan.layout.buffers else None
        self.replay: ReplayBuffer | None = self._shards
        senders = [] if plan.layout.buffers else actors
        self._rollouts = [cluster.queue(actor, me, plan.ahead + 1, plan.max_bytes) for actor in senders]
        self._replies = [cluster.queue(me, actor, plan.answers) for actor in actors]
        self._starts = [0] * len(actors)  # how often each was started again
        # Learner 0 keeps account of the episodes of all.
        first = (Role.LEARNER, 0)
        others = [(Role.LEARNER, i) for i in range(1, plan.layout.learners)]
        self._accounts = [cluster.queue(other, first) for other in others if me in (first, other)]
        self._buffer: RolloutBuffer | None = None
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

    def rollout(self, training: StepCounter, horizon: int) -> Trajectories:
        """See :class:`zoo.common.training.experience.Experience`; the next rollout is written over this one."""
        if self._buffer is None:
            self._buffer = buffer_for(self._agent, horizon, self.num_envs)
        self._publish()
        if self._version > 0:
            for i, start in enumerate(self._starts):
                self._reply(i, start)
        count, episodes = 0, []
        for i, queue in enumerate(self._rollouts):
            with self.roles.clock.waiting('actors'):
                message = queue.get()
                begins = message['begins']
                while message['version'] != self._version:  # of one that has died, or was there before the version
                    self._reply(i, message['start'])
                    message = queue.get()
                    begins = begins or message['begins']
            self._starts[i] = message['start']
            copies = slice(i * self._plan.num_envs, (i + 1) * self._plan.num_envs)
            if begins and i in self._checked:
                self._agent.episodes_restarted(copies)
            self._check(i, message['rollout'])
            self._buffer.put(copies, message['rollout'])
            own = self._heard(message)
            count += own
            episodes.append(one_after_another([(own, message['episodes'])]))  # side by side with those of the others
        self._tell(training, count, np.concatenate(episodes))
        return self._buffer.rollout

    def steps(self, training: StepCounter, explore_steps: int, wait: bool = True) -> Iterator[Step]:
        """See :class:`zoo.common.training.experience.Experience`: those of one message, of whichever actor has sent
        one."""
        if self._shards is not None:
            self._hear(training, wait)
            return
        if self._agent.updates != self._published:
            self._publish()
        i, message = self._next_message()
        self._reply(i, message['start'])
        self._check(i, message['rollout'])
        count = self._heard(message)
        yield from steps_in(message, i * self._plan.num_envs)
        self._tell(training, count, one_after_another([(count, message['episodes'])]))

    def stream(self, training: StepCounter, horizon: int, rollouts: int) -> Trajectories:
        """See :class:`zoo.common.training.experience.Experience`: of whichever actors have sent them; none is waited
        for.

        An actor is answered when its message is taken, and goes on meanwhile. So its rollout was begun with the weights
        of at most ``plan.ahead + 1`` of its own messages before; V-trace or the like is to make up for that.
        """
        if self._buffer is None:
            self._buffer = buffer_for(self._agent, horizon, rollouts * self._plan.num_envs)
        self._publish()
        parts = []
        for k in range(rollouts):
            i, message = self._next_message()
            self._reply(i, message['start'])
            self._check(i, message['rollout'])
            self._buffer.put(slice(k * self._plan.num_envs, (k + 1) * self._plan.num_envs), message['rollout'])
            parts.append((self._heard(message), message['episodes']))
        self._tell(training, sum(count for count, _ in parts), one_after_another(parts))
        return self._buffer.rollout

    def improve(self, training: StepCounter, horizon: int) -> dict[str, float] | None:
        """See :class:`zoo.common.training.experience.Experience`: by the gradient of whichever actor has sent one.

        It is applied, and its actor told of the new weights, before another is looked at.
        """
        agent = cast('AgentOfGradients', self._agent)
        if self._version == END:
            self._publish()
        i, message = self._next_message()
        plan = self._plan
        if message['shape'].tolist() != [horizon, plan.num_envs]:
            steps, copies = message['shape'].tolist()
            raise ClusterError(
                f'actor {plan.actors_of(Role.LEARNER, 0)[i]} sends the gradient of {steps} steps of {copies} copies; '
                f'the learner expects {horizon} of {plan.num_envs}: build the same environment in every rank.'
            )
        try:
            metrics = None if message['gradient'] is None else agent.take_gradient(message['gradient'])
        except ValueError as error:
            raise ClusterError(f'actor {plan.actors_of(Role.LEARNER, 0)[i]}: {error}') from None
        self._checked.add(i)
        count = int(message['steps'])
        self.roles.heard(message['spent'], count)
        self._tell(training, count, one_after_another([(count, message['episodes'])]))
        self._publish()
        self._reply(i, message['start'])
        return metrics

    def _next_message(self) -> tuple[int, dict[str, Any]]:
        """The number of an actor that has sent something, each in its turn, and its message."""
        ready = wait_any(self._rollouts, 0.0)
        depth = len(ready)
        if not ready:
            with self.roles.clock.waiting('actors'):
                ready = wait_any(self._rollouts)
        i = min(ready, key=lambda i: (i - self._next) % len(self._rollouts))
        self._next = i + 1
        message = self._rollouts[i].get()
        self.roles.chosen(depth, self._version - int(message['version']))
        return i, message

    def _heard(self, message: dict[str, Any]) -> int:
        """The steps of a message with a rollout."""
        count = int(message['rollout'].valid.sum())
        self.roles.heard(message['spent'], count)
        return count

    def measured(self) -> dict[str, float]:
        """See :class:`zoo.common.training.experience.Experience` and
        :class:`zoo.distributed.training.progress.Roles`."""
        return self.roles.measured(self._updates)

    @property
    def _updates(self) -> int:
        """Of the agent so far; where it learns from rollouts, each of which its weights are published after."""
        return self._agent.updates if self._plan.stored is not None else max(0, self._version)

    def _hear(self, training: StepCounter, wait: bool) -> None:
        """Take what the buffers tell of messages that they have stored: of one, or of all that there are by now.

        Newer weights are published where any learner is told of something: not more often than an actor hears of it,
        and by all learners at once, for a server waits until learner 0 has the version that an actor of another one
        asks for.
        """
        assert self._shards is not None
        if self._published < 0:  # what the first steps are taken with
            self._publish()
        with self.roles.clock.waiting('actors'):
            told = self._shards.news(wait)
        if (wait or self._reduced(len(told), 'max')) and self._agent.updates != self._published:
            self._publish()
        own = self._plan.actors_of(Role.LEARNER, self._cluster.role_rank())
        for news in told:
            self.roles.heard(news['spent'], int(news['count']), float(news['idle']))
            i = own.index(news['actor'])
            self._checked.add(i)  # by the buffer
            self._reply(i, news['start'])
        parts = [(int(news['count']), news['episodes']) for news in told] or [(0, none_ended())]
        self._tell(training, sum(count for count, _ in parts), one_after_another(parts))

    def least(self, number: int) -> int:
        """See :class:`zoo.common.training.experience.Experience`."""
        return self._reduced(number, 'min')

    def close(self) -> None:
        """Tell the actors that the training has ended, also one that has died and is about to be there again.

        Returns when all have closed their queues, so that none of them asks a rank that has left, or after some
        patience with those that take long.
        """
        self._cluster.save('weights', {'version': np.int64(END)})
        for i in range(len(self._replies)):
            with contextlib.suppress(PeerLost, TimeoutError):
                self._reply(i, self._starts[i], END)
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
        own = plan.storage(agent.observation_space, plan.num_envs).rollout
        check_sent(rollout, own, plan.actors_of(Role.LEARNER, me)[i], f'learner {me}')

    def _publish(self) -> None:
        """Save the weights for the actors and servers to request."""
        agent = self._agent
        self._version, self._published = self._version + 1, agent.updates
        state = {'version': self._version, 'steps': agent.steps, 'progress': agent.progress}
        if self._plan.has_gradients:
            weights = cast('AgentOfGradients', agent).weights()
        else:
            weights = agent.forward.weights()
        self._cluster.save('weights', {**state, 'weights': weights})

    def _reply(self, i: int, start: int, version: int | None = None) -> None:
        """Answer a message of an actor, of which there may be a later start by now, which does not heed it."""
        state = {'start': start, 'steps': np.int64(self._agent.steps), 'progress': float(self._agent.progress)}
        self._replies[i].put({'version': self._version if version is None else version, **state}, PATIENCE)

    def _tell(self, training: StepCounter, count: int, episodes: np.ndarray) -> None:
        """Tell of steps and episodes, learner 0 also of those of the others."""
        if self.learners > 1 and self._cluster.role_rank() == 0:
            episodes = np.concatenate([episodes, *(queue.get()['episodes'] for queue in self._accounts)])
        elif self.learners > 1:
            self._accounts[0].put({'episodes': episodes})
        tell(training, self._reduced(count, 'sum'), episodes)

    def _reduced(self, number: int, op: str) -> int:
        if self.learners == 1:
            return number
        with self.roles.clock.waiting('learners'):
            return int(self._cluster.role_all_reduce(np.array([number], np.int64), op)[0])


class Together:
    """What makes several learners one: see :meth:`zoo.common.training.agent.Agent.learn_together`.

    Args:
        cluster: of this learner.
        clock: of this learner, which is told how long the exchanges take.

    Attributes:
        error: why an exchange has failed. Compiled code, which calls this, only tells that something has.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self.error: ClusterError | None = None

    def __call__(self, x: np.ndarray, op: str) -> np.ndarray:
        """The reduction of ``x`` over all learners."""
        try:
            with self._clock.waiting('learners'):
                return self._cluster.role_all_reduce(x, op)
        except ClusterError as error:
            self.error = error
            raise


@contextlib.contextmanager
def learning(cluster: Cluster, plan: Plan, agent: Agent) -> Iterator[Experience]:
    """The experience of a learner, whose agent begins with the weights of learner 0 and learns with all others."""
    kind = Evaluators if plan.experience == 'evaluations' else Actors
    experience = kind(cluster, plan, agent)
    together = Together(cluster, experience.roles.clock) if plan.layout.learners > 1 else None
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
