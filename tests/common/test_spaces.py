"""Spaces as flat structures: by key and never by position, to JSON and back, and what is refused."""

from __future__ import annotations

import json
from collections import OrderedDict

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Space, Text, Tuple
from gymnasium.vector.utils import batch_space

from zoo.common import spaces

CAMERA = Box(0, 255, (8, 8, 3), np.uint8)
NESTED = Dict(
    {
        'pose': Tuple([Box(-1, 1, (3,), np.float32), Discrete(4, start=-1)]),
        'camera': Dict({'right': CAMERA, 'left': CAMERA}),
        'flags': MultiBinary([2, 2]),
        'gear': MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]]),
    }
)
LEAVES: dict[str, Space] = {
    'box': Box(-1, 1, (3,), np.float32),
    'unbounded box': Box(-np.inf, np.inf, (2, 2), np.float64),
    'half-bounded box': Box(np.array([-np.inf, 0], np.float32), np.array([1, np.inf], np.float32)),
    'integer box': Box(np.array([-3, 0]), np.array([2, 9]), dtype=np.int64),
    'scalar box': Box(-2, 2, (), np.float32),
    'unbounded integer box': Box(-np.inf, np.inf, (2,), np.int64),
    'half-bounded integer box': Box(np.array([0, -np.inf]), np.array([np.inf, 5]), dtype=np.int32),
    'stack of frames': spaces.FrameStack(Box(0, 255, (8, 8, 1), np.uint8), 4),
    'stack of unbounded frames': spaces.FrameStack(Box(-np.inf, np.inf, (8, 8, 1), np.int32), 2),
    'image': CAMERA,
    'discrete': Discrete(5, start=3),
    'multi-discrete': MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]]),
    'multi-binary': MultiBinary(3),
    'multi-binary 2-D': MultiBinary([2, 3]),
}
ALL = LEAVES | {'nested': NESTED, 'tuple': Tuple([Discrete(2), Dict({'a': Discrete(3)})])}


def assert_equal(a: object, b: object) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    else:
        np.testing.assert_array_equal(a, b)


def test_leaves_are_named_by_their_paths_in_sorted_order():
    found = spaces.leaves(NESTED)
    assert list(found) == ['camera/left', 'camera/right', 'flags', 'gear', 'pose/0', 'pose/1']
    assert found['pose/1'] == Discrete(4, start=-1)
    assert found['camera/left'] == CAMERA


def test_leaves_have_one_order_whatever_the_order_of_the_keys():
    one = Dict(OrderedDict(b=Discrete(2), a=Discrete(3)))
    other = Dict(OrderedDict(a=Discrete(3), b=Discrete(2)))
    assert list(one.spaces) != list(other.spaces), 'Gymnasium keeps the order of an OrderedDict'
    assert list(spaces.leaves(one).items()) == list(spaces.leaves(other).items())


def test_more_than_ten_parts_of_a_tuple_stay_in_their_own_order():
    tuple_ = Tuple([Discrete(i + 1) for i in range(12)])
    assert [leaf.n for leaf in spaces.leaves(tuple_).values()] == list(range(1, 13))
    assert spaces.unflatten(tuple_, spaces.flatten(tuple_, tuple(range(12)))) == tuple(range(12))


@pytest.mark.parametrize('space', LEAVES.values(), ids=LEAVES)
def test_a_leaf_is_its_own_flat_structure(space: Space):
    x = space.sample()
    assert spaces.is_leaf(space)
    assert list(spaces.leaves(space)) == ['']
    assert spaces.flatten(space, x) is x
    assert spaces.unflatten(space, x) is x
    assert spaces.from_items(space, {'': x}) is x
    assert spaces.tree_items(x)[0][1] is x


@pytest.mark.parametrize('space', ALL.values(), ids=ALL)
def test_unflatten_undoes_flatten(space: Space):
    space.seed(0)
    x = space.sample()
    back = spaces.unflatten(space, spaces.flatten(space, x))
    assert space.contains(back)
    assert_equal(back, x)


def test_flatten_goes_by_key_and_does_not_copy():
    x = NESTED.sample()
    shuffled = {key: x[key] for key in ('pose', 'gear', 'flags')} | {'camera': dict(reversed(x['camera'].items()))}
    flat = spaces.flatten(NESTED, shuffled)
    assert flat['camera/left'] is x['camera']['left']
    assert flat['camera/right'] is x['camera']['right']
    assert flat['pose/0'] is x['pose'][0]
    assert flat['gear'] is x['gear']


