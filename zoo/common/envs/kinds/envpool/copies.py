"""Copies in threads as Gymnasium vector environments."""

from __future__ import annotations

from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from zoo.common.envs.answers import LIFE_LOST
from zoo.common.envs.kinds.envpool.game import Game, pick, put
from zoo.common.envs.kinds.envpool.pools import BEYOND, check_task
from zoo.common.spaces import is_leaf
from zoo.common.tools.errors import InvalidValue

#: What a game says of the ends of its episodes only.
_OF_ENDS = ('episode', '_episode', LIFE_LOST, f'_{LIFE_LOST}')


class ThreadedCopies(VectorEnv):
    """``nenv`` copies in the threads of an engine, with the spaces of the single environment ``reference``.

    A copy is reset in the step that ends its episode (``SAME_STEP``); :mod:`zoo.common.envs.build` says what ``info``
    holds. ``reset(seed=s)`` seeds copy ``i`` with ``s + i``, or with ``s[i]``.
    """

    def __init__(self, nenv: int, reference: gymnasium.Env) -> None:
        self.num_envs = nenv
        self.spec = reference.spec
        self.metadata = {**reference.metadata, 'autoreset_mode': AutoresetMode.SAME_STEP}
        self.single_observation_space = reference.observation_space
        self.single_action_space = reference.action_space
        self.observation_space = batch_space(self.single_observation_space, nenv)
        self.action_space = batch_space(self.single_action_space, nenv)

    def _seeds(self, seed: int | list[int] | None, options: dict[str, Any] | None, below: int) -> list[int]:
        """The seeds of the copies, from 0 to 2^31 - 1; the first is drawn below ``below`` where ``seed`` is None."""
        if options:
            raise InvalidValue(f'copies in threads take no options for reset, but got {options!r}: leave them out.')
        if seed is None:
            seed = int(self.np_random.integers(below))
        seeds = seed if isinstance(seed, (list, tuple)) else range(seed, seed + self.num_envs)
        return [value % 2**31 for value in seeds]

    def _ends(self, observation: Any, ended: np.ndarray, final_info: dict[str, Any]) -> dict[str, Any]:
        """The entries of ``info`` on the copies that ended with these observations."""
        final_obs = np.full(self.num_envs, None, object)
        for i in np.flatnonzero(ended).tolist():
            final_obs[i] = pick(observation, i)
        return {'final_obs': final_obs, '_final_obs': ended, 'final_info': final_info, '_final_info': ended}


class EnvPoolVectorEnv(ThreadedCopies):
    """Copies of an EnvPool task with the seeds, the time limit and the ``SAME_STEP`` autoreset of zoo.

    EnvPool itself resets a finished copy in its *next* step, and fixes its seeds when it is made. Here finished copies
    are reset at once, and ``reset(seed=…)`` makes a new pool. EnvPool draws its random numbers in its own way: the same
    seed gives other episodes with ``'sync'``.

    Args:
        game: the pool and its episodes.
        reference: one copy, which has the spaces and the render mode.
    """

    def __init__(self, game: Game, reference: gymnasium.Env) -> None:
        super().__init__(game.nenv, reference)
        self.render_mode = reference.render_mode
        self._game = game
        if game.whole_games:
            self.reports_episodes = True

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if seed is not None or not self._game.is_open or options:
            return self._game.start(self._seeds(seed, options, 2**31))
        return self._game.restart(np.arange(self.num_envs), in_same_game=False)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self._game.step(actions)
        finished = terminated | truncated
        if finished.any():
            of_ends = {key: info.pop(key) for key in _OF_ENDS if key in info}
            final_info = {key: finished if key.startswith('_') else value.copy() for key, value in info.items()}
            ends = self._ends(observation, finished, final_info | of_ends)
            ids = np.flatnonzero(finished)
            first_observation, first_info = self._game.restart(ids)
            put(observation, ids, first_observation)
            for key, value in first_info.items():
                if not key.startswith('_'):
                    info[key][ids] = value
            info |= ends
        return observation, reward, terminated, truncated, info

    def render(self) -> tuple[np.ndarray, ...]:
        """One RGB frame per copy, uint8 ``[height, width, 3]``; needs ``render_mode='rgb_array'``."""
        return tuple(self._game.render())

    def close_extras(self, **kwargs: Any) -> None:
        """End EnvPool's threads."""
        self._game.close()


def shared(env_id: str, nenv: int, reference: gymnasium.Env, **kwargs: Any) -> EnvPoolVectorEnv:
    """Return copies of a task that Gymnasium has too, with Gymnasium's spaces and time limit.

    Args:
        env_id: a name that both Gymnasium and EnvPool know.
        nenv: the number of copies.
        reference: one copy of Gymnasium's environment, which has the spaces and the time limit.
        **kwargs: passed to EnvPool.

    Raises:
        ImportError: EnvPool is not installed.
        ValueError: EnvPool does not have the task, or not with these observations or these ``kwargs``.
    """
    check_task(env_id)
    if not is_leaf(reference.observation_space):
        raise InvalidValue(f"EnvPool has {env_id!r} with other observations: use vectorized='sync' or 'async'.")
    limit = cast(EnvSpec, reference.spec).max_episode_steps or np.inf
    kwargs['max_episode_steps'] = BEYOND  # the game counts Gymnasium's limit itself
    form = _SharedForm(reference.observation_space)
    return EnvPoolVectorEnv(Game(env_id, nenv, limit, kwargs, form, remedy="use vectorized='sync'"), reference)


class _SharedForm:
    def __init__(self, space: gymnasium.Space) -> None:
        self._dtype = space.dtype

    def first(self, raw: np.ndarray, ids: np.ndarray) -> np.ndarray:
        return self.following(raw)

    def following(self, raw: np.ndarray) -> np.ndarray:
        # EnvPool numbers states in int32, Gymnasium in int64.
        return raw.astype(self._dtype, copy=False)

    def actions(self, actions: Any) -> np.ndarray:
        return np.asarray(actions)
