"""The probabilities of actions that an agent played: recordings hold them, and importance sampling needs them.

A probability of a ``Box`` is a density per unit of the environment's actions. At a bound it is the probability of the
bound: a Gaussian that is clipped there plays it often, a squashed one as soon as float32 rounds. So the ratio of two
policies is right whatever their distributions are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from zoo.common import spaces
from zoo.common.acting.greedy import EpsilonGreedy
from zoo.common.acting.noise import GaussianNoise
from zoo.common.acting.stochastic import SometimesRandom, StateDependent, Stochastic
from zoo.common.adaptors.masks import MASKED_LOGIT, masked
from zoo.common.adaptors.parts import Part
from zoo.common.schedules import value_at

#: Nearer than this to a bound of [−1, 1], an action is at the bound: a digit of float32.
_AT_BOUND = 1e-6

#: Where a squashed Gaussian's sample is at a bound.
_EDGE = math.atanh(1.0 - _AT_BOUND)

#: Observations that go through the forward pass at a time.
_ROWS = 1024


def why_unknown(agent: Any) -> str | None:
    """Return why the probabilities of an agent's actions, with its exploration, are not known; None if they are.

    The reason follows the agent's name in a sentence.
    """
    plays, leaves = agent.behavior, boxes(agent)
    if isinstance(plays, StateDependent):
        return 'draws noise for several steps at once'
    if plays.per_actor:
        return 'explores to another degree in every copy of the environment'
    if isinstance(plays, EpsilonGreedy) and plays.forward.noise_size:
        return 'explores by noise in its weights'
    if isinstance(plays, GaussianNoise) and plays.along_episodes:
        return 'adds noise that lasts for several steps'
    if isinstance(plays, GaussianNoise) and not plays.scale:
        return 'has explore_noise=0'
    if isinstance(plays, SometimesRandom) and leaves and value_at(plays.epsilon, agent.progress):
        return 'mixes a density with random actions of a Box'
    if leaves and not isinstance(plays, Stochastic | GaussianNoise):
        return 'has a policy without a density'
    if any(leaf.dtype.kind in 'iub' for leaf in leaves.values()):
        return 'plays a Box of whole numbers'
    return None


def draws(agent: Any) -> bool:
    """Return whether an agent with its exploration draws its actions, and does not only take the best ones."""
    plays = agent.behavior
    return isinstance(plays, Stochastic | GaussianNoise) or value_at(getattr(plays, 'epsilon', 0.0), agent.progress) > 0


def boxes(agent: Any) -> dict[str, Box]:
    """Return the parts of an agent's actions that are a ``Box``, by path."""
    return {path: leaf for path, leaf in agent.action_adaptor.leaves.items() if isinstance(leaf, Box)}


def log_prob_of(agent: Any, obs: spaces.Flat, action: spaces.Flat, samples: bool, explores: bool) -> np.ndarray:
    """Return the log-probability of each action of an episode, float64 ``[T]``; −inf where it is never taken.

    Args:
        agent: whose policy it is; :func:`why_unknown` must be None where it ``explores``.
        obs: flat ``[T, …]``, what the actions were chosen for, from the beginning of the episode.
        action: flat ``[T, …]``, in the environment's units.
        samples: the policy draws its actions; else it takes the best.
        explores: the policy has the random actions and the noise of its training.
    """
    behavior, adaptor = agent.behavior, agent.action_adaptor
    stored, output = adaptor.from_env(action), _outputs(agent, obs)
    if isinstance(behavior, Stochastic) and samples:
        found = log_prob_of_params(adaptor, output, stored)
    elif isinstance(behavior, GaussianNoise) and explores:
        scale = np.full_like(output, np.log(behavior.scale))
        part = replace(adaptor.parts[0], kind='gaussian')  # the noise is not squashed
        params = np.concatenate([output, scale], -1).astype(np.float64)
        found = _of_part(part, adaptor.leaves[part.path], params, dict(spaces.tree_items(stored))[part.path])
    else:
        best = dict(spaces.tree_items(_best(agent, obs, output)))
        same = [_entrywise(best[path] == x) for path, x in spaces.tree_items(stored)]
        found = np.where(np.logical_and.reduce(same), 0.0, -np.inf)
    epsilon = float(value_at(behavior.epsilon, agent.progress)) if explores and hasattr(behavior, 'epsilon') else 0.0
    if not epsilon:
        return found
    logits = np.zeros((len(found), adaptor.param_size), np.float32)
    if behavior.mask_path is not None:
        logits = masked(logits, obs[behavior.mask_path], adaptor.parts[0].counts)
    uniform = log_prob_of_params(adaptor, logits, stored)
    with np.errstate(divide='ignore'):
        return np.logaddexp(np.log1p(-epsilon) + found, np.log(epsilon) + uniform)


