"""Mixed precision as Keras has it: torsos compute in bfloat16; what is kept, and what is learned from, is float32."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import toys
from gymnasium.spaces import Box, Dict, Discrete

import zoo
from zoo import algorithms, build_env, call_default_params
from zoo.algorithms.base import Algorithm, saving
from zoo.common.adaptors.observation import Preprocess
from zoo.common.maths.optimizers import copy_weights
from zoo.common.networks import fingerprints
from zoo.common.networks.build import build_network, build_on
from zoo.common.networks.heads import Head, action_value_head, value_head
from zoo.common.networks.layers import dense
from zoo.common.networks.layers.batch_renorm import BatchRenormalization
from zoo.common.networks.network import Network
from zoo.common.networks.spec import DTYPES, processor_flags, warn_where_slow
from zoo.common.records import Batch, Transition

MIXED = 'mixed_bfloat16'
VECTOR, IMAGE = toys.OBSERVATIONS['vector'], toys.OBSERVATIONS['image']
EVERYTHING = Dict(camera=Box(0, 255, (8, 8, 1), np.uint8), pose=VECTOR, place=Discrete(1000), mode=Discrete(3))
OLD = Path(__file__).parents[2] / 'checkpoints' / '0.1.0'

#: What bfloat16 rounds by, relative to the largest number, becomes no more than this over a few layers.
ROUNDING = 0.03


@pytest.fixture
def policy() -> Iterator[Any]:
    """Sets Keras' global dtype policy until the test is over."""
    kept = keras.config.dtype_policy()
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy(kept)


@pytest.fixture(autouse=True)
def narrow_layers_round_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small networks stand for wide ones here; processes of their own do not know of it."""
    monkeypatch.setattr(dense, 'NARROW', 0)


def network(entry: Any, space: Any = VECTOR, head: Head | None = None) -> Network:
    return build_network(entry, 'net_list[0] (q)', Preprocess(space, {}), head or action_value_head(4))


def make(name: str, dtype: str | None = MIXED, space: Any = VECTOR, hidden: int = 8, **params: Any) -> Algorithm:
    cls = getattr(algorithms, name)
    # tanh: in bfloat16 some units of a relu are on its other side.
    spec = {'hidden': [hidden, hidden], 'features': 8, 'activation': 'tanh'} | (
        {} if dtype is None else {'dtype': dtype}
    )
    action = Box(-1.0, 1.0, (2,)) if 'Box' in cls.acts_in else Discrete(3)
    entries = [spec | {'seed': i} for i in range(len(cls.network_names))]
    return cls(space, action, **{'net_list': entries} | params)


def learn(agent: Algorithm, steps: int = 40, **params: Any) -> Any:
    few = {'horizon': 16, 'epochs': 1} if agent.loop.experience != 'steps' else {}
    few |= {} if few else {'explore_steps': 20, 'buffer_size': 50}
    env = build_env(toys.AnySpaces(agent.observation_space, agent.action_space), 'gymnasium', seed=0)
    given = {'run_dir': False, 'verbose': 0, 'batch_size': 8, 'train_steps': steps, 'seed': 0}
    return agent.learn(env, **toys.fitted(agent, env, given | few | params))


def batches(agent: Algorithm, size: int = 64) -> Batch:
    """One batch, as ``[1, B, …]``."""
    rng = np.random.default_rng(0)
    obs, action, next_obs = (
        np.stack([space.sample() for _ in range(size)])[None]
        for space in (agent.observation_space, agent.action_space, agent.observation_space)
    )
    shape = (1, size)
    reward = rng.normal(size=shape).astype(np.float32)
    return Batch.of(
        Transition(obs, action, reward, next_obs, rng.random(shape) < 0.2, np.zeros(shape, bool)), agent.gamma
    )


def policies(model: Any) -> set[str]:
    inside = [x for x in model._flatten_layers() if x is not model and not isinstance(x, keras.layers.InputLayer)]
    return {layer.dtype_policy.name for layer in inside}


def assert_near(found: Any, expected: Any, near: float = ROUNDING) -> None:
    """Equal up to the rounding of bfloat16, and not by chance exactly."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype == np.float32
    distance = np.abs(found - expected).max() / np.abs(expected).max()
    assert 0.0 < distance < near, distance


