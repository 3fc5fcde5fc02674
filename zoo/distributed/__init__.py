"""Distributed training: one program, many ranks, each with a role; see :mod:`zoo.distributed.cluster`."""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    'Cluster': 'cluster',
    'Layout': 'cluster',
    'Queue': 'cluster',
    'Role': 'cluster',
    'connect': 'cluster',
    'wait_any': 'cluster',
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
