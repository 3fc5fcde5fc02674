"""GAIL and GAILTRPO: the discriminator's update by NumPy, rewards, what it sees, and that it imitates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
import toys
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir
from rollouts import rollout

import zoo
from zoo.algorithms import GAIL, GAILTRPO, PPO
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.datasets.writing import written

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
SGD = {'name': 'SGD', 'learning_rate': 0.1}
SEED = tf.constant([3, 4])

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(cls: Any = GAIL, action_space: Any = None, **params: Any) -> Any:
    """An agent with small networks whose biases are not zero."""
    params = {'net_list': [{'hidden': [5], 'seed': i, 'activation': 'tanh'} for i in range(3)]} | params
    space = Discrete(2) if action_space is None else action_space
    agent = cls(VECTOR, space, **({'optimizers_list': [SGD] * 2} | params))
    for i, network in enumerate(agent.networks.values()):
        stir(network.variables, seed=i)
    agent.forward.refresh()
    return agent


def recorded(path: Path, action_space: Any, episodes: int = 3, length: int = 6) -> Path:
    """Random episodes of an expert."""
    rng = np.random.default_rng(0)
    action_space.seed(0)
    return written(
        path,
        VECTOR,
        action_space,
        None,
        [
            RecordedEpisode(
                rng.normal(size=(length + 1, 3)).astype(np.float32),
                np.stack([action_space.sample() for _ in range(length)]),
                rng.normal(size=length).astype(np.float32),
                bool(i % 2),
                not i % 2,
            )
            for i in range(episodes)
        ],
    ).path


def steps(seed: int, count: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Observations and one-hot actions."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 3)).astype(np.float32), np.eye(2, dtype=np.float32)[rng.integers(2, size=count)]


class Judge:
    """A discriminator of one hidden layer of tanh in float64, with its slope in the inputs."""

    def __init__(self, agent: Any) -> None:
        self.network = NumpyNetwork(agent.networks['discriminator'])

    def logit(self, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        return self.network(obs, action)[:, 0]

    def slopes(self, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        first, bias, last, _ = self.network.weights
        hidden = np.tanh(np.concatenate([obs, action], -1) @ first + bias)
        return ((1 - hidden**2) * last[:, 0]) @ first.T

    def loss(self, expert: Any, policy: Any, part: np.ndarray, weight: float) -> float:
        cross = np.log1p(np.exp(-self.logit(*expert))).mean() + np.log1p(np.exp(self.logit(*policy))).mean()
        points = [part[:, None] * x + (1 - part[:, None]) * y for x, y in zip(expert, policy, strict=True)]
        return cross + weight * np.mean((np.linalg.norm(self.slopes(*points), axis=-1) - 1) ** 2)


class TestDiscriminator:
    @pytest.mark.parametrize('weight', [0.0, 10.0])
    def test_one_step_computed_again(self, weight):
        """The cross-entropy and the penalty on the slope between expert and policy, both differentiated."""
        agent = make(gradient_penalty=weight, max_grad_norm=None)
        judge, expert, policy = Judge(agent), steps(0), steps(1)
        part = tf.random.stateless_uniform([6], SEED).numpy().astype(np.float64)
        assert 0 < part.min() < part.max() < 1
        expected = [
            w - 0.1 * g
            for w, g in zip(
                judge.network.weights,
                finite_differences(lambda: judge.loss(expert, policy, part, weight), judge.network.weights),
                strict=True,
            )
        ]
        cross = judge.loss(expert, policy, part, 0.0)
        right = np.mean([*(judge.logit(*expert) > 0), *(judge.logit(*policy) < 0)])
        rows = np.arange(6, dtype=np.int32)[None]
        shown = tuple(tf.constant(x[None]) for x in expert)
        found = agent.update_discriminator(*map(tf.constant, policy), rows, shown, SEED)
        assert [float(x) for x in found] == pytest.approx([cross, right], rel=1e-5)
        assert_close(agent.discriminator.variables, expected, 1e-5, 1e-5)

    def test_steps_take_the_rows_that_are_drawn(self):
        one, other = make(gradient_penalty=0.0), make(gradient_penalty=0.0)
        policy, expert = steps(1), steps(0)
        shown = tuple(np.stack([x[:2], x[2:4]]) for x in expert)
        one.update_discriminator(*policy, np.int32([[5, 1], [0, 3]]), shown, SEED)
        for rows, k in (([5, 1], 0), ([0, 3], 1)):
            taken = [x[rows] for x in policy]
            other.update_discriminator(*taken, np.int32([[0, 1]]), tuple(x[k : k + 1] for x in shown), SEED)
        assert_close(one.discriminator.variables, copies(other.discriminator.variables))

    @pytest.mark.parametrize(
        ('form', 'function'),
        [
            ('positive', lambda d: -np.log(1 - d)),
            ('negative', np.log),
            ('logit', lambda d: np.log(d) - np.log(1 - d)),
        ],
    )
    def test_rewards(self, form, function):
        agent = make(reward_form=form)
        judged = 1 / (1 + np.exp(-Judge(agent).logit(*steps(2))))
        np.testing.assert_allclose(agent.reward(*steps(2)), function(judged), rtol=1e-4)

    def test_a_recurrent_one_is_refused(self):
        with pytest.raises(ValueError, match=r'^net_list\[2\] \(discriminator\) is recurrent, but it judges single'):
            make(net_list=[{}, {}, {'recurrent': 'lstm'}])

    def test_embedded_observations_and_images(self, tmp_path):
        """Between two indices lies nothing, and images are scaled: both have a penalty all the same."""
        space = Dict(room=Discrete(1000), camera=Box(0, 255, (8, 8, 3), np.uint8))
        env = toys.AnySpaces(space, Discrete(2))
        agent = GAIL(space, Discrete(2), net_list=[{'hidden': [4], 'features': 4}] * 3)
        path = of_env(env, tmp_path / 'data.npz')
        losses = agent.learn(env, dataset=path, **SHORT).losses
        assert all(map(np.isfinite, losses.values()))


def of_env(env: Any, path: Path, episodes: int = 3) -> Path:
    """Random episodes of an environment, recorded."""
    agent = PPO(env.observation_space, env.action_space, net_list=[{'hidden': [4], 'features': 4}] * 2)
    zoo.record_episodes(agent, env, path, episodes, seed=0)
    return path


SHORT = {
    'train_steps': 24,
    'horizon': 12,
    'batch_size': 4,
    'discriminator_updates': 2,
    'discriminator_batch': 3,
    'run_dir': False,
    'verbose': 0,
    'seed': 0,
}


class TestEncodedActions:
    def test_choices_are_one_hot_and_boxes_as_the_environment_takes_them(self):
        space = Dict(
            arm=Box(np.float32([-2, 0]), np.float32([2, 10])),
            free=Box(0.0, np.inf, (1,), np.float32),
            gears=MultiDiscrete([2, 3], start=[4, 0]),
            grip=Discrete(3, start=-1),
            lights=MultiBinary(2),
        )
        adaptor = ActionAdaptor(space)
        stored = {
            'arm': np.float32([[0.5, -7.0], [1.5, 0.25]]),
            'free': np.float32([[-3.0], [40.0]]),
            'gears': np.int32([[1, 2], [0, 0]]),
            'grip': np.int32([2, 0]),
            'lights': np.int32([[0, 1], [1, 1]]),
        }
        assert adaptor.encoded_size == 13
        np.testing.assert_allclose(
            adaptor.encoded(stored),
            [[0.5, -1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1], [1, 0.25, 40, 1, 0, 1, 0, 0, 1, 0, 0, 1, 1]],
            atol=1e-6,
        )

    def test_whole_numbers_are_rounded_as_the_environment_takes_them(self):
        adaptor = ActionAdaptor(Box(0, 10, (1,), np.int64))
        np.testing.assert_allclose(adaptor.encoded(np.float32([[0.07], [0.18]])), [[0.0], [0.2]], atol=1e-6)


@pytest.mark.parametrize('cls', [GAIL, GAILTRPO])
class TestIteration:
    def test_the_environments_rewards_are_not_read(self, cls, tmp_path):
        path, found = recorded(tmp_path / 'data.npz', Discrete(2)), []
        for scale in (1.0, -50.0):
            agent = make(cls)
            agent.reseed(0, 'agent')
            data = rollout(agent)
            agent.update(data._replace(reward=scale * data.reward), dataset=path, batch_size=5)
            found.append(copies([v for network in agent.networks.values() for v in network.variables]))
        assert_close(*found, 0, 0)

    def test_the_policy_moves_by_the_rewards_of_the_discriminator(self, cls, tmp_path):
        """The same as the algorithm below, given the rewards of the discriminator after its steps."""
        path = recorded(tmp_path / 'data.npz', Discrete(2))
        agent, base = make(cls), cls.__mro__[2]
        data = rollout(agent)
        below = base(VECTOR, Discrete(2), net_list=[{'hidden': [5]}] * 2, optimizers_list=[SGD])
        for name in ('actor', 'critic'):
            for variable, own in zip(below.networks[name].variables, agent.networks[name].variables, strict=True):
                variable.assign(own)
        agent.rng, below.rng = np.random.default_rng(0), np.random.default_rng(0)
        metrics = agent.update(data, dataset=path, batch_size=5)
        obs, action = data.obs.reshape(-1, 3), agent.action_adaptor.encoded(data.action.reshape(-1))
        reward = agent.reward(obs, action).numpy()
        assert metrics['reward'] == pytest.approx(reward.mean(), rel=1e-5)
        # The same draws come first: the expert's steps and the rows of the policy.
        valid = np.flatnonzero(data.valid)
        agent.experts[1].sample((10, 256), below.rng), below.rng.choice(valid, (10, 256))
        below.update(data._replace(reward=reward.reshape(data.reward.shape)), batch_size=5)
        for name in ('actor', 'critic'):
            assert_close(agent.networks[name].variables, copies(below.networks[name].variables), 1e-4, 1e-5)

    def test_invalid_rows_are_not_shown_to_the_discriminator(self, cls, tmp_path):
        path, found = recorded(tmp_path / 'data.npz', Discrete(2)), []
        for value in (0.0, 100.0):
            agent = make(cls)
            agent.reseed(0, 'agent')
            data = rollout(agent)
            obs = np.where(data.valid[..., None], data.obs, np.float32(value))
            agent.update(data._replace(obs=obs), dataset=path, batch_size=5)
            found.append(copies(agent.discriminator.variables))
        assert_close(*found, 0, 0)

    def test_nothing_happens_where_every_copy_was_only_reset(self, cls, tmp_path):
        path, agent = recorded(tmp_path / 'data.npz', Discrete(2)), make(cls)
        data = rollout(agent)
        assert agent.update(data._replace(valid=np.zeros_like(data.valid)), dataset=path) is None

    def test_needs_a_dataset(self, cls):
        env = toys.Aim()
        agent = cls(env.observation_space, env.action_space, net_list=[{'hidden': [4]}] * 3)
        told = rf"^{cls.__name__} needs recorded episodes of an expert: agent\.learn\(env, 'train', dataset=…\)\.$"
        with pytest.raises(ValueError, match=told):
            agent.learn(env, **SHORT)

    def test_a_dataset_of_other_spaces_is_refused_before_a_step(self, cls, tmp_path):
        path, env = recorded(tmp_path / 'data.npz', Discrete(2)), toys.Aim()
        agent = cls(env.observation_space, env.action_space, net_list=[{'hidden': [4]}] * 3)
        with pytest.raises(ValueError, match=r'the observation_space .*: record episodes in an environment'):
            agent.learn(env, dataset=path, **SHORT)
        assert agent.steps == 0

    def test_trains_from_a_run_and_resumes(self, cls, tmp_path):
        env = zoo.build_env('CartPole-v1')
        path = of_env(env, tmp_path / 'data.npz')
        agent, result = zoo.train(
            cls.__name__, 'CartPole-v1', net=[8], run_dir=tmp_path / 'run', dataset=path, evaluate=False,
            **{name: value for name, value in SHORT.items() if name not in ('run_dir', 'seed')} | {'train_steps': 240},
        )  # fmt: skip
        run = zoo.open_run(result.run_dir)
        assert run.train_steps == 240 and run.dataset is None and run.config['learn_params']['dataset'] == [str(path)]
        assert result.returns and len(run.curve[1]) == len(result.returns)  # of the environment
        again, _ = zoo.resume(run, train_steps=264, verbose=0)
        assert again.steps == 264

    def test_the_same_seed_gives_the_same_weights(self, cls, tmp_path):
        env = toys.Aim()
        path, found = of_env(env, tmp_path / 'data.npz'), []
        for _ in range(2):
            specs = [{'hidden': [4], 'seed': i} for i in range(3)]
            agent = cls(env.observation_space, env.action_space, net_list=specs)
            agent.learn(env, dataset=path, **SHORT)
            found.append(agent.network_weights())
        assert all((found[0][name] == found[1][name]).all() for name in found[0])


def test_a_recurrent_policy_with_a_discriminator_of_single_steps(tmp_path):
    env = zoo.build_env('CartPole-v1')
    path = of_env(env, tmp_path / 'data.npz')
    alg_params, learn_params = zoo.call_default_params(env, None, 'GAIL', seed=0, recurrent='gru')
    agent = GAIL(**alg_params)
    assert [network.state_size > 0 for network in agent.networks.values()] == [True, True, False]
    own = {'dataset': path, 'horizon': 64, 'train_steps': 64, 'batch_size': 32}
    agent.learn(env, **learn_params | SHORT | own)
    assert agent.weights_are_finite()


class Follow(gymnasium.Env):
    """Ten steps; the expert does what it sees, but the environment pays for the opposite."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def _observe(self) -> np.ndarray:
        self.right = int(self.np_random.integers(2))
        return np.float32([2 * self.right - 1])

    def step(self, action: Any) -> Any:
        reward = float(action != self.right)
        self.t += 1
        return self._observe(), reward, False, self.t == 10, {}


