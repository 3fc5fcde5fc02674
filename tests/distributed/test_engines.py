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

from zoo.distributed.engines import mpi
from zoo.distributed.engines.base import ClusterError


@pytest.mark.parametrize('engine', ENGINES)
def test_conformance(engine: str, tmp_path: Path):
    result = run_on(engine, 4, Path(__file__).with_name('conformance.py'), tmp_path)
    assert result.returncode == 0, result.stdout
    count = re.search(r'conformance: (\d+) checks passed', result.stdout)
    assert count and int(count[1]) > 900, result.stdout


PREAMBLE = """
import faulthandler, os, signal, sys, time
import numpy as np
from zoo.distributed import PeerLost, connect
from zoo.distributed.engines.base import MessageTooLarge

cluster = connect(learners=4)
engine = cluster.engine
faulthandler.dump_traceback_later(100, exit=True)  # a hang tells where
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


def check(engine: str, tmp_path: Path, program: str, *options: str) -> None:
    """Run a program on four ranks. The preamble gives it ``engine`` and some helpers."""
    script = tmp_path / 'program.py'
    script.write_text(PREAMBLE + program)
    result = run_on(engine, 4, script, tmp_path, *options)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count('passed') == 4


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

# The caller may keep a result, although memory is used again for later ones.
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
assert 'complex64' in raises(TypeError, lambda: cluster.role_all_reduce(np.ones(3, np.complex64), 'max'))
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
    assert len(seen) > 1, seen
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


MANY = """
# Thousands of small messages leave nothing behind.
def memory():
    return int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE')

if rank < 2:
    queue = engine.channel(1, 0, 0, 64, 100)
    for number in range(4_000):
        if number == 1_000:
            before = memory()
        if rank == 1:
            queue.put([memoryview(b'x')], 60)
        else:
            queue.get(60)
    limit = 8_000_000 if engine.name == 'kungfu' else 1_000_000  # Go's heap settles after some thousands
    assert memory() - before < limit, memory() - before
engine.barrier(everyone)
print('passed')
"""

PROGRAMS = {'collectives': COLLECTIVES, 'queues': QUEUES, 'saved': SAVED, 'busy': BUSY, 'many': MANY}


@pytest.mark.full(but=('local-queues', 'mpi-queues'))
@pytest.mark.parametrize('program', PROGRAMS)
@pytest.mark.parametrize('engine', ENGINES)
def test_promises(engine: str, program: str, tmp_path: Path):
    check(engine, tmp_path, PROGRAMS[program])


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
    check('mpi', tmp_path, PROGRAMS[program], *TRANSPORTS[transport].split())


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
