"""Storage of one iteration's experience for on-policy algorithms."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.records import Trajectories
from zoo.common.rollouts.collector import Collector

log = logging.getLogger('zoo')

#: From this size on the memory is announced before it is taken.
ANNOUNCE_BYTES = 100e6


def rollout_bytes(
    observation_space: Space,
    action_adaptor: ActionAdaptor,
    horizon: int,
    num_envs: int,
    state_size: int = 0,
    param_size: int = 0,
    every_state: bool = False,
) -> int:
    """Memory of a :class:`RolloutBuffer`."""
    row = RolloutBuffer(observation_space, action_adaptor, 1, 1, state_size, param_size, every_state).rollout
    fields = [field for field in row._replace(state=None) if field is not None]
    each = sum(x.nbytes for field in fields for _, x in spaces.tree_items(field))
    return num_envs * (horizon * each + (0 if every_state else 4 * state_size))


def of_copies(rollout: Trajectories, copies: np.ndarray) -> Trajectories:
    """New arrays with the steps of copies, by their numbers, ``[T, len(copies), …]``; one may be named twice."""
    found = (
        None if x is None else spaces.tree_map(lambda x, of=name: x[copies] if of == 'state' else x[:, copies], x)
        for name, x in zip(Trajectories._fields, rollout, strict=True)
    )
    return Trajectories(*found)


def side_by_side(one: Trajectories, other: Trajectories) -> Trajectories:
    """The copies of two rollouts of as many steps as those of one."""
    found = (
        None if x is None else spaces.tree_map(lambda *both, of=name: np.concatenate(both, int(of != 'state')), x, y)
        for name, x, y in zip(Trajectories._fields, one, other, strict=True)
    )
    return Trajectories(*found)


class RolloutBuffer:
    """``T`` steps of ``N`` copies, time-major, allocated once and written over in every iteration.

    Args:
        observation_space, action_adaptor: give shapes and dtypes.
        horizon: ``T``, steps of each copy.
        num_envs: ``N``.
        state_size: ``S``, entries of the policy's recurrent state; 0 where it has none.
        param_size: ``P``, parameters of the policy's distribution; 0 where they are not asked for.
        every_state: keep the recurrent state before every step, as a replay buffer does, not before the first alone.
    """

    def __init__(
        self,
        observation_space: Space,
        action_adaptor: ActionAdaptor,
        horizon: int,
        num_envs: int,
        state_size: int = 0,
        param_size: int = 0,
        every_state: bool = False,
    ) -> None:
        lead = (horizon, num_envs)
        first_size, every_size = (0, state_size) if every_state else (state_size, 0)
        self.rollout = Trajectories(
            obs=spaces.zeros(observation_space, lead),
            action=action_adaptor.zeros(lead),
            reward=np.zeros(lead, np.float32),
            next_obs=spaces.zeros(observation_space, lead),
            terminated=np.zeros(lead, bool),
            truncated=np.zeros(lead, bool),
            valid=np.zeros(lead, bool),
            state=np.zeros((num_envs, first_size), np.float32) if first_size else None,
            begins=np.zeros(lead, bool) if first_size else None,
            params=np.zeros((*lead, param_size), np.float32) if param_size else None,
            states=np.zeros((*lead, every_size), np.float32) if every_size else None,
        )
        nbytes = sum(x.nbytes for field in self.rollout if field is not None for _, x in spaces.tree_items(field))
        if nbytes > ANNOUNCE_BYTES:
            log.warning(
                'Rollouts of %d steps of %d copies take up to %.2f GB of memory.', horizon, num_envs, nbytes / 1e9
            )

    def fill(
        self,
        collector: Collector,
        act: Callable[[spaces.Flat], spaces.Flat],
        stepped: Callable[[int], None],
        behavior: Behavior | None = None,
    ) -> Trajectories:
        """Take ``T`` steps of every copy.

        Args:
            collector: of the ``N`` copies.
            act: from the flat observations ``[N, …]`` to stored actions.
            stepped: called after every step with the collector's count of steps before it.
            behavior: what acts, where the policy has a recurrent state or its parameters are asked for.

        Returns:
            The storage itself, which the next call writes over.
        """
        begins, params, states = self.rollout.begins, self.rollout.params, self.rollout.states
        if begins is not None:
            assert behavior is not None  # which has the state
            self.rollout.state[:] = behavior.state
        for t in range(len(self.rollout.reward)):
            obs, before = collector.obs, collector.steps
            if begins is not None:
                begins[t] = collector.begins
            if states is not None:
                assert behavior is not None
                states[t] = behavior.state
            action = act(obs)
            if params is not None:
                assert behavior is not None
                params[t] = behavior.params
            collector.step(action)
            self._write(
                t,
                obs,
                action,
                collector.reward,
                collector.next_obs,
                collector.terminated,
                collector.truncated,
                collector.valid,
            )
            stepped(before)
        return self.rollout

    def put(self, copies: slice | np.ndarray, part: Trajectories) -> None:
        """Write the rollout of some of the copies, of as many steps."""
        for name, target, values in zip(Trajectories._fields, self.rollout, part, strict=True):
            for path, x in () if values is None else spaces.tree_items(values):
                own = target[path] if path else target
                own[copies if name == 'state' else (slice(None), copies)] = x

    def _write(self, t: int, *fields: spaces.Flat) -> None:
        """Write the first fields of :class:`Trajectories`, each ``[N, …]``, at step ``t``."""
        for storage, value in zip(self.rollout[: len(fields)], fields, strict=True):
            if isinstance(storage, dict):
                for path, target in storage.items():
                    target[t] = value[path]
            else:
                storage[t] = value
