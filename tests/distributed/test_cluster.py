"""Roles, jobs and their failures on this machine. zoo.distributed.testing has what every engine must do."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from zoo.distributed import Cluster, ClusterError, Job, Layout, PeerLost, Role, connect, launch

#: Seconds that a job may take to notice a failure and end, on a machine that is busy with other things.
LONG = 60.0

SCRIPT = """
import os, signal, sys, time
import numpy as np
from zoo.distributed import connect
cluster = connect(learners=1, actors=2)
queue = cluster.queue(('actor', 1), ('learner', 0), max_bytes=1000)
cluster.barrier()
os.write(1, f'{{cluster.rank}} {{os.getpid()}}\\n'.encode())  # in one piece, as others write too
cluster.barrier()
if cluster.rank == 2:
    {action}
    time.sleep(1000)
if cluster.rank == 1:
    {other}
    time.sleep(1000)
{first}
"""


def in_use(folder: Path) -> bool:
    """Return whether a running job of another test uses a folder: it holds the lock, or is just making the folder."""
    try:
        with open(folder / 'lock') as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        time.sleep(1)
        return not folder.exists() or (folder / 'lock').exists()


@pytest.fixture
def folders():
    """Give a function that returns the job folders that a test has left behind."""
    before = set(Path('/dev/shm').glob('zoo-job-*'))
    return lambda: {folder for folder in set(Path('/dev/shm').glob('zoo-job-*')) - before if not in_use(folder)}


def is_running(pid: int) -> bool:
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def start(folder, action, *options, other='pass', first='queue.get()') -> subprocess.Popen:
    path = folder / 'script.py'
    path.write_text(SCRIPT.format(action=action, other=other, first=first))
    command = [sys.executable, '-m', 'zoo.distributed.run', '-np', '3', *options, str(path)]
    # A shell starts background processes with SIGINT ignored, and this process would hand that on.
    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, kept)


def pids(output: str) -> list[int]:
    return [int(word) for word in output.split()[1::2]]


@pytest.mark.full
@pytest.mark.parametrize(
    ('action', 'message'),
    [
        ('os.kill(os.getpid(), signal.SIGKILL)', 'rank 2 (actor 1) was killed by SIGKILL'),
        ("raise ValueError('boom')", 'ValueError: boom'),
        ('sys.exit(3)', 'rank 2 (actor 1) ended with exit status 3'),
        ('sys.exit(0)', 'the queue from rank 2 to rank 0 is closed: its sender has left'),
        ('os.kill(os.getpid(), signal.SIGSTOP)', 'rank 2 (actor 1) has stopped answering'),
        ("cluster.abort('enough.')", 'zoo.distributed.run: rank 2 (actor 1): enough.'),
        ("queue.put({'x': np.zeros(1000)})", 'MessageTooLarge'),
        ("queue.put({'x': 1})", 'has no arrays'),
    ],
)
def test_a_failure_ends_the_job_with_one_message(tmp_path, folders, action, message):
    process = start(tmp_path, action)
    output, errors = process.communicate(timeout=LONG)
    assert process.returncode == 1
    assert message in errors and errors.count('zoo.distributed.run: ') == 1 and errors.count('Traceback') <= 1
    assert len(pids(output)) == 3 and not any(map(is_running, pids(output))) and not folders()


def test_other_shapes_are_an_error_of_the_rank_that_has_them(tmp_path, folders):
    reduce = 'cluster.role_all_reduce({"x": np.zeros(%d)})'
    process = start(tmp_path, reduce % 3, other=reduce % 4)
    errors = process.communicate(timeout=LONG)[1]
    assert process.returncode == 1 and 'x float64[3]' in errors and 'x float64[4]' in errors
    assert errors.count('Traceback') == 1 and 'rank 2 (actor 1) calls role_all_reduce mean' in errors


def test_other_roots_are_an_error(folders):
    def work() -> None:
        cluster = connect(learners=2)
        cluster.role_broadcast({'mine': np.full(3, cluster.rank)}, root=cluster.rank)

    with pytest.raises(ClusterError, match='role_broadcast with root=0 and others with root=1|root=1 and .* root=0'):
        launch(work, 2, timeout=LONG)


@pytest.mark.parametrize('size', [0, -1, 2.0, True, '2'])
def test_a_job_of_no_ranks(size, folders):
    with pytest.raises(ValueError, match='is not a number of ranks: give 1 or more'):
        launch(print, size)


def test_restarts_of_a_rank_that_is_not_there(folders):
    with pytest.raises(ValueError, match=r'restarts=\{2: 1\}: there are ranks 0 to 1\.'):
        launch(print, 2, restarts={2: 1})


@pytest.mark.full
def test_timeout(tmp_path, folders):
    process = start(tmp_path, 'pass', '--timeout', '4')
    errors = process.communicate(timeout=LONG)[1]
    assert process.returncode == 1 and 'has not ended within 4 s' in errors and not folders()


@pytest.mark.full
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_launcher_is_ended(tmp_path, folders, number):
    process = start(tmp_path, 'pass')
    ranks = pids(''.join(process.stdout.readline() for _ in range(3)))
    process.send_signal(number)
    process.communicate(timeout=LONG)
    end = time.monotonic() + LONG
    while time.monotonic() < end and (any(map(is_running, ranks)) or folders()):
        time.sleep(0.1)
    assert process.returncode != 0 and not any(map(is_running, ranks)) and not folders()


@pytest.mark.full
def test_a_rank_that_leaves_before_all_know_that_it_came(folders):
    """The first rank tells the others in turn that all have come to a collective. The second may leave meanwhile."""

    def work() -> None:
        cluster = connect(learners=3)
        cluster.role_barrier()
        if cluster.role_rank() == 0:
            ring = cluster.engine._group((0, 1, 2))._others[1].ring
            cluster.engine._group((0, 1, 2))._others[1].ring = lambda: (time.sleep(1.0), ring())
        cluster.role_barrier()
        cluster.close()

    launch(work, 3, timeout=LONG)


def test_a_block_that_ends_well_ends_who_still_waits_for_it(folders):
    def wait() -> None:
        cluster = connect(learners=1, actors=1)
        cluster.queue(('learner', 0), ('actor', 0)).get()

    with Job(wait, 2, first=1):
        cluster = connect(learners=1, actors=1)
        cluster.queue(('learner', 0), ('actor', 0))
    assert not folders()


def test_a_rank_that_is_started_again_has_not_left(folders):
    def act() -> None:
        with connect(learners=1, actors=1) as cluster:
            queue = cluster.queue(('actor', 0), ('learner', 0))
            if cluster.restarts == 0:
                raise ValueError('first life')
            queue.put({'x': np.ones(1)}, LONG)

    with Job(act, 2, first=1, restarts={1: 1}):
        cluster = connect(learners=1, actors=1)
        assert cluster.queue(('actor', 0), ('learner', 0)).get(LONG)['x'] == 1


@pytest.mark.full
def test_a_queue_that_another_thread_waits_in_can_be_closed():
    def act() -> None:
        connect(learners=1, actors=1)
        time.sleep(LONG)

    ends = []
    with Job(act, 2, first=1):
        cluster = connect(learners=1, actors=1)
        queue = cluster.queue(('actor', 0), ('learner', 0))

        def get() -> None:
            with pytest.raises(PeerLost, match='this rank has closed it'):
                queue.get()
            ends.append(time.monotonic())

        thread = threading.Thread(target=get)
        thread.start()
        time.sleep(0.3)
        queue.close()
        thread.join(LONG)
        assert ends


def test_a_job_that_is_interrupted_while_it_ends_leaves_nothing(folders):
    def work() -> None:
        connect(learners=1, actors=1)
        time.sleep(LONG)

    def interrupt() -> None:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            with Job(work, 2, first=1) as job:
                connect(learners=1, actors=1)
                processes = list(job._processes.values())
                threading.Thread(target=interrupt).start()
    finally:
        signal.signal(signal.SIGINT, kept)
    assert not any(process.is_alive() for process in processes) and not folders()


@pytest.mark.full
def test_an_interrupt_waits_for_rank_0_and_a_second_one_does_not(tmp_path, folders):
    process = start(tmp_path, 'pass', first='sum(range(10**12))')  # like a long compiled update, it heeds no signal
    ranks = pids(''.join(process.stdout.readline() for _ in range(3)))
    process.send_signal(signal.SIGINT)
    time.sleep(10)
    assert all(map(is_running, ranks))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LONG / 2)
    assert process.returncode != 0 and not any(map(is_running, ranks)) and not folders()


def test_wrong_rank_count(tmp_path):
    path = tmp_path / 'script.py'
    path.write_text('from zoo.distributed import connect\nconnect(learners=2, actors=3)')
    command = [sys.executable, '-m', 'zoo.distributed.run', '-np', '2', str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    assert result.returncode == 1
    assert result.stderr.count('2 learners + 3 actors make 5 ranks, but 2 were started: start 5') == 1


def test_dead_actors_are_replaced_and_their_queues_work(folders, capfd):
    def act():
        cluster = connect(learners=1, actors=2)
        me = (cluster.role(), cluster.role_rank())
        out, back = cluster.queue_pair(me, ('learner', 0), maxsize=1)
        for i in range(5):
            out.put({'i': np.array([i]), 'restarts': cluster.restarts}, LONG)
            if cluster.role_rank() == 0 and cluster.restarts < 2 and i == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            assert back.get(LONG)['i'] == i

    with Job(act, 3, first=1, restarts={1: 2, 2: 2}):
        cluster = connect(learners=1, actors=2)
        pairs = [cluster.queue_pair(('actor', i), ('learner', 0), maxsize=1) for i in range(2)]
        for (out, back), messages in zip(pairs, (4 + 4 + 5, 5), strict=True):
            for _ in range(messages):
                message = out.get(LONG)
                back.put(message, LONG)
            assert message['i'] == 4
            assert message['restarts'] == (2 if messages > 5 else 0)
    assert not folders()
    assert 'rank 1 (actor 0) was killed by SIGKILL' in capfd.readouterr().err


def test_restarts_are_bounded(folders, capfd):
    def act():
        connect(learners=1, actors=1)
        raise ValueError('again')

    with pytest.raises(ClusterError, match='(?s)rank 1 .actor 0. failed.*ValueError: again'):
        with Job(act, 2, first=1, restarts={1: 2}):
            connect(learners=1, actors=1).queue(('actor', 0), ('learner', 0)).get(LONG)
    assert capfd.readouterr().err.count('Started again') == 2 and not folders()


def test_an_actor_imports_no_tensorflow():
    def act():
        connect(learners=2)
        assert 'tensorflow' not in sys.modules and os.environ['OMP_NUM_THREADS'] == '1'

    launch(act, 2, timeout=LONG)


def test_alone():
    with connect() as cluster:
        assert (cluster.role(), cluster.role_rank(), cluster.size) == (Role.LEARNER, 0, 1)
        assert cluster.role_all_reduce({'a': np.ones(2), 'b': 3})['b'] == 3
        assert cluster.role_broadcast({'a': np.ones(2)})['a'].sum() == 2
        cluster.save('w', {'a': np.arange(3)})
        assert cluster.request('learner', 0, 'w', 1)['a'].tolist() == [0, 1, 2]
        with pytest.raises(TimeoutError, match="nothing as 'v'"):
            cluster.request('learner', 0, 'v', 0.05)
        with pytest.raises(ValueError, match='there is no actor 0'):
            cluster.request('actor', 0, 'w')
        with pytest.raises(ValueError, match="did you mean 'learner'"):
            cluster.request('lerner', 0, 'w')
        with pytest.raises(ValueError, match='to itself'):
            cluster.queue(('learner', 0), ('learner', 0))
        for bounds in ({'max_bytes': 1e6}, {'maxsize': '4'}, {'maxsize': True}, {'maxsize': 0}, {'max_bytes': None}):
            with pytest.raises(ValueError, match='are no bounds of a queue'):
                Cluster(cluster.engine, Layout(2)).queue(('learner', 0), ('learner', 1), **bounds)
        with pytest.raises(TypeError, match="'a' is a masked array"):
            cluster.role_all_reduce({'a': np.ma.zeros(2)})
        with pytest.raises(ValueError, match="unknown reduction 'avg'"):
            cluster.role_all_reduce(np.ones(1), 'avg')
        with pytest.raises(TypeError, match="'a' has dtype <U1"):
            cluster.role_all_reduce({'a': np.array('x')})


def test_layout():
    layout = Layout(learners=2, actors=3, buffers=1)
    assert layout.size == 6 and str(layout) == '2 learners + 3 actors + 1 buffer'
    assert layout.ranks('actor') == (2, 3, 4) and layout.ranks(Role.SERVER) == ()
    assert [layout.place(rank) for rank in (1, 4, 5)] == [(Role.LEARNER, 1), (Role.ACTOR, 2), (Role.BUFFER, 0)]
    with pytest.raises(ValueError, match='actors=-1'):
        Layout(actors=-1)
    with pytest.raises(ValueError, match='no ranks'):
        Layout(learners=0)


def test_an_engine_that_was_not_launched_is_refused():
    with pytest.raises(ValueError, match="did you mean 'mpi'"):
        connect(engine='mpii')
    with pytest.raises(ClusterError, match='kungfu'):
        connect(engine='kungfu')
