"""Training with roles: in processes that learn starts, under each launcher, and when ranks die."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from launchers import ENGINES, ROOT, run_on
from traced import traced

from zoo import algorithms, build_env, call_default_params, load
from zoo.common.records import Episode
from zoo.common.rollouts.rollout_buffer import RolloutBuffer
from zoo.distributed import ClusterError
from zoo.distributed.training import actor
from zoo.distributed.training.exchanges import EndedEpisodes, no_episodes, one_after_another, report
from zoo.distributed.training.learner import Actors
from zoo.distributed.training.plan import END, Plan
from zoo.distributed.training.planning import plan_for
from zoo.distributed.training.roles import build_agent, pack_agent

#: Algorithms that act in a way of their own. The others are subclasses of these and act like them.
ROOTS = [
    name
    for name in algorithms.NAMES
    if name == 'PPO'
    or getattr(algorithms, name).__mro__[1].__name__
    not in ('ActorCritic', 'Adversarial', 'Evolution', *algorithms.NAMES)
    and not getattr(algorithms, name).loop.needs_data
]
#: Parameters of ``learn`` with which a training takes a second.
ON = {'train_steps': 600, 'horizon': 20, 'epochs': 2, 'batch_size': 20}
OFF = {'train_steps': 500, 'explore_steps': 64, 'batch_size': 16, 'update_every': 4, 'buffer_size': 9000}


class Images(gymnasium.Env):
    """Small images and a vector, in episodes of ten steps."""

    observation_space = Dict(camera=Box(0, 255, (12, 12, 3), np.uint8), pose=Box(-1.0, 1.0, (2,), np.float32))
    action_space = Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t == 10, False, {'is_success': True}


class Sums(gymnasium.Env):
    """A goal environment: ten steps add up tenths. By chance the goal is never reached."""

    observation_space = Dict({key: Box(-9, 9, (1,)) for key in ('observation', 'achieved_goal', 'desired_goal')})
    action_space = Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.t, self.sum = 0, 0.0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        self.sum += (int(action) - 1) / 10
        obs = self._observe()
        return obs, float(self.compute_reward(obs['achieved_goal'], 5.0, {})), False, self.t == 10, {}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: dict) -> Any:
        return (np.abs(achieved_goal - desired_goal)[..., 0] < 0.01) - 1.0

    def _observe(self) -> Any:
        now = np.full(1, self.sum, np.float32)
        return {'observation': now, 'achieved_goal': now, 'desired_goal': np.full(1, 5, np.float32)}


def agent_for(name: str, env: Any, **params: Any) -> algorithms.Algorithm:
    """Return an agent with small networks."""
    alg_params, _ = call_default_params(env, 'gymnasium', name, seed=0)
    specs = [entry if isinstance(entry, str) else entry | {'hidden': [8]} for entry in alg_params['net_list']]
    return getattr(algorithms, name)(**alg_params | {'net_list': specs} | params)


def few(agent: Any) -> dict[str, int]:
    found = ON if agent.loop.experience == 'rollouts' else OFF
    return {name: x for name, x in found.items() if name in agent.learn_params()}


def learn(agent: Any, env: Any, **params: Any) -> Any:
    """Train for a short time, or test, with a fixed seed."""
    return agent.learn(env, **{'seed': 1, 'run_dir': False, 'verbose': 0} | few(agent) | params)


def stepped(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.glob('*.stepped')]


def no_processes_left() -> bool:
    listing = subprocess.run(['ps', '-ww', '-o', 'args=', '--ppid', str(os.getpid())], capture_output=True, text=True)
    return 'spawn_main' not in listing.stdout and not list(Path('/dev/shm').glob(f'zoo-job-*/{os.getpid()}'))


# Refused


def test_what_cannot_be_built_elsewhere_is_refused():
    env = build_env(gymnasium.make('CartPole-v1'))
    with pytest.raises(ValueError, match='function that builds all of it'):
        learn(agent_for('PPO', env), env, roles={'actors': 1})
    env = gymnasium.wrappers.TimeLimit(build_env('CartPole-v1'), 50)  # would be lost in the actors
    with pytest.raises(ValueError, match='function that builds all of it'):
        learn(agent_for('PPO', env), env, roles={'actors': 1})


def test_rendering_is_refused():
    env = build_env('CartPole-v1', render_mode='rgb_array')
    with pytest.raises(ValueError, match='with roles the actors step their own'):
        learn(agent_for('PPO', env), env, render=True, roles={'actors': 1})


# Started by this process


@pytest.mark.full(but='DQN')
@pytest.mark.parametrize('name', ROOTS)
def test_light_actors_train_every_algorithm(name: str, tmp_path: Path):
    env_id = 'CartPole-v1' if 'Discrete' in getattr(algorithms, name).acts_in else 'Pendulum-v1'
    env = build_env(traced(env_id, tmp_path), nenv=2)
    agent = agent_for(name, env, normalize_obs=True)
    before = agent.state()
    result = learn(agent, env, roles={'actors': 2})
    # Each actor is a process of its own, without TensorFlow, on one thread. This process has stepped nothing.
    assert sorted(stepped(tmp_path)) == ['False 1'] * 2
    expected = few(agent)['train_steps']
    assert expected <= result.steps == agent.steps <= expected + 80
    assert set(result.losses) == set(agent.metric_names) and all(map(np.isfinite, result.losses.values()))
    assert result.episodes == len(result.returns)
    if env_id == 'CartPole-v1':
        assert result.returns and all(1 <= x <= 500 for x in result.returns)
    moved = agent.state()
    assert all(np.isfinite(x).all() for x in moved.values())
    assert any(np.abs(moved[key] - before[key]).max() > 0 for key in before if key.startswith('network/'))
    assert agent.statistics[''].count == result.steps, 'each observation counts once'
    assert no_processes_left()
    tested = learn(agent, build_env(env_id), mode='test', test_episodes=1, roles=None)
    assert len(tested.returns) == 1


@pytest.mark.full
def test_actors_carry_the_state_of_a_recurrent_policy(tmp_path: Path):
    """Actors have no TensorFlow. Each rollout goes on from its copies' last states; an episode begins with zeros."""
    env = build_env(traced('CartPole-v1', tmp_path), nenv=2)
    nets = [{'hidden': [8], 'recurrent': 'lstm'}, 'actor']
    agent = algorithms.PPO(env.single_observation_space, env.single_action_space, net_list=nets)
    update, rollouts, last = agent.update, [], []

    def look(rollout: Any, **params: Any) -> Any:
        rollouts.append([rollout.state.copy(), rollout.begins.copy(), rollout.terminated | rollout.truncated])
        _, after = agent.policy.network.encode_sequence(rollout.obs, rollout.state, rollout.begins)
        last.append(np.where(rollouts[-1][2][-1][:, None], 0.0, after[-1]))  # with the weights that acted
        return update(rollout, **params)

    agent.update = look
    learn(agent, env, roles={'actors': 2})
    assert sorted(stepped(tmp_path)) == ['False 1'] * 2
    assert len(rollouts) >= 7 and rollouts[0][1][0].all() and not rollouts[0][0].any()
    for (_, _, done), (state, begins, ended), expected in zip(rollouts, rollouts[1:], last, strict=False):
        np.testing.assert_array_equal(begins, np.concatenate([done[-1:], ended[:-1]]))
        np.testing.assert_allclose(state, expected, atol=1e-5)
    assert sum(bool(state.any()) for state, *_ in rollouts) > 3
    with pytest.raises(ValueError, match=r'what PPO acts by is kept along each episode, .*: leave out servers\.$'):
        learn(agent, env, roles={'actors': 1, 'servers': 1})


