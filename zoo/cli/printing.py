"""What the command prints, and its exit statuses."""

from __future__ import annotations

#: Exit statuses: what the user asked for is refused; it failed on the way; it was interrupted.
USAGE, FAILED, INTERRUPTED = 2, 1, 130


def duration(seconds: float) -> str:
    """Return ``'2 h 05 min'``, ``'3 min 20 s'`` or ``'4.2 s'``."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f'{hours} h {minutes:02d} min'
    return f'{minutes} min {rest:02d} s' if minutes else f'{seconds:.1f} s'
