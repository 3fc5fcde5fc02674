"""The learner: it updates the agent on what actors send, together with the other learners."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from zoo.common.envs.goals import Goals
from zoo.common.records import Trajectories
from zoo.common.rollouts.rollout_buffer import RolloutBuffer
from zoo.common.training.collection import buffer_for
from zoo.common.training.experience import Gradients, ReplayBuffer, Rollouts, Step, StepCounter, Steps, Streams
from zoo.common.training.training import Training
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import ClusterError, PeerLost
from zoo.distributed.engines.waiting import Deadline
from zoo.distributed.layout import Role
from zoo.distributed.queues import Inbox
from zoo.distributed.training import exchanges
from zoo.distributed.training.evaluations import PerturbedActors
from zoo.distributed.training.plan import END, Plan
from zoo.distributed.training.role_metrics import Clock, RoleMetrics
from zoo.distributed.training.shards import Shards

if TYPE_CHECKING:
    from zoo.common.training.agent import Agent, AgentOfGradients


class Actors(Rollouts, Streams, Gradients, Steps):
    """Experience from actors, for every loop but evolution. Actor ``i`` sends to learner ``i mod learners``.

    Attributes:
        metrics: what is logged of the roles.
        shards: the buffers of this learner, as one replay buffer; None: there are none.
        replies: the queue of answers to each actor of this learner.
    """

    def __init__(self, cluster: Cluster, plan: Plan, agent: Agent) -> None:
        self._cluster, self._plan, self._agent = cluster, plan, agent
        self._number = cluster.role_rank()
        me = (Role.LEARNER, self._number)
        self._own = plan.actors_of(*me)  # the numbers of this learner's actors
        self._index_of = {actor: i for i, actor in enumerate(self._own)}
        actors = [(Role.ACTOR, i) for i in self._own]
        self._version, self._published = END, -1
        self.metrics = RoleMetrics(self._updates)
        self.shards = Shards(cluster, plan, self.metrics.clock) if plan.layout.buffers else None
        self.replay: ReplayBuffer | None = self.shards
        self._collected = agent.collected()
        senders = [] if plan.layout.buffers else actors
        self._rollouts = [cluster.queue(actor, me, plan.ahead + 1, plan.max_bytes) for actor in senders]
        self.replies = [cluster.queue(me, actor, plan.answers) for actor in actors]
        self._starts = [0] * len(actors)  # how often each was started again
        first = (Role.LEARNER, 0)  # it counts the episodes of all learners
        others = [(Role.LEARNER, i) for i in range(1, plan.layout.learners)]
        self._accounts = [cluster.queue(other, first) for other in others if me in (first, other)]
        self._buffer: RolloutBuffer | None = None
        self._inbox = Inbox(self._rollouts)
        self._checked: set[int] = set()
        self.num_envs = len(actors) * plan.num_envs
        self.learners = plan.layout.learners

    def restart(self, seed: int | None) -> None:
        # The actors' episodes go on. Before any message, they are new episodes.
        if not self._checked:
            self._agent.episodes_restarted()
            if self.shards is not None and not (self._plan.start and self._agent.observed_recordings):
                for found in self.shards.recorded_observed:
                    self._collected.join(found)

    def rollout(self, training: StepCounter, horizon: int) -> Trajectories:
        if self._buffer is None:
            self._buffer = buffer_for(self._agent, horizon, self.num_envs)
        self._publish()
        if self._version > 0:
            for i, start in enumerate(self._starts):
                self._reply(i, start)
        count, episodes = 0, []
        for i, queue in enumerate(self._rollouts):
            with self.metrics.clock.waiting('actors'):
                message = queue.get()
                begins = message['begins']
                while message['version'] != self._version:  # of an actor that has died, or sent before this version
                    self._reply(i, message['start'])
                    message = queue.get()
                    begins = begins or message['begins']
            self._starts[i] = message['start']
            if begins and i in self._checked:
                self._agent.episodes_restarted(self._copies(i))
            own, ended = self._store(i, message, self._buffer, i)
            count += own
            episodes.append(exchanges.one_after_another([(own, ended)]))  # the actors take their steps at the same time
        self._report(training, count, np.concatenate(episodes))
        return self._buffer.rollout

    def stream(self, training: StepCounter, horizon: int, rollouts: int) -> Trajectories:
        # An actor is answered when its message is taken, and goes on. So its rollout began with weights of at most
        # ``plan.ahead + 1`` of its own messages before: V-trace or the like has to correct for that.
        if self._buffer is None:
            self._buffer = buffer_for(self._agent, horizon, rollouts * self._plan.num_envs)
        self._publish()
        parts = []
        for k in range(rollouts):
            i, message = self._next_message()
            self._reply(i, message['start'])
            parts.append(self._store(i, message, self._buffer, k))
        self._report_in_turn(training, parts)
        return self._buffer.rollout

    def improve(self, training: StepCounter, horizon: int) -> dict[str, float] | None:
        # Each gradient is applied, and its actor told of the new weights, before the next one is looked at.
        agent, plan = cast('AgentOfGradients', self._agent), self._plan
        if self._version == END:
            self._publish()
        i, message = self._next_message()
        if message['shape'].tolist() != [horizon, plan.num_envs]:
            steps, copies = message['shape'].tolist()
            raise ClusterError(
                f'actor {self._own[i]} sends the gradient of {steps} steps of {copies} copies; the learner expects '
                f'{horizon} of {plan.num_envs}: build the same environment in every rank.'
            )
        try:
            metrics = None if message['gradient'] is None else agent.take_gradient(message['gradient'])
        except ValueError as error:
            raise ClusterError(f'actor {self._own[i]}: {error}') from None
        self._checked.add(i)
        count = int(message['steps'])
        self.metrics.heard(message['spent'], count)
        self._report_in_turn(training, [(count, message['episodes'])])
        self._publish()
        self._reply(i, message['start'])
        return metrics

    def steps(self, training: StepCounter, explore_steps: int, wait: bool = True) -> Iterator[Step]:
        if self.shards is not None:
            self._hear(self.shards, training, wait)
            return
        if self._agent.updates != self._published:
            self._publish()
        i, message = self._next_message()
        self._reply(i, message['start'])
        self._check(i, message['rollout'])
        count = self._heard(message)
        self._collected.join(message['observed'])
        yield from exchanges.steps_in(message, i * self._plan.num_envs)
        self._report_in_turn(training, [(count, message['episodes'])])

    def observed(self) -> dict[str, np.ndarray]:
        return self._collected.take()

    def least(self, number: int) -> int:
        return self._reduced(number, 'min')

    def measured(self) -> dict[str, float]:
        return self.metrics.measured(self._updates)

    def close(self) -> None:
        """Tell the actors that the training has ended, also an actor that has died and is about to be started again.

        Returns when all actors and buffers have left, so that none asks a rank that is gone; or after some seconds.
        """
        exchanges.publish_end(self._cluster)
        for i, start in enumerate(self._starts):
            with contextlib.suppress(PeerLost, TimeoutError):
                self._reply(i, start, END)
        deadline = Deadline(exchanges.PATIENCE)
        exchanges.drain(self._rollouts, deadline)
        if self.shards is not None:
            self.shards.close(deadline)

    def _hear(self, shards: Shards, training: StepCounter, wait: bool) -> None:
        """Take what the buffers say of messages that they have stored: of the next one, or of all that are there.

        Newer weights are published where any learner hears something: not more often than an actor is answered. All
        learners publish at once, because a server waits until learner 0 has the version that any actor asks for.
        """
        if self._published < 0:  # the weights for the first steps
            self._publish()
        with self.metrics.clock.waiting('actors'):
            told = shards.news(wait)
        if (wait or self._reduced(len(told), 'max')) and self._agent.updates != self._published:
            self._publish()
        for news in told:
            self.metrics.heard(news['spent'], int(news['count']), float(news['idle']))
            i = self._index_of[news['actor']]
            self._checked.add(i)  # the buffer has checked it
            self._collected.join(news['observed'])
            self._reply(i, news['start'])
        parts = [(int(news['count']), news['episodes']) for news in told] or [(0, exchanges.no_episodes())]
        self._report_in_turn(training, parts)

    def _next_message(self) -> tuple[int, dict[str, Any]]:
        """Return the index of an actor that has sent something, each in its turn, and its message."""
        i = self._inbox.next(0.0)
        depth = 0 if i is None else self._inbox.found
        if i is None:
            with self.metrics.clock.waiting('actors'):
                i = self._inbox.next()
        assert i is not None  # without a timeout
        message = self._rollouts[i].get()
        self.metrics.chosen(depth, self._version - int(message['version']))
        return i, message

    def _store(self, i: int, message: dict[str, Any], buffer: RolloutBuffer, place: int) -> tuple[int, np.ndarray]:
        """Put the rollout of a message into its place in a buffer; return its number of steps and its episodes."""
        self._check(i, message['rollout'])
        buffer.put(self._copies(place), message['rollout'])
        return self._heard(message), message['episodes']

    def _copies(self, place: int) -> slice:
        """Return the copies of the actor in a place of a rollout."""
        return slice(place * self._plan.num_envs, (place + 1) * self._plan.num_envs)

    def _heard(self, message: dict[str, Any]) -> int:
        """Count a message with a rollout, and return its number of steps."""
        count = int(message['rollout'].valid.sum())
        self.metrics.heard(message['spent'], count)
        return count

    def _check(self, i: int, rollout: Trajectories) -> None:
        """Refuse the first rollout of an actor whose program has built another environment than this one."""
        if i in self._checked:
            return
        self._checked.add(i)
        own = self._plan.storage(self._agent.observation_space, self._plan.num_envs).rollout
        exchanges.check_sent(rollout, own, self._own[i], f'learner {self._number}')

    @property
    def _updates(self) -> int:
        """The number of updates so far. A learner of rollouts publishes its weights after each update."""
        return self._agent.updates if self._plan.stored is not None else max(0, self._version)

    def _publish(self) -> None:
        """Publish the weights for the actors and servers, as a new version."""
        agent = self._agent
        self._version, self._published = self._version + 1, agent.updates
        weights = cast('AgentOfGradients', agent).weights() if self._plan.has_gradients else agent.forward.weights()
        exchanges.publish(self._cluster, agent, self._version, weights)

    def _reply(self, i: int, start: int, version: int | None = None) -> None:
        """Answer a message of an actor. An actor that was started again since ignores the answer."""
        state = {'start': start, 'steps': np.int64(self._agent.steps), 'progress': float(self._agent.progress)}
        self.replies[i].put({'version': self._version if version is None else version, **state}, exchanges.PATIENCE)

    def _report_in_turn(self, training: StepCounter, parts: list[tuple[int, np.ndarray]]) -> None:
        """Report messages that follow each other in time, by steps and episodes."""
        self._report(training, sum(count for count, _ in parts), exchanges.one_after_another(parts))

    def _report(self, training: StepCounter, count: int, episodes: np.ndarray) -> None:
        """Report the steps of all learners, and this learner's episodes; learner 0 reports all episodes."""
        if self.learners > 1 and self._number == 0:
            episodes = np.concatenate([episodes, *(queue.get()['episodes'] for queue in self._accounts)])
        elif self.learners > 1:
            self._accounts[0].put({'episodes': episodes})
        exchanges.report(training, self._reduced(count, 'sum'), episodes)

    def _reduced(self, number: int, op: str) -> int:
        if self.learners == 1:
            return number
        with self.metrics.clock.waiting('learners'):
            return int(self._cluster.role_all_reduce(np.array([number], np.int64), op)[0])


