"""TD3+BC's defaults.

``COMMON`` is from Fujimoto and Gu 2021 (arXiv 2106.06860, appendix B), in their code (sfujim/TD3_BC): batches of 256,
Adam at 3e-4, α = 2.5, the hyper-parameters of TD3. d3rlpy 2.8.1 (reproductions/offline/td3_plus_bc.py) and CORL (commit
6afec90, configs/offline/td3_bc) have the same. The paper makes 1,000,000 updates, d3rlpy 500,000, as here. What
concerns learning online is TD3's.
"""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {
    'train_updates': 500_000,
    'train_steps': 1_000_000,
    'batch_size': 256,
    'buffer_size': 1_000_000,
    'explore_steps': 10_000,
    'explore_noise': 0.1,
    'network': {'hidden': [256, 256], 'activation': 'relu'},
    'optimizer': {'name': 'Adam', 'learning_rate': 3e-4},
}

TYPES: dict[str, dict[str, Any]] = {}

TUNED: dict[str, dict[str, Any]] = {
    'Pendulum-v1': {'train_updates': 20_000, 'train_steps': 20_000, 'buffer_size': 20_000, 'explore_steps': 1000},
}
