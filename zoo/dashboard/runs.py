"""The table of runs: their configurations, sorted, filtered, side by side."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from zoo.dashboard.charts import Curve
from zoo.dashboard.values import written

#: The columns of the table by name, with what stands above them.
COLUMNS = {
    'begun': 'begun',
    'algorithm': 'algorithm',
    'environment': 'environment',
    'steps': 'steps',
    'score': 'return',
    'rate': 'steps/s',
    'seed': 'seed',
}
#: In the folder of a run that the dashboard began: the program that does it again.
PROGRAM = 'program.py'

#: The return of a run is the mean of so many last episodes.
_WINDOW = 100


@dataclass(frozen=True)
class Row:
    """A run in the table.

    Attributes:
        run: what ``zoo.open_run`` gives.
        begun: when, in seconds since 1970.
        steps, train_steps: how far it came, and where it was to end.
        score: mean return of its last episodes; NaN before the first has ended.
        rate: median of its steps per second.
        settings: every parameter by its name, ``'net_list[0].hidden'`` and such.
        differs: of those the ones in which it differs from other runs of its algorithm in its environment.
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
        """Of the run's folder."""
        return str(self.run.name)

    @property
    def text(self) -> str:
        """All that a filter looks into."""
        settings = ' '.join(f'{name}={written(value)}' for name, value in self.settings.items())
        return f'{self.name} {self.run.algorithm} {self.run.environment} seed={self.run.seed} {settings}'.lower()


class Runs:
    """The runs of a folder.

    Args:
        folder: None: where ``zoo.train`` writes them.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = folder
        self._read: dict[Path, tuple[tuple[float, ...], Row]] = {}

    def rows(self, wanted: str = '', sort: str = 'begun', descending: bool = True) -> list[Row]:
        """The rows of the table.

        Args:
            wanted: words, of which each has to be in the name, the algorithm, the environment or the settings, such as
                ``'ppo gamma=0.98'``.
            sort: a key of :data:`COLUMNS`.
            descending: the highest first; runs without a number come last either way.

        Raises:
            ValueError: there is no such column.
        """
        if sort not in COLUMNS:
            raise ValueError(f'there is no column {sort!r}: sort by {", ".join(COLUMNS)}.')
        rows = _told_apart([self._row(run) for run in zoo.list_runs(self.folder)])
        rows = [row for row in rows if all(word in row.text for word in wanted.lower().split())]
        rows.sort(key=lambda row: _key(row, sort), reverse=descending)
        return sorted(rows, key=lambda row: _missing(row, sort))

    def _row(self, run: Any) -> Row:
        files = [run.path / name for name in ('config.json', 'progress.csv', 'monitor.csv')]
        stamp = tuple(path.stat().st_mtime if path.exists() else 0.0 for path in files)
        known = self._read.get(run.path)
        if known is None or known[0] != stamp:
            known = self._read[run.path] = stamp, _made(run, stamp[0])
        return known[1]


def _made(run: Any, begun: float) -> Row:
    _, returns = run.curve
    rates = [rate for rate in run.progress.get('speed/steps_per_second', []) if math.isfinite(rate)]
    return Row(
        run,
        begun,
        run.steps,
        run.train_steps,
        float(np.mean(returns[-_WINDOW:])) if returns else math.nan,
        float(np.median(rates)) if rates else math.nan,
        run.settings,
        {},
    )


def _told_apart(rows: Sequence[Row]) -> list[Row]:
    found = []
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.run.algorithm, row.run.environment), []).append(row)
    for group in groups.values():
        names = dict.fromkeys(name for row in group for name in row.settings)
        differ = [name for name in names if len({written(row.settings.get(name)) for row in group}) > 1]
        for row in group:
            own = {name: row.settings[name] for name in differ if name in row.settings}
            found.append(Row(**{**row.__dict__, 'differs': own}))
    return found


def _key(row: Row, sort: str) -> Any:
    if sort in ('algorithm', 'environment'):
        return str(getattr(row.run, sort)).lower()
    value = row.run.seed if sort == 'seed' else getattr(row, sort)
    return -math.inf if value is None or math.isnan(value) else value


def _missing(row: Row, sort: str) -> bool:
    return _key(row, sort) == -math.inf


def curve(run: Any, label: str) -> Curve:
    """The learning curve of a run: each episode, and the mean of the last ones."""
    steps, returns = run.curve
    return Curve(label, steps, running_mean(returns), dots=returns)


def running_mean(values: Sequence[float]) -> list[float]:
    """The mean of the last values at each place: a twentieth of them, 100 at the most."""
    window = max(1, min(len(values) // 20, _WINDOW))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    means: list[float] = ((sums[ends] - sums[starts]) / (ends - starts)).tolist()
    return means


def configuration(row: Row) -> str:
    """The settings of a run, a line for each."""
    return '\n'.join(f'{name} = {written(value)}' for name, value in row.settings.items())


def plain(config: Any) -> Any:
    """A configuration as it was given: with schedules, and without the dtype that every spec has."""
    if isinstance(config, Mapping):
        if config.get('schedule') == 'linear':
            return zoo.Linear(config['start'], config['end'], config['until'])
        return {key: plain(item) for key, item in config.items() if (key, item) != ('dtype', 'float32')}
    return [plain(item) for item in config] if isinstance(config, list | tuple) else config
