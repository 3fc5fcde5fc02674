"""PPO: the clipped objective, a whole iteration computed again, minibatches, ends of episodes and masks, by NumPy."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
import toys
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir
from rollouts import gae_by_hand, log_softmax, rollout

from zoo.algorithms import PPO
from zoo.common.maths.optimizers import copy_weights
from zoo.common.records import Trajectories
from zoo.common.schedules import Linear

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = 4
SGD = [{'name': 'SGD', 'learning_rate': 0.1}]
NOW = {'clip_range': np.float32(0.2)}

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(action_space: Any = None, space: Any = VECTOR, **params: Any) -> PPO:
    """An agent with small networks whose biases are not zero."""
    params = {'net_list': [{'hidden': [6], 'seed': i} for i in range(2)], 'max_grad_norm': None} | params
    agent = PPO(space, action_space or Discrete(ACTIONS), **params)
    stir(agent.policy.trainable_variables, seed=1)
    stir(agent.critic.variables, seed=2)
    agent.forward.refresh()
    return agent


def objective_by_hand(log_prob: np.ndarray, old: np.ndarray, advantage: np.ndarray, clip: float) -> float:
    """Equation 7, transition by transition."""
    total = 0.0
    for new, before, adv in zip(log_prob, old, advantage, strict=True):
        ratio = np.exp(new - before)
        clipped = min(max(ratio, 1 - clip), 1 + clip)
        total += min(ratio * adv, clipped * adv)
    return -total / len(log_prob)


class TestClippedObjective:
    #: Ratios of the new probability to the old, below, in and above the range, each with both signs of the advantage.
    RATIO = np.repeat([0.5, 0.79, 0.9, 1.0, 1.1, 1.21, 2.0], 2)
    ADVANTAGE = np.tile([1.5, -0.5], 7)

    def found(self, clip: float = 0.2) -> list[float]:
        agent = make()
        params = np.random.default_rng(0).normal(size=(14, ACTIONS)).astype(np.float32)
        action = np.arange(14, dtype=np.int32) % ACTIONS
        self.log_prob = log_softmax(np.float64(params))[np.arange(14), action]
        old = self.log_prob - np.log(self.RATIO)
        result = agent.policy_loss(params, action, np.float32(self.ADVANTAGE), np.float32(old), tf.constant(clip))
        return [float(x) for x in result]

    def test_loss(self):
        # Where the advantage is positive ratios count up to 1.2, where it is negative from 0.8 on.
        gain = sum(1.5 * min(r, 1.2) for r in self.RATIO[::2]) - sum(0.5 * max(r, 0.8) for r in self.RATIO[::2])
        assert self.found()[0] == pytest.approx(-gain / 14, rel=1e-5)
        assert self.found()[0] == pytest.approx(
            objective_by_hand(self.log_prob, self.log_prob - np.log(self.RATIO), self.ADVANTAGE, 0.2), rel=1e-5
        )
        assert self.found(1e6)[0] == pytest.approx(-np.mean(self.RATIO * self.ADVANTAGE), rel=1e-5)

    def test_kl_estimate_and_clipped_part(self):
        _, kl, clipped = self.found()
        assert kl == pytest.approx(np.mean(self.RATIO - 1 - np.log(self.RATIO)), rel=1e-4)
        assert clipped == pytest.approx(8 / 14)

    def test_gradient_is_zero_where_clipping_helps_no_further(self):
        agent = make()
        params = tf.constant(np.random.default_rng(0).normal(size=(4, ACTIONS)), tf.float32)
        action, advantage = tf.zeros(4, tf.int32), tf.constant([1.0, 1.0, -1.0, -1.0])
        old = agent.action_adaptor.distribution.log_prob(params, action) - tf.math.log([2.0, 0.5, 2.0, 0.5])
        with tf.GradientTape() as tape:
            tape.watch(params)
            loss, _, _ = agent.policy_loss(params, action, advantage, old, tf.constant(0.2))
        size = np.abs(tape.gradient(loss, params)).max(-1)
        np.testing.assert_array_equal(size > 0, [False, True, True, False])


@pytest.mark.parametrize('kind', ['Discrete', 'Box'])
def test_gradient_of_the_policy_loss_by_finite_differences(kind):
    agent = make(Discrete(ACTIONS) if kind == 'Discrete' else Box(-1.0, 1.0, (2,)), log_std_init=-0.3)
    rng = np.random.default_rng(4)
    obs, advantage = rng.normal(size=(16, 3)).astype(np.float32), rng.normal(size=16)
    action = agent.action_adaptor.random(16, rng)
    actor = NumpyNetwork(agent.policy.network)
    log_std = [] if kind == 'Discrete' else [np.float64(agent.policy.log_std.numpy())]

    def log_prob() -> np.ndarray:
        output = actor(obs)
        if kind == 'Discrete':
            return log_softmax(output)[np.arange(16), action]
        z = (action - output) / np.exp(log_std[0])
        return (-0.5 * z**2 - log_std[0] - 0.5 * np.log(2 * np.pi)).sum(-1)

    old = log_prob() + rng.normal(size=16) * 0.3
    expected = finite_differences(
        lambda: objective_by_hand(log_prob(), old, advantage, 0.2), [*actor.weights, *log_std]
    )
    with tf.GradientTape() as tape:
        loss = agent.policy_loss(agent.policy(obs), action, np.float32(advantage), np.float32(old), tf.constant(0.2))[0]
    assert float(loss) == pytest.approx(objective_by_hand(log_prob(), old, advantage, 0.2), rel=1e-4)
    assert_close(tape.gradient(loss, agent.policy.trainable_variables), expected, rtol=2e-3, atol=1e-4)
    assert max(np.abs(g).max() for g in expected) > 0.05


@pytest.mark.parametrize('params', [{}, {'entropy_coef': 0.3, 'value_coef': 2.0, 'gamma': 0.5, 'gae_lambda': 0.3}])
def test_an_iteration_computed_again(params):
    """Two minibatches, one after the other: advantages and old log-probabilities stay those of the beginning."""
    agent = make(optimizers_list=SGD, **params)
    data = rollout(agent)
    batches = np.array([[0, 7, 3, 12, 19, 5], [2, 6, 1, 17, 4, 9]], np.int32)
    flat_obs, flat_action = data.obs.reshape(20, 3), data.action.reshape(20)
    actor, critic = NumpyNetwork(agent.policy.network), NumpyNetwork(agent.critic)
    value = critic(flat_obs)[:, 0].reshape(5, 4)
    advantage = gae_by_hand(agent, data, value, critic(data.next_obs.reshape(20, 3))[:, 0].reshape(5, 4)).ravel()
    returns = advantage + value.ravel()
    old = log_softmax(actor(flat_obs))[np.arange(20), flat_action]

    for rows in batches:
        obs, action = flat_obs[rows], flat_action[rows]
        adv = (advantage[rows] - advantage[rows].mean()) / (advantage[rows].std() + 1e-8)

        def loss(obs: Any = obs, action: Any = action, adv: Any = adv, rows: Any = rows) -> float:
            log_probs = log_softmax(actor(obs))
            policy = objective_by_hand(log_probs[np.arange(6), action], old[rows], adv, 0.2)
            entropy = -(np.exp(log_probs) * log_probs).sum(-1).mean()
            values = np.mean((critic(obs)[:, 0] - returns[rows]) ** 2)
            return policy + agent.value_coef * values - agent.entropy_coef * entropy

        weights = actor.weights + critic.weights
        gradients = finite_differences(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight -= 0.1 * gradient

    agent.take(agent.fused(data, NOW | {'entropy_coef': np.float32(agent.entropy_coef)}, batches))
    assert_close(agent.policy.network.variables, actor.weights, 1e-3, 1e-4)
    assert_close(agent.critic.variables, critic.weights, 1e-3, 1e-4)
    np.testing.assert_allclose(agent.forward(flat_obs), actor(flat_obs), rtol=1e-3, atol=1e-4)


@pytest.mark.full(but='1e-09-2.0')
@pytest.mark.parametrize(('target', 'factor'), [(1e-9, 2.0), (1e9, 0.5), (None, 1.0)])
def test_an_iteration_with_a_penalty_computed_again(target, factor):
    """Two minibatches: the old policy of the KL stays that of the beginning; then β is adapted to what came of it."""
    data, batches = rollout(make()), np.array([[0, 7, 3, 12, 19, 5], [2, 6, 1, 17, 4, 9]], np.int32)
    flat_obs, flat_action = data.obs.reshape(20, 3), data.action.reshape(20)

    def iterated(target: float) -> tuple[PPO, NumpyNetwork, float]:
        agent = make(
            optimizers_list=SGD, method='penalty', penalty_coef=3.0, penalty_target=target, normalize_advantage=False
        )
        actor, critic = NumpyNetwork(agent.policy.network), NumpyNetwork(agent.critic)
        value = critic(flat_obs)[:, 0].reshape(5, 4)
        advantage = gae_by_hand(agent, data, value, critic(data.next_obs.reshape(20, 3))[:, 0].reshape(5, 4)).ravel()
        old = log_softmax(actor(flat_obs))

        def divergence(rows: Any) -> float:
            return (np.exp(old[rows]) * (old[rows] - log_softmax(actor(flat_obs[rows])))).sum(-1).mean()

        for rows in batches:

            def loss(rows: Any = rows) -> float:
                new = log_softmax(actor(flat_obs[rows]))[np.arange(6), flat_action[rows]]
                ratio = np.exp(new - old[rows, flat_action[rows]])
                return -np.mean(ratio * advantage[rows]) + 3.0 * divergence(rows)

            for weight, gradient in zip(actor.weights, finite_differences(loss, actor.weights), strict=True):
                weight -= 0.1 * gradient
        agent.take(agent.fused(data, NOW | {'entropy_coef': np.float32(0.0)}, batches))
        return agent, actor, divergence(np.flatnonzero(data.valid))

    if target is None:  # what it is, so that β stays
        target = iterated(1.0)[2]
    agent, actor, _ = iterated(target)
    assert_close(agent.policy.network.variables, actor.weights, 1e-3, 1e-4)
    assert float(agent.beta) == 3.0 * factor


def test_the_coefficient_of_the_penalty_is_saved(tmp_path):
    agent = make(method='penalty', penalty_target=1e-9)
    for seed in range(3):
        agent.update(rollout(agent, seed=seed), epochs=1, batch_size=20)
    assert float(agent.beta) > 1.0
    assert float(PPO.load(agent.save(tmp_path / 'saved')).beta) == float(agent.beta)


def test_values_are_clipped_around_the_old_ones():
    """Half the errors by hand: where the clipped value is farther from the return, it counts, and has no gradient."""
    agent = make(clip_range_value=Linear(0.4))
    value = tf.constant([1.0, 1.0, 1.0, -1.0])
    data = rollout(agent)._replace(state=(), begins=(), params=(), states=())
    samples = agent.samples(tf.nest.map_structure(tf.constant, data))._replace(valid=None)
    samples = samples._replace(value=tf.constant([0.0, 0.9, 3.0, 0.0]), returns=tf.constant([2.0, 2.0, 2.0, 2.0]))
    with tf.GradientTape() as tape:
        tape.watch(value)
        loss = agent.value_loss(value, samples, {'clip_range_value': tf.constant(0.2)})
    # (0.2 − 2)² > (1 − 2)²; not clipped; (2.8 − 2)² < (1 − 2)²; (−0.2 − 2)² < (−1 − 2)²
    assert float(loss) == pytest.approx((1.8**2 + 1.0 + 1.0 + 9.0) / 4)
    np.testing.assert_allclose(tape.gradient(loss, value), [0.0, -0.5, -0.5, -1.5], rtol=1e-6)
    agent.progress, seen, original = 0.5, [], agent.fused
    agent.fused = lambda rollout, now, batches: seen.append(now) or original(rollout, now, batches)
    agent.fused.traces = 0
    agent.update(rollout(agent), epochs=1, batch_size=20)
    assert seen[0]['clip_range_value'] == np.float32(0.2)


def test_schedules_of_the_entropy_bonus():
    agent, seen = make(entropy_coef=Linear(0.4, 0.2)), []
    original = agent.fused
    agent.fused = lambda rollout, now, batches: seen.append(now) or original(rollout, now, batches)
    agent.fused.traces = 0
    agent.progress = 0.5
    agent.update(rollout(agent), epochs=1, batch_size=20)
    assert seen[0] == {'entropy_coef': np.float32(0.3), 'clip_range': np.float32(0.2)}


def after(data: Trajectories, **params: Any) -> list[np.ndarray]:
    """The weights after one update on it, always from the same start."""
    agent = make(optimizers_list=SGD, **params)
    agent.rng = np.random.default_rng(0)
    agent.update(data, epochs=1, batch_size=8)
    return copies(agent.trainable_variables)


@functools.cache
def unchanged() -> list[np.ndarray]:
    return after(rollout(make()))


class TestEndsOfEpisodes:
    def changed(self, field: str, t: int, n: int) -> bool:
        """Whether another value of a field at one place makes another update."""
        data = rollout(make())
        other = data._replace(**{field: getattr(data, field).copy()})
        getattr(other, field)[t, n] += 1
        return any(not np.allclose(a, b, atol=1e-7) for a, b in zip(unchanged(), after(other), strict=True))

    @pytest.mark.full
    def test_a_terminated_transition_does_not_bootstrap(self):
        assert not self.changed('next_obs', 2, 1)

    def test_a_truncated_one_does_from_its_own_final_observation(self):
        assert self.changed('next_obs', 2, 2)

    def test_the_last_step_of_the_rollout_does(self):
        assert self.changed('next_obs', 4, 0)

    @pytest.mark.full
    def test_what_is_not_valid_is_not_learned_from(self):
        for field in ('obs', 'next_obs', 'reward'):
            assert not self.changed(field, 2, 3)
        for field, t in (('obs', 3), ('next_obs', 4), ('reward', 3)):
            assert self.changed(field, t, 3)


class TestMinibatches:
    def drawn(self, agent: PPO, data: Trajectories, **params: Any) -> tuple[np.ndarray, np.ndarray, Trajectories]:
        """What ``update`` hands to the compiled iteration."""
        seen, original = [], agent.fused
        agent.fused = lambda rollout, now, batches: (
            seen.append((batches, now['clip_range'], rollout)) or original(rollout, now, batches)
        )
        agent.fused.traces = original.traces
        agent.update(data, **params)
        return seen[0]

    @pytest.mark.full(but='6-4')
    @pytest.mark.parametrize(('batch_size', 'minibatches'), [(4, 5), (19, 2), (20, 1), (6, 4), (1000, 1)])
    def test_every_epoch_has_every_valid_transition(self, batch_size, minibatches):
        agent = make()
        data = rollout(agent)
        batches, _, _ = self.drawn(agent, data, epochs=3, batch_size=batch_size)
        size = min(batch_size, 20)
        assert batches.shape == (3 * minibatches, size) and batches.dtype == np.int32
        epochs = batches.reshape(3, -1)
        valid = set(np.flatnonzero(data.valid).tolist())
        assert len(valid) == 19
        for epoch in epochs:
            assert set(epoch.tolist()) == valid
            # No transition comes a second time before each came once.
            assert set(epoch[:19].tolist()) == valid
        assert not np.array_equal(epochs[0], epochs[1])

    def test_all_valid_and_divisible_is_a_permutation(self):
        agent = make()
        data = rollout(agent)._replace(valid=np.ones((5, 4), bool))
        batches, _, _ = self.drawn(agent, data, epochs=2, batch_size=5)
        for epoch in batches.reshape(2, -1):
            assert sorted(epoch) == list(range(20))

    def test_clip_range_follows_its_schedule(self):
        agent = make(clip_range=Linear(0.4))
        agent.progress = 0.75
        _, clip, _ = self.drawn(agent, rollout(agent))
        assert clip == np.float32(0.1)

    @pytest.mark.full
    def test_rewards_are_scaled_on_their_way_in(self):
        agent = make(normalize_reward=True)
        data = rollout(agent)._replace(reward=np.full((5, 4), 100.0, np.float32))
        _, _, seen = self.drawn(agent, data)
        assert np.abs(seen.reward).max() <= 10.0
        assert len(np.unique(seen.reward)) == 1  # by one number, whatever the time
        assert (data.reward == 100.0).all()

    def test_statistics_of_observations_take_in_the_rollout_once_it_is_learned_from(self):
        agent = make(normalize_obs=True)
        data = rollout(agent)
        self.drawn(agent, data)
        np.testing.assert_allclose(agent.statistics[''].mean, data.obs[data.valid].mean(0, np.float64), rtol=1e-9)
        assert agent.statistics[''].count == 19, 'a row in which a copy was only reset was taken in'

    def test_statistics_of_rewards_are_those_of_the_valid_rows(self):
        agent = make(normalize_reward=True, gamma=0.0)
        data = rollout(agent)
        self.drawn(agent, data)
        np.testing.assert_allclose(agent.reward_scale.moments.mean, data.reward[data.valid].mean(dtype=np.float64))
        assert agent.reward_scale.moments.count == 19


class TestIteration:
    def steps_taken(self, **params: Any) -> int:
        agent = make(**params)
        agent.update(rollout(agent), epochs=10, batch_size=20)
        return int(agent.optimizers['all'].iterations.numpy())

    def test_every_minibatch_of_every_epoch_is_a_gradient_step(self):
        assert self.steps_taken() == 10

    @pytest.mark.full
    def test_target_kl_stops_after_the_step_that_exceeds_it(self):
        # The first step finds no divergence yet, the second what the first one made.
        rate = [{'learning_rate': 0.1}]
        assert self.steps_taken(optimizers_list=rate, target_kl=1e-4) == 2
        assert self.steps_taken(optimizers_list=rate, target_kl=1e6) == 10

    @pytest.mark.full
    def test_gradients_are_clipped_by_their_norm(self):
        def moved(**params: Any) -> float:
            agent = make(optimizers_list=[{'name': 'SGD', 'learning_rate': 1.0}], **params)
            before = copies(agent.trainable_variables)
            agent.update(rollout(agent)._replace(reward=np.full((5, 4), 50.0, np.float32)), epochs=1, batch_size=20)
            return np.sqrt(
                sum(np.sum((a - b) ** 2) for a, b in zip(before, copies(agent.trainable_variables), strict=True))
            )

        assert moved(max_grad_norm=0.5) == pytest.approx(0.5, rel=1e-4)
        assert moved(max_grad_norm=None) > 5.0
        assert make(max_grad_norm=0.25).optimizers['all'].clip_norm == 0.25

    def test_the_entropy_bonus_keeps_the_policy_random(self):
        def entropy(coefficient: float) -> float:
            agent = make(entropy_coef=coefficient, optimizers_list=[{'learning_rate': 0.02}])
            agent.rng = np.random.default_rng(0)
            metrics = {}
            for seed in range(8):
                metrics = agent.update(rollout(agent, seed=seed), epochs=4, batch_size=20)
            return metrics['entropy']

        assert entropy(1.0) > entropy(0.0) + 0.05

    def test_log_std_starts_where_it_is_told_and_is_learned(self):
        agent = PPO(VECTOR, Box(-1.0, 1.0, (2,)), log_std_init=-1.5)
        np.testing.assert_array_equal(agent.policy.log_std.numpy(), [-1.5, -1.5])
        agent.update(rollout(agent), epochs=1)
        assert (agent.policy.log_std.numpy() != -1.5).all()


class TestActing:
    OBS = np.random.default_rng(3).normal(size=(3000, 3)).astype(np.float32)

    def test_deterministic_is_the_mode_and_otherwise_a_sample(self):
        agent = make()
        agent.rng = np.random.default_rng(0)
        obs = np.tile(self.OBS[:1], (20_000, 1))
        probability = np.exp(log_softmax(NumpyNetwork(agent.policy.network)(obs[:1])))[0]
        assert set(agent.act(obs, deterministic=True)) == {probability.argmax()}
        np.testing.assert_allclose(np.bincount(agent.act(obs), minlength=ACTIONS) / 20_000, probability, atol=0.015)

    @pytest.mark.parametrize('action_space', [Discrete(ACTIONS), MultiDiscrete([3, 2])])
    def test_masked_actions_are_never_chosen(self, action_space):
        counts = [ACTIONS] if isinstance(action_space, Discrete) else [3, 2]
        agent = make(action_space, Dict(x=VECTOR, action_mask=MultiBinary(sum(counts))))
        bias = agent.policy.network.variables[-1]
        bias.assign(np.where(np.arange(sum(counts)) == 0, 50.0, 0.0))  # it would always choose the first
        agent.forward.refresh()
        mask = np.random.default_rng(0).random((3000, sum(counts))) < 0.5
        for n, offset in zip(counts, np.cumsum([0, *counts]), strict=False):
            mask[:, offset] = False
            mask[np.arange(3000), offset + 1 + np.arange(3000) % (n - 1)] = True
        obs = {'x': self.OBS, 'action_mask': mask.astype(np.int8)}
        for deterministic in (True, False):
            chosen = agent.act(obs, deterministic).reshape(3000, -1)
            for i, offset in enumerate(np.cumsum([0, *counts])[:-1]):
                assert mask[np.arange(3000), offset + chosen[:, i]].all()
        allowed = {'x': self.OBS, 'action_mask': np.ones_like(obs['action_mask'])}
        assert (agent.act(allowed).reshape(3000, -1)[:, 0] == 0).all()

    def test_masked_actions_have_no_gradient(self):
        agent = make(space=Dict(x=VECTOR, action_mask=MultiBinary(ACTIONS)))
        obs = {'x': self.OBS[:8], 'action_mask': np.tile(np.int8([1, 0, 1, 0]), (8, 1))}
        distribution = agent.action_adaptor.distribution
        with tf.GradientTape() as tape:
            params = agent.policy(obs)
            loss = tf.reduce_sum(distribution.log_prob(params, tf.zeros(8, tf.int32)) + distribution.entropy(params))
        gradient = tape.gradient(loss, agent.policy.network.variables[-1]).numpy()
        assert (gradient[[1, 3]] == 0).all() and (gradient[[0, 2]] != 0).all() and np.isfinite(gradient).all()


def test_copies_that_are_reset_in_a_step_of_their_own_learn_only_from_true_steps():
    """A step in which a copy is only reset is not counted, and its reward of a million does not matter."""

    class Loud(gymnasium.vector.VectorWrapper):
        def step(self, actions: Any) -> Any:
            resets = getattr(self, 'ended', np.zeros(3, bool))
            obs, reward, terminated, truncated, info = self.env.step(actions)
            self.ended = terminated | truncated
            return obs, np.where(resets, 1e6, reward), terminated, truncated, info

    env = SyncVectorEnv(
        [lambda: toys.AnySpaces(toys.OBSERVATIONS['vector'], Discrete(ACTIONS))] * 3,
        autoreset_mode=AutoresetMode.NEXT_STEP,
    )
    agent = PPO(toys.OBSERVATIONS['vector'], Discrete(ACTIONS), net_list=[{'hidden': [6]}] * 2)
    result = agent.learn(Loud(env), train_steps=90, horizon=12, batch_size=6, run_dir=False)
    assert result.losses['value'] < 100.0
    assert result.steps == 90  # 12 calls of 3 copies, every sixth one only a reset: 30 steps an iteration
    assert np.abs(result.returns).max() < 100.0


class TestSharedTorso:
    """``'actor'`` in place of the critic puts the critic's head on the actor's torso."""

    def agent(self, **params: Any) -> PPO:
        return make(net_list=[{'hidden': [6], 'seed': 3}, 'actor'], optimizers_list=SGD, **params)

    def test_the_torso_is_owned_and_moved_once(self):
        agent = self.agent()
        actor, critic = agent.networks['actor'], agent.networks['critic']
        assert critic.torso is actor.torso
        assert [v.shape for v in critic.variables] == [(6, 1), (1,)]
        assert len(agent.trainable_variables) == 6

    def test_value_and_policy_are_those_of_two_networks_with_the_same_torso(self):
        agent, apart = self.agent(), make()
        copy_weights(apart.networks['actor'].variables, agent.networks['actor'].variables)
        copy_weights(apart.critic.variables, agent.networks['actor'].variables[:2] + agent.critic.variables)
        obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
        for shared, own in zip(agent.policy_and_value(obs), apart.policy_and_value(obs), strict=True):
            assert_close(shared, own)

    @pytest.mark.full
    def test_one_gradient_step_is_the_sum_of_both_losses(self):
        """A minibatch of everything, one step: the torso moves as two torsos that start equal do together."""
        agent, apart = self.agent(value_coef=0.7), make(optimizers_list=SGD, value_coef=0.7)
        copy_weights(apart.networks['actor'].variables, agent.networks['actor'].variables)
        copy_weights(apart.critic.variables, agent.networks['actor'].variables[:2] + agent.critic.variables)
        before = [v.numpy() for v in agent.networks['actor'].variables[:2]]
        for one in (agent, apart):
            one.rng = np.random.default_rng(0)
            one.update(rollout(agent), epochs=1, batch_size=20)
        for i in range(2):
            moved = agent.networks['actor'].variables[i] - before[i]
            own = (apart.networks['actor'].variables[i] - before[i]) + (apart.critic.variables[i] - before[i])
            assert_close(moved, own)
            assert np.abs(moved).max() > 1e-4

    @pytest.mark.full
    def test_saved_and_loaded(self, tmp_path: Any):
        agent = self.agent()
        agent.update(rollout(agent), epochs=1, batch_size=20)
        loaded = PPO.load(agent.save(tmp_path / 'agent'))
        obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
        for found, wanted in zip(loaded.policy_and_value(obs), agent.policy_and_value(obs), strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert loaded.critic.torso is loaded.policy.network.torso

    @pytest.mark.parametrize(
        'net_list, message',
        [
            (['critic', {}], "share the torso of 'critic': name a network before it"),
            ([{}, 'acto'], "share the torso of 'acto': name a network before it"),
        ],
    )
    def test_wrong_names(self, net_list: list[Any], message: str):
        with pytest.raises(ValueError, match=message):
            PPO(VECTOR, Discrete(ACTIONS), net_list=net_list)

    def test_a_complete_network_has_no_torso_to_share(self):
        whole = keras.Sequential([keras.Input((3,)), keras.layers.Dense(ACTIONS)])
        with pytest.raises(ValueError, match=r'net_list\[1\] \(critic\) shares the torso of actor, but actor is'):
            PPO(VECTOR, Discrete(ACTIONS), net_list=[whole, 'actor'])


def test_an_iteration_of_resets_alone_changes_nothing():
    agent = make(optimizers_list=SGD)
    before = [v.numpy() for v in agent.trainable_variables]
    empty = rollout(agent)
    assert agent.update(empty._replace(valid=np.zeros_like(empty.valid)), epochs=1, batch_size=5) is None
    for variable, old in zip(agent.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(variable, old)
