"""Replay buffers in ranks of their own: several are drawn from as one, and what happens when a rank dies."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import defaultdict, deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from launchers import ENGINES
from test_train import Sums, agent_for, launch, learn, no_processes_left, stepped
from traced import traced

from zoo import build_env, load, record_episodes
from zoo.common.acting.behavior import Behavior
from zoo.common.acting.greedy import RecurrentEpsilonGreedy
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.records import Trajectories
from zoo.common.replay.replay import Replay
from zoo.common.sampling import Priorities, Sampling, SequenceSampling
from zoo.distributed import ClusterError, PeerLost, Role
from zoo.distributed.layout import Layout
from zoo.distributed.training.buffer import Buffer
from zoo.distributed.training.exchanges import no_episodes, steps_in
from zoo.distributed.training.plan import Plan, Stored
from zoo.distributed.training.planning import plan_for
from zoo.distributed.training.role_metrics import Clock
from zoo.distributed.training.shards import Shards

SPACE, ACTIONS = Box(-np.inf, np.inf, (1,), np.float32), Discrete(2)


class Line:
    """A queue within this process. A wait at it lets the buffers work."""

    def __init__(self, work: Any) -> None:
        self.messages: deque[Any] = deque()
        self.work, self.closed = work, False

    def put(self, x: Any) -> None:
        self.messages.append(x)

    def get(self, timeout: float | None = None) -> Any:
        if not self.messages:
            self.work()
        if not self.messages:
            raise PeerLost('nothing')
        return self.messages.popleft()

    def ready(self) -> bool:
        return bool(self.messages)

    def close(self) -> None:
        self.closed = True


class Here:
    """A learner's shards and its buffers in this process. Actors send steps whose observations are their numbers."""

    def __init__(
        self,
        buffers: int,
        capacity: int,
        exponent: float | None = 1.0,
        actors: int | None = None,
        sequences: SequenceSampling | None = None,
        n_step: int = 1,
    ) -> None:
        layout = Layout(learners=1, actors=actors or buffers, buffers=buffers)
        priorities = None if exponent is None else Priorities(exponent, 0.5)
        params = {'buffer_size': capacity, 'compress': False, 'her': None, 'recorded': None}
        params |= {'batch_size': 4000, 'update_every': 1, 'updates': 1}
        sampling = Sampling(0.9, n_step, priorities, sequences)
        self.adaptor = ActionAdaptor(ACTIONS)
        behavior = Behavior(None, self.adaptor)
        if sequences is not None:
            forward: Any = SimpleNamespace(state_size=sequences.state_size)
            behavior = RecurrentEpsilonGreedy(forward, self.adaptor, None, 0.0).light()
        stored = Stored(SPACE, ACTIONS, sampling)
        self.plan = Plan(
            layout=layout,
            experience='steps',
            horizon=4,
            max_bytes=1 << 20,
            ahead=1,
            num_envs=1,
            explore_steps=0,
            seed=0,
            start=0,
            train_steps=10**6,
            loop_params=params,
            behavior=behavior,
            stored=stored,
        )
        self.lines: dict[Any, Line] = defaultdict(lambda: Line(self.work))
        self.buffers: list[Buffer] = []
        self.buffers = [Buffer(self.cluster(Role.BUFFER, i), self.plan) for i in range(buffers)]
        for buffer in self.buffers:
            buffer.tell({'observed': {}})
        self.clock = Clock()
        self.shards = Shards(self.cluster(Role.LEARNER, 0), self.plan, self.clock)
        self.sent = 0.0
        self.messages: list[tuple[int, dict[str, Any]]] = []

    def cluster(self, role: Role, number: int) -> Any:
        made: dict[Any, int] = defaultdict(int)

        def queue(source: Any, target: Any, *bounds: int) -> Line:
            made[source, target] += 1
            return self.lines[source, target, made[source, target]]

        return SimpleNamespace(role_rank=lambda: number, queue=queue)

    def work(self) -> None:
        for buffer in self.buffers:
            while buffer.asks.ready():
                buffer.answer()

    def send(self, actor: int, priority: list[float] | None = None, begins: bool = False) -> list[float]:
        """Send four steps of an actor; return their observations."""
        rollout: Trajectories = self.plan.storage(SPACE, 1).rollout
        rollout.obs[:, 0, 0] = self.sent + np.arange(4)
        rollout.next_obs[:, 0, 0] = rollout.obs[:, 0, 0] + 1
        rollout.valid[:] = True
        self.sent += 4
        if rollout.states is not None:
            rollout.reward[:, 0] = rollout.obs[:, 0, 0] % 7
            rollout.terminated[3], rollout.truncated[1] = self.sent % 3 == 0, self.sent % 5 == 0
            rollout.states[:] = rollout.obs + np.arange(rollout.states.shape[-1]) / 10
        message = {'start': 0, 'version': 0, 'begins': begins, 'rollout': rollout, 'episodes': no_episodes()}
        self.messages.append((actor, message))
        if priority is not None:
            message['priority'] = np.float32(priority)[:, None]
        i = actor % len(self.buffers)
        buffer = self.buffers[i]
        at = buffer.actors.index(actor)
        buffer.rollouts[at].put(message)
        buffer.take(at)
        assert self.shards.news(wait=False)[0]['count'] == 4
        return rollout.obs[:, 0, 0].tolist()

    def held(self) -> dict[float, float]:
        """Return the observations of the stored transitions with their priorities."""
        found = {}
        for buffer in self.buffers:
            rows = np.flatnonzero(buffer.replay.valid)
            seen = buffer.replay.gather(rows, buffer.rng).obs[:, 0]
            found |= dict(zip(seen.tolist(), buffer.replay.priorities_of(rows).tolist(), strict=True))
        return found


