"""The ends that a launcher does not see, with a stand-in for the engine. test_engines.py has the real launchers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zoo.distributed.engines.endings import exit_message

RANK = """
import os, sys, time
from zoo.distributed.engines.base import PeerLost
from zoo.distributed.engines.endings import watch_ends

class Engine:
    rank, label = 2, 'actor 1'

    def abort(self, message):
        print(message, file=sys.stderr, flush=True)
        os._exit(7)

watch_ends(Engine())
"""


@pytest.mark.full(but='pass-0-')
@pytest.mark.parametrize(
    ('program', 'status', 'message'),
    [
        ('sys.exit(3)', 7, 'rank 2 (actor 1) ended with exit status 3.'),
        ('sys.exit(True)', 7, 'rank 2 (actor 1) ended with exit status 1.'),
        ("sys.exit('no licence')", 7, 'rank 2 (actor 1) ended: no licence'),
        ("raise ValueError('broken')", 7, 'rank 2 (actor 1) failed:\nTraceback'),
        ("try: sys.exit(3)\nfinally: print('cleaned', file=sys.stderr)", 7, 'cleaned\nrank 2 (actor 1) ended with'),
        ('sys.exit()', 0, ''),
        ('sys.exit(0)', 0, ''),
        ('pass', 0, ''),
        ('try: sys.exit(3)\nexcept SystemExit as end: assert (end.code, end.args) == (3, (3,))', 0, ''),
        ('try: sys.exit()\nexcept SystemExit as end: assert (end.code, end.args) == (None, ())', 0, ''),
        ('import threading; threading.Thread(target=sys.exit, args=(3,)).start()', 0, ''),
        (
            "import argparse\ntry: argparse.ArgumentParser(usage='').parse_args(['-x'])\nexcept SystemExit: pass",
            0,
            'usage',
        ),
    ],
)
def test_the_end_of_a_program(program: str, status: int, message: str):
    result = subprocess.run([sys.executable, '-c', RANK + program], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (status, ''), result.stderr
    assert result.stderr.startswith(message) and (message or not result.stderr), result.stderr


@pytest.mark.parametrize(
    ('code', 'message'),
    [(None, None), (0, None), (False, None), (2, 'ended with exit status 2.'), ('', 'ended: '), ([], 'ended: []')],
)
def test_exit_message(code: object, message: str | None):
    assert exit_message(code) == message


@pytest.mark.full
def test_a_rank_ends_with_its_launcher(tmp_path: Path):
    """A launcher that is killed has no time to end its ranks; kungfu-run leaves them running."""
    rank, said = tmp_path / 'rank.py', tmp_path / 'said'
    rank.write_text(RANK + "print('ready', os.getpid(), flush=True)\nwhile True: time.sleep(100)")
    launcher = (
        f'import subprocess, sys; subprocess.run([sys.executable, {str(rank)!r}], stderr=open({str(said)!r}, "w"))'
    )
    process = subprocess.Popen([sys.executable, '-c', launcher], stdout=subprocess.PIPE, text=True)
    ready, pid = process.stdout.readline().split()
    assert ready == 'ready'
    process.kill()
    process.wait()
    end = time.monotonic() + 60
    while Path(f'/proc/{pid}').exists() and time.monotonic() < end:
        time.sleep(0.1)
    if Path(f'/proc/{pid}').exists():
        os.kill(int(pid), signal.SIGKILL)
        pytest.fail('the rank goes on without its launcher')
    assert said.read_text() == f'rank 2 (actor 1) ends: its launcher, process {process.pid}, is gone.\n'
