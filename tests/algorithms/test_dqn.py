"""DQN: targets, loss, gradient step, the target network's cadence, exploration and masks, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir
from toys import altered

from zoo import build_env, call_default_params
from zoo.algorithms import DQN
from zoo.common.records import Batch, Transition
from zoo.common.schedules import Linear

ACTIONS = 4
VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
MASKED = Dict(x=VECTOR, action_mask=MultiBinary(ACTIONS))

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(space: Any = VECTOR, **params: Any) -> DQN:
    """An agent whose target differs from its network."""
    params = {'net_list': [{'hidden': [6], 'seed': 0}]} | params
    agent = DQN(space, Discrete(ACTIONS, start=10), **params)
    stir(agent.network.variables, seed=1)
    stir(agent.target.variables, seed=2)
    agent.forward.refresh()
    return agent


def batch(size: int = 8, masked: bool = False, seed: int = 0) -> Batch:
    """Transitions ``[size]``: some terminated, some truncated, some both, some neither."""
    rng = np.random.default_rng(seed)

    def obs() -> Any:
        x = rng.normal(size=(size, 3)).astype(np.float32)
        if not masked:
            return x
        mask = rng.random((size, ACTIONS)) < 0.4
        mask[np.arange(size), rng.integers(ACTIONS, size=size)] = True
        return {'x': x, 'action_mask': mask.astype(np.int8)}

    data = Batch.of(
        Transition(
            obs(),
            rng.integers(ACTIONS, size=size).astype(np.int32),
            rng.normal(size=size).astype(np.float32),
            obs(),
            np.arange(size) % 4 >= 2,
            np.arange(size) % 2 == 1,
        ),
        0.99,
    )
    if masked:
        data.next_obs['action_mask'][1] = 0  # an environment may forbid everything where an episode was cut
    return data


def lead(data: Batch) -> Batch:
    """With an axis of one update before."""
    return tf.nest.map_structure(lambda x: np.asarray(x)[None], data)


def target_by_hand(agent: DQN, data: Batch, double_q: bool = True) -> np.ndarray:
    """y = r + γ (1 − terminated) Q′(s′, a*) by NumPy, from the networks' own outputs."""
    masked = isinstance(data.next_obs, dict)
    x = data.next_obs['x'] if masked else data.next_obs
    q, q_target = NumpyNetwork(agent.network)(x), NumpyNetwork(agent.target)(x)
    found = []
    for i in range(len(x)):
        allowed = np.flatnonzero(data.next_obs['action_mask'][i]) if masked else []
        allowed = allowed if len(allowed) else np.arange(ACTIONS)
        best = max(allowed, key=lambda a, i=i: (q if double_q else q_target)[i, a])
        following = 0.0 if data.terminated[i] else q_target[i, best]
        found.append(data.reward[i] + agent.gamma * following)
    return np.array(found)


def target_of(agent: DQN, data: Batch) -> np.ndarray:
    """The target that ``update`` regresses on, read off its loss's argument."""
    seen = []
    original = agent.loss
    agent.loss = lambda batch, target, noise: seen.append(target.numpy()[:, 0]) or original(batch, target, noise)
    agent.update(tf.nest.map_structure(tf.convert_to_tensor, data), tf.constant([0, 0]))
    return seen[0]


@pytest.mark.parametrize('masked', [False, True], ids=['all allowed', 'masked'])
@pytest.mark.parametrize('double_q', [False, True], ids=['single', 'double'])
def test_target(double_q, masked):
    agent = make(MASKED if masked else VECTOR, double_q=double_q, gamma=0.9)
    data = altered(batch(64, masked), 0.9)
    expected = target_by_hand(agent, data, double_q)
    assert not np.allclose(expected, target_by_hand(agent, data, not double_q))  # the switch matters on this batch
    np.testing.assert_allclose(target_of(agent, data), expected, rtol=1e-5, atol=1e-5)


