"""Run directories: how they are named, made and continued."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import time
from pathlib import Path

from zoo.common.tools.errors import InvalidType, InvalidValue
from zoo.common.tools.files import make_directory

#: The file in a run directory with what the process of the run prints. It may be there before the run.
OUTPUT = 'output.txt'
#: What to do where nothing can be written.
_NOTHING = ', or run_dir=False to write nothing'


def run_directory(run_dir: str | os.PathLike[str] | bool | None, algorithm: str, env_name: str) -> Path | None:
    """Return the directory of a run, and make it if it is missing; None where nothing is written.

    Args:
        run_dir: a path: used as it is, and a run already there is continued. Any other files there are refused.
            None: a new directory ``<algorithm>_<environment>_<date>-<time>``, with ``_2``, ``_3``, … appended if it
            exists, in the folder that the environment variable ``ZOO_RUNS`` names, or else in ``runs``. False: nothing
            is written.
        algorithm, env_name: for the name. Characters that do not fit in a file name become ``-``.

    Raises:
        NotADirectoryError: the path is a file.
        OSError: it cannot be made or written.
        TypeError: ``run_dir`` is something else.
        ValueError: the folder holds files and is no run.
    """
    if run_dir is False:
        return None
    if run_dir is True or not isinstance(run_dir, str | os.PathLike | None):
        raise InvalidType(f'run_dir is {run_dir!r}: use a path, None for a new directory, or False to write nothing.')
    if run_dir is not None:
        path = make_directory(Path(run_dir).expanduser(), 'a run directory', _NOTHING)
        _check_ours(path, algorithm)
        return path
    given = os.environ.get('ZOO_RUNS')
    root = make_directory(
        Path(given or 'runs').expanduser(), 'the folder that ZOO_RUNS names' if given else 'runs', _NOTHING
    )
    environment = re.sub(r'[^A-Za-z0-9._-]+', '-', env_name).strip('.-')[:80] or 'env'
    name = f'{algorithm}_{environment}_{time.strftime("%Y%m%d-%H%M%S")}'
    for count in itertools.count(1):
        path = root / (name if count == 1 else f'{name}_{count}')
        try:
            path.mkdir()  # not exists(): only one of two runs that start in the same second succeeds
        except FileExistsError:
            continue
        return path
    raise AssertionError('unreachable')


def _check_ours(folder: Path, algorithm: str) -> None:
    """Refuse a folder that holds files and is no run, or a run of another algorithm: its files would be replaced."""
    if (folder / 'config.json').is_file():
        # A checkpoint has such a file too, but names its algorithm one level deeper.
        with contextlib.suppress(OSError, json.JSONDecodeError, UnicodeDecodeError):
            config = json.loads((folder / 'config.json').read_text(encoding='utf-8'))
            found = config.get('algorithm') if isinstance(config, dict) else None
            if found == algorithm:
                return
            if found is not None:
                raise InvalidValue(f"'{folder}' holds a run of {found}: choose another run_dir for {algorithm}.")
    # Hidden files are of the file manager or of a program that keeps locks.
    names = (path.name for path in folder.iterdir())
    others = sorted(name for name in names if name != OUTPUT and not name.startswith('.'))
    if others:
        raise InvalidValue(
            f"'{folder}' holds '{others[0]}' and is no run: choose an empty or a new folder as run_dir, or "
            'move what is there away.'
        )


def check_continued(folder: Path, steps: int) -> None:
    """Refuse a run directory with more steps than the agent to be trained in it has taken.

    Its files would mix two trainings, and its newest checkpoint would belong to either of them.

    Raises:
        ValueError: the directory holds later steps.
    """
    there = [int(path.name) for path in (folder / 'checkpoints').glob('[0-9]*') if path.name.isdigit()]
    monitor = folder / 'monitor.csv'
    if monitor.exists():
        rows = monitor.read_text(encoding='utf-8', errors='replace').split('\n')[2:-1]
        there += [int(step) for _, _, step in (row.rpartition(',') for row in rows[-1:]) if step.isdigit()]
    if max(there, default=0) > steps:
        told = f"'{folder}' holds a run of {max(there):,} steps, but this agent has taken {steps:,}: choose another"
        raise InvalidValue(
            f'{told} run_dir, or go on with that run, zoo.resume(…).',
            shell=f'{told} --run-dir, or go on with that run: --resume {folder}.',
        )
