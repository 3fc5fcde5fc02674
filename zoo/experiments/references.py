"""The scale of each environment for comparisons: the score of a random policy is 0, the score of a reference is 1.

``reference_scores.json`` has both for common environments, with the source of the reference. The random policy was
measured by ``benchmarks/scores/random_scores.py``.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Env

from zoo.common.acting.behavior import Behavior
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import mask_path
from zoo.common.rollouts.collector import Collector
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.seeding import generator

#: The file with the scores of common environments.
FILE = Path(__file__).with_name('reference_scores.json')

#: Episodes of a random policy in an environment that the file does not have.
EPISODES = 20


@dataclass(frozen=True)
class Scale:
    """The two scores that normalize the scores in an environment.

    Attributes:
        random: the mean return of a random policy.
        reference: the score that counts as 1, above ``random``; None: the highest mean among the algorithms.
        random_source, source: where they are from, in words.
    """

    random: float
    reference: float | None
    random_source: str
    source: str

    def with_reference(self, value: Any, environment: str) -> Scale:
        """Return the scale with a reference of the user's.

        Raises:
            ValueError: it is not a number above the random score.
        """
        reference = number(value, f'the reference of {environment}')
        if reference <= self.random:
            told = f'the reference of {environment} is {reference:g}, but a random policy has {self.random:.4g}'
            raise InvalidValue(f'{told}: give a higher score.')
        return Scale(self.random, reference, self.random_source, 'given')


@functools.cache
def known() -> Mapping[str, Mapping[str, Any]]:
    """Return by environment the entries of the file: ``type, random, reference, source``."""
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding='utf-8'))
    return found


def known_scale(environment: str) -> Scale | None:
    """Return the scale of an environment in the file; None if it is not there."""
    entry = known().get(environment)
    if entry is None:
        return None
    return Scale(entry['random'], entry['reference'], 'table, 100 episodes', entry['source'])


def measured_scale(env: Env, seed: int = 0) -> Scale:
    """Return the scale of an environment: a random policy plays in it, and no reference is known."""
    played = random_scores(env, EPISODES, seed)
    return Scale(float(np.mean(played)), None, f'{EPISODES} episodes, measured now', 'highest mean here')


def given_scale(random: Any, environment: str) -> Scale:
    """Return the scale of an environment with a random score of the user's, without a reference."""
    return Scale(number(random, f'the random score of {environment}'), None, 'given', 'highest mean here')


def random_scores(env: Env, episodes: int, seed: int = 0) -> list[float]:
    """Return the returns of whole episodes in which every action is uniformly random, of the allowed ones if masked.

    The environment and the actions begin with ``seed``, so the same call gives the same returns.
    """
    adaptor = ActionAdaptor(env.action_space)
    masked = mask_path(env.observation_space) if adaptor.maskable else None
    policy, rng = Behavior(None, adaptor, masked), generator(seed, 'random policy')
    collector = Collector(env, adaptor)
    collector.reset(seed)
    found: list[float] = []
    while len(found) < episodes:
        collector.step(policy.random(collector.obs, rng))
        found += [episode.episode_return for episode in collector.finished]
    return found


def number(value: Any, what: str) -> float:
    """Return a finite number that a user gave; else a ValueError names ``what``."""
    fine = isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)
    if not fine:
        raise InvalidValue(f'{what} is {value!r}: give a number.')
    return float(value)
