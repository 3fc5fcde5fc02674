"""The loops: what is counted, logged, saved; how they end; and that a resumed run equals an uninterrupted one."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from counting import SPACES, Counting, drive
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import zoo
from zoo.algorithms.base import saving
from zoo.common import plots, spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.env_wrappers import build_env
from zoo.common.maths.normalize import Collected
from zoo.common.records import Batch, TrainingResult, Trajectories, Transition
from zoo.common.replay.replay import Replay
from zoo.common.tools import seeding
from zoo.common.training import checkpoint
from zoo.common.training.collection import Collection
from zoo.common.training.experience import Step
from zoo.common.training.logger import Logger
from zoo.common.training.loops import off_policy, on_policy
from zoo.common.training.monitor import Monitor
from zoo.common.training.testing import run_test
from zoo.common.training.training import Training

TINY = {'hidden': [8]}


class Notes:
    """An agent that learns nothing and writes down what the loops ask of it."""

    def __init__(self, space: gymnasium.Space = SPACES['box']) -> None:
        self.observation_space = space
        self.action_adaptor = ActionAdaptor(Discrete(5))
        self.behavior = Behavior(None, self.action_adaptor)
        self.forward = SimpleNamespace(refresh=lambda: None)
        self.steps, self.data_steps, self.updates, self.progress = 0, 0, 0, 0.0
        self.rng = np.random.default_rng(0)
        self.weight = 1.0
        self.learned = None
        self.replay: Replay | None = None
        self.priorities: np.ndarray | None = None
        self.asked: list[str] = []
        self.rollouts: list[Trajectories] = []
        self.batches: list[Batch] = []
        self.progresses: list[float] = []
        self.saved: list[dict[str, Any]] = []
        self.restarts = 0
        self.loss = 1.0

    def scheduled_values(self) -> dict[str, float]:
        return {'share': self.progress}

    def _zeros(self, what: str, obs: Any) -> np.ndarray:
        self.asked.append(what)
        return np.zeros(len(next(iter(obs.values())) if isinstance(obs, dict) else obs), np.int32)

    def act(self, obs: Any, deterministic: bool = False) -> np.ndarray:
        return self._zeros('mode' if deterministic else 'act', obs)

    def random_action(self, obs: Any) -> np.ndarray:
        return self._zeros('random', obs)

    def update(self, rollout: Trajectories, **params: Any) -> dict[str, float]:
        self.asked.append('update')
        self.params = params
        self.rollouts.append(Trajectories(*(x if x is None else spaces.tree_map(np.copy, x) for x in rollout)))
        return self._metrics()

    def update_on(self, batches: Batch) -> dict[str, float]:
        self.asked.append('update')
        self.batches.append(batches)
        self.updates += len(batches.reward)
        return self._metrics()

    def collected(self) -> Collected:
        return Collected({})

    def observe_moments(self, found: dict[str, Any]) -> None:
        assert found == {}

    def _metrics(self) -> dict[str, float]:
        self.progresses.append(self.progress)
        return {'value': self.loss, 'count': float(self.asked.count('update'))}

    def weights_are_finite(self) -> bool:
        return np.isfinite(self.weight)

    def draw_seed(self) -> int:
        return 777

    def episodes_restarted(self) -> None:
        self.restarts += 1

    def replay_for(self, capacity: int, num_envs: int, compress: bool = False) -> Replay:
        self.replay = self.replay or Replay(self.observation_space, self.action_adaptor, capacity, num_envs)
        return self.replay

    def save(self, path: Path, buffer: bool, loop_state: dict[str, int] | None) -> Path:
        path.mkdir(parents=True, exist_ok=True)
        self.saved.append({'name': path.name, 'buffer': buffer, 'loop_state': loop_state})
        return path


def counting(copies: int = 1, mode: Any = AutoresetMode.SAME_STEP, **kwargs: Any) -> Any:
    factory = partial(Counting, **kwargs)
    return factory() if copies == 1 else SyncVectorEnv([factory] * copies, autoreset_mode=mode)


def train(
    agent: Any, env: Any, steps: int, loop: Callable = on_policy, params: dict | None = None, **kwargs: Any
) -> TrainingResult:
    training = Training(agent, env, steps, verbose=0, env_seed=5, **kwargs)
    return training.run(loop, **(params or {'horizon': 10} if loop is on_policy else params or OFF))


OFF = {'batch_size': 8, 'explore_steps': 20, 'buffer_size': 1000}


def rows_of(run_dir: Path) -> list[dict[str, str]]:
    with open(run_dir / 'progress.csv', newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


# Counts


@pytest.mark.parametrize(('loop', 'taken'), [(on_policy, 120), (off_policy, 102)])
@pytest.mark.parametrize('mode', [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_steps_are_summed_over_copies(loop: Callable, taken: int, mode: AutoresetMode):
    agent = Notes()
    result = train(agent, counting(3, mode), 100, loop)
    assert result.steps == agent.steps == taken
    by_hand = [drive(Counting(), 5 + i, [0] * (taken // 3)) for i in range(3)]
    assert result.episodes == len(result.returns) == sum(len(episodes) for _, episodes in by_hand)
    assert sorted(result.returns) == sorted(total for _, episodes in by_hand for total, _, _ in episodes)
    ends = [3 * (k + 1) for played, _ in by_hand for k, (*_, a, b) in enumerate(played) if a or b]
    assert result.episode_steps == sorted(ends)
    assert result.run_dir is None
    assert result.wall_time > 0


@pytest.mark.parametrize(('length', 'told'), [(10**6, 1), (5, 0)])
def test_a_training_without_the_end_of_an_episode_says_so_once(length: int, told: int, monkeypatch, caplog):
    monkeypatch.setattr(f'{Training.__module__}.LONG_EPISODE', 20)
    train(Notes(), counting(2, length=length), 100)
    warnings = [record.getMessage() for record in caplog.records if 'max_episode_steps' in record.getMessage()]
    assert len(warnings) == told
    assert all(text.startswith('No episode has ended in 40 steps') for text in warnings)


@pytest.mark.parametrize('loop', [on_policy, off_policy])
def test_steps_of_one_environment(loop: Callable):
    agent = Notes()
    result = train(agent, counting(), 95, loop)
    taken = 100 if loop is on_policy else 95
    played, episodes = drive(Counting(), 5, [0] * taken)
    assert result.steps == agent.steps == taken
    assert result.returns == [total for total, _, _ in episodes]
    assert result.episode_steps == [k + 1 for k, (*_, a, b) in enumerate(played) if a or b]
    again = train(agent, counting(), 95, loop)
    assert again.steps == taken, 'the steps of this call'
    assert agent.steps == 2 * taken, 'the steps of its life'


def test_copies_that_reset_in_the_next_step_on_policy():
    """Steps that only reset a copy are marked, not counted; all others are there, exactly."""
    agent = Notes()
    result = train(agent, counting(3, AutoresetMode.NEXT_STEP), 100)
    valid = np.concatenate([rollout.valid for rollout in agent.rollouts])
    assert 0 < (~valid).sum() < valid.size / 2
    assert result.steps == agent.steps == valid.sum() >= 100
    obs, next_obs = (np.concatenate([getattr(x, name) for x in agent.rollouts]) for name in ('obs', 'next_obs'))
    for i in range(3):
        rows = valid[:, i]
        played, _ = drive(Counting(), 5 + i, [0] * rows.sum())
        np.testing.assert_array_equal(obs[rows, i], [[5 + i, episode, t] for episode, t, *_ in played])
        np.testing.assert_array_equal(next_obs[rows, i], [[5 + i, episode, t + 1] for episode, t, *_ in played])


def test_copies_that_reset_in_the_next_step_off_policy():
    agent = Notes()
    result = train(agent, counting(3, AutoresetMode.NEXT_STEP), 100, off_policy)
    assert result.steps == agent.steps == len(agent.replay) >= 100
    for batch in agent.batches:
        np.testing.assert_array_equal(batch.next_obs - batch.obs, np.broadcast_to([0, 0, 1], batch.obs.shape))


def test_update_params_reach_the_algorithm():
    agent = Notes()
    train(agent, counting(2), 40, params={'horizon': 5, 'epochs': 3, 'batch_size': 4})
    assert agent.params == {'epochs': 3, 'batch_size': 4}
    assert len(agent.rollouts) == 4
    assert agent.rollouts[0].reward.shape == (5, 2)
    assert agent.progresses == [0.0, 0.25, 0.5, 0.75]


# Off-policy: when what happens


@pytest.mark.parametrize(
    ('copies', 'params', 'steps', 'calls', 'updates'),
    [
        (1, {}, 100, 81, 1),
        (1, {'update_every': 4}, 100, 21, 4),
        (1, {'update_every': 4, 'updates': 2}, 100, 21, 2),
        (4, {}, 100, 84, 1),
        (3, {'update_every': 2}, 102, 42, 2),
        (1, {'buffer_size': 10}, 100, 81, 1),
        (4, {'update_every': 40, 'updates': 7}, 120, 3, 7),
    ],
)
def test_one_update_for_each_step_or_as_told(copies: int, params: dict, steps: int, calls: int, updates: int):
    """From the step on with which ``explore_steps`` (20) are there; the number does not depend on the copies."""
    agent = Notes()
    train(agent, counting(copies), steps, off_policy, OFF | params)
    assert len(agent.batches) == calls
    assert {batch.reward.shape for batch in agent.batches} == {(updates, 8)}
    assert agent.asked.index('update') * copies >= 20
    assert agent.asked.count('random') == -(-20 // copies)


def test_no_update_before_a_batch_is_there():
    agent = Notes()
    train(agent, counting(), 50, off_policy, {'batch_size': 30, 'explore_steps': 0, 'buffer_size': 100})
    assert len(agent.batches) == 21
    assert 'random' not in agent.asked
    assert agent.asked.index('update') == 30


def test_trained_on_explores_no_more_and_keeps_its_transitions():
    agent = Notes()
    train(agent, counting(), 30, off_policy)
    held, asked = len(agent.replay), len(agent.asked)
    train(agent, counting(), 30, off_policy)
    assert agent.asked[asked : asked + 2] == ['act', 'update']
    assert agent.asked[asked:].count('random') == 0
    assert len(agent.replay) == held + 30


def test_progress_off_policy():
    agent = Notes()
    train(agent, counting(), 50, off_policy, {'batch_size': 1, 'explore_steps': 0, 'buffer_size': 100})
    np.testing.assert_allclose(agent.progresses, np.arange(50) / 50)


# Callbacks, plots, logs


@pytest.mark.parametrize('loop', [on_policy, off_policy])
def test_callbacks_can_stop(loop: Callable, tmp_path: Path):
    seen: list[int] = []

    def stop_at_40(training: Training) -> bool:
        seen.append(training.steps)
        return training.steps < 40

    later: list[int] = []
    result = train(
        Notes(),
        counting(),
        1000,
        loop,
        log_every=10,
        callbacks=[stop_at_40, lambda t: later.append(t.steps)],
        run_dir=tmp_path,
    )
    assert result.steps == 40
    assert seen == later == [10, 20, 30, 40]
    assert [row['step'] for row in rows_of(tmp_path)] == ['10', '20', '30', '40']


def test_callbacks_that_return_nothing_do_not_stop():
    assert train(Notes(), counting(), 50, log_every=10, callbacks=[lambda t: None, lambda t: 0]).steps == 50


def test_what_callbacks_are_handed():
    agent, found = Notes(), []

    def look(training: Training) -> None:
        found.append(
            (training.agent, training.losses['count'], list(training.returns), training.train_steps, training.progress)
        )

    train(agent, counting(), 100, log_every=50, callbacks=[look])
    _, episodes = drive(Counting(), 5, [0] * 100)
    assert [x[:2] for x in found] == [(agent, 5.0), (agent, 10.0)]
    assert found[1][2] == [total for total, _, _ in episodes]
    assert found[1][3:] == (100, 1.0)


def test_plot_func_sees_all_returns():
    seen: list[int] = []
    result = train(Notes(), counting(), 100, log_every=20, plot_func=lambda returns: seen.append(len(returns)))
    assert len(seen) == 5
    assert seen == sorted(seen)
    assert seen[-1] == result.episodes


def test_rows(tmp_path: Path):
    result = train(Notes(), counting(), 105, log_every=20, run_dir=tmp_path)
    rows = rows_of(tmp_path)
    assert [row['step'] for row in rows] == ['20', '40', '60', '80', '100', '110'], 'none twice'
    last = rows[-1]
    _, episodes = drive(Counting(), 5, [0] * 110)
    assert float(last['episode/return']) == pytest.approx(np.mean(result.returns), rel=1e-5)
    assert float(last['episode/length']) == pytest.approx(np.mean([length for _, length, _ in episodes]), rel=1e-5)
    assert float(last['episode/success']) == pytest.approx(np.mean([success for *_, success in episodes]), rel=1e-5)
    assert int(last['episode/count']) == len(episodes) == result.episodes
    assert float(last['loss/value']) == 1.0
    assert float(last['loss/count']) == 11.0
    assert all(float(row['speed/steps_per_second']) > 0 for row in rows)
    assert [float(row['schedule/share']) for row in rows] == pytest.approx(
        [int(row['step']) / 105 for row in rows[:-1]] + [1.0]
    )
    assert result.losses == {'value': 1.0, 'count': 11.0}
    assert (tmp_path / 'curve.png').stat().st_size > 1000
    assert list(tmp_path.glob('events.out.tfevents*'))


def test_the_return_in_a_row_is_that_of_the_last_hundred_episodes(tmp_path: Path):
    result = train(Notes(), counting(length=1), 250, run_dir=tmp_path, log_every=250)
    assert float(rows_of(tmp_path)[-1]['episode/return']) == pytest.approx(np.mean(result.returns[-100:]), rel=1e-5)


def test_about_two_hundred_rows_by_default(tmp_path: Path):
    train(Notes(), counting(), 1000, off_policy, run_dir=tmp_path)
    assert len(rows_of(tmp_path)) == 200


# Checkpoints


@pytest.mark.parametrize('loop', [on_policy, off_policy])
@pytest.mark.parametrize('buffer', [False, True])
def test_checkpoints(loop: Callable, buffer: bool, tmp_path: Path):
    agent = Notes()
    train(agent, counting(), 100, loop, checkpoint_every=30, checkpoint_buffer=buffer, run_dir=tmp_path)
    assert agent.saved == [
        {
            'name': f'{steps:09d}',
            'buffer': buffer,
            'loop_state': {'steps': steps, 'train_steps': 100, 'scheduled': True},
        }
        for steps in (30, 60, 90)
    ] + [{'name': '000000100', 'buffer': buffer, 'loop_state': None}]
    assert agent.restarts == 1, 'a checkpoint begins no new episodes'


@pytest.mark.parametrize('loop', [on_policy, off_policy])
def test_checkpoints_for_an_exact_resume_begin_new_episodes(loop: Callable, tmp_path: Path):
    agent = Notes()
    train(agent, counting(), 100, loop, checkpoint_every=30, exact_resume=True, run_dir=tmp_path)
    assert [saved['buffer'] for saved in agent.saved] == [True] * 4
    assert agent.restarts == 4


def test_checkpoints_by_default(tmp_path: Path):
    agent = Notes()
    train(agent, counting(), 500, off_policy, run_dir=tmp_path)
    assert [x['name'] for x in agent.saved] == ['000000500'], 'short runs save their end'
    training = Training(Notes(), counting(), 1_000_000, verbose=0)
    assert training.checkpoint_every == 100_000


def test_no_transition_crosses_a_checkpoint(tmp_path: Path):
    agent = Notes()
    train(agent, counting(2), 200, off_policy, checkpoint_every=10, exact_resume=True, run_dir=tmp_path)
    assert agent.restarts == 20
    batch = agent.replay.sample((2000,), np.random.default_rng(0))
    assert {5, 6, 777, 778} == set(batch.obs[:, 0])
    np.testing.assert_array_equal(batch.next_obs - batch.obs, np.broadcast_to([0, 0, 1], batch.obs.shape))
    agent = Notes()
    train(agent, counting(2), 200, checkpoint_every=20, exact_resume=True, run_dir=tmp_path / 'on')
    for rollout in agent.rollouts:
        assert (rollout.next_obs - rollout.obs == [0, 0, 1]).all()


@pytest.mark.parametrize('loop', [on_policy, off_policy])
@pytest.mark.parametrize('exact', [False, True])
def test_writing_changes_nothing(loop: Callable, exact: bool, tmp_path: Path):
    found = [
        train(Notes(), counting(2), 300, loop, checkpoint_every=50, exact_resume=exact, run_dir=run_dir)
        for run_dir in (None, tmp_path)
    ]
    assert found[0].returns == found[1].returns
    assert found[0].episode_steps == found[1].episode_steps


@pytest.mark.parametrize('loop', [on_policy, off_policy])
def test_saving_changes_nothing(loop: Callable, tmp_path: Path):
    found = [
        train(Notes(), counting(2), 300, loop, checkpoint_every=every, checkpoint_buffer=True, run_dir=tmp_path / name)
        for name, every in (('once', 1000), ('often', 20))
    ]
    assert found[0].returns == found[1].returns
    assert found[0].episode_steps == found[1].episode_steps


@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize('name', ['PPO', 'DQN'])
def test_saved_and_unsaved_trainings_end_with_equal_weights(name: str, tmp_path: Path):
    params = {'PPO': {'horizon': 20, 'epochs': 1, 'batch_size': 20}, 'DQN': OFF_PARAMS | {'buffer_size': 100}}[name]
    ended = []
    for run_dir in (False, tmp_path):
        env = build_env('CartPole-v1', 'classic_control', nenv=2, seed=3)
        agent = small(name, env)
        agent.learn(env, train_steps=400, run_dir=run_dir, seed=3, checkpoint_every=40, verbose=0, **params)
        ended.append(agent)
    assert len(list((tmp_path / 'checkpoints').iterdir())) == 10
    assert same_state(*ended) == []


def test_a_resumed_training_says_that_its_episodes_are_new(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level('INFO', 'zoo')
    quick_agent().learn(counting(), train_steps=60, run_dir=tmp_path, seed=0, checkpoint_every=30, **LEARN)
    path = tmp_path / 'checkpoints' / '000000030'
    told = 'Resumed at step 30 of 60, with new episodes.'
    for exact in (False, True):
        caplog.clear()
        loaded = zoo.load(path)
        loaded.update_on = quick_agent().update_on
        loaded.learn(counting(), resume=True, run_dir=False, exact_resume=exact, **LEARN)
        assert (told in caplog.messages) != exact


@pytest.mark.parametrize(('every', 'told'), [(26, False), (27, True)])
def test_a_target_that_never_moves_is_said(every: int, told: bool, caplog: pytest.LogCaptureFixture):
    agent = quick_agent(target_update_every=every)
    params = LEARN | {'update_every': 4, 'updates': 1}
    agent.learn(counting(), train_steps=200, run_dir=False, seed=0, **params)
    said = f'target_update_every={every}: the target never moves, since 200 steps have 26 updates at most.'
    assert (said in caplog.messages) == told


# Ends before the end


LEARN = {'explore_steps': 100, 'batch_size': 10, 'buffer_size': 1000, 'verbose': 0}


def quick_agent(update: Callable[[Any], dict[str, float]] = lambda agent: {'q': 1.0}, **params: Any) -> Any:
    """A real agent whose update is ``update``, which saves the time to compile its own."""
    from zoo.algorithms import DQN

    agent = DQN(SPACES['box'], Discrete(5), net_list=[TINY], **params)
    agent.update_on = lambda batches: update(agent)
    return agent


@pytest.mark.parametrize('where', ['callback', 'env'])
def test_interrupt_leaves_a_checkpoint_and_a_curve(where: str, tmp_path: Path):
    class Ctrl(Counting):
        taken = 0

        def step(self, action: int) -> tuple:
            self.taken += 1
            if self.taken == 113 and where == 'env':
                raise KeyboardInterrupt
            return super().step(action)

    def ctrl_c(training: Training) -> None:
        if training.steps >= 100 and where == 'callback':
            raise KeyboardInterrupt

    agent = quick_agent()
    with pytest.raises(KeyboardInterrupt) as told:
        agent.learn(Ctrl(), train_steps=500, run_dir=tmp_path, callbacks=[ctrl_c], seed=0, log_every=50, **LEARN)
    steps = 112 if where == 'env' else 100
    path = tmp_path / 'checkpoints' / f'{steps:09d}'
    assert str(told.value) == f'training was interrupted at step {steps} of 500; saved in {path}'
    assert (tmp_path / 'curve.png').stat().st_size > 1000
    assert rows_of(tmp_path)[-1]['step'] == '100'
    loaded = zoo.load(tmp_path)
    assert loaded.steps == agent.steps == steps
    for name, value in saving.arrays(agent).items():
        np.testing.assert_array_equal(saving.arrays(loaded)[name], value)
    loaded.update_on = agent.update_on
    assert loaded.learn(counting(), resume=True, run_dir=False, **LEARN).steps == 500 - steps
    assert loaded.steps == 500


def test_interrupt_without_a_run_directory():
    agent = Notes()

    def ctrl_c(training: Training) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(agent, counting(), 100, callbacks=[ctrl_c])
    assert not agent.saved


class EndFails:
    """A callback whose ``end`` fails."""

    def __call__(self, training: Training) -> None:
        """Nothing is to be done at a row of the log."""

    def end(self, training: Training) -> None:
        raise RuntimeError('the tracker is gone')


def test_a_full_disk_is_what_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog):
    """Neither the picture, nor the log's own files, nor the end of a callback hides the cause."""

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, 'No space left on device')

    agent = Notes()
    monkeypatch.setattr(agent, 'save', full)
    monkeypatch.setattr(plots, 'learning_curve', lambda *args: 1 / 0)
    for kind in (Logger, Monitor):
        monkeypatch.setattr(kind, 'close', full)
    with pytest.raises(OSError, match='No space left') as caught:
        train(agent, counting(), 100, run_dir=tmp_path, checkpoint_every=50, callbacks=[EndFails()])
    assert caught.traceback[-2].name == '_save' and caught.value.__context__ is None
    for told in ('curve.png', 'progress.csv', 'monitor.csv', 'the tracker is gone', 'The agent could not be saved'):
        assert told in caplog.text


