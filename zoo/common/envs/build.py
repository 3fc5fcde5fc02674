"""``build_env``: every environment, single or vectorized, from one call.

Each environment type has a module in ``zoo/common/envs/kinds``. Its ``find(env_id, env_type)`` checks the name and
returns a factory ``make(**kwargs) -> gymnasium.Env`` that can be pickled. Seeds, copies, reward shaping and action
masks are the same for all types and are done here.

What an environment reports at the end of an episode:

======================  ==========================================================================================
environment             true final observation, final info
======================  ==========================================================================================
``Env``                 what ``step`` returns
``VectorEnv``           ``step`` returns the first observation of the *next* episode (``AutoresetMode.SAME_STEP``).
                        ``info['final_obs']`` is an object array ``[nenv]``. It holds the final observation of each
                        copy that finished (an array, a number or, for a ``Dict`` space, a dict of arrays without a
                        leading axis) and None for the other copies. ``info['_final_obs']`` marks the copies that
                        finished: bool ``[nenv]``. A step in which no copy finished has neither key.
                        ``info['final_info'][key]`` has the values of ``key``, ``[nenv, …]``, and
                        ``info['final_info']['_' + key]`` marks the copies that have one.
======================  ==========================================================================================

This is the same for ``'sync'``, ``'async'`` and ``'envpool'``. With ``reward_shaping`` the final info also has
``episode`` with the unshaped return ``'r'`` and the length ``'l'``: numbers in ``info['episode']`` for an ``Env``,
arrays ``[nenv]`` in ``info['final_info']['episode']`` for a ``VectorEnv``. A ``VectorEnv`` *object* keeps its own
``env.metadata['autoreset_mode']``. If that is not ``SAME_STEP``, the arrays are in ``info['episode']``.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from zoo.common.envs import about
from zoo.common.envs.names import check_type, kind_of
from zoo.common.tools.checks import is_integer, takes
from zoo.common.tools.errors import InvalidType, InvalidValue, unknown

if TYPE_CHECKING:
    from gymnasium import Env
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.vector import VectorEnv

#: How the copies of an environment can run.
VECTORIZED = ('sync', 'async', 'envpool', 'compiled')
_COPIES = 'nenv=4 makes four copies'
_DIRECTLY = "give the environment's own arguments directly, as in build_env(MyEnv, length=9)"
#: An argument of other libraries -> what zoo has for it.
HABITS = {
    **dict.fromkeys(('n_envs', 'num_envs', 'envs', 'n_env', 'num_env', 'nenvs'), _COPIES),
    **dict.fromkeys(
        ('vec_env', 'vec_env_cls', 'vectorization_mode'), "vectorized='sync' or 'async' says how the nenv copies run"
    ),
    **dict.fromkeys(('env_kwargs', 'make_kwargs', 'kwargs'), _DIRECTLY),
    'render': "render_mode='human' opens a window and render_mode='rgb_array' gives pictures",
}


@overload
def build_env(
    env_id: VectorEnv,
    env_type: str = 'gymnasium',
    vectorized: bool | str = False,
    seed: int | None = 0,
    reward_shaping: Callable[[float], float] | None = None,
    nenv: int = 1,
    **kwargs: Any,
) -> VectorEnv: ...


@overload
def build_env(
    env_id: Any,
    env_type: str = 'gymnasium',
    vectorized: bool | str = False,
    seed: int | None = 0,
    reward_shaping: Callable[[float], float] | None = None,
    nenv: Literal[1] = 1,
    **kwargs: Any,
) -> Env: ...


@overload
def build_env(
    env_id: Any,
    env_type: str = 'gymnasium',
    vectorized: bool | str = False,
    seed: int | None = 0,
    reward_shaping: Callable[[float], float] | None = None,
    nenv: int = 1,
    **kwargs: Any,
) -> VectorEnv | Any: ...  # an Env if the number is 1, which a type checker does not know


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

    The environment is returned seeded. The form of its first observation has been checked against its space. Copy ``i``
    has the seed ``seed + i``. Environments built alike give the same episodes for ``reset()`` and the same actions.

    Args:
        env_id: the name of the environment, for example ``'CartPole-v1'``. For ``env_type='gymnasium'`` also
            ``'package:Name-v0'`` (the package is imported first), an environment class, a function that returns an
            environment, or an environment object (a ``gymnasium.Env`` or a ``gymnasium.vector.VectorEnv``). An
            environment of the old ``gym`` interface is adapted. ``zoo.check_env`` says what is wrong with one.
        env_type: ``'classic_control'``, ``'box2d'``, ``'mujoco'``, ``'atari'``, ``'robotics'``, ``'dm_control'``,
            ``'rlbench'``; ``'envpool'`` for EnvPool's own environments; ``'gymnax'``, ``'brax'``, ``'jumanji'``,
            ``'mjx'`` for these libraries in JAX; ``'compiled'`` for pure functions
            (:mod:`zoo.common.envs.compiled.functions`); or ``'gymnasium'`` for any registered or user-made environment.
        vectorized: how ``nenv > 1`` copies run. ``'sync'`` or False: one after the other in this process. ``'async'``:
            each in its own process, which pays when a step takes longer than about 0.3 ms. ``'envpool'``: in EnvPool's
            threads, for the tasks that EnvPool has. ``'compiled'``: compiled together with the policy that is trained
            in them, for the tasks of classic control. True: the fastest way available. For Atari that is ALE's own
            threads; else ``'envpool'`` from four copies on, for tasks that it has and without ``kwargs`` other than
            ``max_episode_steps``; else ``'sync'``. RLBench's copies always run as ``'async'``. Copies of the type
            ``'envpool'`` run in EnvPool's threads, unless ``'sync'`` or ``'async'`` is given. With ``nenv=1`` the
            environment is a plain ``Env``, whatever is given here.
        seed: the seed of the first copy and of the action space, an integer of at least 0, or None for a random one.
        reward_shaping: a function of one reward that returns a finite number, which training sees. Copies in one
            process share it; tests have a copy of it. The unshaped return of each episode is in ``info['episode']``,
            see the docstring of the module.
        nenv: the number of copies.
        **kwargs: passed to ``gymnasium.make``, the class or the function: ``render_mode``, ``continuous``, ….
            Three arguments work for every environment, unless it has an argument of that name itself.
            ``max_episode_steps``, an integer of at least 1, is the number of steps after which an episode is truncated.
            ``hide_velocity=True`` leaves the velocities out of the observation of CartPole, Pendulum and LunarLander.
            ``frame_stack``, an integer of at least 1, joins the last observations, oldest first: images along their
            last axis, with channels last; every other ``Box`` side by side as a vector. Goals, and parts that are no
            ``Box``, stay as they are.

    Returns:
        A ``gymnasium.Env`` when ``nenv == 1``, else a ``gymnasium.vector.VectorEnv``. A ``VectorEnv`` object is
        returned as such. Where ``info`` holds an ``action_mask`` that the observation lacks, the mask becomes a part of
        the observation, see :class:`zoo.common.envs.wrappers.masks.ActionMask`.

    Raises:
        ValueError: an unknown ``env_id``, ``env_type`` or ``vectorized``; an environment of another type; ``nenv < 1``;
            ``seed < 0``; an environment with a shorter time limit of its own; ``render_mode='human'`` without a
            display; a first observation that lacks a part, has another shape, or has a value that the dtype of its
            space cannot hold (``zoo.check_env`` looks at the bounds of a ``Box``, too); a task that EnvPool lacks; a
            ``VectorEnv`` object whose ``metadata['autoreset_mode']`` does not say when it resets its copies. (By
            ``step``) ``reward_shaping`` did not return a finite number.
        TypeError: ``env_id`` is not an environment; it does not take one of ``kwargs``; ``'async'`` cannot pickle it;
            an ``action_mask`` for actions that cannot be masked.
        ImportError: a package is missing; the message has the ``pip install`` line.
    """
    mode = kwargs.get('render_mode')
    if mode is not None:
        from zoo.common.envs.kinds import rendering

        if mode == 'rgb_array':
            rendering.draw_without_display()
    env = _build(env_id, env_type, vectorized, seed, reward_shaping, nenv, kwargs)
    if mode == 'human':
        try:
            rendering.check_window(_name(env_id))
        except ValueError:
            env.close()
            raise
    given = arguments = rebuild = None
    if isinstance(env_id, (str, type, partial)) or inspect.isroutine(env_id) or _is_pure(env_id):
        given = _name(env_id).strip('<>')  # '<lambda>' is no name for a file
        again = partial(build_env, env_id, env_type, vectorized, reward_shaping=reward_shaping, nenv=nenv, **kwargs)
        rebuild = partial(_rebuild, _registration(env_id), again)
        from zoo.common.envs.kinds import modules

        named = env_id if isinstance(env_id, str) else modules.path_of(env_id)
        if named is not None and reward_shaping is None:
            arguments = {'env_id': named, 'env_type': env_type, 'vectorized': vectorized, 'nenv': nenv, **kwargs}
            arguments.pop('render_mode', None)  # it says how somebody looked at the environment
    about.remember(env, env_type, given, arguments, rebuild)
    return env


