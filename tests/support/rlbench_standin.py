"""A toy in the shape of RLBench 1.2.0 over PyRep 4.1.0.3, for tests: a point that is moved to a target in a cube.

It has the modules, classes, arguments, fields, errors and oddities that ``zoo.common.envs.kinds.rlbench`` touches, and
is written after their sources; nothing in it is physics. What would crash the simulator or the process is an
``AssertionError`` here: a second simulator, no display, joint targets that are not numbers. ``with installed():`` makes
it importable as ``rlbench`` and ``pyrep``, in this process and in those that it spawns, which inherit ``sys.path`` and
the environment's variables.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

CAMERAS = ('left_shoulder', 'right_shoulder', 'overhead', 'wrist', 'front')
CHANNELS = ('rgb', 'depth', 'mask', 'point_cloud')

#: Robot -> the arm's class, the gripper's class (neither is used), number of joints.
SUPPORTED_ROBOTS = {'panda': (object, object, 7), 'jaco': (object, object, 6)}

#: What happened in this process: configurations launched, and how many were shut down.
LOG = SimpleNamespace(launched=[], shut_down=0, running=0)
#: Where -> the exceptions that the next calls raise there, first one first. ``'planned'`` holds the points of the next
#: plans instead, float ``[n, joints]``.
FAILURES: dict[str, list[Any]] = {
    name: [] for name in ('launch', 'init_episode', 'get_path', 'planned', 'solve_ik', 'step', 'shutdown')
}


def _fail(where: str) -> None:
    if FAILURES[where]:
        raise FAILURES[where].pop(0)


def simulator_error() -> RuntimeError:
    """What PyRep makes of every call that CoppeliaSim answers with -1."""
    return RuntimeError('The call failed on the V-REP side. Return value: -1')


class PyRepError(Exception):
    pass


class ConfigurationError(Exception):
    pass


class ConfigurationPathError(Exception):
    pass


class IKError(Exception):
    pass


class BoundaryError(Exception):
    pass


class WaypointError(Exception):
    def __init__(self, message: str, task: Task) -> None:
        super().__init__(f'Error in task {task.get_name()}. {message}')


class NoWaypointsError(WaypointError):
    pass


class InvalidActionError(Exception):
    pass


class TaskEnvironmentError(Exception):
    pass


class PyRep:
    def __init__(self) -> None:
        self._launched = False
        if 'COPPELIASIM_ROOT' not in os.environ:
            raise PyRepError('COPPELIASIM_ROOT not defined. See installation instructions.')
        self._root = os.environ['COPPELIASIM_ROOT']
        if not os.path.exists(self._root):
            raise PyRepError('COPPELIASIM_ROOT was not a correct path. See installation instructions')

    def launch(self) -> None:
        if LOG.running:
            raise AssertionError('CoppeliaSim would crash: it runs in this process already.')
        if not (os.environ.get('DISPLAY') or os.environ.get('QT_QPA_PLATFORM')):
            raise AssertionError('Qt would abort the process: could not connect to display.')
        directory = os.getcwd()
        os.chdir(self._root)
        _fail('launch')
        self._launched = True
        LOG.running += 1
        os.chdir(directory)

    def shutdown(self) -> None:
        if not self._launched:
            raise PyRepError('CoppeliaSim has not been launched. Call launch first.')
        _fail('shutdown')
        self._launched = False
        LOG.running -= 1
        LOG.shut_down += 1


class ArmConfigurationPath:
    """Points in joint space, along which the arm moves by at most 0.05 in a step."""

    def __init__(self, arm: Arm, path_points: Any) -> None:
        self._arm, self._path_points = arm, np.asarray(path_points)
        self._num_joints = arm.get_joint_count()
        self._position = 0.0

    def __len__(self) -> int:
        return len(self._path_points) // self._num_joints

    def __getitem__(self, i: Any) -> ArmConfigurationPath:
        return type(self)(self._arm, self._path_points.reshape(-1, self._num_joints)[i].flatten())

    def step(self) -> bool:
        lengths = self._get_path_point_lengths()
        points = self._path_points.reshape(-1, self._num_joints)
        self._position = min(self._position + 0.05, lengths[-1])
        for i in range(len(lengths) - 1):
            if lengths[i] <= self._position <= lengths[i + 1] or i == len(lengths) - 2:
                part = np.divide(self._position - lengths[i], lengths[i + 1] - lengths[i])  # may be 0 / 0
                self._arm.set_joint_target_positions(points[i] + (points[i + 1] - points[i]) * part)
                break
        return self._position == lengths[-1]

    def _get_path_point_lengths(self) -> list[float]:
        points = self._path_points.reshape(-1, self._num_joints)
        steps = np.sqrt(np.sum(np.square(np.diff(points, axis=0)), axis=1))
        return [0.0, *np.cumsum(steps)]


class Arm:
    """Joints that go where they are told in one step; the first three are the place of the tip."""

    def __init__(self, joints: int) -> None:
        self.joints = np.zeros(joints)
        self.velocities = np.zeros(joints)
        self._target: np.ndarray | None = None

    def get_joint_count(self) -> int:
        return len(self.joints)

    def get_joint_positions(self) -> list[float]:
        return list(self.joints)

    def set_joint_target_velocities(self, velocities: np.ndarray) -> None:
        self._check(velocities)
        self.velocities = np.array(velocities)

    def set_joint_target_positions(self, positions: np.ndarray) -> None:
        self._check(positions)
        self._target = np.array(positions)

    def _check(self, values: np.ndarray) -> None:
        assert np.isfinite(values).all(), f'the simulator got {values}'

    def step(self) -> None:
        goal = self.joints + 0.05 * self.velocities if self._target is None else self._target
        self.joints, self._target = np.clip(goal, -1.0, 1.0), None

    def solve_ik_via_jacobian(self, position: np.ndarray, quaternion: Any, relative_to: Any = None) -> list[float]:
        _fail('solve_ik')
        if np.linalg.norm(position - self.joints[:3]) > 0.5:
            raise IKError('IK failed. Perhaps the distance was between the tip  and target was too large.')
        return [*position, *self.joints[3:]]

    def get_path(self, position: np.ndarray, quaternion: Any, relative_to: Any = None) -> ArmConfigurationPath:
        _fail('get_path')
        goal = np.append(position, self.joints[3:])
        points = FAILURES['planned'].pop(0) if FAILURES['planned'] else np.linspace(self.joints, goal, 50)
        if len(points) == 0:
            raise ConfigurationPathError('Could not create path.')
        return ArmConfigurationPath(self, points.flatten())


class Gripper:
    def __init__(self, touch_sensors: int) -> None:
        self.open = 1.0
        self._touch_sensors = touch_sensors

    def get_touch_sensor_forces(self) -> list[list[float]]:
        if self._touch_sensors == 0:
            raise NotImplementedError('No touch sensors for this robot!')
        return [[0.0] * 3] * self._touch_sensors


class CameraConfig:
    def __init__(
        self,
        rgb: bool = True,
        depth: bool = True,
        point_cloud: bool = True,
        mask: bool = True,
        image_size: tuple[int, int] = (128, 128),
        depth_in_meters: bool = False,
    ) -> None:
        self.rgb, self.depth, self.point_cloud, self.mask = rgb, depth, point_cloud, mask
        self.image_size, self.depth_in_meters = image_size, depth_in_meters


class ObservationConfig:
    def __init__(
        self,
        left_shoulder_camera: CameraConfig | None = None,
        right_shoulder_camera: CameraConfig | None = None,
        overhead_camera: CameraConfig | None = None,
        wrist_camera: CameraConfig | None = None,
        front_camera: CameraConfig | None = None,
    ) -> None:
        self.left_shoulder_camera = left_shoulder_camera or CameraConfig()
        self.right_shoulder_camera = right_shoulder_camera or CameraConfig()
        self.overhead_camera = overhead_camera or CameraConfig()
        self.wrist_camera = wrist_camera or CameraConfig()
        self.front_camera = front_camera or CameraConfig()
        self.set_all_low_dim(True)

    def set_all_low_dim(self, value: bool) -> None:
        self.joint_velocities = self.joint_positions = self.joint_forces = value
        self.gripper_open = self.gripper_pose = self.gripper_matrix = value
        self.gripper_joint_positions = self.gripper_touch_forces = self.wrist_camera_matrix = value
        self.task_low_dim_state = value


class Observation:
    """Its fields are in no alphabetical order; one that is switched off is None."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)

    def get_low_dim_data(self) -> np.ndarray:
        parts = [] if self.gripper_open is None else [[self.gripper_open]]
        for part in (
            self.joint_velocities,
            self.joint_positions,
            self.joint_forces,
            self.gripper_pose,
            self.gripper_joint_positions,
            self.gripper_touch_forces,
            self.task_low_dim_state,
        ):
            if part is not None:
                parts.append(part)
        return np.concatenate(parts)


