"""Ape-X DDPG: DDPG with many actors, replay in ranks of its own, and a learner that never waits for either.

Horgan et al. 2018, *Distributed Prioritized Experience Replay* (arXiv 1803.00933), section 4.2: DDPG that is
prioritised and of several steps, on the machinery of Ape-X DQN (:mod:`zoo.algorithms.apexdqn`). Alone it starts two
actors, a buffer and the learner on this machine; with ``roles=None`` it trains in one process.

Departures:

* DDPG's.
* New steps are stored with the highest priority so far, as in Schaul et al. 2016, where the paper's actors compute |δ|:
  that takes the critic, which actors do not have. The learner finds their priorities when it first draws them.
* Each copy of the environment has noise of its own σ, on the ladder that Ape-X DQN has for ε:
  ``σ_i = σ^(1 + α i / (N − 1))`` with ``N`` copies in all.
"""

from __future__ import annotations

from typing import Annotated

from zoo.algorithms.ddpg import DDPG
from zoo.common.acting.forward import Forward
from zoo.common.acting.ladder import NoiseLadder
from zoo.common.tools.params import at_least, between


class ApexDDPG(DDPG):
    """Ape-X DDPG for bounded ``Box`` actions: DDPG with actors of their own noise, and replay in ranks of its own.

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
