"""What is put around an environment: the check of its first observation, action masks, reward shaping."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, SupportsFloat, cast

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, MultiBinary, Tuple
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import Autoreset, RecordEpisodeStatistics, TimeLimit, TransformReward

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import ACTION_MASK, image_layout, is_image
from zoo.common.envs import answers


def prepare(
    env: gymnasium.Env, name: str, seed: int | None, reward_shaping: Callable[[float], float] | None
) -> gymnasium.Env:
    """Seed a new environment, check its first observation, and wrap it as far as it needs it.

    Args:
        env: the environment as its maker returned it.
        name: what error messages call it.
        seed: seed of the environment and of its action space.
        reward_shaping: a function of one reward, or None.

    Raises:
        ValueError: its first observation lies outside its space.
    """
    info = seeded_reset(env, name, seed)
    if ACTION_MASK in info and not _has_key(env.observation_space, ACTION_MASK):
        env = ActionMask(env)
    if reward_shaping is not None:
        if not (_is_recorded(env) or env.has_wrapper_attr('reports_episodes')):
            env = RecordEpisode(env, name)
        env = TransformReward(env, cast(Callable[[SupportsFloat], float], reward_shaping))
    return env


def prepare_vector(
    env: VectorEnv, name: str, seed: int | None, reward_shaping: Callable[[float], float] | None
) -> VectorEnv:
    """:func:`prepare` for an environment that is a vector environment by itself."""
    answers.autoreset_mode(env)
    info = seeded_reset(env, name, seed)
    if ACTION_MASK in info and not _has_key(env.single_observation_space, ACTION_MASK):
        env = VectorActionMask(env)
    return env if reward_shaping is None else ShapeVectorReward(env, reward_shaping)


def seeded_reset(env: gymnasium.Env | VectorEnv, name: str, seed: int | None) -> dict[str, Any]:
    """Seed the environment and its action space, check the observation, and return ``info``.

    Raises:
        ValueError: ``reset`` did not return an observation of its space together with an ``info`` dictionary.
    """
    observation, info = answers.first(env.reset(seed=seed), name)
    env.action_space.seed(seed)
    declared = declared_leaves(env.observation_space)
    if declared is not None:
        check_observation(env.observation_space, observation, name, declared)
    return info


def declared_leaves(space: Space) -> dict[str, spaces.Leaf] | None:
    """The leaves of a space, or None for one without a fixed-size array form, which an agent's constructor refuses."""
    try:
        return spaces.leaves(space)
    except TypeError:
        return None


def check_observation(space: Space, observation: Any, name: str, declared: Mapping[str, Space]) -> None:
    """Compare the structure, shapes and dtypes of an observation with its space.

    A dtype fits when it can be cast without loss, as for ``space.contains``; bounds are not looked at, because many
    environments overstep theirs by a little.

    Args:
        space: the observation space.
        observation: what the environment gave.
        name: what error messages call it.
        declared: the leaves of the space.

    Raises:
        ValueError: one sentence that names the environment, the leaf, what was declared and what was found.
    """
    try:
        flat = spaces.flatten(space, observation)
    except TypeError as error:
        raise ValueError(f'{name}: in the observation {error}') from error
    for path, found in spaces.tree_items(flat):
        leaf, found = declared[path], np.asarray(found)
        if found.shape != leaf.shape or not _fits(found.dtype, leaf):
            part = f' {path!r}' if path else ''
            mend = f'return x.astype(np.{leaf.dtype})' if found.shape == leaf.shape else 'change one of the two'
            raise ValueError(
                f'{name}: the observation{part} has shape {found.shape} and dtype {found.dtype}, '
                f'but its space declares shape {leaf.shape} and dtype {leaf.dtype}: {mend}.'
            )


def _fits(dtype: np.dtype, leaf: Space) -> bool:
    if isinstance(leaf, Box):
        return np.can_cast(dtype, leaf.dtype)
    return dtype.kind in ('biu' if isinstance(leaf, MultiBinary) else 'iu')


