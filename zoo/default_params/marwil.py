"""MARWIL's defaults: BC's, with β of 1 as in most of the experiments of Wang et al. 2018."""

from __future__ import annotations

from typing import Any

from zoo.default_params import bc

COMMON: dict[str, Any] = {key: value for key, value in bc.COMMON.items() if key != 'recurrent'}
TYPES: dict[str, dict[str, Any]] = bc.TYPES
TUNED: dict[str, dict[str, Any]] = bc.TUNED
