"""Importance sampling: the value of a policy from episodes of another policy whose probabilities are known.

Precup, Sutton and Singh 2000, *Eligibility Traces for Off-Policy Policy Evaluation*: ordinary, weighted and
per-decision importance sampling. The ratio of an episode is ρ_t = Π_{k ≤ t} π(a_k | s_k) / b(a_k | s_k).

Departure: Precup's weighted per-decision estimate divides by the discounted sum of all ratios, which does not converge
to the value. Here every step is divided by the sum of its own ratios (Thomas 2015, *Safe Reinforcement Learning*:
consistent weighted per-decision importance sampling).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from zoo.common import spaces
from zoo.common.acting.greedy import EpsilonGreedy
from zoo.common.acting.noise import GaussianNoise
from zoo.common.acting.stochastic import SometimesRandom, StateDependent, Stochastic
from zoo.common.adaptors.masks import MASKED_LOGIT, masked
from zoo.common.adaptors.parts import Part
from zoo.common.datasets.dataset import Dataset
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.schedules import value_at
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

#: Nearer than this to a bound of [−1, 1], an action counts as clipped there: a digit of float32.
_AT_BOUND = 1e-6


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
            :class:`RecordedEpisode` to log b ``[T]``, in the environment's units.
        dataset: episodes in the spaces of the agent.
        deterministic: π takes its best action.

    Raises:
        ValueError: the probabilities of a policy are not known, or b did not play these episodes.
    """
    _check_target(agent, deterministic)
    function = callable(behavior) and not hasattr(behavior, 'action_adaptor')
    if not function:
        _check_behavior(behavior)
    clips = {part.path for part in (agent if function else behavior).action_adaptor.parts if _clips(part, behavior)}
    found = []
    for number, episode in enumerate(dataset):
        target = log_prob_of(agent, episode, clips, not deterministic, False)
        own = _given(behavior, number, episode) if function else log_prob_of(behavior, episode, clips, True, True)
        if not np.isfinite(own).all():
            at = int(np.flatnonzero(~np.isfinite(own))[0])
            raise InvalidValue(
                f'the behavior policy gives the action of step {at} in episode {number} no probability, so it did not '
                f'play it: give the policy that recorded the episodes, with its exploration, or {INSTEAD}.'
            )
        found.append(target - own)
    return found


def log_prob_of(agent: Any, episode: RecordedEpisode, clips: set[str], samples: bool, explores: bool) -> np.ndarray:
    """Return the log-probability of each action of an episode, float64 ``[T]``; of a ``Box`` the log-density.

    A density is per unit of the environment's actions. A Gaussian that is clipped at bounds has probabilities there.

    Args:
        agent: whose policy it is.
        episode: one episode, flat, in its spaces.
        clips: parts of the action whose bounds the behavior policy plays with a probability, by path.
        samples: the policy draws its actions; else it takes the best.
        explores: the policy has the random actions and the noise of its training.
    """
    behavior, adaptor = agent.behavior, agent.action_adaptor
    obs = spaces.tree_map(lambda x: x[:-1], episode.obs)
    action, output = adaptor.from_env(episode.action), _outputs(agent, obs)
    if isinstance(behavior, Stochastic) and samples:
        found = _of_params(adaptor, output, action, clips)
    elif isinstance(behavior, GaussianNoise) and explores:
        scale = np.full_like(output, np.log(behavior.scale))
        part, path = replace(adaptor.parts[0], kind='gaussian'), adaptor.parts[0].path  # the noise is not squashed
        params = np.concatenate([output, scale], -1).astype(np.float64)
        found = _of_part(part, adaptor.leaves[path], params, action, path in clips)
    else:
        best = dict(spaces.tree_items(_best(agent, obs, output)))
        same = [_entrywise(best[path] == x) for path, x in spaces.tree_items(action)]
        found = np.where(np.logical_and.reduce(same), 0.0, -np.inf)
    epsilon = float(value_at(behavior.epsilon, agent.progress)) if explores and hasattr(behavior, 'epsilon') else 0.0
    if not epsilon:
        return found
    logits = np.zeros((len(found), adaptor.param_size), np.float32)
    if behavior.mask_path is not None:
        logits = masked(logits, obs[behavior.mask_path], adaptor.parts[0].counts)
    uniform = _of_params(adaptor, logits, action, clips)
    with np.errstate(divide='ignore'):
        return np.logaddexp(np.log1p(-epsilon) + found, np.log(epsilon) + uniform)


