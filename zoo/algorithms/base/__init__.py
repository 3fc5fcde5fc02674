"""What an algorithm is: the class, its parameters, and how it is built, updated, trained, saved and exported.

An algorithm's file takes :class:`Algorithm` from here. :mod:`zoo.algorithms.base.catalog` has the names of all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.algorithms.base.algorithm import Algorithm, load

__all__ = ['Algorithm', 'load']


def __getattr__(name: str) -> Any:
    """The two names are imported when they are asked for: they bring TensorFlow, and the catalog does without."""
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(importlib.import_module('zoo.algorithms.base.algorithm'), name)
