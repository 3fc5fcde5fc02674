"""Returns and targets: numbers worked by hand, the papers' sums as plain loops, gradients, XLA, and refusals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from zoo.common.maths import returns

# Worked example for gae and discounted_returns, gamma = lambda = 1/2. Three copies, the same numbers:
# copy 0 never ends, copy 1 is truncated at t = 1, copy 2 terminates at t = 1.
REWARD = np.repeat([[1.0], [2.0], [3.0], [4.0]], 3, axis=1)
VALUE = np.repeat([[1.0], [1.0], [2.0], [2.0]], 3, axis=1)
NEXT_VALUE = np.repeat([[1.0], [4.0], [4.0], [8.0]], 3, axis=1)


def ends_at_step_1(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Flags of the three copies: none, truncated at t = 1, terminated at t = 1."""
    terminated, truncated = np.zeros((steps, 3), bool), np.zeros((steps, 3), bool)
    truncated[1, 1] = terminated[1, 2] = True
    return terminated, truncated


def test_gae_worked_by_hand():
    terminated, truncated = ends_at_step_1(4)
    advantage, target = returns.gae(REWARD, VALUE, NEXT_VALUE, terminated, truncated, 0.5, 0.5)
    # delta_0 = 1 + 0.5*1 - 1 = 0.5    delta_1 = 2 + 0.5*4 - 1 = 3 (terminated: 2 - 1 = 1)
    # delta_2 = 3 + 0.5*4 - 2 = 3      delta_3 = 4 + 0.5*8 - 2 = 6
    # A_3 = 6, A_2 = 3 + 0.25*6 = 4.5 in every copy
    # copy 0: A_1 = 3 + 0.25*4.5 = 4.125   A_0 = 0.5 + 0.25*4.125 = 1.53125
    # copy 1: A_1 = 3                      A_0 = 0.5 + 0.25*3 = 1.25
    # copy 2: A_1 = 1                      A_0 = 0.5 + 0.25*1 = 0.75
    expected = np.array([[1.53125, 1.25, 0.75], [4.125, 3.0, 1.0], [4.5, 4.5, 4.5], [6.0, 6.0, 6.0]])
    np.testing.assert_allclose(advantage, expected, rtol=1e-12)
    np.testing.assert_allclose(target, expected + VALUE, rtol=1e-12)


def test_discounted_returns_worked_by_hand():
    terminated, truncated = ends_at_step_1(4)
    # G_3 = 4 + 0.5*8 = 8, G_2 = 3 + 0.5*8 = 7
    # copy 0: G_1 = 2 + 0.5*7 = 5.5   G_0 = 1 + 0.5*5.5 = 3.75
    # copy 1: G_1 = 2 + 0.5*4 = 4     G_0 = 1 + 0.5*4 = 3
    # copy 2: G_1 = 2                 G_0 = 1 + 0.5*2 = 2
    expected = [[3.75, 3.0, 2.0], [5.5, 4.0, 2.0], [7.0, 7.0, 7.0], [8.0, 8.0, 8.0]]
    actual = returns.discounted_returns(REWARD, NEXT_VALUE, terminated, truncated, 0.5)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_lambda_returns_worked_by_hand():
    terminated, truncated = ends_at_step_1(4)
    # R_3 = 4 + 0.5*8 = 8, R_2 = 3 + 0.5*(0.5*4 + 0.5*8) = 6
    # copy 0: R_1 = 2 + 0.5*(0.5*4 + 0.5*6) = 4.5   R_0 = 1 + 0.5*(0.5*1 + 0.5*4.5) = 2.375
    # copy 1: R_1 = 2 + 0.5*4 = 4                   R_0 = 1 + 0.5*(0.5*1 + 0.5*4) = 2.25
    # copy 2: R_1 = 2                               R_0 = 1 + 0.5*(0.5*1 + 0.5*2) = 1.75
    expected = [[2.375, 2.25, 1.75], [4.5, 4.0, 2.0], [6.0, 6.0, 6.0], [8.0, 8.0, 8.0]]
    actual = returns.lambda_returns(REWARD, NEXT_VALUE, terminated, truncated, 0.5, 0.5)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_lambda_returns_between_one_step_and_all_steps():
    batch = random_batch(7, 3, seed=2)
    given = batch['reward'], batch['next_value'], batch['terminated'], batch['truncated']
    one_step = batch['reward'] + 0.9 * ~batch['terminated'] * batch['next_value']
    np.testing.assert_allclose(returns.lambda_returns(*given, 0.9, 0.0), one_step, rtol=1e-12)
    all_steps = returns.discounted_returns(*given, 0.9)
    np.testing.assert_allclose(returns.lambda_returns(*given, 0.9, 1.0), all_steps, rtol=1e-12)