def test_a_training_that_ends_well_says_what_could_not_be_drawn(tmp_path: Path, monkeypatch, caplog):
    monkeypatch.setattr(plots, 'learning_curve', lambda *args: 1 / 0)
    assert train(Notes(), counting(), 100, run_dir=tmp_path).steps == 100
    assert 'curve.png could not be written: division by zero' in caplog.text
    with pytest.raises(RuntimeError, match='the tracker is gone'):
        train(Notes(), counting(), 100, callbacks=[EndFails()])


class Fails(Counting):
    """Breaks in step 130."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.taken = what, 0

    def step(self, action: int) -> tuple:
        obs, reward, *rest = super().step(action)
        self.taken += 1
        if self.taken == 130:
            obs, reward = (obs * np.float32(np.inf), reward) if self.what == 'obs' else (obs, np.nan)
        return obs, reward, *rest


@pytest.mark.full
@pytest.mark.parametrize(
    ('what', 'words'),
    [
        ('obs', r'^step 130: the environment gave an observation that is (inf|nan)\. '),
        ('reward', r'^step 130: the environment gave a reward that is nan\. '),
        ('loss', r"^step 150: the loss 'q' became nan: .*\. "),
        ('weight', r'^step 150: a weight became NaN or infinite: .*\. '),
    ],
)
def test_not_finite_names_what_where_and_the_last_good_checkpoint(what: str, words: str, tmp_path: Path):
    def update(agent: Any) -> dict[str, float]:
        if agent.steps == 150 and what == 'weight':
            agent.trainable_variables[0].assign(agent.trainable_variables[0] * np.nan)
        return {'q': float('nan') if agent.steps == 150 and what == 'loss' else 1.0}

    env = Fails(what) if what in ('obs', 'reward') else Counting()
    with pytest.raises(FloatingPointError, match=words) as caught:
        quick_agent(update).learn(env, train_steps=500, run_dir=tmp_path, seed=0, checkpoint_every=50, **LEARN)
    # What the environment did is no fault of the agent, which is saved as it was before.
    names = ['000000050', '000000100'] + (['000000129'] if what in ('obs', 'reward') else [])
    good = tmp_path / 'checkpoints' / names[-1]
    assert str(caught.value).endswith(f'The last good checkpoint: {good}.')
    assert sorted(path.name for path in (tmp_path / 'checkpoints').iterdir()) == names
    assert (tmp_path / 'curve.png').exists()
    loaded = zoo.load(tmp_path)
    assert loaded.steps == int(names[-1])
    assert all(np.isfinite(value).all() for value in saving.arrays(loaded).values())
    loaded.update_on = lambda batches: {'q': 1.0}
    assert loaded.learn(counting(), resume=True, run_dir=False, **LEARN).steps == 500 - int(names[-1])


def test_not_finite_before_the_first_checkpoint(tmp_path: Path):
    agent = Notes()
    agent.loss = float('inf')
    with pytest.raises(
        FloatingPointError, match=r"^step 10: the loss 'value' became inf.* checkpoint: none was written\.$"
    ):
        train(agent, counting(), 100, run_dir=tmp_path)
    assert not agent.saved


def test_interrupt_does_not_save_weights_that_are_not_finite(tmp_path: Path):
    agent = Notes()

    def ctrl_c(training: Training) -> None:
        agent.weight = np.nan
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(agent, counting(), 100, callbacks=[ctrl_c], run_dir=tmp_path)
    assert not agent.saved


# The test loop


@pytest.mark.parametrize('mode', [None, *AutoresetMode])
@pytest.mark.parametrize('episodes', [1, 2, 7, 12])
def test_each_copy_plays_its_share(mode: AutoresetMode | None, episodes: int):
    copies = 1 if mode is None else 3
    agent = Notes()
    result = run_test(agent, counting(copies, mode), test_episodes=episodes, seed=5)
    shares = [episodes // copies + (i < episodes % copies) for i in range(copies)]
    wanted = [x for i in range(copies) for x in drive(Counting(), 5 + i, [0] * 100)[1][: shares[i]]]
    found = list(zip(result.returns, result.lengths, result.successes, strict=True))
    assert len(found) == episodes
    assert sorted(found) == sorted(wanted)
    assert set(agent.asked) == {'mode'}, 'deterministic'
    assert agent.steps == 0


def test_a_test_without_successes():
    result = run_test(Notes(SPACES['box']), gymnasium.wrappers.TransformReward(Quiet(), lambda r: r), test_episodes=3)
    assert result.successes == [None] * 3


class Quiet(Counting):
    def step(self, action: int) -> tuple:
        *rest, _ = super().step(action)
        return *rest, {}


def test_a_test_refuses_what_is_not_finite():
    with pytest.raises(FloatingPointError, match='^step 130: the environment gave a reward that is nan'):
        run_test(Notes(), Fails('reward'), test_episodes=100, seed=5)


# Exact resume


def same_state(one: Any, two: Any) -> list[str]:
    """Names of what differs: weights, targets, optimiser states, statistics, random state, replay buffer."""
    a, b = saving.arrays(one), saving.arrays(two)
    assert a.keys() == b.keys()
    differing = [name for name in a if not np.array_equal(a[name], b[name])]
    if one.rng.bit_generator.state != two.rng.bit_generator.state:
        differing.append('rng')
    if one.steps != two.steps:
        differing.append('steps')
    if one.replay is not None:
        c, d = one.replay.state(), two.replay.state()
        differing += [f'replay/{name}' for name in c if not np.array_equal(c[name], d[name])]
    return differing


def small(name: str, env: Any, **kwargs: Any) -> Any:
    cls = getattr(zoo.algorithms, name)
    vector = isinstance(env, gymnasium.vector.VectorEnv)
    observation_space = env.single_observation_space if vector else env.observation_space
    action_space = env.single_action_space if vector else env.action_space
    specs = [TINY | {'seed': i} for i in range(len(cls.network_names))]
    return cls(observation_space, action_space, net_list=specs, **kwargs)


PPO_PARAMS = {'horizon': 50, 'epochs': 2, 'batch_size': 25}
OFF_PARAMS = {'batch_size': 16, 'explore_steps': 120, 'checkpoint_buffer': True}
SCALED = {'normalize_obs': True, 'normalize_reward': True}
OFTEN = {'buffer_size': 600, 'update_every': 4, 'average_window': 0.1}
RESUMED = {
    'PPO-1': ('Pendulum-v1', 1, 'PPO', SCALED, PPO_PARAMS),
    'PPO-3': ('CartPole-v1', 3, 'PPO', SCALED, PPO_PARAMS | {'average_window': 0.3}),
    # The buffer is turned over several times, and the updates fall on other steps than the checkpoints.
    'DQN-3': ('CartPole-v1', 3, 'DQN', {}, OFF_PARAMS | {'buffer_size': 100, 'update_every': 7, 'updates': 5}),
    'SAC-1': ('Pendulum-v1', 1, 'SAC', {'normalize_obs': True}, OFF_PARAMS | {'buffer_size': 600, 'update_every': 4}),
    # An odd number of updates lies before the checkpoint: the actor's turn is the other one.
    'TD3-1': ('Pendulum-v1', 1, 'TD3', {}, OFF_PARAMS | {'buffer_size': 5000, 'update_every': 6, 'updates': 1}),
    # Its actor is normalised: it acts by what an update gave, which XLA compiled, or by what was read after loading.
    'CrossQ-1': ('Pendulum-v1', 1, 'CrossQ', {'policy_delay': 1}, OFF_PARAMS | OFTEN),
}


@pytest.mark.full
@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize(
    'case', [pytest.param(case, marks=[pytest.mark.matrix] if case in ('PPO-1', 'TD3-1') else []) for case in RESUMED]
)
def test_resumed_run_equals_the_uninterrupted_one(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """1,000 steps, against a run that is loaded from one of its checkpoints: equal bit for bit."""
    env_id, copies, name, alg_params, params = RESUMED[case]
    if name == 'CrossQ':
        monkeypatch.setattr('zoo.algorithms.base.updating.prefers_xla', lambda variables: True)

    def env() -> Any:
        return build_env(env_id, 'classic_control', nenv=copies)

    params = params | {'checkpoint_every': 300, 'exact_resume': True, 'verbose': 0}
    agent = small(name, env(), **alg_params)
    whole = agent.learn(env(), train_steps=1000, run_dir=tmp_path / 'whole', seed=3, **params)
    paths = sorted((tmp_path / 'whole' / 'checkpoints').iterdir())
    assert len(paths) == 4
    loaded = zoo.load(paths[1])
    begun, ended = saving.arrays(loaded), saving.arrays(agent)
    assert any((begun[name] != ended[name]).any() for name in begun if name.startswith('network/')), 'it did learn'
    rest = loaded.learn(env(), resume=True, run_dir=tmp_path / 'rest', **params)
    assert rest.steps == whole.steps - int(paths[1].name)
    assert same_state(agent, loaded) == []
    assert [path.name for path in sorted((tmp_path / 'rest' / 'checkpoints').iterdir())] == [
        path.name for path in paths[2:]
    ]
    # The episodes after the checkpoint are the same ones too.
    after = [x for x, step in zip(whole.returns, whole.episode_steps, strict=True) if step > int(paths[1].name)]
    assert rest.returns == after


@pytest.mark.usefixtures('plain_graphs')
def test_invalid_rows_are_never_trained_on(tmp_path: Path):
    """Whatever stands in the steps that only reset a copy, PPO's weights become the same."""
    env = counting(3, AutoresetMode.NEXT_STEP)
    agent = small('PPO', env)
    path = agent.save(tmp_path / 'agent')
    notes = Notes()
    train(notes, env, 60, params={'horizon': 20})
    rollout = notes.rollouts[0]
    invalid = ~rollout.valid
    assert invalid.sum() > 5
    poisoned = rollout._replace(
        obs=np.where(invalid[..., None], np.float32(1e4), rollout.obs),
        next_obs=np.where(invalid[..., None], np.float32(-1e4), rollout.next_obs),
        reward=np.where(invalid, np.float32(1e6), rollout.reward),
        action=np.where(invalid, 4, rollout.action),
    )
    other = rollout._replace(reward=np.where(invalid, rollout.reward, 1e6))

    def trained_on(data: Trajectories) -> np.ndarray:
        saved = checkpoint.read(path)
        saving.assign(agent, saved.arrays)
        seeding.restore(agent.rng, saved.config['rng'])
        agent.update(data, epochs=2, batch_size=16)
        return np.concatenate([variable.numpy().ravel() for variable in agent.trainable_variables])

    np.testing.assert_array_equal(trained_on(poisoned), trained_on(rollout))
    assert (trained_on(other) != trained_on(rollout)).any(), 'or else this test could not fail'


