"""Curves as SVG text, with the colors of the page, so that they are readable in light and in dark.

A picture of Matplotlib takes 150 ms and about 50 kB. Drawn every second, it would slow down the training that it shows.
These curves take a few milliseconds.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

#: The most points of a line, and the most dots: more cannot be told apart.
_POINTS, _DOTS = 300, 400
#: Number of colors, each with its own dashes; the style sheet has them.
COLORS = 8


@dataclass(frozen=True)
class Curve:
    """A line.

    Attributes:
        label: its name.
        x, y: its points; points with NaN are left out.
        dots: fainter points at the same ``x``, such as single episodes.
    """

    label: str
    x: ArrayLike
    y: ArrayLike
    dots: ArrayLike | None = None


def chart(
    curves: Sequence[Curve],
    title: str = '',
    x_label: str = 'steps',
    size: tuple[int, int] = (600, 270),
    empty: str = 'nothing yet',
) -> str:
    """Return a chart of curves as SVG.

    Args:
        curves: the curves; those without points are not drawn.
        title: above the chart, with the last value if there is one curve.
        x_label: below the chart; empty: none.
        size: width and height in pixels; the page scales it.
        empty: the text in the chart while there are no points.
    """
    width, height = size
    left, right, top, bottom = 52, 14, 30, 34 if x_label else 22
    cleaned = [(curve, *_clean(curve.x, curve.y)) for curve in curves]
    cleaned = [item for item in cleaned if item[1].size]
    parts = [f'<svg viewBox="0 0 {width} {height}" class="zoo-chart" role="img" aria-label="{html.escape(title)}">']
    parts.append(f'<text class="zoo-chart-title" x="0" y="14">{html.escape(title)}</text>')
    if len(cleaned) == 1:
        parts.append(f'<text class="zoo-chart-last" x="{width - right}" y="14">{number(cleaned[0][2][-1])}</text>')
    if not cleaned:
        parts.append(f'<text class="zoo-chart-empty" x="{width / 2}" y="{height / 2 + 6}">{html.escape(empty)}</text>')
        return ''.join([*parts, '</svg>'])
    xs, ys = [x for _, x, _ in cleaned], [y for _, _, y in cleaned]
    dotted = [_clean(curve.x, curve.dots) for curve, _, _ in cleaned if curve.dots is not None]
    x_low, x_high = min(x[0] for x in xs), max(x[-1] for x in xs)
    x_low = 0.0 if x_low < x_high / 4 else x_low
    y_low, y_high = _span([*ys, *(y for _, y in dotted)])
    x_span = (x_high - x_low) or 1.0
    inner = width - left - right, height - top - bottom

    def at_x(x: Any) -> Any:
        return left + (np.asarray(x) - x_low) / x_span * inner[0]

    def at_y(y: Any) -> Any:
        return top + (y_high - np.asarray(y)) / (y_high - y_low) * inner[1]

    for tick in _ticks(y_low, y_high, 5 if height > 220 else 3):
        place = float(at_y(tick))
        ends = f'x1="{left}" x2="{width - right}" y1="{place:.1f}" y2="{place:.1f}"'
        parts.append(f'<line class="zoo-grid-line" {ends}/>')
        parts.append(f'<text class="zoo-tick zoo-tick-y" x="{left - 6}" y="{place + 3.5:.1f}">{number(tick)}</text>')
    for tick in _ticks(x_low, x_high, 7 if width > 500 else 4):
        place = float(at_x(tick))
        below = height - bottom + 15
        parts.append(f'<text class="zoo-tick zoo-tick-x" x="{place:.1f}" y="{below}">{number(tick)}</text>')
    if x_label:
        parts.append(f'<text class="zoo-tick zoo-x-label" x="{width - right}" y="{height - 4}">{x_label}</text>')
    for i, (curve, _, _) in enumerate(cleaned):
        if curve.dots is not None and len(cleaned) <= 3:
            dots_x, dots_y = _thinned(*_clean(curve.x, curve.dots), _DOTS)
            path = ''.join(f'M{a:.1f} {b:.1f}h0' for a, b in zip(at_x(dots_x), at_y(dots_y), strict=True))
            parts.append(f'<path class="zoo-dots zoo-c{i % COLORS}" d="{path}"/>')
    for i, (curve, x, y) in enumerate(cleaned):
        line_x, line_y = _thinned(x, y, _POINTS)
        points = ' '.join(f'{a:.1f},{b:.1f}' for a, b in zip(at_x(line_x), at_y(line_y), strict=True))
        color = f'zoo-c{i % COLORS}'
        told = f'{html.escape(curve.label)}: {number(y[-1])} at {number(x[-1])}'
        parts.append(f'<polyline class="zoo-line {color}" points="{points}"><title>{told}</title></polyline>')
        end_x, end_y = float(at_x(x[-1])), float(at_y(y[-1]))
        parts.append(f'<circle class="zoo-end {color}" cx="{end_x:.1f}" cy="{end_y:.1f}" r="3"/>')
    return ''.join([*parts, '</svg>'])


def legend(labels: Sequence[str]) -> str:
    """Return the names of the curves of a chart, with their colors and dashes, as HTML."""
    items = [
        f'<span class="zoo-key"><svg viewBox="0 0 28 8"><line class="zoo-line zoo-c{i % COLORS}" x1="1" x2="27" y1="4"'
        f' y2="4"/></svg>{html.escape(label)}</span>'
        for i, label in enumerate(labels)
    ]
    return f'<div class="zoo-legend">{"".join(items)}</div>'


def number(value: float) -> str:
    """Return a number for an axis: ``250``, ``20k``, ``1.5M``, ``0.013``, ``−3.2``."""
    for unit, letter in ((1e9, 'G'), (1e6, 'M'), (1e3, 'k')):
        if abs(value) >= unit * (10 if letter == 'k' else 1):
            return f'{value / unit:.4g}{letter}'.replace('-', '\N{MINUS SIGN}')
    return f'{value:,.4g}'.replace('-', '\N{MINUS SIGN}') if abs(value) < 1e3 else f'{value:,.0f}'.replace('-', '−')


def _clean(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    known = np.isfinite(x) & np.isfinite(y)
    return x[known], y[known]


def _thinned(x: np.ndarray, y: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    kept = np.linspace(0, x.size - 1, min(x.size, most)).astype(int)
    return x[kept], y[kept]


def _span(values: Sequence[np.ndarray]) -> tuple[float, float]:
    low, high = min(float(y.min()) for y in values), max(float(y.max()) for y in values)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return low - room, high + room


def _ticks(low: float, high: float, most: int) -> list[float]:
    found = MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return [float(tick) for tick in found if low <= tick <= high and math.isfinite(tick)]
