"""Errors that zoo raises, and their messages: one sentence that says what was wrong and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: At most this many known names are listed; of more, only those most like the given one.
LISTED = 40


class ZooError(Exception):
    """An error whose message is a whole sentence for the user; the command prints it without a traceback.

    Attributes:
        shell: the message for a user of the command, where the other one says what to write in Python; else None.
    """

    def __init__(self, message: object = '', *, shell: str | None = None) -> None:
        super().__init__(message)
        self.shell = shell


class UserError(ZooError):
    """What the user gave is refused: a name, a value, an argument. The command ends with the exit status 2."""


class InvalidValue(UserError, ValueError):
    """A value or a name is refused."""


class InvalidType(UserError, TypeError):
    """A value of the wrong type, or an argument that is not taken, is refused."""


class NotAFolder(UserError, NotADirectoryError):
    """A path that should be a folder is a file, or lies in one."""


class NotWritable(UserError, OSError):
    """A path that the user named cannot be written."""


class MissingPackage(ZooError, ImportError):
    """An optional package is needed and not installed; the message has the line that installs it."""


class Failure(ZooError, RuntimeError):
    """Something failed that the user did not cause by a wrong value."""


class TimedOut(ZooError, TimeoutError):
    """Something took longer than it may."""


class NotFinite(ZooError, FloatingPointError):
    """A loss, a weight, an observation or a reward became NaN or infinite."""


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the sentence that refuses an unknown name and offers the nearest known one.

    Such as ``"unknown algorithm 'TD33': did you mean 'TD3'? Known: DQN, PPO, SAC, TD3."``. With more than
    :data:`LISTED` known names only the six most similar ones are listed.
    """
    known = list(known)
    close = nearest(name, known)
    refused = f'unknown {kind} {name!r}' + (f': did you mean {close!r}?' if close else '.')
    if len(known) > LISTED:
        similar = difflib.get_close_matches(str(name), known, n=6, cutoff=0.3)
        return f'{refused} {len(known)} are known, such as {", ".join(similar or known[:6])}.'
    return f'{refused} Known: {", ".join(known)}.'


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the member of ``known`` closest in spelling to ``name``; None if none is near.

    Case, leading dashes and a version such as ``-v5`` do not count. The beginning of a name is near, also misspelt.
    """
    stem, version = _stem(str(name))
    stems: dict[str, list[tuple[int, str]]] = {}
    for option in known:
        own, number = _stem(option)
        stems.setdefault(own, []).append((number, option))
    close = difflib.get_close_matches(stem, stems, n=1, cutoff=0.65)
    if not close and len(stem) > 2:
        close = [own for own in stems if own.startswith(stem) or (len(own) > 2 and stem.startswith(own))]
    if not close and len(stem) > 4:
        beginnings = {own[: len(stem)]: own for own in stems}
        close = [beginnings[own] for own in difflib.get_close_matches(stem, beginnings, n=1, cutoff=0.8)]
    if not close:
        return None
    return max(stems[close[0]], key=lambda found: (found[0] == version, found[0]))[1]


def _stem(name: str) -> tuple[str, int]:
    """Return what counts of a name, and its version; -1 without one."""
    stem, _, version = name.lower().lstrip('-').partition('-v')
    return (stem, int(version)) if version.isdigit() else (name.lower().lstrip('-'), -1)


def article(word: str) -> str:
    """Return a word with its article: ``'a list'``, ``'an int'``."""
    return f'{"an" if word[:1].lower() in "aeio" else "a"} {word}'


def a_type(value: object) -> str:
    """Return what kind of object a value is, with its article: ``'an int'``."""
    return article(type(value).__name__)
