"""Drawing MuJoCo scenes off screen, on machines without a display: the renderer, and the OpenGL underneath."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import glob
import importlib.util
import multiprocessing
import os
import platform
import sys
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.wrappers import HumanRendering

from zoo.common.tools.errors import Failure, InvalidValue, MissingPackage

#: The least size of a shadow map in texels, and its texels for each pixel of the picture.
SHADOW_MAP, SHADOW_TEXELS = 1024, 8
#: How fast a window shows the pictures of an environment that does not say it (``render_fps``).
PICTURES_A_SECOND = 30
#: The libraries of the renderers that need no display, under Linux.
LIBRARIES = {'egl': ('libEGL.so.1',), 'osmesa': ('libOSMesa.so.8', 'libOSMesa.so.6')}
#: Mesa's drivers, which EGL loads by itself: part of the library since Mesa 24.2, a file beside it before.
DRIVERS = ('libEGL_mesa.so.0', '/usr/lib/*/dri/swrast_dri.so', '/usr/lib64/dri/swrast_dri.so')


class SceneRenderer:
    """Draws the MuJoCo scene of an environment off screen.

    The pictures are as from Gymnasium's and dm_control's viewers, but small pictures have a smaller map of shadows.
    Drawn by the CPU, an 84 x 84 picture of HalfCheetah takes 10 ms instead of 37, and differs by 0.02 of 255 in the
    mean.

    Args:
        env: an environment whose ``unwrapped`` has ``model`` and ``data``.
        size: height and width in pixels.

    Raises:
        RuntimeError: no renderer was found.
    """

    def __init__(self, env: gymnasium.Env, size: tuple[int, int]) -> None:
        import mujoco

        self._gl: Any = None
        self._context: Any = None
        self._mujoco, self._env = mujoco, cast(Any, env.unwrapped)  # it has a scene
        self._model = model = self._env.model
        height, width = size
        self._gl = _gl_context(width, height)
        options, quality = model.vis.global_, model.vis.quality
        kept = options.offwidth, options.offheight, quality.shadowsize
        # The buffers of the context get the sizes that the model has now; the size of the picture is enough.
        options.offwidth, options.offheight = width, height
        quality.shadowsize = min(quality.shadowsize, max(SHADOW_MAP, SHADOW_TEXELS * max(size)))
        try:
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        finally:
            options.offwidth, options.offheight, quality.shadowsize = kept
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        # The other direction loses the digits of the far half.
        self._context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
        self._scene = mujoco.MjvScene(model, 10_000)
        self._option, self._perturb = mujoco.MjvOption(), mujoco.MjvPerturb()
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        self._views: dict[int, Any] = {}
        _OPEN.add(self)
        close_at_exit()

    def draw(self, camera: int, max_depth: float = 0.0) -> tuple[np.ndarray, np.ndarray | None]:
        """Return a picture uint8 ``[height, width, 3]``, and its depth float32 ``[height, width, 1]`` in meters.

        Camera -1 is the free camera. The depth is cut off at ``max_depth``; with 0 it is None.
        """
        mujoco, height, width = self._mujoco, self._viewport.height, self._viewport.width
        # Gymnasium-Robotics moves the marker of the goal to its place only when it renders.
        getattr(self._env, '_render_callback', lambda: None)()
        if camera not in self._views:
            self._views[camera] = self._view(camera)
        self._gl.make_current()
        view, everything = self._views[camera], mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self._model, self._env.data, self._option, self._perturb, view, everything, self._scene)
        mujoco.mjr_render(self._viewport, self._scene, self._context)
        image = np.empty((height, width, 3), np.uint8)
        depth = np.empty((height, width), np.float32) if max_depth else None
        mujoco.mjr_readPixels(image, depth, self._viewport, self._context)
        image = image[::-1].copy()  # OpenGL's first row is the lowest
        return image, depth if depth is None else self._meters(depth[::-1], max_depth)

    def _meters(self, depth: np.ndarray, max_depth: float) -> np.ndarray:
        """Meters from the buffer's values: 1 at the near, 0 at the far clipping plane, linear in 1 / distance."""
        extent = self._model.stat.extent
        near, far = self._model.vis.map.znear * extent, self._model.vis.map.zfar * extent
        meters = 1.0 / (1.0 / far + depth.astype(np.float64) * (1.0 / near - 1.0 / far))
        return np.minimum(meters, max_depth).astype(np.float32)[..., None]

    def _view(self, camera: int) -> Any:
        view = self._mujoco.MjvCamera()
        if camera >= 0:
            view.type, view.fixedcamid = self._mujoco.mjtCamera.mjCAMERA_FIXED, camera
            return view
        # As in Gymnasium's viewer.
        view.lookat[:] = np.median(self._env.data.geom_xpos, axis=0)
        view.distance = self._model.stat.extent
        settings = getattr(getattr(self._env, 'mujoco_renderer', None), 'default_cam_config', None) or {}
        for key, value in settings.items():
            if isinstance(value, np.ndarray):
                getattr(view, key)[:] = value
            else:
                setattr(view, key, value)
        view.type = self._mujoco.mjtCamera.mjCAMERA_FREE
        return view

    def upload_terrain(self) -> None:
        """Take over height fields that the environment has changed; the renderer keeps its own copy."""
        for field in range(self._model.nhfield):
            self._gl.make_current()
            self._mujoco.mjr_uploadHField(self._model, self._context, field)

    def close(self) -> None:
        """Free the buffers, in the context that they belong to."""
        if self._gl is not None and self._context is not None:
            self._gl.make_current()
            self._context.free()
        if self._gl is not None:
            self._gl.free()
        self._gl = self._context = None

    def __del__(self) -> None:
        self.close()


