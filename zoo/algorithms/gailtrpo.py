"""GAILTRPO: generative adversarial imitation learning, over TRPO.

Ho and Ermon 2016, *Generative Adversarial Imitation Learning* (arXiv 1606.03476), algorithm 1, as the paper has it: the
policy moves by TRPO (Schulman et al. 2015, arXiv 1502.05477).

Departures: the departures of GAIL, except for PPO. The departures of TRPO.
"""

from __future__ import annotations

from typing import ClassVar

from zoo.algorithms.gail import Adversarial
from zoo.algorithms.trpo import TRPO


class GAILTRPO(Adversarial, TRPO):
    """Generative adversarial imitation learning for every action space, by TRPO. Actor and critic share no torso."""

    network_names = ('actor', 'critic', 'discriminator')
    optimizer_names = ('critic', 'discriminator')
    metric_names = (*TRPO.metric_names, 'discriminator', 'accuracy', 'reward')
    unused: ClassVar[tuple[str, ...]] = (*Adversarial.unused, *TRPO.unused)
