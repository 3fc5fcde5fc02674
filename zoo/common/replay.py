"""Uniform experience replay (Lin 1992; Mnih et al. 2015) with every observation held once."""

from __future__ import annotations

import logging

import numpy as np
from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.types import Transition

log = logging.getLogger('zoo')

#: From this size on the memory is announced before it is taken.
ANNOUNCE_BYTES = 100e6


class Replay:
    """A ring of rows for each copy of the environment.

    Row ``i`` holds an observation and what was done there; the next observation is that of row ``i + 1``. At an
    episode's end the final observation takes a row of its own, which is never sampled, so nothing is stored twice and
    no transition crosses a reset.

    Attributes:
        added: transitions stored so far, also those written over since.
        nbytes: memory of the storage.

    Args:
        observation_space, action_adaptor: give shapes and dtypes.
        capacity: transitions, summed over copies; each episode end among them takes the place of one.
        num_envs: copies; each has an equal share of the capacity, rounded up.
    """

    def __init__(
        self, observation_space: Space, action_adaptor: ActionAdaptor, capacity: int, num_envs: int = 1
    ) -> None:
        self.capacity = capacity
        self.rows = max(2, -(-capacity // num_envs)) + 1
        self.num_envs = num_envs
        self.space = observation_space
        total = self.rows * num_envs
        row_bytes = sum(
            leaf.dtype.itemsize * int(np.prod(leaf.shape)) for leaf in spaces.leaves(observation_space).values()
        )
        row_bytes += sum(x.nbytes for _, x in spaces.tree_items(action_adaptor.zeros((1,)))) + 7
        self.nbytes = total * row_bytes
        if self.nbytes > ANNOUNCE_BYTES:
            log.info('The replay buffer of %d transitions takes up to %.2f GB of memory.', capacity, self.nbytes / 1e9)
        self._obs = spaces.zeros(observation_space, (total,))
        self._action = action_adaptor.zeros((total,))
        self._reward = np.zeros(total, np.float32)
        self._terminated = np.zeros(total, bool)
        self._truncated = np.zeros(total, bool)
        self._valid = np.zeros(total, bool)
        self._base = np.arange(num_envs) * self.rows
        self._cursor = np.zeros(num_envs, np.int64)
        self._full = np.zeros(num_envs, bool)
        self.added = 0

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return int(self._valid.sum())

    def add(self, transition: Transition, valid: np.ndarray | None = None) -> None:
        """Store one transition of every copy, fields ``[N, …]``; copies where ``valid`` is False are left out."""
        copies = slice(None) if valid is None or valid.all() else np.flatnonzero(valid)
        at = self._base[copies] + self._cursor[copies]
        self._write(self._obs, at, transition.obs, copies)
        self._write(self._action, at, transition.action, copies)
        self._reward[at] = transition.reward[copies]
        self._terminated[at] = transition.terminated[copies]
        self._truncated[at] = transition.truncated[copies]
        self._advance(copies)
        # The next observation goes where the next step will write it again, or stays there if the episode ended.
        self._write(self._obs, self._base[copies] + self._cursor[copies], transition.next_obs, copies)
        self._valid[at] = True
        self.added += len(at)
        done = (transition.terminated | transition.truncated)[copies]
        if done.any():
            self._advance(np.arange(self.num_envs)[copies][done])

    def cut(self) -> None:
        """The copies are reset in mid-episode: keep the observations that the new episodes' would replace."""
        self._advance(slice(None))

    def _advance(self, copies: slice | np.ndarray) -> None:
        """Move on to the next row, which is about to be written over: what it holds is no longer a transition."""
        moved = self._cursor[copies] + 1
        wrapped = moved == self.rows
        if wrapped.any():
            moved[wrapped] = 0
            self._full[copies] |= wrapped
        self._cursor[copies] = moved
        self._valid[self._base[copies] + moved] = False

    @staticmethod
    def _write(storage: spaces.Flat, at: np.ndarray, values: spaces.Flat, copies: slice | np.ndarray) -> None:
        if isinstance(storage, dict):
            for path, target in storage.items():
                target[at] = values[path][copies]
        else:
            storage[at] = values[copies]

    def sample(self, lead: tuple[int, ...], rng: np.random.Generator) -> Transition:
        """Transitions drawn uniformly with replacement, fields ``[*lead, …]``, contiguous.

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

    def _gather(self, indices: np.ndarray, lead: tuple[int, ...]) -> Transition:
        after = indices + 1
        wrapped = after % self.rows == 0
        if wrapped.any():
            after[wrapped] -= self.rows

        def take(storage: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return storage.take(rows, axis=0).reshape(lead + storage.shape[1:])

        return Transition(
            spaces.tree_map(lambda x: take(x, indices), self._obs),
            spaces.tree_map(lambda x: take(x, indices), self._action),
            take(self._reward, indices),
            spaces.tree_map(lambda x: take(x, after), self._obs),
            take(self._terminated, indices),
            take(self._truncated, indices),
        )

    def state(self) -> dict[str, np.ndarray]:
        """Arrays to save: the filled part of the storage, not its empty rest."""
        used = self.rows if self._full.any() else int(self._cursor.max()) + 1
        arrays = {f'obs/{path}': self._by_copy(x)[:, :used] for path, x in spaces.tree_items(self._obs)}
        arrays |= {f'action/{path}': self._by_copy(x)[:, :used] for path, x in spaces.tree_items(self._action)}
        for name in ('reward', 'terminated', 'truncated', 'valid'):
            arrays[name] = self._by_copy(getattr(self, f'_{name}'))[:, :used]
        counters = {'rows': np.array(self.rows), 'added': np.array(self.added)}
        return arrays | counters | {'cursor': self._cursor, 'full': self._full}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """The inverse of `state`.

        Raises:
            ValueError: another capacity or another number of copies.
        """
        rows, copies = int(arrays['rows']), len(arrays['cursor'])
        if (rows, copies) != (self.rows, self.num_envs):
            raise ValueError(
                f'the saved replay buffer has {copies} copies of {rows - 1} transitions each, but this one has '
                f'{self.num_envs} of {self.rows - 1}: train on with the same buffer_size and number of copies.'
            )
        targets = {f'obs/{path}': x for path, x in spaces.tree_items(self._obs)}
        targets |= {f'action/{path}': x for path, x in spaces.tree_items(self._action)}
        targets |= {name: getattr(self, f'_{name}') for name in ('reward', 'terminated', 'truncated', 'valid')}
        self._valid[:] = False
        for name, target in targets.items():
            saved = arrays[name]
            self._by_copy(target)[:, : saved.shape[1]] = saved
        self._cursor[...] = arrays['cursor']
        self._full[...] = arrays['full']
        self.added = int(arrays['added'])

    def _by_copy(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.num_envs, self.rows, *x.shape[1:])
