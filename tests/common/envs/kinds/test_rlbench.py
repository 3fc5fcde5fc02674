"""RLBench's adaptor over objects of RLBench's shape (``rlbench_standin``), and over RLBench where it is installed."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rlbench_standin as standin
from gymnasium.spaces import Box, Dict

from zoo import algorithms, build_env, call_default_params
from zoo.common.envs.kinds import rlbench
from zoo.common.envs.kinds.rlbench import env as env_module
from zoo.common.envs.kinds.rlbench import simulator, tasks
from zoo.common.envs.kinds.rlbench.actions import ACTION_MODES
from zoo.common.envs.kinds.rlbench.env import RLBenchEnv
from zoo.common.envs.kinds.rlbench.observations import STATE, VISION


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(env_module, 'PLACE', simulator.Place())
    with standin.installed():
        yield standin.LOG
        gc.collect()
        assert standin.LOG.running == 0, 'a simulator was left running'


def build(task: str = 'ReachTarget', **kwargs: Any) -> RLBenchEnv:
    return build_env(task, 'rlbench', **kwargs).unwrapped


def aim(env: RLBenchEnv, log: Any) -> np.ndarray:
    """The ``joint_velocity`` action that moves the toy's tip to its target."""
    scene, task = log.launched[-1].scene, log.launched[-1].task
    action = np.zeros(8, np.float32)
    action[:3] = np.clip((task.target - scene.joints[:3]) / 0.05, -1, 1)
    return action


def switched_on(log: Any) -> set[str]:
    """Everything that the configuration of the last launch asks for."""
    config = log.launched[-1].config
    low = {name for name, value in vars(config).items() if value is True}
    return low | {
        f'{camera}_{channel}'
        for camera in standin.CAMERAS
        for channel in standin.CHANNELS
        if getattr(getattr(config, f'{camera}_camera'), channel)
    }


# Names


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, 'rlbench', None)
    for call in (lambda: build_env('ReachTarget', 'rlbench'), tasks.ids):
        with pytest.raises(ImportError, match=r'CoppeliaSim .* PyRep .* RLBench .* `pyrep` is an unrelated package'):
            call()


@pytest.mark.parametrize('root', [None, '', '/nowhere/CoppeliaSim'])
def test_a_missing_simulator_is_said_before_pyrep_is_imported(toy, monkeypatch, root):
    monkeypatch.delenv('COPPELIASIM_ROOT')
    if root is not None:
        monkeypatch.setenv('COPPELIASIM_ROOT', root)
    for call in (build, tasks.ids):
        with pytest.raises(ImportError, match=rf'COPPELIASIM_ROOT .* is {root!r}: .* LD_LIBRARY_PATH=.*\.$'):
            call()
    assert not {'pyrep', 'rlbench'} & set(sys.modules)


def test_a_missing_display_is_said_before_qt_aborts_the_process(toy, monkeypatch):
    monkeypatch.setattr(sys, 'platform', 'linux')
    monkeypatch.delenv('DISPLAY')
    monkeypatch.delenv('QT_QPA_PLATFORM', raising=False)
    with pytest.raises(RuntimeError, match='X server .* DISPLAY is not set: .* `xvfb-run python train.py`'):
        build()
    assert not toy.launched
    monkeypatch.setenv('QT_QPA_PLATFORM', 'offscreen')
    build().close()


def test_importing_the_module_imports_neither_rlbench_nor_tensorflow():
    code = (
        'import sys, zoo.common.envs.kinds.rlbench as m;'
        'assert not {"rlbench", "pyrep", "tensorflow"} & set(sys.modules), "imported too early"'
    )
    subprocess.run([sys.executable, '-c', code], check=True)


def test_ids(toy):
    assert tasks.ids() == [
        'BeatTheBuzz',
        'Crashing',
        'Crowded',
        'FitsOnce',
        'PickUpCup',
        'ReachTarget',
        'SlideBlockToTarget',
        'StackBlocks',
        'TakeLidOffSaucepan',
    ]


@pytest.mark.parametrize('name', ['SlideBlockToTarget', 'slide_block_to_target'])
def test_both_spellings(toy, name):
    env = build(name)
    assert toy.launched[-1].task.name == 'slide_block_to_target'
    assert env.spec.id == 'SlideBlockToTarget' and env.spec.max_episode_steps == 200
    env.close()


@pytest.mark.parametrize('name', ['ReachTargets', 'reach_targt', 'reachtarget'])
def test_unknown_names(toy, name):
    with pytest.raises(ValueError, match=f"unknown rlbench environment '{name}': did you mean 'ReachTarget'"):
        build_env(name, 'rlbench')


def test_an_unknown_name_of_the_class_itself(toy):
    with pytest.raises(ValueError, match="unknown rlbench environment 'ReachTargets': did you mean 'ReachTarget'"):
        RLBenchEnv('ReachTargets')


