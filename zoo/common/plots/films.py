"""Films of an agent: ``.gif``, ``.png`` and ``.webp`` by Pillow, which Matplotlib brings; ``.mp4`` by ffmpeg."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common.plots.playing import Plays, check_drawable, moments
from zoo.common.tools.checks import is_integer, number, whole
from zoo.common.tools.errors import InvalidValue, MissingPackage, unknown
from zoo.common.tools.files import as_path, place_for, replacing

log = logging.getLogger('zoo')

#: Kinds of file, by the end of their name.
KINDS = ('.gif', '.webp', '.png', '.mp4')
#: Frames a second where the environment does not say.
FPS = 30
#: The most frames a second of a GIF: its times are hundredths of a second, and most viewers slow down faster films.
_MOST_FPS = 50


def check_path(path: str | os.PathLike[str] | None) -> Path:
    """Return the path of a film; refuse an unknown kind of file (ValueError), ``.mp4`` without ffmpeg (ImportError)."""
    found = as_path(path, 'path, the file of a film,')
    if found.suffix.lower() not in KINDS:
        raise InvalidValue(f"'{path}': {unknown('kind of film', found.suffix, KINDS)}")
    if found.suffix.lower() == '.mp4':
        try:
            import imageio.v2  # noqa: F401
            import imageio_ffmpeg  # noqa: F401
        except ImportError as error:
            message = f"an .mp4 needs ffmpeg: pip install 'zoo-rl[video]', or name a .gif ({error})."
            raise MissingPackage(message) from error
    return found


def film(
    agent: Plays,
    env: Env | VectorEnv,
    path: str | os.PathLike[str] | None = None,
    episodes: int = 1,
    max_steps: int = 1000,
    seed: int | None = None,
    fps: float | None = None,
    deterministic: bool = True,
) -> Path:
    """Play episodes, film them, and return the path.

    Args:
        agent: acts.
        env: one environment built with ``render_mode='rgb_array'``.
        path: the file, which must be given: ``.gif``, ``.webp``, ``.png`` (animated) or, with ffmpeg, ``.mp4``.
        episodes: whole episodes, one after the other.
        max_steps: environment steps of all episodes together, after which the film ends.
        seed: the seed of the environment.
        fps: frames a second; None: as the environment says.
        deterministic: the policy's mode rather than samples.

    Raises:
        ValueError: another kind of file, several copies of an environment, or an environment without pictures.
        ImportError: ``.mp4`` without ffmpeg.
    """
    if not hasattr(agent, 'initial_state'):
        raise InvalidValue(f'film needs an agent, not {agent!r}: film(agent, env, path).')
    check_drawable(env)
    found = check_path(path)
    episodes, max_steps = whole('episodes', episodes), whole('max_steps', max_steps)
    if fps is not None and not number('fps', fps) > 0:
        raise InvalidValue(f'fps is {fps!r}: give a number above 0.')
    if seed is not None and not is_integer(seed, 0):
        raise InvalidValue(f'seed is {seed!r}: give a whole number of at least 0, or None for a random one.')
    frames = _played(agent, cast(Env, env), episodes, max_steps, seed, deterministic)
    return write(found, frames, fps or float(env.metadata.get('render_fps') or FPS))


def _played(
    agent: Plays, env: Env, episodes: int, max_steps: int, seed: int | None, deterministic: bool
) -> Iterator[np.ndarray]:
    """The pictures of episodes, one at a time: together they would not fit into memory."""
    steps = whole_ones = 0
    for episode in range(episodes):
        if steps < max_steps:
            for moment in moments(agent, env, None if episode else seed, max_steps - steps, deterministic):
                yield moment.frame
            steps += moment.step
            whole_ones += moment.ended
    if whole_ones < episodes > 1:
        told = 'The film has %d whole episodes of %d, since it ends after max_steps=%d: give more steps.'
        log.warning(told, whole_ones, episodes, max_steps)


def write(path: str | os.PathLike[str], frames: Iterable[np.ndarray], fps: float) -> Path:
    """Write pictures, uint8 ``[height, width, 3]``, as a film, whole or not at all; its folder is made if need be.

    The pictures, at least one, are taken one by one. A GIF faster than 50 frames a second keeps every second or third.
    """
    found = check_path(path)
    place_for(found, 'the film')
    with replacing(found, found.suffix) as new:
        _write(new, iter(frames), fps)
    return found


def _write(path: Path, frames: Iterator[np.ndarray], fps: float) -> None:
    if path.suffix.lower() == '.mp4':
        import imageio.v2 as imageio

        writer: Any = imageio.get_writer(path, fps=fps, macro_block_size=2)
        with contextlib.closing(writer):
            for frame in frames:
                writer.append_data(frame)
        return
    from PIL import Image

    skip = max(1, int(np.ceil(fps / _MOST_FPS)))
    pictures = (Image.fromarray(frame) for frame in itertools.islice(frames, 0, None, skip))
    first = next(pictures)
    # Pillow takes the frames of a GIF one by one and keeps what changed; it goes over other films twice.
    others = pictures if path.suffix.lower() == '.gif' else list(pictures)
    first.save(path, save_all=True, append_images=others, duration=round(1000 * skip / fps), loop=0, optimize=False)
