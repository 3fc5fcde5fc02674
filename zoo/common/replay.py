"""Uniform experience replay (Lin 1992; Mnih et al. 2015) with every observation held once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.schedules import Linear
from zoo.common.types import Batch, Transition

log = logging.getLogger('zoo')

#: From this size on the memory is announced before it is taken.
ANNOUNCE_BYTES = 100e6

#: Arrays with one entry for each row, beside the observations and actions.
PER_ROW = ('reward', 'terminated', 'truncated', 'valid', 'age')


class Priorities(NamedTuple):
    """Proportional prioritisation (Schaul et al. 2016, arXiv 1511.05952, section 3.3).

    Attributes:
        exponent: α, of the priorities: 0 draws uniformly.
        correction: β, of the importance weights: 1 corrects in full.
    """

    exponent: float | Linear = 0.6
    correction: float | Linear = Linear(0.4, 1.0)


class Sampling(NamedTuple):
    """How transitions are drawn.

    Attributes:
        gamma: discount of what follows a step.
        n_step: steps in a row that are drawn as one.
        priorities: drawn by priority; None: uniformly.
    """

    gamma: float
    n_step: int = 1
    priorities: Priorities | None = None


class Replay:
    """A ring of rows for each copy of the environment.

    Row ``i`` holds an observation and what was done there; the next observation is that of row ``i + 1``. At an
    episode's end the final observation takes a row of its own, which is never sampled, so nothing is stored twice and
    no transition crosses a reset. Of a stack of frames (:class:`zoo.common.spaces.FrameStack`) a row holds the newest
    alone: the others are those of the rows before, as far back as the episode reaches.

    Attributes:
        added: transitions stored so far, also those written over since.
        nbytes: memory of the storage.

    Args:
        observation_space, action_adaptor: give shapes and dtypes.
        capacity: transitions, summed over copies; each episode end among them takes the place of one.
        num_envs: copies; each has an equal share of the capacity, rounded up.
        sampling: how transitions are drawn; None: uniformly, each by itself, without a discount.
    """

    def __init__(
        self,
        observation_space: Space,
        action_adaptor: ActionAdaptor,
        capacity: int,
        num_envs: int = 1,
        sampling: Sampling | None = None,
    ) -> None:
        self.sampling = Sampling(1.0) if sampling is None else sampling
        self.capacity = capacity
        self.num_envs = num_envs
        self.space = observation_space
        leaves = spaces.leaves(observation_space)
        self._frames = {path: leaf.frames for path, leaf in leaves.items() if isinstance(leaf, spaces.FrameStack)}
        self._longest = max(self._frames.values(), default=1)
        # The rows from the cursor on whose stacks reach back to it hold no transition.
        self.rows = max(2, -(-capacity // num_envs)) + self._longest
        total = self.rows * num_envs
        shapes = {
            path: leaf.frame_shape if isinstance(leaf, spaces.FrameStack) else spaces.shape_of(leaf)
            for path, leaf in leaves.items()
        }
        row_bytes = sum(leaf.dtype.itemsize * int(np.prod(shapes[path])) for path, leaf in leaves.items())
        row_bytes += sum(x.nbytes for _, x in spaces.tree_items(action_adaptor.zeros((1,)))) + 8
        self.nbytes = total * row_bytes
        if self.nbytes > ANNOUNCE_BYTES:
            log.warning(
                'The replay buffer of %d transitions takes up to %.2f GB of memory.', capacity, self.nbytes / 1e9
            )
        obs = {path: np.zeros((total, *shapes[path]), leaf.dtype) for path, leaf in leaves.items()}
        self._obs = spaces.from_items(observation_space, obs)
        self._action = action_adaptor.zeros((total,))
        self._reward = np.zeros(total, np.float32)
        self._terminated = np.zeros(total, bool)
        self._truncated = np.zeros(total, bool)
        self._valid = np.zeros(total, bool)
        # Rows before this one in its episode, as far as a stack needs them.
        counter = np.min_scalar_type(self._longest)  # holds one more than the highest age, before that is cut off
        self._age = np.zeros(total, counter)
        self._age_now = np.zeros(num_envs, counter)
        self._base = np.arange(num_envs) * self.rows
        self._cursor = np.zeros(num_envs, np.int64)
        self._full = np.zeros(num_envs, bool)
        self.added = 0

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return int(self._valid.sum())

    def add(self, transition: Transition, valid: np.ndarray | None = None, first: int = 0) -> None:
        """Store one transition of some copies, fields ``[n, …]``.

        Args:
            transition: of the copies from ``first`` on.
            valid: bool ``[n]``; those where it is False are left out.
            first: the number of the first copy.
        """
        given: slice | np.ndarray
        copies: slice | np.ndarray
        if valid is None or valid.all():
            given, copies = slice(None), slice(first, first + len(transition.reward))
        else:
            given = np.flatnonzero(valid)
            copies = first + given
        at = self._base[copies] + self._cursor[copies]
        self._write_obs(at, transition.obs, given, self._age_now[copies])
        self._write(self._action, at, transition.action, given)
        self._reward[at] = transition.reward[given]
        self._terminated[at] = transition.terminated[given]
        self._truncated[at] = transition.truncated[given]
        self._advance(copies)
        self._age_now[copies] = np.minimum(self._age_now[copies] + 1, self._longest - 1)
        # The next observation goes where the next step will write it again, or stays there if the episode ended.
        after = self._base[copies] + self._cursor[copies]
        self._write_obs(after, transition.next_obs, given, self._age_now[copies])
        self._valid[at] = True
        self.added += len(at)
        done = (transition.terminated | transition.truncated)[given]
        if done.any():
            self._begin(np.arange(self.num_envs)[copies][done])

    def cut(self, first: int = 0, count: int | None = None) -> None:
        """Copies are reset in mid-episode: keep the observations that the new episodes' would replace.

        Args:
            first: the number of the first copy.
            count: how many; None: all from there.
        """
        self._begin(slice(first, self.num_envs if count is None else first + count))

    def _begin(self, copies: slice | np.ndarray) -> None:
        self._advance(copies)
        self._age_now[copies] = 0

    def _advance(self, copies: slice | np.ndarray) -> None:
        """Move on to the next row, which is about to be written over, and with it the end of a stack further on."""
        moved = self._cursor[copies] + 1
        wrapped = moved == self.rows
        if wrapped.any():
            moved[wrapped] = 0
            self._full[copies] |= wrapped
        self._cursor[copies] = moved
        self._valid[self._base[copies] + moved] = False
        if self._longest > 1:
            self._valid[self._base[copies] + (moved + self._longest - 1) % self.rows] = False

    def _write_obs(self, at: np.ndarray, obs: spaces.Flat, given: slice | np.ndarray, age: np.ndarray) -> None:
        for path, target in spaces.tree_items(self._obs):
            values = (obs[path] if path else obs)[given]
            target[at] = values[..., -target.shape[-1] :] if path in self._frames else values
        self._age[at] = age

    @staticmethod
    def _write(storage: spaces.Flat, at: np.ndarray, values: spaces.Flat, given: slice | np.ndarray) -> None:
        if isinstance(storage, dict):
            for path, target in storage.items():
                target[at] = values[path][given]
        else:
            storage[at] = values[given]

    def sample(self, lead: tuple[int, ...], rng: np.random.Generator, progress: float = 0.0) -> Batch:
        """Transitions drawn with replacement, fields ``[*lead, …]``, contiguous.

        Args:
            lead: how many.
            rng: they are drawn from it.
            progress: fraction of the training, in [0, 1], for what is scheduled.

        Raises:
            ValueError: there is none.
        """
        indices = self._indices(int(np.prod(lead)), rng)
        return self._gather(indices, lead)

    def _indices(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Rows of valid transitions; the few others are drawn again."""
        if self._full.all():
            indices = rng.integers(self._valid.size, size=n)
        else:
            filled = np.where(self._full, self.rows, np.maximum(self._cursor, 1))
            if self.num_envs == 1:
                indices = rng.integers(filled[0], size=n)
            else:
                within = rng.integers(filled.sum(), size=n)
                ends = np.cumsum(filled)
                copy = np.searchsorted(ends, within, side='right')
                indices = within - (ends[copy] - filled[copy]) + self._base[copy]
        refused = np.flatnonzero(~self._valid[indices])
        if len(refused):
            if not self._valid.any():
                raise ValueError('the replay buffer holds no transition yet: add some before sampling.')
            indices[refused] = self._indices(len(refused), rng)
        return indices

    def prioritize(self, priorities: np.ndarray | None) -> None:
        """Set the priorities ``[*lead]`` of the transitions that were drawn last; None changes nothing."""

    def _gather(self, indices: np.ndarray, lead: tuple[int, ...]) -> Batch:
        after = indices + 1
        wrapped = after % self.rows == 0
        if wrapped.any():
            after[wrapped] -= self.rows

        def take(storage: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return storage.take(rows, axis=0).reshape(lead + storage.shape[1:])

        obs, next_obs = {}, {}
        for path, storage in spaces.tree_items(self._obs):
            if path in self._frames:
                obs[path], next_obs[path] = self._stacks(storage, self._frames[path], indices, after, lead)
            else:
                obs[path], next_obs[path] = take(storage, indices), take(storage, after)
        transition = Transition(
            spaces.from_items(self.space, obs),
            spaces.tree_map(lambda x: take(x, indices), self._action),
            take(self._reward, indices),
            spaces.from_items(self.space, next_obs),
            take(self._terminated, indices),
            take(self._truncated, indices),
        )
        return Batch.of(transition, self.sampling.gamma)

    def _stacks(
        self, storage: np.ndarray, frames: int, indices: np.ndarray, after: np.ndarray, lead: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The stacks of ``frames`` frames at some rows and at the rows after them, ``[*lead, height, width, …]``."""
        height, width, channels = storage.shape[1:]
        shape = (len(indices), height, width, frames, channels)
        obs, next_obs = np.empty(shape, storage.dtype), np.empty(shape, storage.dtype)
        within, age = indices % self.rows, self._age[indices]
        for j in range(frames):
            back = np.minimum(frames - 1 - j, age)
            row = within - back
            row[row < 0] += self.rows
            obs[..., j, :] = storage[indices - within + row]
        next_obs[..., :-1, :] = obs[..., 1:, :]
        next_obs[..., -1, :] = storage[after]
        shape = (*lead, height, width, frames * channels)
        return obs.reshape(shape), next_obs.reshape(shape)

    def state(self) -> dict[str, np.ndarray]:
        """Arrays to save: the filled part of the storage, not its empty rest."""
        used = self.rows if self._full.any() else int(self._cursor.max()) + 1
        arrays = {f'obs/{path}': self._by_copy(x)[:, :used] for path, x in spaces.tree_items(self._obs)}
        arrays |= {f'action/{path}': self._by_copy(x)[:, :used] for path, x in spaces.tree_items(self._action)}
        for name in PER_ROW:
            arrays[name] = self._by_copy(getattr(self, f'_{name}'))[:, :used]
        counters = {'rows': np.array(self.rows), 'added': np.array(self.added)}
        return arrays | counters | {'cursor': self._cursor, 'full': self._full, 'age_now': self._age_now}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The inverse of `state`.

        Raises:
            ValueError: another capacity or another number of copies.
        """
        rows, copies = int(arrays['rows']), len(arrays['cursor'])
        if (rows, copies) != (self.rows, self.num_envs):
            raise ValueError(
                f'the saved replay buffer has {copies} copies of {rows - self._longest} transitions each, but this one '
                f'has {self.num_envs} of {self.rows - self._longest}: train on with the same buffer_size and number of '
                'copies.'
            )
        targets = {f'obs/{path}': x for path, x in spaces.tree_items(self._obs)}
        targets |= {f'action/{path}': x for path, x in spaces.tree_items(self._action)}
        targets |= {name: getattr(self, f'_{name}') for name in PER_ROW}
        self._valid[:] = False
        for name, target in targets.items():
            saved = arrays[name]
            self._by_copy(target)[:, : saved.shape[1]] = saved
        self._cursor[...] = arrays['cursor']
        self._full[...] = arrays['full']
        self._age_now[...] = arrays['age_now']
        self.added = int(arrays['added'])

    def _by_copy(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.num_envs, self.rows, *x.shape[1:])
