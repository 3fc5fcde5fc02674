"""The observation adaptor: from the environment's observation space to what a network takes.

Each leaf of the space becomes a *feature*, one float32 tensor. This happens inside the compiled graph: storage keeps
the environment's dtype, and an exported agent preprocesses in the same way.

==================================  =============================================================  ==================
leaf                                feature                                                        encoder
==================================  =============================================================  ==================
``Box``, image (see `is_image`)     ``[…, height, width, channels]``, each channel scaled from     CNN that fits it
                                    its bounds to [0, 1] where every channel has them, channels
                                    last whatever the order it came in
``Box``, anything else              flattened, and on request normalized by running statistics     joined as it is
                                    (bool: never)
``Discrete(n)``, n <= 256           one-hot ``[…, n]``                                             joined as it is
``Discrete(n)``, larger             index ``[…]`` int32                                            embedding
``MultiDiscrete``                   one-hot of each, joined                                        joined as it is
``MultiBinary``                     flattened                                                      joined as it is
key ``action_mask`` of the          none: it masks the policy's output (`check_mask` refuses it if
outermost ``Dict``                  actions cannot be masked)
==================================  =============================================================  ==================

A ``Dict`` or ``Tuple``, however nested, has one feature per leaf, matched by key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from zoo.common import spaces
from zoo.common.maths.normalize import CLIP
from zoo.common.tools.errors import InvalidValue

if TYPE_CHECKING:
    from zoo.common.adaptors.action import ActionAdaptor

ACTION_MASK = 'action_mask'

#: Indices of a larger ``Discrete`` are embedded: a one-hot vector of it would make the first layer mostly zeros.
LARGEST_ONE_HOT = 256

#: Indices are int32 in the graphs.
LARGEST_INDEX = 2**31 - 1


@dataclass(frozen=True)
class Feature:
    """How one leaf is prepared.

    Attributes:
        path: the leaf's path in the flat structure.
        kind: ``'image'``, ``'vector'``, ``'one_hot'``, ``'index'`` or ``'binary'``.
        shape: the feature's shape without batch axes; ``()`` for an index.
        counts: for ``'one_hot'`` and ``'index'``, the number of values of each entry.
        start: the smallest value of each entry.
        channels_first: the image came as ``[channels, height, width]``.
        scale: ``(low, high)`` of an image with finite bounds, each a number or one for each channel.
        normalize: whether an agent that normalizes keeps running statistics of it.
    """

    path: str
    kind: str
    shape: tuple[int, ...]
    counts: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    channels_first: bool = False
    scale: tuple[float, float] | tuple[tuple[float, ...], tuple[float, ...]] | None = None
    normalize: bool = False

    @property
    def size(self) -> int:
        """Numbers in the feature."""
        return int(np.prod(self.shape))

    @property
    def is_vector(self) -> bool:
        """Whether it is joined with the other features without an encoder."""
        return self.kind not in ('image', 'index')


def is_image(space: Space) -> TypeGuard[Box]:
    """A ``Box`` of 2 or 3 axes whose height and width are at least 8: ``[H, W]``, ``[H, W, C]`` or ``[C, H, W]``."""
    if not isinstance(space, Box) or len(space.shape) not in (2, 3):
        return False
    return min(image_layout(space)[:2]) >= 8


def image_layout(space: Box) -> tuple[int, int, int, bool]:
    """Height, width and channels of a ``Box`` of 2 or 3 axes, and whether the channels come first.

    A stack of frames has its channels last. In other images, two equal neighboring axes are height and width (a board
    may have more planes than squares). Otherwise the shorter one of the first and last axis is the channels'.
    """
    if len(space.shape) == 2:
        return space.shape[0], space.shape[1], 1, False
    first, middle, last = space.shape
    if isinstance(space, spaces.FrameStack):
        return first, middle, last, False
    square_before, square_after = first == middle, middle == last
    channels_first = square_after if square_before != square_after else first < last
    return (middle, last, first, True) if channels_first else (first, middle, last, False)


def feature(path: str, leaf: Space, normalize: bool = False) -> Feature:
    """The feature of one leaf.

    Raises:
        ValueError: a ``Discrete`` or ``MultiDiscrete`` of more values than `LARGEST_INDEX`.
    """
    if is_image(leaf):
        height, width, channels, first = image_layout(leaf)
        return Feature(path, 'image', (height, width, channels), channels_first=first, scale=_scale(leaf, first))
    size = int(np.prod(spaces.shape_of(leaf)))
    if isinstance(leaf, Discrete | MultiDiscrete):
        values = int(leaf.n) if isinstance(leaf, Discrete) else sum(leaf.nvec.ravel().tolist())
        if values > LARGEST_INDEX:
            raise InvalidValue(
                f'the {path and f"part {path!r} of the "}observation has {values} values to choose from, '
                f'{spaces.describe(leaf)}, but at most {LARGEST_INDEX} can be told apart: give it as a Box.'
            )
    if isinstance(leaf, Discrete):
        n, start = int(leaf.n), int(leaf.start)
        kind, shape = ('index', ()) if n > LARGEST_ONE_HOT else ('one_hot', (n,))
        return Feature(path, kind, shape, (n,), (start,))
    if isinstance(leaf, MultiDiscrete):
        counts = tuple(int(n) for n in leaf.nvec.ravel())
        starts = tuple(int(n) for n in leaf.start.ravel())
        return Feature(path, 'one_hot', (sum(counts),), counts, starts)
    if isinstance(leaf, Box):
        return Feature(path, 'vector', (size,), normalize=normalize and size > 0 and leaf.dtype != bool)
    return Feature(path, 'binary', (size,))


def _scale(leaf: Box, channels_first: bool) -> Any:
    """``Feature.scale`` of an image; None if a bound is missing or too large to be one, or if all are 0 and 1."""
    if not leaf.is_bounded():
        return None
    shape = leaf.shape if len(leaf.shape) == 3 else (*leaf.shape, 1)
    pixels = (1, 2) if channels_first else (0, 1)
    low = leaf.low.reshape(shape).min(pixels).astype(np.float64)
    high = leaf.high.reshape(shape).max(pixels).astype(np.float64)
    if (high / 2 - low / 2 > spaces.WIDEST_RANGE / 2).any() or (high == low).all():
        return None
    if (low == low[0]).all() and (high == high[0]).all():
        return None if (low[0], high[0]) == (0.0, 1.0) else (float(low[0]), float(high[0]))
    return tuple(low.tolist()), tuple(high.tolist())


def features(space: Space, normalize: bool = False) -> list[Feature]:
    """The features of an observation space, in the order of their paths, without the action mask."""
    return [feature(path, leaf, normalize) for path, leaf in spaces.leaves(space).items() if mask_path(space) != path]


def mismatch(own: Space, found: Space) -> str | None:
    """Why ``own``'s agent cannot observe ``found``: what follows "the environment's observation_space"; or None.

    Images are scaled from their bounds, so with other bounds they look different. Bounds of vectors may differ.
    """
    reason = spaces.mismatch(own, found)
    if reason is not None:
        return reason
    for mine, other in zip(features(own), features(found), strict=True):
        if mine.scale != other.scale:
            seen, known = (_range(item, spaces.leaves(space)) for item, space in ((other, found), (mine, own)))
            where = f' in {mine.path!r}' if mine.path else ''
            return f'has images {seen}{where}, but this agent was made for images {known}'
    return None


def _range(image: Feature, leaves: Mapping[str, Space]) -> str:
    return spaces.describe_range(*(image.scale or spaces.bounds(cast(Box, leaves[image.path]))))


def mask_path(space: Space) -> str | None:
    """The path of the leaf that says which actions are allowed, or None."""
    return ACTION_MASK if ACTION_MASK in spaces.leaves(space) else None


def check_mask(space: Space, adaptor: ActionAdaptor) -> None:
    """Refuse a mask in the observation that would be ignored.

    Raises:
        ValueError: the mask is no array, or the actions cannot be masked.
    """
    if isinstance(space, Dict) and ACTION_MASK in space.spaces:
        mask = space[ACTION_MASK]
        if not spaces.is_leaf(mask):
            raise InvalidValue(
                f"the observation's 'action_mask' is a {spaces.describe(mask)}: give one array, with an entry for each "
                'action, or rename it to have it seen like any other part.'
            )
        if not adaptor.maskable:
            raise InvalidValue(
                f"the observation has an 'action_mask', but {spaces.describe(adaptor.space)} actions cannot be masked, "
                'only Discrete, MultiDiscrete and MultiBinary ones: rename it to have it seen like any other part.'
            )


class Preprocess:
    """The pure function from a flat observation ``[*batch, *shape]`` to features ``[*batch, *feature.shape]``.

    `__call__` takes tensors and is traced into compiled graphs. `numpy` takes arrays, for acting. They agree to 1e-6.

    Args:
        space: the observation space.
        statistics: running statistics by path; a leaf without them is not normalized.

    Raises:
        ValueError: there is nothing but the action mask, or nothing at all.
    """

    def __init__(self, space: Space, statistics: Mapping[str, Any]) -> None:
        self.space = space
        self.features = features(space, normalize=bool(statistics))
        if not self.features:
            raise InvalidValue(f'the observation {spaces.describe(space)} has nothing to see but the action mask.')
        if not any(item.size for item in self.features):
            raise InvalidValue(f'the observation {spaces.describe(space)} has no entries: give it something to see.')
        self.statistics = statistics
        self._float32 = False
        self._hot_values = {item.path: _hot_values(item) for item in self.features if item.kind == 'one_hot'}
        leaves = spaces.leaves(space)
        counted = [item.path for item in self.features if not isinstance(leaves[item.path], Box)]
        self._limits = {path: _limits(leaves[path]) for path in counted}

    def check_values(self, obs: spaces.Flat) -> None:
        """Refuse flat observations ``[N, …]`` with a value that a ``Discrete`` or other counted space does not have.

        Preprocessing would encode such values in a way that was never learned.

        Raises:
            ValueError: names the value.
        """
        for path in self._limits:
            self.check_part(path, obs[path] if path else obs)

    def check_part(self, path: str, x: np.ndarray) -> None:
        """Refuse one part of observations, ``[N, …]``, in the same way."""
        if path not in self._limits:
            return
        low, high = self._limits[path]
        outside = (x < low) | (x > high)
        if outside.any():
            wrong = x[np.flatnonzero(outside.reshape(len(x), -1).any(-1))[0]]
            leaf = spaces.describe(spaces.leaves(self.space)[path])
            raise InvalidValue(
                f'the observation {path and f"{path!r} "}has the value {wrong}, but {leaf} goes from {low} to {high}.'
            )

    def __call__(self, obs: spaces.Flat) -> dict[str, Any]:
        """Features by path, as tensors. ``obs`` has exactly one batch axis."""
        import tensorflow as tf

        flat = dict(spaces.tree_items(obs))
        out = {}
        for item in self.features:
            x = tf.convert_to_tensor(flat[item.path])
            if item.kind == 'image':
                out[item.path] = self._image(tf, item, x)
            elif item.kind == 'index':
                out[item.path] = tf.cast(tf.cast(x, tf.int64) - item.start[0], tf.int32)
            elif item.kind == 'one_hot':
                x = tf.reshape(tf.cast(x, tf.int64), [-1, len(item.counts)]) - np.array(item.start, np.int64)
                hots = [tf.one_hot(x[:, i], n) for i, n in enumerate(item.counts)]
                out[item.path] = hots[0] if len(hots) == 1 else tf.concat(hots, -1)
            else:
                x = tf.reshape(x, [-1, item.size])
                if item.path in self.statistics:
                    x = self._normalized(tf, x, self.statistics[item.path])
                out[item.path] = tf.cast(x, tf.float32)
        return out

    @contextlib.contextmanager
    def in_float32(self) -> Iterator[None]:
        """Within this context, traced graphs compute in float32 only, for runtimes without float64.

        Statistics become constants. The mean is subtracted in two pieces: only float64 observations lose digits.
        """
        self._float32 = True
        try:
            yield
        finally:
            self._float32 = False

    def _normalized(self, tf: Any, x: Any, moments: Any) -> Any:
        if not self._float32:
            mean, scale = moments.variables
            return tf.clip_by_value((tf.cast(x, tf.float64) - mean) * scale, -CLIP, CLIP)
        if x.dtype.is_integer:
            first = np.rint(moments.mean)
            x = tf.cast(tf.cast(x, tf.int64) - first.astype(np.int64), tf.float32)
        else:
            first = moments.mean.astype(np.float32)
            x = tf.cast(x, tf.float32) - first
        # The product stands between the two pieces, so that a graph optimizer cannot merge them.
        rest, scale = ((moments.mean - first) * moments.scale).astype(np.float32), moments.scale.astype(np.float32)
        return tf.minimum(tf.maximum(x * scale - rest, -CLIP), CLIP)

    @staticmethod
    def _image(tf: Any, item: Feature, x: Any) -> Any:
        x = tf.cast(x, tf.float32)
        single, first = len(x.shape) == 3, item.channels_first
        if single:
            x = x[..., None]
        if item.scale is not None:
            low, high = np.array(item.scale)
            if low.ndim and first and not single:
                low, high = low[:, None, None], high[:, None, None]
            factor = 1.0 / np.where(high == low, 1.0, high - low)
            x = (x - low.astype(np.float32)) * factor.astype(np.float32) if low.any() else x * factor.astype(np.float32)
        # The axes move last. TensorFlow would move them while x is still bytes, and oneDNN prints a note about bytes.
        return tf.transpose(x, [0, 2, 3, 1]) if first and not single else x

    def numpy(self, obs: spaces.Flat) -> np.ndarray:
        """All features joined, float32 ``[N, size]``; only if every feature is a vector (see `is_flat`)."""
        flat = obs if isinstance(obs, dict) else {'': obs}
        parts = []
        for item in self.features:
            x = flat[item.path]
            if item.kind == 'one_hot':
                entries, values = self._hot_values[item.path]
                part = (np.reshape(x, (-1, len(item.counts)))[:, entries] == values).astype(np.float32)
            else:
                part = x.reshape(len(x), item.size)
                if item.path in self.statistics:
                    moments = self.statistics[item.path]
                    part = np.minimum(np.maximum((part - moments.mean) * moments.scale, -CLIP), CLIP)
                part = part.astype(np.float32, copy=False)
            parts.append(part)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)

    @property
    def is_flat(self) -> bool:
        """Whether every feature is a vector."""
        return all(item.is_vector for item in self.features)

    def nested(self, found: dict[str, Any]) -> Any:
        """Features in the observation's own form (dict, tuple, tensor), with which a user's network is called."""
        if spaces.is_leaf(self.space):
            return found['']
        return _nest_features(self.space, found, '')


def _hot_values(item: Feature) -> tuple[np.ndarray, np.ndarray]:
    """For each number of a one-hot feature: the entry that it belongs to, and the value for which it is 1."""
    entries = np.repeat(np.arange(len(item.counts)), item.counts)
    values = np.concatenate([start + np.arange(n) for n, start in zip(item.counts, item.start, strict=True)])
    return entries, values


def _limits(leaf: Space) -> tuple[Any, Any]:
    """The smallest and the largest value of each entry of a space of counted values."""
    if isinstance(leaf, MultiBinary):
        return 0, 1
    counted = cast(Discrete | MultiDiscrete, leaf)
    low = counted.start.astype(np.int64)
    return low, low + (counted.n if isinstance(counted, Discrete) else counted.nvec.astype(np.int64)) - 1


def _nest_features(space: Space, found: dict[str, Any], prefix: str) -> Any:
    if spaces.is_leaf(space):
        return found[prefix]
    parts = space.spaces if isinstance(space, (Dict, Tuple)) else ()
    keyed: list[tuple[Any, Space]] = list(parts.items()) if isinstance(parts, Mapping) else list(enumerate(parts))
    nested = {
        key: _nest_features(part, found, f'{prefix}/{key}' if prefix else str(key))
        for key, part in keyed
        if (prefix, key) != ('', ACTION_MASK)
    }
    return nested if isinstance(parts, Mapping) else tuple(nested.values())
