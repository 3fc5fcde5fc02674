"""Error messages: one sentence that says what was wrong and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: So many names are all told; of more, those that are like the one that was given.
LISTED = 60


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Sentence for a name that is not known, with the nearest one that is.

    Args:
        kind: what is named, for example ``'algorithm'``.
        name: the name that was given.
        known: the names that would have been accepted.

    Returns:
        ``"unknown algorithm 'TD33': did you mean 'TD3'? Known: DQN, PPO, SAC, TD3."``, or the six names most like it
        where there are more than :data:`LISTED`.
    """
    known = list(known)
    close = nearest(name, known)
    hint = f'did you mean {close!r}? ' if close else ''
    if len(known) > LISTED:
        similar = difflib.get_close_matches(str(name), known, n=6, cutoff=0.3)
        return f'unknown {kind} {name!r}: {hint}{len(known)} are known, such as {", ".join(similar or known[:6])}.'
    return f'unknown {kind} {name!r}: {hint}Known: {", ".join(known)}.'


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The member of ``known`` closest in spelling to ``name``, whatever the case, or None when none is close."""
    by_lower = {option.lower(): option for option in known}
    matches = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[matches[0]] if matches else None