class RelativeFrame(Enum):
    WORLD = 0
    EE = 1


def _check_shape(action: np.ndarray, shape: tuple[int, ...]) -> None:
    if np.shape(action) != shape:
        raise InvalidActionError(f'Expected the action shape to be: {shape}, but was shape: {np.shape(action)}')


class JointVelocity:
    def action(self, scene: Scene, action: np.ndarray) -> None:
        _check_shape(action, self.action_shape(scene))
        scene.arm.set_joint_target_velocities(action)
        scene.step()

    def action_shape(self, scene: Scene) -> tuple[int]:
        return (len(scene.joints),)


class JointPosition:
    def __init__(self, absolute_mode: bool = True) -> None:
        self._absolute_mode = absolute_mode

    def action(self, scene: Scene, action: np.ndarray) -> None:
        _check_shape(action, self.action_shape(scene))
        scene.arm.set_joint_target_positions(action if self._absolute_mode else scene.joints + action)
        scene.step()

    def action_shape(self, scene: Scene) -> tuple[int]:
        return (len(scene.joints),)


class EndEffectorPoseViaIK:
    def __init__(
        self,
        absolute_mode: bool = True,
        frame: RelativeFrame = RelativeFrame.WORLD,
        collision_checking: bool = False,
    ) -> None:
        self._absolute_mode, self._frame = absolute_mode, frame

    def action(self, scene: Scene, action: np.ndarray) -> None:
        goal = self._goal(scene, action)
        try:
            joints = scene.arm.solve_ik_via_jacobian(goal, quaternion=action[3:], relative_to=None)
        except IKError as error:
            raise InvalidActionError('Could not perform IK via Jacobian; most likely too far.') from error
        scene.arm.set_joint_target_positions(joints)
        scene.step()

    def _goal(self, scene: Scene, action: np.ndarray) -> np.ndarray:
        _check_shape(action, (7,))
        if not np.isclose(np.linalg.norm(action[3:]), 1.0):
            raise InvalidActionError('Action contained non unit quaternion!')
        return action[:3] if self._absolute_mode else scene.joints[:3] + action[:3]

    def action_shape(self, scene: Scene) -> tuple[int]:
        return (7,)


