"""Behavior policies as tensors act as in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import zoo
from zoo import algorithms
from zoo.common import spaces
from zoo.common.acting.behavior import Behavior

OBS = Box(-1, 1, (3,), np.float32)
ACTIONS = {
    'Discrete': Discrete(3),
    'MultiDiscrete': MultiDiscrete([2, 3]),
    'MultiBinary': MultiBinary(2),
    'Box': Box(-2, 2, (2,), np.float32),
    'Dict': Dict({'a': Discrete(2), 'b': Box(-1, 1, (1,), np.float32)}),
}
MASKED = Dict({'action_mask': Box(0, 1, (3,), np.int8), 'x': OBS})


def subclasses(cls: type) -> set[type]:
    return {cls} | {each for own in cls.__subclasses__() for each in subclasses(own)}


def test_what_acts_in_another_way_says_whether_it_can_be_traced():
    for name in algorithms.NAMES:  # imports every behavior
        getattr(algorithms, name)
    for cls in subclasses(Behavior) - {Behavior}:
        if not cls.__module__.startswith('zoo.'):
            continue
        own = {'__call__', 'step', 'draw', 'chance'} & vars(cls).keys()
        # The recurrent forms only move the state, which `traced` does in their bases.
        assert (
            not own or {'traces', 'traced'} & vars(cls).keys() or not cls.traces or cls.__name__.startswith('Recurrent')
        )


def agent_of(name: str, action: Any, obs: Any = OBS, **params: Any) -> Any:
    cls = getattr(algorithms, name)
    return cls(obs, action, net_list=[{'hidden': [8], 'seed': i, **params} for i in range(len(cls.network_names))])


def drawn(agent: Any, obs: Any, progress: float = 0.0, count: int = 4000) -> tuple[Any, Any]:
    """Many actions for one observation, in NumPy and as tensors."""
    many = spaces.tree_map(lambda x: np.repeat(np.asarray(x)[None], count, 0), obs)
    agent.behavior.episodes_begin(np.ones(count, bool))
    one = agent.behavior(many, np.random.default_rng(0), progress)
    state = () if not agent.behavior.state_size else tf.zeros([count, agent.behavior.state_size])
    traced = tf.function(agent.behavior.traced, autograph=False, jit_compile=True)
    action, params, after = traced(many, state, tf.constant([3, 4]), tf.constant(progress))
    return one, spaces.tree_map(np.array, action)


def assert_alike(one: Any, other: Any) -> None:
    """Both have the same distribution, by part: means, deviations and frequencies."""
    for (path, x), (other_path, y) in zip(spaces.tree_items(one), spaces.tree_items(other), strict=True):
        assert path == other_path and x.shape == y.shape and x.dtype.kind == y.dtype.kind
        np.testing.assert_allclose(x.mean(0), y.mean(0), atol=0.05)
        np.testing.assert_allclose(x.std(0), y.std(0), atol=0.05)


@pytest.mark.parametrize('kind', ACTIONS)
def test_stochastic(kind):
    assert_alike(*drawn(agent_of('PPO', ACTIONS[kind]), np.array([0.3, -0.5, 0.9], np.float32)))


@pytest.mark.parametrize(('name', 'kind'), [('SAC', 'Box'), ('TD3', 'Box'), ('DQN', 'Discrete'), ('FQL', 'Box')])
def test_off_policy(name, kind):
    assert_alike(*drawn(agent_of(name, ACTIONS[kind]), np.array([0.3, -0.5, 0.9], np.float32)))


def test_epsilon_falls_with_progress():
    agent = algorithms.DQN(OBS, Discrete(3), net_list=[{'hidden': [8]}], epsilon=zoo.Linear(1.0, 0.1, 0.5))
    obs = np.array([0.3, -0.5, 0.9], np.float32)
    for progress, chance in ((0.0, 1.0), (0.25, 0.55), (0.9, 0.1)):
        one, other = drawn(agent, obs, progress)
        assert_alike(one, other)
        best = agent.behavior(obs[None], np.random.default_rng(0), 0.0, deterministic=True)[0]
        assert abs((other != best).mean() - chance * 2 / 3) < 0.04


def test_noisy_networks():
    agent = algorithms.DQN(OBS, Discrete(3), net_list=[{'hidden': [8]}], noisy=True)
    agent.behavior.epsilon = 0.0
    one, other = drawn(agent, np.array([0.3, -0.5, 0.9], np.float32))
    assert len(np.unique(other)) > 1
    assert_alike(one, other)


def test_recurrent():
    agent = algorithms.PPO(OBS, Discrete(3), net_list=[{'hidden': [8], 'recurrent': 'gru'}, 'actor'])
    assert_alike(*drawn(agent, np.array([0.3, -0.5, 0.9], np.float32)))
    agent = agent_of('DQN', Discrete(3), recurrent='lstm')
    assert_alike(*drawn(agent, np.array([0.3, -0.5, 0.9], np.float32)))


@pytest.mark.parametrize('name', ['PPO', 'DQN'])
def test_masks(name):
    obs = {'action_mask': np.array([1, 0, 1], np.int8), 'x': np.array([0.3, -0.5, 0.9], np.float32)}
    one, other = drawn(agent_of(name, Discrete(3), MASKED), obs)
    assert set(np.unique(other)) == {0, 2}
    assert_alike(one, other)


@pytest.mark.parametrize('kind', [*ACTIONS, 'masked', 'unbounded'])
def test_random_actions(kind):
    action = {**ACTIONS, 'masked': Discrete(3), 'unbounded': Box(-np.inf, np.inf, (2,), np.float32)}[kind]
    obs: Any = np.zeros((4000, 3), np.float32)
    if kind == 'masked':
        obs = {'action_mask': np.tile(np.array([0, 1, 1], np.int8), (4000, 1)), 'x': obs}
    agent = agent_of('PPO', action, MASKED if kind == 'masked' else OBS)
    one = agent.behavior.random(obs, np.random.default_rng(0))
    other = tf.function(agent.behavior.traced_random, autograph=False, jit_compile=True)(obs, tf.constant([1, 2]))
    assert_alike(one, spaces.tree_map(np.array, other))
