"""Generalised state-dependent exploration: its variance and probabilities by NumPy, and noise that stays as it is."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import toys
from gymnasium.spaces import Box, Dict, Discrete

import zoo
from zoo import algorithms, build_env
from zoo.common.acting.stochastic import StateDependent

VECTOR = toys.OBSERVATIONS['vector']
BOX = Box(-1.0, 1.0, (2,), np.float32)
OBS = np.random.default_rng(3).normal(size=(5, 3)).astype(np.float32)

#: Algorithms that have it.
NAMES = ['A2C', 'AC', 'PPO', 'SAC', 'TQC', 'TRPO', 'VPG']


def make(name: str = 'PPO', space: Any = VECTOR, **params: Any) -> Any:
    cls = getattr(algorithms, name)
    specs = [{'hidden': [6], 'features': 6, 'activation': 'tanh', 'seed': i} for i in range(len(cls.network_names))]
    agent = cls(space, BOX, **{'net_list': specs, 'use_sde': True} | params)
    rng = np.random.default_rng(7)
    agent.policy.log_std.assign(rng.normal(-1.0, 0.5, agent.policy.log_std.shape))
    agent.forward.refresh()
    return agent


def learn(agent: Any, seed: int | None = 0, **params: Any) -> Any:
    few = {'train_steps': 60, 'horizon': 16, 'epochs': 2, 'batch_size': 8, 'explore_steps': 20, 'buffer_size': 50}
    given = {name: x for name, x in few.items() if name in agent.learn_params()}
    env = build_env(toys.AnySpaces(agent.observation_space, BOX), 'gymnasium', seed=0)
    return agent.learn(env, seed=seed, run_dir=False, verbose=0, **given | params)


def features_of(agent: Any, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, means and σ, in float64 from the weights."""
    kernel, bias, head_kernel, head_bias = (np.float64(v.numpy()) for v in agent.policy.network.variables)
    features = np.tanh(obs @ kernel + bias)
    return features, features @ head_kernel + head_bias, np.exp(np.float64(agent.policy.log_std.numpy()))


