"""Hindsight: which goals are taken, what they are rewarded with, and where the environment's rewards are found."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from goals import GOAL, LIMIT, Line, frames
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorRewardWrapper

from zoo import build_env
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.envs.goals import Goals, is_goal_environment
from zoo.common.records import Transition
from zoo.common.replay.hindsight import Hindsight, Strategy, reached_at, summed
from zoo.common.replay.replay import Replay
from zoo.common.rollouts.collector import Collector
from zoo.common.sampling import Priorities, Sampling

GAMMA = 0.9
OWN = -99


# Which goals


@pytest.mark.parametrize(
    ('strategy', 'expected'), [('future', [3, 4, 5, 6]), ('final', [6]), ('episode', [0, 1, 2, 3, 4, 5, 6])]
)
def test_a_strategy_draws_uniformly_from_its_steps(strategy: str, expected: list[int]):
    n = 20_000
    drawn = reached_at(strategy, np.full(n, 3), np.full(n, 7), np.random.default_rng(0))
    steps, counts = np.unique(drawn, return_counts=True)
    assert steps.tolist() == expected
    mean = n / len(expected)
    assert (np.abs(counts - mean) < 5 * np.sqrt(mean)).all()


def test_each_has_the_span_of_its_own_episode():
    rng = np.random.default_rng(0)
    at, length = np.array([0, 4, 9]), np.array([1, 5, 30])
    for _ in range(50):
        drawn = reached_at('future', at, length, rng)
        assert (at <= drawn).all() and (drawn < length).all() and drawn[:2].tolist() == [0, 4]
        assert (reached_at('episode', at, length, rng) < length).all()


def test_k_in_k_and_one_are_told_anew():
    for k in (1, 4):
        chosen = Hindsight(Goals(Line()), k=k).chosen(100_000, np.random.default_rng(1))
        assert abs(len(chosen) / 100_000 - k / (k + 1)) < 0.01
        assert (np.diff(chosen) > 0).all()


def test_steps_in_a_row_end_where_the_goal_is_reached():
    """By hand, γ = 0.5: r = −1 − 0.5 · 2 over two of three steps; one step alone; all three."""
    reward = np.array([[-1.0, -2.0, -4.0], [-1.0, 9.0, 9.0], [-1.0, -2.0, -4.0]], np.float32)
    terminated = np.array([[False, True, False], [False, True, False], [False, False, False]])
    total, steps, over = summed(reward, terminated, np.array([3, 1, 3]), 0.5)
    np.testing.assert_array_equal(total, np.array([-2.0, -1.0, -3.0], np.float32))
    assert steps.tolist() == [2, 1, 3]
    assert over.tolist() == [True, False, False]
    assert total.dtype == np.float32


# What comes out of a replay buffer


class Played:
    """A replay buffer filled by walks along the line, with every place that was seen, by episode."""

    def __init__(
        self, capacity: int, copies: int = 1, images: bool = False, ends: bool = True, **sampling: Any
    ) -> None:
        factories = [partial(Line, i, images, ends) for i in range(copies)]
        env: Any = SyncVectorEnv(factories, autoreset_mode=AutoresetMode.SAME_STEP) if copies > 1 else factories[0]()
        self.env, self.images = env, images
        space = env.single_observation_space if copies > 1 else env.observation_space
        self.adaptor = ActionAdaptor(Discrete(3))
        self.sampling = Sampling(GAMMA, **sampling)
        self.replay = Replay(space, self.adaptor, capacity, copies, self.sampling)
        self.replay.keep_episodes()
        self.collector = Collector(env, self.adaptor)
        self.collector.reset(3)
        self.rng = np.random.default_rng(1)
        self.places: dict[int, list[float]] = {}
        self.pursued: dict[int, float] = {}

    def play(self, steps: int) -> Played:
        c = self.collector
        for _ in range(steps):
            obs, action = c.obs, self.adaptor.random(c.num_envs, self.rng)
            c.step(action)
            self.replay.add(Transition(obs, action, c.reward, c.next_obs, c.terminated, c.truncated), c.valid)
            for i in range(c.num_envs):
                episode, t, _ = obs['achieved_goal'][i]
                places = self.places.setdefault(int(episode), [0.0])
                assert len(places) == t + 1
                places.append(float(c.next_obs['achieved_goal'][i, 2]))
                self.pursued[int(episode)] = float(obs['desired_goal'][i, 2])
        return self

    def restart(self) -> None:
        """New episodes in every copy, as at a checkpoint."""
        self.replay.cut()
        self.collector.reset(4)

    def check(self, strategy: str, ends: bool = True, n: int = 400) -> np.ndarray:
        """Check ``n`` transitions drawn against the walks; how many steps after each its new goal was, or `OWN`.

        The rewards, ends, discounts and next observations are computed here anew, step by step, from the places.
        """
        hindsight = Hindsight(Goals(self.env), strategy)
        batch = self.replay.sample((2, n // 2), np.random.default_rng(5), 0.0, hindsight)
        found = []
        for k in np.ndindex(2, n // 2):
            episode, t, place = batch.obs['achieved_goal'][k]
            walk, t = self.places[int(episode)], int(t)
            last = len(walk) - 1
            assert place == walk[t]
            of, when, wanted = batch.obs['desired_goal'][k]
            np.testing.assert_array_equal(batch.next_obs['desired_goal'][k], batch.obs['desired_goal'][k])
            if of == 0:
                assert wanted == self.pursued[int(episode)]
                found.append(OWN)
            else:
                assert of == episode, 'a goal of another episode'
                assert wanted == walk[int(when)]
                low = {'future': t + 1, 'final': last, 'episode': 1}[strategy]
                assert low <= when <= last
                found.append(int(when) - t - 1)
            total, taken, over = 0.0, 0, False
            while taken < self.sampling.n_step and t + taken < last and not over:
                there = walk[t + taken + 1] == wanted
                total += GAMMA**taken * (0.0 if there else -1.0)
                taken += 1
                over = there and ends
            assert batch.reward[k] == np.float32(total)
            assert batch.terminated[k] == over
            assert batch.discount[k] == pytest.approx(0.0 if over else GAMMA**taken)
            assert batch.truncated[k] == (
                t + taken == LIMIT and not (ends and walk[LIMIT] == self.pursued[int(episode)])
            )
            np.testing.assert_array_equal(
                batch.next_obs['achieved_goal'][k], [episode, t + taken, walk[t + taken]], err_msg=f'{t} {taken}'
            )
            for flat, now in ((batch.obs, t), (batch.next_obs, t + taken)):
                seen = frames(now) if self.images else [episode, now]
                np.testing.assert_array_equal(flat['observation'][k], seen)
        return np.array(found)


@pytest.mark.full(but='future-1-1')
@pytest.mark.parametrize('n_step', [1, 3])
@pytest.mark.parametrize('copies', [1, 3])
@pytest.mark.parametrize('strategy', ['future', 'final', 'episode'])
def test_what_is_drawn_is_told_of_its_own_episode(strategy: str, copies: int, n_step: int):
    """Over ends, cuts, episodes under way and several turns of the ring."""
    played = Played(30 * copies, copies, n_step=n_step)
    for steps in (1, 2, 3, 11, 24, 5, 30, 61):
        found = played.play(steps).check(strategy)
        assert 0.7 < (found != OWN).mean() < 0.9
    played.restart()
    for _ in range(4):
        played.play(9).check(strategy)


@pytest.mark.full
def test_future_goals_lie_ahead_uniformly():
    played = Played(1000, ends=False).play(7 * 100)
    found = played.check('future', ends=False, n=20_000)
    ahead = np.bincount(found[found >= 0], minlength=7)
    # Of step t the goals of the 7 − t steps from it on, each as often: P(d) = Σ_(t ≤ 6 − d) 1 / (7 (7 − t)).
    expected = np.array([sum(1 / (7 * (7 - t)) for t in range(7 - d)) for d in range(7)]) * ahead.sum()
    assert (np.abs(ahead - expected) < 5 * np.sqrt(expected)).all()


@pytest.mark.parametrize('ends', [True, False])
def test_goals_reached_on_the_way_end_several_steps_in_a_row(ends: bool):
    played = Played(200, 2, ends=ends, n_step=4).play(100)
    played.check('future', ends, 2000)


def test_stacks_of_frames_where_steps_in_a_row_end_early():
    Played(60, 2, images=True, n_step=4).play(70).check('future')


class Pictures(gymnasium.Env):
    """Goals that are images, and episodes of four steps; a picture is as bright as its number."""

    image = Box(0, 255, (8, 8, 1), np.uint8)
    observation_space = Dict(observation=image, achieved_goal=image, desired_goal=image)

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return (achieved_goal == desired_goal).all((-3, -2, -1)) - 1.0

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return (achieved_goal == desired_goal).all((-3, -2, -1))


@pytest.mark.parametrize('compress', [False, True])
def test_goals_that_are_images(compress: bool):
    if compress:
        pytest.importorskip('lz4', reason='lz4 is not installed')
    space, adaptor = Pictures.observation_space, ActionAdaptor(Discrete(2))
    replay = Replay(space, adaptor, 100, 1, Sampling(GAMMA, 3), compress=compress)
    for i in range(60):
        now, after = (np.full((1, 8, 8, 1), x, np.uint8) for x in (i + i // 4, i + i // 4 + 1))
        obs, then = (dict.fromkeys(('observation', 'achieved_goal'), x) for x in (now, after))
        goal = {'desired_goal': np.full((1, 8, 8, 1), 255, np.uint8)}
        no, last = np.zeros(1, bool), np.array([i % 4 == 3])
        replay.add(Transition(obs | goal, np.zeros(1, np.int32), -np.ones(1, np.float32), then | goal, no, last))
    replay.keep_episodes()
    batch = replay.sample((300,), np.random.default_rng(0), 0.0, Hindsight(Goals(Pictures())))
    now, then, wanted = (
        x[:, 0, 0, 0].astype(int)
        for x in (batch.obs['observation'], batch.next_obs['observation'], batch.obs['desired_goal'])
    )
    told = wanted != 255
    steps = then - now
    assert (wanted[told] > now[told]).all() and (wanted[told] // 5 == now[told] // 5).all()
    np.testing.assert_array_equal(batch.terminated, wanted == then)
    assert (then[told] <= wanted[told]).all(), 'beyond the goal'
    expected = -(1 - GAMMA ** (steps - batch.terminated)) / (1 - GAMMA)
    np.testing.assert_allclose(batch.reward, expected, rtol=1e-6, atol=1e-7)


def test_told_by_priority():
    played = Played(60, 2, n_step=2, priorities=Priorities()).play(50)
    played.check('future')
    played.replay.prioritize(np.random.default_rng(0).random((2, 200)))
    played.play(5).check('final')
    batch = played.replay.sample((400,), np.random.default_rng(0), 0.5, Hindsight(Goals(played.env)))
    assert batch.weight.max() == 1 and batch.weight.min() < 1


def test_without_hindsight_nothing_changes():
    played = Played(60).play(50)
    batch = played.replay.sample((200,), np.random.default_rng(0))
    assert (batch.obs['desired_goal'][:, 0] == 0).all()


def test_a_restored_buffer_tells_the_same():
    played = Played(60, 2, n_step=3).play(75)
    again = Played(60, 2, n_step=3)
    again.replay.restore({name: x.copy() for name, x in played.replay.state().items()})
    late = Played(60, 2, n_step=3)
    late.replay.episodes = None
    late.replay.restore({name: x.copy() for name, x in played.replay.state().items()})
    late.replay.keep_episodes()
    for other in (again, late):
        one, two = (
            x.replay.sample((300,), np.random.default_rng(2), 0.0, Hindsight(Goals(x.env))) for x in (played, other)
        )
        for a, b in zip(
            (one.reward, one.discount, *one.obs.values()), (two.reward, two.discount, *two.obs.values()), strict=True
        ):
            np.testing.assert_array_equal(a, b)


# Where the rewards come from


A = np.array([[1.0, 1.0, 0.0], [1.0, 2.0, 1.0], [1.0, 3.0, 2.0]])
D = np.array([[0.0, 0.0, 2.0]] * 3)


def rewards_of(env: Any) -> list[float]:
    with Goals(env) as goals:
        found = goals.reward(A, D)
        np.testing.assert_array_equal(goals.terminated(A, D, np.zeros(3, bool)), [False, False, True])
    assert found.dtype == np.float32
    return found.tolist()


class Halved(VectorRewardWrapper):
    def rewards(self, rewards: Any) -> Any:
        return rewards / 2


class Distant(gymnasium.Wrapper):
    """A wrapper that has its own rewards."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -np.abs(achieved_goal - desired_goal)[..., 2]


