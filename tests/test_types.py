"""What type checkers see of zoo where it was installed as README says: a program's wrong lines, and no others."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

import zoo
import zoo.distributed

ROOT = Path(zoo.__file__).parents[1]
PROGRAM = Path(__file__).parent / 'support' / 'typed_program.py'

#: The environment of a user: the repository is nowhere but in what was installed.
BARE = {name: value for name, value in os.environ.items() if name not in ('PYTHONPATH', 'MYPYPATH')}


@pytest.fixture(scope='module')
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the interpreter of a virtual environment with README's ``pip install -e .``.

    The environment takes its packages from this interpreter, so nothing is downloaded.
    """
    pytest.importorskip('flit_core', reason='flit_core installs zoo')
    folder = tmp_path_factory.mktemp('installed')
    builder = venv.EnvBuilder(symlinks=os.name != 'nt')
    builder.create(folder)
    python = builder.ensure_directories(folder).env_exe
    paths = [path for path in sys.path if Path(path).name in ('site-packages', 'dist-packages')]
    code = 'import sysconfig; print(sysconfig.get_path("purelib"))'
    site = subprocess.run([python, '-c', code], capture_output=True, text=True, check=True).stdout.strip()
    Path(site, 'zz_around.pth').write_text('\n'.join(paths), encoding='utf-8')  # behind zoo's own path
    command = [
        sys.executable,
        '-m',
        'pip',
        '--python',
        python,
        'install',
        '--no-deps',
        '--no-build-isolation',
        '-e',
        ROOT,
    ]
    done = subprocess.run(command, env=BARE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return python


@pytest.mark.parametrize(
    'command',
    [['mypy', '--python-executable'], ['basedpyright', '--level=error', '--pythonpath']],
    ids=['mypy', 'pyright'],
)
def test_type_checkers_report_the_wrong_lines_and_no_others(installed: str, command: list[str], tmp_path: Path):
    shutil.copy(PROGRAM, tmp_path / 'program.py')
    (tmp_path / 'pyrightconfig.json').write_text(json.dumps({'typeCheckingMode': 'standard'}), encoding='utf-8')
    done = subprocess.run(
        [sys.executable, '-m', *command, installed, 'program.py'],
        cwd=tmp_path,
        env=BARE,
        capture_output=True,
        text=True,
    )
    found = {int(line) for line in re.findall(r'program\.py:(\d+):.*error', done.stdout)}
    lines = PROGRAM.read_text(encoding='utf-8').splitlines()
    assert found == {i for i, line in enumerate(lines, 1) if '# wrong' in line}, done.stdout + done.stderr


def known_to_checkers(module: Any) -> dict[str, str]:
    """Return the names that a package imports for type checkers alone, each with the module that it is from."""
    tree = ast.parse(Path(module.__file__).read_text(encoding='utf-8'))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == 'TYPE_CHECKING')
    imported = [(node.module, item) for node in block.body if isinstance(node, ast.ImportFrom) for item in node.names]
    assert all(item.asname == item.name for _, item in imported)  # otherwise the name is not handed on
    return {item.name: str(home) for home, item in imported}


@pytest.mark.parametrize(
    'module', [zoo, zoo.algorithms, zoo.algorithms.base, zoo.distributed], ids=lambda m: m.__name__
)
def test_type_checkers_know_every_name_that_is_imported_when_asked_for(module: Any):
    """A type checker does not run ``__getattr__``: it reads the imports under ``TYPE_CHECKING``."""
    known = known_to_checkers(module)
    assert known.keys() == set(module.__all__) - {'__version__', 'NAMES'}
    for name, home in known.items():
        namespace: dict[str, Any] = {}
        exec(f'from {home} import {name}', namespace)
        assert namespace[name] is getattr(module, name)
