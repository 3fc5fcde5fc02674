"""Recorded episodes: what was played is written, read and filled into a replay buffer, as if it had been stepped."""

from __future__ import annotations

import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from counting import SPACES, Counting, drive, expected
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import zoo
from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.datasets.episodes import RecordedEpisode, stacked
from zoo.common.datasets.opening import check_sources, open_dataset
from zoo.common.datasets.replaying import fill
from zoo.common.datasets.writing import written
from zoo.common.envs.answers import LIFE_LOST
from zoo.common.records import Transition
from zoo.common.replay.replay import Replay
from zoo.common.sampling import Priorities, Sampling
from zoo.common.training.record import record_dataset, record_episodes

ADAPTOR = ActionAdaptor(Discrete(5))
SEED = 5


class Policy:
    """Random actions of one or several copies, which it writes down."""

    def __init__(self, copies: int | None = None) -> None:
        self.copies, self.rng = copies, np.random.default_rng(0)
        self.actions: list[np.ndarray] = []

    def __call__(self, obs: Any) -> Any:
        action = self.rng.integers(5, size=self.copies)
        self.actions.append(np.atleast_1d(action))
        return action


@pytest.mark.full(but='float64-None')
@pytest.mark.parametrize('mode', [None, *AutoresetMode])
@pytest.mark.parametrize('form', SPACES)
def test_what_was_played_is_read(form: str, mode: AutoresetMode | None, tmp_path: Path):
    copies = 1 if mode is None else 3
    env: Any = Counting(form)
    if mode is not None:
        env = SyncVectorEnv([partial(Counting, form)] * copies, autoreset_mode=mode)
    policy = Policy(None if mode is None else copies)
    path = record_episodes(policy, env, tmp_path / 'deep' / 'episodes.npz', 7, seed=SEED).path
    assert path is not None
    assert [p.name for p in path.parent.iterdir()] == ['episodes.npz'] and path == tmp_path / 'deep' / 'episodes.npz'
    recording = open_dataset(path)
    assert spaces.same(recording.observation_space, SPACES[form]) and recording.action_space == Discrete(5)
    shares = {SEED + i: 0 for i in range(copies)}
    for episode in recording:
        length = len(episode.reward)
        number = episode.reward[0] // 1000
        seed = find_seed(form, episode, shares, int(number), length)
        shares[seed] += 1
        for t in range(length + 1):
            wanted = expected(form, seed, int(number), t)
            for path_, x in spaces.tree_items(episode.obs):
                np.testing.assert_array_equal(x[t], wanted[path_] if path_ else wanted)
                assert x.dtype == spaces.leaves(SPACES[form])[path_].dtype
        np.testing.assert_array_equal(episode.reward, 1000 * number + 10 * np.arange(length) + episode.action)
        ends = drive(Counting(), seed, [0] * 100)[0]
        last = [row for row in ends if row[0] == number][-1]
        assert (last[1], *last[-2:]) == (length - 1, episode.terminated, episode.truncated)
    assert sorted(shares.values()) == ([7] if mode is None else [2, 2, 3])


def find_seed(form: str, episode: RecordedEpisode, seeds: Any, number: int, length: int) -> int:
    """The seed of the copy that an episode is of."""
    for seed in seeds:
        wanted = expected(form, seed, number, length)
        items = spaces.tree_items(episode.obs)
        if all(np.array_equal(x[length], wanted[path] if path else wanted) for path, x in items):
            return seed
    raise AssertionError('an episode that was not played')


@pytest.mark.parametrize(
    ('sources', 'message'),
    [
        (3, '3 is no dataset: give a file or folder of zoo.record_episodes'),
        ([], 'an empty list is no dataset'),
        ('none.npz', "no recorded episodes at 'none.npz'"),
        (['none.npz'], "no recorded episodes at 'none.npz'"),
    ],
)
def test_what_names_no_recording_is_refused_before_anything_is_read(sources: Any, message: str):
    with pytest.raises((ValueError, TypeError), match=message):
        check_sources(sources)
    declared = {param.name: param for param in zoo.describe('DQN').learn}
    with pytest.raises((ValueError, TypeError), match=message):
        declared['recorded'].check(sources)


