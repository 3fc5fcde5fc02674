"""Running mean and standard deviation of observations and rewards. The agent keeps them and saves them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from zoo.common import spaces

log = logging.getLogger('zoo')

EPSILON = 1e-8

#: Normalized values are clipped at this many standard deviations, as in OpenAI Baselines' VecNormalize.
CLIP = 10.0


class RunningMoments:
    """Mean and variance of a stream of vectors, by the parallel algorithm of Chan et al. (1979).

    NumPy arrays hold them and take in whole batches. Compiled graphs read copies from variables, which are made at the
    first use, so that acting needs no TensorFlow. All is in float64: in float32 a large value, such as a clock, would
    lose its digits when the mean is subtracted.

    Attributes:
        count: vectors seen.
        mean, scale: the mean and one over the standard deviation, float64 ``[size]``; 0 and 1 before any data.
        all_reduce: ``all_reduce(array, 'sum')``, the sum over all learners. Each learner then takes in the vectors of
            all. None: there is one learner.
    """

    def __init__(self, size: int) -> None:
        self.all_reduce: Callable[[np.ndarray, str], np.ndarray] | None = None
        self.count = 0.0
        self.mean = np.zeros(size)
        self.sum_squares = np.zeros(size)
        self._refresh()

    def update(self, x: np.ndarray) -> None:
        """Take in the rows of ``x``, ``[…, size]``."""
        self.take(moments_of(x, self.mean.size)[None])

    def take(self, parts: np.ndarray) -> None:
        """Take in batches by their :func:`moments_of`, float64 ``[P, 3, size]``; ``P`` may differ between learners."""
        if self.all_reduce is not None:
            parts = self._of_all_learners(parts)
        for counts, mean, squares in parts:
            if counts.any():
                self.merge(float(counts[0]), mean, squares)

    def _of_all_learners(self, parts: np.ndarray) -> np.ndarray:
        """Return the batches of all learners as one, float64 ``[1, 3, size]``."""
        assert self.all_reduce is not None
        counts, means, squares = np.moveaxis(parts, 1, 0)
        count, total = self.all_reduce(np.stack([counts.sum(0), (counts * means).sum(0)]), 'sum')
        mean = total / np.maximum(count, 1e-12)
        distances = squares.sum(0) + (counts * np.square(means - mean)).sum(0)
        return np.stack([count, mean, self.all_reduce(distances, 'sum')])[None]

    def merge(self, count: float, mean: np.ndarray, squares: np.ndarray) -> None:
        """Take in a batch of ``count`` vectors with this mean and these squared distances from it."""
        delta, total = mean - self.mean, self.count + count
        self.sum_squares += squares + np.square(delta) * (self.count * count / total)
        self.mean = self.mean + delta * (count / total)
        self.count = total
        self._refresh()

    def _refresh(self) -> None:
        variance = self.sum_squares / self.count if self.count else np.ones_like(self.mean)
        self.scale = 1.0 / np.sqrt(variance + EPSILON)
        if 'variables' in self.__dict__:
            for variable, value in zip(self.variables, (self.mean, self.scale), strict=True):
                variable.assign(value)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out, for pickling, what belongs to this process."""
        return {k: v for k, v in self.__dict__.items() if k != 'variables'} | {'all_reduce': None}

    @cached_property
    def variables(self) -> tuple[Any, Any]:
        """Copies of `mean` and `scale` as ``tf.Variable``, float64 ``[size]``."""
        import tensorflow as tf

        return tuple(tf.Variable(value, trainable=False) for value in (self.mean, self.scale))

    def state(self) -> dict[str, np.ndarray]:
        """Give the arrays to save."""
        return {'count': np.array(self.count), 'mean': self.mean.copy(), 'sum_squares': self.sum_squares.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take over what `state` gave."""
        self.count = float(state['count'])
        self.mean = np.array(state['mean'], np.float64)
        self.sum_squares = np.array(state['sum_squares'], np.float64)
        self._refresh()


def moments_of(x: np.ndarray, size: int) -> np.ndarray:
    """Return the count, the mean and the squared distances from the mean of vectors, float64 ``[3, size]``.

    The vectors are the rows of ``x``, ``[…, size]``. The first row repeats their count.
    """
    x = np.asarray(x, np.float64).reshape(-1, size)
    if not len(x):
        return np.zeros((3, size))
    mean = x.sum(axis=0) / float(len(x))
    return np.stack([np.full(size, float(len(x))), mean, np.square(x - mean).sum(axis=0)])


def grown(moments: Any, x: Any) -> tuple[Any, Any, Any]:
    """Return count, mean and squared distances, ``[N, size]`` each, with one more vector each (Welford 1962).

    They are arrays of NumPy or tensors.
    """
    count, mean, squares = moments
    count = count + 1.0
    after = mean + (x - mean) / count
    return count, after, squares + (x - mean) * (x - after)


def joined(parts: np.ndarray) -> np.ndarray:
    """Return the moments of several batches together, float64 ``[…, 3, size]``, from theirs, ``[…, P, 3, size]``."""
    counts, means, squares = np.moveaxis(parts, -2, 0)
    count = counts.sum(-2)
    mean = (counts * means).sum(-2) / np.maximum(count, 1.0)
    apart = counts * np.square(means - mean[..., None, :])
    return np.stack([count, mean, (squares + apart).sum(-2)], -2)


class Collected:
    """Moments of observations that were collected, until the running statistics take them in.

    So each observation counts once, wherever it was collected and however often it is drawn from a replay buffer.

    Args:
        sizes: the number of entries of each observation with running statistics, by path.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._parts: dict[str, list[np.ndarray]] = {path: [] for path in sizes}

    def add(self, obs: spaces.Flat, valid: np.ndarray | None = None) -> None:
        """Add flat observations ``[…, …]``, those where ``valid`` is True; None: all."""
        for path, size in self._sizes.items():
            x = obs[path] if path else obs
            self._parts[path].append(moments_of(x if valid is None or valid.all() else x[valid], size)[None])

    def join(self, found: Mapping[str, np.ndarray]) -> None:
        """Add what `take` gave in another process."""
        for path, parts in self._parts.items():
            parts.append(found[path])

    def take(self, share: float = 1.0) -> dict[str, np.ndarray]:
        """Return the moments by path, float64 ``[P, 3, size]``, and forget them.

        ``share`` is the weight of each observation, where as many learners have collected the same ones.
        """
        found = {}
        for path, parts in self._parts.items():
            found[path] = np.concatenate([np.zeros((0, 3, self._sizes[path])), *parts])
            found[path][:, [0, 2]] *= share
            parts.clear()
        return found


class RewardScale:
    """Divides rewards by the running standard deviation of the discounted return (OpenAI Baselines' VecNormalize).

    The mean is not subtracted: where episodes can end, that would change which behavior is best. The scale moves while
    it is learned, so it suits algorithms that use a reward once, soon after it was seen. From a replay buffer a critic
    would learn values that move with the scale. So off-policy algorithms take rewards as they are, or scaled by a
    constant (``reward_shaping``).
    """

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.moments = RunningMoments(1)
        self._said = False
        self.reset()

    def reset(self, copies: slice | None = None) -> None:
        """Forget the running returns of copies that start a new episode, by default of all; the scale stays."""
        if copies is None:
            self.returns = np.zeros(0)
        else:
            self.returns[copies] = 0.0

    def __call__(self, reward: np.ndarray, done: np.ndarray, valid: np.ndarray | None = None) -> np.ndarray:
        """Take in rewards and give them scaled, clipped to ±10, float32. The first clipping is logged.

        Args:
            reward: ``[T, N]``.
            done: bool ``[T, N]``, True where an episode terminated or was truncated.
            valid: bool ``[T, N]``, False where a copy was only reset: such steps are left out of the statistics.
        """
        if self.returns.shape != reward.shape[1:]:
            self.returns = np.zeros(reward.shape[1:])
        valid = np.ones(reward.shape, bool) if valid is None else valid
        discounted = np.empty(reward.shape)
        for t in range(len(reward)):
            self.returns = np.where(valid[t], self.returns * self.gamma + reward[t], self.returns)
            discounted[t] = self.returns
            self.returns[done[t] & valid[t]] = 0.0
        self.moments.update(discounted[valid].reshape(-1, 1))
        scaled = reward * self.moments.scale
        beyond = np.abs(scaled) > CLIP
        if beyond.any() and not self._said:
            self._said = True
            log.warning(
                'normalize_reward: a reward of %g is %.3g standard deviations of the return; larger ones than %g are '
                'clipped. Where rewards are so rare, scale them by a constant instead (reward_shaping).',
                reward[beyond][0],
                scaled[beyond][0],
                CLIP,
            )
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)

    def state(self) -> dict[str, np.ndarray]:
        """Give the arrays to save."""
        return {**self.moments.state(), 'returns': self.returns.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take over what `state` gave."""
        self.moments.restore(state)
        self.returns = np.array(state['returns'], np.float64)
