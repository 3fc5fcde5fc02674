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
def programs() -> dict[str, tuple[str, str]]:
    """Return title and Python of each page that has some, by the name of the document."""
    found = {}
    for path in sorted(DOCS.rglob('*.md')):
        name = path.relative_to(DOCS).with_suffix('').as_posix()
        if name.startswith((f'{FOLDER}/', 'reference/', '_')):
            continue
        text = path.read_text(encoding='utf-8')
        blocks = re.findall(r'^```(?:python|py)\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
        title = re.search(r'^# (.+)$', text, re.MULTILINE)
        if blocks and title:
            found[name] = (title[1].replace('`', ''), '\n'.join(blocks))
    return found


@cache
def texts() -> dict[str, tuple[str, str]]:
    """Return title and whole text of each page, by the name of the document."""
    found = {}
    for path in sorted(DOCS.rglob('*.md')):
        name = path.relative_to(DOCS).with_suffix('').as_posix()
        text = path.read_text(encoding='utf-8')
        title = re.search(r'^# (.+)$', text, re.MULTILINE)
        if title and not name.startswith((f'{FOLDER}/', 'reference/', 'development/', '_')):
            found[name] = (title[1].replace('`', ''), text)
    return found


def mentions(name: str, most: int = 3) -> list[tuple[str, str]]:
    """Return document and title of the pages that name something in the type of code, those first that do it most."""
    word = re.compile(rf'`[^`\n]*\b{re.escape(name)}\b[^`\n]*`')
    counts = {page: len(word.findall(text)) for page, (_, text) in texts().items()}
    best = sorted((page for page in counts if counts[page]), key=lambda page: -counts[page])
    return [(page, texts()[page][0]) for page in best[:most]]


def uses(name: str, most: int = 3) -> list[tuple[str, str]]:
    """Return document and title of the pages whose programs use a name, those first that use it most."""
    word = re.compile(rf'(?<![\w.])(?:\w+\.)*{re.escape(name)}\b')
    counts = {page: len(word.findall(program)) for page, (_, program) in programs().items()}
    best = sorted((page for page in counts if counts[page]), key=lambda page: -counts[page])
    return [(page, programs()[page][0]) for page in best[:most]]


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
