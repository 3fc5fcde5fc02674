"""Rollouts from an environment that is compiled together with the policy: all steps in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gymnasium.spaces import Discrete, MultiDiscrete, Space

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.envs.compiled.copies import Copies, CopiesState
from zoo.common.maths.distributions import split_seed
from zoo.common.records import Episode, Trajectories, Transition
from zoo.common.tools.errors import InvalidValue, NotFinite


class Taken(NamedTuple):
    """One step of every copy, fields ``[N, …]``, or a rollout, ``[T, N, …]``.

    ``memory`` is the recurrent state before each step, and ``params`` are the parameters of the actions' distribution.
    Each is ``()`` where there is none.
    """

    transition: Transition
    memory: Any
    params: Any


class PlayState(NamedTuple):
    """What a call goes on from: the copies, and the recurrent state ``[N, S]`` or ``()``."""

    copies: CopiesState
    memory: Any


def take_step(
    copies: Copies, behavior: Behavior, now: PlayState, seed: tf.Tensor, progress: tf.Tensor, random: Any = None
) -> tuple[PlayState, Taken]:
    """Act once in every copy, as a function of tensors; the fields of the steps are ``[N, …]``.

    ``random``, bool ``[]``, asks for uniformly random actions.
    """
    state, memory = now
    action, params, after = behavior.traced(state.obs, memory, seed, progress)
    if random is not None:
        drawn = behavior.traced_random(state.obs, split_seed(seed, 4)[3])
        action = spaces.tree_map(lambda x, y: tf.where(random, x, y), drawn, action)
    taken = behavior.adaptor.tensors_to_env(action)
    copied, outcome = copies.step(state, spaces.from_items(behavior.adaptor.space, taken))
    if behavior.state_size:  # the next episode begins with a state of zero
        done = outcome.terminated | outcome.truncated
        after = tf.where(done[:, None], 0.0, after)
    transition = Transition(state.obs, action, outcome.reward, outcome.next_obs, outcome.terminated, outcome.truncated)
    return PlayState(copied, after), Taken(transition, memory, params)


def take_steps(
    copies: Copies, behavior: Behavior, now: PlayState, horizon: int, seed: tf.Tensor, progress: tf.Tensor
) -> tuple[PlayState, Taken]:
    """Take ``horizon`` steps in every copy, as a function of tensors."""
    like = shape_of_step(copies, behavior, now)
    stored = tf.nest.map_structure(lambda x: tf.TensorArray(x.dtype, horizon, element_shape=x.shape), like)
    flat = tf.nest.flatten(stored)

    def step(t: tf.Tensor, now: PlayState, seed: tf.Tensor, flat: list[tf.TensorArray]) -> tuple[Any, ...]:
        own, following = split_seed(seed, 2)
        now, taken = take_step(copies, behavior, now, own, progress)
        flat = [array.write(t, x) for array, x in zip(flat, tf.nest.flatten(taken), strict=True)]
        return t + 1, now, following, flat

    start = (tf.constant(0), now, seed, flat)
    _, now, _, flat = tf.while_loop(lambda t, *_: t < horizon, step, start, parallel_iterations=1)
    found = tf.nest.pack_sequence_as(like, [array.stack() for array in flat])
    return now, found


def trajectories(behavior: Behavior, taken: Taken, valid: Any, begins: Any) -> Trajectories:
    """Return a rollout, of tensors or arrays, in the form that updates take; ``valid``, ``begins``: bool ``[T, N]``."""
    steps, memory, params = taken
    remembered = {'state': memory[0], 'begins': begins} if behavior.state_size else {}
    return Trajectories(*steps, valid=valid, **remembered, params=params if behavior.param_size else None)


def shape_of_step(copies: Copies, behavior: Behavior, now: PlayState) -> Taken:
    """Return the shapes and dtypes of one step, without taking it."""

    def one(now: PlayState) -> Taken:
        return take_step(copies, behavior, now, tf.zeros([2], tf.int32), tf.zeros([]))[1]

    given = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), now)
    return tf.function(one, autograph=False).get_concrete_function(given).structured_outputs


def is_sound(copies: Copies, steps: Transition, lead: int) -> tf.Tensor:
    """Return whether all that an environment gave is finite and inside its discrete spaces.

    It is bool with the first ``lead`` axes of the fields.
    """
    leaves = spaces.leaves(copies.functions.observation_space)
    right = [tf.math.is_finite(steps.reward)]
    for path, x in spaces.tree_items(steps.next_obs):
        if x.dtype.is_floating:
            right.append(tf.math.is_finite(x))
        elif (bounds := bounds_of(leaves[path])) is not None:
            right.append(tf.logical_and(x >= bounds[0], x <= bounds[1]))
    return tf.reduce_all([tf.reduce_all(x, list(range(lead, len(x.shape)))) for x in right], 0)


def bounds_of(leaf: Space) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a discrete space; None for any other space."""
    if isinstance(leaf, Discrete):
        return leaf.start, leaf.start + leaf.n - 1
    if isinstance(leaf, MultiDiscrete):
        return leaf.start, leaf.start + leaf.nvec - 1
    return None


