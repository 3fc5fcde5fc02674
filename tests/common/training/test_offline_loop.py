"""Learning from a dataset without a step in the environment, and going on in the environment afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import zoo
from zoo.callbacks import Evaluate
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.datasets.replaying import replay_of
from zoo.common.datasets.writing import written
from zoo.common.sampling import Sampling
from zoo.common.training.offline_loop import next_call, updates_at_once

SPACE, CONTINUOUS, CHOICE = Box(-1.0, 1.0, (2,), np.float32), Box(-2.0, 2.0, (1,), np.float32), Discrete(3)
SMALL = {'hidden': [8], 'activation': 'relu'}


class Untouchable(gymnasium.Env):
    """An environment that no training on a dataset may step or reset."""

    observation_space, action_space = SPACE, CONTINUOUS

    def reset(self, *, seed=None, options=None):
        raise AssertionError('a training on a dataset has reset the environment')

    def step(self, action):
        raise AssertionError('a training on a dataset has taken a step')


class Still(Untouchable):
    """Ten steps of reward 1."""

    def reset(self, *, seed=None, options=None):
        super(Untouchable, self).reset(seed=seed)
        self.left = 10
        return self.observation_space.sample(), {}

    def step(self, action):
        self.left -= 1
        return self.observation_space.sample(), 1.0, self.left == 0, False, {}


class Choosing(Still):
    action_space = CHOICE


def episodes(action_space=CONTINUOUS, lengths=(5, 3, 7), seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for i, length in enumerate(lengths):
        if isinstance(action_space, Discrete):
            action = rng.integers(action_space.n, size=length)
        else:
            action = rng.uniform(-2, 2, (length, *action_space.shape)).astype(np.float32)
        obs = rng.uniform(-1, 1, (length + 1, 2)).astype(np.float32)
        found.append(RecordedEpisode(obs, action, rng.normal(size=length).astype(np.float32), i % 2 == 0, i % 2 == 1))
    return found


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(written(tmp_path / 'data.npz', SPACE, CONTINUOUS, None, episodes()).path)


def made(alg='TD3', action_space=CONTINUOUS, **params):
    cls = getattr(zoo.algorithms, alg)
    return cls(SPACE, action_space, net_list=[{**SMALL, 'seed': i} for i, _ in enumerate(cls.network_names)], **params)


def weights(agent):
    return {name: x for name, x in agent.state().items() if 'noise' not in name}


class TestLearning:
    def test_takes_no_step_and_counts_updates(self, path, tmp_path):
        agent, before = made(), None
        before = agent.network_weights()
        result = agent.learn(Untouchable(), dataset=path, train_updates=60, batch_size=4, run_dir=tmp_path / 'run')
        assert (result.steps, result.episodes, agent.steps, agent.data_steps, agent.updates) == (60, 0, 60, 60, 60)
        assert any((before[name] != x).any() for name, x in agent.network_weights().items())
        config = json.loads((tmp_path / 'run' / 'config.json').read_text())
        assert config['learn_params']['dataset'] == [path]
        assert config['learn_params']['train_updates'] == 60
        loaded = zoo.load(tmp_path / 'run')
        assert (loaded.steps, loaded.data_steps, loaded.updates) == (60, 60, 60)

    @pytest.mark.parametrize('alg', ['DQN', 'Rainbow', 'SAC', 'C51', 'QRDQN'])
    def test_other_algorithms_off_policy(self, alg, tmp_path):
        source = written(tmp_path / 'data.npz', SPACE, CHOICE, None, episodes(CHOICE)).path
        agent = made(alg, CHOICE)
        agent.learn(None, dataset=source, train_updates=4, batch_size=4, run_dir=False, verbose=0)
        assert agent.updates == 4 and agent.weights_are_finite()

    def test_every_transition_is_drawn_and_none_crosses_an_episode(self, path):
        agent = made()
        replay = replay_of(agent, path, agent.action_adaptor, agent.sampling)
        batch = replay.sample((2000,), np.random.default_rng(0))
        known = {
            (*obs, *after): (reward, done)
            for episode in episodes()
            for obs, after, reward, done in zip(
                episode.obs[:-1].tolist(),
                episode.obs[1:].tolist(),
                episode.reward.tolist(),
                [False] * (len(episode.reward) - 1) + [episode.terminated],
                strict=True,
            )
        }
        drawn = {
            (*obs, *after): (reward, done)
            for obs, after, reward, done in zip(
                batch.obs.tolist(),
                batch.next_obs.tolist(),
                batch.reward.tolist(),
                batch.terminated.tolist(),
                strict=True,
            )
        }
        assert drawn == known and len(replay) == len(known) == 15

    def test_without_an_environment(self, path):
        agent = made()
        agent.learn(None, 'train', dataset=path, train_updates=6, batch_size=4, run_dir=False, verbose=0)
        assert agent.updates == 6

    def test_the_same_seed_gives_the_same_weights(self, path):
        found = []
        for _ in range(2):
            agent = made()
            agent.learn(None, dataset=path, train_updates=30, batch_size=4, run_dir=False, verbose=0, seed=3)
            found.append(weights(agent))
        assert all((found[0][name] == found[1][name]).all() for name in found[0])

    def test_normalizes_by_the_dataset_once(self, path):
        agent = made(normalize_obs=True)
        for _ in range(2):
            agent.learn(None, dataset=path, train_updates=2, batch_size=4, run_dir=False, verbose=0)
            obs = np.concatenate([episode.obs[:-1] for episode in episodes()]).astype(np.float64)
            moments = next(iter(agent.statistics.values()))
            assert moments.count == len(obs)
            np.testing.assert_allclose(moments.mean, obs.mean(0), rtol=1e-5)

    def test_the_same_episodes_beside_new_ones_are_not_counted_again(self, path):
        agent = made('TD3BC', normalize_obs=True)
        given = {'batch_size': 4, 'run_dir': False, 'verbose': 0}
        agent.learn(None, dataset=path, train_updates=2, **given)
        for share in (None, 0.5):
            agent.learn(Still(), recorded=path, recorded_share=share, train_steps=2, explore_steps=0, **given)
        assert next(iter(agent.statistics.values())).count == 15 + 4

    def test_a_recurrent_network_learns_from_sequences_of_recorded_steps(self, path):
        net = {**SMALL, 'recurrent': 'gru', 'recurrent_units': 4}
        agent = zoo.algorithms.SAC(SPACE, CONTINUOUS, net_list=[net] * 3, sequence_length=3, burn_in=2)
        agent.learn(None, dataset=path, train_updates=4, batch_size=2, run_dir=False, verbose=0)
        assert agent.updates == 4 and agent.weights_are_finite()

    def test_resumes_exactly(self, path, tmp_path):
        given = {'dataset': path, 'train_updates': 40, 'batch_size': 4, 'verbose': 0}
        whole = made()
        whole.learn(None, **given, run_dir=False, seed=1, log_every=10)

        class Stop:
            every, steers = 10, True

            def __call__(self, training):
                if training.steps == 20:
                    raise KeyboardInterrupt

        agent = made()
        with pytest.raises(KeyboardInterrupt):
            agent.learn(None, **given, run_dir=tmp_path / 'run', seed=1, log_every=10, callbacks=[Stop()])
        agent = zoo.load(tmp_path / 'run')
        result = agent.learn(None, **given | {'resume': True}, run_dir=tmp_path / 'run')
        assert (result.steps, agent.steps) == (20, 40)
        ours, theirs = weights(agent), weights(whole)
        assert all((ours[name] == theirs[name]).all() for name in theirs)


class TestTestsBetween:
    def test_an_environment_object_is_only_tested_in(self, path, tmp_path):
        tests = Evaluate(every=10, episodes=2)
        agent, env = made(), Still()
        given = {'dataset': path, 'train_updates': 30, 'batch_size': 4, 'verbose': 0}
        agent.learn(env, **given, callbacks=[tests], run_dir=tmp_path / 'run')
        assert tests.steps == [10, 20, 30] and tests.returns == [10.0] * 3
        run = zoo.open_run(tmp_path / 'run')
        assert run.curve == ([10, 20, 30], [10.0] * 3)
        assert (run.train_steps, run.dataset) == (30, [path])

    def test_tests_change_nothing(self, path):
        found = []
        for callbacks in ([], [Evaluate(every=10, episodes=1, keep_best=False)]):
            agent = made()
            given = {'dataset': path, 'train_updates': 60, 'batch_size': 4, 'verbose': 0, 'seed': 2}
            agent.learn(Still(), **given, callbacks=callbacks, run_dir=False)
            found.append(weights(agent))
        assert all(np.allclose(found[0][name], found[1][name], atol=1e-6) for name in found[0])

    def test_no_environment_to_test_in(self, path):
        tests = Evaluate(every=10, keep_best=False)
        with pytest.raises(ValueError, match=r'learn was given none: give Evaluate\(env=…\)'):
            made().learn(None, dataset=path, train_updates=30, callbacks=[tests], run_dir=False, verbose=0)


class TestGoingOnInTheEnvironment:
    def test_explores_by_its_policy_and_not_at_random(self, path, monkeypatch):
        agent = made()
        agent.learn(None, dataset=path, train_updates=2, batch_size=4, run_dir=False, verbose=0)
        monkeypatch.setattr(type(agent), 'random_action', lambda *_: pytest.fail('a random action was taken'))
        agent.learn(Still(), train_steps=20, explore_steps=12, batch_size=4, buffer_size=50, run_dir=False, verbose=0)
        assert (agent.steps, agent.data_steps) == (22, 2)
        assert agent.updates == 2 + 9  # after 12 new steps, one for each of the others

    @pytest.mark.parametrize(('epsilon', 'told'), [(0.5, True), (0.05, False)])
    def test_says_that_it_begins_with_random_actions(self, path, caplog, epsilon, told):
        source = written(Path(path).with_name('choices.npz'), SPACE, CHOICE, None, episodes(CHOICE)).path
        agent, env = made('DQN', CHOICE, epsilon=epsilon), Still()
        env.action_space = CHOICE
        agent.learn(None, dataset=source, train_updates=2, batch_size=4, run_dir=False, verbose=0)
        for _ in range(2):  # once: the second call goes on from the environment
            agent.learn(env, train_steps=20, explore_steps=5, batch_size=4, buffer_size=50, run_dir=False, verbose=0)
        assert caplog.text.count('begins with random actions, although the agent has learned from data') == told

    def test_draws_the_asked_share_from_the_recording(self, path, monkeypatch):
        agent, drawn = made(), []
        update_on = type(agent).update_on
        monkeypatch.setattr(type(agent), 'update_on', lambda self, x: drawn.append(x.reward) or update_on(self, x))
        given = {'recorded': path, 'recorded_share': 0.25, 'explore_steps': 5, 'batch_size': 8, 'buffer_size': 50}
        agent.learn(Still(), train_steps=20, **given, run_dir=False, verbose=0)
        for reward in drawn:
            assert reward.shape == (1, 8)
            assert (reward[:, :6] == 1.0).all() and (reward[:, 6:] != 1.0).all()
        assert drawn and len(agent.replay) == 20  # the recorded transitions are elsewhere

    def test_the_share_reaches_priorities_in_both_buffers(self, tmp_path):
        source = written(tmp_path / 'data.npz', SPACE, CHOICE, None, episodes(CHOICE)).path
        env = Still()
        env.action_space = CHOICE
        agent = made('DQN', CHOICE, prioritized=True)
        given = {'recorded': source, 'recorded_share': 0.5, 'explore_steps': 5, 'batch_size': 8, 'buffer_size': 50}
        agent.learn(env, train_steps=20, **given, run_dir=False, verbose=0)
        assert agent.updates and len(np.unique(agent.replay.tree.values[agent.replay.valid])) > 1


class TestToTheEnd:
    def test_sums_and_bootstraps_as_worked_by_hand(self, tmp_path):
        obs = np.arange(8, dtype=np.float32).reshape(4, 2) / 10
        one = RecordedEpisode(obs, np.zeros((3, 1), np.float32), np.array([1, 2, 4], np.float32), False, True)
        two = RecordedEpisode(-obs, np.zeros((3, 1), np.float32), np.array([8, 16, 32], np.float32), True, False)
        path = written(tmp_path / 'data.npz', SPACE, CONTINUOUS, None, [one, two]).path
        agent = made()
        replay = replay_of(agent, path, ActionAdaptor(CONTINUOUS), Sampling(0.5, to_the_end=True))
        replay.sum_to_the_end()
        batch = replay.sample((300,), np.random.default_rng(0))
        found = {
            tuple(np.round(seen, 6).tolist()): (reward, tuple(np.round(last, 6).tolist()), discount)
            for seen, reward, last, discount in zip(
                batch.obs.astype(float), batch.reward.tolist(), batch.next_obs.astype(float), batch.discount.tolist(),
                strict=True,
            )
        }  # fmt: skip
        assert found == {
            (0.0, 0.1): (1 + 1 + 1, (0.6, 0.7), 0.125),
            (0.2, 0.3): (2 + 2, (0.6, 0.7), 0.25),
            (0.4, 0.5): (4, (0.6, 0.7), 0.5),
            (0.0, -0.1): (8 + 8 + 8, (-0.6, -0.7), 0.0),
            (-0.2, -0.3): (16 + 16, (-0.6, -0.7), 0.0),
            (-0.4, -0.5): (32, (-0.6, -0.7), 0.0),
        }


class TestRefusals:
    @pytest.mark.parametrize(
        ('given', 'told'),
        [
            ({'train_steps': 5}, 'give train_updates, the number of gradient updates'),
            ({'train_updates': 5, 'roles': {'learners': 1, 'actors': 1}}, 'roles=None'),
            ({'train_updates': 5, 'render': True}, 'render shows episodes of the training'),
            ({'train_updates': 5, 'plot_func': print}, 'plot_func shows episodes of the training'),
            ({'train_updates': 5, 'recorded': []}, 'an empty list is no dataset'),
            ({'train_updates': 5, 'recorded_share': 0.5}, 'recorded_share is for steps in the environment'),
            ({'train_updates': 5, 'her': {}}, 'give learn the environment, or her=None'),
            ({'train_updates': 0}, 'train_updates is 0'),
        ],
    )
    def test_what_means_nothing_on_a_dataset(self, path, given, told):
        with pytest.raises(ValueError, match=told):
            made().learn(None, dataset=path, run_dir=False, **given)

    @pytest.mark.parametrize('name', ['updates', 'update_every', 'explore_steps', 'buffer_size'])
    def test_what_steers_steps_in_the_environment(self, path, name):
        told = f'{name} is for steps in the environment, but with a dataset none is taken: leave {name} out'
        with pytest.raises(ValueError, match=told):
            made().learn(None, dataset=path, train_updates=5, run_dir=False, **{name: 7})
        with pytest.raises(ValueError, match=told):
            zoo.train('TD3', dataset=path, train_updates=5, run_dir=False, net='4', **{name: 7})

    def test_recorded_episodes_beside_a_dataset(self, path):
        with pytest.raises(ValueError, match='recorded is for steps in the environment, .*give all as dataset'):
            made().learn(None, dataset=path, recorded=path, train_updates=5, run_dir=False)

    def test_a_dataset_is_not_saved_again(self, path, caplog):
        given = {'dataset': path, 'train_updates': 2, 'batch_size': 4, 'run_dir': False, 'verbose': 0}
        made().learn(None, **given, checkpoint_buffer=True)
        assert 'checkpoint_buffer=True changes nothing' in caplog.text

    def test_another_dataset_does_not_move_the_statistics_and_says_so(self, path, caplog):
        given = {'train_updates': 2, 'batch_size': 4, 'run_dir': False, 'verbose': 0}
        agent = made('TD3BC', normalize_obs=True)
        agent.learn(None, dataset=path, **given)
        agent.learn(None, dataset=path, **given)
        assert 'standard deviations away' not in caplog.text
        far = [episode._replace(obs=episode.obs + 50) for episode in episodes()]
        (mean,) = [moments.mean.copy() for moments in agent.statistics.values()]
        agent.learn(None, dataset=zoo.open_dataset(far, SPACE, CONTINUOUS), **given)
        assert 'The mean of the observations in these recorded episodes is' in caplog.text
        np.testing.assert_array_equal(next(iter(agent.statistics.values())).mean, mean)

    def test_updates_without_a_dataset(self):
        with pytest.raises(ValueError, match='train_updates=5 counts updates on a dataset'):
            made().learn(Still(), train_updates=5, run_dir=False)

    @pytest.mark.parametrize(('alg', 'told'), [('TD3BC', True), ('IQL', True), ('CQL', True), ('TD3', False)])
    def test_an_algorithm_for_datasets_says_that_it_has_none(self, alg, told, caplog):
        given = {'train_steps': 2, 'batch_size': 2, 'explore_steps': 10, 'run_dir': False, 'verbose': 0}
        agent = made(alg)
        agent.learn(Still(), **given)
        line = f'{alg} begins without recorded episodes: dataset=… gives it some to learn from.'
        assert (line in caplog.text) == told
        caplog.clear()
        agent.learn(Still(), **given)
        assert 'begins without recorded episodes' not in caplog.text

    def test_no_environment_and_no_dataset(self):
        with pytest.raises(ValueError, match='learn needs an environment'):
            made().learn(None, train_steps=5, run_dir=False)

    def test_other_spaces_leave_no_folder_behind(self, tmp_path):
        source = written(tmp_path / 'data.npz', SPACE, CHOICE, None, episodes(CHOICE)).path
        with pytest.raises(ValueError, match='action_space'):
            made().learn(None, dataset=source, train_updates=5, run_dir=tmp_path / 'run')
        assert not (tmp_path / 'run').exists()

    @pytest.mark.parametrize(
        ('given', 'told'),
        [
            ({'recorded': None}, 'give recorded='),
            ({'her': {'k': 2}}, 'her'),
            ({'recorded_share': 0.01, 'batch_size': 32}, 'less than half a transition'),
        ],
    )
    def test_a_share_of_nothing(self, path, given, told):
        given = {'recorded': path, 'recorded_share': 0.5} | given
        with pytest.raises(ValueError, match=told):
            made().learn(Still(), train_steps=5, run_dir=False, verbose=0, **given)


@pytest.mark.parametrize(
    ('updates', 'size', 'interval', 'expected'),
    [
        (1000, 100, 1000, 50),
        (90, 100, 90, 45),
        (97, 100, 97, 50),
        (7, 100, 7, 7),
        (1000, 10_000_000, 1000, 5),
        (1000, 10**9, 1000, 1),
        (1000, 100, 10, 10),
    ],
)
def test_updates_at_once_divide_the_training_where_that_costs_little(updates, size, interval, expected):
    assert updates_at_once(updates, size, interval) == expected


def test_the_calls_of_a_training():
    def calls(together, at_once, every, end=20):
        found, done = [], 0
        while done < end:
            found.append(next_call(done, end, together, at_once, every))
            done += found[-1][1]
        return found

    assert calls(8, 8, None) == [(0, 8), (8, 8), (16, 4)]
    assert calls(8, 5, None) == [(0, 5), (0, 3), (8, 5), (8, 3), (16, 4)]
    assert calls(8, 8, 9) == [(0, 8), (8, 1), (9, 8), (17, 1), (18, 2)]
    assert calls(8, 3, 9) == [(0, 3), (0, 3), (0, 2), (8, 1), (9, 3), (9, 3), (9, 2), (17, 1), (18, 2)]


@pytest.mark.parametrize(
    ('given', 'of_learn'),
    [({'prioritized': True}, {}), ({'optimizers_list': [{'learning_rate': zoo.Linear(1e-2, 0.0)}]}, {}),
     ({}, {'average_window': 0.5})],
    ids=['prioritized', 'schedule', 'average'],
)  # fmt: skip
def test_who_watches_changes_nothing(given, of_learn):
    class Watching:
        every, steers = 7, False

        def __call__(self, training):
            calls.append(training.steps)

    found = []
    for callbacks in ([], [Watching()]):
        calls = []
        agent = zoo.algorithms.DQN(SPACE, CHOICE, net_list=[SMALL | {'seed': 0}], target_update_every=1, **given)
        of_data = {'dataset': episodes(CHOICE), 'train_updates': 40, 'batch_size': 4, 'run_dir': False, 'verbose': 0}
        agent.learn(None, seed=0, callbacks=callbacks, **of_data, **of_learn)
        found.append(agent.network_weights())
    assert len(calls) > 4
    for name, x in found[0].items():
        np.testing.assert_array_equal(x, found[1][name])


def test_priorities_of_a_dataset_are_in_no_checkpoint(tmp_path, caplog):
    agent = zoo.algorithms.DQN(SPACE, CHOICE, net_list=[SMALL], prioritized=True)
    given = {'dataset': zoo.open_dataset(episodes(CHOICE), SPACE, CHOICE), 'batch_size': 4, 'verbose': 0}
    with pytest.raises(ValueError, match='exact_resume=True cannot be kept with dataset and priorities'):
        agent.learn(None, train_updates=4, exact_resume=True, run_dir=False, **given)
    with pytest.raises(ValueError, match='exact_resume=True cannot be kept with recorded_share and priorities'):
        beside = {'recorded': given['dataset'], 'recorded_share': 0.5, 'exact_resume': True}
        agent.learn(Choosing(), train_steps=4, run_dir=False, **beside)
    agent.learn(None, train_updates=4, run_dir=tmp_path / 'run', **given)
    assert 'priorities' not in caplog.text
    zoo.resume(tmp_path / 'run', train_steps=6, env=Choosing(), dataset=given['dataset'], verbose=0)
    assert 'No checkpoint holds the priorities of a dataset' in caplog.text


class TestTrain:
    """``zoo.train`` and ``zoo.resume``."""

    def test_the_environment_may_be_the_recorded_one(self, tmp_path):
        env = zoo.build_env('Pendulum-v1', max_episode_steps=20)
        data = zoo.record_episodes(lambda obs: [0.5], env, tmp_path / 'data.npz', episodes=3, seed=0)
        given = {'train_updates': 6, 'batch_size': 4, 'net': '8', 'verbose': 0, 'evaluate': False}
        agent, _ = zoo.train('TD3', dataset=data, run_dir=tmp_path / 'run', **given)
        run = zoo.open_run(tmp_path / 'run')
        assert agent.updates == 6 and run.environment == 'Pendulum-v1'
        assert run.build_env().spec.max_episode_steps == 20
        assert run.dataset == [str(tmp_path / 'data.npz')]

        agent, _ = zoo.resume(run, train_steps=10, verbose=0)
        assert (agent.updates, agent.data_steps) == (10, 10)

    def test_no_environment_is_known(self, path, tmp_path):
        agent, _ = zoo.train(
            'TD3', dataset=path, train_updates=4, batch_size=4, net='8', verbose=0, run_dir=tmp_path / 'run'
        )
        assert agent.updates == 4 and not zoo.open_run(tmp_path / 'run').tests

    def test_episodes_in_memory_are_given_again(self, path, tmp_path):
        data = list(zoo.open_dataset(path))
        given = {'observation_space': SPACE, 'action_space': CONTINUOUS}
        data = zoo.open_dataset(data, **given)
        zoo.train('TD3', dataset=data, train_updates=4, batch_size=4, net='8', verbose=0, run_dir=tmp_path / 'run')
        with pytest.raises(ValueError, match='learned from <Dataset .*: 3 episodes.*which no path names: give it'):
            zoo.resume(tmp_path / 'run', train_steps=8, env=Still())
        agent, _ = zoo.resume(tmp_path / 'run', train_steps=8, dataset=data, env=Still(), verbose=0)
        assert agent.updates == 8

    def test_neither_an_environment_nor_a_dataset(self):
        with pytest.raises(ValueError, match='the environment is missing'):
            zoo.train('TD3', run_dir=False)

    def test_a_run_without_an_environment_goes_on_without(self, path, tmp_path):
        given = {'dataset': path, 'batch_size': 4, 'verbose': 0}
        zoo.train('TD3BC', train_updates=4, run_dir=tmp_path / 'run', **given)
        assert zoo.resume(tmp_path / 'run', train_steps=6, verbose=0).agent.updates == 6
        with pytest.raises(ValueError, match='^run was trained without an environment: build one and give it to the'):
            zoo.open_run(tmp_path / 'run').build_env()

    @pytest.mark.parametrize('name', ['dataset', 'recorded'])
    def test_some_episodes_of_a_file_are_not_resumed_as_all_of_it(self, name, tmp_path):
        path = tmp_path / 'd.npz'
        written(path, SPACE, CHOICE, None, episodes(CHOICE))
        some = zoo.open_dataset(path)[:2]
        env = Choosing()
        agent = zoo.algorithms.DQN(SPACE, CHOICE, net_list=[SMALL])
        own = {'train_updates': 4} if name == 'dataset' else {'train_steps': 4, 'explore_steps': 0}
        agent.learn(env, run_dir=tmp_path / 'run', **own | {name: some, 'batch_size': 2, 'verbose': 0})
        with pytest.raises(ValueError, match=f'2 episodes, 8 steps.*give it again, zoo.resume.*{name}=…'):
            zoo.resume(tmp_path / 'run', train_steps=8, env=env)
        zoo.resume(tmp_path / 'run', train_steps=8, env=env, verbose=0, **{name: some})
