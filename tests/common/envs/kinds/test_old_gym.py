"""Environments of the old ``gym`` interface: spaces, flags, seeds, copies, training."""

from __future__ import annotations

import pickle
import warnings
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from zoo.common.env_wrappers import build_env
from zoo.common.envs.kinds.old_gym import OldGymEnv, convert_space, is_old_gym


class OldBox:
    """A ``Box`` as the package ``gym`` has it: its attributes are all that counts."""

    def __init__(self, low: Any, high: Any, dtype: Any = np.float32) -> None:
        self.low, self.high = np.asarray(low, dtype), np.asarray(high, dtype)
        self.shape, self.dtype = self.low.shape, np.dtype(dtype)


class OldBounds(NamedTuple):
    """A ``Box`` as packages write it that can do without ``gym``: its bounds may be numbers."""

    low: Any
    high: Any
    shape: Any
    dtype: Any


class OldDiscrete:
    shape = ()
    dtype = np.dtype(np.int64)

    def __init__(self, n: int) -> None:
        self.n = n


class OldWalk:
    """A walk to the right of random length, whose time limit is that of an old ``gym.wrappers.TimeLimit``."""

    metadata = {'render.modes': ['human', 'rgb_array']}
    observation_space = OldBox([-50, 0], [50, 50])
    action_space = OldDiscrete(2)

    def __init__(self, limit: int = 20) -> None:
        self.limit = limit
        self.closed = False
        self.seed(None)

    def seed(self, seed: int | None = None) -> list[int | None]:
        self.random = np.random.RandomState(seed)
        return [seed]

    def reset(self) -> np.ndarray:
        self.place, self.t = self.random.randn(), 0
        return self.observation()

    def step(self, action: int) -> tuple[np.ndarray, Any, bool, dict]:
        assert action in (0, 1)
        self.place += action + 0.1 * self.random.randn()
        self.t += 1
        done, info = self.place > 6, {'place': self.place}
        if self.t == self.limit:
            info['TimeLimit.truncated'] = not done
            done = True
        return self.observation(), np.array([self.place]), done, info

    def observation(self) -> np.ndarray:
        return np.array([self.place, self.t])  # float64, which its space is not

    def render(self, mode: str = 'human') -> str:
        return mode

    def close(self) -> None:
        self.closed = True


class MiddleWalk(OldWalk):
    """The interface of gym 0.26: five values, a pair from ``reset``, and its own spaces."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        self.options = options
        if seed is not None:
            self.seed(seed)
        return super().reset(), {'started': True}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        observation, reward, done, info = super().step(action)
        cut = info.get('TimeLimit.truncated', False)
        return observation, float(reward[0]), done and not cut, cut, info


class OldWrapper:
    """A wrapper as old packages have it, which hands on everything."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__'):
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def unwrapped(self) -> Any:
        return self.env

    def reset(self, **kwargs: Any) -> Any:
        return self.env.reset(**kwargs)


def drive(env: gymnasium.Env, actions: list[int], **reset: Any) -> list[tuple]:
    steps = [(env.reset(**reset)[0].tolist(), None, None, None)]
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        steps.append((observation.tolist(), reward, terminated, truncated))
        if terminated or truncated:
            steps.append((env.reset()[0].tolist(), None, None, None))
    return steps


