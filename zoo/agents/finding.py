"""Where a saved agent is that a user gives: a path, or the name of a trained agent."""

from __future__ import annotations

import difflib
import functools
import os
from pathlib import Path

from zoo.agents import card
from zoo.agents.card import Card
from zoo.common.tools.errors import InvalidValue, unknown

#: The agents in the package; each has its card here, also the ones that are too large for the package.
TRAINED = Path(__file__).parent / 'trained'
#: The agents beside the package, in the repository.
BESIDE = Path(__file__).parents[2] / 'agents'


def find(source: str | os.PathLike[str]) -> Path:
    """Return the path of a saved agent.

    Args:
        source: a path, or the name of a trained agent in any case. A path that exists wins over a name.

    Raises:
        ValueError: it looks like a name and is none, or the agent is not on this machine.
    """
    path = Path(source).expanduser()
    if path.exists() or not isinstance(source, str):
        return path
    return named(source) or path


def named(source: str) -> Path | None:
    """Return the folder of the trained agent with this name; None for what cannot be a name.

    ``zoo.load`` and ``zoo.open_run`` ask here about everything that is no path.

    Raises:
        ValueError: it looks like a name and is none, or the agent is not on this machine.
    """
    algorithm, slash, environment = source.partition('/')
    if not slash and not Path(source).exists():
        of_it = [found.name for found in _cards().values() if source.lower() == found.algorithm.lower()]
        if of_it:
            told = f'{source!r} is an algorithm: a trained agent is named with its environment, such as {of_it[0]}'
            raise InvalidValue(f'{told}; zoo.list_agents() has all.', shell=f'{told}; zoo list agents has all.')
    if not slash or not environment or algorithm in ('', '.', '..', '~') or '/' in environment or '\\' in source:
        return None
    known = _cards()
    found = known.get(source.lower())
    if found is not None:
        return folder_of(found)
    close = [known[name].name for name in difflib.get_close_matches(source.lower(), known, n=3, cutoff=0.5)]
    if not close or Path(algorithm).is_dir():  # rather a path that is wrong
        return None
    told = f'there is neither a path nor a trained agent {source!r}, but there {"are" if close[1:] else "is"}'
    told = f'{told} {", ".join(close)}'
    raise InvalidValue(f'{told}: zoo.list_agents() has all agents.', shell=f'{told}: zoo list agents has all agents.')


def list_agents(env_id: str | None = None, alg: str | None = None) -> list[Card]:
    """Return the cards of the trained agents, by name.

    Args:
        env_id: only agents in this environment.
        alg: only agents of this algorithm, in any case.

    Raises:
        ValueError: there is no agent in this environment, or none of this algorithm.
    """
    found = list(_cards().values())
    for what, value in (('environment', env_id), ('algorithm', alg)):
        known = {str(getattr(other, what)).lower(): getattr(other, what) for other in _cards().values()}
        if value is not None and str(value).lower() not in known:
            raise InvalidValue(unknown(f'{what} of a trained agent', value, sorted(known.values())))
        found = [other for other in found if value is None or getattr(other, what).lower() == value.lower()]
    return found


def folder_of(agent: Card) -> Path:
    """Return the folder of a trained agent.

    Raises:
        ValueError: it is in the repository and not in the installed package.
    """
    for root in (TRAINED, BESIDE):
        folder = root / agent.algorithm / agent.environment
        if (folder / 'checkpoints').is_dir():
            return folder
    raise InvalidValue(
        f'{agent.name} is too large for the package: it is in the repository of zoo, in agents/{agent.name}. Give the '
        "path of that folder, or install zoo from a clone, pip install -e '.'."
    )


def card_of(folder: Path) -> Card | None:
    """Return the card of the trained agent that has this folder; None for any other folder."""
    home = folder.resolve()
    if home.parents[1:2] and home.parents[1] in (TRAINED.resolve(), BESIDE.resolve()):
        return _cards().get('/'.join(home.parts[-2:]).lower())
    return None


def _cards() -> dict[str, Card]:
    """Return the cards by their names in lower case, in the order of the names."""
    return _read(TRAINED)


@functools.cache
def _read(root: Path) -> dict[str, Card]:
    found = [card.read(file.parent) for file in root.glob(f'*/*/{card.FILE}')]
    return {one.name.lower(): one for one in sorted(found, key=lambda one: one.name.lower())}
