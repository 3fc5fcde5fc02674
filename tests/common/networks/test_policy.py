"""The policy adaptor: every kind of network for every kind of observation, torso or complete, and what is refused."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.vector.utils import batch_space

from zoo.common import spaces
from zoo.common.acting.convert import convert
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.masks import MASKED_LOGIT
from zoo.common.adaptors.observation import Preprocess
from zoo.common.adaptors.parts import LOG_STD_BOUNDS
from zoo.common.networks.build import build_network
from zoo.common.networks.heads import Head, action_value_head, deterministic_head, stochastic_head, value_head
from zoo.common.networks.network import Network
from zoo.common.networks.policy import StochasticPolicy

LABEL = 'net_list[1] (critic_1)'
ACTION = 2


def unbounded(*shape: int) -> Box:
    return Box(-np.inf, np.inf, shape, np.float32)


VECTOR = unbounded(3)
IMAGE = Box(0, 255, (8, 8, 3), np.uint8)
NESTED = Dict(x=unbounded(3), y=unbounded(2))
PAIR = Tuple([unbounded(2), unbounded(2)])  # could be taken for an observation and an action


def build(space: Space, entry: Any, head: Head | None = None, action_size: int = 0) -> Network:
    head = replace(head or action_value_head(2), action_size=action_size)
    return build_network(entry, LABEL, Preprocess(space, {}), head)


def observations(space: Space, n: int = 4) -> spaces.Flat:
    batched = batch_space(space, n)
    batched.seed(0)
    return spaces.tree_map(tf.constant, spaces.flatten(space, batched.sample()))


def refused(space: Space, entry: Any, head: Head | None = None, action_size: int = 0) -> str:
    with pytest.raises(ValueError) as error:
        build(space, entry, head, action_size)
    text = str(error.value)
    assert text.startswith(LABEL)
    assert text.endswith('.')
    assert '\n' not in text
    assert '\x1b' not in text
    return text


def tensorlayer() -> Any:
    return pytest.importorskip('tensorlayer')


# Networks of every kind. Each function gives one that maps its observation to `width` numbers.


def parts(x: Any) -> list[Any]:
    """What the functions below join: the leaves of the observation, by key."""
    if isinstance(x, dict):
        return [x['x'], x['y']]
    return list(x) if isinstance(x, tuple) else [x]


def joined(x: Any) -> tf.Tensor:
    return tf.concat([tf.reshape(part, [tf.shape(part)[0], -1]) for part in parts(x)], -1)


def size_of(space: Space) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in spaces.leaves(space).values())


def keras_inputs(space: Space) -> Any:
    def leaf(name: str, box: Space) -> Any:
        return keras.Input(box.shape, name=name)

    if isinstance(space, Dict):
        return {key: leaf(key, part) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(leaf(f'part{i}', part) for i, part in enumerate(space.spaces))
    return leaf('obs', space)


def keras_joined(inputs: Any) -> Any:
    flat = [keras.layers.Flatten()(part) for part in parts(inputs)]
    return flat[0] if len(flat) == 1 else keras.layers.Concatenate()(flat)


def functional(space: Space, width: int) -> Any:
    inputs = keras_inputs(space)
    return keras.Model(inputs, keras.layers.Dense(width)(keras_joined(inputs)))


def functional_of_a_list(space: Space, width: int) -> Any:
    """Its inputs are a list in another order than the keys', and named by them."""
    inputs = keras_inputs(space)
    listed = list(inputs.values())[::-1] if isinstance(inputs, dict) else inputs
    return keras.Model(listed, keras.layers.Dense(width)(keras_joined(inputs)))


def sequential(space: Space, width: int) -> Any:
    return keras.Sequential([keras.Input(space.shape), keras.layers.Flatten(), keras.layers.Dense(width)])


def lazy_sequential(space: Space, width: int) -> Any:
    return keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(width)])


class Subclass(keras.Model):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.last = keras.layers.Dense(width)

    def call(self, x: Any) -> Any:
        return self.last(joined(x))


class Module(tf.Module):
    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.kernel = tf.Variable(tf.random.stateless_normal([size, width], [1, 2]))

    def __call__(self, x: Any) -> tf.Tensor:
        return joined(x) @ self.kernel


def plain(space: Space, width: int) -> Any:
    kernel = tf.Variable(tf.random.stateless_normal([size_of(space), width], [3, 4]))

    def forward(x: Any) -> tf.Tensor:
        return joined(x) @ kernel

    forward.trainable_variables = [kernel]
    return forward


