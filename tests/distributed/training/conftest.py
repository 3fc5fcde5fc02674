"""Updates in this process are compiled as in a training with several learners: without XLA."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def without_xla(plain_updates: None) -> None:
    """Let every test of this folder update without XLA."""
