"""``zoo.estimate_return``: importance sampling and fitted Q evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from toys import ACTIONS, AnySpaces, observation_space

import zoo
from zoo.algorithms import DQN, PPO, SAC, TD3
from zoo.cli import main
from zoo.experiments import importance_sampling
from zoo.experiments.fitted_q_evaluation import FQE
from zoo.experiments.off_policy_evaluation import METHODS, EstimatedReturn, _bounds

TINY = {'hidden': [6], 'seed': 0}
VECTOR, CHOICE, SQUARE = Box(-1.0, 1.0, (3,), np.float32), Discrete(2), Box(-2.0, 2.0, (2,), np.float32)

WEIGHTED = tuple(importance_sampling.METHODS)


def ppo(obs: Any = VECTOR, act: Any = CHOICE, **params: Any) -> PPO:
    return PPO(obs, act, net_list=[TINY, {'hidden': [6], 'seed': 1}], **params)


def episode(obs: Any, action: Any, reward: Any, terminated: bool = True) -> dict[str, Any]:
    return {'obs': obs, 'action': action, 'reward': reward, 'terminated': terminated, 'truncated': not terminated}


def recorded(agent: Any, episodes: int = 6) -> zoo.Dataset:
    env = AnySpaces(agent.observation_space, agent.action_space)
    return zoo.record_episodes(agent, env, None, episodes, deterministic=False, seed=0)


class TestWeights:
    """Two episodes with ratios that are worked by hand, γ = ½.

    Ratios of single steps are (2, ½) and (½, 3, 1): of whole episodes 1 and 1.5. Discounted rewards are (1, 2) and
    (0, 2, ¼): returns 3 and 2.25.
    """

    RATIOS = (np.log([2.0, 0.5]), np.log([0.5, 3.0, 1.0]))
    REWARDS = (np.array([1.0, 4.0]), np.array([0.0, 4.0, 1.0]))

    @pytest.mark.parametrize(
        ('method', 'expected'),
        [
            ('is', (1 * 3 + 1.5 * 2.25) / 2),
            ('wis', (1 * 3 + 1.5 * 2.25) / (1 + 1.5)),
            ('pdis', ((2 * 1 + 1 * 2) + (0.5 * 0 + 1.5 * 2 + 1.5 * 0.25)) / 2),
            # The first episode has ended in the third step: it has no reward there, and still its ratio of 1.
            ('wpdis', (2 * 1 + 0.5 * 0) / 2.5 + (1 * 2 + 1.5 * 2) / 2.5 + (1 * 0 + 1.5 * 0.25) / 2.5),
        ],
    )
    def test_by_hand(self, method, expected):
        found = importance_sampling.estimate(method, self.RATIOS, self.REWARDS, 0.5, seed=0)
        assert found.mean == pytest.approx(expected, rel=1e-12)
        assert found.effective == pytest.approx(2.5**2 / (1 + 1.5**2), rel=1e-12)
        assert found.low <= found.mean <= found.high

    @pytest.mark.parametrize('method', WEIGHTED)
    def test_interval_is_the_bootstrap_of_the_estimate(self, method):
        """Against one that computes the estimate of each drawn sample by itself."""
        rng = np.random.default_rng(0)
        ratios = [rng.normal(0, 0.3, n) for n in (3, 2, 5, 4, 1, 3)]
        rewards = [rng.normal(size=len(x)) for x in ratios]
        found = importance_sampling.estimate(method, ratios, rewards, 0.9, 0.8, seed=1)
        samples = []
        for counts in np.random.default_rng(1).multinomial(6, np.full(6, 1 / 6), 2000):
            chosen = np.repeat(np.arange(6), counts)
            again = [ratios[i] for i in chosen], [rewards[i] for i in chosen]
            samples.append(self.mean_of(method, *again, 0.9))
        assert (found.low, found.high) == pytest.approx(np.quantile(samples, [0.1, 0.9]), rel=1e-9)

    @staticmethod
    def mean_of(method: str, ratios: list[np.ndarray], rewards: list[np.ndarray], gamma: float) -> float:
        steps = max(map(len, ratios))
        weights = np.array([[np.exp(x[: min(t + 1, len(x))].sum()) for t in range(steps)] for x in ratios])
        found = np.array([[gamma**t * r[t] if t < len(r) else 0.0 for t in range(steps)] for r in rewards])
        if method in ('is', 'wis'):
            total = (weights[:, -1] * found.sum(1)).sum()
            return total / (len(ratios) if method == 'is' else weights[:, -1].sum())
        if method == 'pdis':
            return (weights * found).sum() / len(ratios)
        return ((weights * found).sum(0) / weights.sum(0)).sum()

    def test_own_episodes_give_their_mean_return(self):
        ratios = [np.zeros(len(x)) for x in self.REWARDS]
        for method in WEIGHTED:
            found = importance_sampling.estimate(method, ratios, self.REWARDS, 0.5, seed=0)
            assert found.mean == pytest.approx((3 + 2.25) / 2) and found.effective == 2

    def test_what_cannot_be_weighed(self):
        never = [np.array([-np.inf, 0.0]), np.array([-np.inf, 0.0, 0.0])]
        for method in WEIGHTED:
            with pytest.raises(ValueError, match=r"not have played a single one .* use method='fqe'"):
                importance_sampling.estimate(method, never, self.REWARDS, 0.5)
        far = [np.full(2, 400.0), np.zeros(3)]
        with pytest.raises(ValueError, match=r'too large for a float.*fqe'):
            importance_sampling.estimate('is', far, self.REWARDS, 0.5)


def test_a_squashed_policy_hardly_plays_a_bound_that_a_clipped_one_plays():
    agent, behavior = SAC(VECTOR, SQUARE, net_list=[TINY] * 3), ppo(VECTOR, SQUARE)
    obs, action = np.zeros((3, 3), np.float32), np.array([[2.0, 0.1], [0.3, 0.1]], np.float32)
    data = zoo.open_dataset([episode(obs, action, [1.0, 1.0])], VECTOR, SQUARE)
    (ratio,) = importance_sampling.log_ratios(agent, behavior, data, False)
    assert ratio[0] < -10 < ratio[1]


#: Two states, two actions, the end with probability 0.2 after each step; γ = 0.9.
MOVES = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.3, 0.7]]])  # [s, a, s′]
REWARDS = np.array([[0.0, 1.0], [2.0, -1.0]])
GAMMA, END = 0.9, 0.2
STATE = Discrete(2)


def choosing(log_odds: tuple[float, float], **params: Any) -> PPO:
    """A policy over two actions with these log odds of the second one in two states."""
    agent = PPO(STATE, CHOICE, net_list=[{'hidden': []}, TINY], gamma=GAMMA, **params)
    kernel, bias = agent.networks['actor'].trainable_variables
    kernel.assign(np.stack([np.zeros(2), log_odds], -1).astype(np.float32))
    bias.assign(np.zeros(2, np.float32))
    return agent


def exact(log_odds: tuple[float, float], end: float = END) -> np.ndarray:
    """V of both states by a linear system."""
    second = 1 / (1 + np.exp(-np.array(log_odds)))
    prob = np.stack([1 - second, second], -1)
    moves, rewards = np.einsum('sa,sat->st', prob, MOVES), (prob * REWARDS).sum(-1)
    return np.linalg.solve(np.eye(2) - GAMMA * (1 - end) * moves, rewards)


def walks(count: int, seed: int = 0) -> zoo.Dataset:
    """Episodes of actions by chance, from both states alike."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        states, actions, rewards = [int(rng.integers(2))], [], []
        while not rewards or rng.random() > END:
            action = int(rng.integers(2))
            actions.append(action)
            rewards.append(REWARDS[states[-1], action])
            states.append(int(rng.random() < MOVES[states[-1], action, 1]))
        found.append(episode(np.array(states), np.array(actions), np.array(rewards)))
    return zoo.open_dataset(found, STATE, CHOICE)


