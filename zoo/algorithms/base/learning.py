"""``agent.learn``: its checks, its settings and the call of the loop (:mod:`zoo.common.training.loops`)."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.algorithms.base import building
from zoo.algorithms.base.noting import note
from zoo.common.adaptors.observation import ACTION_MASK
from zoo.common.datasets.opening import described, name_of, named, opened
from zoo.common.envs.about import about
from zoo.common.envs.goals import Goals
from zoo.common.envs.vector import SAMPLE_TIMEOUT, limit_samples
from zoo.common.records import TestResult, TrainingResult
from zoo.common.replay.replay import check_capacity
from zoo.common.tools import params, seeding
from zoo.common.tools.checks import is_integer, takes, whole
from zoo.common.tools.errors import InvalidValue, a_type, unknown
from zoo.common.tools.habits import renamed
from zoo.common.tools.params import above, at_least, between
from zoo.common.tools.processes import alone_in
from zoo.common.training import testing
from zoo.common.training.agent import Agent, Loop, mismatch
from zoo.common.training.average import Average
from zoo.common.training.display import in_verbose
from zoo.common.training.experience import Experience, NoEnvironment
from zoo.common.training.loops import updates_in_call
from zoo.common.training.run_directory import check_continued, run_directory
from zoo.common.training.training import Training

log = logging.getLogger('zoo')


def _check_roles(roles: Any) -> None:
    """Refuse roles that fit no algorithm; the plan of the training refuses what does not fit this one."""
    from zoo.distributed.training.planning import check_roles

    check_roles(roles, replays=True)


@dataclass(kw_only=True)
class Settings:
    """The parameters of ``learn`` that every training loop takes, besides the loop's own."""

    train_steps: Annotated[int, at_least(1), 'environment steps of this call, summed over copies'] = 100_000
    test_episodes: Annotated[int, at_least(1), 'whole episodes of a test'] = 10
    log_every: Annotated[int | None, at_least(1), 'steps between rows of the log; None makes some 200 in all'] = None
    checkpoint_every: Annotated[
        int | None, at_least(1), 'steps between checkpoints; None makes ten at most, and none before 10,000 steps'
    ] = None
    checkpoint_buffer: Annotated[bool, 'save the replay buffer in checkpoints too'] = False
    exact_resume: Annotated[
        bool,
        'a run resumed from a checkpoint ends with the weights of an uninterrupted one; for that, checkpoints hold the '
        'replay buffer, and each begins new episodes, which costs the episodes under way',
    ] = False
    average_window: Annotated[
        float,
        between(0, 1),
        'part of the training: tests, callbacks, files and the trained agent have the exponential mean of the weights '
        'over about this part before; 0: the last weights',
    ] = 0.0
    verbose: Annotated[
        int,
        between(0, 2),
        '0: nothing is shown; 1: a progress bar in a terminal or a notebook, elsewhere a line of text now and then; '
        '2: tables of all metrics now and then',
    ] = 1
    roles: Annotated[
        Any, _check_roles, 'None, or how many processes have which role, such as dict(learners=1, actors=4)'
    ] = None
    restarts: Annotated[int, at_least(0), 'how often each dead actor is started again, on this machine'] = 3
    sample_timeout: Annotated[
        float | None, above(0), 'seconds for a step or a reset in another process; None: any time'
    ] = SAMPLE_TIMEOUT
    resume: Annotated[bool, 'go on with the call of learn in which the loaded checkpoint was written'] = False


#: Settings that the plan of a training with roles is given.
OF_ROLES = ('checkpoint_buffer', 'exact_resume', 'restarts', 'sample_timeout')

#: Arguments of ``learn`` itself: an error suggests them where the name of an unknown parameter is near.
ARGUMENTS = ('mode', 'render', 'seed', 'plot_func', 'callbacks', 'run_dir')


