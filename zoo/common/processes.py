"""Starting processes."""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Iterator

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