def tl_static(space: Space, width: int) -> Any:
    tl = tensorlayer()
    inputs = [tl.layers.Input([None, *leaf.shape]) for leaf in spaces.leaves(space).values()]
    flat = [tl.layers.Flatten()(x) for x in inputs]
    x = flat[0] if len(flat) == 1 else tl.layers.Concat(-1)(flat)
    return tl.models.Model(inputs if len(inputs) > 1 else inputs[0], tl.layers.Dense(width)(x))


def tl_dynamic(space: Space, width: int) -> Any:
    tl = tensorlayer()

    class Dynamic(tl.models.Model):
        def __init__(self) -> None:
            super().__init__()
            self.last = tl.layers.Dense(width, in_channels=size_of(space))

        def forward(self, x: Any) -> tf.Tensor:
            return self.last(joined(x))

    return Dynamic()


MAKERS: dict[str, Callable[[Space, int], Any]] = {
    'keras functional': functional,
    'keras functional of a list': functional_of_a_list,
    'keras sequential': sequential,
    'keras sequential without input': lazy_sequential,
    'keras subclass': lambda space, width: Subclass(width),
    'tf.Module': lambda space, width: Module(size_of(space), width),
    'callable': plain,
    'tensorlayer static': tl_static,
    'tensorlayer dynamic': tl_dynamic,
}
ONE_INPUT = ('keras sequential', 'keras sequential without input')
STATE = [
    pytest.param(space, MAKERS[name], id=f'{kind}-{name}')
    for kind, space in {'vector': VECTOR, 'image': IMAGE, 'dict': NESTED, 'tuple': PAIR}.items()
    for name in MAKERS
    if spaces.is_leaf(space) or name not in ONE_INPUT
    if kind != 'dict' or name != 'tensorlayer static'  # its inputs have an order but no keys
]


def represented(cases: list[Any]) -> list[Any]:
    """Torsos of an image or a tuple are marked: complete networks of them are read by the same code."""
    return [
        pytest.param(
            *case.values, id=case.id, marks=[] if case.id.startswith(('vector', 'dict')) else pytest.mark.matrix
        )
        for case in cases
    ]


