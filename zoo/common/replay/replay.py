"""Experience replay (Lin 1992; Mnih et al. 2015) with every observation held once.

Drawn uniformly or by priority (Schaul et al. 2016, arXiv 1511.05952), one step or several in a row as one (Sutton 1988;
as Hessel et al. 2018, arXiv 1710.02298, use them).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import is_image
from zoo.common.envs.goals import ACHIEVED, DESIRED
from zoo.common.records import Batch, SequenceBatch, Transition
from zoo.common.replay.compressed_rows import CompressedRows
from zoo.common.replay.episode_spans import Episodes
from zoo.common.replay.hindsight import Hindsight, reached_at
from zoo.common.replay.sequences import side_by_side
from zoo.common.replay.sum_tree import SumTree
from zoo.common.rollouts.rollout_buffer import ANNOUNCE_BYTES
from zoo.common.sampling import Sampling, Sequences, importance, raised
from zoo.common.schedules import value_at

log = logging.getLogger('zoo')

#: Arrays with one entry for each row, beside the observations and actions.
PER_ROW = ('reward', 'terminated', 'truncated', 'valid', 'age')

#: So many stored steps at most are looked at to see whether rewards can be computed anew.
COMPARED = 2000

EMPTY = 'the replay buffer holds no transition yet: add some before sampling.'


class Replay:
    """A ring of rows for each copy of the environment.

    Row ``i`` holds an observation and what was done there; the next observation is that of row ``i + 1``. At an
    episode's end the final observation takes a row of its own, which is never sampled, so nothing is stored twice and
    no transition crosses a reset. Of a stack of frames (:class:`zoo.common.spaces.FrameStack`) a row holds the newest
    alone: the others are those of the rows before, as far back as the episode reaches.

    By priority, a new transition is given the highest that any has had so far, so that each is drawn soon; rows that
    hold no transition have none. A batch is drawn in strata, one from each ``B``-th of the sum (appendix B.2.1); the
    weights are divided by the highest one of their batch (section 3.4), so that they only ever make steps smaller.

    Attributes:
        added: transitions stored so far, also those written over since.
        recorded: how many of them came by whole episodes.
        nbytes: memory of the storage, of images that are compressed as if they were not.
        compressed: the paths of these.

    Args:
        observation_space, action_adaptor: give shapes and dtypes.
        capacity: transitions, summed over copies; each episode end among them takes the place of one.
        num_envs: copies; each has an equal share of the capacity, rounded up.
        sampling: how transitions are drawn; None: uniformly, each by itself, without a discount.
        compress: keep images compressed.

    Raises:
        ValueError: ``compress`` where there are no images.
        ImportError: ``compress`` where LZ4 is not installed.
    """

    def __init__(
        self,
        observation_space: Space,
        action_adaptor: ActionAdaptor,
        capacity: int,
        num_envs: int = 1,
        sampling: Sampling | None = None,
        compress: bool = False,
    ) -> None:
        self.sampling = Sampling(1.0) if sampling is None else sampling
        self.capacity = capacity
        self.num_envs = num_envs
        self.space = observation_space
        leaves = spaces.leaves(observation_space)
        images = {path for path, leaf in leaves.items() if isinstance(leaf, spaces.FrameStack) or is_image(leaf)}
        self.compressed = images if compress else set()
        if compress and not self.compressed:
            raise ValueError(
                f'compress=True is for images, and there are none in {spaces.describe(observation_space)}: '
                'leave it out.'
            )
        self._frames = {path: leaf.frames for path, leaf in leaves.items() if isinstance(leaf, spaces.FrameStack)}
        self._longest = max(self._frames.values(), default=1)
        self.rows = self._rows_each(num_envs)
        total = self.rows * num_envs
        shapes = {
            path: leaf.frame_shape if isinstance(leaf, spaces.FrameStack) else spaces.shape_of(leaf)
            for path, leaf in leaves.items()
        }
        row_bytes = sum(leaf.dtype.itemsize * int(np.prod(shapes[path])) for path, leaf in leaves.items())
        row_bytes += sum(x.nbytes for _, x in spaces.tree_items(action_adaptor.zeros((1,)))) + 8
        self.nbytes = total * row_bytes
        if self.sampling.priorities is not None:
            self.nbytes += SumTree.bytes_of(total)
        state_size = 0 if self.sampling.sequences is None else self.sampling.sequences.state_size
        self.nbytes += total * state_size * np.dtype(np.float32).itemsize
        if self.nbytes > ANNOUNCE_BYTES:
            log.warning(
                'The replay buffer of %d transitions takes up to %.2f GB of memory%s.',
                capacity,
                self.nbytes / 1e9,
                ', less what compression saves' if compress else '',
            )
        obs = {
            path: (CompressedRows if path in self.compressed else np.zeros)((total, *shapes[path]), leaf.dtype)
            for path, leaf in leaves.items()
        }
        self._obs = spaces.from_items(observation_space, obs)
        self._adaptor = action_adaptor
        self._action = action_adaptor.zeros((total,))
        self._state = np.zeros((total, state_size), np.float32)
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
        self._moves = np.zeros(num_envs, np.int64)  # of the cursors, rounds and all
        self._full = np.zeros(num_envs, bool)
        self._tree = None if self.sampling.priorities is None else SumTree(total)
        self._highest = 1.0
        self._drawn: np.ndarray | None = None
        self._episodes: Episodes | None = None
        self.added = 0
        self.recorded = 0

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return int(np.count_nonzero(self._valid))

    def add(
        self,
        transition: Transition,
        valid: np.ndarray | None = None,
        first: int = 0,
        state: np.ndarray | None = None,
        priority: np.ndarray | None = None,
    ) -> None:
        """Store one transition of some copies, fields ``[n, …]``.

        Args:
            transition: of the copies from ``first`` on.
            valid: bool ``[n]``; those where it is False are left out.
            first: the number of the first copy.
            state: the recurrent state before the step, float32 ``[n, S]``, where sequences are drawn.
            priority: how far each is off, |δ| ``[n]``, where that is known already; None: as high as any so far.

        Raises:
            FloatingPointError: such a priority is NaN or infinite.
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
        if state is not None:
            self._state[at] = state[given]
        self._reward[at] = transition.reward[given]
        self._terminated[at] = transition.terminated[given]
        self._truncated[at] = transition.truncated[given]
        self._advance(copies)
        self._age_now[copies] = np.minimum(self._age_now[copies] + 1, self._longest - 1)
        # The next observation goes where the next step will write it again, or stays there if the episode ended.
        after = self._base[copies] + self._cursor[copies]
        self._write_obs(after, transition.next_obs, given, self._age_now[copies])
        self._valid[at] = True
        if self._tree is not None:
            self._tree.put(at, self._highest if priority is None else self._raised(priority[given]))
        if self._episodes is not None:
            self._episodes.add(at, copies)
        self.added += len(at)
        done = (transition.terminated | transition.truncated)[given]
        if done.any():
            self._begin(np.arange(self.num_envs)[copies][done])

    def add_episode(
        self, copy: int, obs: spaces.Flat, action: spaces.Flat, reward: np.ndarray, terminated: bool, truncated: bool
    ) -> None:
        """Store a whole episode of ``T`` steps in the ring of one copy, where a new one begins then.

        As if its steps were added one by one, but at once. It counts as recorded.

        Args:
            copy: the number of the copy.
            obs: flat ``[T + 1, …]``.
            action: stored actions ``[T, …]``.
            reward: float32 ``[T]``.
            terminated, truncated: how it ended; neither where it was cut.
        """
        steps = len(reward)
        self.recorded += steps
        base = self._base[copy]
        self.cut(copy, 1)
        if steps + 1 + self._longest > self.rows:
            self._add_one_by_one(copy, obs, action, reward, terminated, truncated)
            return
        ring = (self._cursor[copy] + np.arange(steps + 1 + self._longest)) % self.rows
        rows, at = base + ring[: steps + 1], base + ring[:steps]
        lost = base + ring[self._longest :]
        if self._episodes is not None:
            self._episodes.leave(lost[self._valid[lost]])
        self._valid[lost] = False
        whole = slice(None)
        self._write_obs(rows, obs, whole, np.minimum(np.arange(steps + 1), self._longest - 1))
        self._write(self._action, at, action, whole)
        self._reward[at] = reward
        self._terminated[at] = self._truncated[at] = False
        self._terminated[at[-1]], self._truncated[at[-1]] = terminated, truncated
        self._valid[at] = True
        if self._tree is not None:
            self._tree.put(lost, 0.0)
            self._tree.put(at, self._highest)
        self._full[copy] |= self._cursor[copy] + steps + 1 >= self.rows
        self._cursor[copy] = (self._cursor[copy] + steps + 1) % self.rows
        self._moves[copy] += steps + 1
        self._age_now[copy] = 0
        if self._episodes is not None:
            one = np.array([copy])
            self._episodes.add(at, np.repeat(one, steps))
            self._episodes.begin(base + self._cursor[one], one)
        self.added += steps

    def _add_one_by_one(
        self, copy: int, obs: spaces.Flat, action: spaces.Flat, reward: np.ndarray, terminated: bool, truncated: bool
    ) -> None:
        """An episode that is longer than the ring."""
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
        """Copies are reset in mid-episode: keep the observations that the new episodes' would replace.

        Args:
            first: the number of the first copy.
            count: how many; None: all from there.
        """
        copies = np.arange(first, self.num_envs if count is None else first + count)
        under_way = copies[self._under_way(copies)]
        if len(under_way):  # the others wait for a first observation already
            self._begin(under_way)

    def _under_way(self, copies: np.ndarray) -> np.ndarray:
        """Whether the rows where copies stand hold what was seen after their newest steps, bool like ``copies``.

        Else an episode is to begin there, and they hold nothing, or what is about to be written over.
        """
        return self._valid[self._base[copies] + (self._cursor[copies] - 1) % self.rows]

    def _begin(self, copies: np.ndarray) -> None:
        self._advance(copies)
        self._age_now[copies] = 0
        if self._episodes is not None:
            self._episodes.begin(self._base[copies] + self._cursor[copies], copies)

    def _advance(self, copies: slice | np.ndarray) -> None:
        """Move on to the next row, which is about to be written over, and with it the end of a stack further on."""
        self._moves[copies] += 1
        moved = self._cursor[copies] + 1
        wrapped = moved == self.rows
        if wrapped.any():
            moved[wrapped] = 0
            self._full[copies] |= wrapped
        self._cursor[copies] = moved
        # Those from the new row to this one, the rest of a stack, have been taken out in the steps before.
        lost = self._base[copies] + (moved + self._longest - 1) % self.rows
        if self._episodes is not None:
            self._episodes.leave(lost[self._valid[lost]])
        self._valid[lost] = False
        if self._tree is not None:
            self._tree.put(lost, 0.0)

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

    def sample(
        self,
        lead: tuple[int, ...],
        rng: np.random.Generator,
        progress: float = 0.0,
        hindsight: Hindsight | None = None,
    ) -> Batch | SequenceBatch:
        """Transitions drawn with replacement, fields ``[*lead, …]``, contiguous; or sequences around them.

        Args:
            lead: how many.
            rng: they are drawn from it.
            progress: fraction of the training, in [0, 1], for what is scheduled.
            hindsight: tells some of them for other goals, whose priorities are then those of what they were told as;
                needs :meth:`keep_episodes`.

        Raises:
            ValueError: there is none; the stored rewards are not those that ``hindsight`` computes.
        """
        rows = self._indices(int(np.prod(lead)), rng) if self._tree is None else self._prioritized(lead, rng)
        batch: Any
        if self.sampling.sequences is None:
            batch = self._gather(rows, lead)
        else:
            batch = side_by_side(self._gather_sequences(rows, self.sampling.sequences), lead, rng)
        if self._tree is not None:
            self._drawn = rows
            batch = batch._replace(weight=self._weights(rows, lead, progress))
        if hindsight is not None:
            self._tell(batch, rows, hindsight, rng)
        return batch

    def keep_episodes(self) -> None:
        """Keep account of where episodes begin and end from now on, for :meth:`episode_span`."""
        if self._episodes is None:
            self._episodes = Episodes(self.rows, self.num_envs)
            self._episodes.find(self._by_copy(self._valid), self._cursor)
            self.nbytes += Episodes.bytes_of(self._valid.size)

    def _tell(self, batch: Batch, rows: np.ndarray, hindsight: Hindsight, rng: np.random.Generator) -> None:
        """Tell some of the transitions of ``rows`` for other goals, in place."""
        achieved, desired = self._obs[ACHIEVED], self._obs[DESIRED]
        if self.added >= hindsight.due:
            held = np.flatnonzero(self._valid)
            held = held[:: -(-len(held) // COMPARED)]
            reached = achieved[self._after(held)]
            hindsight.goals.check(reached, desired[held], self._reward[held], self._terminated[held])
            hindsight.checked_at(self.added)
        which = hindsight.chosen(len(rows), rng)
        if not len(which):
            return
        rows = rows[which]
        first, last = self.episode_span(rows)
        at = reached_at(hindsight.strategy, self.distance(first, rows), self.distance(first, last) + 1, rng)
        goal = achieved.take(self._after(self.forward(first, at)), axis=0).astype(desired.dtype, copy=False)
        chain, taken = self.steps(rows)
        count = taken.sum(0)
        reached = achieved.take(self._after(chain.T.ravel()), axis=0).reshape(*chain.T.shape, *achieved.shape[1:])
        reward, steps, terminated = hindsight.tell(
            goal, reached, count, self._terminated[chain[-1]], self.sampling.gamma
        )
        ends = chain[steps - 1, np.arange(len(rows))]

        def put(target: np.ndarray, at: np.ndarray, values: np.ndarray) -> None:
            target.reshape(len(batch.reward.ravel()), *target.shape[batch.reward.ndim :])[at] = values

        fewer = steps < count  # the new goal is reached on the way
        if fewer.any():
            for path, storage in spaces.tree_items(self._obs):
                after = self._after(ends[fewer])
                put(batch.next_obs[path], which[fewer], self._seen(path, storage, after))
        for target, values in (
            (batch.obs[DESIRED], goal),
            (batch.next_obs[DESIRED], goal),
            (batch.reward, reward),
            (batch.terminated, terminated),
            (batch.truncated, self._truncated[ends]),
            (batch.discount, np.float64(self.sampling.gamma) ** steps * ~terminated),
        ):
            put(target, which, values)

    def _seen(self, path: str, storage: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """A part of the observations at some rows."""
        if path not in self._frames:
            return storage.take(rows, axis=0)
        stack = self._stack(storage, self._frames[path], rows)
        return stack.reshape(*stack.shape[:3], -1)

    def _prioritized(self, lead: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Rows drawn in proportion to their priorities, one from each stratum of a batch."""
        assert self._tree is not None
        if not self._valid.any():
            raise ValueError(EMPTY)
        size = lead[-1] if lead else 1
        strata = np.arange(size) + rng.random((*lead[:-1], size))
        return self._tree.find(strata.ravel() / size)

    def _weights(self, rows: np.ndarray, lead: tuple[int, ...], progress: float) -> np.ndarray:
        """Importance weights, float32 ``[*lead]``; the sum of the priorities in ``P(i)`` cancels out."""
        assert self._tree is not None and self.sampling.priorities is not None
        chances = self._tree.values.take(rows).reshape(lead)
        return importance(chances, value_at(self.sampling.priorities.correction, progress))

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
                raise ValueError(EMPTY)
            indices[refused] = self._indices(len(refused), rng)
        return indices

    def prioritize(self, priorities: np.ndarray | None) -> None:
        """Set the priorities ``[*lead]`` of the transitions that were drawn last; None changes nothing.

        To be called before others are added. Of a transition that was drawn more than once the last one stays.

        Args:
            priorities: how far each was off, |δ|; the exponent and what keeps them above 0 are applied here.

        Raises:
            ValueError: nothing was drawn by priority.
            FloatingPointError: one is NaN or infinite.
        """
        if priorities is None:
            return
        if self._tree is None or self.sampling.priorities is None or self._drawn is None:
            raise ValueError('priorities were given, but nothing has been drawn by priority from this replay buffer.')
        self._prioritize(self._drawn, self._raised(priorities.ravel()), 0.0)

    def _raised(self, priorities: np.ndarray) -> np.ndarray:
        assert self.sampling.priorities is not None
        return raised(priorities, self.sampling.priorities.exponent)

    def _prioritize(self, rows: np.ndarray, found: np.ndarray, highest: float) -> None:
        assert self._tree is not None
        self._highest = max(self._highest, highest, float(found.max(initial=0.0)))
        self._tree.put(rows, np.where(self._valid[rows], found, 0.0))

    # What another process draws from this one

    @property
    def mass(self) -> float:
        """What it weighs beside others that are drawn from as one with it: the sum of its priorities, or its length."""
        return float(len(self)) if self._tree is None else self._tree.total()

    def rows_at(self, fractions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The rows at which the running sum of the priorities is these fractions of `mass`, int64 ``[n]``.

        Args:
            fractions: float64 ``[n]``, from 0 to 1; drawn uniformly only their number counts.
            rng: is drawn from where rows are drawn uniformly.

        Raises:
            ValueError: there is no transition.
        """
        if self._tree is None:
            return self._indices(len(fractions), rng)
        if not self._valid.any():
            raise ValueError(EMPTY)
        return self._tree.find(fractions)

    def gather(
        self, rows: np.ndarray, rng: np.random.Generator, hindsight: Hindsight | None = None
    ) -> Batch | SequenceBatch:
        """The transitions in these rows, fields ``[n, …]``, of weight 1; for ``hindsight`` see `sample`.

        Where sequences are drawn, those around them, one after another: what :func:`side_by_side` takes.
        """
        if self.sampling.sequences is not None:
            return self._gather_sequences(rows, self.sampling.sequences)
        batch = self._gather(rows, rows.shape)
        if hindsight is not None:
            self._tell(batch, rows, hindsight, rng)
        return batch

    def priorities_of(self, rows: np.ndarray) -> np.ndarray:
        """The priorities of the transitions in these rows as they are kept, float64 ``[n]``."""
        assert self._tree is not None
        return self._tree.values.take(rows)

    def places(self, rows: np.ndarray) -> np.ndarray:
        """What tells the transitions in these rows from those that will be there later, int64 ``[n, 2]``.

        The copy, and how far its cursor had moved when it stood there.
        """
        copies = rows // self.rows
        return np.stack([copies, self._moves[copies] - (self._cursor[copies] - rows) % self.rows], -1)

    def prioritize_at(self, places: np.ndarray, found: np.ndarray, highest: float = 0.0) -> int:
        """Set the priorities of transitions that are still held, of those that were written over ignore them.

        Args:
            places: of the transitions, int64 ``[n, 2]``; see :meth:`places`.
            found: priorities as they are kept ``[n]``; see :func:`raised`.
            highest: the highest that there has been in other processes whose transitions are drawn with these.

        Returns:
            how many were still held.
        """
        copies, moves = places.T
        held = self._moves[copies] - moves <= self.rows - self._longest
        rows = self._base[copies] + moves % self.rows
        self._prioritize(rows[held], found[held], highest)
        return int(held.sum())

    def forward(self, rows: np.ndarray, steps: np.ndarray | int) -> np.ndarray:
        """The rows so many after these, or before them where negative, in the rings of their copies."""
        within = rows % self.rows
        return rows - within + (within + steps) % self.rows

    def distance(self, rows: np.ndarray, later: np.ndarray) -> np.ndarray:
        """How many steps it is from some rows to others of the same copy that come after them."""
        return (later - rows) % self.rows

    def episode_span(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the first and the last transition of the episodes that transitions belong to, ``[n]`` each.

        It needs :meth:`keep_episodes`. The first that is still held, and the last one so far of an episode under way.
        In a ring the last one may have the smaller number: see :meth:`distance` and :meth:`forward`.

        Args:
            rows: of transitions.
        """
        assert self._episodes is not None, 'keep_episodes() comes first'
        return self._episodes.span(rows)

    def steps(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows ``[n_step, B]`` of the steps that are drawn as one from ``rows`` on, and which are taken, bool.

        The next row is another step exactly where it holds a transition: the one after an episode's last step holds its
        final observation, the one after a cut what was seen there, the newest step's is the cursor. Rows of steps that
        are not taken repeat the last one that is.
        """
        chain = np.empty((self.sampling.n_step, len(rows)), np.int64)
        taken = np.ones(chain.shape, bool)
        chain[0] = rows
        for i in range(1, len(chain)):
            after = self._after(chain[i - 1])
            np.logical_and(taken[i - 1], self._valid.take(after), out=taken[i])
            chain[i] = np.where(taken[i], after, chain[i - 1])
        return chain, taken

    def _after(self, rows: np.ndarray) -> np.ndarray:
        after = rows + 1
        wrapped = after % self.rows == 0
        if wrapped.any():
            after[wrapped] -= self.rows
        return after

    def _gather(self, indices: np.ndarray, lead: tuple[int, ...]) -> Batch:
        gamma, n = self.sampling.gamma, self.sampling.n_step
        last, reward = indices, self._reward
        if n > 1:
            chain, taken = self.steps(indices)
            last = chain[-1]
            powers = np.float64(gamma) ** np.arange(n + 1)
            rewards = self._reward.take(chain) * taken
            returns = (powers[:n] @ rewards).astype(np.float32).reshape(lead)
        after = self._after(last)

        def take(storage: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return storage.take(rows, axis=0).reshape(lead + storage.shape[1:])

        obs, next_obs = {}, {}
        for path, storage in spaces.tree_items(self._obs):
            if path not in self._frames:
                obs[path], next_obs[path] = take(storage, indices), take(storage, after)
                continue
            stack = self._stack(storage, self._frames[path], indices)
            if n == 1:  # all but the newest frame are there already
                later = np.empty_like(stack)
                later[..., :-1, :] = stack[..., 1:, :]
                later[..., -1, :] = storage[after]
            else:
                later = self._stack(storage, self._frames[path], after)
            shape = (*lead, *stack.shape[1:3], -1)
            obs[path], next_obs[path] = stack.reshape(shape), later.reshape(shape)
        transition = Transition(
            spaces.from_items(self.space, obs),
            spaces.tree_map(lambda x: take(x, indices), self._action),
            take(reward, indices) if n == 1 else returns,
            spaces.from_items(self.space, next_obs),
            take(self._terminated, last),
            take(self._truncated, last),
        )
        if n == 1:
            return Batch.of(transition, gamma)
        discount = (powers[taken.sum(0)].reshape(lead) * ~transition.terminated).astype(np.float32)
        return Batch(*transition, discount, np.ones(lead, np.float32))

    def _gather_sequences(self, rows: np.ndarray, wanted: Sequences) -> SequenceBatch:
        """The steps around transitions, of which these are the first ones that are learned from.

        A sequence goes on from one episode to the next, as the ring does. Where it would reach back beyond the oldest
        step, it begins there with a state of zeros, as the first episode does, and where it would reach beyond the
        newest observation, that is repeated, and what would be learned there is not valid.

        Returns:
            Of each its own: obs, action, begins ``[n, R, …]``, ``at`` and ``after`` among its ``R`` rows and the other
            fields of transitions ``[n, L]``, valid or not, state ``[n, S]`` and weight ``[n]``.
        """
        n, count = self.sampling.n_step, len(rows)
        learned = slice(wanted.burn_in, wanted.burn_in + wanted.length)
        offsets = np.arange(wanted.rows(n)) - wanted.burn_in
        copy, within = (x[:, None] for x in np.divmod(rows, self.rows))
        newest = self._cursor[copy]
        oldest = np.where(self._full[copy], (newest + self._longest) % self.rows, 0)
        # Counted from the oldest row, positions do not wrap around.
        position = (within - oldest) % self.rows + offsets
        end = (newest - oldest) % self.rows - ~self._under_way(copy)
        chain = copy * self.rows + (oldest + np.clip(position, 0, end)) % self.rows  # [n, R]
        held = self._valid.take(chain) & (position >= 0) & (position <= end)
        begins = np.zeros(chain.shape, bool)
        begins[:, 1:] = ~held[:, :-1]

        at = np.broadcast_to(np.arange(learned.start, learned.stop), (count, wanted.length))
        steps, taken = self.steps(chain[:, learned].ravel())
        taken_steps = taken.sum(0)
        powers = np.float64(self.sampling.gamma) ** np.arange(n + 1)
        terminated = self._terminated.take(steps[-1])
        returns = powers[:n] @ (self._reward.take(steps) * taken)

        obs = {}
        for path, storage in spaces.tree_items(self._obs):
            if path in self._frames:
                stack = self._stack(storage, self._frames[path], chain.ravel())
                obs[path] = stack.reshape(*chain.shape, *stack.shape[1:3], -1)
            else:
                obs[path] = storage.take(chain, axis=0)
        return SequenceBatch(
            obs=spaces.from_items(self.space, obs),
            action=spaces.tree_map(lambda x: x.take(chain, axis=0), self._action),
            state=self._state.take(chain[:, 0], axis=0),
            begins=begins,
            at=at.astype(np.int32),
            after=(at + taken_steps.reshape(at.shape)).astype(np.int32),
            reward=returns.reshape(at.shape).astype(np.float32),
            discount=(powers[taken_steps] * ~terminated).reshape(at.shape).astype(np.float32),
            terminated=terminated.reshape(at.shape),
            truncated=self._truncated.take(steps[-1]).reshape(at.shape),
            weight=np.ones(count, np.float32),
            valid=held[:, learned],
        )

    def _stack(self, storage: np.ndarray, frames: int, rows: np.ndarray) -> np.ndarray:
        """The stacks of ``frames`` frames at some rows, ``[n, height, width, frames, channels]``."""
        height, width, channels = storage.shape[1:]
        stack = np.empty((len(rows), height, width, frames, channels), storage.dtype)
        within, age = rows % self.rows, self._age[rows]
        for j in range(frames):
            back = np.minimum(frames - 1 - j, age)
            row = within - back
            row[row < 0] += self.rows
            stack[..., j, :] = storage[rows - within + row]
        return stack

    def state(self) -> dict[str, np.ndarray]:
        """Arrays to save: the filled part of the storage, not its empty rest."""
        used = self.rows if self._full.any() else int(self._cursor.max()) + 1
        arrays = {}
        for path, x in spaces.tree_items(self._obs):
            if path in self.compressed:
                arrays[f'packed/{path}'], arrays[f'lengths/{path}'] = x.packed(self._rows_of_copies(used))
            else:
                arrays[f'obs/{path}'] = self._by_copy(x)[:, :used]
        arrays |= {f'action/{path}': self._by_copy(x)[:, :used] for path, x in spaces.tree_items(self._action)}
        for name in PER_ROW:
            arrays[name] = self._by_copy(getattr(self, f'_{name}'))[:, :used]
        if self._state.shape[1]:
            arrays['state'] = self._by_copy(self._state)[:, :used]
        if self._tree is not None:
            arrays['priority'] = self._by_copy(self._tree.values)[:, :used]
            arrays['highest_priority'] = np.array(self._highest)
        counters = {name: np.array(getattr(self, name)) for name in ('rows', 'added', 'recorded')}
        return arrays | counters | {'cursor': self._cursor, 'full': self._full, 'age_now': self._age_now}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The inverse of `state`.

        Whether images were compressed there makes no difference. Where that was drawn from uniformly and this one is by
        priority, every transition is given the highest, as new ones are; the other way round the priorities are left
        out.

        Transitions of another number of copies are dealt to the copies that there are now, each episode to one of
        them; where not all of them find a place, the oldest have none.

        Raises:
            ValueError: another capacity.
        """
        rows, copies = int(arrays['rows']), len(arrays['cursor'])
        if rows != self._rows_each(copies):
            raise ValueError(
                f'the saved replay buffer has {copies} copies of {rows - self._longest} transitions each, but this one '
                f'has {self.num_envs} of {self.rows - self._longest}: train on with the same buffer_size.'
            )
        if copies != self.num_envs:
            self._deal(arrays, copies)
            return
        for path, storage in spaces.tree_items(self._obs):
            self._restore_obs(path, storage, arrays)
        targets = {f'action/{path}': x for path, x in spaces.tree_items(self._action)}
        targets |= {name: getattr(self, f'_{name}') for name in PER_ROW}
        if self._state.shape[1] and 'state' in arrays:
            targets['state'] = self._state
        self._valid[:] = False
        for name, target in targets.items():
            saved = arrays[name]
            self._by_copy(target)[:, : saved.shape[1]] = saved
        self._cursor[...] = self._moves[...] = arrays['cursor']
        self._full[...] = arrays['full']
        self._age_now[...] = arrays['age_now']
        self.added = int(arrays['added'])
        self.recorded = int(arrays['recorded']) if 'recorded' in arrays else 0
        if self._episodes is not None:
            self._episodes.find(self._by_copy(self._valid), self._cursor)
        if self._tree is not None:
            self._tree.values[:] = 0.0
            if 'priority' in arrays:
                saved = arrays['priority']
                self._by_copy(self._tree.values)[:, : saved.shape[1]] = saved
                self._highest = float(arrays['highest_priority'])
            else:
                self._tree.values[self._valid] = self._highest = 1.0
            self._tree.rebuild()
        self._drawn = None

    def _rows_each(self, copies: int) -> int:
        """Rows of each of so many copies: those from the cursor on whose stacks reach back to it hold no transition."""
        return max(2, -(-self.capacity // copies)) + self._longest

    def _deal(self, arrays: Mapping[str, np.ndarray], copies: int) -> None:
        """Take over what a buffer of another number of copies held, the oldest first, each in turn where least is."""
        other = Replay(self.space, self._adaptor, self.capacity, copies, self.sampling, bool(self.compressed))
        other.restore(arrays)
        pieces = []
        for base, cursor in zip(other._base, other._cursor, strict=True):
            rows = base + (cursor + 1 + np.arange(other.rows)) % other.rows  # the oldest first
            edges = np.flatnonzero(np.diff(other._valid[rows], prepend=False, append=False))
            for first, end in edges.reshape(-1, 2):  # of an episode
                most = max(1, (self.rows - 2 * self._longest) // 2)
                pieces += [(end - other.rows, rows[at : min(at + most, end)]) for at in range(first, end, most)]
        self._valid[:] = False
        self._cursor[:] = self._moves[:] = self._age_now[:] = 0
        self._full[:] = False
        if self._tree is not None:
            self._tree.values[:] = 0.0
            self._tree.rebuild()
        for _, rows in sorted(pieces, key=lambda piece: piece[0]):
            before = int(other._age[rows[0]])  # rows that the first stack reaches back to, which hold no transition
            steps = np.concatenate([other.forward(rows[0], np.arange(-before, 0)), rows])
            if len(steps) + 1 + self._longest > self.rows:
                continue
            seen = np.concatenate([steps, other._after(rows[-1:])])
            obs = {path: other._seen(path, storage, seen) for path, storage in spaces.tree_items(other._obs)}
            copy = int(np.argmin(self._moves))
            at = self._base[copy] + (self._cursor[copy] + np.arange(len(steps))) % self.rows
            self.add_episode(
                copy,
                spaces.from_items(self.space, obs),
                spaces.tree_map(lambda x, steps=steps: x[steps], other._action),
                other._reward[steps],
                bool(other._terminated[rows[-1]]),
                bool(other._truncated[rows[-1]]),
            )
            self._valid[at[:before]] = False
            self._state[at] = other._state[steps]
            if self._tree is not None:
                assert other._tree is not None  # by the same sampling
                self._tree.put(at, np.where(self._valid[at], other._tree.values[steps], 0.0))
        self.added, self.recorded, self._highest = other.added, other.recorded, other._highest
        if self._episodes is not None:
            self._episodes.find(self._by_copy(self._valid), self._cursor)
        self._drawn = None

    def _restore_obs(self, path: str, storage: Any, arrays: Mapping[str, np.ndarray]) -> None:
        if f'packed/{path}' not in arrays:
            saved = arrays[f'obs/{path}']
            if path not in self.compressed:
                self._by_copy(storage)[:, : saved.shape[1]] = saved
                return
            for rows, values in zip(self._rows_of_copies(saved.shape[1]), saved, strict=True):
                storage[rows] = values
            return
        lengths = arrays[f'lengths/{path}']
        rows = self._rows_of_copies(lengths.shape[1])
        packed = storage if path in self.compressed else CompressedRows(storage.shape, storage.dtype)
        packed.set_packed(rows, arrays[f'packed/{path}'], lengths)
        if packed is not storage:
            for some in np.array_split(rows.ravel(), -(-rows.size // 1000)):
                storage[some] = packed[some]

    def _rows_of_copies(self, used: int) -> np.ndarray:
        """The first rows of each copy, ``[copies, used]``."""
        return self._base[:, None] + np.arange(used)

    def _by_copy(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.num_envs, self.rows, *x.shape[1:])
