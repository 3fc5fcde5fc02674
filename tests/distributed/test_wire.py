"""Structures become messages and come back."""

from __future__ import annotations

from collections import namedtuple

import ml_dtypes
import numpy as np
import pytest

from zoo.common.records import Episode, Trajectories, Transition
from zoo.distributed import wire


def same(a, b) -> bool:
    """Return whether two structures are equal in values, types, dtypes and shapes."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
    return a == b


ONE = np.ones(1)
STRUCTURES = {
    'array': np.arange(6.0).reshape(2, 3),
    'no axes': np.array(3.5),
    'empty': np.zeros((0, 4), np.float32),
    'bytes of odd lengths': {str(n): np.arange(n, dtype=np.uint8) for n in range(70)},
    'dtypes': [np.arange(4).astype(t) for t in ('bool', 'i1', 'u2', 'f2', 'f4', 'c8', '>i4', 'U5', 'S3', 'M8[s]')],
    'extremes': [np.array([-0.0, np.inf, 5e-324]), np.array([2**64 - 1], 'u8'), np.array([True, False])[::-1], -0.0],
    'empty of every kind': [np.zeros((2, 0, 3), t) for t in ('bool', '>f4', 'U4', 'c16')],
    'other orders': [np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(4, dtype='>f8')[::-2]],
    'keys': {'a/b': ONE, 'a': {'b': ONE}, 'é': ONE, '\ud800': ONE},
    'not contiguous': np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1)[::2],
    'scalars': {'a': np.float32(2.5), 'b': np.int64(-1), 'c': np.bool_(True), 'd': np.str_('é')},
    'inline': [ONE, 1, 2.5, float('inf'), 10**30, True, None, 'text é', ''],
    'nested': {'b': {'a': [ONE, (ONE, {'': ONE})]}, 'a': ()},
    'rollout': Trajectories({'x': ONE}, ONE, ONE, {'x': ONE}, ONE > 0, ONE > 0, ONE > 0),
    'transitions': (Transition(ONE, 1, 2.0, ONE, False, True), [Episode(1.5, 3, None, 2)]),
    'looks like the tree of an array': [['array', 0], ONE],
}


@pytest.mark.parametrize('name', STRUCTURES)
def test_round_trip(name):
    x = STRUCTURES[name]
    parts = wire.encode(x)
    assert same(wire.decode(parts), x)
    assert same(wire.decode(b''.join(parts)), x)
    assert same(wire.decode(memoryview(bytearray().join(parts))), x)


def test_arrays_are_not_copied_and_are_aligned():
    x = {'a': np.arange(3, dtype=np.uint8), 'b': np.arange(5.0)}
    parts = wire.encode(x)
    x['b'][0] = 7  # after encoding, and yet in the message
    buffer = np.empty(sum(part.nbytes for part in parts) + 64, np.uint8)
    buffer = buffer[-buffer.ctypes.data % 64 :][: sum(part.nbytes for part in parts)]
    buffer[:] = np.frombuffer(b''.join(parts), np.uint8)
    y = wire.decode(memoryview(buffer))
    assert y['b'][0] == 7 and y['b'].ctypes.data % 64 == 0
    assert np.shares_memory(y['b'], buffer)
    y['b'][1] = 9
    assert not wire.decode(bytes(buffer))['b'].flags.writeable


def test_numbers_as_arrays():
    flat = wire.flatten({'a': 1, 'b': 2.0, 'c': True}, numbers=True)
    assert flat.names == ['a', 'b'] and wire.describe(flat) == 'a int64[], b float64[]'
    assert same(wire.rebuild(flat.tree, [array * 2 for array in flat.arrays]), {'a': 2, 'b': 4.0, 'c': True})


Other = namedtuple('Other', 'x')


@pytest.mark.parametrize(
    ('x', 'path'),
    [
        ({'a': [ONE, object()]}, "'a/1' is an object"),
        ({'a': {1: ONE}}, "'a' has the key 1"),
        ([Other(ONE)], "'0' is an Other"),
        ({'a': np.array([None])}, "'a' has dtype object"),
        ({'a': np.zeros(2, [('x', 'f4')])}, "'a' has dtype"),
        ({ONE.tobytes(): ONE}, 'the object has the key'),
        ({'f': len}, "'f' is a builtin"),
        ({'a': np.ma.array([1.0, 2.0], mask=[False, True])}, "'a' is a masked array"),
        ({'a': [np.ma.masked]}, "'a/0' is a masked array"),
        ({'a': np.ones(2, ml_dtypes.float8_e5m2)}, "'a' has dtype float8_e5m2"),
        ({'a': ml_dtypes.bfloat16(1)}, "'a' has dtype bfloat16"),
    ],
)
def test_what_cannot_be_sent_is_named_by_its_path(x, path):
    with pytest.raises(TypeError, match=path):
        wire.encode(x)


@pytest.mark.parametrize('x', [{}, None, 3, 'text', {'a': [1, 2.0]}, ()])
def test_no_arrays(x):
    with pytest.raises(ValueError, match='has no arrays'):
        wire.encode(x)


def test_not_a_whole_message():
    message = b''.join(wire.encode({'a': np.arange(100)}))
    for end in (0, 4, 20, 100, len(message) - 50):
        with pytest.raises(ValueError, match='not a'):
            wire.decode(message[:end])
    with pytest.raises(ValueError, match='cannot be read'):
        wire.decode((4).to_bytes(8, 'little') + b'abcd')
