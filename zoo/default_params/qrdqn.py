"""QR-DQN's defaults: DQN's with the paper's optimiser (Dabney et al. 2018, arXiv 1710.10044).

``TUNED`` starts from the tuned hyper-parameters of RL Baselines3 Zoo (DLR-RM/rl-baselines3-zoo, commit 22e3ff2, MIT
licence); departures are noted.
"""

from __future__ import annotations

from zoo.default_params import dqn

COMMON = dqn.COMMON | {
    'double_q': False,
    # The paper's 200 are for Atari; each costs a row of the head.
    'quantiles': 50,
    'optimizer': dqn.COMMON['optimizer'] | {'epsilon': 0.01 / 32},
}

TYPES = {
    'atari': dqn.TYPES['atari'] | {'quantiles': 200, 'optimizer': {'learning_rate': 5e-5}},
}

TUNED = {}