def test_a_checkpoint_of_a_finished_run_is_not_resumed(tmp_path: Path):
    quick_agent().learn(Counting(), train_steps=50, run_dir=tmp_path, seed=0, **LEARN)
    with pytest.raises(ValueError, match='^resume=True goes on with an interrupted training'):
        zoo.load(tmp_path).learn(Counting(), resume=True, run_dir=False, **LEARN)


def test_another_buffer_size_is_refused_on_resuming(tmp_path: Path):
    env = build_env('CartPole-v1', 'classic_control')
    agent = small('DQN', env)
    params = OFF_PARAMS | {'verbose': 0, 'explore_steps': 1000}
    agent.learn(env, train_steps=60, run_dir=tmp_path, seed=0, buffer_size=100, checkpoint_every=30, **params)
    loaded = zoo.load(tmp_path / 'checkpoints' / '000000030')
    with pytest.raises(ValueError, match='same buffer_size'):
        loaded.learn(env, resume=True, run_dir=False, buffer_size=120, **params)


def test_flat_observations_of_a_dict():
    agent = Notes(SPACES['dict'])
    for loop in (on_policy, off_policy):
        assert train(agent, counting(2, form='dict'), 60, loop).steps == 60
    assert agent.rollouts[0].obs['deep/bits'].shape == (10, 2, 4)


