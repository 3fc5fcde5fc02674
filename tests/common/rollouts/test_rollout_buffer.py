"""Rollout storage: time-major, in the environment's dtypes, allocated once."""

from __future__ import annotations

import numpy as np
import pytest
from counting import SPACES, Counting, drive, expected
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.rollouts.collector import Collector
from zoo.common.rollouts.rollout_buffer import RolloutBuffer, of_copies, rollout_bytes, side_by_side

ADAPTOR = ActionAdaptor(Discrete(5))


def fill(buffer: RolloutBuffer, collector: Collector, rng: np.random.Generator) -> list[int]:
    """Fill it with random actions; the steps that were counted before each step."""
    before: list[int] = []
    rollout = buffer.fill(collector, lambda obs: ADAPTOR.random(collector.num_envs, rng), before.append)
    assert rollout is buffer.rollout
    return before


@pytest.mark.full(but='discrete-AutoresetMode.NEXT_STEP')
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
        fill(buffer, collector, rng)
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


def test_the_steps_are_told_one_by_one():
    collector = Collector(SyncVectorEnv([Counting] * 2, autoreset_mode=AutoresetMode.SAME_STEP), ADAPTOR)
    collector.reset(5)
    assert fill(RolloutBuffer(SPACES['box'], ADAPTOR, 4, 2), collector, np.random.default_rng(0)) == [0, 2, 4, 6]


def test_copies_are_taken_and_put_side_by_side():
    """The recurrent state, which has no axis of time, among them; what is written over later does not change them."""
    buffers = [RolloutBuffer(SPACES['dict'], ADAPTOR, 2, 3, 4, 5) for _ in range(2)]
    rng = np.random.default_rng(0)
    for buffer in buffers:
        for field in buffer.rollout[:-1]:  # the states of every step are a replay buffer's
            for _, x in spaces.tree_items(field):
                x[...] = rng.integers(2, size=x.shape)
    one, other = (buffer.rollout for buffer in buffers)
    both = side_by_side(one, of_copies(other, np.array([2, 0, 2])))
    buffer = RolloutBuffer(SPACES['dict'], ADAPTOR, 2, 6, 4, 5)
    buffer.put(slice(3), one)
    buffer.put(np.array([5, 4, 3]), of_copies(other, np.array([2, 0, 2])))
    assert both.states is None
    for name, x, y in zip(both._fields[:-1], both[:-1], buffer.rollout[:-1], strict=True):
        columns = (lambda x: x) if name == 'state' else (lambda x: np.swapaxes(x, 0, 1))
        for path, values in spaces.tree_items(x):
            again = dict(spaces.tree_items(y))[path]
            sources = [dict(spaces.tree_items(getattr(z, name)))[path] for z in (one, other)]
            for i, (source, n) in enumerate([(0, 0), (0, 1), (0, 2), (1, 2), (1, 0), (1, 2)]):
                np.testing.assert_array_equal(columns(values)[i], columns(sources[source])[n], err_msg=name)
                place = i if i < 3 else 8 - i
                np.testing.assert_array_equal(columns(again)[place], columns(sources[source])[n], err_msg=name)
    kept = both.reward.copy()
    other.reward[:] = one.reward[:] = 9
    np.testing.assert_array_equal(both.reward, kept)


@pytest.mark.parametrize('params', [0, 6])
@pytest.mark.parametrize('states', [0, 5])
@pytest.mark.parametrize('form', SPACES)
def test_memory(form: str, states: int, params: int):
    rollout = RolloutBuffer(SPACES[form], ADAPTOR, 7, 3, states, params).rollout
    fields = [field for field in rollout if field is not None]
    assert len(fields) == (9 if states else 7) + (params > 0)
    held = sum(x.nbytes for field in fields for _, x in spaces.tree_items(field))
    assert rollout_bytes(SPACES[form], ADAPTOR, 7, 3, states, params) == held


def test_much_memory_is_announced(caplog):
    images = Box(0, 255, (84, 84, 4), np.uint8)
    with caplog.at_level('WARNING', logger='zoo'):
        RolloutBuffer(images, ADAPTOR, 20, 80)
        assert not caplog.records
        RolloutBuffer(images, ADAPTOR, 20, 500)
    assert 'Rollouts of 20 steps of 500 copies take up to 0.56 GB of memory.' in caplog.text