def test_a_file_that_was_written_anew_is_opened_again(tmp_path: Path):
    path = tmp_path / 'x.npz'
    before = record_episodes(Policy(), Counting('stack'), path, 5, seed=0)
    record_episodes(Policy(), Counting('stack'), path, 9, seed=1)
    for read in (lambda: before[0], lambda: next(iter(before)), lambda: before.returns, lambda: before[:2].returns):
        with pytest.raises(ValueError, match=r"x\.npz' was written anew since it was opened: open it again"):
            read()
    assert len(list(open_dataset(path))) == 9
    path.unlink()
    with pytest.raises(ValueError, match='is gone since it was opened'):
        before[0]


def test_of_a_stack_the_newest_frame_is_written(tmp_path: Path):
    path = record_episodes(Policy(), Counting('stack'), tmp_path / 'x.npz', 5, seed=0).path
    with np.load(path, allow_pickle=False) as arrays:
        assert arrays['obs/'].shape == (len(arrays['reward']) + 5, 2, 3, 1)


def episodes(rng: np.random.Generator, space: Any, count: int, longest: int) -> list[RecordedEpisode]:
    """Episodes of random numbers."""
    found = []
    for _ in range(count):
        length = int(rng.integers(1, longest + 1))
        items = {}
        for path, leaf in spaces.leaves(space).items():
            if isinstance(leaf, spaces.FrameStack):
                frames = rng.integers(256, size=(length + 1, *leaf.frame_shape)).astype(np.uint8)
                items[path] = stacked(frames, leaf.frames)
            else:
                items[path] = rng.standard_normal((length + 1, *leaf.shape)).astype(leaf.dtype)
        end = int(rng.integers(3))
        action, reward = rng.integers(5, size=length).astype(np.int32), rng.random(length).astype(np.float32)
        found.append(RecordedEpisode(spaces.from_items(space, items), action, reward, end == 0, end == 1))
    return found


def add_steps(replay: Replay, copy: int, episode: RecordedEpisode) -> None:
    """The same, one by one."""
    for t in range(len(episode.reward)):
        obs, after = (spaces.tree_map(lambda x, i=i: x[i : i + 1], episode.obs) for i in (t, t + 1))
        last = t == len(episode.reward) - 1
        ends = (np.array([flag and last]) for flag in episode[3:5])
        one = Transition(obs, episode.action[t : t + 1], episode.reward[t : t + 1], after, *ends)
        replay.add(one, first=copy)
    if not any(episode[3:]):
        replay.cut(copy, 1)


@pytest.mark.parametrize('form', ['box', 'stack', 'stack in dict'])
@pytest.mark.parametrize('capacity', [3, 20, 40, 100])
def test_at_once_or_step_by_step_is_the_same(form: str, capacity: int):
    """Over several turns of the ring, with episodes that are longer than it and others under way."""
    rng, sampling = np.random.default_rng(capacity), Sampling(0.9, 2, Priorities())
    one, other = (Replay(SPACES[form], ADAPTOR, capacity, 2, sampling) for _ in range(2))
    for replay in (one, other):
        replay.keep_episodes()
    for turn, episode in enumerate(episodes(rng, SPACES[form], 40, 25)):
        copy = int(rng.integers(2))
        if turn % 5 == 4:  # one that is under way and is cut
            begun = episode._replace(terminated=False, truncated=False)
            for replay in (one, other):
                cut, replay.cut = replay.cut, lambda *_: None
                add_steps(replay, 1 - copy, begun)
                replay.cut = cut
            other.cut(1 - copy, 1)
            copy = 1 - copy
        one.add_episode(copy, *episode[:5])
        add_steps(other, copy, episode)
        mine, theirs = one.state(), other.state()
        assert int(mine.pop('recorded')) > 0 == int(theirs.pop('recorded'))
        for name, x in mine.items():
            np.testing.assert_array_equal(x, theirs[name], err_msg=f'{turn} {name}')
        rows = np.flatnonzero(one.valid)
        np.testing.assert_array_equal(one.episode_span(rows), other.episode_span(rows))
    assert len(one) > 1


