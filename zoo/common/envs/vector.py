"""Copies of an environment that step together, in this process or in one process each."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.synchronize
import multiprocessing.util
import os
import signal
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, async_vector_env

from zoo.common.envs.wrappers.copying import Copy, needs_copy
from zoo.common.envs.wrappers.prepare import prepare
from zoo.common.tools.errors import Failure, InvalidType, InvalidValue, ZooError
from zoo.common.tools.processes import without_main

#: Seconds by default in which a copy in another process answers: some simulators compile or start for minutes.
SAMPLE_TIMEOUT = 600.0


def limit_samples(env: Any, seconds: float | None) -> bool:
    """Set how long a copy may take for a step or a reset; return whether the copies have processes that can be ended.

    ``seconds``: None lets them take any time.
    """
    base = getattr(env, 'unwrapped', env)
    if not isinstance(base, ProcessVectorEnv):
        return False
    base.sample_timeout = seconds
    return True


def make_vector(
    make: Callable[[], Any],
    name: str,
    seeds: list[int | None],
    reward_shaping: Callable[[float], float] | None,
    processes: bool,
    one_per_process: bool = False,
) -> VectorEnv:
    """Make one copy for each seed, reset in the step in which its episode ends (``SAME_STEP``).

    The caller may keep the observations that ``step`` returns: copying them costs 2% of a step of eight CartPoles.
    ``final_obs`` never shares memory with them.

    Args:
        make: the factory of one copy.
        name: what error messages call the environment.
        seeds: the seed of each copy.
        reward_shaping: a function of one reward, or None.
        processes: whether each copy has its own process.
        one_per_process: whether a process can have only one copy, so that this process makes none to see its spaces.

    Raises:
        TypeError: with ``processes``, something in ``make`` or ``reward_shaping`` cannot be sent to another process.
        RuntimeError: a process ended while it was making its copy, or making it raised an error.
        ValueError: the first observation of a copy lies outside its space; ``make`` returns the same object each time.
    """
    factories: list[Callable[[], gymnasium.Env]] = [partial(make_copy, make, name, s, reward_shaping) for s in seeds]
    if not processes:
        env = SyncVectorEnv(factories, autoreset_mode=AutoresetMode.SAME_STEP)
        if len({id(copy.unwrapped) for copy in env.envs}) < len(env.envs):
            raise InvalidValue(
                f'{name} returns the same environment object for every copy: let it make a new one each time.'
            )
        env.spec = env.envs[0].spec
        return env
    specs: list[EnvSpec | None] = []
    factories = [partial(_make_reporting, factory, specs) for factory in factories]
    remedy = 'nenv=1' if one_per_process else "vectorized='sync'"
    try:
        cloudpickle.dumps(factories)
    except Exception as error:
        raise InvalidType(
            f"vectorized='async' sends {name} to other processes, but it cannot be pickled ({error}): give a class or "
            f'function that opens what it needs itself, or use {remedy}.'
        ) from error
    with without_main():
        if one_per_process:
            factories[0] = partial(_make_elsewhere, os.getpid(), _look(factories[0], name), factories[0], specs)
        apart = ProcessVectorEnv(factories, name, remedy)
    apart.spec = specs[0]  # the copy that Gymnasium made in this process to see its spaces
    return apart


def _look(factory: Callable[[], gymnasium.Env], name: str) -> gymnasium.Env:
    """An environment that only has the spaces of a copy, which was made in a process that then ended."""
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context('spawn')) as executor:
            return executor.submit(_describe, cloudpickle.dumps(factory)).result()
    except BrokenProcessPool as error:
        raise Failure(
            f'a copy of {name} is lost: its process ended while it was making it; nenv=1 runs the environment in this '
            'process.'
        ) from error


def _describe(factory: bytes) -> gymnasium.Env:
    try:
        env = cloudpickle.loads(factory)()
    except Exception as error:
        if isinstance(error, ZooError) or type(error).__module__ == 'builtins':
            raise
        # The error itself may not be picklable.
        raise CopyError(f'a copy could not be made:\n{traceback.format_exc()}') from None
    description = gymnasium.Env()
    description.observation_space, description.action_space = env.observation_space, env.action_space
    description.metadata, description.render_mode, description.spec = env.metadata, env.render_mode, env.spec
    with contextlib.suppress(Exception):  # it ends with this process
        env.close()
    return description


def _make_elsewhere(
    pid: int, description: gymnasium.Env, factory: Callable[[], gymnasium.Env], specs: list[EnvSpec | None]
) -> gymnasium.Env:
    """What ``factory`` makes; in the process ``pid``, where no copy may run, ``description``."""
    if os.getpid() != pid:
        return factory()
    specs.append(description.spec)
    return description


def _finalizers() -> dict[Any, Callable[[], Any]]:
    """What removes the names of this process's semaphores when it ends, by key; calling one does it now, and once."""
    registry: dict[Any, Any] = getattr(multiprocessing.util, '_finalizer_registry', {})
    cleanup = getattr(multiprocessing.synchronize.SemLock, '_cleanup', None)
    return {key: x for key, x in list(registry.items()) if cleanup and getattr(x, '_callback', None) is cleanup}