def test_a_class_is_no_name(toy):
    with pytest.raises(TypeError, match="given by its name, such as 'ReachTarget'"):
        build_env(standin.ReachTarget, 'rlbench')


BAD = {
    'an unknown argument': ({'stat_type': 'state'}, "did you mean 'state_type'"),
    'an unknown state': ({'state_type': 'visoin'}, "did you mean 'vision'"),
    'an unknown key': ({'state_type': ['state', 'front_rbg']}, "did you mean 'front_rgb'"),
    'no key': ({'state_type': []}, 'a key or a list of keys'),
    'an unknown action mode': ({'action_mode': 'joint_torque'}, 'unknown action mode'),
    'an unknown robot': ({'robot_setup': 'pandas'}, "did you mean 'panda'"),
    'a negative variation': ({'variation': -1}, "from 0 on, or 'random'"),
    'a word for a variation': ({'variation': 'all'}, "from 0 on, or 'random'"),
    'no steps': ({'max_episode_steps': 0}, r'max_episode_steps is .*\b0\b'),
    'no attempts': ({'reset_attempts': 0}, 'reset_attempts is 0'),
    'a reward for invalid actions': ({'invalid_action_penalty': -1.0}, 'give 0 or more'),
    'a render mode': ({'render_mode': 'rgb_array'}, "state_type='front_rgb'"),
    'an image size': ({'image_size': 84}, r'\(width, height\)'),
    'a scale of another length': ({'arm_scale': [1.0, 1.0]}, '7 of them'),
    'a scale of 0': ({'arm_scale': 0.0}, 'positive'),
    'a word for a scale': ({'arm_scale': 'fast'}, "arm_scale is 'fast': give one positive number"),
    'a word for a penalty': ({'invalid_action_penalty': 'none'}, "invalid_action_penalty is 'none'"),
    'a word for the window': ({'headless': 'False'}, "headless is 'False': give True or False"),
    'a word for the reward': ({'shaped_rewards': 'no'}, "shaped_rewards is 'no': give True or False"),
    'a word for metres': ({'depth_in_meters': 'no'}, "depth_in_meters is 'no': give True or False"),
    'a list for a mode': ({'action_mode': ['joint_velocity']}, r"unknown action mode \['joint_velocity'\]"),
    'a list for a robot': ({'robot_setup': ['panda']}, r"unknown robot \['panda'\]"),
    'a name of rlbench.gym': ({'observation_mode': 'state'}, "'observation_mode': it is called 'state_type' here"),
    'a size without pictures': ({'image_size': (84, 84)}, "image_size is .* but state_type 'state' has no pictures"),
    'metres without depth': (
        {'depth_in_meters': True, 'state_type': ['front_rgb', 'state']},
        r"depth_in_meters is True but state_type \['front_rgb', 'state'\] has no depth",
    ),
    'a ragged image size': ({'image_size': (84, (84, 84))}, r'\(width, height\)'),
    'a number for a key': ({'state_type': [3]}, 'unknown key of state_type 3'),
    'a camera that is not there': ({'state_type': 'left_sholder_rgb'}, "did you mean 'left_shoulder_rgb'"),
    'an upper-case robot': ({'robot_setup': 'Panda'}, "did you mean 'panda'"),
}


