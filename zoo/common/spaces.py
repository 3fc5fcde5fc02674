"""Observation and action spaces as flat structures, matched by key and never by position.

Storage and compiled graphs work on *flat structures*. A leaf space (``Box``, ``Discrete``, ``MultiDiscrete``,
``MultiBinary``) is one array. A ``Dict`` or ``Tuple``, however nested, is a dict from path to array, such as
``{'camera/left': …, 'pose/0': …}``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeGuard, cast

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from zoo.common.tools.errors import InvalidType, InvalidValue, a_type

#: An array, or a dict from path to array.
Flat = Any
#: Bounds further apart than this mean "no bound": some environments write it like this.
WIDEST_RANGE = 1e10
#: The attributes of a ``Box`` that say which entries have bounds.
BOUNDED = ('bounded_below', 'bounded_above')
LEAF_TYPES = (Box, Discrete, MultiDiscrete, MultiBinary)
Leaf: TypeAlias = Box | Discrete | MultiDiscrete | MultiBinary


class FrameStack(Box):
    """An image of ``frames`` successive frames in its last axis, newest last: ``[height, width, frames * channels]``.

    In the first observation of an episode every frame is the first one. Storage that knows this keeps each frame once
    (:class:`zoo.common.replay.replay.Replay`). ``frame`` is the space of one frame, ``[height, width, channels]``.
    """

    def __init__(self, frame: Box, frames: int) -> None:
        self.frames = int(frames)
        stack = rearranged(frame, lambda x: np.tile(x, self.frames))
        super().__init__(stack.low, stack.high, dtype=stack.dtype.type)
        _set_bounded(self, stack.bounded_below, stack.bounded_above)

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """The shape of one frame."""
        height, width, channels = self.shape
        return height, width, channels // self.frames

    @property
    def frame(self) -> Box:
        """The space of one frame."""
        return rearranged(self, lambda x: x[..., -self.frame_shape[-1] :])


def rearranged(box: Box, function: Callable[[np.ndarray], np.ndarray]) -> Box:
    """Return the ``Box`` of the values that ``function`` makes of a box's values by moving them to other places."""
    found = Box(function(box.low), function(box.high), dtype=box.dtype.type)
    _set_bounded(found, function(box.bounded_below), function(box.bounded_above))
    return found


def is_leaf(space: Space) -> TypeGuard[Leaf]:
    """Whether ``space`` is one array and not composed of spaces."""
    return isinstance(space, LEAF_TYPES)


def shape_of(leaf: Space) -> tuple[int, ...]:
    """Return the shape of a leaf."""
    return cast(tuple[int, ...], leaf.shape)


def leaves(space: Space, prefix: str = '') -> dict[str, Leaf]:
    """Return the leaf spaces of ``space`` by path, sorted by key; a leaf space has the single path ``''``.

    Raises:
        TypeError: a leaf other than ``Box``, ``Discrete``, ``MultiDiscrete`` and ``MultiBinary``; the message names it.
        ValueError: two leaves with the same path (the keys ``'a/b'`` and ``'a'`` with ``'b'`` in it), an empty key, or
            no leaf at all.
    """
    if is_leaf(space):
        return {prefix: space}
    parts: list[tuple[Any, Space]]
    if isinstance(space, Dict):
        parts = sorted(space.spaces.items(), key=lambda item: str(item[0]))
    elif isinstance(space, Tuple):
        parts = list(enumerate(space.spaces))
    else:
        named = f'the part {prefix!r}' if prefix else 'the space'
        if getattr(space.dtype, 'kind', None) == 'U':  # Text, or a space of sentences such as MiniGrid's
            raise InvalidType(
                f'{named} is text, which no network reads: leave it out by a wrapper (for MiniGrid '
                'minigrid.wrappers.ImgObsWrapper or FlatObsWrapper) or turn it into numbers.'
            )
        named = named if prefix else f'the space {space}'
        raise InvalidType(
            f'{named} is {a_type(space)}, which has no fixed-size array form: use Box, Discrete, MultiDiscrete, '
            'MultiBinary, or a Dict or Tuple of them.'
        )
    found: dict[str, Leaf] = {}
    for key, part in parts:
        if key == '':  # it would have the path of the whole space
            raise InvalidValue(f"a part of {describe(space)} has the empty key '': give it a name.")
        for path, leaf in leaves(part, _joined(prefix, key)).items():
            if path in found:
                raise InvalidValue(f'two parts of {describe(space)} have the path {path!r}: rename one of their keys.')
            found[path] = leaf
    if not (found or prefix):
        raise InvalidValue(f'the space {describe(space)} has no parts: give it at least one.')
    return found


