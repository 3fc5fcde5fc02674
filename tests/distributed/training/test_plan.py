"""Which roles fit together."""

from __future__ import annotations

from typing import Any

import pytest

from zoo.distributed import Role
from zoo.distributed.training.planning import check_roles


@pytest.mark.parametrize(
    ('roles', 'message'),
    [
        (4, 'roles is 4: give a dict such as'),
        (True, 'roles is True: give a dict such as'),
        ([('actors', 2)], 'give a dict such as'),
        ({1: 2}, 'unknown role 1'),
        ({'actors': 0}, r'dict\(learners=1, actors=1\) would do'),
        ({'actors': '4'}, "actors='4' is not a number of ranks"),
        ({'actors': -1}, 'actors=-1 is not a number of ranks'),
        ({'actors': True}, 'actors=True is not a number of ranks'),
        ({'actors': None}, 'actors=None is not a number of ranks'),
        ({'actors': 2, 'servers': 0.5}, 'servers=0.5 is not a number of ranks'),
        ({'actor': 2}, "did you mean 'actors'"),
        ({'learners': 0, 'actors': 2}, 'without a learner'),
        ({'learners': 1}, 'at least one'),
        ({'learners': 2, 'actors': 3}, r'dict\(learners=2, actors=4\) would do'),
        ({'actors': 2, 'servers': 3}, 'more servers than actors'),
        ({'actors': 2, 'buffers': 1}, 'leave out buffers'),
        ({'actors': 2.0}, 'not a number of ranks'),
    ],
)
def test_roles_that_do_not_go_together(roles: Any, message: str):
    with pytest.raises(ValueError, match=message):
        check_roles(roles)


def test_a_learner_is_there_unless_said_otherwise():
    layout = check_roles({'actors': 3})
    assert (layout.learners, layout.actors, layout.size) == (1, 3, 4)
    assert layout.by_rank() == 'rank 0 is a learner, ranks 1 to 3 are actors'
    assert layout.ranks(Role.ACTOR) == (1, 2, 3)
