"""The tables and the pictures of comparisons."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common.tools.files import write_text
from zoo.common.tools.printing import Table
from zoo.experiments.pages import image, page
from zoo.experiments.results import UNLEARNED, Score, folder_name, settings_in
from zoo.experiments.runs import open_run
from zoo.experiments.statistics import ENOUGH, bootstrap_interval, interquartile_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zoo.experiments.summary import Summary

_COLUMNS = ('algorithm', 'IQM', '95% interval', 'median', 'lowest', 'highest', 'seeds', 'steps/s', 'minutes')

#: Number of steps at which curves are averaged.
_GRID = 200


@dataclass(frozen=True)
class Comparison:
    """What :func:`zoo.compare` returns. It prints as a table; a notebook shows the report.

    Attributes:
        folder: has ``report.html``, ``curves.png``, ``scores.png``, ``scores.csv``, and a folder for each label.
        environment: its name.
        train_steps: the steps of each run, or its updates on a dataset; None: they differ, or are the defaults.
        scores: by label, the score of each seed.
    """

    folder: Path
    environment: str
    train_steps: int | None
    scores: Mapping[str, tuple[Score, ...]]

    @property
    def table(self) -> list[tuple[str, ...]]:
        """The rows of the table, the highest interquartile mean first."""
        rows = []
        for label, found in self.scores.items():
            values = np.array([one.score for one in found])
            low, high = bootstrap_interval(values)
            mean = float(interquartile_mean(values))
            row = [label, f'{mean:.4g}', f'{low:.4g} to {high:.4g}']
            row += [f'{number:.4g}' for number in (np.median(values), values.min(), values.max())]
            row += [str(len(found)), f'{np.median([one.steps_per_second for one in found]):,.0f}']
            row += [f'{np.median([one.seconds for one in found]) / 60:.1f}']
            rows.append((mean, tuple(row)))
        return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]

    @property
    def notes(self) -> list[str]:
        """Sentences on runs without an update, on environments that differ, their copies, and seeds that are few."""
        without = {label: [one.seed for one in found if not one.learned] for label, found in self.scores.items()}
        notes = [
            f'{label}, {"seed" if len(seeds) == 1 else "seeds"} {", ".join(map(str, seeds))}: {UNLEARNED}.'
            for label, seeds in without.items()
            if seeds
        ]
        kept = {label: settings_in(self.folder / folder_name(label)) for label in self.scores}
        others = {label: found.get('env_params') or {} for label, found in kept.items()}
        if any(params != next(iter(others.values())) for params in others.values()):
            told = '; '.join(f'{label} with {params or "none"}' for label, params in others.items())
            notes.append(f'Environments were built with different arguments, and scores are of these: {told}.')
        notes.append(in_words({label: found['nenv'] for label, found in kept.items() if 'nenv' in found}))
        return [note for note in (*notes, few(min(map(len, self.scores.values()), default=ENOUGH))) if note]

    def __repr__(self) -> str:
        below = '\n'.join([*self.notes, f'report: {self.folder / "report.html"}'])
        return '\n'.join(Table('', _COLUMNS, self.table, below).lines())

    def _repr_html_(self) -> str:
        return self._body()

    def curves(self) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Return, by label, steps, and the returns there: lower end, interquartile mean, upper end."""
        found = {}
        for label, scores in self.scores.items():
            runs = [open_run(one.folder).smooth_curve for one in scores]
            runs = [run for run in runs if run[0].size]
            if not runs:
                continue
            first, last = max(steps[0] for steps, _ in runs), min(steps[-1] for steps, _ in runs)
            if last <= first:
                continue
            grid = np.linspace(first, last, _GRID)
            means = np.array([np.interp(grid, steps, returns) for steps, returns in runs])
            low, high = bootstrap_interval(means)
            found[label] = grid, low, interquartile_mean(means, 0), high
        return found

    def write(self) -> Path:
        """Write the report and its pictures; return the path of the report."""
        pictures = {'curves.png': _draw_curves(self), 'scores.png': _draw_scores(self)}
        for name, figure in pictures.items():
            figure.savefig(self.folder / name, format='png')
        columns = ('algorithm', 'seed', 'score', 'steps_per_second', 'seconds', 'folder')
        rows = []
        for label, found in self.scores.items():
            for one in found:
                rate, seconds = round(one.steps_per_second, 1), round(one.seconds, 1)
                rows.append((label, one.seed, one.score, rate, seconds, one.folder.relative_to(self.folder)))
        write_text(self.folder / 'scores.csv', Table('', columns, rows).csv())
        return write_text(self.folder / 'report.html', page(self.title, self._body()))

    @property
    def title(self) -> str:
        """``'PPO, A2C on CartPole-v1'``."""
        return f'{", ".join(self.scores)} on {self.environment}'

    def _body(self) -> str:
        images = ''
        for name, text in (('curves.png', 'Learning curves'), ('scores.png', 'Scores of the trained agents')):
            if (self.folder / name).exists():
                images += image((self.folder / name).read_bytes(), text)
        without = [label for label in self.scores if label not in self.curves()]
        if without:
            names = html.escape(', '.join(without))
            images += f'<p>Without a curve, because their runs have no steps in common: {names}.</p>'
        settings, kept = '', {label: settings_in(self.folder / folder_name(label)) for label in self.scores}
        for label, own in kept.items():
            told = ', '.join(f'{name}={value!r}' for name, value in own.items() if value is not None)
            settings += f'<li><b>{html.escape(label)}</b>: {html.escape(told)}</li>'
        unit = 'updates' if any('dataset' in own for own in kept.values()) else 'steps'
        steps = f'as many {unit} as its settings below or its defaults say'
        steps = steps if self.train_steps is None else f'{self.train_steps:,} {unit}'
        return (
            f'<h1>{html.escape(self.title)}</h1>{Table("", _COLUMNS, self.table).html("")}'
            f'<p>Scores are mean returns of tests without exploration after a training of {steps}. IQM: interquartile '
            f'mean over the seeds, with its 95% interval by bootstrap. {html.escape(" ".join(self.notes))}</p>'
            f'{images}<h2>Settings</h2><ul>{settings}</ul>'
        )