@pytest.mark.full
def test_a_replay_buffer_has_the_states_that_actors_had(tmp_path: Path):
    """Also for random steps and for an actor that was started again; with a dueling head, without TensorFlow."""
    env = build_env(traced('CartPole-v1', tmp_path, die_at=40))
    nets = [{'hidden': [8], 'activation': 'tanh', 'recurrent': 'lstm'}]  # a state is 0 where no relu is above 0
    agent = algorithms.DQN(env.observation_space, env.action_space, net_list=nets, dueling=True)
    learn(agent, env, roles={'actors': 1}, train_steps=300, batch_size=9000)  # so much is never there
    assert stepped(tmp_path) == ['False 1'] * 2
    replay = agent.replay
    rows = np.flatnonzero(replay.valid)
    before = replay.forward(rows, -1)
    goes_on = replay.valid[before]
    _, after = agent.forward.step(replay.obs[before], replay.recurrent_state[before])
    np.testing.assert_allclose(replay.recurrent_state[rows], np.where(goes_on[:, None], after, 0.0), atol=1e-6)
    assert goes_on.sum() > 200 and 3 < (~goes_on).sum() and replay.recurrent_state[rows][goes_on].any(-1).all()


@pytest.mark.full
def test_learners_and_servers(tmp_path: Path):
    env = build_env(traced('Pendulum-v1', tmp_path))
    agent = agent_for('SAC', env)
    result = learn(agent, env, roles={'learners': 2, 'actors': 2, 'servers': 1}, callbacks=[lambda t: t.steps < 300])
    assert 300 <= result.steps < 500, 'a callback of learner 0 stops them all'
    assert sorted(stepped(tmp_path)) == ['False 1'] * 2
    assert no_processes_left()


@pytest.mark.full
@pytest.mark.parametrize(
    ('roles', 'built'),
    [({'actors': 1}, {'nenv': 2, 'vectorized': 'async'}), ({'learners': 2, 'actors': 2}, {})],
)
def test_learners_tell_transitions_for_other_goals(roles: dict[str, int], built: dict[str, Any]):
    """The rewards come from an environment that learners have but never step."""
    env = build_env(Sums, reward_shaping=lambda reward: 2 * reward, **built)
    agent, seen = agent_for('DQN', env), []
    update_on = agent.update_on
    agent.update_on = lambda batches: seen.append(batches) or update_on(batches)
    learn(agent, env, roles=roles, her={'strategy': 'future', 'k': 4})
    env.close()
    reward = np.concatenate([batch.reward.ravel() for batch in seen])
    assert set(np.unique(reward)) == {-2, 0} and (reward == 0).mean() > 0.2
    assert no_processes_left()


def test_goals_are_looked_for_before_any_process_is_started():
    env = build_env('CartPole-v1')
    with pytest.raises(ValueError, match='her needs a goal environment, but CartPole-v1 is none'):
        learn(agent_for('DQN', env), env, roles={'actors': 1}, her={'k': 4})


@pytest.mark.full
@pytest.mark.parametrize('servers', [0, 1])
def test_images(servers: int):
    """The network is not a chain of dense layers: actors have TensorFlow, or ask a server."""
    env = build_env(Images)
    agent = agent_for('PPO', env)
    assert agent.behavior.light().forward is None
    result = learn(agent, env, roles={'actors': 1, 'servers': servers}, train_steps=60)
    assert result.steps == 60 and result.episodes == 6 and set(result.returns) == {10.0}


