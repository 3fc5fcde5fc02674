"""What the command prints, and its exit statuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.common.tools.printing import Table

#: Exit statuses: what the user asked for is refused; it failed on the way; it was interrupted.
USAGE, FAILED, INTERRUPTED = 2, 1, 130


def duration(seconds: float) -> str:
    """Return ``'2 h 05 min'``, ``'3 min 20 s'`` or ``'4.2 s'``."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f'{hours} h {minutes:02d} min'
    return f'{minutes} min {rest:02d} s' if minutes else f'{seconds:.1f} s'


def mean_return(mean: float, episodes: int, most: int) -> str:
    """Return the mean return of the last episodes in words, of ``episodes`` in all and of ``most`` at most."""
    if episodes == 1:
        return f'{mean:.6g}, of one episode'
    return f'{mean:.6g}, the mean of {f"the last {most}" if episodes > most else f"all {episodes}"} episodes'


def tests(run: Any) -> list[tuple[str, str]]:
    """Return rows on the tests of a run: those while it trained, and the best and the last agent at the end."""
    means = {step: sum(returns) / len(returns) for step, returns in run.tests.items()}
    found = []
    if means:
        best, last = max(means, key=lambda step: (means[step], step)), max(means)
        told = f'highest mean {means[best]:.6g} at step {best:,}, last {means[last]:.6g} at step {last:,}'
        found.append(('tests', f'{len(means)}, {told}'))
    scores = {name: run.retested[name] for name in ('best', 'last') if name in run.retested}
    if len(scores) == 2 and scores['best'] == scores['last']:
        scores = {'best, the last': scores['best']}
    for name, score in scores.items():
        numbers = f'mean {score["mean"]:.6g}, standard deviation {score["std"]:.3g}'
        found.append((name, f'step {score["step"]:,}, {numbers}, of {score["episodes"]} new episodes'))
    return found


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows as text, without those whose second cell is empty."""
    return '\n'.join(Table('', (), [row for row in rows if row[1]]).lines())
