"""Recurrent networks: the state as an argument, sequences with episodes in them, and acting in NumPy, against Keras."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, Space

from zoo.common.acting.chain import Chain
from zoo.common.acting.forward import Forward
from zoo.common.acting.layers import Means
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.observation import Preprocess
from zoo.common.networks import recurrent
from zoo.common.networks.build import build_network
from zoo.common.networks.heads import action_value_head, stochastic_head, value_head
from zoo.common.networks.network import Network
from zoo.common.networks.policy import StochasticPolicy

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
T, N = 6, 4

LAYERS: dict[str, Any] = {
    'lstm': lambda: keras.layers.LSTM(5, return_sequences=True),
    'lstm without bias': lambda: keras.layers.LSTM(5, activation='relu', use_bias=False, return_sequences=True),
    'gru': lambda: keras.layers.GRU(5, return_sequences=True),
    'gru of before': lambda: keras.layers.GRU(5, reset_after=False, return_sequences=True),
    'simple': lambda: keras.layers.SimpleRNN(5, return_sequences=True),
}


def network(entry: Any, space: Space = VECTOR) -> Network:
    return build_network(entry, 'net_list[0] (actor)', Preprocess(space, {}), value_head())


def stir(variables: list[tf.Variable], seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for variable in variables:
        variable.assign_add(rng.normal(0, 0.4, variable.shape))


def sequence(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Observations ``[T, N, 3]``, and episodes that begin here and there, in one copy not even at first."""
    rng = np.random.default_rng(seed)
    begins = np.zeros((T, N), bool)
    begins[0, :3] = begins[2, 0] = begins[4, 1] = begins[5, 1] = True
    return rng.normal(size=(T, N, 3)).astype(np.float32), begins