def log_prob_by_hand(agent: Any, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Of each row the sum over entries of the density of N(μ, Σ_l f_l² σ_la²), squashed by tanh for SAC."""
    features, mean, sigma = features_of(agent, obs)
    total = np.zeros(len(obs))
    for i in range(len(obs)):
        for a in range(2):
            variance = sum((features[i, k] * sigma[k, a]) ** 2 for k in range(features.shape[1])) + 1e-6
            u = np.arctanh(action[i, a]) if agent.squash else action[i, a]
            total[i] += -0.5 * (u - mean[i, a]) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)
            total[i] -= np.log(1 - action[i, a] ** 2) if agent.squash else 0.0
    return total


@pytest.mark.parametrize('name', ['PPO', 'SAC'])
class TestTheDistribution:
    def test_log_probabilities_by_numpy(self, name):
        agent = make(name)
        action = np.random.default_rng(0).uniform(-0.9, 0.9, (5, 2)).astype(np.float32)
        found = agent.action_adaptor.distribution.log_prob(agent.policy(OBS), action)
        np.testing.assert_allclose(found, log_prob_by_hand(agent, OBS, action), rtol=1e-4)

    def test_acting_equals_learning(self, name):
        """NumPy and the graph: parameters and noise of the same matrix, which is the features times ε."""
        agent = make(name)
        noise = np.random.default_rng(1).standard_normal((5, agent.forward.noise_size)).astype(np.float32)
        assert agent.forward.numpy is not None and agent.forward.noise_size == 6 * 2
        found = agent.forward(OBS, noise)
        np.testing.assert_allclose(found, agent.policy.perturbed(OBS, noise), atol=1e-5)
        np.testing.assert_allclose(found[:, :4], agent.policy(OBS), atol=1e-5)
        features, _, sigma = features_of(agent, OBS)
        expected = [features[i] @ (sigma * noise[i].reshape(6, 2)) for i in range(5)]
        np.testing.assert_allclose(found[:, 4:], expected, atol=1e-5)
        np.testing.assert_array_equal(agent.forward(OBS)[:, 4:], 0.0)

    def test_actions_are_spread_as_their_probabilities_say(self, name):
        agent = make(name)
        obs = np.repeat(OBS[:1], 20_000, 0)
        drawn = agent.act(obs)
        raw = np.arctanh(drawn) if name == 'SAC' else drawn
        mean, log_std = np.split(agent.policy(OBS[:1]).numpy()[0], 2)
        np.testing.assert_allclose(raw.mean(0), mean, atol=5 * np.exp(log_std).max() / np.sqrt(20_000))
        np.testing.assert_allclose(raw.std(0), np.exp(log_std), rtol=0.03)

    def test_deterministic_is_the_mean(self, name):
        agent = make(name)
        agent.behavior.episodes_begin(np.ones(5, bool))
        _, mean, _ = features_of(agent, OBS)
        expected = np.tanh(mean) if name == 'SAC' else mean
        np.testing.assert_allclose(agent.act(OBS, deterministic=True), expected, atol=1e-5)
        assert not agent.behavior.left.any(), 'no step of the noise'

    @pytest.mark.full
    def test_an_image(self, name):
        """Acting by the graph, where NumPy cannot."""
        space = Box(0, 255, (8, 8, 1), np.uint8)
        agent = make(name, space)
        obs = np.random.default_rng(0).integers(0, 255, (4, 8, 8, 1), dtype=np.uint8)
        assert agent.forward.numpy is None
        noise = np.random.default_rng(1).standard_normal((4, agent.forward.noise_size)).astype(np.float32)
        np.testing.assert_allclose(agent.forward(obs, noise), agent.policy.perturbed(obs, noise), atol=1e-5)
        np.testing.assert_allclose(agent.forward(obs)[:, :4], agent.policy(obs), atol=1e-5)
        assert learn(agent, train_steps=30).steps >= 30


def test_no_gradient_reaches_the_features_by_way_of_the_variance():
    agent = make()
    with tf.GradientTape() as tape:
        log_std = agent.policy(OBS)[:, 2:]
    found = tape.gradient(log_std, [*agent.policy.network.trainable_variables, agent.policy.log_std])
    assert all(x is None or not np.any(x) for x in found[:-1]) and np.abs(found[-1]).max() > 0


class TestTheNoise:
    def behavior(self, every: int | None = None, copies: int = 3) -> tuple[Any, Any]:
        agent = make(sde_sample_freq=every)
        assert type(agent.behavior) is StateDependent
        agent.behavior.episodes_begin(np.ones(copies, bool))
        return agent, np.repeat(OBS[:1], copies, 0)

    def test_the_same_state_gives_the_same_action_until_it_is_drawn_anew(self):
        agent, obs = self.behavior(every=3)
        actions = [agent.act(obs) for _ in range(9)]
        for t, action in enumerate(actions):
            assert np.array_equal(action, actions[t - 1]) is (t % 3 != 0), t
        assert len({row.tobytes() for row in actions[0]}) == 3, 'each copy has its own'

    def test_without_a_number_of_steps_it_is_that_of_the_episode(self):
        agent, obs = self.behavior()
        actions = [agent.act(obs) for _ in range(50)]
        assert all(np.array_equal(action, actions[0]) for action in actions)
        agent.behavior.episodes_begin(np.array([False, True, False]))
        after = agent.act(obs)
        assert [np.array_equal(a, b) for a, b in zip(after, actions[0], strict=True)] == [True, False, True]

    def test_a_new_episode_counts_its_own_steps(self):
        agent, obs = self.behavior(every=3)
        first = [agent.act(obs) for _ in range(2)]
        agent.behavior.episodes_begin(np.array([False, True, False]))
        third, fourth = agent.act(obs), agent.act(obs)
        np.testing.assert_array_equal(third[0], first[0][0])
        assert (third[1] != first[0][1]).any() and (fourth[0] != third[0]).any()
        np.testing.assert_array_equal(fourth[1], third[1])

    def test_another_state_has_another_noise(self):
        agent, obs = self.behavior()
        mean = agent.act(obs, deterministic=True)
        first = agent.act(obs) - mean
        second = agent.act(2 * obs) - agent.act(2 * obs, deterministic=True)
        assert np.abs(second - first).max() > 1e-3

    def test_the_scale_is_that_of_the_newest_weights(self):
        agent, obs = self.behavior()
        mean, before = agent.act(obs, deterministic=True), agent.act(obs)
        agent.policy.log_std.assign_add(tf.fill([6, 2], np.log(2.0).astype(np.float32)))
        agent.forward.refresh()
        np.testing.assert_allclose(agent.act(obs) - mean, 2 * (before - mean), rtol=1e-4)

    def test_a_copy_of_the_behaviour_goes_its_own_way(self):
        agent, obs = self.behavior()
        before = agent.act(obs)
        other = copy.copy(agent.behavior)
        other.episodes_begin(np.ones(3, bool))
        assert (other(obs, agent.rng, 0.0) != before).any()
        np.testing.assert_array_equal(agent.act(obs), before)

    def test_other_observations_than_those_of_the_copies(self):
        agent, obs = self.behavior()
        before = agent.act(obs)
        assert agent.predict(OBS, deterministic=False).shape == (5, 2)
        np.testing.assert_array_equal(agent.act(obs), before)

    def test_what_is_predicted_has_a_noise_of_its_own_and_takes_no_step_of_the_copies(self):
        agent, obs = self.behavior(every=3)
        before = agent.act(obs)
        drawn = [agent.predict(obs, deterministic=False) for _ in range(4)]  # as many as there are copies
        assert (drawn[0] != drawn[1]).any() and (drawn[0] != before).any()
        np.testing.assert_array_equal(agent.act(obs), before)

    @pytest.mark.full
    def test_in_training_every_episode_has_its_own(self):
        """An observation that never changes: what was done differs between episodes alone, and after every 3 steps."""

        class Still(toys.AnySpaces):
            def _observe(self) -> Any:
                return np.full(3, 0.5, np.float32)

        agent, seen = make('PPO', sde_sample_freq=3), []
        update = agent.update
        agent.update = lambda rollout, **params: seen.append(rollout.action.copy()) or update(rollout, **params)
        env = build_env(Still(VECTOR, BOX), 'gymnasium', seed=0)
        agent.learn(env, seed=0, train_steps=10, horizon=10, run_dir=False, verbose=0)
        steps = seen[0][:, 0]
        same = [np.array_equal(a, b) for a, b in zip(steps, steps[1:], strict=False)]
        assert same == [True, True, False, True, False, True, True, False, True]  # episodes of 5 steps


@pytest.mark.usefixtures('plain_graphs')
class TestTraining:
    @pytest.mark.full
    @pytest.mark.parametrize('name', NAMES)
    def test_every_algorithm_that_has_it(self, name, tmp_path: Path):
        agent = make(name, sde_sample_freq=4)
        before = agent.policy.log_std.numpy()
        result = learn(agent)
        assert all(np.isfinite(x) for x in result.losses.values())
        assert (agent.policy.log_std.numpy() != before).all()
        np.testing.assert_allclose(agent.forward(OBS)[:, :4], agent.policy(OBS), atol=1e-5)
        loaded = zoo.load(agent.save(tmp_path / 'saved'))
        assert loaded.use_sde and loaded.sde_sample_freq == 4
        np.testing.assert_array_equal(loaded.predict(OBS), agent.predict(OBS))
        np.testing.assert_array_equal(loaded.policy.log_std, agent.policy.log_std)

    @pytest.mark.full
    @pytest.mark.parametrize('name', [pytest.param('PPO', marks=pytest.mark.matrix), 'SAC'])
    def test_after_save_and_load_as_if_uninterrupted(self, name, tmp_path: Path):
        def trained(path: Path | None) -> Any:
            agent = make(name, sde_sample_freq=4)
            learn(agent)
            if path is not None:
                agent = zoo.load(agent.save(path, buffer=True))
            learn(agent, seed=None)
            return agent.state()

        whole, resumed = trained(None), trained(tmp_path / 'saved')
        for key, array in whole.items():
            np.testing.assert_array_equal(resumed[key], array, err_msg=key)

    def test_rollouts_have_its_probabilities(self):
        agent = make('A2C')
        env = build_env(toys.AnySpaces(VECTOR, BOX), 'gymnasium', seed=0)
        rollout = agent.rollout(env, steps=12)
        found = agent.evaluate(rollout).log_prob
        np.testing.assert_allclose(found, rollout.log_prob, atol=1e-4)
        by_hand = log_prob_by_hand(agent, rollout.obs[:, 0], rollout.action[:, 0])
        np.testing.assert_allclose(rollout.log_prob[:, 0], by_hand, rtol=1e-3, atol=1e-4)


@pytest.mark.full
def test_light_actors(tmp_path: Path):
    env = build_env('Pendulum-v1')
    agent = algorithms.PPO(
        env.observation_space, env.action_space, net_list=[{'hidden': [8]}] * 2, use_sde=True, sde_sample_freq=4
    )
    assert agent.behavior.light().forward is not None
    few = {'train_steps': 200, 'horizon': 50, 'epochs': 1, 'run_dir': False, 'verbose': 0, 'seed': 0}
    result = agent.learn(env, roles={'actors': 1}, **few)
    assert result.steps == 200 and all(np.isfinite(x) for x in result.losses.values())
    with pytest.raises(ValueError, match=r'kept along each episode, .*: leave out servers\.$'):
        agent.learn(env, roles={'actors': 1, 'servers': 1}, **few)


class TestRefused:
    @pytest.mark.parametrize('name', ['PPO', 'SAC'])
    def test_actions_that_are_no_box(self, name):
        with pytest.raises(ValueError, match=r'^use_sde=True adds noise to the actions of a Box, but these are'):
            getattr(algorithms, name)(VECTOR, Discrete(3), use_sde=True)

    def test_parts_of_actions(self):
        with pytest.raises(ValueError, match='use_sde=True adds noise to the actions of a Box'):
            algorithms.PPO(VECTOR, Dict(a=BOX, b=Discrete(2)), use_sde=True)

    def test_recurrent_networks(self):
        nets = [{'hidden': [4], 'recurrent': 'lstm'}, 'actor']
        with pytest.raises(ValueError, match=r'is recurrent, but use_sde=True needs a network that is not'):
            algorithms.PPO(VECTOR, BOX, net_list=nets, use_sde=True)

    def test_defaults_with_a_recurrent_network_leave_it_out(self):
        env = build_env('MountainCarContinuous-v0')
        assert zoo.call_default_params(env, alg='A2C')[0]['use_sde'] is True
        alg_params, _ = zoo.call_default_params(env, alg='A2C', recurrent='lstm')
        assert alg_params['use_sde'] is False and alg_params['sde_sample_freq'] is None
        assert algorithms.A2C(**alg_params).is_recurrent

    def test_complete_networks(self):
        whole = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        with pytest.raises(ValueError, match=r'is a complete network, but use_sde=True makes noise from the features'):
            algorithms.PPO(VECTOR, BOX, net_list=[whole, {'hidden': [4]}], use_sde=True)

    @pytest.mark.full
    def test_what_would_change_nothing_is_said(self, caplog: pytest.LogCaptureFixture):
        algorithms.PPO(VECTOR, BOX, sde_sample_freq=4)
        algorithms.SAC(VECTOR, BOX, log_std_init=-1.0)
        assert [x.message for x in caplog.records] == [
            'sde_sample_freq=4 changes nothing without use_sde=True.',
            'log_std_init=-1.0 changes nothing without use_sde=True.',
        ]
