"""Observations of an RLBench environment: cameras, keys, arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Space

from zoo.common.envs.kinds.rlbench.package import load_module
from zoo.common.tools.errors import InvalidValue, unknown

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
#: What ``get_low_dim_data`` joins to one vector, which is called ``'state'`` here.
STATE = tuple(key for key in LOW_DIM if key != 'gripper_matrix')
KEYS = tuple(sorted(('state', *LOW_DIM, *(f'{camera}_{channel}' for camera in CAMERAS for channel in CHANNELS))))
#: ``state_type='vision'``: all cameras, and what the robot knows of itself. Only the cameras tell where things are.
OF_ROBOT = ('gripper_open', 'gripper_pose', 'joint_positions', 'joint_velocities')
VISION = (*(f'{camera}_rgb' for camera in CAMERAS), *OF_ROBOT)


class Observations:
    """Turns RLBench's observations into arrays.

    Args:
        state_type: what was asked for: ``'vision'``, a key of :data:`KEYS`, or a sequence of keys.
        image_size: ``(width, height)`` of the cameras in pixels.
        in_meters: whether depth is in meters.

    Raises:
        ValueError: ``state_type`` is none of these; it has no picture for an ``image_size`` other than 128 × 128, or no
            depth to be in meters.
    """

    def __init__(self, state_type: Any, image_size: tuple[int, int], in_meters: bool) -> None:
        self.keys, self._single = _keys(state_type)
        self._size, self._in_meters = image_size, bool(in_meters)
        if image_size != (128, 128) and not any(key.endswith(CHANNELS) for key in self.keys):
            raise InvalidValue(
                f'image_size is {image_size} but state_type {state_type!r} has no pictures: add one, such as '
                "'front_rgb', or leave image_size out."
            )
        if in_meters and not any(key.endswith('_depth') for key in self.keys):
            raise InvalidValue(
                f'depth_in_meters is {in_meters!r} but state_type {state_type!r} has no depth: add one, such as '
                "'front_depth', or leave depth_in_meters out."
            )

    def make_config(self) -> Any:
        """Return RLBench's configuration with only the keys switched on; its default has everything on."""
        module = load_module('observation_config')
        cameras = {}
        for camera in CAMERAS:
            wanted = {channel: f'{camera}_{channel}' in self.keys for channel in CHANNELS}
            wanted['depth'] |= wanted['point_cloud']  # RLBench has no points of a camera that sees nothing else
            cameras[f'{camera}_camera'] = module.CameraConfig(
                **wanted, image_size=self._size, depth_in_meters=self._in_meters
            )
        config = module.ObservationConfig(**cameras)
        config.set_all_low_dim(False)
        for key in LOW_DIM:
            setattr(config, key, key in self.keys or ('state' in self.keys and key in STATE))
        return config

    def space_of(self, observation: Any, name: str) -> Space:
        """Return the observation space, from the first observation of RLBench."""
        parts: dict[str, Space] = {key: self._box(key, value) for key, value in self._arrays(observation, name).items()}
        return parts[self._single] if self._single else Dict(parts)

    def convert(self, observation: Any, space: Space, name: str, steps: int) -> Any:
        """Return an observation of RLBench as an element of the space that :meth:`space_of` gave.

        A ValueError says that an array has another shape than in the first observation, ``steps`` after the reset.
        """
        arrays = self._arrays(observation, name)
        for key, value in arrays.items():
            own = space[key] if isinstance(space, Dict) else space
            if value.shape != own.shape:
                raise InvalidValue(
                    f'{name}: {key!r} has shape {value.shape} after {steps} steps, but had {own.shape} at first: a '
                    "task whose objects change in number needs a state_type without 'state' and 'task_low_dim_state'."
                )
        return arrays[self._single] if self._single else arrays

    def _box(self, key: str, value: np.ndarray) -> Box:
        low, high = -np.inf, np.inf
        if key.endswith('_rgb'):
            low, high = 0, 255
        elif key == 'gripper_open' or (key.endswith('_depth') and not self._in_meters):
            low, high = 0.0, 1.0
        elif key.endswith(('_depth', '_mask')):
            low = 0.0
        return Box(low, high, value.shape, value.dtype.type)

    def _arrays(self, observation: Any, name: str) -> dict[str, np.ndarray]:
        """The arrays by key: pictures with an axis for their channels, all numbers float32."""
        arrays = {}
        for key in self.keys:
            value = observation.get_low_dim_data() if key == 'state' else getattr(observation, key)
            if value is None:
                raise InvalidValue(f'{name} has no {key!r} in its observations: leave it out of state_type.')
            value = np.array(
                value, np.uint8 if key.endswith('_rgb') else np.float32
            )  # a copy: the caller may change it
            if key.endswith(('_depth', '_mask')):
                value = value[..., np.newaxis]
            arrays[key] = np.atleast_1d(value)
        return arrays


def _keys(state_type: Any) -> tuple[tuple[str, ...], str | None]:
    """The keys that ``state_type`` asks for, sorted, and the key that is the whole observation, if one is."""
    if isinstance(state_type, str):
        if state_type == 'vision':
            return tuple(sorted(VISION)), None
        if state_type not in KEYS:
            raise InvalidValue(unknown('state_type', state_type, ('vision', *KEYS)))
        return (state_type,), state_type
    if not isinstance(state_type, Sequence) or not state_type:
        raise InvalidValue(f"state_type is {state_type!r}: give 'state', 'vision', a key or a list of keys.")
    for key in state_type:
        if key not in KEYS:
            raise InvalidValue(unknown('key of state_type', key, KEYS))
    return tuple(sorted(set(state_type))), None