def counts(seen: np.ndarray) -> dict[float, int]:
    return {float(x): int(n) for x, n in zip(*np.unique(seen, return_counts=True), strict=True)}


@pytest.mark.parametrize('buffers', [1, 2, 3])
def test_chances_and_weights_are_those_of_one_buffer(buffers: int):
    """Draws are stratified over all buffers: each transition comes as often as its priority says, to one or two."""
    here = Here(buffers, 100)
    chances: dict[float, float] = {}
    for i, each in enumerate([[1, 2, 3, 4], [10, 20, 30, 40], [5, 6, 7, 8]]):
        chances |= dict(zip(here.send(i % buffers, each, begins=True), each, strict=True))
    total, rng = sum(chances.values()), np.random.default_rng(0)
    for _ in range(3):
        batch = here.shards.sample((1, 4000), rng, 0.0)
        found = counts(batch.obs)
        assert found.keys() == chances.keys()
        for seen, n in found.items():
            assert abs(n - 4000 * chances[seen] / total) <= 2, seen
        expected = (1.0 / np.array([chances[x] for x in batch.obs.ravel().tolist()])) ** 0.5  # the lowest is 1
        np.testing.assert_allclose(batch.weight.ravel(), expected, rtol=1e-5)
        assert np.array_equal(batch.next_obs, batch.obs + 1) and batch.obs.shape == (1, 4000, 1)


def test_uniform_chances_are_those_of_one_buffer():
    """One buffer holds three times as much as the other."""
    here = Here(2, 100, None, actors=4)
    seen = [x for actor in (0, 2, 0, 1) for x in here.send(actor)]
    batches = [here.shards.sample((2, 2000), np.random.default_rng(i), 0.0) for i in range(4)]
    found = counts(np.concatenate([batch.obs for batch in batches]))
    assert sorted(found) == sorted(seen)
    assert max(abs(n - 1000) for n in found.values()) < 5 * 1000**0.5
    assert (batches[0].weight == 1).all()


def test_weights_are_of_the_chances_that_there_were():
    """A buffer whose priorities have changed since the learner heard of them is drawn from too often or too rarely."""
    here = Here(2, 100)
    here.send(0, [1, 1, 1, 1])
    here.send(1, [1, 1, 1, 1])
    rng = np.random.default_rng(0)
    tree = here.buffers[0].replay.tree
    tree.put(np.flatnonzero(here.buffers[0].replay.valid), np.array([1.0, 3.0, 5.0, 7.0]))
    batch = here.shards.sample((1, 4000), rng, 0.0)  # half from each buffer, as if both weighed the same
    found = counts(batch.obs)
    chance = {0.0: 1 / 32, 1.0: 3 / 32, 2.0: 5 / 32, 3.0: 7 / 32, 4.0: 1 / 8, 5.0: 1 / 8, 6.0: 1 / 8, 7.0: 1 / 8}
    assert all(abs(found[x] - 4000 * chance[x]) <= 2 for x in chance)
    expected = [(chance[0.0] / chance[x]) ** 0.5 for x in batch.obs.ravel().tolist()]
    np.testing.assert_allclose(batch.weight.ravel(), expected, rtol=1e-5)
    for _ in range(3):  # the buffer has told the learner by now
        batch = here.shards.sample((1, 4000), rng, 0.0)
    found = counts(batch.obs)
    assert all(abs(found[x] - 4000 * p / 20) <= 2 for x, p in zip(range(8), [1, 3, 5, 7, 1, 1, 1, 1], strict=True))


