"""Links from the documentation into the repository.

Pages write a link to a file as Markdown does everywhere: ``[ppo.py](../../zoo/algorithms/ppo.py)``. On the site such a
link leads

* to a page, where the file is one of ``COPIED``: these Markdown files live elsewhere in the repository and are pages of
  the site too, below ``repository/``;
* to a source page with numbered lines, for every other file. Only files that some page links to have a source page.

Every class and function of the reference also has a link to its source.
"""

from __future__ import annotations

import html
import importlib
import inspect
import os
import posixpath
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
DOCS = ROOT / 'docs'
FOLDER = 'repository'

#: Patterns of the Markdown files outside ``docs/`` that are pages of the site, and of their pictures.
COPIED = (
    'CONTRIBUTING.md',
    'CHANGELOG.md',
    'examples/distributed/README.md',
    'benchmarks/results/*.md',
    'benchmarks/results/*.png',
    'zoo/agents/trained/*/*/README.md',
    'benchmarks/results/curves/*.md',
    'benchmarks/results/curves/*.png',
)

#: Hundreds of pages with a curve for each seed, or a card, would bury the other results of a search.
UNSEARCHED = '---\norphan: true\nnosearch: true\n---\n\n'

_LINK = re.compile(r'(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))')


def files() -> list[str]:
    """Return the paths of all copied files, from the root of the repository."""
    return sorted(str(path.relative_to(ROOT)) for pattern in COPIED for path in ROOT.glob(pattern))


def copy_pages(app: Sphinx) -> None:
    """Bring ``docs/repository`` up to date: only files that changed are written, so that only they are read again."""
    folder = DOCS / FOLDER
    wanted = {folder / name: ROOT / name for name in files()}
    for old in [path for path in folder.rglob('*') if path.is_file() and path not in wanted]:
        old.unlink()
    for new, source in wanted.items():
        content = source.read_bytes()
        if source.match('curves/*.md') or source.match('trained/*/*/README.md'):
            content = UNSEARCHED.encode() + content
        if not new.exists() or new.read_bytes() != content:
            new.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(content)


def resolve(link: str, fragment: str, page: str, copied: set[str]) -> str:
    """Return where a link of a page leads on the site.

    Args:
        link: the path in the link, relative to the page.
        fragment: the rest of it, with its ``#``.
        page: the path of the page from the root of the repository.
        copied: the paths of all copied files.
    """
    if ':' in link or link.startswith('/'):
        return link + fragment
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    if not (ROOT / path).exists() or (path.startswith('docs/') and page.startswith('docs/')):
        return link + fragment
    if path.startswith('docs/'):
        return path.removeprefix('docs') + fragment
    if path in copied:
        return f'/{FOLDER}/{path}{fragment}'
    return f'/index.md{fragment}' if path == 'README.md' else f'source:{path}{fragment}'


def rewrite_links(app: Sphinx, docname: str, content: list[str]) -> None:
    """Make the links of a page into links of the site."""
    inside = docname.startswith(f'{FOLDER}/')
    page = docname.removeprefix(f'{FOLDER}/') + '.md' if inside else f'docs/{docname}.md'
    copied = set(files())
    # A link in a fenced block is text.
    parts = re.split(r'(^(`{3,})[^\n]*\n.*?^\2`*$)', content[0], flags=re.DOTALL | re.MULTILINE)
    for i in range(0, len(parts), 3):
        parts[i] = _LINK.sub(lambda found: resolve(found[1], found[2] or '', page, copied), parts[i])
    content[0] = ''.join(part for i, part in enumerate(parts) if i % 3 != 2)


def link_sources(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make each ``source:`` link lead to the source page."""
    if app.builder.format != 'html':
        return
    for node in doctree.findall(nodes.reference):
        uri = node.get('refuri', '')
        if uri.startswith('source:'):
            path, _, line = uri.removeprefix('source:').partition('#')
            app.linked_sources.add(path)  # type: ignore[attr-defined]
            page = posixpath.relpath(f'source/{path}.html', posixpath.dirname(docname) or '.')
            node['refuri'] = f'{page}#{line}' if line else page
            node['internal'] = True


def add_source_links(app: Sphinx, doctree: nodes.document) -> None:
    """Put a link to its source behind each class and function of the reference."""
    for description in doctree.findall(addnodes.desc):
        if description.get('domain') != 'py':
            continue
        for signature in description.findall(addnodes.desc_signature):
            found = place_of(signature.get('module'), signature.get('fullname'))
            if found and signature.parent is description:
                link = nodes.reference('', '', refuri=f'source:{found[0]}#L-{found[1]}', classes=['source-link'])
                link += nodes.inline('', '[source]', classes=['viewcode-link'])
                signature += link


def place_of(module: str | None, name: str | None) -> tuple[str, int] | None:
    """Return the file, from the root of the repository, and the line of an object; None for data."""
    try:
        found: Any = importlib.import_module(module or '')
        for part in (name or '').split('.'):
            found = getattr(found, part)
        found = inspect.unwrap(getattr(found, 'fget', None) or found)
        file, line = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
    except (ImportError, AttributeError, TypeError, ValueError, OSError):
        return None
    path = Path(file or '').absolute()
    return (str(path.relative_to(ROOT)), line) if path.is_relative_to(ROOT) else None


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Make a page of each file, and of each folder, that some page links to."""
    formatter = HtmlFormatter(linenos='inline', lineanchors='L', anchorlinenos=True)
    for name in sorted(app.linked_sources):  # type: ignore[attr-defined]
        path = ROOT / name
        if path.is_dir():
            entries = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith(('.', '_')))
            body = ''.join(f'<li><code>{html.escape(entry)}</code></li>' for entry in entries)
            body = f'<ul>{body}</ul>'
        else:
            text = path.read_text(encoding='utf-8')
            try:
                lexer = get_lexer_for_filename(name)
            except ClassNotFound:
                lexer = TextLexer()
            body = highlight(text, lexer, formatter)
        title = f'<code>{html.escape(name)}</code>'
        yield f'source/{name}', {'title': name, 'body': f'<h1>{title}</h1>{body}', 'parents': []}, 'page.html'


def clean(app: Sphinx) -> None:
    """Begin without links; drop an empty folder of an earlier build."""
    app.linked_sources = set()  # type: ignore[attr-defined]
    if (DOCS / FOLDER).exists() and not os.listdir(DOCS / FOLDER):
        shutil.rmtree(DOCS / FOLDER)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect('builder-inited', clean)
    app.connect('builder-inited', copy_pages)
    app.connect('source-read', rewrite_links)
    app.connect('doctree-read', add_source_links)
    app.connect('doctree-resolved', link_sources)
    app.connect('html-collect-pages', source_pages)
    return {'parallel_read_safe': True, 'parallel_write_safe': False}
