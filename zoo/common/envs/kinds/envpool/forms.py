"""EnvPool's specs as spaces, and its arrays in the form of these spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import ACTION_MASK
from zoo.common.envs.kinds.dm_control import UNBOUNDED
from zoo.common.envs.wrappers.views import push_frame

#: What a mask is called that does not have one entry for each value of each action: agents see it, nothing is masked.
OTHER_MASK = 'joint_action_mask'
#: Integers of more values are quantities, not choices (as in EnvPool).
_MOST_CHOICES = 2**20


class NamedForm:
    """Spaces, observations and actions of one of EnvPool's tasks.

    * Parts ``obs:a.b`` become ``Dict(a=Dict(b=…))``; a single part stands for itself.
    * An integer with bounds is ``Discrete``, also as an action; an array of integer actions ``MultiDiscrete``.
    * bool arrays are ``MultiBinary``. Other arrays are a ``Box`` with EnvPool's dtype and bounds. Where EnvPool has the
      smallest and the largest number of the dtype, which it takes for missing bounds, they are infinite. So are bounds
      of ±1e10, MuJoCo's largest number.
    * With ``frames``, the single part is an image ``[channels, height, width]`` of one frame. It becomes a stack with
      channels last, see :class:`zoo.common.spaces.FrameStack`.
    * ``action_mask`` is flat, int8, with one entry for each value of each action; any other mask is renamed to
      :data:`OTHER_MASK`.

    Args:
        spec: EnvPool's spec of the task.
        frames: how many frames are stacked here; None leaves the observations as they are.
    """

    def __init__(self, spec: Any, frames: int | None) -> None:
        name, action = list(spec.action_array_spec.items())[-1]
        self.action_space = _action_space(action)
        self._action_name, self._action_dtype, self._action_shape = name, action.dtype, _as_given(action.shape)
        self._frames = frames
        parts = {key: part for key, part in spec.state_array_spec.items() if key.partition(':')[0] == 'obs'}
        #: The keys that lead to each part in EnvPool's observation; the part's name; its space.
        self._parts: list[tuple[list[str], list[str], spaces.Leaf]] = []
        for key, part in parts.items():
            keys = key.removeprefix('obs').removeprefix(':').replace(':', '.').split('.')
            path = keys if len(parts) > 1 else []
            leaf = _leaf(part)
            if frames is not None and isinstance(leaf, Box):
                leaf = spaces.FrameStack(spaces.rearranged(leaf, lambda x: np.moveaxis(x, 0, -1)), frames)
            if path == [ACTION_MASK]:
                path, leaf = self._mask(leaf)
            self._parts.append((path if not path or path[0] != OTHER_MASK else [ACTION_MASK], path, leaf))
        self.observation_space = _nested([(path, leaf) for _, path, leaf in self._parts])
        self._stack: np.ndarray | None = None

    def _mask(self, leaf: spaces.Leaf) -> tuple[list[str], spaces.Leaf]:
        adaptor, size = ActionAdaptor(self.action_space), int(np.prod(spaces.shape_of(leaf)))
        if adaptor.maskable and size == adaptor.parts[0].outputs:
            return [ACTION_MASK], MultiBinary(size)
        return [OTHER_MASK], leaf

    def first(self, raw: Any, ids: np.ndarray) -> Any:
        if self._frames is None:
            return self.following(raw)
        frame = np.moveaxis(_only(raw), 1, -1)
        stack = np.tile(frame, self._frames)
        if self._stack is None or len(self._stack) == len(ids):
            self._stack = stack
        else:
            self._stack = self._stack.copy()  # the caller may keep the one before
            self._stack[ids] = stack
        return stack

    def following(self, raw: Any) -> Any:
        if self._frames is not None:
            assert self._stack is not None, 'first comes before'
            self._stack = push_frame(self._stack, np.moveaxis(_only(raw), 1, -1))
            return self._stack.copy()
        return _nested_arrays([(path, _fitted(leaf, _at(raw, keys))) for keys, path, leaf in self._parts])

    def actions(self, actions: Any) -> np.ndarray:
        actions = np.asarray(actions, self._action_dtype)
        return np.ascontiguousarray(actions.reshape(len(actions), *self._action_shape))


def _as_given(shape: Any) -> list[int]:
    """A shape without the axis of the copies, which some specs have and some have not."""
    return [size for size in shape if size != -1]


def _leaf(spec: Any) -> spaces.Leaf:
    shape, dtype = _as_given(spec.shape), np.dtype(spec.dtype)
    choices = _choices(spec)
    if choices is not None and dtype.kind in 'iu':
        return Discrete(choices[1], start=choices[0])
    if dtype.kind == 'b':
        return MultiBinary(shape)
    low, high = (np.broadcast_to(np.asarray(bound, dtype), shape) for bound in (spec.minimum, spec.maximum))
    if dtype.kind == 'f':
        limits = np.finfo(dtype)
        unbounded = (low == limits.tiny) & (high == limits.max)
        low = np.where(unbounded | (low <= -UNBOUNDED), -np.inf, low)
        high = np.where(unbounded | (high >= UNBOUNDED), np.inf, high)
    return Box(low.astype(dtype), high.astype(dtype), tuple(shape), dtype.type)


def _action_space(spec: Any) -> Space:
    choices = _choices(spec)
    if choices is not None and (spec.is_discrete or np.dtype(spec.dtype).kind in 'iu'):
        return Discrete(choices[1], start=choices[0])
    leaf = _leaf(spec)
    if isinstance(leaf, Box) and leaf.dtype.kind in 'iu':
        low, high = leaf.low.astype(np.int64), leaf.high.astype(np.int64)
        return MultiDiscrete(high - low + 1, start=low)
    return leaf


def _choices(spec: Any) -> tuple[int, int] | None:
    """The smallest value and the number of values of one bounded integer; None for anything else."""
    bounds = np.asarray(spec.minimum), np.asarray(spec.maximum)
    if np.prod(_as_given(spec.shape)) != 1 or any(bound.size != 1 or bound.item() % 1 for bound in bounds):
        return None
    low, high = (int(bound.item()) for bound in bounds)
    return (low, high - low + 1) if high < _MOST_CHOICES else None


def _fitted(leaf: spaces.Leaf, x: np.ndarray) -> np.ndarray:
    """A batch of a part with the shape and the dtype of its space, never EnvPool's own array."""
    return x.reshape(len(x), *spaces.shape_of(leaf)).astype(leaf.dtype)


def _at(raw: Any, keys: list[str]) -> np.ndarray:
    if not isinstance(raw, dict):
        return raw
    for key in keys:
        raw = raw[key]
    return raw


def _only(raw: Any) -> np.ndarray:
    while isinstance(raw, dict):
        raw = next(iter(raw.values()))
    return raw


def _nested(parts: list[tuple[list[str], Any]], make: Callable[[dict[str, Any]], Any] = Dict) -> Any:
    """A ``Dict`` of the parts by their paths; a part with an empty path is alone."""
    if not parts[0][0]:
        return parts[0][1]
    inside: dict[str, list[tuple[list[str], Any]]] = {}
    for path, part in parts:
        inside.setdefault(path[0], []).append((path[1:], part))
    return make({key: _nested(found, make) for key, found in inside.items()})


def _nested_arrays(parts: list[tuple[list[str], np.ndarray]]) -> Any:
    return _nested(parts, dict)