def check_trains(net: Network, space: Space, action: tf.Tensor | None = None) -> None:
    """In a graph: the right shape, a gradient for every variable, and an output that depends on every input."""
    obs = observations(space)

    @tf.function
    def step(obs: Any, action: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(net.trainable_variables)
            out = net(obs, action)
            loss = tf.reduce_mean(tf.square(out - 3.0))
        return out, tape.gradient(loss, net.trainable_variables)

    out, gradients = step(obs, action)
    assert out.dtype == tf.float32
    for gradient in gradients:
        assert gradient is not None
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0
    for path, x in spaces.tree_items(obs):
        moved = {**obs, path: x[::-1]} if path else x[::-1]
        assert np.abs(step(moved, action)[0] - out).max() > 1e-6, path
    if action is not None:
        assert np.abs(step(obs, action + 1.0)[0] - out).max() > 1e-6
    if isinstance(obs, dict):
        np.testing.assert_array_equal(step(dict(reversed(obs.items())), action)[0], out)


@pytest.mark.full(but='vector-keras sequential')
@pytest.mark.parametrize(('space', 'make'), represented(STATE))
def test_a_torso_gets_a_head_and_one_line_says_so(
    space: Space, make: Callable[[Space, int], Any], caplog: pytest.LogCaptureFixture
):
    entry = make(space, 6)
    with caplog.at_level(logging.INFO, 'zoo'):
        net = build(space, entry)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith(LABEL) and 'the values of 2 actions (2)' in told and 'a head' in told
    assert net.torso is entry
    assert net.head is not None
    assert net(observations(space)).shape == (4, 2)
    own = [v for v in net.trainable_variables if v.shape[:1] == [size_of(space)]]
    assert len(own) == 1, "the torso's own kernel is trained"
    check_trains(net, space)


@pytest.mark.full(but='vector-tf.Module')
@pytest.mark.parametrize(('space', 'make'), STATE)
def test_a_complete_network_is_taken_as_it_is(
    space: Space, make: Callable[[Space, int], Any], caplog: pytest.LogCaptureFixture
):
    entry = make(space, 2)
    with caplog.at_level(logging.INFO, 'zoo'):
        net = build(space, entry)
    assert not caplog.records
    assert net.torso is entry
    assert net.head is None
    assert net.custom == type(entry).__name__
    assert net(observations(space)).shape == (4, 2)
    check_trains(net, space)


def test_a_network_sees_the_preprocessed_observation():
    seen = []

    class Spy(Module):
        def __call__(self, x: Any) -> tf.Tensor:
            seen.append(x)
            return x['x']['n'] @ self.kernel

    space = Dict(x=Dict(image=IMAGE, n=Discrete(3, start=1)), action_mask=MultiBinary(2))
    net = build(space, Spy(3, 2))
    seen.clear()
    image = np.full((1, 8, 8, 3), 51, np.uint8)
    net({'x/image': image, 'x/n': np.array([3]), 'action_mask': np.ones((1, 2), np.int8)})
    assert seen[0].keys() == {'x'}
    np.testing.assert_allclose(seen[0]['x']['image'], np.full((1, 8, 8, 3), 0.2), atol=1e-6)
    np.testing.assert_array_equal(seen[0]['x']['n'], [[0, 0, 1]])


def test_keys_of_one_shape_are_not_swapped_by_a_network_of_listed_inputs():
    space = Dict(x=unbounded(2), y=unbounded(2))
    y, x = keras.Input((2,), name='y'), keras.Input((2,), name='x')
    of_x = keras.layers.Dense(2)
    net = build(space, keras.Model([y, x], of_x(x) + 0.0 * keras.layers.Dense(2)(y)))
    kernel = of_x.kernel.numpy()
    obs = {'x': tf.constant([[1.0, 2.0]]), 'y': tf.constant([[30.0, 40.0]])}
    np.testing.assert_allclose(net(obs), [[1.0, 2.0]] @ kernel, atol=1e-5)


# Critics of state and action.


class TwoArguments(keras.Model):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.last = keras.layers.Dense(width)

    def call(self, obs: Any, action: Any) -> Any:
        return self.last(tf.concat([joined(obs), action], -1))


class OptionalAction(TwoArguments):
    def call(self, obs: Any, action: Any = None) -> Any:
        return super().call(obs, action)


class OnePair(TwoArguments):
    def call(self, inputs: Any) -> Any:
        obs, action = inputs
        return super().call(obs, action)


class ModuleTwoArguments(Module):
    def __call__(self, obs: Any, action: Any) -> tf.Tensor:
        return tf.concat([joined(obs), action], -1) @ self.kernel


class ModulePair(ModuleTwoArguments):
    def __call__(self, inputs: Any) -> tf.Tensor:
        obs, action = inputs
        return super().__call__(obs, action)


def functional_critic(space: Space, width: int) -> Any:
    inputs, action = keras_inputs(space), keras.Input((ACTION,), name='action')
    x = keras.layers.Concatenate()([keras_joined(inputs), action])
    return keras.Model([inputs, action], keras.layers.Dense(width)(x))


def tl_dynamic_pair(space: Space, width: int) -> Any:
    tl = tensorlayer()

    class Dynamic(tl.models.Model):
        def __init__(self) -> None:
            super().__init__()
            self.last = tl.layers.Dense(width, in_channels=size_of(space) + ACTION)

        def forward(self, inputs: Any) -> tf.Tensor:
            obs, action = inputs
            return self.last(tf.concat([joined(obs), action], -1))

    return Dynamic()


def tl_static_pair(space: Space, width: int) -> Any:
    tl = tensorlayer()
    obs, action = tl.layers.Input([None, *space.shape]), tl.layers.Input([None, ACTION])
    x = tl.layers.Concat(-1)([tl.layers.Flatten()(obs), action])
    return tl.models.Model([obs, action], tl.layers.Dense(width)(x))


CRITICS: dict[str, Callable[[Space, int], Any]] = {
    'keras functional': functional_critic,
    'keras two arguments': lambda space, width: TwoArguments(width),
    'keras optional argument': lambda space, width: OptionalAction(width),
    'keras pair': lambda space, width: OnePair(width),
    'module two arguments': lambda space, width: ModuleTwoArguments(size_of(space) + ACTION, width),
    'module pair': lambda space, width: ModulePair(size_of(space) + ACTION, width),
    'tensorlayer static pair': tl_static_pair,
    'tensorlayer dynamic pair': tl_dynamic_pair,
}
CRITIC = [
    pytest.param(space, make, id=f'{kind}-{name}')
    for kind, space in {'vector': VECTOR, 'image': IMAGE, 'dict': NESTED, 'tuple': PAIR}.items()
    for name, make in CRITICS.items()
    if spaces.is_leaf(space) or name != 'tensorlayer static pair'
]
ACTIONS = tf.constant([[0.1, -0.2], [0.3, 0.4], [-0.5, 0.6], [0.7, -0.8]])


@pytest.mark.full(but='image-module pair-complete')
@pytest.mark.parametrize('width', [1, pytest.param(5, marks=pytest.mark.matrix)], ids=['complete', 'torso'])
@pytest.mark.parametrize(('space', 'make'), CRITIC)
def test_a_critic_takes_observation_and_action(space: Space, make: Callable[[Space, int], Any], width: int):
    net = build(space, make(space, width), value_head(), ACTION)
    assert (net.head is None) == (width == 1)
    assert net(observations(space), ACTIONS).shape == (4, 1)
    kernel = next(v for v in net.trainable_variables if len(v.shape) == 2)
    assert kernel.shape == (size_of(space) + ACTION, width), 'the action goes into the torso'
    check_trains(net, space, ACTIONS)


JOINED = [name for name in MAKERS if name != 'keras functional of a list']


@pytest.mark.full(but='keras sequential without input-complete')
@pytest.mark.parametrize('width', [1, 5], ids=['complete', 'torso'])
@pytest.mark.parametrize('name', JOINED)
def test_a_critic_of_a_vector_may_take_it_joined_with_the_action(name: str, width: int):
    net = build(VECTOR, MAKERS[name](unbounded(3 + ACTION), width), value_head(), ACTION)
    assert (net.head is None) == (width == 1)
    if net.head is None:
        kernel = next(v for v in net.trainable_variables if len(v.shape) == 2).numpy()
        expected = np.concatenate([observations(VECTOR), ACTIONS], -1) @ kernel  # every bias starts at 0
        np.testing.assert_allclose(net(observations(VECTOR), ACTIONS), expected, atol=1e-5)
    check_trains(net, VECTOR, ACTIONS)


@pytest.mark.parametrize(('activation', 'level'), [(None, logging.WARNING), ('relu', logging.INFO)])
def test_a_torso_that_ends_like_an_output_is_warned_of(activation: Any, level: int, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, 'zoo'):
        build(VECTOR, keras.Sequential([keras.layers.Dense(5), keras.layers.Dense(3, activation)]))
    (record,) = caplog.records
    assert record.levelno == level
    wanted = 'ends in a Dense layer of 3 without an activation' if activation is None else 'gives 3 numbers: a head for'
    assert f'{LABEL} {wanted}' in record.getMessage()


#: Without an input shape a Keras model simply grows to take the joined vector.
GROWS = ('vector-keras sequential without input', 'vector-keras subclass')
STATE_TORSOS = [p for p in STATE if p.id not in GROWS]


@pytest.mark.full(but='dict-keras subclass')
@pytest.mark.parametrize(('space', 'make'), represented(STATE_TORSOS))
def test_the_action_joins_in_the_head_after_a_torso_of_the_state(
    space: Space, make: Callable[[Space, int], Any], caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO, 'zoo'):
        net = build(space, make(space, 5), value_head(), ACTION)
    assert 'one value (1)' in caplog.text and 'a head' in caplog.text
    assert net(observations(space), ACTIONS).shape == (4, 1)
    assert net.head.layers[0].kernel.shape == (5 + ACTION, 256)
    check_trains(net, space, ACTIONS)


# What does not fit.


@pytest.mark.parametrize(
    ('entry', 'reason'),
    [
        ('relu', 'is a str: give a dict such as'),
        (None, 'is a NoneType'),
        ([64, 64], 'is a list'),
        (Subclass, 'is the class Subclass: give an instance of it'),
        (lambda x: x, 'has no trainable_variables after a call'),
    ],
    ids=['name', 'none', 'units', 'class', 'function'],
)
def test_what_is_no_network_is_refused(entry: Any, reason: str):
    assert reason in refused(VECTOR, entry)


@pytest.mark.parametrize('name', ['keras functional', 'keras sequential', 'tf.Module', 'tensorlayer static'])
@pytest.mark.parametrize('action_size', [0, ACTION])
def test_a_network_for_another_observation_is_refused(name: str, action_size: int):
    text = refused(VECTOR, MAKERS[name](unbounded(11), 2), action_size=action_size)
    takes = 'Box(3,) float32' + (' and an action of 2' if action_size else '')
    assert f'does not take the observation {takes}, from which the values of 2 actions (2) are needed' in text
    assert re.search(r'calling it raised ".+"\.$', text)


def test_a_network_of_other_keys_is_refused_and_not_matched_by_position():
    p, q = keras.Input((2,), name='p'), keras.Input((2,), name='q')
    out = keras.layers.Dense(2)(keras.layers.Concatenate()([p, q]))
    space = Dict(x=unbounded(2), y=unbounded(2))
    for inputs in ({'p': p, 'q': q}, [p, q]):
        text = refused(space, keras.Model(inputs, out))
        assert 'does not take the observation Dict(x: Box(2,) float32, y: Box(2,) float32)' in text
        assert text.endswith('The network gets a dict with the keys x, y.')
        assert 'Arguments received' not in text and '<tf.' not in text


def test_a_critic_of_listed_inputs_is_not_given_a_dict_by_position():
    y, x, action = keras.Input((2,), name='y'), keras.Input((2,), name='x'), keras.Input((ACTION,), name='action')
    out = keras.layers.Dense(1)(keras.layers.Concatenate()([x, y, action]))
    space = Dict(x=unbounded(2), y=unbounded(2))
    text = refused(space, keras.Model([y, x, action], out), value_head(), ACTION)
    assert "The structure of `inputs` doesn't match" in text


class Maps(Module):
    """Maps an observation to whatever it is told."""

    def __init__(self, function: Callable[[tf.Tensor], Any]) -> None:
        super().__init__(3, 4)
        self.function = function

    def __call__(self, x: tf.Tensor) -> Any:
        return self.function(super().__call__(x))


@pytest.mark.parametrize('as_class', [False, True])
def test_a_network_of_another_framework_is_refused_by_its_name(as_class: bool):
    module = type('Module', (), {'__module__': 'torch.nn.modules.module', '__call__': lambda self, x: x})
    policy = type('Policy', (module,), {})
    text = refused(VECTOR, policy if as_class else policy())
    assert 'is a network of PyTorch, but zoo trains networks of TensorFlow: write its layers in Keras, such as' in text


@pytest.mark.parametrize(
    ('function', 'found'),
    [
        (lambda x: x[:, None], r'float32 of shape \(3, 1, 4\)'),
        (lambda x: x[:, 0], r'float32 of shape \(3,\)'),
        (lambda x: tf.reshape(x, [1, -1]), r'float32 of shape \(1, 12\)'),
        (lambda x: tf.cast(x, tf.float64), r'float64 of shape \(3, 4\)'),
        (lambda x: [x, x], '2 outputs'),
        (lambda x: None, 'NoneType'),
    ],
)
def test_an_output_of_another_form_is_refused(function: Callable[[tf.Tensor], Any], found: str):
    text = refused(VECTOR, Maps(function))
    assert re.search(
        rf'maps 3 of Box\(3,\) float32 to {found}, but the values of 2 actions \(2\) are needed: give a network with '
        r'float32 output \[batch, units\]\.$',
        text,
    )


def test_a_value_of_the_state_alone_is_no_critic_of_actions():
    text = refused(VECTOR, sequential(VECTOR, 1), value_head(), ACTION)
    assert 'maps Box(3,) float32 alone to 1, but one value (1) of the observation and an action of 2 are needed' in text


def test_inputs_without_keys_are_not_matched_with_those_of_a_dict():
    text = refused(NESTED, tl_static(NESTED, 2))
    assert 'does not take the observation Dict(x: Box(3,) float32, y: Box(2,) float32)' in text


def test_a_network_for_a_mere_observation_cannot_take_two_arguments():
    assert 'does not take the observation Box(3,) float32' in refused(VECTOR, TwoArguments(2))


# What belongs to a network.


def test_the_seeds_of_dropout_are_no_weights():
    net = build(VECTOR, keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.Dense(2)]))
    assert [v.shape.as_list() for v in net.variables] == [[3, 4], [4], [4, 2], [2]]
    assert all(v.dtype == tf.float32 for v in net.variables)