def _registration(env_id: Any) -> EnvSpec | None:
    """What Gymnasium knows of a name, which the program may have registered; None for anything else."""
    from gymnasium.envs.registration import registry

    spec = registry.get(env_id) if isinstance(env_id, str) else None
    if spec is None or not str(spec.entry_point).startswith('__main__:'):
        return spec
    from zoo.common.envs.kinds import registered

    return registered.find_spec(env_id, 'gymnasium')  # with the class itself, which another process cannot import


def _rebuild(known: EnvSpec | None, again: partial[Any], seed: int | None = 0, **changes: Any) -> Any:
    """Build an environment again, in this process or in one where its name is not registered yet."""
    if known is not None:
        from gymnasium.envs.registration import registry

        from zoo.common.envs.kinds import registered

        try:
            registered.find_spec(known.id, 'gymnasium')
        except (ValueError, ImportError):
            registry[known.id] = known
    shaping = again.keywords['reward_shaping']
    with contextlib.suppress(Exception):  # what cannot be copied is shared
        shaping = copy.deepcopy(shaping)  # a state of its own, so that tests change nothing of a training
    return again(seed=seed, **{'reward_shaping': shaping, **changes})


def _is_pure(env_id: Any) -> bool:
    """Whether this is an object of pure functions, which zoo can copy any number of times."""
    from zoo.common.envs.kinds import compiled

    return compiled.is_functions(env_id)


