"""DAgger: what is stored and who acts, experts of every form, the schedule of β, and what is refused."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import toys
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

import zoo
from zoo.algorithms import DAgger
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.datasets.writing import written
from zoo.common.schedules import Linear
from zoo.common.training.checkpoint import CheckpointError

SMALL = [{'hidden': [8], 'seed': 0}]
SHORT = {'horizon': 6, 'updates': 2, 'batch_size': 4, 'run_dir': False, 'verbose': 0, 'seed': 0}

pytestmark = pytest.mark.usefixtures('plain_graphs')


class Counting(gymnasium.Env):
    """Observations count the steps of an episode of five; it notes the actions that it was given."""

    observation_space = Box(0.0, 10.0, (1,), np.float32)
    action_space = Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self) -> None:
        self.taken: list[float] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.taken.append(float(action[0]))
        self.t += 1
        return np.float32([self.t]), 0.0, self.t == 5, False, {}


class Masked(Counting):
    """Only action 1 is allowed."""

    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs, _ = super().reset(seed=seed)
        return obs, {'action_mask': np.array([0, 1], np.int8)}

    def step(self, action: Any) -> Any:
        *found, _ = super().step([action])
        return *found, {'action_mask': np.array([0, 1], np.int8)}


def half(obs: np.ndarray) -> np.ndarray:
    """An expert of `Counting`: a quarter of what is seen."""
    return obs / 4


def made(env: Any, **params: Any) -> DAgger:
    return DAgger(env.observation_space, env.action_space, **{'net_list': SMALL} | params)


def stored(agent: DAgger) -> list[tuple[float, float]]:
    """The labeled observations in order, actions in stored units."""
    rows = np.flatnonzero(agent.replay.valid)
    return list(zip(agent.replay.obs[rows, 0].tolist(), agent.replay.action[rows, 0].tolist(), strict=True))


class TestLoop:
    def test_every_step_is_labeled_by_the_expert(self):
        env = Counting()
        agent = made(env)
        result = agent.learn(env, expert=half, train_steps=15, **SHORT)
        assert (result.steps, agent.updates) == (15, 6)  # iterations of 6, 6 and 3 steps
        assert stored(agent) == [(t, t / 8) for t in range(5)] * 3

    def test_the_expert_acts_first_and_then_the_policy(self):
        env = Counting()
        agent = made(env)
        agent.learn(env, expert=half, train_steps=12, **SHORT)
        steps = [t / 4 for t in range(5)] * 3
        assert env.taken[:6] == steps[:6]
        assert not any(a == b for a, b in zip(env.taken[6:], steps[6:], strict=False))

    @pytest.mark.parametrize(('beta', 'low', 'high'), [(1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (0.5, 0.3, 0.7)])
    def test_beta_is_the_part_of_the_experts_actions(self, beta, low, high):
        env = Counting()
        made(env).learn(env, expert=half, beta=beta, train_steps=100, **SHORT | {'horizon': 100})
        # A new policy does at 0 what the expert does.
        by_expert = np.mean([a == t % 5 / 4 for t, a in enumerate(env.taken) if t % 5])
        assert low <= by_expert <= high

    def test_a_schedule_is_read_when_an_iteration_begins(self):
        env = Counting()
        made(env).learn(env, expert=half, beta=Linear(1.0, 0.0, 0.5), train_steps=12, **SHORT)
        same = [a == t % 5 / 4 for t, a in enumerate(env.taken)]
        assert all(same[:6]) and not any(same[6:])

    def test_copies_share_the_labels(self):
        env = zoo.build_env(Counting, 'gymnasium', nenv=3)
        agent = DAgger(env.single_observation_space, env.single_action_space, net_list=SMALL)
        result = agent.learn(env, expert=half, train_steps=30, **SHORT | {'horizon': 5})
        assert result.steps == 30 and len(agent.replay) == 30
        assert Counter(stored(agent)) == {(t, t / 8): 6 for t in range(5)}

    def test_begins_with_a_dataset(self, tmp_path):
        env = Counting()
        obs = np.full((4, 1), 9.0, np.float32)
        episodes = [RecordedEpisode(obs, np.float32([[1], [1], [1]]), np.zeros(3, np.float32), True, False)]
        path = written(tmp_path / 'data.npz', env.observation_space, env.action_space, None, episodes).path
        agent = made(env)
        agent.learn(env, expert=half, dataset=path, train_steps=6, **SHORT)
        assert agent.updates == 4  # on the dataset, and after the iteration
        assert env.taken[1] != 0.25  # the policy acts at once
        assert stored(agent) == [(9, 0.5)] * 3 + [(t % 5, t % 5 / 8) for t in range(6)]
        agent.learn(env, expert=half, train_steps=6, **SHORT)
        assert len(agent.replay) == 15  # a second call adds to the first

    def test_the_same_seed_gives_the_same_weights(self):
        found = []
        for _ in range(2):
            env = toys.Aim()
            agent = made(env)
            agent.learn(env, expert=aim, train_steps=24, **SHORT)
            found.append(agent.network_weights())
        assert all((found[0][name] == found[1][name]).all() for name in found[0])

    def test_goes_on_after_an_interruption(self, tmp_path):
        env, runs = toys.Aim(), tmp_path / 'run'
        params = {**SHORT, 'run_dir': runs, 'checkpoint_buffer': True, 'checkpoint_every': 12, 'train_steps': 24}

        def interrupt(training: Any) -> None:
            if training.steps == 12:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            made(env).learn(env, expert=aim, callbacks=[interrupt], log_every=6, **params)
        agent = zoo.load(runs)
        agent.learn(env, expert=aim, resume=True, **params)
        assert agent.steps == 24 and len(agent.replay) == 24

    def test_labels_that_were_not_saved_are_told_of(self, tmp_path, caplog):
        env = toys.Aim()
        agent = made(env)
        agent.learn(env, expert=aim, train_steps=12, **SHORT)
        agent = DAgger.load(agent.save(tmp_path / 'saved'))
        agent.learn(env, expert=aim, train_steps=6, **SHORT)
        assert 'The labels of 12 earlier steps are lost: checkpoint_buffer=True saves them' in caplog.text

    def test_statistics_cover_the_labeled_observations(self):
        env = Counting()
        agent = made(env, normalize_obs=True)
        agent.learn(env, expert=half, train_steps=10, **SHORT | {'horizon': 10})
        (moments,) = agent.statistics.values()
        assert (moments.count, float(moments.mean[0])) == (10, 2.0)


def aim(obs: np.ndarray) -> np.ndarray:
    """The right action in `toys.Aim`."""
    return np.float32([1.0 + obs[0] - 0.5 * obs[1]])


class TestExperts:
    def test_an_agent(self):
        env = toys.Aim()
        expert = zoo.algorithms.TD3(env.observation_space, env.action_space, net_list=[{'hidden': [4]}] * 3)
        agent = made(env)
        agent.learn(env, expert=expert, train_steps=8, **SHORT)
        rows = np.flatnonzero(agent.replay.valid)
        expected = expert.act(agent.replay.obs[rows], deterministic=True)
        np.testing.assert_allclose(agent.replay.action[rows], expected, atol=1e-5)

    def test_an_agent_with_a_memory(self):
        """Its state goes along each copy's episodes, and is zero where one begins."""
        env = zoo.build_env(partial(toys.AnySpaces, Box(-1.0, 1.0, (3,), np.float32), Discrete(3)), 'gymnasium', nenv=2)
        spaces = env.single_observation_space, env.single_action_space
        expert = zoo.algorithms.PPO(*spaces, net_list=[{'hidden': [4], 'recurrent': 'gru', 'seed': 0}, 'actor'])
        for variable in expert.networks['actor'].variables:
            variable.assign(3 * np.random.default_rng(0).normal(size=variable.shape))
        agent = DAgger(*spaces, net_list=SMALL)
        agent.learn(env, expert=expert, train_steps=40, **SHORT | {'horizon': 10})
        for copy in range(2):
            rows = agent.replay.base[copy] + np.arange(agent.replay.cursor[copy])
            state, fresh = expert.initial_state(), 0
            for row in rows[agent.replay.valid[rows]]:
                action, after = expert.predict(agent.replay.obs[row][None], state=state)
                assert action[0] == agent.replay.action[row]
                alone, _ = expert.predict(agent.replay.obs[row][None], state=expert.initial_state())
                fresh += int(alone[0] != action[0])
                ended = agent.replay.terminated[row] or agent.replay.truncated[row]
                state = expert.initial_state() if ended else after
            assert fresh  # the memory matters

    def test_a_name_and_a_path(self, tmp_path):
        env = zoo.build_env('Pendulum-v1')
        agent = made(env)
        agent.learn(env, expert='TD3/Pendulum-v1', train_steps=8, **SHORT)
        saved = zoo.load('TD3/Pendulum-v1').save(tmp_path / 'expert')
        other = made(env)
        other.learn(env, expert=saved, train_steps=8, **SHORT)
        np.testing.assert_array_equal(agent.replay.action, other.replay.action)

    def test_what_a_run_keeps_of_an_expert(self, tmp_path):
        env = zoo.build_env('Pendulum-v1')
        for expert, kept in (('TD3/Pendulum-v1', 'TD3/Pendulum-v1'), (lambda obs: np.zeros(1, np.float32), None)):
            run = tmp_path / str(kept).replace('/', '-')
            made(env).learn(env, expert=expert, train_steps=6, **SHORT | {'run_dir': run})
            assert zoo.open_run(run).config['learn_params']['expert'] == kept

    @pytest.mark.parametrize('action', toys.ACTIONS)
    def test_a_function_labels_every_kind_of_action(self, action):
        space = toys.ACTIONS[action]
        env = toys.AnySpaces(toys.OBSERVATIONS['nested Dict'], space)
        space.seed(0)
        agent = DAgger(env.observation_space, space, net_list=[{'hidden': [4], 'features': 4}])
        result = agent.learn(env, expert=lambda obs: space.sample(), train_steps=12, **SHORT)
        assert len(agent.replay) == 12 and all(map(np.isfinite, result.losses.values()))

    def test_a_function_sees_single_observations_as_the_environment_gives_them(self):
        env = toys.AnySpaces(Dict(a=Discrete(3), b=Box(-1.0, 1.0, (2,), np.float32)), MultiBinary(2))
        agent, seen = DAgger(env.observation_space, env.action_space, net_list=SMALL), []

        def expert(obs: Any) -> Any:
            seen.append(env.observation_space.contains(obs))
            return [1, 0]

        agent.learn(env, expert=expert, train_steps=6, **SHORT)
        assert seen == [True] * 6


