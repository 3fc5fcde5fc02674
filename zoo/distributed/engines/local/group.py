"""Collectives of the ``local`` engine, over memory that all ranks of a group have mapped."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import numpy as np

from zoo.distributed.engines.base import PeerLost
from zoo.distributed.engines.local.folder import SLICE, Bell, Board
from zoo.distributed.engines.waiting import Grace

#: Memory of one group's collectives, bytes, and the size up to which every rank reduces the whole array itself.
EXCHANGE, SMALL = 4 << 20, 64 << 10


class Group:
    """The collectives of some ranks: memory that all of them have mapped, and a bell for each rank.

    There are two sets of places to write to, used in turn: a rank may write the next piece while others still read the
    last one. No rank is two pieces ahead, because each piece has a barrier.
    """

    def __init__(self, folder: Path, board: Board, members: tuple[int, ...], rank: int) -> None:
        self._board, self._members, self._count, self._me = board, members, len(members), members.index(rank)
        self._lock, self._turn = threading.Lock(), 0
        name = hashlib.sha1(repr(members).encode()).hexdigest()[:16]
        self._chunk = max(SMALL, EXCHANGE // self._count // 64 * 64)
        shape = (2, self._count + 1, self._chunk + 64)
        size = int(np.prod(shape))
        with open(folder / f'group-{name}', 'ab') as file:
            # Here lack of memory is an error; when the memory is written to, it would be a bus error.
            os.posix_fallocate(file.fileno(), 0, size) if hasattr(os, 'posix_fallocate') else file.truncate(size)
        memory = np.asarray(np.memmap(folder / f'group-{name}', np.uint8, 'r+', shape=shape))
        self._slots, self._lengths = memory[:, :, : self._chunk], memory[:, :, self._chunk :].view(np.int64)
        self._mine = Bell(folder / f'group-{name}-{self._me}')
        others = [0] if self._me else range(1, self._count)
        self._others = [Bell(folder / f'group-{name}-{other}') for other in others]

    def all_reduce(self, buffer: np.ndarray, function: np.ufunc) -> np.ndarray:
        """Return the reduction of all ranks' buffers, computed in the order of the ranks."""
        result = np.empty_like(buffer)
        step = self._chunk // buffer.itemsize
        with self._lock:
            for start in range(0, buffer.size, step):
                piece = buffer[start : start + step]
                turn = self._next()
                slots = self._slots[turn, :, : piece.nbytes].view(buffer.dtype)
                slots[self._me] = piece
                self._meet()
                out = result[start : start + step]
                if piece.nbytes <= SMALL:
                    _reduce(slots[:-1], function, out)
                    continue
                shares = np.linspace(0, piece.size, self._count + 1).astype(int)
                share = slice(shares[self._me], shares[self._me + 1])
                _reduce(slots[:-1, share], function, slots[-1, share])
                self._meet()
                out[:] = slots[-1]
        return result

    def broadcast(self, buffer: np.ndarray | None, root: int) -> np.ndarray:
        """Return the root's bytes. ``root`` counts within the group."""
        with self._lock:
            size, start = -1, 0
            result = np.empty(0, np.uint8) if buffer is None else buffer  # empty until its size is known
            while start < size or size < 0:
                turn = self._next()
                slot, length = self._slots[turn, root], self._lengths[turn, root, :1]
                if self._me == root:
                    size = length[0] = result.nbytes
                    piece = result[start : start + self._chunk]
                    slot[: piece.nbytes] = piece
                self._meet()
                if self._me != root:
                    if size < 0:
                        size = int(length[0])
                        result = np.empty(size, np.uint8)
                    piece = result[start : start + self._chunk]
                    piece[:] = slot[: piece.nbytes]
                start += self._chunk
        return result

    def barrier(self) -> None:
        """Wait for all ranks of the group."""
        with self._lock:
            self._meet()

    def close(self) -> None:
        """Close the bells."""
        for bell in (self._mine, *self._others):
            bell.close()

    def _next(self) -> int:
        self._turn = 1 - self._turn
        return self._turn

    def _meet(self) -> None:
        """Wait for all: every rank rings at the first one; once all have rung, that one rings at every other rank."""
        if self._me:
            self._others[0].ring()
        missing, grace = 1 if self._me else self._count - 1, Grace()
        while missing:
            came = self._mine.wait(SLICE, missing)
            missing -= came
            if not came:
                self._board.check()
                try:
                    self._board.check(self._members, f'a collective of ranks {list(self._members)}')
                except PeerLost:
                    # It may have left after its part, before the first rank has told this one that all came.
                    if grace.is_over():
                        raise
        if not self._me:
            for bell in self._others:
                bell.ring()


def _reduce(rows: np.ndarray, function: np.ufunc, out: np.ndarray) -> None:
    """Reduce two rows or more, in their order."""
    function(rows[0], rows[1], out=out)
    for row in rows[2:]:
        function(out, row, out=out)
