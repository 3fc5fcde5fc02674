"""RLBench's tasks: a robot arm on a table, in the simulator CoppeliaSim.

James et al. 2020, *RLBench: The Robot Learning Benchmark & Learning Environment* (IEEE RA-L 5(2), arXiv 1909.12271).

**Not yet run against the simulator.** CoppeliaSim is a download from its maker, so this was written from the sources
of RLBench 1.2.0 and PyRep 4.1.0.3, and is tested over objects of the same shape as RLBench's.

It builds on ``rlbench.Environment``. The wrapper ``rlbench.gym`` would always render the cameras and drop most of what
they see, knows one robot and one variation, never truncates, returns an empty ``info``, and reseeds NumPy's global
generator.

CoppeliaSim runs once in a process: copies (``nenv=4``) have a process each, and may be built beside an environment that
is open here. It needs an X server even without a window (``xvfb-run python train.py`` is one), and three variables that
PyRep's page names: ``COPPELIASIM_ROOT``, ``LD_LIBRARY_PATH`` and ``QT_QPA_PLATFORM_PLUGIN_PATH``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import inspect
import numbers
import os
import pkgutil
import random
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Dict, Space

from zoo.common.errors import unknown

#: A copy needs a process of its own.
ONE_PER_PROCESS = True

CAMERAS = ('left_shoulder', 'right_shoulder', 'overhead', 'wrist', 'front')
#: What a camera sees, and the end of its keys: ``'front_rgb'``, ….
CHANNELS = ('rgb', 'depth', 'mask', 'point_cloud')
#: The fields of an observation that are numbers rather than pictures.
LOW_DIM = (
    'gripper_joint_positions',
    'gripper_matrix',
    'gripper_open',
    'gripper_pose',
    'gripper_touch_forces',
    'joint_forces',
    'joint_positions',
    'joint_velocities',
    'task_low_dim_state',
)
#: What ``get_low_dim_data`` joins to the one vector that is called ``'state'`` here.
STATE = tuple(key for key in LOW_DIM if key != 'gripper_matrix')
KEYS = tuple(sorted(('state', *LOW_DIM, *(f'{camera}_{channel}' for camera in CAMERAS for channel in CHANNELS))))
#: ``state_type='vision'``: all cameras, and what the robot knows of itself. Where things are, only the cameras tell.
VISION = (
    *(f'{camera}_rgb' for camera in CAMERAS),
    'gripper_open',
    'gripper_pose',
    'joint_positions',
    'joint_velocities',
)


#: What ``rlbench`` calls it -> what it is called here.
RENAMED = {'observation_mode': 'state_type', 'obs_config': 'state_type', 'robot_configuration': 'robot_setup'}


@dataclass(frozen=True)
class ArmMode:
    """How the arm is moved: a class of ``rlbench.action_modes.arm_action_modes`` and what an action of ±1 means.

    Attributes:
        name: the class.
        kwargs: its arguments.
        scale: what 1 stands for in each entry, or in each joint when it is one number.
        pose: whether an action is a movement of the gripper: x, y, z, then a rotation vector.
    """

    name: str
    kwargs: dict[str, Any]
    scale: tuple[float, ...]
    pose: bool = False


#: RLBench declares no bounds for these. 0.1 rad is that of its one mode that has bounds, ``JointPositionActionMode``;
#: 1 rad/s is the velocity to which its ``Environment`` limits the arm. The steps of a pose are small for the Jacobian,
#: which only finds near ones, and larger for the planner.
ACTION_MODES = {
    'joint_velocity': ArmMode('JointVelocity', {}, (1.0,)),
    'joint_position': ArmMode('JointPosition', {'absolute_mode': False}, (0.1,)),
    'ee_pose': ArmMode('EndEffectorPoseViaIK', {'absolute_mode': False}, (0.03,) * 3 + (0.1,) * 3, pose=True),
    'ee_pose_planning': ArmMode(
        'EndEffectorPoseViaPlanning', {'absolute_mode': False}, (0.1,) * 3 + (0.5,) * 3, pose=True
    ),
}

#: The environment whose simulator runs in this process.
_holder: weakref.ref[RLBenchEnv] | None = None
#: The environment whose simulator did not shut down, after which no other one can be launched in this process.
_stuck: str | None = None


def find(env_id: Any, env_type: str) -> Callable[..., gymnasium.Env]:
    """The factory of a task by its class's name or that of its file: ``'ReachTarget'``, ``'reach_target'``.

    Its keyword arguments are those of :class:`RLBenchEnv`. Nothing is launched before it is called.

    Raises:
        ValueError: an unknown name.
        TypeError: ``env_id`` is not a name.
        ImportError: RLBench, PyRep or CoppeliaSim is not installed.
    """
    if not isinstance(env_id, str):
        raise TypeError(f"an {env_type} environment is given by its name, such as 'ReachTarget', not by {env_id!r}.")
    tasks = _tasks()
    name = env_id if env_id in tasks else _class_name(env_id)
    if name not in tasks:
        raise ValueError(unknown(f'{env_type} environment', env_id, tasks))
    return partial(_make, name)


def ids() -> list[str]:
    """The names of the installed RLBench's tasks, sorted.

    Raises:
        ImportError: RLBench, PyRep or CoppeliaSim is not installed.
    """
    return sorted(_tasks())


def _make(task: str, /, **kwargs: Any) -> gymnasium.Env:
    known = list(inspect.signature(RLBenchEnv).parameters)[1:]
    for name in kwargs:
        if name in RENAMED:
            raise TypeError(
                f'unknown argument of an RLBench environment {name!r}: it is called {RENAMED[name]!r} here.'
            )
        if name not in known:
            raise TypeError(unknown('argument of an RLBench environment', name, known))
    return RLBenchEnv(task, **kwargs)


class RLBenchEnv(gymnasium.Env):
    """One task of RLBench, with a simulator of its own, which :meth:`close` shuts down.

    Observations: one array when ``state_type`` is ``'state'`` or one key, else a ``Dict`` with the keys in alphabetical
    order. Only what was asked for is rendered.

    ====================  ==================================================================================
    key                   array
    ====================  ==================================================================================
    ``state``             float32 ``[n]``: all numbers in RLBench's own order (``get_low_dim_data``), also where
                          the task's objects are; n = 40 for ``ReachTarget`` with the Panda, the only robot
                          whose touch forces are among them: the others have no sensors for these
    ``*_rgb``             uint8 ``[height, width, 3]``
    ``*_depth``           float32 ``[height, width, 1]``, 0 to 1 between the camera's near and far plane, or metres
    ``*_mask``            float32 ``[height, width, 1]``, the handle of the object seen (a label, not a quantity)
    ``*_point_cloud``     float32 ``[height, width, 3]``, metres in the world's frame
    ``gripper_open``      float32 ``[1]``, 0 or 1
    the other numbers     float32 in RLBench's shape: metres, radians, radians per second, newtons, newton metres;
                          poses are x, y, z and a quaternion x, y, z, w
    ====================  ==================================================================================

    Actions: float32 in [-1, 1], the arm's, then one for the gripper, which is open above 0 and else closed; those
    beyond are clipped. 1 stands for:

    =====================  =================================================================================
    ``joint_velocity``     1 rad/s of each joint
    ``joint_position``     0.1 rad of each joint from where it is
    ``ee_pose``            0.03 m along x, y, z and 0.1 rad about each of them (a rotation vector), from where the
                           gripper is, in the world's frame, by the inverse Jacobian
    ``ee_pose_planning``   0.1 m and 0.5 rad by a planned path, which can take seconds
    =====================  =================================================================================

    The rotation becomes a quaternion of unit length here, so that every action is one that RLBench understands.

    Rewards: 1 for success and else 0, or the task's own with ``shaped_rewards``. Episodes are terminated when RLBench
    says so, which is a success, or in ``BeatTheBuzz`` maybe a failure; ``info['is_success']`` (bool) tells. They are
    truncated after ``max_episode_steps``.

    An action that RLBench refuses (out of the workspace, no inverse kinematics, no path, or the simulator's planner
    failed) changes nothing, and the episode goes on: the observation is the last one, the reward what the unchanged
    state gives less ``invalid_action_penalty``; ``info['invalid_action']`` (bool) marks it and
    ``info['invalid_action_error']`` says why. It counts as a step. (``rlbench.gym`` would raise the error.)

    ``reset``'s info has ``descriptions``, the task in words, and ``variation``, its number. A task that does not fit
    into the scene, or whose waypoints the planner cannot reach, is placed anew, ``reset_attempts`` times in all.

    RLBench draws from the global generators of NumPy and of Python. They are lent to it with a state of this
    environment's own, which ``reset(seed=…)`` seeds and nothing else, and are given back as they were. The planner's
    random numbers are CoppeliaSim's and cannot be seeded.

    Args:
        task: the name of the task's class.
        state_type: ``'state'``; ``'vision'`` for :data:`VISION`; a key; or a sequence of keys, out of :data:`KEYS`.
        action_mode: a key of :data:`ACTION_MODES`.
        arm_scale: what 1 stands for in the arm's actions, one positive number or one for each, in the units above.
        shaped_rewards: the task's own dense reward, which three of the tasks have.
        max_episode_steps: the time limit.
        invalid_action_penalty: see above; not negative.
        reset_attempts: how often a reset tries to place the task, each time as often as RLBench does by itself.
        variation: the number of the task's variation, or ``'random'`` for one per episode.
        headless: no window.
        robot_setup: ``'panda'``, ``'jaco'``, ``'mico'``, ``'sawyer'`` or ``'ur5'``.
        image_size: ``(width, height)`` of every camera in pixels; needs a picture in ``state_type``.
        depth_in_meters: see above; needs a ``*_depth`` in ``state_type``.
        render_mode: None, or ``'human'`` for the simulator's window, the same as ``headless=False``.

    Raises:
        ValueError: an argument that is not one of those above; a task that has no shaped reward or not that many
            variations.
        RuntimeError: a simulator runs in this process already, or one did not shut down; there is no X server; the
            task could not be placed.
        ImportError: RLBench, PyRep or CoppeliaSim is not installed.
    """

    metadata = {'render_modes': ['human'], 'render_fps': 20}
    spec: EnvSpec  # which is never None here

    def __init__(
        self,
        task: str,
        state_type: str | Sequence[str] = 'state',
        action_mode: str = 'joint_velocity',
        arm_scale: float | Sequence[float] | None = None,
        shaped_rewards: bool = False,
        max_episode_steps: int = 200,
        invalid_action_penalty: float = 0.1,
        reset_attempts: int = 5,
        variation: int | str = 0,
        headless: bool = True,
        robot_setup: str = 'panda',
        image_size: tuple[int, int] = (128, 128),
        depth_in_meters: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self._closed = True  # until something runs
        self._keys, self._single = _observation_keys(state_type)
        if action_mode not in list(ACTION_MODES):  # a list also takes what has no hash
            raise ValueError(unknown('action mode', action_mode, ACTION_MODES))
        for name, value in (('max_episode_steps', max_episode_steps), ('reset_attempts', reset_attempts)):
            if not _is_count(value, 1):
                raise ValueError(f'{name} is {value!r}: give a whole number from 1 on.')
        for name, value in (
            ('shaped_rewards', shaped_rewards),
            ('headless', headless),
            ('depth_in_meters', depth_in_meters),
        ):
            if value not in (True, False):
                raise ValueError(f'{name} is {value!r}: give True or False.')
        if not _is_amount(invalid_action_penalty):
            raise ValueError(
                f'invalid_action_penalty is {invalid_action_penalty!r}: it is taken off the reward, so give 0 or more.'
            )
        if variation != 'random' and not _is_count(variation, 0):
            raise ValueError(f"variation is {variation!r}: give its number, from 0 on, or 'random'.")
        if render_mode not in (None, 'human'):
            raise ValueError(
                f"render_mode is {render_mode!r}: RLBench has 'human', the simulator's window; pictures come as "
                "observations, for example with state_type='front_rgb'."
            )
        if not (
            isinstance(image_size, (Sequence, np.ndarray))
            and len(image_size) == 2
            and all(_is_count(side, 8) for side in image_size)
        ):
            raise ValueError(f'image_size is {image_size!r}: give (width, height), at least 8 pixels each.')
        size = int(image_size[0]), int(image_size[1])
        if size != (128, 128) and not any(key.endswith(CHANNELS) for key in self._keys):
            raise ValueError(
                f"image_size is {size} but state_type {state_type!r} has no pictures: add one, such as 'front_rgb', or "
                'leave image_size out.'
            )
        if depth_in_meters and not any(key.endswith('_depth') for key in self._keys):
            raise ValueError(
                f'depth_in_meters is {depth_in_meters!r} but state_type {state_type!r} has no depth: add one, such as '
                "'front_depth', or leave depth_in_meters out."
            )
        robots = _module('const').SUPPORTED_ROBOTS
        if robot_setup not in list(robots):
            raise ValueError(unknown('robot', robot_setup, robots))
        task_class = _task_class(task)
        if shaped_rewards and not _has_shaped_reward(task_class):
            shaped = [name for name in ids() if _has_shaped_reward(_task_class(name))]
            raise ValueError(
                f'{task} has no shaped reward: leave shaped_rewards out, or take a task that has one: '
                f'{", ".join(shaped)}.'
            )

        self._mode = ACTION_MODES[action_mode]
        self._arm_scale = _arm_scale(self._mode, arm_scale, robots[robot_setup][2])
        self.action_space = Box(-1.0, 1.0, (len(self._arm_scale) + 1,), np.float32)
        self.render_mode = render_mode
        self.spec = EnvSpec(task, 'zoo.common.envs.rlbench:RLBenchEnv', max_episode_steps=max_episode_steps)
        self._robot = robot_setup
        self._shaped = bool(shaped_rewards)
        self._depth_in_meters = bool(depth_in_meters)
        self._limit = max_episode_steps
        self._penalty = float(invalid_action_penalty)
        self._attempts = reset_attempts
        self._variation: int | None = None if variation == 'random' else int(variation)  # None: at random
        self._steps = 0
        self._observation: Any = None  # RLBench's own
        self._streams = _new_streams(self.np_random)
        self._invalid = _module('backend.exceptions').InvalidActionError
        self._unplaced = _placement_errors()

        _check_display()
        config = _observation_config(self._keys, size, self._depth_in_meters)
        simulator = _module('environment').Environment(
            action_mode=self._action_mode(),
            obs_config=config,
            headless=headless and render_mode is None,
            robot_setup=robot_setup,
            shaped_rewards=self._shaped,
        )
        self._launch(simulator, task_class, config)

    def _launch(self, simulator: Any, task_class: Any, config: Any) -> None:
        _claim(self)
        self._pid = os.getpid()
        unlaunched = _module('errors', 'pyrep').PyRepError
        self._finalizer = weakref.finalize(self, _shut_down, simulator, self._pid, self.spec.id, unlaunched)
        self._closed = False
        directory = os.getcwd()
        try:
            with self._lent_generators():
                simulator.launch()
                self._task = simulator.get_task(self._keep_instance(task_class))
            _guard_planner(self._instance.robot.arm)
            self._leave_out_missing_sensors(config)
            self._variations = int(self._task.variation_count())
            if self._variation is not None and self._variation >= self._variations:
                raise ValueError(
                    f'{self.spec.id} has {self._variations} variations: give one from 0 to {self._variations - 1}, '
                    f'not {self._variation}.'
                )
            # How long some parts are depends on the task, the robot and the gripper, and only an observation shows it.
            first, _ = self._place()
            self.observation_space = self._space(first)
        except BaseException:
            with contextlib.suppress(Exception):  # of a simulator that never came up, instead of the reason for that
                self.close()
            raise
        finally:
            os.chdir(directory)  # PyRep launches from the simulator's folder, and stays there when that fails

    def _leave_out_missing_sensors(self, config: Any) -> None:
        """Switch the touch forces off where the gripper has none, for which RLBench's observations would fail."""
        if not config.gripper_touch_forces:
            return
        try:
            self._instance.robot.gripper.get_touch_sensor_forces()
        except NotImplementedError as error:
            if 'gripper_touch_forces' in self._keys:
                raise ValueError(
                    f"the gripper of {self._robot!r} has no touch sensors: leave 'gripper_touch_forces' out of "
                    'state_type.'
                ) from error
            config.gripper_touch_forces = False

    def _keep_instance(self, task_class: Any) -> Callable[..., Any]:
        """``task_class``, whose instance RLBench keeps to itself, as does ``step`` whether an end is a success.

        Asking the task again would not do: some conditions count how often they are asked.
        """

        def make(*args: Any) -> Any:
            task = self._instance = task_class(*args)
            judge = task.success

            def success() -> tuple[Any, Any]:
                task.last_judgement = judge()
                return task.last_judgement

            task.success = success
            return task

        return make

    def _action_mode(self) -> Any:
        arm = getattr(_module('action_modes.arm_action_modes'), self._mode.name)(**self._mode.kwargs)
        gripper = _module('action_modes.gripper_action_modes').Discrete()
        return _module('action_modes.action_mode').MoveArmThenGripper(arm, gripper)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Place the task anew; see the class's docstring.

        Raises:
            RuntimeError: the environment is closed; the task could not be placed in ``reset_attempts`` attempts.
            ValueError: ``options`` that are not empty; an observation of another shape than the first one's.
        """
        self._check_open()
        if options:
            raise ValueError(
                f'{self.spec.id}: reset takes no options, but got {sorted(options)}: what can be chosen, such as the '
                'variation, is an argument of build_env.'
            )
        self._observation = None  # there is nothing to step until the task has been placed
        super().reset(seed=seed)
        if seed is not None:
            self._streams = _new_streams(self.np_random)
        self._steps = 0
        observation, info = self._place()
        arrays = self._convert(observation)
        self._observation = observation
        return arrays, info

    def _place(self) -> tuple[Any, dict[str, Any]]:
        variation = self._variation
        if variation is None:
            variation = int(self.np_random.integers(self._variations))
        self._task.set_variation(variation)
        failures: tuple[type[Exception], ...] = (*self._unplaced, RuntimeError)
        with self._lent_generators():
            for attempt in range(1, self._attempts + 1):
                try:
                    descriptions, observation = self._task.reset()
                    break
                except failures as error:
                    if not (isinstance(error, self._unplaced) or _is_of_simulator(error)):
                        raise
                    if attempt == self._attempts:
                        raise RuntimeError(
                            f'{self.spec.id}, variation {variation}, could not be placed in the scene in '
                            f'{attempt} attempts: allow more with reset_attempts, or take another variation ({error}).'
                        ) from error
        return observation, {'descriptions': list(descriptions), 'variation': variation}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act for one step of the control loop, or until a pose is reached; see the class's docstring.

        Raises:
            RuntimeError: the environment is closed, or ``reset`` has not been called; the simulator failed.
            ValueError: an action of another shape, or with an entry that is NaN or infinite; an observation of another
                shape than the first one's.
        """
        self._check_open()
        if self._observation is None:
            raise RuntimeError(f'{self.spec.id}: call reset() before the first step().')
        command = self._command(action)
        self._steps += 1
        info: dict[str, Any] = {'is_success': False, 'invalid_action': False}
        with self._lent_generators():
            try:
                observation, reward, terminated = self._task.step(command)
            except self._invalid as error:
                # A shaped reward is negative: without it, doing nothing valid would be the best policy.
                reward = (self._instance.reward() if self._shaped else 0.0) - self._penalty
                terminated = False
                info |= {'invalid_action': True, 'invalid_action_error': str(error)}
            except RuntimeError as error:
                if not _is_of_simulator(error):
                    raise
                self._observation = None
                raise RuntimeError(
                    f'{self.spec.id}: the simulator failed ({str(error).rstrip(".")}): reset the environment or build '
                    'it anew.'
                ) from error
            else:
                self._observation = observation
                info['is_success'] = bool(self._instance.last_judgement[0])
        arrays, terminated = self._convert(self._observation), bool(terminated)
        return arrays, float(reward), terminated, self._steps >= self._limit and not terminated, info

    def close(self) -> None:
        """Shut the simulator down; another one can then be launched in this process. Closing twice does no harm.

        Raises:
            RuntimeError: the simulator did not shut down, and this process can have no other one.
        """
        if self._closed:
            return
        self._closed = True
        _release(self)
        self._finalizer()

    def render(self) -> None:
        """Nothing to do: the simulator's window shows every step by itself."""

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f'{self.spec.id} is closed and its simulator shut down: build it anew.')
        if os.getpid() != self._pid:
            raise RuntimeError(
                f'the simulator of {self.spec.id} runs in the process that built it, of which this one is a fork: '
                'build the environment here.'
            )

    def _command(self, action: Any) -> np.ndarray:
        """The action in RLBench's units, float64: joints or a pose (x, y, z, quaternion), then the gripper, 0 to 1."""
        action = np.asarray(action, np.float64)
        if action.shape != self.action_space.shape:
            raise ValueError(
                f'{self.spec.id}: the action has shape {action.shape}, but must have {self.action_space.shape}.'
            )
        if not np.isfinite(action).all():
            raise ValueError(f'{self.spec.id}: the action is {action.tolist()}, but must be finite.')
        action = np.clip(action, -1.0, 1.0)
        arm = action[:-1] * self._arm_scale
        if self._mode.pose:
            arm = np.concatenate([arm[:3], _quaternion(arm[3:])])
        return np.append(arm, (action[-1] + 1.0) / 2.0)

    def _space(self, observation: Any) -> Space:
        parts: dict[str, Space] = {key: self._box(key, value) for key, value in self._arrays(observation).items()}
        return parts[self._single] if self._single else Dict(parts)

    def _box(self, key: str, value: np.ndarray) -> Box:
        low, high = -np.inf, np.inf
        if key.endswith('_rgb'):
            low, high = 0, 255
        elif key == 'gripper_open' or (key.endswith('_depth') and not self._depth_in_meters):
            low, high = 0.0, 1.0
        elif key.endswith(('_depth', '_mask')):
            low = 0.0
        return Box(low, high, value.shape, value.dtype.type)

    def _convert(self, observation: Any) -> Any:
        arrays, own = self._arrays(observation), self.observation_space
        for key, value in arrays.items():
            space = own[key] if isinstance(own, Dict) else own
            if value.shape != space.shape:
                raise ValueError(
                    f'{self.spec.id}: {key!r} has shape {value.shape} after {self._steps} steps, but had {space.shape} '
                    "at first: a task whose objects change in number needs a state_type without 'state' and "
                    "'task_low_dim_state'."
                )
        return arrays[self._single] if self._single else arrays

    def _arrays(self, observation: Any) -> dict[str, np.ndarray]:
        """What was asked for, by key: pictures with an axis for their channels, all numbers float32."""
        arrays = {}
        for key in self._keys:
            value = observation.get_low_dim_data() if key == 'state' else getattr(observation, key)
            if value is None:
                raise ValueError(f'{self.spec.id} has no {key!r} in its observations: leave it out of state_type.')
            value = np.array(value, np.uint8 if key.endswith('_rgb') else np.float32)  # the caller's to change
            if key.endswith(('_depth', '_mask')):
                value = value[..., np.newaxis]
            arrays[key] = np.atleast_1d(value)
        return arrays

    @contextlib.contextmanager
    def _lent_generators(self) -> Iterator[None]:
        """The global generators with this environment's states, see the class's docstring."""
        found = np.random.get_state(), random.getstate()
        np.random.set_state(self._streams[0])
        random.setstate(self._streams[1])
        try:
            yield
        finally:
            self._streams = np.random.get_state(), random.getstate()
            np.random.set_state(found[0])
            random.setstate(found[1])


