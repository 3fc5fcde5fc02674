"""Transitions taken from the rows of a ring: n-step returns, and hindsight goals."""

from __future__ import annotations

import numpy as np

from zoo.common import spaces
from zoo.common.envs.goals import ACHIEVED, DESIRED
from zoo.common.records import Batch, Transition
from zoo.common.replay.hindsight import Hindsight, reached_at
from zoo.common.replay.ring import Ring

#: At most this many stored steps are compared with the rewards that the environment computes for their goals.
COMPARED = 2000


def gather(ring: Ring, rows: np.ndarray, lead: tuple[int, ...]) -> Batch:
    """Return the transitions in rows, of ``n_step`` steps each, or to the end of their episodes, and weight 1.

    The fields are ``[*lead, …]``.
    """
    gamma, n = ring.sampling.gamma, ring.sampling.n_step
    last, reward = rows, ring.reward
    if ring.sampling.to_the_end:
        assert ring.returns is not None, 'sum_to_the_end() comes first'
        n, last, reward = 0, ring.episode_span(rows)[1], ring.returns
    elif n > 1:
        chain, taken = ring.steps(rows)
        last = chain[-1]
        powers = np.float64(gamma) ** np.arange(n + 1)
        rewards = reward.take(chain) * taken
        returns = (powers[:n] @ rewards).astype(np.float32).reshape(lead)
    after = ring.after(last)

    def take(storage: np.ndarray, at: np.ndarray) -> np.ndarray:
        return storage.take(at, axis=0).reshape(lead + storage.shape[1:])

    obs, next_obs = {}, {}
    for path, storage in spaces.tree_items(ring.obs):
        if path not in ring.frames:
            obs[path], next_obs[path] = take(storage, rows), take(storage, after)
            continue
        stack = ring.stack(storage, ring.frames[path], rows)
        if n == 1:  # all but the newest frame are there already
            later = np.empty_like(stack)
            later[..., :-1, :] = stack[..., 1:, :]
            later[..., -1, :] = storage[after]
        else:
            later = ring.stack(storage, ring.frames[path], after)
        shape = (*lead, *stack.shape[1:3], -1)
        obs[path], next_obs[path] = stack.reshape(shape), later.reshape(shape)
    transition = Transition(
        spaces.from_items(ring.space, obs),
        spaces.tree_map(lambda x: take(x, rows), ring.action),
        returns if n > 1 else take(reward, rows),
        spaces.from_items(ring.space, next_obs),
        take(ring.terminated, last),
        take(ring.truncated, last),
    )
    if n == 1:
        return Batch.of(transition, gamma)
    factors = powers[taken.sum(0)] if n else np.float64(gamma) ** (ring.distance(rows, last) + 1)
    discount = (factors.reshape(lead) * ~transition.terminated).astype(np.float32)
    return Batch(*transition, discount, np.ones(lead, np.float32))


def relabel(ring: Ring, batch: Batch, rows: np.ndarray, hindsight: Hindsight, rng: np.random.Generator) -> None:
    """Give some transitions of a batch goals that their episodes have reached, in place.

    ``batch`` is what `gather` gave for ``rows`` of a ring whose episodes are kept. ``rng`` draws transitions and goals.

    Raises:
        ValueError: stored rewards differ from those that the environment computes.
    """
    achieved, desired = ring.obs[ACHIEVED], ring.obs[DESIRED]
    if ring.added >= hindsight.due:
        held = np.flatnonzero(ring.valid)
        held = held[:: -(-len(held) // COMPARED)]
        reached = achieved[ring.after(held)]
        hindsight.goals.check(reached, desired[held], ring.reward[held], ring.terminated[held])
        hindsight.checked_at(ring.added)
    which = hindsight.chosen(len(rows), rng)
    if not len(which):
        return
    rows = rows[which]
    first, last = ring.episode_span(rows)
    at = reached_at(hindsight.strategy, ring.distance(first, rows), ring.distance(first, last) + 1, rng)
    goal = achieved.take(ring.after(ring.forward(first, at)), axis=0).astype(desired.dtype, copy=False)
    chain, taken = ring.steps(rows)
    count = taken.sum(0)
    reached = achieved.take(ring.after(chain.T.ravel()), axis=0).reshape(*chain.T.shape, *achieved.shape[1:])
    reward, steps, terminated = hindsight.rewards(goal, reached, count, ring.terminated[chain[-1]], ring.sampling.gamma)
    ends = chain[steps - 1, np.arange(len(rows))]

    def put(target: np.ndarray, at: np.ndarray, values: np.ndarray) -> None:
        target.reshape(len(batch.reward.ravel()), *target.shape[batch.reward.ndim :])[at] = values

    fewer = steps < count  # the new goal is reached on the way
    if fewer.any():
        for path, storage in spaces.tree_items(ring.obs):
            after = ring.after(ends[fewer])
            put(batch.next_obs[path], which[fewer], ring.seen(path, storage, after))
    for target, values in (
        (batch.obs[DESIRED], goal),
        (batch.next_obs[DESIRED], goal),
        (batch.reward, reward),
        (batch.terminated, terminated),
        (batch.truncated, ring.truncated[ends]),
        (batch.discount, np.float64(ring.sampling.gamma) ** steps * ~terminated),
    ):
        put(target, which, values)
