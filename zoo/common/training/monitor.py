"""``monitor.csv``: one row for each episode."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.files import write_text

_MONITOR_SECONDS = 1.0


class Monitor:
    """Writes ``monitor.csv`` in the form of Stable-Baselines3's ``Monitor``, which many tools read.

    The first line ``#{"t_start": …, "env_id": …}`` has the time at which the run began, in seconds since 1970. Then
    follow a header and one row for each episode: the return ``r``, the length ``l`` in steps, the seconds ``t`` from
    the beginning of the run, and ``step``, the steps in the agent's life at the episode's end. In a continued run rows
    are appended, and ``t`` goes on from the last one.

    Args:
        path, env_name: of the file, and for its first line.
        resumed_at: the steps of the checkpoint that the run goes on from. Rows of later episodes, which are played
            again, are removed. None removes none.

    Attributes:
        earlier: return, length and step of each episode that was in the file and stays.

    Raises:
        ValueError: another program wrote the file.
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
        self._zero = time.perf_counter() - (float(kept[-1][2]) if kept else 0.0)
        self._due = 0.0
        write_text(self._path, '\n'.join([f'#{first}', ','.join(self.columns), *rows, '']))
        self._file = open(self._path, 'a', encoding='utf-8')

    def _found(self, resumed_at: int | None) -> tuple[str, list[str]]:
        """Return the first line of an existing file, and the rows that stay."""
        lines = self._path.read_text(encoding='utf-8').split('\n')
        rows = lines[2:-1]  # a killed run may have left a part of a row after the last newline
        if not lines[0].startswith('#') or lines[1:2] != [','.join(self.columns)]:
            raise InvalidValue(f"'{self._path}' was not written by zoo: move it away, or choose another run_dir.")
        if resumed_at is not None:
            rows = [row for row in rows if int(row.rpartition(',')[2]) <= resumed_at]
        return lines[0].removeprefix('#'), rows

    def write(self, episode_return: float, length: int, step: int) -> None:
        """Write one episode. It reaches the disk with the first episode that ends a second later, or by `flush`."""
        now = time.perf_counter()
        self._file.write(f'{round(episode_return, 6)},{length},{round(now - self._zero, 6)},{step}\n')
        if now >= self._due:
            self.flush()

    def flush(self) -> None:
        """Flush the rows to the disk."""
        self._file.flush()
        self._due = time.perf_counter() + _MONITOR_SECONDS

    def waited(self, seconds: float) -> None:
        """Leave seconds in which the training stood still out of all later times."""
        self._zero += seconds

    def close(self) -> None:
        """Close the file."""
        self._file.close()
