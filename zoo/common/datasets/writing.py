"""Where a dataset is written decides its form: one compressed file, or a folder of mapped arrays."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from gymnasium.spaces import Space

from zoo.common.datasets.episode_file import EpisodeFile, EpisodeFileWriter
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.datasets.mapped_folder import MappedFolder, MappedFolderWriter
from zoo.common.datasets.source import Environment, Source
from zoo.common.datasets.writer import Writer
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.files import as_path


def writer_for(
    path: Any,
    observation_space: Space,
    action_space: Space,
    environment: Environment | None = None,
    inferred: tuple[str, ...] = (),
) -> Writer:
    """Return what writes episodes to a path: a file if its name ends in ``.npz``, a folder if it has no ending.

    Raises:
        TypeError: it is no path.
        ValueError: another ending.
        OSError: its folder cannot be made or written.
    """
    path = as_path(path, 'path')
    if path.suffix not in ('', '.npz'):
        raise InvalidValue(
            f"path is '{path}': episodes are recorded in a file whose name ends in .npz, or in a folder, whose name "
            'has no ending.'
        )
    kind = EpisodeFileWriter if path.suffix else MappedFolderWriter
    return kind(path, observation_space, action_space, environment, inferred)


def written(
    path: str | os.PathLike[str],
    observation_space: Space,
    action_space: Space,
    environment: Environment | None,
    episodes: Iterable[RecordedEpisode],
    inferred: tuple[str, ...] = (),
) -> Source:
    """Write episodes, and return what was written."""
    with writer_for(path, observation_space, action_space, environment, inferred) as writer:
        for episode in episodes:
            writer.add(episode)
    return reread(writer)


def reread(writer: Writer) -> Source:
    """Return what was written, as it is read again."""
    return EpisodeFile(writer.path) if writer.path.suffix else MappedFolder(writer.path)
