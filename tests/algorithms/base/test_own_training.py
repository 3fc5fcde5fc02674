"""A training loop of the user's own: ``agent.rollout``, ``agent.evaluate``, ``agent.apply_gradients``."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toys import ACTIONS, AnySpaces, observation_space

from zoo import Rollout, build_env
from zoo.algorithms import DQN, PPO, SAC, TRPO, VPG
from zoo.common import spaces

TINY = {'hidden': [5], 'features': 4}


class Counting(gymnasium.Env):
    """Shows the number of the step, from 10 times the number of the episode; an episode is ``length`` steps, by turns
    terminated and truncated; the reward is what is seen next."""

    observation_space = Box(-1.0, 999.0, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, length: int = 3) -> None:
        self.length = length
        self.episode = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.t = 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        over = self.t == self.length
        return self._see(), 10.0 * self.episode + self.t, over and self.episode % 2 == 0, over and self.episode % 2, {}

    def _see(self) -> np.ndarray:
        return np.array([10 * self.episode + self.t], np.float32)


def copies(*lengths: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> SyncVectorEnv:
    return SyncVectorEnv([lambda length=length: Counting(length) for length in lengths], autoreset_mode=mode)


def ppo(obs: str = 'vector', act: str = 'Discrete', **params: Any) -> tuple[PPO, AnySpaces]:
    action_space = ACTIONS[act]
    space = observation_space(obs, action_space)
    nets = [TINY | {'seed': 0}, TINY | {'seed': 1}]
    return PPO(space, action_space, net_list=nets, **params), AnySpaces(space, action_space)


@pytest.fixture(scope='module')
def agent() -> PPO:
    """For `Counting`."""
    return PPO(Counting.observation_space, Counting.action_space, net_list=[TINY | {'seed': 0}, TINY | {'seed': 1}])


def same(a: Any, b: Any) -> bool:
    return (a is b is None) or all(
        np.array_equal(x, y) for (_, x), (_, y) in zip(spaces.tree_items(a), spaces.tree_items(b), strict=True)
    )


# What is played


@pytest.mark.parametrize('mode', [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_call_goes_on_where_the_last_one_stopped(agent, mode):
    whole = agent.rollout(copies(3, 4, mode=mode), steps=40, seed=3)
    env = copies(3, 4, mode=mode)
    first = agent.rollout(env, steps=13, seed=3)
    second = agent.rollout(env, steps=26)
    assert first.reward.shape == (7, 2) and second.reward.shape == (13, 2)  # rounded up
    joined = first + second
    for name, x in whole.fields.items():
        assert same(joined.fields[name], x), name
    assert joined.finished == whole.finished and not joined.cut.any()
    if mode == AutoresetMode.NEXT_STEP:  # every fourth row of the first copy is only a reset
        assert np.array_equal(np.flatnonzero(~whole.valid[:, 0]), [3, 7, 11, 15, 19])
        assert np.array_equal(np.flatnonzero(whole.begins[:, 0]), [0, 4, 8, 12, 16])
    else:
        assert whole.valid.all() and np.array_equal(np.flatnonzero(whole.begins[:, 0]), [0, 3, 6, 9, 12, 15, 18])
    assert all(episode.next_obs[-1] % 10 == len(episode) for episode in whole.episodes())  # the true final one


def test_returns_along_real_episodes(agent):
    """The critic is asked where the time was up, and at the end, in the middle of an episode; not at a termination."""
    rollout = agent.rollout(copies(3), steps=10)
    value = agent.value(tf.constant([[13.0], [32.0]])).numpy()  # the ends of the first episode and of the rollout
    expected = np.zeros(10, np.float32)
    expected[2] = 13 + 0.5 * value[0]
    expected[6] = 23
    expected[9] = 32 + 0.5 * value[1]
    for t, reward in ((1, 12), (0, 11), (5, 22), (4, 21), (8, 31)):
        expected[t] = reward + 0.5 * expected[t + 1]
    assert np.allclose(rollout.returns(0.5)[:, 0], expected)
    assert np.allclose(rollout.advantages(0.5, 1.0) + agent.evaluate(rollout).value * rollout.valid, expected[:, None])


def test_short_episodes_are_not_played_more_often_than_long_ones(agent):
    env = copies(1, 10)
    rollout = agent.rollout(env, episodes=5)
    assert [len(x) for x in rollout.episodes()].count(1) == 3 and [len(x) for x in rollout.episodes()].count(10) == 2
    assert [x.length for x in rollout.finished] == [1, 1, 1, 10, 10]
    assert rollout.steps == 3 + 20 and rollout.reward.sum() == rollout.mean_return * 5
    played_on = ~rollout.valid
    assert played_on.sum() == 19
    assert not any(x[played_on].any() for x in (rollout.reward, rollout.terminated, rollout.truncated, rollout.begins))
    assert agent.rollout(env, steps=2).begins.all()  # a call with episodes is not gone on from
    alone = Counting(3)
    assert [len(x) for x in agent.rollout(alone, episodes=2).episodes()] == [3, 3]


def test_it_begins_anew_where_somebody_else_has(agent):
    env = copies(9)
    agent.rollout(env, steps=3)
    assert agent.rollout(env, steps=3).obs[0] % 10 == 3
    other = copies(9)
    agent.rollout(other, episodes=1)  # elsewhere, which disturbs nobody
    assert agent.rollout(env, steps=1).obs[0] % 10 == 6
    for begin in (
        lambda: agent.learn(env, 'test', test_episodes=1),
        lambda: agent.rollout(env, episodes=1),
        lambda: agent.rollout(env, steps=2, seed=0),
    ):
        begin()
        again = agent.rollout(env, steps=2)
        assert again.begins[0] == (again.obs[0] % 10 == 0) and again.obs[0] % 10 in (0, 2)
    assert again.obs[0] % 10 == 2  # after its own seeded call it goes on


@pytest.mark.full
def test_an_environment_in_training_is_refused(agent):
    env, found = copies(3), {}
    agent.rollout(env, steps=1)

    def during(training: Any) -> bool:
        before = training.agent.steps
        for name, other in (('same', env), ('own copy', env.envs[0]), ('another', copies(3))):
            try:
                found[name] = str(training.agent.rollout(other, steps=2).steps)
            except ValueError as error:
                found[name] = str(error)
        assert training.agent.steps == before
        return False

    agent.learn(env, train_steps=8, horizon=8, epochs=1, log_every=1, callbacks=[during], run_dir=False)
    assert 'being trained on' in found['same'] and 'being trained on' in found['own copy'] and found['another'] == '2'
    assert agent.rollout(env, steps=1).begins.all()


@pytest.mark.parametrize(
    'arguments, message',
    [
        ({}, 'either steps'),
        ({'steps': 1, 'episodes': 1}, 'not both'),
        ({'steps': 0}, 'at least 1'),
        ({'episodes': 1.5}, 'at least 1'),
    ],
)
def test_refused_arguments(agent, arguments, message):
    with pytest.raises(ValueError, match=message):
        agent.rollout(Counting(), **arguments)


def test_other_spaces_are_refused(agent):
    other, env = ppo(act='Box')
    with pytest.raises(ValueError, match=r"the environment's observation_space is Box\(3,\) float32, but this agent"):
        agent.rollout(env, steps=1)
    with pytest.raises(ValueError, match=r"the rollout's observation_space is Box\(3,\) float32, but this agent"):
        agent.evaluate(other.rollout(env, steps=1))
    with pytest.raises(ValueError, match=r'rollout needs a Gymnasium environment, not a str'):
        agent.rollout('CartPole-v1', steps=1)
    with pytest.raises(ValueError, match='takes a rollout'):
        agent.evaluate({'obs': 1})


# What the agent thinks of it


@pytest.mark.full(but='masked Dict-Discrete')
@pytest.mark.parametrize(
    'obs, act',
    [('vector', 'Box'), ('nested Dict', 'Dict'), ('masked Dict', 'Discrete'), ('masked Dict', 'MultiDiscrete')],
)
def test_evaluated_is_what_acting_computed(obs, act):
    agent, env = ppo(obs, act, normalize_obs=True)
    agent.observe(agent.rollout(env, steps=40))
    rollout = agent.rollout(env, steps=40)
    found = agent.evaluate(rollout)
    assert found.log_prob.shape == found.entropy.shape == found.value.shape == (40, 1)
    assert np.allclose(found.log_prob, rollout.log_prob, atol=1e-5) and np.ptp(rollout.log_prob) > 0.01
    for batch in rollout.minibatches(3):
        assert np.allclose(agent.evaluate(batch).log_prob, batch.log_prob, atol=1e-5)
    assert agent.rollout(env, steps=2, deterministic=True).log_prob is None
    with pytest.raises(ValueError, match='no steps'):
        agent.evaluate(rollout[:0])


def test_gradients_are_those_of_finite_differences():
    agent, env = ppo('vector', 'Dict')  # no image: what its rectifiers cut off has no difference of a finite step
    rollout = agent.rollout(env, steps=20)
    weights = np.random.default_rng(0).standard_normal((3, 20, 1)).astype(np.float32)

    def loss() -> tf.Tensor:
        found = agent.evaluate(rollout, training=True)
        parts = (found.log_prob, found.entropy, found.value)
        return tf.add_n([tf.reduce_sum(w * x) for w, x in zip(weights, parts, strict=True)])

    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, agent.trainable_variables)
    assert all(gradient is not None for gradient in gradients)
    for variable, gradient in zip(agent.trainable_variables, gradients, strict=True):
        direction = np.random.default_rng(1).standard_normal(variable.shape).astype(np.float32)
        before, along = variable.numpy(), []
        for step in (2e-3, -2e-3):
            variable.assign(before + step * direction)
            along.append(loss().numpy())
        variable.assign(before)
        slope = np.sum(gradient.numpy() * direction)
        assert np.isclose((along[0] - along[1]) / 4e-3, slope, rtol=0.03, atol=0.05), variable.name


@pytest.mark.full
def test_acting_sees_the_new_weights():
    agent, env = ppo(act='Box', optimizers_list=[{'learning_rate': 0.03}])
    rollout = agent.rollout(env, steps=10)

    @tf.function
    def update(batch: Rollout) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(agent.evaluate(batch, training=True).log_prob)
        agent.apply_gradients(tape.gradient(loss, agent.trainable_variables))

    for _ in range(30):
        update(rollout)
    assert agent.evaluate(rollout).log_prob.numpy().mean() < rollout.log_prob.mean() - 0.1
    after = agent.rollout(env, steps=10)
    assert np.allclose(agent.evaluate(after).log_prob, after.log_prob, atol=1e-5)
    critic = agent.networks['critic'].trainable_variables
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(agent.evaluate(rollout).value))
    before = [v.numpy() for v in critic]
    agent.apply_gradients(tape.gradient(loss, agent.trainable_variables))
    assert any((v.numpy() != old).any() for v, old in zip(critic, before, strict=True))
    with pytest.raises(ValueError, match='1 gradients were given for'):
        agent.apply_gradients([None])
    with pytest.raises(ValueError, match='no gradient reaches'):
        agent.apply_gradients([None] * len(agent.trainable_variables))


def test_running_statistics_move_when_they_are_told():
    agent = PPO(Counting.observation_space, Counting.action_space, net_list=[TINY] * 2, normalize_obs=True)
    rollout = agent.rollout(copies(3), steps=8)
    (moments,) = agent.moments().values()
    assert moments.count == 0
    agent.observe(rollout)
    seen = [10, 11, 12, 20, 21, 22]  # rows 3 and 7 were resets
    assert moments.count == 6 and np.allclose(moments.mean, np.mean(seen))
    before = agent.evaluate(rollout).params.numpy()
    agent.observe(rollout[:3])
    assert not np.allclose(agent.evaluate(rollout).params, before)


def test_a_learning_rate_that_is_scheduled_follows_progress():
    from zoo.common.schedules import Linear

    agent, env = ppo(optimizers_list=[{'learning_rate': Linear(1.0)}])
    agent.progress = 0.75
    agent.rollout(env, steps=1)
    assert np.isclose(agent.optimizers['all']._learning_rate.numpy(), 0.25)


# Algorithms of other kinds


def test_an_algorithm_of_action_values_plays_and_has_nothing_to_evaluate():
    agent = DQN(Counting.observation_space, Counting.action_space, net_list=[TINY], epsilon=0.5)
    rollout = agent.rollout(copies(3, 3), steps=120)
    assert rollout.log_prob is None and set(np.unique(rollout.action)) == {0, 1}
    assert np.array_equal(rollout.returns(0.0), rollout.reward)  # it has no critic of states
    with pytest.raises(ValueError, match='DQN has no critic, so that no values'):
        rollout.advantages(0.9, 0.9)
    with pytest.raises(ValueError, match='DQN has no stochastic policy'):
        agent.evaluate(rollout)


def test_without_a_baseline_there_are_no_values():
    agent = VPG(Counting.observation_space, Counting.action_space, net_list=[TINY], baseline=False)
    rollout = agent.rollout(copies(3), steps=4)
    assert agent.evaluate(rollout).value is None and agent.evaluate(rollout).log_prob.shape == (4, 1)
    assert np.allclose(rollout.returns(0.5)[:, 0], [11 + 0.5 * (12 + 0.5 * 13), 12 + 0.5 * 13, 13, 0])
    with pytest.raises(ValueError, match='VPG has no critic'):
        rollout.advantages(0.9, 0.9)


def test_sac_has_probabilities_and_each_optimizer_its_own_gradients():
    space = ACTIONS['Box']
    env = AnySpaces(observation_space('vector', space), space)
    agent = SAC(env.observation_space, space, net_list=[TINY] * 3)
    rollout = agent.rollout(env, steps=10)
    with tf.GradientTape() as tape:
        found = agent.evaluate(rollout)
        loss = tf.reduce_mean(found.log_prob)
    assert found.entropy is None and found.value is None
    assert np.allclose(found.log_prob, rollout.log_prob, atol=1e-4)
    before = [v.numpy() for v in agent.trainable_variables]
    agent.apply_gradients(tape.gradient(loss, agent.trainable_variables))
    policy = {id(v) for v in agent.policy.trainable_variables}
    moved = {id(v) for v, old in zip(agent.trainable_variables, before, strict=True) if (v.numpy() != old).any()}
    assert moved and moved <= policy


def test_of_trpo_the_critics_gradients_alone_can_be_applied():
    """No optimizer moves the policy, whose weights are listed first and have the shapes of the critic's."""
    space = Box(-1.0, 1.0, (1,), np.float32)
    env = AnySpaces(Counting.observation_space, space)
    agent = TRPO(env.observation_space, space, net_list=[TINY] * 2)
    rollout = agent.rollout(env, steps=10)
    policy, critic = agent.policy.trainable_variables, agent.critic.trainable_variables
    before = [v.numpy() for v in policy + critic]
    with tf.GradientTape(persistent=True) as tape:
        found = agent.evaluate(rollout)
        log_prob, value = tf.reduce_mean(found.log_prob), tf.reduce_mean(tf.square(found.value))
    with pytest.raises(ValueError, match='^TRPO has weights that its update moves without an optimizer'):
        agent.apply_gradients(tape.gradient(log_prob, agent.trainable_variables))
    assert all((v.numpy() == old).all() for v, old in zip(policy + critic, before, strict=True))
    agent.apply_gradients(tape.gradient(value, agent.trainable_variables))
    moved = [bool((v.numpy() != old).any()) for v, old in zip(policy + critic, before, strict=True)]
    assert not any(moved[: len(policy)]) and any(moved[len(policy) :])