def test_priorities_that_come_back_reach_their_transitions():
    """Some of the transitions have been overwritten since."""
    here = Here(2, 16)
    for actor in (0, 1, 0, 1):
        here.send(actor, [1, 1, 1, 1])
    batch = here.shards.sample((1, 4000), np.random.default_rng(0), 0.0)
    drawn = set(batch.obs.ravel().tolist())
    assert drawn == set(map(float, range(16)))
    new = here.send(0, [2, 2, 2, 2])
    here.shards.prioritize(10.0 + batch.obs[..., 0])
    here.work()
    held = here.held()
    lost = drawn - held.keys()
    assert lost == {0.0, 1.0, 2.0, 3.0}
    for seen, priority in held.items():
        assert priority == pytest.approx(2.0 if seen in new else 10.0 + seen, abs=1e-4), seen
    # A step without a priority gets the highest one, in both buffers.
    new = here.send(0) + here.send(1)
    assert all(here.held()[x] == pytest.approx(25.0, abs=1e-4) for x in new)
    with pytest.raises(FloatingPointError, match='a priority became nan'):
        here.shards.prioritize(np.full((1, 4000), np.nan))


def test_nothing_goes_on_from_the_steps_of_an_actor_that_has_died():
    here = Here(1, 100)
    here.send(0)
    here.sent = 50.0
    here.send(0, begins=True)
    batch = here.shards.sample((1, 4000), np.random.default_rng(0), 0.0)
    assert np.array_equal(batch.next_obs, batch.obs + 1)


@pytest.mark.parametrize('buffers', [1, 2])
def test_sequences_are_those_of_one_process(buffers: int):
    """At the ends of episodes, the seam of the ring, an actor that has died, and the newest step."""
    sequences, count = SequenceSampling(length=4, burn_in=3, state_size=2), 2000
    here = Here(buffers, 40, actors=2, sequences=sequences, n_step=2)
    one = Replay(SPACE, here.adaptor, 40, 2, here.plan.stored.sampling)
    for i in range(13):
        here.send(i % 2, [1 + i, 2, 3, 4], begins=i in (0, 1, 10))
        for step in steps_in(here.messages[-1][1], i % 2):
            if step.begins:
                one.cut(i % 2, 1)
            one.add(step.transition, step.valid, step.first, step.state, step.priority)
    rows = np.flatnonzero(one.valid)
    expected = one.gather(rows, np.random.default_rng(0))
    first = dict(zip(expected.obs[:, sequences.burn_in, 0].tolist(), range(len(rows)), strict=True))
    batch = here.shards.sample((2, count), np.random.default_rng(0), 0.0)
    assert batch.obs.shape == (2, sequences.rows(2), count, 1)
    seen = np.array([[first[float(x)] for x in own] for own in batch.obs[:, sequences.burn_in, :, 0]])

    def wanted(name: str) -> np.ndarray:
        return np.swapaxes(getattr(expected, name)[seen], 1, 2)

    for name in ('obs', 'action', 'begins', 'valid'):
        np.testing.assert_array_equal(getattr(batch, name), wanted(name), name)
    np.testing.assert_array_equal(batch.state, expected.state[seen])
    valid = batch.valid
    assert not valid.all() and valid[:, 0].all()
    for name in ('at', 'after'):
        rows_of_all = wanted(name) * count + np.arange(count)
        np.testing.assert_array_equal(getattr(batch, name)[valid], rows_of_all[valid], name)
    for name in ('reward', 'discount', 'terminated', 'truncated'):
        np.testing.assert_array_equal(getattr(batch, name)[valid], wanted(name)[valid], name)
    found = np.bincount(seen.ravel(), minlength=len(rows)) / (2 * count)
    priorities = one.priorities_of(rows)
    np.testing.assert_allclose(found, priorities / priorities.sum(), atol=2 / count)


def test_draws_are_ahead():
    """Exactly two draws are made before they are needed. The learner waits for the first one."""
    here = Here(1, 100)
    here.send(0)
    draw = here.buffers[0].draw
    here.buffers[0].draw = lambda fractions: time.sleep(0.05) or draw(fractions)
    here.shards.sample((1, 4000), np.random.default_rng(0), 0.0)
    assert here.clock.lap('buffers')[1] > 0.05
    here.work()
    assert len(here.buffers[0].drawn.messages) == 2


# In processes of their own