def flatten(space: Space, x: Any) -> Flat:
    """Return an element (or batch) of ``space`` as a flat structure, not copied; a TypeError if a part is missing."""
    if is_leaf(space):
        return x
    flat: dict[str, Any] = {}
    _flatten_into(space, x, '', flat)
    return flat


def _flatten_into(space: Space, x: Any, prefix: str, out: dict[str, Any]) -> None:
    if is_leaf(space):
        out[prefix] = x
        return
    keyed: Iterable[tuple[Any, Space]]
    keyed = space.spaces.items() if isinstance(space, Dict) else enumerate(cast(Tuple, space).spaces)
    for key, part in keyed:
        path = _joined(prefix, key)
        try:
            value = x[key]
        except (KeyError, IndexError, TypeError):
            raise InvalidType(f'the part {path!r} is missing, which an element of {describe(space)} has.') from None
        _flatten_into(part, value, path, out)


def unflatten(space: Space, flat: Flat, prefix: str = '') -> Any:
    """Return the element (or batch) of ``space`` from a flat structure: dicts for ``Dict``, tuples for ``Tuple``."""
    if is_leaf(space):
        return flat[prefix] if prefix else flat
    if isinstance(space, Dict):
        return {key: unflatten(part, flat, _joined(prefix, key)) for key, part in space.spaces.items()}
    parts = enumerate(cast(Tuple, space).spaces)
    return tuple(unflatten(part, flat, _joined(prefix, i)) for i, part in parts)


def _joined(prefix: str, key: Any) -> str:
    return f'{prefix}/{key}' if prefix else str(key)


def as_batch(space: Space, x: Any) -> tuple[Flat, bool]:
    """Return an element of ``space``, or a batch of them, as a flat batch; and whether it was a batch.

    Raises:
        ValueError: the pair that ``env.reset()`` returns; a part that is missing or has another shape than the space;
            parts of different batch sizes; values that the dtype of the space cannot hold.
    """
    is_pair = isinstance(x, tuple) and len(x) == 2 and isinstance(x[1], dict) and not isinstance(space, Tuple)
    if is_pair or (is_leaf(space) and isinstance(x, dict)):
        what = 'the pair (observation, info) of reset()' if is_pair else a_type(x)
        raise InvalidValue(f'{what} was given, but an observation is an element of {describe(space)}.')
    try:
        flat = dict(tree_items(flatten(space, x)))
    except TypeError as error:
        raise InvalidValue(f'in the observation {error}') from error
    lead: dict[str, tuple[int, ...]] = {}
    for path, leaf in leaves(space).items():
        shape = np.shape(flat[path])
        shape = shape_of(leaf) if shape == () and leaf.shape == (1,) else shape
        if leaf.shape not in (shape, shape[1:]):
            raise InvalidValue(
                f'an observation {path and f"{path!r} "}of shape {shape} was given, but the space declares '
                f'{leaf.shape}, or a batch of that.'
            )
        lead[path] = shape[: len(shape) - len(shape_of(leaf))]
    first = next(iter(lead))
    for path in lead:
        if lead[path] != lead[first]:
            raise InvalidValue(
                f'the observation has batch axes {lead[first]} in {first!r}, but {lead[path]} in {path!r}: give '
                'one observation, or a batch of the same size in every part.'
            )
    is_batch = lead[first] != ()
    items = {path: _fitted(path, flat[path], leaf, lead[first]) for path, leaf in leaves(space).items()}
    return from_items(space, items if is_batch else {path: x[None] for path, x in items.items()}), is_batch


def _fitted(path: str, value: Any, leaf: Leaf, lead: tuple[int, ...]) -> np.ndarray:
    """An observation in the form of its space; its numbers have to be finite."""
    where = f'this is an observation {path and f"{path!r} "}'
    try:
        found = fitted(leaf, value, lead)
    except InvalidValue as error:
        raise InvalidValue(f'{where}{error}.') from error
    if found.dtype.kind == 'f' and not np.isfinite(found).all() and np.asarray(value).dtype.kind == 'f':
        raise InvalidValue(f'{where}with the value {found[~np.isfinite(found)].flat[0]}, which is no finite number.')
    return found


