"""``monitor.csv``: a row for each episode."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from zoo.common.tools.files import write_text

_MONITOR_SECONDS = 1.0


class Monitor:
    """``monitor.csv``, a row for each episode, as Stable-Baselines3's ``Monitor`` writes it and many tools read it.

    A line ``#{"t_start": …, "env_id": …}`` with the time at which the run began, in seconds since 1970; a header; and
    of each episode the return ``r``, the length ``l`` in steps, the seconds ``t`` from the beginning of the run to its
    end, and one column more, ``step``, the steps in the agent's life at its end. In a run that is continued, ``t`` goes
    on from the last row: the time in between does not count.

    Args:
        path: the file; rows are appended to one that is there.
        env_name: for its first line.
        resumed_at: the steps of a checkpoint from which the run goes on: rows of later episodes, which were played
            after it and are played again now, are taken out; None takes out none.

    Attributes:
        earlier: the return, the length and the step of each episode that was in the file and stays.

    Raises:
        ValueError: the file is there and is none of ours.
    """

    columns = ('r', 'l', 't', 'step')

    def __init__(self, path: str | os.PathLike[str], env_name: str, resumed_at: int | None = None) -> None:
        self._path = Path(path)
        now = time.time()
        first = json.dumps({'t_start': now, 'env_id': env_name})
        rows: list[str] = []
        if self._path.exists() and self._path.stat().st_size:
            first, rows = self._found(resumed_at)
        kept = [row.split(',') for row in rows]
        self.earlier = [(float(r), int(length), int(step)) for r, length, _, step in kept]
        before = float(kept[-1][2]) if kept else 0.0
        self._zero = time.perf_counter() - before
        self._due = 0.0
        write_text(self._path, '\n'.join([f'#{first}', ','.join(self.columns), *rows, '']))
        self._file = open(self._path, 'a', encoding='utf-8')

    def _found(self, resumed_at: int | None) -> tuple[str, list[str]]:
        """The first line and the rows that stay of a file that is there."""
        lines = self._path.read_text(encoding='utf-8').split('\n')
        rows = lines[2:-1]  # what follows the last end of a line is a row of which a killed run has left a part
        if not lines[0].startswith('#') or lines[1:2] != [','.join(self.columns)]:
            raise ValueError(f"'{self._path}' was not written by zoo: move it away, or choose another run_dir.")
        if resumed_at is not None:
            rows = [row for row in rows if int(row.rpartition(',')[2]) <= resumed_at]
        return lines[0].removeprefix('#'), rows

    def write(self, episode_return: float, length: int, step: int) -> None:
        """One episode. It reaches the disk within a second or so, where episodes go on ending."""
        now = time.perf_counter()
        self._file.write(f'{round(episode_return, 6)},{length},{round(now - self._zero, 6)},{step}\n')
        if now >= self._due:
            self.flush()

    def flush(self) -> None:
        """Have on the disk what was written."""
        self._file.flush()
        self._due = time.perf_counter() + _MONITOR_SECONDS

    def waited(self, seconds: float) -> None:
        """Leave so many seconds, in which the run stood still, out of the times of what follows."""
        self._zero += seconds

    def close(self) -> None:
        """Close the file."""
        self._file.close()
