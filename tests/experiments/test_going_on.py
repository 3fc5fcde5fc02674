"""A run that goes on after its end, and a new run that begins with the weights of a saved agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zoo
from zoo.callbacks import Evaluate
from zoo.cli import main
from zoo.common.schedules import Linear

FEW = {'net': '8', 'evaluate': False, 'verbose': 0}
PPO = {'alg': 'PPO', 'env_id': 'Pendulum-v1', 'horizon': 64, 'epochs': 2, 'nenv': 1, 'normalize_obs': True, **FEW}


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch, plain_graphs):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A folder with a run of an agent that has not learned anything."""
    folder = tmp_path_factory.mktemp('trained')
    zoo.train(**PPO, train_steps=2, run_dir=folder / 'first')
    return folder


def arrays(agent):
    return {name: np.array(value) for name, value in agent.state().items()}


class Beginning:
    """A callback that keeps the state with which a training begins."""

    steers = False

    def begin(self, training):
        self.state, self.steps = arrays(training.agent), training.steps
        self.progress = training.progress

    def __call__(self, training):
        pass


def test_a_run_goes_on_after_its_end_with_all_of_its_state():
    first = zoo.train(**PPO, train_steps=256, run_dir='run')
    beginning = Beginning()
    agent, result = zoo.resume('run', train_steps=512, callbacks=[beginning], verbose=0)
    before = arrays(first.agent)
    assert any(name.startswith('optimizer/') for name in before) and any('statistics/' in name for name in before)
    assert beginning.state.keys() == before.keys() and beginning.steps == 256 and beginning.progress == 0.5
    for name, value in before.items():
        np.testing.assert_array_equal(value, beginning.state[name], name)
    assert (result.steps, agent.steps) == (256, 512)
    run = zoo.open_run('run')
    assert (run.steps, run.train_steps, run.config['calls']) == (512, 512, [[0, 256], [256, 512]])
    steps = run.progress['step']
    assert steps == sorted(set(steps)) and steps[0] < 256 < steps[-1] == 512
    assert len(run.episodes['r']) == 512 // 200  # the episodes of both: monitor.csv goes on
    assert 'trained to 256 steps first, and then further' in zoo_refusal('run')


def zoo_refusal(run):
    with pytest.raises(ValueError) as caught:
        zoo.as_config(run)
    return str(caught.value)


@pytest.mark.full
def test_the_tests_and_the_best_agent_go_on_too(capsys):
    given = PPO | {'evaluate': zoo.callbacks.KeepBest(100, episodes=1, share=None)}
    zoo.train(**given, train_steps=256, run_dir='run')
    zoo.resume('run', train_steps=512, verbose=0)
    run = zoo.open_run('run')
    tested = [step for step, x in zip(run.progress['step'], run.progress['test/return'], strict=True) if x == x]
    assert tested[0] <= 256 < tested[-1] and run.best is not None
    assert run.retested['last']['step'] == 512


def test_how_far_it_goes_must_be_said(capsys):
    zoo.train(**PPO, train_steps=64, run_dir='run')
    with pytest.raises(ValueError, match=r'run was not interrupted: it has ended after 64 steps.*train_steps=128\.$'):
        zoo.resume('run')
    for steps in (64, 10):
        with pytest.raises(ValueError, match=f'run has 64 steps behind it, so {steps} in all leave nothing to do'):
            zoo.resume('run', train_steps=steps)
    with pytest.raises(ValueError, match="train_steps is 'many': give a whole number"):
        zoo.resume('run', train_steps='many')
    capsys.readouterr()
    assert main(['train', '--resume', 'run']) == 2
    assert capsys.readouterr().err.endswith('say how many steps in all: --steps 128.\n')
    assert main(['train', '--resume', 'run', '--steps', '128', '--quiet']) == 0
    captured = capsys.readouterr()
    assert 'PPO on Pendulum-v1, from step 64 of 128' in captured.err and captured.out.startswith('steps     64 in ')


@pytest.mark.full
def test_an_interrupted_run_goes_on_further_than_it_was_begun_with():
    def interrupt(training):
        if training.steps >= 128:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        zoo.train(**PPO, train_steps=256, run_dir='run', log_every=64, callbacks=[interrupt])
    agent, result = zoo.resume('run', train_steps=384, verbose=0)
    assert (result.steps, agent.steps) == (256, 384)


