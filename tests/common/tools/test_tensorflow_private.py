"""The runtime's own way of calling a compiled function, the public one, and which is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context, execute

from zoo.common.tools import tensorflow_private
from zoo.common.tools.compilation import PackedCall, XlaCall


@pytest.fixture(autouse=True)
def _nothing_was_said():
    tensorflow_private.say_public.cache_clear()
    yield
    tensorflow_private.say_public.cache_clear()


def compiled(xla: bool = False) -> tuple[Any, tf.Variable]:
    """A function of two tensors that reads and moves a variable."""
    weight = tf.Variable([1.0, 2.0])

    @tf.function(jit_compile=xla, autograph=False)
    def step(x: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
        return weight.assign_add(x) * tf.cast(others[0], tf.float32)

    return step.get_concrete_function(tf.TensorSpec([2]), tf.TensorSpec([2], tf.uint8)), weight


def run(call: Any) -> list[np.ndarray]:
    inputs = [tf.constant([0.5, 0.25]), tf.constant([2, 3], tf.uint8)]
    found = [call(inputs) for _ in range(3)]
    return [np.array(each[0] if isinstance(each, list) else each) for each in found]


@pytest.mark.parametrize('xla', [False, True], ids=['plain', 'xla'])
def test_both_ways_give_the_same(xla):
    function, weight = compiled(xla)
    direct = tensorflow_private.direct_call(function)
    assert direct is not None, f'TensorFlow {tf.__version__} has another runtime'
    found = run(direct)
    np.testing.assert_array_equal(weight, [2.5, 2.75])
    weight.assign([1.0, 2.0])
    np.testing.assert_array_equal(run(tensorflow_private.public_call(function)), found)
    np.testing.assert_array_equal(weight, [2.5, 2.75])


@pytest.mark.parametrize('known', [True, False])
def test_several_outputs(monkeypatch, caplog, known):
    if not known:
        monkeypatch.setattr(tensorflow_private, 'direct_call', lambda function: None)
    call = XlaCall(lambda x, parts: {'double': x * 2.0, 'rest': (parts['a'] + 1, [tf.shape(x)])})
    for _ in range(2):
        found = call(np.float32([1.0, 2.0]), {'a': np.int32(3)})
        assert found.keys() == {'double', 'rest'} and found['double'].numpy().tolist() == [2.0, 4.0]
        assert int(found['rest'][0]) == 4 and found['rest'][1][0].numpy().tolist() == [2]
    assert call.is_traced and bool(caplog.records) != known


def test_the_runtime_is_called_where_it_is_known(monkeypatch, caplog):
    seen = []
    known = execute.execute

    def counted(op_name: Any, num_outputs: Any, inputs: Any, attrs: Any, ctx: Any, name: Any = None) -> Any:
        seen.append(op_name)
        return known(op_name, num_outputs, inputs, attrs, ctx, name)

    function, _ = compiled()
    monkeypatch.setattr(execute, 'execute', counted)
    run(tensorflow_private.calling(function))
    assert len([name for name in seen if b'step' in tf.compat.as_bytes(name)]) == 3
    assert not caplog.records


def other_order(num_outputs: Any, op_name: Any, inputs: Any, attrs: Any, ctx: Any, name: Any = None) -> Any:
    raise AssertionError('it must not be called')


def another_argument(op_name: Any, num_outputs: Any, inputs: Any, attrs: Any, ctx: Any, device: Any) -> Any:
    raise AssertionError('it must not be called')


def one_fewer(op_name: Any, num_outputs: Any, inputs: Any, ctx: Any, attrs: Any = ()) -> Any:
    raise AssertionError('it must not be called')


@pytest.mark.parametrize('changed', [None, other_order, another_argument, one_fewer, 3, 'the context', 'the options'])
def test_the_public_way_is_taken_and_said_once_where_the_runtime_is_another(monkeypatch, caplog, changed):
    function, weight = compiled()
    expected = run(tensorflow_private.public_call(function))
    weight.assign([1.0, 2.0])
    if changed is None:
        monkeypatch.delattr(execute, 'execute')
    elif changed == 'the context':
        monkeypatch.delattr(context, 'context')
    elif changed == 'the options':
        monkeypatch.delattr(context.Context, 'function_call_options')
    else:
        monkeypatch.setattr(execute, 'execute', changed)
    calls = [tensorflow_private.calling(function) for _ in range(2)]
    monkeypatch.undo()  # TensorFlow itself calls it
    np.testing.assert_array_equal(run(calls[1]), expected)
    (record,) = caplog.records
    assert record.levelname == 'WARNING'
    assert record.getMessage().startswith(f'TensorFlow {tf.__version__} has a runtime that zoo does not know')


def test_packed_calls_are_the_same_in_either_way(monkeypatch):
    def function(x: tf.Tensor, image: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(x) + tf.cast(image, tf.float32)

    inputs = np.float32([1.0, 2.0]), np.uint8([[3, 4]])
    expected = PackedCall(function, False)(*inputs)
    monkeypatch.setattr(tensorflow_private, 'direct_call', lambda function: None)
    np.testing.assert_array_equal(PackedCall(function, False)(*inputs), expected)
    np.testing.assert_array_equal(expected, [[6.0, 7.0]])
