"""Importance sampling: the value of a policy from episodes of another policy whose probabilities are known.

Precup, Sutton and Singh 2000, *Eligibility Traces for Off-Policy Policy Evaluation*: ordinary, weighted and
per-decision importance sampling. The ratio of an episode is ρ_t = Π_{k ≤ t} π(a_k | s_k) / b(a_k | s_k).

Departure: Precup's weighted per-decision estimate divides by the discounted sum of all ratios, which does not converge
to the value. Here every step is divided by the sum of its own ratios (Thomas 2015, *Safe Reinforcement Learning*:
consistent weighted per-decision importance sampling).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.common import spaces
from zoo.common.acting.probabilities import boxes, log_prob_of, why_unknown
from zoo.common.acting.stochastic import StateDependent, Stochastic
from zoo.common.datasets.dataset import Dataset
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.tools.errors import InvalidValue
from zoo.experiments.statistics import RESAMPLES

#: The estimates by name, and what each is called.
METHODS = {
    'is': 'importance sampling',
    'wis': 'weighted importance sampling',
    'pdis': 'per-decision importance sampling',
    'wpdis': 'weighted per-decision importance sampling',
}

#: What to do instead, the end of a sentence.
INSTEAD = "use method='fqe', which needs no probabilities"

#: Entries of a table of bootstrap samples that are in memory at a time.
_AT_ONCE = 4_000_000


class Weighted(NamedTuple):
    """An estimate by importance sampling.

    Attributes:
        mean, low, high: the estimate and its interval.
        effective: the effective sample size, (Σ ρ)² / Σ ρ² of whole episodes (Kong 1992).
    """

    mean: float
    low: float
    high: float
    effective: float


# Ratios to an estimate


def estimate(
    method: str,
    log_ratios: Sequence[np.ndarray],
    rewards: Sequence[np.ndarray],
    gamma: float,
    confidence: float = 0.95,
    seed: int | None = None,
) -> Weighted:
    """Estimate the discounted return of the policy that the ratios belong to.

    An episode goes on after its end with rewards of 0 and its last ratio: so all episodes count in every step.

    Args:
        method: one of :data:`METHODS`.
        log_ratios: of each episode log π(a | s) − log b(a | s), ``[T]``; −inf where π does not take the action.
        rewards: of each episode ``[T]``.
        gamma: the discount.
        confidence: of the interval, a percentile bootstrap over episodes.
        seed: of the bootstrap.

    Raises:
        ValueError: π takes the actions of no episode, or a ratio is too large for a float.
    """
    with np.errstate(over='ignore'):
        ratios = [np.exp(np.cumsum(np.asarray(x, np.float64))) for x in log_ratios]
    if not all(np.isfinite(x).all() for x in ratios):
        raise InvalidValue(
            'a ratio of probabilities is too large for a float, since the policies differ too much over whole '
            f'episodes: {INSTEAD}.'
        )
    whole = np.array([x[-1] for x in ratios])
    discounted = [gamma ** np.arange(len(r)) * np.asarray(r, np.float64) for r in rewards]
    first = np.array([x[0] for x in ratios])
    if not (whole if method in ('is', 'wis') else first).any():
        raise InvalidValue(
            "this agent's policy would not have played a single one of the recorded episodes, so their rewards say "
            f'nothing of it: {INSTEAD}.'
        )
    if method in ('is', 'wis'):
        parts = (whole * np.array([r.sum() for r in discounted]))[:, None]
        weights = whole[:, None]
    else:
        steps = max(len(x) for x in ratios)
        weights = np.stack([np.pad(x, (0, steps - len(x)), 'edge') for x in ratios])
        parts = weights * np.stack([np.pad(r, (0, steps - len(r))) for r in discounted])
    if method in ('is', 'pdis'):
        parts, weights = parts.sum(1, keepdims=True), np.ones((len(parts), 1))
    squares = np.square(whole).sum()
    effective = float(whole.sum() ** 2 / squares) if squares else 0.0
    found = float(_of_sums(parts.sum(0), weights.sum(0)))
    return Weighted(found, *_interval(parts, weights, confidence, seed), effective)


def _of_sums(parts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return Σ parts / weights over the last axis; a step that no weighted episode reaches adds nothing."""
    return np.divide(parts, weights, out=np.zeros_like(parts), where=weights > 0).sum(-1)