class EndEffectorPoseViaPlanning(EndEffectorPoseViaIK):
    def action(self, scene: Scene, action: np.ndarray) -> None:
        goal = self._goal(scene, action)
        if not np.abs(goal).max() < 1.0:
            raise InvalidActionError('A path could not be found because the target is outside of workspace.')
        try:
            path = scene.arm.get_path(goal, quaternion=action[3:], relative_to=None)
        except ConfigurationPathError as error:
            raise InvalidActionError('A path could not be found.') from error
        done = False
        while not done:
            done = path.step()
            scene.step()


class Discrete:
    def action(self, scene: Scene, action: np.ndarray) -> None:
        _check_shape(action, (1,))
        scene.robot.gripper.open = float(action[0] > 0.5)

    def action_shape(self, scene: Scene) -> tuple[int]:
        return (1,)


class MoveArmThenGripper:
    def __init__(self, arm_action_mode: Any, gripper_action_mode: Any) -> None:
        self.arm_action_mode, self.gripper_action_mode = arm_action_mode, gripper_action_mode

    def action(self, scene: Scene, action: np.ndarray) -> None:
        scene.actions.append(np.array(action))
        arm = int(np.prod(self.arm_action_mode.action_shape(scene)))
        self.arm_action_mode.action(scene, np.array(action[:arm]))
        self.gripper_action_mode.action(scene, np.array(action[arm:]))

    def action_bounds(self) -> Any:
        raise NotImplementedError('You must define your own action bounds.')


