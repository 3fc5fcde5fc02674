"""Environments by the names that packages register with Gymnasium, and environments that users bring."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import io
import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import gymnasium
from gymnasium.envs.registration import EnvCreator, EnvSpec, load_env_creator, registry
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.wrappers import TimeLimit

from zoo.common.envs import answers
from zoo.common.envs.kinds import pixels, rendering
from zoo.common.envs.kinds.compiled import is_functions, makes_functions
from zoo.common.envs.kinds.modules import imported, in_module, maker_of
from zoo.common.envs.kinds.old_gym import OldGymEnv, is_old_gym
from zoo.common.tools.errors import InvalidType, InvalidValue, MissingPackage, nearest, unknown

#: Environment type -> the beginning of the entry points of its registered names.
PACKAGES = {
    'classic_control': 'gymnasium.envs.classic_control.',
    'box2d': 'gymnasium.envs.box2d.',
    'mujoco': 'gymnasium.envs.mujoco.',
    'atari': 'ale_py.env:',
    'robotics': 'gymnasium_robotics.',
}
#: The types whose names another package registers when it is imported.
PLUGINS = {'atari': 'ale_py', 'robotics': 'gymnasium_robotics'}
#: The types whose names Gymnasium registers even without the package that runs them.
RUN_BY = {'box2d': 'Box2D', 'mujoco': 'mujoco'}
#: The types that need packages beyond the core; the extra of ``zoo-rl`` has the name of the type.
EXTRAS = ('box2d', 'mujoco', 'atari', 'robotics')


class UnusableError(InvalidType):
    """What was given is no environment, and does not make one."""


def find(env_id: Any, env_type: str) -> Callable[..., gymnasium.Env | VectorEnv]:
    """Return the factory ``make(**kwargs)`` of an environment; it can be pickled if ``env_id`` can.

    Args:
        env_id: a registered name, ``'package:Name-v0'``; for ``env_type='gymnasium'`` also a class, a function that
            returns an environment, or an environment object, also with the old ``gym`` interface.
        env_type: a key of :data:`PACKAGES`, or ``'gymnasium'``.

    Raises:
        ValueError: an unknown name, or a name of another type.
        TypeError: Gymnasium cannot use ``env_id``.
    """
    if isinstance(env_id, str):
        maker = maker_of(env_id) if env_type == 'gymnasium' else None
        if makes_functions(maker):
            raise UnusableError(_pure(maker))
        return partial(make_registered, find_spec(env_id, env_type)) if maker is None else partial(_call, maker)
    if env_type != 'gymnasium':
        raise InvalidType(
            f'a {env_type} environment is given by its name, not by {env_id!r}: '
            "build_env(env, 'gymnasium') takes a class, a function or an environment object."
        )
    _refuse_others(env_id)
    if is_functions(env_id) or makes_functions(env_id):
        raise UnusableError(_pure(env_id if isinstance(env_id, type) else type(env_id)))
    if isinstance(env_id, (gymnasium.Env, VectorEnv)) or is_old_gym(env_id):
        return partial(_use_object, env_id)
    if callable(env_id):
        return partial(_call, env_id)
    raise UnusableError(_not_gymnasium(env_id))


def register(env_type: str) -> None:
    """Import the package that registers the names of a type; an ImportError has the ``pip install`` line."""
    if env_type not in PLUGINS:
        return
    try:
        # Gymnasium-Robotics prints a notice on the versions of its Adroit tasks, whatever it is imported for.
        with contextlib.redirect_stderr(io.StringIO()):
            importlib.import_module(PLUGINS[env_type])
    except ImportError as error:
        raise MissingPackage(_missing(env_type, error)) from error


def _missing(env_type: str, error: object) -> str:
    return f"{env_type} environments need a package that is not installed: pip install 'zoo-rl[{env_type}]' ({error})."


#: The beginnings of the names that a package registers; they say what is missing where it is not installed.
_BEGINNINGS = {
    'atari': r'ALE/|\w+(NoFrameskip|Deterministic)-v\d+$|\w+-ram(-|No|Det)',
    'robotics': r'Fetch[A-Z]|HandManipulate|HandReach|Adroit|AntMaze|PointMaze|FrankaKitchen',
}


def _missing_type(name: str) -> str | None:
    """Return the type of an unknown name whose package is not installed."""
    for env_type, beginning in _BEGINNINGS.items():
        if re.match(beginning, name) and importlib.util.find_spec(PLUGINS[env_type]) is None:
            return env_type
    return None


def _register_all() -> None:
    """Register the names of all installed packages, to find the type of a name."""
    for env_type in PLUGINS:
        with contextlib.suppress(ImportError):
            register(env_type)


def ids(env_type: str) -> list[str]:
    """Return the registered names of a type, sorted; all names for ``'gymnasium'``."""
    usable = (spec for spec in registry.values() if not _is_placeholder(spec))
    return sorted(spec.id for spec in usable if env_type in ('gymnasium', type_of(spec)))


def installed_ids(env_type: str) -> list[str]:
    """Return :func:`ids` after importing the package of a type, or all that are installed for ``'gymnasium'``.

    An ImportError says that the package is not installed, with the ``pip install`` line.
    """
    if env_type == 'gymnasium':
        _register_all()
    elif env_type in RUN_BY and importlib.util.find_spec(RUN_BY[env_type]) is None:
        raise MissingPackage(_missing(env_type, f'there is no module {RUN_BY[env_type]!r}'))
    register(env_type)
    return ids(env_type)


def type_of(spec: EnvSpec) -> str:
    """Return the type of an environment, ``'gymnasium'`` when it is none of :data:`PACKAGES`."""
    module = _module(spec)
    return next((name for name, package in PACKAGES.items() if module.startswith(package)), 'gymnasium')


def type_of_name(env_id: str) -> str:
    """Return the type of a name that Gymnasium's registry has, ``'gymnasium'`` for any other name."""
    spec = registry.get(env_id.rpartition(':')[2])
    return 'gymnasium' if spec is None else type_of(spec)


