"""``build_env``: types, copies, seeds, final observations, masks, shaped rewards, and the sentences for bad input."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

import zoo
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.env_wrappers import build_env, find_env_type, list_envs
from zoo.common.envs.about import about
from zoo.common.envs.wrappers.masks import ActionMask
from zoo.common.rollouts.collector import Collector

TAXI = max(name for name in gymnasium.registry if name.startswith('Taxi-'))
needs_envpool = pytest.mark.skipif(find_spec('envpool') is None, reason='EnvPool is not installed')
needs_box2d = pytest.mark.skipif(find_spec('Box2D') is None, reason='Box2D is not installed')
needs_mujoco = pytest.mark.skipif(find_spec('mujoco') is None, reason='MuJoCo is not installed')


class Walk(gymnasium.Env):
    """A random walk whose observations all lie in one and the same array, as a careless user may write it."""

    observation_space = Dict({'place': Box(-100, 100, (2,), np.float32), 'left': Discrete(100)})
    action_space = Discrete(2)

    def __init__(self, length: int = 5) -> None:
        self.length = length
        self.place = np.zeros(2, np.float32)

    def _observation(self) -> dict[str, Any]:
        return {'place': self.place, 'left': self.left}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.place[:] = self.np_random.normal(size=2)
        self.left = int(self.np_random.integers(2, self.length))
        return self._observation(), {'start': float(self.place[0])}

    def step(self, action: int) -> tuple[dict, float, bool, bool, dict]:
        self.place += (2 * action - 1) * self.np_random.random(2)
        self.left -= 1
        return self._observation(), float(self.place[0]), self.left == 0, self.left == 1 and self.place[1] > 0, {'x': 1}


class Masked(gymnasium.Env):
    """Reports the allowed actions in ``info`` only; ``parts`` makes it a ``MultiDiscrete`` with a tuple of masks."""

    def __init__(
        self,
        parts: bool = False,
        in_dict: bool = False,
        wrong: bool = False,
        length: int = 3,
        switches: bool = False,
        **odd: Any,
    ) -> None:
        self.parts, self.in_dict, self.wrong, self.length, self.odd = parts, in_dict, wrong, length, odd
        box = Box(0, 9, (1,), np.float32)
        self.observation_space = Dict({'a': box}) if in_dict else box
        self.action_space = MultiDiscrete([2, 3]) if parts else MultiBinary(3) if switches else Discrete(3)

    def _result(self) -> tuple[Any, dict]:
        place = np.full(1, self.t, np.float32)
        mask = np.array([1, 0, self.t % 2], bool)
        mask = mask[:2] if self.wrong else (mask[:2], mask) if self.parts else mask
        odd = self.odd.get('later', mask) if self.t else mask
        odd = self.odd.get('at_the_end', odd) if self.t == self.length else odd
        return {'a': place} if self.in_dict else place, {} if odd is None else {'action_mask': odd}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self._result()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        observation, info = self._result()
        return observation, 1.0, self.t == self.length, False, info


class Observed(gymnasium.Env):
    """Declares one observation and returns another one."""

    action_space = Discrete(2)

    def __init__(self, space: gymnasium.Space, observation: Any) -> None:
        self.observation_space, self.observation = space, observation

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self.observation, {}


def run_python(*arguments: str) -> subprocess.CompletedProcess:
    paths = [str(Path(zoo.__file__).parents[1]), os.environ.get('PYTHONPATH', '')]
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, paths))}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, env=environment)


def copied(observation: Any) -> Any:
    return {k: np.array(v) for k, v in observation.items()} if isinstance(observation, dict) else np.array(observation)


def assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_array_equal(found[key], value)
    else:
        np.testing.assert_array_equal(found, expected)


def row(observation: Any, i: int) -> Any:
    return {k: v[i] for k, v in observation.items()} if isinstance(observation, dict) else observation[i]


def walk_across_episodes(env: VectorEnv, singles: list[gymnasium.Env], actions: np.ndarray) -> int:
    """Compare a vector environment with single ones driven by hand; returns the number of episodes that ended."""
    observation, _ = env.reset()
    for i, single in enumerate(singles):
        assert_equal(row(observation, i), single.reset()[0])
    ended = 0
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        assert reward.dtype == np.float64 and terminated.dtype == truncated.dtype == np.bool_
        finished = terminated | truncated
        assert ('final_obs' in info) == finished.any()
        for i, single in enumerate(singles):
            expected, expected_reward, ends, cut, final_info = single.step(action[i])
            assert (reward[i], terminated[i], truncated[i]) == (expected_reward, ends, cut)
            if ends or cut:
                ended += 1
                final = copied(expected)
                expected, _ = single.reset()
                assert_equal(info['final_obs'][i], final)
                assert info['_final_obs'][i]
                for key, value in final_info.items():
                    assert info['final_info'][key][i] == value and info['final_info']['_' + key][i]
            elif finished.any():
                assert info['final_obs'][i] is None and not info['_final_obs'][i]
            assert_equal(row(observation, i), expected)
    return ended


# ---- types, names, kinds of environment -----------------------------------------------------------------------------


def test_import_is_cheap():
    code = "import sys, zoo.common.env_wrappers; print({'tensorflow', 'gymnasium', 'numpy'} & set(sys.modules))"
    done = run_python('-c', code)
    assert done.stdout.strip() == 'set()', done.stderr


@pytest.mark.parametrize(
    ('env_id', 'env_type'),
    [
        ('CartPole-v1', 'classic_control'),
        ('CartPole-v1', 'gymnasium'),
        ('gymnasium.envs:FrozenLake-v1', 'gymnasium'),
        pytest.param('LunarLander-v3', 'box2d', marks=needs_box2d),
        pytest.param('HalfCheetah-v5', 'mujoco', marks=needs_mujoco),
    ],
)
def test_every_type_opens_and_is_seeded(env_id: str, env_type: str):
    def episode() -> list[Any]:
        env = build_env(env_id, env_type, seed=7)
        assert not isinstance(env, VectorEnv)
        record = [env.reset()[0]]
        for _ in range(5):
            observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            record += [observation, reward]
            if terminated or truncated:
                break
        env.close()
        return record

    first, second = episode(), episode()
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_seed_is_used():
    starts = [build_env('CartPole-v1', seed=seed).reset()[0] for seed in (0, 1, None, None)]
    assert len({start.tobytes() for start in starts}) == 4


def test_kwargs_reach_the_environment():
    assert isinstance(build_env(Walk, length=9).unwrapped, Walk)
    assert build_env(Walk, length=9).unwrapped.length == 9
    env = build_env('CartPole-v1', 'classic_control', render_mode='rgb_array')
    assert env.render_mode == 'rgb_array'


@needs_box2d
def test_continuous_lunar_lander():
    assert build_env('LunarLander-v3', 'box2d', continuous=True).action_space.shape == (2,)


def test_no_passive_checker():
    assert 'PassiveEnvChecker' not in str(build_env('CartPole-v1', 'classic_control'))


def test_class_factory_and_object_are_the_same():
    episodes = []
    for env_id in (Walk, lambda: Walk(), Walk()):
        env = build_env(env_id, 'gymnasium', seed=3)
        episodes.append([copied(env.reset()[0])['place'], copied(env.step(1)[0])['place']])
    np.testing.assert_array_equal(episodes[0], episodes[1])
    np.testing.assert_array_equal(episodes[0], episodes[2])


@pytest.mark.parametrize('env_id', ['CartPole-v1', CartPoleEnv])
def test_time_limit_truncates(env_id: Any):
    env = build_env(env_id, max_episode_steps=3)
    env.reset()
    flags = [env.step(0)[2:4] for _ in range(3)]
    assert flags == [(False, False), (False, False), (False, True)]


def test_time_limit_of_an_object():
    env = build_env(PendulumEnv(), max_episode_steps=1)
    env.reset()
    assert env.step(np.zeros(1, np.float32))[2:4] == (False, True)


def test_old_versions_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        build_env('CartPole-v0', 'classic_control')


@needs_box2d
def test_box2d_where_warnings_are_errors():
    code = "from zoo.common.env_wrappers import build_env; print(build_env('LunarLander-v3', 'box2d', nenv=2).num_envs)"
    done = run_python('-W', 'error', '-c', code)
    assert done.stdout.strip() == '2', done.stderr


# ---- copies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('vectorized', [False, 'sync', 'async'])
def test_copies_equal_single_environments(vectorized: bool | str):
    env = build_env(Walk, vectorized=vectorized, seed=4, nenv=3)
    assert isinstance(env, AsyncVectorEnv if vectorized == 'async' else SyncVectorEnv)
    assert env.metadata['autoreset_mode'] == AutoresetMode.SAME_STEP
    singles = [build_env(Walk, seed=4 + i) for i in range(3)]
    assert walk_across_episodes(env, singles, np.random.default_rng(0).integers(2, size=(60, 3))) > 20
    env.close()


def test_copies_of_arrays_have_final_observations():
    env = build_env('CartPole-v1', 'classic_control', nenv=2, seed=1)
    singles = [build_env('CartPole-v1', 'classic_control', seed=1 + i) for i in range(2)]
    assert walk_across_episodes(env, singles, np.random.default_rng(0).integers(2, size=(100, 2))) > 4


def test_gymnasiums_own_environments_get_no_extra_wrapper():
    env = build_env('CartPole-v1', 'classic_control', 'sync', nenv=2)
    raw = gymnasium.make('CartPole-v1', disable_env_checker=True)
    assert str(env.envs[0]) == str(raw)


@pytest.mark.parametrize('vectorized', ['sync', pytest.param('envpool', marks=needs_envpool)])
def test_observations_of_earlier_steps_stay(vectorized: str):
    env = build_env('CartPole-v1', vectorized=vectorized, nenv=2)
    kept = [env.reset()[0]]
    before = [kept[0].copy()]
    for _ in range(50):
        kept.append(env.step([1, 1])[0])
        before.append(kept[-1].copy())
    np.testing.assert_array_equal(kept, before)


def test_same_seed_same_actions():
    one, other = (build_env('CartPole-v1', nenv=2, seed=5) for _ in range(2))
    assert [one.action_space.sample().tolist() for _ in range(8)] == [
        other.action_space.sample().tolist() for _ in range(8)
    ]


def test_single_copy_is_a_plain_env_however_vectorised():
    for vectorized in (True, 'sync', 'async', 'envpool'):
        assert isinstance(build_env('CartPole-v1', vectorized=vectorized), gymnasium.Env)


def test_vector_environment_object_is_kept():
    given = gymnasium.make_vec('CartPole-v1', 3, vectorization_mode='sync')
    for nenv in (1, 3):
        env = build_env(given, nenv=nenv, seed=2)
        assert env is given
    start, _ = env.reset()
    np.testing.assert_array_equal(start[1], build_env('CartPole-v1', seed=3).reset()[0])


SCRIPT = """
    import gymnasium, numpy as np
    from zoo.common.env_wrappers import build_env

    class OwnError(Exception):
        pass

    class Own(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action):
            if action:
                raise OwnError('bad action')
            return np.ones(1, np.float32), 1.0, False, True, {}

    gymnasium.register('Own-v0', entry_point='__main__:Own')
    env = build_env('Own-v0', vectorized='async', reward_shaping=lambda r: -r, nenv=2)
    env.reset()
    print(env.step([0, 0])[1])
    try:
        env.step([0, 1])
    except RuntimeError as error:
        print('bad action' in str(error), 'copy 1 of Own-v0' in str(error))
    env.close(terminate=True)
