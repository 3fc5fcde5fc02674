"""Ape-X: its first priorities are the learner's, its defaults, and training in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from reference import stir

import zoo
from zoo import algorithms, build_env
from zoo.algorithms import DQN, ApexDDPG, ApexDQN
from zoo.common.records import Transition
from zoo.common.replay.replay import Replay
from zoo.common.rollouts.collector import Collector
from zoo.common.rollouts.rollout_buffer import RolloutBuffer

pytestmark = pytest.mark.usefixtures('plain_graphs')

FEW = {'train_steps': 200, 'explore_steps': 40, 'batch_size': 16, 'run_dir': False, 'verbose': 0}


def make(name: str, env: Any, **params: Any) -> Any:
    cls = getattr(algorithms, name)
    nets = [{'hidden': [8], 'seed': i} for i in range(len(cls.network_names))]
    prefix = 'single_' if hasattr(env, 'num_envs') else ''
    return cls(*(getattr(env, f'{prefix}{kind}_space') for kind in ('observation', 'action')), net_list=nets, **params)


@pytest.mark.parametrize('params', [{}, {'n_step': 1, 'dueling': False}, {'n_step': 5, 'normalize_obs': True}])
def test_first_priorities_are_those_of_the_learner(params: dict[str, Any]):
    """Of every step of a message, where target and network are the ones that were acted with."""
    env = build_env('CartPole-v1', nenv=2, max_episode_steps=20)  # some end, some are cut
    agent = make('ApexDQN', env, gamma=0.9, **params)
    stir(agent.network.variables, seed=1)
    for target, own in zip(agent.target.variables, agent.network.variables, strict=True):
        target.assign(own)
    if agent.statistics:
        agent.observe(np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32))
    agent.forward.refresh()
    actor = agent.behavior.light().of_actor(0, 2)
    collector = Collector(env, agent.action_adaptor, begin=actor.episodes_begin)
    collector.reset(3)
    rng = np.random.default_rng(0)
    made = RolloutBuffer(collector.space, agent.action_adaptor, 90, 2)
    rollout = made.fill(collector, lambda obs: actor.random(obs, rng), lambda before: None)
    assert rollout.terminated.any() and rollout.truncated.any()
    found = actor.priorities(rollout, agent.sampling)

    replay = Replay(agent.observation_space, agent.action_adaptor, 200, 2, agent.sampling)
    rows = np.zeros(rollout.reward.shape, np.int64)
    for t in range(len(rows)):
        rows[t] = replay.base + replay.cursor
        replay.add(Transition(*(x[t] for x in rollout[:6])), rollout.valid[t], priority=found[t])
    taken = rollout.valid
    batch = replay.gather(rows[taken], rng)
    batch = type(batch)(*map(tf.constant, batch))
    target = agent.backup(batch, agent.following(batch, None, None))
    _, expected, _ = agent.loss(batch, target)
    np.testing.assert_allclose(found[taken], expected, atol=1e-5)
    assert (found[~taken] == 0).all() and found[taken].std() > 0.01
    kept = replay.priorities_of(rows[taken])
    np.testing.assert_allclose(kept, (found[taken] + 1e-6) ** 0.6, rtol=1e-5)


def test_defaults_are_those_of_the_paper():
    params = ApexDQN.params()
    expected = {'double_q': True, 'dueling': True, 'prioritized': True, 'n_step': 3, 'noisy': False}
    expected |= {'epsilon': 0.4, 'epsilon_exponent': 7.0, 'priority_alpha': 0.6, 'target_update_every': 2500}
    assert {name: params[name] for name in expected} == expected
    for cls in (ApexDQN, ApexDDPG):
        learn_params = cls.learn_params()
        assert learn_params['roles'] == {'learners': 1, 'actors': 2, 'buffers': 1}
        assert learn_params['update_every'] is None
    assert DQN.learn_params()['update_every'] == 1


@pytest.mark.full(but='ApexDDPG-Pendulum-v1')
@pytest.mark.parametrize(('name', 'env_id'), [('ApexDQN', 'CartPole-v1'), ('ApexDDPG', 'Pendulum-v1')])
def test_in_one_process(name: str, env_id: str, tmp_path: Any):
    """An update after each step of all copies; what explores is saved and loaded."""
    env = build_env(env_id, nenv=2)
    agent = make(name, env, **{'epsilon_exponent' if name == 'ApexDQN' else 'noise_exponent': 5.0})
    result = agent.learn(env, seed=0, roles=None, updates=2, **FEW)
    assert result.steps == 200 and agent.updates == 2 * (200 - 40 + 2) // 2
    assert all(np.isfinite(x) for x in result.losses.values())
    loaded = zoo.load(agent.save(tmp_path / 'saved'))
    assert loaded.behavior.exponent == 5.0
    obs = np.random.default_rng(0).normal(size=(500, *agent.observation_space.shape)).astype(np.float32)
    loaded.rng, agent.rng = np.random.default_rng(1), np.random.default_rng(1)
    np.testing.assert_array_equal(loaded.act(obs), agent.act(obs))


def test_actors_without_a_buffer_say_their_priorities_too():
    env = build_env('CartPole-v1')
    agent = make('ApexDQN', env)
    agent.learn(env, seed=0, roles={'actors': 1}, **FEW | {'explore_steps': 1000})
    kept = agent.replay.priorities_of(np.flatnonzero(agent.replay.valid))
    assert len(kept) >= 200 and agent.updates == 0 and np.unique(kept).size > 190


def test_other_noise_is_not_taken():
    with pytest.raises(ValueError, match="unknown parameter of ApexDDPG 'noise'"):
        make('ApexDDPG', build_env('Pendulum-v1'), noise='ornstein_uhlenbeck')


def test_networks_with_a_memory_are_refused():
    env = build_env('CartPole-v1')
    with pytest.raises(ValueError, match=r'is recurrent, which ApexDQN cannot learn with: use '):
        ApexDQN(env.observation_space, env.action_space, net_list=[{'hidden': [8], 'recurrent': 'lstm'}])
    assert 'burn_in' not in ApexDQN.params()
