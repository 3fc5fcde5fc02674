"""ES' defaults."""
from __future__ import annotations
from typing import Any
COMMON: dict[str, Any] = {
    'train_steps': 1_000_000,
    'network': {'hidden': [64, 64], 'activation': 'tanh'},
    'optimizer': {'name': 'Adam', 'learning_rate': 1e-2},
}
TYPES: dict[str, dict[str, Any]] = {}
TUNED: dict[str, dict[str, Any]] = {}