def tenth(reward: float) -> float:
    return reward / 10


def shaped() -> Any:
    return gymnasium.wrappers.TransformReward(gymnasium.wrappers.TimeLimit(Line(), 5), tenth)


@pytest.mark.parametrize(
    ('env', 'expected'),
    [
        (Line, [-1, -1, 0]),
        (lambda: gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.wrappers.TimeLimit(Line(), 5)), [-1, -1, 0]),
        (lambda: build_env(Line, reward_shaping=lambda r: r + 3, max_episode_steps=4), [2, 2, 3]),
        (lambda: build_env(shaped, reward_shaping=lambda r: r + 3), [2.9, 2.9, 3]),
        (lambda: build_env(Line, nenv=2), [-1, -1, 0]),
        (lambda: build_env(Line, nenv=2, reward_shaping=lambda r: r + 3), [2, 2, 3]),
        (lambda: Halved(build_env(Line, nenv=2, reward_shaping=lambda r: r + 3)), [1, 1, 1.5]),
        (lambda: build_env(SyncVectorEnv([Line] * 2, autoreset_mode=AutoresetMode.SAME_STEP)), [-1, -1, 0]),
        (
            lambda: build_env(
                SyncVectorEnv([Line] * 2, autoreset_mode=AutoresetMode.SAME_STEP), reward_shaping=lambda r: r + 3
            ),
            [2, 2, 3],
        ),
        (lambda: Distant(Line()), [-2, -1, 0]),
        (lambda: gymnasium.wrappers.TransformReward(Distant(shaped()), tenth), [-0.2, -0.1, 0]),
    ],
)
def test_rewards_are_found_through_what_is_around_them(env: Any, expected: list[float]):
    assert rewards_of(env()) == pytest.approx(expected)
    assert is_goal_environment(env())