class Scene:
    """The state of the toy: joints. The first three are the place of the gripper's tip."""

    def __init__(self, config: ObservationConfig, robot: SimpleNamespace) -> None:
        self.config, self.robot, self.arm = config, robot, robot.arm
        self.steps = 0
        self.actions: list[np.ndarray] = []  # every one that came this far, in RLBench's units

    @property
    def joints(self) -> np.ndarray:
        return self.arm.joints

    def reset(self) -> None:
        self.arm.joints = np.zeros_like(self.joints)
        self.arm.velocities = np.zeros_like(self.joints)
        self.robot.gripper.open = 1.0

    def step(self) -> None:
        _fail('step')
        self.steps += 1
        self.arm.step()

    def observe(self, task: Task) -> Observation:
        config, n, opened = self.config, len(self.joints), self.robot.gripper.open
        touch = None
        if config.gripper_touch_forces:  # the one field that is asked for whether or not the robot has it
            touch = np.concatenate(self.robot.gripper.get_touch_sensor_forces())
        pose = np.append(self.joints[:3], [0.0, 0.0, 0.0, 1.0])
        values = {
            'joint_velocities': self.arm.velocities.copy(),
            'joint_positions': self.joints.copy(),
            'joint_forces': np.zeros(n),
            'gripper_open': opened,
            'gripper_pose': pose,
            'gripper_matrix': np.eye(4),
            'gripper_joint_positions': np.full(2, 0.04 * opened),
            'gripper_touch_forces': touch,
            'task_low_dim_state': task.get_low_dim_state(),
        }
        fields = {key: value if getattr(config, key) else None for key, value in values.items()}
        for camera in CAMERAS:
            fields |= self._see(camera, getattr(config, f'{camera}_camera'), task)
        return Observation(fields)

    def _see(self, name: str, config: CameraConfig, task: Task) -> dict[str, Any]:
        """A grey picture with the tip in red and the target in green, from above."""
        width, height = config.image_size
        pictures = dict.fromkeys(CHANNELS)
        places = [
            (channel, int((place[1] + 1) / 2 * (height - 5)), int((place[0] + 1) / 2 * (width - 5)))
            for channel, place in enumerate((self.joints, task.target))
        ]
        if config.rgb:
            pictures['rgb'] = np.full((height, width, 3), 100, np.uint8)
            for channel, y, x in places:
                pictures['rgb'][y : y + 5, x : x + 5] = 255 * np.eye(3, dtype=np.uint8)[channel]
        if config.depth:
            pictures['depth'] = np.full((height, width), 3.5 if config.depth_in_meters else 0.5, np.float32)
        if config.point_cloud and (config.rgb or config.depth):  # alone, RLBench leaves it out
            pictures['point_cloud'] = np.zeros((height, width, 3))
        if config.mask:
            pictures['mask'] = np.zeros((height, width), np.float32)
            for channel, y, x in places:
                pictures['mask'][y : y + 5, x : x + 5] = 80 + channel
        return {f'{name}_{channel}': picture for channel, picture in pictures.items()}


class Task:
    """Reach a target; the tasks below differ in how that is rewarded."""

    def __init__(self, pyrep: Any, robot: SimpleNamespace, name: str | None = None) -> None:
        self.name = name or re.sub('(?<!^)(?=[A-Z])', '_', type(self).__name__).lower()
        self.robot = robot
        self.target = np.zeros(3)

    def get_name(self) -> str:
        return self.name

    def init_episode(self, index: int) -> list[str]:
        self.target = np.random.uniform(-0.5, 0.5, 3)
        self.target[2] = random.uniform(-0.5, 0.5)  # one of RLBench's tasks draws from this generator too
        _fail('init_episode')
        return [f'reach the target {index}', f'touch the ball {index}']

    def variation_count(self) -> int:
        return 20

    def get_low_dim_state(self) -> np.ndarray:
        return self.target.copy()

    def distance(self) -> float:
        return float(np.linalg.norm(self.robot.arm.joints[:3] - self.target))

    def reward(self) -> float | None:
        return None

    def success(self) -> tuple[Any, Any]:
        """NumPy's booleans, as RLBench's are: success, and whether the episode is over."""
        met = np.bool_(self.distance() < 0.2)
        return met, met


