"""A2C: advantage actor-critic, the synchronous form of A3C.

Mnih et al. 2016, *Asynchronous Methods for Deep Reinforcement Learning* (arXiv 1602.01783), section 4 and algorithm S3:
returns of n steps, where n is the rollout's length, and less for its later steps; RMSProp with shared statistics (their
equation S2). As in OpenAI Baselines, all copies of the environment step together, and their gradients are one.

Departures: ``gae_lambda`` below 1 gives generalized advantage estimation (Schulman et al. 2016, arXiv 1506.02438,
equation 16); the default, 1, is the paper's sum. ``normalize_advantage`` is an option. Gradients are clipped by their
norm. Policy and value have networks of their own, and ``value_coef`` weighs the value loss; images are encoded once for
both.
"""

from __future__ import annotations

import tensorflow as tf

from zoo.algorithms.actor_critic import ActorCritic, NormalizeAdvantage, Samples, normalized
from zoo.common.records import Trajectories


class A2C(ActorCritic):
    """Advantage actor-critic for every action space: one gradient step for each short rollout.

    ``'actor'`` in place of the critic in ``net_list`` puts the critic's head on the actor's torso.
    """

    optimizer_names = ('all',)
    metric_names = ('policy', 'value', 'entropy')
    learn_defaults = {'horizon': 5}
    default_optimizer = {'name': 'RMSprop', 'learning_rate': 7e-4, 'rho': 0.99, 'epsilon': 1e-5}

    gae_lambda = 1.0
    normalize_advantage: NormalizeAdvantage = False

    def improve(self, rollout: Trajectories, now: dict[str, tf.Tensor]) -> tf.Tensor:
        """Compute advantages and make one gradient step on all transitions; return the metrics."""
        return self.stack_metrics(self.gradient_step(*self.weighed(rollout), now))

    def weighed(self, rollout: Trajectories) -> tuple[Samples, tf.Tensor]:
        """Return the transitions of a rollout, and the advantages that weigh them, ``[T N]``."""
        samples = self.samples(rollout)
        advantage = samples.advantage
        if self.normalize_advantage:
            advantage = normalized(advantage, samples.valid, self.all_reduce)
        return samples, advantage
