"""Every form of data is opened and written, and what is wrong with it is told in a sentence."""

from __future__ import annotations

import json
import logging
import pickle
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting import SPACES
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from recorded import assert_same, random_episodes

import zoo
from zoo.common.datasets.mapped_folder import MappedFolder
from zoo.common.datasets.source import Environment
from zoo.common.datasets.writing import writer_for, written
from zoo.common.tools.files import json_sha256

BOX = Box(-1.0, 3.0, (2,), np.float32)
DEEP = Dict(
    a=Discrete(4, start=-1), b=Tuple((Box(0.0, 10.0, (2,), np.float64), MultiBinary(3))), c=MultiDiscrete([3, 2])
)


def refused(message: str, source: Any, error: type[Exception] = ValueError, **given: Any) -> None:
    """Opening and reading it to the end is refused, with a message that matches."""
    with pytest.raises(error, match=message):
        for _ in zoo.open_dataset(source, **given):
            continue


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


class TestOwnForms:
    @pytest.mark.parametrize('ending', ['.npz', ''])
    @pytest.mark.parametrize('form', SPACES)
    @pytest.mark.parametrize('action_space', [BOX, DEEP], ids=['box', 'deep'])
    def test_there_and_back(self, rng, tmp_path, form, action_space, ending):
        episodes = random_episodes(rng, SPACES[form], action_space, 7)
        made = zoo.open_dataset(episodes, SPACES[form], action_space)
        saved = made.save(tmp_path / 'deep' / f'data{ending}')
        assert [path.name for path in (tmp_path / 'deep').iterdir()] == [f'data{ending}']
        for dataset in (made, saved, zoo.open_dataset(str(saved.path)), pickle.loads(pickle.dumps(saved))):
            assert_same(dataset, episodes)
            assert dataset.observation_space == SPACES[form] and dataset.action_space == action_space
            lengths = [len(episode.reward) for episode in episodes]
            assert dataset.lengths.tolist() == lengths and dataset.steps == sum(lengths) and len(dataset) == 7
            np.testing.assert_allclose(dataset.returns, [episode.reward.sum(dtype=float) for episode in episodes])
            assert dataset.terminated.tolist() == [episode.terminated for episode in episodes]
            assert dataset.truncated.tolist() == [episode.truncated for episode in episodes]

    @pytest.mark.parametrize('ending', ['.npz', ''])
    def test_any_order_and_any_part(self, rng, tmp_path, ending):
        episodes = random_episodes(rng, SPACES['stack'], BOX, 9)
        dataset = zoo.open_dataset(episodes, SPACES['stack'], BOX).save(tmp_path / f'data{ending}')
        assert_same(dataset[2:7:2], episodes[2:7:2])
        assert_same(dataset[5:], episodes[5:])
        assert_same([dataset[-1], dataset[0], dataset[np.int64(4)]], [episodes[-1], episodes[0], episodes[4]])
        assert_same(dataset[1:8][::-1], episodes[1:8][::-1])
        assert dataset[1:8][::-1].lengths.tolist() == [len(episode.reward) for episode in episodes[1:8][::-1]]

    @pytest.mark.parametrize('ending', ['.npz', ''])
    def test_written_in_its_own_place(self, rng, tmp_path, ending):
        episodes = random_episodes(rng, SPACES['box'], BOX, 5)
        dataset = zoo.open_dataset(episodes, SPACES['box'], BOX).save(tmp_path / f'data{ending}')
        assert_same(dataset[2:].save(tmp_path / f'data{ending}'), episodes[2:])
        assert [path.name for path in tmp_path.iterdir()] == [f'data{ending}']

    @pytest.mark.parametrize('ending', ['.npz', ''])
    def test_an_error_leaves_what_was_there(self, rng, tmp_path, ending):
        episodes = random_episodes(rng, SPACES['box'], BOX, 2)
        dataset = zoo.open_dataset(episodes, SPACES['box'], BOX).save(tmp_path / f'data{ending}')
        with pytest.raises(RuntimeError, match='stop'), writer_for(dataset.path, SPACES['box'], BOX) as writer:
            writer.add(episodes[0])
            raise RuntimeError('stop')
        with pytest.raises(ValueError, match='^no episode was given to write to'):
            with writer_for(dataset.path, SPACES['box'], BOX):
                pass
        assert_same(zoo.open_dataset(dataset.path), episodes)
        assert [path.name for path in tmp_path.iterdir()] == [f'data{ending}']

    def test_a_file_of_version_0_1_opens(self, rng, tmp_path):
        """Its ``about`` has neither the environment nor what was inferred; the rest is the same."""
        episodes = random_episodes(rng, SPACES['stack'], Discrete(5), 3)
        path = zoo.open_dataset(episodes, SPACES['stack'], Discrete(5)).save(tmp_path / 'new.npz').path
        with np.load(path) as held:
            arrays = dict(held)
        about = json.loads(str(arrays['about']))
        assert about.pop('environment', 0) is None
        assert about.pop('inferred') == []
        assert about.keys() == {'format', 'version', 'observation_space', 'action_space'}
        np.savez_compressed(tmp_path / 'old.npz', **arrays | {'about': np.array(json.dumps(about))})
        dataset = zoo.open_dataset(tmp_path / 'old.npz')
        assert_same(dataset, episodes)
        assert dataset.environment is None

    @pytest.mark.parametrize('ending', ['.npz', ''])
    def test_the_environment_is_kept(self, rng, tmp_path, ending):
        env = zoo.build_env('Pendulum-v1', 'classic_control', max_episode_steps=7)
        dataset = zoo.record_episodes(lambda obs: env.action_space.sample(), env, tmp_path / f'a{ending}', 2, seed=0)
        known = {'env_id': 'Pendulum-v1', 'env_type': 'classic_control', 'max_episode_steps': 7}
        assert dataset.environment == Environment('Pendulum-v1', 'classic_control', known)
        assert dataset.lengths.tolist() == [7, 7] and dataset.truncated.all()
        assert zoo.open_dataset([dataset, dataset[:1]]).environment == dataset.environment
        again = dataset.build_env(nenv=2)
        assert again.num_envs == 2 and again.spec.id == 'Pendulum-v1'

    def test_of_copies(self, tmp_path):
        env = zoo.build_env('CartPole-v1', 'classic_control', nenv=2)
        dataset = zoo.record_episodes(lambda obs: np.zeros(2, int), env, None, 5, seed=0)
        assert len(dataset) == 5 and dataset.path is None
        assert dataset.build_env().observation_space == env.single_observation_space

    @pytest.mark.parametrize('path', ['a.txt', 'a.v2', 'a.hdf5'])
    def test_another_ending(self, rng, tmp_path, path):
        dataset = zoo.open_dataset(random_episodes(rng, SPACES['box'], BOX, 1), SPACES['box'], BOX)
        with pytest.raises(ValueError, match=r'whose name ends in \.npz, or in a folder, whose name has no ending\.$'):
            dataset.save(tmp_path / path)

    def test_other_files_are_not_written_over(self, rng, tmp_path):
        dataset = zoo.open_dataset(random_episodes(rng, SPACES['box'], BOX, 1), SPACES['box'], BOX)
        (tmp_path / 'mine').mkdir()
        (tmp_path / 'mine' / 'thesis').write_text('a')
        (tmp_path / 'file').write_text('b')
        for name, told in (('mine', 'is a folder of other files'), ('file', 'is a file: give the folder')):
            with pytest.raises(OSError, match=told):
                dataset.save(tmp_path / name)
        assert sorted(path.name for path in tmp_path.rglob('*')) == ['file', 'mine', 'thesis']