def test_flatten_takes_batches_alike():
    batch = batch_space(NESTED, 5).sample()
    flat = spaces.flatten(NESTED, batch)
    assert {path: x.shape for path, x in flat.items()} == {
        path: (5, *leaf.shape) for path, leaf in spaces.leaves(NESTED).items()
    }


@pytest.mark.parametrize(
    ('x', 'missing'),
    [
        ({'camera': {'left': 0, 'right': 0}, 'flags': 0, 'gear': 0}, 'pose'),
        ({'camera': {'left': 0}, 'flags': 0, 'gear': 0, 'pose': (0, 0)}, 'camera/right'),
        ({'camera': {'left': 0, 'right': 0}, 'flags': 0, 'gear': 0, 'pose': (0,)}, 'pose/1'),
        (np.zeros(3), 'camera'),
    ],
)
def test_a_missing_part_is_named(x: object, missing: str):
    with pytest.raises(TypeError, match=f"^the part '{missing}' is missing, which an element of (Dict|Tuple)\\(.*\\.$"):
        spaces.flatten(NESTED, x)


def test_tree_map_pairs_arrays_by_path():
    a = {'x': np.array(1), 'y': np.array(2)}
    b = {'y': np.array(20), 'x': np.array(10)}
    assert spaces.tree_map(lambda p, q: int(p + q), a, b) == {'x': 11, 'y': 22}
    assert spaces.tree_map(lambda p, q: int(p - q), np.array(5), np.array(3)) == 2


def test_zeros_have_the_dtypes_and_shapes_of_the_leaves():
    flat = spaces.zeros(NESTED, (4, 2))
    for path, leaf in spaces.leaves(NESTED).items():
        assert flat[path].shape == (4, 2, *leaf.shape)
        assert flat[path].dtype == leaf.dtype
        assert not flat[path].any()
    assert spaces.zeros(CAMERA, (3,)).dtype == np.uint8


SAME = [
    (Box(-1, 1, (3,)), Box(-2, 2, (3,))),
    (MultiBinary(3), MultiBinary([3])),
    (Dict(OrderedDict(a=Discrete(2), b=Discrete(3))), Dict(OrderedDict(b=Discrete(3), a=Discrete(2)))),
    (NESTED, NESTED),
]
DIFFERENT = [
    (Box(-1, 1, (3,)), Box(-1, 1, (4,))),
    (Box(-1, 1, (3,), np.float32), Box(-1, 1, (3,), np.float64)),
    (Discrete(3), Discrete(4)),
    (Discrete(3), Discrete(3, start=1)),
    (Discrete(2), MultiBinary(1)),
    (MultiDiscrete([2, 3]), MultiDiscrete([3, 2])),
    (MultiDiscrete([2, 3]), MultiDiscrete([2, 3], start=[0, 1])),
    (MultiBinary(3), MultiBinary([3, 1])),
    (Dict(a=Discrete(2)), Dict(b=Discrete(2))),
    (Dict(a=Discrete(2)), Dict(a=Discrete(2), b=Discrete(2))),
]


@pytest.mark.parametrize(('a', 'b'), SAME, ids=str)
def test_same(a: Space, b: Space):
    assert spaces.same(a, b)
    assert spaces.same(b, a)


@pytest.mark.parametrize(('a', 'b'), DIFFERENT, ids=str)
def test_not_the_same(a: Space, b: Space):
    assert not spaces.same(a, b)
    assert not spaces.same(b, a)


def test_a_mismatch_is_said():
    assert spaces.mismatch(NESTED, NESTED) is None
    assert spaces.mismatch(Discrete(3), Discrete(4)) == 'is Discrete(4), but this agent was made for Discrete(3)'


@pytest.mark.parametrize(
    ('low', 'high', 'said'),
    [
        (np.zeros((2, 2)), np.full((2, 2), 255), 'from 0 to 255'),
        ((-np.inf, 0.5), (1, 1), 'from [-inf, 0.5] to 1'),
        (np.arange(9), np.arange(9) + 1, 'from [0, 1, 2, …, 8] to [1, 2, 3, …, 9]'),
        (0.0, 1e38, 'from 0 to 1e+38'),
    ],
)
def test_ranges_are_short(low: object, high: object, said: str):
    assert spaces.describe_range(low, high) == said


