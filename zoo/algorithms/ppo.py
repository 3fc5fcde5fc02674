"""PPO: proximal policy optimisation with the clipped objective.

Schulman et al. 2017, *Proximal Policy Optimization Algorithms* (arXiv 1707.06347): equations 7 and 9, with generalised
advantage estimation (Schulman et al. 2016, arXiv 1506.02438).

Departures, those of OpenAI Baselines and most since: advantages are normalised in each minibatch, gradients are clipped
by their norm. The policy's network and the value's are apart, but images are encoded once for both.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any

import numpy as np
import tensorflow as tf

from zoo.algorithms.actor_critic import ActorCritic
from zoo.common import spaces
from zoo.common.adaptors.policy import penalized
from zoo.common.optim import mean_over
from zoo.common.params import above, at_least
from zoo.common.schedules import Linear
from zoo.common.types import Rollout

log = logging.getLogger('zoo')


class PPO(ActorCritic):
    """Proximal policy optimisation for every action space.

    ``'actor'`` in place of the critic in ``net_list`` puts the critic's head on the actor's torso.
    """

    optimizer_names = ('all',)
    metric_names = ('policy', 'value', 'entropy', 'kl', 'clip_fraction')
    scheduled = ('entropy_coef', 'clip_range')

    def __init__(
        self,
        *args: Any,
        clip_range: Annotated[float | Linear, at_least(0), 'ε of the clipped objective'] = 0.2,
        target_kl: Annotated[
            float | None, above(0), 'mean divergence from the old policy that ends the epochs; None: nothing does'
        ] = None,
        **params: Any,
    ) -> None:
        self.clip_range = clip_range
        self.target_kl = target_kl
        super().__init__(*args, **params)

    def policy_loss(
        self, params: tf.Tensor, action: spaces.Flat, advantage: tf.Tensor, old_log_prob: tf.Tensor, clip: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """−mean min(ratio A, clip(ratio) A): equation 7; also an estimate of the KL and the clipped part."""
        log_ratio = self.action_adaptor.distribution.log_prob(params, action) - old_log_prob
        ratio = tf.exp(log_ratio)
        objective = tf.minimum(ratio * advantage, tf.clip_by_value(ratio, 1.0 - clip, 1.0 + clip) * advantage)
        kl = tf.reduce_mean(ratio - 1.0 - log_ratio)
        clipped = tf.reduce_mean(tf.cast(tf.abs(ratio - 1.0) > clip, tf.float32))
        return -tf.reduce_mean(objective), kl, clipped

    def improve(self, rollout: Rollout, now: dict[str, tf.Tensor], batches: tf.Tensor) -> tf.Tensor:
        """The whole of an iteration in one compiled call: advantages, then every minibatch of every epoch.

        Args:
            rollout: fields ``[T, N, …]``.
            now: float32, ε and the weight of the entropy bonus.
            batches: int32 ``[minibatches, batch_size]``, indices into the ``T N`` transitions.

        Returns:
            The last minibatch's metrics in the order of ``metric_names``.
        """
        samples = self.samples(rollout)
        optimizer = self.optimizers['all']

        def minibatch(i: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            rows = batches[i]
            drawn = tf.nest.map_structure(lambda x: tf.gather(x, rows), samples)
            adv = drawn.advantage
            adv = (adv - tf.reduce_mean(adv)) / (tf.math.reduce_std(adv) + 1e-8)
            with tf.GradientTape() as tape:
                params, value = self.policy_and_value(drawn.obs, training=True)
                policy_loss, kl, clipped = self.policy_loss(
                    params, drawn.action, adv, drawn.log_prob, now['clip_range']
                )
                value_loss = tf.reduce_mean(tf.square(value - drawn.returns))
                entropy = tf.reduce_mean(self.entropy(params))
                loss = policy_loss + self.value_coef * value_loss - now['entropy_coef'] * entropy
                loss = penalized(loss, self.policy.network, self.critic)
            optimizer.apply(tape.gradient(loss, optimizer.variables))
            if self.target_kl is not None:  # all learners stop at the same minibatch
                (kl,) = mean_over(self.all_reduce, [kl])
            metrics = {
                'policy': policy_loss,
                'value': value_loss,
                'entropy': entropy,
                'kl': kl,
                'clip_fraction': clipped,
            }
            return i + 1, self.stack_metrics(metrics)

        def going_on(i: tf.Tensor, metrics: tf.Tensor) -> tf.Tensor:
            more = i < batches.shape[0]
            if self.target_kl is None:
                return more
            return tf.logical_and(more, metrics[self.metric_names.index('kl')] <= self.target_kl)

        start = (tf.constant(0), tf.zeros([len(self.metric_names)]))
        _, metrics = tf.while_loop(going_on, minibatch, start, parallel_iterations=1)
        return metrics

    def update(
        self,
        rollout: Rollout,
        *,
        epochs: Annotated[int, at_least(1), 'passes over the transitions of an iteration'] = 10,
        batch_size: Annotated[
            int, at_least(2), "transitions in one gradient step; an epoch's last one is filled up from its first"
        ] = 64,
    ) -> dict[str, float] | None:
        """One iteration on a rollout of the current policy, with fields ``[T, N, …]``."""
        valid = np.flatnonzero(rollout.valid)
        if not valid.size:  # every copy was only reset
            return None
        if rollout.valid.size < 2:
            raise ValueError('an iteration of one transition has no advantages to compare: give a larger horizon.')
        # As many minibatches however many transitions are valid: another number would compile the update anew.
        size = min(batch_size, rollout.valid.size)
        if size < batch_size and not self.fused.traces:
            log.warning(
                'batch_size is %d, but an iteration has %d transitions: one minibatch of these.', batch_size, size
            )
        per_epoch = -(-rollout.valid.size // size)
        batches = np.empty((epochs, per_epoch * size), np.int32)
        for epoch in batches:
            epoch[:] = np.resize(self.rng.permutation(valid), epoch.size)
        return self.iterate(rollout, batches.reshape(-1, size))
