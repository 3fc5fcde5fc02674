"""VPG: the vanilla policy gradient, REINFORCE with the reward to go.

Williams 1992, *Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning* (doi
10.1007/BF00992696); Sutton and Barto 2018, *Reinforcement Learning: An Introduction*
(http://incompleteideas.net/book/the-book-2nd.html), section 13.3 (equation 13.8, REINFORCE) and section 13.4 (equation
13.11, with the value of the state as a baseline).

Departures: the weight γᵗ for step t of an episode is left out, as nearly everywhere. A gradient step learns from a
rollout of all copies, not from one episode. By default ``normalize_advantage`` gives advantages the mean 0 and the
deviation 1, so that the size of a step does not depend on the size of rewards. Without a critic the mean is itself a
baseline; False leaves the returns as they are. One optimizer moves both networks. Gradients are clipped by their norm.

At a time limit and at the end of a rollout the episode goes on unseen: the baseline's value stands for what follows.
Without a baseline nothing does. Then only the sum of the rewards within a rollout is improved, so choose a horizon of
some episodes.
"""

from __future__ import annotations

import logging
from typing import Annotated, ClassVar

import tensorflow as tf

from zoo.algorithms.actor_critic import ActorCritic, NormalizeAdvantage, Sequences, normalized
from zoo.common import spaces
from zoo.common.maths.returns import discounted_returns
from zoo.common.records import Trajectories

log = logging.getLogger('zoo')


class VPG(ActorCritic):
    """The vanilla policy gradient (REINFORCE) for every action space: one gradient step for each rollout.

    ``'actor'`` in place of the critic in ``net_list`` puts the critic's head on the actor's torso. With
    ``baseline=False`` there is no critic: ``net_list`` has one entry, the actor's, and an entry for the critic is left
    out.
    """

    optimizer_names = ('all',)
    metric_names = ('policy', 'value', 'entropy')
    unused: ClassVar[tuple[str, ...]] = ('gae_lambda',)

    baseline: Annotated[bool, "subtract the state's value, which a critic learns, from the return"] = True
    normalize_advantage: NormalizeAdvantage = True

    def build(self) -> None:
        if not self.baseline:
            self.network_names = ('actor',)  # type: ignore[misc] # of this agent
            if isinstance(self.net_list, list | tuple) and len(self.net_list) == 2:
                log.info('Without a baseline there is no critic: net_list[1] is left out.')
                self.net_list = self.net_list[:1]
        super().build()

    def policy_and_value(self, obs: spaces.Flat, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Return parameters of the policy ``[B, …]`` and the baseline ``[B]``, 0 without a baseline."""
        if self.baseline or isinstance(obs, Sequences):
            return super().policy_and_value(obs, training)
        params = self.policy(obs, training)
        return params, tf.zeros_like(params[:, 0])

    def advantages(
        self, rollout: Trajectories, value: tf.Tensor, after: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return G − v(s) and G, the discounted sum of the rewards from the step on, ``[T, N]`` each."""
        _, _, reward, _, terminated, truncated, *_ = rollout
        following = self._next_values(rollout, value, after) if self.baseline else value  # which is 0
        returns = discounted_returns(reward, following, terminated, truncated, self.gamma)
        return returns - value, returns

    def improve(self, rollout: Trajectories, now: dict[str, tf.Tensor]) -> tf.Tensor:
        """Compute returns and make one gradient step on all transitions; return the metrics."""
        samples = self.samples(rollout)
        advantage = samples.advantage
        if self.normalize_advantage:
            advantage = normalized(advantage, samples.valid, self.all_reduce)
        metrics = self.gradient_step(samples, advantage, now)
        if not self.baseline:
            metrics['value'] = tf.zeros([])  # nothing learns it
        return self.stack_metrics(metrics)