# ---- the interface --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('given', [OldWalk, OldWalk(), lambda: OldWalk(), lambda: OldWrapper(OldWalk()), MiddleWalk])
def test_build_env_adapts(given: Any):
    env = build_env(given, 'gymnasium', seed=4)
    assert isinstance(env, gymnasium.Env) and isinstance(env.unwrapped, OldWalk)
    assert env.observation_space == spaces.Box(np.array([-50, 0], np.float32), 50, (2,), np.float32)
    assert env.action_space == spaces.Discrete(2)
    observation, info = env.reset()
    assert observation.dtype == np.float32 and env.observation_space.contains(observation)
    assert info == ({'started': True} if given is MiddleWalk else {})
    raw = OldWalk()
    raw.seed(4)
    raw.reset()  # the one that build_env looks at
    np.testing.assert_array_equal(observation, raw.reset().astype(np.float32))
    for action in (1, 0, 1):
        expected, expected_reward, done, expected_info = raw.step(action)
        observation, reward, terminated, truncated, info = env.step(action)
        np.testing.assert_array_equal(observation, expected.astype(np.float32))
        assert type(reward) is float and reward == expected_reward[0]
        assert (terminated, truncated, info) == (done, False, expected_info)
        assert type(terminated) is type(truncated) is bool


def test_a_time_limit_truncates_and_an_end_terminates():
    env = build_env(OldWalk, limit=12)
    env.reset(seed=0)
    flags = [env.step(0)[2:4] for _ in range(12)]
    assert flags == [(False, False)] * 11 + [(False, True)]
    env.reset(seed=0)
    while not any(ends := env.step(1)[2:4]):
        pass
    assert ends == (True, False)


def test_a_limit_from_outside():
    env = build_env(OldWalk, max_episode_steps=3)
    env.reset()
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize('kind', [OldWalk, MiddleWalk, lambda: OldWrapper(OldWalk()), lambda: OldWrapper(MiddleWalk())])
def test_seeds(kind: Any):
    env = build_env(kind)
    actions = [1] * 30
    assert drive(env, actions, seed=7) == drive(env, actions, seed=7) != drive(env, actions, seed=8)


