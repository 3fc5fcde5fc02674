"""What the pages of the reference have besides docstrings.

* Behind each name stand the pages whose programs use it, or else the pages that explain it.
* An algorithm has the first part of its docstring and a link to its page, which has the parameters.
* The directive ``commands`` prints the help of every command.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Any
from unittest.mock import patch

from docutils import nodes
from repository import DOCS, FOLDER
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


@cache
def pages() -> dict[str, tuple[str, str, str]]:
    """Return title, whole text and Python of each page that explains something, by the name of the document."""
    found = {}
    for path in sorted(DOCS.rglob('*.md')):
        name = path.relative_to(DOCS).with_suffix('').as_posix()
        text = path.read_text(encoding='utf-8')
        title = re.search(r'^# (.+)$', text, re.MULTILINE)
        if title and not name.startswith((f'{FOLDER}/', 'reference/', 'development/', '_')):
            blocks = re.findall(r'^```(?:python|py)\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
            found[name] = (title[1].replace('`', ''), text, '\n'.join(blocks))
    return found


def ranked(pattern: str, counts_in: int) -> list[tuple[str, str]]:
    """Return document and title of the three pages in which a pattern occurs most; ``counts_in`` indexes a page."""
    counts = {name: len(re.findall(pattern, page[counts_in])) for name, page in pages().items()}
    best = sorted((name for name in counts if counts[name]), key=lambda name: -counts[name])
    return [(name, pages()[name][0]) for name in best[:3]]


def mentions(name: str) -> list[tuple[str, str]]:
    """Return document and title of the pages that name something in the type of code."""
    return ranked(rf'`[^`\n]*\b{re.escape(name)}\b[^`\n]*`', 1)


def uses(name: str) -> list[tuple[str, str]]:
    """Return document and title of the pages whose programs use a name."""
    return ranked(rf'(?<![\w.])(?:\w+\.)*{re.escape(name)}\b', 2)


def shorten_algorithms(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Leave the parameters of an algorithm to its page."""
    from zoo import algorithms

    alg = name.rpartition('.')[2]
    if name == f'zoo.algorithms.{alg}' and alg in algorithms.NAMES:
        end = next(
            (i for i, line in enumerate(lines) if line.startswith((':param', 'Args:', 'Entries of'))), len(lines)
        )
        lines[end:] = [f'*Parameters, equations and scores:* :doc:`{alg} </algorithms/{alg.lower()}>`', '']


def add_examples(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Append the links to the docstring of a public function or class."""
    if what not in ('function', 'class', 'data', 'exception'):
        return
    word = name.rpartition('.')[2]
    for label, found in (('Examples', uses(word)), ('Explained in', mentions(word))):
        if found:
            links = ', '.join(f':doc:`{title} </{page}>`' for page, title in found)
            lines += ['', f'*{label}:* {links}', '']
            break


class Commands(SphinxDirective):
    """The help of every command, as it is printed at a width of 80."""

    def run(self) -> list[nodes.Node]:
        from zoo.cli.entry import build_parser

        found: list[nodes.Node] = []
        with patch.dict(os.environ, COLUMNS='80', NO_COLOR='1'):
            for name, parser in build_parser()[1].items():
                section = nodes.section(ids=[f'zoo-{name}'])
                section += nodes.title('', '', nodes.literal('', f'zoo {name}'))
                text = parser.format_help()
                section += nodes.literal_block(text, text, language='none')
                found.append(section)
        return found


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive('commands', Commands)
    app.connect('autodoc-process-docstring', shorten_algorithms, priority=800)
    app.connect('autodoc-process-docstring', add_examples, priority=900)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
