"""Nested structures as buffers: what crosses a queue, a broadcast, or save and request. No pickle, no code is executed.

A message is a header and then the arrays, each contiguous and aligned to 64 bytes. The header is JSON: the structure,
in which every array is a number, and the name, shape and dtype of each array. A structure consists of dicts with string
keys, lists, tuples, the named tuples of :mod:`zoo.common.records`, NumPy arrays and scalars, Python numbers, strings,
bools and None. An object that NumPy can view as an array (a TensorFlow tensor or variable) arrives as a NumPy array.
Values, shapes and dtypes, byte order included, arrive unchanged. An object of a subclass arrives as its base class: an
``OrderedDict`` as a dict. Everything else is refused by the sender.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from zoo.common.records import Batch, Episode, SequenceBatch, Trajectories, Transition
from zoo.common.tools.errors import InvalidType, InvalidValue, a_type

#: The named tuples that can be sent, by their name in a message.
NAMED = {record.__name__: record for record in (Transition, Batch, SequenceBatch, Trajectories, Episode)}

_ALIGNMENT = 64
_KINDS = 'biufcSUmM'  # what raw bytes can hold: not objects, not records


class Flat(NamedTuple):
    """A structure taken apart.

    Attributes:
        tree: the structure in JSON's types, with an index into ``arrays`` in place of each array.
        arrays: the arrays, C-contiguous.
        names: the path of each array, such as ``'obs/camera'``.
    """

    tree: Any
    arrays: list[np.ndarray]
    names: list[str]


def flatten(x: Any, numbers: bool = False) -> Flat:
    """Take a structure apart. ``numbers``: Python's ints and floats count as arrays (int64, float64), for a reduction.

    Raises:
        TypeError: something in it cannot be sent; the message has its path.
        ValueError: there is no array in it.
    """
    flat = Flat(None, [], [])
    tree = _take_apart(x, '', numbers, flat)
    if not flat.arrays:
        raise InvalidValue(
            f'{shorten(repr(x), 60)} has no arrays in it: send a NumPy array or a dict, list or tuple that has one.'
        )
    return flat._replace(tree=tree)


def rebuild(tree: Any, arrays: list[np.ndarray]) -> Any:
    """Put a structure together from a tree of :func:`flatten` and arrays in the same order."""
    if not isinstance(tree, list):
        return tree
    kind, content = tree
    if kind == 'array':
        return arrays[content]
    if kind == 'scalar':
        return arrays[content].reshape(())[()]
    if kind == 'number':
        return arrays[content].item()
    if kind == 'dict':
        return {key: rebuild(value, arrays) for key, value in content}
    items = [rebuild(item, arrays) for item in content]
    if kind == 'list':
        return items
    return tuple(items) if kind == 'tuple' else NAMED[kind](*items)


def describe(flat: Flat) -> str:
    """Return names, shapes and dtypes on one line: ``'obs float32[8, 4], reward float32[8]'``."""
    return ', '.join(
        f'{name} {array.dtype}{list(array.shape)}'.strip() for name, array in zip(flat.names, flat.arrays, strict=True)
    )


def encode(x: Any) -> list[memoryview]:
    """Return a structure as a list of contiguous buffers, the header first. In a row they are the message.

    The buffers are the arrays' own memory wherever it is contiguous: nothing is copied.

    Raises:
        TypeError: something in it cannot be sent; the message has its path.
        ValueError: there is no array in it.
    """
    flat = flatten(x)
    specs = [(name, a.shape, a.dtype.str) for name, a in zip(flat.names, flat.arrays, strict=True)]
    text = json.dumps({'tree': flat.tree, 'arrays': specs}, separators=(',', ':')).encode()
    header = len(text).to_bytes(8, 'little') + text
    parts = [memoryview(header + bytes(_padding(len(header))))]
    for array in flat.arrays:
        if array.nbytes:
            parts.append(memoryview(array.reshape(-1).view(np.uint8)))
            if _padding(array.nbytes):
                parts.append(memoryview(bytes(_padding(array.nbytes))))
    return parts


def decode(message: Any) -> Any:
    """Return the structure of a message.

    The message is what :func:`encode` made, as one bytes-like object or as the list. The arrays are views of its
    memory, read-only if that is read-only. For a list the memory is new.

    Raises:
        ValueError: this is not a message, or not a whole one.
    """
    if isinstance(message, list):
        message = bytearray().join(message)
    view = memoryview(message).cast('B')
    start = 8 + int.from_bytes(view[:8], 'little')
    if len(view) < 8 or start > len(view):
        raise InvalidValue(f'{len(view)} bytes are not a whole message: its header is cut off.')
    try:
        header = json.loads(bytes(view[8:start]))
        specs = [(tuple(shape), np.dtype(dtype)) for _, shape, dtype in header['arrays']]
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidValue(f'{len(view)} bytes are not a message: their header cannot be read ({error}).') from error
    arrays = []
    for shape, dtype in specs:
        start += _padding(start)
        count = int(np.prod(shape, dtype=np.int64))
        if start + count * dtype.itemsize > len(view):
            raise InvalidValue(f'{len(view)} bytes are not a whole message: an array is cut off.')
        size = count * dtype.itemsize
        arrays.append(np.frombuffer(view, dtype, count, start).reshape(shape) if size else np.empty(shape, dtype))
        start += size
    return rebuild(header['tree'], arrays)


def shorten(text: str, most: int) -> str:
    """Return a text, cut to at most so many characters."""
    return text if len(text) <= most else text[: most - 3] + '...'


def _take_apart(x: Any, path: str, numbers: bool, flat: Flat) -> Any:
    """Return the tree of one node. Its arrays go to the end of ``flat``'s lists."""

    def inner(key: object) -> str:
        return f'{path}/{key}' if path else str(key)

    def keep(kind: str, array: np.ndarray) -> list:
        if array.dtype.kind not in _KINDS or array.dtype.isbuiltin == 2:  # 2: of another package, as float8
            raise InvalidType(f'{_where(path)} has dtype {array.dtype}: only numbers, bools and strings can be sent.')
        # ascontiguousarray would make a vector of a scalar.
        flat.arrays.append(np.asarray(array, order='C'))
        flat.names.append(path)
        return [kind, len(flat.arrays) - 1]

    if isinstance(x, np.ma.MaskedArray):
        raise InvalidType(f'{_where(path)} is a masked array, which cannot be sent: send its data and its mask.')
    if isinstance(x, np.ndarray):
        return keep('array', x)
    if isinstance(x, dict):
        for key in x:
            if not isinstance(key, str):
                raise InvalidType(f'{_where(path)} has the key {key!r}, which cannot be sent: keys have to be strings.')
        return ['dict', [[key, _take_apart(value, inner(key), numbers, flat)] for key, value in x.items()]]
    if isinstance(x, tuple) and hasattr(x, '_fields'):
        if NAMED.get(type(x).__name__) is not type(x):
            raise InvalidType(
                f'{_where(path)} is {a_type(x)}, which cannot be sent: of named tuples, {", ".join(NAMED)} '
                'can; send a dict.'
            )
        fields = zip(x._fields, x, strict=True)
        return [type(x).__name__, [_take_apart(value, inner(name), numbers, flat) for name, value in fields]]
    if isinstance(x, (list, tuple)):
        kind = 'list' if isinstance(x, list) else 'tuple'
        return [kind, [_take_apart(item, inner(i), numbers, flat) for i, item in enumerate(x)]]
    if isinstance(x, np.generic):
        return keep('scalar', np.asarray(x))
    if x is None or isinstance(x, (str, bool)):
        return x
    if isinstance(x, (int, float)):
        return keep('number', np.asarray(x)) if numbers else x
    if hasattr(x, '__array__'):
        return keep('array', np.asarray(x))
    raise InvalidType(
        f'{_where(path)} is {a_type(x)}, which cannot be sent: use arrays, numbers, strings, bools and None '
        'in dicts, lists and tuples.'
    )


def _where(path: str) -> str:
    return repr(path) if path else 'the object'


def _padding(size: int) -> int:
    return -size % _ALIGNMENT
