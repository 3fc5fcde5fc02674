"""dm_control: the suite's tasks against the suite driven by hand, ends, limits, seeds, names, pixels."""

from __future__ import annotations

import sys
from typing import Any

import cloudpickle
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict

from zoo.common.env_wrappers import build_env
from zoo.common.envs.kinds import dm_control, rendering
from zoo.common.spaces import FrameStack

pytest.importorskip('dm_control', reason='dm_control is not installed')
suite = dm_control._suite()


@pytest.fixture(scope='module')
def renderer() -> None:
    """Skips what has to be drawn where nothing can draw it."""
    try:
        rendering._gl_context(16, 16).free()
    except RuntimeError as error:
        pytest.skip(str(error))


def joined(observation: dict[str, Any]) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in observation.values()]).astype(np.float32)


def test_names_are_those_of_the_suite() -> None:
    names = dm_control.ids()
    assert names == sorted(f'{domain}-{task}' for domain, task in suite.ALL_TASKS)
    assert {'cartpole-swingup', 'ball_in_cup-catch', 'humanoid_CMU-run'} <= set(names)
    with pytest.raises(ValueError, match="unknown dm_control environment 'cheeta-run': did you mean 'cheetah-run'"):
        build_env('cheeta-run', 'dm_control')
    with pytest.raises(TypeError, match='a dm_control environment is given by its name'):
        build_env(dm_control.DMControl, 'dm_control')


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'dm_control', None)
    with pytest.raises(ImportError, match=r"pip install 'zoo-rl\[dm_control\]'"):
        build_env('cartpole-swingup', 'dm_control')


@pytest.mark.full(but='pendulum-swingup')
@pytest.mark.parametrize('env_id', [f'{domain}-{tasks[0]}' for domain, tasks in suite.TASKS_BY_DOMAIN.items()])
def test_every_domain(env_id: str) -> None:
    env = build_env(env_id, 'dm_control')
    assert env.spec.id == env_id
    assert env.spec.max_episode_steps == (None if env_id.startswith('lqr') else 1000)
    space = env.observation_space
    assert isinstance(space, Box) and space.dtype == np.float32 and len(space.shape) == 1
    for seed in (0, 1):
        observation, info = env.reset(seed=seed)
        assert space.contains(observation) and info == {}
        action = np.clip(env.action_space.sample(), -1, 1)
        assert env.action_space.contains(action)
        observation, reward, terminated, truncated, _ = env.step(action)
        assert space.contains(observation) and type(reward) is float
        assert not terminated and not truncated
    env.close()


@pytest.mark.parametrize('frame_skip', [1, 3])
def test_episodes_are_those_of_the_suite(frame_skip: int) -> None:
    seed = 11
    hand = suite.load('walker', 'walk', {'random': seed, 'time_limit': 0.25})  # 10 steps of 25 ms
    env = build_env('walker-walk', 'dm_control', seed=None, frame_skip=frame_skip, time_limit=0.25)
    limit = {1: 10, 3: 4}[frame_skip]  # 3 + 3 + 3 + 1
    assert env.spec.max_episode_steps == limit
    env.action_space.seed(0)
    observation, _ = env.reset(seed=seed)
    for _ in range(3):
        now = hand.reset()
        for step in range(1, limit + 1):
            np.testing.assert_array_equal(observation, joined(now.observation))
            action = env.action_space.sample()
            expected = 0.0
            for _ in range(frame_skip):
                now = hand.step(action)
                expected += now.reward
                if now.last():
                    break
            observation, reward, terminated, truncated, _ = env.step(action)
            assert reward == expected and not terminated
            assert truncated == now.last() == (step == limit)
        np.testing.assert_array_equal(observation, joined(now.observation))
        observation, _ = env.reset()


def test_the_time_limit_truncates_and_the_task_terminates() -> None:
    import mujoco

    env = build_env('lqr-lqr_2_1', 'dm_control', time_limit=0.3)  # 10 steps of 30 ms
    action = np.zeros(1, np.float32)
    env.reset(seed=0)
    ends = [env.step(action)[2:4] for _ in range(env.spec.max_episode_steps)]
    assert ends[-1] == (False, True) and set(ends[:-1]) == {(False, False)}
    env.reset(seed=0)
    env.unwrapped.data.qpos[:] = env.unwrapped.data.qvel[:] = 0.0  # where the task says that nothing follows
    mujoco.mj_forward(env.unwrapped.model, env.unwrapped.data)
    assert env.step(action)[2:4] == (True, False)
    with pytest.raises(RuntimeError, match=r'call reset\(\) first'):
        env.step(action)


