"""What every algorithm is made of; it knows nothing of the rest of zoo.

The rooms, from the ground up: ``tools``, ``maths``, ``adaptors``, ``networks``, ``acting``, ``envs``, ``rollouts``,
``plots``, ``replay``, ``datasets``, ``training``.

Modules that version 0.1 had directly in this folder go on working under their old names, with a warning.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Old names of modules, and the modules that have their contents now.
_MOVED = {
    'zoo.common.agent': ('zoo.common.training.agent',),
    'zoo.common.checkpoint': ('zoo.common.training.checkpoint', 'zoo.common.tools.files'),
    'zoo.common.distributions': ('zoo.common.maths.distributions',),
    'zoo.common.errors': ('zoo.common.tools.errors',),
    'zoo.common.optim': ('zoo.common.maths.optimizers',),
    'zoo.common.batch_renorm': ('zoo.common.networks.layers.batch_renorm',),
    'zoo.common.loops': ('zoo.common.training.loops', 'zoo.common.training.training'),
    'zoo.common.params': ('zoo.common.tools.params', 'zoo.common.parameters'),
    'zoo.common.returns': ('zoo.common.maths.returns',),
    'zoo.common.rollout': ('zoo.common.rollouts.rollout_buffer',),
    'zoo.common.types': ('zoo.common.records',),
}


class _OldNames(MetaPathFinder, Loader):
    """Finds a module under its old name: its names are looked up in the new modules."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in _MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        homes = _MOVED[module.__name__]
        warnings.warn(
            f'{module.__name__} has moved: import from {" or ".join(homes)}.', DeprecationWarning, stacklevel=2
        )

        def find(name: str) -> Any:
            if name == '__all__':
                return [own for home in homes for own in vars(importlib.import_module(home)) if own[0] != '_']
            for home in homes:
                if hasattr(importlib.import_module(home), name):
                    return getattr(importlib.import_module(home), name)
            raise AttributeError(f'module {module.__name__!r} has no attribute {name!r}')

        module.__dict__['__getattr__'] = find


sys.meta_path.append(_OldNames())