def test_weights_that_are_not_trained_are_kept_apart():
    net = build(VECTOR, keras.Sequential([keras.layers.Dense(4), keras.layers.BatchNormalization()]))
    assert len(net.trainable_variables) == 2 + 2 + 2
    assert len(net.variables) == 2 + 4 + 2
    owned = [id(v) for v in net.variables]
    assert all(id(v) in owned for v in net.trainable_variables)
    assert all(isinstance(v, tf.Variable) for v in net.variables)


# Heads.


@pytest.mark.parametrize(
    ('head', 'units', 'activation'),
    [(value_head(), 1, 'linear'), (action_value_head(3), 3, 'linear'), (deterministic_head(4), 4, 'tanh')],
)
def test_heads(head: Head, units: int, activation: str):
    net = build(VECTOR, {'hidden': [5]}, head)
    last = convert(net)[-1]
    assert (last.layer.kernels, last.layer.others, last.layer.activation) == ([(5, units)], [(units,)], activation)


def test_a_dueling_head_is_centred():
    net = build(VECTOR, {'hidden': [5]}, action_value_head(3, dueling=True))
    x = net.encode(observations(VECTOR))
    np.testing.assert_allclose(tf.reduce_mean(net.from_torso(x), -1), net.head.layers[0].value(x)[:, 0], atol=1e-5)


