"""CrossQ: soft actor-critic with batch normalization in place of target networks.

Bhatt et al. 2024, *CrossQ: Batch Normalization in Deep Reinforcement Learning for Greater Sample Efficiency and
Simplicity* (arXiv 1902.05605). (s, a) and (s′, a′) go through the critics in one joined batch in training mode,
so that both are normalized by the same moments (section 3.2). Critics are wide. Actor and critics are normalized by
batch renormalization (:mod:`zoo.common.networks.layers.batch_renorm`). Actor and temperature move every third update.

As in the authors' code, the actor chooses a′ in inference mode, and the critics judge the actor in inference mode.

Departures: the departures of SAC. The optimizer of the temperature has the same β₁ as the others.
"""

from __future__ import annotations

import logging
from typing import Annotated

import keras
import tensorflow as tf

from zoo.algorithms.sac import SAC
from zoo.common.networks.network import Network, penalized
from zoo.common.records import Batch, SequenceBatch
from zoo.common.tools.params import at_least

log = logging.getLogger('zoo')


class CrossQ(SAC):
    """Soft actor-critic without target networks, for bounded ``Box`` actions."""

    acts_in = ('Box',)
    recurrent = False

    # There is no target that tau would move. Recurrent networks and gSDE are not part of the paper.
    unused = ('tau', 'sequence_length', 'burn_in', 'use_sde', 'sde_sample_freq', 'log_std_init')
    by_position = (
        'observation_space',
        'action_space',
        'net_list',
        'optimizers_list',
        'gamma',
        'policy_delay',
        'alpha',
        'target_entropy',
        'normalize_obs',
    )
    default_network = {'hidden': [256, 256], 'activation': 'relu', 'normalize': 'batch_renorm'}
    default_networks = {'critic': {'hidden': [2048, 2048]}}
    default_optimizer = {'name': 'Adam', 'learning_rate': 1e-3, 'beta_1': 0.5}

    policy_delay: Annotated[
        int, at_least(1), 'updates of the critics for each update of the actor and the temperature'
    ] = 3

    def build(self) -> None:
        super().build()
        for i, critic in enumerate(self.critics, 1):
            seen = critic.custom is None or isinstance(critic.torso, keras.Layer)
            if seen and not critic.moving_variables:
                log.warning(
                    "net_list[%d] (%s) is not normalized over the batch, which stands in for CrossQ's target networks: "
                    "values may diverge without normalize='batch_renorm'.",
                    i,
                    critic.name,
                )
        self.phases = self.policy_delay
        self.last_of_actor = tf.Variable(tf.zeros([3]))
        self.state_variables['last_of_actor'] = self.last_of_actor

    def build_targets(self) -> list[Network]:
        """Return the critics themselves: there are no targets."""
        return self.critics

    def observations_at_once(self, batches: Batch | SequenceBatch) -> int:
        return 2 * super().observations_at_once(batches)

    def critic_loss(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        """Return ½ mean (Q(s, a) − y)², summed over both critics; y = r + γ (1 − terminated) (min Q(s′, a′) − α log π).

        One call with the joined batch ``[2 B, …]`` gives both values; a′ ~ π, and no gradient flows through y.
        """
        next_action, log_prob = self.sample(batch.next_obs, seed)
        obs = tf.nest.map_structure(lambda *pair: tf.concat(pair, 0), batch.obs, batch.next_obs)
        action = tf.concat([batch.action, next_action], 0)
        values = [tf.split(critic(obs, action, training=True)[:, 0], 2) for critic in self.critics]
        next_q = tf.reduce_min([after for _, after in values], 0)
        soft_value = next_q - tf.exp(self.log_alpha) * log_prob
        target = tf.stop_gradient(batch.reward + batch.discount * soft_value)
        errors = [q - target for q, _ in values]
        return penalized(0.5 * tf.add_n([tf.reduce_mean(tf.square(error)) for error in errors]), *self.critics)

    def update(self, batch: Batch, seed: tf.Tensor, phase: int = 0) -> dict[str, tf.Tensor]:
        """Make a gradient step of the critics on a batch with fields ``[B, …]``; in the last phase also of the actor.

        In other phases the metrics of the actor come from its last step.
        """
        critic_loss = self.optimizers['critic'].minimize(lambda: self.critic_loss(batch, seed))
        if phase == self.policy_delay - 1:
            self.last_of_actor.assign(tf.stack(self.update_actor(batch, seed + 1)))
        actor_loss, entropy, q = tf.unstack(self.last_of_actor.read_value())
        return {
            'critic': critic_loss,
            'actor': actor_loss,
            'alpha': tf.exp(self.log_alpha),
            'entropy': entropy,
            'q': q,
        }
