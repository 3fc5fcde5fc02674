"""Environments of the user's own by name: ``'module:Class'``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
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


def path_of(maker: Any) -> str | None:
    """Return the ``'module:Class'`` by which :func:`maker_of` finds a class or function in every process, if any does.

    Nothing finds what is in the program itself, inside a function, or a lambda.
    """
    module, name = getattr(maker, '__module__', None), getattr(maker, '__qualname__', '')
    if not module or module == '__main__' or not name.isidentifier() or name in registry:
        return None
    return f'{module}:{name}' if getattr(sys.modules.get(module), name, None) is maker else None


def imported(package: str, env_id: str) -> Any:
    """Import the package of a name; an ImportError names both."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingPackage(f'the package {package!r} of {env_id!r} cannot be imported: {error}.') from error