def fitted(leaf: Leaf, value: Any, lead: tuple[int, ...] = ()) -> np.ndarray:
    """Return a value as an array ``[*lead, …]`` in the shape and dtype of its leaf, if it stays the same value.

    Numbers may be rounded to the nearest float. A list becomes an array, and a number an array of one entry where the
    leaf has one.

    Raises:
        ValueError: it would be another value; the message goes on where "an observation" stops.
    """
    shape = (*lead, *shape_of(leaf))
    if isinstance(value, dict):
        raise InvalidValue(f'that is a dict, but its space declares an array of shape {shape} and {leaf.dtype}')
    try:
        given = np.asarray(value)
    except ValueError:  # lists of several lengths
        given = np.empty(len(value), object)
    if given.shape == () and shape == (1,):
        given = given.reshape(shape)
    if given.shape != shape or given.dtype.kind not in 'biuf':
        raise InvalidValue(
            f'of shape {given.shape} and dtype {given.dtype}, but its space declares {shape} and {leaf.dtype}'
        )
    if given.dtype == leaf.dtype:
        return given
    with np.errstate(invalid='ignore', over='ignore'):
        cast = given.astype(leaf.dtype)
    lost = np.isfinite(given) & ~np.isfinite(cast) if cast.dtype.kind == 'f' else cast != given
    if lost.any():
        raise InvalidValue(f'with the value {given[lost].flat[0]}, which the {leaf.dtype} of its space cannot hold')
    return cast


def tree_map(function: Callable[..., Any], *flats: Flat) -> Flat:
    """Apply ``function`` to the arrays of flat structures with the same paths, path by path."""
    if isinstance(flats[0], dict):
        return {path: function(*(flat[path] for flat in flats)) for path in flats[0]}
    return function(*flats)


def tree_items(flat: Flat) -> list[tuple[str, Any]]:
    """Return the pairs ``(path, array)`` of a flat structure; the path of a single array is ``''``."""
    return list(flat.items()) if isinstance(flat, dict) else [('', flat)]


def count(flat: Flat) -> int:
    """Return the length of the first axis of a flat structure."""
    return len(tree_items(flat)[0][1])


def from_items(space: Space, items: dict[str, Any]) -> Flat:
    """Return a flat structure of ``space`` from ``{path: array}``."""
    return items[''] if is_leaf(space) else items


def zeros(space: Space, lead: tuple[int, ...]) -> Flat:
    """Return a flat structure of zeros ``[*lead, *leaf.shape]`` in the dtypes of the leaves."""
    items = {path: _zeros(lead + shape_of(leaf), leaf.dtype) for path, leaf in leaves(space).items()}
    return from_items(space, items)


def _zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return zeros whose memory begins at a multiple of 64 bytes, where TensorFlow can use it without a copy."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + 64, np.uint8)
    begin = -room.ctypes.data % 64
    return room[begin : begin + size].view(dtype).reshape(shape)


def same(a: Space, b: Space) -> bool:
    """Whether two spaces have the same leaves: paths, kinds, shapes, dtypes and values to choose from.

    The bounds of a ``Box`` may differ; ``mismatch`` of the observation and action adaptors knows where they matter.
    """
    left, right = leaves(a), leaves(b)
    return left.keys() == right.keys() and all(_leaf_key(left[path]) == _leaf_key(right[path]) for path in left)


def mismatch(own: Space, found: Space) -> str | None:
    """Return how a space differs from an agent's own, to follow "the environment's space …"; None if it does not."""
    if same(own, found):
        return None
    return f'is {describe(found)}, but this agent was made for {describe(own)}'


def _leaf_key(leaf: Space) -> tuple:
    # The shape of a MultiBinary says it all: MultiBinary(3) and MultiBinary([3]) differ only in `n`.
    counts = leaf.n if isinstance(leaf, Discrete) else getattr(leaf, 'nvec', 0)
    values = np.asarray(counts).tolist(), np.asarray(getattr(leaf, 'start', 0)).tolist()
    return type(leaf).__name__, leaf.shape, leaf.dtype, values, getattr(leaf, 'frames', 0)


def describe(space: Space) -> str:
    """Return a short description for error messages, such as ``Box(3,) float32`` or ``Dict(camera: …, pose: …)``."""
    if isinstance(space, Dict):
        return 'Dict(' + ', '.join(f'{key}: {describe(part)}' for key, part in space.spaces.items()) + ')'
    if isinstance(space, Tuple):
        return 'Tuple(' + ', '.join(describe(part) for part in space.spaces) + ')'
    if isinstance(space, FrameStack):
        return f'Box{space.shape} {space.dtype} of {space.frames} frames'
    if isinstance(space, Box):
        return f'Box{space.shape} {space.dtype}'
    return ' '.join(str(space).split())  # a MultiDiscrete of two axes is written in lines


