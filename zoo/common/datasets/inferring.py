"""Spaces inferred from arrays, where the form of the data does not say them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from zoo.common.tools.errors import InvalidValue

log = logging.getLogger('zoo')


def undeclared(observation_space: Space | None, action_space: Space | None) -> tuple[str, ...]:
    """Return which of the spaces are inferred, because they are None."""
    kinds = {'observation_space': observation_space, 'action_space': action_space}
    return tuple(kind for kind, space in kinds.items() if space is None)


def infer_observation_space(name: str, parts: Sequence[Any]) -> Space:
    """Return the space of observations.

    ======================================  =====================================================================
    array of an observation                 space
    ======================================  =====================================================================
    numbers with a point                    ``Box`` without bounds; float16 becomes float32
    uint8 of two axes or more, an image     ``Box`` from 0 to 255
    bool                                    ``MultiBinary``
    one integer                             ``Discrete``, of the largest number seen and one more
    several integers                        ``Box`` of what their dtype holds
    a dict, a tuple                         ``Dict``, ``Tuple`` of these
    ======================================  =====================================================================

    Args:
        name: of the data, for messages.
        parts: the observations of each episode, with an axis of steps first; nested as an observation is.

    Raises:
        ValueError: no space is safe to infer.
    """
    return _inferred(f"of '{name}' the observation", parts, _observation_leaf)


def infer_action_space(name: str, parts: Sequence[Any]) -> Space:
    """Return the space of actions: as :func:`infer_observation_space`, but numbers have bounds where that is safe.

    Several integers become a ``MultiDiscrete``. Numbers with a point become a ``Box`` from -1 to 1 if all lie there,
    else one without bounds. Both are logged, since algorithms that squash their actions need the right bounds.
    """
    return _inferred(f"of '{name}' the action", parts, _action_leaf)


def _inferred(what: str, parts: Sequence[Any], leaf: Any) -> Space:
    first = parts[0]
    if isinstance(first, Mapping):
        return Dict([(key, _inferred(f'{what} {key!r}', [part[key] for part in parts], leaf)) for key in first])
    if isinstance(first, tuple):
        return Tuple([_inferred(f'{what} {i}', [part[i] for part in parts], leaf) for i in range(len(first))])
    arrays = [np.asarray(part) for part in parts]
    dtype, shapes = np.result_type(*arrays), {x.shape[1:] for x in arrays}
    if dtype.kind not in 'biuf':
        raise InvalidValue(f'{what} is of dtype {dtype}, which no space of numbers has: give numbers.')
    if len(shapes) > 1:
        told = ' and '.join(map(str, sorted(shapes, key=str)[:2]))
        raise InvalidValue(f'{what} has the shapes {told}: all have to have one shape.')
    found: Space = leaf(what, arrays, dtype, shapes.pop())
    return found


def _binary(shape: tuple[int, ...]) -> MultiBinary:
    return MultiBinary(shape[0] if len(shape) == 1 else shape or 1)


def _float(dtype: np.dtype) -> Any:
    return np.float64 if dtype.itemsize > 4 else np.float32


def _observation_leaf(what: str, arrays: list[np.ndarray], dtype: np.dtype, shape: tuple[int, ...]) -> Space:
    if dtype.kind == 'f':
        return Box(-np.inf, np.inf, shape, _float(dtype))
    if dtype.kind == 'b':
        return _binary(shape)
    if dtype == np.uint8 and len(shape) > 1:
        return Box(0, 255, shape, np.uint8)
    if shape in ((), (1,)):
        return _counted(what, arrays, 'observation_space')
    limits = np.iinfo(dtype)
    return Box(limits.min, limits.max, shape, dtype.type)


def _action_leaf(what: str, arrays: list[np.ndarray], dtype: np.dtype, shape: tuple[int, ...]) -> Space:
    if dtype.kind == 'b':
        return _binary(shape)
    if dtype.kind != 'f':
        if shape in ((), (1,)):
            return _counted(what, arrays, 'action_space')
        lowest, highest = (np.stack([getattr(x, side)(0) for x in arrays if len(x)]) for side in ('min', 'max'))
        _check_counted(what, int(lowest.min()), 'action_space')
        return MultiDiscrete(highest.max(0) + 1)
    largest = max((float(np.abs(x).max()) for x in arrays if x.size), default=0.0)
    if largest <= 1.0:
        log.info('%s lies in [-1, 1] always: these are taken as its bounds. action_space=… gives others.', what)
        return Box(-1.0, 1.0, shape, _float(dtype))
    log.warning(
        '%s goes beyond [-1, 1], to %g, and no bounds are known: give action_space=…, which algorithms that squash '
        'their actions need.',
        what,
        largest,
    )
    return Box(-np.inf, np.inf, shape, _float(dtype))


def _counted(what: str, arrays: list[np.ndarray], argument: str) -> Discrete:
    lowest, highest = (
        int(getattr(np, side)([getattr(x, side)() for x in arrays if x.size])) for side in ('min', 'max')
    )
    _check_counted(what, lowest, argument)
    return Discrete(highest + 1)


def _check_counted(what: str, lowest: int, argument: str) -> None:
    if lowest < 0:
        raise InvalidValue(f'{what} has the value {lowest}, but choices are counted from 0: give {argument}=….')
