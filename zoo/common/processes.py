"""Starting processes."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Keep new processes from importing the running script again.

    They need nothing of it, as what the factories take from it is pickled by value; and a script without an
    ``if __name__ == '__main__'`` guard would build its environments once more in every one of them.
    """
    main = sys.modules['__main__']
    sys.modules['__main__'] = types.ModuleType('__main__')
    try:
        yield
    finally:
        sys.modules['__main__'] = main
