"""What is logged of the roles: what each role does in a second, and how long it waits for the others.

Actors, servers and buffers put their times into the messages that they send anyway. The learner adds its own times, and
logs the means since the last row under ``roles/…``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import numpy as np

#: Seconds of a lap of servers and buffers, which say what part of their time they wait.
LAP = 1.0


class Clock:
    """The time since the last lap, and how much of it was spent waiting, by what was waited for.

    Attributes:
        idle: the part of the last whole lap of :meth:`end_lap` that was spent waiting; NaN before.
    """

    idle = np.nan

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._waited: dict[str, float] = {}

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Count the time of the block as waiting for ``what``."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._waited[what] = self._waited.get(what, 0.0) + time.perf_counter() - begin

    def end_lap(self) -> None:
        """Set :attr:`idle` and begin a new lap, if the current one has lasted :data:`LAP`."""
        if time.perf_counter() - self._begin > LAP:
            waited = sum(self._waited.values())
            (seconds,) = self.lap()
            self.idle = waited / seconds

    def lap(self, *what: str) -> list[float]:
        """Return the seconds since the last lap, and those spent waiting for each of ``what``; begin a new lap."""
        now = time.perf_counter()
        found = [now - self._begin, *(self._waited.get(name, 0.0) for name in what)]
        self._begin, self._waited = now, {}
        return found


class RoleMetrics:
    """What a learner logs of itself, its actors and buffers, and the servers of its actors.

    Attributes:
        clock: the learner's; it waits for ``'actors'``, for ``'buffers'`` and for the other ``'learners'``.
    """

    def __init__(self, updates: int = 0) -> None:
        self.clock, self._updates = Clock(), updates
        self._clear()

    def _clear(self) -> None:
        self._spent: list[np.ndarray] = []
        self._idle: list[float] = []
        self._steps = 0
        self._depths: list[int] = []
        self._lags: list[int] = []

    def heard(self, spent: np.ndarray, steps: int, idle: float = np.nan) -> None:
        """Count a message of an actor.

        Args:
            spent: float64 ``[4]``: seconds since the actor's last message; how many of them it waited for the learner,
                and for a server; the part of its time that this server waits, NaN without a server.
            steps: environment steps in the message.
            idle: the part of its time that the buffer that took the message waits; NaN without a buffer.
        """
        self._spent.append(spent)
        if np.isfinite(idle):
            self._idle.append(idle)
        self._steps += steps

    def chosen(self, depth: int, lag: int) -> None:
        """Count a message that the learner chose among ``depth``, of weights that were ``lag`` versions old."""
        self._depths.append(depth)
        self._lags.append(lag)

    def measured(self, updates: int) -> dict[str, float]:
        """Return the metrics since the last call. A metric without data is left out.

        * ``roles/learner_waits``, ``roles/actors_wait``, ``roles/servers_wait``, ``roles/buffers_wait``: the part of
          its time in which a role waits for others;
        * ``roles/actor_steps_per_second``: environment steps of one actor;
        * ``roles/learner_updates_per_second``: updates of the agent;
        * ``roles/queue``: actors with a message when the learner last looked at all of them;
        * ``roles/staleness``: versions between the weights that an actor acted with and the weights that learned.
        """
        seconds, *waited = self.clock.lap('actors', 'buffers', 'learners')
        found = {
            'roles/learner_waits': sum(waited) / max(seconds, 1e-9),
            'roles/learner_updates_per_second': (updates - self._updates) / max(seconds, 1e-9),
        }
        self._updates = updates
        if self._spent:
            whole, learner, server, _ = np.sum(self._spent, 0)
            idle = [spent[3] for spent in self._spent if np.isfinite(spent[3])]
            found['roles/actors_wait'] = (learner + server) / max(whole, 1e-9)
            found['roles/actor_steps_per_second'] = self._steps / max(whole, 1e-9)
            if idle:
                found['roles/servers_wait'] = float(np.mean(idle))
        if self._idle:
            found['roles/buffers_wait'] = float(np.mean(self._idle))
        if self._depths:
            found['roles/queue'] = float(np.mean(self._depths))
            found['roles/staleness'] = float(np.mean(self._lags))
        self._clear()
        return found