def test_what_a_run_cannot_go_on_with_names_the_way_that_there_is(trained):
    with pytest.raises(ValueError) as refused:
        zoo.resume(trained / 'first', train_steps=512, learning_rate=1e-4)
    told = 'first goes on as it was begun, so learning_rate cannot be given. A new run begins with its weights: '
    new = f"zoo.train('PPO', 'Pendulum-v1', start_from='{trained / 'first'}', learning_rate=…)."
    assert str(refused.value) == told + new
    with pytest.raises(ValueError, match='did you mean .log_every'):
        zoo.resume(trained / 'first', train_steps=512, log_evry=3)


class Interrupt:
    """A callback that interrupts a training as Ctrl-C does."""

    steers = False

    def __init__(self, every: int) -> None:
        self.every = every

    def __call__(self, training):
        raise KeyboardInterrupt


@pytest.mark.parametrize(('at', 'goes_on'), [(320, 256), (64, 64)])
def test_an_exact_resume_goes_on_from_the_last_checkpoint_that_was_due(at, goes_on, capsys, caplog):
    asked = {**PPO, 'train_steps': 512, 'checkpoint_every': 128, 'exact_resume': True}
    whole, _ = zoo.train(**asked, run_dir='whole')
    with pytest.raises(KeyboardInterrupt):
        zoo.train(**asked, run_dir='cut', callbacks=[Interrupt(at)])
    capsys.readouterr()
    agent, result = zoo.resume('cut', verbose=0)
    assert result.steps == 512 - goes_on
    told = f'exact_resume goes on from the checkpoint at step 256, not from the interruption at step {at}.\n'
    warned = [text for text in caplog.messages if text.startswith(f'exact_resume: the agent was saved at step {at}')]
    equal = all(np.array_equal(value, arrays(whole)[name]) for name, value in arrays(agent).items())
    file = zoo.as_config('cut')
    if goes_on == at:
        assert len(warned) == 1 and not equal and 'before a checkpoint was due, and resumed there' in file
    else:
        assert capsys.readouterr().err == told and not warned and equal and 'may not come again' not in file


def test_a_new_run_begins_with_weights_and_statistics_and_nothing_else():
    first = zoo.train(**PPO, train_steps=256, run_dir='first', gamma=0.9, learning_rate=1e-3).agent
    beginning, saved = Beginning(), arrays(first)
    given = {name: value for name, value in PPO.items() if name not in ('net', 'normalize_obs')}
    given |= {'clip_range': 0.1, 'learning_rate': Linear(1e-4), 'train_steps': 64}
    second, result = zoo.train(**given, run_dir='second', start_from='first', callbacks=[beginning], seed=5)
    assert (second.gamma, second.clip_range, second.normalize_obs) == (0.9, 0.1, True)  # of the saved one, and new ones
    assert second.optimizers_list[0]['learning_rate'] == Linear(1e-4) and second.net_list[0]['hidden'] == [8]
    kinds = {'network/': True, 'statistics/': True, 'log_std': True, 'optimizer/': False, 'steps': False}
    for start, same in kinds.items():
        names = [name for name in saved if name.startswith(start)]
        assert names, start
        equal = all(np.array_equal(saved[name], beginning.state[name]) for name in names)
        assert equal is same, start
    assert beginning.steps == 0
    assert (result.steps, second.steps) == (64, 64)
    config = json.loads(open('second/config.json').read())
    assert config['start_from'] == 'first/checkpoints/000000256'
    for name, value in arrays(zoo.load('first')).items():
        np.testing.assert_array_equal(value, saved[name])  # the first run stays as it is


def test_what_no_optimizer_moves_comes_along():
    given = {'alg': 'TRPO', 'env_id': 'Pendulum-v1', 'horizon': 64, 'batch_size': 32, 'run_dir': False, **FEW}
    first = zoo.train(**given, train_steps=128).agent
    learned = first.policy.log_std.numpy()
    assert np.abs(learned - first.log_std_init).max() > 0
    beginning = Beginning()
    rest = {name: value for name, value in given.items() if name != 'net'}
    zoo.train(**rest, train_steps=64, start_from=first, callbacks=[beginning])
    np.testing.assert_array_equal(beginning.state['log_std'], learned)