class ActionMask(gymnasium.Wrapper):
    """Moves ``info['action_mask']`` into the observation, where the agent finds it.

    The observation becomes ``Dict(obs=<the original>, action_mask=MultiBinary(n))``; one that is a ``Dict`` already
    keeps its keys and gains ``action_mask``. The mask is int8 ``[n]``, 1 where an action is allowed. For
    ``Discrete(n)`` it has one entry per action; for ``MultiDiscrete`` the entries of its components follow each other,
    ``n = sum(nvec)`` (a tuple of one mask per component is joined); for ``MultiBinary(n)`` one for each switch, 0 where
    it has to stay off. A step that ends the task (``terminated``) may do without: nothing is chosen after it.

    Raises:
        TypeError: the action space is none of these.
        ValueError: a mask is missing, or of another length, or not of zeros and ones.
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
    """:class:`ActionMask` for an environment that is a vector environment by itself, whatever its autoreset mode.

    ``info['action_mask']`` holds the mask of each copy, ``[N, n]``. Where copies are reset in the step that ended their
    episode, it is that of the new episode, and ``info['final_info']['action_mask']`` the one of the end.

    Raises:
        TypeError, ValueError: see :class:`ActionMask`.
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
        observation, info = self.env.reset(seed=cast(Any, seed), options=options)  # a list where the copies take one
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
    """The number of entries of a mask for these actions.

    Raises:
        TypeError: they cannot be masked.
    """
    adaptor = ActionAdaptor(action_space)
    if not adaptor.maskable:
        raise TypeError(
            'an action_mask needs a Discrete, MultiDiscrete or MultiBinary action space, not '
            f'{spaces.describe(action_space)}: leave it out of info.'
        )
    return adaptor.parts[0].outputs


def as_mask(mask: Any, length: int, is_needed: bool, who: Callable[[], str]) -> np.ndarray:
    """A mask from ``info`` as int8 ``[length]``; where it is missing and not needed, all ones.

    Raises:
        ValueError: it is missing, or of another length, or not of zeros and ones.
    """
    if mask is None:
        if is_needed:
            raise ValueError(
                f"{who()}: info['action_mask'] is missing, which reset() gave first: give it with every observation."
            )
        return np.ones(length, np.int8)
    if isinstance(mask, (tuple, list)):
        mask = np.concatenate([np.ravel(part) for part in mask]) if mask else ()
    mask = np.asarray(mask)
    if mask.size != length or not mask.shape:
        raise ValueError(f"{who()}: info['action_mask'] has the shape {mask.shape}, but its actions need ({length},).")
    if mask.dtype != bool and not (mask.dtype.kind in 'iuf' and ((mask == 0) | (mask == 1)).all()):
        for value in mask.ravel().tolist():
            if value not in (0, 1):
                raise ValueError(
                    f"{who()}: info['action_mask'] has the value {value!r}: 1 allows an action, and 0 forbids it."
                )
    return mask.ravel().astype(np.int8)


def _masked_space(space: Space, length: int) -> Dict:
    return Dict({**(space.spaces if isinstance(space, Dict) else {'obs': space}), ACTION_MASK: MultiBinary(length)})


def _add_mask(observation: Any, mask: np.ndarray, is_dict: bool) -> dict[str, Any]:
    return {**observation, ACTION_MASK: mask} if is_dict else {'obs': observation, ACTION_MASK: mask}


#: Parts of an observation of which none are stacked.
_KEPT = (ACTION_MASK, 'achieved_goal', 'desired_goal')


