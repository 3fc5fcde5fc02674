"""The picture of a comparison over environments: aggregates with their intervals, and performance profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from zoo.common.plots.curves import style_of
from zoo.common.plots.figures import GRID, NotebookFigure, save, verbatim
from zoo.experiments.aggregates import Scores, performance_profile, stratified_interval

#: Thresholds of a profile; the lowest and the highest score that it may show; bands of more algorithms hide each other.
_THRESHOLDS, _LOWEST, _HIGHEST, _BANDS = 201, -0.5, 2.0, 6


def draw(
    aggregates: Mapping[str, Mapping[str, tuple[float, tuple[float, float] | None]]],
    scores: Mapping[str, Scores],
    environments: Sequence[str],
    path: Path | None,
) -> Figure:
    """Draw aggregates with their intervals, and performance profiles.

    Args:
        aggregates: by algorithm, the best first, and name, a value and its interval.
        scores: by algorithm, the normalized scores, one array ``[R]`` for each environment.
        environments: their names.
        path: the PNG to write; None: only return the figure.
    """
    labels = list(aggregates)
    styles = {label: style_of(i, len(labels)) for i, label in enumerate(labels)}
    names = list(next(iter(aggregates.values())))
    bars = 0.9 + 0.28 * len(labels)
    figure = NotebookFigure(figsize=(9, bars + 4.2), dpi=100, layout='constrained')
    upper, lower = figure.subfigures(2, 1, height_ratios=(bars, 4.2), squeeze=False)[:, 0]
    panels = upper.subplots(1, len(names), sharey=True)
    for axes, name in zip(panels, names, strict=True):
        _decorate(axes)
        for i, label in enumerate(labels):
            value, ends = aggregates[label][name]
            if ends is not None:
                axes.barh(i, ends[1] - ends[0], left=ends[0], height=0.55, color=styles[label]['color'], alpha=0.55)
            axes.plot([value, value], [i - 0.27, i + 0.27], color='black', linewidth=2)
        better = 'lower is better' if name == 'optimality gap' else 'higher is better'
        axes.set_title(f'{name}\n{better}', fontsize=10)
        axes.tick_params(axis='y', length=0)
        axes.use_sticky_edges = False  # a bar would begin at the frame
    panels[0].set_yticks(range(len(labels)), [verbatim(label) for label in labels])
    panels[0].set_ylim(len(labels) - 0.4, -0.6)
    upper.suptitle(verbatim(f'Normalized scores in {_in_words(environments)}'), x=0.01, ha='left', fontweight='bold')
    _profiles(lower, scores, styles)
    save(figure, path)
    return figure


def _profiles(figure: Any, scores: Mapping[str, Scores], styles: dict[str, dict[str, Any]]) -> None:
    axes = figure.subplots()
    _decorate(axes)
    pooled = np.concatenate([own for found in scores.values() for own in found])
    grid = np.linspace(
        max(_LOWEST, min(0.0, pooled.min()) - 0.05), min(_HIGHEST, max(1.0, pooled.max()) + 0.05), _THRESHOLDS
    )
    for label, found in scores.items():
        if len(styles) <= _BANDS and min(own.size for own in found) > 1:
            low, high = stratified_interval(lambda drawn: performance_profile(drawn, grid), found)
            axes.fill_between(grid, low, high, alpha=0.15, linewidth=0, color=styles[label]['color'])
        axes.plot(grid, performance_profile(found, grid), label=verbatim(label), linewidth=2, **styles[label])
    axes.set(xlabel='Normalized score τ: 0 is a random policy, 1 is the reference', ylim=(-0.03, 1.03))
    axes.set_ylabel('Fraction of runs above τ')
    figure.legend(loc='outside lower center', ncols=min(len(styles), 6), handlelength=4, frameon=False)


def _decorate(axes: Any) -> None:
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[['top', 'right']].set_visible(False)


def _in_words(names: Sequence[str]) -> str:
    return ', '.join(names) if len(names) <= 4 else f'{len(names)} environments'
