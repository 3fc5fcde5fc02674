"""The tables of default hyper-parameters: every entry is taken, and the two dicts are the caller's to edit."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from zoo import algorithms, build_env, call_default_params
from zoo.common.env_wrappers import TYPES
from zoo.common.envs.kinds import registered
from zoo.common.maths.optimizers import Optimizer
from zoo.common.networks.spec import SPEC_DEFAULTS
from zoo.common.schedules import Linear
from zoo.default_params import call_default_params as home
from zoo.default_params import default_nenv

#: Keys of a table that are not parameters.
SPECIAL = {'network', 'networks', 'optimizer', 'optimizers', 'recurrent', 'nenv', 'rollout_size'}

TABLES = {name: importlib.import_module(f'zoo.default_params.{name.lower()}') for name in algorithms.NAMES}

#: Those whose default networks can be made of TensorLayer's layers.
OF_TENSORLAYER = [
    name
    for name, table in TABLES.items()
    if not any('normalize' in x for x in (table.COMMON['network'], *table.COMMON.get('networks', {}).values()))
]

#: The others are subclasses of one of these, which makes their networks.
ROOTS = [
    name
    for name in algorithms.NAMES
    if name == 'PPO'
    or getattr(algorithms, name).__mro__[1].__name__ not in ('ActorCritic', 'Adversarial', *algorithms.NAMES)
]

#: An environment that each algorithm can act in.
ENV_IDS = {
    name: 'CartPole-v1' if 'Discrete' in getattr(algorithms, name).acts_in else 'Pendulum-v1'
    for name in algorithms.NAMES
}

#: An environment of each type that both kinds of action can be found in, for what holds for a type as a whole.
OF_TYPE = {
    'classic_control': {'Discrete': 'CartPole-v1', 'Box': 'Pendulum-v1'},
    'box2d': {'Discrete': 'LunarLander-v3', 'Box': 'LunarLanderContinuous-v3'},
    'mujoco': {'Box': 'Hopper-v5'},
    'atari': {'Discrete': 'PongNoFrameskip-v4'},
    'robotics': {'Box': 'FetchReach-v4'},
    'dm_control': {'Box': 'cartpole-swingup'},
    'envpool': {'Discrete': 'CartPole-v1', 'Box': 'CheetahRun-v1'},
    'compiled': {'Discrete': 'CartPole-v1', 'Box': 'Pendulum-v1'},
    'gymnax': {'Discrete': 'CartPole-v1', 'Box': 'Pendulum-v1'},
    'brax': {'Box': 'fast'},
    'jumanji': {'Discrete': 'Game2048-v1'},
    'mjx': {'Box': 'PendulumSwingup'},
    'gymnasium': {'Discrete': 'CartPole-v1', 'Box': 'Pendulum-v1'},
}
NEEDS = {
    'box2d': 'Box2D',
    'mujoco': 'mujoco',
    'atari': 'ale_py',
    'robotics': 'gymnasium_robotics',
    'dm_control': 'dm_control',
    'envpool': 'envpool',
    'gymnax': 'gymnax',
    'brax': 'brax',
    'jumanji': 'jumanji',
    'mjx': 'mujoco_playground',
}


def type_of(env_id: str) -> str:
    """The type under which a registered environment is built."""
    if env_id.startswith('ALE/') or 'NoFrameskip' in env_id:
        return 'atari'  # which Gymnasium knows only when ALE has been imported
    if env_id.startswith('Fetch'):
        return 'robotics'  # likewise
    if env_id.endswith('-MinAtar'):
        return 'gymnax'
    entry = str(gymnasium.spec(env_id).entry_point)
    return next((name for name in ('classic_control', 'box2d', 'mujoco') if f'.{name}' in entry), 'gymnasium')


def build(env_id: str, env_type: str, **kwargs: Any) -> Any:
    """The environment, or a skip where its package is not installed."""
    package = NEEDS.get(env_type)
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f'{package} is not installed')
    return build_env(env_id, env_type, **kwargs)


TUNED = [(name, env_id) for name, table in TABLES.items() for env_id in table.TUNED]
#: Where a table says nothing of a type of environment, another type stands for it.
TYPED = [
    pytest.param(
        name,
        env_type,
        kind,
        marks=[]
        if name in ('DQN', 'PPO', 'SAC') or env_type in ('classic_control', *TABLES[name].TYPES)
        else pytest.mark.matrix,
    )
    for name in algorithms.NAMES
    for env_type, kinds in OF_TYPE.items()
    for kind in kinds
    if kind in getattr(algorithms, name).acts_in
]


def check(name: str, env: Any, env_type: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two dicts have exactly what constructor and ``learn`` take, and both take it."""
    alg_params, learn_params = call_default_params(env, env_type, name)
    cls = getattr(algorithms, name)
    assert alg_params.keys() == cls.params().keys()
    assert learn_params.keys() == cls.learn_params().keys() - {'resume'}
    assert len(alg_params['net_list']) == len(cls.network_names)
    assert len(alg_params['optimizers_list']) == len(cls.optimizer_names)
    agent = cls(**alg_params)
    assert agent.learn(env, 'test', **learn_params | {'test_episodes': 1}).lengths[0] > 0
    return alg_params, learn_params


