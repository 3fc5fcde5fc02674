"""What ``learn`` checks and does around the loops, and what is saved of it."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest
import toys
from gymnasium.spaces import Box, Discrete

import zoo
from zoo import algorithms, build_env
from zoo.algorithms.base import Algorithm, saving
from zoo.callbacks import Callback
from zoo.common.training import checkpoint
from zoo.common.training.checkpoint import CheckpointError

VECTOR = toys.OBSERVATIONS['vector']
IMAGE = Box(0, 255, (8, 8, 1), np.uint8)
OFF = {'train_steps': 30, 'explore_steps': 10, 'batch_size': 4, 'buffer_size': 100, 'verbose': 0}
ON = {'train_steps': 32, 'horizon': 16, 'epochs': 1, 'batch_size': 8, 'verbose': 0}


@pytest.fixture(autouse=True)
def plain(plain_graphs: Any) -> None:
    """Compiling by XLA takes seconds."""


def dqn(**params: Any) -> Algorithm:
    params = {'net_list': [{'hidden': [4], 'seed': 0}], 'target_update_every': 5} | params
    return algorithms.DQN(VECTOR, Discrete(3), **params)


def ppo() -> Algorithm:
    return algorithms.PPO(VECTOR, Discrete(3), net_list=[{'hidden': [4], 'seed': i} for i in (0, 1)])


def world(**kwargs: Any) -> Any:
    return build_env(lambda: toys.AnySpaces(VECTOR, Discrete(3)), seed=0, **kwargs)


def weights(agent: Algorithm) -> np.ndarray:
    return np.concatenate([v.numpy().ravel() for v in agent.trainable_variables])


class TestSeeds:
    def test_a_test_leaves_the_streams_alone(self):
        one, two = dqn(), dqn()
        for agent in (one, two):
            agent.learn(world(), seed=3, run_dir=False, **OFF)
        two.learn(world(), 'test', seed=7, test_episodes=1)
        np.testing.assert_array_equal(one.rng.random(3), two.rng.random(3))
        np.testing.assert_array_equal(one.noise_seed, two.noise_seed)

    def test_a_later_call_with_the_same_seed_goes_on_with_new_numbers(self):
        agent = dqn(epsilon=1.0)
        taken: list[list[int]] = []
        for _ in range(2):
            agent.learn(world(), seed=3, run_dir=False, **OFF)
            taken.append(agent.replay.action[agent.replay.valid].tolist())
        assert taken[0] != taken[1][len(taken[0]) :]

    @pytest.mark.full
    def test_and_stays_reproducible_across_saving(self, tmp_path):
        ends = []
        for saves in (False, True):
            agent = dqn()
            agent.learn(world(), seed=3, run_dir=False, **OFF)
            if saves:
                agent.save(tmp_path / 'saved', buffer=True)
                agent = zoo.load(tmp_path / 'saved')
            agent.learn(world(), seed=3, run_dir=False, **OFF)
            ends.append(weights(agent))
        np.testing.assert_array_equal(*ends)


class WithoutEnd(Callback):
    def end(self) -> None:
        raise AssertionError


class TestSettings:
    @pytest.mark.parametrize(
        ('params', 'message'),
        [
            ({'callbacks': print}, 'callbacks is .*: give a list of functions, such as callbacks=\\[function\\]'),
            ({'callbacks': [3]}, 'callbacks has 3 in it: give functions of a Training'),
            ({'callbacks': [lambda: None]}, 'callbacks has .* in it, which does not take one argument, a Training'),
            ({'callbacks': [lambda one, two: None]}, 'callbacks has .* in it, which does not take one argument, a'),
            ({'callbacks': [WithoutEnd()]}, r'callbacks has .* in it, whose end does not take \(training\)'),
            ({'plot_func': 'yes'}, "plot_func is 'yes': give a function"),
            ({'plot_func': lambda: None}, 'plot_func is .*: give a function'),
            ({'buffer_size': 30}, 'buffer_size is 30, which cannot hold a batch of batch_size=256: give at least as'),
            (
                {'total_timesteps': 10},
                "unknown parameter of DQN's learn 'total_timesteps': it is called 'train_steps' here",
            ),
            ({'gamma': 0.9}, "'gamma' is a parameter of DQN, not of learn"),
            ({'train_steps': 0}, 'train_steps is 0: give a whole number of at least 1'),
            ({'train_steps': 1.5}, 'train_steps is 1.5: give a whole number of at least 1'),
            ({'sample_timeout': 0}, 'sample_timeout is 0: give a number above 0'),
            (
                {'sample_timeout': 5},
                'sample_timeout=5 ends an environment in another process, but this one runs in this',
            ),
            ({'checkpoint_buffer': 'yes'}, "checkpoint_buffer is 'yes': give True or False"),
        ],
    )
    def test_one_sentence_each(self, params: dict[str, Any], message: str):
        with pytest.raises(ValueError, match=f'^{message}'):
            dqn().learn(world(), run_dir=False, **params)

    @pytest.mark.parametrize(('roles', 'copies'), [(None, 2), ({'learners': 1, 'actors': 3}, 6)])
    def test_a_buffer_that_holds_less_than_n_step_of_a_copy(self, roles: Any, copies: int):
        # Before any process is started.
        message = (
            rf'^buffer_size is {copies * 4}, 4 for each of {copies} copies .* n_step=5: give at least {copies * 5}'
        )
        with pytest.raises(ValueError, match=message):
            given = OFF | {'batch_size': 8, 'buffer_size': copies * 4, 'roles': roles}
            dqn(n_step=5).learn(world(nenv=2), run_dir=False, **given)

    @pytest.mark.parametrize('timeout', [None, 5.0])
    def test_copies_in_processes_are_given_the_time_limit(self, timeout: float | None):
        env = build_env('CartPole-v1', nenv=2, vectorized='async')
        agent = algorithms.DQN(env.single_observation_space, env.single_action_space, net_list=[{'hidden': [4]}])
        agent.learn(env, run_dir=False, sample_timeout=timeout, **OFF)
        assert env.sample_timeout == timeout
        env.close()

    def test_a_minibatch_of_one_has_nothing_to_compare(self):
        with pytest.raises(ValueError, match='^batch_size is 1: give a whole number of at least 2'):
            ppo().learn(world(), run_dir=False, batch_size=1)
        with pytest.raises(ValueError, match='^an iteration of one transition has no advantages to compare'):
            ppo().learn(world(), run_dir=False, horizon=1)

    def test_steps_may_be_written_as_a_float(self):
        assert dqn().learn(world(), run_dir=False, **(OFF | {'train_steps': 3e1})).steps == 30

    @pytest.mark.parametrize('name', ['callbacks', 'plot_func', 'run_dir', 'resume'])
    def test_what_belongs_to_training_is_refused_in_a_test(self, name: str, tmp_path):
        value = {'callbacks': [print], 'plot_func': print, 'run_dir': tmp_path, 'resume': True}[name]
        with pytest.raises(ValueError, match=f'^{name} belongs to training: leave it out of a test'):
            dqn().learn(world(), 'test', **{name: value})

    def test_a_batch_larger_than_an_iteration_is_said(self, caplog):
        ppo().learn(world(), run_dir=False, **(ON | {'batch_size': 500}))
        assert caplog.messages == ['batch_size is 500, but an iteration has 16 transitions: one minibatch of these.']

    def test_the_agent_trains_in_spaces_that_mean_the_same(self):
        image = Box(0, 255, (8, 8, 3), np.uint8)
        agent = algorithms.DQN(image, Discrete(2), net_list=[{'hidden': [4], 'features': 4}])
        other = toys.AnySpaces(Box(0, 1, (8, 8, 3), np.uint8), Discrete(2))
        with pytest.raises(ValueError, match="^the environment's observation_space has images .*: make an agent for"):
            agent.learn(other, run_dir=False)

    def test_an_agent_trains_once_at_a_time(self):
        agent = dqn()

        def nested(training: Any) -> None:
            agent.learn(world(), run_dir=False, **OFF)

        with pytest.raises(ValueError, match='^this agent is training: a callback may test it in a second environment'):
            agent.learn(world(), run_dir=False, callbacks=[nested], **OFF)
        agent.learn(
            world(), run_dir=False, callbacks=[lambda t: agent.learn(world(), 'test', test_episodes=1) and None], **OFF
        )

    @pytest.mark.full(but='space0-4-the observation has the value 4, but Discrete')
    @pytest.mark.parametrize(
        ('space', 'given', 'message'),
        [
            (Discrete(4), 4, 'the observation has the value 4, but Discrete'),
            (Discrete(4), 1.5, 'this is an observation with the value 1.5, which the int64 of its space cannot hold'),
            (Discrete(4), '3', 'this is an observation of shape () and dtype <U1, but its space declares () and int64'),
            (
                VECTOR,
                np.float32([np.nan, 0, 0]),
                'this is an observation with the value nan, which is no finite number',
            ),
            (VECTOR, [np.inf, 0, 0], 'this is an observation with the value inf, which is no finite number'),
            (
                Box(0, 255, (8, 8, 1), np.uint8),
                np.full((8, 8, 1), 0.5),
                'this is an observation with the value 0.5, which the uint8',
            ),
            (
                Box(0, 255, (8, 8, 1), np.uint8),
                np.full((8, 8, 1), 300),
                'this is an observation with the value 300, which the uint8',
            ),
            (
                VECTOR,
                (np.zeros(3), {}),
                'the pair (observation, info) of reset() was given, but an observation is',
            ),
            (VECTOR, {'a': 1}, 'a dict was given, but an observation is an element of Box'),
        ],
    )
    def test_predict_refuses_what_is_not_in_the_space(self, space: Any, given: Any, message: str):
        agent = algorithms.PPO(space, Discrete(2), net_list=[{'hidden': [4], 'features': 4}] * 2)
        agent.predict(space.sample())
        with pytest.raises(ValueError, match=f'^{re.escape(message)}'):
            agent.predict(given)

    def test_the_next_step_acts_with_the_weights_that_a_callback_set(self):
        taken: list[int] = []

        class Noting(toys.AnySpaces):
            def step(self, action: Any) -> Any:
                taken.append(int(action))
                return super().step(action)

        def push(training: Any) -> None:
            training.agent.networks['actor'].head.layers[-1].bias.assign([0.0, 99.0, 0.0])

        env = Noting(VECTOR, Discrete(3))
        ppo().learn(env, train_steps=40, horizon=20, epochs=1, callbacks=[push], run_dir=False, verbose=0, seed=0)
        assert set(taken[:20]) == {0, 1, 2} and taken[20:] == [1] * 20

    def test_a_callback_may_answer_as_numpy_does(self):
        result = dqn().learn(world(), run_dir=False, callbacks=[lambda t: np.False_], log_every=10, **OFF)
        assert result.steps == 10


class TestWithoutAnUpdate:
    @pytest.mark.parametrize('params', [{'explore_steps': 500}, {'batch_size': 90}, {'update_every': 100}])
    def test_is_said_with_the_numbers(self, params: dict[str, int], caplog):
        agent = dqn()
        agent.learn(world(), run_dir=False, **(OFF | params))
        (message,) = caplog.messages
        assert message.startswith('Nothing was learned: no update was due in the 30 steps of this training')
        for name, value in params.items():
            assert f'{name}={value}' in message
        # The cause alone is named.
        assert ('update_every' in message) == ('update_every' in params) != ('explore_steps' in message)
        assert message.endswith('the next one at step 100.') or 'update_every' not in params

    def test_a_usual_run_says_nothing(self, caplog):
        dqn().learn(world(), run_dir=False, **OFF)
        assert caplog.messages == []


class TestResume:
    def interrupted(self, path: Path, at: int, **params: Any) -> Algorithm:
        def interrupt(training: Any) -> None:
            if training.steps >= at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            dqn().learn(world(), seed=0, run_dir=path, callbacks=[interrupt], log_every=1, **(OFF | params))
        return zoo.load(path)

    def test_exploration_counts_on(self, tmp_path, caplog):
        agent = self.interrupted(tmp_path, 6)
        caplog.clear()
        agent.learn(world(), run_dir=False, resume=True, **{k: v for k, v in OFF.items() if k != 'train_steps'})
        assert (agent.steps, agent.updates) == (30, 21), 'one after each step from the tenth of its life'
        assert caplog.messages[0].startswith('The replay buffer holds 0 transitions of the 6 steps')

    @pytest.mark.full
    def test_a_lost_buffer_is_filled_again_and_that_is_said(self, tmp_path, caplog):
        agent = self.interrupted(tmp_path, 15)
        caplog.clear()
        before = agent.updates
        agent.learn(world(), run_dir=False, resume=True, **{k: v for k, v in OFF.items() if k != 'train_steps'})
        assert agent.steps == 30 and agent.updates - before == 6
        assert 'the next 10 steps are collected without an update' in caplog.messages[0]

    def test_train_steps_is_where_it_ends(self, tmp_path):
        agent = self.interrupted(tmp_path, 12)
        agent.learn(world(), run_dir=False, resume=True, **(OFF | {'train_steps': 20}))
        assert agent.steps == 20

    @pytest.mark.full
    def test_curves_and_means_go_on_with_the_episodes_before(self, tmp_path):
        agent = self.interrupted(tmp_path, 15)
        params = OFF | {'train_steps': 30, 'log_every': 1}
        told: list[list[float]] = []
        result = agent.learn(
            world(), run_dir=tmp_path, resume=True, plot_func=lambda returns: told.append(list(returns)), **params
        )
        with open(tmp_path / 'monitor.csv') as file:
            rows = list(csv.DictReader(file.readlines()[1:]))
        assert told[-1] == pytest.approx([float(row['r']) for row in rows], abs=1e-6)
        assert 0 < len(result.returns) < len(rows) and result.returns == told[-1][-result.episodes :]
        assert all(15 < step <= 30 for step in result.episode_steps)
        with open(tmp_path / 'progress.csv') as file:
            last = list(csv.DictReader(file))[-1]
        assert int(float(last['episode/count'])) == len(rows)
        assert float(last['episode/length']) == pytest.approx(np.mean([int(row['l']) for row in rows]))

    @pytest.mark.full
    def test_a_call_that_failed_before_it_began_does_not_use_it_up(self, tmp_path):
        agent = self.interrupted(tmp_path / 'run', 12)
        (tmp_path / 'file').touch()
        with pytest.raises(NotADirectoryError):
            agent.learn(world(), run_dir=tmp_path / 'file', resume=True, **(OFF | {'train_steps': 30}))
        agent.learn(world(), run_dir=False, resume=True, **(OFF | {'train_steps': 30}))
        assert agent.steps == 30

    def test_an_end_that_lies_behind_is_refused(self, tmp_path):
        agent = self.interrupted(tmp_path, 12)
        with pytest.raises(
            ValueError, match='^resume=True goes on from step 12 of its training, so 12 steps in all leave'
        ):
            agent.learn(world(), run_dir=False, resume=True, **(OFF | {'train_steps': 12}))


class TestReplayBuffer:
    def test_another_size_is_refused_rather_than_emptied(self):
        agent = dqn()
        agent.learn(world(), run_dir=False, **OFF)
        held = len(agent.replay)
        with pytest.raises(
            ValueError, match=rf'^the replay buffer holds {held} transitions, with buffer_size=100, but'
        ):
            agent.learn(world(), run_dir=False, **OFF | {'buffer_size': 60})
        assert len(agent.replay) == held
        agent.replay = None
        agent.learn(world(), run_dir=False, **OFF | {'buffer_size': 60})

    @pytest.mark.full
    def test_other_copies_go_on_with_it(self, tmp_path):
        agent = dqn()
        agent.learn(world(), run_dir=False, **OFF)
        held = len(agent.replay)
        loaded = zoo.load(agent.save(tmp_path / 'saved', buffer=True))
        for trained in (agent, loaded):
            taken = trained.replay_for(100, 2)
            assert (taken.num_envs, len(taken)) == (2, held)
            trained.learn(world(nenv=2), run_dir=False, **OFF)

    @pytest.mark.full
    def test_a_saved_one_is_not_spoilt_by_a_wrong_size(self, tmp_path):
        agent = dqn()
        agent.learn(world(), run_dir=False, **OFF)
        loaded = zoo.load(agent.save(tmp_path / 'saved', buffer=True))
        for _ in range(2):
            with pytest.raises(ValueError, match='train on with the same buffer_size'):
                loaded.learn(world(), run_dir=False, **(OFF | {'buffer_size': 300}))
        loaded.learn(world(), run_dir=False, **OFF)
        assert len(loaded.replay) > 30

    def test_a_loaded_one_is_saved_again_before_training(self, tmp_path):
        agent = dqn()
        agent.learn(world(), run_dir=False, **OFF)
        agent.save(tmp_path / 'one', buffer=True)
        zoo.load(tmp_path / 'one').save(tmp_path / 'two', buffer=True)
        one, two = (checkpoint.read(tmp_path / name).buffer for name in ('one', 'two'))
        assert two is not None and set(one) == set(two)
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])


class TestFailures:
    class Breaks(toys.AnySpaces):
        """Raises at its 25th step."""

        taken = 0

        def step(self, action: Any) -> Any:
            self.taken += 1
            if self.taken == 25:
                raise RuntimeError('the cable came off')
            return super().step(action)

    def test_an_error_of_the_environment_leaves_a_checkpoint(self, tmp_path, caplog):
        agent = dqn()
        env = self.Breaks(VECTOR, Discrete(3))
        with pytest.raises(RuntimeError, match='the cable came off'):
            agent.learn(env, run_dir=tmp_path, **OFF)
        loaded = zoo.load(tmp_path)
        assert loaded.steps == 24 and loaded.loop_state == {'steps': 24, 'train_steps': 30, 'scheduled': False}
        np.testing.assert_array_equal(weights(loaded), weights(agent))
        assert f'The last good checkpoint: {tmp_path}' in caplog.text

    def test_so_does_one_of_a_callback(self, tmp_path):
        def fail(training: Any) -> None:
            if training.steps >= 20:
                raise KeyError('mine')

        with pytest.raises(KeyError, match='mine'):
            dqn().learn(world(), run_dir=tmp_path, callbacks=[fail], log_every=1, **OFF)
        assert zoo.load(tmp_path).steps == 20

    def test_not_where_the_weights_are_no_numbers(self, tmp_path):
        agent = dqn()

        def spoil(training: Any) -> None:
            if training.steps >= 20:
                agent.trainable_variables[0].assign(agent.trainable_variables[0] * np.nan)
                raise KeyError('mine')

        with pytest.raises(KeyError):
            agent.learn(world(), run_dir=tmp_path, callbacks=[spoil], log_every=1, **OFF)
        assert not (tmp_path / 'checkpoints').exists()

    def test_an_interrupt_tells_last_where_the_agent_is(self, tmp_path):
        def interrupt(training: Any) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt, match=rf'^training was interrupted at step 5 of 30; saved in {tmp_path}'):
            dqn().learn(world(), run_dir=tmp_path, callbacks=[interrupt], log_every=5, **OFF)
        assert zoo.load(tmp_path).steps == 5

    def test_a_full_disk_is_told_in_a_sentence(self, tmp_path, monkeypatch):
        def full(*args: Any) -> None:
            raise OSError(28, 'No space left on device')

        agent = dqn()
        agent.save(tmp_path / 'saved')
        told = r"saved' could not be written, and nothing was changed: .*No space left"
        with monkeypatch.context() as patch, pytest.raises(CheckpointError, match=told):
            patch.setattr('zoo.common.training.checkpoint.save_file', full)
            agent.save(tmp_path / 'saved')
        zoo.load(tmp_path / 'saved')


class TestNewest:
    def test_by_number_and_not_as_text(self, tmp_path, monkeypatch):
        monkeypatch.setattr(saving.time, 'time', lambda: 1.0)
        agent = dqn()
        for steps in (999_999_990, 1_000_000_010):
            agent.steps = steps
            agent.save(tmp_path / 'checkpoints' / f'{steps:09d}')
        assert zoo.load(tmp_path).steps == 1_000_000_010

    def test_of_the_run_that_came_last(self, tmp_path):
        dqn().learn(world(), run_dir=tmp_path, **(OFF | {'train_steps': 60}))
        last = dqn()
        last.learn(world(), run_dir=False, **OFF)
        last.save(tmp_path / 'checkpoints' / '000000030')
        assert sorted(path.name for path in (tmp_path / 'checkpoints').iterdir()) == ['000000030', '000000060']
        assert zoo.load(tmp_path).steps == 30


class TestIntegerVectors:
    @pytest.mark.full
    def test_without_saved_statistics_stay_as_they_are(self, tmp_path):
        """As in checkpoints that were written before integers were normalized."""
        space = Box(0, 9, (3,), np.int64)
        agent = algorithms.DQN(space, Discrete(3), normalize_obs=True, net_list=[{'hidden': [4]}])
        agent.save(tmp_path / 'saved')
        saved = checkpoint.read(tmp_path / 'saved')
        arrays = {name: x for name, x in saved.arrays.items() if not name.startswith('statistics/')}
        assert len(arrays) < len(saved.arrays)
        checkpoint.write(tmp_path / 'old', saved.config, arrays)
        old = zoo.load(tmp_path / 'old')
        assert old.statistics == {}
        old.learn(toys.AnySpaces(space, Discrete(3)), run_dir=False, **OFF)
        zoo.load(old.save(tmp_path / 'again'))


class TestBrokenConfigurations:
    def broken(self, path: Path, change: Any) -> Path:
        dqn().save(path)
        body = json.loads((path / 'config.json').read_text())
        change(body['config'])
        del body['sha256']
        body['sha256'] = checkpoint.json_sha256(body)
        (path / 'config.json').write_text(json.dumps(body))
        return path

    @pytest.mark.full
    @pytest.mark.parametrize(
        'change',
        [
            lambda c: c.pop('params'),
            lambda c: c.pop('net_list'),
            lambda c: c.pop('steps'),
            lambda c: c.update(observation_space={'type': 'Box'}),
            lambda c: c.update(params=[1, 2]),
            lambda c: c.update(rng={'bit_generator': 'Dice'}),
            lambda c: c['params'].update(discount=0.9),
        ],
    )
    def test_with_right_checksums_are_refused_in_a_sentence(self, tmp_path, change: Any):
        with pytest.raises(CheckpointError, match=r"^'.*saved' cannot be loaded: .*\.$"):
            zoo.load(self.broken(tmp_path / 'saved', change))


class TestDefaults:
    def test_the_type_may_be_left_out(self):
        env = build_env('Pendulum-v1', 'classic_control')
        assert zoo.call_default_params(env, alg='TD3', seed=1) == zoo.call_default_params(
            env, 'classic_control', 'TD3', seed=1
        )
        with pytest.raises(ValueError, match='^build_env did not make this environment, so its type is not known'):
            zoo.call_default_params(gymnasium.make('Pendulum-v1'), alg='TD3')

    def test_the_algorithm_where_the_type_belongs(self):
        with pytest.raises(ValueError, match="^'PPO' is given where the type of the environment belongs: say alg="):
            zoo.call_default_params(build_env('CartPole-v1'), 'PPO')

    def test_a_name_is_no_environment(self):
        with pytest.raises(
            ValueError, match=r"^call_default_params needs an environment, not 'CartPole-v1': make it with"
        ):
            zoo.call_default_params('CartPole-v1', 'classic_control', 'PPO')


def test_a_network_that_another_agent_has_trained_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    network = keras.Sequential([keras.Input(VECTOR.shape), keras.layers.Dense(3)])
    told = (
        'net_list[0] (q) was trained by another agent: this training begins with those weights, and both agents share '
        'them. Build a network for each agent.'
    )
    first = dqn(net_list=[network])
    first.learn(world(), run_dir=tmp_path, **OFF)
    first.learn(world(), run_dir=False, **OFF)  # its own
    zoo.load(tmp_path, net_list=[network]).learn(world(), run_dir=False, **OFF)  # which takes the saved weights
    assert told not in caplog.messages
    dqn(net_list=[network]).learn(world(), run_dir=False, **OFF)
    assert caplog.messages.count(told) == 1
    dqn().learn(world(), run_dir=False, **OFF)  # a spec
    assert caplog.messages.count(told) == 1


class TestScheduledValues:
    """What follows a schedule is in the log; nothing else is."""

    def values(self, agent: Algorithm, tmp_path: Path, **params: Any) -> list[dict[str, float]]:
        agent.learn(world(), 'train', train_steps=40, log_every=20, run_dir=tmp_path / 'run', verbose=0, **params)
        rows = list(csv.DictReader((tmp_path / 'run' / 'progress.csv').open()))
        return [{name: float(x) for name, x in row.items() if name.startswith('schedule/')} for row in rows]

    def test_parameters_and_learning_rates(self, tmp_path: Path):
        spec = {'name': 'Adam', 'learning_rate': zoo.Linear(1e-3)}
        agent = dqn(epsilon=zoo.Linear(1.0, 0.5, until=0.5), optimizers_list=[spec])
        found = self.values(agent, tmp_path, explore_steps=4, batch_size=4)
        assert found == [
            {'schedule/epsilon': 0.5, 'schedule/learning_rate/q': 5e-4},
            {'schedule/epsilon': 0.5, 'schedule/learning_rate/q': 0.0},
        ]

    def test_a_schedule_of_keras_goes_by_its_own_updates(self, tmp_path: Path):
        rate = keras.optimizers.schedules.PolynomialDecay(0.1, 1000, 0.0)
        agent = dqn(epsilon=0.1, optimizers_list=[keras.optimizers.SGD(rate)])
        first, last = self.values(agent, tmp_path, explore_steps=4, batch_size=4)
        assert first.keys() == {'schedule/learning_rate/q'}
        assert 0.0 < last['schedule/learning_rate/q'] < first['schedule/learning_rate/q'] < 0.1

    def test_constants_and_what_nothing_reads_are_left_out(self, tmp_path: Path):
        agent = dqn(epsilon=0.1)
        assert isinstance(agent.priority_beta, zoo.Linear)
        assert self.values(agent, tmp_path, explore_steps=4, batch_size=4) == [{}, {}]
        assert self.values(dqn(epsilon=0.1, prioritized=True), tmp_path / 'b', explore_steps=4, batch_size=4)[
            0
        ].keys() == {'schedule/priority_beta'}