ACTIONS = {
    'discrete': (Discrete(4, start=-1), np.array([-1, 2, 0])),
    'multi': (MultiDiscrete([3, 2], start=[5, 0]), np.array([[5, 0], [7, 1], [6, 0]])),
    'binary': (MultiBinary([2, 2]), np.array([[[0, 1], [1, 1]]] * 3)),
    'box': (Box(np.array([-2.0, 0.0]), np.array([2.0, 10.0])), np.array([[-2.0, 0.0], [1.0, 5.0], [2.0, 9.0]])),
    'unbounded': (Box(-np.inf, np.inf, (2,)), np.array([[-200.0, 0.0], [1.0, 5.0], [2.0, 9.0]])),
}


@pytest.mark.parametrize('name', ACTIONS)
@pytest.mark.parametrize('squash', [False, True])
def test_actions_there_and_back(name: str, squash: bool):
    space, given = ACTIONS[name]
    adaptor = ActionAdaptor(space, squash and name == 'box')
    stored = adaptor.from_env(given)
    zeros = adaptor.zeros((3,))
    assert (stored.shape, stored.dtype) == (zeros.shape, zeros.dtype)
    np.testing.assert_allclose(adaptor.to_env(stored), given, rtol=1e-6)
    if name == 'box':
        np.testing.assert_allclose(stored, [[-1, -1], [0.5, 0], [1, 0.8]], rtol=1e-6)


def test_actions_of_a_dict_there_and_back():
    space = Dict(a=ACTIONS['discrete'][0], b=Tuple((ACTIONS['box'][0],)))
    adaptor = ActionAdaptor(space)
    given = {'a': ACTIONS['discrete'][1], 'b/0': ACTIONS['box'][1]}
    back = spaces.flatten(space, adaptor.to_env(adaptor.from_env(given)))
    for path, x in given.items():
        np.testing.assert_allclose(back[path], x, rtol=1e-6)


@pytest.mark.parametrize(
    ('space', 'value'),
    [
        (Discrete(3), 3),
        (Discrete(3, start=1), 0),
        (Box(-1, 1, (1,)), [1.1]),
        (MultiBinary(1), [2]),
        (Discrete(3), [0.1, 0.7, 0.2]),
        (Discrete(3), 1.5),
        (Discrete(3), [2, 0, 0]),
        (Box(-1, 1, (2,)), 0.5),
    ],
)
def test_an_action_outside_its_space_is_refused(space: Any, value: Any):
    with pytest.raises(ValueError, match='^the action (has the value|is) .*, which is not in '):
        ActionAdaptor(space).from_env(np.array([value]))


@pytest.fixture
def cart_poles(tmp_path: Path) -> Path:
    env = gymnasium.make('CartPole-v1')
    return record_dataset(lambda obs: int(obs[2] + obs[3] > 0), env, 4, tmp_path / 'cart.npz', seed=0)


LEARN: dict[str, Any] = {'batch_size': 8, 'verbose': 0, 'buffer_size': 5000}


def dqn() -> Any:
    net_list = [{'hidden': [8]}]
    env = gymnasium.make('CartPole-v1')
    return zoo.algorithms.DQN(env.observation_space, env.action_space, net_list=net_list), env


@pytest.mark.full
def test_training_begins_with_them(cart_poles: Path, tmp_path: Path):
    """They are there from the first update on; explore_steps are still explored before it."""
    steps = sum(len(episode.reward) for episode in open_dataset(cart_poles))
    assert steps > 400
    agent, env = dqn()
    agent.learn(env, train_steps=60, explore_steps=50, recorded=cart_poles, run_dir=False, seed=0, **LEARN)
    assert (agent.replay.recorded, agent.replay.added, agent.updates) == (steps, steps + 60, 11)
    agent, env = dqn()
    both = [cart_poles, str(cart_poles)]
    agent.learn(env, train_steps=6, explore_steps=0, recorded=both, run_dir=False, seed=0, **LEARN)
    assert (agent.replay.recorded, agent.updates) == (2 * steps, 6)


