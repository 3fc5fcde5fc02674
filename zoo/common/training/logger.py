"""The log of a training: ``progress.csv``, TensorBoard events, and what is shown (``display.py``)."""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from zoo.common.tools.errors import InvalidType, InvalidValue, a_type
from zoo.common.tools.files import make_directory, write_text
from zoo.common.tools.printing import say
from zoo.common.training.display import compact, display_for

_event_files = itertools.count()


class Logger:
    """Writes the metrics of a run and shows its progress.

    Use it as a context manager, or call ``close``. Only one logger at a time may write to a run directory.

    Args:
        run_dir: the folder of the files. Rows are appended to an existing run. None writes nothing.
        train_steps: environment steps at which the training ends.
        verbose: what is shown, as for ``learn``.
        name: what it begins with.
        start: environment steps that a resumed training has behind it.
        resumed_at: the step of the checkpoint that the run goes on from. Rows of later steps are removed, since these
            steps are taken again, and TensorBoard ignores its later events. None removes none.
        unit: what is counted: ``'steps'``, or ``'updates'`` on a dataset.
        measured: gives metrics as they are now, newer than the last row; called whenever something is shown.

    Raises:
        ValueError: ``progress.csv`` exists and has no column ``step``.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str] | None,
        train_steps: int,
        verbose: int = 1,
        name: str = '',
        start: int = 0,
        resumed_at: int | None = None,
        unit: str = 'steps',
        measured: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._table: _Table | None = None
        self._events: _Events | None = None
        if run_dir is not None:
            folder = make_directory(Path(run_dir), 'a run directory')
            self._table = _Table(folder / 'progress.csv', resumed_at)
            self._events = _Events(folder, resumed_at)
        self._display = display_for(verbose, train_steps, name, start, unit)
        self._says = verbose > 0
        self._last: dict[str, float] = {}  # the last value of every metric: not every row has all
        self._measured = measured
        self._steps = start
        self._due = math.inf if self._display is None else time.perf_counter() + self._display.first
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
            self._table.append({'step': str(int(step)), **{name: compact(value) for name, value in values.items()}})
        if self._events is not None:
            self._events.append(int(step), values)
        self._last.update(values)

    def begin(self) -> None:
        """Show that the first step comes next."""
        if self._display is not None:
            self._display.begin()

    def advance(self, n: int = 1) -> None:
        """Count ``n`` steps, and show how far it has come when due; cheap enough for every step."""
        self._steps += n
        if time.perf_counter() >= self._due:
            self._show()

    def finish(self) -> None:
        """Show the state after the last step."""
        if self._display is not None:
            self._show(over=True)

    def clear(self) -> None:
        """Clear the bar's line for other output. The bar is drawn again when it moves."""
        if self._display is not None:
            self._display.clear()

    def say(self, text: str) -> None:
        """Print a line, above the bar if there is one; nothing with ``verbose=0``."""
        if self._says:
            self.clear()
            say(text)

    def waited(self, seconds: float) -> None:
        """Leave seconds out of the time that is shown."""
        if self._display is not None:
            self._display.waited(seconds)

    def close(self) -> None:
        """Close what is shown and the files. It may be called twice. Nothing can be logged afterwards."""
        self._closed = True
        if self._display is not None:
            self._display.close(self._steps, self._last)
            self._display, self._due = None, math.inf
        self._measured = dict  # it leads back to the training, whose pipes would stay open until garbage is collected
        if self._table is not None:
            self._table.close()
        if self._events is not None:
            self._events.close()

    def _show(self, over: bool = False) -> None:
        assert self._display is not None
        self._last.update({name: float(value) for name, value in self._measured().items()})
        self._due = time.perf_counter() + self._display.show(self._steps, self._last, over)


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


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidType(f'metric {name!r} is {a_type(value)}: it must be a single number.') from None