def test_rewards_of_copies_in_other_processes():
    env = build_env(Line, nenv=2, vectorized='async', reward_shaping=tenth)
    try:
        assert rewards_of(env) == pytest.approx([-0.1, -0.1, 0])
        assert is_goal_environment(env)
    finally:
        env.close()


class Many(VectorEnv):
    """A vector environment that computes rewards itself."""

    num_envs = 2
    single_observation_space = Line().observation_space
    metadata = {'autoreset_mode': AutoresetMode.SAME_STEP}

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> np.ndarray:
        return -np.abs(achieved_goal - desired_goal)[..., 2]


def test_rewards_of_a_vector_environment_of_its_own():
    assert Goals(Many()).reward(A, D).tolist() == [-2, -1, 0]


class Scalar(Line):
    """Takes two goals only: of more it gives a wrong answer, or one of a wrong shape."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -float(np.linalg.norm((achieved_goal - desired_goal)[2]))


class Rowwise(Line):
    """Of as many goals as each has entries, it gives as many wrong answers."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        x = achieved_goal - desired_goal
        return -np.linalg.norm(x, axis=0) if x.ndim > 1 else -np.linalg.norm(x)


def test_what_is_not_vectorised_is_called_for_each():
    assert Goals(Scalar()).reward(A, D).tolist() == [-2, -1, 0]
    np.testing.assert_allclose(Goals(Rowwise()).reward(A, D), -np.linalg.norm(A - D, axis=1), rtol=1e-6)


