"""RLBench's tasks as Gymnasium environments: a robot arm on a table, in the simulator CoppeliaSim.

James et al. 2020, *RLBench: The Robot Learning Benchmark & Learning Environment* (IEEE RA-L 5(2), arXiv 1909.12271).

**Not yet run against the simulator.** CoppeliaSim is a download from its maker. This file was written from the sources
of RLBench 1.2.0 and PyRep 4.1.0.3, and is tested with objects of the same shape as RLBench's.

It builds on ``rlbench.Environment``. The wrapper ``rlbench.gym`` always renders the cameras and drops most of what they
see, knows one robot and one variation, never truncates, returns an empty ``info``, and reseeds NumPy's generator.

CoppeliaSim runs once in a process. Copies (``nenv=4``) have a process each, also beside an open environment. It needs
an X server even without a window (``xvfb-run python train.py``), and three variables that PyRep's page names:
``COPPELIASIM_ROOT``, ``LD_LIBRARY_PATH`` and ``QT_QPA_PLATFORM_PLUGIN_PATH``.
"""

from __future__ import annotations

import contextlib
import numbers
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box

from zoo.common.envs.kinds.rlbench.actions import ACTION_MODES, Actions
from zoo.common.envs.kinds.rlbench.observations import Observations
from zoo.common.envs.kinds.rlbench.package import load_module
from zoo.common.envs.kinds.rlbench.simulator import (
    PLACE,
    check_display,
    guard_planner,
    is_of_simulator,
    placement_errors,
)
from zoo.common.envs.kinds.rlbench.streams import GlobalStreams
from zoo.common.envs.kinds.rlbench.tasks import class_of_task, has_shaped_reward, ids
from zoo.common.tools.checks import is_integer
from zoo.common.tools.errors import Failure, InvalidValue, unknown