def learn(
    agent: Agent,
    env: Any,
    mode: str,
    render: bool,
    seed: int | None,
    plot_func: Callable[[Sequence[float]], Any] | None,
    callbacks: Iterable[Callable[[Training], bool | None]],
    run_dir: str | os.PathLike[str] | bool | None,
    given: dict[str, Any],
) -> TrainingResult | TestResult:
    """Check all arguments, then train or test; ``given`` has the loop's parameters that the user gave."""
    values = _checked(agent, given, env)
    if mode not in ('train', 'test'):
        raise InvalidValue(unknown('mode', mode, ('train', 'test')))
    from_data = mode == 'train' and _from_data(agent, values)
    if mode == 'train':
        _check_needed(agent, values)
        _check_data(agent, values, given, render, plot_func)
    if not from_data or env is not None:
        check_environment(agent, env, 'learn', 'train_steps=…')
    callbacks = _check_callbacks(callbacks)
    if plot_func is not None and not (callable(plot_func) and takes(plot_func, 1)):
        raise InvalidValue(f'plot_func is {plot_func!r}: give a function of the list of all returns.')
    if render and not getattr(env, 'render_mode', None):
        raise InvalidValue("render=True needs an environment built with render_mode='human' or another render mode.")
    if env is not None and not limit_samples(env, values['sample_timeout']) and values['roles'] is None:
        _check_timeout(values['sample_timeout'])
    for network in agent.networks.values():
        network.check_trained()
    agent.forward.refresh()  # the weights may have been set since
    if mode == 'test':
        of_training = {'callbacks': callbacks, 'plot_func': plot_func, 'run_dir': run_dir, 'resume': values['resume']}
        for name, value in of_training.items():
            if value not in ((), None, False):
                raise InvalidValue(f'{name} belongs to training: leave it out of a test, which writes nothing.')
        env_seed = None if seed is None else _draw(seed, 'env/test')
        return testing.run_test(agent, env, test_episodes=values['test_episodes'], render=render, seed=env_seed)
    return _train(agent, env, values, given, render, seed, plot_func, callbacks, run_dir)


def _checked(agent: Agent, given: dict[str, Any], env: Any) -> dict[str, Any]:
    """Give all parameters of ``learn`` by name: those that were given, checked, and the defaults of the others."""
    known = agent.declared_for_learn()
    given = in_verbose(given, warn=True)
    for name in given:
        if name not in known:
            kind = f"parameter of {type(agent).__name__}'s learn"
            elsewhere = {n: f'is a parameter of {type(agent).__name__}, not of learn.' for n in agent.params()}
            told = params.refusal(kind, name, [*known, *ARGUMENTS], elsewhere)
            here = renamed(name, known)
            if env is None and here is not None:
                told = f'{told[:-1]}, and the environment comes first: agent.learn(env, {here}=…).'
            raise InvalidValue(told)
    return {name: param.default for name, param in known.items()} | params.checked(given, known)


def _from_data(agent: Agent, values: dict[str, Any]) -> bool:
    """Return whether a training learns from a dataset alone."""
    return agent.loop.from_data is not None and values['dataset'] is not None


def _check_needed(agent: Agent, values: dict[str, Any]) -> None:
    """Refuse a training without a parameter that it needs."""
    for name, what in agent.needed.items():
        if values[name] is None:
            told = f'{type(agent).__name__} needs {what}:'
            option = '--dataset PATH' if name == 'dataset' else f'--set {name}=…'
            raise InvalidValue(f"{told} agent.learn(env, 'train', {name}=…).", shell=f'{told} {option}.')


def _check_data(agent: Agent, values: dict[str, Any], given: dict[str, Any], render: bool, plot_func: Any) -> None:
    """Refuse a training without the dataset that it needs, and what means nothing where a dataset is learned from."""
    name = type(agent).__name__
    if not _from_data(agent, values):
        if agent.loop.needs_data:
            raise InvalidValue(
                f"{name} learns from recorded episodes: agent.learn(env, 'train', dataset=…, train_updates=…).",
                shell=f'{name} learns from recorded episodes: --dataset PATH.',
            )
        if 'train_updates' in given and 'train_steps' not in given:
            raise InvalidValue(
                f'train_updates={values["train_updates"]} counts updates on a dataset: give dataset=…, or train_steps '
                'to train in the environment.'
            )
        if agent.loop.data_first and values['recorded'] is None and not agent.steps:
            log.warning('%s begins without recorded episodes: dataset=… gives it some to learn from.', name)
        return
    if 'train_steps' in given and 'train_updates' not in given:
        raise InvalidValue(
            'train_steps counts environment steps, and with a dataset none is taken: give train_updates, the number of '
            'gradient updates.'
        )
    if values['roles'] is not None:
        raise InvalidValue('roles share the steps of an environment, but a dataset is learned from here: roles=None.')
    for name in ('recorded', 'recorded_share'):
        if values.get(name) is not None:
            raise InvalidValue(
                f'{name} is for steps in the environment, but with a dataset none is taken: leave {name} out, or give '
                'all as dataset=[…].'
            )
    for argument, is_given in (('render', render), ('plot_func', plot_func is not None)):
        if is_given:
            raise InvalidValue(f'{argument} shows episodes of the training, but with a dataset none is played.')
    if 'train_steps' not in given:  # a whole table of parameters has those for the environment, too
        refuse_unread_with_data(agent.loop, given)


