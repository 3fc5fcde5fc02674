"""Every engine under its launcher: the conformance suite, its promises, and how a job ends when a rank does."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from launchers import ENGINES, LIMIT, run_on, start_on

from zoo.distributed import testing
from zoo.distributed.engines import mpi
from zoo.distributed.engines.base import ClusterError


@pytest.mark.parametrize('engine', ENGINES)
def test_conformance(engine: str, tmp_path: Path):
    assert check(engine, tmp_path, 'conformance') > 900


def check(engine: str, tmp_path: Path, program: str, *options: str) -> int:
    """Run a program of the suite on four ranks; return the number of checks."""
    result = run_on(engine, 4, testing.SCRIPT, tmp_path, *options, arguments=(program,))
    assert result.returncode == 0, result.stdout
    count = re.search(rf'{program}: (\d+) checks passed', result.stdout)
    assert count, result.stdout
    return int(count[1])


@pytest.mark.full(but=('local-queues', 'mpi-queues'))
@pytest.mark.parametrize('program', testing.PROGRAMS[1:])
@pytest.mark.parametrize('engine', ENGINES)
def test_promises(engine: str, program: str, tmp_path: Path):
    check(engine, tmp_path, program)


#: Other transports of Open MPI. By default it takes shared memory here.
TRANSPORTS = {
    'tcp': '--mca btl self,tcp --mca btl_tcp_if_include 127.0.0.0/8',
    'ucx': '--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any',
}


@pytest.mark.full
@pytest.mark.parametrize(
    ('transport', 'program'),
    [
        ('tcp', 'collectives'),
        ('tcp', 'queues'),
        ('tcp', 'saved'),
        ('tcp', 'busy'),
        ('ucx', 'collectives'),
        ('ucx', 'queues'),
        pytest.param('ucx', 'saved', marks=pytest.mark.matrix),
        pytest.param('ucx', 'busy', marks=pytest.mark.matrix),
    ],
)
def test_promises_over_other_transports(transport: str, program: str, tmp_path: Path):
    if transport == 'ucx' and sys.platform != 'linux':
        pytest.skip('Open MPI has UCX on Linux alone')
    check('mpi', tmp_path, program, *TRANSPORTS[transport].split())


ENDS = """
import os, signal, sys
from zoo.distributed import connect

cluster = connect(learners=2, actors=2)
open(f'{{os.getpid()}}.pid', 'w').close()
cluster.barrier()
if cluster.engine.rank == 2:
    {statement}
cluster.barrier()
"""

#: What rank 2 does, and words of the one message about it.
WAYS = {
    'kill': ('os.kill(os.getpid(), signal.SIGKILL)', r'signal 9|signal: killed|killed by SIGKILL'),
    'raise': ("raise ValueError('broken')", r'rank 2 \(actor 0\) failed:\n(.*\n)+ValueError: broken'),
    'exit': ('os._exit(3)', r'Exit code:    3|exit status 3|ended with exit status 3'),
    'stop': ('os.kill(os.getpid(), signal.SIGSTOP)', r'rank 2 (\(actor 0\) has stopped answering|has not answered)'),
    'leave': ('sys.exit(0)', r'rank 2 (left the cluster|has left)'),
    'status': ('sys.exit(3)', r'rank 2 \(actor 0\) ended with exit status 3\.'),
    'sentence': ("sys.exit('no licence')", r'rank 2 \(actor 0\) ended: no licence'),
}


@pytest.mark.full
@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('engine', ENGINES)
def test_the_job_ends_when_a_rank_does(engine: str, way: str, tmp_path: Path):
    statement, words = WAYS[way]
    script = tmp_path / 'program.py'
    script.write_text(ENDS.format(statement=statement))
    started = time.monotonic()
    result = run_on(engine, 4, script, tmp_path)
    assert time.monotonic() - started < 30  # ten, on a machine that is not shared
    assert result.returncode != 0, result.stdout
    assert len(re.findall(words, result.stdout)) >= 1, result.stdout
    assert way == 'leave' or 'PeerLost' not in result.stdout, 'another rank is blamed'
    assert result.stdout.count('Traceback') == (way in ('raise', 'leave')), result.stdout
    pids = [int(path.stem) for path in tmp_path.glob('*.pid')]
    assert len(pids) == 4
    deadline = time.monotonic() + 10
    while any(Path(f'/proc/{pid}').exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(Path(f'/proc/{pid}').exists() for pid in pids), 'processes left over'


LEAVE_FIRST = """
import sys
from zoo.distributed import connect