def _module(spec: EnvSpec) -> str:
    entry = spec.entry_point
    return entry if isinstance(entry, str) else getattr(entry, '__module__', '')


def find_spec(env_id: str, env_type: str) -> EnvSpec:
    """Return the registered specification of ``env_id``. (Gymnasium's own look-up warns of old versions and guesses.)

    Raises:
        ValueError: an unknown name (the message has the nearest one), or a name of another type.
        ImportError: ``package`` of ``'package:Name-v0'`` cannot be imported.
    """
    package, _, name = env_id.rpartition(':')
    if package:
        imported(package, env_id)
    register(env_type)
    spec = registry.get(name)
    if spec is None:
        _register_all()
        spec = registry.get(name)
    if spec is None or _is_placeholder(spec):
        if env_type != 'gymnasium':
            raise InvalidValue(unknown(f'{env_type} environment', name, ids(env_type)))
        missing = _missing_type(name)
        if missing is not None:
            raise MissingPackage(_missing(missing, f'for {name!r}'))
        told = None if package else in_module(env_id)
        if told is not None:
            raise InvalidValue(told)
        close = nearest(name, ids('gymnasium'))
        raise InvalidValue(
            f'unknown environment {name!r}'
            + (f': did you mean {close!r}? ' if close else '. ')
            + "An environment of another package is 'package:Name-v0', and a class is 'module:Class'."
        )
    actual = type_of(spec)
    if env_type not in ('gymnasium', actual):
        raise InvalidValue(f'{name!r} is an environment of type {actual!r}: give that type, not {env_type!r}.')
    if isinstance(spec.entry_point, str) and spec.entry_point.startswith('__main__:'):
        # Another process has another __main__, so the class itself travels there, not its name.
        spec = dataclasses.replace(spec, entry_point=cast(EnvCreator, load_env_creator(spec.entry_point)))
    return spec