def refuse_unread_with_data(loop: Loop, names: Iterable[str]) -> None:
    """Refuse parameters that steer steps in the environment, where a dataset is learned from."""
    assert loop.from_data is not None
    steering = params.declared(loop.run, only_keywords=True).keys() - params.declared(loop.from_data).keys()
    unread = [name for name in names if name in steering]
    if unread:
        raise InvalidValue(
            f'{unread[0]} is for steps in the environment, but with a dataset none is taken: leave {unread[0]} out.'
        )


def _check_callbacks(callbacks: Any) -> tuple[Callable[[Training], bool | None], ...]:
    if callable(callbacks) or not isinstance(callbacks, Iterable):
        raise InvalidValue(f'callbacks is {callbacks!r}: give a list of functions, such as callbacks=[function].')
    callbacks = tuple(callbacks)
    for callback in callbacks:
        if not callable(callback):
            raise InvalidValue(f'callbacks has {callback!r} in it: give functions of a Training.')
        if isinstance(callback, type):
            name = callback.__name__
            raise InvalidValue(f'callbacks has the class {name} in it: give an object of it, {name}(…).')
        if not takes(callback, 1):
            raise InvalidValue(f'callbacks has {callback!r} in it, which does not take one argument, a Training.')
        for name, arguments in (('begin', 'training'), ('end', 'training'), ('logged', 'training, metrics')):
            if hasattr(callback, name) and not takes(getattr(callback, name), arguments.count(',') + 1):
                raise InvalidValue(f'callbacks has {callback!r} in it, whose {name} does not take ({arguments}).')
        if getattr(callback, 'every', None) is not None:
            whole(f'every of the callback {callback!r}', callback.every)
    return callbacks


def check_environment(agent: Agent, env: Any, method: str, arguments: str) -> None:
    """Refuse an environment in which an agent cannot act; the message shows a right call of ``method``."""
    if not isinstance(env, Env | VectorEnv):
        found = f'the class {env.__name__}' if isinstance(env, type) else a_type(env)
        what = 'an environment' if env is None else f'a Gymnasium environment, not {found}'
        if method == 'learn' and is_integer(env, 1):
            raise InvalidValue(f"learn takes the environment first: agent.learn(env, 'train', train_steps={env}).")
        raise InvalidValue(f'{method} needs {what}: agent.{method}(env, {arguments}) with env from build_env.')
    wrong = mismatch(agent, env)
    if wrong is not None:
        other = 'make an agent for this environment with call_default_params'
        if ACTION_MASK in wrong and about(env).type is None:
            other = 'build_env(…) makes the mask in info a part of the observation'
        raise InvalidValue(f"the environment's {wrong}: {other}.")


def _draw(seed: int, stream: str) -> int:
    return int(seeding.generator(seed, stream).integers(2**31 - 1))


