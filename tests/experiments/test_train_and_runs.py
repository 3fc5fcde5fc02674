"""``zoo.train``, ``zoo.resume`` and the run directories that they leave."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import zoo
from zoo import algorithms
from zoo.algorithms.dqn import EPSILON
from zoo.cli import main
from zoo.common.env_wrappers import find_env_type
from zoo.common.envs.about import about
from zoo.common.schedules import Linear
from zoo.experiments import train

#: Enough for an update, in a second or two.
FEW: dict[str, Any] = {
    'train_steps': 64,
    'horizon': 32,
    'batch_size': 16,
    'epochs': 1,
    'net': '8',
    'verbose': 0,
}


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)


def plain(training: Any) -> None:
    """A callback."""


class Interrupt:
    """A callback that does what Ctrl-C does, after so many steps."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __call__(self, training: Any) -> None:
        if training.steps >= self.at:
            raise KeyboardInterrupt


@pytest.mark.full
def test_one_call_is_the_four_lines():
    agent, result = zoo.train('PPO', 'CartPole-v1', seed=3, nenv=2, gamma=0.9, learning_rate=1e-2, **FEW)
    assert (agent.gamma, agent.net_list[0]['hidden'], agent.optimizers_list[0]['learning_rate']) == (0.9, [8], 1e-2)
    assert result.steps == 64 and result.run_dir.parent == Path('runs')

    env = zoo.build_env('CartPole-v1', 'classic_control', nenv=2, seed=3)
    alg_params, learn_params = zoo.call_default_params(env, 'classic_control', 'PPO', seed=3)
    for entry in alg_params['net_list']:
        entry['hidden'] = [8]
    alg_params['optimizers_list'][0]['learning_rate'] = 1e-2
    learn_params |= {name: value for name, value in FEW.items() if name != 'net'}
    by_hand = algorithms.PPO(**alg_params | {'gamma': 0.9})
    assert by_hand.learn(env, 'train', **learn_params).returns == result.returns
    for own, other in zip(agent.trainable_variables, by_hand.trainable_variables, strict=True):
        np.testing.assert_array_equal(own.numpy(), other.numpy())


def test_curves_are_named_by_what_their_runs_differ_in():
    few = dict(net=[8], train_steps=300, explore_steps=1000, verbose=0)  # nothing is updated or compiled
    for name, given in {'a': {}, 'b': {'seed': 1, 'log_every': 100}, 'c': {'gamma': 0.5}}.items():
        zoo.train('DQN', 'CartPole-v1', run_dir=name, **given, **few)
    alike, apart = zoo.plot_runs(['a', 'b']), zoo.plot_runs(['a', 'b', 'c'])
    labels = [[text.get_text() for text in figure.axes[0].get_legend().get_texts()] for figure in (alike, apart)]
    assert labels == [['DQN (2 runs)'], ['DQN, gamma=0.99 (2 runs)', 'DQN, gamma=0.5']]


def test_curves_of_other_rewards_and_other_beginnings_are_apart():
    few = dict(net=[8], train_steps=300, explore_steps=1000, verbose=0)  # nothing is updated or compiled
    shaped = {'env_params': {'reward_shaping': lambda reward: 2.0 * reward}}
    for name, given in {'a': {}, 'b': shaped, 'c': {'start_from': 'a', 'net': None}}.items():
        zoo.train('DQN', 'CartPole-v1', run_dir=Path('runs') / name, **few | given)
    legend = zoo.plot_runs(['runs/a', 'runs/b', 'runs/c']).axes[0].get_legend()
    first, second, third = (text.get_text() for text in legend.get_texts())
    assert first == 'DQN'
    assert 'made_by=CartPole-v1 ' in second and 'start_from=a' in third.replace('runs/', '')