@pytest.mark.full(but='ARS-CartPole-v1')
@pytest.mark.parametrize(('name', 'env_id'), TUNED)
def test_every_tuned_entry_is_taken_and_applied(name, env_id):
    env_type = type_of(env_id)
    env = build(env_id, env_type, max_episode_steps=3)
    alg_params, learn_params = check(name, env, env_type)
    table = TABLES[name]
    for key, value in table.TUNED[env_id].items():
        if key == 'network':
            assert all(spec[k] == v for spec in alg_params['net_list'] for k, v in value.items())
        elif key == 'networks':
            for network, spec in zip(getattr(algorithms, name).network_names, alg_params['net_list'], strict=True):
                assert all(spec[k] == v for k, v in value.get(network.rstrip('_12'), {}).items())
        elif key == 'optimizers':
            for optimizer, spec in zip(
                getattr(algorithms, name).optimizer_names, alg_params['optimizers_list'], strict=True
            ):
                assert all(spec[k] == v for k, v in value.get(optimizer, {}).items())
        elif key == 'optimizer':  # an optimizer that is named keeps its own
            own = table.COMMON.get('optimizers', {}) | table.TUNED[env_id].get('optimizers', {})
            for optimizer, spec in zip(
                getattr(algorithms, name).optimizer_names, alg_params['optimizers_list'], strict=True
            ):
                assert all(spec[k] == own.get(optimizer, {}).get(k, v) for k, v in value.items())
        elif key == 'nenv':
            assert default_nenv(name, env_type, env_id) == value
        elif key == 'rollout_size':
            assert learn_params['horizon'] == value
        elif key == 'recurrent':
            given, learn = call_default_params(env, env_type, name, recurrent='lstm')
            others = value.keys() - SPECIAL
            assert others and {k: (given | learn)[k] for k in others} == {k: value[k] for k in others}
            assert given['net_list'][0]['recurrent'] == 'lstm'
            assert 'rollout_size' not in value or learn['horizon'] == value['rollout_size']
        else:
            assert (alg_params | learn_params)[key] == value
    # What the entry does not name comes from the type, and what that does not name from what is common to all.
    inherited = {**table.COMMON, **table.TYPES.get(env_type, {})}
    for key in inherited.keys() - table.TUNED[env_id].keys() - SPECIAL:
        assert (alg_params | learn_params)[key] == inherited[key]


