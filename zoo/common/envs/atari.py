"""Atari 2600 games with the preprocessing of the DQN papers, over ALE or over EnvPool.

Mnih et al. 2015, *Human-level control through deep reinforcement learning* (Nature 518), Methods; the details as in
OpenAI Baselines, which later work kept. Training sees clipped rewards and the loss of a life as an episode's end;
scores are the game's own: ``info['episode']`` holds the unclipped return ``r`` and the length ``l`` of the whole game
when it is over, and ``info['life_lost']`` is True at an end that is only a lost life. Training curves and test results
are made of the former.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box

from zoo.common.envs import registered
from zoo.common.envs.envpool import EnvPoolVectorEnv
from zoo.common.envs.wrappers import StackFrames

#: Arguments of :class:`AtariPreprocessing` and of the stack of frames; all others are ALE's.
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
    """The factory of a game by one of ALE's registered names: ``'PongNoFrameskip-v4'``, ``'ALE/Pong-v5'``.

    The version decides what it always did: with ``v5`` and ``v0`` an action is repeated with probability 1/4 instead
    of the new one ("sticky actions"), with ``v4`` never. Frame skipping is the preprocessing's, whatever the name says.

    Its keyword arguments are those of :class:`AtariPreprocessing` and ALE's own (``mode``, ``difficulty``,
    ``full_action_space``, ``repeat_action_probability``, ``render_mode``).

    Raises:
        ValueError: an unknown name, or one of another type.
        ImportError: ALE is not installed.
    """
    if not isinstance(env_id, str):
        registered.find(env_id, env_type)  # refuses it
    registered.register('atari')
    return partial(_make, registered.find_spec(env_id, env_type))


def _make(spec: EnvSpec, /, **kwargs: Any) -> gymnasium.Env:
    options = {name: kwargs.pop(name, default) for name, default in OPTIONS.items()}
    stack = options.pop('frame_stack')
    # ALE itself would draw the screen in every frame, also in those that are skipped; the RAM costs nothing.
    env = registered.make_registered(spec, obs_type='ram', frameskip=1, max_num_frames_per_episode=0, **kwargs)
    return StackFrames(AtariPreprocessing(env, **options), stack)


class AtariPreprocessing(gymnasium.Wrapper):
    """Frame skipping, the maximum of two frames, grey or colour frames of any size, no-ops, lives, clipped rewards.

    (Gymnasium's wrapper of that name begins a new game when a life is lost and draws every frame.)

    Args:
        env: an ALE environment made with ``obs_type='ram'`` and ``frameskip=1``.
        frame_size: height and width of the observation, or the pair ``(height, width)``, in pixels.
        frame_skip: frames that an action is held; the last two are joined by their maximum, since sprites flicker.
        noop_max: a game begins with 1 to so many no-ops, drawn uniformly; 0 for none.
        life_loss: a lost life is an episode's end (terminated); the next one goes on in the same game.
        clip_reward: the reward is only its sign.
        fire_reset: press FIRE at a beginning, in games that wait for it.
        grayscale: grey frames ``[height, width, 1]``, else RGB ``[height, width, 3]``.
        max_episode_steps: steps after which a game is truncated.
    """

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
        self._size = (frame_size, frame_size) if isinstance(frame_size, int) else tuple(frame_size)
        if min(self._size) < 8:
            raise ValueError(f'frame_size is {frame_size}: give at least 8 pixels, such as 84 or 42.')
        if frame_skip < 1 or max_episode_steps < 1:
            raise ValueError(f'frame_skip and max_episode_steps are at least 1, not {frame_skip}, {max_episode_steps}.')
        self._frame_skip = frame_skip
        self._noop_max = noop_max
        self._life_loss = life_loss
        self._clip_reward = clip_reward
        self._limit = max_episode_steps
        meanings = env.unwrapped.get_action_meanings()
        self._fire_reset = fire_reset and len(meanings) > 1 and meanings[1] == 'FIRE'
        self._ale = env.unwrapped.ale
        self._draw = self._ale.getScreenGrayscale if grayscale else self._ale.getScreenRGB
        self._resize, self._area = _opencv()
        screen = self._ale.getScreenDims() + (() if grayscale else (3,))
        self._screens = np.zeros((2, *screen), np.uint8)
        self.observation_space = Box(0, 255, (*self._size, 1 if grayscale else 3), np.uint8)
        self._next_life = False  # the last episode ended by a lost life alone
        self._lives = 0
        self._return = 0.0
        self._length = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin a game, or, after an end that was only a lost life and without a seed, go on with its next life."""
        over = not self._next_life or seed is not None
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
        """Hold an action without looking: the last info and whether the game is over."""
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
            info['life_lost'] = True
        clipped = float(np.sign(reward)) if self._clip_reward else reward
        return self._observe(), clipped, over or self._next_life, truncated, info

    def _observe(self) -> np.ndarray:
        frame = np.maximum(self._screens[0], self._screens[1])
        frame = self._resize(frame, self._size[::-1], interpolation=self._area)
        return frame.reshape(self.observation_space.shape)


class Pool(EnvPoolVectorEnv):
    """EnvPool's games with the observations and the info of the single ones.

    Lives are counted here, since EnvPool would begin a new game for each; after a lost one nothing is pressed.

    Args:
        env_id: one of ALE's names.
        nenv: number of copies.
        reference: the single environment.
        **kwargs: as for the single one; what EnvPool has no equal of is refused.
    """

    def __init__(self, env_id: str, nenv: int, reference: gymnasium.Env, **kwargs: Any) -> None:
        options = {name: kwargs.pop(name, default) for name, default in OPTIONS.items()}
        size = options['frame_size']
        height, width = (size, size) if isinstance(size, int) else size
        spec = reference.spec
        kwargs.setdefault('repeat_action_probability', spec.kwargs['repeat_action_probability'])
        super().__init__(
            re.sub('(NoFrameskip|Deterministic)$', '', spec.name) + '-v5',
            nenv,
            reference,
            img_height=height,
            img_width=width,
            stack_num=1,  # a stack begins anew after a lost life, so it is kept here
            frame_skip=options['frame_skip'],
            noop_max=max(1, options['noop_max']),
            use_fire_reset=options['fire_reset'],
            gray_scale=options['grayscale'],
            **kwargs,
        )
        self._limit = options['max_episode_steps']
        self._life_loss = options['life_loss']
        self._clip_reward = options['clip_reward']
        self._frames = options['frame_stack']
        self._returns, self._lengths = np.zeros(nenv), np.zeros(nenv, np.int64)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin a game in every copy; with ``seed``, copy ``i`` is seeded with ``seed + i`` (or ``seed[i]``)."""
        frame, info = super().reset(seed=seed, options=options)
        self._last = np.tile(frame, self._frames)
        self._lives = info['lives'].copy()
        self._returns[:], self._lengths[:] = 0.0, 0
        return self._last, info

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step every copy; ``info`` is as in :mod:`zoo.common.env_wrappers` and of the single environment."""
        frame, reward, terminated, truncated, info = super().step(actions)
        channels = frame.shape[-1]
        observation = np.concatenate([self._last[..., channels:], frame], -1)
        over = terminated | truncated
        self._returns += reward
        self._lengths += 1
        lost = (info['lives'] < self._lives) & ~over & self._life_loss
        self._lives = info['lives'].copy()
        if over.any():
            info['final_info']['episode'] = {'r': self._returns.copy(), 'l': self._lengths.copy()}
            info['final_info']['_episode'] = over
            self._returns[over], self._lengths[over] = 0.0, 0
        ended = over | lost
        if ended.any():
            final = info.setdefault('final_obs', np.full(self.num_envs, None, object))
            for i in np.flatnonzero(ended):
                newest = frame[i] if lost[i] else final[i]
                final[i] = np.concatenate([self._last[i, ..., channels:], newest], -1)
                observation[i] = np.tile(frame[i], self._frames)
            info['_final_obs'] = info['_final_info'] = ended
            info.setdefault('final_info', {}).update(life_lost=lost, _life_lost=lost)
        self._last = observation
        return observation, np.sign(reward) if self._clip_reward else reward, terminated | lost, truncated, info

    def _cast(self, observation: np.ndarray) -> np.ndarray:
        """Channels last, as the single environment has them."""
        return np.ascontiguousarray(np.moveaxis(observation, 1, -1))


def _opencv() -> tuple[Callable[..., np.ndarray], int]:
    try:
        import cv2
    except ImportError as error:
        raise ImportError(f"Atari's frames are resized by OpenCV: pip install 'zoo-rl[atari]' ({error}).") from error
    return cv2.resize, cv2.INTER_AREA
