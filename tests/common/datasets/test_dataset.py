"""A dataset: what it tells of itself, and its use as the data of a training."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from PIL import Image
from recorded import assert_same, random_episodes

import zoo
from zoo.common.datasets.opening import described, name_of, named

SPACE, ACTIONS = Box(-np.inf, np.inf, (3,)), Discrete(4)


@pytest.fixture
def dataset() -> zoo.Dataset:
    return zoo.open_dataset(random_episodes(np.random.default_rng(0), SPACE, ACTIONS, 12), SPACE, ACTIONS)


def test_what_it_prints(dataset, tmp_path):
    steps = sum(len(episode.reward) for episode in dataset)
    told = f"<Dataset 'a list of episodes': 12 episodes, {steps} steps, Box(3,) float32 -> Discrete(4)>"
    assert repr(dataset) == told and '\n' not in repr(dataset)
    saved = dataset.save(tmp_path / 'deep' / 'mine.npz')
    assert saved.name == 'mine' and saved.path == tmp_path / 'deep' / 'mine.npz'
    lengths, returns = dataset.lengths, dataset.returns
    assert (lengths.dtype, returns.dtype, lengths.shape) == (np.int64, np.float64, (12,))
    lines = dict(line.split(maxsplit=1) for line in saved.summary().splitlines())
    assert lines['dataset'] == str(saved.path) and 'environment' not in lines
    assert lines['episodes'] == '12: 4 terminated, 4 truncated, 4 cut' and lines['steps'] == str(steps)
    spread = f'min {lengths.min()}, median {np.median(lengths):g}, mean {lengths.mean():.6g}, max {lengths.max()}'
    assert lines['lengths'] == spread
    assert lines['returns'].startswith(f'min {returns.min():.6g}, median {np.median(returns):.6g}, mean ')
    assert (lines['observations'], lines['actions']) == ('Box(3,) float32', 'Discrete(4)')


def test_the_picture(dataset, tmp_path):
    dataset.plot(tmp_path / 'deep' / 'a.png')
    assert Image.open(tmp_path / 'deep' / 'a.png').size == (1080, 432)
    figure = dataset.plot()
    assert [axes.get_xlabel() for axes in figure.axes] == ['Episode return', 'Episode length']
    for axes, values in zip(figure.axes, (dataset.returns, dataset.lengths), strict=True):
        assert sum(bar.get_height() for bar in axes.patches) == 12
        assert axes.lines[0].get_xdata()[0] == pytest.approx(values.mean())
    # A bar for each length, centered on it.
    bars = {round(bar.get_x() + bar.get_width() / 2, 6): bar.get_height() for bar in figure.axes[1].patches}
    assert {x: n for x, n in bars.items() if n} == dict(
        zip(*np.unique(dataset.lengths, return_counts=True), strict=True)
    )
    dataset[:1].plot()


def test_wrong_numbers(dataset):
    with pytest.raises(IndexError, match='^there is no episode 12: there are 12, numbered from 0'):
        dataset[12]
    with pytest.raises(IndexError, match='^there is no episode -13'):
        dataset[-13]
    for index in ('a', 1.0, [1, 2], None):
        with pytest.raises(ValueError, match='^an episode is asked for by a number or a slice'):
            dataset[index]
    with pytest.raises(ValueError, match="^of the 12 episodes of 'a list of episodes' that slice has none"):
        dataset[5:5]


def test_an_environment_that_is_not_known(dataset):
    with pytest.raises(ValueError, match="^'a list of episodes' does not say its environment: build"):
        dataset.build_env()
    env = zoo.build_env('CartPole-v1', 'classic_control', reward_shaping=lambda reward: 2 * reward)
    found = zoo.record_episodes(lambda obs: 0, env, None, 2)
    assert found.environment.arguments is None
    with pytest.raises(ValueError, match='was recorded in CartPole-v1, which no name makes'):
        found.build_env()


def test_what_a_run_writes_of_it(dataset, tmp_path):
    saved = dataset.save(tmp_path / 'a.npz')
    assert (described(saved), name_of(saved), named(saved)) == (str(saved.path), 'a', [str(saved.path)])
    assert (described('x/y.npz'), name_of(Path('x/y.npz')), named('x')) == ('x/y.npz', 'y', ['x'])
    assert named(['x', saved]) == ['x', str(saved.path)] and name_of(['x', saved]) == 'x'
    assert described(dataset) == repr(dataset)
    assert described(saved[:3]) == repr(saved[:3]) and described(saved[:]) == str(saved.path)
    assert (described(list(dataset)), name_of(list(dataset))) == ('<12 episodes in memory>', 'episodes')


def dqn(**params: Any) -> Any:
    return zoo.algorithms.DQN(SPACE, ACTIONS, net_list=[{'hidden': [8], 'seed': 0}], **params)


def cart_pole(env: Any) -> Any:
    return zoo.algorithms.DQN(env.observation_space, env.action_space, net_list=[{'hidden': [4]}])


@pytest.mark.usefixtures('plain_updates')
class TestTraining:
    @pytest.mark.parametrize('params', [{}, {'n_step': 3}, {'prioritized': True}, {'normalize_obs': True}], ids=str)
    def test_every_form_gives_the_same_weights(self, dataset, tmp_path, params):
        sources = [dataset, list(dataset), dataset.save(tmp_path / 'a.npz'), str(dataset.save(tmp_path / 'b').path)]
        found = []
        for source in sources:
            agent = dqn(**params)
            agent.learn(None, dataset=source, train_updates=20, batch_size=8, run_dir=False, verbose=0, seed=1)
            found.append([x.numpy() for x in agent.networks['q'].variables])
        for other in found[1:]:
            for x, y in zip(found[0], other, strict=True):
                np.testing.assert_allclose(x, y, atol=0 if not params.get('normalize_obs') else 1e-6)

    def test_a_run_of_episodes_in_memory(self, tmp_path):
        env = zoo.build_env('CartPole-v1', 'classic_control')
        played = zoo.record_episodes(lambda obs: env.action_space.sample(), env, tmp_path / 'a.npz', 12, seed=0)
        for source, told in ((list(played), '<12 episodes in memory>'), (played, str(tmp_path / 'a.npz'))):
            agent, run_dir = cart_pole(env), tmp_path / f'run of {type(source).__name__}'
            agent.learn(env, dataset=source, train_updates=4, batch_size=8, run_dir=run_dir, verbose=0, seed=0)
            run = zoo.open_run(run_dir)
            assert run.dataset == [told]
            if source is played:
                assert f'dataset: [{told}]' in zoo.as_config(run)
            else:
                with pytest.raises(ValueError, match='dataset was <12 episodes in memory>, which no path names'):
                    zoo.as_config(run)

    @pytest.mark.parametrize('how', ['dataset', 'list', 'folder'])
    def test_recorded(self, tmp_path, how):
        env = zoo.build_env('CartPole-v1', 'classic_control')
        played = zoo.record_episodes(lambda obs: env.action_space.sample(), env, tmp_path / 'a', 5, seed=0)
        source = {'dataset': played, 'list': list(played), 'folder': str(tmp_path / 'a')}[how]
        agent = cart_pole(env)
        small = {'train_steps': 20, 'explore_steps': 5, 'batch_size': 4, 'buffer_size': 1000, 'verbose': 0}
        agent.learn(env, recorded=source, run_dir=tmp_path / 'run', **small)
        assert agent.replay.recorded == played.steps
        written = zoo.open_run(tmp_path / 'run').config['learn_params']['recorded']
        assert written == (f'<{len(played)} episodes in memory>' if how == 'list' else str(tmp_path / 'a'))
        agent.learn(env, recorded=source, recorded_share=0.5, run_dir=False, **small)

    def test_of_an_own_replay_buffer(self, tmp_path):
        """Offline training on what a training has left behind."""
        env = zoo.build_env('CartPole-v1', 'classic_control')
        agent = cart_pole(env)
        small = {'explore_steps': 50, 'batch_size': 4, 'buffer_size': 1000, 'verbose': 0}
        agent.learn(env, train_steps=80, run_dir=tmp_path / 'run', checkpoint_buffer=True, **small)
        for source in (agent.replay, tmp_path / 'run'):
            other = cart_pole(env)
            other.learn(None, dataset=source, train_updates=5, batch_size=4, run_dir=False, verbose=0)
            assert other.updates == 5


def test_a_folder_is_not_announced_as_memory(dataset, tmp_path, caplog, monkeypatch):
    from zoo.common.replay import ring

    monkeypatch.setattr(ring, 'ANNOUNCE_BYTES', 10)
    caplog.set_level(logging.WARNING, 'zoo')
    agent = dqn()
    given = {'train_updates': 2, 'batch_size': 4, 'run_dir': False, 'verbose': 0}
    agent.learn(None, dataset=dataset.save(tmp_path / 'a'), **given)
    assert 'of memory' not in caplog.text
    agent.learn(None, dataset=dataset, **given)
    assert 'of memory' in caplog.text


@pytest.mark.parametrize('way', ['id', 'folder'])
@pytest.mark.filterwarnings('ignore:`eval_env`')
def test_minari_there_and_back(tmp_path, monkeypatch, way):
    minari = pytest.importorskip('minari')
    monkeypatch.setenv('MINARI_DATASETS_PATH', str(tmp_path))
    env = zoo.build_env('Pendulum-v1', 'classic_control', max_episode_steps=9)
    played = zoo.record_episodes(lambda obs: env.action_space.sample(), env, None, 3, seed=0)
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=k,
            observations=episode.obs[: steps + 1],
            actions=episode.action[:steps],
            rewards=episode.reward[:steps].tolist(),
            terminations=[False] * steps,
            truncations=[False] * (steps - 1) + [steps == 9],
        )
        for k, (episode, steps) in enumerate(zip(played, (4, 9, 9), strict=True))
    ]
    about = {'algorithm_name': 'x', 'author': 'y', 'author_email': 'z', 'code_permalink': '-', 'description': '-'}
    made = minari.create_dataset_from_buffers('pendulum/random-v0', buffers, env=env, **about)
    found = zoo.open_dataset('pendulum/random-v0' if way == 'id' else tmp_path / 'pendulum' / 'random-v0')
    assert found.lengths.tolist() == [4, 9, 9] and found.steps == made.total_steps
    assert found.truncated.tolist() == [False, True, True] and not found.terminated.any()
    for episode, theirs in zip(found, made.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(episode.obs, theirs.observations)
        np.testing.assert_array_equal(episode.action, theirs.actions)
        np.testing.assert_allclose(episode.reward, theirs.rewards, rtol=1e-6)
    np.testing.assert_allclose(found.returns, [theirs.rewards.sum() for theirs in made], rtol=1e-6)
    known = found.environment
    assert (known.name, known.type) == ('Pendulum-v1', 'classic_control')
    assert found.build_env().spec.max_episode_steps == 9
    saved = found.save(tmp_path / 'mine')
    assert_same(saved, found)
    assert saved.environment == known
    assert_same(found[1:2], [found[1]])
