"""Goal environments: their rewards for any goal, as hindsight experience replay needs them.

Hindsight experience replay (Andrychowicz et al. 2017, arXiv 1707.01495) learns from a transition for other goals, too.
A fraction ``k / (k + 1)`` of the transitions drawn from the replay buffer get a goal that the same episode reached
later, and the reward for that goal. (Algorithm 1 of the paper stores ``k`` such transitions for each original one. Here
they are made when they are drawn: nothing is stored twice, and the goals differ each time.)

A *goal environment* has observations ``Dict(observation, achieved_goal, desired_goal)``, with goals of one shape, and a
method ``compute_reward(achieved_goal, desired_goal, info)`` for the goal that the step achieved. If it has
``compute_terminated`` too, that says whether the step ended the episode; else ``terminated`` stays as stored. (This is
the interface of ``gymnasium_robotics.core.GoalEnv``.) ``info`` is not stored: both are called with an empty dict. The
first draw checks that they give what stored steps had, so that no wrapper and no need of ``info`` is overlooked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env, Space
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorRewardWrapper, VectorWrapper

from zoo.common import spaces
from zoo.common.envs.about import about
from zoo.common.envs.wrappers.rewards import ShapeVectorReward
from zoo.common.tools.errors import InvalidValue

OBSERVATION, ACHIEVED, DESIRED = 'observation', 'achieved_goal', 'desired_goal'
#: So many pairs of goals are computed both at once and one by one, to compare.
_PROBED = 32
#: The part of the stored steps that may differ: a distance close to the threshold is rounded to either side.
_TOLERATED = 0.1
#: Goals nearer or farther by this part are computed too, since stored goals may be rounded.
_NEARLY = 1e-4


def refusal(space: Space) -> str | None:
    """Return why no goal environment has this observation space, the end of a sentence; None if one has."""
    if not isinstance(space, Dict) or set(space.spaces) != {OBSERVATION, ACHIEVED, DESIRED}:
        return f'its observations are {spaces.describe(space)}, not a Dict of {OBSERVATION}, {ACHIEVED} and {DESIRED}'
    achieved, desired = space.spaces[ACHIEVED], space.spaces[DESIRED]
    for name, goal in ((ACHIEVED, achieved), (DESIRED, desired)):
        if not spaces.is_leaf(goal) or isinstance(goal, spaces.FrameStack):
            return f'its {name} is {spaces.describe(goal)}, not one array that is stored as it is'
    alike = achieved.shape == desired.shape if isinstance(achieved, Box) else achieved == desired
    if type(achieved) is not type(desired) or not alike:
        return f'its {ACHIEVED} is {spaces.describe(achieved)}, but its {DESIRED} {spaces.describe(desired)}'
    return None


class Goals:
    """The rewards of a goal environment for any goals, through all its wrappers; it is never stepped.

    The outermost ``compute_reward`` counts, and each ``RewardWrapper`` around it, ``reward_shaping`` too, changes its
    rewards. Copies in this process are alike, so the first is asked. For copies in other processes, one more is made
    here. Any other vector environment is asked itself, with goals ``[n, …]`` for any ``n``.

    Raises:
        ValueError: it is not a goal environment.
    """

    def __init__(self, env: Env | VectorEnv) -> None:
        self._made: Env | None = None
        self.name = about(env).name
        why = refusal(env.single_observation_space if isinstance(env, VectorEnv) else env.observation_space)
        if why is not None:
            raise InvalidValue(self._refused(why))
        self._shaping: list[Callable[[np.ndarray], Any]] = []
        functions: dict[str, Callable[..., Any]] = {}
        for layer in self._layers(env):
            for name in ('compute_reward', 'compute_terminated'):
                function = _own(layer, name)
                if function is not None and name not in functions:
                    functions[name] = function
            if 'compute_reward' not in functions:
                self._shaping += _shaping(layer)
        if 'compute_reward' not in functions:
            self.close()
            raise InvalidValue(self._refused('it has no method compute_reward(achieved_goal, desired_goal, info)'))
        self._reward = _OfMany(functions['compute_reward'], f'compute_reward of {self.name}', np.float64)
        self._terminated: _OfMany | None = None
        if 'compute_terminated' in functions:
            self._terminated = _OfMany(functions['compute_terminated'], f'compute_terminated of {self.name}', np.bool_)

    def _layers(self, env: Any) -> Iterator[Any]:
        """The environment and everything inside it, from the outside in."""
        while isinstance(env, VectorWrapper):
            yield env
            env = env.env
        if isinstance(env, VectorEnv):
            yield env
            if isinstance(env, SyncVectorEnv):
                env = env.envs[0]
            elif isinstance(env, AsyncVectorEnv):
                env = self._made = env.env_fns[0]()
            else:
                return
        while isinstance(env, gymnasium.Wrapper):
            yield env
            env = env.env
        yield env

    def _refused(self, why: str) -> str:
        return f'her needs a goal environment, but {self.name} is none ({why}): leave it out, or give her=None.'

    def reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Return the rewards, float32 ``[n]``, of steps that achieve and desire goals ``[n, …]``."""
        rewards = self._reward(achieved, desired)
        for shape in reversed(self._shaping):
            rewards = np.asarray(shape(rewards), np.float64)
        return rewards.astype(np.float32)

    def terminated(self, achieved: np.ndarray, desired: np.ndarray, stored: np.ndarray) -> np.ndarray:
        """Return whether such steps end the episode, bool ``[n]``; ``stored`` if the environment cannot tell."""
        if self._terminated is not None:
            with contextlib.suppress(NotImplementedError):
                return self._terminated(achieved, desired)
            self._terminated = None  # the base class of gymnasium_robotics has the method, which only raises
        return stored

    def check(self, achieved: np.ndarray, desired: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> None:
        """Refuse, by a ValueError, steps (fields ``[n, …]``) with another reward or end than is computed."""
        computed = self.reward(achieved, desired)
        differ = ~np.isclose(computed, reward, rtol=1e-4, atol=1e-5)
        if differ.any() and np.issubdtype(achieved.dtype, np.floating):
            for scale in (1.0 - _NEARLY, 1.0 + _NEARLY):
                near = (desired + scale * (achieved - desired)).astype(achieved.dtype)
                differ &= ~np.isclose(self.reward(near, desired), reward, rtol=1e-4, atol=1e-5)
        # If nearly all steps have the same reward, only the other steps count.
        values, counts = np.unique(reward, return_counts=True)
        common = values[counts.argmax()]
        if differ.sum() > _TOLERATED * ((reward != common) | (computed != common)).sum():
            i = np.flatnonzero(differ)[0]
            raise InvalidValue(
                f'her needs rewards that depend on the goals alone, but {int(differ.sum())} of {len(reward)} steps in '
                f'{self.name} had another reward than its compute_reward gives (one had {reward[i]:g}, where it gives '
                f'{computed[i]:g}): give her=None, or change rewards only by reward_shaping of build_env or a '
                'RewardWrapper, which her follows; compute_reward gets an empty info, since info is not stored.'
            )
        ends = self.terminated(achieved, desired, terminated)
        differ = ends != terminated
        if differ.sum() > _TOLERATED * (ends | terminated).sum():
            i = np.flatnonzero(differ)[0]
            raise InvalidValue(
                f'her needs ends that depend on the goals alone, but {int(differ.sum())} of {len(reward)} steps in '
                f'{self.name} had terminated={bool(terminated[i])} where its compute_terminated gives {bool(ends[i])}: '
                'give her=None, or let compute_terminated say what step does.'
            )

    def close(self) -> None:
        """Close the copy of the environment that was made here, if any."""
        if self._made is not None:
            self._made.close()
            self._made = None

    def __enter__(self) -> Goals:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def is_goal_environment(env: Env | VectorEnv) -> bool:
    """Whether hindsight experience replay applies to an environment."""
    try:
        Goals(env).close()
    except ValueError:
        return False
    return True


def _own(layer: Any, name: str) -> Callable[..., Any] | None:
    """A method of an environment or a wrapper itself, not of what it wraps."""
    is_wrapper = isinstance(layer, gymnasium.Wrapper | VectorWrapper)
    if is_wrapper and name not in vars(layer) and not hasattr(type(layer), name):
        return None
    found = getattr(layer, name, None)
    return found if callable(found) else None


def _shaping(layer: Any) -> list[Callable[[np.ndarray], Any]]:
    """The function of rewards, float64 ``[n]``, that a wrapper applies, if it does nothing else with them."""
    if isinstance(layer, gymnasium.RewardWrapper):
        one = layer.reward
        return [lambda rewards: [one(reward) for reward in rewards.tolist()]]
    if isinstance(layer, ShapeVectorReward):
        return [layer.shaped]
    return [layer.rewards] if isinstance(layer, VectorRewardWrapper) else []


class _OfMany:
    """``function(achieved_goal, desired_goal, info)`` for many goals: one call, if it gives the same as many calls."""

    def __init__(self, function: Callable[..., Any], name: str, dtype: Any) -> None:
        self._function, self._name, self._dtype = function, name, dtype
        self._at_once: bool | None = None

    def __call__(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        if self._at_once is None:
            self._at_once = self._probe(achieved, desired)
        if self._at_once:
            found = np.asarray(self._function(achieved, desired, {}))
            if found.shape == (len(achieved),):
                return found.astype(self._dtype)
            self._at_once = False
        return self._one_by_one(achieved, desired)

    def _one_by_one(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        try:
            found = [self._function(a, d, {}) for a, d in zip(achieved, desired, strict=True)]
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise InvalidValue(
                f'{self._name} cannot be called for her ({type(error).__name__}: {error}): it gets two goals and an '
                'empty info, since info is not stored; her=None trains without.'
            ) from error
        return np.array([np.asarray(x).item() for x in found], self._dtype)

    def _probe(self, achieved: np.ndarray, desired: np.ndarray) -> bool:
        """Whether one call gives the same as one call for each, for goals that differ and goals that are equal."""
        achieved, desired = achieved[:_PROBED], desired[:_PROBED]
        # Goals that are reached and goals that are not; their number differs from the number of entries of a goal.
        achieved = np.concatenate([achieved, achieved, achieved[:1]])
        desired = np.concatenate([desired, achieved[: len(desired) + 1]]).astype(desired.dtype)
        one_by_one = self._one_by_one(achieved, desired)
        try:
            at_once = np.asarray(self._function(achieved.copy(), desired.copy(), {}))
        except Exception:  # the function may not take arrays of goals
            return False
        if at_once.shape != one_by_one.shape:
            return False
        return bool(np.allclose(at_once.astype(self._dtype), one_by_one, rtol=1e-5, atol=1e-7))
