"""The actor: it steps copies of the environment and sends what came of it to its learner, or to a buffer of that one.

Where the policy is a chain of dense layers, or where servers have it, an actor never imports TensorFlow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.records import Episode, Trajectories, Transition
from zoo.common.rollouts.collector import Collector
from zoo.common.tools import seeding
from zoo.common.training.experience import Step
from zoo.distributed import wire
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import ClusterError, PeerLost
from zoo.distributed.layout import Role
from zoo.distributed.training.plan import END, Plan, newest_weights
from zoo.distributed.training.progress import Clock
from zoo.distributed.training.server import Served

if TYPE_CHECKING:
    from zoo.common.training.agent import AgentOfGradients
    from zoo.common.training.experience import StepCounter

log = logging.getLogger('zoo')


def run(cluster: Cluster, plan: Plan, behavior: Behavior, env: Any, agent: AgentOfGradients | None = None) -> None:
    """Act until the learner says that the training has ended.

    Args:
        cluster: of this actor.
        plan: of the training.
        behavior: the behaviour policy; without a forward pass the server is asked for actions.
        env: the environment, of one copy or several.
        agent: a :class:`zoo.common.training.agent.AgentOfGradients`, which computes them; None: the rollouts are sent.
    """
    actor = Actor(cluster, plan, behavior, env, agent)
    actor.run()
    actor.close()


def close_env(env: Any) -> None:
    """Close an environment that is not needed any more; that it cannot do it well is only worth a line."""
    try:
        env.close()
    except Exception as error:
        log.warning('The environment could not be closed: %r.', error)


class Actor:
    """One actor; see :func:`run` for its arguments.

    Every message holds ``plan.horizon`` steps of every copy, or their gradient, and is answered by the learner with the
    version of the newest weights; the actor may have ``plan.ahead`` messages without an answer before it waits for one.
    Ahead by none, it acts with the weights that its last message has led to.
    """

    def __init__(
        self, cluster: Cluster, plan: Plan, behavior: Behavior, env: Any, agent: AgentOfGradients | None = None
    ) -> None:
        self.agent = agent
        self.cluster, self.plan = cluster, plan
        self.number = cluster.role_rank()
        self.behavior = behavior.of_actor(self.number, plan.layout.actors)
        self.learner = plan.learner_of(self.number)
        me = (Role.ACTOR, self.number)
        self.rollouts = cluster.queue(me, plan.receiver_of(self.number), plan.ahead + 1, plan.max_bytes)
        self.replies = cluster.queue((Role.LEARNER, self.learner), me, plan.answers)
        self.served = Served(cluster, plan) if plan.layout.servers else None
        # One that was started again does not repeat what it did before.
        self.rng = seeding.generator(plan.seed, f'actor {self.number}, start {cluster.restarts}')
        if agent is not None:
            agent.reseed(plan.seed, f'networks of actor {self.number}, start {cluster.restarts}')
        self.env = env
        self.version = END
        self.steps = 0
        self.progress = 0.0
        self.clock = Clock()

    def run(self) -> None:
        """See :func:`run`."""
        if not self._renew():
            return
        collector = Collector(self.env, self.behavior.adaptor, begin=self.behavior.episodes_begin)
        collector.reset(int(self.rng.integers(2**31 - 1)))
        buffer = self.plan.storage(collector.space, collector.num_envs)
        episodes = Ended(collector)
        begins, unanswered = True, 0
        while True:
            act = self._explore if self.steps < self.plan.explore_steps else self._act
            rollout = buffer.fill(collector, act, lambda before: episodes.add(collector.finished), self.behavior)
            message = {
                'start': self.cluster.restarts,
                'version': self.version,
                'begins': begins,
                **self._said(rollout),
                'episodes': episodes.numbers(),
                'spent': self._spent(),
            }
            if self.plan.stored is not None:
                message['priority'] = self.behavior.priorities(rollout, self.plan.stored.sampling)
            begins, unanswered = False, unanswered + 1
            try:
                with self.clock.waiting('learner'):
                    self.rollouts.put(message)
                # Those that are there are heeded at once, for the sake of newer weights.
                while unanswered > self.plan.ahead or (unanswered and self.replies.ready()):
                    with self.clock.waiting('learner'):
                        reply = self.replies.get()
                    if END < reply['version'] and reply['start'] != self.cluster.restarts:
                        continue  # it was for one that has died
                    if not self._heed(reply):
                        return
                    unanswered -= 1
            except PeerLost:  # a learner that leaves has ended the training; one that fails has ended the job
                return

    def _said(self, rollout: Trajectories) -> dict[str, Any]:
        """What a message says of a rollout: all of it, or the gradient, None where there is nothing to learn."""
        if self.agent is None:
            return {'rollout': rollout}
        self.agent.progress = self.progress
        found = self.agent.gradient(rollout) if rollout.valid.any() else None
        return {'gradient': found, 'shape': np.array(rollout.valid.shape), 'steps': rollout.valid.sum()}

    def _spent(self) -> np.ndarray:
        """Of what has been done since the last message, see :meth:`zoo.distributed.training.progress.Roles.heard`."""
        idle = np.nan if self.served is None else self.served.idle
        return np.array([*self.clock.lap('learner', 'server'), idle], np.float64)

    def _heed(self, reply: dict[str, Any]) -> bool:
        """Take what a reply says; False when the training has ended."""
        if reply['version'] == END:
            return False
        if reply['version'] != self.version and self.served is None:
            return self._renew()
        self._take(reply)
        return True

    def _renew(self) -> bool:
        """Act with the newest weights from now on; False when the training has ended."""
        saved = newest_weights(self.cluster, self.learner)
        if saved is None:
            return False
        if self.agent is not None:
            self.agent.load_weights(saved['weights'])
        elif self.served is None:
            assert self.behavior.forward is not None  # without a server an actor has the policy
            self.behavior.forward.load(saved['weights'])
        self._take(saved)
        return True

    def _take(self, state: dict[str, Any]) -> None:
        self.version, self.steps, self.progress = int(state['version']), int(state['steps']), float(state['progress'])

    def close(self) -> None:
        """Close the queues, which the learner and the server wait for."""
        self.rollouts.close()
        if self.served is not None:
            self.served.close()

    def _act(self, obs: spaces.Flat) -> spaces.Flat:
        if self.served is not None:
            with self.clock.waiting('server'):
                action = self.served(obs, self.version, self.progress)
            self.behavior.params = self.served.params
            return action
        return self.behavior(obs, self.rng, self.progress)

    def _explore(self, obs: spaces.Flat) -> spaces.Flat:
        return self.behavior.explore(obs, self.rng, self.progress)


def check_sent(rollout: Trajectories, expected: Trajectories, actor: int, receiver: str) -> None:
    """Look at what an actor sends: its program may have built another environment than that of who receives it.

    Args:
        rollout: what it sends.
        expected: one like it.
        actor: its number.
        receiver: whom the message names.

    Raises:
        ClusterError: other parts, shapes or dtypes.
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
    """The steps of an actor's message, in their order.

    Args:
        message: of an actor that was started again, too, whose episodes do not go on from those of the one before.
        first: the number of its first copy, where it is stored.
    """
    rollout, priority = message['rollout'], message.get('priority')
    for t in range(len(rollout.reward)):
        *fields, valid = [spaces.tree_map(lambda x, t=t: x[t], field) for field in rollout[:7]]
        state, own = (None if x is None else x[t] for x in (rollout.states, priority))
        yield Step(Transition(*fields), valid, first, message['begins'] and t == 0, state, own)


