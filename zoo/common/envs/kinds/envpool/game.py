"""The episodes of a pool: its time limit, its lives, its info; nothing in here resets a copy by itself."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from zoo.common.envs.answers import LIFE_LOST
from zoo.common.envs.kinds.envpool.pools import make_pool
from zoo.common.tools.errors import Failure


class Form(Protocol):
    """How observations and actions of a pool become the environment's."""

    def first(self, raw: Any, ids: np.ndarray) -> Any:
        """Return the first observations of the copies ``ids``, batched, from EnvPool's."""

    def following(self, raw: Any) -> Any:
        """Return the next observations of all copies, batched, from EnvPool's."""

    def actions(self, actions: Any) -> np.ndarray:
        """Return EnvPool's actions from a batch of the environment's."""


class Game:
    """A pool of ``nenv`` copies, with its time limit counted here.

    EnvPool reports a task that ends in the last allowed step as truncated and not terminated. So the pool itself gets a
    limit beyond reach, and ``terminated`` comes from the task. A task that computes with its time limit keeps it
    (``kwargs['max_episode_steps']``); then EnvPool's word counts, or ``info['terminated']`` where the task has that.

    Args:
        env_id: EnvPool's name of the task.
        nenv: the number of copies.
        limit: steps after which an episode is truncated; infinite for none.
        kwargs: what EnvPool takes, with ``max_episode_steps``.
        form: the observations and actions.
        whole_games: an end may be only a lost life (Atari). Then ``info['zoo/life_lost']`` tells, and when the game is
            over, ``info['episode']`` has its unclipped return ``'r'`` and its length ``'l'``.
        remedy: what to do where EnvPool cannot make the pool, for the message.
    """

    def __init__(
        self,
        env_id: str,
        nenv: int,
        limit: float,
        kwargs: dict[str, Any],
        form: Form,
        whole_games: bool = False,
        remedy: str = '',
    ) -> None:
        self.nenv = nenv
        self.whole_games = whole_games
        self.is_open = False
        self._env_id, self._limit, self._kwargs, self._form = env_id, limit, kwargs, form
        self._remedy = remedy
        self._pool: Any = None
        self._all = np.ones(nenv, np.bool_)
        self._elapsed = np.zeros(nenv, np.int64)
        self._returns = np.zeros(nenv)
        self._lost = np.zeros(nenv, np.bool_)

    def start(self, seeds: list[int]) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes of all copies, in a new pool: EnvPool fixes its seeds when it makes one."""
        self._pool = make_pool(self._env_id, seeds, self._kwargs, self._remedy)
        self.is_open = True
        return self.restart(np.arange(self.nenv), in_same_game=False)

    def restart(self, ids: np.ndarray, in_same_game: bool = True) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes of the copies ``ids``; after a lost life the game goes on, if ``in_same_game``."""
        same = self._lost[ids] if in_same_game else np.zeros(len(ids), np.bool_)
        new = ids[~same]
        parts = []
        if len(new):
            parts.append((new, self._pool.reset(new.astype(np.int32))))
            self._elapsed[new], self._returns[new] = 0, 0.0
        if same.any():
            # EnvPool takes the next step of a copy for its reset, and only then goes on in the same game.
            lost = ids[same]
            raw, *_, info = self._pool.step(np.zeros(len(lost), np.int32), lost.astype(np.int32))
            parts.append((lost, (raw, info)))
        self._lost[ids] = False
        found = [(which, self._form.first(raw, which), self._info(info)) for which, (raw, info) in parts]
        if len(found) == 1:
            return found[0][1:]
        order = np.argsort(np.concatenate([which for which, *_ in found]))
        return _joined([x[1] for x in found], order), _joined([x[2] for x in found], order)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all copies: observations, rewards float64, terminated, truncated, info; all ``[nenv, …]``."""
        raw, reward, terminated, truncated, info = self._pool.step(self._form.actions(actions))
        info = self._info(info)
        self._elapsed += 1
        truncated = truncated | (self._elapsed >= self._limit)
        if self.whole_games:
            self._returns += info['reward']
            over = info['terminated'].astype(bool) | truncated
            self._lost = terminated & ~over
            if terminated.any() or truncated.any():
                info |= {LIFE_LOST: self._lost.copy(), f'_{LIFE_LOST}': self._lost.copy()}
            if over.any():
                info |= {'episode': {'r': self._returns.copy(), 'l': self._elapsed.copy()}, '_episode': over}
        elif 'terminated' in info:
            terminated = info['terminated'].astype(bool)
        return self._form.following(raw), reward.astype(np.float64), terminated, truncated, info

    def render(self) -> np.ndarray:
        """Return a picture of each copy, uint8 ``[nenv, height, width, 3]``."""
        try:
            return self._pool.render(env_ids=np.arange(self.nenv))
        except RuntimeError as error:
            raise Failure(f'EnvPool cannot draw {self._env_id!r} ({error}): leave out render_mode.') from error

    def close(self) -> None:
        """End EnvPool's threads."""
        self._pool, self.is_open = None, False

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        """EnvPool's info in Gymnasium's form: arrays ``[n, …]``, and for each a mask of the copies that have it."""
        kept = {key: value for key, value in info.items() if key != 'env_id' and isinstance(value, np.ndarray)}
        if 'legal_action_mask' in kept:  # EnvPool's name in board games
            kept['action_mask'] = kept.pop('legal_action_mask')
        size = len(next(iter(kept.values()))) if kept else 0
        return kept | {f'_{key}': self._all[:size] for key in kept}


def put(into: Any, ids: np.ndarray, values: Any) -> None:
    """Write the batch ``values`` into the rows ``ids`` of a batch, both arrays or dicts of them."""
    if isinstance(into, dict):
        for key, part in into.items():
            put(part, ids, values[key])
    else:
        into[ids] = values


def pick(batch: Any, i: int) -> Any:
    """Return a copy of row ``i`` of a batch, an array or a dict of arrays."""
    return {key: pick(part, i) for key, part in batch.items()} if isinstance(batch, dict) else batch[i].copy()


def _joined(batches: list[Any], order: np.ndarray) -> Any:
    if isinstance(batches[0], dict):
        return {key: _joined([batch[key] for batch in batches], order) for key in batches[0]}
    return np.concatenate(batches)[order]