def test_vtrace_worked_by_hand():
    terminated, truncated = ends_at_step_1(3)
    ratio = np.repeat([[2.0], [0.5], [4.0]], 3, axis=1)
    reward = np.repeat([[1.0], [2.0], [5.0]], 3, axis=1)
    value = np.repeat([[2.0], [2.0], [4.0]], 3, axis=1)
    next_value = np.repeat([[2.0], [4.0], [2.0]], 3, axis=1)
    behavior = np.full((3, 3), -0.7)
    vs, advantage = returns.vtrace(
        behavior + np.log(ratio), behavior, reward, value, next_value, terminated, truncated, 0.5, 2.0, 1.0
    )
    # rho = min(2, ratio) = 2, 0.5, 2     c = min(1, ratio) = 1, 0.5, 1
    # rho delta: 2*(1 + 0.5*2 - 2) = 0    0.5*(2 + 0.5*4 - 2) = 1 (terminated: 0.5*(2 - 2) = 0)    2*(5 + 0.5*2 - 4) = 4
    # v_2 = 4 + 4 = 8
    # copy 0: v_1 = 2 + 1 + 0.5*0.5*(8 - 4) = 4   v_0 = 2 + 0 + 0.5*1*(4 - 2) = 3
    # copy 1: v_1 = 2 + 1 = 3                     v_0 = 2 + 0 + 0.5*1*(3 - 2) = 2.5
    # copy 2: v_1 = 2 + 0 = 2                     v_0 = 2
    np.testing.assert_allclose(vs, [[3.0, 2.5, 2.0], [4.0, 3.0, 2.0], [8.0, 8.0, 8.0]], rtol=1e-12)
    # advantage_2 = 2*(5 + 0.5*2 - 4) = 4
    # copy 0: 0.5*(2 + 0.5*8 - 2) = 2   2*(1 + 0.5*4 - 2) = 2
    # copy 1: 0.5*(2 + 0.5*4 - 2) = 1   2*(1 + 0.5*3 - 2) = 1
    # copy 2: 0.5*(2 - 2) = 0           2*(1 + 0.5*2 - 2) = 0
    np.testing.assert_allclose(advantage, [[2.0, 1.0, 0.0], [2.0, 1.0, 0.0], [4.0, 4.0, 4.0]], atol=1e-12)


def test_categorical_projection_worked_by_hand():
    z_q = np.array([-2.0, 0.0, 2.0, 4.0])
    z_p = np.array([[1.0, 4.0, 9.0], [-5.0, -0.5, 0.5]])
    probs = np.array([[0.5, 0.25, 0.25], [0.2, 0.4, 0.4]])
    # row 0: 1 lies halfway between 0 and 2: 0.25 to each; 4 is an atom: 0.25; 9 is clipped to 4: 0.25
    # row 1: -5 is clipped to -2: 0.2; -0.5 gives 1/4 of 0.4 to -2 and 3/4 to 0; 0.5 gives 3/4 of 0.4 to 0 and 1/4 to 2
    expected = [[0.0, 0.25, 0.25, 0.5], [0.3, 0.6, 0.1, 0.0]]
    np.testing.assert_allclose(returns.categorical_projection(z_p, probs, z_q), expected, atol=1e-12)


def test_rescaled_values_worked_by_hand():
    # √(3 + 1) − 1 = 1, √9 − 1 = 2, √100 − 1 = 9, and a thousandth of x besides
    x, expected = np.array([0.0, 3.0, -8.0, 99.0]), [0.0, 1.003, -2.008, 9.099]
    np.testing.assert_allclose(returns.signed_hyperbolic(x, 1e-3), expected, rtol=1e-12)
    np.testing.assert_allclose(returns.signed_parabolic(np.array(expected), 1e-3), x, rtol=1e-12)
    np.testing.assert_allclose(returns.signed_parabolic(np.array([-2.0, 0.5]), 0.0), [-8.0, 1.25], rtol=1e-12)