def _observation_keys(state_type: Any) -> tuple[tuple[str, ...], str | None]:
    """The keys that ``state_type`` asks for, sorted, and the one of them that is the whole observation, if any."""
    if isinstance(state_type, str):
        if state_type == 'vision':
            return tuple(sorted(VISION)), None
        if state_type not in KEYS:
            raise ValueError(unknown('state_type', state_type, ('vision', *KEYS)))
        return (state_type,), state_type
    if not isinstance(state_type, Sequence) or not state_type:
        raise ValueError(f"state_type is {state_type!r}: give 'state', 'vision', a key or a list of keys.")
    for key in state_type:
        if key not in KEYS:
            raise ValueError(unknown('key of state_type', key, KEYS))
    return tuple(sorted(set(state_type))), None


def _observation_config(keys: Sequence[str], image_size: tuple[int, int], depth_in_meters: bool) -> Any:
    """RLBench's own has everything switched on; this one only ``keys``."""
    module = _module('observation_config')
    cameras = {}
    for camera in CAMERAS:
        wanted = {channel: f'{camera}_{channel}' in keys for channel in CHANNELS}
        wanted['depth'] |= wanted['point_cloud']  # RLBench leaves out the points of a camera that sees nothing else
        cameras[f'{camera}_camera'] = module.CameraConfig(
            **wanted, image_size=image_size, depth_in_meters=depth_in_meters
        )
    config = module.ObservationConfig(**cameras)
    config.set_all_low_dim(False)
    for key in LOW_DIM:
        setattr(config, key, key in keys or ('state' in keys and key in STATE))
    return config


