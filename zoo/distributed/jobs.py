"""Jobs on this machine: processes that are the ranks of a cluster of the engine ``local``, watched to the end.

A rank that raises, is killed or stops answering ends the job with one message, unless it may be started again. When the
watching process is gone, each rank ends itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import wait
from typing import Any

from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.processes import without_main
from zoo.distributed.engines.base import ClusterError, PeerLost, is_count
from zoo.distributed.engines.local import engine as local
from zoo.distributed.engines.local.folder import PREPARING, SLICE, WORKING, Board, JobFolder, Seat
from zoo.distributed.engines.waiting import Deadline
from zoo.distributed.rank_process import BEAT, THREADS, pack, run_rank

# Seconds: a rank that shows no sign of life and uses no processor for so long has stopped answering; ranks have so long
# to end by themselves; rank 0 has so long to end its update and save when it is interrupted once.
_SILENCE, _ENDING, _SAVING = 6.0, 2.0, 60.0


class Job:
    """The processes of a job, from their start to the end of the last one.

    In ``with Job(…, first=1):`` the calling process is rank 0. :func:`zoo.distributed.connect` in the block returns its
    cluster. When another rank fails, the next call that waits for a rank raises. The end of the block ends the other
    ranks; they have two seconds to end by themselves.

    Args:
        target, size, args, restarts, timeout: as in :func:`launch`. A rank may also allow its restarts itself:
            :meth:`zoo.distributed.Cluster.allow_restarts`. Then ``prepare`` says that those in ``restarts`` will do it
            when they begin their work; until then the same error twice in a row ends the job.
        first: the first rank that gets a process: 0, or 1 if the calling process is rank 0.

    Attributes:
        failure: what ended the job early, or None.

    Raises:
        ValueError: ``size`` is not a count, or ``restarts`` has a rank that does not exist.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        size: int,
        args: tuple[Any, ...] = (),
        first: int = 0,
        restarts: Mapping[int, int] | None = None,
        timeout: float | None = None,
        prepare: bool = False,
    ) -> None:
        if not is_count(size, 1):
            raise InvalidValue(f'size={size!r} is not a number of ranks: give 1 or more.')
        self._size, self._restarts, self._timeout = size, dict(restarts or {}), timeout
        if not self._restarts.keys() <= set(range(first, size)):
            raise InvalidValue(f'restarts={self._restarts}: there are ranks {first} to {size - 1}.')
        self._deadline = Deadline(timeout)
        self._job_folder = JobFolder(size)
        self._board = Board(self._job_folder.path, size)
        self._call = pack(target, args)
        self._processes: dict[int, Any] = {}
        self._life: dict[int, tuple[Any, int]] = {}
        self._died_of: dict[int, str] = {}  # the last error of each rank that died before its work
        if prepare:
            self._board.works[list(self._restarts)] = PREPARING
        self._ending, self._ended, self._hurried = threading.Event(), threading.Event(), threading.Event()
        self._first, self._finished, self._interrupted = first, False, False
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
        """Wait until every process has ended.

        At an interrupt rank 0 is interrupted too, and has a minute to save its work. A second one ends that minute.

        Raises:
            ClusterError: a rank failed; the message says which and how.
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
        """End the processes that still run and remove the job's folder."""
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
            self._outer, local.seat = local.seat, Seat(str(self._job_folder.path), 0, self._size)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._finished = error is None and self._first > 0
        if self._first:
            local.seat = self._outer
            self._board.leave(0)
        try:
            if error is None:
                self._ended.wait(_ENDING)
        finally:
            self.close()
        if self.failure is not None and (error is None or isinstance(error, PeerLost)):
            raise ClusterError(self.failure) from None

    def _start(self, rank: int) -> None:
        place = Seat(str(self._job_folder.path), rank, self._size, int(self._board.restarts[rank]), os.getpid())
        context = multiprocessing.get_context('spawn')
        # A daemon could not have processes of its own, such as copies of an environment.
        process = context.Process(target=run_rank, args=(place, self._call), name=f'zoo-rank-{rank}', daemon=False)
        with without_main(), _variables(THREADS):
            process.start()
        self._processes[rank] = process
        self._life[rank] = (None, 0)

    def _watch(self) -> None:
        """Watch the ranks, in a thread, until all have ended or the job must end."""
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
            for rank, process in self._ended_now():
                # A rank has done its part if it left and a signal then ended it, such as a library's at its exit; or if
                # it waits for rank 0, and rank 0 has ended its block in good order.
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
                    self._fail(f'{self._board.called(silent[0])} has stopped answering.')
                    return
            if self._deadline.left <= 0:
                self._fail(f'the job has not ended within {self._timeout:g} s; {len(self._processes)} ranks still ran.')
                return

    def _ended_now(self) -> Iterator[tuple[int, Any]]:
        """Wait a moment for a process to end; yield each rank that has ended, once, with its process."""
        wait([process.sentinel for process in self._processes.values()], timeout=SLICE)
        for rank, process in list(self._processes.items()):
            if not process.is_alive():
                del self._processes[rank]
                self._end_group(process.pid)
                yield rank, process

    def _start_again(self, rank: int, process: Any, stopped: bool = False) -> bool:
        """Start a rank again if that is allowed; return whether it was."""
        done, most = int(self._board.restarts[rank]), max(self._restarts.get(rank, 0), int(self._board.allowed[rank]))
        said = self._board.last_words(rank)
        if done >= most or (said is not None and said[0] == 'abort'):
            return False
        if stopped:
            self._kill(process)
            why = f'{self._board.called(rank)} has stopped answering.'
        else:
            lines = self._why(rank, process)[0].strip().splitlines()
            why = lines[0] if len(lines) == 1 else f'{lines[0]} {lines[-1]}'
        if self._board.works[rank] == PREPARING and self._died_of.get(rank) == why:
            return False
        self._died_of[rank] = why
        if self._board.works[rank] == WORKING:
            del self._died_of[rank]
            self._board.works[rank] = PREPARING
        self._board.forget_last_words(rank)
        self._board.restarts[rank] = done + 1
        print(f'{why} Started again ({done + 1} of {most}).', file=sys.stderr, flush=True)
        self._start(rank)
        return True

    def _fail_with(self, rank: int, process: Any) -> None:
        """Fail with the error of a rank; if that is only the loss of another rank, with the other rank's error."""
        why, is_consequence = self._why(rank, process)
        deadline = Deadline(1.0)
        while is_consequence and self._processes and deadline.left > 0:
            for other, ended in self._ended_now():
                if ended.exitcode:
                    other_why, is_consequence = self._why(other, ended)
                    if not is_consequence:
                        why = other_why
                        break
        self._fail(why)

    def _why(self, rank: int, process: Any) -> tuple[str, bool]:
        """Return how a process ended, and whether that is only the consequence of another rank's end."""
        process.join()
        called, said = self._board.called(rank), self._board.last_words(rank)
        if said is not None:
            kind, text = said
            return text if kind == 'abort' else f'{called} {text}', kind == 'lost'
        code = process.exitcode
        if code >= 0:
            return f'{called} ended with exit status {code}.', False
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f'signal {-code}'
        hint = ' (the system does that when memory runs out)' if name == 'SIGKILL' else ''
        return f'{called} was killed by {name}{hint}.', False

    def _fail(self, message: str) -> None:
        self.failure = message
        self._board.fail(message)

    def _is_silent(self, rank: int) -> bool:
        """Return whether a rank has shown no sign of life for six seconds in which this thread itself was running."""
        life, turns = self._life[rank]
        now = (int(self._board.beats[rank]), _processor_time(self._processes[rank].pid))
        self._life[rank] = (now, 0 if now != life else turns + 1)
        return self._life[rank][1] * BEAT >= _SILENCE

    def _end(self) -> None:
        """End every process, by SIGTERM first and then by SIGKILL, and leave nothing behind."""
        if self._interrupted and 0 in self._processes:
            # Before the others: it may be in a collective with them, and cannot save before that is over.
            os.kill(self._processes[0].pid, signal.SIGINT)
            saving = Deadline(_SAVING)
            while self._processes[0].is_alive() and saving.left > 0 and not self._hurried.is_set():
                self._processes[0].join(SLICE)
        for process in self._processes.values():
            process.terminate()
        ending = Deadline(_ENDING)
        for process in self._processes.values():
            process.join(ending.left)
        for process in self._processes.values():
            self._kill(process)
        self._processes.clear()

    def _kill(self, process: Any) -> None:
        self._end_group(process.pid)
        process.kill()
        process.join()

    @staticmethod
    def _end_group(pid: int) -> None:
        """End the processes that a rank has started itself. Each rank leads a process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def launch(
    target: Callable[..., Any],
    size: int,
    args: tuple[Any, ...] = (),
    restarts: Mapping[int, int] | None = None,
    timeout: float | None = None,
) -> None:
    """Run a function in ``size`` processes, one per rank, and wait for their end.

    Args:
        target: the function that every process calls with ``args``. It may be defined in a notebook or a script.
        restarts: how often a rank is started again when it raises or is killed, by rank.
        timeout: seconds after which the job has failed.

    Raises:
        ClusterError: a rank failed; the message says which and how. The others have ended.
        ValueError: ``size`` is not a count, or ``restarts`` has a rank that does not exist.
    """
    Job(target, size, args, 0, restarts, timeout).wait()


def _processor_time(pid: int) -> int:
    """Return the ticks of the processor that a process has used; 0 where the system does not tell."""
    try:
        with open(f'/proc/{pid}/stat') as file:
            fields = file.read().rpartition(')')[2].split()
        return int(fields[11]) + int(fields[12])
    except (OSError, IndexError, ValueError):
        return 0


@contextlib.contextmanager
def _variables(defaults: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a process that is started in the block. Variables that the user set stay."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
