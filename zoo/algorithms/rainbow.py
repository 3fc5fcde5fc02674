"""Rainbow: all six improvements of DQN at once.

Hessel et al. 2018, *Rainbow: Combining Improvements in Deep Reinforcement Learning* (arXiv 1710.02298): C51 with double
Q-learning, dueling streams, prioritized replay, noisy layers and n-step targets. Each has its switch, so one can be
left out, as in the paper's figure 3.

The defaults are the values of its table 1. There the target moves every 32,000 frames: 2,000 updates, since one update
follows 4 steps of 4 frames each. The rest of the table are parameters of ``learn``.

Departures: the departures of C51. The gradient's norm is clipped at 10, as by Wang et al. 2016; the table does not
name it.
"""

from __future__ import annotations

from zoo.algorithms.c51 import C51


class Rainbow(C51):
    """Rainbow for ``Discrete`` actions: C51 that is double, dueling, prioritized, noisy, with n-step returns."""

    recurrent = False  # with noisy layers the state would come from other weights at every step
    default_optimizer = {'name': 'Adam', 'learning_rate': 6.25e-5, 'epsilon': 1.5e-4, 'clip_norm': 10.0}

    double_q = True
    dueling = True
    prioritized = True
    priority_alpha = 0.5
    noisy = True
    n_step = 3
    target_update_every = 2000