class Ended:
    """The episodes that have ended since the last message, and at which of its steps.

    Args:
        collector: that plays them.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._rows: list[tuple[float, ...]] = []
        self._begin = collector.steps

    def add(self, episodes: Iterable[Episode]) -> None:
        """Episodes that ended in the step that was just taken."""
        at = self._collector.steps - self._begin
        self._rows += [
            (e.episode_return, e.length, np.nan if e.success is None else e.success, e.copy, at) for e in episodes
        ]

    def numbers(self) -> np.ndarray:
        """All of them for a message, float64 ``[n, 5]``, after which the next one begins.

        Return, length, whether it succeeded (NaN where the environment does not say), copy, and the steps of the
        message when it ended.
        """
        found = np.array(self._rows, np.float64).reshape(-1, 5)
        self._rows, self._begin = [], self._collector.steps
        return found


def none_ended() -> np.ndarray:
    """What :meth:`Ended.numbers` gives where no episode has."""
    return np.zeros((0, 5))


def one_after_another(parts: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
    """The episodes of messages of so many steps, each of which follows the one before, float64 ``[n, 5]``.

    In the last column is the part of all those steps that had been taken when each ended, from 0 to 1.
    """
    counts, episodes = zip(*parts, strict=True)
    before = np.repeat(np.cumsum(counts) - counts, [len(x) for x in episodes])
    found = np.concatenate(episodes)
    found[:, -1] = (before + found[:, -1]) / max(1, sum(counts))
    return found


def tell(training: StepCounter, count: int, episodes: np.ndarray) -> None:
    """Tell a training of steps, and of each episode that ended among them when it did, in their order.

    Args:
        training: that is told.
        count: steps of the environment.
        episodes: see :func:`one_after_another`.
    """
    told = 0
    for total, length, success, copy, part in episodes[np.argsort(episodes[:, -1], kind='stable')].tolist():
        at = round(part * count)
        training.stepped(
            at - told, [Episode(total, int(length), None if np.isnan(success) else bool(success), int(copy))]
        )
        told = at
    training.stepped(count - told, [])