@pytest.mark.full
def test_what_the_user_hands_in_is_called_in_learner_0():
    env = build_env('CartPole-v1')
    steps, plotted = [], []

    def stop(training: Any) -> bool:
        steps.append((os.getpid(), training.steps))
        return len(steps) < 2

    result = learn(
        agent_for('PPO', env), env, roles={'actors': 2}, log_every=40, callbacks=[stop], plot_func=plotted.append
    )
    assert steps == [(os.getpid(), 40), (os.getpid(), 80)] and result.steps == 80
    assert len(plotted) == 2 and list(plotted[-1]) == list(result.returns)


@pytest.mark.full
def test_a_callback_that_fails_ends_the_training():
    def fail(training: Any) -> None:
        raise LookupError('no such row')

    env = build_env('CartPole-v1')
    with pytest.raises(LookupError, match='no such row'):
        learn(agent_for('PPO', env), env, roles={'actors': 2}, log_every=40, callbacks=[fail])
    assert no_processes_left()


@pytest.mark.full
def test_returns_are_those_of_all_learners():
    env = build_env('CartPole-v1')
    result = learn(agent_for('PPO', env), env, roles={'learners': 2, 'actors': 2}, train_steps=1200)
    # CartPole's returns are its lengths; only the episodes under way are not among them.
    assert result.steps - 2 * 150 < sum(result.returns) <= result.steps
    # An episode is reported at the step at which it ended. At each step of one learner's actor the other learner's
    # actor has taken one too.
    assert result.episode_steps == sorted(result.episode_steps) and {x % 2 for x in result.episode_steps} == {0}
    assert len({x % 40 for x in result.episode_steps}) > 10


def test_episodes_are_told_in_the_order_in_which_they_ended():
    """For messages at the same time, messages in turn, and no message."""
    collector = SimpleNamespace(steps=100)
    ended = EndedEpisodes(collector)
    messages = []
    for ends in ([(4, 1.0), (8, 2.0)], [(6, 3.0)], []):
        begin = collector.steps
        for at, total in ends:
            collector.steps = begin + at
            ended.add([Episode(total, at, True if total == 2.0 else None, 1)])
        collector.steps = begin + 8
        messages.append((8, ended.numbers()))
    told, training = [], SimpleNamespace(steps=0)

    def stepped(count: int, episodes: list[Episode]) -> None:
        training.steps += count
        told.extend((training.steps, episode) for episode in episodes)

    training.stepped = stepped
    report(training, 24, np.concatenate([one_after_another([message]) for message in messages]))
    first, second, third = Episode(1.0, 4, None, 1), Episode(2.0, 8, True, 1), Episode(3.0, 6, None, 1)
    assert told == [(12, first), (18, third), (24, second)] and training.steps == 24
    told.clear()
    report(training, 24, one_after_another(messages))
    assert told == [(28, first), (32, second), (38, third)] and training.steps == 48
    report(training, 0, one_after_another([(0, no_episodes())]))
    assert training.steps == 48 and len(told) == 3


@pytest.mark.full
def test_nothing_stays_open():
    env = build_env('CartPole-v1')
    agent, counts = agent_for('PPO', env), []
    for _ in range(3):
        learn(agent, env, roles={'actors': 1}, train_steps=40)
        counts.append(len(list(Path('/proc/self/fd').iterdir())))
    assert counts[1] == counts[2]


@pytest.mark.full
@pytest.mark.parametrize('closing', ['raises', 'hangs'])
def test_an_environment_that_cannot_be_closed(closing: str, tmp_path: Path, capfd: pytest.CaptureFixture):
    """The environment is closed when its actor has done its part."""
    env = build_env(traced('CartPole-v1', tmp_path, closing=closing))
    assert learn(agent_for('PPO', env), env, roles={'actors': 1}).steps == 600
    assert 'Started again' not in capfd.readouterr().err
    assert no_processes_left()


@pytest.mark.full
def test_a_broken_environment_that_hangs_when_it_is_closed(tmp_path: Path):
    env = build_env(traced('CartPole-v1', tmp_path, fail_at=50, closing='hangs'))
    with pytest.raises(ClusterError, match='the simulator is broken'):
        learn(agent_for('PPO', env), env, roles={'actors': 1})
    assert no_processes_left()


def test_an_environment_that_cannot_be_sent():
    lock = threading.Lock()

    def make() -> gymnasium.Env:
        with lock:
            return gymnasium.make('CartPole-v1')

    env = build_env(make)
    with pytest.raises(ValueError, match='cannot be sent there .*lock'):
        learn(agent_for('PPO', env), env, roles={'actors': 1})
    assert no_processes_left()


@keras.saving.register_keras_serializable('test')
class Doubled(keras.layers.Layer):
    """A layer that other processes do not know."""

    def call(self, x: Any) -> Any:
        return 2.0 * x


@pytest.mark.full
def test_a_network_of_the_users_own():
    """Classes that only this process knows, such as a script's or a notebook's, are sent with it."""
    env = build_env('CartPole-v1')
    torso = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), Doubled(), keras.layers.LayerNormalization()])
    Doubled.__module__ = '__main__'
    agent = agent_for('DQN', env, net_list=[torso])
    result = learn(agent, env, roles={'actors': 1}, train_steps=128)
    assert result.steps == 128