def test_rescaled_values_come_back_in_float32():
    """Small ones too, which the inverse as the paper writes it would lose."""
    x = np.concatenate([np.geomspace(1e-6, 1e6, 40), -np.geomspace(1e-6, 1e6, 40)]).astype(np.float32)
    for epsilon in (0.0, 1e-3, 0.1):
        back = returns.signed_parabolic(returns.signed_hyperbolic(x, epsilon), epsilon)
        assert back.dtype == tf.float32
        np.testing.assert_allclose(back, x, rtol=2e-6)


# The papers' sums, term by term, for one copy.


def steps_to_bootstrap(t: int, n: int, terminated: np.ndarray, truncated: np.ndarray) -> int:
    """Number of steps from t to the end of its episode, of the sequence or of n steps, whichever is first."""
    k = 1
    while k < n and t + k < len(terminated) and not (terminated[t + k - 1] or truncated[t + k - 1]):
        k += 1
    return k


def sum_n_step(b: dict, t: int, gamma: float, n: int) -> float:
    k = steps_to_bootstrap(t, n, b['terminated'], b['truncated'])
    total = sum(gamma**i * b['reward'][t + i] for i in range(k))
    last = t + k - 1
    return total + (0.0 if b['terminated'][last] else gamma**k * b['next_value'][last])


def sum_lambda(b: dict, t: int, gamma: float, trace: float) -> float:
    """(1 - trace) sum_n trace^(n-1) G^(n), and what is left of the weights on the longest return."""
    last = steps_to_bootstrap(t, len(b['reward']), b['terminated'], b['truncated'])
    found = [sum_n_step(b, t, gamma, n) for n in range(1, last + 1)]
    return sum((1 - trace) * trace**i * g for i, g in enumerate(found[:-1])) + trace ** (last - 1) * found[-1]


def td_error(b: dict, t: int, gamma: float, value: str) -> float:
    return b['reward'][t] + (0.0 if b['terminated'][t] else gamma * b['next_value'][t]) - b[value][t]


def sum_of_traces(b: dict, t: int, gamma: float, value: str, weight: np.ndarray, trace: np.ndarray) -> float:
    """sum_i gamma^i trace[t] ... trace[t+i-1] weight[t+i] delta[t+i], to the end of the episode."""
    k = steps_to_bootstrap(t, len(trace), b['terminated'], b['truncated'])
    terms = [weight[t + i] * td_error(b, t + i, gamma, value) for i in range(k)]
    return sum(gamma**i * np.prod(trace[t : t + i]) * term for i, term in enumerate(terms))


def reference(b: dict, function: str, gamma: float) -> tuple[np.ndarray, ...]:
    """What each function should give for one copy, from the definition."""
    steps = range(len(b['reward']))
    ratio = np.exp(b['target_log_prob'] - b['behavior_log_prob'])
    ones = np.ones_like(ratio)
    if function == 'gae':
        advantage = np.array([sum_of_traces(b, t, gamma, 'value', ones, 0.9 * ones) for t in steps])
        return advantage, advantage + b['value']
    if function == 'discounted_returns':
        return (np.array([sum_n_step(b, t, gamma, len(steps)) for t in steps]),)
    if function == 'lambda_returns':
        return (np.array([sum_lambda(b, t, gamma, 0.8) for t in steps]),)
    rho, c = np.minimum(ratio, 1.5), np.minimum(ratio, 1.1)
    vs = np.array([b['value'][t] + sum_of_traces(b, t, gamma, 'value', rho, c) for t in steps])
    ended = b['terminated'] | b['truncated']
    next_vs = [b['next_value'][t] if ended[t] or t + 1 == len(vs) else vs[t + 1] for t in steps]
    return vs, rho * (b['reward'] + gamma * ~b['terminated'] * next_vs - b['value'])


