"""The engine ``mpi``: its promises over four ranks under a real ``mpirun``, and how the job ends when a rank does."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zoo.distributed.engines import mpi
from zoo.distributed.engines.base import ClusterError

ROOT = Path(__file__).resolve().parents[2]
MPIRUN = shutil.which('mpirun') or shutil.which('mpirun', path=str(Path(sys.executable).parent))
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec('mpi4py') is None or MPIRUN is None, reason="no MPI: pip install 'zoo-rl[mpi]'"
)

PREAMBLE = """
import os, signal, sys, time
import numpy as np
from zoo.distributed.engines import mpi
from zoo.distributed.engines.base import MessageTooLarge, PeerLost

engine = mpi.start()
rank, size = engine.rank, engine.size
everyone = tuple(range(size))

def bytes_of(array):
    return [memoryview(np.ascontiguousarray(array).view(np.uint8))]

def raises(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f'no {kind.__name__}')
"""


def mpirun(
    tmp_path: Path, program: str, *options: str, ranks: int = 4, preamble: str = PREAMBLE
) -> subprocess.CompletedProcess:
    """Run a program, which finds ``engine`` and some helpers, on some ranks."""
    script = tmp_path / 'program.py'
    script.write_text(preamble + program)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(('OMPI_', 'PMIX_', 'PMI_'))}
    environment |= {
        'PYTHONPATH': str(ROOT),
        'OMPI_ALLOW_RUN_AS_ROOT': '1',
        'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
        'PIDS': str(tmp_path),
    }
    command = [MPIRUN, '--oversubscribe', *options, '-n', str(ranks), sys.executable, str(script)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def passed(result: subprocess.CompletedProcess, ranks: int = 4) -> bool:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.count('passed') == ranks


COLLECTIVES = """
names = 'int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64'
numeric = [np.dtype(name) for name in names.split()]
for group in [everyone, (0, 1), (1, 2, 3), (0, 3), (rank,)]:
    if rank not in group:
        continue
    for dtype in numeric:
        for op, expected in (('sum', sum(group)), ('max', max(group)), ('min', min(group))):
            reduced = engine.all_reduce(np.full(7, rank, dtype), op, group)
            assert reduced.dtype == dtype and (reduced == expected).all(), (dtype, op, group)
    flags = np.array([rank == group[0], True, False])
    assert engine.all_reduce(flags, 'sum', group).tolist() == [True, True, False]
    assert engine.all_reduce(flags, 'min', group).tolist() == [len(group) == 1, True, False]
    assert engine.all_reduce(np.empty(0, np.float32), 'sum', group).shape == (0,)
    for root in group:
        sent = np.full(100_001, root, np.uint8) if rank == root else None
        received = engine.broadcast(sent, root, group)
        assert received.shape == (100_001,) and (received == root).all()
        assert engine.broadcast(np.empty(0, np.uint8) if rank == root else None, root, group).size == 0

# A result is the caller's to keep, however many follow and although memory is used again.
results = [engine.all_reduce(np.full(50_000, number, np.float32), 'sum', everyone)[5:] for number in range(12)]
assert all((result == 4 * number).all() for number, result in enumerate(results))
for group in [everyone, (0, 1, 3)]:
    for length in (10, 3_000, 100_000, 3_000_000):
        if rank in group:
            random = np.random.default_rng(rank).normal(size=length).astype(np.float32)
            total = engine.all_reduce(random, 'sum', group)
            bits = engine.broadcast(total.view(np.uint8) if rank == 0 else None, 0, group)
            assert (bits == total.view(np.uint8)).all(), 'other bits on another rank'
            expected = sum(np.random.default_rng(each).normal(size=length) for each in group)
            assert np.allclose(total, expected, atol=1e-4)
assert 'complex64' in raises(TypeError, lambda: engine.all_reduce(np.ones(3, np.complex64), 'max', everyone))
engine.barrier(everyone)
print('passed')
"""

QUEUES = """
if rank in (0, 1):
    queue = engine.channel(1, 0, 0, 3, 2_000_000)
    other = engine.channel(1, 0, 1, 1, 100)
    back = engine.channel(0, 1, 0, 1, 100)
if rank == 1:
    changing = np.zeros(300_000, np.int32)
    for number in range(40):
        changing[:] = number
        queue.put([memoryview(np.array([number])).cast('B'), *bytes_of(changing)], 30)
    back.get(30)
    assert '2000001 bytes' in raises(MessageTooLarge, lambda: queue.put([memoryview(bytes(2_000_001))], 1))
    other.put([memoryview(b'beside')], 30)
    for _ in range(3):
        queue.put([memoryview(b'x')], 30)
    assert 'full (3 messages)' in raises(TimeoutError, lambda: queue.put([memoryview(b'x')], 0.2))
    back.get(30)
    queue.put([memoryview(b'y')], 30)
    queue.close()
    raises(PeerLost, lambda: (time.sleep(0.5), other.put([memoryview(b'x')], 30)))
if rank == 0:
    for number in range(40):
        message = np.frombuffer(queue.get(30), np.uint8)
        assert message[:8].view(np.int64)[0] == number
        assert (message[8:].view(np.int32) == number).all(), 'changed after put'
    assert 'empty' in raises(TimeoutError, lambda: queue.get(0.1))
    back.put([memoryview(b'go')], 30)
    assert bytes(other.get(30)) == b'beside'
    other.close()
    time.sleep(0.5)
    back.put([memoryview(b'go')], 30)
    assert [bytes(queue.get(30)) for _ in range(4)] == [b'x', b'x', b'x', b'y']
    raises(PeerLost, lambda: queue.get(30))
