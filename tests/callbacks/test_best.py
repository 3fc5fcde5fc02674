"""The tests of ``zoo.train``: what they keep and say, and that they change nothing of the training."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

import zoo
from zoo.callbacks import Evaluate, KeepBest, best

#: A training that only explores, so that nothing is compiled; and one that learns.
FEW: dict[str, Any] = {'net': '8', 'explore_steps': 100_000, 'train_steps': 3000, 'verbose': 0}
LEARNS: dict[str, Any] = {**FEW, 'explore_steps': 500, 'update_every': 50, 'batch_size': 8}


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)


class Draws(gymnasium.Env):
    """Ten steps of a reward that the global generator of NumPy gives, as environments of users do."""

    observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    #: Called by each environment at each step: the copies that a test made have the numbers from 1 on.
    made: ClassVar[list[Draws]] = []

    def __init__(self) -> None:
        self.made.append(self)
        self.count = 0

    def observed(self) -> np.ndarray:
        return np.clip(np.random.randn(1), -10, 10).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self.observed(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.observed(), 1.0, self.count == 10, False, {}


class Scripted(Draws):
    """The return of an episode is what the class says: the same for every policy."""

    score = 0.0

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, _, over, _, _ = super().step(action)
        return obs, self.score / 10, over, False, {}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def scripted_tests(scores: Any, monkeypatch: Any, **given: Any) -> KeepBest:
    """Replace the score of each agent by a given one: first in the tests on the way, then at the end."""
    tests = KeepBest(every=1000, share=None, retest=4, **given)
    play = tests._play

    def with_score(training: Any, count: int, stream: str, until: float) -> Any:
        monkeypatch.setattr(Scripted, 'score', scores[stream.partition('/')[0]][training.agent.steps // 1000])
        return play(training, count, stream, until)

    monkeypatch.setattr(tests, '_play', with_score)
    return tests


def scripted(scores: Any, monkeypatch: Any, **given: Any) -> tuple[Any, Any, KeepBest]:
    """Train with :func:`scripted_tests`."""
    tests = scripted_tests(scores, monkeypatch, **given)
    agent, result = zoo.train('DQN', Scripted, evaluate=tests, **LEARNS)
    return agent, zoo.open_run(result.run_dir), tests


@pytest.mark.parametrize('alg', ['DQN', pytest.param('PPO', marks=pytest.mark.full)])
def test_training_with_tests_equals_training_without_to_the_bit(alg: str):
    params = LEARNS if alg == 'DQN' else {**FEW, 'horizon': 128, 'batch_size': 64}
    params = {name: value for name, value in params.items() if alg == 'DQN' or name != 'explore_steps'}
    states = []
    for evaluate in (True, False):
        np.random.seed(1)
        agent, result = zoo.train(alg, Draws, evaluate=evaluate, **params)
        states.append((agent.state(), result.returns, np.random.rand()))
        assert (result.run_dir / 'evaluations.csv').exists() == evaluate
    assert same(states[0][0], states[1][0]) and states[0][1:] == states[1][1:]


def test_the_best_is_tested_again_and_both_are_said(monkeypatch):
    found = {'test': [0, 5, 30, 10], 'again': [0, 0, 20, 12]}
    agent, run, tests = scripted(found, monkeypatch)
    assert tests.steps == [1000, 2000, 3000] and tests.returns == pytest.approx([5, 30, 10])
    assert agent.steps == 3000 and zoo.load(run, best=True).steps == zoo.load(run.path, best=True).steps == 2000
    assert run.retested == tests.retested and set(run.retested) == {'best', 'last'}
    by_hand = {'step': 2000, 'mean': 20.0, 'std': 0.0, 'min': 20.0, 'episodes': 4}
    assert {name: round(x, 3) for name, x in run.retested['best'].items()} == by_hand
    assert run.retested['last']['mean'] == pytest.approx(12)
    assert tests.verdict().startswith('Best: step 2,000: 20 ± ') and '; last: step 3,000: 12 ± ' in tests.verdict()
    assert same(agent.state(), zoo.load(run).state())  # whose weights the best ones have been put aside for


def test_scores_of_agents_that_are_no_longer_there_are_not_told(monkeypatch):
    agent, run, _ = scripted({'test': [0, 5, 30, 10], 'again': [0, 0, 20, 12]}, monkeypatch)
    assert set(run.retested) == {'best', 'last'}
    agent.steps = 5000
    agent.save(run.path / 'checkpoints' / '000005000')
    assert set(run.retested) == {'best'}
    agent.save(run.path / 'best')  # as another callback does
    assert run.retested == {}


@pytest.mark.parametrize(('score', 'kept'), [(25, 4000), (15, 2000)])
def test_a_resumed_training_compares_with_the_second_test(monkeypatch, score, kept):
    """Not with the first one, which the choice among tests made too high: 30 of the agent that is worth 20."""
    _, run, _ = scripted({'test': [0, 5, 30, 10], 'again': [0, 0, 20, 12]}, monkeypatch)
    later = scripted_tests({'test': [0, 0, 0, 0, score], 'again': [0, 0, 19, 0, 11 + score // 25 * 20]}, monkeypatch)
    if kept == 2000:  # nobody has time for the end
        monkeypatch.setattr(later, '_affordable', lambda training, part: (0.0 if part == 1 else 9.0, math.inf))
        monkeypatch.setattr(later, '_count', lambda training, seconds: int(seconds))
    zoo.resume(run.path, train_steps=4000, env=zoo.build_env(Scripted), evaluate=later, verbose=0)
    again = zoo.open_run(run.path)
    assert zoo.load(again, best=True).steps == kept
    if kept == 2000:
        assert again.retested == run.retested and later.best == pytest.approx(20)
    else:
        assert again.retested['best']['step'] == 4000


def test_the_last_is_kept_if_it_is_as_good(monkeypatch):
    found = {'test': [0, 5, 30, 10], 'again': [0, 0, 11, 12]}
    agent, run, tests = scripted(found, monkeypatch)
    assert same(zoo.load(run, best=True).state(), agent.state())
    assert {name: score['step'] for name, score in run.retested.items()} == {'best': 3000, 'last': 3000, 'before': 2000}
    assert (
        tests.verdict().startswith('Best: the last, step 3,000: 12 ± ') and 'until then: step 2,000' in tests.verdict()
    )


def test_a_training_without_an_end_of_an_episode_says_so(capsys):
    class Endless(Draws):
        def step(self, action):
            obs, reward, _, _, info = super().step(action)
            return obs, reward, False, False, info

    zoo.train('DQN', Endless, **{**FEW, 'verbose': 1})
    told = 'no episode has ended, and tests play whole ones. build_env(…, max_episode_steps=…) ends them.'
    assert told in capsys.readouterr().err


def test_of_equals_the_one_that_trained_longer_is_kept(monkeypatch):
    _, run, _ = scripted({'test': [0, 7, 30, 30], 'again': [0, 0, 0, 9]}, monkeypatch)
    assert zoo.load(run, best=True).steps == 3000 and set(run.retested) == {'best', 'last'}


def test_what_is_said_and_what_is_quiet(capsys):
    _, result = zoo.train('DQN', 'CartPole-v1', **{**FEW, 'verbose': 1})
    said = capsys.readouterr().err.splitlines()
    tests = [line for line in said if line.startswith('Test at step ')]
    assert len(tests) == len({row['step'] for row in rows(result.run_dir / 'evaluations.csv')}) > 0
    assert ' ± ' in tests[0] and ', lowest ' in tests[0] and ' episodes' in tests[0]
    assert said[-1].startswith('Best: ')
    zoo.train('DQN', 'CartPole-v1', **FEW)
    assert capsys.readouterr().err == ''


def rows(path: Path) -> list[dict[str, str]]:
    head, *lines = path.read_text().splitlines()
    return [dict(zip(head.split(','), line.split(','), strict=True)) for line in lines]


def test_the_best_so_far_survives_an_interruption(monkeypatch):
    def interrupt(training: Any) -> None:
        if training.steps >= 1500:
            raise KeyboardInterrupt

    Scripted.score = 50.0
    with pytest.raises(KeyboardInterrupt):
        zoo.train('DQN', Scripted, callbacks=[interrupt], **FEW)
    run = zoo.open_run('last')
    assert run.best is not None and run.retested == {}
    Scripted.score = 5.0
    env = zoo.build_env(Scripted)
    zoo.resume(run, env=env, verbose=0)
    again = zoo.open_run('last')
    assert [float(row['r']) for row in rows(again.path / 'evaluations.csv')][0] == 50
    assert again.retested['before']['step'] < 1500 < again.retested['last']['step'] == 3000
    zoo.train('DQN', Scripted, evaluate=False, callbacks=[], run_dir='plain', **FEW)
    assert KeepBest.of_run(Path('plain')) is None and not Path('plain/best').exists()


def test_short_trainings_and_those_that_write_nothing_are_not_tested():
    Draws.made.clear()
    result = zoo.train('DQN', Draws, **{**FEW, 'train_steps': 1000}).result
    zoo.train('DQN', Draws, run_dir=False, **FEW)
    assert len(Draws.made) == 2
    with pytest.raises(ValueError, match=r'has no best agent.* tests keep one.*2,000 steps'):
        zoo.load(result.run_dir, best=True)


def test_an_environment_that_cannot_be_built_again_is_not_tested(capsys):
    agent, result = zoo.train('DQN', gymnasium.make('CartPole-v1'), **{**FEW, 'verbose': 1})
    assert agent.steps == 3000 and zoo.open_run(result.run_dir).best is None
    said = capsys.readouterr().err
    assert 'No tests while it trains: build_env did not make this environment from a name' in said
    assert 'Test at' not in said and 'Best: ' not in said


def test_a_test_that_fails_ends_the_tests_and_not_the_training(caplog):
    class Alone(Draws):
        def __init__(self) -> None:
            if self.made:
                raise OSError('the port is taken.')
            super().__init__()

    Draws.made.clear()
    assert zoo.train('DQN', Alone, **FEW).agent.steps == 3000
    assert 'There are no more tests in this training: the port is taken.' in caplog.text


class TestTime:
    """A clock that the environment moves: a step of the training 1 ms, a step of a test 10 ms."""

    @pytest.fixture
    def clock(self, monkeypatch) -> dict[str, float]:
        taken = {'training': 0.0, 'tests': 0.0}

        class Slow(Draws):
            length = 10

            def step(self, action: Any) -> Any:
                kind = 'training' if self is self.made[0] else 'tests'
                taken[kind] += 0.001 if kind == 'training' else 0.01
                return super().step(action)

        real = time.perf_counter
        monkeypatch.setattr(time, 'perf_counter', lambda: real() * 1e-6 + sum(taken.values()))
        self.env = Slow
        Draws.made.clear()
        return taken

    def test_tests_take_a_tenth_of_the_time(self, clock, monkeypatch):
        monkeypatch.setattr(best, '_SECONDS', 0.0)
        result = zoo.train('DQN', self.env, **{**FEW, 'train_steps': 20_000}).result
        assert clock['training'] == pytest.approx(20.0) and 0.5 < clock['tests'] <= 2.05
        assert result.wall_time == pytest.approx(clock['training'], abs=0.01)  # the training's own
        retested = zoo.open_run(result.run_dir).retested
        assert 3 <= retested['last']['episodes'] < 20

    def test_without_a_limit_all_episodes_are_played(self, clock):
        tests = KeepBest(share=None, episodes=4, retest=5)
        zoo.train('DQN', self.env, evaluate=tests, **FEW)
        assert len(tests.steps) == 3 and tests.retested['best']['episodes'] == 5
        assert clock['tests'] == pytest.approx(0.01 * 10 * (3 * 4 + 2 * 5) + 0.0, abs=1.01)

    def test_an_episode_without_an_end_does_not_hold_the_training_up(self, clock, monkeypatch):
        monkeypatch.setattr(best, '_SECONDS', 0.0)
        step = self.env.step

        def endless(env: Any, action: Any) -> Any:
            obs, reward, over, _, info = step(env, action)
            return obs, reward, over and env is env.made[0], False, info

        monkeypatch.setattr(self.env, 'step', endless)
        result = zoo.train('DQN', self.env, **{**FEW, 'train_steps': 20_000}).result
        assert result.steps >= 20_000 and 0 < clock['tests'] <= 2.05
        assert zoo.open_run(result.run_dir).best is None


def test_who_tests_instead_and_what_is_refused():
    own = Evaluate(every=1000, episodes=1)
    _, result = zoo.train('DQN', 'CartPole-v1', callbacks=[own], **FEW)
    assert len(own.steps) == 3 and not (result.run_dir / 'best.json').exists()
    assert zoo.load(result.run_dir, best=True).steps in own.steps
    for given in ('yes', 5000, None):
        with pytest.raises(ValueError, match=r'evaluate is .*: give True, False, or a callback'):
            zoo.train('DQN', 'CartPole-v1', evaluate=given, **FEW)  # type: ignore[arg-type]
    for name, value in (('share', 0), ('share', -1), ('share', 'all'), ('retest', 0), ('every', 0), ('episodes', 1.5)):
        with pytest.raises(ValueError, match=name):
            KeepBest(**{name: value})
    with pytest.raises(ValueError, match='KeepBest keeps the best agent in the run directory, but run_dir=False'):
        zoo.train('DQN', 'CartPole-v1', evaluate=KeepBest(), run_dir=False, **FEW)
    with pytest.raises(ValueError, match='evaluate is chosen for each run of a comparison'):
        zoo.compare(['DQN'], 'CartPole-v1', evaluate=True)


def test_its_file_says_how_it_tested():
    zoo.train('DQN', 'CartPole-v1', evaluate=KeepBest(1500, episodes=2, stop_at=1e6, share=0.5, retest=3), **FEW)
    found = json.loads((zoo.open_run('last').path / 'best.json').read_text())['arguments']
    assert found == {'every': 1500, 'episodes': 2, 'seed': 0, 'stop_at': 1e6, 'share': 0.5, 'retest': 3}
    made = KeepBest.of_run(zoo.open_run('last').path)
    assert made is not None and (made.every, made.episodes, made.stop_at, made.share) == (1500, 2, 1e6, 0.5)


def test_what_is_built_once_takes_no_time_from_the_tests(monkeypatch):
    """Building the environment and compiling the first action may take longer than all tests may."""
    open_environment = KeepBest.open_environment

    def slowly(self: KeepBest, training: Any) -> None:
        if self._own is None:
            time.sleep(1.5)
        open_environment(self, training)

    monkeypatch.setattr(KeepBest, 'open_environment', slowly)
    _, result = zoo.train('DQN', Draws, evaluate=KeepBest(every=500), **LEARNS | {'train_steps': 2000})
    assert len(zoo.open_run(result.run_dir).tests) >= 3