@pytest.mark.parametrize(('steps', 'frame_skip'), [(7, 1), (7, 2), (1005, 1)])
def test_max_episode_steps_replaces_the_time_limit(steps: int, frame_skip: int) -> None:
    env = build_env('cartpole-balance', 'dm_control', max_episode_steps=steps, frame_skip=frame_skip)
    assert env.spec.max_episode_steps == steps
    env.reset()
    ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(steps)]
    assert ends[-1] == (False, True) and set(ends[:-1]) == {(False, False)}


def test_seeds() -> None:
    envs = [build_env('reacher-easy', 'dm_control', seed=None) for _ in range(3)]
    free = [env.reset()[0] for env in envs]
    assert (free[0] != free[1]).any()
    for seed in (0, 2**32 + 5):
        first, second, third = (env.reset(seed=seed + (i == 2))[0] for i, env in enumerate(envs))
        np.testing.assert_array_equal(first, second)
        assert (first != third).any()
        np.testing.assert_array_equal(envs[0].reset()[0], envs[1].reset()[0])
    # What the suite draws for the model itself is the same in all copies.
    left, right = (build_env('lqr-lqr_6_2', 'dm_control', seed=seed).unwrapped for seed in (1, 2))
    np.testing.assert_array_equal(left.model.jnt_stiffness, right.model.jnt_stiffness)
    other = build_env('lqr-lqr_6_2', 'dm_control', random=1).unwrapped
    assert (left.model.jnt_stiffness != other.model.jnt_stiffness).any()


def test_observations_are_not_overwritten() -> None:
    env = build_env('cheetah-run', 'dm_control')
    first, _ = env.reset()
    kept = first.copy()
    second, *_ = env.step(env.action_space.sample())
    np.testing.assert_array_equal(first, kept)
    assert not np.shares_memory(first, second)


def test_observations_by_name() -> None:
    env = build_env('finger-turn_easy', 'dm_control', flatten=False)
    space = env.observation_space
    assert isinstance(space, Dict) and space['dist_to_target'].shape == () and space['touch'].shape == (2,)
    observation, _ = env.reset(seed=3)
    assert space.contains(observation)
    flat, _ = build_env('finger-turn_easy', 'dm_control').reset(seed=3)
    np.testing.assert_array_equal(flat, joined(observation))


def test_action_bounds() -> None:
    space = build_env('quadruped-walk', 'dm_control').action_space
    assert space.dtype == np.float32 and space.shape == (12,)
    np.testing.assert_array_equal(np.unique(space.high), np.array([0.8, 1.0, 1.1], np.float32))
    unbounded = build_env('lqr-lqr_2_1', 'dm_control').action_space
    assert unbounded.low[0] == -np.inf and unbounded.high[0] == np.inf


@pytest.mark.full
def test_copies_here_and_in_processes() -> None:
    arguments = {'env_type': 'dm_control', 'max_episode_steps': 3, 'nenv': 4, 'seed': 7}
    here, there = (build_env('cartpole-swingup', vectorized=kind, **arguments) for kind in ('sync', 'async'))
    assert here.spec.id == there.spec.id == 'cartpole-swingup'
    np.testing.assert_array_equal(here.reset()[0], there.reset()[0])
    for step in range(7):
        actions = here.action_space.sample()
        (a, *ends, first), (b, *other, second) = here.step(actions), there.step(actions)
        np.testing.assert_array_equal(a, b)
        for left, right in zip(ends, other, strict=True):
            np.testing.assert_array_equal(left, right)
        assert ends[2].all() == ('final_obs' in first) == (step % 3 == 2)
        if ends[2].all():
            for i in range(4):
                np.testing.assert_array_equal(first['final_obs'][i], second['final_obs'][i])
                assert (first['final_obs'][i] != a[i]).any()
    here.close(), there.close()


def test_the_factory_can_be_pickled() -> None:
    factory = cloudpickle.loads(cloudpickle.dumps(dm_control.find('pendulum-swingup', 'dm_control')))
    assert factory(frame_skip=2).spec.id == 'pendulum-swingup'


