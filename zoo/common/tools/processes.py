"""Start processes without the running script, and keep a folder to one process at a time."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import types
from collections.abc import Iterator

from zoo.common.tools.errors import InvalidValue

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

_lock = threading.Lock()


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Keep new processes from importing the running script again. One thread at a time.

    What they take from the script is pickled by value. A script without an ``if __name__ == '__main__'`` guard would
    run again in every one of them.
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
    """Lock a folder, so that no second call writes there. The lock ends with the process.

    On a file system without locks nothing is locked. A ValueError says that a call of this machine has the lock.
    """
    if fcntl is None:
        yield
        return
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidValue(
                f"'{os.fspath(folder)}' is in use: something else is writing there. Wait until it has ended, or choose "
                'another folder.'
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(lock)


def is_in_use(folder: str | os.PathLike[str]) -> bool:
    """Return whether a call of this machine is :func:`alone_in` a folder; False where that cannot be known."""
    if fcntl is None:
        return False
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