def test_other_numbers_of_copies_than_the_defaults_are_meant_for_are_said(caplog):
    assert default_nenv('A2C', 'gymnasium', 'Mine-v0') == 8 and default_nenv('PPO', 'mujoco', 'Hopper-v5') == 1
    for nenv, words in ((1, 'here is one.'), (2, 'here are 2.'), (8, None)):
        caplog.clear()
        env = build_env('CartPole-v1', 'classic_control', nenv=nenv)
        call_default_params(env, alg='A2C')
        call_default_params(env, alg='PPO')  # whose iteration is of as many steps, whatever the number
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == (words is not None)
        if words is not None:
            assert said[0].startswith("A2C's default settings for CartPole-v1 are meant for 8 copies")
            assert said[0].endswith(words)


@pytest.mark.full(but='ARS-classic_control-Discrete')
@pytest.mark.parametrize(('name', 'env_type', 'kind'), TYPED)
def test_every_type_of_environment_is_taken(name, env_type, kind):
    env = build(OF_TYPE[env_type][kind], env_type, max_episode_steps=3)
    check(name, env, env_type)


def test_every_type_of_environment_is_covered():
    assert OF_TYPE.keys() == TYPES.keys() - {'rlbench'}  # which has its own test, over a stand-in
    for table in TABLES.values():
        assert table.TYPES.keys() <= TYPES.keys()


@pytest.mark.parametrize(
    ('env_id', 'like', 'key'),
    [
        ('Pong-v5', 'atari', 'entropy_coef'),
        ('HalfCheetah-v4', 'mujoco', 'normalize_obs'),
        ('CheetahRun-v1', 'dm_control', 'normalize_obs'),
        ('FetchReach-v4', 'robotics', 'normalize_obs'),
    ],
)
def test_a_task_of_envpool_gets_the_defaults_of_the_type_it_is_like(env_id, like, key):
    pytest.importorskip('envpool')
    env = build_env(env_id, 'envpool', nenv=2)
    found = call_default_params(env, 'envpool', 'PPO')
    assert (found[0] | found[1])[key] == TABLES['PPO'].TYPES[like][key]
    assert str(found) == str(call_default_params(env, like, 'PPO'))
    assert str(found) == str(call_default_params(env, alg='PPO'))


def test_the_defaults_of_another_type_are_refused():
    env = build_env('CartPole-v1', 'classic_control')
    with pytest.raises(ValueError, match="of type 'classic_control', and the defaults of 'atari' do not belong to it"):
        call_default_params(env, 'atari', 'DQN')


@pytest.mark.parametrize('alg', ['PPO', 'A2C', 'SAC', 'TD3'])
def test_a_name_gets_the_defaults_of_its_type_whether_the_type_is_given_or_not(alg):
    pytest.importorskip('mujoco')
    found = call_default_params(build_env('HumanoidStandup-v5'), alg=alg)
    given = call_default_params(build_env('HumanoidStandup-v5', 'mujoco'), alg=alg)
    assert str(found) == str(given)
    wrapped = gymnasium.wrappers.TimeAwareObservation(build_env('HumanoidStandup-v5'))
    assert call_default_params(wrapped, alg=alg)[0]['normalize_obs'] == found[0]['normalize_obs']
    assert call_default_params(build_env('HumanoidStandup-v5'), alg='PPO')[0]['normalize_obs']


def test_a_task_of_envpool_with_a_name_in_the_tables_is_tuned():
    pytest.importorskip('envpool')
    alg_params, _ = call_default_params(build_env('CartPole-v1', 'envpool', nenv=2), alg='PPO')
    assert alg_params['gae_lambda'] == TABLES['PPO'].TUNED['CartPole-v1']['gae_lambda']
    assert default_nenv('A2C', 'envpool', 'Pong-v5') == TABLES['A2C'].TYPES['atari']['nenv']


