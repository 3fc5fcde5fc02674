"""The inference server: it has the policy, and actors without one ask it for actions (SEED RL, Espeholt et al. 2020).

What several actors ask at about the same time is answered by one forward pass.
"""

from __future__ import annotations

import numpy as np

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.tools import seeding
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import PeerLost
from zoo.distributed.layout import Role
from zoo.distributed.queues import wait_any
from zoo.distributed.training.plan import Plan, newest_weights
from zoo.distributed.training.progress import Clock


class Served:
    """The actor's end: a policy that a server has. Called with flat observations it returns stored actions.

    Args:
        cluster: of the actor.
        plan: of the training.

    Attributes:
        params: the parameters of the policy for the last actions, where the algorithm asks for them.
        idle: the part of its time that the server waits for requests, as it has said last.
    """

    params: np.ndarray | None = None
    idle: float = np.nan

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        number = cluster.role_rank()
        me, server = (Role.ACTOR, number), (Role.SERVER, plan.server_of(number))
        self._ask, self._answer = cluster.queue_pair(me, server)
        # An answer that was meant for an actor that has died has another number.
        self._number = cluster.restarts << 40

    def __call__(self, obs: spaces.Flat, version: int, progress: float) -> spaces.Flat:
        """Stored actions ``[N, …]`` for flat observations ``[N, …]``, exploring.

        Args:
            obs: the observations.
            version: of the weights; older ones are not used.
            progress: fraction of the training done.
        """
        self._number += 1
        self._ask.put({'number': self._number, 'version': version, 'progress': progress, 'obs': obs})
        while True:
            answer = self._answer.get()
            if answer['number'] == self._number:
                self.params, self.idle = answer['params'], float(answer['idle'])
                return answer['action']

    def close(self) -> None:
        """Ask no more."""
        self._ask.close()


def run(cluster: Cluster, plan: Plan, behavior: Behavior) -> None:
    """Answer until all actors have left.

    Args:
        cluster: of this server.
        plan: of the training.
        behavior: the behaviour policy.
    """
    number = cluster.role_rank()
    rng = seeding.generator(plan.seed, f'server {number}')
    pairs = [
        cluster.queue_pair((Role.ACTOR, actor), (Role.SERVER, number)) for actor in plan.actors_of(Role.SERVER, number)
    ]
    version, clock = -1, Clock()
    while pairs:
        asked, left = [], []
        with clock.waiting('actors'):
            ready = wait_any([ask for ask, _ in pairs])
        clock.rounded()
        for i in ready:
            try:
                asked.append((pairs[i], pairs[i][0].get()))
            except PeerLost:
                left.append(i)
        pairs = [pair for i, pair in enumerate(pairs) if i not in left]
        if not asked:
            continue
        requests = [request for _, request in asked]
        newest = max(request['version'] for request in requests)
        while version < newest:  # learners have the same versions, and number 0 may save its own a moment later
            saved = newest_weights(cluster, 0)
            if saved is None:  # what is still asked for is not used any more
                break
            if version < saved['version']:
                version = saved['version']
                assert behavior.forward is not None  # a server has the policy
                behavior.forward.load(saved['weights'])
        obs = spaces.tree_map(lambda *parts: np.concatenate(parts), *(request['obs'] for request in requests))
        action = behavior(obs, rng, max(request['progress'] for request in requests))
        params = behavior.params if behavior.param_size else None
        start = 0
        for (_, answer), request in asked:
            end = start + spaces.count(request['obs'])
            part = spaces.tree_map(lambda x, start=start, end=end: x[start:end], action)
            try:
                own = None if params is None else params[start:end]
                answer.put({'number': request['number'], 'action': part, 'params': own, 'idle': clock.idle})
            except PeerLost:
                pass  # it has just left; the next round takes it off the list
            start = end