def _name(env_id: Any) -> str:
    """What error messages call what :func:`build_env` was given."""
    if isinstance(env_id, str):
        return env_id
    if isinstance(name := getattr(env_id, 'name', None), str) and _is_pure(env_id):
        return name
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
    _check_arguments(env_type, vectorized, seed, reward_shaping, nenv)
    if reward_shaping is not None:
        reward_shaping = partial(_shaped, reward_shaping)
    nenv, seed = int(nenv), None if seed is None else int(seed)
    kind = kind_of(env_type)
    is_compiled = getattr(kind, 'COMPILED', False)
    if vectorized == 'compiled' and hasattr(kind, 'make_vector') and not is_compiled:
        raise InvalidValue(f"{env_type} environments are not compiled: leave out vectorized='compiled'.")
    if is_compiled or vectorized == 'compiled':
        if not (kwargs.get('render_mode') == 'human' and nenv == 1 and vectorized == 'compiled'):
            return _build_compiled(env_id, env_type, vectorized, seed, reward_shaping, nenv, kwargs)
        vectorized = False  # Gymnasium's own environment has the window
    make, views, kwargs = single_maker(env_id, env_type, kwargs)
    name = _name(env_id)

    from gymnasium import Env
    from gymnasium.vector import VectorEnv

    from zoo.common.envs.kinds.old_gym import is_old_gym

    if views and vectorized == 'envpool':
        names = ' and '.join(views)
        raise InvalidValue(
            f"EnvPool cannot change what its environments show: {names} need vectorized='sync' or 'async'."
        )
    if isinstance(env_id, (Env, VectorEnv)) or is_old_gym(env_id):
        if nenv not in (1, getattr(env_id, 'num_envs', 1)):
            raise InvalidValue(
                f'the environment object {name} cannot be copied: give its class or a function that makes it.'
            )
        nenv = 1
    one_per_process = getattr(kind, 'ONE_PER_PROCESS', False)
    if nenv == 1:
        return _build_single(make, name, seed, reward_shaping, one_per_process)
    if hasattr(kind, 'make_vector') and vectorized not in ('sync', 'async') and not views:
        from zoo.common.envs.wrappers.prepare import prepare_vector

        return prepare_vector(kind.make_vector(env_id, nenv, **kwargs), name, seed, reward_shaping)
    if one_per_process:
        if vectorized in ('sync', 'envpool'):
            raise InvalidValue(f"{env_type} runs one environment in a process: copies need vectorized='async'.")
        vectorized = 'async'
    pool = getattr(kind, 'Pool', None)
    may_pay = pool.may_pay if pool else partial(_envpool_may_pay, env_id)
    if vectorized == 'envpool' or (vectorized is True and may_pay(nenv, kwargs | views)):
        env = _build_in_threads(make, name, seed, reward_shaping, nenv, pool, vectorized == 'envpool', kwargs)
        if env is not None:
            return env
    from zoo.common.envs import vector

    seeds = [None if seed is None else seed + i for i in range(nenv)]
    env = vector.make_vector(make, name, seeds, reward_shaping, vectorized == 'async', one_per_process)
    env.action_space.seed(seed)
    return env