def _is_placeholder(spec: EnvSpec) -> bool:
    """Whether a name only says what became of an environment (``HalfCheetah-v2``), or has no single environment."""
    entry = spec.entry_point
    if isinstance(entry, str):  # Gymnasium-Robotics still has names that need ``mujoco_py`` and cannot be built
        return any(part in entry for part in ('gymnasium_robotics.envs.mujoco.', 'MujocoPy', 'ant_maze_v3'))
    return entry is None or entry.__module__ == 'gymnasium.envs'


def make_registered(spec: EnvSpec, /, **kwargs: Any) -> gymnasium.Env:
    """Make an environment, with the pixel observations that ``kwargs`` ask for.

    Raises:
        ValueError: a ``render_mode`` that the environment lacks, or a window without a display.
        TypeError: the environment does not take one of ``kwargs``.
        ImportError, RuntimeError: a package, or the renderer that ``MUJOCO_GL`` names, is missing.
    """
    # An Atari game is seen in pixels already, and refuses the argument.
    options = {} if type_of(spec) == 'atari' else pixels.take_options(kwargs)
    mode = kwargs.get('render_mode')
    by_mujoco = type_of(spec) in ('mujoco', 'robotics')
    is_known = type_of(spec) != 'gymnasium' or _module(spec).startswith('gymnasium.envs.')
    if mode == 'human' and is_known:  # other packages may print to the terminal
        rendering.check_display(spec.id, by_sdl=not by_mujoco)
    if by_mujoco or mode == 'human':  # SDL may load Mesa for its window, too
        rendering.before_import(mode)
    if kwargs.get('max_episode_steps') and 'max_episode_steps' in _parameters(spec.entry_point):
        # Gymnasium does not hand the argument on, and the environment would keep its own limit.
        spec = dataclasses.replace(spec, kwargs={**spec.kwargs, 'max_episode_steps': kwargs['max_episode_steps']})
    try:
        with warnings.catch_warnings():
            # Box2D's bindings warn when they are imported; where warnings are errors, that crashes the interpreter.
            warnings.simplefilter('ignore', DeprecationWarning)
            if is_known:  # other packages may have more modes than they list: Gymnasium's warning is enough
                warnings.filterwarnings('ignore', '.*render_mode')
            env = gymnasium.make(spec, **{'disable_env_checker': True, **kwargs})
        if is_known:
            _check_render_mode(env, spec.id, mode)
        return pixels.add_pixels(env, **options) if options else env
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        kind = type_of(spec)
        fix = f": pip install 'zoo-rl[{kind}]'" if kind in EXTRAS else ''
        raise MissingPackage(f'{spec.id!r} needs a package that is not installed{fix} ({error}).') from error
    except TypeError as error:
        _refuse_argument(error, spec.id, spec.entry_point, kwargs)
        raise
    except AttributeError as error:
        rendering.check_import(error)
        raise
    except OverflowError as error:
        raise answers.own_fault(f'{spec.id!r} cannot be made', error) from error


def _call(
    maker: Callable[..., Any], /, max_episode_steps: int | None = None, **kwargs: Any
) -> gymnasium.Env | VectorEnv:
    name = _name(maker)
    if max_episode_steps is not None and 'max_episode_steps' in _parameters(maker):
        kwargs['max_episode_steps'] = max_episode_steps  # else it would keep its own limit
    if kwargs.get('render_mode') == 'human':
        modes = (
            maker.metadata.get('render_modes', [])
            if isinstance(maker, type) and issubclass(maker, gymnasium.Env)
            else []
        )
        if 'human' not in modes and 'rgb_array' in modes:
            shown = partial(_call, maker, max_episode_steps, **kwargs | {'render_mode': 'rgb_array'})
            return rendering.in_window(shown, name)
        rendering.before_import('human')
    try:
        env = maker(**kwargs)
    except TypeError as error:
        _refuse_argument(error, name, maker, kwargs)
        _ask_for_argument(error, name, maker)
        raise
    except OverflowError as error:
        raise answers.own_fault(f'{name!r} cannot be made', error) from error
    if env is None:
        raise UnusableError(f'{name!r} returned None: let it return the environment that it makes.')
    env = _use_object(env, max_episode_steps)
    _check_render_mode(env, name, kwargs.get('render_mode'))
    return env


