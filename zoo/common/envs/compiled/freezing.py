"""What an object of pure functions is when it is built, so that no later change reaches a compiled program."""

from __future__ import annotations

import contextlib
import copy
import inspect
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space

#: By the identity of an object: a weak reference to it, and the copies that were made of it.
_MADE: dict[int, tuple[weakref.ref[Any], list[Any]]] = {}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def frozen(functions: Any) -> Any:
    """Return a copy of an object. The copy keeps the attributes that the object and its class have now.

    A step is traced later than ``build_env``, and a program that is compiled keeps the values that it was traced with.
    So programs take their values from the copy. An unchanged object gives the same copy, and nothing is compiled again.
    What an attribute's function refers to by itself, such as a global variable, is not copied.
    """
    found = attributes(functions)
    key = id(functions)

    def forget(_: object) -> None:
        _MADE.pop(key, None)

    _, made = _MADE.setdefault(key, (weakref.ref(functions, forget), []))
    for known in made:
        if same(attributes(known), found):
            return known
    kept = copy.copy(functions)
    memo = {key: kept}  # a bound method among the attributes becomes the copy's own
    for name, value in found.items():
        with contextlib.suppress(Exception):  # what cannot be copied is shared
            value = copy.deepcopy(value, memo)
        vars(kept)[name] = value
    made.append(kept)
    return kept


def attributes(functions: Any) -> dict[str, Any]:
    """Return the attributes of an object and of its classes, without methods and what is private to Python and zoo."""
    found: dict[str, Any] = {}
    for owner in (*reversed([vars(cls) for cls in type(functions).__mro__[:-1]]), vars(functions)):
        of_class = owner is not vars(functions)
        for name, value in owner.items():
            if of_class and (callable(value) or hasattr(value, '__get__')):
                found.pop(name, None)
            elif not name.startswith(('__', '_abc_', '_zoo_')):
                found[name] = value
    return found


def same(one: Any, other: Any, depth: int = 8) -> bool:
    """Return whether two values are equal for a program; False if that cannot be seen."""
    if one is other:
        return True
    if type(one) is not type(other) or depth == 0:
        return False
    if isinstance(one, _PLAIN):
        return bool(one == other or (one != one and other != other))  # NaN is like NaN
    if isinstance(one, np.ndarray | np.generic) or hasattr(one, '__array__'):
        one, other = np.asarray(one), np.asarray(other)
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == 'f')
    if isinstance(one, Space):
        return bool(one == other)
    if inspect.ismethod(one):
        return one.__func__ is other.__func__
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(x, y, depth - 1) for x, y in zip(one, other, strict=True))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key], depth - 1) for key in one)
    if hasattr(one, '__dict__') and not callable(one):
        return same(vars(one), vars(other), depth - 1)
    return False