class TestSpecs:
    @pytest.mark.parametrize('dtype', ['float16', 'mixed_float16', 'bfloat16', 'float64', None, tf.float32])
    def test_another_dtype_is_refused(self, dtype):
        with pytest.raises(
            ValueError,
            match=r"^net_list\[0\] \(q\): dtype is .*: give its name, 'float32' or 'mixed_bfloat16', or leave it",
        ):
            algorithms.DQN(VECTOR, Discrete(3), net_list=[{'dtype': dtype}])

    def test_why_not_half_precision(self):
        with pytest.raises(ValueError, match=r'gradients vanish without loss scaling'):
            network({'dtype': 'mixed_float16'})

    def test_tensorlayer_is_refused(self, policy):
        for spec in ({'layers': 'tensorlayer', 'dtype': MIXED}, {'layers': 'tensorlayer'}):
            with pytest.raises(ValueError, match=r"^net_list\[0\] \(q\): TensorLayer's .*: give dtype='float32', or "):
                algorithms.DQN(VECTOR, Discrete(3), net_list=[spec])
            policy(MIXED)

    @pytest.mark.full(but='vector-float32-mixed_bfloat16')
    @pytest.mark.parametrize('everywhere', ['float32', MIXED, 'mixed_float16', 'float64'])
    @pytest.mark.parametrize('dtype', DTYPES)
    @pytest.mark.parametrize('space', [VECTOR, EVERYTHING], ids=['vector', 'everything'])
    def test_what_is_of_which_dtype_under_any_global_policy(self, policy, space, dtype, everywhere):
        spec = {'hidden': [8], 'features': 8, 'seed': 0, 'dtype': dtype}
        obs = Preprocess(space, {}).space
        obs = zoo.common.spaces.tree_map(tf.constant, zoo.common.spaces.zeros(obs, (3,)))
        heads = (action_value_head(3), action_value_head(3, dueling=True), replace(value_head(), action_size=2))
        for head in heads:
            action = tf.ones([3, 2]) if head.action_size else None
            policy('float32')
            expected = network(spec, space, head)
            policy(everywhere)
            found = network(spec, space, head)
            assert policies(found.torso) - {'float32'} == {dtype} - {'float32'} and policies(found.head) == {'float32'}
            assert {v.dtype for v in found.variables} == {tf.float32} and found.mixed is (dtype == MIXED)
            assert found.encode(obs, action).dtype == tf.float32
            np.testing.assert_array_equal(found(obs, action), expected(obs, action))
            assert found(obs, action).dtype == tf.float32

    def test_it_computes_in_bfloat16(self):
        mixed, plain = (network({'hidden': [32, 32], 'seed': 0, 'dtype': x}) for x in (MIXED, 'float32'))
        obs = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
        assert_near(mixed(tf.constant(obs)), plain(tf.constant(obs)))

    def test_narrow_layers_stay_float32_which_a_line_says_where_it_is_all_of_them(self, monkeypatch, caplog):
        monkeypatch.setattr(dense, 'NARROW', 128 * 128)
        caplog.set_level(logging.INFO, 'zoo')
        obs = tf.constant(np.random.default_rng(0).normal(size=(50, 3)), tf.float32)
        for hidden, rounds in (([128, 128], False), ([128, 129], True), ([256, 256], True)):
            caplog.clear()
            mixed, plain = (network({'hidden': hidden, 'seed': 0, 'dtype': x}) for x in (MIXED, 'float32'))
            assert mixed.mixed is rounds
            assert ('changes nothing' in caplog.text) is not rounds
            assert np.array_equal(mixed(obs), plain(obs)) is not rounds

    def test_what_joins_an_image_or_an_index_is_not_rounded(self, monkeypatch):
        monkeypatch.setattr(dense, 'NARROW', 128 * 128)
        space = Dict(a=VECTOR, b=Discrete(1000))
        made = network({'hidden': [8], 'activation': 'linear', 'dtype': MIXED}, space)
        assert not made.mixed
        obs = [{'a': tf.constant([[x, 0.0, 0.0]]), 'b': tf.constant([5])} for x in (1000.3, 1001.9)]
        assert not np.array_equal(made(obs[0]), made(obs[1]))
        critic = network({'hidden': [8], 'features': 16, 'dtype': MIXED}, IMAGE, value_head(action_size=1))
        image = tf.zeros([1, *IMAGE.shape], tf.uint8)
        assert critic.mixed
        assert critic(image, tf.constant([[0.5]])) != critic(image, tf.constant([[0.501]]))

    def test_no_hidden_layer_rounds_nothing(self):
        mixed, plain = (network({'hidden': [], 'seed': 0, 'dtype': x}) for x in (MIXED, 'float32'))
        obs = tf.random.normal([5, 3])
        np.testing.assert_array_equal(mixed(obs), plain(obs))