cluster = connect(learners=3)
if cluster.rank == 2:
    sys.exit(0)
cluster.barrier()
"""


@pytest.mark.full
@pytest.mark.parametrize('engine', ENGINES)
def test_a_rank_that_leaves_before_the_first_collective(engine: str, tmp_path: Path):
    script = tmp_path / 'program.py'
    script.write_text(LEAVE_FIRST)
    result = run_on(engine, 3, script, tmp_path)
    assert result.returncode != 0 and re.search(r'rank 2 (left the cluster|has left)', result.stdout), result.stdout
    assert result.stdout.count('Traceback') == 1, result.stdout


SLEEP = """
import os, time
from zoo.distributed import connect

cluster = connect(learners=2)
cluster.barrier()
open(f'{os.getpid()}.pid', 'w').close()
time.sleep(1000)
"""


@pytest.mark.full
@pytest.mark.parametrize('engine', ['local', 'kungfu'])  # mpirun's ranks know, and leave their shared memory behind
def test_no_rank_outlives_its_launcher(engine: str, tmp_path: Path):
    script = tmp_path / 'program.py'
    script.write_text(SLEEP)
    launcher = start_on(engine, 2, script, tmp_path)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob('*.pid'))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    pids = [int(path.stem) for path in tmp_path.glob('*.pid')]
    launcher.kill()
    launcher.wait()
    launcher.stdout.close()
    assert len(pids) == 2
    while any(Path(f'/proc/{pid}').exists() for pid in pids) and time.monotonic() < deadline + 30:
        time.sleep(0.1)
    left = [pid for pid in pids if Path(f'/proc/{pid}').exists()]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def test_start_outside_mpirun_says_how(monkeypatch):
    monkeypatch.delenv('OMPI_COMM_WORLD_SIZE', raising=False)
    monkeypatch.delenv('PMI_SIZE', raising=False)
    with pytest.raises(ClusterError, match='mpirun -n'):
        mpi.start()


@pytest.mark.parametrize('size, launched', [('4', True), ('1', False)])
def test_launched(monkeypatch, size, launched):
    monkeypatch.delenv('PMI_SIZE', raising=False)
    monkeypatch.setenv('OMPI_COMM_WORLD_SIZE', size)
    assert mpi.launched() is launched


def test_missing_mpi4py_says_how(monkeypatch):
    monkeypatch.setenv('OMPI_COMM_WORLD_SIZE', '2')
    monkeypatch.setitem(sys.modules, 'mpi4py', None)
    with pytest.raises(ClusterError, match=r'zoo-rl\[mpi\]'):
        mpi.start()


INTERRUPTED = """
import time
import numpy as np
from zoo.distributed import Role, connect

cluster = connect(learners=1, actors=1)
queue = cluster.queue((Role.ACTOR, 0), (Role.LEARNER, 0))
if cluster.role() == Role.ACTOR:
    queue.put(np.zeros(1))
    time.sleep(100)
queue.get()
print('ready', flush=True)
try:
    queue.get()
except KeyboardInterrupt:
    time.sleep(2.0)
    print('saved', flush=True)
    raise KeyboardInterrupt('training was interrupted at step 7')
"""


@pytest.mark.full
def test_rank_0_has_time_to_save_at_a_signal_that_mpirun_hands_on(tmp_path: Path):
    """At SIGTERM it has no time: mpirun sends SIGKILL a quarter of a second later."""
    script = tmp_path / 'program.py'
    script.write_text(INTERRUPTED)
    process = start_on('mpi', 2, script, tmp_path)
    said = iter(process.stdout.readline, '')
    assert 'ready\n' in said
    process.send_signal(signal.SIGUSR1)
    rest = ''.join(said)
    assert process.wait(LIMIT) != 0
    assert 'saved\n' in rest and 'rank 0 (learner 0) was interrupted: training was interrupted at step 7.' in rest, rest
