"""The collector: every transition of a counting environment compared with the environment played by hand."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import pytest
from counting import SPACES, Counting, drive, expected
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.env_wrappers import build_env
from zoo.common.envs.answers import LIFE_LOST
from zoo.common.envs.wrappers.copying import Copy
from zoo.common.records import Episode
from zoo.common.rollouts.collector import Collector

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED]


def collector_of(env: gymnasium.Env | VectorEnv) -> Collector:
    space = env.single_action_space if isinstance(env, VectorEnv) else env.action_space
    return Collector(env, ActionAdaptor(space))


def play(collector: Collector, steps: int, seed: int = 5) -> tuple[list[dict[str, Any]], list[Episode]]:
    """Random actions; everything that the collector shows, copied, and all episodes."""
    rng = np.random.default_rng(0)
    collector.reset(seed)
    record, episodes = [], []
    for _ in range(steps):
        obs = spaces.tree_map(np.copy, collector.obs)
        action = collector.adaptor.random(collector.num_envs, rng)
        collector.step(action)
        record.append(
            {name: np.copy(getattr(collector, name)) for name in ('reward', 'terminated', 'truncated', 'valid')}
            | {'obs': obs, 'action': action, 'next_obs': spaces.tree_map(np.copy, collector.next_obs)}
        )
        episodes.append(list(collector.finished))
    return record, episodes


def assert_flat_equal(flat: Any, i: int, form: str, place: tuple[int, int, int]) -> None:
    wanted = expected(form, *place)
    items = dict(spaces.tree_items(wanted))
    assert items.keys() == dict(spaces.tree_items(flat)).keys()
    for path, x in spaces.tree_items(flat):
        leaf = spaces.leaves(SPACES[form])[path]
        assert x.dtype == leaf.dtype
        np.testing.assert_array_equal(x[i], items[path], err_msg=f'{path} of {place}')


def check(collector: Collector, form: str, steps: int = 150, seed: int = 5, length: int | None = None) -> list[Episode]:
    """Every copy's transitions are those of the environment played by hand with the same actions."""
    record, episodes = play(collector, steps, seed)
    taken = 0
    found: list[list[Episode]] = [[] for _ in range(collector.num_envs)]
    for step, finished in zip(record, episodes, strict=True):
        ended = np.flatnonzero(step['terminated'] | step['truncated'])
        assert len(ended) == len(finished)
        for i, episode in zip(ended, finished, strict=True):
            assert episode.copy == i
            found[i].append(episode)
    for i in range(collector.num_envs):
        rows = [step for step in record if step['valid'][i]]
        transitions, by_hand = drive(Counting('box', length=length), seed + i, [step['action'][i] for step in rows])
        taken += len(rows)
        assert len({(terminated, truncated) for *_, terminated, truncated in transitions}) == 4 or length
        for step, (episode, t, _, reward, terminated, truncated) in zip(rows, transitions, strict=True):
            assert_flat_equal(step['obs'], i, form, (seed + i, episode, t))
            assert_flat_equal(step['next_obs'], i, form, (seed + i, episode, t + 1))
            assert step['reward'][i] == reward
            assert step['reward'].dtype == np.float32
            assert (step['terminated'][i], step['truncated'][i]) == (terminated, truncated)
        assert [episode[:3] for episode in found[i]] == by_hand
        assert all(isinstance(x.success, bool) for x in found[i])
    assert collector.steps == taken
    return [episode for finished in episodes for episode in finished]


@pytest.mark.full(but='stack in dict-False')
@pytest.mark.parametrize('reuse', [False, True])
@pytest.mark.parametrize('form', SPACES)
def test_single_environment(form: str, reuse: bool):
    collector = collector_of(Counting(form, reuse))
    check(collector, form)
    assert collector.valid.all()


@pytest.mark.full(but='box-AutoresetMode.DISABLED')
@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('form', SPACES)
def test_copies(form: str, mode: AutoresetMode):
    env = SyncVectorEnv([partial(Counting, form)] * 3, autoreset_mode=mode)
    check(collector_of(env), form)


