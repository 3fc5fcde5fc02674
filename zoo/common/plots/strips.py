"""What an agent does, in a row of pictures."""

from __future__ import annotations

import os
import textwrap

import numpy as np
from gymnasium import Env

from zoo.common.envs.about import about
from zoo.common.plots.figures import INK, NotebookFigure, save, verbatim
from zoo.common.plots.playing import Moment, Plays, check_drawable, moments
from zoo.common.tools.checks import is_integer
from zoo.common.tools.errors import InvalidValue

#: Pictures in a row, and the width of the figure in inches.
_COLUMNS, _WIDTH = 6, 8.75
_CAPTION = 0.42  # below each picture, inches
_TITLE_WIDTH = 70  # characters in a line


def evaluation_strip(
    path: str | os.PathLike[str] | None,
    agent: Plays,
    env: Env,
    pictures: int = 6,
    title: str | None = None,
    seed: int | None = None,
    max_steps: int = 10_000,
) -> NotebookFigure:
    """Play an episode and draw moments of it, evenly spread from the first to the last.

    Args:
        path: the PNG to write (1050 pixels wide), its folder made if need be; None only makes the figure.
        agent: acts by ``predict``, without exploration.
        env: one environment built with ``render_mode='rgb_array'``; a new episode begins in it.
        pictures: the number of pictures, at least 2; an episode with fewer steps has fewer. Six stand in a row.
        title: above the pictures; None: the algorithm, the environment and the return of the episode.
        seed: the seed of the environment.
        max_steps: the steps after which the episode is cut.

    Raises:
        ValueError: several copies of an environment, an environment without pictures, or fewer than 2 pictures.
    """
    check_drawable(env)
    for name, value, least in (('pictures', pictures, 2), ('max_steps', max_steps, 1)):
        if not is_integer(value, least):
            raise InvalidValue(f'{name} is {value!r}: give an integer of at least {least}.')
    drawn = _spread(agent, env, pictures, seed, max_steps)
    last = drawn[-1]
    if title is None:
        how = 'steps' if last.ended else 'steps, cut there'
        title = f'{type(agent).__name__} on {about(env).name}: return {_number(last.total)} in {last.step:,} {how}'
    return _draw(path, drawn, title)


def _spread(agent: Plays, env: Env, pictures: int, seed: int | None, max_steps: int) -> list[Moment]:
    """So many moments of an episode, evenly spread, the first and the last among them."""
    found, every = list[Moment](), 1
    for moment in moments(agent, env, seed, max_steps):
        if moment.step % every == 0 or moment.ended or moment.step == max_steps:
            found.append(moment)
        if len(found) > 8 * pictures:  # a long episode is never in memory as a whole
            every *= 2
            found = [kept for kept in found if kept.step % every == 0 or kept is found[-1]]
    wanted = np.linspace(0, found[-1].step, min(pictures, len(found)))
    steps = np.array([moment.step for moment in found])
    places = {int(np.abs(steps - at).argmin()) for at in wanted}
    return [found[i] for i in sorted(places)]


def _number(value: float) -> str:
    return f'{value:,.5g}'.replace('-', '\N{MINUS SIGN}')


def _draw(path: str | os.PathLike[str] | None, moments: list[Moment], title: str) -> NotebookFigure:
    columns = min(_COLUMNS, len(moments))
    rows = -(-len(moments) // columns)
    height, width = moments[0].frame.shape[:2]
    # In inches: the pictures with their captions, and the title.
    cell = (_WIDTH - 0.2) / columns
    title = textwrap.fill(title, _TITLE_WIDTH)
    above = 0.15 + 0.25 * (1 + title.count('\n'))
    each = (cell - 0.1) * height / width + _CAPTION
    total = above + rows * each + 0.1
    figure = NotebookFigure(figsize=(_WIDTH, total), dpi=120)
    figure.text(0.15 / _WIDTH, 1 - 0.1 / total, verbatim(title), va='top', fontsize=12, fontweight='bold', color=INK)
    for i, (step, so_far, frame, _) in enumerate(moments):
        row, column = divmod(i, columns)
        left, bottom = 0.1 + column * cell + 0.05, total - above - (row + 1) * each
        place = left / _WIDTH, (bottom + _CAPTION) / total, (cell - 0.1) / _WIDTH, (each - _CAPTION) / total
        axes = figure.add_axes(place)
        axes.imshow(frame, aspect='auto')
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color('#999999')
        caption = 'start\n' if step == 0 else f'step {step:,}\nreturn {_number(so_far)}'
        axes.set_xlabel(caption, fontsize=8.5, color=INK, labelpad=3)
    save(figure, path)
    return figure
