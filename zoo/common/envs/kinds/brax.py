"""Environments of Brax (Freeman et al. 2021), a simulation of rigid bodies in JAX."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zoo.common.envs.kinds import suites
from zoo.common.tools.checks import is_integer
from zoo.common.tools.errors import InvalidValue

#: The length of an episode by default. ``brax.envs.create`` and Brax' own training have the same.
EPISODE_LENGTH = 1000
_BACKENDS = ('generalized', 'spring', 'positional', 'mjx')


def _classes() -> dict[str, Any]:
    with suites.quiet():  # it says that it does without Warp
        from brax import envs
    return envs._envs


def _functions(env_id: str, limit: int | None, kwargs: dict[str, Any]) -> suites.Physics:
    """Return the functions of an environment.

    Args:
        env_id: its name.
        limit: the number of steps after which an episode is truncated.
        kwargs: of its class, such as ``backend``; and ``action_repeat``.
    """
    cls = _classes()[env_id]
    known = [name for name in suites.arguments_of(cls) if name != 'sys']
    suites.check_known(env_id, 'brax', kwargs, [*known, 'action_repeat'])
    backend = kwargs.get('backend', _BACKENDS[0])
    if backend not in _BACKENDS:
        raise InvalidValue(f'backend of {env_id!r} is {backend!r}: say {", ".join(map(repr, _BACKENDS))}.')
    repeat = kwargs.pop('action_repeat', 1)
    if not is_integer(repeat, 1):
        raise InvalidValue(f'action_repeat is the number of steps with one action, at least 1, not {repeat!r}.')
    return suites.Physics(env_id, cls(**kwargs), EPISODE_LENGTH, repeat, limit)


def _names() -> Iterable[str]:
    return _classes()


_SUITE = suites.Suite('brax', 'brax', _names, _functions)
COMPILED = True
find, ids, make, make_vector = _SUITE.find, _SUITE.ids, _SUITE.make, _SUITE.make_vector