# Experience from elsewhere


class Elsewhere:
    """What actors would send to one of ``learners`` learners: two copies, three steps at a time, of long episodes."""

    num_envs = 2
    replay = None

    def __init__(self, learners: int = 1) -> None:
        self.learners = learners
        self.t = 0
        self.restarts = 0

    def restart(self, seed: int | None) -> None:
        self.restarts += 1

    def observed(self) -> dict[str, Any]:
        return {}

    def steps(self, training: Training, explore_steps: int, wait: bool = True) -> Iterator[Step]:
        for _ in range(3):
            obs, after = (np.array([[0, 0, t], [1, 0, t]], SPACES['box'].dtype) for t in (self.t, self.t + 1))
            no = np.zeros(2, bool)
            self.t += 1
            yield Step(Transition(obs, np.zeros(2, np.int32), np.zeros(2, np.float32), after, no, no), ~no)
        training.stepped(6 * self.learners, [])

    def least(self, number: int) -> int:
        return number

    def measured(self) -> dict[str, float]:
        return {}


@pytest.mark.parametrize(('learners', 'first'), [(1, 42), (2, 48)])
def test_learners_explore_together_and_each_fills_a_batch(learners: int, first: int):
    """40 steps of exploration, summed over learners; a batch of 16 from each learner's own."""
    agent, updated = Notes(), []

    def note(training: Training) -> None:
        if agent.batches and not updated:
            updated.append(training.steps)

    experience = Elsewhere(learners)
    params = {'batch_size': 16, 'explore_steps': 40, 'buffer_size': 1000}
    training = Training(agent, None, 300, verbose=0, experience=experience, callbacks=[note], log_every=1)
    training.run(off_policy, **params)
    assert updated == [first]
    assert 'act' not in agent.asked, 'others have acted'


