"""What all pictures share: figures without pyplot's global state, and how they are written."""

from __future__ import annotations

import io
import os
from pathlib import Path

from matplotlib.figure import Figure

from zoo.common.tools.files import place_for

#: The colors of text and of grids.
INK, GRID = '#333333', '#E6E6E6'


def verbatim(text: str) -> str:
    """Return a text that Matplotlib shows as it is.

    Else it would read mathematics between dollars, and leave a label that begins with an underscore out of a legend.
    """
    text = text.replace('$', r'\$')
    return f'\N{ZERO WIDTH SPACE}{text}' if text.startswith('_') else text


class NotebookFigure(Figure):
    """A figure that a notebook shows, even if pyplot was not imported first."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format='png')
        return picture.getvalue()


def save(figure: Figure, path: str | os.PathLike[str] | None) -> None:
    """Write a figure as a PNG, its folder made if need be; with None write nothing."""
    if path is not None:
        figure.savefig(place_for(Path(path), 'the picture'), format='png')
