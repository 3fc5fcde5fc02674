"""EnvPool's own environments by name, with EnvPool's spaces: one as a Gymnasium ``Env``, copies as a ``VectorEnv``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from zoo.common.envs.kinds.envpool import tasks
from zoo.common.envs.kinds.envpool.copies import EnvPoolVectorEnv
from zoo.common.envs.kinds.envpool.game import pick
from zoo.common.tools.errors import Failure, InvalidType, InvalidValue


def find(env_id: Any, env_type: str) -> Callable[..., gymnasium.Env]:
    """Return the factory of a task by EnvPool's name: ``'Pong-v5'``, ``'CheetahRun-v1'``, ``'MiniGrid-Empty-5x5-v0'``.

    The factory takes ``max_episode_steps``, ``render_mode`` (None or ``'rgb_array'``), and EnvPool's own arguments of
    the task.

    Raises:
        ValueError: an unknown name.
        TypeError: ``env_id`` is not a name.
        ImportError: EnvPool is not installed.
    """
    if not isinstance(env_id, str):
        raise InvalidType(f"an {env_type} environment is given by its name, such as 'Pong-v5', not by {env_id!r}.")
    tasks.check_name(env_id)
    return partial(EnvPoolEnv, env_id)


def ids() -> list[str]:
    """Return the names of all tasks of the installed EnvPool, sorted."""
    return tasks.all_names()


def make_vector(env_id: str, nenv: int, **kwargs: Any) -> EnvPoolVectorEnv:
    """Return ``nenv`` copies in EnvPool's threads; the arguments are as for a single one."""
    reference = EnvPoolEnv(env_id, **kwargs)
    return EnvPoolVectorEnv(reference.task.game(nenv), reference)


class EnvPoolEnv(gymnasium.Env):
    """One copy of one of EnvPool's tasks.

    ``reset(seed=…)`` makes a new pool, since EnvPool fixes its seeds when it makes one. ``info`` has what EnvPool says,
    without the axis of the copies.

    Args:
        env_id: the task's name.
        max_episode_steps: steps after which an episode is truncated, instead of EnvPool's.
        render_mode: None or ``'rgb_array'``.
        **kwargs: EnvPool's own arguments of the task.

    Raises:
        ValueError, TypeError, ImportError: see :class:`zoo.common.envs.kinds.envpool.tasks.Task`.
    """

    metadata = {'render_modes': ['rgb_array']}

    def __init__(
        self, env_id: str, max_episode_steps: int | None = None, render_mode: str | None = None, **kwargs: Any
    ) -> None:
        self.task = tasks.Task(env_id, max_episode_steps, render_mode, **kwargs)
        self.render_mode = render_mode
        self.observation_space, self.action_space = self.task.observation_space, self.task.action_space
        own = {**kwargs, 'render_mode': render_mode}
        self.spec = EnvSpec(
            env_id,
            partial(EnvPoolEnv, env_id),
            reward_threshold=self.task.reward_threshold,
            max_episode_steps=self.task.limit,
            kwargs=own,
        )
        self._game = self.task.game(1)
        if self._game.whole_games:
            self.reports_episodes = True
        self._over = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if options:
            raise InvalidValue(f"EnvPool's tasks take no options for reset, but got {options!r}: leave them out.")
        if seed is not None or not self._game.is_open:
            seed = int(self.np_random.integers(2**31)) if seed is None else seed
            observation, info = self._game.start([seed % 2**31])
        else:
            observation, info = self._game.restart(np.arange(1), in_same_game=self._over)
        self._over = False
        return pick(observation, 0), _single(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._game.is_open or self._over:
            raise Failure(f'{self.task.env_id!r}: the episode is over or has not begun, so call reset() first.')
        observation, reward, terminated, truncated, info = self._game.step(np.asarray(action)[None])
        self._over = bool(terminated[0] or truncated[0])
        return pick(observation, 0), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _single(info)

    def render(self) -> np.ndarray | None:
        """A picture uint8 ``[height, width, 3]``."""
        return None if self.render_mode is None else self._game.render()[0]

    def close(self) -> None:
        self._game.close()


def _single(info: dict[str, Any]) -> dict[str, Any]:
    """The info of the only copy, without what it did not set and without the masks that say so."""
    found = {}
    for key, value in info.items():
        if not key.startswith('_') and info[f'_{key}'][0]:
            found[key] = {name: x[0] for name, x in value.items()} if isinstance(value, dict) else value[0]
    return found
