"""Histograms of the episodes of a dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from zoo.common.plots.figures import GRID, INK, NotebookFigure, save, verbatim

#: The most bars of a histogram, and the colors of bars and of the line at the mean.
_BARS, _COLOR, _MEAN = 40, '#0072B2', '#D55E00'


def histograms(path: str | os.PathLike[str] | None, values: Mapping[str, np.ndarray], title: str = '') -> Figure:
    """Draw a histogram of each group of numbers, side by side, with a line at its mean.

    Args:
        path: the PNG to write (540 × 432 pixels for each), its folder made if need be; None only makes the figure.
        values: numbers by the label of their axis.
        title: above the picture.
    """
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = NotebookFigure(figsize=(4.5 * len(values), 3.6), dpi=120, layout=layout)
    for place, (label, numbers) in enumerate(values.items(), 1):
        axes = figure.add_subplot(1, len(values), place)
        axes.hist(numbers, _edges(np.asarray(numbers)), color=_COLOR, edgecolor='white', linewidth=0.5)
        mean = float(np.mean(numbers))
        axes.axvline(mean, color=_MEAN, linestyle='--', label=f'mean {mean:,.6g}')
        axes.set_xlabel(label, color=INK)
        axes.set_ylabel('Episodes', color=INK)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.tick_params(colors=INK, labelsize=9)
        axes.grid(axis='y', color=GRID)
        axes.set_axisbelow(True)
        for side in ('top', 'right'):
            axes.spines[side].set_visible(False)
        axes.margins(y=0.15)
        axes.legend(labelcolor=INK, fontsize=9, frameon=False, loc='upper left')
    figure.suptitle(verbatim(title), color=INK, fontsize=11)
    save(figure, path)
    return figure


def _edges(numbers: np.ndarray) -> list[float]:
    """Return the edges of the bars; whole numbers that are near each other have a bar each."""
    low, high = float(numbers.min()), float(numbers.max())
    if (numbers == np.rint(numbers)).all() and high - low < _BARS:
        return [float(x) for x in np.arange(low - 0.5, high + 1.0)]
    return [float(x) for x in np.linspace(low, high if high > low else low + 1.0, _BARS + 1)]
