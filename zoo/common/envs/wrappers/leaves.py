"""Leaves of observations: their declared spaces, checked and replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, MultiBinary, Tuple
from gymnasium.vector import VectorEnv

from zoo.common import spaces
from zoo.common.envs import answers
from zoo.common.tools.errors import InvalidValue


def seeded_reset(env: gymnasium.Env | VectorEnv, name: str, seed: int | None) -> dict[str, Any]:
    """Seed an environment and its action space, and return ``info``; refuse an observation outside its space."""
    observation, info = answers.first(env.reset(seed=seed), name)
    env.action_space.seed(seed)
    declared = declared_leaves(env.observation_space)
    if declared is not None:
        check_observation(env.observation_space, observation, name, declared)
    return info


def declared_leaves(space: Space) -> dict[str, spaces.Leaf] | None:
    """Return the leaves of a space; None if it has no fixed-size array form, which agents refuse."""
    try:
        return spaces.leaves(space)
    except TypeError:
        return None


def check_observation(space: Space, observation: Any, name: str, declared: Mapping[str, Space]) -> None:
    """Refuse, by a ValueError, an observation with another structure, shape or dtype than its space.

    A dtype fits if it can be cast without loss, as for ``space.contains``. Bounds are not checked, because many
    environments overstep their bounds by a little. ``declared`` has the leaves of the space.
    """
    try:
        flat = spaces.flatten(space, observation)
    except TypeError as error:
        raise InvalidValue(f'{name}: in the observation {error}') from error
    for path, found in spaces.tree_items(flat):
        leaf, found = declared[path], np.asarray(found)
        if found.shape != leaf.shape or not _fits(found.dtype, leaf):
            part = f' {path!r}' if path else ''
            mend = f'return x.astype(np.{leaf.dtype})' if found.shape == leaf.shape else 'change one of the two'
            raise InvalidValue(
                f'{name}: the observation{part} has shape {found.shape} and dtype {found.dtype}, '
                f'but its space declares shape {leaf.shape} and dtype {leaf.dtype}: {mend}.'
            )


def _fits(dtype: np.dtype, leaf: Space) -> bool:
    if isinstance(leaf, Box):
        return np.can_cast(dtype, leaf.dtype)
    return dtype.kind in ('biu' if isinstance(leaf, MultiBinary) else 'iu')


def replace_leaves(space: Space, leaves: Mapping[str, Space], prefix: str = '') -> Space:
    """Return a space of the same structure with other leaves, given by path."""
    if spaces.is_leaf(space):
        return leaves[prefix]
    parts: Iterable[tuple[Any, Space]]
    parts = space.spaces.items() if isinstance(space, Dict) else enumerate(cast(Tuple, space).spaces)
    replaced: dict[Any, Space] = {
        key: replace_leaves(part, leaves, f'{prefix}/{key}' if prefix else str(key)) for key, part in parts
    }
    return Dict(replaced) if isinstance(space, Dict) else Tuple(list(replaced.values()))
