"""BC and MARWIL: their losses and one update computed again by NumPy in float64; β = 0; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import toys
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir
from rollouts import log_softmax

import zoo
from zoo.algorithms import BC, MARWIL
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.datasets.writing import written
from zoo.common.records import Batch, Transition

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
MIXED = Dict(arm=Box(-2.0, 2.0, (2,), np.float32), grip=Discrete(3), lights=MultiBinary(2), gears=MultiDiscrete([2, 3]))
SGD = {'name': 'SGD', 'learning_rate': 0.1}

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(cls: Any = BC, action_space: Any = MIXED, **params: Any) -> Any:
    """An agent with small networks whose biases are not zero."""
    names = cls.network_names
    params = {'net_list': [{'hidden': [5], 'seed': i} for i in range(len(names))]} | params
    agent = cls(VECTOR, action_space, **({'optimizers_list': [SGD] * len(names)} | params))
    for i, network in enumerate(agent.networks.values()):
        stir(network.variables, seed=i)
    if agent.policy.log_std is not None:
        agent.policy.log_std.assign([-0.5, 0.3])
    agent.forward.refresh()
    return agent


def batch(agent: Any, size: int = 8, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch.of(
        Transition(
            rng.normal(size=(size, 3)).astype(np.float32),
            agent.action_adaptor.random(size, rng),
            rng.normal(size=size).astype(np.float32),
            rng.normal(size=(size, 3)).astype(np.float32),
            np.arange(size) % 4 >= 2,
            np.arange(size) % 2 == 1,
        ),
        0.9,
    )


def lead(data: Batch) -> Batch:
    return tf.nest.map_structure(lambda x: np.asarray(x)[None], data)


class Reference:
    """The policy over `MIXED` in float64: parameters of its parts by their order, arm, gears, grip, lights."""

    def __init__(self, agent: Any) -> None:
        self.network = NumpyNetwork(agent.networks['actor'])
        self.log_std = np.float64(agent.policy.log_std.numpy())
        self.paths = [part.path for part in agent.action_adaptor.parts]

    @property
    def weights(self) -> list[np.ndarray]:
        return [*self.network.weights, self.log_std]

    def parts(self, obs: np.ndarray) -> dict[str, np.ndarray]:
        assert self.paths == ['arm', 'gears', 'grip', 'lights']
        return dict(zip(self.paths, np.split(self.network(obs), [2, 7, 10], 1), strict=True))

    def log_prob(self, data: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Log-density of the arm's action, and log-probability of the rest."""
        found, rows = self.parts(data.obs), np.arange(len(data.reward))
        noise = (data.action['arm'] - found['arm']) / np.exp(self.log_std)
        arm = (-0.5 * noise**2 - 0.5 * np.log(2 * np.pi) - self.log_std).sum(-1)
        rest = log_softmax(found['grip'])[rows, data.action['grip']]
        for i, logits in enumerate(np.split(found['gears'], [2], 1)):
            rest = rest + log_softmax(logits)[rows, data.action['gears'][:, i]]
        sign = 1.0 - 2.0 * data.action['lights']
        return arm, rest - np.log1p(np.exp(sign * found['lights'])).sum(-1)

    def squares(self, data: Batch) -> np.ndarray:
        return ((self.parts(data.obs)['arm'] - data.action['arm']) ** 2).sum(-1)


def check_step(agent: Any, reference: Reference, losses: list[Any], data: Batch) -> dict[str, float]:
    """One update moves each weight of the policy by −0.1 times the gradient of the loss that is meant for it."""
    gradients = [finite_differences(loss, weights) for loss, weights in losses]
    expected = [w - 0.1 * g for (_, weights), found in zip(losses, gradients, strict=True)
                for w, g in zip(weights, found, strict=True)]  # fmt: skip
    metrics = agent.update_on(lead(data))
    assert_close([*agent.networks['actor'].variables, agent.policy.log_std], expected, 1e-5, 1e-5)
    return metrics


