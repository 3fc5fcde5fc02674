"""TRPO: trust region policy optimization.

Schulman et al. 2015, *Trust Region Policy Optimization* (arXiv 1502.05477). The surrogate of equation 14 is improved
within the trust region of equation 12, the mean KL, along the natural gradient: conjugate gradient on products with the
Fisher information matrix, which is the second derivative of the KL, and a line search (section 6, appendix C). With
generalized advantage estimation (Schulman et al. 2016, arXiv 1506.02438).

Departures: advantages are normalized over the rollout. The paper says nothing about the critic; here it is fitted after
the policy by epochs of Adam on minibatches, and shares no torso with it. The curvature uses all transitions, not a
tenth of them (appendix C.2), and is found by differentiating twice. A step is taken if it improves the surrogate and
the KL stays in the region. What a network adds to the loss counts as a part of the surrogate. Constraints of weights
apply after the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import tensorflow as tf

from zoo.algorithms.actor_critic import ActorCritic, Samples, mean_of, normalized
from zoo.common.maths.optimizers import mean_over
from zoo.common.networks.network import penalized
from zoo.common.records import Trajectories
from zoo.common.schedules import Linear
from zoo.common.tools.params import Range, above, at_least


class TRPO(ActorCritic):
    """Trust region policy optimization for every action space. Actor and critic share no torso."""

    shared_torso: ClassVar[dict[str, str]] = {}
    recurrent = False  # its critic would need a recurrent state of its own
    optimizer_names: ClassVar[tuple[str, ...]] = ('critic',)
    metric_names: ClassVar[tuple[str, ...]] = ('policy', 'value', 'entropy', 'kl', 'step')
    unused: ClassVar[tuple[str, ...]] = ('entropy_coef', 'value_coef')
    scheduled: ClassVar[tuple[str, ...]] = ('target_kl',)
    default_optimizer = {'name': 'Adam', 'learning_rate': 1e-3}

    target_kl: Annotated[float | Linear, above(0), 'δ, the mean divergence that a step may make'] = 0.01
    cg_iterations: Annotated[int, at_least(1), 'iterations of the conjugate gradient'] = 10
    cg_damping: Annotated[float, at_least(0), "added to the Fisher information matrix's diagonal"] = 0.1
    line_search_steps: Annotated[int, at_least(1), 'lengths that are tried until one is taken'] = 10
    line_search_decay: Annotated[float, Range(0, 1, True, True), 'ratio of one length to the one before'] = 0.8
    max_grad_norm = None

    def groups(self) -> list[list[tf.Variable]]:
        """Return the critic's variables: the optimizer moves them alone."""
        return [self.critic.trainable_variables]

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """Every weight that an update moves: the policy's too, which no optimizer moves."""
        return self.policy.trainable_variables + super().trainable_variables

    def largest_pass(self, shape: tuple[int, ...], *arrays: Any) -> tuple[int, int, int]:
        rows, passes, forward = super().largest_pass(shape, *arrays)
        return rows, passes + 3, forward  # the curvature is differentiated twice, which keeps two more outputs

    def policy_loss(self, samples: Samples, advantage: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return −mean ratio A, equation 14, with what the network adds to it; and the mean entropy."""
        params = self.policy(samples.obs, training=True)
        ratio = tf.exp(self.action_adaptor.distribution.log_prob(params, samples.action) - samples.log_prob)
        loss = penalized(-mean_of(ratio * advantage, samples.valid), self.policy.network)
        return loss, mean_of(self.entropy(params), samples.valid)

    def divergence(self, samples: Samples) -> tf.Tensor:
        """Return the mean KL(π_old ‖ π) over the states: equation 12."""
        kl = self.action_adaptor.distribution.kl(samples.params, self.policy(samples.obs))
        return mean_of(kl, samples.valid)

    def losses(self, samples: Samples, advantage: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return `policy_loss` and the mean entropy, computed a chunk at a time."""

        def found(samples: Samples, advantage: tf.Tensor, valid: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
            return self.policy_loss(samples._replace(valid=valid), advantage)

        loss, entropy = self.over_samples(found, samples, advantage)
        return loss, entropy

    def first_gradient(self, samples: Samples, advantage: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return `policy_loss`, the mean entropy and the gradient of the loss ``[weights]``, a chunk at a time."""
        variables = self.policy.trainable_variables

        def found(samples: Samples, advantage: tf.Tensor, valid: tf.Tensor | None) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                loss, entropy = self.policy_loss(samples._replace(valid=valid), advantage)
            return [loss, entropy, flat(tape.gradient(loss, variables, unconnected_gradients='zero'))]

        loss, entropy, gradient = self.over_samples(found, samples, advantage)
        return loss, entropy, gradient

    def fisher_product(self, samples: Samples, vector: tf.Tensor) -> tf.Tensor:
        """Return (F + damping) v at the old policy; F is the second derivative of `divergence`: appendix C.

        Args:
            samples: the transitions of the rollout.
            vector: v, float32 ``[weights of the policy]``.
        """
        variables = self.policy.trainable_variables

        def found(samples: Samples, _: Any, valid: tf.Tensor | None) -> list[tf.Tensor]:
            with tf.GradientTape() as outer:
                with tf.GradientTape() as inner:
                    kl = self.divergence(samples._replace(valid=valid))
                slope = flat(inner.gradient(kl, variables, unconnected_gradients='zero'))
                along = tf.reduce_sum(slope * vector)
            return [flat(outer.gradient(along, variables, unconnected_gradients='zero'))]

        (product,) = mean_over(self.all_reduce, self.over_samples(found, samples))
        return product + self.cg_damping * vector

    def step_policy(self, samples: Samples, target_kl: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make a step along the natural gradient, as long as the trust region allows: section 6 and appendix C.

        Args:
            samples: the transitions of the rollout.
            target_kl: δ, float32.
        """
        variables = self.policy.trainable_variables
        advantage = normalized(samples.advantage, samples.valid, self.all_reduce)
        loss, entropy, gradient = self.first_gradient(samples, advantage)
        moving = self.policy.network.moving_variables
        loss, gradient, *moved = mean_over(self.all_reduce, [loss, gradient, *(v.read_value() for v in moving)])
        for variable, mean in zip(moving, moved, strict=True):
            variable.assign(mean)

        direction = conjugate_gradient(lambda v: self.fisher_product(samples, v), -gradient, self.cg_iterations)
        curvature = tf.reduce_sum(direction * self.fisher_product(samples, direction))
        full = tf.sqrt(2.0 * target_kl / tf.maximum(curvature, 1e-12)) * direction  # ½ sᵀ F s = δ
        start = flat(variables)

        def attempt(k: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, ...]:
            assign_flat(variables, start + self.line_search_decay ** tf.cast(k, tf.float32) * full)
            new_loss, new_entropy = self.losses(samples, advantage)
            with tf.control_dependencies([new_loss]):  # side by side they would need twice the memory
                (kl,) = self.over_samples(lambda part, _, valid: [self.divergence(part._replace(valid=valid))], samples)
            new_loss, kl = mean_over(self.all_reduce, [new_loss, kl])
            taken = tf.logical_and(new_loss < loss, kl <= target_kl)
            return k + 1, taken, new_loss, new_entropy, kl

        found = tf.while_loop(
            lambda k, taken, *_: tf.logical_and(k < self.line_search_steps, tf.logical_not(taken)),
            attempt,
            (tf.constant(0), tf.constant(False), loss, entropy, tf.zeros([])),
            parallel_iterations=1,
        )
        tried, taken, new_loss, new_entropy, kl = found
        part = tf.where(taken, self.line_search_decay ** tf.cast(tried - 1, tf.float32), 0.0)
        assign_flat(variables, tf.where(taken, start + part * full, start))
        for variable, function in self.policy.network.constraints:
            variable.assign(function(tf.convert_to_tensor(variable)))
        return {
            'policy': tf.where(taken, new_loss, loss),
            'entropy': tf.where(taken, new_entropy, entropy),
            'kl': tf.where(taken, kl, 0.0),
            'step': part,
        }

    def fit_critic(self, samples: Samples, batches: tf.Tensor) -> tf.Tensor:
        """Make a gradient step on each minibatch; return mean (V(s) − R)² of the last one."""

        def minibatch(i: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            obs, returns = tf.nest.map_structure(lambda x: tf.gather(x, batches[i]), (samples.obs, samples.returns))

            def value_loss() -> tf.Tensor:
                return penalized(tf.reduce_mean(tf.square(self.value(obs, training=True) - returns)), self.critic)

            return i + 1, self.optimizers['critic'].minimize(value_loss)

        start = (tf.constant(0), tf.zeros([]))
        return tf.while_loop(lambda i, _: i < batches.shape[0], minibatch, start, parallel_iterations=1)[1]

    def improve(self, rollout: Trajectories, now: dict[str, tf.Tensor], batches: tf.Tensor) -> tf.Tensor:
        """Make a whole iteration in one compiled call: advantages, the policy's step, the critic's steps.

        Args:
            rollout: fields ``[T, N, …]``.
            now: δ.
            batches: int32 ``[minibatches, batch_size]`` of the critic, indices into the ``T N`` transitions.

        Returns:
            The metrics in the order of ``metric_names``.
        """
        samples = self.samples(rollout)
        metrics = self.step_policy(samples, now['target_kl'])
        # Both share no tensor and run at once, except where that takes too much memory. But learners must exchange
        # their arrays in one order.
        at_once = self.all_reduce is None and samples.value.shape[0] <= self.rows_at_once
        with tf.control_dependencies([] if at_once else list(metrics.values())):
            value = self.fit_critic(samples, batches)
        return self.stack_metrics(metrics | {'value': value})

    def draws(self, valid: np.ndarray, critic_epochs: int, batch_size: int) -> tuple[np.ndarray]:  # type: ignore[override]
        """Draw the critic's minibatches of an iteration, int32 ``[minibatches, batch_size]``."""
        return (self.minibatches(valid, critic_epochs, batch_size),)

    def update(
        self,
        rollout: Trajectories,
        *,
        critic_epochs: Annotated[int, at_least(1), 'passes of the critic over the transitions of an iteration'] = 10,
        batch_size: Annotated[
            int, at_least(1), "transitions in one of the critic's steps; an epoch's last is filled up from its first"
        ] = 128,
    ) -> dict[str, float] | None:
        """Make one iteration on a rollout of the current policy, with fields ``[T, N, …]``."""
        if not rollout.valid.any():  # every copy was only reset
            return None
        return self.iterate(rollout, *self.draws(rollout.valid, critic_epochs, batch_size))


def conjugate_gradient(
    product: Callable[[tf.Tensor], tf.Tensor], b: tf.Tensor, iterations: int, tolerance: float = 1e-10
) -> tf.Tensor:
    """Return an approximate x of A x = b for a symmetric positive definite A (Hestenes and Stiefel 1952).

    Args:
        product: returns A v for v, both float32 ``[n]``.
        b: float32 ``[n]``.
        iterations: at most this many; without rounding errors ``n`` are exact.
        tolerance: bound of the residual's squared length, as a part of the squared length of ``b``.
    """
    size = tf.reduce_sum(tf.square(b))

    def iteration(
        k: tf.Tensor, x: tf.Tensor, residual: tf.Tensor, direction: tf.Tensor, left: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        image = product(direction)
        length = left / tf.reduce_sum(direction * image)
        residual = residual - length * image
        new = tf.reduce_sum(tf.square(residual))
        return k + 1, x + length * direction, residual, residual + (new / left) * direction, new

    return tf.while_loop(
        lambda k, *rest: tf.logical_and(k < iterations, rest[-1] > tolerance * size),
        iteration,
        (tf.constant(0), tf.zeros_like(b), b, b, size),
        parallel_iterations=1,
    )[1]


def flat(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return tensors as one vector."""
    return tf.concat([tf.reshape(x, [-1]) for x in tensors], 0)


def assign_flat(variables: Sequence[tf.Variable], vector: tf.Tensor) -> None:
    """Give variables the values of a vector: the inverse of `flat`."""
    pieces = tf.split(vector, [v.shape.num_elements() for v in variables])
    for variable, piece in zip(variables, pieces, strict=True):
        variable.assign(tf.reshape(piece, variable.shape))
