"""GAILTRPO's defaults: TRPO's, and GAIL's discriminator."""

from __future__ import annotations

from typing import Any

from zoo.default_params import trpo
from zoo.default_params.gail import imitating, with_discriminator

COMMON: dict[str, Any] = with_discriminator(trpo.COMMON)
TYPES: dict[str, dict[str, Any]] = {name: imitating(level) for name, level in trpo.TYPES.items()}
TYPES['atari'] |= {'discriminator_batch': 64}
TUNED: dict[str, dict[str, Any]] = {name: imitating(level) for name, level in trpo.TUNED.items()}
