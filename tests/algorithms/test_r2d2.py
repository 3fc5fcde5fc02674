"""R2D2: its defaults, its actors, and a memory learned over roles; its update is tested with DQN's on sequences."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import toys
from cue import Cue
from gymnasium.spaces import Discrete

import zoo
from zoo import build_env, call_default_params
from zoo.algorithms import R2D2

pytestmark = pytest.mark.usefixtures('plain_graphs')

ROLES = {'learners': 1, 'actors': 2, 'buffers': 1}


def test_defaults_are_those_of_the_paper():
    params, learn_params = R2D2.params(), R2D2.learn_params()
    expected = {'double_q': True, 'dueling': True, 'prioritized': True, 'n_step': 5, 'gamma': 0.997}
    expected |= {'priority_alpha': 0.9, 'priority_beta': 0.6, 'target_update_every': 2500, 'rescaling': 1e-3}
    expected |= {'sequence_length': 80, 'burn_in': 40, 'epsilon': 0.4, 'epsilon_exponent': 7.0}
    assert {name: params[name] for name in expected} == expected
    assert (learn_params['roles'], learn_params['update_every'], learn_params['batch_size']) == (ROLES, None, 64)
    assert not params.keys() & {'noisy', 'kappa'}


def test_it_has_a_memory_unless_told_otherwise(caplog: pytest.LogCaptureFixture):
    env = build_env('CartPole-v1')
    assert R2D2(env.observation_space, env.action_space).behavior.state_size == 128
    assert call_default_params(env, alg='R2D2')[0]['net_list'][0]['recurrent'] == 'lstm'
    assert call_default_params(env, alg='R2D2', recurrent='gru')[0]['net_list'][0]['recurrent'] == 'gru'
    _, learn_params = call_default_params(build_env(toys.BitFlip), alg='R2D2')
    assert learn_params['her'] is None  # which goes with no memory
    assert not caplog.text
    R2D2(env.observation_space, env.action_space, net_list=[{'hidden': [8], 'recurrent': None}])
    assert 'R2D2 has a network without a memory, and so learns from single steps' in caplog.text


@pytest.mark.full
def test_what_was_seen_before_is_learned(tmp_path: Path):
    """From two actors, through a buffer. Half of the episodes would be right without a memory."""
    env = build_env(partial(Cue, Discrete(2)), 'gymnasium', nenv=4)
    net = {'hidden': [16], 'recurrent': 'gru', 'recurrent_units': 16, 'seed': 0}
    agent = R2D2(
        env.single_observation_space,
        Discrete(2),
        [net],
        [{'name': 'Adam', 'learning_rate': 5e-3}],
        gamma=0.9,
        tau=0.05,
        target_update_every=1,
        sequence_length=6,
        burn_in=3,
    )
    settings = {'explore_steps': 200, 'batch_size': 16, 'update_every': 4, 'updates': 1, 'buffer_size': 2000}
    agent.learn(env, train_steps=2400, seed=0, run_dir=False, roles=ROLES, **settings)
    test_env = build_env(partial(Cue, Discrete(2)), 'gymnasium')
    assert min(agent.learn(test_env, 'test', test_episodes=20, seed=1).returns) > 0.6
    loaded = zoo.load(agent.save(tmp_path / 'saved'))
    assert loaded.behavior.exponent == 7.0 and loaded.behavior.state_size == 16


def test_each_actor_has_another_epsilon():
    env = build_env('CartPole-v1')
    actor = R2D2(env.observation_space, env.action_space).behavior.light().of_actor(1, 2)
    np.testing.assert_allclose(actor.chance(1, 0.0), [0.4**8])
    actor.episodes_begin(np.ones(1, bool))
    actor.base = 1.0  # all of them random
    rng = np.random.default_rng(0)
    found = {int(actor(np.ones((1, 4), np.float32), rng, 0.0)[0]) for _ in range(20)}
    assert found == {0, 1} and actor.state.any()
