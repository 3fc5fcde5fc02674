"""Evaluations over ranks: the learner hands out perturbations by their seeds, actors send back what they returned.

A generation is cut into chunks that are always the same, and an actor that is free is handed the next one. What a chunk
gives does not depend on who plays it, so that the same seed gives the same parameters whichever actor is faster. The
parameters themselves cross once in a generation for each actor, when it asks for them.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common.acting.behavior import Behavior
from zoo.common.acting.greedy import Deterministic
from zoo.common.records import Evaluations
from zoo.common.rollouts.collector import Collector
from zoo.common.rollouts.evaluator import Evaluator, both_ways, evaluations
from zoo.common.training.experience import PerturbedEpisodes, StepCounter
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import ClusterError, PeerLost
from zoo.distributed.layout import Role
from zoo.distributed.queues import wait_any
from zoo.distributed.training.actor import Ended, one_after_another, tell
from zoo.distributed.training.plan import END, Plan, newest_weights
from zoo.distributed.training.progress import Clock, Roles

if TYPE_CHECKING:
    from zoo.common.training.agent import Agent

#: Seconds that the end of the training waits for its actors, and that an actor may take to make room for a message.
_PATIENCE = 5.0

#: The chunk of the first message of an actor, which has played none.
HELLO = -1


class Evaluators(PerturbedEpisodes):
    """Experience from actors that evaluate; see :class:`zoo.common.training.experience.Experience`. There is one
    learner.

    Args:
        cluster: of the learner.
        plan: of the training.
        agent: whose parameters are perturbed.
    """

    def __init__(self, cluster: Cluster, plan: Plan, agent: Agent) -> None:
        self._cluster, self._plan, self._agent = cluster, plan, agent
        me, actors = (Role.LEARNER, 0), [(Role.ACTOR, i) for i in range(plan.layout.actors)]
        self._results = [cluster.queue(actor, me, 2, plan.max_bytes) for actor in actors]
        self._tasks = [cluster.queue(me, actor) for actor in actors]
        self._starts = [0] * len(actors)  # how often each was started again
        self._chunks: list[int | None] = [None] * len(actors)  # that each plays
        self._free: set[int] = set()
        self._version = END
        self.roles = Roles()
        self.num_envs = len(actors) * plan.num_envs

    def restart(self, seed: int | None) -> bool:
        """Every chunk begins new episodes by itself."""
        return True

    def evaluations(self, training: StepCounter, seeds: np.ndarray, std: float, episodes: int) -> Evaluations:
        """See :class:`zoo.common.training.experience.Experience`; tells of the chunks in their order, when all have
        been played."""
        self._version += 1
        state = {'version': self._version, 'steps': self._agent.steps, 'progress': self._agent.progress}
        self._cluster.save('weights', {**state, 'weights': self._agent.forward.weights()})
        all_seeds, signs = both_ways(seeds)
        size = self._plan.horizon
        parts = [slice(i, i + size) for i in range(0, len(signs), size)]
        waiting, found = deque(range(len(parts))), dict[int, dict[str, Any]]()
        while len(found) < len(parts):
            for i in sorted(self._free) if waiting else ():
                if waiting:
                    self._chunks[i] = given = waiting.popleft()
                    self._free.discard(i)
                    part = parts[given]
                    task = {'start': self._starts[i], 'version': self._version, 'chunk': given, 'std': std}
                    self._tasks[i].put({**task, 'seeds': all_seeds[part], 'signs': signs[part]}, _PATIENCE)
            with self.roles.clock.waiting('actors'):
                ready = wait_any(self._results)
            for i in ready:
                message = self._results[i].get()
                chunk = int(message['chunk'])
                if chunk == HELLO:  # also of one that was started again, whose predecessor has left its chunk undone
                    self._starts[i] = int(message['start'])
                    undone = self._chunks[i]
                    if undone is not None:
                        waiting.appendleft(undone)
                    self._check(i, message)
                elif int(message['start']) != self._starts[i]:
                    continue
                else:
                    found[chunk] = message
                    self.roles.heard(message['spent'], int(message['steps']))
                self._chunks[i] = None
                self._free.add(i)
        ordered = [found[i] for i in range(len(parts))]
        for message in ordered:
            count = int(message['steps'])
            tell(training, count, one_after_another([(count, message['episodes'])]))
        returns, lengths = (np.concatenate([message[name] for message in ordered]) for name in ('returns', 'lengths'))
        paths = self._agent.statistics
        observed = {path: np.concatenate([message['observed'][path] for message in ordered]) for path in paths}
        return evaluations(seeds, episodes, returns, lengths, observed)

    def measured(self) -> dict[str, float]:
        """See :class:`zoo.common.training.experience.Experience` and
        :class:`zoo.distributed.training.progress.Roles`."""
        return self.roles.measured(max(0, self._version))

    def _check(self, i: int, message: dict[str, Any]) -> None:
        """Look at the environment that an actor has built: its program may have built another one than this one."""
        if int(message['num_envs']) != self._plan.num_envs:
            raise ClusterError(
                f'actor {i} has {int(message["num_envs"])} copies of the environment, learner 0 expects '
                f'{self._plan.num_envs}: build the same environment, with as many copies, in every rank.'
            )

    def close(self) -> None:
        """Tell the actors that the training has ended, and return when they have closed their queues, or take long."""
        self._cluster.save('weights', {'version': np.int64(END)})
        for tasks in self._tasks:
            with contextlib.suppress(PeerLost, TimeoutError):
                tasks.put({'version': np.int64(END)}, _PATIENCE)
        end = time.monotonic() + _PATIENCE
        for queue in self._results:
            with contextlib.suppress(PeerLost, TimeoutError):
                while True:
                    queue.get(max(0.0, end - time.monotonic()))
            queue.close()


def run(cluster: Cluster, plan: Plan, behavior: Behavior, env: Any) -> None:
    """Play the chunks that the learner hands out, until it says that the training has ended.

    Args:
        cluster: of this actor.
        plan: of the training.
        behavior: the policy.
        env: the environment, of one copy or several.
    """
    assert isinstance(behavior, Deterministic) and behavior.forward is not None  # or the plan would not be of this kind
    me, learner = (Role.ACTOR, cluster.role_rank()), (Role.LEARNER, 0)
    results, tasks = cluster.queue(me, learner, 2, plan.max_bytes), cluster.queue(learner, me)
    collector = Collector(env, behavior.adaptor)
    play = Evaluator(collector, behavior, plan.loop_params['episodes_per_evaluation'])
    own, version = cluster.restarts, END
    episodes, clock = Ended(collector), Clock()
    try:
        results.put({'start': own, 'chunk': np.int64(HELLO), 'num_envs': collector.num_envs})
        while True:
            with clock.waiting('learner'):
                task = tasks.get()
            if task['version'] == END:
                break
            if task['start'] != own:  # it was for one that has died
                continue
            if task['version'] != version:
                saved = newest_weights(cluster, 0)
                if saved is None:
                    break
                behavior.forward.load(saved['weights'])
                version = task['version']
            before = collector.steps
            returns, lengths, observed = play(
                task['seeds'], task['signs'], task['std'], lambda _: episodes.add(play.finished)
            )
            results.put(
                {
                    'start': own,
                    'chunk': task['chunk'],
                    'returns': returns,
                    'lengths': lengths,
                    'observed': observed,
                    'steps': collector.steps - before,
                    'episodes': episodes.numbers(),
                    'spent': np.array([*clock.lap('learner', 'server'), np.nan]),
                }
            )
    except PeerLost:  # a learner that leaves has ended the training; one that fails has ended the job
        pass
    results.close()
