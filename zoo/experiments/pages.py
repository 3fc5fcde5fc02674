"""HTML pages that need no other file: pictures are in them."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def picture(figure: Figure, text: str) -> str:
    """Return a figure as an HTML image that says ``text`` where it is not shown."""
    file = io.BytesIO()
    figure.savefig(file, format='png')
    return image(file.getvalue(), text)


def image(png: bytes, text: str) -> str:
    """Return a PNG as an HTML image that says ``text`` where it is not shown."""
    return f'<p><img alt="{text}" src="data:image/png;base64,{base64.b64encode(png).decode()}"></p>'


def page(title: str, body: str) -> str:
    """Return a whole page of HTML."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><style>'
        'body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}'
        'table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .8rem;border-bottom:1px solid #ddd;'
        'text-align:right}td:first-child,th:first-child{text-align:left}caption{padding:.5rem 0}img{max-width:100%}'
        f'</style></head><body>{body}</body></html>\n'
    )