def _arm_scale(mode: ArmMode, given: float | Sequence[float] | None, joints: int) -> np.ndarray:
    """What 1 stands for in each entry of the arm's action, ``[n]`` float64."""
    length = len(mode.scale) if mode.pose else joints
    try:
        scale = np.asarray(mode.scale if given is None else given, np.float64)
    except (TypeError, ValueError):  # words, lists of lists
        scale = np.empty(0)
    if scale.size not in (1, length) or scale.ndim > 1 or not (np.isfinite(scale) & (scale > 0)).all():
        raise ValueError(f'arm_scale is {given!r}: give one positive number, or {length} of them.')
    return np.broadcast_to(scale, length).copy()


def _quaternion(rotation: np.ndarray) -> np.ndarray:
    """The unit quaternion ``x, y, z, w`` of a rotation vector ``[3]`` in radians."""
    angle = np.linalg.norm(rotation)
    # np.sinc(a / 2π) is sin(a / 2) / (a / 2), and right at 0.
    return np.append(rotation * 0.5 * np.sinc(angle / (2.0 * np.pi)), np.cos(angle / 2.0))


def _new_streams(generator: np.random.Generator) -> tuple[Any, Any]:
    """States for the global generators of NumPy and of Python."""
    seeds = generator.integers(2**32, size=2)
    return np.random.RandomState(int(seeds[0])).get_state(), random.Random(int(seeds[1])).getstate()