"""


def test_a_script_without_main_guard_runs_processes(tmp_path):
    """What the script defines travels to the processes, and an exception of its own class comes back."""
    script = tmp_path / 'script.py'
    script.write_text(textwrap.dedent(SCRIPT))
    done = run_python(str(script))
    assert done.stdout.splitlines() == ['[-1. -1.]', 'True True'], done.stderr


def test_what_cannot_be_pickled_is_refused():
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"vectorized='sync'"):
        build_env(lambda: Walk(5 if lock else 6), vectorized='async', nenv=2)


def test_copies_of_a_vector_environment_are_refused():
    with pytest.raises(TypeError, match='nenv=1'):
        build_env(lambda: gymnasium.make_vec('CartPole-v1', 2), nenv=2)


# ---- EnvPool --------------------------------------------------------------------------------------------------------


class RawPool:
    """One copy of EnvPool's task, driven by hand; like Gymnasium's time limit, ``limit`` is counted outside."""

    def __init__(self, env_id: str, seed: int, limit: int) -> None:
        import envpool

        self.limit = limit
        self.pool = envpool.make_gymnasium(env_id, num_envs=1, num_threads=1, seed=[seed], max_episode_steps=10**6)
        self.pool.reset()

    def reset(self) -> tuple[np.ndarray, dict]:
        self.t = 0
        return self.pool.reset()[0][0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        observation, reward, terminated, _, _ = self.pool.step(np.asarray(action)[None])
        return observation[0], float(reward[0]), bool(terminated[0]), self.t >= self.limit, {'elapsed_step': self.t}


@needs_envpool
@pytest.mark.filterwarnings('ignore:.*precision lowered.*')
def test_envpool_equals_pools_driven_by_hand():
    env = build_env('CartPole-v1', 'classic_control', 'envpool', seed=11, nenv=3, max_episode_steps=12)
    assert env.metadata['autoreset_mode'] == AutoresetMode.SAME_STEP
    assert env.single_observation_space == gymnasium.make('CartPole-v1').observation_space
    singles = [RawPool('CartPole-v1', 11 + i, 12) for i in range(3)]
    rng = np.random.default_rng(0)
    # Poles pushed to one side fall after about ten steps; the others reach the limit now and then.
    actions = np.concatenate([np.zeros((40, 3), np.int64), rng.integers(2, size=(100, 3))])
    assert walk_across_episodes(env, singles, actions) > 20
    env.close()


@needs_envpool
def test_envpool_time_limit_is_gymnasiums():
    env = build_env('Pendulum-v1', 'classic_control', 'envpool', nenv=2)
    env.reset()
    for _ in range(199):
        _, _, terminated, truncated, info = env.step(np.zeros((2, 1), np.float32))
        assert not terminated.any() and not truncated.any() and 'final_obs' not in info
    observation, _, terminated, truncated, info = env.step(np.zeros((2, 1), np.float32))
    assert truncated.all() and not terminated.any()
    assert env.observation_space.contains(observation)
    assert not np.array_equal(observation[0], info['final_obs'][0])


@needs_envpool
def test_envpool_end_in_the_last_allowed_step_is_a_termination():
    def first_end(**kwargs: Any) -> tuple[int, bool, bool]:
        env = build_env('CartPole-v1', 'classic_control', 'envpool', nenv=2, **kwargs)
        env.reset()
        for t in range(1, 50):
            _, _, terminated, truncated, _ = env.step([1, 1])
            if terminated[0] or truncated[0]:
                return t, bool(terminated[0]), bool(truncated[0])
        raise AssertionError('a pole pushed to one side must fall')

    length, terminated, truncated = first_end()
    assert (terminated, truncated) == (True, False)
    assert first_end(max_episode_steps=length) == (length, True, True)  # as Gymnasium's TimeLimit reports it


@needs_envpool
def test_envpool_seeds():
    def episode(env: VectorEnv, **reset: Any) -> np.ndarray:
        return np.stack([env.reset(**reset)[0]] + [env.step([1, 1])[0] for _ in range(12)])

    one, other = (build_env('CartPole-v1', vectorized='envpool', seed=9, nenv=2) for _ in range(2))
    first = episode(one)
    np.testing.assert_array_equal(first, episode(other))
    assert not np.array_equal(first, episode(one))
    np.testing.assert_array_equal(episode(one, seed=3), episode(other, seed=3))
    np.testing.assert_array_equal(episode(one, seed=4)[:, 0], episode(one, seed=3)[:, 1])


@needs_envpool
def test_envpool_integer_observations():
    env = build_env('FrozenLake-v1', vectorized='envpool', nenv=2)
    observation, _ = env.reset()
    assert observation.dtype == env.observation_space.dtype == np.int64
    for _ in range(100):
        observation, _, _, _, info = env.step(env.action_space.sample())
        if 'final_obs' in info:
            break
    assert env.single_observation_space.contains(next(x for x in info['final_obs'] if x is not None))


@needs_envpool
def test_true_takes_envpool_where_it_is_faster():
    assert type(build_env('Pendulum-v1', vectorized=True, nenv=4)).__name__ == 'EnvPoolVectorEnv'
    assert type(build_env('Pendulum-v1', vectorized=True, nenv=4, max_episode_steps=9)).__name__ == 'EnvPoolVectorEnv'
    for env_id, nenv in (
        ('Pendulum-v1', 2),
        (Walk, 4),
        ('Blackjack-v1', 4),
        (TAXI, 4),
    ):  # a tuple and a mask: not there
        assert isinstance(build_env(env_id, vectorized=True, nenv=nenv), SyncVectorEnv)
    assert isinstance(build_env('Pendulum-v1', vectorized=True, nenv=4, g=9.0), SyncVectorEnv)


@needs_envpool
def test_envpool_refusals():
    with pytest.raises(ValueError, match=r"EnvPool does not have 'Walk': use vectorized='sync'"):
        build_env(Walk, vectorized='envpool', nenv=2)
    with pytest.raises(ValueError, match=r"'Blackjack-v1' with other observations"):
        build_env('Blackjack-v1', vectorized='envpool', nenv=2)
    with pytest.raises(ValueError, match=r"EnvPool does not take these arguments of 'Pendulum-v1'.*'g'"):
        build_env('Pendulum-v1', vectorized='envpool', nenv=2, g=9.0)


def test_missing_envpool(monkeypatch):
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'zoo-rl\[envpool\]'"):
        build_env('CartPole-v1', vectorized='envpool', nenv=2)
    assert isinstance(build_env('CartPole-v1', vectorized=True, nenv=4), SyncVectorEnv)


# ---- reward shaping and action masks --------------------------------------------------------------------------------


def test_reward_shaping_of_one_environment():
    env = build_env('CartPole-v1', reward_shaping=lambda r: r / 10, max_episode_steps=4)
    for _ in range(2):
        env.reset()
        steps = [env.step(0) for _ in range(4)]
        assert [step[1] for step in steps] == pytest.approx([0.1] * 4)
        assert (steps[-1][4]['episode']['r'], steps[-1][4]['episode']['l']) == (4.0, 4)
        assert 'episode' not in steps[0][4]


@pytest.mark.parametrize('vectorized', ['sync', pytest.param('envpool', marks=needs_envpool)])
def test_reward_shaping_of_copies(vectorized: str):
    env = build_env(
        'CartPole-v1', vectorized=vectorized, nenv=2, reward_shaping=lambda r: -1 if r > 0 else 0, max_episode_steps=4
    )
    env.reset()
    for t in range(1, 9):
        _, reward, _, truncated, info = env.step([0, 0])
        np.testing.assert_array_equal(reward, [-1, -1])
        assert truncated.all() == (t % 4 == 0)
        if truncated.all():
            np.testing.assert_array_equal(info['final_info']['episode']['r'], [4, 4])
            np.testing.assert_array_equal(info['final_info']['episode']['l'], [4, 4])
            np.testing.assert_array_equal(info['final_info']['_episode'], [True, True])


def test_reward_shaping_of_a_vector_environment_object():
    given = gymnasium.make_vec('CartPole-v1', 2, 'sync', max_episode_steps=3)  # resets in the next step
    env = build_env(given, reward_shaping=lambda r: 2 * r)
    env.reset()
    for t in range(1, 8):
        _, reward, _, _, info = env.step([0, 0])
        np.testing.assert_array_equal(reward, [0, 0] if t == 4 else [2, 2])
        assert ('episode' in info) == (t in (3, 7))
        if t in (3, 7):
            np.testing.assert_array_equal(info['episode']['r'], [3, 3])
            np.testing.assert_array_equal(info['episode']['l'], [3, 3])


def test_reward_shaping_keeps_statistics_that_are_recorded_already():
    env = build_env(gymnasium.wrappers.RecordEpisodeStatistics(Walk()), reward_shaping=abs)
    env.reset()
    while not (result := env.step(1))[2]:
        pass
    assert 'episode' in result[4]


@pytest.mark.parametrize('inside', [1, 2])
@pytest.mark.parametrize('nenv', [1, 2])
def test_reward_shaping_around_statistics_that_do_not_see_the_time_limit(nenv: int, inside: int):
    """The recorder is inside of the limit that is added, or of one of the user's own."""

    def make() -> gymnasium.Env:
        env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make('Pendulum-v1'))
        return gymnasium.wrappers.TimeLimit(env, 3) if inside == 2 else env

    env = build_env(
        make, max_episode_steps=3 if inside == 1 else None, reward_shaping=lambda r: r / 8, nenv=nenv, seed=1
    )
    collector = Collector(env, ActionAdaptor(gymnasium.make('Pendulum-v1').action_space))
    collector.reset(1)
    total = np.zeros(nenv)
    for _ in range(3):
        collector.step(np.zeros((nenv, 1), np.float32))
        total += 8 * collector.reward
    assert [x.episode_return for x in collector.finished] == pytest.approx(total.tolist())


