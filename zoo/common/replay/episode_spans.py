"""Where episodes begin and end in a ring of transitions."""

from __future__ import annotations

import numpy as np


class EpisodeSpans:
    """The first and the last row of each episode in a :class:`zoo.common.replay.ring.Ring`.

    Episodes are numbered by copy. The numbers begin anew after as many as a copy has rows, since each episode takes at
    least one row. Each of ``copies`` copies has ``rows`` rows.
    """

    def __init__(self, rows: int, copies: int) -> None:
        self._rows = rows
        self._base = np.arange(copies) * rows
        self._now = self._base.copy()
        # The episode of each row; the first and the last row of each episode.
        self._of, self._first, self._last = (np.zeros(rows * copies, np.int32) for _ in range(3))
        self._first[self._now] = self._base

    @staticmethod
    def bytes_of(total: int) -> int:
        """Return the memory for ``total`` rows."""
        return 3 * np.dtype(np.int32).itemsize * total

    def begin(self, at: np.ndarray, copies: slice | np.ndarray) -> None:
        """Begin new episodes, whose first transitions will be in the rows ``at``."""
        base = self._base[copies]
        self._now[copies] = base + (self._now[copies] - base + 1) % self._rows
        self._first[self._now[copies]] = at

    def add(self, at: np.ndarray, copies: slice | np.ndarray) -> None:
        """Count the rows ``at`` as the newest of their copies' episodes."""
        now = self._now[copies]
        self._of[at] = now
        self._last[now] = at

    def leave(self, rows: np.ndarray) -> None:
        """Drop these rows, each the first of its episode that is still held."""
        after = rows + 1
        self._first[self._of[rows]] = np.where(after % self._rows == 0, after - self._rows, after)

    def span(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first and the last rows of the episodes that rows belong to."""
        episodes = self._of[rows]
        return self._first[episodes].astype(np.int64), self._last[episodes].astype(np.int64)

    def find(self, valid: np.ndarray, cursor: np.ndarray) -> None:
        """Find the episodes: runs of valid rows (bool ``[copies, rows]``), from each cursor on."""
        for i, (held, begin) in enumerate(zip(valid, cursor, strict=True)):
            at = (begin + np.arange(self._rows)) % self._rows
            held = held[at]  # from the oldest on; the first row is the cursor's and is not valid
            firsts = np.flatnonzero(held & ~np.roll(held, 1))
            lasts = np.flatnonzero(held & ~np.roll(held, -1))
            numbers = self._base[i] + np.arange(len(firsts))
            self._of[self._base[i] + at[held]] = np.repeat(numbers, lasts - firsts + 1)
            self._first[numbers], self._last[numbers] = self._base[i] + at[firsts], self._base[i] + at[lasts]
            # The last episode goes on if no row lies between it and the cursor.
            self._now[i] = self._base[i] + (len(firsts) - held[-1]) % self._rows
            if not held[-1]:
                self._first[self._now[i]] = self._base[i] + begin