def _interval(parts: np.ndarray, weights: np.ndarray, confidence: float, seed: int | None) -> tuple[float, float]:
    """Return the percentile interval of `_of_sums` over episodes drawn with replacement; arguments ``[E, K]``."""
    count, steps = parts.shape
    rng, found = np.random.default_rng(seed), []
    at_once = max(1, _AT_ONCE // max(count, steps))
    for begin in range(0, RESAMPLES, at_once):
        drawn = rng.multinomial(count, np.full(count, 1 / count), min(at_once, RESAMPLES - begin)).astype(np.float64)
        sums = drawn @ weights
        held = sums[:, 0] > 0  # a sample of episodes that all have the ratio 0 has no weighted mean
        found.append(_of_sums((drawn @ parts)[held], sums[held]))
    low, high = np.quantile(np.concatenate(found), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


# Probabilities


def log_ratios(agent: Any, behavior: Any, dataset: Dataset, deterministic: bool) -> list[np.ndarray]:
    """Return log π(a | s) − log b(a | s) of every episode, each ``[T]``.

    Args:
        agent: its policy is π.
        behavior: an agent with the same spaces, whose policy with its exploration is b; or a function from a
            :class:`RecordedEpisode` to log b ``[T]``, in the environment's units. None: what the episodes hold.
        dataset: episodes in the spaces of the agent.
        deterministic: π takes its best action.

    Raises:
        ValueError: the probabilities of a policy are not known, or b did not play these episodes.
    """
    _check_target(agent, deterministic)
    function = behavior is None or (callable(behavior) and not hasattr(behavior, 'action_adaptor'))
    if not function:
        _check_behavior(behavior)
    found = []
    for number, episode in enumerate(dataset):
        if behavior is None:
            own = _held(number, episode)
        elif function:
            own = _given(behavior, number, episode)
        else:
            own = _played(behavior, episode, True, True)
        if not np.isfinite(own).all():
            at = int(np.flatnonzero(~np.isfinite(own))[0])
            raise InvalidValue(
                f'the behavior policy gives the action of step {at} in episode {number} no probability, so it did not '
                f'play it: give the policy that recorded the episodes, with its exploration, or {INSTEAD}.'
            )
        found.append(_played(agent, episode, not deterministic, False) - own)
    return found


def _played(agent: Any, episode: RecordedEpisode, samples: bool, explores: bool) -> np.ndarray:
    return log_prob_of(agent, spaces.tree_map(lambda x: x[:-1], episode.obs), episode.action, samples, explores)


def _check_target(agent: Any, deterministic: bool) -> None:
    """Refuse a policy whose probabilities are not known, or that has none."""
    name, behavior = type(agent).__name__, agent.behavior
    counted = not boxes(agent)
    if not counted and not isinstance(behavior, Stochastic):
        drawn = agent.forward.noise_size
        kind = 'a policy without a density' if drawn else 'a deterministic policy'
        raise InvalidValue(f'{name} has {kind}, which gives recorded actions of a Box no probability: {INSTEAD}.')
    if not counted and deterministic:
        raise InvalidValue(
            'deterministic=True gives recorded actions of a Box no probability: leave it out to judge the policy that '
            f'{name} samples from, or {INSTEAD}.'
        )
    if isinstance(behavior, StateDependent):
        raise InvalidValue(
            f'{name} with use_sde=True draws noise for several steps at once, so its actions have no probabilities by '
            f'themselves: {INSTEAD}.'
        )
    for path, leaf in boxes(agent).items():
        if leaf.dtype.kind in 'iub':
            where = f' {path!r}' if path else ''
            raise InvalidValue(f'the action{where} is rounded to whole numbers, so it has no density: {INSTEAD}.')


def _check_behavior(behavior: Any) -> None:
    """Refuse an agent whose exploration has no known probabilities."""
    if not hasattr(behavior, 'action_adaptor'):
        raise InvalidValue(
            f'behavior is {behavior!r}: give the agent that recorded the episodes, or a function from an episode to '
            'the log-probabilities of its actions.'
        )
    why = why_unknown(behavior)
    if why is not None:
        raise InvalidValue(
            f'{type(behavior).__name__} {why}, so the probabilities of its actions are not known: give behavior a '
            f'function from an episode to log-probabilities, or {INSTEAD}.'
        )


def _held(number: int, episode: RecordedEpisode) -> np.ndarray:
    """Return the log-probabilities that were recorded with an episode."""
    if episode.log_prob is None:
        raise InvalidValue(
            f'importance sampling needs the probabilities of the policy that recorded the episodes, and episode '
            f'{number} holds none: give behavior=other_agent, record episodes of an agent with deterministic=False, or '
            f'{INSTEAD}.',
            shell=f'importance sampling needs the probabilities of the policy that recorded the episodes, and episode '
            f'{number} holds none: give --behavior RUN, or --method fqe, which needs none.',
        )
    return episode.log_prob.astype(np.float64)


def _given(function: Callable[[RecordedEpisode], Any], number: int, episode: RecordedEpisode) -> np.ndarray:
    """Return what a user's function says of an episode."""
    found = np.asarray(function(episode))
    if found.shape != episode.reward.shape or found.dtype.kind not in 'if':
        raise InvalidValue(
            f'behavior returned an array of shape {found.shape} and dtype {found.dtype} for episode {number}, which '
            f'has {len(episode.reward)} steps: return the log-probability of each action.'
        )
    return found.astype(np.float64)