def test_reward_shaping_keeps_what_a_recorder_inside_of_a_users_reward_counted():
    recorded = gymnasium.wrappers.RecordEpisodeStatistics(Masked())
    env = build_env(gymnasium.wrappers.TransformReward(recorded, lambda r: r - 7), reward_shaping=abs)
    env.reset()
    assert [env.step(0) for _ in range(3)][2][4]['episode']['r'] == 3.0


@pytest.mark.parametrize('nenv', [1, 2])
def test_reward_shaping_around_an_account_of_the_environments_own(nenv: int):
    class Own(Masked):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
            *rest, info = super().step(action)
            return *rest, info | {'episode': 'the third'}

    env = build_env(Own, reward_shaping=lambda r: r / 2, nenv=nenv)
    collector = Collector(env, ActionAdaptor(Own().action_space))
    collector.reset(1)
    found = []
    for _ in range(6):
        collector.step(np.zeros(nenv, np.int32))
        found += [(x.episode_return, x.length) for x in collector.finished]
    assert found == [(3.0, 3)] * (2 * nenv)


def test_no_wrappers_without_need():
    assert isinstance(build_env(Walk), Walk)


def test_action_mask_becomes_part_of_the_observation():
    env = build_env(Masked)
    assert isinstance(env, ActionMask)
    assert set(env.observation_space.spaces) == {'obs', 'action_mask'}
    observation, _ = env.reset()
    assert env.observation_space.contains(observation)
    assert observation['action_mask'].dtype == np.int8
    assert observation['action_mask'].tolist() == [1, 0, 0]
    assert env.step(0)[0]['action_mask'].tolist() == [1, 0, 1]


