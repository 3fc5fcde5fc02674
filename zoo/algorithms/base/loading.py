"""``zoo.load``: an agent of any algorithm from its checkpoint."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from zoo.algorithms.base import catalog, saving
from zoo.algorithms.base.algorithm import Algorithm
from zoo.common.training import checkpoint, hub


def load(
    path: str | os.PathLike[str],
    net_list: Sequence[Any] | None = None,
    optimizers_list: Sequence[Any] | None = None,
    *,
    best: bool = False,
    revision: str | None = None,
    token: str | None = None,
) -> Algorithm:
    """Return the agent that was saved at ``path``, of any algorithm; :meth:`Algorithm.load` has the same arguments.

    Args:
        path: a checkpoint; a run directory, whose newest checkpoint is loaded; the name of a trained agent, such as
            ``'TD3/Pendulum-v1'``, of those that ``zoo.list_agents()`` lists; or ``'hf://name/repo'``, an agent on the
            Hugging Face hub, which is downloaded once. A path that exists wins over a name.
        net_list, optimizers_list: as for :meth:`Algorithm.load`.
        best: load the best agent of a run directory, which :class:`zoo.callbacks.KeepBest` or ``Evaluate`` kept. A
            trained agent with a name is the best of its run in any case.
        revision, token: of the hub: a branch, a tag or a commit, also as ``'hf://name/repo@revision'``; and a token for
            private and gated repositories, without which ``HF_TOKEN`` or the one of ``hf auth login`` is taken.

    Raises:
        CheckpointError: the checkpoint is missing, damaged, newer than this library, or of an algorithm unknown here.
        ValueError: the saved agent had networks of the user's own and ``net_list`` is missing or does not fit.
    """
    path = hub.local(path, revision, token)
    found, saved = saving.read(saving.best_of(path) if best else path, None)
    name = saved.config.get('algorithm')
    if name not in catalog.NAMES:
        raise checkpoint.CheckpointError(
            f"'{found}' cannot be loaded: {name} is no algorithm of this zoo. Load an agent of a class of "
            f'your own with {name}.load(path), and an agent of a later zoo with that zoo.'
        )
    return saving.load(catalog.find(name), saved, found, net_list, optimizers_list)
