"""The action adaptor: from the action space to the policy's distribution, and from its sample to the environment.

==================  =====================================  ==========================================================
space               distribution                           stored action (the policy's own units)
==================  =====================================  ==========================================================
``Discrete``        categorical                            index from 0, int32 ``[…]``
``MultiDiscrete``   independent categoricals               indices from 0, int32 ``[…, k]``
``MultiBinary``     independent Bernoullis                 0 or 1, int32 ``[…, k]``
``Box``             diagonal Gaussian, tanh-squashed for   float32 ``[…, n]``; −1 and 1 stand for the bounds; where any
                    algorithms that ask for it             entry lacks one, one unit is one unit in all
``Dict``, ``Tuple`` the product of its leaves'             dict of these by path
==================  =====================================  ==========================================================

A Gaussian sample may lie outside the bounds. It is stored as drawn, so that its log-probability is right, and clipped
only on its way to the environment. A range of more than ``spaces.WIDEST_RANGE`` is refused: some environments write "no
bound" as a large number, which would become the scale of an action.

Acting samples in NumPy (:mod:`zoo.common.adaptors.parts`). The same distributions as tensors, for the losses, are in
:mod:`zoo.common.maths.distributions`. Acting imports no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple

from zoo.common import spaces
from zoo.common.adaptors import parts
from zoo.common.tools.errors import InvalidValue

if TYPE_CHECKING:
    from zoo.common.maths.distributions import Distribution


class ActionAdaptor:
    """Everything that depends on the action space.

    Args:
        space: the action space of a single environment.
        squash: squash Gaussians by tanh, as SAC does; needs bounds.

    Raises:
        TypeError: a leaf that is no space of arrays.
        ValueError: a ``Box`` without entries or with a range of more than ``spaces.WIDEST_RANGE``, or more values than
            ``parts.MOST_CHOICES``.
    """

    def __init__(self, space: Space, squash: bool = False) -> None:
        self.space = space
        self.leaves = spaces.leaves(space)
        self.parts = [parts.part_of(path, leaf, squash) for path, leaf in self.leaves.items()]
        boxes = {path: leaf for path, leaf in self.leaves.items() if isinstance(leaf, Box)}
        self._scale = {path: _scale(path, leaf) for path, leaf in boxes.items()}
        self._limits = {path: _limits(leaf) for path, leaf in boxes.items()}

    @property
    def param_size(self) -> int:
        """Length of the whole parameter vector; the parts follow each other in the order of ``parts``."""
        return sum(part.param_size for part in self.parts)

    @cached_property
    def param_bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Bounds ``[param_size]``, float32, of a network's output; None without Gaussians."""
        if not any('gaussian' in part.kind for part in self.parts):
            return None
        low = np.full(self.param_size, -np.inf, np.float32)
        high = np.full(self.param_size, np.inf, np.float32)
        offset = 0
        for part in self.parts:
            offset += part.param_size
            if 'gaussian' in part.kind:
                low[offset - part.size : offset], high[offset - part.size : offset] = parts.LOG_STD_BOUNDS
        return low, high

    @property
    def maskable(self) -> bool:
        """Whether an action mask can apply: the space is a ``Discrete``, ``MultiDiscrete`` or ``MultiBinary``."""
        return spaces.is_leaf(self.space) and 'gaussian' not in self.parts[0].kind

    @cached_property
    def distribution(self) -> Distribution:
        """The distribution as pure functions of tensors."""
        from zoo.common.maths import distributions as d

        made = {
            'categorical': lambda part: d.Categorical(part.counts[0]),
            'multi_categorical': lambda part: d.MultiCategorical(part.counts),
            'bernoulli': lambda part: d.Bernoulli(part.size),
            'gaussian': lambda part: d.DiagGaussian(part.size),
            'squashed_gaussian': lambda part: d.SquashedGaussian(part.size),
        }
        if spaces.is_leaf(self.space):
            return made[self.parts[0].kind](self.parts[0])
        return d.Product(tuple((part.path, made[part.kind](part)) for part in self.parts))

    def __getstate__(self) -> dict[str, Any]:
        """For pickling: without the distribution, which needs TensorFlow."""
        return {name: value for name, value in self.__dict__.items() if name != 'distribution'}

    def zeros(self, lead: tuple[int, ...]) -> spaces.Flat:
        """Storage for stored actions with the leading axes ``lead``."""
        items = {}
        for part in self.parts:
            shape = lead if part.kind == 'categorical' else (*lead, part.size)
            items[part.path] = np.zeros(shape, np.float32 if 'gaussian' in part.kind else np.int32)
        return spaces.from_items(self.space, items)

    def mode(self, params: np.ndarray) -> spaces.Flat:
        """The most likely action; for a squashed Gaussian the squashed mean. ``params`` is ``[N, param_size]``."""
        return self._by_part(params, parts.mode, None)

    def sample(self, params: np.ndarray, rng: np.random.Generator) -> spaces.Flat:
        """Independent samples for parameters ``[N, param_size]``."""
        return self._by_part(params, parts.sample, rng)

    def best(self, outputs: np.ndarray) -> spaces.Flat:
        """The most likely action for logits and means ``[N, …]`` alone, without log standard deviations."""
        return self._by_part(outputs, parts.mode, None, [part.outputs for part in self.parts])

    def _by_part(
        self, params: np.ndarray, draw: Any, rng: np.random.Generator | None, sizes: Sequence[int] | None = None
    ) -> spaces.Flat:
        if len(self.parts) == 1:
            action = draw(self.parts[0], params, rng)
            return action if self.parts[0].path == '' else {self.parts[0].path: action}
        items, offset = {}, 0
        for part, size in zip(self.parts, sizes or [part.param_size for part in self.parts], strict=True):
            items[part.path] = draw(part, params[:, offset : offset + size], rng)
            offset += size
        return items

    def random(self, n: int, rng: np.random.Generator) -> spaces.Flat:
        """``n`` uniformly random stored actions; standard normal ones for a ``Box`` without bounds."""
        items: dict[str, Any] = {}
        for part in self.parts:
            if part.kind == 'categorical':
                items[part.path] = rng.integers(part.counts[0], size=n, dtype=np.int32)
            elif part.kind == 'multi_categorical':
                items[part.path] = rng.integers(part.counts, size=(n, part.size), dtype=np.int32)
            elif part.kind == 'bernoulli':
                items[part.path] = rng.integers(2, size=(n, part.size), dtype=np.int32)
            elif self._scale[part.path] is None:
                items[part.path] = rng.standard_normal((n, part.size), dtype=np.float32)
            else:
                items[part.path] = rng.uniform(-1.0, 1.0, (n, part.size)).astype(np.float32)
        return spaces.from_items(self.space, items)

    def to_env(self, action: spaces.Flat) -> Any:
        """Stored actions ``[N, …]`` in the form that a vector environment of ``N`` copies takes."""
        if not isinstance(action, dict):
            path = self.parts[0].path
            return self._leaf_to_env(path, self.leaves[path], action)
        flat = {path: self._leaf_to_env(path, leaf, action[path]) for path, leaf in self.leaves.items()}
        return spaces.unflatten(self.space, flat)

    def from_env(self, action: spaces.Flat) -> spaces.Flat:
        """Stored actions for flat actions ``[N, *shape]`` in the environment's units: the inverse of :meth:`to_env`.

        Raises:
            ValueError: an action outside the space.
        """
        given = dict(spaces.tree_items(action))
        items = {part.path: self.part_from_env(part.path, given[part.path]) for part in self.parts}
        return spaces.from_items(self.space, items)

    def part_from_env(self, path: str, action: np.ndarray) -> np.ndarray:
        """`from_env` for one part of the space."""
        part, leaf, action = self._part(path), self.leaves[path], np.asarray(action)
        flat = action.reshape(len(action), -1)
        where = f' {path!r}' if path else ''
        counted = not isinstance(leaf, Box)
        if flat.shape[1] != part.size or (counted and flat.dtype.kind == 'f' and (flat != np.rint(flat)).any()):
            raise InvalidValue(f'the action{where} is {action[0]}, which is not in {spaces.describe(leaf)}.')
        found = self.stored_part(path, action)
        if isinstance(leaf, Box):
            low, high = spaces.bounds(leaf)
            slack = 1e-5 * np.maximum(1.0, np.abs(flat))  # a digit of float32, which another scaling may cost
            inside = (flat >= low.ravel() - slack) & (flat <= high.ravel() + slack)
        else:
            values = flat.astype(np.int64) - np.ravel(getattr(leaf, 'start', 0))
            inside = (values >= 0) & (values < np.array(part.counts or (2,)))
        if not inside.all():
            raise InvalidValue(
                f'the action{where} has the value {flat[~inside][0]}, which is not in {spaces.describe(leaf)}.'
            )
        return found

    def stored_part(self, path: str, action: np.ndarray) -> np.ndarray:
        """Return stored actions of one part, ``[N]`` or ``[N, n]``, for the environment's; they are not checked."""
        part, leaf = self._part(path), self.leaves[path]
        flat = action.reshape(len(action), -1)
        if isinstance(leaf, Box):
            scale = self._scale[path]
            found = flat if scale is None else (flat - scale[0]) / np.where(scale[1] == 0, 1, scale[1])
            return found.astype(np.float32)
        found = (flat.astype(np.int64) - np.ravel(getattr(leaf, 'start', 0))).astype(np.int32)
        return found[:, 0] if part.kind == 'categorical' else found

    @property
    def encoded_size(self) -> int:
        """Entries of :meth:`encoded`."""
        return sum(part.outputs for part in self.parts)

    def encoded(self, action: spaces.Flat) -> np.ndarray:
        """Stored actions as a network takes them that sees actions too, float32 ``[N, encoded_size]``.

        A choice is one-hot, a switch is 0 or 1. The entries of a ``Box`` are stored actions as the environment takes
        them, within the bounds.
        """
        taken = self.from_env(spaces.flatten(self.space, self.to_env(action)))
        items, pieces = dict(spaces.tree_items(taken)), []
        for part in self.parts:
            x = items[part.path].reshape(-1, part.size)
            hot = [x[:, i, None] == np.arange(n) for i, n in enumerate(part.counts)]
            pieces += [piece.astype(np.float32) for piece in hot or [x]]
        return np.concatenate(pieces, -1)

    def _part(self, path: str) -> parts.Part:
        return next(part for part in self.parts if part.path == path)

    def to_single_env(self, action: spaces.Flat) -> Any:
        """A stored action ``[1, …]`` in the form that a single environment takes."""
        return self.single(self.to_env(action))

    def single(self, batch: Any) -> Any:
        """The only element of a batch of one, in the environment's form."""
        return _first(self.space, batch)

    def _leaf_to_env(self, path: str, leaf: spaces.Leaf, action: np.ndarray) -> np.ndarray:
        if isinstance(leaf, Box):
            scale = self._scale[path]
            if scale is not None:
                action = scale[0] + scale[1] * action
            # After scaling, whose rounding may step over a bound. Two calls, since np.clip costs twice as much.
            low, high = self._limits[path]
            action = np.minimum(np.maximum(action.reshape(len(action), *leaf.shape), low), high)
            if leaf.dtype.kind in 'iub':
                action = np.rint(action)
            return action.astype(leaf.dtype, copy=False)
        if isinstance(leaf, Discrete):
            return action.astype(leaf.dtype) + leaf.start
        if isinstance(leaf, MultiDiscrete):
            return (action.reshape(len(action), *leaf.shape) + leaf.start).astype(leaf.dtype)
        return action.reshape(len(action), *leaf.shape).astype(leaf.dtype)

    def tensors_to_env(self, action: spaces.Flat, float32: bool = False) -> dict[str, Any]:
        """`to_env` for tensors, traced into an exported agent: by path, ``[N, *shape]`` in the dtype of the space.

        ``float32`` computes in float32 even if the space has more digits, for runtimes without float64.
        """
        given = dict(spaces.tree_items(action))
        return {path: self._leaf_tensor(path, leaf, given[path], float32) for path, leaf in self.leaves.items()}

    def _leaf_tensor(self, path: str, leaf: spaces.Leaf, action: Any, float32: bool) -> Any:
        import tensorflow as tf

        if isinstance(leaf, Box):
            low, high = (bound.ravel() for bound in self._limits[path])
            dtype = np.float32 if float32 or leaf.dtype == np.float32 else np.float64
            if dtype == np.float32:
                low, high = _inward(low, high)
            found, scale = tf.cast(action, dtype), self._scale[path]
            if scale is not None:
                found = scale[0].astype(dtype) + scale[1].astype(dtype) * found
            found = tf.minimum(tf.maximum(found, low.astype(dtype)), high.astype(dtype))
            found = tf.round(found) if leaf.dtype.kind in 'iub' else found  # halves to even, like NumPy's rint
        else:
            found = tf.cast(action, tf.int64)
            start = np.ravel(getattr(leaf, 'start', 0)).astype(np.int64)
            found = found + (start[0] if isinstance(leaf, Discrete) else start) if start.any() else found
        return tf.reshape(tf.cast(found, leaf.dtype), [-1, *spaces.shape_of(leaf)])

    def is_scaled(self, path: str) -> bool:
        """Whether −1 and 1 stand for the bounds of the ``Box`` at a path."""
        return self._scale[path] is not None

    @property
    def bounded(self) -> bool:
        """Whether every ``Box`` in the space has finite bounds on both sides."""
        return all(scale is not None for scale in self._scale.values())


