"""The probabilities of played actions, and recordings that hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from gymnasium.vector import SyncVectorEnv
from toys import ACTIONS, AnySpaces

import zoo
from zoo.algorithms import DQN, PPO, SAC, TD3
from zoo.common import spaces
from zoo.common.acting import probabilities
from zoo.common.adaptors.action import ActionAdaptor

TINY = {'hidden': [6], 'seed': 0}
VECTOR, CHOICE, SQUARE = Box(-1.0, 1.0, (3,), np.float32), Discrete(2), Box(-2.0, 2.0, (2,), np.float32)


def ppo(obs: Any = VECTOR, act: Any = CHOICE, **params: Any) -> PPO:
    return PPO(obs, act, net_list=[TINY, {'hidden': [6], 'seed': 1}], **params)


def recorded(agent: Any, episodes: int = 6, path: Any = None, deterministic: bool = False) -> zoo.Dataset:
    env = AnySpaces(agent.observation_space, agent.action_space)
    return zoo.record_episodes(agent, env, path, episodes, deterministic, seed=0)


def log_prob(agent: Any, one: zoo.RecordedEpisode, explores: bool = True) -> np.ndarray:
    obs = spaces.tree_map(lambda x: x[:-1], one.obs)
    return probabilities.log_prob_of(agent, obs, one.action, True, explores)


class TestLogProb:
    @pytest.mark.parametrize('act', ACTIONS)
    @pytest.mark.parametrize('recurrent', [False, True])
    def test_are_those_of_a_rollout(self, act, recurrent):
        """The distributions of TensorFlow gave these; a density there is per half range of a bounded Box."""
        net = {'hidden': [5], 'recurrent': 'gru'} if recurrent else TINY
        space = ACTIONS[act]
        agent = PPO(VECTOR, space, net_list=[net | {'seed': 0}, 'actor' if recurrent else TINY], log_std_init=-2.0)
        played = agent.rollout(AnySpaces(VECTOR, space), episodes=3, seed=0)
        densities = [
            np.log((leaf.high - leaf.low) / 2).sum() for leaf in spaces.leaves(space).values() if isinstance(leaf, Box)
        ]
        rows = iter(played.log_prob[:, 0])
        for one in zoo.open_dataset([played]):
            found = log_prob(agent, one)
            expected = [next(rows) - sum(densities) for _ in one.reward]
            np.testing.assert_allclose(found, expected, atol=2e-4)

    def test_squashed_gaussian(self):
        agent = SAC(VECTOR, SQUARE, net_list=[TINY] * 3)
        data = recorded(agent)
        one = data[0]
        params = agent.policy(tf.constant(one.obs[:-1]))
        stored = agent.action_adaptor.from_env(one.action)
        expected = agent.action_adaptor.distribution.log_prob(params, stored).numpy() - 2 * np.log(2.0)
        found = log_prob(agent, one)
        np.testing.assert_allclose(found, expected, atol=1e-3)

    def test_a_clipped_gaussian_has_probabilities_at_its_bounds(self):
        """With the density between them they add up to 1."""
        adaptor = ActionAdaptor(Box(-1.0, 3.0, (1,), np.float32))
        inside = np.linspace(-1.0, 1.0, 20_001)[1:-1]
        params = np.tile([0.4, np.log(0.8)], (len(inside), 1))
        density = np.exp(probabilities.log_prob_of_params(adaptor, params, inside[:, None]))
        ends = np.exp(probabilities.log_prob_of_params(adaptor, params[:2], np.array([[-1.0], [1.0]])))
        assert ends == pytest.approx([0.0400592, 0.2266274], rel=1e-5)  # Φ(−1.75), Φ(−0.75)
        assert ends.sum() + density.sum() * 4 / 20_000 == pytest.approx(1.0, abs=1e-4)

    def test_of_a_far_bound(self):
        z = np.array([10.0, 29.9, 30.1, 100.0])
        found = probabilities._log_tail(z)
        # log(1 − Φ(10)) = −53.2312852; and far out −z²/2 − log z − log √2π up to 1/z².
        assert found[0] == pytest.approx(-53.2312852, rel=1e-8)
        asymptotic = -0.5 * z**2 - np.log(z) - 0.5 * np.log(2 * np.pi)
        np.testing.assert_allclose(found[1:], asymptotic[1:], atol=2e-3)

    def test_epsilon_greedy(self):
        """(1 − ε) + ε / 3 for the best action, ε / 3 for others; of allowed ones if some are masked."""
        space = Dict(x=VECTOR, action_mask=MultiBinary(3))
        agent = DQN(space, Discrete(3, start=1), net_list=[TINY], epsilon=0.3)
        obs = {
            'x': np.full((4, 3), 0.1, np.float32),
            'action_mask': np.array([[1, 1, 1]] * 2 + [[1, 0, 1]] * 2, np.int8),
        }
        values = agent.forward(spaces.tree_map(lambda x: x[:-1], obs))
        actions = np.array([values[0].argmax(), (values[1].argmax() + 1) % 3, values[2].argmax()]) + 1
        ended = {'reward': np.ones(3), 'terminated': True, 'truncated': False}
        (one,) = zoo.open_dataset([{'obs': obs, 'action': actions, **ended}], space, Discrete(3, start=1))
        found = np.exp(log_prob(agent, one))
        assert found == pytest.approx([0.8, 0.1, 0.85])
        greedy = log_prob(agent, one, explores=False)
        assert greedy.tolist() == [0.0, -np.inf, 0.0]

    def test_noise_around_a_deterministic_action(self):
        """TD3 records, and SAC is judged: both densities per unit of the environment's actions."""
        agent = TD3(VECTOR, SQUARE, net_list=[TINY] * 3, explore_noise=0.2)
        one = recorded(agent)[0]
        mean = agent.predict(one.obs[:-1])
        inside = (np.abs(one.action) < 2).all(-1)
        z = (one.action - mean) / 0.4
        expected = (-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - np.log(0.4)).sum(-1)
        found = log_prob(agent, one)
        assert inside.any()
        np.testing.assert_allclose(found[inside], expected[inside], atol=1e-3)
        judged = zoo.estimate_return(SAC(VECTOR, SQUARE, net_list=[TINY] * 3), recorded(agent), 'wpdis', agent, seed=0)
        assert np.isfinite([judged.mean, judged.low, judged.high]).all()

    def test_a_squashed_gaussian_has_probabilities_at_its_bounds(self):
        """With the density between them they add up to 1, also where much of it is at a bound."""
        adaptor = ActionAdaptor(Box(-1.0, 3.0, (1,), np.float32), squash=True)
        edge = np.arctanh(1 - 1e-6) - 1e-4
        u = np.linspace(-edge, edge, 40_001)
        inside = np.tanh(u)
        params = np.tile([6.5, np.log(2.0)], (len(u), 1))
        density = np.exp(probabilities.log_prob_of_params(adaptor, params, inside[:, None]))
        ends = np.exp(probabilities.log_prob_of_params(adaptor, params[:2], np.array([[-1.0], [1.0]])))
        assert ends[1] == pytest.approx(0.35316, abs=2e-3)  # Φ((6.5 − artanh(1 − 1e-6)) / 2)
        between = np.trapezoid(density * 2 * (1 - inside**2), u)  # 2: half of the range, in which the density is
        assert ends.sum() + between == pytest.approx(1.0, abs=1e-3)


