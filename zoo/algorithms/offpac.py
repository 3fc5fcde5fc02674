"""OffPAC: off-policy actor-critic.

Degris, White and Sutton 2012, *Off-Policy Actor-Critic* (arXiv 1205.4839): policy and value are learned from actions of
another policy b, each weighted by ρ = π(a | s) / b(a | s) (equations 5 to 7 and algorithm 1, λ = 0). The actions of b
can be actions of earlier policies in the replay buffer, random actions that ``explore`` mixes in (with ``explore=1``
all of them are), and episodes that others recorded, ``learn(env, recorded=…)``.

Departures:

* The probabilities of b are not asked for; recorded episodes do not have them. A third network, ``'behavior'``, learns
  them by maximum likelihood from the replay buffer (Hanna, Niekum and Stone 2019, *Importance Sampling Policy
  Evaluation with an Estimated Behavior Policy*, arXiv 1806.01347, who find such weights better than true ones).
* ρ is cut off at ``rho_bar``, as in V-trace of one step (Espeholt et al. 2018, arXiv 1802.01561, equation 1).
* The critic is a network that learns by ρ δ, with a target that follows it slowly, in place of GTD(λ) with linear
  features. There are no eligibility traces, since draws from a replay buffer have no order.
* Adam, minibatches, and an entropy bonus as an option.

The actor's learning rate has to be below the critic's, or to fall, as in the default parameters. A policy that moves as
fast as the critic to the end seeks out what the critic overrates, and values become too high.
"""

from __future__ import annotations

from typing import Annotated, Any

import tensorflow as tf

from zoo.algorithms.base import Algorithm
from zoo.common.acting.forward import Forward
from zoo.common.acting.stochastic import SometimesRandom
from zoo.common.maths.optimizers import polyak
from zoo.common.networks.heads import stochastic_head, value_head
from zoo.common.networks.network import penalized
from zoo.common.networks.policy import StochasticPolicy
from zoo.common.parameters import Gamma, NormalizeObs, Tau
from zoo.common.records import Batch
from zoo.common.sampling import Sampling
from zoo.common.schedules import Linear
from zoo.common.tools.params import above, at_least, between
from zoo.common.training import loops


class OffPAC(Algorithm):
    """Off-policy actor-critic for every action space: learns from the actions of other policies."""

    loop = loops.off_policy
    acts_in = ('Discrete', 'MultiDiscrete', 'MultiBinary', 'Box', 'Dict', 'Tuple')
    network_names = ('actor', 'critic', 'behavior')
    optimizer_names = ('actor', 'critic', 'behavior')
    metric_names = ('actor', 'critic', 'behavior', 'entropy', 'rho', 'value')

    default_network = {'hidden': [64, 64], 'activation': 'tanh', 'initializer': 'orthogonal'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 3e-4}

    gamma: Gamma = 0.99
    tau: Tau = 0.005
    rho_bar: Annotated[float, above(0), 'bound of the importance weights'] = 1.0
    explore: Annotated[
        float | Linear, between(0, 1), "probability of a uniformly random action in place of the policy's"
    ] = 0.1
    entropy_coef: Annotated[float, at_least(0), 'weight of the entropy bonus'] = 0.01
    log_std_init: Annotated[float, between(-20, 2), 'initial log standard deviation for Box actions'] = 0.0
    normalize_obs: NormalizeObs = False

    def build(self) -> None:
        """Make the policy, its critic and target, the estimate of the behavior policy, and their optimizers."""
        if not any(part.kind == 'gaussian' for part in self.action_adaptor.parts):
            self.warn_of_unread(('log_std_init',), ', since no action is a Box')
        policy_head = stochastic_head(self.action_adaptor, gain=0.01)
        self.build_networks([policy_head, value_head(gain=1.0), policy_head])
        self.policy = StochasticPolicy(self.networks['actor'], self.action_adaptor, self.log_std_init)
        self.critic = self.networks['critic']
        self.estimate = StochasticPolicy(self.networks['behavior'], self.action_adaptor, self.log_std_init)
        for name, policy in (('log_std', self.policy), ('behavior_log_std', self.estimate)):
            if policy.log_std is not None:
                self.state_variables[name] = policy.log_std
        self.target = self.build_target('critic')
        self.build_optimizers([x.trainable_variables for x in (self.policy, self.critic, self.estimate)])
        forward = Forward(self.policy.network, self.policy)
        self.behavior = SometimesRandom(forward, self.action_adaptor, self.policy.mask_path, self.explore)

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.gamma)

    def log_prob(self, policy: StochasticPolicy, batch: Batch, training: bool = False) -> tf.Tensor:
        """Return the log-probability that a policy gives to the actions that were taken, ``[B]``."""
        return self.action_adaptor.distribution.log_prob(policy(batch.obs, training), batch.action)

    def rho(self, batch: Batch) -> tf.Tensor:
        """Return ρ = min(ρ̄, π(a | s) / b(a | s)), ``[B]``: equation 6, cut off."""
        ratio = tf.exp(self.log_prob(self.policy, batch) - self.log_prob(self.estimate, batch))
        return tf.minimum(ratio, self.rho_bar)

    def critic_target(self, batch: Batch) -> tf.Tensor:
        """Return r + γ (1 − terminated) V′(s′), ``[B]``."""
        return batch.reward + batch.discount * self.target(batch.next_obs)[:, 0]

    def critic_loss(self, batch: Batch, rho: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Return ½ mean ρ (V(s) − target)². Its gradient is −mean ρ δ ∇V: the critic of algorithm 1 without GTD."""
        error = self.critic(batch.obs, training=True)[:, 0] - target
        return penalized(0.5 * tf.reduce_mean(rho * tf.square(error)), self.critic)

    def actor_loss(self, batch: Batch, advantage: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return −mean ρ δ log π(a | s) minus the entropy bonus, equation 5 and algorithm 1; and the mean entropy.

        Args:
            batch: fields ``[B, …]``.
            advantage: ρ δ ``[B]``.
        """
        distribution: Any = self.action_adaptor.distribution  # a distribution that is not squashed has an entropy
        params = self.policy(batch.obs, training=True)
        entropy = tf.reduce_mean(distribution.entropy(params))
        loss = -tf.reduce_mean(advantage * distribution.log_prob(params, batch.action))
        return penalized(loss - self.entropy_coef * entropy, self.policy.network), entropy

    def behavior_loss(self, batch: Batch) -> tf.Tensor:
        """Return −mean log b(a | s): maximum likelihood."""
        return penalized(-tf.reduce_mean(self.log_prob(self.estimate, batch, training=True)), self.estimate.network)

    def update(self, batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make a gradient step of each network on a batch with fields ``[B, …]``, and move the target."""
        rho, target = self.rho(batch), self.critic_target(batch)
        advantage = rho * (target - self.critic(batch.obs)[:, 0])
        entropy: list[tf.Tensor] = []

        def actor_loss() -> tf.Tensor:
            loss, found = self.actor_loss(batch, advantage)
            entropy.append(found)
            return loss

        critic_loss = self.optimizers['critic'].minimize(lambda: self.critic_loss(batch, rho, target))
        policy_loss = self.optimizers['actor'].minimize(actor_loss)
        behavior_loss = self.optimizers['behavior'].minimize(lambda: self.behavior_loss(batch))
        polyak(self.target.variables, self.critic.variables, self.tau)
        return {
            'actor': policy_loss,
            'critic': critic_loss,
            'behavior': behavior_loss,
            'entropy': entropy[0],
            'rho': tf.reduce_mean(rho),
            'value': tf.reduce_mean(target),
        }
