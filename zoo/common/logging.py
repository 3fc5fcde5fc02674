"""Run directories and what is written to them while training: ``progress.csv``, ``monitor.csv``, TensorBoard
events, a progress bar."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from zoo.common.checkpoint import jsonable, write_json, write_text

__all__ = ['Logger', 'Monitor', 'jsonable', 'run_directory', 'write_json']

_BAR_SECONDS = 0.2
_BAR_METRICS = 4
_MONITOR_SECONDS = 1.0
# What stands beside the bar when there is room for a few numbers only: returns first.
_BAR_ORDER = ('episode/return', 'episode/', 'loss/')
# And of a training with roles, behind those.
_BAR_ROLES = ('roles/learner_waits', 'roles/actors_wait', 'roles/staleness')
_event_files = itertools.count()


def run_directory(run_dir: str | os.PathLike[str] | bool | None, algorithm: str, env_name: str) -> Path | None:
    """The directory of a run, made if need be.

    Args:
        run_dir: False writes nothing; None makes a new ``<algorithm>_<environment>_<date>-<time>`` (with ``_2``, ``_3``
            and so on behind it when that exists) in the directory that the variable ``ZOO_RUNS`` names, or else in
            ``runs``; a path is used as it is, and a run already there is continued.
        algorithm: for the name, such as ``'TD3'``.
        env_name: for the name, such as ``'ALE/Pong-v5'``; what does not belong in a file name becomes ``-``.

    Returns:
        The directory, or None when nothing is to be written.

    Raises:
        NotADirectoryError: the path is a file.
        TypeError: ``run_dir`` is neither.
    """
    if run_dir is False:
        return None
    if run_dir is True or not isinstance(run_dir, str | os.PathLike | None):
        raise TypeError(f'run_dir is {run_dir!r}: use a path, None for a new directory, or False to write nothing.')
    if run_dir is not None:
        return _make(Path(run_dir).expanduser())
    root = _make(Path(os.environ.get('ZOO_RUNS') or 'runs').expanduser())
    environment = re.sub(r'[^A-Za-z0-9._-]+', '-', env_name).strip('.-')[:80] or 'env'
    name = f'{algorithm}_{environment}_{time.strftime("%Y%m%d-%H%M%S")}'
    for count in itertools.count(1):
        path = root / (name if count == 1 else f'{name}_{count}')
        try:
            path.mkdir()  # mkdir and not exists(): of two runs that start in the same second only one makes it
        except FileExistsError:
            continue
        return path
    raise AssertionError('unreachable')


def check_continued(folder: Path, steps: int) -> None:
    """Refuse a run directory whose run is further on than the agent that is to be trained in it.

    Two trainings that are not one after the other would be mixed in every file, and the newest checkpoint would be now
    of one and now of the other.

    Args:
        folder: the run directory.
        steps: in the agent's life so far.

    Raises:
        ValueError: one sentence that says what would do.
    """
    there = [int(path.name) for path in (folder / 'checkpoints').glob('[0-9]*') if path.name.isdigit()]
    monitor = folder / 'monitor.csv'
    if monitor.exists():
        rows = monitor.read_text(encoding='utf-8', errors='replace').split('\n')[2:-1]
        there += [int(step) for _, _, step in (row.rpartition(',') for row in rows[-1:]) if step.isdigit()]
    if max(there, default=0) > steps:
        raise ValueError(
            f"'{folder}' holds a run of {max(there):,} steps, and this agent has seen {steps:,}: choose another "
            'run_dir, or go on with that run, zoo.resume(…).'
        )


class Logger:
    """Writes the metrics of a run and shows its progress.

    Use it as a context manager, or call ``close``. One logger at a time writes to a run directory.

    Args:
        run_dir: where ``progress.csv`` and the TensorBoard events go (a run there is continued: rows are appended);
            None writes nothing.
        total_steps: length of the progress bar, in environment steps of this call.
        progress: whether to show the bar at all. It is never shown when standard error is neither a terminal nor a
            notebook.
        description: text before the bar.
        resumed_at: the step of a checkpoint from which the run goes on: rows of later steps, which are taken again now,
            are taken out, and TensorBoard is told to leave its own out; None takes out none.

    Raises:
        ValueError: ``progress.csv`` is there and its first column is no step.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str] | None,
        total_steps: int,
        progress: bool = True,
        description: str = '',
        resumed_at: int | None = None,
    ) -> None:
        self._table: _Table | None = None
        self._events: _Events | None = None
        if run_dir is not None:
            folder = _make(Path(run_dir))
            self._table = _Table(folder / 'progress.csv', resumed_at)
            self._events = _Events(folder, resumed_at)
        self._bar: Any = _bar(total_steps, description) if progress else None
        self._beside: dict[str, float] = {}  # the last value of every metric: not every row has all
        self._pending = 0
        self._due = math.inf if self._bar is None else 0.0
        self._closed = False

    def __enter__(self) -> Logger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Writes one row of metrics; a metric may appear later than the first row.

        Args:
            step: environment steps the agent has seen, the x axis.
            metrics: numbers by name, grouped by '/': ``'episode/return'``, ``'loss/critic'``. Any scalar that ``float``
                takes; NaN and the infinities are written as such.

        Raises:
            TypeError: a metric is not a single number.
            ValueError: a metric is called ``step``, which is the first column, or the logger is closed.
        """
        if self._closed:
            raise ValueError('this logger is closed: make a new one, which continues the run.')
        if 'step' in metrics:
            raise ValueError("a metric cannot be called 'step', which is the first column of progress.csv.")
        values = {name: _number(name, value) for name, value in metrics.items()}
        if self._table is not None:
            self._table.append({'step': str(int(step)), **{name: _compact(value) for name, value in values.items()}})
        if self._events is not None:
            self._events.append(int(step), values)
        self._beside.update(values)

    def advance(self, n: int = 1) -> None:
        """Moves the bar on by ``n`` steps. It adds a number and looks at the clock: cheap enough for every step."""
        self._pending += n
        if time.perf_counter() >= self._due:
            self._refresh()

    def clear(self) -> None:
        """Takes the bar off its line, for something else to be written there; it is drawn again when it moves."""
        if self._bar is not None:
            self._bar.clear()

    def close(self) -> None:
        """Brings the bar up to date and closes the files. May be called twice; nothing can be logged after it."""
        self._closed = True
        if self._bar is not None:
            self._refresh()
            self._bar.close()
            self._bar, self._due = None, math.inf
        if self._table is not None:
            self._table.close()
        if self._events is not None:
            self._events.close()

    def _refresh(self) -> None:
        # On-policy loops finish the rollout they are in, so they pass the total by a little.
        self._bar.total = max(self._bar.total, self._bar.n + self._pending)
        self._bar.show(_summary(self._beside))
        self._bar.update(self._pending)
        self._pending = 0
        self._due = time.perf_counter() + _BAR_SECONDS


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


def keep_rows(path: Path, until: int) -> None:
    """Take out of a CSV file the rows of later steps than ``until``, by its column ``step``.

    Raises:
        ValueError: it has no such column.
    """
    with open(path, newline='', encoding='utf-8') as file:
        header, *rows = list(csv.reader(file))
    if 'step' not in header:
        raise ValueError(f"'{path}' was not written by zoo: move it away, or choose another run_dir.")
    at = header.index('step')
    whole = rows if path.read_bytes().endswith(b'\n') else rows[:-1]  # of a killed run's last one even the step may be
    kept = [row for row in whole if len(row) > at and row[at].isdigit() and int(row[at]) <= until]
    if len(kept) < len(rows):
        text = io.StringIO(newline='')
        csv.writer(text, lineterminator='\n').writerows([header, *kept])
        write_text(path, text.getvalue())


class _Table:
    """A CSV file that takes rows of any columns: a new column rewrites the file once, with the union of the columns."""

    def __init__(self, path: Path, resumed_at: int | None = None) -> None:
        self._path = path
        self._columns: list[str] = []
        if path.exists():
            with open(path, newline='', encoding='utf-8') as file:
                self._columns = next(csv.reader(file), [])
        if self._columns and resumed_at is not None:
            keep_rows(path, resumed_at)
        self._end_last_row()
        self._file = open(path, 'a', newline='', encoding='utf-8')

    def append(self, row: Mapping[str, str]) -> None:
        if new := [column for column in row if column not in self._columns]:
            self._widen(new)
        csv.writer(self._file, lineterminator='\n').writerow([row.get(column, '') for column in self._columns])
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _end_last_row(self) -> None:
        # A run that was killed may have left half a row; what follows must not be glued to it.
        if self._columns and not self._path.read_bytes().endswith(b'\n'):
            with open(self._path, 'a', encoding='utf-8') as file:
                file.write('\n')

    def _widen(self, new: list[str]) -> None:
        columns = self._columns + new
        with open(self._path, newline='', encoding='utf-8') as file:
            rows = list(csv.reader(file))[1:]
        text = io.StringIO(newline='')
        writer = csv.writer(text, lineterminator='\n')
        writer.writerow(columns)
        writer.writerows(row + [''] * (len(columns) - len(row)) for row in rows)
        write_text(self._path, text.getvalue())
        self._file.close()
        self._file = open(self._path, 'a', newline='', encoding='utf-8')
        self._columns = columns


class _Events:
    """A TensorBoard event file.

    ``tf.summary.scalar`` needs the tensorboard package, which zoo does not depend on. The file is only a TFRecord of
    ``Event`` messages, and TensorFlow has both.
    """

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        self._folder = folder
        self._resumed_at = resumed_at
        self._writer: Any = None

    def append(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer is None:
            self._open()
        event = self._event(step=step, wall_time=time.time())
        for name, value in values.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._write(event)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _open(self) -> None:
        import tensorflow as tf

        self._event = tf.compat.v1.Event
        # The name that TensorBoard looks for; the count keeps two loggers of one second in one process apart.
        unique = f'{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{next(_event_files)}'
        self._writer = tf.io.TFRecordWriter(str(self._folder / f'events.out.tfevents.{unique}'))
        self._write(self._event(wall_time=time.time(), file_version='brain.Event:2'))
        if self._resumed_at is not None:  # by which TensorBoard leaves out what other files have from that step on
            start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
            self._write(self._event(step=self._resumed_at + 1, wall_time=time.time(), session_log=start))

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()


def _make(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(f"'{path}' cannot be a run directory: it is a file, or lies in one.") from None
    return path


def _bar(total_steps: int, description: str) -> Any:
    """A bar, or None where nobody would see it."""
    from zoo.common.progress import Bar

    # A notebook without ipywidgets gets tqdm's text bar, which would take its output for a file and hide.
    notebook = 'ipykernel.zmqshell' in sys.modules
    bar = Bar(
        total=total_steps,
        desc=description or None,
        disable=False if notebook else None,
        unit=' steps',
        unit_scale=True,
        dynamic_ncols=True,
        smoothing=0.05,  # steps come in bursts between updates
        mininterval=0,  # advance has its own gate
        miniters=0,
    )
    return None if bar.disable else bar


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f'metric {name!r} is a {type(value).__name__}: it must be a single number.') from None


def _compact(value: float) -> str:
    """Six significant digits, but counts in full."""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f'{value:.6g}'


def _summary(values: Mapping[str, float]) -> list[str]:
    """The metrics beside the bar: ``['return=195', 'length=195', 'actor=0.0123']``, and of roles how they wait."""
    rank = {name: next((i for i, group in enumerate(_BAR_ORDER) if name.startswith(group)), 9) for name in values}
    shown = sorted((name for name in values if not name.startswith('roles/')), key=rank.__getitem__)[:_BAR_METRICS]
    shown += [name for name in _BAR_ROLES if name in values]
    return [f'{name.rpartition("/")[2]}={values[name]:.4g}' for name in shown]
