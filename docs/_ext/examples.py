"""Behind each name of the reference: the pages whose programs use it."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from repository import DOCS, FOLDER
from sphinx.application import Sphinx


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


def uses(name: str, most: int = 3) -> list[tuple[str, str]]:
    """Return document and title of the pages whose programs use a name, those first that use it most."""
    word = re.compile(rf'(?<![\w.])(?:\w+\.)*{re.escape(name)}\b')
    counts = {page: len(word.findall(program)) for page, (_, program) in programs().items()}
    best = sorted((page for page in counts if counts[page]), key=lambda page: -counts[page])
    return [(page, programs()[page][0]) for page in best[:most]]


def add_examples(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Append the links to the docstring of a public function or class."""
    if what not in ('function', 'class', 'data', 'exception') or lines and lines[-1].startswith('*Examples:'):
        return
    found = uses(name.rpartition('.')[2])
    if found:
        links = ', '.join(f':doc:`{title} </{page}>`' for page, title in found)
        lines += ['', f'*Examples:* {links}', '']


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect('autodoc-process-docstring', add_examples, priority=900)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
