"""The dense layer that networks are assembled of computes what Keras' own does, and so do its gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from zoo.common.networks.layers import dense
from zoo.common.networks.layers.dense import Dense


def pair(rows: int, width: int, units: int, dtype: str = 'float32', **params) -> tuple[Dense, keras.layers.Dense]:
    """Ours and Keras' layer with the same weights, built."""
    ours, theirs = Dense(units, dtype=dtype, **params), keras.layers.Dense(units, dtype=dtype, **params)
    for layer in (ours, theirs):
        layer.build((rows, width))
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(w.shape).astype(np.float32) / 10 for w in ours.get_weights()]
    ours.set_weights(weights)
    theirs.set_weights(weights)
    return ours, theirs


def gradients(layer: keras.layers.Layer, x: tf.Tensor) -> list[tf.Tensor]:
    """Of a loss on the layer's output: with respect to the input and the weights."""
    variables = [v.value for v in layer.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_mean(tf.square(tf.cast(layer(x), tf.float32)))
    return [loss, *tape.gradient(loss, [x, *variables])]


def operations(function: Callable[..., list[tf.Tensor]], x: tf.Tensor) -> list[str]:
    """The kinds of operation in the graph as TensorFlow runs it, after it has made it better."""
    graph = tf.function(function, autograph=False).get_concrete_function(x)
    context.enable_run_metadata()
    try:
        graph(x)
        graphs = context.export_run_metadata().function_graphs
    finally:
        context.disable_run_metadata()
    return [node.op for run in graphs for node in run.post_optimization_graph.node]


@pytest.mark.full(but='200-3-5-tanh-plain')
@pytest.mark.parametrize('xla', [False, True], ids=['plain', 'xla'])
@pytest.mark.parametrize(
    ('rows', 'width', 'units', 'activation'),
    [
        # Each size once, and each activation where the kernel is turned over.
        pytest.param(
            *size, activation, marks=[] if size[2] == size[0] > 128 or activation == 'tanh' else pytest.mark.matrix
        )
        for size in ((256, 256, 256), (128, 128, 128), (127, 256, 256), (200, 3, 5), (130, 600, 500))
        for activation in ('relu', 'tanh', None, tf.sin)
    ],
)
def test_equals_keras_forward_and_backward(rows, width, units, activation, xla):
    ours, theirs = pair(rows, width, units, activation=activation)
    x = tf.constant(np.random.default_rng(1).standard_normal((rows, width)), tf.float32)
    found, expected = (tf.function(lambda x, m=m: gradients(m, x), jit_compile=xla)(x) for m in (ours, theirs))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_without_a_bias_and_without_a_known_number_of_rows():
    ours, theirs = pair(256, 256, 256, use_bias=False)
    x = tf.constant(np.random.default_rng(1).standard_normal((256, 256)), tf.float32)
    some = tf.TensorSpec([None, 256], tf.float32)
    found, expected = (tf.function(lambda x, m=m: gradients(m, x), input_signature=[some])(x) for m in (ours, theirs))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_mixed_precision_rounds_as_keras_does():
    ours, theirs = pair(256, 256, 256, 'mixed_bfloat16', activation='relu')
    x = tf.constant(np.random.default_rng(1).standard_normal((256, 256)), tf.float32)
    assert ours(x).dtype == tf.float32
    found, expected = (tf.function(lambda x, m=m: gradients(m, x))(x) for m in (ours, theirs))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == tf.float32
        np.testing.assert_allclose(one, other, rtol=0.02, atol=0.02 * np.abs(other).max())


def test_the_kernel_is_turned_over_where_that_pays():
    def turned(rows: int, width: int, units: int) -> bool:
        ours, _ = pair(rows, width, units)
        return 'Transpose' in ' '.join(operations(lambda x: gradients(ours, x), tf.zeros([rows, width])))

    assert turned(dense.ROWS, 256, 256)
    assert turned(dense.ROWS, 128, 129)
    assert not turned(dense.ROWS, 128, 128)
    assert not turned(dense.ROWS - 1, 256, 256)
    assert not turned(dense.ROWS, 64, 64)
    assert not turned(dense.ROWS, 3136, 512)


def test_the_gradient_has_a_gradient():
    ours, theirs = pair(128, 128, 128, activation='tanh')
    x = tf.constant(np.random.default_rng(1).standard_normal((128, 128)), tf.float32)

    @tf.function
    def second(layer: keras.layers.Layer) -> list[tf.Tensor]:
        variables = [v.value for v in layer.trainable_variables]
        with tf.GradientTape() as outer:
            outer.watch(x)
            _, first, *_ = gradients(layer, x)
            loss = tf.reduce_sum(tf.square(first))
        return outer.gradient(loss, [x, *variables])

    for one, other in zip(second(ours), second(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-9)


def test_keras_saves_loads_and_copies_it(tmp_path: Path):
    model = keras.Sequential([keras.Input((4,)), Dense(5, 'tanh', dtype='mixed_bfloat16'), Dense(2)])
    x = tf.random.normal([3, 4])
    model.save(tmp_path / 'model.keras')
    for made in (keras.models.load_model(tmp_path / 'model.keras'), copy.deepcopy(model)):
        np.testing.assert_array_equal(made(x), model(x))


def test_inputs_of_another_rank_are_left_to_keras():
    ours, theirs = pair(256, 256, 256)
    x = tf.random.normal([2, 130, 256])
    for one, other in zip(gradients(ours, x), gradients(theirs, x), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
