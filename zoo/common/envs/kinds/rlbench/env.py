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
import os
import random
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Dict, Space

from zoo.common.envs.kinds.rlbench.arguments import (
    ACTION_MODES,
    CHANNELS,
    is_amount,
    is_count,
    make_observation_config,
    observation_keys,
    quaternion,
    scale_of_arm,
)
from zoo.common.envs.kinds.rlbench.package import load_module
from zoo.common.envs.kinds.rlbench.simulator import (
    check_display,
    claim,
    guard_planner,
    is_of_simulator,
    new_streams,
    placement_errors,
    release,
    shut_down,
)
from zoo.common.envs.kinds.rlbench.tasks import class_of_task, has_shaped_reward, ids
from zoo.common.tools.errors import unknown


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
        self._keys, self._single = observation_keys(state_type)
        if action_mode not in list(ACTION_MODES):  # a list also takes what has no hash
            raise ValueError(unknown('action mode', action_mode, ACTION_MODES))
        for name, value in (('max_episode_steps', max_episode_steps), ('reset_attempts', reset_attempts)):
            if not is_count(value, 1):
                raise ValueError(f'{name} is {value!r}: give a whole number from 1 on.')
        for name, value in (
            ('shaped_rewards', shaped_rewards),
            ('headless', headless),
            ('depth_in_meters', depth_in_meters),
        ):
            if value not in (True, False):
                raise ValueError(f'{name} is {value!r}: give True or False.')
        if not is_amount(invalid_action_penalty):
            raise ValueError(
                f'invalid_action_penalty is {invalid_action_penalty!r}: it is taken off the reward, so give 0 or more.'
            )
        if variation != 'random' and not is_count(variation, 0):
            raise ValueError(f"variation is {variation!r}: give its number, from 0 on, or 'random'.")
        if render_mode not in (None, 'human'):
            raise ValueError(
                f"render_mode is {render_mode!r}: RLBench has 'human', the simulator's window; pictures come as "
                "observations, for example with state_type='front_rgb'."
            )
        if not (
            isinstance(image_size, (Sequence, np.ndarray))
            and len(image_size) == 2
            and all(is_count(side, 8) for side in image_size)
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
        robots = load_module('const').SUPPORTED_ROBOTS
        if robot_setup not in list(robots):
            raise ValueError(unknown('robot', robot_setup, robots))
        task_class = class_of_task(task)
        if shaped_rewards and not has_shaped_reward(task_class):
            shaped = [name for name in ids() if has_shaped_reward(class_of_task(name))]
            raise ValueError(
                f'{task} has no shaped reward: leave shaped_rewards out, or take a task that has one: '
                f'{", ".join(shaped)}.'
            )

        self._mode = ACTION_MODES[action_mode]
        self._arm_scale = scale_of_arm(self._mode, arm_scale, robots[robot_setup][2])
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
        self._streams = new_streams(self.np_random)
        self._invalid = load_module('backend.exceptions').InvalidActionError
        self._unplaced = placement_errors()

        check_display()
        config = make_observation_config(self._keys, size, self._depth_in_meters)
        simulator = load_module('environment').Environment(
            action_mode=self._action_mode(),
            obs_config=config,
            headless=headless and render_mode is None,
            robot_setup=robot_setup,
            shaped_rewards=self._shaped,
        )
        self._launch(simulator, task_class, config)

    def _launch(self, simulator: Any, task_class: Any, config: Any) -> None:
        claim(self)
        self._pid = os.getpid()
        unlaunched = load_module('errors', 'pyrep').PyRepError
        self._finalizer = weakref.finalize(self, shut_down, simulator, self._pid, self.spec.id, unlaunched)
        self._closed = False
        directory = os.getcwd()
        try:
            with self._lent_generators():
                simulator.launch()
                self._task = simulator.get_task(self._keep_instance(task_class))
            guard_planner(self._instance.robot.arm)
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
        arm = getattr(load_module('action_modes.arm_action_modes'), self._mode.name)(**self._mode.kwargs)
        gripper = load_module('action_modes.gripper_action_modes').Discrete()
        return load_module('action_modes.action_mode').MoveArmThenGripper(arm, gripper)

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
            self._streams = new_streams(self.np_random)
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
                    if not (isinstance(error, self._unplaced) or is_of_simulator(error)):
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
                if not is_of_simulator(error):
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
        release(self)
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
            arm = np.concatenate([arm[:3], quaternion(arm[3:])])
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