def test_a_complete_network_of_distributions_has_all_numbers_of_all_actions():
    head = action_value_head(3, values=5, named='atoms')
    assert build(VECTOR, keras.Sequential([keras.layers.Dense(15)]), head).head is None
    assert build(VECTOR, keras.Sequential([keras.layers.Dense(3)]), head).head is not None
    with pytest.raises(ValueError, match=r'but 5 atoms of each of 3 actions \(15\) are needed: give .*\.$'):
        build(VECTOR, keras.Sequential([keras.layers.Dense(15), keras.layers.Reshape((3, 5))]), head)


def test_a_complete_network_cannot_be_noisy():
    with pytest.raises(ValueError, match=r'complete network, which has no head whose layers could be noisy: .*\.$'):
        build(VECTOR, keras.Sequential([keras.layers.Dense(3)]), action_value_head(3, sigma=0.5))
    assert build(VECTOR, keras.Sequential([keras.layers.Dense(4)]), action_value_head(3, sigma=0.5)).noise_size == 7


@pytest.mark.parametrize(
    ('space', 'free', 'units', 'also'),
    [
        (Discrete(3), True, 3, 3),
        (MultiDiscrete([2, 3]), True, 5, 5),
        (MultiBinary(4), True, 4, 4),
        (Box(-1, 1, (3,)), True, 3, 6),
        (Box(-1, 1, (3,)), False, 6, None),
        (Dict(a=Box(-1, 1, (3,)), b=Discrete(2)), True, 5, 8),
    ],
    ids=str,
)
def test_stochastic_heads(space: Space, free: bool, units: int, also: int | None):
    head = stochastic_head(ActionAdaptor(space), free_log_std=free)
    assert (head.units, head.also_accepts) == (units, also)


