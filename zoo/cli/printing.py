"""What the command prints, and its exit statuses."""

from __future__ import annotations

from typing import Any

#: Exit statuses: what the user asked for is refused; it failed on the way; it was interrupted.
USAGE, FAILED, INTERRUPTED = 2, 1, 130


def duration(seconds: float) -> str:
    """Return ``'2 h 05 min'``, ``'3 min 20 s'`` or ``'4.2 s'``."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f'{hours} h {minutes:02d} min'
    return f'{minutes} min {rest:02d} s' if minutes else f'{seconds:.1f} s'


def scores(run: Any) -> list[tuple[str, str]]:
    """Return how good the best agent of a run and its last one are, by the tests at the end; empty without them."""
    scores = {name: run.retested[name] for name in ('best', 'last') if name in run.retested}
    if scores and scores['best'] == scores['last']:
        scores = {'best, the last': scores['best']}
    found = []
    for name, score in scores.items():
        numbers = f'mean {score["mean"]:.6g}, standard deviation {score["std"]:.3g}'
        found.append((name, f'step {score["step"]:,}, {numbers}, of {score["episodes"]} new episodes'))
    return found
