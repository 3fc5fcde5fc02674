"""Atari: the preprocessing against a game played by hand, lives, whole games' scores, stacks, EnvPool."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from zoo import algorithms, build_env, call_default_params
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.records import Transition
from zoo.common.replay.replay import Replay
from zoo.common.rollouts.collector import Collector
from zoo.common.spaces import FrameStack

ale_py = pytest.importorskip('ale_py')
cv2 = pytest.importorskip('cv2')

BREAKOUT = 'BreakoutNoFrameskip-v4'


class ByHand:
    """Breakout (5 lives, waits for FIRE) as the papers describe it, over the plain environment of ALE."""

    def __init__(self, seed: int) -> None:
        self.env = gymnasium.make(BREAKOUT, obs_type='grayscale', disable_env_checker=True)
        self.frames: list[np.ndarray] = []
        self.seed: int | None = seed
        self.score, self.steps = 0.0, 0

    def advance(self, action: int, times: int) -> tuple[float, bool, list[np.ndarray]]:
        total, seen = 0.0, []
        for _ in range(times):
            screen, reward, over, _, self.info = self.env.step(action)
            total += reward
            seen.append(screen)
            if over:
                return total, True, seen
        return total, False, seen

    def small(self, screens: list[np.ndarray]) -> np.ndarray:
        return cv2.resize(np.max(screens, axis=0), (84, 84), interpolation=cv2.INTER_AREA)

    def begin(self, new_game: bool) -> np.ndarray:
        if new_game:
            self.env.reset(seed=self.seed)
            self.seed, self.steps = None, 0
            self.advance(0, int(self.env.unwrapped.np_random.integers(1, 31)))
            self.score = 0.0
        else:
            self.score += self.advance(0, 1)[0]
        reward, _, seen = self.advance(1, 1)
        self.score += reward
        self.lives = self.info['lives']
        self.frames = [self.small(seen)] * 4
        return np.stack(self.frames, -1)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """Observation, clipped reward, terminated, game over."""
        reward, over, seen = self.advance(action, 4)
        self.score += reward
        self.steps += 1
        self.frames = [*self.frames[1:], self.small(seen[-2:] if len(seen) == 4 else seen[-1:])]
        lost = self.info['lives'] < self.lives
        self.lives = self.info['lives']
        return np.stack(self.frames, -1), float(np.sign(reward)), over or lost, over


@pytest.fixture(scope='module')
def actions() -> list[int]:
    return np.random.default_rng(0).integers(4, size=700).tolist()


@pytest.mark.full
def test_every_step_is_that_of_the_game_played_by_hand(actions: list[int]):
    env, by_hand = build_env(BREAKOUT, 'atari', seed=3), ByHand(3)
    obs, _ = env.reset(seed=3)
    np.testing.assert_array_equal(obs, by_hand.begin(True))
    lives_lost = games = 0
    for action in actions:
        obs, reward, terminated, truncated, info = env.step(action)
        wanted, wanted_reward, ended, over = by_hand.step(action)
        np.testing.assert_array_equal(obs[..., -1], wanted[..., -1])
        np.testing.assert_array_equal(obs, wanted)
        assert (reward, terminated, truncated) == (wanted_reward, ended, False)
        assert info.get('zoo/life_lost', False) == (ended and not over)
        assert info.get('episode') == ({'r': by_hand.score, 'l': by_hand.steps} if over else None)
        lives_lost += ended and not over
        games += over
        if ended:
            obs, _ = env.reset()
            np.testing.assert_array_equal(obs, by_hand.begin(over))
    assert lives_lost >= 8 and games >= 2


@pytest.mark.full
def test_collected_are_whole_games_and_their_unclipped_scores(actions: list[int]):
    """Seaquest-like rewards would be clipped; here the score of a game is the sum over its five lives."""
    env = build_env(BREAKOUT, 'atari', seed=3)
    collector, by_hand = Collector(env, ActionAdaptor(env.action_space)), ByHand(3)
    collector.reset(3)
    by_hand.begin(True)
    wanted, found = [], []
    for action in actions:
        collector.step(np.array([action]))
        found += [(episode.episode_return, episode.length) for episode in collector.finished]
        _, _, ended, over = by_hand.step(action)
        assert collector.terminated[0] == ended
        if ended:
            wanted += [(by_hand.score, by_hand.steps)] * over
            by_hand.begin(over)
    assert found == wanted
    assert len(found) >= 2


@pytest.mark.full(but='sync')
@pytest.mark.parametrize('vectorized', ['sync', 'async', 'envpool', pytest.param(True, marks=pytest.mark.matrix)])
def test_copies(vectorized: str | bool):
    if vectorized == 'envpool':
        pytest.importorskip('envpool')
    env = build_env(BREAKOUT, 'atari', vectorized, seed=0, nenv=2, frame_size=42)
    space = env.single_observation_space
    assert isinstance(space, FrameStack) and (space.shape, space.frames, space.dtype) == ((42, 42, 4), 4, np.uint8)
    adaptor = ActionAdaptor(env.single_action_space)
    collector = Collector(env, adaptor)
    replay = Replay(space, adaptor, 2000, 2)
    collector.reset(1)
    rng, games, lives, seen = np.random.default_rng(0), [], 0, {}
    for t in range(600):
        obs, action = collector.obs.copy(), adaptor.random(2, rng)
        collector.step(action)
        replay.add(
            Transition(obs, action, collector.reward, collector.next_obs, collector.terminated, collector.truncated)
        )
        np.testing.assert_array_equal(collector.next_obs[..., :3], obs[..., 1:])
        games += collector.finished
        for i in np.flatnonzero(collector.terminated):
            lives += 1
            assert (collector.obs[i] == collector.obs[i][..., :1]).all(), 'a frame of the old episode'
        for i in range(2):
            seen[obs[i].tobytes()] = collector.next_obs[i].tobytes() if t else None
    assert lives > len(games) >= 2
    assert all(episode.length > 30 for episode in games)
    batch = replay.sample((300,), rng)
    for obs in batch.obs:
        assert obs.tobytes() in seen, 'a stack that was never seen'
    env.close()


@pytest.mark.full
def test_sync_and_async_play_alike():
    both = [build_env('PongNoFrameskip-v4', 'atari', how, seed=0, nenv=2, frame_size=42) for how in ('sync', 'async')]
    firsts = [env.reset(seed=4)[0] for env in both]
    np.testing.assert_array_equal(*firsts)
    rng = np.random.default_rng(0)
    for _ in range(50):
        actions = rng.integers(6, size=2)
        (a, *rest_a), (b, *rest_b) = (env.step(actions) for env in both)
        np.testing.assert_array_equal(a, b)
        for x, y in zip(rest_a[:3], rest_b[:3], strict=True):
            np.testing.assert_array_equal(x, y)
    for env in both:
        env.close()


@pytest.mark.full(but='Pong-v4-0.0')
@pytest.mark.parametrize('name, sticky', [('ALE/Pong-v5', 0.25), ('PongNoFrameskip-v4', 0.0), ('Pong-v4', 0.0)])
def test_names(name: str, sticky: float):
    env = build_env(name, 'atari')
    assert env.observation_space.shape == (84, 84, 4)
    assert env.unwrapped.ale.getFloat('repeat_action_probability') == pytest.approx(sticky)
    assert env.spec.id == name


def test_options():
    env = build_env(BREAKOUT, 'atari', frame_size=(60, 50), frame_stack=2, grayscale=False, life_loss=False)
    assert env.observation_space.shape == (60, 50, 6)
    assert env.observation_space.frame_shape == (60, 50, 3)
    env.reset(seed=0)
    ends, lives = [], []
    for _ in range(400):
        _, _, terminated, _, info = env.step(env.action_space.sample())
        if terminated:
            ends.append(info)
            env.reset()
        lives.append(info['lives'])
    assert set(lives) == {0, 1, 2, 3, 4, 5}
    assert ends and all('episode' in info and 'zoo/life_lost' not in info for info in ends)


def test_envpool_begins_with_a_no_op():
    pytest.importorskip('envpool')
    with pytest.raises(ValueError, match="give noop_max=1, or vectorized='sync'"):
        build_env('PongNoFrameskip-v4', 'atari', nenv=2, vectorized='envpool', noop_max=0)


@pytest.mark.full
@pytest.mark.parametrize('vectorized', ['sync', 'envpool', True])
def test_time_limit_truncates_the_game(vectorized: str | bool):
    if vectorized == 'envpool':
        pytest.importorskip('envpool')
    env = build_env('PongNoFrameskip-v4', 'atari', vectorized, nenv=2, frame_size=42, max_episode_steps=30)
    collector = Collector(env, ActionAdaptor(env.single_action_space))
    collector.reset(0)
    found = []
    for t in range(1, 91):
        collector.step(np.zeros(2, np.int32))
        assert not collector.terminated.any()
        assert (collector.truncated == (t % 30 == 0)).all()
        found += collector.finished
    assert [(episode.length, episode.copy) for episode in found] == [(30, 0), (30, 1)] * 3


@pytest.mark.full
@pytest.mark.parametrize('vectorized, nenv', [(False, 1), ('sync', 2), (True, 2)])
def test_shaped_rewards_leave_the_scores_of_whole_games(vectorized: str | bool, nenv: int):
    env = build_env(BREAKOUT, 'atari', vectorized, nenv=nenv, frame_size=42, reward_shaping=lambda reward: reward - 7)
    collector = Collector(env, ActionAdaptor(getattr(env, 'single_action_space', env.action_space)))
    collector.reset(0)
    rng, found, ends = np.random.default_rng(0), [], 0
    for _ in range(500):
        collector.step(rng.integers(4, size=nenv).astype(np.int32))
        assert set(collector.reward) <= {-7.0, -6.0}
        found += collector.finished
        ends += int(collector.terminated.sum())
    assert ends > len(found) >= 1
    assert all(episode.episode_return >= 0 and episode.length > 100 for episode in found)


@pytest.mark.full
@pytest.mark.parametrize(
    'alg',
    [
        'DQN',
        'PPO',
        *(pytest.param(x, marks=pytest.mark.matrix) for x in ('A2C', 'ARS', 'C51', 'IMPALA', 'Rainbow', 'SAC')),
    ],
)
def test_the_four_lines(alg: str, tmp_path: Any):
    whole = getattr(algorithms, alg).loop.experience == 'evaluations'  # whole games, here short ones
    env = build_env(BREAKOUT, 'atari', nenv=2, frame_size=42, **{'max_episode_steps': 32} if whole else {})
    alg_params, learn_params = call_default_params(env, 'atari', alg, seed=0)
    alg_params |= {'num_directions': 2} if whole else {}
    agent = getattr(algorithms, alg)(**alg_params)
    small = {'horizon': 32, 'epochs': 1, 'rollouts': 2, 'explore_steps': 64, 'buffer_size': 1000}
    small = {name: x for name, x in small.items() if name in agent.learn_params()}
    small |= {'train_steps': 128, 'roles': None}
    result = agent.learn(env, 'train', run_dir=tmp_path, **learn_params | small)
    assert result.steps == 128
    assert np.isfinite(list(result.losses.values())).all()
    tested = agent.learn(build_env(BREAKOUT, 'atari', frame_size=42, max_episode_steps=40), 'test', test_episodes=2)
    assert len(tested.returns) == 2 and max(tested.lengths) <= 40
    np.testing.assert_array_equal(
        getattr(algorithms, alg).load(tmp_path).predict(env.reset(seed=0)[0]), agent.predict(env.reset(seed=0)[0])
    )


@pytest.mark.parametrize(
    'arguments, message',
    [
        (('PongNoFramskip-v4', 'atari'), "did you mean 'PongNoFrameskip-v4'"),
        (('CartPole-v1', 'atari'), 'is an environment of type .classic_control.'),
        (('PongNoFrameskip-v4', 'classic_control'), 'is an environment of type .atari.'),
    ],
)
def test_wrong_names(arguments: tuple[str, str], message: str):
    with pytest.raises(ValueError, match=message):
        build_env(*arguments)


@pytest.mark.parametrize('options', [{'frame_size': 4}, {'frame_skip': 0}, {'frame_stack': 0}])
def test_wrong_options(options: dict[str, int]):
    with pytest.raises(ValueError, match=next(iter(options))):
        build_env('PongNoFrameskip-v4', 'atari', **options)
