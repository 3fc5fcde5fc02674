"""Ape-X DDPG: DDPG with many actors, a replay buffer in processes of its own, and a learner that waits for neither.

Horgan et al. 2018, *Distributed Prioritized Experience Replay* (arXiv 1803.00933), section 4.2: DDPG that is
prioritized and of several steps, on the machinery of Ape-X DQN (:mod:`zoo.algorithms.apexdqn`). By default two actors,
a buffer and the learner start on this machine; ``roles=None`` trains in one process.

Departures:

* The departures of DDPG.
* New steps are stored with the highest priority so far, as in Schaul et al. 2016. The paper's actors compute |δ|, which
  takes the critic; actors here do not have it. The learner finds the priority of a step when it first draws it.
* Each copy of the environment has noise with a σ of its own, as Ape-X DQN's copies have an ε:
  ``σ_i = σ^(1 + α i / (N − 1))`` with ``N`` copies in all.
"""

from __future__ import annotations

from typing import Annotated

from zoo.algorithms.ddpg import DDPG
from zoo.common.acting.forward import Forward
from zoo.common.acting.ladder import NoiseLadder
from zoo.common.tools.params import at_least, between


class ApexDDPG(DDPG):
    """Ape-X DDPG for bounded ``Box`` actions: DDPG whose actors differ in noise, and replay in processes of its own.

    Noise is in the units of [−1, 1], half the range of each entry.
    """

    unused = ('noise', 'theta', 'dt')
    learn_defaults = {'roles': {'learners': 1, 'actors': 2, 'buffers': 1}, 'update_every': None}

    explore_noise: Annotated[
        float, between(0, 1), 'the highest σ of the noise on actions while training, of the first actor'
    ] = 0.4
    noise_exponent: Annotated[
        float, at_least(0), 'α of σ^(1 + α i / (N − 1)): how far the σ of the last actor is below it'
    ] = 7.0
    n_step = 3
    prioritized = True

    def build_behavior(self, forward: Forward) -> None:
        self.behavior = NoiseLadder(forward, self.action_adaptor, self.explore_noise, self.noise_exponent)
