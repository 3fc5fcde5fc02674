"""What the on-policy algorithms have in common: an actor and a critic, and iterations on rollouts of the policy.

A subclass is its paper: it gives ``improve``, which is compiled and does a whole iteration, and ``update``, which hands
it what it needs. Before that rewards are scaled and schedules read; after it the statistics of the observations take in
what was learned from: :meth:`ActorCritic.iterate`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from zoo.algorithms.base import Algorithm
from zoo.common import spaces
from zoo.common.acting.forward import Forward
from zoo.common.acting.stochastic import stochastic
from zoo.common.maths.normalize import RewardScale, RunningMoments
from zoo.common.maths.optimizers import AllReduce, mean_over
from zoo.common.maths.returns import gae, next_values
from zoo.common.networks.heads import stochastic_head, value_head
from zoo.common.networks.network import penalized
from zoo.common.networks.policy import StochasticPolicy
from zoo.common.parameters import (
    Gamma,
    NormalizeObs,
    SdeSampleFreq,
    UseSde,
)
from zoo.common.records import Trajectories
from zoo.common.schedules import Linear, value_at
from zoo.common.tools.compilation import PackedCall
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import above, at_least, between
from zoo.common.training import loops

log = logging.getLogger('zoo')


NormalizeAdvantage = Annotated[bool, 'make the advantages of a gradient step have mean 0 and deviation 1']


class Sequences(NamedTuple):
    """Observations of a recurrent policy: sequences of ``L`` steps, ``C`` of them side by side.

    Attributes:
        obs: flat observations ``[L, C, …]``.
        state: float32 ``[L, C, S]``, the recurrent state after the step before, as it was before the update; that of
            the first step is where the sequence starts.
        begins: bool ``[L, C]``, where an episode begins, and the state is zero.
    """

    obs: Any
    state: tf.Tensor
    begins: tf.Tensor


class Samples(NamedTuple):
    """The transitions of a rollout, one after another, with what is thought of them before the update: ``[T N, …]``.

    Attributes:
        obs, action: of the transition; the observations of a recurrent policy are :class:`Sequences`, one of each copy.
        params: float32 ``[T N, param_size]``, the parameters of the policy that acted.
        log_prob: float32 ``[T N]``, the log-probability of the action by that policy.
        value: float32 ``[T N]``, V(s).
        advantage, returns: float32 ``[T N]``.
        valid: float32 ``[T N]``, 1, or 0 where a copy was only reset and nothing is to be learned.
    """

    obs: Any
    action: Any
    params: tf.Tensor
    log_prob: tf.Tensor
    value: tf.Tensor
    advantage: tf.Tensor
    returns: tf.Tensor
    valid: tf.Tensor | None


class ActorCritic(Algorithm):
    """Policy and value function, learned from rollouts of the policy.

    ``'actor'`` in place of the critic in ``net_list`` puts the critic's head on the actor's torso. A critic that is
    recurrent over the steps of the environment has to be there.
    """

    recurrent = True
    loop = loops.on_policy
    acts_in = ('Discrete', 'MultiDiscrete', 'MultiBinary', 'Box', 'Dict', 'Tuple')
    network_names: ClassVar[tuple[str, ...]] = ('actor', 'critic')
    shared_torso: ClassVar[dict[str, str]] = {'critic': 'actor'}
    default_network = {'hidden': [64, 64], 'activation': 'tanh', 'initializer': 'orthogonal'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 3e-4}
    #: Parameters that may be schedules, whose values ``improve`` is given.
    scheduled: ClassVar[tuple[str, ...]] = ('entropy_coef',)

    gamma: Gamma = 0.99
    gae_lambda: Annotated[float, between(0, 1), 'λ of generalized advantage estimation'] = 0.95
    entropy_coef: Annotated[float | Linear, at_least(0), 'weight of the entropy bonus'] = 0.0
    value_coef: Annotated[float, at_least(0), 'weight of the value loss'] = 0.5
    max_grad_norm: Annotated[float | None, above(0), "bound of the gradient's global norm; None leaves it"] = 0.5
    log_std_init: Annotated[
        float, between(-20, 2), 'initial log standard deviation for Box actions; with use_sde log σ'
    ] = 0.0
    use_sde: UseSde = False
    sde_sample_freq: SdeSampleFreq = None
    normalize_obs: NormalizeObs = False
    normalize_reward: Annotated[
        bool, 'divide rewards by the running standard deviation of the discounted return, and clip them at 10 of it'
    ] = False

    def build(self) -> None:
        """Make policy and critic, their optimizers, the scale of rewards, and the behavior policy."""
        if not self.use_sde:
            self.warn_of_unread(('sde_sample_freq',), ' without use_sde=True')
        heads = {'actor': stochastic_head(self.action_adaptor, gain=0.01), 'critic': value_head(gain=1.0)}
        self.build_networks([heads[name] for name in self.network_names])
        self.policy = StochasticPolicy(self.networks['actor'], self.action_adaptor, self.log_std_init, self.use_sde)
        if 'critic' in self.networks:
            self.critic = self.networks['critic']
            if self.critic.state_size and not self.critic.shares:
                raise InvalidValue(
                    "net_list[1] (critic) is recurrent by itself, but the policy's state is the one that is kept: give "
                    "'actor' there, which puts the critic on the actor's recurrent torso."
                )
        self.is_recurrent = self.policy.network.state_size > 0
        if self.policy.log_std is not None:
            self.state_variables['log_std'] = self.policy.log_std
        self.build_optimizers(self.groups(), clip_norm=self.max_grad_norm)
        self.reward_scale = RewardScale(self.gamma) if self.normalize_reward else None
        forward = Forward(self.policy.network, self.policy)
        self.behavior = stochastic(forward, self.action_adaptor, self.policy.mask_path, self.sde_sample_freq)

    def sequence_steps(self, steps: int) -> int:
        """Return how many steps of one copy in a row a recurrent policy learns from, of so many in an iteration."""
        return steps

    def groups(self) -> list[list[tf.Variable]]:
        """The variables that each of ``optimizer_names`` moves: one moves all."""
        critics = [v for name in self.network_names[1:] for v in self.networks[name].trainable_variables]
        return [self.policy.trainable_variables + critics]

    # What policy and critic say

    def policy_and_value(self, obs: spaces.Flat, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Parameters of the policy ``[B, …]`` and values ``[B]``; a shared torso is run once.

        Of :class:`Sequences`, where the policy is recurrent, ``B`` is ``L C``, time-major.
        """
        if isinstance(obs, Sequences):
            return self._of_sequences(obs, obs.state[0], training)[:2]
        if not self.critic.shares:
            return self.policy(obs, training), self.value(obs, training)
        encoded = self.critic.encode(obs, training=training)
        params = self.policy.complete(self.policy.network.from_torso(encoded), obs, encoded)
        return params, self.critic.from_torso(encoded)[:, 0]

    def _of_sequences(
        self, sequences: Sequences, state: tf.Tensor, training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Parameters and values ``[L C, …]`` of sequences from a state ``[C, S]``, and the states ``[L, C, S]`` after
        each step."""
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
        return params, value, after

    def value(self, obs: spaces.Flat, training: bool = False) -> tf.Tensor:
        """V(s) ``[B]``."""
        return self.critic(obs, training=training)[:, 0]

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        """The policy's entropy in each state, ``[B]``."""
        distribution: Any = self.action_adaptor.distribution  # one that is not squashed has an entropy
        return distribution.entropy(params)

    def advantages(
        self, rollout: Trajectories, value: tf.Tensor, after: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Advantages and the returns that the critic is to learn, both ``[T, N]``, for V(s) ``[T, N]``.

        Args:
            rollout: fields ``[T, N, …]``.
            value: V(s) ``[T, N]``.
            after: where the critic is recurrent, the states ``[T, N, S]`` after each step, in which the next
                observation is seen.
        """
        _, _, reward, _, terminated, truncated, *_ = rollout
        next_value = self._next_values(rollout, value, after)
        return gae(reward, value, next_value, terminated, truncated, self.gamma, self.gae_lambda)

    def _next_values(self, rollout: Trajectories, value: tf.Tensor, after: tf.Tensor | None) -> tf.Tensor:
        """V of the next observations ``[T, N]``; see `advantages`."""
        _, _, _, next_obs, terminated, truncated, *_ = rollout
        if after is None or not self.critic.state_size:
            return next_values(self.value, value, next_obs, terminated, truncated)
        return next_values(
            lambda seen: self.critic.step(*seen)[0][:, 0], value, (next_obs, after), terminated, truncated
        )

    @property
    def values_states(self) -> bool:
        """See :class:`Algorithm`."""
        return 'critic' in self.networks

    def policy_and_value_along(self, steps: Trajectories, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """See :class:`Algorithm`."""
        obs: Any = flattened(steps.obs)
        if self.is_recurrent:
            obs = Sequences(steps.obs, steps.state[None], steps.begins)
        return self.policy_and_value(obs, training)

    def values_of(self, steps: Trajectories) -> tuple[tf.Tensor, tf.Tensor]:
        """See :class:`Algorithm`."""
        after = None
        if self.is_recurrent:
            sequences = Sequences(steps.obs, steps.state[None], steps.begins)
            _, value, after = self._of_sequences(sequences, steps.state)
        else:
            value = self.value(flattened(steps.obs))
        value = tf.reshape(value, steps.reward.shape)
        return value, self._next_values(steps, value, after)

    def seen(self, rollout: Trajectories) -> tuple[Any, tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """What policy and critic say to a rollout, in inference mode, in which the policy acted.

        Returns:
            The observations ``[T N, …]``, or the :class:`Sequences` of each copy where the policy is recurrent; the
            policy's parameters ``[T N, param_size]``; the values ``[T N]``; and of a recurrent policy the states
            ``[T, N, S]`` after each step.
        """
        obs = flattened(rollout.obs)
        if not self.is_recurrent:
            return obs, *self.policy_and_value(obs), None
        sequences = Sequences(rollout.obs, rollout.state[None], rollout.begins)
        params, value, after = self._of_sequences(sequences, rollout.state)
        return sequences._replace(state=tf.concat([rollout.state[None], after[:-1]], 0)), params, value, after

    def samples(self, rollout: Trajectories) -> Samples:
        """The transitions of a rollout with advantages, old log-probabilities and values.

        These are those of inference mode, in which the policy acted; gradient steps are in training mode. With dropout
        or batch normalisation the ratio of new to old probabilities is therefore not 1 at the first of them.
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

    def arranged(self, samples: Samples, copies: int) -> Samples:
        """The samples of a rollout of so many copies, as minibatches of them can be `drawn`.

        Those of a recurrent policy in sequences of `sequence_steps` of one copy, fields ``[L, C, …]``, time-
        major. Those of a copy are ``copies`` apart; its last one is filled up with its first steps, which are not valid
        there: batch normalisation, which sees all of them, learns of nothing that was not seen.
        """
        if not self.is_recurrent:
            return samples
        steps = samples.obs.begins.shape[0]
        length = self.sequence_steps(steps)
        count = -(-steps // length)
        filling = count * length - steps

        def cut(x: tf.Tensor, fill: Callable[[tf.Tensor], tf.Tensor] = tf.identity) -> tf.Tensor:
            tail = x.shape[2:]
            x = tf.concat([x, fill(x[:filling])], 0) if filling else x
            x = tf.transpose(tf.reshape(x, [count, length, copies, *tail]), [1, 0, 2, *range(3, 3 + len(tail))])
            return tf.reshape(x, [length, count * copies, *tail])

        sequences = tf.nest.map_structure(cut, samples.obs)

        def cut_flat(x: tf.Tensor, fill: Callable[[tf.Tensor], tf.Tensor] = tf.identity) -> tf.Tensor:
            return cut(tf.reshape(x, [-1, copies, *x.shape[1:]]), fill)

        rest = tf.nest.map_structure(cut_flat, samples._replace(obs=(), valid=()))
        return rest._replace(obs=sequences, valid=cut_flat(samples.valid, tf.zeros_like))

    def drawn(self, arranged: Samples, rows: tf.Tensor) -> Samples:
        """A minibatch: fields ``[B, …]``, of a recurrent policy those of whole sequences.

        Where all of it is valid, as it is without sequences, its ``valid`` is None.

        Args:
            arranged: what `arranged` gave.
            rows: int32, the numbers of the transitions, or of the sequences.
        """
        if not self.is_recurrent:
            taken = tf.nest.map_structure(lambda x: tf.gather(x, rows), arranged._replace(valid=()))
            return taken._replace(valid=None)
        found = tf.nest.map_structure(lambda x: tf.gather(x, rows, axis=1), arranged)
        return Samples(found.obs, *flattened(tuple(found[1:])))

    # Updates

    def improve(self, rollout: Trajectories, now: dict[str, tf.Tensor], *arrays: Any) -> tf.Tensor:
        """A whole iteration, to be compiled.

        Args:
            rollout: fields ``[T, N, …]``.
            now: float32, the values of the ``scheduled`` parameters that are not None.
            arrays: what ``update`` handed to `iterate`.

        Returns:
            The metrics in the order of ``metric_names``.
        """
        raise NotImplementedError

    @functools.cached_property
    def fused(self) -> PackedCall:
        """The compiled iteration."""

        def iteration(*arguments: Any) -> tf.Tensor:
            return tf.concat([self.improve(*arguments), self.forward.pack()], 0)

        return self.compiled(iteration)

    def update(self, rollout: Trajectories) -> dict[str, float] | None:
        """One iteration on a rollout of the current policy, with fields ``[T, N, …]``."""
        return self.iterate(rollout) if rollout.valid.any() else None  # every copy may only have been reset

    def iterate(self, rollout: Trajectories, *arrays: Any, fresh: Trajectories | None = None) -> dict[str, float]:
        """What is done before an iteration, the compiled one, and what is done after it; the metrics.

        Args:
            rollout: fields ``[T, N, …]``.
            arrays: what `improve` is given besides.
            fresh: what of it has not been learned from before, which statistics take in; None: all of it.
        """
        if self.reward_scale is not None:
            done = rollout.terminated | rollout.truncated
            rollout = rollout._replace(reward=self.reward_scale(rollout.reward, done, rollout.valid))
        for optimizer in self.optimizers.values():
            optimizer.set_progress(self.progress)
        given = {name: getattr(self, name) for name in self.scheduled}
        now = {k: np.array(value_at(x, self.progress), np.float32) for k, x in given.items() if x is not None}
        result = self.fused(rollout, now, *arrays)
        if self.statistics:  # after the update: what was acted on and what was learned from are normalised alike
            fresh = rollout if fresh is None else fresh
            valid = fresh.valid
            self.observe(fresh.obs if valid.all() else spaces.tree_map(lambda x: x[valid], fresh.obs))
        return self.take(result)

    def gradients(
        self, samples: Samples, advantage: tf.Tensor, now: dict[str, tf.Tensor]
    ) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor]]:
        """The gradients of −mean A log π(a | s) + c mean (V(s) − R)² − β mean H(π(· | s)), all samples at once.

        Args:
            samples: of which the valid ones count.
            advantage: A ``[T N]``; R are the samples' returns.
            now: β is the ``entropy_coef``.

        Returns:
            Those of the variables of the optimiser ``'all'``; and the three means, named ``'policy'``, ``'value'`` and
            ``'entropy'``.
        """
        variables = self.optimizers['all'].variables
        with tf.GradientTape() as tape:
            params, value = self.policy_and_value(samples.obs, training=True)
            log_prob = self.action_adaptor.distribution.log_prob(params, samples.action)
            policy_loss = -mean_of(advantage * log_prob, samples.valid)
            value_loss = mean_of(tf.square(value - samples.returns), samples.valid)
            entropy = mean_of(self.entropy(params), samples.valid)
            loss = policy_loss + self.value_coef * value_loss - now['entropy_coef'] * entropy
            loss = penalized(loss, *self.networks.values())
        return tape.gradient(loss, variables), {'policy': policy_loss, 'value': value_loss, 'entropy': entropy}

    def gradient_step(self, samples: Samples, advantage: tf.Tensor, now: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """One step along the `gradients`; their three means."""
        gradients, means = self.gradients(samples, advantage, now)
        self.optimizers['all'].apply(gradients)
        return means

    def minibatches(self, valid: np.ndarray, epochs: int, batch_size: int) -> np.ndarray:
        """Indices into the ``T N`` transitions of which every epoch has each valid one, int32 ``[minibatches, size]``.

        Of a recurrent policy they are those of whole sequences, see `arranged`, as many as have ``batch_size`` steps.

        As many minibatches however many transitions are valid: another number would compile the update anew. So an
        epoch's last one is filled up from its first.
        """
        if self.is_recurrent:
            steps, copies = valid.shape
            length = self.sequence_steps(steps)
            valid = np.ones(-(-steps // length) * copies, bool)
            if batch_size < length and not self.fused.traces:
                log.warning(
                    'batch_size is %d, but a sequence has %d steps: one sequence in each gradient step.',
                    batch_size,
                    length,
                )
            batch_size = max(1, min(batch_size // length, valid.size))
        size = min(batch_size, valid.size)
        if size < batch_size and not self.fused.traces:
            log.warning(
                'batch_size is %d, but an iteration has %d transitions: one minibatch of these.', batch_size, size
            )
        rows = np.flatnonzero(valid)
        found = np.empty((epochs, -(-valid.size // size) * size), np.int32)
        for epoch in found:
            epoch[:] = np.resize(self.rng.permutation(rows), epoch.size)
        return found.reshape(-1, size)

    def moments(self) -> dict[str, RunningMoments]:
        """See :class:`Algorithm`."""
        scale = {} if self.reward_scale is None else {'reward': self.reward_scale.moments}
        return super().moments() | scale

    def episodes_restarted(self, copies: slice | None = None) -> None:
        """The running returns of the reward scale begin anew."""
        if self.reward_scale is not None:
            self.reward_scale.reset(copies)


def flattened(structure: Any) -> Any:
    """``[T N, …]`` from ``[T, N, …]``, each tensor of a structure."""
    return tf.nest.map_structure(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), structure)


def mean_of(x: tf.Tensor, valid: tf.Tensor | None) -> tf.Tensor:
    """The mean of those that are valid, of ``[B]`` and float32 ``[B]``; None: of all."""
    if valid is None:
        return tf.reduce_mean(x)
    return tf.reduce_sum(x * valid) / tf.maximum(tf.reduce_sum(valid), 1.0)


def normalized(advantage: tf.Tensor, valid: tf.Tensor | None, all_reduce: AllReduce | None = None) -> tf.Tensor:
    """Advantages ``[…, B]`` less their mean, divided by their standard deviation, of each row, of what is valid.

    Args:
        advantage: of one learner, one row or several.
        valid: float32 ``[…, B]``; None: all are.
        all_reduce: where several learners are one, over all of theirs, so that rows of equally many are normalised as
            one learner would normalise all of them together.
    """
    if all_reduce is None:
        centered = advantage - mean_of(advantage, valid)
        return centered / (tf.sqrt(mean_of(tf.square(centered), valid)) + 1e-8)
    valid = tf.ones_like(advantage) if valid is None else valid
    total, count = mean_over(all_reduce, [tf.reduce_sum(x, -1, keepdims=True) for x in (advantage * valid, valid)])
    count = tf.maximum(count, 1e-8)
    centered = advantage - total / count
    (squares,) = mean_over(all_reduce, [tf.reduce_sum(tf.square(centered) * valid, -1, keepdims=True)])
    return centered / (tf.sqrt(squares / count) + 1e-8)
