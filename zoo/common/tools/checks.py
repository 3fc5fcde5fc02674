"""Checks of numbers that users give."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from zoo.common.tools.errors import InvalidValue


def whole(name: str, value: Any) -> int:
    """Return ``value`` as an int if it is a whole number of at least 1; else a ValueError calls it ``name``."""
    if not is_integer(value, 1):
        raise InvalidValue(f'{name} is {value!r}: give a whole number of at least 1.')
    return int(value)


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether ``function`` can be called with so many arguments; True if Python cannot tell."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a built-in function without a signature
        return True
    return True


def is_integer(value: Any, least: int) -> bool:
    """Whether ``value`` is an integer, also NumPy's but no bool, of at least ``least``."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def number(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a number and not NaN; else a ValueError calls it ``name``."""
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
        raise InvalidValue(f'{name} is {value!r}: give a number.')
    return float(value)
