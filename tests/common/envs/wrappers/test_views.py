"""Hidden velocities and stacked vectors, by what the environment itself says."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from zoo import build_env, call_default_params
from zoo.common.adaptors.observation import features
from zoo.common.spaces import FrameStack, from_json, to_json

KEPT = {'CartPole-v1': [0, 2], 'Pendulum-v1': [0, 1], 'LunarLander-v3': [0, 1, 4, 6, 7]}
GOAL_KEYS = ('observation', 'achieved_goal', 'desired_goal')
KEPT['LunarLanderContinuous-v3'] = KEPT['LunarLander-v3']


@pytest.mark.parametrize('env_id', KEPT)
def test_what_is_seen_without_velocities(env_id: str):
    if 'Lunar' in env_id:
        pytest.importorskip('Box2D')
    hidden, whole = build_env(env_id, hide_velocity=True, seed=3), build_env(env_id, seed=3)
    assert hidden.observation_space.shape == (len(KEPT[env_id]),)
    np.testing.assert_array_equal(hidden.observation_space.high, whole.observation_space.high[KEPT[env_id]])
    whole.action_space.seed(0)
    pairs = [(hidden.reset(seed=1)[0], whole.reset(seed=1)[0])]
    for _ in range(5):
        action = whole.action_space.sample()
        pairs.append((hidden.step(action)[0], whole.step(action)[0]))
    for seen, full in pairs:
        np.testing.assert_array_equal(seen, full[KEPT[env_id]])
        assert hidden.observation_space.contains(seen)


class Parts(gymnasium.Env):
    """A vector and what is not to be stacked; the vector counts the steps."""

    observation_space = Dict(
        see=Box(np.array([0.0, -9.0], np.float32), np.array([99.0, 9.0], np.float32)),
        gear=Discrete(3),
        action_mask=Box(0, 1, (2,), np.int8),
    )
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self.seen(), {}

    def seen(self) -> dict[str, Any]:
        return {'see': np.array([self.t, 5], np.float32), 'gear': self.t % 3, 'action_mask': np.ones(2, np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        return self.seen(), 1.0, self.t == 4, False, {}


@pytest.mark.parametrize('vectorized', [None, 'sync'])
def test_the_last_vectors_side_by_side(vectorized: str | None):
    """The first one stands for those before it; the last observation of an episode does not reach the next one."""
    env: Any = build_env(Parts, frame_stack=3, nenv=1 if vectorized is None else 2, vectorized=vectorized or False)
    space = env.observation_space if vectorized is None else env.single_observation_space
    assert space['see'].shape == (6,) and space['see'].low.tolist() == [0, -9] * 3
    assert space['action_mask'].shape == (2,) and space['gear'] == Discrete(3)
    expected = [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]
    for _ in range(2):
        obs, found = env.reset()[0], []
        for t in range(4):
            found.append(obs['see'] if vectorized is None else obs['see'][1])
            obs, *_, info = env.step(0 if vectorized is None else [0, 0])
            if t == 3 and vectorized is not None:  # reset already
                np.testing.assert_array_equal(obs['see'][1][::2], expected[0])
                obs = info['final_obs'][1]
        np.testing.assert_array_equal(np.array(found)[:, ::2], expected)
        np.testing.assert_array_equal(np.array(found)[:, 1::2], 5)
        np.testing.assert_array_equal(obs['see'][::2], [2, 3, 4])


class Cameras(Parts):
    """Images of every layout and what is not one, each filled with the number of the step."""

    observation_space = Dict(
        last=Box(0, 255, (10, 12, 3), np.uint8),
        first=Box(0, 255, (3, 12, 10), np.uint8),
        grey=Box(0, 255, (8, 9), np.uint8),
        deep=Box(0, np.tile(np.array([255, 10], np.float32), (8, 8, 1)), dtype=np.float32),
        grid=Box(0, 99, (3, 3), np.float32),
        number=Box(0, 99, (), np.float32),
    )

    def seen(self) -> dict[str, Any]:
        filled = {key: np.full(part.shape, self.t, part.dtype) for key, part in self.observation_space.items()}
        filled['first'][:] += np.array([10, 20, 30], np.uint8)[:, None, None]
        return filled


def test_images_of_every_layout_behind_each_other():
    env = build_env(Cameras, frame_stack=3)
    env.reset()
    obs = env.step(0)[0]
    assert env.observation_space.contains(obs)
    assert obs['last'][4, 5].tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert obs['first'][4, 5].tolist() == [10, 20, 30, 10, 20, 30, 11, 21, 31]
    assert obs['grey'][4, 5].tolist() == [0, 0, 1]
    assert obs['grid'].tolist() == [0.0] * 18 + [1.0] * 9
    assert obs['number'].tolist() == [0.0, 0.0, 1.0]
    # As they are seen: height, width and channels, none of which is guessed again from 10 x 12 x 9.
    shapes = {item.path: (item.shape, item.channels_first) for item in features(env.observation_space)}
    assert shapes == {
        'last': ((10, 12, 9), False),
        'first': ((12, 10, 9), False),
        'grey': ((8, 9, 3), False),
        'deep': ((8, 8, 6), False),
        'grid': ((27,), False),
        'number': ((3,), False),
    }


def test_a_stack_of_frames_has_the_bounds_of_each_channel():
    space = build_env(Cameras, frame_stack=2).observation_space
    assert isinstance(space['deep'], FrameStack)
    (deep,) = (item for item in features(space) if item.path == 'deep')
    assert deep.scale == ((0.0,) * 4, (255.0, 10.0) * 2)
    again = from_json(json.loads(json.dumps(to_json(space))))
    assert again == space
    assert features(again) == features(space)


def test_goals_are_not_stacked():
    class Reach(gymnasium.Env):
        observation_space = Dict({name: Box(0, 255, (16, 16, 1), np.uint8) for name in GOAL_KEYS})
        action_space = Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
            return self.observation_space.sample(), 0.0, False, False, {}

        def compute_reward(self, achieved: Any, desired: Any, info: Any) -> float:
            return 0.0

    env = build_env(Reach, frame_stack=3)
    assert {key: part.shape[-1] for key, part in env.observation_space.items()} == dict(
        zip(GOAL_KEYS, (3, 1, 1), strict=True)
    )
    assert call_default_params(env, 'gymnasium', 'DQN')[1]['her'] == {'strategy': 'future', 'k': 4}


def test_both_together_and_built_again():
    from zoo.common.envs.about import about

    env = build_env('CartPole-v1', 'classic_control', hide_velocity=True, frame_stack=2, nenv=2, vectorized=True)
    assert env.single_observation_space.shape == (4,)
    again = about(env).rebuild
    assert again is not None and again(seed=0).single_observation_space == env.single_observation_space
    same = build_env('CartPole-v1', hide_velocity=False, frame_stack=1)
    assert same.observation_space == gymnasium.make('CartPole-v1').observation_space


class Takes(Parts):
    """Has an argument of that name."""

    def __init__(self, frame_stack: int = 1) -> None:
        self.taken = frame_stack


class StackedFloats(gymnasium.wrappers.FrameStackObservation):
    def __init__(self, env_id: str) -> None:
        super().__init__(gymnasium.make(env_id), 4)


def test_an_argument_of_the_environments_own_goes_before():
    env = build_env(Takes, frame_stack=7)
    assert env.unwrapped.taken == 7 and env.observation_space == Parts.observation_space


@pytest.mark.parametrize(
    ('env_id', 'kwargs', 'words'),
    [
        (
            'MountainCar-v0',
            {'hide_velocity': True},
            r'is for CartPole, Pendulum and LunarLander, but this is MountainCar',
        ),
        ('CartPole-v1', {'hide_velocity': True, 'pixels': True}, r'needs the observation of CartPoleEnv as it is'),
        (
            lambda: StackedFloats('CartPole-v1'),
            {'hide_velocity': True},
            r'needs the observation of CartPoleEnv as it is',
        ),
        ('CartPole-v1', {'hide_velocity': 1}, r'^hide_velocity is 1: give True or False\.$'),
        ('CartPole-v1', {'frame_stack': 0}, r'^frame_stack is 0: give the number of observations'),
        ('CartPole-v1', {'frame_stack': 2, 'nenv': 2, 'vectorized': 'envpool'}, r"frame_stack need vectorized='sync'"),
        ('FrozenLake-v1', {'frame_stack': 2}, r'^frame_stack=2 finds no Box to stack in Discrete'),
    ],
)
def test_refused(env_id: str, kwargs: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words):
        build_env(env_id, **kwargs)
