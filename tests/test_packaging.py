"""The distributions: the wheel has the library, the source distribution also has all that its tests need."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / 'pyproject.toml').read_text(encoding='utf-8')
IGNORED = (
    '.git',
    '.venv',
    'venv',
    'runs',
    'build',
    'dist',
    'curves',
    '_build',
    'repository',
    '.peers',
    '.rllib',
    '*.egg-info',
    '__pycache__',
    '.*_cache',
)

pytest.importorskip('flit_core', reason='flit_core builds the distributions')


@pytest.fixture(scope='module')
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str], str]:
    """Return the names in the source distribution, the names in the wheel made from it, and the wheel's metadata."""
    folder = tmp_path_factory.mktemp('built')
    shutil.copytree(ROOT, folder / 'tree', ignore=shutil.ignore_patterns(*IGNORED))
    for left in (
        'zoo/__pycache__/left.pyc',
        'tests/__pycache__/left.pyc',
        'benchmarks/results/curves/left.png',
        'benchmarks/runs/left.json',
        'docs/_build/left.html',
        'docs/repository/left.md',
    ):
        (folder / 'tree' / left).parent.mkdir(parents=True, exist_ok=True)
        (folder / 'tree' / left).touch()

    def build(kind: str, tree: Path) -> Path:
        code = f'from flit_core import buildapi; print(buildapi.build_{kind}({str(folder)!r}))'
        done = subprocess.run([sys.executable, '-c', code], cwd=tree, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return folder / done.stdout.split()[-1]

    with tarfile.open(build('sdist', folder / 'tree')) as archive:
        top = archive.getnames()[0].partition('/')[0]
        sources = {name.removeprefix(f'{top}/') for name in archive.getnames()}
        archive.extractall(folder / 'unpacked', filter='data')
    with zipfile.ZipFile(build('wheel', folder / 'unpacked' / top)) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith('/METADATA'))
        return sources, names, archive.read(metadata).decode()


#: A requirement, without the marker that says where it is needed.
REQUIREMENT = re.compile(r'"([A-Za-z][\w.-]*(?:\[[\w,]+\])?)((?:[<>=!~]=?[^";]+)?)(?:;[^"]*)?"')


def requirements() -> list[tuple[int, str, str]]:
    """Return each requirement of pyproject.toml: its line, its name and its bounds."""
    lines = PYPROJECT.splitlines()
    begin, end = lines.index('dependencies = ['), lines.index('[project.scripts]')
    return [
        (i, name, bounds)
        for i in range(begin, end)
        if not lines[i].lstrip().startswith('#')
        for name, bounds in REQUIREMENT.findall(lines[i])
        if not name.startswith('zoo-rl[')
    ]


def test_every_requirement_has_a_floor():
    found = requirements()
    assert {'tensorflow', 'mujoco', 'gymnasium[box2d]', 'ai-edge-litert', 'flit_core'} <= {name for _, name, _ in found}
    assert [name for _, name, bounds in found if not re.search('>=|==', bounds)] == []


def test_every_ceiling_has_its_reason_beside_it():
    """A comment above the line, or above the lines with ceilings before it."""
    lines = PYPROJECT.splitlines()
    capped = {i for i, _, bounds in requirements() if re.search('<|==|~=', bounds)}
    assert len(capped) >= 5
    for i in sorted(capped):
        above = i - 1
        while above in capped:
            above -= 1
        assert lines[above].lstrip().startswith('#'), f'no reason for {lines[i].strip()}'


def files(*folders: str) -> set[str]:
    """Return the files of this tree in some folders."""
    paths = (path for folder in folders for path in (ROOT / folder).rglob('*') if path.is_file())
    names = {path.relative_to(ROOT).as_posix() for path in paths if not path.match('*.py[cod]')}
    return {name for name in names if not name.startswith(('docs/_build/', 'docs/repository/'))}


def test_the_source_distribution_has_what_its_tests_need(built):
    sources, _, _ = built
    wanted = files('zoo', 'tests', 'examples', 'notebooks', 'docs', '.ci') | {
        str(path.relative_to(ROOT)) for path in ROOT.glob('*.md')
    }
    wanted |= {'LICENSE', 'pyproject.toml', 'zoo/py.typed', 'tests/support/toys.py'}
    wanted |= {'benchmarks/common.py', *files('benchmarks/speed', 'benchmarks/scores', 'benchmarks/scale')}
    assert wanted - sources == set()
    assert {name for name in sources if 'results/curves' in name or '/left.' in name} == set()


def test_the_wheel_has_the_library_alone(built):
    _, names, metadata = built
    library = {name for name in names if '.dist-info/' not in name}
    assert library == files('zoo')
    assert {'zoo/py.typed', 'zoo/agents/trained/PPO/CartPole-v1/card.json'} <= library
    assert 'Classifier: Typing :: Typed' in metadata