class TestTheGlobalPolicy:
    @pytest.mark.full(but='ES')
    @pytest.mark.parametrize('name', toys.marked(algorithms.NAMES))
    def test_is_written_into_the_entries(self, policy, name):
        policy(MIXED)
        if name == 'ARS':  # whose default network has no layer before the head
            assert make(name, net_list=None).net_list[0]['dtype'] == MIXED
            return
        default = make(name, net_list=None)
        given = [{'hidden': [8]} for _ in default.network_names]
        agent = make(name, net_list=given)
        for found in (default, agent):
            assert [entry['dtype'] for entry in found.net_list] == [MIXED] * len(given)
            for network in found.networks.values():
                rounding = [
                    x
                    for x in network.torso.layers
                    if not isinstance(x, BatchRenormalization | keras.layers.LayerNormalization)
                ]
                assert {layer.dtype_policy.name for layer in rounding} == {MIXED}
        assert given[0] == {'hidden': [8]}, 'it is the caller’s'
        named = make(name, 'float32')
        assert all(policies(x.torso) == {'float32'} for x in named.networks.values())

    def test_names_are_left_alone(self, policy):
        policy(MIXED)
        agent = make('PPO', net_list=[{'hidden': [8]}, 'actor'])
        assert agent.net_list == [algorithms.PPO.default_network | {'hidden': [8], 'dtype': MIXED}, 'actor']
        critic = agent.networks['critic']
        assert critic.mixed and policies(critic.head) == {'float32'} and critic.torso is agent.networks['actor'].torso

    @pytest.mark.parametrize('other', ['mixed_float16', 'float64', 'bfloat16'])
    def test_another_one_is_refused_where_a_spec_names_none(self, policy, other):
        policy(other)
        with pytest.raises(ValueError, match=rf"^net_list\[0\] \(q\) would be made under .*'{other}', .*\.$"):
            make('DQN', None)
        assert {v.dtype for v in make('DQN').trainable_variables} == {tf.float32}

    @pytest.mark.parametrize(('made', 'later'), [(MIXED, 'float32'), ('float32', MIXED)])
    def test_what_is_made_of_an_agent_is_as_the_agent(self, policy, made, later, tmp_path):
        policy(made)
        agent = make('SAC', None)
        obs = agent.observation_space.sample()
        agent.save(tmp_path / 'saved')
        policy(later)
        cls, params = pickle.loads(pickle.dumps(agent.blueprint()))
        for other in (zoo.load(tmp_path / 'saved'), copy.deepcopy(agent), cls(**params)):
            assert other.net_list == agent.net_list
            for found in (*other.networks.values(), *other.targets):
                assert policies(found.torso) == {made} and policies(found.head) == {'float32'}
        np.testing.assert_array_equal(zoo.load(tmp_path / 'saved').predict(obs), agent.predict(obs))

    def test_a_class_that_gives_its_specs_itself(self, policy, tmp_path):
        class Own(algorithms.DQN):
            net_list = ({'hidden': [8]},)
            unused = ('net_list',)

        policy(MIXED)
        agent = Own(VECTOR, Discrete(3))
        agent.save(tmp_path / 'saved')
        assert Own.load(tmp_path / 'saved').network.mixed and copy.deepcopy(agent).network.mixed
        policy('float32')
        for again in (lambda: Own.load(tmp_path / 'saved'), lambda: copy.deepcopy(agent)):
            with pytest.raises(ValueError, match="the network q is of 'mixed_bfloat16', but under Keras' dtype policy"):
                again()

    def test_old_checkpoints_are_float32(self, policy):
        policy(MIXED)
        found = [zoo.load(path) for path in sorted(OLD.iterdir()) if path.is_dir()]
        assert found
        for agent in found:
            assert all(isinstance(entry, str) or entry['dtype'] == 'float32' for entry in agent.net_list)
            assert not any(x.mixed for x in agent.networks.values())

    def test_an_agent_may_be_loaded_in_another_dtype(self, tmp_path):
        agent = make('DQN', 'float32')
        agent.save(tmp_path / 'saved')
        mixed = zoo.load(tmp_path / 'saved', net_list=[{'hidden': [8, 8], 'dtype': MIXED}])
        assert mixed.network.mixed
        mixed.save(tmp_path / 'mixed')
        assert not zoo.load(tmp_path / 'mixed', net_list=[{'hidden': [8, 8], 'dtype': 'float32'}]).network.mixed
        with pytest.raises(ValueError, match='computes something else'):
            zoo.load(tmp_path / 'saved', net_list=[{'hidden': [8, 8], 'dtype': MIXED, 'activation': 'elu'}])


