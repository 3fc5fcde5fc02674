"""Data of the D4RL form: where episodes end, what is left out, spaces, and what is refused."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import zoo
from zoo.common.datasets import d4rl
from zoo.common.datasets.opening import opened

#: Rows: an episode of 3 that terminated, one of 4 with a timeout, one of 2 under way.
LENGTHS = (3, 4, 2)


def columns(following: bool = True) -> dict[str, np.ndarray]:
    """The observation of step ``t`` of episode ``k`` is ``100 k + t``, the action and the reward tell them too."""
    steps = [(k, t) for k, length in enumerate(LENGTHS) for t in range(length)]
    obs = np.array([[100 * k + t, -t] for k, t in steps], np.float32)
    found = {
        'observations': obs,
        'actions': np.array([[k / 10, t / 10] for k, t in steps], np.float32),
        'rewards': np.array([10 * k + t for k, t in steps], np.float64),
        'terminals': np.array([k == 0 and t == 2 for k, t in steps]),
        'timeouts': np.array([k == 1 and t == 3 for k, t in steps]),
    }
    return found | ({'next_observations': obs + np.float32([1, -1])} if following else {})


def write(path: Path, arrays: dict[str, Any]) -> Path:
    if path.suffix == '.npz':
        np.savez(path, **arrays)
        return path
    h5py = pytest.importorskip('h5py')
    with h5py.File(path, 'w') as file:
        for name, x in arrays.items():
            file[name] = x
        file['infos/qpos'] = np.zeros(9)
        file['metadata/algorithm'] = 'SAC'
    return path


@pytest.fixture(params=['data.npz', 'data.hdf5', 'data.h5'])
def path(request: Any, tmp_path: Path) -> Path:
    return tmp_path / request.param


def first_column(episode: Any) -> list[float]:
    return episode.obs[:, 0].tolist()


def test_with_next_observations(path, monkeypatch):
    monkeypatch.setattr(d4rl, '_CHUNK', 2)
    dataset = zoo.open_dataset(write(path, columns()))
    assert dataset.lengths.tolist() == [3, 4, 2]
    assert dataset.terminated.tolist() == [True, False, False] and dataset.truncated.tolist() == [False, True, False]
    for again in (dataset, pickle.loads(pickle.dumps(dataset)), dataset.save(path.parent / 'mine')):
        episodes = list(again)
        assert [first_column(x) for x in episodes] == [[0, 1, 2, 3], [100, 101, 102, 103, 104], [200, 201, 202]]
        assert [x.reward.tolist() for x in episodes] == [[0, 1, 2], [10, 11, 12, 13], [20, 21]]
        np.testing.assert_allclose(episodes[1].action, [[0.1, t / 10] for t in range(4)], rtol=1e-6)
        assert again.returns.tolist() == [3, 46, 41]
    assert dataset.observation_space == Box(-np.inf, np.inf, (2,)) and dataset.action_space == Box(-1, 1, (2,))
    assert dataset.name == 'data' and dataset.path == path and dataset.environment is None


@pytest.mark.parametrize(('dtype', 'other'), [('float32', 'float64'), ('float64', 'float32'), ('float16', 'float32')])
def test_next_observations_of_another_precision_are_the_same_ones(tmp_path, dtype, other):
    arrays = columns()
    for name, kind in (('observations', dtype), ('next_observations', other)):
        arrays[name] = (arrays[name] / 7).astype('float16' if dtype == 'float16' else 'float32').astype(kind)
    if dtype == 'float64':  # digits that the other array has lost
        arrays['observations'] = arrays['observations'] * (1 + 1e-12)
    assert zoo.open_dataset(write(tmp_path / 'data.npz', arrays)).lengths.tolist() == [3, 4, 2]


def test_without_them_the_last_step_of_what_did_not_terminate_is_left_out(path):
    dataset = zoo.open_dataset(write(path, columns(following=False)))
    assert [first_column(x) for x in dataset] == [[0, 1, 2, 2], [100, 101, 102, 103], [200, 201]]
    assert [x.reward.tolist() for x in dataset] == [[0, 1, 2], [10, 11, 12], [20]]
    assert dataset.terminated.tolist() == [True, False, False] and dataset.truncated.tolist() == [False, True, False]
    assert dataset.returns.tolist() == [3, 33, 20]


def test_where_the_next_observation_is_another_one_an_episode_was_cut(path):
    arrays = columns()
    arrays['timeouts'][:] = False
    dataset = zoo.open_dataset(write(path, arrays))
    assert dataset.lengths.tolist() == [3, 4, 2]
    assert dataset.terminated.tolist() == [True, False, False] and not dataset.truncated.any()


def test_one_column_and_numbers_as_flags(path):
    arrays = columns() | {'actions': np.arange(9)[:, None] % 3, 'rewards': columns()['rewards'][:, None]}
    arrays |= {name: arrays[name].astype(np.float32)[:, None] for name in ('terminals', 'timeouts')}
    dataset = zoo.open_dataset(write(path, arrays))
    assert dataset.action_space == Discrete(3)
    assert dataset[1].action.tolist() == [0, 1, 2, 0] and dataset[1].reward.tolist() == [10, 11, 12, 13]


def test_it_takes_the_spaces_that_are_given_or_an_agents(path):
    write(path, columns())
    given = {'observation_space': Box(-np.inf, np.inf, (2,), np.float64), 'action_space': Box(-2, 2, (2,))}
    dataset = zoo.open_dataset(path, **given)
    assert (dataset.observation_space, dataset.action_space) == tuple(given.values())
    assert dataset[0].obs.dtype == np.float64
    agent: Any = type('Agent', (), given)
    for source in (path, zoo.open_dataset(path), [path, zoo.open_dataset(path)]):
        fitted = opened(agent, source)
        assert (fitted.observation_space, fitted.action_space) == tuple(given.values())
    agent = type('Agent', (), given | {'observation_space': Box(-1, 1, (3,))})
    with pytest.raises(ValueError, match=r'in episode 0 the observation is of shape \(4, 2\) and dtype float32, but'):
        list(opened(agent, path))
    with pytest.raises(ValueError, match=r"^of '.*' the action_space goes from -2 to 2, but this agent's actions go"):
        opened(type('Agent', (), given | {'action_space': Box(-1, 1, (2,))}), dataset)


def test_in_a_list_it_takes_the_spaces_of_the_first(path, tmp_path):
    write(path, columns())
    space, actions = Box(-np.inf, np.inf, (2,), np.float64), Box(-2, 2, (2,))
    first = zoo.open_dataset(path, space, actions).save(tmp_path / 'mine')
    joined = zoo.open_dataset([first, path])
    assert (joined.observation_space, joined.action_space) == (space, actions)
    np.testing.assert_array_equal(joined[4].obs, joined[1].obs)
    assert joined[4].obs.dtype == np.float64


@pytest.mark.parametrize(
    ('changes', 'told'),
    [
        ({'rewards': None}, r"has no array 'rewards', which the D4RL form needs: it has actions"),
        ({'rewards': np.zeros(8)}, 'observations has 9 rows, but rewards has 8'),
        ({'terminals': None, 'timeouts': None}, 'says where and how episodes end: it needs terminals and timeouts'),
        (
            {'terminals': np.zeros(9, bool), 'timeouts': np.zeros(9, bool), 'next_observations': None},
            'says where and how episodes end',
        ),
        ({'terminals': np.full(9, 2)}, 'terminals is not one flag for each row'),
        ({'rewards': np.full(9, np.nan)}, 'a reward is NaN or infinite, in episode 0'),
        ({'actions': np.full((9, 2), np.inf)}, 'an action is NaN or infinite, in episode 0'),
        ({'actions': np.full(9, -1)}, 'choices are counted from 0: give action_space=…'),
    ],
)
def test_refused(path, changes, told):
    arrays = {name: x for name, x in (columns() | changes).items() if x is not None}
    if path.suffix == '.npz' and 'needs: it has' in told:
        told = r"has no array 'rewards', which the D4RL form needs"
    with pytest.raises(ValueError, match=told):
        list(zoo.open_dataset(write(path, arrays)))


def test_spaces_of_several_arrays_are_refused(path):
    with pytest.raises(ValueError, match=r'the observation_space is Dict.*, but .* has one array of each'):
        zoo.open_dataset(write(path, columns()), observation_space=Dict(a=Box(-1, 1, (2,))))


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    pytest.importorskip('h5py')
    whole = write(tmp_path / 'a.hdf5', columns()).read_bytes()
    (tmp_path / 'a.hdf5').write_bytes(whole[:-500])
    with pytest.raises(ValueError, match=r"a\.hdf5' is no HDF5 file, or truncated"):
        zoo.open_dataset(tmp_path / 'a.hdf5')
    np.savez(tmp_path / 'a.npz', **columns() | {'actions': np.array([{}] * 9, object)})
    with pytest.raises(ValueError, match=r"a\.npz' is truncated or altered, or holds pickles \("):
        zoo.open_dataset(tmp_path / 'a.npz')
    np.savez(tmp_path / 'other.npz', x=np.zeros(3))
    told = 'its arrays are x; data of the D4RL form has observations, actions, rewards, terminals, timeouts'
    with pytest.raises(ValueError, match=rf"other\.npz' does not hold episodes that zoo recorded: {told}\.$"):
        zoo.open_dataset(tmp_path / 'other.npz')
    monkeypatch.setitem(sys.modules, 'h5py', None)
    with pytest.raises(ImportError, match=r"^HDF5 files need the extra: pip install 'zoo-rl\[hdf5\]'"):
        zoo.open_dataset(tmp_path / 'a.hdf5')