def _build_compiled(
    env_id: Any,
    env_type: str,
    vectorized: bool | str,
    seed: int | None,
    reward_shaping: Callable[[float], float] | None,
    nenv: int,
    kwargs: dict[str, Any],
) -> Env | VectorEnv:
    from zoo.common.envs.kinds import compiled
    from zoo.common.envs.wrappers.prepare import prepare, prepare_vector

    kind = kind_of(env_type)
    if vectorized in ('sync', 'async', 'envpool'):
        raise InvalidValue(f"copies of a compiled environment step together: leave out vectorized='{vectorized}'.")
    _check_limit_and_mode(kwargs)
    kind.find(env_id, env_type)  # refuses what it cannot be
    if not getattr(kind, 'COMPILED', False):
        if not isinstance(env_id, str):
            raise InvalidValue("vectorized='compiled' needs pure functions: build_env(MyFunctions(), 'compiled').")
        kind = compiled
    _refuse_habits(env_id, env_type, kwargs)
    kwargs = dict(kwargs)
    if views := _take_views(env_id, env_type, kwargs):
        needs = ' and '.join(views) + (' needs' if len(views) == 1 else ' need')
        raise InvalidValue(f"a compiled environment shows what its functions return: {needs} vectorized='sync'.")
    env: Env | VectorEnv
    if nenv == 1:
        env = prepare(kind.make(env_id, **kwargs), _name(env_id), seed, reward_shaping)
    else:
        env = prepare_vector(kind.make_vector(env_id, nenv, **kwargs), _name(env_id), seed, reward_shaping)
    env.action_space.seed(seed)
    return env


def single_maker(
    env_id: Any, env_type: str, given: dict[str, Any]
) -> tuple[Callable[[], Any], dict[str, Any], dict[str, Any]]:
    """Return what makes one environment from the arguments of ``build_env`` beyond its own.

    Returns:
        A function that makes it; what views of its observation it has (``frame_stack``, ``hide_velocity``); and the
        arguments that the environment itself takes.
    """
    _check_limit_and_mode(given)
    find = kind_of(env_type).find(env_id, env_type)
    kwargs = dict(given)  # a copy: the caller builds the environment again with the original
    if kwargs.get('max_episode_steps') is not None:
        kwargs['max_episode_steps'] = int(kwargs['max_episode_steps'])
    views = _take_views(env_id, env_type, kwargs)
    _refuse_habits(env_id, env_type, kwargs)
    make = partial(find, **kwargs)
    if views:
        from zoo.common.envs.wrappers.views import viewed

        make = partial(viewed, make, **views)
    return make, views, kwargs


def _build_single(
    make: Callable[[], Any],
    name: str,
    seed: int | None,
    reward_shaping: Callable[[float], float] | None,
    one_per_process: bool,
) -> Env | VectorEnv:
    from gymnasium.vector import VectorEnv

    from zoo.common.envs.wrappers.prepare import prepare, prepare_vector

    env = make()
    try:
        return (prepare_vector if isinstance(env, VectorEnv) else prepare)(env, name, seed, reward_shaping)
    except BaseException:
        if one_per_process:  # the traceback would keep it alive, and with it the one place of this process
            with contextlib.suppress(Exception):
                env.close()
        raise


def _build_in_threads(
    make: Callable[[], Any],
    name: str,
    seed: int | None,
    reward_shaping: Callable[[float], float] | None,
    nenv: int,
    pool: Callable[..., VectorEnv] | None,
    by_envpool: bool,
    kwargs: dict[str, Any],
) -> VectorEnv | None:
    """Copies in the threads of EnvPool, or of the type's own ``pool``; None where EnvPool does not have the task."""
    from zoo.common.envs.kinds import envpool
    from zoo.common.envs.wrappers.prepare import prepare, prepare_vector

    task = name.rpartition(':')[2]
    reference = prepare(make(), name, seed, None)
    try:
        if pool:
            env = pool(nenv, reference, by_envpool, **kwargs)
        elif by_envpool or envpool.has_task(task, reference):
            env = envpool.shared(task, nenv, reference, **kwargs)
        else:
            return None
        return prepare_vector(env, name, seed, reward_shaping)
    finally:
        reference.close()


