"""Returns and advantages of a rollout, with values of states from a critic of any form."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from zoo.common import spaces
from zoo.common.records import Trajectories
from zoo.common.tools.errors import InvalidValue, a_type

#: The forms in which values of states are given; :meth:`zoo.common.rollouts.rollout.Rollout.advantages` describes them.
Values: TypeAlias = Callable[[Any], Any] | tuple[Any, Any] | float | None


class EvaluatedRollout(NamedTuple):
    """A rollout under the agent's policy and critic as they are now: tensors ``[T, N]`` or ``[B]``, like the rollout.

    Attributes:
        log_prob: float32, the log-probability of each action, or its log-density in a ``Box``.
        entropy: float32, the policy's entropy in each state, in nats; None without a closed form, as after a tanh.
        value: float32, V of each state; None where the agent has no critic of states.
        params: float32 ``[…, param_size]``, the parameters of the policy's distribution
            ``agent.action_adaptor.distribution``, which has ``kl(p, q)`` among other methods.
        penalty: float32, one number: in training mode the losses that the networks add (Keras' ``add_loss`` and
            regularizers), otherwise 0.
    """

    log_prob: Any
    entropy: Any
    value: Any
    params: Any
    penalty: Any


class Critic(Protocol):
    """An agent that may have a critic of states."""

    rng: np.random.Generator

    @property
    def values_states(self) -> bool:
        """Whether there is a critic of states."""

    def values_of(self, steps: Trajectories) -> tuple[Any, Any]:
        """Return V before and after each step, float32 ``[T, N]``."""


def returns(steps: Trajectories, gamma: float, values: Values, agent: Critic | None) -> np.ndarray:
    """Return the discounted return of each step, float32 ``[T, N]``; 0 where a row is not valid."""
    from zoo.common.maths.returns import discounted_returns

    if not len(steps.reward):
        return np.zeros(steps.reward.shape, np.float32)
    if values is None and (agent is None or not agent.values_states):
        values = 0.0
    _, next_value = _values(steps, values, agent)
    found = discounted_returns(steps.reward, next_value, steps.terminated, steps.truncated, gamma)
    return np.where(steps.valid, found.numpy(), np.float32(0.0))


def advantages(steps: Trajectories, gamma: float, lam: float, values: Values, agent: Critic | None) -> np.ndarray:
    """Return generalized advantage estimates, float32 ``[T, N]``; 0 where a row is not valid."""
    from zoo.common.maths.returns import gae

    if not len(steps.reward):
        return np.zeros(steps.reward.shape, np.float32)
    value, next_value = _values(steps, values, agent)
    found, _ = gae(steps.reward, value, next_value, steps.terminated, steps.truncated, gamma, lam)
    return np.where(steps.valid, found.numpy(), np.float32(0.0))


def _values(steps: Trajectories, values: Values, agent: Critic | None) -> tuple[Any, Any]:
    """Return V before and after each step, float32 ``[T, N]``."""
    from zoo.common.maths.returns import next_values

    shape = tuple(steps.reward.shape)
    if values is None:
        if agent is None or not agent.values_states:
            who = 'this rollout has lost its agent' if agent is None else f'{type(agent).__name__} has no critic'
            raise InvalidValue(f'{who}, so that no values of states are known: give values=…, such as a function.')
        return agent.values_of(steps)
    if isinstance(values, Real):
        constant = np.full(shape, values, np.float32)
        return constant, constant
    if isinstance(values, tuple | list) and len(values) == 2:
        before, after = (np.asarray(x, np.float32) for x in values)
        if before.shape != shape or after.shape != shape:
            raise InvalidValue(
                f'values are two arrays of shapes {before.shape} and {after.shape}: both need {shape}, the values '
                'before and after each step.'
            )
        return before, after
    if not callable(values):
        raise InvalidValue(
            f'values is {a_type(values)}: give a function of observations, the pair of arrays of the '
            'values before and after each step, or a number.'
        )

    def critic(obs: Any) -> Any:
        import tensorflow as tf

        count = spaces.count(obs)
        found = tf.cast(tf.convert_to_tensor(values(spaces.tree_map(tf.convert_to_tensor, obs))), tf.float32)
        if found.shape not in ([count], [count, 1]):
            raise InvalidValue(f'the values of {count} states have shape {tuple(found.shape)}: ({count},) is needed.')
        return tf.reshape(found, [-1])

    value = critic(spaces.tree_map(lambda x: x.reshape(-1, *x.shape[2:]), steps.obs)).numpy().reshape(shape)
    return value, next_values(critic, value, steps.next_obs, steps.terminated, steps.truncated)
