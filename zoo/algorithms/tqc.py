"""TQC: truncated quantile critics.

Kuznetsov et al. 2020, *Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional Quantile
Critics* (arXiv 2005.04269): SAC whose critics give quantiles of the return. The target leaves out the largest of all
quantiles together (the losses J_Z and J_π of its algorithm 1).

Departures: the departures of SAC. Two critics in place of five, as in the defaults of sb3-contrib, since each critic
costs a network in every update; a subclass has as many as it names in ``network_names``. The critics' losses are
summed, as in SAC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import tensorflow as tf

from zoo.algorithms.sac import SAC
from zoo.common import spaces
from zoo.common.maths.quantiles import quantile_huber
from zoo.common.networks.heads import Head
from zoo.common.networks.network import Network, penalized
from zoo.common.records import Batch
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import at_least


class TQC(SAC):
    """Truncated quantile critics for bounded ``Box`` actions."""

    acts_in = ('Box',)

    quantiles: Annotated[int, at_least(1), 'quantiles that each critic gives'] = 25
    drop: Annotated[int, at_least(0), 'quantiles for each critic, the largest of all, that the target leaves out'] = 2

    def build(self) -> None:
        if self.drop >= self.quantiles:
            raise InvalidValue(
                f'drop is {self.drop}: leave at least one of the {self.quantiles} quantiles of each critic.'
            )
        super().build()

    def critic_head(self) -> Head:
        """Return what a critic has to give: θ(s, a), the quantiles of its distribution of the return."""
        size = self.action_adaptor.parts[0].size
        return Head(self.quantiles, f'{self.quantiles} quantiles of the value', action_size=size)

    def atoms(self, critics: Sequence[Network], obs: spaces.Flat, action: tf.Tensor) -> tf.Tensor:
        """Return the quantiles of all critics together, ``[B, critics · quantiles]``."""
        return tf.concat([critic(obs, action) for critic in critics], -1)

    def value(self, critics: Sequence[Network], obs: spaces.Flat, action: tf.Tensor) -> tf.Tensor:
        """Return Q(s, a) for J_π: the mean of the quantiles of all critics, none left out."""
        return tf.reduce_mean(self.atoms(critics, obs, action), -1)

    def critic_target(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        """Return yᵢ = r + γ (1 − terminated) (zᵢ − α log π(a′ | s′)), zᵢ all but the largest.

        ``[B, critics · (quantiles − drop)]``, in no particular order.
        """
        action, log_prob = self.sample(batch.next_obs, seed)
        atoms = self.atoms(self.targets, batch.next_obs, action)
        if self.drop:
            kept = len(self.targets) * (self.quantiles - self.drop)
            atoms = -tf.math.top_k(-atoms, kept, sorted=False).values
        soft = atoms - tf.exp(self.log_alpha) * log_prob[:, None]
        return batch.reward[:, None] + batch.discount[:, None] * soft

    def critic_loss(self, batch: Batch, target: tf.Tensor) -> tf.Tensor:
        """Return J_Z: the mean quantile Huber loss over transitions and quantiles, summed over the critics."""
        found = [critic(batch.obs, batch.action, training=True) for critic in self.critics]
        losses = [tf.reduce_mean(quantile_huber(quantiles, target)[0]) / self.quantiles for quantiles in found]
        return penalized(tf.add_n(losses), *self.critics)