def test_a_network_that_cannot_be_sent():
    class Opaque:
        def __init__(self) -> None:
            self.dense = keras.layers.Dense(8)
            self.dense.build((None, 4))
            self.lock = __import__('threading').Lock()

        def __call__(self, x: Any) -> Any:
            return self.dense(x)

        @property
        def trainable_variables(self) -> list[Any]:
            return [variable.value for variable in self.dense.trainable_variables]

    env = build_env('CartPole-v1')
    agent = agent_for('PPO', env, net_list=[Opaque(), {'hidden': [8]}])
    with pytest.raises(ValueError, match="the network 'actor' cannot be sent to another process"):
        learn(agent, env, roles={'actors': 1})
    assert no_processes_left()


@keras.saving.register_keras_serializable('zoo_tests')
class Moved(keras.layers.Layer):
    """A layer with an attribute that its configuration does not hold."""

    shift = 0.0

    def call(self, x: Any) -> Any:
        return x + self.shift


class Narrow(algorithms.DQN):
    """An algorithm that chooses its networks itself."""

    def build(self) -> None:
        self.net_list = [{'hidden': [4]}]
        super().build()


def test_a_class_that_makes_its_networks_itself_is_sent():
    env = build_env('CartPole-v1')
    sent = build_agent(pack_agent(Narrow(env.observation_space, env.action_space)))
    assert type(sent) is Narrow and sent.net_list[0]['hidden'] == [4]


@pytest.mark.full
def test_a_keras_network_is_sent_with_its_attributes():
    env = build_env('CartPole-v1')
    moved = Moved()
    moved.shift = 1000.0
    torso = keras.Sequential([keras.Input((4,)), moved, keras.layers.Dense(8)])
    agent = agent_for('DQN', env, net_list=[torso])
    sent = build_agent(pack_agent(agent))
    assert sent.network.torso is not torso
    sent.forward.load(agent.forward.weights())
    obs = np.ones((3, 4), np.float32)
    np.testing.assert_allclose(sent.forward(obs), agent.forward(obs), rtol=1e-5)


@pytest.mark.full
def test_a_run_directory_a_checkpoint_and_going_on(tmp_path: Path):
    env = build_env('CartPole-v1')
    agent = agent_for('PPO', env)
    run_dir = tmp_path / 'run'
    learn(agent, env, roles={'actors': 2}, run_dir=run_dir, checkpoint_every=200, log_every=100)
    names = {path.name for path in run_dir.iterdir()}
    assert {'config.json', 'progress.csv', 'curve.png', 'checkpoints'} <= names
    saved = sorted((run_dir / 'checkpoints').iterdir())
    interrupted = load(saved[0])
    assert interrupted.steps == 200
    result = learn(interrupted, env, roles={'actors': 4}, resume=True, run_dir=run_dir)
    assert (result.steps, interrupted.steps) == (400, 600), 'with another number of actors'


def test_the_learner_is_told_of_new_episodes_at_the_beginning_alone():
    """At a later checkpoint the actors' episodes go on, and so does what PPO keeps along an episode."""
    env = build_env('CartPole-v1')
    agent = agent_for('PPO', env)
    told = []
    agent.episodes_restarted = lambda copies=None: told.append(copies)
    actors = actors_that_send(agent, [(0, True)], [(0, True)])
    assert actors.restart(1) is None and told == [None]
    actors.rollout(SimpleNamespace(stepped=lambda *_: None), 4)
    assert actors.restart(2) is None and told == [None]


def test_the_learner_is_told_of_the_new_episodes_of_an_actor_that_was_replaced():
    """Also if the first message of the new actor came too late."""
    agent = agent_for('PPO', build_env('CartPole-v1'))
    told = []
    agent.episodes_restarted = lambda copies=None: told.append(copies)
    sent = [(0, True), (1, False), (1, True), (2, False)], [(0, True), (1, False), (2, False), (3, False)]
    actors = actors_that_send(agent, *sent)
    for version in (0, 1, 2):
        actors.rollout(SimpleNamespace(stepped=lambda *_: None), 4)
        assert told == ([slice(0, 1)] if version == 2 else [])
    # Each answer has the start of its message, also of the new actor's first one, which came before the version.
    assert [queue.answered for queue in actors.replies] == [[(0, 1), (0, 2), (1, 2)], [(0, 1), (0, 2)]]


@pytest.mark.parametrize('name', ['PPO', 'IMPALA'])
def test_an_actor_heeds_no_answer_to_one_that_has_died(name: str, monkeypatch: pytest.MonkeyPatch):
    env = build_env('CartPole-v1')
    agent = agent_for(name, env)
    params = OFF | ({'horizon': 4} if name == 'PPO' else {'horizon': 4, 'rollouts': 1})
    plan = plan_for(agent, env, {'actors': 1}, 0, 0, 1000, params)
    weights = {'steps': 0, 'progress': 0.0, 'weights': agent.forward.weights()}
    monkeypatch.setattr(actor, 'newest_weights', lambda *_: weights | {'version': 7})
    state = {'steps': 0, 'progress': 0.0}
    replies = deque({'start': 0, 'version': version, **state} for version in (6, 7, 8))
    replies += [{'start': 1, 'version': 7, **state}, {'start': 0, 'version': END, **state}]
    sent: list[dict[str, Any]] = []
    ends = {
        4: SimpleNamespace(put=sent.append),
        3: SimpleNamespace(get=replies.popleft, ready=lambda: len(replies) > 1),
    }
    cluster = SimpleNamespace(restarts=1, role_rank=lambda: 0, queue=lambda *arguments: ends[len(arguments)])
    actor.Actor(cluster, plan, agent.behavior, env).run()
    assert [int(message['start']) for message in sent] == [1] * (2 + plan.ahead)


