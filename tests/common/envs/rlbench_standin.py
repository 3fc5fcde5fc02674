"""A toy in the shape of RLBench 1.2.0, for tests: a point that is moved to a target in a cube.

It has those of RLBench's modules, classes, arguments, fields, errors and oddities that ``zoo.common.envs.rlbench``
touches, written after RLBench's sources; nothing in it is physics. ``with installed():`` makes it importable as
``rlbench``, in this process and in those that it spawns, which inherit ``sys.path``.
"""

from __future__ import annotations

import contextlib
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
#: Exceptions that the next resets raise, first one first.
FAILURES: list[Exception] = []


class BoundaryError(Exception):
    pass


class WaypointError(Exception):
    pass


class InvalidActionError(Exception):
    pass


class TaskEnvironmentError(Exception):
    pass


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
        scene.velocities = action
        scene.move(0.05 * action)

    def action_shape(self, scene: Scene) -> tuple[int]:
        return (len(scene.joints),)


class JointPosition:
    def __init__(self, absolute_mode: bool = True) -> None:
        self._absolute_mode = absolute_mode

    def action(self, scene: Scene, action: np.ndarray) -> None:
        _check_shape(action, self.action_shape(scene))
        scene.move(action - scene.joints if self._absolute_mode else action)

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
        _check_shape(action, (7,))
        if not np.isclose(np.linalg.norm(action[3:]), 1.0):
            raise InvalidActionError('Action contained non unit quaternion!')
        goal = action[:3] if self._absolute_mode else scene.joints[:3] + action[:3]
        if np.abs(goal).max() > 1.0:
            raise InvalidActionError('A path could not be found because the target is outside of workspace.')
        scene.move(np.concatenate([goal - scene.joints[:3], np.zeros(len(scene.joints) - 3)]))

    def action_shape(self, scene: Scene) -> tuple[int]:
        return (7,)


class EndEffectorPoseViaPlanning(EndEffectorPoseViaIK):
    pass


class Discrete:
    def action(self, scene: Scene, action: np.ndarray) -> None:
        _check_shape(action, (1,))
        scene.open = float(action[0] > 0.5)

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
    """The state of the toy: joints, of which the first three are the place of the gripper's tip."""

    def __init__(self, config: ObservationConfig, joints: int) -> None:
        self.config = config
        self.joints = np.zeros(joints)
        self.actions: list[np.ndarray] = []  # every one that came this far, in RLBench's units

    def reset(self) -> None:
        self.joints = np.zeros_like(self.joints)
        self.velocities = np.zeros_like(self.joints)
        self.open = 1.0

    def move(self, delta: np.ndarray) -> None:
        self.joints = np.clip(self.joints + delta, -1.0, 1.0)

    def observe(self, task: Task) -> Observation:
        config, n = self.config, len(self.joints)
        pose = np.append(self.joints[:3], [0.0, 0.0, 0.0, 1.0])
        values = {
            'joint_velocities': self.velocities.copy(),
            'joint_positions': self.joints.copy(),
            'joint_forces': np.zeros(n),
            'gripper_open': self.open,
            'gripper_pose': pose,
            'gripper_matrix': np.eye(4),
            'gripper_joint_positions': np.full(2, 0.04 * self.open),
            'gripper_touch_forces': np.zeros(6),
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

    def __init__(self, pyrep: Any, scene: Scene, name: str | None = None) -> None:
        self.name = name or re.sub('(?<!^)(?=[A-Z])', '_', type(self).__name__).lower()
        self.scene = scene
        self.target = np.zeros(3)

    def init_episode(self, index: int) -> list[str]:
        self.target = np.random.uniform(-0.5, 0.5, 3)
        self.target[2] = random.uniform(-0.5, 0.5)  # one of RLBench's tasks draws from this generator too
        return [f'reach the target {index}', f'touch the ball {index}']

    def variation_count(self) -> int:
        return 20

    def get_low_dim_state(self) -> np.ndarray:
        return self.target.copy()

    def distance(self) -> float:
        return float(np.linalg.norm(self.scene.joints[:3] - self.target))

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
        if self.scene.joints[2] < -0.5:
            return False, True
        return super().success()


class StackBlocks(Task):
    """How much its state holds depends on the variation."""

    def init_episode(self, index: int) -> list[str]:
        self.blocks = 2 + index
        return super().init_episode(index)

    def get_low_dim_state(self) -> np.ndarray:
        return np.zeros(7 * self.blocks)


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
        descriptions = self._task.init_episode(self._variation_number)
        if FAILURES:
            raise FAILURES.pop(0)
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
        self._scene: Scene | None = None

    def launch(self) -> None:
        if LOG.running:
            raise AssertionError('CoppeliaSim would crash: it runs in this process already.')
        LOG.running += 1
        LOG.launched.append(self)
        self._scene = Scene(self._obs_config, SUPPORTED_ROBOTS[self._robot_setup][2])

    def get_task(self, task_class: Any) -> TaskEnvironment:
        return TaskEnvironment(self._scene, task_class(None, self._scene), self._action_mode, self._shaped_rewards)

    def shutdown(self) -> None:
        if self._scene is not None:
            LOG.running -= 1
            LOG.shut_down += 1
        self._scene = None


#: Module below ``rlbench`` -> what it has from here.
MODULES = {
    '__init__': (),
    'environment': ('Environment',),
    'observation_config': ('CameraConfig', 'ObservationConfig'),
    'const': ('SUPPORTED_ROBOTS',),
    'action_modes/__init__': (),
    'action_modes/action_mode': ('MoveArmThenGripper',),
    'action_modes/arm_action_modes': (
        'JointVelocity',
        'JointPosition',
        'EndEffectorPoseViaIK',
        'EndEffectorPoseViaPlanning',
        'RelativeFrame',
    ),
    'action_modes/gripper_action_modes': ('Discrete',),
    'backend/__init__': (),
    'backend/exceptions': ('BoundaryError', 'WaypointError', 'InvalidActionError', 'TaskEnvironmentError'),
    'backend/task': ('Task',),
    'tasks/__init__': (),
    'tasks/reach_target': ('ReachTarget', 'Task'),
    'tasks/slide_block_to_target': ('SlideBlockToTarget', 'Task'),
    'tasks/take_lid_off_saucepan': ('TakeLidOffSaucepan', 'Task'),
    'tasks/pick_up_cup': ('PickUpCup', 'Task'),
    'tasks/beat_the_buzz': ('BeatTheBuzz', 'Task'),
    'tasks/stack_blocks': ('StackBlocks', 'Task'),
}


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Within it, ``import rlbench`` finds this toy, here and in processes that are spawned meanwhile."""
    found = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_rlbench(name)}
    path = list(sys.path)
    with tempfile.TemporaryDirectory() as directory:
        for module, names in MODULES.items():
            file = Path(directory, 'rlbench', f'{module}.py')
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f'from rlbench_standin import {", ".join(names)}\n' if names else '')
        sys.path[:0] = [directory, str(Path(__file__).parent)]
        LOG.launched, LOG.shut_down, LOG.running = [], 0, 0
        try:
            yield
        finally:
            sys.path[:] = path
            FAILURES.clear()
            for name in [name for name in sys.modules if _is_rlbench(name)]:
                del sys.modules[name]
            sys.modules.update(found)


def _is_rlbench(module: str) -> bool:
    return module.split('.')[0] == 'rlbench'