def call(b: dict, function: str, gamma: float) -> tuple[tf.Tensor, ...]:
    """The function under test on the same numbers, always as a tuple."""
    ends = b['terminated'], b['truncated']
    if function == 'gae':
        return returns.gae(b['reward'], b['value'], b['next_value'], *ends, gamma, 0.9)
    if function == 'discounted_returns':
        return (returns.discounted_returns(b['reward'], b['next_value'], *ends, gamma),)
    if function == 'lambda_returns':
        return (returns.lambda_returns(b['reward'], b['next_value'], *ends, gamma, 0.8),)
    log_probs = b['target_log_prob'], b['behavior_log_prob']
    return returns.vtrace(*log_probs, b['reward'], b['value'], b['next_value'], *ends, gamma, 1.5, 1.1)


FUNCTIONS = ['gae', 'discounted_returns', 'lambda_returns', 'vtrace']
FLOATS = ('reward', 'value', 'next_value', 'target_log_prob', 'behavior_log_prob')


def random_batch(steps: int, copies: int, seed: int, dtype: type = np.float64) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    batch = {name: rng.normal(size=(steps, copies)).astype(dtype) for name in FLOATS}
    batch['terminated'] = rng.random((steps, copies)) < 0.12
    batch['truncated'] = rng.random((steps, copies)) < 0.12  # some steps have both: a termination then counts
    return batch


@pytest.mark.parametrize('function', FUNCTIONS)
@pytest.mark.parametrize('steps', [1, 2, 3, 8, 21])
def test_equals_the_sum_of_the_definition(function, steps):
    batch = random_batch(steps, 6, seed=steps)
    actual = call(batch, function, 0.95)
    for copy in range(6):
        expected = reference({name: x[:, copy] for name, x in batch.items()}, function, 0.95)
        for a, e in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a[:, copy], e, rtol=1e-10, atol=1e-12)


def test_a_finished_episode_does_not_see_what_follows():
    batch = random_batch(9, 1, seed=3)
    batch['terminated'][:], batch['truncated'][:] = False, False
    batch['truncated'][4] = True
    later = {name: x.copy() for name, x in batch.items()}
    for name in FLOATS:
        later[name][5:] = 1e6
    for function in FUNCTIONS:
        for a, b in zip(call(batch, function, 0.95), call(later, function, 0.95), strict=True):
            np.testing.assert_array_equal(a[:5], b[:5])


def test_on_policy_vtrace_is_the_discounted_return():
    # With pi = mu and no clipping of consequence V-trace is the n-step Bellman target (IMPALA, section 4.1), given that
    # next_value[t] is value[t + 1] inside an episode.
    batch = random_batch(12, 4, seed=5)
    ended = batch['terminated'] | batch['truncated']
    batch['next_value'][:-1] = np.where(ended[:-1], batch['next_value'][:-1], batch['value'][1:])
    ends = batch['terminated'], batch['truncated']
    log_prob = batch['target_log_prob']
    vs, advantage = returns.vtrace(log_prob, log_prob, batch['reward'], batch['value'], batch['next_value'], *ends, 0.9)
    expected = returns.discounted_returns(batch['reward'], batch['next_value'], *ends, 0.9)
    np.testing.assert_allclose(vs, expected, rtol=1e-10)
    np.testing.assert_allclose(advantage, expected - batch['value'], rtol=1e-9, atol=1e-12)


def test_any_trailing_axes():
    batch = random_batch(6, 6, seed=8)
    folded = {name: x.reshape(6, 2, 3) for name, x in batch.items()}
    single = {name: x[:, 4] for name, x in batch.items()}
    for function in FUNCTIONS:
        whole = call(batch, function, 0.95)
        for expected, actual, column in zip(
            whole, call(folded, function, 0.95), call(single, function, 0.95), strict=True
        ):
            np.testing.assert_array_equal(actual, tf.reshape(expected, (6, 2, 3)))
            np.testing.assert_array_equal(column, expected[:, 4])


def finite_differences(f: Callable[[np.ndarray], float], x: np.ndarray, step: float = 1e-6) -> np.ndarray:
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        gradient[i] = (f(up) - f(down)) / (2.0 * step)
    return gradient


