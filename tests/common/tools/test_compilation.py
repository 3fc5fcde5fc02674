"""The rule for XLA, the threads, and the packed compiled call."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from zoo.common.tools.compilation import PackedCall, prefers_xla


@pytest.mark.parametrize(
    ('shapes', 'expected'),
    [
        ([(4, 64), (64,), (64, 64), (64, 2)], True),
        ([(128, 128), (128,)], True),
        ([(128, 129), (129,)], False),
        ([(17, 256), (256, 256), (256, 6)], False),
        ([(8, 8, 3, 16), (16,), (16, 4)], False),
        ([(), (5,), (100_000,)], True),
        ([], True),
    ],
    ids=['narrow', 'at the bound', 'above it', 'wide', 'convolution', 'no kernel', 'nothing'],
)
def test_prefers_xla(shapes, expected):
    assert prefers_xla([tf.Variable(tf.zeros(shape)) for shape in shapes]) is expected


@pytest.mark.full
def test_threads_are_chosen_once_and_the_environment_goes_before():
    code = """
import os, tensorflow as tf
from zoo.common.tools.compilation import set_threads
threads = tf.config.threading
def found():
    return threads.get_intra_op_parallelism_threads(), threads.get_inter_op_parallelism_threads()
os.environ['TF_NUM_INTEROP_THREADS'] = '3'
set_threads(False)
print(found())
del os.environ['TF_NUM_INTEROP_THREADS']
set_threads(True)
print(found())
set_threads(False)
print(found())
tf.zeros(3) + 1
set_threads(True)
print(found())
"""
    environment = {key: value for key, value in os.environ.items() if not key.startswith('TF_NUM')}
    result = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.splitlines() == ['(0, 0)', '(0, 2)', '(1, 2)', '(1, 2)']


class Pair(NamedTuple):
    """A structure such as a Transition."""

    left: Any
    right: Any


DTYPES = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.float16, np.float32, np.float64]


def structures() -> dict[str, Any]:
    """Inputs of every structure that crosses."""
    rng = np.random.default_rng(3)
    return {
        'arrays of every dtype': tuple(rng.integers(0, 2, (2, 3)).astype(dtype) for dtype in DTYPES),
        'scalars of every dtype': tuple(np.array(1, dtype) for dtype in DTYPES),
        'nested': (
            Pair({'b/c': rng.random((2, 1), np.float32), 'a': rng.integers(9, size=(3,))}, rng.random(4) < 0.5),
            [np.array(0.5, np.float32), (rng.integers(0, 255, (2, 8, 8, 3), np.uint8),)],
        ),
        'two images': (
            rng.integers(0, 255, (4, 4), np.uint8),
            np.zeros(1, np.float32),
            rng.integers(0, 255, (2, 2), np.uint8),
        ),
        'an empty array': (np.zeros((0, 3), np.float32), np.arange(4)),
        'views': (np.arange(12).reshape(3, 4).T, np.arange(12, dtype=np.float32)[::-2]),
    }


class TestPackedCall:
    @pytest.mark.parametrize('xla', [False, True], ids=['plain', 'xla'])
    @pytest.mark.parametrize('case', structures())
    def test_round_trip_of_values_dtypes_and_structure(self, case, xla):
        inputs = structures()[case]
        seen = []

        def echo(*tensors: Any) -> tf.Tensor:
            tf.nest.assert_same_structure(list(inputs), list(tensors))
            flat = tf.nest.flatten(tensors)
            seen.extend((tuple(x.shape), x.dtype.as_numpy_dtype) for x in flat)
            return tf.concat([tf.reshape(tf.cast(x, tf.float32), [-1]) for x in flat], 0)

        result = PackedCall(echo, xla)(*inputs)
        leaves = tf.nest.flatten(inputs)
        assert seen == [(leaf.shape, leaf.dtype.type) for leaf in leaves]
        np.testing.assert_array_equal(result, np.concatenate([leaf.ravel() for leaf in leaves]).astype(np.float32))

    @pytest.mark.parametrize('xla', [False, True], ids=['plain', 'xla'])
    @pytest.mark.parametrize('dtype', [np.int32, np.uint32, np.int64, np.uint64, np.float64])
    def test_numbers_keep_all_their_digits(self, dtype, xla):
        limits = np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else np.finfo(dtype)
        numbers = np.array([2**24 + 1, 2**31 - 1, 7, 0, 1, limits.max, limits.min, limits.max // 3], dtype)
        beside = np.array([True, False]), np.array([0.1], np.float32)

        def equal(flags: tf.Tensor, x: tf.Tensor, fraction: tf.Tensor) -> tf.Tensor:
            assert x.dtype == dtype
            found = [tf.reduce_all(x == tf.constant(numbers)), flags[0], tf.logical_not(flags[1])]
            return tf.stack([*(tf.cast(value, tf.float32) for value in found), fraction[0]])

        found = PackedCall(equal, xla)(beside[0], numbers, beside[1])
        np.testing.assert_array_equal(found, np.float32([1, 1, 1, 0.1]))

    @pytest.mark.parametrize('xla', [False, True], ids=['plain', 'xla'])
    def test_no_pattern_of_bits_is_changed_on_the_way(self, xla):
        """As floats these are NaN of every kind, infinities and numbers too small for the processor's fast mode."""
        words = np.array([0x7F800001, 0x7FC00001, 0xFF800001, 0xFFFFFFFF, 0x7F800000, 1, 0x807FFFFF], np.uint32)
        wide = np.array([0x7FF0000000000001, 0x7FC0000100000001, 1], np.uint64)

        def differing(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            wrong = [x != tf.constant(words), y != tf.constant(wide)]
            return tf.stack([tf.reduce_sum(tf.cast(w, tf.float32)) for w in wrong])

        np.testing.assert_array_equal(PackedCall(differing, xla)(words, wide), [0, 0])

    def test_the_other_byte_order_is_read_right(self):
        numbers = [1.5, -2.0, 300.0]
        for dtype in ('>f4', '>f8', '>i4', '>i8', '>i2', '>f2'):
            given = np.array(numbers, dtype)
            found = PackedCall(lambda x: tf.cast(x, tf.float32), False)(given)
            np.testing.assert_array_equal(found, given.astype(np.float32))

    def test_one_trace_for_each_shape_and_dtype(self):
        traced = []

        def total(x: dict[str, tf.Tensor]) -> tf.Tensor:
            traced.append(x['a'].shape)
            return tf.reduce_sum(tf.cast(x['a'], tf.float32))

        call = PackedCall(total, False)
        assert call.traces == 0
        for value in (1.0, 2.0, 3.0):
            assert call({'a': np.full(4, value, np.float32)}) == 4 * value
        assert call.traces == len(traced) == 1
        assert call({'a': np.full(5, 2.0, np.float32)}) == 10.0
        assert call({'a': np.full(4, 2, np.int32)}) == 8.0
        assert call.traces == len(traced) == 3
        assert call({'a': np.full(4, 7.0, np.float32)}) == 28.0
        assert call.traces == len(traced) == 3

    def test_variables_are_read_at_each_call(self):
        weight = tf.Variable(2.0)
        call = PackedCall(lambda x: x * weight, True)
        assert call(np.float32([3.0])) == 6.0
        weight.assign(5.0)
        assert call(np.float32([3.0])) == 15.0

    def test_it_lives_as_long_as_it_is_called(self):
        call = PackedCall(lambda x: x + 1.0, False)
        assert call(np.float32([3.0])) == 4.0
        gc.collect()
        assert call(np.float32([4.0])) == 5.0

    def test_what_fails_inside_is_an_error_of_tensorflow(self):
        def checked(x: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([tf.debugging.assert_positive(x, 'it has to be above zero')]):
                return x + 0.0

        call = PackedCall(checked, False)
        assert call(np.float32([1.0])) == 1.0
        with pytest.raises(tf.errors.InvalidArgumentError, match='it has to be above zero'):
            call(np.float32([-1.0]))
