"""Replay buffers and datasets: a buffer that holds a whole dataset, and a buffer that is filled with one."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.masks import forbidden
from zoo.common.adaptors.observation import mask_path
from zoo.common.datasets.dataset import Dataset
from zoo.common.datasets.mapped_folder import MappedFolder
from zoo.common.datasets.opening import AgentSpaces, opened
from zoo.common.maths.normalize import Collected
from zoo.common.replay.replay import Replay
from zoo.common.replay.whole_episodes import ConvertedRows, WholeEpisodes
from zoo.common.sampling import Sampling
from zoo.common.tools.errors import InvalidValue

#: The rows of a folder that are checked at a time.
_ROWS = 100_000

#: The warning where a replay buffer is too small: the number of recorded steps, and the number held.
TOO_SMALL = 'Of the %d recorded transitions the replay buffer holds %d: a larger buffer_size holds more.'

#: The warning where recorded episodes join others in a replay buffer: the transitions that it held, and the new ones.
ADDED = (
    'The replay buffer holds %d recorded transitions of an earlier call, and %d are added: leave them out where '
    'they are the same ones.'
)


def replay_of(
    agent: AgentSpaces,
    source: Any,
    adaptor: ActionAdaptor,
    sampling: Sampling,
    compress: bool = False,
    collected: Collected | None = None,
) -> Replay:
    """Return a replay buffer that holds every transition of a dataset.

    It draws from the files of a mapped folder, or of successive episodes of one, and takes no memory for them. Other
    datasets are read into memory. Draws are the same.

    Args:
        agent: the dataset must have its spaces.
        source: what :func:`zoo.open_dataset` takes.
        adaptor: turns the environment's actions into stored ones.
        sampling: how transitions are drawn.
        compress: keep images compressed, in memory.
        collected: is given the observations that were acted on, once each.

    Raises:
        ValueError: no such source, no transition in it, other spaces than the agent's, values outside them, or actions
            that their mask forbids.
    """
    dataset = opened(agent, source)
    if not compress and isinstance(dataset.source, MappedFolder) and (np.diff(dataset.numbers) == 1).all():
        return _mapped(dataset.source, dataset, adaptor, sampling, collected)
    # Every observation has a row, final ones too.
    rows = dataset.steps + len(dataset)
    replay = Replay(agent.observation_space, adaptor, rows, sampling=sampling, compress=compress)
    fill(agent, replay, dataset, collected=collected)
    replay.complete()
    return replay


def _mapped(
    folder: MappedFolder, dataset: Dataset, adaptor: ActionAdaptor, sampling: Sampling, collected: Collected | None
) -> Replay:
    """Return a replay buffer whose storage is the files of a folder, once all their values have been checked."""
    begin = int(folder.begins[dataset.numbers[0]])
    end = begin + dataset.steps + len(dataset)
    folder.verify(begin, end, None if collected is None else collected.add)
    rows = {name: x[begin : end + folder.spare] for name, x in folder.rows.items()}
    if not dataset.is_whole:  # another episode begins where the last one of these ends
        rows['valid'] = rows['valid'].copy()
        rows['valid'][-folder.spare :] = False
    obs = {path: rows[f'obs/{path}'] for path in spaces.leaves(folder.observation_space)}
    action = {}
    for path, stored in spaces.tree_items(adaptor.zeros((1,))):

        def convert(x: np.ndarray, path: str = path) -> np.ndarray:
            return adaptor.stored_part(path, x)

        action[path] = ConvertedRows(rows[f'action/{path}'], convert, stored.shape[1:], stored.dtype)
    _check_masks(folder, adaptor, rows, obs)
    held = WholeEpisodes(
        spaces.from_items(folder.observation_space, obs),
        spaces.from_items(folder.action_space, action),
        rows['reward'],
        rows['terminated'],
        rows['truncated'],
        rows['valid'],
        dataset.lengths,
    )
    replay = Replay(folder.observation_space, adaptor, 1, sampling=sampling, held=held)
    replay.complete(dataset.lengths)
    return replay


def _check_masks(
    folder: MappedFolder, adaptor: ActionAdaptor, rows: dict[str, np.ndarray], obs: dict[str, np.ndarray]
) -> None:
    """Check the actions in the files of a folder, some thousand rows at a time."""
    mask = mask_path(folder.observation_space) if adaptor.maskable else None
    if mask is None:
        return
    for begin in range(0, len(rows['valid']), _ROWS):
        piece = slice(begin, begin + _ROWS)
        valid = rows['valid'][piece]
        action = adaptor.stored_part('', rows['action/'][piece][valid])
        check_allowed(adaptor, action, obs[mask][piece][valid])


_SO = 'leave the episode out, or record the mask that held'


def check_allowed(
    adaptor: ActionAdaptor, action: np.ndarray, mask: np.ndarray, what: str = 'a recorded action', so: str = _SO
) -> None:
    """Refuse actions to learn from that their mask forbids: their probability would be zero."""
    if not len(action):
        return
    wrong = np.flatnonzero(forbidden(action, mask, adaptor.parts[0].counts))
    if len(wrong):
        raise InvalidValue(
            f'{what} is {np.asarray(action)[wrong[0]]}, which the action_mask of its observation forbids '
            f'({np.asarray(mask)[wrong[0]].astype(int).tolist()}): {so}.'
        )


def fill(
    agent: AgentSpaces,
    replay: Replay,
    source: Any,
    part: int = 0,
    parts: int = 1,
    collected: Collected | None = None,
) -> int:
    """Put recorded episodes into a replay buffer, each into the copy with the fewest steps; return the number of steps.

    Args:
        agent, replay: the episodes must have the spaces of this agent and its replay buffer.
        source: what :func:`zoo.open_dataset` takes.
        part, parts: the number of this replay buffer among ``parts``, which take the episodes in turn.
        collected: is given the observations that were acted on, once each.

    Raises:
        ValueError: no such source, episodes of other spaces, values outside them, or actions that their mask forbids.
    """
    dataset = opened(agent, source)
    given = np.zeros(replay.num_envs, np.int64)
    mask = mask_path(agent.observation_space) if replay.adaptor.maskable else None
    for episode in dataset[part::parts] if part < len(dataset) else ():
        action = replay.adaptor.from_env(episode.action)
        if mask is not None:
            check_allowed(replay.adaptor, action, spaces.tree_map(lambda x: x[:-1], episode.obs)[mask])
        into = int(given.argmin())
        replay.add_episode(into, episode.obs, action, episode.reward, episode.terminated, episode.truncated)
        given[into] += len(episode.reward)
        if collected is not None:
            collected.add(spaces.tree_map(lambda x: x[:-1], episode.obs))
    return int(given.sum())
