"""Views of an environment: stacked observations, hidden velocities."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv

from zoo.common import spaces
from zoo.common.adaptors.observation import ACTION_MASK, image_layout, is_image
from zoo.common.envs import declared
from zoo.common.envs.wrappers.leaves import replace_leaves
from zoo.common.tools.errors import InvalidValue

#: Parts of an observation that are not stacked.
_KEPT = (ACTION_MASK, 'achieved_goal', 'desired_goal')


class StackFrames(gymnasium.Wrapper):
    """Stacks the last ``frames`` values of parts of the observation, oldest first; each observation is a new array.

    Images are joined along their last axis, with channels last (see :class:`zoo.common.spaces.FrameStack`). With
    ``vectors``, the values of any other ``Box`` stand side by side in a vector. At the beginning of an episode, all
    values are the first one. Goals, action masks, and parts that are no ``Box`` stay as they are.

    Raises:
        ValueError: ``frames`` is not an integer of at least 1; with 1 the observations stay as they are.
    """

    def __init__(self, env: gymnasium.Env, frames: int, vectors: bool = False) -> None:
        super().__init__(env)
        if isinstance(frames, bool) or not isinstance(frames, int) or frames < 1:
            raise InvalidValue(f'frame_stack is {frames!r}: give the number of frames, an integer of at least 1.')
        self._frames = frames
        self._inner = env.observation_space
        #: Path of a stacked part -> the function that brings one value into its form.
        self._forms: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
        self._leaves = spaces.leaves(self._inner)
        leaves: dict[str, Space] = {**self._leaves}
        for path, leaf in leaves.items():
            if not isinstance(leaf, Box) or path in _KEPT or frames == 1:
                continue
            form: Callable[[np.ndarray], np.ndarray] = np.ravel
            if is_image(leaf):
                form = functools.partial(_channels_last, first=image_layout(leaf)[-1])
                leaves[path] = spaces.FrameStack(spaces.rearranged(leaf, form), frames)
            elif vectors:
                leaves[path] = spaces.rearranged(leaf, lambda x: np.tile(np.ravel(x), frames))
            else:
                continue
            self._forms[path] = form
        self.observation_space = replace_leaves(self._inner, leaves)
        self._last: dict[str, np.ndarray] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._last.clear()
        return self._stack(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *rest = self.env.step(action)
        return self._stack(observation), *rest

    def _stack(self, observation: Any) -> Any:
        if not self._forms:
            return observation
        flat = dict(spaces.tree_items(spaces.flatten(self._inner, observation)))
        casts: list[str] = []
        for path, form in self._forms.items():
            # The stack has the dtype of the space, so a value that it cannot hold is refused here.
            value = declared.in_form(self._leaves[path], flat[path], path, (), lambda: 'the environment', casts)
            new, last = form(np.asarray(value, self._leaves[path].dtype)), self._last.get(path)
            flat[path] = self._last[path] = np.tile(new, self._frames) if last is None else push_frame(last, new)
        declared.tell(self.env, casts)
        return spaces.unflatten(self.observation_space, spaces.from_items(self._inner, flat))


def _channels_last(image: np.ndarray, first: bool) -> np.ndarray:
    """An image as ``[height, width, channels]``, also from ``[height, width]``."""
    return image[..., None] if image.ndim == 2 else np.moveaxis(image, 0, -1) if first else image


#: Class of the environment -> the entries of its observation that are not velocities.
POSITIONS = {'CartPoleEnv': (0, 2), 'PendulumEnv': (0, 1), 'LunarLander': (0, 1, 4, 6, 7)}


class HideVelocity(gymnasium.Wrapper):
    """Leaves the velocities out of the observation, so that acting well needs a memory.

    Raises:
        ValueError: the environment is not CartPole, Pendulum or LunarLander, or its observation is another one: pixels,
            or what a wrapper has made of it.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        name = type(env.unwrapped).__name__
        if name not in POSITIONS or not isinstance(env.observation_space, Box):
            raise InvalidValue(
                f'hide_velocity=True is for CartPole, Pendulum and LunarLander, but this is {name}: leave it out, or '
                'wrap the environment in a class that hides its velocities.'
            )
        space = env.observation_space
        if space != env.unwrapped.observation_space:
            raise InvalidValue(
                f'hide_velocity=True needs the observation of {name} as it is, not {spaces.describe(space)}: '
                'hide the velocities first, in a wrapper of your own.'
            )
        self._kept = np.array(POSITIONS[name])
        self.observation_space = Box(space.low[self._kept], space.high[self._kept], dtype=space.dtype.type)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return np.asarray(observation)[self._kept], info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *rest = self.env.step(action)
        return np.asarray(observation)[self._kept], *rest


def viewed(make: Callable[..., Any], hide_velocity: bool = False, frame_stack: int = 1, **kwargs: Any) -> Any:
    """Return what ``make(**kwargs)`` makes, with velocities hidden and observations stacked."""
    env = make(**kwargs)
    try:
        if isinstance(env, VectorEnv):
            raise InvalidValue(
                'hide_velocity and frame_stack are for single environments and their copies, not for a VectorEnv '
                'object: wrap the environments that it is made of.'
            )
        if hide_velocity:
            env = HideVelocity(env)
        if frame_stack != 1:
            inner = env.observation_space
            env = StackFrames(env, frame_stack, vectors=True)
            if env.observation_space == inner:
                raise InvalidValue(f'frame_stack={frame_stack} finds no Box to stack in {spaces.describe(inner)}.')
    except ValueError:
        env.close()
        raise
    return env


def push_frame(stack: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """Return a new stack ``[…, frames * channels]`` without its oldest frame and with ``[…, channels]`` as its newest.

    A vector is all channels. Moving the whole stack as one run of memory is six times as fast as moving the few
    channels of each pixel.
    """
    channels = frame.shape[-1]
    pushed = np.empty(stack.size, stack.dtype)
    pushed[:-channels] = stack.reshape(-1)[channels:]
    pushed = pushed.reshape(stack.shape)
    pushed[..., -channels:] = frame
    return pushed
