"""What is seen of a training while it runs: a progress bar, lines of text, or tables of its metrics.

All of it goes to standard error, like warnings; the standard output is for results alone.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.printing import say

# Seconds between drawings of the bar.
_BAR_SECONDS = 0.2
_BAR_METRICS = 4
# The metrics beside the bar, most important first.
_BAR_ORDER = ('episode/return', 'episode/length', 'episode/', 'loss/')
# The metrics in a line of text, and the number of losses there.
_LINE_METRICS, _LINE_LOSSES = ('episode/return', 'episode/length', 'episode/success'), 4
# The metrics of a training with roles, after the others.
_ROLES = ('roles/learner_waits', 'roles/actors_wait', 'roles/staleness')
# Seconds until the first line. Later distances are a tenth of the time so far, between these two numbers of seconds.
_FIRST, _SHORTEST, _LONGEST = 1.0, 2.0, 300.0


class Display(Protocol):
    """Shows how far a training has come, and its metrics.

    Attributes:
        first: seconds until :meth:`show` is due for the first time.
    """

    first: float

    def begin(self) -> None:
        """Show that the training begins."""

    def show(self, steps: int, metrics: Mapping[str, float], over: bool = False) -> float:
        """Show the state after ``steps``; ``over`` after the last one. Return the seconds until it is due again."""

    def waited(self, seconds: float) -> None:
        """Leave seconds out of the time that is shown."""

    def clear(self) -> None:
        """Make place for other output."""

    def close(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Bring up to date what stays on the screen. Nothing is shown any more."""


def display_for(verbose: int, train_steps: int, name: str, start: int = 0, unit: str = 'steps') -> Display | None:
    """Return what ``verbose`` asks for: 0 nothing; 1 a bar where somebody looks, else lines; 2 tables.

    Args:
        verbose: as for ``learn``.
        train_steps: the environment steps at which the training ends.
        name: what the lines or the bar begin with.
        start: the steps that a resumed training has behind it.
        unit: what is counted: ``'steps'``, or ``'updates'`` on a dataset.
    """
    stream = sys.stderr
    if verbose == 0 or stream is None or getattr(stream, 'closed', False):
        return None
    # Without ipywidgets tqdm would take a notebook's output for a file.
    notebook = 'ipykernel.zmqshell' in sys.modules
    if verbose == 2 or not (notebook or (hasattr(stream, 'isatty') and stream.isatty())):
        return Lines(train_steps, name, start, unit, tables=verbose == 2)
    return BarDisplay(train_steps, name, start, unit)


def in_verbose(params: Mapping[str, Any], warn: bool = False) -> dict[str, Any]:
    """Return parameters of ``learn`` with ``verbose`` for ``progress_bar``, which was its name.

    Args:
        params: the parameters; they may have neither.
        warn: say so, at the line of the user's program.

    Raises:
        ValueError: ``progress_bar`` contradicts ``verbose``, or is neither True nor False.
    """
    found = dict(params)
    if 'progress_bar' not in found:
        return found
    bar = found.pop('progress_bar')
    if not isinstance(bar, bool):
        raise InvalidValue(f'progress_bar is {bar!r}: leave it out, and give verbose=0, 1 or 2.')
    verbose = found.get('verbose', 1)  # 1 may be the default, out of call_default_params
    if verbose == (0 if bar else 2):
        raise InvalidValue(f'progress_bar={bar} and verbose={verbose} contradict each other: give verbose alone.')
    found['verbose'] = verbose if bar else 0
    if warn:
        told = f'progress_bar={bar} is verbose={found["verbose"]} now, and verbose=2 shows tables of all metrics.'
        warnings.warn(told, DeprecationWarning, stacklevel=_calls_in_zoo())
    return found


def _calls_in_zoo() -> int:
    """Return which caller of the calling function is the first one outside of zoo."""
    frame, count = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get('__name__', '').partition('.')[0] == 'zoo':
        frame, count = frame.f_back, count + 1
    return count


class BarDisplay:
    """A progress bar on one line, for a terminal or a notebook."""

    first = 0.0

    def __init__(self, train_steps: int, name: str, start: int = 0, unit: str = 'steps') -> None:
        from zoo.common.tools.progress_bar import Bar

        self._bar = Bar(
            total=train_steps,
            initial=start,
            desc=name or None,
            disable=False,
            unit=f' {unit}',
            unit_scale=True,
            dynamic_ncols=True,
            smoothing=0.05,  # steps come in bursts between updates
            mininterval=0,  # the logger has its own gate
            miniters=0,
        )

    def begin(self) -> None:
        """The empty bar is there since it was made."""

    def show(self, steps: int, metrics: Mapping[str, float], over: bool = False) -> float:
        # On-policy loops finish their rollout and so pass the total by a little.
        self._bar.total = max(self._bar.total, steps)
        self._bar.show(_beside_bar(metrics))
        self._bar.update(steps - self._bar.n)
        return _BAR_SECONDS

    def waited(self, seconds: float) -> None:
        """The bar's time is the clock's."""

    def clear(self) -> None:
        self._bar.clear()

    def close(self, steps: int, metrics: Mapping[str, float]) -> None:
        self.show(steps, metrics)
        self._bar.close()


