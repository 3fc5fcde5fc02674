"""Recurrent policies: the state while acting and in the update, an iteration computed again by NumPy, and predict."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from reference import assert_close, copies, finite_differences, stir

import zoo
from zoo import algorithms, build_env, call_default_params
from zoo.algorithms import PPO
from zoo.algorithms.base import saving
from zoo.common.records import Trajectories
from zoo.common.training.collection import Collection

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS, UNITS = 2, 2
MEMORY = {'hidden': [3], 'recurrent': 'lstm', 'recurrent_units': UNITS, 'seed': 0}
NETS = [MEMORY, 'actor']

pytestmark = pytest.mark.usefixtures('plain_graphs')


class Counts(gymnasium.Env):
    """Shows a random number, the episode's number and the step in it; episodes of 2 to 5 steps end in both ways."""

    observation_space = VECTOR
    action_space = Discrete(ACTIONS)
    episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.episode = self.episode + 1 if seed is None else 1
        self.t, self.end = 0, int(self.np_random.integers(2, 6))
        return self.see(), {}

    def see(self) -> np.ndarray:
        return np.array([self.np_random.normal(), self.episode, self.t], np.float32)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        ended, cut = self.t == self.end, self.episode % 2 == 0
        return self.see(), float(action * 2**self.t + self.episode), ended and not cut, ended and cut, {}


def make(cls: Any = PPO, space: Any = VECTOR, **params: Any) -> Any:
    """A small agent whose biases are not zero."""
    agent = cls(space, Discrete(ACTIONS), **{'net_list': NETS, 'max_grad_norm': None} | params)
    stir(agent.trainable_variables, seed=1)
    agent.forward.refresh()
    return agent


# Acting


@pytest.mark.parametrize('mode', [None, *AutoresetMode])
def test_the_update_sees_the_states_that_were_acted_with(mode: AutoresetMode | None):
    """They are zero at the first step of each episode, and nowhere else, also from one rollout to the next."""
    n = 1 if mode is None else 3
    env = Counts() if mode is None else SyncVectorEnv([Counts] * n, autoreset_mode=mode)
    agent = make()
    seen, step = [], agent.behavior.step

    def note(obs: Any, state: np.ndarray, *arguments: Any) -> Any:
        seen.append(state.copy())
        return step(obs, state, *arguments)

    agent.behavior.step = note
    collection = Collection(agent, env)
    collection.restart(5)
    ends = 0
    for _ in range(3):
        seen.clear()
        rollout = collection.rollout(SimpleNamespace(stepped=lambda *_: None), 9)
        acted_with, valid = np.array(seen), rollout.valid
        first = rollout.obs[..., 2] == 0  # the step in the episode
        np.testing.assert_array_equal(rollout.begins[valid], first[valid])
        assert not acted_with[valid & first].any() and acted_with[valid & ~first].any(-1).all()
        np.testing.assert_array_equal(rollout.state, acted_with[0])
        _, after = agent.policy.network.encode_sequence(rollout.obs, rollout.state, rollout.begins)
        before = np.concatenate([rollout.state[None], after[:-1]])
        before[rollout.begins] = 0.0
        np.testing.assert_allclose(before[valid], acted_with[valid], atol=1e-5)
        ends += int(first.sum())
    assert ends > 3


