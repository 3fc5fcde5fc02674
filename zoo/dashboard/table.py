"""The part of the page with all runs: a table, the curves of the ticked runs in one chart, one run in full."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Callable
from dataclasses import replace
from threading import get_ident
from typing import Any

import ipywidgets as widgets

from zoo.common.tools.errors import InvalidValue
from zoo.dashboard import parts
from zoo.dashboard.charts import chart, legend, number
from zoo.dashboard.runs import COLUMNS, RunRow, Runs, configuration, curve
from zoo.dashboard.values import keywords, written
from zoo.dashboard.watch import FilmView

#: Rows on a page of the table; the most runs in one chart.
PAGE, MOST = 10, 8


class _Line:
    """One line of the table, which shows different runs over time."""

    def __init__(self, ticked: Callable[[_Line, bool], Any], opened: Callable[[RunRow], Any]) -> None:
        self.row: RunRow | None = None
        self._shows: int | None = None  # the thread that sets the tick; another one may handle a click meanwhile
        self.tick = widgets.Checkbox(indent=False, tooltip='in the chart')
        self.tick.observe(lambda change: self._shows == get_ident() or ticked(self, change.new), 'value')
        self.cells = parts.text(kind='zoo-cells')
        self.open = parts.button('open', lambda: self.row and opened(self.row), 'its configuration and its agent')
        self.box = parts.box(self.tick, self.cells, self.open, kind='zoo-line-of-table')

    def show(self, row: RunRow, chosen: bool, opened: bool) -> None:
        self.row, self._shows = row, get_ident()
        self.tick.value = chosen
        self._shows = None
        self.cells.value = _cells(row)
        (self.box.add_class if opened else self.box.remove_class)('zoo-opened')


def _cells(row: RunRow) -> str:
    done = min(1.0, row.steps / row.train_steps) if row.train_steps else 0.0
    steps = f'{number(row.steps)}<small> / {number(row.train_steps)}</small><i style="width:{100 * done:.0f}%"></i>'
    differs = html.escape(keywords(row.differs)) or '<span class="zoo-faint">as the others</span>'
    cells = [
        time.strftime('%d %b %H:%M', time.localtime(row.begun)),
        f'<b>{html.escape(row.run.algorithm)}</b>',
        html.escape(row.run.environment),
        f'<span class="zoo-steps">{steps}</span>',
        '–' if math.isnan(row.score) else f'{row.score:,.4g}'.replace('-', '−'),
        '–' if math.isnan(row.rate) else f'{row.rate:,.0f}',
        '' if row.run.seed is None else str(row.run.seed),
        differs,
    ]
    return ''.join(f'<span title="{html.escape(row.name)}">{cell}</span>' for cell in cells)


class RunsTable:
    """The table, the chart below it, and the run that is opened.

    Args:
        runs: the runs to show.
        told: runs a function and shows its sentence, or its error, in ``message``.
        message: the sentence about the runs.
        actions: buttons for the opened run, made by the page.
        program: a function that returns the program of a run.
    """

    def __init__(
        self,
        runs: Runs,
        told: Callable[[Callable[[], Any]], Any],
        message: parts.Message,
        actions: list[Any],
        program: Callable[[Any], str],
    ) -> None:
        self.runs = runs
        self._told, self._program = told, program
        self.chosen: list[str] = []
        self.opened: RunRow | None = None
        self.sort, self.descending, self.page = 'begun', True, 0
        self._rows: list[RunRow] = []
        self.filter = widgets.Text(placeholder='filter: ppo cartpole gamma=0.98', continuous_update=True)
        self.filter.add_class('zoo-filter')
        self.filter.observe(lambda _: self._to_page(0), 'value')
        self.headers = {
            name: parts.button(title, self._sorter(name), kind='zoo-header') for name, title in COLUMNS.items()
        }
        head = parts.box(
            parts.text(),
            parts.box(*self.headers.values(), parts.text('<span>differs in</span>', 'zoo-header'), kind='zoo-cells'),
            parts.text(),
            kind='zoo-line-of-table zoo-head',
        )
        self.lines = [_Line(self._ticked, self.open) for _ in range(PAGE)]
        self.empty = parts.text(kind='zoo-empty')
        self.earlier = parts.button('‹', lambda: self._to_page(self.page - 1), 'the rows before')
        self.later = parts.button('›', lambda: self._to_page(self.page + 1), 'the rows after')
        self.place = parts.text(kind='zoo-faint')
        self.chart = parts.text(kind='zoo-overlay')
        self.details = parts.text(kind='zoo-details')
        self.film = FilmView('')
        buttons = parts.box(*actions, kind='zoo-bar')
        self.detail_box = parts.box(buttons, self.film.box, self.details, kind='zoo-opened-run')
        bar = parts.box(self.filter, self.place, self.earlier, self.later, kind='zoo-bar zoo-table-bar')
        self.list = parts.box(head, *(line.box for line in self.lines), self.empty, kind='zoo-table')
        self.box = parts.box(bar, self.list, message.box, parts.box(self.chart, self.detail_box, kind='zoo-below'))
        self.box.add_class('zoo-runs')
        self.show()

    def show(self) -> None:
        """Read the runs and show them."""
        self._rows = self.runs.rows(self.filter.value, self.sort, self.descending)
        self.page = max(0, min(self.page, (len(self._rows) - 1) // PAGE))
        shown = self._rows[self.page * PAGE : (self.page + 1) * PAGE]
        for i, line in enumerate(self.lines):
            line.box.layout.display = '' if i < len(shown) else 'none'
            if i < len(shown):
                row = shown[i]
                line.show(row, row.name in self.chosen, self.opened is not None and self.opened.name == row.name)
        for name, header in self.headers.items():
            arrow = (' ↓' if self.descending else ' ↑') if name == self.sort else ''
            header.description = COLUMNS[name] + arrow
        self.empty.value = '' if shown else f'<p>No run {"fits" if self.filter.value else "is here yet"}.</p>'
        first = self.page * PAGE + 1
        self.place.value = f'{first}–{first + len(shown) - 1} of {len(self._rows)}' if shown else ''
        self.earlier.disabled, self.later.disabled = self.page == 0, (self.page + 1) * PAGE >= len(self._rows)
        self._draw()

    def _draw(self) -> None:
        chosen = [row for row in self.runs.rows() if row.name in self.chosen]
        chosen.sort(key=lambda row: self.chosen.index(row.name))
        if not chosen:
            told = '<p class="zoo-faint">Tick runs to see their curves in one chart.</p>'
            self.chart.value = told if self._rows else ''
        else:
            labels = [_label(row, chosen) for row in chosen]
            pairs = zip(chosen, labels, strict=True)
            curves = [replace(curve(row.run, label), dots=None) for row, label in pairs]
            self.chart.value = chart(curves, 'Runs side by side', empty='no episode has ended yet') + legend(labels)
        self.detail_box.layout.display = '' if self.opened is not None else 'none'

    def _sorter(self, name: str) -> Callable[[], None]:
        def sort() -> None:
            self.descending = not self.descending if self.sort == name else name not in ('algorithm', 'environment')
            self.sort = name
            self._to_page(0)

        return sort

    def _to_page(self, page: int) -> None:
        self.page = page
        self._told(self.show)

    def _ticked(self, line: _Line, wanted: bool) -> None:
        def tick() -> None:
            assert line.row is not None  # it is on the page
            others = [name for name in self.chosen if name != line.row.name]
            self.chosen = [*others, line.row.name] if wanted else others
            dropped, self.chosen = self.chosen[:-MOST], self.chosen[-MOST:]
            self.show()
            if dropped:
                raise InvalidValue(f'at most {MOST} runs can be told apart in one chart: {dropped[0]} was left out.')

        self._told(tick)

    def open(self, row: RunRow) -> None:
        if self.opened is None or self.opened.name != row.name:
            self.film.clear()
        self.opened = row
        try:
            program = self._program(row.run)
        except Exception as error:  # shown instead of the program
            program = f'# {parts.sentence(error)}'
        self.details.value = (
            f'<h4>{html.escape(row.name)}</h4><div class="zoo-two"><div><h5>Program</h5><pre>{html.escape(program)}'
            f'</pre></div><div><h5>Configuration</h5><pre>{html.escape(configuration(row))}</pre></div></div>'
        )
        self.show()


def _label(row: RunRow, among: list[RunRow]) -> str:
    """Return a label: algorithm, environment if there are several, differing settings, seed or part of the name."""
    label = row.run.algorithm
    if len({other.run.environment for other in among}) > 1:
        label += f' {row.run.environment}'
    kind = (row.run.algorithm, row.run.environment)
    alike = [other for other in among if (other.run.algorithm, other.run.environment) == kind]
    differ = {name: x for name, x in row.differs.items() if len({written(one.settings.get(name)) for one in alike}) > 1}
    differs = keywords(differ)
    label += f' {differs}' if differs and len(differs) < 60 else ''
    same = [other for other in among if (other.run.algorithm, other.differs) == (row.run.algorithm, row.differs)]
    if len(same) < 2:
        return label
    seeds = {other.run.seed for other in same}
    return f'{label} seed={row.run.seed}' if len(seeds) == len(same) else f'{label} ({row.name.rpartition("_")[2]})'