@pytest.mark.full(but='DQN-roles6-changed6-her needs a goal environment')
@pytest.mark.parametrize(
    ('name', 'roles', 'changed', 'message'),
    [
        ('PPO', {'actors': 2, 'buffers': 1}, {}, r'learns from rollouts and replays none; leave out buffers\.$'),
        ('DQN', {'actors': 3, 'buffers': 2}, {}, r'each buffer the same number of actors; .* would do\.$'),
        ('DQN', {'learners': 2, 'actors': 6, 'buffers': 3}, {}, r'each learner the same number of buffers, and'),
        ('DQN', {'actors': 2, 'buffers': 1}, {'checkpoint_buffer': True}, r'leave out checkpoint_buffer, or the buf'),
        ('DQN', {'actors': 2}, {'exact_resume': True}, r'the episodes of actors go on: give exact_resume=False'),
        ('DQN', {'actors': 2, 'buffers': 1}, {'compress': True}, r'compress=True is for images'),
        ('DQN', {'actors': 2, 'buffers': 1}, {'recorded': 'none.npz'}, "there are no recorded episodes at 'none.npz'"),
        ('DQN', {'actors': 2, 'buffers': 1}, {'her': {'k': 4}}, 'her needs a goal environment'),
        ('ApexDQN', {'actors': 2, 'servers': 1}, {}, r'every actor of ApexDQN explores in a way of its own'),
        ('ApexDDPG', {'actors': 2, 'servers': 1}, {}, r'but a server acts for all alike: leave out servers\.$'),
    ],
)
def test_what_is_refused(name: str, roles: dict[str, int], changed: dict[str, Any], message: str):
    env = build_env('Pendulum-v1' if name == 'ApexDDPG' else 'CartPole-v1')
    with pytest.raises(ValueError, match=message):
        learn(agent_for(name, env), env, roles=roles, **changed)


@pytest.mark.full
def test_a_buffer_that_the_agent_has_is_not_left_aside():
    env = build_env('CartPole-v1')
    agent = agent_for('DQN', env)
    learn(agent, env, train_steps=100)
    with pytest.raises(ValueError, match='has a replay buffer with transitions already, which these buffers do not ta'):
        learn(agent, env, roles={'actors': 1, 'buffers': 1})
    agent.replay = agent.saved_buffer = None
    params = {'update_every': 1, 'updates': None, 'compress': False, 'recorded': None}
    params |= {'buffer_size': 1000, 'batch_size': 8}
    assert plan_for(agent, env, {'actors': 1, 'buffers': 1}, 0, 0, 9, params).is_light(Role.BUFFER)


def seen_in(agent: Any) -> list[Any]:
    """Return a list that will hold the batches of all later updates of an agent."""
    seen: list[Any] = []
    update_on = agent.update_on
    agent.update_on = lambda batches: seen.append(batches) or update_on(batches)
    return seen


@pytest.mark.full
def test_four_actors_and_two_buffers(tmp_path: Path, capfd: pytest.CaptureFixture):
    """One actor dies. There are as many updates as without buffers, and no transition crosses an episode's end."""
    env = build_env(traced('CartPole-v1', tmp_path, die_at=130))
    agent = agent_for('DQN', env, n_step=1, prioritized=True)
    seen = seen_in(agent)
    result = learn(agent, env, roles={'actors': 4, 'buffers': 2}, train_steps=6000, update_every=8, updates=2)
    assert 6000 <= result.steps <= 6032
    assert agent.updates == (result.steps - 32) // 8 * 2, 'the second message has all that is needed'
    assert capfd.readouterr().err.count('Started again (1 of 3).') == 1
    assert len(stepped(tmp_path)) == 5 and agent.replay is None
    obs, next_obs = (np.concatenate([getattr(batch, x).reshape(-1, 4) for batch in seen]) for x in ('obs', 'next_obs'))
    assert np.abs(next_obs[:, 0] - obs[:, 0] - 0.02 * obs[:, 1]).max() < 1e-5
    assert no_processes_left()


@pytest.mark.full
@pytest.mark.parametrize('params', [{}, {'update_every': None}], ids=['waiting', 'free'])
def test_observations_count_once_in_all_learners(params: dict[str, Any], tmp_path: Path):
    """Buffers tell the moments of what they store, and of recordings, which the buffers of both learners hold."""
    env = build_env('CartPole-v1')
    agent = agent_for('DQN', env, normalize_obs=True)
    recorded = record_episodes(agent, env, tmp_path / 'seen.npz', 4, seed=0).path
    with np.load(recorded) as held:
        steps = held['lengths'].sum()
    roles = {'learners': 2, 'actors': 2, 'buffers': 2}
    result = learn(agent, env, roles=roles, recorded=recorded, run_dir=tmp_path / 'run', **params)
    assert agent.statistics[''].count == pytest.approx(result.steps + steps)
    loaded = load(tmp_path / 'run')
    more = learn(loaded, env, roles=roles, recorded=recorded, **params)
    assert loaded.statistics[''].count == pytest.approx(result.steps + more.steps + 2 * steps), 'filled in once more'


