"""Toy environments for the algorithms: over any two spaces, and small tasks that are learned in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

import zoo
from zoo import algorithms
from zoo.common.records import Batch, Transition

#: Every kind of observation; the mask's space depends on the action's, see `observation_space`.
OBSERVATIONS: dict[str, Space] = {
    'vector': Box(-1.0, 1.0, (3,), np.float32),
    'image': Box(0, 255, (10, 12, 3), np.uint8),
    'image CHW': Box(0.0, 1.0, (1, 9, 8), np.float32),
    'image 2-D': Box(0, 255, (8, 8), np.uint8),
    'Discrete': Discrete(5, start=2),
    'large Discrete': Discrete(1000),
    'MultiDiscrete': MultiDiscrete([3, 2], start=[1, 0]),
    'MultiBinary': MultiBinary((2, 2)),
    'Tuple': Tuple((Box(-1.0, 1.0, (2,), np.float64), Discrete(3))),
    'nested Dict': Dict(
        camera=Box(0, 255, (8, 9, 3), np.uint8),
        robot=Dict(pose=Box(-1.0, 1.0, (2, 2), np.float32), mode=Discrete(3)),
    ),
    'masked Dict': Dict(pose=Box(-1.0, 1.0, (3,), np.float32)),
}

#: Every kind of action.
ACTIONS: dict[str, Space] = {
    'Discrete': Discrete(4, start=-1),
    'MultiDiscrete': MultiDiscrete([3, 2], start=[0, 5]),
    'MultiBinary': MultiBinary(3),
    'Box': Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32)),
    'Box 2-D': Box(-1.0, 3.0, (2, 2), np.float32),
    'Dict': Dict(grip=Discrete(3), arm=Dict(force=Box(-1.0, 1.0, (2,), np.float32), switches=MultiBinary(2))),
    'Tuple': Tuple((MultiDiscrete([2, 3]), Box(0.0, 1.0, (1,), np.float32))),
}


#: Algorithms that take networks and acting from another algorithm, their base class. Tests that do not depend on the
#: update run with the base class, and with these only by ``-m matrix``.
VARIANTS = {
    name
    for name in algorithms.NAMES
    if any(base.__name__ in algorithms.NAMES for base in getattr(algorithms, name).__mro__[1:])
}
# They have PPO's networks and its way of acting; only their update differs.
VARIANTS |= {'A2C', 'AC', 'IMPALA', 'OffPAC', 'TRPO', 'VPG'}
# ES represents it.
VARIANTS |= {'ARS'}

#: Algorithms that learn by the gradients of losses, and not from the returns of perturbed parameters alone.
WITH_LOSSES = [name for name in algorithms.NAMES if getattr(algorithms, name).loop.experience != 'evaluations']


def marked(names: Iterable[str]) -> list[Any]:
    """Return parameters of a test: algorithms, marked ``matrix`` where another one represents them."""
    return [pytest.param(name, marks=[pytest.mark.matrix] if name in VARIANTS else []) for name in names]


#: One algorithm for each kind of update. They show what the shared code does for all.
KINDS = ('CrossQ', 'DQN', 'PPO', 'SAC', 'TD3')


def kinds(names: Iterable[str], kept: Iterable[str] = KINDS) -> list[Any]:
    """Return parameters of a test: algorithms, marked ``matrix`` except one for each kind of shared code."""
    return [pytest.param(name, marks=[] if name in kept else [pytest.mark.matrix]) for name in names]


def observation_space(name: str, action_space: Space) -> Space:
    """A kind of observation; a masked one gets one entry for each action or switch (three where masks do not apply)."""
    space = OBSERVATIONS[name]
    if name != 'masked Dict':
        return space
    counts = {Discrete: lambda s: s.n, MultiDiscrete: lambda s: s.nvec.sum()}.get(type(action_space), lambda s: 3)
    return Dict({**space.spaces, 'action_mask': MultiBinary(int(counts(action_space)))})


def taken(algorithm: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of ``learn`` for this process, without those that this algorithm does not have."""
    known, some = algorithm.learn_params(), ('horizon', 'epochs', 'batch_size', 'rollouts')
    taken = {name: x for name, x in params.items() if name not in some or name in known}
    return taken if known['roles'] is None else {'roles': None} | taken