class ReachTarget(Task):
    def reward(self) -> float:
        return -self.distance()


class SlideBlockToTarget(ReachTarget):
    pass


class TakeLidOffSaucepan(ReachTarget):
    """Says that it succeeded only once, as conditions do that keep count."""

    def init_episode(self, index: int) -> list[str]:
        self.told = False
        return super().init_episode(index)

    def success(self) -> tuple[Any, Any]:
        met = super().success()[0] and not self.told
        self.told = self.told or met
        return met, met


class PickUpCup(Task):
    pass


class BeatTheBuzz(Task):
    """Ends in failure where the tip goes below half the cube's depth."""

    def success(self) -> tuple[Any, Any]:
        if self.robot.arm.joints[2] < -0.5:
            return False, True
        return super().success()


class StackBlocks(Task):
    """How much its state holds depends on the variation."""

    def init_episode(self, index: int) -> list[str]:
        self.blocks = 2 + index
        return super().init_episode(index)

    def get_low_dim_state(self) -> np.ndarray:
        return np.zeros(7 * self.blocks)


class Crowded(Task):
    """Never fits into the scene."""

    def init_episode(self, index: int) -> list[str]:
        raise WaypointError('There is no room.', self)


class FitsOnce(Task):
    """Fits into the scene when it is loaded, and then never again."""

    def init_episode(self, index: int) -> list[str]:
        if hasattr(self, 'fitted'):
            raise WaypointError('There is no room.', self)
        self.fitted = True
        return super().init_episode(index)


class Crashing(Task):
    """Takes the process with it, as the simulator may."""

    def init_episode(self, index: int) -> list[str]:
        os._exit(1)


class TaskEnvironment:
    def __init__(self, scene: Scene, task: Task, action_mode: MoveArmThenGripper, shaped_rewards: bool) -> None:
        self._scene, self._task, self._action_mode, self._shaped_rewards = scene, task, action_mode, shaped_rewards
        self._variation_number = 0
        self._reset_called = False

    def variation_count(self) -> int:
        return self._task.variation_count()

    def set_variation(self, v: int) -> None:
        if v >= self.variation_count():
            raise TaskEnvironmentError(f'Requested variation {v}, but there are only {self.variation_count()}.')
        self._variation_number = v

    def reset(self, demo: Any = None) -> tuple[list[str], Observation]:
        self._scene.reset()
        try:
            descriptions = self._task.init_episode(self._variation_number)
        except (BoundaryError, WaypointError) as error:
            raise TaskEnvironmentError(f'Could not place the task {self._task.get_name()} in the scene.') from error
        self._reset_called = True
        return descriptions, self._scene.observe(self._task)

    def step(self, action: np.ndarray) -> tuple[Observation, float, Any]:
        if not self._reset_called:
            raise RuntimeError("Call 'reset' before calling 'step' on a task.")
        self._action_mode.action(self._scene, action)
        success, terminate = self._task.success()
        reward = float(success)
        if self._shaped_rewards:
            reward = self._task.reward()
            if reward is None:
                raise RuntimeError('User requested shaped rewards, but the task does not have any.')
        return self._scene.observe(self._task), reward, terminate