@pytest.mark.parametrize('name', algorithms.NAMES)
def test_tables_are_plain_data(name):
    own = set(getattr(algorithms, name).params()) | set(getattr(algorithms, name).learn_params())
    for level in (TABLES[name].COMMON, *TABLES[name].TYPES.values(), *TABLES[name].TUNED.values()):
        assert level.keys() <= own | SPECIAL
        assert level.get('optimizers', {}).keys() <= set(getattr(algorithms, name).optimizer_names)
        assert level.get('networks', {}).keys() <= {x.rstrip('_12') for x in getattr(algorithms, name).network_names}
        for spec in (level.get('network', {}), *level.get('networks', {}).values()):
            assert spec.keys() <= SPEC_DEFAULTS.keys()
        for key, value in level.items():
            assert isinstance(value, int | float | str | dict | Linear), key


@pytest.mark.parametrize('name', algorithms.NAMES)
def test_tables_say_all_that_the_default_network_says(name):
    """Else a table would say less than the spec that an agent without ``net_list`` has."""
    assert getattr(algorithms, name).default_network.keys() <= TABLES[name].COMMON['network'].keys()


@pytest.mark.parametrize('name', algorithms.NAMES)
def test_ids_that_are_tuned_exist(name):
    for env_id in TABLES[name].TUNED:
        env_type = type_of(env_id)
        if env_type in NEEDS and importlib.util.find_spec(NEEDS[env_type]) is None:
            continue
        registered.register(env_type)
        assert gymnasium.spec(env_id).id == env_id
        assert env_type in TYPES


class TestWhatDependsOnTheEnvironment:
    @pytest.mark.parametrize('env_id', ['CartPole-v1', 'Acrobot-v1'])
    @pytest.mark.parametrize('nenv', [1, 2, 4, 8, 16])
    def test_a_rollout_has_the_same_size_whatever_the_number_of_copies(self, env_id, nenv):
        env = build_env(env_id, 'classic_control', nenv=nenv)
        _, learn_params = call_default_params(env, 'classic_control', 'PPO')
        assert learn_params['horizon'] * nenv == TABLES['PPO'].TUNED[env_id]['rollout_size']

    def test_copies_get_the_tuned_values_too(self):
        env = build_env('CartPole-v1', 'classic_control', nenv=2)
        alg_params, _ = call_default_params(env, 'classic_control', 'PPO')
        assert alg_params['gae_lambda'] == 0.8

    def test_more_copies_than_steps_take_one_step_each(self):
        env = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make('CartPole-v1')] * 300)
        env.spec = gymnasium.spec('CartPole-v1')
        assert call_default_params(env, 'classic_control', 'PPO')[1]['horizon'] == 1

    def test_an_unknown_environment_gets_what_is_common(self):
        class Own(gymnasium.Env):
            observation_space, action_space = Box(-1.0, 1.0, (3,)), Box(-1.0, 1.0, (2,))

        alg_params, learn_params = call_default_params(Own(), 'gymnasium', 'SAC')
        common = TABLES['SAC'].COMMON
        assert learn_params['explore_steps'] == common['explore_steps']
        assert alg_params['net_list'][0]['hidden'] == common['network']['hidden']
        assert alg_params['gamma'] == 0.99

    @pytest.mark.parametrize(
        ('space', 'expected'),
        [
            (Box(0, 255, (12, 12, 3), np.uint8), {'hidden': [], 'activation': 'relu'}),
            (Dict(a=Box(0, 255, (12, 12, 3), np.uint8), b=Discrete(2)), {'hidden': [256], 'activation': 'relu'}),
            (Box(0.0, 1.0, (7,)), {'hidden': [64, 64], 'activation': 'tanh'}),
        ],
        ids=['image', 'image and more', 'vector'],
    )
    def test_images_get_a_convolutional_network(self, space, expected):
        class Own(gymnasium.Env):
            observation_space, action_space = space, Discrete(2)

        alg_params, _ = call_default_params(Own(), 'gymnasium', 'PPO')
        actor, critic = alg_params['net_list']
        assert {key: actor[key] for key in expected} == expected
        if expected['activation'] == 'relu':
            assert critic == 'actor'  # images are encoded once for both
        else:
            assert {key: critic[key] for key in expected} == expected

    def test_images_get_a_replay_buffer_that_fits_into_memory(self):
        class Own(gymnasium.Env):
            observation_space, action_space = Box(0, 255, (12, 12, 3), np.uint8), Box(-1.0, 1.0, (2,))

        assert call_default_params(Own(), 'gymnasium', 'SAC')[1]['buffer_size'] == 100_000

    @pytest.mark.parametrize(
        ('name', 'env_id'), [('DQN', 'Pendulum-v1'), ('TQC', 'CartPole-v1'), ('TD3', 'CartPole-v1')]
    )
    def test_an_algorithm_that_cannot_act_there_is_refused(self, name, env_id):
        with pytest.raises(ValueError, match=f'{name} cannot act in .*; use .*PPO'):
            call_default_params(build_env(env_id, 'classic_control'), 'classic_control', name)