def mismatch(own: Space, found: Space) -> str | None:
    """Why an agent for ``own`` cannot act in ``found``: what follows "the environment's action_space"; None if it can.

    Actions are scaled to the bounds, so with other bounds they mean something else.
    """
    reason = spaces.mismatch(own, found)
    if reason is not None:
        return reason
    theirs = spaces.leaves(found)
    for path, mine in spaces.leaves(own).items():
        if isinstance(mine, Box):
            seen, known = spaces.bounds(cast(Box, theirs[path])), spaces.bounds(mine)
            if not np.array_equal(seen, known):
                where = f' in {path!r}' if path else ''
                return (
                    f"goes {spaces.describe_range(*seen)}{where}, but this agent's actions go "
                    f'{spaces.describe_range(*known)}'
                )
    return None


def _scale(path: str, leaf: Box) -> tuple[np.ndarray, np.ndarray] | None:
    """Centre and half-range of a bounded ``Box``, flat; None when a bound is missing."""
    if not leaf.is_bounded():
        return None
    low, high = leaf.low.ravel().astype(np.float64), leaf.high.ravel().astype(np.float64)
    wide = np.flatnonzero(high / 2 - low / 2 > spaces.WIDEST_RANGE / 2)
    if wide.size:
        reach = spaces.describe_range(low[wide[0]], high[wide[0]])
        raise InvalidValue(
            f'{parts.named(path, leaf)}, reaches {reach}, but bounds that actions are scaled to may be at most '
            f'{spaces.WIDEST_RANGE:g} apart: wrap the environment in gymnasium.wrappers.TransformAction with the '
            'bounds that its actions have, or with -inf and inf where they have none.'
        )
    dtype = np.float32 if leaf.dtype == np.float32 else np.float64  # large integers need the digits
    return ((low + high) / 2).astype(dtype), ((high - low) / 2).astype(dtype)


