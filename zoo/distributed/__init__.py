"""Distributed programs: one program runs as many ranks, each with a role.

``cluster`` connects the ranks, ``jobs`` starts them on this machine, ``engines`` move the bytes between them, and
``training`` trains agents over them. Any program may use the names below.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a type checker knows; a test compares it with __all__
    from zoo.distributed.cluster import Cluster as Cluster
    from zoo.distributed.cluster import connect as connect
    from zoo.distributed.engines.base import ClusterError as ClusterError
    from zoo.distributed.engines.base import MessageTooLarge as MessageTooLarge
    from zoo.distributed.engines.base import PeerLost as PeerLost
    from zoo.distributed.jobs import Job as Job
    from zoo.distributed.jobs import launch as launch
    from zoo.distributed.layout import Layout as Layout
    from zoo.distributed.layout import Role as Role
    from zoo.distributed.queues import Inbox as Inbox
    from zoo.distributed.queues import Queue as Queue
    from zoo.distributed.queues import wait_any as wait_any

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


if not TYPE_CHECKING:  # where it is seen, any name seems to exist

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        return getattr(importlib.import_module(f'zoo.distributed.{_HOME[name]}'), name)


def __dir__() -> list[str]:
    return sorted(__all__)
