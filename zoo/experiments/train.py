"""Training in one call, ``zoo.train('PPO', 'CartPole-v1', gamma=0.98)``, and resuming an interrupted training."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo import algorithms
from zoo.algorithms.base.own_defaults import own_defaults_for
from zoo.callbacks import Evaluate, KeepBest
from zoo.common.datasets.dataset import Dataset
from zoo.common.datasets.opening import described, open_dataset
from zoo.common.env_wrappers import build_env, find_env_type
from zoo.common.envs.about import about
from zoo.common.records import TrainingResult
from zoo.common.schedules import schedule_from_json, schedule_to_json
from zoo.common.tools import habits
from zoo.common.tools.checks import whole
from zoo.common.tools.errors import InvalidValue, unknown
from zoo.common.tools.files import jsonable
from zoo.common.tools.identity import identity, name_of
from zoo.common.tools.params import Param, above, refusal
from zoo.common.tools.printing import say
from zoo.common.training import checkpoint
from zoo.common.training.agent import mismatch
from zoo.common.training.display import in_verbose
from zoo.common.utils import call_default_params, default_nenv
from zoo.default_params import defaults_in, fit_exploration, networks, seeded
from zoo.experiments.origin import origin
from zoo.experiments.runs import Run, open_run

if TYPE_CHECKING:
    from zoo.algorithms.base.algorithm import Algorithm

log = logging.getLogger('zoo')

#: The arguments of :func:`train` besides parameters; an unknown name may be close to one of them.
ARGUMENTS = (
    'env_type', 'seed', 'nenv', 'vectorized', 'env_params', 'net', 'learning_rate', 'layers', 'dtype', 'recurrent',
    'evaluate', 'callbacks', 'plot_func', 'render', 'run_dir', 'start_from',
)  # fmt: skip

#: How :func:`train` declares the learning rate.
RATE = Param('learning_rate', None, 'number', 'size of the steps', above(0), scheduled=True, optional=True)


class Trained(NamedTuple):
    """The trained agent, and the result of its ``learn``."""

    agent: Algorithm
    result: TrainingResult


def train(
    alg: str,
    env_id: Any = None,
    env_type: str | None = None,
    *,
    seed: int | None = 0,
    nenv: int | None = None,
    vectorized: bool | str = False,
    env_params: Mapping[str, Any] | None = None,
    net: Any = None,
    learning_rate: Any = None,
    layers: str = 'keras',
    dtype: str | None = None,
    recurrent: str | None = None,
    evaluate: bool | Evaluate = True,
    callbacks: Iterable[Callable[..., Any]] = (),
    plot_func: Callable[[Sequence[float]], Any] | None = None,
    render: bool = False,
    run_dir: str | os.PathLike[str] | bool | None = None,
    start_from: str | os.PathLike[str] | Run | Algorithm | None = None,
    **params: Any,
) -> Trained:
    """Build an environment and an agent with its defaults, and train it: the four lines in one.

    >>> agent, result = zoo.train('PPO', 'CartPole-v1', gamma=0.98, train_steps=50_000)

    Args:
        alg: name of the algorithm, such as ``'PPO'``.
        env_id: as for ``build_env``: a name, a class, a function, or an environment, which is then not closed. With
            ``dataset`` it may be None: the environment is the recorded one. If that is not known, there are no tests.
        env_type: type of the environment; None: found from the name.
        seed: of the environment, the initial weights and the training; None: unpredictable.
        nenv: copies of the environment; None: the number for which the default settings are meant. That is 1 for most
            algorithms, 8 for A2C in CartPole, and 1 if an environment or a dataset is given.
        vectorized: how the copies run, as for ``build_env``.
        env_params: further arguments of ``build_env``, such as ``dict(max_episode_steps=200)``.
        net: units of the hidden layers of every network, ``'256,256'`` or ``[256, 256]``; or keys for the spec of every
            network, ``dict(hidden=[64], activation='relu')``; or the whole ``net_list``.
        learning_rate: learning rate of every optimizer, a number or a ``Linear`` schedule.
        layers, dtype, recurrent: as for ``call_default_params``.
        evaluate: test about ten times while it trains, in at most a tenth of the time, and keep the best agent in the
            run directory, see :class:`zoo.callbacks.KeepBest`. It does not change what is trained. False: no tests. A
            callback ``KeepBest`` or ``Evaluate`` tests instead. There are no tests with ``run_dir=False``, nor if
            ``callbacks`` has an ``Evaluate``.
        callbacks, plot_func, render, run_dir: as for ``learn``.
        start_from: a run, a checkpoint, the name of a trained agent, or an agent. The new agent begins with its
            weights, and its parameters are the defaults. It takes networks, targets and running statistics. The state
            of the optimizers, the replay buffer, counters and random numbers begin anew. Parameters of ``learn`` have
            their usual defaults.
        **params: any parameter of the algorithm or of its ``learn``; ``zoo.describe(alg)`` lists them.

    Returns:
        The agent and the result, a named tuple.

    Raises:
        ValueError: a name is unknown, and the message has the nearest known one; or a value is out of its range.
    """
    alg = algorithms.check_name(alg)
    params = in_verbose(params, warn=True)
    data = None
    if env_id is None:
        data, env_id, recorded = _recorded_environment(params)
        env_params = {**recorded, **(env_params or {})}
    if isinstance(env_id, str) and env_id.endswith('Policy') and env_id in habits.PLACES:
        raise InvalidValue(f'{env_id!r} stands where the environment belongs: {habits.PLACES[env_id]}.')
    if env_type is None and env_id is not None:
        env_type = find_env_type(env_id)
    cls: Any = getattr(algorithms, alg)
    check_names(cls, params)
    _check_lengths(cls, params)
    if learning_rate is not None and 'learning_rate' in known_params(cls):  # of the algorithm, not of an optimizer
        params, learning_rate = {**params, 'learning_rate': learning_rate}, None
    if learning_rate is not None and not cls.optimizer_names:
        raise InvalidValue(f'learning_rate={learning_rate!r}: {alg} has no optimizer.')
    learning_rate = RATE.check(learning_rate)
    if nenv is None:
        nenv = 1 if params.get('dataset') is not None else copies_for(alg, env_type or '', env_id)
    source = None
    if start_from is not None:
        for name, value in (('net', net), ('dtype', dtype), ('recurrent', recurrent), ('layers', layers)):
            if value not in (None, 'keras'):
                raise InvalidValue(f'{name}={value!r} changes the networks, but they are the saved ones: leave it out.')
        source = origin(start_from, alg, params.pop('net_list', None))
    elif params.get('net_list') is not None:
        for name, value in (('dtype', dtype), ('recurrent', recurrent), ('layers', layers)):
            if value not in (None, 'keras'):
                told = f'{name}={value!r} is for the default networks, but net_list says what the networks are'
                raise InvalidValue(f'{told}: write {name} into its entries.')
    given: dict[str, Any] = {'seed': seed, 'nenv': nenv, 'vectorized': vectorized}
    for name in (env_params or {}).keys() & given.keys():
        option = '--set vectorized=…' if name == 'vectorized' else f'--{name} …'
        told = f'{name} is an argument of its own'
        shell = f'{told}: give {option}, not in --env-set.'
        raise InvalidValue(f'{told}: give {name}=…, not in env_params.', shell=shell)
    env = (
        None if env_id is None else build_env(env_id, env_type or find_env_type(env_id), **given, **(env_params or {}))
    )
    with _closing(None if env is env_id or isinstance(env_id, Env | VectorEnv) else env):
        if env is None:
            assert data is not None
            spaces = data.observation_space, data.action_space
            found = defaults_in(alg, *spaces, 1, 'gymnasium', '', lambda: False, seed, layers, dtype, recurrent)
            (alg_params, learn_params), own = found, None
        else:
            alg_params, learn_params = call_default_params(env, env_type, alg, seed, layers, dtype, recurrent)
            own = about(env).defaults.get(alg)
        if own is not None and params.get('verbose', 1):
            mine = {'net': net, 'learning_rate': learning_rate, **params}
            used = {name: value for name, value in own['values'].items() if mine.get(name) is None}
            if source is not None:  # its parameters and networks are the saved ones
                used = {name: value for name, value in used.items() if name in learn_params or name == 'nenv'}
            values = ', '.join(f'{name}={schedule_from_json(value)}' for name, value in used.items())
            if values:
                say(f'Your own defaults in {own["file"]}: {values}')
        if source is not None:
            wrong = None if env is None else mismatch(source.agent, env)  # a dataset's spaces are compared by learn
            if wrong is not None:
                raise InvalidValue(f'{source.name} cannot begin a training here: the {wrong}.')
            alg_params = source.agent.blueprint()[1]
        if net is not None:
            if params.get('net_list') is not None:
                raise InvalidValue('net and net_list both say what the networks are: give one of them.')
            alg_params['net_list'] = networks(net, alg_params['net_list'])
        if params.get('dataset') is not None and cls.loop.from_data is not None:
            from zoo.algorithms.base.learning import refuse_unread_with_data

            refuse_unread_with_data(cls.loop, params)
        for name in ('log_std_init', 'noisy_std'):
            saved = alg_params.get(name)
            if source is not None and params.get(name, saved) != saved:
                told = f"{name} is where a new agent's σ begins, but start_from takes the σ that was learned"
                raise InvalidValue(f'{told}: leave it out.')
        fit_exploration(cls, alg_params, params)
        for name, value in params.items():
            (alg_params if name in alg_params else learn_params)[name] = value
        alg_params['net_list'] = seeded(alg_params['net_list'], seed)
        if learning_rate is not None:
            entries = alg_params['optimizers_list']
            if params.get('optimizers_list') is not None:
                raise InvalidValue('learning_rate and optimizers_list both say what the rates are: give one of them.')
            alg_params['optimizers_list'] = [{**entry, 'learning_rate': learning_rate} for entry in entries]
        agent = cls(**alg_params)
        callbacks = _with_tests(callbacks, evaluate, run_dir)
        if source is not None:
            source.give(agent)
            callbacks = (source, *callbacks) if isinstance(callbacks, tuple) else callbacks
        result = agent.learn(
            env, 'train', render=render, plot_func=plot_func, callbacks=callbacks, run_dir=run_dir, **learn_params
        )
    return Trained(agent, result)


def _recorded_environment(params: Mapping[str, Any]) -> tuple[Dataset, Any, dict[str, Any]]:
    """Return the dataset, the name of the environment that it was recorded in, and its arguments of ``build_env``.

    The name is None where the dataset does not say how to build it.
    """
    if params.get('dataset') is None:
        told = 'the environment is missing: give its name'
        raise InvalidValue(f"{told}, such as zoo.train('PPO', 'CartPole-v1'), or a dataset to learn from.")
    data = open_dataset(params['dataset'])
    known = data.environment
    if known is None or known.arguments is None:
        return data, None, {}
    arguments = {
        name: value for name, value in known.arguments.items() if name not in ('env_type', 'nenv', 'vectorized')
    }
    return data, arguments.pop('env_id'), arguments


def resume(
    run: str | os.PathLike[str] | Run,
    *,
    train_steps: int | None = None,
    evaluate: bool | Evaluate | None = None,
    callbacks: Iterable[Callable[..., Any]] = (),
    plot_func: Callable[[Sequence[float]], Any] | None = None,
    env: Env | VectorEnv | None = None,
    net_list: Sequence[Any] | None = None,
    **changes: Any,
) -> Trained:
    """Go on with a run from its newest checkpoint, in its own run directory.

    Everything that a checkpoint holds comes along: weights, optimizers, running statistics, counters and random
    numbers; the replay buffer if it was saved. A run that has ended goes on too, if ``train_steps`` says how far. Its
    schedules are stretched to the new end.

    Args:
        run: the folder of the run, or its name in ``runs``.
        train_steps: steps in all, from its beginning, or updates if it learns from a dataset; None: as many as it was
            begun with.
        evaluate: as for :func:`train`; None: as before, with the best agent so far.
        callbacks, plot_func: as for ``learn``.
        env: the environment; None: built again, which needs an environment with a name. A run without an environment
            goes on without.
        net_list: networks of the same shapes, if the run has networks that were defined in Python; as for ``zoo.load``.
        **changes: parameters of ``learn`` that do not change what is learned: ``verbose``, ``log_every``, …; and
            ``dataset`` or ``recorded``, if the run learned from episodes that no path names: from memory, or some of a
            file.

    Returns:
        The agent and the result, a named tuple.

    Raises:
        ValueError: there is no such run; it has as many steps already; or its environment has no name and ``env`` is
            not given.
    """
    found = open_run(run)
    found.check_resumable()
    if changes.get('seed', found.seed) != found.seed:
        told = f'seed={changes["seed"]} begins another training, and {found.name} goes on with its own random numbers'
        raise InvalidValue(f'{told}: leave it out.')
    if train_steps is not None:
        whole('train_steps', train_steps)
    _refuse_changes(found, changes)
    agent = _last_agent(found, changes, net_list)
    if agent.loop_state is None:
        # The agent may have learned in other runs before.
        steps = agent.steps - (found.config.get('calls') or [[0, 0]])[0][0]
        if train_steps is None:
            told = f'{found.name} was not interrupted: it has ended after {steps:,} steps. To train it further, '
            more = 'say how many steps in all'
            raise InvalidValue(f'{told}{more}: train_steps={2 * steps}.', shell=f'{told}{more}: --steps {2 * steps}.')
        if train_steps <= steps:
            raise InvalidValue(
                f'{found.name} has {steps:,} steps behind it, so {train_steps:,} in all leave nothing to do: give more.'
            )
        agent.loop_state = {'steps': steps, 'train_steps': steps}
    learn_params = in_verbose(found.config.get('learn_params', {})) | in_verbose(changes, warn=True)
    for name in ('dataset', 'recorded'):
        used = found.config.get('learn_params', {}).get(name)
        without_path = [x for x in ([used] if isinstance(used, str) else used or ()) if str(x).startswith('<')]
        if name not in changes and without_path:
            told = f'{found.name} learned from {without_path[0]}, which no path names'
            raise InvalidValue(f'{told}: give it again, zoo.resume(…, {name}=…).')
    if train_steps is not None:
        learn_params[algorithms.length_of(found.algorithm, learn_params)] = train_steps
    built = found.build_env(found.seed) if env is None and found.has_environment else None
    env = built if env is None else env
    learn_params |= {'resume': True, 'run_dir': found.path}
    own = KeepBest.of_run(found.path) if evaluate is None else None
    evaluate = own is not None if evaluate is None else evaluate
    with _closing(built):
        callbacks = _with_tests(callbacks, evaluate, found.path, own)
        _tell_of_callbacks(found, callbacks)
        result = agent.learn(env, 'train', callbacks=callbacks, plot_func=plot_func, **learn_params)
    return Trained(agent, result)


def _tell_of_callbacks(run: Run, callbacks: Any) -> None:
    """Say which callbacks of a run are not called any more, since only a program can give them."""
    given = set(map(name_of, callbacks))
    before = list(run.config.get('callbacks') or ())
    tested = (run.path / 'evaluations.csv').exists()
    if tested and KeepBest.of_run(run.path) is None and not {'Evaluate', 'KeepBest'} & given:
        before.append('Evaluate')
    missing = ', '.join(name for name in dict.fromkeys(before) if name not in given)
    if missing:
        told = '%s goes on without %s: a program gives its callbacks again, zoo.resume(…, callbacks=[…]).'
        log.warning(told, run.name, missing)


def _refuse_changes(run: Run, changes: Mapping[str, Any]) -> None:
    """Refuse what would change the agent or the environment of a run, and name the way that there is."""
    cls: Any = getattr(algorithms, run.algorithm, None)  # None: one of the user's own
    if cls is None:
        return
    of_others = {*cls.declared(), *ARGUMENTS} - {*cls.declared_for_learn(), 'seed'}
    foreign = [name for name in changes if name in of_others]
    if foreign:
        told = f'{run.name} goes on as it was begun, so {", ".join(foreign)} cannot be given'
        new = f"zoo.train('{run.algorithm}', '{run.environment}', start_from='{run.path}', {foreign[0]}=…)"
        raise InvalidValue(f'{told}. A new run begins with its weights: {new}.')


def _last_agent(run: Run, changes: Mapping[str, Any], net_list: Sequence[Any] | None) -> Any:
    """Load the agent to go on with, and say so if that is not the newest one."""
    due, newest = run.to_resume(changes.get('exact_resume')), run.to_resume(False)
    if due is None or newest is None or due == newest:
        return run.load(net_list=net_list)
    from zoo.algorithms.base import load

    steps, cut = checkpoint.steps_of(due), checkpoint.steps_of(newest)
    say(f'exact_resume goes on from the checkpoint at step {steps:,}, not from the interruption at step {cut:,}.')
    return load(due, net_list)


def _with_tests(callbacks: Any, evaluate: Any, run_dir: Any, tests: KeepBest | None = None) -> Any:
    """Return the callbacks with the one that tests."""
    if not isinstance(evaluate, bool | Evaluate):
        right = 'True, False, or a callback such as zoo.callbacks.KeepBest(every=5000)'
        raise InvalidValue(f'evaluate is {evaluate!r}: give {right}.')
    if callable(callbacks) or not isinstance(callbacks, Iterable):
        return callbacks  # learn refuses it
    callbacks = tuple(callbacks)
    if isinstance(evaluate, Evaluate):
        return (*callbacks, evaluate)
    if not evaluate or run_dir is False or any(isinstance(callback, Evaluate) for callback in callbacks):
        return callbacks
    return (*callbacks, tests or KeepBest())


def copies_for(alg: str, env_type: str, env_id: Any) -> int:
    """Return the default of ``nenv``."""
    if isinstance(env_id, Env | VectorEnv):
        return 1
    return default_nenv(alg, env_type, env_id if isinstance(env_id, str) else getattr(env_id, '__name__', ''))


def kept_defaults(alg: str, env_type: str, environment: str) -> dict[str, Any]:
    """Return the user's own defaults for the settings of several runs, which must not change among them."""
    own = own_defaults_for(alg, env_type, environment)
    return {} if own is None else {'own_defaults': own.checked()}


