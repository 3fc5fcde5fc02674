"""What is chosen and edited, without a page: values as they are typed, refusals, the program that does the same."""

from __future__ import annotations

import threading
import types

import gymnasium
import numpy as np
import pytest

import zoo
from zoo.dashboard.charts import Curve, chart
from zoo.dashboard.experiment import Experiment
from zoo.dashboard.fields import Source
from zoo.dashboard.preview import first_frame
from zoo.dashboard.program import experiment_of, program_for
from zoo.dashboard.runs import Runs
from zoo.dashboard.training import BackgroundTraining
from zoo.dashboard.values import read, read_keywords, written
from zoo.dashboard.watch import Watch


@pytest.mark.parametrize(
    'value',
    [
        1,
        -2.5,
        None,
        True,
        'auto',
        [64, 64],
        (1,),
        zoo.Linear(1e-3, 0.0),
        zoo.Linear(1, 0.5, 0.2),
        {'k': 4, 'a': [1]},
        {1: 2},
    ],
)
def test_what_is_written_is_read_again(value):
    assert read(written(value), 'x') == value


@pytest.mark.parametrize('text', ['__import__("os")', 'a.b', 'open("x")', '1 +', 'dict(**{})', '', 'lambda: 1', '[x]'])
def test_nothing_that_is_typed_as_a_value_is_executed(text):
    with pytest.raises(ValueError, match='^gamma is .* give a value as Python writes it'):
        read(text, 'gamma')


def test_a_path_that_exists_is_read_without_quotes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'runs').mkdir()
    (tmp_path / 'runs' / 'expert.npz').write_bytes(b'')
    assert read(' runs/expert.npz ', 'dataset') == read("'runs/expert.npz'", 'dataset') == 'runs/expert.npz'
    with pytest.raises(ValueError, match='give a value as Python writes it'):
        read('runs/missing.npz', 'dataset')


def test_words_and_keywords_are_read():
    assert read(' auto ', 'alpha') == 'auto'
    assert read_keywords("hidden=[32], activation='relu'", 'actor') == {'hidden': [32], 'activation': 'relu'}
    with pytest.raises(ValueError, match='give names and values'):
        read_keywords('64, 64', 'actor')
    with pytest.raises(ValueError, match='until of a Linear schedule is 2'):
        read('Linear(1, 0, 2)', 'rate')


@pytest.fixture(scope='module')
def cartpole():
    return Experiment()


@pytest.fixture
def experiment(cartpole):
    cartpole.edits.clear()
    return cartpole


def test_only_algorithms_that_fit_are_offered(experiment):
    assert {'PPO', 'DQN', 'SAC'} <= set(experiment.fitting) and 'TD3' not in experiment.fitting
    pendulum = experiment.snapshot()
    assert pendulum.choose(env_id='Pendulum-v1') is None and 'TD3' in pendulum.fitting
    pendulum.choose(alg='TD3')
    assert 'TD3 cannot act in' in pendulum.choose(env_id='CartPole-v1') and pendulum.alg == 'PPO'


