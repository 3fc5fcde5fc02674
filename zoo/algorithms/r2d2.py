"""R2D2: Ape-X DQN with a memory, which learns from sequences of the replay buffer.

Kapturowski et al. 2019, *Recurrent Experience Replay in Distributed Reinforcement Learning*
(https://openreview.net/forum?id=r1lyTjAqYX): a double, dueling Q-network with an LSTM, targets of five steps, actors
that each explore with another ε, and prioritized replay of sequences (section 2.3). A sequence begins with the
recurrent state of the actor. A burn-in of 40 steps brings the state up to date; the 80 steps after it are learned from
(section 3). The priority of a sequence is ``η max |δ| + (1 − η) mean |δ|``, η = 0.9. Rewards are not clipped. The
network gives h(Q), h as in Pohlen et al. 2018 (arXiv 1805.11593), and its target is ``h(Σ γ^i r + γ^n h⁻¹(Q'))``. By
default two actors, a buffer and the learner start on this machine; ``roles=None`` trains in one process.

Departures:

* A sequence begins at any step, and every step has the priority of the sequence that would begin there. The paper cuts
  what was played into sequences of 80 that overlap by 40. So here more sequences overlap, by any number of steps.
* A sequence goes on from one episode to the next; there the state is zero, and no target reaches across. The paper's
  sequences end with their episode.
* A new step has the highest priority so far, as in Schaul et al. 2016: the actor that sends it does not know yet how
  the sequence goes on. In the paper actors compute it.
* The network sees the observation alone; the paper's LSTM is also given the last action and reward. Put them into the
  observation where they matter.
* Both streams of the dueling head share a torso, as in DQN.
* ε belongs to a copy of the environment, as in Ape-X DQN.
* The gradient's norm is clipped at 40, as by Ape-X DQN.
"""

from __future__ import annotations

import logging
from typing import Annotated

import tensorflow as tf

from zoo.algorithms.apexdqn import ApexDQN
from zoo.common.acting.forward import Forward
from zoo.common.acting.ladder import EpsilonLadder, RecurrentEpsilonLadder
from zoo.common.maths.returns import signed_hyperbolic, signed_parabolic
from zoo.common.records import Batch
from zoo.common.tools.params import at_least

log = logging.getLogger('zoo')


class R2D2(ApexDQN):
    """R2D2 for ``Discrete`` actions: DQN with a memory, rescaled values, and actors that each have another ε."""

    recurrent = True
    unused = ('noisy', 'noisy_std', 'kappa')  # a state cannot come from drawn weights; errors are squared
    learn_defaults = {'batch_size': 64}
    default_network = {'hidden': [64], 'activation': 'relu', 'recurrent': 'lstm'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 1e-4, 'epsilon': 1e-3, 'clip_norm': 40.0}

    gamma = 0.997
    priority_alpha = 0.9
    priority_beta = 0.6
    n_step = 5
    sequence_length = 80
    burn_in = 40
    rescaling: Annotated[
        float, at_least(0), 'ε of h(x) = sign(x) (√(|x| + 1) − 1) + ε x, the function of Q that the network gives'
    ] = 1e-3

    def build(self) -> None:
        super().build()
        if not self.network.state_size:
            log.warning(
                "R2D2 has a network without a memory, and so learns from single steps: give recurrent='lstm' or 'gru' "
                'in net_list[0] (q).'
            )

    def build_behavior(self, forward: Forward) -> None:
        ladder = RecurrentEpsilonLadder if self.network.state_size else EpsilonLadder
        self.behavior = ladder(forward, self.action_adaptor, self.mask_path, self.epsilon, self.epsilon_exponent)

    def backup(self, batch: Batch, following: tf.Tensor) -> tf.Tensor:
        """Return h(r + γⁿ h⁻¹(z)) ``[B, 1]``; z ``[B, 1]`` is the target's output for the next action (section 2.3)."""
        return signed_hyperbolic(super().backup(batch, signed_parabolic(following, self.rescaling)), self.rescaling)

    def losses(self, found: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return ½ (Q(s, a) − y)² and the priority |Q(s, a) − y| of each transition ``[B]``; arguments ``[B, 1]``."""
        error = (found - target)[:, 0]
        return 0.5 * tf.square(error), tf.abs(error)
