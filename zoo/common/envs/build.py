"""``build_env``: every environment, single or vectorised, from one call.

A type of environment is one line in :data:`TYPES` and one module in ``zoo/common/envs`` with a function
``find(env_id, env_type)``. It checks the name and returns a factory ``make(**kwargs) -> gymnasium.Env`` that can be
pickled; everything else (seeds, copies, reward shaping, action masks) is the same for all types and done here.

What the environments returned here report at the end of an episode:

======================  ==========================================================================================
environment             true final observation, final info
======================  ==========================================================================================
``Env``                 what ``step`` returns
``VectorEnv``           ``step`` returns the first observation of the *next* episode (``AutoresetMode.SAME_STEP``);
                        ``info['final_obs']`` is an object array ``[nenv]`` that holds, for the copies that finished,
                        the observation of that copy (an array, a number or, for a ``Dict`` space, a dict of arrays
                        without a leading axis) and None for the others. ``info['_final_obs']`` marks them: bool
                        ``[nenv]``. Neither key is there in a step in which no copy finished.
                        ``info['final_info'][key]`` has the values of ``key`` of those copies, ``[nenv, …]``, and
                        ``info['final_info']['_' + key]`` marks them.
======================  ==========================================================================================

This is the same for ``'sync'``, ``'async'`` and ``'envpool'``. With ``reward_shaping`` the final info also has
``episode``: the unshaped return ``'r'`` and the length ``'l'``; that is ``info['episode']['r']``, a number, for an
``Env`` and ``info['final_info']['episode']['r']``, ``[nenv]``, for a ``VectorEnv``. A ``VectorEnv`` *object* keeps the
autoreset mode it was made with, see ``env.metadata['autoreset_mode']``; if that is not ``SAME_STEP``, the statistics
are in ``info['episode']['r']``, ``[nenv]``.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import numbers
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from zoo.common.envs.about import env_type_of, rebuild, registration
from zoo.common.tools.errors import nearest, unknown

if TYPE_CHECKING:
    from gymnasium import Env
    from gymnasium.vector import VectorEnv


#: Environment type -> the module in ``zoo/common/envs`` whose ``find`` knows its names.
TYPES = {
    'classic_control': 'registered',
    'box2d': 'registered',
    'mujoco': 'registered',
    'atari': 'atari',
    'robotics': 'registered',
    'dm_control': 'dm_control',
    'rlbench': 'rlbench',
    'gymnasium': 'registered',
}
#: How the copies of an environment can run.
VECTORIZED = ('sync', 'async', 'envpool')
_COPIES = 'nenv=4 makes four copies'
_DIRECTLY = 'give what belongs to the environment directly, as in build_env(MyEnv, length=9)'
#: What other libraries call it -> what it is called here.
HABITS = {
    **dict.fromkeys(('n_envs', 'num_envs', 'envs', 'n_env', 'num_env', 'nenvs'), _COPIES),
    **dict.fromkeys(
        ('vec_env', 'vec_env_cls', 'vectorization_mode'), "vectorized='sync' or 'async' says how the nenv copies run"
    ),
    **dict.fromkeys(('env_kwargs', 'make_kwargs', 'kwargs'), _DIRECTLY),
    'render': "render_mode='human' opens a window and render_mode='rgb_array' gives pictures",
}


def build_env(
    env_id: Any,
    env_type: str = 'gymnasium',
    vectorized: bool | str = False,
    seed: int | None = 0,
    reward_shaping: Callable[[float], float] | None = None,
    nenv: int = 1,
    **kwargs: Any,
) -> Env | VectorEnv:
    """Build an environment, or ``nenv`` copies of one that step together.

    The environment is returned seeded and its first observation has been checked against its space: copy ``i`` is
    seeded with ``seed + i``, so two environments built alike give the same episodes under ``reset()`` and the same
    actions.

    Args:
        env_id: the name of the environment, for example ``'CartPole-v1'``. For ``env_type='gymnasium'`` also
            ``'package:Name-v0'`` (the package is imported first), an environment class, a function that returns an
            environment, or an environment object (a ``gymnasium.Env`` or a ``gymnasium.vector.VectorEnv``). Those of
            the old ``gym`` interface are adapted. ``zoo.check_env`` says what is wrong with one.
        env_type: ``'classic_control'``, ``'box2d'``, ``'mujoco'``, ``'atari'``, ``'robotics'``, ``'dm_control'``,
            ``'rlbench'``, or ``'gymnasium'`` for whatever is registered or brought along.
        vectorized: how ``nenv > 1`` copies run. ``'sync'`` or False: one after the other in this process; ``'async'``:
            each in a process of its own, worth it when a step takes longer than about 0.3 ms; ``'envpool'``: in the
            threads of EnvPool, for the tasks that it has; True: the fastest one available, that is ALE's own threads
            for Atari, ``'envpool'`` from four copies on for tasks that it has and without other ``kwargs`` than
            ``max_episode_steps``, else ``'sync'``. RLBench's copies always run as ``'async'``. With ``nenv=1`` the
            environment is a plain ``Env`` whatever is given here.
        seed: seed of the first copy and of the action space, an integer from 0 on, or None for an unpredictable one.
        reward_shaping: a function of one reward; training sees what it returns, a finite number. The unshaped return of
            each episode is in ``info['episode']``, see the module's docstring.
        nenv: number of copies.
        **kwargs: passed to ``gymnasium.make``, the class or the function: ``render_mode``, ``continuous``, ….
            ``max_episode_steps``, an integer from 1 on, sets the time limit, at which an episode is truncated, for
            every kind of ``env_id``. ``hide_velocity=True`` leaves the velocities out of the observation of CartPole,
            Pendulum and LunarLander. ``frame_stack``, an integer from 1 on, joins the last observations, oldest first:
            images behind each other in their last axis, channels last whatever the order they came in, every other
            ``Box`` side by side as a vector. Goals, and parts that are no ``Box``, stay as they are. An argument of
            that name that the environment itself takes goes before.

    Returns:
        A ``gymnasium.Env`` when ``nenv == 1``, else a ``gymnasium.vector.VectorEnv``. A ``VectorEnv`` object is
        returned as such. An environment, a ``VectorEnv`` object too, whose ``info`` holds an ``action_mask`` that its
        observation lacks gets it as part of its observation, see :class:`zoo.common.envs.wrappers.masks.ActionMask`.

    Raises:
        ValueError: an unknown ``env_id``, ``env_type`` or ``vectorized``; an environment of another type; ``nenv < 1``;
            ``seed < 0``; a time limit that the environment ends its episodes before; ``render_mode='human'`` without a
            display; a first observation outside its space; a task that EnvPool lacks; a ``VectorEnv`` object that does
            not say in ``metadata['autoreset_mode']`` when it resets its copies. (By ``step``) ``reward_shaping`` did
            not give a finite number.
        TypeError: ``env_id`` is not an environment; it does not take one of ``kwargs``; ``'async'`` cannot pickle it;
            an ``action_mask`` for actions that cannot be masked.
        ImportError: a package is missing; the message has the ``pip install`` line.
    """
    env = _build(env_id, env_type, vectorized, seed, reward_shaping, nenv, kwargs)
    if kwargs.get('render_mode') == 'human':
        from zoo.common.envs import rendering

        try:
            rendering.check_window(_name(env_id))
        except ValueError:
            env.close()
            raise
    known_type = env_type_of(env) if env_type == 'gymnasium' else None  # of an environment that is built on
    marked: Any = env
    with contextlib.suppress(AttributeError):  # an object that takes none
        marked._zoo_type = known_type or env_type
        if isinstance(env_id, (str, type, partial)) or inspect.isroutine(env_id):
            marked._zoo_name = _name(env_id).strip('<>')  # a lambda's is '<lambda>', which is no name for a file
            if isinstance(env_id, str) and reward_shaping is None:
                made_with = {'env_id': env_id, 'env_type': env_type, 'vectorized': vectorized, 'nenv': nenv, **kwargs}
                made_with.pop('render_mode', None)  # how somebody looked at it
                marked._zoo_made_with = made_with
            again = partial(build_env, env_id, env_type, vectorized, reward_shaping=reward_shaping, nenv=nenv, **kwargs)
            marked._zoo_rebuild = partial(rebuild, registration(env_id), again)
    return env


def find_env_type(env_id: Any) -> str:
    """The type of an environment, from its name.

    Args:
        env_id: as for :func:`build_env`.

    Returns:
        A type of :data:`TYPES`; ``'gymnasium'`` for what belongs to no other one, and for whatever is no name.

    Raises:
        ValueError: no type that is installed has the name, with the nearest one that there is.
        ImportError: ``package`` of ``'package:Name-v0'`` cannot be imported.
    """
    if not isinstance(env_id, str):
        return 'gymnasium'
    from zoo.common.envs.kinds import registered

    try:
        return registered.type_of(registered.find_spec(env_id, 'gymnasium'))
    except ValueError as error:
        refused = str(error)
    known = []
    for env_type, module in TYPES.items():
        if module != 'registered' and env_type != 'atari':  # whose names are registered
            with contextlib.suppress(ImportError):
                names = importlib.import_module(f'zoo.common.envs.kinds.{module}').ids()
                if env_id in names:
                    return env_type
                known += names
    close = nearest(env_id, [*registered.ids('gymnasium'), *known])
    raise ValueError(unknown('environment', env_id, known) if close in known else refused)


def _name(env_id: Any) -> str:
    """What error messages call what :func:`build_env` was given."""
    if isinstance(env_id, str):
        return env_id
    if isinstance(env_id, partial):
        return _name(env_id.func)
    return getattr(env_id, '__name__', type(env_id).__name__)


def _build(
    env_id: Any,
    env_type: str,
    vectorized: bool | str,
    seed: int | None,
    reward_shaping: Callable[[float], float] | None,
    nenv: int,
    kwargs: dict[str, Any],
) -> Env | VectorEnv:
    if not isinstance(env_type, str) or env_type not in TYPES:
        raise ValueError(unknown('environment type', env_type, TYPES))
    if not isinstance(vectorized, bool) and vectorized not in VECTORIZED:
        raise ValueError(unknown('way to vectorise', vectorized, VECTORIZED))
    if not _is_integer(nenv, 1):
        raise ValueError(f'nenv is the number of copies, an integer of at least 1, but got {nenv!r}.')
    if seed is not None and not _is_integer(seed, 0):
        raise ValueError(f'seed is an integer from 0 on, or None for an unpredictable one, but got {seed!r}.')
    limit = kwargs.get('max_episode_steps')
    if limit is not None and not _is_integer(limit, 1):
        raise ValueError(
            'max_episode_steps is the number of steps after which an episode is truncated, an integer of at least 1, '
            f'but got {limit!r}.'
        )
    if reward_shaping is not None:
        if not callable(reward_shaping):
            raise TypeError(
                f'reward_shaping is a function of one reward, such as lambda r: r / 10, not {reward_shaping!r}.'
            )
        reward_shaping = partial(_shaped, reward_shaping)

    nenv = int(nenv)
    seed = None if seed is None else int(seed)
    if limit is not None:
        kwargs = {**kwargs, 'max_episode_steps': int(limit)}
    module = importlib.import_module(f'zoo.common.envs.kinds.{TYPES[env_type]}')
    find = module.find(env_id, env_type)
    kwargs = dict(kwargs)  # whoever called it builds the same again
    views = _take_views(env_id, env_type, kwargs)
    make = partial(find, **kwargs)
    _refuse_habits(env_id, env_type, kwargs)
    name = _name(env_id)

    from gymnasium import Env
    from gymnasium.vector import VectorEnv

    from zoo.common.envs import vector
    from zoo.common.envs.kinds.old_gym import is_old_gym
    from zoo.common.envs.wrappers.prepare import prepare, prepare_vector
    from zoo.common.envs.wrappers.views import viewed

    if views:
        if vectorized == 'envpool':
            raise ValueError(
                f"EnvPool's environments are seen as they are: {' and '.join(views)} need vectorized='sync' or 'async'."
            )
        make = partial(viewed, make, **views)

    if isinstance(env_id, (Env, VectorEnv)) or is_old_gym(env_id):
        if nenv not in (1, getattr(env_id, 'num_envs', 1)):
            raise ValueError(
                f'the environment object {name} cannot be copied: give its class or a function that makes it.'
            )
        nenv = 1
    one_per_process = getattr(module, 'ONE_PER_PROCESS', False)
    if nenv > 1 and one_per_process:
        if vectorized in ('sync', 'envpool'):
            raise ValueError(f"{env_type} runs one environment in a process: copies need vectorized='async'.")
        vectorized = 'async'
    if nenv == 1:
        env = make()
        wrapped = prepare_vector if isinstance(env, VectorEnv) else prepare
        try:
            return wrapped(env, name, seed, reward_shaping)
        except BaseException:
            if one_per_process:  # its place is taken as long as the error that holds it is
                with contextlib.suppress(Exception):
                    env.close()
            raise
    pool = getattr(module, 'Pool', None)
    in_threads = pool.may_pay if pool else partial(_envpool_may_pay, env_id)
    if vectorized == 'envpool' or (vectorized is True and in_threads(nenv, kwargs | views)):
        from zoo.common.envs import envpool

        task = name.rpartition(':')[2]
        reference = prepare(make(), name, seed, None)
        try:
            env = None
            if pool:
                env = pool(nenv, reference, vectorized == 'envpool', **kwargs)
            elif vectorized == 'envpool' or envpool.has_task(task, reference):
                env = envpool.EnvPoolVectorEnv(task, nenv, reference, **kwargs)
            if env is not None:
                return prepare_vector(env, name, seed, reward_shaping)
        finally:
            reference.close()
    seeds = [None if seed is None else seed + i for i in range(nenv)]
    env = vector.make_vector(make, name, seeds, reward_shaping, vectorized == 'async', one_per_process)
    env.action_space.seed(seed)
    return env


def _take_views(env_id: Any, env_type: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Take what changes how an environment is seen out of ``kwargs``, unless it is an argument of its own.

    Raises:
        ValueError: a value that makes no sense.
    """
    views = {}
    for key in ('hide_velocity', 'frame_stack'):
        if key not in kwargs or (key == 'frame_stack' and (env_type == 'atari' or kwargs.get('pixels'))):
            continue
        if env_type == 'gymnasium':
            from zoo.common.envs.kinds import registered

            if registered.takes(env_id, key):
                continue
        views[key] = kwargs.pop(key)
    hidden, frames = views.get('hide_velocity', False), views.get('frame_stack', 1)
    if not isinstance(hidden, bool):
        raise ValueError(f'hide_velocity is {hidden!r}: give True or False.')
    if not _is_integer(frames, 1):
        raise ValueError(f'frame_stack is {frames!r}: give the number of observations, a whole number from 1 on.')
    return ({'hide_velocity': True} if hidden else {}) | ({'frame_stack': int(frames)} if frames > 1 else {})