class TestDamage:
    @pytest.fixture
    def folder(self, rng, tmp_path) -> Path:
        episodes = random_episodes(rng, SPACES['box'], BOX, 20)
        found = zoo.open_dataset(episodes, SPACES['box'], BOX).save(tmp_path / 'folder').path
        assert found is not None
        return found

    @pytest.fixture
    def file(self, folder) -> Path:
        found = zoo.open_dataset(folder).save(folder.parent / 'file.npz').path
        assert found is not None
        return found

    def test_a_truncated_file(self, file):
        raw = file.read_bytes()
        for count in (0, 10, len(raw) // 2, len(raw) - 1):
            file.write_bytes(raw[:count])
            refused(r"file\.npz' does not hold episodes that zoo recorded \(", file)

    @pytest.mark.parametrize('way', ['iterate', 'one', 'returns'])
    def test_a_flipped_bit_of_a_file(self, file, way):
        with zipfile.ZipFile(file) as archive:
            infos = {info.filename: info for info in archive.infolist()}
            names = [name for name in infos if name.startswith('reward')]
        raw, caught = bytearray(file.read_bytes()), 0
        info = infos[names[0]]
        at = info.header_offset + 30 + len(info.filename) + 20 + info.compress_size // 2
        raw[at] ^= 255
        file.write_bytes(raw)
        with pytest.raises(ValueError, match=r"file\.npz' (is truncated or altered|does not hold episodes)"):
            dataset = zoo.open_dataset(file)
            {'iterate': lambda: list(dataset), 'one': lambda: dataset[0], 'returns': lambda: dataset.returns}[way]()
            caught += 1
        assert not caught

    def test_arrays_that_disagree(self, file):
        with np.load(file) as held:
            arrays = dict(held)
        for name, x in (('reward', arrays['reward'][1:]), ('obs/', arrays['obs/'][:, :2]), ('terminated', [True])):
            np.savez(file, **arrays | {name: x})
            refused(rf"file\.npz' is altered: {name} has the shape", file)
        np.savez(file, **arrays | {'lengths': -arrays['lengths']})
        refused(r"file\.npz' is altered: its lengths", file)

    def test_a_newer_format(self, file, folder):
        with np.load(file) as held:
            arrays = dict(held)
        about = json.loads(str(arrays['about']))
        np.savez(file, **arrays | {'about': np.array(json.dumps(about | {'version': 2}))})
        refused(r"file\.npz' was recorded by a newer zoo: upgrade zoo\.$", file)
        self._rewrite(folder, version=2)
        refused(r"folder' was recorded by a newer zoo: upgrade zoo\.$", folder)

    def _rewrite(self, folder: Path, **changes: Any) -> None:
        body = json.loads((folder / 'about.json').read_text()) | changes
        body.pop('sha256')
        (folder / 'about.json').write_text(json.dumps(body | {'sha256': json_sha256(body)}))

    def test_about_json(self, folder):
        text = (folder / 'about.json').read_text()
        (folder / 'about.json').write_text(text[:-20])
        refused(r"folder' is truncated or altered: about\.json cannot be read", folder)
        (folder / 'about.json').write_text(text.replace('"steps": 1', '"steps": 2'))
        refused(r"folder' is truncated or altered: the content of about\.json does not match its checksum", folder)
        (folder / 'about.json').write_text('{"format": "other"}')
        refused(r"folder' is no dataset of zoo: its about\.json says something else", folder)
        (folder / 'about.json').write_text(text)
        self._rewrite(folder, arrays={})
        refused(r"folder' is truncated or altered: about\.json does not name the array", folder)
        self._rewrite(folder, episodes=3)
        refused(r"folder' is truncated or altered: ", folder)

    def test_a_missing_or_truncated_array(self, folder):
        raw = (folder / '0.npy').read_bytes()
        (folder / '0.npy').write_bytes(raw[:-8])
        refused(r"folder' is truncated or altered: '0\.npy' has [\d,]+ bytes and was written with", folder)
        (folder / '0.npy').unlink()
        refused(r"folder' is truncated or altered: '0\.npy', which holds obs/, is missing", folder)
        np.save(folder / '0.npy', np.array([{}], object), allow_pickle=True)
        whole = (folder / '0.npy').read_bytes()
        (folder / '0.npy').write_bytes(whole.ljust(len(raw), b'\0'))
        refused(r"folder' is truncated or altered: '0\.npy' is no array \(it holds pickled objects", folder)

    def test_a_flipped_bit_of_an_array_is_found_when_all_are_read(self, folder):
        source = zoo.open_dataset(folder).source
        assert isinstance(source, MappedFolder)
        source.verify(0, 10)
        for name in ('0.npy', '5.npy'):
            raw = bytearray((folder / name).read_bytes())
            raw[-40] ^= 1
            (folder / name).write_bytes(raw)
            with pytest.raises(ValueError, match=rf"altered: the data of '{name}' does not match its checksum"):
                source.verify(0, 10)
            raw[-40] ^= 1
            (folder / name).write_bytes(raw)

    @pytest.mark.parametrize('ending', ['.npz', ''])
    @pytest.mark.parametrize(
        ('field', 'value', 'told'),
        [
            ('obs', np.nan, 'an observation is NaN or infinite, in episode 1'),
            ('obs', -np.inf, 'an observation is NaN or infinite, in episode 1'),
            ('reward', np.inf, 'a reward is NaN or infinite, in episode 1'),
            ('action', np.nan, 'an action is NaN or infinite, in episode 1'),
            ('action', 3.5, r'the action has the value 3\.5, which is not in Box\(2,\) float32, in episode 1'),
        ],
    )
    def test_values(self, rng, tmp_path, ending, field, value, told):
        episodes = random_episodes(rng, SPACES['box'], BOX, 3)
        getattr(episodes[1], field).reshape(-1)[-1] = value
        path = tmp_path / f'data{ending}'
        written(path, SPACES['box'], BOX, None, episodes)
        refused(rf"^of '.*data({ending})?' {told}\.$", path)
        dataset = zoo.open_dataset(path)
        with pytest.raises(ValueError, match=told):
            dataset[1]
        with pytest.raises(ValueError, match=told):
            dataset.save(tmp_path / 'other')
        assert not (tmp_path / 'other').exists()
        assert len(list(dataset[:1])) == len(list(dataset[2:])) == 1
        if field == 'reward':
            with pytest.raises(ValueError, match=told):
                dataset.summary()
        if not ending:
            with pytest.raises(ValueError, match=told):
                dataset.source.verify(0, dataset.steps + 3)

    @pytest.mark.parametrize('ending', ['.npz', ''])
    def test_observations_outside_a_counted_space(self, rng, tmp_path, ending):
        episodes = random_episodes(rng, Discrete(4), BOX, 3)
        episodes[2].obs[0] = 4
        written(tmp_path / f'data{ending}', Discrete(4), BOX, None, episodes)
        refused('the observation has the value 4, but .* goes from 0 to 3, in episode 2', tmp_path / f'data{ending}')


class TestOtherSources:
    def test_none_there(self, tmp_path):
        refused(r"^there are no recorded episodes at '.*none\.npz'\.$", tmp_path / 'none.npz')
        refused(r"^there are no recorded episodes at '.*none\.hdf5'\.$", tmp_path / 'none.hdf5')
        refused(r"^there is no dataset '.*none': give a file or folder", tmp_path / 'none')
        (tmp_path / 'a.txt').write_text('a')
        refused(r"^'.*a\.txt' is no file of episodes: give a file or folder", tmp_path / 'a.txt')
        refused('^3 is no dataset: give a file or folder', 3, TypeError)
        refused('^None is no dataset: give a file or folder', None, TypeError)
        refused('^an empty list is no dataset', [])

    def test_a_list_of_several(self, rng, tmp_path):
        episodes = random_episodes(rng, SPACES['dict'], DEEP, 9)
        given = {'observation_space': SPACES['dict'], 'action_space': DEEP}
        one = zoo.open_dataset(episodes[:2], **given).save(tmp_path / 'one.npz')
        two = zoo.open_dataset(episodes[2:5], **given).save(tmp_path / 'two')
        mixed = [str(one.path), two, episodes[5], episodes[6]._asdict(), [two[:1], episodes[8]]]
        joined = zoo.open_dataset(mixed, **given)
        assert_same(joined, [*episodes[:7], episodes[2], episodes[8]])
        assert_same(joined[1:8:3], [episodes[1], episodes[4], episodes[2]])
        assert_same([joined[5]], [episodes[5]])
        assert joined.path is None and joined.environment is None
        np.testing.assert_allclose(joined[::2].returns, [x.reward.sum(dtype=float) for x in joined[::2]])
        assert_same(joined.save(tmp_path / 'all'), joined)
        assert_same(pickle.loads(pickle.dumps(joined)), joined)

    def test_of_other_spaces(self, rng):
        one = zoo.open_dataset(random_episodes(rng, SPACES['box'], BOX, 2), SPACES['box'], BOX)
        other = zoo.open_dataset(
            random_episodes(rng, SPACES['box'], Box(-1, 1, (2,)), 2), SPACES['box'], Box(-1, 1, (2,))
        )
        refused(
            "the action_space goes from -1 to 1, unlike in 'a list of episodes': join datasets of one", [one, other]
        )
        refused(r'the action_space is Box\(2,\) float32, but action_space is Discrete', one, action_space=Discrete(3))

    def test_an_open_one_is_returned(self, rng):
        dataset = zoo.open_dataset(random_episodes(rng, SPACES['box'], BOX, 2), SPACES['box'], BOX)
        assert zoo.open_dataset(dataset) is dataset


class TestEpisodes:
    def one(self, **changes: Any) -> dict[str, Any]:
        found = {'obs': np.zeros((4, 3), np.float32), 'action': [0, 1, 2], 'reward': [1, 2.5, 3]}
        return found | {'terminated': True, 'truncated': False} | changes

    def test_arrays_of_the_d4rl_form_have_to_be_in_a_file(self):
        refused('that is the D4RL form, which has to be in a file', {'observations': np.zeros((4, 3))})

    @pytest.mark.parametrize('ending', ['.npz', ''])
    @pytest.mark.parametrize('dtype', [np.float32, np.float64])
    def test_a_file_of_inferred_spaces_takes_an_agents(self, rng, tmp_path, dtype, ending):
        obs, action = Box(-9.0, 9.0, (3,), dtype), Box(-2.0, 2.0, (1,), np.float32)
        episodes = random_episodes(rng, Box(-9.0, 9.0, (3,), np.float64), action, 4)
        inferred = zoo.open_dataset(episodes)
        saved = inferred.save(tmp_path / f'log{ending}')
        assert saved.action_space == inferred.action_space != action
        assert zoo.open_dataset([str(saved.path), str(saved.path)]).save(tmp_path / 'both').source.inferred
        given = zoo.open_dataset(saved.path, action_space=action)
        assert given.action_space == action and given.observation_space == inferred.observation_space
        again = pickle.loads(pickle.dumps(given))
        assert again.action_space == action
        assert_same(again, episodes)
        agent = zoo.algorithms.BC(obs, action, net_list=[{'hidden': [4]}])
        for source in (saved.path, saved, given, given.save(tmp_path / f'more{ending}')):
            agent.learn(None, dataset=source, train_updates=2, batch_size=2, run_dir=False, verbose=0)
        narrow = Box(-0.01, 0.01, (1,), np.float32)
        refused(r'the action has the value .*which is not in Box', saved.path, action_space=narrow)
        refused('its space declares', given.path, action_space=Box(-2.0, 2.0, (2,), np.float32))

    def test_spaces_are_inferred(self):
        dataset = zoo.open_dataset([self.one(), self.one(action=[4, 1, 0], obs=np.ones((4, 3), np.float16))])
        assert dataset.observation_space == Box(-np.inf, np.inf, (3,), np.float32)
        assert dataset.action_space == Discrete(5)
        assert dataset[0].reward.dtype == np.float32 and dataset[1].obs.dtype == np.float32
        assert dataset.returns.tolist() == [6.5, 6.5] and dataset.terminated.all()

    @pytest.mark.parametrize(
        ('obs', 'space'),
        [
            (np.zeros((4, 2)), Box(-np.inf, np.inf, (2,), np.float64)),
            (np.zeros((4, 9, 8), np.uint8), Box(0, 255, (9, 8), np.uint8)),
            (np.zeros((4, 2), bool), MultiBinary(2)),
            (np.array([3, 0, 1, 2]), Discrete(4)),
            (np.array([[3], [0], [1], [2]]), Discrete(4)),
            ({'a': np.zeros((4, 2), np.float32), 'b': (np.array([1, 0, 1, 0]),)}, None),
        ],
    )
    def test_of_observations(self, obs, space):
        found = zoo.open_dataset([self.one(obs=obs)]).observation_space
        assert found == (space or Dict(a=Box(-np.inf, np.inf, (2,), np.float32), b=Tuple((Discrete(2),))))

    @pytest.mark.parametrize(
        ('action', 'space', 'told'),
        [
            ([[0.5], [-1.0], [1.0]], Box(-1, 1, (1,), np.float64), 'lies in [-1, 1] always'),
            (np.float32([[0.5], [-1.5], [1.0]]), Box(-np.inf, np.inf, (1,)), 'goes beyond [-1, 1], to 1.5'),
            ([[0, 1], [2, 0], [0, 0]], MultiDiscrete([3, 2]), ''),
            ([True, False, True], MultiBinary(1), ''),
        ],
    )
    def test_of_actions(self, action, space, told, caplog):
        caplog.set_level(logging.INFO, 'zoo')
        assert zoo.open_dataset([self.one(action=action)]).action_space == space
        assert told in caplog.text

    def test_given_spaces_hold_the_values(self):
        given = {'observation_space': Box(-9, 9, (3,), np.float64), 'action_space': Discrete(7)}
        dataset = zoo.open_dataset([self.one()], **given)
        assert (dataset.observation_space, dataset.action_space) == tuple(given.values())
        assert dataset[0].obs.dtype == np.float64

    @pytest.mark.parametrize(
        ('changes', 'told'),
        [
            ({'obs': np.zeros((3, 3))}, 'in episode 0 the observation has 3 entries, but 4 are right'),
            ({'action': [0, 1]}, 'in episode 0 the action has 2 entries, but 3 are right'),
            ({'action': 1}, 'in episode 0 the action has no axis of steps'),
            ({'reward': []}, 'in episode 0 the reward is of shape'),
            ({'reward': [[1], [2], [3]]}, 'in episode 0 the reward is of shape'),
            ({'terminated': [True, False, True]}, 'in episode 0 it goes on after its end in step 0'),
            ({'truncated': [False, False]}, "in episode 0 'truncated' has the shape"),
            ({'truncated': 'no'}, "in episode 0 'truncated' is 'no': give a bool"),
            ({'obs': [['a']] * 4}, 'the observation is of dtype <U1, which no space of numbers has'),
            ({'action': [-1, 0, 1]}, 'the action has the value -1, but choices are counted from 0: give action_space'),
            ({'action': [0.1, np.nan, 0.0]}, 'an action is NaN or infinite, in episode 0'),
            ({'next_obs': 3}, "in episode 0 'next_obs' is no part of an episode"),
        ],
    )
    def test_refused(self, changes, told):
        refused(re.escape(told), [self.one(**changes)])

    def test_missing(self):
        for key in self.one():
            episode = self.one()
            del episode[key]
            refused(f"in episode 0 '{key}' is missing: ", episode)
        refused('how it ended is not said', {k: v for k, v in self.one().items() if k != 'terminated'})
        with pytest.raises(ValueError, match='of shape .4, 3. and dtype float32, but its space declares .4, 2.'):
            zoo.open_dataset(self.one(), observation_space=Box(-1, 1, (2,)))
        with pytest.raises(ValueError, match='with the value 0.5, which the int64 of its space cannot hold'):
            zoo.open_dataset(self.one(action=[0.5, 0, 0]), action_space=Discrete(3))
        with pytest.raises(ValueError, match="the part 'a' is missing"):
            zoo.open_dataset(self.one(), observation_space=Dict(a=Discrete(2)))

    def test_stacks_that_do_not_begin_with_their_episode(self, rng):
        (episode,) = random_episodes(rng, SPACES['stack'], BOX, 1)
        obs = rng.integers(256, size=episode.obs.shape).astype(np.uint8)
        with pytest.raises(ValueError, match='in episode 0 the stacks of frames do not follow one another'):
            zoo.open_dataset([episode._replace(obs=obs)], SPACES['stack'], BOX)

    @pytest.mark.parametrize('nenv', [1, 2])
    def test_rollouts(self, nenv):
        env = zoo.build_env('Pendulum-v1', 'classic_control', nenv=nenv, max_episode_steps=8)
        space = Box(-np.inf, np.inf, (3,), np.float32)
        agent = zoo.algorithms.DDPG(space, Box(-2, 2, (1,)), net_list=[{'hidden': [4]}] * 2)
        rollout = agent.rollout(env, 20 * nenv, seed=0)
        dataset = zoo.open_dataset(rollout)
        parts = rollout.episodes(whole=False)
        assert len(dataset) == len(parts) == 3 * nenv and dataset.steps == rollout.steps == 20 * nenv
        assert dataset.truncated.sum() == 2 * nenv and not dataset.terminated.any()
        for episode, part in zip(dataset, parts, strict=True):
            np.testing.assert_array_equal(episode.obs[:-1], part.obs[:, 0])
            np.testing.assert_array_equal(episode.obs[1:], part.next_obs[:, 0])
            np.testing.assert_allclose(episode.action, 2 * part.action[:, 0], rtol=1e-6)
        assert len(zoo.open_dataset([rollout, rollout])) == 6 * nenv
        whole = agent.rollout(env, episodes=3, seed=0)
        assert zoo.open_dataset(whole).lengths.tolist() == [8, 8, 8]


class TestReplayBuffers:
    SMALL = {'train_steps': 90, 'explore_steps': 20, 'batch_size': 8, 'verbose': 0, 'seed': 0}

    def dqn(self, env: Any) -> Any:
        return zoo.algorithms.DQN(env.observation_space, env.action_space, net_list=[{'hidden': [4]}])

    def test_of_an_agent(self, tmp_path, plain_updates):
        env = zoo.build_env('CartPole-v1', 'classic_control', nenv=2)
        agent = self.dqn(zoo.build_env('CartPole-v1', 'classic_control'))
        agent.learn(env, buffer_size=1000, run_dir=False, **self.SMALL)
        dataset = zoo.open_dataset(agent.replay)
        assert dataset.steps == 90 == len(agent.replay)
        cut = ~(dataset.terminated | dataset.truncated)
        assert 0 < cut.sum() <= 2
        replay = agent.replay
        found = {x.tobytes() for episode in dataset for x in np.concatenate([episode.obs[:-1], episode.obs[1:]], 1)}
        rows = np.flatnonzero(replay.valid)
        assert found == {x.tobytes() for x in np.concatenate([replay.obs[rows], replay.obs[replay.after(rows)]], 1)}
        assert_same(dataset.save(tmp_path / 'replay'), dataset)
        agent.learn(env, buffer_size=1000, run_dir=False, **self.SMALL)
        with pytest.raises(ValueError, match='^the replay buffer was written to since it was opened: open it again'):
            list(dataset)

    def test_one_that_has_turned_holds_parts_of_episodes(self, plain_updates):
        env = zoo.build_env('CartPole-v1', 'classic_control')
        agent = self.dqn(env)
        agent.learn(env, buffer_size=30, run_dir=False, **self.SMALL)
        dataset = zoo.open_dataset(agent.replay)
        assert dataset.steps == len(agent.replay) <= 30
        assert dataset.environment is None

    def test_of_a_run(self, tmp_path, plain_updates):
        env = zoo.build_env('CartPole-v1', 'classic_control')
        agent = self.dqn(env)
        agent.learn(env, buffer_size=1000, run_dir=tmp_path / 'run', checkpoint_buffer=True, **self.SMALL)
        for path in (tmp_path / 'run', next((tmp_path / 'run' / 'checkpoints').iterdir())):
            dataset = zoo.open_dataset(path)
            assert_same(dataset, zoo.open_dataset(agent.replay))
            assert dataset.environment.name == 'CartPole-v1' and dataset.build_env().spec.id == 'CartPole-v1'
        agent.save(tmp_path / 'bare')
        refused(r"bare' was saved without its replay buffer: train with checkpoint_buffer=True", tmp_path / 'bare')
        shutil.rmtree(tmp_path / 'run' / 'checkpoints')
        (tmp_path / 'run' / 'checkpoints').mkdir()
        refused(r"^the run '.*run' has no checkpoint", tmp_path / 'run')

    def test_stacks_of_frames(self, rng):
        """Of a ring that has turned only episodes with their beginning."""
        from zoo.common.adaptors.action import ActionAdaptor
        from zoo.common.replay.replay import Replay

        episodes = random_episodes(rng, SPACES['stack'], Discrete(5), 12)
        replay = Replay(SPACES['stack'], ActionAdaptor(Discrete(5)), 40)
        for episode in episodes:
            replay.add_episode(0, *episode[:5])
        dataset = zoo.open_dataset(replay)
        assert 2 <= len(dataset) < 12
        for one, other in zip(dataset, episodes[-len(dataset) :], strict=True):
            np.testing.assert_array_equal(one.obs, other.obs)