def test_networks_that_differ_from_the_others():
    alg_params, _ = call_default_params(build_env('Pendulum-v1', 'classic_control'), alg='CrossQ')
    assert [spec['hidden'] for spec in alg_params['net_list']] == [[256, 256], [256, 256], [256, 256]]

    class Own(gymnasium.Env):
        observation_space, action_space = Box(-1.0, 1.0, (3,)), Box(-1.0, 1.0, (2,))

    alg_params, _ = call_default_params(Own(), 'gymnasium', 'CrossQ')
    assert [spec['hidden'] for spec in alg_params['net_list']] == [[256, 256], [2048, 2048], [2048, 2048]]
    assert {spec['normalize'] for spec in alg_params['net_list']} == {'batch_renorm'}
    alg_params['net_list'][1]['hidden'].append(1)
    assert alg_params['net_list'][2]['hidden'] == [2048, 2048]


class TestTheDictsAreTheCallers:
    @pytest.mark.parametrize('name', algorithms.NAMES)
    def test_editing_them_does_not_change_the_next(self, name):
        env = build_env(ENV_IDS[name], 'classic_control')
        before = repr([table.__dict__[level] for table in TABLES.values() for level in ('COMMON', 'TYPES', 'TUNED')])
        first, second = (call_default_params(env, 'classic_control', name) for _ in range(2))
        assert first == second
        alg_params, learn_params = first
        for spec in alg_params['net_list']:
            spec['hidden'].append(1)
            spec['activation'] = 'elu'
        for spec in alg_params['optimizers_list']:
            spec['learning_rate'] = 7.0
        alg_params['gamma'] = learn_params['train_steps'] = -1
        assert call_default_params(env, 'classic_control', name) == second
        assert (
            repr([table.__dict__[level] for table in TABLES.values() for level in ('COMMON', 'TYPES', 'TUNED')])
            == before
        )

    def test_editing_one_network_does_not_change_another(self):
        alg_params, _ = call_default_params(build_env('Pendulum-v1', 'classic_control'), 'classic_control', 'SAC')
        alg_params['net_list'][0]['hidden'].append(1)
        alg_params['optimizers_list'][0]['learning_rate'] = 7.0
        assert alg_params['net_list'][1]['hidden'] == [256, 256]
        assert alg_params['optimizers_list'][1]['learning_rate'] == 1e-3

    @pytest.mark.full
    def test_learning_does_not_change_them(self):
        env = build_env('CartPole-v1', 'classic_control')
        alg_params, learn_params = call_default_params(env, 'classic_control', 'PPO')
        kept = repr(alg_params), repr(learn_params)
        learn_params['train_steps'] = 256
        algorithms.PPO(**alg_params).learn(env, run_dir=False, **learn_params)
        assert (repr(alg_params), repr(learn_params | {'train_steps': 100_000})) == kept

    def test_optimizers_take_their_specs(self):
        for table in TABLES.values():
            for level in (table.COMMON, *table.TYPES.values(), *table.TUNED.values()):
                if 'optimizer' in level:
                    Optimizer({**table.COMMON['optimizer'], **level['optimizer']}, [], 'optimizers_list[0] (all)')

    def test_the_import_of_listing_1_is_the_same_function(self):
        assert call_default_params is home