@pytest.mark.parametrize('mode', [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_copies_that_write_into_the_same_arrays(mode: AutoresetMode):
    env = SyncVectorEnv([partial(Counting, 'dict', True)] * 2, copy=False, autoreset_mode=mode)
    check(collector_of(env), 'dict')


class OneArray(gymnasium.ObservationWrapper):
    """Writes every observation into one array."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.array = np.zeros(env.observation_space.shape, env.observation_space.dtype)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        self.array[:] = observation
        return self.array


def in_one_array(env: gymnasium.Env) -> gymnasium.Env:
    """The same by one of Gymnasium's wrappers."""
    array = np.zeros(env.observation_space.shape, env.observation_space.dtype)

    def write(observation: np.ndarray) -> np.ndarray:
        array[:] = observation
        return array

    return gymnasium.wrappers.TransformObservation(env, write, None)


@pytest.mark.full(but='sync')
@pytest.mark.parametrize('vectorized', ['sync', 'async'])
def test_built_copies_that_write_into_the_same_arrays(vectorized: str):
    env = build_env(partial(Counting, 'dict', True), vectorized=vectorized, nenv=2)
    check(collector_of(env), 'dict', steps=100)
    env.close()


@pytest.mark.full(but='OneArray-sync')
@pytest.mark.parametrize('vectorized', ['sync', 'async'])
@pytest.mark.parametrize('around', [OneArray, in_one_array])
def test_built_copies_of_a_wrapper_that_writes_into_one_array(around: Any, vectorized: str):
    """What is wrapped is Gymnasium's own, and innocent."""

    def make(seed: int | None = None) -> gymnasium.Env:
        return around(gymnasium.make('CartPole-v1', max_episode_steps=7))

    env = build_env(make, vectorized=vectorized, nenv=2)
    record, episodes = play(collector_of(env), 40)
    env.close()
    assert sum(map(len, episodes)) > 8
    for i in range(2):
        assert_cartpole(record, i, 7)


def test_gymnasiums_own_environments_are_spared_the_copies():
    taxi = max(name for name in gymnasium.registry if name.startswith('Taxi-'))  # its masks become observations
    for env_id in ('CartPole-v1', taxi):
        env = build_env(env_id, nenv=2)
        assert not any(isinstance(copy, Copy) for copy in env.envs)


@pytest.mark.full(but='AutoresetMode.NEXT_STEP')
@pytest.mark.parametrize('mode', [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_processes(mode: AutoresetMode):
    env = AsyncVectorEnv([partial(Counting, 'tuple')] * 2, context='spawn', autoreset_mode=mode)
    check(collector_of(env), 'tuple', steps=100)
    env.close()


@pytest.mark.parametrize('mode', MODES)
def test_episodes_of_one_step(mode: AutoresetMode):
    env = SyncVectorEnv([partial(Counting, 'box', length=1)] * 2, autoreset_mode=mode)
    check(collector_of(env), 'box', steps=40, length=1)


def test_only_the_steps_that_reset_a_copy_are_invalid():
    record, _ = play(collector_of(SyncVectorEnv([Counting] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)), 60)
    done = np.array([step['terminated'] | step['truncated'] for step in record])
    valid = np.array([step['valid'] for step in record])
    assert valid[0].all()
    assert (valid[1:] == ~done[:-1]).all()
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
        record, _ = play(collector_of(SyncVectorEnv([Counting] * 3, autoreset_mode=mode)), 60)
        assert all(step['valid'].all() for step in record)


def test_single_environment_that_resets_itself():
    """Gymnasium's ``Autoreset`` would reset in the next step: the collector's own reset must not be followed by one."""
    check(collector_of(gymnasium.wrappers.Autoreset(Counting())), 'box')


@pytest.mark.full(but='None')
@pytest.mark.parametrize('mode', [None, *MODES])
def test_reset_in_mid_episode(mode: AutoresetMode | None):
    env = Counting() if mode is None else SyncVectorEnv([Counting] * 3, autoreset_mode=mode)
    collector = collector_of(env)
    for steps in range(1, 9):
        play(collector, steps)
        collector.steps = 0
        check(collector, 'box', steps=50, seed=9)


@pytest.mark.parametrize('mode', [None, *MODES])
def test_observations_stay_until_the_step_after_next(mode: AutoresetMode | None):
    env = (
        Counting('dict', True) if mode is None else SyncVectorEnv([partial(Counting, 'dict')] * 2, autoreset_mode=mode)
    )
    collector = collector_of(env)
    collector.reset(0)
    for _ in range(60):
        held = collector.obs, collector.next_obs
        copies = [spaces.tree_map(np.copy, x) for x in held]
        collector.step(np.zeros(collector.num_envs, np.int32))
        for x, y in zip(held, copies, strict=True):
            for path in y:
                np.testing.assert_array_equal(x[path], y[path])


class ByHand(VectorEnv):
    """A vector environment of one's own: integer rewards, an unusual info, no reward promised in a step that resets."""

    num_envs = 2
    single_observation_space = Box(-1, 1, (1,), np.float32)
    observation_space = Box(-1, 1, (2, 1), np.float32)
    single_action_space = Discrete(2)
    metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        self.t = 0
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        self.t += 1
        ended = np.array([self.t % 3 == 2, False])
        info = {'frame': self.t, 'names': ['a'], 'success': np.array([True, False]), '_success': ended}
        return np.zeros((2, 1), np.float32), np.array([7, 1]), ended, np.zeros(2, bool), info


def test_vector_environment_of_ones_own():
    collector = collector_of(ByHand())
    _, episodes = play(collector, 6)
    assert [x for finished in episodes for x in finished] == [Episode(14.0, 2, True), Episode(14.0, 2, True)]
    assert collector.steps == 2 * 6 - 2


def test_what_a_step_that_resets_a_copy_gives_is_not_in_its_unshaped_return():
    env = ByHand()
    env.action_space = MultiDiscrete([2, 2])
    collector = collector_of(build_env(env, reward_shaping=lambda reward: reward / 2))
    record, episodes = play(collector, 6)
    assert record[0]['reward'].tolist() == [3.5, 0.5]
    assert [x for finished in episodes for x in finished] == [Episode(14.0, 2, True), Episode(14.0, 2, True)]


@pytest.mark.parametrize('rewards', [[1.0, None], None, 1.0])
def test_rewards_that_cannot_be_shaped(rewards: Any):
    def change(t: int, obs: Any, reward: Any, *rest: Any) -> tuple:
        return obs, rewards, *rest

    with pytest.raises(TypeError, match=r'^OneByOne: .*(the reward None|rewards of shape).*\.$'):
        play(collector_of(build_env(OneByOne(change=change), reward_shaping=halved)), 3)


def test_keys_with_slashes_and_numbers():
    class Odd(gymnasium.Env):
        observation_space = Dict({'a/b': Box(-9, 9, (1,), np.float32), 'c': Dict({'0': Discrete(9)})})
        action_space = Discrete(2)

        def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
            return {'a/b': np.ones(1, np.float32), 'c': {'0': 4}}, {}

    for env in (Odd(), SyncVectorEnv([Odd] * 2)):
        obs = collector_of(env).reset()
        assert set(obs) == {'a/b', 'c/0'}
        assert (obs['a/b'] == 1).all()
        assert (obs['c/0'] == 4).all()


def test_returns_are_summed_in_double_precision():
    class Small(Counting):
        def step(self, action: int) -> tuple:
            obs, _, *rest = super().step(action)
            return obs, 0.1, *rest

    for env in (Small(length=6), SyncVectorEnv([partial(Small, length=6)])):
        _, episodes = play(collector_of(env), 6)
        assert episodes[-1][0].episode_return == sum([0.1] * 6)


# Vector environments that are not Gymnasium's own copies


def assert_cartpole(record: list[dict[str, Any]], i: int, limit: int) -> None:
    """The transitions of copy ``i`` obey CartPole's equations of motion, from reset to reset."""
    reference = CartPoleEnv()
    reference.reset(seed=0)
    t, before = 0, None
    for step in record:
        if not step['valid'][i]:
            before = step['next_obs'][i]
            continue
        obs, next_obs = step['obs'][i], step['next_obs'][i]
        if t:
            np.testing.assert_array_equal(obs, before)
        else:
            assert (np.abs(obs) <= 0.05).all(), 'an episode begins near the middle'
        reference.state, reference.steps_beyond_terminated = obs.astype(np.float64), None
        predicted, _, terminated, _, _ = reference.step(int(step['action'][i]))
        np.testing.assert_allclose(next_obs, predicted, atol=1e-5)
        t += 1
        assert step['terminated'][i] == terminated
        assert step['truncated'][i] == (t == limit)
        before = next_obs
        if terminated or t == limit:
            t = 0


@pytest.mark.skipif(find_spec('envpool') is None, reason='EnvPool is not installed')
def test_envpool():
    env = build_env('CartPole-v1', 'classic_control', vectorized='envpool', nenv=3, max_episode_steps=15)
    collector = collector_of(env)
    record, episodes = play(collector, 150)
    env.close()
    for i in range(3):
        assert_cartpole(record, i, 15)
    ended = np.array([[step['terminated'], step['truncated']] for step in record])
    assert ended[:, 0].any()
    assert ended[:, 1].any()
    assert collector.steps == 450
    assert all(episode.episode_return == episode.length for finished in episodes for episode in finished)


def test_gymnasiums_own_vector_cartpole():
    env = gymnasium.make_vec('CartPole-v1', num_envs=3, vectorization_mode='vector_entry_point')
    assert env.metadata['autoreset_mode'] == AutoresetMode.NEXT_STEP
    record, episodes = play(collector_of(env), 150)
    for i in range(3):
        assert_cartpole(record, i, 500)
    assert sum(not step['valid'].all() for step in record) > 5
    assert all(episode.episode_return == episode.length for finished in episodes for episode in finished)


# The environment's own account of an episode


def halved(reward: float) -> float:
    return reward / 2


@pytest.mark.parametrize('how', ['single', 'sync', 'object', 'envpool'])
def test_returns_are_those_without_reward_shaping(how: str):
    if how == 'envpool':
        pytest.importorskip('envpool')
        env = build_env('CartPole-v1', 'classic_control', 'envpool', nenv=2, reward_shaping=halved)
    elif how == 'object':
        env = build_env(SyncVectorEnv([Counting] * 2), reward_shaping=halved)
    else:
        env = build_env(Counting, vectorized='sync', nenv=1 if how == 'single' else 2, reward_shaping=halved)
    collector = collector_of(env)
    record, episodes = play(collector, 80)
    env.close()
    totals, lengths = np.zeros(collector.num_envs), np.zeros(collector.num_envs, int)
    count = 0
    for step, finished in zip(record, episodes, strict=True):
        totals += np.where(step['valid'], 2 * step['reward'], 0)
        lengths += step['valid']
        ended = np.flatnonzero(step['terminated'] | step['truncated'])
        assert [(x.episode_return, x.length) for x in finished] == [(totals[i], lengths[i]) for i in ended]
        assert all(x.success is None for x in finished) or how != 'envpool'
        totals[ended] = lengths[ended] = 0
        count += len(ended)
    assert count > 3


@pytest.mark.parametrize('copies', [1, 2])
@pytest.mark.parametrize(
    ('final', 'success'),
    [
        ({}, None),
        ({'success': 1.0}, True),
        ({'success': False}, False),
        ({'is_success': np.float32(0), 'success': 1}, False),
    ],
)
def test_success(copies: int, final: dict[str, Any], success: bool | None):
    class Task(Counting):
        def reset(self, **kwargs: Any) -> tuple:
            return super().reset(**kwargs)[0], {}

        def step(self, action: int) -> tuple:
            *rest, _ = super().step(action)
            return *rest, final if rest[2] or rest[3] else {}

    modes = [None] if copies == 1 else MODES
    for mode in modes:
        env = Task() if mode is None else SyncVectorEnv([Task] * copies, autoreset_mode=mode)
        _, episodes = play(collector_of(env), 30)
        found = [episode.success for finished in episodes for episode in finished]
        assert len(found) > 3
        assert set(found) == {success}


# Bad environments


class Broken(Counting):
    """Gives something else at one place of its third step or of its first reset after the first episode."""

    def __init__(self, form: str, path: str, value: Any, at: str = 'step', copy: int = 0) -> None:
        super().__init__(form, length=5)
        self.path, self.value, self.at, self.copy, self.t = path, value, at, copy, 0

    def observation(self) -> Any:
        obs = super().observation()
        broken = self.t == 3 if self.at == 'step' else self.t == 5 if self.at == 'final' else self.t == 0
        broken = broken and self.episode == (self.at == 'reset') and (self.seed - 5) == self.copy
        if not broken or self.path == 'reward':
            return obs
        if self.path == '':
            return self.value
        *parents, last = self.path.split('/')
        owner = obs
        for key in parents:
            owner = owner[key]
        if self.value is KeyError:
            del owner[last]
        else:
            owner[last] = self.value
        return obs

    def step(self, action: int) -> tuple:
        obs, reward, *rest = super().step(action)
        broken = self.path == 'reward' and self.t == 3 and self.episode == 0 and (self.seed - 5) == self.copy
        return obs, self.value if broken else reward, *rest


@pytest.mark.parametrize(
    ('form', 'path', 'value', 'words'),
    [
        ('box', '', np.zeros(2, np.float32), ['shape (2,)', '(3,)']),
        ('box', '', np.zeros((1, 3), np.float32), ['shape (1, 3)', '(3,)']),
        ('box', '', 0.5, ['shape ()', '(3,)']),
        ('box', '', np.full(3, 1e39), ['the value 1e+39', 'the float32 of its space cannot hold']),
        ('box', '', ['a', 'b', 'c'], ['dtype <U1', 'float32']),
        ('box', '', [[1.0], [1.0, 2.0], 3.0], ['dtype object', 'float32']),
        ('image', '', np.full((2, 3), 0.5, np.float32), ['the value 0.5', 'the uint8 of its space cannot hold']),
        ('image', '', np.full((2, 3), 300), ['the value 300', 'uint8']),
        ('image', '', np.full((2, 3), -1), ['the value -1', 'uint8']),
        ('image', '', np.full((2, 3), np.nan), ['the value nan', 'uint8']),
        ('discrete', '', 1.5, ['the value 1.5', 'int64']),
        ('dict', 'deep/bits', np.zeros(5, np.int8), ["'deep/bits'", 'shape (5,)', '(4,)']),
        ('dict', 'place', np.zeros(2), ["'place'", 'float64', 'float32']),
        ('dict', 'deep', {'bits': np.zeros(4, np.int8)}, ["'deep/number' is missing"]),
        ('dict', 'place', KeyError, ["'place' is missing"]),
    ],
)
def test_observation_outside_its_declared_shape_or_dtype(form: str, path: str, value: Any, words: list[str]):
    collector = collector_of(Broken(form, path, value))
    with pytest.raises(
        ValueError, match=r'^step 3: (the environment gave an|in the environment.s) observation .*\.$'
    ) as caught:
        play(collector, 10)
    for word in words:
        assert word in str(caught.value)
    assert collector.steps == 3


def test_dtypes_that_cast_without_loss_fit():
    class Casts(Counting):
        def observation(self) -> Any:
            obs = super().observation()
            obs['deep'] = {'number': np.int32(obs['deep']['number']), 'bits': obs['deep']['bits'].astype(bool)}
            obs['place'] = obs['place'].astype(np.float16)
            return obs

    play(collector_of(Casts('dict')), 20)


def test_vector_observation_of_another_shape_or_dtype():
    class Wrong(ByHand):
        wrong = np.zeros((2, 2), np.float32)

        def step(self, actions: np.ndarray) -> tuple:
            _, *rest = super().step(actions)
            return self.wrong, *rest

    with pytest.raises(
        ValueError, match=r'^step 2: .* shape \(2, 2\) and dtype float32, .* declares \(2, 1\) and float32'
    ):
        play(collector_of(Wrong()), 3)
    Wrong.wrong = np.full((2, 1), 1e39)
    with pytest.raises(ValueError, match=r'the value 1e\+39, which the float32 of its space cannot hold'):
        play(collector_of(Wrong()), 3)
    Wrong.wrong = np.full((2, 1), 0.1)
    collector = collector_of(Wrong())
    play(collector, 3)
    assert collector.obs.dtype == np.float32 and (collector.obs == np.float32(0.1)).all()


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('at', ['step', 'final', 'reset'])
@pytest.mark.parametrize('form', ['box', 'dict'])
def test_observation_that_is_not_finite(form: str, at: str, value: float):
    broken = np.array([1, value, 2], np.float32)
    path = '' if form == 'box' else 'place'
    name = 'an observation ' if form == 'box' else "an observation 'place' "
    step = 3 if at == 'step' else 5
    with pytest.raises(FloatingPointError) as caught:
        play(collector_of(Broken(form, path, broken, at)), 10)
    assert str(caught.value) == f'step {step}: the environment gave {name}that is {value}.'
    for mode in MODES:
        copies = [partial(Broken, form, path, broken, at, copy=2)] * 3
        collector = collector_of(SyncVectorEnv(copies, autoreset_mode=mode))
        with pytest.raises(FloatingPointError) as caught:
            play(collector, 10)
        # A copy that resets itself in the next step takes no step of its own there.
        steps = 3 * step
        assert str(caught.value) == f'step {steps}: copy 2 of the environment gave {name}that is {value}.', mode


def test_first_observation_that_is_not_finite():
    class First(Counting):
        def observation(self) -> Any:
            return super().observation() * np.float32(np.nan)

    with pytest.raises(FloatingPointError, match='^step 0: the environment gave an observation that is nan'):
        collector_of(First()).reset()
    with pytest.raises(FloatingPointError, match='^step 0: copy 0 of the environment gave an observation that is nan'):
        collector_of(SyncVectorEnv([First] * 2)).reset()


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_reward_that_is_not_finite(value: float):
    with pytest.raises(FloatingPointError) as caught:
        play(collector_of(Broken('discrete', 'reward', value)), 10)
    assert str(caught.value) == f'step 3: the environment gave a reward that is {value}.'
    for mode in MODES:
        copies = [partial(Broken, 'box', 'reward', value, copy=1)] * 2
        with pytest.raises(FloatingPointError) as caught:
            play(collector_of(SyncVectorEnv(copies, autoreset_mode=mode)), 10)
        assert str(caught.value) == f'step 6: copy 1 of the environment gave a reward that is {value}.'


@pytest.mark.filterwarnings('ignore:overflow encountered in cast')
@pytest.mark.parametrize('value', [1e39, -1e39])
def test_reward_beyond_single_precision(value: float):
    """It is finite as it was given, and infinite as it would be stored."""
    words = rf'gave the reward {"-" if value < 0 else ""}1e\+39, .*float32.*3\.4e\+?38.*\.$'
    with pytest.raises(FloatingPointError, match=f'^step 3: the environment {words}'):
        play(collector_of(Broken('discrete', 'reward', value)), 10)
    for mode in MODES:
        copies = [partial(Broken, 'box', 'reward', value, copy=1)] * 2
        with pytest.raises(FloatingPointError, match=f'^step 6: copy 1 of the environment {words}'):
            play(collector_of(SyncVectorEnv(copies, autoreset_mode=mode)), 10)


def test_render_after_every_step():
    class Shown(Counting):
        frames = 0

        def render(self) -> None:
            self.frames += 1

    env = Shown()
    collector = Collector(env, ActionAdaptor(env.action_space), render=True)
    play(collector, 7)
    assert env.frames == 7


# What a vector environment of one's own says, or does not


class OneByOne(VectorEnv):
    """Counting environments that are stepped here, with whatever ``metadata`` and changes to a step's result."""

    def __init__(self, copies: int = 2, mode: Any = AutoresetMode.NEXT_STEP, change: Any = None, **kwargs: Any) -> None:
        actual = mode if isinstance(mode, AutoresetMode) else AutoresetMode.NEXT_STEP
        self.inner = SyncVectorEnv([partial(Counting, **kwargs)] * copies, autoreset_mode=actual)
        self.num_envs = copies
        self.metadata = {'autoreset_mode': mode}
        self.single_observation_space, self.observation_space = (
            self.inner.single_observation_space,
            self.inner.observation_space,
        )
        self.single_action_space, self.action_space = self.inner.single_action_space, self.inner.action_space
        self.change = change
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        return self.inner.reset(seed=seed, options=options)

    def step(self, actions: np.ndarray) -> Any:
        self.t += 1
        result = list(self.inner.step(actions))
        return tuple(result) if self.change is None else self.change(self.t, *result)


@pytest.mark.parametrize(
    'said', ['NextStep', 'next_step', 'NEXT_STEP', 'next-step', AutoresetMode.NEXT_STEP.value, AutoresetMode.NEXT_STEP]
)
def test_the_way_to_reset_may_be_a_string(said: Any):
    check(collector_of(OneByOne(mode=said)), 'box')


@pytest.mark.parametrize(
    ('said', 'mode'), [('SameStep', AutoresetMode.SAME_STEP), ('disabled', AutoresetMode.DISABLED)]
)
def test_the_other_ways_to_reset_may_be_strings(said: str, mode: AutoresetMode):
    env = SyncVectorEnv([Counting] * 2, autoreset_mode=mode)
    env.metadata = {'autoreset_mode': said}
    check(collector_of(env), 'box')
    env = build_env(SyncVectorEnv([Counting] * 2, autoreset_mode=mode), reward_shaping=halved)
    env.env.metadata = env.metadata | {'autoreset_mode': said}
    assert lengths_of_first_copy(type(env)(env.env, halved)) == lengths_by_hand(40)


@pytest.mark.parametrize('metadata', [{}, {'autoreset_mode': None}, None])
def test_a_vector_environment_that_does_not_say_how_it_resets_is_refused(metadata: dict | None):
    env = OneByOne()
    env.metadata = metadata
    with pytest.raises(ValueError, match=r"^the vector environment .*metadata\['autoreset_mode'\].*NEXT_STEP.*\.$"):
        collector_of(env)
    with pytest.raises(ValueError, match=r"metadata\['autoreset_mode'\]"):
        build_env(env)


def test_an_unknown_way_to_reset_is_refused():
    with pytest.raises(ValueError, match=r"'at night'.*SAME_STEP"):
        collector_of(OneByOne(mode='at night'))


def test_what_a_copy_says_in_a_step_that_only_resets_it_is_not_heeded():
    """Flags that stay up, and a reward that is NaN: both belong to no transition."""

    def stubborn(**kwargs: Any) -> Collector:
        flags = np.zeros(2, bool)

        def change(t: int, obs: Any, reward: Any, terminated: Any, truncated: Any, info: dict) -> tuple:
            nonlocal flags
            resetting, flags = flags, terminated | truncated
            return obs, np.where(resetting, np.nan, reward), terminated | resetting, truncated | resetting, info

        return collector_of(OneByOne(change=change, **kwargs))

    check(stubborn(), 'box')
    check(stubborn(length=1), 'box', length=1)
    record, _ = play(stubborn(length=2), 30)
    assert sum(not step['valid'].all() for step in record) > 5
    for step in record:
        assert not (step['terminated'] | step['truncated'])[~step['valid']].any()
        assert not step['reward'][~step['valid']].any()


def test_the_first_step_after_a_reset_is_a_step():
    collector = collector_of(SyncVectorEnv([partial(Counting, length=1)] * 2, autoreset_mode=AutoresetMode.NEXT_STEP))
    for seed in (3, 4):
        record, _ = play(collector, 1, seed)  # the episodes have ended, and the next reset comes before their own
        assert record[0]['valid'].all()


# Values outside a space that says which there are


@pytest.mark.parametrize(
    ('space', 'value', 'words'),
    [
        (Discrete(3), 3, ['the value 3', 'from 0 to 2']),
        (Discrete(3), np.int64(-1), ['the value -1']),
        (Discrete(3, start=1), 0, ['the value 0', 'from 1 to 3']),
        (MultiDiscrete([3, 2]), np.array([2, 2]), ['the value 2', 'entry 1', 'from 0 to 1']),
        (MultiDiscrete([3, 2], start=[1, -1]), np.array([0, 0]), ['the value 0', 'entry 0', 'from 1 to 3']),
        (MultiBinary(3), np.array([0, 2, 1], np.int8), ['the value 2', 'from 0 to 1']),
        (MultiBinary(3), np.array([0, 256, 1]), ['the value 256', 'int8']),
        (MultiBinary((2, 2)), np.array([[0, 1], [-1, 1]], np.int8), ['the value -1', 'entry 1, 0']),
        (MultiBinary(3), [0, 1, 2], ['the value 2', 'entry 2']),
    ],
)
@pytest.mark.parametrize('in_dict', [False, True])
def test_observation_outside_a_space_of_so_many_values(space: Any, value: Any, words: list[str], in_dict: bool):
    class Outside(gymnasium.Env):
        observation_space = Dict(deep=Dict(room=space), pose=Box(-1, 1, (2,), np.float32)) if in_dict else space
        action_space = Discrete(2)
        t = 0

        def observe(self, x: Any) -> Any:
            return {'deep': {'room': x}, 'pose': np.zeros(2, np.float32)} if in_dict else x

        def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
            super().reset(seed=seed)
            self.late, self.t = seed == 6, 0
            return self.observe(space.sample()), {}

        def step(self, action: int) -> tuple:
            self.t += 1
            bad = self.t == 3 and (self.late or collector.num_envs == 1)
            return self.observe(value if bad else space.sample()), 0.0, False, False, {}

    where = "'deep/room' " if in_dict else ''
    for mode in [None, *MODES]:
        env = Outside() if mode is None else SyncVectorEnv([Outside] * 3, autoreset_mode=mode)
        if mode is not None and isinstance(space, MultiBinary) and np.max(value) == 256:
            continue  # Gymnasium's copies cast it to something else
        collector = collector_of(env)
        with pytest.raises(ValueError, match=r'^step .*: correct one of the two\.$') as caught:
            play(collector, 10)
        begin = 'step 3: ' if mode is None else 'step 9: copy 1 of '
        assert str(caught.value).startswith(f'{begin}the environment gave an observation {where}with the value')
        for word in words:
            assert word in str(caught.value)


def test_values_at_the_ends_of_their_range_fit():
    class Ends(gymnasium.Env):
        observation_space = Tuple((Discrete(3, start=-1), MultiDiscrete([2, 3], start=[0, 5]), MultiBinary(2)))
        action_space = Discrete(2)

        def reset(self, **kwargs: Any) -> tuple[Any, dict]:
            return (-1, np.array([0, 5]), np.zeros(2, np.int8)), {}

        def step(self, action: int) -> tuple:
            return (1, np.array([1, 7]), np.ones(2, bool)), 0.0, False, False, {}

    play(collector_of(Ends()), 3)
    play(collector_of(SyncVectorEnv([Ends] * 2)), 3)


# What belongs to Atari alone, and success


class Told(Counting):
    """Puts ``told`` in every info of a step, or at the end of an episode alone."""

    def __init__(self, told: dict[str, Any], always: bool = False) -> None:
        super().__init__()
        self.told, self.always = told, always

    def reset(self, **kwargs: Any) -> tuple:
        return super().reset(**kwargs)[0], {}

    def step(self, action: int) -> tuple:
        *rest, _ = super().step(action)
        return *rest, dict(self.told) if self.always or rest[2] or rest[3] else {}


def told_by(told: dict[str, Any], always: bool = False) -> list[tuple[str, Any]]:
    """One environment and copies in every mode that are told the same."""
    factory = partial(Told, told, always)
    return [factory(), *(SyncVectorEnv([factory] * 2, autoreset_mode=mode) for mode in MODES)]


def lengths_by_hand(steps: int) -> list[int]:
    """The first lengths of the episodes of ``Counting``, whatever is done in them, up to so many steps."""
    return [length for _, length, _ in drive(Counting(), 5, [0] * steps)[1]][:8]


def lengths_of_first_copy(env: Any) -> list[int]:
    _, episodes = play(collector_of(env), 60)
    return [x.length for finished in episodes for x in finished if x.copy == 0][:8]


def test_a_life_lost_is_heeded_from_the_librarys_own_games_alone():
    for env in told_by({'life_lost': True}, always=True):
        assert lengths_of_first_copy(env) == lengths_by_hand(40)
    for env in told_by({LIFE_LOST: True}, always=True):
        _, episodes = play(collector_of(env), 40)
        assert not any(episodes)


@pytest.mark.full(but='is_success-0.0-False')
@pytest.mark.parametrize(
    ('told', 'success'),
    [
        (np.nan, None),
        ('no', None),
        ('True', None),
        (None, None),
        (0.5, None),
        (2, None),
        ({'at': 3}, None),
        (np.array([1.0, 0.0]), None),
        (np.array([np.nan]), None),
        (np.array([1.0]), True),
        (np.array([[False]]), False),
        (np.bool_(True), True),
        (1, True),
        (0.0, False),
    ],
)
@pytest.mark.parametrize('key', ['success', 'is_success'])
def test_success_is_a_truth_or_unknown(key: str, told: Any, success: bool | None):
    for env in told_by({key: told}):
        _, episodes = play(collector_of(env), 40)
        found = [episode.success for finished in episodes for episode in finished]
        assert len(found) > 3
        assert set(found) == {success}


def test_the_other_word_for_success_counts_where_one_says_nothing():
    for env in told_by({'is_success': 'unclear', 'success': True}):
        _, episodes = play(collector_of(env), 40)
        assert {episode.success for finished in episodes for episode in finished} == {True}


# The environment's own account of an episode in other forms


@pytest.mark.full(but='7')
@pytest.mark.parametrize(
    'account',
    [
        7,
        None,
        'the third',
        np.array([1.0, 2.0]),
        {'r': 5.0},
        {'return': 5.0, 'length': 3},
        {'r': None, 'l': 3},
        {'r': np.nan, 'l': 3},
        {'r': 'much', 'l': 3},
        {'r': np.zeros(3), 'l': 3},
    ],
)
def test_an_account_of_another_form_is_not_heeded(account: Any):
    for env in told_by({'episode': account}):
        assert lengths_of_first_copy(env) == lengths_by_hand(40)


def test_accounts_as_arrays_of_one():
    for env in told_by({'episode': {'r': np.array([3.5], np.float32), 'l': np.array([9]), 't': np.array([0.1])}}):
        _, episodes = play(collector_of(env), 40)
        assert {(x.episode_return, x.length) for finished in episodes for x in finished} == {(3.5, 9)}


def test_an_account_that_lacks_steps_is_not_heeded():
    """Gymnasium's forgets the steps of all copies where one is reset: here of copy 1, whose episodes are longer."""
    env = SyncVectorEnv(
        [partial(Counting, length=3), partial(Counting, length=5)], autoreset_mode=AutoresetMode.DISABLED
    )
    record, episodes = play(collector_of(gymnasium.wrappers.vector.RecordEpisodeStatistics(env)), 10)
    rewards = np.array([step['reward'] for step in record], np.float64)
    found = [(x.copy, x.length, x.episode_return) for finished in episodes for x in finished]
    wanted = [(0, 3, t - 3) for t in (3, 6, 9)] + [(1, 5, t - 5) for t in (5, 10)]
    assert sorted(found) == [(i, length, rewards[t : t + length, i].sum()) for i, length, t in wanted]


@pytest.mark.parametrize('info', [{'episode': 3, 'success': True}, {'final_info': 5, 'episode': {'r': 3, 'l': 4}}])
@pytest.mark.parametrize('mode', MODES)
def test_odd_infos_of_a_vector_environment_are_not_heeded(mode: AutoresetMode, info: dict[str, Any]):
    def change(t: int, obs: Any, reward: Any, terminated: Any, truncated: Any, said: dict) -> tuple:
        kept = {key: value for key, value in said.items() if 'final_obs' in key}
        return obs, reward, terminated, truncated, kept | info

    _, episodes = play(collector_of(OneByOne(mode=mode, change=change, length=3)), 20)
    found = [x for finished in episodes for x in finished]
    assert len(found) > 4
    assert {(x.length, x.success) for x in found} == {(3, None)}


# What is no step and no reset


ANSWERS = {
    'reward None': (lambda o, r, a, b, i: (o, None, a, b, i), TypeError, 'the reward None'),
    'reward text': (lambda o, r, a, b, i: (o, '3', a, b, i), TypeError, "the reward '3'"),
    'rewards': (lambda o, r, a, b, i: (o, np.ones(2), a, b, i), TypeError, r'the reward array\(\[1., 1.\]\)'),
    'reward list': (lambda o, r, a, b, i: (o, [1.0, 2.0], a, b, i), TypeError, r'the reward \[1.0, 2.0\]'),
    'complex': (lambda o, r, a, b, i: (o, 1j, a, b, i), TypeError, 'the reward 1j'),
    'terminated None': (lambda o, r, a, b, i: (o, r, None, b, i), TypeError, 'terminated as None'),
    'truncated text': (lambda o, r, a, b, i: (o, r, a, 'False', i), TypeError, "truncated as 'False'"),
    'truncated nan': (lambda o, r, a, b, i: (o, r, a, np.nan, i), TypeError, 'truncated as nan'),
    'terminated twice': (lambda o, r, a, b, i: (o, r, np.zeros(2, bool), b, i), TypeError, 'terminated as array'),
    'info None': (lambda o, r, a, b, i: (o, r, a, b, None), TypeError, 'the info None'),
    'info text': (lambda o, r, a, b, i: (o, r, a, b, 'fine'), TypeError, "the info 'fine'"),
    'four': (lambda o, r, a, b, i: (o, r, a or b, i), ValueError, r'returned 4 values.*terminated, truncated, info'),
    'six': (lambda o, r, a, b, i: (o, r, a, b, i, i), ValueError, 'returned 6 values'),
    'nothing': (lambda o, r, a, b, i: None, ValueError, 'returned None'),
}


class Answers(Counting):
    """Its third step has an odd answer."""

    def __init__(self, answer: str) -> None:
        super().__init__(length=5)
        self.answer = ANSWERS[answer][0]

    def step(self, action: int) -> Any:
        result = super().step(action)
        return self.answer(*result) if (self.t, self.episode) == (3, 0) else result


@pytest.mark.parametrize('answer', ANSWERS)
@pytest.mark.parametrize('nenv', [1, 2])
def test_an_odd_answer_to_a_step_is_refused_in_a_sentence(answer: str, nenv: int):
    _, error, words = ANSWERS[answer]
    collector = collector_of(build_env(partial(Answers, answer), nenv=nenv))
    with pytest.raises(error, match=rf'^step 3: .*{words}.*\.$'):
        play(collector, 10)


VECTOR_ANSWERS = {
    'reward objects': (lambda o, r, a, b, i: (o, np.array([1.0, None]), a, b, i), 'copy 1 .* the reward None'),
    'reward of one': (lambda o, r, a, b, i: (o, 1.0, a, b, i), r'rewards of shape \(\).*\(2,\)'),
    'rewards in rows': (lambda o, r, a, b, i: (o, r[:, None], a, b, i), r'rewards of shape \(2, 1\).*\(2,\)'),
    'reward None': (lambda o, r, a, b, i: (o, None, a, b, i), r'rewards of shape \(\)'),
    'reward texts': (lambda o, r, a, b, i: (o, np.array(['1', '2']), a, b, i), "copy 0 .* the reward '1'"),
    'terminated None': (lambda o, r, a, b, i: (o, r, None, b, i), r'terminated .*of shape \(\).*\(2,\)'),
    'terminated numbers': (lambda o, r, a, b, i: (o, r, np.array([0, 2]), b, i), 'copy 1 .*terminated as 2'),
    'truncated objects': (lambda o, r, a, b, i: (o, r, a, np.array([None, False]), i), 'copy 0 .*truncated as None'),
    'info None': (lambda o, r, a, b, i: (o, r, a, b, None), 'the info None'),
    'four': (lambda o, r, a, b, i: (o, r, a | b, i), 'returned 4 values'),
}


@pytest.mark.parametrize('answer', VECTOR_ANSWERS)
def test_an_odd_answer_of_a_vector_environment_is_refused_in_a_sentence(answer: str):
    change, words = VECTOR_ANSWERS[answer]
    env = OneByOne(change=lambda t, *result: change(*result) if t == 3 else result, length=5)
    with pytest.raises((TypeError, ValueError), match=rf'^step (4|6): .*{words}.*\.$'):
        play(collector_of(env), 10)


def test_other_forms_that_say_the_same_are_understood():
    """Arrays of one number, whole numbers for flags, objects and lists."""

    class Forms(Counting):
        def step(self, action: int) -> tuple:
            obs, reward, terminated, truncated, info = super().step(action)
            return obs, np.array([reward]), int(terminated), np.array([truncated]), info

    check(collector_of(Forms()), 'box')
    check(collector_of(build_env(Forms, nenv=2)), 'box')

    def change(t: int, obs: Any, reward: Any, terminated: Any, truncated: Any, info: dict) -> tuple:
        return obs, reward.astype(object), terminated.astype(np.int64), truncated.tolist(), info

    check(collector_of(OneByOne(change=change)), 'box')


@pytest.mark.parametrize('answer', [np.zeros(3, np.float32), None, (np.zeros(3, np.float32),), [1, 2]])
@pytest.mark.parametrize('at', [0, 1])
def test_an_odd_answer_to_a_reset_is_refused_in_a_sentence(answer: Any, at: int):
    class Resets(Counting):
        def reset(self, **kwargs: Any) -> Any:
            result = super().reset(**kwargs)
            return answer if self.episode == at else result

    collector = collector_of(Resets(length=2))
    with pytest.raises(ValueError, match=rf'^step {2 * at}: reset\(\) .*the pair \(observation, info\).*\.$'):
        play(collector, 10)


def test_an_observation_of_two_numbers_is_no_pair():
    class Two(gymnasium.Env):
        observation_space = Box(-1, 1, (), np.float32)
        action_space = Discrete(2)

        def reset(self, **kwargs: Any) -> Any:
            return np.zeros(2, np.float32)

    with pytest.raises(ValueError, match=r'^step 0: reset\(\) .*the pair'):
        collector_of(Two()).reset()


# Further promises that an environment may break


def test_a_final_observation_that_is_missing():
    def change(t: int, obs: Any, reward: Any, terminated: Any, truncated: Any, info: dict) -> tuple:
        info.pop('final_obs', None)
        return obs, reward, terminated, truncated, info

    collector = collector_of(OneByOne(mode=AutoresetMode.SAME_STEP, change=change, length=3))
    with pytest.raises(ValueError, match=r"^step 6: copy 0 .*info\['final_obs'\].*\.$"):
        play(collector, 10)

    def none(t: int, obs: Any, reward: Any, terminated: Any, truncated: Any, info: dict) -> tuple:
        if 'final_obs' in info:
            info['final_obs'][1] = None
        return obs, reward, terminated, truncated, info

    collector = collector_of(OneByOne(mode=AutoresetMode.SAME_STEP, change=none, length=3))
    with pytest.raises(ValueError, match=r"^step 6: copy 1 .*info\['final_obs'\].*\.$"):
        play(collector, 10)


def test_a_reset_of_some_copies_that_resets_them_all():
    class All(OneByOne):
        def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
            return self.inner.reset(seed=seed)

    collector = collector_of(All(mode=AutoresetMode.DISABLED))
    with pytest.raises(ValueError, match=r"^step \d+: copy \d .*'reset_mask'.*\.$"):
        play(collector, 30)


def test_an_observation_that_is_not_finite_is_named_where_others_are_reset():
    """Copy 1 goes wrong in the step in which copy 0 is reset: NaN is unlike itself, but was not reset."""
    env = SyncVectorEnv(
        [partial(Counting, length=3), partial(Counting, length=5)], autoreset_mode=AutoresetMode.DISABLED
    )
    wrong = env.envs[1]
    observation = wrong.observation
    wrong.observation = lambda: observation() * np.float32(np.nan if wrong.t == 3 else 1)
    with pytest.raises(FloatingPointError, match='^step 6: copy 1 of the environment gave an observation that is nan'):
        play(collector_of(env), 5)


@pytest.mark.parametrize('form', ['box', 'dict', 'tuple'])
def test_copies_that_overwrite_their_final_observation(form: str):
    """Gymnasium's copies hand on the array itself, after the copy's reset has written into it."""
    env = SyncVectorEnv([partial(Counting, form, True)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(ValueError, match=r'^step \d+: copy \d .*final observation.*copy.*build_env.*\.$'):
        play(collector_of(env), 30)


def test_parts_of_an_observation_that_never_change_may_be_one_array():
    goal = np.arange(3, dtype=np.float32)

    class Goal(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = Dict(goal=SPACES['box'], place=SPACES['box'])

        def observation(self) -> Any:
            return {'goal': goal, 'place': super().observation()}

    env = SyncVectorEnv([Goal] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    record, episodes = play(collector_of(env), 40)
    assert sum(map(len, episodes)) > 4
    assert all((step['next_obs']['goal'] == goal).all() for step in record)


class InPlace(gymnasium.Env):
    """Observations of a few numbers in one array: ``course`` of an episode, over and over."""

    observation_space = Box(-9, 9, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, course: list[float]) -> None:
        self.course, self.array = course, np.zeros(1, np.float32)

    def reset(self, **kwargs: Any) -> tuple:
        self.t = 0
        self.array[0] = self.course[0]
        return self.array, {}

    def step(self, action: int) -> tuple:
        self.t += 1
        self.array[0] = self.course[self.t]
        return self.array, 1.0, False, self.t == len(self.course) - 1, {}


@pytest.mark.parametrize('course', [[0, 5, 0, 7], [0, 5, 5, 0, 7]])
def test_an_only_array_of_an_observation_that_changes_is_overwritten(course: list[float]):
    """Also where the episode had come back to its first observation before its last step."""
    env = SyncVectorEnv([partial(InPlace, course)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(ValueError, match=r'^step \d+: copy \d .*final observation.*copy.*build_env.*\.$'):
        play(collector_of(env), 30)


def test_an_only_array_that_is_overwritten_while_another_copy_ends_in_every_step():
    copies = [partial(InPlace, [3, 3]), partial(InPlace, [0, 5, 0, 7])]
    env = SyncVectorEnv(copies, autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(ValueError, match=r'^step 6: copy 1 .*final observation.*\.$'):
        play(collector_of(env), 4)


@pytest.mark.parametrize('steps', [1, 2, 4])
def test_an_only_array_that_never_changes_is_no_loss(steps: int):
    env = SyncVectorEnv([partial(InPlace, [3] * (steps + 1))] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    _, episodes = play(collector_of(env), 12)
    assert sum(map(len, episodes)) == 24 // steps


# Action masks


class Masks(gymnasium.Env):
    """Masks in the info of a reset, of a step, or in the observation."""

    def __init__(self, where: tuple[str, ...], mask: Any = (1, 0, 1), space: Any = None, actions: Any = None) -> None:
        self.where, self.mask = where, mask
        place = Box(-1, 1, (2,), np.float32)
        self.observation_space = Dict(place=place, action_mask=space) if space is not None else place
        self.action_space = Discrete(3) if actions is None else actions
        self.t = 0

    def observe(self, call: str) -> tuple[Any, dict]:
        obs: Any = np.zeros(2, np.float32)
        if isinstance(self.observation_space, Dict):
            shown = np.array(self.mask if self.t == 2 else (1, 0, 1))
            leaf = self.observation_space['action_mask']
            obs = {'place': obs, 'action_mask': shown.astype(leaf.dtype) if isinstance(leaf, Box) else shown}
        return obs, {'action_mask': np.array(self.mask)} if call in self.where else {}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.t = 0
        return self.observe('reset')

    def step(self, action: Any) -> tuple:
        self.t += 1
        obs, info = self.observe('step')
        return obs, 0.0, False, False, info


@pytest.mark.parametrize('copies', [1, 2])
def test_a_mask_that_the_observation_lacks_is_refused(copies: int):
    def env(*where: str) -> Any:
        return Masks(where) if copies == 1 else SyncVectorEnv([partial(Masks, where)] * copies)

    with pytest.raises(ValueError, match=r"^step 0: .*info\['action_mask'\].*build_env.*\.$"):
        collector_of(env('reset', 'step')).reset()
    collector = collector_of(build_env(env('reset', 'step')))
    assert collector.reset()['action_mask'].tolist() == [[1, 0, 1]] * copies
    play(collector, 3)
    collector = collector_of(build_env(env('step')))
    with pytest.raises(ValueError, match=rf"^step {copies}: .*info\['action_mask'\].*reset.*\.$"):
        play(collector, 3)
    with pytest.raises(ValueError, match=r'^step 2: .*action_mask.*reset.*\.$'):
        play(collector_of(build_env(partial(Masks, ('step',)), nenv=2)), 3)


def test_a_mask_for_actions_that_have_none_is_refused():
    actions = Box(-1, 1, (3,), np.float32)
    with pytest.raises(ValueError, match=r"^step 0: .*info\['action_mask'\].*Box\(3,\) float32.*cannot.*\.$"):
        collector_of(Masks(('reset',), actions=actions)).reset()


@pytest.mark.parametrize('copies', [1, 2])
@pytest.mark.parametrize(
    ('space', 'mask'),
    [
        (MultiBinary(3), (2, 1, 0)),
        (Box(0, 9, (3,), np.float32), (0.5, 1.0, 0.0)),
        (Box(0, 9, (3,), np.int8), (9, 1, 0)),
        (MultiDiscrete([3, 3, 3]), (2, 0, 1)),
    ],
)
def test_a_mask_in_the_observation_is_of_zeros_and_ones(copies: int, space: Any, mask: tuple):
    factory = partial(Masks, (), mask, space)
    collector = collector_of(factory() if copies == 1 else SyncVectorEnv([factory] * 2))
    with pytest.raises(ValueError, match=rf"^step {2 * copies}: .* 'action_mask' with the value {mask[0]}.*\.$"):
        play(collector, 5)


@pytest.mark.parametrize('mode', MODES)
def test_who_acts_is_told_of_new_episodes_before_their_first_action(mode):
    """In every step that is a copy's first, and in none besides."""
    told: list[np.ndarray] = []
    env = SyncVectorEnv([partial(Counting, 'box')] * 3, autoreset_mode=mode)
    collector = Collector(env, ActionAdaptor(env.single_action_space), begin=lambda copies: told.append(copies.copy()))
    collector.reset(5)
    first = np.ones(3, bool)
    for _ in range(100):
        began = np.any(told, 0) if told else np.zeros(3, bool)
        told.clear()
        collector.step(np.zeros(3, np.int32))
        valid = collector.valid.copy()  # where it is not, the copy was only reset, and no action counts
        np.testing.assert_array_equal(began[valid], first[valid])
        done = collector.terminated | collector.truncated
        first = np.where(valid, done, first)


def test_who_acts_is_told_of_the_new_episodes_of_a_single_environment():
    told: list[np.ndarray] = []
    collector = Collector(Counting('box'), ActionAdaptor(Counting('box').action_space), begin=told.append)
    collector.reset(5)
    episodes = 0
    for _ in range(60):
        collector.step(np.zeros(1, np.int32))
        episodes += len(collector.finished)
    assert episodes > 3
    assert [copies.tolist() for copies in told] == [[True]] * (episodes + 1)
