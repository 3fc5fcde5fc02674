"""EnvPool's tasks as a Gymnasium vector environment: the copies step in C++ threads."""

from __future__ import annotations

import importlib.util
import os
import warnings
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from zoo.common.spaces import is_leaf
from zoo.common.tools.errors import InvalidValue, MissingPackage


def has_task(env_id: str, reference: gymnasium.Env) -> bool:
    """Whether EnvPool is installed and has the task with the observations of Gymnasium's environment ``reference``."""
    return is_installed() and is_leaf(reference.observation_space) and env_id in _names()


def is_installed() -> bool:
    """Whether EnvPool is installed, without the second that importing it takes."""
    return importlib.util.find_spec('envpool') is not None


def check_task(env_id: str) -> None:
    """Refuse a task that EnvPool does not have (ValueError), or any if EnvPool is not installed (ImportError)."""
    if not is_installed():
        raise MissingPackage("vectorized='envpool' needs EnvPool: pip install 'zoo-rl[envpool]'.")
    if env_id not in _names():
        raise InvalidValue(f"EnvPool does not have {env_id!r}: use vectorized='sync' or 'async'.")


def make_pool(env_id: str, seeds: list[int], kwargs: dict[str, Any]) -> Any:
    """Return a pool with one copy for each seed (int32); a ValueError says that EnvPool does not take ``kwargs``."""
    import envpool

    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # about the precision of its own spaces, which are not used
            pool = envpool.make_gymnasium(env_id, seed=seeds, num_threads=min(len(seeds), _cores()), **kwargs)
            _ = pool.observation_space  # warns and fails only now
    except TypeError as error:
        raise InvalidValue(
            f"EnvPool does not take these arguments of {env_id!r} ({error}): use vectorized='sync'."
        ) from error
    return pool


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

    def _ends(self, observation: np.ndarray, ended: np.ndarray, final_info: dict[str, Any]) -> dict[str, Any]:
        """The entries of ``info`` on the copies that ended with these observations."""
        final_obs = np.full(self.num_envs, None, object)
        for i in np.flatnonzero(ended):
            final_obs[i] = observation[i].copy()
        return {'final_obs': final_obs, '_final_obs': ended, 'final_info': final_info, '_final_info': ended}


class EnvPoolVectorEnv(ThreadedCopies):
    """Copies of an EnvPool task with Gymnasium's spaces, seeds, time limit and ``SAME_STEP`` autoreset.

    EnvPool itself resets a finished copy in its *next* step. It reports a task that ends in the last allowed step as
    truncated and not terminated. It fixes its seeds when it is made. Here the time limit is counted outside, so that
    ``terminated`` comes from the task; finished copies are reset at once; and ``reset(seed=…)`` makes a new pool.
    EnvPool draws its random numbers in its own way: the same seed gives other episodes with ``'sync'``.

    Args:
        env_id: a name that both Gymnasium and EnvPool know.
        nenv: the number of copies.
        reference: one copy of Gymnasium's environment, which has the spaces and the time limit.
        **kwargs: passed to EnvPool.

    Raises:
        ImportError: EnvPool is not installed.
        ValueError: EnvPool does not have the task, or not with these observations or these ``kwargs``.
    """

    def __init__(self, env_id: str, nenv: int, reference: gymnasium.Env, **kwargs: Any) -> None:
        check_task(env_id)
        if not is_leaf(reference.observation_space):
            raise InvalidValue(f"EnvPool has {env_id!r} with other observations: use vectorized='sync' or 'async'.")
        super().__init__(nenv, reference)
        self.render_mode = reference.render_mode
        self._env_id = env_id
        self._limit = cast(EnvSpec, reference.spec).max_episode_steps or np.inf
        self._elapsed = np.zeros(nenv, np.int64)
        self._all = np.ones(nenv, np.bool_)
        # Beyond reach: `step` counts Gymnasium's limit itself.
        self._kwargs = dict(kwargs, num_envs=nenv, max_episode_steps=10**9)
        self._pool: Any = None

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None or self._pool is None or options:
            self._pool = make_pool(self._env_id, self._seeds(seed, options, 2**31), self._kwargs)
        observation, info = self._pool.reset()
        self._elapsed[:] = 0
        return self._cast(observation), self._info(info)

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observation, reward, terminated, _, info = self._pool.step(np.asarray(actions))
        observation, info = self._cast(observation), self._info(info)
        self._elapsed += 1
        truncated = self._elapsed >= self._limit
        finished = terminated | truncated
        if finished.any():
            ids = np.flatnonzero(finished)
            final_info = {key: finished if key.startswith('_') else value.copy() for key, value in info.items()}
            ends = self._ends(observation, finished, final_info)
            first_observation, first_info = self._pool.reset(ids.astype(np.int32))
            observation[ids] = self._cast(first_observation)
            for key, value in self._info(first_info).items():
                if not key.startswith('_'):
                    info[key][ids] = value
            self._elapsed[ids] = 0
            info |= ends
        return observation, reward.astype(np.float64), terminated, truncated, info

    def render(self) -> tuple[np.ndarray, ...]:
        """One RGB frame per copy, uint8 ``[height, width, 3]``; needs ``render_mode='rgb_array'``."""
        return tuple(self._pool.render(env_ids=np.arange(self.num_envs)))

    def close_extras(self, **kwargs: Any) -> None:
        """End EnvPool's threads."""
        self._pool = None

    def _cast(self, observation: np.ndarray) -> np.ndarray:
        # EnvPool numbers states in int32, Gymnasium in int64.
        return observation.astype(self.single_observation_space.dtype, copy=False)

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        """EnvPool's info in Gymnasium's form: arrays ``[nenv, …]``, and for each a mask of the copies that have it."""
        kept = {key: value for key, value in info.items() if key != 'env_id' and isinstance(value, np.ndarray)}
        return kept | {f'_{key}': self._all for key in kept}


def _names() -> list[str]:
    import envpool

    return envpool.list_all_envs()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
