"""Rainbow: all six improvements of DQN at once.

Hessel et al. 2018, *Rainbow: Combining Improvements in Deep Reinforcement Learning* (arXiv 1710.02298): C51 with double
Q-learning, dueling streams, prioritised replay, noisy layers and targets of several steps. Each has its switch, so that
one can be left out, as the paper's figure 3 does.

The defaults of the constructor are those of its table 1, in which 32,000 frames between moves of the target are 2,000
updates, of one in every 4 steps of 4 frames; how often there is one, and the rest of the table, are parameters of
``learn``. Departures: C51's; the gradient's norm is clipped at 10, as by Wang et al., of which the table says nothing.
"""

from __future__ import annotations

from typing import Any, ClassVar

from zoo.algorithms.c51 import C51
from zoo.algorithms.dqn import DoubleQ, Dueling, Noisy, TargetUpdateEvery
from zoo.common.parameters import NStep, Prioritized, PriorityAlpha


class Rainbow(C51):
    """Rainbow for ``Discrete`` actions: C51 that is double, dueling, prioritised, noisy and of several steps."""

    recurrent = False  # with noisy layers the state would be that of other weights at every step
    default_optimizer: ClassVar[dict[str, Any]] = {
        'name': 'Adam',
        'learning_rate': 6.25e-5,
        'epsilon': 1.5e-4,
        'clip_norm': 10.0,
    }

    def __init__(
        self,
        *args: Any,
        double_q: DoubleQ = True,
        dueling: Dueling = True,
        prioritized: Prioritized = True,
        priority_alpha: PriorityAlpha = 0.5,
        noisy: Noisy = True,
        n_step: NStep = 3,
        target_update_every: TargetUpdateEvery = 2000,
        **params: Any,
    ) -> None:
        super().__init__(
            *args,
            double_q=double_q,
            dueling=dueling,
            prioritized=prioritized,
            priority_alpha=priority_alpha,
            noisy=noisy,
            n_step=n_step,
            target_update_every=target_update_every,
            **params,
        )