def _claim(env: RLBenchEnv) -> None:
    """Note that ``env`` has this process's simulator.

    Raises:
        RuntimeError: another has, or had one that did not shut down.
    """
    global _holder
    if _stuck is not None:
        raise RuntimeError(
            f'the simulator of {_stuck} did not shut down and a process can run only one: start a new process.'
        )
    if _holder is not None and _holder() is not None:
        gc.collect()  # it may be one that nobody can close any more
    holder = None if _holder is None else _holder()
    if holder is not None:
        raise RuntimeError(
            f'{holder.spec.id} has the one RLBench simulator that a process can run: close that environment first; for '
            f"several copies build_env({env.spec.id!r}, 'rlbench', nenv=4) gives each a process of its own."
        )
    _holder = weakref.ref(env)


def _release(env: RLBenchEnv) -> None:
    """Give the simulator of this process back, if this environment holds it."""
    global _holder
    if _holder is not None and _holder() is env:
        _holder = None


def _shut_down(simulator: Any, pid: int, name: str, unlaunched: type[Exception]) -> None:
    global _stuck
    if os.getpid() != pid:  # a forked process has a picture of the simulator, not the simulator
        return
    try:
        simulator.shutdown()
    except unlaunched:
        pass
    except Exception as error:
        _stuck = name
        raise RuntimeError(
            f'{name}: the simulator did not shut down ({str(error).rstrip(".")}): build other environments in a new '
            'process.'
        ) from error


