"""What the on-policy algorithms with an actor and a critic share: what both say, advantages, gradients.

A subclass is its paper. Its ``improve`` is compiled and makes a whole iteration; its ``update`` gives ``improve`` what
it needs. :class:`zoo.algorithms.on_policy.OnPolicy` has the rest of an iteration.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple

import tensorflow as tf

from zoo.algorithms.on_policy import OnPolicy, Sequences, flattened
from zoo.common import spaces
from zoo.common.acting.forward import Forward
from zoo.common.acting.stochastic import stochastic
from zoo.common.maths.chunks import in_chunks, mean_in_chunks
from zoo.common.maths.means import mean_of, normalized
from zoo.common.maths.returns import gae, next_values
from zoo.common.networks.heads import Head, stochastic_head, value_head
from zoo.common.networks.network import penalized
from zoo.common.networks.policy import StochasticPolicy
from zoo.common.parameters import SdeSampleFreq, UseSde
from zoo.common.records import Trajectories
from zoo.common.schedules import Linear
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import above, at_least, between

__all__ = ['ActorCritic', 'NormalizeAdvantage', 'Samples', 'Sequences', 'flattened', 'mean_of', 'normalized']

log = logging.getLogger('zoo')


NormalizeAdvantage = Annotated[bool, 'make the advantages of a gradient step have mean 0 and deviation 1']


class Samples(NamedTuple):
    """The transitions of a rollout in one row ``[T N, …]``, with the estimates from before the update.

    Attributes:
        obs, action: of the transition; a recurrent policy has :class:`Sequences` of observations, one for each copy.
        params: float32 ``[T N, param_size]``, the parameters of the policy that acted.
        log_prob: float32 ``[T N]``, the log-probability that this policy gives to the action.
        value: float32 ``[T N]``, V(s).
        advantage, returns: float32 ``[T N]``.
        valid: float32 ``[T N]``, 1, or 0 where a copy was only reset, so that there is nothing to learn.
    """

    obs: Any
    action: Any
    params: tf.Tensor
    log_prob: tf.Tensor
    value: tf.Tensor
    advantage: tf.Tensor
    returns: tf.Tensor
    valid: tf.Tensor | None


class ActorCritic(OnPolicy):
    """Policy and value function, learned from rollouts of the policy.

    ``'actor'`` in place of the critic in ``net_list`` puts the critic's head on the actor's torso. A recurrent
    critic must be there.
    """

    acts_in = ('Discrete', 'MultiDiscrete', 'MultiBinary', 'Box', 'Dict', 'Tuple')
    network_names: ClassVar[tuple[str, ...]] = ('actor', 'critic')
    shared_torso: ClassVar[dict[str, str]] = {'critic': 'actor'}
    default_network = {'hidden': [64, 64], 'activation': 'tanh', 'initializer': 'orthogonal'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 3e-4}
    scheduled: ClassVar[tuple[str, ...]] = ('entropy_coef',)

    gae_lambda: Annotated[float, between(0, 1), 'λ of generalized advantage estimation'] = 0.95
    entropy_coef: Annotated[float | Linear, at_least(0), 'weight of the entropy bonus'] = 0.0
    value_coef: Annotated[float, at_least(0), 'weight of the value loss'] = 0.5
    max_grad_norm: Annotated[float | None, above(0), "bound of the gradient's global norm; None leaves it"] = 0.5
    log_std_init: Annotated[
        float, between(-20, 2), 'initial log standard deviation for Box actions; with use_sde log σ'
    ] = 0.0
    use_sde: UseSde = False
    sde_sample_freq: SdeSampleFreq = None

    def build(self) -> None:
        """Make policy and critic, their optimizers, the scale of rewards, and the behavior policy."""
        if not self.use_sde:
            self.warn_of_unread(('sde_sample_freq',), ' without use_sde=True')
        if not any(part.kind == 'gaussian' for part in self.action_adaptor.parts):
            self.warn_of_unread(('log_std_init',), ', since no action is a Box')
        heads = self.heads()
        self.build_networks([heads[name] for name in self.network_names])
        self.policy = StochasticPolicy(self.networks['actor'], self.action_adaptor, self.log_std_init, self.use_sde)
        if 'critic' in self.networks:
            self.critic = self.networks['critic']
            if self.critic.state_size and not self.critic.shares:
                raise InvalidValue(
                    "net_list[1] (critic) is recurrent by itself, but the policy's state is the one that is kept: give "
                    "'actor' there, which puts the critic on the actor's recurrent torso."
                )
        self.prepare_iterations(self.policy.network)
        if self.policy.log_std is not None:
            self.state_variables['log_std'] = self.policy.log_std
        self.build_optimizers(self.groups(), clip_norm=self.max_grad_norm)
        if all(isinstance(entry, dict) and 'clip_norm' in entry for entry in self.optimizers_list or ()):
            self.warn_of_unread(('max_grad_norm',), ', since the optimizer has a clip_norm of its own')
        forward = Forward(self.policy.network, self.policy)
        self.behavior = stochastic(forward, self.action_adaptor, self.policy.mask_path, self.sde_sample_freq)

    def heads(self) -> dict[str, Head]:
        """Return what each network has to give, by name."""
        return {'actor': stochastic_head(self.action_adaptor, gain=0.01), 'critic': value_head(gain=1.0)}

    def groups(self) -> list[list[tf.Variable]]:
        """Return the variables that each of ``optimizer_names`` moves: one optimizer moves policy and critic."""
        critic = self.networks['critic'].trainable_variables if 'critic' in self.networks else []
        return [self.policy.trainable_variables + critic]

    # What policy and critic say

    def outputs(self, obs: spaces.Flat, training: bool = False) -> tuple[tf.Tensor, ...]:
        return self.policy_and_value(obs, training)

    def policy_and_value(self, obs: spaces.Flat, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Return parameters of the policy ``[B, …]`` and values ``[B]``; a shared torso runs once.

        A recurrent policy is given :class:`Sequences`; ``B`` is then ``L C``, time-major.
        """
        if isinstance(obs, Sequences):
            return self.outputs_along(obs, obs.state[0], training)[0]
        if not self.critic.shares:
            return self.policy(obs, training), self.value(obs, training)
        encoded = self.critic.encode(obs, training=training)
        params = self.policy.complete(self.policy.network.from_torso(encoded), obs, encoded)
        return params, self.critic.from_torso(encoded)[:, 0]

    def outputs_along(
        self, sequences: Sequences, state: tf.Tensor, training: bool = False
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
        network = self.policy.network
        encoded, after = network.encode_sequence(sequences.obs, state, sequences.begins, training)
        rows = flattened(sequences.obs)
        params = self.policy.complete(network.from_torso(encoded), rows)
        if 'critic' not in self.networks:
            value = tf.zeros_like(params[:, 0])
        elif self.critic.shares:
            value = self.critic.from_torso(encoded)[:, 0]
        else:
            value = self.value(rows, training)
        return (params, value), after

    def value(self, obs: spaces.Flat, training: bool = False) -> tf.Tensor:
        """Return V(s) ``[B]``."""
        return self.critic(obs, training=training)[:, 0]

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        """Return the policy's entropy in each state, ``[B]``."""
        distribution: Any = self.action_adaptor.distribution  # a distribution that is not squashed has an entropy
        return distribution.entropy(params)

    def advantages(
        self, rollout: Trajectories, value: tf.Tensor, after: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return advantages, and the returns that the critic learns, both ``[T, N]``.

        Args:
            rollout: fields ``[T, N, …]``.
            value: V(s) ``[T, N]``.
            after: of a recurrent critic: the states ``[T, N, S]`` after each step, with which it sees the next
                observation.
        """
        _, _, reward, _, terminated, truncated, *_ = rollout
        next_value = self._next_values(rollout, value, after)
        return gae(reward, value, next_value, terminated, truncated, self.gamma, self.gae_lambda)

    def _next_values(self, rollout: Trajectories, value: tf.Tensor, after: tf.Tensor | None) -> tf.Tensor:
        """Return V of the next observations ``[T, N]``; `advantages` has the same arguments."""
        _, _, _, next_obs, terminated, truncated, *_ = rollout
        if after is None or not self.critic.state_size:
            return next_values(self.value, value, next_obs, terminated, truncated)
        return next_values(
            lambda seen: self.critic.step(*seen)[0][:, 0], value, (next_obs, after), terminated, truncated
        )

    @property
    def values_states(self) -> bool:
        return 'critic' in self.networks

    def policy_and_value_along(self, steps: Trajectories, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        obs: Any = flattened(steps.obs)
        if self.is_recurrent:
            obs = Sequences(steps.obs, steps.state[None], steps.begins)
        return self.policy_and_value(obs, training)

    def values_of(self, steps: Trajectories) -> tuple[tf.Tensor, tf.Tensor]:
        after = None
        if self.is_recurrent:
            sequences = Sequences(steps.obs, steps.state[None], steps.begins)
            _, value, after = self.said_of(sequences)
        else:
            value, _ = in_chunks(lambda obs, _: (self.value(obs), ()), flattened(steps.obs), self.rows_at_once)
        value = tf.reshape(value, steps.reward.shape)
        return value, self._next_values(steps, value, after)

    def samples(self, rollout: Trajectories) -> Samples:
        """Return the transitions of a rollout with advantages, old log-probabilities and values.

        They are computed in inference mode, in which the policy acted; gradient steps are in training mode. So with
        dropout or batch normalization the ratio of new to old probabilities is not 1 even in the first step.
        """
        action = flattened(rollout.action)
        obs, params, value, after = self.seen(rollout)
        advantage, returns = self.advantages(rollout, tf.reshape(value, rollout.reward.shape), after)
        return Samples(
            obs,
            action,
            params,
            self.action_adaptor.distribution.log_prob(params, action),
            value,
            flattened(advantage),
            flattened(returns),
            tf.cast(flattened(rollout.valid), tf.float32),
        )

    def gradients(
        self, samples: Samples, advantage: tf.Tensor, now: dict[str, tf.Tensor]
    ) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor]]:
        """Return the gradients of −mean A log π(a | s) + c mean (V(s) − R)² − β mean H(π(· | s)) over all samples.

        Args:
            samples: the valid ones count.
            advantage: A ``[T N]``; R are the samples' returns.
            now: β is the ``entropy_coef``.

        Returns:
            The gradients for the optimizer ``'all'``; and the three means ``'policy'``, ``'value'`` and ``'entropy'``.
        """
        variables = self.optimizers['all'].variables

        def found(samples: Samples, advantage: tf.Tensor, valid: tf.Tensor | None) -> list[tf.Tensor | None]:
            with tf.GradientTape() as tape:
                params, value = self.policy_and_value(samples.obs, training=True)
                log_prob = self.action_adaptor.distribution.log_prob(params, samples.action)
                policy_loss = -mean_of(advantage * log_prob, valid)
                value_loss = mean_of(tf.square(value - samples.returns), valid)
                entropy = mean_of(self.entropy(params), valid)
                loss = policy_loss + self.value_coef * value_loss - now['entropy_coef'] * entropy
                loss = penalized(loss, *self.networks.values())
            return [policy_loss, value_loss, entropy, *tape.gradient(loss, variables)]

        policy_loss, value_loss, entropy, *gradients = self.over_samples(found, samples, advantage)
        return gradients, {'policy': policy_loss, 'value': value_loss, 'entropy': entropy}

    def over_samples(
        self, function: Callable[..., Any], samples: Samples, advantage: tf.Tensor | None = None
    ) -> list[tf.Tensor | None]:
        """Return ``function(samples, advantage, valid)``, means over all samples; in chunks unless it `needs_all`."""
        given = (samples._replace(valid=()), () if advantage is None else advantage)
        most = samples.value.shape[0] if self.needs_all else self.rows_at_once
        return mean_in_chunks(function, given, samples.valid, most)

    def gradient_step(self, samples: Samples, advantage: tf.Tensor, now: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Make one step along the `gradients`; return the three means."""
        gradients, means = self.gradients(samples, advantage, now)
        self.optimizers['all'].apply(gradients)
        return means
