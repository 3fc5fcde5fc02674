"""The public interface, as a user meets it: the paper's Listing 1, ``learn``, ``predict``, ``save`` and ``load``."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
import toys
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import zoo
from zoo import algorithms, build_env, call_default_params
from zoo.common.records import TestResult, TrainingResult
from zoo.common.schedules import Linear
from zoo.common.tools.errors import unknown
from zoo.common.training.checkpoint import CheckpointError

LISTING_1 = """\
from zoo.common.env_wrappers import build_env
from zoo.common.utils import call_default_params
from zoo.algorithms import TD3

env = build_env('Pendulum-v1', 'classic_control')
alg_params, learn_params = call_default_params(env, 'classic_control', 'TD3')
agent = TD3(**alg_params)
agent.learn(env, 'train', **learn_params)
"""

TINY = {'hidden': [8]}


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)


def dqn(**params: Any) -> Any:
    """An untrained DQN for CartPole."""
    env = gymnasium.make('CartPole-v1')
    return algorithms.DQN(env.observation_space, env.action_space, net_list=[TINY], **params)


def ppo(observation_space: Any, action_space: Any, **params: Any) -> Any:
    """An untrained PPO for any spaces."""
    return algorithms.PPO(
        observation_space, action_space, net_list=[{**TINY, 'features': 8, 'seed': i} for i in (0, 1)], **params
    )


#: Enough for some updates.
FEW = {'train_steps': 150, 'explore_steps': 50, 'batch_size': 8, 'verbose': 0}


def cartpole(nenv: int = 1, seed: int = 0) -> Any:
    return build_env('CartPole-v1', 'classic_control', nenv=nenv, seed=seed)


#: Algorithms that stand for those made of them.
ROOTS = ('ES', 'PPO', 'DQN', 'DDPG', 'TD3', 'SAC')

#: What XLA compiles of their updates is what it compiles of A2C's, PPO's, DQN's and DDPG's.
PLAIN = ('A3C', 'AC', 'ApexDDPG', 'ApexDQN', 'DPPO', 'VPG')


class TestListing1:
    def test_runs_as_printed(self, tmp_path):
        # One line more, so that it takes seconds: everything else is the paper's.
        shorter = LISTING_1.replace('agent = TD3', "learn_params['train_steps'] = 1050\nagent = TD3")
        names: dict[str, Any] = {}
        exec(compile(shorter, 'listing_1.py', 'exec'), names)
        assert names['agent'].steps == 1050
        assert names['agent'].updates == 51  # one after each step from the 1,000th
        (run,) = (tmp_path / 'runs').iterdir()
        assert run.name.startswith('TD3_Pendulum-v1_')

    def test_the_same_names_from_the_package(self):
        import zoo.algorithms
        from zoo.common import utils
        from zoo.common.envs import build

        assert zoo.build_env is build.build_env
        assert zoo.call_default_params is utils.call_default_params
        assert zoo.algorithms is algorithms
        assert zoo.load is zoo.algorithms.base.load
        assert [getattr(algorithms, name).__name__ for name in algorithms.NAMES] == list(algorithms.NAMES)

    def test_dir_lists_the_algorithms(self):
        assert {'NAMES', *algorithms.NAMES} <= set(dir(algorithms))

    @pytest.mark.full(but='ES-2')
    @pytest.mark.parametrize(
        ('name', 'nenv'),
        [(name, 1) for name in algorithms.NAMES]
        + [pytest.param(name, 2, marks=[] if name in ROOTS else [pytest.mark.matrix]) for name in algorithms.NAMES],
    )
    def test_the_four_lines_for_every_algorithm(self, request, name, nenv):
        if nenv > 1 or name in PLAIN:  # once is enough of XLA
            request.getfixturevalue('plain_updates')
        cls = getattr(algorithms, name)
        env_id = 'CartPole-v1' if 'Discrete' in cls.acts_in else 'Pendulum-v1'
        env = build_env(env_id, 'classic_control', nenv=nenv)
        alg_params, learn_params = call_default_params(env, 'classic_control', name)
        alg_params['net_list'] = [TINY] * len(alg_params['net_list'])
        few = {'train_steps': 120, 'train_updates': 120, 'batch_size': 16, 'horizon': 30, 'epochs': 1}
        few |= {'explore_steps': 40, 'discriminator_batch': 16}
        learn_params |= {name: x for name, x in few.items() if name in learn_params}
        if nenv > 1:
            learn_params['roles'] = None  # once is enough of starting those that some have by default
        agent = cls(**alg_params)
        result = agent.learn(env, 'train', run_dir=False, **learn_params | toys.needed(agent, env))
        assert result.steps >= 120
        assert result.losses.keys() == set(agent.metric_names)


@pytest.mark.usefixtures('plain_updates')
class TestLearn:
    def test_training_result(self, tmp_path):
        agent = dqn()
        result = agent.learn(cartpole(), 'train', seed=0, run_dir=tmp_path / 'run', **FEW)
        assert isinstance(result, TrainingResult)
        assert result.steps == 150 == agent.steps
        assert result.episodes == len(result.returns) == len(result.episode_steps) >= 1
        # CartPole pays 1 for each step, so returns are lengths, and the last episode is not over.
        np.testing.assert_array_equal(np.cumsum(result.returns), result.episode_steps)
        assert result.episode_steps[-1] <= 150
        assert result.losses.keys() == {'q', 'q_mean'} and all(np.isfinite(x) for x in result.losses.values())
        assert result.wall_time > 0
        assert result.run_dir == tmp_path / 'run'

    def test_test_result(self):
        result = dqn().learn(cartpole(), 'test', seed=0, test_episodes=3)
        assert isinstance(result, TestResult)
        assert len(result.returns) == len(result.lengths) == len(result.successes) == 3
        assert result.returns == result.lengths
        assert result.successes == [None] * 3

    @pytest.mark.full
    def test_test_mode_takes_the_same_parameters_and_changes_nothing(self, tmp_path):
        env = cartpole()
        alg_params, learn_params = call_default_params(env, 'classic_control', 'DQN', seed=3)
        agent = algorithms.DQN(**alg_params | {'net_list': [TINY]})
        before = [v.numpy() for v in agent.networks['q'].variables]
        first = agent.learn(env, 'test', **learn_params)
        assert first == agent.learn(env, 'test', **learn_params)  # the seed is among them
        assert len(first.returns) == learn_params['test_episodes'] == 10
        assert agent.steps == 0
        assert all(np.array_equal(a, b.numpy()) for a, b in zip(before, agent.networks['q'].variables, strict=True))
        assert not any(tmp_path.iterdir())

    def test_test_mode_with_copies_plays_the_asked_number(self):
        assert len(dqn().learn(cartpole(nenv=4), 'test', test_episodes=6).returns) == 6

    def test_calling_again_trains_on(self):
        agent, env = dqn(), cartpole()
        agent.learn(env, run_dir=False, seed=0, **FEW)
        weights = agent.networks['q'].variables[0].numpy()
        updates = agent.updates
        result = agent.learn(env, run_dir=False, **FEW)
        assert (result.steps, agent.steps) == (150, 300)
        # It goes on from its replay buffer: an update for each of the 150 steps, no new exploration first.
        assert agent.updates - updates == 150
        assert not np.array_equal(weights, agent.networks['q'].variables[0].numpy())

    @pytest.mark.full
    def test_a_seed_makes_it_reproducible(self):
        def trained(seed: int, weights: int = 0) -> tuple[list[float], np.ndarray]:
            agent = algorithms.DQN(**spaces, net_list=[{**TINY, 'seed': weights}])
            returns = agent.learn(cartpole(), run_dir=False, seed=seed, **FEW).returns
            return returns, agent.networks['q'].variables[0].numpy()

        env = gymnasium.make('CartPole-v1')
        spaces = {'observation_space': env.observation_space, 'action_space': env.action_space}
        first, again, other = trained(0), trained(0), trained(1)
        assert first[0] == again[0] and np.array_equal(first[1], again[1])
        assert first[0] != other[0] and not np.array_equal(first[1], other[1])

    def test_plot_func_and_callbacks_are_called_when_a_row_is_logged(self):
        plotted, seen = [], []

        def stop_at_100(training: Any) -> bool:
            seen.append((training.steps, training.agent))
            return training.steps < 100

        agent = dqn()
        params = FEW | {'log_every': 50, 'train_steps': 1000}
        result = agent.learn(
            cartpole(), run_dir=False, plot_func=lambda r: plotted.append(len(r)), callbacks=[stop_at_100], **params
        )
        assert seen == [(50, agent), (100, agent)]
        assert result.steps == 100
        assert plotted == sorted(plotted) and plotted[-1] == result.episodes

    def test_a_callback_that_returns_nothing_does_not_stop(self):
        assert dqn().learn(cartpole(), run_dir=False, callbacks=[lambda t: None], **FEW).steps == 150

    def test_render_calls_the_environment(self):
        class Rendering(gymnasium.Wrapper):
            frames = 0

            def render(self) -> None:
                self.frames += 1

        env = Rendering(gymnasium.make('CartPole-v1', render_mode='rgb_array'))
        result = dqn().learn(env, 'test', render=True, test_episodes=2)
        assert env.frames == sum(result.lengths)

    def test_render_needs_a_render_mode(self):
        with pytest.raises(ValueError, match="render=True needs an environment built with render_mode='human'"):
            dqn().learn(cartpole(), 'test', render=True)


@pytest.mark.usefixtures('plain_updates')
class TestRunDirectory:
    @pytest.mark.full
    def test_contents(self, tmp_path):
        agent = dqn(epsilon=Linear(1.0, 0.1))
        run = agent.learn(
            cartpole(), seed=5, run_dir=tmp_path / 'a' / 'run', log_every=30, checkpoint_every=15, **FEW
        ).run_dir
        names = {path.name for path in run.iterdir()}
        events = {name for name in names if name.startswith('events.out.tfevents.')}
        assert names - events == {'config.json', 'progress.csv', 'monitor.csv', 'checkpoints', 'curve.png'}
        assert len(events) == 1
        assert (run / 'curve.png').read_bytes().startswith(b'\x89PNG')

        config = json.loads((run / 'config.json').read_text())
        assert config['algorithm'] == 'DQN' and config['environment'] == 'CartPole-v1' and config['seed'] == 5
        assert config['params']['gamma'] == 0.99
        assert config['params']['epsilon'] == {'schedule': 'linear', 'start': 1.0, 'end': 0.1, 'until': 1.0}
        assert config['learn_params']['train_steps'] == 150
        assert config['learn_params'].keys() == algorithms.DQN.learn_params().keys()
        assert config['net_list'] == [TINY | {'activation': 'relu', 'dtype': 'float32'}]

        with open(run / 'progress.csv', newline='') as file:
            rows = list(csv.DictReader(file))
        assert [int(row['step']) for row in rows] == [30, 60, 90, 120, 150]
        assert {'episode/return', 'episode/length', 'episode/count', 'loss/q', 'speed/steps_per_second'} <= rows[
            0
        ].keys()
        assert rows[0]['loss/q'] == '' and float(rows[-1]['loss/q']) >= 0.0

        tags = set()
        for record in tf.data.TFRecordDataset(str(run / events.pop())):
            event = tf.compat.v1.Event.FromString(record.numpy())
            tags |= {value.tag for value in event.summary.value}
        assert tags == rows[0].keys() - {'step'}

        checkpoints = sorted(path.name for path in (run / 'checkpoints').iterdir())
        assert checkpoints == [f'{steps:09d}' for steps in range(15, 151, 15)]

    def test_default_is_runs_in_the_working_directory(self, tmp_path):
        run = dqn().learn(cartpole(), **FEW).run_dir
        assert (tmp_path / run).parent == tmp_path / 'runs'
        assert run.name.startswith('DQN_CartPole-v1_')

    def test_the_variable_zoo_runs(self, tmp_path, monkeypatch):
        monkeypatch.setenv('ZOO_RUNS', str(tmp_path / 'elsewhere'))
        run = dqn().learn(cartpole(), **FEW).run_dir
        assert run.parent == tmp_path / 'elsewhere'
        assert not (tmp_path / 'runs').exists()

    def test_run_dir_goes_before_the_variable(self, tmp_path, monkeypatch):
        monkeypatch.setenv('ZOO_RUNS', str(tmp_path / 'elsewhere'))
        assert dqn().learn(cartpole(), run_dir='here', **FEW).run_dir == Path('here')
        assert [path.name for path in tmp_path.iterdir()] == ['here']

    def test_false_writes_nothing(self, tmp_path):
        assert dqn().learn(cartpole(), run_dir=False, **FEW).run_dir is None
        assert not any(tmp_path.iterdir())


SPACES = [
    Discrete(3, start=-1),
    MultiDiscrete([3, 2], start=[5, 0]),
    MultiDiscrete([[3, 2], [2, 2]]),
    MultiBinary((2, 2)),
    Box(-1.0, 3.0, (2, 2), np.float32),
    Dict(b=Discrete(2), a=Tuple((Box(0.0, 1.0, (1,), np.float64), MultiBinary(2)))),
]


@pytest.mark.usefixtures('plain_updates')
class TestPredict:
    @pytest.mark.parametrize('space', SPACES, ids=str)
    def test_one_observation_gives_an_action_of_the_space(self, space):
        agent = ppo(Box(-1.0, 1.0, (3,), np.float32), space)
        for deterministic in (True, False):
            for _ in range(5):
                assert space.contains(agent.predict(agent.observation_space.sample(), deterministic))

    @pytest.mark.parametrize('space', SPACES, ids=str)
    def test_a_batch_gives_actions_that_a_vector_environment_takes(self, space):
        agent = ppo(Box(-1.0, 1.0, (3,), np.float32), space)
        batched = gymnasium.vector.utils.batch_space(space, 4)
        obs = np.random.default_rng(0).random((4, 3), np.float32)
        for deterministic in (True, False):
            assert len(list(gymnasium.vector.utils.iterate(batched, agent.predict(obs, deterministic)))) == 4
            for action in gymnasium.vector.utils.iterate(batched, agent.predict(obs, deterministic)):
                assert space.contains(action)

    def test_a_batch_of_one_is_a_batch(self):
        agent = ppo(Box(-1.0, 1.0, (3,), np.float32), Discrete(2))
        assert agent.predict(np.zeros(3, np.float32)).shape == ()
        assert agent.predict(np.zeros((1, 3), np.float32)).shape == (1,)

    def test_deterministic_is_the_mode_and_otherwise_a_sample(self):
        agent = ppo(Box(-1.0, 1.0, (3,), np.float32), Discrete(2))
        obs = np.zeros(3, np.float32)
        assert len({int(agent.predict(obs)) for _ in range(30)}) == 1
        assert len({int(agent.predict(obs, deterministic=False)) for _ in range(60)}) == 2

    @pytest.mark.parametrize('obs', [2, np.int64(2), np.array(2), np.array([2, 0, 1]), [2, 0]], ids=repr)
    def test_discrete_observations(self, obs):
        agent = ppo(Discrete(3), Discrete(4))
        action = np.asarray(agent.predict(obs))
        assert action.shape == np.shape(obs)
        assert action.flat[0] == agent.predict(2)

    def test_lists_and_other_dtypes_are_converted(self):
        agent = ppo(Box(-1.0, 1.0, (3,), np.float32), Box(-1.0, 1.0, (2,), np.float32))
        expected = agent.predict(np.array([0.5, -0.25, 1.0], np.float32))
        np.testing.assert_array_equal(agent.predict([0.5, -0.25, 1.0]), expected)
        np.testing.assert_array_equal(agent.predict(np.array([0.5, -0.25, 1.0])), expected)
        # Rows of a batch may be summed in another order.
        np.testing.assert_allclose(agent.predict([[0.5, -0.25, 1.0]] * 2), [expected] * 2, rtol=1e-6)

    def test_dict_observations_whatever_their_order(self):
        space = Dict(
            image=Box(0, 255, (8, 8, 1), np.uint8), robot=Dict(pose=Box(-1.0, 1.0, (2,), np.float32), mode=Discrete(3))
        )
        agent = ppo(space, Box(-1.0, 1.0, (2,), np.float32))
        space.seed(0)
        one, two = space.sample(), space.sample()
        swapped = {'robot': dict(reversed(one['robot'].items())), 'image': one['image']}
        np.testing.assert_array_equal(agent.predict(swapped), agent.predict(one))
        batch = {
            'robot': {key: np.stack([one['robot'][key], two['robot'][key]]) for key in ('mode', 'pose')},
            'image': np.stack([one['image'], two['image']]),
        }
        np.testing.assert_allclose(agent.predict(batch), [agent.predict(one), agent.predict(two)], atol=1e-6)

    def test_state_passes_through(self):
        agent = ppo(Box(-1.0, 1.0, (3,), np.float32), Discrete(2))
        state = {'hidden': np.ones(2)}
        action, after = agent.predict(np.zeros(3, np.float32), state=state)
        assert after is state and action == agent.predict(np.zeros(3, np.float32))

    @pytest.mark.parametrize(
        'obs', [np.zeros(4), np.zeros((2, 4)), np.zeros((2, 2, 3)), 0.0], ids=lambda x: str(np.shape(x))
    )
    def test_another_shape_is_refused(self, obs):
        agent = ppo(Box(-1.0, 1.0, (3,), np.float32), Discrete(2))
        with pytest.raises(
            ValueError, match=r'observation of shape .* but the space declares \(3,\), or a batch of that'
        ):
            agent.predict(obs)

    def test_another_shape_of_a_leaf_is_refused_by_name(self):
        agent = ppo(Dict(a=Box(-1.0, 1.0, (3,), np.float32), b=Discrete(2)), Discrete(2))
        with pytest.raises(ValueError, match=r"observation 'a' of shape \(2,\)"):
            agent.predict({'a': np.zeros(2), 'b': 0})

    def test_a_batch_in_one_leaf_and_not_in_another_is_refused(self):
        agent = ppo(Dict(a=Box(-1.0, 1.0, (3,), np.float32), b=Discrete(2)), Discrete(2))
        for obs in ({'a': np.zeros((4, 3)), 'b': 0}, {'a': np.zeros(3), 'b': np.zeros(4)}):
            with pytest.raises(ValueError, match="'b'"):
                agent.predict(obs)


@pytest.mark.usefixtures('plain_updates')
class TestUnknownNames:
    """Each is refused before anything starts, with the nearest name that is known."""

    @pytest.mark.parametrize(
        ('call', 'message'),
        [
            (
                lambda env: algorithms.TD33,
                rf"unknown algorithm 'TD33': did you mean 'TD3'\? Known: {', '.join(algorithms.NAMES)}\.",
            ),
            (
                lambda env: call_default_params(env, 'classic_control', 'ppoo'),
                "unknown algorithm 'ppoo': did you mean 'PPO'",
            ),
            (
                lambda env: call_default_params(env, 'clasic', 'PPO'),
                "environment type 'clasic': did you mean 'classic_control'",
            ),
            (
                lambda env: build_env('CartPole-v1', 'classic'),
                "environment type 'classic': did you mean 'classic_control'",
            ),
            (
                lambda env: call_default_params(env, 'classic_control', 'PPO', layers='kears'),
                "layers 'kears': did you mean 'keras'",
            ),
            (lambda env: dqn(gama=0.9), r"unknown parameter of DQN 'gama': did you mean 'gamma'\?"),
            (lambda env: dqn(policy_delay=2), r"unknown parameter of DQN 'policy_delay'\. Known: .*gamma"),
            (
                lambda env: dqn().learn(env, 'trian'),
                r"unknown mode 'trian': did you mean 'train'\? Known: train, test\.",
            ),
            (lambda env: dqn().learn(env, train_step=9), "DQN's learn 'train_step': did you mean 'train_steps'"),
            (
                lambda env: dqn().learn(env, horizon=9),
                r"unknown parameter of DQN's learn 'horizon'\. Known: train_steps",
            ),
            (lambda env: dqn().learn(env, callback=[]), "DQN's learn 'callback': did you mean 'callbacks'"),
            (lambda env: dqn().learn(env, 'test', test_episode=1), "did you mean 'test_episodes'"),
        ],
    )
    def test_names_the_nearest(self, call, message, tmp_path):
        with pytest.raises((ValueError, AttributeError), match=message) as info:
            call(cartpole())
        assert '\n' not in str(info.value)
        assert not any(tmp_path.iterdir())

    def test_an_unknown_key_of_the_default_dicts(self):
        env = cartpole()
        alg_params, learn_params = call_default_params(env, 'classic_control', 'PPO')
        alg_params['gae_lamda'] = 0.9
        with pytest.raises(ValueError, match="parameter of PPO 'gae_lamda': did you mean 'gae_lambda'"):
            algorithms.PPO(**alg_params)

    def test_of_many_known_names_those_like_it_are_told(self):
        with pytest.raises(ValueError, match="did you mean 'b7'.* 100 are known, such as b7, ") as caught:
            raise ValueError(unknown('letter', 'B7', [f'{letter}{n}' for letter in 'ab' for n in range(50)]))
        assert len(str(caught.value)) < 150


@pytest.mark.usefixtures('plain_updates')
class TestLearnParams:
    @pytest.mark.full(but='test_episodes-0-train')
    @pytest.mark.parametrize('mode', ['train', 'test'])
    @pytest.mark.parametrize(
        ('name', 'value'),
        [
            ('train_steps', 0),
            ('train_steps', 1000.5),
            ('train_steps', float('inf')),
            ('train_steps', '1000'),
            ('train_steps', None),
            ('batch_size', -1),
            ('batch_size', True),
            ('buffer_size', 2.5),
            ('explore_steps', -1),
            ('update_every', 0),
            ('updates', 0),
            ('log_every', 0),
            ('checkpoint_every', 'often'),
            ('test_episodes', 0),
        ],
    )
    def test_counts_are_whole_numbers(self, name, value, mode, tmp_path):
        least = 0 if name == 'explore_steps' else 1
        wanted = f'a whole number of at least {least}'
        if name in ('updates', 'update_every', 'log_every', 'checkpoint_every'):
            wanted += ' or None'
        with pytest.raises(ValueError, match=rf'^{name} is {value!r}: give {wanted}\.$'):
            dqn().learn(cartpole(), mode, **{name: value})
        assert not any(tmp_path.iterdir())

    @pytest.mark.parametrize(('name', 'value'), [('epochs', 0), ('horizon', -2), ('batch_size', 0.5)])
    def test_counts_of_on_policy_algorithms(self, name, value):
        env = cartpole()
        with pytest.raises(ValueError, match=f'^{name} is {value!r}: '):
            ppo(env.observation_space, env.action_space).learn(env, **{name: value})

    @pytest.mark.full(but='float')
    @pytest.mark.parametrize('kind', [np.int64, float, np.float64])
    def test_whole_numbers_of_other_types_are_taken(self, kind):
        """``train_steps=1e5`` reads better than its zeros."""
        params = {name: kind(value) for name, value in FEW.items()}
        result = dqn().learn(cartpole(), run_dir=False, **params)
        assert result.steps == 150 and type(result.steps) is int

    def test_what_may_be_none_may_be_none(self):
        result = dqn().learn(cartpole(), run_dir=False, log_every=None, checkpoint_every=None, updates=None, **FEW)
        assert result.steps == 150

    def test_the_class_lists_them(self):
        assert algorithms.DQN.learn_params() | {'train_steps': 1} == {
            'train_steps': 1,
            'test_episodes': 10,
            'log_every': None,
            'checkpoint_every': None,
            'checkpoint_buffer': False,
            'exact_resume': False,
            'verbose': 1,
            'roles': None,
            'restarts': 3,
            'sample_timeout': 600.0,
            'average_window': 0.0,
            'resume': False,
            'dataset': None,
            'train_updates': 100_000,
            'recorded_share': None,
            'batch_size': 256,
            'buffer_size': 1_000_000,
            'explore_steps': 1000,
            'update_every': 1,
            'updates': None,
            'compress': False,
            'her': None,
            'recorded': None,
        }
        on_policy = algorithms.PPO.learn_params()
        assert {'horizon', 'epochs', 'batch_size'} <= on_policy.keys() and 'buffer_size' not in on_policy


@pytest.mark.usefixtures('plain_updates')
class TestEnvironment:
    @pytest.mark.parametrize('mode', ['train', 'test'])
    @pytest.mark.parametrize(
        ('env', 'message'),
        [
            (
                'Pendulum-v1',
                r"environment's observation_space is Box\(3,\) float32, but .* Box\(4,\) float32: make an agent",
            ),
            ('MountainCar-v0', r"environment's observation_space is Box\(2,\) float32, but"),
        ],
    )
    def test_other_observations_are_refused(self, env, message, mode, tmp_path):
        with pytest.raises(ValueError, match=message):
            dqn().learn(build_env(env, 'classic_control'), mode)
        assert not any(tmp_path.iterdir())

    @pytest.mark.parametrize('nenv', [1, 2])
    def test_other_actions_are_refused(self, nenv):
        env = build_env('CartPole-v1', 'classic_control', nenv=nenv)
        agent = ppo(Box(-np.inf, np.inf, (4,), np.float32), Discrete(3))
        with pytest.raises(
            ValueError, match=r'action_space is Discrete\(2\), but this agent was made for Discrete\(3\)'
        ):
            agent.learn(env)

    def test_another_dtype_is_refused(self):
        agent = ppo(Box(-np.inf, np.inf, (4,), np.float64), Discrete(2))
        with pytest.raises(ValueError, match=r'Box\(4,\) float32, but this agent was made for Box\(4,\) float64'):
            agent.learn(cartpole())

    @pytest.mark.parametrize('env', ['CartPole-v1', None, gymnasium.Env], ids=['id', 'None', 'class'])
    def test_what_is_no_environment_is_refused(self, env):
        with pytest.raises(ValueError, match='^learn needs an? .*environment.*with env from build_env'):
            dqn().learn(env)

    def test_one_agent_trains_on_copies_and_on_a_single_one(self):
        agent = dqn()
        agent.learn(cartpole(nenv=3), run_dir=False, **FEW)
        agent.replay = None
        agent.learn(cartpole(), run_dir=False, **FEW)
        assert agent.steps == 300

    @pytest.mark.full
    def test_a_filled_replay_buffer_is_taken_over_by_another_number_of_copies(self):
        agent = dqn()
        agent.learn(cartpole(nenv=3), run_dir=False, **FEW)
        held = len(agent.replay)
        agent.learn(cartpole(), run_dir=False, **FEW)
        assert len(agent.replay) - held == agent.steps - 150 > 0

    @pytest.mark.full
    @pytest.mark.parametrize('broken', ['obs', 'reward'])
    def test_nan_while_training_names_what_and_when_and_keeps_the_agent_as_it_was_before(self, broken, tmp_path):
        class Breaks(gymnasium.Wrapper):
            count = 0

            def step(self, action: Any) -> Any:
                obs, reward, *rest = self.env.step(action)
                self.count += 1
                if self.count == 120:
                    obs, reward = (np.full_like(obs, np.nan), reward) if broken == 'obs' else (obs, float('inf'))
                return (obs, reward, *rest)

        env = Breaks(gymnasium.make('CartPole-v1'))
        what = 'an observation that is nan' if broken == 'obs' else 'a reward that is inf'
        with pytest.raises(
            FloatingPointError, match=rf'step 120: the environment gave {what}.*checkpoint: .*000000119\.$'
        ) as info:
            dqn().learn(env, run_dir=tmp_path / 'run', checkpoint_every=15, **FEW)
        assert '\n' not in str(info.value)
        assert zoo.load(tmp_path / 'run').steps == 119
        assert (tmp_path / 'run' / 'checkpoints' / '000000105').is_dir()

    @pytest.mark.full
    def test_a_loss_that_is_not_finite_names_it(self):
        env = gymnasium.wrappers.TransformReward(gymnasium.make('CartPole-v1'), lambda reward: 1e30)
        with pytest.raises(
            FloatingPointError, match=r"step \d+: the loss '\w+' became (inf|nan): a smaller learning rate"
        ):
            ppo(env.observation_space, env.action_space).learn(
                env, run_dir=False, train_steps=64, horizon=32, batch_size=8
            )


@pytest.fixture(scope='module')
def run(tmp_path_factory) -> tuple[Any, Path]:
    """A trained agent and its run directory."""
    env = build_env('CartPole-v1', 'classic_control')
    agent = algorithms.DQN(env.observation_space, env.action_space, net_list=[TINY], gamma=0.9, dueling=True)
    folder = tmp_path_factory.mktemp('run')
    agent.learn(env, seed=0, run_dir=folder, checkpoint_every=15, **FEW)
    return agent, folder


@pytest.mark.usefixtures('plain_updates')
class TestSaveAndLoad:
    @pytest.mark.full
    def test_load_of_a_run_directory_takes_the_newest_checkpoint(self, run):
        agent, folder = run
        for load in (zoo.load, algorithms.DQN.load):
            loaded = load(folder)
            assert type(loaded) is algorithms.DQN and loaded.steps == 150
            assert (loaded.gamma, loaded.dueling) == (0.9, True)
            obs = np.random.default_rng(0).normal(size=(50, 4))
            np.testing.assert_array_equal(loaded.predict(obs), agent.predict(obs))

    def test_load_of_one_checkpoint(self, run):
        _, folder = run
        assert zoo.load(folder / 'checkpoints' / '000000090').steps == 90
        assert zoo.load(str(folder / 'checkpoints' / '000000090')).steps == 90

    def test_an_unfinished_checkpoint_is_not_the_newest(self, run, tmp_path):
        _, folder = run
        shutil.copytree(folder, tmp_path / 'copy')
        (tmp_path / 'copy' / 'checkpoints' / '.000000999.new-01234567').mkdir()
        assert zoo.load(tmp_path / 'copy').steps == 150

    def test_save_returns_the_path_and_replaces(self, run, tmp_path):
        agent, _ = run
        assert agent.save(tmp_path / 'saved') == tmp_path / 'saved'
        agent.save(str(tmp_path / 'saved'))
        assert zoo.load(tmp_path / 'saved').steps == 150

    def test_another_algorithm_is_refused(self, run):
        with pytest.raises(
            CheckpointError, match=r'holds a DQN agent: load it with DQN\.load, or an algorithm of zoo with zoo\.load'
        ):
            algorithms.PPO.load(run[1])

    def test_a_class_of_ones_own_is_told_how_it_is_trained(self):
        own = type('SoftQ', (), {})
        with pytest.raises(
            ValueError, match=r"SoftQ\(env\.observation_space, env\.action_space\)\.learn\(env, 'train'\)"
        ):
            zoo.train(own, 'CartPole-v1')
        with pytest.raises(ValueError, match="not as a class: write 'DQN'"):
            zoo.call_default_params(zoo.build_env('CartPole-v1'), 'classic_control', algorithms.DQN)
        with pytest.raises(AttributeError, match="'biuld_env': did you mean 'build_env'"):
            zoo.biuld_env  # noqa: B018

    def test_an_algorithm_of_a_later_version_is_refused(self, run, monkeypatch):
        monkeypatch.setattr('zoo.algorithms.base.catalog.NAMES', ('PPO', 'SAC', 'TD3'))
        with pytest.raises(
            CheckpointError,
            match=r"000000150' cannot be loaded: DQN is no algorithm of this zoo.*DQN\.load\(path\).*later zoo",
        ):
            zoo.load(run[1])

    @pytest.mark.parametrize(
        'load', [lambda path: zoo.load(path), lambda path: algorithms.DQN.load(path)], ids=['zoo', 'class']
    )
    def test_nothing_there(self, load, tmp_path):
        with pytest.raises(CheckpointError, match='there is no checkpoint at'):
            load(tmp_path / 'nothing')

    def test_a_run_without_checkpoints(self, tmp_path):
        (tmp_path / 'run' / 'checkpoints').mkdir(parents=True)
        with pytest.raises(CheckpointError, match='is a run, not a checkpoint'):
            zoo.load(tmp_path / 'run')

    def test_a_truncated_file_is_refused_by_name(self, run, tmp_path):
        shutil.copytree(run[1] / 'checkpoints' / '000000150', tmp_path / 'cut')
        file = tmp_path / 'cut' / 'weights.safetensors'
        os.truncate(file, file.stat().st_size - 1)
        with pytest.raises(CheckpointError, match=r"weights\.safetensors' is truncated"):
            zoo.load(tmp_path / 'cut')

    def test_a_network_of_the_users_own_is_handed_to_load(self, tmp_path):
        def network() -> keras.Model:
            return keras.Sequential([keras.Input((4,)), keras.layers.Dense(5, 'elu'), keras.layers.Dense(2)])

        env = cartpole()
        agent = algorithms.DQN(
            env.observation_space, env.action_space, net_list=[network()], optimizers_list=[keras.optimizers.SGD(0.1)]
        )
        agent.learn(env, seed=0, run_dir=False, **FEW)
        agent.save(tmp_path / 'saved')
        with pytest.raises(
            ValueError, match=r'net_list\[0\] a Sequential defined in Python.*load\(path, net_list=\[…\]\)\.$'
        ):
            zoo.load(tmp_path / 'saved')
        with pytest.raises(ValueError, match=r'optimizers_list\[0\] a SGD defined in Python'):
            zoo.load(tmp_path / 'saved', net_list=[network()])
        for load in (zoo.load, algorithms.DQN.load):
            loaded = load(tmp_path / 'saved', net_list=[network()], optimizers_list=[keras.optimizers.SGD(0.1)])
            obs = np.random.default_rng(0).normal(size=(50, 4))
            np.testing.assert_array_equal(loaded.predict(obs), agent.predict(obs))
            np.testing.assert_array_equal(loaded.target.variables[0], agent.target.variables[0])

    def test_a_network_of_other_shapes_is_refused(self, run):
        with pytest.raises(
            ValueError,
            match=r"holds an array of shape .* for 'network/q/0' \(hidden0/kernel\), but this agent has shape \(4, 9\)",
        ):
            zoo.load(run[1], net_list=[{'hidden': [9]}])

    def test_optimizers_other_than_the_saved_begin_anew_and_one_line_says_so(self, run, caplog):
        loaded = zoo.load(run[1], optimizers_list=[keras.optimizers.SGD(0.1)])
        assert type(loaded.optimizers['q'].keras) is keras.optimizers.SGD
        assert loaded.optimizers['q'].keras.iterations.numpy() == 0
        assert [record.levelname for record in caplog.records] == ['WARNING']
        assert 'optimizers_list[0] (q) was saved as another kind of optimizer' in caplog.text
