"""The rollout that a user holds: returns worked by hand, slices, joints, episodes, minibatches."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete

from zoo.common import spaces
from zoo.common.records import Episode
from zoo.common.rollouts.rollout import Player, Rollout, Span

BOX, TREE = Box(-99.0, 99.0, (1,)), Dict(a=Box(-99.0, 99.0, (1,)), b=Discrete(99))
#: What `VALUES` are looked up in: an observation is the value of its state.
OBS = np.array([[1, 2, 3, 4, 5], [6, 7, 0, 8, 9]], np.float32).T
NEXT = np.array([[2, 70, 4, 5, 10], [7, 8, 0, 9, 20]], np.float32).T


def played(tree: bool = False, **others: Any) -> Rollout:
    """Five rows of two copies: the first ends its episode in row 1; the second is truncated there, and reset in row 2.

    The last episodes go on.
    """
    no = np.zeros((5, 2), bool)
    terminated, truncated, valid, begins = no.copy(), no.copy(), ~no, no.copy()
    terminated[1, 0] = truncated[1, 1] = begins[0] = begins[2, 0] = begins[3, 1] = True
    valid[2, 1] = False
    reward = np.array([[1, 2, 3, 4, 5], [1, 2, 0, 4, 5]], np.float32).T

    def obs(x: np.ndarray) -> Any:
        return {'a': x[..., None], 'b': x.astype(np.int64)} if tree else x[..., None]

    fields = {
        'obs': obs(OBS),
        'action': np.arange(10, dtype=np.int32).reshape(5, 2),
        'reward': reward,
        'next_obs': obs(NEXT),
        'terminated': terminated,
        'truncated': truncated,
        'valid': valid,
        'begins': begins,
        'cut': no,
        'log_prob': None,
        'state': None,
    }
    ends = [(1, 0, Episode(3.0, 2, None, 0)), (1, 1, Episode(9.0, 2, None, 1))]
    player = Player(TREE if tree else BOX, Discrete(10))
    return Rollout(fields | others, player, Span('a play', 0, 5, (0, 1)), ends)


def values(obs: tf.Tensor) -> tf.Tensor:
    return obs  # [B, 1], as a Keras model would give it


def test_returns_bootstrap_where_the_episode_goes_on_unseen_and_nowhere_else():
    by_hand = [[1 + 0.5 * 2, 2, 7.5, 9, 5 + 0.5 * 10], [1 + 0.5 * 6, 2 + 0.5 * 8, 0, 11.5, 5 + 0.5 * 20]]
    assert np.array_equal(played().returns(0.5, values).T, by_hand)
    seen = [[2, 2, 6.25, 6.5, 5], [2, 2, 0, 6.5, 5]]
    assert np.array_equal(played().returns(0.5).T, seen)  # there is no critic to ask


def test_advantages_are_td_errors_at_zero_and_returns_less_values_at_one():
    rollout = played()
    errors = np.where(rollout.valid, rollout.reward + 0.5 * ~rollout.terminated * NEXT - OBS, 0.0)
    assert np.allclose(rollout.advantages(0.5, 0.0, values), errors)
    expected = np.where(rollout.valid, rollout.returns(0.5, values) - OBS, 0.0)
    assert np.allclose(rollout.advantages(0.5, 1.0, values), expected)
    # λ between: of copy 0 by hand, from the end: δ₄ = 5, δ₃ = 2.5, δ₂ = 2, and the episode before: δ₁ = 0, δ₀ = 1.
    assert np.allclose(rollout.advantages(0.5, 0.4, values)[:, 0], [1, 0, 2 + 0.2 * 3.5, 2.5 + 0.2 * 5, 5])
    assert np.allclose(rollout.advantages(0.5, 0.4, (OBS, NEXT)), rollout.advantages(0.5, 0.4, values))
    assert np.allclose(rollout.advantages(0.5, 1.0, 0.0), rollout.returns(0.5))
    for wrong, message in ((None, 'lost its agent'), ((OBS, NEXT[1:]), 'both need'), ('q', 'is a str')):
        with pytest.raises(ValueError, match=message):
            rollout.advantages(0.5, 0.4, wrong)
    with pytest.raises(ValueError, match='values of 10 states have shape'):
        rollout.advantages(0.5, 0.4, lambda obs: tf.concat([obs, obs], 1))


@pytest.mark.parametrize('tree', [False, True])
def test_slices_joined_again_are_the_whole(tree):
    rollout = played(tree)
    whole = rollout[:1] + rollout[1:1] + rollout[1:4] + rollout[4:]
    for name, x in rollout.fields.items():
        for path, array in spaces.tree_items(x):
            found = dict(spaces.tree_items(whole.fields[name]))[path]
            assert found is array is None or np.array_equal(found, array), name
    assert whole.finished == rollout.finished and not whole.cut.any()
    assert [x.copy for x in rollout[1:2, [1]].finished] == [1] and rollout[2:].finished == []


def test_what_does_not_go_on_is_cut_where_it_is_joined():
    rollout = played()
    twice = rollout + rollout
    assert np.array_equal(np.argwhere(twice.cut), [[4, 0], [4, 1]])
    for found, own in (
        (twice.advantages(0.5, 0.4, values), rollout.advantages(0.5, 0.4, values)),
        (twice.returns(0.5, values), rollout.returns(0.5, values)),
    ):
        assert np.allclose(found, np.concatenate([own, own]))
    assert (rollout[:2] + rollout[3:]).cut.sum() == 0  # both had ended their episodes
    assert len(twice.finished) == 4


def test_what_goes_on_after_a_join_that_does_not_is_not_cut():
    rollout = played()
    apart = Rollout.concatenate([rollout[3:], rollout[:1], rollout[1:4], rollout[4:]])
    assert np.array_equal(np.argwhere(apart.cut), [[1, 0], [1, 1]])
    assert np.allclose(apart.returns(0.5, values)[2:], rollout.returns(0.5, values))


def test_episodes():
    rollout = played()
    first, second = rollout.episodes()
    assert np.array_equal(first.obs[:, 0, 0], [1, 2]) and np.array_equal(second.obs[:, 0, 0], [6, 7])
    assert first.finished == rollout.finished[:1] and second.finished == rollout.finished[1:]
    parts = rollout.episodes(whole=False)
    assert [x.obs.ravel().tolist() for x in parts] == [[1, 2], [6, 7], [3, 4, 5], [8, 9]]
    assert len(rollout[1:].episodes()) == 0  # they have begun before
    assert len((rollout[1:] + rollout[1:]).episodes(whole=False)) == 8
    assert all(part.valid.all() for part in parts)


def test_minibatches_hold_every_transition_once_and_the_fields_that_were_added():
    rollout = played(tree=True).with_fields(advantage=OBS)
    batches = list(rollout.minibatches(3, seed=0))
    assert [len(batch) for batch in batches] == [4, 4, 4]
    drawn = np.concatenate([batch.action for batch in batches])
    assert sorted(drawn[:9]) == [0, 1, 2, 3, 4, 6, 7, 8, 9]  # 5 is no transition
    assert np.array_equal(drawn[9:], drawn[:3])  # filled up from the first
    for batch in batches:
        assert np.array_equal(batch.advantage, OBS.ravel()[batch.action])
        assert np.array_equal(batch.obs['b'], batch.advantage) and not batch.ordered and batch.valid.all()
    assert np.array_equal(rollout.shuffle(3).action, rollout.shuffle(3).action)
    assert not np.array_equal(rollout.shuffle(3).action, rollout.flat().action)
    assert np.array_equal(rollout[rollout.reward > 3].action, [6, 7, 8, 9])
    assert np.array_equal(rollout.flat()[[1, 0]].action, [1, 0]) and len(rollout.flat()[5:]) == 4


def test_an_empty_slice_is_empty():
    empty = played()[3:3]
    assert len(empty) == empty.steps == 0 and empty.finished == empty.episodes() == []
    assert empty.returns(0.9).shape == empty.advantages(0.9, 0.9).shape == (0, 2)
    assert len(empty.flat()) == 0 and np.array_equal((empty + played()).obs, played().obs)
    with pytest.raises(ValueError, match='no transition'):
        empty.minibatches(1)


def refused() -> dict[str, tuple[Any, str]]:
    rollout = played()
    return {
        'loose returns': (lambda: rollout.flat().returns(0.9), 'in their order'),
        'loose advantages': (lambda: rollout.shuffle().advantages(0.9, 0.9, 0.0), 'in their order'),
        'one step': (lambda: rollout[3], r'rollout\[10:20\]'),
        'backwards': (lambda: rollout[::-1], 'in their order'),
        'one copy': (lambda: rollout[:, 1], 'copies are picked'),
        'a matrix of loose ones': (lambda: rollout.flat()[np.zeros((2, 2), int)], 'are picked by'),
        'a name that is taken': (lambda: rollout.with_fields(obs=OBS), "'obs'"),
        'a name of a method': (lambda: rollout.with_fields(returns=OBS), "'returns'"),
        'other axes': (lambda: rollout.with_fields(advantage=OBS[1:]), r'\(5, 2\)'),
        'too many minibatches': (lambda: rollout.minibatches(11), '1 to 10'),
        'nothing to join': (lambda: Rollout.concatenate([]), 'at least one'),
        'other fields': (lambda: rollout + rollout.with_fields(x=OBS), 'only one has x'),
        'other spaces': (lambda: rollout + played(tree=True), 'other spaces'),
        'other copies': (lambda: rollout + rollout[:, [0]], 'cannot follow'),
        'ordered and loose': (lambda: rollout + rollout.flat(), 'cannot follow'),
    }


@pytest.mark.parametrize('what', refused())
def test_refused_in_one_sentence(what):
    do, message = refused()[what]
    with pytest.raises(ValueError, match=message) as refusal:
        do()
    assert str(refusal.value).count('. ') == 0


def test_it_does_not_change():
    rollout = played()
    with pytest.raises(AttributeError, match='with_fields'):
        rollout.reward = OBS
    assert np.array_equal(rollout.with_fields(reward=OBS).reward, OBS) and rollout.reward[0, 0] == 1


def test_recurrent_rollouts_are_joined_where_states_go_on_or_begin():
    rollout = played(state=np.zeros((5, 2, 3), np.float32))
    assert len(rollout[:2] + rollout[2:]) == 5
    assert len(rollout + rollout) == 10  # every episode begins anew
    with pytest.raises(ValueError, match='evaluate each by itself'):
        rollout + rollout[1:]


def test_pickled_it_loses_the_agent_alone():
    rollout = pickle.loads(pickle.dumps(played(tree=True)))
    assert np.array_equal(rollout.obs['a'], played(tree=True).obs['a']) and len(rollout.finished) == 2
    assert rollout.player.agent is None and spaces.same(rollout.player.observation_space, TREE)


def test_a_compiled_function_is_traced_once_for_a_shape():
    rollout = played(tree=True).with_fields(weight=OBS)

    @tf.function
    def total(batch: Rollout) -> tf.Tensor:
        assert batch.log_prob is None
        return tf.reduce_sum(batch.weight * batch.obs['a'][:, 0])

    for batch in rollout.minibatches(2, seed=0):
        assert np.isclose(total(batch), np.sum(batch.weight * batch.obs['a'][:, 0]))
    assert total.experimental_get_tracing_count() == 1