@pytest.mark.full
def test_copies_are_those_that_the_defaults_are_meant_for(caplog):
    few = dict(net=[8], train_steps=31, run_dir=False, verbose=0)
    for given, steps in (({}, 40), ({'nenv': 3}, 45)):  # iterations of five steps of each copy
        assert zoo.train('A2C', 'CartPole-v1', **given, **few).result.steps == steps
    assert '8 copies' in caplog.text and 'here are 3' in caplog.text
    env = zoo.build_env('CartPole-v1', 'classic_control')  # made by the caller, with the copies that it has
    assert zoo.train('A2C', env, **few).result.steps == 35 and env.observation_space.shape == (4,)


@pytest.mark.parametrize(
    ('alg', 'given', 'epsilon', 'said'),
    [
        ('DQN', {'noisy': True}, 0.0, ''),
        ('DQN', {'noisy': True, 'epsilon': 0.1}, 0.1, ''),
        ('Rainbow', {'noisy': True}, Linear(1.0, 0.01, until=0.1), ''),
        ('Rainbow', {'noisy': False}, EPSILON, ''),
        ('Rainbow', {'noisy': False, 'epsilon': 0.0}, 0.0, 'epsilon=0 without noisy=True never explores'),
    ],
)
def test_exploration_is_that_of_the_layers(alg: str, given: dict[str, Any], epsilon: Any, said: str, caplog):
    """The table's ε is for layers as the table has them."""
    agent, _ = zoo.train(alg, 'CartPole-v1', net='8', train_steps=2, verbose=0, run_dir=False, **given)
    assert agent.epsilon == epsilon
    assert said in caplog.text and ('explores' in caplog.text) == bool(said)


def test_a_run_can_be_read_loaded_and_played_again():
    agent, result = zoo.train('PPO', 'CartPole-v1', env_params={'max_episode_steps': 7}, nenv=2, **FEW)
    (run,) = zoo.list_runs()
    assert zoo.open_run('last') == zoo.open_run(run.name) == zoo.open_run(result.run_dir) == run
    assert (run.algorithm, run.environment, run.seed, run.train_steps, run.steps) == ('PPO', 'CartPole-v1', 0, 64, 64)
    assert run.last('speed/steps_per_second') > 0 and run.last('no/such') is None
    assert run.best is None and len(run.checkpoints) == 1
    env = run.build_env(nenv=1)
    played = run.load().learn(env, 'test', test_episodes=3)
    assert played.lengths == [7, 7, 7] and env.spec.max_episode_steps == 7
    with pytest.raises(ValueError, match='has no best agent: tests keep one, in trainings of 2,000 steps'):
        run.load(best=True)
    with pytest.raises(ValueError, match=f'{run.name} has no best agent'):
        zoo.open_run(f'{run.name}/best')
    with pytest.raises(ValueError, match=f"unknown run 'nosuch': the newest is '{run.name}'. zoo.list_runs.. has all"):
        zoo.open_run('nosuch')


def test_what_is_noted_of_an_environment():
    env = zoo.build_env('CartPole-v1', 'classic_control', nenv=2, max_episode_steps=9, render_mode='rgb_array')
    assert about(env).arguments == {
        'env_id': 'CartPole-v1',
        'env_type': 'classic_control',
        'vectorized': False,
        'nenv': 2,
        'max_episode_steps': 9,
    }
    assert about(zoo.build_env('CartPole-v1', reward_shaping=abs)).arguments is None
    assert about(gymnasium.wrappers.TimeAwareObservation(zoo.build_env('CartPole-v1'))).arguments is None
    assert about(zoo.build_env(lambda: gymnasium.make('CartPole-v1'))).arguments is None


def test_runs_that_are_not_there():
    with pytest.raises(ValueError, match="there is no run in 'runs' yet"):
        zoo.open_run('last')
    with pytest.raises(ValueError, match="there is no run 'PPO_x', nor any other"):
        zoo.open_run('PPO_x')
    Path('runs/PPO_CartPole').mkdir(parents=True)
    with pytest.raises(ValueError, match='is no run: a run.s folder has a config.json'):
        zoo.open_run('runs/PPO_CartPole')
    Path('runs/some.npz').write_bytes(b'')
    with pytest.raises(ValueError, match='is a file, and a run is a folder. Recorded episodes are opened by zoo.open'):
        zoo.open_run('runs/some.npz')
    Path('runs/PPO_CartPole/config.json').write_text(json.dumps({'algorithm': 'PPO'}))
    with pytest.raises(ValueError, match=r"^unknown run 'PPO_CartPol': did you mean 'PPO_CartPole'\?"):
        zoo.open_run('PPO_CartPol')
    Path('runs/half').mkdir()
    Path('runs/half/config.json').write_text('{"algo')
    assert [run.name for run in zoo.list_runs()] == ['PPO_CartPole']


