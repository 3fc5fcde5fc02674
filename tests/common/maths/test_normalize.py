"""Running moments against NumPy's own, the reward scale worked by hand, and their states."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import tensorflow as tf

from zoo.common.maths.normalize import EPSILON, RewardScale, RunningMoments, grown, joined, moments_of


@pytest.mark.parametrize('chunks', [[1000], [1, 999], [1] * 10 + [490, 500], [333, 0, 667]], ids=str)
def test_moments_of_chunks_are_those_of_the_whole(chunks: list[int]):
    rng = np.random.default_rng(0)
    # A mean of a million standard deviations: the sum of squares less the square of the sum would lose every digit.
    x = rng.normal([0.0, 1e6, -3.0], [1.0, 1.0, 1e-3], (1000, 3))
    moments = RunningMoments(3)
    start = 0
    for size in chunks:
        moments.update(x[start : start + size])
        start += size
    np.testing.assert_allclose(moments.mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.scale, 1 / np.sqrt(x.var(0) + EPSILON), rtol=1e-5)
    np.testing.assert_allclose(moments.sum_squares / moments.count, x.var(0), rtol=1e-8)
    assert moments.count == 1000
    assert moments.mean.dtype == moments.scale.dtype == np.float64


def test_moments_that_grow_by_vectors_and_are_joined_are_those_of_the_whole():
    x = np.random.default_rng(0).normal(1e9, 3.0, (12, 4))
    parts = np.zeros((3, 3, 4))  # the third has none
    for rows in zip(x[:6], x[6:], strict=True):
        parts[:2] = np.stack(grown(np.moveaxis(parts[:2], 1, 0), np.stack(rows)), 1)
    np.testing.assert_allclose(joined(parts), moments_of(x, 4), rtol=1e-7)
    np.testing.assert_array_equal(joined(parts[2:]), np.zeros((3, 4)))


def test_leading_axes_are_one_batch():
    x = np.random.default_rng(0).normal(size=(4, 5, 2, 3)).astype(np.float32)
    moments = RunningMoments(6)
    moments.update(x)
    np.testing.assert_allclose(moments.mean, x.reshape(20, 6).mean(0), rtol=1e-5, atol=1e-7)
    assert moments.count == 20


def test_before_any_data_nothing_changes():
    moments = RunningMoments(2)
    np.testing.assert_array_equal(moments.mean, [0, 0])
    np.testing.assert_allclose(moments.scale, [1, 1], rtol=1e-7)


def test_the_variables_of_the_graphs_follow():
    moments = RunningMoments(2)
    moments.update(np.array([[0.0, 1.0], [2.0, 5.0]]))
    mean, scale = moments.variables
    np.testing.assert_allclose(mean.numpy(), [1, 3])
    np.testing.assert_allclose(scale.numpy(), [1, 0.5], rtol=1e-6)
    assert mean.dtype == scale.dtype == tf.float64
    moments.update(np.array([[4.0, 3.0]]))
    np.testing.assert_allclose(mean.numpy(), [2, 3])
    np.testing.assert_array_equal(scale.numpy(), moments.scale)
    other = RunningMoments(2)
    other.update(np.array([[7.0, 8.0]]))
    moments.restore(other.state())
    np.testing.assert_allclose(mean.numpy(), [7, 8])


def test_moments_go_on_from_their_state_as_if_never_stopped():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 50, 3))
    moments, restored = RunningMoments(3), RunningMoments(3)
    moments.update(first)
    state = moments.state()
    moments.update(second)
    restored.restore(state)
    restored.update(second)
    for name, value in moments.state().items():
        np.testing.assert_array_equal(restored.state()[name], value)


def test_a_state_is_not_changed_by_later_updates():
    moments = RunningMoments(2)
    moments.update(np.array([[0.0, 1.0], [2.0, 5.0]]))
    state = moments.state()
    kept = {name: value.copy() for name, value in state.items()}
    moments.update(np.array([[9.0, 9.0]]))
    for name in kept:
        np.testing.assert_array_equal(state[name], kept[name])


def test_reward_scale_worked_by_hand():
    # gamma 0.5, two copies; copy 0 ends an episode at t = 1. Running returns:
    #   copy 0: 2, then 0.5 * 2 + 4 = 5, then (new episode) 1;  copy 1: 0, then 6, then 0.5 * 6 - 1 = 2.
    reward = np.array([[2.0, 0.0], [4.0, 6.0], [1.0, -1.0]], np.float32)
    done = np.array([[False, False], [True, False], [False, False]])
    returns = np.array([2.0, 0.0, 5.0, 6.0, 1.0, 2.0])
    scale = RewardScale(0.5)
    scaled = scale(reward, done)
    np.testing.assert_allclose(scaled, reward / returns.std(), rtol=1e-6)
    assert scaled.dtype == np.float32
    # The next rollout goes on with the returns 1 and 2 and with all that was seen.
    scale(np.array([[0.0, 3.0]], np.float32), np.array([[False, False]]))
    np.testing.assert_allclose(scale.moments.mean, np.append(returns, [0.5, 4.0]).mean(), rtol=1e-6)


def test_the_mean_of_rewards_is_kept_and_outliers_are_clipped(caplog: pytest.LogCaptureFixture):
    scale = RewardScale(0.0)
    np.testing.assert_allclose(scale(np.array([[1.0], [3.0]]), np.zeros((2, 1), bool)), [[1.0], [3.0]], rtol=1e-6)
    few = np.zeros((1000, 1))
    few[0], few[1] = 1000.0, -1000.0
    assert not caplog.records
    rare = RewardScale(0.0)
    scaled = rare(few, np.zeros((1000, 1), bool))
    np.testing.assert_array_equal(scaled[:3, 0], [10.0, -10.0, 0.0])
    rare(few, np.zeros((1000, 1), bool))
    (said,) = caplog.messages
    assert said.startswith(
        'normalize_reward: a reward of 1000 is 22.4 standard deviations of the return; larger ones than 10 are clipped.'
    )


def test_running_returns_of_some_copies_are_forgotten():
    scale = RewardScale(0.9)
    scale(np.ones((1, 3)), np.zeros((1, 3), bool))
    scale.reset(slice(1, 2))
    scale(np.ones((1, 3)), np.zeros((1, 3), bool))
    np.testing.assert_allclose(scale.returns, [1.9, 1.0, 1.9])


def test_reset_forgets_the_returns_but_not_the_scale():
    scale = RewardScale(0.9)
    rewards, done = np.array([[1.0], [5.0]]), np.zeros((2, 1), bool)
    scale(rewards, done)
    before = scale.moments.scale.copy()
    scale.reset()
    np.testing.assert_array_equal(scale.moments.scale, before)
    scale(np.array([[2.0]]), done[:1])
    np.testing.assert_array_equal(scale.returns, [2.0])


def test_reward_scale_goes_on_from_its_state():
    rng = np.random.default_rng(0)
    rewards, done = rng.normal(size=(2, 20, 3)), rng.random((2, 20, 3)) < 0.2
    scale, restored = RewardScale(0.9), RewardScale(0.9)
    scale(rewards[0], done[0])
    restored.restore(scale.state())
    np.testing.assert_array_equal(scale(rewards[1], done[1]), restored(rewards[1], done[1]))
    np.testing.assert_array_equal(scale.returns, restored.returns)


def test_pickled_without_what_belongs_to_the_process():
    moments = RunningMoments(2)
    moments.update(np.array([[0.0, 1.0], [2.0, 5.0]]))
    assert moments.variables  # of TensorFlow
    moments.all_reduce = lambda x, op: x
    twin = pickle.loads(pickle.dumps(moments))
    np.testing.assert_array_equal(twin.mean, moments.mean)
    assert twin.all_reduce is None and 'variables' not in vars(twin)


def test_rows_without_a_transition_leave_the_reward_scale_alone():
    """Copies that a vector environment only reset, with what it may say of them: rewards and ends that are none."""
    rng = np.random.default_rng(0)
    reward, done, valid = rng.normal(5, 1, (40, 2)), rng.random((40, 2)) < 0.2, rng.random((40, 2)) < 0.7
    scale = RewardScale(0.9)
    scaled = scale(reward, done, valid)
    found, copies = [], []
    for i in range(2):
        alone = RewardScale(0.9)
        alone(reward[valid[:, i], i, None], done[valid[:, i], i, None])
        copies.append(alone.moments)
        found.append(alone.returns[0])
    np.testing.assert_allclose(scale.returns, found, rtol=1e-12)
    assert scale.moments.count == sum(moments.count for moments in copies) == valid.sum()
    total = sum(moments.count * moments.mean for moments in copies)
    np.testing.assert_allclose(scale.moments.mean * scale.moments.count, total, rtol=1e-12)
    assert scaled.shape == reward.shape


def test_a_rollout_in_which_all_were_only_reset_teaches_the_scale_nothing():
    scale = RewardScale(0.9)
    none = np.zeros((3, 2), bool)
    np.testing.assert_array_equal(scale(np.ones((3, 2)), none, none), np.ones((3, 2), np.float32))
    assert scale.moments.count == 0
