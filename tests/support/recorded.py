"""Episodes of random numbers in any space, for tests of datasets."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from zoo.common import spaces
from zoo.common.datasets.episodes import RecordedEpisode, stacked


def random_episodes(
    rng: np.random.Generator, space: Any, action_space: Any, count: int, longest: int = 9
) -> list[RecordedEpisode]:
    """Return episodes of 1 to ``longest`` steps; they end by termination, truncation or neither, in turn."""
    found = []
    for k in range(count):
        length = int(rng.integers(1, longest + 1))
        obs, action = _values(rng, space, length + 1), _values(rng, action_space, length)
        reward = rng.standard_normal(length).astype(np.float32)
        found.append(RecordedEpisode(obs, action, reward, k % 3 == 0, k % 3 == 1))
    return found


def _values(rng: np.random.Generator, space: Any, length: int) -> Any:
    items = {}
    for path, leaf in spaces.leaves(space).items():
        if isinstance(leaf, spaces.FrameStack):
            items[path] = stacked(rng.integers(256, size=(length, *leaf.frame_shape)).astype(np.uint8), leaf.frames)
        elif isinstance(leaf, Box) and not leaf.is_bounded():
            items[path] = rng.standard_normal((length, *leaf.shape)).astype(leaf.dtype)
        else:
            leaf.seed(int(rng.integers(1000)))
            items[path] = np.stack([np.asarray(leaf.sample()) for _ in range(length)])
    return spaces.from_items(space, items)


def assert_same(one: Any, other: Any) -> None:
    """Two iterables of episodes are equal, in values and dtypes."""
    for a, b in zip(one, other, strict=True):
        for field in ('obs', 'action'):
            left, right = (dict(spaces.tree_items(getattr(x, field))) for x in (a, b))
            assert left.keys() == right.keys()
            for path, x in left.items():
                np.testing.assert_array_equal(x, right[path])
                assert x.dtype == right[path].dtype
        np.testing.assert_array_equal(a.reward, b.reward)
        assert a.reward.dtype == b.reward.dtype == np.float32
        assert (a.terminated, a.truncated) == (b.terminated, b.truncated)
