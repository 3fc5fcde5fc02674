"""The training and test loops, shared by every algorithm.

An agent (:class:`zoo.common.agent.Agent`) gives ``act`` and ``update``; a loop stores experience and calls them. Where
the experience comes from is not its business: from the environment in this process (:class:`Collection`) or from actors
in others (:mod:`zoo.distributed.training.learner`). :class:`Training` is what all loops share: counters, logs,
checkpoints, callbacks.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common import plots
from zoo.common.acting import Deterministic
from zoo.common.agent import Agent, Loop
from zoo.common.collect import Collector, training_in
from zoo.common.env_wrappers import env_name
from zoo.common.logging import Logger, Monitor
from zoo.common.params import BatchSize, at_least
from zoo.common.population import SEEDS, Evaluator, both_ways, evaluations
from zoo.common.recorded import TOO_SMALL, fill, opened
from zoo.common.relabel import Goals, Hindsight, Strategy
from zoo.common.replay import Replay
from zoo.common.rollout import RolloutBuffer
from zoo.common.types import (
    Batch,
    Episode,
    Evaluations,
    SequenceBatch,
    TestResult,
    TrainingResult,
    Trajectories,
    Transition,
)

log = logging.getLogger('zoo')

#: The return that logs and callbacks see is the mean of this many last episodes.
WINDOW = 100


class Step(NamedTuple):
    """One step of some of the copies.

    Attributes:
        transition: fields ``[n, …]``.
        valid: bool ``[n]``, False where a copy was only reset.
        first: the number of the first of these ``n`` copies.
        begins: their episodes do not go on from the step of theirs before.
        state: the recurrent state before the step, float32 ``[n, S]``; None where the policy has none.
        priority: how far each is off, |δ| ``[n]``, where who took the step knows; else None.
    """

    transition: Transition
    valid: np.ndarray
    first: int = 0
    begins: bool = False
    state: np.ndarray | None = None
    priority: np.ndarray | None = None


class Stores(Protocol):
    """What :class:`zoo.common.replay.Replay` is to the loop, also where other processes hold the transitions."""

    @property
    def added(self) -> int:
        """Transitions stored so far."""

    @property
    def recorded(self) -> int:
        """How many of them came by whole episodes."""

    def sample(
        self, lead: tuple[int, ...], rng: np.random.Generator, progress: float, hindsight: Hindsight | None = None
    ) -> Batch | SequenceBatch:
        """Transitions, fields ``[*lead, …]``."""

    def prioritize(self, priorities: np.ndarray | None) -> None:
        """Set the priorities ``[*lead]`` of those that were drawn last; None changes nothing."""


class Experience:
    """Where a loop's experience comes from. Of each kind a subclass gives what the loops that it serves ask for.

    Attributes:
        num_envs: copies of the environment that it comes from.
        learners: how many learners have as many each, this one among them.
        replay: where other processes store the steps, what is drawn from them; None: the loop stores them.
    """

    num_envs: int
    learners: int = 1
    replay: Stores | None = None

    def restart(self, seed: int | None) -> bool:
        """Begin new episodes in every copy, if that can be; whether it was done."""
        raise NotImplementedError

    def rollout(self, training: Training, horizon: int) -> Trajectories:
        """``horizon`` steps of every copy with the current policy; tells ``training`` of them."""
        raise NotImplementedError

    def steps(self, training: Training, explore_steps: int, wait: bool = True) -> Iterator[Step]:
        """The next step, or several; random ones in the agent's first ``explore_steps``; tells ``training`` of them.

        Those that others store it only tells of; and unless it is to ``wait``, there may be none.
        """
        raise NotImplementedError

    def stream(self, training: Training, horizon: int, rollouts: int) -> Trajectories:
        """The next rollouts of ``horizon`` steps of some copies, side by side, as they come, of a policy of a while
        ago; tells ``training`` of them."""
        raise NotImplementedError

    def improve(self, training: Training, horizon: int) -> dict[str, float] | None:
        """One update of the agent by ``horizon`` steps of some copies, wherever its gradient is computed; its metrics,
        None where there was nothing to learn. Tells ``training`` of the steps."""
        raise NotImplementedError

    def evaluations(self, training: Training, seeds: np.ndarray, std: float, episodes: int) -> Evaluations:
        """Whole episodes with each of these perturbations of the policy's parameters, both ways; tells ``training``.

        Args:
            training: that asks for them.
            seeds: int64 ``[P]``, of the perturbations.
            std: what they are multiplied by.
            episodes: of each.
        """
        raise NotImplementedError

    def least(self, number: int) -> int:
        """The smallest of the numbers that all learners give, of which there may be others beside this one."""
        return number

    def measured(self) -> dict[str, float]:
        """What is to be logged of where the experience comes from since the last time, by name."""
        return {}


class Collection(Experience):
    """Experience from the environment in this process; see :class:`Experience`.

    Args:
        agent: acts.
        env: the environment, of one copy or several.
        render: draw every step.
        start: steps that a resumed call has behind it.
    """

    def __init__(self, agent: Agent, env: Env | VectorEnv, render: bool = False, start: int = 0) -> None:
        self.agent = agent
        self.collector = Collector(env, agent.action_adaptor, render, agent.behavior.episodes_begin)
        self.collector.steps = start
        self.num_envs = self.collector.num_envs
        self._buffer: RolloutBuffer | None = None
        self._joined: RolloutBuffer | None = None

    def restart(self, seed: int | None) -> bool:
        """See :class:`Experience`."""
        self.collector.reset(seed)
        self.agent.episodes_restarted()
        return True

    def rollout(self, training: Training, horizon: int) -> Trajectories:
        """See :class:`Experience`; the next rollout is written over this one."""
        agent, collector = self.agent, self.collector
        if self._buffer is None:
            self._buffer = buffer_for(agent, horizon, self.num_envs)
        return self._buffer.fill(
            collector,
            agent.act,
            lambda before: training.stepped(collector.steps - before, collector.finished),
            agent.behavior,
        )

    def stream(self, training: Training, horizon: int, rollouts: int) -> Trajectories:
        """See :class:`Experience`: one after another, of the current policy."""
        if self._joined is None:
            self._joined = buffer_for(self.agent, horizon, rollouts * self.num_envs)
        for i in range(rollouts):
            self._joined.put(slice(i * self.num_envs, (i + 1) * self.num_envs), self.rollout(training, horizon))
        return self._joined.rollout

    def improve(self, training: Training, horizon: int) -> dict[str, float] | None:
        """See :class:`Experience`: all of it here."""
        return self.agent.update(self.rollout(training, horizon))

    def steps(self, training: Training, explore_steps: int, wait: bool = True) -> Iterator[Step]:
        """See :class:`Experience`; there is one, which nobody has to wait for."""
        agent, collector = self.agent, self.collector
        obs, before, state = collector.obs, collector.steps, agent.behavior.state
        action = agent.random_action(obs) if agent.steps < explore_steps else agent.act(obs)
        collector.step(action)
        transition = Transition(
            obs, action, collector.reward, collector.next_obs, collector.terminated, collector.truncated
        )
        yield Step(transition, collector.valid, state=state)
        training.stepped(collector.steps - before, collector.finished)

    def evaluations(self, training: Training, seeds: np.ndarray, std: float, episodes: int) -> Evaluations:
        """See :class:`Experience`."""
        collector, behavior = self.collector, self.agent.behavior
        assert isinstance(behavior, Deterministic)  # as the contract says

        def stepped(before: int) -> None:
            training.stepped(collector.steps - before, play.finished)

        play = Evaluator(collector, behavior, episodes)
        return evaluations(seeds, episodes, *play(*both_ways(seeds), std, stepped))


def buffer_for(agent: Agent, horizon: int, num_envs: int) -> RolloutBuffer:
    """Storage of the rollouts of an agent, with what it asks for."""
    behavior = agent.behavior
    return RolloutBuffer(
        agent.observation_space,
        agent.action_adaptor,
        horizon,
        num_envs,
        behavior.state_size,
        behavior.param_size,
    )


class Training:
    """One call of ``learn(env, 'train')``: what callbacks are handed.

    Attributes:
        agent: the algorithm.
        steps: environment steps of this call so far, summed over copies (from 0, or from where an interrupted call is
            resumed); ``train_steps`` is where it ends.
        returns, episode_steps: of every episode that ended in this call, its return and the step count at its end;
            arrays of the standard library.
        losses: the last metrics of ``update``.
        metrics: those of the last row of the log, by name.
        env: the environment that it is trained in, or with roles one like it; a callback tests in another one.
        run_dir: the run directory, or None.
        replay: the replay buffer, where there is one in this process.
        error: what ended the training, where something did, for what a callback does at its end.

    A callback is a function of this, called whenever a row is logged; one that returns False ends the training. One
    that has an attribute ``every`` is called every so many steps instead, at the first update from there on, and at the
    end. Its methods ``begin(training)`` and ``end(training)``, where it has them, are called before the first step and
    after the last one, whatever happened in between; ``logged(training, metrics)`` for each row that a callback writes.

    Args:
        agent, env, train_steps, render, plot_func, callbacks: as for ``learn``.
        run_dir: where to write; None writes nothing.
        env_seed: of the first episodes.
        log_every: steps between rows; None makes some 200 in all.
        checkpoint_every: steps between checkpoints; None makes ten at most, and none before 10,000 steps. Where all
            that an exact resume needs is saved, the episodes under way are cut there and new ones begin.
        checkpoint_buffer: save the replay buffer too.
        progress_bar: show it, where somebody looks.
        start: steps that a resumed call has behind it; ``train_steps`` includes them.
        experience: where the experience comes from; None: from ``env``, which otherwise only gives its name.
        goals: of the environment, where the loop's ``her`` needs them.
    """

    def __init__(
        self,
        agent: Agent,
        env: Env | VectorEnv | None,
        train_steps: int,
        *,
        render: bool = False,
        plot_func: Callable[[Sequence[float]], Any] | None = None,
        callbacks: Iterable[Callable[[Training], bool | None]] = (),
        run_dir: Path | None = None,
        env_seed: int | None = None,
        log_every: int | None = None,
        checkpoint_every: int | None = None,
        checkpoint_buffer: bool = False,
        progress_bar: bool = True,
        start: int = 0,
        experience: Experience | None = None,
        goals: Goals | None = None,
    ) -> None:
        self.agent = agent
        self.goals = goals
        self.train_steps = train_steps
        self.env = env
        self._stepped = env if experience is None else None
        if experience is None:
            assert env is not None  # where there is no other experience
            experience = Collection(agent, env, render, start)
        self.experience = experience
        self.steps = start
        self.run_dir = run_dir
        # Arrays of numbers, since they grow as long as the training lasts.
        self.returns = array('d')
        self.episode_steps = array('q')
        self.losses: dict[str, float] = {}
        self.metrics: dict[str, float] = {}
        self.error: BaseException | None = None
        self.replay: Replay | None = None
        self._start = start
        self._recent: deque[Episode] = deque(maxlen=WINDOW)
        self._plot_func = plot_func
        self._callbacks = tuple(callbacks)
        # Those that are called every so many steps, with the step at which each is due, and was called last.
        self._timed = [callback for callback in self._callbacks if getattr(callback, 'every', None) is not None]
        self._due = [self._after(start, callback) for callback in self._timed]
        self._called = [start for _ in self._timed]
        self._next_due = min(self._due, default=math.inf)
        self._env_seed = env_seed
        self._log_every = log_every or max(1, train_steps // 200)
        # Episodes are cut there, and most are far shorter than this.
        self._checkpoint_every = checkpoint_every or max(10_000, train_steps // 10)
        self._checkpoint_buffer = checkpoint_buffer
        self._next_log = start + self._log_every
        self._next_checkpoint = start + self._checkpoint_every
        self._last_checkpoint: Path | None = None
        self._stopped = False
        name = type(agent).__name__
        self._title = name if env is None else f'{name} {env_name(env)}'
        resumed_at = agent.steps if start else None
        self._logger = Logger(run_dir, train_steps - start, progress_bar, self._title, resumed_at)
        self._monitor: Monitor | None = None
        if run_dir is not None:
            named = '' if env is None else env_name(env)
            self._monitor = Monitor(run_dir / 'monitor.csv', named, resumed_at)
        if self._monitor is not None and start:
            self._recall(self._monitor.earlier)
        self._earlier = len(self.returns)
        self._began = self._log_time = time.perf_counter()
        self._log_steps = start

    @property
    def progress(self) -> float:
        """Fraction of the training done, in [0, 1]."""
        return min(1.0, self.steps / self.train_steps)

    @property
    def done(self) -> bool:
        """Whether the steps are taken or a callback asked to stop."""
        return self._stopped or self.steps >= self.train_steps

    def run(self, loop: Loop, **params: Any) -> TrainingResult:
        """Run ``loop`` to its end and close everything, whatever happens on the way."""
        with training_in(self._stepped), contextlib.ExitStack() as ends:
            try:
                for callback in self._callbacks:
                    if hasattr(callback, 'begin'):
                        callback.begin(self)
                    if hasattr(callback, 'end'):
                        ends.callback(callback.end, self)
            except BaseException:
                self._close()
                raise
            return self._run(loop, params)

    def _run(self, loop: Loop, params: dict[str, Any]) -> TrainingResult:
        try:
            # A resumed call begins where the interrupted one went on after its checkpoint: with new episodes.
            self.experience.restart(self._env_seed if not self._start else self.agent.draw_seed())
            loop.run(self, **params)
            if self.steps > self._log_steps:
                self._log()
            self._call_timed(at_end=True)
            self._save(final=True)
        except KeyboardInterrupt as error:
            self.error = error
            self._rescue()
            saved = 'nothing is saved' if self._last_checkpoint is None else f'saved in {self._last_checkpoint}'
            self.warn('Interrupted at step %d of %d; %s.', self.steps, self.train_steps, saved)
            # Where a traceback is shown, what happened is its last line too, and not buried above it.
            where = f'at step {self.steps} of {self.train_steps}'
            raise KeyboardInterrupt(f'training was interrupted {where}; {saved}') from None
        except Exception as error:
            self.error = error
            self._rescue()
            kept = self._last_checkpoint or 'none was written'
            if isinstance(error, FloatingPointError):
                raise FloatingPointError(f'{error} The last good checkpoint: {kept}.') from error
            log.error(
                'Training failed at step %d of %d. The last good checkpoint: %s.', self.steps, self.train_steps, kept
            )
            raise
        finally:
            self._close()
            self._draw()
        return TrainingResult(
            steps=self.steps - self._start,
            episodes=len(self.returns) - self._earlier,
            returns=self.returns[self._earlier :].tolist(),
            losses=self.losses,
            wall_time=time.perf_counter() - self._began,
            run_dir=self.run_dir,
            episode_steps=self.episode_steps[self._earlier :].tolist(),
        )

    def _recall(self, rows: Iterable[tuple[float, int, int]]) -> None:
        """The episodes before the checkpoint from which this training goes on: curve and means go on with them."""
        for episode_return, length, step in rows:
            self._recent.append(Episode(episode_return, length, None))
            self.returns.append(episode_return)
            self.episode_steps.append(step - self.agent.steps + self.steps)

    def stepped(self, count: int, episodes: Sequence[Episode]) -> None:
        """To be called after steps of the environment, with their number and the episodes that ended in them."""
        self.steps += count
        self.agent.steps += count
        self._logger.advance(count)
        for episode in episodes:
            self._recent.append(episode)
            self.returns.append(episode.episode_return)
            self.episode_steps.append(self.steps)
            if self._monitor is not None:
                self._monitor.write(episode.episode_return, episode.length, self.agent.steps)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Write metrics of a callback's own, as a row of ``progress.csv`` at this step and into TensorBoard's events.

        Args:
            metrics: numbers by name, such as ``{'test/return': 195.0}``.
        """
        self._logger.log(self.agent.steps, metrics)
        for callback in self._callbacks:
            if hasattr(callback, 'logged'):
                callback.logged(self, metrics)

    def waited(self, seconds: float) -> None:
        """To be called by a callback that has held the training up: so many seconds are no part of its time."""
        self._began += seconds
        self._log_time += seconds
        if self._monitor is not None:
            self._monitor.waited(seconds)

    def warn(self, message: str, *values: Any) -> None:
        """Log a warning, on a line of its own where there is a progress bar."""
        self._logger.clear()
        log.warning(message, *values)

    def updated(self, metrics: dict[str, float] | None) -> None:
        """To be called between updates, with the metrics of the last one if there was one; logs and saves when due.

        Raises:
            FloatingPointError: a loss is NaN or infinite.
        """
        if metrics is not None:
            self.losses = metrics
            for name, value in metrics.items():
                if not math.isfinite(value):
                    raise FloatingPointError(
                        f'step {self.steps}: the loss {name!r} became {value}: a smaller learning rate or '
                        'normalised observations and rewards may help.'
                    )
            self.agent.progress = self.progress
        if self.steps >= self._next_log:
            self._next_log = self.steps + self._log_every
            self._log()
        if self.steps >= self._next_due:
            self._call_timed()
        if self.steps >= self._next_checkpoint and not self.done:
            self._next_checkpoint = self.steps + self._checkpoint_every
            self._save()
            # Every episode starts anew, so that a run resumed from here and this one go on alike, where all that it
            # needs is saved; whether it is written or not, so that writing changes nothing.
            if self.replay is None or self._checkpoint_buffer:
                if self.experience.restart(self.agent.draw_seed()) and self.replay is not None:
                    self.replay.cut()
        self._stopped = self.experience.least(not self._stopped) == 0

    def _rescue(self) -> None:
        """After a failure: save the agent, if it is good and has seen anything."""
        good = all(map(math.isfinite, self.losses.values())) and self.agent.weights_are_finite()
        if self.run_dir is None or self.steps == self._start or not good:
            return
        try:
            self._save(final=True)
        except Exception as error:
            log.error('The agent could not be saved: %s', error)

    def _log(self) -> None:
        now = time.perf_counter()
        rate = (self.steps - self._log_steps) / max(now - self._log_time, 1e-9)
        self._log_time, self._log_steps = now, self.steps
        metrics = {f'loss/{name}': value for name, value in self.losses.items()}
        if self._recent:
            metrics['episode/return'] = float(np.mean([episode.episode_return for episode in self._recent]))
            metrics['episode/length'] = float(np.mean([episode.length for episode in self._recent]))
            successes = [episode.success for episode in self._recent if episode.success is not None]
            if successes:
                metrics['episode/success'] = float(np.mean(successes))
        metrics['episode/count'] = len(self.returns)
        metrics['speed/steps_per_second'] = rate
        self.metrics = metrics | self.experience.measured()
        self._logger.log(self.agent.steps, self.metrics)
        if self._monitor is not None:
            self._monitor.flush()
        if self._plot_func is not None:
            self._plot_func(self.returns)
        for callback in self._callbacks:
            if getattr(callback, 'every', None) is None:
                self._call(callback)

    def _call(self, callback: Callable[[Training], bool | None]) -> None:
        answer = callback(self)
        if isinstance(answer, bool | np.bool_) and not answer:
            self._stopped = True

    def _call_timed(self, at_end: bool = False) -> None:
        """Call the callbacks that are due; at the end those that have not been called there yet."""
        for i, callback in enumerate(self._timed):
            if self.steps >= self._due[i] or (at_end and self.steps > self._called[i]):
                self._called[i], self._due[i] = self.steps, self._after(self.steps, callback)
                self._call(callback)
        self._next_due = min(self._due, default=math.inf)

    @staticmethod
    def _after(steps: int, callback: Any) -> int:
        """The next multiple of what a callback is called every: it is not late because it was late before."""
        return int((steps // callback.every + 1) * callback.every)

    def _close(self) -> None:
        self._logger.close()
        if self._monitor is not None:
            self._monitor.close()

    def _save(self, final: bool = False) -> None:
        if self.run_dir is None:
            return
        if not self.agent.weights_are_finite():  # one update before the loss shows it
            raise FloatingPointError(f'step {self.steps}: a weight became NaN or infinite: lower the learning rate.')
        loop_state = None if final and self.done else {'steps': self.steps, 'train_steps': self.train_steps}
        path = self.run_dir / 'checkpoints' / f'{self.agent.steps:09d}'  # its life's, which only grow in a directory
        self.agent.save(path, buffer=self._checkpoint_buffer, loop_state=loop_state)
        self._last_checkpoint = path

    def _draw(self) -> None:
        if self.run_dir is not None:
            plots.learning_curve(
                self.run_dir / 'curve.png',
                {type(self.agent).__name__: [(self.episode_steps, self.returns)]},
                self._title,
            )


def _on_policy(
    training: Training,
    *,
    horizon: Annotated[int, at_least(1), 'steps of each copy in one iteration'] = 2048,
    **update_params: Any,
) -> None:
    """Collect ``horizon`` steps of every copy, update on them with the other parameters, forget them."""
    agent = training.agent
    while not training.done:
        agent.progress = training.progress
        rollout = training.experience.rollout(training, horizon)
        metrics = None
        # Of several learners all update or none, for each waits for the gradients of the others.
        if training.experience.least(bool(rollout.valid.any())):
            metrics = agent.update(rollout, **update_params)
        training.updated(metrics)


def _streamed(
    training: Training,
    *,
    horizon: Annotated[int, at_least(1), 'steps of each copy in one rollout'] = 20,
    rollouts: Annotated[int, at_least(1), 'rollouts in one update, of whichever actors have sent them'] = 4,
    ahead: Annotated[
        int, at_least(1), 'rollouts that an actor may be ahead of the learner; in one process there is no actor'
    ] = 1,
    **update_params: Any,
) -> None:
    """Update on rollouts as they come, with the other parameters."""
    agent, experience = training.agent, training.experience
    while not training.done:
        agent.progress = training.progress
        rollout = experience.stream(training, horizon, rollouts)
        metrics = None
        if experience.least(bool(rollout.valid.any())):  # as in `_on_policy`
            metrics = agent.update(rollout, **update_params)
        training.updated(metrics)


def _asynchronous(
    training: Training, *, horizon: Annotated[int, at_least(1), 'steps of each copy in one gradient'] = 5
) -> None:
    """Update by gradients as they come."""
    while not training.done:
        training.agent.progress = training.progress
        training.updated(training.experience.improve(training, horizon))


def _off_policy(
    training: Training,
    *,
    batch_size: BatchSize = 256,
    buffer_size: Annotated[int, at_least(1), 'transitions that the replay buffer holds'] = 1_000_000,
    explore_steps: Annotated[
        int, at_least(0), "steps of uniformly random actions before the first update, in the agent's life"
    ] = 1000,
    update_every: Annotated[
        int | None,
        at_least(1),
        'environment steps, summed over copies, between calls of update; None: a call whenever there is time for one, '
        'which is after every step or message of an actor, and with the role buffer without waiting for any',
    ] = 1,
    updates: Annotated[
        int | None,
        at_least(1),
        'gradient updates in one call; None takes update_every, one for each environment step, or one if that is None',
    ] = None,
    compress: Annotated[bool, 'keep the images in the replay buffer compressed, which saves memory and takes time'] = (
        False
    ),
    her: Annotated[
        dict[str, Any] | None,
        Strategy,
        'hindsight experience replay, in goal environments: of the transitions drawn k in k + 1 get a goal that their '
        'episode has reached, in this step or a later one, at its end, or in any step',
    ] = None,
    recorded: Annotated[
        Any,
        'None, or what the replay buffer is filled with before training: a file of zoo.record, the folder or id of a '
        'Minari data set, or a list of those',
    ] = None,
) -> None:
    """Step, store, and update on samples of the replay buffer."""
    agent, experience = training.agent, training.experience
    updates = updates_in_call(update_every, updates)
    hindsight = None
    if her is not None and experience.replay is None:  # else who holds the transitions tells them for other goals
        assert training.goals is not None  # learn has looked for them
        hindsight = Hindsight(training.goals, **her)
    own = None
    if experience.replay is None:
        own = _replay_here(training, buffer_size, compress, hindsight, recorded)
    replay: Stores = experience.replay or own  # type: ignore[assignment] # one of them is there
    held = (replay.added - replay.recorded) * experience.learners
    needed, began = _needed(training, held, explore_steps), agent.updates
    ready = 0
    while not training.done:
        agent.progress = training.progress
        before = training.steps
        for step in experience.steps(training, explore_steps, wait=not ready or update_every is not None):
            assert own is not None  # or there would be none
            if step.begins:
                own.cut(step.first, len(step.valid))
            own.add(step.transition, step.valid, step.first, step.state, step.priority)
        metrics = None
        held = (replay.added - replay.recorded) * experience.learners
        ready = experience.least(replay.added >= batch_size and held >= needed)
        if ready:
            # Counted from the steps alone, so that a resumed call updates at the same ones.
            due = 1 if update_every is None else training.steps // update_every - before // update_every
            for _ in range(due):
                batches = replay.sample((updates, batch_size), agent.rng, training.progress, hindsight)
                metrics = agent.update_on(batches)
                replay.prioritize(agent.priorities)
        training.updated(metrics)
    if agent.updates == began:
        training.warn(
            'Nothing was learned: no update was due in the %d steps of this training, since the first one needs %d '
            'transitions in the replay buffer (explore_steps=%d, batch_size=%d, update_every=%s).',
            training.steps,
            max(needed, batch_size),
            explore_steps,
            batch_size,
            update_every,
        )


def updates_in_call(update_every: int | None, updates: int | None) -> int:
    """How many gradient updates one call makes, by the parameters of the loop over steps."""
    return updates or update_every or 1


def _replay_here(
    training: Training, buffer_size: int, compress: bool, hindsight: Hindsight | None, recorded: Any
) -> Replay:
    """The replay buffer of this process, with what is recorded."""
    agent, experience = training.agent, training.experience
    replay = agent.replay_for(buffer_size, experience.num_envs, compress)
    training.replay = replay
    if hindsight is not None:
        replay.keep_episodes()
    if recorded is not None and training.steps and replay.recorded:  # a resumed buffer, which holds them already
        opened(agent, recorded)  # a name that is wrong is refused all the same
    elif recorded is not None:
        count = fill(agent, replay, recorded)
        if len(replay) < count:
            training.warn(TOO_SMALL, count, len(replay))
    return replay


def _needed(training: Training, held: int, explore_steps: int) -> int:
    """How many transitions the replay buffer has to hold before the first update, when it holds ``held`` now.

    As many as are explored; where earlier ones were not saved with the agent, those that its life still lacks, and if
    it lacks none, that many again, since an agent that learned from a handful of them would forget what it can.
    """
    steps = training.agent.steps
    if steps <= held:
        return explore_steps
    needed = held + explore_steps - steps if steps < explore_steps else explore_steps
    if needed > held:
        training.warn(
            'The replay buffer holds %d transitions of the %d steps that this agent has behind it%s: the next %d steps '
            'are collected without an update.',
            held,
            steps,
            # Which other processes that hold it cannot.
            '' if training.experience.replay is not None else ' (checkpoint_buffer=True saves it with the agent)',
            needed - held,
        )
    return needed


def _evolution(
    training: Training,
    *,
    episodes_per_evaluation: Annotated[int, at_least(1), 'whole episodes with each perturbation of the parameters'] = 1,
    **update_params: Any,
) -> None:
    """Play whole episodes with perturbed parameters, update on what they returned with the other parameters.

    Every generation is played to its end, so that more steps may be taken than are asked for. In an environment whose
    episodes never end it never ends either: give it a time limit (``max_episode_steps``).
    """
    agent = training.agent
    while not training.done:
        agent.progress = training.progress
        count, std = agent.perturbations
        seeds = agent.rng.integers(SEEDS, size=count)
        found = training.experience.evaluations(training, seeds, std, episodes_per_evaluation)
        training.updated(agent.update(found, **update_params))


on_policy = Loop(_on_policy, 'rollouts')
streamed = Loop(_streamed, 'rollouts', 'stream')
asynchronous = Loop(_asynchronous, 'rollouts', 'gradients')
off_policy = Loop(_off_policy, 'steps')
evolution = Loop(_evolution, 'evaluations')


def run_test(
    agent: Agent, env: Env | VectorEnv, *, test_episodes: int = 10, render: bool = False, seed: int | None = None
) -> TestResult:
    """Play ``test_episodes`` whole episodes with the deterministic policy.

    A recurrent policy begins each of them with a state of zeros, and keeps what it has of a training under way.

    With several copies, each plays its share, so that short episodes are not counted more often than long ones. In an
    environment whose episodes never end this never ends either: give it a time limit (``max_episode_steps``).

    Raises:
        ValueError: a training is stepping this very environment: a callback tests in a second one.
    """
    state = np.zeros((getattr(env, 'num_envs', 1), agent.behavior.state_size), np.float32)

    def begin(copies: np.ndarray) -> None:
        state[copies] = 0.0

    collector = Collector(env, agent.action_adaptor, render, begin)
    collector.reset(seed)
    copies = collector.num_envs
    quota = np.full(copies, test_episodes // copies)
    quota[: test_episodes % copies] += 1
    episodes: list[Episode] = []
    while quota.any():
        if state.size:
            action, state[:] = agent.behavior.step(collector.obs, state, agent.rng, agent.progress, deterministic=True)
        else:
            action = agent.act(collector.obs, deterministic=True)
        collector.step(action)
        for episode in collector.finished:
            if quota[episode.copy]:
                quota[episode.copy] -= 1
                episodes.append(episode)
    return TestResult(
        [episode.episode_return for episode in episodes],
        [episode.length for episode in episodes],
        [episode.success for episode in episodes],
    )