def test_an_argument_of_the_environment_says_where_it_belongs(capsys):
    told = 'max_episode_steps.* is an argument of the environment: env_params=dict.max_episode_steps=….'
    with pytest.raises(ValueError, match=told):
        zoo.train('PPO', 'CartPole-v1', max_episode_steps=9)
    assert main(['train', 'PPO', 'CartPole-v1', '--set', 'max_episode_steps=9']) == 2
    assert '--env-set max_episode_steps=' in capsys.readouterr().err


def test_a_class_in_a_module_has_a_name(tmp_path, monkeypatch):
    code = 'from gymnasium.envs.classic_control import CartPoleEnv\nclass Pole(CartPoleEnv):\n    length = 3\n'
    (tmp_path / 'own_poles.py').write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    pole = importlib.import_module('own_poles').Pole
    result = zoo.train('PPO', pole, **FEW, env_params={'max_episode_steps': 9}).result
    run = zoo.open_run(result.run_dir)
    assert (run.environment, run.config['made_with']['env_id']) == ('Pole', 'own_poles:Pole')
    assert type(run.build_env().unwrapped) is pole and run.build_env().spec is None
    assert run.load().learn(run.build_env(), 'test', test_episodes=2, verbose=0).lengths
    assert zoo.common.envs.about.about(zoo.build_env(type('Here', (pole,), {}))).arguments is None


@pytest.mark.full
def test_an_environment_without_a_name_is_not_guessed():
    agent, result = zoo.train('PPO', lambda: gymnasium.make('CartPole-v1'), **FEW)
    with pytest.raises(ValueError, match='which no name makes'):
        zoo.open_run(result.run_dir).build_env()


@pytest.mark.full
def test_an_environment_that_was_handed_over_is_left_open():
    env = zoo.build_env('CartPole-v1', 'classic_control', seed=5)
    closed = []
    env.close = lambda: closed.append(True)
    zoo.train('PPO', env, run_dir=False, **FEW)
    assert not closed


@pytest.mark.full
def test_an_interrupted_training_goes_on():
    more = FEW | {'train_steps': 128, 'log_every': 32}
    with pytest.raises(KeyboardInterrupt, match='at step 64 of 128'):
        zoo.train('PPO', 'CartPole-v1', callbacks=[Interrupt(64)], **more)
    agent, result = zoo.resume('last', verbose=0)
    assert (agent.steps, result.steps) == (128, 64) and agent.net_list[0]['hidden'] == [8]
    (run,) = zoo.list_runs()
    assert run.path.absolute() == result.run_dir.absolute() and run.steps == 128 and run.seed == 0
    with pytest.raises(ValueError, match='was not interrupted: it has ended after 128 steps'):
        zoo.resume(run)


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ({'alg': 'PP0'}, r"^unknown algorithm 'PP0': did you mean 'PPO'\?"),
        ({'alg': None}, '^unknown algorithm None'),
        ({'env_id': 'CartPol-v1'}, "did you mean 'CartPole-v1'"),
        ({'gama': 0.9}, r"^unknown parameter of PPO 'gama': did you mean 'gamma'\?"),
        ({'n_env': 2}, r"^unknown parameter of PPO 'n_env': did you mean 'nenv'\?"),
        ({'lr': 0.1}, "^unknown parameter 'lr': it is called 'learning_rate' here"),
        ({'n_epochs': 2}, "it is called 'epochs' here"),
        ({'resume': True}, "'resume' is not for new runs"),
        ({'observation_space': 1}, "'observation_space' is the environment's"),
        ({'gamma': 2}, '^gamma is 2: give a number from 0 to 1'),
        ({'train_steps': 0}, '^train_steps is 0: give a whole number of at least 1'),
        ({'learning_rate': -1}, '^learning_rate is -1: give a number above 0'),
        ({'net': '64,x'}, "^net is '64,x': give the units of the hidden layers"),
        ({'net': 64}, '^net is 64'),
        ({'net': ''}, "^net is '': give the units"),  # as of a shell's variable that is not set
        ({'net': '64,0'}, 'a layer of 0 units cannot be made'),
        ({'net': {'hiden': [3]}}, "did you mean 'hidden'"),
        ({'net': '8', 'net_list': [{}, {}]}, 'net and net_list both say'),
        ({'env_params': {'seed': 3}}, 'seed is an argument of its own'),
        ({'callbacks': [lambda: None]}, 'which does not take one argument, a Training'),
    ],
)
def test_what_is_refused(given: dict[str, Any], message: str):
    call = {'alg': 'PPO', 'env_id': 'CartPole-v1', **FEW, **given}
    with pytest.raises(ValueError, match=message):
        zoo.train(**call)
    assert not Path('runs').exists()


