"""The DeepMind Control Suite (Tassa et al. 2018, arXiv 1801.00690) by names such as ``'cartpole-swingup'``.

Farama's bridge (Shimmy 2.0) is not used. It gives a ``Dict`` of float64 observations, actions between -1e10 and 1e10
where there are no bounds, no ``spec``, no action repeat, and a picture without depth from one camera. Code to mend that
would be longer than what the bridge saves.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Dict
from gymnasium.wrappers import TimeLimit

from zoo.common.envs.kinds import pixels, registered, rendering
from zoo.common.tools.errors import Failure, InvalidType, InvalidValue, MissingPackage, unknown

#: What the suite gives as the bound of an unbounded action (MuJoCo's mjMAXVAL).
UNBOUNDED = 1e10


def find(env_id: Any, env_type: str) -> Callable[..., gymnasium.Env]:
    """Return the factory :func:`make` of a task, named by domain and task: ``'cheetah-run'``, ``'ball_in_cup-catch'``.

    It refuses an unknown name (ValueError), what is no name (TypeError), and any without dm_control (ImportError).
    """
    if not isinstance(env_id, str):
        registered.find(env_id, env_type)  # refuses it
    if env_id not in _tasks():
        raise InvalidValue(unknown(f'{env_type} environment', env_id, ids()))
    return partial(make, env_id)


def ids() -> list[str]:
    """Return the names of all tasks, sorted."""
    return sorted(_tasks())


def make(env_id: str, /, max_episode_steps: int | None = None, **kwargs: Any) -> gymnasium.Env:
    """Make a task.

    Args:
        env_id: its name.
        max_episode_steps: environment steps after which an episode is truncated, instead of the suite's time limit.
        **kwargs: ``pixels``, ``cameras``, ``depth``, ``frame_size`` and ``frame_stack`` as for
            :func:`zoo.common.envs.kinds.pixels.add_pixels`; the other arguments of :class:`DMControl`. Without
            ``cameras`` the camera is the first one, as is customary, and for quadrupeds the third, which follows them.
            ``render_mode='human'`` shows the pictures of the default camera in a window.

    Raises:
        ValueError: ``max_episode_steps`` and ``time_limit`` are both given; a window without a display; a value that
            makes no sense.
        TypeError: the task does not take one of ``kwargs``.
        ImportError: a window without pygame.
    """
    if kwargs.get('render_mode') == 'human':
        shown = partial(make, env_id, max_episode_steps, **kwargs | {'render_mode': 'rgb_array'})
        return rendering.in_window(shown, env_id)
    options = pixels.take_options(kwargs)
    if max_episode_steps is not None:
        if 'time_limit' in kwargs:
            raise InvalidValue(f'{env_id!r}: give max_episode_steps, in steps, or time_limit, in seconds, not both.')
        kwargs['time_limit'] = math.inf
    env: gymnasium.Env = DMControl(env_id, **kwargs)
    if max_episode_steps is not None:
        env = TimeLimit(env, max_episode_steps)
    if not options:
        return env
    if options.get('cameras') is None:
        options['cameras'] = cast(DMControl, env.unwrapped).default_camera
    return pixels.add_pixels(env, **options)


class DMControl(gymnasium.Env):
    """A task of the suite as a Gymnasium environment.

    Observations are float32. The suite's time limit truncates an episode (most tasks: after 1,000 steps). The episode
    is terminated only when the task itself says that nothing can follow (discount 0, which only ``lqr`` has).
    ``reset(seed=s)`` gives the episodes that dm_control has for ``task_kwargs={'random': s}``.

    Args:
        env_id: the task's name.
        frame_skip: suite steps for each action; their rewards are summed.
        flatten: join the observations to one vector ``[n]`` in the suite's order; else they are a ``Dict``.
        render_mode: None or ``'rgb_array'``.
        random: seed of the model where the suite draws it (``lqr``); it is the same in all copies.
        **task_kwargs: arguments of the task: ``time_limit`` in seconds, ``fully_observable``.

    Raises:
        TypeError: the task does not take one of ``task_kwargs``.
        ValueError: a wrong ``frame_skip``, ``render_mode`` or ``time_limit``.
    """

    metadata = {'render_modes': ['rgb_array']}

    def __init__(
        self,
        env_id: str,
        frame_skip: int = 1,
        flatten: bool = True,
        render_mode: str | None = None,
        random: int = 0,
        **task_kwargs: Any,
    ) -> None:
        if isinstance(frame_skip, bool) or not isinstance(frame_skip, int) or frame_skip < 1:
            raise InvalidValue(f'frame_skip is {frame_skip!r}: give the number of steps for each action, at least 1.')
        if render_mode not in (None, 'rgb_array'):
            raise InvalidValue(f"render_mode of {env_id!r} is None, 'human' or 'rgb_array', not {render_mode!r}.")
        limit = task_kwargs.get('time_limit', math.inf)
        if isinstance(limit, bool) or not (isinstance(limit, (int, float)) and limit > 0):
            raise InvalidValue(f'time_limit is {limit!r}: give the seconds after which an episode ends, more than 0.')
        domain, task = _tasks()[env_id]
        _check_arguments(env_id, getattr(_suite(), domain).SUITE[task], task_kwargs)
        self._env = _suite().load(domain, task, {'random': random, **task_kwargs})
        self._env.task.random.seed()  # else episodes without a seed would repeat
        if self.model.nhfield:
            # At every reset, tasks with a terrain hand it to the suite's own renderer. They open that renderer even
            # where nothing can be drawn.
            physics = self._env.physics
            physics.__class__ = type(type(physics).__name__, (type(physics),), {'contexts': None})
        self._frame_skip, self._flatten, self.render_mode = frame_skip, flatten, render_mode
        self.default_camera = min(2 if domain == 'quadruped' else 0, self.model.ncam - 1)
        self._renderer: rendering.SceneRenderer | None = None
        self.metadata = {**self.metadata, 'render_fps': round(1 / (self._env.control_timestep() * frame_skip))}
        shapes = {key: spec.shape for key, spec in self._env.observation_spec().items()}
        if flatten:
            size = sum(math.prod(shape) for shape in shapes.values())
            self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)
        else:
            self.observation_space = Dict({key: Box(-np.inf, np.inf, shape) for key, shape in shapes.items()})
        action = self._env.action_spec()
        low, high = (np.broadcast_to(bound, action.shape) for bound in (action.minimum, action.maximum))
        self.action_space = Box(
            np.where(low <= -UNBOUNDED, -np.inf, low).astype(np.float32),
            np.where(high >= UNBOUNDED, np.inf, high).astype(np.float32),
        )
        limit = self._env._step_limit  # in the suite's steps, infinite for none; nowhere public
        steps = math.ceil(limit / frame_skip) if math.isfinite(limit) else None
        own = {'frame_skip': frame_skip, 'flatten': flatten, 'render_mode': render_mode, 'random': random}
        self.spec = EnvSpec(env_id, partial(make, env_id), max_episode_steps=steps, kwargs=own | task_kwargs)

    @property
    def model(self) -> Any:
        """The ``mujoco.MjModel``."""
        return self._env.physics.model.ptr

    @property
    def data(self) -> Any:
        """The ``mujoco.MjData``."""
        return self._env.physics.data.ptr

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._env.task.random.seed(seed % 2**32)  # the suite has NumPy's older generator, which takes 32 bits
        observation = self._observe(self._env.reset().observation)
        if self._renderer is not None:
            self._renderer.upload_terrain()
        return observation, {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = 0.0
        for _ in range(self._frame_skip):
            now = self._env.step(action)
            if now.first():
                assert self.spec is not None
                raise Failure(f'{self.spec.id!r}: the episode is over or has not begun, so call reset() first.')
            reward += float(now.reward)
            if now.last():
                break
        terminated = bool(now.last() and now.discount == 0.0)
        return self._observe(now.observation), reward, terminated, bool(now.last()) and not terminated, {}

    def _observe(self, observation: Mapping[str, Any]) -> Any:
        if not self._flatten:
            return {key: np.array(value, np.float32) for key, value in observation.items()}
        return np.concatenate([np.ravel(value) for value in observation.values()]).astype(np.float32)

    def render(self) -> np.ndarray | None:
        """A picture uint8 ``[480, 480, 3]`` by the default camera."""
        if self.render_mode is None:
            return None
        if self._renderer is None:
            self._renderer = rendering.SceneRenderer(self, pixels.PICTURE)
        return self._renderer.draw(self.default_camera)[0]

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        self._env.close()


def _suite() -> ModuleType:
    rendering.before_import()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings('ignore', module='glfw')  # it looks for a display, which is not needed
            from dm_control import suite
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"dm_control environments need a package that is not installed: pip install 'zoo-rl[dm_control]' ({error})."
        ) from error
    except Exception as error:
        rendering.check_import(error)
        raise
    rendering.close_at_exit()
    return suite


def _tasks() -> dict[str, tuple[str, str]]:
    return {f'{domain}-{task}': (domain, task) for domain, task in _suite().ALL_TASKS}


def _check_arguments(env_id: str, maker: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
    own = [*inspect.signature(DMControl).parameters][1:-1]
    known = [*own, *(name for name in inspect.signature(maker).parameters if name not in own), 'pixels']
    for name in kwargs:
        if name not in known:
            raise InvalidType(unknown(f'argument of {env_id!r}', name, known))
