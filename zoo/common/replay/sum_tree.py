"""A sum tree in one array: draws rows in proportion to their values.

Schaul et al. 2016, *Prioritized Experience Replay* (arXiv 1511.05952), appendix B.2.1, for many samples at once: each
level of the tree takes a few NumPy calls for all samples together. The highest levels have few nodes and are left out:
a cumulative sum of the roots takes their place in every draw.
"""

from __future__ import annotations

import numpy as np

from zoo.common.tools.errors import InvalidValue

#: The most nodes of the highest level. Their cumulative sum takes as long as four levels would.
TOP = 2048

#: The most changes that wait to be summed up: more than one draw and the steps between two draws make.
WAITING = 4096


class SumTree:
    """Sums of two neighbors, of two such sums, and so on.

    The array is a binary heap with many roots: the children of node ``i`` are ``2i`` and ``2i + 1``, and the highest
    level begins at ``roots``. Every sum is computed from its two children and never changed by a difference. So no
    rounding errors pile up, and a tree that is rebuilt from the same values is equal to the last bit. All ``size``
    values are 0 at first.
    """

    def __init__(self, size: int) -> None:
        self._roots, self._depth = self._shape(size)
        self._begin = self._roots << self._depth  # where the values begin
        self._sums = np.zeros(2 * self._begin)
        self._size = size
        self._changed: list[np.ndarray] = []
        self._waiting = 0

    @property
    def values(self) -> np.ndarray:
        """The values, float64 ``[size]``, a view: change them by `put`, or call `rebuild` afterwards."""
        # Not kept: a deep copy would copy the kept view apart from the array.
        return self._sums[self._begin : self._begin + self._size]

    @staticmethod
    def _shape(size: int) -> tuple[int, int]:
        """Return the number of roots, and the number of levels below them."""
        depth = 0
        while -(-size >> depth) > TOP:
            depth += 1
        return -(-size >> depth), depth

    @classmethod
    def bytes_of(cls, size: int) -> int:
        """Return the memory of a tree of ``size`` values."""
        roots, depth = cls._shape(size)
        return 2 * np.dtype(np.float64).itemsize * (roots << depth)

    def put(self, rows: np.ndarray, values: np.ndarray | float) -> None:
        """Set the values at ``rows``, int64 ``[n]``; the last value of a repeated row stays."""
        self.values[rows] = values
        self._changed.append(rows)
        self._waiting += len(rows)
        if self._waiting > WAITING:
            self._settle()

    def _settle(self) -> None:
        """Sum up the changes, level by level; a repeated node gets the same sum again."""
        if not self._changed:
            return
        rows = self._changed[0] if len(self._changed) == 1 else np.concatenate(self._changed)
        self._changed, self._waiting = [], 0
        path = (rows + self._begin) >> np.arange(self._depth + 1)[:, None]
        beside = path ^ 1
        tree = self._sums
        sums = tree.take(path[0])
        for i in range(self._depth):
            sums += tree.take(beside[i])
            tree[path[i + 1]] = sums

    def total(self) -> float:
        """Return the sum of all values."""
        self._settle()
        return float(self._sums[self._roots : 2 * self._roots].sum())

    def rebuild(self) -> None:
        """Sum up all values, after they were written without `put`."""
        self._changed, self._waiting = [], 0
        for level in range(self._depth - 1, -1, -1):
            begin = self._roots << level
            below = self._sums[2 * begin : 4 * begin]
            np.add(below[::2], below[1::2], out=self._sums[begin : 2 * begin])

    def find(self, fractions: np.ndarray) -> np.ndarray:
        """Return the rows where the running sum of the values exceeds these fractions of their total.

        A row with value 0 is never found, however sums are rounded. ``fractions`` are float64 ``[n]`` in [0, 1]; sorted
        ones are found faster. The rows are int64 ``[n]``.

        Raises:
            ValueError: every value is 0.
        """
        self._settle()
        running = np.zeros(self._roots + 1)
        np.add.accumulate(self._sums[self._roots : 2 * self._roots], out=running[1:])
        if not running[-1] > 0.0:
            raise InvalidValue('every value of the sum tree is 0: put a value above 0 before drawing.')
        # Below the total, so that the node found has a sum above 0.
        wanted = np.minimum(fractions * running[-1], np.nextafter(running[-1], 0.0))
        nodes = running[1:].searchsorted(wanted, side='right')
        wanted -= running.take(nodes)
        nodes += self._roots
        found = self.descend(nodes, wanted)
        empty = np.flatnonzero(self._sums.take(found) == 0.0)
        if len(empty):
            found[empty] = self.descend_past_zeros(nodes[empty], wanted[empty])
        return found - self._begin

    def descend(self, nodes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Go from roots down to the values where the running sum below the root exceeds ``wanted``.

        Where a sum was rounded up, ``wanted`` may reach beyond both children. Then the last value is found, even a 0.
        """
        for _ in range(self._depth):
            nodes = nodes + nodes
            left = self._sums.take(nodes)
            right = wanted >= left
            left *= right
            wanted = wanted - left
            nodes += right
        return nodes

    def descend_past_zeros(self, nodes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Go down in the same way, but never to a child that is 0. One child is above 0, since their sum is."""
        for _ in range(self._depth):
            nodes = nodes + nodes
            left = self._sums.take(nodes)
            right = (wanted >= left) & (self._sums.take(nodes + 1) > 0.0)
            wanted = wanted - left * right
            nodes += right
        return nodes
