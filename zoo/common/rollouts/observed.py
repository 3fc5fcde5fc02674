"""Observations of all copies: checked against their space, and copied into buffers that stay as they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

from zoo.common import spaces
from zoo.common.adaptors.observation import ACTION_MASK
from zoo.common.envs import declared
from zoo.common.tools.errors import InvalidValue, NotFinite


class Observed:
    """Checks and copies observations. Methods take the number of the step for their messages.

    Attributes:
        mask: the path of the action mask in the observation; None where it has none.

    Args:
        space, num_envs: of one copy, and the number of copies.
        vector: whether an observation is of all copies of a vector environment.
        maskable: whether actions can be masked.
        tell: is called with a few words for each part of an observation that was cast.
    """

    def __init__(
        self, space: Space, num_envs: int, vector: bool, maskable: bool, tell: Callable[[list[str]], None]
    ) -> None:
        self.space, self.num_envs, self.vector = space, num_envs, vector
        self._maskable, self._tell = maskable, tell
        self._leaves = spaces.leaves(space)
        self._float_leaves = [p for p, leaf in self._leaves.items() if np.issubdtype(leaf.dtype, np.floating)]
        self.mask = ACTION_MASK if ACTION_MASK in self._leaves else None
        self._ranges = {p: _range(leaf) for p, leaf in self._leaves.items() if not isinstance(leaf, Box)}
        if self.mask and maskable:
            self._ranges[ACTION_MASK] = 0, 1
        # A step writes up to two, and the buffers of the two steps before are still read.
        self._spare = deque(spaces.zeros(space, (num_envs,)) for _ in range(6))

    def who(self, step: int, copy: int | None = None) -> str:
        """Return the beginning of a message: the step, and the environment or one copy of it."""
        return f'step {step}: {f"copy {copy} of " if self.vector and copy is not None else ""}the environment'

    def write(self, obs: Any, step: int) -> spaces.Flat:
        """Copy an observation of every copy into a spare buffer, since environments may reuse their arrays.

        Raises:
            ValueError: another shape than declared, a value that its dtype cannot hold, or one outside the space.
        """
        self._spare.rotate(-1)
        buffer = self._spare[-1]
        if self.vector:
            flat = self._flatten(obs, step)
            for path, target in spaces.tree_items(buffer):
                value = flat[path] if path else flat
                value = self._declared(path, value, (self.num_envs,), step)
                if path in self._ranges:
                    self._check_range(path, value, step)
                target[...] = value
        else:
            self.write_copy(buffer, 0, obs, step)
        return buffer

    def write_copy(self, buffer: spaces.Flat, i: int, obs: Any, step: int) -> None:
        """Copy an observation of copy ``i`` into its place in a buffer, with the checks of :meth:`write`."""
        flat = self._flatten(obs, step)
        for path, target in spaces.tree_items(buffer):
            value = flat[path] if path else flat
            value = self._declared(path, value, (), step, i)
            if path in self._ranges:
                self._check_range(path, value, step, i)
            target[i] = value

    def _flatten(self, obs: Any, step: int) -> spaces.Flat:
        try:
            return spaces.flatten(self.space, obs)
        except TypeError as error:
            raise InvalidValue(f"step {step}: in the environment's observation {error}") from error

    def _declared(self, path: str, value: Any, lead: tuple[int, ...], step: int, i: int | None = None) -> Any:
        """Return a part in its declared form; a ``Discrete`` may be any integer."""
        casts: list[str] = []
        found = declared.in_form(self._leaves[path], value, path, lead, partial(self.who, step, i), casts)
        if casts:
            self._tell(casts)
        return found

    def _check_range(self, path: str, value: Any, step: int, i: int | None = None) -> None:
        """Check that every entry is in its space: acting and learning would each read another value in its place."""
        low, high = self._ranges[path]
        if value.__class__ not in (int, np.ndarray):
            value = np.asarray(value)
        is_mask = path == self.mask and self._maskable
        outside = (value != low) & (value != high) if is_mask else (value < low) | (value > high)
        if outside is False or not (outside is True or outside.any()):
            return
        value, outside = np.asarray(value), np.asarray(outside)  # of a number
        at = np.unravel_index(np.argmax(outside), outside.shape)
        copy, entry = (i, at) if i is not None else (int(at[0]), at[1:])
        low, high = (np.broadcast_to(bound, spaces.shape_of(self._leaves[path]))[entry] for bound in (low, high))
        where = f' in entry {", ".join(map(str, map(int, entry)))}' if entry else ''
        wrong = '1 allows an action, and 0 forbids it'
        if not is_mask:
            wrong = f'its space reaches from {low} to {high}: correct one of the two'
        raise InvalidValue(
            f'{self.who(step, copy)} gave an observation {path and f"{path!r} "}with the value {value[at]}{where}, but '
            f'{wrong}.'
        )

    def check_finite(self, obs: spaces.Flat, step: int) -> None:
        """Raise a FloatingPointError where an entry is NaN or infinite."""
        for path in self._float_leaves:
            x = obs[path] if path else obs
            if not np.isfinite(x).all():
                raise self.not_finite(f'an observation {path and f"{path!r} "}that is', x, step)

    def not_finite(self, what: str, values: np.ndarray, step: int) -> FloatingPointError:
        """Return the error for values ``[N, …]`` that are not all finite."""
        finite = np.isfinite(values).reshape(self.num_envs, -1)
        copy = int(np.flatnonzero(~finite.all(1))[0])
        value = values.reshape(self.num_envs, -1)[copy][~finite[copy]][0]
        return NotFinite(f'{self.who(step, copy)} gave {what} {value}.')


def _range(leaf: Space) -> tuple[Any, Any]:
    """Return the least and the greatest value of a leaf other than a ``Box``."""
    if isinstance(leaf, Discrete):
        return int(leaf.start), int(leaf.start) + int(leaf.n) - 1
    return (leaf.start, leaf.start + leaf.nvec - 1) if isinstance(leaf, MultiDiscrete) else (0, 1)