@pytest.mark.full
@pytest.mark.parametrize('buffer', [True, False])
def test_resumed_they_are_not_filled_in_twice(cart_poles: Path, tmp_path: Path, buffer: bool):
    agent, env = dqn()
    steps = sum(len(episode.reward) for episode in open_dataset(cart_poles))
    params = LEARN | {'explore_steps': 50, 'recorded': cart_poles, 'checkpoint_buffer': buffer}
    agent.learn(env, train_steps=40, run_dir=tmp_path / 'run', checkpoint_every=20, seed=0, **params)
    loaded = zoo.load(tmp_path / 'run' / 'checkpoints' / '000000020')
    loaded.learn(env, resume=True, train_steps=60, run_dir=False, **params)
    own = 60 if buffer else 40
    assert (loaded.replay.recorded, loaded.replay.added) == (steps, steps + own)
    assert loaded.updates == 60 - 49, 'explored as if it had not been interrupted'


def test_resumed_with_recordings_for_the_first_time_they_are_filled_in(cart_poles: Path, tmp_path: Path):
    agent, env = dqn()
    steps = sum(len(episode.reward) for episode in open_dataset(cart_poles))
    params = LEARN | {'explore_steps': 50, 'checkpoint_buffer': True}
    agent.learn(env, train_steps=40, run_dir=tmp_path / 'run', checkpoint_every=20, seed=0, **params)
    saved = tmp_path / 'run' / 'checkpoints' / '000000020'
    with pytest.raises(ValueError, match='there are no recorded episodes at'):
        zoo.load(saved).learn(env, resume=True, run_dir=False, **params, recorded=tmp_path / 'none.npz')
    loaded = zoo.load(saved)
    loaded.learn(env, resume=True, run_dir=False, **params, recorded=cart_poles)
    assert loaded.replay.recorded == steps


def test_the_old_names_warn(tmp_path: Path):
    with pytest.warns(DeprecationWarning, match='zoo.record is called zoo.record_episodes now'):
        assert zoo.record is record_dataset
    with pytest.warns(DeprecationWarning, match='zoo.record_dataset is called zoo.record_episodes now, which takes'):
        assert zoo.record_dataset is record_dataset
    path = record_dataset(Policy(), Counting(), 2, tmp_path / 'x.npz')
    assert path == tmp_path / 'x.npz' and len(open_dataset(path)) == 2


def test_nothing_recorded_is_refused():
    agent, env = dqn()
    with pytest.raises(
        ValueError, match=r'^an empty list is no dataset: give at least one episode, or the path of a recording\.$'
    ):
        agent.learn(env, train_steps=5, recorded=[], run_dir=False, **LEARN)


def test_a_life_that_was_lost_is_no_episode(tmp_path: Path):
    class Lives(gymnasium.Env):
        """Games of three lives of two steps."""

        observation_space, action_space = Box(0, 9, (1,)), Discrete(5)
        steps = lives = 0

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.lives = self.lives or 3
            return np.float32([self.lives]), {}

        def step(self, action: Any) -> Any:
            self.steps += 1
            lost = self.steps % 2 == 0
            self.lives -= lost
            return np.float32([self.lives]), 1.0, lost, False, {LIFE_LOST: True} if lost and self.lives else {}

    found = list(record_episodes(Policy(), Lives(), tmp_path / 'lives.npz', 2))
    assert [len(x.reward) for x in found] == [2] * 6 and all(x.terminated for x in found)


def test_a_function_may_write_into_what_it_sees(tmp_path: Path):
    def act(obs: np.ndarray) -> int:
        obs *= 100
        return 0

    (episode,) = record_episodes(act, gymnasium.make('CartPole-v1'), tmp_path / 'a.npz', 1, seed=0)
    assert np.abs(episode.obs).max() < 10