def _check_target(agent: Any, deterministic: bool) -> None:
    """Refuse a policy whose probabilities are not known, or that has none."""
    name, behavior = type(agent).__name__, agent.behavior
    counted = not _boxes(agent)
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
    for path, leaf in _boxes(agent).items():
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
    plays, name = behavior.behavior, type(behavior).__name__
    why = None
    if isinstance(plays, StateDependent):
        why = 'draws noise for several steps at once'
    elif plays.per_actor:
        why = 'explores to another degree in every copy of the environment'
    elif isinstance(plays, EpsilonGreedy) and plays.forward.noise_size:
        why = 'explores by noise in its weights'
    elif isinstance(plays, GaussianNoise) and plays.along_episodes:
        why = 'adds noise that lasts for several steps'
    elif isinstance(plays, GaussianNoise) and not plays.scale:
        why = 'has explore_noise=0'
    elif isinstance(plays, SometimesRandom) and _boxes(behavior) and value_at(plays.epsilon, behavior.progress):
        why = 'mixes a density with random actions of a Box'
    elif _boxes(behavior) and not isinstance(plays, Stochastic | GaussianNoise):
        why = 'has a policy without a density'
    if why is not None:
        raise InvalidValue(
            f'{name} {why}, so the probabilities of its actions are not known: give behavior a function from an '
            f'episode to log-probabilities, or {INSTEAD}.'
        )


def _given(function: Callable[[RecordedEpisode], Any], number: int, episode: RecordedEpisode) -> np.ndarray:
    """Return what a user's function says of an episode."""
    found = np.asarray(function(episode))
    if found.shape != episode.reward.shape or found.dtype.kind not in 'if':
        raise InvalidValue(
            f'behavior returned an array of shape {found.shape} and dtype {found.dtype} for episode {number}, which '
            f'has {len(episode.reward)} steps: return the log-probability of each action.'
        )
    return found.astype(np.float64)


def _boxes(agent: Any) -> dict[str, Box]:
    return {path: leaf for path, leaf in agent.action_adaptor.leaves.items() if isinstance(leaf, Box)}


def _clips(part: Part, behavior: Any) -> bool:
    """Whether a part's bounds are played with a probability, since a Gaussian is clipped there."""
    return part.kind == 'gaussian' or isinstance(getattr(behavior, 'behavior', None), GaussianNoise)


def _entrywise(same: np.ndarray) -> Any:
    """Return whether all entries are the same, ``[T]``."""
    return np.all(same.reshape(len(same), -1), axis=-1)


def _outputs(agent: Any, obs: spaces.Flat) -> np.ndarray:
    """Return the output of the forward pass for successive observations of an episode, ``[T, …]``."""
    if not agent.behavior.state_size:
        return agent.forward(obs)
    state, found = agent.initial_state(), []
    for t in range(spaces.count(obs)):
        output, state = agent.forward.step(spaces.tree_map(lambda x, t=t: x[t : t + 1], obs), state)
        found.append(output)
    return np.concatenate(found)


def _best(agent: Any, obs: spaces.Flat, output: np.ndarray) -> spaces.Flat:
    """Return the stored actions that a policy takes without exploration, ``[T, …]``."""
    behavior = agent.behavior
    if isinstance(behavior, Stochastic):
        return agent.action_adaptor.mode(output)
    if isinstance(behavior, EpsilonGreedy):
        return output.argmax(-1)
    return behavior.step(obs, agent.initial_state(), agent.rng, agent.progress, True)[0]


