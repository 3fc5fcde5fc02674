"""Every engine passes the same checks, in processes of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = str(Path(__file__).with_name('conformance.py'))


def find(program: str) -> str | None:
    """A program beside this Python, or on the path."""
    return shutil.which(program, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get('PATH', '')]))


@pytest.mark.parametrize('engine', ['local', 'mpi', 'kungfu'])
def test_conformance(engine):
    environment = dict(os.environ)
    if engine == 'local':
        command = [sys.executable, '-m', 'zoo.distributed.run', '-np', '4', '--timeout', '240', SCRIPT]
    elif engine == 'mpi':
        if importlib.util.find_spec('mpi4py') is None or find('mpirun') is None:
            pytest.skip('mpi4py or mpirun not found')
        command = [find('mpirun'), '-n', '4', '--oversubscribe', sys.executable, SCRIPT]
        environment |= {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1', 'OMPI_MCA_osc': '^ucx'}
    else:
        if find('kungfu-run') is None:
            pytest.skip('kungfu-run not found')
        command = [find('kungfu-run'), '-q', '-np', '4', '-H', '127.0.0.1:4', sys.executable, SCRIPT]
    # A session of its own, so that nothing is left of it when it takes too long.
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, start_new_session=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    count = re.search(r'conformance: (\d+) checks passed', result.stdout)
    assert count and int(count[1]) > 900, result.stdout + result.stderr
