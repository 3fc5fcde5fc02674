"""What an algorithm is: the class, its parameters, and how it is built, updated, trained, saved and exported.

An algorithm's file takes :class:`Algorithm` from here. :mod:`zoo.algorithms.base.catalog` has the names of all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.algorithms.base.algorithm import Algorithm as Algorithm
    from zoo.algorithms.base.loading import load as load

_HOME = {'Algorithm': 'algorithm', 'load': 'loading'}

__all__ = list(_HOME)  # noqa: PLE0604


if not TYPE_CHECKING:  # where it is seen, any name seems to exist

    def __getattr__(name: str) -> Any:
        """The two names are imported when they are asked for: they bring TensorFlow, and the catalog does without."""
        if name not in _HOME:
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        return getattr(importlib.import_module(f'zoo.algorithms.base.{_HOME[name]}'), name)
