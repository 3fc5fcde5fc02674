"""The observation adaptor: what each leaf becomes, worked by hand, and the two forms of preprocessing held together."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from gymnasium.vector.utils import batch_space

from zoo.common import spaces
from zoo.common.adaptors.observation import (
    CLIP,
    LARGEST_ONE_HOT,
    Preprocess,
    feature,
    features,
    is_image,
    mask_path,
    mismatch,
)
from zoo.common.maths.normalize import RunningMoments

INF = np.inf


def unbounded(*shape: int, dtype: type = np.float32) -> Box:
    return Box(-INF, INF, shape, dtype)


def pixels(*shape: int) -> Box:
    return Box(0, 255, shape, np.uint8)


FLAT: dict[str, Space] = {
    'vector': unbounded(3),
    'float64 vector': unbounded(3, dtype=np.float64),
    'bytes': pixels(6),
    'scalar': Box(-1, 1, (), np.float32),
    'table too small for an image': unbounded(3, 4),
    'four axes': unbounded(2, 8, 8, 3),
    'switches': Box(0, 1, (4,), bool),
    'discrete': Discrete(4),
    'discrete with start': Discrete(4, start=-2),
    'largest one-hot': Discrete(LARGEST_ONE_HOT),
    'multi-discrete': MultiDiscrete([2, 5, 3]),
    'multi-discrete 2-D with start': MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [-2, 3]]),
    'multi-binary': MultiBinary(3),
    'multi-binary 2-D': MultiBinary([2, 3]),
    'nested': Dict(
        {
            'z': Tuple([unbounded(2), Discrete(3, start=1)]),
            'a': Dict({'q': MultiBinary(2), 'b': unbounded(2, 2, dtype=np.float64)}),
            'action_mask': MultiBinary(4),
        }
    ),
    'tuple': Tuple([Discrete(2), unbounded(1)]),
    'one part without entries': Tuple([unbounded(0), unbounded(2)]),
}


def batch_of(space: Space, n: int, seed: int = 0) -> Any:
    """``n`` elements of the space, flat."""
    batched = batch_space(space, n)
    batched.seed(seed)
    return spaces.flatten(space, batched.sample())


def moments_for(space: Space, seed: int = 0) -> dict[str, RunningMoments]:
    """Statistics of every normalised feature, of data with other means and scales."""
    rng = np.random.default_rng(seed)
    found = {}
    for item in features(space, normalize=True):
        if item.normalize:
            found[item.path] = RunningMoments(item.size)
            found[item.path].update(rng.normal(0.5, rng.uniform(0.01, 3.0, item.size), (100, item.size)))
    return found


# What is an image.


@pytest.mark.parametrize('side', [(8, 8), (9, 13), (36, 36), (42, 42), (64, 64), (84, 84), (160, 210), (240, 320)])
@pytest.mark.parametrize('channels', [1, 3, 4])
def test_images_of_either_channel_order(side: tuple[int, int], channels: int):
    height, width = side
    last, first = pixels(height, width, channels), pixels(channels, height, width)
    assert is_image(last)
    assert is_image(first)
    assert feature('', last).shape == feature('', first).shape == (height, width, channels)
    assert not feature('', last).channels_first
    assert feature('', first).channels_first
    assert feature('', pixels(height, width)).shape == (height, width, 1)


@pytest.mark.parametrize(
    ('shape', 'image'),
    [
        ((8, 8, 119), (8, 8, 119)),  # the planes of a board game outnumber its squares
        ((119, 8, 8), (8, 8, 119)),
        ((10, 10, 16), (10, 10, 16)),
        ((12, 8, 8), (8, 8, 12)),
        ((210, 160, 12), (210, 160, 12)),
        ((12, 210, 160), (210, 160, 12)),
        ((16, 16, 16), (16, 16, 16)),
    ],
)
def test_many_channels(shape: tuple[int, ...], image: tuple[int, ...]):
    assert feature('', unbounded(*shape)).shape == image


@pytest.mark.parametrize('shape', [(), (100,), (7, 100), (100, 7), (7, 84, 3), (3, 84, 7), (4, 84, 84, 3)])
def test_not_images(shape: tuple[int, ...]):
    assert not is_image(unbounded(*shape))
    assert feature('', unbounded(*shape)).kind == 'vector'
    assert feature('', unbounded(*shape)).shape == (int(np.prod(shape)),)


def test_only_boxes_are_images():
    assert not is_image(MultiBinary([8, 8]))
    assert not is_image(MultiDiscrete(np.full((8, 8), 3)))


# What each leaf becomes, by hand.


def prepared(space: Space, obs: Any) -> Any:
    """The one feature of a leaf space, by tensors."""
    return Preprocess(space, {})(obs)[''].numpy()


def test_pixels_are_scaled_and_turned_channels_last():
    image = np.random.default_rng(0).integers(0, 256, (2, 9, 13, 3), dtype=np.uint8)
    expected = image / np.float32(255)
    last = prepared(pixels(9, 13, 3), image)
    first = prepared(pixels(3, 9, 13), image.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(last, expected, atol=1e-7)
    np.testing.assert_array_equal(first, last)
    assert last.dtype == np.float32
    np.testing.assert_allclose(prepared(pixels(9, 13), image[..., 0]), expected[..., :1], atol=1e-7)


def test_float_images_are_scaled_from_their_bounds():
    image = np.random.default_rng(0).uniform(-2, 6, (2, 8, 8, 1)).astype(np.float32)
    np.testing.assert_allclose(prepared(Box(-2, 6, (8, 8, 1)), image), (image + 2) / 8, atol=1e-6)


def per_channel(*bounds: tuple[float, float], dtype: type = np.float32) -> Box:
    """An image of 8 × 9 with bounds for each channel."""
    low, high = (np.tile(np.array(side, dtype), (8, 9, 1)) for side in zip(*bounds, strict=True))
    return Box(low, high, dtype=dtype)


def test_images_are_scaled_from_the_bounds_of_each_channel():
    space = per_channel((0, 255), (0, 1000), (-2, 6), (3, 3))
    image = np.tile(np.float32([51, 500, 4, 3]), (2, 8, 9, 1))
    expected = np.tile(np.float32([0.2, 0.5, 0.75, 0]), (2, 8, 9, 1))
    np.testing.assert_allclose(prepared(space, image), expected, atol=1e-6)
    first = Box(space.low.transpose(2, 0, 1), space.high.transpose(2, 0, 1))
    assert feature('', first).channels_first
    np.testing.assert_allclose(prepared(first, image.transpose(0, 3, 1, 2)), expected, atol=1e-6)


def test_bounds_of_a_channel_are_those_of_all_its_pixels():
    low, high = np.zeros((8, 9, 2), np.float32), np.ones((8, 9, 2), np.float32)
    low[3, 4, 1], high[5, 6, 1] = -1, 3
    image = np.ones((1, 8, 9, 2), np.float32)
    np.testing.assert_allclose(prepared(Box(low, high), image), image * [1, 0.5], atol=1e-6)


@pytest.mark.parametrize(
    'space',
    [
        Box(0, 1, (8, 8, 1)),
        per_channel((0, 1), (0, 1)),
        per_channel((0, 255), (0, INF)),
        Box(np.finfo(np.float32).min, np.finfo(np.float32).max, (8, 8, 1)),  # this too means that there is no bound
        per_channel((0, 255), (0, 1e11)),
        unbounded(8, 8, 1),
        Box(-INF, INF, (8, 8, 1), np.int32),  # Gymnasium stores the bounds of the dtype, which are not the image's
        Box(0, INF, (8, 8, 1)),
    ],
    ids=str,
)
def test_images_without_bounds_to_scale_from_stay_as_they_are(space: Box):
    image = np.arange(2 * np.prod(space.shape)).reshape(2, *space.shape).astype(space.dtype)
    np.testing.assert_array_equal(prepared(space, image), image)


def test_discrete_is_one_hot_from_its_start():
    np.testing.assert_array_equal(
        prepared(Discrete(3, start=-1), np.array([1, -1, 0])), [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    )


@pytest.mark.parametrize(
    'space',
    [
        Discrete(2**30, start=2**40),
        Discrete(4, start=-(2**40)),
        MultiDiscrete([200, 3], np.uint8, start=[56, 2]),
        MultiDiscrete([2, 3], start=[2**40, -(2**40)]),
    ],
    ids=str,
)
def test_a_start_beyond_the_digits_of_the_index(space: Space):
    last = space.start + (space.n if isinstance(space, Discrete) else space.nvec) - 1
    obs = np.stack([np.asarray(space.start), last]).astype(space.dtype)
    preprocess = Preprocess(space, {})
    found = preprocess(obs)[''].numpy()
    if not preprocess.is_flat:
        np.testing.assert_array_equal(found, [0, space.n - 1])
        return
    np.testing.assert_array_equal(found, preprocess.numpy(obs))
    counts = preprocess.features[0].counts
    np.testing.assert_array_equal(found[0], np.concatenate([np.eye(n)[0] for n in counts]))
    np.testing.assert_array_equal(found[1], np.concatenate([np.eye(n)[-1] for n in counts]))


@pytest.mark.parametrize('space', [Discrete(2**31), MultiDiscrete([3, 2**31])], ids=str)
def test_more_values_than_an_index_can_count_are_refused(space: Space):
    with pytest.raises(ValueError, match=r"^the part 'a' of the observation has .* values.* at most 2147483647.*\.$"):
        Preprocess(Dict(a=space), {})
    assert feature('', Discrete(2**31 - 1)).counts == (2**31 - 1,)


INSIDE = Dict(
    one=Discrete(3, start=-1), many=MultiDiscrete([2, 5]), large=Discrete(1000), free=unbounded(2), flags=MultiBinary(2)
)


@pytest.mark.parametrize(
    ('path', 'value', 'said'),
    [
        ('one', 2, r"'one' has the value 2, but Discrete\(3, start=-1\) goes from -1 to 1\.$"),
        ('one', -2, r"'one' has the value -2, but .* goes from -1 to 1\.$"),
        ('many', [1, 5], r"'many' has the value \[1 5\], but .* goes from \[0 0\] to \[1 4\]\.$"),
        ('large', 2**40, r"'large' has the value 1099511627776, but .* goes from 0 to 999\.$"),
        ('flags', [0, 2], r"'flags' has the value \[0 2\], but .* goes from 0 to 1\.$"),
    ],
)
def test_values_outside_the_space_are_named(path: str, value: Any, said: str):
    preprocess = Preprocess(INSIDE, {})
    obs = batch_of(INSIDE, 3)
    preprocess.check_values(obs)
    obs[path][1] = value
    with pytest.raises(ValueError, match='^the observation ' + said):
        preprocess.check_values(obs)


@pytest.mark.parametrize('space', [Discrete(3, start=1), MultiDiscrete([2, 3])], ids=str)
def test_values_outside_the_space_are_the_same_to_arrays_and_tensors(space: Space):
    """Not another value's: a negative one must not count from the end, nor one entry's spill into the next."""
    preprocess = Preprocess(space, {})
    for value in (-1, 3, 4, 100):
        obs = np.full((2, *space.shape), value, space.dtype)
        np.testing.assert_array_equal(preprocess.numpy(obs), preprocess(obs)[''])


def test_large_discrete_is_an_index_from_zero():
    item = feature('', Discrete(LARGEST_ONE_HOT + 1, start=1000))
    assert (item.kind, item.shape, item.counts) == ('index', (), (LARGEST_ONE_HOT + 1,))
    assert not item.is_vector
    found = prepared(Discrete(LARGEST_ONE_HOT + 1, start=1000), np.array([1000, 1256]))
    np.testing.assert_array_equal(found, [0, 256])
    assert found.dtype == np.int32
    assert feature('', Discrete(LARGEST_ONE_HOT)).kind == 'one_hot'


def test_multi_discrete_of_two_axes_is_one_hot_of_each():
    space = MultiDiscrete([[2, 3], [1, 2]], start=[[0, 5], [7, -1]])
    np.testing.assert_array_equal(prepared(space, np.array([[[1, 5], [7, 0]]])), [[0, 1, 1, 0, 0, 1, 0, 1]])


def test_multi_binary_of_two_axes_is_flattened():
    np.testing.assert_array_equal(prepared(MultiBinary([2, 2]), np.array([[[1, 0], [0, 1]]], np.int8)), [[1, 0, 0, 1]])


def test_normalising_by_hand():
    space = unbounded(2)
    moments = RunningMoments(2)
    moments.update(np.array([[0.0, 10.0], [4.0, 30.0]]))  # means 2 and 20, standard deviations 2 and 10
    preprocess = Preprocess(space, {'': moments})
    obs = np.array([[4.0, 15.0], [2.0, 1e6], [-1e6, 20.0]], np.float32)
    expected = [[1, -0.5], [0, CLIP], [-CLIP, 0]]
    np.testing.assert_allclose(preprocess(obs)[''], expected, atol=1e-5)
    np.testing.assert_allclose(preprocess.numpy(obs), expected, atol=1e-5)


def test_every_vector_of_numbers_is_normalised():
    space = Dict(
        image=Box(0, 1, (8, 8, 3)),
        vector=unbounded(2),
        bytes=pixels(3),
        count=unbounded(1, dtype=np.int64),
        index=Discrete(3),
        flags=MultiBinary(2),
        switches=Box(0, 1, (4,), bool),
    )
    assert [item.path for item in features(space, normalize=True) if item.normalize] == ['bytes', 'count', 'vector']
    assert not any(item.normalize for item in features(space))


@pytest.mark.parametrize('dtype', [np.float64, np.int64])
def test_normalising_takes_the_mean_off_before_digits_are_lost(dtype: type):
    """A clock of seconds since 1970: float32 knows only multiples of 128 there."""
    seen = 1_700_000_000 + np.array([[-1], [1], [-3], [3]], dtype)
    moments = RunningMoments(1)
    moments.update(seen)
    preprocess = Preprocess(unbounded(1, dtype=dtype), {'': moments})
    expected = np.array([[-1], [1], [-3], [3]]) / np.sqrt(5)
    np.testing.assert_allclose(preprocess.numpy(seen), expected, rtol=1e-5)
    np.testing.assert_allclose(preprocess(seen)[''], expected, rtol=1e-5)


@pytest.mark.full(but='float64')
@pytest.mark.parametrize('dtype', [np.float32, np.float64, np.int32, np.int64, np.uint8])
def test_normalising_in_float32_alone(dtype: type):
    space = Box(0, 255, (3,), dtype) if dtype == np.uint8 else Box(-(2**30), 2**30, (3,), dtype)
    mean = np.array([3.4, 100.7, 200.0] if dtype == np.uint8 else [3.4, -123.4, 1e6 if dtype != np.float64 else 1e3])
    obs = (mean + np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 20.0, 4.0]).astype(dtype)
    moments = RunningMoments(3)
    moments.update(obs)
    preprocess = Preprocess(space, {'': moments})

    def traced() -> tf.Graph:
        function = tf.function(lambda x: preprocess(x)[''], input_signature=[tf.TensorSpec([None, 3], dtype)])
        return function.get_concrete_function()

    with preprocess.in_float32():
        found = traced()
    tolerance = 1e-6 if dtype != np.float64 else 1e-4  # it loses digits where it is cast
    np.testing.assert_allclose(found(tf.constant(obs)), preprocess.numpy(obs), atol=tolerance)
    operations = [op for op in found.graph.get_operations() if op.type not in ('Placeholder', 'Reshape')]
    assert not any(x.dtype == tf.float64 for op in operations for x in op.outputs)
    assert any(x.dtype == tf.float64 for op in traced().graph.get_operations() for x in op.outputs)


def test_a_vector_without_statistics_stays_as_it_is():
    """So were vectors of integers in agents that were saved before these were normalised."""
    space = Dict(bytes=pixels(2), vector=unbounded(1))
    moments = moments_for(space)
    preprocess = Preprocess(space, moments)
    del moments['bytes']
    obs = {'bytes': np.array([[200, 7]], np.uint8), 'vector': np.zeros((1, 1), np.float32)}
    np.testing.assert_array_equal(preprocess(obs)['bytes'], [[200, 7]])
    np.testing.assert_array_equal(preprocess.numpy(obs)[:, :2], [[200, 7]])
    assert preprocess.numpy(obs)[0, 2] == preprocess(obs)['vector'].numpy() != 0


# By key, never by position.


NESTED = Dict(
    {
        'b': Dict({'left': pixels(8, 8, 3), 'right': pixels(8, 8, 3)}),
        'a': Tuple([unbounded(2), Discrete(300, start=2)]),
        'c': Discrete(3),
    }
)


def test_features_of_a_nested_space_are_matched_by_key():
    space = NESTED
    obs = batch_of(space, 4)
    preprocess = Preprocess(space, {})
    found = preprocess(obs)
    assert list(found) == ['a/0', 'a/1', 'b/left', 'b/right', 'c']
    shuffled = preprocess(dict(reversed(obs.items())))
    for path, leaf in spaces.leaves(space).items():
        np.testing.assert_array_equal(found[path], prepared(leaf, obs[path]))
        np.testing.assert_array_equal(found[path], shuffled[path])


def test_two_leaves_of_one_shape_are_not_swapped():
    space = Dict(x=unbounded(2), y=unbounded(2))
    preprocess = Preprocess(space, {})
    one = {'x': np.full((1, 2), 1, np.float32), 'y': np.full((1, 2), 2, np.float32)}
    for obs in (one, dict(reversed(one.items()))):
        np.testing.assert_array_equal(preprocess.numpy(obs), [[1, 1, 2, 2]])
        np.testing.assert_array_equal(preprocess(obs)['x'], [[1, 1]])


def test_nested_features_have_the_form_of_the_observation():
    space = Dict({**NESTED.spaces, 'action_mask': MultiBinary(4)})
    preprocess = Preprocess(space, {})
    found = preprocess(batch_of(space, 2))
    nested = preprocess.nested(found)
    assert nested.keys() == {'a', 'b', 'c'}
    assert isinstance(nested['a'], tuple)
    assert nested['a'][1] is found['a/1']
    assert nested['b']['left'] is found['b/left']
    assert nested['b']['right'] is found['b/right']
    leaf = Preprocess(Discrete(3), {})
    assert leaf.nested({'': 'x'}) == 'x'


# The action mask.


def test_the_action_mask_is_no_feature():
    space = Dict(observation=unbounded(3), action_mask=MultiBinary(4))
    assert mask_path(space) == 'action_mask'
    assert [item.path for item in features(space)] == ['observation']
    assert Preprocess(space, {}).numpy(batch_of(space, 2)).shape == (2, 3)


def test_only_the_key_at_the_top_is_the_mask():
    space = Dict(agent=Dict(action_mask=MultiBinary(4)))
    assert mask_path(space) is None
    assert [item.path for item in features(space)] == ['agent/action_mask']
    assert mask_path(unbounded(3)) is None


def test_an_observation_of_the_mask_alone_is_refused():
    with pytest.raises(ValueError, match='nothing to see but the action mask'):
        Preprocess(Dict(action_mask=MultiBinary(4)), {})


@pytest.mark.parametrize('space', [unbounded(0), Tuple([unbounded(2, 0), unbounded(0)])], ids=str)
def test_an_observation_without_entries_is_refused(space: Space):
    with pytest.raises(ValueError, match=r'^the observation .* has no entries: give it something to see\.$'):
        Preprocess(space, {})


# An agent and an environment.


@pytest.mark.parametrize(
    ('own', 'found'),
    [
        (Box(-1, 1, (3,)), Box(-2, 2, (3,))),
        (unbounded(8, 8, 1), Box(-INF, 5, (8, 8, 1))),
        (unbounded(8, 8, 1), Box(0, 1, (8, 8, 1))),  # neither is scaled
        (per_channel((0, 255), (0, 255), dtype=np.uint8), pixels(8, 9, 2)),
        (NESTED, NESTED),
    ],
    ids=str,
)
def test_bounds_that_no_feature_depends_on_may_differ(own: Space, found: Space):
    assert mismatch(own, found) is None
    assert mismatch(found, own) is None


def test_what_sets_an_environment_apart_is_said():
    assert (
        mismatch(Box(-1, 1, (3,)), Box(-1, 1, (4,)))
        == 'is Box(4,) float32, but this agent was made for Box(3,) float32'
    )
    bright, dark = Box(0, 255, (8, 9, 2)), Box(0, 1, (8, 9, 2))
    assert mismatch(bright, dark) == 'has images from 0 to 1, but this agent was made for images from 0 to 255'
    assert mismatch(Dict(x=bright), Dict(x=unbounded(8, 9, 2))) == (
        "has images from -inf to inf in 'x', but this agent was made for images from 0 to 255"
    )
    assert mismatch(bright, per_channel((0, 255), (0, 1000))) == (
        'has images from 0 to [255, 1000], but this agent was made for images from 0 to 255'
    )


# Tensors and arrays.


@pytest.mark.parametrize('normalize', [False, True])
@pytest.mark.parametrize('space', FLAT.values(), ids=FLAT)
def test_numpy_equals_tensors(space: Space, normalize: bool):
    preprocess = Preprocess(space, moments_for(space) if normalize else {})
    assert preprocess.is_flat
    for n in (1, 5):
        obs = batch_of(space, n)
        before = spaces.tree_map(np.copy, obs)
        found = preprocess(obs)
        joined = np.concatenate([found[item.path] for item in preprocess.features], -1)
        by_numpy = preprocess.numpy(obs)
        np.testing.assert_allclose(by_numpy, joined, atol=1e-6)
        assert by_numpy.dtype == np.float32
        assert by_numpy.shape == (n, sum(item.size for item in preprocess.features))
        spaces.tree_map(np.testing.assert_array_equal, obs, before)


@pytest.mark.parametrize('space', [pixels(8, 8), Discrete(1000), NESTED], ids=['image', 'index', 'nested'])
def test_what_needs_an_encoder_is_not_flat(space: Space):
    assert not Preprocess(space, {}).is_flat


@pytest.mark.full(but='multi-binary')
@pytest.mark.parametrize('space', [*FLAT.values(), NESTED, pixels(3, 9, 13)], ids=[*FLAT, 'nested', 'image'])
def test_the_same_in_a_graph_of_unknown_batch_size(space: Space):
    preprocess = Preprocess(space, {})
    items = {path: tf.TensorSpec([None, *leaf.shape], leaf.dtype) for path, leaf in spaces.leaves(space).items()}
    graph = tf.function(preprocess, input_signature=[spaces.from_items(space, items)])
    obs = batch_of(space, 3)
    found, eager = graph(spaces.tree_map(tf.constant, obs)), preprocess(obs)
    assert found.keys() == eager.keys()
    for item in preprocess.features:
        np.testing.assert_array_equal(found[item.path], eager[item.path])
        assert found[item.path].shape == (3, *item.shape)


def test_an_unknown_leaf_is_refused():
    with pytest.raises(TypeError, match="^the part 'b' is text, which no network reads"):
        Preprocess(Dict(a=unbounded(2), b=Text(3)), {})


def test_acting_does_not_import_tensorflow():
    code = (
        'import sys, zoo.common.adaptors.observation, zoo.common.adaptors.action, zoo.common.acting.behavior, '
        'zoo.common.maths.normalize, zoo.common.spaces; assert not {"tensorflow", "keras"} & sys.modules.keys()'
    )
    subprocess.run([sys.executable, '-c', code], check=True, timeout=60)