class TestCallDefaultParams:
    @pytest.mark.parametrize('name', toys.marked(algorithms.NAMES))
    def test_every_spec_gets_it(self, name):
        env = build_env(
            'Pendulum-v1' if 'Box' in getattr(algorithms, name).acts_in else 'CartPole-v1', 'classic_control'
        )
        alg_params, _ = call_default_params(env, 'classic_control', name, dtype=MIXED)
        assert all(spec['dtype'] == MIXED for spec in alg_params['net_list'])
        assert all('dtype' not in spec for spec in call_default_params(env, alg=name)[0]['net_list'])
        getattr(algorithms, name)(**alg_params)

    @pytest.mark.parametrize(
        'given', [{'dtype': 'float16'}, {'dtype': 'bfloat17'}, {'dtype': MIXED, 'layers': 'tensorlayer'}]
    )
    def test_another_one_is_refused(self, given):
        with pytest.raises(ValueError, match=r"^call_default_params: .*give .*'float32'.*\.$"):
            call_default_params(build_env('CartPole-v1'), alg='DQN', **given)


def sequential(*units: int, dtype: str = MIXED, last: str = 'linear') -> keras.Model:
    layers = [keras.layers.Dense(n, 'tanh', dtype=dtype) for n in units[:-1]]
    return keras.Sequential([*layers, keras.layers.Dense(units[-1], last, dtype=dtype)])