def test_action_mask_joins_a_dict_and_components():
    env = build_env(Masked, parts=True, in_dict=True)
    assert set(env.observation_space.spaces) == {'a', 'action_mask'}
    assert env.reset()[0]['action_mask'].tolist() == [1, 0, 1, 0, 0]


def test_action_mask_of_copies():
    env = build_env(Masked, nenv=2)
    assert env.observation_space['action_mask'].shape == (2, 3)
    env.reset()
    observations = [env.step([0, 0]) for _ in range(3)]
    assert observations[0][0]['action_mask'].tolist() == [[1, 0, 1]] * 2
    assert observations[2][0]['action_mask'].tolist() == [[1, 0, 0]] * 2  # of the new episode
    assert observations[2][4]['final_obs'][0]['action_mask'].tolist() == [1, 0, 1]


def test_action_mask_of_a_registered_environment():
    assert build_env(TAXI).observation_space['action_mask'].n == 6


def test_action_mask_of_the_wrong_length():
    with pytest.raises(ValueError, match=r'\(2,\).*\(3,\)'):
        build_env(Masked, wrong=True).reset()


@pytest.mark.parametrize('mode', list(AutoresetMode))
@pytest.mark.parametrize('in_dict', [False, True])
def test_action_mask_of_a_vector_environment(mode: AutoresetMode, in_dict: bool):
    """The masks of each copy, step by step, are those of the environment played by hand."""
    factories = [partial(Masked, parts=True, in_dict=in_dict, length=length) for length in (2, 3)]
    env = build_env(SyncVectorEnv(factories, autoreset_mode=mode))
    assert env.single_observation_space['action_mask'] == MultiBinary(5)
    collector = Collector(env, ActionAdaptor(env.single_action_space))
    collector.reset(0)
    by_hand = [build_env(factory) for factory in factories]
    wanted = [one.reset()[0]['action_mask'] for one in by_hand]
    ends = 0
    for _ in range(12):
        np.testing.assert_array_equal(collector.obs['action_mask'], wanted)
        collector.step(np.zeros((2, 2), np.int32))
        for i in np.flatnonzero(collector.valid):
            observation, _, terminated, truncated, _ = by_hand[i].step(np.zeros(2, np.int64))
            assert collector.terminated[i] == terminated
            np.testing.assert_array_equal(collector.next_obs['action_mask'][i], observation['action_mask'])
            wanted[i] = observation['action_mask']
            if terminated or truncated:
                ends += 1
                first = by_hand[i].reset()[0]['action_mask']
                if mode != AutoresetMode.NEXT_STEP:
                    wanted[i] = first
        for i in np.flatnonzero(~collector.valid):
            wanted[i] = np.array([1, 0, 1, 0, 0])
    assert ends >= 7


def test_action_mask_of_a_vector_environment_keeps_the_rest():
    env = build_env(SyncVectorEnv([Masked] * 2, autoreset_mode=AutoresetMode.SAME_STEP), reward_shaping=lambda r: 2 * r)
    env.reset()
    results = [env.step([0, 0]) for _ in range(3)]
    assert results[2][1].tolist() == [2.0, 2.0]
    assert results[2][4]['final_info']['episode']['r'].tolist() == [3.0, 3.0]
    assert set(results[2][4]['final_obs'][1]) == {'obs', 'action_mask'}
    assert env.num_envs == 2 and env.observation_space['obs'].shape == (2, 1)
    assert env.observation_space.contains(results[2][0])


def test_action_mask_of_switches():
    env = build_env(partial(Masked, switches=True))
    assert env.observation_space['action_mask'] == MultiBinary(3)
    assert env.reset()[0]['action_mask'].tolist() == [1, 0, 0]


@pytest.mark.parametrize('nenv', [1, 2])
@pytest.mark.parametrize(
    ('mask', 'words'),
    [
        (np.array([0.5, 1.0, 0.0]), 'the value 0.5'),
        (np.array([2, 1, 0]), 'the value 2'),
        (np.array([-1, 1, 0], np.int8), 'the value -1'),
        (np.array([np.nan, 1, 0]), 'the value nan'),
        (np.array(['a', 'b', 'c']), "the value 'a'"),
        (np.array([True, None, False]), 'the value None|the value True'),
        (np.ones(4, bool), r'shape \(4,\).*\(3,\)'),
        (True, r'shape \(\).*\(3,\)'),
        ({'a': 1}, 'shape'),
        (None, 'missing'),
    ],
)
def test_action_mask_that_is_none(mask: Any, words: str, nenv: int):
    env = build_env(Masked, nenv=nenv, later=mask)
    env.reset()
    with pytest.raises((ValueError, RuntimeError), match=rf"action_mask'?\]? .*({words}).*\.$"):
        env.step(0 if nenv == 1 else [0, 0])
    objects = build_env(SyncVectorEnv([partial(Masked, later=mask)] * 2))
    objects.reset()
    if np.shape(mask) != (4,) and not isinstance(mask, dict):  # which Gymnasium itself would not put together
        with pytest.raises(ValueError, match=rf'action_mask.* ({words}).*\.$'):
            objects.step([0, 0])


