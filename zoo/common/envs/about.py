"""What zoo knows of an environment: a record that ``build_env`` notes and :func:`about` reads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymnasium import Env
    from gymnasium.vector import VectorEnv

#: The attribute of an environment that holds its record. Nothing outside this file knows it.
_ATTRIBUTE = '_zoo_about'


@dataclass(frozen=True)
class About:
    """What zoo knows of an environment.

    Attributes:
        name: what to call it in file names and titles: its registered name, else the name of the class or function
            that ``build_env`` was given, else the name of its own class. Copies have the name of one.
        type: the ``env_type`` that ``build_env`` was given; None where ``build_env`` did not return the environment.
            ``build_env(Wrapper(build_env('Hopper-v5', 'mujoco')))`` keeps the type that says more than ``'gymnasium'``.
        copies: the number of copies that step together, 1 for a single environment.
        arguments: the arguments of ``build_env`` that make the environment from its name, without seed and render mode.
            A class in a module is ``'module:Class'``. None where only a program can make it: from a class of the
            program itself, a lambda or an object, with ``reward_shaping``, or with a wrapper around what ``build_env``
            returned.
        rebuild: a function of ``seed``, ``nenv`` and other arguments of ``build_env`` that builds the environment
            again, also in another process. None for an environment object and for one with a wrapper around.
        defaults: a user's own defaults for it that ``call_default_params`` took, by algorithm, as plain data.
    """

    name: str
    type: str | None = None
    copies: int = 1
    arguments: dict[str, Any] | None = None
    rebuild: Callable[..., Env | VectorEnv] | None = None
    defaults: dict[str, Any] = field(default_factory=dict)

    @property
    def made_by(self) -> str | None:
        """What tells environments apart that only a program can make: ``'Warehouse 1f3a9c2e'``. None for others."""
        if self.arguments is not None or self.rebuild is None:
            return None
        from zoo.common.tools.identity import identity  # NumPy takes a tenth of a second

        return f'{self.name} {identity(self.rebuild).rpartition(" ")[2]}'


def about(env: Env | VectorEnv) -> About:
    """Return what zoo knows of an environment, whatever has been wrapped around it since it was built."""
    own, inside = _own(env), _inside(env)
    if own is not None:
        return replace(own, arguments=own.arguments and dict(own.arguments))  # the record itself stays as it is
    inside = inside or About(_name(env, None))
    return About(_name(env, inside.name), inside.type, _copies(env), defaults=inside.defaults)


def env_name(env: Env | VectorEnv) -> str:
    """Return what to call an environment, see :class:`About`."""
    return about(env).name


def env_type_of(env: Env | VectorEnv) -> str | None:
    """Return the ``env_type`` that an environment was built with; None where ``build_env`` did not build it.

    >>> env_type_of(build_env('CartPole-v1', 'classic_control'))
    'classic_control'
    """
    return about(env).type


def remember(
    env: Env | VectorEnv,
    env_type: str,
    given: str | None,
    arguments: dict[str, Any] | None,
    rebuild: Callable[..., Env | VectorEnv] | None,
) -> None:
    """Note what ``build_env`` made (see :class:`About`) of what is called ``given``, None for an environment object.

    An object that takes no attribute has no record.
    """
    before, own = _inside(env), _own(env)  # of an environment that is built on
    if before is not None:
        given = given or before.name
        env_type = before.type if before.type and env_type == 'gymnasium' else env_type
    known = About(_name(env, given), env_type, _copies(env), arguments, rebuild)
    if own is not None:  # the very object, made as before
        known = replace(known, arguments=arguments or own.arguments, rebuild=rebuild or own.rebuild)
    with contextlib.suppress(AttributeError):
        setattr(env, _ATTRIBUTE, known)


def note_defaults(env: Env | VectorEnv, alg: str, defaults: dict[str, Any]) -> None:
    """Note the user's own defaults of an algorithm that were taken for an environment."""
    with contextlib.suppress(AttributeError):
        setattr(env, _ATTRIBUTE, replace(about(env), defaults=about(env).defaults | {alg: defaults}))


def _own(env: Any) -> About | None:
    return getattr(env, '__dict__', {}).get(_ATTRIBUTE)


def _inside(env: Any) -> About | None:
    """The record of an environment or of the next one inside it; wrappers do not hand on private names."""
    for _ in range(100):  # an attribute called `env` need not be a wrapped environment, and may lead in a circle
        found = _own(env)
        if found is not None:
            return found
        env = getattr(env, '__dict__', {}).get('env')
    return None


def _copies(env: Env | VectorEnv) -> int:
    from gymnasium.vector import VectorEnv

    return env.num_envs if isinstance(env, VectorEnv) else 1


def _name(env: Env | VectorEnv, given: str | None) -> str:
    base = env.unwrapped
    name = getattr(getattr(base, 'spec', None), 'id', None)
    if name:
        return str(name)
    from gymnasium.vector import SyncVectorEnv, VectorEnv

    single = base.envs[0].unwrapped if isinstance(base, SyncVectorEnv) else base
    # A function without a name says less than the class of what it made. Copies in processes have no class to ask for.
    if given is None or (given == 'lambda' and not isinstance(single, VectorEnv)):
        return type(single).__name__
    return given
