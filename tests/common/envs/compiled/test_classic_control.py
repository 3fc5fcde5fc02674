"""Classic control in TensorFlow takes the steps of Gymnasium."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import zoo
from zoo.common.envs.compiled.classic_control import TASKS, task
from zoo.common.envs.compiled.env import CompiledVectorEnv
from zoo.common.tools.errors import InvalidType

NAMES = [name for name in TASKS if name != 'CartPole-v0']


def compare(env_id: str, steps: int, copies: int, **kwargs: object) -> None:
    """Every step of the copies is what Gymnasium makes of the same state and action."""
    env = CompiledVectorEnv(task(env_id, **kwargs), copies)
    env.reset(seed=3)
    env.action_space.seed(0)
    reference = gymnasium.make(env_id, **kwargs).unwrapped
    reference.reset()
    limit, lengths, ends = gymnasium.spec(env_id).max_episode_steps, np.zeros(copies, int), 0
    for _ in range(steps):
        assert env.state is not None
        states, actions = np.array(env.state.inner), env.action_space.sample()
        obs, reward, terminated, truncated, info = env.step(actions)
        lengths += 1
        done = terminated | truncated
        expected, paid, over = [], [], []
        for state, action in zip(states, actions, strict=True):
            reference.state, reference.steps_beyond_terminated = state.copy(), None
            after, gain, ended, _, _ = reference.step(action)
            expected.append(after)
            paid.append(gain)
            over.append(ended)
        found = obs.copy()
        for i in np.flatnonzero(done):
            found[i] = info['final_obs'][i]
        np.testing.assert_allclose(found, np.array(expected), atol=1e-6)
        np.testing.assert_allclose(reward, np.array(paid, np.float64), atol=2e-6)
        assert (terminated == over).all() and (truncated == (lengths >= limit)).all()
        assert obs in env.observation_space
        lengths[done] = 0
        ends += done.sum()
    assert ends


@pytest.mark.parametrize('env_id', NAMES)
def test_steps_are_those_of_gymnasium(env_id):
    compare(env_id, gymnasium.spec(env_id).max_episode_steps + 1, 3)


@pytest.mark.full
@pytest.mark.parametrize('env_id', NAMES)
def test_a_hundred_thousand_steps_are_those_of_gymnasium(env_id):
    compare(env_id, 1563, 64)


@pytest.mark.full
@pytest.mark.parametrize(
    ('env_id', 'kwargs'),
    [
        ('CartPole-v1', {'sutton_barto_reward': True}),
        ('Pendulum-v1', {'g': 9.81}),
        ('MountainCar-v0', {'goal_velocity': 0.02}),
    ],
)
def test_arguments(env_id, kwargs):
    compare(env_id, 201, 8, **kwargs)


def test_first_states_are_drawn_as_gymnasium_draws_them():
    for env_id, low, high in (('CartPole-v1', -0.05, 0.05), ('Acrobot-v1', -0.1, 0.1), ('MountainCar-v0', -0.6, -0.4)):
        env = CompiledVectorEnv(task(env_id), 500)
        env.reset(seed=0)
        assert env.state is not None
        first = np.array(env.state.inner)[:, 0]
        assert low <= first.min() and first.max() <= high
        assert abs(first.mean() - (low + high) / 2) < 0.06 * (high - low)
        assert abs(first.std() - (high - low) / 12**0.5) < 0.06 * (high - low)


def test_the_time_limit_is_in_the_specification():
    own, given = CompiledVectorEnv(task('CartPole-v1'), 2), CompiledVectorEnv(task('CartPole-v1'), 2, 7)
    assert own.spec is not None and given.spec is not None
    assert (own.spec.max_episode_steps, given.spec.max_episode_steps) == (500, 7)


def test_an_action_that_is_no_whole_number_is_refused():
    env = CompiledVectorEnv(task('CartPole-v1'), 2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match='has float64 values: give int64'):
        env.step(np.array([0.0, 1.7]))


def test_an_argument_that_it_does_not_take():
    with pytest.raises(InvalidType, match=r"does not take 'gravity' \(it takes sutton_barto_reward\)"):
        zoo.build_env('CartPole-v1', vectorized='compiled', nenv=2, gravity=3.0)


def test_pictures_are_those_of_gymnasium():
    env = zoo.build_env('CartPole-v1', vectorized='compiled', render_mode='rgb_array')
    env.reset(seed=1)
    before = env.render()
    for _ in range(8):
        env.step(1)
    assert before.shape == env.render().shape == (400, 600, 3)
    assert (before != env.render()).any()