class Environment:
    def __init__(
        self,
        action_mode: MoveArmThenGripper,
        dataset_root: str = '',
        obs_config: ObservationConfig | None = None,
        headless: bool = False,
        static_positions: bool = False,
        robot_setup: str = 'panda',
        shaped_rewards: bool = False,
    ) -> None:
        self._action_mode, self._obs_config, self._shaped_rewards = action_mode, obs_config, shaped_rewards
        self._robot_setup = robot_setup
        self._headless = headless
        self._pyrep: PyRep | None = None
        self._scene: Scene | None = None
        self.task: Any = None

    def launch(self) -> None:
        self._pyrep = PyRep()
        LOG.launched.append(self)
        self._pyrep.launch()
        self._robot = SimpleNamespace(
            arm=Arm(SUPPORTED_ROBOTS[self._robot_setup][2]), gripper=Gripper(2 if self._robot_setup == 'panda' else 0)
        )
        self._scene = Scene(self._obs_config, self._robot)

    def get_task(self, task_class: Any) -> TaskEnvironment:
        self.task = task_class(self._pyrep, self._robot)
        return TaskEnvironment(self._scene, self.task, self._action_mode, self._shaped_rewards)

    # What tests look at: the task of `get_task`, the scene, and what the simulator was launched with.

    @property
    def scene(self) -> Scene:
        return self._scene

    @property
    def config(self) -> Any:
        return self._obs_config

    @property
    def headless(self) -> bool:
        return self._headless

    def shutdown(self) -> None:
        if self._pyrep is not None:
            self._pyrep.shutdown()
        self._pyrep = None


#: Module -> what it has from here.
MODULES = {
    'pyrep/__init__': ('PyRep',),
    'pyrep/errors': ('ConfigurationError', 'ConfigurationPathError', 'IKError', 'PyRepError'),
    'rlbench/__init__': ('PyRep',),
    'rlbench/environment': ('Environment',),
    'rlbench/observation_config': ('CameraConfig', 'ObservationConfig'),
    'rlbench/const': ('SUPPORTED_ROBOTS',),
    'rlbench/action_modes/__init__': (),
    'rlbench/action_modes/action_mode': ('MoveArmThenGripper',),
    'rlbench/action_modes/arm_action_modes': (
        'JointVelocity',
        'JointPosition',
        'EndEffectorPoseViaIK',
        'EndEffectorPoseViaPlanning',
        'RelativeFrame',
    ),
    'rlbench/action_modes/gripper_action_modes': ('Discrete',),
    'rlbench/backend/__init__': (),
    'rlbench/backend/exceptions': (
        'BoundaryError',
        'WaypointError',
        'NoWaypointsError',
        'InvalidActionError',
        'TaskEnvironmentError',
    ),
    'rlbench/backend/task': ('Task',),
    'rlbench/tasks/__init__': (),
    'rlbench/tasks/reach_target': ('ReachTarget', 'Task'),
    'rlbench/tasks/slide_block_to_target': ('SlideBlockToTarget', 'Task'),
    'rlbench/tasks/take_lid_off_saucepan': ('TakeLidOffSaucepan', 'Task'),
    'rlbench/tasks/pick_up_cup': ('PickUpCup', 'Task'),
    'rlbench/tasks/beat_the_buzz': ('BeatTheBuzz', 'Task'),
    'rlbench/tasks/crowded': ('Crowded', 'Task'),
    'rlbench/tasks/fits_once': ('FitsOnce', 'Task'),
    'rlbench/tasks/crashing': ('Crashing', 'Task'),
    'rlbench/tasks/stack_blocks': ('StackBlocks', 'Task'),
}


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Within it, ``import rlbench`` finds this toy, here and in processes that are spawned meanwhile."""
    found = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_toy(name)}
    path, directory_before = list(sys.path), os.getcwd()
    variables = {name: os.environ.get(name) for name in ('COPPELIASIM_ROOT', 'DISPLAY')}
    with tempfile.TemporaryDirectory() as directory:
        for module, names in MODULES.items():
            file = Path(directory, f'{module}.py')
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f'from rlbench_standin import {", ".join(names)}\n' if names else '')
        sys.path[:0] = [directory, str(Path(__file__).parent)]
        os.environ |= {'COPPELIASIM_ROOT': directory, 'DISPLAY': ':99'}
        LOG.launched, LOG.shut_down, LOG.running = [], 0, 0
        try:
            yield
        finally:
            sys.path[:] = path
            os.chdir(directory_before)
            for name, value in variables.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
            for failures in FAILURES.values():
                failures.clear()
            for name in [name for name in sys.modules if _is_toy(name)]:
                del sys.modules[name]
            sys.modules.update(found)


def _is_toy(module: str) -> bool:
    return module.split('.')[0] in ('rlbench', 'pyrep')