def test_two_lengths_are_refused():
    lengths = {'train_steps': 9, 'train_updates': 9}
    with pytest.raises(ValueError, match='there is no dataset, so leave train_updates out'):
        zoo.train('IQL', 'Pendulum-v1', **lengths)
    with pytest.raises(ValueError, match='with a dataset no step is taken, so leave train_steps out'):
        zoo.train('IQL', 'Pendulum-v1', dataset='any.npz', **lengths)
    with pytest.raises(ValueError, match='with a dataset none is taken: give train_updates, the number of'):
        zoo.train('IQL', 'Pendulum-v1', dataset='any.npz', train_steps=9)


def test_what_net_stands_for():
    default = [{'hidden': [1], 'activation': 'tanh'}, 'actor']
    assert train.networks('32, 16', default) == [{'hidden': [32, 16], 'activation': 'tanh'}, 'actor']
    assert train.networks((5,), default) == [{'hidden': [5], 'activation': 'tanh'}, 'actor']
    assert train.networks('[]', default)[0]['hidden'] == []
    assert train.networks('[8,4]', default)[0]['hidden'] == [8, 4]
    assert train.networks({'activation': 'relu'}, default) == [{'hidden': [1], 'activation': 'relu'}, 'actor']
    whole = [{'hidden': [2]}, {'hidden': [3]}]
    assert train.networks(whole, default) == whole


@pytest.mark.parametrize('name', algorithms.NAMES)
def test_no_parameter_has_two_places(name: str):
    cls = getattr(algorithms, name)
    assert not cls.declared().keys() & cls.declared_for_learn().keys()
    assert not train.known_params(cls).keys() & (set(train.ARGUMENTS) - {'learning_rate'})


@pytest.mark.parametrize(
    ('env_id', 'env_type'),
    [
        ('CartPole-v1', 'classic_control'),
        ('LunarLander-v3', 'box2d'),
        ('Hopper-v5', 'mujoco'),
        ('ALE/Pong-v5', 'atari'),
        ('FrozenLake-v1', 'gymnasium'),
        (gymnasium.Env, 'gymnasium'),
    ],
)
def test_the_type_is_found_from_the_name(env_id: Any, env_type: str):
    assert find_env_type(env_id) == env_type


def test_the_type_of_a_task_of_dm_control():
    pytest.importorskip('dm_control')
    assert find_env_type('cheetah-run') == 'dm_control'
    with pytest.raises(ValueError, match="did you mean 'cheetah-run'"):
        find_env_type('cheetah-rum')


def test_a_policy_in_the_place_of_the_environment_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="^'MlpPolicy' stands where the environment belongs: networks follow from"):
        zoo.train('PPO', 'MlpPolicy', 'CartPole-v1')
