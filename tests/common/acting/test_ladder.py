"""Actors that explore each to another degree, and the first priorities of what they do."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from zoo.common.acting.ladder import NoiseLadder, PrioritizingEpsilonLadder, first_errors, rungs
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.records import Trajectories
from zoo.common.sampling import Priorities, Sampling


def test_rungs_by_hand():
    np.testing.assert_allclose(rungs(0.4, 7.0, 0, 3, 3), [0.4, 0.4**4.5, 0.4**8])
    np.testing.assert_allclose(rungs(0.4, 7.0, 2, 2, 4), [0.4 ** (1 + 14 / 3), 0.4**8])
    np.testing.assert_allclose(rungs(0.4, 7.0, 0, 1, 1), [0.4**4.5])
    assert rungs(0.0, 7.0, 0, 2, 2).tolist() == [0.0, 0.0]


def values(obs: np.ndarray, noise: Any = None) -> np.ndarray:
    """Q of two actions: 10 and 11 times what is seen."""
    return np.stack([10.0 * obs[:, 0], 11.0 * obs[:, 0]], -1)


values.noise_size = 0  # type: ignore[attr-defined]


def ladder(**params: Any) -> PrioritizingEpsilonLadder:
    return PrioritizingEpsilonLadder(
        values, ActionAdaptor(Discrete(2)), None, **{'epsilon': 0.5, 'exponent': 2.0} | params
    )


def test_each_copy_of_each_actor_has_its_own_epsilon():
    """Of two actors of two copies the second has the last two of four rungs, also when it has been sent."""
    second = pickle.loads(pickle.dumps(ladder().of_actor(1, 2).light()))
    np.testing.assert_allclose(second.values(0.5, 2.0, 2), [0.5 ** (1 + 4 / 3), 0.5**3])
    second.forward = values
    rng, obs = np.random.default_rng(0), np.ones((2, 1), np.float32)
    zeros = np.mean([second(obs, rng, 0.0) == 0 for _ in range(20_000)], 0)  # half of what is random
    np.testing.assert_allclose(zeros, [0.5 ** (1 + 4 / 3) / 2, 0.5**3 / 2], atol=0.006)
    assert ladder(epsilon=1.0)(obs, rng, 0.0, deterministic=True).tolist() == [1, 1]


def test_each_copy_of_each_actor_has_its_own_noise():
    adaptor = ActionAdaptor(Box(-1.0, 1.0, (1,), np.float32), squash=True)
    noise = NoiseLadder(SimpleNamespace(), adaptor, 0.4, 3.0)
    drawn = noise.of_actor(0, 2).draw((1, 20_000), np.random.default_rng(0)).std()
    least = noise.of_actor(1, 2).draw((1, 20_000), np.random.default_rng(0)).std()
    np.testing.assert_allclose([drawn, least], [0.4, 0.4**4], rtol=0.02)


def rollout(reward: Any, terminated: Any, truncated: Any, valid: Any) -> Trajectories:
    """Of one copy, in which 1, 2, 3, … is seen and the second action is taken."""
    steps = len(reward)
    seen = np.arange(1, steps + 2, dtype=np.float32)[:, None, None]
    columns = [np.array(x)[:, None] for x in (terminated, truncated, valid)]
    return Trajectories(
        seen[:-1],
        np.ones((steps, 1), np.int64),
        np.float32(reward)[:, None],
        seen[1:],
        *(x.astype(bool) for x in columns),
    )


SAMPLING = Sampling(0.5, 2, Priorities())


def test_first_priorities_by_hand():
    """Two steps, of which an episode has fewer at its end; in the last one the message ends; one took place nowhere."""
    sent = rollout([1, 2, 4, 8, 0, 3, 5], [0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0], [1, 1, 1, 1, 0, 1, 1])
    expected = [
        1 + 0.5 * 2 + 0.25 * 33 - 11,  # two steps, then the best of what is seen: 11 · 3
        2 + 0.5 * 4 - 22,  # the second ends the episode
        4 - 33,  # and so does this one
        8 + 0.5 * 55 - 44,  # cut by a time limit: what is seen then counts
        0,
        3 + 0.5 * 5 + 0.25 * 88 - 66,
        5 + 0.5 * 88 - 77,  # what follows is not known yet
    ]
    found = ladder().priorities(sent, SAMPLING)
    np.testing.assert_allclose(found[:, 0], np.abs(expected), rtol=1e-6)
    assert ladder().priorities(sent, SAMPLING._replace(priorities=None)) is None


def test_a_step_after_one_that_took_no_place_does_not_follow_it():
    sent = rollout([1, 0, 2], [0, 0, 0], [0, 0, 0], [1, 0, 1])
    q, following = np.zeros((3, 1)), np.full((3, 1), 10.0)
    found = first_errors(sent, q, following, SAMPLING)
    np.testing.assert_allclose(found[:, 0], [1 + 0.5 * 10, 0, 2 + 0.5 * 10])


@pytest.mark.full(but='zoo.common.acting.ladder')
@pytest.mark.parametrize('module', ['zoo.common.acting.ladder', 'zoo.distributed.training.buffer'])
def test_none_of_it_needs_tensorflow(module: str):
    code = f'import {module}, sys; sys.exit("tensorflow" in sys.modules)'
    assert subprocess.run([sys.executable, '-c', code], check=False).returncode == 0