def test_a_recurrent_policy_off_policy_is_evaluated_with_its_memory():
    space = Box(-1.0, 1.0, (2,), np.float32)
    env = AnySpaces(observation_space('vector', space), space)
    agent = SAC(env.observation_space, space, net_list=[{'hidden': [4], 'recurrent': 'gru'}, TINY, TINY])
    rollout = agent.rollout(env, steps=12, seed=0)
    assert rollout.finished
    for part in (rollout, rollout[3:]):
        assert np.allclose(agent.evaluate(part).log_prob, part.log_prob, atol=1e-4)


def test_a_recurrent_policy_is_evaluated_in_order():
    env = build_env('CartPole-v1', 'classic_control', nenv=3)
    nets = [{'hidden': [4], 'recurrent': 'gru', 'seed': 0}, 'actor']
    agent = PPO(env.single_observation_space, env.single_action_space, net_list=nets)
    first, second = agent.rollout(env, steps=90, seed=0), agent.rollout(env, steps=90)
    assert agent.behavior.state is None  # what a training under way would keep is not touched
    assert first.finished and first.state[1].any() and not first.state[first.begins].any()
    parts = [first, second, first + second, second[7:, [2, 0]], agent.rollout(env, episodes=4)]
    for part in parts:
        found = agent.evaluate(part)
        assert np.allclose(np.where(part.valid, found.log_prob - part.log_prob, 0.0), 0.0, atol=1e-5)
    # The value of what follows is that of the next step in the same state.
    joined = first + second
    value = agent.evaluate(joined).value.numpy()
    ends = first.terminated[-1] | first.truncated[-1]
    expected = first.reward[-1] + 0.9 * np.where(ends, 0.0, value[30]) - value[29]
    assert np.allclose(first.advantages(0.9, 0.0)[-1], expected, atol=1e-5) and not ends.all()
    with pytest.raises(ValueError, match='no loose transitions'):
        agent.evaluate(first.flat())
    with pytest.raises(ValueError, match='evaluate each by itself'):
        second + second
