"""The quantile Huber loss against the paper's sums and finite differences, and what it finds."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from zoo.common.maths.quantiles import quantile_huber


def by_hand(quantiles: np.ndarray, target: np.ndarray, kappa: float) -> tuple[np.ndarray, np.ndarray]:
    """Losses and distances of the rows as the paper writes them, in loops over quantiles and atoms."""
    losses, distances = [], []
    for thetas, atoms in zip(quantiles, target, strict=True):
        loss, distance = 0.0, 0.0
        for m, theta in enumerate(thetas):
            for y in atoms:
                u = y - theta
                huber = 0.5 * u**2 if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
                loss += abs((2 * m + 1) / (2 * len(thetas)) - (u < 0)) * huber / len(atoms)
                distance += abs(u) / (len(thetas) * len(atoms))
        losses.append(loss)
        distances.append(distance)
    return np.array(losses), np.array(distances)


def test_worked_out():
    """Two quantiles, at 1/4 and 3/4, and atoms within 1 of them, beyond, above and below."""
    loss, distance = quantile_huber(tf.constant([[0.0, 1.0]]), tf.constant([[0.5, -2.0, 3.0]]))
    # θ = 0, τ = 1/4: u = 0.5, −2, 3: ¼ · 0.125, ¾ · 1.5, ¼ · 2.5. θ = 1, τ = 3/4: u = −0.5, −3, 2: ¼ · 0.125,
    # ¼ · 2.5, ¾ · 1.5.
    assert float(loss[0]) == pytest.approx(2 * (0.25 * 0.125 + 0.75 * 1.5 + 0.25 * 2.5) / 3)
    assert float(distance[0]) == pytest.approx((0.5 + 2 + 3 + 0.5 + 3 + 2) / 6)


@pytest.mark.parametrize('kappa', [0.5, 1.0, 100.0])
@pytest.mark.parametrize('scale', [0.3, 3.0])
def test_losses_and_gradients_by_finite_differences(scale, kappa):
    rng = np.random.default_rng(0)
    quantiles, target = scale * rng.standard_normal((3, 5)), scale * rng.standard_normal((3, 4))
    weight = np.array([0.2, 1.0, 3.0])  # of the rows, as by their importance
    variable = tf.Variable(quantiles.astype(np.float32))
    atoms = tf.Variable(target.astype(np.float32))
    with tf.GradientTape() as tape:
        losses, distances = quantile_huber(variable, atoms, kappa)
        loss = tf.reduce_sum(tf.constant(weight, tf.float32) * losses)
    expected, apart = by_hand(quantiles, target, kappa)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(distances, apart, rtol=1e-5)

    found, none = tape.gradient(loss, [variable, atoms])
    slopes = np.zeros_like(quantiles)
    for index in np.ndindex(quantiles.shape):
        higher, lower = quantiles.copy(), quantiles.copy()
        higher[index] += 1e-6
        lower[index] -= 1e-6
        slopes[index] = weight @ (by_hand(higher, target, kappa)[0] - by_hand(lower, target, kappa)[0]) / 2e-6
    np.testing.assert_allclose(found, slopes, rtol=1e-3, atol=1e-5)
    assert none is None and np.abs(slopes).max() > 0.005


def test_it_finds_the_quantiles_of_its_atoms():
    found, atoms = tf.Variable(tf.zeros([1, 4])), tf.constant(np.linspace(0, 400, 4001)[None], tf.float32)
    for rate in [*[500.0] * 300, *[50.0] * 100]:
        with tf.GradientTape() as tape:
            loss, _ = quantile_huber(found, atoms)
        found.assign_sub(rate * tape.gradient(loss, found))
    np.testing.assert_allclose(found, [[50, 150, 250, 350]], atol=1.0)
