"""What users give in place of one Gymnasium environment with one reward: each answer says what to do."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import gymnasium
import numpy
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text
from gymnasium.wrappers import FlattenObservation, TimeLimit, TransformReward

import zoo
from zoo import algorithms
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.env_wrappers import build_env
from zoo.common.envs.check import check_env
from zoo.common.rollouts.collector import Collector

LEARN: dict[str, Any] = {'run_dir': False, 'verbose': 0, 'batch_size': 8, 'horizon': 16}


class Walk(gymnasium.Env):
    """Episodes of five steps with the reward that it is given."""

    observation_space, action_space = Box(-1.0, 1.0, (2,), np.float32), Discrete(2)

    def __init__(self, reward: Any = 1.0, length: int = 5) -> None:
        self.reward, self.length, self.t = reward, length, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.zeros(2, np.float32), self.reward, self.t == self.length, False, {}


def refusal(function: Any) -> str:
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        function()
    text = str(caught.value)
    assert '\n' not in text and text.endswith('.')
    return text


# ---- rewards of several numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize('nenv', [1, 2])
@pytest.mark.parametrize('shaping', [None, lambda r: r / 10])
@pytest.mark.parametrize('reward', [[1.0, 2.0], (1, 2), np.array([1.0, 2.0], np.float32)])
def test_a_reward_for_each_objective_is_to_be_weighed(reward: Any, shaping: Any, nenv: int):
    def play() -> None:
        collector = Collector(
            build_env(Walk, nenv=nenv, reward=reward, reward_shaping=shaping), ActionAdaptor(Discrete(2))
        )
        collector.reset(0)
        collector.step(np.zeros(nenv, np.int32))

    told = 'a number for each of 2 objectives, not one number: weigh them into one, as in build_env(lambda: gymnasium.'
    assert told in refusal(play)
    assert 'agent' not in refusal(play)
    assert any(told in sentence for sentence in check_env(Walk, reward=reward))


@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize('nenv', [1, pytest.param(2, marks=pytest.mark.full)])
def test_the_remedy_works(nenv: int, tmp_path: Path):
    """The expression of the message, for an environment with two objectives."""
    told = refusal(lambda: algorithms.PPO(Walk.observation_space, Walk.action_space).learn(Walk([1.0, 2.0]), **LEARN))
    line = told[told.index('build_env(') :].removesuffix('.')
    scope = {'gymnasium': gymnasium, 'numpy': numpy, 'env': Walk([1.0, 2.0]), 'build_env': build_env}
    env = eval(line, scope)
    if nenv > 1:
        env = build_env(lambda: TransformReward(Walk([1.0, 2.0]), lambda r: float(numpy.dot(r, [0.7, 0.3]))), nenv=nenv)
    agent = algorithms.PPO(Walk.observation_space, Walk.action_space, net_list=[{'hidden': [4]}] * 2)
    result = agent.learn(env, train_steps=40, **LEARN)
    np.testing.assert_allclose(result.returns, 5 * (0.7 * 1.0 + 0.3 * 2.0), rtol=1e-6)
    loaded = zoo.load(agent.save(tmp_path / 'saved'))
    assert loaded.predict(np.zeros(2)) == agent.predict(np.zeros(2))


def test_a_reward_for_each_agent_is_something_else():
    def play() -> None:
        collector = Collector(build_env(Walk({'a': 1.0, 'b': 2.0})), ActionAdaptor(Discrete(2)))
        collector.reset(0)
        collector.step(np.zeros(1, np.int32))

    assert 'a number for each agent, not one number: zoo trains one agent, see examples/self_play.py.' in refusal(play)
    assert not any('objectives' in sentence for sentence in check_env(Walk, reward={'a': 1.0}))


def test_copies_of_the_users_own_with_several_objectives():
    class Copies(gymnasium.vector.VectorEnv):
        metadata = {'autoreset_mode': gymnasium.vector.AutoresetMode.NEXT_STEP}
        num_envs = 2
        single_observation_space, single_action_space = Walk.observation_space, Walk.action_space
        observation_space = gymnasium.vector.utils.batch_space(Walk.observation_space, 2)
        action_space = gymnasium.vector.utils.batch_space(Walk.action_space, 2)

        def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict]:
            return np.zeros((2, 2), np.float32), {}

        def step(self, actions: Any) -> tuple:
            return np.zeros((2, 2), np.float32), np.ones((2, 3)), np.zeros(2, bool), np.zeros(2, bool), {}

    collector = Collector(build_env(Copies()), ActionAdaptor(Discrete(2)))
    collector.reset(0)
    told = refusal(lambda: collector.step(np.zeros(2, np.int32)))
    assert 'not one for each copy, (2,); a copy has one number, not one for each of 3 objectives: weigh them.' in told


# ---- text -----------------------------------------------------------------------------------------------------------


class Sentences(gymnasium.Env):
    observation_space = Dict(image=Box(0, 255, (8, 8, 3), np.uint8), mission=Text(9))
    action_space = Discrete(2)

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        return {'image': np.zeros((8, 8, 3), np.uint8), 'mission': 'go'}, {}

    def step(self, action: Any) -> tuple:
        return self.reset()[0], 0.0, False, False, {}


def test_text_is_refused_in_one_sentence_from_everywhere():
    told = (
        "the part 'mission' is text, which no network reads: leave it out by a wrapper (for MiniGrid "
        'minigrid.wrappers.ImgObsWrapper or FlatObsWrapper) or turn it into numbers.'
    )
    assert check_env(Sentences) == [f'observation_space: {told}']
    for cls in (algorithms.PPO, algorithms.DQN, algorithms.ES):
        assert refusal(lambda cls=cls: cls(Sentences.observation_space, Discrete(2))) == told
    assert refusal(lambda: zoo.train('PPO', build_env(Sentences), train_steps=10, run_dir=False)) == told


# ---- other libraries ------------------------------------------------------------------------------------------------


def pettingzoo_env() -> Any:
    """What a PettingZoo environment looks like: spaces are methods, and there are several agents."""

    class AECEnv:
        metadata = {'name': 'tictactoe_v3'}
        possible_agents = ('a', 'b')

        def observation_space(self, agent: str) -> Any:
            return Discrete(2)

        action_space = observation_space

        def reset(self, seed: int | None = None, options: Any = None) -> None: ...

        def step(self, action: Any) -> None: ...

    AECEnv.__module__ = 'pettingzoo.utils.env'
    return type('raw_env', (AECEnv,), {})()


def test_an_environment_of_several_agents():
    told = (
        'tictactoe_v3 is of PettingZoo, where several agents act, but zoo trains one: make a gymnasium.Env in which it '
        'plays for one of them, and the others act in step(); examples/self_play.py does that.'
    )
    for given in (pettingzoo_env(), pettingzoo_env):
        assert refusal(lambda given=given: build_env(given)) == told
        assert refusal(lambda given=given: build_env(given, nenv=2)) == told
        assert check_env(given) == [told]
    module = types.ModuleType('pettingzoo.classic.tictactoe_v3')
    assert refusal(lambda: build_env(module)).startswith('pettingzoo.classic.tictactoe_v3 is of PettingZoo')


class Stepped:
    """A vector environment of another library: of old gym, or of Stable-Baselines3."""

    num_envs = 3

    def __init__(self, batched: bool) -> None:
        self.observation_space = Box(-1, 1, (3, 2) if batched else (2,), np.float32)
        self.action_space = Discrete(2)

    def reset(self) -> Any:
        return np.zeros((3, 2), np.float32)

    def step(self, actions: Any) -> tuple:
        return np.zeros((3, 2), np.float32), np.zeros(3), np.zeros(3, bool), [{}] * 3


@pytest.mark.parametrize('batched', [True, False])
def test_a_vector_environment_of_another_library(batched: bool):
    told = (
        "Stepped is a vector environment, but not Gymnasium's: give the class or the function of one environment, with "
        'nenv=3 for as many copies.'
    )
    for given in (Stepped(batched), lambda: Stepped(batched)):
        for nenv in (1, 3):
            assert refusal(lambda given=given, nenv=nenv: build_env(given, nenv=nenv)) == told
        assert check_env(given) == [told]


def test_a_class_of_wrappers():
    told = "'TimeLimit' is a wrapper, which needs an environment to wrap: give a function that makes both, as in "
    assert refusal(lambda: build_env(TimeLimit)) == (
        f"{told}build_env(lambda: TimeLimit(gymnasium.make('CartPole-v1'), max_episode_steps=…))."
    )
    assert "FlattenObservation(gymnasium.make('CartPole-v1')))." in refusal(lambda: build_env(FlattenObservation))
    assert 'as in build_env(lambda: TimeLimit(' in check_env(TimeLimit)[0]
    vector = gymnasium.wrappers.vector.FlattenObservation
    assert 'lambda: FlattenObservation(vector_env))' in refusal(lambda: build_env(vector))
    env = build_env(lambda: TimeLimit(gymnasium.make('CartPole-v1'), max_episode_steps=7))
    assert env.reset()[0].shape == (4,)


def test_learn_sends_to_build_env():
    agent = algorithms.PPO(Walk.observation_space, Walk.action_space, net_list=[{'hidden': [4]}] * 2)
    for given, called in ((TimeLimit, 'the class TimeLimit'), (pettingzoo_env(), 'a raw_env')):
        assert refusal(lambda given=given: agent.learn(given, train_steps=10, run_dir=False)) == (
            f'learn needs a Gymnasium environment, not {called}: agent.learn(env, train_steps=…) with env from '
            'build_env.'
        )


# ---- NumPy 2 --------------------------------------------------------------------------------------------------------


def overflow() -> Any:
    return np.uint8(3) * 1024  # 0 in NumPy 1; "Python integer 1024 out of bounds for uint8" in NumPy 2


class Overflows(Walk):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        if where == 'made':
            overflow()

    def reset(self, **kwargs: Any) -> Any:
        if self.where == 'reset':
            overflow()
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        if self.where == 'stepped':
            overflow()
        return super().step(action)


@pytest.mark.parametrize('as_name', [True, False])
@pytest.mark.parametrize('where', ['made', 'reset', 'stepped'])
def test_a_number_that_numpy_2_refuses_is_said_to_be_the_environments_fault(where: str, as_name: bool):
    name = f'Overflows-{where}-v0'
    if as_name and name not in gymnasium.registry:
        gymnasium.register(name, Overflows, kwargs={'where': where}, disable_env_checker=True)

    def play() -> None:
        env = build_env(name) if as_name else build_env(Overflows, where=where)
        collector = Collector(env, ActionAdaptor(Discrete(2)))
        collector.reset(0)
        collector.step(np.zeros(1, np.int32))

    told = refusal(play)
    called = 'step 0: the environment' if where == 'stepped' else name if as_name else 'Overflows'
    assert f'cannot be {where}, by a fault of its own: {__file__}, line ' in told and called in told
    assert told.endswith('raised OverflowError (Python integer 1024 out of bounds for uint8).')


# ---- the environment's own arguments --------------------------------------------------------------------------------


def test_an_environment_is_checked_with_its_own_arguments():
    class Endless(Walk):
        def __init__(self, length: int) -> None:
            super().__init__(length=length)

    assert 'made without' in check_env(Endless)[0]
    assert check_env(Endless, length=4) == []
    assert check_env(Endless, length=4, frame_stack=3) == []
    assert check_env('CartPole-v1', max_episode_steps=20, hide_velocity=True, steps=50) == []
    assert 'does not take the argument' in refusal(lambda: check_env('CartPole-v1', lenght=4))
    assert "'n_envs'" in refusal(lambda: check_env('CartPole-v1', n_envs=4))
    assert 'an integer of at least 1, not 0' in refusal(lambda: check_env('CartPole-v1', max_episode_steps=0))
    assert 'cannot be given to an environment object' in refusal(lambda: check_env(Walk(), length=3))


def test_a_time_limit_is_seen_by_the_check(capsys: pytest.CaptureFixture):
    check_env(Walk, length=10**9)
    assert 'there is no time limit' in capsys.readouterr().out
    check_env(Walk, length=10**9, max_episode_steps=2000)
    assert 'time limit' not in capsys.readouterr().out


class Blind(gymnasium.Env):
    observation_space, action_space = Discrete(2), Discrete(2)


class Sized(Blind):
    def __init__(self, size: int = 3) -> None:
        self.size = size


@pytest.mark.parametrize('environment', [Blind, Sized])
def test_an_environment_that_cannot_be_drawn_is_named(environment: type[gymnasium.Env]):
    told = f'^{environment.__name__!r} cannot be drawn: its __init__ has to take render_mode'
    with pytest.raises(TypeError, match=told):
        build_env(environment, render_mode='rgb_array')