@pytest.mark.parametrize(
    ('kwargs', 'error', 'message'),
    [
        ({'frame_skip': 0}, ValueError, 'frame_skip is 0'),
        ({'render_mode': 'ansi'}, ValueError, "None, 'human' or 'rgb_array', not 'ansi'"),
        ({'time_limt': 3}, TypeError, "unknown argument of 'cartpole-swingup' 'time_limt': did you mean 'time_limit'"),
        ({'time_limit': 0}, ValueError, 'time_limit is 0: give the seconds after which an episode ends, more than 0.'),
        ({'time_limit': -1.0}, ValueError, 'time_limit is -1.0'),
        ({'time_limit': '9'}, ValueError, "time_limit is '9'"),
        ({'time_limit': 9, 'max_episode_steps': 5}, ValueError, 'in steps, or time_limit, in seconds, not both'),
        ({'n_envs': 4}, TypeError, "does not take the argument 'n_envs': nenv=4 makes four copies"),
        ({'cameras': 0}, TypeError, "unknown argument of 'cartpole-swingup' 'cameras'"),
    ],
)
def test_bad_arguments(kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build_env('cartpole-swingup', 'dm_control', **kwargs)


def test_the_tasks_own_arguments() -> None:
    full = build_env('manipulator-bring_ball', 'dm_control')
    partial = build_env('manipulator-bring_ball', 'dm_control', fully_observable=False)
    assert partial.observation_space.shape < full.observation_space.shape


def test_pixels_across_episodes(renderer: None) -> None:
    arguments = {'env_type': 'dm_control', 'max_episode_steps': 3, 'frame_size': 32, 'frame_skip': 4}
    env = build_env('cartpole-swingup', pixels=True, frame_stack=3, **arguments)
    both = build_env('cartpole-swingup', pixels='both', **arguments)
    state = build_env('cartpole-swingup', 'dm_control', max_episode_steps=3, frame_skip=4)
    assert env.spec.id == 'cartpole-swingup' and env.spec.max_episode_steps == 3
    assert isinstance(env.observation_space, FrameStack) and env.observation_space.shape == (32, 32, 9)
    for _ in range(2):
        stack, now, expected = (copy.reset()[0] for copy in (env, both, state))
        seen = [now['pixels']] * 3
        truncated = False
        while True:
            assert env.observation_space.contains(stack) and both.observation_space.contains(now)
            np.testing.assert_array_equal(stack, np.concatenate(seen[-3:], -1))
            np.testing.assert_array_equal(now['state'], expected)
            if truncated:
                break
            action = np.array([0.7], np.float32)
            (stack, *_, truncated, _), (now, *_), (expected, *_) = (copy.step(action) for copy in (env, both, state))
            seen.append(now['pixels'])
            assert (seen[-1] != seen[-2]).any()
    env.close(), both.close()


@pytest.mark.full
def test_the_camera_is_the_first_but_for_quadrupeds(renderer: None) -> None:
    for name, camera in (('quadruped-walk', 2), ('walker-walk', 0)):
        default, given, other = (
            build_env(name, 'dm_control', pixels=True, frame_size=32, **options)
            for options in ({}, {'cameras': camera}, {'cameras': -1})
        )
        image = default.reset(seed=0)[0]
        np.testing.assert_array_equal(image, given.reset(seed=0)[0])
        assert (image != other.reset(seed=0)[0]).any()
        for env in (default, given, other):
            env.close()


@pytest.mark.full
def test_terrain_is_that_of_the_episode(renderer: None) -> None:
    """The suite makes a new height field for every episode, which lies on the renderer's side as well."""
    used, new = (build_env('quadruped-escape', 'dm_control', pixels=True, frame_size=32) for _ in range(2))
    first, _ = used.reset(seed=1)
    second, _ = used.reset(seed=2)
    assert (first != second).any()
    np.testing.assert_array_equal(second, new.reset(seed=2)[0])
    used.close(), new.close()


def test_pictures(renderer: None) -> None:
    env = build_env('cheetah-run', 'dm_control', render_mode='rgb_array')
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (480, 480, 3) and picture.dtype == np.uint8 and picture.std() > 10
    for _ in range(5):
        env.step(np.ones(6, np.float32))
    assert (env.render() != picture).any()
    assert build_env('cheetah-run', 'dm_control').render() is None
    env.close()
