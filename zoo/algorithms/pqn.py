"""PQN: a parallelized Q-network, without a replay buffer and without a target network.

Gallici et al. 2024, *Simplifying Deep Temporal Difference Learning* (arXiv 2407.04811), algorithm 1 with λ-returns
(section 4): many copies of the environment play by one ε-greedy policy; the Q-network regresses on Peng's Q(λ) (Peng
and Williams 1996) of each rollout, in several epochs of minibatches. Layer normalization keeps the values from
diverging (their section 3), which a target network does for DQN.

Departures:

* Targets are computed once for each rollout, as the paper's code does; a recurrent network's too, which that code
  computes anew in every minibatch.
* The value after a rollout's last step is taken of its true next observation, also at a time limit, where the paper's
  code takes the reward alone.
* A recurrent network sees the observation alone; the paper's is also given the last action. Put it into the
  observation where it matters. A rollout goes on from the state in which the one before ended; the paper's repeats the
  last steps of that one first.
* Rewards are not scaled; ``normalize_reward`` can do that.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import tensorflow as tf

from zoo.algorithms.on_policy import OnPolicy, RolloutSequenceLength, Sequences, flattened
from zoo.common import spaces
from zoo.common.acting.forward import Forward
from zoo.common.acting.greedy import EpsilonGreedy, RecurrentEpsilonGreedy
from zoo.common.adaptors.masks import masked
from zoo.common.maths.means import mean_of
from zoo.common.maths.returns import lambda_returns, next_values
from zoo.common.networks.heads import action_value_head
from zoo.common.networks.network import penalized
from zoo.common.records import Trajectories
from zoo.common.schedules import Linear
from zoo.common.tools.params import at_least, between


class Samples(NamedTuple):
    """The transitions of a rollout in one row ``[T N, …]``, with their targets.

    Attributes:
        obs: observations, or :class:`Sequences` for a recurrent network.
        action: int32 ``[T N]``.
        returns: float32 ``[T N]``, the target of Q(s, a).
        valid: float32 ``[T N]``, 1, or 0 where a copy was only reset; None: all are valid.
    """

    obs: Any
    action: tf.Tensor
    returns: tf.Tensor
    valid: tf.Tensor | None


class PQN(OnPolicy):
    """Parallelized Q-network for ``Discrete`` actions: Q-learning on rollouts of many copies of the environment."""

    acts_in = ('Discrete',)
    network_names = ('q',)
    optimizer_names = ('q',)
    metric_names = ('q', 'q_mean')
    learn_defaults = {'horizon': 32}
    default_network = {'hidden': [128, 128], 'activation': 'relu', 'normalize': 'pre_layer_norm'}
    default_optimizer = {'name': 'RAdam', 'learning_rate': 2.5e-4, 'clip_norm': 10.0}

    q_lambda: Annotated[float, between(0, 1), 'λ of Q(λ): 0 is one-step Q-learning, 1 the whole rollout'] = 0.65
    epsilon: Annotated[float | Linear, between(0, 1), 'probability of a random action in training'] = Linear(
        1.0, 0.05, until=0.1
    )
    sequence_length: RolloutSequenceLength = None

    def build(self) -> None:
        """Make the network, its optimizer, and ε-greedy exploration."""
        self.actions = self.action_adaptor.parts[0].counts[0]
        self.build_networks([action_value_head(self.actions)])
        self.network = self.networks['q']
        self.prepare_iterations(self.network)
        self.check_sequence_length(self.sequence_length)
        self.build_optimizers([self.network.trainable_variables])
        behavior = RecurrentEpsilonGreedy if self.is_recurrent else EpsilonGreedy
        forward = Forward(self.network, mask_path=self.mask_path)
        self.behavior = behavior(forward, self.action_adaptor, self.mask_path, self.epsilon)

    def sequence_steps(self, steps: int) -> int:
        return min(self.sequence_length or steps, steps)

    def outputs(self, obs: spaces.Flat, training: bool = False) -> tuple[tf.Tensor]:
        """Return Q(s, ·) ``[B, actions]``; a recurrent network is given :class:`Sequences`, ``B`` is then ``L C``."""
        if isinstance(obs, Sequences):
            return self.outputs_along(obs, obs.state[0], training)[0]
        return (self.network(obs, training=training),)

    def outputs_along(
        self, sequences: Sequences, state: tf.Tensor, training: bool = False
    ) -> tuple[tuple[tf.Tensor], tf.Tensor]:
        encoded, after = self.network.encode_sequence(sequences.obs, state, sequences.begins, training)
        return (self.network.from_torso(encoded),), after

    def best(self, q: tf.Tensor, obs: spaces.Flat) -> tf.Tensor:
        """Return max Q(s, ·) over the allowed actions, ``[B]``."""
        return tf.reduce_max(q if self.mask_path is None else masked(q, obs[self.mask_path]), -1)

    def samples(self, rollout: Trajectories) -> Samples:
        """Return the transitions of a rollout and their Q(λ), by the values of now in inference mode."""
        _, action, reward, next_obs, terminated, truncated, valid, *_ = rollout
        obs, q, after = self.seen(rollout)
        value = tf.reshape(self.best(q, flattened(rollout.obs)), reward.shape)
        if after is None:
            following = next_values(lambda x: self.best(self.network(x), x), value, next_obs, terminated, truncated)
        else:
            following = next_values(
                lambda x: self.best(self.network.step(*x)[0], x[0]), value, (next_obs, after), terminated, truncated
            )
        returns = lambda_returns(reward, following, terminated, truncated, self.gamma, self.q_lambda)
        return Samples(obs, flattened(action), flattened(returns), tf.cast(flattened(valid), tf.float32))

    def loss(self, drawn: Samples) -> tuple[tf.Tensor, tf.Tensor]:
        """Return ½ mean (Q(s, a) − R)² over the valid transitions of a minibatch, and the mean of Q(s, a)."""
        (q,) = self.outputs(drawn.obs, training=True)
        q = tf.reduce_sum(q * tf.one_hot(drawn.action, self.actions), -1)
        loss = 0.5 * mean_of(tf.square(q - drawn.returns), drawn.valid)
        return penalized(loss, self.network), mean_of(q, drawn.valid)

    def improve(self, rollout: Trajectories, now: dict[str, tf.Tensor], batches: tf.Tensor) -> tf.Tensor:
        """Make a whole iteration in one compiled call: targets, then every minibatch of every epoch.

        Args:
            rollout: fields ``[T, N, …]``.
            now: empty.
            batches: int32 ``[minibatches, batch_size]`` from `minibatches`.

        Returns:
            The last minibatch's metrics in the order of ``metric_names``.
        """
        arranged = self.arranged(self.samples(rollout), rollout.reward.shape[1])
        optimizer = self.optimizers['q']

        def minibatch(i: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            drawn = self.drawn(arranged, batches[i])
            with tf.GradientTape() as tape:
                loss, q_mean = self.loss(drawn)
            optimizer.apply(tape.gradient(loss, optimizer.variables))
            return i + 1, self.stack_metrics({'q': loss, 'q_mean': q_mean})

        start = (tf.constant(0), tf.zeros([len(self.metric_names)]))
        _, metrics = tf.while_loop(lambda i, _: i < batches.shape[0], minibatch, start, parallel_iterations=1)
        return metrics

    def draws(self, valid: np.ndarray, epochs: int, batch_size: int) -> tuple[np.ndarray]:  # type: ignore[override]
        """Draw the minibatches of an iteration, int32 ``[minibatches, batch_size]``."""
        return (self.minibatches(valid, epochs, batch_size),)

    def update(
        self,
        rollout: Trajectories,
        *,
        epochs: Annotated[int, at_least(1), 'passes over the transitions of an iteration'] = 2,
        batch_size: Annotated[
            int,
            at_least(1),
            'transitions in one gradient step, of a recurrent network in whole sequences; the last one of an epoch is '
            'filled up from its first',
        ] = 128,
    ) -> dict[str, float] | None:
        """Make one iteration on a rollout of the current policy, with fields ``[T, N, …]``."""
        if not rollout.valid.any():  # every copy was only reset
            return None
        return self.iterate(rollout, *self.draws(rollout.valid, epochs, batch_size))