class TestBC:
    def test_one_update_by_likelihood(self):
        agent = make()
        data, reference = batch(agent), Reference(agent)

        def loss() -> float:
            return -np.mean(sum(reference.log_prob(data)))

        value = loss()
        metrics = check_step(agent, reference, [(loss, reference.weights)], data)
        assert metrics['actor'] == pytest.approx(value, rel=1e-5)
        assert metrics['log_prob'] == pytest.approx(-value, rel=1e-5)

    def test_one_update_by_squared_errors(self):
        """The means by their squares, all else by the likelihood: the spread too."""
        agent = make(loss='mse')
        data, reference = batch(agent), Reference(agent)

        def of_network() -> float:
            return np.mean(reference.squares(data) - reference.log_prob(data)[1])

        def of_spread() -> float:
            return -np.mean(reference.log_prob(data)[0])

        value = of_network() + of_spread()
        losses = [(of_network, reference.network.weights), (of_spread, [reference.log_std])]
        assert check_step(agent, reference, losses, data)['actor'] == pytest.approx(value, rel=1e-5)

    def test_squared_errors_where_the_network_gives_the_spread_too(self):
        """A network with an output for each log standard deviation: the means' error does not depend on them."""
        import keras

        net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
        agent = BC(VECTOR, Box(-1.0, 1.0, (2,)), net_list=[net], optimizers_list=[SGD], loss='mse')
        data, kernel = batch(agent), net.layers[-1].kernel.numpy()
        mean = data.obs @ kernel[:, :2]
        slope = 2 * data.obs.T @ (mean - data.action) / 8
        agent.update_on(lead(data))
        moved = net.layers[-1].kernel.numpy()
        np.testing.assert_allclose(moved[:, :2], kernel[:, :2] - 0.1 * slope, rtol=1e-5, atol=1e-6)
        assert (moved[:, 2:] != kernel[:, 2:]).any()

    @pytest.mark.parametrize('space', [Discrete(2), MultiBinary(2), MultiDiscrete([2, 2])])
    def test_squared_errors_need_a_box(self, space):
        with pytest.raises(ValueError, match=r"^loss='mse' is for Box actions, and .* has none: give loss='log_lik"):
            BC(VECTOR, space, loss='mse')

    def test_what_nothing_reads_is_told_of(self, caplog):
        BC(VECTOR, Discrete(2), net_list=[{'hidden': [4]}], log_std_init=-1.0, burn_in=3)
        assert [record.getMessage() for record in caplog.records] == [
            'log_std_init=-1.0 changes nothing, since no action is a Box.',
            'burn_in=3 changes nothing, since no network is recurrent.',
        ]

    def test_rewards_and_ends_are_not_read(self):
        one, other = make(), make()
        data = batch(one)
        one.update_on(lead(data))
        other.update_on(lead(data._replace(reward=data.reward * 7, discount=data.discount * 0, next_obs=data.obs + 1)))
        assert_close(one.networks['actor'].variables, copies(other.networks['actor'].variables), 0, 0)


