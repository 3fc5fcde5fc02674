"""Training in compiled environments: the updates of Python, callbacks, what is stepped from Python instead."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pure
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete

import zoo
from zoo import algorithms
from zoo.common.tools.errors import InvalidValue, NotFinite

QUIET = {'run_dir': False, 'verbose': 0, 'seed': 0}


def made(name: str, nenv: int, functions: Any = None, **params: Any) -> tuple[Any, Any]:
    """An agent with tiny networks, and its compiled environment."""
    cls = getattr(algorithms, name)
    discrete = 'Box' not in cls.acts_in
    env = zoo.build_env(functions or (pure.Choices if discrete else pure.Line)(), 'compiled', nenv=nenv)
    space = ('single_' if nenv > 1 else '') + 'observation_space'
    actions = ('single_' if nenv > 1 else '') + 'action_space'
    params = {'net_list': [{'hidden': [8], 'seed': i} for i in range(len(cls.network_names))]} | params
    return cls(getattr(env, space), getattr(env, actions), **params), env


class Every:
    """A callback that is due after so many steps."""

    def __init__(self, every: int, note: Any) -> None:
        self.every, self.note = every, note

    def __call__(self, training: Any) -> None:
        self.note(training)


def weights(agent: Any) -> np.ndarray:
    return np.concatenate([v.numpy().ravel() for v in agent.trainable_variables])


@pytest.mark.parametrize('name', ['PPO', *(pytest.param(name, marks=pytest.mark.full) for name in ('VPG', 'TRPO'))])
def test_on_policy(name):
    agent, env = made(name, 3, pure.Choices())
    before = weights(agent)
    params = {
        name: x for name, x in {'horizon': 16, 'epochs': 2, 'batch_size': 12}.items() if name in agent.learn_params()
    }
    result = agent.learn(env, 'train', train_steps=96, **params, **QUIET)
    assert result.steps == 96 and set(result.losses) == set(agent.metric_names)
    assert len(result.returns) == result.episodes > 2 and min(result.returns) > -50  # the mask was heeded
    assert (weights(agent) != before).any()


def test_an_update_is_that_of_an_ordinary_environment():
    """The same rollout gives the same weights: only where it comes from differs."""
    agent, env = made('PPO', 3)
    twin, _ = made('PPO', 3)
    rollouts = []
    update = agent.update
    agent.update = lambda rollout, **params: (rollouts.append(rollout), update(rollout, **params))[1]
    agent.learn(env, 'train', train_steps=48, horizon=16, epochs=2, batch_size=12, **QUIET)
    (rollout,) = rollouts
    twin.reseed(0, 'agent')
    twin.rng.integers(2**31, size=2)  # the seed of the rollout
    twin.update(rollout, epochs=2, batch_size=12)
    np.testing.assert_allclose(weights(agent), weights(twin), atol=1e-6)


RECURRENT = {'net_list': [{'hidden': [8], 'recurrent': 'gru', 'recurrent_units': 8, 'seed': 0}, 'actor']}


FALLING = {'optimizers_list': [{'name': 'Adam', 'learning_rate': zoo.Linear(1e-2, 0.0)}]}


@pytest.mark.parametrize(
    ('name', 'params', 'learn'),
    [
        ('A2C', {}, {'horizon': 5}),
        pytest.param('PPO', RECURRENT, {'horizon': 16, 'epochs': 2, 'batch_size': 16}, marks=pytest.mark.full),
        pytest.param('PQN', FALLING, {'horizon': 16, 'batch_size': 12}, marks=pytest.mark.full),
        pytest.param('VPG', FALLING, {'horizon': 12}, marks=pytest.mark.matrix),
        pytest.param(
            'PPO',
            {'clip_range': zoo.Linear(0.3, 0.0)},
            {'horizon': 16, 'epochs': 2, 'batch_size': 12},
            marks=pytest.mark.matrix,
        ),
        pytest.param('TRPO', {}, {'horizon': 16, 'batch_size': 12}, marks=pytest.mark.matrix),
    ],
)
def test_iterations_in_one_call_are_those_one_by_one(name, params, learn):
    found = []
    for one_by_one in (False, True):
        agent, env = made(name, 3, pure.Choices(), **params)
        if one_by_one:  # an update of one's own is called after each rollout
            agent.update = functools.partial(type(agent).update, agent)
        result = agent.learn(env, 'train', train_steps=480, **learn, **QUIET)
        assert [len(key) > 3 for key in agent.calls] == [not one_by_one]
        found.append((weights(agent), result, agent.rng.integers(2**31)))
    (left, together, drawn), (right, apart, drawn_too) = found
    np.testing.assert_allclose(left, right, atol=1e-5)
    assert together.returns == apart.returns and together.episode_steps == apart.episode_steps and drawn == drawn_too
    assert together.losses == pytest.approx(apart.losses, rel=1e-3, abs=1e-4)


def test_an_update_of_ones_own_is_called():
    calls = []

    class Mine(algorithms.A2C):
        def update(self, rollout):
            calls.append(rollout.reward.shape)
            return super().update(rollout)

    env = zoo.build_env(pure.Line(), 'compiled', nenv=3)
    agent = Mine(env.single_observation_space, env.single_action_space)
    assert not agent.improves_in_graph
    agent.learn(env, 'train', train_steps=60, horizon=5, **QUIET)
    assert calls == [(5, 3)] * 4


@pytest.mark.full
def test_callbacks_on_policy_are_called_where_they_are_due():
    agent, env = made('A2C', 2)
    seen = []

    note = Every(50, lambda training: seen.append((training.steps, float(weights(training.agent).sum()))))
    agent.learn(env, 'train', train_steps=200, horizon=5, callbacks=[note], **QUIET)
    assert [steps for steps, _ in seen] == [50, 100, 150, 200] and len({total for _, total in seen}) == 4


@pytest.mark.parametrize(
    ('nenv', 'update_every', 'updates', 'explore_steps'),
    [
        (1, 1, None, 10),
        pytest.param(1, 4, 2, 7, marks=pytest.mark.full),
        pytest.param(3, 1, None, 10, marks=pytest.mark.full),
        pytest.param(3, 4, 1, 0, marks=pytest.mark.full),
        pytest.param(4, 8, None, 33, marks=pytest.mark.full),
        pytest.param(2, 3, 2, 5, marks=pytest.mark.full),
    ],
)
def test_as_many_updates_as_in_python(nenv, update_every, updates, explore_steps):
    params = {'train_steps': 80, 'update_every': update_every, 'updates': updates, 'explore_steps': explore_steps}
    params |= {'batch_size': 8, 'buffer_size': 60}
    counts = []
    for python in (False, True):
        agent, env = made('DQN', nenv)
        result = agent.learn(env, 'train', **params, **QUIET, checkpoint_buffer=python)
        counts.append((agent.updates, result.steps, agent.steps))
        assert result.episodes and np.isfinite(result.losses['q'])
    assert counts[0] == counts[1] and counts[0][0] > 5


@pytest.mark.parametrize(
    'name', ['SAC', *(pytest.param(name, marks=pytest.mark.full) for name in ('TD3', 'QRDQN', 'DDPG', 'TQC'))]
)
def test_off_policy(name):
    agent, env = made(name, 2)
    before = [v.numpy() for v in agent.trainable_variables]
    result = agent.learn(env, 'train', train_steps=60, explore_steps=20, batch_size=8, buffer_size=100, **QUIET)
    assert result.steps == 60 and agent.updates == 42 and set(result.losses) == set(agent.metric_names)
    for old, variable in zip(before, agent.trainable_variables, strict=True):
        assert (old != variable.numpy()).any(), variable.name
    obs = np.ones((1, 2), np.float32) if name != 'QRDQN' else {'place': np.ones((1, 2)), 'action_mask': np.ones((1, 3))}
    np.testing.assert_array_equal(agent.predict(obs), zoo_predict(agent, obs))


def zoo_predict(agent: Any, obs: Any) -> np.ndarray:
    """Acting has the newest weights, read again."""
    agent.forward.refresh()
    return agent.predict(obs)


@pytest.mark.parametrize('delay', [2, *(pytest.param(delay, marks=pytest.mark.full) for delay in (1, 3))])
def test_delayed_actors_move_in_their_phase(delay):
    agent, env = made('TD3', 1, policy_delay=delay)
    steps = []
    params = {'explore_steps': 8, 'batch_size': 8, 'buffer_size': 100}
    for end in (11, 5):
        agent.learn(env, 'train', train_steps=end, **params, **QUIET)
        steps.append(int(agent.optimizers['actor'].iterations.numpy()))
    assert agent.updates == 4 + 5 and steps == [4 // delay, 9 // delay]


@pytest.mark.full
def test_schedules_follow_every_step():
    rate = zoo.Linear(1e-2, 0.0)
    agent, env = made('DQN', 1, optimizers_list=[{'name': 'Adam', 'learning_rate': rate}])
    agent.learn(env, 'train', train_steps=50, explore_steps=8, batch_size=8, buffer_size=100, **QUIET)
    assert float(agent.optimizers['q']._rate) == pytest.approx(rate(49 / 50), rel=1e-5)


def test_callbacks_are_called_where_they_are_due():
    agent, env = made('DQN', 2)
    seen = []

    note = Every(30, lambda training: seen.append(training.steps))
    agent.learn(
        env, 'train', train_steps=100, explore_steps=10, batch_size=8, buffer_size=50, callbacks=[note], **QUIET
    )
    assert seen == [30, 60, 90, 100]


def test_who_watches_does_not_change_the_training():
    found = []
    for every in (None, 7):
        agent, env = made('DQN', 2)
        watch = [] if every is None else [Every(every, lambda training: None)]
        params = {'train_steps': 100, 'explore_steps': 10, 'batch_size': 8, 'buffer_size': 50}
        agent.learn(env, 'train', **params, callbacks=watch, log_every=None if every is None else 11, **QUIET)
        found.append(weights(agent))
    np.testing.assert_array_equal(*found)


def test_a_second_call_keeps_the_transitions():
    agent, env = made('DQN', 2)
    params = {'explore_steps': 10, 'batch_size': 8, 'buffer_size': 50}
    agent.learn(env, 'train', train_steps=30, **params, **QUIET)
    assert agent.ring.added == 30
    first = agent.updates
    agent.learn(env, 'train', train_steps=10, **params, **QUIET)
    assert agent.ring.added == 40 and agent.updates == first + 10
    with pytest.raises(InvalidValue, match='agent.ring = None'):
        agent.learn(env, 'train', train_steps=10, **params | {'buffer_size': 60}, **QUIET)


def test_no_transition_reaches_into_the_episodes_of_a_second_call():
    class Named(pure.Counter):
        """An episode without an end, whose observation is its number."""

        observation_space = Box(0, 1, (1,), np.float32)

        def reset(self, seed):
            name = tf.random.stateless_uniform([1], seed)
            return name, name

        def step(self, state, action, seed):
            return state, state, tf.constant(1.0), tf.constant(False), tf.constant(False)

    agent, env = made('DQN', 1, Named(), n_step=3)
    for _ in range(2):
        agent.learn(env, 'train', train_steps=6, explore_steps=0, batch_size=4, buffer_size=100, **QUIET)
    ring = agent.ring
    batch = ring.draw(ring.tensors(), tf.constant(ring.written), tf.constant([1, 2]), 200, 1.0, 3)
    np.testing.assert_array_equal(batch.obs, batch.next_obs)
    assert set(np.asarray(batch.reward).tolist()) == {1.0, 2.0, 3.0} and len(np.unique(batch.obs)) == 2


@pytest.mark.parametrize('name', ['A2C', pytest.param('DQN', marks=pytest.mark.full)])
def test_an_observation_outside_a_discrete_space_is_refused(name):
    class Growing(pure.Counter):
        observation_space = Discrete(3)

        def reset(self, seed):
            return tf.constant(0), tf.constant(0, tf.int64)

        def step(self, state, action, seed):
            state, _, *rest = super().step(state, action, seed)
            return state, tf.cast(state, tf.int64), *rest

    agent, env = made(name, 2, Growing(5))
    params = {'horizon': 5} if name == 'A2C' else {'explore_steps': 4, 'batch_size': 4, 'buffer_size': 50}
    with pytest.raises(NotFinite, match='outside a discrete space'):
        agent.learn(env, 'train', train_steps=60, **params, **QUIET)


def test_nothing_is_compiled_twice():
    agent, env = made('DQN', 2)
    for steps in (20, 30):
        agent.learn(env, 'train', train_steps=steps, explore_steps=10, batch_size=8, buffer_size=50, **QUIET)
    assert len(agent.calls) == 1
    agent, env = made('PPO', 2)
    for steps in (16, 32):
        agent.learn(env, 'train', train_steps=steps, horizon=8, epochs=1, batch_size=8, **QUIET)
    assert len(agent.calls) == 1


@pytest.mark.full(but='DQN-params1-learn1-checkpoint_buffer needs the replay buffer in Python')
@pytest.mark.parametrize(
    ('name', 'params', 'learn', 'words'),
    [
        ('DQN', {'prioritized': True}, {}, 'priorities are kept in Python'),
        ('DQN', {}, {'checkpoint_buffer': True}, 'checkpoint_buffer needs the replay buffer in Python'),
        ('SAC', {'normalize_obs': True}, {}, 'normalize_obs counts every observation in Python'),
        ('DDPG', {'noise': 'ornstein_uhlenbeck'}, {}, 'DDPG explores in a way that is not compiled'),
    ],
)
def test_what_is_stepped_from_python(caplog, name, params, learn, words):
    agent, env = made(name, 1, **params)
    agent.learn(env, 'train', train_steps=12, explore_steps=8, batch_size=4, buffer_size=20, **QUIET, **learn)
    assert f'stepped from Python, which takes longer: {words}' in caplog.text and agent.updates


@pytest.mark.full
def test_transitions_in_tensors_are_not_said_to_be_saved(caplog, tmp_path):
    agent, env = made('DQN', 1)
    few = {'explore_steps': 8, 'batch_size': 4, 'buffer_size': 20}
    agent.learn(env, 'train', train_steps=12, **few, **QUIET)
    with pytest.raises(ValueError, match='are tensors, which no file holds: give buffer=False'):
        agent.save(tmp_path / 'saved', buffer=True)
    agent, env = made('DQN', 1)
    saves = zoo.callbacks.Checkpoint(every=6, folder=tmp_path / 'kept', buffer=True)
    agent.learn(env, 'train', train_steps=12, callbacks=[saves], **few, **QUIET)
    assert 'checkpoint_buffer needs the replay buffer in Python' in caplog.text
    assert zoo.load(saves.paths[-1]).saved_buffer is not None


def test_nan():
    class Bad(pure.Line):
        def step(self, state, action, seed):
            state, obs, reward, *rest = super().step(state, action, seed)
            return state, obs, tf.where(state[0] > 0.5, float('nan'), reward), *rest

    agent, env = made('A2C', 2, Bad())
    with pytest.raises(NotFinite, match=r'step \d+: Bad gave an observation or a reward that is NaN'):
        agent.learn(env, 'train', train_steps=2000, horizon=5, **QUIET)
    assert np.isfinite(weights(agent)).all()  # what was learned before is not spoiled
    agent, env = made('SAC', 2, Bad())
    with pytest.raises(NotFinite, match=r'step \d+: Bad gave an observation or a reward that is NaN'):
        agent.learn(env, 'train', train_steps=200, explore_steps=20, batch_size=8, buffer_size=100, **QUIET)


@pytest.mark.full
def test_a_recurrent_policy_learns_what_to_remember():
    """The first observation says which action is paid in the last step."""

    class Recall:
        observation_space, action_space = Box(-1, 1, (1,), np.float32), Discrete(2)

        def reset(self, seed):
            side = tf.random.stateless_uniform([], seed, 0, 2, tf.int32)
            return (side, tf.constant(0)), tf.reshape(2.0 * tf.cast(side, tf.float32) - 1.0, [1])

        def step(self, state, action, seed):
            side, t = state
            over = t >= 3
            paid = tf.cast(tf.logical_and(over, tf.equal(tf.cast(action, tf.int32), side)), tf.float32)
            return (side, t + 1), tf.zeros([1]), paid, over, tf.constant(False)

    nets = [{'hidden': [16], 'recurrent': 'gru', 'recurrent_units': 16, 'seed': 0}, 'actor']
    agent, env = made('PPO', 32, Recall(), net_list=nets, optimizers_list=[{'name': 'Adam', 'learning_rate': 3e-3}])
    result = agent.learn(env, 'train', train_steps=60_000, horizon=32, epochs=4, batch_size=8, **QUIET)
    assert np.mean(result.returns[-200:]) > 0.95


@pytest.mark.full
def test_learns_cartpole():
    agent, _ = zoo.train(
        'PPO', 'CartPole-v1', seed=3, vectorized='compiled', nenv=8, train_steps=100_000, run_dir=False, verbose=0
    )
    result = agent.learn(zoo.build_env('CartPole-v1', seed=9), 'test', test_episodes=20)
    assert np.mean(result.returns) > 450


def test_a_share_of_nothing_is_refused():
    agent, env = made('DQN', 1)
    with pytest.raises(InvalidValue, match='recorded_share=0.5 needs what it is a share of'):
        agent.learn(env, 'train', train_steps=12, batch_size=4, buffer_size=20, recorded_share=0.5, **QUIET)
