"""Learning curves."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from zoo.common.plots.figures import GRID, INK, NotebookFigure, save, verbatim
from zoo.common.tools.errors import InvalidValue, unknown

# Okabe and Ito's palette, which the color-blind can tell apart; without its yellow, too pale for a line.
_COLORS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')
# In black and white these tell curves apart: no two of 28 curves share both.
_DASHES = ('-', '--', ':', '-.')
_MARKERS = 'os^DvPX'
_MARKS = 8  # marks on each curve
# More points make the file larger and the line ragged: the picture has 840 columns.
_MAX_DOTS, _MAX_LINE = 2000, 400
_TITLE_WIDTH = 38  # characters in a line
# Resamples of the runs for a confidence interval: with another seed its bounds move by less than a line's width.
_RESAMPLES = 2000

Run = tuple[Sequence[float], Sequence[float]]

#: What the horizontal axis may be.
AXES = ('steps', 'seconds')
#: What the line and the band of several runs may be -> what the legend says.
BANDS = {
    'range': 'median and range of the runs',
    'quartiles': 'median and quartiles of the runs',
    'confidence': 'mean of the runs and its 95% interval',
}


def learning_curve(
    path: str | os.PathLike[str] | None,
    curves: Mapping[str, Sequence[Run]],
    title: str = '',
    window: int | None = None,
    ylabel: str = 'Episode return',
    band: str = 'range',
    against: str = 'steps',
) -> Figure:
    """Draw episode returns against environment steps or wall-clock time.

    A label with one run has its episodes as faint points under their running mean. A label with several runs (seeds)
    has a line through the running means of all runs, on a band. Curves differ in color, dashes and marks, so that they
    can be told apart in black and white, too.

    Args:
        path: the PNG to write (840 × 504 pixels), its folder made if need be; None only makes the figure.
        curves: by label, the runs; a run is ``(steps, returns)``, two sequences of one length: the step (or the time
            in seconds since training began) at which each episode ended, rising, and its return. Returns that are not
            finite are left out. A run may be empty.
        title: above the picture.
        window: episodes in the running mean; None takes a twentieth of the longest run, between 1 and 100.
        ylabel: the label of the vertical axis.
        band: what several runs show. ``'range'``: the median, and a band from the lowest to the highest.
            ``'quartiles'``: the median and the middle half. ``'confidence'``: the mean and its 95% interval, the
            percentiles of a bootstrap over the runs (Efron and Tibshirani 1993, chapter 13), too narrow for fewer than
            about five runs.
        against: ``'steps'`` of the environment or ``'seconds'`` of wall-clock time.

    Raises:
        ValueError: steps and returns of a run differ in length or steps fall, ``window`` is less than 1, or
            ``band`` or ``against`` is unknown.
    """
    if window is not None and window < 1:
        raise InvalidValue(f'window is {window}: it must be at least 1 episode.')
    for name, value, known in (('band', band, BANDS), ('against', against, AXES)):
        if value not in known:
            raise InvalidValue(unknown(f'value of {name}', value, known))
    cleaned = {label: [_clean(label, run) for run in runs] for label, runs in curves.items()}
    cleaned = {label: [run for run in runs if run[0].size] for label, runs in cleaned.items()}
    longest = max((steps.size for runs in cleaned.values() for steps, _ in runs), default=0)
    window = window or int(np.clip(longest // 20, 1, 100))

    figure = NotebookFigure(figsize=(7, 4.2), dpi=120, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    axes = figure.add_subplot()
    xlabel = 'Environment steps'
    if against == 'seconds':
        unit, name = _time_unit(max((run[0][-1] for runs in cleaned.values() for run in runs), default=0.0))
        xlabel = f'Wall-clock time, {name}'
        cleaned = {label: [(times / unit, returns) for times, returns in runs] for label, runs in cleaned.items()}
    _decorate(axes, title, xlabel, ylabel)
    for index, (label, runs) in enumerate(cleaned.items()):
        style = style_of(index, len(cleaned))
        if len(runs) == 1:
            _draw_run(axes, label, *runs[0], window, style)
        elif runs:
            _draw_runs(axes, label, runs, window, style, band)
    if longest:
        notes = [BANDS[band]] if any(len(runs) > 1 for runs in cleaned.values()) else []
        notes += [f'mean of {window} episodes'] if window > 1 else []
        # Long enough to show a pattern of dashes.
        legend = axes.legend(labelcolor=INK, fontsize=9, title=', '.join(notes), alignment='left', handlelength=3.2)
        legend.get_frame().set(facecolor='white', alpha=0.85, linewidth=0)  # episodes may lie behind it
        legend.get_title().set_fontsize(9)
        legend.get_title().set_color(INK)
    else:
        axes.text(0.5, 0.5, 'no finished episode yet', transform=axes.transAxes, ha='center', va='center', color=INK)
        axes.set(xticks=[], yticks=[])
    save(figure, path)
    return figure


def style_of(index: int, count: int) -> dict[str, Any]:
    """Return color, dashes and marks of a curve; a single curve needs no dashes and marks."""
    if count == 1:
        return {'color': _COLORS[0], 'linestyle': '-'}
    return {
        'color': _COLORS[index % len(_COLORS)],
        'linestyle': _DASHES[index % len(_DASHES)],
        'marker': _MARKERS[index % len(_MARKERS)],
        'markersize': 5,
        # Marks of curves that lie on each other stand side by side.
        'markevery': ((index % 4) / (4 * _MARKS), 1 / _MARKS),
    }


def _clean(label: str, run: Run) -> tuple[np.ndarray, np.ndarray]:
    steps, returns = (np.asarray(values, dtype=np.float64).reshape(-1) for values in run)
    if steps.size != returns.size:
        raise InvalidValue(f'a run of {label!r} has {steps.size} steps and {returns.size} returns: they come in pairs.')
    if (np.diff(steps) < 0).any():
        raise InvalidValue(f'the steps of a run of {label!r} fall at {steps[1:][np.diff(steps) < 0][0]:g}: sort them.')
    finite = np.isfinite(returns)
    return steps[finite], returns[finite]


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of the last ``window`` values at each place; at the start, of the values so far."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, values.size + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def _evenly(size: int, most: int) -> np.ndarray:
    """At most ``most`` evenly spread indices of an array, the first and the last among them."""
    return np.linspace(0, size - 1, min(size, most)).astype(int)


def _draw_run(axes: Axes, label: str, steps: np.ndarray, returns: np.ndarray, window: int, style: dict) -> None:
    mean = running_mean(returns, window)
    dots, line = _evenly(steps.size, _MAX_DOTS), _evenly(steps.size, _MAX_LINE)
    faint = {'marker': 'o', 'markersize': 2.5, 'markeredgewidth': 0, 'alpha': 0.25, 'color': style['color']}
    axes.plot(steps[dots], returns[dots], linestyle='none', **faint)
    _draw_line(axes, label, steps[line], mean[line], style)


def _draw_line(axes: Axes, label: str, x: np.ndarray, y: np.ndarray, style: dict) -> None:
    if x[0] == x[-1]:  # a line of one point is invisible, and has no length for marks
        style = {**style, 'marker': style.get('marker', 'o'), 'markevery': None}
    axes.plot(x, y, label=verbatim(label), linewidth=2, solid_capstyle='round', **style)


def _draw_runs(
    axes: Axes, label: str, runs: Sequence[tuple[np.ndarray, np.ndarray]], window: int, style: dict, band: str
) -> None:
    grid = np.linspace(min(steps[0] for steps, _ in runs), max(steps[-1] for steps, _ in runs), _MAX_LINE)
    means = np.array([_along(grid, steps, running_mean(returns, window)) for steps, returns in runs])
    # The median would jump to a single run that has begun, or still goes on.
    present = np.isfinite(means).sum(axis=0)
    enough = present >= min(len(runs) / 2, present.max())
    grid, means = grid[enough], means[:, enough]
    low, middle, high = summary(means, band)
    axes.fill_between(grid, low, high, alpha=0.2, linewidth=0, color=style['color'])
    _draw_line(axes, f'{label} ({len(runs)} runs)', grid, middle, style)


def _along(grid: np.ndarray, steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values of a run at the places of a grid, NaN where it has not begun or no longer goes on.

    A run goes on after its last episode, for the longest time between two of its episodes. Else the best run, with the
    longest episodes, would drop out before the others and bend the curve of all runs.
    """
    found = np.interp(grid, steps, values, left=np.nan)
    found[grid > steps[-1] + np.diff(steps).max(initial=0.0)] = np.nan
    return found