@dataclass(frozen=True)
class Comparisons:
    """What :func:`zoo.compare` returns for several environments. It prints as tables; a notebook shows the report.

    Attributes:
        folder: has ``report.html``, ``summary.png``, ``scores.csv``, and a folder for each environment.
        environments: by its name, the comparison in each environment.
        summary: normalized scores, aggregates, and which algorithm is better.
    """

    folder: Path
    environments: Mapping[str, Comparison]
    summary: Summary

    @property
    def title(self) -> str:
        """``'PPO, A2C in 3 environments'``."""
        return f'{", ".join(self.summary.scores)} in {len(self.environments)} environments'

    def __repr__(self) -> str:
        return f'{self.summary!r}\nreport: {self.folder / "report.html"}'

    def _repr_html_(self) -> str:
        return self._body()

    def write(self) -> Path:
        """Write the report, its picture and the scores; return the path of the report."""
        if self.summary.aggregates:
            self.summary.plot(self.folder / 'summary.png')
        else:  # of an earlier call, with other algorithms
            (self.folder / 'summary.png').unlink(missing_ok=True)
        seeds: dict[tuple[str, str], list[int]] = {}
        for name, made in self.environments.items():
            seeds |= {(label, name): [one.seed for one in found] for label, found in made.scores.items()}
        columns = ('algorithm', 'environment', 'seed', 'score', 'normalized')
        rows = [(label, name, seeds[label, name][i], *rest) for label, name, i, *rest in self.summary.rows()]
        write_text(self.folder / 'scores.csv', Table('', columns, rows).csv())
        return write_text(self.folder / 'report.html', page(self.title, self._body()))

    def _body(self) -> str:
        drawn = self.folder / 'summary.png'
        shown = image(drawn.read_bytes(), 'Aggregates and performance profiles') if drawn.exists() else ''
        links = ''.join(
            f'<li><a href="{html.escape(made.folder.name)}/report.html">{html.escape(name)}</a></li>'
            for name, made in self.environments.items()
            if made.scores
        )
        return (
            f'<h1>{html.escape(self.title)}</h1>{self.summary.body()}{shown}<h2>Each environment</h2><ul>{links}</ul>'
        )


def in_words(copies: Mapping[str, int]) -> str:
    """Return by label how many copies of the environment runs have."""
    numbers = set(copies.values())
    if len(numbers) > 1:
        return f'Copies of the environment: {", ".join(f"{label} {count}" for label, count in copies.items())}.'
    return ''.join(
        f'Each run has {count} {"copy" if count == 1 else "copies"} of the environment.' for count in numbers
    )


def few(seeds: int) -> str:
    """Return a sentence if there are too few seeds for an interval; else nothing."""
    if seeds >= ENOUGH:
        return ''
    count = '1 seed is' if seeds == 1 else f'{seeds} seeds are'
    told = f'{count} few: the interval is too narrow with fewer than {ENOUGH}'
    return f'{told}. The same call with {ENOUGH} seeds adds the missing runs.'


def _figure(height: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, height), dpi=120, layout='constrained')
    axes = figure.add_subplot()
    axes.grid(color='#E6E6E6', linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[['top', 'right']].set_visible(False)
    return figure, axes


def _draw_curves(made: Comparison) -> Figure:
    from zoo.common.plots.curves import style_of
    from zoo.common.plots.figures import verbatim

    figure, axes = _figure(4.8)
    order = {label: i for i, label in enumerate(made.scores)}
    for label, (steps, low, middle, high) in made.curves().items():
        style = style_of(order[label], len(order))
        axes.fill_between(steps, low, high, alpha=0.18, linewidth=0, color=style['color'])
        axes.plot(steps, middle, label=verbatim(f'{label} ({len(made.scores[label])} seeds)'), linewidth=2, **style)
    axes.set_title(verbatim(textwrap.fill(made.title, 70)), loc='left', fontweight='bold')
    axes.set(xlabel='Environment steps', ylabel='Episode return in training')
    if axes.lines:
        title, columns = 'interquartile mean over the seeds, with its 95% interval', min(len(axes.lines), 4)
        figure.legend(loc='outside lower center', ncols=columns, title=title, handlelength=4, frameon=False)
    return figure


def _draw_scores(made: Comparison) -> Figure:
    from zoo.common.plots.figures import verbatim

    labels = [row[0] for row in made.table][::-1]
    figure, axes = _figure(1.4 + 0.55 * len(labels))
    for i, label in enumerate(labels):
        values = np.array([one.score for one in made.scores[label]])
        low, high = bootstrap_interval(values)
        axes.plot([low, high], [i, i], color='#999999', linewidth=9, alpha=0.6, solid_capstyle='butt')
        axes.plot(values, np.full(values.size, i), 'o', markerfacecolor='none', markeredgecolor='#333333', markersize=6)
        axes.plot([interquartile_mean(values)], [i], '|', color='black', markersize=22, markeredgewidth=3)
    axes.set_yticks(range(len(labels)), [verbatim(label) for label in labels])
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.set_title('Scores after training', loc='left', fontweight='bold')
    axes.set_xlabel('Mean return of a test: each seed (ring), interquartile mean (bar), 95% interval (gray)')
    return figure
