"""What a comparison or a study keeps in its folder: settings, results, scores."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.files import write_json
from zoo.experiments.train import plain_settings

#: Said of a training that ended before its first update. Its score is the score of the initial weights.
UNLEARNED = 'nothing was learned: it ended before the first update'


@dataclass(frozen=True)
class Score:
    """How one run ended.

    Attributes:
        score, returns: the mean return of the test after the training, and the return of each of its episodes.
        steps_per_second, seconds: speed and duration of the training.
        folder: the run directory.
        learned: whether it made an update.
    """

    seed: int
    score: float
    returns: tuple[float, ...]
    steps_per_second: float
    seconds: float
    folder: Path
    learned: bool = True


def folder_name(label: str) -> str:
    """Return a label as the name of a folder."""
    return re.sub(r'[^A-Za-z0-9._-]+', '-', label).strip('.-') or 'run'


def keep_settings(folder: Path, settings: Mapping[str, Any], what: str = 'runs') -> None:
    """Write settings to a folder, which is made if need be; ValueError if it holds ``what`` with other settings."""
    wanted = json.loads(json.dumps(plain_settings(settings)))
    found = settings_in(folder)
    if found:
        names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
        if names:
            differ = ', '.join(f'{name} {found.get(name)!r} there and {wanted.get(name)!r} now' for name in names)
            raise InvalidValue(f"'{folder}' holds {what} with other settings ({differ}): choose another folder (out).")
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / 'settings.json', wanted)


def settings_in(folder: Path) -> dict[str, Any]:
    """Return the settings that :func:`keep_settings` wrote to a folder; empty if there are none."""
    path = folder / 'settings.json'
    found: dict[str, Any] = json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}
    return found


def read_result(folder: Path) -> dict[str, Any] | None:
    """Return the result of a run that has ended, else None."""
    try:
        found: dict[str, Any] = json.loads((folder / 'result.json').read_text(encoding='utf-8'))
        return found
    except (OSError, ValueError):
        return None


def read_score(folder: Path, seed: int) -> Score | None:
    """Return the score of a run that has ended, else None."""
    found = read_result(folder)
    if found is None:
        return None
    speed, learned = found['steps_per_second'], 'unlearned' not in found
    return Score(seed, found['score'], tuple(found['returns']), speed, found['seconds'], folder, learned)
