"""AC: one-step actor-critic.

Sutton and Barto 2018, *Reinforcement Learning: An Introduction* (http://incompleteideas.net/book/the-book-2nd.html),
section 13.5: the error of the value of one step, δ = r + γ v(s′) − v(s), is the critic's error and the policy's
advantage (equations 13.12 to 13.14 and the box "One-step Actor–Critic").

Departures: the weight γᵗ for step t of an episode is left out, as nearly everywhere. The copies of the environment make
a batch; with ``horizon`` above the book's 1, several steps of each do. One optimizer, by default Adam, moves both
networks; ``value_coef`` sets the ratio of their step sizes. By default gradients are not clipped: with a few copies
they are small, except where an episode ends.
"""

from __future__ import annotations

from typing import ClassVar

import tensorflow as tf

from zoo.algorithms.actor_critic import ActorCritic
from zoo.common.records import Trajectories


class AC(ActorCritic):
    """One-step actor-critic for every action space: a gradient step for each step of the copies.

    ``'actor'`` in place of the critic in ``net_list`` puts the critic's head on the actor's torso.
    """

    optimizer_names = ('all',)
    metric_names = ('policy', 'value', 'entropy')
    unused: ClassVar[tuple[str, ...]] = ('gae_lambda',)
    learn_defaults = {'horizon': 1}

    max_grad_norm = None

    def advantages(
        self, rollout: Trajectories, value: tf.Tensor, after: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return δ = r + γ (1 − terminated) v(s′) − v(s) and the critic's target v(s) + δ, ``[T, N]`` each."""
        following = self._next_values(rollout, value, after)
        alive = 1.0 - tf.cast(rollout.terminated, tf.float32)
        target = rollout.reward + self.gamma * alive * following
        return target - value, target

    def improve(self, rollout: Trajectories, now: dict[str, tf.Tensor]) -> tf.Tensor:
        """Compute δ and make one gradient step on all transitions; return the metrics."""
        samples = self.samples(rollout)
        return self.stack_metrics(self.gradient_step(samples, samples.advantage, now))
