"""``check_env``: what is wrong with a user's environment, in plain sentences, and how to mend it."""

from __future__ import annotations

import copy
import math
import numbers
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Tuple
from gymnasium.vector import VectorEnv

from zoo.common.adaptors.observation import ACTION_MASK
from zoo.common.envs import answers
from zoo.common.envs.build import single_maker
from zoo.common.envs.check_spaces import Findings, check_mask, check_part, check_spaces, kind
from zoo.common.envs.kinds import compiled, registered
from zoo.common.envs.kinds.old_gym import OldGymEnv, is_old_gym
from zoo.common.tools.checks import is_integer
from zoo.common.tools.errors import InvalidType, InvalidValue

#: Steps that are taken again with the same seed and the same actions.
_REPLAYED = 100
#: Seconds after which the check stops a slow environment.
_SECONDS = 20.0


def check_env(env: Any, steps: int = 1000, seed: int = 0, **kwargs: Any) -> list[str]:
    """Play an environment with random actions; print and return what is wrong with it.

    It looks at the spaces; what ``reset`` takes and returns; structure, shape, dtype and bounds of every part of every
    observation; rewards, flags and ``info`` of every step; whether a seed fixes the episode and the episodes after it;
    whether observations stay as they were returned; action masks; ``render``.

    It prints a line for each problem, and a line that begins with ``advice:`` for each thing that works but costs
    memory, time or the choice of algorithm. Advice is not returned: ``assert not check_env(MyEnv)`` is a test.

    Args:
        env: a class or a function that makes the environment, the environment itself (it is reset and stepped, and
            not closed), a registered name, or an object of pure functions for the type ``'compiled'``.
        steps: the most steps to take; a slow environment is stopped after about 20 seconds.
        seed: the seed of the actions, and of the episode that is played twice.
        **kwargs: the environment's own arguments, ``max_episode_steps``, ``frame_stack`` and ``hide_velocity``, as
            ``build_env`` takes them.

    Returns:
        The problems, a sentence each that says what is wrong and how to mend it.

    Raises:
        TypeError: ``env`` is a vector environment, or does not take one of ``kwargs``.
        ValueError: the name is not registered, ``steps`` or ``seed`` is not an integer of at least 1 or 0, or there is
            no display for a window.
    """
    for name, value, least in (('steps', steps, 1), ('seed', seed, 0)):
        if not is_integer(value, least):
            raise InvalidValue(f'{name} is an integer of at least {least}, not {value!r}.')
    given = isinstance(env, (gymnasium.Env, VectorEnv)) or is_old_gym(env)
    found = Findings()
    is_pure = compiled.is_functions(env) or compiled.makes_functions(env)
    try:
        made = single_maker(env, 'compiled' if is_pure else 'gymnasium', kwargs)[0]()
    except registered.UnusableError as error:
        found.problem('make', str(error))
        return found.report()
    except (InvalidType, InvalidValue) as error:
        if not is_pure:
            raise
        found.problem('make', str(error))
        return found.report()
    if isinstance(made, VectorEnv):
        if not given:
            made.close()
        raise InvalidType('check_env takes a single environment: give the one that the VectorEnv has copies of.')
    try:
        _Check(made, steps, seed, found).run()
    finally:
        if not given:
            made.close()
    return found.report()


class _Stop(Exception):
    """Nothing more can be learned from the environment."""


