"""Action masks from ``info`` as a part of the observation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Dict, MultiBinary
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import ACTION_MASK
from zoo.common.envs import answers
from zoo.common.tools.errors import InvalidType, InvalidValue


class ActionMask(gymnasium.Wrapper):
    """Moves ``info['action_mask']`` into the observation, where the agent finds it.

    The observation becomes ``Dict(obs=<the original>, action_mask=MultiBinary(n))``; a ``Dict`` keeps its keys and
    gains ``action_mask``. The mask is int8 ``[n]``, 1 where an action is allowed. ``Discrete(n)`` has one entry for
    each action. ``MultiDiscrete`` has the entries of its components one after the other, ``n = sum(nvec)``; a tuple
    with one mask for each component is joined. ``MultiBinary(n)`` has one entry for each switch, 0 where the switch
    stays off. A step that terminates the episode needs no mask: no action follows.

    Raises:
        TypeError: another action space.
        ValueError: a mask is missing, has another length, or has an entry other than 0 and 1.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._length = mask_length(env.action_space)
        self._is_dict = isinstance(env.observation_space, Dict)
        self.observation_space = _masked_space(env.observation_space, self._length)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._with_mask(observation, info, True), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = answers.step(self.env.step(action), lambda: f'{self.env}')
        return self._with_mask(observation, info, not terminated), reward, terminated, truncated, info

    def _with_mask(self, observation: Any, info: dict[str, Any], is_needed: bool) -> dict[str, Any]:
        mask = as_mask(info.get(ACTION_MASK), self._length, is_needed, lambda: f'{self.env}')
        return _add_mask(observation, mask, self._is_dict)


class VectorActionMask(VectorWrapper):
    """Moves the action masks of a vector environment into its observation, in every autoreset mode.

    ``info['action_mask']`` holds the mask of each copy, ``[N, n]``, and refuses the same as :class:`ActionMask`. If a
    copy is reset in the step that ended its episode, the mask belongs to the new episode, and
    ``info['final_info']['action_mask']`` to the end.
    """

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        self._length = mask_length(env.single_action_space)
        self._is_dict = isinstance(env.single_observation_space, Dict)
        self._same_step = answers.autoreset_mode(env) == AutoresetMode.SAME_STEP
        self.single_observation_space = _masked_space(env.single_observation_space, self._length)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._masks = np.ones((env.num_envs, self._length), np.int8)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        which = (options or {}).get('reset_mask', np.ones(self.num_envs, bool))
        observation, info = self.env.reset(seed=cast(Any, seed), options=options)  # a list if the copies take one
        return self._with_masks(observation, info, np.flatnonzero(which), which), info

    def step(self, actions: Any) -> tuple[dict[str, Any], Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(actions)
        ended = np.asarray(terminated, bool)
        over = ended | np.asarray(truncated, bool)
        if self._same_step and over.any() and 'final_obs' in info:
            final_obs = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(over).tolist():
                mask = self._mask_of(info.get('final_info'), i, not ended[i])
                final_obs[i] = _add_mask(info['final_obs'][i], mask, self._is_dict)
            info = info | {'final_obs': final_obs}
        needed = np.ones(self.num_envs, bool) if self._same_step else ~ended
        observation = self._with_masks(observation, info, range(self.num_envs), needed)
        return observation, reward, terminated, truncated, info

    def _with_masks(self, observation: Any, info: dict[str, Any], copies: Any, needed: np.ndarray) -> dict[str, Any]:
        masks = self._masks.copy()
        for i in copies:
            masks[i] = self._mask_of(info, i, bool(needed[i]))
        self._masks = masks
        return _add_mask(observation, masks, self._is_dict)

    def _mask_of(self, info: Any, i: int, is_needed: bool) -> np.ndarray:
        mask = answers.of_copy(info, ACTION_MASK, i)
        return as_mask(mask, self._length, is_needed, lambda: f'copy {i} of {self.env}')


def mask_length(action_space: Space) -> int:
    """Return the number of entries of a mask for these actions; a TypeError says that they cannot be masked."""
    adaptor = ActionAdaptor(action_space)
    if not adaptor.maskable:
        raise InvalidType(
            'an action_mask needs a Discrete, MultiDiscrete or MultiBinary action space, not '
            f'{spaces.describe(action_space)}: leave it out of info.'
        )
    return adaptor.parts[0].outputs


def as_mask(mask: Any, length: int, is_needed: bool, who: Callable[[], str]) -> np.ndarray:
    """Return a mask from ``info`` as int8 ``[length]``; all ones if it is missing and not needed; else ValueError."""
    if mask is None:
        if is_needed:
            raise InvalidValue(
                f"{who()}: info['action_mask'] is missing, but reset() gave one: give it with every observation."
            )
        return np.ones(length, np.int8)
    if isinstance(mask, (tuple, list)):
        mask = np.concatenate([np.ravel(part) for part in mask]) if mask else ()
    mask = np.asarray(mask)
    if mask.size != length or not mask.shape:
        raise InvalidValue(f"{who()}: info['action_mask'] has the shape {mask.shape}, but actions need ({length},).")
    if mask.dtype != bool and not (mask.dtype.kind in 'iuf' and ((mask == 0) | (mask == 1)).all()):
        for value in mask.ravel().tolist():
            if value not in (0, 1):
                raise InvalidValue(
                    f"{who()}: info['action_mask'] has the value {value!r}: 1 allows an action, and 0 forbids it."
                )
    return mask.ravel().astype(np.int8)


def _masked_space(space: Space, length: int) -> Dict:
    return Dict({**(space.spaces if isinstance(space, Dict) else {'obs': space}), ACTION_MASK: MultiBinary(length)})


def _add_mask(observation: Any, mask: np.ndarray, is_dict: bool) -> dict[str, Any]:
    return {**observation, ACTION_MASK: mask} if is_dict else {'obs': observation, ACTION_MASK: mask}