def _limits(leaf: Box) -> tuple[np.ndarray, np.ndarray]:
    """The bounds to which actions are clipped, in the dtype of actions."""
    if leaf.dtype.kind not in 'iu':
        return leaf.low, leaf.high
    low, high = leaf.low.astype(np.float64), leaf.high.astype(np.float64)
    # Rounded to float64, the largest int64 is one too large for its dtype. Python compares integers and floats exactly.
    beyond = np.asarray(high.astype(object) > leaf.high.astype(object), bool)
    return low, np.where(beyond, np.nextafter(high, -np.inf), high)


def _inward(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bounds in float32, rounded inward."""
    down, up = low.astype(np.float32), high.astype(np.float32)
    down = np.where(down.astype(np.float64) < low, np.nextafter(down, np.float32(np.inf)), down)
    return down, np.where(up.astype(np.float64) > high, np.nextafter(up, np.float32(-np.inf)), up)


def _first(space: Space, batch: Any) -> Any:
    if isinstance(space, Box):
        return batch[0, ...]  # an array even where the shape is ()
    if spaces.is_leaf(space):
        return batch[0]
    if isinstance(space, Dict):
        return {key: _first(space[key], value) for key, value in batch.items()}
    return tuple(_first(part, value) for part, value in zip(cast(Tuple, space).spaces, batch, strict=True))