def outputs_of(network: Network, obs: Any, state: Any, begins: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Outputs ``[T, N, units]`` and the states after each step ``[T, N, S]``."""
    x, after = network.encode_sequence(obs, state, begins)
    x = network.from_torso(x)
    return tf.reshape(x, [*begins.shape, x.shape[-1]]), after


@pytest.mark.parametrize('kind', LAYERS)
def test_sequences_steps_and_numpy_are_keras(kind: str):
    """Episode by episode Keras' own layer computes the same; a state that is given is the one that is gone on from."""
    layer = LAYERS[kind]()
    model = keras.Sequential([keras.layers.Dense(4, 'tanh'), layer, keras.layers.Dense(1)])
    made = network(model)
    stir(made.variables)
    obs, begins = sequence()
    start = np.random.default_rng(2).normal(size=(N, made.state_size)).astype(np.float32)
    output, after = (x.numpy() for x in outputs_of(made, tf.constant(obs), tf.constant(start), tf.constant(begins)))
    assert output.shape == (T, N, 1) and after.shape == (T, N, made.state_size)

    for n in range(3):
        bounds = [*np.flatnonzero(begins[:, n]), T]
        for first, last in zip(bounds[:-1], bounds[1:], strict=True):
            whole = model(obs[None, first:last, n]).numpy()[0]
            np.testing.assert_allclose(output[first:last, n], whole, atol=1e-5)
    initial = [tf.constant(x) for x in np.split(start[3:], made.state_size // 5, 1)]
    whole = model.layers[-1](layer(model.layers[0](obs[None, :, 3]), initial_state=initial))
    np.testing.assert_allclose(output[:, 3], whole.numpy()[0], atol=1e-5)

    forward, state = Forward(made), start
    assert isinstance(forward.numpy, Chain)
    light = pickle.loads(pickle.dumps(forward.numpy))
    for t in range(T):
        state = np.where(begins[t][:, None], np.float32(0), state)
        of_keras = made.step(tf.constant(obs[t]), tf.constant(state))
        for step in (forward.step, light.step):
            before = state.copy()
            found, following = step(obs[t], state)
            np.testing.assert_array_equal(state, before, 'what was given is not written to')
            np.testing.assert_allclose(found, of_keras[0], atol=1e-5)
            np.testing.assert_allclose(found, output[t], atol=1e-5)
            np.testing.assert_allclose(following, after[t], atol=1e-5)
        state = following
    np.testing.assert_allclose(forward(obs[0]), made(tf.constant(obs[0])), atol=1e-5)


@pytest.mark.parametrize(
    ('dueling', 'means'), [(True, Means()), (False, Means(3)), (True, Means(3, np.float32([-1.0, 0.0, 2.0])))]
)
def test_numpy_acts_by_the_values_of_actions(dueling: bool, means: Means):
    """Behind the streams of a dueling head, and by quantiles and atoms."""
    head = action_value_head(2, dueling, means.count)
    entry = {'hidden': [4], 'recurrent': 'gru', 'recurrent_units': 5}
    made = build_network(entry, 'net_list[0] (q)', Preprocess(VECTOR, {}), head)
    stir(made.variables)
    forward, rng = Forward(made, means=means), np.random.default_rng(2)
    assert isinstance(forward.numpy, Chain)
    obs, state = (rng.normal(size=(N, size)).astype(np.float32) for size in (3, made.state_size))
    expected = forward.tensors(tf.constant(obs), tf.constant(state))
    assert expected[0].shape == (N, 2)
    for one, other in zip(pickle.loads(pickle.dumps(forward.numpy)).step(obs, state), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.full
def test_a_stack_of_recurrent_layers_has_its_states_side_by_side():
    model = keras.Sequential(
        [
            keras.Input((None, 3)),
            keras.layers.GRU(2, return_sequences=True),
            keras.layers.UnitNormalization(),
            keras.layers.LSTM(4),
            keras.layers.Dense(7),
        ]
    )
    made = network(model)
    assert made.state_size == 2 + 8 and made.head is not None
    obs, begins = sequence()
    begins[1:] = False
    x, after = made.encode_sequence(tf.constant(obs), tf.zeros([N, 10]), tf.constant(begins))
    for t in range(T):
        np.testing.assert_allclose(tf.reshape(x, [T, N, 7])[t], model(obs[: t + 1].swapaxes(0, 1)), atol=1e-5)
    assert after.shape == (T, N, 10)
    forward, state = Forward(made), np.zeros((N, 10), np.float32)
    assert forward.numpy is None, 'unit normalization is not for NumPy'
    for t in range(T):
        _, state = forward.step(obs[t], state)
        np.testing.assert_allclose(state, after[t], atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize('xla', [False, True])
def test_the_gradient_of_a_sequence_is_that_of_keras(xla: bool):
    model = keras.Sequential([keras.layers.Dense(4, 'tanh'), keras.layers.LSTM(5, return_sequences=True)])
    made = network(model)
    obs, begins = sequence()
    begins[:] = False
    begins[0] = True

    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            x, _ = made.encode_sequence(tf.constant(obs), tf.zeros([N, 10]), tf.constant(begins), training=True)
            loss = tf.reduce_sum(tf.square(x))
        return tape.gradient(loss, made.trainable_variables[:-2])

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(obs.swapaxes(0, 1))))
    expected = tape.gradient(loss, made.trainable_variables[:-2])
    for found, wanted in zip(tf.function(gradients, jit_compile=xla)(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_what_comes_before_an_episode_begins_does_not_reach_it():
    made = network({'hidden': [4], 'recurrent': 'lstm', 'recurrent_units': 3})
    obs, begins = sequence()
    begins[:] = False
    begins[3] = True
    start = tf.Variable(tf.ones([N, 6]))
    with tf.GradientTape() as tape:
        tape.watch(inputs := tf.constant(obs))
        output, _ = outputs_of(made, inputs, start, tf.constant(begins))
        late = tf.reduce_sum(output[3:])
    by_inputs, by_start = tape.gradient(late, [inputs, start])
    assert not by_inputs.numpy()[:3].any() and by_inputs.numpy()[3:].all() and not by_start.numpy().any()


class TestSpecs:
    @pytest.mark.parametrize(('kind', 'states'), [('lstm', 2), ('gru', 1)])
    def test_units_and_seeds(self, kind: str, states: int):
        made = network({'hidden': [8, 6], 'recurrent': kind, 'seed': 3})
        assert made.state_size == 6 * states
        assert network({'hidden': [8], 'recurrent': kind, 'recurrent_units': 5}).state_size == 5 * states
        again = network({'hidden': [8, 6], 'recurrent': kind, 'seed': 3})
        plain = network({'hidden': [8, 6], 'seed': 3})
        for one, other in zip(made.variables, again.variables, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(plain.variables[0], made.variables[0], 'the torso is what it was')
        assert len(made.variables) == len(made.trainable_variables) == 4 + 3 + 2

    @pytest.mark.parametrize(
        ('spec', 'words'),
        [
            ({'recurrent': 'rnn'}, r"recurrent is 'rnn'; give 'lstm' or 'gru', or None\.$"),
            ({'recurrent_units': 5}, r"recurrent_units belongs to a recurrent layer: give recurrent='lstm'"),
            ({'recurrent': 'gru', 'recurrent_units': 0}, r'a layer of 0 units cannot be made'),
        ],
    )
    def test_refused(self, spec: dict, words: str):
        with pytest.raises(ValueError, match=words):
            network(spec)

    def test_an_image_and_a_vector_before_a_memory(self):
        space = Dict(camera=Box(0, 255, (12, 12, 3), np.uint8), pose=VECTOR, gear=Discrete(3))
        made = network({'hidden': [8], 'features': 16, 'recurrent': 'lstm'}, space)
        rng = np.random.default_rng(0)
        obs = {
            'camera': rng.integers(0, 255, (T, N, 12, 12, 3)).astype(np.uint8),
            'pose': rng.normal(size=(T, N, 3)).astype(np.float32),
            'gear': rng.integers(0, 3, (T, N)),
        }
        begins = sequence()[1]
        start = np.zeros((N, 16), np.float32)
        output, _ = outputs_of(made, tf.nest.map_structure(tf.constant, obs), tf.constant(start), tf.constant(begins))
        forward, state = Forward(made), start
        assert forward.numpy is None
        for t in range(T):
            state = np.where(begins[t][:, None], np.float32(0), state)
            found, state = forward.step({key: x[t] for key, x in obs.items()}, state)
            np.testing.assert_allclose(found, output[t], atol=1e-5)

    def test_mixed_precision_leaves_the_memory_in_float32(self):
        made = network({'hidden': [256, 256], 'recurrent': 'lstm', 'recurrent_units': 8, 'dtype': 'mixed_bfloat16'})
        assert made.mixed and made.core is not None and made.core.cells[0].layer.compute_dtype == 'float32'
        obs, begins = sequence()
        output, after = outputs_of(made, tf.constant(obs), tf.zeros([N, 16]), tf.constant(begins))
        assert output.dtype == after.dtype == tf.float32


class TestNetworksOfTheUser:
    @pytest.mark.parametrize(
        ('layers', 'words'),
        [
            ([keras.layers.Bidirectional(keras.layers.LSTM(4))], r"'bidirectional.*cannot be stepped through: use"),
            ([keras.layers.LSTM(4, dropout=0.1)], r'drops out between steps'),
            ([keras.layers.GRU(4, stateful=True)], r'keeps or gives its state'),
            ([keras.layers.GRU(4), keras.layers.LSTM(4)], r'make it with return_sequences=True\.$'),
            ([keras.layers.Masking(), keras.layers.LSTM(4)], r'hides steps'),
            ([keras.layers.LSTM(4, dtype='mixed_bfloat16')], r'computes in bfloat16: make it of float32'),
            (
                [keras.layers.LSTM(4, activity_regularizer='l2')],
                r'has an activity regularizer, which zoo',
            ),
        ],
    )
    def test_refused(self, layers: list, words: str):
        with pytest.raises(ValueError, match=rf'^net_list\[0\] \(actor\) has the layer .*{words}'):
            network(keras.Sequential(layers))

    @pytest.mark.parametrize('where', ['before', 'after'])
    def test_a_layer_that_looks_at_several_steps_is_refused(self, where: str):
        """Step by step it sees one alone, and computes another function."""
        over_time = keras.layers.Conv1D(4, 3, padding='causal')
        memory = keras.layers.LSTM(4, return_sequences=True)
        with pytest.raises(ValueError, match=r'^net_list\[0\] \(actor\) gives something else of a whole sequence than'):
            network(keras.Sequential([over_time, memory] if where == 'before' else [memory, over_time]))

    def test_a_time_axis_within_the_observation_is_no_memory(self):
        model = keras.Sequential([keras.layers.Reshape((3, 1)), keras.layers.LSTM(4)])
        assert network(model).state_size == 0

    def test_a_functional_chain_and_a_layer_alone(self):
        inputs = keras.Input((None, 3))
        chain = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.GRU(4)(inputs)))
        assert network(chain).state_size == 4
        assert network(keras.layers.LSTM(3)).state_size == 6
        branches = keras.layers.Concatenate()([keras.layers.GRU(4)(inputs), keras.layers.GRU(4)(inputs)])
        assert recurrent.parts_of(keras.Model(inputs, branches)) is None


def test_a_policy_completes_its_output_and_masks_it():
    space = Dict(see=VECTOR, action_mask=Box(0, 1, (2,), np.int8))
    cases: list[tuple[Space, Space]] = [(VECTOR, Box(-1, 1, (2,), np.float32)), (space, Discrete(2))]
    for seen, acted in cases:
        adaptor = ActionAdaptor(acted)
        entry = {'hidden': [4], 'recurrent': 'gru'}
        made = build_network(entry, 'net_list[0] (actor)', Preprocess(seen, {}), stochastic_head(adaptor))
        policy = StochasticPolicy(made, adaptor, -0.5)
        stir(policy.trainable_variables)
        x = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
        obs: Any = x if seen is VECTOR else {'see': x, 'action_mask': np.array([[0, 1]] * N, np.int8)}
        state = np.ones((N, 4), np.float32)
        forward = Forward(made, policy)
        assert forward.numpy is not None
        expected = policy.step(tf.nest.map_structure(tf.constant, obs), tf.constant(state))
        for one, other in zip(forward.step(obs, state), expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
        forward.unpack(forward.pack().numpy() * 2)
        twin = copy.copy(forward.numpy)
        np.testing.assert_array_equal(twin.step(obs, state)[0], forward.step(obs, state)[0])