class ProcessVectorEnv(AsyncVectorEnv):
    """Gymnasium's :class:`AsyncVectorEnv`, in which a failing copy neither hangs nor leaves a process behind.

    When a copy raises an exception, its process ends for whatever reason, or it does not answer for ``sample_timeout``
    seconds, the call that needs the copy raises a RuntimeError, at most a second after the other copies are done. Then
    all processes end and the environment is closed. Messages call it ``name``; ``remedy`` is the argument that runs it
    in this process.

    Attributes:
        sample_timeout: seconds in which a copy answers a step or a reset; None: any time.
    """

    def __init__(
        self, factories: list[Callable[[], gymnasium.Env]], name: str, remedy: str = "vectorized='sync'"
    ) -> None:
        self._name, self._remedy = name, remedy
        self.sample_timeout: float | None = SAMPLE_TIMEOUT
        known = set(_finalizers())
        try:
            # A forked process would have TensorFlow's locks without the threads that hold them.
            super().__init__(factories, context='spawn', autoreset_mode=AutoresetMode.SAME_STEP, worker=_work)
        except BaseException:
            self.close(terminate=True)
            raise
        # All copies have opened the semaphores by now, since all have answered. Without names a rank that mpirun kills,
        # together with Python's own resource tracker, leaves none in shared memory.
        for key, finalizer in _finalizers().items():
            if key not in known:
                finalizer()

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """End the processes, by force after ``timeout`` seconds in all (None: 5), or at once; this never raises."""
        processes = getattr(self, 'processes', [])
        connections = [getattr(pipe, 'connection', pipe) for pipe in getattr(self, 'parent_pipes', [])]
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.send(('close', None))  # a copy at work reads this when it is done
        _join(processes, 0.0 if terminate else 5.0 if timeout is None else timeout)
        for end in (BaseProcess.terminate, BaseProcess.kill):
            remaining = [process for process in processes if process.is_alive()]
            for process in remaining:
                end(process)
            _join(remaining, 2.0)
        for connection in connections:
            connection.close()

    def _check_spaces(self) -> None:
        # This is the first exchange with the processes, so their pipes are watched from here on. The pipes hold only a
        # weak reference: an environment that nobody uses is collected, and ends its processes.
        own = weakref.proxy(self)
        watched: list[Any] = [  # they have the methods of connections that Gymnasium calls
            _WatchedPipe(pipe, process, own, i)
            for i, (pipe, process) in enumerate(zip(self.parent_pipes, self.processes, strict=True))
        ]
        self.parent_pipes = watched
        super()._check_spaces()

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Raise the error of the first copy that failed; its message names the copy and has the traceback."""
        failed = [i for i, success in enumerate(successes) if not success]
        if not failed:
            return
        try:
            index, _, error, trace = self.error_queue.get(timeout=10.0)
            what = str(error) if isinstance(error, CopyError) else f'failed:\n{trace}'
        except Exception:  # no error came, or it cannot be unpickled
            index = failed[0]
            what = f'failed with an exception that cannot be sent to this process: {self._remedy} raises it here.'
        self.close(timeout=2.0)
        raise Failure(f'copy {index} of {self._name} {what}')

    def report_hang(self, index: int, seconds: float) -> NoReturn:
        """Raise the error for a copy that does not answer."""
        what = {'step': 'for a step', 'reset': 'for a reset'}.get(self._state.value, 'to answer')
        self.close(terminate=True)
        raise Failure(
            f'copy {index} of {self._name} hangs: it has taken more than {seconds:g} s {what}; if that is right, give '
            'learn a longer sample_timeout.'
        )

    def report_end(self, index: int) -> NoReturn:
        """Raise the error for a copy without a process."""
        process = self.processes[index]
        process.join(2.0)
        code = process.exitcode
        self.close(timeout=2.0)
        how = f'ended with exit status {code}' if code is None or code >= 0 else f'was killed by {_signal_name(-code)}'
        raise Failure(
            f'copy {index} of {self._name} is lost: its process {how}; {self._remedy} runs the environment in this '
            'process.'
        )


def _signal_name(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f'signal {number}'
    return f'{name} (the system does that when memory runs out)' if name == 'SIGKILL' else name


def _join(processes: list[BaseProcess], seconds: float) -> None:
    """Wait for processes to end, so many seconds in all."""
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))


class _WatchedPipe:
    """A connection to a copy that reports a copy that hangs, or has lost its process, instead of waiting forever.

    An open connection says nothing: a child of the copy, such as a simulator, may have inherited it.
    """

    def __init__(self, connection: Connection, process: BaseProcess, env: ProcessVectorEnv, index: int) -> None:
        self.connection, self._process, self._env, self._index = connection, process, env, index

    def send(self, message: Any) -> None:
        try:
            self.connection.send(message)
        except ConnectionError:
            self._env.report_end(self._index)

    def recv(self) -> Any:
        limit, waited = self._env.sample_timeout, 0.0
        try:
            # Time in which this process was suspended does not count.
            while not self.connection.poll(slice := 1.0 if limit is None else min(1.0, limit)):
                if not self._process.is_alive() and not self.connection.poll():
                    self._env.report_end(self._index)
                waited += slice
                if limit is not None and waited >= limit:
                    self._env.report_hang(self._index, limit)
            return self.connection.recv()
        except (EOFError, ConnectionError):
            self._env.report_end(self._index)

    def poll(self, timeout: float | None = 0.0) -> bool:
        return self.connection.poll(timeout)

    @property
    def closed(self) -> bool:
        return self.connection.closed

    def close(self) -> None:
        self.connection.close()


def _work(
    index: int,
    make: Callable[[], gymnasium.Env],
    pipe: Connection,
    parent_pipe: Connection,
    shared_memory: Any,
    errors: multiprocessing.Queue,
    *rest: Any,
) -> None:
    """Gymnasium's worker, which also sends the exceptions of making the environment to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent handles it
    try:
        env = make()
    except Exception:
        parent_pipe.close()
        pipe.recv()
        errors.put((index, CopyError, CopyError(f'could not be made:\n{traceback.format_exc()}'), ''))
        pipe.send((None, False))
        return
    async_vector_env._async_worker(index, lambda: env, pipe, parent_pipe, shared_memory, errors, *rest)


