"""Whether building a network may write log lines."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

announces = contextvars.ContextVar('announces', default=True)


@contextlib.contextmanager
def unannounced() -> Iterator[None]:
    """Within this context, networks are built without log lines: they repeat networks that were announced before."""
    token = announces.set(False)
    try:
        yield
    finally:
        announces.reset(token)
