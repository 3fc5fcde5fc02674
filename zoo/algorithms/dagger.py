"""DAgger: dataset aggregation.

Ross, Gordon and Bagnell 2011, *A Reduction of Imitation Learning and Structured Prediction to No-Regret Online
Learning* (arXiv 1011.0686), algorithm 3.1. A cloned policy errs, and then sees states that no expert has shown. DAgger
lets the policy act and asks an expert what it would do in each state. Each iteration takes steps by a mixture of expert
and policy, labels all of them by the expert, adds them to the dataset, and fits the policy to the whole dataset.

Departures:

* The policy goes on from its weights; the paper fits a new one in every iteration.
* The policy acts by its mode, as a test does.
* The paper returns the best policy of all iterations, found by validation. Here that is the callback ``KeepBest``.
"""

from __future__ import annotations

import os
from typing import Any

from zoo.algorithms.base.loading import load
from zoo.algorithms.bc import BC
from zoo.common.training import interactive, loops


class DAgger(BC):
    """Dataset aggregation for every action space: behavior cloning of an expert that labels what the policy sees."""

    loop = loops.dagger
    needed = {'expert': 'an expert, who says what it would do: an agent, its name, or a function of an observation'}

    def labels(self, expert: Any) -> interactive.Labels:
        """Return what labels observations: an agent, the name or path of one, or a function of one observation."""
        return interactive.Labels(self, load(expert) if isinstance(expert, str | os.PathLike) else expert)
