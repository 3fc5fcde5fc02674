"""Returns, advantages and value targets: pure functions of tensors, named as in the papers.

All sequences are time-major, ``[T, ...]`` (usually ``[T, N]``: T steps of N copies of an environment), of one float
dtype, which the results keep (float32 in training; float64 is never cast down). ``terminated`` and ``truncated`` are
bool and of the same shape. ``next_value[t]`` is the value of the *true* next observation of step t, at the end of an
episode the final observation and not the first one after the reset.

One rule for the ends of episodes holds in every function: step t bootstraps from ``next_value[t]`` unless it
terminated, and nothing flows back into step t from later steps once it terminated or was truncated. So a time limit is
no loss of value. The end of the sequence counts as a truncation. A step in which an environment only reset itself
(``Trajectories.valid`` is False) follows such an end and so reaches no other step: leave its own row out of the loss.

Nothing here stops gradients: a loss that takes a result as a constant says so itself.

Raises, all functions, while tracing: ``TypeError`` for a dtype, ``ValueError`` for a shape, or for a T that is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

Scalar: TypeAlias = float | tf.Tensor


def next_values(
    critic: Callable[[Any], tf.Tensor], value: tf.Tensor, next_obs: Any, terminated: tf.Tensor, truncated: tf.Tensor
) -> tf.Tensor:
    """The values of the next observations of :class:`zoo.common.records.Trajectories`.

    Most are known already: ``next_obs[t]`` is ``obs[t + 1]`` unless the episode ended at t. The critic is called only
    for the rows in which a copy was truncated, one after another, and for the last row.

    Args:
        critic: values ``[N]`` of observations ``[N, …]``.
        value: ``[T, N]``, V(s_t).
        next_obs: ``[T, N, …]``, or a nested structure of such.
        terminated: bool ``[T, N]``.
        truncated: bool ``[T, N]``.

    Returns:
        V(s_{t+1}) ``[T, N]``; where terminated, a number that means nothing.
    """
    cut = tf.convert_to_tensor(truncated) & ~tf.convert_to_tensor(terminated)
    steps = tf.range(value.shape[0])
    is_last = steps == value.shape[0] - 1
    due = tf.cast(tf.reduce_any(cut, 1) | is_last, tf.int32)
    cut |= is_last[:, None]

    def row(found: tf.Tensor, due: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        t = tf.argmax(due, output_type=tf.int32)
        own = critic(tf.nest.map_structure(lambda x: x[t], next_obs))
        here = steps == t
        return tf.where(cut & here[:, None], own[None], found), tf.where(here, 0, due)

    start = (tf.concat([value[1:], value[-1:]], 0), due)
    found, _ = tf.while_loop(lambda _, due: tf.reduce_any(due > 0), row, start, parallel_iterations=1)
    return found


def gae(
    reward: tf.Tensor,
    value: tf.Tensor,
    next_value: tf.Tensor,
    terminated: tf.Tensor,
    truncated: tf.Tensor,
    gamma: Scalar,
    gae_lambda: Scalar,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Generalised advantage estimation.

    Schulman et al., *High-Dimensional Continuous Control Using Generalized Advantage Estimation* (arXiv 1506.02438),
    equation 16: ``A_t = sum_k (gamma lambda)^k delta_{t+k}`` with ``delta_t = r_t + gamma V(s_{t+1}) - V(s_t)``.

    Args:
        reward: ``[T, ...]``.
        value: ``[T, ...]``, V(s_t).
        next_value: ``[T, ...]``, V(s_{t+1}) of the true next observation.
        terminated: bool ``[T, ...]``.
        truncated: bool ``[T, ...]``.
        gamma: discount factor, in [0, 1].
        gae_lambda: lambda, in [0, 1].

    Returns:
        The advantage ``[T, ...]`` and the return ``advantage + value`` ``[T, ...]``, the target of the value function.
    """
    (reward, value, next_value), terminated, end = _checked(
        terminated, truncated, reward=reward, value=value, next_value=next_value
    )
    gamma, gae_lambda = _like(gamma, reward), _like(gae_lambda, reward)
    delta = reward + gamma * (1.0 - terminated) * next_value - value
    advantage = _reverse_scan(delta, gamma * gae_lambda * (1.0 - end))
    return advantage, advantage + value