class TestTwoStates:
    ODDS = (0.5, -0.6)

    @pytest.mark.parametrize('method', WEIGHTED)
    def test_importance_sampling_has_the_exact_value_in_its_interval(self, method):
        data = walks(1000)
        found = zoo.estimate_return(choosing(self.ODDS), data, method, choosing((0.0, 0.0)), seed=0)
        starts = np.mean([exact(self.ODDS)[int(one.obs[0])] for one in data])
        assert found.low < starts < found.high
        assert found.high - found.low < 1.0
        assert 100 < found.effective_sample_size < 1000
        assert found.gamma == GAMMA and found.losses is None
        # by a function of the episode that says the same
        again = zoo.estimate_return(
            choosing(self.ODDS), data, method, lambda one: np.full(len(one.reward), np.log(0.5)), seed=0
        )
        assert again.mean == pytest.approx(found.mean, rel=1e-5)

    def test_fitted_q_evaluation_has_the_exact_value_in_its_interval(self):
        data = walks(400)
        few = {'train_updates': 1500, 'batch_size': 64, 'net_list': [{'hidden': [16]}], 'tau': 0.05}
        slow = [{'name': 'Adam', 'learning_rate': 1e-3}]
        agent = choosing(self.ODDS)
        before = agent.network_weights()
        found = zoo.estimate_return(agent, data, refits=4, seed=0, optimizers_list=slow, **few)
        starts = np.mean([exact(self.ODDS)[int(one.obs[0])] for one in data])
        assert found.low < starts < found.high
        assert found.high - found.low < 1.0
        assert found.effective_sample_size is None and set(found.losses) == {'loss', 'q'}
        assert all(np.array_equal(x, before[name]) for name, x in agent.network_weights().items())

    def test_the_dataset_has_its_own_discounted_return(self):
        data = walks(20)
        found = zoo.estimate_return(choosing((0.0, 0.0)), data, 'is', choosing((0.0, 0.0)), seed=0)
        own = np.mean([sum(GAMMA**t * r for t, r in enumerate(one.reward)) for one in data])
        assert found.dataset_return == pytest.approx(own, rel=1e-6)
        assert found.mean == pytest.approx(own, rel=1e-6)  # its own episodes
        assert f'estimated discounted return (gamma=0.9): {found.mean:.6g}' in found.summary()
        whole = zoo.estimate_return(choosing((0.0, 0.0)), data, 'is', choosing((0.0, 0.0)), gamma=1, seed=0)
        assert whole.mean == pytest.approx(data.returns.mean(), rel=1e-6)
        assert whole.summary().startswith('estimated return: ')

    @pytest.mark.parametrize('method', WEIGHTED)
    @pytest.mark.parametrize('act', [CHOICE, SQUARE])
    def test_recorded_probabilities_say_what_the_agent_says(self, method, act):
        """Also where actions are clipped at bounds; and what is given is taken before what is recorded."""
        recorder = ppo(VECTOR, act)
        data, agent = recorded(recorder, 20), PPO(VECTOR, act, net_list=[{'hidden': [6], 'seed': 5}, TINY])
        by_record = zoo.estimate_return(agent, data, method, seed=0)
        by_agent = zoo.estimate_return(agent, data, method, recorder, seed=0)
        assert by_record.mean == pytest.approx(by_agent.mean, rel=1e-4)
        assert by_record.effective_sample_size == pytest.approx(by_agent.effective_sample_size, rel=1e-4)
        twice = zoo.estimate_return(agent, data, method, lambda one: one.log_prob - np.log(2.0), seed=0)
        if method == 'is':  # ratios of whole episodes of five steps grow by 2⁵
            assert twice.mean == pytest.approx(32 * by_record.mean, rel=1e-4)

    def test_a_seed_fixes_the_estimate(self):
        data, agent = walks(30), choosing(self.ODDS)
        few = {'train_updates': 40, 'batch_size': 8, 'net_list': [{'hidden': [4]}]}
        one, same, other = (zoo.estimate_return(agent, data, seed=seed, **few) for seed in (1, 1, 2))
        assert one == same and one.mean != other.mean


