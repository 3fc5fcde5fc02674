"""What is printed: lines for whoever looks, and tables as text, HTML and CSV."""

from __future__ import annotations

import csv
import html
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


def say(text: str) -> None:
    """Print a line to standard error at once; the standard output is for results alone."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Table:
    """Rows of cells under the names of their columns.

    Attributes:
        title: written above the table by whoever prints it, and the caption in HTML; empty: none.
        columns: names of the columns; empty: the table has no head.
        rows: the cells. Text and HTML take strings, CSV takes numbers too.
        below: a line below the table.
        right: names of the columns that are aligned to the right in text.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    below: str = ''
    right: Sequence[str] = ()

    def lines(self) -> list[str]:
        """Return the head, the rows and the line below as text; every column is as wide as its widest cell."""
        shown = [self.columns, *self.rows] if self.columns else self.rows
        right = [name in self.right for name in self.columns]
        right += [False] * (max(map(len, shown), default=0) - len(right))
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        found = []
        for row in shown if self.rows else ():
            cells = zip(row, widths, right, strict=True)
            found.append('  '.join(x.rjust(width) if end else x.ljust(width) for x, width, end in cells).rstrip())
        return [*found, self.below] if self.below else found

    def html(self, align: str = 'left') -> str:
        """Return the table as HTML, without scripts or classes.

        Args:
            align: alignment of all cells; empty leaves it to the style sheet of the page.
        """
        style = f' style="text-align:{align}"' if align else ''

        def line(cells: Sequence[Any], tag: str) -> str:
            return f'<tr>{"".join(f"<{tag}{style}>{html.escape(str(cell))}</{tag}>" for cell in cells)}</tr>'

        caption = f'<caption{style}><b>{html.escape(self.title)}</b></caption>' if self.title else ''
        head = line(self.columns, 'th') if self.columns else ''
        below = f'<p>{html.escape(self.below)}</p>' if self.below else ''
        return f'<table>{caption}{head}{"".join(line(row, "td") for row in self.rows)}</table>{below}'

    def csv(self) -> str:
        """Return the head and the rows as CSV with Unix line ends."""
        file = io.StringIO(newline='')
        csv.writer(file, lineterminator='\n').writerows([self.columns, *self.rows])
        return file.getvalue()