def _use_object(env: Any, /, max_episode_steps: int | None = None, **kwargs: Any) -> gymnasium.Env | VectorEnv:
    if kwargs:
        raise InvalidType(
            f'{", ".join(kwargs)} cannot be given to an environment object: pass its class or a function.'
        )
    _refuse_others(env)
    if isinstance(env, VectorEnv):
        if max_episode_steps is None:
            return env
        raise InvalidType('max_episode_steps cannot be given to a VectorEnv: pass the class of the single environment.')
    if is_old_gym(env):
        try:
            env = OldGymEnv(env)
        except TypeError as error:
            raise UnusableError(str(error)) from error
    if not isinstance(env, gymnasium.Env):
        raise UnusableError(_not_gymnasium(env))
    name = type(env.unwrapped).__name__
    if getattr(env, 'render_mode', None) == 'human' and pixels.has_scene(env):
        rendering.check_display(name, by_sdl=False)
    if max_episode_steps is None:
        return env
    own = time_limit(env)
    if own is not None and own < max_episode_steps:
        raise InvalidValue(
            f'{name} has a time limit of {own} steps already, so max_episode_steps={max_episode_steps} would do '
            f'nothing: change the limit of {own} where it is set.'
        )
    return TimeLimit(env, max_episode_steps)


def time_limit(env: Any) -> int | None:
    """Return the steps after which a wrapper of Gymnasium truncates an episode; None without such a wrapper."""
    found = []
    while isinstance(env, gymnasium.Wrapper):
        found += [env._max_episode_steps] if isinstance(env, TimeLimit) else []
        env = env.env
    return min(found, default=None)


def _check_render_mode(env: gymnasium.Env | VectorEnv, name: str, mode: str | None) -> None:
    """Refuse a mode that the environment does not list among its modes: it would draw nothing, without a word."""
    metadata = getattr(env, 'metadata', None)
    modes = metadata.get('render_modes') if isinstance(metadata, dict) else None
    if mode is not None and isinstance(modes, (list, tuple)) and modes and mode not in modes:
        env.close()
        raise InvalidValue(unknown(f'render_mode of {name!r}', mode, modes))


def takes(env_id: Any, argument: str) -> bool:
    """Whether an environment, given as for :func:`find`, takes the argument of a name itself, or may hand it on."""
    maker = maker_of(env_id) if isinstance(env_id, str) else env_id
    spec = find_spec(env_id, 'gymnasium') if maker is None else None
    names = _parameters(maker) if spec is None else [*spec.kwargs, *_parameters(spec.entry_point)]
    return argument in names or '**' in names


def _parameters(maker: Any) -> list[str]:
    """The names of the arguments of a function or a class, with ``'**'`` for a function that takes any other argument.

    A class hands its ``**kwargs`` to its bases, so it takes their arguments; a function may hand them to anything.
    """
    if isinstance(maker, str):
        try:
            maker = load_env_creator(maker)
        except Exception:  # its package is missing; making the environment says so
            return []
    functions = [maker]
    if isinstance(maker, type):
        functions = [vars(cls)['__init__'] for cls in maker.__mro__[:-1] if '__init__' in vars(cls)]
    names: list[str] = []
    for function in functions:
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # written in C
            break
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        names += [p.name for p in parameters if p.kind in named and p.name not in ('self', *names)]
        if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
            return names
    return names if isinstance(maker, type) else [*names, '**']


#: Arguments that ``build_env`` takes for every environment.
OF_EVERY_ENVIRONMENT = (
    'nenv',
    'seed',
    'vectorized',
    'reward_shaping',
    'max_episode_steps',
    'hide_velocity',
    'frame_stack',
)