def summary(runs: np.ndarray, band: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lower bound, line and upper bound ``[T]`` of runs ``[R, T]``; NaN is missing; see `learning_curve`."""
    if band == 'confidence':
        # Each resample is a set of whole curves. A fixed seed: the same runs give the same picture.
        drawn = np.random.default_rng(0).integers(len(runs), size=(_RESAMPLES, len(runs)))
        weights = np.stack([(drawn == run).sum(1) for run in range(len(runs))], 1).astype(np.float64)
        present = np.isfinite(runs)
        sums, counts = weights @ np.where(present, runs, 0.0), weights @ present
        with np.errstate(invalid='ignore', divide='ignore'):  # all runs of a resample are missing there
            means = sums / counts
        low, high = np.nanpercentile(means, [2.5, 97.5], axis=0)
        return low, np.nanmean(runs, axis=0), high
    ends = {'range': [0, 100], 'quartiles': [25, 75]}[band]
    low, high = np.nanpercentile(runs, ends, axis=0)
    return low, np.nanmedian(runs, axis=0), high


def _decorate(axes: Axes, title: str, xlabel: str, ylabel: str) -> None:
    heading = verbatim(textwrap.fill(title, _TITLE_WIDTH))
    axes.set_title(heading, loc='left', fontsize=12, fontweight='bold', color=INK, pad=10)
    axes.set_xlabel(xlabel, color=INK)
    axes.set_ylabel(verbatim(ylabel), color=INK)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[['top', 'right']].set_visible(False)
    axes.spines[['left', 'bottom']].set_color('#999999')
    axes.tick_params(colors=INK, color='#999999', labelsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: steps_label(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f'{value:,.10g}'.replace('-', '\N{MINUS SIGN}')))
    axes.margins(x=0.02)


def steps_label(steps: float) -> str:
    """``250``, ``20k``, ``1.5M``."""
    for unit, letter in ((1e9, 'G'), (1e6, 'M'), (1e3, 'k')):
        if abs(steps) >= unit:
            return f'{steps / unit:.6g}{letter}'
    return f'{steps:.6g}'


def _time_unit(seconds: float) -> tuple[float, str]:
    """The unit for times up to this one, in seconds, and its name."""
    units = ((86400.0, 'days'), (3600.0, 'hours'), (60.0, 'minutes'))
    return next(((unit, name) for unit, name in units if seconds >= 2 * unit), (1.0, 'seconds'))
