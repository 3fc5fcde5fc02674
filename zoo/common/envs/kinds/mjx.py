"""Environments of MuJoCo Playground (Zakka et al. 2025), which run in MJX, MuJoCo's simulation in JAX."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from typing import Any

from zoo.common.envs.kinds import suites
from zoo.common.tools.checks import is_integer
from zoo.common.tools.errors import Failure, InvalidType, InvalidValue

#: The part of the observation that a robot has; the others are for a critic.
STATE = 'state'


def _registry() -> Any:
    with suites.quiet():
        from mujoco_playground import registry
    return registry


def _functions(env_id: str, limit: int | None, kwargs: dict[str, Any]) -> suites.Physics:
    """Return the functions of an environment.

    Args:
        env_id: its name.
        limit: the number of steps after which an episode is truncated; None: ``episode_length`` of its configuration.
        kwargs: what differs from its configuration, with the configuration's names (``'noise_config.level'``) or as
            nested dicts; and ``observation``: a part of the observation, ``'state'`` by default, or ``'all'``.
    """
    registry = _registry()
    kwargs = dict(kwargs)
    wanted = kwargs.pop('observation', None)
    config = registry.get_default_config(env_id)
    known = _flat(config.to_dict())
    given = _flat(kwargs, known)
    suites.check_known(env_id, 'mjx', given, ['observation', *known])
    # Warp's kernels are no part of an XLA program that TensorFlow could run.
    if given.setdefault('impl', 'jax') != 'jax':
        raise InvalidValue(f'impl of {env_id!r} is {given["impl"]!r}, which TensorFlow cannot run: leave it out.')
    try:
        env = registry.load(env_id, config, given)
    except subprocess.CalledProcessError as error:
        raise Failure(
            f'{env_id} of mjx needs the robots of MuJoCo Menagerie, which Playground gets with git from GitHub when '
            f'they are first needed, and that failed ({error}).'
        ) from error
    config = env._config
    repeat = config.get('action_repeat', 1)
    if not is_integer(repeat, 1):
        raise InvalidValue(f'action_repeat is the number of steps with one action, at least 1, not {repeat!r}.')
    return suites.Physics(env_id, env, config.episode_length, repeat, limit, _Shown(env_id, env, wanted))


class _Shown:
    """Picks what an agent sees of an observation.

    Args:
        env_id: the environment's name.
        env: the environment.
        wanted: a part, ``'all'``, or None for the part ``'state'``.
    """

    def __init__(self, env_id: str, env: Any, wanted: Any) -> None:
        import jax

        obs = jax.eval_shape(env.reset, jax.ShapeDtypeStruct((2,), 'uint32')).obs
        parts = sorted(obs) if isinstance(obs, dict) else []
        if not parts and wanted not in (None, 'all'):
            raise InvalidType(f'the observation of {env_id!r} has no parts: leave out observation={wanted!r}.')
        if parts and wanted not in (None, 'all', *parts):
            raise InvalidValue(f"observation of {env_id!r} is {wanted!r}: say 'all' or {', '.join(map(repr, parts))}.")
        self._part = None
        if parts and wanted != 'all':
            self._part = STATE if wanted is None and STATE in parts else wanted

    def __call__(self, obs: Any) -> Any:
        return obs if self._part is None else obs[self._part]


def _flat(tree: dict[str, Any], known: Any = (), prefix: str = '') -> dict[str, Any]:
    """Return nested dicts as one, with names such as ``'noise_config.level'``; a dict in ``known`` is a value."""
    found: dict[str, Any] = {}
    for key, x in tree.items():
        path = f'{prefix}{key}'
        if isinstance(x, dict) and x and path not in known:
            found |= _flat(x, known, f'{path}.')
        else:
            found[path] = x
    return found


def _names() -> Iterable[str]:
    return _registry().ALL_ENVS


_SUITE = suites.Suite('mjx', 'mujoco_playground', _names, _functions)
COMPILED = True
find, ids, make, make_vector = _SUITE.find, _SUITE.ids, _SUITE.make, _SUITE.make_vector