@pytest.mark.parametrize('kwargs, message', BAD.values(), ids=BAD)
def test_bad_arguments_are_refused_before_launching(toy, kwargs, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build(**kwargs)
    assert not toy.launched


# Observations


def test_state(toy):
    env = build(state_type='state')
    assert env.observation_space == Box(-np.inf, np.inf, (40,), np.float32)
    assert switched_on(toy) == set(STATE)
    env.reset(seed=3)
    observation, *_ = env.step(env.action_space.sample())
    expected = toy.launched[-1].scene.observe(toy.launched[-1].task).get_low_dim_data()
    assert expected.dtype == np.float64 and observation.dtype == np.float32
    np.testing.assert_array_equal(observation, expected.astype(np.float32))
    env.close()


@pytest.mark.parametrize('state_type, sizes', [('state', 31), (['state', 'gripper_open'], 31)])
def test_the_state_of_a_robot_without_touch_sensors_leaves_them_out(toy, state_type, sizes):
    env = build(robot_setup='jaco', state_type=state_type)
    space = env.observation_space if state_type == 'state' else env.observation_space['state']
    assert space.shape == (sizes,)  # 6 forces and 3 times a seventh joint fewer than the Panda
    assert switched_on(toy) == set(STATE) - {'gripper_touch_forces'}
    assert env.observation_space.contains(env.reset(seed=1)[0])
    assert env.observation_space.contains(env.step(env.action_space.sample())[0])
    env.close()


def test_touch_forces_of_a_robot_without_sensors_are_refused(toy):
    with pytest.raises(ValueError, match="'jaco' has no touch sensors: leave 'gripper_touch_forces' out"):
        build(robot_setup='jaco', state_type=['state', 'gripper_touch_forces'])
    assert toy.running == 0
    env = build(state_type='gripper_touch_forces')
    assert env.observation_space.shape == (6,)
    env.close()


def test_one_key_is_one_array_and_only_that_is_rendered(toy):
    env = build(state_type='left_shoulder_rgb')
    assert env.observation_space == Box(0, 255, (128, 128, 3), np.uint8)
    assert switched_on(toy) == {'left_shoulder_rgb'}
    assert env.observation_space.contains(env.reset()[0])
    env.close()


def test_keys_are_matched_by_key_and_alphabetical(toy):
    keys = ['wrist_mask', 'joint_positions', 'front_depth', 'overhead_rgb', 'gripper_open', 'gripper_matrix']
    env = build(state_type=keys, image_size=(48, 32))
    assert list(env.observation_space) == sorted(keys)
    assert switched_on(toy) == set(keys)
    observation, _ = env.reset()
    assert list(observation) == sorted(keys)
    assert env.observation_space.contains(observation)
    found = {key: (value.shape, value.dtype.name) for key, value in observation.items()}
    assert found == {
        'front_depth': ((32, 48, 1), 'float32'),
        'gripper_matrix': ((4, 4), 'float32'),
        'gripper_open': ((1,), 'float32'),
        'joint_positions': ((7,), 'float32'),
        'overhead_rgb': ((32, 48, 3), 'uint8'),
        'wrist_mask': ((32, 48, 1), 'float32'),
    }
    assert env.observation_space['front_depth'] == Box(0, 1, (32, 48, 1), np.float32)
    assert observation['wrist_mask'].max() == 81 and observation['front_depth'].max() == 0.5
    env.step(np.array([1, 0, 0, 0, 0, 0, 0, -1], np.float32))
    observation, *_ = env.step(np.array([1, 0, 0, 0, 0, 0, 0, -1], np.float32))
    np.testing.assert_allclose(observation['joint_positions'], [0.1, 0, 0, 0, 0, 0, 0], rtol=1e-6)
    assert observation['gripper_open'] == [0.0]
    env.close()


def test_vision_has_all_cameras_but_not_where_the_target_is(toy):
    env = build(state_type='vision')
    assert isinstance(env.observation_space, Dict)
    assert {key for key in env.observation_space if key.endswith('rgb')} == {f'{c}_rgb' for c in standin.CAMERAS}
    assert switched_on(toy) == set(env.observation_space) == set(VISION)
    env.close()


def test_state_beside_a_picture(toy):
    env = build(state_type=('wrist_rgb', 'state'))
    assert list(env.observation_space) == ['state', 'wrist_rgb']
    assert env.observation_space['state'].shape == (40,)
    assert switched_on(toy) == {'wrist_rgb', *STATE}
    env.close()


def test_a_point_cloud_alone_needs_the_depth(toy):
    env = build(state_type='front_point_cloud')
    assert env.observation_space == Box(-np.inf, np.inf, (128, 128, 3), np.float32)
    assert switched_on(toy) == {'front_point_cloud', 'front_depth'}
    env.close()


def test_depth_in_metres_has_no_upper_bound(toy):
    env = build(state_type='front_depth', depth_in_meters=True)
    assert env.observation_space == Box(0, np.inf, (128, 128, 1), np.float32)
    assert (env.reset()[0] == 3.5).all()
    env.close()


def test_a_shape_that_changes_is_named(toy):
    env = build('StackBlocks', variation=2)
    env._variation = 3
    with pytest.raises(ValueError, match=r"'state' has shape \(72,\) after 0 steps, but had \(65,\)"):
        env.reset()
    env.close()


# Actions


def sent(env: RLBenchEnv, log: Any, action: list[float]) -> np.ndarray:
    env.reset()
    env.step(np.array(action, np.float32))
    return log.launched[-1].scene.actions[-1]


@pytest.mark.parametrize('mode, scale', [('joint_velocity', 1.0), ('joint_position', 0.1)])
def test_joint_actions_are_rescaled(toy, mode, scale):
    env = build(action_mode=mode)
    assert env.action_space == Box(-1, 1, (8,), np.float32)
    action = [1, -1, 0.5, 0, 0, 0, -0.25, 1]
    np.testing.assert_allclose(sent(env, toy, action), [*(scale * np.array(action[:-1])), 1.0], rtol=1e-6)
    position = (0.05 if mode == 'joint_velocity' else 1.0) * scale
    np.testing.assert_allclose(toy.launched[-1].scene.joints[:2], [position, -position], rtol=1e-6)  # not absolute
    assert sent(env, toy, [0.0] * 7 + [-1.0])[-1] == 0.0
    np.testing.assert_array_equal(sent(env, toy, [9.0] * 8), [scale] * 7 + [1.0])  # clipped
    env.close()


@pytest.mark.parametrize('mode, metres, radians', [('ee_pose', 0.03, 0.1), ('ee_pose_planning', 0.1, 0.5)])
def test_pose_actions_have_quaternions_of_unit_length(toy, mode, metres, radians):
    env = build(action_mode=mode)
    assert env.action_space == Box(-1, 1, (7,), np.float32)
    half = radians / 2
    np.testing.assert_allclose(
        sent(env, toy, [1, -1, 0.5, 0, 0, 1, 1]),
        [metres, -metres, metres / 2, 0, 0, np.sin(half), np.cos(half), 1],
        rtol=1e-6,
    )
    np.testing.assert_array_equal(sent(env, toy, [0, 0, 0, 0, 0, 0, -1]), [0, 0, 0, 0, 0, 0, 1, 0])
    env.reset(seed=0)
    infos = [env.step(env.action_space.sample())[-1] for _ in range(5)]
    assert not any(info['invalid_action'] for info in infos)
    env.close()


def test_the_scale_can_be_given(toy):
    env = build(action_mode='ee_pose', arm_scale=[0.01, 0.02, 0.03, 0.5, 0.5, 0.5])
    np.testing.assert_allclose(sent(env, toy, [1, 1, 1, 0, 0, 0, 0])[:3], [0.01, 0.02, 0.03], rtol=1e-6)
    env.close()


def test_another_robot_has_other_joints(toy):
    env = build(robot_setup='jaco', state_type=['joint_positions'])
    assert env.action_space.shape == (7,)
    assert env.observation_space['joint_positions'].shape == (6,)
    env.close()


def test_an_action_of_another_shape_is_an_error(toy):
    env = build()
    env.reset()
    with pytest.raises(ValueError, match=r'the action has shape \(7,\), but must have \(8,\)'):
        env.step(np.zeros(7))
    env.close()


@pytest.mark.parametrize('mode', ACTION_MODES)
@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_an_action_that_is_no_number_is_an_error(toy, mode, value):
    env = build(action_mode=mode)
    env.reset()
    for entry in (0, -1):  # the arm's and the gripper's
        action = np.zeros(env.action_space.shape, np.float32)
        action[entry] = value
        with pytest.raises(ValueError, match=rf'ReachTarget: the action is \[.*{value}.*\], but must be finite'):
            env.step(action)
    assert not toy.launched[-1].scene.actions
    env.close()


def test_a_planned_movement_to_where_the_gripper_is(toy):
    env = build(action_mode='ee_pose_planning')
    env.reset(seed=0)
    env.step(np.array([1, 0, 0, 0, 0, 0, 1], np.float32))
    scene = toy.launched[-1].scene
    joints, steps = scene.joints.copy(), scene.steps
    *_, info = env.step(np.array([0, 0, 0, 0, 0, 0, 1], np.float32))
    assert not info['invalid_action'] and scene.steps == steps + 1
    np.testing.assert_array_equal(scene.joints, joints)
    env.close()


@pytest.mark.parametrize(
    'kept', [[0, 0, 1, 2], [0, 1, 1, 2], [0, 1, 2, 2], [0]], ids=['at first', 'between', 'at last', 'one point']
)
def test_points_of_a_plan_that_are_said_twice(toy, kept):
    env = build(action_mode='ee_pose_planning')
    env.reset(seed=0)
    points = np.zeros((3, 7))
    points[:, 0] = [0, 0.05, 0.1]  # where a step of the toy ends
    standin.FAILURES['planned'][:] = [points[kept]]
    *_, info = env.step(np.array([1, 0, 0, 0, 0, 0, 1], np.float32))
    assert not info['invalid_action']
    np.testing.assert_array_equal(toy.launched[-1].scene.joints, points[kept[-1]])
    env.close()


@pytest.mark.parametrize(
    'mode, where, failure',
    [
        ('ee_pose_planning', 'planned', np.zeros((0, 7))),
        ('ee_pose_planning', 'get_path', standin.ConfigurationPathError('no path')),
        ('ee_pose_planning', 'get_path', standin.simulator_error()),
        ('ee_pose', 'solve_ik', standin.IKError('too far')),
        ('ee_pose', 'solve_ik', standin.simulator_error()),
    ],
)
def test_a_plan_that_fails_makes_the_action_invalid(toy, mode, where, failure):
    env = build(action_mode=mode, invalid_action_penalty=0.5)
    before, _ = env.reset(seed=0)
    standin.FAILURES[where][:] = [failure]
    action = np.array([1, 0, 0, 0, 0, 0, 1], np.float32)
    after, reward, terminated, truncated, info = env.step(action)
    np.testing.assert_array_equal(after, before)
    assert (reward, terminated, truncated) == (-0.5, False, False)
    assert info['invalid_action'] is True and info['invalid_action_error']
    assert env.step(action)[-1]['invalid_action'] is False
    standin.FAILURES[where][:] = [RuntimeError('a bug')]
    if where != 'planned':
        with pytest.raises(RuntimeError, match='a bug'):
            env.step(action)
    env.close()


@pytest.mark.parametrize('mode', ACTION_MODES)
def test_a_simulator_that_fails_in_a_step(toy, mode):
    env = build(action_mode=mode)
    env.reset()
    action = np.zeros(env.action_space.shape, np.float32)
    standin.FAILURES['step'][:] = [standin.simulator_error()]
    with pytest.raises(RuntimeError, match=r'ReachTarget: the simulator failed \(The call .*\): reset .* again\.$'):
        env.step(action)
    with pytest.raises(RuntimeError, match=r'call reset\(\) before'):  # what it was in is unknown
        env.step(action)
    env.reset()
    standin.FAILURES['step'][:] = [RuntimeError('a bug')]
    with pytest.raises(RuntimeError, match='^a bug$'):
        env.step(action)
    env.close()


def test_an_invalid_action_changes_nothing(toy):
    env = build(action_mode='ee_pose_planning', arm_scale=0.6, invalid_action_penalty=0.5, max_episode_steps=3)
    env.reset(seed=0)
    right = np.array([1, 0, 0, 0, 0, 0, 1], np.float32)
    before, _, _, _, info = env.step(right)
    assert info == {'is_success': False, 'invalid_action': False}
    after, reward, terminated, truncated, info = env.step(right)  # 1.2 is outside
    np.testing.assert_array_equal(after, before)
    assert (reward, terminated, truncated) == (-0.5, False, False)
    assert info['invalid_action'] is True and 'outside of workspace' in info['invalid_action_error']
    assert env.step(right)[3], 'the time limit counts invalid actions'
    env.close()


@pytest.mark.parametrize('key', ['joint_positions', 'front_rgb', 'front_depth'])
def test_observations_are_the_caller_s_to_change(toy, key):
    env = build(action_mode='ee_pose_planning', arm_scale=2.0, state_type=key)
    first, _ = env.reset(seed=0)
    kept = first.copy()
    first += 1
    again, _, _, _, info = env.step(np.array([1, 0, 0, 0, 0, 0, 1], np.float32))
    assert info['invalid_action']
    np.testing.assert_array_equal(again, kept)
    env.close()


def test_an_invalid_action_is_never_better_than_a_valid_one_with_a_shaped_reward(toy):
    env = build(action_mode='ee_pose', arm_scale=2.0, shaped_rewards=True, invalid_action_penalty=0.25)
    env.reset(seed=0)
    distance = toy.launched[-1].task.distance()
    _, reward, _, _, info = env.step(np.array([1, 0, 0, 0, 0, 0, 1], np.float32))
    assert info['invalid_action']
    assert reward == pytest.approx(-distance - 0.25)
    env.close()


# Rewards and ends


def test_success_terminates(toy):
    env = build()
    env.reset(seed=1)
    rewards = []
    for _ in range(30):
        _, reward, terminated, truncated, info = env.step(aim(env, toy))
        assert type(reward) is float and type(terminated) is bool and type(truncated) is bool
        rewards.append(reward)
        assert info['is_success'] == terminated == (reward == 1.0)
        if terminated:
            break
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0] and not truncated
    env.close()


