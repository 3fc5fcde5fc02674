"""Storage for the rollouts of one iteration."""

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

#: Storage of at least this size is announced by a warning.
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
    """Return the memory of a :class:`RolloutBuffer` with these arguments."""
    row = RolloutBuffer(observation_space, action_adaptor, 1, 1, state_size, param_size, every_state).rollout
    fields = [field for field in row._replace(state=None) if field is not None]
    each = sum(x.nbytes for field in fields for _, x in spaces.tree_items(field))
    return num_envs * (horizon * each + (0 if every_state else 4 * state_size))


def of_copies(rollout: Trajectories, copies: np.ndarray) -> Trajectories:
    """Return new arrays with the steps of some copies, ``[T, len(copies), …]``; a copy may be named twice."""
    found = (
        None if x is None else spaces.tree_map(lambda x, of=name: x[copies] if of == 'state' else x[:, copies], x)
        for name, x in zip(Trajectories._fields, rollout, strict=True)
    )
    return Trajectories(*found)


def side_by_side(one: Trajectories, other: Trajectories) -> Trajectories:
    """Return the copies of two rollouts with equally many steps as one rollout."""
    found = (
        None if x is None else spaces.tree_map(lambda *both, of=name: np.concatenate(both, int(of != 'state')), x, y)
        for name, x, y in zip(Trajectories._fields, one, other, strict=True)
    )
    return Trajectories(*found)


class RolloutBuffer:
    """``T`` steps of ``N`` copies, time-major, allocated once and written over in each iteration.

    Args:
        observation_space, action_adaptor: give shapes and dtypes.
        horizon: ``T``, steps of each copy.
        num_envs: ``N``.
        state_size: ``S``, entries of the policy's recurrent state; 0 where it has none.
        param_size: ``P``, parameters of the policy's distribution; 0: do not keep them.
        every_state: keep the recurrent state before every step, for a replay buffer; else before the first step only.
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
        """Take ``T`` steps of every copy; return the storage, which the next call writes over.

        Args:
            collector: steps the ``N`` copies.
            act: maps flat observations ``[N, …]`` to stored actions.
            stepped: is called after every step with the collector's step count before it.
            behavior: the policy, where its recurrent state or its parameters are kept.
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
            ends = collector.terminated, collector.truncated, collector.valid
            self._write(t, obs, action, collector.reward, collector.next_obs, *ends)
            stepped(before)
        return self.rollout

    def put(self, copies: slice | np.ndarray, part: Trajectories) -> None:
        """Write a rollout of ``T`` steps in place of some copies."""
        for name, target, values in zip(Trajectories._fields, self.rollout, part, strict=True):
            for path, x in () if values is None else spaces.tree_items(values):
                own = target[path] if path else target
                own[copies if name == 'state' else (slice(None), copies)] = x

    def _write(self, t: int, *fields: spaces.Flat) -> None:
        """Write the first fields of :class:`zoo.common.records.Trajectories`, each ``[N, …]``, at step ``t``."""
        for storage, value in zip(self.rollout[: len(fields)], fields, strict=True):
            if isinstance(storage, dict):
                for path, target in storage.items():
                    target[t] = value[path]
            else:
                storage[t] = value