def test_terminated_takes_the_reward_alone_and_truncated_bootstraps():
    agent, data = make(gamma=0.9), batch(8)
    terminated = altered(data, terminated=np.ones(8, bool), truncated=np.zeros(8, bool))
    np.testing.assert_array_equal(target_of(agent, terminated), data.reward)
    going_on = altered(data, terminated=np.zeros(8, bool))
    cut = going_on._replace(truncated=np.ones(8, bool))
    open_ended = going_on._replace(truncated=np.zeros(8, bool))
    agents = [make(gamma=0.9) for _ in range(2)]
    np.testing.assert_array_equal(target_of(agents[0], cut), target_of(agents[1], open_ended))
    assert np.abs(target_of(make(gamma=0.9), cut) - data.reward).min() > 1e-3


def test_huber_loss_by_hand():
    agent, data = make(), batch(5)
    q = NumpyNetwork(agent.network)(data.obs)[np.arange(5), data.action]
    error = np.array([0.0, 0.5, -1.0, 3.0, -2.0])  # half the square up to one, then the size less a half
    loss, priority, q_mean = agent.loss(data, tf.constant(q - error, tf.float32)[:, tf.newaxis])
    np.testing.assert_allclose(priority, np.abs(error), atol=1e-5)
    assert float(loss) == pytest.approx((0.0 + 0.125 + 0.5 + 2.5 + 1.5) / 5, rel=1e-5)
    assert float(q_mean) == pytest.approx(q.mean(), rel=1e-5)


@pytest.mark.parametrize('masked', [False, True], ids=['all allowed', 'masked'])
def test_one_update_is_one_step_down_the_gradient_of_the_huber_loss(masked):
    agent = make(MASKED if masked else VECTOR, optimizers_list=[{'name': 'SGD', 'learning_rate': 0.1}])
    data = batch(8, masked)
    target = target_by_hand(agent, data)
    reference = NumpyNetwork(agent.network)
    x = data.obs['x'] if masked else data.obs

    def loss() -> float:
        error = np.abs(reference(x)[np.arange(8), data.action] - target)
        return np.where(error <= 1.0, 0.5 * error**2, error - 0.5).mean()

    gradients = finite_differences(loss, reference.weights)
    before = copies(agent.network.variables)
    metrics = agent.update_on(lead(data))
    assert metrics['q'] == pytest.approx(loss(), rel=1e-4)
    assert_close(agent.network.variables, [w - 0.1 * g for w, g in zip(before, gradients, strict=True)], 1e-4, 1e-5)
    assert max(np.abs(g).max() for g in gradients) > 0.05


def test_the_default_optimizer_clips_the_gradient_at_ten():
    assert make().optimizers['q'].clip_norm == 10.0
    assert make(optimizers_list=[{'learning_rate': 1e-3}]).optimizers['q'].clip_norm is None


@pytest.mark.parametrize('every', [1, 3])
def test_target_is_copied_at_its_cadence(every):
    agent = make(target_update_every=every)
    for update in range(1, 8):
        kept = copies(agent.target.variables)
        agent.update_on(lead(batch(seed=update)))
        if update % every == 0:
            assert_close(agent.target.variables, copies(agent.network.variables), 0, 0)
        else:
            assert_close(agent.target.variables, kept, 0, 0)
            assert not np.allclose(agent.target.variables[0], agent.network.variables[0])


def test_target_moves_by_tau():
    agent = make(target_update_every=2, tau=0.25)
    agent.update_on(lead(batch()))
    kept = copies(agent.target.variables)
    agent.update_on(lead(batch(seed=1)))
    moved = [0.75 * old + 0.25 * new.numpy() for old, new in zip(kept, agent.network.variables, strict=True)]
    assert_close(agent.target.variables, moved)


def test_the_cadence_goes_on_after_loading(tmp_path):
    agent = make(target_update_every=3)
    agent.update_on(lead(batch()))
    agent.update_on(lead(batch()))
    loaded = DQN.load(agent.save(tmp_path / 'saved'))
    loaded.update_on(lead(batch()))
    assert_close(loaded.target.variables, copies(loaded.network.variables), 0, 0)


