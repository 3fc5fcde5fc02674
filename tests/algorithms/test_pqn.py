"""PQN: Q(λ), whole iterations in float64, ends of episodes, masks, memory, exploration, and a task that it solves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from reference import assert_close, copies, finite_differences, stir
from rollouts import rollout

import zoo
from zoo import build_env, call_default_params
from zoo.algorithms import PQN
from zoo.common.networks.layers.layer_norm import LayerNormalization
from zoo.common.records import Trajectories
from zoo.common.schedules import Linear

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS, UNITS = 4, 2
SGD = [{'name': 'SGD', 'learning_rate': 0.1}]
MEMORY = {'hidden': [3], 'activation': 'tanh', 'normalize': None, 'recurrent': 'lstm', 'recurrent_units': UNITS}
BATCHES = np.array([[0, 7, 3, 12, 19, 5], [2, 6, 1, 17, 4, 9]] * 3, np.int32)

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(space: Any = VECTOR, **params: Any) -> PQN:
    """An agent with a small network. Its biases, scales and shifts differ from a new network's."""
    agent = PQN(space, Discrete(ACTIONS), **{'net_list': [{'hidden': [6], 'seed': 0}]} | params)
    stir(agent.trainable_variables, seed=1)
    agent.forward.refresh()
    return agent


class Network:
    """The default network in float64: dense layers, each normalized before its relu, and a linear head."""

    def __init__(self, agent: PQN) -> None:
        self.weights = [np.float64(v.numpy()) for v in agent.trainable_variables]

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        x, rest = np.float64(obs), self.weights
        while len(rest) > 2:
            kernel, bias, gamma, beta, *rest = rest
            x = x @ kernel + bias
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
            x = np.maximum(x * gamma + beta, 0.0)
        return x @ rest[0] + rest[1]


def targets_by_hand(agent: PQN, data: Trajectories, best_after: np.ndarray) -> np.ndarray:
    """R = r + γ (1 − d) (λ R′ + (1 − λ) max Q(s′, ·)), backwards over each copy; at an end R′ is the bootstrap."""
    found = np.zeros(data.reward.shape)
    steps, copies = data.reward.shape
    for n in range(copies):
        for t in reversed(range(steps)):
            last = t == steps - 1 or data.truncated[t, n]
            following = best_after[t, n] if last else found[t + 1, n]
            alive = 0.0 if data.terminated[t, n] else 1.0
            mixed = agent.q_lambda * following + (1 - agent.q_lambda) * best_after[t, n]
            found[t, n] = data.reward[t, n] + agent.gamma * alive * mixed
    return found


def best_after(network: Network, data: Trajectories) -> np.ndarray:
    return network(data.next_obs.reshape(-1, 3)).max(-1).reshape(data.reward.shape)


def tensors(data: Trajectories) -> Trajectories:
    """The rollout inside a compiled call, whose missing fields are empty."""
    return tf.nest.map_structure(lambda x: () if x is None else tf.constant(x), data)