@pytest.mark.parametrize('wait', [True, False])
def test_learners_publish_the_same_versions_whoever_is_told_of_steps(wait: bool):
    """Otherwise a server would wait for ever for the version of learner 0."""
    env = build_env('CartPole-v1')
    agent = agent_for('DQN', env)
    params = OFF | {'update_every': None, 'updates': None, 'compress': False, 'recorded': None}
    plan = plan_for(agent, env, {'learners': 2, 'actors': 2, 'buffers': 2}, 0, 0, 1000, params)
    queue = SimpleNamespace(get=lambda: {'episodes': no_episodes(), 'added': 0, 'observed': {}}, put=lambda *_: None)
    saved = []
    news = {
        'spent': np.zeros(4),
        'count': 32,
        'idle': np.nan,
        'actor': 0,
        'start': 0,
        'episodes': no_episodes(),
        'observed': {},
    }
    for number, told in ((0, [news] if wait else []), (1, [news | {'actor': 1}])):
        cluster = SimpleNamespace(role_rank=lambda number=number: number, queue=lambda *_: queue)
        cluster.role_all_reduce = lambda x, op: np.array([32 if op == 'sum' else 1])
        cluster.save = lambda _, state, number=number: saved.append((number, state['version']))
        actors = Actors(cluster, plan, agent)
        actors.shards.news = lambda wait, told=told: told
        for _ in range(2):
            agent.updates += 1
            assert not list(actors.steps(SimpleNamespace(stepped=lambda *_: None), 0, wait))
    assert saved == [(0, 0), (0, 1), (1, 0), (1, 1)]


def actors_that_send(agent: algorithms.Algorithm, *sent: list[tuple[int, bool]]) -> Actors:
    """Return the learner's end of actors with one copy each; they send messages with these (version, begins)."""
    rollout = RolloutBuffer(agent.observation_space, agent.action_adaptor, 4, 1).rollout
    common = {'rollout': rollout, 'episodes': no_episodes(), 'spent': np.zeros(4)}
    messages: list[list[dict[str, Any]]] = [[] for _ in sent]
    for each, found in zip(sent, messages, strict=True):
        for version, begins in each:
            start = sum(message['begins'] for message in found) - (not begins)
            found.append(common | {'start': start, 'version': version, 'begins': begins})
    coming = iter(map(iter, messages))

    def queue(*arguments: Any) -> Any:
        take = partial(next, next(coming)) if len(arguments) == 4 else None
        answered: list[tuple[int, int]] = []
        return SimpleNamespace(
            get=take, put=lambda reply, _: answered.append((reply['start'], reply['version'])), answered=answered
        )

    cluster = SimpleNamespace(role_rank=lambda: 0, queue=queue, save=lambda *_: None)
    numbers = list(range(len(sent)))
    layout = SimpleNamespace(learners=1, buffers=0)
    plan = SimpleNamespace(layout=layout, actors_of=lambda *_: numbers, num_envs=1, horizon=4, ahead=0, max_bytes=1)
    plan.answers = 5
    plan.has_gradients, plan.stored, plan.behavior = False, None, agent.behavior
    plan.storage = partial(Plan.storage, plan)
    return Actors(cluster, plan, agent)


@pytest.mark.full
def test_a_dead_actor_is_replaced(tmp_path: Path, capfd: pytest.CaptureFixture):
    # Enough steps that the other actor is not done before the dead one is back; PPO waits for it.
    for name, roles, steps in (
        ('PPO', {'actors': 2}, 600),
        ('DQN', {'actors': 2, 'servers': 1}, 8000),
        ('IMPALA', {'actors': 2}, 6000),
    ):
        folder = tmp_path / name
        folder.mkdir()
        env = build_env(traced('CartPole-v1', folder, die_at=130, delay=0.001 if name == 'IMPALA' else 0.0))
        agent = agent_for(name, env, **{'n_step': 1} if name == 'DQN' else {})
        result = learn(agent, env, roles=roles, train_steps=steps)
        assert result.steps >= steps
        assert (folder / 'died').exists() and len(stepped(folder)) == 3
        errors = capfd.readouterr().err
        assert 'was killed by SIGKILL' in errors and errors.count('Started again (1 of 3).') == 1
        if name == 'DQN':  # no transition goes from the dead actor's end to the new one's beginning
            batch = agent.replay.sample((2000,), np.random.default_rng(0))
            assert np.abs(batch.next_obs[:, 0] - batch.obs[:, 0] - 0.02 * batch.obs[:, 1]).max() < 1e-5
    assert no_processes_left()


class Slow(gymnasium.Wrapper):
    """CartPole that is slow in one actor, the first to make a file. The observation says which actor it is."""

    def __init__(self, folder: str) -> None:
        super().__init__(gymnasium.make('CartPole-v1'))
        self.observation_space = Box(-np.inf, np.inf, (1,), np.float32)
        self.folder, self.slow = Path(folder), None

    def step(self, action: Any) -> Any:
        if self.slow:
            time.sleep(0.1)
        _, *rest = super().step(action)
        return np.full(1, self.slow, np.float32), *rest

    def reset(self, **kwargs: Any) -> Any:
        if self.slow is None:
            try:
                (self.folder / 'slow').touch(exist_ok=False)
                self.slow = True
            except FileExistsError:
                self.slow = False
        _, info = super().reset(**kwargs)
        return np.full(1, self.slow, np.float32), info


