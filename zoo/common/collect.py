"""The only caller of ``env.step`` while training, for single and vector environments alike.

Whatever the environment does at an episode's end (a single one waits for ``reset``; a Gymnasium vector environment
resets in the same step, in the next one, or when told), what comes out is the same: ``N`` transitions whose
``next_obs`` is the true final observation, with terminated and truncated kept apart, and none that crosses a reset.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.types import Episode

#: What every environment consists of that a training steps at the moment.
_in_training: list[Any] = []


@contextlib.contextmanager
def training_in(env: Env | VectorEnv | None) -> Iterator[None]:
    """While this lasts, nobody else can make a :class:`Collector` of ``env``, or of what it is wrapped around.

    Args:
        env: the environment that a training steps; None where others step theirs.
    """
    bases = [] if env is None else _bases(env)
    _in_training.extend(bases)
    try:
        yield
    finally:
        _in_training[:] = [other for other in _in_training if all(other is not base for base in bases)]


def _bases(env: Env | VectorEnv) -> list[Any]:
    """The environment without its wrappers and, of copies that step in this process, each of them without its own."""
    base = env.unwrapped
    return [base, *(copy.unwrapped for copy in base.envs)] if isinstance(base, SyncVectorEnv) else [base]


class Collector:
    """Steps an environment and keeps the current observation.

    The attributes hold the last step. The observations stay as they are until the step after next, so that the one
    that was acted on can be stored together with what came of it; the other arrays are written over by the next step.

    Attributes:
        obs: flat observation ``[N, …]`` to act on next.
        next_obs: flat observation ``[N, …]`` that the last step led to, the final one where an episode ended.
        reward: float32 ``[N]``.
        terminated, truncated: bool ``[N]``.
        valid: bool ``[N]``, False where the copy was only reset.
        steps: environment steps so far, summed over copies.
        finished: the episodes that ended in the last step. An end that the environment marks by ``life_lost`` in its
            info is part of a longer game and not among them.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``.
        adaptor: turns stored actions into the environment's.
        render: call ``env.render()`` after every step.

    Raises:
        ValueError: the environment is being trained on, by whoever is about to step it here too.
    """

    def __init__(self, env: Env | VectorEnv, adaptor: ActionAdaptor, render: bool = False) -> None:
        if any(base is other for base in _bases(env) for other in _in_training):
            raise ValueError(
                'this environment is being trained on, and its episodes under way would be cut and mixed with others: '
                'build a second one with build_env for what a callback does.'
            )
        self.env = env
        self.vector = isinstance(env, VectorEnv)
        self.num_envs = env.num_envs if self.vector else 1
        self.space = env.single_observation_space if self.vector else env.observation_space
        self.adaptor = adaptor
        self.render = render
        self.autoreset = env.metadata.get('autoreset_mode', AutoresetMode.NEXT_STEP) if self.vector else None
        self._leaves = spaces.leaves(self.space)
        self._float_leaves = [p for p, leaf in self._leaves.items() if np.issubdtype(leaf.dtype, np.floating)]
        self._spare = deque(spaces.zeros(self.space, (self.num_envs,)) for _ in range(4))
        self.reward = np.zeros(self.num_envs, np.float32)
        self.terminated = np.zeros(self.num_envs, bool)
        self.truncated = np.zeros(self.num_envs, bool)
        self.valid = np.ones(self.num_envs, bool)
        self.steps = 0
        self.finished: list[Episode] = []
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)

    def reset(self, seed: int | None = None) -> spaces.Flat:
        """Begin new episodes in every copy; ``seed`` as in Gymnasium."""
        obs, _ = self.env.reset(seed=seed)
        self.next_obs = self.obs = self._write(obs)
        self._check_finite(self.obs)
        self._returns[:] = 0.0
        self._lengths[:] = 0
        self.valid[:] = True
        self._resetting = np.zeros(self.num_envs, bool)
        return self.obs

    def step(self, action: spaces.Flat) -> None:
        """Take one step with stored actions ``[N, …]`` in every copy.

        Raises:
            ValueError: an observation outside its declared shape or dtype.
            FloatingPointError: an observation or a reward that is NaN or infinite.
            TypeError: a reward that is not one number.
        """
        self.finished.clear()
        (self._step_vector if self.vector else self._step_single)(action)
        if self.render:
            self.env.render()

    def _step_single(self, action: spaces.Flat) -> None:
        obs, reward, terminated, truncated, info = self.env.step(self.adaptor.to_single_env(action))
        self.steps += 1
        try:
            self.reward[0] = reward
        except (TypeError, ValueError):
            raise TypeError(f'step {self.steps}: the environment gave the reward {reward!r}, not one number.') from None
        self.terminated[0] = terminated
        self.truncated[0] = truncated
        self.next_obs = self.obs = self._write(obs)
        self._check_finite(self.next_obs, self.reward)
        self._returns[0] += reward
        self._lengths[0] += 1
        if terminated or truncated:
            if not info.get('life_lost'):
                self._finish(0, info.get('episode'), info.get('is_success', info.get('success')))
            self.obs = self._write(self.env.reset()[0])
            self._check_finite(self.obs)

    def _step_vector(self, action: spaces.Flat) -> None:
        obs, reward, terminated, truncated, info = self.env.step(self.adaptor.to_env(action))
        np.copyto(self.reward, reward, casting='same_kind')
        np.copyto(self.terminated, terminated)
        np.copyto(self.truncated, truncated)
        np.logical_not(self._resetting, out=self.valid)
        self.steps += self.num_envs if not self._resetting.any() else int(self.valid.sum())
        self.next_obs = self.obs = self._write(obs)
        np.add(self._returns, reward, out=self._returns, where=self.valid)
        self._lengths += self.valid
        done = self.terminated | self.truncated
        if done.any():
            self._end_episodes(done, obs, info)
        if self.autoreset == AutoresetMode.NEXT_STEP:
            self._resetting = done
        self._check_finite(self.next_obs, self.reward)
        if self.obs is not self.next_obs:
            self._check_finite(self.obs)

    def _end_episodes(self, done: np.ndarray, obs: Any, info: dict[str, Any]) -> None:
        indices = np.flatnonzero(done)
        same_step = self.autoreset == AutoresetMode.SAME_STEP
        final_info = info.get('final_info', {}) if same_step else info
        for i in indices:
            if _of_copy(final_info, 'life_lost', i):
                continue
            success = _of_copy(final_info, 'is_success', i)
            success = _of_copy(final_info, 'success', i) if success is None else success
            self._finish(i, _of_copy(final_info, 'episode', i), success)
        if same_step:
            final = self._write(obs)
            for i in indices:
                self._write_copy(final, i, info['final_obs'][i])
            self.next_obs = final
        elif self.autoreset == AutoresetMode.DISABLED:
            self.obs = self._write(self.env.reset(options={'reset_mask': done})[0])

    def _finish(self, i: int, episode: dict[str, Any] | None, success: Any) -> None:
        """Record the episode of copy ``i``; an environment's own account (unshaped rewards) goes before ours."""
        self.finished.append(
            Episode(
                float(episode['r']) if episode else float(self._returns[i]),
                int(episode['l']) if episode else int(self._lengths[i]),
                None if success is None else bool(success),
                int(i),
            )
        )
        self._returns[i] = 0.0
        self._lengths[i] = 0

    def _write(self, obs: Any) -> spaces.Flat:
        """Copy an observation of every copy into a spare buffer: environments may reuse theirs."""
        self._spare.rotate(-1)
        buffer = self._spare[-1]
        if self.vector:
            flat = self._flatten(obs)
            for path, target in spaces.tree_items(buffer):
                value = flat[path] if path else flat
                self._check_declared(path, value, target)
                target[...] = value
        else:
            self._write_copy(buffer, 0, obs)
        return buffer

    def _write_copy(self, buffer: spaces.Flat, i: int, obs: Any) -> None:
        flat = self._flatten(obs)
        for path, target in spaces.tree_items(buffer):
            value = flat[path] if path else flat
            self._check_declared(path, value, target[i])
            target[i] = value

    def _flatten(self, obs: Any) -> spaces.Flat:
        try:
            return spaces.flatten(self.space, obs)
        except TypeError as error:
            raise ValueError(f"step {self.steps}: in the environment's observation {error}") from error

    def _check_declared(self, path: str, value: Any, target: Any) -> None:
        """The shape is the declared one and the dtype casts to it without loss, or a ``Discrete`` is any integer."""
        dtype = target.dtype
        if isinstance(value, np.ndarray) and value.shape == target.shape and value.dtype == dtype:
            return
        value, counted = np.asarray(value), not isinstance(self._leaves[path], Box)
        fits = np.can_cast(value.dtype, dtype) or (counted and value.dtype.kind in 'iu')
        if value.shape == target.shape and fits:
            return
        raise ValueError(
            f'step {self.steps}: the environment gave an observation {path and f"{path!r} "}of shape {value.shape} and '
            f'dtype {value.dtype}, but its space declares {target.shape} and {dtype}: mend the one or the other.'
        )

    def _check_finite(self, obs: spaces.Flat, reward: np.ndarray | None = None) -> None:
        for path in self._float_leaves:
            x = obs[path] if path else obs
            if not np.isfinite(x).all():
                raise FloatingPointError(self._not_finite(f'an observation {path and f"{path!r} "}that is', x))
        if reward is not None and not np.isfinite(reward).all():
            raise FloatingPointError(self._not_finite('a reward that is', reward))

    def _not_finite(self, what: str, values: np.ndarray) -> str:
        finite = np.isfinite(values).reshape(self.num_envs, -1)
        copy = int(np.flatnonzero(~finite.all(1))[0])
        value = values.reshape(self.num_envs, -1)[copy][~finite[copy]][0]
        return f'step {self.steps}: {f"copy {copy} of " if self.vector else ""}the environment gave {what} {value}.'


def _of_copy(info: dict[str, Any], key: str, i: int) -> Any:
    """What copy ``i`` of a vector environment set in info, or None; the mask ``_key`` says which copies did."""
    if key not in info or not info.get(f'_{key}', np.ones(i + 1, bool))[i]:
        return None
    value = info[key]
    return {name: x[i] for name, x in value.items() if name[0] != '_'} if isinstance(value, dict) else value[i]