class TestFittedQ:
    """Against exact policy evaluation in a ring of four states, each with a loop and a step to the next one."""

    @staticmethod
    def ring(ends: bool) -> list[dict[str, Any]]:
        """Every transition of the ring, one or two steps each; state 3 ends it, or the recording stops there."""
        found = []
        for state in range(4):
            for action in range(2):
                after = (state + action) % 4
                over = ends and state == 3 and action == 1
                found.append(episode(np.array([state, after]), np.array([action]), [1.0 * state - 2.0 * action], over))
        return found

    def test_whole_actions_are_valued_as_the_environment_plays_them(self):
        space = Box(0, 1, (1,), np.int32)
        agent = ppo(VECTOR, space)
        for variable in agent.networks['actor'].trainable_variables:
            variable.assign(tf.zeros_like(variable))
        agent.networks['actor'].trainable_variables[-1].assign([0.3])  # 0.65 of the range, which is played as 1
        zeros = np.zeros((2, 3), np.float32)
        data = [episode(zeros, np.array([[k % 2]]), [float(k % 2)]) for k in range(40)]
        dataset = zoo.open_dataset(data, VECTOR, space)
        few = {'train_updates': 1500, 'batch_size': 40, 'tau': 0.05, 'net_list': [{'hidden': []}]}
        fast = [{'name': 'Adam', 'learning_rate': 0.02}]
        found = zoo.estimate_return(agent, dataset, deterministic=True, seed=0, optimizers_list=fast, **few)
        assert found.mean == pytest.approx(1.0, abs=0.03)

    @pytest.mark.parametrize('ends', [True, False])
    @pytest.mark.parametrize('deterministic', [False, True])
    def test_table(self, ends, deterministic):
        agent = PPO(Discrete(4), CHOICE, net_list=[{'hidden': []}, TINY], gamma=0.8)
        kernel, bias = agent.networks['actor'].trainable_variables
        kernel.assign(np.array([[0.0, 1.0], [0.0, -0.5], [0.0, 0.2], [0.0, 0.7]], np.float32))
        bias.assign(np.zeros(2, np.float32))
        odds = np.array([1.0, -0.5, 0.2, 0.7])
        second = (odds > 0).astype(float) if deterministic else 1 / (1 + np.exp(-odds))
        matrix, rewards = np.eye(4), np.zeros(4)
        for state in range(4):
            for action, prob in ((0, 1 - second[state]), (1, second[state])):
                over = ends and state == 3 and action == 1
                matrix[state, (state + action) % 4] -= 0.8 * prob * (not over)
                rewards[state] += prob * (state - 2.0 * action)
        value = np.linalg.solve(matrix, rewards)
        data = zoo.open_dataset(self.ring(ends), Discrete(4), CHOICE)
        few = {'train_updates': 2000, 'batch_size': 64, 'tau': 0.05, 'net_list': [{'hidden': []}]}
        fast = [{'name': 'Adam', 'learning_rate': 0.01}]
        found = zoo.estimate_return(agent, data, deterministic=deterministic, seed=0, optimizers_list=fast, **few)
        assert found.mean == pytest.approx(value.mean(), abs=0.05)

    @pytest.mark.parametrize(
        ('obs', 'act', 'deterministic'),
        [('masked Dict', 'Discrete', False), ('vector', 'Dict', False)]
        + [
            pytest.param(*case, marks=pytest.mark.matrix)
            for case in [('masked Dict', 'Discrete', True), ('vector', 'Dict', True)]
            + [('vector', act, False) for act in ACTIONS if act != 'Dict']
        ],
    )
    def test_every_action_space(self, obs, act, deterministic):
        agent = ppo(observation_space(obs, ACTIONS[act]), ACTIONS[act])
        given = {'train_updates': 3, 'batch_size': 4, 'net_list': [TINY], 'seed': 0}
        found = zoo.estimate_return(agent, recorded(agent), deterministic=deterministic, **given)
        assert np.isfinite([found.mean, found.low, found.high, *found.losses.values()]).all()

    @pytest.mark.parametrize(
        ('alg', 'act', 'params'),
        [
            ('TD3', SQUARE, {'net_list': [TINY] * 3, 'normalize_obs': True}),
            pytest.param('DQN', CHOICE, {'net_list': [TINY], 'noisy': True}, marks=pytest.mark.matrix),
            pytest.param('SAC', SQUARE, {'net_list': [TINY] * 3}, marks=pytest.mark.matrix),
            pytest.param('ES', SQUARE, {'net_list': [TINY], 'num_directions': 2}, marks=pytest.mark.matrix),
        ],
    )
    def test_other_policies(self, alg, act, params):
        """Deterministic actions with their noise left out, values, normalized observations; some have no discount."""
        agent = getattr(zoo.algorithms, alg)(VECTOR, act, **params)
        given = {'gamma': 0.9, 'train_updates': 3, 'batch_size': 4, 'net_list': [TINY], 'seed': 0}
        found = zoo.estimate_return(agent, recorded(agent), **given)
        assert np.isfinite([found.mean, found.low, found.high]).all()

    @pytest.mark.parametrize('deterministic', [False, True])
    def test_the_policy_that_is_evaluated(self, deterministic):
        """Its probabilities of a Discrete, or its best action; of a Box what it would play there."""
        obs = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype(np.float32)
        agent = ppo()
        model = FQE(
            VECTOR, CHOICE, evaluated=agent, deterministic=deterministic, net_list=[TINY], center=2.0, scale=3.0
        )
        q = model.network(tf.constant(obs)).numpy()
        logits = agent.forward(obs)
        prob = np.eye(2)[logits.argmax(-1)] if deterministic else tf.nn.softmax(logits).numpy()
        value = model.value(model.network, tf.constant(obs), tf.constant([1, 2])).numpy()
        np.testing.assert_allclose(value, 2.0 + 3.0 * (prob * q).sum(-1), rtol=1e-5)
        boxed = ppo(VECTOR, SQUARE)
        model = FQE(VECTOR, SQUARE, evaluated=boxed, deterministic=deterministic, net_list=[TINY])
        drawn = model.action(tf.constant(obs), tf.constant([1, 2])).numpy()
        assert (np.abs(drawn - boxed.predict(obs) / 2) < 1e-5).all() == deterministic

    @pytest.mark.parametrize(
        ('rewards', 'terminates', 'expected'),
        [
            ((-2.0, -1.0), False, (-20.0, -10.0)),
            ((-2.0, -1.0), True, (-20.0, -1.0)),
            ((1.0, 3.0), True, (1.0, 30.0)),
            ((1.0, 3.0), False, (10.0, 30.0)),
            ((-1.0, 2.0), True, (-10.0, 20.0)),
        ],
    )
    def test_values_stay_within_what_rewards_allow(self, rewards, terminates, expected):
        assert _bounds([np.array(rewards)], 0.9, terminates) == pytest.approx(expected)
        assert _bounds([np.array(rewards)], 1.0, terminates) == (None, None)
        obs = tf.zeros([4, 3])
        for space in (CHOICE, SQUARE):
            model = FQE(VECTOR, space, evaluated=ppo(VECTOR, space), center=100.0, high=expected[1], net_list=[TINY])
            value = model.value(model.target, obs, tf.constant([1, 2])).numpy()
            np.testing.assert_allclose(value, expected[1])

    def test_noise_that_is_an_input_is_drawn(self):
        agent = zoo.algorithms.FQL(VECTOR, SQUARE)
        obs = tf.zeros([2, 3])
        for deterministic in (False, True):
            model = FQE(VECTOR, SQUARE, evaluated=agent, deterministic=deterministic, net_list=[TINY])
            one, other = (model.action(obs, tf.constant(seed)).numpy() for seed in ([1, 2], [3, 4]))
            assert (one == other).all() == (one[0] == one[1]).all() == deterministic
        with pytest.raises(ValueError, match='FQL has a policy without a density'):
            zoo.estimate_return(agent, recorded(agent), 'wis', ppo(VECTOR, SQUARE))

    def test_actions_as_vectors(self):
        """Choices are one-hot; a Box is cut off at its bounds, as an environment does."""
        space = Dict(a=Discrete(3), b=MultiDiscrete([2, 3]), c=MultiBinary(2), d=Box(-2.0, 2.0, (2,), np.float32))
        agent = ppo(VECTOR, space)
        model = FQE(VECTOR, space, evaluated=agent, net_list=[TINY])
        action = {
            'a': tf.constant([2]),
            'b': tf.constant([[1, 0]]),
            'c': tf.constant([[0, 1]]),
            'd': tf.constant([[0.5, 1.5]]),
        }
        assert model.encoded(action).numpy().tolist() == [[0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 0.5, 1]]

    def test_the_center_learns_what_values_share(self):
        """A constant reward of 1 and γ = 0.99, cut after 5 steps: 100, although the recorded returns are below 5."""
        rng = np.random.default_rng(0)
        obs, actions = rng.uniform(-1, 1, (20, 6, 3)).astype(np.float32), rng.integers(2, size=(20, 5))
        episodes = [episode(x, a, np.ones(5), False) for x, a in zip(obs, actions, strict=True)]
        few = {'train_updates': 500, 'batch_size': 32, 'net_list': [TINY]}
        found = zoo.estimate_return(ppo(), zoo.open_dataset(episodes, VECTOR, CHOICE), gamma=0.99, seed=0, **few)
        assert found.mean == pytest.approx(100, abs=3)


