"""No XLA in the learner of this process, whose updates it takes seconds to compile."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def plain_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimizers are left as other learners, in processes of their own, have them."""
    monkeypatch.setattr('zoo.algorithms.base.prefers_xla', lambda variables: False)