def _of_params(adaptor: Any, params: np.ndarray, action: spaces.Flat, clips: set[str]) -> np.ndarray:
    """Return log-probabilities of stored actions ``[T]`` under the distribution with parameters ``[T, P]``."""
    given, offset = dict(spaces.tree_items(action)), 0
    total = np.zeros(len(params))
    for part in adaptor.parts:
        piece = params[:, offset : offset + part.param_size].astype(np.float64)
        offset += part.param_size
        total += _of_part(part, adaptor.leaves[part.path], piece, given[part.path], part.path in clips)
    return total


def _of_part(part: Part, leaf: Any, params: np.ndarray, action: np.ndarray, clips: bool) -> np.ndarray:
    """Return the log-probability ``[T]`` of one part of the action."""
    if part.counts:
        pieces = np.split(params, np.cumsum(part.counts)[:-1], -1)
        chosen = action.reshape(len(action), -1).T
        each = [
            np.take_along_axis(_log_softmax(x), a[:, None].astype(np.int64), -1)
            for x, a in zip(pieces, chosen, strict=True)
        ]
        return np.concatenate(each, -1).sum(-1)
    if part.kind == 'bernoulli':
        return -np.logaddexp(0.0, (1.0 - 2.0 * action) * params).sum(-1)
    return _of_box(part, leaf, params, action.astype(np.float64), clips)


def _of_box(part: Part, leaf: Box, params: np.ndarray, action: np.ndarray, clips: bool) -> np.ndarray:
    """Return the log-density ``[T]`` of actions of a ``Box``, and log-probabilities at bounds that cut it off."""
    mean, log_std = np.split(params, 2, -1)
    low, high = (np.asarray(x, np.float64).ravel() for x in spaces.bounds(leaf))
    half = np.ones_like(low)
    if leaf.is_bounded():  # stored actions are scaled to [−1, 1]
        half = (high - low) / 2
        low, high = -np.ones_like(low), np.ones_like(high)
    below, above = action <= low + _AT_BOUND, action >= high - _AT_BOUND
    if part.kind == 'squashed_gaussian':
        limit = 1.0 - 8.0 * float(np.finfo(np.float32).eps)  # as SquashedGaussian.log_prob
        u = np.arctanh(np.clip(action, -limit, limit))
        slope = 2.0 * (math.log(2.0) - u - np.logaddexp(0.0, -2.0 * u))
        found = _normal((u - mean) / np.exp(log_std)) - log_std - slope
        at_bound = np.full_like(found, -np.inf)  # the behavior has a probability there, and this policy has none
    else:
        found = _normal((action - mean) / np.exp(log_std)) - log_std
        at_low, at_high = (mean - np.where(np.isfinite(low), low, 0.0)), np.where(np.isfinite(high), high, 0.0) - mean
        at_bound = np.where(below, _log_tail(at_low / np.exp(log_std)), _log_tail(at_high / np.exp(log_std)))
    found = found - np.log(np.where(half > 0, half, 1.0))
    if clips:
        found = np.where(below | above, at_bound, found)
    return np.where(half > 0, found, 0.0).sum(-1)  # an entry with one value only is always taken


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return log-probabilities ``[T, n]``; −inf for forbidden actions."""
    found = logits - np.logaddexp.reduce(logits, -1, keepdims=True)
    return np.where(logits <= MASKED_LOGIT, -np.inf, found)


def _normal(z: np.ndarray) -> np.ndarray:
    """Return the log-density of a standard normal."""
    return -0.5 * np.square(z) - 0.5 * math.log(2.0 * math.pi)


def _log_tail(z: np.ndarray) -> np.ndarray:
    """Return log P(Z > z) of a standard normal Z; beyond 30 by its asymptotic form."""
    far = np.maximum(z, 30.0)
    near = np.vectorize(math.erfc, otypes=[np.float64])(np.minimum(z, 30.0) / math.sqrt(2.0))
    return np.where(z > 30.0, _normal(far) - np.log(far), np.log(0.5 * near))
