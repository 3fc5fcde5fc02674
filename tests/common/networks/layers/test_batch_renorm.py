"""Batch renormalisation against NumPy: both modes, what is clipped, gradients, moving statistics, copies."""

from __future__ import annotations

import pickle
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.common.networks.copies import packed
from zoo.common.networks.layers.batch_renorm import BatchRenormalization

WEIGHTS = ('gamma', 'beta', 'moving_mean', 'moving_variance')


class Reference:
    """Algorithm 1 of arXiv 1702.03275 in float64, with the variance as what is averaged."""

    def __init__(self, layer: BatchRenormalization) -> None:
        self.gamma, self.beta, self.mean, self.variance = (np.float64(getattr(layer, w).numpy()) for w in WEIGHTS)
        self.steps = int(layer.steps.numpy())
        self.layer = layer

    def corrections(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        layer, deviation = self.layer, np.sqrt(self.variance + self.layer.epsilon)
        if self.steps < layer.warmup_steps:
            return np.ones(x.shape[1]), np.zeros(x.shape[1])
        r = np.clip(np.sqrt(x.var(0) + layer.epsilon) / deviation, 1 / layer.r_max, layer.r_max)
        return r, np.clip((x.mean(0) - self.mean) / deviation, -layer.d_max, layer.d_max)

    def train(self, x: np.ndarray, r: np.ndarray, d: np.ndarray) -> np.ndarray:
        standard = (x - x.mean(0)) / np.sqrt(x.var(0) + self.layer.epsilon)
        return self.gamma * (standard * r + d) + self.beta

    def infer(self, x: np.ndarray) -> np.ndarray:
        return self.gamma * (x - self.mean) / np.sqrt(self.variance + self.layer.epsilon) + self.beta


def layer_of(width: int, seed: int = 0, **params: Any) -> BatchRenormalization:
    """A layer past its warm-up, whose weights are all stirred."""
    layer = BatchRenormalization(**{'warmup_steps': 0} | params)
    layer.build((None, width))
    rng = np.random.default_rng(seed)
    for name in WEIGHTS:
        weight = getattr(layer, name)
        weight.assign(weight.numpy() + rng.uniform(-0.5, 0.5, width))
    return layer


def batch(rows: int = 16, width: int = 4, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(rows, width)) * [0.1, 1.0, 9.0, 1.0][:width] + [0.0, 1.0, 2.0, 30.0][:width]).astype(
        np.float32
    )