class StackFrames(gymnasium.Wrapper):
    """Stacks the last ``frames`` values of parts of the observation, oldest first; each observation is a new array.

    Those of an image are behind each other in its last axis, channels last whatever the order they came in (see
    :class:`zoo.common.spaces.FrameStack`); those of another ``Box`` side by side in a vector. In the first observation
    of an episode all are the first one. Goals and an action mask stay as they are, and so do parts that are no ``Box``.

    Args:
        env: its observation is an image, or a ``Dict`` or ``Tuple`` with images among its parts.
        frames: how many; with 1 the observations stay as they are.
        vectors: whether every other ``Box`` is stacked, too.
    """

    def __init__(self, env: gymnasium.Env, frames: int, vectors: bool = False) -> None:
        super().__init__(env)
        if isinstance(frames, bool) or not isinstance(frames, int) or frames < 1:
            raise ValueError(f'frame_stack is {frames!r}: give the number of frames, a whole number from 1 on.')
        self._frames = frames
        self._inner = env.observation_space
        #: By path of what is stacked the form that one of it is brought into.
        self._forms: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
        leaves: dict[str, Space] = {**spaces.leaves(self._inner)}
        for path, leaf in leaves.items():
            if not isinstance(leaf, Box) or path in _KEPT or frames == 1:
                continue
            form: Callable[[np.ndarray], np.ndarray] = np.ravel
            if is_image(leaf):
                form = functools.partial(_channels_last, first=image_layout(leaf)[-1])
                leaves[path] = spaces.FrameStack(spaces.rearranged(leaf, form), frames)
            elif vectors:
                leaves[path] = spaces.rearranged(leaf, lambda x: np.tile(np.ravel(x), frames))
            else:
                continue
            self._forms[path] = form
        self.observation_space = _replace_leaves(self._inner, leaves)
        self._last: dict[str, np.ndarray] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._last.clear()
        return self._stack(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *rest = self.env.step(action)
        return self._stack(observation), *rest

    def _stack(self, observation: Any) -> Any:
        if not self._forms:
            return observation
        flat = dict(spaces.tree_items(spaces.flatten(self._inner, observation)))
        for path, form in self._forms.items():
            new, last = form(flat[path]), self._last.get(path)
            flat[path] = self._last[path] = np.tile(new, self._frames) if last is None else push_frame(last, new)
        return spaces.unflatten(self.observation_space, spaces.from_items(self._inner, flat))


def _channels_last(image: np.ndarray, first: bool) -> np.ndarray:
    """An image as ``[height, width, channels]``, from ``[height, width]``, too."""
    if image.ndim == 2:
        return image[..., None]
    return np.moveaxis(image, 0, -1) if first else image


#: Entries of the observation that are not velocities, by the class of the environment.
POSITIONS = {'CartPoleEnv': (0, 2), 'PendulumEnv': (0, 1), 'LunarLander': (0, 1, 4, 6, 7)}


class HideVelocity(gymnasium.Wrapper):
    """Leaves the velocities out of the observation, which then does not say all that matters: a test of memory.

    Args:
        env: CartPole, Pendulum or LunarLander.

    Raises:
        ValueError: another environment.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        name = type(env.unwrapped).__name__
        if name not in POSITIONS or not isinstance(env.observation_space, Box):
            raise ValueError(
                f'hide_velocity=True is for CartPole, Pendulum and LunarLander, but this is {name}, of which it is not '
                'known what in the observation are velocities: leave it out, or wrap the environment yourself.'
            )
        self._kept = np.array(POSITIONS[name])
        space = env.observation_space
        self.observation_space = Box(space.low[self._kept], space.high[self._kept], dtype=space.dtype.type)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return np.asarray(observation)[self._kept], info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *rest = self.env.step(action)
        return np.asarray(observation)[self._kept], *rest


def viewed(make: Callable[..., Any], hide_velocity: bool = False, frame_stack: int = 1, **kwargs: Any) -> Any:
    """What ``make(**kwargs)`` makes, with velocities hidden and with observations stacked.

    Raises:
        ValueError: an environment of which velocities are not known, a vector environment, nothing to stack.
    """
    env = make(**kwargs)
    try:
        if isinstance(env, VectorEnv):
            raise ValueError(
                'hide_velocity and frame_stack are for single environments and copies of them, not for a VectorEnv '
                'object: wrap what it is made of.'
            )
        if hide_velocity:
            env = HideVelocity(env)
        if frame_stack != 1:
            inner = env.observation_space
            env = StackFrames(env, frame_stack, vectors=True)
            if env.observation_space == inner:
                raise ValueError(f'frame_stack={frame_stack} finds no Box to stack in {spaces.describe(inner)}.')
    except ValueError:
        env.close()
        raise
    return env


def push_frame(stack: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """A new stack ``[…, frames * channels]`` without its oldest frame and with ``[…, channels]`` as its newest.

    A vector is all channels.

    All is moved as one run of memory, of which the newest frame's places are then written over: six times as fast as
    to move each pixel's few channels by themselves.
    """
    channels = frame.shape[-1]
    pushed = np.empty(stack.size, stack.dtype)
    pushed[:-channels] = stack.reshape(-1)[channels:]
    pushed = pushed.reshape(stack.shape)
    pushed[..., -channels:] = frame
    return pushed


def _replace_leaves(space: Space, leaves: Mapping[str, Space], prefix: str = '') -> Space:
    if spaces.is_leaf(space):
        return leaves[prefix]
    parts: Iterable[tuple[Any, Space]]
    parts = space.spaces.items() if isinstance(space, Dict) else enumerate(cast(Tuple, space).spaces)
    replaced: dict[Any, Space] = {
        key: _replace_leaves(part, leaves, f'{prefix}/{key}' if prefix else str(key)) for key, part in parts
    }
    return Dict(replaced) if isinstance(space, Dict) else Tuple(list(replaced.values()))


class RecordEpisode(gymnasium.Wrapper):
    """Puts the return and length of each finished episode into ``info['episode']``, ``{'r': float, 'l': int}``.

    It writes them over what an environment has under that name: that may be of another form, or of rewards that are
    not those seen here. (Gymnasium's ``RecordEpisodeStatistics`` allows no such name.)

    Args:
        env: the environment.
        name: what error messages call it.
    """

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        super().__init__(env)
        self._name = name
        self._return, self._length = 0.0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._return, self._length = 0.0, 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = answers.step(self.env.step(action), self._who)
        reward = answers.number(reward, self._who)
        self._return += reward
        self._length += 1
        if answers.flag('terminated', terminated, self._who) or answers.flag('truncated', truncated, self._who):
            info = info | {'episode': {'r': self._return, 'l': self._length}}
        return observation, reward, terminated, truncated, info

    def _who(self) -> str:
        return f'{self._name}: the environment'


class ShapeVectorReward(VectorWrapper):
    """Applies ``function`` to every reward, and reports each finished episode's unshaped return and length.

    An environment whose attribute ``reports_episodes`` is true reports them itself.

    They are in ``info['final_info']['episode']``, where single copies have them, when the environment resets copies in
    the step that ended their episode, else in ``info['episode']``: ``{'r': float64 [n], 'l': int64 [n]}``. (Gymnasium's
    own ``RecordEpisodeStatistics`` loses a step per episode in the first of these cases in its version 1.2.)

    Args:
        env: a vector environment.
        function: a function of one reward.
    """

    def __init__(self, env: VectorEnv, function: Callable[[float], float]) -> None:
        super().__init__(env)
        self._function = function
        self._autoreset_mode = answers.autoreset_mode(env)
        self._returns, self._lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64)
        self._ended = np.zeros(env.num_envs, np.bool_)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        which = (options or {}).get('reset_mask', slice(None))
        self._returns[which], self._lengths[which], self._ended[which] = 0, 0, False
        return self.env.reset(seed=cast(Any, seed), options=options)  # as above

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(actions)
        reward = answers.numbers(reward, self.num_envs, self._who)
        same_step = self._autoreset_mode == AutoresetMode.SAME_STEP
        self._returns[self._ended] = self._lengths[self._ended] = 0
        # With NEXT_STEP this one only reset the copies that had ended: what else they say belongs to no transition.
        stepped = ~self._ended if self._autoreset_mode == AutoresetMode.NEXT_STEP else np.ones(self.num_envs, np.bool_)
        np.add(self._returns, reward, out=self._returns, where=stepped)
        self._lengths += stepped
        self._ended = (np.asarray(terminated, bool) | np.asarray(truncated, bool)) & stepped
        if self._ended.any() and not getattr(self.env, 'reports_episodes', False):
            where = info.setdefault('final_info', {}) if same_step else info
            where['episode'] = {
                key: np.where(self._ended, kept, 0) for key, kept in (('r', self._returns), ('l', self._lengths))
            }
            where['_episode'] = self._ended.copy()
        return observation, self.shaped(reward), terminated, truncated, info

    def shaped(self, reward: np.ndarray) -> np.ndarray:
        """What training sees of rewards ``[n]``: float64 ``[n]``."""
        return np.array([self._function(value) for value in reward.tolist()], np.float64)

    def _who(self, i: int | None = None) -> str:
        return f'{type(self.unwrapped).__name__}: {"the environment" if i is None else f"copy {i}"}'


#: Wrappers that hand observations on as they are, or in a new dictionary.
_HANDING_ON = ('PassiveEnvChecker', 'OrderEnforcing', 'TimeLimit', 'RecordEpisodeStatistics', 'TransformReward')


def needs_copy(env: gymnasium.Env) -> bool:
    """Whether somebody else than Gymnasium wrote the environment, or something around it may change observations."""
    while isinstance(env, gymnasium.Wrapper):
        known = type(env).__module__.startswith('gymnasium.wrappers.') and type(env).__name__ in _HANDING_ON
        if not (known or isinstance(env, ActionMask | RecordEpisode)):
            return True
        env = env.env
    return not type(env).__module__.startswith('gymnasium.envs.')


class Copy(gymnasium.Wrapper):
    """One copy among several of an environment: what a vector environment would hide is seen to here.

    It would cast an observation of another dtype silently, and say of one of another shape only that some array has the
    wrong shape; and as it resets a copy in the step that ended its episode, an environment that writes all its
    observations into one array would overwrite the final one. (Gymnasium's own environments do none of this, and are
    spared the extra call where nothing is around them that might: see :func:`needs_copy`.)

    Args:
        env: the environment.
        name: what error messages call it.
    """

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        super().__init__(env)
        self._name = name
        self._steps = 0
        self._leaves = declared_leaves(env.observation_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = answers.first(self.env.reset(seed=seed, options=options), self._who())
        self._check(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._steps += 1
        observation, reward, terminated, truncated, info = answers.step(result, self._who)
        self._check(observation)
        reward = answers.number(reward, self._who)
        terminated = answers.flag('terminated', terminated, self._who)
        truncated = answers.flag('truncated', truncated, self._who)
        if terminated or truncated:
            observation = copy.deepcopy(observation)
        return observation, reward, terminated, truncated, info

    def _check(self, observation: Any) -> None:
        if self._leaves is not None:
            check_observation(self.observation_space, observation, self._who(), self._leaves)

    def _who(self) -> str:
        return f'step {self._steps}: {self._name}'


def _has_key(space: Space, key: str) -> bool:
    return isinstance(space, Dict) and key in space.spaces


#: What these do in a step leaves its flags alone.
_PLAIN_STEPS = tuple(
    kind.step
    for kind in (gymnasium.Wrapper, gymnasium.ObservationWrapper, gymnasium.RewardWrapper, gymnasium.ActionWrapper)
)


def _is_recorded(env: gymnasium.Env) -> bool:
    """Whether Gymnasium's recorder is around the environment, and outside of all wrappers that may end an episode."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, RecordEpisodeStatistics) and getattr(env, '_stats_key', '') == 'episode':
            return True
        known = type(env).__module__.startswith('gymnasium.wrappers.') and not isinstance(env, TimeLimit | Autoreset)
        if not (known or isinstance(env, ActionMask | StackFrames) or type(env).step in _PLAIN_STEPS):
            return False
        env = env.env
    return False
