"""Probability distributions over actions: pure functions of tensors.

A distribution is a small frozen description: how many categories, how many dimensions. Its *parameters* are what a
network puts out, and every method takes them. Distributions keep no state, and random numbers come from the caller's
``seed``: each method is the same function eagerly, in a ``tf.function`` and under XLA.

Masking: give the logits of forbidden choices -1e9, or any finite value below it. Their probability is then exactly
zero, and all results and gradients stay finite. An infinite logit would make NaN (``0 * -inf``).
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import tensorflow as tf

_LOG_2 = math.log(2.0)
_LOG_2PI = math.log(2.0 * math.pi)

# Unless it is named, TensorFlow picks the generator by the device, and a seed gives other numbers on another one.
GENERATOR = 'philox'
_UNIFORM_STEPS = 1 << 23

Action: TypeAlias = tf.Tensor | dict[str, tf.Tensor]


class Distribution(abc.ABC):
    """The methods of every distribution over actions.

    ``params`` is ``[..., param_size]``, float32; float64 is kept. Results named ``[...]`` have its leading axes.
    ``seed`` is an int32 tensor ``[2]``; the same seed gives the same sample. All except ``SquashedGaussian`` also have
    ``entropy(params) -> [...]``, in nats.

    Every method raises ``ValueError`` when the last axis of ``params`` is not ``param_size``, and ``TypeError`` when
    ``params`` is not a float tensor.
    """

    @property
    @abc.abstractmethod
    def param_size(self) -> int:
        """Length of the last axis of ``params``."""

    @abc.abstractmethod
    def log_prob(self, params: tf.Tensor, action: Action) -> tf.Tensor:
        """Give the log-probability, or log-density, of ``action``, in nats: ``[...]``."""

    @abc.abstractmethod
    def kl(self, p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        """Give the Kullback-Leibler divergence KL(p || q) between two sets of parameters, in nats: ``[...]``."""

    @abc.abstractmethod
    def mode(self, params: tf.Tensor) -> Action:
        """Give the action to take when acting deterministically."""

    @abc.abstractmethod
    def sample(self, params: tf.Tensor, seed: tf.Tensor) -> Action:
        """Draw an action for each set of parameters. Gradients flow through continuous actions to ``params``."""

    def sample_and_log_prob(self, params: tf.Tensor, seed: tf.Tensor) -> tuple[Action, tf.Tensor]:
        """Draw the action of ``sample(params, seed)``, and give its log-probability ``[...]`` too."""
        action = self.sample(params, seed)
        return action, self.log_prob(params, action)


@dataclass(frozen=True)
class _Sized(Distribution):
    """A distribution of one size, with as many parameters."""

    n: int

    def __post_init__(self) -> None:
        _check_size(self, self.n)

    @property
    def param_size(self) -> int:
        return self.n


class Categorical(_Sized):
    """One choice among ``n``.

    Parameters: logits ``[..., n]``. Action: int32 ``[...]`` in ``[0, n)``. ``log_prob`` of another action is an error
    on a CPU outside XLA and NaN elsewhere.
    """

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        return _categorical_log_prob(_checked(self, params), action)

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        return _categorical_entropy(_checked(self, params))

    def kl(self, p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        return _categorical_kl(_checked(self, p), _checked(self, q))

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        return tf.argmax(_checked(self, params), axis=-1, output_type=tf.int32)

    def sample(self, params: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return _categorical_sample(_checked(self, params), seed)


@dataclass(frozen=True)
class MultiCategorical(Distribution):
    """Several independent choices, the i-th among ``nvec[i]``.

    Parameters: the logits of all choices, concatenated in order, ``[..., sum(nvec)]``. Action: int32 ``[...,
    len(nvec)]``. ``log_prob`` of another action is a huge negative number, or as in ``Categorical``.
    """

    nvec: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.nvec, tuple) or not self.nvec:
            raise ValueError(f'MultiCategorical needs a non-empty tuple of sizes, such as (3, 2), not {self.nvec!r}.')
        for n in self.nvec:
            _check_size(self, n)

    @property
    def param_size(self) -> int:
        return sum(self.nvec)

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(_categorical_log_prob(self._table(params), action), axis=-1)

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(_categorical_entropy(self._table(params)), axis=-1)

    def kl(self, p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(_categorical_kl(self._table(p), self._table(q)), axis=-1)

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        return tf.argmax(self._table(params), axis=-1, output_type=tf.int32)

    def sample(self, params: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return _categorical_sample(self._table(params), seed)

    def _table(self, params: tf.Tensor) -> tf.Tensor:
        """Give the logits as ``[..., len(nvec), max(nvec)]``, so that all choices share each operation.

        Padding has the lowest finite number, not -1e9: it is below every mask of a user, so padding is never drawn.
        """
        params = _checked(self, params)
        widest = max(self.nvec)
        if min(self.nvec) == widest:
            return tf.reshape(params, tf.concat([tf.shape(params)[:-1], [len(self.nvec), widest]], axis=0))
        rows = [
            # Not tf.pad: tf.vectorized_map makes its constant 0.
            tf.concat([row, tf.fill(tf.concat([tf.shape(row)[:-1], [widest - n]], 0), params.dtype.min)], -1)
            for row, n in zip(tf.split(params, self.nvec, axis=-1), self.nvec, strict=True)
        ]
        return tf.stack(rows, axis=-2)


class Bernoulli(_Sized):
    """``n`` independent switches. Parameters: logits of being on, ``[..., n]``. Action: int32 ``[..., n]``, 0 or 1."""

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        params = _checked(self, params)
        # log sigmoid(x) for 1 and log sigmoid(-x) for 0, in one softplus that keeps its precision at both ends.
        sign = 1.0 - 2.0 * tf.cast(action, params.dtype)
        return -tf.reduce_sum(tf.math.softplus(sign * params), axis=-1)

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        params = _checked(self, params)
        on = tf.sigmoid(params) * tf.math.softplus(-params)
        off = tf.sigmoid(-params) * tf.math.softplus(params)
        return tf.reduce_sum(on + off, axis=-1)

    def kl(self, p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        p, q = _checked(self, p), _checked(self, q)
        on = tf.sigmoid(p) * (tf.math.softplus(-q) - tf.math.softplus(-p))
        off = tf.sigmoid(-p) * (tf.math.softplus(q) - tf.math.softplus(p))
        return tf.reduce_sum(on + off, axis=-1)

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        return tf.cast(_checked(self, params) > 0.0, tf.int32)

    def sample(self, params: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        params = _checked(self, params)
        return tf.cast(uniform_like(params, seed) < tf.sigmoid(params), tf.int32)


class _Gaussian(_Sized):
    """A Gaussian of ``n`` independent dimensions, perhaps behind a bijection, which does not change ``kl``.

    Parameters: mean and log standard deviation, ``[..., 2 n]``. The head that puts out the latter bounds it.
    """

    @property
    def param_size(self) -> int:
        return 2 * self.n

    def kl(self, p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        p_mean, p_log_std = self._moments(p)
        q_mean, q_log_std = self._moments(q)
        log_ratio = 2.0 * (p_log_std - q_log_std)
        distance = tf.square((p_mean - q_mean) * tf.exp(-q_log_std))
        # expm1: near p = q, where trust regions live, exp(x) - 1 - x would be all rounding.
        return 0.5 * tf.reduce_sum(tf.math.expm1(log_ratio) - log_ratio + distance, axis=-1)

    def _moments(self, params: tf.Tensor) -> Sequence[tf.Tensor]:
        """Give mean and log standard deviation."""
        return tf.split(_checked(self, params), 2, axis=-1)


class DiagGaussian(_Gaussian):
    """Gaussian over actions, float ``[..., n]``. Parameters: mean and log standard deviation, concatenated."""

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        mean, log_std = self._moments(params)
        return tf.reduce_sum(_normal_log_prob((action - mean) * tf.exp(-log_std), log_std), axis=-1)

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        _, log_std = self._moments(params)
        return tf.reduce_sum(log_std + 0.5 * (1.0 + _LOG_2PI), axis=-1)

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        return self._moments(params)[0]

    def sample(self, params: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        mean, log_std = self._moments(params)
        return mean + tf.exp(log_std) * normal_like(mean, seed)


class SquashedGaussian(_Gaussian):
    """Gaussian of ``n`` independent dimensions squashed by tanh: ``action = tanh(u)``, ``u ~ N(mean, std)``.

    Haarnoja et al., *Soft Actor-Critic* (arXiv 1801.01290), appendix C, equation 21: ``log pi(a) = log N(u) - sum_i
    log(1 - tanh(u_i)^2)``. The correction is computed as ``log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))``. This
    form is accurate where ``1 - tanh(u)^2`` rounds to zero.

    Parameters: mean and log standard deviation of ``u``, concatenated. Action: float ``[..., n]`` in (-1, 1); an
    endpoint itself appears only where tanh rounds to it. The entropy has no closed form: losses use ``-log_prob`` of a
    sample, as SAC does.
    """

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Give the log-density ``[...]`` of an action, by way of ``u = atanh(action)``.

        The action is first clipped to ``[-limit, limit]`` with ``limit = 1 - 8 eps`` (about ``1 - 1e-6`` in float32,
        where |u| = 7.3). At the endpoints atanh is infinite; near them the rounding of the action moves ``u`` by a few
        hundredths and more. Outside the limit the gradient with respect to the action is zero. For an action that is
        drawn at the same time, ``sample_and_log_prob`` needs neither atanh nor clipping.
        """
        mean, log_std = self._moments(params)
        limit = 1.0 - 8.0 * float(np.finfo(mean.dtype.as_numpy_dtype).eps)
        u = tf.atanh(tf.clip_by_value(tf.convert_to_tensor(action, mean.dtype), -limit, limit))
        noise = (u - mean) * tf.exp(-log_std)
        return tf.reduce_sum(_normal_log_prob(noise, log_std) - _log_tanh_slope(u), axis=-1)

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """Give ``tanh(mean)`` ``[..., n]``, the median of each dimension, which SAC acts by when it is evaluated.

        The density may peak elsewhere: at the ends, when the standard deviation is large.
        """
        return tf.tanh(self._moments(params)[0])

    def sample(self, params: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        mean, log_std = self._moments(params)
        return tf.tanh(mean + tf.exp(log_std) * normal_like(mean, seed))

    def sample_and_log_prob(self, params: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # The log-density comes from the value before tanh: it needs no atanh of a rounded action.
        mean, log_std = self._moments(params)
        noise = normal_like(mean, seed)
        u = mean + tf.exp(log_std) * noise
        return tf.tanh(u), tf.reduce_sum(_normal_log_prob(noise, log_std) - _log_tanh_slope(u), axis=-1)


@dataclass(frozen=True)
class Product(Distribution):
    """Independent named parts, for ``Dict`` and ``Tuple`` action spaces.

    ``parts`` is ``((path, distribution), ...)`` with distinct paths. Parameters: the parts' parameters, concatenated in
    order, ``[..., sum of param_size]``. Action: a flat dict ``{path: action of the part}``. Each part draws with its
    own seed, split from the one given. ``entropy`` raises ``TypeError`` when a part has none. ``log_prob`` raises
    ``ValueError`` when the keys of the action are not the paths.
    """

    parts: tuple[tuple[str, Distribution], ...]

    def __post_init__(self) -> None:
        paths = [path for path, _ in self.parts]
        if not paths:
            raise ValueError('Product needs at least one part.')
        if len(set(paths)) != len(paths):
            raise ValueError(f'Product needs distinct paths, not {paths}.')

    @property
    def param_size(self) -> int:
        return sum(part.param_size for _, part in self.parts)

    def log_prob(self, params: tf.Tensor, action: dict[str, tf.Tensor]) -> tf.Tensor:
        paths = [path for path, _ in self.parts]
        if set(action) != set(paths):
            raise ValueError(f'the action has the keys {sorted(action)}, it should have {sorted(paths)}.')
        return tf.add_n([part.log_prob(x, action[path]) for path, part, x in self._split(params)])

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        entropies = []
        for path, part, x in self._split(params):
            if not hasattr(part, 'entropy'):
                raise TypeError(f'{type(part).__name__} (part {path!r}) has no entropy: use -log_prob of a sample.')
            entropies.append(part.entropy(x))
        return tf.add_n(entropies)

    def kl(self, p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        pairs = zip(self._split(p), self._split(q), strict=True)
        return tf.add_n([part.kl(p_part, q_part) for (_, part, p_part), (_, _, q_part) in pairs])

    def mode(self, params: tf.Tensor) -> dict[str, tf.Tensor]:
        return {path: part.mode(x) for path, part, x in self._split(params)}

    def sample(self, params: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        seeds = self._seeds(seed)
        return {path: part.sample(x, seeds[path]) for path, part, x in self._split(params)}

    def sample_and_log_prob(self, params: tf.Tensor, seed: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        seeds = self._seeds(seed)
        drawn = {path: part.sample_and_log_prob(x, seeds[path]) for path, part, x in self._split(params)}
        return {path: action for path, (action, _) in drawn.items()}, tf.add_n([x for _, x in drawn.values()])

    def _split(self, params: tf.Tensor) -> list[tuple[str, Distribution, tf.Tensor]]:
        pieces = tf.split(_checked(self, params), [part.param_size for _, part in self.parts], axis=-1)
        return [(path, part, piece) for (path, part), piece in zip(self.parts, pieces, strict=True)]

    def _seeds(self, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        split = split_seed(seed, len(self.parts))
        return {path: part_seed for (path, _), part_seed in zip(self.parts, split, strict=True)}


def _check_size(distribution: Distribution, n: int) -> None:
    if n < 1:
        raise ValueError(f'{type(distribution).__name__} needs sizes of at least 1, not {n}.')


def _checked(distribution: Distribution, params: tf.Tensor) -> tf.Tensor:
    """Give ``params`` as a tensor. Its dtype and last axis are checked while tracing, at no cost later."""
    params = tf.convert_to_tensor(params)
    name, size = type(distribution).__name__, distribution.param_size
    if not params.dtype.is_floating:
        raise TypeError(f'{name} needs float parameters, not {params.dtype.name}.')
    if params.shape.rank == 0 or params.shape[-1] not in (None, size):
        raise ValueError(f'{name} needs parameters of shape [..., {size}], not {params.shape}.')
    return params


def _categorical_log_prob(logits: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
    # One fused kernel, forward and backward. The gradient of a gather is a slow scatter under XLA.
    return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast(action, tf.int32), logits=logits)


def _categorical_entropy(logits: tf.Tensor) -> tf.Tensor:
    log_p = tf.nn.log_softmax(logits)
    return -tf.reduce_sum(tf.exp(log_p) * log_p, axis=-1)


def _categorical_kl(p_logits: tf.Tensor, q_logits: tf.Tensor) -> tf.Tensor:
    log_p = tf.nn.log_softmax(p_logits)
    return tf.reduce_sum(tf.exp(log_p) * (log_p - tf.nn.log_softmax(q_logits)), axis=-1)


def _categorical_sample(logits: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draw by the Gumbel-max trick: argmax of logits + Gumbel noise is distributed as softmax(logits)."""
    # The noise lies between -2.9 and 16.7, so a masked logit is never drawn.
    return tf.argmax(logits - tf.math.log(-tf.math.log(uniform_like(logits, seed))), axis=-1, output_type=tf.int32)


def split_seed(seed: tf.Tensor, count: int) -> list[tf.Tensor]:
    """Make ``count`` independent seeds of one.

    They are hashed and not counted up from ``seed``: callers count up, so the second seed of one would be the first of
    the next.
    """
    return tf.unstack(tf.random.split(seed, count, alg=GENERATOR))


def uniform_like(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draw uniform numbers strictly between 0 and 1, in the shape and dtype of ``x``.

    They are made from random integers: a seed gives the same integers with and without XLA, but
    ``stateless_uniform`` and ``stateless_normal`` make other floats from them.
    """
    steps = tf.random.stateless_uniform(
        tf.shape(x), seed, minval=0, maxval=_UNIFORM_STEPS, dtype=tf.int32, alg=GENERATOR
    )
    return (tf.cast(steps, x.dtype) + 0.5) / _UNIFORM_STEPS


def normal_like(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draw standard normal numbers in the shape and dtype of ``x``, the same with and without XLA; |noise| < 5.3.

    ``tf.random.stateless_normal`` gives a seed other numbers under XLA, and updates of one learner are compiled by XLA
    where updates of several are not. These numbers come from the inverse of the distribution function.
    """
    return math.sqrt(2.0) * tf.math.erfinv(2.0 * uniform_like(x, seed) - 1.0)


def _normal_log_prob(noise: tf.Tensor, log_std: tf.Tensor) -> tf.Tensor:
    """Give the log-density of ``mean + exp(log_std) * noise`` for each dimension."""
    return -0.5 * (tf.square(noise) + _LOG_2PI) - log_std


def _log_tanh_slope(u: tf.Tensor) -> tf.Tensor:
    """Compute ``log(d tanh(u) / du) = log(1 - tanh(u)^2)``."""
    return 2.0 * (_LOG_2 - u - tf.math.softplus(-2.0 * u))