class TestNetworksOfTheUser:
    @pytest.mark.parametrize('units', [(8, 4), (8, 7)], ids=['complete', 'torso'])
    def test_are_taken(self, units):
        found = network(sequential(*units))
        output = found(tf.random.normal([5, 3]))
        assert output.shape == (5, 4) and output.dtype == tf.float32 and found.mixed
        assert {v.dtype for v in found.variables} == {tf.float32}
        assert found.head is None or policies(found.head) == {'float32'}

    def test_a_head_is_float32_under_any_global_policy(self, policy):
        torso = sequential(8, 7)
        image = keras.Sequential([keras.layers.Flatten(dtype=MIXED), keras.layers.Dense(6, dtype=MIXED)])
        policy('mixed_float16')
        found = network(torso, head=action_value_head(3, dueling=True))
        assert policies(found.head) == {'float32'} and found(tf.ones([2, 3])).dtype == tf.float32
        assert policies(build_on(found, 'net_list[1] (critic)', value_head()).head) == {'float32'}
        joined = network(image, IMAGE, value_head(action_size=2))
        assert len(joined.head.layers) == 2 and policies(joined.head) == {'float32'}
        assert joined(tf.zeros([2, 10, 12, 3], tf.uint8), tf.ones([2, 2])).dtype == tf.float32

    def test_a_module(self):
        class Rounded(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.kernel = tf.Variable(tf.random.normal([3, 4]))

            def __call__(self, x: tf.Tensor) -> tf.Tensor:
                return tf.cast(x, tf.bfloat16) @ tf.cast(self.kernel, tf.bfloat16)

        found = network(Rounded())
        assert found.mixed and found(tf.ones([2, 3])).dtype == tf.float32

    def test_weights_of_half_precision_are_refused(self):
        with pytest.raises(
            ValueError, match=r"^net_list\[0\] \(q\) has weights of bfloat16 \('.*'\), .*mixed_bfloat16"
        ):
            network(sequential(8, 4, dtype='bfloat16'))

    @pytest.mark.parametrize(('last', 'bounds'), [('tanh', False), ('softsign', False), ('linear', True)])
    def test_an_action_within_bounds(self, last, bounds):
        nets = [sequential(8, 2, last=last), {'hidden': [8]}, {'hidden': [8]}]
        agent = make('TD3', net_list=nets)
        assert agent.networks['actor'].bounds is bounds
        assert np.abs(agent.act(100 * np.ones((2, 3), np.float32), True)).max() <= 1.0

    @pytest.mark.full
    def test_targets_twins_and_loading(self, tmp_path, monkeypatch):
        def given() -> list[Any]:
            return [sequential(8, 3)]

        agent = make('DQN', net_list=given())
        learn(agent)
        obs = batches(agent).obs[0]
        twin = copy.deepcopy(agent)
        loaded = zoo.load(agent.save(tmp_path / 'saved'), net_list=given())
        for other in (twin, loaded):
            np.testing.assert_array_equal(other.network(obs), agent.network(obs))
            np.testing.assert_array_equal(other.target(obs), agent.target(obs))
        with pytest.raises(ValueError, match='computes something else'):
            zoo.load(tmp_path / 'saved', net_list=[sequential(8, 3, last='tanh')])

    def test_on_another_processor_it_may_round_otherwise(self):
        made, plain = network(sequential(8, 4)), network(sequential(8, 4, dtype='float32'))
        kept = np.array(fingerprints.fingerprint(made))
        copy_weights(plain.variables, made.variables)
        for found, by, is_same in ((made, 0.01, True), (made, 0.2, False), (plain, 0.01, False)):
            expected = kept if found is made else np.array(fingerprints.fingerprint(plain))
            moved = expected + by * np.abs(expected).max()
            if is_same:
                fingerprints.check_fingerprints({'q': found}, {'q': moved.tolist()})
            else:
                with pytest.raises(ValueError, match='computes something else'):
                    fingerprints.check_fingerprints({'q': found}, {'q': moved.tolist()})


class TestActing:
    @pytest.mark.parametrize(
        'entry',
        [lambda dtype: {'hidden': [32, 32], 'dtype': dtype}, lambda dtype: sequential(32, 4, dtype=dtype)],
        ids=['spec', 'own'],
    )
    def test_in_numpy_is_the_float32_function_of_the_weights(self, entry):
        made = entry(MIXED), entry('float32')
        mixed, plain = (algorithms.DQN(VECTOR, Discrete(4), net_list=[x]) for x in made)
        copy_weights(plain.network.variables, mixed.network.variables)
        mixed.forward.refresh()
        obs = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
        assert mixed.forward.numpy is not None
        np.testing.assert_allclose(mixed.forward(obs), plain.network(obs), rtol=1e-5, atol=1e-5)
        assert_near(mixed.forward(obs), mixed.network(obs))

    def test_with_images_is_that_of_the_network(self):
        mixed, plain = (make('DQN', dtype, space=IMAGE) for dtype in (MIXED, 'float32'))
        obs = batches(mixed).obs[0]
        assert mixed.forward.numpy is None
        assert_near(mixed.forward(obs), plain.forward(obs))
        # A graph rounds less often than the same network called eagerly: it joins a convolution and its activation.
        np.testing.assert_allclose(mixed.forward(obs), mixed.network(obs), atol=0.01)


#: Kinds of update: compiled by XLA, and plain graphs of wide layers and of images.
KINDS = {'XLA': {}, 'wide': {'hidden': 160}, 'images': {'space': IMAGE}}


class TestLearning:
    @pytest.mark.full
    @pytest.mark.parametrize('kind', KINDS)
    def test_an_update_is_that_of_float32_to_rounding(self, kind):
        """From equal weights: the losses are near, and the weights move in the same direction."""
        agents = [make('SAC', dtype, **KINDS[kind]) for dtype in (MIXED, 'float32')]
        data = batches(agents[0])
        for agent in agents:
            agent.noise_seed.assign([1, 2])
        before = [[v.numpy() for v in agent.trainable_variables] for agent in agents]
        for a, b in zip(*before, strict=True):
            np.testing.assert_array_equal(a, b)
        losses = [agent.update_on(data) for agent in agents]
        for name, value in losses[0].items():
            assert value == pytest.approx(losses[1][name], rel=ROUNDING, abs=ROUNDING), name
        moments = [
            [
                x
                for name, x in saving.arrays(agent).items()
                if name.startswith('optimizer/critic/') and '_moment/' in name
            ]
            for agent in agents
        ]
        for mixed, plain in zip(*moments, strict=True):  # a tenth of the gradient, and a thousandth of its square
            a, b = (np.ravel(x) for x in (mixed, plain))
            assert a @ b / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-30) > 0.99 or not b.any()
        for agent, old in zip(agents, before, strict=True):
            for variable, value in zip(agent.trainable_variables, old, strict=True):
                assert variable.dtype == tf.float32
                assert (variable.numpy() != value).any(), 'no gradient reaches it'
            states = [x.state([str(i) for i in range(len(x.variables))]) for x in agent.optimizers.values()]
            assert {array.dtype for state in states for array in state.values()} == {np.dtype('f4'), np.dtype('i8')}
            assert {v.dtype for x in agent.targets for v in x.variables} == {tf.float32}

    @pytest.mark.full(but='ES')
    @pytest.mark.parametrize('name', toys.marked(algorithms.NAMES))
    def test_every_algorithm_moves_every_weight(self, name, plain_graphs):
        agent = make(name)
        before = [v.numpy() for v in agent.trainable_variables]
        result = learn(agent, 60)
        assert all(np.isfinite(x) for x in result.losses.values())
        for variable, value in zip(agent.trainable_variables, before, strict=True):
            assert variable.dtype == tf.float32 and (variable.numpy() != value).any()

    @pytest.mark.full
    @pytest.mark.parametrize('name', ['PPO', pytest.param('SAC', marks=pytest.mark.matrix)])
    def test_after_save_and_load_as_if_uninterrupted(self, name, tmp_path, plain_graphs):
        def trained(path: Path | None) -> Algorithm:
            agent = make(name, normalize_obs=True)
            learn(agent, 53)
            if path is not None:
                agent = zoo.load(agent.save(path, buffer=True))
            learn(agent, 40, seed=None)
            return agent

        whole, resumed = trained(None).state(), trained(tmp_path / 'saved').state()
        assert whole.keys() == resumed.keys()
        for key, array in whole.items():
            np.testing.assert_array_equal(resumed[key], array, err_msg=key)

    @pytest.mark.full
    def test_with_roles(self, policy):
        """Other processes know nothing of the global policy here, and act by NumPy in float32."""
        policy(MIXED)
        env = build_env('CartPole-v1')
        agent = algorithms.PPO(env.observation_space, env.action_space, net_list=[{'hidden': [8]} for _ in range(2)])
        few = {'train_steps': 100, 'horizon': 20, 'epochs': 1, 'batch_size': 20, 'verbose': 0}
        result = agent.learn(env, seed=1, run_dir=False, roles={'learners': 2, 'actors': 2}, **few)
        assert result.steps >= 100 and all(np.isfinite(x) for x in result.losses.values())


