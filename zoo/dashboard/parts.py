"""The small parts of the page: buttons, fields, cards."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as widgets


def box(*children: Any, kind: str = '') -> Any:
    """Return widgets in a box; the style sheet lays it out by its classes, ``kind``."""
    return _with_classes(widgets.Box(list(children)), kind)


def _with_classes(widget: Any, kind: str) -> Any:
    for name in kind.split():
        widget.add_class(name)
    return widget


def card(title: str, *children: Any) -> Any:
    return box(text(f'<h3>{html.escape(title)}</h3>', 'zoo-card-title'), *children, kind='zoo-card')


def text(value: str = '', kind: str = '') -> Any:
    """Return HTML; text of the user must be escaped in it."""
    return _with_classes(widgets.HTML(value), kind)


def button(label: str, do: Callable[[], Any], tooltip: str = '', kind: str = '', icon: str = '') -> Any:
    found = widgets.Button(description=label, tooltip=tooltip, icon=icon)
    found.on_click(lambda _: do())
    return _with_classes(found, f'zoo-button {kind}')


class Message:
    """A sentence on the page, beside the buttons that it is about."""

    def __init__(self) -> None:
        self.box = text(kind='zoo-message')
        self.said = ''

    def say(self, words: str, wrong: bool = False) -> None:
        """Show a sentence; an empty one shows nothing."""
        self.said = words
        kind, role = ('wrong', 'alert') if wrong else ('note', 'status')
        self.box.value = f'<p class="zoo-{kind}" role="{role}">{html.escape(words)}</p>' if words else ''


class Checked:
    """A field that marks a refused value, which stays in it, and shows the reason below.

    Attributes:
        label: its name on the page.
        refusal: the sentence that refuses what the field shows; empty if that is accepted.
    """

    def __init__(self, label: str, *widgets_: Any, kind: str) -> None:
        self.label = label
        self._words = text(kind='zoo-refusal')
        self.box = box(*widgets_, self._words, kind=kind)
        self.refusal = ''

    def refuse(self, sentence: str) -> None:
        """Show why the value is refused; an empty sentence takes the mark away."""
        self.refusal = sentence
        self._words.value = f'<p role="alert">{html.escape(sentence)}</p>' if sentence else ''
        (self.box.add_class if sentence else self.box.remove_class)('zoo-refused')


def labeled(label: str, widget: Any, meaning: str = '') -> Checked:
    """Return a field with its name above it."""
    told = f' title="{html.escape(meaning)}"' if meaning else ''
    name = text(f'<label{told}>{html.escape(label)}</label>', 'zoo-label')
    return Checked(label, name, widget, kind='zoo-field')


def picture(data: bytes, alt: str, kind: str = 'png') -> str:
    return f'<img alt="{html.escape(alt)}" src="data:image/{kind};base64,{base64.b64encode(data).decode()}">'


def choice(options: Mapping[str, Any], value: Any) -> Any:
    """Return a list to choose from. Its values are the labels, because a value None would mean no choice."""
    return widgets.Dropdown(options=list(options), value=label_of(options, value))


def label_of(options: Mapping[str, Any], value: Any) -> str:
    return next(label for label, option in options.items() if type(option) is type(value) and option == value)


def sentence(error: BaseException) -> str:
    """Return the first line of an error message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else f'{type(error).__name__}, without a word.'
