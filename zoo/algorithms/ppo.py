"""PPO: proximal policy optimisation with the clipped objective.

Schulman et al. 2017, *Proximal Policy Optimization Algorithms* (arXiv 1707.06347): equations 7 and 9, with generalised
advantage estimation (Schulman et al. 2016, arXiv 1506.02438).

Departures, those of OpenAI Baselines and most since: advantages are normalised in each minibatch, gradients are clipped
by their norm. The policy's network and the value's are apart, but images are encoded once for both.
"""

from __future__ import annotations

import functools
import logging
from typing import Annotated, Any

import numpy as np
import tensorflow as tf

from zoo.algorithms.base import Algorithm
from zoo.common import loops, spaces
from zoo.common.acting import Forward, Stochastic
from zoo.common.adaptors.policy import StochasticPolicy, penalized, stochastic_head, value_head
from zoo.common.compilation import PackedCall
from zoo.common.normalize import RewardScale, RunningMoments
from zoo.common.optim import mean_over
from zoo.common.params import (
    ActionSpace,
    Gamma,
    NetList,
    NormalizeObs,
    ObservationSpace,
    OptimizersList,
    above,
    at_least,
    between,
)
from zoo.common.returns import gae, next_values
from zoo.common.schedules import Linear, value_at
from zoo.common.types import Rollout

log = logging.getLogger('zoo')


