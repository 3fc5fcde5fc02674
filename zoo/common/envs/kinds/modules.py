"""Environments of the user's own by name: ``'module:Class'``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import gymnasium
from gymnasium.envs.registration import registry

from zoo.common.tools.errors import InvalidValue, MissingPackage, nearest


def maker_of(env_id: str) -> Callable[..., Any] | None:
    """Return the class or function that ``'module:Class'`` names; None for the name of a registered environment.

    Raises:
        ImportError: the module needs another one that is not installed.
        ValueError: there is no such module, or it has no such class.
    """
    package, _, name = env_id.rpartition(':')
    if not package or not name.isidentifier():
        return None
    try:
        module = imported(package, env_id)
    except MissingPackage as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and package.startswith(cause.name or '?'):
            raise InvalidValue(f'there is no module {package!r} for {env_id!r}, neither here nor installed.') from None
        raise
    if name in registry:
        return None
    found = getattr(module, name, None)
    if not callable(found):
        own = [
            key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, gymnasium.Env)
        ]
        close = nearest(name, own)
        hint = f': did you mean {close!r}?' if close else '.'
        raise InvalidValue(f'the module {package!r} has no environment {name!r}{hint}')
    return cast('Callable[..., Any]', found)


def in_module(name: str) -> str | None:
    """Return the sentence that says how to name a class in a file, for ``./envs.py:Reach``, ``envs.Reach`` or ``envs``.

    None: there is no such file.
    """
    start, _, cls = name.rpartition(':')
    path = Path(start or cls)
    if not start and not os.path.isfile(path) and path.suffix[1:].isidentifier():
        path, start, cls = path.with_suffix(''), path.stem, path.suffix[1:]
    path = path.parent / f'{path.name.removesuffix(".py")}.py'
    if not path.stem.isidentifier() or not os.path.isfile(path):  # which is False for what cannot be a path
        return None
    right = f"'{path.stem}:{cls}'" if start else f"'{path.stem}:Class' with the name of the class"
    folder = path.parent.resolve()
    is_found = folder in (Path.cwd(), *map(Path, sys.path))
    return f'{name!r} names a file: write {right}' + (
        '.' if is_found else f", in the folder '{folder}' or with it on PYTHONPATH."
    )


def path_of(maker: Any) -> str | None:
    """Return the ``'module:Class'`` by which :func:`maker_of` finds a class or function in every process, if any does.

    Nothing finds what is in the program itself, inside a function, or a lambda.
    """
    module, name = getattr(maker, '__module__', None), getattr(maker, '__qualname__', '')
    if not module or module == '__main__' or not name.isidentifier() or name in registry:
        return None
    return f'{module}:{name}' if getattr(sys.modules.get(module), name, None) is maker else None


def imported(package: str, env_id: str) -> Any:
    """Import the package of a name; an ImportError names both. A ValueError says what to write in place of a file."""
    if '/' in package or os.sep in package or package.startswith('.') or package.endswith('.py'):
        raise InvalidValue(
            in_module(env_id) or f"there is no file {package!r} for {env_id!r}; a class in envs.py is 'envs:Class'."
        )
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingPackage(f'the package {package!r} of {env_id!r} cannot be imported: {error}.') from error
