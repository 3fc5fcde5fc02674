"""Rollout storage: time-major, in the environment's dtypes, allocated once."""

from __future__ import annotations

import numpy as np
import pytest
from counting import SPACES, Counting, drive, expected
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.collect import Collector
from zoo.common.rollout import RolloutBuffer

ADAPTOR = ActionAdaptor(Discrete(5))


def write(buffer: RolloutBuffer, collector: Collector, horizon: int, rng: np.random.Generator) -> None:
    for t in range(horizon):
        obs, action = collector.obs, ADAPTOR.random(collector.num_envs, rng)
        c = collector
        c.step(action)
        buffer.write(t, obs, action, c.reward, c.next_obs, c.terminated, c.truncated, c.valid)


@pytest.mark.parametrize('mode', list(AutoresetMode))
@pytest.mark.parametrize('form', SPACES)
def test_holds_exactly_what_happened(form: str, mode: AutoresetMode):
    horizon, n = 25, 3
    env = SyncVectorEnv([lambda: Counting(form)] * n, autoreset_mode=mode)
    collector = Collector(env, ADAPTOR)
    collector.reset(5)
    buffer = RolloutBuffer(SPACES[form], ADAPTOR, horizon, n)
    rollout, rng = buffer.rollout, np.random.default_rng(0)
    actions: list[list[int]] = [[] for _ in range(n)]
    for iteration in range(3):
        write(buffer, collector, horizon, rng)
        assert buffer.rollout is rollout, 'written over, not allocated anew'
        for i in range(n):
            rows = np.flatnonzero(rollout.valid[:, i])
            assert (len(rows) < horizon) == (mode == AutoresetMode.NEXT_STEP)
            actions[i] += rollout.action[rows, i].tolist()
            transitions, _ = drive(Counting(), 5 + i, actions[i])
            for t, (episode, step, _, reward, *flags) in zip(rows, transitions[-len(rows) :], strict=True):
                assert rollout.reward[t, i] == reward
                assert [rollout.terminated[t, i], rollout.truncated[t, i]] == flags
                for flat, place in ((rollout.obs, step), (rollout.next_obs, step + 1)):
                    wanted = expected(form, 5 + i, episode, place)
                    for path, x in spaces.tree_items(flat):
                        np.testing.assert_array_equal(x[t, i], wanted[path] if path else wanted, f'{iteration} {path}')


def test_shapes_and_dtypes():
    space = Dict(move=Box(-2, 2, (2,), np.float32), gear=Discrete(3))
    rollout = RolloutBuffer(SPACES['dict'], ActionAdaptor(space), 4, 3).rollout
    for flat in (rollout.obs, rollout.next_obs):
        for path, leaf in spaces.leaves(SPACES['dict']).items():
            assert flat[path].shape == (4, 3, *leaf.shape)
            assert flat[path].dtype == leaf.dtype
    assert (rollout.action['move'].shape, rollout.action['move'].dtype) == ((4, 3, 2), np.float32)
    assert (rollout.action['gear'].shape, rollout.action['gear'].dtype) == ((4, 3), np.int32)
    for x, dtype in (
        (rollout.reward, np.float32),
        (rollout.terminated, np.bool_),
        (rollout.truncated, np.bool_),
        (rollout.valid, np.bool_),
    ):
        assert (x.shape, x.dtype) == ((4, 3), dtype)


def test_a_field_too_few_is_refused():
    buffer = RolloutBuffer(SPACES['box'], ADAPTOR, 2, 1)
    with pytest.raises(ValueError, match='shorter'):
        buffer.write(0, np.zeros((1, 3)), np.zeros(1, np.int32))