@pytest.mark.full
def test_nobody_waits_for_a_slow_actor_whose_rollouts_are_old(tmp_path: Path):
    """IMPALA takes what is there. The slow actor's rollouts have old weights, and their parameters say so."""
    env = build_env(partial(Slow, str(tmp_path)))
    agent = agent_for('IMPALA', env)
    update, slow, params = agent.update, [], []

    def look(rollout: Any, **rest: Any) -> Any:
        slow.append(rollout.obs[0, :, 0].copy())
        params.append(np.abs(rollout.params.reshape(-1, 2) - agent.forward(rollout.obs.reshape(-1, 1))).max())
        return update(rollout, **rest)

    agent.update = look
    (tmp_path / 'slow').unlink(missing_ok=True)  # this process resets its own, and steps none
    learn(
        agent,
        env,
        roles={'actors': 2},
        train_steps=4000,
        horizon=10,
        rollouts=2,
        run_dir=tmp_path / 'run',
        log_every=500,
    )
    assert np.mean(slow) < 0.2, 'most rollouts are those of the fast one'
    assert max(params) > 1e-4, 'the weights have moved since an actor had them'
    rows = list(csv.DictReader((tmp_path / 'run' / 'progress.csv').open()))
    told = {name: [float(row[name]) for row in rows if row.get(name)] for name in rows[0] if name.startswith('roles/')}
    assert set(told) == {
        f'roles/{name}'
        for name in (
            'learner_waits',
            'actors_wait',
            'actor_steps_per_second',
            'learner_updates_per_second',
            'queue',
            'staleness',
        )
    }
    for name in ('learner_waits', 'actors_wait'):
        assert all(0.0 <= x <= 1.0 for x in told[f'roles/{name}'])
    assert max(told['roles/staleness']) > 0 and min(told['roles/actor_steps_per_second']) > 0
    assert no_processes_left()


@pytest.mark.full
def test_learners_that_take_rollouts_as_they_come_from_actors_that_ask_a_server(tmp_path: Path):
    """The parameters of the policy come with the server's actions: without updates in between the ratios are 1."""
    env = build_env('CartPole-v1', nenv=2)
    agent = agent_for('IMPALA', env, optimizers_list=[{'learning_rate': 1e-9}])
    roles = {'learners': 2, 'actors': 2, 'servers': 1}
    result = learn(agent, env, roles=roles, run_dir=tmp_path, log_every=100, train_steps=1500)
    assert result.steps >= 1500 and result.losses['rho'] == pytest.approx(1.0, abs=1e-4)
    assert 'roles/servers_wait' in (tmp_path / 'progress.csv').read_text().splitlines()[0]
    assert no_processes_left()


@pytest.mark.full
def test_actors_that_compute_gradients(tmp_path: Path):
    """Each actor has TensorFlow. One that dies is replaced, and no actor waits for another."""
    env = build_env(traced('CartPole-v1', tmp_path, die_at=130, delay=0.002), nenv=2)
    agent = agent_for('A3C', env, normalize_obs=True)
    before = agent.state()
    steps = 4000
    result = learn(agent, env, roles={'actors': 2}, train_steps=steps, horizon=5, run_dir=tmp_path / 'run')
    assert steps <= result.steps == agent.steps < steps + 10 and result.episodes > 50
    assert len(stepped(tmp_path)) == 3 and {x.split()[0] for x in stepped(tmp_path)} == {'True'}
    moved = agent.state()
    for name in ('network/actor/0', 'network/critic/0'):
        assert np.isfinite(moved[name]).all() and np.abs(moved[name] - before[name]).max() > 0
    # Statistics and steps count what all actors have seen.
    assert agent.statistics[''].count == result.steps
    assert set(result.losses) == set(agent.metric_names)
    rows = list(csv.DictReader((tmp_path / 'run' / 'progress.csv').open()))
    # The first gradient of an actor takes as long as it takes to compile.
    assert 0.0 <= np.median([float(row['roles/staleness']) for row in rows]) <= 2.0
    assert max(float(row['roles/staleness']) for row in rows) > 0.0
    assert no_processes_left()


@pytest.mark.full
def test_an_actor_that_fails_every_time_ends_the_training(tmp_path: Path, capfd: pytest.CaptureFixture):
    env = build_env(traced('CartPole-v1', tmp_path, fail_at=50))
    agent = agent_for('PPO', env)
    with pytest.raises(ClusterError, match=r'rank 1 \(actor 0\) failed(.|\n)*the simulator is broken'):
        learn(agent, env, roles={'actors': 1})
    assert capfd.readouterr().err.count('Started again') == 3
    assert no_processes_left()


@pytest.mark.full
def test_an_environment_that_ends_the_program(tmp_path: Path, capfd: pytest.CaptureFixture):
    env = build_env(traced('CartPole-v1', tmp_path, fail_at=50, exit_with=0))
    words = r'rank 1 \(actor 0\) failed(.|\n)*the environment ended the program, by sys.exit\(0\)\.'
    with pytest.raises(ClusterError, match=words):
        learn(agent_for('PPO', env), env, roles={'actors': 1})
    assert capfd.readouterr().err.count('Started again') == 3
    assert no_processes_left()


@pytest.mark.full
def test_an_environment_whose_maker_ends_the_program(tmp_path: Path):
    here = os.getpid()

    def make() -> gymnasium.Env:
        if os.getpid() != here:
            sys.exit(0)
        return gymnasium.make('CartPole-v1')

    env = build_env(make)
    with pytest.raises(ClusterError, match=r'rank 1 \(actor 0\) failed(.|\n)*ended the program, by sys.exit\(0\)\.'):
        learn(agent_for('PPO', env), env, roles={'actors': 1})
    assert no_processes_left()


