"""The inference server: it has the policy, and actors without one ask it for actions (SEED RL, Espeholt et al. 2020).

One forward pass answers all actors that ask at about the same time.
"""

from __future__ import annotations

import contextlib

import numpy as np

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.tools import seeding
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import PeerLost
from zoo.distributed.layout import Role
from zoo.distributed.queues import Inbox
from zoo.distributed.training.exchanges import newest_weights
from zoo.distributed.training.plan import END, Plan
from zoo.distributed.training.role_metrics import Clock


class Served:
    """The actor's end: a policy that a server has.

    Attributes:
        params: the parameters of the policy for the last actions, if the algorithm asks for them; else None.
        idle: the part of its time that the server waits for requests, from its last answer.
    """

    params: np.ndarray | None = None
    idle: float = np.nan

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        number = cluster.role_rank()
        self._ask, self._answer = cluster.queue_pair((Role.ACTOR, number), (Role.SERVER, plan.server_of(number)))
        self._number = cluster.restarts << 40  # an answer for an actor that has died has another number

    def __call__(self, obs: spaces.Flat, version: int, progress: float) -> spaces.Flat:
        """Return stored actions ``[N, …]`` for flat observations ``[N, …]``, with exploration.

        ``version`` is the oldest version of the weights that may be used.
        """
        self._number += 1
        self._ask.put({'number': self._number, 'version': version, 'progress': progress, 'obs': obs})
        while True:
            answer = self._answer.get()
            if answer['number'] == self._number:
                self.params, self.idle = answer['params'], float(answer['idle'])
                return answer['action']

    def close(self) -> None:
        """Tell the server that this actor asks no more."""
        self._ask.close()


def run(cluster: Cluster, plan: Plan, behavior: Behavior) -> None:
    """Answer until all actors of this server have left."""
    number = cluster.role_rank()
    rng = seeding.generator(plan.seed, f'server {number}')
    pairs = [
        cluster.queue_pair((Role.ACTOR, actor), (Role.SERVER, number)) for actor in plan.actors_of(Role.SERVER, number)
    ]
    version, clock = END, Clock()
    inbox = Inbox(ask for ask, _ in pairs)
    while len(inbox):
        asked = []
        with clock.waiting('actors'):
            ready = inbox.wait()
        clock.end_lap()
        for i in ready:
            try:
                asked.append((pairs[i], pairs[i][0].get()))
            except PeerLost:
                inbox.remove(i)
        if not asked:
            continue
        requests = [request for _, request in asked]
        newest = max(request['version'] for request in requests)
        while version < newest:  # all learners have the same versions, but number 0 may save its own a moment later
            saved = newest_weights(cluster, 0)
            if saved is None:  # the training has ended: nobody uses these actions
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
            own = None if params is None else params[start:end]
            with contextlib.suppress(PeerLost):  # it has just left; the next round takes it off the list
                answer.put({'number': request['number'], 'action': part, 'params': own, 'idle': clock.idle})
            start = end