def _is_integer(value: Any, least: int) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def _shaped(function: Callable[[float], float], reward: float) -> float:
    """What ``reward_shaping`` makes of a reward.

    Raises:
        ValueError: that is not a finite number.
    """
    shaped = function(reward)
    try:
        if math.isfinite(shaped):
            return float(shaped)
    except TypeError:  # None, a text, an array of several
        pass
    raise ValueError(f'reward_shaping must give a finite number, but gave {shaped!r} for the reward {reward!r}.')


def _refuse_habits(env_id: Any, env_type: str, kwargs: dict[str, Any]) -> None:
    """Refuse other libraries' names for what this one calls otherwise, unless the environment has such an argument.

    Raises:
        TypeError: one of ``kwargs`` is among :data:`HABITS`.
    """
    for key in filter(HABITS.__contains__, kwargs):
        if env_type == 'gymnasium':
            from zoo.common.envs.kinds import registered

            if registered.takes(env_id, key):
                continue
        raise TypeError(f'{_name(env_id)!r} does not take the argument {key!r}: {HABITS[key]}.')


def list_envs(env_type: str, latest: bool = False) -> list[str]:
    """The names that ``build_env(name, env_type)`` opens, sorted, as the installed packages list them.

    Args:
        env_type: as for :func:`build_env`. For ``'gymnasium'`` these are all names that are registered by installed
            packages known here and by those that have been imported; some of them may need packages beyond these.
        latest: leave out a name such as ``'Hopper-v4'`` where there is a ``'Hopper-v5'``.

    Raises:
        ValueError: an unknown ``env_type``.
        ImportError: the type's package is not installed; the message has the ``pip install`` line.
    """
    if not isinstance(env_type, str) or env_type not in TYPES:
        raise ValueError(unknown('environment type', env_type, TYPES))
    if TYPES[env_type] in ('registered', 'atari'):
        from zoo.common.envs.kinds import registered

        names = registered.installed_ids(env_type)
    else:
        names = importlib.import_module(f'zoo.common.envs.kinds.{TYPES[env_type]}').ids()
    if latest:
        newest: dict[str, int] = {}
        for stem, version in map(_version, names):
            newest[stem] = max(version, newest.get(stem, version))
        names = [name for name in names if newest[_version(name)[0]] == _version(name)[1]]
    return names


def _version(name: str) -> tuple[str, int]:
    """The stem and the version of a name; those without a version have 0."""
    stem, _, number = name.rpartition('-v')
    return (stem, int(number)) if stem and number.isdigit() else (name, 0)


def _envpool_may_pay(env_id: Any, nenv: int, kwargs: dict[str, Any]) -> bool:
    """Whether there are enough copies to make up for EnvPool's threads, in case that it has the task.

    A step of a pool costs about 60 microseconds however few copies it has. Measured on two cores, in microseconds per
    step of all copies, in this process / in EnvPool: 4 copies of Acrobot 141 / 53, of Pendulum 57 / 52, of LunarLander
    145 / 99, of HalfCheetah 192 / 187; 16 of HalfCheetah 732 / 510. Only CartPole is faster here, up to 8 copies
    (67 / 73). Arguments other than the time limit could mean something else to EnvPool.
    """
    return isinstance(env_id, str) and nenv >= 4 and not kwargs.keys() - {'max_episode_steps'}