@pytest.mark.full
def test_an_actor_that_crashes_at_its_exit_has_done_its_part(tmp_path: Path, capfd: pytest.CaptureFixture):
    env = build_env(traced('CartPole-v1', tmp_path, crashes=True))
    assert learn(agent_for('PPO', env), env, roles={'actors': 1}).steps == 600
    assert 'Started again' not in capfd.readouterr().err
    assert no_processes_left()


NOTEBOOK = [
    """
import gymnasium
from test_train import agent_for, learn
from zoo import build_env

class Mine(gymnasium.Wrapper):
    def step(self, action):
        return self.env.step(action)

env = build_env(lambda: Mine(gymnasium.make('CartPole-v1')))
agent = agent_for('DQN', env)
print(learn(agent, env, roles={'actors': 2, 'servers': 1}).steps >= 500)
""",
    "learn(agent, env, roles={'actors': 2}, train_steps=10**6, run_dir='run', checkpoint_every=200)",
    """
from test_train import no_processes_left
print(agent.steps > 700, len(learn(agent, env, mode='test', test_episodes=1).lengths), no_processes_left())
""",
]


@pytest.mark.full
def test_from_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The classes of a notebook are in no module, and an interrupt ends only the training."""
    pytest.importorskip('ipykernel')
    nbclient, nbformat = pytest.importorskip('nbclient'), pytest.importorskip('nbformat')
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join([str(ROOT), str(Path(__file__).parent), *sys.path]))
    cells = [nbformat.v4.new_code_cell(cell) for cell in NOTEBOOK]
    resources = {'metadata': {'path': str(tmp_path)}}
    client = nbclient.NotebookClient(nbformat.v4.new_notebook(cells=cells), timeout=120, resources=resources)

    def interrupt() -> None:
        while not list(tmp_path.glob('run/checkpoints/*')):
            time.sleep(0.1)
        os.kill(client.km.provisioner.pid, signal.SIGINT)

    with client.setup_kernel():
        client.execute_cell(cells[0], 0)
        thread = threading.Thread(target=interrupt, daemon=True)
        thread.start()
        with pytest.raises(nbclient.exceptions.CellExecutionError, match='KeyboardInterrupt'):
            client.execute_cell(cells[1], 1)
        thread.join()
        client.execute_cell(cells[2], 2)
    printed = [output.text for cell in cells for output in cell.outputs if output.get('name') == 'stdout']
    assert printed == ['True\n', 'True 1 True\n']


# Started by a launcher

PROGRAM = """
import os
from pathlib import Path
from test_train import agent_for, learn
from traced import traced
from zoo import build_env
from zoo.algorithms.base import updating
from zoo.distributed import ClusterError

updating.prefers_xla = lambda variables: False
folder = Path({folder!r})
env = build_env(traced({env_id!r}, folder))
agent = agent_for({name!r}, env)
result = learn(agent, env, roles={roles})
print('trained', result.steps, agent.behavior.forward.weights()['packed'].sum(), flush=True)
(folder / 'tested').write_text(str(learn(agent, env, mode='test', test_episodes=1).lengths))
try:
    learn(agent, env, roles={roles})
except ClusterError as error:
    (folder / 'again').write_text(str(error))
"""


def launch(
    engine: str, ranks: int, folder: Path, name: str, env_id: str, roles: dict, program: str = PROGRAM
) -> subprocess.CompletedProcess:
    script = folder / 'program.py'
    script.write_text(program.format(folder=str(folder), name=name, env_id=env_id, roles=roles))
    return run_on(engine, ranks, script, folder)


@pytest.mark.full
@pytest.mark.parametrize('engine', ENGINES)
def test_the_same_program_under_each_launcher(engine: str, tmp_path: Path):
    """Only learner 0 goes on after learn, and actors have become light."""
    result = launch(engine, 3, tmp_path, 'PPO', 'CartPole-v1', {'actors': 2})
    assert result.returncode == 0, result.stdout
    assert result.stdout.count('trained') == 1
    assert (tmp_path / 'tested').exists()
    assert 'trains with roles once' in (tmp_path / 'again').read_text()
    traces = stepped(tmp_path)
    assert traces.count('False 1') == 2, 'two light actors'
    assert len(traces) == 3, 'and learner 0, which tests'
    assert ('rank 0 is a learner, ranks 1 to 2 are actors' in result.stdout) == (engine != 'local')
    # The trained weights depend only on the seed, not on the launcher.
    folder = tmp_path / 'here'
    folder.mkdir()
    env = build_env(traced('CartPole-v1', folder))
    agent = agent_for('PPO', env)
    steps = learn(agent, env, roles={'actors': 2}).steps
    launched_steps, launched_sum = re.search(r'trained (\d+) (\S+)', result.stdout).groups()
    assert (steps, float(launched_sum)) == (int(launched_steps), pytest.approx(agent.forward.weights()['packed'].sum()))


FAILS = """
from pathlib import Path
from test_train import agent_for, learn
from traced import traced
from zoo import build_env

