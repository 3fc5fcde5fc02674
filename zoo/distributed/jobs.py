"""Jobs on this machine: processes that are the ranks of a cluster of the engine ``local``, watched from start to end.

A rank that raises, is killed or stands still ends the job with one message, unless it may be started again; and when
the watching process is gone, each rank ends itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle

from zoo.common.tools.processes import without_main
from zoo.distributed.engines import local
from zoo.distributed.engines.base import ClusterError, PeerLost, is_count
from zoo.distributed.engines.endings import exit_message
from zoo.distributed.engines.local import SLICE, Board, JobFolder, Seat, deadline_after, seconds_left

#: How often a rank shows that it is there; after how long without it, and without any use of the processor, it has
#: stopped answering; how long ranks have to end by themselves, and rank 0 to end its update and save when it is
#: interrupted once; seconds.
BEAT, SILENCE, GRACE, SAVING = 0.5, 6.0, 2.0, 60.0

_THREADS = {'OMP_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1', 'MKL_NUM_THREADS': '1'}


class Job:
    """The processes of a job, from their start to the end of the last one.

    Used as a context, with ``first=1``, the calling process is rank 0: :func:`zoo.distributed.connect` in it gives its
    cluster, a failure of another rank is raised by the next call that waits for one, and the end of the block ends the
    others (which have :data:`GRACE` seconds to end by themselves).

    Args:
        target: a function, called in every process; also one defined in a notebook or a script.
        size: how many ranks there are.
        args: its arguments.
        first: the first rank that gets a process: 0, or 1 if rank 0 is the calling process.
        restarts: how often a rank is started again when it raises or is killed; the others are as often as they allow
            it, see :meth:`zoo.distributed.cluster.Cluster.allow_restarts`.
        timeout: seconds after which the job has failed.

    Raises:
        ValueError: a number of ranks that is none, or restarts of a rank that is not there.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        size: int,
        args: tuple[Any, ...] = (),
        first: int = 0,
        restarts: Mapping[int, int] | None = None,
        timeout: float | None = None,
    ) -> None:
        if not is_count(size, 1):
            raise ValueError(f'size={size!r} is not a number of ranks: give 1 or more.')
        self._size, self._restarts, self._timeout = size, dict(restarts or {}), timeout
        if not self._restarts.keys() <= set(range(first, size)):
            raise ValueError(f'restarts={self._restarts}: there are ranks {first} to {size - 1}.')
        self._deadline = deadline_after(timeout)
        self._job_folder = JobFolder(size)
        self._folder = self._job_folder.path
        self._board = Board(self._folder, size)
        self._call = pack(target, args)
        self._processes: dict[int, Any] = {}
        self._life: dict[int, tuple[Any, int]] = {}
        self._ending = threading.Event()
        self._ended = threading.Event()
        self._first = first
        self._finished = False
        self._interrupted = False
        self._hurried = threading.Event()
        #: What ended the job before its time, or None.
        self.failure: str | None = None
        try:
            for rank in range(first, size):
                self._start(rank)
        except BaseException:
            self._end()
            self._job_folder.remove()
            raise
        self._watcher = threading.Thread(target=self._watch, name='zoo-job', daemon=True)
        self._watcher.start()

    def wait(self) -> None:
        """Wait until every process has ended. When that is interrupted, so is rank 0, and has time to save its work.

        A second interrupt takes that time from it.

        Raises:
            ClusterError: the message of what failed.
        """
        try:
            self._ended.wait()
        except BaseException:
            self._interrupted = True
            raise
        finally:
            self.close()
        if self.failure is not None:
            raise ClusterError(self.failure)

    def close(self) -> None:
        """End what is still running and remove the job's folder."""
        self._ending.set()
        try:
            self._watcher.join()
        except BaseException:
            self._hurried.set()
            self._watcher.join()
            raise
        finally:
            self._job_folder.remove()  # only now, since rank 0 in this process may still read in it

    def __enter__(self) -> Job:
        if self._first:
            self._outer, local.seat = local.seat, Seat(str(self._folder), 0, self._size)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._finished = error is None and self._first > 0
        if self._first:
            local.seat = self._outer
            self._board.leave(0)
        try:
            if error is None:
                self._ended.wait(GRACE)
        finally:
            self.close()
        if self.failure is not None and (error is None or isinstance(error, PeerLost)):
            raise ClusterError(self.failure) from None

    def _start(self, rank: int) -> None:
        place = Seat(str(self._folder), rank, self._size, int(self._board.restarts[rank]), os.getpid())
        context = multiprocessing.get_context('spawn')
        # Not a daemon, which could not have processes of its own, such as the copies of an environment.
        process = context.Process(target=_child, args=(place, self._call), name=f'zoo-rank-{rank}', daemon=False)
        with without_main(), _variables(_THREADS):
            process.start()
        self._processes[rank] = process
        self._life[rank] = (None, 0)

    def _watch(self) -> None:
        """The thread that sees every end, until all have ended or the job is to end."""
        try:
            self._watch_ranks()
        except BaseException:
            self._fail(f'the job could not be watched any longer:\n{traceback.format_exc()}')
        finally:
            self._end()
            self._ended.set()

    def _watch_ranks(self) -> None:
        next_beat = time.monotonic() + BEAT
        while self._processes and not self._ending.is_set():
            wait([process.sentinel for process in self._processes.values()], timeout=SLICE)
            for rank, process in list(self._processes.items()):
                if process.is_alive():
                    continue
                del self._processes[rank]
                self._end_group(process.pid)
                # One that has left and is then ended by a signal, such as a library's at its exit, has done its part.
                # So has one that waits for rank 0 when that has ended its block in good order.
                if (
                    process.exitcode == 0
                    or (process.exitcode < 0 and self._board.gone(rank))
                    or (self._finished and self._why(rank, process)[1])
                ):
                    self._board.leave(rank)
                elif self._ending.is_set():
                    return
                elif not self._start_again(rank, process):
                    self._fail_with(rank, process)
                    return
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + BEAT
                silent = [rank for rank in self._processes if self._is_silent(rank)]
                if silent and not self._start_again(silent[0], self._processes[silent[0]], stopped=True):
                    self._fail(f'{self._called(silent[0])} has stopped answering.')
                    return
            if seconds_left(self._deadline) <= 0:
                self._fail(f'the job has not ended within {self._timeout:g} s; {len(self._processes)} ranks still ran.')
                return

    def _start_again(self, rank: int, process: Any, stopped: bool = False) -> bool:
        """Start a rank again if it may be."""
        done, most = int(self._board.restarts[rank]), max(self._restarts.get(rank, 0), int(self._board.allowed[rank]))
        if done >= most:
            return False
        if stopped:
            self._end_group(process.pid)
            process.kill()
            process.join()
            why = f'{self._called(rank)} has stopped answering.'
        else:
            lines = self._why(rank, process)[0].strip().splitlines()
            why = lines[0] if len(lines) == 1 else f'{lines[0]} {lines[-1]}'
        (self._folder / f'error-{rank}').unlink(missing_ok=True)
        self._board.restarts[rank] = done + 1
        print(f'{why} Started again ({done + 1} of {most}).', file=sys.stderr, flush=True)
        self._start(rank)
        return True

    def _fail_with(self, rank: int, process: Any) -> None:
        """Fail with the error of a rank, or, if that is only the loss of another one, with the error of that one."""
        why, is_consequence = self._why(rank, process)
        end = time.monotonic() + 1.0
        while is_consequence and self._processes and time.monotonic() < end:
            wait([process.sentinel for process in self._processes.values()], timeout=SLICE)
            for other, process in list(self._processes.items()):
                if not process.is_alive():
                    del self._processes[other]
                    self._end_group(process.pid)
                    if process.exitcode:
                        other_why, is_consequence = self._why(other, process)
                        if not is_consequence:
                            why = other_why
                            break
        self._fail(why)

    def _why(self, rank: int, process: Any) -> tuple[str, bool]:
        """How a process ended, and whether that is only the consequence of another one's end."""
        process.join()
        with contextlib.suppress(FileNotFoundError):
            kind, _, text = (self._folder / f'error-{rank}').read_text().partition('\n')
            return text if kind == 'abort' else f'{self._called(rank)} {text}', kind == 'lost'
        code = process.exitcode
        if code >= 0:
            return f'{self._called(rank)} ended with exit status {code}.', False
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f'signal {-code}'
        hint = ' (the system does that when memory runs out)' if name == 'SIGKILL' else ''
        return f'{self._called(rank)} was killed by {name}{hint}.', False

    def _called(self, rank: int) -> str:
        try:
            return f'rank {rank} ({(self._folder / f"label-{rank}").read_text()})'
        except FileNotFoundError:
            return f'rank {rank}'

    def _fail(self, message: str) -> None:
        self.failure = message
        self._board.fail(message)

    def _is_silent(self, rank: int) -> bool:
        """Whether a rank has shown no sign of life for :data:`SILENCE`, in which this thread itself was running."""
        life, turns = self._life[rank]
        now = (int(self._board.beats[rank]), _processor_time(self._processes[rank].pid))
        self._life[rank] = (now, 0 if now != life else turns + 1)
        return self._life[rank][1] * BEAT >= SILENCE

    def _end(self) -> None:
        """End every process, by itself if it can, and leave nothing behind."""
        if self._interrupted and 0 in self._processes:
            # Before the others: it may be in a collective with them, and cannot save before that is over.
            os.kill(self._processes[0].pid, signal.SIGINT)
            end = time.monotonic() + SAVING
            while self._processes[0].is_alive() and time.monotonic() < end and not self._hurried.is_set():
                self._processes[0].join(SLICE)
        for process in self._processes.values():
            process.terminate()
        end = time.monotonic() + GRACE
        for process in self._processes.values():
            process.join(max(0.0, end - time.monotonic()))
        for process in self._processes.values():
            self._end_group(process.pid)
            process.kill()
            process.join()
        self._processes.clear()

    @staticmethod
    def _end_group(pid: int) -> None:
        """End what a rank has started itself; each rank leads a process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def launch(
    target: Callable[..., Any],
    size: int,
    args: tuple[Any, ...] = (),
    restarts: Mapping[int, int] | None = None,
    timeout: float | None = None,
) -> None:
    """Run a function in ``size`` processes, one per rank, and wait for their end; see :class:`Job`.

    Raises:
        ClusterError: a rank failed; the message says which and how. The others have ended.
    """
    Job(target, size, args, 0, restarts, timeout).wait()


def can_become() -> bool:
    """Whether :func:`become` can do it: an engine that runs already would be lost."""
    return hasattr(os, 'execve') and not {'mpi4py.MPI', 'kungfu.python'} & sys.modules.keys()


def pack(target: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """A call that another process can make, with what it needs of the running script in it."""
    return cloudpickle.dumps((target, args))


def become(call: bytes) -> NoReturn:
    """Replace this process by a new one that makes a call of :func:`pack`: the same rank, without what was imported.

    It has this one's arguments, module path, environment, interpreter options and open streams. What else this one has
    goes without further notice, as when it is killed: threads, ``finally`` blocks, functions registered with atexit.
    """
    with tempfile.TemporaryFile() as file:
        file.write(call)
        file.seek(0)
        handle = os.dup(file.fileno())
    os.set_inheritable(handle, True)
    place = local.seat and tuple(local.seat)
    code = (
        f'import sys; sys.path[:] = {sys.path!r}; sys.argv[:] = {sys.argv!r}; '
        f'from zoo.distributed import jobs; jobs.go_on({handle}, {place})'
    )
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # private; as multiprocessing does
    os.execve(sys.executable, [sys.executable, *options, '-c', code], _THREADS | os.environ)


def go_on(handle: int, place: tuple[Any, ...] | None) -> None:
    """The new process of :func:`become`: what it runs is to be read from ``handle``."""
    with open(handle, 'rb') as file:
        call = file.read()
    if place is not None:
        _child(Seat(*place), call)
    else:
        target, args = cloudpickle.loads(call)
        target(*args)


def _child(place: Seat, call: bytes) -> None:
    """What a process of a job does."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)  # Ctrl-C is the watching process's to handle
    signal.signal(signal.SIGINT, signal.default_int_handler)  # … which hands it on
    folder, local.seat = Path(place.folder), place
    threading.Thread(target=_beat, args=(place,), name='zoo-beat', daemon=True).start()
    try:
        target, args = cloudpickle.loads(call)
        target(*args)
    except SystemExit as end:
        if (text := exit_message(end.code)) is not None:
            local.leave_with(folder, place.rank, 'error', text)
    except KeyboardInterrupt:
        local.leave_with(folder, place.rank, 'abort', 'interrupted.')
    except BaseException as error:
        kind = 'lost' if isinstance(error, PeerLost) else 'error'
        inside = error.__traceback__ and error.__traceback__.tb_next
        trace = ''.join(traceback.format_exception(type(error), error, inside))
        local.leave_with(folder, place.rank, kind, f'failed:\n{trace}')


def _beat(place: Seat) -> None:
    """Show that this process runs; end it when the watching process is gone, and what that has left behind."""
    try:
        board = Board(Path(place.folder), place.size)
    except OSError:  # the job is over already
        os._exit(1)
    while os.getppid() == place.parent:
        board.beats[place.rank] += 1
        time.sleep(BEAT)
    # By another name first, in which this process' other threads can make no new files.
    doomed = f'{place.folder}-gone'
    with contextlib.suppress(OSError):
        os.rename(place.folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _processor_time(pid: int) -> int:
    """Ticks of the processor that a process has used, where the system tells; else 0."""
    try:
        with open(f'/proc/{pid}/stat') as file:
            fields = file.read().rpartition(')')[2].split()
        return int(fields[11]) + int(fields[12])
    except (OSError, IndexError, ValueError):
        return 0


@contextlib.contextmanager
def _variables(defaults: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for a process that is started here; those that the user set stay."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
