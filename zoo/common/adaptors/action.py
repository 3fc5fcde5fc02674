"""The action adaptor: from the action space to the policy's distribution, and from its sample to the environment.

==================  =====================================  ==========================================================
space               distribution                           stored action (the policy's own units)
==================  =====================================  ==========================================================
``Discrete``        categorical                            index from 0, int32 ``[…]``
``MultiDiscrete``   independent categoricals               indices from 0, int32 ``[…, k]``
``MultiBinary``     independent Bernoullis                 0 or 1, int32 ``[…, k]``
``Box``             diagonal Gaussian, tanh-squashed for   float32 ``[…, n]``; −1 and 1 stand for the bounds; where any
                    algorithms that ask for it             entry lacks one, one unit is one unit in all
``Dict``, ``Tuple`` the product of its leaves'             dict of the above by path
==================  =====================================  ==========================================================

A Gaussian sample may lie outside the bounds: it is stored as drawn, so that its log-probability is right, and clipped
only on its way to the environment, at each bound that there is. A range of more than ``spaces.WIDEST_RANGE`` is
refused: the numbers that mean "no bound" to some environments would become the size of an action.

Sampling for acting is done here in NumPy, a few microseconds a step; the same distributions as tensors, for the losses,
are in :mod:`zoo.common.maths.distributions`. Nothing here imports TensorFlow, but for masks of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from zoo.common import spaces

if TYPE_CHECKING:
    from zoo.common.maths.distributions import Distribution

#: Logits of forbidden actions: finite, so that entropies of masked distributions stay finite too.
MASKED_LOGIT = -1e9

#: NumPy's float32 exponential is exactly 0 once in some ten million draws, and stands for what is below the smallest
#: that it gives otherwise: a greater lead would let an action win that is next to impossible, or even forbidden.
_SMALLEST = np.float32(2.0**-26)

#: Actions to choose from are counted in int32.
MOST_CHOICES = 2**31 - 1

#: Bounds of a log standard deviation that a network puts out (Haarnoja et al. 2018 in their code, and Spinning Up).
LOG_STD_BOUNDS = (-20.0, 2.0)


#: What is added to the variance of state-dependent exploration, lest its logarithm be infinite.
SDE_EPSILON = 1e-6


@dataclass(frozen=True)
class Part:
    """One leaf of the action space.

    Attributes:
        path: its path, ``''`` when the space is this leaf.
        kind: ``'categorical'``, ``'multi_categorical'``, ``'bernoulli'``, ``'gaussian'`` or ``'squashed_gaussian'``.
        size: entries of the stored action.
        counts: for the categoricals, the number of values of each entry.
    """

    path: str
    kind: str
    size: int
    counts: tuple[int, ...] = ()

    @property
    def outputs(self) -> int:
        """Numbers that a network has to give: logits, or means (a Gaussian's log standard deviation is extra)."""
        return sum(self.counts) if self.counts else self.size

    @property
    def param_size(self) -> int:
        """Length of the distribution's parameter vector."""
        return 2 * self.size if 'gaussian' in self.kind else self.outputs


class ActionAdaptor:
    """Everything that depends on the action space.

    Args:
        space: the environment's (single) action space.
        squash: squash Gaussians by tanh, as SAC does; needs bounds.

    Raises:
        TypeError: a leaf that is no space of arrays.
        ValueError: a ``Box`` without entries or with a range of more than ``spaces.WIDEST_RANGE``, or more values than
            `MOST_CHOICES`.
    """

    def __init__(self, space: Space, squash: bool = False) -> None:
        self.space = space
        self.leaves = spaces.leaves(space)
        self.parts = [_part(path, leaf, squash) for path, leaf in self.leaves.items()]
        boxes = {path: leaf for path, leaf in self.leaves.items() if isinstance(leaf, Box)}
        self._scale = {path: _scale(path, leaf) for path, leaf in boxes.items()}
        self._limits = {path: _limits(leaf) for path, leaf in boxes.items()}

    @property
    def param_size(self) -> int:
        """Length of the whole parameter vector; the parts follow each other in the order of ``parts``."""
        return sum(part.param_size for part in self.parts)

    @cached_property
    def param_bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Bounds ``[param_size]``, float32, of what a network puts out; None where there are none."""
        if not any('gaussian' in part.kind for part in self.parts):
            return None
        low = np.full(self.param_size, -np.inf, np.float32)
        high = np.full(self.param_size, np.inf, np.float32)
        offset = 0
        for part in self.parts:
            offset += part.param_size
            if 'gaussian' in part.kind:
                low[offset - part.size : offset], high[offset - part.size : offset] = LOG_STD_BOUNDS
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
        """For pickling: without the distribution, which would bring TensorFlow along."""
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
        return self._by_part(params, _mode, None)

    def sample(self, params: np.ndarray, rng: np.random.Generator) -> spaces.Flat:
        """Independent samples for parameters ``[N, param_size]``."""
        return self._by_part(params, _sample, rng)

    def best(self, outputs: np.ndarray) -> spaces.Flat:
        """As `mode`, of logits and means alone, without what says how far a Gaussian spreads.

        Args:
            outputs: ``[N, …]``, of each part as many numbers as its ``outputs``.
        """
        return self._by_part(outputs, _mode, None, [part.outputs for part in self.parts])

    def _by_part(
        self,
        params: np.ndarray,
        draw: Any,
        rng: np.random.Generator | None,
        sizes: Sequence[int] | None = None,
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
        """``n`` uniformly random stored actions; where a ``Box`` has no bounds, standard normal."""
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
        """The inverse of :meth:`to_env`, for actions of others: flat, ``[N, *shape]`` in the environment's own units.

        Raises:
            ValueError: an action outside the space.
        """
        given = dict(spaces.tree_items(action))
        items = {part.path: self._leaf_from_env(part, self.leaves[part.path], given[part.path]) for part in self.parts}
        return spaces.from_items(self.space, items)

    def _leaf_from_env(self, part: Part, leaf: spaces.Leaf, action: np.ndarray) -> np.ndarray:
        flat = np.asarray(action).reshape(len(action), -1)
        where = f' {part.path!r}' if part.path else ''
        counted = not isinstance(leaf, Box)
        if flat.shape[1] != part.size or (counted and flat.dtype.kind == 'f' and (flat != np.rint(flat)).any()):
            raise ValueError(f'the action{where} is {np.asarray(action)[0]}, which is not in {spaces.describe(leaf)}.')
        if isinstance(leaf, Box):
            low, high = spaces.bounds(leaf)
            slack = 1e-5 * np.maximum(1.0, np.abs(flat))  # a digit of float32, as by a scaling of others
            inside = (flat >= low.ravel() - slack) & (flat <= high.ravel() + slack)
            scale = self._scale[part.path]
            found = (flat if scale is None else (flat - scale[0]) / np.where(scale[1] == 0, 1, scale[1])).astype(
                np.float32
            )
        else:
            found = flat.astype(np.int64) - np.ravel(getattr(leaf, 'start', 0))
            inside = (found >= 0) & (found < np.array(part.counts or (2,)))
            found = found.astype(np.int32)
        if not inside.all():
            raise ValueError(
                f'the action{where} has the value {flat[~inside][0]}, which is not in {spaces.describe(leaf)}.'
            )
        return found[:, 0] if part.kind == 'categorical' else found

    def to_single_env(self, action: spaces.Flat) -> Any:
        """The same for one copy: stored action ``[1, …]`` in the form that a single environment takes."""
        return self.single(self.to_env(action))

    def single(self, batch: Any) -> Any:
        """The only element of a batch of one in the environment's form."""
        return _first(self.space, batch)

    def _leaf_to_env(self, path: str, leaf: spaces.Leaf, action: np.ndarray) -> np.ndarray:
        if isinstance(leaf, Box):
            scale = self._scale[path]
            if scale is not None:
                action = scale[0] + scale[1] * action
            # After scaling, since its rounding may step over a bound; two calls, since np.clip costs twice as much.
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
        """`to_env` for tensors, traced into an exported agent; a test holds them together.

        Args:
            action: stored actions ``[N, …]``, tensors.
            float32: compute in it even where the space has more digits, for runtimes that know no other reals.

        Returns:
            By path, ``[N, *shape]`` in the dtype of the space.
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
            found = tf.round(found) if leaf.dtype.kind in 'iub' else found  # halves to even, as NumPy's rint
        else:
            found = tf.cast(action, tf.int64)
            start = np.ravel(getattr(leaf, 'start', 0)).astype(np.int64)
            found = found + (start[0] if isinstance(leaf, Discrete) else start) if start.any() else found
        return tf.reshape(tf.cast(found, leaf.dtype), [-1, *spaces.shape_of(leaf)])

    @property
    def bounded(self) -> bool:
        """Whether every ``Box`` in the space has finite bounds on both sides."""
        return all(scale is not None for scale in self._scale.values())


def mismatch(own: Space, found: Space) -> str | None:
    """What keeps an agent for the space ``own`` from acting in ``found``, or None.

    Actions are scaled to the bounds, so with others they mean something else.

    Returns:
        The rest of a sentence that begins "the environment's action_space …".
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


def masked(values: Any, mask: Any, counts: Sequence[int] | None = None) -> Any:
    """Logits or values with `MASKED_LOGIT` in place of those of forbidden actions.

    A mask that allows nothing, as environments may give where an episode is over, says nothing of any action: there
    all are allowed. So it is in each choice of a ``MultiDiscrete``. But all switches of a ``MultiBinary`` may be off.

    Args:
        values: float32 ``[N, actions]``, an array or a tensor.
        mask: of the same kind, ``[N, …]`` with as many entries, those of allowed actions not zero.
        counts: the actions of each choice, none for switches; by default there is one choice among all.

    Returns:
        An array or tensor like ``values``.
    """
    if counts is None:
        counts = (values.shape[-1],)
    if isinstance(values, np.ndarray):
        allowed = np.reshape(mask, values.shape).astype(bool, copy=False)
        if counts:
            nothing = ~np.logical_or.reduceat(allowed, np.cumsum([0, *counts[:-1]]), axis=-1)
            if nothing.any():
                allowed = allowed | np.repeat(nothing, counts, axis=-1)
        return np.where(allowed, values, np.float32(MASKED_LOGIT))
    import tensorflow as tf

    allowed = tf.reshape(tf.cast(mask, tf.bool), tf.shape(values))
    if counts:
        ends = np.cumsum(counts).tolist()  # slices, for LiteRT does not split what is bool
        choices = [allowed[:, begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        allowed = tf.concat([choice | ~tf.reduce_any(choice, -1, keepdims=True) for choice in choices], -1)
    return tf.where(allowed, values, MASKED_LOGIT)


def _part(path: str, leaf: Space, squash: bool) -> Part:
    if isinstance(leaf, Discrete | MultiDiscrete):
        counts = (int(leaf.n),) if isinstance(leaf, Discrete) else tuple(leaf.nvec.ravel().tolist())
        if sum(counts) > MOST_CHOICES:
            raise ValueError(
                f'{_named(path, leaf)}, has {sum(counts)} values to choose from, but at most {MOST_CHOICES} can be '
                'told apart: give it as a Box.'
            )
        return Part(path, 'categorical' if isinstance(leaf, Discrete) else 'multi_categorical', len(counts), counts)
    size = int(np.prod(spaces.shape_of(leaf)))
    if not size:
        raise ValueError(f'{_named(path, leaf)}, has no entries: give it at least one, or leave it out.')
    if isinstance(leaf, MultiBinary):
        return Part(path, 'bernoulli', size)
    return Part(path, 'squashed_gaussian' if squash else 'gaussian', size)


def _named(path: str, leaf: Space) -> str:
    return f'the {path and f"part {path!r} of the "}action space, {spaces.describe(leaf)}'


def _scale(path: str, leaf: Box) -> tuple[np.ndarray, np.ndarray] | None:
    """Centre and half-range of a bounded ``Box``, flat; None when a bound is missing."""
    if not leaf.is_bounded():
        return None
    low, high = leaf.low.ravel().astype(np.float64), leaf.high.ravel().astype(np.float64)
    wide = np.flatnonzero(high / 2 - low / 2 > spaces.WIDEST_RANGE / 2)
    if wide.size:
        reach = spaces.describe_range(low[wide[0]], high[wide[0]])
        raise ValueError(
            f'{_named(path, leaf)}, reaches {reach}, but bounds that actions are scaled to may be at most '
            f'{spaces.WIDEST_RANGE:g} apart: wrap the environment in gymnasium.wrappers.TransformAction with the '
            'bounds that its actions have, or with -inf and inf where they have none.'
        )
    dtype = np.float32 if leaf.dtype == np.float32 else np.float64  # large integers need the digits
    return ((low + high) / 2).astype(dtype), ((high - low) / 2).astype(dtype)


def _limits(leaf: Box) -> tuple[np.ndarray, np.ndarray]:
    """The bounds that actions are clipped to, in a dtype of actions."""
    if leaf.dtype.kind not in 'iu':
        return leaf.low, leaf.high
    low, high = leaf.low.astype(np.float64), leaf.high.astype(np.float64)
    # Rounded to float64, the largest int64 is one too large for its dtype. Python compares integers and floats exactly.
    beyond = np.asarray(high.astype(object) > leaf.high.astype(object), bool)
    return low, np.where(beyond, np.nextafter(high, -np.inf), high)


def _inward(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds in float32, none of them outside those that are given."""
    down, up = low.astype(np.float32), high.astype(np.float32)
    down = np.where(down.astype(np.float64) < low, np.nextafter(down, np.float32(np.inf)), down)
    return down, np.where(up.astype(np.float64) > high, np.nextafter(up, np.float32(-np.inf)), up)


def _mode(part: Part, params: np.ndarray, rng: None) -> np.ndarray:
    if part.kind == 'categorical':
        return params.argmax(axis=-1)
    if part.kind == 'multi_categorical':
        return _per_entry(part, params)
    if part.kind == 'bernoulli':
        return (params > 0).astype(np.int32)
    mean = params[:, : part.size]
    return np.tanh(mean) if part.kind == 'squashed_gaussian' else mean


def _sample(part: Part, params: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if part.counts:
        # argmax(logit − log E) with E standard exponential draws from the softmax: Gumbel-max with one logarithm less.
        clock = np.maximum(rng.standard_exponential(params.shape, dtype=np.float32), _SMALLEST)
        race = params - np.log(clock)
        return race.argmax(axis=-1) if part.kind == 'categorical' else _per_entry(part, race)
    if part.kind == 'bernoulli':
        # rng.random() < sigmoid(logit), written for the logit so that large ones do not overflow.
        uniform = rng.random(params.shape)
        return (np.log(uniform) - np.log1p(-uniform) < params).astype(np.int32)
    mean, log_std = params[:, : part.size], params[:, part.size :]
    drawn = mean + np.exp(log_std) * rng.standard_normal(mean.shape, dtype=np.float32)
    return np.tanh(drawn) if part.kind == 'squashed_gaussian' else drawn


def _per_entry(part: Part, params: np.ndarray) -> np.ndarray:
    action = np.empty((len(params), part.size), np.int32)
    offset = 0
    for i, n in enumerate(part.counts):
        action[:, i] = params[:, offset : offset + n].argmax(axis=-1)
        offset += n
    return action


def _first(space: Space, batch: Any) -> Any:
    if isinstance(space, Box):
        return batch[0, ...]  # an array even where the shape is ()
    if spaces.is_leaf(space):
        return batch[0]
    if isinstance(space, Dict):
        return {key: _first(space[key], value) for key, value in batch.items()}
    return tuple(_first(part, value) for part, value in zip(cast(Tuple, space).spaces, batch, strict=True))
