"""What many tests take: updates without XLA, and a short look for garbage."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture
def plain_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No XLA, which takes seconds to compile each agent's update."""
    for module in ('zoo.common.maths.optimizers', 'zoo.algorithms.base.algorithm'):
        monkeypatch.setattr(f'{module}.prefers_xla', lambda variables: False)


@pytest.fixture
def plain_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """No XLA, as where there are several learners; optimizers are what they are in a process of another one."""
    monkeypatch.setattr('zoo.algorithms.base.algorithm.prefers_xla', lambda variables: False)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What the imports have made stays until the end: collecting garbage need not look at all of it every time."""
    gc.collect()
    gc.freeze()