def make_copy(
    make: Callable[[], Any], name: str, seed: int | None, reward_shaping: Callable[[float], float] | None
) -> gymnasium.Env:
    """Make one seeded copy of a vector environment; refuse a ``make`` that makes a vector environment (TypeError)."""
    env = make()
    if isinstance(env, VectorEnv):
        raise InvalidType(f'{name} makes a VectorEnv, which cannot be copied: make a gymnasium.Env, or say nenv=1.')
    env = prepare(env, name, seed, reward_shaping)
    return Copy(env, name) if needs_copy(env) else env


class CopyError(Failure):
    """An exception of a copy with its traceback, as text: other exceptions may not be picklable."""


class ReportErrors(gymnasium.Wrapper):
    """Raises a copy's exceptions as :class:`CopyError`: Gymnasium waits forever for one that cannot be pickled."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        with _reporting('reset'):
            return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        with _reporting('step'):
            return self.env.step(action)

    def render(self) -> Any:
        with _reporting('render'):
            return self.env.render()


@contextlib.contextmanager
def _reporting(method: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise CopyError(f'failed in {method}:\n{traceback.format_exc()}') from error


def _make_reporting(factory: Callable[[], gymnasium.Env], specs: list[EnvSpec | None]) -> gymnasium.Env:
    env = factory()
    specs.append(env.spec)
    return ReportErrors(env)
