"""The runs of a folder as rows that can be sorted, filtered and compared."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from zoo.common.tools.errors import InvalidValue
from zoo.dashboard.charts import Curve
from zoo.dashboard.values import written

#: The columns of the table by name, with their titles.
COLUMNS = {name: name for name in ('begun', 'algorithm', 'environment', 'steps')}
COLUMNS |= {'score': 'return', 'rate': 'steps/s', 'seed': 'seed'}
#: The file, in the folder of a run of the dashboard, with the program that repeats it.
PROGRAM = 'program.py'

#: The return of a run is the mean of this many last episodes.
_WINDOW = 100


@dataclass(frozen=True)
class RunRow:
    """A run in the table.

    Attributes:
        run: the run, from ``zoo.open_run``.
        begun: when it began, in seconds since 1970.
        steps, train_steps: environment steps so far, and in all.
        score: mean return of its last episodes; NaN before the first has ended.
        rate: median of its environment steps per second.
        settings: every parameter by its name, such as ``'net_list[0].hidden'``.
        differs: the settings in which it differs from other runs of its algorithm in its environment.
    """

    run: Any
    begun: float
    steps: int
    train_steps: int
    score: float
    rate: float
    settings: Mapping[str, Any]
    differs: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return str(self.run.name)

    @property
    def text(self) -> str:
        """The text that a filter searches."""
        settings = ' '.join(f'{name}={written(value)}' for name, value in self.settings.items())
        return f'{self.name} {self.run.algorithm} {self.run.environment} seed={self.run.seed} {settings}'.lower()


class Runs:
    """The runs of a folder; None: the folder where ``zoo.train`` writes runs."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = folder
        self._read: dict[Path, tuple[tuple[float, ...], RunRow]] = {}

    def rows(self, wanted: str = '', sort: str = 'begun', descending: bool = True) -> list[RunRow]:
        """Return the rows of the table; runs without a number always come last.

        Args:
            wanted: words such as ``'ppo gamma=0.98'``; the name, algorithm, environment and settings of a row together
                must have all of them.
            sort: a key of :data:`COLUMNS`.
            descending: the highest first.

        Raises:
            ValueError: there is no such column.
        """
        if sort not in COLUMNS:
            raise InvalidValue(f'there is no column {sort!r}: sort by {", ".join(COLUMNS)}.')
        rows = _told_apart([self._row(run) for run in zoo.list_runs(self.folder)])
        rows = [row for row in rows if all(word in row.text for word in wanted.lower().split())]
        rows.sort(key=lambda row: _key(row, sort), reverse=descending)
        return sorted(rows, key=lambda row: _key(row, sort) == -math.inf)

    def _row(self, run: Any) -> RunRow:
        files = [run.path / name for name in ('config.json', 'progress.csv', 'monitor.csv')]
        stamp = tuple(path.stat().st_mtime if path.exists() else 0.0 for path in files)
        known = self._read.get(run.path)
        if known is None or known[0] != stamp:
            known = self._read[run.path] = stamp, _made(run, stamp[0])
        return known[1]


def _made(run: Any, begun: float) -> RunRow:
    _, returns = run.curve
    rates = [rate for rate in run.progress.get('speed/steps_per_second', []) if math.isfinite(rate)]
    score = float(np.mean(returns[-_WINDOW:])) if returns else math.nan
    rate = float(np.median(rates)) if rates else math.nan
    return RunRow(run, begun, run.steps, run.end, score, rate, run.settings, {})


def _told_apart(rows: Sequence[RunRow]) -> list[RunRow]:
    found = []
    groups: dict[tuple[str, str], list[RunRow]] = {}
    for row in rows:
        groups.setdefault((row.run.algorithm, row.run.environment), []).append(row)
    for group in groups.values():
        names = dict.fromkeys(name for row in group for name in row.settings)
        differ = [name for name in names if len({written(row.settings.get(name)) for row in group}) > 1]
        for row in group:
            found.append(replace(row, differs={name: row.settings[name] for name in differ if name in row.settings}))
    return found


def _key(row: RunRow, sort: str) -> Any:
    if sort in ('algorithm', 'environment'):
        return str(getattr(row.run, sort)).lower()
    value = row.run.seed if sort == 'seed' else getattr(row, sort)
    return -math.inf if value is None or math.isnan(value) else value


def curve(run: Any, label: str) -> Curve:
    """Return the learning curve of a run: each episode, and the mean of the last ones."""
    steps, means = run.smooth_curve
    return Curve(label, steps, means, dots=run.curve[1])


def configuration(row: RunRow) -> str:
    """Return the settings of a run, a line for each."""
    return '\n'.join(f'{name} = {written(value)}' for name, value in row.settings.items())


def plain(config: Any) -> Any:
    """Return a configuration as it was given: with schedules, without the default dtype of networks."""
    if isinstance(config, Mapping):
        if config.get('schedule') == 'linear':
            return zoo.Linear(config['start'], config['end'], config['until'])
        return {key: plain(item) for key, item in config.items() if (key, item) != ('dtype', 'float32')}
    return [plain(item) for item in config] if isinstance(config, list | tuple) else config