engine.barrier(everyone)

# Many producers, while the others reduce.
inboxes = [engine.channel(source, 0, 2, 2, 100) for source in (1, 2, 3) if rank in (0, source)]
for number in range(20):
    for inbox in inboxes:
        if rank == 0:
            assert bytes(inbox.get(30)) == bytes([number])
        else:
            inbox.put([memoryview(bytes([number]))], 30)
    if rank != 0:
        assert engine.all_reduce(np.ones(3), 'sum', (1, 2, 3))[0] == 3
engine.barrier(everyone)
print('passed')
"""

SAVED = """
if rank == 0:
    time.sleep(0.5)
    end = time.monotonic() + 2
    number = 0
    while time.monotonic() < end:  # of changing size, and never inside MPI for long
        engine.save('weights', bytes_of(np.full(100_000 + number % 7, number % 250, np.uint8)))
        number += 1
    engine.barrier(everyone)
else:
    assert 'nothing' in raises(TimeoutError, lambda: engine.request(0, 'nothing', 0.1))
    seen = set()
    end = time.monotonic() + 2
    while time.monotonic() < end:
        weights = np.frombuffer(engine.request(0, 'weights', 30), np.uint8)
        assert weights.min() == weights.max(), 'a mixture of two saves'
        seen.add(int(weights[0]))
    assert len(seen) > 5, seen
    engine.save('mine', [memoryview(b'a'), memoryview(b'bc')])
    assert bytes(engine.request(rank, 'mine', 0)) == b'abc'
    engine.barrier(everyone)
print('passed')
"""

BUSY = """
# Rank 0 computes and calls nothing of the engine; the others are served all the same.
if rank == 0:
    engine.save('weights', bytes_of(np.ones(3_000_000)))
    queue = engine.channel(0, 1, 0, 1, 1 << 30)
    queue.put(bytes_of(np.ones(3_000_000)), 30)
    engine.barrier(everyone)
    end = time.monotonic() + 6
    while time.monotonic() < end:
        sum(range(1000))
    engine.barrier(everyone)
else:
    engine.barrier(everyone)
    start = time.monotonic()
    assert len(engine.request(0, 'weights', 30)) == 24_000_000
    if rank == 1:
        assert len(engine.channel(0, 1, 0, 1, 1 << 30).get(30)) == 24_000_000
    assert time.monotonic() - start < 5
    engine.barrier(everyone)
print('passed')
"""


@needs_mpi
@pytest.mark.parametrize('transport', ['any', 'self,tcp'])
@pytest.mark.parametrize('program', [COLLECTIVES, QUEUES, SAVED], ids=['collectives', 'queues', 'saved'])
def test_promises(tmp_path, program, transport):
    options = () if transport == 'any' else ('--mca', 'btl', transport)
    assert passed(mpirun(tmp_path, program, *options))


@needs_mpi
def test_a_rank_that_computes_still_answers(tmp_path):
    assert passed(mpirun(tmp_path, BUSY))


@needs_mpi
def test_conformance():
    suite = ROOT / 'tests' / 'distributed' / 'conformance.py'
    environment = os.environ | {'PYTHONPATH': str(ROOT)}
    environment |= {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
    command = [MPIRUN, '--oversubscribe', '-n', '4', sys.executable, str(suite)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


FAILURES = {
    'abort': ("engine.abort('rank 2 (actor 1) failed:\\nValueError: broken')", 1, 'ValueError: broken'),
    'kill': ('os.kill(os.getpid(), signal.SIGKILL)', 137, 'signal 9'),
    'exit': ('os._exit(3)', 3, 'Exit code:    3'),
    'stop': ('os.kill(os.getpid(), signal.SIGSTOP)', 1, 'rank 2 has not answered'),
}


@needs_mpi
@pytest.mark.parametrize('way', FAILURES)
def test_the_job_ends_when_a_rank_does(tmp_path, way):
    statement, status, words = FAILURES[way]
    program = f"""
open(os.path.join(os.environ['PIDS'], f'{{os.getpid()}}.pid'), 'w').close()
engine.barrier(everyone)
if rank == 2:
    {statement}
engine.barrier(everyone)
"""
    started = time.monotonic()
    result = mpirun(tmp_path, program)
    assert time.monotonic() - started < 30  # the bound of 10 s is measured elsewhere, on a machine that is not shared
    assert result.returncode == status, result.stderr
    assert words in result.stderr
    if way == 'abort':
        assert result.stderr.count(words) == 1
    pids = [int(path.stem) for path in tmp_path.glob('*.pid')]
    assert len(pids) == 4
    deadline = time.monotonic() + 10
    while any(Path(f'/proc/{pid}').exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(Path(f'/proc/{pid}').exists() for pid in pids), 'processes left over'


LEAVE = """
import sys
from zoo.distributed import connect

cluster = connect(1, 3)
cluster.barrier()
if cluster.role_rank() == 1:
    sys.exit(0)
cluster.barrier()
"""


@needs_mpi
def test_one_rank_tells_that_another_has_left(tmp_path):
    result = mpirun(tmp_path, LEAVE, preamble='')
    assert result.returncode == 1, result.stderr
    assert result.stderr.count('Traceback') == 1
    assert 'rank 0 (learner 0) failed' in result.stderr and 'rank 2 left the cluster' in result.stderr


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