def log_prob_of_params(adaptor: Any, params: np.ndarray, action: spaces.Flat) -> np.ndarray:
    """Return log-probabilities of stored actions, float64 ``[T]``, by a distribution with parameters ``[T, P]``."""
    given, offset = dict(spaces.tree_items(action)), 0
    total = np.zeros(len(params))
    for part in adaptor.parts:
        piece = params[:, offset : offset + part.param_size].astype(np.float64)
        offset += part.param_size
        total += _of_part(part, adaptor.leaves[part.path], piece, given[part.path])
    return total


def _entrywise(same: np.ndarray) -> Any:
    """Return whether all entries are the same, ``[T]``."""
    return np.all(same.reshape(len(same), -1), axis=-1)


def _outputs(agent: Any, obs: spaces.Flat) -> np.ndarray:
    """Return the output of the forward pass for successive observations of an episode, ``[T, …]``."""
    found: list[np.ndarray] = []
    if agent.behavior.state_size:
        state = agent.initial_state()
        for t in range(spaces.count(obs)):
            output, state = agent.forward.step(spaces.tree_map(lambda x, t=t: x[t : t + 1], obs), state)
            found.append(output)
    else:
        for begin in range(0, spaces.count(obs), _ROWS):
            found.append(agent.forward(spaces.tree_map(lambda x, b=begin: x[b : b + _ROWS], obs)))
    return np.concatenate(found)


def _best(agent: Any, obs: spaces.Flat, output: np.ndarray) -> spaces.Flat:
    """Return the stored actions that a policy takes without exploration, ``[T, …]``."""
    behavior = agent.behavior
    if isinstance(behavior, Stochastic):
        return agent.action_adaptor.mode(output)
    if isinstance(behavior, EpsilonGreedy):
        return output.argmax(-1)
    return behavior.step(obs, agent.initial_state(), agent.rng, agent.progress, True)[0]


def _of_part(part: Part, leaf: Any, params: np.ndarray, action: np.ndarray) -> np.ndarray:
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
    return _of_box(part, leaf, params, action.astype(np.float64))


def _of_box(part: Part, leaf: Box, params: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Return the log-density ``[T]`` of actions of a ``Box``, with log-probabilities of its bounds."""
    mean, log_std = np.split(params, 2, -1)
    low, high = (np.asarray(x, np.float64).ravel() for x in spaces.bounds(leaf))
    half = np.ones_like(low)
    if leaf.is_bounded():  # stored actions are scaled to [−1, 1]
        half = (high - low) / 2
        low, high = -np.ones_like(low), np.ones_like(high)
    below, above = action <= low + _AT_BOUND, action >= high - _AT_BOUND
    if part.kind == 'squashed_gaussian':
        inside = np.arctanh(np.clip(action, -1.0 + _AT_BOUND, 1.0 - _AT_BOUND))
        slope = 2.0 * (math.log(2.0) - inside - np.logaddexp(0.0, -2.0 * inside))  # log (1 − tanh²)
        low, high = np.full_like(low, -_EDGE), np.full_like(high, _EDGE)
    else:
        inside, slope = action, np.zeros_like(action)
    found = _normal((inside - mean) / np.exp(log_std)) - log_std - slope
    found = found - np.log(np.where(half > 0, half, 1.0))
    at = below | above
    distance = np.where(below, mean - low, high - mean)[at]
    found[at] = _log_tail(distance / np.exp(log_std)[at])
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