# An environment that is being trained on


@pytest.mark.parametrize('nested', ['test', 'train'])
@pytest.mark.parametrize('around', [lambda env: env, lambda env: gymnasium.wrappers.TimeLimit(env, 3)])
def test_the_environment_of_a_training_is_not_stepped_by_its_callbacks(around: Callable, nested: str):
    env = counting()

    def callback(training: Training) -> None:
        if nested == 'test':
            run_test(Notes(), around(env), test_episodes=1)
        else:
            train(Notes(), around(env), 10)

    with pytest.raises(ValueError, match=r'^this environment is being trained on.*build a second one.*build_env.*\.$'):
        train(Notes(), env, 40, log_every=10, callbacks=[callback])
    assert len(run_test(Notes(), env, test_episodes=2).returns) == 2, 'afterwards it may be, also after an error'


def test_a_copy_of_an_environment_that_is_being_trained_on_is_not_stepped():
    env = counting(2)

    def callback(training: Training) -> None:
        run_test(Notes(), env.envs[1], test_episodes=1)

    with pytest.raises(ValueError, match='is being trained on'):
        train(Notes(), env, 40, log_every=10, callbacks=[callback])


def test_a_second_environment_may_be_tested_in_callbacks():
    tested: list[int] = []

    def callback(training: Training) -> None:
        tested.append(len(run_test(Notes(), counting(), test_episodes=2).returns))

    train(Notes(), counting(), 40, log_every=10, callbacks=[callback])
    assert tested and set(tested) == {2}


def test_with_experience_from_elsewhere_the_environment_of_this_process_may_be_tested():
    env = counting()

    class Elsewhere(Collection):
        def __init__(self, agent: Notes) -> None:
            super().__init__(agent, counting())

    def callback(training: Training) -> None:
        run_test(Notes(), env, test_episodes=1)

    agent = Notes()
    assert train(agent, env, 40, log_every=10, callbacks=[callback], experience=Elsewhere(agent)).steps == 40
