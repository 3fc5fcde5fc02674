"""Ape-X DQN: many actors, a replay buffer in processes of its own, and a learner that waits for neither.

Horgan et al. 2018, *Distributed Prioritized Experience Replay* (arXiv 1803.00933): DQN that is double, dueling,
prioritized and of three steps (section 4.1). Each actor explores with another ε and computes the first priorities of
its steps (algorithm 1), while the learner updates as fast as it can (algorithm 2). By default two actors, a buffer and
the learner start on this machine; ``roles=None`` trains in one process.

Departures:

* The departures of DQN: Adam in place of centered RMSProp, and a torso that both streams of the dueling head share.
* ε belongs to a copy of the environment; an actor may step several copies: ``ε_i = ε^(1 + α i / (N − 1))`` with ``N``
  copies in all. For a single copy, where the formula is not defined, it is ``ε^(1 + α / 2)``.
* An actor computes first priorities from the values of its own network, as in algorithm 1. The learner also has a
  target network and newer weights, so its priorities are the same only where these networks are. The last steps of a
  message were followed by fewer than ``n_step`` steps when it was sent, and their priorities count these alone. With
  ``roles=None`` new steps have the highest priority so far, as in Schaul et al. 2016.
* Old transitions are overwritten one by one; in the paper they are removed now and then.
* β is annealed from 0.4 to 1, as in DQN; the paper keeps 0.4.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from zoo.algorithms.dqn import DQN
from zoo.common.acting.forward import Forward
from zoo.common.acting.ladder import PrioritizingEpsilonLadder
from zoo.common.tools.params import at_least, between


class ApexDQN(DQN):
    """Ape-X DQN for ``Discrete`` actions: DQN whose actors differ in ε, and replay in processes of its own."""

    recurrent = False  # actors compute priorities of single steps; R2D2 is the successor with a memory
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