class PPO(Algorithm):
    """Proximal policy optimisation for every action space.

    ``'actor'`` in place of the critic in ``net_list`` puts the critic's head on the actor's torso.
    """

    loop = loops.on_policy
    acts_in = ('Discrete', 'MultiDiscrete', 'MultiBinary', 'Box', 'Dict', 'Tuple')
    network_names = ('actor', 'critic')
    shared_torso = {'critic': 'actor'}
    optimizer_names = ('all',)
    metric_names = ('policy', 'value', 'entropy', 'kl', 'clip_fraction')

    def __init__(
        self,
        observation_space: ObservationSpace,
        action_space: ActionSpace,
        net_list: NetList = None,
        optimizers_list: OptimizersList = None,
        gamma: Gamma = 0.99,
        gae_lambda: Annotated[float, between(0, 1), 'λ of generalised advantage estimation'] = 0.95,
        clip_range: Annotated[float | Linear, at_least(0), 'ε of the clipped objective'] = 0.2,
        entropy_coef: Annotated[float, at_least(0), 'weight of the entropy bonus'] = 0.0,
        value_coef: Annotated[float, at_least(0), 'weight of the value loss'] = 0.5,
        max_grad_norm: Annotated[float | None, above(0), "bound of the gradient's global norm; None leaves it"] = 0.5,
        target_kl: Annotated[
            float | None, above(0), 'mean divergence from the old policy that ends the epochs; None: nothing does'
        ] = None,
        log_std_init: Annotated[float, between(-20, 2), 'initial log standard deviation for Box actions'] = 0.0,
        normalize_obs: NormalizeObs = False,
        normalize_reward: Annotated[
            bool, 'divide rewards by the running standard deviation of the discounted return'
        ] = False,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_obs)
        self.gamma = gamma
        self.gae_lambda = gae_lambda
        self.clip_range = clip_range
        self.entropy_coef = entropy_coef
        self.value_coef = value_coef
        self.max_grad_norm = max_grad_norm
        self.target_kl = target_kl
        self.log_std_init = log_std_init
        self.normalize_reward = normalize_reward

        heads = [stochastic_head(self.action_adaptor, gain=0.01), value_head(gain=1.0)]
        default: dict[str, Any] = {'hidden': [64, 64], 'activation': 'tanh', 'initializer': 'orthogonal'}
        self.build_networks(net_list, heads, default)
        self.policy = StochasticPolicy(self.networks['actor'], self.action_adaptor, log_std_init)
        self.critic = self.networks['critic']
        if self.policy.log_std is not None:
            self.state_variables['log_std'] = self.policy.log_std
        variables = self.policy.trainable_variables + self.critic.trainable_variables
        default = {'name': 'Adam', 'learning_rate': 3e-4}
        self.build_optimizers(optimizers_list, [variables], default, clip_norm=max_grad_norm)
        self.reward_scale = RewardScale(gamma) if normalize_reward else None
        forward = Forward(self.policy.network, self.policy)
        self.behavior = Stochastic(forward, self.action_adaptor, self.policy.mask_path)

    @functools.cached_property
    def fused(self) -> PackedCall:
        return self.compiled(self.improve)

    def evaluate(self, obs: spaces.Flat, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Parameters of the policy ``[B, …]`` and values ``[B]``; a shared torso is run once."""
        if not self.critic.shares:
            return self.policy(obs, training), self.critic(obs, training=training)[:, 0]
        encoded = self.critic.encode(obs, training=training)
        params = self.policy.complete(self.policy.network.from_torso(encoded), obs)
        return params, self.critic.from_torso(encoded)[:, 0]

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

    def improve(self, rollout: Rollout, batches: tf.Tensor, clip: tf.Tensor) -> tf.Tensor:
        """The whole of an iteration in one compiled call: advantages, then every minibatch of every epoch.

        Old log-probabilities and values are those of inference mode, in which the policy acted; the minibatches are
        in training mode. With dropout or batch normalisation the ratio is therefore not 1 at the first of them.

        Args:
            rollout: fields ``[T, N, …]``.
            batches: int32 ``[minibatches, batch_size]``, indices into the ``T N`` transitions.
            clip: ε, float32.

        Returns:
            The last minibatch's metrics in the order of ``metric_names``, then the weights for acting.
        """
        count = int(np.prod(rollout.reward.shape))
        obs, action = tf.nest.map_structure(
            lambda x: tf.reshape(x, [count, *x.shape[2:]]), (rollout.obs, rollout.action)
        )
        params, value = self.evaluate(obs)
        old_log_prob = self.action_adaptor.distribution.log_prob(params, action)
        value = tf.reshape(value, rollout.reward.shape)
        next_value = next_values(
            lambda obs: self.critic(obs)[:, 0], value, rollout.next_obs, rollout.terminated, rollout.truncated
        )
        advantage, returns = gae(
            rollout.reward, value, next_value, rollout.terminated, rollout.truncated, self.gamma, self.gae_lambda
        )
        data = (obs, action, tf.reshape(advantage, [-1]), tf.reshape(returns, [-1]), old_log_prob)
        optimizer = self.optimizers['all']

        def minibatch(i: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            rows = batches[i]
            obs, action, adv, target, old = tf.nest.map_structure(lambda x: tf.gather(x, rows), data)
            adv = (adv - tf.reduce_mean(adv)) / (tf.math.reduce_std(adv) + 1e-8)
            with tf.GradientTape() as tape:
                params, value = self.evaluate(obs, training=True)
                policy_loss, kl, clipped = self.policy_loss(params, action, adv, old, clip)
                value_loss = tf.reduce_mean(tf.square(value - target))
                distribution: Any = self.action_adaptor.distribution  # one that is not squashed has an entropy
                entropy = tf.reduce_mean(distribution.entropy(params))
                loss = policy_loss + self.value_coef * value_loss - self.entropy_coef * entropy
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
        return tf.concat([metrics, self.forward.pack()], 0)

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
        if self.reward_scale is not None:
            done = rollout.terminated | rollout.truncated
            rollout = rollout._replace(reward=self.reward_scale(rollout.reward, done, rollout.valid))
        optimizer = self.optimizers['all']
        optimizer.set_progress(self.progress)
        clip = np.array(value_at(self.clip_range, self.progress), np.float32)
        result = self.fused(rollout, batches.reshape(-1, size), clip)
        if self.statistics:  # after the update: what was acted on and what was learned from are normalised alike
            all_valid = valid.size == rollout.valid.size
            self.observe(rollout.obs if all_valid else spaces.tree_map(lambda x: x[rollout.valid], rollout.obs))
        return self.take(result)

    def moments(self) -> dict[str, RunningMoments]:
        scale = {} if self.reward_scale is None else {'reward': self.reward_scale.moments}
        return super().moments() | scale

    def episodes_restarted(self, copies: slice | None = None) -> None:
        """The running returns of the reward scale begin anew."""
        if self.reward_scale is not None:
            self.reward_scale.reset(copies)
