"""TQC: truncated quantile critics.

Kuznetsov et al. 2020, *Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional Quantile
Critics* (arXiv 2005.04269): SAC whose critics give quantiles of the return; the largest of all of them together are
left out of the target (the losses J_Z and J_π of its algorithm 1).

Departures: two critics in place of five, as in the defaults of sb3-contrib, since an update costs a network of each; a
subclass with other ``network_names`` has as many as it names. The critics' losses are summed, as SAC's are. Beyond
these, those of SAC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import tensorflow as tf

from zoo.algorithms.sac import SAC
from zoo.common import spaces
from zoo.common.adaptors.policy import Head, Network, penalized
from zoo.common.params import at_least
from zoo.common.types import Batch


class TQC(SAC):
    """Truncated quantile critics for bounded ``Box`` actions."""

    acts_in = ('Box',)

    def __init__(
        self,
        *args: Any,
        quantiles: Annotated[int, at_least(1), 'quantiles that each critic gives'] = 25,
        drop: Annotated[int, at_least(0), 'how many for each critic, the largest of all, the target leaves out'] = 2,
        **params: Any,
    ) -> None:
        if drop >= quantiles:
            raise ValueError(f'drop is {drop}: leave at least one of the {quantiles} quantiles of each critic.')
        self.quantiles = quantiles
        self.drop = drop
        super().__init__(*args, **params)

    def critic_head(self) -> Head:
        """What a critic has to give: θ(s, a), the quantiles of its distribution of the return."""
        size = self.action_adaptor.parts[0].size
        return Head(self.quantiles, f'{self.quantiles} quantiles of the value', action_size=size)

    def atoms(self, critics: Sequence[Network], obs: spaces.Flat, action: tf.Tensor) -> tf.Tensor:
        """The quantiles of all critics together, ``[B, critics · quantiles]``."""
        return tf.concat([critic(obs, action) for critic in critics], -1)

    def value(self, critics: Sequence[Network], obs: spaces.Flat, action: tf.Tensor) -> tf.Tensor:
        """Q(s, a), the mean of the quantiles of all critics, none left out, which J_π is of."""
        return tf.reduce_mean(self.atoms(critics, obs, action), -1)

    def critic_target(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        """yᵢ = r + γ (1 − terminated) (zᵢ − α log π(a′ | s′)), zᵢ all but the largest.

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
        """J_Z: the quantile Huber loss, summed over the critics."""
        found = [quantile_huber_loss(critic(batch.obs, batch.action, training=True), target) for critic in self.critics]
        return penalized(tf.add_n(found), *self.critics)


@tf.custom_gradient
def quantile_huber_loss(quantiles: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """mean over transitions, i and m of |τₘ − 1{yᵢ < θₘ}| Huber(yᵢ − θₘ), τₘ in the middle of the m-th part of [0, 1].

    Its gradient is found along with it: the pairs are many, and are gone through once in place of some ten times.

    Args:
        quantiles: θ ``[B, M]``, in ascending order once they are learned.
        target: y ``[B, K]``, no gradient flows to it.
    """
    loss, gradient = _loss_and_gradient(quantiles, target)
    return loss, lambda upstream: (upstream * gradient, None)


@tf.function(jit_compile=True, autograph=False)
def _loss_and_gradient(quantiles: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    count = quantiles.shape[-1]
    fractions = ((np.arange(count, dtype=np.float32) + 0.5) / count)[:, None]
    error = target[:, None, :] - quantiles[:, :, None]
    slope = tf.clip_by_value(error, -1.0, 1.0)  # of the Huber loss, which is slope · (error − ½ slope)
    weighted = tf.where(error < 0.0, 1.0 - fractions, fractions) * slope
    pairs = tf.cast(tf.size(error), tf.float32)
    return tf.reduce_sum(weighted * (error - 0.5 * slope)) / pairs, -tf.reduce_sum(weighted, -1) / pairs
