"""The types of environment, and the names that each type has."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
from types import ModuleType
from typing import Any

from zoo.common.tools.errors import InvalidValue, nearest, unknown

#: Environment type -> its module in ``zoo/common/envs/kinds``.
TYPES = {
    'classic_control': 'registered',
    'box2d': 'registered',
    'mujoco': 'registered',
    'atari': 'atari',
    'robotics': 'registered',
    'dm_control': 'dm_control',
    'rlbench': 'rlbench',
    'envpool': 'envpool',
    'compiled': 'compiled',
    'gymnax': 'gymnax',
    'brax': 'brax',
    'jumanji': 'jumanji',
    'mjx': 'mjx',
    'gymnasium': 'registered',
}
#: The modules with names from Gymnasium's registry; the others have a function ``ids``.
_IN_REGISTRY = ('registered', 'atari')
#: The modules that import JAX, which takes seconds; several of them have names that Gymnasium has, too.
_IN_JAX = ('gymnax', 'brax', 'jumanji', 'mjx')
#: The modules that are not searched for a name: their types have to be given. EnvPool has names of the other types.
_ONLY_WHEN_GIVEN = (*_IN_JAX, 'envpool')
#: The names of dm_control, which says them itself where it is installed.
_OF_DM_CONTROL = re.compile(
    r'(acrobot|ball_in_cup|cartpole|cheetah|dog|finger|fish|hopper|humanoid(_CMU)?|lqr|manipulator|pendulum|point_mass|'
    r'quadruped|reacher|stacker|swimmer|walker)-[a-z_0-9]+$'
)


def check_type(env_type: Any) -> None:
    """Refuse a type that is none of :data:`TYPES`, with a ValueError."""
    if not isinstance(env_type, str) or env_type not in TYPES:
        raise InvalidValue(unknown('environment type', env_type, TYPES))


def kind_of(env_type: str) -> ModuleType:
    """Return the module of a type: ``find`` makes a factory of a name, ``ids`` lists the names."""
    return importlib.import_module(f'zoo.common.envs.kinds.{TYPES[env_type]}')


def table_type(env_type: str, env_id: str) -> str:
    """Return the type whose default hyper-parameters an environment gets.

    An EnvPool task takes the type that it is like. A name that was built as ``'gymnasium'`` takes its own type.

    >>> table_type('envpool', 'CheetahRun-v1')
    'dm_control'
    >>> table_type('gymnasium', 'HalfCheetah-v5')
    'mujoco'
    """
    from zoo.common.envs.kinds import registered

    if env_type == 'gymnasium':
        return registered.type_of_name(env_id)
    return str(kind_of(env_type).table_type(env_id)) if env_type == 'envpool' else env_type


def find_env_type(env_id: Any) -> str:
    """Return the type of an environment from its name; ``'gymnasium'`` for no other type, and for what is no name.

    An environment of pure functions, its class, and ``'module:Class'`` of one are of type ``'compiled'``.

    >>> find_env_type('CartPole-v1')
    'classic_control'

    Raises:
        ValueError: no installed type has the name; the message has the nearest name. The libraries in JAX and EnvPool
            are not searched: their types have to be given. The message says where EnvPool has the name.
        ImportError: ``package`` of ``'package:Name-v0'`` cannot be imported.
    """
    from zoo.common.envs.kinds import compiled, modules, registered

    maker = modules.maker_of(env_id) if isinstance(env_id, str) else env_id
    if maker is not None:
        is_pure = compiled.is_functions(maker) or compiled.makes_functions(maker)
        return 'compiled' if is_pure else 'gymnasium'
    try:
        return registered.type_of(registered.find_spec(env_id, 'gymnasium'))
    except ValueError as error:
        refused = str(error)
    known: list[str] = []
    for env_type, module in TYPES.items():
        if module not in (*_IN_REGISTRY, *_ONLY_WHEN_GIVEN):
            try:
                names = kind_of(env_type).ids()
            except ImportError:
                if env_type == 'dm_control' and _OF_DM_CONTROL.match(env_id):
                    raise
                continue
            if env_id in names:
                return env_type
            known += names
    close = nearest(env_id, [*registered.ids('gymnasium'), *known])
    with contextlib.suppress(ImportError):
        if env_id in kind_of('envpool').ids():
            told = f'unknown environment {env_id!r}' + (f': did you mean {close!r}?' if close else '.')
            raise InvalidValue(
                f"{told} EnvPool has it: build_env({env_id!r}, 'envpool').",
                shell=f'{told} EnvPool has it: --type envpool.',
            )
    message = f'unknown environment {env_id!r}: did you mean {close!r}?' if close in known else refused
    if importlib.util.find_spec('jax') is not None:
        message += f' For an environment of {", ".join(_IN_JAX[:-1])} or {_IN_JAX[-1]} give its type.'
    raise InvalidValue(message)


def list_envs(env_type: str, latest: bool = False) -> list[str]:
    """Return the names that ``build_env(name, env_type)`` opens, sorted, as the installed packages list them.

    Args:
        env_type: as for ``build_env``. ``'gymnasium'`` lists what the installed packages known here register, and the
            packages imported so far; some names may need further packages.
        latest: leave out a name such as ``'Hopper-v4'`` where there is a ``'Hopper-v5'``.

    Raises:
        ValueError: an unknown ``env_type``.
        ImportError: the package of the type is not installed; the message has the ``pip install`` line.
    """
    check_type(env_type)
    if TYPES[env_type] in _IN_REGISTRY:
        from zoo.common.envs.kinds import registered

        names = registered.installed_ids(env_type)
    else:
        names = kind_of(env_type).ids()
    if latest:
        newest: dict[str, int] = {}
        for stem, version in map(_version, names):
            newest[stem] = max(version, newest.get(stem, version))
        names = [name for name in names if newest[_version(name)[0]] == _version(name)[1]]
    return names


def _version(name: str) -> tuple[str, int]:
    """The stem and the version of a name; a name without a version has 0."""
    stem, _, number = name.rpartition('-v')
    return (stem, int(number)) if stem and number.isdigit() else (name, 0)
