"""C51's defaults: the paper's on Atari (Bellemare et al. 2017, arXiv 1707.06887), DQN's elsewhere.

The atoms must reach as far as discounted returns do: for an environment that is not here, set ``v_min`` and ``v_max``
first.
"""

from __future__ import annotations

from typing import Any

from zoo.common.schedules import Linear
from zoo.default_params import dqn

COMMON: dict[str, Any] = dqn.COMMON | {
    'double_q': False,
    # The paper's are for clipped rewards; many control tasks give returns of a hundred.
    'v_min': -100.0,
    'v_max': 100.0,
}

TYPES: dict[str, dict[str, Any]] = {
    'atari': dqn.TYPES['atari']
    | {'v_min': -10.0, 'v_max': 10.0, 'optimizer': {'learning_rate': 2.5e-4, 'epsilon': 0.01 / 32, 'clip_norm': None}},
}

TUNED: dict[str, dict[str, Any]] = {
    # DQN's, at a quarter of the rate, with targets that follow half as fast: with half the rate and DQN's targets more
    # seeds failed. Three-step targets: with one step, three of ten seeds had not finished learning at the end. A reward
    # of 1 a step makes a return of 100 at most.
    'CartPole-v1': {key: value for key, value in dqn.TUNED['CartPole-v1'].items() if key != 'kappa'}
    | {
        'batch_size': 64,
        'buffer_size': 100_000,
        'tau': 0.01,
        'n_step': 3,
        'v_min': 0.0,
        'v_max': 100.0,
        'recurrent': {'average_window': 0.0},
        'optimizer': {'learning_rate': Linear(1e-3, 0.0), 'clip_norm': 10.0},
    },
}
