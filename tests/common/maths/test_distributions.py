"""Distributions: numbers worked by hand, definitions, masks, gradients, statistics, XLA, and refusals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from zoo.common.maths.distributions import (
    Bernoulli,
    Categorical,
    DiagGaussian,
    Distribution,
    MultiCategorical,
    Product,
    SquashedGaussian,
)

SEED = tf.constant([7, 11], tf.int32)

# One of each, with uneven and even sizes of MultiCategorical, which take different paths.
ALL: dict[str, Distribution] = {
    'categorical': Categorical(4),
    'multi uneven': MultiCategorical((2, 3, 1)),
    'multi even': MultiCategorical((3, 3)),
    'bernoulli': Bernoulli(3),
    'gaussian': DiagGaussian(2),
    'squashed': SquashedGaussian(2),
    'product': Product((('go', Categorical(3)), ('arm/left', DiagGaussian(2)), ('grip', Bernoulli(2)))),
    'squashed product': Product((('go', MultiCategorical((2, 3))), ('arm', SquashedGaussian(2)))),
}
DISCRETE = ['categorical', 'multi uneven', 'multi even', 'bernoulli']
WITH_ENTROPY = [name for name in ALL if 'squashed' not in name]


def random_params(distribution: Distribution, *leading: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(scale=0.7, size=(*leading, distribution.param_size)).astype(dtype)


def all_actions(distribution: Distribution) -> np.ndarray:
    """Every action of a discrete distribution, ``[count, ...]``."""
    if isinstance(distribution, Categorical):
        return np.arange(distribution.n, dtype=np.int32)
    sizes = distribution.nvec if isinstance(distribution, MultiCategorical) else [2] * distribution.n
    return np.array(list(itertools.product(*[range(n) for n in sizes])), dtype=np.int32)


def leaves(action: tf.Tensor | dict[str, tf.Tensor]) -> list[tf.Tensor]:
    return list(action.values()) if isinstance(action, dict) else [action]


# Worked by hand.


def test_categorical_worked_by_hand():
    # p = (1, 2, 5) / 8, q = (2, 4, 2) / 8
    p, q = np.log([1.0, 2.0, 5.0]), np.log([2.0, 4.0, 2.0])
    d = Categorical(3)
    np.testing.assert_allclose(d.log_prob(p, 2), math.log(5 / 8))
    # H = 1/8 log 8 + 1/4 log 4 + 5/8 log(8/5) = 0.259930 + 0.346574 + 0.293752
    np.testing.assert_allclose(d.entropy(p), 0.900256, atol=1e-6)
    # KL = 1/8 log(1/2) + 1/4 log(1/2) + 5/8 log(5/2) = 0.572682 - 0.259930
    np.testing.assert_allclose(d.kl(p, q), 0.312752, atol=1e-6)
    assert d.mode(p) == 2
    assert d.mode(q) == 1


def test_multi_categorical_worked_by_hand():
    # first choice (1, 3) / 4, second (1, 2, 5) / 8
    params = np.log([1.0, 3.0, 1.0, 2.0, 5.0])
    d = MultiCategorical((2, 3))
    np.testing.assert_allclose(d.log_prob(params, [1, 1]), math.log(3 / 4 * 2 / 8))
    # H(1/4, 3/4) = 1/4 log 4 + 3/4 log(4/3) = 0.562335, and 0.900256 from above
    np.testing.assert_allclose(d.entropy(params), 0.562335 + 0.900256, atol=1e-6)
    # against uniform: log 2 - 0.562335 + log 3 - 0.900256
    np.testing.assert_allclose(d.kl(params, np.zeros(5)), math.log(6) - 1.462591, atol=1e-6)
    np.testing.assert_array_equal(d.mode(params), [1, 2])


def test_bernoulli_worked_by_hand():
    # on with probability 4/5 and 1/4; the other distribution 1/2 and 1/4
    params, other = np.log([4.0, 1 / 3]), np.log([1.0, 1 / 3])
    d = Bernoulli(2)
    np.testing.assert_allclose(d.log_prob(params, [1, 0]), math.log(4 / 5 * 3 / 4))
    # H(4/5) = 0.8 log(5/4) + 0.2 log 5 = 0.500402, H(1/4) = 0.562335
    np.testing.assert_allclose(d.entropy(params), 0.500402 + 0.562335, atol=1e-6)
    # KL = log 2 - H(4/5) + 0
    np.testing.assert_allclose(d.kl(params, other), math.log(2) - 0.500402, atol=1e-6)
    np.testing.assert_array_equal(d.mode(params), [1, 0])


def test_diag_gaussian_worked_by_hand():
    # N(1, 1) and N(-1, 2^2); the action (2, 1) is one standard deviation away in both
    params = np.array([1.0, -1.0, 0.0, math.log(2.0)])
    d = DiagGaussian(2)
    np.testing.assert_allclose(d.log_prob(params, [2.0, 1.0]), -1.0 - math.log(2.0) - math.log(2.0 * math.pi))
    np.testing.assert_allclose(d.entropy(params), math.log(2.0) + 1.0 + math.log(2.0 * math.pi))
    # KL(N(1, 1) || N(0, 2^2)) = log 2 + (1 + 1) / 8 - 1/2, KL(N(-1, 2^2) || N(-1, 1)) = -log 2 + 4/2 - 1/2
    other = np.array([0.0, -1.0, math.log(2.0), 0.0])
    np.testing.assert_allclose(d.kl(params, other), 0.25 - 0.5 + 2.0 - 0.5)
    np.testing.assert_array_equal(d.mode(params), [1.0, -1.0])


def test_squashed_gaussian_worked_by_hand():
    # u = atanh(0.6) = log(2) = 0.693147: density N(0.693147; 0, 1) / (1 - 0.6^2)
    d = SquashedGaussian(1)
    expected = -0.5 * math.log(2.0) ** 2 - 0.5 * math.log(2.0 * math.pi) - math.log(0.64)
    np.testing.assert_allclose(d.log_prob(np.array([0.0, 0.0]), [0.6]), expected)
    np.testing.assert_allclose(d.mode(np.array([math.log(2.0), 0.3])), [0.6])
    # the divergence of the Gaussians: log 2 + (1 + 1) / 8 - 1/2
    np.testing.assert_allclose(d.kl(np.array([1.0, 0.0]), np.array([0.0, math.log(2.0)])), math.log(2.0) - 0.25)


def test_product_worked_by_hand():
    d = Product((('go', Categorical(3)), ('arm', DiagGaussian(1))))
    params = np.concatenate([np.log([1.0, 2.0, 5.0]), [1.0, math.log(2.0)]])
    action = {'arm': np.array([3.0]), 'go': 2}  # found by key, whatever the order
    arm = -0.5 - math.log(2.0) - 0.5 * math.log(2.0 * math.pi)
    np.testing.assert_allclose(d.log_prob(params, action), math.log(5 / 8) + arm)
    np.testing.assert_allclose(d.entropy(params), 0.900256 + 0.5 + 0.5 * math.log(2 * math.pi) + math.log(2), atol=1e-6)
    other = np.concatenate([np.log([2.0, 4.0, 2.0]), [1.0, math.log(2.0)]])
    np.testing.assert_allclose(d.kl(params, other), 0.312752, atol=1e-6)
    mode = d.mode(params)
    assert list(mode) == ['go', 'arm']
    assert mode['go'] == 2
    np.testing.assert_array_equal(mode['arm'], [1.0])


# Definitions.


@pytest.mark.parametrize('name', DISCRETE)
def test_discrete_definitions_by_enumeration(name):
    d = ALL[name]
    p, q = random_params(d, seed=1, dtype=np.float64), random_params(d, seed=2, dtype=np.float64)
    actions = all_actions(d)
    log_p = d.log_prob(np.tile(p, (len(actions), 1)), actions).numpy()
    log_q = d.log_prob(np.tile(q, (len(actions), 1)), actions).numpy()
    np.testing.assert_allclose(np.exp(log_p).sum(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(d.entropy(p), -(np.exp(log_p) * log_p).sum(), rtol=1e-10)
    np.testing.assert_allclose(d.kl(p, q), (np.exp(log_p) * (log_p - log_q)).sum(), rtol=1e-10)
    np.testing.assert_array_equal(d.mode(p), actions[np.argmax(log_p)])


@pytest.mark.parametrize('distribution', [DiagGaussian(1), SquashedGaussian(1)])
def test_continuous_definitions_by_quadrature(distribution):
    p, q = np.array([0.3, -0.4]), np.array([-0.2, 0.1])
    if isinstance(distribution, SquashedGaussian):
        x = np.linspace(-1.0, 1.0, 200_001)[1:-1]
    else:
        x = np.linspace(-9.0, 9.0, 100_001)
    log_p = distribution.log_prob(np.tile(p, (len(x), 1)), x[:, np.newaxis]).numpy()
    log_q = distribution.log_prob(np.tile(q, (len(x), 1)), x[:, np.newaxis]).numpy()
    width = x[1] - x[0]
    np.testing.assert_allclose(np.exp(log_p).sum() * width, 1.0, rtol=1e-6)
    np.testing.assert_allclose(distribution.kl(p, q), (np.exp(log_p) * (log_p - log_q)).sum() * width, rtol=1e-5)
    if isinstance(distribution, DiagGaussian):
        np.testing.assert_allclose(distribution.entropy(p), -(np.exp(log_p) * log_p).sum() * width, rtol=1e-6)


@pytest.mark.parametrize('name', ALL)
def test_kl_is_zero_at_itself_and_positive_elsewhere(name):
    d = ALL[name]
    p, q = random_params(d, 50, seed=3), random_params(d, 50, seed=4)
    np.testing.assert_allclose(d.kl(p, p), 0.0, atol=1e-6)
    assert np.all(d.kl(p, q) > 0.0)
    assert not np.allclose(d.kl(p, q), d.kl(q, p))


@pytest.mark.parametrize('distribution', [DiagGaussian(3), SquashedGaussian(3)])
def test_small_gaussian_kl_keeps_its_precision(distribution):
    # Slightly wider: KL = 3 (exp(x) - 1 - x) / 2 with x = 2 log_std, where exp(x) - 1 has lost half its digits.
    log_std = np.linspace(3e-4, 3e-3, 20, dtype=np.float32)
    p = np.concatenate([np.zeros((20, 3)), np.tile(log_std[:, np.newaxis], 3)], axis=1).astype(np.float32)
    x = 2.0 * log_std.astype(np.float64)
    np.testing.assert_allclose(distribution.kl(p, np.zeros_like(p)), 1.5 * (np.expm1(x) - x), rtol=2e-3)


@pytest.mark.parametrize('name', ALL)
@pytest.mark.parametrize('leading', [(), (5,), (2, 5)])
def test_any_leading_axes(name, leading):
    d = ALL[name]
    p, q = random_params(d, *leading, seed=5), random_params(d, *leading, seed=6)
    action, log_prob = d.sample_and_log_prob(p, SEED)
    assert d.log_prob(p, action).shape == log_prob.shape == d.kl(p, q).shape == leading
    if name in WITH_ENTROPY:
        assert d.entropy(p).shape == leading
    for drawn, mode in zip(leaves(action), leaves(d.mode(p)), strict=True):
        assert drawn.shape == mode.shape
        assert drawn.shape[: len(leading)] == leading
        assert drawn.dtype == mode.dtype
        assert drawn.dtype in (tf.int32, tf.float32)
    if leading:
        first = (0,) * len(leading)
        single = tf.nest.map_structure(lambda x: x[first], action)
        np.testing.assert_allclose(d.log_prob(p[first], single), d.log_prob(p, action)[first], rtol=1e-5)


@pytest.mark.parametrize('name', ALL)
def test_sample_and_log_prob_agree_with_sample_and_with_log_prob(name):
    d = ALL[name]
    params = random_params(d, 200, seed=7, dtype=np.float64)
    action, log_prob = d.sample_and_log_prob(params, SEED)
    for a, b in zip(leaves(action), leaves(d.sample(params, SEED)), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(log_prob, d.log_prob(params, action), rtol=1e-7)


def test_integer_actions_of_other_widths_are_taken():
    for dtype in (np.int8, np.uint8, np.int64):
        np.testing.assert_allclose(Categorical(2).log_prob([0.0, 0.0], dtype(1)), -math.log(2.0), rtol=1e-6)
        np.testing.assert_allclose(Bernoulli(1).log_prob([0.0], np.array([1], dtype)), -math.log(2.0), rtol=1e-6)


# Masks and extremes.


@pytest.mark.parametrize('mask', [-1e9, -1e20, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize(
    ('distribution', 'masked'),
    [
        (Categorical(4), [0, 2]),
        (MultiCategorical((2, 3)), [0, 3, 4]),
        (MultiCategorical((3, 3)), [2, 4]),
        (Product((('a', Categorical(2)), ('b', MultiCategorical((2, 4))))), [1, 2, 4, 6]),
    ],
)
def test_masked_logits(distribution, masked, mask):
    p, q = random_params(distribution, 5000, seed=8), random_params(distribution, 5000, seed=9)
    p[:, masked], q[:, masked] = mask, mask
    action = distribution.sample(p, SEED)
    offset, allowed = 0, []
    for n in itertools.chain.from_iterable(
        getattr(part, 'nvec', None) or [part.n] for _, part in getattr(distribution, 'parts', [('', distribution)])
    ):
        allowed.append(set(range(n)) - {i - offset for i in masked})
        offset += n
    columns = np.concatenate([x.numpy().reshape(5000, -1) for x in leaves(action)], axis=1)
    for column, choices in zip(columns.T, allowed, strict=True):
        assert set(column) == choices  # every allowed choice is drawn, no masked one ever
    p, q = tf.constant(p[:7]), tf.constant(q[:7])
    action = tf.nest.map_structure(lambda x: x[:7], action)
    for f in (
        lambda: distribution.log_prob(p, action),
        lambda: distribution.entropy(p),
        lambda: distribution.kl(p, q),
    ):
        with tf.GradientTape() as tape:
            tape.watch([p, q])
            y = f()
        assert np.all(np.isfinite(y))
        gradients = [g for g in tape.gradient(y, [p, q]) if g is not None]
        assert gradients
        for gradient in gradients:
            assert np.all(np.isfinite(gradient))
            np.testing.assert_array_equal(gradient.numpy()[:, masked], 0.0)


@pytest.mark.parametrize('mask', [-1e9, -1e20])
def test_padding_is_not_drawn_even_where_everything_is_masked(mask):
    params = np.full((1000, 5), mask, np.float32)
    sample = MultiCategorical((2, 3)).sample(params, SEED).numpy()
    assert set(sample[:, 0]) <= {0, 1}
    assert set(sample[:, 1]) <= {0, 1, 2}


def test_masked_choice_changes_nothing_for_the_others():
    logits = np.array([0.3, -1e9, -0.2, 0.9], np.float32)
    other = np.array([0.1, -1e9, 0.5, 0.2], np.float32)
    allowed = [0, 2, 3]
    full, small = Categorical(4), Categorical(3)
    np.testing.assert_allclose(full.entropy(logits), small.entropy(logits[allowed]), rtol=1e-6)
    np.testing.assert_allclose(full.kl(logits, other), small.kl(logits[allowed], other[allowed]), rtol=1e-6)
    np.testing.assert_allclose(full.log_prob(logits, 2), small.log_prob(logits[allowed], 1), rtol=1e-6)
    forbidden = full.log_prob(logits, 1)
    assert np.isfinite(forbidden)
    assert np.exp(forbidden) == 0.0


def test_masked_where_the_other_is_not():
    p, q = np.array([0.0, -1e9], np.float32), np.array([0.0, 0.0], np.float32)
    np.testing.assert_allclose(Categorical(2).kl(p, q), math.log(2.0), rtol=1e-6)
    assert 1e8 < Categorical(2).kl(q, p) < 1e9  # infinite in truth, huge and finite here


@pytest.mark.parametrize('extreme', [1e9, float(np.finfo(np.float32).max)])
def test_extreme_bernoulli_logits(extreme):
    d = Bernoulli(2)
    p = tf.constant([[extreme, -extreme]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(p)
        results = [d.log_prob(p, [[1, 0]]), d.entropy(p), d.kl(p, tf.constant([[extreme, -extreme]]))]
    for y in results:
        np.testing.assert_array_equal(y, [0.0])
        assert np.all(np.isfinite(tape.gradient(y, p)))
    assert np.isfinite(d.kl(p, tf.zeros([1, 2])))
    np.testing.assert_array_equal(d.sample(tf.tile(p, [1000, 1]), SEED), np.tile([1, 0], (1000, 1)))


@pytest.mark.parametrize('mean', [-30.0, -9.0, 9.0, 30.0])
def test_squashed_gaussian_far_out(mean):
    # In float32 tanh(9) is 1: only the value before tanh still knows the density. Exact: log N(u) + 2 |u| - log 4.
    d = SquashedGaussian(1)
    params = tf.constant([[mean, -2.0]])
    with tf.GradientTape() as tape:
        tape.watch(params)
        action, log_prob = d.sample_and_log_prob(params, SEED)
    noise = d_noise(SEED)
    u = mean + math.exp(-2.0) * noise
    expected = -0.5 * noise**2 - 0.5 * math.log(2.0 * math.pi) + 2.0 + 2.0 * abs(u) - math.log(4.0)
    np.testing.assert_allclose(log_prob, [expected], rtol=1e-5)
    assert abs(float(action[0, 0])) <= 1.0
    # d log_prob / d mean = 2 tanh(u)
    np.testing.assert_allclose(tape.gradient(log_prob, params)[0, 0], 2.0 * np.sign(mean), rtol=1e-5)


def d_noise(seed: tf.Tensor) -> float:
    """The standard normal number that a one-dimensional Gaussian draws with this seed."""
    return float(DiagGaussian(1).sample(tf.zeros([1, 2]), seed)[0, 0])


def test_squashed_log_prob_at_the_ends_is_finite():
    d = SquashedGaussian(1)
    params, action = tf.constant([[0.5, 0.0]] * 2), tf.constant([[1.0], [-1.0]])
    with tf.GradientTape() as tape:
        tape.watch([params, action])
        log_prob = d.log_prob(params, action)
    assert np.all(np.isfinite(log_prob))
    for gradient in tape.gradient(log_prob, [params, action]):
        assert np.all(np.isfinite(gradient))


# Gradients.


def finite_differences(f: Callable[[np.ndarray], float], x: np.ndarray, step: float = 1e-6) -> np.ndarray:
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        gradient[i] = (f(up) - f(down)) / (2.0 * step)
    return gradient


def assert_gradient(f: Callable[[tf.Tensor], tf.Tensor], x: np.ndarray) -> None:
    variable = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(variable)
        y = tf.reduce_sum(f(variable))
    expected = finite_differences(lambda x: float(tf.reduce_sum(f(tf.constant(x)))), x)
    np.testing.assert_allclose(tape.gradient(y, variable), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize('name', ALL)
def test_gradients_equal_finite_differences(name):
    d = ALL[name]
    p, q = random_params(d, 2, seed=10, dtype=np.float64), random_params(d, 2, seed=11, dtype=np.float64)
    action = d.sample(p, SEED)
    assert_gradient(lambda x: d.log_prob(x, action), p)
    assert_gradient(lambda x: d.kl(x, q), p)
    assert_gradient(lambda x: d.kl(p, x), q)
    if name in WITH_ENTROPY:
        assert_gradient(d.entropy, p)


@pytest.mark.parametrize('name', ['gaussian', 'squashed'])
def test_gradients_through_samples_and_of_actions(name):
    d = ALL[name]
    p = random_params(d, 2, seed=12, dtype=np.float64)
    action = d.sample(p, SEED).numpy()
    assert_gradient(lambda x: tf.square(d.sample(x, SEED)), p)
    assert_gradient(lambda x: d.sample_and_log_prob(x, SEED)[1], p)
    assert_gradient(lambda x: d.log_prob(p, x), action)


@pytest.mark.parametrize('name', ['categorical', 'bernoulli', 'gaussian'])
def test_curvature_of_kl_is_the_fisher_matrix(name):
    # Natural-gradient methods differentiate KL twice: E[grad log p grad log p^T] must come out, also at logits of zero.
    d = ALL[name]
    p = tf.zeros([d.param_size], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(p)
        with tf.GradientTape() as inner:
            inner.watch(p)
            kl = d.kl(tf.zeros_like(p), p)
        gradient = inner.gradient(kl, p)
    fisher = {
        'categorical': np.eye(4) / 4 - 1 / 16,  # diag(p) - p p^T
        'bernoulli': np.eye(3) / 4,  # p (1 - p)
        'gaussian': np.diag([1.0, 1.0, 2.0, 2.0]),  # 1 / std^2 for the mean, 2 for log std
    }[name]
    np.testing.assert_allclose(outer.jacobian(gradient, p), fisher, atol=1e-12)


# Sampling.


@pytest.mark.parametrize('name', DISCRETE)
def test_frequencies(name):
    d, count = ALL[name], 20_000
    p = random_params(d, seed=13)
    sample = d.sample(np.tile(p, (count, 1)), SEED).numpy()
    for action in all_actions(d):
        probability = math.exp(d.log_prob(p, action))
        frequency = np.mean(np.all(np.reshape(sample == action, (count, -1)), axis=1))
        assert abs(frequency - probability) < 4.0 * math.sqrt(probability * (1.0 - probability) / count) + 1e-9


def test_gaussian_moments():
    d, count = DiagGaussian(2), 20_000
    sample = d.sample(np.tile(np.float32([1.0, -2.0, math.log(0.5), math.log(3.0)]), (count, 1)), SEED).numpy()
    std = np.array([0.5, 3.0])
    assert np.all(np.abs(sample.mean(0) - [1.0, -2.0]) < 4.0 * std / math.sqrt(count))
    assert np.all(np.abs(sample.std(0) / std - 1.0) < 4.0 / math.sqrt(2.0 * count))
    assert abs(np.corrcoef(sample.T)[0, 1]) < 4.0 / math.sqrt(count)


def test_squashed_samples_are_the_tanh_of_gaussian_ones():
    params = 0.5 * random_params(DiagGaussian(3), 100, seed=14)
    squashed = SquashedGaussian(3).sample(params, SEED)
    np.testing.assert_allclose(squashed, np.tanh(DiagGaussian(3).sample(params, SEED)), rtol=1e-5, atol=1e-6)
    assert np.all(np.abs(squashed) < 1.0)


def test_squashed_entropy_estimate():
    # -log_prob of samples estimates the entropy: here against quadrature of -p log p.
    d = SquashedGaussian(1)
    params = np.float32([0.4, -0.3])
    _, log_prob = d.sample_and_log_prob(np.tile(params, (20_000, 1)), SEED)
    x = np.linspace(-1.0, 1.0, 200_001)[1:-1, np.newaxis]
    log_p = d.log_prob(np.tile(params.astype(np.float64), (len(x), 1)), x).numpy()
    entropy = -np.sum(np.exp(log_p) * log_p) * 1e-5
    assert abs(-np.mean(log_prob) - entropy) < 4.0 * np.std(log_prob) / math.sqrt(20_000)


def test_seeds():
    for name, d in ALL.items():
        params = random_params(d, 64, seed=15)
        first, again = d.sample(params, SEED), d.sample(params, SEED)
        other = d.sample(params, tf.constant([7, 12]))
        assert all(np.array_equal(a, b) for a, b in zip(leaves(first), leaves(again), strict=True)), name
        assert any(not np.array_equal(a, b) for a, b in zip(leaves(first), leaves(other), strict=True)), name


def test_parts_of_a_product_draw_independently_of_each_other_and_of_the_next_seed():
    d = Product(tuple((path, DiagGaussian(1)) for path in 'abc'))
    params = tf.zeros([1, 6])
    # seeds that count up, as a training loop's do
    drawn = [float(x[0, 0]) for step in range(4) for x in d.sample(params, tf.constant([7, step])).values()]
    assert len(set(drawn)) == 12
    count = 4000
    table = np.concatenate(list(d.sample(tf.zeros([count, 6]), SEED).values()), axis=1)
    correlation = np.corrcoef(table.T) - np.eye(3)
    assert np.all(np.abs(correlation) < 4.0 / math.sqrt(count))


# Compilation.


#: Each kind is one of these or a part of one.
COMPILED = ('multi even', 'product', 'squashed product')


@pytest.mark.full
@pytest.mark.parametrize(
    'name', [pytest.param(name, marks=[] if name in COMPILED else pytest.mark.matrix) for name in ALL]
)
def test_xla_and_graph_give_the_same(name):
    d = ALL[name]
    p, q = tf.constant(random_params(d, 6, 2, seed=16)), tf.constant(random_params(d, 6, 2, seed=17))

    def everything(p: tf.Tensor, q: tf.Tensor, seed: tf.Tensor) -> dict:
        with tf.GradientTape() as tape:
            tape.watch(p)
            action, log_prob = d.sample_and_log_prob(p, seed)
            action = tf.nest.map_structure(tf.stop_gradient, action)
            results = {'log_prob': d.log_prob(p, action), 'kl': d.kl(p, q), 'sampled log_prob': log_prob}
            if name in WITH_ENTROPY:
                results['entropy'] = d.entropy(p)
            total = tf.add_n(list(results.values()))
        return results | {'action': action, 'mode': d.mode(p), 'gradient': tape.gradient(total, p)}

    plain = tf.nest.flatten(everything(p, q, SEED))
    unknown = tf.TensorSpec([None, 2, d.param_size], tf.float32)
    graph = tf.function(everything, input_signature=[unknown, unknown, tf.TensorSpec([2], tf.int32)])
    for compiled in (graph, tf.function(everything, jit_compile=True)):
        for a, b in zip(tf.nest.flatten(compiled(p, q, SEED)), plain, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


# Refusals.


def test_squashed_gaussian_offers_no_entropy():
    assert not hasattr(SquashedGaussian(1), 'entropy')
    with pytest.raises(TypeError, match=r"SquashedGaussian \(part 'arm'\) has no entropy: use -log_prob of a sample"):
        ALL['squashed product'].entropy(tf.zeros([9]))


@pytest.mark.parametrize(
    ('make', 'message'),
    [
        (lambda: Categorical(0), 'Categorical needs sizes of at least 1, not 0'),
        (lambda: DiagGaussian(-1), 'DiagGaussian needs sizes of at least 1'),
        (lambda: MultiCategorical((3, 0)), 'MultiCategorical needs sizes of at least 1, not 0'),
        (lambda: MultiCategorical(()), 'MultiCategorical needs a non-empty tuple'),
        (lambda: MultiCategorical([3, 2]), 'MultiCategorical needs a non-empty tuple'),
        (lambda: Product(()), 'Product needs at least one part'),
        (lambda: Product((('a', Categorical(2)), ('a', Categorical(3)))), 'Product needs distinct paths'),
    ],
)
def test_refused_sizes(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize('name', ALL)
def test_refused_parameters(name):
    d = ALL[name]
    with pytest.raises(ValueError, match=rf'needs parameters of shape \[\.\.\., {d.param_size}\], not \(3, 99\)'):
        d.mode(tf.zeros([3, 99]))
    with pytest.raises(TypeError, match='needs float parameters, not int32'):
        d.mode(tf.zeros([3, d.param_size], tf.int32))


def test_refused_action_keys():
    with pytest.raises(ValueError, match=r"the action has the keys \['arm'\], it should have \['arm', 'go'\]"):
        ALL['squashed product'].log_prob(tf.zeros([9]), {'arm': tf.zeros([2])})


def test_distributions_are_values():
    for d in ALL.values():
        assert hash(d) == hash(d)
    assert MultiCategorical((2, 3)) == MultiCategorical((2, 3)) != MultiCategorical((3, 2))
    assert [d.param_size for d in ALL.values()] == [4, 6, 6, 3, 4, 4, 9, 9]