#: Where `draw_without_display` has sent SDL's drawings, if the user has not.
_SENT: set[str] = set()
_OPEN: weakref.WeakSet[SceneRenderer] = weakref.WeakSet()


def _close_all() -> None:
    for renderer in list(_OPEN):
        renderer.close()


def close_at_exit() -> None:
    """Close open renderers when Python ends, before EGL is closed. Call this after whatever registers closing EGL."""
    atexit.unregister(_close_all)
    atexit.register(_close_all)  # the last function registered runs first


def _gl_context(width: int, height: int) -> Any:
    """Return an OpenGL context for drawing off screen, made current; a RuntimeError says what to install."""
    wanted = _wanted()
    known = [*LIBRARIES, 'glfw']
    kinds = [wanted] if wanted in known else known
    if platform.system() != 'Linux':
        kinds = ['gl_context']  # MuJoCo's own choice, the only one there
    reasons = []
    for kind in kinds:
        try:
            keep_apart(kind)
            _check_renderer(kind)
            context = importlib.import_module(f'mujoco.{kind}').GLContext(width, height)
            context.make_current()
            return context
        except Exception as error:  # PyOpenGL raises many kinds
            reasons.append(f'{kind}: {error}')
    raise Failure(no_renderer('; '.join(reasons)))


def _check_renderer(kind: str) -> None:
    """Raise if the renderer cannot work.

    Trying it out is no test: PyOpenGL keeps the first library that it tried, and MuJoCo ends the process when it finds
    no OpenGL a second time.
    """
    if kind in LIBRARIES:
        reasons = []
        for library in LIBRARIES[kind]:
            try:
                ctypes.CDLL(library)
                return
            except OSError as error:
                reasons.append(str(error))
        raise OSError(reasons[0])
    if kind == 'glfw':
        if not (os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')):
            raise OSError('there is no display')
        import glfw

        if not glfw.init():
            raise OSError('the display cannot be opened')


def before_import(render_mode: str | None = None) -> None:
    """Call :func:`keep_apart` before MuJoCo, dm_control or the window of a ``render_mode`` may load Mesa."""
    wanted = _wanted()
    if wanted in LIBRARIES or render_mode is not None:
        keep_apart(wanted)


@cache
def keep_apart(kind: str) -> None:
    """Let Mesa (for the renderer ``kind``) and TensorFlow live in one process under Linux, each with its own LLVM.

    Each makes its LLVM visible to all libraries that are loaded later. A library that calls the other's LLVM ends the
    process with a segmentation fault. So TensorFlow is loaded first, and Mesa is told to look into itself first. (The
    process of an environment's copy needs no TensorFlow.)
    """
    if platform.system() != 'Linux':
        return
    if multiprocessing.parent_process() is None:
        with contextlib.suppress(ImportError):
            importlib.import_module('tensorflow')
    for pattern in LIBRARIES[kind] if kind == 'osmesa' else DRIVERS:
        for library in glob.glob(pattern) if '/' in pattern else [pattern]:
            with contextlib.suppress(OSError):  # no such library, or a library of another maker
                ctypes.CDLL(library, os.RTLD_NOW | getattr(os, 'RTLD_DEEPBIND', 0))


def _wanted() -> str:
    return os.environ.get('MUJOCO_GL', '').lower().strip()


def no_renderer(reason: object) -> str:
    """Return the sentence for a missing renderer."""
    return (
        'no renderer was found that draws off screen: install the system package libegl1 or libosmesa6, and set the '
        f'variable MUJOCO_GL to egl or osmesa if that alone does not help (it is {os.environ.get("MUJOCO_GL")!r} now; '
        f'{reason}).'
    )


def _has_display() -> bool:
    return platform.system() != 'Linux' or bool(os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY'))


def check_display(name: str, by_sdl: bool) -> None:
    """Refuse, by a ValueError, a window without a display: MuJoCo's viewer would end the process, others show nothing.

    SDL (``by_sdl``: pygame, ALE) draws elsewhere if ``SDL_VIDEODRIVER`` says so.
    """
    if _has_display():
        return
    if by_sdl and os.environ.get('SDL_VIDEODRIVER') and os.environ['SDL_VIDEODRIVER'] not in _SENT:
        return
    raise InvalidValue(
        f"{name}: render_mode='human' opens a window, but there is no display (neither DISPLAY nor WAYLAND_DISPLAY is "
        "set): build it with render_mode='rgb_array' for pictures."
    )


def draw_without_display() -> None:
    """Let pygame draw pictures where there is no display: it would look for one, and complain on standard error."""
    if not _has_display() and not os.environ.get('SDL_VIDEODRIVER'):
        os.environ['SDL_VIDEODRIVER'] = 'dummy'
        _SENT.add('dummy')


def check_window(name: str) -> None:
    """Refuse a window that pygame has opened where nobody sees it: without a display."""
    pygame = sys.modules.get('pygame')
    if pygame and pygame.display.get_surface() and pygame.display.get_driver() in ('dummy', 'offscreen'):
        check_display(name, by_sdl=True)


def in_window(make: Callable[[], Any], name: str) -> gymnasium.Env:
    """Return an environment that only gives pictures with a window of pygame, which shows them.

    Args:
        make: makes it with ``render_mode='rgb_array'``.
        name: its name, for messages.

    Raises:
        ValueError: there is no display.
        ImportError: pygame is missing.
    """
    check_display(name, by_sdl=True)
    if importlib.util.find_spec('pygame') is None:
        raise MissingPackage(f'{name}: a window needs a package that is not installed: pip install pygame.')
    before_import('human')
    # With OpenGL of its own, SDL ends the process where MuJoCo draws the pictures by EGL.
    os.environ.setdefault('SDL_FRAMEBUFFER_ACCELERATION', '0')
    env = make()
    env.metadata = {'render_fps': PICTURES_A_SECOND, **env.metadata}
    return HumanRendering(env)


def check_import(error: Exception) -> None:
    """Raise a RuntimeError if MuJoCo or dm_control cannot be imported because the renderer in ``MUJOCO_GL`` is missing.

    They load it at once, even where nothing will be drawn.
    """
    wanted = _wanted()
    if platform.system() == 'Linux' and wanted in LIBRARIES:
        try:
            _check_renderer(wanted)
        except OSError as missing:
            raise Failure(no_renderer(missing)) from error
