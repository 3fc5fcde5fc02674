"""What tells objects of a user's program apart, in any process."""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

#: What Keras counts up or draws in each process.
OF_ONE_PROCESS = ('name', 'module', 'registered_name', 'build_config', 'shared_object_id', 'seed')
#: How deep the attributes of objects are looked into, and how many parts are read at most: a second's work.
_DEPTH, _MOST = 8, 100_000
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def name_of(thing: Any) -> str:
    """Return the name of a function or a class, or of an object's class."""
    return str(getattr(thing, '__name__', type(thing).__name__))


def identity(thing: Any) -> str:
    """Return the name of an object, and a digest of what it is made of: ``'<lambda> 1f3a9c2e'``.

    It is the same in every process. A function counts by its code, its defaults and the values that it encloses; a
    ``functools.partial`` by its function and arguments; a network of Keras by its layers; another object by its class
    and attributes. A class counts by its name alone, and so does what a function reads from its module. Of a very large
    object only a part is read.
    """
    if isinstance(thing, type):
        return name_of(thing)
    parts = repr(_Reader().parts(thing))
    return f'{name_of(thing)} {hashlib.blake2b(parts.encode(errors="backslashreplace"), digest_size=4).hexdigest()}'


def keras_settings(made: Any) -> Any:
    """Return the kind and the settings of a network or an optimizer, with its layers, as far as Keras knows them."""
    inner = getattr(made, 'layers', None)
    if isinstance(inner, Iterable):
        return [type(made).__name__, *map(keras_settings, inner)]
    try:
        settings = made.get_config()
    except Exception:  # it has none
        return [type(made).__name__]
    return [type(made).__name__, {key: x for key, x in settings.items() if 'initializer' not in key}]


class _Reader:
    """Reads what an object is made of, in types whose text is the same in every process."""

    def __init__(self) -> None:
        self._left = _MOST
        self._seen: dict[int, tuple[int, Any]] = {}  # by identity: the number of an object, and the object itself

    def parts(self, value: Any, depth: int = _DEPTH) -> Any:
        if isinstance(value, _PLAIN):
            return value
        self._left -= 1
        if depth == 0 or self._left < 0:
            return type(value).__qualname__
        below = functools.partial(self.parts, depth=depth - 1)
        if isinstance(value, np.ndarray):
            return [value.dtype.str, value.shape, below(value.tolist() if value.dtype.hasobject else value.tobytes())]
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Mapping):
            return sorted(([str(key), below(item)] for key, item in value.items()), key=lambda pair: pair[0])
        if isinstance(value, list | tuple):
            return [below(item) for item in value]
        if isinstance(value, set | frozenset):
            return sorted(repr(below(item)) for item in value)
        if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
            return [getattr(value, '__module__', ''), getattr(value, '__qualname__', value.__name__)]
        if isinstance(value, types.CodeType):
            return [value.co_code, value.co_names, value.co_varnames, below(value.co_consts)]
        if id(value) in self._seen:
            return ['again', self._seen[id(value)][0]]
        self._seen[id(value)] = len(self._seen), value
        return self._object(value, below)

    @staticmethod
    def _object(value: Any, below: Callable[[Any], Any]) -> Any:
        if isinstance(value, functools.partial):
            return ['partial', below(value.func), below(value.args), below(value.keywords)]
        if inspect.ismethod(value):
            return ['method', below(value.__func__), below(value.__self__)]
        if isinstance(value, types.FunctionType):
            enclosed = [cell.cell_contents for cell in value.__closure__ or () if not _is_empty(cell)]
            given = (value.__code__, value.__defaults__, value.__kwdefaults__, enclosed)
            return [value.__qualname__, *map(below, given)]
        if hasattr(value, 'get_config'):
            return below(_in_every_process(keras_settings(value)))
        return [type(value).__module__, type(value).__qualname__, below(getattr(value, '__dict__', {}))]


def _in_every_process(settings: Any) -> Any:
    """Leave out what differs between processes."""
    if isinstance(settings, Mapping):
        return {key: _in_every_process(x) for key, x in settings.items() if key not in OF_ONE_PROCESS}
    return [_in_every_process(x) for x in settings] if isinstance(settings, list | tuple) else settings


def _is_empty(cell: types.CellType) -> bool:
    """Return whether the value that a function encloses does not exist yet."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False