@pytest.mark.full(but='warm-up-plain')
@pytest.mark.parametrize('xla', [False, True], ids=['plain', 'xla'])
@pytest.mark.parametrize('warmup', [0, 5], ids=['renormalised', 'warm-up'])
def test_training_mode(warmup, xla):
    layer, x = layer_of(4, warmup_steps=warmup), batch()
    reference = Reference(layer)
    r, d = reference.corrections(np.float64(x))
    found = tf.function(lambda x: layer(x, training=True), jit_compile=xla)(x)
    np.testing.assert_allclose(found, reference.train(np.float64(x), r, d), rtol=1e-4, atol=1e-4)
    if warmup == 0:  # a small and a large deviation, a usual one, a far mean
        np.testing.assert_allclose(r[[0, 2]], [1 / 3, 3], rtol=1e-6)
        assert 1 / 3 < r[1] < 3 and d[3] == 5.0 and np.abs(d[:2]).max() < 5.0
    np.testing.assert_allclose(layer.moving_mean, 0.99 * reference.mean + 0.01 * x.mean(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, 0.99 * reference.variance + 0.01 * x.var(0), rtol=1e-5, atol=1e-5)
    assert layer.steps.numpy() == 1


def test_inference_mode_learns_nothing():
    layer, x = layer_of(4), batch()
    reference = Reference(layer)
    np.testing.assert_allclose(layer(x), reference.infer(np.float64(x)), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(layer.moving_mean, np.float32(reference.mean))
    scale, shift = layer.affine()
    np.testing.assert_allclose(x * scale + shift, layer(x), atol=1e-5)


def test_both_modes_agree_where_nothing_is_clipped():
    layer, x = layer_of(2, r_max=1e6, d_max=1e6), batch(width=2)
    expected = layer(x).numpy()
    np.testing.assert_allclose(layer(x, training=True), expected, rtol=1e-4, atol=1e-4)
    assert np.abs(layer_of(2, r_max=1.01)(x, training=True) - expected).max() > 0.1


def test_the_warm_up_ends():
    layer, x = layer_of(4, warmup_steps=2), batch()
    for expected in (True, True, False):
        reference = Reference(layer)
        plain = reference.train(np.float64(x), np.ones(4), np.zeros(4))
        assert np.allclose(layer(x, training=True), plain, atol=1e-3) is expected


@pytest.mark.parametrize('warmup', [0, 5], ids=['renormalised', 'warm-up'])
def test_gradients_by_finite_differences(warmup):
    layer, x = layer_of(4, warmup_steps=warmup), batch(rows=7)
    reference = Reference(layer)
    r, d = reference.corrections(np.float64(x))  # no gradient flows through them
    target = np.random.default_rng(2).normal(size=x.shape)
    points = [np.float64(x), reference.gamma, reference.beta]

    def loss() -> float:
        return float(np.sum((reference.train(points[0], r, d) - target) ** 2))

    expected = []
    for point in points:
        gradient = np.zeros_like(point)
        for index in np.ndindex(point.shape):
            kept = point[index]
            values = []
            for step in (1e-6, -1e-6):
                point[index] = kept + step
                values.append(loss())
            point[index] = kept
            gradient[index] = (values[0] - values[1]) / 2e-6
        expected.append(gradient)
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(tf.square(layer(x, training=True) - tf.constant(target, tf.float32)))
    found = tape.gradient(value, [x, layer.gamma.value, layer.beta.value])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)
        assert np.abs(b).max() > 0.1


@pytest.mark.full
@pytest.mark.parametrize('xla', [False, True], ids=['plain', 'xla'])
def test_a_large_batch_is_the_same(monkeypatch, xla):
    """Where its passes are fused; the gradient of a plain graph of Keras' batch normalisation is the reference."""
    rng = np.random.default_rng(0)
    x = tf.constant(5.0 + 3.0 * rng.normal(size=(512, 96)), tf.float32)
    upstream = tf.constant(rng.normal(size=x.shape), tf.float32)
    theirs = keras.layers.BatchNormalization()
    theirs.build(x.shape)

    def run(layer: keras.layers.Layer) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return [y, *tape.gradient(y, [x, layer.gamma.value, layer.beta.value], upstream)]

    expected = run(theirs)
    for size, fused in ((x.shape.num_elements(), True), (10**9, False)):
        monkeypatch.setattr('zoo.common.networks.layers.batch_renorm.FUSED', size)
        ours = BatchRenormalization()
        ours.build(x.shape)
        graph = tf.function(lambda layer=ours: run(layer), jit_compile=xla, autograph=False).get_concrete_function()
        calls = [op.type for op in graph.graph.get_operations() if 'PartitionedCall' in op.type]
        assert len(calls) == (3 if fused else 0)
        for a, b in zip(graph(), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(ours.moving_mean, theirs.moving_mean, rtol=1e-5)
        np.testing.assert_allclose(ours.moving_variance, theirs.moving_variance, rtol=1e-4)


def test_images_are_refused():
    with pytest.raises(ValueError, match=r'takes batches of vectors, .*\(None, 8, 8, 3\).*BatchNormalization\.'):
        BatchRenormalization().build((None, 8, 8, 3))


def test_a_frozen_layer_is_in_inference_mode():
    layer, x = layer_of(4), batch()
    layer.trainable = False
    np.testing.assert_array_equal(layer(x, training=True), layer(x))
    assert layer.steps.numpy() == 0


def test_it_is_of_float32_in_a_mixed_model():
    layer = BatchRenormalization(dtype='mixed_bfloat16')
    model = keras.Sequential([keras.Input((4,)), layer, keras.layers.Dense(3, dtype='mixed_bfloat16')], name='mixed')
    outer = keras.Sequential([keras.Input((4,)), model])
    outer.dtype_policy = model.dtype_policy = keras.DTypePolicy('mixed_bfloat16')
    outer(batch(), training=True)
    assert layer.compute_dtype == 'float32' and {w.dtype for w in layer.trainable_variables} == {'float32'}
    x = tf.cast(batch(), tf.bfloat16)
    assert layer(x).dtype == layer(x, training=True).dtype == tf.float32


@pytest.mark.parametrize('how', ['keras', 'pickle', 'config'])
def test_saved_and_copied(how, tmp_path):
    layer = layer_of(4, momentum=0.9, r_max=2.0, warmup_steps=3)
    model = keras.Sequential([keras.Input((4,)), layer, keras.layers.Dense(2)])
    model(batch(), training=True)
    if how == 'keras':
        model.save(tmp_path / 'model.keras')
        copied = keras.models.load_model(tmp_path / 'model.keras')
    elif how == 'pickle':
        copied = pickle.loads(packed(model))
    else:
        copied = keras.Sequential.from_config(model.get_config())
        copied.set_weights(model.get_weights())
    assert copied.layers[0].get_config() == layer.get_config()
    assert copied.layers[0].steps.numpy() == 1
    np.testing.assert_allclose(copied(batch()), model(batch()), atol=1e-5)
    np.testing.assert_allclose(copied(batch(), training=True), model(batch(), training=True), atol=1e-5)
