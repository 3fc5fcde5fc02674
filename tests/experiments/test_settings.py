"""What differs from the defaults in a run."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import zoo
from zoo import algorithms
from zoo.common.schedules import Linear
from zoo.common.tools.files import from_jsonable, jsonable
from zoo.common.utils import call_default_params
from zoo.experiments.settings import differences

#: A training that only explores, so that nothing is compiled.
FEW: dict[str, Any] = {'train_steps': 20, 'explore_steps': 1000, 'verbose': 0, 'net': '8'}
NONE = inspect.Parameter.empty


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)


def changed(alg: str, env_id: Any, **params: Any) -> dict[str, tuple[Any, Any]]:
    return zoo.open_run(zoo.train(alg, env_id, run_dir='here', **params).result.run_dir).differences


def test_what_was_asked_for_and_no_more():
    given = FEW | {'gamma': 0.9, 'learning_rate': Linear(0.1), 'nenv': 2, 'env_params': {'max_episode_steps': 50}}
    assert changed('DQN', 'CartPole-v1', **given, log_every=7) == {
        'gamma': (0.9, 0.99),
        'train_steps': (20, 50_000),
        'log_every': (7, None),
        'net_list.hidden': ([8], [128, 128]),
        'optimizers_list.learning_rate': (Linear(0.1), call_default('DQN')['learning_rate']),
        'nenv': (2, 1),
        'max_episode_steps': (50, NONE),
    }


def call_default(alg: str) -> dict[str, Any]:
    alg_params, learn_params = call_default_params(zoo.build_env('CartPole-v1'), None, alg)
    return learn_params | {'learning_rate': alg_params['optimizers_list'][0]['learning_rate']}


def test_one_of_several_networks_has_its_number():
    env = zoo.build_env('Pendulum-v1')
    alg_params, learn_params = call_default_params(env, None, 'TD3')
    hidden = alg_params['net_list'][0]['hidden']
    alg_params['net_list'][1]['hidden'] = [8]
    agent = algorithms.TD3(**alg_params)
    result = agent.learn(env, **learn_params | {'train_steps': 10, 'verbose': 0, 'run_dir': 'here'})
    found = zoo.open_run(result.run_dir).differences
    assert found == {'net_list[1].hidden': ([8], hidden), 'train_steps': (10, learn_params['train_steps'])}


@pytest.mark.full
def test_layers_and_recurrence_are_arguments_and_bring_their_own_defaults():
    found = changed('PPO', 'CartPole-v1', recurrent='lstm', dtype='mixed_bfloat16', train_steps=8, horizon=8, verbose=0)
    assert found.pop('train_steps') and found.pop('horizon')
    assert found == {'recurrent': ('lstm', None), 'dtype': ('mixed_bfloat16', 'float32')}


class Mine(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample() * 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample() * 0, 1.0, True, False, {}


def test_an_environment_of_the_user_s_own_has_defaults_too():
    """Also for several copies, which change the default horizon."""
    found = changed('PPO', Mine, nenv=4, train_steps=4, batch_size=4, epochs=1, horizon=1, verbose=0)
    alg_params, learn_params = call_default_params(zoo.build_env(Mine, nenv=4), None, 'PPO')
    assert {name: pair[1] for name, pair in found.items()} == {
        'nenv': 1,
        **{name: learn_params[name] for name in ('train_steps', 'horizon', 'epochs', 'batch_size')},
    }


def test_without_defaults_it_says_why():
    with pytest.raises(ValueError, match='zoo has no defaults for Mine, an algorithm of your own'):
        differences({'algorithm': 'Mine', 'environment': 'CartPole-v1', 'env_type': 'classic_control'})
    with pytest.raises(ValueError, match='build_env did not make its environment'):
        differences({'algorithm': 'PPO', 'environment': 'CartPole-v1', 'env_type': None})


@pytest.mark.full(but='A2C-CartPole-v1-8')
@pytest.mark.parametrize(
    ('alg', 'env_id', 'nenv'),
    [
        *((alg, 'CartPole-v1', nenv) for nenv in (1, 8) for alg in algorithms.NAMES),
        *((alg, 'Pendulum-v1', 1) for alg in algorithms.NAMES),
    ],
)
def test_defaults_do_not_differ_from_themselves(alg: str, env_id: str, nenv: int):
    env = zoo.build_env(env_id, nenv=nenv)
    try:
        alg_params, learn_params = call_default_params(env, None, alg, seed=0)
    except ValueError:
        return  # it cannot act there
    del learn_params['seed']
    made_with = {'env_id': env_id, 'env_type': 'classic_control', 'nenv': nenv, 'vectorized': False}
    config = getattr(algorithms, alg)(**alg_params).config() | {'learn_params': learn_params, 'made_with': made_with}
    config |= {'environment': env_id, 'env_type': 'classic_control'}
    config = from_jsonable(json.loads(json.dumps(jsonable(config))))
    assert differences(config).keys() <= {'nenv'}


def test_the_tests_of_a_run(tmp_path: Path):
    run = zoo.train(
        'DQN', 'CartPole-v1', evaluate=zoo.callbacks.KeepBest(10, episodes=2, share=None), **FEW
    ).result.run_dir
    found = zoo.open_run(run).tests
    assert list(found) == [10, 20] and [len(returns) for returns in found.values()] == [2, 2]


def test_a_network_that_was_made_in_python_is_one_setting(tmp_path: Path):
    import keras

    env = zoo.build_env('CartPole-v1')
    agent = zoo.algorithms.DQN(
        env.observation_space, env.action_space, net_list=[keras.Sequential([keras.layers.Dense(4, 'relu')])]
    )
    learn = {'train_steps': 2, 'explore_steps': 2, 'verbose': 0}
    agent.learn(env, 'train', run_dir=tmp_path / 'run', **learn)
    assert zoo.open_run(tmp_path / 'run').differences['net_list[0]'][0] == 'Sequential'