def test_noise_along_an_episode_begins_anew_and_is_not_the_agents(tmp_path: Path):
    env = gymnasium.make('Pendulum-v1', max_episode_steps=40)
    agent = zoo.algorithms.DDPG(
        env.observation_space,
        env.action_space,
        net_list=[{'hidden': [4]}] * 2,
        noise='ornstein_uhlenbeck',
        explore_noise=0.1,
        dt=1.0,
        theta=0.01,
    )
    for variable in agent.actor.variables:
        variable.assign(np.zeros(variable.shape))  # so that the noise is all that there is
    agent.rng = np.random.default_rng(0)
    path = zoo.record_episodes(agent, env, tmp_path / 'a.npz', 30, deterministic=False)
    found = np.stack([x.action[:, 0] / 2 for x in open_dataset(path)])
    assert np.abs(found[:, 0]).max() < 0.4 < found[:, -1].std()
    assert agent.behavior.noise is None


def test_observations_outside_their_space_are_refused(tmp_path: Path):
    space, action_space = Dict(a=Discrete(4), b=Box(-1, 1, (2,))), Discrete(2)
    agent = zoo.algorithms.DQN(space, action_space, net_list=[{'hidden': [4]}])
    obs = {'a': np.array([0, 9]), 'b': np.zeros((2, 2), np.float32)}
    path = written(
        tmp_path / 'a.npz', space, action_space, None, [RecordedEpisode(obs, np.zeros(1), np.ones(1), True, False)]
    ).path
    replay = Replay(space, agent.action_adaptor, 10)
    with pytest.raises(ValueError, match=r"^of '.*a.npz' the observation 'a' has the value 9, but .* from 0 to 3"):
        fill(agent, replay, path)


def test_more_than_the_buffer_holds_are_announced(cart_poles: Path, caplog: pytest.LogCaptureFixture):
    agent, env = dqn()
    caplog.set_level(logging.WARNING, 'zoo')
    steps = sum(len(episode.reward) for episode in open_dataset(cart_poles))
    params = LEARN | {'buffer_size': 100}
    agent.learn(env, train_steps=5, explore_steps=50, recorded=cart_poles, run_dir=False, **params)
    said = [record.getMessage() for record in caplog.records if 'recorded' in record.getMessage()]
    assert said == [f'Of the {steps} recorded transitions the replay buffer holds 99: a larger buffer_size holds more.']


def test_episodes_that_are_recorded_twice_are_announced(cart_poles: Path, caplog: pytest.LogCaptureFixture):
    agent, env = dqn()
    caplog.set_level(logging.WARNING, 'zoo')
    steps = sum(len(episode.reward) for episode in open_dataset(cart_poles))
    for _ in range(2):
        agent.learn(env, train_steps=5, explore_steps=50, recorded=cart_poles, run_dir=False, **LEARN)
    (said,) = (record.getMessage() for record in caplog.records if 'earlier call' in record.getMessage())
    assert f'holds {steps} recorded transitions of an earlier call, and {steps} are added' in said


def test_an_agent_records(tmp_path: Path):
    agent, env = dqn()
    path = zoo.record_episodes(agent, env, tmp_path / 'a.npz', 2, seed=3)
    for episode in open_dataset(path):
        np.testing.assert_array_equal(agent.predict(episode.obs[:-1]), episode.action)
    with pytest.raises(ValueError, match=r"^the environment's observation_space is Box\(3,\)"):
        zoo.record_episodes(agent, gymnasium.make('Pendulum-v1'), tmp_path / 'a.npz', 2)


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        (dict(episodes=0), 'episodes is 0: give a whole number of at least 1'),
        (dict(path='x.txt'), "path is 'x.txt': episodes are recorded in a file whose name ends in .npz"),
        (dict(agent=3), 'the policy is 3: give an agent, or a function'),
    ],
)
def test_a_recording_that_cannot_be_is_refused(given: dict[str, Any], message: str, tmp_path: Path):
    asked = {'agent': Policy(), 'env': Counting(), 'episodes': 2, 'path': tmp_path / 'x.npz'} | given
    with pytest.raises(ValueError, match=message):
        record_episodes(**asked)


