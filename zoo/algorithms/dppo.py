"""DPPO: distributed proximal policy optimisation, PPO by several learners that are one.

Heess et al. 2017, *Emergence of Locomotion Behaviours in Rich Environments* (arXiv 1707.02286), section 2 and
algorithms 2 and 3: every worker computes the gradient of its own part of each batch, the gradients are averaged, and
all take the same step. Here learners are the workers, and actors step the environments for them. ``method='penalty'``
is the paper's objective (its coefficient is adapted to the mean divergence of all learners); ``'clip'``, the default,
is that of Schulman et al. 2017 (arXiv 1707.06347), which the paper's authors had not.

What is computed is what one learner computes of all transitions together: the gradient is the mean over the learners,
its norm is clipped after that, and running statistics, a minibatch's mean and deviation of advantages, and the
divergence that ``target_kl`` and the penalty look at, are those of all. Two things are not: a minibatch is the union of
as many transitions of each learner, drawn by each from its own rollouts, where one learner would draw from all; and in
the losses of a recurrent policy each learner's mean counts alike, also where fewer of its steps are valid.

Departures from the paper: gradients are never dropped for the sake of speed; those of PPO.
"""

from __future__ import annotations

from zoo.algorithms.ppo import PPO


class DPPO(PPO):
    """Proximal policy optimisation by several learners, for every action space.

    ``batch_size`` and ``horizon`` are those of each learner and each actor: with two learners a gradient is that of
    twice the batch. ``roles=None`` trains in this process, and is PPO.
    """

    learn_defaults = {'roles': {'learners': 2, 'actors': 2}}
