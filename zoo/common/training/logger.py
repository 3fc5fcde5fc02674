"""The log of a training: ``progress.csv``, TensorBoard events, and the progress bar."""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from zoo.common.tools.errors import InvalidType, InvalidValue, a_type
from zoo.common.tools.files import make_directory, write_text
from zoo.common.tools.printing import say

_BAR_SECONDS = 0.2
_BAR_METRICS = 4
# The metrics beside the bar, most important first.
_BAR_ORDER = ('episode/return', 'episode/', 'loss/')
# The metrics of a training with roles, after the others.
_BAR_ROLES = ('roles/learner_waits', 'roles/actors_wait', 'roles/staleness')
_event_files = itertools.count()


class Logger:
    """Writes the metrics of a run and shows its progress.

    Use it as a context manager, or call ``close``. Only one logger at a time may write to a run directory.

    Args:
        run_dir: the folder of the files. Rows are appended to an existing run. None writes nothing.
        total_steps: the length of the progress bar, in environment steps of this call.
        progress: show the bar, if standard error is a terminal or a notebook.
        description: text before the bar.
        resumed_at: the step of the checkpoint that the run goes on from. Rows of later steps are removed, since these
            steps are taken again, and TensorBoard ignores its later events. None removes none.

    Raises:
        ValueError: ``progress.csv`` exists and has no column ``step``.
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
            folder = make_directory(Path(run_dir), 'a run directory')
            self._table = _Table(folder / 'progress.csv', resumed_at)
            self._events = _Events(folder, resumed_at)
        self._bar: Any = _bar(total_steps, description) if progress else None
        self._says = progress
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
        """Write one row of metrics. New metrics may appear in any row.

        Args:
            step: environment steps in the agent's life, the x axis.
            metrics: what ``float`` takes, also NaN or infinite, by name, grouped by '/': ``'episode/return'``.

        Raises:
            TypeError: a metric is not a single number.
            ValueError: a metric is called ``step``, like the first column; or the logger is closed.
        """
        if self._closed:
            raise InvalidValue('this logger is closed: make a new one, which continues the run.')
        if 'step' in metrics:
            raise InvalidValue("a metric cannot be called 'step', like the first column of progress.csv: rename it.")
        values = {name: _number(name, value) for name, value in metrics.items()}
        if self._table is not None:
            self._table.append({'step': str(int(step)), **{name: _compact(value) for name, value in values.items()}})
        if self._events is not None:
            self._events.append(int(step), values)
        self._beside.update(values)

    def advance(self, n: int = 1) -> None:
        """Move the bar on by ``n`` steps; cheap enough for every step."""
        self._pending += n
        if time.perf_counter() >= self._due:
            self._refresh()

    def clear(self) -> None:
        """Clear the bar's line for other output. The bar is drawn again when it moves."""
        if self._bar is not None:
            self._bar.clear()

    def say(self, text: str) -> None:
        """Print a line above the bar, also where nobody sees a bar; nothing without ``progress``."""
        if self._says:
            self.clear()
            say(text)

    def close(self) -> None:
        """Bring the bar up to date and close the files. It may be called twice. Nothing can be logged afterwards."""
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
        # On-policy loops finish their rollout and so pass the total by a little.
        self._bar.total = max(self._bar.total, self._bar.n + self._pending)
        self._bar.show(_summary(self._beside))
        self._bar.update(self._pending)
        self._pending = 0
        self._due = time.perf_counter() + _BAR_SECONDS


def keep_rows(path: Path, until: int) -> None:
    """Remove the rows of a CSV file with a higher ``step`` than ``until``.

    Raises:
        ValueError: it has no such column.
    """
    with open(path, newline='', encoding='utf-8') as file:
        header, *rows = list(csv.reader(file))
    if 'step' not in header:
        raise InvalidValue(f"'{path}' was not written by zoo: move it away, or choose another run_dir.")
    at = header.index('step')
    # A killed run may have cut its last row, even the step.
    whole = rows if path.read_bytes().endswith(b'\n') else rows[:-1]
    kept = [row for row in whole if len(row) > at and row[at].isdigit() and int(row[at]) <= until]
    if len(kept) < len(rows):
        text = io.StringIO(newline='')
        csv.writer(text, lineterminator='\n').writerows([header, *kept])
        write_text(path, text.getvalue())


class _Table:
    """A CSV file that takes rows of any columns. A new column rewrites the file once, with all columns."""

    def __init__(self, path: Path, resumed_at: int | None = None) -> None:
        self._path = path
        self._columns: list[str] = []
        if path.exists():
            with open(path, newline='', encoding='utf-8') as file:
                self._columns = next(csv.reader(file), [])
        if self._columns and resumed_at is not None:
            keep_rows(path, resumed_at)
        cut = self._columns and not path.read_bytes().endswith(b'\n')
        self._file = open(path, 'a', newline='', encoding='utf-8')
        if cut:  # a killed run has left half a row: end it
            self._file.write('\n')
            self._file.flush()

    def append(self, row: Mapping[str, str]) -> None:
        if new := [column for column in row if column not in self._columns]:
            self._widen(new)
        csv.writer(self._file, lineterminator='\n').writerow([row.get(column, '') for column in self._columns])
        self._file.flush()

    def close(self) -> None:
        self._file.close()

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

    ``tf.summary.scalar`` needs the package ``tensorboard``, which zoo does not depend on. TensorFlow alone can write
    the file, a TFRecord of ``Event`` messages.
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
        # TensorBoard looks for this name; the count separates two loggers of one second in one process.
        unique = f'{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{next(_event_files)}'
        self._writer = tf.io.TFRecordWriter(str(self._folder / f'events.out.tfevents.{unique}'))
        self._write(self._event(wall_time=time.time(), file_version='brain.Event:2'))
        if self._resumed_at is not None:  # tells TensorBoard to ignore later steps in other files
            start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
            self._write(self._event(step=self._resumed_at + 1, wall_time=time.time(), session_log=start))

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()


def _bar(total_steps: int, description: str) -> Any:
    """Return a progress bar; None where nobody would see it."""
    from zoo.common.tools.progress_bar import Bar

    # Without ipywidgets tqdm's text bar would take a notebook's output for a file and hide.
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
        raise InvalidType(f'metric {name!r} is {a_type(value)}: it must be a single number.') from None


def _compact(value: float) -> str:
    """Return six significant digits, but counts in full."""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f'{value:.6g}'


def _summary(values: Mapping[str, float]) -> list[str]:
    """Return the metrics beside the bar, such as ``['return=195', 'length=195', 'actor=0.0123']``."""
    rank = {name: next((i for i, group in enumerate(_BAR_ORDER) if name.startswith(group)), 9) for name in values}
    shown = sorted((name for name in values if not name.startswith('roles/')), key=rank.__getitem__)[:_BAR_METRICS]
    shown += [name for name in _BAR_ROLES if name in values]
    return [f'{name.rpartition("/")[2]}={values[name]:.4g}' for name in shown]