env = build_env(traced({env_id!r}, Path({folder!r}), **{fails}))
learn(agent_for({name!r}, env), env, roles={roles})
"""


@pytest.mark.full
@pytest.mark.parametrize('way', ['raises', 'exits'])
@pytest.mark.parametrize('engine', ENGINES[1:])  # above it runs on `local`
def test_an_environment_that_fails_under_each_launcher(engine: str, way: str, tmp_path: Path):
    fails = {'fail_at': 50} | ({'exit_with': 0} if way == 'exits' else {})
    program = FAILS.replace('{fails}', repr(fails).replace('{', '{{').replace('}', '}}'))
    result = launch(engine, 2, tmp_path, 'PPO', 'CartPole-v1', {'actors': 1}, program)
    assert result.returncode != 0
    words = 'ended the program, by sys.exit(0).' if way == 'exits' else 'ArithmeticError: the simulator is broken'
    assert 'rank 1 (actor 0) failed' in result.stdout and words in result.stdout, result.stdout


@pytest.mark.full
@pytest.mark.parametrize('engine', ENGINES[1:])
def test_learners_and_servers_under_each_launcher(engine: str, tmp_path: Path):
    result = launch(engine, 5, tmp_path, 'TD3', 'Pendulum-v1', {'learners': 2, 'actors': 2, 'servers': 1})
    assert result.returncode == 0, result.stdout
    assert result.stdout.count('trained') == 1
    assert stepped(tmp_path).count('False 1') == 2


@pytest.mark.full
@pytest.mark.parametrize('engine', ENGINES[1:])
def test_ranks_that_do_not_add_up(engine: str, tmp_path: Path):
    begin = time.monotonic()
    result = launch(engine, 2, tmp_path, 'PPO', 'CartPole-v1', {'actors': 3})
    assert result.returncode != 0
    assert '1 learner + 3 actors make 4 ranks, but 2 were started' in result.stdout
    assert time.monotonic() - begin < 60 and not stepped(tmp_path)


ENDS = """
from pathlib import Path
from test_train import agent_for, learn
from traced import traced
from zoo import build_env
from zoo.algorithms.base import updating

updating.prefers_xla = lambda variables: False
env = build_env(traced({env_id!r}, Path({folder!r}), delay=0.01))
print('trained', learn(agent_for({name!r}, env), env, roles={roles}, train_steps=300).steps, flush=True)
"""


@pytest.mark.full
@pytest.mark.parametrize('engine', ENGINES)
def test_a_program_that_ends_while_actors_are_busy(engine: str, tmp_path: Path):
    """An actor's last message is under way when the training ends, and nothing comes after it."""
    result = launch(engine, 4, tmp_path, 'DQN', 'CartPole-v1', {'actors': 2, 'servers': 1}, ENDS)
    assert result.returncode == 0, result.stdout
    assert 'trained' in result.stdout


LEFT = """
import numpy as np
from test_train import agent_for
from zoo import build_env
from zoo.distributed import PeerLost, Role, connect
from zoo.distributed.training import server
from zoo.distributed.training.exchanges import newest_weights
from zoo.distributed.training.plan import END
from zoo.distributed.training.planning import plan_for

env = build_env({env_id!r})
agent = agent_for({name!r}, env)
params = dict(buffer_size=9000, batch_size=16, update_every=4, updates=None)
plan = plan_for(agent, env, {roles}, 0, 0, 1000, params)
cluster = connect(1, 1, servers=1)
learner, actor = (Role.LEARNER, 0), (Role.ACTOR, 0)
if cluster.role() == Role.LEARNER:
    cluster.save('weights', {{'version': np.int64(END)}})
elif cluster.role() == Role.ACTOR:
    try:
        cluster.queue(learner, actor).get()
    except PeerLost:
        print('weights', newest_weights(cluster, 0))
    served = server.Served(cluster, plan)
    print('action', served(np.zeros((2, 3), np.float32), 1, 0.0).shape)
    served.close()
else:
    server.run(cluster, plan, plan.behavior)
cluster.close()
"""


@pytest.mark.full
@pytest.mark.parametrize('engine', ENGINES)
def test_a_learner_that_has_left_has_ended_the_training(engine: str, tmp_path: Path):
    """A slow actor may act, and ask a server, after the learner has left. That is no failure."""
    result = launch(engine, 3, tmp_path, 'TD3', 'Pendulum-v1', {'actors': 1, 'servers': 1}, LEFT)
    assert result.returncode == 0, result.stdout
    assert 'weights None' in result.stdout and 'action (2, 1)' in result.stdout


SCRIPT = """
import sys
import gymnasium
from zoo import algorithms, build_env, call_default_params
from zoo.algorithms.base import updating

updating.prefers_xla = lambda variables: False

class Mine(gymnasium.Wrapper):
    def __init__(self):
        assert sys.argv[1:] == ['--level', '3'], sys.argv
        super().__init__(gymnasium.make('CartPole-v1'))

gymnasium.register('Mine-v0', entry_point=__name__ + ':Mine', max_episode_steps=50)
env = build_env('Mine-v0')
alg_params, learn_params = call_default_params(env, 'gymnasium', 'PPO')
learn_params |= dict(train_steps=10**9, horizon=64, log_every=64, checkpoint_every=10**8, roles=dict(actors=1))
algorithms.PPO(**alg_params).learn(env, run_dir={run_dir!r}, **learn_params)
"""


@pytest.mark.full
@pytest.mark.parametrize('launcher', [[], ['-m', 'zoo.distributed.run', '-np', '2']], ids=['here', 'launched'])
def test_an_interrupted_script(launcher: list[str], tmp_path: Path):
    """A script registers an environment, reads arguments and is stopped by Ctrl-C: the agent is saved."""
    script, run_dir = tmp_path / 'script.py', tmp_path / 'run'
    script.write_text(SCRIPT.format(run_dir=str(run_dir)))
    command = [sys.executable, *launcher, str(script), '--level', '3']
    environment = os.environ | {'PYTHONPATH': str(ROOT)}
    kept = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
    try:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, kept)
    progress, end = run_dir / 'progress.csv', time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if progress.exists() and len(progress.read_text().splitlines()) > 3:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and 'Interrupted at step' in errors, errors
    assert load(run_dir).steps > 64
