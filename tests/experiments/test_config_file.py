"""Configuration files: what they may hold, and that a run's own file trains it again."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import zoo
from zoo.callbacks import Evaluate, KeepBest, StopOnPlateau
from zoo.cli import main
from zoo.common.schedules import Linear
from zoo.common.tools.yaml import read_yaml, to_yaml


def write(tmp_path, text):
    path = tmp_path / 'run.yaml'
    path.write_text(text, encoding='utf-8')
    return path


def test_yaml_has_numbers_as_python_writes_them_and_schedules(tmp_path):
    text = "a: 1e-4\nb: 50_000\nc: Linear(0.2)\nd: [None, '1e-4', 'Linear(1e-3, 0)']\ne: -2E3\n"
    text += "f: .inf\ng: null\nh: '7'\n"
    found = read_yaml(write(tmp_path, text), 'the file')
    listed = [None, '1e-4', Linear(1e-3, 0)]
    assert found == {
        'a': 1e-4, 'b': 50_000, 'c': Linear(0.2), 'd': listed, 'e': -2000.0, 'f': float('inf'), 'g': None, 'h': '7',
    }  # fmt: skip
    assert read_yaml(write(tmp_path, to_yaml(found)), 'the file') == found
    assert read_yaml(write(tmp_path, '# nothing\n'), 'the file') == {}


@pytest.mark.parametrize(
    ('text', 'told'),
    [
        ('gamma: 0.9\ngamma: 0.8\n', "line 2: 'gamma' stands there twice"),
        ('gamma: [0.9\n', 'line 2: expected'),
        ('- gamma\n', r"holds \['gamma'\]: give names and values"),
        ('1: 2\n', '1 is no name'),
        ('a: !!python/object:os.system {}\n', 'could not determine a constructor'),
        ('a: Linear(0.2\n', 'is no schedule'),
        ('a: Linear(0.2, 0, 3)\n', 'until of a Linear schedule is 3'),
    ],
)
def test_what_is_no_yaml_is_refused_in_a_sentence(tmp_path, text, told):
    with pytest.raises(ValueError, match=told):
        read_yaml(write(tmp_path, text), 'the file')
    with pytest.raises(ValueError, match=r"the file 'no\.yaml' cannot be read: No such file"):
        read_yaml('no.yaml', 'the file')


def test_a_configuration_has_the_arguments_of_train(tmp_path):
    path = write(tmp_path, 'alg: PPO\nenv_id: CartPole-v1\ngamma: 0.9\nevaluate: 500\n')
    found = zoo.read_config(path)
    assert {name: found[name] for name in ('alg', 'env_id', 'gamma')} == {
        'alg': 'PPO', 'env_id': 'CartPole-v1', 'gamma': 0.9,
    }  # fmt: skip
    assert (found['evaluate'].every, found['evaluate'].share) == (500, None)
    tests = zoo.read_config(write(tmp_path, 'evaluate: {every: 700, stop_at: 20}\n'))['evaluate']
    assert isinstance(tests, KeepBest) and (tests.every, tests.stop_at, tests.share) == (700, 20.0, 0.1)
    assert zoo.read_config(write(tmp_path, 'evaluate: false\n')) == {'evaluate': False}


@pytest.mark.parametrize(
    ('text', 'told'),
    [
        ('algo: PPO\n', 'write alg instead of algo'),
        ('steps: 100\n', 'write train_steps instead of steps'),
        ('callbacks: [f]\n', 'callbacks are objects of a program'),
        ('env_params: 3\n', 'env_params needs names and values'),
        ('evaluate: often\n', "evaluate is 'often': give true, false"),
        ('evaluate: {evry: 3}\n', 'evaluate has evry, but takes every'),
        ('evaluate: {every: 0}\n', 'every'),
    ],
)
def test_what_no_configuration_holds_is_refused_in_a_sentence(tmp_path, text, told):
    with pytest.raises(ValueError, match=told):
        zoo.read_config(write(tmp_path, text))


def weights(run):
    agent = zoo.open_run(run).load()
    return {name: np.array(value) for name, value in agent.state().items()}


@pytest.mark.parametrize(
    ('alg', 'options'),
    [
        ('PPO', '--nenv 2 --env-set max_episode_steps=30 --set clip_range=Linear(0.3) --set horizon=64'),
        ('DQN', '--net 16 --set learning_rate=Linear(1e-3,1e-4) --set explore_steps=50 --seed 7 --evaluate 100'),
    ],
)
def test_the_file_of_a_run_trains_it_again_to_the_bit(tmp_path, capsys, alg, options):
    first, second = str(tmp_path / 'first'), str(tmp_path / 'second')
    words = ['train', alg, 'CartPole-v1', '--steps', '400', '--quiet', '--run-dir', first, *options.split()]
    assert main(words) == 0
    capsys.readouterr()
    assert main(['show', first, '--as-config']) == 0
    path = write(tmp_path, capsys.readouterr().out)
    assert 'may not come again' not in path.read_text()
    assert main(['train', '--config', str(path), '--run-dir', second, '--quiet']) == 0
    expected, found = weights(first), weights(second)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(value, found[name], name)
    strip = lambda text: text.replace('of first', '').replace('of second', '')  # noqa: E731
    assert strip(zoo.as_config(first)) == strip(zoo.as_config(second))


def test_another_seed_than_the_files_draws_other_first_weights(tmp_path):
    options = {'train_steps': 200, 'net': [4], 'explore_steps': 1000, 'verbose': 0}  # nothing is learned
    first = zoo.train('DQN', 'CartPole-v1', seed=3, run_dir=tmp_path / 'first', **options).agent
    path = write(tmp_path, zoo.as_config(tmp_path / 'first'))
    told = {'run_dir': False, 'evaluate': False}
    again, other = (zoo.train(**zoo.read_config(path, **told, **given)) for given in ({}, {'seed': 4}))
    own = [[v.numpy() for v in agent.trainable_variables] for agent in (first, again.agent, other.agent)]
    for x, y, z in zip(*own, strict=True):
        np.testing.assert_array_equal(x, y)
        assert not x.any() or not np.array_equal(x, z)


def test_the_command_line_wins_over_the_file(tmp_path, monkeypatch):
    text = 'alg: PPO\nenv_id: CartPole-v1\nseed: 5\nnenv: 2\nenv_params: {max_episode_steps: 30}\n'
    text += 'net_list: [{hidden: [8], activation: relu}, {hidden: [8]}]\n'
    text += 'optimizers_list: [{name: SGD, learning_rate: 1e-3}]\n'
    path, seen = write(tmp_path, text), {}

    def train(**arguments):
        seen.update(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, 'train', train)
    main(['train', '--config', str(path)])
    assert (seen['seed'], seen['nenv'], seen['env_params']) == (5, 2, {'max_episode_steps': 30})
    main(['train', '--config', str(path), 'Acrobot-v1'])
    assert (seen['alg'], seen['env_id']) == ('PPO', 'Acrobot-v1')
    words = '--seed none --nenv 3 --steps 100 --net 16 --set learning_rate=1e-2 --set gamma=0.5'
    words += ' --env-set sutton_barto_reward=True'
    main(['train', 'PPO', '--config', str(path), *words.split()])
    assert (seen['seed'], seen['nenv'], seen['train_steps'], seen['gamma']) == (None, 3, 100, 0.5)
    assert seen['env_params'] == {'max_episode_steps': 30, 'sutton_barto_reward': True}
    assert seen['net_list'] == [{'hidden': [16], 'activation': 'relu'}, {'hidden': [16]}]
    assert seen['optimizers_list'] == [{'name': 'SGD', 'learning_rate': 1e-2}]


@pytest.mark.parametrize(
    ('text', 'words', 'told'),
    [
        ('env_id: CartPole-v1\n', [], 'lacks alg: write alg: PPO'),
        ('alg: PPO\n', [], 'lacks env_id'),
        ('alg: PPO\nenv_id: CartPole-v1\ngama: 0.9\n', [], "did you mean 'gamma'?"),
        ('alg: PPP\nenv_id: CartPole-v1\n', [], "unknown algorithm 'PPP'"),
        ('alg: PPO\nenv_id: CartPole-v1\n', ['--resume', 'x'], 'leave out --config'),
    ],
)
def test_a_wrong_configuration_ends_the_command_with_a_sentence(tmp_path, capsys, text, words, told):
    assert main(['train', '--config', str(write(tmp_path, text)), *words]) == 2
    assert told in capsys.readouterr().err


def test_a_run_that_no_file_can_say_is_refused_in_a_sentence(tmp_path):
    def refused(**params):
        place = tmp_path / f'run{len(list(tmp_path.iterdir()))}'
        settings = dict(train_steps=8, horizon=8, batch_size=8, run_dir=place, verbose=0) | params
        zoo.train('PPO', settings.pop('env_id', 'CartPole-v1'), **settings)
        with pytest.raises(ValueError, match='cannot be said in a file') as error:
            zoo.as_config(place)
        return str(error.value)

    import keras

    own = [keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)]), {'hidden': [8]}]
    assert 'net_list[0] is a Sequential' in refused(net_list=own)
    assert 'no name makes its environment' in refused(
        env_id=lambda: CartPoleEnv(), env_params={'max_episode_steps': 20}
    )
    assert 'its callback StopOnPlateau may have' in refused(callbacks=[StopOnPlateau(10)])
    assert 'its callback ends may have' in refused(callbacks=[ends])
    assert 'its callback Evaluate may have' in refused(callbacks=[Evaluate(8, stop_at=1.0)])


def ends(training):
    return False


def test_the_file_says_what_does_not_come_again(tmp_path):
    settings = dict(train_steps=8, horizon=8, batch_size=8, verbose=0)
    agent, _ = zoo.train('PPO', 'CartPole-v1', seed=None, run_dir=tmp_path / 'a', **settings)
    assert 'may not come again: it had no seed.' in zoo.as_config(tmp_path / 'a')
    env = zoo.open_run(tmp_path / 'a').build_env()
    agent.learn(env, 'train', run_dir=tmp_path / 'b', **settings)
    with pytest.raises(ValueError, match='its agent had taken 8 steps before'):
        zoo.as_config(tmp_path / 'b')
    agent.learn(env, 'train', run_dir=tmp_path / 'a', **settings)
    env.close()
    assert len(zoo.open_run(tmp_path / 'a').config['calls']) == 2


def test_a_file_names_no_two_things_at_once(tmp_path, capsys):
    zoo.train('PPO', 'CartPole-v1', train_steps=8, horizon=8, batch_size=8, run_dir=tmp_path / 'a', verbose=0)
    assert main(['show', str(tmp_path / 'a'), '--as-config', '--networks']) == 2
    assert 'leave --networks out' in capsys.readouterr().err