class TestActing:
    OBS = np.random.default_rng(3).normal(size=(4000, 3)).astype(np.float32)

    def greedy(self, agent: DQN) -> np.ndarray:
        return NumpyNetwork(agent.network)(self.OBS).argmax(-1)

    def test_deterministic_and_epsilon_zero_are_greedy(self):
        agent = make(epsilon=0.0)
        np.testing.assert_array_equal(agent.act(self.OBS, deterministic=True), self.greedy(agent))
        np.testing.assert_array_equal(agent.act(self.OBS), self.greedy(agent))
        np.testing.assert_array_equal(make(epsilon=1.0).act(self.OBS, deterministic=True), self.greedy(agent))

    @pytest.mark.parametrize('epsilon', [0.2, 1.0])
    def test_epsilon_is_the_share_of_uniformly_random_actions(self, epsilon):
        agent = make(epsilon=epsilon)
        agent.rng = np.random.default_rng(0)
        other = agent.act(self.OBS) != self.greedy(agent)
        assert other.mean() == pytest.approx(epsilon * (1 - 1 / ACTIONS), abs=0.025)

    def test_epsilon_follows_its_schedule(self):
        agent = make(epsilon=Linear(1.0, 0.0, until=0.5))
        agent.rng = np.random.default_rng(0)
        shares = []
        for agent.progress in (0.0, 0.25, 0.5, 0.9):
            shares.append((agent.act(self.OBS) != self.greedy(agent)).mean())
        np.testing.assert_allclose(shares, [0.75, 0.375, 0.0, 0.0], atol=0.025)

    @pytest.mark.parametrize('epsilon', [0.0, 0.5, 1.0])
    def test_masked_actions_are_never_chosen(self, epsilon):
        agent = make(MASKED, epsilon=epsilon)
        obs = batch(2000, masked=True).obs
        for deterministic in (True, False):
            chosen = agent.act(obs, deterministic)
            assert obs['action_mask'][np.arange(2000), chosen].all()
        q = NumpyNetwork(agent.network)(obs['x'])
        best = np.where(obs['action_mask'], q, -np.inf).argmax(-1)
        np.testing.assert_array_equal(agent.act(obs, deterministic=True), best)
        assert (best != q.argmax(-1)).any()  # the mask forbids what would have been chosen

    def test_actions_start_where_the_space_does(self):
        agent = make()
        np.testing.assert_array_equal(agent.predict(self.OBS), self.greedy(agent) + 10)


def test_the_largest_value_of_a_masked_action_is_not_bootstrapped():
    agent = make(MASKED, gamma=1.0, net_list=[{'hidden': [6], 'seed': 0}])
    for network in (agent.network, agent.target):
        bias = network.variables[-1]
        bias.assign([1e4, 0.0, 0.0, 0.0])
    data = batch(8, masked=True)
    data.next_obs['action_mask'][:] = [0, 1, 1, 1]
    data = altered(data, 1.0, terminated=np.zeros(8, bool))
    assert np.abs(target_of(agent, data)).max() < 100.0


def test_what_slows_the_target_twice_or_explores_twice_is_told_of(caplog):
    make(tau=0.005, target_update_every=1)
    make(noisy=True)
    make(noisy=True, epsilon=0.0)
    make(epsilon=Linear(1.0, 0.0))
    make(noisy=True, epsilon=Linear(1.0, 0.01, until=0.1))  # Rainbow's in CartPole
    assert not caplog.records
    make(tau=0.005)
    make(noisy=True, epsilon=Linear(1.0, 0.05))
    assert [record.getMessage().partition(':')[0] for record in caplog.records] == [
        'tau=0.005 moves the target by this fraction only once in target_update_every=500 updates',
        'epsilon=Linear(start=1.0, end=0.05, until=1.0) draws random actions to the end beside noisy=True',
    ]


def test_the_table_with_noisy_layers_says_that_random_actions_stay(caplog):
    env = build_env('CartPole-v1')
    alg_params, _ = call_default_params(env, alg='DQN')
    alg_params['noisy'] = True
    DQN(**alg_params)
    assert 'draws random actions to the end beside noisy=True: epsilon=None leaves exploring' in caplog.text
