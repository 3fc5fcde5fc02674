"""A user's own defaults, which the variable ``ZOO_DEFAULTS`` names."""

from __future__ import annotations

import json

import pytest
import toys

import zoo
from zoo.cli import main
from zoo.common.schedules import Linear
from zoo.common.utils import default_nenv

FILE = """
classic_control:
  PPO: {gamma: 0.9, gae_lambda: 0.8}
CartPole-v1:
  PPO: {gamma: 0.98, train_steps: 300, nenv: 2, net: [8, 8], learning_rate: Linear(1e-3), horizon: 32}
  dqn: {noisy: true, buffer_size: 500, net: {hidden: [4], activation: tanh}}
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / 'own.yaml'

    def write(text: str = FILE):
        path.write_text(text, encoding='utf-8')
        monkeypatch.setenv('ZOO_DEFAULTS', str(path))
        return path

    return write


def defaults(alg: str, env_id: str = 'CartPole-v1', **given):
    env = zoo.build_env(env_id, 'classic_control', **given)
    found = zoo.call_default_params(env, 'classic_control', alg)
    env.close()
    return found


def test_they_come_after_the_tables_and_the_environment_after_its_type(own):
    tables = defaults('PPO', nenv=2)
    own()
    alg_params, learn_params = defaults('PPO', nenv=2)
    assert (alg_params['gamma'], alg_params['gae_lambda']) == (0.98, 0.8)
    assert (learn_params['train_steps'], learn_params['horizon']) == (300, 32)
    assert [entry['hidden'] for entry in alg_params['net_list']] == [[8, 8], [8, 8]]
    assert alg_params['optimizers_list'][0]['learning_rate'] == Linear(1e-3)
    rest = {name: value for name, value in alg_params.items() if name in ('clip_range', 'entropy_coef', 'value_coef')}
    assert rest == {name: tables[0][name] for name in rest} and learn_params['epochs'] == tables[1]['epochs']
    assert defaults('PPO', 'Acrobot-v1')[0]['gamma'] == 0.9  # of the type
    assert default_nenv('A2C', 'classic_control', 'CartPole-v1') == 8
    assert default_nenv('PPO', 'classic_control', 'CartPole-v1') == 2


def test_names_in_any_case_and_exploration_that_fits_the_layers(own):
    own()
    alg_params, learn_params = defaults('DQN')
    assert alg_params['noisy'] is True and alg_params['epsilon'] is None and learn_params['buffer_size'] == 500
    assert (alg_params['net_list'][0]['hidden'], alg_params['net_list'][0]['activation']) == ([4], 'tanh')


def test_copies_are_those_that_they_are_meant_for(own, caplog):
    own()
    defaults('PPO', nenv=2)
    assert 'are meant for' not in caplog.text
    defaults('PPO', nenv=3)
    assert 'are meant for 2 copies' in caplog.text


def test_a_training_says_and_notes_that_they_were_used(own, capsys):
    path = own()
    assert main('train ppo CartPole-v1 --set gamma=0.5 --set epochs=1 --run-dir run --no-evaluate'.split()) == 0
    err = capsys.readouterr().err
    assert 'PPO on CartPole-v1, 2 copies' in err
    assert f'Your own defaults in {path}: gae_lambda=0.8, train_steps=300' in err  # what is given wins over gamma
    config = json.loads(open('run/config.json').read())
    assert config['own_defaults']['file'] == str(path) and config['own_defaults']['values']['train_steps'] == 300
    assert (config['params']['gamma'], config['params']['gae_lambda']) == (0.5, 0.8)
    assert config['net_list'][0]['hidden'] == [8, 8] and config['learn_params']['train_steps'] == 300


@pytest.mark.parametrize('used', [True, False])
def test_the_four_lines_note_them_too(used, own, plain_graphs, monkeypatch):
    own('CartPole-v1: {DQN: {explore_steps: 99}}')
    if not used:
        monkeypatch.delenv('ZOO_DEFAULTS')
    env = zoo.build_env('CartPole-v1', 'classic_control')
    alg_params, learn_params = zoo.call_default_params(env, 'classic_control', 'DQN')
    learn_params |= {'train_steps': 20, 'verbose': 0}
    zoo.algorithms.DQN(**alg_params).learn(env, 'train', run_dir='run', **learn_params)
    env.close()
    assert ('own_defaults' in zoo.open_run('run').config) == used


def test_describe_shows_them(own, capsys):
    path = own()
    assert main(['describe', 'ppo']) == 0
    out = capsys.readouterr().out
    assert 'Your own defaults of PPO' in out and '  CartPole-v1: gamma=0.98, train_steps=300, nenv=2' in out
    assert f'classic_control: gamma=0.9, gae_lambda=0.8 (from {path})' in out
    assert 'Your own defaults in CartPole-v1' in zoo.describe('PPO')._repr_html_()
    main(['describe', 'sac'])
    assert 'Your own' not in capsys.readouterr().out


def test_a_folder_has_several_files(own, tmp_path, monkeypatch):
    folder = tmp_path / 'folder'
    folder.mkdir()
    (folder / 'ppo.yml').write_text('CartPole-v1: {PPO: {gamma: 0.9}}')
    (folder / 'dqn.yaml').write_text('CartPole-v1: {DQN: {gamma: 0.8}}')
    (folder / 'notes.txt').write_text('no: [yaml')
    monkeypatch.setenv('ZOO_DEFAULTS', str(folder))
    assert (defaults('PPO')[0]['gamma'], defaults('DQN')[0]['gamma']) == (0.9, 0.8)
    (folder / 'more.yaml').write_text('CartPole-v1: {ppo: {gamma: 0.7}}')
    with pytest.raises(ValueError, match=r'more\.yaml.* and .*ppo\.yml.* both have CartPole-v1, PPO'):
        defaults('PPO')


@pytest.mark.parametrize(
    ('text', 'told'),
    [
        ('CartPole-v1: {PPO: {gama: 0.9}}', r"own\.yaml', CartPole-v1, PPO: unknown .*'gama': did you mean 'gamma'"),
        ('CartPole-v1: {PPO: {gamma: 2}}', r"own\.yaml', CartPole-v1, PPO: gamma is 2: give a number from 0 to 1"),
        ('CartPole-v1: {PPO: {n_steps: 8}}', "it is called 'horizon' here"),
        ('CartPole-v1: {PPO: {n_envs: 8}}', "it is called 'nenv' here"),
        ('CartPole-v1: {PPO: {nenv: 0}}', 'nenv is 0: give a whole number of at least 1'),
        ('CartPole-v1: {PPO: {net_list: []}}', 'has one entry for each network: write net'),
        ('CartPole-v1: {PPO: {seed: 1}}', 'belongs to a call, not to defaults'),
        ('CartPole-v1: {PPOO: {gamma: 0.9}}', r"own\.yaml', CartPole-v1: unknown algorithm 'PPOO'"),
        ('CartPole-v1: {gamma: 0.9}', r"own\.yaml', CartPole-v1: unknown algorithm 'gamma'"),
        ('CartPole-v1: {PPO: 3}', r"own\.yaml', CartPole-v1, PPO: it holds 3, but needs gamma: 0\.98"),
        ('CartPole-v1: PPO', 'CartPole-v1: it holds .PPO., but needs PPO: {gamma: 0.98}'),
        ('CartPole-v1: {PPO: {gamma: 0.9, gamma: 0.8}}', "line 1: 'gamma' stands there twice"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_with_its_place(own, text, told):
    own(text)
    with pytest.raises(ValueError, match=told):
        defaults('PPO')


def test_a_variable_that_names_nothing_is_refused(own, monkeypatch):
    monkeypatch.setenv('ZOO_DEFAULTS', 'nothing/there.yaml')
    with pytest.raises(ValueError, match=r"ZOO_DEFAULTS names 'nothing/there\.yaml', which is not there"):
        defaults('PPO')


def test_a_comparison_keeps_them_among_its_settings(own, monkeypatch):
    own('CartPole-v1: {DQN: {explore_steps: 99}}')
    call = {'seeds': 1, 'train_steps': 20, 'test_episodes': 1, 'out': 'both', 'progress': False}
    monkeypatch.setattr('zoo.experiments.workers.run', lambda *_: None)  # nothing is trained
    zoo.compare(['DQN'], 'CartPole-v1', **call)
    own('CartPole-v1: {DQN: {explore_steps: 98}}')
    with pytest.raises(ValueError, match='other settings .*explore_steps'):
        zoo.compare(['dqn'], 'CartPole-v1', **call)


class Mine(toys.Chain):
    """An environment of the user's own."""


@pytest.mark.parametrize('given', [Mine, f'{__name__}:Mine'], ids=['class', 'name'])
def test_an_environment_of_the_user_s_own_has_all_of_an_entry(given, own):
    own('Mine: {PPO: {gamma: 0.6, nenv: 3, train_steps: 2, epochs: 1}}')
    agent, _ = zoo.train('PPO', given, run_dir='run', verbose=0, evaluate=False)
    assert agent.gamma == 0.6 and zoo.open_run('run').config['copies'] == 3