def discounted_returns(
    reward: tf.Tensor, next_value: tf.Tensor, terminated: tf.Tensor, truncated: tf.Tensor, gamma: Scalar
) -> tf.Tensor:
    """Discounted sum of rewards to the end of the episode, bootstrapped where the episode goes on unseen.

    Sutton and Barto, *Reinforcement Learning: An Introduction* (2nd edition), equations 3.8 and 3.9: ``G_t = r_t +
    gamma G_{t+1}``; in place of ``G_{t+1}`` stands ``next_value[t]`` at a truncation and at the end of the sequence,
    and 0 at a termination. Pass zeros as ``next_value`` for plain Monte Carlo returns.

    Args:
        reward: ``[T, ...]``.
        next_value: ``[T, ...]``; counts only at truncations and at the last step.
        terminated: bool ``[T, ...]``.
        truncated: bool ``[T, ...]``.
        gamma: discount factor, in [0, 1].

    Returns:
        G ``[T, ...]``.
    """
    (reward, next_value), terminated, end = _checked(terminated, truncated, reward=reward, next_value=next_value)
    b, c = _return_recursion(reward, next_value, terminated, end, gamma)
    return _reverse_scan(b, c)


def n_step_returns(
    reward: tf.Tensor, next_value: tf.Tensor, terminated: tf.Tensor, truncated: tf.Tensor, gamma: Scalar, n: int
) -> tf.Tensor:
    """The n-step return of every step.

    Sutton and Barto, equation 7.1: ``G_t = r_t + gamma r_{t+1} + ... + gamma^(k-1) r_{t+k-1} + gamma^k V(s_{t+k})``
    with ``k = n``, or less where the episode or the sequence ends sooner; no bootstrap after a termination. ``n = 1``
    is the TD target, ``n >= T`` is ``discounted_returns``.

    Args:
        reward: ``[T, ...]``.
        next_value: ``[T, ...]``, V(s_{t+1}) of the true next observation.
        terminated: bool ``[T, ...]``.
        truncated: bool ``[T, ...]``.
        gamma: discount factor, in [0, 1].
        n: number of steps, at least 1.

    Returns:
        G ``[T, ...]``.

    Raises:
        ValueError: ``n`` is less than 1.
    """
    if n < 1:
        raise ValueError(f'n is {n}, it should be at least 1.')
    (reward, next_value), terminated, end = _checked(terminated, truncated, reward=reward, next_value=next_value)
    target = reward + _like(gamma, reward) * (1.0 - terminated) * next_value
    # G of n steps is n - 1 times `y_t <- b_t + c_t y_{t+1}` from the one-step target. Maps over 1, 2, 4, ... steps are
    # made by doubling and those in the binary form of n - 1 applied: a large n costs no long graph.
    b, c = _return_recursion(reward, next_value, terminated, end, gamma)
    steps, left = 1, min(n, reward.shape[0]) - 1
    while left:
        if left & 1:
            target = _after(b, c, target, steps)
        b, c = _after(b, c, b, steps), _after(tf.zeros_like(c), c, c, steps)
        steps, left = 2 * steps, left >> 1
    return target


