"""The tests of ``zoo.train``: about ten in a training, the best agent kept, and tested again at the end."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.callbacks.evaluate import Evaluate, check_alone, score_of, shown
from zoo.common.envs.about import about
from zoo.common.records import TestResult
from zoo.common.tools import seeding
from zoo.common.tools.checks import number, whole
from zoo.common.tools.errors import InvalidValue, TimedOut
from zoo.common.tools.files import from_jsonable, write_json
from zoo.common.training import checkpoint, testing
from zoo.common.training.agent import COUNTERS

if TYPE_CHECKING:
    from zoo.common.training.agent import Agent
    from zoo.common.training.training import Training

#: The file in the run directory with the arguments and, at the end, what was found.
_FILE = 'best.json'
#: Tests in a training; the fewest steps between two; the fewest episodes of a test.
_TESTS, _STEPS, _EPISODES = 10, 1_000, 3
#: A training of fewer steps is over in seconds, and its agent has hardly begun to learn.
_SHORT = 2_000
#: The part of the time for tests that those before the end may take; the part of the rest that is planned for the end.
_BEFORE, _PLANNED = 0.5, 0.7
#: Seconds that all tests may always take: a tenth of a training of a few seconds would be too little for them.
_SECONDS = 1.0


class KeepBest(Evaluate):
    """Test about ten times in little time, keep the best agent, and test it again at the end. ``zoo.train`` has one.

    The highest of ten noisy tests reads too high. So at the end the best agent and the last one play the same new
    episodes. If the last one is as good there, it is kept as ``best``. Both results are in ``best.json``.

    Tests take no more than a share of the training's own time, or a second in a shorter training. If time is short, a
    test has fewer episodes, or is left out. So how many episodes there are, and which agent is kept, can depend on the
    speed of the machine. What is trained does not. The time of the tests does not count as time of the training.

    A training of fewer than 2,000 steps is not tested, and neither is one whose environment cannot be built again. A
    test that fails ends the tests with a warning; the training goes on.

    Args:
        every: environment steps between tests; None: a tenth of the training, at least 1,000.
        episodes: the most episodes of a test before the end.
        env, seed, stop_at: as for :class:`Evaluate`.
        share: the most time of all tests, as a part of the training's time, above 0; a second is always allowed. None:
            no limit.
        retest: the most episodes that the best and the last agent play at the end.

    Attributes:
        retested: of the tests at the end, for ``'best'`` and ``'last'``: ``step``, ``mean``, ``std``, ``min`` and
            ``episodes``. If another agent was the best before, it is ``'before'``. Empty without these tests.
    """

    def __init__(
        self,
        every: int | None = None,
        episodes: int = 10,
        env: Env | VectorEnv | None = None,
        seed: int | None = 0,
        stop_at: float | None = None,
        share: float | None = 0.1,
        retest: int = 20,
    ) -> None:
        super().__init__(_STEPS if every is None else every, episodes, env, seed, stop_at=stop_at)
        self.share = None if share is None else number('share', share)
        if self.share is not None and not 0 < self.share:
            raise InvalidValue(f'share is {share!r}: give a number above 0, such as 0.1, or None for no limit.')
        self.retest = whole('retest', retest)
        self.steers = self.steers and env is not None  # else best.json says when it ends the training
        self._given = every
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.retested: dict[str, dict[str, float]] = {}
        self._earlier: dict[str, dict[str, float]] = {}  # of the training that is resumed, while its best is the best
        self._over = False
        self._due = 0
        self._spent = 0.0  # seconds of tests, and of building their environment
        self._reset = 0.0
        self._step: float | None = None
        self._length = self._length_of_best = 0.0  # mean length of the episodes of the last test, and of the best one
        self._left_out = 0

    def begin(self, training: Training) -> None:
        if training.run_dir is None:
            told = 'KeepBest keeps the best agent in the run directory, but run_dir=False writes none'
            raise InvalidValue(f'{told}: let the training write, or take Evaluate(keep_best=False).')
        check_alone(self, training)
        self._begin_anew()
        self.check_environment(training)
        self.recall(training)
        if self._given is None:
            self.every = max(_STEPS, training.train_steps // _TESTS)
            self._over = training.train_steps < _SHORT
        self._due = self._after(training.steps)
        if not self.can_build(training):
            self._over = True
            told = 'build_env did not make this environment from a name, a class or a function'
            told = 'learn was given no environment' if training.env is None else told
            training.say(f'No tests while it trains: {told}. KeepBest(env=…) tests in another one.')
        self._note(training, self._earlier)  # a resumed training tests as this one does

    def __call__(self, training: Training) -> bool | None:
        if self._over or (training.steps < self._due and not training.done):
            return None
        self._due = self._after(training.steps)
        with self._aside(training):
            result = self._tried(training, lambda: self._test(training, f'test/{len(self.steps)}'))
            if result is None:
                self._left_out += not self._over
                return None
            if self.better(float(np.mean(result.returns))):
                self._length_of_best = self._length
                if self._earlier:  # of another agent
                    self._earlier = {}
                    self._note(training, {})
            return self.take(training, result)

    def recall(self, training: Training) -> None:
        """Begin with the tests before; the best agent's score is the one of its second test, if there was one."""
        super().recall(training)
        if self.steps and training.run_dir is not None:
            self._earlier = retested_in(training.run_dir)
            self.best = self._earlier.get('best', {}).get('mean', self.best)

    def better(self, mean: float) -> bool:
        return mean >= self.best  # of equals the one that has trained longer

    def end(self, training: Training) -> None:
        try:
            if training.error is None and training.done and not self._over:
                self._tried(training, lambda: self._test_again(training))
                if self._left_out:
                    training.say(self._why_left_out(training))
                if self.retested:
                    training.say(self.verdict())
        except KeyboardInterrupt:  # the training has ended and is saved
            training.warn('The tests at the end were interrupted.')
        try:
            super().end(training)
        except Exception as error:
            training.warn('The environment of the tests cannot be closed: %s', _why(error))

    def _why_left_out(self, training: Training) -> str:
        told = f'{self._left_out} of {self._left_out + len(self.steps)} tests left out'
        told += '' if self.steps else ', so no score is known'
        if not training.returns and training.env is not None:
            return (
                f'{told}: no episode has ended, and tests play whole ones. build_env(…, max_episode_steps=…) ends them.'
            )
        limit = f'tests take at most {self.share:.0%} of the training time, or a second'
        return f'{told}: {limit}. KeepBest(share=None) has no such limit.'

    def verdict(self) -> str:
        """Return in a line how good the best agent and the last one are; nothing without tests at the end."""
        if not self.retested:
            return ''
        best, last, before = (self.retested.get(name) for name in ('best', 'last', 'before'))
        assert best is not None and last is not None
        other = ''
        if best['step'] != last['step']:
            other = f'; last: step {shown(last)}'
        elif before is not None:
            other = f'; the best until then: step {shown(before)}'
        same = 'the same ' if other else ''
        which = 'the last, ' if best['step'] == last['step'] else ''
        return f'Best: {which}step {shown(best)}{other} (in {same}{best["episodes"]:.0f} new episodes)'

    @property
    def arguments(self) -> dict[str, Any]:
        """What it was made with, as plain data, without an environment."""
        names = ('episodes', 'seed', 'stop_at', 'share', 'retest')
        return {'every': self._given, **{name: getattr(self, name) for name in names}}

    @classmethod
    def of_run(cls, folder: Path) -> KeepBest | None:
        """Return what tested the run in a folder, to go on with; None if its training was not tested like this."""
        found = _read(folder).get('arguments')
        return None if found is None else cls(**found)

    # Testing

    def _after(self, steps: int) -> int:
        every = self.every or _STEPS
        return (steps // every + 1) * every

    @contextlib.contextmanager
    def _aside(self, training: Training) -> Iterator[None]:
        """Count the time that something takes as time of the tests, not of the training."""
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - began
            self._spent += seconds
            training.waited(seconds)

    def _tried(self, training: Training, test: Callable[[], Any]) -> Any:
        """Do something; an error ends the tests, not the training. None if it failed or there was no time for it."""
        try:
            with seeding.global_kept():
                return test()
        except TimedOut:
            return None
        except Exception as error:
            self._over = True
            training.warn('There are no more tests in this training: %s', _why(error))
            return None

    def _affordable(self, training: Training, part: float) -> tuple[float, float]:
        """Return the seconds to plan with, by a part of the share, and the moment at which a test is given up."""
        if self.share is None:
            return math.inf, math.inf
        allowed = max(self.share * training.seconds, _SECONDS * training.progress)
        return part * allowed - self._spent, time.perf_counter() + max(0.0, allowed - self._spent)

    def _test(self, training: Training, stream: str) -> TestResult | None:
        """Play a few episodes, and then as many as there is time for; None if there is no time for a few."""
        if self._affordable(training, _BEFORE)[0] <= 0:
            return None
        began, new = time.perf_counter(), self._step is None
        self.open_environment(training)
        training.agent.forward.refresh()
        if new and self.share is not None:
            self._count(training, 0.0)
            self._spent -= time.perf_counter() - began  # it is built and compiled once, and a test is not to pay for it
        seconds, until = self._affordable(training, _BEFORE)
        began, few = time.perf_counter(), min(_EPISODES, self.episodes)
        until = min(until, began + 2 * seconds)  # episodes may be longer than thought
        if self._count(training, seconds) < few:
            return None
        result = self._play(training, few, stream, until)
        half = seconds / 2 - (time.perf_counter() - began)  # the other half is for later tests of better agents
        more = min(self.episodes - few, self._count(training, half))
        if more < 1:
            return result
        try:
            rest = self._play(training, more, f'{stream}/more', until)
        except TimedOut:
            return result
        mine, others = vars(result).values(), vars(rest).values()
        return TestResult(*(a + b for a, b in zip(mine, others, strict=True)))

    def _play(self, training: Training, count: int, stream: str, until: float) -> TestResult:
        began = time.perf_counter()
        env, seed = self.playing_env, self.seed_of(stream)
        try:
            result = testing.run_test(training.agent, env, test_episodes=count, seed=seed, until=until)
        except TimedOut:
            self._length = 2 * self._expected(training)
            raise
        self._length = float(np.mean(result.lengths))
        self._reset, self._step = 0.0, (time.perf_counter() - began) / sum(result.lengths)
        return result

    def _count(self, training: Training, seconds: float) -> int:
        """Return how many episodes can be played in some seconds."""
        if math.isinf(seconds):
            return max(self.episodes, self.retest)
        if self._step is None:
            self._reset, self._step = testing.pace(training.agent, self.playing_env, self.seed_of('pace'))
        return int(seconds / (self._reset + self._step * self._expected(training)))

    def _expected(self, training: Training) -> float:
        """Return the steps to expect of an episode: the mean of the last test or, if higher, of the training."""
        # No episode may have ended: then it is longer than all of them so far.
        so_far = training.steps / (1 if training.env is None else about(training.env).copies)
        return max(self._length, training.metrics.get('episode/length', so_far))

    def _test_again(self, training: Training) -> None:
        """Test the best agent and the last one on the same new episodes, and write down the result."""
        assert training.run_dir is not None
        agent, path = training.agent, training.run_dir / 'best'
        if not self.steps or not path.is_dir():
            return
        saved = checkpoint.read(path)
        step, last_step = int(saved.config['steps']), agent.steps
        another = step != last_step
        seconds, until = self._affordable(training, 1.0)
        self.open_environment(training)
        self._length = max(self._length, self._length_of_best)
        count = min(self.retest, self._count(training, _PLANNED * seconds / (1 + another)))
        try:
            if count < min(_EPISODES, self.retest):
                raise TimedOut('there is no time for so few')
            agent.forward.refresh()
            last = best = score_of(last_step, self._play(training, count, 'again', until))
            if another:
                with _weights_of(agent, saved):
                    best = score_of(step, self._play(training, count, 'again', until))
        except TimedOut:
            known = 'when it was tested again' if self._earlier else 'in its test; there was no time to test it again'
            training.say(f'Best: step {step:,}: {self.best:.6g} {known}')
            return
        if another and last['mean'] >= best['mean']:
            agent.save(path)
            self.retested = {'best': last, 'last': last, 'before': best}
        else:
            self.retested = {'best': best, 'last': last}
        self._note(training, self.retested)

    def _note(self, training: Training, retested: dict[str, dict[str, float]]) -> None:
        assert training.run_dir is not None
        known = {'arguments': self.arguments} if self.env is None else {}  # else it needs its env
        if known or retested or (training.run_dir / _FILE).exists():
            write_json(training.run_dir / _FILE, known | retested)


def retested_in(folder: Path) -> dict[str, dict[str, float]]:
    """Return :attr:`KeepBest.retested` of the training in a run directory, of agents that are still there.

    Another callback may have replaced the best agent since, and a training that went on without tests the last one.
    """
    newest, best = checkpoint.newest_in(folder), folder / 'best'
    steps = {'last': None if newest is None else checkpoint.steps_of(newest)}
    steps['best'] = checkpoint.steps_of(best) if best.is_dir() else None
    found = {name: score for name, score in _read(folder).items() if name != 'arguments'}
    return {name: score for name, score in found.items() if steps.get(name, score['step']) == score['step']}


def _read(folder: Path) -> dict[str, Any]:
    try:
        found = from_jsonable(json.loads((folder / _FILE).read_text(encoding='utf-8')))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@contextlib.contextmanager
def _weights_of(agent: Agent, saved: checkpoint.SavedCheckpoint) -> Iterator[None]:
    """Give an agent the state in a checkpoint, and then its own again."""
    kept = agent.state()
    try:
        counters = {name: saved.config.get(name, 0) for name in COUNTERS}
        agent.restore_state({**saved.arrays, **counters})
        yield
    finally:
        agent.restore_state(kept)


def _why(error: Exception) -> str:
    return str(error).strip().partition('\n')[0] or type(error).__name__
