"""Compiled environments keep the attributes that their object had when they were built."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import tensorflow as tf
from gymnasium.spaces import Box

import zoo
from zoo.common.envs.compiled import freezing
from zoo.common.envs.compiled.freezing import frozen


class Paying:
    """Gives the product of its attributes as a reward."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)
    gain = 1.0
    max_episode_steps = 5

    def __init__(self) -> None:
        self.power = 1.0
        self.table = np.array([1.0], np.float32)
        self.nested = SimpleNamespace(factor=1.0)

    def reset(self, seed):
        return tf.zeros([1]), tf.zeros([1])

    def step(self, state, action, seed):
        reward = self.power * self.gain * self.nested.factor * self.table[0]
        return state, state, tf.constant(reward, tf.float32), tf.constant(False), tf.constant(False)


@dataclass
class Declared(Paying):
    """An object that has no hash, because it is compared by value."""

    power: float = 1.0

    def __post_init__(self) -> None:
        self.table, self.nested = np.array([1.0], np.float32), SimpleNamespace(factor=1.0)


def built(functions):
    return zoo.build_env(functions, 'compiled', nenv=2)


def reward(env) -> float:
    env.reset()
    return float(env.step(np.zeros((2, 1), np.float32))[1][0])


def test_each_environment_has_the_attributes_of_its_time(monkeypatch):
    functions, envs = Paying(), []
    envs.append(built(functions))
    functions.power = 2.0
    envs.append(built(functions))
    functions.table[0] = 3.0
    envs.append(built(functions))
    functions.nested.factor = 5.0
    envs.append(built(functions))
    monkeypatch.setattr(Paying, 'gain', 7.0)
    envs.append(built(functions))
    assert [reward(env) for env in envs] == [1.0, 2.0, 6.0, 30.0, 210.0]  # traced after all changes
    monkeypatch.setattr(Paying, 'max_episode_steps', 2)
    env = built(functions)
    env.reset()
    assert [bool(env.step(np.zeros((2, 1), np.float32))[3][0]) for _ in range(4)] == [False, True, False, True]


def test_training_pays_what_was_built():
    functions = Paying()
    env = built(functions)
    functions.power = 2.0
    built(functions)
    agent = zoo.algorithms.PPO(env.single_observation_space, env.single_action_space, net_list=[{'hidden': [4]}] * 2)
    result = agent.learn(env, 'train', train_steps=32, horizon=16, batch_size=16, epochs=1, run_dir=False, verbose=0)
    assert set(result.returns) == {5.0}


def test_an_unchanged_object_is_compiled_once():
    functions = Paying()
    assert built(functions).steps is built(functions).steps
    functions.power = 2.0
    changed = built(functions)
    functions.power = 1.0
    assert changed.steps is not built(functions).steps


def test_an_object_without_a_hash():
    assert reward(built(Declared(power=4.0))) == 4.0


def test_nothing_is_kept_of_an_object_that_is_gone():
    functions = Paying()
    key = id(functions)
    frozen(functions)
    assert key in freezing._MADE
    del functions
    gc.collect()
    assert key not in freezing._MADE


def test_a_bound_method_among_the_attributes_is_the_own_one():
    functions = Paying()
    functions.own = functions.reset
    assert frozen(functions).own.__self__ is frozen(functions)
