"""One recorded episode: its record, and the checks that every episode of a dataset passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import Preprocess
from zoo.common.tools.errors import InvalidValue


class RecordedEpisode(NamedTuple):
    """One episode of ``T`` steps.

    Observations and actions are flat structures: one array, or for a ``Dict`` or ``Tuple`` a dict of arrays by path.

    Attributes:
        obs: flat ``[T + 1, …]`` in the environment's dtype, with the final observation.
        action: flat ``[T, …]``, in the environment's own units.
        reward: float32 ``[T]``.
        terminated, truncated: how it ended; neither where it was cut.
        log_prob: float32 ``[T]``, the log-probability of each action under the policy that played it, exploration
            included; None: not known. Of a ``Box`` it is the log-density in the environment's units, and of an action
            at a bound the log-probability of that bound.
    """

    obs: Any
    action: Any
    reward: np.ndarray
    terminated: bool
    truncated: bool
    log_prob: np.ndarray | None = None


class Checks:
    """What the episodes and rows of a dataset must satisfy besides shapes and dtypes.

    Numbers are finite. A ``Discrete`` or other counted space has each value. An action lies in its space. The bounds of
    a ``Box`` of observations are not compared, as in training: many environments step over them.

    Args:
        name: of the dataset, for messages.
        observation_space, action_space: of one copy of its environment.

    Raises:
        ValueError, TypeError: zoo has no agents for these spaces.
    """

    def __init__(self, name: str, observation_space: Space, action_space: Space) -> None:
        self.name = name
        self._preprocess, self._adaptor = Preprocess(observation_space, {}), ActionAdaptor(action_space)

    def episode(self, number: int, episode: RecordedEpisode) -> None:
        """Check an episode; ``number`` is what the message calls it.

        Raises:
            ValueError: names the first fault.
        """
        where = f'in episode {number}'
        self.reward(where, episode.reward)
        if episode.log_prob is not None:
            self._finite('a log-probability', where, episode.log_prob)
        self.obs(where, episode.obs)
        self.action(where, episode.action)

    def reward(self, where: str, reward: np.ndarray) -> None:
        """Check rewards ``[n]``; ``where`` ends the message."""
        self._finite('a reward', where, reward)

    def obs(self, where: str, obs: spaces.Flat) -> None:
        """Check flat observations ``[n, …]``."""
        for path, x in spaces.tree_items(obs):
            self.part_of_obs(where, path, x)

    def part_of_obs(self, where: str, path: str, x: np.ndarray) -> None:
        """Check one part of observations, ``[n, …]``."""
        self._finite('an observation', where, x)
        self._told(where, self._preprocess.check_part, path, x)

    def action(self, where: str, action: spaces.Flat) -> None:
        """Check flat actions ``[n, …]`` in the environment's units."""
        for path, x in spaces.tree_items(action):
            self.part_of_action(where, path, x)

    def part_of_action(self, where: str, path: str, x: np.ndarray) -> None:
        """Check one part of actions, ``[n, …]``."""
        self._finite('an action', where, x)
        self._told(where, self._adaptor.part_from_env, path, x)

    def _finite(self, what: str, where: str, x: np.ndarray) -> None:
        if x.dtype.kind == 'f' and not np.isfinite(x).all():
            raise InvalidValue(f"of '{self.name}' {what} is NaN or infinite{where and f', {where}'}.")

    def _told(self, where: str, check: Callable[[str, np.ndarray], Any], path: str, x: np.ndarray) -> None:
        try:
            check(path, x)
        except ValueError as error:
            told = f"of '{self.name}' {str(error).removesuffix('.')}{where and f', {where}'}."
            raise InvalidValue(told) from error


def known_log_prob(stored: np.ndarray | None) -> np.ndarray | None:
    """Return the log-probabilities of an episode from what a file holds of them: NaN where they are not known."""
    return None if stored is None or np.isnan(stored).all() else stored


def stacked(newest: np.ndarray, frames: int) -> np.ndarray:
    """Return the stacks of an episode's frames; the first frame stands for earlier ones."""
    past = np.arange(len(newest))[:, None] - np.arange(frames - 1, -1, -1)
    return np.concatenate([newest[rows] for rows in np.maximum(past, 0).T], -1)


def newest_frames(leaf: spaces.Leaf, x: np.ndarray) -> np.ndarray:
    """Return what is stored of a leaf ``[n, …]``: of a stack of frames the newest frame, of others all."""
    return x[..., -leaf.frame_shape[-1] :] if isinstance(leaf, spaces.FrameStack) else x


def stored_shape(leaf: spaces.Leaf) -> tuple[int, ...]:
    """Return the shape of what is stored of one element of a leaf."""
    return leaf.frame_shape if isinstance(leaf, spaces.FrameStack) else spaces.shape_of(leaf)


def as_stored(space: Space, stored: dict[str, np.ndarray]) -> spaces.Flat:
    """Return an episode's flat observations from what is stored of them by path: frames become stacks again."""
    items = {
        path: stacked(stored[path], leaf.frames) if isinstance(leaf, spaces.FrameStack) else stored[path]
        for path, leaf in spaces.leaves(space).items()
    }
    return spaces.from_items(space, items)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the axes that hold one entry; the first axis, of steps, stays."""
    return (*shape[:1], *(size for size in shape[1:] if size != 1))


def fitted(what: str, space: Space, values: Any, length: int) -> spaces.Flat:
    """Return what a user or another library holds of an episode as flat arrays ``[length, …]`` in a space's dtypes.

    Args:
        what: begins the message, such as ``'of 'file.npz' in episode 3 the observation'``.
        space: the values are elements of this space.
        values: nested as the space is, or flat.
        length: how many there must be.

    Raises:
        ValueError: a part is missing, there are more or fewer, or the space cannot hold them.
    """
    leaves = spaces.leaves(space)
    try:
        flat = values if isinstance(values, dict) and values.keys() == leaves.keys() else spaces.flatten(space, values)
    except TypeError as error:
        raise InvalidValue(f'{what} {error}') from error
    found, items = dict(spaces.tree_items(flat)), {}
    for path, leaf in leaves.items():
        where = f'{what} {path!r}' if path else what
        x = np.asarray(found[path])
        if x.ndim == 0 or len(x) != length:
            has = f'{len(x)} entries' if x.ndim else 'no axis of steps'
            raise InvalidValue(f'{where} has {has}, but {length} are right.')
        shape = (length, *spaces.shape_of(leaf))
        if x.shape != shape and _without_ones(x.shape) == _without_ones(shape) and x.dtype.kind in 'biuf':
            x = x.reshape(shape)  # some write one number as an array of one entry
        try:
            items[path] = spaces.fitted(leaf, x, (length,))
        except InvalidValue as error:
            raise InvalidValue(f'{where} is {error}.') from error
    return spaces.from_items(space, items)