class TestTheLineWhereItIsSlow:
    @pytest.fixture(autouse=True)
    def not_said_yet(self) -> Iterator[None]:
        warn_where_slow.cache_clear()
        yield
        warn_where_slow.cache_clear()

    @pytest.mark.full(but='fpu avx2 avx512f-5.9')
    @pytest.mark.parametrize(
        ('flags', 'times'),
        [
            ('fpu avx2 avx512f avx512_bf16 amx_bf16', None),
            ('fpu avx2 avx512f avx512_bf16', '2.1'),
            ('fpu avx2 avx512f', '5.9'),
            ('fpu avx2', '1.3'),
            ('fp asimd bf16', None),
            ('fp asimd', '1.3'),
            ('', None),
        ],
    )
    def test_is_said_once(self, flags, times, monkeypatch, caplog):
        monkeypatch.setattr('zoo.common.networks.spec.processor_flags', lambda: set(flags.split()))
        with caplog.at_level(logging.INFO, 'zoo'):
            network({'hidden': [4]})
            assert not caplog.records
            for _ in range(2):
                network({'hidden': [4], 'dtype': MIXED})
        assert len(caplog.records) == (times is not None)
        assert times is None or f'took {times} times as long' in caplog.text

    def test_flags(self, monkeypatch):
        texts = {
            'flags\t\t: fpu amx_bf16\nflags: x': {'fpu', 'amx_bf16'},
            'Features\t: fp bf16': {'fp', 'bf16'},
            '': set(),
        }
        for text, expected in texts.items():
            monkeypatch.setattr(Path, 'read_text', lambda self, text=text: 'processor\t: 0\n' + text)
            assert processor_flags() == expected

        def missing(self: Path) -> str:
            raise FileNotFoundError

        monkeypatch.setattr(Path, 'read_text', missing)
        assert processor_flags() == set()
