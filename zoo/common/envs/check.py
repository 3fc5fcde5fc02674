"""``check_env``: what is wrong with a user's environment, in plain sentences, and how to mend it."""

from __future__ import annotations

import copy
import inspect
import math
import numbers
import time
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TimeLimit

from zoo.common import spaces
from zoo.common.adaptors.observation import ACTION_MASK, feature, is_image
from zoo.common.envs.kinds import registered
from zoo.common.envs.kinds.old_gym import OldGymEnv, is_old_gym

#: Steps that are taken again with the same seed and the same actions.
_REPLAYED = 100
#: Seconds after which a slow environment is not stepped on.
_SECONDS = 20.0

_RESET = 'def reset(self, *, seed=None, options=None): super().reset(seed=seed); ...; return observation, info'
_STEP = 'observation, reward, terminated, truncated, info'


def check_env(env: Any, steps: int = 1000, seed: int = 0) -> list[str]:
    """Play an environment with random actions; print and return what is wrong with it.

    Looked at are its spaces; what ``reset`` takes and returns; structure, shape, dtype and bounds of every part of
    every observation; rewards, flags and ``info`` of every step; whether a seed fixes the episode and those after it;
    whether observations that were returned stay as they are; action masks; ``render``.

    A line is printed for each problem, then one beginning with ``advice:`` for each thing that works but costs memory,
    time or the choice of algorithm; advice is not returned, so that ``assert not check_env(MyEnv)`` is a test. Of a
    problem that shows in many steps the first one is told.

    Args:
        env: what ``build_env`` takes: a class or a function that makes the environment, the environment itself (it is
            reset and stepped, and not closed), or a registered name.
        steps: how many steps to take at the most; a slow environment is stopped after about 20 seconds.
        seed: the seed of the episode that is played twice, and of the actions.

    Returns:
        The problems, one sentence each, that say what is wrong and how to mend it; empty if there are none.

    Raises:
        TypeError: ``env`` is a vector environment.
        ValueError: the name is not registered, ``steps`` or ``seed`` is none, or there is no display for a window.
    """
    for name, value, least in (('steps', steps, 1), ('seed', seed, 0)):
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
            raise ValueError(f'{name} is an integer of at least {least}, not {value!r}.')
    given = isinstance(env, (gymnasium.Env, VectorEnv)) or is_old_gym(env)
    check = _Check(steps, seed)
    try:
        made = registered.find(env, 'gymnasium')()
    except registered.UnusableError as error:
        check.problem('make', str(error))
        return check.report()
    if isinstance(made, VectorEnv):
        if not given:
            made.close()
        raise TypeError('check_env takes a single environment: give the one that the VectorEnv has copies of.')
    try:
        check.run(made)
    finally:
        if not given:
            made.close()
    return check.report()


class _Stop(Exception):
    """Nothing more can be learnt from the environment."""


