"""The documentation site: it is built without a warning, is whole, and answers the questions of newcomers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote, unquote

import pytest
from browsing import browser, needs_browser, until

import zoo
from zoo import algorithms

ROOT = Path(__file__).parents[1]
DOCS = ROOT / 'docs'

pytestmark = pytest.mark.full


@pytest.fixture(scope='module')
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A copy of the repository is built, so that runs at the same time do not meet."""
    pytest.importorskip('sphinx')
    folder = tmp_path_factory.mktemp('site')
    files = subprocess.run(['git', 'ls-files', '-z'], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, files.split('\0')):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    built = folder / 'docs' / '_build' / 'html'
    command = [sys.executable, '-m', 'sphinx', '-q', '-W', '--keep-going', '-b', 'html', 'docs', str(built)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ | {'PYTHONPATH': ''})
    assert done.returncode == 0, done.stderr[-5000:]
    return built


class Links(HTMLParser):
    """What a page links to, and where one can link to in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding='utf-8'))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ('id', 'name') and value:
                self.anchors.add(value)
            elif (
                name in ('href', 'src') and value and '://' not in value and not value.startswith(('mailto:', 'data:'))
            ):
                self.links.add(value)


def test_every_link_leads_somewhere(site: Path):
    pages = {page: Links(page) for page in site.rglob('*.html')}
    broken = []
    for page, found in pages.items():
        for link in found.links:
            path, _, anchor = unquote(link).partition('#')
            target = (page.parent / path.partition('?')[0]).resolve() if path else page
            if not target.exists():
                broken.append(f'{page.relative_to(site)}: {link}')
            elif anchor and target in pages and anchor not in pages[target].anchors:
                broken.append(f'{page.relative_to(site)}: {link}')
    assert broken == []


def public_names() -> list[str]:
    """What users import, without names that only warn, modules, and the version."""
    listed = (ROOT / 'tests' / 'interface' / 'import_paths.txt').read_text(encoding='utf-8').splitlines()
    names = {line for line in listed if line and '#' not in line}
    names |= {f'zoo.{name}' for name in zoo.__all__} | {f'zoo.algorithms.{name}' for name in algorithms.NAMES}
    return sorted(name for name in names if not name.endswith('__version__') and not is_module(name))


def is_module(name: str) -> bool:
    return any((ROOT / f'{name.replace(".", "/")}{end}').exists() for end in ('.py', '/__init__.py')) or name in (
        'zoo.plots',
    )


#: The same object has an entry under its other path.
ELSEWHERE = {
    'zoo.common.env_wrappers.build_env': 'zoo.build_env',
    'zoo.common.env_wrappers.list_envs': 'zoo.list_envs',
    'zoo.common.utils.call_default_params': 'zoo.call_default_params',
    'zoo.common.schedules.Linear': 'zoo.Linear',
    'zoo.common.plots.evaluation_strip': 'zoo.plots.evaluation_strip',
    'zoo.common.plots.learning_curve': 'zoo.plots.learning_curve',
    'zoo.common.plots.network_diagram': 'zoo.plots.network_diagram',
}


def test_every_public_name_is_in_the_reference_with_an_example(site: Path):
    described: dict[str, str] = {}
    for page in (site / 'reference').glob('*.html'):
        text = page.read_text(encoding='utf-8')
        parts = re.split(r'<dt class="sig sig-object py" id="([^"]+)">', text)
        described |= dict(zip(parts[1::2], parts[2::2], strict=True))
    missing = [name for name in public_names() if ELSEWHERE.get(name, name) not in described]
    assert missing == []
    # A class has its examples behind its members.
    without = []
    for name in public_names():
        name = ELSEWHERE.get(name, name)
        text = ''.join(part for key, part in described.items() if key == name or key.startswith(f'{name}.'))
        signs = ('<em>Examples:</em>', '<em>Explained in:</em>', '<em>Parameters, equations', '&gt;&gt;&gt;')
        if not any(sign in text for sign in signs):
            without.append(name)
    assert without == []


def questions() -> list[tuple[str, str]]:
    """What is typed into the search, and the page that has to come first or second."""
    text = (DOCS / 'development' / 'questions.md').read_text(encoding='utf-8')
    rows = re.findall(r'^\| [^|]+ \| `([^`]+)` \| \[[^\]]+\]\(([^)#]+)\.md[^)]*\) \|', text, re.MULTILINE)
    return [(typed, os.path.normpath(os.path.join('development', page))) for typed, page in rows]


@pytest.fixture(scope='module')
def address(site: Path) -> Iterator[str]:
    """The address of a server of the site."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing of each request."""

    server = ThreadingHTTPServer(('127.0.0.1', 0), partial(Quiet, directory=str(site)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f'http://127.0.0.1:{server.server_port}'
    server.shutdown()
    thread.join()


@needs_browser
def test_the_search_answers_the_questions_of_newcomers(address: str, tmp_path: Path):
    asked = questions()
    assert len(asked) >= 20
    wrong = []
    with browser(tmp_path) as driver:
        for typed, page in asked:
            driver.get(f'{address}/search.html?q={quote(typed)}')
            found = until(lambda: driver.execute_script(FOUND), f'results for {typed!r}')
            if page not in found[:2]:
                wrong.append(f'{typed!r}: {found[:4]}, not {page}')
    assert wrong == []


#: The pages that a search has found, in order, once it has ended.
FOUND = """
const status = document.querySelector('#search-results .search-summary');
if (!status || !/found|did not match/.test(status.innerText)) return null;
return [...document.querySelectorAll('#search-results ul.search > li > a')]
    .map(a => new URL(a.href).pathname.slice(1).replace(/\\.html$/, ''));
"""


@needs_browser
@pytest.mark.parametrize('width', [400, 1280])
def test_no_page_is_wider_than_the_window(width: int, site: Path, address: str, tmp_path: Path):
    wide = []
    with browser(tmp_path) as driver:
        driver.execute_cdp_cmd(
            'Emulation.setDeviceMetricsOverride',
            {'width': width, 'height': 900, 'deviceScaleFactor': 1, 'mobile': False},
        )
        for page in sorted(site.rglob('*.html')):
            name = page.relative_to(site).as_posix()
            if name.startswith(('source/', 'repository/benchmarks/results/curves/')):
                continue
            driver.get(f'{address}/{name}')
            taken = driver.execute_script('return document.documentElement.scrollWidth')
            if taken > width:
                wide.append(f'{name}: {taken}')
    assert wide == []