def test_targets_and_the_temperature_come_along():
    given = {'alg': 'SAC', 'env_id': 'Pendulum-v1', 'explore_steps': 20, 'batch_size': 16, **FEW}
    first = zoo.train(**given, train_steps=60, run_dir='first').agent
    beginning, saved = Beginning(), arrays(first)
    rest = {name: value for name, value in given.items() if name != 'net'} | {'train_steps': 10}
    second = zoo.train(**rest, run_dir=False, start_from=first, callbacks=[beginning]).agent
    for start in ('network/', 'target/', 'log_alpha'):
        names = [name for name in saved if name.startswith(start)]
        assert names and all(np.array_equal(saved[name], beginning.state[name]) for name in names), start
    assert second.updates == 0 and len(second.replay) == 10  # the replay buffer began empty
    for name, value in arrays(first).items():
        np.testing.assert_array_equal(value, saved[name])  # an agent that is given is not trained itself


def test_a_fixed_temperature_is_the_new_one():
    given = {'alg': 'SAC', 'env_id': 'Pendulum-v1', 'explore_steps': 20, 'batch_size': 16, 'train_steps': 30, **FEW}
    first = zoo.train(**given, run_dir=False, alpha=0.7).agent
    rest = {name: value for name, value in given.items() if name != 'net'}
    second = zoo.train(**rest, run_dir=False, start_from=first, alpha=0.1).agent
    assert np.exp(second.log_alpha.numpy()) == pytest.approx(0.1)
    third = zoo.train(**rest, run_dir=False, start_from=first, alpha='auto').agent  # learned from there
    assert np.exp(third.log_alpha.numpy()) == pytest.approx(0.7, abs=0.02)


def test_another_seed_of_a_run_that_goes_on_is_refused(caplog):
    zoo.train(**PPO, train_steps=64, run_dir='run')
    with pytest.raises(ValueError, match='seed=5 begins another training, and run goes on with its own random numbers'):
        zoo.resume('run', train_steps=128, seed=5)
    agent = zoo.resume('run', train_steps=128, seed=0, verbose=0).agent
    assert 'changes nothing' not in caplog.text
    agent.loop_state = {'steps': 128, 'train_steps': 128}
    more = {'train_steps': 192, 'horizon': 64, 'epochs': 2, 'resume': True, 'verbose': 0, 'run_dir': 'run'}
    agent.learn(zoo.build_env('Pendulum-v1'), seed=5, **more)
    assert 'seed=5 changes nothing: the training goes on with its own random numbers.' in caplog.text


@pytest.mark.full
def test_the_file_of_such_a_run_trains_it_again(capsys):
    zoo.train(**PPO, train_steps=64, run_dir='first')
    line = 'train ppo Pendulum-v1 --from first --steps 64 --set horizon=64 --no-evaluate --nenv 1 --quiet'
    assert main([*line.split(), '--run-dir', 'second']) == 0
    assert 'PPO on Pendulum-v1, seed 0, from first' in capsys.readouterr().err
    zoo.train(**PPO, train_steps=64, run_dir='first_of_another_seed', seed=1)
    with open('run.yaml', 'w') as file:
        file.write(zoo.as_config('second'))
    assert main(['train', '--config', 'run.yaml', '--run-dir', 'third', '--quiet']) == 0
    expected, found = (arrays(zoo.load(run)) for run in ('second', 'third'))
    for name, value in expected.items():
        np.testing.assert_array_equal(value, found[name], name)
    zoo.train(
        **{**PPO, 'net': None, 'normalize_obs': True}, train_steps=64, run_dir='fourth', start_from=zoo.load('first')
    )
    assert 'it began with an agent of a program' in zoo_refusal('fourth')


@pytest.mark.parametrize(
    ('given', 'told'),
    [
        (
            {'alg': 'A2C'},
            "first/checkpoints/000000064' is a PPO agent, and A2C cannot begin with its weights: train PPO",
        ),
        ({'env_id': 'CartPole-v1'}, 'cannot begin a training here: the observation_space is'),
        ({'env_id': 'MountainCarContinuous-v0'}, 'cannot begin a training here: the observation_space is'),
        ({'net': '16'}, "net='16' changes the networks, but they are the saved ones: leave it out"),
        ({'recurrent': 'lstm'}, "recurrent='lstm' changes the networks"),
        ({'start_from': 'none'}, "unknown run 'none'"),
        ({'start_from': 3}, 'a run is given by the path of its folder or by its name in runs, not by 3'),
        ({'gama': 0.9}, "did you mean 'gamma'"),
        (
            {'log_std_init': -1.0},
            'log_std_init is where a new agent.s σ begins, but start_from takes the σ that was learned',
        ),
        (
            {'normalize_obs': False},
            'the saved agent normalizes its observations, so its weights mean nothing otherwise',
        ),
    ],
)
def test_what_no_run_can_begin_with_is_refused(given, told, trained, monkeypatch):
    monkeypatch.setenv('ZOO_RUNS', str(trained))
    call = {'alg': 'PPO', 'env_id': 'Pendulum-v1', 'start_from': 'first', 'run_dir': 'second', 'train_steps': 64}
    with pytest.raises(ValueError, match=told):
        zoo.train(**call | given)
    assert not Path('second').exists()