@pytest.mark.full
def test_learners_that_do_not_wait(tmp_path: Path):
    """Two learners with a buffer each update on the same steps again if no new steps come."""
    env = build_env(traced('CartPole-v1', tmp_path, delay=0.02))
    agent = agent_for('DQN', env)
    roles = {'learners': 2, 'actors': 2, 'buffers': 2}
    seen: list[tuple[int, int]] = []

    def look(training: Any) -> bool:  # the first updates are compiled, and meanwhile steps are taken
        seen.append((training.steps, agent.updates))
        return agent.updates - seen[max(0, len(seen) - 4)][1] < 12

    learn(agent, env, roles=roles, train_steps=10**4, update_every=None, log_every=32, callbacks=[look])
    (before, few), (after, many) = seen[max(0, len(seen) - 4)], seen[-1]
    assert many - few > (after - before) / 32, 'more updates than messages'
    assert no_processes_left()


@pytest.mark.full
def test_buffers_tell_transitions_for_other_goals():
    """The rewards come from an environment that the buffer has but never steps."""
    env = build_env(Sums, reward_shaping=lambda reward: 2 * reward)
    agent = agent_for('DQN', env)
    seen = seen_in(agent)
    learn(agent, env, roles={'actors': 1, 'buffers': 1}, her={'strategy': 'future', 'k': 4})
    reward = np.concatenate([batch.reward.ravel() for batch in seen])
    assert set(np.unique(reward)) == {-2, 0} and (reward == 0).mean() > 0.2


class Tenth(gymnasium.Env):
    """An environment with rewards of 0.1."""

    observation_space = Box(0.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)
    reward = 0.1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        return np.full(1, self.t / 10, np.float32), self.reward, self.t == 10, False, {}


@pytest.mark.full
def test_each_buffer_has_its_part_of_what_is_recorded(tmp_path: Path):
    recorded = tmp_path / 'tenths.npz'
    single = build_env(Tenth)
    single.unwrapped.reward = 0.25
    record_episodes(lambda obs: 0, single, recorded, 4)
    env = build_env(Tenth)
    agent = agent_for('DQN', env, gamma=0.0)
    seen = seen_in(agent)
    learn(agent, env, roles={'actors': 2, 'buffers': 2}, recorded=recorded, buffer_size=1000)
    reward = np.concatenate([batch.reward.ravel() for batch in seen])
    assert set(np.unique(reward)) == {np.float32(0.1), np.float32(0.25)}
    first = np.mean(seen[0].reward == np.float32(0.25))
    assert 0 < first < 1, '40 recorded steps among the first 64 taken'


@pytest.mark.full
def test_a_buffer_that_is_killed_ends_the_training():
    env = build_env('CartPole-v1')
    agent = agent_for('DQN', env)

    def kill(training: Any) -> None:
        listing = subprocess.run(
            ['ps', '-ww', '-o', 'pid=,args=', '--ppid', str(os.getpid())], capture_output=True, text=True
        )
        ranks = [int(line.split()[0]) for line in listing.stdout.splitlines() if 'spawn_main' in line]
        os.kill(max(ranks), signal.SIGKILL)  # the rank that was started last

    begin = time.monotonic()
    with pytest.raises(ClusterError, match=r'rank 2 \(buffer 0\) was killed by SIGKILL'):
        learn(agent, env, roles={'actors': 1, 'buffers': 1}, train_steps=10**6, log_every=200, callbacks=[kill])
    assert time.monotonic() - begin < 60 and no_processes_left()


@pytest.mark.full
@pytest.mark.parametrize('engine', ENGINES[1:])  # the first one is `local`, as everywhere above
def test_under_each_launcher(engine: str, tmp_path: Path):
    result = launch(engine, 4, tmp_path, 'TD3', 'Pendulum-v1', {'actors': 2, 'buffers': 1})
    assert result.returncode == 0, result.stdout
    assert result.stdout.count('trained') == 1
    assert stepped(tmp_path).count('False 1') == 2
    assert ('rank 3 is a buffer' in result.stdout) == (engine != 'local')
