"""A selector for any channels: it looks at each of them, again and again, with pauses that grow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from zoo.distributed.engines.waiting import Deadline, pauses

# Seconds between two looks.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 20e-6, 2e-3


class Ready(Protocol):
    """A channel, a queue, or whatever else can be ready."""

    def ready(self) -> bool:
        """Return whether a ``get`` would not wait."""


class PolledSelector:
    """A :class:`zoo.distributed.engines.base.Selector` for an engine without a better one.

    Each look asks every channel: with a thousand channels a look takes milliseconds.
    """

    def __init__(self, channels: Sequence[Ready]) -> None:
        self._channels = list(channels)

    def select(self, timeout: float | None) -> list[int]:
        """Wait until a channel is ready; return the places of all that are, in order; none after ``timeout`` s."""
        deadline, waits = Deadline(timeout), pauses(_SHORTEST_PAUSE, _LONGEST_PAUSE)
        while True:
            found = [i for i, channel in enumerate(self._channels) if channel.ready()]
            if found or deadline.left <= 0:
                return found
            time.sleep(min(next(waits), deadline.left))
