"""Roles, and how many ranks of a cluster have each role."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from zoo.common.tools.errors import InvalidValue, unknown
from zoo.distributed.engines.base import is_count


class Role(str, Enum):
    """What a rank does in a cluster."""

    LEARNER = 'learner'
    ACTOR = 'actor'
    SERVER = 'server'
    BUFFER = 'buffer'

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Layout:
    """How many ranks each role has. Ranks are numbered in this order: learners, actors, servers, buffers.

    >>> print(connect(learners=1, actors=2).layout)
    1 learner + 2 actors
    """

    learners: int = 1
    actors: int = 0
    servers: int = 0
    buffers: int = 0

    def __post_init__(self) -> None:
        for role in Role:
            count = self.count(role)
            if not is_count(count, 0):
                raise InvalidValue(f'{role}s={count!r} is not a number of ranks: give 0 or more.')
        if self.size == 0:
            raise InvalidValue('a cluster of no ranks: give at least one learner.')

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return sum(self.count(role) for role in Role)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """The numbers of learners, actors, servers and buffers."""
        return self.learners, self.actors, self.servers, self.buffers

    def count(self, role: Role | str) -> int:
        """Return how many ranks a role has."""
        return getattr(self, f'{role_of(role)}s')

    def ranks(self, role: Role | str) -> tuple[int, ...]:
        """Return the global ranks of a role."""
        role = role_of(role)
        start = sum(self.count(other) for other in list(Role)[: list(Role).index(role)])
        return tuple(range(start, start + self.count(role)))

    def place(self, rank: int) -> tuple[Role, int]:
        """Return the role of a global rank and its number within the role."""
        return next((role, rank - self.ranks(role)[0]) for role in Role if rank in self.ranks(role))

    def by_rank(self) -> str:
        """Return ``'rank 0 is a learner, ranks 1 to 4 are actors'``."""
        parts = []
        for role in Role:
            ranks = self.ranks(role)
            if len(ranks) == 1:
                parts.append(f'rank {ranks[0]} is {"an" if role == Role.ACTOR else "a"} {role}')
            elif ranks:
                parts.append(f'ranks {ranks[0]} to {ranks[-1]} are {role}s')
        return ', '.join(parts)

    def __str__(self) -> str:
        counts = [(role, self.count(role)) for role in Role]
        return ' + '.join(f'{count} {role}{"" if count == 1 else "s"}' for role, count in counts if count)


def role_of(role: Role | str) -> Role:
    """Return a role by itself or its name.

    Raises:
        ValueError: there is no such role.
    """
    try:
        return Role(role)
    except ValueError:
        raise InvalidValue(unknown('role', role, [str(each) for each in Role])) from None


def called(role: Role | str, role_rank: int) -> str:
    """Return what messages call a rank: ``'actor 2'``."""
    return f'{role_of(role)} {role_rank}'
