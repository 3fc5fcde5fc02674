"""Atari 2600 games with the preprocessing of the DQN papers, over ALE or over EnvPool.

Mnih et al. 2015, *Human-level control through deep reinforcement learning* (Nature 518), Methods; the details as in
OpenAI Baselines, which later work kept. Training sees clipped rewards, and an episode ends when a life is lost. Curves
and test results show the game's own score: when the game is over, ``info['episode']`` holds its unclipped return ``r``
and its length ``l``. ``info['zoo/life_lost']`` is True at an end that is only a lost life.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box

from zoo.common.envs.answers import LIFE_LOST
from zoo.common.envs.kinds import envpool, registered
from zoo.common.envs.wrappers.views import StackFrames, push_frame
from zoo.common.tools.errors import InvalidValue, MissingPackage

#: Arguments of :class:`AtariPreprocessing` and of the stack of frames; all other arguments are ALE's.
OPTIONS: dict[str, Any] = {
    'frame_size': 84,
    'frame_skip': 4,
    'frame_stack': 4,
    'noop_max': 30,
    'life_loss': True,
    'clip_reward': True,
    'fire_reset': True,
    'grayscale': True,
    'max_episode_steps': 27_000,
}


def find(env_id: Any, env_type: str) -> Callable[..., gymnasium.Env]:
    """Return the factory of a game by one of ALE's registered names: ``'PongNoFrameskip-v4'``, ``'ALE/Pong-v5'``.

    With ``v5`` and ``v0`` the last action is repeated with probability 1/4 in place of the new one ("sticky actions"),
    with ``v4`` never. The preprocessing skips frames, whatever the name says.

    The factory takes the keyword arguments of :class:`AtariPreprocessing` and ALE's own (``mode``, ``difficulty``,
    ``full_action_space``, ``repeat_action_probability``, ``render_mode``).

    Raises:
        ValueError: an unknown name, or a name of another type.
        ImportError: ALE is not installed.
    """
    if not isinstance(env_id, str):
        registered.find(env_id, env_type)  # refuses it
    registered.register('atari')
    return partial(_make, registered.find_spec(env_id, env_type))


def _make(spec: EnvSpec, /, **kwargs: Any) -> gymnasium.Env:
    options = {name: kwargs.pop(name, default) for name, default in OPTIONS.items()}
    stack = options.pop('frame_stack')
    # ALE itself would draw the screen in every frame, even in a skipped one; the RAM costs nothing.
    env = registered.make_registered(spec, obs_type='ram', frameskip=1, max_num_frames_per_episode=0, **kwargs)
    return StackFrames(AtariPreprocessing(env, **options), stack)


class AtariPreprocessing(gymnasium.Wrapper):
    """Skips frames, joins the last two, shrinks them, begins with no-ops, ends at lost lives, clips rewards.

    Gymnasium's wrapper of that name begins a new game when a life is lost, and draws every frame.

    Args:
        env: an ALE environment made with ``obs_type='ram'`` and ``frameskip=1``.
        frame_size: height and width of the observation, or the pair ``(height, width)``, in pixels.
        frame_skip: frames for which an action is held. The maximum of the last two is seen, since sprites flicker.
        noop_max: a game begins with a number of no-ops, drawn uniformly from 1 to this; 0 for none.
        life_loss: a lost life terminates the episode; the next episode goes on in the same game.
        clip_reward: replace the reward by its sign.
        fire_reset: press FIRE at the beginning, in games that wait for it.
        grayscale: gray frames ``[height, width, 1]``, else RGB ``[height, width, 3]``.
        max_episode_steps: steps after which a game is truncated.
    """

    reports_episodes = True  # whole games, in info['episode']

    def __init__(
        self,
        env: gymnasium.Env,
        frame_size: int | tuple[int, int],
        frame_skip: int,
        noop_max: int,
        life_loss: bool,
        clip_reward: bool,
        fire_reset: bool,
        grayscale: bool,
        max_episode_steps: int,
    ) -> None:
        super().__init__(env)
        self._size = _height_width(frame_size)
        if min(self._size) < 8:
            raise InvalidValue(f'frame_size is {frame_size}: give at least 8 pixels, such as 84 or 42.')
        if frame_skip < 1 or max_episode_steps < 1:
            raise InvalidValue(
                f'frame_skip and max_episode_steps are at least 1, not {frame_skip}, {max_episode_steps}.'
            )
        self._frame_skip, self._noop_max, self._limit = frame_skip, noop_max, max_episode_steps
        self._life_loss, self._clip_reward = life_loss, clip_reward
        game = cast(Any, env.unwrapped)  # ALE's
        meanings = game.get_action_meanings()
        self._fire_reset = fire_reset and len(meanings) > 1 and meanings[1] == 'FIRE'
        self._ale = game.ale
        self._draw = self._ale.getScreenGrayscale if grayscale else self._ale.getScreenRGB
        self._resize, self._area = _opencv()
        screen = self._ale.getScreenDims() + (() if grayscale else (3,))
        self._screens = np.zeros((2, *screen), np.uint8)
        self.observation_space = Box(0, 255, (*self._size, 1 if grayscale else 3), np.uint8)
        self._next_life = False  # the last episode ended by a lost life alone
        self._lives, self._return, self._length = 0, 0.0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        over = not self._next_life or seed is not None  # else the next life follows in the same game
        if not over:
            info, over = self._press(0, 1)
        if over:
            info = self._new_game(seed, options)
        if self._fire_reset:
            info, over = self._press(1, 1)
            if over:
                info = self._new_game(None, options)
        self._next_life = False
        self._lives = self._ale.lives()
        self._screens[1] = 0
        self._draw(self._screens[0])
        return self._observe(), info

    def _new_game(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Any]:
        _, info = self.env.reset(seed=seed, options=options)
        if self._noop_max:
            more, over = self._press(0, int(self.unwrapped.np_random.integers(1, self._noop_max + 1)))
            info |= self.env.reset()[1] if over else more
        self._return, self._length = 0.0, 0
        return info

    def _press(self, action: int, frames: int) -> tuple[dict[str, Any], bool]:
        """Hold an action unseen; return the last info and whether the game is over."""
        for _ in range(frames):
            _, reward, over, _, info = self.env.step(action)
            self._return += float(reward)
            if over:
                break
        return info, over

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = 0.0
        self._screens[:] = 0
        for frame in range(self._frame_skip):
            _, gained, over, _, info = self.env.step(action)
            reward += float(gained)
            if over or frame >= self._frame_skip - 2:
                self._draw(self._screens[frame % 2])
            if over:
                break
        self._return += reward
        self._length += 1
        lives = self._ale.lives()
        truncated = self._length >= self._limit and not over
        self._next_life = self._life_loss and lives < self._lives and not (over or truncated)
        self._lives = lives
        if over or truncated:
            info['episode'] = {'r': self._return, 'l': self._length}
        elif self._next_life:
            info[LIFE_LOST] = True
        clipped = float(np.sign(reward)) if self._clip_reward else reward
        return self._observe(), clipped, over or self._next_life, truncated, info

    def _observe(self) -> np.ndarray:
        frame = np.maximum(self._screens[0], self._screens[1])
        frame = self._resize(frame, self._size[::-1], interpolation=self._area)
        return frame.reshape(self.observation_space.shape)


class Pool(envpool.ThreadedCopies):
    """Copies in the threads of ALE or EnvPool, with the observations, rewards and info of a single environment.

    Both engines give single frames of whole games; this class adds stacks, lives, clipped rewards, time limits and the
    reset in the step that ends a game. Two things differ from single environments: nothing is pressed after a lost
    life, and the engine draws the no-ops in its own way.

    Measured on two cores, microseconds per step of each of 8 copies of Pong: one after the other in this process 360,
    in ALE's threads 180, in EnvPool's 270.

    Raises:
        ImportError: EnvPool is asked for (``by_envpool``) and not installed.
        ValueError: EnvPool does not have the game.
        TypeError: the engine does not take one of ``kwargs``, which are as for a single environment.
    """

    reports_episodes = True

    @staticmethod
    def may_pay(nenv: int, kwargs: dict[str, Any]) -> bool:
        """Whether ``vectorized=True`` means ALE's threads: they take every argument."""
        return nenv > 1 and kwargs.keys() <= {*OPTIONS, *_Ale.KNOWN}

    def __init__(self, nenv: int, reference: gymnasium.Env, by_envpool: bool, **kwargs: Any) -> None:
        super().__init__(nenv, reference)
        self.render_mode = None
        options = {name: kwargs.pop(name, default) for name, default in OPTIONS.items()}
        self._frames, self._limit = options['frame_stack'], options['max_episode_steps']
        self._life_loss, self._clip_reward = options['life_loss'], options['clip_reward']
        self._returns, self._lengths = np.zeros(nenv), np.zeros(nenv, np.int64)
        self._engine = (_EnvPool if by_envpool else _Ale)(nenv, cast(EnvSpec, reference.spec), options, **kwargs)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        frame, self._lives = self._engine.reset(self._seeds(seed, options, 2**31 - self.num_envs))
        self._last = np.tile(frame, self._frames)
        self._returns[:], self._lengths[:] = 0.0, 0
        return self._last, {'lives': self._lives}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        frame, reward, terminated, lives = self._engine.step(np.asarray(actions))
        observation = push_frame(self._last, frame)
        self._returns += reward
        self._lengths += 1
        truncated = (self._lengths >= self._limit) & ~terminated
        over = terminated | truncated
        lost = (lives < self._lives) & ~over & self._life_loss
        ended = over | lost
        info: dict[str, Any] = {}
        if ended.any():
            final_info = {'lives': lives.copy(), '_lives': ended, LIFE_LOST: lost, f'_{LIFE_LOST}': lost}
            info = self._ends(observation, ended, final_info)
            if over.any():
                final_info['episode'] = {'r': self._returns.copy(), 'l': self._lengths.copy()}
                final_info['_episode'] = over
                frame, lives = frame.copy(), lives.copy()
                frame[over], lives[over] = self._engine.restart(over)
                self._returns[over], self._lengths[over] = 0.0, 0
            observation[ended] = np.tile(frame[ended], self._frames)
        self._last, self._lives = observation, lives
        reward = np.sign(reward) if self._clip_reward else reward
        return observation, reward, terminated | lost, truncated, info | {'lives': lives}

    def close_extras(self, **kwargs: Any) -> None:
        """End the engine's threads."""
        self._engine = None  # type: ignore[assignment] # nobody steps what is closed


