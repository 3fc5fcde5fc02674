"""QR-DQN: the quantile Huber loss by hand and against finite differences, and that it finds quantiles."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete

from zoo.algorithms import QRDQN

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(quantiles: int, kappa: float = 1.0) -> QRDQN:
    return QRDQN(Box(-1, 1, (1,)), Discrete(2), net_list=[{'hidden': []}], quantiles=quantiles, kappa=kappa)


def test_loss_by_hand():
    # Middles 1/4 and 3/4; found (0, 2), target (1, 4). Errors 1, 4 and -1, 2; Huber 1/2, 7/2 and 1/2, 3/2.
    # First: (1/4 · 1/2 + 1/4 · 7/2) / 2 = 1/2. Second: (|3/4 - 1| · 1/2 + 3/4 · 3/2) / 2 = 5/8.
    loss, priority = make(2).losses(tf.constant([[0.0, 2.0]]), tf.constant([[1.0, 4.0]]))
    np.testing.assert_allclose(loss, [1 / 2 + 5 / 8])
    np.testing.assert_allclose(priority, [2.0])
    # With κ = 2 the Huber losses are 1/2, 6 and 1/2, 2.
    loss, _ = make(2, 2.0).losses(tf.constant([[0.0, 2.0]]), tf.constant([[1.0, 4.0]]))
    np.testing.assert_allclose(loss, [(1 / 8 + 6 / 4) / 2 + (1 / 8 + 6 / 4) / 2])


@pytest.mark.full(but='1.0')
@pytest.mark.parametrize('kappa', [0.3, 1.0, 2.5])
def test_gradient_by_finite_differences(kappa):
    agent, rng = make(5, kappa), np.random.default_rng(0)
    found, target = (tf.constant(2.0 * rng.normal(size=(4, 5)), tf.float32) for _ in range(2))
    with tf.GradientTape() as tape:
        tape.watch(found)
        loss = tf.reduce_sum(agent.losses(found, target)[0])
    gradient = tape.gradient(loss, found).numpy()

    def total(x: np.ndarray) -> float:
        error = np.float64(target)[:, None, :] - x[:, :, None]
        huber = np.where(abs(error) <= kappa, 0.5 * error**2, kappa * (abs(error) - 0.5 * kappa))
        middle = ((2 * np.arange(5) + 1) / 10)[None, :, None]
        return (np.where(error < 0, 1 - middle, middle) * huber).mean(2).sum()

    x = np.float64(found)
    for index in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[index] = 1e-6
        assert gradient[index] == pytest.approx((total(x + step) - total(x - step)) / 2e-6, abs=1e-4)
    assert np.abs(gradient).max() > 0.1


@pytest.mark.full
def test_its_minimum_is_at_the_quantiles():
    """Of a hundred equally likely returns; a small κ is next to plain quantile regression."""
    agent, returns = make(4, 0.01), tf.reshape(tf.range(100.0), [1, 100])
    found = tf.Variable([[30.0, 40.0, 50.0, 60.0]])
    for _ in range(600):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(agent.losses(found, returns)[0])
        found.assign_sub(3000.0 * tape.gradient(loss, found))
    np.testing.assert_allclose(found, [[12.5, 37.5, 62.5, 87.5]], atol=2.0)
