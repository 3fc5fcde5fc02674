"""The only caller of ``env.step`` while training, for single and vector environments alike.

Whatever the environment does at an episode's end (a single one waits for ``reset``; a Gymnasium vector environment
resets in the same step, in the next one, or when told), what comes out is the same: ``N`` transitions whose
``next_obs`` is the true final observation, with terminated and truncated kept apart, and none that crosses a reset.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import ACTION_MASK
from zoo.common.envs import answers
from zoo.common.records import Episode

#: What every environment consists of that a training steps at the moment.
_in_training: list[Any] = []

#: By the identity of such an environment, who began its episodes last; the collector keeps it alive.
_holders: weakref.WeakValueDictionary[int, Collector] = weakref.WeakValueDictionary()


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
        begins: bool ``[N]``, True where the next step is the first one of an episode; not to be written to.
        steps: environment steps so far, summed over copies.
        finished: the episodes that ended in the last step. An end that is only a part of a longer game, which the
            library's own Atari games mark (``answers.LIFE_LOST``), is not among them.
        next_seed: gives the seed of an environment's next episode, where there is a single one; None seeds nothing.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``.
        adaptor: turns stored actions into the environment's.
        render: call ``env.render()`` after every step.
        begin: told of the copies, bool ``[N]``, in which a new episode begins, before its first action.

    Raises:
        ValueError: the environment is being trained on, by whoever is about to step it here too; a vector environment
            does not say when it resets its copies.
    """

    def __init__(
        self,
        env: Env | VectorEnv,
        adaptor: ActionAdaptor,
        render: bool = False,
        begin: Callable[[np.ndarray], None] = lambda copies: None,
    ) -> None:
        self.env = env
        self.next_seed: Callable[[], int | None] = lambda: None
        self.check_free()
        self.vector = isinstance(env, VectorEnv)
        self.autoreset: AutoresetMode | None = None
        if isinstance(env, VectorEnv):
            self.num_envs, self.space = env.num_envs, env.single_observation_space
            self.autoreset = answers.autoreset_mode(env)
        else:
            self.num_envs, self.space = 1, env.observation_space
        self.adaptor = adaptor
        self.render = render
        self._begin = begin
        self._all, self._none = np.ones(self.num_envs, bool), np.zeros(self.num_envs, bool)
        self.begins = self._all
        self._leaves = spaces.leaves(self.space)
        self._float_leaves = [p for p, leaf in self._leaves.items() if np.issubdtype(leaf.dtype, np.floating)]
        self._mask = ACTION_MASK if ACTION_MASK in self._leaves else None
        self._ranges = {p: _range(leaf) for p, leaf in self._leaves.items() if not isinstance(leaf, Box)}
        if self._mask and adaptor.maskable:
            self._ranges[ACTION_MASK] = 0, 1
        # Up to two are written in a step, and those of the two steps before are still looked at.
        self._spare = deque(spaces.zeros(self.space, (self.num_envs,)) for _ in range(6))
        self.reward = np.zeros(self.num_envs, np.float32)
        self.terminated = np.zeros(self.num_envs, bool)
        self.truncated = np.zeros(self.num_envs, bool)
        self.valid = np.ones(self.num_envs, bool)
        self.steps = 0
        self.finished: list[Episode] = []
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)

    def check_free(self) -> None:
        """Refuse an environment that a training steps.

        Raises:
            ValueError: it is being trained on.
        """
        if any(base is other for base in _bases(self.env) for other in _in_training):
            raise ValueError(
                'this environment is being trained on, and its episodes under way would be cut and mixed with others: '
                'build a second one with build_env for what a callback does.'
            )

    @property
    def holds(self) -> bool:
        """Whether no other collector has begun episodes in this environment since this one did."""
        return all(_holders.get(id(base)) is self for base in _bases(self.env))

    def reset(self, seed: int | None = None) -> spaces.Flat:
        """Begin new episodes in every copy; ``seed`` as in Gymnasium.

        Raises:
            ValueError, FloatingPointError: see :meth:`step`.
        """
        _holders.update({id(base): self for base in _bases(self.env)})
        self.next_obs = self.obs = self._earlier = self._write(self._reset(seed=seed))
        self._check_finite(self.obs)
        self._returns[:] = 0.0
        self._lengths[:] = 0
        self.valid[:] = True
        # The copies that are only reset in the next step; None where they never are.
        next_step = self.autoreset == AutoresetMode.NEXT_STEP
        self._resetting = np.zeros(self.num_envs, bool) if next_step else None
        self.begins = self._all
        self._begin(self._all)
        return self.obs

    def _reset(self, **kwargs: Any) -> Any:
        observation, info = answers.first(self.env.reset(**kwargs), f'step {self.steps}')
        if ACTION_MASK in info and self._mask is None:
            raise ValueError(self._unheeded('build the environment with build_env, which makes it a part of that'))
        return observation

    def step(self, action: spaces.Flat) -> None:
        """Take one step with stored actions ``[N, …]`` in every copy.

        Raises:
            ValueError: an observation outside its declared shape or dtype, or outside a space that says which values
                there are; an answer that is no step or no reset; a final observation that is missing or overwritten.
            FloatingPointError: an observation or a reward that is NaN or infinite.
            TypeError: a reward that is not one number, a flag that is no truth, an info that is no dictionary.
        """
        self.finished.clear()
        (self._step_vector if self.vector else self._step_single)(action)
        if self.render:
            self.env.render()

    def _answer(self, result: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """The five values of a step, whose ``info`` has no mask that nothing would act by."""
        found = answers.step(result, self._who)
        if self._mask is None and ACTION_MASK in found[4]:
            raise ValueError(self._unheeded('give it in the info of reset() too, for build_env'))
        return found

    def _step_single(self, action: spaces.Flat) -> None:
        result = self.env.step(self.adaptor.to_single_env(action))
        self.steps += 1
        obs, reward, terminated, truncated, info = self._answer(result)
        reward = answers.number(reward, self._who)
        terminated = answers.flag('terminated', terminated, self._who)
        truncated = answers.flag('truncated', truncated, self._who)
        self.reward[0] = reward
        self.terminated[0] = terminated
        self.truncated[0] = truncated
        self.next_obs = self.obs = self._write(obs)
        self._check_finite(self.next_obs, reward)
        self._returns[0] += reward
        self._lengths[0] += 1
        self.begins = self._none
        if terminated or truncated:
            seed = None
            if not info.get(answers.LIFE_LOST):
                self._finish(0, info.get('episode'), info.get('is_success'), info.get('success'))
                seed = self.next_seed()
            self.obs = self._write(self._reset(seed=seed))
            self._check_finite(self.obs)
            self.begins = self._all
            self._begin(self._all)

    def _step_vector(self, action: spaces.Flat) -> None:
        result = self.env.step(self.adaptor.to_env(action))
        resetting = self._resetting
        if resetting is None:
            self.steps += self.num_envs
        else:
            np.logical_not(resetting, out=self.valid)
            self.steps += int(self.valid.sum())
        obs, reward, terminated, truncated, info = self._answer(result)
        reward = answers.numbers(reward, self.num_envs, self._who)
        np.copyto(self.reward, reward, casting='same_kind')
        np.copyto(self.terminated, answers.flags('terminated', terminated, self.num_envs, self._who))
        np.copyto(self.truncated, answers.flags('truncated', truncated, self.num_envs, self._who))
        if resetting is not None:  # what else those copies say belongs to no transition
            self.reward[resetting] = 0.0
            self.terminated[resetting] = self.truncated[resetting] = False
        before = self.obs
        self.next_obs = self.obs = self._write(obs)
        if resetting is None:
            self._returns += reward
        else:
            np.add(self._returns, reward, out=self._returns, where=self.valid)
        self._lengths += self.valid
        done = self.terminated | self.truncated
        if done.any():
            self._end_episodes(done, obs, info, before)
        self._earlier = before
        begun = done
        if resetting is not None:
            begun, self._resetting = resetting, done
        self.begins = begun
        if begun.any():
            self._begin(begun)
        self._check_finite(self.next_obs, reward)
        if self.obs is not self.next_obs:
            self._check_finite(self.obs)

    def _end_episodes(self, done: np.ndarray, obs: Any, info: dict[str, Any], before: spaces.Flat) -> None:
        indices = np.flatnonzero(done).tolist()
        same_step = self.autoreset == AutoresetMode.SAME_STEP
        final_info = info.get('final_info') if same_step else info
        for i in indices:
            if answers.of_copy(final_info, answers.LIFE_LOST, i):
                continue
            told = (answers.of_copy(final_info, key, i) for key in ('episode', 'is_success', 'success'))
            self._finish(i, *told)
        if same_step:
            final = self._write(obs)
            for i in indices:
                self._write_copy(final, i, self._final_obs(info, i, before))
            self.next_obs = final
        elif self.autoreset == AutoresetMode.DISABLED:
            self._check_finite(self.next_obs)
            self.obs = self._write(self._reset(options={'reset_mask': done.copy()}))
            self._check_others(~done)

    def _final_obs(self, info: dict[str, Any], i: int, before: spaces.Flat) -> Any:
        """The final observation of copy ``i``, which is reset already.

        Gymnasium's ``SyncVectorEnv`` hands on the array that the copy gave. Where that is the very one in which its
        first observation is now, and not a part that stays the same, the final one is lost. (An observation of one
        array has no such part, so there the two before have to be the same, too.)
        """
        try:
            final = info['final_obs'][i]
        except (KeyError, IndexError, TypeError):
            final = None
        if final is None:
            raise ValueError(
                f"{self._who(i)} has ended its episode, but info['final_obs'] does not hold its final observation: put "
                'it there, in an array of one object for each copy, or set another autoreset_mode.'
            )
        held = getattr(self.env.unwrapped, '_env_obs', None)
        now = [] if held is None else _arrays(held[i])
        for x in _arrays(final) if now else ():
            if any(x is y or np.may_share_memory(x, y) for y in now) and not self._stays(before, i, x):
                raise ValueError(
                    f'{self._who(i)} wrote its first observation over the final observation of the episode before: '
                    'return a copy from step() and reset(), such as self.state.copy(), or give build_env a function '
                    'that makes one copy of it.'
                )
        return final

    def _stays(self, before: spaces.Flat, i: int, x: np.ndarray) -> bool:
        if spaces.is_leaf(self.space):
            return np.array_equal(before[i], x) and np.array_equal(self._earlier[i], x)
        return any(np.array_equal(part[i], x) for _, part in spaces.tree_items(before))

    def _check_others(self, others: np.ndarray) -> None:
        """The copies that were not to be reset have the observations that they had."""
        for path, x in spaces.tree_items(self.obs):
            y = self.next_obs[path] if path else self.next_obs
            changed = np.flatnonzero(others & (x != y).reshape(self.num_envs, -1).any(1))
            if changed.size:
                raise ValueError(
                    f'{self._who(int(changed[0]))} was reset too, or stepped, when others were: reset only the copies '
                    "of options['reset_mask'], or set another autoreset_mode."
                )

    def _finish(self, i: int, episode: Any, *successes: Any) -> None:
        """Record the episode of copy ``i``; an environment's own account (unshaped rewards) goes before ours.

        Not one that is shorter than the steps that were taken here: whoever keeps it forgot some of them, as
        Gymnasium's ``RecordEpisodeStatistics`` does of all copies where only some are reset. (One may be longer: a
        game of Atari goes on over several ends here.)
        """
        total, length = float(self._returns[i]), int(self._lengths[i])
        told = answers.account(episode)
        if told is not None and told[1] >= length:
            total, length = told
        known = [success for success in map(answers.success, successes) if success is not None]
        self.finished.append(Episode(total, length, known[0] if known else None, int(i)))
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
                if path in self._ranges:
                    self._check_range(path, value)
                target[...] = value
        else:
            self._write_copy(buffer, 0, obs)
        return buffer

    def _write_copy(self, buffer: spaces.Flat, i: int, obs: Any) -> None:
        flat = self._flatten(obs)
        for path, target in spaces.tree_items(buffer):
            value = flat[path] if path else flat
            self._check_declared(path, value, target[i])
            if path in self._ranges:
                self._check_range(path, value, i)
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

    def _check_range(self, path: str, value: Any, i: int | None = None) -> None:
        """Every entry is one of the values that its space has: acting and learning would read another one each in a way
        of its own."""
        low, high = self._ranges[path]
        if value.__class__ not in (int, np.ndarray):
            value = np.asarray(value)
        is_mask = path == self._mask and self.adaptor.maskable
        outside = (value != low) & (value != high) if is_mask else (value < low) | (value > high)
        if outside is False or not (outside is True or outside.any()):
            return
        value, outside = np.asarray(value), np.asarray(outside)  # of a number
        at = np.unravel_index(np.argmax(outside), outside.shape)
        copy, entry = (i, at) if i is not None else (int(at[0]), at[1:])
        low, high = (np.broadcast_to(bound, spaces.shape_of(self._leaves[path]))[entry] for bound in (low, high))
        where = f' in entry {", ".join(map(str, map(int, entry)))}' if entry else ''
        wrong = (
            '1 allows an action, and 0 forbids it'
            if is_mask
            else f'its space reaches from {low} to {high}: mend the one or the other'
        )
        raise ValueError(
            f'{self._who(copy)} gave an observation {path and f"{path!r} "}with the value {value[at]}{where}, but '
            f'{wrong}.'
        )

    def _check_finite(self, obs: spaces.Flat, reward: float | np.ndarray | None = None) -> None:
        """No NaN and no infinity in the observations nor, as they are stored here, the rewards, which are ``reward`` as
        they were given."""
        for path in self._float_leaves:
            x = obs[path] if path else obs
            if not np.isfinite(x).all():
                raise FloatingPointError(self._not_finite(f'an observation {path and f"{path!r} "}that is', x))
        if reward is not None and not np.isfinite(self.reward).all():
            copy = int(np.flatnonzero(~np.isfinite(self.reward))[0])
            given = np.ravel(reward)[copy]
            if not np.isfinite(given):
                raise FloatingPointError(self._not_finite('a reward that is', self.reward))
            raise FloatingPointError(
                f'{self._who(copy)} gave the reward {given}, but rewards are stored as float32, which reaches to '
                '3.4e38: divide them, as reward_shaping can.'
            )

    def _not_finite(self, what: str, values: np.ndarray) -> str:
        finite = np.isfinite(values).reshape(self.num_envs, -1)
        copy = int(np.flatnonzero(~finite.all(1))[0])
        value = values.reshape(self.num_envs, -1)[copy][~finite[copy]][0]
        return f'{self._who(copy)} gave {what} {value}.'

    def _unheeded(self, mend: str) -> str:
        """That a mask is in ``info`` alone, where nothing acts by it."""
        lacks = 'the observation has no such part'
        if not self.adaptor.maskable:
            lacks, mend = f'{spaces.describe(self.adaptor.space)} actions cannot be masked', 'leave it out'
        return f"step {self.steps}: info['action_mask'] says which actions are allowed, but {lacks}: {mend}."

    def _who(self, copy: int | None = None) -> str:
        """The beginning of a sentence on what the environment, or a copy of it, has done in this step."""
        return f'step {self.steps}: {f"copy {copy} of " if self.vector and copy is not None else ""}the environment'


def _range(leaf: Space) -> tuple[Any, Any]:
    """The least and the greatest value of a leaf that is no ``Box``."""
    if isinstance(leaf, Discrete):
        return int(leaf.start), int(leaf.start) + int(leaf.n) - 1
    return (leaf.start, leaf.start + leaf.nvec - 1) if isinstance(leaf, MultiDiscrete) else (0, 1)


def _arrays(x: Any) -> list[np.ndarray]:
    """The arrays that an observation of any form is made of."""
    if isinstance(x, (dict, tuple, list)):
        return [array for part in (x.values() if isinstance(x, dict) else x) for array in _arrays(part)]
    return [x] if isinstance(x, np.ndarray) else []
