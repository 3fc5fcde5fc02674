"""What zoo knows of an environment: its type, its name, how it was built."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymnasium import Env
    from gymnasium.vector import VectorEnv


def env_type_of(env: Env | VectorEnv) -> str | None:
    """The ``env_type`` that :func:`build_env` was given for an environment, whatever has been wrapped around it since.

    None for an environment that :func:`build_env` did not return. One that it returned twice, as in
    ``build_env(Wrapper(build_env('Hopper-v5', 'mujoco')))``, keeps the type that says more than ``'gymnasium'``.
    """
    return _kept(env, '_zoo_type')


def env_name(env: Env | VectorEnv) -> str:
    """What to call an environment: in the names of files, in titles.

    Its registered name if it has one; else the name of the class or the function that :func:`build_env` was given,
    whatever has been wrapped around it since; else that of the environment's own class. A vector environment has the
    name of what it has copies of.
    """
    base = env.unwrapped
    registered = getattr(getattr(base, 'spec', None), 'id', None)
    if registered:
        return str(registered)
    from gymnasium.vector import SyncVectorEnv, VectorEnv

    single = base.envs[0].unwrapped if isinstance(base, SyncVectorEnv) else base
    given = _kept(env, '_zoo_name')
    if given is None or (given == 'lambda' and not isinstance(single, VectorEnv)):
        return type(single).__name__
    return given


def made_with(env: Env | VectorEnv) -> dict[str, Any] | None:
    """The arguments with which :func:`build_env` made an environment from its name, without seed and render mode.

    None where a program is needed to make it: of a class, a function, an object, with ``reward_shaping``, or with
    something around it that :func:`build_env` does not know of.
    """
    found = getattr(env, '__dict__', {}).get('_zoo_made_with')
    return None if found is None else dict(found)


def _kept(env: Any, attribute: str) -> Any:
    """What :func:`build_env` noted on an environment or on one inside it; wrappers do not hand on private names."""
    for _ in range(100):  # an attribute of that name need not be a wrapped environment, and may lead in a circle
        own = getattr(env, '__dict__', {})
        if attribute in own:
            return own[attribute]
        env = own.get('env')
    return None


def rebuilder(env: Env | VectorEnv) -> Callable[..., Env | VectorEnv] | None:
    """A function of ``seed`` (and ``nenv``) that builds an environment like this one, here or in another process.

    None where that cannot be: ``env`` is not what :func:`build_env` made of a name, a class or a function.
    """
    return getattr(env, '__dict__', {}).get('_zoo_rebuild')


def registration(env_id: Any) -> Any:
    """What Gymnasium knows of a name, which a script may have registered itself; None of anything else."""
    from gymnasium.envs.registration import registry

    spec = registry.get(env_id) if isinstance(env_id, str) else None
    if spec is None or not str(spec.entry_point).startswith('__main__:'):
        return spec
    from zoo.common.envs.kinds import registered

    return registered.find_spec(env_id, 'gymnasium')  # with the class itself, which is not to be found elsewhere


def rebuild(registration: Any, again: Callable[..., Any], seed: int | None = 0, **changes: Any) -> Any:
    """Build an environment again, in this process or in another one that does not know its name yet."""
    if registration is not None:
        from gymnasium.envs.registration import registry

        from zoo.common.envs.kinds import registered

        try:
            registered.find_spec(registration.id, 'gymnasium')
        except (ValueError, ImportError):
            registry[registration.id] = registration
    return again(seed=seed, **changes)