class _Check:
    """The state of one check.

    Args:
        steps: how many to take at the most.
        seed: of the episode and of the actions.
    """

    env: gymnasium.Env

    def __init__(self, steps: int, seed: int) -> None:
        self.steps = steps
        self.seed = seed
        self.where = 'reset()'
        self._problems: dict[str, str] = {}
        self._advice: list[str] = []
        self._takes_seed = True

    def problem(self, key: str, sentence: str) -> None:
        """Note a problem once for each ``key``."""
        self._problems.setdefault(key, sentence)

    def report(self) -> list[str]:
        """Print everything and return the problems."""
        found = list(self._problems.values())
        for sentence in found or ['no problem found']:
            print(sentence)
        for sentence in self._advice:
            print(f'advice: {sentence}')
        return found

    def run(self, env: gymnasium.Env) -> None:
        """Make all checks of an environment, as far as they can be made."""
        self.env = env
        try:
            if isinstance(self.env, OldGymEnv):
                self._advice.append(
                    "this is an environment of the old gym interface, which build_env(env, 'gymnasium') adapts: derive "
                    f'it from gymnasium.Env, return {_STEP} from step() and write {_RESET}.'
                )
            self._check_spaces()
            self._check_rendering_modes()
            self._check_reset_arguments()
            first, actions, record = self._play()
            self._check_repetition(first, actions, record)
            self._check_later_resets()
            self._check_render()
        except _Stop:
            pass

    # Spaces

    def _check_spaces(self) -> None:
        for name in ('observation_space', 'action_space'):
            space = getattr(self.env, name, None)
            if not isinstance(space, Space):
                given = 'is missing' if space is None else f'is a {type(space).__module__}.{type(space).__name__}'
                self.problem(name, f'{name} {given}: set it in __init__ to a space of gymnasium.spaces.')
                continue
            try:
                leaves = spaces.leaves(space)
            except (TypeError, ValueError) as error:
                self.problem(name, f'{name}: {error}' if not _has_text(space) else _without_text(name, space))
                continue
            for path, leaf in leaves.items():
                label = f'{name}[{path!r}]' if path else name
                if leaf.shape and 0 in leaf.shape:
                    self.problem(label, f'{label} has the shape {leaf.shape}, which holds no number: leave it out.')
                elif isinstance(leaf, Box):
                    (self._check_action_box if name == 'action_space' else self._check_observation_box)(label, leaf)
        if self._problems:
            raise _Stop

    def _check_action_box(self, label: str, leaf: Box) -> None:
        if not (leaf.low < leaf.high).all():
            self.problem(label, f'{label} has entries whose low is not below their high: give each a range.')
        elif not leaf.is_bounded():
            self._advice.append(
                f'{label} has infinite bounds: algorithms whose actions fill the bounds (SAC, TD3) refuse it, PPO does '
                'not; give the range of useful actions, such as Box(-1, 1, ...).'
            )

    def _check_observation_box(self, label: str, leaf: Box) -> None:
        if (leaf.low > leaf.high).any():
            self.problem(label, f'{label} has entries whose low is above their high: exchange them.')
        if len(leaf.shape) == 3 and not is_image(leaf):
            self._advice.append(
                f'{label} of shape {leaf.shape} is taken for a vector, not for an image: an image is at least 8 pixels '
                'high and wide.'
            )
        if not is_image(leaf):
            return
        image = feature('', leaf)
        height, width, channels = image.shape
        if channels > 16:
            order = '(channels, height, width)' if image.channels_first else '(height, width, channels)'
            self._advice.append(
                f'{label} of shape {leaf.shape} is taken as {order} with {channels} channels of {height}x{width} '
                'pixels: if that is not what it is, move the channels to the last axis.'
            )
        if leaf.dtype not in (np.uint8, np.bool_):  # both are a byte for each value
            self._advice.append(
                f'{label} is an image of {leaf.dtype}: as uint8 from 0 to 255 it takes less memory in replay buffers; '
                'agents scale it themselves.'
            )

    # Reset and step

    def _check_reset_arguments(self) -> None:
        if isinstance(self.env, OldGymEnv):
            return
        for layer in (self.env, self.env.unwrapped):
            parameters = inspect.signature(layer.reset).parameters
            if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                continue
            for name in ('seed', 'options'):
                if name not in parameters:
                    self.problem(f'reset {name}', f'reset() does not take {name}: write {_RESET}.')
                    self._takes_seed = self._takes_seed and name != 'seed'

    def _reset(self, seed: int | None) -> Any:
        self.where = 'reset()'
        try:
            result = self.env.reset(seed=seed) if self._takes_seed else self.env.reset()
        except Exception as error:
            self.problem('reset', f'reset() raised {type(error).__name__}: {error}.')
            raise _Stop from error
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            observation, info = result
        else:
            self.problem(
                'reset returns',
                f'reset() returned {_kind(result)}, not the pair of observation and info: return observation, {{}}.',
            )
            is_pair = isinstance(result, tuple) and not isinstance(self.env.observation_space, Tuple)
            observation, info = (result[0] if is_pair and result else result), {}
        self._check_observation(observation)
        self._mask = self._check_mask(observation, info)
        return observation

    def _step(self, action: Any) -> tuple[Any, Any, bool, bool]:
        try:
            result = self.env.step(copy.deepcopy(action))
        except Exception as error:
            self.problem(
                'step', f'{self.where} raised {type(error).__name__} for the action {action!r} of its space: {error}.'
            )
            raise _Stop from error
        if not isinstance(result, tuple) or len(result) not in (4, 5):
            self.problem('step returns', f'step() returned {_kind(result)}: return {_STEP}.')
            raise _Stop
        if len(result) == 4:
            self.problem(
                'step returns',
                f'step() returned four values, as in the old gym: return {_STEP}, where a time limit sets '
                'truncated and not terminated; or wrap it as it is: zoo.common.envs.kinds.old_gym.OldGymEnv(env).',
            )
            observation, reward, terminated, info = result
            truncated = False
        else:
            observation, reward, terminated, truncated, info = result
        self._check_observation(observation)
        self._check_reward(reward)
        for name, flag in (('terminated', terminated), ('truncated', truncated)):
            if not isinstance(flag, (bool, np.bool_)):
                self.problem(name, f'{self.where}: {name} is {_kind(flag)}, not True or False: return bool({name}).')
        if isinstance(info, dict):
            self._mask = self._check_mask(observation, info)
        else:
            self.problem('info', f'{self.where}: info is {_kind(info)}, not a dictionary: return {{}} for none.')
        return observation, reward, _truth(terminated), _truth(truncated)

    def _check_reward(self, reward: Any) -> None:
        if isinstance(reward, numbers.Real):
            if not math.isfinite(reward):
                self.problem('reward', f'{self.where}: the reward is {reward}: make it a finite number.')
        elif np.size(reward) > 1:
            self.problem(
                'reward',
                f'{self.where}: the reward is {_kind(reward)}, but has to be one number: return a weighted sum of it '
                '(mo_gymnasium.wrappers.LinearReward(env, weight=...) does that for MO-Gymnasium).',
            )
        else:
            self.problem('reward', f'{self.where}: the reward is {_kind(reward)}, not a number: return float(reward).')

    def _check_observation(self, observation: Any) -> None:
        self._check_part(self.env.observation_space, observation, '')

    def _check_part(self, space: Space, x: Any, path: str) -> None:
        label = f'{self.where}: the observation' + (f' {path!r}' if path else '')
        parts: list[tuple[Any, Space, Any]]
        if isinstance(space, Dict):
            if not isinstance(x, dict):
                self.problem(
                    f'observation {path}', f'{label} is {_kind(x)}, but its space is a Dict: return a dictionary.'
                )
                return
            for kind, keys in (('lacks', space.spaces.keys() - x.keys()), ('has', x.keys() - space.spaces.keys())):
                if keys:
                    other = 'which its space has' if kind == 'lacks' else 'which its space lacks'
                    self.problem(
                        f'observation {path} {kind}',
                        f'{label} {kind} {", ".join(sorted(map(repr, keys)))}, {other}: give both the same keys.',
                    )
            parts = [(key, part, x[key]) for key, part in space.spaces.items() if key in x]
        elif isinstance(space, Tuple):
            if not isinstance(x, (tuple, list)) or len(x) != len(space.spaces):
                self.problem(
                    f'observation {path}',
                    f'{label} is {_kind(x)}, but its space is a Tuple: return a tuple of {len(space.spaces)}.',
                )
                return
            parts = list(zip(range(len(x)), space.spaces, x, strict=True))
        else:
            self._check_leaf(cast(spaces.Leaf, space), x, path, label)
            return
        for key, part, value in parts:
            self._check_part(part, value, f'{path}/{key}' if path else str(key))

    def _check_leaf(self, leaf: spaces.Leaf, x: Any, path: str, label: str) -> None:
        dtype = leaf.dtype
        if isinstance(leaf, Discrete):
            if isinstance(x, (bool, np.bool_)) or not isinstance(x, (numbers.Integral, np.ndarray)):
                self.problem(f'observation {path}', f'{label} is {_kind(x)}, but its space is {leaf}: return an int.')
                return
        elif not isinstance(x, np.ndarray) and not (leaf.shape == () and isinstance(x, np.generic)):
            self.problem(
                f'observation {path}', f'{label} is {_kind(x)}, not an array: return np.array(..., dtype=np.{dtype}).'
            )
            return
        array = np.asarray(x)
        if array.shape != leaf.shape:
            self.problem(
                f'observation {path}',
                f'{label} has the shape {array.shape}, but its space says {leaf.shape}: change the one or other.',
            )
        elif not (np.can_cast(array.dtype, leaf.dtype) if isinstance(leaf, Box) else array.dtype.kind in 'iub'):
            self.problem(
                f'observation {path}',
                f'{label} is of {array.dtype}, but its space of {dtype}: return x.astype(np.{dtype}).',
            )
        elif not np.isfinite(array).all():
            self.problem(
                f'observation {path}', f'{label} contains {array[~np.isfinite(array)][0]}: make every entry finite.'
            )
        else:
            self._check_bounds(leaf, array, path, label)

    def _check_bounds(self, leaf: spaces.Leaf, array: np.ndarray, path: str, label: str) -> None:
        low, high = _bounds(leaf)
        # In the last digits physics oversteps what the space says, and no algorithm minds.
        slack = 1e-5 * np.maximum(1.0, np.abs(array)) if array.dtype.kind == 'f' else 0
        outside = (array < low - slack) | (array > high + slack)
        if outside.any():
            at = np.unravel_index(np.argmax(outside), outside.shape) if array.ndim else ()
            entry = f' at {[int(i) for i in at]}' if at else ''
            low, high = (np.broadcast_to(bound, array.shape)[at] for bound in (low, high))
            self.problem(
                f'observation {path}',
                f'{label} has the value {array[at]}{entry}, but its space reaches from {low} to {high}: widen the '
                'bounds or clip the value.',
            )

    def _check_mask(self, observation: Any, info: dict[str, Any]) -> Any:
        """What ``sample`` takes as a mask, or None."""
        in_observation = isinstance(observation, dict) and ACTION_MASK in observation
        mask = observation[ACTION_MASK] if in_observation else info.get(ACTION_MASK)
        if mask is None:
            return None
        space, label = self.env.action_space, f'{self.where}: the action_mask'
        if isinstance(space, Discrete):
            counts = [int(space.n)]
        elif isinstance(space, MultiDiscrete):
            counts = [int(n) for n in space.nvec.ravel()]
        elif isinstance(space, MultiBinary):
            counts = [int(np.prod(space.shape))]
        else:
            self.problem(
                'mask',
                f'{label} is given, but only Discrete, MultiDiscrete and MultiBinary actions can be masked, not '
                f'{space}.',
            )
            return None
        parts = mask if isinstance(mask, (tuple, list)) else [mask]
        flat = np.concatenate([np.asarray(part).ravel() for part in parts])
        if flat.shape != (sum(counts),) or not np.isin(flat, (0, 1)).all():
            self.problem(
                'mask',
                f'{label} has {len(flat)} entries, {flat.min(initial=0)} to {flat.max(initial=0)}, but {space} needs '
                f'{sum(counts)}, each 1 where the action is allowed, else 0.',
            )
            return None
        if isinstance(space, MultiBinary):
            return np.where(flat, 2, 0).astype(np.int8).reshape(space.shape)  # 2: either of them
        masks = np.split(flat.astype(np.int8), np.cumsum(counts)[:-1])
        if not all(part.any() for part in masks):
            self.problem('mask', f'{label} forbids every action: allow one, or end the episode.')
            return None
        return masks[0] if isinstance(space, Discrete) else tuple(masks) if space.nvec.ndim == 1 else None

    # Episodes

    def _play(self) -> tuple[Any, list[Any], list[Any]]:
        """Play episodes: the first observation, the actions and what they led to in the first ``_REPLAYED`` steps."""
        sampler = copy.deepcopy(self.env.action_space)
        sampler.seed(self.seed)
        stop_at = time.monotonic() + _SECONDS
        observation = self._reset(self.seed)
        first = kept = copy.deepcopy(observation)
        actions: list[Any] = []
        record: list[Any] = []
        ended = False
        for step in range(1, self.steps + 1):
            self.where = f'step {step}'
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
        if not ended and not self._has_time_limit():
            self._advice.append(
                f'no episode ended in {step} steps and there is no time limit: if it may go on forever, testing '
                "never ends; build_env(env, 'gymnasium', max_episode_steps=1000) sets one."
            )
        return first, actions, record

    def _check_kept(self, observation: Any, copied: Any, method: str) -> None:
        if not _same(observation, copied):
            self.problem(
                'kept',
                f'{self.where}: {method} changed the observation that was returned before it, since all of them are '
                'one array: return a copy, such as self.state.copy().',
            )

    def _has_time_limit(self) -> bool:
        env = self.env
        while isinstance(env, gymnasium.Wrapper):
            if isinstance(env, TimeLimit):
                return True
            env = env.env
        return bool(self.env.spec and self.env.spec.max_episode_steps)

    def _check_repetition(self, first: Any, actions: list[Any], record: list[Any]) -> None:
        if not self._takes_seed:
            return
        again = self._reset(self.seed)
        if not _same(first, again):
            self.problem(
                'seed',
                f'reset(seed={self.seed}) gave another first observation the second time: '
                + (
                    'give it a method seed(seed), and draw all random numbers from what that seeds.'
                    if isinstance(self.env, OldGymEnv)
                    else 'call super().reset(seed=seed) and draw all random numbers from self.np_random.'
                ),
            )
            return
        for i, (action, expected) in enumerate(zip(actions, record, strict=True), 1):
            self.where = f'step {i}'
            found = self._step(action)
            for name, one, other in zip(
                ('observation', 'reward', 'terminated', 'truncated'), expected, found, strict=True
            ):
                if not _same(one, other):
                    self.problem(
                        'seed',
                        f'reset(seed={self.seed}) and the same actions led to another {name} in step {i} the second '
                        'time: draw all random numbers from self.np_random, and set everything back in reset().',
                    )
                    return
            if expected[2] or expected[3]:
                return

    def _check_later_resets(self) -> None:
        """Whether a seed fixes the episodes after its own as well: only then does a run that is seeded once repeat."""
        if not self._takes_seed or 'seed' in self._problems:
            return
        rounds = []
        for _ in range(2):
            self._reset(self.seed)
            rounds.append(copy.deepcopy(self._reset(None)))
        if not _same(*rounds):
            self.problem(
                'seed',
                f'reset(seed={self.seed}) and then reset() gave another observation the second time, so that runs with '
                'the same seed differ: call super().reset(seed=seed), which keeps its generator where seed is None, '
                'and use self.np_random.',
            )

    # Rendering

    def _check_rendering_modes(self) -> None:
        metadata, mode = getattr(self.env, 'metadata', None), getattr(self.env, 'render_mode', None)
        modes = metadata.get('render_modes', []) if isinstance(metadata, dict) else None
        if not isinstance(modes, (list, tuple, set)):
            self.problem(
                'metadata',
                "metadata is not a dictionary with the list 'render_modes': write metadata = {'render_modes': "
                "['rgb_array'], 'render_fps': 30} in the class.",
            )
        elif mode is not None and mode not in modes:
            self.problem(
                'render_mode', f"render_mode is {mode!r}, which metadata['render_modes'] = {modes} lacks: add it."
            )

    def _check_render(self) -> None:
        if getattr(self.env, 'render_mode', None) != 'rgb_array':
            return
        try:
            frame = self.env.render()
        except Exception as error:
            self.problem('render', f'render() raised {type(error).__name__}: {error}.')
            return
        if not (isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3):
            self.problem('render', f'render() returned {_kind(frame)}: return an array (height, width, 3) of uint8.')


