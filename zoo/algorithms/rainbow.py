"""Rainbow: all six improvements of DQN at once.

Hessel et al. 2018, *Rainbow: Combining Improvements in Deep Reinforcement Learning* (arXiv 1710.02298): C51 with double
Q-learning, dueling streams, prioritised replay, noisy layers and targets of several steps. Each has its switch, so that
one can be left out, as the paper's figure 3 does.

The defaults of the constructor are those of its table 1, in which 32,000 frames between moves of the target are 2,000
updates, of one in every 4 steps of 4 frames; how often there is one, and the rest of the table, are parameters of
``learn``. Departures: C51's; the gradient's norm is clipped at 10, as by Wang et al., of which the table says nothing.
"""

from __future__ import annotations

from zoo.algorithms.c51 import C51


class Rainbow(C51):
    """Rainbow for ``Discrete`` actions: C51 that is double, dueling, prioritised, noisy and of several steps."""

    recurrent = False  # with noisy layers the state would be that of other weights at every step
    default_optimizer = {'name': 'Adam', 'learning_rate': 6.25e-5, 'epsilon': 1.5e-4, 'clip_norm': 10.0}

    double_q = True
    dueling = True
    prioritized = True
    priority_alpha = 0.5
    noisy = True
    n_step = 3
    target_update_every = 2000