def test_steps_in_all_are_counted_from_the_beginning_of_the_run():
    first = zoo.train(**PPO, train_steps=64, run_dir='first')
    env = zoo.build_env('Pendulum-v1')
    settings = {'horizon': 64, 'epochs': 2, 'verbose': 0}
    first.agent.learn(env, train_steps=64, run_dir='second', **settings)
    beginning = Beginning()
    agent, result = zoo.resume('second', train_steps=128, callbacks=[beginning], verbose=0)
    assert (result.steps, agent.steps, beginning.progress) == (64, 192, 0.5)
    found = zoo.open_run('second')
    assert (found.steps, found.end, found.train_steps) == (192, 192, 128)
    with pytest.raises(ValueError, match='second has 128 steps behind it, so 100 in all leave nothing to do'):
        zoo.resume('second', train_steps=100)


def test_a_resumed_run_still_says_what_it_began_with_and_what_was_changed(trained):
    zoo.train(**{**PPO, 'net': None}, train_steps=64, run_dir='run', start_from=trained / 'first')
    origin = zoo.open_run('run').config['start_from']
    zoo.resume('run', train_steps=128, horizon=32, verbose=0)
    zoo.resume('run', train_steps=192, verbose=0, log_every=64)
    config = zoo.open_run('run').config
    assert config['start_from'] == origin and config['resumed_with'] == ['horizon']


def test_what_would_change_nothing_beside_other_networks_is_refused(trained):
    agent = zoo.open_run(trained / 'first').load()
    with pytest.raises(ValueError, match='net_list says other networks than the given agent has: leave net_list out'):
        zoo.train('PPO', 'Pendulum-v1', start_from=agent, net_list=[{'hidden': [4]}] * 2, run_dir=False)
    for name, value in (('dtype', 'mixed_bfloat16'), ('recurrent', 'lstm'), ('layers', 'tensorlayer')):
        with pytest.raises(ValueError, match=f'^{name}={value!r} is for the default networks.*write {name} into its'):
            zoo.train('PPO', 'Pendulum-v1', net_list=[{'hidden': [4]}] * 2, run_dir=False, **{name: value})


def test_the_seed_fixes_the_first_weights_of_specs_in_net_list():
    params = {**PPO, 'net': None, 'train_steps': 2, 'run_dir': False}
    first, same, other = (
        zoo.train(**params, seed=seed, net_list=[{'hidden': [8]}, {'hidden': [8]}]).agent for seed in (3, 3, 4)
    )
    weights = [agent.trainable_variables[0].numpy() for agent in (first, same, other)]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_a_resumed_run_says_which_callbacks_it_goes_on_without(caplog):
    def mine(training: Any) -> None:
        """Do nothing."""

    few = {'run_dir': 'runs/first', 'callbacks': [mine, Evaluate(every=32, episodes=1)]}
    zoo.train(**PPO, train_steps=64, **few)
    zoo.resume('first', train_steps=128, verbose=0)
    assert 'first goes on without mine, Evaluate: a program gives its callbacks again' in caplog.text
    caplog.clear()
    zoo.resume('first', train_steps=192, verbose=0, callbacks=few['callbacks'])
    assert 'goes on without' not in caplog.text


def test_a_run_that_is_being_trained_says_so_and_is_not_resumed(capsys):
    def look(training: Any) -> None:
        assert main(['list', 'runs']) == main(['show', 'first']) == 0
        with pytest.raises(ValueError, match='first is being trained now: wait until that has ended'):
            zoo.resume('first', train_steps=999)

    zoo.train(**PPO, train_steps=64, run_dir='runs/first', callbacks=[look])
    told = capsys.readouterr().out
    assert 'of 64, training now' in told and '0 steps; it is being trained now' in told
    assert not zoo.open_run('first').is_training
