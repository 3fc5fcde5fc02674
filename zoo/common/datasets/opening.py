"""``zoo.open_dataset``: a dataset from a path, a name, a list, or a replay buffer."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.adaptors import action as actions
from zoo.common.adaptors import observation as observations
from zoo.common.datasets.d4rl import D4RLData, hdf5_columns, npz_columns
from zoo.common.datasets.dataset import Dataset
from zoo.common.datasets.episode_file import EpisodeFile
from zoo.common.datasets.given_episodes import GivenEpisodes, is_episode
from zoo.common.datasets.joined import Joined
from zoo.common.datasets.mapped_folder import ABOUT, MappedFolder
from zoo.common.datasets.minari_dataset import MinariDataset
from zoo.common.datasets.replay_buffer import BufferedEpisodes, is_run_or_checkpoint, saved_buffer
from zoo.common.datasets.source import Source
from zoo.common.replay.ring import Ring
from zoo.common.tools.errors import InvalidType, InvalidValue

_HDF5 = ('.hdf5', '.h5', '.hdf')

#: The id of a dataset of Minari: perhaps namespaces, a name, a version.
_MINARI_ID = re.compile(r'([\w-]+/)*[\w-]+-v\d+')

_WHAT = (
    'give a file or folder of zoo.record_episodes, a D4RL file, a Minari dataset, a run with its replay buffer, an '
    'open dataset, agent.replay, episodes, or a list of these'
)


class AgentSpaces(Protocol):
    """An agent, or anything else that has its spaces."""

    @property
    def observation_space(self) -> Space:
        """The space of one observation."""

    @property
    def action_space(self) -> Space:
        """The space of one action."""


def open_dataset(source: Any, observation_space: Space | None = None, action_space: Space | None = None) -> Dataset:
    """Open recorded episodes. They stay where they are until they are asked for.

    >>> dataset = zoo.open_dataset('runs/expert.npz')
    >>> print(dataset.summary())

    ==================================  ===========================================================================
    source                              episodes
    ==================================  ===========================================================================
    ``'file.npz'``, ``'folder'``        written by ``zoo.record_episodes`` or ``dataset.save``. A folder is mapped into
                                        memory, so that it may be of any size
    ``'file.hdf5'``, ``'file.npz'``     arrays of the D4RL form (:mod:`zoo.common.datasets.d4rl`)
    ``'namespace/name-v0'``, folder     a Minari dataset on this machine
    run directory, checkpoint           the replay buffer in the newest checkpoint, saved by
                                        ``learn(…, checkpoint_buffer=True)``
    ``agent.replay``                    what the replay buffer holds at the moment
    list of episodes                    each a ``zoo.RecordedEpisode``, a dict with the same keys, or a rollout of
                                        ``agent.rollout``
    list of the above                   joined; they need the same spaces
    ==================================  ===========================================================================

    Args:
        source: see the table; an open dataset is returned as it is.
        observation_space, action_space: of one copy of the environment. D4RL data and lists do not say them, nor do
            files that were saved of these. Without them they are inferred: see
            :mod:`zoo.common.datasets.inferring`. Data that says its spaces is compared with what is given.

    Raises:
        ValueError: there is no such dataset, it is damaged or of another program, it has no episodes, it does not say
            where episodes end, or it has other spaces.
        TypeError: the source is of another type.
        ImportError: a package for its form is missing; the message has the ``pip install`` line.
    """
    found = _opened(source, observation_space, action_space)
    for kind, wanted in (('observation_space', observation_space), ('action_space', action_space)):
        reason = None if wanted is None else spaces.mismatch(wanted, getattr(found, kind))
        if reason is not None:
            told = reason.replace('this agent was made for', f'{kind} is')
            raise InvalidValue(f"of '{found.source.name}' the {kind} {told}: leave {kind} out.")
    return found


def opened(agent: AgentSpaces, source: Any) -> Dataset:
    """Return a dataset for an agent: in the agent's spaces where the data does not say its own.

    Raises:
        ValueError, TypeError, ImportError: as :func:`open_dataset`, or other spaces than the agent's.
    """
    found = _opened(source, agent.observation_space, agent.action_space)
    check_spaces(agent, found.observation_space, found.action_space, f"of '{found.source.name}' the")
    return found


def check_spaces(agent: AgentSpaces, observation_space: Space, action_space: Space, whose: str) -> None:
    """Raise a ValueError for other spaces than the agent's; ``whose`` begins the message."""
    for kind, found, adaptor in (
        ('observation_space', observation_space, observations),
        ('action_space', action_space, actions),
    ):
        reason = adaptor.mismatch(getattr(agent, kind), found)
        if reason is not None:
            more = ', or give this one as many frames, build_env(…, frame_stack=N)' if 'frames' in reason else ''
            shell = ', or give this one as many frames, --env-set frame_stack=N' if more else ''
            told = f'{whose} {kind} {reason}: record episodes in an environment with its spaces'
            raise InvalidValue(f'{told}{more}.', shell=f'{told}{shell}.')


