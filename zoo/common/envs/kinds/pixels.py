"""Pixel observations, from several cameras and with depth, for every environment that can be rendered.

MuJoCo scenes (Gymnasium's, Gymnasium-Robotics', dm_control's) are drawn here. Gymnasium's own viewer takes GLFW where
there is no display, and then fails. It draws into the context of the environment that was made last. Its
``AddRenderObservation`` has one camera, no size and no depth. All other environments draw by their own ``render()``,
and the picture is resized.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Space

from zoo.common.envs.kinds.rendering import SceneRenderer
from zoo.common.envs.wrappers.views import StackFrames
from zoo.common.tools.errors import InvalidValue, MissingPackage, unknown

#: The arguments of :func:`add_pixels` that go with ``pixels``.
OPTIONS = ('cameras', 'depth', 'frame_size', 'frame_stack')
#: With ``depth=True``, what lies farther away than this many meters is seen at this distance.
MAX_DEPTH = 20.0
#: Height and width of the pictures that ``render()`` draws of a MuJoCo scene.
PICTURE = (480, 480)


def take_options(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Take the arguments of :func:`add_pixels` out of ``kwargs``; return an empty dict without ``pixels``."""
    pixels = kwargs.pop('pixels', False)
    if pixels is False:
        return {}
    kwargs.setdefault('render_mode', 'rgb_array')
    return {'pixels': pixels, **{name: kwargs.pop(name) for name in OPTIONS if name in kwargs}}


def add_pixels(env: gymnasium.Env, frame_stack: int = 1, **options: Any) -> gymnasium.Env:
    """Make the observations of ``env`` images, the last ``frame_stack`` of them joined along the last axis."""
    return StackFrames(PixelObservations(env, **options), frame_stack)


class PixelObservations(gymnasium.Wrapper):
    """Observations become images, or images are added to them.

    An image is uint8 ``[height, width, 3]``. Its depth is float32 ``[height, width, 1]``, the distance from the
    camera's plane in meters. Every step returns new arrays. The observation is

    * for ``pixels=True``, one camera and no depth: the image itself;
    * otherwise a ``Dict`` with the image as ``pixels`` and the depth as ``depth``. With several cameras, the keys are
      the camera's name, and that name followed by ``_depth``. A camera without a name is ``camera_<id>``, the free
      camera ``free``;
    * for ``pixels='both'`` also the environment's own observation: as ``state``, or the keys of its ``Dict``.

    Args:
        env: an environment with ``render_mode='rgb_array'``, or any with a MuJoCo scene.
        pixels: True for images alone, ``'both'`` for images and the environment's own observation.
        cameras: a camera of the MuJoCo scene, or several, by name or id (-1: the free camera). None: the camera named
            ``'track'`` if there is one, else the environment's own view.
        depth: whether to add depth; a number is the distance in meters at which it is cut off, instead of
            :data:`MAX_DEPTH`. (A scene goes on for over a hundred meters. Scaled to [0, 1], that shows nothing near.)
        frame_size: height and width of an image, or the pair ``(height, width)``, in pixels.

    Raises:
        ValueError: a wrong argument; a camera that the scene lacks; an environment that cannot be rendered; a key that
            the observation has already.
        RuntimeError: (by ``reset``) no renderer was found.
        ImportError: (by ``reset``) the environment's renderer is not installed.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        pixels: bool | str = True,
        cameras: str | int | Sequence[str | int] | None = None,
        depth: bool | float = False,
        frame_size: int | tuple[int, int] = 84,
    ) -> None:
        super().__init__(env)
        if pixels is not True and pixels != 'both':
            raise InvalidValue(f"pixels is True for images alone or 'both' for images and the state, not {pixels!r}.")
        self._size = _frame_size(frame_size)
        self._max_depth = _max_depth(depth)
        self._has_scene = has_scene(env)
        if not self._has_scene and (cameras is not None or self._max_depth):
            raise InvalidValue(f'{env}: cameras and depth need a MuJoCo scene, which this environment does not have.')
        if not self._has_scene and env.render_mode != 'rgb_array':
            raise InvalidValue(f"{env}: pixels need render_mode='rgb_array', but it is {env.render_mode!r}.")
        self._cameras = camera_ids(env, cameras) if self._has_scene else {'pixels': -1}
        self._renderer: SceneRenderer | None = None  # of observations
        self._picture: SceneRenderer | None = None  # of render()
        self._with_state = pixels == 'both'
        self._state_is_dict = isinstance(env.observation_space, Dict)
        images = self._image_spaces()
        self._only_image = not self._with_state and len(images) == 1
        if self._only_image:
            self.observation_space = images['pixels']
            return
        own = env.observation_space
        state: dict[str, Space] = {}
        if self._with_state:
            state = own.spaces if isinstance(own, Dict) else {'state': own}
        if images.keys() & state.keys():
            raise InvalidValue(f'{env}: its observation has the key {min(images.keys() & state.keys())!r} already.')
        self.observation_space = Dict({**state, **images})

    def _image_spaces(self) -> dict[str, Space]:
        found: dict[str, Space] = {}
        for name in self._cameras:
            found[name] = Box(0, 255, (*self._size, 3), np.uint8)
            if self._max_depth:
                found[_depth_key(name)] = Box(0.0, self._max_depth, (*self._size, 1), np.float32)
        return found

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        for renderer in (self._renderer, self._picture):
            if renderer is not None:
                renderer.upload_terrain()
        return self._observe(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *rest = self.env.step(action)
        return self._observe(observation), *rest

    def _observe(self, observation: Any) -> Any:
        images = self._images()
        if self._only_image:
            return images['pixels']
        if not self._with_state:
            return images
        return {**(observation if self._state_is_dict else {'state': observation}), **images}

    def _images(self) -> dict[str, np.ndarray]:
        if not self._has_scene:
            return {'pixels': resize(_rendered(self.env), self._size)}
        if self._renderer is None:
            self._renderer = SceneRenderer(self.env, self._size)
        found = {}
        for name, camera in self._cameras.items():
            found[name], depth = self._renderer.draw(camera, self._max_depth)
            if depth is not None:
                found[_depth_key(name)] = depth
        return found

    def render(self) -> Any:
        """A picture uint8 ``[480, 480, 3]`` by the first camera; without a MuJoCo scene, the environment's own."""
        if not self._has_scene or self.render_mode != 'rgb_array':
            return self.env.render()
        if self._picture is None:
            self._picture = SceneRenderer(self.env, PICTURE)
        return self._picture.draw(next(iter(self._cameras.values())))[0]

    def close(self) -> None:
        for renderer in (self._renderer, self._picture):
            if renderer is not None:
                renderer.close()
        self._renderer = self._picture = None
        super().close()


