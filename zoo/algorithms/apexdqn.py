"""Ape-X DQN: many actors, replay in ranks of its own, and a learner that never waits for either.

Horgan et al. 2018, *Distributed Prioritized Experience Replay* (arXiv 1803.00933): DQN that is double, dueling,
prioritised and of three steps (section 4.1), whose actors explore each by another ε and say themselves how surprising
their steps are (algorithm 1), while the learner updates as fast as it can (algorithm 2). Alone it starts two actors, a
buffer and the learner on this machine; with ``roles=None`` it trains in one process.

Departures:

* DQN's: Adam in place of centred RMSProp, and a torso that both streams of the dueling head share.
* ε belongs to a copy of the environment, of which an actor may step several: ``ε_i = ε^(1 + α i / (N − 1))`` with ``N``
  copies in all. Of one alone, where the formula is not defined, it is ``ε^(1 + α / 2)``.
* The first priorities are of the network that the actor acts with, its values alone, as in algorithm 1: the learner has
  a target network besides, and newer weights, so they are its own where the three are the same. The last steps of a
  message have been followed by fewer than ``n_step`` when it is sent, and their priorities are of as many as that. It
  is the same with actors and no buffer; but with ``roles=None`` new steps have the highest priority so far, as in
  Schaul et al. 2016.
* Old transitions are written over one by one, not removed now and then where there are too many.
* β is annealed from 0.4 to 1 as with DQN, where the paper keeps 0.4.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from zoo.algorithms.dqn import DQN
from zoo.common.acting.forward import Forward
from zoo.common.acting.ladder import PrioritizingEpsilonLadder
from zoo.common.tools.params import at_least, between


class ApexDQN(DQN):
    """Ape-X DQN for ``Discrete`` actions: DQN with actors of their own ε, and replay in ranks of its own."""

    recurrent = False  # the actors' priorities are of single steps: R2D2 is its successor with a memory
    unused: ClassVar[tuple[str, ...]] = ('sequence_length', 'burn_in')
    learn_defaults = {'roles': {'learners': 1, 'actors': 2, 'buffers': 1}, 'update_every': None}

    dueling = True
    prioritized = True
    n_step = 3
    target_update_every = 2500
    epsilon: Annotated[
        float, between(0, 1), 'the highest probability of a random action, which the first actor has'
    ] = 0.4
    epsilon_exponent: Annotated[
        float, at_least(0), 'α of ε^(1 + α i / (N − 1)): how far the ε of the last actor is below it'
    ] = 7.0

    def build_behavior(self, forward: Forward) -> None:
        self.behavior = PrioritizingEpsilonLadder(
            forward, self.action_adaptor, self.mask_path, self.epsilon, self.epsilon_exponent
        )