def known_params(cls: Any) -> dict[str, Param]:
    """Return the parameters that :func:`train` takes for an algorithm: of its constructor and of its ``learn``."""
    declared = cls.declared() | cls.declared_for_learn()
    return {name: declared[name] for name in declared if name not in ('observation_space', 'action_space', 'resume')}


def check_names(cls: Any, names: Iterable[str]) -> None:
    """Refuse a parameter that neither the constructor nor ``learn`` takes, and name the nearest known one."""
    known = known_params(cls)
    elsewhere = dict.fromkeys(('observation_space', 'action_space'), "is the environment's.")
    for name in habits.OF_ENVIRONMENTS:
        elsewhere[name] = f'is an argument of the environment: env_params=dict({name}=…).'
    elsewhere |= {
        'resume': "is not for new runs: zoo.resume('runs/…') goes on with a run.",
        'mode': "is not needed: zoo.train trains, agent.learn(env, 'test') tests.",
    }

    def refused(name: str, message: str) -> InvalidValue:
        option = habits.IN_SHELL.get(name)
        shell = None if option is None else f'unknown parameter {name!r}: {option}.'
        return InvalidValue(message, shell=shell)

    for name in names:
        if name in known:
            continue
        told = habits.OF_TRAIN.get(name)
        if told is None and (habits.renamed(name, known) or habits.advice(name) or name in elsewhere):
            raise refused(name, refusal(f'parameter of {cls.__name__}', name, known, elsewhere))
        if told is None:
            raise refused(name, unknown(f'parameter of {cls.__name__}', name, [*known, *ARGUMENTS]))
        told = told if ' ' in told else f'it is called {told!r} here'
        raise refused(name, f'unknown parameter {name!r}: {told}.')