class _Check:
    """One check of an environment; its problems go to ``found``."""

    def __init__(self, env: gymnasium.Env, steps: int, seed: int, found: Findings) -> None:
        self.env, self.steps, self.seed, self.found = env, steps, seed, found
        self._problem, self._here = found.problem, found.here
        self._takes_seed = True
        self._masked = False

    def run(self) -> None:
        try:
            if isinstance(self.env, OldGymEnv):
                self.found.advice.append(
                    "this is an environment of the old gym interface, which build_env(env, 'gymnasium') adapts: derive "
                    f'it from gymnasium.Env, return {answers.STEP} from step() and write {answers.RESET}.'
                )
            check_spaces(self.env, self.found)
            if self.found.problems:
                return
            self._check_rendering_modes()
            self._check_reset_arguments()
            first, actions, record = self._play()
            self._check_repetition(first, actions, record)
            self._check_later_resets()
            self._check_render()
            if not self._masked and callable(getattr(self.env.unwrapped, 'action_masks', None)):
                told = (
                    f"it has a method action_masks(), which nothing here calls: give info['{ACTION_MASK}'] with every"
                )
                self.found.advice.append(f'{told} observation.')
        except _Stop:
            return

    def _check_reset_arguments(self) -> None:
        if isinstance(self.env, OldGymEnv):
            return
        lacking = answers.reset_lacks(self.env)
        for name, sentence in lacking.items():
            self._problem(f'reset {name}', sentence)
        self._takes_seed = 'seed' not in lacking

    def _reset(self, seed: int | None) -> Any:
        self.found.where = 'reset()'
        try:
            result = self.env.reset(seed=seed) if self._takes_seed else self.env.reset()
        except Exception as error:
            self._problem('reset', f'reset() raised {type(error).__name__}: {str(error).rstrip(".")}.')
            raise _Stop from error
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            observation, info = result
        else:
            self._problem(
                'reset returns',
                f'reset() returned {kind(result)}, not the pair of observation and info: return observation, {{}}.',
            )
            is_pair = isinstance(result, tuple) and not isinstance(self.env.observation_space, Tuple)
            observation, info = (result[0] if is_pair and result else result), {}
        check_part(self.env.observation_space, observation, self.found)
        self._mask = self._check_mask(observation, info)
        return observation

    def _step(self, action: Any) -> tuple[Any, Any, bool, bool]:
        try:
            result = self.env.step(copy.deepcopy(action))
        except Exception as error:
            self._problem(
                'step',
                f'{self.found.where} raised {type(error).__name__} for the action {action!r} of its space: '
                f'{str(error).rstrip(".")}.',
            )
            raise _Stop from error
        if not isinstance(result, tuple) or len(result) not in (4, 5):
            self._problem('step returns', f'step() returned {kind(result)}: return {answers.STEP}.')
            raise _Stop
        if len(result) == 4:
            self._problem(
                'step returns',
                f'step() returned four values, as in the old gym: return {answers.STEP}, where a time limit sets '
                'truncated and not terminated; or wrap it as it is: zoo.common.envs.kinds.old_gym.OldGymEnv(env).',
            )
            observation, reward, terminated, info = result
            truncated = False
        else:
            observation, reward, terminated, truncated, info = result
        check_part(self.env.observation_space, observation, self.found)
        self._check_reward(reward)
        for name, flag in (('terminated', terminated), ('truncated', truncated)):
            if not isinstance(flag, (bool, np.bool_)):
                self._here(name, f'{name} is {kind(flag)}, not True or False: return bool({name}).')
        if isinstance(info, dict):
            self._mask = self._check_mask(observation, info)
        else:
            self._here('info', f'info is {kind(info)}, not a dictionary: return {{}} for none.')
        return observation, reward, bool(np.any(terminated)), bool(np.any(truncated))

    def _check_reward(self, reward: Any) -> None:
        if isinstance(reward, numbers.Real):
            if not math.isfinite(reward):
                self._here('reward', f'the reward is {reward}: make it a finite number.')
        elif told := answers.several(reward):
            self._here('reward', f'the reward is {kind(reward)}, {told}.')
        else:
            self._here('reward', f'the reward is {kind(reward)}, not a number: return float(reward).')

    def _check_mask(self, observation: Any, info: dict[str, Any]) -> Any:
        in_observation = isinstance(observation, dict) and ACTION_MASK in observation
        mask = observation[ACTION_MASK] if in_observation else info.get(ACTION_MASK)
        if mask is not None:
            self._masked = True
            return check_mask(self.env.action_space, mask, self.found)
        if self._masked:
            self._here(
                'mask', f"info['{ACTION_MASK}'] is missing, but was there before: give it with every observation."
            )
        return None

    def _play(self) -> tuple[Any, list[Any], list[Any]]:
        """Play episodes; return the first observation, and the first ``_REPLAYED`` actions with what they led to."""
        sampler = copy.deepcopy(self.env.action_space)
        sampler.seed(self.seed)
        stop_at = time.monotonic() + _SECONDS
        observation = self._reset(self.seed)
        first = kept = copy.deepcopy(observation)
        actions: list[Any] = []
        record: list[Any] = []
        ended = False
        for step in range(1, self.steps + 1):
            self.found.where = f'step {step}'
            action = sampler.sample(self._mask) if self._mask is not None else sampler.sample()
            previous, before = observation, kept
            observation, reward, terminated, truncated = self._step(action)
            kept = copy.deepcopy(observation)
            self._check_kept(previous, before, 'step()')
            if not ended and len(actions) < _REPLAYED:
                actions.append(action)
                record.append((kept, reward, terminated, truncated))
            if terminated or truncated:
                ended = True
                previous, before = observation, kept
                observation = self._reset(None)
                kept = copy.deepcopy(observation)
                self._check_kept(previous, before, 'reset()')
            if time.monotonic() > stop_at:
                break
        limit = registered.time_limit(self.env) or (self.env.spec and self.env.spec.max_episode_steps)
        if not ended and not limit:
            self.found.advice.append(
                f'no episode ended in {step} steps and there is no time limit: if it may go on forever, testing '
                "never ends; build_env(env, 'gymnasium', max_episode_steps=1000) sets one."
            )
        return first, actions, record

    def _check_kept(self, observation: Any, copied: Any, method: str) -> None:
        if not _same(observation, copied):
            self._here(
                'kept',
                f'{method} changed the observation that was returned before it, since all are '
                'one array: return a copy, such as self.state.copy().',
            )

    def _check_repetition(self, first: Any, actions: list[Any], record: list[Any]) -> None:
        if not self._takes_seed:
            return
        again = self._reset(self.seed)
        if not _same(first, again):
            remedy = 'call super().reset(seed=seed) and draw all random numbers from self.np_random.'
            if isinstance(self.env, OldGymEnv):
                remedy = 'give it a method seed(seed), and draw all random numbers from what that seeds.'
            self._problem(
                'seed',
                f'reset(seed={self.seed}) gave another first observation the second time: {remedy}',
            )
            return
        for i, (action, expected) in enumerate(zip(actions, record, strict=True), 1):
            self.found.where = f'step {i}'
            found = self._step(action)
            names = ('observation', 'reward', 'terminated', 'truncated')
            for name, one, other in zip(names, expected, found, strict=True):
                if not _same(one, other):
                    self._problem(
                        'seed',
                        f'reset(seed={self.seed}) and the same actions led to another {name} in step {i} the second '
                        'time: draw all random numbers from self.np_random, and set everything back in reset().',
                    )
                    return
            if expected[2] or expected[3]:
                return

    def _check_later_resets(self) -> None:
        """Whether a seed fixes the next episodes too: only then does a run repeat that is seeded once."""
        if not self._takes_seed or 'seed' in self.found.problems:
            return
        rounds = []
        for _ in range(2):
            self._reset(self.seed)
            rounds.append(copy.deepcopy(self._reset(None)))
        if not _same(*rounds):
            self._problem(
                'seed',
                f'reset(seed={self.seed}) and then reset() gave another observation the second time, so that runs with '
                'the same seed differ: call super().reset(seed=seed), which keeps its generator where seed is None, '
                'and use self.np_random.',
            )

    def _check_rendering_modes(self) -> None:
        metadata, mode = getattr(self.env, 'metadata', None), getattr(self.env, 'render_mode', None)
        modes = metadata.get('render_modes', []) if isinstance(metadata, dict) else None
        if not isinstance(modes, (list, tuple, set)):
            self._problem(
                'metadata',
                "metadata is not a dictionary with the list 'render_modes': write metadata = {'render_modes': "
                "['rgb_array'], 'render_fps': 30} in the class.",
            )
        elif mode is not None and mode not in modes:
            self._problem(
                'render_mode', f"render_mode is {mode!r}, which metadata['render_modes'] = {modes} lacks: add it."
            )

    def _check_render(self) -> None:
        if getattr(self.env, 'render_mode', None) != 'rgb_array':
            return
        try:
            frame = self.env.render()
        except Exception as error:
            self._problem('render', f'render() raised {type(error).__name__}: {error}.')
            return
        if not (isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3):
            self._problem('render', f'render() returned {kind(frame)}: return an array (height, width, 3) of uint8.')


def _same(a: Any, b: Any) -> bool:
    """Whether two observations, rewards or flags are equal in every part; NaN equals NaN."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(value, b[key]) for key, value in a.items())
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    a, b = np.asarray(a), np.asarray(b)
    return np.array_equal(a, b, equal_nan=a.dtype.kind == b.dtype.kind == 'f')
