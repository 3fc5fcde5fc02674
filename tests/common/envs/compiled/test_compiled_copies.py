"""Copies of environments of pure functions: seeds, time limits, ends, and Gymnasium's two forms."""

from __future__ import annotations

import gymnasium
import numpy as np
import pure
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

import zoo
from zoo.common.envs.about import about
from zoo.common.tools.errors import InvalidType, InvalidValue


def played(env, steps: int, seed: int = 5, actions: np.ndarray | None = None):
    """Observations, rewards and ends of steps with fixed actions."""
    obs, _ = env.reset(seed=seed)
    rng, found = np.random.default_rng(0), [obs]
    rewards, ends = [], []
    for _ in range(steps):
        action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        obs, reward, terminated, truncated, _ = env.step(action)
        found.append(obs)
        rewards.append(reward)
        ends.append(terminated | truncated)
    return np.stack(found), np.stack(rewards), np.stack(ends)


def test_forms():
    one, many = (zoo.build_env(pure.Line(), 'compiled', nenv=n) for n in (1, 3))
    assert isinstance(one, gymnasium.Env) and isinstance(many, VectorEnv)
    assert many.metadata['autoreset_mode'] == AutoresetMode.SAME_STEP
    assert many.observation_space.shape == (3, 2) and about(many).name == 'Line' and about(many).type == 'compiled'
    again = about(many).rebuild(nenv=2)
    assert again.num_envs == 2


def test_a_seed_fixes_the_episodes():
    env = zoo.build_env(pure.Line(), 'compiled', nenv=4)
    one, same, other = played(env, 50), played(env, 50), played(env, 50, seed=6)
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (one[0] != other[0]).any()
    assert one[2].any(0).all()


def test_a_copy_does_not_depend_on_the_others():
    few, many = (zoo.build_env(pure.Line(), 'compiled', nenv=n) for n in (2, 5))
    few.reset(seed=7)
    many.reset(seed=6)
    for _ in range(60):
        action = np.full((5, 1), 0.3, np.float32)
        one, other = few.step(action[:2]), many.step(action)
        np.testing.assert_array_equal(one[0], other[0][1:3])
        np.testing.assert_array_equal(one[1], other[1][1:3])


def test_random_numbers_of_steps_and_copies_differ():
    env = zoo.build_env(pure.Line(), 'compiled', nenv=300)
    obs, _ = env.reset(seed=0)
    assert len(np.unique(obs[:, 0])) == 300
    noise = []
    for _ in range(6):
        before = obs
        obs, _, terminated, _, _ = env.step(np.zeros((300, 1), np.float32))
        noise.append(np.where(terminated, np.nan, obs[:, 1] - before[:, 1]))
    noise = np.stack(noise)
    assert abs(np.nanstd(noise) - 0.1) < 0.01 and abs(np.nanmean(noise)) < 0.01
    assert abs(np.corrcoef(noise[0][~np.isnan(noise[:2]).any(0)], noise[1][~np.isnan(noise[:2]).any(0)])[0, 1]) < 0.2


def test_time_limits_and_final_observations():
    env = zoo.build_env(pure.Counter(5), 'compiled', nenv=2, max_episode_steps=3)
    env.reset()
    for t in (1, 2):
        obs, reward, terminated, truncated, info = env.step(np.array([1, 0]))
        assert obs[:, 0].tolist() == [t, t] and not (terminated.any() or truncated.any()) and info == {}
        assert reward.tolist() == [1.0, 0.0]
    obs, _, terminated, truncated, info = env.step(np.array([1, 0]))
    assert truncated.all() and not terminated.any() and obs[:, 0].tolist() == [0, 0]
    assert [x.tolist() for x in info['final_obs']] == [[3.0], [3.0]]
    longer = zoo.build_env(pure.Counter(5), 'compiled', max_episode_steps=9)
    longer.reset()
    ends = [longer.step(0)[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(True, False)]
    assert longer.reset()[0].tolist() == [0.0]


def test_the_last_observation_of_a_single_environment_is_its_own():
    env = zoo.build_env(pure.Counter(2), 'compiled')
    env.reset()
    assert [env.step(1)[0].tolist() for _ in range(2)] == [[1.0], [2.0]]


def test_a_mask_and_a_dict():
    env = zoo.build_env(pure.Choices(), 'compiled', nenv=3)
    obs, _ = env.reset()
    assert obs['action_mask'].dtype == np.int8 and obs['place'].shape == (3, 2)
    assert obs in env.observation_space


def test_equal_copies_are_compiled_once():
    functions = pure.Line()
    one, other = (zoo.build_env(functions, 'compiled', nenv=3) for _ in range(2))
    assert one.steps is other.steps and one.steps is not zoo.build_env(functions, 'compiled', nenv=2).steps


@pytest.mark.parametrize(
    ('arguments', 'error', 'words'),
    [
        ({'vectorized': 'async'}, InvalidValue, "leave out vectorized='async'"),
        ({'frame_stack': 2}, InvalidValue, "frame_stack needs vectorized='sync'"),
        ({'render_mode': 'human'}, InvalidValue, "None or 'rgb_array', not 'human'"),
        ({'render_mode': 'rgb_array'}, InvalidValue, r'no render\(state\)'),
        ({'length': 3}, InvalidType, 'length are for a class'),
        ({'max_episode_steps': 0}, InvalidValue, 'at least 1'),
    ],
)
def test_arguments_that_cannot_be_honored(arguments, error, words):
    with pytest.raises(error, match=words):
        zoo.build_env(pure.Line(), 'compiled', nenv=2, **arguments)


def test_a_class_takes_arguments():
    env = zoo.build_env(pure.Counter, 'compiled', length=1)
    env.reset()
    assert env.step(1)[1:4] == (1.0, True, False)
    with pytest.raises(InvalidType, match='unexpected keyword'):
        zoo.build_env(pure.Counter, 'compiled', width=1)


def test_what_is_no_environment_of_pure_functions():
    with pytest.raises(InvalidType, match='no environment of pure functions'):
        zoo.build_env(3, 'compiled')
    with pytest.raises(InvalidValue, match='CartPole-v1'):
        zoo.build_env('CartPole-v2', 'compiled')
    with pytest.raises(InvalidType, match=r"build_env\(Line\(…\), 'compiled'\)"):
        zoo.build_env(pure.Line())
    with pytest.raises(InvalidValue, match="but not 'Hopper-v5'"):
        zoo.build_env('Hopper-v5', vectorized='compiled', nenv=2)
    assert 'Pendulum-v1' in zoo.list_envs('compiled')


def test_a_wrapper_is_told_of(caplog):
    env = zoo.build_env('CartPole-v1', vectorized='compiled', nenv=2, reward_shaping=lambda r: 2 * r)
    agent = zoo.algorithms.PPO(env.single_observation_space, env.single_action_space, net_list=[{'hidden': [8]}] * 2)
    agent.learn(env, 'train', train_steps=32, horizon=16, epochs=1, run_dir=False, verbose=0)
    assert 'stepped from Python, which takes longer: ShapeVectorReward around it is Python.' in caplog.text
