"""Robotics: goal dictionaries kept, success in the test result, transitions against the environment driven by hand."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from zoo import algorithms, build_env, call_default_params
from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.rollouts.collector import Collector

pytest.importorskip('gymnasium_robotics', reason='gymnasium-robotics is not installed')

KEYS = ['achieved_goal', 'desired_goal', 'observation']


@pytest.mark.full(but='1')
@pytest.mark.parametrize('nenv', [1, 2])
def test_collected_are_the_transitions_of_the_environment_driven_by_hand(nenv: int):
    """Over two ends by the time limit of 50 steps."""
    env = build_env('FetchReach-v4', 'robotics', nenv=nenv)
    collector = Collector(env, ActionAdaptor(env.single_action_space if nenv > 1 else env.action_space))
    collector.reset(7)
    by_hand = [gymnasium.make('FetchReach-v4') for _ in range(nenv)]
    now = [one.reset(seed=7 + i)[0] for i, one in enumerate(by_hand)]
    rng = np.random.default_rng(0)
    for t in range(1, 121):
        action = rng.uniform(-1, 1, (nenv, 4)).astype(np.float32)
        before = spaces.tree_map(np.copy, collector.obs)
        collector.step(action)
        for i, one in enumerate(by_hand):
            after, reward, terminated, truncated, info = one.step(action[i])
            for key in KEYS:
                np.testing.assert_allclose(before[key][i], now[i][key], rtol=1e-6, atol=1e-9)
                np.testing.assert_allclose(collector.next_obs[key][i], after[key], rtol=1e-6, atol=1e-9)
            assert collector.reward[i] == reward
            assert (collector.terminated[i], collector.truncated[i]) == (terminated, truncated) == (False, t % 50 == 0)
            if truncated:
                assert collector.finished[i].success == bool(info['is_success'])
            now[i] = one.reset()[0] if truncated else after
    env.close()


def test_the_goal_and_its_reward_stay_reachable():
    env = build_env('FetchReach-v4', 'robotics')
    assert sorted(env.observation_space.spaces) == KEYS
    obs, info = env.reset(seed=0)
    assert env.unwrapped.compute_reward(obs['achieved_goal'], obs['achieved_goal'], info) == 0
    assert env.unwrapped.compute_reward(obs['achieved_goal'], obs['achieved_goal'] + 1, info) == -1


@pytest.mark.full
@pytest.mark.parametrize('nenv', [1, 2])
def test_sac_trains_on_the_dictionary_and_reports_successes(nenv: int, tmp_path: Any):
    env = build_env('FetchReach-v4', 'robotics', nenv=nenv)
    alg_params, learn_params = call_default_params(env, 'robotics', 'SAC', seed=0)
    agent = algorithms.SAC(**alg_params)
    small = {'train_steps': 220, 'explore_steps': 60, 'batch_size': 32, 'update_every': 10}
    result = agent.learn(env, 'train', run_dir=tmp_path, **learn_params | small)
    assert result.episodes == 4 and np.isfinite(list(result.losses.values())).all()
    tested = agent.learn(env, 'test', test_episodes=2)
    assert tested.lengths == [50, 50]
    assert all(isinstance(success, bool) for success in tested.successes)


def test_names_that_need_the_abandoned_mujoco_py_are_not_offered():
    with pytest.raises(ValueError, match="did you mean 'FetchReach-v"):
        build_env('FetchReach-v1', 'robotics')
    with pytest.raises(ValueError, match='is an environment of type .robotics.'):
        build_env('FetchReach-v4', 'mujoco')
