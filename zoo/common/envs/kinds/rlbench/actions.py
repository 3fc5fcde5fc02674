"""Actions of an RLBench environment: how the arm moves, and what an action of ±1 means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.common.envs.kinds.rlbench.package import load_module
from zoo.common.tools.errors import InvalidValue


@dataclass(frozen=True)
class ArmMode:
    """How the arm is moved: a class of ``rlbench.action_modes.arm_action_modes`` and what an action of ±1 means.

    Attributes:
        name: the class.
        kwargs: its arguments.
        scale: what 1 stands for in each entry; one number holds for every joint.
        pose: whether an action is a movement of the gripper: x, y, z, then a rotation vector.
    """

    name: str
    kwargs: dict[str, Any]
    scale: tuple[float, ...]
    pose: bool = False


#: RLBench declares no bounds for these modes. 0.1 rad is the bound of ``JointPositionActionMode``, its only mode with
#: bounds. 1 rad/s is the velocity to which its ``Environment`` limits the arm. The steps of a pose are small for the
#: Jacobian, which only finds near poses, and larger for the planner.
ACTION_MODES = {
    'joint_velocity': ArmMode('JointVelocity', {}, (1.0,)),
    'joint_position': ArmMode('JointPosition', {'absolute_mode': False}, (0.1,)),
    'ee_pose': ArmMode('EndEffectorPoseViaIK', {'absolute_mode': False}, (0.03,) * 3 + (0.1,) * 3, True),
    'ee_pose_planning': ArmMode('EndEffectorPoseViaPlanning', {'absolute_mode': False}, (0.1,) * 3 + (0.5,) * 3, True),
}


class Actions:
    """Turns actions in [-1, 1] into RLBench's commands, for an arm with so many joints.

    Args:
        scale: what 1 stands for in the entries of the arm's action, one positive number or one for each entry; None for
            the scale of the mode.

    Raises:
        ValueError: ``scale`` is not positive, or has another length.
    """

    def __init__(self, mode: ArmMode, scale: float | Sequence[float] | None, joints: int) -> None:
        self._mode = mode
        length = len(mode.scale) if mode.pose else joints
        try:
            found = np.asarray(mode.scale if scale is None else scale, np.float64)
        except (TypeError, ValueError):  # words, lists of lists
            found = np.empty(0)
        if found.size not in (1, length) or found.ndim > 1 or not (np.isfinite(found) & (found > 0)).all():
            raise InvalidValue(f'arm_scale is {scale!r}: give one positive number, or {length} of them.')
        self._scale = np.broadcast_to(found, length).copy()
        self.size = length + 1  # the gripper

    def make_mode(self) -> Any:
        """Return RLBench's action mode."""
        arm = getattr(load_module('action_modes.arm_action_modes'), self._mode.name)(**self._mode.kwargs)
        gripper = load_module('action_modes.gripper_action_modes').Discrete()
        return load_module('action_modes.action_mode').MoveArmThenGripper(arm, gripper)

    def command(self, action: Any, name: str) -> np.ndarray:
        """Return RLBench's command, float64: joints or a pose (x, y, z, quaternion), then the gripper from 0 to 1.

        The action is ``[size]``; entries beyond ±1 are clipped.

        Raises:
            ValueError: another shape, or an entry that is NaN or infinite.
        """
        action = np.asarray(action, np.float64)
        if action.shape != (self.size,):
            raise InvalidValue(f'{name}: the action has shape {action.shape}, but must have ({self.size},).')
        if not np.isfinite(action).all():
            raise InvalidValue(f'{name}: the action is {action.tolist()}, but must be finite.')
        action = np.clip(action, -1.0, 1.0)
        arm = action[:-1] * self._scale
        if self._mode.pose:
            arm = np.concatenate([arm[:3], quaternion(arm[3:])])
        return np.append(arm, (action[-1] + 1.0) / 2.0)


def quaternion(rotation: np.ndarray) -> np.ndarray:
    """Return the unit quaternion ``x, y, z, w`` of a rotation vector ``[3]`` in radians."""
    angle = np.linalg.norm(rotation)
    # np.sinc(a / 2π) is sin(a / 2) / (a / 2), and right at 0.
    return np.append(rotation * 0.5 * np.sinc(angle / (2.0 * np.pi)), np.cos(angle / 2.0))
