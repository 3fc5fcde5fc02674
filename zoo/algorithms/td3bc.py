"""TD3+BC: TD3 with a penalty that keeps the policy near the data.

Fujimoto and Gu 2021, *A Minimalist Approach to Offline Reinforcement Learning* (arXiv 2106.06860): the loss of TD3's
actor gets a term of behavior cloning (equation 3), and the values are scaled to that term (equation 5). Observations
are normalized by the dataset's mean and deviation (section 5).

Departures:

* (π(s) − a)² is the mean over the entries of the action, as in the authors' code; in the paper it is a sum. Actions are
  in units of [−1, 1].
* Normalized observations are clipped at ten deviations. The statistics go on while the agent learns online.
"""

from __future__ import annotations

from typing import Annotated

import tensorflow as tf

from zoo.algorithms.td3 import TD3
from zoo.common.networks.network import penalized
from zoo.common.parameters import NormalizeObs
from zoo.common.records import Batch
from zoo.common.tools.params import above
from zoo.common.training import loops

#: Smallest mean |Q| that values are divided by.
SMALLEST = 1e-8


class TD3BC(TD3):
    """TD3 with behavior cloning, for bounded ``Box`` actions: offline, and from there online."""

    loop = loops.offline_to_online

    alpha: Annotated[float, above(0), 'weight of the values; near 0 the policy clones the data'] = 2.5
    normalize_obs: NormalizeObs = True

    def actor_loss(self, batch: Batch) -> tf.Tensor:
        """Return −λ mean Q₁(s, π(s)) + mean (π(s) − a)², λ = α / mean |Q₁(s, π(s))|: equations 3 and 5.

        No gradient flows through λ.
        """
        action = self.actor(batch.obs, training=True)
        q = self.critics[0](batch.obs, action)[:, 0]
        size = tf.maximum(tf.reduce_mean(tf.abs(tf.stop_gradient(q))), SMALLEST)
        cloning = tf.reduce_mean(tf.square(action - batch.action))
        return penalized(cloning - self.alpha / size * tf.reduce_mean(q), self.actor)
