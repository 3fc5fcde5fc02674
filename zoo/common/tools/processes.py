"""Processes: how they are started, and that one at a time works in a folder."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import types
from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

_lock = threading.Lock()


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Keep new processes from importing the running script again. One thread at a time.

    They need nothing of it, as what they take from it is pickled by value; and a script without an
    ``if __name__ == '__main__'`` guard would do all it does once more in every one of them.
    """
    with _lock:
        main = sys.modules['__main__']
        sys.modules['__main__'] = types.ModuleType('__main__')
        try:
            yield
        finally:
            sys.modules['__main__'] = main


@contextlib.contextmanager
def alone_in(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Keep others out of a folder that two at a time would spoil; a process that dies no longer keeps them out.

    Where the file system has no locks nobody is kept out.

    Raises:
        ValueError: somebody is at work there, this process itself in another call or another one of this machine.
    """
    if fcntl is None:
        yield
        return
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"'{os.fspath(folder)}' is in use: something else is writing there. Wait until it has ended, or choose "
                'another folder.'
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(lock)
