"""EnvPool (Weng et al. 2022, arXiv 2206.10558): copies of an environment step in C++ threads.

``vectorized='envpool'`` runs Gymnasium's environments in them (:class:`EnvPoolVectorEnv`, Gymnasium's spaces). The type
``'envpool'`` has all of EnvPool's own environments by name (:func:`find`, :func:`make_vector`, EnvPool's spaces).
"""

from __future__ import annotations

from zoo.common.envs.kinds.envpool.copies import EnvPoolVectorEnv, ThreadedCopies, shared
from zoo.common.envs.kinds.envpool.env import find, ids, make_vector
from zoo.common.envs.kinds.envpool.pools import check_task, has_task, is_installed, make_pool
from zoo.common.envs.kinds.envpool.tasks import table_type, takes

__all__ = [
    'EnvPoolVectorEnv',
    'ThreadedCopies',
    'check_task',
    'find',
    'has_task',
    'ids',
    'is_installed',
    'make_pool',
    'make_vector',
    'shared',
    'table_type',
    'takes',
]
