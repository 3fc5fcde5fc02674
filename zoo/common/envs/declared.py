"""Observations in the form that their space declares: cast where an environment gives the same values in another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import VectorWrapper

from zoo.common import spaces
from zoo.common.tools.errors import InvalidValue

log = logging.getLogger('zoo')

#: The classes of the layers of each environment whose casts a log line has told.
_told: set[tuple[str, ...]] = set()


def in_form(
    leaf: spaces.Leaf, x: Any, path: str, lead: tuple[int, ...], who: Callable[[], str], casts: list[str]
) -> Any:
    """Return a part of an observation with the shape and a dtype that fits its leaf; notes in ``casts`` what was cast.

    Args:
        leaf: the space of one copy.
        x: the part as the environment gave it.
        path: where it is in the observation.
        lead: the axes before the leaf's own: the number of copies, or none.
        who: returns the beginning of the message that refuses it.
        casts: takes a few words for a part whose dtype could not hold every value.

    Raises:
        ValueError: another shape, or a value that the leaf's dtype cannot hold.
    """
    if isinstance(x, np.ndarray) and x.dtype == leaf.dtype and x.shape == (*lead, *spaces.shape_of(leaf)):
        return x
    if x.__class__ is int and not lead and isinstance(leaf, Discrete):  # the usual form; its range is checked elsewhere
        return x
    try:
        found = spaces.fitted(leaf, x, lead)
    except InvalidValue as error:
        named = f'{path!r} ' if path else ''
        raise InvalidValue(f'{who()} gave an observation {named}{error}: correct one of the two.') from error
    given = np.asarray(x)
    if np.can_cast(given.dtype, leaf.dtype) or (not isinstance(leaf, Box) and given.dtype.kind in 'iu'):
        return x if given.shape == found.shape else found
    casts.append(f'{f"{path!r} " if path else ""}from {given.dtype} to {leaf.dtype}')
    return found


def observation_in_form(
    space: Space, observation: Any, leaves: Mapping[str, spaces.Leaf], who: Callable[[], str], casts: list[str]
) -> Any:
    """Return a whole observation like this, which stays the same object where nothing is cast.

    ``leaves`` has the leaves of the space. A ValueError also says that a part is missing.
    """
    try:
        flat = spaces.flatten(space, observation)
    except TypeError as error:
        raise InvalidValue(f'{who()}: in the observation {error}') from error
    given = {'': flat} if spaces.is_leaf(space) else flat  # a wrong one may be a dict, too
    found = {path: in_form(leaves[path], x, path, (), who, casts) for path, x in given.items()}
    if all(found[path] is x for path, x in given.items()):
        return observation
    return spaces.unflatten(space, spaces.from_items(space, found))


def tell(env: Any, casts: list[str]) -> None:
    """Log what is cast, once for an environment, its copies, and others that are made of the same classes."""
    if not casts:
        return
    kinds = _layers(env)
    key = tuple(f'{kind.__module__}.{kind.__qualname__}' for kind in kinds)
    if key not in _told:
        _told.add(key)
        log.info(
            'The observations of %s are cast to the dtype of their space: %s. zoo.check_env names all that differs.',
            kinds[0].__name__,
            ', '.join(casts),
        )


def _layers(env: Any) -> list[type]:
    """The classes of an environment and of the wrappers that are neither Gymnasium's nor zoo's, from the outside."""
    found = []
    while isinstance(env, gymnasium.Wrapper | VectorWrapper):
        if not type(env).__module__.startswith(('gymnasium.wrappers.', 'zoo.')):
            found.append(type(env))
        env = env.env
    return [*found, type(env)]