def test_failure_terminates_without_success(toy):
    env = build('BeatTheBuzz')
    env.reset(seed=1)
    down = np.array([0, 0, -1, 0, 0, 0, 0, 0], np.float32)
    steps = [env.step(down) for _ in range(11)]
    assert [step[2] for step in steps] == [False] * 10 + [True]
    assert steps[-1][1] == 0.0 and steps[-1][4]['is_success'] is False
    env.close()


@pytest.mark.parametrize('task', ['ReachTarget', 'TakeLidOffSaucepan'])
def test_shaped_success(toy, task):
    env = build(task, shaped_rewards=True)
    env.reset(seed=1)
    terminated = False
    while not terminated:
        _, reward, terminated, truncated, info = env.step(aim(env, toy))
        assert reward == pytest.approx(-toy.launched[-1].task.distance()) and not truncated
        assert info['is_success'] is terminated
    env.close()


def test_a_missing_shaped_reward_is_said_before_launching(toy):
    with pytest.raises(ValueError, match='PickUpCup has no .* ReachTarget, SlideBlockToTarget, TakeLidOffSaucepan'):
        build('PickUpCup', shaped_rewards=True)
    assert not toy.launched


@pytest.mark.parametrize('kwargs, limit', [({}, 200), ({'max_episode_steps': 7}, 7)])
def test_the_time_limit_truncates(toy, kwargs, limit):
    env = build('PickUpCup', **kwargs)
    away = np.full(8, -1.0, np.float32)  # to the corner of the cube
    for _ in range(2):
        env.reset(seed=0)
        ends = [env.step(away)[2:4] for _ in range(limit)]
        assert ends == [(False, False)] * (limit - 1) + [(False, True)]
    env.close()