class TestMARWIL:
    def values(self, agent: Any, data: Batch) -> tuple[np.ndarray, np.ndarray]:
        """R and V(s)."""
        critic = NumpyNetwork(agent.critic)
        return data.reward + data.discount * critic(data.next_obs)[:, 0], critic(data.obs)[:, 0]

    @pytest.mark.parametrize(('beta', 'most'), [(1.0, 20.0), (3.0, 2.0)])
    def test_one_update(self, beta, most):
        agent = make(MARWIL, beta=beta, max_weight=most)
        data, reference, critic = batch(agent), Reference(agent), NumpyNetwork(agent.critic)
        returns, value = self.values(agent, data)
        assert (data.discount == 0).any() and (data.discount == np.float32(0.9)).any()
        advantage = returns - value
        raw = np.exp(beta * advantage / np.sqrt(np.mean(advantage**2)))
        weight = np.minimum(raw, most)
        assert (raw > most).any() == (most == 2.0)

        def critic_loss() -> float:
            return 0.5 * np.mean((critic(data.obs)[:, 0] - returns) ** 2)

        moved = finite_differences(critic_loss, critic.weights)
        expected = [w - 0.1 * g for w, g in zip(critic.weights, moved, strict=True)]

        def loss() -> float:
            return -np.mean(weight * sum(reference.log_prob(data)))

        metrics = check_step(agent, reference, [(loss, reference.weights)], data)
        assert_close(agent.critic.variables, expected)
        wanted = {'value': value.mean(), 'weight': weight.mean(), 'critic': np.mean(advantage**2) / 2}
        assert {name: metrics[name] for name in wanted} == pytest.approx(wanted, rel=1e-4)

    def test_the_scale_of_advantages_is_a_moving_average(self):
        agent = make(MARWIL, advantage_rate=0.25)
        squares = []
        for seed in range(3):
            data = batch(agent, seed=seed)
            returns, value = self.values(agent, data)
            squares.append(np.mean((returns - value) ** 2))
            agent.update_on(lead(data))
        expected = squares[0]
        for square in squares[1:]:
            expected = 0.75 * expected + 0.25 * square
        assert float(agent.square) == pytest.approx(expected, rel=1e-4)

    def test_without_beta_it_is_behavior_cloning(self, tmp_path):
        """The same weights after a training on the same episodes with the same seed."""
        rng = np.random.default_rng(0)
        episodes = [
            RecordedEpisode(
                rng.normal(size=(9, 3)).astype(np.float32),
                {path: x for path, x in actions(rng, 8).items()},
                rng.normal(size=8).astype(np.float32),
                bool(i % 2),
                not i % 2,
            )
            for i in range(4)
        ]
        path = written(tmp_path / 'data.npz', VECTOR, MIXED, None, episodes).path
        found = []
        for cls, params in ((BC, {}), (MARWIL, {'beta': 0.0}), (MARWIL, {'beta': 1.0})):
            adam = [{'name': 'Adam', 'learning_rate': 1e-2}] * len(cls.network_names)
            agent = make(cls, optimizers_list=adam, **params)
            agent.learn(None, dataset=path, train_updates=30, batch_size=8, seed=1, run_dir=False, verbose=0)
            found.append(copies([*agent.networks['actor'].variables, agent.policy.log_std]))
        assert_close(found[0], found[1], 0, 0)
        assert any((a != b).any() for a, b in zip(found[0], found[2], strict=True))

    def test_returns_reach_the_end_of_the_episode(self, tmp_path):
        """A critic of a known value: the target is the discounted sum of rewards, and V at a truncation."""
        agent = make(MARWIL, Discrete(2), gamma=0.5, net_list=[{'hidden': []}, {'hidden': []}])
        agent.critic.variables[0].assign(np.zeros((3, 1)))
        agent.critic.variables[1].assign([8.0])
        obs = np.arange(12, dtype=np.float32).reshape(4, 3)
        episodes = [
            RecordedEpisode(obs, np.array([0, 1, 0]), np.float32([1, 2, 4]), True, False),
            RecordedEpisode(obs + 100, np.array([0, 1, 0]), np.float32([1, 2, 4]), False, True),
        ]
        from zoo.common.datasets.replaying import replay_of

        path = written(tmp_path / 'data.npz', VECTOR, Discrete(2), None, episodes).path
        replay = replay_of(agent, path, agent.action_adaptor, agent.sampling)
        replay.sum_to_the_end()
        data = replay.sample((200,), np.random.default_rng(0))
        found = dict(zip(data.obs[:, 0].tolist(), agent.returns(data).numpy().tolist(), strict=True))
        # 1 + 2/2 + 4/4, 2 + 4/2, 4; then with 8/8, 8/4, 8/2 added.
        assert found == {0: 3.0, 3: 4.0, 6: 4.0, 100: 4.0, 103: 6.0, 106: 8.0}

    def test_recurrent_networks_are_refused(self):
        with pytest.raises(ValueError, match=r'^net_list\[0\] \(actor\) is recurrent, which MARWIL cannot learn with'):
            MARWIL(VECTOR, Discrete(2), net_list=[{'recurrent': 'lstm'}, {}])


