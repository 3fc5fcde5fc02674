"""The episodes that a replay buffer holds: of an agent, or of a checkpoint that was saved with its buffer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.datasets.mapped_folder import spare_rows
from zoo.common.datasets.source import Environment, Source
from zoo.common.replay.replay import Replay
from zoo.common.replay.ring import Ring
from zoo.common.sampling import Sampling
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.files import from_jsonable
from zoo.common.training import checkpoint


class BufferedEpisodes(Source):
    """The episodes of a replay buffer, those that ended first come first.

    Of an episode whose first steps were written over, the rest is an episode; one under way is cut. With stacks of
    frames such a rest is left out, since its first stack would reach back to what is lost.

    Args:
        ring: it must not be written to as long as the episodes are read.
        name: what to call it.
        path: of the checkpoint; None: the buffer is an agent's.
        environment: None: not known.
    """

    def __init__(
        self,
        ring: Ring,
        name: str = 'the replay buffer',
        path: Path | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.name, self.path, self.environment = name, path, environment
        self.observation_space, self.action_space = ring.space, ring.adaptor.space
        self._ring, self._moves = ring, ring.moves.copy()
        pieces: list[tuple[int, np.ndarray]] = []
        for base, cursor in zip(ring.base, ring.cursor, strict=True):
            rows = base + (cursor + 1 + np.arange(ring.rows)) % ring.rows  # the oldest first
            edges = np.flatnonzero(np.diff(ring.valid[rows], prepend=False, append=False))
            pieces += [(int(end) - ring.rows, rows[begin:end]) for begin, end in edges.reshape(-1, 2)]
        pieces = [(at, rows) for at, rows in pieces if not (ring.frames and ring.age[rows[0]])]
        self._pieces = [rows for _, rows in sorted(pieces, key=lambda piece: piece[0])]
        last = np.array([rows[-1] for rows in self._pieces], np.int64)
        self.lengths = np.array([len(rows) for rows in self._pieces], np.int64)
        self.terminated, self.truncated = ring.terminated[last], ring.truncated[last]

    def episode(self, number: int) -> RecordedEpisode:
        ring = self._ring
        if not np.array_equal(ring.moves, self._moves):
            raise InvalidValue(f'{self.name} was written to since it was opened: open it again, or save it before.')
        rows = self._pieces[number]
        seen = np.concatenate([rows, ring.after(rows[-1:])])
        obs = {path: ring.seen(path, storage, seen) for path, storage in spaces.tree_items(ring.obs)}
        action = ring.adaptor.to_env(spaces.tree_map(lambda x: x.take(rows, axis=0), ring.action))
        return RecordedEpisode(
            spaces.from_items(ring.space, obs),
            spaces.flatten(ring.adaptor.space, action),
            ring.reward[rows],
            bool(self.terminated[number]),
            bool(self.truncated[number]),
        )


_CONFIG, _WEIGHTS, _CHECKPOINTS = 'config.json', 'weights.safetensors', 'checkpoints'


def is_run_or_checkpoint(path: Path) -> bool:
    """Whether a folder is a run, or a checkpoint."""
    return (path / _CONFIG).is_file() and ((path / _CHECKPOINTS).is_dir() or (path / _WEIGHTS).exists())


def saved_buffer(path: Path) -> BufferedEpisodes:
    """Return the episodes of the replay buffer in a checkpoint, or in the newest checkpoint of a run.

    Raises:
        ValueError: there is no checkpoint, it is damaged, or was saved without a replay buffer.
    """
    found = path if (path / _WEIGHTS).exists() else checkpoint.newest_in(path)
    if found is None:
        raise InvalidValue(f"the run '{path}' has no checkpoint.")
    saved = checkpoint.read(found)
    if saved.buffer is None:
        raise InvalidValue(
            f"'{found}' was saved without its replay buffer: train with checkpoint_buffer=True, or give recorded "
            'episodes.'
        )
    try:
        space, adaptor = (
            spaces.from_json(saved.config['observation_space']),
            ActionAdaptor(spaces.from_json(saved.config['action_space'])),
        )
        copies, rows = len(saved.buffer['cursor']), int(saved.buffer['rows'])
        packed = any(name.startswith('packed/') for name in saved.buffer)
        longest = spare_rows(space)  # the rest of the rows is the capacity
        replay = Replay(space, adaptor, (rows - longest) * copies, copies, Sampling(1.0), packed)
        replay.restore(saved.buffer)
    except (KeyError, TypeError) as error:
        raise InvalidValue(f"'{found}' is not the checkpoint of an agent ({error}).") from error
    run = found.parent.parent if found.parent.name == _CHECKPOINTS else found.parent
    return BufferedEpisodes(replay, str(found), found, _environment(run))


def _environment(run: Path) -> Environment | None:
    """Return the environment of a run; None where its folder does not say."""
    try:
        config = from_jsonable(json.loads((run / _CONFIG).read_bytes()))
        made_with = config.get('made_with')
        return Environment(str(config['environment']), config.get('env_type'), made_with and dict(made_with))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
