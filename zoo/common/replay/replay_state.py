"""What is saved of a replay buffer, and how it is restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.replay.compressed_rows import CompressedRows
from zoo.common.replay.ring import Ring
from zoo.common.tools.errors import InvalidValue

#: Arrays with one entry for each row, besides the observations and actions.
PER_ROW = ('reward', 'terminated', 'truncated', 'valid', 'age')


def save(ring: Ring) -> dict[str, np.ndarray]:
    """Return the arrays to save: the filled part of the storage, without its empty rest."""
    used = ring.rows if ring.full.any() else int(ring.cursor.max()) + 1
    arrays = {}
    for path, x in spaces.tree_items(ring.obs):
        if path in ring.compressed:
            arrays[f'packed/{path}'], arrays[f'lengths/{path}'] = x.packed(_first_rows(ring, used))
        else:
            arrays[f'obs/{path}'] = ring.by_copy(x)[:, :used]
    arrays |= {f'action/{path}': ring.by_copy(x)[:, :used] for path, x in spaces.tree_items(ring.action)}
    for name in PER_ROW:
        arrays[name] = ring.by_copy(getattr(ring, name))[:, :used]
    if ring.recurrent_state.shape[1]:
        arrays['state'] = ring.by_copy(ring.recurrent_state)[:, :used]
    if ring.tree is not None:
        arrays['priority'] = ring.by_copy(ring.tree.values)[:, :used]
        arrays['highest_priority'] = np.array(ring.highest)
    counters = {name: np.array(getattr(ring, name)) for name in ('rows', 'added', 'recorded')}
    return arrays | counters | {'cursor': ring.cursor, 'full': ring.full, 'age_now': ring.age_now}


def restore(ring: Ring, arrays: Mapping[str, np.ndarray]) -> None:
    """Fill a ring with what `save` gave.

    The saved images may be compressed or not. A prioritized ring gives all transitions of a uniform one the highest
    priority, like new ones. A uniform ring ignores saved priorities. The transitions of another number of copies are
    dealt to the copies that there are now, each episode to one. Where not all find a place, the oldest are dropped.

    Raises:
        ValueError: another capacity.
    """
    rows, copies = int(arrays['rows']), len(arrays['cursor'])
    if rows != ring.rows_for(copies):
        raise InvalidValue(
            f'the saved replay buffer has {copies} copies of {rows - ring.longest} transitions each, but this one '
            f'has {ring.num_envs} of {ring.rows - ring.longest}: train on with the same buffer_size.'
        )
    if copies != ring.num_envs:
        _deal(ring, arrays, copies)
        return
    for path, storage in spaces.tree_items(ring.obs):
        _restore_obs(ring, path, storage, arrays)
    targets = {f'action/{path}': x for path, x in spaces.tree_items(ring.action)}
    targets |= {name: getattr(ring, name) for name in PER_ROW}
    if ring.recurrent_state.shape[1] and 'state' in arrays:
        targets['state'] = ring.recurrent_state
    ring.valid[:] = False
    for name, target in targets.items():
        saved = arrays[name]
        ring.by_copy(target)[:, : saved.shape[1]] = saved
    ring.cursor[...] = ring.moves[...] = arrays['cursor']
    ring.full[...] = arrays['full']
    ring.age_now[...] = arrays['age_now']
    ring.added = int(arrays['added'])
    ring.recorded = int(arrays['recorded']) if 'recorded' in arrays else 0
    if ring.episodes is not None:
        ring.episodes.find(ring.by_copy(ring.valid), ring.cursor)
    if ring.tree is not None:
        ring.tree.values[:] = 0.0
        if 'priority' in arrays:
            saved = arrays['priority']
            ring.by_copy(ring.tree.values)[:, : saved.shape[1]] = saved
            ring.highest = float(arrays['highest_priority'])
        else:
            ring.tree.values[ring.valid] = ring.highest = 1.0
        ring.tree.rebuild()


def _deal(ring: Ring, arrays: Mapping[str, np.ndarray], copies: int) -> None:
    """Take over the episodes of another number of copies, the oldest first, each into the copy with the fewest rows."""
    other = Ring(ring.space, ring.adaptor, ring.capacity, copies, ring.sampling, bool(ring.compressed))
    restore(other, arrays)
    pieces = []
    for base, cursor in zip(other.base, other.cursor, strict=True):
        rows = base + (cursor + 1 + np.arange(other.rows)) % other.rows  # the oldest first
        edges = np.flatnonzero(np.diff(other.valid[rows], prepend=False, append=False))
        for first, end in edges.reshape(-1, 2):  # of an episode
            most = max(1, (ring.rows - 2 * ring.longest) // 2)
            pieces += [(end - other.rows, rows[at : min(at + most, end)]) for at in range(first, end, most)]
    ring.valid[:] = False
    ring.cursor[:] = ring.moves[:] = ring.age_now[:] = 0
    ring.full[:] = False
    if ring.tree is not None:
        ring.tree.values[:] = 0.0
        ring.tree.rebuild()
    for _, rows in sorted(pieces, key=lambda piece: piece[0]):
        before = int(other.age[rows[0]])  # rows that the first stack reaches back to, which hold no transition
        steps = np.concatenate([other.forward(rows[0], np.arange(-before, 0)), rows])
        if len(steps) + 1 + ring.longest > ring.rows:
            continue
        seen = np.concatenate([steps, other.after(rows[-1:])])
        obs = {path: other.seen(path, storage, seen) for path, storage in spaces.tree_items(other.obs)}
        copy = int(np.argmin(ring.moves))
        at = ring.base[copy] + (ring.cursor[copy] + np.arange(len(steps))) % ring.rows
        ring.add_episode(
            copy,
            spaces.from_items(ring.space, obs),
            spaces.tree_map(lambda x, steps=steps: x[steps], other.action),
            other.reward[steps],
            bool(other.terminated[rows[-1]]),
            bool(other.truncated[rows[-1]]),
        )
        ring.valid[at[:before]] = False
        ring.recurrent_state[at] = other.recurrent_state[steps]
        if ring.tree is not None:
            assert other.tree is not None  # by the same sampling
            ring.tree.put(at, np.where(ring.valid[at], other.tree.values[steps], 0.0))
    ring.added, ring.recorded, ring.highest = other.added, other.recorded, other.highest
    if ring.episodes is not None:
        ring.episodes.find(ring.by_copy(ring.valid), ring.cursor)


def _restore_obs(ring: Ring, path: str, storage: Any, arrays: Mapping[str, np.ndarray]) -> None:
    if f'packed/{path}' not in arrays:
        saved = arrays[f'obs/{path}']
        if path not in ring.compressed:
            ring.by_copy(storage)[:, : saved.shape[1]] = saved
            return
        for rows, values in zip(_first_rows(ring, saved.shape[1]), saved, strict=True):
            storage[rows] = values
        return
    lengths = arrays[f'lengths/{path}']
    rows = _first_rows(ring, lengths.shape[1])
    packed = storage if path in ring.compressed else CompressedRows(storage.shape, storage.dtype)
    packed.set_packed(rows, arrays[f'packed/{path}'], lengths)
    if packed is not storage:
        for some in np.array_split(rows.ravel(), -(-rows.size // 1000)):
            storage[some] = packed[some]


def _first_rows(ring: Ring, used: int) -> np.ndarray:
    """Return the first rows of each copy, ``[copies, used]``."""
    return ring.base[:, None] + np.arange(used)
