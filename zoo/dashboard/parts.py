"""The small parts of the page: buttons, fields, cards."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as widgets


def box(*children: Any, kind: str = '') -> Any:
    """Return widgets in a box; the style sheet lays it out by its classes, ``kind``."""
    found = widgets.Box(list(children))
    for name in kind.split():
        found.add_class(name)
    return found


def card(title: str, *children: Any, kind: str = '') -> Any:
    """Return a part of the page with its title."""
    head = text(f'<h3>{html.escape(title)}</h3>', 'zoo-card-title')
    return box(head, *children, kind=f'zoo-card {kind}')


def text(value: str = '', kind: str = '') -> Any:
    """Return HTML; text of the user must be escaped in it."""
    found = widgets.HTML(value)
    for name in kind.split():
        found.add_class(name)
    return found


def button(label: str, do: Callable[[], Any], tooltip: str = '', kind: str = '', icon: str = '') -> Any:
    """Return a button that calls ``do``."""
    found = widgets.Button(description=label, tooltip=tooltip, icon=icon)
    found.add_class('zoo-button')
    for name in kind.split():
        found.add_class(name)
    found.on_click(lambda _: do())
    return found


def labelled(label: str, widget: Any, meaning: str = '') -> Any:
    """Return a field with its name above it."""
    told = f' title="{html.escape(meaning)}"' if meaning else ''
    return box(text(f'<label{told}>{html.escape(label)}</label>', 'zoo-label'), widget, kind='zoo-field')


def picture(data: bytes, alt: str, kind: str = 'png') -> str:
    """Return a picture as HTML."""
    encoded = base64.b64encode(data).decode()
    return f'<img alt="{html.escape(alt)}" src="data:image/{kind};base64,{encoded}">'


def choice(options: Mapping[str, Any], value: Any) -> Any:
    """Return a list to choose from. Its values are the labels, because a value None would mean no choice."""
    return widgets.Dropdown(options=list(options), value=label_of(options, value))


def label_of(options: Mapping[str, Any], value: Any) -> str:
    """Return the label of a value."""
    return next(label for label, option in options.items() if type(option) is type(value) and option == value)


def sentence(error: BaseException) -> str:
    """Return the first line of an error message."""
    told = str(error).strip()
    lines = [line for line in told.splitlines() if line.strip()]
    return lines[0] if lines else f'{type(error).__name__}, without a word.'