class RLBenchEnv(gymnasium.Env):
    """One task of RLBench with its own simulator, which :meth:`close` shuts down.

    Observations are one array when ``state_type`` is ``'state'`` or one key, else a ``Dict`` with sorted keys. Only
    what was asked for is rendered.

    ====================  ==================================================================================
    key                   array
    ====================  ==================================================================================
    ``state``             float32 ``[n]``: all numbers in RLBench's own order (``get_low_dim_data``), with the
                          places of the task's objects. n = 40 for ``ReachTarget`` with the Panda, the only robot
                          that has sensors for touch forces
    ``*_rgb``             uint8 ``[height, width, 3]``
    ``*_depth``           float32 ``[height, width, 1]``, 0 to 1 between the camera's near and far plane, or meters
    ``*_mask``            float32 ``[height, width, 1]``, the handle of the object seen (a label, not a quantity)
    ``*_point_cloud``     float32 ``[height, width, 3]``, meters in the world's frame
    ``gripper_open``      float32 ``[1]``, 0 or 1
    the other numbers     float32 in RLBench's shape: meters, radians, radians per second, newtons, newton meters;
                          a pose is x, y, z and a quaternion x, y, z, w
    ====================  ==================================================================================

    Actions are float32 in [-1, 1]: the arm's entries, then one for the gripper, which is open above 0 and else closed.
    Entries beyond ±1 are clipped. 1 stands for:

    =====================  =================================================================================
    ``joint_velocity``     1 rad/s of each joint
    ``joint_position``     0.1 rad of each joint from where it is
    ``ee_pose``            0.03 m along x, y, z and 0.1 rad about each of them (a rotation vector), from where the
                           gripper is, in the world's frame, by the inverse Jacobian
    ``ee_pose_planning``   0.1 m and 0.5 rad by a planned path, which can take seconds
    =====================  =================================================================================

    The rotation becomes a quaternion of unit length, so that RLBench understands every action.

    The reward is 1 for success and else 0, or the task's own with ``shaped_rewards``. An episode is terminated when
    RLBench says so, which is a success, or in ``BeatTheBuzz`` maybe a failure; ``info['is_success']`` (bool) tells. It
    is truncated after ``max_episode_steps``.

    RLBench may refuse an action: it leaves the workspace, has no inverse kinematics or no path, or the simulator's
    planner fails. Such an action changes nothing, counts as a step, and the episode goes on. The observation is the
    last one. The reward is what the unchanged state gives minus ``invalid_action_penalty``. ``info['invalid_action']``
    (bool) marks the step, and ``info['invalid_action_error']`` says why. (``rlbench.gym`` would raise the error.)

    The info of ``reset`` has ``descriptions``, the task in words, and ``variation``, its number. A task that does not
    fit into the scene, or whose waypoints the planner cannot reach, is placed again, ``reset_attempts`` times in all.

    RLBench draws from the global generators of NumPy and Python. While it runs they have states of this environment,
    which ``reset(seed=…)`` seeds; afterwards they are as before. The planner's random numbers, from CoppeliaSim, cannot
    be seeded.

    Args:
        task: the name of the task's class.
        state_type: ``'state'``; ``'vision'`` for the keys in ``observations.VISION``; a key; or a sequence of keys.
        action_mode: ``'joint_velocity'``, ``'joint_position'``, ``'ee_pose'`` or ``'ee_pose_planning'``.
        arm_scale: what 1 stands for in the arm's actions, one positive number or one for each entry, in these units.
        shaped_rewards: use the task's own dense reward, which three of the tasks have.
        max_episode_steps: the time limit.
        invalid_action_penalty: what a refused action costs; not negative.
        reset_attempts: how often a reset tries to place the task. RLBench tries several times in each attempt.
        variation: the number of the task's variation, or ``'random'`` for a new one in each episode.
        headless: no window.
        robot_setup: ``'panda'``, ``'jaco'``, ``'mico'``, ``'sawyer'`` or ``'ur5'``.
        image_size: ``(width, height)`` of every camera in pixels; needs a picture in ``state_type``.
        depth_in_meters: depth in meters instead of 0 to 1; needs a ``*_depth`` in ``state_type``.
        render_mode: None, or ``'human'`` for the simulator's window, the same as ``headless=False``.

    Raises:
        ValueError: an argument that is none of these; a task without a shaped reward or with fewer variations.
        RuntimeError: a simulator runs in this process already, or one did not shut down; there is no X server; the
            task could not be placed.
        ImportError: RLBench, PyRep or CoppeliaSim is not installed.
    """

    metadata = {'render_modes': ['human'], 'render_fps': 20}
    spec: EnvSpec  # never None here

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
        if action_mode not in list(ACTION_MODES):  # a list, since the value may have no hash
            raise InvalidValue(unknown('action mode', action_mode, ACTION_MODES))
        for name, value in (('max_episode_steps', max_episode_steps), ('reset_attempts', reset_attempts)):
            if not is_integer(value, 1):
                raise InvalidValue(f'{name} is {value!r}: give an integer of at least 1.')
        flags = {'shaped_rewards': shaped_rewards, 'headless': headless, 'depth_in_meters': depth_in_meters}
        for name, value in flags.items():
            if value not in (True, False):
                raise InvalidValue(f'{name} is {value!r}: give True or False.')
        penalty: Any = invalid_action_penalty
        if not (isinstance(penalty, numbers.Real) and 0 <= float(penalty) < np.inf):
            raise InvalidValue(f'invalid_action_penalty is {penalty!r}: it is taken off the reward, so give 0 or more.')
        if variation != 'random' and not is_integer(variation, 0):
            raise InvalidValue(f"variation is {variation!r}: give its number, from 0 on, or 'random'.")
        if render_mode not in (None, 'human'):
            raise InvalidValue(
                f"render_mode is {render_mode!r}: RLBench has 'human', the simulator's window; pictures come as "
                "observations, for example with state_type='front_rgb'."
            )
        is_pair = isinstance(image_size, (Sequence, np.ndarray)) and len(image_size) == 2
        if not (is_pair and all(is_integer(side, 8) for side in image_size)):
            raise InvalidValue(f'image_size is {image_size!r}: give (width, height), at least 8 pixels each.')
        size = int(image_size[0]), int(image_size[1])
        self._observations = Observations(state_type, size, depth_in_meters)
        robots = load_module('const').SUPPORTED_ROBOTS
        if robot_setup not in list(robots):
            raise InvalidValue(unknown('robot', robot_setup, robots))
        task_class = class_of_task(task)
        if shaped_rewards and not has_shaped_reward(task_class):
            shaped = [name for name in ids() if has_shaped_reward(class_of_task(name))]
            raise InvalidValue(
                f'{task} has no shaped reward: leave shaped_rewards out, or take a task that has one: '
                f'{", ".join(shaped)}.'
            )

        self._actions = Actions(ACTION_MODES[action_mode], arm_scale, robots[robot_setup][2])
        self.action_space = Box(-1.0, 1.0, (self._actions.size,), np.float32)
        self.render_mode = render_mode
        self.spec = EnvSpec(task, 'zoo.common.envs.kinds.rlbench.env:RLBenchEnv', max_episode_steps=max_episode_steps)
        self._robot, self._shaped, self._penalty = robot_setup, bool(shaped_rewards), float(penalty)
        self._limit, self._attempts = max_episode_steps, reset_attempts
        self._variation: int | None = None if variation == 'random' else int(variation)  # None: at random
        self._steps = 0
        self._observation: Any = None  # RLBench's own
        self._streams = GlobalStreams(self.np_random)
        self._invalid = load_module('backend.exceptions').InvalidActionError
        self._unplaced = placement_errors()

        check_display()
        config = self._observations.make_config()
        simulator = load_module('environment').Environment(
            action_mode=self._actions.make_mode(),
            obs_config=config,
            headless=headless and render_mode is None,
            robot_setup=robot_setup,
            shaped_rewards=self._shaped,
        )
        self._launch(simulator, task_class, config)

    def _launch(self, simulator: Any, task_class: Any, config: Any) -> None:
        PLACE.claim(self)
        self._pid = os.getpid()
        unlaunched = load_module('errors', 'pyrep').PyRepError
        self._finalizer = weakref.finalize(self, PLACE.shut_down, simulator, self._pid, self.spec.id, unlaunched)
        self._closed = False
        directory = os.getcwd()
        try:
            with self._streams.lent():
                simulator.launch()
                self._task = simulator.get_task(self._keep_instance(task_class))
            guard_planner(self._instance.robot.arm)
            self._leave_out_missing_sensors(config)
            self._variations = int(self._task.variation_count())
            if self._variation is not None and self._variation >= self._variations:
                raise InvalidValue(
                    f'{self.spec.id} has {self._variations} variations: give one from 0 to {self._variations - 1}, '
                    f'not {self._variation}.'
                )
            # The length of some parts depends on the task, the robot and the gripper: only an observation shows it.
            first, _ = self._place()
            self.observation_space = self._observations.space_of(first, self.spec.id)
        except BaseException:
            with contextlib.suppress(Exception):  # the reason why the simulator did not come up says more
                self.close()
            raise
        finally:
            os.chdir(directory)  # PyRep launches from the simulator's folder, and stays there when that fails

    def _leave_out_missing_sensors(self, config: Any) -> None:
        """Switch the touch forces off where the gripper has no sensors: RLBench's observations would fail."""
        if not config.gripper_touch_forces:
            return
        try:
            self._instance.robot.gripper.get_touch_sensor_forces()
        except NotImplementedError as error:
            if 'gripper_touch_forces' in self._observations.keys:
                raise InvalidValue(
                    f"the gripper of {self._robot!r} has no touch sensors: leave 'gripper_touch_forces' out of "
                    'state_type.'
                ) from error
            config.gripper_touch_forces = False

    def _keep_instance(self, task_class: Any) -> Callable[..., Any]:
        """Return ``task_class`` so that its instance, and whether it judged an end a success, are kept here.

        RLBench keeps both to itself. The task cannot be asked again: some conditions count how often they are asked.
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

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Place the task again.

        Raises:
            RuntimeError: the environment is closed; the task could not be placed in ``reset_attempts`` attempts.
            ValueError: there are ``options``; an observation has another shape than the first one.
        """
        self._check_open()
        if options:
            raise InvalidValue(
                f'{self.spec.id}: reset takes no options, but got {sorted(options)}: give the variation and the like '
                'as arguments of build_env.'
            )
        self._observation = None  # there is nothing to step until the task has been placed
        super().reset(seed=seed)
        if seed is not None:
            self._streams.seed(self.np_random)
        self._steps = 0
        observation, info = self._place()
        arrays, self._observation = self._convert(observation), observation
        return arrays, info

    def _place(self) -> tuple[Any, dict[str, Any]]:
        variation = int(self.np_random.integers(self._variations)) if self._variation is None else self._variation
        self._task.set_variation(variation)
        failures: tuple[type[Exception], ...] = (*self._unplaced, RuntimeError)
        with self._streams.lent():
            for attempt in range(1, self._attempts + 1):
                try:
                    descriptions, observation = self._task.reset()
                    break
                except failures as error:
                    if not (isinstance(error, self._unplaced) or is_of_simulator(error)):
                        raise
                    if attempt == self._attempts:
                        raise Failure(
                            f'{self.spec.id}, variation {variation}, could not be placed in the scene in '
                            f'{attempt} attempts: allow more with reset_attempts, or take another variation ({error}).'
                        ) from error
        return observation, {'descriptions': list(descriptions), 'variation': variation}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act for one step of the control loop, or until a pose is reached.

        Raises:
            RuntimeError: the environment is closed, or ``reset`` has not been called; the simulator failed.
            ValueError: an action of another shape, or not finite; an observation of another shape than the first one.
        """
        self._check_open()
        if self._observation is None:
            raise Failure(f'{self.spec.id}: call reset() before the first step().')
        command = self._actions.command(action, self.spec.id)
        self._steps += 1
        info: dict[str, Any] = {'is_success': False, 'invalid_action': False}
        with self._streams.lent():
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
                why = str(error).rstrip('.')
                raise Failure(
                    f'{self.spec.id}: the simulator failed ({why}): reset the environment or build it again.'
                ) from error
            else:
                self._observation = observation
                info['is_success'] = bool(self._instance.last_judgement[0])
        arrays, terminated = self._convert(self._observation), bool(terminated)
        return arrays, float(reward), terminated, self._steps >= self._limit and not terminated, info

    def _convert(self, observation: Any) -> Any:
        return self._observations.convert(observation, self.observation_space, self.spec.id, self._steps)

    def close(self) -> None:
        """Shut the simulator down, so that this process can launch another; a RuntimeError if that fails."""
        if self._closed:
            return
        self._closed = True
        PLACE.release(self)
        self._finalizer()

    def render(self) -> None:
        """Nothing to do: the simulator's window shows every step by itself."""

    def _check_open(self) -> None:
        if self._closed:
            raise Failure(f'{self.spec.id} is closed and its simulator shut down: build it again.')
        if os.getpid() != self._pid:
            raise Failure(
                f'the simulator of {self.spec.id} runs in the process that built it, not in this fork of it: build the '
                'environment here.'
            )
