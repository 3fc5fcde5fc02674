"""ARS' defaults."""
from __future__ import annotations
from typing import Any
COMMON: dict[str, Any] = {
    'train_steps': 1_000_000,
    'network': {'hidden': [], 'activation': 'tanh'},
    'optimizer': {'name': 'SGD', 'learning_rate': 0.02},
}
TYPES: dict[str, dict[str, Any]] = {}
TUNED: dict[str, dict[str, Any]] = {}
