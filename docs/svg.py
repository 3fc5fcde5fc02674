"""Pictures as SVG text: boxes, arrows and words on a white page, the same bytes every time.

Words that would stand on other words, or leave their box or the page, are refused: such a picture is never written.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

INK, GRAY, LINE = '#222222', '#666666', '#777777'
#: Fills with their edges. They differ in black and white too.
WHITE = ('#FFFFFF', '#333333')
BLUE = ('#CFE3F1', '#0072B2')
PALE = ('#EDF3F8', '#0072B2')
ORANGE = ('#F8E2D3', '#D55E00')
YELLOW = ('#F6E7C1', '#B27000')
GREEN = ('#D5EEE2', '#007A55')
PLAIN = ('#F1F1F1', '#999999')
DARK = ('#BDBDBD', '#555555')

#: Width of a character, in parts of the size of the type: of narrow, of wide and of other ones.
_NARROW, _WIDE = "iljtf.,:;|!'()[]r/ ", 'mwMWQO@—%'


def width_of(text: str, size: float, bold: bool = False, mono: bool = False) -> float:
    """Return the width of a line of text in DejaVu Sans, the widest of the usual fonts without serifs."""
    if mono:
        return len(text) * size * 0.62
    parts = sum(0.38 if c in _NARROW else 0.95 if c in _WIDE else 0.7 if c.isupper() else 0.62 for c in text)
    return parts * size * (1.1 if bold else 1.0)


class Picture:
    """One picture.

    Args:
        width, height: of the page, in pixels.
        title: read to those who do not see the picture.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._shapes: list[str] = []
        self._words: list[str] = []
        self._taken: list[tuple[float, float, float, float, str]] = []

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 13,
        anchor: str = 'middle',
        bold: bool = False,
        mono: bool = False,
        color: str = INK,
    ) -> None:
        """Write one line with its middle at the height ``y``.

        Raises:
            ValueError: it leaves the page or stands on another line.
        """
        width = width_of(text, size, bold, mono)
        left = x - {'start': 0.0, 'middle': width / 2, 'end': width}[anchor]
        here = (left, y - 0.42 * size, left + width, y + 0.42 * size)
        if here[0] < 0 or here[1] < 0 or here[2] > self.width or here[3] > self.height:
            raise ValueError(f'{text!r} leaves the page of {self.title!r}: {here}')
        for *other, words in self._taken:
            if here[0] < other[2] and other[0] < here[2] and here[1] < other[3] and other[1] < here[3]:
                raise ValueError(f'{text!r} stands on {words!r} in {self.title!r}')
        self._taken.append((*here, text))
        style = ' font-weight="bold"' if bold else ''
        style += ' font-family="Menlo, Consolas, monospace" xml:space="preserve"' if mono else ''
        self._words.append(
            f'<text x="{x:g}" y="{y + 0.35 * size:g}" font-size="{size:g}" text-anchor="{anchor}" '
            f'fill="{color}"{style}>{escape(text)}</text>'
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        lines: str | list[str] = '',
        fill: tuple[str, str] = PLAIN,
        size: float = 13,
        round_: float = 3,
        dashed: bool = False,
    ) -> None:
        """Draw a box with lines in its middle; the first of several is bold.

        Raises:
            ValueError: a line is wider than the box, or the lines are higher.
        """
        dashes = ' stroke-dasharray="4 3"' if dashed else ''
        self.shape(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_:g}" fill="{fill[0]}" '
            f'stroke="{fill[1]}"{dashes}/>'
        )
        lines = [lines] if isinstance(lines, str) else lines
        lines = [line for line in lines if line]
        step = size * 1.3
        if len(lines) * step > height + 4:
            raise ValueError(f'{lines} are too high for their box in {self.title!r}')
        for i, line in enumerate(lines):
            bold = i == 0 and len(lines) > 1
            if width_of(line, size, bold) > width:
                raise ValueError(f'{line!r} is too wide for its box in {self.title!r}')
            self.text(x + width / 2, y + height / 2 + (i - (len(lines) - 1) / 2) * step, line, size, bold=bold)

    def arrow(self, *points: tuple[float, float], color: str = LINE, dashed: bool = False, both: bool = False) -> None:
        """Draw an arrow through points."""
        path = ' '.join(f'{"L" if i else "M"}{x:g} {y:g}' for i, (x, y) in enumerate(points))
        style = ' stroke-dasharray="4 3"' if dashed else ''
        style += ' marker-start="url(#tip)"' if both else ''
        self.shape(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.4"{style} marker-end="url(#tip)"/>')

    def line(self, *points: tuple[float, float], color: str = LINE, width: float = 1.4, dashed: bool = False) -> None:
        """Draw a line through points."""
        path = ' '.join(f'{x:g},{y:g}' for x, y in points)
        style = ' stroke-dasharray="4 3"' if dashed else ''
        self.shape(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width:g}"{style}/>')

    def shape(self, element: str) -> None:
        """Draw any element of SVG, under all words."""
        self._shapes.append(element)

    def save(self, path: Path) -> None:
        """Write the picture."""
        tip = f'<path d="M0 0L8 4L0 8z" fill="{LINE}"/>'
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img" font-family="Helvetica, Arial, sans-serif">',
            f'<title>{escape(self.title)}</title>',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            f'orient="auto-start-reverse" markerUnits="userSpaceOnUse">{tip}</marker></defs>',
            f'<rect width="{self.width}" height="{self.height}" fill="#FFFFFF"/>',
        )
        text = '\n'.join([*head, *self._shapes, *self._words, '</svg>', ''])
        path.write_text(text, encoding='utf-8')