def needed(agent: Any, env: Any) -> dict[str, Any]:
    """Return what ``learn`` cannot do without: a dataset of the untrained agent, or the agent as its own expert."""
    found: dict[str, Any] = {}
    if agent.loop.needs_data or 'dataset' in agent.needed:
        found['dataset'] = zoo.record_episodes(agent, env, None, 3, seed=0)
    if 'expert' in agent.needed:
        found['expert'] = agent
    return found


def fitted(agent: Any, env: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of ``learn`` for a short training of any algorithm, with what it needs besides."""
    found = taken(agent, params) | needed(agent, env)
    if agent.loop.needs_data:
        found['train_updates'] = found.pop('train_steps')
    if agent.loop.alone:
        found |= {'horizon': 10, 'updates': 8}
    known, elsewhere = agent.learn_params(), ('explore_steps', 'buffer_size', 'update_every', 'updates')
    return {name: x for name, x in found.items() if name in known or name not in elsewhere}


def few_directions(algorithm: Any) -> dict[str, int]:
    """Constructor's parameters with which an update takes but two perturbations, where it takes perturbations."""
    return {'num_directions': 2} if 'num_directions' in algorithm.params() else {}


class AnySpaces(gymnasium.Env):
    """Random observations of a space; refuses actions outside its own and those that it masked.

    Episodes end after 5 steps, by turns by termination and by truncation.
    """

    def __init__(self, observation_space: Space, action_space: Space) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.masked = isinstance(observation_space, Dict) and 'action_mask' in observation_space.spaces
        self.episode = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        self.episode += 1
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f'{action!r} is not in {self.action_space}'
        self._check_mask(action)
        self.t += 1
        over, terminates = self.t == 5, self.episode % 2 == 0
        return self._observe(), float(self.np_random.normal()), over and terminates, over and not terminates, {}

    def _observe(self) -> Any:
        obs = self.observation_space.sample()
        if self.masked:
            counts = self._counts()
            pieces = [self.np_random.random(n) < 0.5 for n in counts]
            for piece in pieces:
                piece[self.np_random.integers(len(piece))] = True  # at least one action is allowed
            obs['action_mask'] = np.concatenate(pieces).astype(np.int8)
            self.allowed = pieces
        return obs

    def _counts(self) -> list[int]:
        if isinstance(self.action_space, Discrete):
            return [int(self.action_space.n)]
        if isinstance(self.action_space, MultiDiscrete):
            return self.action_space.nvec.tolist()
        return [3]

    def _check_mask(self, action: Any) -> None:
        if self.masked and isinstance(self.action_space, Discrete | MultiDiscrete):
            chosen = np.atleast_1d(action - self.action_space.start)
            assert all(piece[i] for piece, i in zip(self.allowed, chosen, strict=True)), f'{action} is masked'
        elif self.masked:
            assert not action[~self.allowed[0]].any(), f'{action} is masked'


class Copy(gymnasium.Env):
    """Do what you see: the observation is an element of the action space, and the reward is how well it was copied.

    1 for a perfect copy; each leaf counts alike, each entry of a ``Box`` by its squared distance. Episodes of one step.
    """

    def __init__(self, space: Space) -> None:
        self.observation_space = self.action_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.seen = self.observation_space.sample()
        return self.seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = likeness(self.observation_space, action, self.seen)
        return self.seen, reward, True, False, {}


def likeness(space: Space, a: Any, b: Any) -> float:
    """1 where two elements of a space agree, the mean over its leaves."""
    if isinstance(space, Dict):
        return float(np.mean([likeness(part, a[key], b[key]) for key, part in space.spaces.items()]))
    if isinstance(space, Tuple):
        return float(np.mean([likeness(part, x, y) for part, x, y in zip(space.spaces, a, b, strict=True)]))
    if isinstance(space, Box):
        return float(1.0 - np.mean(np.square((a - b) / (space.high - space.low) * 2.0)))
    return float(np.mean(np.equal(a, b)))


class Chain(gymnasium.Env):
    """Five states in a row: 1 for stepping past the right end, a tenth for past the left one; nothing in between.

    A start in the middle and a discount of 0.9 make right better from everywhere but the very left. After 20 steps the
    episode is cut, which is no loss of value.
    """

    observation_space = Discrete(5)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.t = int(self.np_random.integers(5)), 0
        return self.state, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.state += 1 if action == 1 else -1
        reward = {5: 1.0, -1: 0.1}.get(self.state, 0.0)
        over = self.state in (-1, 5)
        return min(max(self.state, 0), 4), reward, over, self.t == 20 and not over, {}


class Aim(gymnasium.Env):
    """One continuous action that has to hit a point which depends on what is seen: minus the squared miss."""

    observation_space = Box(-1.0, 1.0, (2,), np.float32)
    action_space = Box(-3.0, 3.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seen = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return self.seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        miss = float(action[0]) - (1.0 + self.seen[0] - 0.5 * self.seen[1])
        return self.seen, -(miss**2), True, False, {}


class Sorting(gymnasium.Env):
    """A nested observation with one number that matters, which decides between two actions.

    The label tells the first choice, whether it is 0 the second; the image and the vector are noise. Episodes of 5
    labels, a point for each right choice: 10 at best, 5/3 + 5/2 by chance.
    """

    observation_space = Dict(
        camera=Box(0, 255, (8, 8, 1), np.uint8),
        parcel=Dict(label=Discrete(3), weight=Box(-1.0, 1.0, (2,), np.float32)),
    )
    action_space = MultiDiscrete([3, 2])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action[0] == self.label) + float(action[1] == (self.label == 0))
        self.t += 1
        return self._observe(), reward, self.t == 5, False, {}

    def _observe(self) -> dict[str, Any]:
        self.label = int(self.np_random.integers(3))
        return {
            'camera': self.np_random.integers(0, 255, (8, 8, 1), dtype=np.uint8),
            'parcel': {'label': self.label, 'weight': self.np_random.uniform(-1, 1, 2).astype(np.float32)},
        }


def altered(batch: Batch, gamma: float = 0.99, **fields: Any) -> Batch:
    """A batch of single transitions with other fields, or with another discount."""
    return Batch.of(Transition(*batch[:6])._replace(**fields), gamma)


class BitFlip(gymnasium.Env):
    """The task of Andrychowicz et al. 2017 (section 3.1): flip one bit in each of ``n`` steps until all are as asked.

    0 where they are, and -1 before; by chance that is never seen.
    """

    def __init__(self, n: int = 12) -> None:
        self.n = n
        bits = MultiBinary(n)
        self.observation_space = Dict(observation=bits, achieved_goal=bits, desired_goal=bits)
        self.action_space = Discrete(n)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.bits, self.goal = self.np_random.integers(2, size=(2, self.n), dtype=np.int8)
        self.t = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.bits[action] ^= 1
        done = bool((self.bits == self.goal).all())
        reward = float(self.compute_reward(self.bits, self.goal, {}))
        return self._observe(), reward, done, self.t == self.n and not done, {'is_success': done}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: dict[str, Any]) -> Any:
        return (achieved_goal == desired_goal).all(-1) - 1.0

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: dict[str, Any]) -> Any:
        return (achieved_goal == desired_goal).all(-1)

    def _observe(self) -> dict[str, Any]:
        return {'observation': self.bits.copy(), 'achieved_goal': self.bits.copy(), 'desired_goal': self.goal.copy()}
