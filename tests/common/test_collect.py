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
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.collect import Collector
from zoo.common.env_wrappers import build_env
from zoo.common.types import Episode

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


@pytest.mark.parametrize('reuse', [False, True])
@pytest.mark.parametrize('form', SPACES)
def test_single_environment(form: str, reuse: bool):
    collector = collector_of(Counting(form, reuse))
    check(collector, form)
    assert collector.valid.all()


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('form', SPACES)
def test_copies(form: str, mode: AutoresetMode):
    env = SyncVectorEnv([partial(Counting, form)] * 3, autoreset_mode=mode)
    check(collector_of(env), form)


@pytest.mark.parametrize('mode', [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_copies_that_write_into_the_same_arrays(mode: AutoresetMode):
    env = SyncVectorEnv([partial(Counting, 'dict', True)] * 2, copy=False, autoreset_mode=mode)
    check(collector_of(env), 'dict')


@pytest.mark.parametrize('vectorized', ['sync', 'async'])
def test_built_copies_that_write_into_the_same_arrays(vectorized: str):
    env = build_env(partial(Counting, 'dict', True), vectorized=vectorized, nenv=2)
    check(collector_of(env), 'dict', steps=100)
    env.close()


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


def test_vector_environment_that_does_not_say_how_it_resets_does_it_in_the_next_step():
    env = SyncVectorEnv([Counting] * 2)
    env.metadata = {}
    check(collector_of(env), 'box')


def test_single_environment_that_resets_itself():
    """Gymnasium's ``Autoreset`` would reset in the next step: the collector's own reset must not be followed by one."""
    check(collector_of(gymnasium.wrappers.Autoreset(Counting())), 'box')


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
        ('box', '', np.zeros(3), ['float64', 'float32']),
        ('box', '', np.zeros(3, np.int64), ['int64', 'float32']),
        ('image', '', np.zeros((2, 3), np.float32), ['float32', 'uint8']),
        ('image', '', np.full((2, 3), 300), ['int64', 'uint8']),
        ('discrete', '', 1.5, ['float64', 'int64']),
        ('dict', 'deep/bits', np.zeros(5, np.int8), ["'deep/bits'", 'shape (5,)', '(4,)']),
        ('dict', 'place', np.zeros(3), ["'place'", 'float64', 'float32']),
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
    Wrong.wrong = np.zeros((2, 1))
    with pytest.raises(ValueError, match=r'dtype float64, .* float32'):
        play(collector_of(Wrong()), 3)


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


def test_render_after_every_step():
    class Shown(Counting):
        frames = 0

        def render(self) -> None:
            self.frames += 1

    env = Shown()
    collector = Collector(env, ActionAdaptor(env.action_space), render=True)
    play(collector, 7)
    assert env.frames == 7