@pytest.mark.full(but='discounted_returns')
@pytest.mark.parametrize('function', FUNCTIONS)
def test_gradients_equal_finite_differences(function):
    batch = random_batch(6, 2, seed=11)
    rng = np.random.default_rng(12)
    weights = [rng.normal(size=(6, 2)) for _ in range(2)]

    def loss(b: dict) -> tf.Tensor:
        return tf.add_n([tf.reduce_sum(w * x) for w, x in zip(weights, call(b, function, 0.9), strict=False)])

    variables = {name: tf.constant(batch[name]) for name in FLOATS}
    with tf.GradientTape() as tape:
        tape.watch(variables)
        y = loss(batch | variables)
    gradients = tape.gradient(y, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    for name in FLOATS:
        expected = finite_differences(lambda x, name=name: float(loss(batch | {name: x})), batch[name])
        np.testing.assert_allclose(gradients[name], expected, rtol=1e-6, atol=1e-8, err_msg=name)


def test_projection_gradients_equal_finite_differences():
    rng = np.random.default_rng(13)
    z_q = np.linspace(-1.0, 1.0, 5)
    inputs = {'z_p': rng.normal(size=(2, 5)), 'probs': rng.random((2, 5))}
    weights = rng.normal(size=(2, 5))

    def loss(x: dict) -> tf.Tensor:
        return tf.reduce_sum(weights * returns.categorical_projection(x['z_p'], x['probs'], z_q))

    variables = {name: tf.constant(x) for name, x in inputs.items()}
    with tf.GradientTape() as tape:
        tape.watch(variables)
        y = loss(variables)
    for name, gradient in tape.gradient(y, variables).items():
        expected = finite_differences(lambda x, name=name: float(loss(inputs | {name: x})), inputs[name])
        np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8, err_msg=name)


def test_gradient_is_finite_where_the_ratio_overflows():
    batch = random_batch(4, 2, seed=14, dtype=np.float32)
    log_prob = tf.constant(batch['target_log_prob'] + 200.0)  # exp(200) is infinite in float32
    with tf.GradientTape() as tape:
        tape.watch(log_prob)
        y = tf.add_n([tf.reduce_sum(x) for x in call(batch | {'target_log_prob': log_prob}, 'vtrace', 0.9)])
    assert np.isfinite(y)
    assert np.all(np.isfinite(tape.gradient(y, log_prob)))


def test_no_bounds_means_plain_importance_sampling():
    batch = random_batch(5, 2, seed=15)
    args = [batch[name] for name in ('target_log_prob', 'behavior_log_prob', 'reward', 'value', 'next_value')]
    ends = batch['terminated'], batch['truncated']
    unbounded = returns.vtrace(*args, *ends, 0.9, float('inf'), float('inf'))
    for a, b in zip(unbounded, returns.vtrace(*args, *ends, 0.9, 1e9, 1e9), strict=True):
        np.testing.assert_array_equal(a, b)


def project_by_algorithm_1(z_p: np.ndarray, probs: np.ndarray, z_q: np.ndarray) -> np.ndarray:
    m = np.zeros_like(z_q)
    for z, p in zip(z_p, probs, strict=True):
        b = (np.clip(z, z_q[0], z_q[-1]) - z_q[0]) / (z_q[1] - z_q[0])
        lower, upper = int(np.floor(b)), int(np.ceil(b))
        if lower == upper:  # the case in which the published algorithm loses the mass
            m[lower] += p
        else:
            m[lower] += p * (upper - b)
            m[upper] += p * (b - lower)
    return m


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_projection_equals_algorithm_1(dtype):
    rng = np.random.default_rng(16)
    z_q = np.linspace(-10.0, 10.0, 51)
    terminated = rng.random((32, 1)) < 0.3
    z_p = rng.normal(scale=4.0, size=(32, 1)) + 0.99 * ~terminated * z_q
    probs = rng.dirichlet(np.ones(51), size=32)
    expected = [project_by_algorithm_1(z, p, z_q) for z, p in zip(z_p, probs, strict=True)]
    actual = returns.categorical_projection(z_p.astype(dtype), probs.astype(dtype), z_q.astype(dtype))
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, expected, atol=1e-10 if dtype is np.float64 else 3e-6)
    np.testing.assert_allclose(tf.reduce_sum(actual, -1), 1.0, atol=1e-5)