class TestSeeds:
    def weights(self, name: str, seed: int | None, layers: str = 'keras') -> dict[str, list[np.ndarray]]:
        env = build_env(ENV_IDS[name], 'classic_control')
        alg_params, learn_params = call_default_params(env, 'classic_control', name, seed=seed, layers=layers)
        assert learn_params.get('seed') == seed and ('seed' in learn_params) is (seed is not None)
        agent = getattr(algorithms, name)(**alg_params)
        return {key: [v.numpy() for v in network.variables] for key, network in agent.networks.items()}

    @pytest.mark.full(but='ES-keras')
    @pytest.mark.parametrize(
        ('name', 'layers'),
        [
            pytest.param(x, layers, marks=[] if layers == 'keras' or x in ('PPO', 'TD3') else pytest.mark.matrix)
            for x in ROOTS
            for layers in ('keras', 'tensorlayer')
            if (layers == 'keras' or x in OF_TENSORLAYER) and x != 'ARS'  # whose linear policy begins at zero
        ],
    )
    def test_a_seed_fixes_the_initial_weights(self, name, layers):
        if layers == 'tensorlayer':
            pytest.importorskip('tensorlayer')
        first, again, other = (self.weights(name, seed, layers) for seed in (0, 0, 1))
        for key in first:
            assert all(np.array_equal(a, b) for a, b in zip(first[key], again[key], strict=True))
            assert any(not np.array_equal(a, b) for a, b in zip(first[key], other[key], strict=True))

    def test_networks_of_one_agent_start_apart(self):
        weights = self.weights('SAC', 0)
        assert not np.array_equal(weights['critic_1'][0], weights['critic_2'][0])

    def test_no_seed_is_another_start_each_time(self):
        assert not np.array_equal(self.weights('DQN', None)['q'][0], self.weights('DQN', None)['q'][0])


@pytest.mark.parametrize('name', [x for x in algorithms.NAMES if x not in OF_TENSORLAYER])
def test_what_tensorlayer_lacks_is_refused(name):
    with pytest.raises(ValueError, match=rf"^call_default_params: {name}: .* give layers='keras'\.$"):
        call_default_params(build_env(ENV_IDS[name], 'classic_control'), alg=name, layers='tensorlayer')


@pytest.mark.full
@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize(
    'name',
    [
        pytest.param(x, marks=[] if x in ('DQN', 'PPO', 'SAC') else pytest.mark.matrix)
        for x in OF_TENSORLAYER
        if x in ROOTS and not getattr(algorithms, x).loop.needs_data  # there is no dataset here
    ],
)
def test_networks_of_tensorlayer(name, tmp_path):
    tensorlayer = pytest.importorskip('tensorlayer')
    env = build_env(ENV_IDS[name], 'classic_control')
    alg_params, learn_params = call_default_params(env, 'classic_control', name, seed=0, layers='tensorlayer')
    for spec in alg_params['net_list']:
        spec['hidden'] = [8]
    agent = getattr(algorithms, name)(**alg_params)
    for network in agent.networks.values():
        assert isinstance(network.torso, tensorlayer.models.Model)
    few = {'train_steps': 60, 'batch_size': 8, 'horizon': 30, 'epochs': 1}
    few |= {'explore_steps': 40, 'update_every': 1, 'updates': None}
    learn_params |= {name: x for name, x in few.items() if name in learn_params}
    losses = agent.learn(env, run_dir=False, **learn_params).losses
    assert all(np.isfinite(value) for value in losses.values())
    loaded = type(agent).load(agent.save(tmp_path / 'saved'))
    obs = env.observation_space.sample()
    np.testing.assert_array_equal(loaded.predict(obs), agent.predict(obs))