def _refuse_argument(error: TypeError, name: str, maker: Any, kwargs: dict[str, Any]) -> None:
    """Raise one sentence if ``error`` says that the environment does not take one of ``kwargs``."""
    told = str(error)
    if 'render_mode' in kwargs and ("keyword argument 'render_mode'" in told or told.endswith('takes no arguments')):
        drawn = 'its __init__ has to take render_mode, and its render() has to return the picture'
        raise InvalidType(f'{name!r} cannot be drawn: {drawn}.') from error
    found = re.search(r"unexpected keyword argument '(\w+)'", told)
    if not (found and found.group(1) in kwargs):
        return
    argument, hint = found.group(1), ''
    known = [other for other in _parameters(maker) if other not in ('**', argument)]
    close = nearest(argument, [*known, *OF_EVERY_ENVIRONMENT])
    if argument in ('pixels', *pixels.OPTIONS):
        hint = f': pixels=True and its {", ".join(pixels.OPTIONS)} are for registered names'
    elif close:
        hint = f': perhaps {close!r} is meant'
    elif known:
        hint = f', only {", ".join(known)}'
    raise InvalidType(f'{name!r} does not take the argument {argument!r}{hint}.') from error


def _ask_for_argument(error: TypeError, name: str, maker: Any) -> None:
    """Raise one sentence if ``error`` says that the call itself lacked an argument."""
    found = re.search(r'missing \d+ required (?:positional|keyword-only) arguments?: (.+)$', str(error))
    if found and error.__traceback__ and error.__traceback__.tb_next is None:  # raised by the call itself
        missing = re.findall(r"'(\w+)'", found.group(1))
        if isinstance(maker, type) and issubclass(maker, gymnasium.Wrapper | VectorWrapper) and 'env' in missing:
            others = ''.join(f', {x}=…' for x in missing if x != 'env')
            made = "gymnasium.make('CartPole-v1')" if issubclass(maker, gymnasium.Wrapper) else 'vector_env'
            raise UnusableError(
                f'{name!r} is a wrapper, which needs an environment to wrap: give a function that makes both, as in '
                f'build_env(lambda: {name}({made}{others})).'
            ) from error
        given = ', '.join(f'{x}=…' for x in missing)
        options = ' '.join(f'--env-set {x}=…' for x in missing)
        raise UnusableError(
            f'{name!r} cannot be made without {found.group(1)}: write build_env({name}, {given}), or {options} in a '
            'shell, or give a function that makes the environment.'
        ) from error


def _refuse_others(env: Any) -> None:
    """Refuse what looks like an environment and is another thing: for several agents, or copies by another library."""
    if isinstance(env, (gymnasium.Env, VectorEnv)):
        return
    metadata = getattr(env, 'metadata', None)
    name = metadata.get('name') if isinstance(metadata, dict) else None
    name = name or getattr(env, '__name__', type(env).__name__)
    packages = [env.__name__] if inspect.ismodule(env) else [kind.__module__ for kind in type(env).__mro__]
    if any(package.partition('.')[0] == 'pettingzoo' for package in packages):
        raise UnusableError(
            f'{name} is of PettingZoo, where several agents act, but zoo trains one: make a gymnasium.Env in which it '
            'plays for one of them, and the others act in step(); examples/self_play.py does that.'
        )
    if is_old_gym(env) and isinstance(getattr(env, 'num_envs', None), int):
        raise UnusableError(
            f"{name} is a vector environment, but not Gymnasium's: give the class or the function of one environment, "
            f'with nenv={env.num_envs} for as many copies.'
        )


def _pure(cls: Any) -> str:
    name = cls.__name__
    return f"{name} is an environment of pure functions: build_env({name}(…), 'compiled')."


def _name(maker: Any) -> str:
    called = getattr(maker, 'func', None)  # what a partial calls
    return str(getattr(maker, '__name__', None) or getattr(called, '__name__', repr(maker)))


def _not_gymnasium(env: Any) -> str:
    return (
        f'{type(env).__module__}.{type(env).__name__} is not a Gymnasium environment: give a registered name, a class '
        'derived from gymnasium.Env, a function that returns such an environment, or the environment itself.'
    )