def _check_lengths(cls: Any, params: Mapping[str, Any]) -> None:
    """Refuse both lengths of a training, or the wrong one: it steps an environment or learns from a dataset."""
    from_data = params.get('dataset') is not None and cls.loop.from_data is not None
    if from_data and params.get('train_steps') is not None and params.get('train_updates') is None:
        told = 'train_steps counts environment steps, and with a dataset none is taken'
        raise InvalidValue(f'{told}: give train_updates, the number of gradient updates.')
    if params.get('train_steps') is not None and params.get('train_updates') is not None:
        without = 'train_steps' if params.get('dataset') is not None else 'train_updates'
        what = 'with a dataset no step is taken' if without == 'train_steps' else 'there is no dataset'
        told = f'train_steps counts environment steps and train_updates updates on a dataset: {what}'
        raise InvalidValue(f'{told}, so leave {without} out.')


def plain_settings(value: Any) -> Any:
    """Return a setting as JSON data; objects that JSON cannot hold become their :func:`identity`."""
    value = schedule_to_json(value)
    if isinstance(value, Dataset | os.PathLike):
        return described(value)
    if isinstance(value, Mapping):
        return {str(key): plain_settings(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_settings(item) for item in value]
    try:
        return jsonable(value)
    except TypeError:
        return identity(value)


def kept_environment(env_id: Any) -> dict[str, str]:
    """Return the setting that tells environments of one name apart: what a function makes. Empty for other kinds."""
    return {} if isinstance(env_id, str | type) else {'env_id': identity(env_id)}


@contextlib.contextmanager
def _closing(env: Any) -> Iterator[None]:
    try:
        yield
    finally:
        if env is not None:
            env.close()
