"""EnvPool's own environments by name: seeds, copies, ends of episodes, lives, refusals."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import VectorEnv

import zoo
from zoo import build_env
from zoo.common.envs.answers import LIFE_LOST
from zoo.common.envs.names import list_envs, table_type

pytest.importorskip('envpool')

#: One task of each family that runs without libraries of the system -> the type whose defaults it gets.
FAMILIES = {
    'Pong-v5': 'atari',
    'LunarLander-v3': 'box2d',
    'CartPole-v1': 'classic_control',
    'highway-v0': 'gymnasium',
    'Game2048-v1': 'gymnasium',
    'MiniGrid-Empty-5x5-v0': 'gymnasium',
    'CheetahRun-v1': 'dm_control',
    'HalfCheetah-v4': 'mujoco',
    'MetaWorld/Reach-v3': 'mujoco',
    'myoFingerReachFixed-v0': 'mujoco',
    'FetchReach-v4': 'robotics',
    'FrozenLake-v1': 'gymnasium',
    'D1Basic-v1': 'atari',  # ViZDoom, whose images are like Atari's
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> None:
    """Doom writes its configuration into the working directory."""
    monkeypatch.chdir(tmp_path)


def play(env: Any, steps: int, seed: int = 3) -> list[Any]:
    """The first observation and what each step returns but its info, with actions that are drawn from a seed."""
    single = not isinstance(env, VectorEnv)
    env.action_space.seed(seed)
    seen: list[Any] = [env.reset()[0]]
    for _ in range(steps):
        *told, info = env.step(env.action_space.sample())
        seen.append(told)
        if single and (told[2] or told[3]):
            seen.append(env.reset()[0])
    return seen


def same(x: Any, y: Any) -> bool:
    if isinstance(x, dict):
        return x.keys() == y.keys() and all(same(x[key], y[key]) for key in x)
    if isinstance(x, list | tuple):
        return len(x) == len(y) and all(map(same, x, y))
    return np.array_equal(x, y, equal_nan=np.asarray(x).dtype.kind == 'f')


def row(batch: Any, i: int) -> Any:
    return {key: row(x, i) for key, x in batch.items()} if isinstance(batch, dict) else batch[i]


@pytest.mark.parametrize('env_id', FAMILIES)
class TestEveryFamily:
    def test_it_is_built_alone_and_as_copies_in_the_same_spaces(self, env_id):
        env, copies = build_env(env_id, 'envpool'), build_env(env_id, 'envpool', nenv=3)
        assert isinstance(env, gymnasium.Env) and isinstance(copies, VectorEnv) and copies.num_envs == 3
        assert copies.single_observation_space == env.observation_space
        assert copies.single_action_space == env.action_space
        assert env.spec.id == copies.spec.id == env_id
        assert table_type('envpool', env_id) == FAMILIES[env_id]
        for told in play(env, 4)[1:]:
            if isinstance(told, list):
                assert told[0] in env.observation_space and isinstance(told[1], float)
        _, reward, terminated, truncated = play(copies, 4)[-1]
        assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float64, np.bool_, np.bool_)
        env.close()
        copies.close()

    def test_the_same_seed_gives_the_same_episodes(self, env_id):
        first, again = (play(build_env(env_id, 'envpool', nenv=3, seed=5), 12) for _ in range(2))
        assert same(first, again)

    def test_a_single_one_plays_as_the_first_copy(self, env_id):
        env = build_env(env_id, 'envpool', seed=7)
        copies = build_env(env_id, 'envpool', nenv=2, seed=7)
        assert same(env.reset(seed=11)[0], row(copies.reset(seed=11)[0], 0))
        copies.action_space.seed(0)
        for _ in range(6):
            actions = copies.action_space.sample()
            mine = env.step(row(actions, 0))[:4]
            theirs = copies.step(actions)[:4]
            if theirs[2][0] or theirs[3][0]:
                break
            assert same(list(mine), [row(x, 0) for x in theirs])


def test_other_seeds_give_other_episodes():
    first, other = (build_env('CartPole-v1', 'envpool', nenv=2, seed=seed).reset()[0] for seed in (1, 5))
    assert not np.array_equal(first, other) and not np.array_equal(first[0], first[1])


def test_copies_in_this_process_are_the_same_episodes():
    threads, one_by_one = (
        build_env('Pendulum-v1', 'envpool', nenv=2, vectorized=kind, seed=2) for kind in (False, 'sync')
    )
    assert type(threads.unwrapped) is not type(one_by_one.unwrapped)
    assert same(threads.reset(seed=4)[0], one_by_one.reset(seed=4)[0])


class TestEnds:
    def test_the_final_observation_is_the_one_before_the_reset(self):
        env = build_env('CartPole-v1', 'envpool', nenv=3, seed=0)
        single = build_env('CartPole-v1', 'envpool', seed=0)
        env.reset(seed=9)
        single.reset(seed=9)
        actions = np.ones(3, np.int64)  # the pole falls within a dozen steps
        for _ in range(40):
            told = env.step(actions)
            mine = single.step(1)
            if mine[2]:
                break
            assert np.array_equal(told[0][0], mine[0]) and not told[2][0]
        observation, _, terminated, truncated, info = told
        assert terminated[0] and not truncated[0]
        assert np.array_equal(info['_final_obs'], terminated) and np.array_equal(info['_final_info'], terminated)
        assert np.array_equal(info['final_obs'][0], mine[0]) and abs(mine[0][2]) > 0.2
        assert np.abs(observation[0]).max() < 0.05  # the next episode
        assert all(info['final_obs'][i] is None for i in range(3) if not terminated[i])
        assert info['final_info']['elapsed_step'][0] > 5 and info['elapsed_step'][0] == 0

    def test_a_step_without_an_end_says_nothing_of_ends(self):
        env = build_env('Pendulum-v1', 'envpool', nenv=2)
        env.reset()
        info = env.step(env.action_space.sample())[-1]
        assert 'final_obs' not in info and 'final_info' not in info

    @pytest.mark.parametrize('env_id', ['Pendulum-v1', 'CheetahRun-v1', 'MiniGrid-Empty-5x5-v0', 'Pong-v5'])
    def test_a_time_limit_truncates(self, env_id):
        env = build_env(env_id, 'envpool', nenv=2, max_episode_steps=6)
        assert env.spec.max_episode_steps == 6
        env.reset()
        ends = [env.step(np.zeros_like(env.action_space.sample()))[2:4] for _ in range(12)]
        assert not any(terminated.any() for terminated, _ in ends)
        assert [bool(truncated.all()) for _, truncated in ends] == [False] * 5 + [True] + [False] * 5 + [True]

    def test_an_end_in_the_last_allowed_step_is_the_tasks_own(self):
        env = build_env('CartPole-v1', 'envpool')
        env.reset(seed=1)
        length = 1 + next(i for i in range(50) if env.step(1)[2])
        env = build_env('CartPole-v1', 'envpool', max_episode_steps=length)
        env.reset(seed=1)
        for _ in range(length):
            _, _, terminated, truncated, _ = env.step(1)
        assert terminated and truncated

    def test_a_step_after_the_end_is_refused(self):
        env = build_env('Pendulum-v1', 'envpool', max_episode_steps=1)
        env.reset()
        env.step(env.action_space.sample())
        with pytest.raises(RuntimeError, match='call reset'):
            env.step(env.action_space.sample())


class TestAtari:
    def test_a_lost_life_ends_an_episode_and_the_game_has_its_unclipped_return(self):
        env = build_env('MsPacman-v5', 'envpool', seed=0)
        env.action_space.seed(0)
        info = env.reset(seed=0)[1]
        lives, lost, total, clipped, length = info['lives'], 0, 0.0, 0.0, 0
        for _ in range(4000):
            _, reward, terminated, truncated, info = env.step(env.action_space.sample())
            assert reward in (-1.0, 0.0, 1.0)
            total, clipped, length = total + info['reward'], clipped + reward, length + 1
            if 'episode' in info:
                break
            if terminated:
                assert info[LIFE_LOST] and info['lives'] == lives - 1
                lost, lives = lost + 1, info['lives']
                env.reset()
        assert lost == 2 and terminated and not truncated and LIFE_LOST not in info
        assert info['episode'] == {'r': total, 'l': length} and total >= 10 * clipped > 0

    def test_whole_games_and_true_rewards_on_demand(self):
        env = build_env('MsPacman-v5', 'envpool', seed=0, episodic_life=False, reward_clip=False)
        env.action_space.seed(0)
        env.reset(seed=0)
        rewards = []
        for _ in range(4000):
            _, reward, terminated, _, info = env.step(env.action_space.sample())
            rewards.append(reward)
            if terminated:
                break
        assert info['lives'] == 0 and info['episode']['r'] == sum(rewards) and max(rewards) >= 10

    def test_a_stack_begins_anew_with_an_episode(self):
        env = build_env('Pong-v5', 'envpool', nenv=2, max_episode_steps=5)
        frames = env.reset()[0]
        assert frames.shape == (2, 84, 84, 4) and frames.dtype == np.uint8
        assert (frames == frames[..., :1]).all()
        for _ in range(5):
            *_, info = told = env.step(env.action_space.sample())
        assert (told[0] == told[0][..., :1]).all()
        assert not (info['final_obs'][0] == info['final_obs'][0][..., :1]).all()


class TestSpaces:
    def test_unbounded_actions(self):
        assert not np.isfinite(build_env('LqrLqr21-v1', 'envpool').action_space.high).any()

    def test_parts_are_a_dict_and_integers_are_discrete(self):
        assert isinstance(build_env('CheetahRun-v1', 'envpool').observation_space, Dict)
        assert build_env('FrozenLake-v1', 'envpool').observation_space == Discrete(16)
        assert isinstance(build_env('HalfCheetah-v4', 'envpool').observation_space, Box)

    def test_a_mask_of_actions_is_a_part_of_the_observation(self):
        env = build_env('Game2048-v1', 'envpool', nenv=2)
        mask = env.reset()[0]['action_mask']
        assert mask.shape == (2, 4) and mask.any(1).all()


class TestRefusals:
    @pytest.mark.parametrize(
        ('env_id', 'given', 'kind', 'message'),
        [
            ('Pon-v5', {}, ValueError, r"unknown envpool environment 'Pon-v5': did you mean 'Pong-v5'\?"),
            (3, {}, TypeError, 'given by its name'),
            ('CartPole-v1', {'length': 3}, TypeError, "unknown argument of 'CartPole-v1' 'length'"),
            ('CartPole-v1', {'n_envs': 3}, TypeError, 'nenv=4'),
            ('CartPole-v1', {'num_threads': -4}, ValueError, 'at least 1'),
            ('Pong-v5', {'img_height': 0}, ValueError, 'at least 1'),
            ('Pong-v5', {'reward_clip': 1}, ValueError, 'True or False'),
            ('Pong-v5', {'frame_stack': 2}, TypeError, 'stack_num'),
            ('CartPole-v1', {'render_mode': 'human'}, ValueError, "None or 'rgb_array', not 'human'"),
            ('CartPole-v1', {'vectorized': 'compiled', 'nenv': 2}, ValueError, 'are not compiled'),
            ('Cig-v1', {}, ValueError, 'several players'),
            ('MultiDuel-v1', {}, ValueError, 'several players'),
            ('VizdoomCustom-v1', {}, ValueError, 'cfg_path and wad_path'),
        ],
    )
    def test_a_sentence_says_what_is_wrong(self, env_id, given, kind, message):
        with pytest.raises(kind, match=message) as caught:
            build_env(env_id, 'envpool', **given)
        assert isinstance(caught.value, zoo.common.tools.errors.UserError)
        assert "vectorized='sync'" not in str(caught.value)

    def test_a_pool_that_cannot_be_made(self, monkeypatch):
        import envpool

        def fails(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError('failed to open the database\nmore')

        monkeypatch.setattr(envpool, 'make_gymnasium', fails)
        with pytest.raises(RuntimeError, match=r"^EnvPool cannot make 'Taxi-v3': failed to open the database\.$"):
            build_env('Taxi-v3', 'envpool')

    def test_options_of_reset(self):
        with pytest.raises(ValueError, match='leave them out'):
            build_env('CartPole-v1', 'envpool').reset(options={'low': 0})


def test_names_that_end_the_process_are_not_listed():
    names = list_envs('envpool')
    assert {*FAMILIES} <= {*names} and not {'Cig-v1', 'MultiDuel-v1'} & {*names}


def test_pictures():
    env = build_env('CartPole-v1', 'envpool', nenv=2, render_mode='rgb_array')
    env.reset()
    pictures = env.render()
    assert len(pictures) == 2 and pictures[0].dtype == np.uint8 and pictures[0].shape[-1] == 3


@pytest.mark.usefixtures('plain_graphs')
def test_ppo_trains():
    agent, result = zoo.train(
        'PPO', 'CartPole-v1', 'envpool', nenv=4, train_steps=256, horizon=32, epochs=2, run_dir=False, verbose=0
    )
    assert result.steps == 256 and all(np.isfinite(x).all() for x in result.losses.values())
    assert agent.predict(np.zeros(4, np.float32)) in (0, 1)


@pytest.mark.matrix
@pytest.mark.parametrize('env_id', list_envs('envpool'))
def test_every_name_is_played_or_refused_in_a_sentence(env_id):
    try:
        env = build_env(env_id, 'envpool', nenv=2)
    except zoo.common.tools.errors.ZooError as error:
        assert str(error).endswith('.')
        return
    play(env, 5)
    env.close()
