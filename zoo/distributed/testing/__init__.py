"""The suite that every engine passes, for the authors of engines too (docs/howto/own_engine.md has an example).

``LAUNCHER python -m zoo.distributed.testing`` runs it on four ranks, and ``run`` does that from a test. ``conformance``
is what a program sees of an engine, ``promises`` are the engine's own calls.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

#: The programs of the suite; each runs on :data:`RANKS` ranks.
PROGRAMS = ('conformance', 'collectives', 'queues', 'saved', 'busy', 'many')
RANKS = 4

#: The script that every rank runs, for launchers that take no ``-m``. It takes the name of a program.
SCRIPT = Path(__file__).with_name('__main__.py')


def run(launcher: Sequence[str], program: str = 'conformance', timeout: float = 200.0, **variables: str) -> int:
    """Run a program of the suite by a launcher; return the number of checks that passed on all ranks.

    Args:
        launcher: the command that starts four ranks of a Python program, up to the program's own path, such as
            ``['mpirun', '-n', '4', 'python']``.
        program: one of :data:`PROGRAMS`.
        timeout: seconds that it may take.
        variables: further variables of the environment.

    Raises:
        AssertionError: a check failed, a rank failed, or it took too long; with all that was printed.
    """
    command = [*launcher, str(SCRIPT), program]
    process = subprocess.Popen(
        command, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()  # a launcher ends its ranks then
        raise AssertionError(f'{program} had not ended after {timeout:g} s:\n{process.communicate()[0]}') from None
    passed = re.search(rf'{program}: (\d+) checks passed', output)
    if process.returncode or passed is None:
        raise AssertionError(f'{program} ended with exit status {process.returncode}:\n{output}')
    return int(passed[1])
