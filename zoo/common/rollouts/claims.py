"""Who steps which environment: a training has its environment to itself, and every collector its episodes."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from gymnasium import Env
from gymnasium.vector import SyncVectorEnv, VectorEnv

from zoo.common.tools.errors import InvalidValue


class Claims:
    """The environments of this process that are trained in, and who began episodes in each environment last.

    An environment counts together with what it is wrapped around, and with the copies that it steps in this process.
    """

    def __init__(self) -> None:
        self._training: list[Any] = []
        self._holders: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    @contextlib.contextmanager
    def training_in(self, env: Env | VectorEnv | None) -> Iterator[None]:
        """Let nobody else step ``env`` in this block, since a training does; None: a training without one here."""
        bases = [] if env is None else _bases(env)
        self._training.extend(bases)
        try:
            yield
        finally:
            self._training[:] = [other for other in self._training if all(other is not base for base in bases)]

    def check_free(self, env: Env | VectorEnv) -> None:
        """Raise a ValueError for an environment that is being trained on."""
        if any(base is other for base in _bases(env) for other in self._training):
            raise InvalidValue(
                'this environment is being trained on, and its episodes under way would be cut and mixed with others: '
                'build a second one with build_env for what a callback does.'
            )

    def hold(self, env: Env | VectorEnv, holder: Any) -> None:
        """Take note that ``holder`` begins episodes. It keeps the environment alive, so that identities stay."""
        self._holders.update({id(base): holder for base in _bases(env)})

    def held_by(self, env: Env | VectorEnv, holder: Any) -> bool:
        """Return whether nobody else has begun episodes since ``holder`` did."""
        return all(self._holders.get(id(base)) is holder for base in _bases(env))


#: The claims of this process.
claims = Claims()


def _bases(env: Env | VectorEnv) -> list[Any]:
    """Return the environment without its wrappers, and its copies in this process without theirs."""
    base = env.unwrapped
    return [base, *(copy.unwrapped for copy in base.envs)] if isinstance(base, SyncVectorEnv) else [base]
