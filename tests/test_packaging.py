"""The distributions: the wheel has the library, the source distribution also has all that its tests need."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import setuptools

ROOT = Path(__file__).parents[1]
IGNORED = (
    '.git',
    '.venv',
    'venv',
    'runs',
    'build',
    'dist',
    'curves',
    '.peers',
    '.rllib',
    '*.egg-info',
    '__pycache__',
    '.*_cache',
)

if int(setuptools.__version__.partition('.')[0]) < 77:
    pytest.skip(
        f'the distributions are built by setuptools 77 or newer, not {setuptools.__version__}', allow_module_level=True
    )


@pytest.fixture(scope='module')
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str], str]:
    """Return the names in the source distribution, the names in the wheel made from it, and the wheel's metadata."""
    folder = tmp_path_factory.mktemp('built')
    shutil.copytree(ROOT, folder / 'tree', ignore=shutil.ignore_patterns(*IGNORED))

    def build(kind: str, tree: Path) -> Path:
        code = f'from setuptools import build_meta; print(build_meta.build_{kind}({str(folder)!r}))'
        done = subprocess.run([sys.executable, '-c', code], cwd=tree, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return folder / done.stdout.split()[-1]

    with tarfile.open(build('sdist', folder / 'tree')) as archive:
        top = archive.getnames()[0]
        sources = {name.removeprefix(f'{top}/') for name in archive.getnames()}
        archive.extractall(folder / 'unpacked', filter='data')
    with zipfile.ZipFile(build('wheel', folder / 'unpacked' / top)) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith('/METADATA'))
        return sources, names, archive.read(metadata).decode()


def files(*folders: str) -> set[str]:
    """Return the files of this tree in some folders."""
    paths = (path for folder in folders for path in (ROOT / folder).rglob('*') if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in paths if not path.match('*.py[cod]')}


def test_the_source_distribution_has_what_its_tests_need(built):
    sources, _, _ = built
    wanted = files('zoo', 'tests', 'examples', 'notebooks', 'docs', '.ci') | {
        str(path.relative_to(ROOT)) for path in ROOT.glob('*.md')
    }
    wanted |= {'LICENSE', 'MANIFEST.in', 'pyproject.toml', 'setup.py', 'zoo/py.typed', 'tests/support/toys.py'}
    wanted |= {'benchmarks/common.py', *files('benchmarks/speed', 'benchmarks/scores', 'benchmarks/scale')}
    assert wanted - sources == set()
    assert {name for name in sources if 'results/curves' in name or name.endswith('.pyc')} == set()


def test_the_wheel_has_the_library_alone(built):
    _, names, metadata = built
    library = {name for name in names if '.dist-info/' not in name}
    assert library == files('zoo')
    assert 'zoo/py.typed' in library
    assert 'Classifier: Typing :: Typed' in metadata
