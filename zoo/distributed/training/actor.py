"""The actor: it steps copies of the environment and sends the steps to its learner, or to a buffer of that learner.

It imports no TensorFlow if the policy is a chain of dense layers or if servers have it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.maths.normalize import Collected
from zoo.common.records import Trajectories
from zoo.common.rollouts.collector import Collector
from zoo.common.tools import seeding
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import PeerLost
from zoo.distributed.layout import Role
from zoo.distributed.training.exchanges import EndedEpisodes, newest_weights
from zoo.distributed.training.plan import END, Plan
from zoo.distributed.training.role_metrics import Clock
from zoo.distributed.training.server import Served
from zoo.distributed.training.watch import watched

if TYPE_CHECKING:
    from zoo.common.training.agent import AgentOfGradients

log = logging.getLogger('zoo')


def close_env(env: Any) -> None:
    """Close an environment that is not needed any more; an error is only logged."""
    try:
        env.close()
    except Exception as error:
        log.warning('The environment could not be closed: %r.', error)


class Actor:
    """One actor. Every message holds ``plan.horizon`` steps of every copy, or their gradient.

    The learner answers each message with the version of the newest weights. The actor may have ``plan.ahead`` messages
    without an answer before it waits for one. With ``ahead`` 0 it acts with the weights that followed from its last
    one.

    Args:
        behavior: the behavior policy; without a forward pass the server is asked for actions.
        agent: computes the gradients of the rollouts; None: the rollouts are sent.
    """

    def __init__(
        self, cluster: Cluster, plan: Plan, behavior: Behavior, env: Any, agent: AgentOfGradients | None = None
    ) -> None:
        self.cluster, self.plan, self.env, self.agent = cluster, plan, env, agent
        self.number = cluster.role_rank()
        self.behavior = behavior.of_actor(self.number, plan.layout.actors)
        self.learner = plan.learner_of(self.number)
        me = (Role.ACTOR, self.number)
        self.rollouts = cluster.queue(me, plan.receiver_of(self.number), plan.ahead + 1, plan.max_bytes)
        self.replies = cluster.queue((Role.LEARNER, self.learner), me, plan.answers)
        self.served = Served(cluster, plan) if plan.layout.servers else None
        # An actor that was started again does not repeat what the process before it did.
        self.rng = seeding.generator(plan.seed, f'actor {self.number}, start {cluster.restarts}')
        if agent is not None:
            agent.reseed(plan.seed, f'networks of actor {self.number}, start {cluster.restarts}')
        self.version, self.steps, self.progress = END, 0, 0.0
        self.clock = Clock()

    def run(self) -> None:
        """Act until the learner says that the training has ended."""
        if not self._renew():
            return
        collector = Collector(self.env, self.behavior.adaptor, begin=self.behavior.episodes_begin)
        with watched(self.cluster, self.plan, collector):
            self._play(collector)

    def _play(self, collector: Collector) -> None:
        collector.reset(int(self.rng.integers(2**31 - 1)))
        buffer = self.plan.storage(collector.space, collector.num_envs)
        episodes = EndedEpisodes(collector)
        collected = Collected({} if self.plan.stored is None else self.plan.stored.normalized)
        begins, unanswered = True, 0
        while True:
            act = self._explore if self.steps < self.plan.explore_steps else self._act
            rollout = buffer.fill(collector, act, lambda before: episodes.add(collector.finished), self.behavior)
            message = {
                'start': self.cluster.restarts,
                'version': self.version,
                'begins': begins,
                **self._content(rollout),
                'episodes': episodes.numbers(),
                'spent': np.array([*self.clock.lap('learner', 'server'), self.served.idle if self.served else np.nan]),
            }
            if self.plan.stored is not None:
                message['priority'] = self.behavior.priorities(rollout, self.plan.stored.sampling)
                collected.add(rollout.obs, rollout.valid)
                message['observed'] = collected.take()
            begins, unanswered = False, unanswered + 1
            try:
                with self.clock.waiting('learner'):
                    self.rollouts.put(message)
                # Replies that are there are read at once, for newer weights.
                while unanswered > self.plan.ahead or (unanswered and self.replies.ready()):
                    with self.clock.waiting('learner'):
                        reply = self.replies.get()
                    if END < reply['version'] and reply['start'] != self.cluster.restarts:
                        continue  # it was for a process that has died
                    if reply['version'] == END:
                        return
                    if reply['version'] == self.version or self.served is not None:
                        self._take(reply)
                    elif not self._renew():
                        return
                    unanswered -= 1
            except PeerLost:  # a learner that leaves has ended the training; one that fails has ended the job
                return

    def close(self) -> None:
        """Close the queues: the learner and the server wait for that."""
        self.rollouts.close()
        if self.served is not None:
            self.served.close()

    def _content(self, rollout: Trajectories) -> dict[str, Any]:
        """Return the part of a message that is the rollout, or its gradient: None where no step is valid."""
        if self.agent is None:
            return {'rollout': rollout}
        self.agent.progress = self.progress
        found = self.agent.gradient(rollout) if rollout.valid.any() else None
        return {'gradient': found, 'shape': np.array(rollout.valid.shape), 'steps': rollout.valid.sum()}

    def _renew(self) -> bool:
        """Act with the newest weights from now on; return False when the training has ended."""
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

    def _act(self, obs: spaces.Flat) -> spaces.Flat:
        if self.served is None:
            return self.behavior(obs, self.rng, self.progress)
        with self.clock.waiting('server'):
            action = self.served(obs, self.version, self.progress)
        self.behavior.params = self.served.params
        return action

    def _explore(self, obs: spaces.Flat) -> spaces.Flat:
        return self.behavior.explore(obs, self.rng, self.progress)
