"""The packages RLBench and PyRep, imported when a task is built."""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType

from zoo.common.tools.errors import MissingPackage


def load_module(name: str, package: str = 'rlbench') -> ModuleType:
    """Return the module ``<package>.<name>``, imported now; an ImportError says what is not installed, or where."""
    root = os.environ.get('COPPELIASIM_ROOT')
    if importlib.util.find_spec('rlbench') and not os.path.isdir(root or ''):
        raise MissingPackage(
            f'COPPELIASIM_ROOT must be the folder of CoppeliaSim 4.1 but is {root!r}: before Python starts, export it, '
            'LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$COPPELIASIM_ROOT and QT_QPA_PLATFORM_PLUGIN_PATH=$COPPELIASIM_ROOT.'
        )
    try:
        return importlib.import_module(f'{package}.{name}')
    except (ImportError, SyntaxError) as error:
        raise MissingPackage(
            'RLBench needs three things that PyPI does not have, installed as their own pages say: CoppeliaSim 4.1 '
            '(https://www.coppeliarobotics.com), then PyRep (https://github.com/stepjam/PyRep) and RLBench '
            f"(https://github.com/stepjam/RLBench); PyPI's `pyrep` is an unrelated package ({error})."
        ) from error
