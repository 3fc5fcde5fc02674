"""Environments that give an observation in another form than declared: cast where the value survives, else refused."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

import zoo
from zoo import algorithms
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.env_wrappers import build_env
from zoo.common.envs import declared
from zoo.common.envs.check import check_env
from zoo.common.rollouts.collector import Collector

VECTOR = Box(-10.0, 10.0, (2,), np.float32)
#: Name -> a space, and what the environment gives for the number of the step.
FORMS: dict[str, tuple[gymnasium.Space, Any]] = {
    'float64': (VECTOR, lambda t: np.array([t / 10, -t], np.float64)),
    'int64': (VECTOR, lambda t: np.array([t, -t], np.int64)),
    'bool': (VECTOR, lambda t: np.array([t % 2, True], bool)),
    'list of floats': (VECTOR, lambda t: [t / 10, -t]),
    'tuple of ints': (VECTOR, lambda t: (t, -t)),
    'number': (Box(-10.0, 10.0, (), np.float32), lambda t: t / 10),
    'number of a vector': (Box(-10.0, 10.0, (1,), np.float32), lambda t: t / 10),
    'whole floats': (Box(0, 255, (2,), np.uint8), lambda t: np.array([t, 255.0])),
    'ints of a byte': (Box(0, 255, (2,), np.uint8), lambda t: [t, 255]),
    'discrete': (Discrete(9), lambda t: float(t)),
    'switches': (MultiBinary(2), lambda t: [float(t % 2), 1.0]),
    'dict': (Dict(a=VECTOR, b=Discrete(9)), lambda t: {'a': [t, 0.5], 'b': np.int32(t)}),
    'tuple': (Tuple((VECTOR, Discrete(9))), lambda t: ([t, 0.5], t)),
}
FLOATS = ('float64', 'int64', 'list of floats', 'dict')


class Gives(gymnasium.Env):
    """Episodes of five steps; gives each observation as one of the forms."""

    action_space = Discrete(2)

    def __init__(self, form: str) -> None:
        self.observation_space, self.give = FORMS[form]
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.give(0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self.give(self.t), 1.0, self.t == 5, False, {}


@pytest.fixture(autouse=True)
def nothing_told() -> Iterator[None]:
    declared._told.clear()
    yield
    declared._told.clear()


def expected(form: str, t: int) -> Any:
    """The observation at a step in its declared form, a flat structure."""
    space, give = FORMS[form]
    x = give(t)
    if isinstance(space, Dict):
        return {'a': np.array(x['a'], np.float32), 'b': np.int64(x['b'])}
    if isinstance(space, Tuple):
        return {'0': np.array(x[0], np.float32), '1': np.int64(x[1])}
    return np.asarray(x).astype(space.dtype).reshape(space.shape)


def check(found: Any, form: str, t: int) -> None:
    wanted = expected(form, t)
    pairs = [(found[path], wanted[path]) for path in wanted] if isinstance(wanted, dict) else [(found, wanted)]
    for x, y in pairs:
        assert x.dtype == y.dtype
        for row in x:
            np.testing.assert_array_equal(row, y)


@pytest.mark.parametrize(
    ('nenv', 'vectorized'),
    [(1, False), (2, 'sync'), pytest.param(2, 'async', marks=pytest.mark.full)],
    ids=['single', 'sync', 'async'],
)
@pytest.mark.parametrize('form', FORMS)
def test_steps_resets_and_final_observations(form: str, nenv: int, vectorized: Any):
    env = build_env(Gives, 'gymnasium', vectorized, nenv=nenv, form=form)
    collector = Collector(env, ActionAdaptor(Gives.action_space))
    check(collector.reset(0), form, 0)
    for step in range(1, 12):
        collector.step(np.zeros(nenv, np.int32))
        t = (step - 1) % 5 + 1
        check(collector.next_obs, form, t)
        check(collector.obs, form, t % 5)
    env.close()


@pytest.mark.parametrize('form', FORMS)
def test_a_vector_environment_of_the_users_own(form: str):
    """Which hands on what its copies gave, stacked."""
    if isinstance(FORMS[form][0], Dict | Tuple):
        return

    class Stacked(gymnasium.vector.VectorEnv):
        metadata = {'autoreset_mode': gymnasium.vector.AutoresetMode.NEXT_STEP}
        num_envs = 2
        single_observation_space, single_action_space = FORMS[form][0], Discrete(2)
        observation_space = gymnasium.vector.utils.batch_space(FORMS[form][0], 2)
        action_space = gymnasium.vector.utils.batch_space(Discrete(2), 2)

        def _see(self) -> Any:
            x = np.asarray(FORMS[form][1](self.t)).reshape(FORMS[form][0].shape)
            return np.stack([x, x]).tolist() if 'list' in form else np.stack([x, x])

        def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict]:
            self.t = 0
            return self._see(), {}

        def step(self, actions: Any) -> tuple:
            self.t += 1
            return self._see(), np.ones(2), np.zeros(2, bool), np.zeros(2, bool), {}

    collector = Collector(build_env(Stacked()), ActionAdaptor(Discrete(2)))
    check(collector.reset(0), form, 0)
    collector.step(np.zeros(2, np.int32))
    check(collector.next_obs, form, 1)


@pytest.mark.parametrize('nenv', [1, 3])
def test_it_is_said_once(caplog: pytest.LogCaptureFixture, nenv: int):
    caplog.set_level(logging.INFO, 'zoo')
    for _ in range(2):
        collector = Collector(build_env(Gives, nenv=nenv, form='dict'), ActionAdaptor(Discrete(2)))
        collector.reset(0)
        for _ in range(7):
            collector.step(np.zeros(nenv, np.int32))
    told = [record.getMessage() for record in caplog.records if 'cast' in record.getMessage()]
    assert told == [
        "The observations of Gives are cast to the dtype of their space: 'a' from float64 to float32. zoo.check_env "
        'names all that differs.'
    ]


def test_it_is_said_by_the_first_step_that_needs_it(caplog: pytest.LogCaptureFixture):
    class Later(Gives):
        def reset(self, **kwargs: Any) -> Any:
            super().reset(**kwargs)
            return np.zeros(2, np.float32), {}

    caplog.set_level(logging.INFO, 'zoo')
    for env in (Later('float64'), build_env(lambda: Later('float64'), nenv=2)):
        declared._told.clear()
        caplog.clear()
        collector = Collector(env, ActionAdaptor(Discrete(2)))
        collector.reset(0)
        assert not caplog.records
        collector.step(np.zeros(collector.num_envs, np.int32))
        assert 'Later are cast to the dtype of their space: from float64 to float32' in caplog.text


def test_what_needs_no_cast_is_not_said(caplog: pytest.LogCaptureFixture):
    class Exact(Gives):
        def __init__(self) -> None:
            super().__init__('dict')
            self.give = lambda t: {'a': np.array([t, 0.5], np.float32), 'b': np.int32(t)}

    caplog.set_level(logging.INFO, 'zoo')
    env = build_env(Exact, nenv=2)
    env.reset()
    assert not caplog.records


@pytest.mark.parametrize('form', FORMS)
def test_predict_takes_what_the_environment_gives(form: str):
    env = build_env(Gives, form=form)
    agent = algorithms.PPO(env.observation_space, env.action_space, net_list=[{'hidden': [4]}] * 2)
    observation, _ = env.reset()
    assert agent.predict(observation) in (0, 1)
    assert agent.predict(env.step(1)[0]) in (0, 1)


@pytest.mark.parametrize('nenv', [1, 2])
@pytest.mark.parametrize(
    ('form', 'value', 'told'),
    [
        ('whole floats', [0.5, 0.0], 'the value 0.5, which the uint8 of its space cannot hold'),
        ('whole floats', [1024, 0], 'the value 1024, which the uint8 of its space cannot hold'),
        ('whole floats', [-1, 0], 'the value -1, which the uint8'),
        ('discrete', 1.5, 'the value 1.5, which the int64'),
        ('float64', [1e39, 0.0], r'the value 1e\+39, which the float32'),
        ('float64', [0.0, 0.0, 0.0], r'of shape \(3,\) .* declares \(2,\)'),
        ('float64', 'ab', 'dtype <U2'),
        ('float64', None, 'dtype object'),
        ('float64', [[1.0], [1.0, 2.0]], 'dtype object'),
        ('number of a vector', [[0.5]], r'of shape \(1, 1\) .* declares \(1,\)'),
    ],
)
def test_a_value_that_would_be_another_one_is_refused(form: str, value: Any, told: str, nenv: int):
    class Late(Gives):
        def step(self, action: Any) -> tuple:
            _, *rest = super().step(action)
            return value, *rest

    collector = Collector(build_env(lambda: Late(form), nenv=nenv), ActionAdaptor(Discrete(2)))
    collector.reset(0)
    with pytest.raises(
        ValueError, match=f'^step 1: .* gave an observation .*{told}.*: correct one of the two\\.$'
    ) as e:
        collector.step(np.zeros(nenv, np.int32))
    assert '\n' not in str(e.value)

    class Early(Gives):
        def reset(self, **kwargs: Any) -> Any:
            return value, {}

    with pytest.raises(ValueError, match=f'^Early gave an observation .*{told}.*: correct one of the two\\.$'):
        build_env(Early, nenv=nenv, form=form)


def test_checking_an_environment_is_strict():
    found = check_env(Gives, form='float64')
    assert any('is of float64, but its space of float32: return x.astype(np.float32)' in text for text in found)
    assert any('is a list of 2, not an array' in text for text in check_env(Gives, form='list of floats'))


@pytest.mark.parametrize('form', ['float64', 'list of floats', 'number of a vector'])
def test_views_of_it(form: str):
    env = build_env(Gives, form=form, frame_stack=3)
    collector = Collector(env, ActionAdaptor(Discrete(2)))
    collector.reset(0)
    collector.step(np.zeros(1, np.int32))
    zero, one = expected(form, 0), expected(form, 1)
    np.testing.assert_array_equal(collector.obs[0], np.concatenate([zero, zero, one]))


@pytest.mark.full
@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize('nenv', [1, 2])
@pytest.mark.parametrize('name', ['PPO', 'DQN'])
@pytest.mark.parametrize('form', FLOATS)
def test_trained_saved_loaded_tested(form: str, name: str, nenv: int, tmp_path: Path):
    env = build_env(Gives, form=form, nenv=nenv)
    space = env.single_observation_space if nenv > 1 else env.observation_space
    agent = getattr(algorithms, name)(space, Discrete(2))
    params = {'horizon': 16} if name == 'PPO' else {'explore_steps': 20, 'buffer_size': 100}
    before = [v.numpy() for v in agent.trainable_variables]
    agent.learn(env, train_steps=60, run_dir=False, verbose=0, batch_size=8, **params)
    assert any((v.numpy() != old).any() for v, old in zip(agent.trainable_variables, before, strict=True))
    loaded = zoo.load(agent.save(tmp_path / 'saved'))
    observation = FORMS[form][1](3)
    assert loaded.predict(copy.deepcopy(observation)) == agent.predict(observation)
    assert loaded.learn(env, 'test', test_episodes=2, run_dir=False).returns == [5.0, 5.0]


def test_stacked_frames_are_cast_or_refused_as_single_ones_are():
    class Image(gymnasium.Env):
        observation_space, action_space = Box(0, 255, (4, 4, 1), np.uint8), Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros((4, 4, 1), np.uint8), {}

        def step(self, action: Any) -> Any:
            return np.full((4, 4, 1), 300.0), 0.0, False, False, {}

    class Halves(Image):
        observation_space = Box(-9, 9, (2,), np.float32)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return [0, 0], {}

        def step(self, action: Any) -> Any:
            return [1.75, 1.75], 0.0, False, False, {}

    env = build_env(Image, frame_stack=2)
    env.reset()
    with pytest.raises(ValueError, match='gave an observation with the value 300.0, which the uint8 of its space'):
        env.step(0)
    env = build_env(Halves, frame_stack=2)
    assert env.reset()[0].dtype == np.float32
    np.testing.assert_array_equal(env.step(0)[0], np.float32([0, 0, 1.75, 1.75]))