def test_what_is_vectorised_is_called_once():
    calls = []

    class Counted(Line):
        def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
            calls.append(achieved_goal.ndim)
            return super().compute_reward(achieved_goal, desired_goal, info)

    goals = Goals(Counted())
    goals.reward(A, D)
    calls.clear()
    goals.reward(np.tile(A, (50, 1)), np.tile(D, (50, 1)))
    assert calls == [2]


def test_without_compute_terminated_the_stored_ends_stay():
    class Mute(Line):
        compute_terminated = None  # type: ignore[assignment]

    class Abstract(Line):
        def compute_terminated(self, *args: Any) -> bool:
            raise NotImplementedError

    stored = np.array([False, True, False])
    for cls in (Mute, Abstract):
        goals = Goals(cls())
        for _ in range(2):
            assert goals.terminated(A, D, stored) is stored


# Refused


@pytest.mark.parametrize(
    ('space', 'why'),
    [
        (GOAL, 'its observations are Box'),
        (Dict(observation=GOAL, achieved_goal=GOAL), 'not a Dict of observation, achieved_goal and desired_goal'),
        (Dict(observation=GOAL, achieved_goal=GOAL, desired_goal=GOAL, more=GOAL), 'its observations are Dict'),
        (Dict(observation=GOAL, achieved_goal=GOAL, desired_goal=Box(0, 1, (2,))), 'but its desired_goal Box'),
        (Dict(observation=GOAL, achieved_goal=Discrete(3), desired_goal=Discrete(4)), 'but its desired_goal Discrete'),
        (Dict(observation=GOAL, achieved_goal=Dict(a=GOAL), desired_goal=Dict(a=GOAL)), 'not one array'),
    ],
)
def test_other_observations_are_refused(space: Any, why: str):
    env = Line()
    env.observation_space = space
    with pytest.raises(ValueError, match=f'her needs a goal environment, but Line is none .*{why}.*her=None'):
        Goals(env)
    assert not is_goal_environment(env)