class TestRefusals:
    @pytest.mark.parametrize(
        ('expert', 'told'),
        [
            (None, r"^DAgger needs an expert, .*: agent\.learn\(env, 'train', expert=…\)\.$"),
            (3, r'^expert is an int: give an agent, the name or path of one, or a function from an observation'),
            (DAgger, r'^expert is the class DAgger: give an agent, or a function of one observation\.$'),
            (lambda obs: np.zeros(2), r'^the expert gave an action of shape \(2,\) and .*: give a function of one obs'),
            (lambda obs: np.float32([9.0]), r'^of the expert the action has the value 9.0, which is not in Box'),
            (lambda obs: np.float32([np.nan]), r'^of the expert the action has the value nan, which is not in Box'),
            ('no/such', r'no/such'),
        ],
    )
    def test_what_is_no_expert(self, expert, told):
        env = Counting()
        given = {} if expert is None else {'expert': expert}
        with pytest.raises((ValueError, CheckpointError), match=told):
            made(env).learn(env, train_steps=6, **given, **SHORT)

    def test_a_label_that_the_mask_forbids(self):
        env = zoo.build_env(Masked)
        with pytest.raises(ValueError, match=r"the expert's action is 0, which the action_mask .*\[0, 1\]\): let the"):
            made(env).learn(env, 'train', expert=lambda obs: 0, train_steps=12, **SHORT)
        made(env).learn(env, 'train', expert=lambda obs: 1, train_steps=12, **SHORT)

    def test_a_model_of_another_library(self):
        class Model:
            def predict(self, obs: Any) -> Any:
                return obs, None

        with pytest.raises(ValueError, match=r'expert is a Model: .*, such as lambda obs: model\.predict\(obs\)\[0\]'):
            made(Counting()).learn(Counting(), expert=Model(), train_steps=6, **SHORT)

    def test_an_agent_for_another_environment(self):
        with pytest.raises(ValueError, match=r"^the expert's observation_space .*: give an expert for this environ"):
            made(Counting()).learn(Counting(), expert=zoo.load('PPO/CartPole-v1'), train_steps=6, **SHORT)

    def test_an_agent_for_images_of_another_scale(self):
        seen, known = (Box(0, high, (8, 8, 1), np.float32) for high in (255, 1))
        action = Box(-1.0, 1.0, (2,), np.float32)
        expert = zoo.algorithms.PPO(known, action)
        told = "the expert's observation_space has images from 0 to 1, but this agent was made for images from 0 to 255"
        with pytest.raises(ValueError, match=told):
            DAgger(seen, action).learn(toys.AnySpaces(seen, action), expert=expert, train_steps=6, **SHORT)

    def test_roles(self):
        env = zoo.build_env(Counting, 'gymnasium')
        with pytest.raises(ValueError, match=r'DAgger trains in one process: give roles=None\.$'):
            made(env).learn(env, expert=half, train_steps=6, roles={'learners': 1, 'actors': 1}, **SHORT)


def test_learns_what_the_expert_does():
    env = toys.Aim()
    agent = made(env, optimizers_list=[{'learning_rate': 1e-2}])
    learn = {'train_steps': 200, 'horizon': 50, 'updates': 200, 'batch_size': 32}
    agent.learn(env, expert=aim, **SHORT | learn)
    assert np.mean(agent.learn(env, 'test', test_episodes=50, seed=1).returns) > -0.01
