"""Running mean and standard deviation of observations and rewards; they belong to the agent and are saved with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

log = logging.getLogger('zoo')

EPSILON = 1e-8

#: What is normalised is clipped at so many standard deviations, as in OpenAI Baselines' VecNormalize.
CLIP = 10.0


class RunningMoments:
    """Mean and variance of a stream of vectors, by the parallel algorithm of Chan et al. (1979).

    Kept in NumPy, where it is updated once per iteration from a whole batch; the compiled graphs read copies of it from
    variables, which are made at the first use so that acting needs no TensorFlow. All is in float64: float32 would lose
    what is left of a large value, such as a clock, when its mean is taken off.

    Args:
        size: length of the vectors.

    Attributes:
        count: vectors seen.
        mean, scale: the mean and one over the standard deviation, float64 ``[size]``; 0 and 1 before any data.
        all_reduce: ``all_reduce(array, 'sum')``, the sum over all learners, which then take in what any of them has
            seen; None: this one alone.
    """

    def __init__(self, size: int) -> None:
        self.all_reduce: Callable[[np.ndarray, str], np.ndarray] | None = None
        self.count = 0.0
        self.mean = np.zeros(size)
        self.sum_squares = np.zeros(size)
        self._refresh()

    def update(self, x: np.ndarray) -> None:
        """Take in ``x`` of shape ``[batch, size]``, or with more leading axes; only the rows that are to count."""
        x = np.asarray(x, np.float64).reshape(-1, self.mean.size)
        count, total = float(len(x)), x.sum(axis=0)
        if self.all_reduce is not None:
            count, *total = self.all_reduce(np.append(count, total), 'sum')
        if not count:
            return
        mean = np.asarray(total) / count
        squares = np.square(x - mean).sum(axis=0)
        if self.all_reduce is not None:
            squares = self.all_reduce(squares, 'sum')
        self.merge(count, mean, squares)

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
        """For pickling: without what belongs to this process."""
        return {k: v for k, v in self.__dict__.items() if k != 'variables'} | {'all_reduce': None}

    @cached_property
    def variables(self) -> tuple[Any, Any]:
        """``tf.Variable`` copies, float64 ``[size]``, of the mean and of one over the standard deviation."""
        import tensorflow as tf

        return tuple(tf.Variable(value, trainable=False) for value in (self.mean, self.scale))

    def state(self) -> dict[str, np.ndarray]:
        """Arrays to save."""
        return {'count': np.array(self.count), 'mean': self.mean.copy(), 'sum_squares': self.sum_squares.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """The inverse of `state`."""
        self.count = float(state['count'])
        self.mean = np.array(state['mean'], np.float64)
        self.sum_squares = np.array(state['sum_squares'], np.float64)
        self._refresh()


class RewardScale:
    """Divides rewards by the running standard deviation of the discounted return (VecNormalize of OpenAI Baselines).

    The mean is not subtracted: that would change which behaviour is best where episodes can end. The scale moves while
    it is learned, so it suits algorithms that use a reward once, soon after it was seen. A replay buffer gives the same
    reward for as long as it holds it: under a moving scale the value that a critic has to learn would move too, and its
    targets with it, so off-policy algorithms take rewards as they are, or scaled by a constant (``reward_shaping``).

    Args:
        gamma: discount.
    """

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.moments = RunningMoments(1)
        self._said = False
        self.reset()

    def reset(self, copies: slice | None = None) -> None:
        """Forget the running returns, as when every copy, or these of them, start a new episode; the scale stays."""
        if copies is None:
            self.returns = np.zeros(0)
        else:
            self.returns[copies] = 0.0

    def __call__(self, reward: np.ndarray, done: np.ndarray, valid: np.ndarray | None = None) -> np.ndarray:
        """Take in rewards and give them back scaled, clipped to ±10, which is said when it first happens.

        Args:
            reward: ``[T, N]``.
            done: bool ``[T, N]``, the episode ended, however it did.
            valid: bool ``[T, N]``, False where a copy was only reset: such a row is left out of the statistics.

        Returns:
            float32 ``[T, N]``.
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
                'normalize_reward: a reward of %g is %.3g deviations of the return; it and whatever is farther than %g '
                'counts as that many. Where rewards are so rare, scale them by a constant instead (reward_shaping).',
                reward[beyond][0],
                scaled[beyond][0],
                CLIP,
            )
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)

    def state(self) -> dict[str, np.ndarray]:
        """Arrays to save."""
        return {**self.moments.state(), 'returns': self.returns.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """The inverse of `state`."""
        self.moments.restore(state)
        self.returns = np.array(state['returns'], np.float64)