def test_a_test_plays_each_copy_with_a_memory_of_its_own():
    """Two copies, against both played one after the other by `predict`; a training's own states stay as they are."""
    agent = make()
    vector = SyncVectorEnv([Counts] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    agent.behavior.episodes_begin(np.ones(3, bool))
    agent.behavior.state[:] = 7.0
    found = zoo.common.training.testing.run_test(agent, vector, test_episodes=4, seed=5)
    assert (agent.behavior.state == 7.0).all()
    expected = []
    for seed in (5, 6):
        env = Counts()
        obs, _ = env.reset(seed=seed)
        for _ in range(2):
            state, total, done = agent.initial_state(), 0.0, False
            while not done:
                action, state = agent.predict(obs, state=state)
                obs, reward, terminated, truncated, _ = env.step(action)
                total, done = total + reward, terminated or truncated
            expected.append(total)
            obs, _ = env.reset()
    assert sorted(found.returns) == sorted(expected)


@pytest.fixture(scope='module')
def agent() -> PPO:
    return make()


class TestPredict:
    def test_without_a_state_an_episode_begins_and_only_the_action_is_returned(self, agent: PPO):
        obs = np.ones((2, 3), np.float32)
        both, state = agent.predict(obs, state=agent.initial_state(2))
        np.testing.assert_array_equal(agent.predict(obs), both)
        assert state.shape == (2, 2 * UNITS) and state.dtype == np.float32 and state.any()
        assert isinstance(agent.predict(obs[0]), np.integer)

    def test_one_observation_and_a_batch_agree(self, agent: PPO):
        rng = np.random.default_rng(0)
        together, alone = agent.initial_state(4), [agent.initial_state() for _ in range(4)]
        for t in range(5):
            obs = rng.normal(size=(4, 3)).astype(np.float32)
            if t == 3:  # an episode of one of them has ended
                together[2], alone[2] = 0.0, agent.initial_state()
            actions, together = agent.predict(obs, state=together)
            for i in range(4):
                action, alone[i] = agent.predict(obs[i], state=alone[i])
                assert action == actions[i]
                np.testing.assert_allclose(alone[i][0], together[i], atol=1e-6)

    def test_a_state_that_does_not_fit(self, agent: PPO):
        with pytest.raises(ValueError, match=r'the state has shape \(1, 4\), but 2 observations need \(2, 4\): begin'):
            agent.predict(np.ones((2, 3), np.float32), state=agent.initial_state())

    def test_a_policy_without_memory_hands_it_back(self):
        agent = make(net_list=None)
        assert agent.initial_state(3).shape == (3, 0)
        state = agent.initial_state()
        action, after = agent.predict(np.ones(3, np.float32), state=state)
        assert after is state and action == agent.predict(np.ones(3, np.float32))

    def test_acting_in_other_copies_than_have_begun_is_refused(self, agent: PPO):
        with pytest.raises(ValueError, match=r'in 3 copies of the environment, but none has begun an episode'):
            copy.copy(agent).act(np.ones((3, 3), np.float32))


# Learning


def rollout(agent: PPO, seed: int = 0) -> Trajectories:
    """Five steps of four copies: ends of both kinds, a copy that is only reset, and states from before."""
    rng = np.random.default_rng(seed)
    shape = (5, 4)
    terminated, truncated, valid, begins = (np.zeros(shape, bool) for _ in range(4))
    valid[:] = True
    terminated[2, 1] = truncated[2, 2] = terminated[1, 3] = True
    valid[2, 3] = False  # reset in the next step
    begins[3, 1] = begins[3, 2] = begins[3, 3] = begins[0, 0] = True
    obs, next_obs = rng.normal(size=(2, *shape, 3)).astype(np.float32)
    goes_on = ~(terminated | truncated)[:-1]
    next_obs[:-1][goes_on] = obs[1:][goes_on]
    state = rng.uniform(-0.5, 0.5, (4, 2 * UNITS)).astype(np.float32)
    state[0] = 0.0
    return Trajectories(
        obs=obs,
        action=rng.integers(0, ACTIONS, shape).astype(np.int32),
        reward=rng.normal(size=shape).astype(np.float32),
        next_obs=next_obs,
        terminated=terminated,
        truncated=truncated,
        valid=valid,
        state=state,
        begins=begins,
    )


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


class Reference:
    """Actor and critic on one LSTM in float64, step by step and copy by copy, with the loss of PPO."""

    def __init__(self, agent: PPO, data: Trajectories, length: int) -> None:
        self.agent, self.data, self.length = agent, data, length
        self.weights = [np.float64(v.numpy()) for v in agent.trainable_variables]
        outputs, after = self.run(None)
        self.before = after
        value = outputs[..., -1]
        advantage = np.zeros((5, 4))
        for n in range(4):
            following = 0.0
            for t in reversed(range(5)):
                ended = data.terminated[t, n] or data.truncated[t, n]
                # A next observation is seen in the state after this step, be it the last one or not.
                next_value = self.step(data.next_obs[t, n], after[t, n])[0][-1]
                alive = 0.0 if data.terminated[t, n] else 1.0
                delta = data.reward[t, n] + agent.gamma * alive * next_value - value[t, n]
                following = delta + (0.0 if ended else agent.gamma * agent.gae_lambda * following)
                advantage[t, n] = following
        self.returns = advantage + value
        chosen = advantage[data.valid]
        self.advantage = (advantage - chosen.mean()) / (chosen.std() + 1e-8)
        self.old = self.log_probs(outputs)

    def step(self, obs: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logits and the value, and the state after."""
        w, b, kernel, recurrent, bias, actor, actor_bias, critic, critic_bias = self.weights
        x = np.tanh(obs @ w + b)
        h, c = state[:UNITS], state[UNITS:]
        i, f, g, o = np.split(x @ kernel + h @ recurrent + bias, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        return np.concatenate([h @ actor + actor_bias, h @ critic + critic_bias]), np.concatenate([h, c])

    def run(self, before: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Outputs ``[T, N, 3]`` and states after each step; from ``before`` where a sequence starts."""
        data, outputs, after = self.data, np.zeros((5, 4, ACTIONS + 1)), np.zeros((5, 4, 2 * UNITS))
        for n in range(4):
            state = np.float64(data.state[n])
            for t in range(5):
                if before is not None and t and t % self.length == 0:
                    state = before[t - 1, n]
                if data.begins[t, n]:
                    state = np.zeros(2 * UNITS)
                outputs[t, n], state = self.step(data.obs[t, n], state)
                after[t, n] = state
        return outputs, after

    def log_probs(self, outputs: np.ndarray) -> np.ndarray:
        logits = outputs[..., :-1]
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def loss(self) -> float:
        outputs, _ = self.run(self.before)
        log_probs, total, policy, entropy = self.log_probs(outputs), 0.0, 0.0, 0.0
        for t, n in np.argwhere(self.data.valid):
            action = self.data.action[t, n]
            ratio = np.exp(log_probs[t, n, action] - self.old[t, n, action])
            policy -= min(ratio * self.advantage[t, n], np.clip(ratio, 0.8, 1.2) * self.advantage[t, n])
            total += self.agent.value_coef * (outputs[t, n, -1] - self.returns[t, n]) ** 2
            entropy -= (np.exp(log_probs[t, n]) * log_probs[t, n]).sum()
        return (policy + total - self.agent.entropy_coef * entropy) / self.data.valid.sum()


@pytest.mark.full
@pytest.mark.parametrize('length', [None, 3])
def test_an_iteration_computed_again(length: int | None):
    """Two gradient steps on all sequences; with a length of 3 the second of each copy is filled up to it."""
    sgd = [{'name': 'SGD', 'learning_rate': 0.1}]
    agent = make(optimizers_list=sgd, sequence_length=length, entropy_coef=0.1)
    data = rollout(agent)
    reference = Reference(agent, data, length or 5)
    for _ in range(2):
        for weight, gradient in zip(
            reference.weights, finite_differences(reference.loss, reference.weights), strict=True
        ):
            weight -= 0.1 * gradient
    agent.update(data, epochs=2, batch_size=24)
    assert_close(agent.trainable_variables, reference.weights, 1e-3, 1e-5)


@pytest.mark.full
def test_padded_sequences_learn_as_unpadded_ones():
    """Where every episode ends with a sequence, it is no matter that the last ones are filled up."""
    found = []
    for length in (5, 3):
        agent = make(sequence_length=length, optimizers_list=[{'name': 'SGD', 'learning_rate': 0.5}])
        data = rollout(agent)
        data.truncated[2] = ~data.terminated[2]
        data.begins[3] = True
        metrics = agent.update(data, epochs=1, batch_size=1000)
        found.append([*metrics.values(), *(x.ravel() for x in copies(agent.trainable_variables))])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.full
def test_batch_statistics_take_in_what_was_seen_alone():
    """Also where the last sequence of each copy is filled up: of observations that are all 1 the mean is 1."""
    normalization = keras.layers.BatchNormalization(momentum=0.5)
    layers = [normalization, keras.layers.LSTM(UNITS, return_sequences=True), keras.layers.Dense(3)]
    agent = PPO(VECTOR, Discrete(ACTIONS), net_list=[keras.Sequential(layers), 'actor'], sequence_length=3)
    data = rollout(agent)
    data.obs[:] = 1.0
    for _ in range(30):
        agent.update(data, epochs=1, batch_size=12)
    np.testing.assert_allclose(normalization.moving_mean, 1.0, atol=1e-5)
    np.testing.assert_allclose(normalization.moving_variance, 0.0, atol=1e-5)


def test_what_is_not_valid_is_not_learned_from():
    agent = make(optimizers_list=[{'name': 'SGD', 'learning_rate': 0.5}])
    begun, data, weights = saving.arrays(agent), rollout(agent), []
    for t in (None, 2, 1):  # the step in which it was only reset, and one in which it was not
        saving.assign(agent, begun)
        poisoned = data._replace(obs=data.obs.copy(), reward=data.reward.copy(), action=data.action.copy())
        if t is not None:
            poisoned.obs[t, 3], poisoned.reward[t, 3], poisoned.action[t, 3] = 1e4, 1e4, 1 - data.action[t, 3]
        agent.update(poisoned, epochs=1, batch_size=1000)
        weights.append(copies(agent.trainable_variables))
    assert_close(weights[0], weights[1])
    assert any(np.abs(a - b).max() > 1e-4 for a, b in zip(weights[0], weights[2], strict=True))


@pytest.mark.full(but='AC')
@pytest.mark.parametrize('name', ['A2C', 'AC', 'VPG', 'PPO'])
def test_every_algorithm_that_can_learns_from_sequences(name: str):
    """Full batches: the gradient reaches from a reward at the end back to what was seen at the beginning."""
    params: dict[str, Any] = {'optimizers_list': [{'name': 'SGD', 'learning_rate': 0.1}]}
    if name == 'VPG':
        params |= {'baseline': False, 'net_list': [MEMORY]}
    if name == 'PPO':
        params |= {'method': 'penalty', 'target_kl': 10.0, 'clip_range_value': 0.2}
    agent, moved = make(getattr(algorithms, name), **params), []
    begun = saving.arrays(agent)
    for change in (0.0, 1.0):
        saving.assign(agent, begun)
        data = rollout(agent)
        data.obs[0, 0] += change  # the first step of the copy whose episode goes on to the end
        before = copies(agent.trainable_variables)
        metrics = agent.update(data)
        assert metrics is not None and all(map(np.isfinite, metrics.values()))
        moved.append([a - b for a, b in zip(copies(agent.trainable_variables), before, strict=True)])
        assert all(np.abs(x).max() > 0 for x in moved[-1])
    assert any(np.abs(a - b).max() > 1e-5 for a, b in zip(*moved, strict=True))


@pytest.mark.full
def test_images_and_a_network_of_the_users_own_learn(tmp_path: Path):
    camera = Box(0, 255, (8, 8, 1), np.uint8)
    space = Dict(camera=camera, pose=VECTOR)
    timed = keras.layers.TimeDistributed
    entries = (
        (space, {'hidden': [4], 'features': 4, 'recurrent': 'gru'}),
        (camera, keras.Sequential([timed(keras.layers.Flatten()), keras.layers.Dropout(0.1), keras.layers.LSTM(3)])),
    )
    rng = np.random.default_rng(0)
    for seen, entry in entries:
        agent = make(space=seen, net_list=[entry, 'actor'])
        assert agent.behavior.forward.numpy is None
        data = rollout(agent)
        size = agent.behavior.state_size
        pictures = rng.integers(0, 255, (5, 4, 8, 8, 1)).astype(np.uint8)
        obs = {'camera': pictures, 'pose': data.obs} if seen is space else pictures
        before = copies(agent.trainable_variables)
        agent.update(data._replace(obs=obs, next_obs=obs, state=np.zeros((4, size), np.float32)), epochs=1)
        changed = [np.abs(a - b).max() > 0 for a, b in zip(copies(agent.trainable_variables), before, strict=True)]
        assert all(changed)
    one = pictures[0, 0]
    twin = copy.deepcopy(agent)
    state = agent.initial_state() + 0.5
    assert agent.predict(one, state=state)[0] == twin.predict(one, state=state)[0]
    np.testing.assert_array_equal(agent.predict(one, state=state)[1], twin.predict(one, state=state)[1])


@pytest.mark.full
def test_a_run_that_is_resumed_or_copied_goes_on_alike(tmp_path: Path):
    """Bit for bit: the states of the copies begin anew at a checkpoint, where their episodes do."""
    env = build_env('CartPole-v1', 'classic_control', nenv=2, hide_velocity=True)
    params: dict[str, Any] = {'horizon': 25, 'epochs': 1, 'batch_size': 25, 'verbose': 0}
    agent = PPO(env.single_observation_space, env.single_action_space, net_list=NETS, sequence_length=10)
    agent.learn(
        env, train_steps=600, run_dir=tmp_path / 'whole', seed=3, checkpoint_every=200, exact_resume=True, **params
    )
    path = sorted((tmp_path / 'whole' / 'checkpoints').iterdir())[0]
    loaded = zoo.load(path)
    assert loaded.sequence_length == 10 and loaded.behavior.state is None
    twin = copy.deepcopy(loaded)
    for other in (loaded, twin):
        other.learn(env, resume=True, run_dir=False, checkpoint_every=200, exact_resume=True, **params)
        whole, again = saving.arrays(agent), saving.arrays(other)
        assert [name for name in whole if not np.array_equal(whole[name], again[name])] == []
        assert other.rng.bit_generator.state == agent.rng.bit_generator.state


# Defaults and refusals


def test_defaults_and_refusals():
    env = build_env('CartPole-v1', 'classic_control', nenv=8, hide_velocity=True)
    given, learn = call_default_params(env, 'classic_control', 'PPO', seed=0, recurrent='gru')
    assert given['net_list'][0]['recurrent'] == 'gru' and given['net_list'][1] == 'actor'
    assert (given['sequence_length'], learn['horizon'], given['normalize_reward']) == (32, 128, True)
    plain, _ = call_default_params(env, 'classic_control', 'PPO', seed=0)
    assert 'recurrent' not in plain['net_list'][0] and plain['sequence_length'] is None
    with pytest.raises(ValueError, match=r"recurrent is 'rnn'; give 'lstm' or 'gru', or None"):
        call_default_params(env, 'classic_control', 'PPO', recurrent='rnn')
    able = r'which \w+ cannot learn with: use A2C or A3C or AC or [\w ]+ or VPG, or see'
    with pytest.raises(ValueError, match=rf"^the network of recurrent='lstm' is recurrent, {able}"):
        call_default_params(env, 'classic_control', 'TRPO', recurrent='lstm')
    for name in ('TRPO', 'OffPAC'):
        cls = getattr(algorithms, name)
        with pytest.raises(ValueError, match=rf'^net_list\[0\] \(\w+\) is recurrent, {able}'):
            cls(VECTOR, Discrete(2), net_list=[MEMORY] * len(cls.network_names))
    with pytest.raises(ValueError, match=r"^net_list\[1\] \(critic\) is recurrent by itself, .* give 'actor' there"):
        PPO(VECTOR, Discrete(2), net_list=[MEMORY, MEMORY])
    with pytest.raises(ValueError, match=r'^sequence_length=4 is for a recurrent policy'):
        PPO(VECTOR, Discrete(2), sequence_length=4)


def test_the_update_is_compiled_once():
    tf.config.run_functions_eagerly(False)
    agent = make(sequence_length=2)
    for seed in range(3):
        data = rollout(agent, seed)
        data.valid[:] = np.random.default_rng(seed).random((5, 4)) < 0.7
        agent.update(data, epochs=1, batch_size=4)
    assert agent.fused.traces == 1