@pytest.mark.parametrize('space', ALL.values(), ids=ALL)
def test_json_round_trip(space: Space):
    back = spaces.from_json(json.loads(json.dumps(spaces.to_json(space))))
    assert back == space
    assert spaces.same(back, space)
    for path, leaf in spaces.leaves(space).items():
        other = spaces.leaves(back)[path]
        assert other.dtype == leaf.dtype
        for side in ('bounded_below', 'bounded_above'):  # in integers no bound shows
            np.testing.assert_array_equal(getattr(other, side, None), getattr(leaf, side, None))


def test_a_stack_of_frames_without_bounds_has_none():
    assert not ALL['stack of unbounded frames'].is_bounded()
    assert ALL['stack of frames'].is_bounded()


def test_json_keeps_the_order_of_the_keys_whoever_sorts_them():
    inner = Dict([('z', Discrete(2)), ('y', MultiBinary(2))])
    space = Dict([('b', Discrete(2)), (3, Discrete(4)), ('a', Tuple([inner, CAMERA]))])
    back = spaces.from_json(json.loads(json.dumps(spaces.to_json(space), sort_keys=True)))
    assert back == space
    assert list(back.spaces) == ['b', 3, 'a']
    assert list(back['a'][0].spaces) == ['z', 'y']


def test_json_of_dicts_as_it_was_written_before_is_read():
    data = {'type': 'Dict', 'spaces': {'b': spaces.to_json(Discrete(2)), 'a': spaces.to_json(Discrete(3))}}
    assert spaces.from_json(data) == Dict(OrderedDict(b=Discrete(2), a=Discrete(3)))


def test_equal_bounds_are_stored_once():
    assert spaces.to_json(CAMERA)['high'] == 255
    assert spaces.to_json(LEAVES['half-bounded box'])['high'] == [1.0, np.inf]


@pytest.mark.parametrize('leaf', [Text(5), Sequence(Discrete(3)), Graph(Box(0, 1, (2,)), None)], ids=str)
@pytest.mark.parametrize('nest', [lambda leaf: leaf, lambda leaf: Dict(a=Discrete(2), b=Tuple([leaf]))])
def test_a_leaf_without_an_array_form_is_refused(leaf: Space, nest):
    is_text = isinstance(leaf, Text)
    told = 'is text, which no network reads: leave it out by a wrapper .* or turn it into numbers'
    told = told if is_text else f'is a {type(leaf).__name__}, which has no fixed-size array form: use Box'
    with pytest.raises(TypeError, match=told) as e:
        spaces.leaves(nest(leaf))
    assert '\n' not in str(e.value)
    assert str(e.value).startswith('the space' if nest(leaf) is leaf else "the part 'b/0' is")
    with pytest.raises(TypeError, match='cannot be stored'):
        spaces.to_json(nest(leaf))


def test_two_leaves_of_one_path_are_refused():
    space = Dict({'a/b': Discrete(2), 'a': Dict({'b': Discrete(3)})})
    with pytest.raises(ValueError, match="have the path 'a/b': rename one of their keys"):
        spaces.leaves(space)


def test_a_part_without_a_name_is_refused():
    with pytest.raises(
        ValueError, match=r"^a part of Dict\(: Discrete\(2\), .*\) has the empty key '': give it a name\.$"
    ):
        spaces.leaves(Dict({'': Discrete(2), 'a': Discrete(3)}))


@pytest.mark.parametrize('space', [Dict({}), Tuple([]), Dict({'a': Dict({})})], ids=str)
def test_a_space_without_leaves_is_refused(space: Space):
    with pytest.raises(ValueError, match='has no parts'):
        spaces.leaves(space)


def test_describe_is_short():
    assert spaces.describe(CAMERA) == 'Box(8, 8, 3) uint8'
    assert spaces.describe(MultiDiscrete([[2, 3], [4, 5]])) == 'MultiDiscrete([[2 3] [4 5]])'
    assert spaces.describe(Dict(a=Box(-1, 1, (3,)), b=Tuple([Discrete(2)]))) == (
        'Dict(a: Box(3,) float32, b: Tuple(Discrete(2)))'
    )
