"""IMPALA: actors that nobody waits for, and a learner that corrects for the age of their rollouts.

Espeholt et al. 2018, *IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures* (arXiv
1802.01561): V-trace (section 4.1, equation 1, and 4.2). Its ratios π/μ correct for the updates between the weights of
an actor and the learner's weights. Each batch of rollouts gives one gradient step when it arrives. With ``replayed``
each update learns from earlier rollouts too (section 5.2.2). ``clip_range`` gives PPO's clipped objective (Schulman et
al. 2017, arXiv 1707.06347, equation 7) around the policy that acted, as in RLlib's APPO.

In one process, with one actor that waits, π is μ and all ratios are 1: then this is A2C with returns of n steps.

Departures: losses are means over the steps, not sums, so the learning rate does not depend on their number. The
optimizer is Adam by default; the paper's RMSProp is one entry of ``optimizers_list``. Rewards are not clipped
(``reward_shaping`` of ``build_env`` can). As in A2C policy and value have networks of their own unless ``net_list[1]``
is ``'actor'``, but images are encoded once for both.
"""

from __future__ import annotations

import copy
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import tensorflow as tf

from zoo.algorithms.actor_critic import ActorCritic, Samples, flattened, mean_of
from zoo.algorithms.base import Algorithm
from zoo.common.maths.returns import vtrace
from zoo.common.records import Trajectories
from zoo.common.rollouts.rollout_buffer import RolloutBuffer, of_copies, side_by_side
from zoo.common.tools.params import above, at_least
from zoo.common.training import collection, loops


class IMPALA(ActorCritic):
    """V-trace actor-critic for every action space: actors play on while the learner learns.

    ``'actor'`` in place of the critic in ``net_list`` puts the critic's head on the actor's torso. ``roles=None``
    trains in this process, where every rollout belongs to the current policy.
    """

    loop = loops.streamed
    optimizer_names = ('all',)
    metric_names = ('policy', 'value', 'entropy', 'rho', 'clip_fraction')
    # The scale of rewards follows the episodes of each copy; rollouts arrive in another order.
    unused: ClassVar[tuple[str, ...]] = ('gae_lambda', 'normalize_reward')
    learn_defaults = {'roles': {'learners': 1, 'actors': 2}}
    default_optimizer = {'name': 'Adam', 'learning_rate': 7e-4}

    entropy_coef = 0.01
    rho_bar: Annotated[
        float, above(0), 'ρ̄, bound of the ratios that weigh an error; it decides which policy the value belongs to'
    ] = 1.0
    c_bar: Annotated[
        float, above(0), 'c̄, bound of the ratios that later errors pass; it decides how fast values are learned'
    ] = 1.0
    clip_range: Annotated[
        float | None,
        above(0),
        "ε of PPO's clipped objective: how far a ratio may be from 1 where a step would move it further; None: any",
    ] = None

    def build(self) -> None:
        super().build()
        self.behavior.param_size = self.action_adaptor.param_size
        self._kept: RolloutBuffer | None = None
        self._count = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        twin = super().__deepcopy__(memo)
        twin._kept, twin._count = copy.deepcopy(self._kept, memo), self._count
        return twin

    def update(
        self,
        rollout: Trajectories,
        *,
        replayed: Annotated[
            int,
            at_least(0),
            'earlier rollouts of one copy that each update learns from too (section 5.2.2); 0: none is kept',
        ] = 0,
        replay_size: Annotated[int, at_least(1), 'rollouts of one copy that are kept for that, the newest'] = 500,
    ) -> dict[str, float] | None:
        """Make one gradient step on rollouts of any policies, with fields ``[T, N, …]``."""
        if not rollout.valid.any():
            return None
        if not replayed:
            return self.iterate(rollout)
        return self.iterate(self.with_earlier(rollout, replayed, replay_size), fresh=rollout)

    def with_earlier(self, rollout: Trajectories, count: int, size: int) -> Trajectories:
        """Return a rollout ``[T, N, …]`` beside ``count`` copies from the newest ``size`` rollouts, drawn uniformly.

        A checkpoint does not hold these rollouts: a resumed training begins to collect them again.
        """
        steps, copies = rollout.reward.shape
        if self._kept is None or self._kept.rollout.reward.shape != (steps, size):
            self._kept, self._count = collection.buffer_for(cast(Algorithm, self), steps, size), 0
        self._kept.put((self._count + np.arange(copies)) % size, rollout)
        self._count += copies
        drawn = self.rng.integers(min(self._count, size), size=count)
        return side_by_side(rollout, of_copies(self._kept.rollout, drawn))

    def corrected(self, rollout: Trajectories) -> tuple[Samples, tf.Tensor]:
        """Return the transitions of a rollout of another policy μ, and π(a | s) / μ(a | s) of each, ``[T N]``.

        The advantages are ρ (r + γ v′ − V) and the returns are the targets v of V-trace, by the current values.
        """
        obs, params, value, after = self.seen(rollout)
        action, acted = flattened(rollout.action), flattened(rollout.params)
        log_prob, behavior = (self.action_adaptor.distribution.log_prob(x, action) for x in (params, acted))
        shape = rollout.reward.shape
        values = tf.reshape(value, shape)
        targets, advantage = vtrace(
            tf.reshape(log_prob, shape),
            tf.reshape(behavior, shape),
            rollout.reward,
            values,
            self._next_values(rollout, values, after),
            rollout.terminated,
            rollout.truncated,
            self.gamma,
            self.rho_bar,
            self.c_bar,
        )
        valid = tf.cast(flattened(rollout.valid), tf.float32)
        samples = Samples(obs, action, acted, behavior, value, flattened(advantage), flattened(targets), valid)
        return samples, tf.exp(log_prob - behavior)

    def moved_too_far(self, advantage: tf.Tensor, ratio: tf.Tensor) -> tf.Tensor:
        """Return where min(r A, clip(r, 1 − ε, 1 + ε) A), PPO's objective, has no gradient, bool ``[B]``."""
        if self.clip_range is None:
            return tf.zeros_like(ratio, tf.bool)
        return tf.where(advantage > 0.0, ratio > 1.0 + self.clip_range, ratio < 1.0 - self.clip_range)

    def improve(self, rollout: Trajectories, now: dict[str, tf.Tensor]) -> tf.Tensor:
        """Compute V-trace and make one gradient step on all transitions; return the metrics."""
        samples, ratio = self.corrected(rollout)
        too_far = self.moved_too_far(samples.advantage, ratio)
        metrics = self.gradient_step(samples, tf.where(too_far, 0.0, samples.advantage), now)
        metrics['rho'] = mean_of(tf.minimum(ratio, self.rho_bar), samples.valid)
        metrics['clip_fraction'] = mean_of(tf.cast(too_far, tf.float32), samples.valid)
        return self.stack_metrics(metrics)