def test_what_is_no_recording_is_refused(cart_poles: Path, tmp_path: Path):
    agent, env = dqn()
    replay = agent.replay_for(100, 1)

    def refused(sources: Any, message: str) -> None:
        with pytest.raises((ValueError, TypeError), match=message):
            fill(agent, replay, sources)
        assert replay.added == 0

    refused(tmp_path / 'none.npz', r"^there are no recorded episodes at '.*none\.npz'\.$")
    (tmp_path / 'text.npz').write_text('hello')
    refused(str(tmp_path / 'text.npz'), r"text\.npz' does not hold episodes that zoo recorded")
    np.savez(tmp_path / 'other.npz', x=np.zeros(3))
    refused(tmp_path / 'other.npz', r"other\.npz' does not hold episodes")
    np.savez(tmp_path / 'pickle.npz', about=np.array([{}], object))
    refused(tmp_path / 'pickle.npz', r"pickle\.npz' does not hold episodes")
    refused(3, r'^3 is no dataset: give a file')
    refused([3], r'^3 is no dataset: give a file')
    pendulum = record_dataset(lambda obs: np.zeros(1), gymnasium.make('Pendulum-v1'), 1, tmp_path / 'p.npz')
    refused(pendulum, r"^of '.*p\.npz' the observation_space is Box\(3,\) float32, but this agent")
    refused(
        [cart_poles, pendulum], r"^of '.*p\.npz' the observation_space is Box\(3,\) float32, unlike in '.*cart\.npz'"
    )
    episode = next(iter(open_dataset(cart_poles)))
    for values, message in (
        ({'action': episode.action + 1}, 'the action has the value 2, which is not in Discrete'),
        ({'reward': episode.reward * np.nan}, 'a reward is NaN or infinite'),
        ({'obs': episode.obs * np.inf}, 'an observation is NaN or infinite'),
    ):
        written(tmp_path / 'bad.npz', env.observation_space, env.action_space, None, [episode._replace(**values)])
        refused(tmp_path / 'bad.npz', rf"^of '.*bad\.npz' {message}")


def test_into_copies_each_is_given_whole_episodes(cart_poles: Path):
    agent, _ = dqn()
    replay = agent.replay_for(5000, 3)
    count = fill(agent, replay, cart_poles)
    assert count == len(replay) == sum(len(episode.reward) for episode in open_dataset(cart_poles))
    assert sorted((replay.cursor > 0).tolist()) == [True] * 3
    batch = replay.sample((3000,), np.random.default_rng(0))
    model = gymnasium.make('CartPole-v1').unwrapped
    model.reset()
    for k in range(300):
        model.state, model.steps_beyond_terminated = batch.obs[k].astype(np.float64), None
        np.testing.assert_allclose(batch.next_obs[k], model.step(int(batch.action[k]))[0], atol=1e-5)


def minari_episodes() -> list[Any]:
    buffer = pytest.importorskip('minari.data_collector.episode_buffer').EpisodeBuffer
    found = []
    for k in range(3):
        length = 4 + k
        found.append(
            buffer(
                id=k,
                observations=np.arange((length + 1) * 4, dtype=np.float32).reshape(-1, 4) + 100 * k,
                actions=np.arange(length) % 2,
                rewards=[float(k + t) for t in range(length)],
                terminations=[False] * (length - 1) + [k == 0],
                truncations=[False] * (length - 1) + [k == 1],
            )
        )
    return found


