"""What the on-policy algorithms share: an actor and a critic, and iterations on rollouts of the policy.

A subclass is its paper. Its ``improve`` is compiled and makes a whole iteration; its ``update`` gives ``improve`` what
it needs. Before an iteration :meth:`ActorCritic.iterate` scales rewards and reads schedules; afterwards the statistics
of the observations take in the rollout.
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
from zoo.common.maths.chunks import in_chunks, mean_in_chunks, rows_at_once
from zoo.common.maths.means import mean_of, normalized
from zoo.common.maths.normalize import RewardScale, RunningMoments
from zoo.common.maths.returns import gae, next_values
from zoo.common.networks.heads import Head, stochastic_head, value_head
from zoo.common.networks.network import penalized
from zoo.common.networks.policy import StochasticPolicy
from zoo.common.parameters import Gamma, NormalizeObs, SdeSampleFreq, UseSde
from zoo.common.records import Trajectories
from zoo.common.schedules import Linear, value_at
from zoo.common.tools.compilation import PackedCall
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import above, at_least, between
from zoo.common.training import loops

__all__ = ['ActorCritic', 'NormalizeAdvantage', 'Samples', 'Sequences', 'flattened', 'mean_of', 'normalized']

log = logging.getLogger('zoo')


NormalizeAdvantage = Annotated[bool, 'make the advantages of a gradient step have mean 0 and deviation 1']


class Sequences(NamedTuple):
    """Observations of a recurrent policy: ``C`` sequences of ``L`` steps side by side.

    Attributes:
        obs: flat observations ``[L, C, …]``.
        state: float32 ``[L, C, S]``, the recurrent state before each step, as it was before the update. A sequence
            starts from the state of its first step.
        begins: bool ``[L, C]``, where an episode begins, and the state is zero.
    """

    obs: Any
    state: tf.Tensor
    begins: tf.Tensor


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


class ActorCritic(Algorithm):
    """Policy and value function, learned from rollouts of the policy.

    ``'actor'`` in place of the critic in ``net_list`` puts the critic's head on the actor's torso. A recurrent
    critic must be there.
    """

    recurrent = True
    loop = loops.on_policy
    acts_in = ('Discrete', 'MultiDiscrete', 'MultiBinary', 'Box', 'Dict', 'Tuple')
    network_names: ClassVar[tuple[str, ...]] = ('actor', 'critic')
    shared_torso: ClassVar[dict[str, str]] = {'critic': 'actor'}
    default_network = {'hidden': [64, 64], 'activation': 'tanh', 'initializer': 'orthogonal'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 3e-4}
    #: Parameters that may be schedules; ``improve`` is given their current values.
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
        self.is_recurrent = self.policy.network.state_size > 0
        self.rows_at_once = rows_at_once(sum(item.size for item in self.preprocess.features))
        if self.policy.log_std is not None:
            self.state_variables['log_std'] = self.policy.log_std
        self.build_optimizers(self.groups(), clip_norm=self.max_grad_norm)
        if all(isinstance(entry, dict) and 'clip_norm' in entry for entry in self.optimizers_list or ()):
            self.warn_of_unread(('max_grad_norm',), ', since the optimizer has a clip_norm of its own')
        self.reward_scale = RewardScale(self.gamma) if self.normalize_reward else None
        forward = Forward(self.policy.network, self.policy)
        self.behavior = stochastic(forward, self.action_adaptor, self.policy.mask_path, self.sde_sample_freq)

    def sequence_steps(self, steps: int) -> int:
        """Return how many of the ``steps`` of an iteration a recurrent policy learns from in a row."""
        return steps

    def heads(self) -> dict[str, Head]:
        """Return what each network has to give, by name."""
        return {'actor': stochastic_head(self.action_adaptor, gain=0.01), 'critic': value_head(gain=1.0)}

    def groups(self) -> list[list[tf.Variable]]:
        """Return the variables that each of ``optimizer_names`` moves: one optimizer moves policy and critic."""
        critic = self.networks['critic'].trainable_variables if 'critic' in self.networks else []
        return [self.policy.trainable_variables + critic]

    # What policy and critic say

    def policy_and_value(self, obs: spaces.Flat, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Return parameters of the policy ``[B, …]`` and values ``[B]``; a shared torso runs once.

        A recurrent policy is given :class:`Sequences`; ``B`` is then ``L C``, time-major.
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
        """Return parameters and values ``[L C, …]`` of sequences that start from a state ``[C, S]``, and the states
        ``[L, C, S]`` after each step."""
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

    def seen(self, rollout: Trajectories) -> tuple[Any, tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Return the outputs of policy and critic for a rollout, in inference mode, in which the policy acted.

        Returns:
            The observations ``[T N, …]``, or :class:`Sequences` for a recurrent policy; the policy's parameters
            ``[T N, param_size]``; the values ``[T N]``; the states ``[T, N, S]`` after each step of a recurrent
            policy, else None.
        """
        obs = flattened(rollout.obs)
        if not self.is_recurrent:
            return obs, *self.said_of(obs)
        sequences = Sequences(rollout.obs, rollout.state[None], rollout.begins)
        params, value, after = self.said_of(sequences)
        assert after is not None
        return sequences._replace(state=tf.concat([rollout.state[None], after[:-1]], 0)), params, value, after

    def said_of(self, obs: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Return `policy_and_value` of many observations in inference mode, a chunk at a time.

        A recurrent policy is given :class:`Sequences`; then the states ``[L, C, S]`` after each step come third.
        """
        if not isinstance(obs, Sequences):
            (params, value), _ = in_chunks(lambda x, _: (self.policy_and_value(x), ()), obs, self.rows_at_once)
            return params, value, None
        copies = obs.begins.shape[1]

        def steps(part: Any, state: tf.Tensor) -> tuple[Any, tf.Tensor]:
            seen, begins = part
            params, value, after = self._of_sequences(Sequences(seen, state[None], begins), state)
            rows = [tf.reshape(x, [begins.shape[0], copies, *x.shape[1:]]) for x in (params, value)]
            return (*rows, after), after[-1]

        found, _ = in_chunks(steps, (obs.obs, obs.begins), max(1, self.rows_at_once // copies), obs.state[0])
        params, value, after = found
        return *flattened((params, value)), after

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

    def arranged(self, samples: Samples, copies: int) -> Samples:
        """Return the samples of a rollout of so many copies in the form from which minibatches are `drawn`.

        A recurrent policy gets sequences of `sequence_steps` of one copy, fields ``[L, C, …]``, time-major. The
        sequences of a copy are ``copies`` apart. The last one is filled up with the first steps of the copy, which are
        not valid there; so batch normalization sees nothing but steps of the rollout. Observations are not copied: they
        stay ``[T N, …]``, beside their numbers, int32 ``[L, C]``, by which `drawn` finds them.
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

        numbers = tf.reshape(tf.range(steps * copies), [steps, copies])
        sequences = tf.nest.map_structure(cut, samples.obs._replace(obs=numbers))
        sequences = sequences._replace(obs=(flattened(samples.obs.obs), sequences.obs))

        def cut_flat(x: tf.Tensor, fill: Callable[[tf.Tensor], tf.Tensor] = tf.identity) -> tf.Tensor:
            return cut(tf.reshape(x, [-1, copies, *x.shape[1:]]), fill)

        rest = tf.nest.map_structure(cut_flat, samples._replace(obs=(), valid=()))
        return rest._replace(obs=sequences, valid=cut_flat(samples.valid, tf.zeros_like))

    def drawn(self, arranged: Samples, rows: tf.Tensor) -> Samples:
        """Return a minibatch, fields ``[B, …]``; a recurrent policy gets whole sequences.

        ``valid`` is None where everything is valid, as without sequences.

        Args:
            arranged: a result of `arranged`.
            rows: int32, the numbers of the transitions or sequences.
        """
        if not self.is_recurrent:
            taken = tf.nest.map_structure(lambda x: tf.gather(x, rows), arranged._replace(valid=()))
            return taken._replace(valid=None)
        whole, numbers = arranged.obs.obs
        arranged = arranged._replace(obs=arranged.obs._replace(obs=numbers))
        found = tf.nest.map_structure(lambda x: tf.gather(x, rows, axis=1), arranged)
        obs = tf.nest.map_structure(lambda x: tf.gather(x, found.obs.obs), whole)
        return Samples(found.obs._replace(obs=obs), *flattened(tuple(found[1:])))

    # Updates

    def improve(self, rollout: Trajectories, now: dict[str, tf.Tensor], *arrays: Any) -> tf.Tensor:
        """Make a whole iteration, inside the compiled call.

        Args:
            rollout: fields ``[T, N, …]``.
            now: float32, the values of the ``scheduled`` parameters that are not None.
            arrays: further arguments of `iterate`.

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
        """Make one iteration on a rollout of the current policy, with fields ``[T, N, …]``."""
        return self.iterate(rollout) if rollout.valid.any() else None  # every copy may only have been reset

    def iterate(self, rollout: Trajectories, *arrays: Any, fresh: Trajectories | None = None) -> dict[str, float]:
        """Prepare an iteration, make it in one compiled call, and take the rollout into the statistics; return metrics.

        Args:
            rollout: fields ``[T, N, …]``.
            arrays: further arguments of `improve`.
            fresh: the part that nothing was learned from before, for the statistics; None: all of it.
        """
        if self.reward_scale is not None:
            done = rollout.terminated | rollout.truncated
            rollout = rollout._replace(reward=self.reward_scale(rollout.reward, done, rollout.valid))
        for optimizer in self.optimizers.values():
            optimizer.set_progress(self.progress)
        given = {name: getattr(self, name) for name in self.scheduled}
        now = {k: np.array(value_at(x, self.progress), np.float32) for k, x in given.items() if x is not None}
        if not self.fused.traces:
            self.announce(*self.largest_pass(rollout.valid.shape, *arrays))
        result = self.fused(rollout, now, *arrays)
        if self.statistics:  # after the update: what was acted on and what was learned from are normalized alike
            fresh = rollout if fresh is None else fresh
            valid = fresh.valid
            self.observe(fresh.obs if valid.all() else spaces.tree_map(lambda x: x[valid], fresh.obs))
        return self.take(result)

    def largest_pass(self, shape: tuple[int, ...], *arrays: Any) -> tuple[int, int, int]:
        """Return what :meth:`announce` takes, for a rollout of shape ``[T, N]`` and the further arguments of `iterate`.

        A step of the optimizer takes a pass forward and one backward.
        """
        rows = int(np.prod(shape))
        some = min(rows, self.rows_at_once)
        if not arrays:
            return rows if self.needs_all else some, 2, some
        batch = arrays[0].shape[-1] * (self.sequence_steps(shape[0]) if self.is_recurrent else 1)
        return batch, 2, some

    @property
    def needs_all(self) -> bool:
        """Whether a gradient needs all samples at once: sequences, and networks that learn moments of batches."""
        return self.is_recurrent or any(network.moving_variables for network in self.networks.values())

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

    def minibatches(self, valid: np.ndarray, epochs: int, batch_size: int) -> np.ndarray:
        """Draw indices into the ``T N`` transitions, int32 ``[minibatches, size]``; an epoch has each valid one.

        For a recurrent policy they number whole sequences (`arranged`), as many as have ``batch_size`` steps.

        The number of minibatches does not depend on how many transitions are valid: another number would compile the
        update again. So an epoch's last minibatch is filled up from its first.
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
        scale = {} if self.reward_scale is None else {'reward': self.reward_scale.moments}
        return super().moments() | scale

    def episodes_restarted(self, copies: slice | None = None) -> None:
        if self.reward_scale is not None:
            self.reward_scale.reset(copies)


def flattened(structure: Any) -> Any:
    """Reshape each tensor of a structure from ``[T, N, …]`` to ``[T N, …]``."""
    return tf.nest.map_structure(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), structure)
