"""What every algorithm shares: construction, compiled updates, seeds, saving and training on."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
import toys
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import zoo
from zoo import algorithms
from zoo.algorithms.base import Algorithm, saving
from zoo.common.records import Batch, Transition
from zoo.common.schedules import Linear
from zoo.common.tools.compilation import PackedCall
from zoo.common.training import checkpoint

VECTOR = toys.OBSERVATIONS['vector']
CLASSES = {name: getattr(algorithms, name) for name in algorithms.NAMES}
ACTIONS = {name: Box(-1.0, 1.0, (2,)) if 'Box' in cls.acts_in else Discrete(3) for name, cls in CLASSES.items()}
OFF_POLICY = tuple(name for name, cls in CLASSES.items() if cls.loop.experience == 'steps')


def make(name: str, observation_space: Any = VECTOR, action_space: Any = None, **params: Any) -> Algorithm:
    """An agent with tiny networks, the same every time."""
    cls = getattr(algorithms, name)
    specs = [{'hidden': [8], 'features': 8, 'seed': i} for i in range(len(cls.network_names))]
    params = toys.few_directions(cls) | params
    agent = cls(observation_space, action_space or ACTIONS[name], net_list=specs, **params)
    agent.rng = np.random.default_rng(0)
    agent.noise_seed.assign([1, 2])
    return agent


def environment(name: str, observation_space: Any = VECTOR, seed: int = 0) -> gymnasium.Env:
    """Random observations and rewards for it, seeded."""
    return zoo.build_env(toys.AnySpaces(observation_space, ACTIONS[name]), 'gymnasium', seed=seed)


def learn_params(name: str, space: Any = VECTOR, **others: Any) -> dict[str, Any]:
    """Some updates, over observations of a space."""
    cls = CLASSES[name]
    common = {'run_dir': False, 'verbose': 0, 'batch_size': 8}
    common |= toys.needed(make(name, space), environment(name, space))
    if cls.loop.needs_data:
        return common | {'train_updates': others.pop('train_steps', 60)} | others
    if cls.loop.alone:
        return common | {'train_steps': 60, 'horizon': 10, 'updates': 4} | others
    if name not in OFF_POLICY:
        return toys.taken(CLASSES[name], common | {'train_steps': 48, 'horizon': 16, 'epochs': 2} | others)
    return toys.taken(CLASSES[name], common | {'train_steps': 60, 'explore_steps': 20, 'buffer_size': 50} | others)


def compiled(agent: Algorithm) -> PackedCall:
    return agent.fused


def arrays(agent: Algorithm) -> dict[str, np.ndarray]:
    """Everything that a checkpoint holds but the configuration."""
    return saving.arrays(agent)


def assert_same_arrays(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], atol: float = 0.0) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=atol, err_msg=name)


def batches(agent: Algorithm, count: int, size: int = 4, seed: int = 0) -> Batch:
    """Random transitions ``[count, size, …]`` over a vector observation."""
    rng = np.random.default_rng(seed)
    lead = (count, size)
    flat = agent.action_adaptor.random(count * size, rng)
    return Batch.of(
        Transition(
            obs=rng.normal(size=(*lead, 3)).astype(np.float32),
            action=flat.reshape(lead + flat.shape[1:]),
            reward=rng.normal(size=lead).astype(np.float32),
            next_obs=rng.normal(size=(*lead, 3)).astype(np.float32),
            terminated=rng.random(lead) < 0.3,
            truncated=rng.random(lead) < 0.3,
        ),
        getattr(agent, 'gamma', 1.0),
    )


class TestConstruction:
    def test_params_are_the_constructors_with_their_defaults(self):
        params = algorithms.TD3.params()
        assert list(params)[:4] == ['observation_space', 'action_space', 'net_list', 'optimizers_list']
        assert params['tau'] == 0.005 and params['policy_delay'] == 2
        assert 'self' not in params and 'unknown_params' not in params

    @pytest.mark.parametrize('name', toys.marked(algorithms.NAMES))
    def test_every_parameter_is_kept_under_its_name(self, name):
        """``config`` reads them there, so what is missing would not be saved."""
        agent = make(name)
        for key in agent.params():
            if key not in ('net_list', 'optimizers_list'):
                assert hasattr(agent, key), key

    @pytest.mark.parametrize('name', toys.marked(algorithms.NAMES))
    def test_networks_and_optimizers_are_those_that_are_named(self, name):
        agent = make(name)
        assert tuple(agent.networks) == agent.network_names
        assert tuple(agent.optimizers) == agent.optimizer_names
        moved = [id(v) for v in agent.trainable_variables]
        assert len(set(moved)) == len(moved)
        assert {id(v) for network in agent.networks.values() for v in network.trainable_variables} <= set(moved)

    @pytest.mark.parametrize('what', ['net_list', 'optimizers_list'])
    def test_another_number_of_entries_is_refused(self, what):
        names = 'actor, critic_1, critic_2' if what == 'net_list' else 'actor, critic, alpha'
        with pytest.raises(ValueError, match=rf'^{what} has 2 entries, but SAC takes 3: {names}\.$'):
            algorithms.SAC(VECTOR, ACTIONS['SAC'], **{what: [{}, {}]})

    def test_one_network_twice_is_refused(self):
        critic = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
        with pytest.raises(ValueError, match='two entries of net_list are the same network or share weights'):
            algorithms.SAC(VECTOR, ACTIONS['SAC'], net_list=[{'hidden': [8]}, critic, critic])

    def test_one_optimizer_twice_is_refused(self):
        shared = keras.optimizers.SGD(0.1)
        with pytest.raises(ValueError, match=r'optimizers_list\[1\] \(critic\) already belongs'):
            algorithms.TD3(VECTOR, ACTIONS['TD3'], optimizers_list=[shared, shared])

    def test_a_network_that_cannot_be_copied_cannot_have_a_target(self):
        class Locked(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.lock = threading.Lock()
                self.kernel = tf.Variable(tf.ones([3, 3]))

            def __call__(self, x: tf.Tensor) -> tf.Tensor:
                return x @ self.kernel

        with pytest.raises(ValueError, match=r'net_list\[0\] \(q\) cannot be copied, which a target network needs'):
            algorithms.DQN(VECTOR, Discrete(3), net_list=[Locked()])
        algorithms.PPO(VECTOR, Discrete(3), net_list=[Locked(), {}])  # it has none

    def test_a_keras_subclass_that_does_not_describe_itself_is_made_anew(self):
        class Plain(keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.dense = keras.layers.Dense(3)

            def call(self, x: tf.Tensor) -> tf.Tensor:
                return self.dense(x)

        agent = algorithms.DQN(VECTOR, Discrete(3), net_list=[Plain()])
        own, target = agent.networks['q'].torso, agent.target.torso
        assert type(target) is Plain and target is not own
        np.testing.assert_array_equal(target.dense.kernel, own.dense.kernel)

    def test_a_function_with_weights_would_share_them_with_its_target(self):
        kernel = tf.Variable(tf.ones([3, 3]))

        def network(x: tf.Tensor) -> tf.Tensor:
            return x @ kernel

        network.trainable_variables = [kernel]
        with pytest.raises(
            ValueError, match=r'net_list\[0\] \(q\) cannot be copied, which a target network needs: give'
        ):
            algorithms.DQN(VECTOR, Discrete(3), net_list=[network])

    @pytest.mark.parametrize('name', OFF_POLICY)
    def test_targets_start_equal_and_are_others(self, name):
        agent = make(name)
        saved = arrays(agent)
        targets = [key for key in saved if key.startswith('target/')]
        copied = {key.split('/')[1] for key in targets}
        assert bool(copied) == (name not in ('BC', 'CrossQ', 'DAgger', 'MARWIL'))  # which have none
        assert len(targets) == sum(len(agent.networks[n].variables) for n in copied)
        for key in targets:
            np.testing.assert_array_equal(saved[key], saved[key.replace('target/', 'network/')])
        owned = {id(v) for network in agent.networks.values() for v in network.variables}
        assert not owned & {id(agent.state_variables[key]) for key in targets}

    @pytest.mark.parametrize(
        ('name', 'params', 'message'),
        [
            ('TD3', {'policy_delay': 0}, 'policy_delay is 0: give a whole number of at least 1'),
            ('DQN', {'target_update_every': 0}, 'target_update_every is 0: give a whole number of at least 1'),
        ],
    )
    def test_counts_of_updates(self, name, params, message):
        with pytest.raises(ValueError, match=message):
            make(name, **params)


class TestRandomAction:
    def test_uniform_over_the_space(self):
        agent = make('DQN')
        drawn = agent.random_action(np.zeros((3000, 3), np.float32))
        np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 3000, 1 / 3, atol=0.05)

    @pytest.mark.parametrize(
        ('space', 'mask', 'allowed'),
        [
            (Discrete(4, start=7), [0, 1, 0, 1], {1, 3}),
            (MultiDiscrete([3, 2]), [1, 0, 1, 0, 1], {(0, 1), (2, 1)}),
        ],
    )
    def test_uniform_over_what_the_mask_allows(self, space, mask, allowed):
        agent = algorithms.PPO(
            Dict(x=VECTOR, action_mask=MultiBinary(len(mask))), space, net_list=[{'hidden': [4]}] * 2
        )
        obs = {'x': np.zeros((400, 3), np.float32), 'action_mask': np.tile(np.int8(mask), (400, 1))}
        drawn = agent.random_action(obs)
        found, counts = np.unique(drawn, axis=0, return_counts=True)
        assert {tuple(x) if np.ndim(x) else int(x) for x in found} == allowed
        assert counts.min() > 150


class TestCompiledUpdates:
    @pytest.mark.full
    @pytest.mark.parametrize('count', [pytest.param(2, marks=pytest.mark.matrix), 7])
    @pytest.mark.parametrize(
        ('name', 'params', 'xla'),
        [
            ('DQN', {'target_update_every': 2}, True),
            pytest.param('SAC', {}, True, marks=pytest.mark.matrix),
            ('SAC', {}, False),
            pytest.param('TD3', {'policy_delay': 2}, True, marks=pytest.mark.matrix),
            pytest.param('TD3', {'policy_delay': 1}, False, marks=pytest.mark.matrix),
            ('TD3', {'policy_delay': 3}, False),
        ],
    )
    def test_several_in_one_call_are_the_same_as_one_by_one(self, request, name, params, xla, count):
        if not xla:
            request.getfixturevalue('plain_graphs')
        together, apart = make(name, **params), make(name, **params)
        for seed in (0, 1):  # the second call begins in another phase of the delayed actor
            data = batches(together, count, seed=seed)
            metrics = together.update_on(data)
            for k in range(count):
                single = apart.update_on(tf.nest.map_structure(lambda x, k=k: x[k : k + 1], data))
            assert metrics == pytest.approx(single, abs=1e-5)
        assert together.updates == apart.updates == 2 * count
        assert_same_arrays(arrays(together), arrays(apart), atol=1e-5)
        moved = arrays(together)['network/' + together.network_names[0] + '/0']
        assert not np.allclose(moved, arrays(make(name))['network/' + together.network_names[0] + '/0'])

    @pytest.mark.full(but='DQN')
    @pytest.mark.usefixtures('plain_graphs')
    @pytest.mark.parametrize('name', toys.marked(algorithms.NAMES))
    def test_acting_uses_the_weights_of_the_last_update(self, name):
        agent = make(name)
        obs = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
        stale = agent.forward(obs)
        agent.learn(environment(name), **learn_params(name))
        policy = getattr(agent, 'policy', None) or agent.networks[agent.network_names[0]]
        means = getattr(agent, 'means', lambda output: output)  # of distributions
        given = (obs, tf.zeros([5, 2])) if name == 'FQL' else (obs,)  # the noise that its policy maps to actions
        np.testing.assert_allclose(agent.forward(obs), means(policy(*given)), atol=1e-5)
        assert np.abs(agent.forward(obs) - stale).max() > 1e-4

    @pytest.mark.usefixtures('plain_graphs')
    @pytest.mark.parametrize('name', toys.kinds(OFF_POLICY, ('DQN', 'SAC')))
    def test_random_numbers_differ_between_updates(self, name):
        agent = make(name)
        before = agent.noise_seed.numpy()
        agent.update_on(batches(agent, 3))
        np.testing.assert_array_equal(agent.noise_seed.numpy() - before, [0, 6])

    @pytest.mark.full(but='ES-vector')
    @pytest.mark.usefixtures('plain_graphs')
    @pytest.mark.parametrize(
        ('name', 'kind'),
        [
            pytest.param(name, kind, marks=[] if name in kept else [pytest.mark.matrix])
            for kind, kept in (('vector', ('ES', 'PPO', 'TD3')), ('image 2-D', ('DQN', 'PPO')))
            for name in algorithms.NAMES
        ],
    )
    def test_no_retracing_after_warm_up(self, name, kind):
        space = toys.OBSERVATIONS[kind]
        schedule = {'learning_rate': Linear(1e-3, 1e-4)}
        scheduled = {key: Linear(0.5, 0.1) for key, param in CLASSES[name].declared().items() if param.scheduled}
        optimizers = [schedule] * len(CLASSES[name].optimizer_names)
        agent = make(name, space, optimizers_list=optimizers, **scheduled)
        env = environment(name, space)
        agent.learn(env, **learn_params(name, space))
        assert compiled(agent).traces == agent.phases
        agent.learn(env, **learn_params(name, space))
        agent.learn(env, 'test', test_episodes=2)
        for size in (1, 2, 5):
            agent.predict(np.stack([space.sample() for _ in range(size)]))
        assert compiled(agent).traces == agent.phases
        if kind == 'image 2-D':
            assert agent.forward.numpy is None
            assert set(agent.forward.graphs) == {1, 2, None}

    @pytest.mark.usefixtures('plain_graphs')
    @pytest.mark.parametrize('name', ['SAC', 'PPO'])
    def test_an_update_is_traced_once_where_observations_are_normalized(self, name, monkeypatch):
        """A variable that is made in a trace would have TensorFlow trace all of it again."""
        made, trace = [], PackedCall._compile

        def counted(self, *args):
            function = self._function
            self._function = lambda *x: made.append(self) or function(*x)
            try:
                return trace(self, *args)
            finally:
                self._function = function

        monkeypatch.setattr(PackedCall, '_compile', counted)
        space = toys.OBSERVATIONS['vector']
        agent = make(name, space, normalize_obs=True)
        agent.learn(environment(name, space), **learn_params(name, space))
        assert len(made) == compiled(agent).traces == 1

    @pytest.mark.usefixtures('plain_graphs')
    def test_no_retracing_where_copies_are_reset_in_a_step_of_their_own(self):
        """There the number of valid transitions differs from iteration to iteration."""
        space = ACTIONS['PPO']
        env = SyncVectorEnv([lambda: toys.AnySpaces(VECTOR, space)] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
        agent = make('PPO')
        result = agent.learn(env, **learn_params('PPO', horizon=7, batch_size=4, train_steps=100))
        assert result.steps >= 100 and compiled(agent).traces == 1


DIGESTS = """
import hashlib, json, sys, tempfile
from zoo import algorithms, build_env, call_default_params
from zoo.common.training import checkpoint

