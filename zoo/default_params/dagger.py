"""DAgger's defaults: BC's network and batches, in ten or more iterations. Ross et al. 2011 take about 20."""

from __future__ import annotations

from typing import Any

from zoo.default_params import bc

COMMON: dict[str, Any] = {
    'train_steps': 20_000,
    'rollout_size': 1000,
    'updates': 1000,
    'buffer_size': 1_000_000,
    **{key: value for key, value in bc.COMMON.items() if key != 'train_updates'},
}

#: Steps of one iteration and labels in all, by environment type.
_LARGE: dict[str, Any] = {'train_steps': 100_000, 'rollout_size': 5000, 'updates': 5000}

TYPES: dict[str, dict[str, Any]] = {
    name: {key: value for key, value in level.items() if key != 'train_updates'} | _LARGE
    for name, level in bc.TYPES.items()
}

TUNED: dict[str, dict[str, Any]] = {
    # As many labels as ten episodes have.
    'CartPole-v1': {'train_steps': 5000, 'rollout_size': 500, 'updates': 200, 'batch_size': 64},
    'Pendulum-v1': {'train_steps': 2000, 'rollout_size': 200, 'updates': 1000},
}