def vtrace(
    target_log_prob: tf.Tensor,
    behaviour_log_prob: tf.Tensor,
    reward: tf.Tensor,
    value: tf.Tensor,
    next_value: tf.Tensor,
    terminated: tf.Tensor,
    truncated: tf.Tensor,
    gamma: Scalar,
    rho_bar: Scalar = 1.0,
    c_bar: Scalar = 1.0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """V-trace value targets and policy-gradient advantages.

    Espeholt et al., *IMPALA* (arXiv 1802.01561), equation 1 and section 4.2. With ``rho_t = min(rho_bar, pi/mu)`` and
    ``c_t = min(c_bar, pi/mu)``: ``v_s = V(s_s) + sum_t gamma^(t-s) (c_s ... c_{t-1}) rho_t (r_t + gamma V(s_{t+1}) -
    V(s_t))``, and the advantage is ``rho_s (r_s + gamma v_{s+1} - V(s_s))``. The paper takes ``rho_bar >= c_bar``.

    Args:
        target_log_prob: ``[T, ...]``, log pi(a_t | s_t) of the policy that is being learned.
        behaviour_log_prob: ``[T, ...]``, log mu(a_t | s_t) of the policy that acted.
        reward: ``[T, ...]``.
        value: ``[T, ...]``, V(s_t).
        next_value: ``[T, ...]``, V(s_{t+1}) of the true next observation.
        terminated: bool ``[T, ...]``.
        truncated: bool ``[T, ...]``.
        gamma: discount factor, in [0, 1].
        rho_bar: bound on rho, which decides whose value function this is; infinity for none.
        c_bar: bound on c, which decides how fast it is learned; infinity for none.

    Returns:
        ``vs`` ``[T, ...]``, the target of the value function, and the advantage ``[T, ...]``. ``v_{s+1}`` is
        ``next_value[s]`` at a truncation and at the end of the sequence.
    """
    (target_log_prob, behaviour_log_prob, reward, value, next_value), terminated, end = _checked(
        terminated,
        truncated,
        target_log_prob=target_log_prob,
        behaviour_log_prob=behaviour_log_prob,
        reward=reward,
        value=value,
        next_value=next_value,
    )
    log_ratio = target_log_prob - behaviour_log_prob
    discount = _like(gamma, reward) * (1.0 - terminated)
    rho = _clipped_ratio(log_ratio, rho_bar)
    delta = rho * (reward + discount * next_value - value)
    go_on = _like(gamma, reward) * (1.0 - end)
    vs = value + _reverse_scan(delta, go_on * _clipped_ratio(log_ratio, c_bar))
    next_vs = tf.where(end > 0.0, next_value, tf.concat([vs[1:], next_value[-1:]], axis=0))
    return vs, rho * (reward + discount * next_vs - value)


def retrace(
    target_log_prob: tf.Tensor,
    behaviour_log_prob: tf.Tensor,
    reward: tf.Tensor,
    q: tf.Tensor,
    next_value: tf.Tensor,
    terminated: tf.Tensor,
    truncated: tf.Tensor,
    gamma: Scalar,
    trace_lambda: Scalar = 1.0,
) -> tf.Tensor:
    """Retrace(lambda) targets for Q(s_t, a_t).

    Munos et al., *Safe and Efficient Off-Policy Reinforcement Learning* (arXiv 1606.02647), the operator R with the
    coefficients of Retrace: ``Q(s_t, a_t) + sum_k gamma^k (c_{t+1} ... c_{t+k}) delta_{t+k}``, ``c = lambda min(1,
    pi/mu)``, ``delta_t = r_t + gamma E_pi Q(s_{t+1}, .) - Q(s_t, a_t)``.

    Args:
        target_log_prob: ``[T, ...]``, log pi(a_t | s_t) of the policy that is evaluated.
        behaviour_log_prob: ``[T, ...]``, log mu(a_t | s_t) of the policy that acted.
        reward: ``[T, ...]``.
        q: ``[T, ...]``, Q(s_t, a_t).
        next_value: ``[T, ...]``, the expectation of Q(s_{t+1}, a) for a drawn from pi, at the true next observation.
        terminated: bool ``[T, ...]``.
        truncated: bool ``[T, ...]``.
        gamma: discount factor, in [0, 1].
        trace_lambda: lambda, in [0, 1].

    Returns:
        The targets ``[T, ...]``. The ratio of the first step does not enter.
    """
    (target_log_prob, behaviour_log_prob, reward, q, next_value), terminated, end = _checked(
        terminated,
        truncated,
        target_log_prob=target_log_prob,
        behaviour_log_prob=behaviour_log_prob,
        reward=reward,
        q=q,
        next_value=next_value,
    )
    gamma = _like(gamma, reward)
    c = _like(trace_lambda, reward) * _clipped_ratio(target_log_prob - behaviour_log_prob, 1.0)
    next_c = tf.concat([c[1:], tf.zeros_like(c[:1])], axis=0)
    delta = reward + gamma * (1.0 - terminated) * next_value - q
    return q + _reverse_scan(delta, gamma * (1.0 - end) * next_c)


def categorical_projection(z_p: tf.Tensor, probs: tf.Tensor, z_q: tf.Tensor) -> tf.Tensor:
    """Projects a categorical distribution of returns onto another support (C51).

    Bellemare et al., *A Distributional Perspective on Reinforcement Learning* (arXiv 1707.06887), equation 7, which is
    what algorithm 1 computes: an atom of mass p at z gives each of its two neighbours in ``z_q`` a share that falls
    linearly with distance; beyond the ends all goes to the end. Written with the distances, mass that meets an atom
    exactly is not lost, as it is in algorithm 1 taken literally (there l = u, and both shares are zero).

    Args:
        z_p: ``[..., P]``, the atoms of each distribution, in any order; in a Bellman update
            ``r + gamma (1 - terminated) z``.
        probs: ``[..., P]``, their probabilities.
        z_q: ``[Q]``, the new support, evenly spaced and rising, at least two atoms.

    Returns:
        ``[..., Q]``, the probabilities on ``z_q``; their sum is that of ``probs``.

    Raises:
        TypeError: a dtype is not float or the dtypes differ.
        ValueError: the shapes are not as above.
    """
    z_p, probs, z_q = _same_float(z_p=z_p, probs=probs, z_q=z_q)
    if z_q.shape.rank != 1 or z_q.shape[0] is None or z_q.shape[0] < 2:
        raise ValueError(f'z_q has shape {z_q.shape}, it should be [Q] with at least two atoms.')
    if z_p.shape.rank == 0 or not z_p.shape.is_compatible_with(probs.shape):
        raise ValueError(f'z_p has shape {z_p.shape} and probs {probs.shape}, both should be [..., P].')
    last = z_q.shape[0] - 1
    # In units of the spacing, so that atom i of z_q stands at i.
    position = (tf.clip_by_value(z_p, z_q[0], z_q[-1]) - z_q[0]) * (last / (z_q[-1] - z_q[0]))
    share = tf.nn.relu(1.0 - tf.abs(position[..., tf.newaxis] - tf.range(last + 1, dtype=z_q.dtype)))
    return tf.linalg.matvec(share, probs, transpose_a=True)


def signed_hyperbolic(x: tf.Tensor, epsilon: Scalar) -> tf.Tensor:
    """h, which brings values of any size near each other, so that rewards need not be clipped.

    Pohlen et al. 2018, *Observe and Look Further* (arXiv 1805.11593), of the transformed Bellman operator: ``h(x) =
    sign(x) (√(|x| + 1) − 1) + ε x``, here as ``x (1 / (√(|x| + 1) + 1) + ε)``, the same without a difference of nearly
    equal numbers.

    Args:
        x: of any shape.
        epsilon: ε, at least 0; above 0 the inverse is Lipschitz continuous.
    """
    (x,) = _same_float(x=x)
    return x * (1.0 / (tf.sqrt(tf.abs(x) + 1.0) + 1.0) + _like(epsilon, x))


def signed_parabolic(x: tf.Tensor, epsilon: Scalar) -> tf.Tensor:
    """The inverse of :func:`signed_hyperbolic`.

    From the appendix of the same paper: ``h⁻¹(x) = sign(x) (w² − 1)`` with ``w = (√(1 + 4 ε u) − 1) / (2 ε)`` and ``u =
    |x| + 1 + ε``. Since ``ε w² + w = u`` that is ``x (w + 1) / (1 + ε (w + 1))``, and ``w = 2 u / (√(1 + 4 ε u) + 1)``,
    which float32 has to its last digits for small ε, too; as the paper has it, it would be off by 1e-4.

    Args:
        x: of any shape.
        epsilon: ε, at least 0.
    """
    (x,) = _same_float(x=x)
    epsilon = _like(epsilon, x)
    u = tf.abs(x) + 1.0 + epsilon
    w = 2.0 * u / (tf.sqrt(1.0 + 4.0 * epsilon * u) + 1.0)
    return x * (w + 1.0) / (1.0 + epsilon * (w + 1.0))


def _reverse_scan(b: tf.Tensor, c: tf.Tensor) -> tf.Tensor:
    """``y_t = b_t + c_t y_{t+1}``, with nothing after the last step (c there is not read).

    The map of each step is composed with that of 1, 2, 4, ... steps later: log2(T) rounds of whole-array operations.
    Measured on 2 cores, in microseconds, against a reverse ``tf.while_loop`` that writes a ``TensorArray``:

    ========  ================  ================
    T x N     graph, this/loop  XLA, this/loop
    ========  ================  ================
    128 x 8      209 /  1,195      105 /  95
    2048 x 8     424 / 16,278      407 / 115
    2048 x 64  2,700 / 16,935    2,140 / 387
    ========  ================  ================

    So under XLA the loop would win by little beside the update that follows on as many samples, and in a graph it would
    lose by a lot. Unrolling all steps takes XLA 23 s to compile at T = 256.
    """
    steps, total = 1, b.shape[0]
    c = c[:-1]
    while steps < total:
        b = tf.concat([b[:-steps] + c * b[steps:], b[-steps:]], axis=0)
        c = c[:-steps] * c[steps:]
        steps *= 2
    return b


def _after(b: tf.Tensor, c: tf.Tensor, y: tf.Tensor, steps: int) -> tf.Tensor:
    """``b_t + c_t y_{t+steps}``, and ``b_t`` where that is past the end."""
    return tf.concat([b[:-steps] + c[:-steps] * y[steps:], b[-steps:]], axis=0)


def _return_recursion(
    reward: tf.Tensor, next_value: tf.Tensor, terminated: tf.Tensor, end: tf.Tensor, gamma: Scalar
) -> tuple[tf.Tensor, tf.Tensor]:
    """b and c of ``G_t = b_t + c_t G_{t+1}``: the reward, with the bootstrap where the episode or the sequence ends."""
    gamma = _like(gamma, reward)
    end = tf.concat([end[:-1], tf.ones_like(end[-1:])], axis=0)
    return reward + gamma * end * (1.0 - terminated) * next_value, gamma * (1.0 - end)


def _clipped_ratio(log_ratio: tf.Tensor, bound: Scalar) -> tf.Tensor:
    """``min(bound, exp(log_ratio))``, clipped before exp: its gradient would be NaN where exp overflows."""
    return tf.exp(tf.minimum(log_ratio, tf.math.log(_like(bound, log_ratio))))


def _like(scalar: Scalar, x: tf.Tensor) -> tf.Tensor:
    # tf.cast alone would take a Python number through float32, and a float64 check would see it.
    return tf.cast(scalar, x.dtype) if tf.is_tensor(scalar) else tf.constant(scalar, x.dtype)


def _checked(
    terminated: tf.Tensor, truncated: tf.Tensor, **floats: tf.Tensor
) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
    """The float sequences as tensors, and ``terminated`` and ``terminated or truncated`` as 0 / 1 of their dtype."""
    tensors = _same_float(**floats)
    flags = {'terminated': tf.convert_to_tensor(terminated), 'truncated': tf.convert_to_tensor(truncated)}
    for name, flag in flags.items():
        if flag.dtype != tf.bool:
            raise TypeError(f'{name} is {flag.dtype.name}, it should be bool.')
    shape = tensors[0].shape
    if not shape.rank or not shape[0]:
        first = next(iter(floats))
        raise ValueError(f'{first} has shape {shape}, it should be [T, ...] with T known when tracing and at least 1.')
    for name, tensor in zip([*floats, *flags], [*tensors, *flags.values()], strict=True):
        if not tensor.shape.is_compatible_with(shape):
            raise ValueError(f'{name} has shape {tensor.shape}, it should be {shape} like {next(iter(floats))}.')
    end = tf.cast(flags['terminated'] | flags['truncated'], tensors[0].dtype)
    return tensors, tf.cast(flags['terminated'], tensors[0].dtype), end


def _same_float(**floats: tf.Tensor) -> list[tf.Tensor]:
    tensors = {name: tf.convert_to_tensor(tensor) for name, tensor in floats.items()}
    first, dtype = next((name, tensor.dtype) for name, tensor in tensors.items())
    for name, tensor in tensors.items():
        if not tensor.dtype.is_floating:
            raise TypeError(f'{name} is {tensor.dtype.name}, it should be float32.')
        if tensor.dtype != dtype:
            raise TypeError(f'{name} is {tensor.dtype.name}, it should be {dtype.name} like {first}.')
    return list(tensors.values())
