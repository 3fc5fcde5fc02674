"""ES and ARS against their papers: ranks and steps by hand and by NumPy, and what they learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest
import toys
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

import zoo
from zoo import algorithms, build_env
from zoo.algorithms.es import centered_ranks
from zoo.common.acting.perturbed import direction
from zoo.common.maths.normalize import RunningMoments, moments_of
from zoo.common.records import Evaluations

VECTOR = toys.OBSERVATIONS['vector']


def make(name: str, **params: Any) -> Any:
    given = {'net_list': [{'hidden': [4], 'seed': 0}], 'num_directions': 4} | params
    return getattr(algorithms, name)(VECTOR, Box(-1.0, 1.0, (2,)), **given)


def judged(returns: Any, lengths: Any = None, **fields: Any) -> Evaluations:
    returns = np.array(returns, np.float64)
    lengths = np.full(returns.shape, 10) if lengths is None else np.array(lengths)
    return Evaluations(
        **{'seeds': 100 + np.arange(len(returns)), 'returns': returns, 'lengths': lengths, 'observed': {}} | fields
    )


RETURNS = [[1.0, 5.0], [-2.0, 0.5], [3.0, 2.0], [9.0, 8.0]]


def parameters(agent: Any) -> np.ndarray:
    return agent.forward.numpy.packed.astype(np.float64)


class TestCentredRanks:
    def test_by_hand(self):
        found = centered_ranks(np.array([[30.0, -1.0], [2.0, 1e6]]))
        np.testing.assert_allclose(found, [[1 / 6, -0.5], [-1 / 6, 0.5]])

    def test_equal_ones_share_theirs(self):
        np.testing.assert_allclose(centered_ranks(np.array([7.0, 1.0, 7.0, 7.0])), [1 / 6, -0.5, 1 / 6, 1 / 6])
        np.testing.assert_array_equal(centered_ranks(np.full((3, 2), 5.0)), np.zeros((3, 2)))

    def test_their_mean_is_zero_and_monotone_maps_change_nothing(self):
        x = np.random.default_rng(0).normal(size=(7, 2))
        assert centered_ranks(x).sum() == pytest.approx(0.0, abs=1e-12)
        np.testing.assert_array_equal(centered_ranks(np.exp(5 * x)), centered_ranks(x))


class TestES:
    def test_one_update_by_numpy(self, plain_graphs):
        agent = make('ES', weight_decay=0.1)
        before = parameters(agent)
        metrics = agent.update(judged(RETURNS))
        # Of eight returns in their order: −2, 0.5, 1, 2, 3, 5, 8, 9.
        ranks = np.array([[2, 5], [0, 1], [4, 3], [7, 6]]) / 7 - 0.5
        noise = np.stack(
            [np.random.default_rng(100 + i).standard_normal(before.size, dtype=np.float32) for i in range(4)]
        )
        ascent = ((ranks[:, 0] - ranks[:, 1]) @ noise.astype(np.float64)) / 8
        gradient = -ascent + 0.1 * before
        # Adam's first step is α · sign(gradient), up to ε.
        expected = before - 0.01 * gradient / (np.abs(gradient) + 1e-7 / np.sqrt(1 - 0.999))
        np.testing.assert_allclose(parameters(agent), expected, atol=1e-6)
        assert metrics == {
            'return_mean': pytest.approx(np.mean(RETURNS)),
            'return_max': 9.0,
            'gradient_norm': pytest.approx(np.linalg.norm(ascent), rel=1e-5),
        }

    def test_two_updates_by_numpy(self, plain_graphs):
        """With plain gradient descent, so that nothing hides the size of a step."""
        agent = make('ES', weight_decay=0.2, optimizers_list=[{'name': 'SGD', 'learning_rate': 0.5}])
        theta = parameters(agent)
        for shift in (0, 50):
            agent.update(judged(RETURNS, seeds=shift + np.arange(4)))
            ranks = np.array([[2, 5], [0, 1], [4, 3], [7, 6]]) / 7
            ascent = sum((ranks[i, 0] - ranks[i, 1]) * direction(shift + i, theta.size) for i in range(4)) / 8
            theta = theta - 0.5 * (0.2 * theta - ascent)
        np.testing.assert_allclose(parameters(agent), theta, atol=1e-5)
        np.testing.assert_allclose(np.concatenate([v.numpy().ravel() for v in agent.forward.trained]), theta, atol=1e-5)

    def test_equal_returns_move_nothing_but_by_the_decay(self, plain_graphs):
        agent = make('ES', weight_decay=0.0)
        before = parameters(agent)
        assert agent.update(judged(np.full((4, 2), 500.0)))['gradient_norm'] == 0
        np.testing.assert_array_equal(parameters(agent), before)


class TestARS:
    @pytest.mark.parametrize('top', [None, 2, 1])
    def test_one_update_by_numpy(self, plain_graphs, top):
        agent = make('ARS', top_directions=top, optimizers_list=None)
        before = parameters(agent)
        agent.update(judged(RETURNS))
        used = {None: [0, 1, 2, 3], 2: [3, 0], 1: [3]}[top]  # the best of each pair: 5, 0.5, 3, 9
        sigma = np.std([RETURNS[i] for i in used])
        step = sum((RETURNS[i][0] - RETURNS[i][1]) * direction(100 + i, before.size).astype(np.float64) for i in used)
        np.testing.assert_allclose(parameters(agent), before + 0.02 / (len(used) * sigma) * step, atol=1e-6)

    def test_a_bonus_for_being_alive_can_be_taken_off(self, plain_graphs):
        plain, offset = make('ARS'), make('ARS', alive_bonus_offset=-1.0)
        lengths = np.array([[10, 60], [20, 20], [40, 20], [100, 80]])  # of two episodes each
        offset.update(judged(RETURNS, lengths, episodes=2))
        plain.update(judged(np.array(RETURNS) - lengths / 2))
        np.testing.assert_allclose(parameters(offset), parameters(plain), atol=1e-6)

    def test_equal_returns_move_nothing(self, plain_graphs):
        agent = make('ARS')
        before = parameters(agent)
        agent.update(judged(np.full((4, 2), 500.0)))
        np.testing.assert_array_equal(parameters(agent), before)

    def test_the_policy_is_linear_and_begins_at_zero(self):
        agent = algorithms.ARS(VECTOR, Discrete(3))
        assert agent.net_list[0]['hidden'] == [] and agent.forward.numpy.packed.shape == (3 * 3 + 3,)
        assert not agent.forward.numpy.packed.any()

    def test_more_top_directions_than_there_are(self):
        with pytest.raises(ValueError, match=r'^top_directions is 5, but there are 4 directions .*at most as many\.$'):
            make('ARS', top_directions=5)


@pytest.mark.parametrize('name', ['ES', 'ARS'])
class TestBoth:
    def test_statistics_take_in_what_was_observed(self, plain_graphs, name):
        agent = make(name, normalize_obs=True)
        rng = np.random.default_rng(0)
        first, second = rng.normal(3.0, 2.0, (50, 3)), rng.normal(-1.0, 1.0, (80, 3))
        agent.statistics[''].update(first)
        observed = np.stack([moments_of(x, 3) for x in second.reshape(8, 10, 3)]).reshape(4, 2, 3, 3)
        agent.update(judged(RETURNS, observed={'': observed}))
        expected = RunningMoments(3)
        expected.update(np.concatenate([first, second]))
        assert agent.statistics[''].count == 130
        np.testing.assert_allclose(agent.statistics[''].mean, expected.mean, atol=1e-9)
        np.testing.assert_allclose(agent.statistics[''].scale, expected.scale, atol=1e-9)

    def test_the_deviation_of_a_clock_keeps_its_digits(self, plain_graphs, name):
        class Clock(gymnasium.Env):
            observation_space, action_space = Box(-np.inf, np.inf, (1,), np.float64), Discrete(2)

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.now = 1.7e9
                return np.array([self.now]), {}

            def step(self, action):
                self.now += 1
                return np.array([self.now]), float(action), False, self.now == 1.7e9 + 50, {}

        env = zoo.build_env(Clock)
        agent = getattr(algorithms, name)(env.observation_space, env.action_space, num_directions=2, normalize_obs=True)
        agent.learn(env, 'train', train_steps=400, run_dir=False, verbose=0)
        assert 1 / agent.statistics[''].scale == pytest.approx(np.std(np.arange(50)), rel=1e-5)

    def test_what_only_losses_teach_is_refused(self, plain_graphs, name):
        with pytest.raises(ValueError, match=r'statistics that are learned from batches.*: leave out batch norm'):
            make(name, net_list=[{'hidden': [4], 'normalize': 'batch_renorm'}])
        layer = keras.layers.Dense(4, kernel_regularizer='l2')
        with pytest.raises(ValueError, match=r'adds terms to a loss, .* has no loss: leave them out\.$'):
            make(name, net_list=[keras.Sequential([keras.Input((3,)), layer])])
        with pytest.raises(ValueError, match=r'is recurrent, which .* cannot learn with'):
            make(name, net_list=[{'hidden': [4], 'recurrent': 'lstm'}])

    def test_a_mask_of_another_size_is_refused(self, name):
        space = Dict(pose=VECTOR, action_mask=MultiBinary(4))
        with pytest.raises(ValueError, match=r"'action_mask' has 4 entries, but there are 3 actions"):
            getattr(algorithms, name)(space, Discrete(3))

    def test_names_of_elsewhere_are_known(self, name):
        with pytest.raises(ValueError, match=r"'sigma': it is called 'noise_std' here"):
            make(name, sigma=0.1)
        with pytest.raises(ValueError, match=r"'population_size': it is twice num_directions"):
            make(name, population_size=8)
        with pytest.raises(ValueError, match=r'num_directions is 0'):
            make(name, num_directions=0)

    @pytest.mark.full(but='ES')
    def test_learns_to_aim(self, plain_graphs, name):
        env = build_env(toys.Aim, 'gymnasium')
        agent = getattr(algorithms, name)(
            env.observation_space,
            env.action_space,
            net_list=[{'hidden': []}],
            optimizers_list=[{'name': 'SGD', 'learning_rate': 0.1}] if name == 'ARS' else [{'learning_rate': 0.03}],
            num_directions=8,
            noise_std=0.1,
            **({'weight_decay': 0.0} if name == 'ES' else {}),
        )
        agent.learn(env, seed=0, train_steps=6000, episodes_per_evaluation=4, run_dir=False, verbose=0)
        single = build_env(toys.Aim, 'gymnasium', seed=1000)
        returns = agent.learn(single, 'test', test_episodes=50, seed=1).returns
        assert np.mean(returns) >= -0.1  # the best without looking is -5/12

    def test_train_steps_are_those_of_the_environment_and_a_generation_is_whole(self, plain_graphs, name):
        env = build_env('CartPole-v1', seed=0)
        agent = getattr(algorithms, name)(env.observation_space, env.action_space, num_directions=3)
        result = agent.learn(env, seed=0, train_steps=200, run_dir=False, verbose=0, episodes_per_evaluation=2)
        assert result.episodes % 12 == 0 and result.steps == agent.steps == sum(result.returns) >= 200
        assert set(result.losses) == set(agent.metric_names)

    @pytest.mark.full
    def test_resumed_as_if_uninterrupted(self, plain_graphs, name, tmp_path: Path):
        def run(stop: int | None) -> Any:
            env = build_env('CartPole-v1', seed=0, max_episode_steps=20)
            agent = getattr(algorithms, name)(
                env.observation_space,
                env.action_space,
                net_list=[{'hidden': [4], 'seed': 0}],
                num_directions=2,
                normalize_obs=True,
            )

            def interrupt(training: Any) -> None:
                if stop is not None and training.steps >= stop:
                    raise TimeoutError

            few = {
                'train_steps': 600,
                'checkpoint_every': 100,
                'exact_resume': True,
                'log_every': 100,
                'verbose': 0,
            }
            folder = tmp_path / f'{stop}'
            try:
                agent.learn(env, seed=5, run_dir=folder, callbacks=[interrupt], **few)
            except TimeoutError:
                agent = zoo.load(sorted((folder / 'checkpoints').iterdir())[0])
                assert 0 < agent.steps < 400
                agent.learn(build_env('CartPole-v1', seed=9, max_episode_steps=20), resume=True, run_dir=False, **few)
            return agent

        whole, resumed = run(None).state(), run(300).state()
        for key, array in whole.items():
            np.testing.assert_array_equal(resumed[key], array, err_msg=key)