def _train(
    agent: Agent,
    env: Env | VectorEnv,
    values: dict[str, Any],
    given: dict[str, Any],
    render: bool,
    seed: int | None,
    plot_func: Callable[[Sequence[float]], Any] | None,
    callbacks: tuple[Callable[[Training], bool | None], ...],
    run_dir: str | os.PathLike[str] | bool | None,
) -> TrainingResult:
    if agent.is_training:
        raise InvalidValue('this agent is training: a callback may test it in a second environment, but not train it.')
    start, from_data = 0, _from_data(agent, values)
    end = 'train_updates' if from_data else 'train_steps'
    asked = seed
    if values['resume']:
        start, values[end] = _resumed(agent, given.get(end), 'update' if from_data else 'step')
        seed = None  # the loaded streams go on where they were
    inexact = values['resume'] and not (agent.loop_state or {}).get('scheduled', True)
    if inexact and values.get('exact_resume'):
        told = 'exact_resume: the agent was saved at step %d, where no checkpoint was due. The training goes on, but'
        log.warning(f'{told} it does not end with the weights of one that was not interrupted.', start)
    env_seed = roles_seed = None
    # A later call with the same seed has its own streams: it must not repeat the exploration of the first call.
    later = f'/{agent.steps}' if agent.steps else ''
    if seed is not None:
        env_seed = _draw(seed, f'env/train{later}')
        roles_seed = _draw(seed, f'roles{later}') if later else seed
    written = dict(values)
    if values.get('dataset') is not None:
        written['dataset'] = named(values['dataset'])
        found = opened(agent, values['dataset'])  # refused before anything is written
        values['dataset'] = values['dataset'] if values['roles'] else found  # other processes open it themselves
    if 'expert' in values:  # a file does not hold agents and functions
        written['expert'] = os.fspath(values['expert']) if isinstance(values['expert'], str | os.PathLike) else None
    if values.get('recorded') is not None:
        written['recorded'] = described(values['recorded'])
    settings = Settings(**{name: values.pop(name) for name in params.declared(Settings) if name in values})
    loop, env_name = agent.loop, None if env is None else about(env).name
    if from_data:
        assert loop.from_data is not None
        settings.train_steps = values['train_updates']
        loop, env_name = replace(loop, run=loop.from_data), env_name or name_of(values['dataset'])
    if loop.from_data is not None:
        taken = params.declared(loop.run, only_keywords=True)
        values = {name: value for name, value in values.items() if name in taken}

    def run(experience: Experience | None = None) -> TrainingResult:
        folder = run_directory(run_dir, type(agent).__name__, env_name or '')
        if folder is None:
            return run_in(None, experience)
        with alone_in(folder):
            if not settings.resume:
                check_continued(folder, agent.steps)
            note(
                folder,
                agent,
                env,
                env_name,
                written,
                settings.train_steps,
                callbacks,
                seed=asked,
                resumed=settings.resume,
                inexact=inexact,
            )
            return run_in(folder, experience)

    def run_in(folder: Path | None, experience: Experience | None) -> TrainingResult:
        training = Training(
            agent,
            env,
            settings.train_steps,
            render=render,
            plot_func=plot_func,
            callbacks=callbacks,
            learn_params={'seed': asked, **written},
            run_dir=folder,
            env_seed=env_seed,
            log_every=settings.log_every,
            checkpoint_every=settings.checkpoint_every,
            checkpoint_buffer=settings.checkpoint_buffer,
            exact_resume=settings.exact_resume,
            average=average,
            verbose=settings.verbose,
            start=start,
            experience=experience,
            goals=goals,
            name=env_name,
        )
        building.note_training(agent, new=not (agent.steps or agent.data_steps or settings.resume))
        agent.is_training, agent.loop_state = True, None
        if seed is not None:
            agent.reseed(seed, f'agent{later}')
        try:
            return training.run(loop, **values)
        finally:
            agent.is_training = False

    if render and settings.roles is not None:
        ours = 'render=True shows the environment of this process, but with roles the actors step their own'
        raise InvalidValue(f'{ours}: roles=None trains in this process.')
    if agent.loop.experience == 'steps':
        if agent.sampling.sequences is not None:
            _check_sequences(values)
        if settings.exact_resume and agent.sampling.priorities is not None:
            _check_priorities(from_data, values)
        if settings.roles is None and not from_data:
            check_capacity(agent.sampling, values['buffer_size'], values['batch_size'], about(env).copies)
        if from_data and settings.checkpoint_buffer:
            log.warning('checkpoint_buffer=True changes nothing: a dataset is read again, and not saved.')
        _warn_of_still_targets(agent, settings.train_steps - start, values)
    elif settings.checkpoint_buffer:
        log.warning('checkpoint_buffer=True changes nothing, since %s has no replay buffer.', type(agent).__name__)
    if settings.exact_resume and values.get('replayed'):
        raise InvalidValue(
            'exact_resume=True cannot be kept with replayed, whose rollouts no checkpoint holds: replayed=0, or '
            'exact_resume=False.'
        )
    # The goals are read before anything is written or started: they may be refused.
    if values.get('her') is not None:
        if env is None:
            raise InvalidValue('her computes rewards by the environment: give learn the environment, or her=None.')
        if agent.sampling.to_the_end:
            told = f'her gives single steps other goals, but {type(agent).__name__} learns from returns to the end'
            raise InvalidValue(f'{told}: her=None.')
    goals = None if values.get('her') is None else Goals(env)
    with contextlib.nullcontext() if goals is None else goals:
        if settings.roles is None:
            if settings.restarts != Settings.restarts:
                raise InvalidValue(
                    f'restarts={settings.restarts} starts dead actors again, but roles=None has no actors: leave it '
                    'out, or give roles=dict(actors=…).'
                )
            average = Average(agent, settings.average_window, settings.train_steps, start)
            with average.kept_if_nothing_is_learned():
                return run(NoEnvironment() if from_data else None)
        from zoo.distributed.training.planning import plan_for
        from zoo.distributed.training.roles import train

        own = {name: getattr(settings, name) for name in OF_ROLES}
        plan = plan_for(agent, env, settings.roles, roles_seed, start, settings.train_steps, values, **own)
        # Only when nothing is refused any more, since it takes the agent's weights. Learners begin with those.
        average = Average(agent, settings.average_window, settings.train_steps, start)
        with average.kept_if_nothing_is_learned():
            return train(agent, env, plan, run)


