"""Running mean and standard deviation of observations and rewards. The agent keeps them and saves them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

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
