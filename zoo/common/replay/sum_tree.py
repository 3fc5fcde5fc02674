"""A sum tree in one array: rows are drawn in proportion to their values, of which a few change at a time.

Schaul et al. 2016, *Prioritized Experience Replay* (arXiv 1511.05952), appendix B.2.1, for many samples at once: each
level of the tree is a handful of calls of NumPy for all of them together. The highest levels are left out, where a node
stands for few others: their sums are run through anew for every draw.
"""

from __future__ import annotations

import numpy as np

#: The highest level has no more nodes than this. To run through them is as dear as four levels would be.
TOP = 2048

#: Changes that wait to be summed up; more than those of a draw and of the steps between two of them.
WAITING = 4096


class SumTree:
    """Sums of two neighbours, and of two such sums, and so on.

    The array is that of a binary heap: the children of node ``i`` are ``2i`` and ``2i + 1``, but that it has many
    roots, the nodes of the highest level, from ``roots`` on. Every sum is that of its two children whenever it is read.
    Nothing is added to it or subtracted from it, so that no rounding piles up, and a tree that is built anew from the
    same values is the same to the last bit.

    Args:
        size: how many values there are; all are 0 at first.
    """

    def __init__(self, size: int) -> None:
        self._roots, self._depth = self._shape(size)
        self._begin = self._roots << self._depth  # of the values
        self._sums = np.zeros(2 * self._begin)
        self._size = size
        self._changed: list[np.ndarray] = []
        self._waiting = 0

    @property
    def values(self) -> np.ndarray:
        """The values, float64 ``[size]``, a view: change them by `put`, or call `rebuild` afterwards."""
        # Made anew: in a deep copy a view that was kept would be of an array of its own.
        return self._sums[self._begin : self._begin + self._size]

    @staticmethod
    def _shape(size: int) -> tuple[int, int]:
        """How many roots there are, and how many levels below them."""
        depth = 0
        while -(-size >> depth) > TOP:
            depth += 1
        return -(-size >> depth), depth

    @classmethod
    def bytes_of(cls, size: int) -> int:
        """Memory of a tree of so many values."""
        roots, depth = cls._shape(size)
        return 2 * np.dtype(np.float64).itemsize * (roots << depth)

    def put(self, rows: np.ndarray, values: np.ndarray | float) -> None:
        """Set the values at ``rows``, int64 ``[n]``; of a row that is there more than once the last value stays."""
        self.values[rows] = values
        self._changed.append(rows)
        self._waiting += len(rows)
        if self._waiting > WAITING:
            self._settle()

    def _settle(self) -> None:
        """Sum up what has changed, level by level; a node that is there more than once gets the same sum again."""
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
        """The sum of all values."""
        self._settle()
        return float(self._sums[self._roots : 2 * self._roots].sum())

    def rebuild(self) -> None:
        """Sum up all values, which may have been written anywhere."""
        self._changed, self._waiting = [], 0
        for level in range(self._depth - 1, -1, -1):
            begin = self._roots << level
            below = self._sums[2 * begin : 4 * begin]
            np.add(below[::2], below[1::2], out=self._sums[begin : 2 * begin])

    def find(self, fractions: np.ndarray) -> np.ndarray:
        """The rows at which the running sum of the values exceeds these fractions of their total.

        A row whose value is 0 is never found, however sums are rounded.

        Args:
            fractions: float64 ``[n]``, from 0 to 1; sorted they are faster to find.

        Returns:
            int64 ``[n]``.

        Raises:
            ValueError: every value is 0.
        """
        self._settle()
        running = np.zeros(self._roots + 1)
        np.add.accumulate(self._sums[self._roots : 2 * self._roots], out=running[1:])
        if not running[-1] > 0.0:
            raise ValueError('every value of the sum tree is 0: there is none to draw.')
        # Below the total, so that a node is found, one that has added to the running sum.
        wanted = np.minimum(fractions * running[-1], np.nextafter(running[-1], 0.0))
        nodes = running[1:].searchsorted(wanted, side='right')
        wanted -= running.take(nodes)
        nodes += self._roots
        found = self._descend(nodes, wanted)
        empty = np.flatnonzero(self._sums.take(found) == 0.0)
        if len(empty):
            found[empty] = self._descend_past_zeros(nodes[empty], wanted[empty])
        return found - self._begin

    def _descend(self, nodes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """From roots to the nodes of the values at which the running sum below the root exceeds ``wanted``.

        Where a sum was rounded up, ``wanted`` may not be less than both children together, and then what is found is
        the last one, whatever its value.
        """
        for _ in range(self._depth):
            nodes = nodes + nodes
            left = self._sums.take(nodes)
            right = wanted >= left
            left *= right
            wanted = wanted - left
            nodes += right
        return nodes

    def _descend_past_zeros(self, nodes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """The same, but never to a child that is 0: one of the two is not, since their sum is not."""
        for _ in range(self._depth):
            nodes = nodes + nodes
            left = self._sums.take(nodes)
            right = (wanted >= left) & (self._sums.take(nodes + 1) > 0.0)
            wanted = wanted - left * right
            nodes += right
        return nodes
