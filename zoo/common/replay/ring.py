"""The storage of a replay buffer: a ring of rows for each copy of the environment, each observation held once."""

from __future__ import annotations

import logging

import numpy as np
from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import is_image
from zoo.common.records import Transition
from zoo.common.replay.compressed_rows import CompressedRows
from zoo.common.replay.episode_spans import EpisodeSpans
from zoo.common.replay.sum_tree import SumTree
from zoo.common.replay.whole_episodes import WholeEpisodes
from zoo.common.rollouts.rollout_buffer import ANNOUNCE_BYTES
from zoo.common.sampling import Sampling, raised
from zoo.common.tools.errors import InvalidValue

log = logging.getLogger('zoo')

#: The rows whose returns are summed up at a time, as Python's own numbers.
_AT_ONCE = 1_000_000


class Ring:
    """A ring of rows for each copy of the environment.

    Row ``i`` holds an observation, the action taken there, and its reward. The next observation is in row ``i + 1``.
    The final observation of an episode takes a row of its own, which is never sampled. So nothing is stored twice, and
    no transition crosses a reset. Of a stack of frames (:class:`zoo.common.spaces.FrameStack`) a row holds the newest
    frame; the earlier frames are in the rows before, back to the beginning of the episode.

    Attributes:
        rows: the rows of each copy.
        obs, action, reward, terminated, truncated: one entry for each row, copy after copy.
        recurrent_state: the state before each step, float32 ``[rows of all, S]``.
        valid: bool, whether a row holds a transition that can be sampled.
        age: the number of rows before each row in its episode, at most what a stack needs.
        cursor: where the next transition of each copy goes, counted from the copy's first row.
        moves: how far each cursor has moved in all.
        full: bool, whether each copy's ring has been filled once.
        base: the first row of each copy.
        age_now: the age of the row at each cursor.
        tree: the priorities of all rows, 0 where not valid; None where sampling is uniform.
        highest: the highest priority so far, which new transitions are given.
        episodes: where episodes begin and end, once `keep_episodes` was called.
        returns: the discounted return from each row to the end of its episode, float32, once `sum_to_the_end` was
            called.
        added: transitions stored so far, including those written over since.
        recorded: how many of the added transitions came in whole recorded episodes.
        nbytes: memory of the storage, counting compressed images as if they were not compressed.
        compressed: the paths of the compressed images.
        frames: the number of frames of each stack, by path.

    Args:
        observation_space, action_adaptor: give shapes and dtypes.
        capacity: transitions, summed over copies. Each final observation takes the place of one.
        num_envs: the number of copies. Each has an equal share of the capacity, rounded up.
        sampling: how transitions are drawn; None: uniformly, one step at a time, without a discount.
        compress: keep images compressed.
        held: what it holds from the beginning, in one copy: nothing is allocated for it and nothing can be added. The
            capacity is its size then.

    Raises:
        ValueError: ``compress`` without images.
        ImportError: ``compress`` without the package ``lz4``.
    """

    def __init__(
        self,
        observation_space: Space,
        action_adaptor: ActionAdaptor,
        capacity: int,
        num_envs: int = 1,
        sampling: Sampling | None = None,
        compress: bool = False,
        held: WholeEpisodes | None = None,
    ) -> None:
        self.sampling = Sampling(1.0) if sampling is None else sampling
        self.capacity, self.num_envs = capacity, num_envs
        self.space, self.adaptor = observation_space, action_adaptor
        leaves = spaces.leaves(observation_space)
        images = {path for path, leaf in leaves.items() if isinstance(leaf, spaces.FrameStack) or is_image(leaf)}
        self.compressed = images if compress else set()
        if compress and not images:
            described = spaces.describe(observation_space)
            raise InvalidValue(f'compress=True is for images, and {described} has none: leave it out.')
        self.frames = {path: leaf.frames for path, leaf in leaves.items() if isinstance(leaf, spaces.FrameStack)}
        self.longest = max(self.frames.values(), default=1)
        if held is not None:
            self.capacity = len(held.reward) - self.longest
        self.rows = self.rows_for(num_envs)
        total = self.rows * num_envs
        state_size = 0 if self.sampling.sequences is None else self.sampling.sequences.state_size
        # Where nothing is written, pages of zeros take no memory.
        self.recurrent_state = np.zeros((total, state_size), np.float32)
        self.nbytes = 0 if self.sampling.priorities is None else SumTree.bytes_of(total)
        counter = np.min_scalar_type(self.longest)  # holds one more than the highest age, before that is cut off
        self.age_now = np.zeros(num_envs, counter)
        if held is None:
            self._allocate(total)
            self.age = np.zeros(total, counter)
        else:
            self.obs, self.action, self.reward, self.terminated, self.truncated, self.valid, _ = held
            self.age = held.ages(self.longest)
        self.base = np.arange(num_envs) * self.rows
        self.cursor = np.zeros(num_envs, np.int64)
        self.moves = np.zeros(num_envs, np.int64)
        self.full = np.zeros(num_envs, bool)
        self.tree = None if self.sampling.priorities is None else SumTree(total)
        self.highest = 1.0
        self.episodes: EpisodeSpans | None = None
        self.returns: np.ndarray | None = None
        self.added = self.recorded = 0
        if held is not None:
            self.cursor[:] = self.moves[:] = self.capacity
            self.added = self.recorded = int(held.lengths.sum())
            if self.tree is not None:
                self.tree.values[self.valid] = self.highest
                self.tree.rebuild()

    def _allocate(self, total: int) -> None:
        """Make the storage of so many rows."""
        leaves = spaces.leaves(self.space)
        shapes = {
            path: leaf.frame_shape if isinstance(leaf, spaces.FrameStack) else spaces.shape_of(leaf)
            for path, leaf in leaves.items()
        }
        row_bytes = sum(leaf.dtype.itemsize * int(np.prod(shapes[path])) for path, leaf in leaves.items())
        row_bytes += sum(x.nbytes for _, x in spaces.tree_items(self.adaptor.zeros((1,)))) + 8
        self.nbytes += total * row_bytes + self.recurrent_state.nbytes
        if self.nbytes > ANNOUNCE_BYTES:
            log.warning(
                'The replay buffer of %s transitions takes up to %.2f GB of memory%s.',
                f'{self.capacity:,}',
                self.nbytes / 1e9,
                ', less what compression saves' if self.compressed else '',
            )
        obs = {
            path: (CompressedRows if path in self.compressed else np.zeros)((total, *shapes[path]), leaf.dtype)
            for path, leaf in leaves.items()
        }
        self.obs = spaces.from_items(self.space, obs)
        self.action = self.adaptor.zeros((total,))
        self.reward = np.zeros(total, np.float32)
        self.terminated = np.zeros(total, bool)
        self.truncated = np.zeros(total, bool)
        self.valid = np.zeros(total, bool)

    def __len__(self) -> int:
        """Return the number of transitions that can be sampled."""
        return int(np.count_nonzero(self.valid))

    def rows_for(self, copies: int) -> int:
        """Return the rows of each of ``copies`` rings.

        The rows after a cursor hold no transition where their stacks would reach back over it.
        """
        return max(2, -(-self.capacity // copies)) + self.longest

    # Adding

    def add(
        self,
        transition: Transition,
        valid: np.ndarray | None = None,
        first: int = 0,
        state: np.ndarray | None = None,
        priority: np.ndarray | None = None,
    ) -> None:
        """Store one transition of each of ``n`` neighboring copies, fields ``[n, …]``.

        Args:
            transition: of the copies from number ``first`` on.
            valid: bool ``[n]``; transitions where it is False are left out.
            state: the recurrent state before the step, float32 ``[n, S]``, where sequences are drawn.
            priority: |δ| of each transition ``[n]``, where it is known already; None: the highest priority so far.

        Raises:
            FloatingPointError: a priority is NaN or infinite.
        """
        given: slice | np.ndarray
        copies: slice | np.ndarray
        if valid is None or valid.all():
            given, copies = slice(None), slice(first, first + len(transition.reward))
        else:
            given = np.flatnonzero(valid)
            copies = first + given
        at = self.base[copies] + self.cursor[copies]
        age = self.age_now[copies]
        self._write_obs(at, transition.obs, given, age)
        _write(self.action, at, transition.action, given)
        if state is not None:
            self.recurrent_state[at] = state[given]
        self.reward[at] = transition.reward[given]
        self.terminated[at] = transition.terminated[given]
        self.truncated[at] = transition.truncated[given]
        after = self._advance(copies)
        self.age_now[copies] = age = np.minimum(age + 1, self.longest - 1)
        # The next step writes the next observation here again; at an episode's end it stays.
        self._write_obs(after, transition.next_obs, given, age)
        self.valid[at] = True
        if self.tree is not None:
            self.tree.put(at, self.highest if priority is None else self.with_exponent(priority[given]))
        if self.episodes is not None:
            self.episodes.add(at, copies)
        self.added += len(at)
        done = (transition.terminated | transition.truncated)[given]
        if done.any():
            self._begin(np.arange(self.num_envs)[copies][done])

    def add_episode(
        self, copy: int, obs: spaces.Flat, action: spaces.Flat, reward: np.ndarray, terminated: bool, truncated: bool
    ) -> None:
        """Store a recorded episode of ``T`` steps in the ring of one copy, and begin a new episode there.

        The result is the same as with one `add` for each step, but faster.

        Args:
            obs: flat ``[T + 1, …]``.
            action: stored actions ``[T, …]``.
            reward: float32 ``[T]``.
            terminated, truncated: how it ended; neither where it was cut.
        """
        steps = len(reward)
        self.recorded += steps
        base = self.base[copy]
        self.cut(copy, 1)
        if steps + 1 + self.longest > self.rows:
            self._add_one_by_one(copy, obs, action, reward, terminated, truncated)
            return
        ring = (self.cursor[copy] + np.arange(steps + 1 + self.longest)) % self.rows
        rows, at = base + ring[: steps + 1], base + ring[:steps]
        lost = base + ring[self.longest :]
        if self.episodes is not None:
            self.episodes.leave(lost[self.valid[lost]])
        self.valid[lost] = False
        whole = slice(None)
        self._write_obs(rows, obs, whole, np.minimum(np.arange(steps + 1), self.longest - 1))
        _write(self.action, at, action, whole)
        self.reward[at] = reward
        self.terminated[at] = self.truncated[at] = False
        self.terminated[at[-1]], self.truncated[at[-1]] = terminated, truncated
        self.valid[at] = True
        if self.tree is not None:
            self.tree.put(lost, 0.0)
            self.tree.put(at, self.highest)
        self.full[copy] |= self.cursor[copy] + steps + 1 >= self.rows
        self.cursor[copy] = (self.cursor[copy] + steps + 1) % self.rows
        self.moves[copy] += steps + 1
        self.age_now[copy] = 0
        if self.episodes is not None:
            one = np.array([copy])
            self.episodes.add(at, np.repeat(one, steps))
            self.episodes.begin(base + self.cursor[one], one)
        self.added += steps

    def _add_one_by_one(
        self, copy: int, obs: spaces.Flat, action: spaces.Flat, reward: np.ndarray, terminated: bool, truncated: bool
    ) -> None:
        """Store an episode that is longer than the ring."""
        steps = len(reward)
        for t in range(steps):
            now, chosen, after = (
                spaces.tree_map(lambda x, t=t: x[t : t + 1], flat)
                for flat in (obs, action, spaces.tree_map(lambda x: x[1:], obs))
            )
            ends = (np.array([flag and t == steps - 1]) for flag in (terminated, truncated))
            self.add(Transition(now, chosen, reward[t : t + 1], after, *ends), first=copy)
        self.cut(copy, 1)

    def cut(self, first: int = 0, count: int | None = None) -> None:
        """Begin new episodes in copies that were reset, and keep the last observations of the episodes before.

        They are ``count`` copies from number ``first`` on, or all from there.
        """
        copies = np.arange(first, self.num_envs if count is None else first + count)
        under_way = copies[self.under_way(copies)]
        if len(under_way):  # the others wait for a first observation already
            self._begin(under_way)

    def under_way(self, copies: np.ndarray) -> np.ndarray:
        """Return whether the row at each cursor holds the observation after the newest step, bool like ``copies``.

        Otherwise an episode begins there, and what the row holds is about to be written over.
        """
        return self.valid[self.base[copies] + (self.cursor[copies] - 1) % self.rows]

    def _begin(self, copies: np.ndarray) -> None:
        at = self._advance(copies)
        self.age_now[copies] = 0
        if self.episodes is not None:
            self.episodes.begin(at, copies)

    def _advance(self, copies: slice | np.ndarray) -> np.ndarray:
        """Move the cursors to the next rows, which are about to be written over; return the rows."""
        self.moves[copies] += 1
        moved = self.cursor[copies] + 1
        wrapped = moved == self.rows
        if wrapped.any():
            moved[wrapped] = 0
            self.full[copies] |= wrapped
        self.cursor[copies] = moved
        # The stack of the row `longest - 1` further on reaches back to the new row. The rows between were lost before.
        base = self.base[copies]
        lost = base + (moved + self.longest - 1) % self.rows
        if self.episodes is not None:
            self.episodes.leave(lost[self.valid[lost]])
        self.valid[lost] = False
        if self.tree is not None:
            self.tree.put(lost, 0.0)
        return base + moved

    def _write_obs(self, at: np.ndarray, obs: spaces.Flat, given: slice | np.ndarray, age: np.ndarray) -> None:
        for path, target in spaces.tree_items(self.obs):
            values = (obs[path] if path else obs)[given]
            target[at] = values[..., -target.shape[-1] :] if path in self.frames else values
        self.age[at] = age

    def with_exponent(self, priorities: np.ndarray) -> np.ndarray:
        """Return |δ| as the tree keeps it: with the exponent applied, and above 0."""
        assert self.sampling.priorities is not None
        return raised(priorities, self.sampling.priorities.exponent)

    # Episodes

    def keep_episodes(self) -> None:
        """Keep account of where episodes begin and end from now on, for :meth:`episode_span`."""
        if self.episodes is None:
            self.episodes = EpisodeSpans(self.rows, self.num_envs)
            self.episodes.find(self.by_copy(self.valid), self.cursor)
            self.nbytes += EpisodeSpans.bytes_of(self.valid.size)

    def episode_span(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of the first and the last transition of each transition's episode, ``[n]`` each.

        It needs :meth:`keep_episodes`. The first one is the oldest that is still held, the last one the newest of an
        episode under way. In a ring the last one may have the smaller number: use :meth:`distance` and :meth:`forward`.
        """
        assert self.episodes is not None, 'keep_episodes() comes first'
        return self.episodes.span(rows)

    def sum_to_the_end(self) -> None:
        """Compute ``Σ γ^i r_(t+i)`` to the end of each episode, for ``Sampling.to_the_end``.

        All episodes are stored before.
        """
        self.keep_episodes()
        later, gamma = 0.0, self.sampling.gamma
        returns = np.zeros(len(self.reward), np.float32)
        for end in range(len(returns), 0, -_AT_ONCE):
            some = slice(max(0, end - _AT_ONCE), end)
            pairs = zip(self.reward[some][::-1].tolist(), self.valid[some][::-1].tolist(), strict=True)
            for row, (reward, valid) in enumerate(pairs, 1):
                later = reward + gamma * later if valid else 0.0  # a final observation is not valid
                returns[end - row] = later
        self.returns = returns

    # Rows

    def after(self, rows: np.ndarray) -> np.ndarray:
        """Return the next row of each row, in the ring of its copy."""
        after = rows + 1
        wrapped = after % self.rows == 0
        if wrapped.any():
            after[wrapped] -= self.rows
        return after

    def forward(self, rows: np.ndarray, steps: np.ndarray | int) -> np.ndarray:
        """Return the rows ``steps`` after these, or before them where negative, in the rings of their copies."""
        within = rows % self.rows
        return rows - within + (within + steps) % self.rows

    def distance(self, rows: np.ndarray, later: np.ndarray) -> np.ndarray:
        """Return the number of steps from rows to later rows of the same copies."""
        return (later - rows) % self.rows

    def steps(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows ``[n_step, B]`` of the steps that are drawn as one from ``rows`` on, and which count, bool.

        The next row is another step exactly where it holds a transition. Otherwise it holds the final observation of an
        episode, or the observation after a cut or after the newest step. Rows of steps that do not count repeat the
        last one that does.
        """
        chain = np.empty((self.sampling.n_step, len(rows)), np.int64)
        taken = np.ones(chain.shape, bool)
        chain[0] = rows
        for i in range(1, len(chain)):
            after = self.after(chain[i - 1])
            np.logical_and(taken[i - 1], self.valid.take(after), out=taken[i])
            chain[i] = np.where(taken[i], after, chain[i - 1])
        return chain, taken

    def seen(self, path: str, storage: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return a part of the observations at some rows, with whole stacks of frames."""
        if path not in self.frames:
            return storage.take(rows, axis=0)
        stack = self.stack(storage, self.frames[path], rows)
        return stack.reshape(*stack.shape[:3], -1)

    def stack(self, storage: np.ndarray, frames: int, rows: np.ndarray) -> np.ndarray:
        """Return the stacks of ``frames`` frames at some rows, ``[n, height, width, frames, channels]``."""
        height, width, channels = storage.shape[1:]
        stack = np.empty((len(rows), height, width, frames, channels), storage.dtype)
        within, age = rows % self.rows, self.age[rows]
        for j in range(frames):
            back = np.minimum(frames - 1 - j, age)
            row = within - back
            row[row < 0] += self.rows
            stack[..., j, :] = storage[rows - within + row]
        return stack

    def by_copy(self, x: np.ndarray) -> np.ndarray:
        """Return an array of all rows as a view ``[copies, rows, …]``."""
        return x.reshape(self.num_envs, self.rows, *x.shape[1:])


def _write(storage: spaces.Flat, at: np.ndarray, values: spaces.Flat, given: slice | np.ndarray) -> None:
    if isinstance(storage, dict):
        for path, target in storage.items():
            target[at] = values[path][given]
    else:
        storage[at] = values[given]