def _check_arguments(env_type: Any, vectorized: Any, seed: Any, reward_shaping: Any, nenv: Any) -> None:
    """Refuse values that make no sense for any environment."""
    check_type(env_type)
    if not isinstance(vectorized, bool) and vectorized not in VECTORIZED:
        raise InvalidValue(unknown('value of vectorized', vectorized, VECTORIZED) + ' True takes the fastest.')
    if not is_integer(nenv, 1):
        raise InvalidValue(f'nenv is the number of copies, an integer of at least 1, not {nenv!r}.')
    if seed is not None and not is_integer(seed, 0):
        raise InvalidValue(f'seed is an integer of at least 0, or None for a random one, not {seed!r}.')
    if reward_shaping is not None and not (callable(reward_shaping) and takes(reward_shaping, 1)):
        raise InvalidType(
            f'reward_shaping is a function of one reward, such as lambda r: r / 10, not {reward_shaping!r}.'
        )


def _check_limit_and_mode(kwargs: dict[str, Any]) -> None:
    limit = kwargs.get('max_episode_steps')
    if limit is not None and not is_integer(limit, 1):
        raise InvalidValue(
            'max_episode_steps is the number of steps after which an episode is truncated, an integer of at least 1, '
            f'not {limit!r}.'
        )
    render_mode = kwargs.get('render_mode')
    if not isinstance(render_mode, str | None):
        raise InvalidValue(f"render_mode is {render_mode!r}: give its name, such as 'human' or 'rgb_array', or None.")


def _take_views(env_id: Any, env_type: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Take ``hide_velocity`` and ``frame_stack`` out of ``kwargs``, unless they are the environment's own arguments."""
    views = {}
    for key in ('hide_velocity', 'frame_stack'):
        stacked_already = key == 'frame_stack' and (env_type == 'atari' or kwargs.get('pixels'))
        if key in kwargs and not stacked_already and not _is_own_argument(env_id, env_type, key):
            views[key] = kwargs.pop(key)
    hidden, frames = views.get('hide_velocity', False), views.get('frame_stack', 1)
    if not isinstance(hidden, bool):
        raise InvalidValue(f'hide_velocity is {hidden!r}: give True or False.')
    if not is_integer(frames, 1):
        raise InvalidValue(f'frame_stack is {frames!r}: give the number of observations, an integer of at least 1.')
    return ({'hide_velocity': True} if hidden else {}) | ({'frame_stack': int(frames)} if frames > 1 else {})


def _refuse_habits(env_id: Any, env_type: str, kwargs: dict[str, Any]) -> None:
    """Refuse the names that other libraries have for an argument, unless the environment itself has it."""
    for key in filter(HABITS.__contains__, kwargs):
        if not _is_own_argument(env_id, env_type, key):
            raise InvalidType(f'{_name(env_id)!r} does not take the argument {key!r}: {HABITS[key]}.')


def _is_own_argument(env_id: Any, env_type: str, key: str) -> bool:
    if env_type not in ('gymnasium', 'envpool'):
        return False
    return bool(kind_of(env_type).takes(env_id, key))


def _shaped(function: Callable[[float], float], reward: float) -> float:
    """What ``reward_shaping`` makes of a reward; a ValueError if that is not a finite number."""
    shaped = function(reward)
    try:
        if math.isfinite(shaped):
            return float(shaped)
    except TypeError:  # None, a text, an array of several
        pass
    raise InvalidValue(
        f'reward_shaping must return a finite number, but returned {shaped!r} for the reward {reward!r}.'
    )


def _envpool_may_pay(env_id: Any, nenv: int, kwargs: dict[str, Any]) -> bool:
    """Whether there are enough copies to make up for EnvPool's threads, if EnvPool has the task.

    A step of a pool costs about 60 microseconds however few copies it has. Microseconds per step of all copies, in this
    process / in EnvPool, on two cores: 4 copies of Acrobot 141 / 53, of Pendulum 57 / 52, of LunarLander 145 / 99, of
    HalfCheetah 192 / 187; 16 of HalfCheetah 732 / 510. Only CartPole is faster here, up to 8 copies (67 / 73).
    Arguments other than the time limit could mean something else to EnvPool.
    """
    return isinstance(env_id, str) and nenv >= 4 and not kwargs.keys() - {'max_episode_steps'}