def _has_text(space: Space) -> bool:
    """Whether a part of a space is text: ``Text``, or a space of sentences such as MiniGrid's."""
    if isinstance(space, (Dict, Tuple)):
        parts = space.spaces.values() if isinstance(space, Dict) else space.spaces
        return any(map(_has_text, parts))
    return getattr(space.dtype, 'kind', None) == 'U'


def _without_text(name: str, space: Space) -> str:
    parts = space.spaces.items() if isinstance(space, Dict) else ()
    texts = ', '.join(repr(key) for key, part in parts if _has_text(part))
    return (
        f'{name}{f" has the part {texts}, which" if texts else ""} is text, which no network reads: leave it out by a '
        'wrapper (for MiniGrid minigrid.wrappers.ImgObsWrapper or FlatObsWrapper) or turn it into numbers.'
    )


def _bounds(leaf: spaces.Leaf) -> tuple[Any, Any]:
    """The least and the greatest value of a leaf."""
    if isinstance(leaf, Box):
        if leaf.dtype.kind != 'f':
            return leaf.low, leaf.high
        return leaf.low.astype(np.float64), leaf.high.astype(np.float64)  # room for the slack
    if isinstance(leaf, MultiBinary):
        return 0, 1
    if isinstance(leaf, Discrete):
        return int(leaf.start), int(leaf.start) + int(leaf.n) - 1
    return leaf.start, leaf.start + leaf.nvec - 1


def _kind(x: Any) -> str:
    """What a value is, for a sentence."""
    if x is None:
        return 'None'
    if isinstance(x, np.ndarray):
        return f'an array of shape {x.shape} and {x.dtype}'
    if isinstance(x, (tuple, list)):
        return f'a {type(x).__name__} of {len(x)}'
    return f'{x!r} ({type(x).__name__})' if isinstance(x, (str, numbers.Number)) else f'a {type(x).__name__}'


def _truth(flag: Any) -> bool:
    """The truth of what should have been a bool; an array of several is true if any of it is."""
    return bool(np.any(flag))


def _same(a: Any, b: Any) -> bool:
    """Whether two observations, rewards or flags are equal in every part; NaN equals NaN."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(value, b[key]) for key, value in a.items())
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    a, b = np.asarray(a), np.asarray(b)
    return np.array_equal(a, b, equal_nan=a.dtype.kind == b.dtype.kind == 'f')