class Lines:
    """Lines of text, for a log file: ``PPO CartPole-v1:  12% 12,288/100,000, 6,114 steps/s, 00:14 left, return=45.2``.

    The first says that the training begins. The next one comes after a second, and does not say yet how long the rest
    takes. Then there are some seconds between two, and later more, so that the log of a long training stays short:
    about 45 lines in ten minutes, 65 in an hour, 350 in a day.

    Args:
        train_steps, name, start, unit: as for :func:`display_for`.
        tables: show all metrics, each in a line of its own, instead of the most important ones in one line.
    """

    first = _FIRST

    def __init__(self, train_steps: int, name: str, start: int = 0, unit: str = 'steps', tables: bool = False) -> None:
        self._total = train_steps
        self._unit = unit
        self._name = f'{name}: ' if name else ''
        self._tables = tables
        self._start = start
        self._began = time.perf_counter()
        self._shown = deque([(0.0, start)])  # seconds and steps of earlier lines, for the speed

    def begin(self) -> None:
        say(self._head(self._start, self._total))

    def show(self, steps: int, metrics: Mapping[str, float], over: bool = False) -> float:
        total = max(self._total, steps)
        if steps == total and not over:
            return _SHORTEST  # the line of the end comes soon, and has the last losses
        seconds = max(time.perf_counter() - self._began, 1e-9)
        # The speed of the last quarter: a training explores fast and learns slowly. Never with the first stretch, which
        # compiles, once there is another.
        while len(self._shown) > 1 and (self._shown[0][0] == 0.0 or self._shown[1][0] < 0.75 * seconds):
            self._shown.popleft()
        since, before = (0.0, self._start) if over else self._shown[0]
        rate = (steps - before) / max(seconds - since, 1e-9)
        self._shown.append((seconds, steps))
        speed = f'{rate:,.0f}' if rate >= 10 else f'{rate:.2g}'
        line = f'{self._head(steps, total)}, {speed} {self._unit}/s'
        if over:
            line += f', in {_clock(seconds)}'
        elif since > 0:  # the speed of the first stretch does not tell how long the rest takes
            line += f', {_clock((total - steps) / max(rate, 1e-9))} left'
        if self._tables:
            say('\n'.join([line, *_in_table(metrics)]))
        else:
            say(', '.join([line, *_in_line(metrics)]))
        return min(max(_SHORTEST, seconds / 10), _LONGEST)

    def _head(self, steps: int, total: int) -> str:
        return f'{self._name}{100 * steps // total:3d}% {steps:,}/{total:,}'

    def waited(self, seconds: float) -> None:
        self._began += seconds

    def clear(self) -> None:
        """Every line is whole."""

    def close(self, steps: int, metrics: Mapping[str, float]) -> None:
        """What is printed stays as it is."""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours}:{minutes:02d}:{rest:02d}' if hours else f'{minutes:02d}:{rest:02d}'


def compact(value: float) -> str:
    """Return six significant digits, but counts in full."""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f'{value:.6g}'


def _place(name: str) -> tuple[int, str]:
    """Return where a metric belongs among others: the groups of the bar first."""
    return next((i for i, group in enumerate(_BAR_ORDER) if name.startswith(group)), 9), name.partition('/')[0]


def _beside_bar(metrics: Mapping[str, float]) -> list[str]:
    """Return the metrics beside the bar, such as ``['return=195', 'length=195', 'actor=0.0123']``."""
    shown = sorted((name for name in metrics if not name.startswith('roles/')), key=lambda name: _place(name)[0])
    return _shortly(metrics, [*shown[:_BAR_METRICS], *_ROLES])


def _in_line(metrics: Mapping[str, float]) -> list[str]:
    """Return the metrics in a line of text, in the same form."""
    losses = [name for name in metrics if name.startswith('loss/')][:_LINE_LOSSES]
    return _shortly(metrics, [*_LINE_METRICS, *losses, *_ROLES])


def _in_table(metrics: Mapping[str, float]) -> list[str]:
    """Return the lines of a table of all metrics."""
    cells = {name: compact(metrics[name]) for name in sorted(metrics, key=_place)}
    widths = [max(map(len, column), default=0) for column in (cells, cells.values())]
    return [f'  {name:{widths[0]}}  {value:>{widths[1]}}' for name, value in cells.items()]


def _shortly(metrics: Mapping[str, float], names: Iterable[str]) -> list[str]:
    return [f'{name.rpartition("/")[2]}={metrics[name]:.4g}' for name in names if name in metrics]
