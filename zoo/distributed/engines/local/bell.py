"""A named pipe at which one process waits for others."""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path

#: Seconds between two looks of a waiting rank whether the others are still there.
SLICE = 0.1


class Bell:
    """A named pipe: one process waits at it, others write to it. A full pipe has woken its reader already."""

    def __init__(self, path: Path) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # For reading and writing: opening does not wait for the other side, which may come, go and come again.
        self.handle = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self.handle, select.POLLIN)

    def ring(self) -> None:
        """Wake the reader, now or when it comes."""
        with contextlib.suppress(BlockingIOError):
            os.write(self.handle, b'.')

    def wait(self, seconds: float, most: int = 1 << 16) -> int:
        """Return how many rings came, up to ``most``; 0 if none came for that many seconds."""
        if not self._poll.poll(max(0.0, seconds) * 1000):
            return 0
        with contextlib.suppress(BlockingIOError):
            return len(os.read(self.handle, most))
        return 0

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.handle)