@pytest.mark.parametrize('way', ['id', 'folder', 'data folder'])
@pytest.mark.filterwarnings('ignore:`eval_env`')
def test_a_data_set_of_minari(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    minari = pytest.importorskip('minari')
    monkeypatch.setenv('MINARI_DATASETS_PATH', str(tmp_path))
    about = {'algorithm_name': 'x', 'author': 'y', 'author_email': 'z', 'code_permalink': '-', 'description': '-'}
    env = gymnasium.make('CartPole-v1')
    minari.create_dataset_from_buffers('cart/test-v0', minari_episodes(), env=env, **about)
    folder = tmp_path / 'cart' / 'test-v0'
    source: Any = {'id': 'cart/test-v0', 'folder': folder, 'data folder': folder / 'data'}[way]
    agent, _ = dqn()
    replay = agent.replay_for(100, 2)
    assert fill(agent, replay, source) == 4 + 5 + 6 == len(replay)
    batch = replay.sample((500,), np.random.default_rng(0))
    k, t = batch.obs[:, 0] // 100, batch.obs[:, 0] % 100 // 4
    np.testing.assert_array_equal(batch.next_obs, batch.obs + 4)
    np.testing.assert_array_equal(batch.reward, k + t)
    np.testing.assert_array_equal(batch.action, t % 2)
    np.testing.assert_array_equal(batch.terminated, (k == 0) & (t == 3))
    np.testing.assert_array_equal(batch.truncated, (k == 1) & (t == 4))
    assert len(np.unique(batch.obs[:, 0])) == 15


@pytest.mark.filterwarnings('ignore:`eval_env`')
def test_an_environment_that_a_name_does_not_give_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    minari = pytest.importorskip('minari')
    monkeypatch.setenv('MINARI_DATASETS_PATH', str(tmp_path))
    about = {'algorithm_name': 'x', 'author': 'y', 'author_email': 'z', 'code_permalink': '-', 'description': '-'}
    made = {
        'wrapped': gymnasium.wrappers.StickyAction(gymnasium.make('CartPole-v1'), 0.5),
        'endless': gymnasium.make('CartPole-v1', max_episode_steps=-1),
        'longer': gymnasium.make('CartPole-v1', max_episode_steps=700),
    }
    for name, env in made.items():
        minari.create_dataset_from_buffers(f'{name}/test-v0', minari_episodes(), env=env, **about)
    assert zoo.open_dataset('longer/test-v0').environment.arguments['max_episode_steps'] == 700
    for name in ('wrapped', 'endless'):
        dataset = zoo.open_dataset(f'{name}/test-v0')
        assert dataset.environment.name == 'CartPole-v1' and dataset.environment.arguments is None
        with pytest.raises(ValueError, match='CartPole-v1'):
            dataset.build_env()


def test_a_data_set_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip('minari')
    monkeypatch.setenv('MINARI_DATASETS_PATH', str(tmp_path))
    with pytest.raises(ValueError, match=r"^there is no Minari dataset 'no/such-v0' on this machine: give a file"):
        open_dataset('no/such-v0')
    with pytest.raises(ValueError, match=rf"^the folder '{tmp_path}' holds no dataset: give a file"):
        open_dataset(tmp_path)
    with pytest.raises(ValueError, match=r"^there is no dataset 'nonsense': give a file"):
        open_dataset('nonsense')
    monkeypatch.setitem(sys.modules, 'minari', None)
    with pytest.raises(ImportError, match=r"^datasets of Minari need the extra: pip install 'zoo-rl\[minari\]'"):
        open_dataset('no/such-v0')


def test_images_of_another_layout_are_refused_and_not_scrambled():
    space, rng = Box(0, 255, (6, 6, 3), np.uint8), np.random.default_rng(0)
    given = {'action': rng.integers(5, size=4), 'reward': np.ones(4), 'terminated': True, 'truncated': False}
    channels_first = {**given, 'obs': rng.integers(0, 256, (5, 3, 6, 6)).astype(np.uint8)}
    with pytest.raises(ValueError, match='the observation'):
        open_dataset([channels_first], observation_space=space, action_space=Discrete(5))
    column = {**given, 'obs': np.zeros((5, 6, 6, 3), np.uint8), 'action': given['action'][:, None]}
    (episode,) = open_dataset([column], observation_space=space, action_space=Discrete(5))
    np.testing.assert_array_equal(episode.action, given['action'])


def test_one_declared_space_holds_for_every_agent():
    whole, unit = Box(0, 255, (3,), np.float32), Box(0, 1, (3,), np.float32)
    episode = {'obs': np.full((5, 3), 9.0), 'action': np.zeros(4, int), 'reward': np.ones(4)}
    episode |= {'terminated': True, 'truncated': False}
    data = open_dataset([episode], observation_space=whole)
    found = data.source.fitting(whole, Discrete(5))
    assert (found.observation_space, found.action_space) == (whole, Discrete(5))
    assert data.source.fitting(unit, Discrete(5)).observation_space == whole
