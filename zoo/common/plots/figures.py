"""What all pictures share: figures without pyplot's global state, and how they are written."""

from __future__ import annotations

import io
import os
from pathlib import Path

from matplotlib.figure import Figure

#: Of text, and of what is behind it.
INK, GRID = '#333333', '#E6E6E6'


def verbatim(text: str) -> str:
    """A text as it is: Matplotlib takes what is between dollars for mathematics, and leaves out of a legend what begins
    with an underscore."""
    text = text.replace('$', r'\$')
    return f'\N{ZERO WIDTH SPACE}{text}' if text.startswith('_') else text


class NotebookFigure(Figure):
    """A figure that a notebook shows; of a plain one it shows the type, unless pyplot was imported first."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format='png')
        return picture.getvalue()


def save(figure: Figure, path: str | os.PathLike[str] | None) -> None:
    """Write a figure as a PNG, its folder made if need be; None: nowhere."""
    if path is not None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format='png')
