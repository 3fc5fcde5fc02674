"""Updates in this process are compiled as they are where there are several learners."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def without_xla(plain_updates: None) -> None:
    """See there."""
