"""Videos of an agent: ``.gif``, ``.png`` and ``.webp`` by Pillow, which Matplotlib brings; ``.mp4`` by ffmpeg."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common.envs.answers import LIFE_LOST
from zoo.common.tools.checks import whole
from zoo.common.tools.errors import unknown
from zoo.common.tools.files import replacing

#: Kinds of file, by the end of their name.
KINDS = ('.gif', '.webp', '.png', '.mp4')

#: Frames a second where the environment does not say.
FPS = 30

#: Of a GIF: its times are hundredths of a second, and what is faster than this is shown slowly by most viewers.
_MOST_FPS = 50


def check_path(path: str | os.PathLike[str]) -> Path:
    """The path of a video.

    Raises:
        ValueError: a kind of file that is not written.
        ImportError: an ``.mp4``, and what writes it is not installed.
    """
    found = Path(path).expanduser()
    if found.suffix.lower() not in KINDS:
        raise ValueError(f"'{path}': {unknown('kind of video', found.suffix, KINDS)}")
    if found.suffix.lower() == '.mp4':
        try:
            import imageio.v2  # noqa: F401
            import imageio_ffmpeg  # noqa: F401
        except ImportError as error:
            raise ImportError(
                f"an .mp4 needs ffmpeg: pip install 'zoo-rl[video]', or name a .gif ({error})."
            ) from error
    return found


def film(
    agent: Any,
    env: Env | VectorEnv,
    path: str | os.PathLike[str],
    episodes: int = 1,
    max_steps: int = 1000,
    seed: int | None = None,
    fps: float | None = None,
    deterministic: bool = True,
) -> Path:
    """Play episodes and write what is seen to a file.

    Args:
        agent: acts.
        env: one environment built with ``render_mode='rgb_array'``.
        path: the file: ``.gif``, ``.webp``, ``.png`` (an animated one) or, with ffmpeg, ``.mp4``.
        episodes: whole episodes, one after the other.
        max_steps: where it ends at the latest, in steps of all episodes together.
        seed: of the environment.
        fps: frames a second; None: as the environment has it.
        deterministic: the policy's mode rather than samples.

    Returns:
        The path.

    Raises:
        ValueError: another kind of file, several copies of an environment, or one that gives no pictures.
        ImportError: see :func:`check_path`.
    """
    found = check_path(path)
    if isinstance(env, VectorEnv):
        raise ValueError(f'{env.num_envs} copies cannot be filmed: build the environment with nenv=1.')
    if env.render_mode != 'rgb_array':
        raise ValueError(
            f"the environment has render_mode={env.render_mode!r}: build it with build_env(…, render_mode='rgb_array')."
        )
    episodes, max_steps = whole('episodes', episodes), whole('max_steps', max_steps)
    if fps is not None and not fps > 0:
        raise ValueError(f'fps is {fps!r}: give a number above 0.')
    frames = _played(agent, env, episodes, max_steps, seed, deterministic)
    return write(found, frames, fps or float(env.metadata.get('render_fps') or FPS))


def _played(
    agent: Any, env: Env, episodes: int, max_steps: int, seed: int | None, deterministic: bool
) -> Iterator[np.ndarray]:
    """What is seen of episodes, a picture at a time: many of them would not fit into memory."""
    steps = 0
    for episode in range(episodes):
        if steps >= max_steps:
            return
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        state = agent.initial_state()
        yield _picture(env)
        ended = False
        while not ended and steps < max_steps:
            action, state = agent.predict(observation, deterministic, state)
            observation, _, terminated, truncated, info = env.step(action)
            steps += 1
            yield _picture(env)
            ended = bool(terminated or truncated)
            if ended and info.get(LIFE_LOST):  # the game goes on
                observation, _ = env.reset()
                state = agent.initial_state()  # as in training and in tests
                ended = False


def _picture(env: Env) -> np.ndarray:
    frame: Any = env.render()
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise ValueError(f'the environment draws {type(frame).__name__} instead of a picture [height, width, 3].')
    return frame


def write(path: str | os.PathLike[str], frames: Iterable[np.ndarray], fps: float) -> Path:
    """Write pictures as a video, whole or not at all.

    Args:
        path: see :func:`film`; its folder is made if need be.
        frames: uint8 ``[height, width, 3]`` each, at least one; taken one by one.
        fps: frames a second. Of a GIF at most 50 are kept, of a faster one every second or third frame.
    """
    found = check_path(path)
    found.parent.mkdir(parents=True, exist_ok=True)
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
    # Of a GIF Pillow takes them one by one and keeps what changed; of the others it goes over them twice.
    others = pictures if path.suffix.lower() == '.gif' else list(pictures)
    first.save(path, save_all=True, append_images=others, duration=round(1000 * skip / fps), loop=0, optimize=False)