@pytest.fixture(scope='module')
def agent() -> PPO:
    return ppo()


@pytest.fixture(scope='module')
def data(agent: PPO) -> zoo.Dataset:
    return recorded(agent)


class TestRefusals:
    @pytest.mark.parametrize(
        ('given', 'told'),
        [
            ({'method': 'wiss'}, "unknown method 'wiss': did you mean 'wis'"),
            ({'method': 'wis', 'behavior': 3}, 'behavior is 3: give the agent that recorded'),
            ({'method': 'wis', 'behavior': lambda one: np.zeros(2)}, r'returned an array of shape \(2,\) .* 5 steps'),
            ({'method': 'wis', 'behavior': lambda one: np.full(5, -np.inf)}, 'step 0 in episode 0 no probability'),
            ({'method': 'is', 'train_updates': 5}, "train_updates is for method='fqe'"),
            ({'method': 'is', 'refits': 5}, "refits is for method='fqe'"),
            ({'behavior': lambda one: 0}, "behavior is for importance sampling, and method='fqe' needs none"),
            ({'refits': 1}, 'shows no spread'),
            ({'refits': 2.5}, 'refits'),
            ({'gamma': 1.5}, 'gamma is 1.5: give a number 0 to 1'),
            ({'confidence': 95}, 'confidence is 95: give a number between 0 and 1'),
            ({'seed': -1}, 'seed is -1'),
            ({'batchsize': 5}, "'batchsize'.*did you mean 'batch_size'"),
            ({'train_updates': 0}, 'train_updates'),
        ],
    )
    def test_a_sentence(self, agent, data, given, told):
        with pytest.raises(ValueError, match=told):
            zoo.estimate_return(agent, data, **given)

    def test_episodes_without_probabilities(self, agent, data):
        greedy = zoo.record_episodes(agent, AnySpaces(VECTOR, CHOICE), None, 2, seed=0)
        for episodes, number in ((greedy, 0), (zoo.open_dataset([data, greedy]), 6)):
            with pytest.raises(ValueError, match=rf"episode {number} holds none: .*behavior=other_agent.*method='fqe'"):
                zoo.estimate_return(agent, episodes, 'wis')

    def test_no_agent(self, data):
        with pytest.raises(ValueError, match='takes an agent, such as zoo.load'):
            zoo.estimate_return(lambda obs: 0, data)

    def test_other_spaces(self, agent, data):
        other = ppo(Box(-1.0, 1.0, (4,), np.float32))
        with pytest.raises(ValueError, match='observation_space'):
            zoo.estimate_return(other, data)
        with pytest.raises(ValueError, match='observation_space'):
            zoo.estimate_return(agent, data, 'is', other)

    def test_deterministic_policies_in_a_box(self):
        td3, stochastic = TD3(VECTOR, SQUARE, net_list=[TINY] * 3), ppo(VECTOR, SQUARE)
        data = recorded(stochastic)
        with pytest.raises(ValueError, match=r"TD3 has a deterministic policy.*: use method='fqe'"):
            zoo.estimate_return(td3, data, 'wis', stochastic)
        with pytest.raises(ValueError, match=r'deterministic=True gives recorded actions of a Box no probability'):
            zoo.estimate_return(stochastic, data, 'wis', stochastic, deterministic=True)

    def test_explorations_without_probabilities(self, agent, data):
        noisy = DQN(VECTOR, CHOICE, net_list=[TINY], noisy=True)
        with pytest.raises(ValueError, match='DQN explores by noise in its weights'):
            zoo.estimate_return(agent, data, 'is', noisy)
        ladder = zoo.algorithms.ApexDQN(VECTOR, CHOICE, net_list=[TINY])
        with pytest.raises(ValueError, match='ApexDQN explores to another degree in every copy'):
            zoo.estimate_return(agent, data, 'is', ladder)
        boxed = ppo(VECTOR, SQUARE)
        ddpg = zoo.algorithms.DDPG(VECTOR, SQUARE, net_list=[TINY] * 2, noise='ornstein_uhlenbeck')
        with pytest.raises(ValueError, match='DDPG adds noise that lasts for several steps'):
            zoo.estimate_return(boxed, recorded(boxed), 'is', ddpg)
        sde = ppo(VECTOR, SQUARE, use_sde=True)
        with pytest.raises(ValueError, match='with use_sde=True draws noise for several steps'):
            zoo.estimate_return(sde, recorded(boxed), 'is', boxed)
        with pytest.raises(ValueError, match='PPO draws noise for several steps'):
            zoo.estimate_return(boxed, recorded(boxed), 'is', sde)

    def test_rounded_actions(self):
        whole = ppo(VECTOR, Box(0, 9, (1,), np.int64))
        with pytest.raises(ValueError, match='rounded to whole numbers'):
            zoo.estimate_return(whole, recorded(whole), 'is', whole)

    def test_a_recurrent_policy(self):
        agent = PPO(VECTOR, CHOICE, net_list=[{'hidden': [4], 'recurrent': 'gru'}, 'actor'])
        with pytest.raises(ValueError, match='recurrent policy.*importance sampling'):
            zoo.estimate_return(agent, recorded(agent))
        found = zoo.estimate_return(agent, recorded(agent), 'wpdis', agent, seed=0)
        assert found.mean == pytest.approx(found.dataset_return, rel=1e-4)

    def test_no_end_and_no_discount(self, agent):
        endless = [episode(np.zeros((3, 3), np.float32), np.zeros(2, int), np.ones(2), False)]
        with pytest.raises(ValueError, match='no recorded episode terminates'):
            zoo.estimate_return(agent, zoo.open_dataset(endless, VECTOR, CHOICE), gamma=1)

    def test_cut_episodes_are_told(self, agent, caplog):
        cut = dict(episode(np.zeros((3, 3), np.float32), np.zeros(2, int), np.ones(2)), terminated=False)
        zoo.estimate_return(agent, zoo.open_dataset([cut], VECTOR, CHOICE), 'is', agent, seed=0)
        assert '1 of 1 episodes were cut before their end' in caplog.text