class _Ale:
    """ALE's vector environment, one frame at a time."""

    #: The arguments that it takes beyond :data:`OPTIONS`.
    KNOWN = ('repeat_action_probability', 'full_action_space')

    def __init__(self, nenv: int, spec: EnvSpec, options: dict[str, Any], **kwargs: Any) -> None:
        from ale_py.vector_env import AtariVectorEnv

        height, width = _height_width(options['frame_size'])
        self._env = AtariVectorEnv(
            spec.kwargs['game'],
            nenv,
            img_height=height,
            img_width=width,
            stack_num=1,
            frameskip=options['frame_skip'],
            noop_max=options['noop_max'],
            use_fire_reset=options['fire_reset'],
            grayscale=options['grayscale'],
            reward_clipping=False,
            max_num_frames_per_episode=2**31 - 1,
            **{'repeat_action_probability': spec.kwargs['repeat_action_probability'], **kwargs},
        )

    def reset(self, seeds: list[int]) -> tuple[np.ndarray, np.ndarray]:
        frame, info = self._env.reset(seed=np.array(seeds, np.int32))
        return self._cast(frame), info['lives']

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        frame, reward, terminated, _, info = self._env.step(actions)
        return self._cast(frame), reward, terminated, info['lives']

    def restart(self, over: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        frame, info = self._env.reset(options={'reset_mask': over})
        return self._cast(frame)[over], info['lives'][over]

    @staticmethod
    def _cast(frame: np.ndarray) -> np.ndarray:
        # [N, 1, height, width] or [N, 1, height, width, 3]
        return frame[:, 0, ..., None] if frame.ndim == 4 else frame[:, 0]


class _EnvPool:
    """EnvPool's games, one frame at a time."""

    def __init__(self, nenv: int, spec: EnvSpec, options: dict[str, Any], **kwargs: Any) -> None:
        self._task = re.sub('(NoFrameskip|Deterministic)$', '', spec.name) + '-v5'
        envpool.check_task(self._task)
        height, width = _height_width(options['frame_size'])
        if not options['noop_max']:
            raise InvalidValue("EnvPool's games begin with at least one no-op: give noop_max=1, or vectorized='sync'.")
        self._kwargs = {
            'num_envs': nenv,
            'img_height': height,
            'img_width': width,
            'stack_num': 1,
            'frame_skip': options['frame_skip'],
            'noop_max': options['noop_max'],
            'use_fire_reset': options['fire_reset'],
            'gray_scale': options['grayscale'],
            'max_episode_steps': 10**9,
            'repeat_action_probability': spec.kwargs['repeat_action_probability'],
            **kwargs,
        }

    def reset(self, seeds: list[int]) -> tuple[np.ndarray, np.ndarray]:
        self._pool = envpool.make_pool(self._task, seeds, self._kwargs)
        frame, info = self._pool.reset()
        return np.moveaxis(frame, 1, -1), info['lives']

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        frame, reward, terminated, _, info = self._pool.step(actions)
        return np.moveaxis(frame, 1, -1), reward, terminated, info['lives']

    def restart(self, over: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        frame, info = self._pool.reset(np.flatnonzero(over).astype(np.int32))
        return np.moveaxis(frame, 1, -1), info['lives']


def _height_width(size: int | tuple[int, int]) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


def _opencv() -> tuple[Callable[..., np.ndarray], int]:
    try:
        import cv2
    except ImportError as error:
        raise MissingPackage(f"Atari's frames are resized by OpenCV: pip install 'zoo-rl[atari]' ({error}).") from error
    return cv2.resize, cv2.INTER_AREA