def test_projection_onto_its_own_support_changes_nothing():
    z_q = np.linspace(0.0, 7.0, 8, dtype=np.float32)
    probs = np.random.default_rng(17).dirichlet(np.ones(8), size=(3, 2)).astype(np.float32)
    actual = returns.categorical_projection(np.broadcast_to(z_q, (3, 2, 8)), probs, z_q)
    np.testing.assert_allclose(actual, probs, atol=1e-6)


@pytest.mark.full(but='vtrace')
@pytest.mark.parametrize('function', FUNCTIONS)
def test_xla_gives_the_same(function):
    batch = {name: tf.constant(x) for name, x in random_batch(33, 4, seed=18, dtype=np.float32).items()}
    compiled = tf.function(lambda b: call(b, function, 0.95), jit_compile=True)
    graph = tf.function(lambda b: call(b, function, 0.95))
    for xla, plain, eager in zip(compiled(batch), graph(batch), call(batch, function, 0.95), strict=True):
        assert plain.dtype == tf.float32
        np.testing.assert_allclose(plain, eager, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(xla, eager, rtol=1e-5, atol=1e-5)


def test_xla_projects_the_same():
    rng = np.random.default_rng(19)
    z_q = np.linspace(-1.0, 1.0, 11, dtype=np.float32)
    z_p = rng.normal(size=(8, 11)).astype(np.float32)
    probs = rng.dirichlet(np.ones(11), size=8).astype(np.float32)
    compiled = tf.function(returns.categorical_projection, jit_compile=True)
    np.testing.assert_allclose(compiled(z_p, probs, z_q), returns.categorical_projection(z_p, probs, z_q), atol=1e-6)


@pytest.mark.full
def test_long_sequence_and_its_gradient_under_xla():
    batch = random_batch(2048, 2, seed=20, dtype=np.float32)
    expected = np.zeros((2049, 2))
    b64 = {name: x.astype(np.float64) if name in FLOATS else x for name, x in batch.items()}
    for t in reversed(range(2048)):
        delta = b64['reward'][t] + 0.99 * ~b64['terminated'][t] * b64['next_value'][t] - b64['value'][t]
        expected[t] = delta + 0.99 * 0.95 * ~(b64['terminated'][t] | b64['truncated'][t]) * expected[t + 1]

    @tf.function(jit_compile=True)
    def advantage_and_gradient(b: dict) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(b['reward'])
            advantage, _ = returns.gae(
                b['reward'], b['value'], b['next_value'], b['terminated'], b['truncated'], 0.99, 0.95
            )
        return advantage, tape.gradient(advantage, b['reward'])

    advantage, gradient = advantage_and_gradient({name: tf.constant(x) for name, x in batch.items()})
    np.testing.assert_allclose(advantage, expected[:-1], rtol=1e-4, atol=1e-4)
    # d(sum of A) / d r_t sums lambda gamma powers over the steps of the episode up to t: 1 at its first step.
    first = np.vstack([np.ones((1, 2), bool), (batch['terminated'] | batch['truncated'])[:-1]])
    np.testing.assert_allclose(gradient.numpy()[first], 1.0, rtol=1e-6)


def test_unknown_number_of_copies_and_tensor_hyper_parameters():
    spec = {name: tf.TensorSpec([5, None], tf.float32) for name in FLOATS}
    spec |= {name: tf.TensorSpec([5, None], tf.bool) for name in ('terminated', 'truncated')}
    graph = tf.function(lambda b, gamma: call(b, 'gae', gamma), input_signature=[spec, tf.TensorSpec([], tf.float32)])
    for copies in (1, 4):
        batch = random_batch(5, copies, seed=21, dtype=np.float32)
        for a, e in zip(graph(batch, 0.9), call(batch, 'gae', 0.9), strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)


def test_python_numbers_keep_float64():
    batch = random_batch(1, 1, seed=22)
    batch['terminated'][:], batch['truncated'][:] = False, False
    (actual,) = call(batch, 'discounted_returns', 0.1)
    assert actual.dtype == tf.float64
    assert actual[0, 0] == batch['reward'][0, 0] + 0.1 * batch['next_value'][0, 0]


@pytest.mark.parametrize(
    ('change', 'error', 'message'),
    [
        ({'terminated': np.zeros((4, 2), np.float32)}, TypeError, 'terminated is float32, it should be bool'),
        ({'truncated': np.zeros((4, 2), np.int64)}, TypeError, 'truncated is int64, it should be bool'),
        ({'reward': np.zeros((4, 2), np.int32)}, TypeError, 'reward is int32, it should be float32'),
        ({'value': np.zeros((4, 2))}, TypeError, 'value is float64, it should be float32 like reward'),
        ({'value': np.zeros((4, 2, 1), np.float32)}, ValueError, r'value has shape \(4, 2, 1\), it should be \(4, 2\)'),
        ({'next_value': np.zeros((5, 2), np.float32)}, ValueError, 'next_value has shape'),
        ({'truncated': np.zeros(4, bool)}, ValueError, r'truncated has shape \(4,\)'),
        ({'reward': np.float32(0.0)}, ValueError, r'reward has shape \(\), it should be \[T, ...\]'),
        ({'reward': np.zeros((0, 2), np.float32)}, ValueError, 'at least 1'),
    ],
)
def test_refusals(change, error, message):
    with pytest.raises(error, match=message):
        call(random_batch(4, 2, seed=23, dtype=np.float32) | change, 'gae', 0.9)


def test_other_refusals():
    spec = tf.TensorSpec([None, 2], tf.float32)
    flag = tf.TensorSpec([None, 2], tf.bool)
    traced = tf.function(lambda r, v, e, u: returns.discounted_returns(r, v, e, u, 0.9))
    with pytest.raises(ValueError, match='T known when tracing'):
        traced.get_concrete_function(spec, spec, flag, flag)
    with pytest.raises(ValueError, match='at least two atoms'):
        returns.categorical_projection([[1.0]], [[1.0]], [1.0])
    with pytest.raises(ValueError, match='z_p has shape'):
        returns.categorical_projection([[1.0, 2.0]], [[1.0]], [1.0, 2.0])
    with pytest.raises(TypeError, match='probs is int32'):
        returns.categorical_projection([[1.0]], [[1]], [1.0, 2.0])


@pytest.mark.parametrize('xla', [False, True], ids=['plain', 'xla'])
@pytest.mark.parametrize('steps', [1, 6])
def test_next_values_where_they_count(xla, steps):
    rng = np.random.default_rng(4)
    obs = {'a': rng.normal(size=(steps, 3)), 'b': rng.normal(size=(steps, 3, 2))}
    next_obs = {name: rng.normal(size=x.shape) for name, x in obs.items()}
    terminated, truncated = np.zeros((2, steps, 3), bool)
    if steps > 1:
        truncated[0] = truncated[2, 1] = terminated[3, 0] = terminated[4, 2] = truncated[4, 2] = True
        truncated[-1, 0] = True
    goes_on = ~(terminated | truncated)[:-1]
    for name, x in next_obs.items():
        x[:-1][goes_on] = obs[name][1:][goes_on]
    seen = []

    def critic(some):
        if not xla:
            tf.numpy_function(lambda x: seen.append(x) or np.int32(0), [some['a']], tf.int32)
        return some['a'] * 3.0 + tf.reduce_sum(some['b'], -1)

    @tf.function(jit_compile=xla, autograph=False)
    def found(obs, next_obs, terminated, truncated):
        value = obs['a'] * 3.0 + tf.reduce_sum(obs['b'], -1)
        return returns.next_values(critic, value, next_obs, terminated, truncated)

    counts = ~terminated
    expected = next_obs['a'] * 3.0 + next_obs['b'].sum(-1)
    result = found(obs, next_obs, tf.constant(terminated), tf.constant(truncated)).numpy()
    np.testing.assert_allclose(result[counts], expected[counts])
    assert np.isfinite(result).all()
    if not xla:  # every copy was cut in the first row, another one in the third; the last row is always looked at
        np.testing.assert_array_equal(seen, next_obs['a'][[0, 2, 5] if steps > 1 else [0]])