class Ends:
    """The episodes of copies whose steps come in pieces.

    Attributes:
        returns: float64 ``[N]``, of the episodes under way.
        lengths: int64 ``[N]``.
    """

    def __init__(self, num_envs: int) -> None:
        self.returns, self.lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)

    def restart(self) -> None:
        """Begin new episodes in all copies."""
        self.returns[:] = 0.0
        self.lengths[:] = 0

    def found(self, reward: np.ndarray, done: np.ndarray) -> list[tuple[int, list[Episode]]]:
        """Return the steps ``t`` at which episodes ended, each with these episodes; rewards and ends are ``[T, N]``."""
        total = np.concatenate([self.returns[None], reward]).cumsum(0, np.float64)
        rows, at = np.nonzero(done)
        ended: dict[int, list[Episode]] = {}
        before: dict[int, tuple[float, int]] = {}  # of each copy: the sum and the step where the last episode ended
        for t, i in zip(rows.tolist(), at.tolist(), strict=True):
            past, since = before.get(i, (0.0, -1 - int(self.lengths[i])))
            episode = Episode(float(total[t + 1, i] - past), t - since, None, i)
            ended.setdefault(t, []).append(episode)
            before[i] = float(total[t + 1, i]), t
        self.returns = total[-1]
        self.lengths = self.lengths + len(reward)
        for i, (past, t) in before.items():
            self.returns[i] -= past
            self.lengths[i] = len(reward) - 1 - t
        return sorted(ended.items())


def tell(
    stepped: Callable[[int, Sequence[Episode]], None], ended: list[tuple[int, list[Episode]]], counts: np.ndarray
) -> None:
    """Tell of steps in their order: ``counts``, int ``[T]``, of all copies, and the episodes of :meth:`Ends.found`."""
    told = 0
    for t, episodes in ended:
        stepped(int(counts[told : t + 1].sum()), episodes)
        told = t + 1
    if told < len(counts):
        stepped(int(counts[told:].sum()), ())


def check_sound(copies: Copies, steps: Transition, name: str, first: int) -> None:
    """Refuse what is not finite or outside a discrete space; ``first`` is the number of environment steps before."""
    leaves = spaces.leaves(copies.functions.observation_space)
    for path, x in spaces.tree_items(steps.next_obs):
        if (bounds := bounds_of(leaves[path])) is not None and ((x < bounds[0]) | (x > bounds[1])).any():
            raise InvalidValue(f'{name} gave an observation outside its space {leaves[path]}: mend its step().')
    for what, field in (('observation', steps.next_obs), ('reward', steps.reward)):
        for path, x in spaces.tree_items(field):
            x = np.asarray(x)
            if x.dtype.kind == 'f' and not np.isfinite(x).all():
                t, i = np.argwhere(~np.isfinite(x))[0][:2]
                part = f' (part {path!r})' if path else ''
                raise NotFinite(
                    f'step {first + (t + 1) * x.shape[1]}: copy {i} of {name} gave {"an" if what[0] == "o" else "a"} '
                    f'{what}{part} that is {x[~np.isfinite(x)].flat[0]}: mend its step().'
                )
