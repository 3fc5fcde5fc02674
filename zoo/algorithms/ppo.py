"""PPO: proximal policy optimization, with the clipped objective or with an adaptive penalty on the KL.

Schulman et al. 2017, *Proximal Policy Optimization Algorithms* (arXiv 1707.06347): equations 7 (``method='clip'``), 8
and section 4 (``method='penalty'``), and 9, with generalized advantage estimation (Schulman et al. 2016, arXiv
1506.02438).

Departures, as in OpenAI Baselines and most later code: advantages are normalized in each minibatch, gradients are
clipped by their norm, and the value's change may be clipped too (``clip_range_value``). Policy and value have networks
of their own, but images are encoded once for both. The coefficient of the penalty stays between 1e-6 and 1e6, so that
it cannot reach zero and stay there. Its target is the smallest of the paper's three, 0.003, and not its best one for
MuJoCo, 0.01: with 0.01 the policy fell in CartPole on 4 of 20 seeds, with 0.003 on one of 20; Pendulum scored the same.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
import tensorflow as tf

from zoo.algorithms.actor_critic import ActorCritic, NormalizeAdvantage, Samples, mean_of, normalized
from zoo.algorithms.on_policy import RolloutSequenceLength
from zoo.common import spaces
from zoo.common.maths.optimizers import mean_over
from zoo.common.networks.network import penalized
from zoo.common.records import Trajectories
from zoo.common.schedules import Linear
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import above, at_least

#: Bounds of the coefficient of the penalty.
PENALTY_BOUNDS = (1e-6, 1e6)


class PPO(ActorCritic):
    """Proximal policy optimization for every action space.

    ``'actor'`` in place of the critic in ``net_list`` puts the critic's head on the actor's torso.
    """

    optimizer_names: ClassVar[tuple[str, ...]] = ('all',)
    metric_names: ClassVar[tuple[str, ...]] = ('policy', 'value', 'entropy', 'kl', 'clip_fraction')
    scheduled = ('entropy_coef', 'clip_range', 'clip_range_value')

    method: Annotated[
        Literal['clip', 'penalty'], 'what keeps the policy near the old one: a clipped ratio, or a cost of the KL'
    ] = 'clip'
    clip_range: Annotated[
        float | Linear,
        at_least(0),
        'ε of the clipped objective; with a penalty it only decides what is reported as clipped',
    ] = 0.2
    clip_range_value: Annotated[
        float | Linear | None, at_least(0), 'how far a value may move from the old one in an iteration; None: freely'
    ] = None
    penalty_coef: Annotated[float, above(0), 'β of the penalty, at first; the divergence adapts it'] = 1.0
    penalty_target: Annotated[float, above(0), 'mean divergence from the old policy that β is adapted to'] = 0.003
    normalize_advantage: NormalizeAdvantage = True
    target_kl: Annotated[
        float | None, above(0), 'mean divergence from the old policy that ends the epochs; None: nothing does'
    ] = None
    sequence_length: RolloutSequenceLength = None

    def build(self) -> None:
        super().build()
        self.check_sequence_length(self.sequence_length)
        if self.method == 'penalty':
            self.beta = tf.Variable(float(self.penalty_coef), dtype=tf.float32, trainable=False)
            self.state_variables['beta'] = self.beta
        else:
            self.warn_of_unread(('penalty_coef', 'penalty_target'), " without method='penalty'")

    def sequence_steps(self, steps: int) -> int:
        return min(self.sequence_length or steps, steps)

    def policy_loss(
        self,
        params: tf.Tensor,
        action: spaces.Flat,
        advantage: tf.Tensor,
        old_log_prob: tf.Tensor,
        clip: tf.Tensor,
        valid: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return −mean min(ratio A, clip(ratio) A), equation 7, or −mean ratio A, the first term of equation 8.

        Also return an estimate of the KL, and the part of the ratios that are out of range. Means cover ``valid``
        transitions; None: all.
        """
        log_ratio = self.action_adaptor.distribution.log_prob(params, action) - old_log_prob
        ratio = tf.exp(log_ratio)
        objective = ratio * advantage
        if self.method == 'clip':
            objective = tf.minimum(objective, tf.clip_by_value(ratio, 1.0 - clip, 1.0 + clip) * advantage)
        kl = mean_of(ratio - 1.0 - log_ratio, valid)
        clipped = mean_of(tf.cast(tf.abs(ratio - 1.0) > clip, tf.float32), valid)
        return -mean_of(objective, valid), kl, clipped

    def value_loss(self, value: tf.Tensor, samples: Samples, now: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return mean (V − R)², of equation 9; with ``clip_range_value`` the larger of it and the same with V clipped
        around the old V, as in OpenAI Baselines."""
        error = tf.square(value - samples.returns)
        if self.clip_range_value is not None:
            most = now['clip_range_value']
            near = samples.value + tf.clip_by_value(value - samples.value, -most, most)
            error = tf.maximum(error, tf.square(near - samples.returns))
        return mean_of(error, samples.valid)

    def divergence(self, samples: Samples, params: tf.Tensor) -> tf.Tensor:
        """Return KL(π_old ‖ π) in each state, ``[B]``."""
        return self.action_adaptor.distribution.kl(samples.params, params)

    def adapt_penalty(self, samples: Samples) -> None:
        """Halve β after an iteration if the policy moved too little; double it if it moved too much (section 4)."""
        d = mean_of(self.divergence(samples, self.said_of(samples.obs)[0]), samples.valid)
        (d,) = mean_over(self.all_reduce, [d])
        factor = tf.where(d < self.penalty_target / 1.5, 0.5, tf.where(d > self.penalty_target * 1.5, 2.0, 1.0))
        self.beta.assign(tf.clip_by_value(self.beta * factor, *PENALTY_BOUNDS))

    def normalized_together(self, arranged: Samples, batches: tf.Tensor) -> tf.Tensor:
        """Return the normalized advantages of each minibatch, ``[minibatches, B]``, where several learners act as one.

        Each learner has a part of a minibatch; mean and deviation cover all parts. They are computed in advance: one
        exchange in an iteration costs less than one in every gradient step.
        """
        if not self.is_recurrent:
            return normalized(tf.gather(arranged.advantage, batches), None, self.all_reduce)

        def rows(x: tf.Tensor) -> tf.Tensor:
            return tf.reshape(tf.transpose(tf.gather(x, batches, axis=1), [1, 0, 2]), [batches.shape[0], -1])

        return normalized(rows(arranged.advantage), rows(arranged.valid), self.all_reduce)

    def improve(self, rollout: Trajectories, now: dict[str, tf.Tensor], batches: tf.Tensor) -> tf.Tensor:
        """Make a whole iteration in one compiled call: advantages, then every minibatch of every epoch.

        Args:
            rollout: fields ``[T, N, …]``.
            now: float32, the clip ranges and the weight of the entropy bonus.
            batches: int32 ``[minibatches, batch_size]`` from `minibatches`.

        Returns:
            The last minibatch's metrics in the order of ``metric_names``.
        """
        samples = self.samples(rollout)
        arranged = self.arranged(samples, rollout.reward.shape[1])
        optimizer = self.optimizers['all']
        together = None
        if self.normalize_advantage and self.all_reduce is not None:
            together = self.normalized_together(arranged, batches)

        def minibatch(i: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            drawn = self.drawn(arranged, batches[i])
            adv = drawn.advantage
            if self.normalize_advantage:
                adv = normalized(adv, drawn.valid) if together is None else together[i]
            with tf.GradientTape() as tape:
                params, value = self.policy_and_value(drawn.obs, training=True)
                policy_loss, kl, clipped = self.policy_loss(
                    params, drawn.action, adv, drawn.log_prob, now['clip_range'], drawn.valid
                )
                value_loss = self.value_loss(value, drawn, now)
                entropy = mean_of(self.entropy(params), drawn.valid)
                loss = policy_loss + self.value_coef * value_loss - now['entropy_coef'] * entropy
                if self.method == 'penalty':
                    kl = mean_of(self.divergence(drawn, params), drawn.valid)
                    loss += self.beta * kl
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
        if self.method == 'penalty':
            self.adapt_penalty(samples)
        return metrics

    def draws(self, valid: np.ndarray, epochs: int, batch_size: int) -> tuple[np.ndarray]:  # type: ignore[override]
        """Draw the minibatches of an iteration, int32 ``[minibatches, batch_size]``."""
        if valid.size < 2:
            raise InvalidValue('an iteration of one transition has no advantages to compare: give a larger horizon.')
        return (self.minibatches(valid, epochs, batch_size),)

    def update(
        self,
        rollout: Trajectories,
        *,
        epochs: Annotated[int, at_least(1), 'passes over the transitions of an iteration'] = 10,
        batch_size: Annotated[
            int,
            at_least(2),
            "transitions in one gradient step, of a recurrent policy in whole sequences; an epoch's last one is filled "
            'up from its first',
        ] = 64,
    ) -> dict[str, float] | None:
        """Make one iteration on a rollout of the current policy, with fields ``[T, N, …]``."""
        if not rollout.valid.any():  # every copy was only reset
            return None
        return self.iterate(rollout, *self.draws(rollout.valid, epochs, batch_size))
