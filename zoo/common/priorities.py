"""A sum tree in one array: rows are drawn in proportion to their values, which change a few at a time.

Schaul et al. 2016, *Prioritized Experience Replay* (arXiv 1511.05952), appendix B.2.1, but with 32 children to a node
rather than two, since here a level costs one call of NumPy for all samples together: three levels in place of twenty
for a million rows. What stands at the top, a thousand numbers at the most, is summed up anew for every draw.
"""

from __future__ import annotations

import numpy as np

#: Children of a node. Measured on a million rows and 256 samples: 32 is faster than 16, 64 and 128.
WIDTH = 32

#: Levels are put on top of each other until one has no more nodes than this.
TOP = 1024

#: Changes that wait to be summed up; more than in a draw and the steps between two of them.
WAITING = 4096


class SumTree:
    """Sums over ever wider runs of values.

    Every sum is the sum of its children at any time that it is read: nothing is added to it or subtracted from it, so
    that no rounding piles up, and a tree that is built anew from the same values is the same to the last bit.

    Attributes:
        values: float64 ``[size]``, a view; change it by `put`, or call `rebuild` afterwards.

    Args:
        size: how many values there are; all are 0 at first.
    """

    def __init__(self, size: int) -> None:
        lengths = self._lengths(size)
        array = np.zeros(sum(lengths))
        # Level by level, the values first: [nodes of this level, their children].
        self._levels = [part.reshape(-1, WIDTH) for part in np.split(array, np.cumsum(lengths)[:-1])]
        self.values = self._levels[0].reshape(-1)[:size]
        self._changed: list[np.ndarray] = []
        self._waiting = 0

    @staticmethod
    def _lengths(size: int) -> list[int]:
        """Of the levels, each in whole nodes, from the values up."""
        lengths = [-(-size // WIDTH) * WIDTH]
        while lengths[-1] > TOP:
            lengths.append(-(-lengths[-1] // WIDTH // WIDTH) * WIDTH)
        return lengths

    @classmethod
    def bytes_of(cls, size: int) -> int:
        """Memory of a tree of so many values."""
        return 8 * sum(cls._lengths(size))

    def put(self, rows: np.ndarray, values: np.ndarray | float) -> None:
        """Set the values at ``rows``, ``[n]``; of a row that is there more than once the last value stays."""
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
        for below, above in zip(self._levels, self._levels[1:], strict=False):
            rows = rows // WIDTH
            above.reshape(-1)[rows] = np.add.reduce(below.take(rows, axis=0), axis=1)

    def rebuild(self) -> None:
        """Sum up all values, which may have been written anywhere."""
        self._changed, self._waiting = [], 0
        for below, above in zip(self._levels, self._levels[1:], strict=False):
            above.reshape(-1)[: len(below)] = np.add.reduce(below, axis=1)

    def total(self) -> float:
        """The sum of all values."""
        self._settle()
        return float(np.add.accumulate(self._levels[-1].reshape(-1))[-1])

    def find(self, fractions: np.ndarray) -> np.ndarray:
        """The rows at which the running sum of the values exceeds these fractions of their total.

        A row whose value is 0 is never found, however sums round: what is looked for in a node is kept below the
        running sum of its children, and the first child at which that is exceeded has added to it.

        Args:
            fractions: float64 ``[n]``, from 0 to 1; sorted they are faster to find.

        Returns:
            int64 ``[n]``.

        Raises:
            ValueError: every value is 0.
        """
        self._settle()
        top = self._levels[-1].reshape(-1)
        running = np.zeros(len(top) + 1)
        np.add.accumulate(top, out=running[1:])
        if not running[-1] > 0.0:
            raise ValueError('every value of the sum tree is 0: there is none to draw.')
        wanted = np.minimum(fractions * running[-1], np.nextafter(running[-1], 0.0))
        found = running[1:].searchsorted(wanted, side='right')
        wanted -= running[found]
        begins = np.arange(len(wanted)) * WIDTH
        for level in self._levels[-2::-1]:
            sums = np.add.accumulate(level.take(found, axis=0), axis=1)
            np.minimum(wanted, np.nextafter(sums[:, -1], 0.0), out=wanted)
            child = (sums > wanted[:, None]).argmax(1)
            wanted -= sums.take(begins + child - 1, mode='wrap') * (child > 0)
            found = found * WIDTH + child
        return found
