"""The algorithms, one file each; a name is imported when it is asked for, so that the list costs nothing."""

from __future__ import annotations

from typing import Any

from zoo.algorithms.base import catalog
from zoo.algorithms.base.catalog import NAMES
from zoo.common.tools.errors import unknown

__all__ = ['NAMES', *NAMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in NAMES:
        return catalog.find(name)
    if name.startswith('__'):
        raise AttributeError(name)
    raise AttributeError(unknown('algorithm', name, NAMES))


def __dir__() -> list[str]:
    return sorted(__all__)