@pytest.mark.parametrize('cls', [GAIL, GAILTRPO])
@pytest.mark.parametrize('form', ['positive', 'logit'])
def test_imitates_an_expert_against_the_environments_reward(cls, form, tmp_path):
    env, rng, episodes = Follow(), np.random.default_rng(0), []
    for _ in range(5):
        seen = rng.choice(np.float32([-1, 1]), (11, 1))
        episodes.append(RecordedEpisode(seen, (seen[:-1, 0] > 0).astype(int), np.zeros(10, np.float32), False, True))
    path = written(tmp_path / 'data.npz', env.observation_space, env.action_space, None, episodes).path
    specs = [{'hidden': [16], 'seed': i} for i in range(3)]
    agent = cls(
        env.observation_space,
        env.action_space,
        net_list=specs,
        optimizers_list=[{'name': 'Adam', 'learning_rate': 3e-3}] * 2,
        reward_form=form,
        gamma=0.5,
    )
    learn = {
        'train_steps': 4000,
        'horizon': 200,
        'batch_size': 50,
        'discriminator_batch': 50,
        'discriminator_updates': 50,
    }
    result = agent.learn(env, dataset=path, seed=0, run_dir=False, verbose=0, **learn)
    assert np.mean(result.returns[:10]) > 3.0  # the log has the environment's returns
    assert np.mean(agent.learn(env, 'test', test_episodes=10, seed=1).returns) == 0.0
