"""Evolution strategies over ranks: the learner hands out perturbations by their seeds, actors send back the returns.

A generation is cut into chunks that are always the same, and an actor that is free gets the next one. The result of a
chunk does not depend on the actor that plays it, so the same seed gives the same parameters. The parameters themselves
are sent once in a generation to each actor, when it asks for them.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common.acting.behavior import Behavior
from zoo.common.acting.greedy import Deterministic
from zoo.common.records import Evaluations
from zoo.common.rollouts.collector import Collector
from zoo.common.rollouts.perturbed_play import PerturbedPlay, both_ways, evaluations
from zoo.common.training.experience import PerturbedEpisodes, StepCounter
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import ClusterError, PeerLost
from zoo.distributed.engines.waiting import Deadline
from zoo.distributed.layout import Role
from zoo.distributed.queues import Inbox
from zoo.distributed.training import exchanges
from zoo.distributed.training.plan import END, Plan
from zoo.distributed.training.role_metrics import Clock, RoleMetrics
from zoo.distributed.training.watch import watched

if TYPE_CHECKING:
    from zoo.common.training.agent import Agent

#: The chunk in the first message of an actor, which has played none.
HELLO = -1


class PerturbedActors(PerturbedEpisodes):
    """The learner's end: experience from actors that evaluate perturbations. There is one learner."""

    def __init__(self, cluster: Cluster, plan: Plan, agent: Agent) -> None:
        self._cluster, self._plan, self._agent = cluster, plan, agent
        me, actors = (Role.LEARNER, 0), [(Role.ACTOR, i) for i in range(plan.layout.actors)]
        self._results = [cluster.queue(actor, me, 2, plan.max_bytes) for actor in actors]
        self._inbox = Inbox(self._results)
        self._tasks = [cluster.queue(me, actor) for actor in actors]
        self._starts = [0] * len(actors)  # how often each was started again
        self._chunks: list[int | None] = [None] * len(actors)  # the chunk that each plays
        self._free: set[int] = set()
        self._version = END
        self.metrics = RoleMetrics()
        self.num_envs = len(actors) * plan.num_envs

    def restart(self, seed: int | None) -> None:
        return  # every chunk begins new episodes

    def evaluations(self, training: StepCounter, seeds: np.ndarray, std: float, episodes: int) -> Evaluations:
        self._version += 1
        exchanges.publish(self._cluster, self._agent, self._version, self._agent.forward.weights())
        all_seeds, signs = both_ways(seeds)
        size = self._plan.horizon
        parts = [slice(i, i + size) for i in range(0, len(signs), size)]
        waiting, found = deque(range(len(parts))), dict[int, dict[str, Any]]()
        while len(found) < len(parts):
            for i in sorted(self._free)[: len(waiting)]:
                self._chunks[i] = given = waiting.popleft()
                self._free.discard(i)
                part = parts[given]
                task = {'start': self._starts[i], 'version': self._version, 'chunk': given, 'std': std}
                self._tasks[i].put({**task, 'seeds': all_seeds[part], 'signs': signs[part]}, exchanges.PATIENCE)
            with self.metrics.clock.waiting('actors'):
                ready = self._inbox.wait()
            for i in ready:
                message = self._results[i].get()
                chunk = int(message['chunk'])
                if chunk == HELLO:  # the first message; if the actor was started again, its last chunk is not done
                    self._starts[i] = int(message['start'])
                    undone = self._chunks[i]
                    if undone is not None:
                        waiting.appendleft(undone)
                    if int(message['num_envs']) != self._plan.num_envs:
                        raise ClusterError(
                            f'actor {i} has {int(message["num_envs"])} copies of the environment, learner 0 expects '
                            f'{self._plan.num_envs}: build the same environment, with as many copies, in every rank.'
                        )
                elif int(message['start']) != self._starts[i]:
                    continue
                else:
                    found[chunk] = message
                    self.metrics.heard(message['spent'], int(message['steps']))
                self._chunks[i] = None
                self._free.add(i)
        ordered = [found[i] for i in range(len(parts))]  # reported in the order of the chunks, whoever was faster
        for message in ordered:
            count = int(message['steps'])
            exchanges.report(training, count, exchanges.one_after_another([(count, message['episodes'])]))
        returns, lengths = (np.concatenate([message[name] for message in ordered]) for name in ('returns', 'lengths'))
        paths = self._agent.statistics
        observed = {path: np.concatenate([message['observed'][path] for message in ordered]) for path in paths}
        return evaluations(seeds, episodes, returns, lengths, observed)

    def measured(self) -> dict[str, float]:
        return self.metrics.measured(max(0, self._version))

    def close(self) -> None:
        """Tell the actors that the training has ended, and wait for some seconds until they have left."""
        exchanges.publish_end(self._cluster)
        for tasks in self._tasks:
            with contextlib.suppress(PeerLost, TimeoutError):
                tasks.put({'version': np.int64(END)}, exchanges.PATIENCE)
        exchanges.drain(self._results, Deadline(exchanges.PATIENCE))


def run(cluster: Cluster, plan: Plan, behavior: Behavior, env: Any) -> None:
    """Play the chunks that the learner hands out, as an actor, until the training has ended."""
    assert isinstance(behavior, Deterministic) and behavior.forward is not None  # so says the agent's contract
    me, learner = (Role.ACTOR, cluster.role_rank()), (Role.LEARNER, 0)
    results, tasks = cluster.queue(me, learner, 2, plan.max_bytes), cluster.queue(learner, me)
    collector = Collector(env, behavior.adaptor)
    play = PerturbedPlay(collector, behavior, plan.loop_params['episodes_per_evaluation'])
    own, version = cluster.restarts, END
    episodes, clock = exchanges.EndedEpisodes(collector), Clock()
    # A learner that leaves has ended the training; one that fails has ended the job.
    with contextlib.suppress(PeerLost), watched(cluster, plan, collector):
        results.put({'start': own, 'chunk': np.int64(HELLO), 'num_envs': collector.num_envs})
        while True:
            with clock.waiting('learner'):
                task = tasks.get()
            if task['version'] == END:
                break
            if task['start'] != own:  # it was for a process that has died
                continue
            if task['version'] != version:
                saved = exchanges.newest_weights(cluster, 0)
                if saved is None:
                    break
                behavior.forward.load(saved['weights'])
                version = task['version']
            before = collector.steps
            returns, lengths, observed = play(
                task['seeds'], task['signs'], task['std'], lambda _: episodes.add(play.finished)
            )
            message = {'start': own, 'chunk': task['chunk'], 'returns': returns, 'lengths': lengths}
            message |= {'observed': observed, 'steps': collector.steps - before, 'episodes': episodes.numbers()}
            results.put(message | {'spent': np.array([*clock.lap('learner', 'server'), np.nan])})
    results.close()
