"""The parts of an action space: each leaf's distribution, sampled in NumPy in a few microseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete, Space

from zoo.common import spaces
from zoo.common.tools.errors import InvalidValue

#: Actions to choose from are counted in int32.
MOST_CHOICES = 2**31 - 1

#: Bounds of a log standard deviation that a network gives (Haarnoja et al. 2018 in their code, and Spinning Up).
LOG_STD_BOUNDS = (-20.0, 2.0)

#: Added to the variance of state-dependent exploration, so that its logarithm is finite.
SDE_EPSILON = 1e-6

#: NumPy's float32 exponential is exactly 0 once in some ten million draws. That stands for everything below the
#: smallest number that it gives otherwise; a greater lead would let a next to impossible, or forbidden, action win.
_SMALLEST = np.float32(2.0**-26)


@dataclass(frozen=True)
class Part:
    """One leaf of the action space.

    Attributes:
        path: ``''`` when the space is this leaf.
        kind: ``'categorical'``, ``'multi_categorical'``, ``'bernoulli'``, ``'gaussian'`` or ``'squashed_gaussian'``.
        size: entries of the stored action.
        counts: the number of values of each entry of a categorical.
    """

    path: str
    kind: str
    size: int
    counts: tuple[int, ...] = ()

    @property
    def outputs(self) -> int:
        """Numbers that a network gives: logits, or means; a Gaussian's log standard deviation is not counted."""
        return sum(self.counts) if self.counts else self.size

    @property
    def param_size(self) -> int:
        """Length of the distribution's parameter vector."""
        return 2 * self.size if 'gaussian' in self.kind else self.outputs


def part_of(path: str, leaf: Space, squash: bool) -> Part:
    """The part for one leaf.

    Raises:
        ValueError: no entries, or more values than `MOST_CHOICES`.
    """
    if isinstance(leaf, Discrete | MultiDiscrete):
        counts = (int(leaf.n),) if isinstance(leaf, Discrete) else tuple(leaf.nvec.ravel().tolist())
        if sum(counts) > MOST_CHOICES:
            raise InvalidValue(
                f'{named(path, leaf)}, has {sum(counts)} values to choose from, but at most {MOST_CHOICES} can be '
                'told apart: give it as a Box.'
            )
        return Part(path, 'categorical' if isinstance(leaf, Discrete) else 'multi_categorical', len(counts), counts)
    size = int(np.prod(spaces.shape_of(leaf)))
    if not size:
        raise InvalidValue(f'{named(path, leaf)}, has no entries: give it at least one, or leave it out.')
    if isinstance(leaf, MultiBinary):
        return Part(path, 'bernoulli', size)
    return Part(path, 'squashed_gaussian' if squash else 'gaussian', size)


def named(path: str, leaf: Space) -> str:
    """How messages name a leaf of the action space."""
    return f'the {path and f"part {path!r} of the "}action space, {spaces.describe(leaf)}'


def mode(part: Part, params: np.ndarray, rng: None = None) -> np.ndarray:
    """The most likely actions of one part for parameters ``[N, param_size]``; a squashed Gaussian's squashed mean."""
    if part.kind == 'categorical':
        return params.argmax(axis=-1)
    if part.kind == 'multi_categorical':
        return _per_entry(part, params)
    if part.kind == 'bernoulli':
        return (params > 0).astype(np.int32)
    mean = params[:, : part.size]
    return np.tanh(mean) if part.kind == 'squashed_gaussian' else mean


def sample(part: Part, params: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Independent samples of one part's distribution for parameters ``[N, param_size]``."""
    if part.counts:
        # argmax(logit − log E) with E standard exponential draws from the softmax: Gumbel-max with one logarithm less.
        clock = np.maximum(rng.standard_exponential(params.shape, dtype=np.float32), _SMALLEST)
        race = params - np.log(clock)
        return race.argmax(axis=-1) if part.kind == 'categorical' else _per_entry(part, race)
    if part.kind == 'bernoulli':
        # rng.random() < sigmoid(logit), written for the logit so that large ones do not overflow.
        uniform = rng.random(params.shape)
        return (np.log(uniform) - np.log1p(-uniform) < params).astype(np.int32)
    mean, log_std = params[:, : part.size], params[:, part.size :]
    drawn = mean + np.exp(log_std) * rng.standard_normal(mean.shape, dtype=np.float32)
    return np.tanh(drawn) if part.kind == 'squashed_gaussian' else drawn


def _per_entry(part: Part, params: np.ndarray) -> np.ndarray:
    action = np.empty((len(params), part.size), np.int32)
    offset = 0
    for i, n in enumerate(part.counts):
        action[:, i] = params[:, offset : offset + n].argmax(axis=-1)
        offset += n
    return action