def check_sources(source: Any) -> None:
    """Refuse what is no source of a dataset; files must be there. Data is read only when it is opened.

    Raises:
        ValueError, TypeError: as :func:`open_dataset`.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        if path.suffix in ('.npz', *_HDF5) and not path.is_file():
            raise InvalidValue(f"there are no recorded episodes at '{path}'.")
        if path.suffix == '.npz' and not _is_d4rl(path):
            EpisodeFile(path)
    elif not (isinstance(source, Dataset | Ring) or is_episode(source)):
        for part in _listed(source):
            check_sources(part)


def described(source: Any) -> Any:
    """Return what a dataset is opened from as plain data: its path or name, a description, or a list of these.

    Some episodes of a file are described, since their path would stand for all.
    """
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    if isinstance(source, Dataset):
        return str(source.path) if source.path is not None and source.is_whole else repr(source)
    if isinstance(source, Ring) or is_episode(source):
        return f'<{type(source).__name__} in memory>'
    parts = _listed(source)
    return f'<{len(parts)} episodes in memory>' if is_episode(parts[0]) else [described(part) for part in parts]


def named(source: Any) -> list[str]:
    """Return the paths or names that a dataset is opened from, or descriptions of what has none, as a list."""
    found = described(source)
    return found if isinstance(found, list) else [found]


def name_of(source: Any) -> str:
    """Return what to call a dataset in titles and names of folders."""
    if isinstance(source, str | os.PathLike):
        return Path(source).stem
    if isinstance(source, Dataset):
        return source.name
    if isinstance(source, Ring) or is_episode(source):
        return 'episodes'
    return name_of(_listed(source)[0])


def _listed(source: Any) -> Sequence[Any]:
    """Return a list of sources."""
    if not isinstance(source, Sequence):
        raise InvalidType(f'{source!r} is no dataset: {_WHAT}.')
    if not len(source):
        raise InvalidValue('an empty list is no dataset: give at least one episode, or the path of a recording.')
    return source


def _opened(source: Any, observation_space: Space | None, action_space: Space | None) -> Dataset:
    """Open a dataset, in these spaces where its data does not say its own."""
    found = source if isinstance(source, Dataset) else Dataset(_source(source, observation_space, action_space))
    return found if observation_space is action_space is None else found.fitting(observation_space, action_space)


def _source(source: Any, observation_space: Space | None, action_space: Space | None) -> Source:
    if isinstance(source, str | os.PathLike):
        return _at(os.fspath(source), observation_space, action_space)
    if isinstance(source, Ring):
        return BufferedEpisodes(source)
    parts: list[Dataset] = []
    for of_episodes, group in groupby([source] if is_episode(source) else _listed(source), key=is_episode):
        if of_episodes:
            parts.append(Dataset(GivenEpisodes(list(group), observation_space, action_space)))
        else:
            parts += [_opened(one, observation_space, action_space) for one in group]
    if len(parts) == 1 and parts[0].is_whole:
        return parts[0].source
    first = parts[0]
    fitted = [part.fitting(first.observation_space, first.action_space) for part in parts[1:]]
    return Joined([first, *fitted])


def _at(given: str, observation_space: Space | None, action_space: Space | None) -> Source:
    """Return what a path or an id names."""
    path = Path(given).expanduser()
    if path.suffix in ('.npz', *_HDF5) and not path.is_file():
        raise InvalidValue(f"there are no recorded episodes at '{path}'.")
    if path.suffix == '.npz':
        if not _is_d4rl(path):
            return EpisodeFile(path)
        return D4RLData(path, npz_columns(path), observation_space, action_space, npz_columns)
    if path.suffix in _HDF5:
        return D4RLData(path, hdf5_columns(path), observation_space, action_space, hdf5_columns)
    if path.is_file():
        raise InvalidValue(f"'{path}' is no file of episodes: {_WHAT}.")
    if (path / ABOUT).is_file():
        return MappedFolder(path)
    if is_run_or_checkpoint(path):
        return saved_buffer(path)
    if not path.exists() and not _MINARI_ID.fullmatch(given):
        raise InvalidValue(f"there is no dataset '{given}': {_WHAT}.")
    of_minari = [path / inner / name for inner in ('', 'data') for name in ('metadata.json', 'main_data.hdf5')]
    if path.is_dir() and not any(file.is_file() for file in of_minari):
        raise InvalidValue(f"the folder '{given}' holds no dataset: {_WHAT}.")
    return MinariDataset(given)


def _is_d4rl(path: Path) -> bool:
    """Whether an ``.npz`` file has the names of D4RL, and not those of zoo."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False
    return 'about.npy' not in names and 'observations.npy' in names
