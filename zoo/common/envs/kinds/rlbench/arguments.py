"""The arguments of an RLBench environment: cameras, observations, action modes."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.common.envs.kinds.rlbench.package import load_module
from zoo.common.tools.errors import unknown

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


def observation_keys(state_type: Any) -> tuple[tuple[str, ...], str | None]:
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


def make_observation_config(keys: Sequence[str], image_size: tuple[int, int], depth_in_meters: bool) -> Any:
    """RLBench's own has everything switched on; this one only ``keys``."""
    module = load_module('observation_config')
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


def scale_of_arm(mode: ArmMode, given: float | Sequence[float] | None, joints: int) -> np.ndarray:
    """What 1 stands for in each entry of the arm's action, ``[n]`` float64."""
    length = len(mode.scale) if mode.pose else joints
    try:
        scale = np.asarray(mode.scale if given is None else given, np.float64)
    except (TypeError, ValueError):  # words, lists of lists
        scale = np.empty(0)
    if scale.size not in (1, length) or scale.ndim > 1 or not (np.isfinite(scale) & (scale > 0)).all():
        raise ValueError(f'arm_scale is {given!r}: give one positive number, or {length} of them.')
    return np.broadcast_to(scale, length).copy()


def quaternion(rotation: np.ndarray) -> np.ndarray:
    """The unit quaternion ``x, y, z, w`` of a rotation vector ``[3]`` in radians."""
    angle = np.linalg.norm(rotation)
    # np.sinc(a / 2π) is sin(a / 2) / (a / 2), and right at 0.
    return np.append(rotation * 0.5 * np.sinc(angle / (2.0 * np.pi)), np.cos(angle / 2.0))


def is_count(value: Any, least: int) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def is_amount(value: Any) -> bool:
    return isinstance(value, numbers.Real) and 0 <= float(value) < np.inf