class TestRecordings:
    @pytest.mark.parametrize('form', ['memory', 'data.npz', 'data'])
    @pytest.mark.parametrize('act', ['Discrete', 'Box'])
    def test_of_a_stochastic_agent(self, tmp_path, form, act):
        agent = ppo(VECTOR, {'Discrete': CHOICE, 'Box': SQUARE}[act])
        data = recorded(agent, path=None if form == 'memory' else tmp_path / form)
        assert len(data) == 6
        for one in data:
            assert one.log_prob.dtype == np.float32 and one.log_prob.shape == one.reward.shape
            np.testing.assert_allclose(one.log_prob, log_prob(agent, one), atol=1e-5)
        again = data[3]  # by itself
        np.testing.assert_array_equal(again.log_prob, list(data)[3].log_prob)
        np.testing.assert_array_equal(list(data[2:4])[1].log_prob, again.log_prob)

    def test_of_the_exploration(self):
        """ε-greedy actions of DQN, and the noise of TD3."""
        dqn = DQN(VECTOR, Discrete(3), net_list=[TINY], epsilon=0.3)
        found = np.exp(np.concatenate([one.log_prob for one in recorded(dqn)]))
        assert len(found) == 30 and (found > 0.5).any()
        np.testing.assert_allclose(found, np.where(found > 0.5, 0.8, 0.1), rtol=1e-5)
        td3 = TD3(VECTOR, SQUARE, net_list=[TINY] * 3, explore_noise=0.2)
        (one, *_) = recorded(td3)
        np.testing.assert_allclose(one.log_prob, log_prob(td3, one), atol=1e-5)

    def test_recurrent_of_several_copies(self):
        agent = PPO(VECTOR, CHOICE, net_list=[{'hidden': [4], 'recurrent': 'gru'}, 'actor'])
        env = SyncVectorEnv([lambda: AnySpaces(VECTOR, CHOICE)] * 2)
        data = zoo.record_episodes(agent, env, None, 6, deterministic=False, seed=0)
        for one in data:
            state, expected = agent.initial_state(), []
            for obs, action in zip(one.obs, one.action, strict=False):
                logits, state = agent.forward.step(obs[None], state)
                expected.append(tf.nn.log_softmax(logits)[0, int(action)])
            np.testing.assert_allclose(one.log_prob, expected, atol=1e-5)

    def test_of_what_draws_nothing_or_has_none(self):
        assert all(one.log_prob is None for one in recorded(ppo(), deterministic=True))
        for agent in (
            TD3(VECTOR, SQUARE, net_list=[TINY] * 3, explore_noise=0.0),
            DQN(VECTOR, CHOICE, net_list=[TINY], epsilon=0.0),
            DQN(VECTOR, CHOICE, net_list=[TINY], noisy=True),
            ppo(VECTOR, SQUARE, use_sde=True),
            ppo(VECTOR, Box(0, 9, (1,), np.int64)),
        ):
            assert all(one.log_prob is None for one in recorded(agent))
        env = AnySpaces(VECTOR, CHOICE)
        assert zoo.record_episodes(lambda obs: 0, env, None, 1)[0].log_prob is None

    @pytest.mark.parametrize('form', ['data.npz', 'data'])
    @pytest.mark.parametrize('first', ['with', 'without'])
    def test_some_episodes_without(self, tmp_path, form, first):
        """Joined, saved and read again: each keeps its own."""
        agent = ppo()
        parts = [recorded(agent, 2), recorded(agent, 2, deterministic=True)]
        joined = zoo.open_dataset(parts if first == 'with' else parts[::-1])
        known = [one.log_prob is not None for one in joined]
        assert known == [first == 'with'] * 2 + [first == 'without'] * 2
        saved = joined.save(tmp_path / form)
        for one, other in zip(joined, saved, strict=True):
            assert (one.log_prob is None) == (other.log_prob is None)
            if one.log_prob is not None:
                np.testing.assert_array_equal(one.log_prob, other.log_prob)

    @pytest.mark.parametrize('form', ['data.npz', 'data'])
    def test_an_agent_learns_from_them(self, tmp_path, form):
        data = recorded(ppo(), path=tmp_path / form)
        bc = zoo.algorithms.BC(VECTOR, CHOICE, net_list=[TINY])
        result = bc.learn(None, 'train', dataset=data, train_updates=3, batch_size=4, run_dir=False, verbose=0)
        assert np.isfinite(list(result.losses.values())).all()

    @pytest.mark.parametrize('value', [np.zeros(3), [0.0, 'a'], 0.5])
    def test_a_wrong_one_is_refused(self, value):
        one = {'obs': np.zeros((3, 3), np.float32), 'action': np.zeros(2, int), 'reward': np.ones(2)}
        one |= {'terminated': True, 'truncated': False, 'log_prob': value}
        with pytest.raises(ValueError, match='in episode 0 log_prob is of shape .* but there are 2 steps'):
            zoo.open_dataset([one], VECTOR, CHOICE)

    @pytest.mark.parametrize('value', [[0.0, np.nan], [-np.inf, 0.0]])
    def test_one_that_is_not_finite_is_refused(self, value):
        one = {'obs': np.zeros((3, 3), np.float32), 'action': np.zeros(2, int), 'reward': np.ones(2)}
        one |= {'terminated': True, 'truncated': False, 'log_prob': value}
        with pytest.raises(ValueError, match='a log-probability is NaN or infinite, in episode 0'):
            list(zoo.open_dataset([one], VECTOR, CHOICE))