def test_an_environment_without_seeds_says_so_once():
    class Unseeded(OldWalk):
        def __init__(self) -> None:
            super().__init__()
            self.seed = None

    env = OldGymEnv(Unseeded())
    with pytest.warns(UserWarning, match=r'takes no seed, so its episodes cannot be repeated: give it a method seed\('):
        env.reset(seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        env.reset(seed=2)
        env.reset()
        OldGymEnv(OldWalk()).reset(seed=1)


@pytest.mark.parametrize('reward', [None, np.ones(2), 'much'])
def test_rewards_that_are_no_number(reward: Any):
    class Changed(OldWalk):
        def step(self, action: int) -> tuple:
            observation, _, *rest = super().step(action)
            return observation, reward, *rest

    env = build_env(Changed)
    env.reset()
    with pytest.raises(TypeError, match='gave the reward .*, not one number'):
        env.step(0)


def test_integers_that_have_no_room_in_their_dtype():
    class Changed(OldWalk):
        observation_space = spaces.Box(-100, 100, (2,), np.int8)

        def observation(self) -> np.ndarray:
            return np.array([1, value])

    value = 100
    assert build_env(Changed).reset()[0].dtype == np.int8
    value = 300  # 44 as int8
    with pytest.raises(ValueError, match='with the value 300, which the int8 of its space cannot hold'):
        build_env(Changed)


def test_options():
    env = build_env(MiddleWalk)
    env.reset(options={'place': 3})
    assert env.unwrapped.options == {'place': 3}
    with pytest.raises(TypeError, match=r'OldWalk.* takes no options'):
        build_env(OldWalk).reset(options={'place': 3})


def test_everything_else_is_the_environments():
    env = build_env(OldWalk)
    assert env.metadata['render_modes'] == ['human', 'rgb_array'] and 'render.modes' not in env.metadata
    assert env.render() == 'human' and env.get_wrapper_attr('limit') == 20
    assert 'OldWalk' in str(env)
    with pytest.raises(AttributeError):
        _ = env.no_such_thing
    env.close()
    assert env.unwrapped.closed
    assert pickle.loads(pickle.dumps(OldGymEnv(OldWalk(9)))).limit == 9


def test_an_observation_that_is_a_pair_is_not_taken_for_one_with_info():
    class Pair(OldWalk):
        observation_space = SimpleNamespace(spaces=(OldDiscrete(2), SimpleNamespace(spaces={'a': OldDiscrete(3)})))

        def reset(self) -> tuple:
            return 1, {'a': 2}

    observation, info = build_env(Pair).reset()
    assert (observation, info) == ((1, {'a': 2}), {})


def test_other_numbers_of_values_are_refused():
    class Three(OldWalk):
        def step(self, action: int) -> tuple:
            return super().step(action)[:3]

    with pytest.raises(ValueError, match='Three.*returned 3 values, not observation, reward, terminated'):
        build_env(Three).step(0)


@pytest.mark.parametrize(
    ('answer', 'error', 'words'),
    [
        (lambda o, r, d, i: (o, r, 'False', i), TypeError, "gave done as 'False', which is neither True nor False"),
        (lambda o, r, d, i: (o, r, np.nan, i), TypeError, 'gave done as nan, which is neither'),
        (lambda o, r, d, i: (o, r, np.zeros(2, bool), i), TypeError, r'gave done as array\(\[False, False\]\)'),
        (lambda o, r, d, i: (o, r, None, False, i), TypeError, 'gave terminated as None'),
        (lambda o, r, d, i: (o, r, False, 'no', i), TypeError, "gave truncated as 'no'"),
        (lambda o, r, d, i: (o, r, d, None), TypeError, 'gave the info None, not a dictionary'),
        (lambda o, r, d, i: (o, r, d, False, 3), TypeError, 'gave the info 3, not a dictionary'),
        (lambda o, r, d, i: (o, r, True, {'TimeLimit.truncated': 'no'}), TypeError, "gave TimeLimit.truncated as 'no'"),
        (lambda o, r, d, i: None, ValueError, r'returned None from step\(\), not observation, reward, terminated'),
        (lambda o, r, d, i: 3.5, ValueError, r'returned 3.5 from step\(\)'),
        (lambda o, r, d, i: (o, [[1.0], [2.0, 3.0]], d, i), TypeError, 'the reward .* 2 objectives, not one number'),
    ],
)
def test_an_odd_answer_to_a_step_is_refused_in_a_sentence(answer: Any, error: type[Exception], words: str):
    class Odd(OldWalk):
        def step(self, action: int) -> Any:
            return answer(*super().step(action))

    env = build_env(Odd)
    env.reset()
    with pytest.raises(error, match=rf'^<OldGymEnv<Odd>>:? .*{words}.*\.$'):
        env.step(0)


def test_other_forms_of_done_are_understood():
    class Forms(OldWalk):
        def step(self, action: int) -> tuple:
            observation, reward, done, info = super().step(action)
            return observation, np.array([reward]), np.array([done]), {'TimeLimit.truncated': np.array([int(done)])}

    env = build_env(partial(Forms, 2))
    env.reset()
    assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), (False, True)]


def test_what_is_an_old_environment():
    assert is_old_gym(OldWalk()) and is_old_gym(OldWrapper(OldWalk()))
    for other in (OldWalk, build_env(OldWalk), 'CartPole-v1', SimpleNamespace(reset=print, step=print), None):
        assert not is_old_gym(other)