def test_the_command(tmp_path, capsys):
    agent = ppo()
    learned = {'train_steps': 10, 'horizon': 10, 'verbose': 0}
    agent.learn(AnySpaces(VECTOR, CHOICE), run_dir=tmp_path / 'agent', **learned)
    recorded(agent).save(tmp_path / 'data.npz')
    words = ['estimate', str(tmp_path / 'agent'), str(tmp_path / 'data.npz')]
    assert main([*words, '--updates', '5']) == 0
    assert 'by fitted Q evaluation from 6 episodes' in capsys.readouterr().out
    assert main([*words, '--method', 'wis', '--behavior', str(tmp_path / 'agent')]) == 0
    assert 'effective sample size: 6 of 6' in capsys.readouterr().out
    assert main([*words, '--method', 'wis']) == 0  # by the recorded probabilities
    assert 'effective sample size: 6 of 6' in capsys.readouterr().out
    zoo.record_episodes(agent, AnySpaces(VECTOR, CHOICE), tmp_path / 'greedy.npz', 2, seed=0)
    words[2] = str(tmp_path / 'greedy.npz')
    assert main([*words, '--method', 'wis']) != 0
    assert '--behavior RUN' in capsys.readouterr().err


@pytest.mark.parametrize(('size', 'episodes', 'little'), [(0.0, 20, True), (6.0, 6, False), (12.0, 40, False)])
def test_an_estimate_without_evidence_says_so(size, episodes, little):
    found = EstimatedReturn(99.3, 99.3, 99.3, 0.95, 'wpdis', episodes, 0.99, 12.0, size)
    assert ('The estimate says little, and its interval is too narrow' in found.summary()) == little


def test_every_method_has_a_row_in_the_help():
    for method in METHODS:
        assert f"``'{method}'``" in zoo.estimate_return.__doc__
