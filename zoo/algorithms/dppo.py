"""DPPO: distributed proximal policy optimization, PPO by several learners that act as one.

Heess et al. 2017, *Emergence of Locomotion Behaviours in Rich Environments* (arXiv 1707.02286), section 2 and
algorithms 2 and 3: every worker computes the gradient of its own part of each batch, the gradients are averaged, and
all workers take the same step. Here learners are the workers, and actors step the environments for them.
``method='penalty'`` has the paper's penalty; its coefficient is adapted to the mean divergence of all learners.
``'clip'``, the default, is the objective of Schulman et al. 2017 (arXiv 1707.06347), which the paper did not have.

The learners compute what one learner would compute from all transitions together. The gradient is the mean over the
learners, and its norm is clipped after that. Running statistics, the mean and deviation of a minibatch's advantages,
and the divergence for ``target_kl`` and the penalty cover all learners. Two things differ. A minibatch joins equally
many transitions of each learner, drawn by each from its own rollouts; one learner would draw from all. In the losses of
a recurrent policy the mean of each learner counts alike, even if fewer of its steps are valid.

Departures: the departures of PPO; gradients are never dropped for the sake of speed; the penalty has no second term for
divergences beyond twice the target (algorithm 2).
"""

from __future__ import annotations

from zoo.algorithms.ppo import PPO


class DPPO(PPO):
    """Proximal policy optimization by several learners, for every action space.

    ``batch_size`` counts for each learner and ``horizon`` for each actor: with two learners a gradient covers twice the
    batch. ``roles=None`` trains in this process, and is PPO.
    """

    learn_defaults = {'roles': {'learners': 2, 'actors': 2}}