def test_success_in_the_last_step_is_no_truncation(toy):
    env = build(max_episode_steps=1, arm_scale=20.0)
    env.reset(seed=1)
    action = np.zeros(8, np.float32)
    action[:3] = toy.launched[-1].task.target
    assert env.step(action)[2:4] == (True, False)
    env.close()


# Resets, variations, seeds


TASK = standin.ReachTarget(None, None)


@pytest.mark.parametrize(
    'error',
    [
        standin.TaskEnvironmentError('no room'),
        standin.BoundaryError('no room'),
        standin.WaypointError('no room', TASK),
        standin.NoWaypointsError('no room', TASK),
        standin.ConfigurationError('no room'),
        standin.ConfigurationPathError('no room'),
        standin.IKError('no room'),
        standin.InvalidActionError('no room'),
        standin.simulator_error(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_task_that_does_not_fit_is_placed_again(toy, error):
    env = build(reset_attempts=3)
    failures = standin.FAILURES['init_episode']
    failures[:] = [error] * 2
    env.reset()
    failures[:] = [error] * 3
    with pytest.raises(RuntimeError, match=r'could not be placed in the scene in 3 attempts: .*reset_attempts.*\)\.$'):
        env.reset()
    assert not failures
    with pytest.raises(RuntimeError, match='reset'):  # not a step of the episode before
        env.step(np.zeros(8))
    for bug in (KeyError('a bug'), RuntimeError('a bug')):
        failures[:] = [bug]
        with pytest.raises(type(bug), match='a bug'):
            env.reset()
    env.reset()
    env.close()


def test_a_task_that_never_fits_is_said_when_the_environment_is_built(toy):
    standin.FAILURES['init_episode'][:] = [standin.IKError('no room')] * 5
    with pytest.raises(RuntimeError, match='ReachTarget, variation 0, could not be placed .* in 5 attempts'):
        build()
    assert toy.running == 0
    build().close()


def test_an_environment_that_could_not_be_built_is_closed(toy):
    with pytest.raises(RuntimeError, match='FitsOnce, variation 0, could not be placed') as caught:
        build('FitsOnce')
    assert (toy.running, toy.shut_down) == (0, 1)
    build('PickUpCup').close()  # while the error, and with it what could not be built, is still at hand
    del caught


@pytest.mark.parametrize('options, known', [({}, True), (None, True), ({'variation': 3}, False)])
def test_options_that_reset_does_not_know(toy, options, known):
    env = build()
    if known:
        env.reset(options=options)
    else:
        with pytest.raises(ValueError, match=r"reset takes no options, but got \['variation'\]: .* build_env"):
            env.reset(options=options)
    env.close()


def test_variations(toy):
    env = build(variation=7)
    assert env.reset()[1] == {'descriptions': ['reach the target 7', 'touch the ball 7'], 'variation': 7}
    env.close()
    env = build(variation='random')
    env.reset(seed=5)
    drawn = [env.reset()[1]['variation'] for _ in range(20)]
    assert len(set(drawn)) > 5 and 0 <= min(drawn) and max(drawn) < 20
    env.reset(seed=5)
    assert [env.reset()[1]['variation'] for _ in range(20)] == drawn
    env.close()
    with pytest.raises(ValueError, match='ReachTarget has 20 variations: give one from 0 to 19, not 20'):
        build(variation=20)
    assert toy.running == 0


def test_seeds(toy):
    def targets(env: RLBenchEnv, seed: int | None) -> np.ndarray:
        return np.array([env.reset(seed=seed)[0], *(env.reset()[0] for _ in range(3))])

    env = build(state_type='task_low_dim_state')
    first = targets(env, 11)
    assert len(np.unique(first, axis=0)) == 4
    np.random.seed(0)  # what others do with the global generators does not matter
    random.seed(0)
    np.testing.assert_array_equal(targets(env, 11), first)
    assert (targets(env, 12) != first).any()
    assert (targets(env, None) != targets(env, None)).any()
    env.close()
    unseeded = []
    for _ in range(2):
        np.random.seed(0)
        env = build(seed=None, state_type='task_low_dim_state')
        unseeded.append(targets(env, None))
        env.close()
    assert (unseeded[0] != unseeded[1]).any()


def test_the_global_generators_are_given_back(toy):
    before = np.random.get_state(), random.getstate()
    env = build(seed=None)
    env.reset()
    env.reset(seed=4)
    env.step(env.action_space.sample())
    standin.FAILURES['init_episode'][:] = [KeyError()]
    with pytest.raises(KeyError):
        env.reset()
    env.close()
    after = np.random.get_state(), random.getstate()
    np.testing.assert_array_equal(before[0][1], after[0][1])
    assert before[0][2:] == after[0][2:] and before[1] == after[1]


# The simulator


def test_one_simulator_in_a_process(toy):
    env = build()
    assert toy.running == 1
    with pytest.raises(RuntimeError, match=r'ReachTarget has the one .* close that .* nenv=4\) gives each a process'):
        build('PickUpCup')
    assert len(toy.launched) == 1
    env.reset()  # the first one is none the worse for it
    env.close()
    env.close()
    assert (toy.running, toy.shut_down) == (0, 1)
    for call in (env.reset, lambda: env.step(np.zeros(8))):
        with pytest.raises(RuntimeError, match='closed'):
            call()
    other = build('PickUpCup')
    env.close()  # is not the one that runs now
    assert toy.running == 1
    with pytest.raises(RuntimeError, match='PickUpCup has the one'):
        build()
    other.close()


def test_an_environment_that_nobody_has_any_more_is_shut_down(toy):
    env = build()
    env.cycle = env
    del env
    build('PickUpCup').close()
    assert (toy.running, toy.shut_down) == (0, 2)


def test_copies_in_one_process_are_refused(toy):
    with pytest.raises(ValueError, match="vectorized='async'"):
        build_env('ReachTarget', 'rlbench', nenv=2, vectorized='sync')


def test_a_launch_that_fails_leaves_nothing_behind(toy, monkeypatch):
    from rlbench.environment import Environment

    def launch(self: Any) -> None:
        raise OSError('no display')

    with monkeypatch.context() as patch:
        patch.setattr(Environment, 'launch', launch)
        with pytest.raises(OSError, match='no display'):
            build()
    build().close()


def test_a_launch_that_fails_leaves_the_working_directory(toy):
    before = os.getcwd()
    standin.FAILURES['launch'][:] = [standin.PyRepError('no licence')]
    with pytest.raises(standin.PyRepError, match='no licence'):
        build()
    assert os.getcwd() == before
    build().close()


def test_a_simulator_that_does_not_shut_down(toy):
    env = build()
    standin.FAILURES['shutdown'][:] = [standin.simulator_error()]
    with pytest.raises(RuntimeError, match=r'ReachTarget: .* did not shut down \(The call .*\): .* a new process\.$'):
        env.close()
    env.close()  # says it once
    with pytest.raises(RuntimeError, match='closed'):
        env.step(np.zeros(8))
    for _ in range(2):
        with pytest.raises(RuntimeError, match='ReachTarget did not shut down .* a new process'):
            build('PickUpCup')
    assert len(toy.launched) == 1
    toy.launched[0].shutdown()


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='no fork on this system')
def test_a_forked_process_cannot_use_it(toy):
    env = build()
    env.reset()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            env.step(np.zeros(8))
        except RuntimeError as error:
            status = int('the process that built it' not in str(error))
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    env.close()


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='no fork on this system')
def test_a_forked_process_does_not_shut_it_down(toy):
    env = build()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            env.close()
            status = int(standin.LOG.shut_down > 0)
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    env.close()


@pytest.mark.parametrize('kwargs, headless', [({}, True), ({'render_mode': 'human'}, False), ({'headless': 0}, False)])
def test_headless(toy, kwargs, headless):
    env = build(**kwargs)
    assert bool(toy.launched[-1].headless) is headless
    assert env.render() is None
    env.close()


def test_step_before_reset(toy):
    env = rlbench.find('ReachTarget', 'rlbench')()
    with pytest.raises(RuntimeError, match='reset'):
        env.step(np.zeros(8))
    env.close()


# Copies and agents


def test_copies_in_processes_do_what_single_ones_do(toy):
    kwargs = {'state_type': ['state', 'wrist_rgb'], 'max_episode_steps': 6, 'arm_scale': 6.0, 'image_size': (16, 16)}
    actions = np.random.default_rng(0).uniform(-1, 1, (100, 2, 8)).astype(np.float32)
    copies = build_env('ReachTarget', 'rlbench', nenv=2, vectorized='async', seed=5, **kwargs)
    first, info = copies.reset(seed=5)
    assert list(info['descriptions'][1]) == ['reach the target 0', 'touch the ball 0']
    steps = [copies.step(action) for action in actions]
    copies.close()
    ends = {'terminated': 0, 'truncated': 0}
    for i in range(2):
        env = build_env('ReachTarget', 'rlbench', seed=5 + i, **kwargs)
        observation, _ = env.reset(seed=5 + i)
        for key in observation:
            np.testing.assert_array_equal(first[key][i], observation[key])
        for action, (observations, rewards, terminated, truncated, info) in zip(actions[:, i], steps, strict=True):
            observation, reward, over, cut, single_info = env.step(action)
            assert (rewards[i], terminated[i], truncated[i]) == (reward, over, cut)
            ends['terminated'] += over
            ends['truncated'] += cut
            if over or cut:
                for key in observation:
                    np.testing.assert_array_equal(info['final_obs'][i][key], observation[key])
                assert info['final_info']['is_success'][i] == single_info['is_success']
                observation, _ = env.reset()
            for key in observation:
                np.testing.assert_array_equal(observations[key][i], observation[key])
        env.close()
    assert all(ends.values()), f'both kinds of end must have been seen, not {ends}'


def test_copies_beside_an_open_environment(toy):
    env = build()
    copies = build_env('PickUpCup', 'rlbench', nenv=2, seed=3, max_episode_steps=7, state_type=['state', 'wrist_rgb'])
    assert len(toy.launched) == 1, 'a copy was tried in this process'
    assert copies.single_observation_space['state'] == env.observation_space
    assert copies.single_action_space == env.action_space
    assert copies.spec.id == 'PickUpCup' and copies.spec.max_episode_steps == 7
    assert copies.metadata['render_fps'] == 20 and copies.render_mode is None
    copies.reset()
    observations, *_ = copies.step(copies.action_space.sample())
    assert copies.observation_space.contains(observations)
    copies.close()
    env.reset()
    env.close()


def test_arguments_of_copies_are_refused_as_those_of_one(toy):
    with pytest.raises(ValueError, match="did you mean 'vision'"):
        build_env('ReachTarget', 'rlbench', nenv=2, state_type='visoin')
    with pytest.raises(RuntimeError, match='^Crowded, variation 0, could not be placed'):
        build_env('Crowded', 'rlbench', nenv=2)
    assert not multiprocessing.active_children()


def test_what_cannot_be_sent_to_copies(toy):
    lock = threading.Lock()
    with pytest.raises(TypeError, match='cannot be pickled .* or use nenv=1'):
        build_env('ReachTarget', 'rlbench', nenv=2, reward_shaping=lambda reward: reward + lock.locked())


def test_the_end_of_the_process_that_looks_at_the_spaces(toy):
    with pytest.raises(RuntimeError, match=r'Crashing is lost: its process ended .* nenv=1 runs .* in this process'):
        build_env('Crashing', 'rlbench', nenv=2)
    assert not multiprocessing.active_children()


def test_the_end_of_a_copy(toy):
    copies = build_env('ReachTarget', 'rlbench', nenv=2)
    os.kill(copies.processes[1].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r'copy 1 of ReachTarget is lost: .* SIGKILL .*; nenv=1 runs the') as caught:
        for _ in range(3):
            copies.step(copies.action_space.sample())
    assert 'sync' not in str(caught.value)


@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize('state_type', ['state', 'front_rgb'])
def test_ppo_trains(toy, tmp_path, state_type):
    size = {'image_size': (36, 36)} if state_type == 'front_rgb' else {}
    env = build_env('ReachTarget', 'rlbench', state_type=state_type, shaped_rewards=True, **size)
    alg_params, learn_params = call_default_params(env, 'rlbench', 'PPO')
    agent = algorithms.PPO(**alg_params)
    learn_params |= {'train_steps': 300, 'horizon': 100, 'epochs': 1, 'batch_size': 50, 'run_dir': tmp_path}
    result = agent.learn(env, 'train', **learn_params)
    assert result.steps == 300 and result.returns
    assert all(np.isfinite(value).all() for value in result.losses.values())
    tested = agent.learn(env, 'test', test_episodes=1)
    assert len(tested.successes) == 1 and tested.successes[0] in (True, False)
    env.close()


# The real thing


@pytest.mark.rlbench
def test_over_rlbench_itself():
    pytest.importorskip('pyrep', reason='PyRep is not installed')
    pytest.importorskip('rlbench', reason='RLBench is not installed')
    assert {'ReachTarget', 'SlideBlockToTarget', 'TakeLidOffSaucepan', 'BeatTheBuzz'} <= set(tasks.ids())
    keys = ['state', 'front_rgb', 'wrist_depth', 'wrist_mask', 'overhead_point_cloud']
    for mode in ACTION_MODES:
        env = build_env(
            'ReachTarget', 'rlbench', state_type=keys, action_mode=mode, shaped_rewards=True, max_episode_steps=5
        )
        try:
            assert env.observation_space['state'].shape == (40,)
            observation, info = env.reset(seed=1)
            assert env.observation_space.contains(observation) and info['descriptions']
            np.testing.assert_allclose(observation['state'][-3:], env.reset(seed=1)[0]['state'][-3:], atol=1e-5)
            *_, info = env.step(np.zeros(env.action_space.shape, np.float32))
            assert not info['invalid_action'] and np.isfinite(env.step(env.action_space.sample())[0]['state']).all()
            env.reset(seed=1)
            ends = []
            for _ in range(5):
                observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
                assert env.observation_space.contains(observation) and np.isfinite(reward)
                assert info['is_success'] is False or terminated
                ends.append((terminated, truncated))
                if terminated:
                    break
            assert ends[-1] == (False, True) or ends[-1][0]
        finally:
            env.close()
