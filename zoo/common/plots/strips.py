"""What an agent does, in a row of pictures."""

from __future__ import annotations

import os
import textwrap
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common.envs.answers import LIFE_LOST
from zoo.common.plots.figures import INK, NotebookFigure, save, verbatim

#: Pictures in a row, and the width of the figure in inches.
_COLUMNS, _WIDTH = 6, 8.75
_CAPTION = 0.42  # below each picture, inches
_TITLE_WIDTH = 70  # characters in a line


def evaluation_strip(
    path: str | os.PathLike[str] | None,
    agent: Any,
    env: Env,
    pictures: int = 6,
    title: str | None = None,
    seed: int | None = None,
    max_steps: int = 10_000,
) -> NotebookFigure:
    """Plays an episode and draws moments of it, evenly spread from its first one to its last.

    Args:
        path: the PNG to write (1050 pixels wide), its folder made if need be; None only makes the figure.
        agent: acts by ``predict``, without exploration.
        env: one environment built with ``render_mode='rgb_array'``; a new episode begins in it.
        pictures: how many, at least 2; fewer where the episode has fewer steps. Six stand in a row.
        title: above the pictures; None: the algorithm, the environment and the episode's return.
        seed: of the environment.
        max_steps: where the episode is cut.

    Returns:
        The figure, which a notebook shows.

    Raises:
        ValueError: several copies of an environment, one that gives no pictures, or fewer than 2 of them.
    """
    if isinstance(env, VectorEnv):
        raise ValueError(f'{env.num_envs} copies of an environment have no one episode: build it with nenv=1.')
    if env.render_mode != 'rgb_array':
        raise ValueError(
            f"the environment has render_mode={env.render_mode!r}: build it with build_env(…, render_mode='rgb_array')."
        )
    for name, value, least in (('pictures', pictures, 2), ('max_steps', max_steps, 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f'{name} is {value!r}: give a whole number of at least {least}.')
    moments, ended = _moments(agent, env, pictures, seed, max_steps)
    last, total, _ = moments[-1]
    if title is None:
        name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        how = 'steps' if ended else 'steps, cut there'
        title = f'{type(agent).__name__} on {name}: return {_number(total)} in {last:,} {how}'
    return _draw(path, moments, title)


def _moments(agent: Any, env: Env, pictures: int, seed: int | None, max_steps: int) -> tuple[list[Any], bool]:
    """``(step, return so far, frame)`` of as many moments, and whether the episode ended by itself."""
    obs, _ = env.reset(seed=seed)
    state, total, step, ended = agent.initial_state(), 0.0, 0, False
    found, every = [(0, 0.0, _frame(env))], 1
    while not ended and step < max_steps:
        action, state = agent.predict(obs, state=state)
        obs, reward, terminated, truncated, info = env.step(action)
        total, step, ended = total + float(reward), step + 1, bool(terminated or truncated)
        if ended and info.get(LIFE_LOST):  # the game goes on
            obs, _ = env.reset()
            state, ended = agent.initial_state(), False
        if step % every == 0 or ended or step == max_steps:
            found.append((step, total, _frame(env)))
        if len(found) > 8 * pictures:  # a long episode is never in memory as a whole
            every *= 2
            found = [moment for moment in found if moment[0] % every == 0 or moment is found[-1]]
    wanted = np.linspace(0, found[-1][0], min(pictures, len(found)))
    steps = np.array([moment[0] for moment in found])
    places = {int(np.abs(steps - at).argmin()) for at in wanted}
    return [found[i] for i in sorted(places)], ended


def _frame(env: Env) -> np.ndarray:
    frame: Any = env.render()
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise ValueError(f'the environment draws {type(frame).__name__} instead of a picture [height, width, 3].')
    return frame.copy()  # some draw into the same array again


def _number(value: float) -> str:
    return f'{value:,.5g}'.replace('-', '\N{MINUS SIGN}')


def _draw(path: str | os.PathLike[str] | None, moments: list[Any], title: str) -> NotebookFigure:
    columns = min(_COLUMNS, len(moments))
    rows = -(-len(moments) // columns)
    height, width = moments[0][2].shape[:2]
    # In inches: the pictures with their captions, and the title.
    cell = (_WIDTH - 0.2) / columns
    title = textwrap.fill(title, _TITLE_WIDTH)
    above = 0.15 + 0.25 * (1 + title.count('\n'))
    each = (cell - 0.1) * height / width + _CAPTION
    total = above + rows * each + 0.1
    figure = NotebookFigure(figsize=(_WIDTH, total), dpi=120)
    figure.text(0.15 / _WIDTH, 1 - 0.1 / total, verbatim(title), va='top', fontsize=12, fontweight='bold', color=INK)
    for i, (step, so_far, frame) in enumerate(moments):
        row, column = divmod(i, columns)
        left, bottom = 0.1 + column * cell + 0.05, total - above - (row + 1) * each
        axes = figure.add_axes(
            (left / _WIDTH, (bottom + _CAPTION) / total, (cell - 0.1) / _WIDTH, (each - _CAPTION) / total)
        )
        axes.imshow(frame, aspect='auto')
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color('#999999')
        caption = 'start\n' if step == 0 else f'step {step:,}\nreturn {_number(so_far)}'
        axes.set_xlabel(caption, fontsize=8.5, color=INK, labelpad=3)
    save(figure, path)
    return figure
