"""Fixtures that many tests use, and which tests ``pytest`` and ``pytest -m full`` run."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope='module')
def short_collections() -> None:
    """Keep what is alive out of later garbage collections: with all that a worker has made, one takes a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_defaults_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the library's own defaults."""
    monkeypatch.delenv('ZOO_DEFAULTS', raising=False)


@pytest.fixture(autouse=True)
def drawings_go_where_the_test_says() -> None:
    """Forget where an earlier test of this process has sent pygame's drawings."""
    rendering: Any = sys.modules.get('zoo.common.envs.kinds.rendering')
    if rendering is not None and rendering._SENT:
        rendering._SENT.clear()
        os.environ.pop('SDL_VIDEODRIVER', None)


@pytest.fixture
def plain_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch XLA off: it takes seconds to compile each agent's update."""
    for module in ('zoo.common.maths.optimizers', 'zoo.algorithms.base.updating'):
        monkeypatch.setattr(f'{module}.prefers_xla', lambda variables: False)


@pytest.fixture
def plain_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch XLA off for updates, as training with several learners does. Optimizers are left as they are."""
    monkeypatch.setattr('zoo.algorithms.base.updating.prefers_xla', lambda variables: False)


def pytest_configure(config: pytest.Config) -> None:
    """Let ``-m full`` leave out what runs on demand only: such parameters of a test that is marked ``full``."""
    if config.option.markexpr == 'full':
        config.option.markexpr = 'full and not learning and not matrix'


@pytest.hookimpl(tryfirst=True)  # before the tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the mark ``full`` from the parameters that its ``but`` names, and put the tests of the site first.

    At the end of a run processes take tests from each other, and each one would build the site, which takes a minute.
    """
    items.sort(key=lambda item: item.path.name != 'test_site.py')
    for item in items:
        for mark in item.iter_markers('full'):
            but = mark.kwargs.get('but', ())
            if isinstance(item, pytest.Function) and but:
                if item.callspec.id in ((but,) if isinstance(but, str) else but):
                    item.own_markers = [each for each in item.own_markers if each.name != 'full']