# Stochastic policies.


def policy(obs_space: Space, action_space: Space, entry: Any = None, *, squash: bool = False, **kwargs: Any) -> Any:
    adaptor = ActionAdaptor(action_space, squash)
    head = stochastic_head(adaptor, free_log_std=not squash)
    spec = {'hidden': [4], 'activation': 'relu'}
    net = build_network(entry or spec, 'net_list[0] (actor)', Preprocess(obs_space, {}), head)
    return StochasticPolicy(net, adaptor, **kwargs)


def test_a_free_log_std_is_one_variable_placed_part_by_part():
    space = Dict(a=Box(-1, 1, (2,)), b=Discrete(3), c=Box(-1, 1, (1,)))
    found = policy(VECTOR, space, log_std_init=-0.5)
    np.testing.assert_array_equal(found.log_std, [-0.5] * 3)
    found.log_std.assign([1.0, 2.0, 3.0])
    obs = observations(VECTOR)
    params, means = found(obs).numpy(), found.network(obs).numpy()
    assert params.shape == (4, found.adaptor.param_size)
    row = np.ones((4, 1))
    expected = [means[:, :2], row * [1, 2], means[:, 2:5], means[:, 5:], row * 3]
    np.testing.assert_allclose(params, np.concatenate(expected, -1), atol=1e-6)
    assert any(v is found.log_std for v in found.trainable_variables)
    assert not any(v is found.log_std for v in found.network.trainable_variables)