def test_a_refused_choice_changes_nothing(experiment):
    for choice, words in (
        ({'env_id': 'CartPole-v9'}, 'CartPole-v1'),
        ({'alg': 'TD3'}, 'TD3 cannot act'),
        ({'nenv': 0}, 'nenv is the number of copies'),
        ({'env_params': {'colour': 3}}, 'colour'),
        ({'env_params': {'nenv': 3}}, 'field of its own'),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            experiment.choose(**choice)
    assert (experiment.env_id, experiment.alg, experiment.arguments['nenv']) == ('CartPole-v1', 'PPO', 1)
    assert experiment.env_params == {}


def test_copies_are_those_that_the_defaults_are_meant_for_until_they_are_chosen(experiment):
    experiment = experiment.snapshot()
    experiment.choose(alg='A2C')
    assert experiment.order()['nenv'] == 8 and 'nenv=8' in program_for(experiment)
    experiment.choose(env_id='Acrobot-v1')
    assert experiment.order()['nenv'] == 16
    experiment.choose(alg='PPO')
    assert experiment.order()['nenv'] == 1 and 'nenv' not in program_for(experiment)
    experiment.choose(nenv=2)
    experiment.choose(alg='A2C')
    assert experiment.order()['nenv'] == 2


def test_what_is_not_installed_is_said(experiment):
    with pytest.raises(ImportError, match='PyPI'):
        experiment.choose(env_type='rlbench')
    assert experiment.env_type == 'classic_control'


def test_every_parameter_is_a_field_with_its_meaning(experiment):
    fields = {field.name: field for field in experiment.fields()}
    alg_params, learn_params = zoo.call_default_params(zoo.build_env('CartPole-v1'), 'classic_control', 'PPO', seed=0)
    expected = {*alg_params, *learn_params} - {
        'observation_space',
        'action_space',
        'seed',
        'net_list',
        'optimizers_list',
    }
    assert expected | {'net_list[0]', 'net_list[1]', 'optimizers_list[0]'} == set(fields)
    assert all(field.param.meaning for field in fields.values())
    assert not any(field.changed for field in fields.values())
    assert fields['gamma'].value == alg_params['gamma'] and fields['horizon'].value == learn_params['horizon']


def test_edits_are_checked_marked_and_reset(experiment):
    experiment.type('gamma', '0.9')
    with pytest.raises(ValueError, match='gamma is 1.5: give a number from 0 to 1'):
        experiment.type('gamma', '1.5')
    with pytest.raises(ValueError, match="roles is 'xx': give a dict"):
        experiment.type('roles', 'xx')
    assert experiment.field('gamma').value == 0.9  # nothing has changed
    with pytest.raises(ValueError, match="method is 'clop'"):
        experiment.set('method', 'clop')
    experiment.type('net_list[0]', 'hidden=[32]')
    with pytest.raises(ValueError, match="unknown key of a network spec 'hiden'"):
        experiment.type('net_list[0]', 'hiden=[16]')
    assert experiment.field('net_list[0]').value['hidden'] == [32]
    assert experiment.assemble().networks['actor'].torso.layers[-1].units == 32
    assert {field.name for field in experiment.fields() if field.changed} == {'gamma', 'net_list[0]'}
    experiment.type('gamma', '0.98')
    experiment.reset('net_list[0]')
    assert not any(field.changed for field in experiment.fields())


def test_a_network_is_given_by_code_or_shares_a_torso(experiment):
    code = 'import keras\nkeras.Sequential([keras.layers.Dense(24), keras.layers.Dense(1)])'
    experiment.set('net_list[1]', Source(code))
    assert experiment.assemble().networks['critic'].custom is not None
    for wrong, words in (
        ('import keras', 'the last line has to be an expression'),
        ('keras.(', 'this is no Python, at line 1'),
        ('1 / 0', 'fails with ZeroDivisionError'),
    ):
        with pytest.raises(ValueError, match=words):
            experiment.set('net_list[1]', Source(wrong))
    assert experiment.field('net_list[1]').value == Source(code)
    experiment.type('net_list[1]', 'actor')
    assert "alg_params['net_list'][1] = 'actor'" in program_for(experiment)


def test_the_program_assembles_the_same_agent(experiment):
    experiment.choose(nenv=2, env_params={'max_episode_steps': 50})
    try:
        experiment.type('clip_range', 'Linear(0.3, 0.1)')
        experiment.type('optimizers_list[0]', 'learning_rate=5e-4')
        experiment.set('net_list[1]', Source('import keras\nkeras.Sequential([keras.layers.Dense(8)])'))
        experiment.type('train_steps', '512')
        program, wanted = program_for(experiment), experiment.assemble().config()
        names: dict = {}
        exec(program.replace("agent.learn(env, 'train', callbacks=[callbacks.KeepBest()], **learn_params)", ''), names)
        assert names['agent'].config() == wanted
        assert names['learn_params']['train_steps'] == 512 and names['env'].num_envs == 2
    finally:
        experiment.choose(nenv=1, env_params={})


class Corridor(gymnasium.Env):
    """An environment of the user's own, which fails at a step if asked to."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fails_at=None, render_mode=None):
        self.fails_at, self.count, self.render_mode = fails_at, 0, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        if self.count == self.fails_at:
            raise RuntimeError('the wheel came off')
        return np.zeros(2, np.float32), 1.0, self.count % 5 == 0, False, {}


def test_environments_of_the_users_own(tmp_path):
    experiment = Experiment([Corridor], 'gymnasium', 'Corridor')
    assert experiment.environments('gymnasium')[0] == 'Corridor'
    assert experiment.order()['env_id'] is Corridor and experiment.is_own()
    assert 'build_env(Corridor,' in program_for(experiment)
    assert 'There is no picture' in str(first_frame(experiment))

    lock = threading.Lock()

    def make():
        return Corridor(fails_at=None if lock else 1)

    other = Experiment([make], 'gymnasium', 'make')
    with pytest.raises(ValueError, match='cannot be sent to the process that trains'):
        BackgroundTraining.start(other.order(), tmp_path)


@pytest.mark.full
def test_a_training_that_fails_is_told_in_words(tmp_path):
    experiment = Experiment([Corridor], 'gymnasium', 'Corridor')
    experiment.choose(env_params={'fails_at': 600})
    training = BackgroundTraining.start(experiment.order(), tmp_path)
    training.wait(300)
    assert training.state == 'failed' and training.error == 'the wheel came off' and not training.alive


def test_runs_are_sorted_filtered_and_told_apart(tmp_path):
    for i, gamma in enumerate((0.9, 0.99)):
        given = {'gamma': gamma, 'train_steps': 256, 'explore_steps': 1000}  # nothing is updated or compiled
        zoo.train('DQN', Corridor, run_dir=tmp_path / f'run_{i}', seed=i, **given)
    runs = Runs(tmp_path)
    rows = runs.rows(sort='seed', descending=False)
    assert [row.name for row in rows] == ['run_0', 'run_1']
    assert [row.name for row in runs.rows(sort='seed')] == ['run_1', 'run_0']
    assert [row.differs for row in rows] == [{'gamma': 0.9}, {'gamma': 0.99}]
    assert [row.name for row in runs.rows('corridor gamma=0.99')] == ['run_1'] and runs.rows('ppo') == []
    assert rows[0].score == 5.0 and rows[0].steps == 256
    assert rows[0].settings['net_list[0].activation'] == 'relu'
    with pytest.raises(ValueError, match="no column 'height'"):
        runs.rows(sort='height')
    zoo.train('DQN', lambda: Corridor(), run_dir=tmp_path / 'unnamed', train_steps=8, explore_steps=1000)
    with pytest.raises(ValueError, match='which no name makes'):
        experiment_of(zoo.open_run(tmp_path / 'unnamed'))


def test_a_chart_has_a_line_for_each_curve():
    nan = float('nan')
    drawn = chart([Curve('a<b', [0, 10], [1.0, 3.0]), Curve('c', [0, 5, 10], [0, nan, 2])], 'Return')
    assert drawn.count('<polyline') == 2 and 'a&lt;b: 3 at 10' in drawn
    first, second = (part.split('"')[0].split() for part in drawn.split('points="')[1:])
    assert len(first) == len(second) == 2
    (x0, y0), (x1, y1) = (map(float, point.split(',')) for point in first)
    assert x0 < x1 and y1 < y0  # to the right and up
    assert 'nothing yet' in chart([Curve('a', [], [])])


def test_tests_while_it_trains_are_a_switch():
    experiment = Experiment()
    assert experiment.order()['evaluate'] is True
    program = program_for(experiment)
    assert "agent.learn(env, 'train', callbacks=[callbacks.KeepBest()], **learn_params)" in program
    assert 'from zoo import algorithms, build_env, call_default_params, callbacks' in program
    experiment.choose(evaluate=False)
    assert experiment.order()['evaluate'] is False and 'KeepBest' not in program_for(experiment)


def test_a_run_says_whether_it_was_tested(tmp_path):
    for evaluate in (True, False):
        place = tmp_path / str(evaluate)
        params = {'train_steps': 200, 'explore_steps': 1000, 'verbose': 0, 'run_dir': place}
        zoo.train('DQN', 'CartPole-v1', evaluate=evaluate, **params)
        assert experiment_of(zoo.open_run(place)).arguments['evaluate'] is evaluate


def test_the_page_shows_warnings_and_the_newest_test():
    lines = ['A warning.', *(f'Test at step {n}: 5 ± 1, lowest 4, in 3 episodes' for n in range(5))]
    training = types.SimpleNamespace(
        steps=1,
        train_steps=2,
        run_dir=None,
        alive=True,
        result=None,
        state='training',
        error='',
        output='\n'.join(lines),
    )
    watch = Watch()
    watch.show(training)
    assert 'A warning.' in watch.said.value and 'step 4' in watch.said.value and 'step 3' not in watch.said.value
