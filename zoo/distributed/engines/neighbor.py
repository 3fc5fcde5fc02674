"""The watch over one other rank, where the launcher does not notice a process that is stopped."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Container

# Seconds: between two signs of life; of silence until a rank with a stopped process is given up, and until any other
# rank is: it may be on a lost host, or in a long import that keeps the interpreter to itself.
_ALIVE_EVERY, _STOPPED_LIMIT, _SILENT_LIMIT = 1.0, 5.0, 60.0


class NeighborWatch:
    """The ranks that have not left form a ring: each sends a sign of life to the next one and watches the one before.

    ``identities`` is what :func:`process_identity` returned on every rank.
    """

    def __init__(self, rank: int, identities: list[str]) -> None:
        self._rank, self._identities = rank, identities
        self._watched: int | None = None
        self._silence = 0.0
        self._last_turn = time.monotonic()
        self._next_alive = 0.0

    def heard(self, rank: int) -> None:
        """Note that something has come from a rank."""
        if rank == self._watched:
            self._silence = 0.0

    def turn(self, gone: Container[int]) -> int | None:
        """Count the time since the last turn as silence; return the rank to send a sign of life to, if one is due.

        It is called several times a second, with the ranks that have left.
        """
        now = time.monotonic()
        # At most so much in one turn: a rank that was itself kept from running blames nobody.
        self._silence += min(now - self._last_turn, 0.25)
        self._last_turn = now
        if now < self._next_alive:
            return None
        self._next_alive = now + _ALIVE_EVERY
        watched = self._next(-1, gone)
        if watched != self._watched:
            self._watched, self._silence = watched, 0.0
        return self._next(1, gone)

    def failure(self) -> str | None:
        """Return the message that ends the job if the watched rank has stopped answering, else None."""
        watched, silence = self._watched, self._silence
        if watched is None or silence < _STOPPED_LIMIT:
            return None
        stopped = _is_stopped(self._identities[watched], self._identities[self._rank])
        if not stopped and silence < _SILENT_LIMIT:
            return None
        why = 'its process is stopped' if stopped else 'it is silent'
        return f'rank {watched} has not answered for {silence:.0f} s ({why}): ending every rank.'

    def _next(self, step: int, gone: Container[int]) -> int | None:
        """Return the next rank of the ring in this direction; None if all others have left."""
        size = len(self._identities)
        ranks = ((self._rank + step * distance) % size for distance in range(1, size))
        return next((rank for rank in ranks if rank not in gone), None)


def process_identity() -> str:
    """Return ``'<machine and process namespace>|<process id>'``. Two that share ``/proc`` have the same first part."""
    try:
        with open('/proc/sys/kernel/random/boot_id') as file:
            return f'{file.read().strip()} {os.readlink("/proc/self/ns/pid")}|{os.getpid()}'
    except OSError:
        return f'{socket.gethostname()} without /proc|{os.getpid()}'


def _is_stopped(other: str, own: str) -> bool:
    """Return whether a signal or a debugger has stopped the process of an identity, if this process can see that."""
    place, _, process = other.partition('|')
    if place != own.partition('|')[0]:
        return False
    try:
        with open(f'/proc/{process}/stat') as file:
            return file.read().rpartition(')')[2].split()[0] in 'Tt'
    except (OSError, IndexError):
        return False
