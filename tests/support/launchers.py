"""Start a program on some ranks, by the launcher of an engine. Without the launcher the test is skipped."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ['local', 'mpi', 'kungfu']

#: Seconds that a program may take.
LIMIT = 200.0

#: What `kungfu-run` writes before a line of a rank's output, once its colors are removed.
_PREFIX = re.compile(r'^\[[\d.]+::std(out|err)\] ?', re.MULTILINE)
_COLOR = re.compile(r'\x1b\[[\d;]*m')


def find(program: str) -> str | None:
    """Return the path of a program beside this Python, or on the path; None: there is none."""
    return shutil.which(program, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get('PATH', '')]))


def start_on(
    engine: str, ranks: int, script: Path, folder: Path, *options: str, arguments: Sequence[str] = (), **variables: str
) -> subprocess.Popen:
    """Start a program under an engine's launcher.

    Args:
        engine: one of :data:`ENGINES`.
        ranks: the number of ranks.
        script: the program.
        folder: the working directory. KungFu leaves its logs there.
        options: options of the launcher.
        arguments: the arguments of the program.
        variables: variables of the environment.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(('OMPI_', 'PMIX_', 'PMI_'))}
    environment.pop('OMP_NUM_THREADS', None)
    tests = ROOT / 'tests'
    paths = [
        str(ROOT),
        *(str(tests / name) for name in ('support', 'distributed', 'distributed/training')),
        environment.get('PYTHONPATH', ''),
    ]
    environment |= {'PYTHONPATH': os.pathsep.join(filter(None, paths))} | variables
    if engine == 'local':
        command = [sys.executable, '-m', 'zoo.distributed.run', '-np', str(ranks), *options]
    elif engine == 'mpi':
        if importlib.util.find_spec('mpi4py') is None or find('mpirun') is None:
            pytest.skip("mpi4py or mpirun not found: pip install 'zoo-rl[mpi]'")
        environment |= {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
        command = [find('mpirun'), '--oversubscribe', '-n', str(ranks), *options, sys.executable]
    else:
        if find('kungfu-run') is None:
            pytest.skip('kungfu-run not found')
        # Ports of its own, since another test may run beside this one.
        worker = int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0').removeprefix('gw'))
        port = 10000 + 100 * worker
        command = [find('kungfu-run'), '-q', '-np', str(ranks), '-H', f'127.0.0.1:{ranks}']
        command += ['-port', str(38080 + worker), '-port-range', f'{port}-{port + 99}', *options, sys.executable]
    command += [str(script), *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def run_on(
    engine: str, ranks: int, script: Path, folder: Path, *options: str, arguments: Sequence[str] = (), **variables: str
) -> subprocess.CompletedProcess:
    """Run a program under an engine's launcher (with the arguments of :func:`start_on`) and wait for it.

    Returns:
        the process; its ``stdout`` is everything that the launcher and the ranks printed.
    """
    process = start_on(engine, ranks, script, folder, *options, arguments=arguments, **variables)
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.terminate()  # it ends its ranks
        output, _ = process.communicate()
        pytest.fail(f'{process.args} had not ended after {LIMIT:g} s:\n{output}')
    if engine == 'kungfu':
        output = _PREFIX.sub('', _COLOR.sub('', output))
    return subprocess.CompletedProcess(process.args, process.returncode, output)