class Together:
    """The reduction over all learners that makes them one (:meth:`zoo.common.training.agent.Agent.learn_together`).

    Attributes:
        error: why an exchange has failed. Compiled code, which makes the calls, only reports that something failed.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self.error: ClusterError | None = None

    def __call__(self, x: np.ndarray, op: str) -> np.ndarray:
        """Return the reduction of ``x`` over all learners. The clock counts how long this takes."""
        try:
            with self._clock.waiting('learners'):
                return self._cluster.role_all_reduce(x, op)
        except ClusterError as error:
            self.error = error
            raise


@contextlib.contextmanager
def learning(cluster: Cluster, plan: Plan, agent: Agent) -> Iterator[Actors | PerturbedActors]:
    """Give a learner its experience. Its agent begins with the weights of learner 0 and learns with all learners."""
    kind = PerturbedActors if plan.experience == 'evaluations' else Actors
    experience = kind(cluster, plan, agent)
    together = Together(cluster, experience.metrics.clock) if plan.layout.learners > 1 else None
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
    """Learn as one of the learners after learner 0. They write and show nothing.

    The environment computes rewards for hindsight and is not stepped; None: it is not needed.
    """
    with contextlib.ExitStack() as stack:
        goals = stack.enter_context(Goals(env)) if plan.needs_goals else None
        experience = stack.enter_context(learning(cluster, plan, agent))
        last, start = plan.train_steps, plan.start
        training = Training(agent, None, last, verbose=0, start=start, experience=experience, goals=goals)
        training.run(agent.loop, **plan.loop_params)
