"""How ranks wait: deadlines, pauses that grow, and the grace that a collective gives to a rank that left."""

from __future__ import annotations

import time
from collections.abc import Iterator

from zoo.common.tools.errors import TimedOut

#: Seconds that a collective goes on after a rank of its group has left, which may be right after that rank's own part.
GRACE = 3.0


class Deadline:
    """The moment at which a wait ends, ``timeout`` seconds from now; None: there is no limit."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._end = float('inf') if timeout is None else time.monotonic() + timeout

    @property
    def left(self) -> float:
        """Seconds left, 0 or more; infinite without a limit."""
        return max(0.0, self._end - time.monotonic())

    def check(self, what: str) -> None:
        """Raise ``TimeoutError('<what>, in <timeout> s.')`` when no time is left."""
        if self._timeout is not None and self.left <= 0:
            raise TimedOut(f'{what}, in {self._timeout:g} s.')


class Grace:
    """A span of :data:`GRACE` seconds that begins when it is first asked for."""

    def __init__(self) -> None:
        self._deadline: Deadline | None = None

    def is_over(self) -> bool:
        """Return whether the grace has passed since the first call."""
        if self._deadline is None:
            self._deadline = Deadline(GRACE)
        return self._deadline.left <= 0


def pauses(shortest: float, longest: float) -> Iterator[float]:
    """Yield seconds to sleep between two looks: each twice the last one, up to the longest, without end."""
    pause = shortest
    while True:
        yield pause
        pause = min(2 * pause, longest)
