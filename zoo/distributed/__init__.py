"""Distributed programs: one program runs as many ranks, each with a role.

``cluster`` connects the ranks, ``jobs`` starts them on this machine, ``engines`` move the bytes between them, and
``training`` trains agents over them. Any program may use the names below.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    'Cluster': 'cluster',
    'Inbox': 'queues',
    'Layout': 'layout',
    'Queue': 'queues',
    'Role': 'layout',
    'connect': 'cluster',
    'wait_any': 'queues',
    'ClusterError': 'engines.base',
    'MessageTooLarge': 'engines.base',
    'PeerLost': 'engines.base',
    'Job': 'jobs',
    'launch': 'jobs',
}

__all__ = list(_HOME)  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(importlib.import_module(f'zoo.distributed.{_HOME[name]}'), name)


def __dir__() -> list[str]:
    return sorted(__all__)
