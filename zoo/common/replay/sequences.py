"""Sequences of steps for recurrent networks: taken from the rows of a ring, and laid side by side."""

from __future__ import annotations

import numpy as np

from zoo.common import spaces
from zoo.common.records import SequenceBatch
from zoo.common.replay.ring import Ring
from zoo.common.sampling import SequenceSampling


def gather_sequences(ring: Ring, rows: np.ndarray, wanted: SequenceSampling) -> SequenceBatch:
    """Return the steps around transitions, which are the first steps to learn from.

    A sequence goes on from one episode to the next, as the ring does. Where the burn-in would reach back beyond the
    oldest step, it begins there with the state that was stored, and is shorter: ``warm`` counts its rows, which come
    first. Where a sequence would reach beyond the newest observation, that one is repeated, and the steps to learn from
    there are not valid. A piece of an episode whose begin is lost is like the oldest step: no sequence reaches into it.

    Returns:
        The sequences one after another: obs, action, begins ``[n, R, …]``; ``at`` and ``after`` in the numbers of the
        sequence's own ``R`` rows, and the other fields of transitions, ``[n, L]``; state ``[n, S]``; warm and weight
        ``[n]``.
    """
    n, count = ring.sampling.n_step, len(rows)
    learned = slice(wanted.burn_in, wanted.burn_in + wanted.length)
    copy, within = (x[:, None] for x in np.divmod(rows, ring.rows))
    newest = ring.cursor[copy]
    oldest = np.where(ring.full[copy], (newest + ring.longest) % ring.rows, 0)
    # Counted from the oldest row, positions do not wrap around.
    first = (within - oldest) % ring.rows
    end = (newest - oldest) % ring.rows - ~ring.under_way(copy)

    def row(position: np.ndarray) -> np.ndarray:
        return copy * ring.rows + (oldest + np.clip(position, 0, end)) % ring.rows

    def holds(position: np.ndarray) -> np.ndarray:
        return ring.valid.take(row(position)) & (position <= end)

    def starts(position: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows; where no step is before them; and where an episode yet goes on: its memory is not zero."""
        rows, begins = row(position), ~holds(position - 1) & (position > 0)
        resumes = begins & holds(position)
        resumes[resumes] = ring.recurrent_state.take(rows[resumes], axis=0).any(-1)
        return rows, begins, resumes

    _, _, back = starts(first - np.arange(wanted.burn_in + 1))
    warm = np.minimum(first, np.where(back.any(1), back.argmax(1), wanted.burn_in)[:, None])
    offsets = np.arange(wanted.rows(n))
    position = first + offsets - np.where(offsets < wanted.burn_in, warm, wanted.burn_in)
    chain, begins, cut = starts(position)  # [n, R]
    held = holds(position) & ~np.logical_or.accumulate(cut & (offsets > wanted.burn_in), 1)
    begins &= ~cut
    begins[:, 0] = False  # its state is given

    at = np.broadcast_to(np.arange(learned.start, learned.stop), (count, wanted.length))
    steps, taken = ring.steps(chain[:, learned].ravel())
    taken_steps = taken.sum(0)
    powers = np.float64(ring.sampling.gamma) ** np.arange(n + 1)
    terminated = ring.terminated.take(steps[-1])
    returns = powers[:n] @ (ring.reward.take(steps) * taken)

    obs = {}
    for path, storage in spaces.tree_items(ring.obs):
        if path in ring.frames:
            stack = ring.stack(storage, ring.frames[path], chain.ravel())
            obs[path] = stack.reshape(*chain.shape, *stack.shape[1:3], -1)
        else:
            obs[path] = storage.take(chain, axis=0)
    return SequenceBatch(
        obs=spaces.from_items(ring.space, obs),
        action=spaces.tree_map(lambda x: x.take(chain, axis=0), ring.action),
        state=ring.recurrent_state.take(chain[:, 0], axis=0),
        begins=begins,
        warm=warm[:, 0].astype(np.int32),
        at=at.astype(np.int32),
        after=(at + taken_steps.reshape(at.shape)).astype(np.int32),
        reward=returns.reshape(at.shape).astype(np.float32),
        discount=(powers[taken_steps] * ~terminated).reshape(at.shape).astype(np.float32),
        terminated=terminated.reshape(at.shape),
        truncated=ring.truncated.take(steps[-1]).reshape(at.shape),
        weight=np.ones(count, np.float32),
        valid=held[:, learned],
    )


def side_by_side(found: SequenceBatch, lead: tuple[int, ...], rng: np.random.Generator) -> SequenceBatch:
    """Arrange what `gather_sequences` gave for ``K C`` rows as the time-major batches ``[K, …]`` of ``K`` updates.

    ``lead`` is ``(K, C)``. ``rng`` draws another transition of the same update where there is none.
    """
    updates, count = lead
    length = found.valid.shape[1]

    def arranged(x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.swapaxes(x.reshape(*lead, *x.shape[1:]), 1, 2))  # [K, R or L, C, …]

    valid = arranged(found.valid)
    # The number of each transition within its update, or the number of the one that takes its place.
    pick = np.tile(np.arange(length * count), (updates, 1))
    for own, numbers in zip(valid.reshape(updates, -1), pick, strict=True):
        if not own.all():
            numbers[~own] = rng.choice(numbers[own], int((~own).sum()))

    def learned(x: np.ndarray) -> np.ndarray:
        return np.take_along_axis(arranged(x).reshape(updates, -1), pick, 1).reshape(valid.shape)

    # Rows are numbered time-major, all sequences of an update together.
    column = np.tile(np.arange(count, dtype=np.int32), updates)[:, None]
    return SequenceBatch(
        obs=spaces.tree_map(arranged, found.obs),
        action=spaces.tree_map(arranged, found.action),
        state=found.state.reshape(*lead, -1),
        begins=arranged(found.begins),
        warm=found.warm.reshape(lead),
        at=learned(found.at * count + column),
        after=learned(found.after * count + column),
        reward=learned(found.reward),
        discount=learned(found.discount),
        terminated=learned(found.terminated),
        truncated=learned(found.truncated),
        weight=found.weight.reshape(lead),
        valid=valid,
    )
