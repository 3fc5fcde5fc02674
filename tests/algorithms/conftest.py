"""A fixture for the tests of the algorithms."""

from __future__ import annotations

import pytest

from zoo.algorithms import base
from zoo.common import optim


@pytest.fixture
def plain_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No XLA, which takes seconds to compile each agent's update."""
    for module in (optim, base):
        monkeypatch.setattr(module, 'prefers_xla', lambda variables: False)
