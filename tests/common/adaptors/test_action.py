"""The action adaptor: sampling against the distributions, masks, and the way to every kind of environment."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from gymnasium.vector.utils import batch_space, iterate

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor, mismatch
from zoo.common.adaptors.masks import MASKED_LOGIT, masked
from zoo.common.adaptors.parts import LOG_STD_BOUNDS

INF = np.inf
SAMPLES = 20_000


def box(low: object, high: object, dtype: type = np.float32) -> Box:
    return Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)


BOUNDED: dict[str, Space] = {
    'box': Box(-1, 1, (3,)),
    'skew box': box([0.1, -0.7, 1e4], [0.3, 0.4, 1.00003e4]),
    'float64 box': box([0.1, -0.7], [0.3, 0.4], np.float64),
    'matrix box': Box(-2, 5, (2, 3)),
    'one-point box': box([1, -1], [1, 1]),
}
OTHERS: dict[str, Space] = {
    'unbounded box': Box(-INF, INF, (2,)),
    'half-bounded box': box([-INF, 0.1, -INF], [0.3, INF, INF]),
    'partly bounded box': box([-1, -INF], [1, INF]),
    'bytes': Box(0, 255, (4,), np.uint8),
    'integer box': box([-3, 5], [2, 9], np.int64),
    'largest int32 box': Box(np.iinfo(np.int32).min, np.iinfo(np.int32).max, (2,), np.int32),
    'unbounded integer box': Box(-INF, INF, (2,), np.int32),
    'unbounded int64 box': Box(-INF, INF, (2,), np.int64),
    'switches': Box(0, 1, (3,), bool),
    'discrete': Discrete(4),
    'discrete with start': Discrete(4, start=-2),
    'narrow discrete': Discrete(3, start=5, dtype=np.int32),
    'multi-discrete': MultiDiscrete([2, 5, 3]),
    'multi-discrete 2-D with start': MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [-2, 3]]),
    'multi-binary': MultiBinary(3),
    'multi-binary 2-D': MultiBinary([2, 3]),
    'nested': Dict(
        {
            'z': Tuple([box([0.1], [0.3]), Discrete(3, start=1)]),
            'a': Dict({'q': MultiBinary(2), 'b': MultiDiscrete([2, 3], start=[4, 0])}),
            'm': Box(-INF, INF, (2, 2)),
        }
    ),
    'tuple': Tuple([Discrete(2, start=7), Box(-1, 1, (1,))]),
    'dict of one': Dict(only=Box(-3, 1, (2,))),
}
ALL = BOUNDED | OTHERS


def wide_params(adaptor: ActionAdaptor, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, (n, adaptor.param_size)).astype(np.float32)


def stored_actions(adaptor: ActionAdaptor, n: int = 200) -> list[spaces.Flat]:
    """Stored actions of every origin, the ends of the range and far outside it among them."""
    rng = np.random.default_rng(0)
    params = wide_params(adaptor, n)
    found = [adaptor.sample(params, rng), adaptor.mode(params), adaptor.random(n, rng)]
    for value in (-1.0, 1.0, -50.0, 50.0, -1e30, 1e30):
        items = dict(spaces.tree_items(adaptor.random(n, rng)))
        for part in adaptor.parts:
            if 'gaussian' in part.kind:
                items[part.path] = np.full((n, part.size), value, np.float32)
        found.append(spaces.from_items(adaptor.space, items))
    return found


# To the environment.


@pytest.mark.full(but='narrow discrete-False')
@pytest.mark.parametrize('squash', [False, True])
@pytest.mark.parametrize('space', ALL.values(), ids=ALL)
def test_every_action_is_inside_the_space(space: Space, squash: bool):
    adaptor = ActionAdaptor(space, squash)
    for stored in stored_actions(adaptor):
        batch = adaptor.to_env(stored)
        elements = list(iterate(batch_space(space, 200), batch))
        assert len(elements) == 200
        for element in elements:
            assert space.contains(element), element
        single = adaptor.to_single_env(spaces.tree_map(lambda x: x[:1], stored))
        assert space.contains(single), single
        one = [x for _, x in spaces.tree_items(spaces.flatten(space, single))]
        first = [x for _, x in spaces.tree_items(spaces.flatten(space, elements[0]))]
        for leaf, a, b in zip(spaces.leaves(space).values(), one, first, strict=True):
            assert np.asarray(a).dtype == leaf.dtype
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize('space', ALL.values(), ids=ALL)
def test_storage_holds_what_is_sampled(space: Space):
    adaptor = ActionAdaptor(space)
    storage = adaptor.zeros((200,))
    for stored in stored_actions(adaptor):
        for path, x in spaces.tree_items(stored):
            target = storage[path] if path else storage
            assert target.shape == x.shape
            assert np.can_cast(x.dtype, target.dtype, 'same_kind')
    two = adaptor.zeros((3, 4))
    assert all(x.shape[:2] == (3, 4) for _, x in spaces.tree_items(two))


def test_a_single_action_has_the_type_of_a_sample():
    for space in (*ALL.values(), Box(-2, 3, (), np.float32)):
        adaptor = ActionAdaptor(space)
        single = adaptor.to_single_env(adaptor.random(1, np.random.default_rng(0)))
        assert type(single) is type(space.sample()), space
        if spaces.is_leaf(space):
            assert np.shape(single) == space.shape


@pytest.mark.parametrize('name', ALL)
def test_tensors_become_the_actions_that_arrays_become(name: str):
    space = ALL[name]
    adaptor = ActionAdaptor(space)
    stored = adaptor.sample(wide_params(adaptor, 200), np.random.default_rng(1))
    expected = dict(spaces.tree_items(spaces.flatten(space, adaptor.to_env(stored))))
    found = {path: x.numpy() for path, x in adaptor.tensors_to_env(spaces.tree_map(tf.constant, stored)).items()}
    assert found.keys() == expected.keys()
    for path, x in expected.items():
        assert found[path].dtype == x.dtype and found[path].shape == x.shape
        np.testing.assert_allclose(found[path], x, rtol=1e-6, atol=1e-6 if x.dtype.kind == 'f' else 0)


@pytest.mark.parametrize('name', [name for name in ALL if 'int64' not in name and 'int32' not in name])
def test_actions_computed_in_float32_are_inside_the_space_too(name: str):
    space = ALL[name]
    adaptor = ActionAdaptor(space)
    stored = adaptor.sample(2 * wide_params(adaptor, 200), np.random.default_rng(1))
    expected = dict(spaces.tree_items(spaces.flatten(space, adaptor.to_env(stored))))
    found = adaptor.tensors_to_env(spaces.tree_map(tf.constant, stored), float32=True)
    for path, x in expected.items():
        np.testing.assert_allclose(found[path].numpy(), x, rtol=1e-6, atol=1e-6)
    batch = spaces.unflatten(space, spaces.from_items(space, {path: x.numpy() for path, x in found.items()}))
    assert all(space.contains(action) for action in iterate(batch_space(space, 200), batch))


def test_box_scaling_by_hand():
    adaptor = ActionAdaptor(box([-2, 0], [2, 10]))
    np.testing.assert_allclose(adaptor.to_env(np.array([[-1, -1], [0, 0.5], [1, 3]])), [[-2, 0], [0, 7.5], [2, 10]])
    assert adaptor.bounded


def test_an_unbounded_side_keeps_the_units_and_the_other_side_clips():
    adaptor = ActionAdaptor(box([-INF, -1], [INF, INF]))
    np.testing.assert_array_equal(adaptor.to_env(np.array([[7.5, -7.5], [-3, 3]])), [[7.5, -1], [-3, 3]])
    assert not adaptor.bounded


def test_where_any_bound_is_missing_no_entry_is_scaled():
    adaptor = ActionAdaptor(box([0, 0], [100, INF]))
    np.testing.assert_array_equal(
        adaptor.to_env(np.array([[1, -1], [0.5, 3], [101, 1e9]])), [[1, 0], [0.5, 3], [100, 1e9]]
    )


def test_boxes_of_bool_round_to_the_nearest():
    found = ActionAdaptor(Box(0, 1, (1,), bool)).to_env(np.array([[-1], [-0.1], [0.1], [1], [7]], np.float32))
    np.testing.assert_array_equal(found[:, 0], [False, False, True, True, True])


@pytest.mark.parametrize(
    ('space', 'reaches'),
    [
        (Box(-1e38, 1e38, (2,)), 'from -1e\\+38 to 1e\\+38'),
        (Box(-1.7e308, 1.7e308, (), np.float64), 'from -1.7e\\+308 to 1.7e\\+308'),
        (Box(-(2**63), 2**63 - 1, (1,), np.int64), 'from -9.22337e\\+18 to 9.22337e\\+18'),
        (box([0, 0], [1, 1.1e10]), 'from 0 to 1.1e\\+10'),
    ],
    ids=str,
)
def test_a_range_too_wide_to_scale_is_refused(space: Space, reaches: str):
    said = f"^the part 'a' of the action space, Box.*, reaches {reaches}, .* at most 1e\\+10 apart.*\\.$"
    with np.errstate(all='raise'), pytest.raises(ValueError, match=said):
        ActionAdaptor(Dict(a=space, b=Discrete(2)))
    assert ActionAdaptor(Box(-5e9, 5e9, (1,))).bounded


@pytest.mark.parametrize(
    'space', [Box(-1, 1, (0,)), Box(-1, 1, (2, 0)), Tuple([Discrete(2), Box(0, 1, (0,))])], ids=str
)
def test_an_action_without_entries_is_refused(space: Space):
    with pytest.raises(ValueError, match=r'action space, Box\(.*0,?\) float32, has no entries: .*\.$'):
        ActionAdaptor(space)


@pytest.mark.parametrize('space', [Discrete(2**31), MultiDiscrete([2**30, 2**30])], ids=str)
def test_more_actions_than_an_index_can_count_are_refused(space: Space):
    with pytest.raises(ValueError, match=r'^the action space, .*, has 2147483648 values to choose from.*\.$'):
        ActionAdaptor(space)


def test_integer_boxes_round_to_the_nearest():
    adaptor = ActionAdaptor(Box(0, 10, (1,), np.int64))
    found = adaptor.to_env(np.array([[-1], [-0.92], [-0.88], [0.29], [0.31], [1]], np.float32))
    np.testing.assert_array_equal(found[:, 0], [0, 0, 1, 6, 7, 10])
    unbounded = ActionAdaptor(Box(-INF, INF, (1,), np.int32))
    assert not unbounded.bounded, 'the bounds that Gymnasium fills in are those of the dtype'
    np.testing.assert_array_equal(unbounded.to_env(np.array([[1.4], [-2.6]], np.float32)), [[1], [-3]])
    widest = ActionAdaptor(Box(-INF, INF, (1,), np.int64)).to_env(np.array([[1e30], [-1e30]], np.float32))
    np.testing.assert_array_equal(widest, [[2**63 - 1024], [-(2**63)]])  # the largest float64 that is an int64


@pytest.mark.parametrize(('low', 'dtype'), [(2**30, np.int32), (-(2**50), np.int64), (2**30, np.float64)])
def test_bounds_beyond_the_digits_of_float32(low: int, dtype: type):
    adaptor = ActionAdaptor(Box(low, low + 4, (1,), dtype))
    found = adaptor.to_env(np.array([[-1], [-0.5], [0], [0.5], [1]], np.float32))
    np.testing.assert_array_equal(found[:, 0] - low, [0, 1, 2, 3, 4])


def test_start_offsets_by_hand():
    assert ActionAdaptor(Discrete(3, start=-1)).to_single_env(np.array([2])) == 1
    adaptor = ActionAdaptor(MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [-2, 3]]))
    np.testing.assert_array_equal(adaptor.to_single_env(np.array([[1, 2, 0, 4]])), [[1, 3], [-2, 7]])


def test_nested_actions_have_the_form_of_the_space():
    space = OTHERS['nested']
    adaptor = ActionAdaptor(space)
    stored = adaptor.random(2, np.random.default_rng(0))
    for order in (stored, dict(reversed(stored.items()))):
        batch = adaptor.to_env(order)
        assert batch.keys() == {'a', 'm', 'z'}
        assert isinstance(batch['z'], tuple)
        np.testing.assert_array_equal(batch['z'][1], stored['z/1'] + 1)
        np.testing.assert_array_equal(batch['a']['b'], stored['a/b'] + [4, 0])
        np.testing.assert_array_equal(batch['a']['q'], stored['a/q'])
        np.testing.assert_array_equal(batch['m'], stored['m'].reshape(2, 2, 2))


@pytest.mark.parametrize('space', ALL.values(), ids=ALL)
def test_random_actions_reach_every_choice_and_both_halves(space: Space):
    adaptor = ActionAdaptor(space)
    stored = adaptor.random(2000, np.random.default_rng(0))
    for part, (path, x) in zip(adaptor.parts, spaces.tree_items(stored), strict=True):
        assert part.path == path
        if part.counts:
            for column, n in zip(x.reshape(2000, -1).T, part.counts, strict=True):
                np.testing.assert_allclose(np.bincount(column, minlength=n) / 2000, 1 / n, atol=0.06)
        elif part.kind == 'bernoulli':
            np.testing.assert_allclose(x.mean(0), 0.5, atol=0.06)
        else:
            std = 1.0 if not ActionAdaptor(spaces.leaves(space)[path]).bounded else 1 / np.sqrt(3)
            np.testing.assert_allclose(x.mean(0), 0.0, atol=0.1)
            np.testing.assert_allclose(x.std(0), std, atol=0.06)


# Sampling.

KINDS: dict[str, tuple[Space, bool]] = {
    'categorical': (Discrete(4, start=2), False),
    'multi-categorical': (MultiDiscrete([2, 4, 3]), False),
    'bernoulli': (MultiBinary(3), False),
    'gaussian': (Box(-1, 1, (2,)), False),
    'squashed': (Box(-1, 1, (2,)), True),
    'product': (Dict(b=Discrete(3), a=Box(-1, 1, (2,)), c=Tuple([MultiBinary(2), MultiDiscrete([2, 3])])), False),
    'squashed product': (Tuple([Box(-1, 1, (2,)), Discrete(2)]), True),
}


def moments(stored: spaces.Flat) -> dict[str, np.ndarray]:
    """Frequencies of discrete choices, means and standard deviations of continuous ones, by path."""
    found = {}
    for path, x in spaces.tree_items(stored):
        x = np.asarray(x).reshape(SAMPLES, -1)
        if x.dtype.kind == 'f':
            found[path] = np.stack([x.mean(0), x.std(0)])
        else:
            found[path] = np.stack([np.bincount(column, minlength=6) / SAMPLES for column in x.T])
    return found


@pytest.mark.parametrize('kind', KINDS)
def test_samples_are_distributed_as_the_distribution_says(kind: str):
    adaptor = ActionAdaptor(*KINDS[kind])
    one = np.random.default_rng(3).normal(0, 0.7, (1, adaptor.param_size)).astype(np.float32)
    params = np.repeat(one, SAMPLES, 0)
    ours = adaptor.sample(params, np.random.default_rng(0))
    theirs = adaptor.distribution.sample(tf.constant(params), tf.constant([1, 2]))
    a, b = moments(ours), moments(spaces.tree_map(lambda x: x.numpy(), theirs))
    assert a.keys() == b.keys()
    for path in a:
        # Five standard errors of the difference of two means of SAMPLES draws of standard deviation at most 2.
        np.testing.assert_allclose(a[path], b[path], atol=5 * 2 * np.sqrt(2 / SAMPLES) if 'gauss' in kind else 0.05)
    # The mean log-probability of our samples is minus the entropy of their distribution, and of no other.
    log_prob = adaptor.distribution.log_prob(tf.constant(params), spaces.tree_map(tf.constant, ours)).numpy()
    other = adaptor.distribution.log_prob(tf.constant(params), theirs).numpy()
    np.testing.assert_allclose(log_prob.mean(), other.mean(), atol=5 * log_prob.std() * np.sqrt(2 / SAMPLES))


def test_categorical_frequencies_by_hand():
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    params = np.repeat(np.log(probabilities)[None].astype(np.float32), SAMPLES, 0)
    found = ActionAdaptor(Discrete(4)).sample(params, np.random.default_rng(0))
    errors = np.sqrt(probabilities * (1 - probabilities) / SAMPLES)
    assert (np.abs(np.bincount(found, minlength=4) / SAMPLES - probabilities) < 5 * errors).all()


def test_multi_categorical_entries_are_independent():
    adaptor = ActionAdaptor(MultiDiscrete([2, 2]))
    found = adaptor.sample(np.zeros((SAMPLES, 4), np.float32), np.random.default_rng(0))
    joint = np.bincount(found @ [2, 1], minlength=4) / SAMPLES
    np.testing.assert_allclose(joint, 0.25, atol=5 * np.sqrt(0.1875 / SAMPLES))


def test_gaussian_moments_by_hand():
    params = np.tile(np.array([2.0, -1.0, np.log(0.5), np.log(3.0)], np.float32), (SAMPLES, 1))
    found = ActionAdaptor(Box(-1, 1, (2,))).sample(params, np.random.default_rng(0))
    assert (np.abs(found.mean(0) - [2, -1]) < 5 * np.array([0.5, 3]) / np.sqrt(SAMPLES)).all()
    np.testing.assert_allclose(found.std(0), [0.5, 3], rtol=5 / np.sqrt(2 * SAMPLES))
    assert found.dtype == np.float32
    assert (np.abs(found[:, 0]) > 1).any(), 'stored as drawn, not clipped'


def test_extreme_logits_of_switches_do_not_overflow():
    params = np.tile(np.array([[-200.0, 200.0]], np.float32), (1000, 1))
    with np.errstate(all='raise'):
        found = ActionAdaptor(MultiBinary(2)).sample(params, np.random.default_rng(0))
    np.testing.assert_array_equal(found, np.tile([0, 1], (1000, 1)))


@pytest.mark.parametrize('kind', KINDS)
def test_modes_are_those_of_the_distribution(kind: str):
    adaptor = ActionAdaptor(*KINDS[kind])
    params = wide_params(adaptor, 50)
    ours, theirs = adaptor.mode(params), adaptor.distribution.mode(tf.constant(params))
    assert dict(spaces.tree_items(ours)).keys() == dict(spaces.tree_items(theirs)).keys()
    for path, x in spaces.tree_items(ours):
        np.testing.assert_allclose(x, theirs[path] if path else theirs, atol=1e-6)


@pytest.mark.parametrize('kind', KINDS)
def test_param_size_is_the_distributions(kind: str):
    adaptor = ActionAdaptor(*KINDS[kind])
    assert adaptor.param_size == adaptor.distribution.param_size


def test_parts_are_in_the_order_of_their_paths():
    space = KINDS['product'][0]
    assert [part.path for part in ActionAdaptor(space).parts] == ['a', 'b', 'c/0', 'c/1']
    assert [path for path, _ in ActionAdaptor(space).distribution.parts] == ['a', 'b', 'c/0', 'c/1']


def test_param_bounds_are_those_of_the_log_standard_deviations_alone():
    low, high = ActionAdaptor(Dict(a=Box(-1, 1, (2,)), b=Discrete(3), c=Box(-1, 1, (1,))), squash=True).param_bounds
    free, bound = [-INF, -INF], [LOG_STD_BOUNDS[0]] * 2
    np.testing.assert_array_equal(low, [*free, *bound, -INF, -INF, -INF, -INF, LOG_STD_BOUNDS[0]])
    np.testing.assert_array_equal(np.isinf(high), np.isinf(low))
    assert set(high[np.isfinite(high)]) == {LOG_STD_BOUNDS[1]}
    assert ActionAdaptor(Dict(a=Discrete(2), b=MultiBinary(2))).param_bounds is None


# An agent and an environment.


def test_what_sets_an_environment_apart_is_said():
    own = Dict(arm=box([-1, 0], [1, 10]), grip=Discrete(2))
    assert mismatch(own, Dict(arm=box([-1, 0], [1, 10]), grip=Discrete(2))) is None
    assert mismatch(own, Dict(arm=box([-1, 0], [1, 9]), grip=Discrete(2))) == (
        "goes from [-1, 0] to [1, 9] in 'arm', but this agent's actions go from [-1, 0] to [1, 10]"
    )
    assert mismatch(Box(-1, 1, (2,)), Box(-INF, INF, (2,))) == (
        "goes from -inf to inf, but this agent's actions go from -1 to 1"
    )
    assert mismatch(Box(-(2**31), 2**31 - 1, (1,), np.int32), Box(-INF, INF, (1,), np.int32)) == (
        "goes from -inf to inf, but this agent's actions go from -2.14748e+09 to 2.14748e+09"
    )
    assert mismatch(Discrete(2), Discrete(3)) == 'is Discrete(3), but this agent was made for Discrete(2)'


# Masks.


def test_forbidden_actions_are_never_sampled():
    rng = np.random.default_rng(0)
    params = rng.normal(0, 5, (SAMPLES, 6)).astype(np.float32)
    allowed = rng.random((SAMPLES, 6)) < 0.5
    allowed[np.arange(SAMPLES), rng.integers(6, size=SAMPLES)] = True
    logits = np.where(allowed, params, np.float32(MASKED_LOGIT))
    adaptor = ActionAdaptor(Discrete(6))
    for action in (adaptor.sample(logits, rng), adaptor.mode(logits)):
        assert allowed[np.arange(SAMPLES), action].all()


def test_forbidden_entries_of_a_multi_discrete_are_never_sampled():
    logits = np.tile(np.array([0, MASKED_LOGIT, MASKED_LOGIT, 0, MASKED_LOGIT], np.float32), (SAMPLES, 1))
    adaptor = ActionAdaptor(MultiDiscrete([2, 3]))
    for action in (adaptor.sample(logits, np.random.default_rng(0)), adaptor.mode(logits)):
        np.testing.assert_array_equal(action, np.tile([0, 1], (SAMPLES, 1)))


@pytest.mark.parametrize('dtype', [np.int8, bool, np.float32])
def test_masks_by_hand(dtype: type):
    """Where every value of a choice is forbidden there is none to choose: its part of the mask is none at all."""
    values = np.arange(15, dtype=np.float32).reshape(3, 5)
    mask = np.array([[1, 0, 0, 1, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]], dtype)
    one = np.where([[1, 0, 0, 1, 1], [0, 0, 1, 0, 0], [1, 1, 1, 1, 1]], values, MASKED_LOGIT)
    two = np.where([[1, 0, 0, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], values, MASKED_LOGIT)
    switches = np.where(mask.astype(bool), values, MASKED_LOGIT)  # which may all be off
    for counts, expected in ((None, one), ((5,), one), ((2, 3), two), ((), switches)):
        found = masked(values, mask, counts)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(masked(tf.constant(values), tf.constant(mask), counts), expected)
    np.testing.assert_array_equal(masked(values, mask.reshape(3, 1, 5)), one)


class FirstDrawIsZero:
    """A generator whose first exponential of each row is 0, as NumPy's own is once in some ten million draws."""

    def standard_exponential(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        drawn = np.ones(shape, dtype)
        drawn[:, 0] = 0.0
        return drawn


@pytest.mark.parametrize('logit', [MASKED_LOGIT, -25.0])
def test_a_zero_from_the_generator_does_not_let_a_forbidden_or_hopeless_action_through(logit: float):
    logits = np.array([[logit, 0.0, 1.0]], np.float32)
    with np.errstate(all='raise'):
        assert ActionAdaptor(Discrete(3)).sample(logits, FirstDrawIsZero()) == 2


@pytest.mark.parametrize(
    ('space', 'maskable'),
    [
        (Discrete(3), True),
        (MultiDiscrete([2, 3]), True),
        (MultiBinary(3), True),
        (Box(-1, 1, (2,)), False),
        (Tuple([Discrete(2), Discrete(3)]), False),
        (Tuple([Discrete(2)]), False),
        (Dict({'a': Discrete(2)}), False),
    ],
    ids=str,
)
def test_what_can_be_masked(space: Space, maskable: bool):
    assert ActionAdaptor(space).maskable == maskable


def test_an_unknown_leaf_is_refused():
    with pytest.raises(TypeError, match="^the part '1' is text, which no network reads"):
        ActionAdaptor(Tuple([Discrete(2), Text(3)]))