class Unrewarding(gymnasium.Env):
    observation_space, action_space = Line().observation_space, Line.action_space


@pytest.mark.parametrize('wrap', [lambda env: env, lambda env: SyncVectorEnv([lambda: env, Unrewarding])])
def test_an_environment_without_rewards_to_compute_is_refused(wrap: Any):
    with pytest.raises(ValueError, match='Unrewarding is none .it has no method compute_reward'):
        Goals(wrap(Unrewarding()))
    assert not is_goal_environment(wrap(Unrewarding()))


def test_rewards_that_are_not_those_of_the_steps_are_refused():
    """Of a wrapper that does more than a function of the reward, such as one that normalises."""
    played = Played(60).play(30)
    played.replay.reward *= 0.3
    with pytest.raises(
        ValueError, match=r'in Line had another reward than .* \(one had -0.3, where it gives -1\): give her=None'
    ):
        played.check('future')


def test_ends_that_are_not_those_of_the_steps_are_refused():
    played = Played(60).play(30)
    played.replay.terminated[:] = False
    with pytest.raises(ValueError, match='terminated=False where its compute_terminated gives True: give her=None'):
        played.check('future')


class Near(Line):
    """A goal is reached within 0.05 of it."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -(np.abs(np.asarray(achieved_goal) - desired_goal)[..., 2] > 0.05).astype(np.float32)


def distances(*first: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Goals at these distances and of many steps that are far, and no ends."""
    achieved = np.zeros((len(first) + 200, 3), np.float32)
    achieved[:, 2] = [*first, *np.linspace(1, 2, 200)]
    return achieved, np.zeros_like(achieved), np.zeros(len(achieved), bool)


def test_those_that_rounding_puts_on_the_other_side_are_not():
    achieved, desired, ends = distances(0.05, 0.0500001, 0.0499999, 0.01)
    goals = Goals(Near(ends=False))
    for stored in ([-1, -1, -1, 0], [0, 0, 0, 0]):
        goals.check(achieved, desired, np.float32(stored + [-1] * 200), ends)


@pytest.mark.parametrize('stored', [10.0, -1.0])
def test_of_rare_rewards_a_few_are_enough_to_be_refused(stored: float):
    """A bonus of a wrapper, or a success that needs what is in ``info``."""
    achieved, desired, ends = distances(0.01, 0.02)
    with pytest.raises(ValueError, match='but 2 of 202 steps in Near had another reward than its compute_reward gives'):
        Goals(Near(ends=False)).check(achieved, desired, np.float32([stored] * 2 + [-1] * 200), ends)


def test_steps_are_compared_again_when_there_are_more_of_them():
    played, hindsight = Played(60).play(20), Hindsight(Goals(Line()))
    rng = np.random.default_rng(0)
    played.replay.sample((5,), rng, 0.0, hindsight)
    played.replay.reward -= 1.0
    played.replay.sample((5,), rng, 0.0, hindsight)
    with pytest.raises(ValueError, match='had another reward than its compute_reward gives'):
        played.play(50).replay.sample((5,), rng, 0.0, hindsight)
    assert hindsight.due < np.inf
    hindsight.checked_at(10_000)
    assert hindsight.due == np.inf


def test_rewards_that_need_info_are_refused():
    class Informed(Line):
        def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
            return info['force']

    with pytest.raises(ValueError, match="cannot be called for her .KeyError: 'force'.: .* empty info"):
        Goals(Informed()).reward(A, D)


def test_the_defaults():
    assert Strategy() == Strategy(strategy='future', k=4)