def _guard_planner(arm: Any) -> None:
    """Mend two faults of PyRep's planning, for the actions and for the placement of tasks, which tries its waypoints.

    A planner that fails in the simulator is an error of the call there, unlike one that finds nothing. And a path's
    step divides by the distance of neighbouring points, so that points which are equal, as all are when the gripper
    stays where it is, send joint targets of 0 / 0.
    """
    errors = _module('errors', 'pyrep')
    plan, solve = arm.get_path, arm.solve_ik_via_jacobian

    def get_path(*args: Any, **kwargs: Any) -> Any:
        with _reported_as(errors.ConfigurationPathError):
            path = plan(*args, **kwargs)
        return path[np.diff(path._get_path_point_lengths(), prepend=-1.0) > 0.0]

    def solve_ik_via_jacobian(*args: Any, **kwargs: Any) -> Any:
        with _reported_as(errors.IKError):
            return solve(*args, **kwargs)

    arm.get_path, arm.solve_ik_via_jacobian = get_path, solve_ik_via_jacobian


@contextlib.contextmanager
def _reported_as(kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not _is_of_simulator(error):
            raise
        raise kind(str(error)) from error


def _is_of_simulator(error: Exception) -> bool:
    """Whether ``error`` is what PyRep raises for a call to which the simulator answers that it failed."""
    return 'V-REP side' in str(error)


def _placement_errors() -> tuple[type[Exception], ...]:
    """What ``reset`` may raise where the task does not fit or its waypoints cannot be reached."""
    rlbench, pyrep = _module('backend.exceptions'), _module('errors', 'pyrep')
    return (
        rlbench.TaskEnvironmentError,
        rlbench.BoundaryError,
        rlbench.WaypointError,
        rlbench.NoWaypointsError,
        rlbench.InvalidActionError,
        pyrep.ConfigurationError,
        pyrep.ConfigurationPathError,
        pyrep.IKError,
    )


def _check_display() -> None:
    """Say what is missing where Qt would abort the process.

    Raises:
        RuntimeError: there is no X server.
    """
    if sys.platform == 'linux' and not (os.environ.get('DISPLAY') or os.environ.get('QT_QPA_PLATFORM')):
        raise RuntimeError(
            'CoppeliaSim needs an X server even without a window, but DISPLAY is not set: start the program with one, '
            'for example as `xvfb-run python train.py`.'
        )


def _module(name: str, package: str = 'rlbench') -> ModuleType:
    """``<package>.<name>``, imported when it is first needed.

    Raises:
        ImportError: RLBench, PyRep or CoppeliaSim is not installed, or not where ``COPPELIASIM_ROOT`` says.
    """
    root = os.environ.get('COPPELIASIM_ROOT')
    if importlib.util.find_spec('rlbench') and not os.path.isdir(root or ''):
        raise ImportError(
            f'COPPELIASIM_ROOT must be the folder of CoppeliaSim 4.1 but is {root!r}: before Python starts, export it, '
            'LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$COPPELIASIM_ROOT and QT_QPA_PLATFORM_PLUGIN_PATH=$COPPELIASIM_ROOT.'
        )
    try:
        return importlib.import_module(f'{package}.{name}')
    except (ImportError, SyntaxError) as error:
        raise ImportError(
            'RLBench needs three things that PyPI does not have, installed as their own pages say: CoppeliaSim 4.1 '
            '(https://www.coppeliarobotics.com), then PyRep (https://github.com/stepjam/PyRep) and RLBench '
            f"(https://github.com/stepjam/RLBench); PyPI's `pyrep` is an unrelated package ({error})."
        ) from error


def _tasks() -> dict[str, str]:
    """Name of the class -> name of the module."""
    package = _module('tasks')
    return {_class_name(info.name): info.name for info in pkgutil.iter_modules(package.__path__)}


def _class_name(module: str) -> str:
    """``'reach_target'`` -> ``'ReachTarget'``."""
    return ''.join(word[:1].upper() + word[1:] for word in module.split('_'))


def _task_class(name: str) -> Any:
    tasks = _tasks()
    if name not in tasks:
        raise ValueError(unknown('rlbench environment', name, tasks))
    return getattr(_module(f'tasks.{tasks[name]}'), name)


def _has_shaped_reward(task_class: Any) -> bool:
    """Whether the task overrides the ``reward`` that returns None."""
    return task_class.reward is not _module('backend.task').Task.reward


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def _is_amount(value: Any) -> bool:
    return isinstance(value, numbers.Real) and 0 <= float(value) < np.inf