def test_discrete_policies_have_no_log_std():
    found = policy(VECTOR, Tuple([Discrete(2), MultiBinary(2)]))
    assert found.log_std is None
    np.testing.assert_array_equal(found(observations(VECTOR)), found.network(observations(VECTOR)))


@pytest.mark.parametrize(
    ('space', 'squash', 'complete'),
    [
        (Box(-1, 1, (2,)), True, False),
        (Box(-1, 1, (2,)), False, True),
        (Dict(a=Box(-1, 1, (2,)), b=Discrete(3)), True, False),
        (Dict(a=Discrete(3), b=Box(-1, 1, (2,))), True, False),
    ],
    ids=['squashed', 'complete gaussian', 'squashed product', 'squashed product, last'],
)
def test_a_log_std_from_the_network_is_bounded_and_nothing_else(space: Space, squash: bool, complete: bool):
    size = ActionAdaptor(space, squash).param_size
    found = policy(VECTOR, space, Module(3, size) if complete else None, squash=squash)
    assert found.log_std is None
    obs = 1e6 * observations(VECTOR)
    output, params = found.network(obs).numpy(), found(obs).numpy()
    at = slice(2, 4) if found.adaptor.parts[0].path != 'a' or space['a'].shape else slice(5, 7)
    others = np.setdiff1d(np.arange(size), np.arange(size)[at])
    assert (np.abs(output) > 100).any(0).all(), 'far outside the bounds'
    np.testing.assert_array_equal(params[:, others], output[:, others])
    np.testing.assert_array_equal(params[:, at], np.clip(output[:, at], *LOG_STD_BOUNDS))


def masked_space(mask: Space) -> Dict:
    return Dict(observation=VECTOR, action_mask=mask)


@pytest.mark.parametrize('dtype', [np.int8, bool, np.float32])
@pytest.mark.parametrize('action_space', [Discrete(5, start=3), MultiDiscrete([2, 3])], ids=str)
def test_a_mask_sets_the_logits_of_forbidden_actions(action_space: Space, dtype: type):
    found = policy(masked_space(Box(0, 1, (5,), dtype)), action_space)
    allowed = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 1]], dtype)
    obs = {'observation': observations(VECTOR, 2), 'action_mask': tf.constant(allowed)}
    params = found(obs).numpy()
    np.testing.assert_array_equal(params[allowed == 0], MASKED_LOGIT)
    np.testing.assert_array_equal(params[allowed == 1], found.network(obs).numpy()[allowed == 1])
    assert np.isfinite(found.adaptor.distribution.entropy(tf.constant(params))).all()
    with tf.GradientTape() as tape:
        entropy = tf.reduce_sum(found.adaptor.distribution.entropy(found(obs)))
    assert all(np.isfinite(g).all() for g in tape.gradient(entropy, found.trainable_variables))


def test_a_mask_of_two_axes_is_flattened_like_its_space():
    found = policy(masked_space(MultiBinary([2, 3])), MultiDiscrete([3, 3]))
    allowed = np.array([[[1, 0, 0], [0, 0, 1]]], np.int8)
    params = found({'observation': observations(VECTOR, 1), 'action_mask': allowed}).numpy()
    np.testing.assert_array_equal(params == MASKED_LOGIT, [[False, True, True, True, True, False]])


def test_a_mask_does_not_apply_to_a_box():
    found = policy(masked_space(MultiBinary(2)), Box(-1, 1, (2,)))
    assert found.mask_path is None
    obs = {'observation': observations(VECTOR, 2), 'action_mask': np.zeros((2, 2), np.int8)}
    assert (found(obs).numpy() != MASKED_LOGIT).all()


# Through the agents.


def test_seeded_default_networks_differ_from_each_other_and_repeat():
    from zoo.algorithms import SAC
    from zoo.common.env_wrappers import build_env
    from zoo.common.utils import call_default_params

    env = build_env('Pendulum-v1', 'classic_control')
    agents = [SAC(**call_default_params(env, 'classic_control', 'SAC', seed=seed)[0]) for seed in (0, 0, 1)]
    first, same, other = ([v.numpy() for v in agent.networks['critic_1'].variables] for agent in agents)
    twin = [v.numpy() for v in agents[0].networks['critic_2'].variables]
    for a, b in zip(first, same, strict=True):
        np.testing.assert_array_equal(a, b)
    for found in (other, twin):
        for a, b in zip(first, found, strict=True):
            assert a.ndim == 1 or (a != b).mean() > 0.9
