"""The first observation of an environment, and the leaves of its space: checked and replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import gymnasium
from gymnasium import Space
from gymnasium.spaces import Dict, Tuple
from gymnasium.vector import VectorEnv

from zoo.common import spaces
from zoo.common.envs import answers, declared
from zoo.common.tools.errors import InvalidType


def seeded_reset(env: gymnasium.Env | VectorEnv, name: str, seed: int | None) -> dict[str, Any]:
    """Seed an environment and its action space, and return ``info``; refuse an observation of another form."""
    for space in ('observation_space', 'action_space'):
        missing = answers.no_space(env, space)
        if missing is not None:
            raise InvalidType(f'{name}: {missing}')
    try:
        result = env.reset(seed=seed)
    except TypeError as error:
        answers.refuse_reset(error, env, name)
        raise
    except OverflowError as error:
        raise answers.own_fault(f'{name} cannot be reset', error) from error
    observation, info = answers.first(result, name)
    env.action_space.seed(seed)
    leaves = declared_leaves(env.observation_space)
    if leaves is not None:
        casts: list[str] = []
        declared.observation_in_form(env.observation_space, observation, leaves, lambda: name, casts)
        declared.tell(env, casts)
    return info


def declared_leaves(space: Space) -> dict[str, spaces.Leaf] | None:
    """Return the leaves of a space; None if it has no fixed-size array form, which agents refuse."""
    try:
        return spaces.leaves(space)
    except TypeError:
        return None


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
