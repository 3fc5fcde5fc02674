"""The only caller of ``env.step`` while training, for single and vector environments.

A single environment waits for ``reset`` at an episode's end; a Gymnasium vector environment resets in the same step, in
the next step, or when told. The result is always the same: ``N`` transitions, with the true final observation as
``next_obs``. No transition crosses a reset.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import AutoresetMode, VectorEnv

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import ACTION_MASK
from zoo.common.envs import answers, declared
from zoo.common.records import Episode
from zoo.common.rollouts.claims import claims
from zoo.common.rollouts.observed import Observed
from zoo.common.tools.errors import InvalidValue, NotFinite


class Collector:
    """Steps an environment and keeps the current observation.

    The attributes hold the last step. Observations stay unchanged until the step after next, so that one can be stored
    together with the next one. The next step writes over the other arrays.

    Attributes:
        obs: flat observation ``[N, …]`` to act on next.
        next_obs: flat observation ``[N, …]`` after the last step, the final one where an episode ended.
        reward: float32 ``[N]``.
        terminated, truncated: bool ``[N]``.
        valid: bool ``[N]``, False where the copy was only reset.
        begins: bool ``[N]``, True where the next step is the first one of an episode; do not write to it.
        steps: environment steps so far, summed over copies.
        finished: the episodes that ended in the last step. The loss of a life in an Atari game (``answers.LIFE_LOST``)
            is not an end.
        under_way: the call of the environment that has not returned yet, and when it began; None: none.
        next_seed: returns the seed of the next episode of a single environment; None: do not seed.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``.
        adaptor: turns stored actions into the environment's actions.
        render: call ``env.render()`` after every step.
        begin: is called with the copies, bool ``[N]``, in which a new episode begins, before its first action.

    Raises:
        ValueError: a training steps the environment; a vector environment does not say when it resets its copies.
    """

    def __init__(
        self,
        env: Env | VectorEnv,
        adaptor: ActionAdaptor,
        render: bool = False,
        begin: Callable[[np.ndarray], None] = lambda copies: None,
    ) -> None:
        self.env = env
        self.under_way: tuple[str, float] | None = None
        self.next_seed: Callable[[], int | None] = lambda: None
        claims.check_free(env)
        self.vector = isinstance(env, VectorEnv)
        self.autoreset: AutoresetMode | None = None
        if isinstance(env, VectorEnv):
            self.num_envs, self.space = env.num_envs, env.single_observation_space
            self.autoreset = answers.autoreset_mode(env)
        else:
            self.num_envs, self.space = 1, env.observation_space
        self.adaptor, self.render, self._begin = adaptor, render, begin
        self._all, self._none = np.ones(self.num_envs, bool), np.zeros(self.num_envs, bool)
        self.begins = self._all
        tell = partial(declared.tell, env)
        self._observed = Observed(self.space, self.num_envs, self.vector, adaptor.maskable, tell)
        self.reward = np.zeros(self.num_envs, np.float32)
        self.terminated = np.zeros(self.num_envs, bool)
        self.truncated = np.zeros(self.num_envs, bool)
        self.valid = np.ones(self.num_envs, bool)
        self.steps = 0
        self.finished: list[Episode] = []
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)

    @property
    def holds(self) -> bool:
        """Whether no other collector has begun episodes in this environment since this one did."""
        return claims.held_by(self.env, self)

    def shares(self, episodes: int) -> np.ndarray:
        """Divide a number of episodes among the copies, int ``[N]``, so that short episodes do not count more often."""
        found = np.full(self.num_envs, episodes // self.num_envs)
        found[: episodes % self.num_envs] += 1
        return found

    def reset(self, seed: int | None = None) -> spaces.Flat:
        """Begin new episodes in every copy; ``seed`` as in Gymnasium.

        Raises:
            ValueError, FloatingPointError: the same as :meth:`step`.
        """
        claims.hold(self.env, self)
        self.next_obs = self.obs = self._earlier = self._observed.write(self._reset(seed=seed), self.steps)
        self._check_finite(self.obs)
        self._returns[:] = 0.0
        self._lengths[:] = 0
        self.valid[:] = True
        # The copies that the next step only resets; None in other autoreset modes.
        next_step = self.autoreset == AutoresetMode.NEXT_STEP
        self._resetting = np.zeros(self.num_envs, bool) if next_step else None
        self.begins = self._all
        self._begin(self._all)
        return self.obs

    def _reset(self, **kwargs: Any) -> Any:
        self.under_way = 'a reset', time.monotonic()
        try:
            result = self.env.reset(**kwargs)
        except OverflowError as error:
            raise answers.own_fault(f'{self._who()} cannot be reset', error) from error
        self.under_way = None
        observation, info = answers.first(result, f'step {self.steps}')
        if ACTION_MASK in info and self._observed.mask is None:
            raise InvalidValue(self._unheeded('build the environment with build_env, which adds it to the observation'))
        return observation

    def step(self, action: spaces.Flat) -> None:
        """Take one step with stored actions ``[N, …]`` in every copy.

        Raises:
            ValueError: an observation of another shape than declared, with a value that its dtype cannot hold, or
                outside a discrete space; a return value of another form than Gymnasium's; a final observation that is
                missing or was written over.
            FloatingPointError: an observation or a reward that is NaN or infinite.
            TypeError: a reward that is not one number, a flag that is not a bool, an info that is not a dictionary.
        """
        self.finished.clear()
        (self._step_vector if self.vector else self._step_single)(action)
        if self.render:
            self.env.render()

    def _answer(self, result: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Return the five values of a step; refuse an action mask in ``info`` that nothing would read."""
        found = answers.step(result, self._who)
        if self._observed.mask is None and ACTION_MASK in found[4]:
            raise InvalidValue(self._unheeded('give it in the info of reset() too, for build_env'))
        return found

    def _stepped(self, action: Any) -> Any:
        """Call ``env.step``, in view of who watches how long that takes."""
        self.under_way = 'a step', time.monotonic()
        try:
            result = self.env.step(action)
        except OverflowError as error:
            raise answers.own_fault(f'{self._who()} cannot be stepped', error) from error
        self.under_way = None
        return result

    def _step_single(self, action: spaces.Flat) -> None:
        result = self._stepped(self.adaptor.to_single_env(action))
        who, observed = self._who, self._observed
        self.steps += 1
        obs, reward, terminated, truncated, info = self._answer(result)
        self.reward[0] = reward = answers.number(reward, who)
        self.terminated[0] = terminated = answers.flag('terminated', terminated, who)
        self.truncated[0] = truncated = answers.flag('truncated', truncated, who)
        self.next_obs = self.obs = observed.write(obs, self.steps)
        self._check_finite(self.obs, reward)
        self._returns[0] += reward
        self._lengths[0] += 1
        self.begins = self._none
        if terminated or truncated:
            seed = None
            if not info.get(answers.LIFE_LOST):
                self._finish(0, info.get('episode'), info.get('is_success'), info.get('success'))
                seed = self.next_seed()
            self.obs = observed.write(self._reset(seed=seed), self.steps)
            self._check_finite(self.obs)
            self.begins = self._all
            self._begin(self._all)

    def _step_vector(self, action: spaces.Flat) -> None:
        result = self._stepped(self.adaptor.to_env(action))
        resetting = self._resetting
        if resetting is None:
            self.steps += self.num_envs
        else:
            np.logical_not(resetting, out=self.valid)
            self.steps += int(self.valid.sum())
        obs, reward, terminated, truncated, info = self._answer(result)
        who, count = self._who, self.num_envs
        reward = answers.numbers(reward, count, who)
        np.copyto(self.reward, reward, casting='same_kind')
        np.copyto(self.terminated, answers.flags('terminated', terminated, count, who))
        np.copyto(self.truncated, answers.flags('truncated', truncated, count, who))
        if resetting is not None:  # the other values of these copies belong to no transition
            self.reward[resetting] = 0.0
            self.terminated[resetting] = self.truncated[resetting] = False
        before = self.obs
        self.next_obs = self.obs = self._observed.write(obs, self.steps)
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
            final = self._observed.write(obs, self.steps)
            for i in indices:
                self._observed.write_copy(final, i, self._final_obs(info, i, before), self.steps)
            self.next_obs = final
        elif self.autoreset == AutoresetMode.DISABLED:
            self._check_finite(self.next_obs)
            self.obs = self._observed.write(self._reset(options={'reset_mask': done.copy()}), self.steps)
            self._check_others(~done)

    def _final_obs(self, info: dict[str, Any], i: int, before: spaces.Flat) -> Any:
        """Return the final observation of copy ``i``, which has been reset already.

        Gymnasium's ``SyncVectorEnv`` hands on the array that the copy gave. A copy that writes every observation into
        one array has its first observation there now: the final one is lost. An array that never changes is allowed: a
        part of the observation that equals its part before, or an only array that equals the two before.
        """
        try:
            final = info['final_obs'][i]
        except (KeyError, IndexError, TypeError):
            final = None
        if final is None:
            raise InvalidValue(
                f"{self._who(i)} has ended its episode, but info['final_obs'] lacks its final observation: put it "
                'there, in an array of one object for each copy, or set another autoreset_mode.'
            )
        held = getattr(self.env.unwrapped, '_env_obs', None)
        now = [] if held is None else _arrays(held[i])
        for x in _arrays(final) if now else ():
            if any(x is y or np.may_share_memory(x, y) for y in now) and not self._stays(before, i, x):
                raise InvalidValue(
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
        """Check that the copies that were not to be reset have kept their observations."""
        for path, x in spaces.tree_items(self.obs):
            y = self.next_obs[path] if path else self.next_obs
            changed = np.flatnonzero(others & (x != y).reshape(self.num_envs, -1).any(1))
            if changed.size:
                raise InvalidValue(
                    f'{self._who(int(changed[0]))} was reset or stepped when only others were to be reset: reset only '
                    "the copies of options['reset_mask'], or set another autoreset_mode."
                )

    def _finish(self, i: int, episode: Any, *successes: Any) -> None:
        """Record the episode of copy ``i``, preferably by the environment's own account, which has unshaped rewards.

        A shorter account than the steps taken here is ignored: Gymnasium's ``RecordEpisodeStatistics`` forgets all
        copies when some are reset. A longer one is right: an Atari game goes on over several ends here.
        """
        total, length = float(self._returns[i]), int(self._lengths[i])
        told = answers.account(episode)
        if told is not None and told[1] >= length:
            total, length = told
        success = next((known for known in map(answers.success, successes) if known is not None), None)
        self.finished.append(Episode(total, length, success, int(i)))
        self._returns[i] = 0.0
        self._lengths[i] = 0

    def _check_finite(self, obs: spaces.Flat, reward: float | np.ndarray | None = None) -> None:
        """Refuse NaN and infinity in the observations, and in the stored rewards, which were given as ``reward``."""
        self._observed.check_finite(obs, self.steps)
        if reward is not None and not np.isfinite(self.reward).all():
            copy = int(np.flatnonzero(~np.isfinite(self.reward))[0])
            if not np.isfinite(given := np.ravel(reward)[copy]):
                raise self._observed.not_finite('a reward that is', self.reward, self.steps)
            raise NotFinite(
                f'{self._who(copy)} gave the reward {given}, but rewards are stored as float32, which reaches to '
                '3.4e38: divide them, as reward_shaping can.'
            )

    def _unheeded(self, mend: str) -> str:
        """Return the message for a mask that is only in ``info``, where nothing reads it."""
        lacks = 'the observation has no action_mask'
        if not self.adaptor.maskable:
            lacks, mend = f'{spaces.describe(self.adaptor.space)} actions cannot be masked', 'leave it out'
        return f"step {self.steps}: info['action_mask'] says which actions are allowed, but {lacks}: {mend}."

    def _who(self, copy: int | None = None) -> str:
        """Return the beginning of a message: the step, and the environment or one copy of it."""
        return self._observed.who(self.steps, copy)


def _arrays(x: Any) -> list[np.ndarray]:
    """Return the arrays of an observation of any form."""
    if isinstance(x, (dict, tuple, list)):
        return [array for part in (x.values() if isinstance(x, dict) else x) for array in _arrays(part)]
    return [x] if isinstance(x, np.ndarray) else []