def digest(name, env_id, seed, steps, hidden):
    cls = getattr(algorithms, name)
    in_rollouts = cls.loop.experience == 'rollouts'
    env = build_env(env_id, 'classic_control', seed=seed, nenv=2 if in_rollouts else 1)
    alg_params, learn_params = call_default_params(env, 'classic_control', name, seed=seed)
    for spec in alg_params['net_list']:
        spec['hidden'] = hidden
    few = {'train_steps': steps, 'batch_size': 32}
    few |= {'horizon': 100, 'epochs': 2}
    few |= {'explore_steps': 100, 'update_every': 1, 'updates': None}
    learn_params |= {name: x for name, x in few.items() if name in learn_params}
    agent = cls(**alg_params)
    agent.learn(env, run_dir=False, **learn_params)
    with tempfile.TemporaryDirectory() as folder:
        arrays = checkpoint.read(agent.save(folder + '/saved')).arrays
    found = hashlib.sha256()
    for key in sorted(arrays):
        found.update(key.encode() + arrays[key].tobytes())
    return found.hexdigest()

seeds, names = json.loads(sys.argv[1])
discrete = {name: 'Discrete' in getattr(algorithms, name).acts_in for name in names}
runs = {name: 'CartPole-v1' if discrete[name] else 'Pendulum-v1' for name in names}
found = {seed: {name: digest(name, env_id, seed, 400, [16]) for name, env_id in runs.items()} for seed in seeds}
found[seeds[0]]['SAC in plain graphs'] = digest('SAC', 'Pendulum-v1', seeds[0], 200, [256, 256])
print(json.dumps(found))
"""


@pytest.mark.full
@pytest.mark.parametrize(
    'names',
    [
        ['ARS', 'PPO', 'SAC'],
        pytest.param(sorted({*algorithms.NAMES} - {'ARS', 'PPO', 'SAC'}), marks=pytest.mark.matrix),
    ],
    ids=['kinds', 'others'],
)
def test_same_seed_same_weights_in_two_processes(names):
    processes = [
        subprocess.Popen(
            [sys.executable, '-c', DIGESTS, json.dumps([seeds, names])],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {'PYTHONHASHSEED': hash_seed, 'TF_CPP_MIN_LOG_LEVEL': '3'},
        )
        for seeds, hash_seed in (([0, 1], '1'), ([0], '2'))
    ]
    first, second = (json.loads(process.communicate()[0]) for process in processes)
    assert first['0'] == second['0']
    assert first['0'].keys() > set(names)
    for name in names:
        assert first['0'][name] != first['1'][name], f'{name} pays no heed to its seed'


def further(name: str) -> dict[str, Any]:
    """Parameters that bring state of their own: statistics, schedules and counts of updates."""
    found: dict[str, Any] = {}
    for key, param in CLASSES[name].declared().items():
        if key.startswith('normalize_'):
            found[key] = True
        elif param.scheduled:
            found[key] = Linear(0.5, 0.1)
        elif param.kind == 'whole' and not param.optional:
            found[key] = 2 if key == 'drop' else 3  # of three quantiles
    return found


@pytest.mark.usefixtures('plain_graphs')
class TestTrainingOn:
    @pytest.mark.full(but='ES')
    @pytest.mark.parametrize('name', toys.marked(algorithms.NAMES))
    def test_after_save_and_load_as_if_uninterrupted(self, name, tmp_path):
        def trained(path: Path | None) -> Algorithm:
            agent = make(name, **further(name))
            agent.learn(environment(name, seed=1), seed=3, **learn_params(name, train_steps=53))
            if path is not None:
                agent.save(path, buffer=True)
                agent = zoo.load(path)
            agent.learn(environment(name, seed=2), **learn_params(name))
            return agent

        whole, resumed = trained(None), trained(tmp_path / 'saved')
        assert whole.steps == resumed.steps > 100
        assert_same_arrays(arrays(resumed), arrays(whole))
        if whole.replay is not None:
            for key, array in whole.replay.state().items():
                np.testing.assert_array_equal(resumed.replay.state()[key], array, err_msg=key)

    def test_without_the_buffer_it_starts_with_an_empty_one(self, tmp_path):
        agent = make('DQN')
        agent.learn(environment('DQN'), **learn_params('DQN'))
        loaded = zoo.load(agent.save(tmp_path / 'saved'))
        updates = loaded.updates
        loaded.learn(environment('DQN'), **learn_params('DQN', train_steps=15))
        assert loaded.replay.added == 15 and loaded.updates == updates  # fewer than explore_steps

    def test_a_buffer_is_filled_on(self):
        agent, env = make('DQN'), environment('DQN')
        agent.learn(env, **learn_params('DQN'))
        kept = agent.replay
        agent.learn(env, **learn_params('DQN'))
        assert agent.replay is kept and kept.added == 120

    def test_resume_without_a_checkpoint_of_an_interrupted_call_is_refused(self, tmp_path):
        agent = make('DQN')
        message = 'resume=True goes on with an interrupted training: load a checkpoint of one first'
        with pytest.raises(ValueError, match=message):
            agent.learn(environment('DQN'), resume=True)
        agent.learn(environment('DQN'), **learn_params('DQN'))
        ended = r"but this agent's has ended, after 60 steps in all: leave resume.*zoo\.resume\(run, train_steps=…\)"
        with pytest.raises(ValueError, match=ended):
            zoo.load(agent.save(tmp_path / 'whole')).learn(environment('DQN'), resume=True)


@pytest.mark.usefixtures('plain_graphs')
class TestSaved:
    @pytest.mark.parametrize('name', toys.marked(algorithms.NAMES))
    def test_hyper_parameters_come_back(self, name, tmp_path):
        known = {'gamma': 0.5} if 'gamma' in CLASSES[name].params() else {}
        agent = make(name, **known | further(name))
        loaded = zoo.load(agent.save(tmp_path / 'saved'))
        for key in agent.params():
            if key in ('observation_space', 'action_space'):
                assert getattr(loaded, key) == getattr(agent, key)
            elif key not in ('net_list', 'optimizers_list'):
                assert getattr(loaded, key) == getattr(agent, key), key
        assert loaded.config() == agent.config()

    @pytest.mark.full(but='ES')
    @pytest.mark.parametrize('name', toys.kinds(algorithms.NAMES, ('DQN', 'ES', 'PPO')))
    def test_statistics_counters_and_random_state_come_back(self, name, tmp_path):
        agent = make(name, **further(name))
        agent.learn(environment(name), **learn_params(name))
        loaded = zoo.load(agent.save(tmp_path / 'saved'))
        assert_same_arrays(arrays(loaded), arrays(agent))
        labels = {key.split('/')[1] for key in arrays(agent) if key.startswith('statistics/')}
        assert labels == ({'obs', 'reward'} if 'normalize_reward' in agent.params() else {'obs'})
        assert arrays(agent)['statistics/obs//count'] > 0
        assert (loaded.steps, loaded.updates, loaded.progress) == (agent.steps, agent.updates, agent.progress)
        assert loaded.rng.random() == agent.rng.random()

    def test_schedules_in_optimizers_come_back(self, tmp_path):
        agent = make('PPO', optimizers_list=[{'learning_rate': Linear(0.1, 0.0)}])
        loaded = zoo.load(agent.save(tmp_path / 'saved'))
        assert loaded.optimizers['all'].schedule == Linear(0.1, 0.0)

    def test_saving_does_not_change_the_agent(self, tmp_path):
        agent = make('SAC')
        agent.learn(environment('SAC'), **learn_params('SAC'))
        before, rng = copy.deepcopy(arrays(agent)), copy.deepcopy(agent.rng)
        agent.save(tmp_path / 'saved', buffer=True)
        assert_same_arrays(arrays(agent), before)
        assert agent.rng.random() == rng.random()

    def test_arrays_have_names_that_say_what_they_are(self, tmp_path):
        saved = checkpoint.read(make('SAC').save(tmp_path / 'saved'))
        assert {name.split('/')[0] for name in saved.arrays} == {
            'network',
            'target',
            'optimizer',
            'log_alpha',
            'noise_seed',
        }
        assert saved.config['algorithm'] == 'SAC'