# ---- spaces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ('old', 'new'),
    [
        (OldBox(np.zeros((2, 3)), np.full((2, 3), 255), np.uint8), spaces.Box(0, 255, (2, 3), np.uint8)),
        (OldBox([-np.inf], [np.inf], np.float64), spaces.Box(-np.inf, np.inf, (1,), np.float64)),
        (OldBounds(0, 255, (2, 3), np.uint8), spaces.Box(0, 255, (2, 3), np.uint8)),
        (OldBounds([0, 1], 2, (3, 2), np.float32), spaces.Box(np.array([[0, 1]] * 3), 2, (3, 2), np.float32)),
        (OldBounds(-1, [1, 2], None, np.float32), spaces.Box(-1, np.array([1, 2]), (2,), np.float32)),
        (OldDiscrete(4), spaces.Discrete(4)),
        (SimpleNamespace(n=4, start=2, shape=()), spaces.Discrete(4, start=2)),
        (SimpleNamespace(n=4, shape=(4,)), spaces.MultiBinary(4)),
        (SimpleNamespace(nvec=np.array([2, 3]), shape=(2,)), spaces.MultiDiscrete([2, 3])),
        (
            SimpleNamespace(spaces={'a': OldDiscrete(2), 'b': SimpleNamespace(spaces=(OldDiscrete(3),))}),
            spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.Discrete(3)])),
        ),
        (spaces.Discrete(3), spaces.Discrete(3)),
    ],
)
def test_spaces_are_converted(old: Any, new: gymnasium.Space):
    found = convert_space(old)
    assert found == new and found.dtype == new.dtype


def test_an_environment_whose_bounds_are_numbers():
    class Picture(OldWalk):
        observation_space = OldBounds(0, 255, (8, 8, 3), np.uint8)

        def observation(self) -> np.ndarray:
            return np.full((8, 8, 3), self.t, np.uint8)

    env = build_env(Picture)
    assert env.observation_space == spaces.Box(0, 255, (8, 8, 3), np.uint8)
    assert env.observation_space.contains(env.reset()[0])


def test_bounds_that_do_not_fit_their_shape():
    text = r'has the shape \(2,\), but bounds of the shapes \(3,\) and \(\): give bounds of its shape, or a number'
    with pytest.raises(TypeError, match=text):
        convert_space(OldBounds([0, 0, 0], 1, (2,), np.float32))


def test_a_space_without_an_equal_is_refused():
    class Text:
        max_length = 4

    class Talk(OldWalk):
        observation_space = Text()

    with pytest.raises(TypeError, match='Text.*has no equal among .* use Box, Discrete, MultiDiscrete'):
        build_env(Talk)


# ---- copies and training --------------------------------------------------------------------------------------------


@pytest.mark.full(but='sync')
@pytest.mark.parametrize('vectorized', ['sync', 'async'])
def test_copies(vectorized: str):
    env = build_env(OldWalk, vectorized=vectorized, nenv=2, seed=3, limit=6)
    assert isinstance(env, VectorEnv)
    singles = [build_env(OldWalk, seed=3 + i, limit=6) for i in range(2)]
    observation, _ = env.reset()
    np.testing.assert_array_equal(observation, [single.reset()[0] for single in singles])
    ended = 0
    for t in range(40):
        observation, reward, terminated, truncated, info = env.step([1, t % 2])
        for i, single in enumerate(singles):
            expected, *rest = single.step((1, t % 2)[i])
            assert (reward[i], terminated[i], truncated[i]) == tuple(rest[:3])
            if terminated[i] or truncated[i]:
                ended += 1
                np.testing.assert_array_equal(info['final_obs'][i], expected)
                expected = single.reset()[0]
            np.testing.assert_array_equal(observation[i], expected)
    env.close()
    assert ended > 8


def test_one_object_cannot_be_copied():
    with pytest.raises(ValueError, match='same environment object|cannot be copied'):
        build_env(OldWalk(), nenv=2)


@pytest.mark.full
def test_ppo_trains():
    from zoo import call_default_params
    from zoo.algorithms import PPO

    env = build_env(OldWalk, 'gymnasium')
    alg_params, learn_params = call_default_params(env, 'gymnasium', 'PPO')
    agent = PPO(**alg_params | {'net_list': [{'hidden': [8]}, {'hidden': [8]}]})
    learn_params |= {'train_steps': 64, 'horizon': 32, 'batch_size': 16, 'epochs': 1, 'verbose': 0}
    result = agent.learn(env, 'train', run_dir=False, **learn_params)
    assert result.steps == 64 and len(result.returns) > 1
    assert np.isfinite(result.returns).all()