@pytest.mark.parametrize('q_lambda', [0.0, 0.65, 1.0])
def test_targets(q_lambda: float):
    agent = make(q_lambda=q_lambda, gamma=0.9)
    data = rollout(agent)
    expected = targets_by_hand(agent, data, best_after(Network(agent), data))
    samples = agent.samples(tensors(data))
    np.testing.assert_allclose(samples.returns, expected.ravel(), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(samples.valid, data.valid.ravel())


class RAdam:
    """Algorithm 2 of Liu et al. 2020 in float64, with clipped gradients."""

    def __init__(self, weights: list[np.ndarray], rate: float, clip: float) -> None:
        self.weights, self.rate, self.clip, self.t = weights, rate, clip, 0
        self.first, self.second = ([np.zeros_like(w) for w in weights] for _ in range(2))

    def step(self, gradients: list[np.ndarray]) -> None:
        self.t += 1
        norm = np.sqrt(sum((g**2).sum() for g in gradients))
        length = 1999 - 2 * self.t * 0.999**self.t / (1 - 0.999**self.t)
        for w, g, m, v in zip(self.weights, gradients, self.first, self.second, strict=True):
            g = g * min(1.0, self.clip / norm)
            m += 0.1 * (g - m)
            v += 0.001 * (g**2 - v)
            step = m / (1 - 0.9**self.t)
            if length > 4:
                step *= np.sqrt((length - 4) * (length - 2) * 1999 / (1995 * 1997 * length))
                step *= np.sqrt(1 - 0.999**self.t) / (np.sqrt(v) + 1e-7)
            w -= self.rate * step


@pytest.mark.parametrize('optimizer', ['SGD', 'RAdam'])
def test_an_iteration_computed_again(optimizer: str):
    """Six minibatches, one after the other. The targets do not change between them."""
    spec = {'name': optimizer, 'learning_rate': 0.1} | ({'clip_norm': 0.5} if optimizer == 'RAdam' else {})
    agent = make(optimizers_list=[spec])
    data, network = rollout(agent), Network(agent)
    targets = targets_by_hand(agent, data, best_after(network, data)).ravel()
    obs, action = data.obs.reshape(20, 3), data.action.reshape(20)
    radam = RAdam(network.weights, 0.1, 0.5)
    losses = []
    for rows in BATCHES:

        def loss(rows: Any = rows) -> float:
            return 0.5 * np.mean((network(obs[rows])[np.arange(6), action[rows]] - targets[rows]) ** 2)

        losses.append(loss())
        q_mean = network(obs[rows])[np.arange(6), action[rows]].mean()
        gradients = finite_differences(loss, network.weights)
        if optimizer == 'RAdam':
            radam.step(gradients)
        else:
            for weight, gradient in zip(network.weights, gradients, strict=True):
                weight -= 0.1 * gradient
    metrics = agent.take(agent.fused(data, {}, BATCHES))
    assert_close(agent.trainable_variables, network.weights, 1e-5, 1e-5)
    assert metrics['q'] == pytest.approx(losses[-1], rel=1e-4)
    assert metrics['q_mean'] == pytest.approx(q_mean, rel=1e-4)
    assert losses[-1] < losses[1]  # of the same rows
    np.testing.assert_allclose(agent.forward(obs), network(obs), rtol=1e-4, atol=1e-5)


def after(data: Trajectories, **params: Any) -> list[np.ndarray]:
    """The weights after one update on it, always from the same start."""
    agent = make(**{'optimizers_list': SGD} | params)
    agent.rng = np.random.default_rng(0)
    agent.update(data, epochs=1, batch_size=8)
    return copies(agent.trainable_variables)


@pytest.mark.parametrize(
    ('field', 't', 'n', 'matters'),
    [
        ('next_obs', 2, 1, False),  # terminated: nothing of value follows
        ('next_obs', 2, 2, True),  # truncated: its own final observation does
        ('next_obs', 4, 0, True),  # the end of the rollout
        ('reward', 3, 1, True),
        ('obs', 2, 3, False),  # only reset
        ('next_obs', 2, 3, False),
        ('reward', 2, 3, False),
    ],
)
def test_what_a_step_teaches(field: str, t: int, n: int, matters: bool):
    data = rollout(make())
    other = data._replace(**{field: getattr(data, field).copy()})
    getattr(other, field)[t, n] += 1
    same = all(np.allclose(a, b, atol=1e-7) for a, b in zip(after(data), after(other), strict=True))
    assert same != matters


def test_nothing_is_learned_where_every_copy_was_only_reset():
    agent = make()
    data = rollout(agent)
    before = copies(agent.trainable_variables)
    assert agent.update(data._replace(valid=np.zeros((5, 4), bool)), epochs=1, batch_size=8) is None
    assert_close(agent.trainable_variables, before, 0, 0)


def test_a_minibatch_of_one_transition():
    agent = make(optimizers_list=SGD)
    metrics = agent.update(rollout(agent), epochs=1, batch_size=1)
    assert metrics is not None and np.isfinite(list(metrics.values())).all()


def test_the_rate_falls_with_progress():
    agent = make(optimizers_list=[{'name': 'RAdam', 'learning_rate': Linear(0.1, 0.0)}])
    agent.progress = 0.75
    agent.update(rollout(agent), epochs=1, batch_size=20)
    assert float(agent.optimizers['q'].state(['w'] * 6)['learning_rate']) == pytest.approx(0.025)


def test_defaults_are_the_papers():
    agent = PQN(VECTOR, Discrete(ACTIONS))
    assert [type(layer) is LayerNormalization for layer in agent.network.torso.layers] == [False, True] * 2
    assert agent.optimizers_list == [{'name': 'RAdam', 'learning_rate': 2.5e-4, 'clip_norm': 10.0}]
    assert agent.optimizers['q'].keras is None and not hasattr(agent, 'target')


class TestMasks:
    SPACE = Dict(x=VECTOR, action_mask=MultiBinary(ACTIONS))

    def data(self, agent: PQN) -> Trajectories:
        data = rollout(agent)
        rng = np.random.default_rng(3)

        def masked(x: np.ndarray) -> dict[str, np.ndarray]:
            mask = np.zeros((5, 4, ACTIONS), np.int8)
            np.put_along_axis(mask, rng.integers(ACTIONS, size=(5, 4, 1)), 1, -1)
            return {'x': x, 'action_mask': mask}

        obs, next_obs = masked(data.obs), masked(data.next_obs)
        goes_on = ~(data.terminated | data.truncated)[:-1]
        next_obs['action_mask'][:-1][goes_on] = obs['action_mask'][1:][goes_on]
        return data._replace(obs=obs, next_obs=next_obs)

    def test_forbidden_actions_are_not_bootstrapped(self):
        agent = make(self.SPACE)
        data = self.data(agent)
        network = Network(agent)
        q = network(data.next_obs['x'].reshape(20, 3)).reshape(5, 4, ACTIONS)
        allowed = np.where(data.next_obs['action_mask'] == 1, q, -np.inf).max(-1)
        assert (allowed != q.max(-1)).any()
        samples = agent.samples(tensors(data))
        expected = targets_by_hand(agent, data, allowed).ravel()
        np.testing.assert_allclose(samples.returns, expected, rtol=1e-5, atol=1e-5)

    def test_forbidden_actions_are_not_taken(self):
        agent = make(self.SPACE, epsilon=0.5)
        obs = {path: x.reshape(20, -1) for path, x in self.data(agent).obs.items()}
        assert obs['action_mask'][np.arange(20), agent.act(obs)].all()


class TestExploring:
    OBS = np.random.default_rng(3).normal(size=(4000, 3)).astype(np.float32)

    def test_epsilon_falls_to_its_last_value(self):
        agent = make(epsilon=Linear(1.0, 0.2, until=0.5))
        best = Network(agent)(self.OBS).argmax(-1)
        agent.rng, shares = np.random.default_rng(0), []
        for agent.progress in (0.0, 0.25, 0.5, 1.0):
            shares.append((agent.act(self.OBS) != best).mean())
        np.testing.assert_allclose(shares, [0.75, 0.45, 0.15, 0.15], atol=0.025)
        np.testing.assert_array_equal(agent.act(self.OBS, deterministic=True), best)


# A memory


class Memory:
    """A dense layer, an LSTM and the head in float64, step by step and copy by copy."""

    def __init__(self, agent: PQN, data: Trajectories, length: int) -> None:
        self.agent, self.data, self.length = agent, data, length
        self.weights = [np.float64(v.numpy()) for v in agent.trainable_variables]
        _, self.before = self.run(None)
        best = np.zeros((5, 4))
        for t, n in np.ndindex(5, 4):
            best[t, n] = self.step(data.next_obs[t, n], self.before[t, n])[0].max()
        self.targets = targets_by_hand(agent, data, best)

    def step(self, obs: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w, b, kernel, recurrent, bias, head, head_bias = self.weights
        h, c = state[:UNITS], state[UNITS:]
        i, f, g, o = np.split(np.tanh(obs @ w + b) @ kernel + h @ recurrent + bias, 4)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        return h @ head + head_bias, np.concatenate([h, c])

    def run(self, before: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Values ``[T, N, actions]`` and states after each step; from ``before`` where a sequence starts."""
        data, values, states = self.data, np.zeros((5, 4, ACTIONS)), np.zeros((5, 4, 2 * UNITS))
        for n in range(4):
            state = np.float64(data.state[n])
            for t in range(5):
                if before is not None and t and t % self.length == 0:
                    state = before[t - 1, n]
                state = state * ~data.begins[t, n]
                values[t, n], state = self.step(data.obs[t, n], state)
                states[t, n] = state
        return values, states

    def loss(self) -> float:
        values, _ = self.run(self.before)
        found = np.take_along_axis(values, self.data.action[..., None], -1)[..., 0]
        return 0.5 * np.mean((found - self.targets)[self.data.valid] ** 2)


def remembered(agent: PQN) -> Trajectories:
    data = rollout(agent)
    begins = np.zeros((5, 4), bool)
    begins[3, 1:] = begins[0, 0] = True
    state = np.random.default_rng(1).uniform(-0.5, 0.5, (4, 2 * UNITS)).astype(np.float32)
    return data._replace(state=state * ~begins[0][:, None], begins=begins)


@pytest.mark.parametrize('length', [None, 3])
def test_an_iteration_with_a_memory_computed_again(length: int | None):
    """Two gradient steps on all sequences; with a length of 3 the second of each copy is filled up to it."""
    agent = make(net_list=[MEMORY | {'seed': 0}], sequence_length=length, optimizers_list=SGD)
    data = remembered(agent)
    reference = Memory(agent, data, length or 5)
    for _ in range(2):
        gradients = finite_differences(reference.loss, reference.weights)
        for weight, gradient in zip(reference.weights, gradients, strict=True):
            weight -= 0.1 * gradient
    agent.update(data, epochs=2, batch_size=24)
    assert_close(agent.trainable_variables, reference.weights, 1e-5, 1e-5)


def test_a_length_of_sequences_needs_a_memory():
    with pytest.raises(ValueError, match=r'^sequence_length=8 is for a recurrent policy: give net_list one, such as'):
        PQN(VECTOR, Discrete(ACTIONS), sequence_length=8)


# Whole trainings


def test_saved_and_trained_on_it_ends_with_the_same_weights(tmp_path):
    def env() -> Any:
        return build_env('CartPole-v1', 'classic_control', nenv=2, seed=0)

    params = {'horizon': 16, 'epochs': 2, 'batch_size': 8, 'run_dir': False, 'verbose': 0}
    spaces = env().single_observation_space, env().single_action_space
    agent = PQN(*spaces, net_list=[{'hidden': [8], 'seed': 0}])
    agent.learn(env(), seed=0, train_steps=96, **params)
    twin = zoo.load(agent.save(tmp_path / 'saved'))
    for one in (agent, twin):
        one.learn(env(), seed=1, train_steps=96, **params)
    assert_close(twin.trainable_variables, copies(agent.trainable_variables), 0, 0)
    assert agent.fused.traces == 1


@pytest.mark.parametrize('recurrent', [None, 'gru'])
def test_the_defaults_fit_an_environment(recurrent: str | None):
    env = build_env('CartPole-v1', 'classic_control', nenv=2)
    alg_params, learn_params = call_default_params(env, 'classic_control', 'PQN', seed=0, recurrent=recurrent)
    assert alg_params['net_list'][0]['normalize'] == 'pre_layer_norm'
    agent = PQN(**alg_params)
    assert agent.is_recurrent == (recurrent is not None)
    result = agent.learn(env, 'train', **learn_params | {'train_steps': 64, 'horizon': 32, 'run_dir': False})
    assert np.isfinite(list(result.losses.values())).all()
