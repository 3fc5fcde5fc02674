"""How a training with roles goes: what each role does a second, and how long it waits for the others.

Actors, servers and buffers put their times into the messages that they send anyway; the learner adds its own, and logs
the means since the last row under ``roles/…``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import numpy as np

#: Seconds of a lap of those that say what part of their time they wait.
LAP = 1.0


class Clock:
    """The time since the last lap, and how much of it was spent waiting, for one thing and another.

    Attributes:
        idle: the part of its time that was waited for anything, in the last whole lap of `rounded`; NaN before.
    """

    idle = np.nan

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._waited: dict[str, float] = {}

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """What is done in it is to wait for that."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._waited[what] = self._waited.get(what, 0.0) + time.perf_counter() - begin

    def rounded(self) -> None:
        """Begin a new lap where the last one has taken long enough, and remember what part of it was waited."""
        if time.perf_counter() - self._begin > LAP:
            waited = sum(self._waited.values())
            (seconds,) = self.lap()
            self.idle = waited / seconds

    def lap(self, *what: str) -> list[float]:
        """Seconds since the last lap, and those that were waited for each of these; then all begins anew."""
        now = time.perf_counter()
        found = [now - self._begin, *(self._waited.get(name, 0.0) for name in what)]
        self._begin, self._waited = now, {}
        return found


class Roles:
    """What the learner logs of the roles, of its own actors and buffers and of the servers that these ask.

    Args:
        updates: that the learner has behind it.

    Attributes:
        clock: of the learner; it waits for ``'actors'``, for ``'buffers'`` and for the other ``'learners'``.
    """

    def __init__(self, updates: int = 0) -> None:
        self.clock = Clock()
        self._updates = updates
        self._clear()

    def _clear(self) -> None:
        self._spent: list[np.ndarray] = []
        self._idle: list[float] = []
        self._steps = 0
        self._depths: list[int] = []
        self._lags: list[int] = []

    def heard(self, spent: np.ndarray, steps: int, idle: float = np.nan) -> None:
        """A message was taken.

        Args:
            spent: float64 ``[4]``: seconds since the actor's message before, of which it waited for the learner, and
                for a server; the part of its time that this server waits, NaN where there is none.
            steps: of the environment, in it.
            idle: the part of its time that the buffer waits which has taken it; NaN where none has.
        """
        self._spent.append(spent)
        if np.isfinite(idle):
            self._idle.append(idle)
        self._steps += steps

    def chosen(self, depth: int, lag: int) -> None:
        """Of ``depth`` messages that were there one was taken, of weights that were ``lag`` versions old."""
        self._depths.append(depth)
        self._lags.append(lag)

    def measured(self, updates: int) -> dict[str, float]:
        """The metrics since the last time; those of which there is nothing to tell are left out.

        * ``roles/learner_waits``, ``roles/actors_wait``, ``roles/servers_wait``, ``roles/buffers_wait``: the part of
          their time in which they wait for others;
        * ``roles/actor_steps_per_second``: environment steps of one actor;
        * ``roles/learner_updates_per_second``: updates of the agent;
        * ``roles/queue``: messages that were there when the learner came for one;
        * ``roles/staleness``: versions between the weights that were acted with and those that learned from it.

        Args:
            updates: that the learner has behind it by now.
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