@pytest.mark.parametrize(
    ('answer', 'words'),
    [
        (lambda o, r, a, b, i: (o, r, a, i), r'returned 4 values from step\(\), not observation, reward'),
        (lambda o, r, a, b, i: None, r'returned None from step\(\), not observation, reward'),
        (lambda o, r, a, b, i: (o, r, a, b, None), 'gave the info None, not a dictionary'),
    ],
)
def test_action_mask_of_no_step(answer: Any, words: str):
    class Odd(Masked):
        def step(self, action: Any) -> Any:
            return answer(*super().step(action))

    env = build_env(Odd)
    env.reset()
    with pytest.raises((ValueError, TypeError), match=rf'^<Odd.*> {words}.*\.$'):
        env.step(0)


def test_action_mask_may_be_missing_where_the_task_ended():
    env = build_env(Masked, at_the_end=None)
    env.reset()
    results = [env.step(0) for _ in range(3)]
    assert results[2][2] and results[2][0]['action_mask'].tolist() == [1, 1, 1]
    vector = build_env(SyncVectorEnv([partial(Masked, at_the_end=None)] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    vector.reset()
    results = [vector.step([0, 0]) for _ in range(3)]
    assert results[2][0]['action_mask'].tolist() == [[1, 0, 0]] * 2
    assert results[2][4]['final_obs'][0]['action_mask'].tolist() == [1, 1, 1]


@pytest.mark.parametrize('vector', [False, True])
def test_action_mask_for_actions_that_cannot_be_masked(vector: bool):
    class Force(Masked):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = Box(-1, 1, (3,), np.float32)

    with pytest.raises(
        TypeError, match=r'an action_mask needs a Discrete, MultiDiscrete or MultiBinary action space, not'
    ):
        build_env(SyncVectorEnv([Force] * 2) if vector else Force)


# ---- bad input: one sentence that names the fix ---------------------------------------------------------------------


def message(error: type[Exception], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(error) as caught:
        build_env(*args, **kwargs)
    text = str(caught.value)
    assert '\n' not in text
    return text


def test_unknown_names_get_the_nearest():
    assert "did you mean 'classic_control'?" in message(ValueError, 'CartPole-v1', 'clasic_control')
    assert "did you mean 'CartPole-v1'?" in message(ValueError, 'CartPol-v1', 'classic_control')
    assert "did you mean 'HalfCheetah-v5'?" in message(ValueError, 'HalfCheetah-v6', 'mujoco')
    assert 'CartPole' not in message(ValueError, 'CartPole-v9', 'mujoco').split('Known')[1]
    assert "did you mean 'FrozenLake-v1'?" in message(ValueError, 'FrozenLak-v1', 'gymnasium')
    assert "did you mean 'async'?" in message(ValueError, 'CartPole-v1', vectorized='asynch', nenv=2)
    assert 'HalfCheetah-v2' not in message(ValueError, 'HalfCheetah-v2', 'mujoco').split('Known')[1]


def test_another_type_than_said():
    text = message(ValueError, 'HalfCheetah-v5', 'classic_control')
    assert text == "'HalfCheetah-v5' is an environment of type 'mujoco': give that type, not 'classic_control'."
    assert "of type 'gymnasium': give that" in message(ValueError, 'FrozenLake-v1', 'box2d')


def test_missing_packages_name_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split('.')[0] in ('Box2D', 'mujoco', 'jax'):
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, '__import__', without)
    for loaded in [name for name in sys.modules if name.startswith(('gymnasium.envs.box2d', 'gymnasium.envs.mujoco'))]:
        monkeypatch.delitem(sys.modules, loaded)
    assert "pip install 'zoo-rl[box2d]'" in message(ImportError, 'LunarLander-v3', 'box2d')
    assert "pip install 'zoo-rl[mujoco]'" in message(ImportError, 'HalfCheetah-v5', 'mujoco')
    assert "pip install 'zoo-rl[mujoco]'" in message(ImportError, 'HalfCheetah-v5', 'gymnasium', nenv=2)
    assert 'jax' in message(ImportError, 'phys2d/CartPole-v1', 'gymnasium')


def test_missing_package_of_an_id():
    assert "'no_such_package'" in message(ImportError, 'no_such_package:Env-v0', 'gymnasium')


def test_unknown_arguments():
    text = message(TypeError, 'CartPole-v1', gravity=3)
    assert text == "'CartPole-v1' does not take the argument 'gravity', only sutton_barto_reward, render_mode."
    text = message(TypeError, Walk, lenght=3)
    assert text == "'Walk' does not take the argument 'lenght': perhaps 'length' is meant."
    assert "perhaps 'max_episode_steps' is meant." in message(TypeError, Walk, max_epsode_steps=3)
    for env_id, argument in (('CartPole-v1', 'frame_size'), (Walk, 'pixels')):
        text = message(TypeError, env_id, **{argument: 64})
        assert text.endswith(': pixels=True and its cameras, depth, frame_size, frame_stack are for registered names.')
    assert 'length cannot be given' in message(TypeError, Walk(), length=3)


@pytest.mark.parametrize(
    ('habit', 'named'),
    [
        ({'n_envs': 4}, 'nenv=4 makes four copies'),
        ({'num_envs': 4}, 'nenv=4 makes four copies'),
        ({'envs': 4}, 'nenv=4 makes four copies'),
        ({'render': True}, "render_mode='human' opens a window"),
        ({'vec_env': True}, "vectorized='sync' or 'async'"),
        ({'env_kwargs': {'length': 3}}, 'directly, as in build_env(MyEnv, length=9)'),
    ],
)
def test_names_that_other_libraries_have(habit: dict[str, Any], named: str):
    class Swallowing(Walk):
        def __init__(self, length: int = 5, **kwargs: Any) -> None:
            super().__init__(length)

    for env_id in ('CartPole-v1', Walk, Swallowing):
        text = message(TypeError, env_id, **habit)
        assert next(iter(habit)) in text and named in text and text.endswith('.')


def test_names_that_other_libraries_have_may_be_the_environments_own():
    class Drawn(Walk):
        def __init__(self, render: bool = False, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.drawn = render

    class Derived(Drawn):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)

    for env_id in (Drawn, Derived, lambda **kwargs: Derived(**kwargs)):
        assert build_env(env_id, render=True).unwrapped.drawn


def test_seeds_that_are_none():
    for seed in (-1, 1.5, True, '3'):
        text = message(ValueError, 'CartPole-v1', seed=seed)
        assert text == f'seed is an integer of at least 0, or None for a random one, not {seed!r}.'
    for seed in (np.int64(3), 3):
        np.testing.assert_array_equal(
            build_env('CartPole-v1', seed=seed).reset()[0], build_env('CartPole-v1', seed=3).reset()[0]
        )


@pytest.mark.parametrize('env_id', ['CartPole-v1', CartPoleEnv])
@pytest.mark.parametrize('limit', [0, -1, 2.5, True])
def test_time_limits_that_are_none(env_id: Any, limit: Any):
    text = message(ValueError, env_id, max_episode_steps=limit)
    assert 'an integer of at least 1' in text and text.endswith(f'not {limit!r}.')


def test_a_time_limit_that_would_do_nothing():
    for env_id in (gymnasium.make('CartPole-v1'), lambda: gymnasium.make('CartPole-v1')):
        text = message(ValueError, env_id, max_episode_steps=1000)
        assert 'a time limit of 500 steps already' in text and 'max_episode_steps=1000' in text
    env = build_env(gymnasium.make('CartPole-v1'), max_episode_steps=1)
    env.reset()
    assert env.step(0)[2:4] == (False, True)


def test_a_time_limit_reaches_an_environment_that_has_its_own():
    class Limited(Walk):
        def __init__(self, max_episode_steps: int = 2) -> None:
            super().__init__()
            self.limit = max_episode_steps

    gymnasium.register('Limited-v0', Limited, max_episode_steps=5)
    for env_id in (Limited, 'Limited-v0'):
        assert build_env(env_id, max_episode_steps=7).unwrapped.limit == 7
        assert build_env(env_id).unwrapped.limit == 2
    gymnasium.registry.pop('Limited-v0')


@pytest.mark.parametrize('nenv', [1, 2])
@pytest.mark.parametrize('shaped', [None, np.nan, np.inf, np.ones(2), '1'])
def test_shaped_rewards_that_are_no_number(nenv: int, shaped: Any):
    env = build_env('CartPole-v1', reward_shaping=lambda reward: shaped, nenv=nenv)
    env.reset()
    with pytest.raises(
        ValueError, match=r'^reward_shaping must return a finite number, but returned .* for the reward 1.0\.$'
    ):
        env.step(env.action_space.sample())


def test_render_modes_that_are_none():
    class Drawn(Walk):
        metadata = {'render_modes': ['rgb_array']}

        def __init__(self, render_mode: str | None = None) -> None:
            super().__init__()
            self.render_mode = render_mode

    for env_id in ('CartPole-v1', Drawn):
        assert "did you mean 'rgb_array'?" in message(ValueError, env_id, render_mode='rgb')
        assert build_env(env_id, render_mode='rgb_array').render_mode == 'rgb_array'
    assert build_env('CartPole-v1', render_mode='rgb_array_list').render_mode == 'rgb_array_list'


@pytest.mark.parametrize(
    ('name', 'right'),
    [
        ('./robots_of_mine.py:Reach', "write 'robots_of_mine:Reach'."),
        ('robots_of_mine.py:Reach', "write 'robots_of_mine:Reach'."),
        ('robots_of_mine.Reach', "write 'robots_of_mine:Reach'."),
        ('robots_of_mine.py', "write 'robots_of_mine:Class' with the name of the class."),
        ('robots_of_mine', "write 'robots_of_mine:Class' with the name of the class."),
        ('sub/arms.py:Reach', "write 'arms:Reach', in the folder '{}/sub' or with it on PYTHONPATH."),
        ('sub/arms:Reach', "write 'arms:Reach', in the folder '{}/sub' or with it on PYTHONPATH."),
    ],
)
def test_a_class_by_the_path_of_its_file_is_answered_by_its_name(name, right, tmp_path, monkeypatch):
    (tmp_path / 'sub').mkdir()
    for file in ('robots_of_mine.py', 'sub/arms.py'):
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    told = f'{name!r} names a file: {right.format(tmp_path.resolve())}'
    assert message(ValueError, name) == told
    with pytest.raises(ValueError) as refused:
        find_env_type(name)
    assert str(refused.value) == told


def test_a_file_that_is_not_there_is_said():
    assert message(ValueError, './nowhere.py:Reach').startswith("there is no file './nowhere.py' for ")


def test_what_makes_no_environment():
    assert message(TypeError, lambda: None) == (
        "'<lambda>' returned None: let it return the environment that it makes."
    )

    class Needing(Walk):
        def __init__(self, size: int, *, depth: int) -> None:
            super().__init__()

    class Wrong(Walk):
        def __init__(self) -> None:
            super().__init__(*[1, 2])

    text = message(TypeError, Needing, depth=3)
    start = "'Needing' cannot be made without"
    assert text.startswith(f"{start} 'size': write build_env(Needing, size=…), or --env-set size=… in a shell, ")
    assert f"{start} 'depth': write build_env(Needing, depth=…), or" in message(TypeError, Needing, size=3)
    assert 'takes from 1 to 2' in message(TypeError, Wrong)  # as Python tells it


def test_environment_types_of_another_kind():
    with pytest.raises(ValueError, match='unknown environment type None'):
        list_envs(None)
    assert "unknown environment type ['mujoco']" in message(ValueError, 'CartPole-v1', ['mujoco'])


# ---- a window where there is no display -----------------------------------------------------------------------------


@pytest.fixture
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('platform.system', lambda: 'Linux')
    for name in ('DISPLAY', 'WAYLAND_DISPLAY', 'SDL_VIDEODRIVER'):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    'env_id',
    ['CartPole-v1', 'FrozenLake-v1', pytest.param('HalfCheetah-v5', marks=needs_mujoco)],
)
@pytest.mark.parametrize('nenv', [1, 2])
def test_no_window_without_a_display(env_id: str, nenv: int, no_display: None):
    text = message(ValueError, env_id, nenv=nenv, render_mode='human')
    assert text.startswith(f"{env_id}: render_mode='human' opens a window, but there is no display")
    assert text.endswith("build it with render_mode='rgb_array' for pictures.")


def test_pictures_without_a_display_do_not_hide_a_window(no_display: None, monkeypatch: pytest.MonkeyPatch):
    from zoo.common.envs.kinds import rendering

    monkeypatch.setattr(rendering, '_SENT', set())
    env = build_env('CartPole-v1', render_mode='rgb_array')
    assert os.environ['SDL_VIDEODRIVER'] == 'dummy'
    env.close()
    assert 'there is no display' in message(ValueError, 'CartPole-v1', render_mode='human')


@pytest.mark.full
@pytest.mark.parametrize('driver', [pytest.param('dummy', marks=pytest.mark.matrix), 'offscreen'])
def test_windows_of_sdl_that_the_user_sends_elsewhere(driver: str, no_display: None, monkeypatch: pytest.MonkeyPatch):
    """In a process of its own: SDL may load Mesa, whose LLVM and TensorFlow's end the process that mixes them."""
    monkeypatch.setenv('SDL_VIDEODRIVER', driver)
    code = """
        from zoo.common.env_wrappers import build_env
        env = build_env('CartPole-v1', render_mode='human')
        env.reset()
        env.step(0)
        import tensorflow as tf
        print(tf.function(lambda x: x + 1, jit_compile=True)(tf.constant(1)).numpy())
    """
    done = run_python('-c', textwrap.dedent(code))
    assert done.stdout.splitlines()[-1:] == ['2'], done.stderr


@needs_mujoco
def test_the_viewer_of_mujoco_needs_a_display_whoever_made_it(no_display: None, monkeypatch: pytest.MonkeyPatch):
    from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

    monkeypatch.setenv('SDL_VIDEODRIVER', 'dummy')  # which it does not ask
    for env_id in (HopperEnv, gymnasium.make('Hopper-v5', render_mode='human')):
        kwargs = {'render_mode': 'human'} if env_id is HopperEnv else {}
        assert 'opens a window, but there is no display' in message(ValueError, env_id, **kwargs)


@pytest.mark.parametrize('variable', ['DISPLAY', 'WAYLAND_DISPLAY'])
def test_a_display_is_left_to_the_environment(variable: str, no_display: None, monkeypatch: pytest.MonkeyPatch):
    from zoo.common.envs.kinds import rendering

    monkeypatch.setenv(variable, ':0')
    rendering.check_display('CartPole-v1', by_sdl=True)
    monkeypatch.delenv(variable)
    monkeypatch.setattr('platform.system', lambda: 'Darwin')
    rendering.check_display('HalfCheetah-v5', by_sdl=False)


WINDOW = """
    import gymnasium, pygame
    from gymnasium.envs.classic_control import CartPoleEnv
    from zoo.common.env_wrappers import build_env

    class Drawn(CartPoleEnv):
        pass

    gymnasium.register('Drawn-v0', Drawn)
    for env_id in (Drawn, 'Drawn-v0'):
        try:
            build_env(env_id, render_mode='human')
        except ValueError as error:
            print(error)
        except pygame.error:  # an SDL that does not draw off screen
            print(env_id if isinstance(env_id, str) else 'Drawn', 'opens a window, but there is no display')
"""


@pytest.mark.full
def test_windows_that_pygame_opens_where_nobody_sees_them(no_display: None):
    done = run_python('-c', textwrap.dedent(WINDOW))
    lines = [line for line in done.stdout.splitlines() if 'opens a window, but there is no display' in line]
    assert [line.split()[0].rstrip(':') for line in lines] == ['Drawn', 'Drawn-v0'], done.stderr


PICTURES = """
    import numpy as np, pygame
    from gymnasium.envs.toy_text import FrozenLakeEnv
    from zoo.common.env_wrappers import build_env

    class Drawn(FrozenLakeEnv):
        metadata = {'render_modes': ['rgb_array']}

    for env_id, env_type in ((Drawn, 'gymnasium'), ('cartpole-swingup', 'dm_control')):
        env = build_env(env_id, env_type, render_mode='human')
        env.reset(seed=0)
        env.step(env.action_space.sample())
        there = build_env(env_id, env_type, render_mode='rgb_array')
        there.reset(seed=0)
        width, height = pygame.display.get_surface().get_size()
        print(env.render_mode, (height, width) == there.render().shape[:2], np.ptp(pygame.surfarray.array3d(
            pygame.display.get_surface())) > 0)
        env.close()
"""


@pytest.mark.full
@needs_mujoco
def test_a_window_shows_the_pictures_of_what_only_gives_pictures(no_display: None, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip('dm_control')
    monkeypatch.setenv('SDL_VIDEODRIVER', 'dummy')
    done = run_python('-c', textwrap.dedent(PICTURES))
    assert done.stdout.splitlines()[-2:] == ['human True True'] * 2, done.stderr


def test_such_a_window_needs_a_display_and_pygame(no_display: None, monkeypatch: pytest.MonkeyPatch):
    class Drawn(Walk):
        metadata = {'render_modes': ['rgb_array']}

    assert message(ValueError, Drawn, render_mode='human').startswith("Drawn: render_mode='human' opens a window, but")
    monkeypatch.setenv('DISPLAY', ':0')
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
    assert message(ImportError, Drawn, render_mode='human').endswith('not installed: pip install pygame.')


def test_modes_of_ones_own_may_print_to_a_terminal(no_display: None):
    class Printing(Walk):
        metadata = {'render_modes': ['human']}

        def __init__(self, render_mode: str | None = None) -> None:
            super().__init__()
            self.render_mode = render_mode

    assert build_env(Printing, render_mode='human').render_mode == 'human'


# ---- what an environment is called, and its type --------------------------------------------------------------------


def make_walk() -> gymnasium.Env:
    return Walk()


@pytest.mark.parametrize(
    ('env_id', 'kwargs', 'name'),
    [
        ('CartPole-v1', {}, 'CartPole-v1'),
        ('gymnasium.envs:CartPole-v1', {'nenv': 2}, 'CartPole-v1'),
        ('CartPole-v1', {'reward_shaping': abs, 'max_episode_steps': 5}, 'CartPole-v1'),
        pytest.param('CartPole-v1', {'nenv': 2, 'vectorized': 'envpool'}, 'CartPole-v1', marks=needs_envpool),
        (Walk, {}, 'Walk'),
        (Walk, {'nenv': 2}, 'Walk'),
        (Walk, {'nenv': 2, 'vectorized': 'async'}, 'Walk'),
        (Masked, {'nenv': 2, 'reward_shaping': abs}, 'Masked'),
        (partial(Walk, length=3), {'nenv': 2}, 'Walk'),
        (make_walk, {'nenv': 2}, 'make_walk'),
        (lambda: Walk(), {}, 'Walk'),
        (lambda: Walk(), {'nenv': 2}, 'Walk'),
        (lambda: SyncVectorEnv([Walk, Walk]), {}, 'Walk'),
        (SyncVectorEnv([Walk, Walk]), {'reward_shaping': abs}, 'Walk'),
        (gymnasium.make_vec('CartPole-v1', 2), {}, 'CartPole-v1'),
        (Walk(), {}, 'Walk'),
    ],
)
def test_what_an_environment_is_called(env_id: Any, kwargs: dict[str, Any], name: str):
    env = build_env(env_id, **kwargs)
    assert about(env).name == name
    wrapped = gymnasium.vector.VectorWrapper(env) if isinstance(env, VectorEnv) else gymnasium.Wrapper(env)
    assert about(wrapped).name == name
    assert about(wrapped).type == 'gymnasium'
    env.close()


def test_a_lambda_in_processes_has_a_name_that_a_file_can_have():
    env = build_env(lambda: Walk(), nenv=2, vectorized='async')
    assert about(env).name == 'lambda'
    env.close()


def test_the_type_is_remembered():
    for kwargs in ({}, {'nenv': 2}, {'nenv': 2, 'vectorized': 'async'}, {'reward_shaping': abs}):
        env = build_env('CartPole-v1', 'classic_control', **kwargs)
        assert about(env).type == 'classic_control'
        env.close()
    env = build_env('CartPole-v1', 'classic_control')
    wrapped = gymnasium.wrappers.TimeLimit(gymnasium.Wrapper(env), 9)
    assert about(wrapped).type == 'classic_control'
    assert about(build_env(wrapped, 'gymnasium', reward_shaping=abs)).type == 'classic_control'
    assert about(about(env).rebuild()).type == 'classic_control'
    assert about(gymnasium.make('CartPole-v1')).type is None
    assert about(gymnasium.make('CartPole-v1')).name == 'CartPole-v1'
    assert about(Walk()).name == about(SyncVectorEnv([Walk])).name == 'Walk'
    circle = Walk()
    circle.env = circle
    assert about(circle).type is None and about(circle).name == 'Walk'


def test_a_name_without_its_version():
    assert "did you mean 'CartPole-v1'?" in message(ValueError, 'CartPole')
    assert "did you mean 'HalfCheetah-v5'?" in message(ValueError, 'HalfCheetah', 'mujoco')


def test_other_type_errors_pass_through():
    def broken() -> gymnasium.Env:
        raise TypeError('of its own')

    assert message(TypeError, broken) == 'of its own'


def test_number_of_copies():
    assert build_env('CartPole-v1', nenv=np.int64(2)).num_envs == 2
    for nenv in (0, -1, 1.5, 2.0, True):
        assert 'at least 1' in message(ValueError, 'CartPole-v1', nenv=nenv)
    assert 'cannot be copied' in message(ValueError, Walk(), nenv=2)
    assert 'cannot be copied' in message(ValueError, gymnasium.make_vec('CartPole-v1', 2), nenv=4)


def test_things_that_are_not_environments():
    class OldStyle:
        def reset(self) -> int:
            return 0

        def step(self, action: int) -> tuple[int, float, bool, dict]:
            return 0, 0.0, True, {}

    for env_id in (OldStyle(), OldStyle, 3, None):
        assert 'is not a Gymnasium environment: give' in message(TypeError, env_id)
    assert "build_env(env, 'gymnasium')" in message(TypeError, Walk, 'mujoco')
    assert 'reward_shaping is a function' in message(TypeError, Walk, reward_shaping=0.1)


@pytest.mark.parametrize('nenv', [1, 2])
@pytest.mark.parametrize(
    ('space', 'observation', 'named'),
    [
        (
            Box(-1, 1, (2,), np.float32),
            np.full(2, -1e39),
            r'the value -1e\+39, .* float32 .*: correct one of the two\.$',
        ),
        (Box(-1, 1, (2,), np.float32), np.zeros(3, np.float32), r'\(3,\).*\(2,\)'),
        (Discrete(3), 1.5, 'the value 1.5, which the int64 of its space cannot hold'),
        (Dict(a=Dict(b=Box(0, 1, (1,), np.uint8))), {'a': {'b': np.full(1, 256)}}, "'a/b' with the value 256, .*uint8"),
        (Dict(a=Discrete(2), b=Discrete(2)), {'a': 1}, "the part 'b' is missing"),
    ],
)
def test_observation_outside_its_space(nenv: int, space: gymnasium.Space, observation: Any, named: str):
    def faulty() -> gymnasium.Env:
        return Observed(space, observation)

    with pytest.raises(ValueError, match=f'^faulty.*{named}'):
        build_env(faulty, nenv=nenv)


def test_dtypes_that_cast_without_loss_fit():
    build_env(lambda: Observed(Box(-1, 1, (2,), np.float64), np.zeros(2, np.float32)))
    build_env(lambda: Observed(Discrete(3), np.int32(2)))


def test_reset_that_returns_no_info():
    class NoInfo(Walk):
        def reset(self, **kwargs: Any) -> dict:
            return super().reset(**kwargs)[0]

    assert 'pair (observation, info)' in message(ValueError, NoInfo)


@pytest.mark.parametrize('vectorized', ['sync', 'async'])
def test_copies_know_the_specification_that_defaults_are_looked_up_by(vectorized):
    env = build_env('CartPole-v1', 'classic_control', vectorized=vectorized, nenv=2)
    assert env.spec.id == 'CartPole-v1'
    env.close()


def test_what_can_be_built_again():
    """By what build_env was given, and never by a method that the environment has for something else."""

    class Mine(gymnasium.Wrapper):
        def __init__(self, length: int = 10) -> None:
            super().__init__(gymnasium.make('CartPole-v1', max_episode_steps=length))
            self.built = 0

        def rebuild(self) -> None:
            self.built += 1

        def reset(self, **kwargs: Any) -> Any:
            self.rebuild()
            return super().reset(**kwargs)

    env = build_env(Mine, length=3)
    env.reset()
    assert env.built == 2  # build_env looks at the first observation
    twin = about(env).rebuild(seed=4)
    assert isinstance(twin, Mine) and twin is not env and twin.env.spec.max_episode_steps == 3
    copies = about(build_env('CartPole-v1', nenv=3)).rebuild(seed=None)
    assert copies.num_envs == 3
    assert about(build_env(Mine())).rebuild is None
    assert about(gymnasium.wrappers.TimeLimit(env, 5)).rebuild is None


def test_what_zoo_knows_of_an_environment_is_one_record():
    env = build_env('CartPole-v1', 'classic_control', nenv=2, max_episode_steps=9, render_mode='rgb_array')
    known = about(env)
    assert (known.name, known.type, known.copies) == ('CartPole-v1', 'classic_control', 2)
    assert known.arguments == {
        'env_id': 'CartPole-v1',
        'env_type': 'classic_control',
        'vectorized': False,
        'nenv': 2,
        'max_episode_steps': 9,
    }
    assert about(known.rebuild(nenv=1)).copies == 1 and about(known.rebuild(seed=3)).arguments == known.arguments
    assert about(build_env(env)) == known  # the very object: made as before
    outside = about(gymnasium.vector.VectorWrapper(env))
    assert (outside.name, outside.type, outside.copies) == ('CartPole-v1', 'classic_control', 2)
    assert outside.arguments is None and outside.rebuild is None  # they would leave out the wrapper
    assert about(gymnasium.make('CartPole-v1')).copies == 1


def test_an_environment_that_takes_no_attribute_has_no_record():
    class Closed(Walk):
        def __setattr__(self, name: str, value: Any) -> None:
            if name.startswith('_zoo'):
                raise AttributeError(name)
            super().__setattr__(name, value)

    env = build_env(Closed)
    assert about(env).name == 'Closed' and about(env).type is None


def test_an_environment_that_is_built_again_has_its_own_state_of_the_shaping():
    class Count:
        calls = 0

        def __call__(self, reward: float) -> float:
            self.calls += 1
            return reward

    env = build_env('CartPole-v1', reward_shaping=(own := Count()))
    twin = about(env).rebuild(seed=0)
    twin.reset()
    twin.step(0)
    assert own.calls == 0 and about(env).made_by.startswith('CartPole-v1 ')
    assert about(env).made_by != about(build_env('CartPole-v1', reward_shaping=lambda r: -r)).made_by
    assert about(build_env('CartPole-v1')).made_by is None
