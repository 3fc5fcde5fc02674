"""The scores of the runs in a comparison's folder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.common.tools.files import write_json
from zoo.experiments.train import plain_settings


@dataclass(frozen=True)
class Score:
    """How one run ended.

    Attributes:
        seed: of the run.
        score: the mean return of a test after it.
        returns: of that test.
        steps_per_second, seconds: of the training.
        folder: the run directory.
    """

    seed: int
    score: float
    returns: tuple[float, ...]
    steps_per_second: float
    seconds: float
    folder: Path


def folder_name(label: str) -> str:
    return re.sub(r'[^A-Za-z0-9._-]+', '-', label).strip('.-') or 'run'


def keep_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings of a label, or refuse others than those that its runs were made with."""
    wanted = json.loads(json.dumps(plain_settings(settings)))
    path = folder / 'settings.json'
    if path.exists():
        found = settings_in(folder)
        if found != wanted:
            names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
            differ = ', '.join(f'{name} {found.get(name)!r} there and {wanted.get(name)!r} now' for name in names)
            raise ValueError(f"'{folder}' holds runs with other settings ({differ}): choose another folder, out=….")
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, wanted)


def settings_in(folder: Path) -> dict[str, Any]:
    path = folder / 'settings.json'
    found: dict[str, Any] = json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}
    return found


def read_result(folder: Path) -> dict[str, Any] | None:
    """What a run that has ended left."""
    path = folder / 'result.json'
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding='utf-8'))
        return found
    except (OSError, ValueError):
        return None


def read_score(folder: Path, seed: int) -> Score | None:
    found = read_result(folder)
    if found is None:
        return None
    return Score(seed, found['score'], tuple(found['returns']), found['steps_per_second'], found['seconds'], folder)