def has_scene(env: gymnasium.Env) -> bool:
    """Whether the environment has a MuJoCo scene to draw: ``model`` and ``data`` of MuJoCo's types."""
    kinds = [type(getattr(env.unwrapped, name, None)) for name in ('model', 'data')]
    found = [(kind.__module__.partition('.')[0], kind.__name__) for kind in kinds]
    return found == [('mujoco', 'MjModel'), ('mujoco', 'MjData')]


def camera_ids(env: gymnasium.Env, cameras: str | int | Sequence[str | int] | None) -> dict[str, int]:
    """Return the ids of cameras by their keys in the observation; refuse an unknown camera, and one given twice."""
    model = cast(Any, env.unwrapped).model
    names = [model.camera(i).name for i in range(model.ncam)]
    if cameras is None:
        cameras = 'track' if 'track' in names else -1
    wanted = list(cameras) if isinstance(cameras, (tuple, list)) else [cameras]
    known = [name for name in names if name]
    found: dict[str, int] = {}
    for camera in wanted:
        if isinstance(camera, bool) or not isinstance(camera, (str, int, np.integer)):
            raise InvalidValue(f'{env}: a camera is given by its name or its id, not by {camera!r}.')
        if isinstance(camera, str) and camera not in names:
            raise InvalidValue(f'{env}: ' + unknown('camera', camera, known))
        camera = names.index(camera) if isinstance(camera, str) else int(camera)
        if not -1 <= camera < len(names):
            raise InvalidValue(
                f'{env}: there is no camera {camera}: give an id from -1, the free camera, to {len(names) - 1}'
                + (f', or a name: {", ".join(known)}.' if known else '.')
            )
        found['free' if camera == -1 else names[camera] or f'camera_{camera}'] = camera
    if not wanted or len(found) < len(wanted):
        raise InvalidValue(f'{env}: give at least one camera, and each once, not {cameras!r}.')
    return found if len(found) > 1 else {'pixels': next(iter(found.values()))}


def resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return an image uint8 ``[height, width, 3]`` at another height and width, averaged over areas, as a new array."""
    if image.shape[:2] == size:
        return np.array(image)
    try:
        import cv2
    except ImportError as error:
        raise MissingPackage(f'images are resized by OpenCV: pip install opencv-python-headless ({error}).') from error
    return cv2.resize(np.ascontiguousarray(image), size[::-1], interpolation=cv2.INTER_AREA)


def _rendered(env: gymnasium.Env) -> np.ndarray:
    try:
        image = env.render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise MissingPackage(f'{env} cannot be rendered: {error}.') from error
    if not (isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3):
        raise InvalidValue(f'{env}: render() must return an image uint8 [height, width, 3], but gave {type(image)}.')
    return image


def _frame_size(frame_size: int | tuple[int, int]) -> tuple[int, int]:
    sides = frame_size if isinstance(frame_size, (tuple, list)) else (frame_size, frame_size)
    if len(sides) != 2 or not all(isinstance(side, (int, np.integer)) and side >= 8 for side in sides):
        raise InvalidValue(f'frame_size is {frame_size!r}: give integers of at least 8 pixels, such as 84 or (64, 96).')
    return int(sides[0]), int(sides[1])


def _max_depth(depth: bool | float) -> float:
    if isinstance(depth, (bool, np.bool_)):
        return MAX_DEPTH if depth else 0.0
    if not (isinstance(depth, (int, float, np.number)) and np.isfinite(depth) and depth > 0):
        raise InvalidValue(f'depth is True, False or the distance in meters at which it is cut off, not {depth!r}.')
    return float(depth)


def _depth_key(name: str) -> str:
    return 'depth' if name == 'pixels' else f'{name}_depth'
