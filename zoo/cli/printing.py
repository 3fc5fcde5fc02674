"""What the command prints: tables, durations, exit statuses."""

from __future__ import annotations

import sys
from collections.abc import Sequence

#: Exit codes: what was asked for makes no sense; it failed on the way; it was interrupted.
USAGE, FAILED, INTERRUPTED = 2, 1, 130


# How things are printed


def say(text: str) -> None:
    """A line for whoever looks; results alone go to the standard output."""
    print(text, file=sys.stderr, flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, *rows]:
        print('  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f'{hours} h {minutes:02d} min'
    return f'{minutes} min {rest:02d} s' if minutes else f'{seconds:.1f} s'
