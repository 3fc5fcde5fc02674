"""Rollouts of compiled environments are the steps that the environment takes by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pure
import pytest
import tensorflow as tf
from gymnasium.spaces import Box

import zoo
from zoo import algorithms
from zoo.common import spaces
from zoo.common.records import Episode
from zoo.common.rollouts.compiled_rollouts import Ends
from zoo.common.training.compiled_collection import CompiledCollection
from zoo.common.training.experience_of import experience_of


class Counted:
    """A training that only counts."""

    def __init__(self) -> None:
        self.steps, self.episodes = 0, []

    def stepped(self, count: int, episodes: Any) -> None:
        self.steps += count
        self.episodes += [(self.steps, episode) for episode in episodes]


def made(functions: Any, nenv: int, name: str = 'PPO', **spec: Any) -> tuple[Any, CompiledCollection]:
    env = zoo.build_env(functions, 'compiled', nenv=nenv)
    cls = getattr(algorithms, name)
    nets = [{'hidden': [8], 'seed': i, **spec} for i in range(len(cls.network_names))]
    if spec:
        nets[1] = 'actor'
    space = (
        (env.single_observation_space, env.single_action_space)
        if nenv > 1
        else (
            env.observation_space,
            env.action_space,
        )
    )
    agent = cls(*space, net_list=nets)
    experience = experience_of(agent, env, False, 0)
    assert isinstance(experience, CompiledCollection)
    experience.restart(11)
    return agent, experience


@pytest.mark.parametrize('functions', [pure.Line, pure.Choices])
def test_are_the_steps_of_the_environment(functions):
    agent, experience = made(functions(), 3)
    training = Counted()
    rollouts = [experience.rollout(training, 40) for _ in range(2)]
    again = zoo.build_env(functions(), 'compiled', nenv=3)
    obs, _ = again.reset(seed=11)
    space, returns, lengths, episodes = again.single_observation_space, np.zeros(3), np.zeros(3, int), []
    for part, rollout in enumerate(rollouts):
        assert rollout.valid.all() and rollout.reward.dtype == np.float32
        for t in range(40):
            for path, x in spaces.tree_items(spaces.flatten(space, obs)):
                np.testing.assert_allclose(dict(spaces.tree_items(rollout.obs))[path][t], x, atol=1e-6)
            stored = spaces.tree_map(lambda x, t=t: x[t], rollout.action)
            obs, reward, terminated, truncated, info = again.step(agent.action_adaptor.to_env(stored))
            np.testing.assert_allclose(rollout.reward[t], reward, atol=1e-6)
            np.testing.assert_array_equal(rollout.terminated[t], terminated)
            np.testing.assert_array_equal(rollout.truncated[t], truncated)
            returns += reward
            lengths += 1
            for i in range(3):
                done = terminated[i] or truncated[i]
                if done:
                    episodes.append(((part * 40 + t + 1) * 3, returns[i], lengths[i], i))
                    returns[i], lengths[i] = 0.0, 0
                final = info['final_obs'][i] if done else None
                for path, x in spaces.tree_items(spaces.flatten(space, final if done else obs)):
                    found = dict(spaces.tree_items(rollout.next_obs))[path][t, i]
                    np.testing.assert_allclose(found, x if done else x[i], atol=1e-6)
    assert training.steps == 240 and len(training.episodes) == len(episodes) > 5
    for (step, found), (at, total, length, copy) in zip(training.episodes, episodes, strict=True):
        assert (step, found.length, found.copy) == (at, length, copy)
        assert found.episode_return == pytest.approx(total, abs=1e-4)
    if functions is pure.Choices:
        assert min(rollout.reward.min() for rollout in rollouts) > -50  # no forbidden action


def test_no_action_is_drawn_twice():
    _, experience = made(pure.Line(), 2)
    actions = np.concatenate([experience.rollout(Counted(), 30).action for _ in range(3)])
    assert len(np.unique(actions)) == actions.size


def test_recurrent_states():
    agent, experience = made(pure.Line(), 2, recurrent='gru', recurrent_units=5)
    for _ in range(2):
        rollout = experience.rollout(Counted(), 30)
        state = rollout.state
        assert state.shape == (2, 5) and rollout.begins.any()
        network = agent.policy.network
        for t in range(30):
            state = np.where(rollout.begins[t][:, None], 0.0, state).astype(np.float32)
            _, after = network.step(tf.constant(rollout.obs[t]), tf.constant(state))
            state = after.numpy()
        done = rollout.terminated[-1] | rollout.truncated[-1]
        np.testing.assert_allclose(agent.behavior.state, np.where(done[:, None], 0.0, state), atol=1e-5)


def test_the_newest_weights_act():
    agent, experience = made(pure.Line(), 200)
    experience.rollout(Counted(), 3)
    bias = agent.networks['actor'].trainable_variables[-1]
    bias.assign(tf.ones_like(bias) * 3.0)
    assert experience.rollout(Counted(), 3).action.mean() > 2.5


def test_ends():
    ends = Ends(2)
    reward = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    done = np.array([[False, True], [False, True], [True, False]])
    assert ends.found(reward, done) == [
        (0, [Episode(2.0, 1, None, 1)]),
        (1, [Episode(4.0, 1, None, 1)]),
        (2, [Episode(9.0, 3, None, 0)]),
    ]
    assert ends.returns.tolist() == [0.0, 6.0] and ends.lengths.tolist() == [0, 1]
    assert ends.found(reward[:1], np.array([[True, True]])) == [
        (0, [Episode(1.0, 1, None, 0), Episode(8.0, 2, None, 1)])
    ]


def test_nan_is_refused():
    class Bad(pure.Line):
        observation_space = Box(-np.inf, np.inf, (2,), np.float32)

        def step(self, state, action, seed):
            state, obs, *rest = super().step(state, action, seed)
            return state, tf.where(state[0] > 0.5, float('nan'), obs), *rest

    agent, experience = made(Bad(), 3)
    with pytest.raises(zoo.common.tools.errors.NotFinite, match='of Bad gave an observation that is nan: mend'):
        for _ in range(20):
            experience.rollout(Counted(), 20)