def _check_timeout(sample_timeout: float | None) -> None:
    """Refuse a limit that nobody could keep: a call in this process cannot be ended."""
    if sample_timeout not in (None, SAMPLE_TIMEOUT):
        told = f'sample_timeout={sample_timeout:g} ends an environment in another process, but this one runs in this '
        told += 'process: use'
        last = 'or roles, or leave sample_timeout out.'
        raise InvalidValue(
            f"{told} build_env(…, nenv=…, vectorized='async') {last}",
            shell=f'{told} --nenv N --set vectorized=async, {last}',
        )


def _warn_of_still_targets(agent: Agent, steps: int, values: dict[str, Any]) -> None:
    """Log that a target will keep its first weights, since the training ends before it would move."""
    needed = getattr(agent, 'target_update_every', 0)
    every = values.get('update_every', 1)
    if every is None:  # as many as the machine can make
        return
    if 'explore_steps' in values:
        explored = max(values['explore_steps'] - agent.steps - 1, 0)  # the last step of exploration may have an update
        planned = (steps // every - explored // every) * updates_in_call(every, values['updates'])
    else:  # on a dataset each step is an update
        planned = steps
    if 0 < planned and agent.updates + planned < needed:
        log.warning(
            'target_update_every=%d: the target never moves, since %d steps have %d updates at most.',
            needed,
            steps,
            planned,
        )


def _check_priorities(from_data: bool, values: dict[str, Any]) -> None:
    """Refuse ``exact_resume`` where no checkpoint holds the priorities."""
    name = 'dataset' if from_data else 'recorded_share'
    if from_data or values.get('recorded_share') is not None:
        raise InvalidValue(
            f'exact_resume=True cannot be kept with {name} and priorities, which no checkpoint holds: '
            'prioritized=False, or exact_resume=False.'
        )


def _check_sequences(values: dict[str, Any]) -> None:
    """Refuse parameters that contradict the recurrent states in the replay buffer."""
    reasons = {
        'her': 'tells single transitions for other goals, but a recurrent state has seen the goal of its own episode',
        'recorded': 'holds no recurrent states, which a replay buffer of a recurrent network needs',
    }
    for name, reason in reasons.items():
        if values.get(name) is not None:
            raise InvalidValue(f'{name} cannot be used with a recurrent network, since {name} {reason}: {name}=None.')


def _resumed(agent: Agent, train_steps: Any, kind: str) -> tuple[int, int]:
    """Give the steps of an interrupted training so far, and the step at which it ends: its own, or the user's.

    ``kind`` is what a step is called, ``'step'`` or ``'update'``.
    """
    if agent.loop_state is None:
        told = 'resume=True goes on with an interrupted training'
        if agent.updates:
            steps = f'{agent.steps:,} steps' if agent.steps else f'{agent.updates:,} updates'
            raise InvalidValue(
                f"{told}, but this agent's has ended, after {steps} in all: leave resume out to train it further, or "
                'zoo.resume(run, train_steps=…) goes on in its folder.'
            )
        raise InvalidValue(f'{told}: load a checkpoint of one first.')
    start, end = agent.loop_state['steps'], agent.loop_state['train_steps']
    if train_steps is None:
        return start, end
    if train_steps <= start:
        told = f'goes on from {kind} {start:,} of its training, so {train_steps:,} {kind}s in all leave nothing to do:'
        last = f'give more, or leave it out to train to {kind} {end:,}.'
        raise InvalidValue(f'resume=True {told} {last}', shell=f'the run {told} {last}')
    return start, int(train_steps)