def bounds(box: Box) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of a ``Box`` in float64, infinite where it has none, whatever its ``low`` and ``high`` say."""
    return np.where(box.bounded_below, box.low, -np.inf), np.where(box.bounded_above, box.high, np.inf)


def describe_range(low: Any, high: Any) -> str:
    """Return bounds for error messages, for example ``from 0 to 255`` or ``from [-1, 0] to [1, inf]``."""
    return f'from {_describe_bound(low)} to {_describe_bound(high)}'


def _describe_bound(bound: Any) -> str:
    numbers = [f'{x:g}' for x in np.asarray(bound, np.float64).ravel()]
    if len(set(numbers)) == 1:
        return numbers[0]
    return f'[{", ".join(numbers if len(numbers) <= 6 else [*numbers[:3], "…", numbers[-1]])}]'


def to_json(space: Space) -> dict[str, Any]:
    """Return a space as plain data for :func:`from_json`, infinite bounds too; a TypeError if it cannot be stored."""
    if isinstance(space, Dict):  # as pairs: writers of JSON may sort the keys of a dict
        return {'type': 'Dict', 'spaces': [[key, to_json(part)] for key, part in space.spaces.items()]}
    if isinstance(space, Tuple):
        return {'type': 'Tuple', 'spaces': [to_json(part) for part in space.spaces]}
    if isinstance(space, FrameStack):
        return {'type': 'FrameStack', 'frame': to_json(space.frame), 'frames': space.frames}
    if isinstance(space, Box):
        data = {'type': 'Box'} | {side: _bound_to_json(getattr(space, side)) for side in ('low', 'high')}
        data |= {'shape': list(space.shape), 'dtype': str(space.dtype)}
        # An integer has the bound of its dtype in place of an infinite one.
        if space.dtype.kind == 'i' and not space.is_bounded():
            data |= {side: _bound_to_json(getattr(space, side)) for side in BOUNDED}
        return data
    if isinstance(space, Discrete):
        return {'type': 'Discrete', 'n': int(space.n), 'start': int(space.start), 'dtype': str(space.dtype)}
    if isinstance(space, MultiDiscrete):
        nvec, start = space.nvec.tolist(), space.start.tolist()
        return {'type': 'MultiDiscrete', 'nvec': nvec, 'start': start, 'dtype': str(space.dtype)}
    if isinstance(space, MultiBinary):
        return {'type': 'MultiBinary', 'n': np.asarray(space.n).tolist()}
    raise InvalidType(
        f'the space {space} cannot be stored: use Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple.'
    )


def from_json(data: dict[str, Any]) -> Space:
    """Return the space that :func:`to_json` described, with the keys in the same order."""
    kind = data['type']
    if kind == 'Dict':
        parts = data['spaces']
        pairs = parts.items() if isinstance(parts, dict) else parts  # a dict in old checkpoints
        return Dict([(key, from_json(part)) for key, part in pairs])  # Gymnasium would sort the keys of a dict
    if kind == 'Tuple':
        return Tuple([from_json(part) for part in data['spaces']])
    if kind == 'FrameStack':
        return FrameStack(cast(Box, from_json(data['frame'])), data['frames'])
    if kind == 'Box':
        dtype, shape = np.dtype(data['dtype']), tuple(data['shape'])
        low, high = (_bound_from_json(data[side], shape, dtype) for side in ('low', 'high'))
        box = Box(low, high, shape, dtype.type)
        if BOUNDED[0] in data:
            _set_bounded(box, *(_bound_from_json(data[side], shape, np.dtype(bool)) for side in BOUNDED))
        return box
    if kind == 'Discrete':
        return Discrete(data['n'], start=data['start'], dtype=np.dtype(data['dtype']).type)
    if kind == 'MultiDiscrete':
        return MultiDiscrete(np.array(data['nvec']), dtype=np.dtype(data['dtype']).type, start=np.array(data['start']))
    return spaces.MultiBinary(data['n'])


def _set_bounded(box: Box, below: Any, above: Any) -> None:
    """Set which entries have bounds: an integer ``Box`` made from the bounds of another does not know."""
    for side, bounded in zip(BOUNDED, (below, above), strict=True):
        setattr(box, side, np.broadcast_to(bounded, box.shape).copy())


def _bound_to_json(bound: np.ndarray) -> Any:
    """One number if all entries are equal, as for images, else the flat list."""
    if bound.size and np.all(bound == bound.flat[0]):
        return bound.flat[0].item()
    return bound.ravel().tolist()


def _bound_from_json(bound: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.array(bound, dtype).reshape(shape) if isinstance(bound, list) else np.full(shape, bound, dtype)