def actions(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Recorded actions of `MIXED`, in the environment's units."""
    return {
        'arm': rng.uniform(-2, 2, (count, 2)).astype(np.float32),
        'grip': rng.integers(3, size=count),
        'lights': rng.integers(2, size=(count, 2)).astype(np.int8),
        'gears': rng.integers([2, 3], size=(count, 2)),
    }


class Remember(toys.Chain):
    """The first observation says which action is right for the rest of the episode."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super(toys.Chain, self).reset(seed=seed)
        self.cue, self.t = int(self.np_random.integers(2)), 0
        return np.float32([2 * self.cue - 1]), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.zeros(1, np.float32), float(action == self.cue), self.t == 6, False, {}


@pytest.mark.full
def test_a_recurrent_policy_clones_what_needs_a_memory(tmp_path):
    env, episodes = Remember(), []
    for seed in range(20):
        seen = [env.reset(seed=seed)[0]]
        for _ in range(6):
            seen.append(env.step(env.cue)[0])
        episodes.append(RecordedEpisode(np.stack(seen), np.full(6, env.cue), np.ones(6, np.float32), True, False))
    path = written(tmp_path / 'data.npz', env.observation_space, env.action_space, None, episodes).path
    for net, best in (({'recurrent': 'gru', 'hidden': [8]}, 6.0), ({'hidden': [8]}, None)):
        agent = BC(
            env.observation_space,
            env.action_space,
            net_list=[net | {'seed': 0}],
            optimizers_list=[{'name': 'Adam', 'learning_rate': 1e-2}],
            **({'sequence_length': 8, 'burn_in': 4} if best else {}),
        )
        agent.learn(None, dataset=path, train_updates=200, batch_size=16, seed=0, run_dir=False, verbose=0)
        returns = agent.learn(env, 'test', test_episodes=20, seed=5).returns
        assert np.mean(returns) == best if best else np.mean(returns) < 5.5


def test_actions_are_learned_in_every_space(tmp_path):
    """Do what you see, from episodes of an expert who does: each leaf of the action is right."""
    env, rng = toys.Copy(MIXED), np.random.default_rng(0)
    shown = [actions(rng, 1) for _ in range(300)]
    first = [{path: x[0] for path, x in shot.items()} for shot in shown]
    flat = lambda x: {path: np.stack([x[path]] * 2) for path in x}  # noqa: E731 # the observation stays
    episodes = [
        RecordedEpisode(flat(x), shot, np.ones(1, np.float32), True, False)
        for x, shot in zip(first, shown, strict=True)
    ]
    path = written(tmp_path / 'data.npz', MIXED, MIXED, None, episodes).path
    agent = BC(MIXED, MIXED, net_list=[{'hidden': [64], 'seed': 0}], optimizers_list=[{'learning_rate': 1e-2}])
    agent.learn(None, dataset=path, train_updates=400, batch_size=64, seed=0, run_dir=False, verbose=0)
    assert np.mean(agent.learn(env, 'test', test_episodes=100, seed=1).returns) > 0.97


def test_the_defaults_are_plain_data():
    env = zoo.build_env('CartPole-v1')
    for name in ('BC', 'MARWIL', 'DAgger', 'GAIL', 'GAILTRPO'):
        alg_params, learn_params = zoo.call_default_params(env, None, name, seed=0)
        agent = getattr(zoo.algorithms, name)(**alg_params)
        assert len(alg_params['net_list']) == len(agent.networks) and 'batch_size' in learn_params
